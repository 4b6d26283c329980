"""How often the interval of a log in which nothing is drawn holds the truth.

    python -m benchmarks.intervals --draws 160 --kinds small,bursts,terms,gangs,busy

Each draw is a log of its own of a drawn site; the truth is the change of mean completion against
`fcfs+easy` over all draws together. A log is simulated once, for a year; logs of fewer weeks are
its beginning. The method was chosen on the first five kinds of :data:`KINDS`; the others were not
looked at before. *Oracle* is the width within which 95 % of the draws' own estimates lie.
"""

from __future__ import annotations

import argparse

import numpy as np

from gangwise.core.arrays import Floats
from gangwise.experiments.statistics import STRETCHES, change_by_blocks
from gangwise.jobs import Jobs, Nodes, simulate_jobs

BASE, OTHERS = "fcfs+easy", ("sjf+easy", "saf+easy", "wfp3+easy", "fcfs+none")
YEAR, DAY = 52, 86400.0
USUAL = {
    "processors": 64,
    "load": 0.7,
    "sigma": 1.5,  # of the logarithm of run times
    "most": 3.0,  # days that a job runs
    "per_day": 40,
    "weekend": 0.5,  # arrivals on the weekend, against other days
    "campaign": 1.0,  # mean number of alike jobs that come together
    "tail": 0.0,  # Pareto's exponent of that number; 0: geometric
    "season": 0.0,  # sd of the logarithm of a week's arrivals, and their correlation
    "rho": 0.7,
    "largest": 5,  # jobs ask for 1, 2, 4 … 2^largest processors
}
KINDS: dict[str, dict[str, float]] = {
    "steady": {},
    "campaigns": {"campaign": 20.0, "load": 0.45},
    "seasons": {"season": 0.35, "load": 0.6},
    "tails": {"sigma": 2.2, "most": 10.0, "load": 0.6},
    "full": {"load": 0.85},
    "small": {"processors": 16, "largest": 3, "per_day": 30, "load": 0.65, "weekend": 0.2},
    "bursts": {"campaign": 8.0, "tail": 1.5, "load": 0.45, "processors": 128, "largest": 6},
    "terms": {"season": 0.25, "rho": 0.9, "load": 0.65, "sigma": 1.8},
    "gangs": {"largest": 6, "load": 0.55, "sigma": 1.2, "per_day": 60},
    "busy": {"load": 0.75, "campaign": 5.0, "sigma": 1.8, "most": 5.0},
}


def arrivals(p: dict[str, float], weeks: int, rng: np.random.Generator) -> tuple[Floats, ...]:
    """Times, sizes and standard normal run times of the jobs of a log."""
    days = 7 * weeks
    rate = np.where(np.arange(days) % 7 >= 5, p["weekend"], 1.0)
    if p["season"]:
        x = np.empty(weeks)
        x[0] = rng.normal()
        for i in range(1, weeks):
            x[i] = p["rho"] * x[i - 1] + np.sqrt(1 - p["rho"] ** 2) * rng.normal()
        rate *= np.repeat(np.exp(p["season"] * x - p["season"] ** 2 / 2), 7)
    many = rng.poisson(p["per_day"] / ((5 + 2 * p["weekend"]) / 7) * rate / p["campaign"])
    day = np.repeat(np.arange(days), many)
    hour = rng.uniform(0, 24, 4 * day.size + 10)  # more come in the afternoon
    keep = rng.uniform(size=hour.size) < (1 + 0.5 * np.cos(2 * np.pi * (hour - 14) / 24)) / 1.5
    at = DAY * day + 3600 * np.resize(hour[keep], day.size)
    size = 2.0 ** rng.integers(0, int(p["largest"]) + 1, at.size)
    z = rng.normal(size=at.size)
    if p["campaign"] > 1:
        n = rng.geometric(1 / p["campaign"], at.size)
        if a := p["tail"]:
            each = (p["campaign"] - 1) * (a - 1) / a * (1 + rng.pareto(a, at.size))
            n = np.minimum(1 + each.astype(int), 1000)
        at = np.repeat(at, n) + rng.exponential(2 * 3600.0, int(n.sum()))
        size = np.repeat(size, n)
        z = np.sqrt(0.7) * np.repeat(z, n) + np.sqrt(0.3) * rng.normal(size=at.size)
    return at, size, z


