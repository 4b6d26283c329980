"""What is in a log of jobs: load over time, sizes, waits, run times, users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats
from gangwise.traces.jobs import JobLog
from gangwise.traces.tables import Tables, implied_load, period_of
from gangwise.traces.work import period


def summary(log: JobLog, tables: Tables, bins: int = 12) -> dict[str, Any]:
    """What is in a log made of ``tables``, ready for JSON: load, sizes, waits, run times, users.

    Times are in seconds; ``None`` where the log does not say. ``implied_load`` is that of the whole
    log (:func:`~gangwise.traces.tables.implied_load`), as ``gangwise trace inspect`` has it, and
    ``load`` that of each of ``bins`` equal periods; they count jobs that cannot be played, too.
    """
    rows, nodes = log.rows, log.nodes
    wait = (rows["start"] - rows["submit"]).drop_nulls()
    device = log.played.device
    capacity = log.total(device)
    first, last = period_of(tables.jobs)
    edges = np.linspace(first, max(last, first + 1.0), bins + 1)

    def load(start: float, end: float) -> float | None:
        return implied_load(tables, start, end, {device: capacity})[device] if capacity else None

    size = rows["tasks"].to_numpy() * rows[device].to_numpy()
    asked = rows["limit"] / rows["run"].replace(0.0, None)
    total = float(rows["hours"].sum())
    by_user = (
        rows.group_by("user", maintain_order=True)
        .agg(
            jobs=pl.len(),
            hours=pl.col("hours").sum(),
            wait=(pl.col("start") - pl.col("submit")).mean(),
        )
        .sort("hours", "user", descending=[True, False])
    )
    return {
        "jobs": len(rows),
        "nodes": len(nodes),
        "devices": {name: log.total(name) for name in nodes.devices},
        "device": device,
        "job_type": {"column": log.job_type, "types": len(log.jobs.types)},
        "from_s": first,
        "to_s": last,
        "implied_load": load(first, last),
        "load": [load(*between) for between in pairwise(edges.tolist())],
        "load_edges_s": edges.tolist(),
        "sizes": _sizes(size),
        "run": _spread(rows["run"]),
        "wait": _spread(wait),
        "waiting_share": _share(float(wait.sum()), float(rows["run"].sum())) if len(wait) else None,
        "limit_over_run": _spread(asked.drop_nulls()),
        "users": by_user.height,
        "top_users": [
            {**user, "share": user["hours"] / total if total else None}
            for user in by_user.head(8).to_dicts()
        ],
        "dependencies": int(log.jobs.after.size),
        "recorded_nodes": int((np.diff(log.host_from) > 0).sum()),
    }


def _share(part: float, rest: float) -> float:
    return part / (part + rest) if part else 0.0


def _spread(values: pl.Series) -> dict[str, float] | None:
    if values.is_empty():
        return None
    found = values.to_numpy()
    names = ("median", "p90", "p95", "p99", "most")
    return {
        "mean": float(found.mean()),
        **dict(zip(names, np.quantile(found, [0.5, 0.9, 0.95, 0.99, 1]).tolist())),
    }


def _sizes(size: Floats) -> list[dict[str, float]]:
    power = np.where(size > 0, np.ceil(np.log2(np.maximum(size, 1e-9)) - 1e-9), -2).clip(-1)
    power = np.where(size > 0, power, -2).astype(np.int64)
    counted = zip(*(each.tolist() for each in np.unique(power, return_counts=True)))
    return [{"most": 0.0 if p == -2 else 2.0**p, "jobs": n} for p, n in counted]


def report(log: JobLog, tables: Tables) -> str:
    """What is in a log, for a terminal; the first line is how much of it is played."""
    found = summary(log, tables)
    first, last = found["from_s"], found["to_s"]
    named = {"mem": f"{tables.units.get('mem', '')} of memory".strip()}
    named |= {"gpu": "GPUs", "cpu": "cores"}
    devices = ", ".join(f"{n:,.6g} {named.get(q, q)}" for q, n in found["devices"].items())
    lines = [
        log.played.line,
        *(f"warning: {found.text}" for found in log.played.overused),
        "",
        f"{found['jobs']:,} jobs in {period(last - first)} on {found['nodes']:,} "
        f"{'node' if found['nodes'] == 1 else 'nodes'} ({devices}); "
        f"{found['job_type']['types']:,} job types, by {log.job_type}",
    ]
    if found["implied_load"] is not None:
        lines.append(
            f"load: {100 * found['implied_load']:.3g} % of {found['device']} in use in the mean of "
            "the whole log"
            + " (more than there is: a column is misread, or nodes are missing)"
            * (found["implied_load"] > 1 and found["wait"] is not None)
            + "; over time:"
        )
        lines += _bars([load or 0.0 for load in found["load"]], np.array(found["load_edges_s"]))
    lines.append(f"sizes ({found['device']} per job):")
    for size in found["sizes"]:
        lines.append(f"  up to {size['most']:<8g} {size['jobs']:>9,} jobs")
    for name, what in (("run", "run time"), ("wait", "wait")):
        spread = found[name]
        lines.append(f"{what:<9s} " + ("not recorded" if spread is None else _times(spread)))
    if found["waiting_share"] is not None:
        lines.append(f"waiting is {100 * found['waiting_share']:.3g} % of the time in the system")
    if found["limit_over_run"] is not None:
        over = found["limit_over_run"]
        median = f"{over['median']:,.{0 if over['median'] >= 100 else 1}f}"
        lines.append(f"limits are {median} times the run time (median)")
    lines.append(f"users: {found['users']:,}")
    for user in found["top_users"][:5]:
        waited = "" if user["wait"] is None else f", mean wait {period(round(user['wait'], 1))}"
        lines.append(
            f"  {user['user'] or '(not named)':<16.16s} {user['jobs']:>8,} jobs "
            f"{100 * (user['share'] or 0):5.1f} % of {log.played.unit}-hours{waited}"
        )
    if found["dependencies"]:
        lines.append(f"dependencies: {found['dependencies']:,}")
    if found["recorded_nodes"]:
        lines.append(f"nodes they ran on are known of {found['recorded_nodes']:,} jobs")
    lines += [f"note: {note}" for note in log.played.notes]
    return "\n".join(lines)


def _times(spread: Mapping[str, float]) -> str:
    shown = ("mean", "median", "p95", "most")
    return ", ".join(f"{name} {period(round(spread[name], 1))}" for name in shown)


def _bars(load: Sequence[float], edges: Floats) -> list[str]:
    scale = 40 / max(1.0, *load)
    return [
        f"  {period(round(at - edges[0], 1)):>11s} {100 * share:6.1f} % "
        + "▇" * round(scale * share)
        for at, share in zip(edges[:-1].tolist(), load)
    ]
