"""Elastic and divisible jobs: what OGASched and plans gain over equal shares and rigid EASY.

    python -m benchmarks.jobs_malleable [--seeds 10] [--jobs 400]

Jobs are drawn: run times lognormal (median 10 minutes, σ 1.8, at most a day) on 1, 2, 4 or 8 GPUs
as asked, 8 nodes of 8 GPUs, Poisson arrivals. Elastic jobs may have 1 task to 4 times what they
asked for, overheads κ .01, .05, .1, .2 by job type, hidden; a restart costs 30 s; limits are 1 to 5
times the run time. Divisible jobs are worth √done and leave at a deadline 1 to 5 times their run
time after their submission. ``slack`` of every scheduler was chosen on seeds 0 to 2; seeds of the
tables begin at 100.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from gangwise.experiments.statistics import mean_and_interval
from gangwise.jobs import Jobs, Nodes, Options
from gangwise.jobs.malleable import (
    DIVISIBLE,
    ELASTIC,
    ElasticOGASched,
    EqualShares,
    PlanShares,
    Terms,
    simulate_malleable,
)

OVERHEAD = np.array([0.01, 0.05, 0.1, 0.2])


def drawn(seed: int, count: int, load: float) -> dict[str, Any]:
    """Columns of jobs."""
    rng = np.random.default_rng(seed)
    run = np.minimum(np.exp(rng.normal(np.log(600.0), 1.8, count)), 86400.0)
    tasks = rng.choice([1, 2, 4, 8], count, p=[0.6, 0.2, 0.1, 0.1])
    gap = (run * tasks).mean() / (64 * load)
    submit = np.cumsum(rng.exponential(gap, count))
    return {
        "submit": submit,
        "run": run,
        "tasks": tasks,
        "demand": {"gpu": 1},
        "type": rng.integers(0, 4, count).astype(str),
        "limit": run * rng.uniform(1, 5, count),
        "deadline": submit + run * rng.uniform(1, 5, count),
    }


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=400)
    given = parser.parse_args()
    nodes, options = Nodes.alike(8, {"gpu": 8}, shared="gpu"), Options(restart=30.0)
    elastic: dict[str, Callable[[], Any]] = {
        "fcfs+easy+best-fit": lambda: "fcfs+easy+best-fit",
        "equal-shares, slack .25": lambda: EqualShares(0.25),
        "equal-shares, slack .5": lambda: EqualShares(0.5),
        "ogasched": ElasticOGASched,
    }
    divisible: dict[str, Callable[[], Any]] = {
        "edf+easy+best-fit": lambda: "edf+easy+best-fit",
        "equal-shares": EqualShares,
        "plan": PlanShares,
    }
    console, error = Console(), Console(stderr=True)
    for title, schedulers, kind in (
        ("elastic: mean completion time, minutes", elastic, ELASTIC),
        ("divisible: mean utility; jobs done whole, %", divisible, DIVISIBLE),
    ):
        table = Table("scheduler", "load .8", "p95 / whole", "load 1.2", "p95 / whole", title=title)
        cells: dict[str, list[str]] = {name: [] for name in schedulers}
        for load in (0.8, 1.2):
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in schedulers}
            for seed in track(range(100, 100 + given.seeds), f"load {load}", console=error):
                columns = drawn(seed, given.jobs, load)
                if kind == DIVISIBLE:  # what a pool holds is known
                    columns["limit"] = columns["run"]
                jobs = Jobs.of(**columns)
                terms = Terms.of(jobs, nodes, kind)
                for name, make in schedulers.items():
                    done = simulate_malleable(jobs, nodes, make(), terms, OVERHEAD, None, options)
                    took = (done.schedule.end - jobs.submit) / 60
                    if kind == ELASTIC:
                        found[name].append((took.mean(), np.percentile(took, 95)))
                    else:
                        whole = 100 * (done.done > 1 - 1e-9).mean()
                        found[name].append((done.utility.mean(), whole))
            first = next(iter(schedulers))
            for name, rows in found.items():
                value, second = np.array(rows).T
                over = mean_and_interval(100 * (value / np.array(found[first])[:, 0] - 1))
                half = (over.high - over.low) / 2
                cells[name] += [
                    f"{value.mean():.3f} ({over.mean:+.1f} ± {half:.1f} %)",
                    f"{second.mean():.1f}",
                ]
        for name, row in cells.items():
            table.add_row(name, *row)
        console.print(table)


if __name__ == "__main__":
    main()
