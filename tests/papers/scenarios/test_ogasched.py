"""The built-in scenarios draw what they state."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise import ScenarioError, UnknownName, create_policy, create_scenario, simulate


def test_distributions_are_as_stated():
    scenario = create_scenario("ogasched-default-v1")
    problems = [scenario.instance(seed).problem for seed in range(40)]
    capacity = np.concatenate([p.cluster.capacity for p in problems])
    assert capacity.shape == (40 * 128, 6)
    np.testing.assert_array_equal(capacity.max(axis=0), [24, 48, 16, 16, 16, 8])
    np.testing.assert_array_equal(capacity.min(axis=0), 0)
    np.testing.assert_allclose(capacity.mean(axis=0), [12, 24, 8, 8, 8, 4], rtol=0.03)
    requests = np.concatenate([p.requests for p in problems]) / 10  # contention level 10
    np.testing.assert_array_equal(requests, requests.round())
    np.testing.assert_allclose(requests.mean(axis=0), [12, 24, 8, 8, 8, 4], rtol=0.15)
    density = np.mean([len(p.channels) / 128 for p in problems])
    assert density == pytest.approx(2.5, rel=0.03)
    alpha = np.concatenate([p.utilities.alpha.ravel() for p in problems])
    assert (alpha.min(), alpha.max()) == (pytest.approx(1, abs=0.01), pytest.approx(1.5, abs=0.01))
    beta = np.concatenate([p.overhead for p in problems])
    assert 0.3 <= beta.min() < 0.31
    assert 0.49 < beta.max() <= 0.5
    kinds = np.bincount(np.concatenate([p.utilities.kind.ravel() for p in problems]))
    np.testing.assert_allclose(kinds / kinds.sum(), 0.25, atol=0.01)
    arrivals = scenario.instance(0).arrivals(20_000, 0)
    np.testing.assert_allclose(arrivals.mean(axis=0), 0.7, atol=0.015)


def test_authors_ranges():
    problems = [create_scenario("ogasched-authors-v2").instance(seed).problem for seed in range(40)]
    capacity = np.concatenate([p.cluster.capacity for p in problems])
    requests = np.concatenate([p.requests for p in problems]) / 10
    assert capacity.min(axis=0).tolist() == [1, 2, 0, 0, 0, 0]
    assert capacity.max(axis=0).tolist() == [128, 512, 64, 8, 8, 4]
    assert (capacity == np.round(capacity)).all()
    assert (requests != np.round(requests)).mean() > 0.99
    assert (requests.min(axis=0) >= [1, 2, 0, 0, 0, 0]).all()
    np.testing.assert_allclose(requests.mean(axis=0), [64.5, 257, 32, 4, 4, 2], rtol=0.1)
    with pytest.raises(ScenarioError, match="number"):
        create_scenario("ogasched-default-v1", least=[30, 0, 0, 0, 0, 0])


def test_several_jobs_of_a_type_in_a_slot_get_a_port_each():
    instance = create_scenario(
        "ogasched-default-v1", servers=10, job_types=3, arrivals="multiple", most_jobs=4, rho=0.5
    ).instance(0)
    assert instance.base.L == 3
    assert instance.problem.L == 12
    assert instance.problem.job_types[4:6] == ("job-type-1#1", "job-type-1#2")
    np.testing.assert_array_equal(instance.problem.requests[4], instance.base.requests[1])
    counts = instance.arrivals(500, 0).reshape(500, 3, 4)
    assert (np.diff(counts, axis=2) <= 0).all()  # the j-th job needs the jobs before it
    assert counts.sum(axis=2).mean() == pytest.approx(2.0, abs=0.1)
    run = simulate(instance, create_policy("ogasched-react"), 50, 0)
    np.testing.assert_array_equal(run.metrics["jobs"], instance.arrivals(50, 0).sum(axis=1))


def test_multiple_arrivals_earn_what_section_3_4_says():
    """Reward of a slot = sum over its jobs of (5), each with devices of its own. OGASched §3.4."""
    instance = create_scenario(
        "ogasched-default-v1", servers=8, job_types=2, density=1.5, arrivals="multiple", most_jobs=2
    ).instance(4)
    policy = create_policy("fairness")
    environment = instance.environment()
    environment.start(np.random.default_rng(1), np.random.default_rng(2))
    policy.start(environment.problem, np.random.default_rng(3))
    base = instance.base
    for t in range(20):
        seen = environment.observe(t, "react")
        y = policy.decide(seen)
        expected = 0.0
        for port in np.flatnonzero(seen.arrivals):
            mine = y * (instance.problem.channels.job_type == port)[:, None]
            job_type = port // 2
            devices = np.zeros(base.shape)
            for e in np.flatnonzero(instance.problem.channels.job_type == port):
                r = instance.problem.channels.server[e]
                row = np.flatnonzero(
                    (base.channels.job_type == job_type) & (base.channels.server == r)
                )
                devices[row] = mine[e]
            expected += base.reward(np.eye(base.L)[job_type], devices).reward
        assert environment.step(t, y).reward == pytest.approx(expected)


def test_bad_settings_are_named():
    with pytest.raises(UnknownName, match="servers"):
        create_scenario("ogasched-default-v1", server=3)
    with pytest.raises(ScenarioError, match="rho"):
        create_scenario("ogasched-default-v1", rho=1.5)
    with pytest.raises(ScenarioError, match="beta"):
        create_scenario("ogasched-default-v1", beta=(0.5, 0.3))
    with pytest.raises(ScenarioError, match="density"):
        create_scenario("ogasched-default-v1", job_types=2)
