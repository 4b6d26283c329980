"""The one way to HiGHS, against every point tried."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gangwise.core.errors import GangwiseError
from gangwise.papers.gangs.placement import Constraints, maximise

WHOLE = np.ones(4, dtype=np.bool_)


@pytest.mark.parametrize("seed", range(8))
def test_small_programmes_against_every_point(seed):
    rng = np.random.default_rng(seed)
    worth, upper = rng.normal(size=4), rng.integers(0, 4, 4).astype(float)
    table, most = rng.uniform(0, 2, (2, 4)), rng.uniform(1, 6, 2)
    rows = Constraints.of([(np.arange(4), table[0], most[0])]).above(
        Constraints.of([([1, 3], table[1, [1, 3]], most[1])])
    )
    answer = maximise(worth, upper, WHOLE, rows, relative_gap=1e-9)
    best = max(
        float(worth @ x)
        for x in itertools.product(*(range(int(u) + 1) for u in upper))
        if table[0] @ x <= most[0] and table[1, [1, 3]] @ np.array(x)[[1, 3]] <= most[1]
    )
    assert answer.optimal
    assert answer.x is not None
    assert worth @ answer.x == pytest.approx(best, abs=1e-6)
    assert answer.bound == pytest.approx(best, abs=1e-6)


def test_columns_that_need_not_be_whole_are_not():
    half = Constraints.of([([0], [2.0], 1.0)])
    one = np.ones(1)
    for whole, value in ((np.array([True]), 0.0), (np.array([False]), 0.5)):
        answer = maximise(one, one, whole, half, relative_gap=1e-9)
        assert answer.x == pytest.approx([value])


def test_no_rows_at_all():
    answer = maximise(np.ones(4), np.ones(4), WHOLE, Constraints.of([]), relative_gap=1e-9)
    assert answer.bound == 4.0


def test_without_time_there_is_a_bound_but_no_proof():
    rng = np.random.default_rng(0)
    n = 60
    weight = rng.integers(10, 60, n).astype(float)
    rows = Constraints.of([(np.arange(n), weight, weight.sum() / 3 + 0.5)])
    worth, one, whole = weight + rng.uniform(0, 1, n), np.ones(n), np.ones(n, dtype=np.bool_)
    hurried = maximise(worth, one, whole, rows, relative_gap=0.0, seconds=0.0)
    done = maximise(worth, one, whole, rows, relative_gap=1e-9)
    assert not hurried.optimal
    assert hurried.bound >= done.bound - 1e-6


def test_a_programme_without_an_end_is_an_error_that_says_so():
    free = np.array([np.inf])
    with pytest.raises(GangwiseError, match="1 columns"):
        maximise(np.ones(1), free, np.array([False]), Constraints.of([]), relative_gap=1e-9)
