"""Helios (SenseTime, 2020) and Acme (Shanghai AI Lab, 2023): Slurm logs of GPU datacenters, as CSV.

Published at https://github.com/S-Lab-System-Group/HeliosData with "Characterization and Prediction
of Deep Learning Workloads in Large-Scale GPU Datacenters" (SC 2021), and at
https://github.com/InternLM/AcmeTrace with "Characterization of Large Language Model Development in
the Datacenter" (NSDI 2024). Both have a header and name columns alike:

===========================  =====================================================================
``gpu_num``, ``cpu_num``     totals over the nodes of a job; a task is the part on one node
``node_num``                 tasks
``submit_time``, …           local times: of Helios without zone, of Acme with one (``+08:00``)
``duration``                 from start to end by the schema; in the published rows of Acme's Kalos
                             it includes the queue, so run times are ``end_time`` - ``start_time``
``vc``, ``type``             virtual cluster (Helios); type of workload (Acme)
``mem_per_pod_GB``           of each task (Acme's Kalos)
===========================  =====================================================================

Helios also lists the GPUs of each virtual cluster, day by day (``cluster_gpu_number.csv``): servers
are as many nodes of 8 GPUs as the largest total makes. Cores of nodes are published with neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from gangwise.core.errors import TraceError
from gangwise.traces.format import Format, TableFile
from gangwise.traces.io.account import leave_out, reasons
from gangwise.traces.io.schema import Check, Column, Schema, value
from gangwise.traces.tables import Reader, Tables, server_table

NEVER = "None|NaT|nan"
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?:[+-]\d\d:?\d\d)?"
GPUS = 8
"""Of a node, by both papers."""


def _schema(name: str, *own: Column, absent: Sequence[str] = ()) -> Schema:
    times = [
        Column("submit_time", number=False, pattern=TIME),
        Column("start_time", number=False, pattern=f"{TIME}|{NEVER}", empty=True),
        Column("end_time", number=False, pattern=f"{TIME}|{NEVER}", empty=True),
    ]
    return Schema(
        name,
        (
            Column("job_id", number=False),
            Column("user", number=False, empty=True),
            Column("gpu_num", whole=True),
            Column("cpu_num"),
            Column("node_num", whole=True),
            Column("state", number=False, empty=True),
            *times,
            *own,
        ),
        unique="job_id",
        checks=(
            Check("the job is on no node", ("node_num",), lambda: value("node_num") < 1),
            Check(
                "it requests no devices at all",
                ("gpu_num", "cpu_num"),
                lambda: value("gpu_num") + value("cpu_num") == 0,
            ),
        ),
        absent=tuple(absent),
    )


HELIOS = Format(
    "helios",
    "SenseTime Helios 2020: jobs of GPU clusters",
    "https://github.com/S-Lab-System-Group/HeliosData",
    "see the repository",
    (
        TableFile(
            "jobs",
            _schema("helios cluster log", Column("vc", number=False, empty=True)),
            "cluster_log",
            needed=True,
            gives="jobs",
        ),
        TableFile(
            "gpus",
            Schema(
                "helios GPUs by day",
                (Column("date", number=False, pattern=r"\d{4}-\d\d-\d\d"), Column("total")),
            ),
            "cluster_gpu_number",
            gives="servers",
        ),
    ),
    span="April to September 2020",
    size="343 MB, of four clusters",
)
ACME = Format(
    "acme",
    "Shanghai AI Lab Acme 2023: jobs of two clusters for large language models",
    "https://github.com/InternLM/AcmeTrace",
    "see the repository",
    (
        TableFile(
            "jobs",
            _schema(
                "acme job trace",
                Column("type", number=False, empty=True),
                Column("mem_per_pod_GB", empty=True, needed=False),
                absent=("vc",),
            ),
            r"trace_\w+",
            needed=True,
            gives="jobs",
        ),
    ),
    span="March to August 2023",
    size="109 MB without utilisation",
)


class Helios(Reader):
    r"""Reader of a cluster's log, and of its GPUs by day where they are beside it.

    Parameters
    ----------
    path : path
        The folder of one cluster, or its log.
    cores : float
        Of a node: not published with the trace. Without it cores are not counted, of servers or
        of jobs.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.

    Raises
    ------
    TraceError
        When there is no log here, or no job of it can be used.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "cluster_log.csv")
    ...     size = file.write_text(
    ...         "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,"
    ...         "duration,queue\n7,u1,vc1,16,64,2,COMPLETED,2020-06-09 18:41:00,"
    ...         "2020-06-09 18:42:00,2020-06-09 18:52:00,600,60\n"
    ...     )
    ...     jobs = Helios(file, cores=48).scan().jobs
    >>> jobs.select("gpu", "cpu", "tasks", "created", "started", "deleted").rows()
    [(8.0, 32.0, 2, 0.0, 60.0, 660.0)]
    """

    FORMAT = HELIOS
    ZONE: ClassVar[str] = "times have no zone; across a change of the clocks they are an hour off"

    def __init__(self, path: Path | str, *, cores: float = 0.0, strict: bool = False):
        super().__init__(path, strict=strict)
        if not 0 <= cores < 1e6:
            raise TraceError(f"cores is {cores!r}; give how many a node has")
        self.cores = float(cores)

    def _read(self) -> Tables:
        read = self.source.read("jobs")
        raw = read.frame.with_columns(
            _seconds(name).alias(name) for name in ("submit_time", "start_time", "end_time")
        )
        kept, stage = leave_out(
            "times",
            raw,
            [
                ("submit_time is not a time that exists", pl.col("submit_time").is_null()),
                ("end_time is before start_time", pl.col("end_time") < pl.col("start_time")),
                ("start_time is before submit_time", pl.col("start_time") < pl.col("submit_time")),
                (
                    "it asks for GPUs that its nodes cannot share out in whole ones",
                    (pl.col("gpu_num") > 0) & (pl.col("gpu_num") < pl.col("node_num")),
                ),
            ],
        )
        if kept.is_empty():
            raise TraceError(f"no job can be used: {reasons(stage.dropped)}", self.source.path)
        uneven = pl.col("gpu_num") % pl.col("node_num") != 0
        several, running = int(kept.select(uneven.sum()).item()), kept["end_time"].null_count()
        tasks = pl.when(uneven).then("gpu_num").otherwise("node_num")
        last = pl.max_horizontal(pl.col("submit_time", "start_time", "end_time").max())
        begin = pl.col("submit_time").min()
        memory = "mem_per_pod_GB" in kept.columns
        jobs = kept.select(
            "row",
            name="job_id",
            cpu=(pl.col("cpu_num") / tasks) if self.cores else pl.lit(0.0),
            mem=pl.col("mem_per_pod_GB").fill_null(0.0) if memory else pl.lit(0.0),
            gpu=pl.col("gpu_num") / tasks,
            tasks=tasks.cast(pl.Int64),
            models=pl.lit(""),
            created=pl.col("submit_time") - begin,
            started=pl.col("start_time") - begin,
            deleted=pl.col("end_time").fill_null(last) - begin,
            unfinished=pl.col("end_time").is_null() & pl.col("start_time").is_not_null(),
            status="state",
            user="user",
            partition=pl.col("vc") if "vc" in kept.columns else pl.lit(""),
            application=pl.col("type") if "type" in kept.columns else pl.lit(""),
        )
        notes = [self.ZONE]
        if several:
            notes.append(
                f"{several} jobs have GPUs that do not divide by their nodes; their tasks are "
                "single GPUs"
            )
        if running:
            notes.append(f"{running} jobs have no end_time; they last until the last time here")
        if not self.cores:
            asking = int((jobs["gpu"] == 0).sum())
            notes.append(
                "cores of nodes are not published: cores are not counted, of servers or of jobs "
                f"(cores=); {asking} jobs ask for no GPUs"
            )
        servers, stages, digests, about = self._servers()
        return Tables(
            self.FORMAT.name,
            servers,
            jobs,
            (*stages, *read.stages, *([stage] if stage.dropped else [])),
            {**digests, **read.digests},
            (*notes, *about),
        )

    def _servers(self) -> tuple[pl.DataFrame, tuple[Any, ...], dict[str, str], list[str]]:
        tables = [table.name for table in self.FORMAT.tables]
        beside = self.source.path if self.source.path.is_dir() else self.source.path.parent
        source = type(self.source)(beside, self.FORMAT, strict=self.source.strict)
        if "gpus" not in tables or not source.has("gpus"):
            return server_table(), (), {}, ["no servers: set machines, and shape of each"]
        read = source.read("gpus")
        most = int(read.frame["total"].to_numpy().max())
        number = -(-most // GPUS)
        rows = [
            (n, f"node-{n:04d}", "gpu", self.cores, 0.0, float(GPUS)) for n in range(1, number + 1)
        ]
        low = int(read.frame["total"].to_numpy().min())
        note = (
            f"servers are {number} nodes of {GPUS} GPUs, for the largest total of a day, {most}; "
            f"the smallest is {low}. Virtual clusters are not kept apart"
        )
        return server_table(rows), read.stages, read.digests, [note]


class Acme(Helios):
    """Reader of ``trace_seren.csv`` or ``trace_kalos.csv``; arguments as of :class:`Helios`."""

    FORMAT = ACME
    ZONE = "times have their zone written out"


def _seconds(name: str) -> pl.Expr:
    """Seconds since 1970; of a time without zone as if it were UTC."""
    text = pl.col(name).str.replace(r"\.\d+", "")
    zoned = text.str.to_datetime("%Y-%m-%d %H:%M:%S%z", strict=False, time_unit="ms")
    plain = text.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, time_unit="ms")
    return pl.coalesce(zoned.dt.epoch("s"), plain.dt.epoch("s")).cast(pl.Float64)
