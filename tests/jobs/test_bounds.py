"""Lower bounds on mean completion time, against brute force and the plain dual."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gangwise.core.errors import ScenarioError
from gangwise.jobs import Conditions, Jobs, Nodes, Options, simulate_jobs
from gangwise.jobs.bounds import BoundedJobs, alone_bound, busy_time_bound, lower_bound, srpt_bound
from gangwise.study.replay_scenario import ReplayInstance, bounded
from tests.reference.bounds import best_mean_completion, best_preemptive_completion, dual_value


def drawn(seed: int, J: int = 4, N: int = 2) -> BoundedJobs:
    """A tiny case: unlike rates, gangs, jobs of no work, jobs that come together."""
    rng = np.random.default_rng(seed)
    C = 2
    capacity = rng.integers(1, 4, N).astype(float)
    devices_of_kind = rng.integers(1, 3, C)
    room = (capacity[None, :] // devices_of_kind[:, None]).astype(np.int64)
    room[:, 0] = np.maximum(room[:, 0], 1)
    capacity[0] = max(capacity[0], devices_of_kind.max())
    room = (capacity[None, :] // devices_of_kind[:, None]).astype(np.int64)
    kind = rng.integers(0, C, J)
    tasks = np.minimum(rng.integers(1, 3, J), room.sum(axis=1)[kind])
    before = [rng.permutation(j)[: rng.integers(0, 2)] if seed % 2 else [] for j in range(J)]
    return BoundedJobs(
        submit=rng.integers(0, 6, J).astype(float),
        work=rng.integers(0, 9, J).astype(float),
        tasks=tasks,
        devices=devices_of_kind[kind].astype(float),
        kind=kind,
        rate=rng.choice([0.5, 1.0, 1.5], (C, N)),
        room=room,
        capacity=capacity,
        after_from=np.cumsum([0, *map(len, before)]),
        after=np.concatenate(before).astype(np.int64),
    )


@pytest.mark.parametrize("seed", range(15))
def test_no_bound_exceeds_the_optimum(seed: int) -> None:
    jobs = drawn(seed)
    optimum = best_mean_completion(jobs)
    bound = lower_bound(jobs, period=2.0, steps=60, above=optimum)
    for value in (bound.preemptive, bound.dual, bound.mean_completion):
        assert value <= optimum + 1e-9


@pytest.mark.parametrize("seed", range(25))
def test_no_preemptive_schedule_beats_the_bounds_of_all_schedules(seed: int) -> None:
    """Chains, gangs and unlike rates; jobs stop and move in every second, or twice in it."""
    jobs = drawn(seed, J=4 if seed % 3 else 3)
    jobs = replace(jobs, work=1.0 + jobs.work // 2)
    found = best_preemptive_completion(jobs, 1.0 if seed % 3 else 0.5)
    bound = lower_bound(jobs, steps=0)
    assert max(bound.alone, bound.srpt, bound.busy_time) == bound.preemptive <= found + 1e-9


def test_shortest_remaining_time_is_the_optimum_of_one_device() -> None:
    for seed in range(15):
        rng = np.random.default_rng(seed)
        ones = np.ones(4, dtype=np.int64)
        submit, work = rng.integers(0, 9, 4).astype(float), rng.integers(1, 7, 4).astype(float)
        one = np.ones((1, 1))
        jobs = BoundedJobs(submit, work, ones, 1.0 * ones, 0 * ones, one, ones[:1, None], one[0])
        assert srpt_bound(jobs) == pytest.approx(best_preemptive_completion(jobs), rel=1e-8)
        assert srpt_bound(jobs) <= best_preemptive_completion(jobs)
        assert max(alone_bound(jobs), busy_time_bound(jobs)) <= srpt_bound(jobs) + 1e-6


def test_a_schedule_with_preemption_beats_the_bound_of_those_without() -> None:
    """One node; a short job comes while a long one runs. 43.6 % and 40.6 % sooner than FCFS."""
    jobs = Jobs.of([0, 20_000], [100_000, 1_000], 1)
    bound = lower_bound(bounded(ReplayInstance(jobs, Nodes.pool(1), Conditions()), Options()))
    taken = {
        name: (simulate_jobs(jobs, Nodes.pool(1), name).end - jobs.submit).mean()
        for name in ("fcfs", "las")
    }
    assert taken["fcfs"] == 90_500
    assert bound.preemptive == pytest.approx(51_000) == taken["las"]
    assert taken["las"] < bound.mean_completion == pytest.approx(0.594 * 90_500, rel=1e-3)


@pytest.mark.parametrize("seed", range(15))
def test_the_prices_prove_the_dual_bound(seed: int) -> None:
    jobs = drawn(seed, J=6, N=3)
    bound = lower_bound(jobs, period=2.5, steps=25)
    proven = dual_value(jobs, bound.prices, bound.origin, bound.period)
    assert bound.dual == pytest.approx(proven, rel=1e-7, abs=1e-7)
    assert bound.dual <= proven


def test_without_prices_the_dual_is_every_job_alone() -> None:
    for seed in range(20):
        jobs = drawn(seed, J=8, N=3)
        bound = lower_bound(jobs, steps=0)
        assert bound.dual == pytest.approx(bound.alone, rel=1e-6)
        assert (bound.prices == 0).all()


def test_prices_close_most_of_the_gap_where_jobs_queue_up() -> None:
    ones = np.ones(30, dtype=np.int64)
    jobs = BoundedJobs(
        submit=np.zeros(30),
        work=np.full(30, 60.0),
        tasks=ones,
        devices=np.ones(30),
        kind=0 * ones,
        rate=np.ones((1, 3)),
        room=np.ones((1, 3), np.int64),
        capacity=np.ones(3),
    )
    optimum = 60.0 * np.repeat(np.arange(1, 11), 3).mean()
    bound = lower_bound(jobs, period=60.0, steps=500, above=optimum)
    assert 0.97 * optimum < bound.dual <= optimum


def test_busy_time_is_the_optimum_of_the_programme_over_all_sets() -> None:
    """The polymatroid's constraints for every set of jobs, given to HiGHS."""
    from scipy.optimize import linprog

    for seed in range(10):
        jobs = drawn(seed, J=5, N=2)
        if (jobs.work == 0).any():
            jobs = replace(jobs, work=jobs.work + 1.0)
        u = jobs.tasks * jobs.devices * jobs.work
        speed = jobs.capacity @ np.where(jobs.room > 0, jobs.rate, 0.0).max(axis=0)
        rows, least = [], []
        for members in range(1, 1 << 5):
            S = np.array([bool(members >> j & 1) for j in range(5)])
            rows.append(-u * S)
            least.append(-u[S].sum() * (jobs.release[S].min() + u[S].sum() / (2 * speed)))
        found = linprog(np.ones(5), A_ub=np.array(rows), b_ub=least, bounds=[(None, None)] * 5)
        p = jobs.work / jobs.best_rates
        assert busy_time_bound(jobs) == pytest.approx(
            (found.fun + (0.5 * p - jobs.submit).sum()) / 5, rel=1e-9, abs=1e-9
        )


