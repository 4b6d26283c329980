"""Regret and fit against T: the optimum by hand, growth as claimed, the claims by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gangwise import ScenarioError, create_policy, create_scenario, simulate
from gangwise.papers.approximation_jobs.offline import claimed_fit, claimed_regret, offline_optimum
from gangwise.papers.approximation_jobs.problem import Job


def knapsack(instance, slots):
    """One job: whole lifetimes of machines by mean rate per price, until the budget is spent."""
    means, prices = instance.rates.means, instance.problem.prices
    left, work = instance.jobs.jobs[0].budget, 0.0
    for i in np.argsort(-means / prices):
        spent = min(left, slots * prices[i])
        work, left = work + means[i] / prices[i] * spent, left - spent
    return work


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("utility", ["log", "sqrt"])
def test_the_optimum_of_one_job_is_a_knapsack(seed, utility):
    scenario = create_scenario(f"opm-theorem-v1:slots=700,utility={utility},rho=0.2")
    instance = scenario.instance(seed)
    mean = knapsack(instance, 700) / 700
    expected = 700 * (math.log1p(mean) if utility == "log" else math.sqrt(mean))
    best = offline_optimum(instance, 700, seed, "means", average=True)
    assert best.bound == pytest.approx(expected, rel=1e-6)
    assert best.value == pytest.approx(expected, rel=1e-6)


def test_jobs_of_the_scenario():
    instance = create_scenario("opm-theorem-v1:jobs=4,slots=50,machines=6,rho=0.5").instance(1)
    jobs = instance.jobs.jobs
    assert [(job.arrival, job.deadline, job.budget) for job in jobs] == [(0, 50, 37.5)] * 4
    assert not instance.problem.enforce
    assert instance.problem.horizon == 50
    again = create_scenario("opm-theorem-v1:jobs=4,slots=900,machines=6,rho=0.5").instance(1)
    np.testing.assert_array_equal(again.rates.means, instance.rates.means)  # T changes T alone
    np.testing.assert_array_equal(again.problem.prices, instance.problem.prices)
    for wrong in ("rate=[0.5,1.5]", "price=[0,1]", "value=[2,1]", "rho=1.5"):
        with pytest.raises(ScenarioError, match=wrong.split("=")[0]):
            create_scenario(f"opm-theorem-v1:{wrong}")


@pytest.mark.full
def test_regret_of_the_theorem_grows_like_the_root_of_the_horizon():
    """Four times the slots: twice the regret, not four times."""
    regret = {}
    for slots in (250, 4000):
        each = []
        for seed in range(2):
            instance = create_scenario("opm-theorem-v1", slots=slots).instance(seed)
            best = offline_optimum(instance, slots, seed, "means", average=True)
            run = simulate(instance, create_policy("ops"), slots, seed)
            fit, over = (float(run.metrics[name].sum()) for name in ("fit", "over"))
            jobs = instance.jobs.jobs
            regret_of_run = best.bound - run.metrics["average_utility"].sum()
            assert regret_of_run < claimed_regret(jobs, 20, slots, 1.0, best.bound)
            assert fit < claimed_fit(jobs, 20)
            assert over == max(fit, 0.0)  # of a single job
            each.append(regret_of_run)
        regret[slots] = np.mean(each)
    assert 0.3 < math.log(regret[4000] / regret[250]) / math.log(16) < 0.7


def test_claims_by_hand():
    """OPS (23), OPS (24), OPM (74), OPM (101)."""
    one, two = [Job(0, 0, 100, 400.0)], [Job(n, 0, 100, 100.0 * (n + 1)) for n in range(2)]
    log = math.log(10 * 100 / 0.1)
    assert claimed_regret(one, 10, 100, 2.0, 50.0, epsilon=0.1) == pytest.approx(
        10 * 2 * math.sqrt(100 * log) + 4 * log + 5
    )
    assert claimed_regret(two, 10, 100, 2.0, 50.0) == pytest.approx(
        10 * 2 * math.sqrt(100 * log) + 10 * 2 * 2 * 10 / 2
    )
    assert claimed_fit(one, 10) == pytest.approx(math.log(10) * 20)
    expected = math.log(10) * math.sqrt(300) + (math.sqrt(2) * 100 + 2 * math.sqrt(2) * 10) / 1
    assert claimed_fit(two, 10) == pytest.approx(expected)
