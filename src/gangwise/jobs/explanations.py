"""Why jobs wait, what would let them start, and when that is expected."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from gangwise.core.errors import UnknownName
from gangwise.jobs.books import Books, Explanation
from gangwise.jobs.choice import BestFit
from gangwise.jobs.model import Job
from gangwise.jobs.queues import Plan, reservation


class Forecast:
    """When waiting jobs are expected to start, if all take as long as requested and nobody comes.

    Each in its order gets the earliest start that it can have behind those before it, as in a
    conservative plan made anew; worked out as far as it is asked for.
    """

    DEPTH: ClassVar[int] = 200
    """Jobs that are planned for; of those behind, nothing is said."""

    def __init__(self, order: Sequence[Job], books: Books, ends: dict[str, float], now: float):
        self._order = list(order[: self.DEPTH])
        self._free, self._now = books.copy(), now
        self._changes = [
            (max(ends[r.job.id], now), 0, r.job, r.pieces) for r in books.running.values()
        ]
        self._starts: dict[str, tuple[float, tuple[str, ...]]] = {}

    def start(self, job: str) -> tuple[float, tuple[str, ...]]:
        """When, and the jobs that end then; inf and nobody where nothing says."""
        while job not in self._starts and self._order:
            next_job = self._order.pop(0)
            time, _, pieces = Plan().earliest(
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
    """What is lacking for a job on what is free, and until when; None where nothing is."""
    if int(books.fits(job.shape).sum()) >= job.tasks:
        return None
    labels = ", ".join(f"{k}={v}" for k, v in job.shape.constraint)
    if labels and not (books.allowed(job.shape) & books.up).any():
        return f"no node that is up has {labels}", math.inf
    devices = " + ".join(
        f"{d / 1000:g} {k}" for k, d in zip(books.nodes.devices, job.shape.demand) if d
    )
    of = f"{job.tasks} tasks of {devices}" if job.tasks > 1 else devices
    until, _ = reservation(job, books, ends, now)
    return f"{of} do not fit on what is free", until


@dataclass
class Waits:
    """Who waits after a round, and why: for schedulers that look at all jobs at once."""

    since: dict[str, tuple[str, float]] = field(default_factory=dict)
    _jobs: dict[str, Job] = field(default_factory=dict, init=False)
    _books: Books | None = field(default=None, init=False)
    _otherwise: tuple[str, float] = field(default=("", math.inf), init=False)
    _now: float = field(default=0.0, init=False)
    _forecast: Forecast | None = field(default=None, init=False)

    def look(
        self, jobs: Iterable[Job], books: Books, now: float, otherwise: str, until: float
    ) -> None:
        """Jobs still wait, with these books after the round.

        ``otherwise`` is why one waits that would have room, and ``until`` when that ends.
        """
        order = sorted(jobs, key=lambda job: job.row)
        self._jobs = {job.id: job for job in order}
        self.since = {name: told for name, told in self.since.items() if name in self._jobs}
        self._books, self._now, self._forecast = books, now, None
        self._otherwise = otherwise, until

    def explain(self, name: str) -> Explanation:
        """Why a job waits.

        Raises
        ------
        UnknownName
            For a job that did not wait after the last round.
        """
        if name not in self._jobs or self._books is None:
            raise UnknownName("waiting job", name, list(self._jobs))
        job, books, now = self._jobs[name], self._books, self._now
        ends = {r.job.id: r.begun + r.job.limit for r in books.running.values()}
        constraint, until = no_room(job, books, ends, now) or self._otherwise
        if self.since.get(name, ("", 0.0))[0] != constraint:
            self.since[name] = constraint, now
        if self._forecast is None:
            self._forecast = Forecast(list(self._jobs.values()), books, ends, now)
        start, frees = self._forecast.start(name)
        nodes = [books.nodes.names[n] for n in np.flatnonzero(books.fits(job.shape))]
        since = self.since[name][1]
        return Explanation(name, constraint, tuple(nodes), since, max(until, now), frees, start)