def test_faster_nodes_lower_the_bound_and_more_work_raises_it() -> None:
    jobs = drawn(4, J=8, N=3)
    assert alone_bound(replace(jobs, rate=2 * jobs.rate)) == pytest.approx(alone_bound(jobs) / 2)
    assert alone_bound(replace(jobs, work=3 * jobs.work)) == pytest.approx(3 * alone_bound(jobs))


@pytest.mark.parametrize("limits", ["never", "wall-clock", "work"])
@pytest.mark.parametrize("seed", range(8))
def test_no_schedule_beats_the_bound(seed: int, limits: Any) -> None:
    """Chains of jobs, jobs that are killed, jobs that fit nowhere: none ends before the bound."""
    rng = np.random.default_rng(seed)
    run = rng.integers(1, 40, 30).astype(float)
    after = {j: rng.choice(j, min(j, int(rng.integers(0, 3))), replace=False) for j in range(30)}
    jobs = Jobs.of(
        np.sort(rng.integers(0, 60, 30)),
        run,
        rng.choice([1, 1, 2, 9], 30),
        {"gpu": rng.choice([1, 2], 30)},
        limit=np.ceil(run * rng.uniform(0.4, 2.0, 30)),
        after={j: list(earlier) for j, earlier in after.items()},
    )
    nodes = Nodes.alike(3, {"gpu": 2})
    hidden = Conditions(rng.choice([0.5, 1.0, 1.5], (1, 3)), rng.uniform(0.9, 1.1, 30))
    options = Options() if limits == "never" else Options(enforced=True, limits=limits)
    bound = lower_bound(
        bounded(ReplayInstance(jobs, nodes, hidden), options), period=10.0, steps=50
    )
    for name in ("fcfs+easy+best-fit", "sjf+easy+oracle", "fcfs+none+worst-fit"):
        schedule = simulate_jobs(jobs, nodes, name, hidden, options)
        ended = np.isfinite(schedule.end)
        assert (schedule.end - jobs.submit)[ended].mean() >= bound.mean_completion
    for name in ("las", "las:thresholds=(9,99)", "gavel:seconds=7", "fcfs+easy+oracle-moving"):
        schedule = simulate_jobs(jobs, nodes, name, hidden, options)
        ended = np.isfinite(schedule.end)
        assert (schedule.end - jobs.submit)[ended].mean() >= bound.preemptive
    chained = alone_bound(bounded(ReplayInstance(jobs, nodes, hidden), options))
    free = replace(
        bounded(ReplayInstance(jobs, nodes, hidden), options), after_from=None, after=None
    )
    assert chained > alone_bound(free)


def test_a_job_that_fits_nowhere_is_named() -> None:
    jobs = drawn(4, J=2)
    with pytest.raises(ScenarioError, match="row 1"):
        replace(jobs, tasks=np.array([1, 99]))


def test_no_step_is_taken_where_a_schedule_reaches_the_bound() -> None:
    """Jobs that never wait: every job alone is what any schedule does."""
    jobs = drawn(3, J=6, N=3)
    apart = replace(jobs, submit=100.0 * np.arange(6))
    alone = alone_bound(apart)
    bound = lower_bound(apart, steps=50, above=alone)
    assert (bound.steps, bound.mean_completion) == (0, alone)
    assert lower_bound(apart, steps=50, above=0.9 * alone).steps == 0
    assert (
        lower_bound(replace(jobs, submit=0 * jobs.submit), steps=50, period=1.0, above=9.0).steps
        > 0
    )
