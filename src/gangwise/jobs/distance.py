"""Cost of distance in gangs: levels of distance between nodes, hidden, declared or learned.

Nodes that share a rack are nearer than nodes that share a block only. Level 0 of a gang is one
node, level 1 the nearest label that all its nodes share, and the last level the whole cluster. A
gang of m tasks at level h runs at

    rate of its slowest node ÷ (1 + α[type, h] + β[type, h] ln m),

the communication overhead of OGASched's reward as time for each unit of work: that of the widest
level crossed. On one node nothing is added unless α and β say so.

What is believed of it is in logarithms, and learned by recursive least squares from every gang
whose nodes are known:

    log slowdown = d[type, h] + c[h] ln (m / 8) + u[job] + ε,

d[type, h] = d[h] + a deviation of the type, both normal: a type that was seen little is believed to
be as all types are at that level.

Its hidden cost, what is believed of it, and gangs near one another are compiled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints, distinct_pairs
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.jit import by_reference, inlined_kernel, inner_kernel, lean_kernel
from gangwise.jobs import kernels
from gangwise.jobs.books import Books
from gangwise.jobs.kernels import Rows, State, int64
from gangwise.jobs.model import Job, Jobs, Nodes

USUAL = 8.0
"""Tasks of a gang whose slowdown ``mean`` is."""


@by_reference
class Apart(NamedTuple):
    """The cost of distance that is hidden from schedulers, of C kinds of jobs."""

    domain: Ints  # [H, N]
    of_job: Ints  # [J] its kind
    factor: Floats  # [C, H + 1]


@inlined_kernel
def level_with(domain: Ints, level: int, n: int, m: int) -> int:
    """The nearest level, from ``level`` on, at which two nodes are together."""
    if n == m:
        return level
    level = max(level, 1)
    # Ends at the last level at the latest: the whole cluster is one domain there.
    while domain[level - 1, n] != domain[level - 1, m]:
        level += 1
    return level


@inlined_kernel
def level_of(domain: Ints, pieces: Rows, low: int, high: int) -> int:
    """The level of a gang on pieces[low:high]."""
    level = 0
    for i in range(low + 1, high):
        # Domains are nested, so comparing with the first piece gives the widest level.
        level = level_with(domain, level, pieces[low].node, pieces[i].node)
    return level


@by_reference
class NearBeliefs(NamedTuple):
    """Beliefs about distance, for L job types."""

    domain: Ints  # [H, N]
    mean: Floats  # [H, L + 1] d of each type, and c
    cov: Floats  # [H, L + 1, L + 1]
    gain: Floats  # [L + 1]
    cost: Floats  # [H + 1] log slowdown of the gang that is looked at
    order: Ints  # [N], as the next: work space
    held: Ints  # [D] tasks that fit in a domain


@inlined_kernel
def level_between(domain: Ints, nodes: Ints, count: int) -> int:
    """The level of a gang on the first ``count`` of nodes."""
    level = 0
    for i in range(1, count):
        level = level_with(domain, level, nodes[0], nodes[i])
    return level


@lean_kernel
def believe_costs(near: NearBeliefs, l: int, tasks: int) -> None:
    """Put the log slowdown of a gang of type l at each level in ``cost``: farther is no faster."""
    H, L = near.mean.shape[0], near.mean.shape[1] - 1
    # One task is on one node, where nothing is added.
    more = math.log(tasks / USUAL) if tasks > 1 else 0.0
    near.cost[0] = 0.0
    for h in range(H):
        # A wider level costs at least as much as a narrower one, whatever was learned of it.
        near.cost[h + 1] = max(near.cost[h], near.mean[h, l] + more * near.mean[h, L])


@inner_kernel
def learn_distance(
    near: NearBeliefs, l: int, level: int, tasks: int, slower: float, variance: float
) -> None:
    """Learn that a gang was slower by a logarithm than its nodes are, seen with a variance."""
    h, L = level - 1, near.mean.shape[1] - 1
    more = math.log(tasks / USUAL)
    # H = unit vector of d[l] plus ln(m / 8) times that of c: gain is Σ Hᵀ.
    for m in range(L + 1):
        near.gain[m] = near.cov[h, m, l] + more * near.cov[h, m, L]
    # Innovation variance H Σ Hᵀ + R; then one step of recursive least squares.
    total = near.gain[l] + more * near.gain[L] + variance
    step = (slower - near.mean[h, l] - more * near.mean[h, L]) / total
    for m in range(L + 1):
        near.mean[h, m] += near.gain[m] * step
        for o in range(L + 1):
            near.cov[h, m, o] -= near.gain[m] * near.gain[o] / total


@inlined_kernel
def better_nodes(near: NearBeliefs, state: State, h: int, M: int, top: float) -> int:
    """Note the nodes worth more than ``top`` at level h in `heap`, in no order; how many."""
    size = int64(0)
    for i in range(M):
        # Without a branch, which processors would often guess wrongly.
        state.heap[size].item = i
        size += int64(state.worth[state.cands[i].node] - near.cost[h] > top)
    return int(size)


@inlined_kernel
def any_holds(near: NearBeliefs, state: State, h: int, tasks: int, size: int) -> bool:
    """Any domain of level h holds so many tasks on the nodes noted; what each has is in `held`."""
    most = int64(0)
    near.held[:] = 0
    for r in range(size):
        i = state.heap[r].item
        d = near.domain[h - 1, state.cands[i].node]
        near.held[d] += state.cands[i].fit
        most = max(most, near.held[d])
    return bool(most >= tasks)


@inner_kernel
def best_domain(near: NearBeliefs, state: State, h: int, tasks: int, size: int) -> tuple[int, int]:
    """The best domain of level h, of those that :func:`any_holds` has found to hold the gang.

    Its nodes are then in `order` by falling worth, beside some of other domains: so many.
    """
    waiting, count = int64(0), int64(0)
    for r in range(size):
        i = state.heap[r].item  # the heap is made where it stands, and is never longer than r
        n = state.cands[i].node
        if near.held[near.domain[h - 1, n]] >= tasks:
            waiting = kernels.push(state.heap, waiting, -state.worth[n], i)
    near.held[:] = 0
    while True:
        i = state.heap[0].item
        waiting = kernels.pop(state.heap, waiting)
        near.order[count] = i
        count += 1
        d = near.domain[h - 1, state.cands[i].node]
        near.held[d] += state.cands[i].fit
        if near.held[d] >= tasks:
            return int(d), int(count)


@inner_kernel
def place_near(near: NearBeliefs, state: State, tasks: int, M: int) -> int:
    """The level and domain where a gang runs fastest, on its best nodes there. Gives pieces.

    Of the M nodes gathered, by falling worth, those of a domain are counted until they hold the
    gang: the first domain that does is the best of its level, since a gang is as good as its worst
    node. Levels are compared by worth less log slowdown, ties to the nearer.
    """
    worth, fastest, top, level, home = state.worth, -kernels.NEVER, -kernels.NEVER, 0, int64(-1)
    for i in range(M):
        # The best node bounds every level from above; the best that holds all tasks is level 0,
        # which exists only where one node holds the gang.
        value = worth[state.cands[i].node]
        fastest = max(fastest, value)
        alone = value if state.cands[i].fit >= tasks else -kernels.NEVER
        if alone > top:
            top, home = alone, int64(state.cands[i].node)
    top, ready = top - near.cost[0], int64(0)
    for h in range(1, near.domain.shape[0] + 1):
        # Even the best node, at this level's cost, is no better than what was found: not looked at.
        if fastest - near.cost[h] <= top:
            continue
        size = better_nodes(near, state, h, M, top)
        if any_holds(near, state, h, tasks, size):
            level = h
            home, ready = best_domain(near, state, h, tasks, size)
            top = worth[state.cands[near.order[ready - 1]].node] - near.cost[h]
    if level == 0:
        # One node: all tasks are one piece.
        kernels.put_piece(state.tried, int64(0), home, tasks, int64(0))
        return 1
    count = int64(0)
    for r in range(ready):
        i = near.order[r]
        n = state.cands[i].node
        if near.domain[level - 1, n] == home:
            kernels.put_piece(state.tried, count, n, min(state.cands[i].fit, tasks), int64(0))
            tasks -= min(state.cands[i].fit, tasks)
            count += 1
    return int(count)


# ------------------------------------------------------------------------------------- Kueue's rule


@by_reference
class Topology(NamedTuple):
    """Topology-aware scheduling as Kueue has it, see :class:`gangwise.jobs.distance.TopologyAware`.

    Of T levels of domains, from nodes to the widest label.
    """

    domain: Ints  # [T, N]
    level: int  # that is asked for
    climbs: bool  # to wider levels, where no domain holds the gang
    least_first: bool  # nodes with fewest before others
    fits: Ints  # [N] tasks that fit on a node, of nodes that are looked at
    room: Ints  # [N] tasks that fit in a domain
    taken: Ints  # [N] tasks of the gang in a domain


@inlined_kernel
def count_by_domain(topology: Topology, level: int) -> int:
    """Put what fits in each domain of a level in ``room``; gives the most."""
    most, domain = int64(0), topology.domain[level]
    topology.room[:] = 0
    for n in range(domain.size):
        topology.room[domain[n]] += topology.fits[n]
        most = max(most, topology.room[domain[n]])
    return int(most)


@inner_kernel
def fill_domains(topology: Topology, tasks: int) -> None:
    """Put tasks into domains: those with most first, the last that with fewest that holds them."""
    room, taken = topology.room, topology.taken
    taken[:] = 0
    while tasks > 0:
        best = -1
        for d in range(room.size):
            if room[d] == 0 or taken[d] > 0:
                continue
            if best >= 0:
                fewer = topology.least_first or min(room[d], room[best]) >= tasks
                if room[d] >= room[best] if fewer else room[d] <= room[best]:
                    continue
            best = d
        taken[best] = min(room[best], tasks)
        tasks -= taken[best]


@lean_kernel
def choose_domains(topology: Topology, tasks: int) -> bool:
    """Put tasks on nodes in ``taken``; ``fits`` hold them in all. False where they wait."""
    level, last = topology.level, topology.domain.shape[0] - 1
    largest = count_by_domain(topology, level)
    while largest < tasks and level < last and topology.climbs:
        level += 1
        largest = count_by_domain(topology, level)
    if largest < tasks and not (topology.climbs or topology.least_first):
        return False
    fill_domains(topology, tasks)
    while level > 0:
        # Below, only nodes inside the domains chosen count.
        for n in range(topology.fits.size):
            if topology.taken[topology.domain[level, n]] == 0:
                topology.fits[n] = 0
        level -= 1
        count_by_domain(topology, level)
        fill_domains(topology, tasks)
    return True


KNOWN = (
    "cloud.provider.com/topology-rack",
    "cloud.google.com/gce-topology-subblock",
    "rack",
    "cloud.provider.com/topology-block",
    "cloud.google.com/gce-topology-block",
    "block",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)
"""Labels that are levels where none are named, the nearest first."""
COMMUNICATING = 0.3
"""What a measured time of communication counts beside that of the whole step."""
SWITCH = "switch"
"""Label of Slurm's topology.conf: ``switch.3`` are its first three switches from the top."""


