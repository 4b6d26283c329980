"""Findings in the log of a cluster: which nodes are slow, and the rules of its site.

To find slow nodes, runs of one program are compared: of what a user submitted under one name, of
one size and with one request; digits of names do not count, since they number runs. Where a name
ran once only, what the user submitted of that size and request counts as one program. Jobs that did
not complete, or reached their limit, say when they were stopped rather than how long they take:
they are left out.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import gangwise
from gangwise import notation
from gangwise.core import files, terminal
from gangwise.core.errors import ScenarioError, TraceError
from gangwise.core.settings import Clock, toml_text
from gangwise.jobs.model import Conditions, Jobs, Node, Nodes
from gangwise.jobs.tenancy import ALWAYS
from gangwise.logs import open_tables
from gangwise.logs.jobs import JobLog, jobs_of
from gangwise.logs.tables import Tables, percent_text, work
from gangwise.study.statistics import count

if TYPE_CHECKING:  # statistics that no replay needs are imported where they are used
    from gangwise.jobs.distance import Distance
    from gangwise.sites.calibration import Calibration, FoundRule
    from gangwise.sites.node_effects import DistanceEffects, Effects, Runs
    from gangwise.sites.retelling import Record

phrase = terminal.phrases("gangwise.study")

Places = Mapping[str, Mapping[str, str]]
"""Labels of nodes that say where they are, by node."""

NAMES = ("application", "type", "group", "workload")
REQUEST = ("partition", "tasks", "cpu", "mem", "gpu", "models", "limit")
DONE = ("completed", "pass", "succeeded", "finished", "terminated")
"""How formats call jobs that did what they had to, in small letters."""
LISTED = "slurm-sacct (NodeList), philly, kubernetes, and csv with a column that is mapped to hosts"
MOST_NODES = 16
"""Larger gangs are left out: nearly all have a slow node, and hardly any shows which."""
REACHED = 0.99  # share of its limit from which on a job has reached it


def _percent(log: float) -> str:
    percent = 100 * np.expm1(log)
    return f"{percent:.2g}" if percent < 99 else f"{percent:.0f}"


def _lost(left_out: Mapping[str, int]) -> str:
    return "; ".join(f"{n:,} {reason}" for reason, n in left_out.items() if n)


@dataclass(frozen=True, eq=False)
class NodeFindings:
    """The effects of a log's nodes on run times: which nodes are slow, and how sure that is."""

    trace: str  # registered name of the format
    names: tuple[str, ...]  # [N]
    effects: Effects
    read: int  # jobs of the log
    left_out: Mapping[str, int]  # why jobs are not compared, and how many
    unnamed: int  # jobs compared with others of their user, size and request, whatever their name
    by: float  # nodes are named that take longer by more than this share
    distance: DistanceFindings | None = None

    @property
    def line(self) -> str:
        e, lost = self.effects, _lost(self.left_out)
        return phrase(
            "nodes compared",
            trace=self.trace,
            share=percent_text(e.compared, self.read),
            read=self.read,
            programs=count(e.programs, "program"),
            unnamed=f" ({self.unnamed:,} by user and request alone)" * bool(self.unnamed),
            lost=f"; left out: {lost}" * bool(lost),
        )

    @property
    def answer(self) -> str:
        e = self.effects
        slow, judged = int(e.slow.sum()), int(np.isfinite(e.p).sum())
        return phrase(
            "nodes slow",
            named=f"{slow} of {judged:,} nodes {'is' if slow == 1 else 'are'} slow",
            more=f"by more than {100 * self.by:g} %, " * bool(self.by),
            **dict(zip(("sd", "low", "high"), map(_percent, e.spread))),
            noise=_percent(e.noise),
            changed=f"; {count(len(e.changes), 'node')} changed over time" * bool(e.changes),
        )

    def as_dict(self) -> dict[str, Any]:
        e = self.effects
        columns = {"longer": np.expm1(e.mean), "low": np.expm1(e.low), "high": np.expm1(e.high)}
        columns |= {"p": e.p, "slow": e.slow, "runs": e.runs, "shrunk": np.expm1(e.shrunk)}
        rows = zip(*(values.tolist() for values in columns.values()))
        changes = [change._asdict() | {"node": self.names[change.node]} for change in e.changes]
        for change in changes:
            change |= {key: float(np.expm1(change[key])) for key in ("before", "after")}
        return {
            "trace": self.trace,
            "line": self.line,
            "answer": self.answer,
            "jobs": {"read": self.read, "compared": e.compared, "left_out": dict(self.left_out)},
            "spread": dict(zip(("sd", "low", "high"), e.spread)),
            "noise": e.noise,
            "nodes": [
                {"node": name, **dict(zip(columns, row))} for name, row in zip(self.names, rows)
            ],
            "changes": changes,
            **({"distance": self.distance.as_dict()} if self.distance else {}),
        }


