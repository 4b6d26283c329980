"""Statistics against the whole history, in any order of arrival."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from gangwise import ScenarioError
from gangwise.fluctuating_speeds import Discounted, Feedback, SlidingWindow, Statistics
from tests.fluctuating_speeds.cases import problem
from tests.reference.fluctuating_speeds import History

E = 5
P = problem(np.ones(E), E)


def story(seed: int, slots: int = 60):
    """Decisions, and what each slot would tell."""
    rng = np.random.default_rng(seed)
    for t in range(slots):
        x = rng.random(E) < 0.5
        on = np.flatnonzero(x)
        yield t, x, Feedback(t, on, rng.random(on.size))


def play(statistics, seed: int, delays, history=None):
    """Deliver the feedback of slot t after delays[t] slots, latest first; below 0 never."""
    waiting: list[tuple[int, Feedback]] = []
    for t, x, feedback in story(seed, len(delays)):
        statistics.decided(t, x)
        if delays[t] >= 0:
            waiting.append((t + delays[t], feedback))
        due = [f for when, f in reversed(waiting) if when <= t]
        waiting = [(when, f) for when, f in waiting if when > t]
        statistics.learn(due)
        if history is not None:
            history.learn(due)
    return [f for _, f in waiting]


@pytest.mark.parametrize("seed", range(4))
def test_counts_and_means_are_those_of_the_history(seed):
    delays = np.random.default_rng(seed).integers(-1, 6, 60)
    history, statistics = History(), Statistics(P)
    play(statistics, seed, delays, history)
    np.testing.assert_array_equal(statistics.counts, [history.count(e) for e in range(E)])
    np.testing.assert_allclose(statistics.means, [history.mean(e) for e in range(E)], atol=1e-11)


@pytest.mark.parametrize("seed", range(4))
def test_window_counts_and_means_are_those_of_the_last_slots(seed):
    delays = np.random.default_rng(seed).integers(-1, 6, 60)
    history, statistics = History(), SlidingWindow(P, 7)
    play(statistics, seed, delays, history)
    since = 60 - 7
    np.testing.assert_array_equal(statistics.counts, [history.count(e, since) for e in range(E)])
    np.testing.assert_allclose(
        statistics.means, [history.mean(e, since) for e in range(E)], atol=1e-11
    )
    assert statistics.horizon(3) == 3
    assert statistics.horizon(1000) == 7


@pytest.mark.parametrize("seed", range(4))
def test_discounted_statistics(seed):
    delays = np.random.default_rng(seed).integers(-1, 6, 60)
    history, statistics = History(), Discounted(P, 0.9)
    play(statistics, seed, delays, history)
    expected = [history.discounted(e, 59, 0.9) for e in range(E)]
    np.testing.assert_allclose(statistics.counts, [w for w, _ in expected], rtol=1e-9)
    np.testing.assert_allclose(statistics.means, [m for _, m in expected], rtol=1e-9)
    assert statistics.horizon(1e9) == pytest.approx(10)


@pytest.mark.parametrize("make", [Statistics, lambda p: SlidingWindow(p, 20)])
def test_the_order_of_arrival_leaves_no_trace(make):
    """Once all is told the state is that of prompt feedback, to the last bit."""
    prompt, late = make(P), make(P)
    play(prompt, 7, np.zeros(60, dtype=int))
    rest = play(late, 7, np.random.default_rng(0).integers(0, 15, 60))
    late.learn(rest[::-1])
    np.testing.assert_array_equal(prompt.counts, late.counts)
    np.testing.assert_array_equal(prompt.means, late.means)


def test_fading_hardly_minds_the_order():
    prompt, late = Discounted(P, 0.95), Discounted(P, 0.95)
    play(prompt, 7, np.zeros(60, dtype=int))
    late.learn(play(late, 7, np.random.default_rng(0).integers(0, 15, 60)))
    np.testing.assert_allclose(prompt.means, late.means, rtol=1e-12)


def test_memory_does_not_grow():
    statistics = [Statistics(P), SlidingWindow(P, 30), Discounted(P, 0.9)]
    sizes = []
    for slots in (100, 1000):
        for each in statistics:
            each.__init__(P, *([30] if isinstance(each, SlidingWindow) else
                               [0.9] if isinstance(each, Discounted) else []))  # fmt: skip
            play(each, 1, np.zeros(slots, dtype=int))
        sizes.append([len(pickle.dumps(each)) for each in statistics])
    assert max(abs(a - b) for a, b in zip(*sizes)) < 16


@pytest.mark.parametrize("make", [Statistics, lambda p: SlidingWindow(p, 5),
                                  lambda p: Discounted(p, 0.9)])  # fmt: skip
@pytest.mark.parametrize(
    ("slot", "channels", "utilities", "message"),
    [
        (1, [0, 3], [0.5, 0.5], r"slot 1: channel \('job-type-3' on 'server-3'\) was not on"),
        (1, [0, 1], [0.5, np.nan], r"slot 1: channel \('job-type-1' on 'server-1'\) .* nan"),
        (1, [0, 1], [0.5, 1.2], r"slot 1: channel \('job-type-1' on 'server-1'\) .* 1.2"),
        (1, [0, 1], [-0.1, 0.2], r"slot 1: channel \('job-type-0' on 'server-0'\) .* -0.1"),
        (1, [1, 1], [0.5, 0.5], r"slot 1: channel \('job-type-1' on 'server-1'\) is told twice"),
        (1, [0, 9], [0.5, 0.5], r"slot 1: there is no channel 9; there are 5"),
        (1, [0, -1], [0.5, 0.5], r"slot 1: there is no channel -1"),
        (1, [0, 1], [0.5], r"slot 1: \(2,\) channels and \(1,\) utilities"),
        (2, [0], [0.5], "slot 2: the last slot decided is 1"),
        (-1, [0], [0.5], "slot -1: the last slot decided is 1"),
    ],
)
def test_bad_feedback_is_refused_and_changes_nothing(make, slot, channels, utilities, message):
    statistics = make(P)
    on = np.array([True, True, True, False, False])
    statistics.decided(0, on)
    statistics.learn([Feedback(0, np.array([0, 1, 2]), np.array([0.1, 0.2, 0.3]))])
    statistics.decided(1, on)
    before = pickle.dumps(statistics)
    with pytest.raises(ScenarioError, match=message):
        statistics.learn([Feedback(slot, np.array(channels), np.array(utilities))])
    assert pickle.dumps(statistics) == before
    statistics.learn([Feedback(1, np.array([0, 1, 2]), np.array([0.3, 0.2, 0.1]))])
    np.testing.assert_array_equal(statistics.counts > 1, on)


def test_feedback_that_comes_twice_is_refused():
    statistics = Statistics(P)
    statistics.decided(0, np.ones(E, dtype=bool))
    feedback = Feedback(0, np.arange(E), np.full(E, 0.5))
    statistics.learn([feedback])
    with pytest.raises(ScenarioError, match="was told already"):
        statistics.learn([feedback])


@pytest.mark.parametrize("make", [lambda: Discounted(P, 1.0), lambda: SlidingWindow(P, 0)])
def test_bad_memories(make):
    with pytest.raises(ScenarioError, match="must"):
        make()
