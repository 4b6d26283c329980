"""Clusters, job types and channels (OGASched §2.1, Fig. 1); workloads; delivery of feedback.

A workload is a description; its ``stream`` is one realisation, drawn from a generator of its own so
that all policies meet the same arrivals. Streams pickle, and drawing n slots and then m gives the
same arrivals as drawing n + m. Feedback comes at once, after a delay, out of order, or never.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from gangwise.core import arrays
from gangwise.core.arrays import Bools, Floats, Ints, check_amount, check_names, first, frozen, keep
from gangwise.core.errors import ScenarioError, UnknownName


@dataclass(frozen=True)
class Server:
    """One server, with how much it has of each device type (absent means none)."""

    name: str
    capacity: Mapping[str, float]


@dataclass(frozen=True)
class JobType:
    """Jobs that look alike to the scheduler, with what one of them requests of each device type."""

    name: str
    requests: Mapping[str, float]


def _vector(
    owner: str, quantities: Mapping[str, float], devices: Sequence[str], what: str
) -> list[float]:
    for device in quantities:
        if device not in devices:
            raise ScenarioError(f"{owner}: {UnknownName('device type', device, list(devices))}")
    row = [float(quantities.get(device, 0.0)) for device in devices]
    check_amount(np.array(row), lambda k: f"{owner}: {what} of device type {devices[k]!r}")
    return row


def request_matrix(job_types: Iterable[JobType], devices: Sequence[str]) -> Floats:
    """Requests of the job types, shape [L, K]; columns are in the order of ``devices``.

    Raises ScenarioError for an unknown device type or a request that is negative or not finite.

    >>> request_matrix([JobType("train", {"gpu": 4})], ["cpu", "gpu"])
    array([[0., 4.]])
    """
    rows = [_vector(f"job type {j.name!r}", j.requests, devices, "request") for j in job_types]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(devices))


@dataclass(frozen=True, eq=False)
class Cluster:
    """Servers and what they have.

    Parameters
    ----------
    capacity : ndarray of shape [R, K]
        Devices of each type on each server; finite and not negative.
    devices, servers : tuple of str
        Names, length K and R; servers are ``server-0`` … by default.

    Examples
    --------
    >>> Cluster.of([Server("a", {"gpu": 8}), Server("b", {"gpu": 4, "cpu": 64})]).capacity
    array([[ 8.,  0.],
           [ 4., 64.]])
    """

    capacity: Floats
    devices: tuple[str, ...]
    servers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        capacity = frozen(self.capacity)
        if capacity.ndim != 2 or 0 in capacity.shape:
            raise ScenarioError(
                "capacity must be a table of servers by device types with at least one of each; "
                f"its shape is {capacity.shape}"
            )
        R, K = capacity.shape
        names = check_names(self.servers, R, "server")
        devices = check_names(self.devices, K, "device type")
        check_amount(
            capacity,
            lambda at: f"server {names[at[0]]!r}: capacity of device type {devices[at[1]]!r}",
        )
        keep(self, capacity=capacity, servers=names)

    @classmethod
    def of(cls, servers: Sequence[Server], devices: Sequence[str] = ()) -> Cluster:
        """Build a cluster from servers; by default their device types, in their order."""
        names = list(devices or dict.fromkeys(k for server in servers for k in server.capacity))
        rows = [_vector(f"server {s.name!r}", s.capacity, names, "capacity") for s in servers]
        return cls(
            np.array(rows, dtype=np.float64).reshape(len(rows), len(names)),
            tuple(names),
            tuple(s.name for s in servers),
        )


@dataclass(frozen=True, eq=False)
class Channels:
    """Channels: the edges of the bipartite graph, sorted by server, then by job type.

    ``job_type`` and ``server`` have shape [E]; ``shape`` is (L, R).

    Examples
    --------
    >>> channels = Channels.of_mask(np.array([[True, False], [True, True]]))
    >>> channels.job_type, channels.server, channels.starts
    (array([0, 1, 1]), array([0, 0, 1]), array([0, 2, 3]))
    """

    job_type: Ints
    server: Ints
    shape: tuple[int, int]
    starts: Ints = field(init=False)  # [R + 1]: the channels of server r are starts[r]:starts[r+1]

    def __post_init__(self) -> None:
        L, R = self.shape
        job_type = np.ascontiguousarray(self.job_type, dtype=np.int64)
        server = np.ascontiguousarray(self.server, dtype=np.int64)
        if job_type.ndim != 1 or job_type.shape != server.shape:
            raise ScenarioError(
                f"channels need a job type and a server each; got {job_type.shape} job types and "
                f"{server.shape} servers"
            )
        for kind, index, size in (("job type", job_type, L), ("server", server, R)):
            if (e := first((index < 0) | (index >= size))) is not None:
                raise ScenarioError(
                    f"a channel names {kind} {index[e]}; there are {size}, counted from 0"
                )
        # Kernels walk over servers: the channels of one lie next to each other.
        order = np.lexsort((job_type, server))
        job_type, server = job_type[order], server[order]
        e = first((np.diff(job_type) == 0) & (np.diff(server) == 0))
        if e is not None:
            raise ScenarioError(
                f"channel (job type {job_type[e]}, server {server[e]}) is given twice"
            )
        # Servers without a channel have an empty range, so that starts has R + 1 entries always.
        starts = np.append(0, np.cumsum(np.bincount(server, minlength=R))).astype(np.int64)
        arrays = {"job_type": job_type, "server": server, "starts": starts}
        keep(self, **{name: frozen(array, np.int64) for name, array in arrays.items()})

    def __len__(self) -> int:
        return int(self.job_type.size)

    @classmethod
    def of_mask(cls, mask: Bools) -> Channels:
        """Channels from a truth table of shape [L, R]."""
        # Transposed, so that channels come sorted by server.
        server, job_type = np.nonzero(np.asarray(mask, dtype=bool).T)
        L, R = mask.shape
        return cls(job_type.astype(np.int64), server.astype(np.int64), (L, R))

    @classmethod
    def by_fit(
        cls, cluster: Cluster, requests: Floats, names: Sequence[str] | None = None
    ) -> Channels:
        """Connect each job type to every server that can hold one of its requests whole.

        Raises ScenarioError when a job type fits on no server; names the device that is short.
        """
        requests = np.asarray(requests, dtype=np.float64)
        mask = np.zeros((len(requests), len(cluster.capacity)), dtype=bool)
        for start in range(0, len(requests), 256):  # bounded memory for many job types
            part = requests[start : start + 256]
            mask[start : start + 256] = (
                # A job that fills its server exactly must fit, whatever
                # its quantities were converted from.
                part[:, None, :] <= cluster.capacity[None, :, :] * (1 + 1e-12)
            ).all(axis=2)
        if (l := first(~mask.any(axis=1))) is not None:
            name = names[l] if names is not None else f"#{l}"
            largest = cluster.capacity.max(axis=0)
            short = [
                f"{requests[l, k]:g} {device} (the largest server has {largest[k]:g})"
                for k, device in enumerate(cluster.devices)
                if requests[l, k] > largest[k]
            ] or ["a combination that no single server has"]
            raise ScenarioError(
                f"job type {name!r} fits on no server: it requests {', '.join(short)}; "
                "lower the request, add a server, or leave the job type out"
            )
        return cls.of_mask(mask)

    def require_all_connected(self, names: Sequence[str], servers: int) -> None:
        """Raise ScenarioError unless they connect all these job types to so many servers."""
        if self.shape != (len(names), servers):
            raise ScenarioError(
                f"channels connect {self.shape} job types and servers; there are "
                f"{(len(names), servers)}"
            )
        if (l := first(np.bincount(self.job_type, minlength=len(names)) == 0)) is not None:
            raise ScenarioError(
                f"job type {names[l]!r} has no channel to any server, so none of its jobs could "
                "ever run; connect it or leave it out"
            )

    def relabelled(self, order: Ints) -> tuple[Channels, Ints]:
        """With server ``order[i]`` now called ``i``; and what each channel was called before."""
        # argsort inverts the permutation: what was called order[i] is now i.
        server = np.argsort(order)[self.server]
        return Channels(self.job_type, server, self.shape), np.lexsort((self.job_type, server))


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


Drawn = TypeVar("Drawn")


@dataclass
class SlotStream(Generic[Drawn]):
    """Stream without memory: draws depend on the slot alone, and are independent between slots."""

    of: Callable[[int, int, np.random.Generator], Drawn]
    rng: np.random.Generator
    slot: int = 0

    def draw(self, slots: int) -> Drawn:
        begin, self.slot = self.slot, self.slot + slots
        return self.of(begin, slots, self.rng)


def _whole(value: npt.ArrayLike, what: str) -> Ints:
    numbers = np.asarray(value)
    with np.errstate(invalid="ignore"):  # NaN is found below
        array = np.array(numbers, dtype=np.int64, ndmin=1, order="C")
    if numbers.dtype.kind not in "iub" and not np.array_equal(array, np.atleast_1d(numbers)):
        raise ScenarioError(f"{what} must be whole numbers; got {numbers.dtype} values")
    array.setflags(write=False)
    return array


def _probabilities(value: npt.ArrayLike, what: str, L: int | None = None) -> Floats:
    array = np.array(value, dtype=np.float64, ndmin=1)
    if L is not None and array.size == 1:
        array = np.full(L, array[0])
    if array.ndim != 1 or not ((array >= 0) & (array <= 1)).all():
        bad = array[~((array >= 0) & (array <= 1))]
        fault = bad[:1] if bad.size else f"shape {array.shape}"
        raise ScenarioError(f"{what} must lie in [0, 1]; found {fault}")
    if L is not None and array.size != L:
        raise ScenarioError(f"{what} is given for {array.size} job types; there are {L}")
    array.setflags(write=False)
    return array


@dataclass(frozen=True, eq=False)
class BinomialArrivals:
    """Binomial arrivals: ``most[l]`` chances in each slot, each a job with ``probability[l]``; [L].

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
        return SlotStream(self._draw, rng)

    def _draw(self, first: int, slots: int, rng: np.random.Generator) -> Ints:
        # One uniform number for each chance, slot by slot: n slots and then m are as n + m.
        chances = rng.random((slots, int(self.most.sum())))
        starts = np.concatenate(([0], np.cumsum(self.most)[:-1]))
        hit = chances < np.repeat(self.probability, self.most)
        return np.add.reduceat(hit.astype(np.int64), starts, axis=1)


