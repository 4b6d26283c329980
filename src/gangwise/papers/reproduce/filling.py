"""A cluster filled: jobs come one after another, none ends, those for whom there is no room leave.

The experiment of Weng et al., *Beware of Fragmentation* (ATC 2023): how much of the cluster a
choice of nodes allocates, and how much of what is free no task can use, by what has arrived. Jobs
come in random order; if they ask for too little, more are drawn from them.

``best-fit``, ``first-fit`` and ``fgd`` are the choices of :mod:`gangwise.jobs.choice`; fgd knows
the whole workload here. The others are the rivals of the paper, as its authors implemented them,
with scores in whole percents, over CPU and GPU (memory must fit, and is not scored):

``random``
    any node with room, and any device of it.
``dot-product``
    least Σ free × asked, each as a share of the largest node.
``gpu-packing``
    devices in use first, then unused ones of nodes in use, then unused nodes.
``gpu-clustering``
    nodes where tasks of the same number of GPUs run, and best none else; fuller ones first.
``best-fit-cpu-gpu``
    least Σ free as shares of the largest node: the best-fit of the paper.

The order of the nodes, by which ties are broken, is random too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.jit import inlined_kernel, inner_kernel, lean_kernel
from gangwise.jobs import kernels
from gangwise.jobs.books import Books
from gangwise.jobs.fit_kernels import fits, fragments, growth, left_over, take, unused_devices
from gangwise.jobs.kernels import ClusterArrays, FreeDevices, Rows
from gangwise.jobs.model import Conditions, Jobs, Nodes
from gangwise.jobs.schedule import Options, Tables
from gangwise.logs import open_tables, reader_arguments, reader_of, without_reader
from gangwise.logs.jobs import JobLog, jobs_of

POLICIES = ["random", "dot-product", "gpu-packing", "gpu-clustering", "best-fit-cpu-gpu"]
POLICIES += ["first-fit", "best-fit", "fgd"]
RANDOM, DOT_PRODUCT, PACKING, CLUSTERING, OF_PAPER, FIRST_FIT, BEST_FIT, FGD = range(8)

# numba knows it; its own type would say too little.
int64: Any = np.int64


@dataclass(frozen=True, eq=False)
class Filled:
    """The result of a policy on one order of arrivals; curves are per cent of the GPUs."""

    arrived: Floats  # asked for by what has arrived: 0, 1, 2, … and the end
    allocated: Floats
    fragmented: Floats  # free but of no use to the mean task, Σ_n F_n ÷ tasks
    placed: int  # jobs
    turned_away: int


class Filling:
    """One order of arrivals and of nodes, for every policy alike.

    Times of jobs play no part, and GPUs count one by one. Arrivals end before they ask for more
    than ``until`` as a share of the GPUs.
    """

    def __init__(self, jobs: Jobs, nodes: Nodes, seed: int, until: float = 1.3):
        if "gpu" not in nodes.devices or "gpu" not in jobs.devices:
            raise ScenarioError("filling measures GPUs: neither nodes nor jobs may be without gpu")
        rng = np.random.default_rng([seed, 29])
        order = rng.permutation(len(nodes))
        nodes = replace(
            nodes,
            names=tuple(nodes.names[n] for n in order),
            capacity=np.ascontiguousarray(nodes.capacity[order]),
            labels=tuple(nodes.labels[n] for n in order),
            rates=tuple(nodes.rates[n] for n in order),
            shared="gpu",
        )
        t = Tables.of(jobs, nodes, Conditions(), Options(), "filling")
        self.account, self.nodes = t.account, nodes
        k = nodes.devices.index("gpu")
        self.total = int(nodes.capacity[:, k].sum())
        rows = rng.permutation(np.flatnonzero(~t.aside))
        asks = (t.cluster.demand[jobs.shape, k] * jobs.tasks).astype(np.int64)
        if not asks[rows].any():
            raise ScenarioError("filling measures GPUs: no job that fits asks for one")
        wanted = until * self.total
        # Too few jobs for the cluster: more of them are drawn.
        while asks[rows].sum() <= wanted:
            rows = np.concatenate([rows, rng.choice(np.flatnonzero(~t.aside), len(jobs))])
        self.come = rows[: int(np.searchsorted(np.cumsum(asks[rows]), wanted, side="right"))]
        self.asks, self.draws = asks, rng.random((2, int(jobs.tasks[self.come].sum())))
        self.arrivals = np.stack([jobs.shape, jobs.tasks])[:, self.come].astype(np.int64)
        self.cluster = t.cluster
        self.memo = np.zeros(len(t.cluster.demand), dtype=kernels.MEMO)
        played = ~t.aside
        np.add.at(self.memo["seen"], jobs.shape[played], jobs.tasks[played])

    def play(self, policy: str) -> Filled:
        """Let all arrivals come under a policy."""
        if policy not in POLICIES:
            raise UnknownName("policy of filling", policy, POLICIES)
        books, (S, N) = Books.opened(self.nodes), (len(self.cluster.demand), len(self.nodes))
        requested = np.cumsum(self.asks[self.come])
        # The curve is read at each whole per cent of the GPUs that were asked for.
        marks = np.arange(math.floor(100 * requested[-1] / self.total) + 1) * self.total / 100
        rows = np.append(np.searchsorted(requested, marks), requested.size - 1)
        curve = np.zeros((3, requested.size), dtype=np.int64)
        most = max(N, int(self.arrivals[1].max()))
        board = Board(
            self.cluster,
            self.memo,
            POLICIES.index(policy),
            np.array([float(k != "mem") for k in self.nodes.devices]),
            FreeDevices(books.free, books.device, np.zeros_like(books.free)),
            np.zeros((N, books.device.shape[1] + 2), dtype=np.int64),
            np.full((S, N), -1, dtype=np.int64),
            np.zeros((2, S, N), dtype=np.int64),
            np.zeros(N, dtype=np.int64),
            np.zeros((2, most), dtype=np.int64),
        )
        fill(board, self.arrivals, self.draws, np.zeros(N, dtype=np.int64), curve)
        mean, placed = int(self.memo["seen"].sum()), int(curve[2].sum())
        allocated, fragmented = 100 * curve[0, rows] / self.total, 100 * curve[1, rows] / mean
        of_all = 100 * requested[rows] / self.total, allocated, fragmented / self.total
        return Filled(*of_all, placed, requested.size - placed)


class Board(NamedTuple):
    """State of the kernels: the cluster, the workload, and the gang that is placed."""

    cluster: ClusterArrays
    memo: Rows
    policy: int
    scored: Floats  # [K] weight of each device type in scores
    room: FreeDevices
    kinds: Ints  # [N, …] tasks on each node by kind_of
    known: Ints  # [S, N] changes of the node when fgd last looked at it
    grown: Ints  # [2, S, N] what it found: growth and devices
    changes: Ints  # [N] how often the node changed
    gang: Ints  # [2, …] nodes and devices of the tasks placed so far


@inner_kernel
def kind_of(x: Board, s: int) -> int:
    """0 for tasks without GPUs, 1 for those that share one, 1 + n for those of n."""
    if x.cluster.shapes[s].fraction > 0:
        return 1
    return int(x.cluster.shapes[s].whole + 1) if x.cluster.shapes[s].whole > 0 else 0


@inner_kernel
def packing(x: Board, s: int, n: int) -> float:
    """GPU packing: at most 33 for an unused node, 50 for unused devices, 100 for those in use."""
    if kind_of(x, s) == 0:
        return 0.0
    unused = int64(0)
    tight = int64(1000)
    for g in range(x.cluster.devices[n]):
        if x.room.device[n, g] == 1000:
            unused += 1
        elif 0 < x.cluster.shapes[s].fraction <= x.room.device[n, g]:
            tight = min(tight, x.room.device[n, g])
    # An unused node comes last, then unused devices, and the tightest device in use first.
    if unused == x.cluster.devices[n]:
        return float(max(33 - unused, unused))
    if tight == 1000:
        return float(max(50 - max(x.cluster.shapes[s].whole, 1), 33))
    return float(max(100 - tight // 100, 50))


@inner_kernel
def clustering(x: Board, s: int, n: int) -> float:
    """GPU clustering: 75 for a node of this kind alone, 50 with others, 25 for none, 0 others."""
    kind = kind_of(x, s)
    if kind == 0:
        return 0.0
    most = x.cluster.largest[x.cluster.shared]
    score = 25 * (most - x.room.free[n, x.cluster.shared]) // most
    kinds_there = int64(0)
    for kind_tried in range(1, x.kinds.shape[1]):
        kinds_there += x.kinds[n, kind_tried] > 0
    if x.kinds[n, kind] > 0:
        return float(score + (75 if kinds_there == 1 else 50))
    return float(score + (25 if kinds_there == 0 else 0))


@inner_kernel
def fgd(x: Board, s: int, n: int) -> float:
    """Growth of what is fragmented, negative; looked up where the node is as it was."""
    if x.known[s, n] != x.changes[n]:
        level, mask = growth(x.cluster, x.memo, x.room, s, n)
        x.grown[0, s, n] = level
        x.grown[1, s, n] = mask
        x.known[s, n] = x.changes[n]
    return -float(x.grown[0, s, n])


@inner_kernel
def score(x: Board, s: int, n: int) -> float:
    """Score of a node for a task of shape s; the larger the better."""
    if x.policy == FGD:
        return float(fgd(x, s, n))
    if x.policy == BEST_FIT:
        return float(left_over(x.cluster, x.room, s, n, 0, -1))
    if x.policy == PACKING:
        return float(packing(x, s, n))
    if x.policy == CLUSTERING:
        return float(clustering(x, s, n))
    if x.policy == FIRST_FIT:
        return 0.0
    total = 0.0
    weight = 0.0
    for k in range(x.room.free.shape[1]):
        # CPU and GPU alone are scored, as shares of the largest node.
        share = x.room.free[n, k] / x.cluster.largest[k]
        if x.policy == DOT_PRODUCT:
            share *= x.cluster.demand[s, k] / x.cluster.largest[k]
        total += x.scored[k] * share
        weight += x.scored[k]
    return float(math.floor(100.0 * (1.0 - total / weight)))


@lean_kernel
def fill(x: Board, arrivals: Ints, draws: Floats, lost: Ints, curve: Ints) -> None:
    """Let arrivals [2, J] (shape, tasks) come; a gang is placed whole, task by task, or leaves.

    ``draws`` [2, …] hold two numbers in [0, 1) for each task; ``lost`` [N] becomes F of each node;
    ``curve`` [3, J] after each arrival: thousandths allocated, Σ F_n, and whether it was placed.
    """
    used = int64(0)
    total = int64(0)
    for n in range(lost.size):
        lost[n] = fragments(x.cluster, x.memo, x.room, n)
        total += lost[n]
    drawn = 0
    for j in range(arrivals.shape[1]):
        s = arrivals[0, j]
        tasks = arrivals[1, j]
        placed = 0
        for i in range(tasks):
            n, mask = chosen(x, s, i, draws[0, drawn + i], draws[1, drawn + i])
            if n < 0:
                break
            put(x, s, n, mask, -1)
            x.gang[0, i] = n
            x.gang[1, i] = mask
            placed += 1
        drawn += tasks
        # All or none: a gang without room gives back what it took.
        if placed < tasks:
            for i in range(placed):
                put(x, s, x.gang[0, i], x.gang[1, i], 1)
        else:
            used += tasks * x.cluster.demand[s, x.cluster.shared]
            curve[2, j] = 1
            for i in range(tasks):
                n = x.gang[0, i]
                total -= lost[n]
                lost[n] = fragments(x.cluster, x.memo, x.room, n)
                total += lost[n]
        curve[0, j] = used
        curve[1, j] = total


@inner_kernel
def put(x: Board, s: int, n: int, mask: int, sign: int) -> None:
    """Put a task on node n (sign −1), or take it off again (+1)."""
    take(x.cluster, x.room, s, n, 1, mask, sign)
    x.kinds[n, kind_of(x, s)] -= sign
    x.changes[n] += 1


@inlined_kernel
def room(x: Board, s: int, placed: int, n: int) -> bool:
    """Node n takes one more task of a gang of which so many are placed."""
    if not x.cluster.allowed[x.cluster.shapes[s].constraint, n]:
        return False
    if fits(x.cluster, x.room, s, n) == 0:
        return False
    on_node = int64(0)
    for i in range(placed):
        on_node += x.gang[0, i] == n
    return bool(on_node < x.cluster.shapes[s].per_node)


@inner_kernel
def chosen(x: Board, s: int, placed: int, node: float, gpu: float) -> tuple[int, int]:
    """Node and devices for the next task of a gang of which so many are placed; −1 for no room.

    ``node`` and ``gpu`` in [0, 1) draw them at random.
    """
    best = -1
    most = 0.0
    able = 0
    for n in range(x.room.free.shape[0]):
        if not room(x, s, placed, n):
            continue
        able += 1
        if x.policy != RANDOM:
            value = score(x, s, n)
            if best < 0 or value > most:
                best = n
                most = value
    if x.policy == RANDOM and able > 0:
        skip = int(node * able)
        for n in range(x.room.free.shape[0]):
            if best < 0 and room(x, s, placed, n):
                if skip == 0:
                    best = n
                skip -= 1
    if best < 0:
        return -1, 0
    if x.policy == FGD:
        return best, int(x.grown[1, s, best])
    if x.cluster.shapes[s].fraction == 0:
        return best, int(unused_devices(x.room, best, x.cluster.shapes[s].whole))
    return best, int(drawn_device(x, s, best, gpu))


@inner_kernel
def drawn_device(x: Board, s: int, n: int, draw: float) -> int:
    """The device of node n that a fraction takes: the fullest with room, or a drawn one."""
    d = x.cluster.shapes[s].fraction
    best = -1
    able = 0
    for g in range(x.cluster.devices[n]):
        if x.room.device[n, g] >= d:
            able += 1
            if best < 0 or x.room.device[n, g] < x.room.device[n, best]:
                best = g
    skip = int(draw * able)
    for g in range(x.cluster.devices[n]):
        if x.policy == RANDOM and x.room.device[n, g] >= d:
            if skip == 0:
                return int(int64(1) << g)
            skip -= 1
    return int(int64(1) << best)


def drop_recorded_times(source: Path) -> JobLog:
    """All jobs of a trace as if they came at once and took a second."""
    knobs: dict[str, Any] = {}
    if not without_reader(source) and "untimed" in reader_arguments(reader_of(source, "")):
        knobs["untimed"] = True
    tables = open_tables(source, **knobs)
    times = ("started", "elapsed", "status", "unfinished", "limit", "after")
    jobs = tables.jobs.drop(name for name in times if name in tables.jobs.columns)
    jobs = jobs.with_columns(pl.lit(0.0).alias("created"), pl.lit(1.0).alias("deleted"))
    return jobs_of(replace(tables, jobs=jobs))


def with_gpus(nodes: Nodes) -> Nodes:
    keep = np.flatnonzero(nodes.capacity[:, nodes.devices.index("gpu")])
    return replace(
        nodes,
        names=tuple(nodes.names[n] for n in keep),
        capacity=np.ascontiguousarray(nodes.capacity[keep]),
        labels=tuple(nodes.labels[n] for n in keep),
        rates=tuple(nodes.rates[n] for n in keep),
    )
