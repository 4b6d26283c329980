"""The primal step, its projection (P4), and the random rounding."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise.papers.approximation_jobs import kernels
from gangwise.papers.approximation_jobs.policies import PrimalDual
from tests.reference import approximation_jobs as plain

HAND = [  # NOTES: worked by hand
    ((0.9, 0.6, -0.2), (0.65, 0.35, 0.0)),
    ((0.3, 0.4, 0.1), (0.3, 0.4, 0.1)),
    ((2.0, 0.5, 0.1), (1.0, 0.0, 0.0)),
    ((1.2, 0.9, 0.6), (19 / 30, 1 / 3, 1 / 30)),
]


def p4(y, exact):
    """Project the columns of y [J, M] with the step kernel."""
    y = np.array(y, dtype=float)
    state = PrimalDual(np.ones(y.shape[1]), exact)
    for j, row in enumerate(y):
        state.add(j, row)
    zero = np.zeros(len(y))
    state.climb(zero, zero, np.ones(y.shape[1]), 1.0, np.ones(y.shape[1], dtype=bool))
    return state.shares[: len(y)].copy(), state


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("y", "expected"), HAND)
def test_hand_cases(y, expected, exact):
    x, _ = p4(np.array(y)[:, None], exact)
    np.testing.assert_allclose(x[:, 0], expected, atol=1e-12)


@pytest.mark.parametrize("exact", [False, True])
def test_projection_is_that_of_bisection(exact):
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 7, 40):
        y = rng.normal(0, 1, (n, 300)) * rng.choice([0.01, 1, 100], 300)
        y[:, :20] = np.round(y[:, :20])  # ties
        x, state = p4(y, exact)
        expected = np.array([plain.project(list(column)) for column in y.T]).T
        np.testing.assert_allclose(x, expected, atol=1e-9)
        assert (x >= 0).all()
        assert (x.sum(axis=0) <= 1 + 1e-9).all()
        np.testing.assert_allclose(state.total, x.sum(axis=0), atol=1e-12)
        np.testing.assert_allclose(state.spend[:n], x.sum(axis=1), atol=1e-10)


def test_projection_solves_p4():
    """OPM (P4)."""
    cvxpy = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(1)
    y = rng.normal(0.3, 0.5, (6, 8))
    z = cvxpy.Variable(y.shape, nonneg=True)
    constraint = [cvxpy.sum(z, axis=0) <= 1]
    cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(z - y)), constraint).solve(solver="CLARABEL")
    np.testing.assert_allclose(p4(y, False)[0], z.value, atol=2e-6)


def test_projection_is_idempotent_and_blind_to_a_common_shift():
    y = np.random.default_rng(2).normal(0.5, 0.5, (5, 200))
    once, state = p4(y, False)
    twice, _ = p4(once, False)
    np.testing.assert_allclose(twice, once, atol=1e-12)
    binding = state.tau > 0
    assert binding.sum() > 50
    shifted, _ = p4(y + 0.7, False)
    np.testing.assert_allclose(shifted[:, binding], once[:, binding], atol=1e-12)


@pytest.mark.parametrize("start", [0.0, 0.5, 1e6])
def test_newton_finds_the_same_from_wherever_it_starts(start):
    rng = np.random.default_rng(3)
    y = rng.normal(0, 1, (30, 150))
    expected = np.array([plain.project(list(column)) for column in y.T]).T
    state = PrimalDual(np.ones(150))
    for j, row in enumerate(y):
        state.add(j, row)
    state.tau[:] = start
    zero = np.zeros(30)
    state.climb(zero, zero, np.ones(150), 1.0, np.ones(150, dtype=bool))
    np.testing.assert_allclose(state.shares[:30], expected, atol=1e-9)


def test_step_follows_the_plain_one_along_a_trajectory():
    """OPM (69)."""
    rng = np.random.default_rng(4)
    M, J, alpha = 70, 9, 0.2
    prices = rng.uniform(0.2, 1.4, M)
    state, x = PrimalDual(prices), np.zeros((J, M))
    for j in range(J):
        state.add(j)
    for _ in range(30):
        slopes, multipliers, rates = rng.uniform(0, 3, J), rng.uniform(0, 2, J), rng.random(M)
        state.climb(slopes, multipliers, rates, alpha, np.ones(M, dtype=bool))
        y = x + alpha * (slopes[:, None] * rates - multipliers[:, None] * prices)
        x = np.array([plain.project(list(column)) for column in y.T]).T
        np.testing.assert_allclose(state.shares[:J], x, atol=1e-10)
        np.testing.assert_allclose(state.spend[:J], x @ prices, atol=1e-9)


def test_a_machine_that_is_away_gets_nothing_and_starts_from_nothing():
    state = PrimalDual(np.ones(3))
    state.add(0, 0.5)
    there = np.array([True, False, True])
    state.climb(np.ones(1), np.zeros(1), np.ones(3), 0.1, there)
    np.testing.assert_allclose(state.shares[0], [0.6, 0.0, 0.6])
    assert state.spend[0] == pytest.approx(1.2)
    state.climb(np.ones(1), np.zeros(1), np.ones(3), 0.1, np.ones(3, dtype=bool))
    np.testing.assert_allclose(state.shares[0], [0.7, 0.1, 0.7])


def test_fresh_draw_by_hand():
    """OPS (21)."""
    x = np.array([[0.3] * 3, [0.5] * 3])
    holder = np.full(3, -1, np.int64)
    kernels.sample_fresh(x, 2, np.array([0.29, 0.79, 0.81]), np.zeros(kernels.STRIPE), holder)
    assert holder.tolist() == [0, 1, -1]


def coupled(old, new, holder, u, again):
    old, new = (np.array(x, dtype=float, order="C") for x in (old, new))
    holder = np.array(holder, dtype=np.int64)
    kernels.sample_coupled(
        old, old.sum(axis=0), new, new.sum(axis=0), len(old), np.array(u), np.array(again), holder
    )
    return holder


def test_coupled_draw_by_hand():
    holder = coupled([[0.4, 0.4]], [[0.2, 0.2]], [0, 0], [0.49, 0.51], [0.5, 0.5])
    assert holder.tolist() == [0, -1]


def test_coupled_draw_is_the_plain_one():
    rng = np.random.default_rng(5)
    M, J = 500, 6
    old, new = rng.dirichlet(np.ones(J + 1), M).T[:J], rng.dirichlet(np.ones(J + 1), M).T[:J]
    holder = np.array([plain.draw(old[:, i], u) for i, u in enumerate(rng.random(M))])
    u, again = rng.random(M), rng.random(M)
    expected = [plain.couple(old[:, i], new[:, i], holder[i], u[i], again[i]) for i in range(M)]
    assert coupled(old, new, holder, u, again).tolist() == expected


def test_coupled_draws_have_the_right_law_and_change_as_little_as_can_be():
    rng = np.random.default_rng(6)
    M, old, new = 200_000, [0.5, 0.2, 0.1], [0.3, 0.35, 0.05]
    wide = [np.tile(np.array(x)[:, None], M) for x in (old, new)]
    before = np.full(M, -1, np.int64)
    kernels.sample_fresh(wide[0], 3, rng.random(M), np.zeros(kernels.STRIPE), before)
    after = coupled(*wide, before, rng.random(M), rng.random(M))
    frequency = np.array([(after == j).mean() for j in range(3)])
    assert np.abs(frequency - new).max() < 5 * np.sqrt(0.25 / M)
    variation = 0.5 * (np.abs(np.subtract(new, old)).sum() + abs(0.3 - 0.2))
    assert (after != before).mean() == pytest.approx(variation, abs=5 * np.sqrt(0.25 / M))


@pytest.mark.parametrize("couple", [False, True])
def test_long_runs_of_draws_are_unbiased(couple):
    # Jobs come and go and shares move; on average each job holds what its shares add up to.
    """OPS (22), OPM (72)."""
    rng = np.random.default_rng(7)
    M = 400
    state = PrimalDual(np.ones(M))
    held, due = 0.0, 0.0
    for t in range(150):
        if t % 10 == 0:
            state.add(t)
        if t % 10 == 5 and t > 30:
            state.remove(t - 35)
        slopes = rng.uniform(0, 1, state.n)
        state.climb(slopes, 0.4 + np.zeros(state.n), rng.random(M), 0.3, rng.random(M) < 0.97)
        rows = state.draw(rng, couple)
        target = state.rows[0]
        held += (rows == target).sum()
        due += state.shares[0].sum()
        assert (state.shares[: state.n].sum(axis=0) <= 1 + 1e-9).all()
        assert set(rows[rows >= 0]) <= set(state.rows[: state.n])
    assert held == pytest.approx(due, rel=0.05)


def test_a_job_that_leaves_takes_its_share_along():
    state = PrimalDual(np.ones(2))
    for row, share in ((7, 0.1), (3, 0.2), (9, 0.4)):
        state.add(row, share)
    state.holder[:] = [0, 2]
    state.remove(7)
    assert state.rows[:2].tolist() == [9, 3]
    np.testing.assert_allclose(state.shares[:2], [[0.4, 0.4], [0.2, 0.2]])
    np.testing.assert_allclose(state.total, 0.6)
    assert state.holder.tolist() == [-1, 0]
    state.remove(7)  # once is enough
    assert state.n == 2


@pytest.mark.parametrize(("kind", "shape"), [(0, 0.5), (0, 0.8), (0, 1.0), (1, 3.0), (2, 4.0)])
def test_utilities_of_kernels_are_the_plain_ones(kind, shape):
    for work in (0.01, 1.0, 250.0):
        assert kernels.value(kind, 2.0, shape, work) == pytest.approx(
            plain.value(kind, 2.0, shape, work), rel=1e-12
        )
        assert kernels.slope(kind, 2.0, shape, work) == pytest.approx(
            plain.slope(kind, 2.0, shape, work), rel=1e-12
        )
