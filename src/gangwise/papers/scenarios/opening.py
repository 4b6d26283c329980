"""Scenarios of jobs that last a slot, from the files of a trace: gain minus overhead, or speeds.

Both take the steps of :mod:`gangwise.papers.scenarios.demand`, which give job types, the servers
that they fit on, and arrivals. A gain-minus-overhead problem then takes units, contention,
utilities and overhead; a job type is connected to every server that can hold one of its jobs whole.

At fluctuating speeds at most one job of a type comes in a slot. Then, also settings
(:class:`SpeedsSettings`):

1. channels: each (job type, server) that fits, with probability ``density``;
2. speeds: measured where the trace holds measurements, or ``speeds`` names some; otherwise drawn;
3. capacity of the cluster, supply cost, and delay of feedback.

A file of throughputs gives the mean speed of a job on a GPU model. It knows its own jobs and
models: a job type is given one of its jobs with the same number of GPUs (or the nearest number that
was measured), and a server has its model if the name begins alike (``V100M32`` is ``v100``).
Recorded times of iterations give whole distributions: a job type is given one of the jobs, and each
channel one of the job's workers. Where there are recorded times and servers, but no jobs, the
recorded jobs are the job types.

Both kinds of measured speeds (:mod:`gangwise.logs.formats.training`) are relative: a job's
throughput on a GPU model over that on its best model, and a worker's iterations per time over those
of the fastest iteration of its job.
"""

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import Field

from gangwise.core import errors, files, simulation
from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.contracts import Scenario
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.settings import Count, PositiveRange, checked, toml_value
from gangwise.core.workload import BernoulliArrivals, Channels, Delivery, ReplayedArrivals, Workload
from gangwise.logs import reader_of, ready_tables, without_reader
from gangwise.logs.formats.google import Google2011
from gangwise.logs.formats.training import GavelJob, GavelThroughputs, MiniBatchTime
from gangwise.logs.tables import Reader, Tables, of_tables, save_tables
from gangwise.logs.twins import completed
from gangwise.papers.fluctuating_speeds import problem as problems
from gangwise.papers.fluctuating_speeds.environment import FluctuatingSpeedsInstance
from gangwise.papers.gain_overhead.problem import (
    GainOverheadInstance,
    GainOverheadProblem,
    Utilities,
)
from gangwise.papers.scenarios import approximation_jobs
from gangwise.papers.scenarios import demand as demands
from gangwise.papers.scenarios.demand import phrase
from gangwise.papers.scenarios.drawing import FeedbackSettings, RewardSettings


class SpeedsSettings(demands.Steps, FeedbackSettings):
    """Every step from the tables of a trace to fluctuating speeds."""

    servers: Count | None = 40
    density: float = Field(0.1, gt=0, le=1)
    speeds: str = ""
    unmeasured: Literal["draw", "drop"] = "draw"
    mean: PositiveRange = (0.1, 1.0)
    spread: float = Field(0.5, ge=0)
    order: Literal["recorded", "drawn"] = "recorded"
    blocks: Count = 1
    fraction: float | None = Field(0.5, gt=0)
    cost_share: float = Field(0.3, ge=0)


Measured = GavelThroughputs | MiniBatchTime


def measured(trace: Reader | Tables, where: str) -> Measured | None:
    """Measured speeds at a place; those that the trace holds, if none is given.

    ``where`` is a file of throughputs, a folder of recorded iteration times, ``drawn`` for none, or
    empty.

    Raises TraceError when there are none at the place, or they cannot be read.
    """
    if where == "drawn":
        return None
    if where:
        path = Path(where)
        if not path.exists():
            raise errors.TraceError("there is no such file or folder of measured speeds", path)
        # Iteration times come as one file for each job, throughputs as a single file.
        recorded = path.is_dir() and any(path.glob("job_*_norm.csv*"))
        return MiniBatchTime(path) if recorded else GavelThroughputs(path)
    source = getattr(trace, "source", None)
    tables = () if source is None else [table.name for table in source.form.tables]
    if source is None or "mini_batch_times" not in tables or not source.has("mini_batch_times"):
        return None
    return MiniBatchTime(source.files("mini_batch_times")[0].parent)


