"""Two services with two folders: one acts, the other takes over, all is placed once."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gangwise.core.errors import EngineError, StoreError
from gangwise.engines.background import BackgroundLoop
from gangwise.engines.engine import Engine, Placed
from gangwise.engines.leader import DURATION, FolderLeader, Leader, ReservationLeader
from gangwise.engines.local import LocalEngine
from gangwise.service.loop import Service
from tests.engines.local_lab import LocalLab
from tests.engines.test_conformance import NAMED
from tests.waiting import Stalls, until

# From Python 3.12 on, where threads of other tests are still there.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
SHORT = 0.6
"""Seconds of a lease, in tests that change leaders often."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LocalLab]:
    lab = LocalLab(tmp_path)
    yield lab
    lab.stop()


def newest(cluster: Path) -> int:
    return max((int(p.name[7:]) for p in cluster.glob("leader.*")), default=0)


def holder(cluster: Path) -> str:
    try:
        found: str = json.loads((cluster / f"leader.{newest(cluster)}/beat").read_text())["holder"]
    except (OSError, ValueError):
        return ""
    return found


def test_one_leads_and_the_next_takes_over_where_it_ends(lab: LocalLab, monkeypatch):
    monkeypatch.setattr(Leader, "duration", SHORT)
    first, second = lab.engine(), lab.engine()
    first.lead("first")
    second.lead("second")
    job = lab.submit(0.1)
    with pytest.raises(EngineError, match="standing"):
        second.place(job, 1, [Placed("a1", 1)])
    with pytest.raises(EngineError, match="standing by"):
        second.events(0.0)
    first.close()
    until(lambda: second._leader and second._leader.held, "the second to lead")
    second.place(job, 1, [Placed("a1", 1)])
    until(lambda: lab.ran(job), "it ran")
    second.close()


def test_a_service_that_cannot_write_leaves_the_lead(lab: LocalLab, tmp_path, monkeypatch):
    monkeypatch.setattr(Leader, "duration", SHORT)
    monkeypatch.setattr("gangwise.service.loop.UNWRITTEN", 2 * SHORT)
    first, second = (
        Service(lab.engine(), tmp_path / name, "fcfs+easy+best-fit", act=True)
        for name in ("first", "second")
    )
    commit = first.store.commit

    def full(*_: Any, **__: Any) -> None:
        raise StoreError("database or disk is full")

    def turn() -> None:
        first.tick(0.02)
        second.tick(0.02)

    until(lambda: (turn(), first.engine.leader.held)[1], "the first leads")
    first.store.commit = full
    jobs = [lab.submit(0.1) for _ in range(3)]
    until(lambda: (turn(), all(map(lab.ran, jobs)))[1], "the second places them", 60.0)
    assert first.counts["placed"] == 0
    first.store.commit = commit
    until(lambda: (turn(), first.health()["well"])[1], "the first is well, and stands by")
    second.close()
    last = lab.submit(0.1)
    until(lambda: (first.tick(0.02), lab.ran(last))[1], "the first leads again", 60.0)
    first.close()


def test_who_was_stopped_in_the_middle_of_a_placement_changes_nothing(lab: LocalLab, monkeypatch):
    """It has looked at its clock, is stopped, and wakes when another leads: the kernel refuses."""
    monkeypatch.setattr(Leader, "duration", SHORT)
    first, second = lab.engine(), lab.engine()
    first.lead("first")
    assert first._leader is not None
    first._leader.loop.end()  # it renews no more
    second.lead("second")
    until(lambda: second._leader and second._leader.held, "the second to lead")
    first._leader._until = float("inf")  # as it was when it looked
    job, other = lab.submit(0.1), lab.submit(0.1)
    with pytest.raises(EngineError, match="is lost"):
        first.place(job, 1, [Placed("a1", 1)])
    assert not (lab.folder / "jobs" / job / "1" / "placed.json").exists()
    second.place(other, 1, [Placed("a1", 1)])
    first._leader._until = float("inf")
    with pytest.raises(EngineError, match="is lost"):
        first.preempt(other)
    until(lambda: lab.ran(other), "it ran")
    second.close()


