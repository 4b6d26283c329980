"""A week or a month of the live service in minutes, on a stand-in for the cluster.

    python -m benchmarks.live_week --nodes 100
    python -m benchmarks.live_week --nodes 267 --days 30 --step 120
    python -m benchmarks.live_week --ledger 150000 --at /dev/shm/ledger

Is its memory flat? How large is its folder, and how long does a restart take? The service is
started anew after each tenth day, once after it was stopped and once more as if it had been killed
half a minute after its last checkpoint. Nodes of 267 are kept at load .8 by 5,000 jobs a day.

``--ledger`` writes only what a service writes of so many jobs, each placed, started and ended in a
commit of its own, and looks through it as a start does: 150,000 are a month of 5,000 a day.

The stand-in starts what it is told to and ends it when its time has come; clock and cluster are
simulated, the ledger, the journal on the disk and the scheduler are the service's own.
"""

from __future__ import annotations

import argparse
import heapq
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from gangwise.engines.engine import (
    Capabilities,
    EngineEvent,
    EngineJob,
    EngineNode,
    Placed,
    Quarantine,
    RankReport,
    Status,
)
from gangwise.service.ledger import Ended, Intent
from gangwise.service.loop import Service
from gangwise.service.store import FILE, ServiceStore, examine

GPUS = 8


class Hand:
    """A clock that a benchmark sets."""

    def __init__(self, not_before: float):
        self.time = max(not_before, 1e9)

    def now(self) -> float:
        return self.time

    def ahead(self) -> float:
        return 0.0


