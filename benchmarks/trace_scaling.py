"""How the CPU time of each reader grows with its rows, and that of Google's with its parts.

    python -m benchmarks.trace_scaling [--most 1000000] [--parts 500] [--only NAME]

Files are made from each format's schema, 10⁵ rows and more, by factors of √10; the exponent is the
slope of log(CPU seconds) over log(rows), after one read of a small file; 1 is linear. JSON
documents are read whole, up to a tenth of the rows. Times are CPU seconds of one thread, so that
other processes on the machine count little.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

if __name__ == "__main__":
    os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np

from gangwise.traces.registered import open_reader

DAY = "2024-01-15"
Made = Callable[[int], Iterator[str]]


def clock(second: int) -> str:
    """A time of day, on one of 28 days."""
    day, second = divmod(second % (28 * 86400), 86400)
    return f"2024-01-{1 + day:02d}T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def batch_task(n: int) -> Iterator[str]:
    """Of Alibaba v2018: jobs of three tasks."""
    for i in range(n):
        name = ("M1", "R2_1", "J3_1_2")[i % 3]
        yield f"{name},{1 + i % 4},j_{i // 3},1,Terminated,{100 + i},{160 + i},50,0.4"


def tasks_2017(n: int) -> Iterator[str]:
    """Of Alibaba v2017."""
    for i in range(n):
        yield f"{100 + i},{160 + i},{1 + i // 2},{i},2,Terminated,1,0.01"


def pods(n: int) -> Iterator[str]:
    """Of Alibaba gpu-v2023."""
    yield "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time"
    for i in range(n):
        yield f"p{i},{4000 + i % 7},4096,{i % 2},{500 * (i % 2)},,{i},{i + 60}"


def pai_tasks(n: int) -> Iterator[str]:
    """Of Alibaba gpu-v2020."""
    for i in range(n):
        yield f"{i:024x},worker,1,Terminated,{1000 + i}.0,{1900 + i}.0,600.0,29.3,50.0,T4"


def pai_jobs(n: int) -> Iterator[str]:
    """The jobs of those tasks."""
    for i in range(n):
        yield f"{i:024x},{i:040x},{i % 97:012x},Terminated,{990 + i}.0,{1900 + i}.0"


def instances_2025(n: int) -> Iterator[str]:
    """Of Alibaba gpu-v2025."""
    yield (
        "instance_sn,role,app_name,cpu_request,gpu_request,memory_request,creation_time,"
        "scheduled_time,deletion_time"
    )
    for i in range(n):
        yield f"instance_{i},HN,app_{i % 156},12,1,120.0,{i}.0,{i + 5}.0,{i + 900}.0"


def jobs_2026(n: int) -> Iterator[str]:
    """Of Alibaba spot-2026."""
    yield (
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,"
        "job_type"
    )
    for i in range(n):
        yield f"{i},{i % 57},A10,20,1,{1 + i % 4},{i},{60 + i % 900},HP"


def helios(n: int) -> Iterator[str]:
    """Of Helios."""
    yield (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,"
        "queue"
    )
    for i in range(n):
        times = ",".join(clock(i + wait).replace("T", " ") for wait in (0, 9, 90))
        yield f"{i},u{i % 97},vc1,8,32,1,COMPLETED,{times},81,9"


def acme(n: int) -> Iterator[str]:
    """Of Acme's Seren."""
    yield (
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,"
        "queue,gpu_time"
    )
    for i in range(n):
        times = ",".join(clock(i + wait).replace("T", " ") + "+08:00" for wait in (0, 9, 90))
        yield f"{i},u{i % 97},1,8,128,Other,FAILED,{times},81,9,648.0"


def sacct(n: int) -> Iterator[str]:
    """Of Slurm."""
    yield "JobID|User|State|Submit|Start|End|ReqTRES|AllocTRES|NNodes|NodeList"
    for i in range(n):
        times = "|".join(clock(i % 2_000_000 + wait) for wait in (0, 9, 90))
        tres = f"cpu={1 + i % 64},mem=16G,node=1"
        yield f"{i}|u{i % 97}|COMPLETED|{times}|{tres}|{tres}|1|n{i % 400}"


def swf(n: int) -> Iterator[str]:
    """Of the Standard Workload Format."""
    yield "; MaxProcs: 128"
    for i in range(1, n + 1):
        yield f"{i} {i} 5 60 {1 + i % 64} -1 -1 8 120 -1 1 {i % 97} 1 -1 2 -1 -1 -1"


def own(n: int) -> Iterator[str]:
    """Of a mapping."""
    yield "id,cores,submit,run"
    for i in range(n):
        yield f"j{i},{1 + i % 64},{i},60"


def philly(n: int) -> Iterator[str]:
    """A document of Philly."""
    job = {"user": "u", "status": "Pass", "vc": "v"}
    records = []
    for i in range(n):
        submitted, start, end = (clock(i + wait).replace("T", " ") for wait in (0, 9, 90))
        detail = [{"ip": f"m{i % 99}", "gpus": ["gpu0", "gpu1"]}]
        attempt = {"start_time": start, "end_time": end, "detail": detail}
        records.append(
            {**job, "jobid": f"a{i}", "submitted_time": submitted, "attempts": [attempt]}
        )
    yield json.dumps(records)


