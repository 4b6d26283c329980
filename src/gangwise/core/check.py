"""``check_policy``: what every policy must keep to, tried on random problems.

A policy of your own gets the same checks as the built-in ones.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.random.bit_generator import ISpawnableSeedSequence

from gangwise.core.contracts import Family, Instance, Policy, clone, configuration
from gangwise.core.errors import GangwiseError, InfeasibleDecision
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
) -> None:
    """Try a policy on random problems.

    On each problem it must be feasible in every slot; give the same run again under the same seed,
    from a clone, and from a checkpoint taken half way; decide by what it is shown alone; leave that
    as it is; and, unless it calls itself ``randomised``, treat servers alike whatever they are
    called.

    Parameters
    ----------
    policy : Policy or str
        A name, or a policy, of which only the configuration is used.
    problems, slots, seed : int
        How much to try.
    family : Family or str, optional
        By default ``policy.family``.

    Raises
    ------
    PolicyCheckFailed

    Examples
    --------
    >>> from gangwise import check_policy, create_policy
    >>> check_policy(create_policy("drf"), problems=2)
    """
    name = label_of(policy) if isinstance(policy, str) else type(policy).__name__
    original: Any = create("policy", policy) if isinstance(policy, str) else policy
    family = family or getattr(original, "family", None)
    if family is None:
        raise PolicyCheckFailed(f"{name} has no attribute 'family'; give it one or pass family=")
    checked: Family = create("family", family) if isinstance(family, str) else family
    # A missing attribute would otherwise show in the middle
    # of a run, as an error of the simulation.
    configuration(original)  # raises for what is not a dataclass
    for part in ("start", "decide", "learn", "timing"):
        if not hasattr(original, part):
            raise PolicyCheckFailed(
                f"{name} has no {part}; a policy has start, decide, learn, timing"
            )
    for index in range(problems):
        place = f"{name} on problem {index} (seed {seed})"
        trial = _Trial(checked, (seed, index), slots, place)
        run = trial.play(clone(original))
        used = clone(original)
        # A policy that keeps something from one run to the next decides otherwise in the second.
        Simulation(trial.instance, used, slots, seed=987).run()
        why_again = f"a second run with the same seed differs: {CHANCE}"
        why_used = "a run of a policy that has run before differs; start() must forget everything"
        for reason, repeat in ((why_again, clone(original)), (why_used, used)):
            if not np.array_equal(run.rewards, trial.play(repeat).rewards):
                raise PolicyCheckFailed(f"{place}: {reason}")
        # What it reads beyond its arguments is the world around it: it decides again where there is
        # none.
        trial.check_unseen(clone(original), run)
        trial.check_resume(original, run.rewards)
        if not getattr(original, "randomised", False):
            trial.check_relabelling(original, run.decisions)


CHANCE = (
    "it is not deterministic; draw from the generator that start() is given, not from random, "
    "numpy.random or a clock, and keep nothing outside of the policy"
)
"""Why a policy decides differently when it is played again."""
READS = (
    "it reads what it is not shown, such as arrivals on the stack or behind an array, or the seed "
    "of its generator"
)
"""Why a policy decides differently where there is no world."""


class _Played(NamedTuple):
    """Record of a run: rewards [T], decisions, pickles of problem, observations and feedback."""

    rewards: npt.NDArray[np.float64]
    decisions: list[Any]
    problem: bytes
    observations: list[bytes]
    feedback: list[bytes]


class _Seedless(ISpawnableSeedSequence):
    """Seed sequence that draws and splits as another does, without its seed."""

    def __init__(self, source: np.random.SeedSequence):
        self._source = source

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return self._source.generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> list[_Seedless]:
        return [_Seedless(child) for child in self._source.spawn(n_children)]


def _without_seed(seed: int) -> np.random.Generator:
    """The generator that a policy gets in a run with this seed, without the seed."""
    sequence: Any = Streams.of(seed).policy.bit_generator.seed_seq
    hidden: Any = _Seedless(sequence)  # numpy's types name its own class, not the protocol
    return np.random.default_rng(hidden)


@dataclass(frozen=True)
class _Trial:
    """Trial of a policy on a random problem."""

    family: Family
    drawn_by: tuple[int, int]  # the seed of the check, and the number of the problem
    slots: int
    where: str  # policy and problem, as messages name them

    @cached_property
    def instance(self) -> Instance:
        return self.family.fuzz(np.random.default_rng(self.drawn_by))

    def play(self, policy: Policy[Any, Any, Any], instance: Instance | None = None) -> _Played:
        """A run; by default on the instance of the problem."""
        place = self.where if instance is None else f"{self.where}, servers relabelled"
        rewards, decisions, t = np.zeros(self.slots), [], -1
        observations, feedback, problem = [], [], b""
        try:
            streams = Streams.of(self.drawn_by[1])
            environment = (instance or self.instance).environment()
            environment.start(streams.workload, streams.noise)
            problem = pickle.dumps(environment.problem)
            policy.start(environment.problem, streams.policy)
            for t in range(self.slots):
                observation = environment.observe(t, policy.timing)
                observations.append(pickle.dumps(observation))
                decision = policy.decide(observation)
                # Observations share arrays with the environment: what a
                # policy writes there changes the world.
                if pickle.dumps(observation) != observations[-1]:
                    raise PolicyCheckFailed(
                        f"{place}, slot {t}: decide() changed what it was shown"
                    )
                # Copied, since the next decision may be written into the same array.
                decisions.append(np.array(decision, copy=True))
                outcome = environment.step(t, decision)
                if not np.isfinite(outcome.reward):
                    raise PolicyCheckFailed(f"{place}, slot {t}: the reward is {outcome.reward}")
                rewards[t] = outcome.reward
                feedback.append(pickle.dumps(outcome.feedback))
                policy.learn(outcome.feedback)
        except PolicyCheckFailed:
            raise
        except InfeasibleDecision as error:
            raise PolicyCheckFailed(f"{place}: {error}") from error
        except Exception as error:  # whatever the policy raises, or its decision makes others raise
            at = "start()" if t < 0 else f"slot {t}"
            text = error if isinstance(error, GangwiseError) else f"{type(error).__name__}: {error}"
            raise PolicyCheckFailed(f"{place}, {at}: {text}") from error
        return _Played(rewards, decisions, problem, observations, feedback)

    def check_unseen(self, policy: Policy[Any, Any, Any], run: _Played) -> None:
        """Replay of the decisions from copies of what was shown, without any world to read."""
        t = -1
        try:
            policy.start(pickle.loads(run.problem), _without_seed(self.drawn_by[1]))
            for t, shown in enumerate(run.observations):
                decision = np.asarray(policy.decide(pickle.loads(shown)))
                # To the last bit: from the same arguments there is no reason for any difference.
                if not np.array_equal(decision, run.decisions[t]):
                    raise PolicyCheckFailed(
                        f"{self.where}, slot {t}: it decides otherwise where there is no world: "
                        f"{READS}"
                    )
                policy.learn(pickle.loads(run.feedback[t]))
        except PolicyCheckFailed:
            raise
        except Exception as error:  # such as an attribute that only the world has
            at = "start()" if t < 0 else f"slot {t}"
            raise PolicyCheckFailed(
                f"{self.where}, {at}: {type(error).__name__}: {error}, only where there is no "
                f"world: {READS}"
            ) from error

    def check_resume(self, policy: Policy[Any, Any, Any], rewards: npt.NDArray[np.float64]) -> None:
        simulation = Simulation(self.instance, clone(policy), self.slots, self.drawn_by[1])
        # Half way, so that the state has something learned in it and something still to come.
        for _ in range(self.slots // 2):
            simulation.step()
        try:
            resumed: Simulation = pickle.loads(pickle.dumps(simulation))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise PolicyCheckFailed(f"{self.where}: its state does not pickle: {error}") from error
        if not np.array_equal(resumed.run().rewards, rewards):
            raise PolicyCheckFailed(f"{self.where}: a run resumed from a checkpoint differs")

    def check_relabelling(self, policy: Policy[Any, Any, Any], decisions: list[Any]) -> None:
        R = len(self.instance.problem.cluster.servers)
        order = np.random.default_rng([self.drawn_by[1], 1]).permutation(R)
        renamed = self.family.relabel_servers(self.instance, order)
        relabelled = self.play(clone(policy), renamed).decisions
        for t in range(self.slots):
            expected = self.family.relabel_decision(self.instance, order, decisions[t])
            # Sums over servers in another order differ in their last bits.
            scale = 1.0 + float(np.abs(expected).max(initial=0.0))
            if not np.allclose(expected, relabelled[t], rtol=0, atol=1e-6 * scale):
                raise PolicyCheckFailed(
                    f"{self.where}, slot {t}: the decision depends on what servers are called; "
                    "break ties by something that belongs to the server, or declare the policy "
                    "randomised"
                )
