"""Channels never played: as many as fit first, then P3 on what is left."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise.papers.fluctuating_speeds.solver import P3Solver
from tests.papers.fluctuating_speeds.p3_cases import EXACT, random_instance, solve
from tests.reference import p3


@pytest.mark.parametrize("nodes", [None, EXACT["nodes"]])
def test_as_many_unplayed_channels_as_fit_then_the_optimum_of_the_rest(nodes):
    rng = np.random.default_rng(11)
    mixed = 0
    for _ in range(400 if nodes is None else 60):
        v, s, a, c = random_instance(rng, most=8)
        s[rng.random(s.size) < 0.4] = np.inf
        solution = solve(v, s, a, c, nodes=nodes)
        assert p3.fits(a, c * (1 + 1e-9), solution.x)
        new = np.isinf(s)
        assert solution.unplayed == solution.x[new].sum() == p3.brute_force_unplayed(v, s, a, c)
        assert solution.proved
        left = np.maximum(c * (1 + 1e-12) - a[solution.x & new].sum(axis=0), 0)
        rest = p3.brute_force(v[~new], s[~new], a[~new], left)
        assert solution.value == pytest.approx(v[solution.x & new].sum() + rest, rel=1e-6, abs=1e-6)
        assert solution.bound >= solution.value
        mixed += 0 < solution.unplayed < solution.x.sum()
    assert mixed > 5


def test_many_unplayed_channels_get_a_choice_that_cannot_grow():
    rng = np.random.default_rng(12)
    a = rng.integers(1, 3, (3000, 3)).astype(float)
    c = np.floor(0.5 * a.sum(axis=0))
    solution = P3Solver(a, c).solve(np.zeros(3000), np.full(3000, np.inf))
    assert p3.fits(a, c, solution.x)
    left = c - a[solution.x].sum(axis=0)
    assert not (a[~solution.x] <= left).all(axis=1).any()
    # A single device type alone allows no more than its smallest requests.
    most = min(np.searchsorted(np.cumsum(np.sort(a[:, k])), c[k], "right") for k in range(3))
    assert 0.9 * most <= solution.unplayed <= most


def test_the_numbers_of_unplayed_channels_do_not_overflow():
    solution = solve([0.0, 1.0, 0.0], [np.inf, 1.0, np.inf], [[1], [1], [1]], [2])
    assert solution.x.tolist() == [True, False, True]
    assert solution.value == solution.bound == 0.0