def relative_throughput(table: GavelThroughputs, jobs: Sequence[GavelJob]) -> Floats:
    """Throughput of jobs on each model of the table, 1 on their best, shape [jobs, models].

    It is 0 where a job does not run.
    """
    speed = np.array([[table.throughput.get((m, job), 0.0) for m in table.models] for job in jobs])
    return np.asarray(speed / speed.max(axis=1, keepdims=True))


def draw_possible_channels(able: Bools, density: float, rng: np.random.Generator) -> Bools:
    """Each possible channel [L, R] with a probability; a job type without any gets one, uniform."""
    mask = (rng.random(able.shape) < density) & able
    for l in np.flatnonzero(~mask.any(axis=1)):
        mask[l, rng.choice(np.flatnonzero(able[l]))] = True
    return mask


def limited_capacity(requests: Floats, fraction: float) -> Floats:
    """c_k = fraction · Σ_e a_k, at least the largest request; requests of shape [E, K]."""
    # A channel that asks for more than there is could never be on.
    return np.asarray(np.maximum(fraction * requests.sum(axis=0), requests.max(axis=0)))


def pooled_instance(
    pool: problems.Pool,
    requests: Floats,
    channels: Channels,
    job_types: tuple[str, ...],
    speeds: problems.Speeds,
    mean_cost: float,
    workload: Workload,
    delivery: Delivery | None = None,
) -> FluctuatingSpeedsInstance:
    """An instance in which supply costs the same per device; requests are of shape [E, K].

    ``mean_cost`` is the mean over channels.
    """
    cost = problems.linear_cost(requests, np.ones(requests.shape[1]))
    cost *= mean_cost / cost.mean()
    problem = problems.FluctuatingSpeedsProblem(pool, requests, channels, cost, job_types)
    scale = problems.Scale.of("clip", speeds, cost)
    return FluctuatingSpeedsInstance(problem, workload, speeds, scale, delivery or Delivery())


def recorded_demand(tables: Tables, record: MiniBatchTime, s: demands.Steps) -> demands.SlotDemand:
    """Recorded jobs as job types, on the servers that have GPUs, or a TraceError if none."""
    with_gpus = tables.servers.filter(pl.col("gpu") > 0)
    if with_gpus.is_empty():
        raise errors.TraceError("no server here has GPUs, which the recorded workers requested")
    notes = [
        phrase("recorded jobs", jobs=len(record.tables), keep=s.keep),
        phrase("recorded parts"),
        phrase("with gpus", number=len(with_gpus), all=len(tables.servers)),
    ]
    tables = replace(tables, servers=with_gpus.sort("name").fill_null(0.0))
    if s.servers is not None and s.servers < len(with_gpus):
        tables = demands.sample_servers(tables, s.servers)
        notes.append(phrase("sampled gpus", servers=s.servers))
    jobs = tuple(dict.fromkeys(w.job for w in record.workers))
    share = [max(w.gpus for w in record.workers if w.job == job) for job in jobs]
    requests = np.array([[0.0, 0.0, gpus] for gpus in share])
    L = len(jobs)
    grouping = demands.Grouping(requests, ("",) * L, np.arange(L), np.ones(L))
    capacity, model = tables.servers.select(demands.QUANTITIES).to_numpy(), tables.servers["model"]
    fit = demands.fits(requests, grouping.models, capacity, model.to_list())
    # No slots in ``counts``: arrivals are drawn, and neither slot length nor run time has a source.
    arrivals = (fit, np.zeros((0, L), dtype=np.int64), 3600.0, np.full(L, np.nan))
    fidelity = of_tables(tables)
    fidelity = replace(fidelity, notes=(*dict.fromkeys(fidelity.notes), *notes))
    return demands.SlotDemand(tables.servers, grouping, jobs, *arrivals, fidelity)


RECORD = 1000  # values in the record of a drawn speed, where others have a record of measured ones


