"""The service on a real API server with thousands of nodes and 10,000 pods that wait.

``GANGWISE_KUBE`` names the folder with ``kube-apiserver``. Every node is full with a pod of another
scheduler; gangs of four wait. Then nothing changes for a while, and then each second sixteen of the
others' pods are deleted, so that four gangs are bound, and four gangs come.

    python -m benchmarks.kubernetes_size --nodes 1000 5000

Tells CPU seconds of the service's process, its memory, and the time from a decision to the last
Binding of its gang, from the service's own table of intents.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from tests.engines.kubernetes_cluster import ControlPlane, until

PODS = "/api/v1/namespaces/default/pods"
READY = [{"type": "Ready", "status": "True"}]
HAS = {"cpu": "64", "pods": "110", "nvidia.com/gpu": "1"}
ASKED = {"nvidia.com/gpu": "1", "cpu": "1"}


def spent(pid: int) -> tuple[float, float]:
    """CPU seconds so far, and MiB of memory now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return cpu, int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def pod(name: str, scheduler: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "none", "resources": {"requests": ASKED, "limits": ASKED}}
    body = {"schedulerName": scheduler, "containers": [container], **spec}
    meta: dict[str, Any] = {"name": name}
    if scheduler == "gangwise":
        meta["labels"] = {"scheduling.x-k8s.io/pod-group": name.rpartition("-")[0]}
        kind = f"kind{sum(map(ord, name)) % 20}"
        meta["annotations"] = {"gangwise.io/tasks": "4", "gangwise.io/type": kind}
    return {"metadata": meta, "spec": body}


def gang(name: str) -> list[dict[str, Any]]:
    return [pod(f"{name}-{rank}", "gangwise") for rank in range(4)]


def measured(folder: Path, nodes: int, pods: int, seconds: int) -> None:
    os.environ["XDG_CONFIG_HOME"] = str(folder / "config")
    plane = ControlPlane(folder / "plane")
    pool = ThreadPoolExecutor(8)
    state = folder / "state"

    def made(path: str, bodies: list[dict[str, Any]]) -> None:
        codes = pool.map(lambda body: plane.admin("POST", path, body)[0], bodies)
        assert set(codes) <= {201}

    command = [sys.executable, "-m", "gangwise", "serve", "--engine", "kubernetes", "--act"]
    command += ["--state", str(state), "--account-every", "0"]
    command += ["--set", f"kubeconfig={plane.kubeconfig_restricted}"]
    service = None
    try:
        plane.start()
        status = {"allocatable": HAS, "capacity": HAS, "conditions": READY}
        names = [f"n{i}" for i in range(nodes)]
        made("/api/v1/nodes", [{"metadata": {"name": n}, "status": status} for n in names])
        made(PODS, [pod(f"other-{n}", "other", nodeName=n) for n in names])
        made(PODS, [p for g in range(pods // 4) for p in gang(f"g{g}")])
        began = time.monotonic()
        service = subprocess.Popen(command, stdout=subprocess.DEVNULL)

        def rows(what: str) -> list[Any]:
            try:
                with sqlite3.connect(f"file:{state}/service.sqlite?mode=ro", uri=True) as file:
                    return file.execute(what).fetchall()
            except sqlite3.OperationalError:  # not made yet
                return []

        def waiting() -> int:
            found = rows("SELECT body FROM views WHERE name = 'health'")  # a seal, then JSON
            return json.loads(found[0][0].partition(" ")[2])["view"]["waiting"] if found else 0

        until(lambda: waiting() == pods // 4, "all known", 300.0)
        told = {"start, s": time.monotonic() - began, "start, CPU s": spent(service.pid)[0]}
        time.sleep(15.0)
        before = spent(service.pid)[0]
        time.sleep(30.0)
        told["quiet, CPU s a second"] = (spent(service.pid)[0] - before) / 30
        before = spent(service.pid)[0]
        for second in range(seconds):
            began = time.monotonic()
            for n in names[16 * second : 16 * second + 16]:
                plane.admin("DELETE", f"{PODS}/other-{n}", {"gracePeriodSeconds": 0})
            made(PODS, [p for g in range(4) for p in gang(f"late{second}x{g}")])
            time.sleep(max(began + 1.0 - time.monotonic(), 0.0))
        done = "SELECT decided, accepted FROM intents WHERE accepted IS NOT NULL"
        until(lambda: len(rows(done)) >= 4 * seconds, "all bound", 120.0)
        told["busy, CPU s a second"] = (spent(service.pid)[0] - before) / seconds
        took = [accepted - decided for decided, accepted in rows(done)]
        for share in (0.5, 0.95, 1.0):
            told[f"decision to Binding, s, {share:.0%}"] = float(np.quantile(took, share))
        told["MiB"] = spent(service.pid)[1]
        load = Path("/proc/loadavg").read_text().split()[0]
        print(f"{nodes} nodes, {pods} pods wait; load {load}", flush=True)
        for name, value in told.items():
            print(f"  {name}: {value:.3g}", flush=True)
    finally:
        if service is not None:
            service.terminate()
            service.wait()
        pool.shutdown()
        plane.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=30)
    args = parser.parse_args()
    for nodes in args.nodes:
        with tempfile.TemporaryDirectory() as folder:
            measured(Path(folder), nodes, args.pods, args.seconds)


if __name__ == "__main__":
    main()
