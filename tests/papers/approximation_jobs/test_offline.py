"""Offline optima against cvxpy, brute force and closed forms; regret and fit by hand."""

from __future__ import annotations

from itertools import product

import cvxpy as cp
import numpy as np
import pytest

from gangwise import ScenarioError, UnknownName, create_policy, simulate
from gangwise.papers.approximation_jobs.environment import (
    ApproximationInstance,
    Outage,
    rate_generator,
)
from gangwise.papers.approximation_jobs.offline import (
    JobUtilities,
    Programme,
    _dual_descent,
    offline_optimum,
    optimise,
)
from gangwise.papers.approximation_jobs.problem import (
    ApproximationProblem,
    GammaPeriods,
    IidRates,
    Job,
    Log,
    Power,
    ReplayedJobs,
    Saturating,
    SyntheticJobs,
)


def witness(jobs, prices, rates, average=False, ends=None):
    """P1 with split tasks, as it is printed."""
    T, M = rates.shape
    total, limits, busy = 0, [], 0
    for n, job in enumerate(jobs):
        x = cp.Variable((T, M), nonneg=True)
        there = np.zeros((T, M))
        there[job.arrival : job.deadline if ends is None else ends[n]] = 1
        limits += [x <= there, cp.sum(x @ prices) <= job.budget]
        busy = busy + x
        span = job.lifetime if average else 1
        X = cp.sum(cp.multiply(x, rates)) / span
        kind, v, s = job.utility.code
        value = (v * cp.power(X, s), v * cp.log1p(X / s), v * (1 - cp.exp(-X / s)))[kind]
        total = total + span * value
    programme = cp.Problem(cp.Maximize(total), [*limits, busy <= 1])
    programme.solve(solver=cp.CLARABEL)
    return programme.value


def small(seed, M=3, T=8, N=4):
    rng = np.random.default_rng(seed)
    utilities = [Power(3.0, 0.5), Log(2.0, 3.0), Saturating(2.0, 3.0), Power(1.5, 0.9)]
    jobs = [
        Job(
            n,
            a := int(rng.integers(0, T - 2)),
            min(a + int(rng.integers(1, T)), T),
            float(rng.uniform(1, 6)),
            utilities[n % 4],
        )
        for n in range(N)
    ]
    return jobs, rng.uniform(0.5, 1.5, M), rng.random((T, M))


@pytest.mark.full
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_small_programmes_against_cvxpy(seed, average):
    """OPM (P1)."""
    jobs, prices, rates = small(seed)
    expected = witness(jobs, prices, rates, average)
    programme = Programme(jobs, prices, [rates[:3], rates[3:]], 8, average)
    answer = optimise(programme)
    assert answer.value <= answer.bound * (1 + 1e-12)  # each is a sum with roundings of its own
    assert answer.gap <= 1e-6 * answer.value
    assert answer.value == pytest.approx(expected, rel=3e-6)
    assert (answer.cost <= programme.budget * (1 + 1e-9)).all()
    again = programme.bound(answer.slope, answer.multiplier)
    assert again == pytest.approx(answer.bound, rel=1e-12)
    dual = _dual_descent(programme, 1e-6, 150)  # the other way, for large programmes
    assert dual.value <= expected * (1 + 1e-6)
    assert dual.bound >= expected * (1 - 1e-6)
    assert dual.gap < 0.002 * expected


@pytest.mark.parametrize("seed", range(3))
def test_any_multipliers_bound_the_optimum(seed):
    jobs, prices, rates = small(seed)
    programme = Programme(jobs, prices, [rates], 8)
    expected, rng = witness(jobs, prices, rates), np.random.default_rng(seed)
    bounds = [
        programme.bound(rng.uniform(0.01, 3, 4), rng.uniform(0, 2, 4) * (rng.random(4) < 0.7))
        for _ in range(200)
    ]
    assert min(bounds) >= expected * (1 - 1e-6)


def test_no_whole_plan_earns_more():
    """Every assignment of 3 slots and 2 machines to 2 jobs or nobody, as (5) has it."""
    rng = np.random.default_rng(4)
    jobs = [Job(0, 0, 3, 2.5, Power(2.0, 0.5)), Job(1, 1, 3, 2.0, Log(3.0, 1.0))]
    prices, rates = np.array([1.0, 0.7]), rng.random((3, 2))
    best = 0.0
    for plan in product((-1, 0, 1), repeat=6):
        held = np.array(plan).reshape(3, 2)
        if (held[0] == 1).any():
            continue
        cost = [(prices * (held == j)).sum() for j in (0, 1)]
        if all(c <= job.budget for c, job in zip(cost, jobs)):
            work = [(rates * (held == j)).sum() for j in (0, 1)]
            best = max(best, sum(job.utility.value(x) for job, x in zip(jobs, work)))
    answer = optimise(Programme(jobs, prices, [rates], 3))
    assert best <= answer.bound + 1e-9
    assert answer.value == pytest.approx(witness(jobs, prices, rates), rel=1e-5)
    assert answer.value < 1.3 * best


