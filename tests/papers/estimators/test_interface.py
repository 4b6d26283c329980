"""What holds for every estimator, through the one interface, beside plain implementations."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangwise.core.contracts import clone, configuration
from gangwise.papers.estimators import ESTIMATORS, make_estimator
from tests.reference import estimators as plain

GAMMA, KAPPA, WINDOW, TAU = 0.05, 0.8, 6, 9.0
N, SLOTS = 4, 40


class Middle:
    """In the place of a generator: every draw is the middle of its distribution."""

    def beta(self, a, b):
        return a / (a + b)

    def standard_normal(self, size):
        return np.zeros(size)


def make(name):
    return make_estimator(name, GAMMA, KAPPA, WINDOW, TAU)


def expected(name, history, arm, slot):
    """The estimate in plain Python, where draws are the middle of their distribution."""
    total = {
        "window": plain.window(WINDOW),
        "discounted": plain.discounted(KAPPA),
        "thompson": plain.discounted(KAPPA),
        "thompson-gaussian": plain.discounted(KAPPA),
    }.get(name, plain.everything)
    n, s = total(history, arm, slot)
    if name in ("ucb", "discounted", "window"):
        return plain.ucb(s, n, GAMMA)
    if name == "ucb1":
        return plain.ucb1(s, n, 1.5, slot + 1)
    if name == "thompson":
        return (1 + s) / (2 + n)
    if name in ("mean", "thompson-gaussian"):
        return s / n if n > 1e-3 else 1.0
    if name == "decay":
        return plain.decay(history, arm, slot, TAU, 30.0, 1.0)
    return 0.7


@st.composite
def stories(draw):
    """For every slot: which arms are played, what they bring, when it is told (None: never)."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    often, late = draw(st.sampled_from([0.2, 0.6, 1.0])), draw(st.sampled_from([0, 3, 12]))
    slots = []
    for t in range(SLOTS):
        arms = np.flatnonzero(rng.random(N) < often)
        values = np.round(rng.random(arms.size) * 1.4 - 0.2, 3).clip(0.0, 1.0)
        told = None if late and rng.random() < 0.1 else t + int(rng.integers(0, late + 1))
        slots.append((t, arms, values, told))
    return slots


def run(estimator, story, rng, history=None, order=None):
    """Estimates of all slots, what is due being told at the end of each."""
    place = np.arange(N) if order is None else np.argsort(order)
    estimator.start(N, rng)
    estimates = []
    for t in range(SLOTS):
        estimates.append(estimator.estimate(t).copy())
        for slot, arms, values, told in story:
            if told == t:
                estimator.learn(slot, place[arms], values)
                if history is not None:
                    history[t].add(slot, arms, values)
    return np.array(estimates)


every = pytest.mark.parametrize("name", ESTIMATORS)


@every
@settings(max_examples=12)
@given(story=stories())
def test_estimates_are_the_plain_ones(name, story):
    """Late, lost and out-of-order feedback included."""
    told = [plain.History() for _ in range(SLOTS)]
    found = run(make(name), story, Middle(), told)
    so_far = plain.History()
    for t in range(SLOTS):
        plainly = [expected(name, so_far, arm, t) for arm in range(N)]
        np.testing.assert_allclose(found[t], plainly, rtol=1e-9, atol=1e-9)
        so_far.told += told[t].told


@every
@settings(max_examples=12)
@given(story=stories(), order=st.permutations(range(N)))
def test_arms_by_other_names_have_the_same_estimates(name, story, order):
    order = np.array(order)
    one = run(make(name), story, Middle())
    other = run(make(name), story, Middle(), order=order)
    np.testing.assert_allclose(other, one[:, order], rtol=1e-12, atol=1e-14)


@every
@settings(max_examples=12)
@given(story=stories())
def test_estimates_lie_in_their_range_and_arms_never_played_invite(name, story):
    """Within [0, 1]; what nothing is known of is no worse than the mean of all that is known."""
    estimator = make(name)
    found = run(estimator, story, np.random.default_rng(1))
    assert ((found >= 0) & (found <= 1)).all()
    if name not in ("thompson", "constant", "ucb", "discounted", "window"):
        assert (found[0] == 1.0).all()
    estimator.start(N, np.random.default_rng(0))
    assert estimator.untried.all() or name == "constant"
    estimator.learn(0, np.array([2]), np.array([0.5]))
    assert estimator.untried.tolist() in ([True, True, False, True], [False] * N)


@pytest.mark.parametrize("name", [n for n in ESTIMATORS if n != "decay"])
def test_what_one_arm_brings_says_nothing_of_another(name):
    """All but the one that draws means together."""
    rng = np.random.default_rng(3)
    one, other = make(name), make(name)
    for estimator in (one, other):
        estimator.start(N, Middle())
    for t in range(SLOTS):
        arms, values = np.arange(N), rng.random(N)
        one.learn(t, arms, values)
        values[2] = rng.random()
        other.learn(t, arms, values)
        changed = np.flatnonzero(one.estimate(t + 1) != other.estimate(t + 1))
        assert set(changed.tolist()) <= {2}


@every
@settings(max_examples=12)
@given(story=stories(), seed=st.integers(0, 99))
def test_the_order_in_which_slots_are_told_does_not_matter(name, story, seed):
    found = []
    for order in (np.arange(SLOTS), np.random.default_rng(seed).permutation(SLOTS)):
        estimator = make(name)
        estimator.start(N, Middle())
        for k in order:
            estimator.learn(*story[k][:3])
        found.append(estimator.estimate(SLOTS + 1))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-12)


@every
def test_an_estimator_saved_and_loaded_goes_on_as_if_nothing_had_happened(name):
    rng = np.random.default_rng(5)
    one = make(name)
    one.start(N, np.random.default_rng(7))
    for t in range(30):
        arms = np.flatnonzero(rng.random(N) < 0.6)
        one.learn(t, arms, rng.random(arms.size))
        one.estimate(t + 1)
    other = pickle.loads(pickle.dumps(one))
    for t in range(30, 45):
        np.testing.assert_array_equal(one.estimate(t), other.estimate(t))
        for each in (one, other):
            each.learn(t, np.array([t % N]), np.array([0.25]))
    assert len(pickle.dumps(other)) <= len(pickle.dumps(one)) + 16  # memory does not grow


@every
def test_the_constructor_is_the_whole_configuration(name):
    """A used estimator, started again or cloned, is as good as new."""
    used, new = make(name), make(name)
    story = [(t, np.array([t % N]), np.array([0.9]), t) for t in range(SLOTS)]
    first = run(used, story, np.random.default_rng(2))
    for each in (used, clone(used), new):
        np.testing.assert_array_equal(run(each, story, np.random.default_rng(2)), first)
    assert configuration(new).keys() == configuration(used).keys()
    draws = len({tuple(new.estimate(SLOTS)) for _ in range(3)})
    assert (draws == 3) == new.randomised
