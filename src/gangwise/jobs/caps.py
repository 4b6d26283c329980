"""Caps: how much may be in use at once, by each user, account or pool, or in all.

A job at its cap is passed over, as Slurm does: it neither blocks those behind it nor holds a
reservation. The word for a quota is *cap*; a *limit* is the wall-clock time that a user asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gangwise.core.arrays import Bools, Ints, distinct_pairs
from gangwise.jobs.model import Job, Jobs, Nodes, Shape, terms_of

Scope = Literal["user", "account", "pool", "qos", "all", "job", "array"]


@dataclass(frozen=True, slots=True)
class Cap:
    """How much may be in use at once.

    Attributes
    ----------
    scope : {"user", "account", "pool", "qos", "all", "job", "array"}
        Each user, account, pool or QOS by itself, all jobs together, each job, or each array of
        which that many jobs may run at once.
    of : str
        A device type, ``license/NAME``, ``"jobs"`` that run, or ``"nodes"``: the fewest that could
        hold each job.
    most : float
    only : tuple of str
        These users, accounts, pools or QOS alone; empty for every one.
    pool, qos : str
        Jobs of this pool, or QOS, alone; empty for all jobs.
    accounts : tuple of str
        Jobs of these accounts alone: one and those below it; empty for all jobs.
    """

    scope: Scope
    of: str
    most: float
    only: tuple[str, ...] = ()
    pool: str = ""
    qos: str = ""
    accounts: tuple[str, ...] = ()

    def name(self, job: Job) -> str | None:
        """Whose use the job counts in; None where the cap is not about it, or about it alone."""
        if self.scope == "job":
            return None
        if self.scope == "array":
            return self.of_array(job.terms)
        mine = "" if self.scope == "all" else str(getattr(job, self.scope))
        able = self.pool in ("", job.pool) and self.qos in ("", job.qos)
        able = able and job.account in (self.accounts or (job.account,))
        return mine if able and mine in (self.only or (mine,)) else None

    def of_array(self, terms: str) -> str | None:
        """The array whose cap this is, where a job is of one."""
        mine = terms_of(terms).get("array", "")
        return mine if mine.endswith(f"%{self.most:g}") else None

    def describe(self, name: str) -> str:
        """What is allowed, in words.

        >>> Cap("user", "gpu", 64).describe("alice")
        'cap on user alice: 64 gpu at once'
        """
        whose = f"{self.scope} {name}" if name else f"each {self.scope}"
        whose = "all jobs" if self.scope == "all" else whose
        within = f" in pool {self.pool}" if self.pool else ""
        within += f" of QOS {self.qos}" if self.qos else ""
        within += f" of account {self.accounts[0]}" if self.accounts else ""
        return f"cap on {whose}{within}: {self.most:g} {self.of} at once"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a job of a pool, or of a QOS, may ask for: seconds, and nodes, 0 for any number."""

    pool: str
    most_time: float = np.inf
    most_nodes: int = 0
    fewest_nodes: int = 0
    qos: str = ""

    def refuses(self, jobs: Jobs, nodes: Ints) -> dict[str, Bools]:
        """Why jobs cannot be in the pool; ``nodes`` [J] are the fewest that hold each."""
        if self.qos:
            what, mine = f"QOS {self.qos}", np.array([n == self.qos for n in jobs.qoses])[jobs.qos]
        else:
            mine = np.array([name == self.pool for name in jobs.pools])[jobs.pool]
            what = f"pool {self.pool}"
        return {
            f"that ask for more time than {what} allows": mine & (jobs.limit > self.most_time),
            f"that need more nodes than {what} allows": mine
            & (self.most_nodes > 0)
            & (nodes > self.most_nodes),
            f"that need fewer nodes than {what} asks for": mine & (nodes < self.fewest_nodes),
        }


def having(asked: str, features: str) -> bool:
    """Whether a node has the features that a job asks for, in Slurm's ``--constraint``.

    ``&`` and ``|`` count from left to right; of nodes in brackets, or in numbers, any will do.

    >>> [having(asked, "rack1,fast") for asked in ("rack1&fast", "(a|rack1)&b", "[a*2&fast*1]")]
    [True, False, True]
    """
    if "*" in asked:
        asked = re.sub(r"\*\d+", "", asked).replace("&", "|")
    asked = asked.translate(str.maketrans("[]", "()"))
    while "(" in asked:
        once = re.sub(r"\(([^()]*)\)", lambda m: "1" if having(m[1], features) else "0", asked)
        if once == asked:
            break
        asked = once
    found, names = True, {"1", *features.split(",")}
    for how, name in re.findall(r"(^|[&|])([^&|]+)", asked):
        found = found and name in names if how != "|" else found or name in names
    return found


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
    kinds, place = distinct_pairs(jobs.shape, jobs.tasks)
    shapes = [shape._replace(demand=tuple(d)) for shape, d in zip(jobs.shapes, demand.tolist())]
    few = [fewest_nodes(nodes, shapes[s], t) for s, t in kinds.T.tolist()]
    return np.array(few, dtype=np.int64)[place]


