"""Water-filling against a plain twin and against cvxpy; the policy, and what it must keep."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from gangwise import (
    ScenarioError,
    UnknownName,
    check_policy,
    create_policy,
    create_scenario,
    simulate,
)
from gangwise.core.simulation import Simulation
from gangwise.papers.approximation_jobs.environment import Outage
from gangwise.papers.approximation_jobs.policies import (
    Assignment,
    JobDemands,
    inverse_slope,
    match_machines,
    over_lifetime,
    plan_shares,
    water_filling,
)
from gangwise.papers.approximation_jobs.problem import Job, Log, Power, Saturating
from tests.papers.approximation_jobs.made import instance, started
from tests.papers.approximation_jobs.test_opm import synthetic
from tests.reference import approximation_jobs as plain


def drawn(seed, n=6):
    """Jobs of all forms, rich and poor, near and far from deadlines."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, n)
    shape = np.where(kind == 0, rng.choice([0.3, 0.5, 0.9], n), rng.uniform(0.5, 9.0, n))
    done = rng.uniform(0.0, 5.0, n) * (rng.random(n) < 0.7)
    money = rng.uniform(0.0, 20.0, n) * (rng.random(n) < 0.9)
    slots = rng.integers(1, 12, n).astype(float)
    rho = np.full(n, rng.uniform(0.2, 1.5))
    return kind, rng.uniform(0.5, 5.0, n), shape, done, money, slots, rho


def filled(jobs, supply, guess=0.0):
    spend, other = np.zeros(jobs[0].size), np.zeros(jobs[0].size)
    eta = water_filling(JobDemands(*jobs[:-1]), float(jobs[-1][0]), supply, guess, spend, other)
    return eta, spend


@pytest.mark.parametrize("seed", range(6))
def test_water_filling_follows_the_plain_one(seed):
    jobs = drawn(seed)
    supply = float(np.random.default_rng(seed).choice([0.3, 2.0, 8.0, 60.0]))
    expected, price = plain.water_fill(*[a.tolist() for a in jobs], supply)
    for guess in (0.0, 1e-6, 0.2, 1e5):
        eta, spend = filled(jobs, supply, guess)
        np.testing.assert_allclose(spend, expected, atol=2e-7 * max(supply, 1.0))
        assert spend.sum() <= supply * (1 + 1e-9)
        if price > 0 and spend.sum() > 0.99 * supply:
            assert eta > 0
    money, slots = jobs[4], jobs[5]
    assert (spend <= money / slots * (1 + 1e-12)).all()


@pytest.mark.filterwarnings("ignore:Power atom")
@pytest.mark.parametrize("seed", range(6))
def test_shares_of_a_slot_against_cvxpy(seed):
    """The plan solves: maximise Σ f_j(X_j + ρ_j c_j), 0 ≤ c_j ≤ left_j, Σ c_j / slots_j ≤ supply.

    Its multiplier is η times the slots of each job; with equal slots it is the plan of the paper's
    concave programme for jobs that are all there until the same deadline.
    """
    kind, v, shape, done, money, slots, rho = drawn(seed)
    slots[:] = 4.0
    done += 0.2  # keeps slopes finite for the solver
    supply = 0.6 * float((money / slots).sum())
    _, spend = filled((kind, v, shape, done, money, slots, rho), supply)
    c = cp.Variable(kind.size, nonneg=True)
    total = 0
    for j in range(kind.size):
        X, s = done[j] + rho[j] * c[j], shape[j]
        forms = (cp.power(X, s), cp.log1p(X / s), 1 - cp.exp(-X / s))
        total = total + v[j] * forms[kind[j]]
    programme = cp.Problem(cp.Maximize(total), [c <= money, cp.sum(c) / 4.0 <= supply])
    programme.solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(spend * slots, c.value, atol=2e-4 * (1 + money.max()))


def test_linear_utilities_are_filled_as_far_as_the_supply_goes():
    """Demand of v X jumps from all to nothing at η = v ρ; the supply ends within the jump."""
    one = np.ones(3)
    jobs = (np.zeros(3, int), np.array([3.0, 2.0, 1.0]), one, 0 * one, 4 * one)
    eta, spend = filled((*jobs, one, one), 6.0)
    np.testing.assert_allclose(spend, [4.0, 2.0, 0.0], atol=1e-9)
    assert eta == pytest.approx(2.0, rel=1e-9)


