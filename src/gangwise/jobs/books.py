"""The view of a scheduler (books, events, rates) and its answers (place, preempt, ask).

Books say what is free and which job runs where, in whole thousandths of devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, Self, TypeVar

import numpy as np

from gangwise.core.arrays import Bools, Ints
from gangwise.jobs.kernels import SEARCHED
from gangwise.jobs.model import Job, Nodes, Shape
from gangwise.jobs.tenancy import Cap, Opening, Tally, Tenancy, allowed_on

Piece = tuple[int, int, int]
"""Node, tasks on it, and a mask of the shared devices they use (0 if not counted one by one)."""

Left = Literal["finished", "killed", "cancelled", "failed", "preempted"]
EventKind = Literal["submitted", "started", Left, "node_up", "node_down", "node_drained"]


Part = TypeVar("Part", bound=tuple[int, ...])


def states_of(tasks: Sequence[int]) -> int:
    """States of a search for room for groups of so many tasks, see `fit_kernels.search`."""
    # Counts 0 … n of each group but the largest, which the search maximises instead of enumerating.
    return math.prod(n + 1 for n in tasks) // (max(tasks) + 1)


def searched(shape: Shape, books: Books) -> bool:
    """Whether all ways to place the groups of a shape are searched, see :func:`main_group`."""
    sizes = [tasks for tasks, _ in shape.groups] or [1]
    # Fractions of two sizes pack on one device in an order-dependent way, which states do not hold.
    parts = {a for _, part in shape.groups if 0 < (a := books.of_shared(part)) < 1000}
    return states_of(sizes) ** 2 * len(books.up) <= SEARCHED and len(parts) < 2


def of_groups(shape: Shape, parts: Iterable[Part]) -> Iterator[tuple[Shape, list[Part]]]:
    """The pieces (node, tasks, …) of each group of a job, which come one after another.

    Of a job whose tasks are alike: its shape and all of them.
    """
    parts = list(parts)
    if not shape.groups:
        yield shape, parts
        return
    begin = 0
    for tasks, part in shape.groups:
        past = begin
        while tasks > 0 and past < len(parts):
            # Pieces carry no group: one ends where its tasks are all counted.
            tasks, past = tasks - parts[past][1], past + 1
        yield part, parts[begin:past]
        begin = past


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a job or a node, which a scheduler reads at its next round."""

    kind: EventKind
    time: float
    job: Job | None = None
    node: int = -1
    pieces: tuple[Piece, ...] = ()

    @property
    def over(self) -> bool:
        """Whether the job is gone for good."""
        return self.kind in ("finished", "killed", "cancelled")

    @property
    def released(self) -> bool:
        """Whether the job gave its devices back, for whatever reason."""
        # A job cancelled while it waited held nothing.
        if self.kind == "cancelled":
            return bool(self.pieces)
        return self.kind in ("finished", "killed", "failed", "preempted")


@dataclass(frozen=True, slots=True)
class Rate:
    """Rates measured of one gang.

    Attributes
    ----------
    nodes, rates : tuple
        Of each piece: its node and work per second as last measured.
    begun, time : float
        Since when it has been working, and now.
    first : bool
        Nothing of this attempt was measured before.
    ended : bool
        The job has just ended by itself: its work was about (time − begun) × min(rates).
    """

    job: Job
    nodes: tuple[int, ...]
    rates: tuple[float, ...]
    begun: float
    time: float
    first: bool
    ended: bool


@dataclass(frozen=True, slots=True)
class Running:
    job: Job
    pieces: tuple[Piece, ...]
    begun: float
    overhead: float


class Queue(tuple[Job, ...]):
    """Jobs that wait, in the order of (submission, row of the log)."""

    __slots__ = ()


