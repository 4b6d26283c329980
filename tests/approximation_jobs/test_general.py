"""Projection (P5) against Clarabel and by hand, and the policy on machines with capacities."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from gangwise import ScenarioError, check_policy, create_policy, simulate
from gangwise.approximation_jobs.environment import ApproximationInstance, Outage
from gangwise.approximation_jobs.general import OPMGeneral, project_general
from gangwise.approximation_jobs.problem import ApproximationProblem, Job, Power
from gangwise.approximation_jobs.rates import IidRates
from gangwise.approximation_jobs.workloads import PoissonJobs, ReplayedJobs


def witness(y, r, C, u):
    z = cp.Variable(y.shape)
    limits = [z >= 0, z <= 1, r @ z <= C, cp.sum(z, axis=1) <= u]
    cp.Problem(cp.Minimize(cp.sum_squares(z - y)), limits).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11
    )
    return z.value


@pytest.mark.parametrize("seed", range(24))
def test_projection_against_clarabel(seed):
    """OPM (P5)."""
    rng = np.random.default_rng(seed)
    J, M = int(rng.integers(1, 8)), int(rng.integers(1, 10))
    y = rng.normal(0.5, 0.8, (J, M))
    r = rng.uniform(0.1, 1, J) if seed % 2 else np.full(J, 0.4)
    C = rng.uniform(0, 0.4 * J, M)
    u = np.floor(rng.uniform(0, M, J)) if seed % 3 else rng.uniform(0.0, M, J)
    found = project_general(y, r, C, u)
    assert found.plan == pytest.approx(witness(y, r, C, u), abs=3e-6)
    assert found.sweeps <= 2000
    assert (r @ found.plan <= C + 1e-12).all()
    assert (found.plan.sum(axis=1) <= u + 1e-12).all()
    assert found.plan.min() >= 0
    assert found.plan.max() <= 1
    # KKT: prices are zero where there is room.
    assert (found.eta[r @ found.plan < C - 1e-7] == 0).all()
    assert (found.nu[found.plan.sum(axis=1) < u - 1e-7] < 1e-9).all()
    again = project_general(found.plan, r, C, u)
    assert again.plan == pytest.approx(found.plan, abs=1e-9)


def test_projection_by_hand():
    y = np.full((2, 2), 0.9)
    assert project_general(y, [1, 1], [1, 1], [1, 1]).plan == pytest.approx(np.full((2, 2), 0.5))
    # r = (1, 2), C = 1: subtract r η with 0.9 - η + 2 (0.9 - 2 η) = 1, η = 0.34.
    found = project_general([[0.9], [0.9]], [1, 2], [1], [1, 1])
    assert found.plan.ravel() == pytest.approx([0.56, 0.22])
    assert found.eta == pytest.approx([0.34])
    # One job, at most one task: 0.9 - ν + 0.5 - ν = 1.
    single = project_general([[0.9, 0.5]], [1], [1, 1], [1]).plan
    assert single.ravel() == pytest.approx([0.7, 0.3])
    barred = project_general([[0.9, -np.inf], [0.9, 0.9]], [1, 1], [1, 1], [2, 2]).plan
    assert barred.ravel() == pytest.approx([0.5, 0, 0.5, 0.9])
    assert not project_general(y, [1, 1], [0, 0], [2, 2]).plan.any()


def test_beginning_at_the_last_prices_changes_nothing_but_the_work():
    rng = np.random.default_rng(5)
    y, r = rng.random((20, 40)), rng.uniform(0.2, 1, 20)
    C, u = np.full(40, 1.5), np.full(20, 3.0)
    cold = project_general(y, r, C, u)
    warm = project_general(y, r, C, u, cold.eta, cold.nu)
    assert warm.plan == pytest.approx(cold.plan, abs=1e-9)
    assert warm.sweeps < cold.sweeps


@pytest.mark.parametrize("bad", [{"demand": [0, 1]}, {"capacity": [-1, 1]}, {"limit": [1]}])
def test_projection_refuses_nonsense(bad):
    given = {"demand": [1, 1], "capacity": [1, 1], "limit": [1, 1], **bad}
    with pytest.raises(ScenarioError):
        project_general(np.ones((2, 2)), **given)


def instance(enforce=True, mixed=True, seed=0):
    rng = np.random.default_rng(seed)
    M = 12
    demands = (0.25, 0.5) if mixed else (0.5,)
    jobs = [
        Job(
            n,
            a := int(rng.integers(0, 30)),
            a + int(rng.integers(5, 30)),
            float(rng.uniform(20, 80)),
            Power(float(rng.uniform(1, 5)), 0.5),
            float(rng.choice(demands)),
            int(rng.integers(2, 6)),
        )
        for n in range(14)
    ]
    problem = ApproximationProblem(np.ones(M), capacity=np.ones(M), enforce=enforce)
    return ApproximationInstance(problem, IidRates(rng.uniform(0.2, 1, M)), ReplayedJobs(jobs))


@pytest.mark.parametrize("headroom", ["plan", "none"])
@pytest.mark.parametrize("mixed", [True, False])
def test_the_policy_keeps_capacities_and_parallelism(headroom, mixed):
    """The environment refuses anything else; what is checked here is that machines are used."""
    played = instance(mixed=mixed)
    run = simulate(played, OPMGeneral(headroom=headroom), 60, 3)
    budget = sum(job.budget for job in played.jobs.jobs)
    assert 0.3 * budget < run.metrics["cost"].sum() <= budget * (1 + 1e-9)
    assert run.metrics["over"].sum() == 0
    assert run.metrics["work"].sum() > 0


def test_it_prefers_fast_machines():
    rates = np.array([0.9] * 6 + [0.1] * 6)
    jobs = ReplayedJobs([Job(0, 0, 300, 600.0, Power(), 0.5, 4)])
    problem = ApproximationProblem(np.ones(12), capacity=np.ones(12))
    run = simulate(ApproximationInstance(problem, IidRates(rates), jobs), OPMGeneral(), 300, 0)
    assert run.metrics["work"].sum() / run.metrics["cost"].sum() > 0.75  # 0.5 if it did not learn


def test_the_policy_passes_the_check():
    check_policy(create_policy("opm-general"), problems=6)


def test_machines_that_are_away_get_nothing():
    jobs = ReplayedJobs([Job(0, 0, 9, 100.0, Power(), 1.0, 3)])
    problem = ApproximationProblem([1.0, 1.0, 1.0], capacity=[1.0, 1.0, 1.0])
    away = (Outage(0, 0), Outage(1, 3, 6))
    played = ApproximationInstance(problem, IidRates([1.0] * 3), jobs, outages=away)
    run = simulate(played, OPMGeneral(), 9, 0)  # raises if it used one
    assert run.metrics["busy"][3:6].max() == 1
    assert run.metrics["busy"].max() == 2


def test_without_capacities_it_does_about_what_opm_does():
    problem = ApproximationProblem(np.ones(20))
    rates = IidRates(np.random.default_rng(0).uniform(0.2, 1, 20))
    played = ApproximationInstance(problem, rates, PoissonJobs(0.3, 30.0))
    mine, opm = (
        simulate(played, create_policy(name), 300, 1).rewards.sum()
        for name in ("opm-general", "opm:rounding=fresh")
    )
    assert mine == pytest.approx(opm, rel=0.05)


@pytest.mark.parametrize("bad", [{"alpha": 0.0}, {"dual": -1.0}, {"headroom": "some"}])
def test_options_are_checked(bad):
    with pytest.raises(ScenarioError, match=next(iter(bad))):
        OPMGeneral(**bad)