@dataclass(frozen=True, eq=False)
class DistanceFindings:
    """Cost of being apart for the programs of each job type: the levels, and the effects."""

    labels: tuple[str, ...]  # of nodes, which are levels: rack, …
    kinds: tuple[str, ...]  # [C]
    effects: DistanceEffects
    unplaced: int  # nodes of the log that the topology does not name

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the levels that are crossed: a node, a rack, … [H]."""
        return ("node", *(label.replace(".", " ") for label in self.labels))

    @property
    def answer(self) -> str:
        e, said = self.effects, []
        for h, level in enumerate(self.levels):
            if np.isfinite(e.mean[0, h]):
                mean, low, high = (
                    f"{100 * np.expm1(v[0, h]):.1f}" for v in (e.mean, e.low, e.high)
                )
                said.append(f"out of one {level} {mean} % more ({low} to {high} %)")
        unplaced = f"; {count(self.unplaced, 'node')} not in it: near to none" * bool(self.unplaced)
        if not said:
            return phrase("distance unknown", unplaced=unplaced)
        named = int(e.slow[1:].any(axis=1).sum())
        return phrase(
            "distance", said=", ".join(said), named=named, of=len(self.kinds), unplaced=unplaced
        )

    def as_dict(self) -> dict[str, Any]:
        e = self.effects
        rows = []
        for c, kind in enumerate(("", *self.kinds)):
            for h, level in enumerate(self.levels):
                longer = {k: float(np.expm1(getattr(e, k)[c, h])) for k in ("mean", "low", "high")}
                entry = {"job_type": kind, "crosses": level, **longer, "p": float(e.p[c, h])}
                rows.append(entry | {"named": bool(e.slow[c, h]), "runs": e.runs[c].tolist()})
        return {"answer": self.answer, "levels": list(self.levels), "effects": rows}


def find_slow_nodes(
    log: Tables | Path | str,
    *,
    trace: str = "",
    by: float = 0.01,
    topology: Path | Places | None = None,
    kinds: Mapping[int, str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    **knobs: Any,
) -> NodeFindings:
    """Slow nodes of a log, from its run times and node lists alone.

    ``log`` is its tables, or with ``trace`` and ``knobs`` what :func:`~gangwise.logs.open_tables`
    opens. Nodes are named on which runs take longer ``by`` more than this share. With a
    ``topology``, a file of :func:`.node_effects.read_topology` or what it gives, what distance
    costs gangs is estimated as well, of each kind of jobs: by the log's names, or ``kinds`` by
    place. TraceError when the log has no node lists, or no program ran twice on several nodes.
    """
    advance = progress or (lambda what, done, of: None)
    advance("reading", 0, 1)
    tables = log if isinstance(log, Tables) else open_tables(log, trace=trace, **knobs)
    rows, left_out = _comparable(tables)
    rows, unnamed = _programs(rows, kinds)
    alone = len(rows)
    # A program that ran once has nothing to be compared with.
    rows = rows.filter(pl.len().over("program") > 1)
    left_out["ran once"] = alone - len(rows)
    if rows.is_empty():
        raise TraceError(f"no program of {tables.trace} ran twice: {_lost(left_out)}")
    places = rows["hosts"].unique(maintain_order=True)
    hosts = places.str.split("|")
    host = hosts.explode()
    names = host.unique().sort()
    number = host.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
    from gangwise.sites.node_effects import Runs, node_effects

    runs = Runs(
        rows["run"].log().to_numpy(),
        rows["start"].to_numpy(),
        rows["program"].rank("dense").to_numpy().astype(np.int64) - 1,
        rows["hosts"].cast(pl.Enum(places)).to_physical().to_numpy().astype(np.int64),
        np.concatenate([[0], np.cumsum(hosts.list.len().to_numpy())]).astype(np.int64),
        number,
        len(names),
    )
    effects = node_effects(runs, by, lambda done, of: advance("comparing", done, of))
    left_out["of programs that always ran on the same nodes"] = len(rows) - effects.compared
    distance = None
    if topology is not None:
        distance = _distance_of(runs, rows["kind"].to_list(), tuple(names), effects, topology)
    return NodeFindings(
        tables.trace, tuple(names), effects, len(tables.jobs), left_out, unnamed, by, distance
    )


def _distance_of(
    runs: Runs,
    kinds: Sequence[str],
    names: tuple[str, ...],
    effects: Effects,
    topology: Path | Places,
) -> DistanceFindings:
    """Cost of distance, with the effects of slow nodes taken off."""
    from gangwise.jobs.distance import domains, levels_of, levels_on
    from gangwise.sites.node_effects import distance_effects, read_topology

    places = read_topology(topology) if isinstance(topology, Path) else topology
    nodes = Nodes.of(Node(name, {"cpu": 1}, places.get(name, {})) for name in names)
    levels = levels_of(nodes)
    if levels and not levels[0].startswith("switch."):  # as the columns of a table name them
        levels = ()
    levels = levels or tuple(next(iter(places.values()), {}))
    domain = domains(nodes, levels)
    # The slowest node of each place; a node without an estimate counts as none.
    slow = np.maximum.reduceat(np.nan_to_num(effects.shrunk)[runs.node], runs.place_from[:-1])
    several = sorted(set(kinds))
    number = {kind: c for c, kind in enumerate(several)}
    found = distance_effects(
        # What the slowest node costs is taken off first, and is no cost of distance.
        runs._replace(log_run=runs.log_run - slow[runs.place]),
        levels_on(domain, runs.node, runs.place_from),
        np.array([number[kind] for kind in kinds]),
        len(domain),
    )
    missing = sum(name not in places for name in names)
    return DistanceFindings(levels, tuple(several), found, missing)


def _comparable(tables: Tables) -> tuple[pl.DataFrame, dict[str, int]]:
    """Jobs that completed, with ``run``, ``start``, ``hosts``; and how many others there are."""
    jobs = tables.jobs
    if "hosts" not in jobs.columns or not (jobs["hosts"].fill_null("") != "").any():
        raise TraceError(f"{tables.trace} does not say where jobs ran; node lists have {LISTED}")
    begun = "started" if "started" in jobs.columns else "created"
    rows = jobs.with_columns(work(jobs)["run"], pl.col(begun).alias("start"))
    rows = rows.with_row_index("place")
    rules = {"name no nodes": pl.col("hosts").fill_null("") != ""}
    # A list has one separator less than nodes.
    large = pl.col("hosts").str.count_matches("|", literal=True) >= MOST_NODES
    # Of a gang of nearly all nodes hardly any node is left to compare with.
    rules[f"ran on more than {MOST_NODES} nodes"] = ~large.fill_null(False)
    if "status" in jobs.columns:
        status = pl.col("status").fill_null("").str.to_lowercase()
        # Only where the log says of some job that it completed: else nobody would be left.
        if jobs.select(status.is_in(DONE).any()).item():
            rules["did not complete"] = status.is_in(DONE)
    if "limit" in jobs.columns:
        # Killed at its limit a job took what was asked for, however slow its nodes were.
        reached = pl.col("run") >= REACHED * pl.col("limit")
        rules["reached their limits"] = ~reached.fill_null(False)
    rules["took no time, or none that is known"] = (pl.col("run") > 0).fill_null(False)
    left_out = {}
    for reason, rule in rules.items():
        before, rows = len(rows), rows.filter(rule)
        left_out[reason] = before - len(rows)
    return rows, left_out


def _programs(rows: pl.DataFrame, kinds: Mapping[int, str] | None) -> tuple[pl.DataFrame, int]:
    """A number ``program`` for each row, and how many rows have one that is of no name."""
    request = ["user", *(c for c in REQUEST if c in rows.columns)]
    request = [c for c in request if c in rows.columns]
    called = [c for c in NAMES if c in rows.columns]
    stems = [pl.col(c).cast(pl.String).str.replace_all(r"\d+", "#") for c in called]
    kind = next((pl.col(c).cast(pl.String) for c in (*called, *request)), pl.lit(""))
    rows = rows.with_columns(stems).with_columns(
        program=pl.struct([*request, *called]).rank("dense").cast(pl.Int64),
        kind=kind.fill_null("").str.replace_all(r"\d+", "#"),
    )
    # What ran once under its name is compared by user and request instead; negative numbers keep
    # the two apart.
    once = pl.len().over("program") == 1
    by_request = -pl.struct(request).rank("dense").cast(pl.Int64)
    rows = rows.with_columns(program=pl.when(once).then(by_request).otherwise("program"))
    if kinds is not None:
        rows = rows.with_columns(kind=pl.col("place").replace_strict(kinds, default=""))
    repeated = rows.filter((pl.col("program") < 0) & (pl.len().over("program") > 1))
    kept = "run", "start", "hosts", "program", "kind"
    return rows.select(kept), len(repeated) if called else 0


ESTIMATED = "estimated"  # the world that plays what a log says of its nodes


@dataclass(frozen=True, eq=False)
class EstimatedWorld:
    """The log's own nodes, as unlike as its run times show them to be.

    Effects are drawn, seed by seed, from what is believed of them: estimates shrunk by how unlike
    nodes are at all (empirical Bayes), and what is left open. So nodes of which little is known
    differ as nodes of the log do. What distance costs job types is drawn so as well, level by
    level. On the nodes where it ran, a job takes as long as logged.
    """

    findings: NodeFindings
    places: Places  # labels of nodes that say where they are; none: distance costs nothing
    digests: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of a file of them

    @classmethod
    def of_log(cls, log: JobLog, topology: str, path: str, **knobs: Any) -> EstimatedWorld:
        """Learn from run times of a log, with the labels of a topology or of the log's nodes."""
        from gangwise.jobs.distance import levels_of
        from gangwise.sites.node_effects import read_topology

        file, nodes, jobs = Path(topology), log.nodes, log.jobs
        places: Places = dict(zip(nodes.names, nodes.labels)) if levels_of(nodes) else {}
        # A file that is named comes before the labels of the log.
        places = read_topology(file) if topology else places
        digests = {file.name: files.digest_of(file.read_bytes())} if topology else {}
        kinds = dict(zip(jobs.row.tolist(), np.array(jobs.types)[jobs.type].tolist()))
        return cls(
            find_slow_nodes(path, topology=places or None, kinds=kinds, **knobs), places, digests
        )

    def describe(self) -> str:
        sd, low, high = (100 * np.expm1(v) for v in self.findings.effects.spread)
        line = phrase("estimated", sd=sd, low=low, high=high, line=self.findings.line)
        return f"{line}. {self.findings.distance.answer}" if self.findings.distance else line

    def draw(self, log: JobLog, jobs: Jobs, seed: int) -> tuple[Jobs, Nodes, Conditions]:
        """Jobs with the work that they did, the nodes of the log, and their hidden rates."""
        from gangwise.jobs.distance import domains, levels_on

        e, rng = self.findings.effects, np.random.default_rng([seed, 29])
        drawn = dict(zip(self.findings.names, e.shrunk + e.left * rng.normal(size=e.left.size)))
        sd = float(np.nan_to_num(e.spread[0]))
        # A node that the log says nothing of is drawn as nodes of this log are.
        effect = np.array([drawn.get(n, sd * rng.normal()) for n in log.nodes.names])
        # A gang is as slow as its slowest node: that much of the logged time was not work.
        slowest = np.zeros(int(log.jobs.row.max()) + 1)
        placed = np.flatnonzero(np.diff(log.host_from))
        slowest[log.jobs.row[placed]] = np.maximum.reduceat(effect[log.host], log.host_from[placed])
        rates = np.tile(np.exp(-effect), (len(jobs.types), 1))
        run, nodes, distance = jobs.run * np.exp(-slowest[jobs.row]), log.nodes, None
        if self.findings.distance is not None:
            distance = self._distance(jobs.types, rng)
            labels = zip(nodes.names, nodes.labels)
            nodes = replace(
                nodes, labels=tuple({**own, **self.places.get(name, {})} for name, own in labels)
            )
            level = np.zeros(slowest.size, dtype=np.int64)
            level[log.jobs.row[placed]] = levels_on(
                domains(nodes, distance.levels),
                log.host,
                np.append(log.host_from[placed], log.host.size),
            )
            shares = distance.factor(jobs.type, jobs.sizes)
            run = run * shares[np.arange(len(jobs)), level[jobs.row]]
        return replace(jobs, run=run), nodes, Conditions(rates=rates, distance=distance)

    def _distance(self, types: Sequence[str], rng: np.random.Generator) -> Distance:
        """Cost of distance for job types, drawn from estimates shrunk to that of all."""
        from gangwise.jobs.distance import Distance
        from gangwise.sites.node_effects import spread_of

        found = self.findings.distance
        assert found is not None
        row = {kind: c for c, kind in enumerate(found.kinds, 1)}
        at = np.array([row.get(kind, 0) for kind in types])
        # Half of a 95 % interval is 1.96 standard errors.
        effects, sds = found.effects.mean, (found.effects.high - found.effects.mean) / 1.96
        cost = np.zeros((len(types), len(found.levels) + 1))
        for h in np.flatnonzero(np.isfinite(effects[0])).tolist():
            # N(that of all, τ²) and what the runs of the type say; nothing where they say nothing.
            tau = float(np.nan_to_num(spread_of(effects[1:, h], sds[1:, h], len(row))[0]))
            precision = np.where(at > 0, np.nan_to_num(sds[at, h] ** -2.0), 0.0)
            weight = tau**2 * precision / (1 + tau**2 * precision)
            sd = np.sqrt(tau**2 * (1 - weight) + ((1 - weight) * sds[0, h]) ** 2)
            mean = weight * np.nan_to_num(effects[at, h]) + (1 - weight) * effects[0, h]
            cost[:, h + 1] = mean + sd * rng.normal(size=len(types))
        # Who leaves a rack has left a node: levels add up, and distance makes nothing faster.
        overhead = np.expm1(np.maximum(np.cumsum(cost, axis=1), 0.0))
        return Distance(found.labels, overhead, np.zeros_like(overhead))


