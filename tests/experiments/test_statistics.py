from __future__ import annotations

import numpy as np
import pytest
from scipy.special import stdtrit

from gangwise.experiments.statistics import (
    Estimate,
    batch_means,
    change_by_blocks,
    mean_and_interval,
    stationary_bootstrap,
)


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


def resampled(x: np.ndarray, rng: np.random.Generator, many: int) -> np.ndarray:
    """Means of stationary bootstrap samples, drawn value by value (Politis and Romano 1994)."""
    means = []
    for _ in range(many):
        at, total = int(rng.integers(x.size)), 0.0
        for _ in range(x.size):
            total += x[at]
            new = rng.random() < 1 / np.sqrt(x.size)
            at = int(rng.integers(x.size)) if new else (at + 1) % x.size
        means.append(total / x.size)
    return np.array(means)


@pytest.mark.full
def test_the_stationary_bootstrap_needs_no_resampling():
    rng = np.random.default_rng(1)
    x = rng.normal(size=16).cumsum()
    drawn = resampled(x, rng, 20_000).std()
    n, length = 16, 4.0
    half = stdtrit(n / length - 1, 0.975) * drawn * np.sqrt(n / (n - length))
    assert stationary_bootstrap(x).half == pytest.approx(half, rel=0.02)
    assert stationary_bootstrap(x[:7]).half is None


@pytest.mark.parametrize(("rho", "least"), [(0.0, 0.94), (0.3, 0.92), (0.5, 0.88)])
def test_it_covers_the_mean_of_an_autoregression(rho, least):
    """x_t = ρ x_{t−1} + ε_t of mean 0, 40 long; Student's interval of ρ = 0.5 covers 75 %."""
    rng = np.random.default_rng(2)
    x = np.zeros(1500)
    series = []
    for _ in range(140):
        x = rho * x + rng.normal(size=1500)
        series.append(x)
    found = [stationary_bootstrap(each) for each in np.array(series[100:]).T]
    covered = np.mean([e.low <= 0 <= e.high for e in found])
    assert least < covered < 0.985


def test_changes_by_blocks_weigh_blocks_by_what_they_hold():
    rng = np.random.default_rng(3)
    b = rng.uniform(1, 9, 30)
    exact = change_by_blocks(0.8 * b, b)
    assert exact.mean == pytest.approx(-20)
    assert exact.half == pytest.approx(0, abs=1e-9)
    a = b * (1 + rng.normal(0, 0.1, 30))
    found = change_by_blocks(a, b)
    assert found.mean == pytest.approx(100 * (a.sum() / b.sum() - 1))
    # Blocks that all hold as much: the mean of the differences and its interval.
    equal = change_by_blocks(a, np.full(30, 5.0))
    assert equal.half == pytest.approx(stationary_bootstrap(20 * a).half)
    assert change_by_blocks(a, np.zeros(30)).half is None


def test_batch_means_are_an_interval_around_the_mean_where_batches_differ_in_length():
    """59 slots in twenty batches of 3 or 2: long ones hold more of the mean than of the batches."""
    values = np.r_[np.full(30, 4.0), np.full(29, 1.0)] + np.tile([0.0, 0.5], 30)[:59]
    found = batch_means(values)
    assert found.mean == pytest.approx(values.mean())
    assert found.low is not None
    assert found.high is not None
    assert (found.low + found.high) / 2 == pytest.approx(values.mean(), abs=1e-12)
    batches = [part.mean() for part in np.array_split(values, 20)]
    assert abs(np.mean(batches) - values.mean()) > 0.01
