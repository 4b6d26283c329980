"""What would have been saved: the real arrivals, played through the simulation.

The jobs that ended since Monday are submitted again as they were, onto the nodes as they are, with
the rates that are now believed for true ones, but for nodes whose jobs show that they had another
speed before (:mod:`gangwise.service.changes`). The scheduler starts with nothing learned and learns
as it goes; work is what was measured, or run time × believed rate where nothing was. Rates are
drawn anew from what is believed of them for each of several rounds, which gives the interval. Jobs
that still wait or run are played, for they are in the way, with the share of their limit that
others used; they do not count. A job holds its devices while it starts, so that is run time.

Beside it stands how far the simulation is off: what it makes of the scheduler that really placed
the jobs (or of the baseline, taken for the cluster's own) against what happened.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gangwise.core.arrays import Floats
from gangwise.core.checkpoints import read_checkpoint
from gangwise.core.errors import ScenarioError
from gangwise.jobs.model import Conditions, Jobs, Nodes
from gangwise.jobs.scheduler import fresh
from gangwise.jobs.simulation import simulate_jobs
from gangwise.service.changes import Change, changes
from gangwise.service.ledger import NO_LIMIT, Ledger
from gangwise.service.loop import CHECKPOINT
from gangwise.service.store import FILE, Store
from gangwise.service.views import lasting

ROUNDS = 8
"""Draws of rates from what is believed of them."""
FEWEST = 5
"""Jobs below which there is no account."""


def monday(now: float) -> float:
    """The last Monday, 0:00 local time."""
    day = datetime.datetime.fromtimestamp(now)
    day = day.replace(hour=0, minute=0, second=0, microsecond=0)
    return (day - datetime.timedelta(days=day.weekday())).timestamp()


def account(folder: Path | str, since: float | None = None, rounds: int = ROUNDS) -> dict[str, Any]:
    """What a service's scheduler would have saved, from the service's folder.

    Parameters
    ----------
    since : float, optional
        Jobs submitted from then on count (seconds since 1970); the last Monday by default. Earlier
        ones that ended later are played, too, for they were in the way.

    Returns
    -------
    dict
        ``told`` is the account in a sentence; waits and completions in seconds.

    Raises
    ------
    ScenarioError
        When too few jobs have ended.
    """
    folder = Path(folder)
    (ledger, _), _ = read_checkpoint(folder / CHECKPOINT)
    store = Store(folder / FILE, read_only=True)
    since = monday(ledger.now) if since is None else since
    rows = store.rows(
        "SELECT * FROM history WHERE ended >= ? AND started IS NOT NULL AND ended > started "
        "ORDER BY submitted",
        since,
    )
    store.close()
    counted = np.array([row["submitted"] >= since for row in rows], dtype=bool)
    if counted.sum() < FEWEST or ledger.books is None:
        raise ScenarioError(
            f"{counted.sum()} jobs were submitted since {_day(since)} and have ended; an account "
            f"needs {FEWEST}"
        )
    submitted = np.array([row["submitted"] for row in rows])
    wait = np.array([row["first"] - row["submitted"] for row in rows])
    done = np.array([row["ended"] - row["submitted"] for row in rows])
    present = present_rows(ledger, rows)
    found: dict[str, list[tuple[float, float]]] = {"scheduler": [], "baseline": []}
    rng = np.random.default_rng(0)
    before, played = changed(ledger, rows), 0
    for _ in range(rounds):
        jobs, conditions = drawn(ledger, [*rows, *present], before, rng)
        for who, decides in (("scheduler", ledger.scheduler), ("baseline", ledger.baseline)):
            s = simulate_jobs(jobs, ledger.books.nodes, fresh(decides), conditions)
            there = np.append(counted, np.zeros(len(present), bool))[jobs.row] & np.isfinite(s.end)
            played = int(there.sum())
            means = (s.start - jobs.submit)[there].mean(), (s.end - jobs.submit)[there].mean()
            found[who].append((float(means[0]), float(means[1])))
    scheduler, baseline = np.array(found["scheduler"]), np.array(found["baseline"])
    happened = float(wait[counted].mean()), float(done[counted].mean())
    own = scheduler if ledger.act else baseline
    error = float(own[:, 1].mean() / happened[1] - 1.0)
    slow = ledger.slow_nodes()
    result: dict[str, Any] = {
        "since": since,
        "jobs": played,
        "left_out": len(present),
        "happened": {"wait": happened[0], "completion": happened[1]},
        "scheduler": _summary(scheduler),
        "baseline": _summary(baseline),
        "error": error,
        "slow_nodes": [s.node for s in slow],
        "changed_nodes": [ledger.books.nodes.names[change.node] for change in before],
        "first": float(submitted[counted].min()),
    }
    result["told"] = account_sentence(result, ledger.act)
    return result


def present_rows(ledger: Ledger, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Jobs that wait or run, as rows like those of the history, without those that are in it."""
    over = {row["job"] for row in rows}
    asked = [known.asked for known in ledger.jobs.values() if known.asked.id not in over]
    same = "job_type", "user", "submitted"
    return [
        {"job": job.id, **{name: getattr(job, name) for name in same}, "body": asdict(job)}
        for job in asked
    ]


