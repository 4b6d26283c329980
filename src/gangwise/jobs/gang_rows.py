"""Cores that jobs hold while they run and while they are suspended: Slurm's gang scheduling.

With PreemptMode=SUSPEND,GANG nobody is chosen to give way. A job takes cores that nobody holds;
where it does not fit on these it is placed as if jobs that it may preempt were not there, and
those whose cores it got are suspended until it ends. Who is suspended goes on holding its cores
and devices: jobs of its own tier and below do not get them. A job gets the first cores of a node
that are free to it.
https://slurm.schedmd.com/gang_scheduling.html
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np

from gangwise.jobs.books import Books, Piece, Running
from gangwise.jobs.model import Job
from gangwise.jobs.tenancy import Tenancy


def gangs(tenancy: Tenancy | None) -> bool:
    """Whether jobs of a tier are suspended for those of one above."""
    if tenancy is None or tenancy.preemption.by != "tier":
        return False
    return "suspend" in (tenancy.preemption.how, *(pool.preempted for pool in tenancy.pools))


def way_of(tenancy: Tenancy, job: Job) -> str:
    """How a job gives way: requeue, cancel or suspend; off: it does not."""
    own = next((pool.preempted for pool in tenancy.pools if pool.name == job.pool), "")
    return str(own or tenancy.preemption.how)


def rank_of(tenancy: Tenancy, job: Job) -> float:
    """The tier of its pool, by which a job is above others."""
    return next((pool.tier for pool in tenancy.pools if pool.name == job.pool), 1)


@dataclass
class Held:
    """A job that runs or is suspended."""

    job: Job
    rank: float
    tier: float  # its rank; inf: it is never suspended
    pieces: tuple[Piece, ...]
    cores: dict[int, int]  # of a node, as a mask
    end: float = inf  # as its limit has it
    ran: float = 0.0  # seconds before it was suspended
    asleep: bool = False


@dataclass
class Rows:
    """Who holds which cores of which node; empty at a site without gang scheduling."""

    held: dict[str, Held] = field(default_factory=dict)

    def take_in(self, books: Books, waiting: Collection[str], ends: dict[str, float]) -> None:
        """Forget who is gone, and take off the books what is free to nobody."""
        running = books.running
        for name, h in [*self.held.items()]:
            if name not in (waiting if h.asleep else running):
                del self.held[name]
        for h in self.held.values():
            if h.asleep:
                books.take(h.job.shape, h.pieces)
        for name, each in running.items():
            if name in self.held:
                self.held[name].end = ends[name] = ends[name] - self.held[name].ran
            else:
                self.start(each.job, each.pieces, books, ends)
        books.free = self.view(books, -inf).free

    def start(
        self, job: Job, pieces: tuple[Piece, ...], books: Books, ends: dict[str, float]
    ) -> None:
        """A job gets its cores, or goes on with those that it has."""
        if job.id in self.held:
            ends[job.id] -= self.held[job.id].ran
            self.held[job.id].asleep = False
        else:
            self.held[job.id] = self._given(job, pieces, books)
        self.held[job.id].end = ends[job.id]
        books.free = self.view(books, -inf).free

    def suspend(self, name: str, ran: float) -> None:
        self.held[name].asleep = True
        self.held[name].ran += ran

    def wake(self, books: Books) -> list[str]:
        """Who is suspended and may go on: nobody of a tier above runs on its cores."""
        up = [h for h in self.held.values() if not h.asleep]
        found = []
        for name, h in sorted(self.held.items(), key=lambda each: -each[1].rank):
            there = h.asleep and books.up[list(h.cores)].all()
            if there and not any(o.rank > h.rank and _meet(o.cores, h.cores) for o in up):
                found.append(name)
                up.append(h)
        return found

    def make_room(
        self, job: Job, books: Books, tenancy: Tenancy, choice: Any, now: float
    ) -> tuple[Any, list[Running]] | None:
        """Where a job would run that does not see those below it, and who is suspended then."""
        chosen = choice.place(job, self.view(books, rank_of(tenancy, job)), now)
        if chosen is None:
            return None
        mine = self._given(job, books.tell_apart(job.shape, chosen), books)
        under = [
            n for n, h in self.held.items() if h.tier < mine.rank and _meet(mine.cores, h.cores)
        ]
        return chosen, [books.running[n] for n in under if n in books.running]

    def above(self, job: Job, tenancy: Tenancy | None) -> float:
        """The rank of a job that is above others; 0 for none."""
        rank = rank_of(tenancy, job) if tenancy and self.held else 0.0
        return rank if any(h.tier < rank for h in self.held.values()) else 0.0

    def shows(self, name: str, rank: float) -> bool:
        """Whether a job of a rank sees another."""
        return name not in self.held or self.held[name].tier >= rank

    def view(self, books: Books, rank: float, gone: Collection[str] = ()) -> Books:
        """Books with the cores that are free to a job of a rank."""
        if not self.held:
            return books
        free, kind = books.free.copy(), _kind(books)
        used = self._used(len(free), rank, gone)
        cores = books.capacity[:, kind] - 1000 * np.array([mask.bit_count() for mask in used])
        free[:, kind] = np.where(books.up, np.maximum(cores, 0), 0)
        return replace(books, free=free)

    def _used(self, nodes: int, rank: float, gone: Collection[str] = ()) -> list[int]:
        used = [0] * nodes
        for name, h in self.held.items():
            if h.tier >= rank and name not in gone:
                for n, cores in h.cores.items():
                    used[n] |= cores
        return used

    def _given(self, job: Job, pieces: tuple[Piece, ...], books: Books) -> Held:
        """First cores that nobody has; if these are too few, that nobody has whom it sees."""
        tenancy, kind = books.tenancy or Tenancy(), _kind(books)
        rank, each = rank_of(tenancy, job), -(-job.shape.demand[kind] // 1000)
        tier = rank if way_of(tenancy, job) == "suspend" else inf
        total = books.capacity[:, kind] // 1000
        cores: dict[int, int] = {}
        for seen in (-inf, rank):
            used = self._used(len(total), seen)
            cores = {n: _first(int(total[n]), used[n], c * each) for n, c, _ in pieces}
            if all(cores[n].bit_count() == c * each for n, c, _ in pieces):
                break
        return Held(job, rank, tier, pieces, cores)


def _first(total: int, used: int, count: int) -> int:
    """The first cores of a node that are not used, as a mask."""
    free = [core for core in range(total) if not used >> core & 1]
    return sum(1 << core for core in free[:count])


def _kind(books: Books) -> int:
    devices = books.nodes.devices
    return devices.index("cpu") if "cpu" in devices else 0


def _meet(one: dict[int, int], other: dict[int, int]) -> bool:
    return any(cores & other.get(n, 0) for n, cores in one.items())
