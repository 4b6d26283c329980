"""Regret and fit of OPS and OPM against T, beside what Theorem 2 and Corollary 1 claim.

    python -m benchmarks.opm_regret --seeds 10 --out FOLDER [--horizons 1000,4000,16000,64000]

Scenario ``opm-theorem-v1`` (all jobs from slot 0 to T, budgets not enforced). Writes one
``case-…-T.parquet`` per case and horizon (a run that was stopped goes on), ``regret.svg``, and
prints per case and T: Reg_T / √T, Reg_T over the claimed bound, Fit_T / √(Σ B), its positive part
and the claimed bound of the fit, as means with 95 % intervals over seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl

from gangwise import create_policy, create_scenario, simulate
from gangwise.papers.approximation_jobs.offline import claimed_fit, claimed_regret, offline_optimum
from gangwise.study.statistics import mean_and_interval

THEORY = "opm-as-printed:theory=true,history=expected"
CASES = {
    "OPS, constants of Theorem 2": ("ops:epsilon=-1", {"rho": 0.3}),
    "OPS, the same with epsilon 0": ("ops", {"rho": 0.3}),
    "OPS, constant step": ("ops:alpha=0.05,mu=0.2,gamma=0.5", {"rho": 0.3}),
    "OPS, constants of Theorem 2, √X": ("ops:epsilon=-1", {"rho": 0.3, "utility": "sqrt"}),
    "OPM, constants of Theorem 3, 5 jobs": (THEORY, {"jobs": 5, "rho": 0.5}),
    "OPM, constant step, 5 jobs": ("opm-as-printed:gamma=0.5,dual=0.2", {"jobs": 5, "rho": 0.5}),
}
DELTA = 0.1


def one(policy, settings, slots, seed):
    """Everything measured of one run, and what is claimed for it."""
    scenario = create_scenario("opm-theorem-v1", slots=slots, **settings)
    instance = scenario.instance(seed)
    best = offline_optimum(instance, slots, seed, "means", average=True)
    run = simulate(instance, create_policy(policy), slots, seed)
    jobs, M = instance.jobs.jobs, instance.problem.M
    budget = sum(job.budget for job in jobs)
    epsilon = 8.0 * M * M * slots / budget**2 if "epsilon=-1" in policy else 0.0
    lipschitz = max(job.utility.code[1] for job in jobs)  # π of v ln(1 + X); √X has none
    bound = claimed_regret(jobs, M, slots, lipschitz, best.bound, DELTA, epsilon)
    return {
        "seed": seed,
        "T": slots,
        "regret": best.bound - float(run.metrics["average_utility"].sum()),
        **{name: float(run.metrics[name].sum()) for name in ("fit", "over")},
        "optimum": best.bound,
        "claimed regret": bound,
        "budget": budget,
        "claimed fit": claimed_fit(jobs, M, DELTA),
    }


def table(frame):
    """Lines of the table."""
    for (case, slots), rows in frame.group_by(["case", "T"], maintain_order=True):
        root = rows["budget"].sqrt()
        columns = (
            rows["regret"] / slots**0.5,
            100 * rows["regret"] / rows["optimum"],
            rows["regret"] / rows["claimed regret"],
            rows["fit"] / root,
            rows["over"] / root,
            rows["claimed fit"] / root,
        )
        cells = [
            f"{e.mean:.3g} ± {(e.high - e.low) / 2:.2g}"
            for e in (mean_and_interval(column.to_numpy()) for column in columns)
        ]
        cells[-1] = cells[-1].split()[0]
        yield f"| {case} | {slots:,} | " + " | ".join(cells) + " |"


def draw(frame, path):
    """Regret against T, both axes logarithmic; √T is a line of slope one half."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5))
    left, right = figure.subplots(1, 2)
    for (case,), rows in frame.group_by(["case"], maintain_order=True):
        T = rows["T"].unique().sort().to_numpy()
        by = [rows.filter(pl.col("T") == t) for t in T]
        for axes, values in (
            (left, [(each["regret"] / float(t) ** 0.5).to_numpy() for t, each in zip(T, by)]),
            (right, [(each["fit"] / each["budget"].sqrt()).to_numpy() for each in by]),
        ):
            found = [mean_and_interval(each) for each in values]
            axes.plot(T, [e.mean for e in found], marker="o", markersize=3, label=case)
            axes.fill_between(T, [e.low for e in found], [e.high for e in found], alpha=0.2)
    left.set_yscale("symlog", linthresh=0.1)
    left.set_ylabel("regret / √T")
    right.set_yscale("symlog", linthresh=1)
    right.set_ylabel("fit / √(Σ B)")
    right.axhline(np.log(1 / DELTA), color="black", linewidth=0.8, linestyle=":")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlabel("slots T")
    figure.legend(*left.get_legend_handles_labels(), loc="lower center", ncol=2, fontsize=8)
    figure.tight_layout(rect=(0, 0.16, 1, 1))
    figure.savefig(path, metadata={"Date": None})


def main():
    """Run what is missing, print the table, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=100, help="first seed")
    parser.add_argument("--horizons", default="1000,4000,16000,64000")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    frames = []
    horizons = [int(each) for each in arguments.horizons.split(",")]
    for slots in horizons:
        for n, (case, (policy, settings)) in enumerate(CASES.items()):
            path = arguments.out / f"case-{n}-{slots}.parquet"
            if not path.exists():
                seeds = range(arguments.first, arguments.first + arguments.seeds)
                rows = [one(policy, settings, slots, seed) for seed in seeds]
                pl.DataFrame(rows).write_parquet(path)
                print(f"T = {slots}: {case} done", flush=True)
            frames.append(pl.read_parquet(path).with_columns(pl.lit(case).alias("case")))
    frame = pl.concat(frames).sort("case", "T", maintain_order=True)
    print(
        "| case | T | regret / √T | regret, % of the optimum | regret / claimed | fit / √B "
        "| overspent / √B | claimed fit / √B |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for line in table(frame):
        print(line)
    draw(frame, arguments.out / "regret.svg")


if __name__ == "__main__":
    main()