class SpeedsTraceScenario(demands.TraceScenarioBase):
    """A trace, played with speeds that must be learned; the seed draws what it lacks.

    It takes a reader, or what one has read, and fields of :class:`SpeedsSettings`.

    Raises TraceError when the trace cannot be read or no job of it can be played, and ScenarioError
    for a setting, which it names.
    """

    family = "fluctuating_speeds"

    def __init__(self, trace: Reader | Tables, *, name: str = "", **settings: Any):
        self.tables = tables = trace if isinstance(trace, Tables) else trace.scan()
        self.name = name or f"trace-{tables.trace}-speeds-v2"
        self.settings = s = checked(SpeedsSettings, self.name, settings)
        self.measured = measured(trace, s.speeds)
        if "servers" not in settings and s.servers is not None:
            machines = s.machines or len(tables.servers)
            # A sample that nobody asked for is no error where a trace has fewer servers.
            steps = s.model_copy(update={"servers": min(s.servers, machines)})
        else:
            steps = s
        if tables.jobs.is_empty() and isinstance(self.measured, MiniBatchTime):
            self.demand = recorded_demand(tables, self.measured, steps)
        else:
            self.demand = demands.demand_of(tables, steps)
        self._cluster, self._requests = demands.in_units(
            self.demand.servers, self.demand.grouping, 1.0
        )
        self._requests *= s.contention
        self._models = [m.lower() for m in self.demand.servers["model"].to_list()]
        fidelity, account = self.demand.fidelity, self.demand.fidelity.kept
        if account is not None:
            drawn = "speeds and supply cost are drawn" if self.measured is None else "cost is drawn"
            drawn += "; capacities are not those of the trace" * (s.fraction is not None)
            account = replace(account, terms=(phrase("one at a time"), drawn))
        self._fidelity = replace(
            fidelity,
            notes=(*fidelity.notes, *self._notes()),
            kept=account,
            digests={**fidelity.digests, **(self.measured.digests if self.measured else {})},
        )

    @property
    def slots(self) -> int:
        """Slots in the window; 2000 where the files have no jobs."""
        return len(self.demand.counts) or 2000

    def _contents(self) -> tuple[np.ndarray[Any, Any], ...]:
        return self._cluster.capacity, self._requests, self.demand.fits, self.demand.counts

    def describe(self) -> dict[str, Any]:
        """The settings, and what they were applied to: files, workload, and which speeds."""
        return {
            **super().describe(),
            "speeds": type(self.measured).__name__ if self.measured else "drawn",
        }

    def instance(self, seed: int) -> FluctuatingSpeedsInstance:
        s, rng, demand = self.settings, simulation.Streams.of(seed).instance, self.demand
        throughputs = self._throughputs(rng)
        # NaN, not measured, stays; 0 says that the job does not run on the model.
        able = demand.fits & ~(throughputs == 0)
        if s.unmeasured == "drop" and isinstance(self.measured, GavelThroughputs):
            able &= ~np.isnan(throughputs) | ~self._with_gpus[:, None]
        for l in np.flatnonzero(~able.any(axis=1)):
            name = demand.names[l]
            raise errors.ScenarioError(phrase("not measured", scenario=self.name, job_type=name))
        drawn = rng.uniform(s.mean[0], s.mean[1], throughputs.shape)
        mean = np.where(np.isnan(throughputs), drawn, throughputs)
        channels = Channels.of_mask(draw_possible_channels(able, s.density, rng))
        there = self._cluster.capacity[channels.server]
        # A job type asks for every GPU model it may use; a channel holds that of its server only.
        requests = self._requests[channels.job_type] * (there > 0)
        used: Bools = np.any(requests, axis=0)
        requests, total = requests[:, used], self._cluster.capacity.sum(axis=0)[used]
        speeds = self._speeds(channels, mean[channels.job_type, channels.server], rng)
        if isinstance(speeds, problems.NormalSpeeds):
            mean_speed = float(np.mean(speeds.mean))
        else:
            # What supply costs is a share of what channels bring on average, measured or drawn.
            mean_speed = float(np.mean([values.mean() for values in speeds.series]))
        capacity = total if s.fraction is None else limited_capacity(requests, s.fraction)
        devices = tuple(name for name, use in zip(self._cluster.devices, used) if use)
        pool = problems.Pool(capacity, devices, self._cluster.servers)
        cost = s.cost_share * mean_speed
        workload: Workload = BernoulliArrivals(np.full(len(demand.names), s.keep))
        if len(demand.counts):
            workload = ReplayedArrivals(demand.counts, s.keep, s.repeat)
        arguments = (demand.names, speeds, cost, workload, s.delivery)
        return pooled_instance(pool, requests, channels, *arguments)

    @property
    def _with_gpus(self) -> Bools:
        return np.asarray(self.demand.grouping.requests[:, 2] > 0)

    def _columns(self, table: GavelThroughputs) -> Ints:
        """Column of the table for each server, -1 where its model was not measured."""
        alike = np.array([[own.startswith(m) for m in table.models] for own in self._models])
        # argmax of all False is 0, which is a model: those without one are told apart first.
        return np.where(alike.any(axis=1), alike.argmax(axis=1), -1)

    def _throughputs(self, rng: np.random.Generator) -> Floats:
        """Measured mean speeds, shape [L, R]; nan where there are none."""
        throughputs = np.full(self.demand.fits.shape, np.nan)
        if not isinstance(self.measured, GavelThroughputs):
            return throughputs
        table, column = self.measured, self._columns(self.measured)
        sizes = np.array([job.gpus for job in table.jobs])
        for l in np.flatnonzero(self._with_gpus):
            # A fraction of a GPU counts as one: no table has jobs on less.
            away = np.abs(sizes - max(np.ceil(self.demand.grouping.requests[l, 2]), 1.0))
            job = table.jobs[rng.choice(np.flatnonzero(away == away.min()))]
            relative = relative_throughput(table, [job])[0]
            throughputs[l, column >= 0] = relative[column[column >= 0]]
        return throughputs

    def _speeds(
        self, channels: Channels, mean: Floats, rng: np.random.Generator
    ) -> problems.NormalSpeeds | problems.RecordedSpeeds | problems.ReplayedSpeeds:
        s = self.settings
        if not isinstance(self.measured, MiniBatchTime):
            return problems.NormalSpeeds(mean, s.spread)
        jobs = tuple(dict.fromkeys(w.job for w in self.measured.workers))
        record = {job: [w.speed for w in self.measured.workers if w.job == job] for job in jobs}
        if self.tables.jobs.is_empty():
            rows = np.arange(len(jobs))
        else:
            rows = rng.integers(0, len(jobs), len(self.demand.names))
        series = []
        for e, l in enumerate(channels.job_type):
            if self._with_gpus[l]:
                of_job = record[jobs[rows[l]]]
                series.append(of_job[int(rng.integers(0, len(of_job)))])
            else:
                noise = rng.standard_normal(RECORD)
                # Job types without GPUs have no measured worker: a drawn record stands for it.
                series.append(np.maximum(mean[e] * (1.0 + s.spread * noise), 0.0))
        if s.order == "recorded":
            # Workers of a job were measured together, so its channels go round together.
            return problems.RecordedSpeeds.anywhere(series, channels.job_type, rng)
        return problems.ReplayedSpeeds(series, s.blocks, max(self.slots, s.blocks))

    def _notes(self) -> list[str]:
        s, demand = self.settings, self.demand
        fit = int(demand.fits.sum())
        capacities = "together" if s.fraction is None else "fraction"
        notes = [
            phrase("density", fit=fit, density=s.density),
            phrase("capacities", capacities=phrase(capacities, fraction=s.fraction)),
            phrase("supply cost", share=s.cost_share),
        ]
        law, gpus = phrase("drawn speeds", mean=s.mean, spread=s.spread), self._with_gpus
        if isinstance(self.measured, MiniBatchTime):
            workers = self.measured.workers
            jobs = len({w.job for w in workers})
            drawn = ", and which job a job type" if len(demand.counts) else ""
            recorded = {"types": int(gpus.sum()), "workers": len(workers), "jobs": jobs}
            notes.append(phrase("recorded speeds", drawn=drawn, **recorded))
            if not gpus.all():
                notes.append(phrase("without gpus", types=int((~gpus).sum()), law=law))
        elif isinstance(self.measured, GavelThroughputs):
            column = self._columns(self.measured)
            measured = int((demand.fits & (column >= 0) & gpus[:, None]).sum())
            named = sorted({m for m, k in zip(self._models, column) if m and k < 0})
            otherwise = "left out" if s.unmeasured == "drop" else law
            others = {"named": ", ".join(named) or "none", "otherwise": otherwise}
            notes += [
                phrase("throughputs", measured=measured, fit=fit, spread=s.spread),
                phrase("other models", law=law, **others),
            ]
        else:
            notes.append(phrase("nothing measured", law=law))
        return notes


