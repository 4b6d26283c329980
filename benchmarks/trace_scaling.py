"""How the CPU time of each reader grows with its rows, and with the parts that it is in.

    python -m benchmarks.trace_scaling [--most 1000000] [--parts 500] [--only NAME…] [--again 1]

Files are made from each format's schema, of 10⁵, 10⁶, … rows; each is read in a
process of its own, after one read of a small file. The exponent is the slope of log(CPU seconds)
over log(rows); 1 is linear. JSON documents are read whole, up to a tenth of the rows. Times are CPU
seconds of one thread, so that other processes on the machine count little.

Formats whose table may be in several files are then read with the same rows in 1 to 500 parts, and
with ever more parts of the same size. The others are one file by nature: a published file, a log of
the whole machine, or the file that a mapping names.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np

from gangwise.logs import open_reader

Made = Callable[[int, int], Iterator[str]]
"""The header, if it has one, and so many rows from a number on."""
CLOCK = [f"{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}" for s in range(86400)]


def clock(second: int) -> str:
    """A time of day, on one of 28 days."""
    day, second = divmod(second % (28 * 86400), 86400)
    return f"2024-01-{1 + day:02d}T{CLOCK[second]}"


def batch_task(n: int, first: int) -> Iterator[str]:
    """Of Alibaba v2018: jobs of three tasks."""
    for i in range(first, first + n):
        name = ("M1", "R2_1", "J3_1_2")[i % 3]
        yield f"{name},{1 + i % 4},j_{i // 3},1,Terminated,{100 + i},{160 + i},50,0.4"


def tasks_2017(n: int, first: int) -> Iterator[str]:
    """Of Alibaba v2017."""
    for i in range(first, first + n):
        yield f"{100 + i},{160 + i},{1 + i // 2},{i},2,Terminated,1,0.01"


def pods(n: int, first: int) -> Iterator[str]:
    """Of Alibaba gpu-v2023."""
    yield "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time"
    for i in range(first, first + n):
        yield f"p{i},{4000 + i % 7},4096,{i % 2},{500 * (i % 2)},,{i},{i + 60}"


def pai_tasks(n: int, first: int) -> Iterator[str]:
    """Of Alibaba gpu-v2020."""
    for i in range(first, first + n):
        yield f"{i:024x},worker,1,Terminated,{1000 + i}.0,{1900 + i}.0,600.0,29.3,50.0,T4"


def pai_jobs(n: int, first: int) -> Iterator[str]:
    """The jobs of those tasks."""
    for i in range(first, first + n):
        yield f"{i:024x},{i:040x},{i % 97:012x},Terminated,{990 + i}.0,{1900 + i}.0"


def instances_2025(n: int, first: int) -> Iterator[str]:
    """Of Alibaba gpu-v2025."""
    yield (
        "instance_sn,role,app_name,cpu_request,gpu_request,memory_request,creation_time,"
        "scheduled_time,deletion_time"
    )
    for i in range(first, first + n):
        yield f"instance_{i},HN,app_{i % 156},12,1,120.0,{i}.0,{i + 5}.0,{i + 900}.0"


def jobs_2026(n: int, first: int) -> Iterator[str]:
    """Of Alibaba spot-2026."""
    yield (
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,"
        "job_type"
    )
    for i in range(first, first + n):
        yield f"{i},{i % 57},A10,20,1,{1 + i % 4},{i},{60 + i % 900},HP"


def helios(n: int, first: int) -> Iterator[str]:
    """Of Helios."""
    yield (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,"
        "queue"
    )
    for i in range(first, first + n):
        times = ",".join(clock(i + wait).replace("T", " ") for wait in (0, 9, 90))
        yield f"{i},u{i % 97},vc1,8,32,1,COMPLETED,{times},81,9"


def acme(n: int, first: int) -> Iterator[str]:
    """Of Acme's Seren."""
    yield (
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,"
        "queue,gpu_time"
    )
    for i in range(first, first + n):
        times = ",".join(clock(i + wait).replace("T", " ") + "+08:00" for wait in (0, 9, 90))
        yield f"{i},u{i % 97},1,8,128,Other,FAILED,{times},81,9,648.0"


def sacct(n: int, first: int) -> Iterator[str]:
    """Of Slurm."""
    yield "JobID|User|State|Submit|Start|End|ReqTRES|AllocTRES|NNodes|NodeList"
    for i in range(first, first + n):
        times = "|".join(clock(i % 2_000_000 + wait) for wait in (0, 9, 90))
        tres = f"cpu={1 + i % 64},mem=16G,node=1"
        yield f"{i}|u{i % 97}|COMPLETED|{times}|{tres}|{tres}|1|n{i % 400}"


