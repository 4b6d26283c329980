from __future__ import annotations

import pickle

import numpy as np
import pytest

from gangwise import (
    BernoulliArrivals,
    BinomialArrivals,
    OnOffArrivals,
    ReplayedArrivals,
    ScenarioError,
)

KINDS = [
    BernoulliArrivals([0.2, 0.7, 1.0]),
    BinomialArrivals([0.5, 0.5, 0.1], [1, 4, 2]),
    OnOffArrivals(np.array([0.9, 0.9, 0.0]), 5.0, 15.0),
    ReplayedArrivals(np.arange(3000).reshape(1000, 3) % 5, keep=0.6),
]


@pytest.mark.parametrize("workload", KINDS, ids=lambda w: type(w).__name__)
def test_drawing_in_parts_is_drawing_at_once_and_streams_pickle(workload):
    whole = workload.stream(np.random.default_rng(4)).draw(300)
    stream = workload.stream(np.random.default_rng(4))
    first = stream.draw(7)
    rest = pickle.loads(pickle.dumps(stream)).draw(293)
    np.testing.assert_array_equal(np.concatenate([first, rest]), whole)
    assert whole.shape == (300, 3)
    assert (whole <= workload.most).all()


def test_frequencies():
    """OGASched (1)."""
    n = 40_000
    rng = np.random.default_rng(0)
    bernoulli = BernoulliArrivals([0.2, 0.7]).stream(rng).draw(n)
    np.testing.assert_allclose(bernoulli.mean(axis=0), [0.2, 0.7], atol=0.012)
    binomial = BinomialArrivals([0.3, 0.5], [1, 4]).stream(rng).draw(n)
    np.testing.assert_allclose(binomial.mean(axis=0), [0.3, 2.0], atol=0.03)
    np.testing.assert_allclose(binomial.var(axis=0), [0.21, 1.0], atol=0.03)
    kept = ReplayedArrivals(np.full((10, 1), 3), keep=0.5, repeat=True).stream(rng).draw(n)
    assert kept.mean() == pytest.approx(1.5, abs=0.03)


@pytest.mark.full
def test_bursts_have_the_stated_lengths():
    x = OnOffArrivals(np.array([1.0]), 10.0, 30.0).stream(np.random.default_rng(2)).draw(200_000)
    x = x.ravel()
    assert x.mean() == pytest.approx(0.25, abs=0.02)
    edges = np.flatnonzero(np.diff(x)) + 1
    runs = np.split(x, edges)[1:-1]
    assert np.mean([len(r) for r in runs if r[0] == 1]) == pytest.approx(10, rel=0.06)
    assert np.mean([len(r) for r in runs if r[0] == 0]) == pytest.approx(30, rel=0.06)


def test_replay_is_exact_and_ends_where_the_trace_ends():
    counts = np.array([[1, 0], [0, 2], [3, 0]])
    stream = ReplayedArrivals(counts).stream(np.random.default_rng(0))
    np.testing.assert_array_equal(stream.draw(2), counts[:2])
    np.testing.assert_array_equal(stream.draw(5), counts[2:])
    with pytest.raises(ScenarioError, match="3 slots"):
        stream.draw(1)
    again = ReplayedArrivals(counts, repeat=True).stream(np.random.default_rng(0)).draw(7)
    np.testing.assert_array_equal(again, counts[[0, 1, 2, 0, 1, 2, 0]])


@pytest.mark.parametrize(
    "make",
    [
        lambda: BernoulliArrivals([1.2]),
        lambda: BernoulliArrivals([np.nan]),
        lambda: BernoulliArrivals([[0.5, 0.5]]),
        lambda: BinomialArrivals([0.5, 0.5, 0.5], [1, 2]),
        lambda: BinomialArrivals([0.5], [0]),
        lambda: BinomialArrivals([0.5], [1.5]),
        lambda: OnOffArrivals(np.array([0.5]), 0.5),
        lambda: ReplayedArrivals(np.array([[-1]])),
        lambda: ReplayedArrivals(np.array([[0.5, 1.0]])),
        lambda: ReplayedArrivals(np.array([[np.nan, 1.0]])),
        lambda: ReplayedArrivals(np.empty((0, 2))),
        lambda: ReplayedArrivals(np.array([[1]]), keep=-0.1),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(ScenarioError):
        make()
