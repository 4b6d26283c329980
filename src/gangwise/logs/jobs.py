"""Jobs out of a log: what was submitted, what it asked for, how long it ran, and where.

:func:`jobs_of` makes :class:`~gangwise.jobs.model.Jobs` and the nodes they ran on of the tables of
any format. Waiting is not work: a job is submitted when it was created, and its work is the time
from its start to its end, or what the log says it ran. Steps, each counted in :class:`Played`:

1. jobs that cannot be played (no time, no request, no task, a circle of dependencies) are set
   aside; those that were withdrawn before they started wait in line until then;
2. nodes are those of the trace; without any, those that node lists name, or one pool, as large as
   what was in use at once;
3. jobs that do not fit on all of these nodes together are set aside.

What a job's type is, by which rates are learned, is a column of the log: ``job_type="user"``.
"""

from __future__ import annotations

import gzip
import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import TraceError, UnknownName
from gangwise.core.files import write_whole
from gangwise.core.settings import Clock
from gangwise.jobs.books import Books
from gangwise.jobs.metrics import held_devices, longer_by
from gangwise.jobs.model import Group, Jobs, Node, Nodes, Shape
from gangwise.logs import open_tables
from gangwise.logs.formats.tabular import SWF_FIELDS
from gangwise.logs.reading import reasons, reasons_plain
from gangwise.logs.tables import (
    UNITS,
    Tables,
    amount_text,
    counted_device,
    left_out,
    played_text,
    work,
)
from gangwise.notation import duration

QUANTITIES = tuple(UNITS)
WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
TYPES: Mapping[str, Sequence[str]] = WORDS["types"]
"""Columns that tell the type of a job, by format; ``user`` elsewhere, then ``request``."""
ASSUMED: Mapping[str, str] = WORDS["assumed"]
REQUEST = "request"  # type of jobs that ask for the same GPUs, or cores where they ask for none
NO_TYPE = {*QUANTITIES, *WORDS["columns"]["no_type"]}
GROUPS = ("partition", "queue")
"""Columns that a replay does not model without a site: it notes how many groups there are."""

NAMED = (*GROUPS, "account", "qos")  # such columns of few names
ONE_A_NODE = ("slurm-sacct", "philly")  # formats in which a task is what a job had on one node
GANGS = ("kubernetes", "slurm-sacct", "philly", "alibaba-gpu-v2020")
"""Formats in which the rows of a job are groups of tasks that start together."""
OF_NODES = ("features", "on", "not", "contiguous", "spread", "nodes", "size")
"""Terms that say which nodes a component of a heterogeneous job asks for."""
WAITED = "(?i)^(cancel|withdrawn|killed|pending|waiting)"
"""Statuses of jobs that, without a start, waited until they were withdrawn or the log ended."""
SUSPENDED = 60.0
"""Seconds by which a job was longer on its nodes than it ran, if it was suspended there."""
UNLIKELY = 7.0  # an exponential variable of mean 1 is above it once in 1,100 times
LEAST_RUNS = 20  # run times that are known of others, to tell jobs from before the log by


class Lost(NamedTuple):
    """Jobs that are not played for one reason.

    ``hours`` are device-hours that the log says they ran, None where their rows could not be read;
    ``row`` is the first of them in the log.
    """

    jobs: int
    hours: float | None
    row: int


DOUBT = 1.05, 0.01
"""Use of devices, as a share of those there, and the share of work that fits on no node, above
which a log is read wrongly, or lacks nodes."""


@dataclass(frozen=True)
class Overused:
    """More devices in use at once, as recorded, than the nodes have."""

    device: str
    most: float  # share of the devices in use at the worst instant: more than 1
    at: float  # that instant, in seconds since the first submission
    seconds: float  # how long more than all were in use, and which share of the time that was
    share: float

    @property
    def text(self) -> str:
        return (
            f"the log has more {self.device} in use than the nodes have, for "
            f"{duration(round(self.seconds, 1))} ({100 * self.share:.2g} % of the time); most, "
            f"{100 * self.most:.4g} %, {duration(round(self.at, 1))} after the first submission"
        )


def overused(jobs: Jobs, nodes: Nodes) -> tuple[Overused, ...]:
    """Device types of which the recorded jobs held more than all nodes have.

    What ends at an instant is free at it. Left out are jobs without a recorded start and end, and
    those that were stopped in between: others may have had their devices meanwhile.

    >>> jobs = Jobs.of([0, 0], [10, 10], [3, 2], recorded_start=[0, 6], recorded_end=[10, 16])
    >>> overused(jobs, Nodes.pool(4))
    (Overused(device='cpu', most=1.25, at=6.0, seconds=4.0, share=0.25),)
    """
    # A comparison below with NaN would be false, and such a job count as one that never left.
    on = np.isfinite(jobs.recorded_start) & np.isfinite(jobs.recorded_end)
    span = jobs.recorded_end - jobs.recorded_start
    # A job that ran with fewer of its tasks ran as much longer; what exceeds
    # that too, it was stopped.
    fewer = longer_by(jobs, None, span)
    on &= ~(jobs.run * fewer + SUSPENDED < span)
    begin, end = jobs.recorded_start[on], jobs.recorded_end[on]
    if not begin.size:
        return ()
    # Ends come before starts of the same instant: what ends then is free.
    times = np.concatenate([end, begin])
    order = np.argsort(times, kind="stable")
    times = times[order]
    lengths = np.diff(times, append=times[-1])
    # A job that started with fewer tasks held fewer devices for longer.
    held_by, capacity = (
        (held_devices(jobs, nodes) / fewer[:, None])[on],
        nodes.capacity.sum(axis=0) / 1000,
    )
    excesses = []
    for k, device in enumerate(nodes.devices):
        in_use = np.cumsum(np.concatenate([-held_by[:, k], held_by[:, k]])[order])
        # Sums of shares differ in the last digits; a span of no length is no excess.
        over = (in_use > capacity[k] * (1 + 1e-9)) & (lengths > 0)
        if capacity[k] > 0 and over.any():
            # Argmax over excesses alone: the peak is then an instant that counts.
            worst = int(np.argmax(np.where(over, in_use, 0.0)))
            seconds = float(lengths[over].sum())
            most, at = float(in_use[worst] / capacity[k]), float(times[worst] - jobs.submit.min())
            share = seconds / float(times[-1] - times[0])
            excesses.append(Overused(device, most, at, seconds, share))
    return tuple(excesses)


