from __future__ import annotations

import math

import numpy as np
import pytest
from benchmarks.intervals import by_day, row
from scipy.integrate import quad
from scipy.special import stdtrit
from scipy.stats import f

from gangwise.core.errors import ScenarioError, papers_wing, to_install
from gangwise.study.statistics import (
    LEAST_BLOCKS,
    WIDEST,
    Estimate,
    Stretches,
    batch_means,
    change_by_blocks,
    cycle,
    drifting,
    heavy,
    joint_factor,
    mean_and_interval,
    students_t,
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


def steps(x: float, end: float, s: float) -> float:
    """Standard errors between two log ratios, where s grows with what is larger than 3 of it."""
    return quad(lambda y: math.sqrt(x**2 + 9 * s**2) / math.sqrt(y**2 + 9 * s**2), x, end)[0] / s


def test_changes_by_stretches_end_where_their_growing_standard_errors_add_up():
    rng = np.random.default_rng(3)
    b = rng.lognormal(0, 1, 13)
    a = b * (0.6 + 0.2 * rng.uniform(size=13)) + 0.3
    found = change_by_blocks(a, b, 1.5)
    assert found.mean == pytest.approx(100 * (a.sum() / b.sum() - 1))
    # The standard error of the logarithm: of what a little more of each stretch changes.
    more = [math.log((a.sum() + 1e-6 * x) / (b.sum() + 1e-6 * y)) for x, y in zip(a, b)]
    s = math.sqrt(13 * np.var(np.subtract(more, math.log(a.sum() / b.sum())) / 1e-6, ddof=1))
    at, low, high = (math.log1p(each / 100) for each in found)
    reach = 1.5 * stdtrit(12, 0.975)
    assert steps(at, high, s) == pytest.approx(reach, rel=1e-3)
    assert steps(at, low, s) == pytest.approx(-reach, rel=1e-3)
    assert found.low > -100
    # What all stretches save alike is sure; a sum of nothing, or few stretches, are not.
    assert change_by_blocks(0.8 * b, b).half == pytest.approx(0, abs=1e-9)
    assert change_by_blocks(a, np.zeros(13)).half is None
    assert change_by_blocks(a[:7], b[:7]).half is None
    # Differences that may be negative: seconds more or less, and not a share.
    fewer = change_by_blocks(b - 3 * b, b, logarithm=False)
    assert fewer.mean == pytest.approx(-300)


def test_a_load_that_persists_widens_as_much_as_stretches_differ_too_little():
    rng = np.random.default_rng(1)
    for rho, least, most in ((0.0, 1.0, 1.1), (0.6, 1.2, 1.9)):
        y = rng.normal(size=(2000, 52))
        for w in range(1, 52):
            y[:, w] = rho * y[:, w - 1] + math.sqrt(1 - rho**2) * y[:, w]
        of_stretches = y.reshape(2000, 13, 4).mean(axis=2).std(axis=1, ddof=1) / math.sqrt(13)
        too_small = y.mean(axis=1).std() / math.sqrt((of_stretches**2).mean())
        found = float(np.median([drifting(np.exp(5 + 0.3 * each), 13) for each in y[:200]]))
        assert least <= found <= most
        assert found == pytest.approx(max(1.0, too_small), rel=0.1)


def test_a_steady_trend_widens_nothing_and_ups_and_downs_of_months_are_none():
    rng = np.random.default_rng(3)
    line, noise = 0.012 * np.arange(52), 0.06 * rng.normal(size=(300, 52))
    month = rng.normal(size=(300, 52))
    for w in range(1, 52):
        month[:, w] = 0.9 * month[:, w - 1] + math.sqrt(1 - 0.9**2) * month[:, w]
    for logarithm, weeks, least, most in (
        (line + noise, 52, 0.9, 1.0),
        (-line + noise, 26, 0.9, 1.0),
        (line + noise, 10, 0.0, 0.5),  # too short to tell
        (0.25 * month + noise, 52, 0.0, 0.03),
        (noise, 52, 0.2, 0.7),  # what white noise has by chance widens a little
    ):
        jobs = np.exp(5 + logarithm[:, :weeks])
        unwidened = np.mean([drifting(each, min(13, weeks)) == 1 for each in jobs])
        assert least <= unwidened <= most


def test_heavy_weeks_widen_to_the_scatter_of_the_logarithm_of_a_sum():
    weeks = np.random.default_rng(2).lognormal(0, 1.3, (2000, 52))
    stretches = weeks.reshape(2000, 13, 4).sum(axis=2)
    seen = stretches.std(axis=1, ddof=1) * math.sqrt(13) / stretches.sum(axis=1)
    widened = seen * [heavy(*each) for each in zip(weeks, stretches)]
    scatter = np.log(weeks.sum(axis=1)).std()
    assert np.median(widened) == pytest.approx(scatter, rel=0.1)
    assert scatter > 1.1 * np.median(seen)
    assert heavy(np.zeros(52), np.zeros(13)) == heavy(np.ones(52), np.ones(13)) == 1


def test_two_reasons_to_widen_multiply_only_where_one_of_them_is_clear():
    noise = np.random.default_rng(1).normal(size=40)
    apart, persisting = np.exp(0.1 * noise), np.exp(0.1 * np.cumsum(noise))
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 0.2
    assert joint_factor(1.3, 1.5, persisting) == pytest.approx(1.3 * 1.5)
    assert joint_factor(1.3, 1.95, apart) == pytest.approx(1.3 * 1.95)
    # Else the larger: of 1.5, which lies .5 below the cap, 2 − .5 ÷ .9 is left.
    assert joint_factor(1.3, 1.5, apart) == pytest.approx(2 - 0.5 / 0.9)
    assert joint_factor(1.6, 1.5, apart) == 1.6
    assert joint_factor(1.0, 1.0, apart) == 1.0


def test_no_interval_is_given_where_the_log_shows_that_it_is_too_short():
    """Two weeks, months of much and of little, one day with most jobs; not 26 weeks of the same."""
    rng = np.random.default_rng(0)
    jobs = rng.poisson(40, 182)
    waits = 60.0 * jobs
    tide = np.repeat([5, 1], 91)
    burst = np.where(np.arange(182) == 90, 100 * jobs, jobs)
    cases = {
        "": jobs,
        "less than 8 weeks": jobs[:14],
        "ups and downs": jobs * tide,
        "few days": burst,
    }
    for reason, each in cases.items():
        found = Stretches.of(each, waits[: each.size])
        assert reason in found.reason
        assert bool(reason) == bool(found.reason) == math.isnan(found.widening)


def test_a_short_log_whose_weeks_differ_more_than_its_days_has_a_caveat():
    """Two-way analysis of variance, weeks by weekdays; a long log shows how long weeks differ."""
    rng = np.random.default_rng(4)
    told = {1.0: 0, 1.5: 0}
    for _ in range(200):
        for factor in told:
            jobs = rng.poisson(40 * np.repeat(factor ** rng.integers(0, 2, 26), 7)).astype(float)
            y = np.log1p(jobs[:70]).reshape(10, 7)
            among, within = y.mean(axis=1, keepdims=True), y.mean(axis=0)
            rest = ((y - among - within + y.mean()) ** 2).sum() / 54
            ratio = 7 * ((among - y.mean()) ** 2).sum() / 9 / rest
            found = Stretches.of(jobs[:70], 60 * jobs[:70])
            assert found.reason or bool(found.caveat) == bool(f.sf(ratio, 9, 54) < 0.05)
            assert not Stretches.of(jobs, 60 * jobs).caveat
            told[factor] += bool(found.caveat or found.reason)
    assert told[1.0] < 20
    assert told[1.5] > 190


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


def test_intervals_of_logs_of_a_drawn_site_hold_the_truth():
    """A row of the table in docs/how-to/replay.md, on other draws; unwidened they hold 3 of 4."""
    found = row(np.array([by_day("campaigns", seed, 26) for seed in range(1000, 1040)]), 0)
    assert found.covered >= 0.9
    assert found.none <= 0.15
    assert found.width < 1.7


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


def test_students_t_is_that_of_scipy():
    for degrees in (1, 1.5, 2, 3, 4.7, 9, 12, 29, 100.3, 1e4):
        assert students_t(degrees) == pytest.approx(float(stdtrit(degrees, 0.975)), rel=1e-10)


@pytest.mark.parametrize("package", ["scipy", "matplotlib", "highspy"])
def test_a_package_of_an_extra_is_named_with_the_extra(package):
    with pytest.raises(ScenarioError) as error, papers_wing():
        raise ModuleNotFoundError(name=f"{package}.part")
    assert package in str(error.value)
    assert to_install("full") in str(error.value)


def test_weeks_that_are_heavy_after_every_so_many_are_not_rare():
    rng = np.random.default_rng(4)
    surge = np.where(np.arange(52) % 9 == 4, 2.0, 1.0)
    for weeks, busy, expected in ((52, surge, 9), (26, surge, 9), (16, surge, 1), (52, 1.0, 1)):
        jobs = rng.poisson(np.broadcast_to(280 * busy, 52)[:weeks]).astype(float)
        assert cycle(jobs) == expected
    waits = surge**2 * rng.lognormal(0, 1.0, (500, 52))
    stretches = waits.reshape(500, 13, 4).sum(axis=2)
    seen = stretches.std(axis=1, ddof=1) * math.sqrt(13) / stretches.sum(axis=1)
    scatter = np.log(waits.sum(axis=1)).std()
    wide, narrow = (
        np.median(seen * [heavy(*pair, repeats) for pair in zip(waits, stretches)])
        for repeats in (1, 9)
    )
    assert 0.95 * scatter < narrow < 0.95 * wide
