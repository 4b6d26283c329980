"""Alibaba cluster-trace-v2018: batch jobs whose tasks form graphs, beside long-running containers.

Published by Alibaba; see https://github.com/alibaba/clusterdata, folder ``cluster-trace-v2018``.

=====================  ====================================================================
table                  meaning here
=====================  ====================================================================
``machine_meta``       an event log; a machine is what its last row with status USING says
``batch_task``         a request of ``instance_num`` equal tasks, ``plan_cpu`` / 100 cores and
                       ``plan_mem`` each, from ``start_time`` to ``end_time``
``container_meta``     a request of one task, from its first row to its end
``machine_usage``,     measured load: :meth:`AlibabaV2018.usage`
``container_usage``
``batch_instance``     recognised; not used
=====================  ====================================================================

Memory is in the publisher's units: 100 is the largest machine. A time is seconds since the trace
began; a 0 stands for one before or after the trace.

None of the tables has a header. The precedence of batch tasks is in their names: ``M1`` waits for
nothing, ``J3_1_2`` for tasks 1 and 2 of its job; letters mean nothing, and a parent may have the
higher number. ``task_...`` is independent. Names are cut at 50 characters: the last number of a cut
name may be a part of a longer one, and parents after it are lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from gangwise.core.arrays import Ints
from gangwise.core.errors import TraceError
from gangwise.traces.dag import Dag
from gangwise.traces.format import Format, TableFile
from gangwise.traces.formats.alibaba_v2017 import AlibabaV2017, unusable
from gangwise.traces.io.account import Stage, leave_out, reasons
from gangwise.traces.io.schema import Check, Column, Schema, value
from gangwise.traces.io.text import named
from gangwise.traces.source import Read
from gangwise.traces.tables import Reader, Tables, server_table

NAME = "alibaba-v2018"
PERCENTAGES = (
    "cpu_util_percent",
    "mem_util_percent",
    "mem_gps",
    "net_in",
    "net_out",
    "disk_io_percent",
)
"""Measurements from 0 to 100; what is outside is invalid (the publisher writes -1 or 101)."""

_MACHINE = Column("machine_id", number=False, pattern=r"m_\d+")
_CONTAINER = Column("container_id", number=False, pattern=r"c_\d+")
_JOB = Column("job_name", number=False, pattern=r"j_\d+")
_STATUS = Column("status", number=False, pattern="[A-Za-z_]+")
_TIME = Column("time_stamp")
_TASK = (
    Column("task_type", number=False, empty=True),
    _STATUS,
    Column("start_time", empty=True),
    Column("end_time", empty=True),
)


def _measured(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, least=-1e12, empty=True) for name in names)


MACHINE_META = Schema(
    f"{NAME} machine_meta",
    (
        _MACHINE,
        _TIME,
        Column("failure_domain_1", number=False, empty=True),
        Column("failure_domain_2", number=False, empty=True),
        Column("cpu_num", whole=True, least=1, most=1e6),
        Column("mem_size", most=100),
        _STATUS,
    ),
    header=False,
)
MACHINE_USAGE = Schema(
    f"{NAME} machine_usage",
    (
        _MACHINE,
        _TIME,
        *_measured(
            "cpu_util_percent",
            "mem_util_percent",
            "mem_gps",
            "mkpi",
            "net_in",
            "net_out",
            "disk_io_percent",
        ),
    ),
    header=False,
)
CONTAINER_META = Schema(
    f"{NAME} container_meta",
    (
        _CONTAINER,
        _MACHINE,
        _TIME,
        Column("app_du", number=False),
        _STATUS,
        Column("cpu_request"),
        Column("cpu_limit", empty=True),
        Column("mem_size", most=100),
    ),
    header=False,
)
CONTAINER_USAGE = Schema(
    f"{NAME} container_usage",
    (
        _CONTAINER,
        _MACHINE,
        _TIME,
        *_measured(
            "cpu_util_percent",
            "mem_util_percent",
            "cpi",
            "mem_gps",
            "mpki",
            "net_in",
            "net_out",
            "disk_io_percent",
        ),
    ),
    header=False,
)
BATCH_TASK = Schema(
    f"{NAME} batch_task",
    (
        Column("task_name", number=False),
        Column("instance_num", whole=True, empty=True),
        _JOB,
        *_TASK,
        Column("plan_cpu", empty=True),
        Column("plan_mem", empty=True, most=100),
    ),
    header=False,
    checks=(
        Check(
            "end_time is before start_time",
            ("start_time", "end_time"),
            lambda: (value("end_time") > 0) & (value("end_time") < value("start_time")),
        ),
    ),
)
BATCH_INSTANCE = Schema(
    f"{NAME} batch_instance",
    (
        Column("instance_name", number=False),
        Column("task_name", number=False),
        _JOB,
        *_TASK,
        Column("machine_id", number=False, pattern=r"m_\d+", empty=True),
        Column("seq_no", empty=True),
        Column("total_seq_no", empty=True),
        *_measured("cpu_avg", "cpu_max", "mem_avg", "mem_max"),
    ),
    header=False,
)
FORMAT = Format(
    NAME,
    "Alibaba cluster trace 2018",
    "https://github.com/alibaba/clusterdata (folder cluster-trace-v2018)",
    "for research and study, on the publisher's terms",
    (
        TableFile("machine_meta", MACHINE_META, "machine_meta", gives="servers"),
        TableFile(
            "machine_usage", MACHINE_USAGE, "machine_usage", gives="measured load of servers"
        ),
        TableFile("container_meta", CONTAINER_META, "container_meta", gives="containers"),
        TableFile(
            "container_usage",
            CONTAINER_USAGE,
            "container_usage",
            gives="measured load of containers",
        ),
        TableFile("batch_task", BATCH_TASK, "batch_task", needed=True, gives="batch jobs"),
        TableFile(
            "batch_instance",
            BATCH_INSTANCE,
            "batch_instance",
            gives="single instances, which nothing uses yet",
        ),
    ),
    span="8 days",
    size="48 GB packed, 280 GB unpacked",
    sha256={
        "batch_instance.tar.gz": "e73e5a9326669aa079ba20048ddd759383cabe1fe3e58620aa75bd034e2450c6",
        "batch_task.tar.gz": "7c4b32361bd1ec2083647a8f52a6854a03bc125ca5c202652316c499fbf978c6",
        "container_meta.tar.gz": "febd75e693d1f208a8941395e7faa7e466e50d21c256eff12a815b7e2fa2053f",
        "container_usage.tar.gz": (
            "b4bd3b1b82f5407c1b0dd47fe736ff5152c4b016a9c30cb26f988e2d1c5e5031"
        ),
        "machine_meta.tar.gz": "b5b1b786b22cd413a3674b8f2ebfb2f02fac991c95df537f363ef2797c8f6d55",
        "machine_usage.tar.gz": "3e6ee87fd204bb85b9e234c5c75a5096580fdabc8f085b224033080090753a7a",
    },
    checksums="README.md of the folder cluster-trace-v2018",
)


LONGEST = 50
TASK_NAME = r"^[A-Za-z]+(\d{1,18})(?:_\d{1,18})*_?$"


def edges_of(tasks: pl.DataFrame) -> tuple[pl.DataFrame, Mapping[str, int]]:
    """Edges that names tell, and how many names or parents something is the matter with.

    Parameters
    ----------
    tasks : polars.DataFrame
        ``job``, ``name``, and ``used``: whether the task is used, or can only be missed as a
        parent.

    Returns
    -------
    edges : polars.DataFrame
        ``child`` and ``parent``: used tasks, numbered from 0 in their order. A task that waits for
        a number which two tasks of its job have waits for both.
    counts : mapping of str to int
        Of used tasks. ``dag``: names that tell precedence; ``other``: names of neither kind, taken
        as independent; ``cut``: names that may be incomplete; ``doubtful``: last parents of those,
        left out; ``lost``: parents that the job does not have; ``unused``: parents that are not
        used; ``shared``: tasks whose number another task of the job has too.

    Examples
    --------
    >>> import polars as pl
    >>> names = ["J1_3_2", "M2", "M3_2", "task_Nzg3"]
    >>> edges, counts = edges_of(pl.DataFrame({"job": "j_1", "name": names, "used": True}))
    >>> edges.rows()
    [(0, 1), (0, 2), (2, 1)]
    """
    used = pl.col("used")
    tasks = tasks.with_columns(index=pl.when(used).then(used.cum_sum().cast(pl.Int64) - 1))
    found = [_edges(tasks[rows]) for rows in by_job(tasks["job"])]
    edges = pl.concat([some for some, _ in found])
    counts = {key: sum(each[key] for _, each in found) for key in found[0][1]}
    return edges, counts


PART = 1 << 16
"""Rows of whole jobs, about, that are looked at together: their tables stay in the cache."""


def by_job(jobs: pl.Series) -> list[Ints]:
    """The rows of some jobs, of some others, and so on, each ascending: no job is in two parts.

    What is looked up job by job then costs the same for each row, however many there are.

    >>> [rows.tolist() for rows in by_job(pl.Series(["j_7", "j_1", "j_7"]))]
    [[0, 1, 2]]
    """
    every = np.arange(len(jobs))
    if len(jobs) < 2 * PART:
        return [every]
    number = jobs.str.slice(2).cast(pl.Int64, strict=False).fill_null(0).to_numpy()
    step = max(PART // 256, 1)
    bounds = np.unique(np.sort(number[::step])[PART // step :: PART // step])
    part = np.searchsorted(bounds, number, side="right").astype(np.uint16)
    order = (
        every if (np.diff(part.astype(np.int32)) >= 0).all() else np.argsort(part, kind="stable")
    )
    return np.split(order, np.cumsum(np.bincount(part, minlength=len(bounds) + 1))[:-1])


def _edges(tasks: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    """Of :func:`edges_of`, those of some jobs; ``index`` numbers used tasks."""
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
    said = mine.select(
        "job",
        child="index",
        doubtful=pl.col("cut") & ~name.str.ends_with("_"),
        id=pl.when("cut").then(tokens.list.head(tokens.list.len() - 1)).otherwise(tokens),
    )
    waits = said.explode("id").filter(pl.col("id").is_not_null())
    waits = waits.select("job", "child", pl.col("id").cast(pl.Int64)).unique()
    known = dag.select("job", "id", "used", parent="index")
    edges = waits.join(known, on=["job", "id"], how="left").sort("child", "parent")
    counts = {
        "dag": len(mine),
        "other": named.filter(
            used & pl.col("id").is_null() & ~name.str.starts_with("task_")
        ).height,
        "cut": int(mine["cut"].sum()),
        "doubtful": int(said["doubtful"].sum()),
        "lost": edges["used"].null_count(),
        "unused": edges.filter(~used).height,
        "shared": int(mine.select(pl.struct("job", "id").is_duplicated().sum()).item()),
    }
    return edges.filter("used").select("child", "parent"), counts


def after(names: pl.Series, dag: Dag) -> pl.Series:
    """Names of the parents of each task, in the order of their rows, joined by ``|``."""
    edges = pl.DataFrame({"child": dag.child, "name": names.gather(dag.parent)})
    edges = edges.with_columns(pl.col("child").set_sorted())  # as those of a graph are
    joined = edges.group_by("child", maintain_order=True).agg("name")
    texts = pl.concat([pl.Series("after", [""]), joined["name"].list.join("|").rename("after")])
    place = np.zeros(len(names), np.int64)
    place[joined["child"].to_numpy()] = np.arange(1, len(joined) + 1)
    return texts.gather(place)


def batch_jobs(
    read: Read, statuses: Sequence[str], file: Path, strict: bool
) -> tuple[pl.DataFrame, list[Stage], list[str]]:
    """Jobs as :class:`~gangwise.traces.tables.Tables` has them, what was left out, and notes.

    Raises
    ------
    TraceError
        When no row can be used; with ``strict``, when a task waits for itself.
    """
    frame = read.frame.with_row_index("at")
    rules = unusable(
        frame, statuses, "instance_num", ("plan_cpu", "plan_mem"), ("start_time", "end_time")
    )
    kept, stage = leave_out("batch tasks", frame, rules)
    stages, notes = [stage], []
    kept, stage = leave_out(
        "task names", kept, [("its job has a task of this name already", pl.lit(_again(kept)))]
    )
    stages += [stage] * bool(stage.dropped)
    dag, counts = _graph(frame, kept)
    on = dag.circle >= 0
    if on.any():
        task, job, row = kept.filter(pl.Series(on)).select("task_name", "job_name", "row").row(0)
        what = f"task {task} of job {job}, row {row}, waits for itself"
        if strict:
            raise TraceError(f"{what}; correct it, or read without strict", file, row)
        kept, stage = leave_out("circles", kept, [("it waits for itself", pl.lit(pl.Series(on)))])
        stages.append(stage)
        notes.append(f"{int(on.sum())} tasks are on a circle: {what}")
        dag, counts = _graph(frame, kept)
    if kept.is_empty():
        why = reasons(*(stage.dropped for stage in stages))
        raise TraceError(f"no batch task can be used: {why}", file)
    jobs = kept.select(
        "row",
        name="task_name",
        cpu=pl.col("plan_cpu") / 100,
        mem="plan_mem",
        gpu=pl.lit(0.0),
        tasks="instance_num",
        models=pl.lit(""),
        created="start_time",
        deleted="end_time",
        job="job_name",
        after=after(kept["task_name"], dag),
        status="status",
    )
    return jobs, stages, notes + _notes(jobs, dag, counts)


def _again(tasks: pl.DataFrame) -> pl.Series:
    """Whether a row before has the same job and name."""
    again = np.zeros(len(tasks), dtype=bool)
    names = tasks.select("job_name", "task_name")
    for rows in by_job(tasks["job_name"]):
        again[rows] = ~names[rows].select(pl.struct(pl.all()).is_first_distinct()).to_series()
    return pl.Series(again)


def _graph(frame: pl.DataFrame, kept: pl.DataFrame) -> tuple[Dag, Mapping[str, int]]:
    """Precedence between the rows that are kept."""
    used = np.zeros(len(frame), dtype=bool)
    used[kept["at"].to_numpy()] = True
    tasks = frame.select(job="job_name", name="task_name", used=pl.Series(used))
    edges, counts = edges_of(tasks)
    return Dag(len(kept), edges["child"], edges["parent"]), counts


def _notes(jobs: pl.DataFrame, dag: Dag, counts: Mapping[str, int]) -> list[str]:
    """What a reader of a result must know about precedence and times."""
    start, end = jobs["created"].to_numpy(), jobs["deleted"].to_numpy()
    early = int((start[dag.child] < end[dag.parent]).sum())
    number = sum(jobs["job"][rows].n_unique() for rows in by_job(jobs["job"]))
    notes = [
        f"{number} jobs with {len(jobs)} tasks, {counts['dag']} of them with "
        f"precedence in their names; {len(dag.child)} edges, at most "
        f"{int(dag.level.max()) + 1} tasks one after the other",
        f"in {early} of {len(dag.child)} edges the child starts before the parent ends: take "
        "precedence from `after` and durations from the times, not an order",
        f"{int((start == end).sum())} tasks start and end in the same second",
        f"the longest critical path takes {float(dag.finish(end - start).max()):g} s",
    ]
    for key, text in (
        ("cut", f"names may be cut at {LONGEST} characters, so that parents may be missing"),
        ("doubtful", "last parents of cut names may be parts of numbers and were left out"),
        ("lost", "parents are not among the tasks of their job"),
        ("unused", "parents were left out as above, so that nothing waits for them"),
        ("shared", "tasks share their number with another task of their job"),
        ("other", "names tell no precedence and are not task_...: taken as independent"),
    ):
        if counts[key]:
            notes.append(f"{counts[key]} {text}")
    return notes


WORKLOADS = {
    "batch": ("batch_task",),
    "containers": ("container_meta",),
    "both": ("batch_task", "container_meta"),
}
UNITS = {"cpu": "cores", "mem": "% of max", "gpu": "GPUs"}


class Usage(NamedTuple):
    """Measured load.

    ``frame`` has ``part``, ``row``, ``time`` in seconds, ``server``, for containers ``container``,
    and the measurements of the table, null where missing or invalid. ``invalid`` maps a column to
    (values outside 0 to 100, which are null in ``frame``; the first row with one).
    """

    frame: pl.DataFrame
    invalid: Mapping[str, tuple[int, int]]
    stages: tuple[Stage, ...]


class AlibabaV2018(Reader):
    r"""Reader of cluster-trace-v2018.

    Parameters
    ----------
    path : path
        A directory with the files, or one of them. Without ``machine_meta`` there are no servers.
    workload : {"batch", "containers", "both"}
        Where jobs come from.
    statuses : sequence of str
        Batch tasks that are used; the others are left out and counted. Or one text, separated by
        ``|``.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.

    Raises
    ------
    TraceError
        For an unknown workload, or files that cannot be used, such as those of cluster-trace-v2017.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> size = Path(folder.name, "batch_task.csv").write_text(
    ...     "M1,2,j_1,1,Terminated,100,160,50,0.4\n"
    ...     "R2_1,1,j_1,1,Terminated,120,200,100,0.2\n"
    ...     "M3,1,j_1,1,Failed,120,200,100,0.2\n"
    ... )
    >>> reader = AlibabaV2018(folder.name)
    >>> reader.scan().jobs.select("job", "name", "tasks", "cpu", "created", "after").rows()
    [('j_1', 'M1', 2.0, 0.5, 100.0, ''), ('j_1', 'R2_1', 1.0, 1.0, 120.0, 'M1')]
    >>> reader.scan().stages[1].dropped
    {'status is Failed': (1, 3)}
    >>> folder.cleanup()
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
        super().__init__(path, strict=strict)
        if workload not in WORKLOADS:
            raise TraceError(f"workload is {workload!r}; it must be one of {', '.join(WORKLOADS)}")
        self.workload = workload
        self.statuses = named(statuses)

    def usage(self, table: str = "machine_usage") -> Usage:
        """Measured load of ``machine_usage`` or ``container_usage``, over time."""
        read = self.source.read(table)
        invalid, columns = {}, {}
        for name in (name for name in PERCENTAGES if name in read.frame.columns):
            outside = ~pl.col(name).is_between(0, 100)
            rows = read.frame.filter(outside)["row"]
            if len(rows):
                invalid[name] = (len(rows), int(rows[0]))
            columns[name] = pl.when(~outside).then(name)
        frame = read.frame.with_columns(**columns).rename(
            {"time_stamp": "time", "machine_id": "server", "container_id": "container"},
            strict=False,
        )
        return Usage(frame, invalid, read.stages)

    def _read(self) -> Tables:
        self._refuse_v2017()
        servers, events = server_table(), None
        jobs: list[pl.DataFrame] = []
        stages: list[Stage] = []
        notes: list[str] = []
        digests: dict[str, str] = {}
        if self.source.has("machine_meta"):
            read = self.source.read("machine_meta")
            servers, events, stage = _machines(read)
            stages += [*read.stages, stage]
            digests |= read.digests
        for table in WORKLOADS[self.workload]:
            read = self.source.read(table)
            if table == "batch_task":
                file = self.source.files(table)[0]
                made, more, said = batch_jobs(read, self.statuses, file, self.source.strict)
            else:
                made, more, said = _containers(read)
            jobs.append(made)
            stages += [*read.stages, *more]
            notes += said
            digests |= read.digests
        notes.append("memory is in the publisher's units: 100 is that of the largest machine")
        return Tables(
            FORMAT.name,
            servers,
            pl.concat(jobs),
            tuple(stages),
            digests,
            tuple(notes),
            UNITS,
            events,
        )

    def _refuse_v2017(self) -> None:
        wanted = WORKLOADS[self.workload][0]
        if not self.source.has(wanted) and AlibabaV2017.recognise(self.source.path):
            raise TraceError(
                "this is Alibaba cluster-trace-v2017 (batch_task of 8 columns, integer ids), not "
                "v2018 (9 columns, jobs j_1, j_2, ...); read it as the trace alibaba-v2017, or "
                "give the folder of v2018",
                self.source.path,
            )


