"""The live loop on a cluster of local processes."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from gangwise.engines import rank
from gangwise.engines.engine import Placed
from gangwise.engines.local import LocalEngine
from gangwise.service.account import replayed
from gangwise.service.loop import Service
from gangwise.service.store import ServiceStore

SPEEDS = {"n0": 1.0, "n1": 1.0, "n2": 0.5}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    nodes = [{"name": n, "devices": {"gpu": 2}, "speed": s} for n, s in SPEEDS.items()]
    LocalEngine.create(tmp_path / "cluster", nodes)
    return tmp_path / "cluster"


def submit(cluster: Path, seconds: float, tasks: int = 1, gpus: int = 1) -> str:
    command = [sys.executable, "-S", rank.__file__, "--every", "0.3", "--sleep", str(seconds)]
    return LocalEngine.submit(
        cluster, command, tasks=tasks, demand={"gpu": gpus}, work=seconds, limit=10 * seconds + 5
    )


def until(service: Service, done, patience: float = 120.0) -> None:
    end = time.monotonic() + patience
    while not done():
        assert time.monotonic() < end, (service.health(), service.ledger.jobs)
        service.tick(0.1)


def test_a_head_and_its_workers_start_together_or_wait(cluster: Path, tmp_path: Path):
    """They wait while only a part fits, survive a restart, and count with what each asks for."""
    blocker = submit(cluster, 60.0, tasks=2, gpus=2)
    service = Service(LocalEngine(cluster), tmp_path / "state", act=True)
    until(service, lambda: blocker in service.ledger.jobs)
    until(service, lambda: service.ledger.jobs[blocker].phase == "running")
    sleeps = [sys.executable, "-S", "-c", "import time; time.sleep(1.5)"]
    gang = LocalEngine.submit(
        cluster,
        sleeps,
        limit=60.0,
        groups=[{"tasks": 1, "demand": {"gpu": 2}}, {"tasks": 3, "demand": {"gpu": 1}}],
    )
    until(service, lambda: gang in service.ledger.jobs and not service.ledger.changed)
    for _ in range(5):
        service.tick(0.1)
    assert service.ledger.jobs[gang].phase == "waiting"
    row = service.explanation(gang)
    assert [(g["tasks"], g["demand"]["gpu"]) for g in row["groups"]] == [(1, 2), (3, 1)]
    assert (row["cause"], len(row["users"])) == ("busy", 1)
    assert row["why"].startswith("nothing free: 2 gpu")
    service.engine.cancel(blocker)
    until(service, lambda: service.ledger.jobs[gang].phase == "running")
    placed = service.ledger.jobs[gang].placed
    assert sorted((p.group, p.tasks) for p in placed if p.group == 0) == [(0, 1)]
    assert sum(p.tasks for p in placed if p.group == 1) == 3
    assert service.ledger.open_books.free.sum() == 1000
    service.close()
    service = Service(LocalEngine(cluster), tmp_path / "state", act=True)
    assert service.ledger.jobs[gang].placed == placed
    assert service.ledger.open_books.free.sum() == 1000
    until(service, lambda: gang in service.ledger.outcomes)
    assert service.ledger.outcomes[gang] == "finished"
    assert service.ledger.open_books.free.sum() == 6000
    result = replayed(tmp_path / "state")
    assert result["schedulers"][service.scheduler]["same"] == result["rounds"] > 0
    service.close()


def test_jobs_are_placed_run_and_learned_from(cluster: Path, tmp_path: Path):
    service = Service(LocalEngine(cluster), tmp_path / "state", act=True)
    jobs = [submit(cluster, 1.0, tasks=2) for _ in range(6)]
    until(service, lambda: len(service.ledger.outcomes) == 6)
    assert set(service.ledger.outcomes.values()) == {"finished"}
    rows = service.store.rows("SELECT * FROM intents ORDER BY seq")
    assert [(row["job"], row["attempt"]) for row in rows] == [(job, 1) for job in jobs]
    assert {row["state"] for row in rows} == {"ended"}
    for row in rows:
        assert row["decided"] < row["accepted"] <= row["started"] <= row["ended"]

    def slow() -> dict[str, float]:
        return {s.node: s.slower for s in service.ledger.slow_nodes()}

    # Ranks sleep by the clock: where the machine is busy, it takes more of them.
    for _ in range(10):
        if "n2" in slow():
            break
        jobs.append(submit(cluster, 1.0, tasks=2))
        until(service, lambda: len(service.ledger.outcomes) == len(jobs))
    found = slow()
    assert max(found, key=lambda node: found[node]) == "n2"
    assert 0.3 < found["n2"] < 0.65
    assert service.ledger.books is not None
    assert (service.ledger.books.free == service.ledger.books.capacity).all()
    service.close()
    played = replayed(tmp_path / "state", ["fcfs+easy+worst-fit"])
    assert played["rounds"] >= 3
    same = {name: row["same"] for name, row in played["schedulers"].items()}
    assert same["fcfs+easy+learned:depth=100"] == played["rounds"]
    assert same["fcfs+easy+worst-fit"] < played["rounds"]


def test_devices_whose_job_is_told_to_have_ended_are_free_at_once(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
):
    """However long looks are shared: a look is never older than what was told."""
    monkeypatch.setattr("gangwise.engines.local.POLL", 5.0)
    engine = LocalEngine(cluster)
    placed = [Placed("n0", 2)]
    first, second, third = (submit(cluster, length, tasks=2) for length in (0.1, 60.0, 0.1))
    engine.place(first, 1, placed)
    until_told = time.monotonic() + 120.0
    while not any(event.kind == "finished" for event in engine.events(0.0)):
        assert time.monotonic() < until_told
        time.sleep(0.02)
    engine.place(second, 1, placed)
    engine.preempt(second)
    engine.place(third, 1, placed)
    engine.cancel(second)
    engine.close()


@pytest.mark.full
def test_killed_at_every_line_nothing_is_lost_or_done_twice(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Dies before and after each commit, placement and checkpoint, in turn."""

    class Killed(BaseException):
        pass

    deaths = 0

    def dying(owner: type, name: str, after: bool):
        real = getattr(owner, name)

        def call(self, *given, **named):
            if not after:
                raise Killed
            real(self, *given, **named)
            raise Killed

        return lambda: monkeypatch.setattr(owner, name, call)

    jobs = [submit(cluster, 0.5, tasks=2) for _ in range(3)]
    for owner, name in ((ServiceStore, "commit"), (LocalEngine, "place"), (Service, "_keep")):
        for after in (False, True):
            service = Service(
                LocalEngine(cluster), tmp_path / "state", act=True, reconcile=0.2, checkpoint=0.0
            )
            jobs.append(submit(cluster, 0.5))
            with monkeypatch.context():
                dying(owner, name, after)()
                with pytest.raises(Killed):
                    until(service, lambda: False)
                deaths += 1
            monkeypatch.undo()
            service.store.close()
            os.close(service._lock)
    assert deaths == 6
    service = Service(LocalEngine(cluster), tmp_path / "state", act=True, reconcile=0.2)
    until(service, lambda: len(service.ledger.outcomes) == len(jobs))
    assert set(service.ledger.outcomes.values()) == {"finished"}
    for job in jobs:
        attempts = [p.name for p in (cluster / "jobs" / job).iterdir() if p.name.isdigit()]
        assert attempts == ["1"]
    rows = service.store.rows("SELECT * FROM history")
    assert sorted(row["job"] for row in rows) == sorted(jobs)
    service.close()
