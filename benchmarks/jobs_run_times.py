"""What learned run times are worth on logs: a table of schedulers, users who lie, and noise.

    python -m benchmarks.jobs_run_times TRACES/swf/KTH-SP2.swf.gz TRACES/swf/*.swf.gz
    python -m benchmarks.jobs_run_times LOG --load 0.9       submissions stretched to that load
    python -m benchmarks.jobs_run_times LOG --overestimate 5 requests drawn, 1 to 5 times the run
    python -m benchmarks.jobs_run_times LOG --liars 20       20 users who multiply their requests

All nodes are alike and nothing is drawn unless asked for. Jobs are not killed at their requests.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gangwise.core.arrays import Floats
from gangwise.jobs.model import Jobs, Nodes
from gangwise.jobs.schedule import Schedule
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import simulate_jobs
from gangwise.study.replay_scenario import ReplayScenario

EASY = "fcfs+easy"
RIVALS = {
    EASY: "EASY, requested times",
    "fcfs+easy:passing=shortest": "the same, shortest passing first",
    "fcfs+easy:ends=true,passing=queue,slack=inf": "EASY, true times",
    "fcfs+easy:ends=true,slack=inf": "the same, shortest passing first",
    "fcfs+easy:ends=learned,times=last-two,correction=steps,slack=inf": "EASY++",
    "fcfs+easy:ends=learned,times=last-two,slack=inf": "EASY++, corrected to the request",
    "sjf+easy": "",
    "wfp3+easy": "",
    "saf+easy": "",
    "f1+easy": "",
    "f2+easy": "",
    "f3+easy": "",
    "f4+easy": "",
    "unicep+easy": "",
    "qssf+easy": "",
    "aged+easy:passing=shortest": "request − 0.2 · wait",
    "aged+easy:ends=true,slack=inf": "true times, no bound",
}
OURS = {
    "fcfs+easy:ends=learned,slack=inf": "nothing kept",
    "fcfs+easy+learned": "",
    "aged+easy+learned": "",
    "fcfs+easy:times=noise,ends=learned": "predictions are noise",
    "aged+easy:times=noise,ends=learned": "predictions are noise",
}
"""Schedulers by name, and what is not said by the name."""


def waits(schedule: Schedule) -> Floats:
    """Seconds from submission to start [J]; jobs that were set aside are left out."""
    waited: Floats = schedule.start - schedule.jobs.submit
    return waited[np.isfinite(waited)]


def measures(schedule: Schedule) -> tuple[float, ...]:
    """Bounded slowdown, completion, mean wait, 99th percentile and longest wait."""
    ran = np.isfinite(schedule.end)
    took = (schedule.end - schedule.jobs.submit)[ran]
    slow = np.maximum(took / np.maximum(schedule.jobs.run[ran], 10.0), 1.0)
    waited = waits(schedule)
    each = slow.mean(), took.mean(), waited.mean(), np.percentile(waited, 99), waited.max()
    return tuple(map(float, each))


def rows(jobs: Jobs, nodes: Nodes, names: dict[str, str]) -> Iterator[str]:
    """A line for each scheduler, of which the first is the base."""
    base: tuple[float, ...] = ()
    for name, note in names.items():
        schedule = simulate_jobs(jobs, nodes, name)
        found = measures(schedule)
        base = base or found
        slow, took, waited, p99, longest = found
        yield (
            f"| `{name}`{' ' + note if note else ''} | {slow:.2f} | {took:,.0f} "
            f"| {100 * (took / base[1] - 1):+.1f} | {waited:,.0f} "
            f"| {p99 / max(base[3], 1.0):.2f} | {longest / max(base[4], 1.0):.2f} "
            f"| {len(jobs) / schedule.seconds / 1000:,.0f} |"
        )


def liars(jobs: Jobs, nodes: Nodes, names: list[str], count: int) -> Iterator[str]:
    """What each of so many users with most jobs gains who alone multiplies all his requests."""
    users = np.argsort(-np.bincount(jobs.user), kind="stable")[:count]
    for name in names:
        honest = simulate_jobs(jobs, nodes, create_scheduler(name))
        for factor in (0.5, 2.0):
            gain = []
            for user in users:
                own = jobs.user == user
                limit = np.where(own, factor * jobs.limit, jobs.limit)
                told = simulate_jobs(replace(jobs, limit=limit), nodes, create_scheduler(name))
                took = (told.end - jobs.submit)[own].mean()
                gain.append(100 * (took / (honest.end - jobs.submit)[own].mean() - 1))
            half = 1.96 * np.std(gain, ddof=1) / np.sqrt(len(gain))
            yield f"| `{name}` | × {factor:g} | {np.mean(gain):+.1f} ± {half:.1f} |"


def main() -> None:
    """Print a table for each log."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("logs", nargs="+")
    parser.add_argument("--load", type=float, default=0.0)
    parser.add_argument("--overestimate", type=float, default=0.0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--liars", type=int, default=0, help="so many users, each alone")
    args = parser.parse_args()
    for log in args.logs:
        given = {"load": args.load, "overestimate": args.overestimate, "first": args.first}
        scenario = ReplayScenario(source=log, **{k: v for k, v in given.items() if v})
        played = scenario.draw(0)
        jobs, nodes = played.jobs, played.nodes
        print(
            f"\n{log}: {len(jobs):,} jobs, {jobs.requested.mean():.0%} with a request, "
            f"{len(jobs.users)} users, {len(nodes)} nodes\n"
        )
        if args.liars:
            print("| scheduler | requests | that user's mean completion, % |\n|---|---|---|")
            names = [EASY, "sjf+easy", "fcfs+easy+learned", "aged+easy+learned"]
            for line in liars(jobs, nodes, names, args.liars):
                print(line, flush=True)
            continue
        print(
            "| scheduler | bounded slowdown | completion, s | % | wait, s | p99 | longest | k/s |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for line in rows(jobs, nodes, RIVALS | OURS):
            print(line, flush=True)


if __name__ == "__main__":
    main()
