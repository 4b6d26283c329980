"""Live against simulation, and against the real kube-scheduler: the same gangs, submitted again.

    GANGWISE_KUBE=FOLDER python -m benchmarks.live_kubernetes --seeds 1 --jobs 100 --mean 20

The world of :mod:`benchmarks.live_slurm` on a private kube-apiserver with 16 nodes that stand in.
Each seed's submissions are played live by

- kube: kube-scheduler, pods preferring the faster generations as an administrator would have it,
- best-fit, label, learned and oracle: gangwise, as there,

and each gangwise scheduler once more by the simulation with the true rates.

Ranks of a gang begin to work when all of them run, and end together, as those of training do: a
pod that is done holds its devices until the slowest is. kube-scheduler knows no gangs: it may bind
parts of several that then wait for each other for ever. Its rival here is given an operator who
sees that nothing has moved for ten seconds and sends the youngest such gang back to the queue; how
often is told.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.engines.kubernetes_cluster import ControlPlane, StandInNodes, until

from benchmarks.live_slurm import GENERATIONS, NODES, TYPES, World, compare, measured, scheduler
from gangwise.engines import rank as wrapper
from gangwise.engines.kubernetes import KubernetesEngine
from gangwise.service.loop import Service

PODS = "/api/v1/namespaces/default/pods"
STUCK = 10.0
RANK = """
import os, subprocess, sys, time
gang, tasks, work, folder, wrapper = sys.argv[1:]
turn, rank = os.environ.get("TURN", "0"), os.environ["GANGWISE_RANK"]

def together(what):
    open(f"{folder}/{what}.{gang}.{turn}.{rank}", "w").close()
    while any(
        not os.path.exists(f"{folder}/{what}.{gang}.{turn}.{r}") for r in range(int(tasks))
    ):
        time.sleep(0.2)

together("here")
done = subprocess.run([sys.executable, "-S", wrapper, "--every", "5", "--sleep", work])
together("done")
sys.exit(done.returncode)
"""


class Users:
    """Make pods, and watch over those of kube-scheduler."""

    def __init__(self, plane: ControlPlane, world: World, who: str, folder: Path):
        self.plane, self.world, self.who = plane, world, who
        self.reports, self.speeds, self.barrier = (folder / n for n in ("r", "s", "b"))
        for each in (self.reports, self.speeds, self.barrier):
            each.mkdir()
        world.write(self.speeds, {})
        self.at: dict[int, float] = {}
        self.turn: dict[int, int] = {}
        self.begun: dict[int, float] = {}
        self.broken = self.refused = 0
        self.oracle: Any = None

    def submit(self, j: int) -> None:
        w, turn = self.world, self.turn.setdefault(j, 0)
        for rank in range(w.tasks[j]):
            kind = TYPES[w.type[j]]
            facts = {"GANGWISE_JOB": "metadata.uid", "GANGWISE_NODE": "spec.nodeName"}
            variables = [
                {"name": n, "valueFrom": {"fieldRef": {"fieldPath": f}}} for n, f in facts.items()
            ]
            given = {"GANGWISE_REPORTS": self.reports, "GANGWISE_RANK": rank, "TURN": turn}
            given |= {"GANGWISE_SPEED_FILE": f"{self.speeds}/{kind}/{{node}}", "GANG": f"g{j}"}
            variables += [{"name": n, "value": str(v)} for n, v in given.items()]
            command = [sys.executable, "-S", "-c", RANK, f"g{j}", str(w.tasks[j])]
            command += [f"{w.work[j]:.3f}", str(self.barrier), wrapper.__file__]
            asked = {"cpu": "1", "nvidia.com/gpu": str(w.gpus[j])}
            container = {"name": "c", "image": "none", "command": command, "env": variables}
            container["resources"] = {"limits": asked, "requests": asked}
            apart = {"labelSelector": {"matchLabels": {"gang": f"g{j}"}}}
            apart["topologyKey"] = "kubernetes.io/hostname"
            needed = "requiredDuringSchedulingIgnoredDuringExecution"
            rules: dict[str, Any] = {"podAntiAffinity": {needed: [apart]}}
            if self.who == "kube":
                prefer = [
                    {
                        "weight": weight,
                        "preference": {
                            "matchExpressions": [
                                {"key": "model", "operator": "In", "values": [model]}
                            ]
                        },
                    }
                    for model, weight in (("new", 100), ("mid", 50))
                ]
                rules["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": prefer}
            spec = {"containers": [container], "restartPolicy": "Never", "affinity": rules}
            spec |= {"terminationGracePeriodSeconds": 0}
            spec |= {} if self.who == "kube" else {"schedulerName": "gangwise"}
            labels = {"gang": f"g{j}", "scheduling.x-k8s.io/pod-group": f"g{j}"}
            notes = {"tasks": w.tasks[j], "work": f"{w.work[j]:.3f}", "limit": w.limit[j]}
            notes |= {"type": kind}
            meta = {"name": f"g{j}-{rank}-{turn}", "labels": labels}
            meta["annotations"] = {f"gangwise.io/{k}": str(v) for k, v in notes.items()}
            code, answer = self.plane.admin("POST", PODS, {"metadata": meta, "spec": spec})
            assert code == 201, answer

    def come(self, start: float) -> None:
        drifted = False
        for j, offset in enumerate(self.world.submit):
            if not drifted and offset > self.world.drift[0]:
                time.sleep(max(start + self.world.drift[0] - time.time(), 0.0))
                self.world.write(self.speeds, {self.world.drift[1]: self.world.drift[2]})
                drifted = True
                if self.oracle is not None:
                    self.oracle.drifted = True
            time.sleep(max(start + offset - time.time(), 0.0))
            self.at[j] = time.time()
            self.submit(j)

    def ended(self) -> dict[int, float]:
        """Gangs all of whose ranks have reported their end, by the pods' uids."""
        pods = self.pods()
        gang = {p["metadata"]["uid"]: int(p["metadata"]["labels"]["gang"][1:]) for p in pods}
        times: dict[int, list[float]] = {}
        begun: dict[int, list[float]] = {}
        for path in self.reports.glob("[0-9a-f]*.json"):
            report = json.loads(path.read_text())
            if report["exit"] == 0 and report["job"] in gang:
                times.setdefault(gang[report["job"]], []).append(report["time"])
                begun.setdefault(gang[report["job"]], []).append(report["time"] - report["seconds"])
        self.begun = {j: max(t) for j, t in begun.items()}
        return {j: max(t) for j, t in times.items() if len(t) == self.world.tasks[j]}

    def left(self, ended: dict[int, float]) -> list[tuple[Any, ...]]:
        """What the server and the ranks say of pods whose gang has not ended."""
        return [
            (
                pod["metadata"]["name"],
                pod["spec"].get("nodeName"),
                pod["status"],
                [p.read_text() for p in self.reports.glob(f"{pod['metadata']['uid']}*")],
                sorted(
                    p.name for p in self.barrier.glob(f"*.{pod['metadata']['labels']['gang']}.*")
                ),
            )
            for pod in self.pods()
            if int(pod["metadata"]["labels"]["gang"][1:]) not in ended
        ]

    def pods(self) -> list[Any]:
        return list(self.plane.admin("GET", PODS)[1]["items"])

    def break_knots(self, since: dict[int, float]) -> None:
        """Send back the youngest gang of which a part has waited for the rest for too long."""
        bound: dict[int, int] = {}
        for pod in self.pods():
            if pod["spec"].get("nodeName"):
                j = int(pod["metadata"]["labels"]["gang"][1:])
                bound[j] = bound.get(j, 0) + 1
        parts = {j for j, count in bound.items() if count < self.world.tasks[j]}
        now = time.time()
        for j in list(since):
            if j not in parts:
                del since[j]
        stuck = [j for j in parts if now - since.setdefault(j, now) > STUCK]
        if len(stuck) > 1:
            self.broken += 1
            since.clear()
            self.again(max(stuck))

    def again(self, j: int) -> None:
        """As the controller of a gang would: its pods are made anew, under other names."""
        for pod in self.pods():
            if pod["metadata"]["labels"]["gang"] == f"g{j}":
                body = {"gracePeriodSeconds": 0}
                self.plane.admin("DELETE", f"{PODS}/{pod['metadata']['name']}", body)
        self.turn[j] += 1
        self.submit(j)

    def make_failed_again(self) -> None:
        """A kubelet may refuse a pod whose devices are not yet free of the one before."""
        failed = {
            int(pod["metadata"]["labels"]["gang"][1:])
            for pod in self.pods()
            if pod["status"].get("phase") == "Failed"
        }
        for j in failed:
            self.refused += 1
            self.again(j)


