"""OPS and OPM: the cases worked by hand, what they must keep, and what must not matter."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise import create_policy
from gangwise.core.errors import ScenarioError
from gangwise.core.simulation import Simulation, simulate
from gangwise.papers.approximation_jobs.environment import ApproximationInstance, Outage
from gangwise.papers.approximation_jobs.policies import OPM, OPS
from gangwise.papers.approximation_jobs.problem import (
    ApproximationProblem,
    IidRates,
    Job,
    Log,
    PoissonJobs,
    Power,
    ReplayedJobs,
    Saturating,
)
from gangwise.papers.estimators import Decay, Oracle
from tests.papers.approximation_jobs.made import instance, started
from tests.reference import approximation_jobs as plain

PRINTED = {"objective": "average", "pacing": "even", "rounding": "fresh", "unit": "utility"}


def shares_along(policy, environment, slots, rates=None):
    """x of every slot, each of shape [n, M], with what was executed fed back."""
    policy.start(environment.problem, np.random.default_rng(0))
    if rates is not None:
        policy._rates = Oracle(rates)
    shares = []
    for t in range(slots):
        decision = policy.decide(environment.observe(t, policy.timing))
        shares.append(policy.state.shares[: policy.state.n].copy())
        policy.learn(environment.step(t, decision).feedback)
    return shares


def test_ops_by_hand():
    # M = 2, p = (1, ½), B / T = 1, f' = 1, θ̂ = 1, α = 0.1, μ = 0.5, x(0) = (1, 1).
    """OPS (18)."""
    made = instance([Job("a", 0, 10, 10.0, Power(1.0, 1.0))], prices=[1.0, 0.5], enforce=False)
    policy = OPS(alpha=0.1, mu=0.5, gamma=1.0, share=1.0, estimator="constant", rate=1.0)
    environment = started(made)
    policy.start(environment.problem, np.random.default_rng(0))
    multipliers, shares = [], []
    for t in range(4):
        decision = policy.decide(environment.observe(t, "react"))
        spend = 1.5  # of x(t - 1), which is (1, 1) in all four slots
        multipliers.append(float(policy.state.omega[0] + 0.5 * (spend - 1.0)))
        shares.append(policy.state.shares[0].tolist())
        environment.step(t, decision)
    assert multipliers == [0.5, 0.75, 1.0, 1.25]
    np.testing.assert_allclose(shares, [[1, 1], [1, 1], [1, 1], [0.975, 1]], atol=1e-12)


def test_opm_by_hand():
    # M = 1, v = (2, 1), β = ½, floor 1, α = ½, μ = 0. A rate of 0 keeps the slope at the floor.
    jobs = [Job("a", 0, 9, 9.0, Power(2.0, 0.5)), Job("b", 0, 9, 9.0, Power(1.0, 0.5))]
    made = instance(jobs, prices=[1.0], rates=[[0.0]], enforce=False)
    policy = OPM("constant", alpha=0.5, mu=0.0, floor=1.0, rate=1.0, **PRINTED)
    shares = shares_along(policy, started(made), 3)
    expected = [[0.5, 0.25], [0.75, 0.25], [0.875, 0.125]]
    np.testing.assert_allclose([x[:, 0] for x in shares], expected, atol=1e-12)


@pytest.mark.parametrize(
    ("objective", "pacing"), [("average", "even"), ("total", "even"), ("average", "left")]
)
def test_opm_follows_the_plain_one(objective, pacing):
    """OPM (9), OPM (64)–(71)."""
    rng = np.random.default_rng(3)
    M, alpha, mu, floor = 6, 0.3, 0.05, 0.03
    prices, rates = rng.uniform(0.3, 1.2, M), rng.random(M)
    jobs = [Job(n, n, 12 + 3 * n, 40.0 + n, Power(1.0 + n, 0.6)) for n in range(5)]
    made = instance(jobs, prices=prices, rates=rng.random((7, M)), enforce=False)
    options = {**PRINTED, "objective": objective, "pacing": pacing}
    policy, environment = OPM("ucb", alpha=alpha, mu=mu, floor=floor, **options), started(made)
    policy.start(environment.problem, np.random.default_rng(1))
    twin = plain.PlainOPM(
        prices, alpha, mu, lambda i: rates[i], objective == "total", pacing == "left"
    )
    policy._rates = Oracle(rates)
    mean = prices.mean()
    for t in range(24):
        o = environment.observe(t, "react")
        known = {o.jobs.jobs[j].id: j for j in o.jobs.rows}
        described = {
            n: (
                jobs[n].arrival,
                jobs[n].deadline,
                jobs[n].budget,
                1.0 + n,
                0.6,
                floor * jobs[n].pace / mean,
            )
            for n in known
        }
        work = {n: o.jobs.work[j] for n, j in known.items()}
        cost = {n: min(o.jobs.cost[j], jobs[n].budget) for n, j in known.items()}
        expected = twin.step(t, described, work, cost)
        decision = policy.decide(o)
        for k in range(policy.state.n):
            name = o.jobs.jobs[policy.state.rows[k]].id
            for i in range(M):
                assert policy.state.shares[k, i] == pytest.approx(expected[name, i], abs=1e-9)
        environment.step(t, decision)


def test_a_share_that_is_held_back_is_a_smaller_budget():
    """OPM (64): ε = 0.2 of 10 is a budget of 8. Utilities are linear, so only the target tells."""
    shares = {}
    for budget, epsilon in ((10.0, 0.2), (8.0, 0.0), (10.0, 0.0)):
        made = instance([Job("a", 0, 10, budget, Power(1.0, 1.0))], [1.0, 0.5], enforce=False)
        policy = OPM("constant", alpha=0.1, mu=0.5, epsilon=epsilon, rate=1.0, **PRINTED)
        shares[budget, epsilon] = np.array(shares_along(policy, started(made), 8))
    np.testing.assert_allclose(shares[10.0, 0.2], shares[8.0, 0.0], atol=1e-12)
    assert np.abs(shares[10.0, 0.2] - shares[10.0, 0.0]).max() > 0.01


def test_the_constants_of_theorem_3():
    """α = 1 / (2 √T), μ = √T / M, γ = ln(M T / δ) with M = 2, T = 50, δ = 0.2."""
    policy = OPM("ucb", theory=True, delta=0.2)
    policy.start(instance([Job("a", 0, 9, 9.0)]).problem, np.random.default_rng(0))
    constants = policy._alpha, policy._mu, policy._gamma
    assert constants == pytest.approx((0.0707107, 3.5355339, 6.2146081))


def test_ops_follows_the_plain_one():
    """Algorithm 1 with the constants of Theorem 2: γ, μ and α are those of M, T and δ.

    OPS (10)–(19), OPS Algorithm 1.
    """
    rng, M, T, budget = np.random.default_rng(8), 5, 400, 700.0
    prices, rates = rng.uniform(0.4, 1.0, M), rng.random((50, M))
    made = instance([Job("a", 0, T, budget, Power(2.0, 0.7))], prices, rates, enforce=False)
    policy, environment = OPS(delta=0.2, floor=0.05), started(made)
    policy.start(environment.problem, np.random.default_rng(1))
    twin = plain.PlainOPS(prices, T, budget, 2.0, 0.7, delta=0.2, floor=0.05)
    clipped = []
    for t in range(T):
        decision = policy.decide(environment.observe(t, "react"))
        clipped.append(min(twin.estimates()))
        np.testing.assert_allclose(policy.state.shares[0], twin.step(), atol=1e-9)
        feedback = environment.step(t, decision).feedback
        policy.learn(feedback)
        for each in feedback:
            twin.learn(each.machines, each.rates)
    assert clipped[0] == 1.0
    assert clipped[-1] < 0.9  # or γ would not have been seen


def test_a_job_that_cannot_pay_in_one_slot_comes_back():
    """The only machine that the money left pays for is away in slot 30, and there again in 31."""
    worked = {}
    for outages in ((), (Outage(0, 30, 31),)):
        made = instance(
            [Job("a", 0, 45, 3.85)], prices=[0.1, 1.0], rates=[[0.9, 0.9]], outages=outages
        )
        simulation = Simulation(made, OPM(), 45, 0)
        run = simulation.run()
        worked[bool(outages)] = simulation.environment.results()["work"][0]
        if outages:
            left = 3.85 - run.metrics["cost"][:30].sum()
            assert 0.1 < left < 1.0  # as the case wants it
            assert run.metrics["work"][30] == 0
            assert run.metrics["work"][31:].sum() > 3
    assert worked[True] > 0.9 * worked[False]


def test_slope_is_taken_at_the_projected_total():
    jobs = [Job("a", 0, 8, 100.0, Power(3.0, 0.5))]
    made = instance(jobs, prices=[1.0, 1.0], rates=[[0.5, 0.25]], enforce=False)
    policy = OPM("constant", "total", "even", "fresh", alpha=1e-3, mu=0.0, unit="utility", rate=1.0)
    environment = started(made)
    policy.start(environment.problem, np.random.default_rng(0))
    policy.decide(environment.observe(0, "react"))
    environment.step(0, np.array([0, 0]))
    environment.observe(1, "react")
    environment.step(1, np.array([0, 0]))
    before = policy.state.shares[0, 0]
    policy.decide(environment.observe(2, "react"))
    # 1.5 units of work in 2 of 8 slots project to 6.
    rise = 1e-3 * 3.0 * 0.5 / np.sqrt(6.0)
    assert policy.state.shares[0, 0] - before == pytest.approx(rise, rel=1e-12)


def test_multipliers_are_those_of_20_written_out():
    """OPS (20), OPS (25), OPM (73)."""
    rng = np.random.default_rng(5)
    state = OPM(mu=1.0)
    state.start(ApproximationProblem([1.0]), rng)
    core, mu, target = state.state, 0.3, 1.0
    core.add(0)
    spends = [0.0, *rng.uniform(0, 2, 40)]
    written, lam, before = [], 0.0, 0.0  # g before the job came is 0
    carried = []
    for spend in spends:
        g = spend - target
        lam = max(0.0, lam + 2 * mu * g - mu * before)
        before = g
        written.append(lam)
        core.spend[0] = spend
        carried.append(float(core.multipliers(np.array([target]), mu)[0]))
        assert core.omega[0] >= 0
        assert carried[-1] >= -1e-15
        assert carried[-1] == pytest.approx(core.omega[0] + mu * g)
    np.testing.assert_allclose(carried, written, atol=1e-12)


def synthetic(M=8, seed=0, scale=1.0, enforce=True, rate=0.15, v=1.0):
    rng = np.random.default_rng(seed)
    prices = rng.uniform(0.4, 1.3, M) * scale
    jobs = PoissonJobs(rate, 30.0, (1.0 * scale, 5.0 * scale), (1.0 * v, 5.0 * v))
    problem = ApproximationProblem(prices, horizon=300, enforce=enforce)
    return ApproximationInstance(problem, IidRates(rng.random(M), 2.0), jobs)


@pytest.mark.parametrize("name", ["opm", "opm-as-printed"])
def test_the_unit_of_price_does_not_matter(name):
    base = simulate(synthetic(), create_policy(name), 300, 1)
    scaled = simulate(synthetic(scale=8.0), create_policy(name), 300, 1)
    np.testing.assert_allclose(scaled.rewards, base.rewards, rtol=1e-9)
    np.testing.assert_allclose(scaled.metrics["cost"], 8.0 * base.metrics["cost"], rtol=1e-9)


def test_the_unit_of_utility_does_not_matter_to_opm():
    base = simulate(synthetic(), create_policy("opm"), 300, 1)
    scaled = simulate(synthetic(v=1000.0), create_policy("opm"), 300, 1)
    np.testing.assert_allclose(scaled.rewards, 1000.0 * base.rewards, rtol=1e-9)


NAMES = [
    "ops",
    "opm",
    "opm-as-printed",
    "opm-without-estimation",
    "opm:history=expected",
    "opm:theory=True",
    "fair",
    "deadline-aware",
    "utility-per-price",
]


@pytest.mark.parametrize("name", NAMES)
def test_budgets_are_never_exceeded_when_enforced(name):
    simulation = Simulation(synthetic(rate=0.3), create_policy(name), 300, 2)
    run = simulation.run()
    results = simulation.environment.results()
    assert len(results["cost"]) > 40
    assert (results["cost"] <= results["budget"] * (1 + 1e-8)).all()
    assert (run.metrics["over"] == 0).all()
    assert (run.metrics["busy"] <= 8).all()
    assert results["cost"].sum() > 0
    assert (results["work"] <= results["cost"] / 0.4 + 1e-9).all()


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("fair", "deadline-aware")])
def test_rates_that_nobody_sees_change_nothing(name):
    # After slot 30 the rates of machines that did not run, and all rates from slot 60 on, differ.
    made = synthetic(rate=0.3)
    rates, jobs = made.history(90, seed=3)
    problem = made.problem

    def decisions(table):
        environment = started(instance(jobs, prices=problem.prices, rates=table), seed=3)
        policy = create_policy(name)
        policy.start(environment.problem, np.random.default_rng(4))
        taken = []
        for t in range(61):
            o = environment.observe(t, "react")
            taken.append(policy.decide(o).copy())
            policy.learn(environment.step(t, taken[-1]).feedback)
        return taken

    first = decisions(rates)
    other = rates.copy()
    for t in range(60):
        other[t, first[t] < 0] = 0.123
    other[60:] = 0.456
    idle = sum(int((d < 0).sum()) for d in first[:60])
    assert idle > 0
    for a, b in zip(first, decisions(other)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.full
def test_estimation_earns_nothing_where_every_machine_is_priced_at_twice_its_mean():
    rng = np.random.default_rng(6)
    means = rng.uniform(0.2, 0.9, 40)
    problem = ApproximationProblem(2.0 * means)
    jobs = PoissonJobs(0.05, 100.0, (1.0, 10.0))
    made = ApproximationInstance(problem, IidRates(means), jobs)
    earned = {}
    for estimator in ("ucb", "constant"):
        policy = OPM(estimator, **PRINTED, alpha=0.1, gamma=0.1)
        earned[estimator] = np.mean([simulate(made, policy, 1500, s).mean_reward for s in (0, 1)])
    assert earned["ucb"] / earned["constant"] == pytest.approx(1.0, abs=0.02)


def test_estimation_earns_where_one_price_holds_for_all():
    rng = np.random.default_rng(6)
    means = rng.uniform(0.2, 0.9, 40)
    problem = ApproximationProblem(np.full(40, 1.1))
    made = ApproximationInstance(problem, IidRates(means), PoissonJobs(0.02, 100.0, (1.0, 10.0)))
    policies = {e: OPM(e, **PRINTED, alpha=0.1, gamma=0.1) for e in ("ucb", "constant")}
    earned = {e: simulate(made, p, 1500, 0).mean_reward for e, p in policies.items()}
    assert earned["ucb"] > 1.1 * earned["constant"]


def test_coupling_moves_fewer_tasks_for_the_same_utility():
    fresh, coupled = (
        simulate(synthetic(20, rate=0.2), OPM(rounding=r, alpha=0.1), 1500, 1)
        for r in ("fresh", "coupled")
    )
    assert coupled.metrics["displaced"].sum() < 0.4 * fresh.metrics["displaced"].sum()
    assert coupled.mean_reward > 0.97 * fresh.mean_reward


def test_ops_without_enforcement_keeps_to_the_budget_up_to_its_root():
    # Theorem 2 promises ln(1/δ) √B + O(1); the signed fit may be anything below.
    T, M = 4000, 20
    budget = 0.3 * M * T
    means = np.random.default_rng(7).random(M)
    problem = ApproximationProblem(np.ones(M), horizon=T, enforce=False)
    jobs = ReplayedJobs([Job("a", 0, T, budget)])
    made = ApproximationInstance(problem, IidRates(means), jobs)
    simulation = Simulation(made, OPS(gamma=0.5), T, 0)
    simulation.run()
    cost = simulation.environment.results()["cost"][0]
    assert cost - budget <= np.log(10) * np.sqrt(budget)
    assert cost >= 0.8 * budget


def test_ops_serves_one_job_at_a_time():
    jobs = [Job("a", 0, 5, 99.0, Log(9.0)), Job("b", 1, 8, 99.0, Saturating(9.0))]
    made = instance(jobs, prices=[1.0, 1.0], enforce=False)
    simulation = Simulation(made, OPS(alpha=1.0, mu=0.0, gamma=1.0), 8, 0)
    simulation.run()
    arrived = simulation.environment.results()
    assert arrived["cost"][0] == 10.0
    assert 0 < arrived["cost"][1] <= 6.0


@pytest.mark.parametrize("name", ["opm", "ops", "utility-per-price"])
def test_an_estimator_of_ones_own_may_be_given(name):
    """As good as the one of that name, and left as it was."""
    own = Decay(tau=30.0, prior=0.5)
    named, given = (
        simulate(synthetic(), create_policy(name, estimator=e), 80, 1)
        for e in ("decay", Decay(tau=30.0))
    )
    np.testing.assert_array_equal(named.rewards, given.rewards)
    simulate(synthetic(), create_policy(name, estimator=own), 80, 1)
    assert not hasattr(own, "_last")


def test_theorem_constants_that_make_no_sense_are_refused():
    environment = started(instance([Job("a", 0, 20, 1.0)]))
    policy = OPS(epsilon=-1)
    policy.start(environment.problem, np.random.default_rng(0))
    with pytest.raises(ScenarioError, match="too small"):
        policy.decide(environment.observe(0, "react"))
    with pytest.raises(ScenarioError, match="horizon"):
        OPM(theory=True).start(ApproximationProblem([1.0]), np.random.default_rng(0))


@pytest.mark.parametrize(
    "arguments",
    [
        {"objective": "totl"},
        {"rounding": "no"},
        {"alpha": 0.0},
        {"floor": -1.0},
        {"dual": -1.0},
        {"epsilon": 1.0},
        {"estimator": "ucbb"},
    ],
)
def test_bad_options_are_refused(arguments):
    with pytest.raises((ScenarioError, LookupError)):
        OPM(**arguments)
