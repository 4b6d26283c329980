"""Contracts between policies, environments, instances, scenarios and families.

A :class:`Policy` meets an :class:`Environment` slot by slot. An :class:`Instance` is one drawn
problem with its workload; it makes environments, a fresh one for every policy, and comparators,
which regret is measured against. A :class:`Scenario` draws instances. A :class:`Family` serves the
tools that work for all problem families alike.

A policy's constructor arguments are its whole configuration: policies are dataclasses whose
``init`` fields are the configuration. Whatever else they hold is state, which ``start`` sets anew.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from gangwise.core import arrays, errors, registry

Timing = Literal["reserve", "react"]
"""When a policy decides: before the slot's arrivals are seen (``reserve``) or after (``react``)."""

ObservationT = TypeVar("ObservationT", contravariant=True)
DecisionT = TypeVar("DecisionT", covariant=True)
FeedbackT = TypeVar("FeedbackT", contravariant=True)


class Policy(Protocol[ObservationT, DecisionT, FeedbackT]):
    """Contract of a policy.

    ``start`` binds it to a problem and makes it forget everything; ``decide`` returns a feasible
    decision; ``learn`` receives the feedback of a slot, which may come late or never and therefore
    carries its slot. :class:`PolicyBase` has defaults to inherit.
    """

    @property
    def timing(self) -> Timing:
        """When it decides; a ``reserve`` policy never sees the slot's arrivals."""

    def start(self, problem: Any, rng: np.random.Generator) -> None: ...

    def decide(self, observation: ObservationT) -> DecisionT:
        """Return a feasible decision for this slot. The next call may reuse the array."""

    def learn(self, feedback: FeedbackT) -> None: ...


class PolicyBase(arrays.Checked):
    """Defaults of a policy: it sees the arrivals before it decides, and learns nothing.

    A subclass is still a dataclass. Do not declare state: ``start`` assigns it, so that it is no
    part of the configuration.

    Attributes
    ----------
    family : str
        The problem family that the policy is for; without one it is for any.
    timing : {"react", "reserve"}
    randomised : bool
        Whether decisions are drawn. Only then may they depend on the names of servers.

    Examples
    --------
    >>> @dataclasses.dataclass
    ... class Idle(PolicyBase):
    ...     family = "gain_overhead"
    ...
    ...     def start(self, problem, rng):
    ...         self._nothing = np.zeros(problem.shape)
    ...
    ...     def decide(self, observation):
    ...         return self._nothing
    >>> from gangwise import create_scenario, simulate
    >>> instance = create_scenario("ogasched-default-v1:servers=8").instance(seed=0)
    >>> simulate(instance, Idle(), slots=5, seed=0).mean_reward
    0.0
    """

    family: str
    timing: Timing = "react"
    randomised: bool = False

    def learn(self, feedback: Any) -> None: ...


def configuration(policy: object) -> dict[str, Any]:
    """Constructor arguments of a policy; raises TypeError where it is no dataclass.

    >>> @dataclasses.dataclass
    ... class Half:
    ...     share: float = 0.5
    >>> configuration(Half())
    {'share': 0.5}
    """
    if not dataclasses.is_dataclass(policy):
        raise TypeError(
            f"{type(policy).__name__} is not a dataclass; a policy is one, so that its constructor "
            "arguments are its whole configuration"
        )
    # Only ``init`` fields: whatever else a policy holds is state, which ``start`` sets.
    return {f.name: getattr(policy, f.name) for f in dataclasses.fields(policy) if f.init}


PolicyT = TypeVar("PolicyT")


def clone(policy: PolicyT) -> PolicyT:
    """A fresh policy with the same configuration and no memory."""
    # Through the constructor, not a deep copy, which would take what was learned along.
    return type(policy)(**configuration(policy))


GivenFeedbackT = TypeVar("GivenFeedbackT", covariant=True)


@dataclass(slots=True)
class Outcome(Generic[GivenFeedbackT]):
    """Outcome of a slot: its reward, the policy's feedback, and the environment's metrics."""

    reward: float
    feedback: GivenFeedbackT
    metrics: tuple[float, ...] = ()