@dataclass(frozen=True)
class Played:
    """Coverage of a log: how much of it is played, what is not and why, what had to be assumed."""

    trace: str  # registered name of the format
    read: int  # jobs of the log, and those that are played
    played: int
    device: str  # what hours are counted of: GPUs where half of the jobs ask for any, or cores
    unit: str
    hours: float  # device-hours that the log says jobs ran
    played_hours: float
    lost: Mapping[str, Lost]  # why jobs are not played
    assumed: Mapping[str, int]  # what was assumed, and of how many jobs
    # Rows that are not of jobs alone (events, nodes) and were left out: how many, the first.
    unread: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of each file
    overused: tuple[Overused, ...] = ()  # where the log has more devices in use than there are
    not_modelled: tuple[str, ...] = ()  # what the log has and a replay does not model
    # The one of ``assumed`` that is of nodes; empty where the log lists them, or they were given.
    nodes_assumed: str = ""
    units: tuple[str, ...] = ()  # numbers beyond the limits that ``jobs.toml`` lists as data
    unfit: float = 0.0  # share of the device-hours of jobs that do not fit on empty nodes

    @property
    def unknown(self) -> int:
        """Jobs whose rows could not be read: their device-hours are unknown."""
        # Rows that could not be read are in no sum of hours: a share of them would be made up.
        return sum(lost.jobs for lost in self.lost.values() if lost.hours is None)

    @property
    def doubts(self) -> list[str]:
        """Loads that the nodes cannot have held: a column is misread, or nodes are missing."""
        unfit = f"{100 * self.unfit:.3g} % of {self.unit}-hours ask for more than the nodes have"
        doubts = [unfit] * (self.unfit > DOUBT[1])
        return doubts + [excess.text for excess in self.overused if excess.most > DOUBT[0]]

    @property
    def warnings(self) -> list[str]:
        """A file cut short, units that look misread, and what may be the rounding of times."""
        cut = [reason.removeprefix("because ") for reason in self.lost if "CUT SHORT" in reason]
        texts = [excess.text for excess in self.overused if excess.most <= DOUBT[0]]
        return [f"warning: {text}" for text in (*cut, *self.units, *texts)]

    @property
    def line(self) -> str:
        """The coverage in one line, shown first with every result of the log.

        >>> Played(
        ...     "swf", 4, 3, "cpu", "core", 10.0, 9.0, {"with no task": Lost(1, 1.0, 7)}, {}
        ... ).line
        'swf: 75 % of 4 jobs and 90 % of 10 core-hours are played; left out: 1 with no task (row 7)'
        >>> Played(
        ...     "swf", 4, 3, "cpu", "core", 9.0, 9.0, {"because x": Lost(1, None, 7)}, {}
        ... ).line.partition(" and ")[2]
        '100 % of the 9 core-hours that are known are played; left out: 1 because x (row 7), of \
unknown hours'
        """
        lost = "; ".join(
            f"{n:,} {reason} ({'from ' * (n > 1)}row {row}){', of unknown hours' * (hours is None)}"
            for reason, (n, hours, row) in self.lost.items()
            if n
        )
        assumed = "; ".join(
            text if n == self.played else f"{text}: {n:,}" for text, n in self.assumed.items()
        )
        jobs, hours = (self.played, self.read), (self.played_hours, self.hours)
        return (
            played_text(self.trace, jobs, hours, self.unit, not self.unknown)
            + "".join(f"; misread, or nodes are missing: {doubt}" for doubt in self.doubts)
            + f"; left out: {lost}" * bool(lost)
            + f"; rows left out: {reasons(self.unread)}" * bool(self.unread)
            + f"; assumed: {assumed}" * bool(assumed)
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "trace": self.trace,
            "line": self.line,
            "jobs": {"read": self.read, "played": self.played},
            "device_hours": {
                "unit": self.unit,
                "read": self.hours,
                "played": self.played_hours,
                "unknown_of_jobs": self.unknown,
            },
            "units": list(self.units),
            "overused": [vars(excess) for excess in self.overused],
            "doubts": self.doubts,
            "not_modelled": list(self.not_modelled),
            "lost": {
                reason: {"jobs": n, "device_hours": hours, "first_row": row}
                for reason, (n, hours, row) in self.lost.items()
            },
            "assumed": dict(self.assumed),
            "rows_left_out": reasons_plain(self.unread),
            "notes": list(self.notes),
            "files": dict(self.digests),
        }


@dataclass(frozen=True, eq=False)
class JobLog:
    """The jobs of a log, as they happened, and the nodes they ran on."""

    jobs: Jobs
    nodes: Nodes
    # A row per job, in the order of ``jobs``: ``row`` of the log, ``name``, ``type``, ``user``,
    # ``tasks``, devices per task, ``submit``, ``start`` and ``end`` as it happened (seconds, null
    # where the log does not say), ``run``, ``limit`` (null where none was asked for), ``status``,
    # and ``hours``, those of the device that is counted.
    rows: pl.DataFrame
    # As it happened: job j ran on the nodes ``host[host_from[j]:host_from[j + 1]]``.
    host_from: Ints
    host: Ints
    job_type: str  # the column that tells the type of a job
    # Units of devices of ``nodes`` and ``jobs`` in one unit of the log: 1000 where the publisher
    # gives shares of the largest machine, for which thousandths would be too coarse.
    scale: Mapping[str, float]
    played: Played
    clock: Clock | None = None  # where time 0 lies; None where the log does not say
    # Device type → how much of it each job used and asked for [J], NaN where the log does not say:
    # of memory at most, of others on average. It may be of a type that no node is known to have.
    used: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)

    def total(self, device: str) -> float:
        capacity = self.nodes.capacity[:, self.nodes.devices.index(device)]
        return float(capacity.sum()) / 1000 / self.scale[device]


def open_jobs(
    path: Path | str,
    *,
    trace: str = "",
    job_type: str = "",
    nodes: Nodes | None = None,
    rows: bool = True,
    apart: bool = False,
    **knobs: Any,
) -> JobLog:
    r"""Jobs of the files of a trace, of a log (``.swf``, a listing of sacct), or of ``twin:NAME``.

    Arguments are those of :func:`~gangwise.logs.open_tables` and :func:`jobs_of`.
    Raises TraceError when the files cannot be read, or no job can be played; UnknownName for a
    format, argument or column that does not exist.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "log.swf")
    ...     size = file.write_text(
    ...         "; MaxProcs: 8\n"
    ...         "1  0  5 60 4 -1 -1  4 120 -1 1 3 1 2 -1 -1 -1 -1\n"
    ...         "2 10 -1 30 9 -1 -1 16  60 -1 1 3 1 2 -1 -1 -1 -1\n"
    ...     )
    ...     log = open_jobs(file)
    >>> log.jobs.run, log.jobs.limit, log.jobs.recorded_start, log.nodes.capacity.tolist()
    (array([60.]), array([120.]), array([5.]), [[8000]])
    >>> print(log.played.line)
    swf: 50 % of 2 jobs and 33.3 % of 0.2 core-hours are played; misread, or nodes are missing: ...
    """
    builder = _LogBuilder(open_tables(path, trace=trace, **knobs), job_type)
    return builder.log(nodes, rows, apart)


def doubts_of(tables: Tables) -> tuple[str, ...]:
    """Doubts about a log: numbers out of this world, and more work than the nodes can hold."""
    try:
        played = jobs_of(tables, rows=False).played
    except TraceError:
        return ()
    return (*played.units, *played.doubts)


def jobs_of(
    tables: Tables,
    *,
    job_type: str = "",
    nodes: Nodes | None = None,
    rows: bool = True,
    apart: bool = False,
) -> JobLog:
    """Jobs of the tables of a trace, on these ``nodes`` instead of its own where they are given.

    ``job_type`` is the column of ``tables.jobs`` that tells the type of a job, or ``request``; by
    default one that suits the format (:data:`TYPES`). Without ``rows``, the log does not keep its
    table of that name, which a replay has no use for. A job that was requeued is one job with the
    work of all its runs; with ``apart`` each run is a job that comes after the one before it, on
    its own nodes, as under the rules of the site that stopped it.

    Raises
    ------
    TraceError
        When no job can be played.
    UnknownName
        For a column that does not exist.
    """
    return _LogBuilder(tables, job_type).log(nodes, rows, apart)


