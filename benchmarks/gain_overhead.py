"""Speed of the gain-minus-overhead family on one core.

    python -m benchmarks.gain_overhead [--json FILE]

For each size: one ascent step (gradient and exact projection), the same step in NumPy, reward with
its feasibility check, the whole slot loop, the bytes that a step must move and how long moving them
takes on this machine, peak memory of a run, then how the step grows with L, R and K, and what
loading the kernels costs a new process. Times are medians of several repetitions.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from gangwise import Simulation, create_policy, create_scenario
from gangwise.papers.gain_overhead.policies import Ascent

SIZES = {
    "default, density 2.5 (10 x 128 x 6)": {"job_types": 10, "servers": 128, "density": 2.5},
    "default, dense (10 x 128 x 6)": {"job_types": 10, "servers": 128, "density": 10},
    "large, density 2.5 (100 x 1024 x 6)": {"job_types": 100, "servers": 1024, "density": 2.5},
    "large, density 10 (100 x 1024 x 6)": {"job_types": 100, "servers": 1024, "density": 10},
}


def microseconds(work, repeat=7, least=0.15):
    """Median time of ``work(n)`` per unit, in microseconds."""
    work(3)
    n = 8
    while True:
        begin = time.perf_counter()
        work(n)
        if time.perf_counter() - begin > least / 4:
            break
        n *= 2
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        work(n)
        times.append((time.perf_counter() - begin) / n)
    return 1e6 * float(np.median(times))


def bandwidth(megabytes):
    """Bytes per second that a NumPy copy of this size moves (read plus write)."""
    a = np.ones(max(int(megabytes * 1e6 / 16), 1000))
    b = np.empty_like(a)

    def work(n):
        for _ in range(n):
            np.copyto(b, a)

    return 2 * a.nbytes / (microseconds(work) / 1e6)


def numpy_step(problem):
    """The same step with NumPy on dense arrays and a sorting projection, as a yardstick."""
    L, R = problem.channels.shape
    K = problem.shape[1]
    mask = np.zeros((L, R), dtype=bool)
    mask[problem.channels.job_type, problem.channels.server] = True
    kind, alpha = problem.utilities.kind, problem.utilities.alpha
    capacity = problem.cluster.capacity
    upper = np.where(mask[:, :, None], np.minimum(problem.requests[:, None, :], capacity), 0.0)

    def step(y, x, eta):
        slope = np.select(
            [kind == 0, kind == 1, kind == 2],
            [alpha + 0 * y, alpha / (y + 1), 1 / (y + alpha) ** 2],
            alpha / (2 * np.sqrt(y + 1)),
        )
        star = np.argmax(problem.overhead * y.sum(axis=1), axis=1)
        slope[np.arange(L), :, star] -= problem.overhead[star][:, None]
        z = y + eta * x[:, None, None] * slope * mask[:, :, None]
        low = np.zeros((R, K))
        high = np.maximum(z.max(axis=0), 0.0)
        over = np.clip(z, 0, upper).sum(axis=0) > capacity
        points = np.sort(np.concatenate([z, z - upper]), axis=0)
        for tau in points:  # the multiplier lies between two breakpoints
            room = np.clip(z - tau, 0, upper).sum(axis=0)
            low = np.where((room > capacity) & (tau > low), tau, low)
            high = np.where((room <= capacity) & (tau < high) & (tau >= 0), tau, high)
        middle = np.clip(z - (low + high) / 2, 0, upper)
        inside = (middle > 0) & (middle < upper)
        count = np.maximum(inside.sum(axis=0), 1)
        fixed = np.where(inside, 0.0, middle).sum(axis=0)
        tau = ((z * inside).sum(axis=0) + fixed - capacity) / count
        return np.clip(z - np.where(over, tau, 0.0), 0, upper)

    return step


def one_size(settings, contention=10.0):
    """All numbers of one size."""
    scenario = create_scenario("ogasched-default-v1", contention=contention, **settings)
    instance = scenario.instance(0)
    problem = instance.problem
    E, K = problem.shape
    arrivals = instance.arrivals(512, 0)
    weights = arrivals.astype(float)
    everyone = np.ones(problem.L, dtype=np.int64)
    row = {"channels": E, "variables": E * K}
    for name, eta in (("step, eta 25", 25.0), ("step, eta 0.3", 0.3)):
        state = Ascent(problem, np.zeros(problem.shape))

        def ascend(n, state=state, eta=eta):
            for t in range(n):
                state.slope(weights[t & 511], everyone)
                state.climb(eta, everyone)

        row[name] = microseconds(ascend)
    y = state.y

    def rewards(n):
        for t in range(n):
            problem.reward(arrivals[t & 511], y)

    row["reward"] = microseconds(rewards)
    step, dense = numpy_step(problem), problem.dense(y)
    row["step in NumPy"] = microseconds(
        lambda n: [step(dense, weights[t & 511], 0.3) for t in range(n)], repeat=3
    )
    moved = 11 * 8 * E * K  # gradient: y, 5 coefficients, out; projection: y, g, upper, out
    row["bytes"] = moved
    row["bytes / bandwidth"] = 1e6 * moved / bandwidth(moved / 1e6)
    for policy in ("ogasched-reserve", "ogasched-react", "fairness"):
        simulation = Simulation(instance, create_policy(policy), 10_000_000, 0)

        def slots(n, simulation=simulation):
            for _ in range(n):
                simulation.step()

        row[f"whole slot, {policy}"] = microseconds(slots, repeat=5)
    return row


PEAK = """
def peak():  # of this process alone; ru_maxrss begins at what the parent had
    lines = open("/proc/self/status").read().split("\\n")
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
from gangwise import create_policy, create_scenario, simulate
scenario = create_scenario("ogasched-default-v1", job_types={job_types}, servers={servers})
instance = scenario.instance(0)
simulate(instance, create_policy("ogasched-reserve"), 10, 0)
before = peak()
simulate(instance, create_policy("ogasched-reserve"), {slots}, 0)
print(before, peak())
"""


def peak_memory(job_types, servers, slots):
    """Peak resident memory of a run, and how much of it the slots added, in MiB."""
    code = PEAK.format(job_types=job_types, servers=servers, slots=slots)
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = (int(part) / 1024 for part in shown.stdout.split())
    return after, after - before


LOAD = """
import time
begin = time.perf_counter()
import numba
imported = time.perf_counter()
from gangwise import create_policy, create_scenario, simulate
instance = create_scenario("ogasched-default-v1").instance(0)
loaded = time.perf_counter()
simulate(instance, create_policy("{policy}"), 2, 0)
print(loaded - imported, imported - begin, time.perf_counter() - loaded)
"""


def kernel_loading(policy):
    """Seconds for the kernels of a run: with an empty cache, and in the next process."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        times = []
        for _ in range(2):
            shown = subprocess.run(
                [sys.executable, "-c", LOAD.format(policy=policy)],
                capture_output=True,
                text=True,
                check=True,
                env=environment,
            )
            times.append([float(part) for part in shown.stdout.split()])
    return times