class GainOverheadTraceSettings(RewardSettings, demands.Steps):
    """Every step from the tables of a trace to a gain-minus-overhead problem and its workload."""

    arrivals: Literal["indicator", "multiple"] = "multiple"
    most_jobs: Count | None = None
    units: Literal["share", "raw"] = "share"
    scale: float = Field(16.0, gt=0)


class TraceScenario(demands.TraceScenarioBase):
    """A trace, played as a scenario: the seed draws utilities, overhead and thinning.

    It takes a reader, or what one has read, and fields of :class:`GainOverheadTraceSettings`.
    ``counts`` [slots, L] are the jobs of each type that are created in each slot, before ``keep``;
    ``mask`` [L, R] says where channels are.

    Raises TraceError when the trace cannot be read or no job of it can be played, and ScenarioError
    for a setting, which it names.
    """

    family = "gain_overhead"

    def __init__(self, trace: Reader | Tables, *, name: str = "", **settings: Any):
        self.tables = tables = trace if isinstance(trace, Tables) else trace.scan()
        self.name = name or f"trace-{tables.trace}-v2"
        self.settings = s = checked(GainOverheadTraceSettings, self.name, settings)
        most = 1 if s.arrivals == "indicator" else s.most_jobs  # None: as many as it takes
        self.demand = demand = demands.demand_of(tables, s, most)
        self.counts, self.mask, self.grouping = demand.counts, demand.fits, demand.grouping
        self._cluster, self._requests = demands.in_units(
            demand.servers, demand.grouping, s.scale if s.units == "share" else None
        )
        self._requests *= s.contention
        # Jobs of a type in a mean slot, after thinning.
        rate = s.keep * self.counts.mean(axis=0)
        share = demands.mean_contention(self._cluster, self._requests, self.mask, rate)
        # Where no server is ever contested all policies earn the same: a warning then.
        busy = demands.contested_share(self._cluster, self._requests, self.mask, self.counts)
        shares = ", ".join(f"{100 * x:.3g} % of {device}" for device, x in share.items())
        competition = phrase("competition", shares=shares, contention=s.contention)
        fidelity = demand.fidelity
        assert fidelity.kept is not None  # there are jobs
        widest = int(self.mask.sum(axis=1).max())
        at_once = f", on each of up to {widest:,} servers at once" * (widest > 1)
        # Terms say what the scenario assumes beyond the trace, for the fidelity report.
        account = replace(
            fidelity.kept,
            terms=(
                phrase("compete", busy=100 * busy),
                phrase("elastic", at_once=at_once),
                phrase("drawn rewards"),
            ),
            warnings=() if busy else (phrase("no rivals"),),
        )
        self._fidelity = replace(fidelity, notes=(*fidelity.notes, competition), kept=account)

    @property
    def slots(self) -> int:
        return len(self.counts)

    def _contents(self) -> tuple[np.ndarray[Any, Any], ...]:
        return self._cluster.capacity, self._requests, self.mask, self.counts

    def instance(self, seed: int) -> GainOverheadInstance:
        s, rng = self.settings, simulation.Streams.of(seed).instance
        shape = self._cluster.capacity.shape
        problem = GainOverheadProblem(
            self._cluster,
            self._requests,
            Channels.of_mask(self.mask),
            Utilities(s.draw_kinds(rng, shape), rng.uniform(s.alpha[0], s.alpha[1], shape)),
            rng.uniform(s.beta[0], s.beta[1], shape[1]),
            self.grouping.names,
        )
        return GainOverheadInstance(problem, ReplayedArrivals(self.counts, s.keep, s.repeat))


