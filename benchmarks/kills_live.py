"""kill -9 of the live service at random moments, over real clusters: nothing lost, nothing twice.

    python -m benchmarks.kills_live local 300
    python -m benchmarks.kills_live slurm 250
    python -m benchmarks.kills_live kubernetes 250    # GANGWISE_KUBE: folder with kube-apiserver

A stream of gangs is submitted while the service is killed and started again. Then it is left to
finish, and what the ranks themselves wrote down is compared with what was submitted:

- every job has ended as finished (nothing lost),
- every rank of every attempt ran at most once, and one attempt of each job ran to its end (nothing
  twice),
- at no moment did ranks hold more devices of a node than it has,
- the service's own file has one history row for each job and one intent for each attempt.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.engines.slurm_cluster import SlurmCluster

from gangwise.engines.engine import Engine
from gangwise.engines.local import LocalEngine
from gangwise.engines.slurm import SlurmEngine
from gangwise.service.loop import Service
from gangwise.service.store import FILE, ServiceStore

NODES, GPUS = 8, 4
RANK = """
import json, os, sys, time
e = os.environ
begun = time.time()
time.sleep(float(sys.argv[1]))
job = e.get("GANGWISE_JOB") or e["SLURM_JOB_ID"]
run = e.get("GANGWISE_RUN") or e.get("SLURM_RESTART_COUNT", "0")
rank = e.get("GANGWISE_RANK") or e["SLURM_PROCID"]
node = e.get("GANGWISE_NODE") or e["SLURMD_NODENAME"]
with open(f"{sys.argv[2]}/{job}.{run}.{rank}.{os.getpid()}", "w") as file:
    json.dump([job, run, rank, node, begun, time.time()], file)
