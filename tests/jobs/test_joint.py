"""Joint choice: against every placement there is, and against one after another."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gangwise.jobs import Jobs, Nodes, simulate_jobs
from gangwise.jobs.joint import place_jointly
from gangwise.jobs.model import Conditions
from gangwise.jobs.scheduler import create_scheduler
from tests.jobs.invariants import check_schedule


def splits(tasks: int, fits: list[int]) -> list[tuple[int, ...]]:
    """All ways to put tasks on nodes."""
    return [c for c in itertools.product(*(range(f + 1) for f in fits)) if sum(c) == tasks]


def least(tasks, fits, worth, seconds, demand, free) -> float | None:
    """The smallest cost over all placements of all gangs, None where there is none."""
    best = None
    for chosen in itertools.product(*(splits(int(t), list(f)) for t, f in zip(tasks, fits))):
        used = np.einsum("jn,jk->nk", np.array(chosen), demand)
        if (used > free).any():
            continue
        total = cost(chosen, worth, seconds)
        best = total if best is None else min(best, total)
    return best


def cost(chosen, worth, seconds) -> float:
    slowest = [min(worth[j, n] for n, c in enumerate(row) if c) for j, row in enumerate(chosen)]
    return float(sum(s * np.exp(-w) for s, w in zip(seconds, slowest)))


@pytest.mark.parametrize("seed", range(20))
def test_no_placement_costs_less(seed: int):
    rng = np.random.default_rng(seed)
    J, N, K = int(rng.integers(2, 4)), int(rng.integers(2, 4)), int(rng.integers(1, 3))
    free, demand = rng.integers(0, 7, (N, K)), rng.integers(0, 3, (J, K))
    demand[:, 0] = np.maximum(demand[:, 0], 1)
    tasks, seconds = rng.integers(1, 4, J), rng.uniform(1, 100, J)
    room = [[min(f // d for f, d in zip(row, ask) if d) for row in free] for ask in demand]
    fits = np.minimum(room, tasks[:, None])
    worth = np.round(rng.normal(0, 0.5, (J, N)), 1)
    found = place_jointly(tasks, fits, worth, seconds, demand, free)
    expected = least(tasks, fits, worth, seconds, demand, free)
    if expected is None:
        assert found is None
        return
    assert found is not None
    chosen = np.zeros((J, N), dtype=int)
    for j, row in enumerate(found):
        for n, c in row:
            chosen[j, n] = c
    assert (chosen.sum(axis=1) == tasks).all()
    assert (chosen <= fits).all()
    assert (np.einsum("jn,jk->nk", chosen, demand) <= free).all()
    assert cost(chosen, worth, seconds) == pytest.approx(expected, rel=1e-7)


def test_who_gains_more_has_the_fast_nodes():
    """Two gangs at one instant: one after another, the first takes what the second needs."""
    rates = np.log([[1.0, 1.0, 0.9, 0.9], [1.0, 1.0, 0.4, 0.4]])
    jobs = Jobs.of([0, 0], [100, 100], [2, 2], {"gpu": 8}, type=["even", "picky"], limit=[100, 100])
    nodes = Nodes.alike(4, {"gpu": 8})
    ends = {}
    for choice in ("oracle", "joint oracle"):
        scheduler = create_scheduler("fcfs+easy+oracle")
        if choice == "joint oracle":
            scheduler.choice = create_scheduler("fcfs+easy+learned-jointly").choice
            scheduler.choice.rates = "oracle"
        schedule = simulate_jobs(jobs, nodes, scheduler, Conditions(np.exp(rates)), engine="plain")
        ends[choice] = schedule.end.tolist()
    assert ends["oracle"] == pytest.approx([100, 250])
    assert ends["joint oracle"] == pytest.approx([100 / 0.9, 100])


@pytest.mark.parametrize("seed", range(8))
def test_whole_schedules_hold(seed: int):
    """Gangs, parts of GPUs, many at one instant: feasible, and nobody waits for ever."""
    rng = np.random.default_rng(seed)
    J = 60
    run = rng.integers(1, 200, J).astype(float)
    jobs = Jobs.of(
        np.sort(rng.integers(0, 60, J) * 10.0),
        run,
        rng.choice([1, 1, 2, 3], J),
        {"gpu": rng.choice([0.25, 0.5, 1, 2], J), "cpu": rng.integers(1, 4, J)},
        type=[f"t{i}" for i in rng.integers(0, 3, J)],
        limit=run * rng.uniform(1, 3, J),
    )
    nodes = Nodes.alike(5, {"gpu": 4, "cpu": 16}, shared="gpu")
    given = Conditions(np.exp(rng.normal(0, 0.3, (3, 5))))
    scheduler = create_scheduler("fcfs+easy+learned-jointly")
    schedule = simulate_jobs(jobs, nodes, scheduler, given, engine="plain")
    assert np.isfinite(schedule.end).all()
    check_schedule(jobs, nodes, given, schedule)
    assert scheduler.choice.solved > 0
