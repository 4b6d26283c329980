"""Suspending, as Slurm's gang scheduler and runs of it have it, written once more: cores as sets.

Jobs of one task a node come in order; the first that cannot start stops all behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Job:
    """A job; ``cores`` of it are pairs (node, core)."""

    at: float
    left: float
    tasks: int
    each: int
    rank: int
    began: float = -1.0  # for the first time
    ended: float = -1.0
    cores: set[tuple[int, int]] = field(default_factory=set)
    runs: bool = False


def lowest(job: Job, nodes: int, size: int, taken: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Cores for a job on the first nodes that have enough; none where too few have."""
    found: list[list[tuple[int, int]]] = []
    for n in range(nodes):
        mine = [(n, c) for c in range(size) if (n, c) not in taken][: job.each]
        found += [mine] * (len(mine) == job.each)
    return (
        {core for mine in found[: job.tasks] for core in mine} if len(found) >= job.tasks else set()
    )


def go_on(jobs: list[Job]) -> None:
    """Who holds cores runs, but where one of a higher rank runs on them."""
    for job in sorted(jobs, key=lambda job: -job.rank):
        over = [o for o in jobs if o.runs and o.rank > job.rank and o.cores & job.cores]
        job.runs = bool(job.cores) and not over


def play(jobs: list[Job], nodes: int, size: int) -> list[tuple[float, float]]:
    """First starts and ends."""
    now = 0.0
    while any(job.ended < 0 for job in jobs):
        for job in jobs:
            if job.left <= 1e-9 and job.runs:
                job.ended, job.cores, job.runs = now, set(), False
        go_on(jobs)
        waiting = [job for job in jobs if job.at <= now and job.began < 0]
        for job in sorted(waiting, key=lambda job: -job.rank):
            held = [o for o in jobs if o.cores]
            every = {core for o in held for core in o.cores}
            seen = {core for o in held if o.rank >= job.rank for core in o.cores}
            job.cores = lowest(job, nodes, size, every) or lowest(job, nodes, size, seen)
            if not job.cores:
                break
            job.began, job.runs = now, True
            for o in held:
                o.runs &= o.rank >= job.rank or not o.cores & job.cores
        go_on(jobs)
        ahead = [job.at for job in jobs if job.at > now]
        ahead += [now + job.left for job in jobs if job.runs]
        then = min(ahead, default=now)
        for job in jobs:
            job.left -= (then - now) * job.runs
        now = then
    return [(job.began, job.ended) for job in jobs]