"""


class Local:
    def __init__(self, folder: Path):
        self.folder, self.notes = folder / "cluster", folder / "notes"
        self.notes.mkdir()
        nodes = [{"name": f"n{i}", "devices": {"gpu": GPUS}} for i in range(NODES)]
        LocalEngine.create(self.folder, nodes)

    def engine(self) -> Engine:
        return LocalEngine(self.folder, keep=1e9)

    def submit(self, seconds: float, tasks: int, gpus: int) -> str:
        command = [sys.executable, "-S", "-c", RANK, str(seconds), str(self.notes)]
        return LocalEngine.submit(
            self.folder, command, tasks=tasks, demand={"gpu": gpus}, limit=60 + seconds
        )

    def stop(self) -> None:
        return


class Slurm:
    def __init__(self, folder: Path):
        self.notes = folder / "notes"
        self.notes.mkdir()
        self.program = folder / "rank.py"
        self.program.write_text(RANK)
        nodes = {f"n{i}": (8, GPUS, ()) for i in range(NODES)}
        self.cluster = SlurmCluster(folder / "slurm", nodes)

    def engine(self) -> Engine:
        return SlurmEngine(poll=0.2, environment=self.cluster.environment)

    def submit(self, seconds: float, tasks: int, gpus: int) -> str:
        command = [sys.executable, "-S", str(self.program), str(seconds), str(self.notes)]
        options = ["-p", "gangwise", "-n", str(tasks), f"--gpus-per-task={gpus}", "-t", "5"]
        script = f"#!/bin/sh\nexec srun {shlex.join(command)}\n"
        return self.cluster.call(
            "sbatch", "--parsable", "-o", "/dev/null", *options, text=script
        ).strip()

    def stop(self) -> None:
        self.cluster.stop()


class Kubernetes:
    def __init__(self, folder: Path):
        from tests.engines.kubernetes_cluster import ControlPlane, StandInNodes

        self.notes = folder / "notes"
        self.notes.mkdir()
        self.plane = ControlPlane(folder / "plane").start()
        self.count = 0
        self.nodes = os.fork()  # before there is any thread here: services are forked, too
        if self.nodes == 0:
            has = {"devices": {"cpu": 64, "nvidia.com/gpu": GPUS}}
            StandInNodes(self.plane.admin, {f"n{i}": has for i in range(NODES)}, folder / "out")
            while True:
                time.sleep(60)

    def engine(self) -> Engine:
        from gangwise.engines.kubernetes import KubernetesEngine

        return KubernetesEngine(self.plane.kubeconfig_restricted)

    def submit(self, seconds: float, tasks: int, gpus: int) -> str:
        self.count += 1
        gang = f"g{self.count}"
        pods = []
        for rank in range(tasks):
            command = [sys.executable, "-S", "-c", RANK, str(seconds), str(self.notes)]
            uid = {"fieldRef": {"fieldPath": "metadata.uid"}}
            node = {"fieldRef": {"fieldPath": "spec.nodeName"}}
            variables = [
                {"name": "GANGWISE_JOB", "value": gang},
                {"name": "GANGWISE_RANK", "value": str(rank)},
                {"name": "GANGWISE_RUN", "valueFrom": uid},
                {"name": "GANGWISE_NODE", "valueFrom": node},
            ]
            asked = {"nvidia.com/gpu": str(gpus)}
            container = {"name": "c", "image": "none", "command": command, "env": variables}
            container["resources"] = {"limits": asked, "requests": asked}
            spec = {"schedulerName": "gangwise", "restartPolicy": "Never"}
            spec |= {"containers": [container], "terminationGracePeriodSeconds": 0}
            meta = {"name": f"{gang}-{rank}", "annotations": {"gangwise.io/tasks": str(tasks)}}
            meta["labels"] = {"scheduling.x-k8s.io/pod-group": gang}
            path = "/api/v1/namespaces/default/pods"
            code, pod = self.plane.admin("POST", path, {"metadata": meta, "spec": spec})
            assert code == 201, pod
            pods.append(pod)
        first = pods[0]["metadata"]["uid"][:8]
        return f"default/{gang}~{first}"

    def stop(self) -> None:
        os.kill(self.nodes, signal.SIGTERM)
        os.waitpid(self.nodes, 0)
        self.plane.stop()


def service(lab: Any, state: Path) -> Service:
    return Service(lab.engine(), state, act=True, reconcile=1.0, checkpoint=1.0, grace=3.0)


def killed(lab: Any, state: Path, seconds: float) -> None:
    """Serve in a child and kill it after so long, wherever it is."""
    child = os.fork()
    if child == 0:
        try:
            serving = service(lab, state)
            while True:
                serving.tick(0.05)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        raise SystemExit("the service ended by itself")


def overbooked(notes: list[list[Any]], gpus: dict[str, int]) -> int:
    """Moments at which a node's ranks held more devices than it has."""
    steps: dict[str, list[tuple[float, int]]] = {}
    for job, _, _, node, begun, ended in notes:
        steps.setdefault(node, []).extend([(begun, gpus[job]), (ended, -gpus[job])])
    bad = 0
    for changes in steps.values():
        held = 0
        for _, change in sorted(changes):
            held += change
            bad += held > GPUS
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=("local", "slurm", "kubernetes"))
    parser.add_argument("kills", type=int)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    make: Callable[[Path], Any] = {"local": Local, "slurm": Slurm, "kubernetes": Kubernetes}[
        args.engine
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_CONFIG_HOME"] = str(folder / "config")
        lab, state = make(folder), folder / "state"
        began = time.monotonic()
        jobs: dict[str, tuple[int, int]] = {}
        try:
            for i in range(args.kills):
                for _ in range(rng.choice((0, 1, 1, 2))):
                    tasks, gpus = rng.choice((1, 2, 3, 4)), rng.choice((1, 1, 2))
                    jobs[lab.submit(rng.uniform(0.1, 2.0), tasks, gpus)] = tasks, gpus
                killed(lab, state, rng.uniform(0.02, 1.2))
                if i % 50 == 49:
                    print(f"{i + 1} kills, {len(jobs)} jobs, {time.monotonic() - began:.0f} s")
            last = service(lab, state)
            end = time.monotonic() + 300
            while len(set(jobs) & set(last.ledger.outcomes)) < len(jobs) and time.monotonic() < end:
                last.tick(0.1)
            over = {job: last.ledger.outcomes.get(job, "never ended") for job in jobs}
            health = last.health()
            last.close()
            time.sleep(0.5)
            notes = [json.loads(path.read_text()) for path in lab.notes.iterdir()]
            ids = {job.removeprefix("default/").partition("~")[0]: job for job in jobs}
            notes = [[ids[str(job)], *rest] for job, *rest in notes]
        finally:
            lab.stop()
        store = ServiceStore(state / FILE)
        history = Counter(row["job"] for row in store.rows("SELECT job FROM history"))
        twice_intended = store.rows(
            "SELECT job, attempt FROM intents WHERE kind = 'place' GROUP BY job, attempt "
            "HAVING COUNT(*) > 1"
        )
        attempts = store.rows("SELECT COUNT(*) AS n FROM intents WHERE kind = 'place'")[0]["n"]
        ran = Counter((job, run, rank) for job, run, rank, *_ in notes)
        whole = Counter(job for job, _, _ in ran)
        result = {
            "engine": args.engine,
            "kills": args.kills,
            "jobs": len(jobs),
            "placements": attempts,
            "seconds": round(time.monotonic() - began),
            "lost": sorted(job for job, how in over.items() if how != "finished"),
            "ranks twice": sum(count > 1 for count in ran.values()),
            "gangs not once": sorted(j for j, (tasks, _) in jobs.items() if whole[j] != tasks),
            "overbooked": overbooked(notes, {j: g for j, (_, g) in jobs.items()}),
            "history not once": sorted(j for j in jobs if history[j] != 1),
            "intended twice": len(twice_intended),
            "rejected": health["counts"]["rejected"],
        }
        print(json.dumps(result, indent=1))
        bad = [k for k in result if result[k] and k in (
            "lost", "ranks twice", "gangs not once", "overbooked", "history not once",
            "intended twice")]  # fmt: skip
        sys.exit(f"failed: {bad}" if bad else 0)


if __name__ == "__main__":
    main()
