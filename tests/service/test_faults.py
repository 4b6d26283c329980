"""What the service does when things go wrong, each by its name."""

from __future__ import annotations

import json
import math
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangwise.core.errors import EngineError, GangwiseError, StoreError
from gangwise.engines.engine import AFTER, RESERVED, EngineJob, EngineNode, RankReport
from gangwise.service.ledger import Ledger
from gangwise.service.loop import Helper, MonotonicClock, Service
from gangwise.service.store import ChainLine
from tests.service.pretend import Pretend


class Time:
    """Both clocks of a machine, which only a test moves."""

    def __init__(self) -> None:
        self.wall, self.monotonic = 1_000_000.0, 0.0

    def go(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    def clock(self, not_before: float) -> MonotonicClock:
        return MonotonicClock(not_before, lambda: self.wall, lambda: self.monotonic)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def engine() -> Pretend:
    return Pretend([EngineNode(f"n{i}", {"gpu": 4000}) for i in range(3)])


@pytest.fixture
def service(engine: Pretend, time: Time, tmp_path: Path) -> Iterator[Service]:
    service = opened(engine, time, tmp_path)
    yield service
    service.close()


def opened(engine: Pretend, time: Time, tmp_path: Path) -> Service:
    return Service(engine, tmp_path / "state", act=True, clock=time.clock, start_timeout=60.0)


def ticks(service: Service, time: Time, count: int = 1, seconds: float = 1.0) -> None:
    for _ in range(count):
        time.go(seconds)
        service.engine.time = time.wall
        service.tick(0.0)


def balanced(ledger: Ledger) -> None:
    """Free devices are what is there less what the placed jobs ask for, counted afresh."""
    books = ledger.books
    assert books is not None
    expected = {name: dict(host.devices) for name, host in ledger.hosts.items()}
    for known in ledger.jobs.values():
        for p in known.placed:
            for device, amount in known.asked.parts[p.group].demand.items():
                expected[p.node][device] -= amount * p.tasks
    for n, name in enumerate(books.nodes.names):
        for k, device in enumerate(books.nodes.devices):
            want = expected[name].get(device, 0) if ledger.hosts[name].up else 0
            assert books.free[n, k] == want, (name, device)


def test_engine_down_nothing_is_decided_and_it_goes_on(engine, service, time):
    ticks(service, time)
    engine.submit("1")
    engine.down = True
    ticks(service, time, 3)
    assert "connection refused" in service.health()["troubles"]["engine"]["what"]
    assert not service.ledger.jobs
    engine.down = False
    ticks(service, time, 3)
    assert service.health()["well"]
    assert engine.calls == [("place", "1", 1)]


def test_engine_down_between_decision_and_placement(engine, service, time, monkeypatch):
    ticks(service, time)
    engine.submit("1")
    real = engine.place

    def fails(*given):
        engine.down = True
        return real(*given)

    monkeypatch.setattr(engine, "place", fails)
    ticks(service, time, 2)
    assert engine.calls == []
    assert service.ledger.jobs["1"].phase == "placed"
    monkeypatch.undo()
    engine.down = False
    ticks(service, time, 3)
    assert engine.calls == [("place", "1", 1)]
    assert service.ledger.jobs["1"].phase == "running"


def test_database_locked_nothing_is_acted_upon_before_it_is_written(
    engine, service, time, monkeypatch
):
    monkeypatch.setattr("gangwise.service.store.BUSY", 0.05)
    ticks(service, time)
    service.store._db.execute("PRAGMA busy_timeout=50")
    other = sqlite3.connect(service.store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    engine.submit("1")
    engine.submit("2")
    ticks(service, time, 3)
    assert engine.calls == []
    assert "locked" in service.health()["troubles"]["database"]["what"]
    other.execute("ROLLBACK")
    other.close()
    ticks(service, time, 3)
    assert engine.calls == [("place", "1", 1), ("place", "2", 1)]
    kinds = [record[0] for _, record in service.store.records()]
    assert kinds.count("job") == 2


def test_disk_full_what_happened_is_kept_until_there_is_room(engine, service, time):
    ticks(service, time, 2)
    pages = service.store.rows("PRAGMA page_count")[0]["page_count"]
    service.store._db.execute(f"PRAGMA max_page_count={pages}")
    for i in range(60):
        engine.submit(str(i), constraint={"rack": "r" * 300})
    ticks(service, time, 3)
    assert "full" in service.health()["troubles"]["database"]["what"]
    engine.submit("last")
    ticks(service, time, 2)
    assert engine.calls == []
    service.store._db.execute("PRAGMA max_page_count=1000000")
    ticks(service, time, 3)
    assert engine.calls == [("place", "last", 1)]
    assert len(service.ledger.jobs) == 61


def test_a_clock_that_steps_back_is_not_followed(engine, time, tmp_path):
    service = opened(engine, time, tmp_path)
    engine.submit("1")
    ticks(service, time, 3)
    before = service.clock.now()
    time.wall -= 3600.0
    ticks(service, time, 2)
    assert service.clock.now() > before
    assert service.health()["clock_ahead"] == pytest.approx(3600.0, abs=1.0)
    service.close()
    last = service.ledger.now
    again = opened(engine, time, tmp_path)
    assert again.clock.now() >= last
    times = [record[1] for _, record in again.store.records()]
    assert times == sorted(times)
    again.close()


def test_two_services_do_not_share_a_folder(engine, service, time, tmp_path):
    with pytest.raises(StoreError, match="another service"):
        opened(engine, time, tmp_path)


def test_a_start_that_never_comes_is_taken_back_and_tried_again_later(engine, service, time):
    ticks(service, time)
    engine.starts = False
    engine.submit("1", tasks=2)
    ticks(service, time, 30)
    assert engine.calls == [("place", "1", 1)]
    ticks(service, time, 35)
    assert ("preempt", "1", 1) in engine.calls
    engine.starts = True
    ticks(service, time, 5)
    assert engine.calls[-1] == ("place", "1", 2)
    states = service.store.rows("SELECT attempt, state, detail FROM intents ORDER BY seq")
    assert states[0]["state"] == "undone"
    assert "not started within 60 s" in states[0]["detail"]


def test_a_refused_placement_waits_longer_each_time(engine, service, time):
    ticks(service, time)
    engine.machines["n0"] = EngineNode("n0", {"gpu": 4000}, {}, True)
    hidden = dict(engine.machines)
    engine.submit("1", gpus=4)
    real, times = engine.place, []

    def refuses(job, attempt, placed):
        engine.machines = {}
        times.append(time.wall)
        try:
            real(job, attempt, placed)
        finally:
            engine.machines = hidden

    engine.place = refuses
    ticks(service, time, 40)
    gaps = np.diff(times)
    assert len(times) == 5
    assert (gaps[1:] > 1.5 * gaps[:-1]).all()
    engine.place = real
    ticks(service, time, 40)
    assert service.ledger.jobs["1"].phase == "running"


def test_a_node_dies_with_half_a_gang(engine, service, time):
    ticks(service, time)
    engine.submit("1", tasks=2, gpus=4)
    ticks(service, time, 2)
    first = {p.node for p in service.ledger.jobs["1"].placed}
    dead = sorted(first)[0]
    engine.set_up(dead, False)
    ticks(service, time, 3)
    known = service.ledger.jobs["1"]
    assert (known.phase, known.attempt) == ("running", 2)
    assert dead not in {p.node for p in known.placed}
    balanced(service.ledger)
    engine.set_up(dead, True)
    ticks(service, time, 2)
    balanced(service.ledger)
    assert engine.calls == [("place", "1", 1), ("place", "1", 2)]


@pytest.mark.parametrize(
    ("cause", "detail", "hears"),
    [
        ("released", "pod w-1 could not be bound to node-3: it is gone", "preempted"),
        ("node_failed", "being made again by their controller: no pod is there yet", "failed"),
    ],
)
def test_the_cause_is_told_and_not_read_from_the_detail(
    engine, service, time, monkeypatch, cause, detail, hears
):
    ticks(service, time)
    engine.submit("1")
    ticks(service, time, 2)
    told = []
    monkeypatch.setattr(service.ledger, "_report", told.append)
    engine.back("1", detail, cause)
    ticks(service, time)
    assert next(event.kind for event in told if event.job.id == "1") == hears
    assert [r[5] for _, r in service.store.records() if r[0] == "back"] == [cause]


def test_duplicate_and_late_events_change_nothing(engine, service, time):
    ticks(service, time)
    told = []
    real = engine.events

    def remembered(timeout):
        found = real(timeout)
        told.extend(found)
        return found

    engine.events = remembered
    for i in range(4):
        engine.submit(str(i), tasks=2)
    ticks(service, time, 2)
    engine.set_up("n1", False)
    ticks(service, time, 2)
    engine.end("0")
    ticks(service, time, 2)
    before = {k: asdict(v) for k, v in service.ledger.jobs.items()}, list(engine.calls)
    late = list(told)
    random.Random(0).shuffle(late)
    engine.queue += told + late
    ticks(service, time, 2)
    assert ({k: asdict(v) for k, v in service.ledger.jobs.items()}, engine.calls) == before
    assert list(service.ledger.outcomes) == ["0"]
    balanced(service.ledger)


NONSENSE = [
    RankReport("n0", 0, 1e300, 1e-300),
    RankReport("n0", 0, 1e12, 1.0),
    RankReport("n0", 0, -5.0, 10.0),
    RankReport("n0", 0, math.nan, 10.0),
    RankReport("elsewhere", 0, 10.0, 10.0),
    RankReport("n0", 0, 0.0, 10.0),
]
SENSE = RankReport("n0", 0, 40.0, 10.0)


@pytest.mark.parametrize("report", [*NONSENSE, SENSE])
def test_nonsense_of_a_rank_is_left_out(engine, service, time, report):
    ticks(service, time)
    for i in range(6):  # units are known before the nonsense comes
        engine.submit(str(i), gpus=4)
        ticks(service, time, 20)
        node = service.ledger.jobs[str(i)].placed[0].node
        engine.end(str(i), ranks=(RankReport(node, 0, 20.0, 20.0),))
        ticks(service, time, 2)
    choice = service.ledger.scheduler.choice
    before = choice.rates.node_factors()[0].copy()
    engine.submit("bad", gpus=4)
    ticks(service, time, 2)
    here = service.ledger.jobs["bad"].placed[0].node  # only what is told of it is looked at
    told = report if report.node == "elsewhere" else report._replace(node=here)
    engine.tell("measured", "bad", ranks=(told,))
    ticks(service, time, 2)
    assert service.ledger.jobs["bad"].phase == "running"
    same = np.array_equal(choice.rates.node_factors()[0], before)
    assert same == (report != SENSE), "what makes sense is learned from, and that alone"


def test_a_restart_keeps_what_was_learned(engine, time, tmp_path):
    service = opened(engine, time, tmp_path)
    for i in range(9):
        engine.submit(str(i), gpus=4, work=20.0)
        ticks(service, time, 3)
        node = service.ledger.jobs[str(i)].placed[0].node
        engine.end(str(i), ranks=(RankReport(node, 0, 10.0 if node == "n0" else 20.0, 20.0),))
        ticks(service, time)
    learned = service.ledger.scheduler.choice.rates.node_factors()
    now = service.ledger.now
    for with_checkpoint in (True, False):
        service.close()
        if not with_checkpoint:
            for path in (tmp_path / "state").glob("ledger.checkpoint*"):
                path.unlink()
        service = opened(engine, time, tmp_path)
        again = service.ledger.scheduler.choice.rates.node_factors()
        np.testing.assert_array_equal(again, learned)
        assert service.ledger.now == now
        assert service.ledger.diverged == 0
    service.close()


def test_what_can_never_run_is_said_and_blocks_nobody(engine, service, time):
    ticks(service, time)
    engine.submit("large", tasks=4, gpus=4)
    engine.submit("small")
    ticks(service, time, 2)
    assert engine.calls == [("place", "small", 1)]
    assert "larger than the cluster" in service.explanation("large")["why"]
    engine.machines["n3"] = EngineNode("n3", {"gpu": 4000})
    engine.end("small")
    ticks(service, time, 5)
    assert engine.calls[-1] == ("place", "large", 1)


def test_every_third_job_goes_where_the_baseline_wants_it(engine, time, tmp_path):
    service = Service(
        engine,
        tmp_path / "state",
        "fcfs+easy+worst-fit",
        act=True,
        baseline="fcfs+easy+best-fit",
        every=3,
        clock=time.clock,
    )
    ticks(service, time)
    for i in range(1, 7):
        engine.submit(str(i))
    ticks(service, time, 2)
    by = {job: known.by for job, known in service.ledger.jobs.items()}
    assert [by[str(i)] for i in range(1, 7)] == ["scheduler", "scheduler", "baseline"] * 2
    nodes = [service.ledger.jobs[str(i)].placed[0].node for i in range(1, 7)]
    assert nodes[:2] == ["n0", "n1"]  # the emptiest each time
    assert nodes[2] == "n0"  # the fullest
    balanced(service.ledger)
    service.close()


@pytest.mark.parametrize("name", ["las", "gavel:seconds=30", "fcfs+easy+learned-moving"])
def test_schedulers_that_preempt(engine, time, tmp_path, name):
    """Nodes are taken only after the cluster has let go of them."""
    service = Service(engine, tmp_path / "state", name, act=True, clock=time.clock)
    rng = random.Random(0)
    ends: dict[str, int] = {}
    for step in range(240):
        if step % 3 == 0 and step < 90:
            size = {"tasks": rng.choice([1, 2, 3]), "gpus": rng.choice([1, 2, 4])}
            head = rng.choice([0, 0, 1, 3]) if size["tasks"] * size["gpus"] < 9 else 0
            engine.submit(str(step), **size, head=head)
            ends[str(step)] = rng.randrange(2, 15)
        for job, row in list(engine.table.items()):
            if row.phase == "running":
                ends[job] -= 1
                if ends[job] == 0:
                    engine.end(job)
        ticks(service, time, 1, 10.0)
        balanced(service.ledger)
    assert len(service.ledger.outcomes) == len(ends)
    service.close()


POISON = [
    ("job", lambda r: [*r[:3], [{**r[3][0], "tasks": -1}]], "number of tasks"),
    ("started", lambda r: [r[0], r[1], "open", r[3]], "no record of the kind"),
    ("job", lambda r: [r[0], "yesterday", *r[2:]], "its time"),
    ("nodes", lambda r: [*r[:3], None], "NoneType"),
    ("round", lambda r: [*r[:3], ["0", 1, [["n0", -3]], [], []]], ""),
]


@pytest.mark.parametrize(("kind", "poison", "says"), POISON)
def test_a_poisoned_record_is_skipped_and_named(
    engine, time, tmp_path, monkeypatch, kind, poison, says
):
    """Written so by the service itself, in good order: an older one, say, or one with a fault."""
    real, poisoned = ChainLine, []

    def line(number: int, after: str, body: str) -> ChainLine:
        content = json.loads(body)
        for i, record in enumerate(content.get("records", ())):
            if record[2] == kind and not poisoned:
                content["records"][i] = poison(record)
                poisoned.append(record[0])
        return real(number, after, json.dumps(content))

    service = opened(engine, time, tmp_path)
    monkeypatch.setattr("gangwise.service.store.ChainLine", line)
    line.of = ChainLine.of
    for i in range(3):
        engine.submit(str(i))
        ticks(service, time, 2)
    monkeypatch.undo()
    service.close()
    for path in (tmp_path / "state").glob("ledger.checkpoint*"):
        path.unlink()
    (row,) = poisoned
    service = opened(engine, time, tmp_path)
    (note,) = [n for n in service.notes if n.startswith(f"row {row} of the journal is skipped")]
    assert says in note
    engine.submit("new")
    ticks(service, time, 8)
    assert {name: k.phase for name, k in service.ledger.jobs.items()} == dict.fromkeys(
        ["0", "1", "2", "new"], "running"
    )
    assert {"kind": "row of the journal", "name": str(row)}.items() <= service.views["unreadable"][
        0
    ].items()
    balanced(service.ledger)
    service.close()


def test_a_cluster_without_nodes(engine, service, time):
    there, engine.machines = engine.machines, {}
    engine.submit("1")
    ticks(service, time, 4)
    assert "no node" in service.health()["troubles"]["engine"]["what"]
    engine.machines = there
    ticks(service, time, 4)
    assert service.health()["well"]
    assert service.ledger.jobs["1"].phase == "running"


def test_a_scheduler_that_fails_on_a_job_places_the_others(engine, service, time, monkeypatch):
    ticks(service, time)
    scheduler = service.ledger.scheduler
    real = scheduler.place

    def place(queue, books, now):
        if any(job.id == "bad" for job in queue):
            raise ZeroDivisionError("a job nobody had thought of")
        return real(queue, books, now)

    monkeypatch.setattr(scheduler, "place", place)
    for job in ("1", "bad", "2"):
        engine.submit(job)
    ticks(service, time, 2)
    assert "ZeroDivisionError" in service.notes[-1]
    ticks(service, time, 200)
    phases = {name: known.phase for name, known in service.ledger.jobs.items()}
    assert phases == {"1": "running", "bad": "waiting", "2": "running"}
    assert "left alone for a while" in service.explanation("bad")["why"]
    engine.submit("3")
    ticks(service, time, 5)
    assert service.ledger.jobs["3"].phase == "running"
    balanced(service.ledger)
    monkeypatch.undo()


def test_an_event_that_makes_no_sense_concerns_one_job(engine, service, time, monkeypatch):
    ticks(service, time)
    for i in range(3):
        engine.submit(str(i))
    ticks(service, time, 2)
    real = service._take_in_event

    def fails(event, now):
        if event.job == "1":
            raise TypeError("what is this?")
        real(event, now)

    monkeypatch.setattr(service, "_take_in_event", fails)
    for i in range(3):
        engine.end(str(i))
    ticks(service, time, 2)
    assert set(service.ledger.outcomes) == {"0", "2"}
    (row,) = service.unreadable_now()
    assert (row["kind"], row["name"]) == ("event of job", "1")
    assert row["why"] == "left alone: unreadable, because TypeError: what is this?"
    assert service.health()["well"]


def record(kind: str, **values: st.SearchStrategy) -> st.SearchStrategy:
    return st.tuples(st.just(kind), st.floats(0, 1e6), *values.values())


JOB = st.sampled_from(["1", "2", "3", "4"])
NODE = st.sampled_from(["n0", "n1", "n2"])
ATTEMPT = st.integers(0, 3)
RECORDS = st.one_of(
    st.builds(
        lambda now, job, tasks, gpus: (
            "job",
            now,
            asdict(EngineJob(job, "t", "u", now, tasks, {"gpu": 1000 * gpus}, limit=60.0)),
        ),
        st.floats(0, 1e6),
        JOB,
        st.integers(1, 3),
        st.integers(1, 4),
    ),
    record("started", job=JOB, attempt=ATTEMPT),
    record(
        "back",
        job=JOB,
        attempt=ATTEMPT,
        why=st.just("a reason"),
        cause=st.sampled_from(["released", "node_failed"]),
    ),
    record("rejected", job=JOB, attempt=ATTEMPT, why=st.just("no")),
    record("ended", job=JOB, how=st.sampled_from(["finished", "cancelled"]), attempt=ATTEMPT),
    record(
        "measured",
        job=JOB,
        attempt=ATTEMPT,
        ranks=st.lists(st.tuples(NODE, st.just(0), st.floats(), st.floats()), max_size=2),
    ),
    st.builds(
        lambda now, up: (
            "nodes",
            now,
            [(f"n{i}", {"gpu": 4000}, {}, u, "") for i, u in enumerate(up)],
        ),
        st.floats(0, 1e6),
        st.lists(st.booleans(), min_size=3, max_size=3),
    ),
    st.tuples(st.just("round"), st.floats(0, 1e6)),
)


@given(st.lists(RECORDS, max_size=40))
def test_whatever_is_told_the_books_balance(records):
    ledger = Ledger("fcfs+easy+best-fit")
    ledger.apply(("nodes", 0.0, [(f"n{i}", {"gpu": 4000}, {}, True, "") for i in range(3)]))
    for one in records:
        ledger.apply(one)
        balanced(ledger)
        for known in ledger.jobs.values():
            placed = sum(p.tasks for p in known.placed)
            assert placed == (0 if known.phase == "waiting" else known.asked.tasks)
    again = Ledger("fcfs+easy+best-fit")
    again.apply(("nodes", 0.0, [(f"n{i}", {"gpu": 4000}, {}, True, "") for i in range(3)]))
    for one in records:
        again.apply(one)
    assert again.jobs == ledger.jobs
    assert again.intents == ledger.intents


def test_a_deleted_node_goes_from_page_and_books_after_a_week(tmp_path: Path, time: Time):
    """Down as soon as it is gone; kept while a job is on it, or it may come back."""
    engine = Pretend([EngineNode(n, {"gpu": 4000}) for n in ("n0", "n1")])
    service = Service(engine, tmp_path / "state", "fcfs+easy+best-fit", act=True, clock=time.clock)
    ticks(service, time)
    del engine.machines["n0"]
    ticks(service, time, 2, 10.0)
    assert {row["name"]: row["up"] for row in service.nodes_now()} == {"n0": False, "n1": True}
    ticks(service, time, 2, 4 * 86_400.0)
    assert [row["name"] for row in service.nodes_now()] == ["n1"]
    assert service.ledger.books is not None
    assert service.ledger.books.nodes.names == ("n1",)
    assert "n0" not in service.ledger.hosts
    balanced(service.ledger)
    service.close()


def test_a_journal_of_0_2_0_is_read() -> None:
    """Its jobs said a least number of tasks, too."""
    job = EngineJob("7", "train", "ada", 0.0, tasks=2, demand={"gpu": 1000})
    ledger = Ledger("fcfs+easy+best-fit")
    ledger.apply(("job", 1.0, {**asdict(job), "minimum": 0}))
    assert ledger.jobs["7"].asked == job


# Clocks


def test_a_start_far_ahead_of_the_last_record_waits_for_a_word(engine, time, tmp_path):
    service = opened(engine, time, tmp_path)
    engine.submit("1")
    ticks(service, time, 3)
    engine.end("1")
    ticks(service, time, 2)
    service.close()
    rows = service.folder / "service.sqlite"
    engine.submit("2")
    time.wall += 400 * 86_400.0  # a boot with a wrong clock
    again = opened(engine, time, tmp_path)
    ticks(again, time, 3)
    told = again.health()
    assert "--clock-is-right" in told["troubles"]["clock"]["what"]
    assert not told["well"]
    assert "2" not in again.ledger.jobs
    again._keep()
    with sqlite3.connect(rows) as db:
        assert db.execute("SELECT job FROM history").fetchall() == [("1",)], "nothing is forgotten"
    time.wall -= 400 * 86_400.0  # it is corrected while the service waits
    ticks(again, time, 4)
    assert again.health()["well"]
    assert again.health()["clock_ahead"] == 0.0
    assert again.ledger.jobs["2"].phase == "running"
    again.close()
    time.wall += 30 * 86_400.0  # a month out of service, and an operator says so
    with_word = Service(engine, tmp_path / "state", act=True, clock=time.clock, clock_is_right=True)
    ticks(with_word, time, 3)
    assert with_word.health()["well"]
    assert with_word.clock.now() == pytest.approx(time.wall, abs=1.0)
    with_word.close()


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_age_is_by_no_wall_clock(engine, time, tmp_path, monkeypatch, jump):
    from gangwise.engines import background
    from gangwise.service.api import _health
    from gangwise.service.state import STALE, ServiceState

    service = opened(engine, time, tmp_path)
    steady = 50_000.0
    monkeypatch.setattr(background, "clock", lambda: steady)
    ticks(service, time, 3)
    state = ServiceState(tmp_path / "state")
    assert _health(state)["well"]
    real = __import__("time").time
    monkeypatch.setattr("time.time", lambda: real() + jump)
    assert _health(state)["well"], "a clock that jumps is no silence"
    steady += STALE + 1.0  # the service is frozen
    assert not _health(state)["well"]
    service.close()
    state.close()


FROZEN = """
import os, subprocess, sys
from pathlib import Path
from gangwise.core.errors import StoreError
from gangwise.service.store import ServiceStore
file = Path(sys.argv[1]) / "service.sqlite"
writer, reader = ServiceStore(file), ServiceStore(file, read_only=True)
for turn in range(2):  # the reader has not seen the second one
    writer.commit(views=[("health", turn)])
    turn or print(reader.view("health"))
if subprocess.run(["chattr", "-R", "+i", sys.argv[1]], check=False).returncode:
    sys.exit(77)
try:
    os.sync()  # pages that were written are written anew only through the file system
    for call in (lambda: reader.view("health"), lambda: writer.commit(views=[("a", 2)])):
        try:
            print(call())
        except StoreError as error:
            print("read-only" in str(error))
finally:
    subprocess.run(["chattr", "-R", "-i", sys.argv[1]], check=True)
writer.commit(views=[("health", 3)])
print(reader.view("health"))
"""


def test_a_disk_that_becomes_read_only_ends_no_process(tmp_path):
    (tmp_path / "state").mkdir(mode=0o700)
    command = [sys.executable, "-c", FROZEN, str(tmp_path / "state")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("this file system, or user, makes no file immutable")
    assert done.returncode == 0, done
    assert done.stdout.split("\n")[:4] == ["0", "True", "True", "3"]


# What the cluster lists again


def test_a_wrong_end_is_taken_back(engine, time, tmp_path):
    service = opened(engine, time, tmp_path)
    ticks(service, time)
    engine.submit("1", tasks=2)
    engine.submit("2")
    ticks(service, time, 3)
    rows, engine.table = engine.table, {}  # a table that empties at once
    ticks(service, time, 12)
    assert dict(service.ledger.outcomes) == {"1": "failed", "2": "failed"}
    engine.table = rows
    ticks(service, time, 5)
    assert {name: known.phase for name, known in service.ledger.jobs.items()} == {
        "1": "running",
        "2": "running",
    }
    assert any("taken back" in note for note in service.notes)
    assert not service.store.rows("SELECT job FROM history")
    balanced(service.ledger)
    engine.end("1")
    ticks(service, time, 3)
    (row,) = service.store.rows("SELECT job, outcome FROM history")
    assert row == {"job": "1", "outcome": "finished"}
    assert engine.calls == [("place", "1", 1), ("place", "2", 1)], "nothing is placed twice"
    service.close()
    again = opened(engine, time, tmp_path)
    assert list(again.ledger.jobs) == ["2"]
    assert dict(again.ledger.outcomes) == {"1": "finished"}
    again.close()


def test_a_preemption_that_is_refused_leaves_the_job_where_it_runs(engine, service, time):
    from gangwise.core.errors import Rejected
    from gangwise.service.ledger import Intent

    ticks(service, time)
    engine.submit("1")
    ticks(service, time, 2)

    def refuses(job):
        raise Rejected("Requested operation is presently disabled")

    engine.preempt = refuses
    known = service.ledger.jobs["1"]
    service._todo["preempt", "1", 1] = Intent("preempt", "1", 1, known.placed, "scheduler")
    ticks(service, time, 2)
    assert known.phase == "running"
    assert not service._todo
    balanced(service.ledger)


def test_acts_without_an_answer_are_repeated_less_and_less_often(engine, service, time):
    ticks(service, time)
    tries = []

    def silent(*given):
        tries.append(time.monotonic)
        raise EngineError("Zero Bytes were transmitted or received")

    real, engine.place = engine.place, silent
    engine.submit("1")
    ticks(service, time, 60, seconds=0.5)
    assert 9 <= len(tries) <= 21, "30 s, in waits of .8 to 3 s"
    assert not service.health()["well"], "it could not place, whatever else answers"
    engine.place = real
    ticks(service, time, 15, seconds=0.5)
    assert service.health()["well"]
    assert engine.calls == [("place", "1", 1)]


def test_a_wait_for_another_job_and_one_for_reserved_nodes_are_named(engine, service, time):
    """Without the reservation the first would start; the other is too large for what is reserved.

    Of a node that is down for another reason, it is said that it is away.
    """
    machine = next(iter(engine.machines.values()))
    gpus = machine.devices["gpu"] // 1000
    for name, other in engine.machines.items():
        reserved = name == machine.name
        engine.machines[name] = replace(
            other, up=False, reason=RESERVED + "week" if reserved else "broken"
        )
    engine.submit("1", gpus=gpus)
    engine.submit("2", tasks=len(engine.machines), gpus=gpus)
    ticks(service, time, 3)
    causes = {job: service.explanation(job)["cause"] for job in "12"}
    assert causes == {"1": "reservation", "2": "away"}
    engine.held = lambda: {"3": f"left alone: {AFTER}, afterok:1(unfulfilled)"}
    (row,) = service.held_now()
    assert (row["job"], row["cause"]) == ("3", "after")
    assert "afterok:1" in row["why"]


def test_an_answer_longer_than_a_pipe_of_another_process_comes_whole():
    """An account, a forecast or a verification may print more than the 64 KiB that a pipe holds."""
    helper = Helper(1.0, "--version")
    helper._command = [sys.executable, "-S", "-c", "print([0] * 100_000)"]
    helper.start(0.0)
    assert helper._process is not None
    helper._process.wait(60.0)
    assert helper.found() == [0] * 100_000
    assert helper.due(1.0)


def test_a_scheduler_that_is_unknown_leaves_the_folder_free(engine, time, tmp_path):
    with pytest.raises(GangwiseError):
        Service(engine, tmp_path / "state", "fcfs+nonsense", act=True, clock=time.clock)
    opened(engine, time, tmp_path).close()