def swf(n: int, first: int) -> Iterator[str]:
    """Of the Standard Workload Format."""
    yield "; MaxProcs: 128"
    for i in range(first + 1, first + n + 1):
        yield f"{i} {i} 5 60 {1 + i % 64} -1 -1 8 120 -1 1 {i % 97} 1 -1 2 -1 -1 -1"


def own(n: int, first: int) -> Iterator[str]:
    """Of a mapping."""
    yield "id,cores,submit,run"
    for i in range(first, first + n):
        yield f"j{i},{1 + i % 64},{i},60"


def document(records: Iterator[object], begin: str, end: str) -> Iterator[str]:
    """A JSON document, a record a line."""
    before = begin
    for record in records:
        yield before + json.dumps(record)
        before = ","
    yield end


def philly(n: int, first: int) -> Iterator[str]:
    """A document of Philly."""

    def job(i: int) -> object:
        submitted, start, end = (clock(i + wait).replace("T", " ") for wait in (0, 9, 90))
        detail = [{"ip": f"m{i % 99}", "gpus": ["gpu0", "gpu1"]}]
        attempt = {"start_time": start, "end_time": end, "detail": detail}
        return {
            "user": "u",
            "status": "Pass",
            "vc": "v",
            "jobid": f"a{i}",
            "submitted_time": submitted,
            "attempts": [attempt],
        }

    return document(map(job, range(first, first + n)), "[", "]")


def kubernetes(n: int, first: int) -> Iterator[str]:
    """A dump of pods, half of them in gangs of two."""

    def pod(i: int) -> object:
        owner = [{"kind": "PyTorchJob", "name": f"g{i // 4}", "controller": True}] * (i % 4 < 2)
        created, start, end = (f"{clock(i + wait)}Z" for wait in (0, 9, 90))
        state = {"terminated": {"finishedAt": end}}
        return {
            "kind": "Pod",
            "metadata": {
                "name": f"p{i}",
                "namespace": "ml",
                "creationTimestamp": created,
                "ownerReferences": owner,
            },
            "spec": {
                "nodeName": f"n{i % 99}",
                "containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
            },
            "status": {
                "phase": "Succeeded",
                "startTime": start,
                "containerStatuses": [{"state": state}],
            },
        }

    return document(map(pod, range(first, first + n)), '{"kind": "List", "items": [', "]}")


def sacct_json(n: int, first: int) -> Iterator[str]:
    """What sacct --json prints."""

    def job(i: int) -> object:
        asked = [{"type": "cpu", "name": "", "count": 1 + i % 64}]
        return {
            "job_id": i + 1,
            "array": {"job_id": 0, "task_id": None},
            "het": {"job_id": 0},
            "user": f"u{i % 97}",
            "state": {"current": ["COMPLETED"]},
            "time": {"submission": 10**9 + i, "start": 10**9 + i + 9, "end": 10**9 + i + 90},
            "tres": {"requested": asked, "allocated": asked},
            "allocation_nodes": 1,
            "nodes": f"n{i % 400}",
            "steps": [],
        }

    return document(map(job, range(first, first + n)), '{"jobs": [', "]}")


def task_events(n: int, first: int) -> Iterator[str]:
    """Of Google 2011: a task is submitted, scheduled, and ends; a user has ten jobs."""
    for i in range(first, first + n, 3):
        time = 600_000_000 + i * 1000
        task = f"{i // 30},{i // 3 % 10}"
        for step, code in ((0, 0), (1, 1), (2, 4)):
            yield f"{time + step * 500},,{task},5,{code},u{i // 300},1,9,0.5,0.25,,0"


