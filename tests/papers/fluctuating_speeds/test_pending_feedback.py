"""Feedback that nobody waits for is refused, whatever the memory."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from gangwise import ScenarioError, create_policy
from gangwise.papers.fluctuating_speeds.environment import Feedback
from tests.papers.fluctuating_speeds.cases import problem

E = 5
P = problem(np.ones(E), E)


def learner(memory="all"):
    """Told of slot 0; slot 1 is decided. Channels 0, 1 and 2 were on."""
    policy = create_policy(f"esdp:memory={memory},window=5,discount=0.9")
    policy.start(P, np.random.default_rng(0))
    on = np.array([True, True, True, False, False])
    policy._pending.expect(0, on)
    policy.learn((Feedback(0, np.array([0, 1, 2]), np.array([0.1, 0.2, 0.3])),))
    policy._pending.expect(1, on)
    return policy


@pytest.mark.parametrize("memory", ["all", "window", "discounted"])
@pytest.mark.parametrize(
    ("slot", "channels", "utilities", "message"),
    [
        (1, [0, 3], [0.5, 0.5], r"slot 1: channel \('job-type-3' on 'server-3'\) was not on"),
        (1, [0, 1], [0.5, np.nan], r"slot 1: channel \('job-type-1' on 'server-1'\) .* nan"),
        (1, [0, 1], [0.5, 1.2], r"slot 1: channel \('job-type-1' on 'server-1'\) .* 1.2"),
        (1, [0, 1], [-0.1, 0.2], r"slot 1: channel \('job-type-0' on 'server-0'\) .* -0.1"),
        (1, [1, 1], [0.5, 0.5], r"slot 1: channel \('job-type-1' on 'server-1'\) is .* twice"),
        (1, [0, 9], [0.5, 0.5], r"slot 1: there is no channel 9; there are 5"),
        (1, [0, -1], [0.5, 0.5], r"slot 1: there is no channel -1"),
        (1, [0, 1], [0.5], r"slot 1: \(2,\) channels and \(1,\) utilities"),
        (2, [0], [0.5], "slot 2: the last slot decided is 1"),
        (-1, [0], [0.5], "slot -1: the last slot decided is 1"),
    ],
)
def test_bad_feedback_is_refused_and_changes_nothing(memory, slot, channels, utilities, message):
    policy = learner(memory)
    before = pickle.dumps((policy._pending, policy._estimator))
    with pytest.raises(ScenarioError, match=message):
        policy.learn((Feedback(slot, np.array(channels), np.array(utilities)),))
    assert pickle.dumps((policy._pending, policy._estimator)) == before
    policy.learn((Feedback(1, np.array([0, 1, 2]), np.array([0.3, 0.2, 0.1])),))
    np.testing.assert_array_equal(policy._estimator.memory.counts > 1, [1, 1, 1, 0, 0])


def test_feedback_that_comes_twice_is_refused():
    policy = learner()
    feedback = Feedback(1, np.array([0, 1, 2]), np.full(3, 0.5))
    policy.learn((feedback,))
    with pytest.raises(ScenarioError, match="was reported already"):
        policy.learn((feedback,))
