"""Rounding: exactly, by walking the whole tree of random choices, and by drawing often."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from gangwise import ScenarioError
from gangwise.approximation_jobs.general import IMPOSSIBLE, plan_capacity, round_dependent, rounded


def check(tasks, plan, demand):
    """What every single draw must keep to."""
    parallel, crowd = plan.sum(axis=1), plan.sum(axis=0)
    for got, mean in ((tasks.sum(axis=1), parallel), (tasks.sum(axis=0), crowd)):
        assert (got >= np.floor(mean + 1e-9)).all()
        assert (got <= np.ceil(mean - 1e-9)).all()
    fractional = (plan > 0) & (plan < 1)
    largest = np.where(fractional, demand[:, None], 0).max(axis=0)
    assert (demand @ tasks <= demand @ plan + largest + 1e-12).all()
    assert tasks[plan == 1].all()
    assert not tasks[plan == 0].any()


def expectation(plan, demand):
    """E[x̃] by enumeration: cycles go up where the uniform number is 0, down where it is 1."""
    mean, total, leaves = np.zeros(plan.shape), 0.0, 0
    stack = [()]
    while stack:
        choices = stack.pop()
        uniforms = np.ones(200)
        uniforms[: len(choices)] = [0.0 if up else 1.0 for up in choices]
        tasks, chances = rounded(plan, demand, uniforms)
        if len(choices) < chances.size:
            stack += [(*choices, True), (*choices, False)]
            assert 0 < chances[len(choices)] < 1
            continue
        check(tasks, plan, demand)
        weight = np.prod([c if up else 1 - c for up, c in zip(choices, chances)])
        mean, total, leaves = mean + weight * tasks, total + weight, leaves + 1
    assert total == pytest.approx(1, abs=1e-12)
    return mean, leaves


@pytest.mark.parametrize("seed", range(12))
def test_the_mean_is_the_plan_exactly(seed):
    rng = np.random.default_rng(seed)
    J, M = [(2, 2), (3, 3), (2, 4), (4, 2)][seed % 4]
    plan = rng.random((J, M))
    if seed % 3 == 0:  # tenths: many sums are whole
        plan = np.round(plan, 1)
    plan[rng.random((J, M)) < 0.2] = rng.integers(0, 2)
    demand = rng.uniform(0.1, 1, J) if seed % 2 else np.full(J, 0.5)
    mean, leaves = expectation(plan, demand)
    assert np.abs(mean - plan).max() < 2e-12  # 2⁻⁴⁰ is 9e-13
    assert 1 <= leaves <= 4096


def test_draws_of_a_larger_plan():
    rng = np.random.default_rng(0)
    J, M, draws = 12, 20, 4000
    plan = np.where(rng.random((J, M)) < 0.5, rng.random((J, M)) ** 2, 0.0)
    demand = rng.uniform(0.1, 0.9, J)
    total = np.zeros((J, M))
    for _ in range(draws):
        tasks = round_dependent(plan, demand, rng)
        check(tasks, plan, demand)
        total += tasks
    error = np.sqrt(plan * (1 - plan) / draws)
    z = np.abs(total / draws - plan)[plan > 0] / error[plan > 0]
    assert z.max() < 4.5
    assert 0.7 < np.sqrt((z**2).mean()) < 1.3


def test_the_same_generator_gives_the_same_tasks():
    plan = np.random.default_rng(1).random((5, 6))
    first, again = (round_dependent(plan, np.ones(5), np.random.default_rng(3)) for _ in range(2))
    assert np.array_equal(first, again)
    others = [round_dependent(plan, np.ones(5), np.random.default_rng(s)) for s in range(9)]
    assert any(not np.array_equal(first, other) for other in others)


def test_whole_plans_stay_as_they_are():
    plan = np.eye(4)
    assert np.array_equal(round_dependent(plan, np.ones(4), np.random.default_rng(0)), plan == 1)
    assert round_dependent(np.zeros((0, 3)), [], np.random.default_rng(0)).shape == (0, 3)
    with pytest.raises(ScenarioError, match="lies in"):
        round_dependent([[1.5]], [1.0], np.random.default_rng(0))


def test_what_the_paper_asks_for_does_not_exist():
    """The plan keeps (102), and is the mean of no mixture of integral points that do."""
    r, C, plan = IMPOSSIBLE["demand"], IMPOSSIBLE["capacity"], np.array(IMPOSSIBLE["plan"])
    assert np.dot(r, plan) <= C + 1e-12
    points = [p for p in product((0, 1), repeat=2) if np.dot(r, p) <= C]
    assert points == [(0, 0), (0, 1), (1, 0)]
    equal = np.vstack([np.array(points).T, np.ones(3)])
    answer = linprog(np.zeros(3), A_eq=equal, b_eq=[*plan, 1.0], bounds=(0, None))
    assert answer.status == 2  # infeasible
    half = linprog(np.zeros(3), A_eq=equal, b_eq=[*(plan * 0.6), 1.0], bounds=(0, None))
    assert half.status == 0  # so it is the plan, not the way of asking
    tasks = [round_dependent(plan[:, None], r, np.random.default_rng(s)) for s in range(200)]
    load = np.array([np.dot(r, t[:, 0]) for t in tasks])
    assert load.max() == pytest.approx(1.2)  # unbiased, so it must break (102) sometimes
    assert load.mean() == pytest.approx(1.0, abs=0.1)


def test_planned_capacities_are_kept_after_rounding():
    assert plan_capacity([1.7, 1.0], [0.5, 0.5]).tolist() == [1.5, 1.0]
    assert plan_capacity([1.7, 1.0], [0.5, 0.3]) == pytest.approx([1.2, 0.5])
    # A task of 0.9 does not fit the second, whose own tasks are equal; nothing fits the last.
    assert plan_capacity([2.0, 0.7, 0.2], [0.9, 0.3, 0.3]) == pytest.approx([1.1, 0.6, 0.0])
    rng = np.random.default_rng(3)
    for case in range(60):
        J, M = 6, 4
        demand = rng.uniform(0.1, 1, J) if case % 2 else np.full(J, rng.uniform(0.1, 0.6))
        C = rng.uniform(0.3, 2, M)
        planned = plan_capacity(C, demand)
        plan = np.where(demand[:, None] <= C, rng.random((J, M)), 0.0)
        plan *= np.minimum(1, planned / np.maximum(demand @ plan, 1e-12))
        tasks = round_dependent(plan, demand, rng)
        assert (demand @ tasks <= C * (1 + 1e-9)).all()
