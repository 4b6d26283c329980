"""When the jobs of a window arrive and end, and when machines are away, out of tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.processes import Outage
from gangwise.core.errors import TraceError
from gangwise.traces.fidelity import Fidelity, leave_out, period
from gangwise.traces.load import of_tables
from gangwise.traces.trace import Tables

Floats = npt.NDArray[np.float64]

MOST_SLOTS = 1_000_000


class Window(NamedTuple):
    """Which part of a trace, and how it is cut.

    ``skip`` of the jobs come before it; it lasts ``hours``, or until the last creation, and has
    ``slots`` slots, or slots of ``slot`` seconds.
    """

    skip: float
    hours: float | None
    slots: int
    slot: float | None


@dataclass(frozen=True, eq=False)
class Found:
    """Jobs of a window.

    Attributes
    ----------
    names : tuple of str or int
        By arrival; numbers where the trace's names are not unique.
    arrival, end : ndarray of shape [n]
        Seconds since the window began, within it.
    start, length : float
        Of the window, in seconds.
    slots : int
    fidelity : Fidelity
    """

    names: tuple[str | int, ...]
    arrival: Floats
    end: Floats
    start: float
    length: float
    slots: int
    fidelity: Fidelity


def lifetimes_of(tables: Tables, window: Window) -> Found:
    """Jobs of a window.

    Raises
    ------
    TraceError
        When there are none, or the window would have too many slots.
    """
    import polars as pl

    base = of_tables(tables)
    if tables.jobs.is_empty():
        raise TraceError("there are no jobs in the files here")
    rows = tables.jobs
    named = "job" if "job" in rows.columns else "name"
    whole = pl.col("job") if named == "job" else pl.int_range(pl.len())
    jobs = (
        rows.group_by(whole.alias("id"), maintain_order=True)
        .agg(
            pl.col("row", "created").min(),
            pl.col("deleted").max(),
            pl.col(named).first().alias("as"),
            lacks=pl.col("created").is_null().any() | pl.col("deleted").is_null().any(),
        )
        .sort("created", "row", maintain_order=True)
    )
    timed, unknown = leave_out(
        "jobs",
        jobs,
        [
            ("one of its times is not known", pl.col("lacks")),
            ("it is deleted before it is created", pl.col("deleted") < pl.col("created")),
        ],
    )
    if timed.is_empty():
        raise TraceError("no job of the trace can be played: none has both of its times")
    created = timed["created"].to_numpy()
    start = float(created[int(window.skip * len(created))])
    last = float(created[-1])
    length = max(last - start, 1.0) if window.hours is None else window.hours * 3600.0
    slots = window.slots
    if window.slot is not None:
        wanted = np.floor(length / window.slot) + (window.hours is None)
        slots = int(min(max(wanted, 1), MOST_SLOTS + 1))
        length = slots * window.slot
    if slots > MOST_SLOTS:
        raise TraceError(
            f"the window of {period(length)} would have more than {MOST_SLOTS} slots: choose "
            "fewer slots, a longer slot, or a shorter window (hours)"
        )
    kept, outside = leave_out(
        "window",
        timed,
        [
            (f"created before the window, {start:.0f} s", pl.col("created") < start),
            (
                f"created after the window, {start + length:.0f} s",
                pl.col("created") > start + length,
            ),
        ],
    )
    end = np.minimum(kept["deleted"].to_numpy(), start + length) - start
    outlast = int((kept["deleted"] > start + length).sum())
    names: tuple[str | int, ...] = tuple(kept["as"].to_list())
    notes = [
        f"the window of {period(length)} starts at {start:.0f} s ({period(start)}), where "
        f"{100 * window.skip:g} % of the jobs have been created (skip)",
        f"{outlast} jobs are still there at the end of the window; they end with it",
        "what jobs request is not used; budgets, values and the rates of machines are drawn",
    ]
    if named == "job" and len(rows) > len(jobs):
        waits = ", whatever waits for what" if "after" in rows.columns else ""
        notes.append(
            f"{len(rows)} rows are of {len(jobs)} jobs, each there from its first "
            f"creation to its last deletion{waits}"
        )
    if len(set(names)) < len(names):
        names = tuple(range(len(names)))
        notes.append("names of jobs are not unique; jobs are numbered by arrival")
    stages = [*base.stages, *([unknown] if unknown.dropped else []), outside]
    fidelity = replace(
        base,
        stages=tuple(stages),
        first=start,
        last=start + length,
        jobs=len(kept),
        notes=(*base.notes, *notes),
        capacity={},
        load={},
    )
    return Found(names, kept["created"].to_numpy() - start, end, start, length, slots, fidelity)


def outages_of(
    tables: Tables, machines: int, window: Found
) -> tuple[tuple[Outage, ...], list[str]]:
    """Slots in which machines are away, and notes on it.

    A server of which the first event is that it comes was away before; of which it is that it
    goes, was there. One that is down in any part of a slot is away in the whole of it.
    """
    number = len(tables.servers)
    notes = [f"{machines} machines, and not the {number} servers of the trace (machines)"] * bool(
        number and machines != number
    )
    if tables.events is None:
        return (), [*notes, "the trace does not tell when machines come and go: they stay"]
    place = {name: m for m, name in enumerate(sorted(tables.servers["name"].to_list())[:machines])}
    slot, outages = window.length / window.slots, []
    for (name,), log in tables.events.sort("time", maintain_order=True).group_by(
        "server", maintain_order=True
    ):
        if name not in place:
            continue
        down: float | None = -np.inf
        for n, (time, up) in enumerate(log.select("time", "up").rows()):
            if up and down is not None:
                outages.append((place[str(name)], down, time))
                down = None
            elif not up and (down is None or n == 0):
                down = time
        if down is not None:
            outages.append((place[str(name)], down, np.inf))
    found = []
    for machine, down, up in outages:
        first = 0 if down <= window.start else int((down - window.start) / slot)
        back = window.slots
        if up < window.start + window.length:
            back = int(np.ceil((up - window.start) / slot - 1e-9))
        if first < back and first < window.slots:
            found.append(Outage(machine, first, back))
    away = sum(o.back - o.first for o in found)
    notes.append(
        f"{len({o.machine for o in found})} machines are away at times, {len(found)} times in all, "
        f"{100 * away / (machines * window.slots):.3g} % of all machine slots"
    )
    return tuple(found), notes
