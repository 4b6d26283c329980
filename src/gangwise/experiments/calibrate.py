"""A log, calibrated: what it tells of its site, as a site file and in words."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
import polars as pl

import gangwise
from gangwise.core.clock import Clock
from gangwise.core.errors import ScenarioError, TraceError
from gangwise.core.json_text import json_text
from gangwise.jobs.calibration import Calibration, Finding, calibrate
from gangwise.jobs.contradictions import Missing, Record
from gangwise.jobs.hours import ALWAYS
from gangwise.traces import open_tables
from gangwise.traces.formats.slurm_notation import fold_nodes
from gangwise.traces.jobs import JobLog, jobs_of
from gangwise.traces.tables import period

FILE = "site.toml"
MOST_PRINTED = 20  # findings that are printed
NODE_EVENTS = "node events"


@dataclass(frozen=True)
class Calibrated:
    """What was found in a log, and what of the log it was found from."""

    source: str
    log: JobLog
    record: Record
    found: Calibration
    unknown: int = 0  # nodes of node events that the log does not have

    @property
    def headline(self) -> list[str]:
        """What was left out and assumed; what the log contradicts; what of that is explained."""
        found, device = self.found, self.record.device
        clock = "; its clock has no known hour of the day" * (self.log.clock is None)
        share = 1 - found.left / found.contradicted if found.contradicted else 0.0
        lines = [
            self.log.played.line + clock,
            "Nobody waited, or the log does not say how long"
            if bool((self.record.start == self.record.submit).all())
            else f"In {found.contradicted:,.0f} of {found.hours:,.0f} h every job that waited "
            f"would have fitted into idle {device}s, and none was started for "
            f"{period(found.patience)} or longer. No order of the queue does that; "
            f"{found.refused:,} jobs came then.",
        ]
        if away := [
            one.explains[0] for one in found.findings if one.entry.get("why") == NODE_EVENTS
        ]:
            lines.append(
                f"{len(away):,} windows are those of node events, none is guessed: {sum(away):,} "
                f"{device}-hours were not there; {self.unknown:,} nodes of the events are not in "
                "the log"
            )
        if not self.found.findings:
            lines += ["Nothing that was looked for is confirmed: no cap, closing hours or window"]
        elif found.contradicted:
            explained = found.refused - found.unexplained
            lines.append(
                f"What follows explains {explained:,} of these jobs; {found.left:,.0f} h are left "
                f"({100 * (1 - share):.0f} %). What is left is not explained."
            )
        return lines

    def __str__(self) -> str:
        items = [f"{entry_text(one)}\n  {one.evidence}." for one in self.found.findings]
        more = len(items) - MOST_PRINTED
        return "\n".join(
            [*self.headline, *items[:MOST_PRINTED], *[f"and {more:,} more"] * (more > 0)]
        )

    def toml(self) -> str:
        lines = [f"# What {self.source} tells of its site, by gangwise {gangwise.__version__}."]
        lines += [f"# {text}" for text in self.headline]
        lines += ["# Rules were fitted on some weeks and judged on the others; none is fitted to"]
        lines += ["# waiting times. Correct what you know better.", ""]
        for one in self.found.findings:
            low, high = one.between
            lines += [f"# {text}" for text in wrap(one.evidence + ".", 96)]
            if one.kind != "closed" and low < high:
                lines.append(
                    f"# plausible: {low:g} to {'less than ' * (one.kind == 'cap')}{high:g}"
                )
            if one.explains[2]:
                _, explained, of = one.explains
                lines.append(
                    f"# explains {explained:,} of {of:,} refused jobs in weeks it was not from"
                )
            table = ["[start]" if one.kind == "start" else f"[[{one.kind}]]"]
            table += [f"{key} = {_value(value)}" for key, value in one.entry.items()]
            always = one.entry.get("hours") == [ALWAYS]
            if one.kind == "closed" and self.log.clock is None and not always:
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
    events: Path | None = None,
    **settings: Any,
) -> Calibrated:
    """Find what a log tells of its site.

    ``path``, ``trace`` and ``settings`` are those of
    :func:`~gangwise.traces.open_tables`; ``events`` is a CSV file of when nodes went and
    came back, see :func:`node_events`, in place of those of the log. ScenarioError where the log
    does not say when jobs started.
    """
    if progress:
        progress("reading the log", 0, 1)
    tables = open_tables(path, trace=trace, **settings)
    log = jobs_of(tables)
    given = tables.events if events is None else node_events(events, log.clock)
    jobs = log.jobs
    if given is not None and not np.isfinite(jobs.recorded_start).any():  # nobody waits, then
        jobs = replace(jobs, recorded_start=jobs.submit, recorded_end=jobs.submit + jobs.run)
    places = {"pool": (jobs.pools, jobs.pool), "account": (jobs.accounts, jobs.charged)}
    groups = {scope: np.array(names)[codes] for scope, (names, codes) in places.items()}
    monday = log.clock.monday if log.clock else 0.0
    hosts = log.host_from, log.host
    record = Record.of(jobs, log.nodes, log.played.device, groups, monday, hosts)
    if given is None and (record.start == record.submit).all():
        raise ScenarioError(
            "the log says that every job started when it was submitted: nobody waited, so there "
            "is nothing to calibrate"
        )
    windows = [] if given is None else [*windows_of(given, record)]
    away = None if given is None else tuple(m for one in windows for m in one.rule)
    found = by_local_time(record, log.clock, progress, away)
    found = replace(found, findings=(*found.findings, *windows))
    unknown = {*log.nodes.names} if given is None or len(log.nodes) == 1 else {*given["server"]}
    return Calibrated(Path(path).name, log, record, found, len(unknown - {*log.nodes.names}))


EVENTS = dict.fromkeys(("up", "add", "resume", "return"), True)
EVENTS |= dict.fromkeys(("down", "drain", "fail", "remove"), False)


def node_events(file: Path, clock: Clock | None) -> pl.DataFrame:
    """Node events: ``time server up`` of a CSV file with the columns ``node``, ``time``, ``event``.

    Times are seconds on the log's clock or dates; TraceError names the row at fault.
    """
    found = []
    try:
        rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    except (OSError, ValueError) as error:
        raise TraceError(f"the node events cannot be read: {error}", file) from error
    for i, row in enumerate(rows, 2):
        try:
            time, up = row["time"], EVENTS[row["event"].strip().lower()]
            dated = clock is not None and ":" in time
            at = clock.at(datetime.fromisoformat(time)) if clock and dated else float(time)
            found.append((at, row["node"], up))
        except (KeyError, ValueError, AttributeError, TypeError) as error:
            dates = " or a date" * (clock is not None)
            what = f"{row} has no node, time (seconds{dates}) and event ({', '.join(EVENTS)})"
            raise TraceError(what, file, i) from error
    return pl.DataFrame(found, ("time", "server", "up"), orient="row")


def windows_of(events: pl.DataFrame, record: Record) -> Iterator[Finding]:
    """From when to when nodes were away; one whose first event is ``up`` was away before.

    Where the log has processors and no nodes, each node of the events is one processor.
    """
    place = {name: n for n, name in enumerate(record.nodes.names)}
    whole, spans = len(place) == 1, defaultdict(list)
    begin, end = float(record.submit.min()), float(record.end.max())
    for (name,), rows in events.sort("time", maintain_order=True).group_by("server"):
        since = begin if rows["up"][0] else None
        for time, up in (*rows.select("time", "up").rows(), (np.inf, True)):
            if not up and since is None:
                since = max(time, begin)
            elif up and since is not None:
                if since < min(time, end) and (whole or name in place):
                    spans[since, min(time, end)].append(-1 if whole else place[name])
                since = None
    sizes = record.nodes.capacity[:, record.nodes.devices.index(record.device)] / 1000
    for (since, to), nodes in sorted(spans.items()):
        lost = float(len(nodes)) if whole else float(sizes[nodes].sum())
        names = fold_nodes(record.nodes.names[n] for n in nodes)
        which = {"count": len(nodes)} if whole else {"nodes": names}
        entry = {"from": since, "to": to, **which, "why": NODE_EVENTS}
        text = f"{NODE_EVENTS}: {lost:g} {record.device} were away for {period(to - since)}"
        hours = round(lost * (to - since) / 3600), 0, 0
        gone = tuple(Missing(since, to, 1.0, n) for n in nodes)
        yield Finding("window", entry, (lost, lost), text, hours, gone)


def by_local_time(
    record: Record, clock: Clock | None, progress: Any = None, away: Any = None
) -> Calibration:
    """Calibration in which hours follow daylight saving; found times are of the log's clock."""
    if clock is None:
        return calibrate(record, progress, away)
    submit = record.submit + clock.ahead(record.submit)
    start = np.maximum(record.start + clock.ahead(record.start), submit)  # an hour comes twice
    end = np.maximum(record.end + clock.ahead(record.end), start)
    if away:
        edges = np.array([(m.begin, m.end) for m in away])
        edges += clock.ahead(edges.ravel()).reshape(edges.shape)
        away = tuple(m._replace(begin=a, end=b) for m, (a, b) in zip(away, edges.tolist()))
    found = calibrate(replace(record, submit=submit, start=start, end=end), progress, away)
    for one in found.findings:
        for edge in {"from", "to"} & one.entry.keys():
            one.entry[edge] -= float(clock.ahead(np.array([one.entry[edge]]))[0])
    return found