def comparators(settings, slots=50, sample=4):
    """Milliseconds of CPU for a programme of each comparator, and the share that it leaves open."""
    instance = create_scenario("ogasched-default-v1", **settings).instance(0)
    instance.comparator("per_slot_optimum", slots, 0, 1)  # compiles
    table = {}
    for name, programmes in (("per_slot_optimum", sample), ("best_fixed", 1)):
        times = []
        for _ in range(3):
            begin = time.process_time()
            found = instance.comparator(name, slots, 0, sample)
            times.append(1e3 * (time.process_time() - begin) / programmes)
        table[name] = {"ms": min(times), "gap": found.gap / found.rewards.sum()}
    return table


def growth():
    """How a step grows with L, R and K around the default size (density 2.5)."""
    table = {}
    for name, settings in {
        "L = 10": {},
        "L = 20": {"job_types": 20},
        "L = 40": {"job_types": 40},
        "R = 256": {"servers": 256},
        "R = 512": {"servers": 512},
        "K = 3": {"most": (24, 48, 16)},
        "K = 12": {"most": (24, 48, 16, 16, 16, 8) * 2},
        "density 5": {"density": 5},
        "density 10": {"density": 10},
    }.items():
        instance = create_scenario("ogasched-default-v1", **settings).instance(0)
        problem = instance.problem
        weights = instance.arrivals(512, 0).astype(float)
        everyone = np.ones(problem.L, dtype=np.int64)
        state = Ascent(problem, np.zeros(problem.shape))

        def ascend(n, state=state, weights=weights, everyone=everyone):
            for t in range(n):
                state.slope(weights[t & 511], everyone)
                state.climb(25.0, everyone)

        each = microseconds(ascend, repeat=5)
        count = problem.shape[0] * problem.shape[1]
        table[name] = {"variables": count, "us": each, "ns per variable": 1e3 * each / count}
    return table


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    results = {"sizes": {}, "comparators": {}, "peak memory": {}, "kernel loading": {}}
    for name, settings in SIZES.items():
        row = results["sizes"][name] = one_size(settings)
        print(f"\n{name}: {row['channels']} channels, {row['variables']} variables")
        for key in ("step, eta 25", "step, eta 0.3", "reward", "step in NumPy"):
            each = row[key]
            ratio = row["step in NumPy"] / each
            print(f"  {key:<28} {each:10.1f} us {1e6 / each:10,.0f}/s   NumPy / this {ratio:8.1f}")
        least = row["bytes / bandwidth"]
        print(
            f"  bytes moved by a step        {row['bytes']:10,}      {least:.1f} us at this "
            f"machine's copy bandwidth; a step takes {row['step, eta 25'] / least:.1f} x that"
        )
        for key in (k for k in row if k.startswith("whole")):
            print(f"  {key:<40} {row[key]:10.1f} us   {1e6 / row[key]:10,.0f} slots/s")
    print("\ncomparators, each programme")
    for name, settings in SIZES.items():
        results["comparators"][name] = found = comparators(settings)
        for who, row in found.items():
            print(f"  {name:<36} {who:<18} {row['ms']:7.1f} ms   gap {row['gap']:.0e}")
    print("\ngrowth of one step (eta 25)")
    results["growth"] = growth()
    for name, row in results["growth"].items():
        print(
            f"  {name:<12} {row['variables']:8,} variables {row['us']:9.1f} us "
            f"{row['ns per variable']:6.1f} ns each"
        )
    print("\npeak memory of a run (MiB), and what its slots added")
    for size, slots in (
        ((10, 128), 2_000),
        ((10, 128), 100_000),
        ((100, 1024), 2_000),
        ((100, 1024), 20_000),
    ):
        peak, added = peak_memory(*size, slots)
        results["peak memory"][f"{size}, {slots} slots"] = [peak, added]
        print(f"  {size[0]} x {size[1]} x 6, {slots:>7,} slots   {peak:7.1f}   +{added:.1f}")
    print("\nkernels of a run: first ever on a machine, then in a new process (seconds)")
    for policy in ("ogasched-reserve", "ogasched-react", "ogasched-reserve-leftover", "binpacking"):
        first, later = kernel_loading(policy)
        results["kernel loading"][policy] = {"first": first, "later": later}
        print(
            f"  {policy:<28} first {first[2]:5.2f}   later {later[2]:5.2f}   "
            f"(importing numba {later[1]:.2f}, everything else {later[0]:.2f})"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