class Tally:
    """What is in use of each cap, in thousandths, as jobs start one after another."""

    def __init__(self, caps: Sequence[Cap], nodes: Nodes, running: Iterable[Job] = ()):
        self.caps, self.nodes = caps, nodes
        self.used: dict[tuple[int, str], int] = {}
        self._fewest: dict[tuple[Shape, int], int] = {}
        for job in running if caps else ():
            self.take(job)

    def amount(self, cap: Cap, job: Job) -> int:
        """How much of a cap a job takes while it runs, in thousandths."""
        if cap.of == "jobs":
            return 1000
        if cap.of == "nodes":
            kind = job.shape, job.tasks
            if kind not in self._fewest:
                self._fewest[kind] = fewest_nodes(self.nodes, *kind)
            return 1000 * self._fewest[kind]
        if cap.of.startswith("license/"):
            return licences(job.terms, cap.of)
        if cap.of not in self.nodes.devices:
            return 0
        return job.tasks * job.shape.demand[self.nodes.devices.index(cap.of)]

    def take(self, job: Job, sign: int = 1) -> None:
        """Count a job that starts; with ``sign=-1`` one that has ended."""
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


def licences(terms: str, name: str) -> int:
    """Thousandths of ``license/NAME`` that a job holds."""
    return round(1000 * float(terms_of(terms).get(name, 0)))


def of_arrays(jobs: Jobs) -> tuple[Cap, ...]:
    """A cap for each number of jobs of an array that may run at once."""
    names = [terms_of(text).get("array", "") for text in jobs.terms]
    return tuple(
        Cap("array", "jobs", n) for n in sorted({float(x.split("%")[1]) for x in names if x})
    )


def claims(caps: Sequence[Cap], jobs: Jobs, nodes: Nodes, demand: Ints) -> list[tuple[Ints, Ints]]:
    """Of each cap: whose use each job counts in, −1 for none [J], and how much it takes [J].

    ``demand`` [S, K] is over the device types of the nodes.
    """
    found = []
    one = np.zeros(len(jobs), dtype=np.int64), ("",)
    of = {
        "user": (jobs.user, jobs.users),
        "account": (jobs.charged, jobs.accounts),
        "pool": (jobs.pool, jobs.pools),
        "qos": (jobs.qos, jobs.qoses),
        "all": one,
        "job": one,
    }
    for cap in caps:
        if cap.scope == "array":
            arrays = [cap.of_array(text) for text in jobs.terms]
            number = {name: i for i, name in enumerate(dict.fromkeys(filter(None, arrays)))}
            codes = np.array([number.get(str(name), -1) for name in arrays])[jobs.term]
            found.append((codes, np.where(codes >= 0, 1000, 0)))
            continue
        (codes, _), counts = of[cap.scope], np.ones(len(jobs), dtype=bool)
        filters = (cap.scope, cap.only), ("account", cap.accounts)
        for what, wanted in (*filters, ("pool", (cap.pool,)), ("qos", (cap.qos,))):
            if any(wanted):
                place, names = of[what]
                counts &= np.array([name in wanted for name in names])[place]
        amount = np.full(len(jobs), 1000, dtype=np.int64)
        if cap.of == "nodes":
            amount = 1000 * fewest_of(jobs, nodes, demand)
        elif cap.of.startswith("license/"):
            amount = np.array([licences(text, cap.of) for text in jobs.terms])[jobs.term]
        elif cap.of != "jobs":
            k = nodes.devices.index(cap.of) if cap.of in nodes.devices else -1
            amount = demand[jobs.shape, k] * jobs.tasks if k >= 0 else np.zeros_like(amount)
        counts = counts & (amount > 0)
        alone = counts & (cap.scope != "job")  # one that is about each job takes of no counter
        found.append((np.where(alone, codes, -1), np.where(counts, amount, 0)))
    return found
