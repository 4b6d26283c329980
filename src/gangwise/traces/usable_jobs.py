"""Rows of which jobs can be made, and how many jobs each of them is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import TraceError
from gangwise.traces.devices import QUANTITIES
from gangwise.traces.fidelity import Stage, leave_out, reasons
from gangwise.traces.trace import Tables

if TYPE_CHECKING:
    import polars as pl


Ints = npt.NDArray[np.int64]


def known_jobs(tables: Tables) -> tuple[pl.DataFrame, list[Stage], list[str]]:
    """Rows of which it is known when they came and what they ask for.

    Returns
    -------
    DataFrame
        The rows kept.
    list of Stage
        The account of it, when something is left out.
    list of str
        What a reader of a result must know.

    Raises
    ------
    TraceError
        When no row is left.
    """
    import polars as pl

    unknown = [
        (f"its request of {name} is not known", pl.col(name).is_null()) for name in QUANTITIES
    ]
    kept, stage = leave_out(
        "requests",
        tables.jobs,
        [
            ("it is not known when it was created", pl.col("created").is_null()),
            *unknown,
            ("it requests nothing", pl.sum_horizontal(QUANTITIES) == 0),
        ],
    )
    if kept.is_empty():
        why = reasons(stage.dropped) or "there are none"
        raise TraceError(f"no job of the trace can be played: {why}")
    notes = []
    if "job" in kept.columns and (jobs := kept["job"].n_unique()) < len(kept):
        waits = " and waits for no other" if "after" in kept.columns else ""
        notes.append(
            f"{len(kept)} requests are of {jobs} jobs; in this family each of them is a job of its "
            f"own{waits}"
        )
    return kept, [stage] if stage.dropped else [], notes


def jobs_per_row(jobs: pl.DataFrame, tasks: str) -> tuple[Ints, list[Stage], list[str]]:
    """How many jobs each row counts as: one, or as many as it asks for equal tasks.

    Parameters
    ----------
    jobs : polars.DataFrame
        As in :class:`~gangwise.traces.trace.Tables`.
    tasks : {"one", "each"}

    Returns
    -------
    ndarray of int64, shape [rows]
    list of Stage, list of str
        As of :func:`known_jobs`.
    """
    one = np.ones(len(jobs), dtype=np.int64)
    if "tasks" not in jobs.columns:
        return one, [], []
    asked: Ints = np.maximum(jobs["tasks"].fill_null(1).to_numpy().astype(np.int64), 1)
    several, total = asked > 1, int(asked.sum())
    if not several.any():
        return one, [], []
    if tasks == "each":
        note = (
            f"{int(several.sum())} of {asked.size} rows ask for several equal tasks; each task is "
            f"a job, {total} in all (tasks = each)"
        )
        return asked, [], [note]
    first = int(jobs["row"].to_numpy()[several].min())
    why = "of a row with several tasks, which counts as one job (tasks = one)"
    lost = {why: (total - asked.size, first)}
    return one, [Stage("tasks", total, asked.size, lost)], []
