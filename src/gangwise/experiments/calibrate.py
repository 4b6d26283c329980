"""A log, calibrated: what it tells of its site, as a site file and in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
import polars as pl

import gangwise
from gangwise.core.clock import Clock
from gangwise.core.json_text import json_text
from gangwise.jobs.calibration import Calibration, Finding, calibrate
from gangwise.jobs.contradictions import Record
from gangwise.traces.jobs import JobLog, jobs_of
from gangwise.traces.registered import open_tables
from gangwise.traces.work import period

COLUMNS = {"pool": ("partition", "queue"), "account": ("account", "group")}
"""Who jobs belong to, by scope of caps: the first of these columns of which the log has several."""

FILE = "site.toml"


@dataclass(frozen=True)
class Calibrated:
    """What was found in a log, and what of the log it was found from."""

    source: str
    log: JobLog
    record: Record
    found: Calibration

    @property
    def headline(self) -> list[str]:
        """What was left out and assumed; what the log contradicts; what of that is explained."""
        found, device = self.found, self.record.device
        clock = "; its clock has no known hour of the day" * (self.log.clock is None)
        share = 1 - found.left / found.contradicted if found.contradicted else 0.0
        lines = [
            self.log.played.line + clock,
            f"In {found.contradicted:,.0f} of {found.hours:,.0f} h every job that waited would "
            f"have fitted into idle {device}s, and none was started for {period(found.patience)} "
            f"or longer. No order of the queue does that; {found.refused:,} jobs came then.",
        ]
        if not self.found.findings:
            lines += ["Nothing that was looked for is confirmed: no cap, closing hours or window"]
        elif found.contradicted:
            told = found.refused - found.unexplained
            lines.append(
                f"What follows explains {told:,} of these jobs; {found.left:,.0f} h are left "
                f"({100 * (1 - share):.0f} %). What is left is not explained."
            )
        return lines

    def __str__(self) -> str:
        items = [f"{entry_text(one)}\n  {one.evidence}." for one in self.found.findings]
        return "\n".join([*self.headline, *items])

    def toml(self) -> str:
        lines = [f"# What {self.source} tells of its site, by gangwise {gangwise.__version__}."]
        lines += [f"# {text}" for text in self.headline]
        lines += ["# Rules were fitted on some weeks and judged on the others; none is fitted to"]
        lines += ["# waiting times. Correct what you know better.", ""]
        for one in self.found.findings:
            low, high = one.between
            lines += [f"# {text}" for text in wrap(one.evidence + ".", 96)]
            if one.kind != "closed":
                lines.append(
                    f"# plausible: {low:g} to {'less than ' * (one.kind == 'cap')}{high:g}"
                )
            if one.explains[2]:
                _, told, of = one.explains
                lines.append(f"# explains {told:,} of {of:,} refused jobs in weeks it was not from")
            table = ["[start]" if one.kind == "start" else f"[[{one.kind}]]"]
            table += [f"{key} = {_value(value)}" for key, value in one.entry.items()]
            if one.kind == "closed" and self.log.clock is None:
                table = [f"# {line}" for line in table]
                lines.append("# the log has no clock: give [clock] start and zone, and uncomment")
            lines += [*table, ""]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        found = self.found
        numbers = ("contradicted", "left", "hours", "refused", "unexplained", "patience")
        return {
            "format": "gangwise-calibration-1",
            "version": gangwise.__version__,
            "played": self.log.played.to_dict(),
            **{name: getattr(found, name) for name in numbers},
            "findings": [one.as_dict() for one in found.findings],
        }


def entry_text(one: Finding) -> str:
    """A finding in a line.

    >>> entry_text(Finding("cap", {"scope": "user", "of": "jobs", "most": 4}, (4, 5), ""))
    'cap: scope user, of jobs, most 4'
    """

    def text(value: Any) -> str:
        values = value if isinstance(value, list) else [value]
        return ", ".join(f"{v:,.10g}" if isinstance(v, float) else str(v) for v in values)

    return f"{one.kind}: " + ", ".join(f"{key} {text(v)}" for key, v in one.entry.items())


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json_text(value).strip() if isinstance(value, str) else f"{value:.12g}"


def calibrate_log(
    path: Path | str,
    trace: str = "",
    progress: Callable[[str, int, int], None] | None = None,
    **settings: Any,
) -> Calibrated:
    """Find what a log tells of its site.

    Parameters
    ----------
    path, trace, **settings
        As of :func:`~gangwise.traces.registered.open_tables`.

    Raises
    ------
    ScenarioError
        Where the log does not say when jobs started.
    """
    if progress:
        progress("reading the log", 0, 1)
    tables = open_tables(path, trace=trace, **settings)
    log = jobs_of(tables)
    has = [c for columns in COLUMNS.values() for c in columns if c in tables.jobs.columns]
    named = log.rows.select("row").join(tables.jobs.select("row", *has), on="row", how="left")
    groups = {}
    for scope, columns in COLUMNS.items():
        several = [c for c in columns if c in has and named[c].n_unique() > 1]
        if several:
            groups[scope] = named[several[0]].cast(pl.String).fill_null("").to_numpy().astype(str)
    record = Record.of(
        *(log.jobs, log.nodes, log.played.device, groups),
        log.clock.monday if log.clock else float("nan"),
        (log.host_from, log.host),
    )
    return Calibrated(Path(path).name, log, record, by_local_time(record, log.clock, progress))


def by_local_time(record: Record, clock: Clock | None, progress: Any = None) -> Calibration:
    """Calibration in which hours follow daylight saving; found times are of the log's clock."""
    if clock is None:
        return calibrate(record, progress)
    submit = record.submit + clock.ahead(record.submit)
    start = np.maximum(record.start + clock.ahead(record.start), submit)  # an hour comes twice
    end = np.maximum(record.end + clock.ahead(record.end), start)
    found = calibrate(replace(record, submit=submit, start=start, end=end), progress)
    for one in found.findings:
        for edge in {"from", "to"} & one.entry.keys():
            one.entry[edge] -= float(clock.ahead(np.array([one.entry[edge]]))[0])
    return found
