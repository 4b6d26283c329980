"""Who is next, and who may pass: orders of the queue, and backfilling.

An order gives every waiting job a key; the smallest is first, ties go to the earlier submission,
then to the earlier row of the log. Backfilling decides who may start past a job that cannot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from gangwise.jobs.books import Books, Piece, Running
from gangwise.jobs.model import Job


class Order(Protocol):
    """An order of the queue."""

    def take_in(self, books: Books) -> None:
        """Hear what happened since the last round."""

    def keys(self, jobs: Sequence[Job], books: Books, now: float) -> list[float]:
        """A key for each waiting job, smallest first."""

    def started(self, job: Job, books: Books, now: float) -> None:
        """A job starts."""


class _ByKey:
    """An order that needs no accounts."""

    def take_in(self, books: Books) -> None:
        return

    def started(self, job: Job, books: Books, now: float) -> None:
        return


@dataclass
class FirstCome(_ByKey):
    """First come, first served."""

    name: ClassVar[str] = "fcfs"

    def keys(self, jobs: Sequence[Job], books: Books, now: float) -> list[float]:
        """All alike: ties go by submission."""
        return [0.0] * len(jobs)


@dataclass
class ShortestFirst(_ByKey):
    """Shortest job first, by the requested limit."""

    name: ClassVar[str] = "sjf"

    def keys(self, jobs: Sequence[Job], books: Books, now: float) -> list[float]:
        """Requested limits."""
        return [job.limit for job in jobs]


@dataclass
class EarliestDeadline(_ByKey):
    """Earliest deadline first; jobs without one come last."""

    name: ClassVar[str] = "edf"

    def keys(self, jobs: Sequence[Job], books: Books, now: float) -> list[float]:
        """Deadlines."""
        return [job.deadline for job in jobs]


@dataclass
class Priority(_ByKey):
    """Highest priority first."""

    name: ClassVar[str] = "priority"

    def keys(self, jobs: Sequence[Job], books: Books, now: float) -> list[float]:
        """Priorities, the largest first."""
        return [-job.priority for job in jobs]


@dataclass
class WFP3(_ByKey):
    """Largest (wait / limit)³ · size first: WFP3 of Tang et al. (2009), as used on Blue Gene/P.

    Size is devices of the job's dominant type; a limit under a second counts as one.
    """

    name: ClassVar[str] = "wfp3"

    def keys(self, jobs: Sequence[Job], books: Books, now: float) -> list[float]:
        """− (wait / limit)³ · size."""
        keys = []
        for job in jobs:
            stretch = (now - job.submitted) / max(job.limit, 1.0)
            keys.append(-(stretch * stretch * stretch) * size_of(job, books))
        return keys


@dataclass
class FairShare:
    """Users who have used least come first.

    Use is the integral of a user's share of the cluster (of the dominant device type of each of
    his jobs), halved every ``half_life`` seconds: a week, as in Slurm.
    """

    name: ClassVar[str] = "fair-share"
    half_life: float = 604_800.0
    _use: dict[str, list[float]] = field(
        default_factory=dict, init=False, repr=False
    )  # use, rate, when
    _share: dict[str, float] = field(default_factory=dict, init=False, repr=False)  # as charged

    def take_in(self, books: Books) -> None:
        """Stop charging for what has ended."""
        for event in books.events:
            if event.released and event.job:
                account = self._charged(event.job.user, event.time)
                account[1] -= self._share.pop(event.job.id, 0.0)

    def keys(self, jobs: Sequence[Job], books: Books, now: float) -> list[float]:
        """Use of each job's user."""
        for user in self._use:
            self._charged(user, now)
        return [self._charged(job.user, now)[0] for job in jobs]

    def started(self, job: Job, books: Books, now: float) -> None:
        """Charge for it from now on."""
        self._share[job.id] = share_of(job, books)
        self._charged(job.user, now)[1] += self._share[job.id]

    def _charged(self, user: str, now: float) -> list[float]:
        account = self._use.setdefault(user, [0.0, 0.0, now])
        gone = now - account[2]
        if gone > 0.0:
            if math.isinf(self.half_life):
                account[0] += account[1] * gone
            else:
                decay = math.log(2.0) / self.half_life
                kept = math.exp(-decay * gone)
                account[0] = account[0] * kept + account[1] * (1.0 - kept) / decay
        account[2] = now
        return account