class StandIn:
    """Nodes of two speeds; every job runs for its work ÷ the speed of its slowest node."""

    name = "stand-in"
    capabilities = Capabilities(0.0)

    def __init__(self, nodes: int, rng: np.random.Generator):
        self.speed = {f"n{i}": 2.0 if i % 2 else 1.0 for i in range(nodes)}
        for name in rng.choice(list(self.speed), nodes // 20, replace=False):
            self.speed[str(name)] /= 2.0
        self.machines = [
            EngineNode(f"n{i}", {"gpu": 1000 * GPUS}, {"model": "new" if i % 2 else "old"})
            for i in range(nodes)
        ]
        self.table: dict[str, Status] = {}
        self.told: list[EngineEvent] = []
        self.ends: list[tuple[float, str, int]] = []
        self.time = 1e9
        self.count = 0
        self.quarantine = Quarantine()

    def submit(self, work: float, tasks: int, gpus: int) -> None:
        self.count += 1
        name = str(self.count)
        job = EngineJob(
            name,
            f"type{self.count % 8}",
            f"user{self.count % 20}",
            self.time,
            tasks,
            {"gpu": 1000 * gpus},
            limit=2 * work,
            work=work,
        )
        self.table[name] = Status(job, "pending")
        self.told.append(EngineEvent("submitted", self.time, name))

    def advance(self, to: float) -> None:
        self.time = to
        while self.ends and self.ends[0][0] <= to:
            end, name, attempt = heapq.heappop(self.ends)
            row = self.table.pop(name)
            seconds = end - row.started
            ranks = tuple(
                RankReport(p.node, r, seconds * self.speed[p.node], seconds)
                for r, p in enumerate(row.placed)
            )
            self.told.append(EngineEvent("finished", end, name, attempt, ranks=ranks))

    def nodes(self) -> list[EngineNode]:
        return self.machines

    def jobs(self) -> list[Status]:
        return list(self.table.values())

    def place(self, job: str, attempt: int, placed: Sequence[Placed]) -> None:
        row = self.table[job]
        if row.attempt == attempt:
            return
        slowest = min(self.speed[p.node] for p in placed)
        now = self.time
        self.table[job] = Status(row.job, "running", attempt, tuple(placed), now)
        heapq.heappush(self.ends, (now + row.job.work / slowest, job, attempt))
        self.told.append(EngineEvent("started", now, job, attempt))

    def preempt(self, job: str) -> None:
        raise NotImplementedError("nothing here preempts")

    cancel = preempt

    def events(self, timeout: float) -> list[EngineEvent]:
        told, self.told = self.told, []
        return told

    def close(self) -> None:
        return


class Bench:
    def __init__(self, nodes: int, scheduler: str, folder: Path):
        self.rng = np.random.default_rng(0)
        self.cluster = StandIn(nodes, self.rng)
        self.clock = Hand(0.0)
        self.given = self.cluster, folder, scheduler
        self.service = self.started()

    def started(self) -> Service:
        rates = {"model=new": 2.0, "model=old": 1.0}
        return Service(*self.given, act=True, rates=rates, clock=lambda _: self.clock)

    def restart(self, killed: bool) -> float:
        """Seconds of the processor until the service is there again."""
        if killed:
            self.service._keep = lambda: None
        self.service.close()
        began = time.process_time()
        self.service = self.started()
        return time.process_time() - began

    def submit(self, count: int, mean: float = 3600.0) -> None:
        for _ in range(count):
            tasks = int(self.rng.choice([1, 1, 2, 4, 8]))
            gpus = int(self.rng.choice([1, 2, 4, 8]))
            self.cluster.submit(float(self.rng.lognormal(np.log(mean) - 0.5, 1.0)), tasks, gpus)

    def step(self, seconds: float) -> None:
        self.clock.time += seconds
        self.cluster.advance(self.clock.time)
        self.service.tick(0.0)


def resident() -> float:
    """MiB of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def week(args: argparse.Namespace, folder: Path) -> None:
    bench = Bench(args.nodes, args.scheduler, folder)
    bench.step(1.0)
    each = args.step
    # 3.2 tasks × 3.75 devices × 1 h a job; speeds are 1.5 on average: load .8
    hourly = 0.8 * args.nodes * GPUS * 1.46 / (3.2 * 3.75)
    began = time.perf_counter()
    for day in range(args.days):
        for _ in range(round(86_400 / each)):
            bench.submit(int(bench.rng.poisson(hourly * each / 3600)))
            bench.step(each)
        health = bench.service.health()
        disk = sum(file.stat().st_size for file in folder.iterdir()) / 2**20
        print(
            f"day {day + 1}: {resident():.0f} MiB, file {disk:.0f} MiB, {bench.cluster.count:,} "
            f"jobs, {health['waiting']} wait, {time.perf_counter() - began:.0f} s",
            flush=True,
        )
        if day % 10 == 9:
            stopped = bench.restart(killed=False)
            bench.step(30.0)
            killed = bench.restart(killed=True)
            print(f"restart: {stopped:.1f} CPU s; killed: {killed:.1f} CPU s", flush=True)


def ledger(jobs: int, folder: Path) -> None:
    """Size of the folder of so many jobs, and what it takes to look through it at a start."""
    folder.mkdir()
    store, seq = ServiceStore(folder / FILE), 0
    for number in range(jobs):
        now, name = 1e9 + 17.0 * number, str(number)
        kind, user = f"type{number % 8}", f"user{number % 20}"
        job = EngineJob(name, kind, user, now, 4, {"gpu": 2000}, limit=7200.0, work=3600.0)
        placed = Placed("n1", 2), Placed("n2", 2)
        decided = [["place", name, 1, [["n1", 2], ["n2", 2]], "scheduler"]]
        intent = Intent("place", name, 1, placed, "scheduler")
        store.commit(
            [(seq + 1, ("job", now, asdict(job))), (seq + 2, ("round", now, decided))],
            [(now, intent)],
        )
        states = [(state, now, "place", name, 1, "") for state in ("accepted", "started")]
        store.commit([(seq + 3, ("started", now, name, 1))], states=states)
        over = Ended(*(job, "finished", 1, placed, now, now + 600, now, now, "scheduler", 1.0))
        store.commit(
            [(seq + 4, ("ended", now + 600, name, "finished", 1, []))],
            states=[("ended", now + 600, "place", name, 1, "finished")],
            ended=[over],
        )
        seq += 4
    store.close()
    sizes = {file.name: f"{file.stat().st_size / 2**20:.0f} MiB" for file in folder.iterdir()}
    before, began = resident(), time.process_time()
    report = examine(folder)
    spent = time.process_time() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{jobs:,} jobs, {report.commits:,} commits, {sizes}; sound: {report.sound}")
    print(f"looked through in {spent:.1f} CPU s, {most - before:.0f} MiB of memory", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--step", type=float, default=60.0, help="seconds of a round of the clock")
    parser.add_argument("--ledger", type=int, help="write a ledger of so many jobs, no more")
    parser.add_argument("--at", type=Path, help="in this new folder, which stays")
    parser.add_argument("--scheduler", default="fcfs+easy+learned:depth=100")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = args.at or Path(name) / "state"
        if args.ledger:
            ledger(args.ledger, folder)
        else:
            week(args, folder)


if __name__ == "__main__":
    main()
