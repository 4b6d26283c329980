"""The service with 1,000 nodes and 10,000 queued jobs on a cluster in memory.

    python -m benchmarks.live_scale

Tells the processor's time (the machine may be busy with others) of a decision round and of a whole
tick (events, round, commit with fsync, placement, views), and how many events a second are taken
in. Node count, queue and load are arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time

import numpy as np
from tests.service.pretend import Pretend

from gangwise.engines.engine import EngineNode, RankReport
from gangwise.service.loop import Service


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--queue", type=int, default=10_000)
    parser.add_argument("--ticks", type=int, default=100)
    parser.add_argument("--events", type=int, default=500, help="jobs that end and come in a tick")
    parser.add_argument("--scheduler", default="fcfs+easy+learned:depth=100")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    speed = {f"n{i}": float(s) for i, s in enumerate(rng.choice([0.5, 1.0, 2.0], args.nodes))}
    engine = Pretend([EngineNode(n, {"gpu": 8000}, {"model": f"{s:g}"}) for n, s in speed.items()])
    engine.careful = False  # the cluster's own time is not the service's
    count = 0

    def submit(many: int) -> None:
        nonlocal count
        for _ in range(many):
            count += 1
            work = float(rng.lognormal(7, 1))
            engine.submit(
                str(count), int(rng.integers(1, 5)), int(rng.choice([1, 2, 4])), work=work
            )

    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CONFIG_HOME"] = folder
        rates = {f"model={s:g}": s for s in (0.5, 1.0, 2.0)}
        service = Service(engine, folder + "/state", args.scheduler, act=True, rates=rates)
        service.tick(0.0)
        submit(args.queue + 4 * args.nodes)
        for _ in range(3):
            service.tick(0.0)
        rounds, ticks, memory = [], [], []
        events = service.counts["events"]
        for _ in range(args.ticks):
            running = [j for j, row in engine.table.items() if row.phase == "running"]
            for job in rng.choice(running, min(args.events // 3, len(running)), replace=False):
                row = engine.table[str(job)]
                reports = tuple(
                    RankReport(p.node, i, 60.0 * speed[p.node], 60.0)
                    for i, p in enumerate(row.placed)
                )
                engine.end(str(job), ranks=reports)
                del engine.table[str(job)]
            submit(args.events // 3)
            began = time.process_time()
            service.tick(0.0)
            ticks.append(time.process_time() - began)
            rounds.append(service.round_seconds)
            memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        events = service.counts["events"] - events + args.ticks * (args.events // 3)
        health = service.health()
        result = {
            "nodes": args.nodes,
            "waiting": health["waiting"],
            "running": health["running"],
            "round ms, median": round(1000 * float(np.median(rounds)), 1),
            "round ms, p95": round(1000 * float(np.quantile(rounds, 0.95)), 1),
            "tick ms, median": round(1000 * float(np.median(ticks)), 1),
            "tick ms, p95": round(1000 * float(np.quantile(ticks, 0.95)), 1),
            "events/s": round(events / sum(ticks)),
            "MiB, tenth tick and last": [round(memory[9]), round(memory[-1])],
        }
        print(json.dumps(result, indent=1))
        service.close()


if __name__ == "__main__":
    main()
