"""Each estimator by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.papers.estimators import (
    UCB,
    UCB1,
    BetaSampling,
    Constant,
    Decay,
    Discounted,
    GaussianSampling,
    Mean,
    Oracle,
    SlidingWindow,
    confidence_radius,
    make_estimator,
    upper_bound,
)
from tests.reference import estimators as plain


def feed(estimator, slots, N=1):
    """``slots``: (slot, arm, value)."""
    estimator.start(N, np.random.default_rng(0))
    for slot, arm, value in slots:
        estimator.learn(slot, np.array([arm]), np.array([float(value)]))
    return estimator


def test_confidence_radius_by_hand():
    """OPS (14)."""
    assert float(confidence_radius(0.7, 100, 0.01)) == pytest.approx(0.0084666002653, abs=1e-13)


def test_ucb_by_hand():
    """OPS (12), OPM (66)."""
    ucb = feed(UCB(gamma=0.01), [(t, 0, 70 / 99) for t in range(99)])
    assert ucb.estimate(99)[0] == pytest.approx(0.716933200531, abs=1e-12)
    assert feed(UCB(gamma=0.1), []).estimate(0)[0] == pytest.approx(0.2)


@pytest.mark.parametrize(("gamma", "plays"), [(20.0, 849), (15.4, 654), (1.0, 41), (0.1, 3)])
def test_how_long_an_arm_of_mean_rate_stays_at_one(gamma, plays):
    rate = 0.6970181878690392  # the mean θ̄ of (13) after n plays, whose sum is rate · (n + 1)
    bound = [
        upper_bound(np.array([rate * (n + 1.0)]), np.array([float(n)]), gamma)[0]
        for n in (plays, plays + 1)
    ]
    assert bound[0] == 1.0
    assert bound[1] < 1.0


@pytest.mark.parametrize("gamma", [0.1, 1.0, 15.4])
def test_ucb_is_the_plain_one(gamma):
    """OPS (13), OPM (67)."""
    rng = np.random.default_rng(0)
    for n in (0, 1, 7, 300, 5000):
        values = rng.random(n)
        ucb = feed(UCB(gamma), [(t, 0, r) for t, r in enumerate(values)])
        assert ucb.estimate(n)[0] == pytest.approx(plain.ucb(sum(values), n, gamma), rel=1e-11)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 20.0])
def test_an_arm_never_seen_is_worth_trying(gamma):
    assert feed(UCB(gamma), []).estimate(0)[0] == 1.0


def test_discounted_by_hand():
    # Values 1, 0 in slots 0 and 1, κ = 1/2: at slot 2 they weigh 1/2 and 1.
    ucb = feed(UCB(0.0, memory=Discounted(0.5)), [(0, 0, 1.0), (1, 0, 0.0)])
    assert ucb.estimate(2)[0] == pytest.approx(0.5 / 2.5)
    assert ucb.estimate(3)[0] == pytest.approx(0.25 / 1.75)


def test_window_by_hand():
    ucb = UCB(gamma=0.0, memory=SlidingWindow(2))
    window = feed(ucb, [(0, 0, 1.0), (1, 0, 0.4), (2, 0, 0.2)])
    assert window.estimate(3)[0] == pytest.approx(0.6 / 3)
    assert window.estimate(4)[0] == pytest.approx(0.2 / 2)
    assert window.estimate(9)[0] == 0.0


def test_ucb1_by_hand():
    # Played twice, 1/2 on average; at slot 9, ln 11.
    told = [(0, 0, 0.4), (1, 0, 0.6)]
    width = np.sqrt(0.1 * np.log(11) / 2)
    assert feed(UCB1(0.1), told, N=2).estimate(9) == pytest.approx([0.5 + width, 1.0])
    assert feed(UCB1(2.0), told, N=2).estimate(9).tolist() == [1.0, 1.0]
    open_ended = feed(UCB1(2.0, clip=False), told, N=2)
    bounds = [0.5 + np.sqrt(np.log(11)), np.sqrt(2 * np.log(11))]
    assert open_ended.estimate(9) == pytest.approx(bounds)
    assert open_ended.untried.tolist() == [False, True]
    recent = UCB1(0.1, memory=SlidingWindow(4))  # ln 5, however late
    assert feed(recent, told).estimate(4)[0] == pytest.approx(0.5 + np.sqrt(0.05 * np.log(5)))


def test_decay_by_hand():
    decay = Decay(tau=10.0, pull=1e-9, prior=0.9)
    feed(decay, [(0, 0, 0.2), (4, 0, 0.8)], N=2)
    assert decay.estimate(5)[0] == pytest.approx(0.8)
    assert decay.estimate(15)[0] == pytest.approx(0.5 + 0.3 * np.exp(-1.0))
    assert decay.estimate(15)[1] == 0.9


def test_decay_draws_means_together():
    decay = Decay(tau=1e-3, pull=2.0)
    feed(decay, [(0, 0, 1.0), (1, 0, 1.0), (0, 1, 0.0), (1, 1, 0.0)], N=2)
    np.testing.assert_allclose(decay.estimate(9), [0.75, 0.25])  # (2 + 2·½) / 4


def test_beta_samples_from_its_posterior():
    thompson = feed(BetaSampling(), [(t, 0, float(t % 4 != 0)) for t in range(40)])
    draws = np.array([thompson.estimate(40)[0] for _ in range(4000)])
    a, b = 31.0, 11.0
    assert draws.mean() == pytest.approx(a / (a + b), abs=0.006)
    assert draws.var() == pytest.approx(a * b / ((a + b) ** 2 * (a + b + 1)), rel=0.15)


def test_gaussian_samples_from_its_posterior():
    told = [(t, 0, 0.25 + 0.5 * (t % 2)) for t in range(100)]
    sampler = feed(GaussianSampling(0.5), told, N=2)
    draws = np.array([sampler.estimate(100) for _ in range(4000)])
    assert draws[:, 0].mean() == pytest.approx(0.5, abs=0.004)
    assert draws[:, 0].std() == pytest.approx(0.05, rel=0.1)
    assert (draws[:, 1] == 1.0).all()


def test_oracle_knows():
    oracle = Oracle([[0.1, 0.2], [0.3, 0.4]])
    oracle.start(2, np.random.default_rng(0))
    assert oracle.estimate(0).tolist() == [0.1, 0.2]
    assert oracle.estimate(7).tolist() == [0.3, 0.4]
    with pytest.raises(ScenarioError, match="2 arms"):
        oracle.start(3, np.random.default_rng(0))


def test_by_name_or_ones_own():
    assert make_estimator("decay", tau=7.0).tau == 7.0
    assert make_estimator("discounted", kappa=0.9).memory.discount == 0.9
    assert make_estimator("ucb1", coefficient=0.5).coefficient == 0.5
    own = Mean(prior=0.25)
    copied = make_estimator(own)
    copied.start(1, np.random.default_rng(0))
    assert copied.prior == 0.25
    assert not hasattr(own, "_rng")


def test_bad_parameters_are_refused():
    with pytest.raises(UnknownName, match="decay"):
        make_estimator("decai")
    for bad in (
        lambda: UCB(-1.0),
        lambda: UCB1(-1.0),
        lambda: GaussianSampling(np.nan),
        lambda: Decay(tau=0.0),
        lambda: Constant(1.5),
        lambda: make_estimator("window", window=0),
        lambda: make_estimator("constant", rate=1.5),
        lambda: make_estimator("discounted", kappa=0.0),
    ):
        with pytest.raises(ScenarioError):
            bad()