FAMILIES: Mapping[str, Any] = {
    "gain_overhead": TraceScenario,
    "fluctuating_speeds": SpeedsTraceScenario,
    "approximation_jobs": approximation_jobs.JobsTraceScenario,
}
"""Families that a trace can be played in, and the scenario of each."""


def open_trace(path: Path | str, *, trace: str = "", family: str = "", **knobs: Any) -> Scenario:
    """A scenario from the files of a trace, whose format is recognised unless ``trace`` names it.

    ``path`` is a directory with the files of a trace, or one of them; tables that were saved
    (:func:`~gangwise.logs.tables.save_tables`); or ``twin:NAME`` for a synthetic twin. ``family``
    is ``gain_overhead`` (by default), ``fluctuating_speeds`` or ``approximation_jobs``; job events
    of Google ClusterData 2011 become the scenario of the OPM paper, unless another is asked for.

    ``knobs`` are arguments of the reader, or of the twin (its seed as ``twin_seed``);
    ``complete="servers"`` or ``"jobs"``, to take from the twin what the files have none of; and
    settings of the scenario: fields of :class:`GainOverheadTraceSettings`,
    :class:`~gangwise.papers.scenarios.opening.SpeedsSettings` or
    :class:`~gangwise.papers.scenarios.approximation_jobs.JobsSettings`.

    Raises TraceError when nothing is recognised: says what was looked for and what was found;
    UnknownName for a format, family or setting that does not exist.

    >>> scenario = open_trace("twin:alibaba-gpu-v2023", days=1, servers=20, slot="1h", job_types=4)
    >>> scenario.counts.shape, scenario.instance(seed=0).problem.cluster.capacity.shape[0]
    ((23, 4), 20)
    """
    if family and family not in FAMILIES:
        raise UnknownName("family for traces", family, list(FAMILIES))
    path = Path(path)
    opened: Reader | Tables
    if without_reader(path):
        opened = ready_tables(path, knobs)
    else:
        reader = reader_of(path, trace)
        accepted = list(inspect.signature(reader).parameters)
        trace_reader: Reader = reader(
            path, **{knob: knobs.pop(knob) for knob in accepted if knob in knobs}
        )
        opened = trace_reader
        # Job events of Google say how long jobs live, which is what the scenario of the OPM paper
        # needs.
        of_google = isinstance(opened, Google2011) and family in ("", "approximation_jobs")
        family = "approximation_jobs" if of_google else family
        if "complete" in knobs:
            opened = completed(trace_reader.scan(), knobs.pop("complete"), knobs)
        elif isinstance(opened, Google2011) and of_google and opened.source.has("job_events"):
            return approximation_jobs.GoogleScenario.of_reader(opened, **knobs)
    built: Scenario = FAMILIES[family or "gain_overhead"](opened, **knobs)
    return built