class BernoulliArrivals(BinomialArrivals):
    """Bernoulli arrivals, OGASched (1): at most one job of a type in a slot, ``probability[l]``.

    >>> BernoulliArrivals([1.0, 0.0]).stream(np.random.default_rng(0)).draw(2)
    array([[1, 0],
           [1, 0]])
    """

    def __init__(self, probability: npt.ArrayLike):
        p = _probabilities(probability, "arrival probability")
        super().__init__(p, np.ones(p.size, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class OnOffArrivals(arrays.Checked):
    """On-off arrivals: each job type is on or off; while on, a job comes with ``probability[l]``.

    On and off periods have geometric lengths with means ``mean_on`` and ``mean_off`` (slots),
    independently per job type; the first slot is drawn from the stationary distribution.
    """

    probability: Floats
    mean_on: arrays.OneOrMore = 20.0
    mean_off: arrays.OneOrMore = 20.0

    def __post_init__(self) -> None:
        super().__post_init__()
        keep(self, probability=_probabilities(self.probability, "arrival probability"))

    @property
    def most(self) -> Ints:
        return np.ones(self.probability.size, dtype=np.int64)

    def stream(self, rng: np.random.Generator) -> ArrivalStream:
        # The stationary share of slots that are on.
        on = rng.random(self.probability.size) < self.mean_on / (self.mean_on + self.mean_off)
        return _OnOffStream(self, rng, on)


@dataclass
class _OnOffStream:
    workload: OnOffArrivals
    rng: np.random.Generator
    on: npt.NDArray[np.bool_]

    def draw(self, slots: int) -> Ints:
        w = self.workload
        # Two numbers per slot and type whatever the state, so
        # that common random numbers stay common.
        u = self.rng.random((slots, 2, w.probability.size))
        arrivals = np.empty((slots, w.probability.size), dtype=np.int64)
        for t in range(slots):
            arrivals[t] = self.on & (u[t, 0] < w.probability)
            # A period of mean length m ends with probability 1/m in each slot (geometric).
            switch = u[t, 1] < np.where(self.on, 1 / w.mean_on, 1 / w.mean_off)
            self.on = self.on ^ switch
        return arrivals


@dataclass(frozen=True, eq=False)
class ReplayedArrivals(arrays.Checked):
    """Replayed arrivals: counts from a trace, optionally thinned.

    ``counts`` [slots, L] are the jobs of each type in each slot; a job is kept with probability
    ``keep`` (ρ of OGASched §4); with ``repeat`` they begin again after the last slot.
    """

    counts: Ints
    keep: arrays.Share = 1.0
    repeat: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = _whole(self.counts, "replayed arrivals")
        if counts.ndim != 2 or 0 in counts.shape or (counts < 0).any():
            raise ScenarioError(
                "replayed arrivals must be a table of slots by job types with counts of zero or "
                f"more; its shape is {counts.shape}"
            )
        keep(self, counts=counts)

    @property
    def most(self) -> Ints:
        """The largest count of each job type, at least one."""
        most: Ints = np.maximum(self.counts.max(axis=0), 1)
        return most

    def stream(self, rng: np.random.Generator) -> ArrivalStream:
        return SlotStream(self._draw, rng)

    def _draw(self, first: int, slots: int, rng: np.random.Generator) -> Ints:
        length = len(self.counts)
        index = np.arange(first, first + slots)
        if not self.repeat:
            index = index[index < length]
            if not index.size:
                raise ScenarioError(
                    f"the trace has {length} slots and more were asked for; use fewer slots, "
                    "shorter slots, or repeat the trace"
                )
        # Without ``repeat`` the index is below the length already.
        counts = self.counts[index % length]
        thinned: Ints = rng.binomial(counts, self.keep) if self.keep < 1 else counts
        return thinned


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
            # A copy, made read-only below: a stream may hand out an array of its own.
            self._block = np.array(self._stream.draw(BLOCK), dtype=np.int64)
            self._block.setflags(write=False)
        row: Ints = self._block[slot - self._first]
        return row


def first_slots(stream: ArrivalStream, slots: int) -> Ints:
    """Arrivals of the first slots of a stream, shape [slots, L]."""
    blocks: list[Ints] = []
    while (missing := slots - sum(map(len, blocks))) > 0:
        # A replayed trace may give fewer than asked for, and raises once it has none.
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
class Delivery(arrays.Checked):
    """Delay and loss of feedback, drawn for every slot whatever was decided.

    ``delay`` is the slots between a decision and its feedback, 0 within the slot; ``geometric``
    delays have it as their mean, so that feedback overtakes. With probability ``loss`` it never
    comes.

    >>> Delivery(2, "geometric", loss=0.2).draw(8, np.random.default_rng(2))
    array([ 0,  2,  2, -1,  1,  2, -1, -1])
    """

    delay: arrays.NonNegative = 0.0
    kind: Literal["constant", "geometric"] = "constant"
    loss: arrays.Share = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind == "constant" and self.delay != int(self.delay):
            raise ScenarioError(f"a constant delay is a whole number of slots, not {self.delay}")

    @classmethod
    def fuzz(cls, rng: np.random.Generator) -> Delivery:
        """Feedback at once, two slots late, or late by chance and lossy: for checks."""
        return (cls(), cls(2), cls(1.5, "geometric", loss=0.2))[int(rng.integers(3))]

    def draw(self, slots: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Delay of the feedback of each slot; −1 where it is lost."""
        # Drawn even where nothing can be lost: the delays that follow stay the same for any loss.
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
    """Mailbox of feedback: posted with a delay, handed out when it is due, oldest slot first.

    >>> mailbox = Mailbox[str]()
    >>> [mailbox.exchange(t, delay, f"slot {t}") for t, delay in enumerate([1, -1, 0])]
    [(), ('slot 0',), ('slot 2',)]
    """

    _waiting: list[tuple[int, int, FeedbackT]] = field(default_factory=list)

    def exchange(self, slot: int, delay: int, feedback: FeedbackT) -> tuple[FeedbackT, ...]:
        """Post the feedback of ``slot`` (a delay of −1 loses it) and take what is due by now."""
        # The usual case, in every slot of nearly every run: no heap is touched.
        if delay == 0 and not self._waiting:
            return (feedback,)
        if delay >= 0:
            # The slot breaks ties, so that feedback itself is never compared.
            heapq.heappush(self._waiting, (slot + delay, slot, feedback))
        due = []
        while self._waiting and self._waiting[0][0] <= slot:
            due.append(heapq.heappop(self._waiting)[2])
        return tuple(due)
