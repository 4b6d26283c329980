"""Plain, compiled and second by second: one schedule."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gangwise.jobs.schedule import Schedule
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import simulate_jobs
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
    assert kept > 100


def test_devices_of_every_piece_are_free_at_every_moment():
    """Books balance: at no time do the pieces on a node take more than it has."""
    for seed in range(600):
        names = COMBINATIONS[seed % len(COMBINATIONS)]
        case = Case(seed, binary=names[0] == "fair-share", shared=names[2] == "fgd")
        schedule = played(case, names, "compiled")
        K = len(case.nodes.devices)
        changes = []
        for j in range(len(case.jobs)):
            if np.isnan(schedule.end[j]):
                continue
            placed = schedule.placed(j)
            assert sum(c for _, c in placed) == case.jobs.tasks[j]
            demand = np.array(case.jobs.shapes[case.jobs.shape[j]].demand)
            if schedule.end[j] == schedule.last_start[j]:
                continue  # of no length
            for n, c in placed:
                changes.append((schedule.end[j], 0, n, -c * demand))
                changes.append((schedule.last_start[j], 1, n, c * demand))
        for i, j in enumerate(schedule.cuts["job"]):
            if schedule.cuts["begun"][i] == schedule.cuts["end"][i]:
                continue
            demand = np.array(case.jobs.shapes[case.jobs.shape[j]].demand)
            for p in range(schedule.cuts["from"][i], schedule.cuts["from"][i + 1]):
                n, c = schedule.cuts["node"][p], schedule.cuts["tasks"][p]
                changes.append((schedule.cuts["end"][i], 0, n, -c * demand))
                changes.append((schedule.cuts["begun"][i], 1, n, c * demand))
        used = np.zeros((len(case.nodes), K), dtype=np.int64)
        for _, _, n, amount in sorted(changes, key=lambda change: change[:2]):
            used[n] += amount
            assert (used <= case.nodes.capacity).all(), seed
