"""Alibaba cluster-trace-v2026-spot-gpu: training jobs, of high priority or on spot GPUs.

Published with "GFS: A Preemptive Scheduling Framework for GPU Clusters with Predictive Spot
Management" (ASPLOS 2026) at https://github.com/alibaba/clusterdata, folder
``cluster-trace-v2026-spot-gpu``, subject to its terms. Two files with headers, ``job_info_df.csv``
and ``node_info_df.csv``:

===========================  =====================================================================
``cpu_request``              cores and GPUs of each of ``worker_num`` workers: the description says
``gpu_request``              "by the job", and published jobs of 94 workers ask for one GPU
``gpu_model``                of a job: the one it needs
``submit_time``              seconds since the first submission
``duration``                 seconds that it runs; when it started is not published
``organization``             who pays: stands for the user
``job_type``                 ``HP`` or ``Spot``
===========================  =====================================================================

Memory is not published, of jobs or of nodes: it is 0.
"""

from __future__ import annotations

import polars as pl

from gangwise.traces.format import Format, TableFile
from gangwise.traces.io.schema import Check, Column, Schema, value
from gangwise.traces.source import Source
from gangwise.traces.tables import Reader, Tables, server_table

NAME = "alibaba-spot-2026"
NODES = Schema(
    f"{NAME} node list",
    (
        Column("node_name", number=False),
        Column("gpu_model", number=False, empty=True),
        Column("gpu_capacity_num", whole=True),
        Column("cpu_num"),
    ),
    unique="node_name",
)
JOBS = Schema(
    f"{NAME} job list",
    (
        Column("job_name", number=False),
        Column("organization", number=False, empty=True),
        Column("gpu_model", number=False, empty=True),
        Column("cpu_request"),
        Column("gpu_request"),
        Column("worker_num", whole=True),
        Column("submit_time"),
        Column("duration"),
        Column("job_type", number=False, empty=True),
    ),
    unique="job_name",
    checks=(
        Check("the job has no worker", ("worker_num",), lambda: value("worker_num") < 1),
        Check(
            "it requests no devices at all",
            ("cpu_request", "gpu_request"),
            lambda: value("cpu_request") + value("gpu_request") == 0,
        ),
    ),
)
FORMAT = Format(
    NAME,
    "Alibaba: training jobs on spot GPUs and with high priority",
    "https://github.com/alibaba/clusterdata, folder cluster-trace-v2026-spot-gpu",
    "the terms of the repository alibaba/clusterdata",
    (
        TableFile("nodes", NODES, "node_info_df", gives="servers"),
        TableFile("jobs", JOBS, "job_info_df", needed=True, gives="jobs"),
    ),
    size="4278 nodes",
)


class AlibabaSpot2026(Reader):
    r"""Reader of the job list, and of the node list where it is beside it.

    Parameters
    ----------
    path : path
        The folder with both, or the job list.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.

    Raises
    ------
    TraceError
        When there is no job list here, or it cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "job_info_df.csv")
    ...     size = file.write_text(
    ...         "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,"
    ...         "duration,job_type\n437260,57,A100-SXM4-80GB,15,1,16,100,60,Spot\n"
    ...     )
    ...     jobs = AlibabaSpot2026(file).scan().jobs
    >>> jobs.select("cpu", "gpu", "tasks", "models", "created", "deleted").rows()
    [(15.0, 1.0, 16, 'A100-SXM4-80GB', 100.0, 160.0)]
    """

    FORMAT = FORMAT

    def _read(self) -> Tables:
        jobs = self.source.read("jobs")
        path = self.source.path
        beside = Source(
            path if path.is_dir() or self.source.converted else path.parent,
            FORMAT,
            strict=self.source.strict,
        )
        servers, stages, digests = server_table(), jobs.stages, jobs.digests
        notes = ["memory is not published, of jobs or of nodes: it is 0"]
        if beside.has("nodes"):
            nodes = beside.read("nodes")
            servers = nodes.frame.select(
                "row",
                name="node_name",
                model=pl.when(pl.col("gpu_capacity_num") > 0)
                .then("gpu_model")
                .otherwise(pl.lit("")),
                cpu="cpu_num",
                mem=pl.lit(0.0),
                gpu="gpu_capacity_num",
            )
            stages, digests = (*nodes.stages, *stages), {**nodes.digests, **digests}
        else:
            notes.append("no servers: node_info_df.csv is not here")
        table = jobs.frame.select(
            "row",
            name="job_name",
            cpu="cpu_request",
            mem=pl.lit(0.0),
            gpu="gpu_request",
            tasks=pl.col("worker_num").cast(pl.Int64),
            models=pl.when(pl.col("gpu_request") > 0).then("gpu_model").otherwise(pl.lit("")),
            created="submit_time",
            deleted=pl.col("submit_time") + pl.col("duration"),
            status=pl.lit(""),
            user="organization",
            qos="job_type",
        )
        return Tables(NAME, servers, table, stages, digests, tuple(notes))
