"""Slow nodes of a log with node lists: which jobs are compared, and what was found.

A program is what a user submitted under one name, of one size and with one request; digits of
names do not count, since they number runs. Where a name ran once only, what the user submitted of
that size and request counts as one program. Jobs that did not complete, or reached their limit, say
when they were stopped rather than how long they take: they are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gangwise.core.errors import TraceError
from gangwise.jobs.model import Conditions, Jobs
from gangwise.traces import open_tables
from gangwise.traces.jobs import JobLog
from gangwise.traces.tables import Tables, percent_text, work

if TYPE_CHECKING:
    from gangwise.jobs.node_effects import Effects

NAMES = ("application", "type", "group", "workload")
REQUEST = ("partition", "tasks", "cpu", "mem", "gpu", "models", "limit")
DONE = ("completed", "pass", "succeeded", "finished", "terminated")
"""How formats call jobs that did what they had to, in small letters."""
LISTED = "slurm-sacct (NodeList), philly, kubernetes, and csv with a column that is mapped to hosts"
MOST_NODES = 16
"""Larger gangs are left out: nearly all have a slow node, and hardly any tells which."""
REACHED = 0.99  # share of its limit from which on a job has reached it


def _percent(log: float) -> str:
    percent = 100 * np.expm1(log)
    return f"{percent:.2g}" if percent < 99 else f"{percent:.0f}"


def _lost(left_out: Mapping[str, int]) -> str:
    return "; ".join(f"{n:,} {why}" for why, n in left_out.items() if n)


@dataclass(frozen=True, eq=False)
class NodeFindings:
    """What a log says about its nodes: which are slow, and how sure that is."""

    trace: str  # registered name of the format
    names: tuple[str, ...]  # [N]
    effects: Effects
    read: int  # jobs of the log
    left_out: Mapping[str, int]  # why jobs are not compared, and how many
    unnamed: int  # jobs compared with others of their user, size and request, whatever their name
    by: float  # nodes are named that take longer by more than this share

    @property
    def line(self) -> str:
        e, lost = self.effects, _lost(self.left_out)
        return (
            f"{self.trace}: {percent_text(e.compared, self.read)} of {self.read:,} jobs are "
            f"compared, runs of {e.programs:,} program{'s' * (e.programs != 1)}"
            + f" ({self.unnamed:,} by user and request alone)" * bool(self.unnamed)
            + f"; left out: {lost}" * bool(lost)
        )

    @property
    def answer(self) -> str:
        e = self.effects
        slow, known = int(e.slow.sum()), int(np.isfinite(e.p).sum())
        sd, low, high = map(_percent, e.spread)
        named = f"{slow} of {known:,} nodes {'is' if slow == 1 else 'are'} slow"
        more = f"by more than {100 * self.by:g} %, " * bool(self.by)
        changed = len(e.changes)
        return (
            f"{named} ({more}5 % of such names are false, more if most jobs are gangs); "
            "the standard deviation over nodes is "
            f"{sd} % of the run time ({low} to {high} %), that of a program's runs "
            f"{_percent(e.noise)} %"
            + f"; {changed} node{'s' * (changed > 1)} changed over time"
            * bool(changed)
        )

    def as_dict(self) -> dict[str, Any]:
        e = self.effects
        columns = {
            "longer": np.expm1(e.mean),
            "low": np.expm1(e.low),
            "high": np.expm1(e.high),
            "p": e.p,
            "slow": e.slow,
            "runs": e.runs,
            "shrunk": np.expm1(e.shrunk),
        }
        each = zip(*(values.tolist() for values in columns.values()))
        return {
            "trace": self.trace,
            "line": self.line,
            "answer": self.answer,
            "jobs": {"read": self.read, "compared": e.compared, "left_out": dict(self.left_out)},
            "spread": dict(zip(("sd", "low", "high"), e.spread)),
            "noise": e.noise,
            "nodes": [
                {"node": name, **dict(zip(columns, row))} for name, row in zip(self.names, each)
            ],
            "changes": [
                {
                    **change._asdict(),
                    "node": self.names[change.node],
                    "before": float(np.expm1(change.before)),
                    "after": float(np.expm1(change.after)),
                }
                for change in e.changes
            ],
        }


def find_slow_nodes(
    path: Path | str,
    *,
    trace: str = "",
    by: float = 0.01,
    progress: Callable[[str, int, int], None] | None = None,
    **knobs: Any,
) -> NodeFindings:
    """Slow nodes of a log, from its run times and node lists alone.

    ``path``, ``trace`` and ``knobs`` are those of
    :func:`~gangwise.traces.open_tables`. Nodes are named on which runs take longer
    ``by`` more than this share. TraceError when the log has no node lists, or no program ran twice
    on several nodes.
    """
    advance = progress or (lambda what, done, of: None)
    advance("reading", 0, 1)
    return slow_nodes_of(open_tables(path, trace=trace, **knobs), by, advance)


def slow_nodes_of(
    tables: Tables, by: float = 0.01, advance: Callable[[str, int, int], None] = lambda *_: None
) -> NodeFindings:
    rows, left_out = _comparable(tables)
    rows, unnamed = _programs(rows)
    alone = len(rows)
    rows = rows.filter(pl.len().over("program") > 1)
    left_out["ran once"] = alone - len(rows)
    if rows.is_empty():
        raise TraceError(f"no program of {tables.trace} ran twice: {_lost(left_out)}")
    places = rows["hosts"].unique(maintain_order=True)
    hosts = places.str.split("|")
    each = hosts.explode()
    names = each.unique().sort()
    number = each.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
    from gangwise.jobs.node_effects import Runs, node_effects  # statistics that no replay needs

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
    return NodeFindings(
        tables.trace, tuple(names), effects, len(tables.jobs), left_out, unnamed, by
    )


def _comparable(tables: Tables) -> tuple[pl.DataFrame, dict[str, int]]:
    """Jobs that completed, with ``run``, ``start``, ``hosts``; and how many others there are."""
    jobs = tables.jobs
    if "hosts" not in jobs.columns or not (jobs["hosts"].fill_null("") != "").any():
        raise TraceError(f"{tables.trace} does not say where jobs ran; node lists have {LISTED}")
    begun = "started" if "started" in jobs.columns else "created"
    rows = jobs.with_columns(work(jobs)["run"], pl.col(begun).alias("start"))
    rules = {"name no nodes": pl.col("hosts").fill_null("") != ""}
    many = pl.col("hosts").str.count_matches("|", literal=True) >= MOST_NODES
    rules[f"ran on more than {MOST_NODES} nodes"] = ~many.fill_null(False)
    if "status" in jobs.columns:
        done = pl.col("status").fill_null("").str.to_lowercase()
        if jobs.select(done.is_in(DONE).any()).item():
            rules["did not complete"] = done.is_in(DONE)
    if "limit" in jobs.columns:
        reached = pl.col("run") >= REACHED * pl.col("limit")
        rules["reached their limits"] = ~reached.fill_null(False)
    rules["took no time, or none that is known"] = (pl.col("run") > 0).fill_null(False)
    left_out = {}
    for why, rule in rules.items():
        before, rows = len(rows), rows.filter(rule)
        left_out[why] = before - len(rows)
    return rows, left_out


def _programs(rows: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """A number ``program`` for each row, and how many rows have one that is of no name."""
    asked = ["user", *(c for c in REQUEST if c in rows.columns)]
    asked = [c for c in asked if c in rows.columns]
    called = [c for c in NAMES if c in rows.columns]
    stems = [pl.col(c).cast(pl.String).str.replace_all(r"\d+", "#") for c in called]
    rows = rows.with_columns(stems).with_columns(
        program=pl.struct([*asked, *called]).rank("dense").cast(pl.Int64)
    )
    once = pl.len().over("program") == 1
    whole = -pl.struct(asked).rank("dense").cast(pl.Int64)
    rows = rows.with_columns(program=pl.when(once).then(whole).otherwise("program"))
    again = rows.filter((pl.col("program") < 0) & (pl.len().over("program") > 1))
    return rows.select("run", "start", "hosts", "program"), len(again) if called else 0


ESTIMATED = "estimated"  # the world that plays what a log says of its nodes


@dataclass(frozen=True, eq=False)
class EstimatedWorld:
    """The log's own nodes, as unlike as its run times show them to be.

    Effects are drawn, seed by seed, from what is believed of them: estimates shrunk by how unlike
    nodes are at all (empirical Bayes), and what is left open. So nodes of which little is known
    differ as nodes of the log do. On the nodes where it ran, a job takes as long as logged.
    """

    findings: NodeFindings

    def describe(self) -> str:
        sd, low, high = (100 * np.expm1(v) for v in self.findings.effects.spread)
        return (
            f"nodes as estimated from run times: standard deviation {sd:.2g} % ({low:.2g} to "
            f"{high:.2g} %); effects are drawn from what the log leaves open; {self.findings.line}"
        )

    def draw(self, log: JobLog, jobs: Jobs, seed: int) -> tuple[Jobs, Conditions]:
        """Jobs with the work that they did, and the hidden rates of the nodes of the log."""
        e, rng = self.findings.effects, np.random.default_rng([seed, 29])
        drawn = dict(zip(self.findings.names, e.shrunk + e.left * rng.normal(size=e.left.size)))
        sd = float(np.nan_to_num(e.spread[0]))
        effect = np.array([drawn.get(n, sd * rng.normal()) for n in log.nodes.names])
        slowest = np.zeros(int(log.jobs.row.max()) + 1)
        some = np.flatnonzero(np.diff(log.host_from))
        slowest[log.jobs.row[some]] = np.maximum.reduceat(effect[log.host], log.host_from[some])
        rates = np.tile(np.exp(-effect), (len(jobs.types), 1))
        return replace(jobs, run=jobs.run * np.exp(-slowest[jobs.row])), Conditions(rates=rates)
