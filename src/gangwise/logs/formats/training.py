"""Logs of deep learning: the jobs of Microsoft Philly, and how fast training jobs ran.

**Philly** (2017, ``philly.toml``) has servers with 2 and with 8 GPUs. A task is what a job holds on
one server in its first attempt, as the publisher's notebook counts GPUs. The files give neither
cores nor memory, of servers or of jobs: both are 0, and not a device type of the cluster. GPUs have
no model names; their memory (``12GB``, ``24GB``) stands for one.

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
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats
from gangwise.core.errors import TraceError, UnknownName
from gangwise.logs.format import TraceFiles, all_files, declared, only_file
from gangwise.logs.formats.tabular import TableMapping
from gangwise.logs.reading import LoadedTable, RecordError, RowAccount, read_table
from gangwise.logs.tables import Reader, Tables, server_table
from gangwise.logs.text import document, read_records

NAME = "philly"
TIME = "%Y-%m-%d %H:%M:%S"
STATUSES = ("Pass", "Killed", "Failed")
EPOCH = datetime(1970, 1, 1)
FORMAT = declared(NAME)


@dataclass
class PhillyJobs:
    """The jobs of the log, in seconds since 1970 as if their times were UTC."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    seen: dict[str, set[str]] = field(default_factory=dict)
    uneven: int = 0
    running: int = 0

    def add(self, row: int, record: Any, account: RowAccount) -> None:
        try:
            job = _job(record)
        except RecordError as bad:
            account.refuse(row, str(bad), bad.held)
            return
        # Ids are unique in the published log; a copy would count its hours twice.
        if job["name"] in self.ids:
            account.refuse(row, "jobid was used before", job["name"])
            return
        self.ids.add(job["name"])
        # All attempts tell which GPUs a server has, the first one what the job asked for.
        for detail in job.pop("details"):
            for ip, gpus in detail:
                self.seen.setdefault(ip, set()).update(gpus)
        begun = job.pop("first")
        if begun is None:
            account.leave_out(row, "no attempt is recorded, so its GPUs are not known")
        elif not begun:
            account.leave_out(row, "its first attempt records no GPUs")
        elif job["created"] is None:
            account.leave_out(row, "no submitted_time is recorded")
        else:
            # Servers with as many GPUs each are one group of equal tasks.
            parts = sorted(Counter(begun.values()).items(), reverse=True)
            self.uneven += len(parts) > 1
            self.running += job["deleted"] is None
            for n, k in parts:
                hosts = "|".join(host for host, gpus in begun.items() if gpus == n)
                self.rows.append({"row": row, **job, "gpu": float(n), "tasks": k, "hosts": hosts})

    def table(self) -> pl.DataFrame:
        times = ["created", "started", "deleted"]
        texts = dict.fromkeys(["name", "user", "status", "hosts", "partition"], pl.String)
        numbers = dict.fromkeys(["gpu", *times], pl.Float64)
        kinds = {"row": pl.Int64, "tasks": pl.Int64, **texts, **numbers}
        jobs = pl.DataFrame(self.rows, schema=kinds)
        return TableMapping(FORMAT.mapping["jobs"]).select(jobs)


def _job(record: Any) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise RecordError("the record is not an object", record)
    name, attempts = record.get("jobid"), record.get("attempts")
    if not isinstance(name, str) or not name:
        raise RecordError("jobid is missing or no text", name)
    if record.get("status") not in STATUSES:
        raise RecordError("status is not Pass, Killed or Failed", record.get("status"))
    if not isinstance(attempts, list) or not all(isinstance(a, dict) for a in attempts):
        raise RecordError("attempts is not a list of objects", attempts)
    created = _time(record, "submitted_time")
    spans = [(_time(a, "start_time"), _time(a, "end_time")) for a in attempts]
    details = [list(_detail(attempt)) for attempt in attempts]
    for start, end in spans:
        if start is not None and end is not None and end < start:
            raise RecordError("an attempt ends before it starts", name)
    # Times that are there: attempts may lack either end.
    times = [time for span in spans for time in span if time is not None]
    if created is not None and times and min(times) < created:
        raise RecordError("an attempt is before submitted_time", name)
    gpus_of: Counter[str] = Counter()
    # A server may be listed twice in an attempt.
    for ip, gpus in details[0] if details else []:
        gpus_of[ip] += len(gpus)
    return {
        "name": name,
        "user": record["user"] if isinstance(record.get("user"), str) else "",
        "status": record["status"],
        "partition": record["vc"] if isinstance(record.get("vc"), str) else "",
        "created": created,
        "started": spans[0][0] if spans else None,
        # The last attempt's end is the job's, with the pauses in between.
        "deleted": spans[-1][1] if spans else None,
        "details": details,
        "first": {ip: n for ip, n in gpus_of.items() if n} if attempts else None,
    }