def test_everybody_spends_all_where_money_is_short():
    kind, v, shape, done, money, slots, rho = drawn(3)
    eta, spend = filled((kind, v, shape, done, money, slots, rho), 1e6)
    assert eta == 0.0
    np.testing.assert_allclose(spend, money / slots)


def test_the_best_machines_are_used_as_far_as_money_goes():
    """One job pays 2.5 per slot: three of five machines of price 1, the best ones."""
    one = np.ones(1)
    jobs = JobDemands(np.zeros(1, int), one, 0.5 * one, 0 * one, 10.0 * one, 4.0 * one)
    rates = np.array([0.1, 0.9, 0.5, 0.8, 0.2])
    spend, steep, other = np.zeros((3, 1))
    given = jobs, np.ones(5), rates, np.argsort(-rates), 0.0
    eta, rho, price = plan_shares(*given, spend, steep, other)
    assert spend / price == pytest.approx([2.5])
    assert eta == 0.0
    assert rho == pytest.approx((0.9 + 0.8 + 0.5) / 3)


def test_demand_curves_invert_slopes():
    """f'(f'⁻¹(a)) = a wherever the curve is inside."""
    for utility in (Power(2.0, 0.5), Power(1.5, 0.8), Log(3.0, 2.0), Saturating(2.0, 5.0)):
        for work in (0.01, 0.5, 3.0, 40.0):
            at = plain.slope(utility.code[0], *utility.code[1:], work)
            assert inverse_slope(*utility.code, at) == pytest.approx(work, rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_machines_are_matched_as_the_plain_one_has_it(seed):
    rng = np.random.default_rng(seed)
    M, n, C = 12, 5, 9
    rows = rng.permutation(C)[:n].astype(np.int64)
    want = rng.integers(0, 4, n)
    order = rng.permutation(M)[: int(rng.integers(want.sum() // 2, M + 1))].astype(np.int64)
    want = np.minimum(want, np.maximum(order.size - np.cumsum(want) + want, 0))
    worth, steep = rng.random(M), int(rng.integers(0, n + 1))
    order = order[np.argsort(-worth[order])]
    holder = rng.integers(-1, C, M).astype(np.int64)
    least = float(rng.random())
    expected = plain.match(want.tolist(), rows.tolist(), steep, order, worth, least, holder)
    place, now = np.full(C, -1), np.zeros(M, np.int64)
    needed = want.copy()
    match_machines(want, rows, steep, order, worth, least, Assignment(holder, now, place))
    assert holder.tolist() == expected
    assert (place == -1).all()
    for k, row in enumerate(rows):
        assert (holder == row).sum() == needed[k]


def test_it_keeps_to_the_contract():
    check_policy(create_policy("plan"), problems=15, slots=25)


def test_budgets_and_outages():
    made = synthetic(rate=0.3)
    rates, jobs = made.history(120, seed=2)
    away = tuple(Outage(i, 10 * i, 10 * i + 25) for i in range(6))
    played = instance(jobs, made.problem.prices, rates, outages=away)
    simulation = Simulation(played, create_policy("plan"), 120, 0)
    run = simulation.run()
    results = simulation.environment.results()
    assert (results["cost"] <= results["budget"] * (1 + 1e-8)).all()
    assert run.metrics["refused"].sum() <= 0.02 * run.metrics["busy"].sum()


@pytest.mark.parametrize("slots", [60, 240])
def test_it_is_ahead_whatever_the_length_of_a_slot(slots):
    """The same jobs in long slots and in short ones."""
    jobs = [
        Job(
            n,
            a := (n * 7) % 50 * slots // 60,
            min(a + (3 + 5 * (n % 4)) * slots // 60, slots),
            float(60 + 100 * (n % 5)),
            Power(1.0 + n % 4, 0.5),
        )
        for n in range(40)
    ]
    rng = np.random.default_rng(0)
    made = instance(jobs, prices=np.ones(20), rates=rng.uniform(0.5, 1.0, (slots, 20)))
    total = {p: simulate(made, create_policy(p), slots, 0).rewards.sum() for p in ("plan", "opm")}
    assert total["plan"] > total["opm"]


@pytest.mark.parametrize("form", [Power, Log, Saturating])
def test_the_utility_of_a_lifetime_keeps_its_form(form):
    """L f(X / L), by values."""
    rng = np.random.default_rng(0)
    for v, second, life, work in rng.uniform(0.1, 1.0, (20, 4)) * [5, 1, 40, 90]:
        kind, *_ = form(v, second).code
        scale, shape = over_lifetime(
            np.array([kind]), np.array([v]), np.array([second]), np.array([life])
        )
        assert form(scale[0], shape[0]).value(work) == pytest.approx(
            life * form(v, second).value(work / life)
        )


LIVES = [10 * (n % 4 + 1) for n in range(12)]


def alive(utilities):
    """Jobs that all come in slot 0 and live 10 to 40 slots, on six machines."""
    jobs = [Job(n, 0, life, 40.0, u) for n, (life, u) in enumerate(zip(LIVES, utilities))]
    return instance(jobs, prices=np.ones(6), rates=[[0.3, 0.5, 0.7, 0.8, 0.9, 1.0]])


def test_planning_for_6_is_planning_with_its_utilities():
    """L √(X / L) = √L √X, written out or asked for."""
    asked = alive([Power(2.0, 0.5)] * 12)
    written = alive([Power(2.0 * life**0.5, 0.5) for life in LIVES])
    same = simulate(written, create_policy("plan"), 40, 0)
    found = simulate(asked, create_policy("plan:objective=average"), 40, 0)
    np.testing.assert_array_equal(found.metrics["busy"], same.metrics["busy"])
    by_time = found.metrics["average_utility"].sum()
    assert by_time == pytest.approx(same.rewards.sum())
    with pytest.raises(ScenarioError, match="keep"):
        create_policy("plan:keep=2")
    with pytest.raises(UnknownName, match="objective"):
        create_policy("plan:objective=both")


def test_each_objective_is_best_served_by_its_own_plan():
    made = create_scenario("opm-default-v1:load=3,machines=20,slots=400").instance(0)
    total, average = (
        simulate(made, create_policy(p), 400, 0) for p in ("plan", "plan:objective=average")
    )
    assert total.rewards.sum() > 1.01 * average.rewards.sum()
    by_time = [run.metrics["average_utility"].sum() for run in (total, average)]
    assert by_time[1] > 1.01 * by_time[0]


def test_a_job_alone_spends_evenly_what_is_left():
    """left / (d − t) tasks of price 1 in every slot, rounded down or up, until all is spent."""
    deadline, budget = 12, 31.0
    made = instance([Job("a", 2, deadline, budget)], prices=[1.0] * 9, rates=[[0.5] * 9])
    environment, policy = started(made), create_policy("plan")
    policy.start(environment.problem, np.random.default_rng(0))
    cost = 0.0
    for t in range(deadline):
        o = environment.observe(t, "react")
        decision = policy.decide(o).copy()
        tasks = int((decision >= 0).sum())
        if o.jobs.rows.size:
            pace = (budget - cost) / len(range(t, deadline))
            assert tasks in (np.floor(pace), np.ceil(pace))
            cost += tasks
        policy.learn(environment.step(t, decision).feedback)
    assert cost == budget


def test_jobs_short_of_money_get_the_best_machines():
    """Two jobs of equal worth, one with little money: its tasks run on the fast machines."""
    jobs = [Job("rich", 0, 40, 900.0), Job("poor", 0, 40, 40.0)]
    rates = [[0.9, 0.2, 0.9, 0.2, 0.9, 0.2]]
    environment = started(instance(jobs, prices=[1.0] * 6, rates=rates))
    policy = create_policy("plan")
    policy.start(environment.problem, np.random.default_rng(0))
    fast = slow = 0
    for t in range(40):
        decision = policy.decide(environment.observe(t, "react")).copy()
        assert (decision >= 0).all()
        if t >= 5:  # by then every machine has been seen
            fast += int((decision[[0, 2, 4]] == 1).sum())
            slow += int((decision[[1, 3, 5]] == 1).sum())
        policy.learn(environment.step(t, decision).feedback)
    assert fast > 25
    assert slow == 0


@pytest.mark.full
def test_on_one_machine_draws_that_cannot_be_paid_are_handed_on():
    total, busy = {}, {}
    for name in ("plan", "utility-per-price", "fair"):
        runs = [
            simulate(
                create_scenario("opm-default-v1:machines=1,slots=400").instance(seed),
                create_policy(name),
                400,
                seed,
            )
            for seed in range(6)
        ]
        total[name] = sum(run.rewards.sum() for run in runs)
        busy[name] = sum(run.metrics["busy"].sum() for run in runs)
    assert total["plan"] > 1.04 * total["fair"]  # 0.93 of it when they are lost
    assert total["plan"] > 0.98 * total["utility-per-price"]
    assert busy["plan"] > 0.95 * busy["utility-per-price"]  # two thirds of it when they are lost
