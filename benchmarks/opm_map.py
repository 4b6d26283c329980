"""Slot length against load and β: what every policy earns, and how much of what can be earned.

    python -m benchmarks.opm_map --trace FOLDER --out FILE [--seeds 5] [--cells 1:0.9,0.5:0.5]
        [--slots 300,1000]

The same ten hours of Google ClusterData 2011 on 100 machines, cut into 300, 1,000 and 5,000 slots;
a cell is a share of the jobs that is kept, and β. For each: the overall utility Σ f(X) relative to
Fair's, its share of the certified bound ``known_rates``, which knows every job and every rate
beforehand, and the objective per slot of OPM (6), Σ (d − a) f(X / (d − a)), relative to Fair's.
Means over seeds, ± half of the 95 % interval of the share from two seeds on. Lines are written as
they are found; what the file has already is not done again.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from gangwise import create_policy, create_scenario, simulate
from gangwise.papers.approximation_jobs.offline import offline_optimum
from gangwise.study.statistics import mean_and_interval

SLOTS = (300, 1000, 5000)
POLICIES = (
    "plan",
    "plan:objective=average",  # for (6)
    "opm:objective=average",
    "opm",
    "opm-as-printed",
    "utility-per-price",
    "deadline-aware",
    "fair",
)


def cell(folder, slots, keep, beta, seed):
    """Totals of every policy, and the bound."""
    scenario = create_scenario(
        "opm-google-v1", folder=str(folder), machines=100, slots=slots, keep=keep, beta=beta
    )
    instance = scenario.instance(seed)
    found = {"slots": slots, "keep": keep, "beta": beta, "seed": seed}
    found["bound"] = float(offline_optimum(instance, slots, seed, tolerance=5e-3).bound)
    for name in POLICIES:
        run = simulate(instance, create_policy(name), slots, seed)
        per_slot = float(run.metrics["average_utility"].sum())
        found[name] = float(run.rewards.sum()), per_slot
    return found


def table(lines):
    """A row for each cell and slot length, over Fair, with the share of the bound and (6)."""
    print("| jobs kept, β | slots | " + " | ".join(f"`{p}`" for p in POLICIES) + " |")
    print("|---" * (2 + len(POLICIES)) + "|")
    for keep, beta in dict.fromkeys((x["keep"], x["beta"]) for x in lines):
        for slots in SLOTS:
            of = [x for x in lines if (x["keep"], x["beta"], x["slots"]) == (keep, beta, slots)]
            if not of:
                continue
            cells = []
            for name in POLICIES:
                ours, per_slot = (
                    np.mean([x[name][part] / x["fair"][part] for x in of]) for part in (0, 1)
                )
                share = mean_and_interval([100 * x[name][0] / x["bound"] for x in of])
                sure = "" if share.half is None else f" ± {share.half:.1f}"
                cells.append(f"{ours:.3f} ({share.mean:.1f}{sure} %) {per_slot:.2f}")
            print(f"| {keep:g}, {beta:g} | {slots:,} | " + " | ".join(cells) + " |")


def main():
    """Find what is missing, then print the map."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--slots", default=",".join(map(str, SLOTS)))
    parser.add_argument("--cells", default="1:0.5,1:0.9,0.5:0.5,0.5:0.9")
    given = parser.parse_args()
    lines = []
    if given.out.exists():
        lines = [json.loads(line) for line in given.out.read_text().splitlines()]
    known = {(x["slots"], x["keep"], x["beta"], x["seed"]) for x in lines}
    cells = [tuple(map(float, text.split(":"))) for text in given.cells.split(",")]
    for seed in range(100, 100 + given.seeds):
        for keep, beta in cells:
            for slots in map(int, given.slots.split(",")):
                if (slots, keep, beta, seed) in known:
                    continue
                lines.append(cell(given.trace, slots, keep, beta, seed))
                with given.out.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    table(lines)


if __name__ == "__main__":
    main()
