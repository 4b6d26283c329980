"""Rate processes against closed forms, and the contract of streams."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import stats

from gangwise import ScenarioError
from gangwise.papers.approximation_jobs.problem import GammaPeriods

PROCESSES = {
    "gamma": GammaPeriods(7),
    "gamma, per period": GammaPeriods(7, per_period=True, time_scale=3.0, stationary=False),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_draws_do_not_depend_on_how_they_are_asked_for(name):
    whole = PROCESSES[name].stream(np.random.default_rng(3)).draw(300)
    stream = PROCESSES[name].stream(np.random.default_rng(3))
    parts = [stream.draw(1), stream.draw(63), stream.draw(0), stream.draw(70)]
    stream = pickle.loads(pickle.dumps(stream))
    parts.append(stream.draw(166))
    assert np.array_equal(np.concatenate(parts), whole)
    assert whole.shape == (300, PROCESSES[name].size)
    assert whole.min() >= 0
    assert whole.max() <= 1


@pytest.mark.parametrize("name", PROCESSES)
def test_means_are_what_is_drawn(name):
    process = PROCESSES[name]
    runs = [
        process.stream(np.random.default_rng(seed)).draw(1000).mean(axis=0) for seed in range(40)
    ]
    error = np.std(runs, axis=0) / np.sqrt(len(runs)) + 1e-3
    if name == "gamma, per period":  # begins available, on purpose
        assert (np.mean(runs, axis=0) > process.means - 5 * error).all()
    else:
        assert (np.abs(np.mean(runs, axis=0) - process.means) < 5 * error).all()


def test_closed_forms_of_section_six():
    process = GammaPeriods(1)
    up, down = stats.gamma(process.up[0], scale=process.up[1]), stats.gamma(0.19, scale=39.92)
    assert up.mean() == pytest.approx(32.079)
    assert down.mean() == pytest.approx(7.5848)
    assert process.availability == pytest.approx(0.8087727348362991, abs=1e-15)
    assert process.means[0] == pytest.approx(0.6970181878690392, abs=1e-15)
    # Half of the unavailable periods are shorter than a slot, as drawn:
    stream = process.stream(np.random.default_rng(0))
    for state, law, share in ((True, up, 0.2382), (False, down, 0.5368)):
        assert law.cdf(1) == pytest.approx(share, abs=1e-4)
        lengths = stream._lengths(np.full(40_000, state))
        assert (lengths < 1).mean() == pytest.approx(share, abs=0.012)
        biased = stream._lengths(np.full(40_000, state), biased=1).mean()
        assert biased == pytest.approx(126.43 if state else 47.50, rel=0.03)


def test_a_stationary_start_is_in_a_length_biased_period():
    """The rate of the first slot lasts while the period under way does: P(left > t) is known."""
    process = GammaPeriods(20_000, per_period=True)
    rates = process.stream(np.random.default_rng(1)).draw(60)
    for up, k, theta in ((True, 0.34, 94.35), (False, 0.19, 39.92)):
        mine = rates[:, (rates[0] > 0.4) == up]
        same = (mine == mine[0]).mean(axis=1)
        t = np.arange(60)  # from the midpoint of slot 0 to that of slot t, still stationary
        longer, biased = stats.gamma(k, scale=theta).sf(t), stats.gamma(k + 1, scale=theta).sf(t)
        assert np.abs(same - (biased - t / (k * theta) * longer)).max() < 0.03
    assert (rates[0] > 0.4).mean() == pytest.approx(process.availability, abs=0.01)
    assert (rates[59] > 0.4).mean() == pytest.approx(process.availability, abs=0.01)


def test_other_starts_and_rates():
    fresh = GammaPeriods(2000, stationary=False).stream(np.random.default_rng(0)).draw(1)
    # It begins an available period at time 0; at the midpoint it may be over already.
    over = stats.gamma(0.34, scale=94.35).cdf(0.5)
    assert (fresh < 0.4).mean() <= over
    assert (fresh > 0.4).mean() > 0.85
    slow = GammaPeriods(500, time_scale=1000.0).stream(np.random.default_rng(0)).draw(200)
    changes = ((slow[1:] > 0.4) != (slow[:-1] > 0.4)).mean()
    # Two changes per mean cycle of 39.66 units, less those within a slot.
    assert 0 < changes < 2 / 39660 * 1.2
    assert (np.abs(np.diff(slow, axis=0)) > 0).mean() > 0.99  # a rate per slot
    drawn = GammaPeriods(300).stream(np.random.default_rng(0)).draw(300)
    up = drawn > 0.4
    assert stats.kstest(drawn[up], "uniform", (0.7, 0.3)).pvalue > 1e-3
    assert stats.kstest(drawn[~up], "uniform", (0.0, 0.1)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GammaPeriods(0), "machines is 0"),
        (lambda: GammaPeriods(2, up=(0.0, 1.0)), "of up is"),
        (lambda: GammaPeriods(2, up_rate=(0.7, 1.1)), "up_rate"),
        (lambda: GammaPeriods(2, time_scale=0.0), "time_scale"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ScenarioError, match=message):
        make()
