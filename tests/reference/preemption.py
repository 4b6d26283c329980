"""Who gives way, as Slurm's documentation and runs of it have it, written once more.

Numbers and sets alone: nodes have cores free, jobs so many cores on each of some nodes, one task a
node. A job of ``tasks`` goes to nodes side by side, see :func:`consecutive`.
"""

from __future__ import annotations

from typing import NamedTuple


class Held(NamedTuple):
    """A job that runs: its name, its rank, since when, and cores by node."""

    name: int
    rank: int
    since: float
    cores: dict[int, int]


def consecutive(free: dict[int, int], tasks: int, cores: int) -> set[int] | None:
    """Nodes side by side that have room, those with least free; None where there are too few."""
    runs: list[list[int]] = []
    for n in sorted(free):
        if free[n] >= cores:
            if runs and runs[-1][-1] == n - 1:
                runs[-1].append(n)
            else:
                runs.append([n])
    if sum(map(len, runs)) < tasks:
        return None
    chosen: list[int] = []
    while left := tasks - len(chosen):
        enough = [run for run in runs if len(run) >= left]
        sizes = [(sum(free[n] for n in run), run[0], run) for run in enough or runs]
        run = min(sizes)[2] if enough else max(sizes, key=lambda size: (size[0], -size[1]))[2]
        runs.remove(run)
        chosen += (sorted(run, key=lambda n: free[n]) if left == 1 else run)[:left]
    return set(chosen)


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
            (i for i in range(1, len(line) + 1) if consecutive(gone(free, line[:i]), tasks, cores)),
            0,
        )
        if not fewest:
            break
        nodes = consecutive(gone(free, line[:fewest]), tasks, cores)
        assert nodes is not None
        if attempt + 1 >= len(line):
            break
        taken = sorted(line[: fewest - 1], key=lambda job: -len(nodes & set(job.cores)))
        line = [line[fewest - 1], *taken, *line[fewest:]]
    if nodes is None:
        return None
    return nodes, {job.name for job in running if nodes & set(job.cores)}
