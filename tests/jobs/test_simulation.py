"""Plain, compiled and second by second: one schedule."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import Schedule, simulate_jobs
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
