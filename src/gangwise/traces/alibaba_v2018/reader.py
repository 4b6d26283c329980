"""Alibaba cluster-trace-v2018: batch jobs whose tasks form graphs, beside long-running containers.

Published by Alibaba; see https://github.com/alibaba/clusterdata, folder ``cluster-trace-v2018``.

=====================  ====================================================================
table                  meaning here
=====================  ====================================================================
``machine_meta``       an event log; a machine is what its last row with status USING says
``batch_task``         a request of ``instance_num`` equal tasks, ``plan_cpu`` / 100 cores and
                       ``plan_mem`` each, from ``start_time`` to ``end_time``
``container_meta``     a request of one task, from its first row to its end
``machine_usage``,     measured load: :meth:`AlibabaV2018.usage`
``container_usage``
``batch_instance``     recognised; not used
=====================  ====================================================================

Memory is in the publisher's units: 100 is the largest machine. A time is seconds since the trace
began; a 0 stands for one before or after the trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gangwise.core.errors import TraceError
from gangwise.traces.alibaba_v2018.batch import batch_jobs
from gangwise.traces.alibaba_v2018.schemas import FORMAT, PERCENTAGES
from gangwise.traces.fidelity import Stage, leave_out
from gangwise.traces.source import Read
from gangwise.traces.text import named
from gangwise.traces.trace import Reader, Tables, server_table

if TYPE_CHECKING:
    import polars as pl


WORKLOADS = {
    "batch": ("batch_task",),
    "containers": ("container_meta",),
    "both": ("batch_task", "container_meta"),
}
UNITS = {"cpu": "cores", "mem": "% of max", "gpu": "GPUs"}


class Usage(NamedTuple):
    """Measured load.

    ``frame`` has ``part``, ``row``, ``time`` in seconds, ``server``, for containers ``container``,
    and the measurements of the table, null where missing or invalid. ``invalid`` maps a column to
    (values outside 0 to 100, which are null in ``frame``; the first row with one).
    """

    frame: pl.DataFrame
    invalid: Mapping[str, tuple[int, int]]
    stages: tuple[Stage, ...]


class AlibabaV2018(Reader):
    r"""Reader of cluster-trace-v2018.

    Parameters
    ----------
    path : path
        A directory with the files, or one of them. Without ``machine_meta`` there are no servers.
    workload : {"batch", "containers", "both"}
        Where jobs come from.
    statuses : sequence of str
        Batch tasks that are used; the others are left out and counted. Or one text, separated by
        ``|``.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.

    Raises
    ------
    TraceError
        For an unknown workload, or files that cannot be used, such as those of cluster-trace-v2017.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> size = Path(folder.name, "batch_task.csv").write_text(
    ...     "M1,2,j_1,1,Terminated,100,160,50,0.4\n"
    ...     "R2_1,1,j_1,1,Terminated,120,200,100,0.2\n"
    ...     "M3,1,j_1,1,Failed,120,200,100,0.2\n"
    ... )
    >>> reader = AlibabaV2018(folder.name)
    >>> reader.scan().jobs.select("job", "name", "tasks", "cpu", "created", "after").rows()
    [('j_1', 'M1', 2.0, 0.5, 100.0, ''), ('j_1', 'R2_1', 1.0, 1.0, 120.0, 'M1')]
    >>> reader.scan().stages[1].dropped
    {'status is Failed': (1, 3)}
    >>> folder.cleanup()
    """

    FORMAT = FORMAT

    def __init__(
        self,
        path: Path | str,
        *,
        workload: str = "batch",
        statuses: Sequence[str] | str = ("Terminated",),
        strict: bool = False,
    ):
        super().__init__(path, strict=strict)
        if workload not in WORKLOADS:
            raise TraceError(f"workload is {workload!r}; it must be one of {', '.join(WORKLOADS)}")
        self.workload = workload
        self.statuses = named(statuses)

    def usage(self, table: str = "machine_usage") -> Usage:
        """Measured load of ``machine_usage`` or ``container_usage``, over time."""
        import polars as pl

        read = self.source.read(table)
        invalid, columns = {}, {}
        for name in (name for name in PERCENTAGES if name in read.frame.columns):
            outside = ~pl.col(name).is_between(0, 100)
            rows = read.frame.filter(outside)["row"]
            if len(rows):
                invalid[name] = (len(rows), int(rows[0]))
            columns[name] = pl.when(~outside).then(name)
        frame = read.frame.with_columns(**columns).rename(
            {"time_stamp": "time", "machine_id": "server", "container_id": "container"},
            strict=False,
        )
        return Usage(frame, invalid, read.stages)

    def _read(self) -> Tables:
        import polars as pl

        self._refuse_v2017()
        servers, events = server_table(), None
        jobs: list[pl.DataFrame] = []
        stages: list[Stage] = []
        notes: list[str] = []
        digests: dict[str, str] = {}
        if self.source.has("machine_meta"):
            read = self.source.read("machine_meta")
            servers, events, stage = _machines(read)
            stages += [*read.stages, stage]
            digests |= read.digests
        for table in WORKLOADS[self.workload]:
            read = self.source.read(table)
            if table == "batch_task":
                file = self.source.files(table)[0]
                made, more, said = batch_jobs(read, self.statuses, file, self.source.strict)
            else:
                made, more, said = _containers(read)
            jobs.append(made)
            stages += [*read.stages, *more]
            notes += said
            digests |= read.digests
        notes.append("memory is in the publisher's units: 100 is that of the largest machine")
        return Tables(
            FORMAT.name,
            servers,
            pl.concat(jobs),
            tuple(stages),
            digests,
            tuple(notes),
            UNITS,
            events,
        )

    def _refuse_v2017(self) -> None:
        from gangwise.traces.alibaba_v2017 import AlibabaV2017

        wanted = WORKLOADS[self.workload][0]
        if not self.source.has(wanted) and AlibabaV2017.recognise(self.source.path):
            raise TraceError(
                "this is Alibaba cluster-trace-v2017 (batch_task of 8 columns, integer ids), not "
                "v2018 (9 columns, jobs j_1, j_2, ...); read it as the trace alibaba-v2017, or "
                "give the folder of v2018",
                self.source.path,
            )


def _machines(read: Read) -> tuple[pl.DataFrame, pl.DataFrame, Stage]:
    """Servers, and when they come and go, from a log of states."""
    import polars as pl

    up = pl.col("status") == "USING"
    log = read.frame.sort("time_stamp", "part", "row").with_columns(up=up)
    last = log.filter("up").group_by("machine_id", maintain_order=True).last().sort("row")
    servers = last.select(
        "row", name="machine_id", model=pl.lit(""), cpu="cpu_num", mem="mem_size", gpu=pl.lit(0.0)
    )
    before = pl.col("up").shift(1).over("machine_id", order_by=pl.int_range(pl.len()))
    known = pl.coalesce(before, pl.when(pl.col("time_stamp") > 0).then(pl.lit(False)), "up")
    events = log.filter(up != known).select(time="time_stamp", server="machine_id", up="up")
    machines = log.group_by("machine_id").agg(pl.col("row").min(), pl.col("up").any())
    _, stage = leave_out("machines", machines, [("never USING", ~pl.col("up"))])
    return servers, events, stage


def _containers(read: Read) -> tuple[pl.DataFrame, list[Stage], list[str]]:
    """A job per container, from its first row to the row that says ``stopped``, if its last."""
    import polars as pl

    log = read.frame.sort("time_stamp", "part", "row")
    end = pl.lit(float(log["time_stamp"].to_numpy().max()))
    asked = pl.struct("cpu_request", "mem_size")
    jobs = (
        log.group_by("container_id", maintain_order=True)
        .agg(
            pl.col("row", "app_du", "cpu_request", "mem_size").first(),
            created=pl.col("time_stamp").first(),
            last=pl.col("time_stamp").last(),
            status=pl.col("status").last(),
            changed=asked.n_unique() > 1,
        )
        .sort("row")
    )
    nothing = pl.col("cpu_request") + pl.col("mem_size") == 0
    used, stage = leave_out("containers", jobs, [("it requests nothing at all", nothing)])
    stopped = pl.col("status") == "stopped"
    made = used.select(
        "row",
        name="container_id",
        cpu=pl.col("cpu_request") / 100,
        mem="mem_size",
        gpu=pl.lit(0.0),
        tasks=pl.lit(1.0),
        models=pl.lit(""),
        created="created",
        deleted=pl.when(stopped).then("last").otherwise(end),
        job="container_id",
        after=pl.lit(""),
        started="created",
        status="status",
    )
    notes = [
        f"{int((used['created'] == 0).sum())} of {len(used)} containers are there from time 0 on; "
        f"{int((used['status'] != 'stopped').sum())} do not end as stopped and are taken to stay "
        "until the table's last row",
        f"{int(used['changed'].sum())} containers change their request; the first one is used",
    ]
    return made, [stage], notes
