from __future__ import annotations

import numpy as np
import pytest

from gangwise.experiments.statistics import Estimate, mean_and_interval


def test_students_interval_by_hand():
    # n = 3: t(0.975, 2) = 4.302653, s = 1, half = 4.302653 / √3 (any table of quantiles).
    estimate = mean_and_interval([1.0, 2.0, 3.0])
    assert estimate.mean == 2.0
    assert estimate.half == pytest.approx(4.302653 / np.sqrt(3), abs=1e-5)
    assert estimate.low == pytest.approx(2.0 - estimate.half)


def test_one_seed_or_nonsense_has_no_interval():
    assert mean_and_interval([5.0]) == Estimate(5.0, None, None)
    assert mean_and_interval([1.0, np.nan]).half is None
    assert f"{mean_and_interval([5.0]):.1f}" == "5.0"
    assert f"{Estimate(2.0, 1.5, 2.5):+.1f}" == "+2.0 ± 0.5"


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        e = mean_and_interval(rng.normal(3.0, 2.0, 5))
        hits += e.low <= 3.0 <= e.high
    assert hits / 2000 == pytest.approx(0.95, abs=0.02)
