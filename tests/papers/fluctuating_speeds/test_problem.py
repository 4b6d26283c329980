"""What a problem refuses, and which decisions are in Ω(t)."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise import InfeasibleDecision, ScenarioError
from gangwise.core.workload import Channels
from gangwise.papers.fluctuating_speeds.problem import (
    FluctuatingSpeedsProblem,
    NormalSpeeds,
    Pool,
    Scale,
    linear_cost,
)
from tests.papers.fluctuating_speeds.cases import problem
from tests.reference.fluctuating_speeds import choices


def named(requests, cost=(0.0, 0.0), capacity=(4.0, 4.0)):
    return FluctuatingSpeedsProblem(
        Pool(np.array(capacity), ("cpu", "gpu"), ("fast", "slow")),
        np.array(requests, dtype=float),
        Channels.of_mask(np.array([[True, False], [False, True]])),
        np.array(cost, dtype=float),
        ("train", "serve"),
    )


@pytest.mark.parametrize(
    ("requests", "cost", "message"),
    [
        ([[1, 2], [1, -1]], (0, 0), r"channel \('serve' on 'slow'\): .* 'gpu' is -1"),
        ([[1, np.nan], [1, 1]], (0, 0), r"channel \('train' on 'fast'\): .* 'gpu' is nan"),
        ([[np.inf, 1], [1, 1]], (0, 0), r"channel \('train' on 'fast'\): .* 'cpu' is inf"),
        ([[1, 1], [0, 0]], (0, 0), r"channel \('serve' on 'slow'\) requests none of .* cpu, gpu"),
        ([[1, 1], [1, 1]], (0, np.nan), r"channel \('serve' on 'slow'\): supply cost is nan"),
        ([[1, 1]], (0, 0), r"shape \(1, 2\); expected 2 channels by 2"),
        ([[1, 1], [1, 1]], (0, 0, 0), r"cost has shape \(3,\)"),
    ],
)
def test_bad_numbers_are_named(requests, cost, message):
    with pytest.raises(ScenarioError, match=message):
        named(requests, cost)


@pytest.mark.parametrize(
    ("capacity", "devices", "servers", "message"),
    [
        ([1.0, -2.0], ("cpu", "gpu"), ("a",), "'gpu' is -2"),
        ([1.0, np.nan], ("cpu", "gpu"), ("a",), "'gpu' is nan"),
        ([1.0], ("cpu", "gpu"), ("a",), "one number for each of 2"),
        ([1.0, 1.0], ("cpu", "cpu"), ("a",), "'cpu' is used twice"),
        ([1.0, 1.0], ("cpu", "gpu"), ("a", "a"), "'a' is used twice"),
        ([1.0], ("cpu",), (), "at least one server"),
    ],
)
def test_bad_clusters(capacity, devices, servers, message):
    """ESDP §2.2."""
    with pytest.raises(ScenarioError, match=message):
        Pool(np.array(capacity), devices, servers)


def test_a_job_type_without_channels_is_named():
    with pytest.raises(ScenarioError, match="'job-type-1'"):
        FluctuatingSpeedsProblem(
            Pool(np.array([1.0]), ("gpu",), ("a",)),
            np.ones((1, 1)),
            Channels.of_mask(np.array([[True], [False]])),
            np.zeros(1),
        )


def test_the_check_accepts_exactly_the_feasible_decisions():
    """ESDP (1), ESDP (2)."""
    p = problem([[1, 2], [2, 1], [2, 2], [1, 1]], [3, 3], job_type=[0, 0, 1, 2])
    for arrivals in ([1, 1, 1], [1, 0, 1], [0, 0, 0]):
        feasible = {tuple(e in chosen for e in range(4)) for chosen in choices(p, arrivals)}
        accepted = set()
        for code in range(16):
            x = np.array([code >> e & 1 for e in range(4)])
            try:
                p.check(np.array(arrivals), x)
            except InfeasibleDecision:
                continue
            accepted.add(tuple(bool(on) for on in x))
        assert accepted == feasible


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([1, 1], r"slot 3: .* 'gpu': 5 of 4 devices are taken, ESDP \(2\), by 2 channels"),
        ([0.5, 0], r"slot 3: channel \('train' on 'fast'\) is 0.5"),
        ([np.nan, 0], r"slot 3: channel \('train' on 'fast'\) is nan"),
        ([1, 0, 0], r"slot 3: the decision has shape \(3,\); expected 2 channels"),
    ],
)
def test_infeasible_decisions_are_named(x, message):
    p = named([[1, 2], [1, 3]])
    with pytest.raises(InfeasibleDecision, match=message):
        p.check(np.array([1, 1]), np.array(x), slot=3)


def test_a_channel_of_an_absent_job_type_is_named():
    """ESDP (4)."""
    with pytest.raises(InfeasibleDecision, match=r"\('serve'"):
        named([[1, 1], [1, 1]]).check(np.array([1, 0]), np.array([0, 1]), slot=9)


def test_costs():
    """ESDP (3)."""
    a = np.array([[1.0, 2.0], [2.0, 1.0]])
    np.testing.assert_allclose(linear_cost(a, [0.5, 0.1]), [0.7, 1.1])
    with pytest.raises(ScenarioError, match="prices have shape"):
        linear_cost(a, [0.5])


def test_normalisation_is_stated_and_checked():
    """ESDP §3.1."""
    speeds = NormalSpeeds(np.array([0.2, 0.8]), spread=0.5)  # reach 0 … 0.4 and 0 … 1.6
    cost = np.array([0.1, 0.3])
    clip, affine = Scale.of("clip", speeds, cost), Scale.of("affine", speeds, cost)
    assert (clip.low, clip.high) == (0.0, pytest.approx(1.3))
    assert (affine.low, affine.high) == (pytest.approx(-0.3), pytest.approx(1.3))
    z = np.array([[0.05, 0.95], [0.1, 3.0]])
    np.testing.assert_allclose(clip.apply(z, cost), [[0, 0.65 / 1.3], [0, 1]])
    np.testing.assert_allclose(affine.apply(z, cost), [[0.25 / 1.6, 0.95 / 1.6], [0.3 / 1.6, 1]])
    with pytest.raises(ScenarioError, match="range"):
        Scale.of("none", speeds, cost)
    with pytest.raises(ScenarioError, match="channel"):
        Scale.of("clip", speeds, np.array([2.0, 2.0]))
    with pytest.raises(ScenarioError, match="affine"):
        Scale.of("squash", speeds, cost)