FILE = "site.toml"
MOST_PRINTED = 20  # findings that are printed
NODE_EVENTS = "node events"


@dataclass(frozen=True)
class Calibrated:
    """Rules of a site that were found in a log, and the record that they were found from."""

    source: str
    log: JobLog
    record: Record
    found: Calibration
    unknown: int = 0  # nodes of node events that the log does not have

    @property
    def headline(self) -> list[str]:
        """Lines: what was left out and assumed, what the log contradicts, how much is explained."""
        fit, device = self.found, self.record.device
        clock = "; its clock has no known hour of the day" * (self.log.clock is None)
        share = 1 - fit.left / fit.contradicted if fit.contradicted else 0.0
        patience = notation.duration(fit.patience)
        waits = phrase("contradicted", found=fit, device=device, patience=patience)
        if (self.record.start == self.record.submit).all():
            waits = "No job waited, or the log does not say how long"
        elif not fit.contradicted:
            waits = f"No contradiction found in the {fit.hours:,.0f} h in which jobs waited."
        lines = [self.log.played.line + clock, waits]
        # What events say was away is a fact; the other rules are found.
        of_events = [rule for rule in fit.findings if rule.entry.get("why") == NODE_EVENTS]
        if away := [rule.explains[0] for rule in of_events]:
            lost = {"hours": sum(away), "device": device, "unknown": self.unknown}
            lines.append(phrase("windows of events", windows=len(away), **lost))
        if not self.found.findings:
            lines += ["Nothing that was looked for is confirmed: no cap, closing hours or window"]
        elif fit.contradicted:
            left = {"jobs": fit.unexplained, "left": fit.left, "open": 100 * (1 - share)}
            lines.append(phrase("rules explain", **left))
        return lines

    def __str__(self) -> str:
        items = [f"{entry_text(rule)}\n  {rule.evidence}." for rule in self.found.findings]
        if (unprinted := len(items) - MOST_PRINTED) > 0:
            items[MOST_PRINTED:] = [f"and {unprinted:,} more"]
        return "\n".join([*self.headline, *items])

    def toml(self) -> str:
        lines = [f"# Rules of the site of {self.source}, found by gangwise {gangwise.__version__}."]
        lines += [f"# {text}" for text in self.headline]
        lines += ["# Rules were fitted on some weeks and judged on the others; none is fitted to"]
        lines += ["# waiting times. Correct what you know better.", ""]
        for rule in self.found.findings:
            low, high = rule.between
            lines += [f"# {text}" for text in wrap(rule.evidence + ".", 96)]
            if rule.kind != "closed" and low < high:
                lines.append(
                    f"# plausible: {low:g} to {'less than ' * (rule.kind == 'cap')}{high:g}"
                )
            if rule.explains[2]:
                _, explained, refused = rule.explains
                lines.append(
                    f"# explains {explained:,} of {refused:,} refused jobs in weeks it was not from"
                )
            entry = rule.entry if rule.kind == "start" else [rule.entry]
            table = toml_text({rule.kind: entry}).splitlines()
            always = rule.entry.get("hours") == [ALWAYS]
            if rule.kind == "closed" and self.log.clock is None and not always:
                table = [f"# {line}" for line in table]
                lines.append("# the log has no clock: give [clock] start and zone, and uncomment")
            lines += [*table, ""]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        calibration = self.found
        numbers = ("contradicted", "left", "hours", "refused", "unexplained", "patience")
        return {
            "format": "gangwise-calibration-1",
            "version": gangwise.__version__,
            "played": self.log.played.to_dict(),
            **{name: getattr(calibration, name) for name in numbers},
            "findings": [rule.as_dict() for rule in calibration.findings],
        }


