"""The world of fluctuating speeds: arrivals are seen, channels are switched on, utilities are felt.

Only channels that were on tell their utility (semi-bandit feedback), late or never if so wished.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gangwise.core.delivery import Delivery, Mailbox
from gangwise.core.environment import Comparator, Outcome
from gangwise.core.errors import ScenarioError
from gangwise.core.policy import Timing
from gangwise.core.streams import Streams
from gangwise.core.workload import ArrivalStream, Workload
from gangwise.fluctuating_speeds.normalisation import Scale
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem
from gangwise.fluctuating_speeds.speeds import Speeds

__all__ = ["Feedback", "FluctuatingSpeedsEnvironment", "FluctuatingSpeedsInstance", "Observation"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BLOCK = 256  # slots of arrivals and noise drawn at a time


@dataclass(frozen=True, slots=True)
class Observation:
    """What a policy sees before it decides.

    Attributes
    ----------
    slot : int
    arrivals : ndarray of int64, shape [L]
        𝟙_l(t): 1 where a job of the type arrived.
    """

    slot: int
    arrivals: Ints


@dataclass(frozen=True, slots=True)
class Feedback:
    """What one slot taught about the channels that were on.

    Attributes
    ----------
    slot : int
        The slot that it is about, which need not be the last one.
    channels : ndarray of int64, shape [n]
        Channels that were on.
    utilities : ndarray of float64, shape [n]
        Z̃ of these channels, net of supply cost and normalised into [0, 1].
    """

    slot: int
    channels: Ints
    utilities: Floats


@dataclass(eq=False)
class FluctuatingSpeedsEnvironment:
    """Plays a workload and speeds. Built by :class:`FluctuatingSpeedsInstance`.

    The reward of a slot is the realised net utility Σ x Z̃. Metrics: ``mean_utility``, the
    expectation Σ x ṽ(t) of the same decision (so that pseudo-regret can be read off without noise);
    ``gain`` Σ x Z and ``cost`` Σ x Σ_k f_k(a_k), in units of utility before normalisation; ``jobs``
    that arrived; ``channels`` that were on.
    """

    instance: FluctuatingSpeedsInstance
    metrics: tuple[str, ...] = ("mean_utility", "gain", "cost", "jobs", "channels")
    _arrivals: Ints = field(init=False, repr=False)
    _utilities: Floats = field(init=False, repr=False)
    _first: int = field(init=False, repr=False, default=0)

    @property
    def problem(self) -> FluctuatingSpeedsProblem:
        """What policies are told."""
        return self.instance.problem

    def start(self, workload: np.random.Generator, noise: np.random.Generator) -> None:
        """Begin a run; utilities and delays have generators of their own."""
        self._stream = self.instance.workload.stream(workload)
        self._noise, self._fate = noise.spawn(2)
        self._arrivals = np.empty((0, self.problem.L), dtype=np.int64)
        self._utilities = np.empty((0, self.problem.E))
        self._first = 0
        self._mailbox = Mailbox[Feedback]()
        self._regime: int | None = None
        self._mean = np.empty(0)

    def _row(self, slot: int) -> int:
        while slot >= self._first + len(self._arrivals):
            self._first += len(self._arrivals)
            self._arrivals = self._stream.draw(BLOCK)
            drawn = self.instance.speeds.draw(self._first, len(self._arrivals), self._noise)
            self._utilities = drawn
            self._due = self.instance.delivery.draw(len(drawn), self._fate)
            self._arrivals.setflags(write=False)
        return slot - self._first

    def observe(self, slot: int, timing: Timing) -> Observation:
        """The slot's arrivals; Algorithm 1 sees them before it decides."""
        if timing == "reserve":
            raise ScenarioError(
                "policies of this family see the arrivals before they decide; set timing to react"
            )
        row = self._row(slot)
        return Observation(slot, self._arrivals[row])

    def means(self, slot: int) -> Floats:
        """ṽ(t), shape [E]; not for policies."""
        regime = self.instance.speeds.regime(slot)
        if regime != self._regime:
            self._regime, self._mean = regime, self.instance.means(slot)
        return self._mean

    def step(self, slot: int, decision: npt.ArrayLike) -> Outcome[tuple[Feedback, ...]]:
        """Switch channels on; say what is known by now."""
        row, problem = self._row(slot), self.problem
        arrivals = self._arrivals[row]
        x = problem.check(arrivals, decision, slot)
        on = np.flatnonzero(x)
        raw, cost = self._utilities[row, on], problem.cost[on]
        net = self.instance.scale.apply(raw, cost)
        metrics = (
            float(self.means(slot)[on].sum()),
            float(raw.sum()),
            float(cost.sum()),
            float(arrivals.sum()),
            float(on.size),
        )
        told = self._mailbox.exchange(slot, int(self._due[row]), Feedback(slot, on, net))
        return Outcome(float(net.sum()), told, metrics)


