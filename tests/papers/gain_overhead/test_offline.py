"""The offline comparators against cvxpy, hand cases and what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gangwise import create_policy, create_scenario, simulate
from gangwise.papers.gain_overhead.offline import best_fixed, per_slot_optimum, solve
from gangwise.papers.gain_overhead.policies import project
from gangwise.papers.gain_overhead.problem import LOG, GainOverheadFamily, Utility
from tests.conftest import tiny


def test_hand_case():
    solution = solve(tiny([[10.0]], [[10.0]], beta=0.25, kind="log"), [1])
    assert solution.decision[0, 0] == pytest.approx(3.0, abs=2e-3)
    assert solution.value == pytest.approx(math.log(4) - 0.75, abs=1e-6)
    assert solution.bound == pytest.approx(math.log(4) - 0.75, abs=2e-6)


def by_cvxpy(problem, weight):
    """The programme stated plainly."""
    import cvxpy as cp

    y = cp.Variable(problem.shape, nonneg=True)
    l, r = problem.channels.job_type, problem.channels.server
    K = problem.shape[1]
    gain = 0
    for e in range(problem.shape[0]):
        for k in range(K):
            kind, a = problem.utilities.kind[r[e], k], problem.utilities.alpha[r[e], k]
            v = y[e, k]
            f = [a * v, a * cp.log(1 + v), 1 / a - cp.inv_pos(v + a), a * (cp.sqrt(v + 1) - 1)]
            gain += weight[l[e]] * f[kind]
    overhead = 0
    for m in range(problem.L):
        rows = np.flatnonzero(l == m)
        total = cp.multiply(problem.overhead, cp.sum(y[rows], axis=0))
        overhead += weight[m] * cp.max(total)
    limits = [y <= problem.requests[l]]
    for s in range(len(problem.cluster.servers)):
        rows = np.flatnonzero(r == s)
        if rows.size:
            limits.append(cp.sum(y[rows], axis=0) <= problem.cluster.capacity[s])
    task = cp.Problem(cp.Maximize(gain - overhead), limits)
    task.solve(solver=cp.CLARABEL)
    assert task.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)
    return task.value


def test_agrees_with_cvxpy_and_the_certificate_holds():
    """OGASched (6)."""
    for seed in range(8):
        rng = np.random.default_rng([7, seed])
        problem = GainOverheadFamily().fuzz(rng).problem
        weight = rng.integers(0, 4, problem.L).astype(float)
        solution = solve(problem, weight)
        expected = by_cvxpy(problem, weight) if weight.any() else 0.0
        scale = 1 + abs(expected)
        assert solution.value == pytest.approx(expected, abs=5e-6 * scale)
        assert solution.bound >= expected - 1e-6 * scale
        assert solution.gap <= 1e-5 * scale
        project_again = project(problem, solution.decision)
        np.testing.assert_allclose(project_again, solution.decision, atol=1e-9)


@pytest.mark.parametrize("utility", ["mixed", "linear", "log", "poly", "reciprocal"])
@pytest.mark.parametrize("name", ["ogasched-default-v1", "ogasched-authors-v1"])
def test_gap_is_certified_at_the_papers_size(name, utility):
    instance = create_scenario(name, utility=utility).instance(0)
    arrivals = instance.arrivals(500, 0)
    for weight in (arrivals[0], arrivals.sum(axis=0)):
        solution = solve(instance.problem, weight)
        assert solution.gap <= 1e-5 * abs(solution.value)


def test_no_feasible_decision_beats_the_bound():
    for seed in range(8):
        rng = np.random.default_rng([9, seed])
        problem = GainOverheadFamily().fuzz(rng).problem
        weight = rng.integers(0, 3, problem.L).astype(float)
        bound = solve(problem, weight).bound
        for _ in range(30):
            y = project(problem, rng.uniform(-3, 10, problem.shape))
            each = [problem.reward(np.eye(problem.L)[l], y).reward for l in range(problem.L)]
            assert weight @ each <= bound + 1e-9


def test_rewards_of_a_fixed_decision_add_up():
    instance = create_scenario("ogasched-default-v1", servers=20, job_types=4).instance(1)
    arrivals = instance.arrivals(50, 1)
    y = project(instance.problem, np.full(instance.problem.shape, 3.0))
    slot_by_slot = sum(instance.problem.reward(x, y).reward for x in arrivals)
    each = [instance.problem.reward(np.eye(4)[l], y).reward for l in range(4)]
    assert slot_by_slot == pytest.approx(float(arrivals.sum(axis=0) @ each))
    fixed = best_fixed(instance.problem, arrivals)
    assert fixed.rewards.sum() + fixed.gap >= slot_by_slot
    assert fixed.rewards.shape == (50,)


def test_the_comparators_are_ordered():
    instance = create_scenario("ogasched-default-v1", servers=20, job_types=4).instance(2)
    fixed = instance.comparator("best_fixed", 80, 2)
    optimum = instance.comparator("per_slot_optimum", 80, 2)
    assert (optimum.rewards >= fixed.rewards - 1e-5 * (1 + fixed.rewards)).all()
    run = simulate(instance, create_policy("ogasched-reserve"), 80, 2)
    assert run.regret("per_slot_optimum") > run.regret("best_fixed")


def test_a_sample_of_slots_gives_the_same_rewards_on_these_slots():
    instance = create_scenario("ogasched-default-v1", servers=20, job_types=4).instance(2)
    every = instance.comparator("per_slot_optimum", 80, 2)
    some = instance.comparator("per_slot_optimum", 80, 2, sample=9)
    assert some.slots.tolist() == [0, 10, 20, 30, 40, 49, 59, 69, 79]
    np.testing.assert_array_equal(some.rewards, every.rewards[some.slots])


def test_a_utility_of_ones_own_has_comparators_too():
    mine = Utility("mine", lambda y, a: a * np.log1p(y), lambda y, a: a / (1 + y))
    requests, capacity = [[5.0, 2.0], [3.0, 4.0]], [[6.0, 3.0], [2.0, 5.0]]
    values = [
        solve(tiny(requests, capacity, beta=[0.3, 0.2], kind=kind), [2, 3]).value
        for kind in (LOG, mine)
    ]
    assert values[0] == pytest.approx(values[1], rel=3e-6)


def test_edges():
    problem = tiny([[4.0], [8.0]], [[6.0]])
    assert solve(problem, [0, 0]).value == 0.0
    nothing = tiny([[4.0]], [[0.0]])
    assert solve(nothing, [1]).value == 0.0
    free = solve(tiny([[4.0]], [[6.0]], beta=0.0), [1])
    assert free.value == pytest.approx(4.0, rel=1e-5)
    costly = solve(tiny([[4.0]], [[6.0]], beta=2.0), [1])
    assert costly.value == pytest.approx(0.0, abs=1e-5)
    assert per_slot_optimum(problem, np.zeros((3, 2), dtype=np.int64)).rewards.tolist() == [0.0] * 3


def test_the_best_fixed_decision_weighs_every_slot():
    # Three slots of one job type and, last of all, one of the other, sharing six devices: with
    # 3 ln(1 + y) + ln(1 + z) the shares are 1 + y = 3 (1 + z).
    problem = tiny([[9.0], [9.0]], [[6.0]], beta=0.0, kind="log")
    for arrivals in ([[1, 0]] * 3 + [[0, 1]], [[0, 1]] + [[1, 0]] * 3):
        found = best_fixed(problem, np.array(arrivals))
        each = [3 * math.log(6) / 3, math.log(2)]
        np.testing.assert_allclose(
            found.rewards, [each[0] if x[0] else each[1] for x in arrivals], rtol=1e-5
        )
    # As many of either, one after the other: equal shares.
    found = best_fixed(problem, np.array([[1, 0]] * 5 + [[0, 1]] * 5))
    np.testing.assert_allclose(found.rewards, math.log(4), rtol=1e-5)
