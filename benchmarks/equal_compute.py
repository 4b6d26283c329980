"""Earnings against compute where gain meets overhead: what memory is worth, and what steps are.

    python -m benchmarks.equal_compute --out FOLDER [--scenario ogasched-default-v1] [--slots 300]

Three contenders, each at several efforts: the ascent of ``ogasched-react`` (steps in a slot), the
same ascent without memory, and the marginal-reward greedy (rounds in a slot). Every contender is
tuned by one procedure: at each effort all settings of its grid are played on the tuning seeds 0 to
4, and the one that earns most there is played on the judging seeds 100 to 109. All contenders of a
seed are played slot by slot in turns, so that a busy machine is as slow for all of them; the time
of a slot is the median over slots. Earnings are shares of the optimum of every slot that is played.
"""

from __future__ import annotations

import argparse
import itertools
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import polars as pl

from gangwise import Simulation, create_policy, create_scenario, simulate
from gangwise.report.plotting import Panel, draw, image
from gangwise.study.statistics import mean_and_interval

TUNING, JUDGING = range(5), range(100, 110)
ASCENT = {"fraction": [0.1, 0.2, 0.4, 0.8, 1.6], "shrink": [0.0, 1.0], "smoothing": [0.03, 0.1]}
CONTENDERS = {
    "ascent with memory": ("ogasched-react", "steps", [1, 2, 5, 10, 20, 40], ASCENT),
    "ascent without memory": (
        "ogasched-react:memory=false",
        "steps",
        [1, 2, 5, 10, 20, 40],
        ASCENT,
    ),
    "greedy": ("greedy", "rounds", [2, 4, 8, 16, 32, 64], {"smoothing": [0.0, 0.03, 0.1, 0.3]}),
}


def settings_of(name, effort, value, grid):
    """Every setting of a contender at an effort."""
    for chosen in itertools.product(*grid.values()):
        yield name, {effort: value, **dict(zip(grid, chosen))}


def tuned(scenario, slots):
    """The best setting of every contender at every effort, on the tuning seeds."""
    for label, (name, effort, values, grid) in CONTENDERS.items():
        for value in values:
            earned = {}
            for which, settings in settings_of(name, effort, value, grid):
                earned[tuple(settings.items())] = np.mean(
                    [
                        simulate(
                            scenario.instance(s), create_policy(which, **settings), slots, s
                        ).mean_reward
                        for s in TUNING
                    ]
                )
            yield label, value, name, dict(max(earned, key=earned.get))


def judged(scenario, chosen, slots):
    """Share of the optimum [seeds, contenders], and the median microseconds of a slot."""
    shares, times = [], []
    for seed in JUDGING:
        instance = scenario.instance(seed)
        best = instance.comparator("per_slot_optimum", slots, seed).rewards.sum()
        runs = [
            Simulation(instance, create_policy(name, **settings), slots, seed)
            for _, _, name, settings in chosen
        ]
        for _ in range(slots):
            for run in runs:
                run.step()
        shares.append([100 * run.rewards.sum() / best for run in runs])
        times.append([np.median(run.nanoseconds[slots // 10 :]) / 1e3 for run in runs])
    return np.array(shares), np.median(times, axis=0)


def front(times, earned):
    """Which are on the Pareto front: no other is at least as fast and earns more."""
    return [
        not any(t <= times[i] and e > earned[i] for t, e in zip(times, earned))
        for i in range(len(times))
    ]


def main():
    """Tune, judge, print a table, draw a figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scenario", default="ogasched-default-v1")
    parser.add_argument("--slots", type=int, default=300)
    given = parser.parse_args()
    scenario = create_scenario(given.scenario)
    chosen = list(tuned(scenario, given.slots))
    shares, times = judged(scenario, chosen, given.slots)
    best = front(times, shares.mean(axis=0))
    print("| contender | effort | settings tuned | µs a slot | share of the optimum, % | front |")
    print("|---|---|---|---|---|---|")
    rows = []
    for i, (label, value, _, settings) in enumerate(chosen):
        of = mean_and_interval(shares[:, i])
        kept = ", ".join(f"{k} {v:g}" for k, v in list(settings.items())[1:])
        mark = "yes" if best[i] else ""
        print(f"| {label} | {value} | {kept} | {times[i]:.0f} | {of:.2f} | {mark} |")
        rows.append(("front", label, float(times[i]), *of))
    given.out.mkdir(parents=True, exist_ok=True)
    numbers = pl.DataFrame(
        rows, schema=["panel", "line", "x", "mean", "low", "high"], orient="row"
    ).sort("line", "x")
    panel = Panel("front", "µs a slot", "share of the optimum, %", "points", log_x=True)
    picture = draw("Earnings against compute", numbers, [panel])
    (given.out / "equal-compute.svg").write_bytes(image(picture, "svg"))
    numbers.write_csv(given.out / "equal-compute.csv")


if __name__ == "__main__":
    main()
