"""opm-default-v1: what it draws, and that a comparison keeps the order of things."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gangwise import compare, create_policy, create_scenario
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.simulation import simulate
from gangwise.papers.approximation_jobs.problem import load_of


def test_the_same_seed_draws_the_same_instance_and_load_is_what_it_says():
    scenario = create_scenario("opm-default-v1:machines=30,slots=800,load=2.0")
    (rates, jobs), (again, same) = (scenario.instance(3).history(800, 3) for _ in range(2))
    np.testing.assert_array_equal(rates, again)
    assert jobs == same
    instance = scenario.instance(3)
    load = load_of(jobs, instance.problem.prices, 800)
    assert 2.0 <= load < 2.0 + max(j.budget for j in jobs) / (800 * instance.problem.prices.sum())
    assert len(set(instance.problem.prices.tolist())) == 1


def test_realised_prices_are_twice_what_each_machine_does_in_the_run():
    instance = create_scenario("opm-default-v1:machines=9,slots=300,pricing=realised").instance(5)
    rates, _ = instance.history(300, 5)
    np.testing.assert_allclose(instance.problem.prices, 2.0 * rates.mean(axis=0), rtol=1e-12)


@pytest.mark.full
def test_comparison_of_everything():
    names = [
        "opm",
        "opm-as-printed",
        "opm-without-estimation",
        "fair",
        "deadline-aware",
        "utility-per-price",
        "ops",
    ]
    comparison = compare("opm-default-v1:machines=20,slots=400", names, seeds=[0, 1])
    summary = json.loads(json.dumps(comparison.as_dict(), allow_nan=False))
    assert {p["name"] for p in summary["policies"]} == set(names)
    assert [c["name"] for c in summary["comparators"]] == ["known_means", "known_rates"]
    shares = {p["name"]: p["share_of_optimum"] for p in summary["policies"]}
    assert 0 < min(shares.values()) <= max(shares.values()) <= 1.0 + 1e-9
    assert shares["opm"] > max(shares["opm-as-printed"], shares["fair"])
    assert shares["ops"] == min(shares.values())


def test_without_comparators():
    comparison = compare(
        "opm-default-v1:machines=9,slots=60", ["fair", "opm"], seeds=[0, 1], comparators=()
    )
    summary = comparison.as_dict()
    assert summary["comparators"] == []
    assert all(p["share_of_optimum"] is None for p in summary["policies"])


@pytest.mark.full
def test_estimates_that_forget_earn_more_where_budgets_are_short():
    # Load 0.6: 1.077 ± 0.002 over Fair at 100 machines and 5000 slots; printed 1.007.
    scenario = create_scenario("opm-default-v1:machines=40,slots=2000,load=0.6")
    earned = {}
    for name in ("fair", "opm", "opm-as-printed"):
        runs = [simulate(scenario.instance(s), create_policy(name), 2000, s) for s in (0, 1)]
        earned[name] = np.mean([run.mean_reward for run in runs])
    assert earned["opm"] > 1.05 * earned["fair"]
    assert abs(earned["opm-as-printed"] / earned["fair"] - 1.0) < 0.03


def test_settings_are_checked():
    with pytest.raises(UnknownName, match="machines"):
        create_scenario("opm-default-v1:machine=4")
    with pytest.raises(ScenarioError, match="beta"):
        create_scenario("opm-default-v1:beta=1.5")
