"""Who comes first at a site: tiers of pools, QOS, a tree of accounts, and weights of priority."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gangwise.core.arrays import Floats, Ints, numbered
from gangwise.jobs.caps import fewest_of
from gangwise.jobs.kernels import Standing

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


Way = Literal["", "off", "requeue", "cancel", "suspend"]
"""How a job gives way to another: its work is lost, it ends, or it waits on its nodes."""


class Ranked(StrictModel):
    """What a pool adds to the priority of its jobs, and how they count as use and give way."""

    name: str = Field(min_length=1)
    tier: int = 1
    priority: Amount = 1.0
    preempted: Way = ""
    billing: Mapping[str, Amount] = Field(default_factory=dict)


class Qos(StrictModel):
    """A quality of service: what it adds to priority, and what a job of it may ask for."""

    name: str = Field(min_length=1)
    priority: Amount = 0.0
    usage_factor: Amount = 1.0
    most_time: float = Field(np.inf, gt=0)
    most_nodes: int = Field(0, ge=0)
    preempts: tuple[str, ...] = ()
    preempted: Way = ""
    exempt: Amount | None = None


class Preemption(StrictModel):
    """Who may preempt whom, by QOS or tier of the pool, see :mod:`gangwise.jobs.preemption`.

    ``exempt`` seconds after its start nobody is; ``again`` seconds later a job that lost its work
    may start once more. The others are Slurm's PreemptParameters.
    """

    by: Literal["", "qos", "tier"] = ""
    how: Way = "off"
    exempt: Amount = 0.0
    again: Amount = 0.0
    youngest_first: bool = False
    strict: bool = False
    reorder: int = Field(1, ge=0)


class AccountRule(StrictModel):
    """An account in the tree of accounts, with the users whose shares in it are not 1."""

    name: str = Field(min_length=1)
    parent: str = ""
    shares: Amount = 1.0
    users: Mapping[str, Amount] = Field(default_factory=dict)


class PriorityWeights(StrictModel):
    """Weights of the order ``multifactor``, named as Slurm's, and how use is counted."""

    age: float = 0.0
    fair_share: float = 0.0
    job_size: float = 0.0
    pool: float = 0.0
    qos: float = 0.0
    tres: Mapping[str, float] = Field(default_factory=dict)
    max_age: float = Field(604_800.0, gt=0)
    favor_small: bool = False
    fair: Literal["tree", "classic"] = "tree"
    damping: float = Field(1.0, gt=0)
    half_life: float = Field(604_800.0, gt=0)
    period: float = Field(300.0, gt=0)
    billing: Mapping[str, Amount] = Field(default_factory=dict)


@dataclass(frozen=True)
class Tenancy:
    """All of this at a site; by default all weights are 0, and the first to come is first."""

    priority: PriorityWeights = field(default_factory=PriorityWeights)
    pools: tuple[Ranked, ...] = ()
    qos: tuple[Qos, ...] = ()
    accounts: tuple[AccountRule, ...] = ()
    preemption: Preemption = field(default_factory=Preemption)
    quotas: Mapping[str, Any] = field(default_factory=dict)  # Kueue's, see jobs.kueue


def check_tree(accounts: tuple[AccountRule, ...]) -> None:
    """Raises ValueError where a parent is not there or below its own account."""
    parents = {account.name: account.parent for account in accounts}
    for account in accounts:
        seen, at = [account.name], account.parent
        while at:
            if at not in parents:
                raise ValueError(f"account {seen[-1]!r} has a parent {at!r}, which is not there")
            if at in seen:
                raise ValueError(f"account {at!r} is below itself")
            seen.append(at)
            at = parents[at]


def below(accounts: tuple[AccountRule, ...], name: str) -> tuple[str, ...]:
    """An account and all those below it.

    >>> tree = AccountRule(name="a"), AccountRule(name="b", parent="a")
    >>> below(tree, "a")
    ('a', 'b')
    """
    found = [name]
    for at in found:
        found += [account.name for account in accounts if account.parent == at]
    return tuple(found)