def entry_text(one: FoundRule) -> str:
    """A finding in a line; times of the log's clock are days since its time 0.

    >>> from gangwise.sites.calibration import FoundRule
    >>> entry_text(FoundRule("cap", {"scope": "user", "of": "jobs", "most": 4}, (4, 5), ""))
    'cap: scope user, of jobs, most 4'
    >>> entry_text(FoundRule("closed", {"longer_than": 14400.0, "to": 22327169.0}, (0, 1), ""))
    'closed: longer than 4 h, to day 258.4'
    """

    def text(key: str, value: Any) -> str:
        if key in ("longer_than", "latency"):
            return notation.duration(value)
        if key in ("from", "to"):
            return f"day {value / notation.DAY:.1f}"
        values = value if isinstance(value, list) else [value]
        return ", ".join(f"{v:,.10g}" if isinstance(v, float) else str(v) for v in values)

    entries = (f"{key.replace('_', ' ')} {text(key, v)}" for key, v in one.entry.items())
    return f"{one.kind}: {', '.join(entries)}"


def calibrate_log(
    path: Path | str,
    trace: str = "",
    progress: Callable[[str, int, int], None] | None = None,
    events: Path | None = None,
    **settings: Any,
) -> Calibrated:
    """Find the rules of a site in its log.

    ``path``, ``trace`` and ``settings`` are those of
    :func:`~gangwise.logs.open_tables`; ``events`` is a CSV file of when nodes went and
    came back, see :func:`node_events`, in place of those of the log. ScenarioError where the log
    does not say when jobs started.
    """
    from gangwise.sites.retelling import Record

    if progress:
        progress("reading the log", 0, 1)
    tables = open_tables(path, trace=trace, **settings)
    log = jobs_of(tables)
    times = tables.events if events is None else node_events(events, log.clock)
    jobs = log.jobs
    if times is not None and not np.isfinite(jobs.recorded_start).any():  # no job waits, then
        jobs = replace(jobs, recorded_start=jobs.submit, recorded_end=jobs.submit + jobs.run)
    places = {"pool": (jobs.pools, jobs.pool), "account": (jobs.accounts, jobs.charged)}
    groups = {scope: np.array(names)[codes] for scope, (names, codes) in places.items()}
    monday = log.clock.monday if log.clock else 0.0
    hosts = log.host_from, log.host
    record = Record.of(jobs, log.nodes, log.played.device, groups, monday, hosts)
    if times is None and (record.start == record.submit).all():
        raise ScenarioError(
            "the log says that every job started when it was submitted: no job waited, so there "
            "is nothing to calibrate"
        )
    windows = [] if times is None else [*windows_of(times, record)]
    away = None if times is None else tuple(m for w in windows for m in w.rule)
    fit = by_local_time(record, log.clock, progress, away)
    fit = replace(fit, findings=(*fit.findings, *windows))
    # Where the log has processors and no nodes, no node is unknown.
    unknown = {*log.nodes.names} if times is None or len(log.nodes) == 1 else {*times["server"]}
    return Calibrated(Path(path).name, log, record, fit, len(unknown - {*log.nodes.names}))