def test_cells_bound_from_both_sides():
    """Too many different rates for points: the bound stays above, the plan below the truth."""
    rng = np.random.default_rng(0)
    jobs = [
        Job(n, n, n + 20, float(rng.uniform(4, 15)), Power(float(n + 1), 0.6)) for n in range(4)
    ]
    prices, rates = rng.uniform(0.5, 1.5, 20), rng.random((24, 20))
    expected = witness(jobs, prices, rates)
    programme = Programme(jobs, prices, [rates], 24)
    assert programme.offers.money.shape[1] < 480
    assert programme.offers.money.sum() == pytest.approx(
        prices.sum() * 23
    )  # the last slot has no job
    for answer in (optimise(programme), _dual_descent(programme, 1e-6, 100)):
        assert answer.value <= expected * (1 + 1e-6)
        assert answer.bound >= expected * (1 - 1e-6)
        assert answer.gap < 0.004 * expected


@pytest.mark.full
def test_the_bound_of_a_gamma_run_holds_and_is_tight():
    M, T = 30, 300
    rates = GammaPeriods(M)
    jobs = SyntheticJobs(M, T, float(2 * rates.means[0]), 1.0, lifetime=(1.1, 30, 300))
    instance = ApproximationInstance(ApproximationProblem(2 * rates.means), rates, jobs)
    runs = [simulate(instance, create_policy(name), T, 5) for name in ("fair", "opm")]
    best = runs[0].comparator("known_rates")
    total = best.rewards.sum()
    assert best.gap < 0.01 * total
    for run in runs:
        assert 0.6 * total < run.rewards.sum() < total
        assert run.regret(best) == pytest.approx(total - run.rewards.sum())
        assert 0.6 < run.share_of(best) < 1


def made(jobs, rates=(0.5, 1.0), prices=(1.0, 1.0), **settings):
    problem = ApproximationProblem(np.array(prices), enforce=settings.pop("enforce", True))
    return ApproximationInstance(problem, IidRates(rates), ReplayedJobs(jobs), **settings)


def test_known_means_by_hand():
    """Two machines of mean 0.5 and 1, price 1: budget 6 of 5 slots buys 5 on the better one, 1 on

    OPM (7).
    the other: X = 5.5."""
    played = made([Job(0, 0, 5, 6.0, Power(2.0, 0.5))])
    best = offline_optimum(played, 5, 0, "means")
    assert best.bound == pytest.approx(2 * np.sqrt(5.5), rel=1e-6)
    average = offline_optimum(played, 5, 0, "means", average=True)
    assert average.bound == pytest.approx(5 * 2 * np.sqrt(5.5 / 5), rel=1e-6)
    comparator = played.comparator("known_means", 5, 0)
    assert comparator.rewards.sum() == pytest.approx(best.bound)
    assert np.ptp(comparator.rewards) == 0


def test_regret_against_means_may_be_negative():
    """Bernoulli rates: which seed is luckier than its means, the run cannot hide. OPM (6)."""
    played = made([Job(0, 0, 4, 100.0, Power(1.0, 1.0))], rates=(0.5,), prices=(1.0,))
    seen = set()
    for seed in range(12):
        run = simulate(played, create_policy("fair"), 4, seed)
        drawn = played.rates.stream(rate_generator(seed)).draw(4)
        assert run.rewards.sum() == drawn.sum()
        earned = run.metrics["average_utility"].sum()
        for known, regret in (("means", 2.0 - drawn.sum()), ("rates", 0.0)):
            best = offline_optimum(played, 4, seed, known, average=True)
            assert best.bound - earned == pytest.approx(regret, abs=1e-5)
        seen.add(np.sign(2.0 - drawn.sum()))
    assert seen >= {1.0, -1.0}


def test_outages_are_taken_into_account():
    jobs = [Job("a", 0, 10, 100.0, Power(1.0, 0.5)), Job("b", 2, 10, 100.0, Power(1.0, 0.5))]
    whole = made(jobs, rates=(1.0,), prices=(1.0,))
    away = made(jobs, rates=(1.0,), prices=(1.0,), outages=(Outage(0, 4, 8),))
    assert offline_optimum(whole, 10, 0).bound == pytest.approx(2 * np.sqrt(5), rel=1e-6)
    assert offline_optimum(away, 10, 0).bound == pytest.approx(2 * np.sqrt(3), rel=1e-6)
    assert offline_optimum(whole, 4, 0).bound == pytest.approx(2 * np.sqrt(2), rel=1e-6)


