"""Why jobs wait, what would let them start, and when that is expected."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from gangwise.core.errors import UnknownName
from gangwise.jobs.books import Books, Explanation
from gangwise.jobs.caps import allowed_on
from gangwise.jobs.choice import BestFit
from gangwise.jobs.model import Job
from gangwise.jobs.queues import Reservations, reservation


class Forecast:
    """When waiting jobs are expected to start, if all take as long as requested and nobody comes.

    Each job in its order gets the earliest start that those before it leave, as in a conservative
    plan made anew. The plan goes only as far as somebody asks.
    """

    DEPTH: ClassVar[int] = 200  # jobs that are planned for; those behind them get no expected start

    def __init__(self, order: Sequence[Job], books: Books, ends: dict[str, float], now: float):
        self._order = list(order[: self.DEPTH])
        self._free, self._now = books.copy(), now
        self._changes = [
            (max(ends[r.job.id], now), 0, r.job, r.pieces) for r in books.running.values()
        ]
        self._starts: dict[str, tuple[float, tuple[str, ...]]] = {}

    def start(self, job: str) -> tuple[float, tuple[str, ...]]:
        """When a job starts, and the jobs that end then; inf and none where that is not known."""
        while job not in self._starts and self._order:
            next_job = self._order.pop(0)
            time, _, pieces = Reservations().earliest(
                next_job, self._free, self._changes, BestFit(), self._now, math.inf
            )
            ending = [other.id for at, taken, other, _ in self._changes if at == time and not taken]
            self._starts[next_job.id] = time, tuple(ending)
            if time < math.inf and next_job.limit > 0.0:
                self._changes += [
                    (time, 1, next_job, pieces),
                    (time + next_job.limit, 0, next_job, pieces),
                ]
        return self._starts.get(job, (math.inf, ()))


def no_room(job: Job, books: Books, ends: dict[str, float], now: float) -> tuple[str, float] | None:
    """What a job lacks to start on what is free, and until when; None where it lacks nothing."""
    if int(books.fits(job.shape).sum()) >= job.tasks:
        return None
    labels = ", ".join(f"{k}={v}" for k, v in job.shape.constraint)
    pool = f" in pool {job.shape.pool}" if job.shape.pool else ""
    if labels and not (allowed_on(books.nodes, job.shape) & books.up).any():
        return f"no node that is up has {labels}", math.inf
    devices = " + ".join(
        f"{d / 1000:g} {k}" for k, d in zip(books.nodes.devices, job.shape.demand) if d
    )
    of = f"{job.tasks} tasks of {devices}" if job.tasks > 1 else devices
    until, _ = reservation(job, books, ends, now)
    return f"{of} do not fit on what is free{pool}", until


@dataclass
class Round:
    """What a round left: its books, when running jobs are expected to end, and its queue."""

    books: Books
    now: float
    ends: dict[str, float]
    order: list[Job]
    _waiting: dict[str, Job] | None = field(default=None, init=False, repr=False)
    _forecast: Forecast | None = field(default=None, init=False, repr=False)

    def waiting(self, name: str) -> Job:
        """A job that still waits after the round; raises UnknownName for any other."""
        if self._waiting is None:
            self._waiting = {j.id: j for j in self.order if j.id not in self.books.running}
        if name not in self._waiting:
            raise UnknownName("waiting job", name, list(self._waiting))
        return self._waiting[name]

    def capped(self, job: Job) -> tuple[str, float] | None:
        """The cap at which a job is, what ends first, and when; None for none."""
        tally = self.books.tally()
        if (cap := tally.holds(job)) is None:
            return None
        i, name = self.books.caps.index(cap), str(cap.name(job))
        used = tally.used.get((i, name), 0) / 1000
        text, until = f"{cap.describe(name)}, {used:g} in use", math.inf
        mine = [r.job for r in self.books.running.values() if cap.name(r.job) == name]
        for n, other in enumerate(sorted(mine, key=lambda other: self.ends[other.id]), 1):
            tally.take(other, -1)
            if tally.used[i, name] + tally.amount(cap, job) <= round(1000 * cap.most):
                until = max(self.ends[other.id], self.now)
                text += f"; {n} of the jobs in it end{'s' * (n == 1)} first"
                break
        return text, until

    def closed(self, job: Job) -> tuple[str, float] | None:
        """The closed hours that a job waits for to open, and when they do; None for none."""
        hours, until = self.books.hours, self.books.opens(job, self.now)
        if hours is None or until == self.now:
            return None
        return hours.why(job.row, self.now), until

    def explanation(self, job: Job, constraint: str, since: float, until: float) -> Explanation:
        """Why a waiting job waits, with the nodes that have room and its expected start."""
        if self._forecast is None:
            still = [j for j in self.order if j.id not in self.books.running]
            self._forecast = Forecast(still, self.books, self.ends, self.now)
        start, frees = self._forecast.start(job.id)
        nodes = [self.books.nodes.names[n] for n in np.flatnonzero(self.books.fits(job.shape))]
        return Explanation(job.id, constraint, tuple(nodes), since, until, frees, start)


@dataclass
class Waits:
    """Who waits after a round, and why: for schedulers that look at all jobs at once."""

    since: dict[str, tuple[str, float]] = field(default_factory=dict)
    _last: Round | None = field(default=None, init=False)
    _otherwise: tuple[str, float] = field(default=("", math.inf), init=False)

    def look(
        self, jobs: Iterable[Job], books: Books, now: float, otherwise: str, until: float
    ) -> None:
        """Jobs still wait, with these books after the round.

        ``otherwise`` is why one waits that would have room, and ``until`` when that ends.
        """
        order = sorted(jobs, key=lambda job: job.row)
        names = {job.id for job in order}
        self.since = {name: known for name, known in self.since.items() if name in names}
        ends = {r.job.id: r.begun + r.job.limit for r in books.running.values()}
        self._last, self._otherwise = Round(books, now, ends, order), (otherwise, until)

    def explain(self, name: str) -> Explanation:
        """Why a job waits; raises UnknownName for one that did not after the last round."""
        last = self._last
        if last is None:
            raise UnknownName("waiting job", name, [])
        job, now = last.waiting(name), last.now
        constraint, until = (
            last.capped(job)
            or last.closed(job)
            or no_room(job, last.books, last.ends, now)
            or self._otherwise
        )
        if self.since.get(name, ("", 0.0))[0] != constraint:
            self.since[name] = constraint, now
        return last.explanation(job, constraint, self.since[name][1], max(until, now))
