"""Alibaba cluster-trace-v2018 (``alibaba-v2018.toml``): precedence of tasks, and containers.

The precedence of batch tasks is in their names: ``M1`` waits for nothing, ``J3_1_2`` for tasks 1
and 2 of its job; letters mean nothing, and a parent may have the higher number. ``task_...`` is
independent. Names are cut at 50 characters: the last number of a cut name may be a part of a longer
one, and parents after it are lost. Tasks that wait for each other in a circle never start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import TraceError
from gangwise.logs.format import Read, declared
from gangwise.logs.formats.tabular import TableMapping, TabularReader
from gangwise.logs.reading import Stage, leave_out, reasons
from gangwise.logs.tables import UNITS, Tables


class Dag:
    """Edges between tasks.

    ``tasks`` are numbered from 0; ``child`` waits for ``parent`` [edges]. An edge given twice
    counts once, and one between tasks that do not exist raises ValueError.

    Task 2 waits for 0 and 1, and 3 for 2.

    >>> dag = Dag(4, child=np.array([2, 2, 3]), parent=np.array([0, 1, 2]))
    >>> dag.level.tolist()
    [0, 0, 1, 2]
    >>> dag.finish(np.array([5.0, 1.0, 2.0, 3.0])).tolist()
    [5.0, 1.0, 7.0, 10.0]
    """

    def __init__(self, tasks: int, child: npt.ArrayLike, parent: npt.ArrayLike):
        pairs = np.column_stack([np.asarray(child, np.int64), np.asarray(parent, np.int64)])
        if len(pairs) and (pairs.min() < 0 or pairs.max() >= tasks):
            raise ValueError(f"an edge names a task outside 0 to {tasks - 1}")
        # Sorted edges make duplicates neighbours.
        step = np.diff(pairs[:, 0])
        # Mostly they are sorted already, and the sort of millions of edges is spared.
        if ((step < 0) | ((step == 0) & (np.diff(pairs[:, 1]) < 0))).any():
            pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        # Prepending -1 makes the first edge differ from nothing.
        once = pairs[(np.diff(pairs, axis=0, prepend=-1) != 0).any(axis=1)]
        self.tasks: int = tasks
        self.child: Ints = once[:, 0].copy()
        self.parent: Ints = once[:, 1].copy()

    @classmethod
    def of_jobs(cls, jobs: pl.DataFrame) -> Dag:
        """The graph of :attr:`~gangwise.logs.tables.Tables.jobs`; task i is its row i.

        Raises TraceError when a task waits for one that its job does not have; names job and row.
        """
        tasks = jobs.select("row", "job", "name", "after").with_row_index("child")
        waits = tasks.filter(pl.col("after") != "").with_columns(pl.col("after").str.split("|"))
        numbers = tasks.select("job", pl.col("name").alias("after"), parent="child")
        edges = waits.explode("after").join(numbers, on=["job", "after"], how="left")
        lost = edges.filter(pl.col("parent").is_null())
        if len(lost):
            job, name, parent, row = lost.select("job", "name", "after", "row").row(0)
            raise TraceError(
                f"task {name} of job {job} (row {row}) waits for {parent}, which is not in the job"
            )
        return cls(len(jobs), edges["child"].to_numpy(), edges["parent"].to_numpy())

    @cached_property
    def level(self) -> Ints:
        """Edges on the longest way to each task; -1 on a circle, or after one. Shape [tasks]."""
        by_parent = np.argsort(self.parent, kind="stable")
        child = self.child[by_parent]
        # Children of parent p lie from offset[p] to offset[p + 1].
        offset = np.r_[0, np.cumsum(np.bincount(self.parent, minlength=self.tasks))]
        waits_for = np.bincount(self.child, minlength=self.tasks)
        level = np.full(self.tasks, -1, np.int64)
        ready, depth = np.flatnonzero(waits_for == 0), 0
        # Kahn's algorithm, a level of the graph at a time.
        while ready.size:
            level[ready] = depth
            count = offset[ready + 1] - offset[ready]
            # For each ready task the places of all its children, without a loop.
            start = np.repeat(offset[ready] - np.r_[0, np.cumsum(count)[:-1]], count)
            freed = child[start + np.arange(count.sum())]
            np.subtract.at(waits_for, freed, 1)
            free = np.sort(freed[waits_for[freed] == 0])  # np.unique hashes, and misses the cache
            ready, depth = free[np.diff(free, prepend=-1) > 0], depth + 1
        return level

    @cached_property
    def on_circle(self) -> Bools:
        """Whether each task waits for itself, directly or through others. Shape [tasks]."""
        from scipy.sparse import coo_array  # here: few logs have circles
        from scipy.sparse.csgraph import connected_components

        stuck = self.level < 0
        if not stuck.any():
            return stuck
        # Only edges among tasks without a level can close a circle.
        inside = stuck[self.child] & stuck[self.parent]
        a, b = self.parent[inside], self.child[inside]
        graph = coo_array((np.ones(a.size), (a, b)), shape=(self.tasks, self.tasks))
        # A strongly connected component of several tasks is one circle, or several that meet.
        _, group = connected_components(graph, connection="strong")
        on: Bools = np.bincount(group)[group] > 1
        # A task that waits for itself is a circle of one.
        on[a[a == b]] = True
        return on

    def finish(self, duration: Floats) -> Floats:
        """Earliest end of each task, where every one starts as soon as its parents end.

        The largest over the tasks of a job is the length of its critical path. ``duration`` is of
        shape [tasks]. Raises TraceError when tasks wait for each other in a circle.
        """
        if self.on_circle.any():
            examples = np.flatnonzero(self.on_circle)[:12].tolist()
            raise TraceError(f"tasks wait for each other in a circle: {examples}")
        # A copy: ends start as lengths and grow by the parents' ends.
        ends = np.array(duration, dtype=np.float64)
        depth = self.level[self.child]
        by_depth = np.argsort(depth, kind="stable")
        bounds = np.searchsorted(depth[by_depth], np.arange(1, self.level.max(initial=0) + 2))
        # Level by level: parents are done before their children.
        for low, high in pairwise(bounds.tolist()):
            edges = by_depth[low:high]
            child = self.child[edges]  # ascending, as the sort by depth is stable
            first_of = np.flatnonzero(np.diff(child, prepend=-1))
            # The largest end of each child's parents; edges of a child are neighbours.
            ends[child[first_of]] += np.maximum.reduceat(ends[self.parent[edges]], first_of)
        return ends


FORMAT = declared("alibaba-v2018")
LONGEST = 50
TASK_NAME = r"^[A-Za-z]+(\d{1,18})(?:_\d{1,18})*_?$"


def edges_of(tasks: pl.DataFrame) -> tuple[pl.DataFrame, Mapping[str, int]]:
    """Edges that names tell, and how many names or parents something is the matter with.

    ``tasks`` have ``job``, ``name``, and ``used``: the others can only be missed as a parent. An
    edge is ``child parent``: used tasks, numbered from 0 in their order; a task that waits for a
    number which two tasks of its job have waits for both.

    Of used tasks are counted: ``dag``, names that tell precedence; ``other``, names of neither
    kind, taken as independent; ``cut``, names that may be incomplete; ``doubtful``, last parents of
    those, left out; ``lost``, parents that the job does not have; ``unused``, parents that are not
    used; ``shared``, tasks whose number another task of the job has too.

    >>> import polars as pl
    >>> names = ["J1_3_2", "M2", "M3_2", "task_Nzg3"]
    >>> edges, counts = edges_of(pl.DataFrame({"job": "j_1", "name": names, "used": True}))
    >>> edges.rows()
    [(0, 1), (0, 2), (2, 1)]
    """
    used = pl.col("used")
    tasks = tasks.with_columns(index=pl.when(used).then(used.cum_sum().cast(pl.Int64) - 1))
    parts = [_edges(tasks[rows]) for rows in parts_by_job(tasks["job"])]
    edges = pl.concat([part for part, _ in parts])
    counts = {key: sum(counted[key] for _, counted in parts) for key in parts[0][1]}
    return edges, counts


PART = 1 << 16
"""Approximate number of rows of whole jobs in a part, so that its tables stay in the cache."""


def parts_by_job(jobs: pl.Series) -> list[Ints]:
    """The rows of some jobs, of some others, and so on, each ascending: no job is in two parts.

    What is looked up job by job then costs the same for each row, however many there are.

    >>> [rows.tolist() for rows in parts_by_job(pl.Series(["j_7", "j_1", "j_7"]))]
    [[0, 1, 2]]
    """
    every = np.arange(len(jobs))
    if len(jobs) < 2 * PART:
        return [every]
    # Jobs are cut into parts by their numbers, at quantiles of a sample.
    number = jobs.str.slice(2).cast(pl.Int64, strict=False).fill_null(0).to_numpy()
    # A sample is enough: parts need to be about equal only.
    step = max(PART // 256, 1)
    bounds = np.unique(np.sort(number[::step])[PART // step :: PART // step])
    part = np.searchsorted(bounds, number, side="right").astype(np.uint16)
    order = (
        # Sorted logs need no reordering.
        every if (np.diff(part.astype(np.int32)) >= 0).all() else np.argsort(part, kind="stable")
    )
    return np.split(order, np.cumsum(np.bincount(part, minlength=len(bounds) + 1))[:-1])


def _edges(tasks: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    name, used = pl.col("name"), pl.col("used")
    named = tasks.select(
        pl.col("job").cast(pl.Categorical).to_physical(),  # hashed once, and not in every join
        "name",
        "used",
        "index",
        id=name.str.extract(TASK_NAME, 1).cast(pl.Int64),
        cut=(name.str.len_chars() >= LONGEST) | name.str.ends_with("_"),
    )
    dag = named.filter(pl.col("id").is_not_null())
    mine = dag.filter("used")
    tokens = name.str.split("_").list.slice(1)
    waiting = mine.select(
        "job",
        child="index",
        # A name that is cut, and does not end with `_`, may have lost digits of its last number.
        doubtful=pl.col("cut") & ~name.str.ends_with("_"),
        id=pl.when("cut").then(tokens.list.head(tokens.list.len() - 1)).otherwise(tokens),
    )
    # An edge for each number behind the first in a name.
    waits = waiting.explode("id").filter(pl.col("id").is_not_null())
    # Unique: a parent that is named twice is one edge.
    waits = waits.select("job", "child", pl.col("id").cast(pl.Int64)).unique()
    numbers = dag.select("job", "id", "used", parent="index")
    edges = waits.join(numbers, on=["job", "id"], how="left").sort("child", "parent")
    counts = {
        "dag": len(mine),
        "other": named.filter(
            used & pl.col("id").is_null() & ~name.str.starts_with("task_")
        ).height,
        "cut": int(mine["cut"].sum()),
        "doubtful": int(waiting["doubtful"].sum()),
        "lost": edges["used"].null_count(),
        "unused": edges.filter(~used).height,
        "shared": int(mine.select(pl.struct("job", "id").is_duplicated().sum()).item()),
    }
    return edges.filter("used").select("child", "parent"), counts


def parent_names(names: pl.Series, dag: Dag) -> pl.Series:
    """Names of the parents of each task, in the order of their rows, joined by ``|``."""
    edges = pl.DataFrame({"child": dag.child, "name": names.gather(dag.parent)})
    edges = edges.with_columns(pl.col("child").set_sorted())  # as those of a graph are
    joined = edges.group_by("child", maintain_order=True).agg("name")
    texts = pl.concat([pl.Series("after", [""]), joined["name"].list.join("|").rename("after")])
    place = np.zeros(len(names), np.int64)
    place[joined["child"].to_numpy()] = np.arange(1, len(joined) + 1)
    return texts.gather(place)


def batch_jobs(
    read: Read, section: TableMapping, file: Path, strict: bool
) -> tuple[pl.DataFrame, list[Stage], list[str]]:
    """Jobs as :class:`~gangwise.logs.tables.Tables` has them, what was left out, and notes.

    Raises TraceError when no row can be used; with ``strict``, when a task waits for itself.
    """
    frame = read.frame.with_row_index("at")
    # The place in the whole table, since left out tasks may still be parents.
    sound, stage = leave_out("batch tasks", frame, section.rules(frame))
    stages, notes = [stage], []
    repeated, names = np.zeros(len(sound), dtype=bool), sound.select("job_name", "task_name")
    # By parts of jobs: distinct over all rows at once leaves the cache.
    for rows in parts_by_job(sound["job_name"]):
        repeated[rows] = ~names[rows].select(pl.struct(pl.all()).is_first_distinct()).to_series()
    reason = "its job has a task of this name already"
    sound, stage = leave_out("task names", sound, [(reason, pl.lit(pl.Series(repeated)))])
    stages += [stage] * bool(stage.dropped)
    dag, counts = _graph(frame, sound)
    on = dag.on_circle
    if on.any():
        task, job, row = sound.filter(pl.Series(on)).select("task_name", "job_name", "row").row(0)
        problem = f"task {task} of job {job}, row {row}, waits for itself"
        if strict:
            raise TraceError(f"{problem}; correct it, or read without strict", file, row)
        sound, stage = leave_out("circles", sound, [("it waits for itself", pl.lit(pl.Series(on)))])
        stages.append(stage)
        notes.append(f"{int(on.sum())} tasks are on a circle: {problem}")
        # Without the tasks on circles others may have lost a parent: the graph is made anew.
        dag, counts = _graph(frame, sound)
    if sound.is_empty():
        reason = reasons(*(stage.dropped for stage in stages))
        raise TraceError(f"no batch task can be used: {reason}", file)
    jobs = section.select(sound.with_columns(after=parent_names(sound["task_name"], dag)))
    return jobs, stages, notes + section.notes(_facts(jobs, dag, counts))


def _graph(frame: pl.DataFrame, kept: pl.DataFrame) -> tuple[Dag, Mapping[str, int]]:
    used = np.zeros(len(frame), dtype=bool)
    used[kept["at"].to_numpy()] = True
    tasks = frame.select(job="job_name", name="task_name", used=pl.Series(used))
    edges, counts = edges_of(tasks)
    return Dag(len(kept), edges["child"], edges["parent"]), counts


def _facts(jobs: pl.DataFrame, dag: Dag, counts: Mapping[str, int]) -> pl.DataFrame:
    """Counts for the notes of ``[batch]``, in one row."""
    start, end = jobs["created"].to_numpy(), jobs["deleted"].to_numpy()
    facts = {
        "jobs": sum(jobs["job"][rows].n_unique() for rows in parts_by_job(jobs["job"])),
        "tasks": len(jobs),
        "edges": len(dag.child),
        "depth": int(dag.level.max()) + 1,
        # A child that started before its parent's end shows that names do not tell all.
        "early": int((start[dag.child] < end[dag.parent]).sum()),
        "at_once": int((start == end).sum()),
        "critical": float(dag.finish(end - start).max()),
    }
    return pl.DataFrame([{**facts, **counts}])


WORKLOADS = {
    "batch": ("batch_task",),
    "containers": ("container_meta",),
    "both": ("batch_task", "container_meta"),
}


class AlibabaV2018(TabularReader):
    """Reader of cluster-trace-v2018; without ``machine_meta`` there are no servers.

    ``workload`` says where jobs come from: ``batch``, ``containers`` or ``both``. Batch tasks whose
    status is not among ``statuses`` (or in a text, separated by ``|``) are left out and counted.
    """

    FORMAT = FORMAT

    def __init__(
        self,
        path: Path | str,
        *,
        workload: str = "batch",
        statuses: Sequence[str] | str = ("Terminated",),
        strict: bool = False,
    ):
        super().__init__(path, strict=strict, workload=workload, statuses=statuses)
        self.workload = workload

    def _read(self) -> Tables:
        servers, events, of_servers, server_digests, _ = self._servers()
        stages, digests = [*of_servers], {**server_digests}
        jobs: list[pl.DataFrame] = []
        notes: list[str] = []
        for table in WORKLOADS[self.workload]:
            table_read = self.source.read(table)
            if table == "batch_task":
                file, section = self.source.files(table)[0], self.section("batch")
                rows, left_out, about = batch_jobs(table_read, section, file, self.source.strict)
            else:
                rows, left_out, about = _containers(table_read, self.section("containers"))
            jobs.append(rows)
            stages += [*table_read.stages, *left_out]
            notes += about
            digests |= table_read.digests
        notes.append("memory is in the publisher's units: 100 is that of the largest machine")
        units = {**UNITS, **FORMAT.mapping["units"]}
        account = (tuple(stages), digests, tuple(notes), units)
        return Tables(FORMAT.name, servers, pl.concat(jobs), *account, events)


def _containers(read: Read, section: TableMapping) -> tuple[pl.DataFrame, list[Stage], list[str]]:
    """A job per container, from its first row to the row that says ``stopped``, if its last."""
    # The log of containers is of states; equal times in the order of the file.
    log = read.frame.sort("time_stamp", "part", "row")
    request = pl.struct("cpu_request", "mem_size")
    jobs = (
        log.group_by("container_id", maintain_order=True)
        .agg(
            pl.col("row", "app_du", "cpu_request", "mem_size").first(),
            created=pl.col("time_stamp").first(),
            final=pl.col("time_stamp").last(),
            status=pl.col("status").last(),
            # A container that changed its request keeps its first one.
            changed=request.n_unique() > 1,
        )
        .sort("row")
        .with_columns(latest=pl.lit(float(log["time_stamp"].to_numpy().max())))
    )
    used, stage = leave_out("containers", jobs, section.rules(jobs))
    return section.select(used), [stage], section.notes(used)