def test_what_there_is_no_optimum_for():
    with pytest.raises(ScenarioError, match="machine 1"):
        offline_optimum(made([Job(0, 0, 2, 1.0)], prices=(1.0, 0.0)), 2, 0)
    with pytest.raises(ScenarioError, match="active"):
        offline_optimum(made([]), 2, 0)
    with pytest.raises(UnknownName, match="known_rates"):
        made([Job(0, 0, 2, 1.0)]).comparator("known_rate", 2, 0)


def test_conjugates_against_a_grid():
    utilities = [Power(2.0, 0.5), Power(2.0, 1.0), Log(3.0, 2.0), Saturating(4.0, 1.0)]
    jobs = [Job(n, 0, 4, 1.0, u) for n, u in enumerate(utilities)]
    grid = np.linspace(0, 30, 300_001)
    for average in (False, True):
        worth = JobUtilities(jobs, average)
        for w in (0.05, 0.3, 1.0, 2.5):
            found = worth.conjugate(np.full(4, w), np.full(4, 30.0))
            for n, utility in enumerate(utilities):
                span = 4.0 if average else 1.0
                kind, v, s = utility.code
                x = grid / span
                value = (v * x**s, v * np.log1p(x / s), v * (1 - np.exp(-x / s)))[kind]
                best = float((span * value - w * grid).max())
                assert best - 1e-12 <= found[n] <= best + 1e-4


def test_fit_is_signed():
    """OPM (8)."""
    played = made([Job("a", 0, 4, 2.0, Power()), Job("b", 0, 4, 50.0, Power())], enforce=False)
    from gangwise.core.simulation import Simulation

    simulation = Simulation(played, create_policy("fair"), 5, 0)
    simulation.run()
    results = simulation.environment.results()
    cost = np.array(sorted(results["cost"]))
    assert cost.sum() == 8  # two machines, four slots, nothing enforced
    totals = dict(zip(simulation.environment.metrics, simulation.metrics.sum(axis=0)))
    assert totals["fit"] == pytest.approx(8 - 52)
    positive = results["cost"][results["budget"] == 2.0][0] - 2.0
    assert totals["over"] == pytest.approx(positive)
    assert positive > 0


def test_displaced_tasks_of_a_run():
    """Job b comes in slot 2 and takes one of two machines from job a, which keeps the other."""
    played = made([Job("a", 0, 6, 50.0, Power()), Job("b", 2, 6, 50.0, Power())])
    run = simulate(played, create_policy("fair"), 6, 0)
    assert run.metrics["displaced"].sum() == run.metrics["swaps"].sum() == 1


@pytest.mark.full
@pytest.mark.parametrize("N", [1, 3, 60])
@pytest.mark.parametrize("beta", [0.1, 0.5, 1.0])
def test_jobs_that_can_do_no_work_are_set_aside(N, beta):
    """Machines that stand still while a job is there: it is worth 0, and the others are bounded."""
    T, M = 40, 20
    rates = np.random.default_rng(0).random((T, M))
    rates[:20] = 0.0
    idle = [Job(n, n % 10, 20, 5.0, Power(2.0, beta)) for n in range(N)]
    busy = [Job(N + n, 5 + n % 30, 40, 5.0, Power(2.0, beta)) for n in range(N)]
    assert optimise(Programme(idle, np.ones(M), [rates], T)).bound == 0.0
    both = optimise(Programme([*idle, *busy], np.ones(M), [rates], T))
    alone = optimise(Programme(busy, np.ones(M), [rates], T))
    assert np.isfinite([both.value, both.bound]).all()
    assert both.value <= both.bound * (1 + 1e-12)
    # each certifies the other's plan
    assert both.value <= alone.bound * (1 + 1e-9)
    assert alone.value <= both.bound * (1 + 1e-9)


def test_what_a_linear_solver_cannot_do_goes_to_the_dual(monkeypatch):
    jobs, prices, rates = small(1)
    programme = Programme(jobs, prices, [rates], 8)
    exact = optimise(programme)

    class Failed:
        status, x, ineqlin = 4, None, None

    monkeypatch.setattr(
        "gangwise.papers.approximation_jobs.offline.linprog", lambda *_, **__: Failed()
    )
    found = optimise(programme)
    assert exact.bound * (1 - 1e-9) <= found.bound < 1.05 * exact.bound
    assert 0.9 * exact.value < found.value <= exact.value * (1 + 1e-6)
