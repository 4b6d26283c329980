"""Measured speeds of training jobs: throughputs by GPU model, and times of iterations by worker.

**Gavel** (OSDI 2020): training steps per second on three GPU models, in
``simulation_throughputs.json`` of https://github.com/stanford-futuredata/gavel (MIT). Its keys are
texts of Python tuples, ``('ResNet-50 (batch size 64)', 2)``: the job and its number of GPUs; under
a key, ``null`` is the throughput alone. Newer models are slower than older ones for some jobs: that
is measured, and kept. A zero is read as "does not run there": no channel comes of it.

**mini-batch-time** of Alibaba cluster-trace-gpu-v2020 (NSDI 2022): each ``job_N_norm.csv`` holds a
training job: ``worker``, ``gpu`` (per cent of a GPU that it requested), ``time`` (number of the
iteration) and ``batch_time_norm`` (its duration, 1000 for the job's longest). Durations have no
unit, so only ratios within a job are used.
"""

from __future__ import annotations

import ast
import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gangwise.core.arrays import Floats
from gangwise.core.errors import TraceError, UnknownName
from gangwise.logs.format import declared
from gangwise.logs.io.reading import LoadedTable, read_table
from gangwise.logs.io.text import document

MODELS = ("k80", "p100", "v100")
"""GPU models, oldest first."""


class GavelJob(NamedTuple):
    name: str
    gpus: int


class GavelThroughputs:
    """The table of ``simulation_throughputs.json``, plain or gzipped, or of a folder with it.

    ``throughput`` maps (model, :class:`GavelJob`) to steps per second alone, positive; a job that
    does not run on a model is absent. ``models`` are oldest first, ``jobs`` those that run on at
    least one, ``digests`` SHA-256 by name. ``apart`` is the same for workers that are spread over
    servers, where the file has it.
    """

    def __init__(self, file: Path | str):
        self.path = path = Path(file)
        if path.is_dir():
            names = ("simulation_throughputs.json", "simulation_throughputs.json.gz")
            if (table := next((path / n for n in names if (path / n).exists()), None)) is None:
                raise TraceError(f"no {names[0]} here; found {_listing(path)}", path)
            self.path = table
        tables, digest = document(self.path)
        if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
            raise TraceError("expected GPU models, and under each its jobs", self.path)
        self.digests = {self.path.name: digest}
        self.models = MODELS
        self.throughput: dict[tuple[str, GavelJob], float] = {}
        self.apart: dict[tuple[str, GavelJob], float] = {}
        jobs: dict[GavelJob, None] = {}
        # Each model may have a second table, of workers that are spread over servers.
        for model in MODELS:
            for text, entry in tables.get(f"{model}_unconsolidated", {}).items():
                job, speed = self._entry(f"{model}_unconsolidated", text, entry)
                if speed > 0:
                    self.apart[model, job] = speed
            if model not in tables:
                missing = UnknownName("GPU model", model, list(tables))
                raise TraceError(str(missing), self.path)
            for text, entry in tables[model].items():
                job, speed = self._entry(model, text, entry)
                if speed > 0:
                    self.throughput[model, job] = speed
                    jobs[job] = None
        if not jobs:
            raise TraceError("no job runs on any GPU model", self.path)
        self.jobs = tuple(jobs)

    def _entry(self, table: str, text: str, entry: Any) -> tuple[GavelJob, float]:
        place = f"{table}, key {text!r}: "
        try:
            # Keys are written by Python; literal_eval reads them and runs nothing.
            key = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            key = None
        kinds = [type(part) for part in key] if isinstance(key, tuple) else []
        # bool would pass isinstance for int, so that types are compared.
        if kinds != [str, int] or key[1] <= 0:
            raise TraceError(f"{place}this is not a tuple of a job and its GPUs", self.path)
        if not isinstance(entry, dict) or "null" not in entry:
            raise TraceError(f"{place}there is no throughput alone, under 'null'", self.path)
        speed = entry["null"]
        # NaN fails the comparison as well.
        if isinstance(speed, bool) or not isinstance(speed, (int, float)) or not 0 <= speed < 1e12:
            raise TraceError(
                f"{place}the throughput is {speed!r}; it must be a finite number, zero or larger",
                self.path,
            )
        return GavelJob(*key), float(speed)


def _listing(folder: Path) -> str:
    return ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"


@dataclass(frozen=True, eq=False)
class Worker:
    """One worker of a job, the GPUs that it requested, and its speed of shape [n].

    Speeds are iterations per time, 1 at the fastest iteration of the whole job, in their order.
    """

    job: str
    name: str
    gpus: float
    speed: Floats


class MiniBatchTime:
    """The jobs of a folder with ``job_1_norm.csv`` and so on, plain or gzipped.

    ``strict`` raises at the first bad row rather than leave it out. ``workers`` are
    :class:`Worker`, ``tables`` what was read by job, ``digests`` SHA-256 by file.
    """

    def __init__(self, folder: Path | str, strict: bool = False):
        folder = Path(folder)
        if not folder.is_dir():
            raise TraceError("there is no such folder", folder)
        files = sorted(
            # By number, for by name job 10 would come before job 2.
            (int(match[1]), path)
            for path in folder.iterdir()
            if (match := re.fullmatch(r"job_(\d+)_norm\.csv(?:\.gz)?", path.name))
        )
        if not files:
            raise TraceError(f"no job_N_norm.csv here; found {_listing(folder)}", folder)
        for (number, path), (next_number, _) in itertools.pairwise(files):
            if number == next_number:
                raise TraceError("this job is here twice, plain and gzipped; keep one", path)
        self.path = folder
        schema = declared("alibaba-gpu-v2020").table("mini_batch_times").schema
        self.tables: dict[str, LoadedTable] = {
            f"job-{number}": read_table(path, schema, strict=strict) for number, path in files
        }
        self.digests = {table.file.name: table.digest for table in self.tables.values()}
        self.workers = tuple(
            worker for job, table in self.tables.items() for worker in _workers(job, table)
        )


def _workers(job: str, table: LoadedTable) -> list[Worker]:
    # In the order of time, which the file does not promise.
    frame = table.frame.sort("worker", "time", "row")
    # The fastest of the whole job, so that its workers can be compared.
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
        # Durations have no unit: only ratios within a job mean something.
        speed = fastest / part["batch_time_norm"].to_numpy()
        workers.append(Worker(job, f"{job}/worker-{number}", float(gpus[0]) / 100.0, speed))
    return workers