class Environment(Protocol):
    @property
    def problem(self) -> Any:
        """What a policy knows at the start; never the hidden truth."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of what every outcome measures."""

    def start(self, workload: np.random.Generator, noise: np.random.Generator) -> None:
        """Begin a run, with separate generators for arrivals and noise."""

    def observe(self, slot: int, timing: Timing) -> Any:
        """What a policy of this timing may see before it decides."""

    def step(self, slot: int, decision: Any) -> Outcome[Any]:
        """Apply a decision; raise InfeasibleDecision when it breaks a constraint."""


@dataclass(frozen=True, eq=False)
class Comparator:
    """Rewards of a comparator on the very same slots as a run.

    ``slots`` [n] are those it was evaluated on, all or a sample, and ``rewards`` [n] what it earned
    there. Their total is proved to be within ``gap`` of the true optimum. ``bounds`` are named
    theoretical bounds on the total regret against it.
    """

    name: str
    slots: npt.NDArray[np.int64]
    rewards: npt.NDArray[np.float64]
    gap: float = 0.0
    bounds: Mapping[str, float] = field(default_factory=dict)


def evenly_spaced(slots: int, sample: int | None) -> npt.NDArray[np.int64]:
    """Slots that a comparator is evaluated on: all, or ``sample`` of them, ends included.

    >>> evenly_spaced(10, 4), evenly_spaced(3, None)
    (array([0, 3, 6, 9]), array([0, 1, 2]))
    """
    # Not clamped to 1: whoever asks for none should hear that regret needs some.
    if sample is not None and sample < 1:
        raise errors.ScenarioError(f"a sample of {sample} slots was asked for; it has at least one")
    if sample is None or sample >= slots:
        return np.arange(slots)
    return np.unique(np.linspace(0, slots - 1, sample).round().astype(np.int64))


class Instance(Protocol):
    """One drawn problem with its workload."""

    @property
    def family(self) -> str: ...

    @property
    def problem(self) -> Any: ...

    @property
    def comparators(self) -> tuple[str, ...]:
        """Comparators to evaluate unless others are named: primary first, strongest last."""

    def environment(self) -> Environment: ...

    def comparator(self, name: str, slots: int, seed: int, sample: int | None = None) -> Comparator:
        """Evaluate a comparator on the slots of the run with this seed, or ``sample`` of them."""


class InstanceBase:
    """Comparators of an instance: those that are registered for its family.

    ``comparators`` are evaluated by default: the primary one first, the strongest last.
    """

    family: str
    comparators: tuple[str, ...] = ()

    def comparator(self, name: str, slots: int, seed: int, sample: int | None = None) -> Comparator:
        """Evaluate a registered comparator on the slots of the run with this seed.

        Raises UnknownName for one that is not registered for the family.
        """
        # Looked up late: a family's comparators may come from
        # another package, which is not imported yet.
        registered = registry.comparators(self.family)
        # Of this family or of any: those of other families would not know the instance.
        if name not in registered:
            raise errors.UnknownName("comparator", name, list(registered))
        entry = registered[name]
        # The preset tells apart names that share one function,
        # such as realised and expected rewards.
        evaluated: Comparator = entry.load()(self, slots, seed, sample, **entry.preset)
        return evaluated


class Scenario(Protocol):
    """Contract of a generator of instances: the same seed draws the same instance."""

    @property
    def name(self) -> str:
        """A versioned name, so that a published number stays bound to a behaviour."""

    @property
    def family(self) -> str: ...

    @property
    def slots(self) -> int:
        """How many slots a run has unless told otherwise."""

    def instance(self, seed: int) -> Instance: ...

    def describe(self) -> dict[str, Any]:
        """Parameters and distributions, for reports and result stores."""


class Family(Protocol):
    @property
    def name(self) -> str: ...

    def fuzz(self, rng: np.random.Generator) -> Instance:
        """Draw a small instance with awkward corners, for checking policies."""

    def relabel_servers(self, instance: Instance, order: npt.NDArray[np.int64]) -> Instance:
        """The same instance with server ``order[i]`` now called ``i``."""

    def relabel_decision(
        self, instance: Instance, order: npt.NDArray[np.int64], decision: Any
    ) -> npt.NDArray[np.float64]:
        """A decision for ``instance`` as it reads after relabelling."""