def instance_events(n: int, first: int) -> Iterator[str]:
    """Of Google 2019."""
    for i in range(first, first + n, 3):
        time = 600_000_000 + i * 1000
        for step, code in ((0, 0), (1, 3), (2, 6)):
            yield json.dumps(
                {
                    "time": str(time + step * 500),
                    "type": code,
                    "collection_id": str(i // 30),
                    "scheduling_class": 2,
                    "collection_type": 0,
                    "priority": 200,
                    "alloc_collection_id": "0",
                    "instance_index": i // 3 % 10,
                    "machine_id": "0",
                    "alloc_instance_index": "-1",
                    "constraint": [],
                    "resource_request": {"cpus": 0.5, "memory": 0.25},
                }
            )


def own_lines(n: int, first: int) -> Iterator[str]:
    """Of a mapping, an object a line."""
    for i in range(first, first + n):
        yield f'{{"id": "j{i}", "cores": {1 + i % 64}, "submit": {i}, "run": 60}}'


COLUMNS = '\n[jobs.columns]\nname = "id"\ncpu = "cores"\ncreated = "submit"\nduration = "run"\n'
MAPPING = f'trace = "csv"\n[jobs]\nfile = "jobs.csv"{COLUMNS}'
LINES = f'trace = "csv"\n[jobs]\nfile = "jobs.jsonl"\nformat = "json-lines"{COLUMNS}'
NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,8,T4\n"
MACHINES = "m1,T4,96,512,2\n"


@dataclass(frozen=True)
class Case:
    """What is read: tables, other files, and how parts are called where there may be several.

    A JSON document is read whole, and has a tenth of the rows.
    """

    tables: Mapping[str, Made]
    others: Mapping[str, str] = field(default_factory=dict)
    part: str = ""
    document: bool = False
    trace: str = ""
    opened: str = ""

    def write(self, folder: Path, rows: int) -> None:
        """All files."""
        for file, rows_of in self.tables.items():
            (folder / file).parent.mkdir(exist_ok=True)
            with (folder / file).open("w") as out:
                out.writelines(f"{row}\n" for row in rows_of(rows, 0))
        for file, text in self.others.items():
            (folder / file).write_text(text)

    def write_parts(self, folder: Path, parts: int, rows: int) -> None:
        """All files; each part has so many rows."""
        (rows_of,) = self.tables.values()
        for part in range(parts):
            file = folder / self.part.format(part)
            file.parent.mkdir(exist_ok=True)
            text = "".join(f"{row}\n" for row in rows_of(rows, part * rows)).encode()
            file.write_bytes(gzip.compress(text, 1) if file.suffix == ".gz" else text)
        for name, text in self.others.items():
            (folder / name).write_text(text)


EVENTS = "task_events/part-{:05d}-of-00500.csv.gz"
FORMATS: Mapping[str, Case] = {
    "acme": Case({"trace_seren.csv": acme}),
    "alibaba-gpu-v2020": Case(
        {"pai_task_table.csv": pai_tasks, "pai_job_table.csv": pai_jobs},
        {"pai_machine_spec.csv": MACHINES},
    ),
    "alibaba-gpu-v2023": Case({"pods.csv": pods}, {"nodes.csv": NODES}),
    "alibaba-gpu-v2025": Case({"instances.csv": instances_2025}),
    "alibaba-spot-2026": Case({"job_info_df.csv": jobs_2026}),
    "alibaba-v2017": Case({"batch_task.csv": tasks_2017}),
    "alibaba-v2018": Case({"batch_task.csv": batch_task}),
    "csv": Case({"jobs.csv": own}, {"mapping.toml": MAPPING}, opened="mapping.toml"),
    "csv, JSON lines": Case(
        {"jobs.jsonl": own_lines}, {"mapping.toml": LINES}, trace="csv", opened="mapping.toml"
    ),
    "google-2011": Case({EVENTS.format(0)[:-3]: task_events}, part=EVENTS),
    "google-2019": Case(
        {"instance_events-000000000000.json": instance_events},
        part="instance_events-{:012d}.json.gz",
    ),
    "helios": Case({"cluster_log.csv": helios}),
    "kubernetes": Case({"pods.json": kubernetes}, part="pods-{:03d}.json", document=True),
    "philly": Case({"cluster_job_log": philly}, document=True),
    "slurm-sacct": Case({"jobs.txt": sacct}, part="jobs-{:03d}.txt"),
    "slurm-sacct, JSON": Case(
        {"jobs.json": sacct_json}, part="jobs-{:03d}.json", document=True, trace="slurm-sacct"
    ),
    "swf": Case({"log.swf": swf}),
}


def read(name: str, folder: Path) -> None:
    """Read what is there, and print the CPU seconds and the peak of memory, in MiB."""
    case = FORMATS[name]
    with tempfile.TemporaryDirectory() as small:  # compiles, and imports what is imported late
        case.write(Path(small), 1000)
        open_reader(Path(small, case.opened), trace=case.trace or name).scan()
    begun = time.process_time()
    assert len(open_reader(folder / case.opened, trace=case.trace or name).scan().jobs)
    print(time.process_time() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def measured(name: str, folder: Path) -> tuple[float, float]:
    """What :func:`read` prints, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.trace_scaling", "--read", name, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    seconds, peak = map(float, done.stdout.split())
    return seconds, peak


def by_rows(name: str, most: int, again: int) -> str:
    """A row of the table: reads of 10⁵ rows, ten times as many, and so on; the largest first."""
    case = FORMATS[name]
    few = 10 if case.document else 1
    sizes = [10**power // few for power in range(5, 9) if 10**power <= most]
    taken = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        case.write(folder, sizes[-1])
        ends = {} if case.document else {f: offsets(folder / f, sizes) for f in case.tables}
        for place in reversed(range(len(sizes))):
            if case.document:
                case.write(folder, sizes[place])
            for file, at in ends.items():
                os.truncate(folder / file, at[place])
            taken[sizes[place]] = min(measured(name, folder) for _ in range(again))
    seconds = [taken[size][0] for size in sizes]
    slope, last = exponents(sizes, seconds, 2)
    return (
        f"| `{name}` | {sizes[-1]:,} | {' / '.join(f'{t:.2f}' for t in seconds)} | "
        f"{sizes[-1] / seconds[-1]:,.0f} | {taken[sizes[-1]][1]:,.0f} | {slope:.2f} | {last:.2f} |"
    )


def offsets(file: Path, sizes: list[int]) -> list[int]:
    """Bytes of so many lines from the start of a file."""
    found, lines, at = [], 0, 0
    wanted = iter(sizes)
    size = next(wanted)
    with file.open("rb") as opened:
        for line in opened:
            lines, at = lines + 1, at + len(line)
            if lines == size:
                found.append(at)
                size = next(wanted, 0)
    return found


def exponents(sizes: Sequence[int], seconds: Sequence[float], last: int) -> tuple[float, ...]:
    """The slope of log(seconds) over log(size): over all sizes, and over so many at the end."""
    grown, taken = np.log(sizes), np.log(seconds)
    return tuple(float(np.polyfit(grown[-n:], taken[-n:], 1)[0]) for n in (len(sizes), last))


EACH = 2100
"""Rows of a part that grows no larger; of JSON, a tenth of them."""


def by_parts(name: str, most: int, again: int) -> str:
    """A row of the table: the same rows in 1, 5, 50 and more parts; then more and more parts."""
    case = FORMATS[name]
    each = EACH // 10 if ".json" in case.part else EACH
    same, more = [], []
    for parts, rows, found in (
        *((n, most * each // n, same) for n in (1, 5, 50, 500) if n <= most),
        *((n, each, more) for n in (5, 16, 50, 158, 500) if n <= most),
    ):
        with tempfile.TemporaryDirectory() as made:
            case.write_parts(Path(made), parts, rows)
            found.append((parts, min(measured(name, Path(made)) for _ in range(again))[0]))
    slope, last = exponents(*zip(*more), 3)
    return (
        f"| `{name}` | {most * each:,} | {' / '.join(f'{t:.2f}' for _, t in same)} | "
        f"{' / '.join(f'{t:.2f}' for _, t in more)} | {slope:.2f} | {last:.2f} |"
    )


def main() -> None:
    """Print a row for each format, then one for each that may be in parts."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--most", type=int, default=1_000_000, help="rows; 0 for parts alone")
    options.add_argument("--parts", type=int, default=500, help="0 for none")
    options.add_argument("--only", nargs="*", default=list(FORMATS))
    options.add_argument("--again", type=int, default=1, help="the best of so many reads")
    options.add_argument("--read", nargs=2, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.read:
        read(given.read[0], Path(given.read[1]))
        return
    growth = "exponent | of the last ten times |"
    if given.most:
        print(f"| reader | rows | CPU seconds | rows/s | MiB | {growth}\n{'|---' * 7}|")
        for name in given.only:
            print(by_rows(name, given.most, given.again), flush=True)
    if given.parts:
        parts = f"in 1, 5, 50, 500 parts | in 5, 16, 50, 158, 500 parts of {EACH:,}"
        print(f"\n| reader | rows | {parts} | {growth}\n{'|---' * 6}|")
        for name in given.only:
            if FORMATS[name].part:
                print(by_parts(name, given.parts, given.again), flush=True)


if __name__ == "__main__":
    main()