@dataclass(frozen=True, eq=False)
class FluctuatingSpeedsInstance:
    """A problem, its workload, and what policies are not told.

    Parameters
    ----------
    problem : FluctuatingSpeedsProblem
    workload : Workload
        At most one job of a type in a slot (§2.2).
    speeds : Speeds
        Distribution of Z, before supply cost.
    scale : Scale
        Normalisation of the net utility into [0, 1].
    delivery : Delivery
        Delay and loss of feedback.

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario, simulate
    >>> instance = create_scenario("esdp-default-v1:servers=10").instance(seed=0)
    >>> simulate(instance, create_policy("lcf"), slots=5, seed=0).slots
    5
    """

    problem: FluctuatingSpeedsProblem
    workload: Workload
    speeds: Speeds
    scale: Scale = field(default_factory=Scale)
    delivery: Delivery = field(default_factory=Delivery)
    family: str = "fluctuating_speeds"
    comparators: tuple[str, ...] = ("omniscient", "omniscient_realised")

    def __post_init__(self) -> None:
        if self.speeds.size != self.problem.E:
            raise ScenarioError(
                f"speeds are given for {self.speeds.size} channels; there are {self.problem.E}"
            )
        most = np.asarray(self.workload.most)
        if most.size != self.problem.L:
            raise ScenarioError(
                f"the workload brings {most.size} job types; the problem has {self.problem.L}"
            )
        if (most > 1).any():
            l = int(np.flatnonzero(most > 1)[0])
            raise ScenarioError(
                f"up to {most[l]} jobs of type {self.problem.job_types[l]!r} arrive in one slot; "
                "this family has at most one, §2.2: split the type, or shorten the slots"
            )

    def environment(self) -> FluctuatingSpeedsEnvironment:
        """A fresh environment."""
        return FluctuatingSpeedsEnvironment(self)

    def means(self, slot: int) -> Floats:
        """ṽ(t): the mean of Z̃ for each channel, shape [E]; not for policies."""
        return self.scale.mean(self.speeds, self.problem.cost, slot)

    def history(self, slots: int, seed: int) -> tuple[Ints, Floats]:
        """Arrivals [slots, L] and Z̃ [slots, E] of a run: what its policies meet, drawn again."""
        streams = Streams.of(seed)
        stream: ArrivalStream = self.workload.stream(streams.workload)
        blocks, missing = [], slots
        while missing > 0:
            blocks.append(stream.draw(missing))
            missing -= len(blocks[-1])
        raw = self.speeds.draw(0, slots, streams.noise.spawn(2)[0])
        return np.concatenate(blocks), self.scale.apply(raw, self.problem.cost)

    @cached_property
    def _evaluated(self) -> dict[tuple[int, int, int | None], tuple[Comparator, Comparator]]:
        return {}

    def comparator(self, name: str, slots: int, seed: int, sample: int | None = None) -> Comparator:
        """``omniscient`` or ``omniscient_realised`` on the slots of a run (see :mod:`.offline`)."""
        from gangwise.fluctuating_speeds import offline

        key = (slots, seed, sample)
        if key not in self._evaluated:
            self._evaluated[key] = offline.omniscient(self, slots, seed, sample)
        return self._evaluated[key][self.comparators.index(name)]