def account_sentence(result: dict[str, Any], act: bool) -> str:
    s, b, h = result["scheduler"], result["baseline"], result["happened"]
    what = (
        f"mean wait {lasting(h['wait'])} → {lasting(s['wait'])} ± {lasting(s['wait_within'])}, "
        f"completion {lasting(h['completion'])} → {lasting(s['completion'])} ± "
        f"{lasting(s['completion_within'])}"
    )
    if act:
        what = (
            f"mean wait {lasting(h['wait'])}, completion {lasting(h['completion'])}; with the "
            f"baseline {lasting(b['wait'])} and {lasting(b['completion'])}"
        )
    begin = "since" if act else "had I decided since"
    who = "itself" if act else "the baseline, taken for the cluster's own scheduler,"
    rest = (
        f", {result['left_out']} still wait or run and are left out" if result["left_out"] else ""
    )
    slow, other = len(result["slow_nodes"]), len(result["changed_nodes"])
    before = f", {other} had another speed before" if other else ""
    return (
        f"{begin} {_day(result['since'])} ({result['jobs']} jobs{rest}): {what}; "
        f"{slow} slow node{'s' * (slow != 1)}{before}. The simulation of {who} is off by "
        f"{100 * result['error']:+.0f} % of the completion time that happened"
    )


def _summary(means: Floats) -> dict[str, float]:
    within = 1.96 * means.std(axis=0, ddof=1) if len(means) > 1 else np.full(2, math.nan)
    return {
        "wait": float(means[:, 0].mean()),
        "wait_within": float(within[0]),
        "completion": float(means[:, 1].mean()),
        "completion_within": float(within[1]),
    }


def believed(ledger: Ledger, names: Sequence[str]) -> tuple[Floats, Floats]:
    """Log rates that are believed now, and how sure that is: mean and sd, both [L, N].

    Declared rates where nothing is learned.
    """
    assert ledger.books is not None
    mean = np.log(ledger.books.nodes.declared(names))
    sd = np.zeros(mean.shape)
    learner: Any = getattr(getattr(ledger.scheduler, "choice", None), "rates", None)
    if hasattr(learner, "estimate"):
        for l, name in enumerate(names):
            if name in learner.types:
                mean[l], sd[l] = learner.estimate(name, ledger.now)
    return mean, sd


def changed(ledger: Ledger, rows: Sequence[dict[str, Any]]) -> list[Change]:
    """Nodes that had another speed before, from jobs whose rate was measured on nodes still there.

    A rate that is only declared says nothing of before and after: then there are none.
    """
    types = _types(ledger, rows)
    names = sorted(set(types))
    mean, sd = believed(ledger, names)
    measured = [
        (row, on, mean[names.index(name)][on])
        for row, name in zip(rows, types, strict=True)
        if row.get("rate")
        and len(on := _nodes(ledger, row)) == len(row["body"]["placed"])
        and sd[names.index(name)].any()
    ]
    return changes(
        np.log([row["rate"] for row, _, _ in measured]),
        np.array([(row["started"] + row["ended"]) / 2 for row, _, _ in measured]),
        [on for _, on, _ in measured],
        [logs for _, _, logs in measured],
    )


def drawn(
    ledger: Ledger,
    rows: Sequence[dict[str, Any]],
    before: Sequence[Change],
    rng: np.random.Generator | None,
) -> tuple[Jobs, Conditions]:
    """Jobs of the history, and a draw of the rates that are believed, or their means.

    Parameters
    ----------
    before : sequence of Change
        What :func:`changed` found.
    """
    assert ledger.books is not None
    nodes: Nodes = ledger.books.nodes
    types = _types(ledger, rows)
    names = sorted(set(types))
    rates, sd = believed(ledger, names)
    if rng is not None:
        rates = rates + sd * rng.standard_normal(sd.shape)
    work: list[float] = []
    shares = [] if any(r["body"]["limit"] < NO_LIMIT for r in rows if "ended" in r) else [1.0]
    for row, name in zip(rows, types, strict=True):
        limit = float(row["body"]["limit"])
        if "ended" not in row:
            work.append(float(np.median(shares)) * (limit if limit < NO_LIMIT else NO_LIMIT))
            continue
        run = row["ended"] - row["body"]["held"]
        on = _nodes(ledger, row)
        slowest = math.exp(min(rates[names.index(name)][on])) if on else 1.0
        work.append(run * (row["rate"] or slowest))
        if limit < NO_LIMIT:
            shares.append(work[-1] / limit)
    bodies = [row["body"] for row in rows]
    limits = np.array([b["limit"] for b in bodies])
    jobs = Jobs.of(
        [row["submitted"] for row in rows],
        work,
        [b["tasks"] for b in bodies],
        {k: [b["demand"].get(k, 0) / 1000 for b in bodies] for k in nodes.devices},
        id=[row["job"] for row in rows],
        limit=np.where(np.isfinite(limits), limits, NO_LIMIT),
        per_node=[b["per_node"] for b in bodies],
        constraint=[b["constraint"] for b in bodies],
        type=types,
        user=[row["user"] for row in rows],
        priority=[b["priority"] for b in bodies],
    )
    order = [names.index(name) for name in jobs.types]
    factors = [(0.0, c.node, c.factor) for c in before] + [(c.time, c.node, 1.0) for c in before]
    return jobs, Conditions(np.exp(rates[order]), factors=factors)


def _types(ledger: Ledger, rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["job_type"] if row["job_type"] in ledger.types else "other" for row in rows]


def _nodes(ledger: Ledger, row: dict[str, Any]) -> list[int]:
    """Nodes that a job had, of those that exist now."""
    return [ledger.places[p[0]] for p in row["body"]["placed"] if p[0] in ledger.places]


def _day(time: float) -> str:
    return datetime.datetime.fromtimestamp(time).strftime("%a %H:%M")
