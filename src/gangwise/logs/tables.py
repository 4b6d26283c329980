"""Servers and jobs in one shape, whatever the format: what a reader gives, and how faithfully.

:class:`Tables` is what every :class:`Reader` reads. :func:`of_tables` makes the
:class:`Fidelity` report of it (what was left out, and what the trace asks of its cluster);
:func:`save_tables` keeps tables as Parquet with a manifest, :func:`load_tables` reads them.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats
from gangwise.core.errors import TraceError
from gangwise.core.files import write_whole
from gangwise.core.settings import Clock
from gangwise.logs.format import SAVED, Format, TraceFiles, all_files, files_of, recognise
from gangwise.logs.reading import NO_JOBS, Stage, reason_lines, reasons_plain
from gangwise.logs.text import scan_parquet
from gangwise.notation import duration

LOW_SHARE = 0.3  # a share of the jobs, or of their device-hours, below which there is a warning
OF_EVENTS = ("google-2011", "google-2019")  # formats whose files have events, and several to a job


def work(jobs: pl.DataFrame) -> pl.DataFrame:
    """Times for which rows of :attr:`Tables.jobs` held devices: ``begin`` and ``run``, in seconds.

    Both are null of a job that never ran, or of which it is not known.

    >>> jobs = pl.DataFrame({"created": [0.0, 0.0, 5.0], "deleted": [90.0, 50.0, 9.0]})
    >>> work(jobs).rows()
    [(0.0, 90.0), (0.0, 50.0), (5.0, 4.0)]
    >>> work(jobs.with_columns(started=pl.Series([30.0, None, 5.0]))).rows()
    [(30.0, 60.0), (None, None), (5.0, 4.0)]
    """
    blank = pl.lit(None, pl.Float64)
    waits = "started" in jobs.columns
    started = pl.col("started") if waits else blank
    elapsed = pl.col("elapsed") if "elapsed" in jobs.columns else blank
    # A clock may put a start before the creation: then the job began when it was created.
    begun = pl.max_horizontal("started", "created") if waits else pl.col("created")
    # What the log says a job ran counts before the time from its start to its end, in which it may
    # have been suspended.
    run = pl.coalesce(elapsed, pl.col("deleted") - (started if waits else pl.col("created")))
    if waits:  # a start that is not known, of a job that is known to have run
        begun = pl.when(started.is_not_null()).then(begun).otherwise("created")
    return jobs.select(
        begin=pl.when(run.is_not_null()).then(begun.cast(pl.Float64)), run=run.cast(pl.Float64)
    )


def waiting_times(jobs: pl.DataFrame) -> Floats:
    """Seconds from creation to start of the jobs of which both are known; none where no start is.

    >>> waiting_times(pl.DataFrame({"created": [0.0, 4.0], "started": [9.0, None]}))
    array([9.])
    """
    if "started" not in jobs.columns:
        return np.zeros(0)
    waited = (pl.col("started") - pl.col("created")).clip(lower_bound=0.0)
    return jobs.select(waited.cast(pl.Float64)).to_series().drop_nulls().to_numpy()


def counted_device(jobs: pl.DataFrame, units: Mapping[str, str]) -> tuple[str, str]:
    """The device that hours are counted of, and its unit: GPUs where half of the jobs ask for any.

    >>> counted_device(
    ...     pl.DataFrame({"cpu": [4.0, 1], "mem": [0.0, 0], "gpu": [1.0, 0]}), {"cpu": "cores"}
    ... )
    ('gpu', 'GPU')
    """
    # NaN is what a reader could not tell, and asks for nothing.
    amounts = jobs.select(pl.col("cpu", "mem", "gpu").cast(pl.Float64).fill_nan(0.0).fill_null(0.0))
    asking = {name: int((amounts[name] != 0).sum()) for name in amounts.columns}
    # Hours are counted of the scarcest device that the log is about.
    if 2 * asking["gpu"] >= len(jobs) or (asking["gpu"] and not asking["cpu"]):
        return "gpu", "GPU"
    if not asking["cpu"]:
        return "mem", "GiB"
    return "cpu", "core" if units["cpu"] == "cores" else units["cpu"]


def device_hours(jobs: pl.DataFrame, device: str) -> Floats:
    """Device-hours that each row ran, all its tasks together; 0 where that is not known.

    >>> jobs = pl.DataFrame({"cpu": [4.0], "tasks": [2], "created": [0.0], "deleted": [7200.0]})
    >>> device_hours(jobs, "cpu")
    array([16.])
    """
    tasks = pl.col("tasks").fill_null(1) if "tasks" in jobs.columns else pl.lit(1)
    # A row is of all tasks of a job, and `device` is of one of them.
    amount = jobs.select((pl.col(device).fill_null(0) * tasks).cast(pl.Float64)).to_series()
    # A negative length, of mixed-up times, must not be taken off from the others.
    hours = (work(jobs)["run"].fill_null(0.0).clip(lower_bound=0.0) * amount / 3600).to_numpy()
    return np.asarray(hours, dtype=np.float64)


def amount_text(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"


def percent_text(part: float, whole: float) -> str:
    """A share that is 100 % only where nothing is missing.

    >>> percent_text(9999, 10000), percent_text(99999, 100000), percent_text(2, 2)
    ('99.99 %', '99.99 %', '100 %')
    >>> percent_text(0, 0)
    '-'
    """
    if whole <= 0:
        return "-"
    share = 100 * part / whole
    if abs(share - 100) < 1e-7:  # sums in another order differ by less
        return "100 %"
    digits = 3 if share < 99.9 else 4
    shown = f"{share:.{digits}g}"
    if share < 100 and shown == "100":
        shown = "99.9" if share < 99.95 else "99.99"
    return f"{shown} %"


def played_text(
    trace: str, jobs: tuple[float, float], hours: tuple[float, float] | None, unit: str, known: bool
) -> str:
    """Text of the coverage: (played, read) of jobs, and of device-hours where there are any.

    ``known`` is whether the device-hours of all jobs are known.
    """
    text = f"{trace}: {percent_text(*jobs)} of {jobs[1]:,.0f} jobs"
    if hours is not None:
        amount = f"{amount_text(hours[1])} {unit}-hours"
        amount = amount if known else f"the {amount} that are known"
        text += f" and {percent_text(*hours)} of {amount}"
    return f"{text} are played"


@dataclass(frozen=True)
class Kept:
    """Coverage of a log by a workload of slots: how much of it is played, and on what terms."""

    trace: str  # registered name of the format
    unit: str  # what hours are counted of: GPU, core
    # Jobs of the log, those that could not be read included; and those that are played, in the mean
    # where arrivals are thinned.
    read: float
    played: float
    # Device-hours that the log says jobs ran, and those of the jobs that are played; 0 where what
    # they requested is not known.
    hours: float
    played_hours: float
    # Device-hours that the played jobs hold if each gets what it requests, in the time that it has
    # in slots; None where requests are not used.
    given: float | None
    wait: float | None  # mean wait of the jobs of the log, in seconds; None where it is not known
    waiting: float | None  # share of waiting in the time that jobs were there
    # What must be known of how jobs are taken: elastic, drawn utilities.
    terms: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # besides those that follow from the shares
    # ``played``, ``played_hours`` and ``given`` of the jobs that come in each slot of the window,
    # shape [slots, 3].
    by_slot: Floats | None = field(default=None, compare=False, repr=False)
    unread: int = 0  # jobs whose rows could not be read: their device-hours are unknown

    def in_first(self, slots: int) -> Kept:
        """The coverage of a run of ``slots``: the beginning of the window, or all of it and more.

        >>> of_slot = np.array([[60, 20.0, 9.0], [15, 10.0, 6.0]])
        >>> kept = Kept("t", "GPU", 100, 75, 40.0, 30.0, 15.0, None, None, (), (), of_slot)
        >>> kept.in_first(1).line
        't: 60 % of 100 jobs and 50 % of 40 GPU-hours are played; given ÷ requested 0.45; waits \
are not known; the first 1 of 2 slots'
        >>> kept.in_first(2) == kept, kept.in_first(5).terms
        (True, ('of 5 slots the log has 2',))
        """
        window = 0 if self.by_slot is None else len(self.by_slot)
        if self.by_slot is None or slots == window:
            # Without an account slot by slot a shorter run cannot be told apart.
            return self
        # A run may be longer than the log: what lies behind it is not of the log.
        if slots > window:
            return replace(self, terms=(f"of {slots:,} slots the log has {window:,}", *self.terms))
        played, hours, devices_given = map(float, self.by_slot[:slots].sum(axis=0))
        return replace(
            self,
            played=played,
            played_hours=hours,
            given=None if self.given is None else devices_given,
            terms=(f"the first {slots:,} of {window:,} slots", *self.terms),
        )

    @property
    def line(self) -> str:
        """The coverage in one line, shown first with every result of the log.

        >>> kept = Kept("t", "GPU", 100, 75, 40.0, 30.0, 15.0, 90.0, 0.25, ("values are drawn",))
        >>> kept.line
        't: 75 % of 100 jobs and 75 % of 40 GPU-hours are played; given ÷ requested 0.5; mean wait \
1.5 min, 25 % of the time in the system; values are drawn'
        """
        jobs, hours = (self.played, self.read), (self.played_hours, self.hours)
        all_known = not self.unread
        parts = [played_text(self.trace, jobs, hours if self.hours else None, self.unit, all_known)]
        if self.given is not None and self.played_hours > 0:
            parts.append(f"given ÷ requested {self.given / self.played_hours:.2g}")
        if self.wait is None or self.waiting is None:
            parts.append("waits are not known")
        else:
            parts.append(
                f"mean wait {duration(round(self.wait, 1))}, {100 * self.waiting:.3g} % of "
                "the time in the system"
            )
        return "; ".join([*parts, *self.terms])

    @property
    def lines(self) -> list[str]:
        jobs = self.played / self.read if self.read else 0.0
        hours = self.played_hours / self.hours if self.hours else 1.0
        little = []
        # The smaller of the two: few large jobs may hold most of the
        # hours, and the other way round.
        if min(jobs, hours) < LOW_SHARE:
            unit = "jobs" if jobs <= hours else f"{self.unit}-hours"
            little.append(
                f"warning: only {100 * min(jobs, hours):.3g} % of the {unit} of the log are "
                "played: who wins here need not win on the log"
            )
        return [self.line, *little, *(f"warning: {text}" for text in self.warnings)]

    def to_dict(self) -> dict[str, Any]:
        return {
            "trace": self.trace,
            "line": self.line,
            "warnings": [text.removeprefix("warning: ") for text in self.lines[1:]],
            "jobs": {"read": self.read, "played": self.played},
            "device_hours": {
                "unit": self.unit,
                "read": self.hours,
                "played": self.played_hours,
                "given": self.given,
            },
            "mean_wait_s": self.wait,
            "waiting_share": self.waiting,
            "terms": list(self.terms),
        }


UNITS = {"cpu": "cores", "mem": "GiB", "gpu": "GPUs"}
NO_SERVERS = "no servers: "
"""Beginning of the note that says what to do where the files list no servers."""


@dataclass(frozen=True)
class Fidelity:
    """Fidelity report of a trace: rows read and left out, and the load that it implies."""

    trace: str  # registered name of the format
    stages: tuple[Stage, ...]  # rows read, kept and dropped, file by file and step by step
    # The period that ``load`` is a mean over, in seconds since the start of the trace; both 0 where
    # there are no jobs, or their times are not known.
    first: float
    last: float
    servers: int
    jobs: int
    capacity: Mapping[str, float]  # total of each device type; empty without servers
    load: Mapping[str, float]  # see :func:`implied_load`
    notes: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of each file
    units: Mapping[str, str] = field(default_factory=lambda: dict(UNITS))
    kept: Kept | None = None  # how much of the log a workload keeps; None of a trace as it was read

    @property
    def lines(self) -> list[str]:
        """Coverage and warnings, shown first with every result; none for a trace as it was read."""
        return [] if self.kept is None else self.kept.lines

    def to_dict(self) -> dict[str, Any]:
        # asdict keeps a named tuple as one, which JSON would write as a list without names.
        plain = asdict(self)
        plain["stages"] = [
            {**stage._asdict(), "dropped": reasons_plain(stage.dropped)} for stage in self.stages
        ]
        plain["notes"] = list(self.notes)
        plain["period"] = duration(self.last - self.first)
        plain["kept"] = None if self.kept is None else self.kept.to_dict()
        return plain

    def __str__(self) -> str:
        lines = [
            *self.lines,
            f"{self.trace}: {self.servers or 'no'} servers, {self.jobs or 'no'} jobs"
            + f", {self.first:.0f} s to {self.last:.0f} s ({duration(self.last - self.first)})"
            * bool(self.jobs),
        ]
        for stage in self.stages:
            lines.append(f"  {stage.name}: {stage.read} read, {stage.kept} kept")
            lines += reason_lines(stage.dropped)
        if self.capacity:
            heads = "device type", "capacity", "unit", "implied load"
            lines.append("  {:<16s}{:>12s}  {:<8s}{:>13s}".format(*heads))
        for device, total in self.capacity.items():
            unit = self.units[device.split(":")[0]]
            load = f"{100 * self.load[device]:.3g} %" if device in self.load else "-"
            lines.append(f"  {device:<16s}{total:12.10g}  {unit:<8s}{load:>13s}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def device_totals(tables: Tables) -> dict[str, float]:
    """Capacity of each device type: ``cpu``, ``mem``, ``gpu:MODEL`` sorted, and all GPUs.

    Capacities that are not known count as none. Empty when there are no servers.
    """
    servers = tables.servers
    if servers.is_empty():
        return {}
    # The sum skips nulls: a capacity that is not known counts as none.
    totals = {name: float(servers[name].sum()) for name in ("cpu", "mem")}
    with_gpus = servers.filter(pl.col("gpu") > 0)
    # Sorted, so that reports of the same trace have the same order of devices.
    models = with_gpus.group_by("model").agg(pl.col("gpu").sum()).sort("model")
    totals.update({f"gpu:{model}": float(count) for model, count in models.rows()})
    if len(with_gpus):
        totals["gpu"] = float(with_gpus["gpu"].sum())
    return totals


def period_of(jobs: pl.DataFrame) -> tuple[float, float]:
    """First creation and last deletion of a job; both 0 where no job has both times."""
    if jobs.is_empty() or (timed := jobs.filter(_timed())).is_empty():
        return 0.0, 0.0
    return float(timed["created"].to_numpy().min()), float(timed["deleted"].to_numpy().max())


def implied_load(
    tables: Tables, first: float, last: float, totals: Mapping[str, float] | None = None
) -> dict[str, float]:
    """The load of a log: the mean over a period of devices held, as a share of those there.

    A job holds its devices while it runs (:func:`work`), not while it waits;
    one of which that is not known holds nothing, and neither does a request that is not known. A
    job that may use several GPU models is spread over them in proportion to their GPUs; what it
    requests of models that no server has is in ``gpu`` alone, the total over all models.

    The period is in seconds since the start of the trace; of a whole log, :func:`period_of`.
    ``totals`` are devices there, where the tables do not say. Loads are by device type, without
    those that the cluster has none of; empty when there are no servers or no jobs.
    """
    totals = device_totals(tables) if totals is None else totals
    if not totals or tables.jobs.is_empty():
        return {}
    held_for = work(tables.jobs)
    # What never ran held nothing; its waiting is no load.
    ran = held_for["run"].is_not_null()
    jobs, held_for = tables.jobs.filter(ran), held_for.filter(ran)
    begin = held_for["begin"].to_numpy()
    end = begin + held_for["run"].to_numpy()
    # The share of the period in which each job held its devices.
    share = np.clip(np.minimum(end, last) - np.maximum(begin, first), 0.0, None)
    share = share / (last - first if last > first else 1.0)
    if "tasks" in jobs.columns:
        share *= jobs["tasks"].fill_null(1).to_numpy()
    counted = [*UNITS, *(name for name in totals if "/" in name and name in jobs.columns)]
    requested = {name: jobs[name].fill_null(0).to_numpy() for name in counted}
    in_use = {name: float(share @ requested[name]) for name in counted}
    present = {name[4:]: total for name, total in totals.items() if name.startswith("gpu:")}
    # Each model is in the result, even one that nobody asks for.
    in_use.update({f"gpu:{model}": 0.0 for model in present})
    by_set = jobs.select(pl.col("models").fill_null("")).with_columns(held=share * requested["gpu"])
    for models, amount in by_set.group_by("models").sum().sort("models").rows():
        # A request for any of several models is spread over those that there are, by their numbers.
        usable = [m for m in (models.split("|") if models else present) if m in present]
        among = sum(present[m] for m in usable)
        for model in usable:
            in_use[f"gpu:{model}"] += amount * present[model] / among
    return {name: in_use[name] / total for name, total in totals.items() if total > 0}


def of_tables(tables: Tables) -> Fidelity:
    """The report of a trace as it was read, over all of its time.

    Servers or jobs may be absent altogether, and times or requests of jobs null: the notes say so.
    """
    (start, end), notes = period_of(tables.jobs), []
    if tables.servers.is_empty():
        notes.append("the files here do not say which servers there are: no capacity, no load")
    if tables.jobs.is_empty():
        notes.append("there are no jobs in the files here: no period, no load")
    else:
        timed = tables.jobs.filter(_timed())
        if len(timed):
            # At the end of a log jobs that still run are often written as if they ended there.
            until_end = int((timed["deleted"] == end).sum())
            notes.append(
                f"{until_end} jobs are deleted at the very end of the trace, at {end:.0f} s: "
                "their true lifetimes may be longer; the implied load counts them until then"
            )
        if "started" in tables.jobs.columns:
            if never := int(work(timed)["run"].is_null().sum()):
                notes.append(f"{never} jobs never started; they waited, and held no devices")
            waited = waiting_times(timed)
            if waited.size:
                notes.append(
                    f"mean wait {duration(round(float(waited.mean()), 1))} from creation to start, "
                    f"of {waited.size} jobs; waiting is no part of the load"
                )
        elif len(timed):
            notes.append(
                "when jobs started is not known here: all the time from creation to deletion "
                "counts as work"
            )
        if len(timed) < len(tables.jobs):
            notes.append(
                f"{len(tables.jobs) - len(timed)} jobs have no time of creation or deletion; the "
                "implied load leaves them out"
            )
        unknown = {name: tables.jobs[name].null_count() for name in UNITS}
        notes += [
            f"{count} jobs do not say how much {name} they request; the implied load counts it as "
            "none"
            for name, count in unknown.items()
            if count
        ]
    counts = (start, end, len(tables.servers), len(tables.jobs))
    load, notes = implied_load(tables, start, end), [*tables.notes, *notes]
    report = Fidelity(tables.trace, tables.stages, *counts, device_totals(tables), load)
    return replace(report, notes=tuple(notes), digests=tables.digests, units=tables.units)


def left_out(tables: Tables) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
    """Reasons for which rows were left out: rows that are jobs, and others (events, nodes).

    Both are, by reason, how many rows, and the first of them.
    """
    of_jobs: dict[str, tuple[int, int]] = {}
    of_others: dict[str, tuple[int, int]] = {}
    # In a trace of events a bad row is an event, and its job may be known from others.
    events = tables.trace.removeprefix("twin-") in OF_EVENTS
    for stage in tables.stages:
        for reason, (count, row) in stage.dropped.items():
            # Rows that are no jobs are left out of the account of jobs.
            if reason not in NO_JOBS:
                account = of_others if events or stage.name == "machines" else of_jobs
                earlier = account.get(reason, (0, row))
                account[reason] = (earlier[0] + count, min(earlier[1], row))
    return of_jobs, of_others


def kept_of(
    tables: Tables,
    played: float,
    hours: float,
    by_slot: Floats,
    *,
    given: float | None = None,
    read: int | None = None,
    terms: tuple[str, ...] = (),
) -> Kept:
    """The account of a workload that is made of the jobs of a log.

    ``read`` jobs of it were read; by default every row is one. ``hours`` are those of the jobs that
    are played; the others are as of :class:`Kept`.
    """
    jobs = tables.jobs
    device, unit = counted_device(jobs, tables.units)
    ran = float(work(jobs)["run"].fill_null(0.0).clip(lower_bound=0.0).sum())
    wait = waiting = None
    # The share of waiting is that of all seconds that jobs were there.
    if (waited := waiting_times(jobs)).size:
        total = float(waited.sum())
        # The bound keeps a log of jobs of no length from dividing by zero.
        wait, waiting = float(waited.mean()), total / max(total + ran, 1e-9)
    unread = sum(count for count, _ in left_out(tables)[0].values())
    # Jobs that could not be read belong to what there was, else the coverage would be too good.
    counts = (float((len(jobs) if read is None else read) + unread), played)
    all_hours = (float(device_hours(jobs, device).sum()), hours)
    account = (tables.trace, unit, *counts, *all_hours, given, wait, waiting, terms)
    return Kept(*account, by_slot=by_slot, unread=unread)


def _timed() -> pl.Expr:
    return pl.col("created").is_not_null() & pl.col("deleted").is_not_null()


@dataclass(frozen=True)
class Tables:
    """Servers and jobs of a trace, in one shape whatever the format.

    Attributes
    ----------
    trace : str
        Registered name of the format.
    servers : polars.DataFrame
        ``row`` (line of the file), ``name``, ``model`` (of its GPUs; empty when it has none),
        ``cpu``, ``mem`` and ``gpu``, in the units below. No rows when the files do not say.
    jobs : polars.DataFrame
        A row per request: what a job asks for equal tasks.

        - ``row``, ``name``
        - ``cpu``, ``mem``, ``gpu`` (fractions allowed): of each task; and devices of other names,
          all with a ``/`` (``google.com/tpu``), which servers have in columns of the same names
        - ``tasks``: how many; 1 when absent
        - ``models``: sorted GPU models it may use, joined by ``|``; empty for any
        - ``created``, ``deleted``: seconds since the start of the trace
        - ``job``: the job it is a part of; absent when every row is a job
        - ``after``: names of the rows of its job that must end first, joined by ``|``; absent when
          the format has no such thing
        - ``started`` (seconds, null when it never ran), ``status``, ``user``: where the format has
          them; and, also for jobs that wait in a queue (:mod:`gangwise.logs.jobs`),
          ``unfinished`` (the log ends before it does), ``elapsed`` (seconds that it ran, where that
          is not all the time from start to end), ``lost`` (seconds of that in runs before the last,
          of a job that was stopped and ran again), ``again`` (the name of the first of several such
          runs, each a row), ``limit`` (seconds it asked for, null for none),
          ``hosts`` (names of the servers it ran on, joined by ``|``), ``priority``, and what a user
          may call its type: ``account``, ``application``, ``group``, ``partition``, ``qos``, …
    stages : tuple of Stage
        The files read, and what was left out of each.
    digests : mapping of str to str
        SHA-256 of each file.
    notes : tuple of str
        What a reader of a result must know.
    units : mapping of str to str
        Of ``cpu``, ``mem`` and ``gpu``; cores, GiB and GPUs unless the publisher rescaled them.
    events : polars.DataFrame or None
        Servers that come and go: ``time`` (seconds), ``server`` (its name), ``up``; None when the
        format does not say.
    clock : Clock, optional
        Where time 0 lies; None where the format does not say.
    no_jobs : str
        Why there are no jobs, and what to do, where the files are of servers alone.
    """

    trace: str
    servers: pl.DataFrame
    jobs: pl.DataFrame
    stages: tuple[Stage, ...]
    digests: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=lambda: dict(UNITS))
    events: pl.DataFrame | None = None
    clock: Clock | None = None
    no_jobs: str = ""


def server_table(rows: Iterable[tuple[Any, ...]] = ()) -> pl.DataFrame:
    """:attr:`Tables.servers` from tuples in the order of its columns; of no servers by default."""
    columns = {"row": pl.Int64, "name": pl.String, "model": pl.String}
    columns |= dict.fromkeys(UNITS, pl.Float64)
    # Types are given, for polars could not know them of no rows.
    return pl.DataFrame(list(rows), schema=columns, orient="row")


class Reader(ABC):
    """A reader of one trace format, whose files are found and read once.

    Parameters
    ----------
    path : path
        A directory with the files of the trace, or one of them.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.
    """

    FORMAT: ClassVar[Format]

    def __init__(self, path: Path | str, *, strict: bool = False):
        self.source = TraceFiles(path, self.FORMAT, strict=strict)

    @classmethod
    def recognise(cls, path: Path | str) -> bool:
        """Whether a file, or a file of a directory, has this format, by its first bytes."""
        # What is no rows may be called anything.
        files = all_files if any(table.begins for table in cls.FORMAT.tables) else files_of
        return any(recognise(file, [cls.FORMAT]) for file in files(Path(path)))

    # Read once, so that the fidelity report and the tables are of the same rows.
    @cached_property
    def tables(self) -> Tables:
        return self._read()

    def scan(self) -> Tables:
        """Servers and jobs of the trace."""
        return self.tables

    def fidelity(self) -> Fidelity:
        """Fidelity report of all that was read."""
        return of_tables(self.tables)

    @abstractmethod
    def _read(self) -> Tables: ...


VERSION = 1


def fingerprint(*arrays: np.ndarray[Any, Any]) -> str:
    """SHA-256 of the shapes, types and values of arrays: the same on every machine.

    >>> fingerprint(np.zeros(2)) == fingerprint(np.zeros(2)) != fingerprint(np.zeros((2, 1)))
    True
    """
    digest = hashlib.sha256()
    for array in arrays:
        # Type and shape are hashed, too: the same bytes may be other numbers.
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def save_tables(tables: Tables, folder: Path) -> list[Path]:
    """Write tables to a folder, so that :func:`load_tables` gives the same ones; which files."""
    frames = {"servers": tables.servers, "jobs": tables.jobs, "events": tables.events}
    paths = []
    # Until all tables are there the manifest says nothing: after a death in between, a folder that
    # was written over would else be read as tables of two traces.
    write_whole(folder / SAVED, "{}\n")
    for name, frame in frames.items():
        if frame is not None:
            paths.append(folder / f"{name}.parquet")
            write_whole(paths[-1], frame.write_parquet)
    manifest = {
        # A reader of another version refuses it rather than guess.
        "version": VERSION,
        "trace": tables.trace,
        "units": dict(tables.units),
        "files": dict(tables.digests),
        "tables": [path.name for path in paths],
        "stages": [[*stage[:3], dict(stage.dropped)] for stage in tables.stages],
        "notes": list(tables.notes),
        # Epoch and zone alone: the clock is made anew of them.
        "clock": tables.clock and [tables.clock.epoch, tables.clock.zone],
    }
    paths.append(folder / SAVED)
    write_whole(paths[-1], json.dumps(manifest, indent=2) + "\n")
    return paths


def load_tables(folder: Path) -> Tables:
    """Read what :func:`save_tables` wrote; TraceError names the file at fault."""
    path = folder / SAVED
    # All of the manifest is read before a table is opened, so that one message tells what is wrong.
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["version"] != VERSION:
            raise ValueError(f"version {manifest['version']}, and {VERSION} is read")
        stages = tuple(
            Stage(name, rows, used, {text: (lost[0], lost[1]) for text, lost in dropped.items()})
            for name, rows, used, dropped in manifest["stages"]
        )
        files, notes, units = manifest["files"], tuple(manifest["notes"]), manifest["units"]
        events = "events.parquet" in manifest["tables"]
        clock = Clock(*manifest["clock"]) if manifest.get("clock") else None
        trace = manifest["trace"]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise TraceError(
            f"this manifest of tables cannot be read ({type(error).__name__}: {error}); write them "
            "again with gangwise trace convert",
            path,
        ) from error
    servers, jobs = _read(folder / "servers.parquet"), _read(folder / "jobs.parquet")
    states = _read(folder / "events.parquet") if events else None
    return Tables(trace, servers, jobs, stages, files, notes, units, states, clock)


def _read(path: Path) -> pl.DataFrame:
    try:
        # Bounded as any file from elsewhere: a Parquet file may claim any number of rows.
        return scan_parquet(path).collect()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise TraceError(f"this table cannot be read ({error})", path) from error
