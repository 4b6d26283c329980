"""What a trace became: job types, arrivals, lifetimes and load, as tables to keep."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gangwise.core.errors import ScenarioError
from gangwise.scenarios.opm import GoogleScenario
from gangwise.traces.jobs_workload import JobsTraceScenario, ReplayedLifetimes
from gangwise.traces.saved import save_tables
from gangwise.traces.speeds_workload import SpeedsTraceScenario
from gangwise.traces.workload import TraceScenario

if TYPE_CHECKING:
    import polars as pl

    from gangwise.core.contracts import Scenario


@dataclass(frozen=True)
class Outline:
    """A scenario in tables.

    Attributes
    ----------
    scenario, family : str
    numbers : mapping of str to number
        Slots, servers, arrivals per slot and so on.
    job_types : list of dict
        A row per job type; none in the family without job types.
    frames : mapping of str to polars.DataFrame
        ``job_types``, ``channels`` and ``arrivals``; or ``lifetimes`` and ``outages``. Channels are
        those that fit, or those of seed 0 where the seed draws some.
    fidelity : dict
    """

    scenario: str
    family: str
    numbers: dict[str, float]
    job_types: list[dict[str, Any]]
    frames: dict[str, pl.DataFrame]
    fidelity: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """All but the frames, ready for JSON."""
        return {
            "scenario": self.scenario,
            "family": self.family,
            "numbers": self.numbers,
            "job_types": self.job_types,
            "fidelity": self.fidelity,
        }


def outline(scenario: Scenario) -> Outline:
    """What a scenario of a trace is made of.

    Raises
    ------
    ScenarioError
        For a scenario that is not of a trace.
    """
    if isinstance(scenario, TraceScenario | SpeedsTraceScenario):
        return _with_types(scenario)
    if isinstance(scenario, JobsTraceScenario | GoogleScenario):
        return _with_lifetimes(scenario)
    raise ScenarioError(f"scenario {scenario.name!r} has no outline: it is not made of a trace")


def _with_types(scenario: TraceScenario | SpeedsTraceScenario) -> Outline:
    import polars as pl

    demand, s, problem = scenario.demand, scenario.settings, scenario.instance(0)
    base = problem.base if isinstance(scenario, TraceScenario) else problem.problem  # type: ignore[union-attr]  # each family has its own instance
    channels = base.channels
    rows = demand.rows(s.keep)
    of_type = np.bincount(channels.job_type, minlength=len(rows))
    types = [{**row, "channels": int(n)} for row, n in zip(rows, of_type)]
    slot, job_type = np.nonzero(demand.counts)
    names, servers = np.array(demand.names), np.array(base.cluster.servers)
    frames = {
        "job_types": pl.DataFrame(types),
        "channels": pl.DataFrame(
            {"job_type": names[channels.job_type], "server": servers[channels.server]}
        ),
        "arrivals": pl.DataFrame(
            {"slot": slot, "job_type": names[job_type], "jobs": demand.counts[slot, job_type]}
        ),
    }
    numbers = {
        "slots": scenario.slots,
        "servers": len(servers),
        "job_types": len(types),
        "channels": len(channels),
        "arrivals_per_slot": float(sum(row["arrivals_per_slot"] for row in rows)),
        **{f"load_{device}": load for device, load in scenario.fidelity().load.items()},
    }
    return Outline(
        scenario.name, scenario.family, numbers, types, frames, scenario.fidelity().to_dict()
    )


def _with_lifetimes(scenario: JobsTraceScenario | GoogleScenario) -> Outline:
    import polars as pl

    workload: ReplayedLifetimes = scenario.workload
    a, d = workload.span
    away = scenario.outages if isinstance(scenario, JobsTraceScenario) else ()
    frames = {
        "lifetimes": pl.DataFrame(
            {"job": [str(name) for name in workload.names], "arrival": a, "deadline": d}
        ),
        "outages": pl.DataFrame(
            [(o.machine, o.first, o.back) for o in away],
            orient="row",
            schema={"machine": pl.Int64, "first": pl.Int64, "back": pl.Int64},
        ),
    }
    numbers = {
        "slots": scenario.slots,
        "slot_s": workload.length / workload.slots,
        "machines": workload.machines,
        "outages": len(away),
        **workload.summary(),
    }
    return Outline(
        scenario.name, scenario.family, numbers, [], frames, scenario.fidelity().to_dict()
    )


def write_outline(
    scenario: Scenario, found: Outline, path: Path, settings: dict[str, Any], out: Path
) -> list[Path]:
    """Write the tables, and ``scenario.toml``, which plays them again.

    A scenario that is built of tables has them saved beside it and needs the trace no more; one
    that is not (of job events of Google, and recorded speeds) names the files.

    Parameters
    ----------
    scenario : Scenario
    found : Outline
        Of the scenario.
    path : path
        The files of the trace.
    settings : dict
        Arguments that the trace was opened with.
    out : path
        The folder; made if it is not there.

    Returns
    -------
    list of path
        What was written.
    """
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, frame in found.frames.items():
        written.append(out / f"workload-{name}.parquet")
        frame.write_parquet(written[-1])
    tables = getattr(scenario, "tables", None)
    family = str(scenario.family)
    if tables is None:
        where = os.path.relpath(path.resolve(), out.resolve())
        given = {k: v for k, v in settings.items() if k not in ("family", "trace")}
    else:
        written += save_tables(tables, out)
        where = "."
        given = scenario.settings.model_dump(exclude_unset=True)  # type: ignore[attr-defined]  # every scenario built of tables has settings
        if isinstance(scenario, SpeedsTraceScenario):
            place = scenario.measured_at
            given["speeds"] = "drawn" if place is None else str(place.resolve())
    lines = [f"trace = {json_text(where)}", f"family = {json_text(family)}"]
    if tables is None and settings.get("trace"):
        lines.append(f"format = {json_text(settings['trace'])}")
    lines += ["", "[settings]"]
    lines += [f"{key} = {json_text(value)}" for key, value in given.items() if value is not None]
    written.append(out / "scenario.toml")
    written[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return written


def json_text(value: Any) -> str:
    """A text, number, truth value or list as both JSON and TOML write it.

    >>> json_text("a/b"), json_text((1, 2.5)), json_text(True)
    ('"a/b"', '[1, 2.5]', 'true')
    """
    import json

    return json.dumps(value, ensure_ascii=False)
