"""The exact projection against cvxpy, bisection, its optimality conditions and hand cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangwise.papers.gain_overhead.policies import Ascent, project, project_as_printed
from gangwise.papers.gain_overhead.problem import GainOverheadFamily
from tests.conftest import tiny
from tests.reference.gain_overhead import Plain, project_block, project_block_as_printed

HAND = [  # z, a, c, projection
    ((1, 1), (5, 5), 10, (1, 1)),
    ((10, 9, 1), (4, 4, 4), 9, (4, 4, 1)),
    ((10, 9), (100, 1), 15, (10, 1)),
    ((3,), (1,), 2, (1,)),
    ((8, 6), (5, 4), 7, (4.5, 2.5)),
    ((-1, 5), (3, 3), 2, (0, 2)),
    ((7, 7, 1), (9, 9, 9), 6, (3, 3, 0)),
    ((7, 7, 1), (9, 9, 9), 0, (0, 0, 0)),
    ((2, 2, 2, 2), (9, 9, 9, 9), 4, (1, 1, 1, 1)),
]


def block(z, a, c, f=project):
    """Project one server and device type. A second device type carries the request of nothing."""
    a = np.array(a, dtype=float)
    requests = np.column_stack((a, np.ones_like(a)))
    problem = tiny(requests, [[float(c), 1.0]])
    full = np.column_stack((np.array(z, dtype=float), np.zeros(len(a))))
    return f(problem, full)[:, 0]


@pytest.mark.parametrize(("z", "a", "c", "expected"), HAND)
def test_hand_cases(z, a, c, expected):
    np.testing.assert_allclose(block(z, a, c), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("z", "a", "c", "printed"),
    [
        ((1, 1), (5, 5), 10, (5, 5)),
        ((10, 9, 1), (4, 4, 4), 9, (4, 5, 0)),
        ((10, 9), (100, 1), 15, (8, 7)),
    ],
)
def test_the_printed_projection_errs_where_documented(z, a, c, printed):
    """OGASched (13)."""
    np.testing.assert_allclose(block(z, a, c, project_as_printed), printed, atol=1e-12)


def random_blocks(rng, count, n):
    """Blocks with ties, zero requests, zero capacity, slack capacity and huge entries."""
    z = rng.normal(0, 6, (count, n))
    ties = rng.random(count) < 0.3
    z[ties] = np.round(z[ties] / 4) * 4
    a = rng.uniform(0, 6, (count, n)) * (rng.random((count, n)) < 0.85)
    a[rng.random(count) < 0.2] = 3.0
    c = rng.uniform(0, 3 * n, count) * (rng.random(count) < 0.85)
    return z, a, c


def test_agrees_with_cvxpy_on_hundreds_of_cases():
    """OGASched (12)."""
    import cvxpy as cp

    rng = np.random.default_rng(20261121)
    checked = 0
    for n in (1, 2, 3, 4, 7, 12):
        z, a, c = random_blocks(rng, 30, n)
        y = cp.Variable((30, n))
        task = cp.Problem(
            cp.Minimize(cp.sum_squares(y - z)), [y >= 0, y <= a, cp.sum(y, axis=1) <= c]
        )
        task.solve(solver=cp.OSQP, eps_abs=1e-10, eps_rel=1e-10, max_iter=200_000, polishing=True)
        assert task.status == cp.OPTIMAL
        for i in range(30):
            np.testing.assert_allclose(block(z[i], a[i], c[i]), y.value[i], atol=1e-6)
            checked += 1
    assert checked == 180


def test_agrees_with_bisection_on_hundreds_of_cases():
    rng = np.random.default_rng(1)
    for n in (1, 2, 3, 5, 9, 30):
        z, a, c = random_blocks(rng, 100, n)
        for i in range(100):
            np.testing.assert_allclose(
                block(z[i], a[i], c[i]), project_block(z[i], a[i], c[i]), atol=1e-9
            )


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_whole_problems_agree_with_the_plain_twin(seed):
    rng = np.random.default_rng(seed)
    problem = GainOverheadFamily().fuzz(rng).problem
    plain = Plain(problem)
    z = rng.normal(0, 8, problem.shape)
    expected, got = plain.project(plain.of_array(z)), plain.of_array(project(problem, z))
    assert expected.keys() == got.keys()
    for place, v in expected.items():
        assert got[place] == pytest.approx(v, abs=1e-9)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_whole_problems_are_projected_as_printed(seed):
    rng = np.random.default_rng(seed)
    problem = GainOverheadFamily().fuzz(rng).problem
    z = rng.normal(0, 8, problem.shape)
    z[rng.random(problem.shape) < 0.2] = 3.0  # ties
    printed = project_as_printed(problem, z)
    for r, k in np.ndindex(problem.cluster.capacity.shape):
        rows = slice(problem.channels.starts[r], problem.channels.starts[r + 1])
        a = problem.requests[problem.channels.job_type[rows], k]
        expected = project_block_as_printed(z[rows, k], a, problem.cluster.capacity[r, k])
        np.testing.assert_allclose(printed[rows, k], expected, atol=1e-9)


finite = st.floats(-50, 50, allow_nan=False)


@given(
    st.lists(st.tuples(finite, st.floats(0, 20), finite), min_size=1, max_size=8), st.floats(0, 60)
)
def test_properties(entries, c):
    z, a, w = (np.array(column) for column in zip(*entries))
    y, other = block(z, a, c), block(w, a, c)
    slack = 1e-9 * (1 + c + np.abs(z).max() + np.abs(w).max())
    assert (y >= 0).all()
    assert (y <= a + slack).all()
    assert y.sum() <= c + slack
    np.testing.assert_allclose(block(y, a, c), y, atol=slack)  # idempotent
    assert np.linalg.norm(y - other) <= np.linalg.norm(z - w) + slack  # non-expansive
    assert (z - y) @ (other - y) <= slack * (1 + np.abs(z).sum())  # variational inequality
    order = np.argsort(-a, kind="stable")
    np.testing.assert_allclose(block(z[order], a[order], c), y[order], atol=slack)
    if np.clip(z, 0, a).sum() <= c:
        np.testing.assert_array_equal(y, np.clip(z, 0, np.minimum(a, c)))


def test_absent_job_types_keep_their_values_and_use_no_capacity():
    problem = tiny([[4.0], [4.0], [4.0]], [[5.0]])
    state = Ascent(problem, np.array([[3.0], [3.0], [2.0]]))
    state.climb(0.0, np.array([1, 0, 1]))
    np.testing.assert_allclose(state.y.ravel(), [3.0, 3.0, 2.0])  # 3 + 2 fit without the second
    state.climb(0.0, np.array([1, 1, 1]))
    np.testing.assert_allclose(state.y.ravel(), [2.0, 2.0, 1.0])
    np.testing.assert_allclose(state.total.ravel(), [2.0, 2.0, 1.0])
