"""The built-in scenarios draw what they state, and `compare` runs on them."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from gangwise import ScenarioError, UnknownName, compare, create_policy, create_scenario, simulate
from gangwise.papers.fluctuating_speeds.problem import (
    BernoulliSpeeds,
    PiecewiseSpeeds,
    WavingSpeeds,
)


def test_distributions_are_those_of_table_3():
    scenario = create_scenario("esdp-default-v1")
    assert scenario.slots == 2000
    instances = [scenario.instance(seed) for seed in range(60)]
    problems = [i.problem for i in instances]
    assert {(p.L, len(p.cluster.servers), p.cluster.devices) for p in problems} == {
        (8, 40, ("cpu", "mem", "gpu"))
    }
    assert np.mean([p.E for p in problems]) == pytest.approx(8 * 40 * 0.1, rel=0.06)
    requests = np.concatenate([p.requests for p in problems])
    assert set(np.unique(requests)) == {1.0, 2.0}
    assert requests.mean() == pytest.approx(1.5, abs=0.02)
    for p in problems:
        np.testing.assert_array_equal(p.cluster.capacity, (0.5 * p.requests.sum(axis=0)).round())
        price = np.linalg.lstsq(p.requests, p.cost, rcond=None)[0]
        np.testing.assert_allclose(p.requests @ price, p.cost, rtol=1e-9)  # linear
        assert price.min() > 0
    mean = np.concatenate([i.speeds.mean for i in instances])
    assert 0.1 <= mean.min() < 0.11
    assert 0.99 < mean.max() <= 1.0
    assert mean.mean() == pytest.approx(0.55, abs=0.02)
    shares = [i.problem.cost.mean() / i.speeds.mean.mean() for i in instances]
    np.testing.assert_allclose(shares, 0.3)
    arrivals, utilities = instances[0].history(5000, 0)
    assert arrivals.mean() == pytest.approx(0.9, abs=0.01)
    assert utilities.min() == 0.0
    assert utilities.max() == 1.0


def test_other_readings_of_the_capacity():
    literal = create_scenario("esdp-default-v1:capacity=literal")
    drawn = np.array([literal.instance(s).problem.cluster.capacity for s in range(40)])
    assert set(np.unique(drawn)) == {1.0, 2.0}
    normal = create_scenario("esdp-default-v1:capacity=normalised").instance(1).problem
    assert (normal.cluster.capacity >= 0.5 * normal.E - 1).all()
    assert (normal.cluster.capacity <= normal.E + 1).all()


def test_costs_as_printed_leave_nothing_to_gain():
    with pytest.raises(ScenarioError, match="channel"):
        create_scenario("esdp-default-v1:cost_share=None,spread=0.1").instance(0)
    per_channel = create_scenario("esdp-default-v1:cost=per-channel").instance(0).problem
    by_request = [per_channel.cost[(per_channel.requests == 1).all(axis=1)]]
    assert np.unique(by_request).size > 1  # not a function of the request


def test_speeds_by_name():
    kinds = {
        name: create_scenario(f"esdp-default-v1:speeds={name}").instance(0).speeds
        for name in ("bernoulli", "beta", "jumping", "waving")
    }
    assert isinstance(kinds["bernoulli"], BernoulliSpeeds)
    assert isinstance(kinds["jumping"], PiecewiseSpeeds)
    assert kinds["jumping"].begins.tolist() == [0, 1000]
    assert isinstance(kinds["waving"], WavingSpeeds)
    assert np.unique(kinds["waving"].phase).size > 10


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("fraction", (0.1, 0.8)),
        ("rho", (0.3, 1.0)),
        ("density", (0.05, 0.3)),
        ("job_types", (4, 12)),
        ("servers", (20, 120)),
    ],
)
def test_what_figures_vary_can_be_played(setting, values):
    """Figs. 6 and 9 to 12 of ESDP."""
    for value in values:
        scenario = create_scenario("esdp-default-v1", **{setting: value})
        assert simulate(scenario.instance(0), create_policy("hauf"), 3, 0).slots == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("mean=(0.5,0.1)", "mean is"),
        ("mean=(0.5,2),speeds=bernoulli", "mean must not exceed 1"),
        ("rho=1.5", "rho"),
        ("speeds=fast", "speeds"),
        ("delay=0.5", "whole number"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ScenarioError, match=message):
        create_scenario(f"esdp-default-v1:{settings}").instance(0)


def test_a_misspelt_setting_is_recognised():
    with pytest.raises(UnknownName, match="density"):
        create_scenario("esdp-default-v1:densty=0.2")


def test_the_same_seed_draws_the_same_instance():
    a, b = (create_scenario("esdp-default-v1").instance(3) for _ in range(2))
    np.testing.assert_array_equal(a.problem.cost, b.problem.cost)
    np.testing.assert_array_equal(a.history(50, 3)[1], b.history(50, 3)[1])


def test_compare_keeps_to_the_json_contract(tmp_path):
    comparison = compare(
        "esdp-default-v1:servers=12", ["esdp", "hauf", "random-channels"], 120, [0, 1], out=tmp_path
    )
    printed = json.loads(json.dumps(comparison.as_dict(), allow_nan=False))
    assert (printed["scenario"], printed["family"]) == ("esdp-default-v1", "fluctuating_speeds")
    assert printed["policies"][0]["name"] == "esdp"
    for policy in printed["policies"]:
        assert set(policy["regret"]) == {"omniscient", "omniscient_realised"}
        welfare = {"jobs_utility", "cluster_utility"}  # both sides of the preprint's (payments)
        slots = {"mean_utility", "gain", "cost", "jobs", "channels"}
        assert set(policy["metrics"]) == slots | welfare
        assert 0 < policy["share_of_optimum"] < 1.1
        assert math.isfinite(policy["mean_reward"])
        assert policy["us_per_slot"] > 0
    assert [c["name"] for c in printed["comparators"]] == ["omniscient", "omniscient_realised"]
    for comparator in printed["comparators"]:
        assert comparator["slots_evaluated"] == 120
        assert 0 <= comparator["relative_gap"] < 1e-6


def test_policies_of_other_families_are_refused():
    with pytest.raises(ScenarioError, match="family gain_overhead"):
        compare("esdp-default-v1", ["drf"], 2, [0])


def test_importing_gangwise_loads_nothing_heavy():
    code = (
        "import sys, gangwise\n"
        "heavy = {'numba', 'scipy', 'polars', 'pydantic', 'gangwise.papers.fluctuating_speeds'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