@dataclass(frozen=True)
class Outline:
    scenario: str
    family: str
    numbers: dict[str, float]  # slots, servers, arrivals per slot and so on
    job_types: list[dict[str, Any]]  # A row per job type; none in the family without job types
    # ``job_types``, ``channels`` and ``arrivals``; or ``lifetimes`` and ``outages``. Channels are
    # those that fit, or those of seed 0 where the seed draws some.
    frames: dict[str, pl.DataFrame]
    fidelity: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "frames"}


def outline(scenario: Scenario) -> Outline:
    """Summary of a scenario of a trace: numbers, job types, and its tables.

    Raises ScenarioError for a scenario that is not of a trace.
    """
    if isinstance(scenario, TraceScenario | SpeedsTraceScenario):
        numbers, types, frames = _with_types(scenario)
    elif isinstance(scenario, approximation_jobs.JobsTraceScenario):
        numbers, types, frames = _with_lifetimes(scenario)
    else:
        raise ScenarioError(f"scenario {scenario.name!r} has no outline: it is not made of a trace")
    fidelity = scenario.fidelity().to_dict()
    return Outline(scenario.name, scenario.family, numbers, types, frames, fidelity)


Parts = tuple[dict[str, float], list[dict[str, Any]], dict[str, pl.DataFrame]]


