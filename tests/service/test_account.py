"""The account against a cluster in memory, whose ranks work in a test's own time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gangwise.core.errors import ScenarioError
from gangwise.engines.engine import EngineNode, RankReport
from gangwise.service.account import account
from gangwise.service.loop import Service
from tests.service.pretend import Pretend
from tests.service.test_faults import Time, ticks

SPEED = {"n0": 2.0, "n1": 2.0, "n2": 1.0, "n3": 1.0}  # as labelled
RATES = {"model=new": 2.0}
JOBS = 60


def lived(folder: Path, scheduler: str, every: int = 2, slows: float = 1.0) -> Time:
    """Jobs that come and go; after half of them n0 has another speed."""
    time, rng, speed = Time(), random.Random(1), dict(SPEED)
    engine = Pretend(
        [
            EngineNode(n, {"gpu": 4000}, {"model": "new" if s == 2 else "old"})
            for n, s in SPEED.items()
        ]
    )
    service = Service(engine, folder, scheduler, act=True, rates=RATES, clock=time.clock)
    with pytest.raises(Exception, match="checkpoint"):
        account(folder)
    left: dict[str, float] = {}
    ran: dict[str, float] = {}
    done: dict[str, dict[str, float]] = {}
    ticks(service, time)
    step = 0
    while step < every * JOBS or engine.table.keys() - service.ledger.over.keys():
        step += 1
        if step == every * JOBS // 2:
            speed["n0"] *= slows
        if step <= every * JOBS and step % every == 0:
            work = rng.uniform(60.0, 600.0)
            left[str(step)] = work
            engine.submit(str(step), rng.choice([1, 2, 3]), rng.choice([1, 2]), work=work)
        for job, row in list(engine.table.items()):
            if row.phase != "running":
                continue
            left[job] -= 10.0 * min(speed[p.node] for p in row.placed)
            ran[job] = ran.get(job, 0.0) + 10.0
            units = done.setdefault(job, {p.node: 0.0 for p in row.placed})
            for node in units:
                units[node] += 10.0 * speed[node]
            reports = tuple(
                RankReport(p.node, i, units[p.node], ran[job]) for i, p in enumerate(row.placed)
            )
            if left[job] <= 0:
                engine.end(job, ranks=reports)
            elif 60.0 < row.job.work - left[job] < 70.0:
                engine.tell("measured", job, ranks=reports)
        ticks(service, time, 1, 10.0)
    service.close()
    return time


def test_the_simulation_predicts_what_a_live_run_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    time = lived(tmp_path / "state", "fcfs+easy+label")
    found = account(tmp_path / "state", since=0.0)
    assert found["jobs"] == JOBS
    assert abs(found["error"]) < 0.05
    assert found["happened"]["wait"] > 60.0
    assert "60 jobs" in found["told"]
    with pytest.raises(ScenarioError, match="an account needs 5"):
        account(tmp_path / "state", since=time.wall)


def test_a_node_that_slowed_down_is_played_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    lived(tmp_path / "state", "fcfs+easy+learned", every=5, slows=0.4)
    found = account(tmp_path / "state", since=0.0)
    assert found["changed_nodes"] == ["n0"]
    assert "1 had another speed before" in found["told"]
    monkeypatch.setattr("gangwise.service.account.changes", lambda *given: [])
    as_now = account(tmp_path / "state", since=0.0)
    assert abs(found["error"]) < 0.1
    assert as_now["error"] > 0.2
