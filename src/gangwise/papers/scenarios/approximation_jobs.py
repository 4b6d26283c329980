"""From the tables of a trace to approximation jobs on unreliable machines.

The trace gives arrivals and ends of jobs, and when machines come and go; steps are settings
(:class:`JobsSettings`), and what they leave out is in the fidelity report:

1. jobs: rows of one ``job`` are one job, there from the first creation on, for as long as it ran:
   from the first start to the last end (waiting is not work), or from creation to deletion where
   the format has no start; jobs that never ran are left out;
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
2011 alone. The paper does not say how time is cut into slots: here the window of 10 hours is the
50,000 units of time that the rates are generated for, so that a slot is 0.72 s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import ConfigDict, Field

from gangwise.core import arrays, errors, simulation
from gangwise.core.settings import Count, SlotCount, checked
from gangwise.logs import tables as trace_tables
from gangwise.logs.formats.google import OFFSET, Google2011
from gangwise.logs.reading import Stage, leave_out, reasons
from gangwise.notation import duration, seconds
from gangwise.papers.approximation_jobs import offline
from gangwise.papers.approximation_jobs import problem as problems
from gangwise.papers.approximation_jobs.environment import (
    ApproximationInstance,
    Outage,
    rate_generator,
)
from gangwise.papers.scenarios.demand import MAX_SLOTS, Duration, Skip, TraceScenarioBase, phrase
from gangwise.papers.scenarios.drawing import JobDraws


class MachineSettings(JobDraws):
    """Settings of what no trace has and is drawn: budgets, utilities, rates and prices."""

    model_config = ConfigDict(allow_inf_nan=False)

    keep: float = Field(1.0, gt=0, le=1)
    comparators: bool = False
    stationary: bool = True


class JobsSettings(MachineSettings):
    """Every step from the tables of a trace to approximation jobs."""

    hours: float | None = Field(None, gt=0)
    skip: Skip = 0.0
    slots: SlotCount = 5000
    slot: Duration | None = None
    machines: Count | None = None


TERMS = (
    "what jobs request is not used: a task takes a machine (gangwise replay places jobs whole)",
    "budgets, values and the rates of machines are drawn",
)


def lifetimes_of(
    tables: trace_tables.Tables, s: JobsSettings, machines: int
) -> tuple[ReplayedLifetimes, trace_tables.Fidelity]:
    """Jobs of a window, which :attr:`Fidelity.first` begins.

    Raises TraceError when there are none, or the window would have too many slots.
    """
    if tables.jobs.is_empty():
        raise errors.TraceError(tables.no_jobs or "there are no jobs in the files here")
    base, jobs = trace_tables.of_tables(tables), _whole_jobs(tables)
    created = pl.col("created")
    rules = [
        ("one of its times is not known", pl.col("lacks")),
        ("it never started", pl.col("never")),
        ("it is deleted before it is created", pl.col("deleted") < created),
    ]
    timed, unknown = leave_out("jobs", jobs, rules)
    if timed.is_empty():
        reason = f"none has both of its times ({reasons(unknown.dropped)})"
        raise errors.TraceError(f"no job of the trace can be played: {reason}")
    start, length, slots = _window(timed["created"].to_numpy(), s)
    end_of_window = start + length
    rules = [
        (f"created before the window, {start:.0f} s", created < start),
        (f"created after the window, {end_of_window:.0f} s", created > end_of_window),
    ]
    inside, outside = leave_out("window", timed, rules)
    outlast = int((inside["deleted"] > end_of_window).sum())
    about = {"start": start, "at": duration(start), "length": duration(length)}
    notes = [
        phrase("lifetimes window", skip=100 * s.skip, **about),
        phrase("outlast", jobs=outlast),
        phrase("requests unused"),
    ]
    columns, rows = tables.jobs.columns, len(tables.jobs)
    if "job" in columns and rows > len(jobs):
        order = ", whatever waits for what" if "after" in columns else ""
        notes.append(phrase("whole jobs", rows=rows, jobs=len(jobs), order=order))
    names: tuple[str | int, ...] = tuple(inside["as"].to_list())
    if len(set(names)) < len(names):
        # Jobs of one name may overlap in the window, and ids of jobs in the system must differ.
        names = tuple(range(len(names)))
        notes.append(phrase("numbered"))
    arrival, hours = inside["created"].to_numpy() - start, inside["hours"].to_numpy()
    end = np.minimum(inside["deleted"].to_numpy(), end_of_window) - start
    lifetimes = ReplayedLifetimes(names, arrival, end, length, slots, machines, s)
    by_slot, total = _by_slot(lifetimes.span[0], hours, slots), float(hours.sum())
    fidelity = replace(
        base,
        stages=(*base.stages, *[unknown] * bool(unknown.dropped), outside),
        first=start,
        last=end_of_window,
        jobs=len(inside),
        notes=(*base.notes, *notes),
        capacity={},
        load={},
        kept=trace_tables.kept_of(tables, len(inside), total, by_slot, read=len(jobs), terms=TERMS),
    )
    return lifetimes, fidelity


def _whole_jobs(tables: trace_tables.Tables) -> pl.DataFrame:
    rows = tables.jobs
    named = "job" if "job" in rows.columns else "name"
    whole = pl.col("job") if named == "job" else pl.int_range(pl.len())
    waits = "started" in rows.columns
    device, _ = trace_tables.counted_device(rows, tables.units)
    begun, ended = pl.col("begin"), pl.col("begin") + pl.col("run")
    return (
        rows.with_columns(
            trace_tables.work(rows).with_columns(hours=trace_tables.device_hours(rows, device))
        )
        .group_by(whole.alias("id"), maintain_order=True)
        .agg(
            pl.col("row", "created").min(),
            pl.col(named).first().alias("as"),
            pl.col("hours").sum(),
            run=ended.max() - begun.min(),
            # Only a format that has starts can tell a job that never
            # ran from one whose times are unknown.
            never=pl.col("run").is_null().all() & waits,
            lacks=pl.col("created").is_null().any() | (pl.col("run").is_null().any() & (not waits)),
        )
        .with_columns(deleted=pl.col("created") + pl.col("run"))
        .sort("created", "row", maintain_order=True)
    )


def _window(created: arrays.Floats, s: JobsSettings) -> tuple[float, float, int]:
    """Start and length of the window, in seconds, and how many slots it has."""
    start, end = float(created[int(s.skip * len(created))]), float(created[-1])
    length = max(end - start, 1.0) if s.hours is None else s.hours * 3600.0
    slots = s.slots
    if s.slot is not None:
        slot = seconds(s.slot)
        # A slot that the window does not fill is played where it ends with the last creation.
        wanted = np.floor(length / slot) + (s.hours is None)
        # Cut before it becomes an int: the check below refuses what is too long, however long.
        slots = int(min(max(wanted, 1), MAX_SLOTS + 1))
        length = slots * slot
    if slots > MAX_SLOTS:
        raise errors.TraceError(phrase("long window", length=duration(length), most=MAX_SLOTS))
    return start, length, slots


def _by_slot(slot: arrays.Ints, hours: arrays.Floats, slots: int) -> arrays.Floats:
    """:attr:`Kept.by_slot`: requests are not used, so none are given."""
    played = np.bincount(slot, minlength=slots)
    return np.column_stack([played, np.bincount(slot, hours, slots), np.zeros(slots)])


def outages_of(
    tables: trace_tables.Tables, window: ReplayedLifetimes, start: float
) -> tuple[tuple[Outage, ...], list[str]]:
    """Slots of a window from ``start`` on in which machines are away, and notes on it.

    A server of which the first event is that it comes was away before; of which it is that it
    goes, was there. One that is down in any part of a slot is away in the whole of it.
    """
    number, machines = len(tables.servers), window.machines
    other = bool(number and machines != number)
    notes = [phrase("other machines", machines=machines, number=number)] * other
    if tables.events is None:
        return (), [*notes, phrase("always machines")]
    place = {name: m for m, name in enumerate(sorted(tables.servers["name"].to_list())[:machines])}
    slot, outages = window.length / window.slots, []
    events = tables.events.sort("time", maintain_order=True)
    for (name,), log in events.group_by("server", maintain_order=True):
        if name not in place:
            continue
        for down, up in _times_down(log.select("time", "up").rows()):
            # Floor and ceiling: a slot in which the machine is
            # down for a part counts as a whole one.
            begin = 0 if down <= start else int((down - start) / slot)
            back = window.slots
            if up < start + window.length:
                back = int(np.ceil((up - start) / slot - 1e-9))
            if begin < back and begin < window.slots:
                outages.append(Outage(place[str(name)], begin, back))
    share = 100 * sum(o.back - o.first for o in outages) / (machines * window.slots)
    gone = len({o.machine for o in outages})
    notes.append(phrase("away", machines=gone, times=len(outages), share=share))
    return tuple(outages), notes


def _times_down(events: list[tuple[float, bool]]) -> list[tuple[float, float]]:
    """Intervals in which a server is down, from its events (time, whether it is up from then on).

    >>> _times_down([(3.0, True), (5.0, False), (6.0, False), (7.0, True), (9.0, False)])
    [(-inf, 3.0), (5.0, 7.0), (9.0, inf)]
    """
    spans, down = [], None if events and not events[0][1] else -np.inf
    for time, up in events:
        if up and down is not None:
            spans.append((down, time))
        # A second event of the same kind changes nothing: the machine is down since the first.
        if up or down is None:
            down = None if up else time
    return spans if down is None else [*spans, (down, np.inf)]


@dataclass(frozen=True, eq=False)
class ReplayedLifetimes:
    """Jobs with the arrivals and deadlines of a trace; budgets and values are drawn.

    Two numbers per job of the window are drawn, and one more that decides whether it is kept, so
    that thinning changes nothing about the jobs that remain.
    """

    # Of the jobs, by arrival; numbers where the trace's names are not unique.
    names: tuple[str | int, ...]
    arrival: arrays.Floats  # seconds since the window began, within it, shape [n]
    end: arrays.Floats
    length: float  # seconds of the window
    slots: int
    machines: int
    settings: MachineSettings

    @cached_property
    def span(self) -> tuple[arrays.Ints, arrays.Ints]:
        """Arrivals and deadlines of the jobs, in slots, each of shape [n]."""
        slot = self.length / self.slots
        a = np.minimum((self.arrival / slot).astype(np.int64), self.slots - 1)
        # Less a little, so that an end on a boundary is not in the next slot by rounding.
        d = np.ceil(self.end / slot - 1e-9).astype(np.int64)
        return a, np.clip(d, a + 1, self.slots)

    def jobs(self, rng: np.random.Generator) -> list[problems.Job]:
        s, (a, d) = self.settings, self.span
        drawn = problems.paper_jobs(rng, a, d, self.machines, s.beta, s.q, s.value, self.names)
        # Drawn for all jobs, after their budgets: thinning leaves the numbers of the others alone.
        chosen = rng.random(a.size) < s.keep
        return [job for job, keep in zip(drawn, chosen) if keep]

    def stream(self, rng: np.random.Generator) -> problems.JobStream:
        return problems.ReplayedJobs(self.jobs(rng)).stream(rng)

    def instance(self, seed: int, outages: tuple[Outage, ...] = ()) -> ApproximationInstance:
        s = self.settings
        rates = problems.GammaPeriods(
            self.machines, time_scale=s.time_scale, stationary=s.stationary, per_period=s.per_period
        )
        # Realised prices are of the rates that the run with this seed will meet.
        prices = problems.price_machines(rates, s.pricing, self.slots, rate_generator(seed))
        problem = problems.ApproximationProblem(prices, horizon=self.slots)
        comparators = offline.COMPARATORS if s.comparators else ()
        return ApproximationInstance(problem, rates, self, outages=outages, comparators=comparators)

    def report(self, base: trace_tables.Fidelity) -> trace_tables.Fidelity:
        s, (a, d) = self.settings, self.span
        jobs = self.jobs(simulation.Streams.of(0).workload)
        # One machine has the price of all, for the population's mean is theirs.
        price = float(
            problems.price_machines(
                problems.GammaPeriods(1), "population", 1, simulation.Streams.of(0).noise
            )[0]
        )
        load = problems.load_of(jobs, np.full(self.machines, price), self.slots)
        slot, life = self.length / self.slots, d - a
        least, median, most = np.quantile(life, (0.01, 0.5, 0.99))
        lengths = {"mean": life.mean(), "median": median, "least": least, "most": most}
        notes = (
            phrase("lifetimes", slots=self.slots, slot=slot, **lengths),
            phrase("active", active=life.sum() / self.slots),
            phrase("load", price=price, load=load),
        )
        stages, account = base.stages, base.kept
        if s.keep < 1:
            causes = {f"thinned to {s.keep:g}, seed 0": (base.jobs - len(jobs), 1)}
            stages = (*stages, Stage("keep", base.jobs, len(jobs), causes))
        assert account is not None  # as both callers make it
        # In the mean over seeds: which jobs are kept is drawn for each.
        thinned = ("played", "played_hours", "by_slot")
        account = replace(account, **{name: getattr(account, name) * s.keep for name in thinned})
        base = replace(base, servers=self.machines, jobs=len(jobs), stages=stages, kept=account)
        return replace(base, notes=(*base.notes, *notes))

    def summary(self) -> dict[str, float]:
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


class JobsTraceScenario(TraceScenarioBase):
    """A trace, played as approximation jobs; the seed draws what the trace lacks.

    It takes a reader, or what one has read, and fields of :class:`JobsSettings`.

    Raises TraceError when the trace cannot be read, has no jobs with times, or does not say how
    many machines there are, and ScenarioError for a setting, which it names.
    """

    family = "approximation_jobs"
    workload: ReplayedLifetimes
    outages: tuple[Outage, ...] = ()

    def __init__(
        self, trace: trace_tables.Reader | trace_tables.Tables, *, name: str = "", **settings: Any
    ):
        self.tables = tables = trace if isinstance(trace, trace_tables.Tables) else trace.scan()
        self.name = name or f"trace-{tables.trace}-jobs-v2"
        self.settings = s = checked(JobsSettings, self.name, settings)
        if s.machines is None and tables.servers.is_empty():
            raise errors.TraceError(f"{phrase('no servers')}: set machines (how many)")
        self.workload, window = lifetimes_of(tables, s, s.machines or len(tables.servers))
        self.outages, absences = outages_of(tables, self.workload, window.first)
        self._fidelity = self.workload.report(replace(window, notes=(*window.notes, *absences)))

    @property
    def slots(self) -> int:
        return self.workload.slots

    def _contents(self) -> tuple[np.ndarray[Any, Any], ...]:
        w = self.workload
        away = np.array([(o.machine, o.first, o.back) for o in self.outages], dtype=np.int64)
        return *w.span, away, np.array([w.slots, w.machines])

    def instance(self, seed: int) -> ApproximationInstance:
        return self.workload.instance(seed, self.outages)


class GoogleSettings(MachineSettings):
    folder: str = ""
    hours: float = Field(10.0, gt=0)
    present: Literal["drop", "start"] = "drop"
    machines: Count = 1000
    slots: SlotCount = 50_000


class GoogleScenario(JobsTraceScenario):
    """Scenario of OPM §VI: the jobs of Google ClusterData 2011 on machines with Gamma periods.

    It takes fields of :class:`GoogleSettings`; ``strict`` stops at the first bad row.

    Raises ScenarioError or UnknownName for a setting, which it names, and TraceError when the trace
    cannot be read.
    """

    def __init__(self, *, name: str = "opm-google-v1", strict: bool = False, **settings: Any):
        self.name = name
        self.settings = s = checked(GoogleSettings, name, settings)
        if not s.folder:
            raise errors.ScenarioError(
                f"scenario {name!r} needs folder=, where the parts of job_events are; see "
                "gangwise.logs.formats.google for where to get them"
            )
        reader = Google2011(s.folder, hours=s.hours, present=s.present, strict=strict)
        lives, _ = reader.lives_of(reader.JOBS)
        jobs = lives.sort("created", "job")
        begin, close = OFFSET / 1e6, OFFSET / 1e6 + s.hours * 3600.0
        created = jobs["created"].cast(pl.Float64).to_numpy() / 1e6
        ended = jobs["deleted"].cast(pl.Float64).fill_null(np.inf).to_numpy() / 1e6
        # Jobs there before the window begins count from its beginning; nothing runs on after it.
        arrival, end = np.maximum(created - begin, 0.0), np.minimum(ended, close) - begin
        names, length = tuple(jobs["job"].to_list()), s.hours * 3600.0
        self.workload = ReplayedLifetimes(names, arrival, end, length, s.slots, s.machines, s)
        no_servers: tuple[int, int, dict[str, float], dict[str, float]] = (0, len(jobs), {}, {})
        played = (Google2011.FORMAT.name, tuple(reader.stages), begin, close, *no_servers)
        self._read = trace_tables.Fidelity(*played, tuple(reader.notes), dict(reader.digests))

    @classmethod
    def of_reader(cls, trace: Google2011, **settings: Any) -> GoogleScenario:
        """The scenario of what a reader was asked for; its window begins with the trace."""
        if trace.begin:
            raise errors.TraceError(
                f"begin is {trace.begin:g}; the scenario's window begins with the trace",
                trace.source.path,
            )
        return cls(
            folder=str(trace.source.path),
            hours=10.0 if trace.hours is None else trace.hours,
            present=trace.present,
            strict=trace.source.strict,
            **settings,
        )

    def describe(self) -> dict[str, Any]:
        settings = self.settings.model_dump(mode="json", exclude={"folder"})
        return {"files": dict(self._read.digests), **settings}

    def fidelity(self) -> trace_tables.Fidelity:
        base, slots = self._read, self.slots
        jobs_read = next((stage.read for stage in base.stages if stage.name == "jobs"), base.jobs)
        arrivals, _ = self.workload.span
        by_slot = _by_slot(arrivals, np.zeros(len(arrivals)), slots)
        jobs = base.jobs
        account = trace_tables.Kept(
            base.trace, "job", jobs_read, jobs, 0.0, 0.0, None, None, None, TERMS, (), by_slot
        )
        return self.workload.report(replace(base, kept=account))
