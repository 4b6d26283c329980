"""``check_policy``: what every policy must keep to, tried on random problems.

A policy of your own gets the same checks as the built-in ones.
"""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gangwise.core.contracts import Family, Instance, Policy, clone, configuration
from gangwise.core.errors import GangwiseError, InfeasibleDecision
from gangwise.core.isolation import Isolated, IsolatedError, IsolatedPolicy, IsolatedProcess
from gangwise.core.registry import create, label_of
from gangwise.core.simulation import Simulation, Streams


class PolicyCheckFailed(GangwiseError, AssertionError):  # noqa: N818 - the name says what it is
    """A policy breaks the contract; the message says which part and on which problem."""


def check_policy(
    policy: Policy[Any, Any, Any] | str,
    problems: int = 10,
    slots: int = 12,
    seed: int = 0,
    family: Family | str | None = None,
    isolated: bool = False,
) -> None:
    """Try a policy on random problems.

    On each problem it must be feasible in every slot; give the same run again under the same seed,
    from a clone, and from a checkpoint taken half way; leave alone what it was shown; and, unless
    it calls itself ``randomised``, treat servers alike whatever they are called.

    Parameters
    ----------
    policy : Policy or str
        A name, or a policy, of which only the configuration is used.
    problems, slots, seed : int
        How much to try.
    family : Family or str, optional
        By default ``policy.family``.
    isolated : bool
        Have it play in a process of its own, see :mod:`gangwise.core.isolation`, and compare with a
        run in the process of its world: a policy that reads what it is not shown fails. A policy
        given by name is not imported here.

    Raises
    ------
    PolicyCheckFailed

    Examples
    --------
    >>> from gangwise import check_policy, create_policy
    >>> check_policy(create_policy("drf"), problems=2)
    """
    name = label_of(policy) if isinstance(policy, str) else type(policy).__name__
    made: Any
    if isolated:
        try:
            made = IsolatedPolicy.of(policy, watch=True)
        except IsolatedError as error:
            raise PolicyCheckFailed(str(error)) from error
    else:
        made = create("policy", policy) if isinstance(policy, str) else policy
    family = family or getattr(made, "family", None)
    if family is None:
        raise PolicyCheckFailed(f"{name} has no attribute 'family'; give it one or pass family=")
    checked: Family = create("family", family) if isinstance(family, str) else family
    configuration(made)  # raises for what is not a dataclass
    has = made.about["methods"] if isinstance(made, Isolated) else dir(made)
    for part in ("start", "decide", "learn", "timing"):
        if part not in has:
            raise PolicyCheckFailed(
                f"{name} has no {part}; a policy has start, decide, learn, timing"
            )
    process = made.another_process() if isinstance(made, Isolated) else None
    for index in range(problems):
        where = f"{name} on problem {index} (seed {seed})"
        trial = _Trial(checked, (seed, index), slots, where)
        rewards, decisions = trial.play(clone(made))
        used = clone(made)
        Simulation(trial.instance, used, slots, seed=987).run()
        why_again = f"a second run with the same seed differs: {CHANCE}"
        why_used = "a run of a policy that has run before differs; start() must forget everything"
        for what, again in ((why_again, clone(made)), (why_used, used)):
            if not np.array_equal(rewards, trial.play(again)[0]):
                raise PolicyCheckFailed(f"{where}: {what}")
        if process is not None:
            trial.check_isolated(process, decisions)
        trial.check_resume(made, rewards)
        if not getattr(made, "randomised", False):
            trial.check_relabelling(made, decisions)


CHANCE = (
    "it is not deterministic; draw from the generator that start() is given, not from random, "
    "numpy.random or a clock, and keep nothing outside of the policy"
)
"""Why a policy decides differently when it is played again."""
READS = (
    "it reads what it is not shown, such as arrivals on the stack or behind an array, or the seed "
    "of its generator"
)
"""Why a policy decides differently in the process of its world."""


