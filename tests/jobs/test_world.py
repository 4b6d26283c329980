"""Drawn worlds and measured rates: what is drawn is what was asked for."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gangwise.core.errors import ScenarioError
from gangwise.jobs.model import Jobs
from gangwise.jobs.world import DrawnWorld, measured_factors, rescaled, throughput_rates
from gangwise.traces.formats.measured_speeds import GavelThroughputs, MiniBatchTime

TRACES = Path(os.environ.get("GANGWISE_TRACES", "nowhere"))


def some_jobs(J: int = 4000) -> Jobs:
    rng = np.random.default_rng(0)
    return Jobs.of(
        submit=np.sort(rng.uniform(5, 1000, J)),
        run=rng.lognormal(5, 1, J),
        tasks=rng.integers(1, 4, J),
        demand={"gpu": rng.integers(1, 3, J)},
        type=rng.integers(0, 8, J).astype(str),
    )


def test_a_drawn_world_has_the_moments_it_names():
    jobs = some_jobs()
    rates, noise, ratios = [], [], []
    for seed in range(40):
        drawn = DrawnWorld().draw(jobs, 64, {"gpu": 8}, seed)
        declared = drawn.nodes.declared(jobs.types)
        np.testing.assert_array_equal(declared[0], np.array([1, 0.6, 0.35])[drawn.generation])
        assert np.bincount(drawn.generation).tolist() == [26, 22, 16]
        assert drawn.stragglers.sum() == 4  # 6 % of 64
        slow = {n: f for t, n, f in drawn.conditions.factors if t == 0.0}
        assert slow == dict.fromkeys(np.flatnonzero(drawn.stragglers).tolist(), 0.5)
        rates.append(np.log(drawn.conditions.rates / declared))
        noise.append(np.log(drawn.conditions.noise))
        ratios.append(drawn.jobs.limit / jobs.run)
    logs = np.array(rates)
    assert logs.std() == pytest.approx(np.hypot(0.2, 0.03), rel=0.05)
    assert np.std(noise) == pytest.approx(0.1, rel=0.02)
    assert 1 <= np.min(ratios) < 1.01
    assert 4.99 < np.max(ratios) <= 5


def test_residuals_are_what_is_left_within_a_generation():
    drawn = DrawnWorld.alike().draw(some_jobs(), 2000, {"gpu": 8}, 3)
    logs = np.log(drawn.conditions.rates)
    assert (logs - logs.mean(axis=1, keepdims=True)).std() == pytest.approx(0.03, rel=0.05)


def test_one_seed_is_one_world():
    jobs = some_jobs(200)
    one, other, third = (DrawnWorld().draw(jobs, 8, {"gpu": 8}, s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.conditions.rates, other.conditions.rates)
    assert not np.array_equal(one.conditions.rates, third.conditions.rates)


def test_drifting_stragglers_are_as_many_at_any_time():
    jobs = replace(some_jobs(10), submit=np.linspace(0, 40 * 86_400, 10))
    world = replace(DrawnWorld.alike(), spell=12 * 3600.0)
    shares, lengths = [], []
    for seed in range(10):
        drawn = world.draw(jobs, 100, {"gpu": 8}, seed)
        for n in range(100):
            mine = [(t, f) for t, m, f in drawn.conditions.factors if m == n]
            mine = mine if mine and mine[0][0] == 0.0 else [(0.0, 1.0), *mine]
            times = np.array([t for t, _ in mine] + [40 * 86_400.0])
            slow = np.array([f < 1 for _, f in mine])
            spans = np.diff(np.minimum(times, 40 * 86_400.0))
            shares.append(spans[slow].sum() / (40 * 86_400.0))
            lengths += [b - a for (a, f), (b, _) in itertools.pairwise(mine[1:]) if f < 1]
    assert np.mean(shares) == pytest.approx(0.06, abs=0.008)
    assert np.mean(lengths) == pytest.approx(12 * 3600, rel=0.1)


def test_a_load_is_work_over_capacity_while_jobs_come():
    jobs, world = some_jobs(), DrawnWorld()
    scaled = rescaled(jobs, 0.8, world.capacity(64, 8))
    demand = np.array([s.demand[0] / 1000 for s in jobs.shapes])[jobs.shape]
    work = (jobs.run * jobs.tasks * demand).sum()
    span = scaled.submit[-1] - scaled.submit[0]
    assert work / (8 * (26 * 1 + 22 * 0.6 + 16 * 0.35)) / span == pytest.approx(0.8)
    stretch = np.diff(scaled.submit) / np.diff(jobs.submit)
    np.testing.assert_allclose(stretch, stretch[0], rtol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"shares": (0.5, 0.5)},
        {"shares": (0.4, 0.4, 0.4)},
        {"speeds": (1.0, 0.0, 0.3)},
        {"noise": -1.0},
        {"stragglers": 1.0},
        {"limits": (0.0, 5.0)},
    ],
)
def test_worlds_that_cannot_be_are_refused(wrong):
    with pytest.raises(ScenarioError):
        DrawnWorld(**wrong)


@pytest.mark.skipif(not TRACES.is_dir(), reason="GANGWISE_TRACES names no folder")
def test_measured_throughputs_become_rates():
    table = GavelThroughputs(TRACES / "gavel-throughputs" / "simulation_throughputs.json.gz")
    able = [j for j in table.jobs if all((m, j) in table.throughput for m in table.models)][:5]
    models = ["k80", "v100", "p100", "v100"]
    rates = throughput_rates(table, able, models)
    for l, job in enumerate(able):
        best = max(table.throughput[m, job] for m in table.models)
        for n, m in enumerate(models):
            assert rates[l, n] == pytest.approx(table.throughput[m, job] / best)


@pytest.mark.skipif(not TRACES.is_dir(), reason="GANGWISE_TRACES names no folder")
def test_mini_batch_times_are_played_in_their_order_with_workers_together():
    trace = MiniBatchTime(TRACES / "alibaba-gpu-v2020" / "mini-batch-time")
    speeds = [w.speed for w in trace.workers if w.job == "job-4"]
    W, length = len(speeds), min(s.size for s in speeds)
    block = 20
    factors = measured_factors(trace, "job-4", W, block, block * 6.0)
    played = np.array([f for _, _, f in factors]).reshape(6, W)
    table = np.stack([s[: length // block * block].reshape(-1, block).mean(axis=1) for s in speeds])
    np.testing.assert_allclose(played, (table / table.mean()).T[:6])
    assert [t for t, _, _ in factors[::W]] == [block * i for i in range(6)]
    with pytest.raises(ScenarioError, match="job-4"):
        measured_factors(trace, "job-99", 2, 10.0, 100.0)
