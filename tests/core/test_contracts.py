"""PolicyBase: defaults that leave a policy's configuration alone."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest

from gangwise import PolicyBase, check_policy, clone, configuration
from gangwise.core.registry import create, entries


@dataclasses.dataclass
class Idle(PolicyBase):
    share: float = 0.5
    family = "gain_overhead"

    def start(self, problem, rng):
        self._nothing = np.zeros(problem.shape)

    def decide(self, observation):
        return self._nothing


def test_state_is_no_part_of_the_configuration():
    policy = Idle(0.25)
    assert configuration(policy) == {"share": 0.25}
    assert (policy.timing, policy.randomised) == ("react", False)
    assert clone(policy) == pickle.loads(pickle.dumps(policy)) == policy


def test_it_is_a_whole_policy():
    check_policy(Idle(), problems=2)


@pytest.mark.parametrize("name", sorted(entries("policy")))
def test_built_in_policies_inherit_it_and_declare_configuration_only(name):
    policy = create("policy", name)
    assert isinstance(policy, PolicyBase)
    declared = {field.name for field in dataclasses.fields(policy)}
    assert declared == set(configuration(policy))
