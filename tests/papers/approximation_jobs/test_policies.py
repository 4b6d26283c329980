"""Every policy keeps to the contract; the baselines do what they say."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise import check_policy, create_policy
from gangwise.core.registry import entries
from gangwise.papers.approximation_jobs.environment import Outage
from gangwise.papers.approximation_jobs.policies import max_min_shares, systematic
from gangwise.papers.approximation_jobs.problem import Job, Power
from tests.papers.approximation_jobs.made import instance, started

REGISTERED = [n for n, e in entries("policy").items() if e.family == "approximation_jobs"]


@pytest.mark.parametrize(
    "name", [*REGISTERED, "opm:estimator=thompson", "opm:history=expected", "opm:theory=True"]
)
def test_contract(name):
    check_policy(create_policy(name), problems=5, slots=20)


def counts(name, jobs, slots=1, prices=(1.0,) * 6, seed=0, **more):
    """How many machines each job (by id) gets in each slot."""
    environment = started(instance(jobs, prices=prices, **more))
    policy = create_policy(name)
    policy.start(environment.problem, np.random.default_rng(seed))
    table = []
    for t in range(slots):
        o = environment.observe(t, "react")
        decision = policy.decide(o)
        table.append({o.jobs.jobs[j].id: int((decision == j).sum()) for j in o.jobs.rows})
        policy.learn(environment.step(t, decision).feedback)
    return table


def test_max_min_shares_by_hand():
    np.testing.assert_allclose(max_min_shares(10.0, np.array([1.0, 9.0, 9.0])), [1, 4.5, 4.5])
    np.testing.assert_allclose(max_min_shares(10.0, np.array([9.0, 2.0, 1.0])), [7, 2, 1])
    np.testing.assert_allclose(max_min_shares(10.0, np.array([2.0, 3.0])), [2, 3])
    np.testing.assert_allclose(max_min_shares(3.0, np.full(6, 9.0)), 0.5)


def test_max_min_shares_are_max_min():
    rng = np.random.default_rng(0)
    for _ in range(200):
        most, total = rng.uniform(0, 5, rng.integers(1, 9)), rng.uniform(0.1, 12)
        shares = max_min_shares(total, most)
        assert shares.sum() == pytest.approx(min(total, most.sum()))
        assert (shares <= most + 1e-12).all()
        held_back = shares < most - 1e-9
        if held_back.any():  # whoever is held back has as much as anybody
            assert shares[held_back].min() >= shares.max() - 1e-9


def test_systematic_rounding_is_unbiased_and_keeps_the_sum():
    shares = np.array([0.2, 1.7, 0.0, 0.6, 0.5])
    grid = (np.arange(1000) + 0.5) / 1000
    drawn = np.array([systematic(shares, u) for u in grid])
    np.testing.assert_allclose(drawn.mean(axis=0), shares, atol=1e-9)
    assert set(drawn.sum(axis=1)) == {3}
    assert (np.abs(drawn - shares) < 1).all()


def test_fair_shares_equally_within_budgets():
    jobs = [Job("poor", 0, 9, 1.0), Job("a", 0, 9, 99.0), Job("b", 0, 9, 99.0)]
    table = counts("fair", jobs, 3)
    assert table[0]["poor"] == 1
    assert {table[0]["a"], table[0]["b"]} == {2, 3}
    assert table[1] == table[2] == {"poor": 0, "a": 3, "b": 3}


def test_fair_serves_more_jobs_than_machines():
    jobs = [Job(n, 0, 300, 999.0) for n in range(5)]
    table = counts("fair", jobs, 300, prices=(1.0, 1.0))
    for n in range(5):
        assert np.mean([row[n] for row in table]) == pytest.approx(0.4, abs=0.09)


def test_deadline_aware_serves_the_most_urgent_first():
    jobs = [Job("later", 0, 9, 99.0), Job("soon", 0, 3, 4.0), Job("between", 0, 5, 1.0)]
    assert counts("deadline-aware", jobs)[0] == {"later": 1, "soon": 4, "between": 1}
    assert counts("deadline-aware", jobs, 2)[1] == {"later": 6, "soon": 0, "between": 0}


def test_utility_per_price_prefers_steep_jobs_and_good_machines():
    jobs = [Job("flat", 0, 40, 400.0, Power(1.0, 0.5)), Job("steep", 0, 40, 120.0, Power(9.0, 0.5))]
    rates = [[0.9, 0.1, 0.9, 0.1]]
    environment = started(instance(jobs, prices=[1.0] * 4, rates=rates))
    policy = create_policy("utility-per-price")
    policy.start(environment.problem, np.random.default_rng(0))
    for t in range(30):
        o = environment.observe(t, "react")
        decision = policy.decide(o).copy()
        policy.learn(environment.step(t, decision).feedback)
        if t == 0:
            assert (decision == 1).sum() >= 3
    only = started(instance(jobs[1:], prices=[1.0] * 4, rates=rates))
    policy = create_policy("utility-per-price:burst=0.6")
    policy.start(only.problem, np.random.default_rng(0))
    used = np.zeros(4)
    for t in range(30):
        decision = policy.decide(only.observe(t, "react")).copy()
        policy.learn(only.step(t, decision).feedback)
        used += decision >= 0
    assert used[[0, 2]].sum() > 0.8 * used.sum()


@pytest.mark.parametrize("name", ["fair", "deadline-aware"])
def test_tasks_stay_where_they_are_when_nothing_changes(name):
    jobs = [Job("a", 0, 20, 999.0), Job("b", 0, 20, 999.0)]
    environment = started(instance(jobs, prices=[1.0] * 6))
    policy = create_policy(name)
    policy.start(environment.problem, np.random.default_rng(0))
    first = None
    for t in range(10):
        decision = policy.decide(environment.observe(t, "react")).copy()
        environment.step(t, decision)
        first = decision if first is None else first
        np.testing.assert_array_equal(decision, first)


@pytest.mark.parametrize("seed", range(4))
def test_fair_shares_only_the_machines_that_are_there(seed):
    """Four machines, two of them away: each of two jobs has one, not the first job both."""
    jobs = [Job("a", 0, 9, 99.0), Job("b", 0, 9, 99.0)]
    away = (Outage(0, 0, 3), Outage(3, 0, 3))
    environment = started(instance(jobs, prices=[1.0] * 4, outages=away))
    policy = create_policy("fair")
    policy.start(environment.problem, np.random.default_rng(seed))
    for t in range(6):
        decision = policy.decide(environment.observe(t, "react")).copy()
        environment.step(t, decision)
        each = 1 if t < 3 else 2
        assert [(decision == row).sum() for row in (0, 1)] == [each, each]


def test_utility_per_price_spreads_what_is_left_over_the_slots_left():
    """One job alone: burst × left / ((d − t) p) tasks, rounded down or up, until it cannot pay."""
    deadline, burst, budget = 12, 0.7, 30.0
    made = instance([Job("a", 2, deadline, budget)], prices=[1.0] * 9, rates=[[0.5] * 9])
    environment = started(made)
    policy = create_policy("utility-per-price", burst=burst)
    policy.start(environment.problem, np.random.default_rng(0))
    for t in range(deadline):
        o = environment.observe(t, "react")
        decision = policy.decide(o).copy()
        if o.jobs.rows.size:
            slots_left = len(range(t, deadline))
            pace = burst * (budget - float(o.jobs.cost[o.jobs.rows[0]])) / slots_left
            tasks = int((decision >= 0).sum())
            assert tasks in (np.floor(min(pace, 9)), np.ceil(min(pace, 9)))
            assert pace < 9
        policy.learn(environment.step(t, decision).feedback)


@pytest.mark.parametrize(("v", "first"), [(0.83, 1), (0.80, 0)])
def test_steepest_job_by_the_work_projected_to_the_deadline(v, first):
    """One unit of work each in the first slot projects to 6 and 4: slopes 1 / √6 and v / √4.

    They are equal for v = 0.8165; for 0.845 if deadlines were a slot later, 0.775 if earlier.
    """
    jobs = [Job("long", 0, 6, 40.0, Power(1.0, 0.5)), Job("short", 0, 4, 40.0, Power(v, 0.5))]
    environment = started(instance(jobs, prices=[1.0] * 2, enforce=False))
    environment.observe(0, "react")
    environment.step(0, np.array([0, 1]))
    policy = create_policy("utility-per-price:burst=9")
    policy.start(environment.problem, np.random.default_rng(0))
    assert (policy.decide(environment.observe(1, "react")) == first).all()


POLICIES = ["fair", "deadline-aware", "utility-per-price", "opm"]


@pytest.mark.parametrize("name", POLICIES)
def test_a_thousandth_of_a_price_is_not_lent(name):
    """3.9985 pays three tasks of price 1, and nobody asks for a fourth."""
    environment = started(instance([Job("a", 0, 40, 3.9985)], prices=[1.0] * 2))
    policy = create_policy(name)
    policy.start(environment.problem, np.random.default_rng(0))
    cost = refused = 0.0
    for t in range(40):
        o = environment.observe(t, "react")
        left = 3.9985 - float(o.jobs.cost[0])
        decision = policy.decide(o).copy()
        tasks = int((decision >= 0).sum())
        if left < 1:
            assert tasks == 0
        outcome = environment.step(t, decision)
        policy.learn(outcome.feedback)
        cost += outcome.metrics[environment.metrics.index("cost")]
        refused += outcome.metrics[environment.metrics.index("refused")]
    assert cost == 3.0


def test_the_environment_lends_nothing_but_rounding():
    play = started(instance([Job("a", 0, 9, 3.9985)], prices=[1.0] * 4))
    play.observe(0, "react")
    outcome = play.step(0, np.zeros(4, np.int64))
    assert outcome.metrics[play.metrics.index("cost")] == 3.0
    assert outcome.metrics[play.metrics.index("refused")] == 1.0
    three = started(instance([Job("a", 0, 9, 0.3)], prices=[0.1] * 3))
    three.observe(0, "react")
    outcome = three.step(0, np.zeros(3, np.int64))
    assert 0.1 + 0.1 + 0.1 > 0.3
    assert outcome.metrics[three.metrics.index("refused")] == 0.0
