"""Rate processes against closed forms, and the contract of streams."""

from __future__ import annotations

import csv
import gzip
import pickle

import numpy as np
import pytest
from scipy import stats

from gangwise import ScenarioError
from gangwise.approximation_jobs.rates import (
    GammaPeriods,
    MarkovRates,
    MeasuredRates,
    Removals,
    UniformRates,
)
from gangwise.traces.formats.measured_speeds import MiniBatchTime

CHAIN = np.array([[0.8, 0.15, 0.05], [0.3, 0.6, 0.1], [0.5, 0.0, 0.5]])
PROCESSES = {
    "gamma": GammaPeriods(7),
    "gamma, per period": GammaPeriods(7, per_period=True, time_scale=3.0, stationary=False),
    "uniform": UniformRates([0.0, 0.5], [0.5, 1.0]),
    "markov": MarkovRates(5, CHAIN, [0.8, 0.3, 0.0], [1.0, 0.5, 0.1]),
    "measured": MeasuredRates(4, np.arange(30).reshape(10, 3) / 30),
    "removals": Removals(GammaPeriods(6), mean_present=20, mean_away=5),
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


def test_the_chain_moves_as_it_says():
    process = MarkovRates(200, CHAIN, [0.9, 0.5, 0.1], [0.9, 0.5, 0.1])
    assert process.stationary @ CHAIN == pytest.approx(process.stationary)
    drawn = process.stream(np.random.default_rng(0)).draw(2000)
    state = np.searchsorted([0.4, 0.8], drawn)  # 0: 0.1, 1: 0.5, 2: 0.9
    state = 2 - state
    for a in range(3):
        from_a = state[1:][state[:-1] == a]
        seen = np.bincount(from_a, minlength=3) / from_a.size
        assert seen == pytest.approx(CHAIN[a], abs=0.01)
    assert (state[0] == 0).mean() == pytest.approx(process.stationary[0], abs=0.12)


def test_machines_go_and_return():
    process = Removals(UniformRates(np.full(50, 0.6), np.full(50, 0.6)), 40.0, 10.0)
    here = process.stream(np.random.default_rng(2)).draw(8000) > 0
    assert here.mean() == pytest.approx(0.8, abs=0.02)
    leaves, returns = (here[:-1] & ~here[1:]).sum(), (~here[:-1] & here[1:]).sum()
    assert here[:-1].sum() / leaves == pytest.approx(40, rel=0.06)
    assert (~here[:-1]).sum() / returns == pytest.approx(10, rel=0.06)


def test_measured_rates_go_round():
    table = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    drawn = MeasuredRates(4, table).stream(np.random.default_rng(0)).draw(9)
    for i in range(4):
        start = int(np.flatnonzero(table[:, i % 2] == drawn[0, i])[0])
        assert drawn[:, i].tolist() == np.roll(table[:, i % 2], -start).tolist() * 3


def test_measured_mini_batches(traces):
    folder = traces / "alibaba-gpu-v2020" / "mini-batch-time"
    files = sorted(folder.glob("job_4_norm.csv*"))
    if not files:
        pytest.skip("the real traces here do not include mini-batch-time")
    data = files[0].read_bytes()
    text = (gzip.decompress(data) if files[0].suffix == ".gz" else data).decode().splitlines()
    rows = [(int(r["worker"]), float(r["batch_time_norm"])) for r in csv.DictReader(text)]
    fastest = min(time for _, time in rows)
    speeds = [worker.speed for worker in MiniBatchTime(folder).workers if worker.job == "job-4"]
    shortest = min(speed.size for speed in speeds)
    rates = MeasuredRates(12, np.column_stack([speed[:shortest] for speed in speeds]), True)
    length = min(sum(w == worker for w, _ in rows) for worker in range(10))
    assert rates.table.shape == (length, 10)
    mine = [fastest / time for worker, time in rows if worker == 5][:length]
    assert rates.means[5] == pytest.approx(np.mean(mine))
    assert rates.means[10] == rates.means[0]
    assert rates.means[5] < 0.5 * rates.means[1]  # stragglers


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GammaPeriods(0), "at least one machine"),
        (lambda: GammaPeriods(2, up=(0.0, 1.0)), "up is"),
        (lambda: GammaPeriods(2, up_rate=(0.7, 1.1)), "up_rate"),
        (lambda: GammaPeriods(2, time_scale=0.0), "time_scale"),
        (lambda: UniformRates([0.5], [0.4]), "low ≤ high"),
        (lambda: MarkovRates(2, [[0.5, 0.4], [0, 1]], [0, 0], [1, 1]), "sum to 1"),
        (lambda: MarkovRates(2, [[1.0]], [0, 0], [1, 1]), "states"),
        (lambda: MeasuredRates(2, [[0.5, 1.5]]), "within"),
        (lambda: Removals(UniformRates([0], [1]), mean_away=0.5), "mean_away"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ScenarioError, match=message):
        make()
