"""Estimates: hand cases, what they must not see, and feedback that comes late."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise.approximation_jobs.confidence import upper_bound
from gangwise.approximation_jobs.estimates import (
    ChangePointUCB,
    CumulativeUCB,
    Decay,
    Oracle,
    Thompson,
    WindowUCB,
    confidence_radius,
    make_estimator,
)
from gangwise.approximation_jobs.execution import Feedback
from gangwise.core.errors import ScenarioError, UnknownName
from tests.reference import approximation_jobs as plain

NAMES = ["ucb", "discounted", "window", "change-point", "thompson", "decay", "constant"]


def feed(estimator, slots, M=1):
    """``slots``: (slot, machine, rate)."""
    estimator.start(M, np.random.default_rng(0))
    for slot, machine, rate in slots:
        estimator.learn(Feedback(slot, np.array([machine]), np.array([float(rate)])))
    return estimator


def test_confidence_radius_by_hand():
    assert float(confidence_radius(0.7, 100, 0.01)) == pytest.approx(0.0084666002653, abs=1e-13)


def test_ucb_by_hand():
    ucb = feed(CumulativeUCB(gamma=0.01), [(t, 0, 70 / 99) for t in range(99)])
    assert ucb.estimate(99)[0] == pytest.approx(0.716933200531, abs=1e-12)
    assert feed(CumulativeUCB(gamma=0.1), []).estimate(0)[0] == pytest.approx(0.2)


@pytest.mark.parametrize(("gamma", "plays"), [(20.0, 849), (15.4, 654), (1.0, 41), (0.1, 3)])
def test_how_long_a_machine_of_mean_rate_stays_at_one(gamma, plays):
    rate = 0.6970181878690392  # the mean θ̄ of (13) after n plays, whose sum is rate · (n + 1)
    bound = [upper_bound(np.array([rate * (n + 1.0)]), np.array([float(n)]), gamma)[0]
             for n in (plays, plays + 1)]  # fmt: skip
    assert bound[0] == 1.0
    assert bound[1] < 1.0


@pytest.mark.parametrize("gamma", [0.1, 1.0, 15.4])
def test_ucb_is_the_plain_one(gamma):
    rng = np.random.default_rng(0)
    for n in (0, 1, 7, 300, 5000):
        rates = rng.random(n)
        ucb = feed(CumulativeUCB(gamma), [(t, 0, r) for t, r in enumerate(rates)])
        assert ucb.estimate(n)[0] == pytest.approx(plain.ucb(sum(rates), n, gamma), rel=1e-12)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 20.0])
def test_a_machine_never_seen_is_worth_trying(gamma):
    assert feed(CumulativeUCB(gamma), []).estimate(0)[0] == 1.0


def test_discounted_by_hand():
    # Rates 1, 0 in slots 0 and 1, κ = 1/2: at slot 2 they weigh 1/2 and 1.
    ucb = feed(CumulativeUCB(0.0, 0.5), [(0, 0, 1.0), (1, 0, 0.0)])
    assert ucb.estimate(2)[0] == pytest.approx(0.5 / 2.5)
    assert ucb.estimate(3)[0] == pytest.approx(0.25 / 1.75)


def test_window_by_hand():
    window = feed(WindowUCB(2, gamma=0.0), [(0, 0, 1.0), (1, 0, 0.4), (2, 0, 0.2)])
    assert window.estimate(3)[0] == pytest.approx(0.6 / 3)
    assert window.estimate(4)[0] == pytest.approx(0.2 / 2)
    assert window.estimate(9)[0] == 0.0


def test_decay_by_hand():
    decay = Decay(tau=10.0, pull=1e-9, prior=0.9)
    feed(decay, [(0, 0, 0.2), (4, 0, 0.8)], M=2)
    assert decay.estimate(5)[0] == pytest.approx(0.8)
    assert decay.estimate(15)[0] == pytest.approx(0.5 + 0.3 * np.exp(-1.0))
    assert decay.estimate(15)[1] == 0.9


def test_decay_draws_means_together():
    decay = Decay(tau=1e-3, pull=2.0)
    feed(decay, [(0, 0, 1.0), (1, 0, 1.0), (0, 1, 0.0), (1, 1, 0.0)], M=2)
    np.testing.assert_allclose(decay.estimate(9), [0.75, 0.25])  # (2 + 2·½) / 4


def test_change_point_forgets_what_a_machine_was():
    up, down = [(t, 0, 0.9) for t in range(40)], [(40 + t, 0, 0.0) for t in range(5)]
    forgets = feed(ChangePointUCB(threshold=1.0, drift=0.1, gamma=0.0), up + down)
    remembers = feed(CumulativeUCB(0.0), up + down)
    assert forgets.estimate(45)[0] == 0.0
    assert remembers.estimate(45)[0] > 0.7


def test_thompson_samples_from_its_posterior():
    thompson = feed(Thompson(), [(t, 0, float(t % 4 != 0)) for t in range(40)])
    draws = np.array([thompson.estimate(40)[0] for _ in range(4000)])
    a, b = 31.0, 11.0
    assert draws.mean() == pytest.approx(a / (a + b), abs=0.006)
    assert draws.var() == pytest.approx(a * b / ((a + b) ** 2 * (a + b + 1)), rel=0.15)


def test_oracle_knows():
    oracle = Oracle([[0.1, 0.2], [0.3, 0.4]])
    assert oracle.estimate(0).tolist() == [0.1, 0.2]
    assert oracle.estimate(7).tolist() == [0.3, 0.4]


@pytest.mark.parametrize("name", NAMES)
def test_estimates_stay_in_their_range_and_leave_other_machines_alone(name):
    rng = np.random.default_rng(1)
    seen, other = make_estimator(name, gamma=0.01), make_estimator(name, gamma=0.01)
    for each in (seen, other):
        each.start(4, np.random.default_rng(2))
    for t in range(60):
        a, b = seen.estimate(t), other.estimate(t)
        assert ((a >= 0) & (a <= 1)).all()
        np.testing.assert_array_equal(a, b)
        machines = np.flatnonzero(rng.random(4) < 0.5)
        rates = rng.random(machines.size)
        seen.learn(Feedback(t, machines, rates))
        other.learn(Feedback(t, machines.copy(), rates.copy()))
    if name in ("ucb", "discounted", "window", "change-point"):
        before = seen.estimate(60).copy()
        seen.learn(Feedback(59, np.array([2]), np.array([0.5])))
        changed = np.flatnonzero(seen.estimate(60) != before)
        assert changed.tolist() == [2]


@pytest.mark.parametrize("name", ["ucb", "discounted", "window", "decay"])
def test_order_of_feedback_does_not_matter(name):
    slots = [(0, 0, 0.5), (1, 0, 0.25), (2, 0, 0.75), (3, 0, 0.125)]
    one, other = (feed(make_estimator(name), order) for order in (slots, slots[::-1]))
    np.testing.assert_allclose(one.estimate(5), other.estimate(5), rtol=1e-12)


def test_memory_does_not_grow():
    import pickle

    for name in NAMES:
        estimator = feed(make_estimator(name), [(t, 0, 0.5) for t in range(30)])
        small = len(pickle.dumps(estimator))
        for t in range(30, 900):
            estimator.learn(Feedback(t, np.array([0]), np.array([0.5])))
            estimator.estimate(t + 1)
        assert len(pickle.dumps(estimator)) <= small + 32, name


def test_bad_parameters_are_refused():
    with pytest.raises(UnknownName, match="decay"):
        make_estimator("decai")
    for bad in (
        lambda: CumulativeUCB(-1.0), lambda: CumulativeUCB(1.0, 0.0), lambda: WindowUCB(0),
        lambda: Decay(tau=0.0), lambda: ChangePointUCB(threshold=0.0),
        lambda: make_estimator("constant", rate=1.5),
    ):  # fmt: skip
        with pytest.raises(ScenarioError):
            bad()
