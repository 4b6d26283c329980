"""Alibaba cluster-trace-gpu-v2020, ``mini-batch-time``: how long real workers took per iteration.

Published by Alibaba with "MLaaS in the Wild" (NSDI 2022); get it from
https://github.com/alibaba/clusterdata, folder ``cluster-trace-gpu-v2020/data``, licence CC-BY-4.0.
Each ``job_N_norm.csv`` holds a training job: ``worker``, ``gpu`` (per cent of a GPU that a worker
requested), ``time`` (number of the iteration) and ``batch_time_norm`` (its duration, 1000 for the
job's longest). Durations have no unit, so only ratios within a job are used.

``coefficient_variation.csv`` holds a hundred jobs: standard deviation / mean over ten workers of
the duration of each iteration, up to 2000; it is described here and used nowhere yet.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import TraceError
from gangwise.traces.formats import TableFile
from gangwise.traces.schema import Check, Column, Schema, value
from gangwise.traces.tables import Table, read_table

SCHEMA = Schema(
    "mini-batch-time job",
    (
        Column("worker", whole=True),
        Column("gpu"),
        Column("time", whole=True),
        Column("batch_time_norm", most=1000),
    ),
    checks=(
        Check("batch_time_norm is 0", ("batch_time_norm",), lambda: value("batch_time_norm") == 0),
        Check("gpu is 0", ("gpu",), lambda: value("gpu") == 0),
    ),
)
TABLE = TableFile(
    "mini_batch_times",
    SCHEMA,
    usual=r"job_\d+_norm",
    parts=True,
    gives="how fast real workers were",
)
VARIATION = TableFile(
    "mini_batch_variation",
    Schema(
        "mini-batch-time coefficient of variation",
        (
            Column("job", number=False, also=("",)),
            *(Column(str(iteration), empty=True) for iteration in range(2000)),
        ),
    ),
    usual="coefficient_variation",
    gives="how unlike workers were, which nothing uses yet",
)


@dataclass(frozen=True, eq=False)
class Worker:
    """One worker of a job.

    Attributes
    ----------
    job, name : str
    gpus : float
        GPUs that it requested.
    speed : ndarray of shape [n]
        Iterations per time, 1 at the fastest iteration of the whole job, in order of iteration.
    """

    job: str
    name: str
    gpus: float
    speed: npt.NDArray[np.float64]


class MiniBatchTime:
    r"""The jobs of a folder.

    Parameters
    ----------
    folder : path
        With ``job_1_norm.csv`` and so on, plain or gzipped.
    strict : bool
        Raise at the first bad row, rather than leave it out.

    Attributes
    ----------
    workers : tuple of Worker
    tables : mapping of str to Table
        What was read, and how many rows were left out for what reason.
    digests : mapping of str to str
        SHA-256 of each file.

    Raises
    ------
    TraceError
        Names the file and the row.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     size = Path(folder, "job_1_norm.csv").write_text(
    ...         ",worker,gpu,time,batch_time_norm\n0,0,25,1,500\n1,1,25,1,1000\n2,0,25,11,250\n"
    ...     )
    ...     trace = MiniBatchTime(folder)
    >>> [(w.name, w.gpus, w.speed.tolist()) for w in trace.workers]
    [('job-1/worker-0', 0.25, [0.5, 1.0]), ('job-1/worker-1', 0.25, [0.25])]
    """

    def __init__(self, folder: Path | str, strict: bool = False):
        folder = Path(folder)
        if not folder.is_dir():
            raise TraceError("there is no such folder", folder)
        files = sorted(
            (int(found[1]), path)
            for path in folder.iterdir()
            if (found := re.fullmatch(r"job_(\d+)_norm\.csv(?:\.gz)?", path.name))
        )
        if not files:
            listed = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
            raise TraceError(f"no job_N_norm.csv here; found {listed}", folder)
        for (number, path), (next_number, _) in itertools.pairwise(files):
            if number == next_number:
                raise TraceError("this job is here twice, plain and gzipped; keep one", path)
        self.folder = folder
        self.tables: dict[str, Table] = {
            f"job-{number}": read_table(path, SCHEMA, strict=strict) for number, path in files
        }
        self.digests = {table.file.name: table.digest for table in self.tables.values()}
        self.workers = tuple(
            worker for job, table in self.tables.items() for worker in _workers(job, table)
        )


def _workers(job: str, table: Table) -> list[Worker]:
    frame = table.frame.sort("worker", "time", "row")
    fastest = float(frame["batch_time_norm"].to_numpy().min())
    workers = []
    for part in frame.partition_by("worker", maintain_order=True):
        gpus, number = part["gpu"].to_numpy(), int(part["worker"][0])
        if (gpus != gpus[0]).any():
            row = int(part["row"].to_numpy()[np.flatnonzero(gpus != gpus[0])[0]])
            raise TraceError(
                f"worker {number} requested {gpus[0]:g} % of a GPU before, and now another share; "
                "a worker has one request",
                table.file,
                row,
            )
        speed = fastest / part["batch_time_norm"].to_numpy()
        workers.append(Worker(job, f"{job}/worker-{number}", float(gpus[0]) / 100.0, speed))
    return workers