def _with_types(scenario: TraceScenario | SpeedsTraceScenario) -> Parts:
    demand, s, problem = scenario.demand, scenario.settings, scenario.instance(0)
    base = problem.base if isinstance(scenario, TraceScenario) else problem.problem  # type: ignore[union-attr]  # each family has its own instance
    channels = base.channels
    rows = demand.rows(s.keep)
    of_type = np.bincount(channels.job_type, minlength=len(rows))
    types = [{**row, "channels": int(n)} for row, n in zip(rows, of_type)]
    slot, job_type = np.nonzero(demand.counts)
    names, servers = np.array(demand.names), np.array(base.cluster.servers)
    connected = {"job_type": names[channels.job_type], "server": servers[channels.server]}
    arriving = {"slot": slot, "job_type": names[job_type], "jobs": demand.counts[slot, job_type]}
    frames = {"job_types": types, "channels": connected, "arrivals": arriving}
    numbers = {
        "slots": scenario.slots,
        "servers": len(servers),
        "job_types": len(types),
        "channels": len(channels),
        "arrivals_per_slot": float(sum(row["arrivals_per_slot"] for row in rows)),
        **{f"load_{device}": load for device, load in scenario.fidelity().load.items()},
    }
    return numbers, types, {name: pl.DataFrame(rows) for name, rows in frames.items()}


def _with_lifetimes(scenario: approximation_jobs.JobsTraceScenario) -> Parts:
    workload, away = scenario.workload, scenario.outages
    a, d = workload.span
    spans = {"job": [str(name) for name in workload.names], "arrival": a, "deadline": d}
    schema = dict.fromkeys(("machine", "first", "back"), pl.Int64)
    absences = [(o.machine, o.first, o.back) for o in away]
    frames = {
        "lifetimes": pl.DataFrame(spans),
        "outages": pl.DataFrame(absences, orient="row", schema=schema),
    }
    numbers = {
        "slots": scenario.slots,
        "slot_s": workload.length / workload.slots,
        "machines": workload.machines,
        "outages": len(away),
        **workload.summary(),
    }
    return numbers, [], frames


def write_outline(
    scenario: Scenario, found: Outline, path: Path, settings: dict[str, Any], out: Path
) -> list[Path]:
    """Write the tables, and ``scenario.toml``, which plays them again; returns what was written.

    A scenario that is built of tables has them saved with it and needs the trace no more; one
    that is not (of job events of Google, and recorded speeds) names the files.

    ``settings`` are the arguments that the trace at ``path`` was opened with; the folder ``out`` is
    made if it is not there.
    """
    paths = []
    for name, frame in found.frames.items():
        paths.append(out / f"workload-{name}.parquet")
        files.write_whole(paths[-1], frame.write_parquet)
    tables = getattr(scenario, "tables", None)
    family = str(scenario.family)
    if tables is None:
        # Relative to the scenario file, so that both can be moved together.
        source = os.path.relpath(path.resolve(), out.resolve())
        arguments = {k: v for k, v in settings.items() if k not in ("family", "trace")}
    else:
        paths += save_tables(tables, out)
        source = "."
        arguments = scenario.settings.model_dump(exclude_unset=True)  # type: ignore[attr-defined]  # every scenario built of tables has settings
        if isinstance(scenario, SpeedsTraceScenario):
            found_at = scenario.measured
            arguments["speeds"] = str(found_at.path.resolve()) if found_at else "drawn"
    # The keys that ``read_scenario`` reads again.
    lines = [f"trace = {toml_value(source)}", f"family = {toml_value(family)}"]
    if tables is None and settings.get("trace"):
        lines.append(f"format = {toml_value(settings['trace'])}")
    lines += ["", "[settings]"]
    lines += [
        f"{key} = {toml_value(value)}" for key, value in arguments.items() if value is not None
    ]
    paths.append(out / "scenario.toml")
    files.write_whole(paths[-1], "\n".join(lines) + "\n")
    return paths
