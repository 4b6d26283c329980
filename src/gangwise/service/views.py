"""The state of the service in words: the views of its file, for ``top`` and ``explain``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

VIEWS = ("health", "nodes", "queue", "running", "slow", "held", "unreadable", "account")


def lasting(seconds: float | None) -> str:
    """A duration in words.

    >>> lasting(90), lasting(7300), lasting(None)
    ('1.5 min', '2.0 h', '?')
    """
    if seconds is None or seconds != seconds or abs(seconds) == float("inf"):
        return "?"
    if abs(seconds) < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if abs(seconds) < 3600 else f"{seconds / 3600:.1f} h"


def devices(amounts: Mapping[str, float]) -> str:
    """Amounts of devices.

    >>> devices({"gpu": 4.0, "cpu": 0.5})
    '4 gpu + 0.5 cpu'
    """
    return " + ".join(f"{amount:g} {kind}" for kind, amount in amounts.items() if amount)


def expected(row: Mapping[str, Any], now: float) -> str:
    """Time until a waiting job starts: with an even chance, and in nine cases of ten.

    >>> expected({"p50": 100.0, "p90": 7300.0}, 40.0), expected({"p50": None}, 40.0)
    ('1.0 min, 9 in 10 by 2.0 h', '?')
    """
    if row.get("p50") is None:
        return "?"
    p50, p90 = (lasting(max(row[name] - now, 0.0)) for name in ("p50", "p90"))
    return f"{p50}, 9 in 10 by {p90}"


def in_terminal(views: Mapping[str, Any]) -> Iterator[Any]:
    """Lines and tables of ``gangwise top``."""
    now = time.time()
    health = views.get("health") or {}
    mode = "acts on" if health.get("mode") == "act" else "watches"
    yield (
        f"gangwise {mode} {health.get('engine', '?')} with {health.get('scheduler', '?')}: "
        f"{health.get('running', 0) + health.get('placed', 0)} run, "
        f"{health.get('waiting', 0)} wait"
    )
    for what, trouble in (health.get("troubles") or {}).items():
        yield f"{what} has been failing for {lasting(now - trouble['since'])}: {trouble['what']}"
    if account := views.get("account"):
        yield account["told"]
    if slow := views.get("slow"):
        yield "slower than their label: " + ", ".join(
            f"{s['node']} by {100 * s['slower']:.0f} % "
            f"({100 * s['low']:.0f} to {100 * s['high']:.0f})"
            for s in slow
        )
    table = Table("node", "free", "of", "speed by label", "speed ÷ label (95 %)", title="Nodes")
    for node in (views.get("nodes") or [])[:100]:
        speed = "not known"
        if "factor" in node:
            speed = f"{node['factor']:.2f} ({node['low']:.2f} to {node['high']:.2f})"
        state = "" if node["up"] else f"down: {node['reason']}"
        free = state or devices(node["free"]) or "nothing"
        declared = node["declared"]
        table.add_row(node["name"], free, devices(node["devices"]), f"{declared:g}", speed)
    yield table
    table = Table("job", "user", "asks", "waits", "why", "starts in", title="Waiting")
    for row in (views.get("queue") or [])[:30]:
        asks = f"{row['tasks']} × {devices(row['demand'])}"
        why = row["why"]
        if row.get("would"):
            why = "would start on " + ", ".join(node for node, _ in row["would"])
        waited = lasting(now - row["submitted"])
        table.add_row(row["job"], row["user"], asks, waited, why, expected(row, now))
    yield table
    for row in (views.get("held") or [])[:10]:
        yield explained(row)
    for row in (views.get("unreadable") or [])[:10]:
        if row["kind"] != "job":  # these are held
            yield f"{row['kind']} {row['name']} is {row['why']}"


def explained(row: Mapping[str, Any]) -> str:
    """Why a job waits, or where it runs or ran."""
    now = time.time()
    if "phase" not in row and "outcome" not in row:
        return f"job {row['job']} is held: {row['why']}"
    if "outcome" in row:
        began = row["started"]
        where = ", ".join(f"{p[0]} ({p[1]})" for p in row["body"]["placed"])
        ran = f" on {where} for {lasting(row['ended'] - began)}" if began else ""
        waited = (
            f", after waiting {lasting(row['first'] - row['submitted'])}" if row["first"] else ""
        )
        return f"job {row['job']} has {row['outcome']}{ran}{waited}"
    asks = f"{row['tasks']} tasks of {devices(row['demand'])}"
    if row["phase"] != "waiting":
        where = ", ".join(f"{node} ({tasks})" for node, tasks in row["nodes"])
        verb = "runs" if row["phase"] == "running" else "was placed and has not started"
        speed = f", at {row['rate']:.2f} of a node of rate 1" if row.get("rate") else ""
        line = f"job {row['job']} ({asks}) {verb} on {where} for {lasting(now - row['since'])}"
        return f"{line}{speed}; placed by {row['by']}, attempt {row['attempt']}"
    lines = [
        f"job {row['job']} ({asks}) waits for {lasting(now - row['submitted'])}",
        f"  because   {row['why']}, for {lasting(now - row['since'])}",
    ]
    if row["where"]:
        lines.append(f"  room on   {', '.join(row['where'])}")
    if row.get("frees"):
        lines.append(f"  frees it  the end of {', '.join(row['frees'][:5])}")
    if row.get("p50") is not None:
        lines.append(f"  starts    in {expected(row, now)}")
    if row.get("would"):
        lines.append("  it would start now on " + ", ".join(node for node, _ in row["would"]))
    return "\n".join(lines)
