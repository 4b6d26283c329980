"""Jobs out of a log: what was submitted, what it asked for, how long it ran, and where.

:func:`jobs_of` makes :class:`~gangwise.jobs.model.Jobs` and the nodes they ran on of the tables of
any format. Waiting is not work: a job is submitted when it was created, and its work is the time
from its start to its end, or what the log says it ran. Steps, each told in :class:`Played`:

1. jobs without a start, or that cannot be played (no time, no request, no task, a circle of
   dependencies), are set aside;
2. nodes are those of the trace; without any, those that node lists name, or one pool, as large as
   what was in use at once;
3. jobs that do not fit on all of these nodes together are set aside.

What a job's type is, by which rates are learned, is a column of the log: ``job_type="user"``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import TraceError, UnknownName
from gangwise.jobs.books import Books
from gangwise.jobs.model import Jobs, Node, Nodes, Shape
from gangwise.traces.formats.swf import write_swf
from gangwise.traces.io.account import reasons, reasons_plain
from gangwise.traces.registered import open_tables
from gangwise.traces.tables import UNITS, Tables
from gangwise.traces.work import NO_JOBS, OF_EVENTS, amount_text, counted, percent_text, work

QUANTITIES = tuple(UNITS)
TYPES: Mapping[str, Sequence[str]] = {
    "alibaba-gpu-v2020": ("group", "workload", "user"),
    "acme": ("application", "user"),
    "alibaba-gpu-v2025": ("application",),
    "csv": ("type", "user"),
    "kubernetes": ("application", "user"),
    "swf": ("application", "user"),
}
"""Columns that tell the type of a job, by format; ``user`` elsewhere, then ``request``."""
REQUEST = "request"
"""Type of jobs that ask for the same GPUs, or cores where they ask for none."""
NO_TYPE = {"row", "name", *QUANTITIES, "tasks", "created", "started", "deleted", "elapsed", "limit"}
NO_TYPE |= {"unfinished", "hosts", "after", "preceding", "priority", "part"}
ONE_A_NODE = ("slurm-sacct", "philly")
"""Formats in which a task is what a job had on one node."""
NO_NODES = "nodes unknown"
"""What is assumed of a log that lists none begins so."""


class Lost(NamedTuple):
    """Jobs that are not played for one reason.

    ``hours`` are device-hours that the log says they ran; ``row`` is the first of them in the log.
    """

    jobs: int
    hours: float
    row: int


@dataclass(frozen=True)
class Played:
    """How much of a log is played, and what had to be assumed.

    Attributes
    ----------
    trace : str
        Registered name of the format.
    read, played : int
        Jobs.
    device, unit : str
        What hours are counted of: GPUs where half of the jobs ask for any, or cores.
    hours, played_hours : float
        Device-hours that the log says jobs ran.
    lost : mapping of str to Lost
        Why jobs are not played.
    assumed : mapping of str to int
        What was assumed, and of how many jobs.
    unread : mapping of str to (int, int)
        Rows that are not of jobs alone (events, nodes) and were left out: how many, the first.
    notes : tuple of str
    digests : mapping of str to str
        SHA-256 of each file.
    """

    trace: str
    read: int
    played: int
    device: str
    unit: str
    hours: float
    played_hours: float
    lost: Mapping[str, Lost]
    assumed: Mapping[str, int]
    unread: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """What comes first wherever a result of the log is shown.

        >>> Played(
        ...     "swf", 4, 3, "cpu", "core", 10.0, 9.0, {"with no task": Lost(1, 1.0, 7)}, {}
        ... ).line
        'swf: 75 % of 4 jobs and 90 % of 10 core-hours are played; left out: 1 with no task (row 7)'
        """
        lost = "; ".join(
            f"{n:,} {why} ({'from ' * (n > 1)}row {row})" for why, (n, _, row) in self.lost.items()
        )
        assumed = "; ".join(
            what if n == self.played else f"{what}: {n:,}" for what, n in self.assumed.items()
        )
        return (
            f"{self.trace}: {percent_text(self.played, self.read)} of {self.read:,} jobs and "
            f"{percent_text(self.played_hours, self.hours)} of {amount_text(self.hours)} "
            f"{self.unit}-hours are played"
            + f"; left out: {lost}" * bool(lost)
            + f"; rows left out: {reasons(self.unread)}" * bool(self.unread)
            + f"; assumed: {assumed}" * bool(assumed)
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "trace": self.trace,
            "line": self.line,
            "jobs": {"read": self.read, "played": self.played},
            "device_hours": {"unit": self.unit, "read": self.hours, "played": self.played_hours},
            "lost": {
                why: {"jobs": n, "device_hours": hours, "first_row": row}
                for why, (n, hours, row) in self.lost.items()
            },
            "assumed": dict(self.assumed),
            "rows_left_out": reasons_plain(self.unread),
            "notes": list(self.notes),
            "files": dict(self.digests),
        }


@dataclass(frozen=True, eq=False)
class JobLog:
    """The jobs of a log and the nodes they ran on.

    Attributes
    ----------
    jobs : Jobs
    nodes : Nodes
    rows : polars.DataFrame
        A row per job, in the order of ``jobs``: ``row`` of the log, ``name``, ``type``, ``user``,
        ``tasks``, devices per task, ``submit``, ``start`` and ``end`` as it happened (seconds,
        null where the log does not say), ``run``, ``limit`` (null where none was asked for),
        ``status``, and ``hours``, those of the device that is counted.
    host_from, host : ndarray
        As it happened: job j ran on the nodes ``host[host_from[j]:host_from[j + 1]]``.
    job_type : str
        The column that tells the type of a job.
    scale : mapping of str to float
        Devices of ``nodes`` and ``jobs`` in a unit of the log: 1000 where the publisher gives
        shares of the largest machine, which thousandths would be too coarse for.
    played : Played
    """

    jobs: Jobs
    nodes: Nodes
    rows: pl.DataFrame
    host_from: Ints
    host: Ints
    job_type: str
    scale: Mapping[str, float]
    played: Played

    def total(self, device: str) -> float:
        """How many of a device all nodes have."""
        held = self.nodes.capacity[:, self.nodes.devices.index(device)]
        return float(held.sum()) / 1000 / self.scale[device]


def open_jobs(
    path: Path | str,
    *,
    trace: str = "",
    job_type: str = "",
    nodes: Nodes | None = None,
    **knobs: Any,
) -> JobLog:
    r"""Jobs of the files of a trace, of a log (``.swf``, a listing of sacct), or of ``twin:NAME``.

    Parameters
    ----------
    path, trace, **knobs
        As of :func:`~gangwise.traces.registered.open_tables`.
    job_type, nodes
        As of :func:`jobs_of`.

    Raises
    ------
    TraceError
        When the files cannot be read, or no job can be played.
    UnknownName
        For a format, argument or column that does not exist.

    Examples
    --------
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
    swf: 50 % of 2 jobs and 33.3 % of 0.2 core-hours are played; left out: 1 larger than the ...
    """
    return jobs_of(open_tables(path, trace=trace, **knobs), job_type=job_type, nodes=nodes)


def jobs_of(tables: Tables, *, job_type: str = "", nodes: Nodes | None = None) -> JobLog:
    """Jobs of the tables of a trace.

    Parameters
    ----------
    tables : Tables
    job_type : str
        The column of ``tables.jobs`` that tells the type of a job, or ``request``; by default one
        that suits the format (:data:`TYPES`).
    nodes : Nodes, optional
        Instead of those of the trace.

    Raises
    ------
    TraceError
        When no job can be played.
    UnknownName
        For a column that does not exist.
    """
    return _Making(tables, job_type).log(nodes)


class _Making:
    """Columns of all rows, in the order of the log, and why some of them are not played."""

    def __init__(self, tables: Tables, job_type: str):
        if tables.jobs.is_empty():
            raise TraceError(f"there are no jobs in the files of {tables.trace} here")
        self.tables, self.rows = tables, tables.jobs
        self.form = tables.trace.removeprefix("twin-")
        self.scale = {q: 1.0 if tables.units[q] == UNITS[q] else 1000.0 for q in QUANTITIES}
        self.per_node = int(self.form in ONE_A_NODE)
        self.assumed: dict[str, int] = {}
        self.notes: list[str] = []
        self.nodes_said = ""
        self.submit, self.start = self._column("created"), self._column("started")
        self.waits = "started" in self.rows.columns
        self.run = work(self.rows)["run"].fill_null(np.nan).to_numpy().copy()
        self.end = np.where(np.isnan(self.start), np.nan, self._column("deleted"))
        self.never = np.isnan(self.start) & np.isnan(self.run) & self.waits
        self.never &= ~np.isnan(self.submit)
        many = "tasks" in self.rows.columns
        self.tasks = self._column("tasks") if many else np.ones(len(self.rows))
        asked = {q: self._column(q) * self.scale[q] for q in QUANTITIES}
        self.demand = {q: a for q, a in asked.items() if np.nan_to_num(a).any()}
        if not self.demand:
            raise TraceError(f"no job of {tables.trace} says what it asks for")
        self.device, self.unit = counted(self.rows, tables.units)
        with np.errstate(invalid="ignore"):
            amount = self.tasks * self.demand[self.device] / self.scale[self.device]
            hours = self.run * amount / 3600
        self.hours = np.where(hours > 0, hours, 0.0)
        if "job" in self.rows.columns and "after" not in self.rows.columns:
            several = self.rows.group_by("job").len().filter(pl.col("len") > 1)
            if len(several):
                what = "of jobs that ask for several kinds of tasks, each a job of its own"
                self.assumed[what] = int(several["len"].sum())
        self.type_name, self.types = self._types(job_type)
        self.ids = _unique(self.rows, self.form)

    def _column(self, name: str) -> Floats:
        """A column of numbers, NaN where it is null or absent."""
        if name not in self.rows.columns:
            return np.full(len(self.rows), np.nan)
        return self.rows[name].cast(pl.Float64).fill_null(np.nan).to_numpy().copy()

    def _types(self, wanted: str) -> tuple[str, pl.Series]:
        text = [c for c in self.rows.columns if c not in NO_TYPE]
        if wanted and wanted not in (*text, REQUEST):
            raise UnknownName("column of job types", wanted, [*text, REQUEST])
        likely = [wanted] if wanted else [*TYPES.get(self.form, ()), "user"]
        for name in likely:
            if name in text and (wanted or self.rows[name].n_unique() > 1):
                values = self.rows[name].cast(pl.String).fill_null("")
                return name, values.replace("", "unknown")
        gpu = pl.format("{}gpu", pl.col("gpu"))
        cpu = pl.format("{}cpu", pl.col("cpu").fill_null(0).round(1))
        asked = pl.when(pl.col("gpu").fill_null(0) > 0).then(gpu).otherwise(cpu)
        of = pl.when(pl.col("models") != "").then(pl.format("-{}", "models")).otherwise(pl.lit(""))
        return REQUEST, self.rows.select(pl.concat_str(asked, of).alias("type")).to_series()

    # ------------------------------------------------------------------------------------ nodes

    def _nodes(self) -> Nodes:
        """Those of the trace, or as many devices as were in use at once."""
        servers = self.tables.servers
        begun = np.where(np.isnan(self.start), self.submit, self.start)
        held = pl.DataFrame(
            {"from": begun, "to": begun + self.run, "tasks": self.tasks, **self.demand}
        )
        sound = pl.all_horizontal(pl.col(held.columns).is_finite())
        sound &= pl.col("to") > pl.col("from")
        if not servers.is_empty():
            devices = [q for q in QUANTITIES if float(servers[q].sum() or 0) > 0]
            dropped = [q for q in self.demand if q not in devices and q != "gpu"]
            found = servers.fill_null(0.0)
            rows = found.select("name", "model", *devices).rows()
            nodes = [
                Node(str(name), dict(zip(devices, self._scaled(devices, has))), self._labels(model))
                for name, model, *has in rows
            ]
            for q in dropped:
                self.notes.append(f"no node says how much {q} it has: {q} is not counted")
                del self.demand[q]
        elif "hosts" in self.rows.columns and (self.rows["hosts"] != "").any():
            hosts = self.rows["hosts"].fill_null("").str.split("|")
            each = held.with_columns(host=hosts).filter(sound).explode("host")
            peak = _peaks(each.filter(pl.col("host") != ""), list(self.demand), "host")
            model = self._models_seen(hosts)
            nodes = [
                Node(name, dict(zip(self.demand, most)), self._labels(model.get(name, "")))
                for name, *most in peak.sort("host").rows()
            ]
            self.nodes_said = (
                f"{NO_NODES}: the {len(nodes)} that jobs ran on, each as large as what was in use "
                "at once"
            )
        else:
            self.per_node = 0
            whole = held.filter(sound).with_columns(host=pl.lit("pool"))
            whole = whole.with_columns(pl.col(q) * pl.col("tasks") for q in self.demand)
            peak = _peaks(whole, list(self.demand), "host")
            nodes = [Node(name, dict(zip(self.demand, most))) for name, *most in peak.rows()]
            if asking := int((self.rows["models"].fill_null("") != "").sum()):
                self.assumed["ask for a GPU model, and take any: no node says which it has"] = (
                    asking
                )
                self.rows = self.rows.with_columns(models=pl.lit(""))
            self.nodes_said = (
                f"{NO_NODES}: one pool as large as what was in use at once, so hardly anyone waits"
            )
        if not nodes:
            raise TraceError(f"no job of {self.tables.trace} ran: there is nothing to play")
        gpu = self.demand.get("gpu", np.zeros(1))
        parts = bool((np.nan_to_num(gpu) % 1 != 0).any())
        had = [node.devices.get("gpu", 0.5) for node in nodes]
        apart = all(gpus % 1 == 0 and gpus < 64 for gpus in had)
        made = Nodes.of(nodes, "gpu" if parts and apart else None)
        absent = [q for q in self.demand if q not in made.devices]
        if absent:  # no node has any: jobs that ask for it fit nowhere
            zero = np.zeros((len(made), len(absent)), dtype=np.int64)
            made = replace(
                made,
                devices=(*made.devices, *absent),
                capacity=np.concatenate([made.capacity, zero], axis=1),
            )
        return made

    def _scaled(self, devices: Sequence[str], held: Sequence[float]) -> list[float]:
        return [self.scale[q] * amount for q, amount in zip(devices, held)]

    def _models_seen(self, hosts: pl.Series) -> dict[str, str]:
        """The model that each node has, where all jobs that asked it for one asked for the same."""
        asked = pl.DataFrame({"host": hosts, "model": self.rows["models"].fill_null("")})
        one = asked.filter(
            (pl.col("model") != "") & ~pl.col("model").str.contains("|", literal=True)
        )
        each = one.explode("host").group_by("host").agg(pl.col("model").unique())
        single = each.filter(pl.col("model").list.len() == 1)
        return dict(single.with_columns(pl.col("model").list.first()).rows())

    def _labels(self, model: str) -> dict[str, str]:
        """A model, and every choice of models that it is in."""
        if not model:
            return {}
        choices = [m for m in self.rows["models"].unique() if m and "|" in m]
        return {"model": model, **{m: "yes" for m in choices if model in m.split("|")}}

    # ------------------------------------------------------------------------------------- jobs

    def _jobs(self, keep: Ints, devices: Sequence[str]) -> Jobs:
        """Of the rows that are kept."""
        rows = self.rows[keep]
        models = rows["models"].fill_null("").to_list()
        constraint = None
        if any(models):
            constraint = [{m: "yes"} if "|" in m else {"model": m} if m else {} for m in models]
        zero = np.zeros(len(self.rows))
        return Jobs.of(
            self.submit[keep],
            self.run[keep],
            self.tasks[keep],
            {q: self.demand.get(q, zero)[keep] for q in devices},
            id=np.array(self.ids[keep].to_list(), dtype=object),
            limit=self._column("limit")[keep],
            per_node=self.per_node,
            constraint=constraint,
            type=self.types[keep].to_numpy(),
            user=rows["user"].fill_null("").to_numpy() if "user" in rows.columns else None,
            priority=np.nan_to_num(self._column("priority")[keep]),
            after=self._after(keep),
            recorded_start=self.start[keep],
            recorded_end=np.where(self._unfinished(), np.nan, self.end)[keep],
        )

    def _unfinished(self) -> Bools:
        if "unfinished" not in self.rows.columns:
            return np.zeros(len(self.rows), dtype=bool)
        return self.rows["unfinished"].fill_null(False).to_numpy()

    def _after(self, keep: Ints) -> dict[str, list[str]] | None:
        """Ids that the rows come after, by id."""
        columns, rows = self.rows.columns, self.rows.with_columns(id=self.ids)[keep]
        if "after" in columns:
            job = "job" if "job" in columns else "name"
            names = rows.select(job, after="name", other="id")
            waits = rows.select(job, "id", "after").filter(pl.col("after") != "")
            on = [job, "after"]
        elif "preceding" in columns:
            names = rows.select(after="name", other="id")
            waits = rows.select("id", after="preceding").filter(pl.col("after") != "")
            on = ["after"]
        else:
            return None
        each = waits.with_columns(pl.col("after").str.split("|")).explode("after")
        found = each.join(names, on=on, how="left").with_columns(pl.coalesce("other", "after"))
        grouped = found.group_by("id", maintain_order=True).agg("other")
        return dict(grouped.rows())

    # -------------------------------------------------------------------------------------- log

    def log(self, given: Nodes | None) -> JobLog:
        with np.errstate(invalid="ignore"):
            early = self.start < self.submit
        if early.any():
            self.assumed["started before they were submitted, as if they had not waited"] = int(
                early.sum()
            )
            self.start = np.where(early, self.submit, self.start)
        nodes = given or self._nodes()
        rows = np.arange(len(self.rows))
        lost: dict[str, Ints] = {}
        if self.never.any():
            lost["without a start"] = rows[self.never]
        keep = rows[~self.never]
        jobs = self._jobs(keep, nodes.devices)
        beyond = jobs.tasks > _room(nodes, jobs.shapes)[jobs.shape]
        for why, places in jobs.account.set_aside.items():
            lost[why] = keep[places]
        if beyond.any():
            out = keep[jobs.row[beyond]]
            lost["larger than the cluster"] = np.sort(out)
            keep = np.setdiff1d(keep, out)
            jobs = self._jobs(keep, nodes.devices)
        place = keep[jobs.row]
        played = self._played(jobs, place, lost)
        if not len(jobs):
            raise TraceError(f"no job can be played: {played.line}")
        host_from, host = self._hosts(place, nodes)
        return JobLog(
            jobs,
            nodes,
            self._rows(jobs, place),
            host_from,
            host,
            self.type_name,
            {q: self.scale.get(q, 1.0) for q in nodes.devices},
            played,
        )

    def _played(self, jobs: Jobs, place: Ints, lost: Mapping[str, Ints]) -> Played:
        row = self.rows["row"].to_numpy()
        of_jobs, unread = self._before()
        every = dict(of_jobs)
        for why, places in lost.items():
            every[why] = Lost(places.size, float(self.hours[places].sum()), int(row[places].min()))
        assumed = {**{_said(what): n for what, n in jobs.account.noted.items()}, **self.assumed}
        if not self.waits:
            assumed["waits are not known: all the time from submission to end is work"] = len(jobs)
        elif unsaid := int(np.isnan(jobs.recorded_start).sum()):
            assumed["the log does not say how long they waited"] = unsaid
        elif len(jobs) and bool((jobs.recorded_start == jobs.submit).all()):
            assumed["waits are not known: jobs are submitted when they started"] = len(jobs)
        if self.form == "swf" and (behind := int((np.diff(jobs.after_from) > 0).sum())):
            assumed["come after another job, when the log says: think times are not played"] = (
                behind
            )
        if self.nodes_said:
            assumed[self.nodes_said] = len(jobs)
        if open_ := int(self._unfinished()[place].sum()):
            assumed["had not ended when the log did, and end with it"] = open_
        return Played(
            self.tables.trace,
            len(self.rows) + sum(n for n, _, _ in of_jobs.values()),
            len(jobs),
            self.device,
            self.unit,
            float(self.hours.sum()),
            float(self.hours[place].sum()),
            every,
            assumed,
            unread,
            (*self.tables.notes, *self.notes),
            self.tables.digests,
        )

    def _before(self) -> tuple[dict[str, Lost], dict[str, tuple[int, int]]]:
        """What the reader left out: rows that are jobs, and others."""
        of_jobs: dict[str, Lost] = {}
        others: dict[str, tuple[int, int]] = {}
        for stage in self.tables.stages:
            for why, (count, row) in stage.dropped.items():
                if why.startswith(NO_JOBS):
                    continue
                if self.form in OF_EVENTS or stage.name == "machines":
                    before = others.get(why, (0, row))
                    others[why] = (before[0] + count, min(before[1], row))
                else:
                    was = of_jobs.get(f"because {why}", Lost(0, 0.0, row))
                    of_jobs[f"because {why}"] = Lost(was.jobs + count, 0.0, min(was.row, row))
        return of_jobs, others

    def _rows(self, jobs: Jobs, place: Ints) -> pl.DataFrame:
        rows = self.rows[place]
        return pl.DataFrame(
            {
                "row": rows["row"],
                "name": self.ids[place],
                "type": self.types[place],
                "user": rows["user"] if "user" in rows.columns else [""] * len(rows),
                "tasks": jobs.tasks,
                **{q: self.demand[q][place] / self.scale[q] for q in self.demand},
                "submit": jobs.submit,
                "start": pl.Series(jobs.recorded_start).fill_nan(None),
                "end": pl.Series(jobs.recorded_end).fill_nan(None),
                "run": jobs.run,
                "limit": pl.Series(self._column("limit")[place]).fill_nan(None),
                "status": rows["status"] if "status" in rows.columns else [""] * len(rows),
                "hours": self.hours[place],
            }
        )

    def _hosts(self, place: Ints, nodes: Nodes) -> tuple[Ints, Ints]:
        """Nodes that each job ran on, as far as they are of the cluster."""
        if "hosts" not in self.rows.columns:
            return np.zeros(place.size + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
        number = pl.DataFrame({"host": nodes.names, "node": np.arange(len(nodes))})
        each = (
            pl.DataFrame({"job": np.arange(place.size), "host": self.rows["hosts"][place]})
            .with_columns(pl.col("host").str.split("|"))
            .explode("host")
            .join(number, on="host", how="inner")
            .sort("job", "node")
        )
        count = np.bincount(each["job"].to_numpy(), minlength=place.size)
        return np.concatenate([[0], np.cumsum(count)]).astype(np.int64), each["node"].to_numpy()


def _said(what: str) -> str:
    """What the account of jobs notes, in the words of the first line."""
    return {
        "without a requested limit: the run time is taken for it": "limits unknown: run times used",
        "ran longer than they requested": "ran longer than they requested, and are not cut off",
    }.get(what, what)


def _room(nodes: Nodes, shapes: Sequence[Shape]) -> Ints:
    """Tasks of each shape that all nodes together hold when nothing runs."""
    kinds: dict[Any, tuple[Node, int]] = {}
    for node, capacity in zip(nodes, nodes.capacity.tolist()):
        kind = (*capacity, *sorted(node.labels.items()))
        kinds[kind] = kinds.get(kind, (node, 0))[0], kinds.get(kind, (node, 0))[1] + 1
    some = Nodes.of((node for node, _ in kinds.values()), nodes.shared)
    number = np.array([count for _, count in kinds.values()])
    empty = Books.opened(replace(some, devices=nodes.devices))
    return np.array([empty.fits(shape) @ number for shape in shapes], dtype=np.int64)


def _unique(rows: pl.DataFrame, form: str) -> pl.Series:
    """Names that are all different: with the job, and a number where that is not enough."""
    name = pl.col("name").cast(pl.String)
    if "job" in rows.columns:
        job = pl.col("job").cast(pl.String)
        name = pl.when(job != name).then(pl.concat_str(job, pl.lit("/"), name)).otherwise(name)
    ids = rows.select(id=name.fill_null(""))
    again = pl.int_range(pl.len()).over("id")
    several = pl.when(again > 0).then(pl.format("{}#{}", "id", again + 1)).otherwise("id")
    return ids.select(several.alias("id")).to_series()


def _peaks(held: pl.DataFrame, devices: Sequence[str], by: str) -> pl.DataFrame:
    """The most of each device in use at once, by place; what ends at an instant is free then.

    >>> held = pl.DataFrame({"host": ["a", "a", "b"], "from": [0.0, 5, 0], "to": [5.0, 9, 9]})
    >>> _peaks(held.with_columns(cpu=pl.lit(2.0)), ["cpu"], "host").sort("host").rows()
    [('a', 2.0), ('b', 2.0)]
    """
    starts = held.select(by, *devices, at="from")
    ends = held.select(by, *(-pl.col(q) for q in devices), at="to")
    both = pl.concat([starts, ends]).sort(by, "at", maintain_order=True)
    summed = both.group_by(by, "at", maintain_order=True).agg(pl.col(devices).sum())
    running = summed.with_columns(pl.col(q).cum_sum().over(by) for q in devices)
    most = running.group_by(by, maintain_order=True).agg(pl.col(devices).max())
    return most.with_columns(pl.col(q).round(6) for q in devices)


# -------------------------------------------------------------------------------------------- SWF


def save_swf(log: JobLog, path: Path) -> None:
    """Write the jobs that are played in the Standard Workload Format.

    A processor is the device that hours are counted of; a part of one counts as one. Users and job
    types are numbered by name.

    Raises
    ------
    StoreError
        When it cannot be written.
    """
    rows, device = log.rows, log.played.device
    size = np.ceil(rows["tasks"].to_numpy() * rows[device].to_numpy() - 1e-9)
    parts = int((size != rows["tasks"].to_numpy() * rows[device].to_numpy()).sum())
    place = {name: n for n, name in enumerate(rows["name"].to_list(), 1)}
    after = np.array(
        [
            place[str(log.jobs.id[log.jobs.after[first]])] if last > first else -1
            for first, last in zip(log.jobs.after_from[:-1], log.jobs.after_from[1:])
        ],
        dtype=np.int64,
    )
    numbered = {
        name: rows[column].rank("dense").cast(pl.Int64)
        for name, column in (("user", "user"), ("application", "type"))
    }
    status = {"completed": 1, "failed": 0, "cancelled": 5, "COMPLETED": 1, "FAILED": 0}
    status |= {"CANCELLED": 5, "TIMEOUT": 0, "Pass": 1, "Failed": 0, "Killed": 5, "Succeeded": 1}
    table = pl.DataFrame(
        {
            "job": np.arange(1, len(rows) + 1),
            "submit": rows["submit"] - rows["submit"].min(),
            "wait": rows["start"] - rows["submit"],
            "run": rows["run"],
            "processors": size,
            "requested_processors": size,
            "requested_time": rows["limit"],
            "status": rows["status"].replace_strict(status, default=-1, return_dtype=pl.Int64),
            **numbered,
            "preceding": after,
        }
    )
    notes = [
        log.played.line,
        f"a processor is one {log.played.unit}; of {parts} jobs a part of one counts as one",
        f"user and application (job type, by {log.job_type}) are numbered by name",
        "times are rounded to whole seconds",
    ]
    header = {
        "MaxJobs": len(rows),
        "MaxRecords": len(rows),
        "MaxNodes": len(log.nodes),
        "MaxProcs": int(np.ceil(log.total(device))),
    }
    write_swf(path, table, header, notes)