def size_of(job: Job, books: Books) -> float:
    """Devices of its dominant type."""
    return job.tasks * job.shape.demand[books.dominant(job.shape)] / 1000.0


def share_of(job: Job, books: Books) -> float:
    """The same as a share of the cluster."""
    kind = books.dominant(job.shape)
    return job.tasks * job.shape.demand[kind] / float(books.capacity[:, kind].sum())


def reservation(
    job: Job, books: Books, ends: dict[str, float], now: float
) -> tuple[float, Books | None]:
    """EASY's promise: the first instant at which a job fits if running jobs end when expected.

    Gives the instant, inf for none, and the books of that instant.
    """
    then = books.copy()
    expected = sorted((max(ends[name], now), name) for name in books.running)
    for i, (instant, name) in enumerate(expected):
        running: Running = books.running[name]
        then.take(running.job.shape, running.pieces, sign=1)
        if i + 1 < len(expected) and expected[i + 1][0] == instant:
            continue
        if int(then.fits(job.shape).sum()) >= job.tasks:
            return instant, then
    return np.inf, None


@dataclass
class Plan:
    """Conservative backfilling: a reservation for every waiting job.

    A job keeps its reservation, nodes and all, unless it can start earlier. In the order of the
    queue each is asked, while all others keep theirs, so that nobody's is ever moved back; one
    whose time has come gets the best there is. When nodes come or go, all plan anew.
    """

    slots: dict[str, tuple[float, tuple[Piece, ...]]] = field(default_factory=dict)

    def move(self, place: dict[int, int]) -> None:
        """Nodes have other places now; a reservation on one that has none is given up."""
        self.slots = {
            name: (time, tuple((place[n], c, mask) for n, c, mask in pieces))
            for name, (time, pieces) in self.slots.items()
            if all(n in place for n, _, _ in pieces)
        }

    def ahead(
        self, jobs: Sequence[Job], books: Books, ends: dict[str, float], now: float
    ) -> list[tuple[float, int, Job, tuple[Piece, ...]]]:
        """Changes of what is free: (time, 0 given back or 1 taken, job, pieces), in order."""
        changes = [(max(ends[r.job.id], now), 0, r.job, r.pieces) for r in books.running.values()]
        for job in jobs:
            slot, pieces = self.slots.get(job.id, (math.inf, ()))
            if slot < math.inf and job.limit > 0.0 and slot + job.limit > now:
                changes += [(max(slot, now), 1, job, pieces), (slot + job.limit, 0, job, pieces)]
        return changes

    def earliest(
        self,
        job: Job,
        free: Books,
        changes: list[tuple[float, int, Job, tuple[Piece, ...]]],
        choice: Any,
        now: float,
        before: float,
    ) -> tuple[float, Any, Any]:
        """First instant from which the gang fits for its whole limit; its tasks and pieces.

        inf and None where there is none before ``before``.
        """
        changes = sorted((c for c in changes if c[2].id != job.id), key=lambda c: c[:2])
        then = free.copy()
        place = 0
        time = now
        while True:
            while place < len(changes) and changes[place][0] <= time:
                _, taken, other, pieces = changes[place]
                then.take(other.shape, pieces, -1 if taken else 1)
                place += 1
            if int(then.fits(job.shape).sum()) >= job.tasks:
                least, later = then.copy(), then.copy()
                for at, taken, other, pieces in changes[place:]:
                    if at >= time + job.limit:
                        break
                    later.take(other.shape, pieces, -1 if taken else 1)
                    np.minimum(least.free, later.free, out=least.free)
                    np.minimum(least.device, later.device, out=least.device)
                chosen = choice.place(job, least, now)
                if chosen is not None:
                    return time, chosen, least.tell_apart(job.shape, chosen)
            if place == len(changes):
                return math.inf, None, ()
            time = changes[place][0]
            if time >= before:
                return math.inf, None, ()