def test_of_many_who_take_it_at_once_one_has_it(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(BackgroundLoop, "start", lambda self, after: None)
    leaders = [FolderLeader(tmp_path, str(i)) for i in range(8)]
    rng = random.Random(3)
    for _ in range(200):
        found = [leader.read() for leader in leaders]  # all have looked
        order = rng.sample(range(len(leaders)), len(leaders))
        taken = []
        for i in order:
            try:
                state = found[i]
                leaders[i].take(state and state._replace(mine=False))
                taken.append(i)
            except EngineError:
                continue
        assert taken == order[:1]
        assert leaders[taken[0]].number == newest(tmp_path)


def test_who_looked_long_ago_does_not_become_a_second_leader(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(BackgroundLoop, "start", lambda self, after: None)
    first = FolderLeader(tmp_path, "first")
    late = FolderLeader(tmp_path, "late")
    first.take(first.read()._replace(mine=False))
    with pytest.raises(EngineError, match="faster"):
        late.take(None)
    assert first.read().mine


class Slurm:
    """Reservations as slurmctld keeps them."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.lock = threading.Lock()

    def run(self, _: str, verb: str, *words: str) -> str:
        told = dict(word.partition("=")[::2] for word in words)
        name = told.get("ReservationName", "")
        with self.lock:
            if verb == "-o":
                rows = [
                    f"ReservationName={n} EndTime={e} State=ACTIVE" for n, e in self.kept.items()
                ]
                return "\n".join(rows)
            if (verb == "create") == (name in self.kept):
                raise EngineError("Duplicate reservation name" if verb == "create" else "no such")
            if verb == "delete":
                del self.kept[name]
            else:
                self.kept[name] = told["EndTime"]
            return ""


def test_reservations_have_one_leader_too(monkeypatch):
    monkeypatch.setattr(BackgroundLoop, "start", lambda self, after: None)
    slurm = Slurm()
    leaders = [ReservationLeader(slurm.run) for _ in range(6)]
    assert [leader.held for leader in leaders] == [True] + [False] * 5
    rng = random.Random(3)
    for _ in range(100):
        found = [leader.read() for leader in leaders]
        order = rng.sample(range(len(leaders)), len(leaders))
        taken = []
        for i in order:
            try:
                leaders[i].take(found[i]._replace(mine=False))
                taken.append(i)
            except EngineError:
                continue
        assert taken == order[:1]
        assert list(slurm.kept) == [f"gangwise-leader-{leaders[taken[0]].number}"]
        stale = leaders[order[1]]
        with pytest.raises(EngineError, match=r"faster|Duplicate"):
            stale.take(found[order[1]]._replace(state=found[0].state - 1, mine=False))
        assert list(slurm.kept) == [f"gangwise-leader-{leaders[taken[0]].number}"]


# ------------------------------------------------------------------------- services, and their end


def serve(engine: Callable[[], Engine], state: Path, duration: float) -> None:
    """A service in a process of its own."""
    Leader.duration = duration
    service = Service(engine(), state, "fcfs+easy+best-fit", act=True, start_timeout=5.0)
    while True:
        service.tick(0.05)


class Pair:
    """Two services with two folders beside one cluster."""

    def __init__(self, tmp_path: Path, engines: list[Callable[[], Engine]], duration: float):
        self.states = [tmp_path / "one", tmp_path / "two"]
        self.engines, self.duration = engines, duration
        self.processes: list[Any] = [None, None]
        for which in (0, 1):
            self.start(which)

    def start(self, which: int) -> None:
        given = (self.engines[which], self.states[which], self.duration)
        self.processes[which] = multiprocessing.get_context("fork").Process(
            target=serve, args=given, daemon=True
        )
        self.processes[which].start()

    def signal(self, which: int, number: int) -> None:
        os.kill(self.processes[which].pid, number)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


def leading(cluster: Path) -> int | None:
    """Which of a pair leads, by the cluster."""
    told = holder(cluster)
    return 0 if "/one:" in told else 1 if "/two:" in told else None


@pytest.fixture
def pair(lab: LocalLab, tmp_path: Path) -> Iterator[Pair]:
    doors = [tmp_path / "door-one", tmp_path / "door-two"]
    for door in doors:
        door.symlink_to(lab.folder)
    pair = Pair(tmp_path, [lambda door=door: LocalEngine(door) for door in doors], SHORT)
    yield pair
    pair.stop()


def change(lab: LocalLab, pair: Pair, how: str, tmp_path: Path) -> None:
    """Whoever leads is killed, stopped or cut off; the other takes over; the first comes back."""
    until(lambda: leading(lab.folder) is not None, "a leader")
    was, number = leading(lab.folder), newest(lab.folder)
    assert was is not None
    door = tmp_path / ("door-one", "door-two")[was]
    if how == "kill":
        pair.signal(was, signal.SIGKILL)
        pair.processes[was].join()
    elif how == "pause":
        pair.signal(was, signal.SIGSTOP)
    else:
        door.unlink()
    until(lambda: newest(lab.folder) > number and leading(lab.folder) == 1 - was, "the other leads")
    if how == "kill":
        pair.start(was)
    elif how == "pause":
        pair.signal(was, signal.SIGCONT)
    else:
        door.symlink_to(lab.folder)


# Twenty changes at a time take a minute or more on a busy machine.
by_hand = pytest.mark.skipif(
    not os.environ.get("GANGWISE_TAKEOVERS"), reason="a hundred takeovers: GANGWISE_TAKEOVERS=1"
)


@pytest.mark.parametrize(
    ("seed", "changes"),
    [(0, 3), *(pytest.param(s, 20, marks=[pytest.mark.full, by_hand]) for s in range(1, 6))],
)
def test_nothing_is_placed_twice_or_lost(
    lab: LocalLab, pair: Pair, tmp_path: Path, seed: int, changes: int
):
    rng = random.Random(seed)
    jobs = []
    for turn in range(changes):
        for _ in range(3):
            jobs.append(
                (lab.submit(rng.choice([0.05, 0.5]), tasks=(n := rng.choice([1, 2, 4]))), n)
            )
        change(lab, pair, ("kill", "pause", "partition")[(turn + seed) % 3], tmp_path)
    engine = lab.engine()

    def phases() -> dict[str, str]:
        return {row.job.id: row.phase for row in engine.jobs()}

    until(lambda: set(phases().values()) == {"finished"}, "all jobs to end")
    for job, tasks in jobs:
        attempts = [p for p in (lab.folder / "jobs" / job).iterdir() if p.name.isdigit()]
        placed = [p for p in attempts if (p / "placed.json").exists()]
        started = [p for p in placed if (p / "started.json").exists()]
        assert len(started) == 1, (job, attempts)
        assert len(lab.ran(job)) == tasks, (job, lab.ran(job))
        for other in placed:
            assert other in started or (other / "unplaced.json").exists(), other


@pytest.mark.full
def test_a_standby_leads_within_fifteen_seconds(lab: LocalLab, tmp_path: Path):
    pair = Pair(tmp_path, [lab.engine, lab.engine], DURATION)
    try:
        until(lambda: leading(lab.folder) is not None, "a leader")
        was = leading(lab.folder)
        assert was is not None
        pair.signal(was, signal.SIGSTOP)
        began = time.monotonic()
        with Stalls() as stalls:
            job = lab.submit(0.05)
            until(lambda: lab.ran(job), "the other to place it")
            taken = time.monotonic() - began
        assert DURATION - 2.5 < taken < 15.0 + stalls.seconds
        pair.signal(was, signal.SIGCONT)
    finally:
        pair.stop()


@pytest.mark.full
@pytest.mark.skipif("slurm" not in NAMED, reason="GANGWISE_ENGINES has no slurm")
def test_takeovers_on_slurm(tmp_path: Path):
    from tests.engines.slurm_lab import SlurmLab

    lab = SlurmLab(tmp_path)
    pair = Pair(tmp_path, [lab.engine, lab.engine], 3.0)

    def number() -> int:
        told = lab.cluster.call("scontrol", "-o", "show", "reservation")
        names = [w.rpartition("-")[2] for w in told.split() if "=gangwise-leader-" in w]
        return max(map(int, names), default=0)

    try:
        jobs = []
        for how in ("kill", "pause", "kill", "pause"):
            until(number, "a leader")
            jobs += [lab.submit(0.2, tasks=2), lab.submit(1.0)]
            before = number()
            for which in (0, 1):  # by turns, until it was the leader
                pair.signal(which, signal.SIGKILL if how == "kill" else signal.SIGSTOP)
                with Stalls() as stalls:
                    end = time.monotonic() + 8.0
                    while number() <= before and time.monotonic() < end + 3 * stalls.seconds:
                        time.sleep(0.1)
                if how == "kill":
                    pair.processes[which].join()
                    pair.start(which)
                else:
                    pair.signal(which, signal.SIGCONT)
                if number() > before:
                    break
            assert number() > before
        engine = lab.engine()

        def over() -> bool:
            rows = {row.job.id: row.phase for row in engine.jobs()}
            return all(rows.get(job) == "finished" for job in jobs)

        until(over, "all jobs to end")
        for i, job in enumerate(jobs):
            assert len(lab.ran(job)) == (1 if i % 2 else 2), job
            assert "Restarts=0" in lab.cluster.call("scontrol", "show", "job", job)
    finally:
        pair.stop()
        lab.stop()
