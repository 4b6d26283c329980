"""From the tables of a trace to approximation jobs on unreliable machines.

The trace gives arrivals and ends of jobs, and when machines come and go; steps are settings
(:class:`~gangwise.traces.slots.settings.JobsSettings`), and what they leave out is in the fidelity
report:

1. jobs: rows of one ``job`` are one job, there from the first creation on, for as long as it ran:
   from the first start to the last end (waiting is not work), or from creation to deletion where
   the format tells no start; jobs that never ran are left out;
2. window: from where ``skip`` of the jobs have been created, ``hours`` long, or until the last
   creation; jobs that come before it or after it are left out, and end with it at the latest;
3. slots: the window is cut into ``slots`` of them, or into slots of length ``slot``; a job arrives
   in the slot that it is created in, and its deadline is the first slot that begins after its end,
   one slot later at least;
4. machines: as many as the trace has, or ``machines``; one that is down in any part of a slot is
   away in it;
5. drawn: budgets q (d - a) M / 1000 and values as in §VI of the OPM paper, rates of machines.

Budgets are of the lifetime that is left in the window, for jobs that outlast it. What jobs request
is not used: a task of this family takes a machine.

:class:`GoogleScenario` is that of §VI of the OPM paper, of the job events of Google ClusterData
2011 alone. Two things that the paper does not say are decided here. *Time*: the window of 10 hours
is the 50,000 units of time that the rates are generated for, so that a slot is 0.72 s; a job
arrives in the slot that it is submitted in, and its deadline is the first slot that begins after
its end, one slot later at least. *Budgets* are of the lifetime that is left in the window, for jobs
that outlast it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from pydantic import Field

from gangwise.approximation_jobs.environment import ApproximationInstance
from gangwise.approximation_jobs.execution import Outage, rate_generator
from gangwise.approximation_jobs.offline import COMPARATORS
from gangwise.approximation_jobs.problem import ApproximationProblem, Job
from gangwise.approximation_jobs.rates import GammaPeriods, MeasuredRates
from gangwise.approximation_jobs.workloads import (
    JobStream,
    ReplayedJobs,
    load_of,
    paper_jobs,
    price_machines,
)
from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import ScenarioError, TraceError, UnknownName
from gangwise.core.limits import Count, SlotCount
from gangwise.core.settings import checked
from gangwise.core.simulation import Streams
from gangwise.traces.formats.google_2011 import Google2011, GoogleJobEvents
from gangwise.traces.formats.measured_speeds import MiniBatchTime
from gangwise.traces.io.account import Stage, leave_out, reasons
from gangwise.traces.slots.demand import unread_of
from gangwise.traces.slots.settings import JobsSettings, MachineSettings, seconds
from gangwise.traces.tables import Fidelity, Tables, Trace, fingerprint, of_tables
from gangwise.traces.work import Kept, counted, device_hours, kept_of, period, work

MOST_SLOTS = 1_000_000
TERMS = (
    "what jobs request is not used: a task takes a machine (gangwise replay places jobs whole)",
    "budgets, values and the rates of machines are drawn",
)


class Window(NamedTuple):
    """Which part of a trace, and how it is cut.

    ``skip`` of the jobs come before it; it lasts ``hours``, or until the last creation, and has
    ``slots`` slots, or slots of ``slot`` seconds.
    """

    skip: float
    hours: float | None
    slots: int
    slot: float | None


@dataclass(frozen=True, eq=False)
class Found:
    """Jobs of a window.

    Attributes
    ----------
    names : tuple of str or int
        By arrival; numbers where the trace's names are not unique.
    arrival, end : ndarray of shape [n]
        Seconds since the window began, within it.
    start, length : float
        Of the window, in seconds.
    slots : int
    fidelity : Fidelity
    """

    names: tuple[str | int, ...]
    arrival: Floats
    end: Floats
    start: float
    length: float
    slots: int
    fidelity: Fidelity


def lifetimes_of(tables: Tables, window: Window) -> Found:
    """Jobs of a window.

    Raises
    ------
    TraceError
        When there are none, or the window would have too many slots.
    """
    base = of_tables(tables)
    if tables.jobs.is_empty():
        raise TraceError("there are no jobs in the files here")
    rows = tables.jobs
    named = "job" if "job" in rows.columns else "name"
    whole = pl.col("job") if named == "job" else pl.int_range(pl.len())
    waits = "started" in rows.columns
    device, _ = counted(rows, tables.units)
    ran = work(rows).with_columns(hours=device_hours(rows, device))
    begun, ended = pl.col("begin"), pl.col("begin") + pl.col("run")
    jobs = (
        rows.with_columns(ran)
        .group_by(whole.alias("id"), maintain_order=True)
        .agg(
            pl.col("row", "created").min(),
            pl.col(named).first().alias("as"),
            pl.col("hours").sum(),
            run=ended.max() - begun.min(),
            never=pl.col("run").is_null().all() & waits,
            lacks=pl.col("created").is_null().any() | (pl.col("run").is_null().any() & (not waits)),
        )
        .with_columns(deleted=pl.col("created") + pl.col("run"))
        .sort("created", "row", maintain_order=True)
    )
    timed, unknown = leave_out(
        "jobs",
        jobs,
        [
            ("one of its times is not known", pl.col("lacks")),
            ("it never started", pl.col("never")),
            ("it is deleted before it is created", pl.col("deleted") < pl.col("created")),
        ],
    )
    if timed.is_empty():
        raise TraceError(
            "no job of the trace can be played: none has both of its times "
            f"({reasons(unknown.dropped)})"
        )
    created = timed["created"].to_numpy()
    start = float(created[int(window.skip * len(created))])
    last = float(created[-1])
    length = max(last - start, 1.0) if window.hours is None else window.hours * 3600.0
    slots = window.slots
    if window.slot is not None:
        wanted = np.floor(length / window.slot) + (window.hours is None)
        slots = int(min(max(wanted, 1), MOST_SLOTS + 1))
        length = slots * window.slot
    if slots > MOST_SLOTS:
        raise TraceError(
            f"the window of {period(length)} would have more than {MOST_SLOTS} slots: choose "
            "fewer slots, a longer slot, or a shorter window (hours)"
        )
    kept, outside = leave_out(
        "window",
        timed,
        [
            (f"created before the window, {start:.0f} s", pl.col("created") < start),
            (
                f"created after the window, {start + length:.0f} s",
                pl.col("created") > start + length,
            ),
        ],
    )
    end = np.minimum(kept["deleted"].to_numpy(), start + length) - start
    outlast = int((kept["deleted"] > start + length).sum())
    names: tuple[str | int, ...] = tuple(kept["as"].to_list())
    notes = [
        f"the window of {period(length)} starts at {start:.0f} s ({period(start)}), where "
        f"{100 * window.skip:g} % of the jobs have been created (skip)",
        f"{outlast} jobs are still there at the end of the window; they end with it",
        "what jobs request is not used; budgets, values and the rates of machines are drawn",
    ]
    if named == "job" and len(rows) > len(jobs):
        order = ", whatever waits for what" if "after" in rows.columns else ""
        notes.append(
            f"{len(rows)} rows are of {len(jobs)} jobs, each there from its first "
            f"creation on, for as long as it was from its first start to its last end{order}"
        )
    if len(set(names)) < len(names):
        names = tuple(range(len(names)))
        notes.append("names of jobs are not unique; jobs are numbered by arrival")
    arrival, hours = kept["created"].to_numpy() - start, kept["hours"].to_numpy()
    stages = [*base.stages, *([unknown] if unknown.dropped else []), outside]
    fidelity = replace(
        base,
        stages=tuple(stages),
        first=start,
        last=start + length,
        jobs=len(kept),
        notes=(*base.notes, *notes),
        capacity={},
        load={},
        kept=kept_of(
            tables.trace,
            rows,
            tables.units,
            unread_of(tables),
            len(jobs),
            played=len(kept),
            played_hours=float(hours.sum()),
            given=None,
            terms=TERMS,
            by_slot=_by_slot(slot_of(arrival, length, slots), hours, slots),
        ),
    )
    return Found(names, arrival, end, start, length, slots, fidelity)


def slot_of(arrival: Floats, length: float, slots: int) -> Ints:
    """The slot in which each job comes, of a window that is cut into so many."""
    return np.minimum((arrival / (length / slots)).astype(np.int64), slots - 1)


def _by_slot(slot: Ints, hours: Floats, slots: int) -> Floats:
    """:attr:`Kept.by_slot`: requests are not used, so none are given."""
    played = np.bincount(slot, minlength=slots)
    return np.column_stack([played, np.bincount(slot, hours, slots), np.zeros(slots)])


def outages_of(
    tables: Tables, machines: int, window: Found
) -> tuple[tuple[Outage, ...], list[str]]:
    """Slots in which machines are away, and notes on it.

    A server of which the first event is that it comes was away before; of which it is that it
    goes, was there. One that is down in any part of a slot is away in the whole of it.
    """
    number = len(tables.servers)
    notes = [f"{machines} machines, and not the {number} servers of the trace (machines)"] * bool(
        number and machines != number
    )
    if tables.events is None:
        return (), [*notes, "the trace does not tell when machines come and go: they stay"]
    place = {name: m for m, name in enumerate(sorted(tables.servers["name"].to_list())[:machines])}
    slot, outages = window.length / window.slots, []
    for (name,), log in tables.events.sort("time", maintain_order=True).group_by(
        "server", maintain_order=True
    ):
        if name not in place:
            continue
        down: float | None = -np.inf
        for n, (time, up) in enumerate(log.select("time", "up").rows()):
            if up and down is not None:
                outages.append((place[str(name)], down, time))
                down = None
            elif not up and (down is None or n == 0):
                down = time
        if down is not None:
            outages.append((place[str(name)], down, np.inf))
    found = []
    for machine, down, up in outages:
        first = 0 if down <= window.start else int((down - window.start) / slot)
        back = window.slots
        if up < window.start + window.length:
            back = int(np.ceil((up - window.start) / slot - 1e-9))
        if first < back and first < window.slots:
            found.append(Outage(machine, first, back))
    away = sum(o.back - o.first for o in found)
    notes.append(
        f"{len({o.machine for o in found})} machines are away at times, {len(found)} times in all, "
        f"{100 * away / (machines * window.slots):.3g} % of all machine slots"
    )
    return tuple(found), notes


@dataclass(frozen=True, eq=False)
class ReplayedLifetimes:
    """Jobs with the arrivals and deadlines of a trace; budgets and values are drawn.

    Two numbers per job of the window are drawn, and one more that decides whether it is kept, so
    that thinning changes nothing about the jobs that remain.

    Parameters
    ----------
    names : sequence of str or int
        Of the jobs, by arrival.
    arrival, end : ndarray of shape [n]
        Seconds since the window began.
    length : float
        Of the window, in seconds.
    slots, machines : int
    settings : MachineSettings
    """

    names: tuple[str | int, ...]
    arrival: Floats
    end: Floats
    length: float
    slots: int
    machines: int
    settings: MachineSettings

    @cached_property
    def span(self) -> tuple[Ints, Ints]:
        """Arrivals and deadlines, in slots."""
        slot = self.length / self.slots
        a = slot_of(self.arrival, self.length, self.slots)
        d = np.ceil(self.end / slot - 1e-9).astype(np.int64)
        return a, np.clip(d, a + 1, self.slots)

    def jobs(self, rng: np.random.Generator) -> list[Job]:
        """Draw the jobs, by arrival; ids are those of the trace."""
        s, (a, d) = self.settings, self.span
        drawn = paper_jobs(rng, a, d, self.machines, s.beta, s.q, s.value, self.names)
        kept = rng.random(a.size) < s.keep
        return [job for job, keep in zip(drawn, kept) if keep]

    def stream(self, rng: np.random.Generator) -> JobStream:
        """Draw all jobs, to be handed out slot by slot."""
        return ReplayedJobs(self.jobs(rng)).stream(rng)

    def instance(self, seed: int, outages: tuple[Outage, ...] = ()) -> ApproximationInstance:
        """These jobs on machines whose rates are drawn."""
        s = self.settings
        rates = GammaPeriods(
            self.machines, time_scale=s.time_scale, stationary=s.stationary, per_period=s.per_period
        )
        prices = price_machines(rates, s.pricing, self.slots, rate_generator(seed))
        problem = ApproximationProblem(prices, horizon=self.slots)
        comparators = COMPARATORS if s.comparators else ()
        return ApproximationInstance(problem, rates, self, outages=outages, comparators=comparators)

    def told(self, base: Fidelity) -> Fidelity:
        """The report of a trace, with the load that these jobs make."""
        s, (a, d) = self.settings, self.span
        jobs = self.jobs(Streams.of(0).workload)
        price = float(price_machines(GammaPeriods(1), "population", 1, Streams.of(0).noise)[0])
        load = load_of(jobs, np.full(self.machines, price), self.slots)
        slot, life = self.length / self.slots, d - a
        notes = (
            f"{self.slots} slots of {slot:.3g} s; lifetimes in slots: mean {life.mean():.0f}, "
            f"median {np.median(life):.0f}, 1 % at most {np.quantile(life, 0.01):.0f}, "
            f"1 % at least {np.quantile(life, 0.99):.0f}",
            f"{(d - a).sum() / self.slots:.3g} jobs of the trace are active in a mean slot",
            f"load Σ B / (p M T) with the budgets of seed 0 and p = {price:.4f}: {load:.3g}",
        )
        stages = base.stages
        if s.keep < 1:
            why = {f"thinned to {s.keep:g}, seed 0": (base.jobs - len(jobs), 1)}
            stages = (*stages, Stage("keep", base.jobs, len(jobs), why))
        kept = base.kept
        if kept is not None and kept.by_slot is not None:
            kept = replace(
                kept,
                played=kept.played * s.keep,
                played_hours=kept.played_hours * s.keep,
                by_slot=kept.by_slot * s.keep,
            )
        return replace(
            base,
            stages=stages,
            servers=self.machines,
            jobs=len(jobs),
            notes=(*base.notes, *notes),
            kept=kept,
        )

    def summary(self) -> dict[str, float]:
        """Arrivals and lifetimes, for tables."""
        a, d = self.span
        life = d - a
        return {
            "jobs": float(a.size),
            "arrivals_per_slot": self.settings.keep * a.size / self.slots,
            "active_per_slot": self.settings.keep * float(life.sum()) / self.slots,
            "lifetime_mean_slots": float(life.mean()),
            "lifetime_median_slots": float(np.median(life)),
            "lifetime_p99_slots": float(np.quantile(life, 0.99)),
        }


class JobsTraceScenario:
    """A trace, played as approximation jobs; the seed draws what the trace does not tell.

    Parameters
    ----------
    trace : Trace or Tables
        A reader, or what one has read.
    name : str, optional
    **settings
        Fields of :class:`~gangwise.traces.slots.settings.JobsSettings`.

    Attributes
    ----------
    tables : Tables
    workload : ReplayedLifetimes
    outages : tuple of Outage

    Raises
    ------
    TraceError
        When the trace cannot be read, has no jobs with times, or does not say how many machines
        there are.
    ScenarioError
        Names the setting at fault.
    """

    family = "approximation_jobs"

    def __init__(self, trace: Trace | Tables, *, name: str = "", **settings: Any):
        self.tables = tables = trace if isinstance(trace, Tables) else trace.scan()
        self.name = name or f"trace-{tables.trace}-jobs-v2"
        self.settings = s = checked(JobsSettings, self.name, settings)
        if s.machines is None and tables.servers.is_empty():
            raise TraceError(
                "the files here do not say which servers there are: set machines (how many)"
            )
        M = s.machines or len(tables.servers)
        every = None if s.slot is None else seconds(s.slot)
        found = lifetimes_of(tables, Window(s.skip, s.hours, s.slots, every))
        self.workload = ReplayedLifetimes(
            found.names, found.arrival, found.end, found.length, found.slots, M, s
        )
        self.outages, more = outages_of(tables, M, found)
        self._fidelity = self.workload.told(
            replace(found.fidelity, notes=(*found.fidelity.notes, *more))
        )

    @property
    def slots(self) -> int:
        """T."""
        return self.workload.slots

    def describe(self) -> dict[str, Any]:
        """The settings, and what they were applied to: the files, and what was made of them."""
        w = self.workload
        away = np.array([(o.machine, o.first, o.back) for o in self.outages], dtype=np.int64)
        return {
            "trace": self._fidelity.trace,
            "files": dict(self._fidelity.digests),
            "workload": fingerprint(*w.span, away, np.array([w.slots, w.machines])),
            **self.settings.model_dump(mode="json"),
        }

    def fidelity(self) -> Fidelity:
        """What was read, what was left out, and the load that the jobs make."""
        return self._fidelity

    def instance(self, seed: int) -> ApproximationInstance:
        """Draw the instance of a seed."""
        return self.workload.instance(seed, self.outages)


class GoogleSettings(MachineSettings):
    """Parameters, with the distribution of everything that is drawn."""

    folder: str = Field("", description="where the parts of job_events are")
    hours: float = Field(10.0, gt=0, description="length of the window, from the trace's start on")
    present: Literal["drop", "start"] = Field(
        "drop",
        description="jobs that were there before the trace begins: left out, since their "
        "arrival is not known, or arriving at the start",
    )
    machines: Count = Field(1000, description="M")
    slots: SlotCount = Field(50_000, description="T: the window is cut into so many slots")


class GoogleScenario:
    """The jobs of Google ClusterData 2011 on machines with Gamma periods.

    Parameters
    ----------
    trace : GoogleJobEvents, optional
        Read from ``folder`` when not given.
    **settings
        Fields of :class:`GoogleSettings`.

    Raises
    ------
    ScenarioError, UnknownName
        Names the setting at fault.
    TraceError
        When the trace cannot be read.
    """

    family = "approximation_jobs"

    def __init__(
        self, *, name: str = "opm-google-v1", trace: GoogleJobEvents | None = None, **settings: Any
    ):
        self.name = name
        if trace is not None:
            settings = {"hours": trace.hours, "present": trace.present, **settings}
            settings["folder"] = str(trace.path)
        self.settings = s = checked(GoogleSettings, name, settings)
        if trace is None:
            if not s.folder:
                raise ScenarioError(
                    f"scenario {name!r} needs folder=, where the parts of job_events are; see "
                    "gangwise.traces.formats.google_2011 for where to get them"
                )
            trace = GoogleJobEvents(Path(s.folder), hours=s.hours, present=s.present)
        self.trace, found = trace, trace.lifetimes()
        self.workload = ReplayedLifetimes(
            tuple(found.job.tolist()),
            found.arrival,
            found.end,
            s.hours * 3600.0,
            s.slots,
            s.machines,
            s,
        )

    @classmethod
    def of_reader(cls, trace: Google2011, **settings: Any) -> GoogleScenario:
        """The scenario of what a reader of the trace was told to read.

        Raises
        ------
        TraceError
            When its window does not begin with the trace.
        """
        if trace.begin:
            raise TraceError(
                f"begin is {trace.begin:g}; the scenario's window begins with the trace",
                trace.source.path,
            )
        jobs = GoogleJobEvents(
            trace.source.path,
            hours=10.0 if trace.hours is None else trace.hours,
            present=trace.present,
            strict=trace.source.strict,
        )
        return cls(trace=jobs, **settings)

    @property
    def slots(self) -> int:
        """T."""
        return self.settings.slots

    def describe(self) -> dict[str, Any]:
        """The settings, and which files they were applied to."""
        files = dict(self.trace.fidelity().digests)
        return {"files": files, **self.settings.model_dump(mode="json", exclude={"folder"})}

    def instance(self, seed: int) -> ApproximationInstance:
        """Draw the instance of a seed."""
        return self.workload.instance(seed)

    def fidelity(self) -> Fidelity:
        """What was read, what was left out, and the load that the jobs make."""
        base = self.trace.fidelity()
        read = next((stage.read for stage in base.stages if stage.name == "jobs"), base.jobs)
        (arrivals, _), slots = self.workload.span, self.slots
        by_slot = _by_slot(arrivals, np.zeros(len(arrivals)), slots)
        jobs = base.jobs
        kept = Kept(base.trace, "job", read, jobs, 0.0, 0.0, None, None, None, TERMS, (), by_slot)
        return self.workload.told(replace(base, kept=kept))


def mini_batch_rates(
    machines: int, folder: Path | str, job: str = "job-4", shift: bool = True
) -> MeasuredRates:
    """Rates from measured mini-batch times (see :mod:`gangwise.traces.formats.measured_speeds`).

    Machine i goes at the speed of worker i mod W of a training job: 1 is the job's fastest
    iteration. The longest common stretch of its workers is replayed.

    Raises
    ------
    TraceError
        When the folder cannot be read.
    UnknownName
        For a job that it does not hold.
    """
    trace = MiniBatchTime(folder)
    speeds = [worker.speed for worker in trace.workers if worker.job == job]
    if not speeds:
        raise UnknownName("mini-batch-time job", job, sorted(trace.tables))
    length = min(speed.size for speed in speeds)
    return MeasuredRates(machines, np.column_stack([s[:length] for s in speeds]), shift)
