"""Drawn worlds and measured rates: what is drawn is what was asked for."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.jobs.model import Jobs
from gangwise.jobs.world import DrawnWorld, MeasuredWorld, rescaled, throughput_rates, world_of
from gangwise.logs.formats.training import GavelThroughputs

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
    drawn = world_of("like").draw(some_jobs(), 2000, {"gpu": 8}, 3)
    logs = np.log(drawn.conditions.rates)
    assert (logs - logs.mean(axis=1, keepdims=True)).std() == pytest.approx(0.03, rel=0.05)


def test_one_seed_is_one_world():
    jobs = some_jobs(200)
    one, other, third = (DrawnWorld().draw(jobs, 8, {"gpu": 8}, s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.conditions.rates, other.conditions.rates)
    assert not np.array_equal(one.conditions.rates, third.conditions.rates)


def test_drifting_stragglers_are_as_many_at_any_time():
    jobs = replace(some_jobs(10), submit=np.linspace(0, 40 * 86_400, 10))
    world = world_of("like:spell=43200")
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


def gavel(folder: Path) -> Path:
    """A table of two jobs, one of them on one and two GPUs, and one that does not run on a K80."""
    speeds = {
        "('LM', 1)": (1.0, 3.0, 4.0),
        "('LM', 2)": (2.0, 5.0, 8.0),
        "('GAN', 1)": (4.0, 2.0, 8.0),
        "('BIG', 1)": (0.0, 2.0, 8.0),
    }
    tables = {
        model: {job: {"null": each[m]} for job, each in speeds.items()}
        for m, model in enumerate(("k80", "p100", "v100"))
    }
    path = folder / "simulation_throughputs.json"
    path.write_text(json.dumps(tables))
    return path


def test_measured_models_become_nodes_and_their_rates(tmp_path: Path):
    world = world_of(f"measured:{gavel(tmp_path)},shares=(0.5,0.25,0.25),limits=(2,2)")
    assert isinstance(world, MeasuredWorld)
    jobs = some_jobs(400)
    drawn = world.draw(jobs, 8, {"gpu": 8}, 3)
    models = [labels["gpu-model"] for labels in drawn.nodes.labels]
    assert sorted(models) == ["k80"] * 4 + ["p100"] * 2 + ["v100"] * 2
    known = {(0.25, 0.75, 1.0), (0.25, 0.625, 1.0), (0.5, 0.25, 1.0)}  # by model, of V100's
    for row in drawn.conditions.rates:
        assert len({(m, r) for m, r in zip(models, row)}) == 3
        assert tuple(row[models.index(m)] for m in ("k80", "p100", "v100")) in known
    # Declared: geometric means of the three jobs measured on all models, 1 on the fastest.
    means = {"k80": (0.25 * 0.25 * 0.5) ** (1 / 3), "p100": (0.75 * 0.625 * 0.25) ** (1 / 3)}
    for model, rate in zip(models, drawn.nodes.rates):
        assert rate == pytest.approx(means.get(model, 1.0))
    np.testing.assert_array_equal(drawn.jobs.limit, 2 * jobs.run)
    assert world.capacity(8, 8) == pytest.approx(8 * sum(drawn.nodes.rates))
    assert "LM" not in world.describe()
    assert "3 training jobs" in world.describe()
    assert list(world.digests) == ["simulation_throughputs.json"]


def test_a_type_of_two_gpus_is_a_job_measured_on_two(tmp_path: Path):
    jobs = Jobs.of(submit=[0, 1, 2], run=60, tasks=1, demand={"gpu": [2, 2, 1]}, type="a")
    rates = MeasuredWorld(str(gavel(tmp_path))).draw(jobs, 6, {"gpu": 8}, 1).conditions.rates
    assert set(rates[0]) == {0.25, 0.625, 1.0}  # only LM was measured on two


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("measured", ScenarioError, "measured:PATH"),
        ("mars", UnknownName, "unlike"),
        ("like:straglers=0.1", UnknownName, "stragglers"),
        ("like:stragglers=many", ScenarioError, "many"),
        ("measured:FOLDER,shares=(1,1,1)", ScenarioError, "sum to 1"),
    ],
)
def test_worlds_that_do_not_exist_are_named(
    tmp_path: Path, name: str, error: type[Exception], words: str
):
    gavel(tmp_path)
    jobs = Jobs.of(submit=[0, 5e5], run=[50, 60])
    with pytest.raises(error, match=words):
        world_of(name.replace("FOLDER", str(tmp_path))).draw(jobs, 40, {"cpu": 1}, 0)


@pytest.mark.skipif(not TRACES.is_dir(), reason="GANGWISE_TRACES names no folder")
def test_real_tables_are_worlds():
    measured = world_of(f"measured:{TRACES / 'gavel-throughputs'}")
    assert "80 training jobs on K80, P100, V100" in measured.describe()
    jobs = some_jobs(300)
    rates = measured.draw(jobs, 16, {"gpu": 8}, 0).conditions.rates
    assert rates.shape == (8, 16)
    assert (rates.max(axis=1) == 1).all()
