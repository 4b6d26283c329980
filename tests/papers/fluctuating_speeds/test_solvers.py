"""Branch and bound against brute force; the properties that P3 must have."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangwise.core.errors import ScenarioError
from gangwise.papers.fluctuating_speeds.solver import P3Solver
from tests.papers.fluctuating_speeds.p3_cases import EXACT, default_size, random_instance, solve
from tests.reference import p3

CLOSE = {"rel": 1e-8, "abs": 1e-9}


def test_exact_finds_what_brute_force_finds():
    """ESDP (12)."""
    rng = np.random.default_rng(1)
    for _ in range(2000):
        v, s, a, c = random_instance(rng)
        solution = solve(v, s, a, c, **EXACT)
        best = p3.brute_force(v, s, a, c)
        assert p3.fits(a, c, solution.x)
        assert p3.worth(v, s, solution.x) == pytest.approx(solution.value, **CLOSE)
        assert solution.value == pytest.approx(best, **CLOSE)
        assert solution.bound >= best - 1e-9 * (1 + best)
        assert solution.proved


@pytest.mark.full
def test_larger_instances_against_brute_force():
    rng = np.random.default_rng(2)
    for _ in range(12):
        v, s, a, c = default_size(rng, E=15)
        assert solve(v, s, a, c).value == pytest.approx(p3.brute_force(v, s, a, c), rel=1e-9)


@pytest.mark.parametrize(("size", "count"), [(32, 6), (100, 1)])
def test_milp_agrees_where_brute_force_cannot_go(size, count):
    rng = np.random.default_rng(size)
    for _ in range(count):
        v, s, a, c = default_size(rng, E=size)
        v -= 0.2
        exact = solve(v, s, a, c, **EXACT)
        _, value, bound = p3.solve_milp(v, s, a, c)
        assert exact.proved
        assert exact.value == pytest.approx(value, rel=1e-7)
        assert bound >= exact.value * (1 - 1e-8)
        assert exact.bound >= value * (1 - 1e-9)


def test_milp_finds_what_brute_force_finds():
    rng = np.random.default_rng(3)
    for _ in range(80):
        v, s, a, c = random_instance(rng, most=7)
        x, value, _ = p3.solve_milp(v, s, a, c)
        assert p3.fits(a, c * (1 + 1e-9), x)
        assert value == pytest.approx(p3.brute_force(v, s, a, c), rel=1e-6, abs=1e-6)


def test_lagrangian_is_feasible_and_its_bound_holds():
    rng = np.random.default_rng(4)
    for _ in range(1000):
        v, s, a, c = random_instance(rng)
        solution = solve(v, s, a, c, nodes=0)
        best = p3.brute_force(v, s, a, c)
        assert p3.fits(a, c, solution.x)
        assert solution.value <= best + 1e-9 * (1 + best)
        assert solution.bound >= best - 1e-9 * (1 + best)
        assert solution.nodes == 0


def test_bounds_of_large_instances_are_narrow_and_hold():
    rng = np.random.default_rng(5)
    v, s, a, c = default_size(rng, E=2000)
    solution = solve(v, s, a, c)
    assert p3.fits(a, c, solution.x)
    assert solution.proved
    assert solution.bound <= solution.value * (1 + 1e-6)
    assert p3.worth(v, s, solution.x) == pytest.approx(solution.value, rel=1e-12)
    # Weak duality, evaluated here, at prices of its own: no bound of ours may be below a choice.
    greedy = np.zeros(2000, dtype=bool)
    left = c.copy()
    for e in np.argsort(-v / a.sum(axis=1)):
        if (a[e] <= left).all():
            greedy[e] = True
            left -= a[e]
    assert solution.value > p3.worth(v, s, greedy)


def test_a_node_limit_keeps_the_bound():
    rng = np.random.default_rng(6)
    stopped = 0
    for _ in range(30):
        v, s, a, c = default_size(rng, E=14)
        best = p3.brute_force(v, s, a, c)
        for nodes in (1, 3, 10):
            solution = solve(v, s, a, c, nodes=nodes)
            assert solution.nodes <= nodes
            assert solution.value <= best + 1e-9 <= solution.bound + 2e-9
            assert solution.proved == (solution.bound <= solution.value * (1 + 1e-9))
            stopped += not solution.proved
    assert stopped > 10


def test_channels_that_look_alike_are_settled_quickly():
    rng = np.random.default_rng(14)
    for _ in range(20):
        v, s, a, c = default_size(rng, E=14)
        v, s = np.round(2 * v) / 2, np.full(14, 0.5)
        assert solve(v, s, a, c).value == pytest.approx(p3.brute_force(v, s, a, c), rel=1e-9)
        v, s, a, c = default_size(rng, E=60)
        solution = solve(np.full(60, 0.5), np.full(60, 0.5), a, c)
        assert solution.proved
        assert solution.nodes < 20_000


def test_a_warm_start_changes_nothing_but_the_work():
    rng = np.random.default_rng(8)
    v, s, a, c = default_size(rng)
    solver, warm = P3Solver(a, c), None
    for _ in range(40):
        v = np.clip(v + rng.normal(0, 0.01, v.size), 0, 1)
        mask = rng.random(v.size) < 0.6
        warmed, cold = solver.solve(v, s, mask, warm=warm), solver.solve(v, s, mask)
        assert warmed.value == pytest.approx(cold.value, rel=2e-9)
        assert warmed.proved
        assert not warmed.x[~mask].any()
        warm = warmed


def test_what_was_solved_before_leaves_no_trace():
    rng = np.random.default_rng(9)
    v, s, a, c = default_size(rng)
    solver = P3Solver(a, c)
    first = solver.solve(v, s)
    solver.solve(-v, 100 * s, rng.random(v.size) < 0.5)
    again, copied = solver.solve(v, s), pickle.loads(pickle.dumps(solver)).solve(v, s)
    for other in (again, copied):
        assert (other.x == first.x).all()
        assert (other.value, other.bound, other.nodes) == (first.value, first.bound, first.nodes)


def test_a_mask_equals_the_smaller_problem():
    rng = np.random.default_rng(10)
    for _ in range(200):
        v, s, a, c = random_instance(rng, most=12)
        mask = rng.random(v.size) < 0.5
        solver = P3Solver(a, c)
        by_mask = solver.solve(v, s, mask)
        assert not by_mask.x[~mask].any()
        alone = p3.brute_force(v[mask], s[mask], a[mask], c)
        assert by_mask.value == pytest.approx(alone, **CLOSE)


def test_what_was_pruned_still_bounds():
    """Coarse gaps prune more than is worse than the best choice; the bound has to cover it."""
    rng, short = np.random.default_rng(12), 0
    for _ in range(400):
        v, s, a, c = random_instance(rng, most=11)
        best = p3.brute_force(v, s, a, c)
        for gap in (0.02, 0.1, 0.3):
            for nodes in (1, 4, EXACT["nodes"]):
                found = P3Solver(a, c).solve(v, s, gap=gap, nodes=nodes)
                assert found.bound >= best * (1 - 1e-9) - 1e-12
                short += found.value < best * (1 - 1e-6)
                if found.proved:
                    assert best <= found.value * (1 + gap) + 1e-9
    assert short > 20  # or nothing would have been seen


@pytest.mark.parametrize(
    ("a", "c", "gap"),
    [
        ([[22], [42], [55], [8], [13], [15], [13]], [89], 0.04),
        ([[47], [40], [5], [7], [44], [8], [15]], [59], 0.2),
        ([[23, 6], [56, 57], [23, 9], [54, 13], [23, 30], [41, 34], [34, 58]], [83, 68], 0.15),
    ],
)
def test_a_pruned_node_may_hold_the_best_choice(a, c, gap):
    """Worth is size and 10: the best choice is in nodes that the gap prunes, and nowhere else."""
    a, c = np.array(a, dtype=float), np.array(c, dtype=float)
    v, s = a.mean(axis=1) + 10.0, np.zeros(len(a))
    best = p3.brute_force(v, s, a, c)
    found = P3Solver(a, c).solve(v, s, **EXACT, gap=gap)
    assert found.value < best * (1 - 1e-3)  # it was pruned
    assert found.bound >= best * (1 - 1e-9)  # and is bounded all the same
    assert found.proved
    assert best <= found.value * (1 + gap) + 1e-9


def test_a_pruned_branch_may_hold_the_best_choice():
    """Subset sums of two device types, worth what they take: bounds are close, and gaps prune."""
    masks = (np.arange(1 << 16)[:, None] >> np.arange(16)) & 1
    short = 0
    for seed in range(30):
        rng = np.random.default_rng([16, seed])
        a = rng.integers(5, 60, (16, 2)).astype(float)
        c, v = np.floor(a.sum(axis=0) * rng.uniform(0.3, 0.6)), a.mean(axis=1)
        best = (masks @ v)[(masks @ a <= c).all(axis=1)].max()
        for gap in (0.002, 0.005, 0.02):
            found = P3Solver(a, c).solve(v, np.zeros(16), **EXACT, gap=gap)
            assert found.bound >= best * (1 - 1e-9)
            assert found.proved
            assert best <= found.value * (1 + gap) + 1e-9
            short += found.value < best * (1 - 1e-9)
    assert short > 20


@pytest.mark.parametrize("scale", [1e-60, 1e90])
def test_numbers_of_any_size_are_solved_alike(scale):
    rng = np.random.default_rng(11)
    for _ in range(60):
        v, s, a, c = random_instance(rng, most=10)
        solution = P3Solver(a, c).solve(v * scale, s * scale**2)
        best = p3.brute_force(v, s, a, c)
        assert np.isfinite(solution.bound)
        assert solution.value / scale == pytest.approx(best, rel=1e-6, abs=1e-9)
        assert solution.bound / scale >= best * (1 - 1e-9)


def test_what_is_not_available_is_not_read():
    solution = P3Solver([[1.0], [1.0]], [1.0]).solve([np.nan, 1.0], [-1.0, 0.0], [False, True])
    assert solution.x.tolist() == [False, True]


@given(st.integers(0, 2**32 - 1))
def test_properties(seed):
    rng = np.random.default_rng(seed)
    v, s, a, c = random_instance(rng)
    value = solve(v, s, a, c).value
    order = rng.permutation(v.size)
    assert solve(v[order], s[order], a[order], c).value == pytest.approx(value, **CLOSE)
    assert (solve(v, s, 2 * a, 2 * c).x == solve(v, s, a, c).x).all()
    assert solve(v, s, a, c + rng.integers(0, 2, c.size)).value >= value - 1e-8 * (1 + value)
    assert solve(v, 4 * s, a, c).value >= value - 1e-8 * (1 + value)
    assert solve(2 * v, 4 * s, a, c).value == pytest.approx(2 * value, **CLOSE)
    assert value >= 0


def test_edges():
    nothing = solve(np.zeros(0), np.zeros(0), np.zeros((0, 2)), [1, 1])
    assert (nothing.value, nothing.bound, nothing.x.size) == (0, 0, 0)
    assert nothing.proved
    for v, s, a, c, x in (
        (1.0, 0.0, 1.0, 1.0, True),  # no variance
        (1.0, 1.0, 2.0, 1.0, False),  # larger than the cluster
        (1.0, 1.0, 1.0, 0.0, False),  # no capacity
        (1.0, 1.0, 0.0, 0.0, True),  # needs nothing
        (-1.0, 1.1, 1.0, 1.0, True),  # variance makes up for the loss
        (-1.0, 0.9, 1.0, 1.0, False),
        (0.0, 1e-300, 1.0, 1.0, True),
        (1e9, 1e-12, 1.0, 1.0, True),
        (1e-9, 1e12, 1.0, 1.0, True),
    ):
        for nodes in (None, EXACT["nodes"], 0):
            solution = solve([v], [s], [[a]], [c], nodes=nodes)
            assert solution.x.tolist() == [x], (v, s, a, c, nodes)
            assert solution.bound >= solution.value


def test_sums_of_requests_that_round_up_still_fit():
    assert solve([1, 1, 1], [0, 0, 0], [[0.1], [0.1], [0.1]], [0.3]).x.all()
    assert not solve([1, 1, 1], [0, 0, 0], [[0.1], [0.1], [0.1]], [0.2999]).x.all()


def test_wrong_input_is_named():
    with pytest.raises(ScenarioError, match="is -1"):
        P3Solver([[1, 1], [1, -1]], [1, 1])
    with pytest.raises(ScenarioError, match=r"\[1"):
        P3Solver([[1], [np.nan]], [1])
    with pytest.raises(ScenarioError, match="is -2"):
        P3Solver([[1, 1]], [1, -2])
    with pytest.raises(ScenarioError, match=r"shapes \(1, 2\) and \(3,\)"):
        P3Solver([[1, 1]], [1, 1, 1])
    solver = P3Solver([[1], [1]], [1])
    too_large = (([0, 1e308], [1, 1]), ([1, 1], [1, 1e308]))
    for v, s in (([1, np.nan], [1, 1]), ([1, 1], [1, -1]), ([1, 1], [1, np.nan]), *too_large):
        for programme in (False, True):
            with pytest.raises(ScenarioError, match="channel 1"):
                solver.solve(v, s, programme=programme)
    with pytest.raises(ScenarioError, match="of 2"):
        solver.solve([1], [1, 1])
    for available in ([True], [0, 1]):
        with pytest.raises(ScenarioError, match="available"):
            solver.solve([1, 1], [1, 1], available)
