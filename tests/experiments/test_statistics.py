from __future__ import annotations

import math
import random

import numpy as np
import pytest
from benchmarks.intervals import by_day, row
from scipy.special import stdtrit

from gangwise.experiments.statistics import (
    LEAST_BLOCKS,
    WIDEST,
    Estimate,
    batch_means,
    change_by_blocks,
    mean_and_interval,
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


def resampled(a: list[float], b: list[float], many: int) -> tuple[float, float]:
    """Ends of the studentised bootstrap of log Σa/Σb, resample by resample; jackknife-free s."""

    def moments(pairs: list[tuple[float, float]]) -> tuple[float, float]:
        A, B = (sum(column) for column in zip(*pairs))
        squares = sum((x / A - y / B) ** 2 for x, y in pairs)
        return math.log(A / B), math.sqrt(len(pairs) / (len(pairs) - 1) * squares)

    rng, pairs = random.Random(4), list(zip(a, b))
    at, error = moments(pairs)
    t = []
    for _ in range(many):
        again, errors = moments(rng.choices(pairs, k=len(pairs)))
        t.append((again - at) / errors)
    t.sort()
    student = stdtrit(len(a) - 1, 0.975)
    few, most = min(t[many // 100], -student), max(t[-many // 100], student)
    return 100 * (math.exp(at - most * error) - 1), 100 * (math.exp(at - few * error) - 1)


def test_changes_by_stretches_are_those_of_a_plain_studentised_bootstrap():
    rng = np.random.default_rng(3)
    b = rng.lognormal(0, 1, 13)
    a = b * (0.6 + 0.2 * rng.uniform(size=13)) + 0.3
    found = change_by_blocks(a, b)
    assert found.mean == pytest.approx(100 * (a.sum() / b.sum() - 1))
    low, high = resampled(a.tolist(), b.tolist(), 20_000)
    assert found.low == pytest.approx(low, rel=0.12)
    assert found.high == pytest.approx(high, abs=0.15 * abs(found.mean))
    assert found.low > -100
    # What all stretches save alike is sure; a sum of nothing, or few stretches, are not.
    assert change_by_blocks(0.8 * b, b).half == pytest.approx(0, abs=1e-9)
    assert change_by_blocks(a, np.zeros(13)).half is None
    assert change_by_blocks(a[:7], b[:7]).half is None
    # Differences that may be negative: seconds more or less, and not a share.
    fewer = change_by_blocks(b - 3 * b, b, logarithm=False)
    assert fewer.mean == pytest.approx(-300)


@pytest.mark.parametrize("heavy", [0.5, 1.0])
def test_intervals_of_heavy_stretches_hold_the_truth(heavy):
    """The saving grows with the load of a stretch, so that estimate and error go together."""
    rng = np.random.default_rng(5)
    b = rng.lognormal(0, heavy, (400, 13))
    a = 0.7 * b**0.8
    truth = 100 * (0.7 * math.exp(0.32 * heavy**2) / math.exp(heavy**2 / 2) - 1)
    found = [change_by_blocks(*each) for each in zip(a, b)]
    assert 0.92 <= np.mean([e.low <= truth <= e.high for e in found]) <= 0.99


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


@pytest.mark.full
def test_intervals_of_logs_of_a_drawn_site_hold_the_truth():
    """A row of the table in docs/how-to/replay.md, on other draws."""
    days = np.array([by_day("small", 26, seed) for seed in range(1000, 1080)])
    _, held, width, oracle = row(days[:, 1], days[:, 0])
    assert 0.86 <= held <= 1
    assert width < 1.7 * oracle


def test_no_interval_claims_more_than_its_stretches_hold():
    """Waiting in a few stretches: no ± 0 of unlike sums, and no end beyond a factor."""
    rng = np.random.default_rng(5)
    for holding in range(1, 14):
        for _ in range(20):
            stretches = np.zeros((2, 13))
            stretches[:, rng.permutation(13)[:holding]] = rng.lognormal(0, 3, (2, holding))
            values, others = stretches
            change = change_by_blocks(values, others)
            if holding < LEAST_BLOCKS:
                assert change.low is None
                assert change_by_blocks(others, others)[:] == (0.0, 0.0, 0.0)
            if change.low is not None:
                assert change.low < change.mean < change.high
                assert (change.high + 100) / (change.low + 100) <= WIDEST
