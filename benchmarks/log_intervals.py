"""How often the interval of a log without drawn rates holds the truth, tried on a twin.

    python -m benchmarks.log_intervals --draws 40

Each draw is a log of its own, of the same synthetic twin, on nodes of 8 GPUs. The truth is the mean
over all draws of the change of mean completion against `fcfs+easy+best-fit`, in per cent; counted
is how many of the 95 % intervals, each from one draw, hold it. Beside it stand the mean half width
of the intervals, within how much of the truth 95 % of the draws lie, and how often a scheduler was
called better or worse than the base.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from gangwise.experiments.answer import Compared
from gangwise.experiments.replay_scenario import ReplayScenario, load_of
from gangwise.jobs.metrics import Outcome
from gangwise.jobs.simulation import simulate_jobs
from gangwise.traces.jobs import open_jobs

BASE = "fcfs+easy+best-fit"
OTHERS = ("sjf+easy+best-fit", "fcfs+easy+first-fit")
TWIN, GPUS = "alibaba-gpu-v2023", 8
CASES = [  # nodes, jobs a day, days
    (4, 200.0, 28.0),
    (4, 200.0, 84.0),
    (4, 200.0, 252.0),
    (4, 270.0, 84.0),
    (16, 800.0, 28.0),
]


def draws(nodes: int, rate: float, days: float, many: int) -> Iterator[Compared]:
    """The same schedulers on logs of their own."""
    for seed in range(many):
        log = open_jobs(f"twin:{TWIN}", twin_seed=seed, days=days, jobs_per_day=rate)
        played = ReplayScenario(log=log, nodes=nodes, devices=GPUS).draw(0)
        outcomes = {
            name: [Outcome.of(simulate_jobs(played.jobs, played.nodes, name), name)]
            for name in (BASE, *OTHERS)
        }
        yield Compared(TWIN, outcomes, BASE)


def main() -> None:
    """Print the table."""
    read = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    read.add_argument("--draws", type=int, default=40)
    many = read.parse_args().draws
    print(
        "| nodes, jobs a day | load | blocks | base waits, h | against the base | truth, % ", end=""
    )
    print("| covered, % | mean ± | 95 % of draws within ± | called better, worse, % |")
    print("|" + 10 * "---|")
    for nodes, rate, days in CASES:
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in OTHERS}
        loads, waits, blocks = [], [], set()
        for compared in draws(nodes, rate, days, many):
            told = compared.as_dict()
            blocks.add(f"{told['blocks']} {told['intervals_over']}")
            waits.append(compared.summaries[BASE][0]["waiting.mean"] / 3600)
            loads.append(load_of(compared.first.jobs, compared.first.nodes))
            for name in OTHERS:
                change = compared.change(name)
                found[name].append((change.mean, np.nan if change.half is None else change.half))
        of = f"| {nodes}, {rate:g} | {np.mean(loads):.2f} | {', '.join(sorted(blocks))} "
        for name, each in found.items():
            mean, half = np.array(each).T
            off = np.abs(mean - mean.mean())
            print(
                f"{of}| {np.mean(waits):.2g} | `{name}` | {mean.mean():.1f} "
                f"| {100 * np.mean(off <= half):.0f} | {np.nanmean(half):.2g} "
                f"| {np.quantile(off, 0.95):.2g} "
                f"| {100 * np.mean(mean < -half):.0f}, {100 * np.mean(mean > half):.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
