"""What is wrong is named, and where; what goes wrong during a run loses nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gangwise import ScenarioError, create_policy, simulate
from gangwise.core.simulation import Simulation
from gangwise.papers.approximation_jobs.environment import ApproximationInstance, Outage
from gangwise.papers.approximation_jobs.problem import (
    ApproximationProblem,
    IidRates,
    Job,
    PoissonJobs,
    ReplayedJobs,
    ReplayedRates,
    Saturating,
)
from gangwise.papers.estimators import Oracle
from tests.papers.approximation_jobs.made import instance, started
from tests.test_cli import gangwise

POLICIES = ("opm", "opm-as-printed", "ops", "fair", "deadline-aware", "utility-per-price")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"deadline": 3}, "job 'a': its deadline, slot 3, is not after its arrival, slot 3"),
        ({"deadline": 2}, "deadline, slot 2, is not after"),
        ({"deadline": math.inf}, "job 'a': deadline is inf; slots are whole numbers"),
        ({"arrival": 0.5}, "job 'a': arrival is 0.5; slots are whole"),
        ({"budget": 0.0}, r"job 'a': budget is 0.0; it must lie in \(0, inf\)"),
        ({"budget": math.nan}, "budget is nan"),
    ],
)
def test_jobs(settings, message):
    with pytest.raises(ScenarioError, match=message):
        Job(**{"id": "a", "arrival": 3, "deadline": 9, "budget": 1.0, **settings})


def test_lists_of_jobs_name_the_entry():
    a, b = Job("a", 2, 5, 1.0), Job("b", 0, 9, 1.0)
    with pytest.raises(ScenarioError, match="'a'"):
        ReplayedJobs([a, b, Job("a", 1, 3, 1.0)])
    with pytest.raises(ScenarioError, match="'c'"):
        ReplayedJobs([a, Job("c", -1, 3, 1.0)])
    assert [job.id for job in ReplayedJobs([Job("a", 5, 8, 1.0), b, a]).jobs] == ["b", "a", "a"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ApproximationProblem([1.0, -0.5]), "machine 'machine-1': price is -0.5"),
        (lambda: ApproximationProblem([1.0, math.nan]), "machine 'machine-1': price is nan"),
        (lambda: IidRates([0.5, 1.5]), "machine 1: mean rate is 1.5"),
        (
            lambda: started(instance([], rates=[[0.5, 1.5]])).observe(0, "react"),
            "slot 0, machine 'machine-1': rate is 1.5",
        ),
        (lambda: Outage(4, 3, 3), "machine 4 is away from slot 3 until it is back in slot 3"),
        (lambda: Outage(4, -1, 3), "away from slot -1"),
        (lambda: instance([], outages=(Outage(2, 0, 3),)), "no machine 2 to be away; there are 2"),
    ],
)
def test_machines_rates_and_what_goes_wrong(make, message):
    with pytest.raises(ScenarioError, match=message):
        make()


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["opm-default-v1", "--set", "load=-1"], "load: must be greater than 0, not -1"),
        (["opm-google-v1"], "needs folder="),
    ],
)
def test_the_command_says_it_too(arguments, message):
    assert message in gangwise("compare", *arguments, code=2).stderr


def run_with(policy, **goes_wrong):
    """40 slots of two jobs on two machines whose rates tell the slot."""
    jobs = [Job("a", 0, 10, 30.0), Job("b", 2, 30, 30.0)]
    rates = np.arange(1, 41)[:, None] / 41 * np.ones((1, 2))
    problem = ApproximationProblem([1.0, 1.0], horizon=40)
    made = ApproximationInstance(problem, ReplayedRates(rates), ReplayedJobs(jobs), **goes_wrong)
    simulation = Simulation(made, create_policy(policy), 40, 0)
    seen = []
    learn = simulation.policy.learn

    def record(feedback):
        seen.extend((each.slot, i) for each in feedback for i in each.machines.tolist())
        learn(feedback)

    simulation.policy.learn = record
    simulation.run()
    return simulation, seen


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_leaves_and_a_machine_that_goes(policy):
    simulation, seen = run_with(policy, outages=(Outage(0, 5, 20),))
    results = simulation.environment.results()
    first, second = results["cost"]
    assert results["arrival"].tolist() == [0, 2]  # in the order in which they left
    assert 0 < first <= 10 * 2
    assert second <= 30
    assert len(seen) == first + second  # every task was paid, and reported its rate
    assert not [slot for slot, machine in seen if machine == 0 and 5 <= slot < 20]
    assert max(slot for slot, _ in seen) > 10
    assert simulation.rewards.sum() == pytest.approx(results["utility"].sum())


def test_what_was_learned_before_an_outage_is_still_known_after_it():
    """Counts of UCB are the tasks that ran: leaving and coming back resets nothing."""
    simulation, seen = run_with("opm:estimator=ucb", outages=(Outage(0, 5, 20), Outage(1, 22, 26)))
    ran = np.bincount([machine for _, machine in seen], minlength=2)
    earned = np.zeros(2)
    for slot, machine in seen:
        earned[machine] += (slot + 1) / 41
    before = [slot for slot, machine in seen if machine == 0 and slot < 5]
    assert before
    gamma, played = simulation.policy.gamma, ran + 1.0
    mean = earned / played
    expected = np.minimum(1.0, mean + 2 * (np.sqrt(gamma * mean / played) + gamma / played))
    np.testing.assert_allclose(simulation.policy._rates.estimate(40), expected, rtol=1e-9)


@pytest.mark.parametrize("policy", ["opm", "utility-per-price"])
def test_a_job_that_gains_nothing_any_more_stops_nobody(policy):
    """exp(-work) is 0 in floating point from work 746 on: slopes have no largest one then."""
    done = Job("a", 0, 1500, 3000.0, Saturating(1.0, 0.5))
    run = simulate(instance([done], rates=[[0.9, 0.9]]), create_policy(policy), 900, 0)
    assert run.rewards.sum() == pytest.approx(1.0)


def test_rates_of_an_estimator_of_ones_own_that_are_no_numbers_are_refused():
    policy = create_policy("opm", estimator=Oracle([math.nan, 0.5]))
    with pytest.raises(ScenarioError, match="numbers"):
        simulate(instance([Job("a", 0, 9, 9.0)], rates=[[0.9, 0.9]]), policy, 5, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dual": math.nan}, "dual is nan"),
        ({"mu": math.nan}, "mu is nan"),
        ({"mu": -1.0}, "mu is -1.0"),
        ({"delta": 0.0}, "delta is 0"),
        ({"epsilon": 1.0}, "epsilon is 1"),
    ],
)
def test_parameters_of_opm(settings, message):
    with pytest.raises(ScenarioError, match=message):
        create_policy("opm", **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pace": (4.0, 1.0)}, "pace is"),
        ({"value": (0.0, 1.0)}, "value is"),
        ({"beta": 1.5}, "beta is 1.5"),
    ],
)
def test_ranges_of_poisson_jobs(settings, message):
    with pytest.raises(ScenarioError, match=message):
        PoissonJobs(0.3, **settings)
