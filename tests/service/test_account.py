"""The account against a cluster in memory, whose ranks work in a test's own time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gangwise.core.errors import ScenarioError
from gangwise.engines.engine import EngineNode, RankReport
from gangwise.jobs.books import Books
from gangwise.jobs.model import Node, Nodes
from gangwise.service.account import _saving, account, account_sentence, latencies
from gangwise.service.ledger import Ledger
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
    while step < every * JOBS or engine.table.keys() - service.ledger.outcomes.keys():
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


@pytest.mark.full
def test_the_simulation_predicts_what_a_live_run_took(tmp_path: Path):
    time = lived(tmp_path / "state", "fcfs+easy+label")
    found = account(tmp_path / "state", since=0.0)
    assert found["jobs"] == JOBS
    assert abs(found["error"]) < 0.05
    assert found["happened"]["wait"] > 60.0
    assert "60 jobs" in found["told"]
    # Looks are 10 s apart: one until a job is decided on, and one until it is seen to run.
    assert found["latency"]["scheduler"] == pytest.approx(20.0)
    with pytest.raises(ScenarioError, match="needs 5"):
        account(tmp_path / "state", since=time.wall)


@pytest.mark.full
def test_a_node_that_slowed_down_is_played_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lived(tmp_path / "state", "fcfs+easy+learned", every=5, slows=0.4)
    found = account(tmp_path / "state", since=0.0)
    assert found["changed_nodes"] == ["n0"]
    assert "1 had another speed before" in found["told"]
    monkeypatch.setattr("gangwise.service.account.speed_changes", lambda *given: [])
    as_now = account(tmp_path / "state", since=0.0)
    assert abs(found["error"]) < 0.1
    assert as_now["error"] > 0.2


def simulated(scheduler: float, baseline: float, jobs: int = 80, rounds: int = 8) -> Any:
    """Wait, completion and run of jobs in rounds: all alike, but for a little scatter."""
    rng = np.random.default_rng(0)
    times = {}
    for who, mean in (("scheduler", scheduler), ("baseline", baseline)):
        run = mean * (1.0 + 0.01 * rng.standard_normal((rounds, jobs)))
        times[who] = np.stack([np.zeros_like(run), run, run], axis=1)
    return times


def test_the_interval_of_a_saving_has_the_error_of_the_model():
    """80 s instead of 100 s; what happened is 2 % and 30 % off what is simulated of it."""
    only, by, jobs = simulated(80.0, 100.0), ["others"] * 80, np.ones(80)
    for off, told in ((1.02, True), (1.3, False)):
        found = _saving(only, only["baseline"], 100.0 * off * jobs, by, np.zeros(80))
        assert found["saving"] == pytest.approx(0.2, abs=0.01)
        assert found["within"] == pytest.approx((off - 1.0) / off, abs=0.02)
        times = {"wait": 0.0, "completion": 1.0}
        both = {"scheduler": times, "baseline": times, "happened": times}
        more = {"since": 0.0, "jobs": 80, "left_out": 0, "error": 0.0, "slow_nodes": []}
        more["latency"] = {"scheduler": 2.0, "baseline": 1.0}
        sentence = account_sentence({**found, **both, **more, "changed_nodes": []}, False)
        assert ("would save 20 ±" in sentence) == told
        assert ("is not known" in sentence) != told


def test_an_error_that_comes_and_goes_is_an_error():
    """Right on average, and 40 % off in each of the blocks of time."""
    only = simulated(80.0, 100.0)
    happened = 100.0 * np.where(np.arange(80) // 10 % 2, 1.4, 0.6)
    found = _saving(only, only["baseline"], happened, ["others"] * 80, np.zeros(80))
    assert found["within"] > 0.25


def test_jobs_that_the_baseline_placed_calibrate_the_saving():
    """Every tenth job runs 25 % longer, as simulated; or no longer, and then it is the error."""
    only = simulated(80.0, 100.0)
    by = ["scheduler" if j % 10 else "baseline" for j in range(80)]
    scatter = 0.01 * np.random.default_rng(1).standard_normal(80)
    for slower, error in ((1.25, 0.0), (1.0, np.log(1.25))):
        ran = np.array([80.0 * (slower if who == "baseline" else 1.0) for who in by])
        found = _saving(only, only["scheduler"], np.full(80, 80.0), by, np.log(ran) + scatter)
        assert found["calibrated"]["slower"] == pytest.approx(np.log(slower), abs=0.02)
        assert found["calibrated"]["model"] == pytest.approx(np.log(1.25), abs=0.02)
        assert found["within"] == pytest.approx(error, abs=0.03)


def test_latencies_are_those_of_jobs_that_found_room_and_nobody_waiting():
    """One node of two devices. Who waited for room, or behind somebody, measures nothing."""
    nodes = Nodes.of([Node("a", {"gpu": 2.0}, {}, 1.0)])
    books = Books.opened(nodes)
    ledger = Ledger("fcfs+easy+best-fit")
    ledger.books, ledger.empty, ledger.node_index = books, books, {"a": 0}

    def row(submitted: float, held: float, first: float, ended: float, gpus: int) -> Any:
        body = {"held": held, "attempt": 1, "demand": {"gpu": 1000 * gpus}, "per_node": 0}
        body |= {"constraint": {}, "placed": [("a", 1, [])], "id": "1", "tasks": 1}
        body |= {"job_type": "t", "user": "u", "submitted": submitted}
        return {"submitted": submitted, "first": first, "ended": ended, "tasks": 1, "body": body}

    rows = [
        row(0.0, 1.0, 4.0, 100.0, 1),  # room: decided on 1 s later, and starts in 3 s
        row(10.0, 12.0, 15.0, 100.0, 1),  # beside it: 2 s
        row(20.0, 100.5, 103.5, 200.0, 2),  # no room
        row(30.0, 200.5, 203.5, 300.0, 1),  # no room, and behind another
    ]
    found = latencies(ledger, rows, 7.0)
    hold, late = found["scheduler"]
    assert (hold.tolist(), late.tolist()) == ([3.0] * 4, [1.0, 2.0])
    ledger.act = False  # the other's latency is what the engine declares, beside that of the first
    watched = latencies(ledger, rows, 7.0)
    assert watched["scheduler"][0].tolist() == [10.0] * 4
    assert watched["baseline"][0].tolist() == [3.0] * 4
