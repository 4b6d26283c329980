"""The service beside a real slurmctld with 10,000 pending jobs, and with thousands of nodes.

    python -m benchmarks.live_slurm_size --jobs 10000 --pretended 1000 --seconds 120

A private Slurm with ``--real`` nodes, on which gangs of two run, and ``--pretended`` ones, which
no slurmd serves (that of the first real one answers for them): slurmctld and the service have them
in their books, and no job may use them.
Users submit a job every five seconds and somebody looks at ``squeue`` every ten. First nobody
else is there, then the service acts for as long. Told are seconds of the processor (the machine
may be busy with others): of a listing, of a look that reads the JSON, of the service's thread; how
long a decision takes until Slurm has accepted it; and what slurmctld spends, by its own account
(``sdiag``: seconds in calls) and by the kernel's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from tests.engines import slurm_cluster
from tests.engines.slurm_cluster import SlurmCluster

from gangwise.engines.engine import Placed
from gangwise.engines.slurm import SlurmEngine
from gangwise.service.loop import Service

slurm_cluster.CONF = slurm_cluster.CONF.replace("MaxJobCount=20000", "MaxJobCount=50000")


class WithPretended(SlurmCluster):
    pretended = 0

    def _configure(self) -> None:
        super()._configure()
        conf = self.root / "etc/slurm.conf"
        text = conf.read_text()
        if self.pretended:
            line = (
                f"NodeName=p[1-{self.pretended}] NodeHostname=p[1-{self.pretended}] "
                f"NodeAddr=127.0.0.1 Port={self.port + 1} Boards=1 SocketsPerBoard=1 CPUs=8 "
                "CoresPerSocket=8 RealMemory=8000 Feature=pretended State=UNKNOWN\n"
            )
            at = text.index("PartitionName=")
            text = text[:at] + line + text[at:]
        conf.write_text(text)


class Meter:
    """What slurmctld spent since the meter was set."""

    def __init__(self, cluster: SlurmCluster):
        self.cluster, self.began = cluster, time.monotonic()
        cluster.call("sdiag", "--reset")
        self._cpu = self._now()

    def _now(self) -> float:
        words = Path(f"/proc/{self.pid()}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def pid(self) -> int:
        return int((self.cluster.root / "run/slurmctld.pid").read_text())

    def read(self) -> dict[str, float]:
        """Of each second: calls of clients, seconds in these by sdiag, and of the processor."""
        seconds = time.monotonic() - self.began
        told = self.cluster.call("sdiag").split("statistics by message type")[1].split("by user")[0]
        calls = re.findall(
            r"(REQUEST_\w+) +\( *\d+\) count:(\d+) +ave_time:\d+ +total_time:(\d+)", told
        )
        in_calls = sum(int(total) for _, _, total in calls) / 1e6
        most = sorted(calls, key=lambda call: -int(call[2]))[:4]
        return {
            "calls": sum(int(count) for _, count, _ in calls) / seconds,
            "in calls": in_calls / seconds,
            "processor": (self._now() - self._cpu) / seconds,
            **{f"in {name}": int(total) / 1e6 / seconds for name, _, total in most},
        }


def submit(cluster: SlurmCluster, many: int, seconds: int) -> None:
    job = cluster.root / "job.sh"
    job.write_text("#!/bin/sh\nsleep $1\n")

    def one(number: int) -> None:
        length = seconds // 2 + number * 7 % (seconds + 1)
        asks = ("-N2", "--ntasks-per-node=1", "-c4", "-C", "real", "-t", "5")
        about = (f"--comment=work={length}", "-J", f"type{number % 20}", "-o", "/dev/null")
        cluster.call("sbatch", "-Q", "-p", "gangwise", *asks, *about, str(job), str(length))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(one, range(many)))


class Timed(SlurmEngine):
    """Notes what looks cost and how long after its decision a placement was accepted."""

    def __init__(self, *given: Any, **more: Any):
        super().__init__(*given, **more)
        self.looks: list[float] = []
        self.whole: list[float] = []
        self.took: list[float] = []
        self.decided = 0.0

    def _read_whole(self) -> None:
        super()._read_whole()
        self.whole.append(self._whole_cost.seconds)

    def _read_table(self, whole: bool | None = None) -> None:
        before, many = spent(), len(self.whole)
        super()._read_table(whole)
        if len(self.whole) == many:
            self.looks.append(spent() - before)

    def place(self, job: str, attempt: int, placed: Sequence[Placed]) -> None:
        super().place(job, attempt, placed)
        self.took.append(time.monotonic() - self.decided)


def spent() -> float:
    ran = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.thread_time() + ran.ru_utime + ran.ru_stime


class Users:
    """Background: a job every five seconds, a look at the queue every ten."""

    def __init__(self, cluster: SlurmCluster, seconds: int):
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.work, args=(cluster, seconds))
        self.thread.start()

    def work(self, cluster: SlurmCluster, seconds: int) -> None:
        turn = 0
        while not self.over.wait(5.0):
            turn += 1
            submit(cluster, 1, seconds)
            if turn % 2:  # in a process of its own, so that its cost counts to nobody here
                command = ["squeue", "-h"]
                subprocess.run(command, env=cluster.environment, capture_output=True, check=False)

    def end(self) -> None:
        self.over.set()
        self.thread.join()


def acting(cluster: SlurmCluster, folder: Path, seconds: float) -> dict[str, Any]:
    engine = Timed(environment=cluster.environment)
    service = Service(engine, folder / "state", "fcfs+easy+learned:depth=100", act=True)
    decide = service._decide

    def noted(now: float) -> None:
        decide(now)
        engine.decided = time.monotonic()

    service._decide = noted
    try:
        began, start = time.monotonic(), spent()
        while time.monotonic() < began + 60.0 or not engine.took:
            service.tick(0.5)
        first = spent() - start
        engine.looks, engine.whole, filled, engine.took = [], [], engine.took, []
        meter, begun, own = Meter(cluster), spent(), time.thread_time()
        while time.monotonic() < meter.began + seconds:
            service.tick(0.5)
        each = time.monotonic() - meter.began
        return {
            "slurmctld": meter.read(),
            "first minute, service, CPU s": first,
            "first minute, decision to accepted, s, median and most": marks(filled),
            "listing, CPU s, median and most": marks(engine.looks),
            "look by JSON, CPU s, median and most": marks(engine.whole),
            "looks, and by JSON, a minute": [
                60 * len(found) / each for found in (engine.looks, engine.whole)
            ],
            "service and its programs, CPU s a second": (spent() - begun) / each,
            "its own thread": (time.thread_time() - own) / each,
            "decision to accepted, s, median and most": marks(engine.took),
            "placements": len(engine.took),
            "health": {k: service.health()[k] for k in ("waiting", "running", "troubles")},
        }
    finally:
        service.close()


def marks(found: Sequence[float]) -> list[float]:
    return [float(np.median(found)), float(np.max(found))] if found else []


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return round(value, 4) if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--real", type=int, default=32, help="nodes with a slurmd")
    parser.add_argument("--pretended", type=int, default=0, help="nodes without one")
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--length", type=int, default=60, help="seconds that a gang runs")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_CONFIG_HOME"] = str(folder / "config")
        WithPretended.pretended = args.pretended
        nodes = {f"n{i}": (8, 0, ("real",)) for i in range(args.real)}
        cluster = WithPretended(folder / "slurm", nodes, timeout=300)
        try:
            if args.pretended:
                named = f"nodename=p[1-{args.pretended}]"
                cluster.call("scontrol", "update", named, "state=down", "reason=pretended")
                cluster.call("scontrol", "update", named, "state=resume")
            began = time.monotonic()
            submit(cluster, args.jobs, args.length)
            result: dict[str, Any] = {"arguments": vars(args), "load": os.getloadavg()[0]}
            result["submitted in, s"] = time.monotonic() - began
            users = Users(cluster, args.length)
            meter = Meter(cluster)
            time.sleep(args.seconds)
            result["without"] = meter.read()
            result["acting"] = acting(cluster, folder, args.seconds)
            users.end()
            result["load afterwards"] = os.getloadavg()[0]
            print(json.dumps(rounded(result), indent=1))
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
