"""Caps: how much may be in use at once, by each user, account or pool, or in all.

A job at its cap is passed over, as Slurm does: it neither blocks those behind it nor holds a
reservation. The word for a quota is *cap*; a *limit* is the wall-clock time that a user asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gangwise.core.arrays import Bools, Ints
from gangwise.jobs.model import Job, Jobs, Nodes, Shape

Scope = Literal["user", "account", "pool", "all"]


@dataclass(frozen=True, slots=True)
class Cap:
    """How much may be in use at once.

    Attributes
    ----------
    scope : {"user", "account", "pool", "all"}
        Each user, account or pool by itself, or all jobs together.
    of : str
        A device type, ``"jobs"`` that run, or ``"nodes"``: the fewest that could hold each job.
    most : float
    only : tuple of str
        These users, accounts or pools alone; empty for every one.
    pool : str
        Jobs of this pool alone; empty for all jobs.
    """

    scope: Scope
    of: str
    most: float
    only: tuple[str, ...] = ()
    pool: str = ""

    def name(self, job: Job) -> str | None:
        """Whose use the job counts in; None where the cap is not about it."""
        names = {"user": job.user, "account": job.account, "pool": job.pool, "all": ""}
        mine = names[self.scope]
        return mine if self.pool in ("", job.pool) and mine in (self.only or (mine,)) else None

    def told(self, name: str) -> str:
        """What is allowed, in words.

        >>> Cap("user", "gpu", 64).told("alice")
        'cap on user alice: 64 gpu at once'
        """
        whose = f"{self.scope} {name}" if name else f"each {self.scope}"
        whose = "all jobs" if self.scope == "all" else whose
        within = f" in pool {self.pool}" if self.pool else ""
        return f"cap on {whose}{within}: {self.most:g} {self.of} at once"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a job of a pool may ask for: seconds, and nodes, with 0 for any number."""

    pool: str
    most_time: float = np.inf
    most_nodes: int = 0
    fewest_nodes: int = 0

    def refuses(self, jobs: Jobs, nodes: Ints) -> dict[str, Bools]:
        """Why jobs cannot be in the pool; ``nodes`` [J] are the fewest that hold each."""
        mine = np.array([name == self.pool for name in jobs.pools])[jobs.pool]
        return {
            f"that ask for more time than pool {self.pool} allows": mine
            & (jobs.limit > self.most_time),
            f"that need more nodes than pool {self.pool} allows": mine
            & (self.most_nodes > 0)
            & (nodes > self.most_nodes),
            f"that need fewer nodes than pool {self.pool} asks for": mine
            & (nodes < self.fewest_nodes),
        }


def allowed_on(nodes: Nodes, shape: Shape) -> Bools:
    """Nodes that a task may use: those of its pool whose labels are as asked [N]."""
    if not shape.constraint:
        return nodes.of_pool(shape.pool)
    labels = [all(has.get(k) == v for k, v in shape.constraint) for has in nodes.labels]
    return np.array(labels) & nodes.of_pool(shape.pool)


def fewest_nodes(nodes: Nodes, shape: Shape, tasks: int) -> int:
    """How few nodes could hold so many tasks, if nothing else ran."""
    demand = np.array(shape.demand, dtype=np.int64)
    asked = demand > 0
    room = (nodes.capacity[:, asked] // demand[asked]).min(axis=1, initial=tasks)
    room = np.where(allowed_on(nodes, shape), np.minimum(room, shape.per_node or tasks), 0)
    held = np.cumsum(np.sort(room)[::-1])
    return int(np.searchsorted(held, tasks)) + 1


def fewest_of(jobs: Jobs, nodes: Nodes, demand: Ints) -> Ints:
    """:func:`fewest_nodes` of every job [J]; ``demand`` [S, K] is over the nodes' device types."""
    kinds, place = np.unique(np.stack([jobs.shape, jobs.tasks]), axis=1, return_inverse=True)
    shapes = [shape._replace(demand=tuple(d)) for shape, d in zip(jobs.shapes, demand.tolist())]
    few = [fewest_nodes(nodes, shapes[s], t) for s, t in kinds.T.tolist()]
    return np.array(few, dtype=np.int64)[place.ravel()]


class Tally:
    """What is in use of each cap, in thousandths, as jobs start one after another."""

    def __init__(self, caps: Sequence[Cap], nodes: Nodes, running: Iterable[Job] = ()):
        self.caps, self.nodes = caps, nodes
        self.used: dict[tuple[int, str], int] = {}
        self._fewest: dict[tuple[Shape, int], int] = {}
        for job in running if caps else ():
            self.take(job)

    def amount(self, cap: Cap, job: Job) -> int:
        """How much of a cap a job takes."""
        if cap.of == "jobs":
            return 1000
        if cap.of == "nodes":
            kind = job.shape, job.tasks
            if kind not in self._fewest:
                self._fewest[kind] = fewest_nodes(self.nodes, *kind)
            return 1000 * self._fewest[kind]
        if cap.of not in self.nodes.devices:
            return 0
        return job.tasks * job.shape.demand[self.nodes.devices.index(cap.of)]

    def take(self, job: Job, sign: int = 1) -> None:
        """A job starts, or ends with ``sign=-1``."""
        for i, cap in enumerate(self.caps):
            if (name := cap.name(job)) is not None:
                self.used[i, name] = self.used.get((i, name), 0) + sign * self.amount(cap, job)

    def holds(self, job: Job) -> Cap | None:
        """The first cap that keeps a job from starting, None for none."""
        for i, cap in enumerate(self.caps):
            name = cap.name(job)
            amount = 0 if name is None else self.amount(cap, job)
            if amount and self.used.get((i, str(name)), 0) + amount > round(1000 * cap.most):
                return cap
        return None


def claims(caps: Sequence[Cap], jobs: Jobs, nodes: Nodes, demand: Ints) -> list[tuple[Ints, Ints]]:
    """Of each cap: whose use each job counts in, −1 for none [J], and how much it takes [J].

    ``demand`` [S, K] is over the device types of the nodes.
    """
    found = []
    for cap in caps:
        codes, names = {
            "user": (jobs.user, jobs.users),
            "account": (jobs.charged, jobs.accounts),
            "pool": (jobs.pool, jobs.pools),
            "all": (np.zeros(len(jobs), dtype=np.int64), ("",)),
        }[cap.scope]
        counts = np.array([name in (cap.only or (name,)) for name in names])[codes]
        if cap.pool:
            counts = counts & np.array([name == cap.pool for name in jobs.pools])[jobs.pool]
        amount = np.full(len(jobs), 1000, dtype=np.int64)
        if cap.of == "nodes":
            amount = 1000 * fewest_of(jobs, nodes, demand)
        elif cap.of != "jobs":
            k = nodes.devices.index(cap.of) if cap.of in nodes.devices else -1
            amount = demand[jobs.shape, k] * jobs.tasks if k >= 0 else np.zeros_like(amount)
        counts = counts & (amount > 0)
        found.append((np.where(counts, codes, -1), np.where(counts, amount, 0)))
    return found
