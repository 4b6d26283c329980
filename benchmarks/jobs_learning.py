"""What learned rates are worth on gpu-v2023's jobs: mean completion time against labels.

    python benchmarks/jobs_learning.py TRACES/alibaba-gpu-v2023 --seeds 30

GPU pods of up to 100,000 s on 64 nodes of 8 GPUs, in the world of `gangwise.jobs.world.DrawnWorld`.
Every policy meets the same worlds, limits and noise. The rival, `fcfs+easy+labels`, has the same
queue, the same backfilling and the same expectation of what is left of a running job; it trusts
declared rates, packs among equals, and neither waits nor moves.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from gangwise.jobs.bounds import BoundedJobs, lower_bound
from gangwise.jobs.choice import (
    UNLABELLED,
    BestFit,
    ByRate,
    Constants,
    Labels,
    MeanRates,
    SharedFactors,
)
from gangwise.jobs.model import Jobs
from gangwise.jobs.queues import FirstCome, by_formula
from gangwise.jobs.schedule import Options
from gangwise.jobs.scheduler import Composed
from gangwise.jobs.simulation import simulate_jobs
from gangwise.jobs.world import HiddenWorld, rescaled, world_of

NODES, GPUS, TYPES, LONGEST, RESTART = 64, 8, 8, 100_000.0, 300.0
GANGS = {"recorded": None, "gangs": {1: 0.7, 2: 0.1, 4: 0.1, 8: 0.1}}
WORLDS = {
    "unlike": world_of("unlike"),
    "like": world_of("like"),
    "unlike, drifting": world_of("unlike:spell=43200"),
    "like, drifting": world_of("like:spell=43200"),
    "like, no stragglers": world_of("like:stragglers=0"),
}
CASES = [
    *((w, load) for w in ("unlike", "like") for load in (0.5, 0.8, 0.95)),
    ("unlike, drifting", 0.8),
    ("like, drifting", 0.8),
    ("like, no stragglers", 0.8),
]
RIVAL = "labels"
QUEUES = {"fcfs": FirstCome, "sjf": partial(by_formula, "sjf")}
ASKED_FOR = ("best-fit", "learned, no labels", "learned, no labels, wide")


def policies(constants: Constants) -> dict[str, ByRate]:
    """Choices of nodes, new for each run."""
    still = constants._replace(price=0.0, toll=0.0)
    return {
        RIVAL: ByRate(Labels(still)),
        "labels, wait, move": ByRate(Labels(constants), waits=True, look=600.0),
        "ucb": ByRate(MeanRates(still)),
        "learned, no wait": ByRate(SharedFactors(still)),
        "learned": ByRate(SharedFactors(constants), waits=True),
        "learned, move": ByRate(SharedFactors(constants), waits=True, look=600.0),
        "oracle, move": ByRate("oracle", waits=True, look=600.0),
        "best-fit": BestFit(),
        "learned, no labels": ByRate(SharedFactors(constants), waits=True),
        "learned, no labels, wide": ByRate(SharedFactors(UNLABELLED), waits=True),
    }


def read(folder: Path, ran_only: bool) -> Jobs:
    """GPU pods; work is deletion − creation, or − scheduled of those that ran."""
    with next(folder.glob("openb_pod_list_default.csv*")).open() as file:
        rows = [r for r in csv.DictReader(file) if int(r["num_gpu"]) > 0]
    begun = "scheduled_time" if ran_only else "creation_time"
    rows = [r for r in rows if r[begun] and r["deletion_time"]]
    run = np.array([float(r["deletion_time"]) - float(r[begun]) for r in rows])
    keep = np.flatnonzero((run > 0) & (run <= LONGEST))
    shapes = [
        " ".join(rows[i][k] for k in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli"))
        for i in keep
    ]
    count = {s: shapes.count(s) for s in set(shapes)}
    common = sorted(count, key=lambda s: (-count[s], s))[: TYPES - 1]
    return Jobs.of(
        submit=[float(rows[i]["creation_time"]) for i in keep],
        run=run[keep],
        demand={"gpu": [float(rows[i]["num_gpu"]) for i in keep]},
        type=[s if s in common else "other" for s in shapes],
        user=shapes,
    )


def measures(jobs: Jobs, start: np.ndarray, end: np.ndarray) -> dict[str, float]:
    """Seconds, and stretch (completion ÷ work) of the worst tenth of users."""
    completion, wait = end - jobs.submit, start - jobs.submit
    stretch = np.bincount(jobs.user, completion) / np.bincount(jobs.user, jobs.run)
    early = slice(0, 1000)
    return {
        "mean": completion.mean(),
        "p95": np.percentile(completion, 95),
        "worst decile of users": np.sort(stretch)[-max(len(stretch) // 10, 1) :].mean(),
        "first 1,000 jobs": completion[early].mean(),
        "mean wait": wait.mean(),
        "longest wait": wait.max(),
    }


def certified(drawn: HiddenWorld, above: float, steps: int) -> float:
    """No schedule of these jobs without moves has a smaller mean completion time, in seconds."""
    jobs = drawn.jobs
    need = np.array([shape.demand[0] // 1000 for shape in jobs.shapes])[jobs.shape]
    kinds, kind = np.unique(np.stack([jobs.type, need]), axis=1, return_inverse=True)
    slow = np.where(drawn.stragglers, 0.5, 1.0)
    moved = {n for t, n, _ in drawn.conditions.factors if t > 0}
    slow[sorted(moved)] = 1.0  # where rates move, the highest
    bounded = BoundedJobs(
        submit=jobs.submit - jobs.submit[0],
        work=jobs.run / drawn.conditions.noise,
        tasks=jobs.tasks,
        devices=need.astype(np.float64),
        kind=kind.ravel().astype(np.int64),
        rate=(drawn.conditions.rates * slow)[kinds[0]],
        room=np.repeat(GPUS // kinds[1][:, None], NODES, axis=1).astype(np.int64),
        capacity=np.full(NODES, float(GPUS)),
    )
    return lower_bound(bounded, steps=steps, above=above).mean_completion


def one(
    job: tuple[Jobs, str, float, str, str, int, Constants, tuple[str, ...] | None, int],
) -> dict:
    """All policies in one world."""
    jobs, world_name, load, gangs, queue, seed, constants, only, steps = job
    world = WORLDS[world_name]
    if GANGS[gangs] is not None:
        sizes, shares = zip(*GANGS[gangs].items(), strict=True)
        tasks = np.random.default_rng([seed, 19]).choice(sizes, len(jobs), p=shares)
        jobs = replace(jobs, tasks=tasks.astype(np.int64))
    jobs = rescaled(jobs, load, world.capacity(NODES, GPUS))
    drawn = world.draw(jobs, NODES, {"gpu": GPUS}, seed)
    options = Options(limits="work", restart=RESTART)
    out = {}
    for name, choice in policies(constants).items():
        if name not in only if only is not None else name in ASKED_FOR:
            continue
        scheduler = Composed(queue=QUEUES[queue](), backfilling="easy", choice=choice)
        nodes = drawn.nodes
        if "no labels" in name:
            nodes = replace(nodes, labels=({},) * NODES, rates=(1.0,) * NODES)
        s = simulate_jobs(drawn.jobs, nodes, scheduler, drawn.conditions, options)
        out[name] = measures(drawn.jobs, s.start, s.end)
        out[name]["moves"] = s.counts["preemptions"]
        out[name]["jobs/s"] = len(jobs) / s.seconds
    if steps:
        best = min(row["mean"] for row in out.values())
        out["bound, %"] = 100 * (certified(drawn, best, steps) / out[RIVAL]["mean"] - 1)
    return out


def interval(differences: np.ndarray) -> str:
    """Mean and 95 % of paired differences, in per cent."""
    half = 1.96 * differences.std(ddof=1) / np.sqrt(differences.size)
    return f"{differences.mean():+.1f} ± {half:.1f}"


def table(results: list[dict], names: list[str]) -> list[str]:
    """Markdown; per cent against the rival except where seconds are said."""
    lines = [
        "| policy | mean, % | p95, % | worst decile of users, % | first 1,000 jobs, % | "
        "mean wait, s | longest wait, s | moves | jobs/s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rival = {k: np.array([r[RIVAL][k] for r in results]) for k in results[0][RIVAL]}
    for name in names:
        own = {k: np.array([r[name][k] for r in results]) for k in rival}
        cells = [
            f"{own[k].mean():,.0f} s"
            if name == RIVAL and k != "worst decile of users"
            else f"{own[k].mean():.2f}"
            if name == RIVAL
            else interval(100 * (own[k] / rival[k] - 1))
            for k in ("mean", "p95", "worst decile of users", "first 1,000 jobs")
        ]
        cells += [f"{own[k].mean():,.0f}" for k in ("mean wait", "longest wait", "moves", "jobs/s")]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first", type=int, default=1, help="constants were tuned on 1000 to 1009")
    parser.add_argument("--gangs", choices=tuple(GANGS), default="recorded")
    parser.add_argument("--queue", choices=tuple(QUEUES), default="fcfs")
    parser.add_argument("--ran-only", action="store_true")
    parser.add_argument("--cases", type=int, nargs="*", help="rows of CASES")
    parser.add_argument("--policies", nargs="*")
    parser.add_argument("--set", nargs="*", default=[], help="constants, as name=value")
    parser.add_argument("--bound", type=int, default=0, help="steps of the certified lower bound")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    changes = {k: float(v) for k, v in (item.split("=") for item in options.set)}
    constants = Constants()._replace(**changes)
    jobs = read(options.folder, options.ran_only)
    only = None if options.policies is None else (RIVAL, *options.policies)
    everybody = [n for n in policies(constants) if n not in ASKED_FOR]
    names = everybody if only is None else [n for n in policies(constants) if n in only]
    print(f"{len(jobs):,} jobs; job types are the {TYPES - 1} commonest requests and the rest;")
    print(
        f"users are requests ({len(jobs.users)}); gangs: {GANGS[options.gangs] or 'as recorded'};"
    )
    print(f"queue of all policies: {options.queue}, EASY over expected ends")
    saved = {}
    with ProcessPoolExecutor(options.workers) as pool:
        for world, load in [CASES[i] for i in options.cases or range(len(CASES))]:
            began = time.perf_counter()
            seeds = range(options.first, options.first + options.seeds)
            asked = [
                (jobs, world, load, options.gangs, options.queue, s, constants, only, options.bound)
                for s in seeds
            ]
            results = list(pool.map(one, asked))
            saved[f"{world} {load}"] = results
            print(f"\n### {world} nodes, load {load}\n\n{WORLDS[world].describe()}\n")
            print("\n".join(table(results, names)))
            if options.bound:
                bounds = np.array([r["bound, %"] for r in results])
                print(f"\nNo schedule without moves does better than {interval(bounds)} %.")
            print(f"\n{options.seeds} seeds, {time.perf_counter() - began:.0f} s", flush=True)
    if options.json:
        options.json.write_text(json.dumps(saved))


if __name__ == "__main__":
    main()