EVENTS = dict.fromkeys(("up", "add", "resume", "return"), True)
EVENTS |= dict.fromkeys(("down", "drain", "fail", "remove"), False)


def node_events(file: Path, clock: Clock | None) -> pl.DataFrame:
    """Node events: ``time server up`` of a CSV file with the columns ``node``, ``time``, ``event``.

    Times are seconds on the log's clock or dates; TraceError names the row at fault.
    """
    rows_read = []
    try:
        rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    except (OSError, ValueError) as error:
        raise TraceError(f"the node events cannot be read: {error}", file) from error
    for i, row in enumerate(rows, 2):
        try:
            time, up = row["time"], EVENTS[row["event"].strip().lower()]
            # A colon tells a date from seconds.
            dated = clock is not None and ":" in time
            at = clock.at(datetime.fromisoformat(time)) if clock and dated else float(time)
            rows_read.append((at, row["node"], up))
        except (KeyError, ValueError, AttributeError, TypeError) as error:
            dates = " or a date" * (clock is not None)
            fault = f"{row} has no node, time (seconds{dates}) and event ({', '.join(EVENTS)})"
            raise TraceError(fault, file, i) from error
    return pl.DataFrame(rows_read, ("time", "server", "up"), orient="row")


def windows_of(events: pl.DataFrame, record: Record) -> Iterator[FoundRule]:
    """From when to when nodes were away; one whose first event is ``up`` was away before.

    Where the log has processors and no nodes, each node of the events is one processor.
    """
    from gangwise.sites.calibration import FoundRule
    from gangwise.sites.retelling import Missing

    place = {name: n for n, name in enumerate(record.nodes.names)}
    processors, spans = len(place) == 1, defaultdict(list)
    begin, end = float(record.submit.min()), float(record.end.max())
    for (name,), rows in events.sort("time", maintain_order=True).group_by("server"):
        # A node whose first event is that it comes back was away from the start of the log.
        since = begin if rows["up"][0] else None
        # At the end all are back, which closes the spans that are open.
        for time, up in (*rows.select("time", "up").rows(), (np.inf, True)):
            if not up and since is None:
                since = max(time, begin)
            elif up and since is not None:
                if since < min(time, end) and (processors or name in place):
                    spans[since, min(time, end)].append(-1 if processors else place[name])
                since = None
    sizes = record.nodes.capacity[:, record.nodes.devices.index(record.device)] / 1000
    for (since, to), nodes in sorted(spans.items()):
        lost = float(len(nodes)) if processors else float(sizes[nodes].sum())
        names = notation.fold_nodes(record.nodes.names[n] for n in nodes)
        lost_nodes = {"count": len(nodes)} if processors else {"nodes": names}
        entry = {"from": since, "to": to, **lost_nodes, "why": NODE_EVENTS}
        text = (
            f"{NODE_EVENTS}: {lost:g} {record.device} were away for {notation.duration(to - since)}"
        )
        hours = round(lost * (to - since) / 3600), 0, 0
        missing = tuple(Missing(since, to, 1.0, n) for n in nodes)
        yield FoundRule("window", entry, (lost, lost), text, hours, missing)


def by_local_time(
    record: Record, clock: Clock | None, progress: Any = None, away: Any = None
) -> Calibration:
    """Calibration in which hours follow daylight saving; found times are of the log's clock."""
    from gangwise.sites.calibration import calibrate

    if clock is None:
        return calibrate(record, progress, away)
    # Hours of rules are of the wall clock; what is found goes back to the log's own.
    submit = record.submit + clock.ahead(record.submit)
    start = np.maximum(record.start + clock.ahead(record.start), submit)  # an hour comes twice
    end = np.maximum(record.end + clock.ahead(record.end), start)
    if away:
        edges = np.array([(m.begin, m.end) for m in away])
        edges += clock.ahead(edges.ravel()).reshape(edges.shape)
        away = tuple(m._replace(begin=a, end=b) for m, (a, b) in zip(away, edges.tolist()))
    calibration = calibrate(replace(record, submit=submit, start=start, end=end), progress, away)
    for rule in calibration.findings:
        for edge in {"from", "to"} & rule.entry.keys():
            rule.entry[edge] -= float(clock.ahead(np.array([rule.entry[edge]]))[0])
    return calibration
