"""Scenarios of a family of slots from the files of a trace, and their outline.

A gain-minus-overhead problem takes the steps of :mod:`gangwise.papers.slots.demand`, and then
units, contention, utilities and overhead; a job type is connected to every server that can hold one
of its jobs whole.
"""

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import Field

from gangwise.core import files, simulation
from gangwise.core.contracts import Scenario
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.settings import Count, checked, toml_value
from gangwise.core.workload import Channels, ReplayedArrivals
from gangwise.logs import reader_of, ready_tables, without_reader
from gangwise.logs.formats.google import Google2011
from gangwise.logs.tables import Reader, Tables, save_tables
from gangwise.logs.twins import completed
from gangwise.papers.gain_overhead.problem import (
    GainOverheadInstance,
    GainOverheadProblem,
    Utilities,
)
from gangwise.papers.scenarios.drawing import RewardSettings
from gangwise.papers.slots import approximation_jobs, fluctuating_speeds
from gangwise.papers.slots import demand as demands
from gangwise.papers.slots.demand import phrase


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
    "fluctuating_speeds": fluctuating_speeds.SpeedsTraceScenario,
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
    :class:`~gangwise.papers.slots.fluctuating_speeds.SpeedsSettings` or
    :class:`~gangwise.papers.slots.approximation_jobs.JobsSettings`.

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
    if isinstance(scenario, TraceScenario | fluctuating_speeds.SpeedsTraceScenario):
        numbers, types, frames = _with_types(scenario)
    elif isinstance(scenario, approximation_jobs.JobsTraceScenario):
        numbers, types, frames = _with_lifetimes(scenario)
    else:
        raise ScenarioError(f"scenario {scenario.name!r} has no outline: it is not made of a trace")
    fidelity = scenario.fidelity().to_dict()
    return Outline(scenario.name, scenario.family, numbers, types, frames, fidelity)


Parts = tuple[dict[str, float], list[dict[str, Any]], dict[str, pl.DataFrame]]


def _with_types(scenario: TraceScenario | fluctuating_speeds.SpeedsTraceScenario) -> Parts:
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
        if isinstance(scenario, fluctuating_speeds.SpeedsTraceScenario):
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