def _machines(read: Read) -> tuple[pl.DataFrame, pl.DataFrame, Stage]:
    """Servers, and when they come and go, from a log of states."""
    up = pl.col("status") == "USING"
    log = read.frame.sort("time_stamp", "part", "row").with_columns(up=up)
    last = log.filter("up").group_by("machine_id", maintain_order=True).last().sort("row")
    servers = last.select(
        "row", name="machine_id", model=pl.lit(""), cpu="cpu_num", mem="mem_size", gpu=pl.lit(0.0)
    )
    before = pl.col("up").shift(1).over("machine_id", order_by=pl.int_range(pl.len()))
    known = pl.coalesce(before, pl.when(pl.col("time_stamp") > 0).then(pl.lit(False)), "up")
    events = log.filter(up != known).select(time="time_stamp", server="machine_id", up="up")
    machines = log.group_by("machine_id").agg(pl.col("row").min(), pl.col("up").any())
    _, stage = leave_out("machines", machines, [("never USING", ~pl.col("up"))])
    return servers, events, stage


def _containers(read: Read) -> tuple[pl.DataFrame, list[Stage], list[str]]:
    """A job per container, from its first row to the row that says ``stopped``, if its last."""
    log = read.frame.sort("time_stamp", "part", "row")
    end = pl.lit(float(log["time_stamp"].to_numpy().max()))
    asked = pl.struct("cpu_request", "mem_size")
    jobs = (
        log.group_by("container_id", maintain_order=True)
        .agg(
            pl.col("row", "app_du", "cpu_request", "mem_size").first(),
            created=pl.col("time_stamp").first(),
            last=pl.col("time_stamp").last(),
            status=pl.col("status").last(),
            changed=asked.n_unique() > 1,
        )
        .sort("row")
    )
    nothing = pl.col("cpu_request") + pl.col("mem_size") == 0
    used, stage = leave_out("containers", jobs, [("it requests nothing at all", nothing)])
    stopped = pl.col("status") == "stopped"
    made = used.select(
        "row",
        name="container_id",
        cpu=pl.col("cpu_request") / 100,
        mem="mem_size",
        gpu=pl.lit(0.0),
        tasks=pl.lit(1.0),
        models=pl.lit(""),
        created="created",
        deleted=pl.when(stopped).then("last").otherwise(end),
        job="container_id",
        after=pl.lit(""),
        status="status",
    )
    notes = [
        f"{int((used['created'] == 0).sum())} of {len(used)} containers are there from time 0 on; "
        f"{int((used['status'] != 'stopped').sum())} do not end as stopped and are taken to stay "
        "until the table's last row",
        f"{int(used['changed'].sum())} containers change their request; the first one is used",
    ]
    return made, [stage], notes
