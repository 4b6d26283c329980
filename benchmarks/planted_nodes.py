"""Slow nodes planted in real logs: how many `gangwise nodes` finds, and which names are false.

    GANGWISE_TRACES=... python -m benchmarks.planted_nodes --draws 5

The jobs of a real log are placed on nodes by `fcfs+easy+best-fit`, which gives node lists with the
log's own gangs, users and order. In each draw some nodes, drawn, are made 5, 10, 20 or 50 % slower,
an equal number of each, and run times are those of the log (`own`), or of programs that are made:
so many runs in a row of jobs of one size, with heavy-tailed noise (Student's t of 3 degrees) of so
many per cent, a drift, and a jump half way. A name is false where nothing was planted.
`--speed` times a million jobs on ten thousand nodes.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from pathlib import Path

import numpy as np
import polars as pl

from gangwise.core.errors import GangwiseError
from gangwise.jobs.metrics import Outcome
from gangwise.jobs.model import Nodes
from gangwise.jobs.simulation import simulate_jobs
from gangwise.logs import open_tables
from gangwise.logs.jobs import jobs_of
from gangwise.logs.tables import Tables, server_table
from gangwise.sites.node_effects import Runs, node_effects
from gangwise.study.findings import find_slow_nodes

SLOWER = (5, 10, 20, 50)
LOGS = {  # file, nodes, cores of each, slow nodes of each kind
    "KTH-SP2": ("KTH-SP2.swf.gz", 100, 1, 2),
    "LLNL-Atlas": ("LLNL-Atlas-2006-2.1-cln.swf.gz", 1152, 8, 12),
}
REPEATS, NOISES = (1, 3, 10, 30, 100), (0.03, 0.1, 0.3)


def placed(name: str) -> tuple[Tables, list[str], np.ndarray]:
    """A log with node lists: its tables, the nodes of each job, and the order of starts."""
    file, nodes, cores, _ = LOGS[name]
    tables = open_tables(Path(os.environ["GANGWISE_TRACES"], "swf", file))
    log = jobs_of(tables, nodes=Nodes.alike(nodes, {"cpu": cores}))
    done = Outcome.of(simulate_jobs(log.jobs, log.nodes, "fcfs+easy+best-fit"), name)
    on: list[list[str]] = [[] for _ in range(len(log.jobs))]
    for job, node in zip(done.pieces.job.tolist(), done.pieces.node.tolist()):
        on[job].append(f"n{node}")
    rows = log.rows.with_columns(
        pl.Series("hosts", ["|".join(sorted(names)) for names in on]),
        started=pl.Series(done.start),
        created=pl.col("submit"),
        models=pl.lit(""),
        application=pl.col("type"),
    )
    keep = np.array([bool(names) for names in on])
    rows = rows.filter(pl.Series(keep)).with_columns(
        mem=pl.lit(0.0), gpu=pl.lit(0.0), job=pl.int_range(pl.len())
    )
    if "completed" not in rows["status"].unique().to_list():
        rows = rows.with_columns(status=pl.lit("completed"))
    return Tables("swf", server_table(), rows, ()), [f"n{n}" for n in range(nodes)]


def planted(rows: pl.DataFrame, factor: dict[str, float]) -> np.ndarray:
    """The factor on the run time of each job: that of its slowest node."""
    table = pl.DataFrame({"hosts": list(factor), "factor": list(factor.values())})
    each = rows.select("job", pl.col("hosts").str.split("|")).explode("hosts")
    found = each.join(table, on="hosts", how="left").group_by("job").agg(pl.col("factor").max())
    return found.sort("job")["factor"].fill_null(1.0).to_numpy()


def made(rows: pl.DataFrame, repeats: int, noise: float, rng: np.random.Generator) -> pl.DataFrame:
    """Run times of programs: ``repeats`` starts in a row of jobs with as many tasks."""
    order = rows.sort("tasks", "started")
    sizes = order["tasks"].to_numpy()
    begins = np.flatnonzero(np.diff(sizes, prepend=-1))
    within = np.arange(sizes.size) - np.repeat(begins, np.diff(begins, append=sizes.size))
    new = within % repeats == 0
    program, step = np.cumsum(new) - 1, within % repeats
    many = int(program[-1]) + 1
    jump = rng.normal(0, 0.5, many)[program] * (step >= rng.integers(1, repeats + 1, many)[program])
    drift = rng.normal(0, noise, many)[program] * step / repeats
    log = rng.normal(7, 1, many)[program] + drift + jump
    log += noise * rng.standard_t(3, sizes.size)
    return order.with_columns(
        run=pl.Series(np.exp(log)),
        user=pl.Series(program).cast(pl.String),
        application=pl.lit("made"),
        limit=pl.lit(None, pl.Float64),
        status=pl.lit("completed"),
    ).sort("job")


def tried(name: str, draws: int, repeats: int, noise: float, log: Tables, names: list[str]) -> str:
    """A row of the table."""
    found, named, false, share = dict.fromkeys(SLOWER, 0), 0, 0, []
    spread, compared, each = [], 0.0, LOGS[name][3]
    for draw in range(draws):
        rng = np.random.default_rng([draw, repeats, round(1000 * noise)])
        slow = rng.permutation(names)[: each * len(SLOWER)].tolist()
        factor = {n: 1 + SLOWER[i % len(SLOWER)] / 100 for i, n in enumerate(slow)}
        rows = made(log.jobs, repeats, noise, rng) if repeats else log.jobs
        rows = rows.with_columns(run=pl.col("run") * pl.Series(planted(rows, factor)))
        rows = rows.with_columns(deleted=pl.col("started") + pl.col("run"))
        try:
            said = find_slow_nodes(Tables("swf", server_table(), rows, ()), by=0.0)
        except GangwiseError:
            share.append(0.0)
            continue
        called = [n for n, bad in zip(said.names, said.effects.slow) if bad]
        for n in called:
            if n in factor:
                found[round(100 * factor[n] - 100)] += 1
        wrong = sum(n not in factor for n in called)
        named, false = named + len(called), false + wrong
        share.append(wrong / max(len(called), 1))
        spread.append(100 * said.effects.spread[0])
        compared += said.effects.compared / len(rows) / draws
    what = f"{repeats} runs, {100 * noise:g} %" if repeats else "own"
    powers = " | ".join(f"{100 * found[s] / (draws * each):.0f}" for s in SLOWER)
    return (
        f"| {name} | {what} | {100 * compared:.0f} | {powers} | {false} of {named} | "
        f"{100 * np.mean(share):.1f} | {np.mean(spread) if spread else float('nan'):.1f} |"
    )


def speed(jobs: int = 1_000_000, nodes: int = 10_000) -> str:
    """Seconds and memory for a large log: a gang of 4 in every fifth job."""
    rng = np.random.default_rng(0)
    size = np.where(rng.random(jobs) < 0.2, 4, 1)
    node = rng.integers(0, nodes, int(size.sum()))
    start = np.concatenate([[0], np.cumsum(size)])
    y = rng.normal(7, 0.2, jobs)
    at = np.sort(rng.random(jobs)) * 3e7
    runs = Runs(y, at, rng.integers(0, 20_000, jobs), np.arange(jobs), start, node, nodes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    begun = time.perf_counter()
    node_effects(runs)
    seconds = time.perf_counter() - begun
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{jobs:,} jobs on {nodes:,} nodes: {seconds:.1f} s, {most - before:.0f} MiB more"


def main() -> None:
    """Print the table, or the speed."""
    read = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    read.add_argument("--draws", type=int, default=5)
    read.add_argument("--log", choices=list(LOGS), action="append")
    read.add_argument("--speed", action="store_true")
    given = read.parse_args()
    if given.speed:
        print(speed())
        return
    print("| log | programs | compared, % | +5 %: found, % | +10 % | +20 % | +50 % ", end="")
    print("| false names | mean share false, % | sd of nodes, % |")
    print("|" + 10 * "---|")
    for name in given.log or LOGS:
        log, names = placed(name)
        cases = [(r, v) for r in REPEATS for v in NOISES if r > 1 or v == NOISES[0]]
        for repeats, noise in [(0, 0.0), *cases]:
            print(tried(name, given.draws, repeats, noise, log, names), flush=True)


if __name__ == "__main__":
    main()
