"""How the regret of ESDP grows: as printed and as it should be, over 100,000 slots.

    python -m benchmarks.esdp_regret --seeds 20 --out FOLDER [--slots 100000] [--fraction 0.5]

Writes ``regret.parquet`` (pseudo-regret (6) against x*(t) at slots spaced evenly in ln t, for every
policy and seed; each seed is stored once, so a run that was stopped goes on), ``regret.svg`` and
prints the table of growth: regret at 10³, 10⁴, 10⁵, its slope against ln t, and the exponent of t,
over the last decade, with 95 % intervals over seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl

from gangwise import create_policy, create_scenario, simulate
from gangwise.papers.fluctuating_speeds.environment import pseudo_regret
from gangwise.study.statistics import mean_and_interval

POLICIES = ("esdp", "esdp:kappa=0.25", "thompson-beta", "hauf-channel", "esdp-as-printed")


def one_seed(fraction, slots, seed):
    """Pseudo-regret of every policy at slots spaced evenly in ln t."""
    instance = create_scenario("esdp-default-v1", fraction=fraction).instance(seed)
    at = np.unique(np.geomspace(10, slots, 120).astype(int)) - 1
    rows = []
    for policy in POLICIES:
        curve = pseudo_regret(simulate(instance, create_policy(policy), slots, seed))
        rows.append(
            pl.DataFrame({"slot": at + 1, "regret": curve[at]}).with_columns(
                policy=pl.lit(policy), seed=pl.lit(seed)
            )
        )
    return pl.concat(rows)


def growth(frame):
    """The table: regret per decade, slope against ln t, exponent of t."""
    last = frame["slot"].max()
    for policy in POLICIES:
        per_seed = []
        for (_seed,), one in frame.filter(pl.col("policy") == policy).group_by("seed"):
            t, r = one.sort("slot")["slot"].to_numpy(), one.sort("slot")["regret"].to_numpy()
            decade = t >= last / 10
            slope = np.polyfit(np.log(t[decade]), r[decade], 1)[0]
            exponent = np.polyfit(np.log(t[decade]), np.log(r[decade]), 1)[0]
            per_seed.append([*np.interp([1e3, 1e4, 1e5], t, r), slope, exponent])
        yield policy, [mean_and_interval(column) for column in np.array(per_seed).T]


def draw(frame, path):
    """Regret against ln t: a straight line is logarithmic growth, an upward bend is not."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5))
    axes = figure.subplots(1, 2)
    for policy in POLICIES:
        by_slot = (
            frame.filter(pl.col("policy") == policy)
            .group_by("slot")
            .agg(
                pl.col("regret").mean().alias("mean"),
                (pl.col("regret").std() / pl.len().sqrt()).alias("error"),
            )
            .sort("slot")
        )
        t, mean = by_slot["slot"].to_numpy(), by_slot["mean"].to_numpy()
        half = 2.093 * by_slot["error"].to_numpy()
        for each in axes:
            each.plot(t, mean, label=policy, linewidth=1.4)
            each.fill_between(t, mean - half, mean + half, alpha=0.2, linewidth=0)
            each.set_xscale("log")
            each.set_xlabel("slot t")
    axes[0].set_yscale("log")
    axes[0].set_ylabel("pseudo-regret")
    axes[0].set_title("both axes logarithmic", fontsize=10)
    shown = frame.filter(pl.col("policy").is_in(POLICIES[:3]))
    last = (
        shown.filter(pl.col("slot") == shown["slot"].max())
        .group_by("policy")
        .agg(pl.col("regret").mean())
    )
    axes[1].set_ylim(0, 1.4 * last["regret"].max())
    axes[1].set_title("against ln t", fontsize=10)
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    """Run what is missing, print the table, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=100, help="first seed")
    parser.add_argument("--slots", type=int, default=100_000)
    parser.add_argument("--fraction", type=float, default=0.5)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    frames = []
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        path = arguments.out / f"seed-{seed}.parquet"
        if not path.exists():
            one_seed(arguments.fraction, arguments.slots, seed).write_parquet(path)
            print(f"seed {seed} done", flush=True)
        frames.append(pl.read_parquet(path))
    frame = pl.concat(frames)
    frame.write_parquet(arguments.out / "regret.parquet")
    print("| policy | regret 10³ | 10⁴ | 10⁵ | slope against ln t | exponent of t |")
    print("|---|---|---|---|---|---|")
    for policy, estimates in growth(frame):
        cells = [f"{e:.0f}" for e in estimates[:4]] + [f"{estimates[4]:.2f}"]
        print(f"| `{policy}` | " + " | ".join(cells) + " |")
    draw(frame, arguments.out / "regret.svg")
    draw(frame, arguments.out / "regret.png")


if __name__ == "__main__":
    main()
