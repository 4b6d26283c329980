"""The periods of machines, against NumPy's own draws in plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise.papers.approximation_jobs.kernels import Periods, draw_periods


def plain(rng, left, up, share, length, scale, per_period, slots):
    """Whether each machine is up in each slot, and its share, by lists."""
    states, shares = [], []
    for _ in range(slots):
        over = [i for i, rest in enumerate(left) if rest <= 0]
        while over:
            for i in over:
                up[i] = not up[i]
                left[i] += rng.standard_gamma(length[int(up[i])]) * scale[int(up[i])]
            for i in over if per_period else []:
                share[i] = rng.random()
            over = [i for i in over if left[i] <= 0]
        states.append(list(up))
        shares.append(list(share))
        left[:] = [rest - 1.0 for rest in left]
    return np.array(states), np.array(shares)


@pytest.mark.parametrize("per_period", [False, True])
def test_periods_are_those_of_plain_loops(per_period):
    M, slots = 40, 300
    length, scale = np.array([0.2, 2.0]), np.array([3.0, 5.0])
    first = np.random.default_rng(1)
    left, up, share = first.random(M) - 0.5, first.random(M) < 0.7, first.random(M)
    expected, wanted = plain(
        np.random.default_rng(2),
        left.tolist(),
        up.tolist(),
        share.tolist(),
        length,
        scale,
        per_period,
        slots,
    )
    ups, shares = np.empty((slots, M), dtype=bool), np.zeros((slots, M))
    state = Periods(left, up, share, length, scale, np.empty(M, np.int64))
    draw_periods(np.random.default_rng(2), state, per_period, ups, shares)
    np.testing.assert_array_equal(ups, expected)
    np.testing.assert_allclose(shares, wanted if per_period else 0.0, rtol=0, atol=0)
    assert 0.1 < ups.mean() < 0.99
    assert (np.diff(ups, axis=0).sum(axis=0) > 2).all()
