"""Requests of ``batch_task``: which rows are used, and which of them wait for which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gangwise.core.errors import TraceError
from gangwise.traces.alibaba_v2018.names import LONGEST, after, edges_of
from gangwise.traces.dag import Dag
from gangwise.traces.fidelity import Stage, leave_out, reasons
from gangwise.traces.source import Read

if TYPE_CHECKING:
    import polars as pl


def batch_jobs(
    read: Read, statuses: Sequence[str], file: Path, strict: bool
) -> tuple[pl.DataFrame, list[Stage], list[str]]:
    """Jobs as :class:`~gangwise.traces.trace.Tables` has them, what was left out, and notes.

    Raises
    ------
    TraceError
        When no row can be used; with ``strict``, when a task waits for itself.
    """
    import polars as pl

    frame = read.frame.with_row_index("at")
    rules = unusable(
        frame, statuses, "instance_num", ("plan_cpu", "plan_mem"), ("start_time", "end_time")
    )
    kept, stage = leave_out("batch tasks", frame, rules)
    stages, notes = [stage], []
    first = pl.struct("job_name", "task_name").is_first_distinct()
    kept, stage = leave_out(
        "task names", kept, [("its job has a task of this name already", ~first)]
    )
    stages += [stage] * bool(stage.dropped)
    dag, counts = _graph(frame, kept)
    on = dag.circle >= 0
    if on.any():
        task, job, row = kept.filter(pl.Series(on)).select("task_name", "job_name", "row").row(0)
        what = f"task {task} of job {job}, row {row}, waits for itself"
        if strict:
            raise TraceError(f"{what}; correct it, or read without strict", file, row)
        kept, stage = leave_out("circles", kept, [("it waits for itself", pl.lit(pl.Series(on)))])
        stages.append(stage)
        notes.append(f"{int(on.sum())} tasks are on a circle: {what}")
        dag, counts = _graph(frame, kept)
    if kept.is_empty():
        why = reasons(*(stage.dropped for stage in stages))
        raise TraceError(f"no batch task can be used: {why}", file)
    jobs = kept.select(
        "row",
        name="task_name",
        cpu=pl.col("plan_cpu") / 100,
        mem="plan_mem",
        gpu=pl.lit(0.0),
        tasks="instance_num",
        models=pl.lit(""),
        created="start_time",
        deleted="end_time",
        job="job_name",
        after=after(kept["task_name"], dag),
        started="start_time",
        status="status",
    )
    return jobs, stages, notes + _notes(jobs, dag, counts)


def unusable(
    frame: pl.DataFrame,
    statuses: Sequence[str],
    count: str,
    requests: Sequence[str],
    times: Sequence[str],
) -> list[tuple[str, pl.Expr]]:
    """Reasons to leave out a row, and what is true of such rows.

    Parameters
    ----------
    frame : polars.DataFrame
    statuses : sequence of str
        Those that are used.
    count, requests, times : str and sequences of str
        The columns of these.
    """
    import polars as pl

    others = sorted(set(frame["status"].unique()) - set(statuses))
    rules = [(f"status is {other}", pl.col("status") == other) for other in others]
    rules += [(f"{name} is empty", pl.col(name).is_null()) for name in (count, *requests)]
    for name in times:
        unknown = pl.col(name).is_null() | (pl.col(name) == 0)
        rules.append((f"{name} is 0 or empty: outside the trace", unknown))
    rules.append((f"{count} is 0", pl.col(count) == 0))
    rules.append(("it requests nothing at all", pl.sum_horizontal(requests) == 0))
    return rules


def _graph(frame: pl.DataFrame, kept: pl.DataFrame) -> tuple[Dag, Mapping[str, int]]:
    """Precedence between the rows that are kept."""
    import polars as pl

    used = np.zeros(len(frame), dtype=bool)
    used[kept["at"].to_numpy()] = True
    tasks = frame.select(job="job_name", name="task_name", used=pl.Series(used))
    edges, counts = edges_of(tasks)
    return Dag(len(kept), edges["child"], edges["parent"]), counts


def _notes(jobs: pl.DataFrame, dag: Dag, counts: Mapping[str, int]) -> list[str]:
    """What a reader of a result must know about precedence and times."""
    start, end = jobs["created"].to_numpy(), jobs["deleted"].to_numpy()
    early = int((start[dag.child] < end[dag.parent]).sum())
    notes = [
        f"{jobs['job'].n_unique()} jobs with {len(jobs)} tasks, {counts['dag']} of them with "
        f"precedence in their names; {len(dag.child)} edges, at most "
        f"{int(dag.level.max()) + 1} tasks one after the other",
        f"in {early} of {len(dag.child)} edges the child starts before the parent ends: take "
        "precedence from `after` and durations from the times, not an order",
        f"{int((start == end).sum())} tasks start and end in the same second",
        f"the longest critical path takes {float(dag.finish(end - start).max()):g} s",
    ]
    for key, text in (
        ("cut", f"names may be cut at {LONGEST} characters, so that parents may be missing"),
        ("doubtful", "last parents of cut names may be parts of numbers and were left out"),
        ("lost", "parents are not among the tasks of their job"),
        ("unused", "parents were left out as above, so that nothing waits for them"),
        ("shared", "tasks share their number with another task of their job"),
        ("other", "names tell no precedence and are not task_...: taken as independent"),
    ):
        if counts[key]:
            notes.append(f"{counts[key]} {text}")
    return notes
