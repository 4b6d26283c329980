"""What a page shows of a run that is played again, against what the run says of itself."""

import math

import numpy as np
import pytest

import gangwise
from gangwise.experiments.compare import Comparison
from gangwise.report import again
from gangwise.report.again import run_figures, watched

SMALL = {
    "ogasched-default-v1:servers=8,job_types=4": ("greedy", "ogasched-reserve"),
    "esdp-default-v1:servers=8": ("esdp", "lcf"),
    "opm-default-v1": ("fair", "deadline-aware"),
    "ogasched-gang-v1:job_types=3,servers=8": ("gang-drf", "gang-binpacking"),
    "esdp-gang-small-v1": ("gang-first-fit", "gang-means"),
}


def played(scenario: str) -> Comparison:
    return gangwise.compare(scenario, list(SMALL[scenario]), slots=30, seeds=[2], comparators=[])


def test_devices_given_are_those_of_the_utilisation() -> None:
    """The environment measures the mean over servers and device types by itself."""
    instance = gangwise.create_scenario("ogasched-default-v1:servers=8").instance(2)
    record, rewards = watched(instance, gangwise.create_policy("greedy"), 30, 2)
    run = gangwise.simulate(instance, gangwise.create_policy("greedy"), 30, 2)
    assert np.array_equal(rewards, run.rewards)
    types = (instance.problem.cluster.capacity > 0).sum(axis=1)
    blocks = (record.used * types[:, None]).sum(axis=0) / types.sum()
    assert blocks == pytest.approx(run.metrics["utilisation"], abs=1e-9)
    assert (record.given <= record.asked + 1e-9).all()


def test_measured_means_of_channels_come_near_the_truth() -> None:
    instance = gangwise.create_scenario("esdp-default-v1:servers=8").instance(1)
    record, _ = watched(instance, gangwise.create_policy("random-channels"), 1500, 1)
    seen = record.count > 200
    assert seen.any()
    apart = record.total[seen] / record.count[seen] - record.true[seen] / record.count[seen]
    assert np.abs(apart).max() < 0.1
    run = gangwise.simulate(instance, gangwise.create_policy("random-channels"), 1500, 1)
    assert record.count.sum() == run.metrics["channels"].sum()
    assert record.total.sum() == pytest.approx(run.rewards.sum())


@pytest.mark.parametrize(
    ("scenario", "policy"),
    [
        ("ogasched-gang-v1:job_types=4,servers=8", "gang-binpacking"),
        ("esdp-gang-small-v1", "gang-first-fit"),
    ],
)
def test_gangs_hold_what_the_environment_measures(scenario: str, policy: str) -> None:
    instance = gangwise.create_scenario(scenario).instance(2)
    record, rewards = watched(instance, gangwise.create_policy(policy), 200, 2)
    run = gangwise.simulate(instance, gangwise.create_policy(policy), 200, 2)
    assert np.array_equal(rewards, run.rewards)
    types = (instance.problem.cluster.capacity > 0).sum(axis=1)
    assert 0 < record.used.mean() < 1
    blocks = (record.used * types[:, None]).sum(axis=0) / types.sum()
    assert blocks == pytest.approx(run.metrics["utilisation"], abs=1e-9)
    assert (record.given <= record.asked + 1e-9).all()
    nothing = run.metrics["launched"] == 0
    assert (record.given[:, nothing] == 0).all()
    assert (record.given[:, ~nothing].sum(axis=0) > 0).all()
    if record.arms:  # a channel tells once what it brings, however many tasks are there
        true = record.true / np.maximum(record.count, 1)
        assert record.count.sum() <= run.metrics["tasks"].sum()
        often = record.count > 60
        assert often.any()
        assert np.abs((record.total / np.maximum(record.count, 1) - true)[often]).max() < 0.2


@pytest.mark.full
@pytest.mark.parametrize("scenario", SMALL)
def test_every_family_shows_its_servers(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "SECONDS", math.inf)  # however busy this machine is
    titles = [drawn.title for drawn in run_figures(played(scenario))]
    assert titles[0] == "How much of each server was given over time"
    assert ("Requested and given" in titles) == (not scenario.startswith("opm"))
    assert ("Learned against true" in titles) == (not scenario.startswith("ogasched"))
    assert len(titles) >= 2


def test_another_run_than_the_stored_one_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "ogasched-default-v1:servers=8,job_types=4"
    comparison, other = played(name), gangwise.create_scenario(name).instance(3)
    monkeypatch.setattr(type(comparison.scenario), "instance", lambda self, seed: other)
    assert run_figures(comparison) == []


def test_a_map_has_every_server_and_its_mean_over_bins() -> None:
    name = "ogasched-default-v1:servers=8,job_types=4"
    comparison = played(name)
    picture = run_figures(comparison)[0]
    best = gangwise.create_policy(picture.caption.removeprefix("One run: ").split(",")[0])
    record, _ = watched(comparison.scenario.instance(2), best, 30, 2)
    assert picture.numbers is not None
    found = picture.numbers["mean"].to_numpy().reshape(8, 30)
    assert np.allclose(found, record.used)
    assert picture.numbers["line"].unique(maintain_order=True).to_list() == list(record.servers)
    assert "<image" in picture.plots[0]
