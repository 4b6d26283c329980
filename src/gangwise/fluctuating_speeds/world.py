"""What channels and gangs at fluctuating speeds share: what is drawn, seen and told in a slot.

Utilities are drawn for all channels. Only channels that were used tell theirs (semi-bandit
feedback), late or never if so wished.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gangwise.core.arrivals import BLOCK, first_slots
from gangwise.core.delivery import Delivery, Mailbox
from gangwise.core.environment import Comparator, Outcome
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.policy import Timing
from gangwise.core.streams import Streams
from gangwise.core.workload import Workload
from gangwise.fluctuating_speeds.normalisation import Scale
from gangwise.fluctuating_speeds.speeds import Speeds

__all__ = ["Feedback", "Observation", "SpeedsEnvironment", "SpeedsInstance"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


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
    """What one slot taught about the channels that were used.

    Attributes
    ----------
    slot : int
        The slot that it is about, which need not be the last one.
    channels : ndarray of int64, shape [n]
        Channels that were used.
    utilities : ndarray of float64, shape [n]
        Z̃ of these channels, net of supply cost and normalised into [0, 1].
    """

    slot: int
    channels: Ints
    utilities: Floats


class Channelled(Protocol):
    """A problem, as far as it is needed here."""

    @property
    def L(self) -> int:
        """Number of job types."""

    @property
    def E(self) -> int:
        """Number of channels."""

    @property
    def cost(self) -> Floats:
        """Supply cost of each channel, shape [E]."""

    @property
    def job_types(self) -> tuple[str, ...]:
        """Names, length L."""


@dataclass(frozen=True, eq=False)
class SpeedsInstance(ABC):
    """A problem, its workload, and what policies are not told.

    Parameters
    ----------
    problem : FluctuatingSpeedsProblem or GangSpeedsProblem
    workload : Workload
        At most one job of a type in a slot (§2.2).
    speeds : Speeds
        Distribution of Z for each channel, before supply cost.
    scale : Scale
        Normalisation of the net utility into [0, 1].
    delivery : Delivery
        Delay and loss of feedback.

    Raises
    ------
    ScenarioError
        When speeds or workload do not match the problem, or several jobs of a type may come.
    """

    problem: Channelled
    workload: Workload
    speeds: Speeds
    scale: Scale = field(default_factory=Scale)
    delivery: Delivery = field(default_factory=Delivery)
    comparators = ("omniscient", "omniscient_realised")

    def __post_init__(self) -> None:
        p, most = self.problem, np.asarray(self.workload.most)
        if self.speeds.size != p.E:
            raise ScenarioError(
                f"speeds are given for {self.speeds.size} channels; there are {p.E}"
            )
        if most.size != p.L:
            raise ScenarioError(f"the workload brings {most.size} job types; the problem has {p.L}")
        if (most > 1).any():
            l = int(np.argmax(most > 1))
            raise ScenarioError(
                f"up to {most[l]} jobs of type {p.job_types[l]!r} arrive in one slot; this family "
                "has at most one, §2.2: list the type several times under different names, or "
                "shorten the slots"
            )

    def means(self, slot: int) -> Floats:
        """ṽ(t): the mean of Z̃ for each channel, shape [E]; not for policies."""
        return self.scale.mean(self.speeds, self.problem.cost, slot)

    def history(self, slots: int, seed: int) -> tuple[Ints, Floats]:
        """Arrivals [slots, L] and Z̃ [slots, E] of a run: what its policies meet, drawn again."""
        streams = Streams.of(seed)
        arrivals = first_slots(self.workload.stream(streams.workload), slots)
        raw = self.speeds.draw(0, slots, streams.noise.spawn(2)[0])
        return arrivals, self.scale.apply(raw, self.problem.cost)

    @cached_property
    def _evaluated(self) -> dict[tuple[int, int, int | None], tuple[Comparator, Comparator]]:
        return {}

    def comparator(self, name: str, slots: int, seed: int, sample: int | None = None) -> Comparator:
        """``omniscient`` or ``omniscient_realised`` on the slots of a run (see :mod:`.offline`)."""
        if name not in self.comparators:
            raise UnknownName("comparator", name, list(self.comparators))
        key = (slots, seed, sample)
        if key not in self._evaluated:
            self._evaluated[key] = self._omniscient(slots, seed, sample)
        return self._evaluated[key][self.comparators.index(name)]

    @abstractmethod
    def _omniscient(
        self, slots: int, seed: int, sample: int | None
    ) -> tuple[Comparator, Comparator]:
        """Both comparators, in the order of their names."""


@dataclass(eq=False)
class SpeedsEnvironment(ABC):
    """Plays a workload and speeds; what is done with a decision is each family's own."""

    instance: SpeedsInstance
    _arrivals: Ints = field(init=False, repr=False)
    _utilities: Floats = field(init=False, repr=False)
    _due: Ints = field(init=False, repr=False)
    _first: int = field(init=False, repr=False, default=0)

    def start(self, workload: np.random.Generator, noise: np.random.Generator) -> None:
        """Begin a run; utilities and delays have generators of their own."""
        self._stream = self.instance.workload.stream(workload)
        self._noise, self._fate = noise.spawn(2)
        self._arrivals = np.empty((0, self.instance.problem.L), dtype=np.int64)
        self._first = 0
        self._mailbox = Mailbox[Feedback]()
        self._regime: int | None = None
        self._means = np.empty(0)

    def _row(self, slot: int) -> int:
        """Where the slot is in what was drawn; slots are asked for in order."""
        while slot >= self._first + len(self._arrivals):
            self._first += len(self._arrivals)
            self._arrivals = np.array(self._stream.draw(BLOCK), dtype=np.int64)
            self._arrivals.setflags(write=False)
            slots = len(self._arrivals)
            self._utilities = self.instance.speeds.draw(self._first, slots, self._noise)
            self._due = self.instance.delivery.draw(slots, self._fate)
        return slot - self._first

    def observe(self, slot: int, timing: Timing) -> Observation:
        """The slot's arrivals; Algorithm 1 sees them before it decides."""
        if timing == "reserve":
            raise ScenarioError(
                "policies of this family see the arrivals before they decide; set timing to react"
            )
        row = self._row(slot)  # first: it may draw the next block
        return Observation(slot, self._arrivals[row])

    def means(self, slot: int) -> Floats:
        """ṽ(t), shape [E]; not for policies."""
        regime = self.instance.speeds.regime(slot)
        if regime != self._regime:
            self._regime, self._means = regime, self.instance.means(slot)
        return self._means

    def _told(self, slot: int, channels: Ints, utilities: Floats) -> tuple[Feedback, ...]:
        """Post what the channels of this slot have to tell; what is known by now."""
        due = int(self._due[slot - self._first])
        return self._mailbox.exchange(slot, due, Feedback(slot, channels, utilities))

    @abstractmethod
    def step(self, slot: int, decision: npt.ArrayLike) -> Outcome[tuple[Feedback, ...]]:
        """Play a decision; say what is known by now."""
