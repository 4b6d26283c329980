"""Bindings a second through a real API server, by the engine, for gangs of several sizes.

``GANGWISE_KUBE`` names the folder with ``kube-apiserver``. Gangs are placed by several threads, as
the service does. Beside it, in the same run, stands what the API server takes when the same
Bindings are sent without an engine, by as many threads.

    python -m benchmarks.kubernetes_binds --pods 1024
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from tests.engines.kubernetes_cluster import Api, ControlPlane, until

from gangwise.engines.engine import Placed
from gangwise.engines.kubernetes import KubernetesEngine

PODS = "/api/v1/namespaces/default/pods"


def submit(api: Api, gang: str, size: int) -> None:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
    notes = {"gangwise.io/tasks": str(size)}
    for i in range(size):
        meta = {"name": f"{gang}-{i}", "annotations": notes}
        meta["labels"] = {"scheduling.x-k8s.io/pod-group": gang}
        spec = {"schedulerName": "gangwise", "containers": [container]}
        code, answer = api("POST", PODS, {"metadata": meta, "spec": spec})
        assert code == 201, answer


def worked(plane: ControlPlane) -> tuple[float, float]:
    """CPU seconds so far, of this process and of the control plane."""
    ticks = 0
    for process in plane._running:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time(), ticks / os.sysconf("SC_CLK_TCK")


def bare(api: Api, name: str) -> int:
    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n0"}}
    return api("POST", f"{PODS}/{name}/binding", body)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pods", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=16)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(Path(folder))
        try:
            plane.start()
            has = {"cpu": "100000", "pods": "100000"}
            ready = [{"type": "Ready", "status": "True"}]
            status = {"allocatable": has, "capacity": has, "conditions": ready}
            for n in range(64):
                body = {"metadata": {"name": f"n{n}"}, "status": status}
                assert plane.admin("POST", "/api/v1/nodes", body)[0] == 201
            engine = KubernetesEngine(plane.kubeconfig_restricted, threads=args.threads)
            pool = ThreadPoolExecutor(args.threads)
            submit(plane.admin, "bare", args.pods)
            began = time.perf_counter()
            codes = set(pool.map(lambda i: bare(plane.admin, f"bare-{i}"), range(args.pods)))
            assert codes == {201}
            reached = args.pods / (time.perf_counter() - began)
            print(f"without an engine, {args.threads} threads: {reached:.0f} Bindings/s")
            for size in (1, 4, 16, 64):
                gangs = [f"g{size}x{i}" for i in range(args.pods // size)]
                for gang in gangs:
                    submit(plane.admin, gang, size)

                def ready_gangs(gangs: list[str] = gangs) -> list[str]:
                    names = tuple(f"default/{gang}~" for gang in gangs)
                    rows = [r for r in engine.jobs() if r.phase == "pending"]
                    return [r.job.id for r in rows if r.job.id.startswith(names)]

                until(lambda n=len(gangs): len(ready_gangs()) == n, "told of", 60)  # noqa: B008 - bound here
                jobs = ready_gangs()
                began, before = time.perf_counter(), worked(plane)
                spread = [Placed(f"n{i}", 1) for i in range(size)]
                list(pool.map(lambda job, on=spread: engine.place(job, 1, on), jobs))
                rate = args.pods / (time.perf_counter() - began)
                ours, theirs = np.subtract(worked(plane), before) / args.pods * 1000
                print(
                    f"gangs of {size:>3}: {rate:.0f} Bindings/s, {rate / reached:.2f} of that; CPU "
                    f"a Binding: {ours:.1f} ms here, {theirs:.1f} ms in API server and etcd"
                )
            engine.close()
        finally:
            plane.stop()


if __name__ == "__main__":
    main()
