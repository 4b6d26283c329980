"""Machines that come and go, out of the machine events of a Google trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gangwise.traces.fidelity import Stage
from gangwise.traces.google_events import NEVER, ROWS, leave_out_of
from gangwise.traces.trace import server_table

if TYPE_CHECKING:
    import polars as pl


class Machines(NamedTuple):
    """What :class:`~gangwise.traces.trace.Tables` holds of machines."""

    servers: pl.DataFrame
    events: pl.DataFrame | None
    stages: tuple[Stage, ...]
    notes: tuple[str, ...]


def no_machines() -> Machines:
    """Of a trace whose machine events are not here."""
    return Machines(server_table(), None, (), ("machine_events is not here",))


def machines_of(
    events: pl.DataFrame, add: int, remove: int, begin: int, end: int, files: Sequence[str]
) -> Machines:
    """Servers, and when they are up.

    A server has the capacity that it is first given. It is down until its first event in the
    result, which is at 0 for servers that are up when the window begins. An addition and a removal
    at the same microsecond change nothing.

    Parameters
    ----------
    events : polars.DataFrame
        ``part row machine time event cpu mem platform``, times in microseconds.
    add, remove : int
        Codes of the events; others are updates of capacity.
    begin, end : int
        The window, in microseconds.
    files : sequence of str
        Names of the parts.
    """
    import polars as pl

    cpu, mem, event = pl.col("cpu"), pl.col("mem"), pl.col("event")
    given = cpu.is_not_null() & mem.is_not_null()
    rows = events.with_columns(
        pl.col("time").clip(upper_bound=NEVER).cast(pl.Int64),
        pl.col("machine").cast(pl.Int64),
        place=pl.col("part") * ROWS + pl.col("row"),
        step=(event == add).cast(pl.Int64) - (event == remove).cast(pl.Int64),
        cpu=pl.when(given).then(cpu),
        mem=pl.when(given).then(mem),
    ).sort("time", "cpu", "mem", nulls_last=True)
    moves = (
        rows.filter(pl.col("time") <= end)
        .group_by("machine", "time", maintain_order=True)
        .agg(pl.col("step").sum())
        .filter(pl.col("step") != 0)
        .with_columns(at=pl.max_horizontal("time", pl.lit(begin)))
        .group_by("machine", "at", maintain_order=True)
        .agg(up=pl.col("step").last() > 0)
        .filter(pl.col("up") != pl.col("up").shift(1, fill_value=False).over("machine"))
    )
    about = (
        rows.group_by("machine")
        .agg(
            pl.col("place").min(),
            cpu.drop_nulls().first(),
            mem.drop_nulls().first(),
            changed=(cpu.min() != cpu.max()) | (mem.min() != mem.max()),
        )
        .sort("machine")
    )
    there = pl.col("machine").is_in(moves["machine"].unique().to_list())
    kept, stage = leave_out_of(
        "machines",
        about,
        (
            ("never there during the window", ~there),
            ("its capacity is empty in every row", cpu.is_null()),
        ),
        files,
    )
    servers = kept.select(
        row=pl.col("place") % ROWS,
        name=pl.col("machine").cast(pl.String),
        model=pl.lit(""),
        cpu="cpu",
        mem="mem",
        gpu=pl.lit(0.0),
    )
    moves = (
        moves.join(kept, on="machine", how="semi")
        .sort("at", "machine")
        .select(
            time=(pl.col("at") - begin) / 1e6, server=pl.col("machine").cast(pl.String), up="up"
        )
    )
    platforms = rows.filter(pl.col("platform") != "")["platform"].n_unique()
    notes = [
        f"machines are of {platforms} platforms; a platform is no GPU model, so model is empty"
    ]
    if changed := int(kept["changed"].sum()):
        notes.append(
            f"{changed} machines were given another capacity later; the first one given is used"
        )
    return Machines(servers, moves, (stage,), tuple(notes))
