"""What an API server spends on the service and on kube-scheduler, while its replies have faults.

    GANGWISE_KUBE=FOLDER python -m benchmarks.kubernetes_faults --nodes 5000 --pods 10000

Each client is alone with a private API server, behind a proxy that spoils replies, holds its Lease
by its defaults, and is started again at once where it ends, as a kubelet does. A row for each
fault: requests, seconds of CPU of the API server with etcd, and starts of the client, while the
fault lasts and in as long a time after it. What the server uses without a client is told first.
Replies are JSON: kube-scheduler's usual Protobuf costs the server less.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from ssl import create_default_context
from typing import Any

from tests.engines.garbled import FAULTS, GarblingServer, behind
from tests.engines.kubernetes_cluster import ControlPlane, _free_ports, _program, _unpacked

from benchmarks.kubernetes_size import HAS, PODS, READY, gang, pod, spent


class Client:
    """A process behind a proxy of its own, started again where it ends."""

    def __init__(self, proxy: GarblingServer, command: list[str], log: Path):
        self.proxy, self.command, self.log, self.starts = proxy, command, log, 0
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self.over.is_set():
            self.starts += 1
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
            while self.process.poll() is None and not self.over.wait(0.1):
                pass
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.over.set()
        self._thread.join()


def filled(plane: ControlPlane, nodes: int, pods: int) -> None:
    """Make nodes, each full with another scheduler's pod, and gangs of four that wait."""
    status = {"allocatable": HAS, "capacity": HAS, "conditions": READY}
    names = [f"n{i}" for i in range(nodes)]
    with ThreadPoolExecutor(8) as pool:
        for path, bodies in (
            ("/api/v1/nodes", [{"metadata": {"name": n}, "status": status} for n in names]),
            (PODS, [pod(f"other-{n}", "other", nodeName=n) for n in names]),
            (PODS, [p for g in range((pods - nodes) // 4) for p in gang(f"g{g}")]),
        ):
            make = partial(plane.admin, "POST", path)
            assert {code for code, _ in pool.map(make, bodies)} == {201}


def measured(plane: ControlPlane, client: Client, faults: list[str], seconds: float) -> list[Any]:
    """For each fault: requests and CPU seconds in it and after it, and starts of the client."""
    pids = [process.pid for process in plane._running[:2]]

    def both() -> tuple[int, float, int]:
        return client.proxy.requests.total(), sum(spent(p)[0] for p in pids), client.starts

    rows = [["start", *both()]]
    for fault in faults:
        at = [both()]
        for mode in (fault, ""):
            client.proxy.mode = mode
            time.sleep(seconds)
            at.append(both())
        row = [round(y - x, 2) for a, b in pairwise(at) for x, y in zip(a, b)]
        rows.append([fault or "none", *row])
        print(json.dumps(rows[-1]), flush=True)
    return rows


def compared(folder: Path, nodes: int, pods: int, seconds: float, faults: list[str]) -> None:
    plane = ControlPlane(folder / "plane")
    os.environ["XDG_CONFIG_HOME"] = str(folder / "config")
    try:
        plane.start()
        filled(plane, nodes, pods)
        time.sleep(20.0)
        before = [spent(p.pid)[0] for p in plane._running[:2]]
        time.sleep(2 * seconds)
        alone = sum(spent(p.pid)[0] for p in plane._running[:2]) - sum(before)
        print(json.dumps({"alone": round(alone, 2), "seconds": 2 * seconds}), flush=True)
        user = plane.restricted
        context = create_default_context(cafile=str(user.authority))
        for name in ("gangwise", "kube-scheduler"):
            token = user.token if name == "gangwise" else plane._tokens["system:kube-scheduler"]
            proxy = GarblingServer(behind(user.server, token, context))
            config = proxy.kubeconfig(folder / f"{name}.json")
            ours = [sys.executable, "-m", "gangwise", "serve", "--engine", "kubernetes", "--act"]
            ours += ["--account-every", "0", "--forecast-every", "0", "--state", f"{folder}/state"]
            ours += ["--set", f"kubeconfig={config}", "--set", "lease=gangwise/leader"]
            theirs = [
                str(_unpacked(_program("kube-scheduler"))),
                f"--kubeconfig={config}",
                "--port=0",
            ]
            theirs += [f"--secure-port={_free_ports(1)[0]}", f"--cert-dir={folder}/plane/keys"]
            theirs += ["--bind-address=127.0.0.1", "--kube-api-content-type=application/json"]
            print(json.dumps({"client": name}), flush=True)
            client = Client(proxy, ours if name == "gangwise" else theirs, folder / f"{name}.log")
            time.sleep(60.0)
            rows = measured(plane, client, faults, seconds)
            print(json.dumps({"client": name, "start": rows[0]}), flush=True)
            client.end()
            proxy.close()
    finally:
        plane.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("nodes", 5000), ("pods", 10_000), ("seconds", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--faults", nargs="*", default=["", *FAULTS])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compared(Path(folder), given.nodes, given.pods, given.seconds, given.faults)


if __name__ == "__main__":
    main()