@dataclass(frozen=True)
class _Trial:
    """A random problem on which a policy is tried."""

    family: Family
    drawn_by: tuple[int, int]  # the seed of the check, and the number of the problem
    slots: int
    where: str  # policy and problem, as messages name them

    @cached_property
    def instance(self) -> Instance:
        return self.family.fuzz(np.random.default_rng(self.drawn_by))

    def play(
        self, policy: Policy[Any, Any, Any], instance: Instance | None = None
    ) -> tuple[npt.NDArray[np.float64], list[Any]]:
        """Rewards [T] and decisions of a run; by default on the instance of the problem."""
        where = self.where if instance is None else f"{self.where}, servers relabelled"
        rewards, decisions, t = np.zeros(self.slots), [], -1
        try:
            streams = Streams.of(self.drawn_by[1])
            environment = (instance or self.instance).environment()
            environment.start(streams.workload, streams.noise)
            policy.start(environment.problem, streams.policy)
            for t in range(self.slots):
                observation = environment.observe(t, policy.timing)
                shown = pickle.dumps(observation)
                decision = policy.decide(observation)
                if pickle.dumps(observation) != shown:
                    raise PolicyCheckFailed(
                        f"{where}, slot {t}: decide() changed what it was shown"
                    )
                decisions.append(np.array(decision, copy=True))
                outcome = environment.step(t, decision)
                if not np.isfinite(outcome.reward):
                    raise PolicyCheckFailed(f"{where}, slot {t}: the reward is {outcome.reward}")
                rewards[t] = outcome.reward
                policy.learn(outcome.feedback)
        except PolicyCheckFailed:
            raise
        except InfeasibleDecision as error:
            raise PolicyCheckFailed(f"{where}: {error}") from error
        except Exception as error:  # whatever the policy raises, or its decision makes others raise
            at = "start()" if t < 0 else f"slot {t}"
            text = error if isinstance(error, GangwiseError) else f"{type(error).__name__}: {error}"
            raise PolicyCheckFailed(f"{where}, {at}: {text}") from error
        return rewards, decisions

    def check_isolated(self, process: IsolatedProcess, decisions: list[Any]) -> None:
        """Compare with a run in the process of its world, where the problem is drawn anew."""
        alone = [_digest(decision) for decision in decisions]
        try:
            found = process.difference(alone, _decisions_in_one_process, replace(self), reads=READS)
        except IsolatedError as error:
            raise PolicyCheckFailed(f"{self.where}: {error}") from error
        if found is not None:
            slot, by_chance = found
            why = f"its decisions change when it runs in one process with its world: {READS}"
            raise PolicyCheckFailed(f"{self.where}, slot {slot}: {CHANCE if by_chance else why}")

    def check_resume(self, policy: Policy[Any, Any, Any], rewards: npt.NDArray[np.float64]) -> None:
        simulation = Simulation(self.instance, clone(policy), self.slots, self.drawn_by[1])
        for _ in range(self.slots // 2):
            simulation.step()
        try:
            resumed: Simulation = pickle.loads(pickle.dumps(simulation))
        except (pickle.PicklingError, AttributeError, TypeError, IsolatedError) as error:
            raise PolicyCheckFailed(f"{self.where}: its state does not pickle: {error}") from error
        if not np.array_equal(resumed.run().rewards, rewards):
            raise PolicyCheckFailed(f"{self.where}: a run resumed from a checkpoint differs")

    def check_relabelling(self, policy: Policy[Any, Any, Any], decisions: list[Any]) -> None:
        R = len(self.instance.problem.cluster.servers)
        order = np.random.default_rng([self.drawn_by[1], 1]).permutation(R)
        _, relabelled = self.play(clone(policy), self.family.relabel_servers(self.instance, order))
        for t in range(self.slots):
            expected = self.family.relabel_decision(self.instance, order, decisions[t])
            scale = 1.0 + float(np.abs(expected).max(initial=0.0))
            if not np.allclose(expected, relabelled[t], rtol=0, atol=1e-6 * scale):
                raise PolicyCheckFailed(
                    f"{self.where}, slot {t}: the decision depends on what servers are called; "
                    "break ties by something that belongs to the server, or declare the policy "
                    "randomised"
                )


def _decisions_in_one_process(policy: Any, trial: _Trial) -> list[str]:
    return [_digest(decision) for decision in trial.play(clone(policy))[1]]


def _digest(decision: Any) -> str:
    array = np.asarray(decision)
    kind = repr((array.dtype.str, array.shape)).encode()
    return hashlib.sha256(kind + array.tobytes()).hexdigest()
