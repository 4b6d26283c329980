"""``check_policy``: what every policy must keep to, tried on random problems.

A policy of your own gets the same treatment as the built-in ones.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import numpy.typing as npt

from gangwise.core.contracts import Family, Instance, Policy, clone, configuration
from gangwise.core.registry import create
from gangwise.core.simulation import Simulation, Streams


class PolicyCheckFailed(AssertionError):  # noqa: N818 - the name says what it is
    """A policy does not keep to the contract; says which part and on which problem."""


def check_policy(
    policy: Policy[Any, Any, Any],
    problems: int = 10,
    slots: int = 12,
    seed: int = 0,
    family: Family | str | None = None,
) -> None:
    """Fuzz a policy.

    On each random problem it must be feasible in every slot, give the same run again under the
    same seed, from a clone, and from a checkpoint taken half way, keep its hands off what it was
    shown, and — unless it calls itself ``randomised`` — treat servers alike whatever they are
    called.

    Parameters
    ----------
    policy : Policy
        Only its configuration is used; it is cloned for every problem.
    problems, slots, seed : int
        How much to try.
    family : Family or str, optional
        Taken from ``policy.family`` when not given.

    Raises
    ------
    PolicyCheckFailed

    Examples
    --------
    >>> from gangwise import check_policy, create_policy
    >>> check_policy(create_policy("drf"), problems=2)
    """
    family = family or getattr(policy, "family", None)
    if family is None:
        raise PolicyCheckFailed(
            f"{type(policy).__name__} has no attribute 'family'; give it one or pass family="
        )
    checked: Family = create("family", family) if isinstance(family, str) else family
    configuration(policy)  # raises for what is not a dataclass
    for index in range(problems):
        instance = checked.fuzz(np.random.default_rng([seed, index]))
        where = f"{type(policy).__name__} on problem {index} (seed {seed})"
        rewards, decisions = _play(instance, clone(policy), slots, index, where)
        for what, again in (
            ("a second run with the same seed", clone(policy)),
            ("a run of a policy that has run before", _used(instance, policy, slots)),
        ):
            repeated, _ = _play(instance, again, slots, index, where)
            if not np.array_equal(rewards, repeated):
                raise PolicyCheckFailed(f"{where}: {what} differs; start() must forget everything")
        _check_resume(instance, policy, slots, index, rewards, where)
        if not getattr(policy, "randomised", False):
            _check_relabelling(checked, instance, policy, slots, index, decisions, where)


def _play(
    instance: Instance, policy: Policy[Any, Any, Any], slots: int, seed: int, where: str
) -> tuple[npt.NDArray[np.float64], list[Any]]:
    streams = Streams.of(seed)
    environment = instance.environment()
    environment.start(streams.workload, streams.noise)
    policy.start(environment.problem, streams.policy)
    rewards, decisions = np.zeros(slots), []
    for t in range(slots):
        observation = environment.observe(t, policy.timing)
        shown = pickle.dumps(observation)
        decision = policy.decide(observation)
        if pickle.dumps(observation) != shown:
            raise PolicyCheckFailed(f"{where}, slot {t}: decide() changed its observation")
        decisions.append(np.array(decision, copy=True))
        outcome = environment.step(t, decision)  # raises InfeasibleDecision
        if not np.isfinite(outcome.reward):
            raise PolicyCheckFailed(f"{where}, slot {t}: the reward is {outcome.reward}")
        rewards[t] = outcome.reward
        policy.learn(outcome.feedback)
    return rewards, decisions


def _used(instance: Instance, policy: Policy[Any, Any, Any], slots: int) -> Policy[Any, Any, Any]:
    used = clone(policy)
    Simulation(instance, used, slots, seed=987).run()
    return used


def _check_resume(
    instance: Instance,
    policy: Policy[Any, Any, Any],
    slots: int,
    seed: int,
    rewards: npt.NDArray[np.float64],
    where: str,
) -> None:
    simulation = Simulation(instance, clone(policy), slots, seed)
    for _ in range(slots // 2):
        simulation.step()
    try:
        resumed: Simulation = pickle.loads(pickle.dumps(simulation))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise PolicyCheckFailed(f"{where}: its state does not pickle: {error}") from error
    if not np.array_equal(resumed.run().rewards, rewards):
        raise PolicyCheckFailed(f"{where}: a run resumed from a checkpoint differs")


def _check_relabelling(
    family: Family,
    instance: Instance,
    policy: Policy[Any, Any, Any],
    slots: int,
    seed: int,
    decisions: list[Any],
    where: str,
) -> None:
    R = len(instance.problem.cluster.servers)
    order = np.random.default_rng([seed, 1]).permutation(R)
    other = family.relabel_servers(instance, order)
    _, relabelled = _play(other, clone(policy), slots, seed, where + ", servers relabelled")
    for t in range(slots):
        expected = family.relabel_decision(instance, order, decisions[t])
        scale = 1.0 + float(np.abs(expected).max(initial=0.0))
        if not np.allclose(expected, relabelled[t], rtol=0, atol=1e-6 * scale):
            raise PolicyCheckFailed(
                f"{where}, slot {t}: the decision depends on what servers are called; break ties "
                "by something that belongs to the server, or declare the policy randomised"
            )
