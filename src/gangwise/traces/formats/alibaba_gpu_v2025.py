"""Alibaba cluster-trace-gpu-v2025: instances of recommendation services on CPU and GPU nodes.

Published with "GPU-Disaggregated Serving for Deep Learning Recommendation Models at Scale" (NSDI
2025) at https://github.com/alibaba/clusterdata, folder ``cluster-trace-gpu-v2025``, subject to its
terms: 23,871 instances of 156 services, one file with a header.

===========================  =====================================================================
``role``                     ``CN``: on a CPU node; ``HN``: on a node with GPUs
``*_request``                cores, GPUs, GiB of memory (and of disk, not used); ``rdma_request``:
                             per cent of a network card, not used
``creation_time``, …         seconds since the trace began; creation and scheduling are empty where
                             they were before it, deletion where it was after the end
``max_instance_per_node``    most instances of the application on a node, -1 for any: not kept
===========================  =====================================================================

Nodes are not published.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from gangwise.core.errors import TraceError
from gangwise.traces.format import Format, TableFile
from gangwise.traces.io.account import leave_out, reasons
from gangwise.traces.io.schema import Check, Column, Schema, value
from gangwise.traces.tables import Reader, Tables, server_table

NAME = "alibaba-gpu-v2025"
INSTANCES = Schema(
    f"{NAME} instances",
    (
        Column("instance_sn", number=False),
        Column("role", number=False, pattern="CN|HN"),
        Column("app_name", number=False, empty=True),
        Column("cpu_request"),
        Column("gpu_request"),
        Column("memory_request"),
        Column("creation_time", empty=True),
        Column("scheduled_time", empty=True),
        Column("deletion_time", empty=True),
        Column("max_instance_per_node", least=-1, needed=False, empty=True),
    ),
    unique="instance_sn",
    checks=(
        Check(
            "deletion_time is before creation_time",
            ("creation_time", "deletion_time"),
            lambda: value("deletion_time") < value("creation_time"),
        ),
        Check(
            "scheduled_time is before creation_time",
            ("creation_time", "scheduled_time"),
            lambda: value("scheduled_time") < value("creation_time"),
        ),
        Check(
            "it requests no devices at all",
            ("cpu_request", "gpu_request", "memory_request"),
            lambda: value("cpu_request") + value("gpu_request") + value("memory_request") == 0,
        ),
    ),
)
FORMAT = Format(
    NAME,
    "Alibaba: instances of recommendation services, GPUs apart",
    "https://github.com/alibaba/clusterdata, folder cluster-trace-gpu-v2025",
    "the terms of the repository alibaba/clusterdata",
    (TableFile("instances", INSTANCES, "disaggregated_DLRM_trace", needed=True, gives="jobs"),),
)


class AlibabaGpuV2025(Reader):
    r"""Reader of the instances.

    Parameters
    ----------
    path : path
        The file, or a folder with it.
    present : {"start", "drop"}
        What becomes of instances that were there before the trace begins: they arrive at its
        start, without waiting, or are left out. Most of the devices are theirs.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.

    Raises
    ------
    TraceError
        When the file cannot be read, or no instance of it can be used.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "instances.csv")
    ...     size = file.write_text(
    ...         "instance_sn,role,app_name,cpu_request,gpu_request,memory_request,creation_time,"
    ...         "scheduled_time,deletion_time\n"
    ...         "a,HN,app_0,12,1,120.0,,,\nb,CN,app_1,64,0,320.0,100.0,130.0,190.0\n"
    ...     )
    ...     jobs = AlibabaGpuV2025(file).scan().jobs
    >>> jobs.select("name", "created", "started", "deleted", "unfinished").rows()
    [('a', 0.0, 0.0, 190.0, True), ('b', 100.0, 130.0, 190.0, False)]
    """

    FORMAT = FORMAT

    def __init__(self, path: Path | str, *, present: str = "start", strict: bool = False):
        if present not in ("start", "drop"):
            raise TraceError(f"present is {present!r}; choose start or drop")
        super().__init__(path, strict=strict)
        self.present = present

    def _read(self) -> Tables:
        read = self.source.read("instances")
        before = pl.col("creation_time").is_null()
        drop = before if self.present == "drop" else pl.lit(False)
        rules = [("there before the trace begins, so its arrival is not known", drop)]
        kept, stage = leave_out("instances", read.frame, rules)
        if kept.is_empty():
            raise TraceError(
                f"no instance can be used: {reasons(stage.dropped)}", read.stages[0].name
            )
        times = pl.col("creation_time", "scheduled_time", "deletion_time")
        last = pl.max_horizontal(times.max())
        present, open_ended = (
            int(kept[name].null_count()) for name in ("creation_time", "deletion_time")
        )
        created = pl.col("creation_time").fill_null(0.0)
        jobs = kept.select(
            "row",
            name="instance_sn",
            cpu="cpu_request",
            mem="memory_request",
            gpu="gpu_request",
            models=pl.lit(""),
            created=created,
            started=pl.when(before).then(0.0).otherwise("scheduled_time"),
            deleted=pl.col("deletion_time").fill_null(last),
            unfinished=pl.col("deletion_time").is_null(),
            status=pl.lit(""),
            application="app_name",
            partition="role",
        )
        notes = ["no servers: nodes are not published; set machines, and shape of each"]
        if present:
            notes.append(f"{present} instances were there before the trace; they arrive at 0 s")
        if open_ended:
            notes.append(
                f"{open_ended} instances were there after its end; they last until the last time "
                "in the file"
            )
        notes.append(
            "network, disk and how many instances of an application a node may have: not kept"
        )
        return Tables(
            NAME,
            server_table(),
            jobs,
            (*read.stages, *([stage] if stage.dropped else [])),
            read.digests,
            tuple(notes),
        )
