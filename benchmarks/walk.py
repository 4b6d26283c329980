"""A new user's walk: from a log, a cluster and an idea of one's own to answers, with times.

::

    python -m benchmarks.walk         # some minutes; --gangwise .venv/bin/gangwise: an installation

Makes, in an empty folder, what a user would bring: a listing of ``sacct`` with 300 jobs and its
nodes, a dump of Kubernetes with 300 pods, the same pods as a CSV file, a log in SWF, a cluster in
TOML. Then it types what the guides say, in their order, and tells of every command how long it
took, by the clock and in CPU seconds with all its workers, and whether it succeeded. What commands
said is in ``walk.log``. Kernels are compiled by the first command that needs them, and kept.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

BEGIN = datetime(2026, 3, 2, 8, tzinfo=UTC)
JOBS, NODES, GPUS = 300, 6, 4

CLUSTER = """name = "lab"
slots = 200

[[servers]]
name = "gpu"
count = 6
devices = { cpu = 32, gpu = 4 }

[[job_types]]
name = "train"
requests = { cpu = 8, gpu = 2 }
arrival = 0.7

[[job_types]]
name = "prepare"
requests = { cpu = 16 }
arrival = 0.4
"""

PYTHON = """
import gangwise
found = gangwise.compare("lab.toml", "fairness,drf", seeds=3, slots=100)
print(found)
assert found._repr_html_().count("<tr") == 3
played = gangwise.replay("site", "fcfs+easy+best-fit,sjf+easy+best-fit")
print(played)
assert "<table" in played._repr_html_()
assert len(played.jobs()) == 2 * %d
"""

WALK = (
    "gangwise list --family gain_overhead",
    "gangwise demo --out demo",
    "gangwise jobs site",
    "gangwise replay site --out october",
    "gangwise explain october --job 7",
    "gangwise jobs kube",
    "gangwise replay kube --out november",
    "gangwise trace guess pods.csv --out pods.toml",
    "gangwise jobs pods.toml",
    "gangwise replay jobs.swf --policies fcfs+easy+best-fit,sjf+easy+best-fit",
    "gangwise replay site --world unlike --seeds 3 --policies fcfs+easy+label,fcfs+easy+learned",
    "gangwise compare lab.toml --out lab",
    "gangwise compare lab --policies fairness,greedy --seeds 3",
    "gangwise new policy Mine",
    "gangwise check mine.py:Mine",
    "gangwise compare lab.toml --policies mine.py:Mine,drf --seeds 3",
    "gangwise new scheduler MyRule",
    "gangwise check my_rule.py:MyRule",
    "gangwise replay site --policies my_rule.py:MyRule,fcfs+easy+best-fit",
    "gangwise tune lab.toml ogasched-react --range steps=1:20:int --trials 5 --out tuned",
    "gangwise report tuned",
    "python -c PYTHON",
)


def made(folder: Path, seed: int = 5) -> None:
    """What the user brings: gangs of a few sizes, a waiting queue, some jobs that failed."""
    rng, now, free = random.Random(seed), 0.0, [0.0] * NODES
    sacct = ["JobID|User|State|Submit|Start|End|Timelimit|ReqTRES|AllocTRES|NNodes|NodeList"]
    swf, csv = (
        [f"; MaxProcs: {NODES * GPUS}"],
        ["pod,namespace,created,started,finished,cpu,gpu,node"],
    )
    pods = []
    for j in range(JOBS):
        now += rng.expovariate(1 / 700)
        width, run = rng.choice([1, 1, 1, 2, 3]), min(rng.lognormvariate(7, 1.2), 40_000)
        nodes = sorted(range(NODES), key=lambda n: free[n])[:width]
        start = max([now, *(free[n] for n in nodes)])
        end = start + run
        for n in nodes:
            free[n] = end
        user, state = f"user{rng.randrange(7)}", rng.choice(["COMPLETED"] * 9 + ["FAILED"])
        tres = f"cpu={16 * width},gres/gpu={GPUS * width},mem={64 * width}G,node={width}"
        names = ",".join(f"n{n + 1}" for n in nodes)
        limit = f"{int(run * 2 // 3600) + 1:02d}:00:00"
        times = [_stamp(each) for each in (now, start, end)]
        sacct.append(
            "|".join([str(j + 1), user, state, *times, limit, tres, tres, str(width), names])
        )
        cells = (j + 1, now, start - now, run, GPUS * width, -1, -1, GPUS * width, 2 * run)
        swf.append(
            " ".join(f"{each:.0f}" for each in (*cells, -1, 1, int(user[4:]), 1, 1, -1, -1, -1, -1))
        )
        for i, n in enumerate(nodes):
            at = [f"{each}Z" for each in times]
            pods.append(
                _pod(f"job-{j}-{i}", user, at, f"n{n + 1}", f"job-{j}" if width > 1 else "")
            )
            csv.append(f"job-{j}-{i},{user},{','.join(at)},16,{GPUS},n{n + 1}")
    (folder / "site").mkdir()
    (folder / "kube").mkdir()
    (folder / "site" / "jobs.txt").write_text("\n".join(sacct) + "\n")
    (folder / "site" / "nodes.txt").write_text(
        "".join(
            f"NodeName=n{n + 1} CPUTot=32 RealMemory=262144 Gres=gpu:{GPUS} State=IDLE\n"
            for n in range(NODES)
        )
    )
    (folder / "jobs.swf").write_text("\n".join(swf) + "\n")
    (folder / "pods.csv").write_text("\n".join(csv) + "\n")
    (folder / "kube" / "pods.json").write_text(json.dumps({"kind": "List", "items": pods}))
    (folder / "kube" / "nodes.json").write_text(
        json.dumps({"kind": "List", "items": [_node(f"n{n + 1}") for n in range(NODES)]})
    )
    (folder / "lab.toml").write_text(CLUSTER)


def _stamp(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=round(seconds))).strftime("%Y-%m-%dT%H:%M:%S")


def _pod(name: str, user: str, at: list[str], node: str, group: str) -> dict[str, object]:
    requests = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": str(GPUS)}
    labels = {"scheduling.k8s.io/group-name": group} if group else {}
    about = {"name": name, "namespace": user, "creationTimestamp": at[0], "labels": labels}
    ended = [{"state": {"terminated": {"finishedAt": at[2]}}}]
    return {
        "kind": "Pod",
        "metadata": about,
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": requests}}]},
        "status": {"phase": "Succeeded", "startTime": at[1], "containerStatuses": ended},
    }


def _node(name: str) -> dict[str, object]:
    room = {"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": str(GPUS)}
    return {"kind": "Node", "metadata": {"name": name}, "spec": {}, "status": {"allocatable": room}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--gangwise", default="", help="the installed command; this checkout's without"
    )
    parser.add_argument("--python", default=sys.executable, help="of the same installation")
    parser.add_argument("--folder", type=Path, help="kept, where given")
    given = parser.parse_args()
    command = (
        [os.path.abspath(given.gangwise)] if given.gangwise else [sys.executable, "-m", "gangwise"]
    )
    folder = given.folder or Path(tempfile.mkdtemp(prefix="gangwise-walk-"))
    folder.mkdir(parents=True, exist_ok=True)
    made(folder)
    failed = 0
    print(f"in {folder}\n\n| command | clock, s | CPU, s | |\n|---|---:|---:|---|")
    for line in WALK:
        words = shlex.split(line)
        words = (
            [*command, *words[1:]]
            if words[0] == "gangwise"
            else [given.python, "-c", PYTHON % JOBS]
        )
        before, begin = _cpu(), time.perf_counter()
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        clock, spent = time.perf_counter() - begin, _cpu() - before
        (folder / "walk.log").open("a").write(f"$ {line}\n{done.stdout}{done.stderr}\n")
        failed += done.returncode != 0
        told = (
            "" if done.returncode == 0 else f"failed: {(done.stderr or done.stdout).strip()[-200:]}"
        )
        print(f"| `{line}` | {clock:.1f} | {spent:.1f} | {told} |", flush=True)
    print(f"\nload of this machine: {os.getloadavg()[0]:.0f}; {failed} of {len(WALK)} failed")
    raise SystemExit(failed > 0)


def _cpu() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


if __name__ == "__main__":
    main()
