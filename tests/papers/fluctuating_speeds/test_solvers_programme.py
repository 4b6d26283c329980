"""The paper's dynamic programme and selection; what they do as printed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gangwise import create_policy
from gangwise.core.errors import ScenarioError
from gangwise.papers.fluctuating_speeds.solver import DynamicProgramme, P3Solver
from tests.papers.fluctuating_speeds.cases import problem
from tests.papers.fluctuating_speeds.p3_cases import EXACT, default_size, random_instance, solve
from tests.reference import p3
from tests.reference.p3 import algorithm_2, select


def test_table_equals_the_recursion_and_its_choices_are_worth_it():
    """ESDP (20), ESDP (22), ESDP (27)."""
    rng = np.random.default_rng(21)
    for _ in range(300):
        v, s, a, c = random_instance(rng, most=6, whole=True)
        if v.size == 0:
            continue
        upsilon = v.astype(np.int64)
        top = int(upsilon.sum()) + 2
        table = DynamicProgramme(a, c).solve(upsilon, s, top)
        assert table.value.tolist() == p3.values(upsilon, s, a, c, top)
        assert (np.diff(table.value[table.value > -np.inf]) <= 0).all()
        for number in np.flatnonzero(table.value > -np.inf).tolist():
            x = table.choice(number)
            assert p3.fits(a, c, x)
            assert upsilon @ x >= number
            assert s @ x == table.value[number]


def test_selection_equals_p3_of_the_rounded_data():
    """ESDP (21)."""
    rng = np.random.default_rng(22)
    for _ in range(500):
        v, s, a, c = random_instance(rng, whole=True)
        best = p3.brute_force(v, s, a, c)
        for how in ({"programme": True}, EXACT):
            solution = solve(v, s, a, c, **how)
            assert solution.value == pytest.approx(best, rel=1e-8, abs=1e-9)
            assert solution.bound == pytest.approx(best, rel=1e-8, abs=1e-9)


def test_every_method_on_the_same_whole_numbers():
    rng = np.random.default_rng(23)
    for _ in range(20):
        v, s, a, c = random_instance(rng, most=12, whole=True)
        found = [solve(v, s, a, c, **how).value for how in ({"programme": True}, EXACT)]
        found.append(p3.solve_milp(v, s, a, c)[1])
        assert found == pytest.approx([p3.brute_force(v, s, a, c)] * 3, rel=1e-7)


def test_rounding_costs_at_most_delta():
    rng = np.random.default_rng(24)
    for _ in range(40):
        v, s, a, c = default_size(rng, E=9, K=2)
        xi = math.ceil(9 / 0.5)
        x = solve(np.ceil(xi * v), xi**2 * s, a, c, programme=True).x
        best = p3.brute_force(v, s, a, c)
        assert best - 0.5 <= p3.worth(v, s, x) <= best + 1e-9


def test_h1_the_missing_line():
    """ESDP (23), ESDP (24)."""
    args = np.array([0, 0]), np.array([1.0, 6.0]), np.array([[1], [1]]), np.array([1])
    value, x = algorithm_2(*args, 1)
    assert value.tolist() == [6, -math.inf]
    assert x.tolist() == [[0, 0], [0, 0]]
    table = DynamicProgramme(args[2], args[3]).solve(args[0], args[1], 1)
    assert table.value.tolist() == [6, -math.inf]
    assert table.choice(0).tolist() == [False, True]


def test_h2_values_out_of_reach():
    upsilon, sigma = np.array([2]), np.array([1.0])
    table = DynamicProgramme([[1]], [1]).solve(upsilon, sigma, 4)
    assert table.value.tolist() == [1, 1, 1, -math.inf, -math.inf]
    assert table.select() == (2, 3.0)
    assert table.choice(2).tolist() == [True]
    args = upsilon, sigma, np.array([[1]]), np.array([1])
    for copy in (False, True):
        _, x = algorithm_2(*args, 4, copy_when_skipped=copy)
        assert select(sigma, x) == (4, 4.0)
        assert x[4].tolist() == [0]


def test_h3_a_slot_by_hand():
    """ESDP (16)–(19): slot 3, two channels played twice and once, α|E| = 1."""
    policy = create_policy("esdp-as-printed")
    policy.start(problem(np.ones(2), 2), np.random.default_rng(0))
    policy._memory.learn(0, np.array([0, 1]), np.array([0.5, 0.8]))
    policy._memory.learn(1, np.array([0]), np.array([0.5]))
    upsilon, sigma = policy.scores(2)
    assert upsilon.tolist() == [1, 2]  # ξ = ⌈1 / δ(3)⌉ = 2 times 0.5 and 0.8, rounded up
    assert sigma.tolist() == [5, 10]  # ξ² g(3) / (2 n), g(3) = 4.865
    xi, m = 2, 1
    table = DynamicProgramme([[1], [1]], [1]).solve(upsilon.astype(np.int64), sigma, xi * m)
    assert table.value.tolist() == [10, 10, 10]
    number, value = table.select()
    assert (number, table.choice(2).tolist()) == (2, [False, True])
    assert value == pytest.approx(5.162278, abs=1e-6)


def test_h4_three_channels():
    """ESDP (25), ESDP (26)."""
    a, c = np.array([[1, 2], [2, 1], [1, 1]]), np.array([3, 3])
    upsilon, sigma = np.array([2, 3, 1]), np.array([4.0, 1.0, 9.0])
    table = DynamicProgramme(a, c).solve(upsilon, sigma, 6)
    assert table.value.tolist() == [13, 13, 13, 13, 10, 5, -math.inf]
    expected = [[0, 2]] * 4 + [[1, 2], [0, 1]]
    assert [np.flatnonzero(table.choice(i)).tolist() for i in range(6)] == expected
    number, value = table.select()
    assert (number, round(value, 4)) == (5, 7.2361)
    _, x = algorithm_2(upsilon, sigma, a, c, 6)
    assert x[3:6].tolist() == [[1, 0, 0], [0, 0, 0], [1, 1, 0]]


def test_printed_values_are_right_and_the_line_added_makes_the_choices_right():
    """ESDP Algorithm 2."""
    rng = np.random.default_rng(25)
    wrong = 0
    for _ in range(60):
        v, s, a, c = random_instance(rng, most=5, whole=True)
        needs = a.any(axis=1)  # line 5 refuses the others where nothing is left
        v, s, a = v[needs], s[needs], a[needs]
        upsilon, top = v.astype(np.int64), int(v.sum())
        expected = p3.values(upsilon, s, a, c, top)
        a, c = a.astype(np.int64), c.astype(np.int64)
        value, x = algorithm_2(upsilon, s, a, c, top)
        repaired, choice = algorithm_2(upsilon, s, a, c, top, copy_when_skipped=True)
        assert value.tolist() == repaired.tolist() == expected
        reached = repaired > -np.inf
        assert (choice @ s)[reached].tolist() == repaired[reached].tolist()
        wrong += (x @ s)[reached].tolist() != repaired[reached].tolist()
    assert wrong > 5


def test_h5_rounding_the_variance_breaks_the_error_bound():
    v, s, xi = np.array([1e-6, 0.0]), np.array([1e-6, 0.5]), 2
    worths = []
    for sigma in (np.ceil(xi**2 * s), xi**2 * s):
        x = solve(np.ceil(xi * v), sigma, [[1], [1]], [1], programme=True).x
        worths.append(p3.worth(v, s, x))
    best = p3.brute_force(v, s, np.ones((2, 1)), [1])
    assert best == pytest.approx(math.sqrt(0.5))
    assert worths[0] == pytest.approx(0.001001)
    assert 0.5 + worths[0] < best <= 0.5 + worths[1]


def test_h7_only_arrived_channels_compete():
    solver = P3Solver([[1], [1]], [1])
    v, s = [0.9, 0.5], [0.04, 0.04]
    assert solver.solve(v, s).x.tolist() == [True, False]
    assert solver.solve(v, s, [False, True]).x.tolist() == [False, True]


def test_what_the_programme_cannot_do_is_said():
    with pytest.raises(ScenarioError, match="whole requests"):
        DynamicProgramme([[0.5]], [1])
    with pytest.raises(ScenarioError, match="GiB"):
        DynamicProgramme(np.ones((5, 3)), [2000, 2000, 2000]).solve(np.ones(5, int), np.ones(5))
    with pytest.raises(ScenarioError, match="whole v"):
        solve([0.5], [1], [[1]], [1], programme=True)
