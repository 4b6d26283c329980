"""Reward and gradient against the plain twin, finite differences and hand cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangwise.core.errors import InfeasibleDecision, ScenarioError, UnknownName
from gangwise.papers.gain_overhead.policies import Ascent, project
from gangwise.papers.gain_overhead.problem import (
    LINEAR,
    LOG,
    POLY,
    RECIPROCAL,
    GainOverheadFamily,
    Utilities,
    Utility,
)
from tests.conftest import tiny
from tests.reference.gain_overhead import Plain


@pytest.mark.parametrize(
    ("utility", "alpha", "y", "expected"),
    [(LINEAR, 1.2, 5, 6.0), (LOG, 1, math.e - 1, 1.0), (RECIPROCAL, 2, 2, 0.25), (POLY, 1, 3, 1.0)],
)
def test_utility_values(utility, alpha, y, expected):
    """OGASched (7)."""
    a = np.array([float(alpha)])
    assert utility.value(np.array([float(y)]), a)[0] == pytest.approx(expected, abs=1e-12)
    assert utility.value(np.zeros(1), a)[0] == 0.0


@pytest.mark.parametrize(
    ("utility", "alpha", "y", "expected", "bound"),
    [
        (LINEAR, 2, 3, 2, 2),
        (LOG, 1, 3, 0.25, 1),
        (RECIPROCAL, 2, 2, 1 / 16, 0.25),
        (POLY, 1, 3, 0.25, 0.5),
    ],
)
def test_utility_slopes_and_bounds(utility, alpha, y, expected, bound):
    """OGASched (8), OGASched (27)."""
    a = np.array([float(alpha)])
    assert utility.slope(np.array([float(y)]), a)[0] == pytest.approx(expected, abs=1e-12)
    assert utility.bound(a)[0] == pytest.approx(bound)


def test_hand_case_of_two_servers_and_two_device_types():
    """OGASched (2)."""
    problem = tiny([[4.0, 4.0]], [[4.0, 4.0]] * 2, beta=[0.5, 0.4])
    y = np.array([[1.0, 3.0], [2.0, 2.0]])
    reward = problem.reward([1], y)
    assert (reward.reward, reward.gain, reward.overhead) == (6.0, 8.0, 2.0)
    state = Ascent(problem, y)
    squared = state.slope(np.ones(1), np.ones(1, dtype=np.int64))
    np.testing.assert_allclose(state.gradient, [[1.0, 0.6], [1.0, 0.6]])
    assert squared == pytest.approx(2 * (1 + 0.36))


def drawn(seed):
    rng = np.random.default_rng(seed)
    problem = GainOverheadFamily().fuzz(rng).problem
    y = project(problem, rng.uniform(0, 8, problem.shape))
    return rng, problem, y, rng.integers(0, 2, problem.L)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_reward_and_gradient_agree_with_the_plain_twin(seed):
    """OGASched (5)."""
    _, problem, y, x = drawn(seed)
    plain = Plain(problem)
    assert problem.reward(x, y).reward == pytest.approx(
        plain.reward(x, plain.of_array(y)), abs=1e-9
    )
    state = Ascent(problem, y)
    state.slope(x.astype(float), x)
    expected = plain.gradient(x, plain.of_array(y))
    got = plain.of_array(state.gradient)
    for place, g in expected.items():
        assert got[place] == pytest.approx(g, abs=1e-10)


def test_gradient_is_the_derivative_where_there_is_one():
    """OGASched (9)."""
    for seed in range(12):
        rng, problem, y, x = drawn(seed)
        weighted = np.sort(problem.overhead * Ascent(problem, y).total, axis=1)
        if problem.shape[1] > 1 and (weighted[:, -1] - weighted[:, -2] < 1e-3).any():
            continue  # the maximum has a kink nearby
        plain, h = Plain(problem), 1e-6
        state = Ascent(problem, y + h)
        state.slope(x.astype(float), x)
        for e in rng.integers(0, problem.shape[0], 5):
            for k in range(problem.shape[1]):
                up, down = y + h, y + h
                up[e, k] += h
                down[e, k] -= h
                slope = (
                    plain.reward(x, plain.of_array(up)) - plain.reward(x, plain.of_array(down))
                ) / (2 * h)
                assert state.gradient[e, k] == pytest.approx(slope, abs=1e-4)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_reward_is_concave_and_the_gradient_a_supergradient(seed):
    rng, problem, y, x = drawn(seed)
    w = project(problem, rng.uniform(-4, 8, problem.shape))
    state = Ascent(problem, y)
    state.slope(x.astype(float), x)
    above = problem.reward(x, y).reward + float((state.gradient * (w - y)).sum())
    assert problem.reward(x, w).reward <= above + 1e-9


def test_softmax_prices_sum_to_a_mean_of_the_overhead_coefficients():
    """OGASched (10)."""
    problem = tiny([[4.0, 4.0]], [[4.0, 4.0]], beta=[0.5, 0.4])
    state = Ascent(problem, np.array([[1.0, 3.0]]))
    one = np.ones(1, dtype=np.int64)
    state.slope(np.ones(1), one, smoothing=0.1)
    share = math.exp((0.5 / 1.2 - 1) / 0.1)
    np.testing.assert_allclose(
        state.price, [[0.5 * share / (1 + share), 0.4 / (1 + share)]], rtol=1e-12
    )
    state.slope(np.ones(1), one, smoothing=0.0)
    np.testing.assert_array_equal(state.price, [[0.0, 0.4]])


def test_a_utility_of_ones_own_counts_like_a_built_in_one():
    mine = Utility("mine", lambda y, a: a * np.log1p(y), lambda y, a: a / (1 + y))
    one, other = (
        tiny([[4.0, 4.0]] * 2, [[6.0, 5.0]] * 3, kind=kind, alpha=1.3) for kind in (LOG, mine)
    )
    assert one.utilities.kind.max() == 1
    assert other.utilities.kind.min() == 4
    y = project(one, np.random.default_rng(0).uniform(0, 4, one.shape))
    for x in ([1, 1], [0, 1]):
        assert other.reward(x, y).reward == pytest.approx(one.reward(x, y).reward, abs=1e-12)
        a, b = Ascent(one, y), Ascent(other, y)
        weight = np.array(x, dtype=float)
        assert a.slope(weight, np.array(x)) == pytest.approx(b.slope(weight, np.array(x)))
        np.testing.assert_allclose(a.gradient, b.gradient)


@pytest.mark.parametrize(
    ("value", "slope", "problem"),
    [
        (lambda y, a: a * y**2, lambda y, a: 2 * a * y, "concave"),
        (lambda y, a: a * y + 1, lambda y, a: a + 0 * y, "start at zero"),
        (lambda y, a: -a * y, lambda y, a: -a + 0 * y, "decrease"),
        (lambda y, a: a * np.sqrt(y), lambda y, a: a / (2 * np.sqrt(y)), "finite"),
        (lambda y, a: 3 * a * y, lambda y, a: a + 0 * y, "derivative"),
        (lambda y, a: 1.0, lambda y, a: 1.0, "elementwise"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_utilities_that_break_a_requirement_are_refused(value, slope, problem):
    with pytest.raises(ScenarioError, match=problem):
        Utility("broken", value, slope)


def test_unknown_utilities_are_named():
    with pytest.raises(UnknownName, match="mean"):
        Utilities.of("lg", [[1.0]])


@pytest.mark.parametrize("bad", [-1e-3, 4.001, np.nan, np.inf])
def test_values_out_of_range_are_refused(bad):
    """OGASched (3)."""
    problem = tiny([[4.0, 4.0]], [[9.0, 9.0]])
    with pytest.raises(InfeasibleDecision, match="slot 7"):
        problem.reward([1], np.array([[1.0, bad]]), slot=7)


def test_capacity_counts_reservations_of_absent_job_types_too():
    """OGASched (4)."""
    problem = tiny([[4.0], [4.0]], [[5.0]])
    with pytest.raises(InfeasibleDecision, match="'server-0'"):
        problem.reward([1, 0], np.array([[3.0], [3.0]]))
    with pytest.raises(InfeasibleDecision, match="shape"):
        problem.reward([1, 0], np.zeros((3, 1)))