def levels_of(nodes: Nodes) -> tuple[str, ...]:
    """Labels of nodes that are levels of distance, the nearest first.

    >>> from gangwise.jobs.model import Node
    >>> levels_of(Nodes.of([Node("a", {"gpu": 8}, {"rack": "r1", "block": "b"})]))
    ('rack', 'block')
    """
    present = set[str]().union(*nodes.labels)
    paths = [_path(labels) for labels in nodes.labels] if SWITCH in present else [""]
    # Depth of the deepest switch path; nodes without one have depth 0.
    depth = max(path.count("/") + bool(path) for path in paths)
    switches = [f"{SWITCH}.{i}" for i in range(depth, 0, -1)]
    return tuple(switches or [label for label in KNOWN if label in present])


def _path(labels: Any) -> str:
    # `0:top/s1`: behind the colon the path, before it the leaf's number.
    return str(labels.get(SWITCH, "")).partition(":")[2]


def place_at(labels: Any, level: str) -> str:
    """Where a node is at a level; empty where its labels do not say."""
    if level.startswith(f"{SWITCH}."):
        return "/".join(_path(labels).split("/")[: int(level.partition(".")[2])])
    return str(labels.get(level, ""))


@lru_cache(8)  # a play asks twice, and the next one of the same nodes again
def domains(nodes: Nodes, levels: tuple[str, ...]) -> Ints:
    """Number of the domain of each node at each level above it [H, N]; the last is the cluster.

    Nodes are in one domain if they agree on its label and on those of all wider levels. A node
    without the label is in a domain of its own.
    """
    within: list[tuple[Any, ...]] = [()] * len(nodes)
    numbers = [[0] * len(nodes)]
    for level in reversed(levels):
        places = [place_at(labels, level) for labels in nodes.labels]
        # With the wider labels: racks of one name in two blocks are two racks.
        within = list(zip(places, within))
        own = [key if key[0] else (key, name) for key, name in zip(within, nodes.names)]
        number = {key: d for d, key in enumerate(dict.fromkeys(own))}
        numbers.insert(0, [number[key] for key in own])
    return np.array(numbers, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Distance:
    """Cost of distance of each job type.

    Attributes
    ----------
    levels : tuple of str
        Labels of nodes, the nearest first; H levels above the node with the whole cluster.
    overhead, growth : ndarray [L, H + 1]
        α and β: overhead as a share of the time for a unit of work, and what it grows by with the
        logarithm of tasks; first those on one node.

    Examples
    --------
    >>> apart = Distance(("rack",), np.array([[0.0, 0.1, 0.5]]), np.zeros((1, 3)))
    >>> apart.factor(np.array([0]), np.array([16])).round(3)
    array([[1.   , 0.909, 0.667]])
    """

    levels: tuple[str, ...]
    overhead: Floats
    growth: Floats

    def __post_init__(self) -> None:
        wanted = len(self.levels) + 2
        for values in (self.overhead, self.growth):
            if values.ndim != 2 or values.shape[1] != wanted or not np.isfinite(values).all():
                raise ScenarioError(
                    f"distance: overheads are {values.shape}; they must be [L, {wanted}]: on one "
                    f"node, in one {', '.join(self.levels)}, in the cluster"
                )

    def factor(self, types: Ints, tasks: Ints) -> Floats:
        """Share of its nodes' rate that a gang of each type and size has at each level [., H + 1].

        Never more than nearer by.
        """
        # On one task ln m is 0, so only overhead is left, which the next lines take off.
        more = self.growth[types] * np.log(np.maximum(tasks, 1))[:, None]
        slower = np.maximum(self.overhead[types] + more, 0.0)
        slower[tasks <= 1] = 0.0
        # A wider level never costs less: what is not measured there takes the narrower one's cost.
        return np.asarray(1.0 / (1.0 + np.maximum.accumulate(slower, axis=1)))

    def on_nodes(self, jobs: Jobs, nodes: Nodes) -> Apart:
        """The same of each job on these nodes, as compiled code reads it."""
        if len(self.overhead) != len(jobs.types):
            raise ScenarioError(
                f"distance: overheads of {len(self.overhead)} job types, and there are "
                f"{len(jobs.types)}"
            )
        several, kind = distinct_pairs(np.broadcast_to(jobs.type, (len(jobs),)), jobs.sizes)
        factor = self.factor(several[0], several[1])
        return Apart(domains(nodes, tuple(self.levels)), kind, factor)


def best_factor(apart: Apart, room: Ints, shape: Ints, tasks: Ints) -> Floats:
    """Share of its nodes' rate that each job has where it is nearest on the empty cluster [J].

    ``room`` [S, N]: tasks of each shape that a node holds.
    """
    near = np.concatenate([np.arange(room.shape[1])[None], apart.domain])
    # The most tasks of a shape that any domain of each level holds [S, H + 1].
    most = [[np.bincount(where, holds).max() for where in near] for holds in room]
    # So many levels hold too few tasks; the next one is the nearest that holds the gang.
    level = (np.array(most)[shape] < tasks[:, None]).sum(axis=1)
    return np.asarray(apart.factor[apart.of_job, np.minimum(level, len(near) - 1)])


class Overheads(NamedTuple):
    """Overheads that were fitted to measured times."""

    alone: Floats  # [B] seconds of each workload without its overhead
    overhead: Floats  # [H + 1] seconds
    growth: Floats  # [H + 1] seconds for each factor e of tasks

    def seconds(self, workload: Ints, level: Ints, tasks: Ints) -> Floats:
        """What a step takes."""
        m = np.log(np.maximum(tasks, 1))
        apart = np.maximum(self.overhead[level] + self.growth[level] * m, 0.0)
        return np.asarray(self.alone[workload] + np.where(tasks > 1, apart, 0.0))


def fit_overheads(
    seconds: Floats,
    workload: Ints,
    level: Ints,
    tasks: Ints,
    levels: int,
    communicating: Floats | None = None,
) -> Overheads:
    """Fit α and β of each level to measured times of steps.

    Least squares of relative errors.

    Parameters
    ----------
    seconds : ndarray [I]
        Of a step at each placement.
    workload, level, tasks : ndarray [I]
        What ran (application and batch size), at which level, in how many tasks.
    levels : int
        H + 1.
    communicating : ndarray [I], optional
        Seconds of the step in which tasks waited for one another, where that was measured, too.

    Examples
    --------
    >>> m = np.array([1, 2, 4, 2, 4, 8])
    >>> h = np.array([0, 0, 0, 1, 1, 1])
    >>> fit = fit_overheads(1 + (h == 1) * 0.2 * np.log(m), 0 * m, h, m, 2)
    >>> bool(np.allclose(fit.growth, [0, 0.2], atol=1e-3))
    True
    """
    workloads = int(workload.max()) + 1
    gang = (tasks > 1).astype(np.float64)
    x = np.zeros((seconds.size, workloads + 2 * levels))
    # Columns: each workload's time alone, overhead of each level, growth of each level.
    x[np.arange(seconds.size), workload] = 1.0
    x[np.arange(seconds.size), workloads + level] = gang
    x[np.arange(seconds.size), workloads + levels + level] = np.log(np.maximum(tasks, 1))
    y, scale = seconds, 1.0 / seconds
    if communicating is not None:
        apart = x.copy()
        # Communication is the overhead alone, without the time of the workload.
        apart[:, :workloads] = 0.0
        x, y = np.concatenate([x, apart]), np.concatenate([y, communicating])
        scale = np.concatenate([scale, COMMUNICATING * scale])
    # A weak pull to no overhead where a level was not measured.
    pull = 1e-3 * np.eye(x.shape[1])[workloads:]
    rows = np.concatenate([x * scale[:, None], pull])
    fitted = np.linalg.lstsq(rows, np.append(y * scale, np.zeros(len(pull))), rcond=None)[0]
    return Overheads(fitted[:workloads], *fitted[workloads:].reshape(2, levels))


# ------------------------------------------------------------------------------- what is believed


@dataclass(frozen=True)
class Near:
    """Prior beliefs about distance, before any gang was seen.

    Attributes
    ----------
    levels : tuple of str, optional
        Labels of nodes, the nearest first. By default those that :func:`levels_of` knows.
    slowdown : tuple of float, optional
        Declared: how many times as long work takes at each level above the node. By default a
        tenth longer at each.
    of_all, of_type, of_tasks : float
        Prior standard deviations: of d[h], of a type's deviation from it, and of c[h].
    """

    levels: tuple[str, ...] | None = None
    slowdown: tuple[float, ...] = ()
    of_all: float = 0.2
    of_type: float = 0.2
    of_tasks: float = 0.05

    def beliefs(
        self, nodes: Nodes, types: Sequence[str], former: tuple[NearBeliefs, Sequence[str]] | None
    ) -> NearBeliefs:
        """The state for these nodes and job types; what was learned before stays."""
        domain = domains(nodes, levels_of(nodes) if self.levels is None else tuple(self.levels))
        (H, N), L = domain.shape, len(types)
        # A tenth a level: enough to prefer near nodes before anything was learned.
        declared = self.slowdown or tuple(1.0 + 0.1 * (h + 1) for h in range(H))
        if len(declared) != H or min(declared) < 1.0:
            raise ScenarioError(
                f"slowdown is {declared}; give one number of 1 or more for each of the {H} levels "
                "above the node, the nearest first"
            )
        mean, cov = np.zeros((H, L + 1)), np.zeros((H, L + 1, L + 1))
        mean[:, :L] = np.log(declared)[:, None]
        # d[type] = d + deviation: types share of_all², and each has of_type² of its own.
        cov[:, :L, :L] = self.of_all**2 + self.of_type**2 * np.eye(L)
        cov[:, L, L] = self.of_tasks**2
        # Levels have other meanings where their number changed: then nothing is kept.
        if former is not None and len(former[0].mean) == H:
            earlier, names = former
            # "" stands for the last column, c, which is kept beside the types.
            place = {name: l for l, name in enumerate([*names, ""])}
            kept = [l for l, name in enumerate([*types, ""]) if name in place]
            there = [place[[*types, ""][l]] for l in kept]
            mean[:, kept] = earlier.mean[:, there]
            for h in range(H):
                cov[h][np.ix_(kept, kept)] = earlier.cov[h][np.ix_(there, there)]
        work = np.zeros(L + 1), np.zeros(H + 1), *(np.zeros(N, dtype=np.int64) for _ in range(2))
        return NearBeliefs(domain, mean, cov, *work)


def nearest(tasks: int, fits: Ints, worth: Floats, costs: Floats, domain: Ints) -> Bools:
    """Nodes of the domain in which :func:`place_near` places a gang, which ``fits`` [N] hold."""
    room = np.flatnonzero(fits)
    order = room[np.argsort(-worth[room], kind="stable")].tolist()
    top, mine = -math.inf, fits > 0
    for h, cost in enumerate(costs.tolist()):
        domain_of = np.arange(fits.size) if h == 0 else domain[h - 1]
        room_in = dict.fromkeys(domain_of.tolist(), 0)
        for n in order:
            room_in[int(domain_of[n])] += min(int(fits[n]), tasks)
            if room_in[int(domain_of[n])] >= tasks:
                # The node that completes the gang is its slowest one in the domain.
                if worth[n] - cost > top:
                    top, mine = worth[n] - cost, domain_of == domain_of[n]
                break
    return np.asarray(mine)


def level_on(domain: Ints, nodes: Sequence[int]) -> int:
    """The level of a gang on these nodes."""
    return int(levels_on(domain, np.array(nodes), np.array([0, len(nodes)]))[0])


def levels_on(domain: Ints, host: Ints, host_from: Ints) -> Ints:
    """The level of each of several gangs, gang i on the nodes host[host_from[i]:host_from[i + 1]].

    >>> levels_on(
    ...     np.array([[0, 0, 1], [0, 0, 0]]), np.array([0, 0, 1, 0, 2]), np.array([0, 1, 3, 5])
    ... )
    array([0, 1, 2])
    """
    rows = np.concatenate([np.arange(domain.shape[1])[None], domain])[:, host]
    # A gang is in one domain of a level if the least and the largest number are the same.
    low, high = (ends.reduceat(rows, host_from[:-1], axis=1) for ends in (np.minimum, np.maximum))
    return np.asarray((low < high).sum(axis=0))


@dataclass
class TopologyAware:
    """Kueue's topology-aware scheduling of one pod set, as a choice of nodes.

    Pods that fit are counted at each level. ``required`` and ``preferred`` take the domain of
    ``level`` with fewest of those that hold all pods. Where none does, ``required`` waits, and
    ``preferred`` goes up level by level, at the top to several domains, those with most first.
    Below, domains with most come first, and the last is that with fewest that holds the rest.
    ``unconstrained`` takes nodes with fewest first (the profile Mixed).

    Parameters
    ----------
    mode : {"required", "preferred", "unconstrained"}
    level : str, optional
        Label; the nearest one by default.
    """

    mode: str = "preferred"
    level: str = ""
    name: ClassVar[str] = "tas"
    topology: Any = field(default=None, init=False, repr=False)

    def resize(self, nodes: Nodes, job_types: tuple[str, ...]) -> None:
        labels = levels_of(nodes)
        if self.level and self.level not in labels:
            raise UnknownName("level of distance", self.level, list(labels))
        # From nodes to the widest label: the cluster as a whole is no level of Kueue's.
        domain = np.concatenate([np.arange(len(nodes))[None], domains(nodes, labels)[:-1]])
        at = min(1 + labels.index(self.level) if self.level else 1, len(labels))
        least_first, made = self.mode == "unconstrained", cast(Any, Topology)
        work = (np.zeros(len(nodes), dtype=np.int64) for _ in range(3))
        climbs = self.mode == "preferred"
        self.topology = made(domain, 0 if least_first else at, climbs, least_first, *work)

    def place(self, job: Job, books: Books, now: float) -> list[tuple[int, int]] | None:
        """Tasks on nodes, in the order of nodes; None where it waits."""
        self.topology.fits[:] = books.fits(job.shape)
        if int(self.topology.fits.sum()) < job.tasks or not choose_domains(
            self.topology, job.tasks
        ):
            return None
        return [(n, taken) for n, taken in enumerate(self.topology.taken.tolist()) if taken]