def kubernetes(n: int) -> Iterator[str]:
    """A dump of pods, half of them in gangs of two."""
    items = []
    for i in range(n):
        owner = [{"kind": "PyTorchJob", "name": f"g{i // 4}", "controller": True}] * (i % 4 < 2)
        created, start, end = (f"{clock(i + wait)}Z" for wait in (0, 9, 90))
        state = {"terminated": {"finishedAt": end}}
        items.append(
            {
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
        )
    yield json.dumps({"kind": "List", "items": items})


def task_events(n: int) -> Iterator[str]:
    """Of Google 2011: a task is submitted, scheduled, and ends; a user has ten jobs."""
    for i in range(0, n, 3):
        time = 600_000_000 + i * 1000
        task = f"{i // 30},{i // 3 % 10}"
        for step, code in ((0, 0), (1, 1), (2, 4)):
            yield f"{time + step * 500},,{task},5,{code},u{i // 300},1,9,0.5,0.25,,0"


def instance_events(n: int) -> Iterator[str]:
    """Of Google 2019."""
    for i in range(0, n, 3):
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


MAPPING = (
    'trace = "csv"\n[jobs]\nfile = "jobs.csv"\n[jobs.columns]\nname = "id"\ncpu = "cores"\n'
    'created = "submit"\nduration = "run"\n'
)
NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,8,T4\n"
MACHINES = "m1,T4,96,512,2\n"
FORMATS: Mapping[str, tuple[Mapping[str, Made], Mapping[str, str], int]] = {
    "acme": ({"trace_seren.csv": acme}, {}, 1),
    "alibaba-gpu-v2020": (
        {"pai_task_table.csv": pai_tasks, "pai_job_table.csv": pai_jobs},
        {"pai_machine_spec.csv": MACHINES},
        1,
    ),
    "alibaba-gpu-v2023": ({"pods.csv": pods}, {"nodes.csv": NODES}, 1),
    "alibaba-gpu-v2025": ({"instances.csv": instances_2025}, {}, 1),
    "alibaba-spot-2026": ({"job_info_df.csv": jobs_2026}, {}, 1),
    "alibaba-v2017": ({"batch_task.csv": tasks_2017}, {}, 1),
    "alibaba-v2018": ({"batch_task.csv": batch_task}, {}, 1),
    "csv": ({"jobs.csv": own}, {"mapping.toml": MAPPING}, 1),
    "google-2011": ({"task_events/part-00000-of-00500.csv": task_events}, {}, 1),
    "google-2019": ({"instance_events-000000000000.json": instance_events}, {}, 10),
    "helios": ({"cluster_log.csv": helios}, {}, 1),
    "kubernetes": ({"pods.json": kubernetes}, {}, 10),
    "philly": ({"cluster_job_log": philly}, {}, 10),
    "slurm-sacct": ({"jobs.txt": sacct}, {}, 1),
    "swf": ({"log.swf": swf}, {}, 1),
}
"""Tables, other files, and by how much fewer the rows are."""


def seconds(name: str, rows: int) -> float:
    """CPU seconds of reading so many rows."""
    tables, others, _ = FORMATS[name]
    with tempfile.TemporaryDirectory() as folder:
        for file, rows_of in tables.items():
            (Path(folder) / file).parent.mkdir(exist_ok=True)
            with (Path(folder) / file).open("w") as out:
                out.writelines(f"{row}\n" for row in rows_of(rows))
        for file, text in others.items():
            Path(folder, file).write_text(text)
        path = Path(folder, "mapping.toml") if name == "csv" else Path(folder)
        begun = time.process_time()
        tables_read = open_reader(path, trace=name).scan()
        assert len(tables_read.jobs)
        return time.process_time() - begun


def in_parts(parts: int, rows: int) -> float:
    """CPU seconds of so many rows of task events, in parts."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "task_events")
        out.mkdir()
        lines, each = list(task_events(rows)), -(-rows // parts)
        for part in range(parts):
            text = "".join(f"{line}\n" for line in lines[part * each : (part + 1) * each])
            name = f"part-{part:05d}-of-00500.csv.gz"
            (out / name).write_bytes(gzip.compress(text.encode(), 1))
        begun = time.process_time()
        open_reader(Path(folder), trace="google-2011").scan()
        return time.process_time() - begun


def main() -> None:
    """Print a row for each format, then one for each number of parts."""
    options = argparse.ArgumentParser()
    options.add_argument("--most", type=int, default=1_000_000)
    options.add_argument("--parts", type=int, default=500)
    options.add_argument("--only", default="")
    given = options.parse_args()
    print("| reader | rows | CPU seconds | rows/s | exponent |\n|---|---|---|---|---|")
    for name, (_, _, fewer) in FORMATS.items():
        if given.only not in ("", name):
            continue
        sizes = [int(1e5 * 10 ** (step / 2)) // fewer for step in range(9)]
        sizes = [size for size in sizes if size <= given.most / fewer]
        seconds(name, 1000)
        taken = [seconds(name, size) for size in sizes]
        slope = np.polyfit(np.log(sizes), np.log(taken), 1)[0]
        shown = " / ".join(f"{size:,}" for size in sizes), " / ".join(f"{t:.2f}" for t in taken)
        rate = sizes[-1] / taken[-1]
        print(f"| `{name}` | {shown[0]} | {shown[1]} | {rate:,.0f} | {slope:.2f} |", flush=True)
    if not given.only:
        number = [n for n in (1, 5, 50, 500) if n <= given.parts]
        taken = [in_parts(n, given.most) for n in number]
        print(f"parts of {given.most:,} task events: ", end="")
        print(", ".join(f"{n}: {t:.2f} s" for n, t in zip(number, taken)))


if __name__ == "__main__":
    main()