def draw(kind: str, weeks: int, seed: int) -> tuple[Jobs, Nodes]:
    """The jobs of a log, and its processors."""
    p = {**USUAL, **KINDS[kind]}
    rng = np.random.default_rng([seed, sorted(KINDS).index(kind)])
    at, size, z = arrivals(p, weeks, rng)
    # The median run time that gives the load.
    of_size = float(np.mean(2.0 ** np.arange(p["largest"] + 1)))
    want = p["load"] * p["processors"] * DAY / (p["per_day"] * of_size)
    sample, most = np.random.default_rng(1).normal(size=20_000), DAY * p["most"]
    low, high = 1.0, 1e7
    for _ in range(60):
        median = np.sqrt(low * high)
        mean = np.minimum(median * np.exp(p["sigma"] * sample), most).mean()
        low, high = (median, high) if mean < want else (low, median)
    run = np.minimum(median * np.exp(p["sigma"] * z), most) + 1
    order = np.argsort(at)
    order = order[at[order] < 7 * DAY * weeks]
    run = run[order]
    limit = run * rng.uniform(1, 5, run.size)
    return Jobs.of(at[order], run, size[order], limit=limit), Nodes.pool(int(p["processors"]))


def by_day(kind: str, weeks: int, seed: int) -> Floats:
    """Completion (seconds) by day of submission: of the base, and of each of the others."""
    jobs, nodes = draw(kind, weeks, seed)
    day = (jobs.submit // DAY).astype(np.int64)
    names = (BASE, *OTHERS)
    took = (simulate_jobs(jobs, nodes, name).end - jobs.submit for name in names)
    return np.array([np.bincount(day, each, 7 * weeks) for each in took])


def stretches(days: Floats) -> Floats:
    """Sums by stretch of sums by day, [..., days]."""
    edges = np.arange(days.shape[-1]) * STRETCHES // days.shape[-1]
    return np.stack([days[..., edges == k].sum(axis=-1) for k in range(STRETCHES)], axis=-1)


def row(others: Floats, base: Floats) -> tuple[float, float, float, float]:
    """Truth in %, share of intervals that hold it, their median width and the oracle's."""
    truth = 100 * (others.sum() / base.sum() - 1)
    own = 100 * (others.sum(axis=1) / base.sum(axis=1) - 1)
    oracle = float(np.subtract(*np.quantile(own, [0.975, 0.025])))
    found = [change_by_blocks(stretches(a), stretches(b)) for a, b in zip(others, base)]
    ends = np.array([(e.low, e.high) for e in found], dtype=np.float64)
    held = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    return truth, float(held.mean()), float(np.median(ends[:, 1] - ends[:, 0])), oracle


def main() -> None:
    """Print the table."""
    read = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    read.add_argument("--draws", type=int, default=160)
    read.add_argument("--kinds", default=",".join(KINDS))
    given = read.parse_args()
    print("| site | weeks | against `fcfs+easy` | truth, % | covered, % | width ÷ oracle's |")
    print("|" + 6 * "---|")
    for kind in given.kinds.split(","):
        days = np.array([by_day(kind, YEAR, seed) for seed in range(given.draws)])
        for weeks in (10, 26, 52):
            for k, name in enumerate(OTHERS, 1):
                some = days[..., : 7 * weeks]
                truth, held, width, oracle = row(some[:, k], some[:, 0])
                print(f"| {kind} | {weeks} | `{name}` | {truth:.0f} ", end="")
                print(f"| {100 * held:.0f} | {width / oracle:.2f} |", flush=True)


if __name__ == "__main__":
    main()