def live(world: World, who: str, folder: Path) -> dict[str, Any]:
    """Submit to a fresh cluster and wait for the end; completion times by the ranks' clocks."""
    plane = ControlPlane(folder / "plane").start()
    kubelets = os.fork()  # before there is any thread
    if kubelets == 0:
        has = {"cpu": 8, "nvidia.com/gpu": 4}
        nodes = {n: {"devices": has, "labels": {"model": n[:3]}} for n in NODES}
        StandInNodes(plane.admin, nodes, folder / "out")
        while True:
            time.sleep(60)
    service = None
    try:
        until(lambda: len(plane.admin("GET", "/api/v1/nodes")[1]["items"]) == len(NODES), "nodes")
        users = Users(plane, world, who, folder)
        if who == "kube":
            plane.start_scheduler()
            time.sleep(3.0)
        else:
            engine = KubernetesEngine(plane.kubeconfig_restricted, reports=users.reports)
            declared = {f"model={g}": r for g, r in GENERATIONS.items()}
            by = scheduler(who, world)
            service = Service(engine, folder / "state", by, act=True, rates=declared)
            users.oracle = service.ledger.scheduler.choice if who == "oracle" else None
        start = time.time() + 1.0
        thread = threading.Thread(target=users.come, args=(start,))
        thread.start()
        ended: dict[int, float] = {}
        since: dict[int, float] = {}
        looked = 0.0
        while thread.is_alive() or len(ended) < len(world.submit):
            if service is not None:
                service.tick(0.25)
            else:
                time.sleep(0.5)
            if time.time() < looked + 2.0:
                continue
            looked = time.time()
            ended = users.ended()
            if who == "kube":
                users.break_knots(since)
                users.make_failed_again()
            if time.time() - start > world.submit[-1] + 900:
                raise SystemExit(f"{who}: {len(ended)} gangs have ended; {users.left(ended)}")
        jobs = range(len(world.submit))
        names = {j: f"g{j}" for j in jobs}
        if service is not None:
            rows = service.store.rows("SELECT DISTINCT job FROM intents")
            names |= {int(r["job"].split("/g")[1].split("~")[0]): r["job"] for r in rows}
        times = ({names[j]: t[j] for j in jobs} for t in (users.at, users.begun, ended))
        found = measured(service, [names[j] for j in jobs], *times, start)
        return found | {"knots": users.broken, "refused": users.refused}
    finally:
        if service is not None:
            service.close()
        os.kill(kubelets, signal.SIGTERM)
        os.waitpid(kubelets, 0)
        plane.stop()


if __name__ == "__main__":
    compare(live, "kube", __doc__)