def standing_of(t: Any) -> Standing:
    """What :mod:`gangwise.jobs.queue_kernels` begins with; ``t`` are the Tables of jobs.

    The size of a job is the mean of its shares of the nodes and of the processors (of the first
    device type, where nodes have no ``cpu``), which are also what use counts without ``billing``.
    """
    tenancy, jobs, nodes = t.options.tenancy, t.jobs, t.nodes
    w, devices, demand = tenancy.priority, nodes.devices, t.cluster.demand
    cpu = devices.index("cpu") if "cpu" in devices else 0
    amount = demand[jobs.shape] * jobs.tasks[:, None] / 1000.0  # [J, K]
    pools = {pool.name: pool for pool in tenancy.pools}
    qos = {each.name: each for each in tenancy.qos}
    of_pool, of_qos = [pools.get(n) for n in jobs.pools], [qos.get(n) for n in jobs.qoses]
    tiers = sorted({1, *(pool.tier for pool in tenancy.pools)})
    tier = np.array([tiers.index(pool.tier if pool else 1) for pool in of_pool], dtype=np.int64)
    share = amount[:, cpu] / max(nodes.capacity[:, cpu].sum() / 1000.0, 1.0)
    size = (fewest_of(jobs, nodes, demand) / len(nodes) + share) / 2 if w.job_size else share
    score = w.job_size * (1.0 - size if w.favor_small else size) + jobs.priority
    most = max((pool.priority for pool in tenancy.pools), default=0.0) or 1.0
    score += (
        w.pool * np.array([pool.priority / most if pool else 0.0 for pool in of_pool])[jobs.pool]
    )
    most = max((each.priority for each in tenancy.qos), default=0.0) or 1.0
    score += w.qos * np.array([each.priority / most if each else 0.0 for each in of_qos])[jobs.qos]
    for kind, weight in w.tres.items():
        if kind not in devices:  # a site file is refused before
            continue
        k = devices.index(kind)
        there = [
            nodes.capacity[nodes.of_pool(n if n in nodes.pools else ""), k].sum() / 1000.0
            for n in jobs.pools
        ]
        score += weight * amount[:, k] / np.maximum(there, 1.0)[jobs.pool]
    billing = np.zeros((len(jobs.pools), len(devices)))
    for i, pool in enumerate(of_pool):
        counted = (pool.billing if pool else {}) or w.billing or {devices[cpu]: 1.0}
        billing[i] = [counted.get(kind, 0.0) for kind in devices]
    factor = np.array([each.usage_factor if each else 1.0 for each in of_qos])
    leaf, leaves, parent, shares, path = _tree(tenancy.accounts, jobs)
    return Standing(
        w.age,
        w.fair_share,
        w.max_age,
        w.period,
        math.log(2.0) / w.half_life,
        w.fair == "classic",
        w.damping,
        tier[jobs.pool],
        score,
        leaf,
        (amount * billing[jobs.pool]).sum(axis=1) * factor[jobs.qos],
        np.zeros(len(jobs)),
        parent,
        shares,
        path,
        *_unused(parent.size),
        leaves,
    )


def _unused(nodes: int) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats]:
    """What changes of :class:`Standing`, for so many nodes of the tree, but the order of leaves."""
    use, rate, since, total, level, factor = (np.zeros(nodes) for _ in range(6))
    return np.full(1, -1.0), use, rate, since, total, level, factor


_NONE, _NO_INTS = np.zeros(0), np.zeros(0, dtype=np.int64)
_OF_JOBS = _NO_INTS, _NONE, _NO_INTS, _NONE, _NONE
_TREE = _NO_INTS, _NONE, np.zeros((0, 0), dtype=np.int64)
NOBODY = Standing(0.0, 0.0, 1.0, 1.0, 0.0, False, 1.0, *_OF_JOBS, *_TREE, *_unused(0), _NO_INTS)
"""Of no jobs: where the order is another."""


def _tree(accounts: tuple[AccountRule, ...], jobs: Any) -> tuple[Ints, Ints, Ints, Floats, Ints]:
    """Of each job its leaf [J]; the leaves; of each node its parent and share, of leaves the path.

    Accounts that the site does not name are below the root, and users in them, with one share.
    """
    rules = {account.name: account for account in accounts}
    unknown = [AccountRule(name=n) for n in jobs.accounts if n and n not in rules]
    at = [""]
    for name in at:  # parents first
        at += [each.name for each in (*accounts, *unknown) if each.parent == name]
    number = {name: i for i, name in enumerate(at)}
    pairs, place = numbered(jobs.charged * len(jobs.users) + jobs.user)
    mine = [(jobs.accounts[a], jobs.users[u]) for a, u in zip(*np.divmod(pairs, len(jobs.users)))]
    given = {(a.name, user): shares for a in accounts for user, shares in a.users.items()}
    leaves = dict.fromkeys([*mine, *given])
    parent = [-1, *(number[rules[n].parent if n in rules else ""] for n in at[1:])]
    parent += [number[account] for account, _ in leaves]
    raw = np.array(
        [0.0, *(rules[n].shares if n in rules else 1.0 for n in at[1:])]
        + [given.get(leaf, 1.0) for leaf in leaves]
    )
    above = np.array(parent, dtype=np.int64)
    of_siblings = np.bincount(above[1:], raw[1:], raw.size)[above[1:]]
    raw[1:] /= np.where(of_siblings > 0, of_siblings, 1.0)
    ways = []
    for node in range(len(at), raw.size):
        way = [node]
        while parent[way[0]] > 0:
            way.insert(0, parent[way[0]])
        ways.append(way)
    path = np.full((raw.size, max(map(len, ways))), -1, dtype=np.int64)
    for way in ways:
        path[way[-1], : len(way)] = way
    found = np.arange(len(at), raw.size)
    return place + len(at), found, above, raw, path
