"""Memories against the whole history, in any order of arrival."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from gangwise import ScenarioError
from gangwise.papers.estimators import Discounted, Memory, SlidingWindow, make_memory
from tests.reference import estimators as plain

N, SLOTS = 5, 60
MEMORIES = {
    "all": (Memory, plain.everything),
    "discounted": (lambda: Discounted(0.9), plain.discounted(0.9)),
    "undiscounted": (lambda: Discounted(1.0), plain.everything),
    "window": (lambda: SlidingWindow(7), plain.window(7)),
}
each_memory = pytest.mark.parametrize("name", list(MEMORIES))


def story(seed, slots=SLOTS):
    """What each slot would tell; values sit on a level that jumps, 0 and 1 among them."""
    rng = np.random.default_rng(seed)
    for t in range(slots):
        arms = np.flatnonzero(rng.random(N) < 0.5)
        level = 0.8 if (t // 15) % 2 else 0.1
        yield t, arms, np.clip(level + 0.3 * rng.standard_normal(arms.size), 0.0, 1.0)


def play(memory, seed, delays, history=None):
    """Deliver slot t after delays[t] slots, latest first; below 0 never. Returns what is due."""
    memory.start(N)
    waiting = []
    for t, arms, values in story(seed, len(delays)):
        memory.advance(t)
        if delays[t] >= 0:
            waiting.append((t + delays[t], t, arms, values))
        for due, *told in reversed(waiting):
            if due <= t:
                memory.learn(*told)
                if history is not None:
                    history.add(*told)
        waiting = [w for w in waiting if w[0] > t]
    return [told for _, *told in waiting]


@each_memory
@pytest.mark.parametrize("seed", range(2))
def test_sums_are_those_of_the_history(name, seed):
    make, plainly = MEMORIES[name]
    memory, history = make(), plain.History()
    play(memory, seed, np.random.default_rng(seed).integers(-1, 6, SLOTS), history)
    memory.advance(SLOTS + 2)
    expected = np.array([plainly(history, e, SLOTS + 2) for e in range(N)])
    np.testing.assert_allclose(memory.weights, expected[:, 0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(memory.totals, expected[:, 1], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(memory.counts, expected[:, 0], rtol=1e-9, atol=1e-12)
    mean = expected[:, 1] / np.maximum(expected[:, 0], 1e-300)
    np.testing.assert_allclose(memory.means, mean, rtol=1e-9, atol=1e-11)
    a, b = memory.posterior
    np.testing.assert_allclose(a, 1.0 + expected[:, 1], rtol=1e-9)
    np.testing.assert_allclose(b, 1.0 + expected[:, 0] - expected[:, 1], rtol=1e-9)


@pytest.mark.parametrize("make", [Memory, lambda: SlidingWindow(20)])
def test_the_order_of_arrival_leaves_no_trace(make):
    """Once all is told memory is that of prompt feedback, to the last bit."""
    prompt, late = make(), make()
    play(prompt, 7, np.zeros(SLOTS, dtype=int))
    for told in play(late, 7, np.random.default_rng(0).integers(0, 15, SLOTS))[::-1]:
        late.learn(*told)
    np.testing.assert_array_equal(prompt.counts, late.counts)
    np.testing.assert_array_equal(prompt.means, late.means)


def test_fading_hardly_minds_the_order():
    prompt, late = Discounted(0.95), Discounted(0.95)
    play(prompt, 7, np.zeros(SLOTS, dtype=int))
    for told in play(late, 7, np.random.default_rng(0).integers(0, 15, SLOTS)):
        late.learn(*told)
    np.testing.assert_allclose(prompt.means, late.means, rtol=1e-12)


def test_what_has_faded_is_not_known():
    memory = Discounted(0.5)
    memory.start(2)
    memory.learn(0, np.array([1]), np.array([0.8]))
    memory.advance(9)  # 2⁻⁸
    assert memory.counts[1] > 0
    assert memory.means[1] == pytest.approx(0.8)
    memory.advance(11)  # 2⁻¹⁰, less than a thousandth of a play
    assert memory.counts.tolist() == memory.means.tolist() == [0.0, 0.0]


def test_horizons():
    assert Memory().horizon(40) == Discounted(1.0).horizon(40) == 40
    assert SlidingWindow(7).horizon(3) == 3
    assert SlidingWindow(7).horizon(1000) == 7
    assert Discounted(0.9).horizon(1) == pytest.approx(1)
    assert Discounted(0.9).horizon(1e9) == pytest.approx(10)


@each_memory
def test_memory_does_not_grow(name):
    make, _ = MEMORIES[name]
    sizes = []
    for slots in (100, 1000):
        memory = make()
        play(memory, 1, np.zeros(slots, dtype=int))
        sizes.append(len(pickle.dumps(memory)))
    assert abs(sizes[1] - sizes[0]) < 16


@each_memory
@pytest.mark.parametrize(
    ("arms", "values", "message"),
    [
        ([0, 3], [0.5, np.nan], "slot 4: arm 3 of 5 has value nan"),
        ([0, 1], [0.5, 1.2], "slot 4: arm 1 of 5 has value 1.2"),
        ([0, 1], [-0.1, 0.2], "slot 4: arm 0 of 5 has value -0.1"),
        ([0, 5], [0.1, 0.2], "slot 4: arm 5 of 5"),
        ([-1], [0.1], "slot 4: arm -1 of 5"),
    ],
)
def test_bad_values_are_refused_and_change_nothing(name, arms, values, message):
    make, _ = MEMORIES[name]
    memory = make()
    play(memory, 1, np.zeros(4, dtype=int))
    before = pickle.dumps(memory)
    with pytest.raises(ScenarioError, match=message):
        memory.learn(4, np.array(arms), np.array(values))
    assert pickle.dumps(memory) == before


def test_by_name():
    assert type(make_memory("all")) is Memory
    assert make_memory("discounted", discount=0.5).discount == 0.5
    with pytest.raises(ScenarioError, match="everything"):
        make_memory("everything")


@pytest.mark.parametrize(
    "make", [lambda: Discounted(1.5), lambda: Discounted(0.0), lambda: SlidingWindow(0)]
)
def test_bad_memories(make):
    with pytest.raises(ScenarioError, match="must"):
        make()