@dataclass(slots=True)
class Books:
    """Accounts of the cluster: free devices and running jobs.

    Attributes
    ----------
    capacity, free : ndarray [N, K]
        Thousandths of devices; a node that is down has nothing free, one that drains less than
        nothing until what runs there has ended.
    device : ndarray [N, D]
        Free of each shared device ([N, 0] where they are not counted one by one).
    up : ndarray [N]
    running : dict
        Id → :class:`Running`, in the order of their starts.
    events : list of Event
        Since the last round.
    caps : tuple of Cap
        What may be in use at once; a start beyond one is refused.
    hours : Opening, optional
        When some jobs do not start.
    tenancy : Tenancy, optional
        Priorities and preemption.
    """

    nodes: Nodes
    capacity: Ints
    free: Ints
    device: Ints
    up: Bools
    running: dict[str, Running]
    events: list[Event]
    caps: tuple[Cap, ...] = ()
    hours: Opening | None = None
    tenancy: Tenancy | None = None

    @classmethod
    def opened(cls, nodes: Nodes) -> Books:
        device = np.zeros((len(nodes), 0), dtype=np.int64)
        # [N, D] with D of the largest node; slots that a smaller node lacks are 0, never free.
        if nodes.shared is not None:
            count = nodes.capacity[:, nodes.devices.index(nodes.shared)] // 1000
            device = np.where(np.arange(count.max(initial=0)) < count[:, None], 1000, 0)
        up = np.ones(len(nodes), dtype=bool)
        return cls(nodes, nodes.capacity, nodes.capacity.copy(), device, up, {}, [])

    def copy(self) -> Self:
        """A copy on which placements can be tried."""
        free, device = self.free.copy(), self.device.copy()
        return replace(self, free=free, device=device, running=dict(self.running), events=[])

    def if_up(self, nodes: Bools) -> Self:
        """The books if these nodes [N] were up as well: all is free there but what still runs."""
        empty, returning = Books.opened(self.nodes), (nodes & ~self.up)[:, None]
        # Nodes that are away have nothing free, less what still runs there.
        free = self.free + empty.free * returning
        device = self.device + empty.device * returning
        return replace(self, free=free, device=device, up=self.up | nodes)

    def dominant(self, shape: Shape) -> int:
        """Device type of which a task asks for the largest share of the cluster."""
        # A device type that no node has would divide by zero.
        total = np.maximum(self.capacity.sum(axis=0), 1)
        return int(np.argmax(np.array(shape.demand) / total))

    def size(self, job: Job) -> float:
        """Devices of its dominant type that all tasks of a job hold."""
        # The same arithmetic as in the kernels: a float, compared only with floats made alike.
        return job.tasks * job.shape.demand[self.dominant(job.shape)] / 1000.0

    def start(self, job: Job, tasks: Sequence[tuple[int, int]], now: float) -> Place:
        """Take the devices of a job that starts now, and give the action that says so."""
        pieces = self.tell_apart(job.shape, tasks)
        self.take(job.shape, pieces)
        self.running[job.id] = Running(job, pieces, now, 0.0)
        return Place(job.id, tuple(tasks), pieces)

    def has_room(self, job: Job) -> bool:
        """Whether all tasks of a job fit now; its groups in any way that :meth:`search` finds."""
        if job.shape.groups:
            return bool(self.somewhere(job.shape, job.tasks, job.apart))
        return int(self.fits(job.shape).sum()) >= job.tasks

    def somewhere(self, shape: Shape, tasks: int, apart: bool = False) -> list[tuple[int, int]]:
        """The first nodes that have room for so many tasks; none where there is too little.

        Groups are placed one after another, in the order of ``shape.groups``; where one finds no
        room so, :meth:`search` may. With ``apart`` no two of them share a node.
        """
        trial, chosen = self.copy() if shape.groups else self, list[tuple[int, int]]()
        for wanted, part in shape.groups or ((tasks, shape),):
            fits = trial.fits(part)
            # Each node takes what those before it have left over.
            earlier = np.cumsum(fits) - fits
            takes = np.clip(wanted - earlier, 0, fits)
            if int(takes.sum()) < wanted:
                return self.search(shape, apart=apart) if shape.groups else []
            on = np.flatnonzero(takes)
            mine = list(zip(on.tolist(), takes[on].tolist()))
            # The next group sees what this one took; a job of one shape needs no trial.
            if shape.groups:
                trial.take(part, trial.tell_apart(part, mine))
            if apart:
                trial.up = trial.up & (takes == 0)
            chosen += mine
        return chosen

    def search(
        self, shape: Shape, ups: Sequence[Bools] = (), apart: bool = False
    ) -> list[tuple[int, int]]:
        """A way to place groups, of all ways; none where there is none.

        As :func:`gangwise.jobs.fit_kernels.search` says. ``ups`` are the nodes that each group may
        use [N], where not all that are up; with ``apart`` no two groups share a node.
        """
        groups, on = shape.groups, ups or [self.up] * len(shape.groups)
        # The largest group is the value of the search; the others span its states.
        main = max(range(len(groups)), key=lambda g: groups[g][0])
        others = [g for g in range(len(groups)) if g != main]
        N, wanted = len(self.up), groups[main][0]
        if not searched(shape, self):
            return []
        # Necessary: each group alone must fit. Cheap, and it refuses most jobs.
        if any(replace(self, up=up).fits(p).sum() < n for up, (n, p) in zip(on, groups)):
            return []
        sizes = tuple(groups[g][0] + 1 for g in others)
        # For each set of other groups' tasks on a node: how many main tasks fit beside.
        beside: list[tuple[tuple[int, ...], Ints]] = []
        for state in product(*map(range, sizes)):
            trial, able = self.copy(), np.ones(N, dtype=bool)
            for g, count in zip(others, state):
                part = groups[g][1]
                able &= (replace(trial, up=on[g]).fits(part) >= count) | (count == 0)
                mine = [(n, count) for n in np.flatnonzero(able).tolist()] if count else []
                trial.take(part, trial.tell_apart(part, mine))
            fits = np.minimum(replace(trial, up=on[main]).fits(groups[main][1]), wanted)
            # Apart: at most one group on the node, so no main tasks beside others.
            if apart and any(state):
                able &= sum(map(bool, state)) == 1
                fits *= 0
            if able.any():
                beside.append((state, np.where(able, fits, -1)))
        # behind[n, state]: most main tasks on nodes n … N−1 that also take `state`; −1 for none.
        behind: Any = np.full((N + 1, *sizes), -1)
        behind[(N,) + (0,) * len(sizes)] = 0
        for n in range(N - 1, -1, -1):
            # A knapsack over nodes, solved from the last one so that the walk below runs forwards.
            for state, fitting in beside:
                if fitting[n] >= 0:
                    to = tuple(slice(a, None) for a in state)
                    rest = tuple(slice(0, size - a) for a, size in zip(state, sizes))
                    after = behind[(n + 1, *rest)]
                    ways = np.where(after >= 0, after + fitting[n], -1)
                    behind[(n, *to)] = np.maximum(behind[(n, *to)], ways)
        state, placed = tuple(size - 1 for size in sizes), [list[tuple[int, int]]() for _ in groups]
        if behind[0][state] < wanted:
            return []
        # The first in the order of `product` that leaves enough behind: few on early nodes.
        for n in range(N):
            for a, fitting in beside:
                rest_state = tuple(k - b for k, b in zip(state, a))
                later = behind[n + 1][rest_state] if min(rest_state) >= 0 else -1
                if min(fitting[n], later) >= 0 and fitting[n] + later >= wanted:
                    break
            state, of_main = rest_state, min(int(fitting[n]), wanted)
            wanted -= of_main
            for g, count in [*zip(others, a), (main, of_main)]:
                placed[g] += [(n, count)] * (count > 0)
        return [piece for of_group in placed for piece in of_group]

    def fits(self, shape: Shape) -> Ints:
        """How many tasks of a shape each node takes now [N]; none where it is not up.

        Of a shape of groups, how often a node takes them all.
        """
        # Free devices are below 0 on a node that drains: no task, by the maximum below.
        demand = np.array(shape.demand, dtype=np.int64)
        requested = demand > 0
        take: Ints = (self.free[:, requested] // demand[requested]).min(axis=1)
        amount = self.of_shared(shape)
        # A fraction fits on one device; whole ones need devices that are unused.
        if 0 < amount < 1000:
            # Fractions share a device, but none spans two: floors device by device.
            take = np.minimum(take, (np.maximum(self.device, 0) // amount).sum(axis=1))
        elif amount:
            take = np.minimum(take, (self.device == 1000).sum(axis=1) // (amount // 1000))
        take = np.where(self.up, np.maximum(take, 0), 0)
        if shape.per_node:
            take = np.minimum(take, shape.per_node)
        if shape.constraint or shape.pool:
            take = np.where(allowed_on(self.nodes, shape), take, 0)
        return take

    def of_shared(self, shape: Shape) -> int:
        """Thousandths of the shared device type that a task asks for; 0 where none is shared."""
        shared = self.nodes.shared
        return 0 if shared is None else shape.demand[self.nodes.devices.index(shared)]

    def held(self, job: Job) -> Cap | None:
        """The cap that keeps a job from starting now, None for none; counted anew."""
        return self.tally().holds(job)

    def opens(self, job: Job, time: float) -> float:
        """The first time from then on at which a job may start, as far as closed hours go."""
        return time if self.hours is None else self.hours.opens(job.row, time)

    def tally(self) -> Tally:
        return Tally(self.caps, self.nodes, (r.job for r in self.running.values()))

    def tell_apart(
        self,
        shape: Shape,
        tasks: Sequence[tuple[int, int]],
        device: Callable[[Books, int], int] | None = None,
    ) -> tuple[Piece, ...]:
        """Give tasks on nodes their shared devices.

        Fractions take the fullest device that has room, wholes the first that are unused. With
        ``device``, fractions take what it says, as a mask, of books and a node.
        """
        if shape.groups:
            trial, every = self.copy(), list[Piece]()
            for part, mine in of_groups(shape, tasks):
                part_pieces = trial.tell_apart(part, mine, device)
                trial.take(part, part_pieces)
                every += part_pieces
            return tuple(every)
        if (amount := self.of_shared(shape)) == 0:
            return tuple((int(n), int(c), 0) for n, c in tasks)
        # Only arrays are tried on: copying who runs would cost more than the rest.
        trial = replace(self, free=self.free.copy(), device=self.device.copy())
        pieces = list[Piece]()
        for n, c in tasks:
            # A whole device is taken only when no fraction runs on it.
            if amount >= 1000:
                unused = np.flatnonzero(self.device[n] == 1000)[: c * (amount // 1000)]
                pieces.append((int(n), int(c), sum(1 << int(g) for g in unused)))
                continue
            for i in range(c):
                # Best fit: small fractions fill broken devices and leave whole ones whole. 1001 is
                # more than any free amount, so a full device loses to each that has room.
                free = trial.device[n]
                mask = 1 << int(np.argmin(np.where(free >= amount, free, 1001)))
                mask = device(trial, n) if device else mask
                trial.take(shape, [(n, 1, mask)])
                # Neighbouring tasks on the same device become one piece.
                if i and pieces[-1][2] == mask:
                    pieces[-1] = (int(n), pieces[-1][1] + 1, mask)
                else:
                    pieces.append((int(n), 1, mask))
        return tuple(pieces)

    def take(self, shape: Shape, pieces: Iterable[Piece], sign: int = -1) -> None:
        """Take the devices of pieces, or give them back with ``sign=1``."""
        if shape.groups:
            for part, mine in of_groups(shape, pieces):
                self.take(part, mine, sign)
            return
        # `free` has sums by device type, `device` each shared device: both are kept.
        demand, amount = np.array(shape.demand, dtype=np.int64), self.of_shared(shape)
        for n, c, mask in pieces:
            self.free[n] += sign * c * demand
            for g in range(mask.bit_length()):
                if mask >> g & 1:
                    # A fraction's mask has one bit for all c tasks, wholes have a bit each.
                    self.device[n, g] += sign * (c * amount if amount < 1000 else 1000)


@dataclass(frozen=True, slots=True)
class Place:
    """Start a job now: so many tasks on each node.

    ``tasks`` pairs nodes (their place in the cluster's order) with numbers of tasks; ``pieces``,
    where given, names the shared devices as well. Of a job of groups they come group by group, in
    the order of ``shape.groups``.
    """

    job: str
    tasks: tuple[tuple[int, int], ...]
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Preempt:
    """Take a running job off its nodes; it waits again and a restart costs.

    ``requeue``: what it did since its last checkpoint is lost; ``cancel``: it is withdrawn.
    """

    job: str
    how: Literal["keep", "requeue", "cancel"] = "keep"


@dataclass(frozen=True, slots=True)
class Ask:
    """Call ``place`` again at that time at the latest, should the job still wait.

    ``idle``: only an event can change what is decided by then. Where none is to come, a simulation
    ends.
    """

    job: str
    at: float
    idle: bool = False


@dataclass(frozen=True)
class Explanation:
    """Why a job waits.

    Attributes
    ----------
    constraint : str
        What holds it back.
    nodes : tuple of str
        Where it would fit but for that.
    since : float
        When this began.
    until : float
        When it is expected to end, inf where nothing says.
    frees : tuple of str
        Jobs whose end is expected to let it start.
    start : float
        When it is expected to start if everyone takes as long as requested and no other job comes;
        inf where nothing says.
    cause : str
        What the wait is charged to now, of :data:`gangwise.jobs.waiting.CAUSES`; "" where nothing
        says. ``kept`` stands for ``unseen`` as well, of which only the time to come decides.
    users : tuple of str
        Whose jobs hold what it waits for, most first; or for whose it is kept.
    """

    job: str
    constraint: str
    nodes: tuple[str, ...]
    since: float
    until: float
    frees: tuple[str, ...] = ()
    start: float = np.inf
    cause: str = ""
    users: tuple[str, ...] = ()

    def __str__(self) -> str:
        places = f"; {', '.join(self.nodes[:5])} would do" if self.nodes else ""
        until = f", expected until {self.until:g} s" if np.isfinite(self.until) else ""
        text = f"job {self.job} waits since {self.since:g} s: {self.constraint}{places}{until}"
        if self.frees:
            text += f"; the end of {', '.join(self.frees[:5])} would let it start"
        return text + (f"; expected start {self.start:g} s" if np.isfinite(self.start) else "")
