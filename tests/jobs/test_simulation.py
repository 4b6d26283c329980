"""Plain, compiled and second by second: one schedule."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gangwise.jobs.gavel import Gavel
from gangwise.jobs.las import LeastAttained
from gangwise.jobs.schedule import Schedule
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import simulate_jobs
from tests.jobs.invariants import check_schedule
from tests.jobs.made import BACKFILLING, CHOICES, QUEUES, Case
from tests.reference.jobs import SlowSimulation

COMBINATIONS = list(itertools.product(QUEUES, BACKFILLING, CHOICES))


def scheduler_of(case: Case, names: tuple[str, ...]):
    scheduler = create_scheduler("+".join(names), depth=case.depth)
    if names[0] == "fair-share":
        scheduler.queue.half_life = np.inf  # whole seconds only: no rounding in the witness
    return scheduler


def played(case: Case, names: tuple[str, ...], engine: str) -> Schedule:
    return simulate_jobs(
        case.jobs,
        case.nodes,
        scheduler_of(case, names),
        case.conditions,
        case.options,
        engine=engine,
    )


def slow(case: Case, names: tuple[str, ...]) -> SlowSimulation:
    simulation = SlowSimulation(
        case.slow_jobs,
        case.slow_cluster,
        *names,
        case.enforced,
        case.checkpoint,
        case.restart,
        case.depth,
        case.labels,
    )
    simulation.play()
    return simulation


def told(schedule: Schedule, case: Case) -> list:
    """Start, last start, end and sorted nodes of the tasks of each job that is played."""
    rows = []
    for j in case.playable:
        i = case.rows[j]
        nodes = sorted(n for n, c in schedule.placed(i) for _ in range(c))
        values = (schedule.start[i], schedule.last_start[i], schedule.end[i])
        rows.append((*(None if np.isnan(v) else float(v) for v in values), nodes))
    return rows


@pytest.mark.parametrize("part", range(8))
def test_compiled_and_plain_equal_a_simulator_that_walks_every_second(part):
    for seed in range(part, 3000, 8):
        names = COMBINATIONS[seed // 8 % len(COMBINATIONS)]
        case = Case(seed, binary=names[0] == "fair-share", shared=names[2] == "fgd")
        witness = slow(case, names)
        expected = [
            (s, l, e, sorted(nodes))
            for s, l, e, nodes in zip(witness.start, witness.last, witness.end, witness.nodes)
        ]
        for engine in ("compiled", "plain"):
            schedule = played(case, names, engine)
            assert told(schedule, case) == expected, (seed, names, engine)


def test_jobs_beyond_the_depth_are_tried_at_the_next_instant():
    """A case in which three jobs were looked at, and the fourth could start a second later."""
    case, names = Case(3291), ("priority", "easy", "best-fit")
    starts = [told(played(case, names, engine), case) for engine in ("compiled", "plain")]
    assert starts[0] == starts[1]
    assert starts[0][7][0] == 3


@pytest.mark.parametrize("backfilling", ["easy", "conservative"])
@pytest.mark.parametrize("choice", CHOICES)
def test_nobody_starts_later_than_was_ever_promised(backfilling, choice):
    """Where jobs keep to their requests, nodes stay up and nobody is let in ahead of the queue."""
    kept = 0
    for seed in range(1500):
        case = Case(seed, shared=choice == "fgd")
        jobs = case.jobs
        given = case.conditions
        if given.rates is not None or given.downs or given.drains or given.cancels:
            continue
        if jobs.after.size:
            continue
        if (jobs.run > jobs.limit).any():
            continue
        schedule = simulate_jobs(
            jobs, case.nodes, f"fcfs+{backfilling}+{choice}", engine="compiled"
        )
        promised = np.isfinite(schedule.reserved)
        assert (schedule.start[promised] <= schedule.reserved[promised]).all(), seed
        kept += int(promised.sum())
    assert kept > 30


def test_every_schedule_keeps_to_what_must_hold():
    """Of built-in parts, and of schedulers that preempt, which no second simulator plays."""
    for seed in range(600):
        names = COMBINATIONS[seed % len(COMBINATIONS)]
        case = Case(seed, binary=names[0] == "fair-share", shared=names[2] == "fgd")
        schedule = played(case, names, "compiled")
        check_schedule(case.jobs, case.nodes, case.conditions, schedule)
    preempted = 0
    for seed in range(60):
        case = Case(seed)
        for scheduler in preemptive(shares=seed < 6):
            schedule = simulate_jobs(
                case.jobs, case.nodes, scheduler, case.conditions, case.options, engine="plain"
            )
            check_schedule(case.jobs, case.nodes, case.conditions, schedule)
            preempted += schedule.counts["preemptions"]
    assert preempted > 20


def preemptive(shares: bool) -> list:
    """Schedulers that take running jobs off their nodes, often; shares take a programme a round."""
    least = LeastAttained((2.0, 6.0), pause=1.0)
    return [least, Gavel("total", seconds=3.0)] if shares else [least]
