"""check_policy must catch what it says it catches."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from gangwise import InfeasibleDecision, PolicyCheckFailed, check_policy
from gangwise.gain_overhead import Fairness


@dataclass
class Good(Fairness):
    """A policy of one's own."""


@dataclass
class TooMuch(Fairness):
    """Hands out more than there is."""

    def decide(self, observation):
        return super().decide(observation) * 1.5


memory: list[int] = []


@dataclass
class RemembersElsewhere(Fairness):
    """Keeps state outside of itself."""

    def decide(self, observation):
        memory.append(1)
        return super().decide(observation) / (1 + len(memory))


@dataclass
class NeverForgets(Fairness):
    """start() does not start afresh."""

    count: int = field(init=False, default=0)

    def decide(self, observation):
        self.count += 1
        return super().decide(observation) / (1 + self.count)


@dataclass
class DoesNotPickle(Fairness):
    """Its state cannot be saved."""

    def start(self, problem, rng):
        super().start(problem, rng)
        self._secret = lambda: None


@dataclass
class PrefersTheFirst(Fairness):
    """What a server is called decides."""

    def decide(self, observation):
        y = super().decide(observation).copy()
        y[self._problem.channels.server != 0] = 0.0
        return y


@dataclass
class Meddles(Fairness):
    """Changes what it was shown."""

    def decide(self, observation):
        y = super().decide(observation)
        object.__setattr__(observation, "slot", -1)
        return y


@dataclass
class NotANumber(Fairness):
    """Returns nonsense."""

    def decide(self, observation):
        return super().decide(observation) * np.nan


class NoDataclass:
    family = "gain_overhead"


def test_a_good_policy_passes():
    check_policy(Good())


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (RemembersElsewhere(), "second run with the same seed"),
        (NeverForgets(), "has run before"),
        (DoesNotPickle(), "does not pickle"),
        (PrefersTheFirst(), "what servers are called"),
        (Meddles(), "changed its observation"),
    ],
)
def test_broken_contracts_are_found(policy, message):
    with pytest.raises(PolicyCheckFailed, match=message):
        check_policy(policy)


@pytest.mark.parametrize("policy", [TooMuch(), NotANumber()])
def test_infeasible_policies_are_found(policy):
    with pytest.raises(InfeasibleDecision):
        check_policy(policy)


def test_what_is_not_a_policy():
    with pytest.raises(TypeError, match="dataclass"):
        check_policy(NoDataclass())
    with pytest.raises(PolicyCheckFailed, match="family"):
        check_policy(object())
