"""Who gives way, as Slurm's documentation and runs of it have it, written once more.

Numbers and sets alone: nodes have cores free, jobs so many cores on each of some nodes, one task a
node. A job of ``tasks`` goes to the first nodes that have room.
"""

from __future__ import annotations

from typing import NamedTuple


class Held(NamedTuple):
    """A job that runs: its name, its rank, since when, and cores by node."""

    name: int
    rank: int
    since: float
    cores: dict[int, int]


def first_fit(free: dict[int, int], tasks: int, cores: int) -> set[int] | None:
    nodes = [n for n in sorted(free) if free[n] >= cores][:tasks]
    return set(nodes) if len(nodes) == tasks else None


def gone(free: dict[int, int], jobs: list[Held]) -> dict[int, int]:
    left = dict(free)
    for job in jobs:
        for n, cores in job.cores.items():
            left[n] += cores
    return left


def who_gives_way(
    free: dict[int, int], running: list[Held], tasks: int, cores: int, reorder: int = 1
) -> tuple[set[int], set[int]] | None:
    """Nodes, and the names of those who give way; ``running`` are those who may be preempted."""
    line = sorted(running, key=lambda job: (job.rank, len(job.cores)))
    nodes: set[int] | None = None
    for attempt in range(reorder + 2):
        fewest = next(
            (i for i in range(1, len(line) + 1) if first_fit(gone(free, line[:i]), tasks, cores)), 0
        )
        if not fewest:
            break
        nodes = first_fit(gone(free, line[:fewest]), tasks, cores)
        assert nodes is not None
        if attempt + 1 >= len(line):
            break
        taken = sorted(line[: fewest - 1], key=lambda job: -len(nodes & set(job.cores)))
        line = [line[fewest - 1], *taken, *line[fewest:]]
    if nodes is None:
        return None
    return nodes, {job.name for job in running if nodes & set(job.cores)}