def _time(record: dict[str, Any], key: str) -> float | None:
    text = record.get(key)
    # The log writes None as a text in places.
    if text in (None, "", "None"):
        return None
    try:
        # Local times without a zone, taken as they are; only differences count.
        return (datetime.strptime(text, TIME) - EPOCH).total_seconds()
    except (TypeError, ValueError):
        raise RecordError(f"{key} is not a time such as 2017-10-07 01:11:39", text) from None


def _detail(attempt: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    for part in attempt.get("detail") or []:
        ip, gpus = (part.get("ip"), part.get("gpus")) if isinstance(part, dict) else (None, None)
        if not isinstance(ip, str) or not isinstance(gpus, list):
            raise RecordError("detail is not a list of servers with their GPUs", part)
        yield ip, [str(gpu) for gpu in gpus]


class Philly(Reader):
    """Reader of the unpacked folder, or of the job log with the machine list beside it.

    ``capacity`` is ``listed``, GPUs of a server as in the machine list, or ``seen``, all that the
    job log names on it where these are more. The two disagree:
    https://github.com/msr-fiddle/philly-traces/issues/8.
    """

    FORMAT = FORMAT

    def __init__(self, path: Path | str, *, capacity: str = "listed", strict: bool = False):
        if capacity not in ("listed", "seen"):
            raise TraceError(f"capacity is {capacity!r}; choose listed or seen")
        super().__init__(path, strict=strict)
        self.capacity = capacity

    def _read(self) -> Tables:
        log = read_records(_single_file(self.source.path, "job_log"))
        account, jobs = RowAccount(log.file, self.source.strict), PhillyJobs()
        for row, record in enumerate(log.records, 1):
            jobs.add(row, record, account)
        account.require(len(jobs.rows), "job")
        stages = [account.stage(log.file.name, len(log.records))]
        digests = {log.file.name: log.digest}
        path, servers = self.source.path, None
        folder = path if path.is_dir() else path.parent
        if any(FORMAT.table("machines").fits(file) for file in all_files(folder)):
            file = _single_file(folder, "machines")
            servers = TraceFiles(file, FORMAT, strict=self.source.strict).read("machines")
        facts = {"uneven": jobs.uneven, "running": jobs.running, "no_list": servers is None}
        facts |= {"more": 0, "absent": 0}  # servers on which log and list disagree
        server_rows = server_table()
        if servers is not None:
            stages, digests = [*servers.stages, *stages], {**servers.digests, **digests}
            # The log may show more GPUs on a server than the list has.
            listed = dict(servers.frame.select("machineId", "number of GPUs").rows())
            for name, gpus in jobs.seen.items():
                facts["more"] += name in listed and len(gpus) > listed[name]
                facts["absent"] += name not in listed
            by_log = jobs.seen if self.capacity == "seen" else {}
            rows = servers.frame.select("row", "machineId", "number of GPUs", "single GPU mem")
            server_rows = server_table(
                (row, name, memory or "gpu", 0.0, 0.0, max(gpus, float(len(by_log.get(name, ())))))
                for row, name, gpus, memory in rows.rows()
            )
        section = TableMapping(FORMAT.mapping["facts"], {"capacity": self.capacity})
        notes = section.notes(pl.DataFrame([facts]))
        return Tables(NAME, server_rows, jobs.table(), tuple(stages), digests, tuple(notes))


def _single_file(path: Path, table: str) -> Path:
    title = FORMAT.table(table).schema.name
    files = [file for file in all_files(path) if FORMAT.table(table).fits(file)]
    if file := only_file(files, f"the {title}", path, "keep one"):
        return file
    names = ", ".join(file.name for file in all_files(path)[:12]) or "nothing"
    raise TraceError(
        f"no {title} here (published as cluster_job_log and cluster_machine_list, in "
        f"trace-data.tar.gz, which must be unpacked first); found {names}",
        path,
    )


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
