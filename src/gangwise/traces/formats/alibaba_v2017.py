"""Alibaba cluster-trace-v2017: batch jobs of 24 hours on 1300 machines, with integer names.

Published by Alibaba; see https://github.com/alibaba/clusterdata, folder ``cluster-trace-v2017``.
Files have no header. Columns are those of its ``schema.csv``; this reader was written from that
description and tried on rows made from it, since no row of the trace was at hand.

=================  ========================================================================
table              meaning here
=================  ========================================================================
``server_event``   ``add``: a machine with its CPUs and memory; ``softerror`` and ``harderror``:
                   nothing new is placed on it any more
``batch_task``     a request of equal tasks, CPUs and memory of each
=================  ========================================================================

Memory is normalised. Tasks form graphs, but this version of the trace does not say which.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from gangwise.core.errors import TraceError
from gangwise.traces.format import Format, TableFile
from gangwise.traces.io.account import Stage, leave_out, reasons
from gangwise.traces.io.schema import Check, Column, Schema, value
from gangwise.traces.io.text import named
from gangwise.traces.source import Read
from gangwise.traces.tables import Reader, Tables, server_table

NAME = "alibaba-v2017"
EVENTS = ("add", "softerror", "harderror")
UNITS = {"cpu": "cores", "mem": "normalised", "gpu": "GPUs"}

SERVER_EVENT = Schema(
    f"{NAME} server_event",
    (
        Column("timestamp"),
        Column("machine", number=False, pattern=r"\d+"),
        Column("event", number=False, pattern="|".join(EVENTS)),
        Column("detail", number=False, empty=True),
        Column("cpus", empty=True),
        Column("memory", empty=True),
        Column("disk", empty=True),
    ),
    header=False,
)
BATCH_TASK = Schema(
    f"{NAME} batch_task",
    (
        Column("create_time"),
        Column("end_time", empty=True),
        Column("job_id", number=False, pattern=r"\d+"),
        Column("task_id", number=False, pattern=r"\d+"),
        Column("instances", whole=True, empty=True),
        Column("status", number=False, pattern="[A-Za-z]+"),
        Column("cpus", empty=True),
        Column("mem", empty=True),
    ),
    header=False,
    checks=(
        Check(
            "end_time is before create_time",
            ("create_time", "end_time"),
            lambda: (value("end_time") > 0) & (value("end_time") < value("create_time")),
        ),
    ),
)
FORMAT = Format(
    NAME,
    "Alibaba cluster trace 2017",
    "https://github.com/alibaba/clusterdata (folder cluster-trace-v2017)",
    "for research and study, on the publisher's terms",
    (
        TableFile("server_event", SERVER_EVENT, "server_event", gives="servers"),
        TableFile("batch_task", BATCH_TASK, "batch_task", needed=True, gives="batch jobs"),
    ),
    span="24 hours",
    sha256={"trace_201708.tgz": "6d5fade2d54faef3fcb6b2d3f41e73d18a14c7d1b28d4aa3c6579ba76dce2958"},
    checksums="SHA256SUM of the repository, of the whole archive",
)


class AlibabaV2017(Reader):
    r"""Reader of cluster-trace-v2017.

    Parameters
    ----------
    path : path
        A directory with the files, or one of them. Without ``server_event`` there are no servers.
    statuses : sequence of str
        Batch tasks that are used; the others are left out and counted. Or one text, separated by
        ``|``.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> size = Path(folder.name, "batch_task.csv").write_text(
    ...     "100,160,1,1,2,Terminated,1,0.01\n120,200,1,2,1,Failed,1,0.01\n"
    ... )
    >>> AlibabaV2017(folder.name).scan().jobs.select("job", "name", "tasks", "cpu").rows()
    [('1', '1', 2.0, 1.0)]
    >>> folder.cleanup()
    """

    FORMAT = FORMAT

    def __init__(
        self,
        path: Path | str,
        *,
        statuses: Sequence[str] | str = ("Terminated",),
        strict: bool = False,
    ):
        super().__init__(path, strict=strict)
        self.statuses = named(statuses)

    def _read(self) -> Tables:
        read = self.source.read("batch_task")
        times = ("create_time", "end_time")
        rules = unusable(read.frame, self.statuses, "instances", ("cpus", "mem"), times)
        kept, left = leave_out("batch tasks", read.frame, rules)
        if kept.is_empty():
            raise TraceError(
                f"no batch task can be used: {reasons(left.dropped)}", self.source.path
            )
        jobs = kept.select(
            "row",
            name="task_id",
            cpu="cpus",
            mem="mem",
            gpu=pl.lit(0.0),
            tasks="instances",
            models=pl.lit(""),
            created="create_time",
            deleted="end_time",
            job="job_id",
            status="status",
        )
        stages = [*read.stages, left]
        servers, events, digests = server_table(), None, dict(read.digests)
        if self.source.has("server_event"):
            log = self.source.read("server_event")
            servers, events, stage = _machines(log)
            stages = [*log.stages, stage, *stages]
            digests |= log.digests
        notes = (
            "memory is normalised by the publisher; which tasks wait for which is not published",
        )
        return Tables(NAME, servers, jobs, tuple(stages), digests, notes, UNITS, events)


def _machines(log: Read) -> tuple[pl.DataFrame, pl.DataFrame, Stage]:
    """Servers, as they were last added, and when they come and go."""
    rows = log.frame.sort("timestamp", "part", "row").with_columns(up=pl.col("event") == "add")
    sized = rows.filter(pl.col("up") & (pl.col("cpus") > 0) & pl.col("memory").is_not_null())
    last = sized.group_by("machine", maintain_order=True).last().sort("row")
    servers = last.select(
        "row", name="machine", model=pl.lit(""), cpu="cpus", mem="memory", gpu=pl.lit(0.0)
    )
    known = rows.filter(pl.col("machine").is_in(last["machine"].to_list()))
    before = pl.col("up").shift(1).over("machine", order_by=pl.int_range(pl.len()))
    before = pl.coalesce(before, pl.col("timestamp") == 0)
    events = known.filter(pl.col("up") != before)
    machines = rows.group_by("machine").agg(pl.col("row").min())
    unsized = ~pl.col("machine").is_in(last["machine"].to_list())
    _, stage = leave_out("machines", machines, [("never added with its size", unsized)])
    return servers, events.select(time="timestamp", server="machine", up="up"), stage


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
    others = sorted(set(frame["status"].unique()) - set(statuses))
    rules = [(f"status is {other}", pl.col("status") == other) for other in others]
    rules += [(f"{name} is empty", pl.col(name).is_null()) for name in (count, *requests)]
    for name in times:
        unknown = pl.col(name).is_null() | (pl.col(name) == 0)
        rules.append((f"{name} is 0 or empty: outside the trace", unknown))
    rules.append((f"{count} is 0", pl.col(count) == 0))
    rules.append(("it requests nothing at all", pl.sum_horizontal(requests) == 0))
    return rules
