"""Workloads, or how many jobs of each type arrive in each slot; and when feedback arrives.

A workload is a description; its ``stream`` is one realisation, drawn from a generator of its own so
that all policies meet the same arrivals. Streams pickle, and drawing n slots and then m gives the
same arrivals as drawing n + m. Feedback comes at once, after a delay, out of order, or never.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Floats, Ints, check_numbers, keep
from gangwise.core.errors import ScenarioError


class ArrivalStream(Protocol):
    def draw(self, slots: int) -> Ints:
        """Arrivals of the next slots, shape [slots, L], in jobs.

        A replayed trace may return fewer slots at its end, and raises ScenarioError after it.
        """


class Workload(Protocol):
    """A description of arrivals; ``stream`` starts one realisation of it."""

    @property
    def most(self) -> Ints:
        """The most jobs of each type that can come in one slot, shape [L]."""

    def stream(self, rng: np.random.Generator) -> ArrivalStream: ...


def _whole(value: npt.ArrayLike, what: str) -> Ints:
    given = np.asarray(value)
    with np.errstate(invalid="ignore"):  # NaN is found below
        array = np.array(given, dtype=np.int64, ndmin=1, order="C")
    if given.dtype.kind not in "iub" and not np.array_equal(array, np.atleast_1d(given)):
        raise ScenarioError(f"{what} must be whole numbers; got {given.dtype} values")
    array.setflags(write=False)
    return array


def _probabilities(value: npt.ArrayLike, what: str, L: int | None = None) -> Floats:
    array = np.array(value, dtype=np.float64, ndmin=1)
    if L is not None and array.size == 1:
        array = np.full(L, array[0])
    if array.ndim != 1 or not ((array >= 0) & (array <= 1)).all():
        bad = array[~((array >= 0) & (array <= 1))]
        raise ScenarioError(f"{what} must lie in [0, 1]; found {bad[:1] or array.shape}")
    if L is not None and array.size != L:
        raise ScenarioError(f"{what} is given for {array.size} job types; there are {L}")
    array.setflags(write=False)
    return array


@dataclass(frozen=True, eq=False)
class BinomialArrivals:
    """``most[l]`` chances in each slot, each a job with ``probability[l]``; both of shape [L].

    ``most`` is J_l of OGASched §3.4.

    >>> stream = BinomialArrivals([0.5, 1.0], [1, 3]).stream(np.random.default_rng(0))
    >>> stream.draw(2)[:, 1]
    array([3, 3])
    """

    probability: Floats
    most: Ints

    def __post_init__(self) -> None:
        most = _whole(self.most, "most jobs per slot")
        if most.ndim != 1 or (most < 1).any():
            raise ScenarioError(f"most jobs per slot must be 1 or more for each type; got {most}")
        probability = _probabilities(self.probability, "arrival probability", most.size)
        keep(self, probability=probability, most=most)

    def stream(self, rng: np.random.Generator) -> ArrivalStream:
        return _BinomialStream(self, rng)


@dataclass
class _BinomialStream:
    workload: BinomialArrivals
    rng: np.random.Generator

    def draw(self, slots: int) -> Ints:
        w = self.workload
        chances = self.rng.random((slots, int(w.most.sum())))
        starts = np.concatenate(([0], np.cumsum(w.most)[:-1]))
        hit = chances < np.repeat(w.probability, w.most)
        return np.add.reduceat(hit.astype(np.int64), starts, axis=1)


class BernoulliArrivals(BinomialArrivals):
    """At most one job of each type in a slot, with probability ``probability[l]`` (OGASched (1)).

    >>> BernoulliArrivals([1.0, 0.0]).stream(np.random.default_rng(0)).draw(2)
    array([[1, 0],
           [1, 0]])
    """

    def __init__(self, probability: npt.ArrayLike):
        p = _probabilities(probability, "arrival probability")
        super().__init__(p, np.ones(p.size, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class OnOffArrivals:
    """Bursts: each job type is on or off; while on, a job arrives with ``probability[l]``.

    On and off periods have geometric lengths with means ``mean_on`` and ``mean_off`` (slots),
    independently per job type; the first slot is drawn from the stationary distribution.
    """

    probability: Floats
    mean_on: float = 20.0
    mean_off: float = 20.0

    def __post_init__(self) -> None:
        p = _probabilities(self.probability, "arrival probability")
        keep(self, probability=p)
        check_numbers("[1, inf)", mean_on=self.mean_on, mean_off=self.mean_off)

    @property
    def most(self) -> Ints:
        return np.ones(self.probability.size, dtype=np.int64)

    def stream(self, rng: np.random.Generator) -> ArrivalStream:
        on = rng.random(self.probability.size) < self.mean_on / (self.mean_on + self.mean_off)
        return _OnOffStream(self, rng, on)


@dataclass
class _OnOffStream:
    workload: OnOffArrivals
    rng: np.random.Generator
    on: npt.NDArray[np.bool_]

    def draw(self, slots: int) -> Ints:
        w = self.workload
        u = self.rng.random((slots, 2, w.probability.size))
        arrivals = np.empty((slots, w.probability.size), dtype=np.int64)
        for t in range(slots):
            arrivals[t] = self.on & (u[t, 0] < w.probability)
            switch = u[t, 1] < np.where(self.on, 1 / w.mean_on, 1 / w.mean_off)
            self.on = self.on ^ switch
        return arrivals


@dataclass(frozen=True, eq=False)
class ReplayedArrivals:
    """Arrivals counted from a trace, optionally thinned.

    ``counts`` [slots, L] are the jobs of each type in each slot; a job is kept with probability
    ``keep`` (ρ of OGASched §4); with ``repeat`` they begin again after the last slot.
    """

    counts: Ints
    keep: float = 1.0
    repeat: bool = False

    def __post_init__(self) -> None:
        counts = _whole(self.counts, "replayed arrivals")
        if counts.ndim != 2 or 0 in counts.shape or (counts < 0).any():
            raise ScenarioError(
                "replayed arrivals must be a table of slots by job types with counts of zero or "
                f"more; its shape is {counts.shape}"
            )
        keep(self, counts=counts)
        check_numbers("[0, 1]", keep=self.keep)

    @property
    def most(self) -> Ints:
        """The largest count of each job type, at least one."""
        most: Ints = np.maximum(self.counts.max(axis=0), 1)
        return most

    def stream(self, rng: np.random.Generator) -> ArrivalStream:
        return _ReplayedStream(self, rng)


@dataclass
class _ReplayedStream:
    workload: ReplayedArrivals
    rng: np.random.Generator
    position: int = 0

    def draw(self, slots: int) -> Ints:
        w = self.workload
        length = len(w.counts)
        index = np.arange(self.position, self.position + slots)
        if not w.repeat:
            index = index[index < length]
            if not index.size:
                raise ScenarioError(
                    f"the trace has {length} slots and more were asked for; use fewer slots, "
                    "shorter slots, or repeat the trace"
                )
        self.position += index.size
        counts = w.counts[index % length]
        kept: Ints = self.rng.binomial(counts, w.keep) if w.keep < 1 else counts
        return kept


BLOCK = 256  # slots drawn at a time


class ArrivalsBySlot:
    """Arrivals of one slot after the other, drawn some slots ahead.

    >>> stream = BernoulliArrivals([1.0, 0.0]).stream(np.random.default_rng(0))
    >>> ArrivalsBySlot(stream).at(0)
    array([1, 0])
    """

    def __init__(self, stream: ArrivalStream):
        self._stream, self._first, self._block = stream, 0, np.empty((0, 0), dtype=np.int64)

    def at(self, slot: int) -> Ints:
        """Arrivals of a slot, shape [L], read-only; slots are asked for in order."""
        while slot >= self._first + len(self._block):
            self._first += len(self._block)
            self._block = np.array(self._stream.draw(BLOCK), dtype=np.int64)
            self._block.setflags(write=False)
        row: Ints = self._block[slot - self._first]
        return row


def first_slots(stream: ArrivalStream, slots: int) -> Ints:
    """Arrivals of the first slots of a stream, shape [slots, L]."""
    blocks: list[Ints] = []
    while (missing := slots - sum(map(len, blocks))) > 0:
        blocks.append(np.asarray(stream.draw(missing), dtype=np.int64))
    return np.concatenate(blocks)


def require_single_arrivals(workload: Workload, job_types: Sequence[str]) -> None:
    """Raise ScenarioError unless at most one job of each of these types comes in a slot."""
    most = np.asarray(workload.most)
    if most.size != len(job_types):
        raise ScenarioError(
            f"the workload brings {most.size} job types; the problem has {len(job_types)}"
        )
    if (most > 1).any():
        l = int(np.argmax(most > 1))
        raise ScenarioError(
            f"up to {most[l]} jobs of type {job_types[l]!r} arrive in one slot; this family has at "
            "most one (ESDP §2.2): list the type several times under different names, or shorten "
            "the slots"
        )


# Feedback on its way

FeedbackT = TypeVar("FeedbackT")


@dataclass(frozen=True)
class Delivery:
    """Delay and loss of feedback, drawn for every slot whatever was decided.

    ``delay`` is the slots between a decision and its feedback, 0 within the slot; ``geometric``
    delays have it as their mean, so that feedback overtakes. With probability ``loss`` it never
    comes.

    >>> Delivery(2, "geometric", loss=0.2).draw(8, np.random.default_rng(2))
    array([ 0,  2,  2, -1,  1,  2, -1, -1])
    """

    delay: float = 0.0
    kind: Literal["constant", "geometric"] = "constant"
    loss: float = 0.0

    def __post_init__(self) -> None:
        check_numbers("[0, inf)", delay=self.delay)
        check_numbers("[0, 1]", loss=self.loss)
        if self.kind not in ("constant", "geometric"):
            raise ScenarioError(f"a delay is constant or geometric, not {self.kind!r}")
        if self.kind == "constant" and self.delay != int(self.delay):
            raise ScenarioError(f"a constant delay is a whole number of slots, not {self.delay}")

    def draw(self, slots: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Delay of the feedback of each slot; −1 where it is lost."""
        lost = rng.random(slots) < self.loss
        if self.kind == "geometric":
            # Inverse transform, so that one number is used per slot.
            delays = np.floor(
                np.log1p(-rng.random(slots)) / np.log(self.delay / (1.0 + self.delay))
                if self.delay > 0
                else np.zeros(slots)
            ).astype(np.int64)
        else:
            delays = np.full(slots, int(self.delay), dtype=np.int64)
        return np.where(lost, -1, delays)


@dataclass
class Mailbox(Generic[FeedbackT]):
    """Feedback on its way: posted with a delay, handed out when it is due, oldest slot first.

    >>> mailbox = Mailbox[str]()
    >>> [mailbox.exchange(t, delay, f"slot {t}") for t, delay in enumerate([1, -1, 0])]
    [(), ('slot 0',), ('slot 2',)]
    """

    _waiting: list[tuple[int, int, FeedbackT]] = field(default_factory=list)

    def exchange(self, slot: int, delay: int, feedback: FeedbackT) -> tuple[FeedbackT, ...]:
        """Post the feedback of ``slot`` (a delay of −1 loses it) and take what is due by now."""
        if delay == 0 and not self._waiting:
            return (feedback,)
        if delay >= 0:
            heapq.heappush(self._waiting, (slot + delay, slot, feedback))
        due = []
        while self._waiting and self._waiting[0][0] <= slot:
            due.append(heapq.heappop(self._waiting)[2])
        return tuple(due)
