"""Published results of others, played again: the scenarios, see ``papers/field.toml``.

In :class:`Filling` jobs come one after another, none ends, those for whom there is no room leave.
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

import hashlib
import math
import random
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.jit import inlined_kernel, inner_kernel, lean_kernel
from gangwise.jobs import kernels
from gangwise.jobs.books import Books
from gangwise.jobs.fit_kernels import fits, fragments, growth, left_over, take, unused_devices
from gangwise.jobs.gavel import water_filling
from gangwise.jobs.kernels import ClusterArrays, FreeDevices
from gangwise.jobs.metrics import spread
from gangwise.jobs.model import Conditions, Jobs, Nodes
from gangwise.jobs.schedule import Options, Tables
from gangwise.logs import open_tables, reader_arguments, reader_of, without_reader
from gangwise.logs.jobs import JobLog, jobs_of
from gangwise.study.replay_scenario import ReplayInstance, ReplayScenario, only_jobs
from gangwise.study.runs import Rows

# RLScheduler (Zhang et al., SC 2020)


@dataclass(frozen=True)
class Picked:
    """Order of RLScheduler's environment: the job picked starts before another is picked.

    Time goes on until the picked job has room, whatever comes meanwhile. With ``backfilling``,
    others start first come, first served, if they fit and are due to end before the picked job was
    due to have room when it was picked. Keys do not change with time: ``wfp3`` and ``unicep`` wait
    from −1 − submission, since the environment takes a start that is not known yet for −1.
    """

    order: str
    backfilling: bool = False

    def keys(self, jobs: Jobs) -> list[Any]:
        """Key of each job, the smallest first; times are those of the log."""
        s, r, n, wait = jobs.submit, jobs.limit, jobs.tasks, -1 - jobs.submit
        columns = {
            "fcfs": s,
            "sjf": r,
            "f1": np.log10(np.maximum(r, 0.1)) * n + 870 * np.log10(np.maximum(s, 0.1)),
            "wfp3": -((wait / r) ** 3) * n,
            "unicep": -(wait + 1e-15) / (np.log2(n + 1e-15) * r),
        }
        if self.order not in columns:
            raise UnknownName("order of RLScheduler's environment", self.order, list(columns))
        return [*zip(columns[self.order].tolist(), s.tolist(), strict=True)]

    def start(self, jobs: Jobs, processors: int) -> Floats:
        """Seconds at which each job starts [J]; a task is a processor."""
        begun = np.full(len(jobs), np.nan)
        submit, run, limit = jobs.submit.tolist(), jobs.run.tolist(), jobs.limit.tolist()
        size, keys = jobs.tasks.tolist(), self.keys(jobs)
        queue, running, arrived = [0], list[int](), 1
        free, now = processors, submit[0]

        def event() -> None:
            """Go on to the next submission or end; of both at once, to the submission."""
            nonlocal free, now, arrived
            running.sort(key=lambda j: begun[j] + run[j])
            end = begun[running[0]] + run[running[0]] if running else math.inf
            if arrived < len(jobs) and submit[arrived] <= end:
                now = max(now, submit[arrived])
                queue.append(arrived)
                arrived += 1
            else:
                now, free = max(now, end), free + size[running.pop(0)]

        def begin(j: int) -> None:
            nonlocal free
            begun[j], free = now, free - size[j]
            running.append(j)
            queue.remove(j)

        while queue:
            picked = min(queue, key=keys.__getitem__)
            room, due = free, now
            for j in sorted(running, key=lambda j: begun[j] + limit[j]):
                if room >= size[picked]:
                    break
                room, due = room + size[j], begun[j] + limit[j]
            # The environment cannot take a pick back: time goes on until there is room.
            while size[picked] > free:
                if self.backfilling:
                    for j in sorted(queue):
                        if now + limit[j] < due and size[j] <= free:
                            begin(j)
                event()
            begin(picked)
            while not queue and arrived < len(jobs):
                event()
        return begun


class Sequences(ReplayScenario):
    """Seed s plays the s-th of RLScheduler's sequences of consecutive jobs, from an empty cluster.

    Their first rows are drawn by NumPy's ``RandomState`` from the first eight bytes of the SHA-512
    of their seed, 1, as Gym does it.
    """

    name = "sequences"
    length = 1024

    @property
    def drawn(self) -> bool:
        return True

    def _draw(self, seed: int, keep: Any) -> ReplayInstance:
        digest = hashlib.sha512(b"1").digest()[:8]
        rng = np.random.RandomState(np.frombuffer(digest, dtype="<u4"))
        most, row = len(self.jobs) - self.length - 1, np.arange(len(self.jobs))
        # The s-th number needs the s before it: RandomState has no other way to get there.
        begin = rng.randint(self.length, most, size=seed + 1)[seed]
        jobs = only_jobs(self.jobs, (row >= begin) & (row < begin + self.length))
        return ReplayInstance(jobs, self.log.nodes, Conditions())

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "length": self.length}

    def fidelity(self) -> list[str]:
        line = f"sequences of {self.length:,} consecutive jobs, each from an empty cluster"
        return [f"{line}: {super().fidelity()[0]}"]

    def replay(self, decider: Any, seed: int, slots: int, label: str) -> Rows:
        jobs, nodes, _ = self.draw(seed)
        processors = int(nodes.capacity.sum() // 1000)
        if isinstance(decider, Picked):
            rows, start = Rows(), decider.start(jobs, processors)
            took = start + jobs.run - jobs.submit
            # Bounded slowdown: jobs under ten seconds count as of ten.
            slow = np.maximum(took / np.maximum(jobs.run, 10.0), 1.0)
            for name, value in (spread("completion", took) | spread("slowdown", slow)).items():
                rows.add(name, value)
        else:
            rows = super().replay(decider, seed, slots, label)
            start = rows["job.start"][1]
        whole = processors * (start.max() - jobs.submit[0])
        work = float((jobs.run * jobs.tasks).sum())
        rows.add("utilisation until the last start", work / whole)
        return rows


# Gaussier, Glesser, Reis and Trystram (SC 2015)


class Doubled(ReplayScenario):
    """A log whose jobs ask for twice the time that they asked for."""

    name = "doubled"

    def draw(self, seed: int, keep: Any = None) -> ReplayInstance:
        played = super().draw(seed, keep)
        return played._replace(jobs=replace(played.jobs, limit=2 * played.jobs.limit))

    def fidelity(self) -> list[str]:
        return [f"every request is doubled: {super().fidelity()[0]}"]


# FGD (Weng et al., ATC 2023)


@dataclass(frozen=True)
class Fills:
    """A choice of nodes, one of :data:`POLICIES`."""

    choice: str


class Unallocated:
    """A cluster with GPUs is filled with the jobs of a trace in random order; none ends.

    Per cent of the GPUs that are not allocated when 100 % and 130 % of them were asked for.
    """

    name = "unallocated"
    family = "jobs"
    slots = 1
    deciders: ClassVar[Literal["policy", "scheduler"]] = "scheduler"
    objective = "unallocated at 130 %"
    minimise = True

    def __init__(self, source: str) -> None:
        self.source = Path(source)

    @cached_property
    def log(self) -> Any:
        return drop_recorded_times(self.source)

    def describe(self) -> dict[str, Any]:
        return {"source": self.source.name, "files": dict(self.log.played.digests)}

    def fidelity(self) -> list[str]:
        return [f"{self.source.name}: jobs in random order, times play no part, none ends"]

    def replay(self, decider: Fills, seed: int, slots: int, label: str) -> Rows:
        filled = Filling(self.log.jobs, with_gpus(self.log.nodes), seed).play(decider.choice)
        rows = Rows()
        rows.add("unallocated at 100 %", 100 - np.interp(100, filled.arrived, filled.allocated))
        rows.add("unallocated at 130 %", 100 - filled.allocated[-1])
        return rows


# Gavel (Narayanan et al., OSDI 2020)


class Entities(Unallocated):
    """Fig. 11's first jobs on nine GPUs: throughputs over those with equal shares.

    Entities of weights 1, 2 and 3 have six jobs each, which weigh 1 and 2 in turn. Throughputs on
    the three kinds of GPUs are sorted draws of Python's generator of seed 0.
    """

    name, objective, minimise = "entities", "total", False

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def describe(self) -> dict[str, Any]:
        return {"jobs": self.jobs}

    def fidelity(self) -> list[str]:
        return ["shares of time are computed, and no time passes"]

    def replay(self, decider: Any, seed: int, slots: int, label: str) -> Rows:
        drawn, j, ones = random.Random(0), np.arange(self.jobs), np.ones(self.jobs, np.int64)
        rates = np.array([sorted(drawn.random() for _ in range(3)) for _ in j])
        # Weights within an entity, by turns; j // 6 below is the entity.
        part = np.where(j % 2 == 0, 1.0, 2.0)
        arguments = ones, np.ones(self.jobs), np.full(3, 3.0), j // 6, np.arange(1.0, 4.0), part
        level = (rates * water_filling(rates, *arguments)).sum(axis=1) / rates.mean(axis=1)
        rows = Rows()
        for name, value in [("least", min(level)), ("total", sum(level)), *enumerate(level)]:
            rows.add(str(name), value)
        return rows


# FGD: a cluster filled


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
        # Thousandths of a GPU, so that parts of one add up exactly.
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
    memo: kernels.Rows
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
    # Thousandths of a device that are free: 1000 for one that is not in use.
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
    # Up to 25 for how full the node is, beside bonuses of 25 to 75.
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
    # Growth depends on the node alone, so it holds until something is put there or taken off.
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
    # Whole per cents as in the authors' code, whose ties decide much.
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
                # Only nodes of this gang have changed, so only their F is computed anew.
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
        # A random choice needs only how many nodes are able: one of them is drawn below.
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
    # The skip-th of those that are able, counted in the order of the devices.
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
