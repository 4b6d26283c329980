"""How often the interval of a log in which nothing is drawn holds the truth.

    python -m benchmarks.intervals --draws 200 --kinds small,bursts,terms,gangs,busy

Each draw is a log of its own of a drawn site, which is simulated once, for a year; logs of fewer
weeks are its beginning. The truth is the median of the change of mean completion against
`fcfs+easy` over logs as long; *all jobs* is that of the jobs of all draws together, which the
worst year in a hundred decides. Of a pair of numbers the first is of `sjf+easy`, the other of
`wfp3+easy`. The method was chosen on :data:`CHOSEN`; the other kinds were not looked at before.
*Oracle* is the width within which 95 % of the draws' own estimates lie.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np

from gangwise.core.arrays import Floats
from gangwise.jobs import Jobs, Nodes, simulate_jobs
from gangwise.study.statistics import Stretches, change_by_blocks

BASE, OTHERS = "fcfs+easy", ("sjf+easy", "wfp3+easy")
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
    "users": 0,  # each comes for three weeks and stays away for five on average; 0: no such
    "surge": 0,  # in every so manieth week twice as many come
    "growth": 0.0,  # of arrivals over the year
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
    "mixed": {"processors": 128, "largest": 6, "sigma": 2.0, "most": 4.0, "per_day": 80},
    "pairs": {
        "campaign": 3.0,
        "load": 0.6,
        "processors": 32,
        "largest": 4,
        "sigma": 1.8,
        "per_day": 60,
        "weekend": 1.0,
    },
    "deadlines": {"surge": 9, "load": 0.6},
    "growth": {"growth": 0.5, "load": 0.65},
    "users": {"users": 10, "load": 0.6},
    "waning": {"growth": -0.6, "campaign": 3.0, "load": 0.6, "sigma": 1.8},
    "works": {"surge": 5, "campaign": 3.0, "load": 0.55, "sigma": 1.8},
    "few": {"processors": 24, "largest": 3, "per_day": 15, "sigma": 1.2},
    "herds": {"campaign": 12.0, "load": 0.6, "sigma": 1.0, "processors": 128, "largest": 6},
    "swings": {"season": 0.2, "rho": 0.5, "load": 0.65, "campaign": 2.0},
}
CHOSEN = (
    "steady",
    "campaigns",
    "seasons",
    "tails",
    "full",
    "small",
    "bursts",
    "terms",
    "gangs",
    "busy",
    "growth",
    "deadlines",
)


def arrivals(p: dict[str, float], weeks: int, rng: np.random.Generator) -> tuple[Floats, ...]:
    """Times, sizes and standard normal run times of the jobs of a log."""
    days = 7 * weeks
    if p["users"]:
        return arrivals_of_users(p, days, rng)
    rate = np.where(np.arange(days) % 7 >= 5, p["weekend"], 1.0)
    if p["season"]:
        x = np.empty(weeks)
        x[0] = rng.normal()
        for i in range(1, weeks):
            x[i] = p["rho"] * x[i - 1] + np.sqrt(1 - p["rho"] ** 2) * rng.normal()
        rate *= np.repeat(np.exp(p["season"] * x - p["season"] ** 2 / 2), 7)
    if p["surge"]:
        rate *= 1 + (np.arange(days) // 7 % p["surge"] == p["surge"] // 2)
        rate /= 1 + 1 / p["surge"]
    rate *= 1 + p["growth"] * (np.arange(days) / (7 * YEAR) - 0.5)
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


def arrivals_of_users(
    p: dict[str, float], days: int, rng: np.random.Generator
) -> tuple[Floats, ...]:
    """As :func:`arrivals`; the users, their sizes and run times are those of the site."""
    site, log = np.random.default_rng(7), []
    for _ in range(int(p["users"])):
        here, day, there = np.zeros(days), 0, rng.uniform() < 3 / 8
        while day < days:
            stays = max(1, int(rng.exponential(21 if there else 35)))
            here[day : day + stays] = there
            day, there = day + stays, not there
        come = np.repeat(np.arange(days), rng.poisson(p["per_day"] / p["users"] * 8 / 3 * here))
        at = DAY * come + 3600 * rng.uniform(8, 20, come.size)
        size, long = site.integers(0, int(p["largest"]) + 1), 0.7 * site.normal()
        sizes = 2.0 ** np.clip(size + rng.integers(-1, 2, at.size), 0, p["largest"])
        log.append((at, sizes, np.sqrt(0.5) * rng.normal(size=at.size) + long))
    return tuple(np.concatenate(column) for column in zip(*log))


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


def by_day(kind: str, seed: int, weeks: int = YEAR) -> Floats:
    """By day of submission of a log: jobs, and seconds of waiting and completion of the base.

    Then completion of each of the others; [3 + others, days].
    """
    jobs, nodes = draw(kind, weeks, seed)
    day = (jobs.submit // DAY).astype(np.int64)
    ends = [simulate_jobs(jobs, nodes, name) for name in (BASE, *OTHERS)]
    waits = ends[0].start - jobs.submit
    took = [each.end - jobs.submit for each in ends]
    return np.array(
        [np.bincount(day, each, 7 * weeks) for each in (np.ones(day.size), waits, *took)]
    )


class Row(NamedTuple):
    """A row of the table; shares are of the logs that have an interval, but that of none."""

    truth: float  # per cent
    covered: float
    width: float  # as a share of the oracle's
    none: float
    all_jobs: float  # per cent
    covered_all: float


def row(logs: Floats, other: int) -> Row:
    """How intervals of logs [draws, 3 + others, days] hold the truth, of one other scheduler."""
    change = 100 * (logs[:, 3 + other].sum(axis=1) / logs[:, 2].sum(axis=1) - 1)
    truth, together = np.median(change), 100 * (logs[:, 3 + other].sum() / logs[:, 2].sum() - 1)
    oracle = float(np.subtract(*np.quantile(change, [0.975, 0.025])))
    ends = []
    for log in logs:
        stretches = Stretches.of(log[0], log[1])
        if not stretches.reason:
            edges = np.arange(log.shape[1]) * stretches.many // log.shape[1]
            ours, base = (np.bincount(edges, log[k]) for k in (3 + other, 2))
            found = change_by_blocks(ours, base, stretches.widening)
            if found.low is not None:
                ends.append((found.low, found.high))
    low, high = np.array(ends or [(np.nan, np.nan)], dtype=np.float64).T
    held, of_all = ((low <= x) & (x <= high) for x in (truth, together))
    width = float(np.median(high - low)) / oracle
    none = 1 - len(ends) / len(logs)
    return Row(float(truth), held.mean(), width, none, float(together), of_all.mean())


def main() -> None:
    """Print the table."""
    read = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    read.add_argument("--draws", type=int, default=200)
    read.add_argument("--kinds", default=",".join(KINDS))
    given = read.parse_args()
    heads = ("site", "weeks", "truth, %", "covered, %", "width ÷ oracle's", "without, %")
    print("| " + " | ".join((*heads, "all jobs, %", "covered, %")) + " |")
    print("|" + 8 * "---|")
    for kind in given.kinds.split(","):
        year = np.array([by_day(kind, seed) for seed in range(given.draws)])
        for weeks in (10, 26, 52):
            rows = [row(year[..., : 7 * weeks], k) for k in range(len(OTHERS))]
            cells = [(r.truth, 100 * r.covered, r.width, 100 * r.none) for r in rows]
            cells = [(*c, r.all_jobs, 100 * r.covered_all) for c, r in zip(cells, rows)]
            texts = (
                " / ".join(format(each, ".2f" if k == 2 else ".0f") for each in column)
                for k, column in enumerate(zip(*cells))
            )
            print(f"| {kind} | {weeks} | " + " | ".join(texts) + " |", flush=True)


if __name__ == "__main__":
    main()
