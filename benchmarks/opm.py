"""Speed and memory of the approximation-jobs family on one core.

    python -m benchmarks.opm [--json FILE]

For 1,000 machines and 50, 100 and 200 active jobs: slots per second of whole runs, and what a slot
spends on the environment, the decision and learning, by policy; how the decision grows with
machines and active jobs; operations and bytes that a primal step cannot do without; and memory of
runs of different lengths. Times are CPU times, medians of several repetitions; where other work
shares the caches, the ratios within one run are worth more than the numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from gangwise import Simulation, create_policy
from gangwise.core.arrays import Floats
from gangwise.core.jit import kernel
from gangwise.papers.approximation_jobs.environment import ApproximationInstance
from gangwise.papers.approximation_jobs.problem import (
    ApproximationProblem,
    GammaPeriods,
    Job,
    Power,
    ReplayedJobs,
)

POLICIES = ("plan", "opm", "opm-as-printed", "fair", "utility-per-price")
PARTS = ("environment", "decision", "learning")


def made(machines, active, slots=1_000_000, life=400, budget=0.9):
    """Always ``active`` jobs: each lives ``life`` slots and is replaced by the next one."""
    rng = np.random.default_rng(0)
    rates = GammaPeriods(machines)
    prices = 2.0 * rates.means
    pace = budget * float(prices.sum()) / active
    jobs = []
    for n in range(active):
        at = 0
        while at < slots:
            end = at + (life if at else max(life * (n + 1) // active, 1))
            share = float(rng.uniform(0.04, 2.0))
            utility = Power(float(rng.uniform(1.0, 5.0)), 0.5)
            jobs.append(Job(len(jobs), at, end, share * pace * (end - at), utility))
            at = end
    return ApproximationInstance(ApproximationProblem(prices), rates, ReplayedJobs(jobs))


def parts(instance, policy, warm=400, slots=1600, block=200):
    """Microseconds of CPU per slot, and the shares of :data:`PARTS`; medians over blocks.

    Shares are of wall-clock times, whose clock is the cheap one.
    """
    simulation = Simulation(instance, create_policy(policy), warm + slots, 0)
    environment, policy, clock = simulation.environment, simulation.policy, time.perf_counter_ns
    spent, times, shares = np.zeros(3), [], []
    for t in range(warm + slots):
        if t >= warm and (t - warm) % block == 0:
            spent[:], begin = 0.0, time.process_time_ns()
        a = clock()
        observation = environment.observe(t, "react")
        b = clock()
        decision = policy.decide(observation)
        c = clock()
        outcome = environment.step(t, decision)
        d = clock()
        policy.learn(outcome.feedback)
        spent += (b - a + d - c, c - b, clock() - d)
        if t >= warm and (t - warm) % block == block - 1:
            times.append((time.process_time_ns() - begin) / block / 1e3)
            shares.append(spent / spent.sum())
    return float(np.median(times)), np.median(shares, axis=0)


def growth():
    """Nanoseconds of the primal step (69) with (P4) per cell (machine, active job)."""
    table = {}
    for machines, active in (
        (250, 100),
        (1000, 25),
        (1000, 50),
        (1000, 100),
        (1000, 200),
        (2000, 100),
        (4000, 100),
    ):
        simulation = Simulation(made(machines, active, 1200), create_policy("opm"), 1200, 0)
        for _ in range(300):
            simulation.step()
        state, rng = simulation.policy.state, np.random.default_rng(0)
        prices = state.prices
        slopes, lam = rng.random(state.n), 0.1 * rng.random(state.n)
        rates, there, times = rng.random(machines), np.ones(machines, dtype=bool), []
        for _ in range(7):
            begin = time.process_time_ns()
            for _ in range(40):
                state.climb(slopes, lam, rates + 0.01 * rng.random(machines), 0.01, there)
            times.append((time.process_time_ns() - begin) / 40)
        assert prices.size == machines
        cells = state.n * machines
        table[f"{machines} x {active}"] = {
            "cells": cells,
            "us": float(np.median(times)) / 1e3,
            "ns per cell": float(np.median(times)) / cells,
        }
    return table


@kernel
def _once(x: Floats, rate: Floats, price: Floats, new: Floats) -> float:
    """The least that a step does: one pass that reads x and writes the next one."""
    for j in range(x.shape[0]):
        for i in range(x.shape[1]):
            new[j, i] = max(x[j, i] + 0.1 * rate[i] - 0.1 * price[i], 0.0)
    return new[0, 0]


def least(machines=1000, active=100):
    """Nanoseconds per cell of one such pass: 16 bytes are moved, 5 operations are done."""
    rng = np.random.default_rng(0)
    x, new = rng.random((active, machines)), np.zeros((active, machines))
    rate, price, times = rng.random(machines), np.ones(machines), []
    _once(x, rate, price, new)
    for _ in range(9):
        begin = time.process_time_ns()
        for _ in range(200):
            _once(x, rate, price, new)
        times.append((time.process_time_ns() - begin) / 200 / x.size)
    return float(np.median(times))


MEMORY = """
from benchmarks.opm import made
from gangwise import Simulation, create_policy
def peak():  # of this process alone
    lines = open("/proc/self/status").read().split("\\n")
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
instance = made(200, {active}, {slots})
simulation = Simulation(instance, create_policy("opm"), {slots}, 0)
for _ in range(500):
    simulation.step()
before = peak()
while simulation.slot < {slots}:
    simulation.step()
jobs = len(simulation.environment.results()["cost"])
print(before, peak(), jobs, len(simulation.policy.state.rows))
"""


def memory(active, slots):
    """Peak MiB after 500 slots, what the others added, jobs finished, rows of the shares."""
    code = MEMORY.format(active=active, slots=slots)
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after, jobs, rows = (int(part) for part in shown.stdout.split())
    return before / 1024, (after - before) / 1024, jobs, rows


def main():
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    results = {"slots": {}, "memory": {}}
    print("1000 machines: slots/s of CPU time, and shares in per cent")
    for active in (50, 100, 200):
        instance = made(1000, active, slots=2100)
        for policy in POLICIES:
            us, shares = parts(instance, policy)
            results["slots"][f"{active}, {policy}"] = [us, *shares]
            split = ", ".join(f"{what} {100 * s:.0f}" for what, s in zip(PARTS, shares))
            print(f"  {active:4} jobs  {policy:<20} {us:8.0f} us {1e6 / us:8,.0f}/s   {split}")
    results["least"] = least()
    print(f"\nthe primal step; one pass over the shares takes {results['least']:.2f} ns per cell")
    results["growth"] = growth()
    for name, row in results["growth"].items():
        print(
            f"  {name:<12} {row['us']:9.1f} us  {row['ns per cell']:5.2f} ns per cell, "
            f"{row['ns per cell'] / results['least']:.1f} x one pass"
        )
    print("\nmemory of a run, 200 machines (MiB after 500 slots, added by the others)")
    for active, slots in ((40, 5_000), (40, 20_000), (10, 20_000)):
        before, added, jobs, rows = memory(active, slots)
        results["memory"][f"{active}, {slots}"] = [before, added, jobs, rows]
        print(
            f"  {active} active, {slots:>6,} slots: {before:.1f} + {added:.1f}; {jobs:,} jobs "
            f"came and went, the shares have {rows} rows"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
