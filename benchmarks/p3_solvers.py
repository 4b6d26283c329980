"""Value, gap and time of every solver of P3 on one core.

    python -m benchmarks.p3_solvers [--json FILE] [--slots N] [--skip-milp] [--skip-programme]

Slots of a run at E channels and three device types (requests 1 or 2, capacity half of all
requests); statistics drift from slot to slot, and 70 % or all of the channels are available. The
dynamic programme and HiGHS see the first slots only. Times include the call from Python. "loss" is
what the value falls short of the best value any solver found in that slot, "gap" what the solver
itself certifies, both relative and the worst of the slots.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from tests.reference.p3 import solve_milp

from gangwise.core.errors import ScenarioError
from gangwise.papers.fluctuating_speeds.solver import P3Solution, P3Solver

SIZES = {32: 400, 100: 200, 1000: 60, 10000: 30}
SLOT = 2000
CASES = {  # the factor of m ln(ln(t+1)+1) in g(t) of (10), and the share of channels available
    "g = ln(t+1), 70 % available": (0.0, 0.7),
    "g = ln(t+1), all available": (0.0, 1.0),
    "g = ln(t+1) + 4 m ln(ln(t+1)+1), all available": (4.0, 1.0),
}


def slots(E, count, factor, share, rng):
    """Requests, capacity, and (v, s, available) of each slot; means drift from slot to slot."""
    a = rng.integers(1, 3, (E, 3)).astype(float)
    c = np.floor(0.5 * a.sum(axis=0))
    g = np.log(SLOT + 1) + factor * (E / 2) * np.log(np.log(SLOT + 1) + 1)
    v, played = rng.uniform(0, 1, E), 1.0 + rng.uniform(0, 1, E) * SLOT
    made = []
    for _ in range(count):
        available = rng.random(E) < share
        made.append((v.copy(), g / (2 * played), available))
        v = np.clip(v + rng.normal(0, 0.02, E), 0, 1)
        played += available
    return a, c, made


def by_programme(solver, v, s, available):
    """A solution by the dynamic programme, on numbers rounded with δ of (14) and ξ of (18)."""
    xi = np.ceil(v.size / 2 * (np.log(np.log(SLOT + 1) + 1) + 1))
    x = solver.solve(np.ceil(xi * v), xi**2 * s, available, programme=True).x
    value = float(v[x].sum() + np.sqrt(s[x].sum()))
    return P3Solution(x, value, value, False, 0)


def solve(solver, v, s, available, method="", gap=1e-9, **how):
    """A solution, by the solver, by the paper's programme or by HiGHS with tangent cuts."""
    if method == "programme":
        return by_programme(solver, v, s, available)
    if method != "milp":
        return solver.solve(v, s, available, gap=gap, **how)
    part = v[available], s[available], solver.requests[available], solver.capacity
    x, value, bound = solve_milp(*part, gap, 30.0)
    return P3Solution(x, value, bound, bound - value <= (gap + 1e-8) * abs(value), 0)


def measure(solver, made, warm, **how):
    """Solutions and seconds of each slot."""
    found, seconds, state = [], [], None
    for v, s, available in made:
        begin = time.perf_counter()
        solution = solve(solver, v, s, available, warm=state, **how)
        seconds.append(time.perf_counter() - begin)
        state = solution if warm else None
        found.append(solution)
    return found, seconds


def one_size(E, count, factor, share, skip):
    """Rows of one size."""
    a, c, made = slots(E, count, factor, share, np.random.default_rng(E))
    solver = P3Solver(a, c)
    plans = {
        "root only": (made, True, {"nodes": 0}),
        "default": (made, True, {}),
        "default, no warm start": (made, False, {}),
        "100,000 nodes, gap 1e-6": (made, True, {"gap": 1e-6, "nodes": 100_000}),
        "100,000 nodes, gap 1e-9": (made, True, {"nodes": 100_000}),
    }
    if "milp" not in skip and E <= 1000:
        few = 3 if E <= 100 else 1
        plans["milp (HiGHS)"] = (
            made[:few],
            False,
            {"method": "milp", "gap": 1e-6 if E > 100 else 1e-9},
        )
    if "programme" not in skip:
        plans["dynamic programme"] = (made[:2], False, {"method": "programme"})
    measured, best = {}, np.zeros(count)
    for name, (some, warm, how) in plans.items():
        try:
            if "milp" not in name and "dynamic" not in name:
                measure(solver, some[:2], warm, **how)
            measured[name] = measure(solver, some, warm, **how)
        except ScenarioError as error:
            print(f"  {name:<22} {str(error)[:75]} ...")
            continue
        for i, solution in enumerate(measured[name][0]):
            best[i] = max(best[i], solution.value)
    rows = {}
    for name, (found, seconds) in measured.items():
        rows[name] = {
            "slots": len(found),
            "ms": 1e3 * float(np.mean(seconds)),
            "ms, median": 1e3 * float(np.median(seconds)),
            "ms, worst": 1e3 * float(np.max(seconds)),
            "loss": max(1 - x.value / best[i] for i, x in enumerate(found)),
            "gap": max(x.gap / x.value for x in found),
            "proved": sum(x.proved for x in found),
            "nodes": float(np.mean([x.nodes for x in found])),
        }
    return rows


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    parser.add_argument("--slots", type=int, help="at most so many slots of each size")
    parser.add_argument("--skip-milp", action="store_true")
    parser.add_argument("--skip-programme", action="store_true")
    arguments = parser.parse_args()
    skip = {x for x in ("milp", "programme") if getattr(arguments, f"skip_{x}")}
    results = {}
    for case, (factor, share) in CASES.items():
        for E, count in SIZES.items():
            print(
                f"\n{E} channels, {case}, {min(count, arguments.slots or count)} slots\n"
                f"  {'':<22} {'ms':>9} {'median':>9} {'worst':>9} {'per s':>9} {'loss':>9} "
                f"{'gap':>9} {'proved':>9} {'nodes':>8}"
            )
            rows = one_size(E, min(count, arguments.slots or count), factor, share, skip)
            results[f"{E} channels, {case}"] = rows
            for name, row in rows.items():
                print(
                    f"  {name:<22} {row['ms']:9.3f} {row['ms, median']:9.3f} "
                    f"{row['ms, worst']:9.3f} {1e3 / row['ms']:9.1f} {row['loss']:9.1e} "
                    f"{row['gap']:9.1e} {row['proved']:>4}/{row['slots']:<4} "
                    f"{row['nodes']:8.0f}"
                )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
