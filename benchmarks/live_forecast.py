"""When will it start, on a real Slurm: `gangwise explain`'s p50 and p90 beside `squeue --start`.

    python -m benchmarks.live_forecast --jobs 200

A private Slurm of 8 nodes with 4 GPUs each schedules by itself (FIFO with backfilling); a gangwise
service watches. Jobs of eight names take tens of seconds, each name about the same; limits are 1 to
5 minutes. Every 15 seconds Slurm is asked for its expected starts, and the service's folder is set
aside; from these copies forecasts are made afterwards, by the function that the service calls. Up
to ten waiting jobs of an instant count, from the time on at which a quarter of the jobs was there.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from tests.engines.slurm_cluster import SlurmCluster

from gangwise.core.errors import ScenarioError
from gangwise.engines.slurm import SlurmEngine
from gangwise.service.account import forecast_live
from gangwise.service.loop import Service

NODES, GPUS = 8, 4
EVERY = 15.0
COUNTED = 10
CLASSES = {"all": (0, np.inf), "< 1 min": (0, 60), "longer": (60, np.inf)}


def users(cluster: SlurmCluster, jobs: int, load: float, seed: int) -> None:
    """Submit jobs, so that together they ask for ``load`` times what there is."""
    rng = np.random.default_rng(seed)
    usual = np.exp(rng.uniform(np.log(8), np.log(60), 8))
    name = rng.integers(0, 8, jobs)
    run = np.clip(usual[name] * rng.lognormal(0, 0.35, jobs), 3, 110)
    tasks, gpus = rng.choice([1, 1, 2, 4], jobs), rng.choice([2, 4], jobs)
    span = float((run * tasks * gpus).sum()) / (NODES * GPUS) / load
    limit = np.ceil(run * rng.uniform(1.2, 4, jobs) / 60)
    start = time.time()
    for j, at in enumerate(np.sort(rng.uniform(0, span, jobs)).tolist()):
        time.sleep(max(start + at - time.time(), 0.0))
        text = f"#!/bin/sh\nexec sleep {run[j]:.1f}\n"
        asks = [f"-N{tasks[j]}", "--ntasks-per-node=1", f"--gres=gpu:{gpus[j]}"]
        asks += ["-t", str(int(limit[j])), "-J", f"n{name[j]}", "-o", "/dev/null", "-p", "open"]
        cluster.call("sbatch", "--parsable", *asks, text=text)


def play(jobs: int, load: float, seed: int, folder: Path) -> tuple[list[tuple[float, dict]], dict]:
    """What Slurm expected, with the time, and when each job started."""
    nodes = {f"n{i}": (8, GPUS, ("new",)) for i in range(NODES)}
    cluster = SlurmCluster(folder / "slurm", nodes, timeout=300)
    engine = SlurmEngine("open", watch=True, poll=0.5, environment=cluster.environment)
    service = Service(engine, folder / "state", "fcfs+easy+best-fit", act=False)
    told: list[tuple[float, dict]] = []
    try:
        thread = threading.Thread(target=users, args=(cluster, jobs, load, seed))
        thread.start()
        began = time.time()
        while thread.is_alive() or cluster.call("squeue", "-h").strip():
            service.tick(0.25)
            if time.time() > began + EVERY * (len(told) + 1):
                service._keep()
                shutil.copytree(folder / "state", folder / str(len(told)))
                said = cluster.call("squeue", "-h", "-t", "PD", "--start", "-o", "%i %S")
                found = dict(line.split() for line in said.splitlines())
                told.append((time.time(), found))
        for _ in range(40):
            service.tick(0.25)
        rows = service.store.rows("SELECT job, started FROM history WHERE started IS NOT NULL")
        return told, {row["job"]: row["started"] for row in rows}
    finally:
        service.close()
        cluster.stop()


def main() -> None:
    """Print the table."""
    read = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    read.add_argument("--jobs", type=int, default=200)
    read.add_argument("--load", type=float, default=1.0)
    read.add_argument("--seed", type=int, default=0)
    given = read.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="live-forecast"))
    told, started = play(given.jobs, given.load, given.seed, folder)
    order, cases = sorted(started.values()), []
    for i, (_, slurm) in enumerate(told):
        try:
            found = forecast_live(folder / str(i))
        except ScenarioError:
            continue  # nobody waits
        if sum(t <= found.now for t in order) < given.jobs / 4:
            continue
        for row in [row for row in found.rows if row["job"] in started][:COUNTED]:
            text = slurm.get(row["job"], "N/A")
            ahead = np.nan
            if text != "N/A":
                ahead = time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S")) - found.now
            truth = started[row["job"]] - found.now
            cases.append([row["p50"], row["p90"], row["promised"], ahead, truth, i])
    table = np.array(cases)
    p50, p90, promised, slurm_says, truth, instant = table.T
    print(f"{given.jobs} jobs, {len(table)} waiting jobs at {np.unique(instant).size} instants\n")
    print("| p50 ahead | starts | ≤ p50, % | ≤ p90, % | ≤ EASY's promise, % |", end="")
    print(" ≤ squeue --start, % | off by, s: p50 | promise | squeue --start |\n|" + 9 * "---|")
    for name, (low, high) in CLASSES.items():
        on = (p50 >= low) & (p50 < high) & np.isfinite(slurm_says)
        said = (p50, p90, promised, slurm_says)
        held = [100 * (truth[on] <= each[on] + 1).mean() for each in said]
        off = [np.abs(truth - each)[on].mean() for each in (p50, promised, slurm_says)]
        cells = [name, f"{on.sum()}", *(f"{h:.0f}" for h in held), *(f"{o:.0f}" for o in off)]
        print(f"| {' | '.join(cells)} |")
    print(f"\nwithout an answer of Slurm's: {np.isnan(slurm_says).sum()}; copies in {folder}")


if __name__ == "__main__":
    main()
