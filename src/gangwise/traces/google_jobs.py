"""Rows of jobs out of the lives of tasks of a Google trace: what can be used, and by request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gangwise.traces.fidelity import Stage
from gangwise.traces.google_events import OFFSET, ROWS, Codes, leave_out_of

if TYPE_CHECKING:
    import polars as pl


THERE = 31
"""Instead of the code of an end, of what has not ended."""


class Window(NamedTuple):
    """A period of the trace, in microseconds, and what becomes of tasks that were there before."""

    begin: int
    end: int
    present: str


def usable(
    lives: pl.DataFrame, window: Window, what: str, files: Sequence[str]
) -> tuple[pl.DataFrame, Stage, list[str]]:
    """Keep the lives of which a workload can be made.

    Parameters
    ----------
    lives : polars.DataFrame
        As of :meth:`gangwise.traces.google_events.Lives.frame`.
    window : Window
    what : str
        ``tasks``, which need a request; or ``jobs``, which have none.
    files : sequence of str
        Names of the parts.

    Returns
    -------
    DataFrame
        Those kept.
    Stage
        The account of it.
    list of str
        What a reader of a result must know.
    """
    import polars as pl

    created, begin = pl.col("created"), window.begin
    late = begin > OFFSET
    why = [
        ("no SUBMIT in the files, so its arrival is not known", created.is_null()),
        ("submitted after the window", created > window.end),
    ]
    if late:
        why.append(("ended before the window", pl.col("deleted") < begin))
    if window.present == "drop":
        why.append(
            (
                f"there before the {'window' if late else 'trace'} begins, so its arrival is "
                f"not {'in it' if late else 'known'}",
                created < begin,
            )
        )
    if what == "tasks":
        why.append(("its request is empty in every row", pl.col("cpu").is_null()))
    kept, stage = leave_out_of(what, lives, why, files)
    notes = [
        f"{count} {what} {text}"
        for count, text in (
            (
                int((kept["created"] < begin).sum()),
                "were there before the window begins; they are let arrive at its start",
            ),
            (
                int((kept["submits"] > 1).sum()),
                "were submitted more than once; each lasts from the first SUBMIT to the last end, "
                "waits in between included",
            ),
            (int(kept["changed"].sum()), "gave another request later; the first one given is used"),
            (
                int(kept["deleted"].is_null().sum()),
                "are still there at the end of the window; they end with it (status is empty)",
            ),
        )
        if count
    ]
    return kept, stage, notes


def job_rows(
    lives: pl.DataFrame, users: pl.DataFrame, window: Window, codes: Codes
) -> pl.DataFrame:
    """A row per job and request, in seconds since the window began.

    It is there from its first task's arrival until its last task's end, whose kind is its status;
    of ends at the same microsecond, the one with the highest code.
    """
    import polars as pl

    def seconds(time: pl.Expr) -> pl.Expr:
        return (time - window.begin).clip(lower_bound=0) / 1e6

    width = THERE + 1
    stamp = pl.col("deleted").fill_null(window.end) * width + pl.col("code").fill_null(THERE)
    rows = (
        lives.group_by("job", "cpu", "mem")
        .agg(pl.col("place", "created", "started").min(), tasks=pl.len(), stamp=stamp.max())
        .join(users, on="job", how="left")
    )
    name = pl.col("job").cast(pl.String)
    jobs = rows.sort("created", "job", "cpu", "mem").select(
        row=pl.col("place") % ROWS,
        part=pl.col("place") // ROWS,
        name=name,
        job=name,
        cpu="cpu",
        mem="mem",
        gpu=pl.lit(0.0),
        tasks=pl.col("tasks").cast(pl.Int64),
        models=pl.lit(""),
        created=seconds(pl.col("created")),
        started=seconds(pl.col("started")),
        deleted=seconds(pl.col("stamp") // width),
        status=(pl.col("stamp") % width).replace_strict(
            {THERE: "", **codes.ends}, return_dtype=pl.String
        ),
        user=pl.col("user").fill_null(""),
    )
    return jobs if "task" in lives.columns else jobs.drop("tasks")