class _LogBuilder:
    def __init__(self, tables: Tables, job_type: str):
        if tables.jobs.is_empty():
            raise TraceError(f"there are no jobs in the files of {tables.trace} here")
        self.rows = tables.jobs
        # A copy without rows, so that the table of jobs is freed as soon as columns are taken.
        self.tables = replace(tables, jobs=self.rows.clear())
        self.form = tables.trace.removeprefix("twin-")
        # Devices that a reader names otherwise, as Kubernetes' extended resources.
        self.quantities = (*QUANTITIES, *(c for c in self.rows.columns if "/" in c))
        self.scale = dict.fromkeys(self.quantities, 1.0)
        # The publisher's unit is a share of the largest machine, of which thousandths are counted.
        self.scale |= {q: 1000.0 for q in QUANTITIES if tables.units[q] != UNITS[q]}
        # In these formats a row is of tasks one a node, whatever they ask for.
        self.per_node = int(self.form in ONE_A_NODE)
        self.assumed: dict[str, int] = {}
        self.notes: list[str] = []
        self.submit, self.start = self._column("created"), self._column("started")
        self.waits = "started" in self.rows.columns
        self.run = work(self.rows)["run"].fill_null(np.nan).to_numpy()
        # An end without a start is that of a job that never ran.
        self.end = np.where(np.isnan(self.start), np.nan, self._column("deleted"))
        # No start and no run time: it never ran, if the format says starts at all.
        self.never = np.isnan(self.start) & np.isnan(self.run) & self.waits
        self.never &= ~np.isnan(self.submit)
        ended = self._column("deleted")
        with np.errstate(invalid="ignore"):
            # A job without a start that was withdrawn waited until then; it is played as one in
            # line.
            withdrawn = self.never & (ended >= self.submit) & self._in_line()
        # Infinite for a job that was not withdrawn: it waits as long as it must.
        self.withdrawn = np.where(withdrawn, ended, np.inf)
        self.never &= ~withdrawn
        self.run = np.where(withdrawn, 0.0, self.run)
        self.tasks = (
            self._column("tasks") if "tasks" in self.rows.columns else np.ones(len(self.rows))
        )
        # Devices that no job asks for are not modelled.
        self.requested = {q: self._column(q) * self.scale[q] for q in self.quantities}
        # NaN counts as none here, but stays in the amounts: such a job is set aside below.
        self.demand = {q: a for q, a in self.requested.items() if np.nan_to_num(a).any()}
        if not self.demand:
            raise TraceError(f"no job of {tables.trace} says what it asks for")
        self.device, self.unit = counted_device(self.rows, tables.units)
        if self.device != "gpu":
            # A device that only this log has (of Kubernetes) counts where
            # half of the jobs ask for it.
            for extended in self.quantities[len(QUANTITIES) :]:
                if 2 * (np.nan_to_num(self.requested[extended]) > 0).sum() >= len(self.rows):
                    self.device = self.unit = extended
        with np.errstate(invalid="ignore"):
            # Device-hours as the log has them, by which coverage is measured.
            amount = self.tasks * self.demand[self.device] / self.scale[self.device]
            hours = self.run * amount / 3600
        self.hours = np.where(hours > 0, hours, 0.0)
        # Seconds of runs before the last, each of which had the limit.
        self.limit, self.lost = self._column("limit"), np.nan_to_num(self._column("lost"))
        self.groups: dict[Any, list[Group]] = {}
        # Formats whose rows of a job are one gang join them; of others each row is a job.
        if "job" in self.rows.columns and self.form not in (*GANGS, "alibaba-v2018"):
            # Rows of a job that start apart are jobs of their own: the
            # report says how many there are.
            several = self.rows.group_by("job").len().filter(pl.col("len") > 1)
            self._assume("kinds", int(several["len"].sum()))
        if "late" in self.rows.columns:
            self._assume("late", int(self.rows["late"].sum()))
        terms = self.rows["terms"] if "terms" in self.rows.columns else pl.Series([""])
        self._assume("fewer", int(terms.str.contains("fewest=").sum()))
        self.type_name, self.types = self._types(job_type)
        self.ids, self.runs = _unique_ids(self.rows), 0
        self.began: dict[int, int] = {}  # row of the last run of a job, and of its first
        # The others are not looked at again, and take more room than the jobs.
        needed = [c for c in self.rows.columns if c in (*WORDS["columns"]["later"], *NAMED)]
        # Names of few kinds are stored once each; a log of millions of rows has some tens of them.
        small = (pl.col(c).cast(pl.Categorical) if c in NAMED else c for c in needed)
        self.rows = self.rows.select(*small)

    def _assume(self, what: str, jobs: int) -> None:
        if jobs:
            self.assumed[ASSUMED[what]] = int(jobs)

    def _column(self, name: str) -> Floats:
        if name not in self.rows.columns:
            return np.full(len(self.rows), np.nan)
        return self.rows[name].cast(pl.Float64).fill_null(np.nan).to_numpy()

    def _in_line(self) -> Bools:
        """Rows whose status says that they waited until ``deleted``: others may have run."""
        if "status" not in self.rows.columns or not self.never.any():
            return np.zeros(len(self.rows), dtype=bool)
        status = self.rows["status"].cast(pl.String).fill_null("")
        return status.str.contains(WAITED).to_numpy()

    def _types(self, wanted: str) -> tuple[str, pl.Series]:
        text = [c for c in self.rows.columns if c not in {*NO_TYPE, *self.quantities}]
        if wanted and wanted not in (*text, REQUEST):
            raise UnknownName("column of job types", wanted, [*text, REQUEST])
        for name in [wanted] if wanted else [*TYPES.get(self.form, ()), "user"]:
            # Of the columns of the format the first that tells jobs apart; one that the user
            # named counts in any case.
            if name in text and (wanted or self.rows[name].n_unique() > 1):
                values = self.rows[name].cast(pl.String).fill_null("")
                return name, values.replace("", "unknown")
        # Without a column that tells jobs apart, those that ask for the same are of one type.
        gpu = pl.format("{}gpu", pl.col("gpu"))
        cpu = pl.format("{}cpu", pl.col("cpu").fill_null(0).round(1))
        request = pl.when(pl.col("gpu").fill_null(0) > 0).then(gpu).otherwise(cpu)
        model = (
            pl.when(pl.col("models") != "").then(pl.format("-{}", "models")).otherwise(pl.lit(""))
        )
        return REQUEST, self.rows.select(pl.concat_str(request, model).alias("type")).to_series()

    # ------------------------------------------------------------------------------------ nodes

    def _nodes(self) -> tuple[Nodes, str]:
        """The nodes of the trace, or as large as the peak use of the log; and what is assumed."""
        assumed = ""
        if not self.tables.servers.is_empty():
            nodes = self._nodes_of_servers()
        elif "hosts" in self.rows.columns and (self.rows["hosts"] != "").any():
            nodes = self._nodes_of_hosts()
            assumed = ASSUMED["hosts"].format(nodes=len(nodes))
        else:
            nodes = self._pool()
            assumed = ASSUMED["pool"]
        if not nodes:
            raise TraceError(f"no job of {self.tables.trace} ran: there is nothing to play")
        # Parts of GPUs are parts of one GPU where nodes have whole ones, few enough to tell apart.
        parts = bool((np.nan_to_num(self.demand.get("gpu", np.zeros(1))) % 1 != 0).any())
        gpus_of_nodes = [node.devices.get("gpu", 0.5) for node in nodes]
        # More than 63 GPUs are no machine but a pool, in which parts need no card.
        apart = all(gpus % 1 == 0 and gpus < 64 for gpus in gpus_of_nodes)
        cluster = Nodes.of(nodes, "gpu" if parts and apart else None)
        absent = [q for q in self.demand if q not in cluster.devices]
        if absent:  # no node has any: jobs that ask for it fit nowhere
            # A device of which no node has any still has a column, so that
            # demand can be compared with it.
            zero = np.zeros((len(cluster), len(absent)), dtype=np.int64)
            capacity = np.concatenate([cluster.capacity, zero], axis=1)
            cluster = replace(cluster, devices=(*cluster.devices, *absent), capacity=capacity)
        return cluster, assumed

    def _nodes_of_servers(self) -> list[Node]:
        servers = self.tables.servers
        counted = [q for q in self.quantities if q in servers.columns]
        devices = [q for q in counted if float(servers[q].sum() or 0) > 0]
        # Every node has cores and memory: none listed means unknown, and
        # not none. GPUs may be none.
        for q in [q for q in self.demand if q not in devices and q in ("cpu", "mem")]:
            self.notes.append(f"no node says how much {q} it has: {q} is not counted")
            del self.demand[q]
        return [
            Node(str(name), {q: self.scale[q] * n for q, n in zip(devices, sizes)}, self._labels(m))
            for name, m, *sizes in servers.fill_null(0.0).select("name", "model", *devices).rows()
        ]

    def _nodes_of_hosts(self) -> list[Node]:
        hosts = self.rows["hosts"].fill_null("").str.split("|")
        usage = self._occupancy(hosts)
        # Which node had how many tasks is not known: the same number each.
        of_one = (pl.col("tasks") / pl.col("host").list.len()).ceil()
        usage = usage.with_columns(pl.col(q) * of_one for q in self.demand)
        usage = usage.explode("host").filter(pl.col("host") != "")
        # A node is as large as the most that jobs held on it at once.
        peak = _peak_use(usage.filter(~pl.col("asleep")), list(self.demand), "host")
        # Others had the cores of a job that was suspended: it counts by itself, as each of them.
        alone = usage.filter("asleep").select("host", *self.demand)
        peak = pl.concat([peak, alone]).group_by("host").max()
        # The model of a node is known where all jobs that asked it for one asked for the same.
        wanted = pl.DataFrame({"host": hosts, "model": self.rows["models"].fill_null("")})
        model = pl.col("model")
        # A row that takes any of several models says nothing of its own node.
        single_model = wanted.filter((model != "") & ~model.str.contains("|", literal=True))
        models_of_host = single_model.explode("host").group_by("host").agg(model.unique())
        single = models_of_host.filter(model.list.len() == 1).with_columns(model.list.first())
        models: dict[str, str] = dict(single.rows())
        return [
            Node(name, dict(zip(self.demand, most)), self._labels(models.get(name, "")))
            for name, *most in peak.sort("host").rows()
        ]

    def _pool(self) -> list[Node]:
        # A pool is one node, on which a job's tasks need not be apart.
        self.per_node = 0
        usage = self._occupancy(pl.lit("pool"))
        usage = usage.with_columns(pl.col(q) * pl.col("tasks") for q in self.demand)
        if asking := int((self.rows["models"].fill_null("") != "").sum()):
            self._assume("any_model", asking)
            # One pool has no models: the wish would make every such job unfit.
            self.rows = self.rows.with_columns(models=pl.lit(""))
        peak = _peak_use(usage, list(self.demand), "host")
        return [Node(name, dict(zip(self.demand, most))) for name, *most in peak.rows()]

    def _occupancy(self, hosts: pl.Series | pl.Expr) -> pl.DataFrame:
        # Without a start the job is taken to have begun at once: nothing better is known.
        begun = np.where(np.isnan(self.start), self.submit, self.start)
        spans = pl.DataFrame(
            {"from": begun, "to": begun + self.run, "tasks": self.tasks, **self.demand}
        )
        # A row of unknown length or amount can be in no sum.
        sound = pl.all_horizontal(pl.col(spans.columns).is_finite())
        with np.errstate(invalid="ignore"):
            asleep = self.run + SUSPENDED < self.end - self.start
        # Only in these formats does a run shorter than its span mean that others had the nodes
        # meanwhile.
        placed = spans.with_columns(host=hosts, asleep=pl.Series(asleep & bool(self.per_node)))
        return placed.filter(sound & (pl.col("to") > pl.col("from")))

    def _labels(self, model: str) -> dict[str, str]:
        if not model:
            return {}
        # A node is labelled with each set of models that it is one of, so that a
        # set is one label to test.
        return {"model": model, **{m: "yes" for m in self._choices if model in m.split("|")}}

    @cached_property
    def _choices(self) -> list[str]:
        """Several models of which a job takes any, as its row has them."""
        return [m for m in self.rows["models"].unique().sort() if m and "|" in m]

    # ------------------------------------------------------------------------------------- jobs

    def _jobs(self, keep: Ints, devices: Sequence[str]) -> Jobs:
        # All rows, in order: no copy of each column, which a log of millions would feel.
        every = keep.size == len(self.rows)

        def chosen(column: pl.Series) -> pl.Series:
            return column if every else column[keep]

        columns, constraint = self.rows.columns, None
        models = chosen(self.rows["models"].fill_null(""))
        if (models != "").any():
            constraint = [_constraint(m) for m in models]
        zero = np.zeros(len(self.rows))
        return Jobs.of(
            self.submit[keep],
            self.run[keep],
            self.tasks[keep],
            {q: self.demand.get(q, zero)[keep] for q in devices},
            id=chosen(self.ids).to_numpy(),
            # The limit is of each run; the work of all runs together is bounded
            # by that and what was lost.
            limit=(self.limit + self.lost)[keep],
            per_node=self._per_node(keep),
            constraint=constraint,
            type=_as_array(chosen(self.types)),
            user=_as_array(chosen(self.rows["user"])) if "user" in columns else None,
            priority=np.nan_to_num(self._column("priority")[keep])
            if "priority" in columns
            else 0.0,
            after=self._after(keep),
            groups={i: self.groups[i] for i in chosen(self.ids) if i in self.groups} or None
            if self.groups
            else None,
            recorded_start=self.start[keep],
            # The end of a job that still ran is that of the log, and no end of its own.
            recorded_end=np.where(self._unfinished(), np.nan, self.end)[keep],
            withdrawn=self.withdrawn[keep],
            censored=self._unfinished()[keep],
            early=self.early[keep],
            charged=_as_array(chosen(self.rows["account"])) if "account" in columns else None,
            pool=_as_array(chosen(self.rows[self._group])) if self._group else None,
            qos=_as_array(chosen(self.rows["qos"])) if "qos" in columns else None,
            terms=_as_array(chosen(self.rows["terms"])) if "terms" in columns else None,
        )

    def _per_node(self, keep: Ints) -> npt.ArrayLike:
        """Most tasks of each job on one node: of a log that says it, as the log says."""
        own = self.per_node and "per_node" in self.rows.columns
        return self._column("per_node")[keep] if own else self.per_node

    @property
    def _group(self) -> str:
        columns = [c for c in GROUPS if c in self.rows.columns]
        several = (c for c in columns if self.rows[c].drop_nulls().n_unique() > 1)
        # The first column with several names is how the site divides its jobs; one of
        # one name divides nothing.
        return next(several, columns[0] if columns else "")

    def _join_runs(self, apart: bool) -> Ints:
        """Rows of the last run of each job, which are given the work of its earlier runs as well.

        A run that has not begun is a job in line.
        """
        every = np.arange(len(self.rows))
        if "again" not in self.rows.columns:
            return every
        runs = pl.DataFrame({"row": every, "of": self.rows["again"], "start": self.start})
        # Runs of one job in the order of their starts; one that waits is a job in line.
        runs = runs.filter((pl.col("of") != "") & pl.col("start").is_not_nan()).sort("start")
        of_jobs = runs.group_by("of", maintain_order=True).agg("row")["row"].to_list()
        of_jobs = [rows for rows in of_jobs if len(rows) > 1]
        if apart and of_jobs:
            self._assume("runs", sum(map(len, of_jobs)))
            return every
        names, self.submit, self.start = self.ids.to_list(), self.submit.copy(), self.start.copy()
        waits = self.rows["preceding"].to_list() if "preceding" in self.rows.columns else []
        rows_named = self.rows["name"].to_list() if waits else []
        # The last run stands for the job: it came and started with the first, and did the work of
        # all.
        for *earlier, final in of_jobs:
            start_row = earlier[0]
            # All runs but the last were in vain: their work is done again.
            self.lost[final] += self.run[earlier].sum()
            self.run[final] += self.run[earlier].sum()
            self.hours[final] += self.hours[earlier].sum()
            self.submit[final], self.start[final] = self.submit[start_row], self.start[start_row]
            # The hours move to the last run, and are not counted twice; -1
            # marks rows that are gone.
            names[final], self.hours[earlier], every[earlier] = names[start_row], 0.0, -1
            self.began[final] = start_row
            self.runs += 1 + len(earlier)
            if waits:  # a run comes after those before it, which are no other job
                own = {rows_named[row] for row in earlier}
                # Its own earlier runs are part of it now; to wait for them
                # would be to wait for itself.
                waits[final] = "|".join(n for n in waits[final].split("|") if n not in own)
        if waits:
            self.rows = self.rows.with_columns(preceding=pl.Series(waits, dtype=pl.String))
        self.ids = pl.Series(self.ids.name, names)
        return every[every >= 0]

    def _join_groups(self, every: Ints) -> Ints:
        """Rows of jobs, of which one whose tasks are unlike is its first row with all its groups.

        It starts when all have, and runs until the last has ended.
        """
        # A column of gangs, where there is one, says more than the job's name.
        of = "gang" if "gang" in self.rows.columns else "job" if self.form in GANGS else ""
        if of not in self.rows.columns:
            return every
        # Rows without a gang or job are each a job by themselves.
        rows = pl.DataFrame({"row": every, "of": self.rows[of][every]}).drop_nulls()
        several = rows.group_by("of", maintain_order=True).agg("row")
        several = several.filter(pl.col("row").list.len() > 1)
        if several.is_empty():
            return every
        models = self.rows["models"].fill_null("").to_list()
        hosts = self.rows["hosts"].to_list() if "hosts" in self.rows.columns else []
        terms = self.rows["terms"].to_list() if "terms" in self.rows.columns else []
        open_ends, joined = self._unfinished().copy(), np.zeros(len(self.rows), dtype=bool)
        self.submit, self.start = self.submit.copy(), self.start.copy()
        self.tasks, self.limit = self.tasks.copy(), self.limit.copy()
        ids, names = self.ids.to_list(), self.rows[of].to_list()
        for _, of_job in several.rows():
            head, at = of_job[0], np.array(of_job)
            one_each = np.broadcast_to(self._per_node(at), at.shape)
            apart = self._asked_apart(at, terms)
            # The name is of the first run, as others know the job by.
            ids[head] = str(names[self.began.get(head, head)])
            self.groups[ids[head]] = [
                Group(
                    int(self.tasks[row]),
                    {q: float(n[row]) for q, n in self.demand.items() if n[row] > 0},
                    int(per_node),
                    _constraint(models[row]),
                    apart[i],
                )
                for i, (row, per_node) in enumerate(zip(of_job, one_each))
            ]
            # The gang asks, in the mean of its tasks, for what they ask for together.
            number = self.tasks[at].sum()
            # `demand` holds the arrays by which jobs are made, so that the
            # head is changed in place.
            for _q, amounts in self.demand.items():  # of one task in the mean
                amounts[head] = (self.tasks[at] * amounts[at]).sum() / number
            # It starts when the last of its groups has, and ends when the last has ended.
            ended = (self.start[at] + self.run[at]).max()
            self.tasks[head], self.submit[head] = number, self.submit[at].min()
            self.start[head], self.end[head] = self.start[at].max(), self.end[at].max()
            started = not np.isnan(self.start[head])
            self.run[head] = ended - self.start[head] if started else 0.0
            # A gang leaves the line when the last of its parts does.
            self.withdrawn[head] = np.inf if started else self.withdrawn[at].max()
            self.never[head] = not started and np.isinf(self.withdrawn[head])
            self.limit[head], self.lost[head] = self.limit[at].max(), self.lost[at].max()
            amount = number * self.demand[self.device][head] / self.scale[self.device]
            # Hours of the other rows are now in the head's.
            self.hours[head], self.hours[at[1:]] = self.run[head] * amount / 3600, 0.0
            open_ends[head], joined[at[1:]] = open_ends[at].any(), True
            if hosts:
                named = (host for row in of_job for host in (hosts[row] or "").split("|") if host)
                hosts[head] = "|".join(dict.fromkeys(named))
        self.ids, changed = pl.Series(self.ids.name, ids), [pl.Series("unfinished", open_ends)]
        changed += [pl.Series("hosts", hosts, pl.String)] * bool(hosts)
        changed += [pl.Series("terms", terms, pl.String)] * bool(terms)
        self.rows = self.rows.with_columns(changed)
        return every[~joined[every]]

    def _asked_apart(self, at: Ints, terms: list[str]) -> list[str]:
        """Terms of each component of a heterogeneous job; the first keeps the others of the job's.

        Which nodes a component asks for, and its partition, are its own.
        """
        if self.form != "slurm-sacct":
            return [""] * at.size
        pools = self.rows[self._group].to_list() if self._group else [""] * len(self.rows)
        own: list[str] = []
        # Position is the component's number: Slurm numbers them from 0 in `JobID+0`.
        for part, row in enumerate(at.tolist()):
            every = terms[row].split(",") if terms and terms[row] else []
            mine = [term for term in every if term.partition("=")[0] in OF_NODES]
            mine += [f"pool={pools[row]}"] * bool(pools[row])
            own.append(",".join([f"part={part}", *mine]))
        if terms and terms[at[0]]:
            kept = (t for t in terms[at[0]].split(",") if t.partition("=")[0] not in OF_NODES)
            # What is left is of the whole job: the first component carries
            # it, for all share a row now.
            terms[at[0]] = ",".join(kept)
        return own

    def _unfinished(self) -> Bools:
        if "unfinished" not in self.rows.columns:
            return np.zeros(len(self.rows), dtype=bool)
        return self.rows["unfinished"].fill_null(False).to_numpy()

    def _after(self, keep: Ints) -> dict[str, list[str]] | None:
        """Ids that the rows come after, by id.

        A column ``after`` has names of rows of the same job, and ``preceding`` of any.
        """
        columns = self.rows.columns
        within = "after" in columns
        if not within and ("preceding" not in columns or not (self.rows["preceding"] != "").any()):
            return None
        job = pl.col("job" if "job" in columns else "name") if within else pl.lit("")
        waited = pl.col("after" if within else "preceding")
        rows = self.rows.select(job.alias("of"), "name", waited.alias("after"), id=self.ids)
        rows = rows if keep.size == len(rows) else rows[keep]
        # Names are looked up within a job, or in the whole log; what is not there stands as it is
        # written.
        names = rows.select("of", after="name", other="id")
        waits = rows.select("of", "id", "after").filter(pl.col("after") != "")
        # A left join keeps what names no row, such as a job before the log, which is
        # then an id that none has.
        pairs = waits.with_columns(pl.col("after").str.split("|")).explode("after")
        linked = pairs.join(names, on=["of", "after"], how="left")
        linked = linked.with_columns(pl.coalesce("other", "after"))
        return dict(linked.group_by("id", maintain_order=True).agg("other").rows())

    # -------------------------------------------------------------------------------------- log

    def log(self, given: Nodes | None, rows_kept: bool, apart: bool) -> JobLog:
        with np.errstate(invalid="ignore"):
            # Clocks of two machines, or a requeue that renewed the submission: such a job started
            # when it came.
            early = self.start < self.submit
        self._assume("early", early.sum())
        self.start = np.where(early, self.submit, self.start)
        # Runs are joined after this test: it needs the starts as they were.
        self.early = self._ran_before()
        nodes, nodes_assumed = (given, "") if given else self._nodes()
        # Runs become jobs, then groups become gangs; what stays is a row of each job.
        rows, lost = self._join_groups(self._join_runs(apart)), {}
        self.read = rows.size
        if self.never.any():
            lost["without a start"] = rows[self.never[rows]]
        # Of what never started and was not withdrawn nothing is known but that it came.
        keep = rows[~self.never[rows]]
        jobs = self._jobs(keep, nodes.devices)
        # A job that asks for more than all nodes hold when they are empty would wait for ever.
        fitting = _tasks_that_fit(nodes, jobs.shapes)[jobs.shape]
        beyond = jobs.tasks > fitting
        unfit = keep[jobs.row[beyond]]
        if given and "per_node" in self.rows.columns:
            # A job that ran was not larger: whole nodes that it was given may be unlike, and the
            # site's rules say what it holds there.
            beyond &= np.isnan(jobs.recorded_start)
        for reason, places in jobs.account.set_aside.items():
            lost[reason] = keep[places]
        if beyond.any():
            out = np.sort(keep[jobs.row[beyond]])
            lost["larger than the cluster"] = out
            keep = np.setdiff1d(keep, out)
            jobs = self._jobs(keep, nodes.devices)
        place = keep[jobs.row]
        played = self._played(jobs, nodes, place, lost, nodes_assumed)
        if not nodes_assumed:  # nodes taken from what jobs held would say nothing of it
            share = float(self.hours[unfit].sum()) / max(float(self.hours.sum()), 1e-12)
            played = replace(played, unfit=share)
        if not len(jobs):
            raise TraceError(f"no job can be played: {played.line}")
        return JobLog(
            jobs,
            nodes,
            self._rows(jobs, place) if rows_kept else self.rows.clear(),
            *self._hosts(place, nodes),
            self.type_name,
            {q: self.scale.get(q, 1.0) for q in nodes.devices},
            played,
            # Time 0 of the jobs is the first submission; the clock moves with it.
            Clock.of(self.tables.clock, float(jobs.submit.min())),
            self._used(jobs, place),
        )

    def _used(self, jobs: Jobs, place: Ints) -> dict[str, tuple[Floats, Floats]]:
        used = {}
        for q, asked in self.requested.items():
            # Use of a gang cannot be told from that of its parts.
            amount = self.scale[q] * np.where(
                jobs.grouped, np.nan, self._column(f"used_{q}")[place]
            )
            if np.isfinite(amount).any():
                used[q] = amount, asked[place] * self.tasks[place]
        return used

    def _ran_before(self) -> Bools:
        """Jobs that ran already when the log begins, which are submitted when they started [J].

        Accounting of a period has jobs that ended in it: of those that started before, only the
        ones that still ran. So the log begins with the first job that left, and jobs that had
        waited until then are submitted then. A log from its first job on is told apart by how late
        the first one left: the sum, over users, of the cumulative hazard of run times until then is
        exponential with mean 1, and hardly ever above :data:`UNLIKELY`.
        """
        none = np.zeros(len(self.rows), dtype=bool)
        # The earliest of what is known: an end, a withdrawal, or the start and the run time.
        departure = np.where(np.isnan(self.end), self.start + self.run, self.end)
        departure = np.fmin(departure, self.withdrawn)
        with np.errstate(invalid="ignore"):
            # Without waits in the log there is no telling who waited.
            if not self.waits or not (self.start > self.submit).any():
                return none
            # The first job that left marks the time from which the log is complete.
            begins = float(np.nanmin(departure))
            early = self.start < begins
            # Runs that were cut by the end of the log would make runs look shorter than they are.
            ran = np.sort(self.run[(self.start >= begins) & ~self._unfinished()])
            waited = ~early & (self.submit < begins)
        if not early.any() or ran.size < LEAST_RUNS:
            return none
        # The test: how unlikely is it that jobs of so many users had not ended by then?
        place = np.flatnonzero(early)
        place = place[np.argsort(self.start[place], kind="stable")]
        if "user" in self.rows.columns:  # jobs of a user are alike: the first one counts
            user = self.rows["user"][place].cast(pl.String).fill_null("").to_numpy()
            place = place[np.unique(user, return_index=True)[1]]
        # Survival of the run times known of others gives each job its cumulative hazard.
        longer = ran.size - np.searchsorted(ran, begins - self.start[place], side="left")
        if -np.log((longer + 0.5) / (ran.size + 1)).sum() < UNLIKELY:
            return none
        self._assume("before", early.sum())
        self._assume("waited_before", waited.sum())
        # One that waited was in line when the log began, and is submitted then.
        self.submit = np.where(early, self.start, np.where(waited, begins, self.submit))
        return early

    def _played(
        self, jobs: Jobs, nodes: Nodes, place: Ints, lost: Mapping[str, Ints], nodes_assumed: str
    ) -> Played:
        row = self.rows["row"].to_numpy()
        of_jobs, unread = left_out(self.tables)
        # Rows of which nothing is known have no hours, so that the share of
        # hours is of those that are.
        every = {f"because {reason}": Lost(n, None, at) for reason, (n, at) in of_jobs.items()}
        total = self.read + sum(n for n, _ in of_jobs.values())
        for reason, places in lost.items():
            every[reason] = Lost(
                places.size, float(self.hours[places].sum()), int(row[places].min())
            )
        # What was assumed of all jobs comes first, then that of some.
        noted = {WORDS["noted"].get(note, note): n for note, n in jobs.account.noted.items()}
        self.assumed = noted | self.assumed
        # A job in line has no start either, and needs none.
        no_start = int((np.isnan(jobs.recorded_start) & np.isinf(jobs.withdrawn)).sum())
        if not self.waits:
            self._assume("no_waits", len(jobs))
        elif no_start:
            self._assume("no_start", no_start)
        # A log whose jobs all start at once knows no waiting: submission is most likely the start.
        elif bool((jobs.recorded_start == jobs.submit).all()):
            self._assume("at_start", len(jobs))
        if self.form == "swf":
            self._assume("think_time", (np.diff(jobs.after_from) > 0).sum())
        if nodes_assumed:
            self.assumed[nodes_assumed] = len(jobs)
        self._assume("withdrawn", np.isfinite(jobs.withdrawn).sum())
        self._assume("running", jobs.censored.sum())
        if requeued := int((self.lost[place] > 0).sum()):
            # Hours were lost in the share in which seconds were: all runs held the same devices.
            in_vain = self.hours[place] * self.lost[place] / np.maximum(self.run[place], 1e-9)
            lost_hours = amount_text(float(in_vain.sum()))
            runs = f"{self.runs:,} " * (len(self.began) == requeued)
            text = ASSUMED["again"].format(lost=lost_hours, unit=self.unit, runs=runs)
            self.assumed[text] = requeued
        hours = (float(self.hours.sum()), float(self.hours[place].sum()))
        counts = (self.tables.trace, total, len(jobs), self.device, self.unit, *hours)
        sources = ((*self.tables.notes, *self.notes), self.tables.digests)
        beyond = (overused(jobs, nodes), self._not_modelled(place))
        # Devices that the nodes given lack hold nothing.
        here = np.array([name == self.device for name in nodes.devices])
        capacity = float(nodes.capacity[:, here].sum()) / 1000 / self.scale[self.device]
        misread = tuple(_misread(jobs, hours[1] * 3600, capacity))
        return Played(
            *counts, every, self.assumed, unread, *sources, *beyond, nodes_assumed, misread
        )

    def _not_modelled(self, place: Ints) -> tuple[str, ...]:
        remarks = []
        terms = self.rows["terms"] if "terms" in self.rows.columns else pl.Series([""])
        if terms.str.contains("license/|features=|(?:^|,)(?:on|not)=").any():
            remarks.append(
                "licences, features and nodes by name are not modelled (--site slurm:FOLDER models "
                "them)"
            )
        for column in GROUPS:
            if column in self.rows.columns:
                named = self.rows[column][place].drop_nulls().unique()
                groups = int((named.cast(pl.String) != "").sum())
                if groups > 1:
                    ignored = f"its {groups} {column}s are not modelled: every job may run anywhere"
                    return (*remarks, f"{ignored} (--site models them)")
        return tuple(remarks)

    def _rows(self, jobs: Jobs, place: Ints) -> pl.DataFrame:
        rows, ids, types = self.rows, self.ids, self.types
        # Ascending places of all rows are the rows themselves.
        if place.size < len(rows) or bool((place[:-1] >= place[1:]).any()):  # else no copy
            rows = rows.select(c for c in ("row", "user", "status") if c in rows.columns)[place]
            ids, types = ids[place], types[place]
        blank = [""] * len(rows)
        return pl.DataFrame(
            {
                "row": rows["row"],
                "name": ids,
                "type": types,
                "user": rows["user"] if "user" in rows.columns else blank,
                "tasks": jobs.sizes,
                **{q: self.demand[q][place] / self.scale[q] for q in self.demand},
                "submit": jobs.submit,
                "start": pl.Series(jobs.recorded_start).fill_nan(None),
                "end": pl.Series(jobs.recorded_end).fill_nan(None),
                "run": jobs.run,
                "limit": pl.Series((self.limit + self.lost)[place]).fill_nan(None),
                "status": rows["status"] if "status" in rows.columns else blank,
                "hours": self.hours[place],
            }
        )

    def _hosts(self, place: Ints, nodes: Nodes) -> tuple[Ints, Ints]:
        if "hosts" not in self.rows.columns:
            return np.zeros(place.size + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
        # Nodes that a log names but the given cluster lacks drop out of the join.
        number = pl.DataFrame({"host": nodes.names, "node": np.arange(len(nodes))})
        places = (
            pl.DataFrame({"job": np.arange(place.size), "host": self.rows["hosts"][place]})
            .with_columns(pl.col("host").str.split("|"))
            .explode("host")
            .join(number, on="host", how="inner")
            .sort("job", "node")
        )
        # Offsets of a ragged array: those of job j lie from `[j]` to before `[j + 1]`.
        count = np.bincount(places["job"].to_numpy(), minlength=place.size)
        return np.concatenate([[0], np.cumsum(count)]).astype(np.int64), places["node"].to_numpy()


def _misread(jobs: Jobs, held: float, capacity: float) -> Iterator[str]:
    """Numbers out of this world by the limits of ``jobs.toml``, each as a question about units.

    ``held`` are device-seconds of all jobs, ``capacity`` the devices there are, 0 for none known.
    """
    # Without a wait or with few jobs the value is NaN, which no limit is below.
    wait = (jobs.recorded_start - jobs.submit)[np.isfinite(jobs.recorded_start)]
    ran = jobs.run[np.isinf(jobs.withdrawn)]
    span = float(np.ptp(jobs.submit)) if jobs.submit.size else 0.0
    values = {
        "gap": span / jobs.submit.size if ran.size >= FEW else math.nan,
        "wait": float(wait.mean()) if wait.size else math.nan,
        "longest": float(ran.max(initial=0.0)),
        "run": float(np.median(ran)) if ran.size >= FEW else math.nan,
        "load": math.nan,
    }
    # A day at least: the load of an hour says nothing of a month.
    if capacity > 0 and span > 86400 and ran.size >= FEW:
        values["load"] = held / (capacity * span)
    for limit in WORDS["units"]:
        value, upper, lower = values[limit["of"]], limit.get("most"), limit.get("least")
        if value > (upper or math.inf) or value < (lower or -math.inf):
            ends = value, upper or lower
            shown = [f"{x:.2g}" if limit["of"] == "load" else duration(round(x, 1)) for x in ends]
            beyond = f" (asked {'above' if upper else 'below'} {shown[1]})"
            yield limit["text"].format(value=shown[0]) + beyond


FEW = 20  # jobs: of fewer, neither gaps, a median nor a load tell of units


def _constraint(models: str) -> dict[str, str]:
    """Labels that a node of a task has: its model, or that it is one of several."""
    return {models: "yes"} if "|" in models else {"model": models} if models else {}


def _tasks_that_fit(nodes: Nodes, shapes: Sequence[Shape]) -> Ints:
    """Tasks of each shape that all nodes together hold when nothing runs."""
    example: dict[Any, Node] = {}
    number = Counter[Any]()
    # Nodes of one kind are counted, not listed: a cluster of thousands has a dozen kinds.
    for node, capacity in zip(nodes, nodes.capacity.tolist()):
        kind = (*capacity, *sorted(node.labels.items()))
        example.setdefault(kind, node)
        number[kind] += 1
    # Only kinds are opened, each once; how many there are multiplies the result.
    distinct = Nodes.of(example.values(), nodes.shared)
    empty, counts = (
        Books.opened(replace(distinct, devices=nodes.devices)),
        [number[k] for k in example],
    )

    def fitting(shape: Shape) -> int:
        if shape.groups:  # all, or none that can start
            return int(all(fitting(group) >= tasks for tasks, group in shape.groups))
        return int(empty.fits(shape) @ np.array(counts))

    return np.array([fitting(shape) for shape in shapes], dtype=np.int64)


def _unique_ids(rows: pl.DataFrame) -> pl.Series:
    name = pl.col("name").cast(pl.String)
    if "job" in rows.columns:
        job = pl.col("job").cast(pl.String)
        # ``train#2`` is a job of its own, of a name that is used again.
        alone = (job == name) | job.str.starts_with(pl.concat_str(name, pl.lit("#")))
        name = pl.when(alone).then(job).otherwise(pl.concat_str(job, pl.lit("/"), name))
    ids = rows.select(id=name.fill_null(""))
    if ids["id"].n_unique() == len(ids):
        return ids["id"]
    repeat = pl.int_range(pl.len()).over("id")
    several = pl.when(repeat > 0).then(pl.format("{}#{}", "id", repeat + 1)).otherwise("id")
    return ids.select(several.alias("id")).to_series()


def _as_array(names: pl.Series) -> npt.NDArray[Any]:
    names = names.cast(pl.String).fill_null("")
    different = names.unique()
    # An enumeration gives each text once: an array of objects that share their strings.
    codes = names.cast(pl.Enum(different)).to_physical().to_numpy()
    array: npt.NDArray[Any] = different.to_numpy()[codes]
    return array


def _peak_use(held: pl.DataFrame, devices: Sequence[str], by: str) -> pl.DataFrame:
    """The most of each device in use at once, by place; what ends at an instant is free then.

    >>> held = pl.DataFrame({"host": ["a", "a", "b"], "from": [0.0, 5, 0], "to": [5.0, 9, 9]})
    >>> _peak_use(held.with_columns(cpu=pl.lit(2.0)), ["cpu"], "host").sort("host").rows()
    [('a', 2.0), ('b', 2.0)]
    """
    # A start adds, an end takes away; what ends at an instant comes together with what starts then.
    starts = held.select(by, *devices, at="from")
    ends = held.select(by, *(-pl.col(q) for q in devices), at="to")
    changes = pl.concat([starts, ends]).sort(by, "at", maintain_order=True)
    summed = changes.group_by(by, "at", maintain_order=True).agg(pl.col(devices).sum())
    running = summed.with_columns(pl.col(q).cum_sum().over(by) for q in devices)
    most = running.group_by(by, maintain_order=True).agg(pl.col(devices).max())
    # Sums of floats leave crumbs such as 1e-16, which would make a node a bit too large.
    return most.with_columns(pl.col(q).round(6) for q in devices)


# -------------------------------------------------------------------------------------------- SWF


def save_swf(log: JobLog, path: Path) -> None:
    """Write the jobs that are played in the Standard Workload Format.

    A processor is the device that hours are counted of; a part of one counts as one. Users and job
    types are numbered by name.

    Raises StoreError when it cannot be written.
    """
    rows, jobs, device = log.rows, log.jobs, log.played.device
    # The format counts whole processors.
    exact = rows["tasks"].to_numpy() * rows[device].to_numpy()
    # 2.0000000001 GPUs are two, not three.
    size = np.ceil(exact - 1e-9)
    parts = int((size != exact).sum())
    place = {name: n for n, name in enumerate(rows["name"].to_list(), 1)}
    spans = zip(jobs.after_from[:-1], jobs.after_from[1:])
    # The format has room for one job that comes before: the first.
    preceding = [place[str(jobs.id[jobs.after[i]])] if end > i else -1 for i, end in spans]
    number = {"completed": 1, "failed": 0, "cancelled": 5, "COMPLETED": 1, "FAILED": 0}
    number |= {"CANCELLED": 5, "TIMEOUT": 0, "Pass": 1, "Failed": 0, "Killed": 5, "Succeeded": 1}
    status = rows["status"].replace_strict(number, default=-1, return_dtype=pl.Int64)
    # Cancelled after no time means cancelled before the start: who started is not written so.
    withdrawn = pl.Series(np.isfinite(jobs.withdrawn))
    started = pl.select(
        pl.when(withdrawn).then(pl.Series(jobs.withdrawn)).otherwise(rows["start"])
    ).to_series()
    table = pl.DataFrame(
        {
            "job": np.arange(1, len(rows) + 1),
            # Times count from the first submission, as the format asks.
            "submit": rows["submit"] - rows["submit"].min(),
            "wait": started - rows["submit"],
            "run": rows["run"],
            "processors": size,
            "requested_processors": size,
            "requested_time": rows["limit"],
            "status": pl.select(
                pl.when(withdrawn)
                .then(5)
                .when((status == 5) & (rows["run"] < 0.5))
                # Status 5 without a run time would read as cancelled while it
                # waited, when it did start.
                .then(-1)
                .otherwise(status)
            ).to_series(),
            "user": rows["user"].rank("dense").cast(pl.Int64),
            "application": rows["type"].rank("dense").cast(pl.Int64),
            "preceding": np.array(preceding, dtype=np.int64),
        }
    )
    header = {
        "Version": 2.2,
        "MaxJobs": len(rows),
        "MaxRecords": len(rows),
        "MaxNodes": len(log.nodes),
        "MaxProcs": int(np.ceil(log.total(device))),
    }
    notes = [
        log.played.line,
        f"a processor is one {log.played.unit}; of {parts} jobs a part of one counts as one",
        f"user and application (job type, by {log.job_type}) are numbered by name",
        "times are rounded to whole seconds",
    ]
    numbers = pl.col(table.columns).round(0).cast(pl.Int64).fill_null(-1)
    spare = (pl.lit(-1).alias(name) for name in SWF_FIELDS if name not in table.columns)
    text = (
        table.select(numbers, *spare).select(pl.concat_str(SWF_FIELDS, separator=" ")).to_series()
    )
    lines = [f"; {name}: {value}" for name, value in header.items()]
    # A note is one line of the header, so that its own line ends are taken out.
    lines += [f"; Note: {' '.join(note.split())}" for note in notes]
    data = ("\n".join([*lines, *text]) + "\n").encode()
    # No time in the head of the gzip: the same jobs give the same bytes.
    write_whole(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
