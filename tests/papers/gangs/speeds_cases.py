"""Small gang problems with speeds for the tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from gangwise import Channels, Cluster
from gangwise.papers.gangs.policies import GangSpeedsFamily
from gangwise.papers.gangs.problem import GangSpeedsProblem


def problem(
    capacity: Any,
    jobs: list[Any],
    minimum: list[int],
    mask: Any = None,
    cost: Any = None,
    task_cost: Any = (),
) -> GangSpeedsProblem:
    """``jobs`` holds the task requests of each job type."""
    c = np.array(capacity, dtype=float)
    R, K = c.shape
    L = len(jobs)
    channels = Channels.of_mask(
        np.ones((L, R), dtype=bool) if mask is None else np.array(mask, dtype=bool)
    )
    return GangSpeedsProblem(
        Cluster(c, tuple("abcdef"[:K]), tuple(f"server {r}" for r in range(R))),
        np.repeat(np.arange(L), [len(tasks) for tasks in jobs]),
        np.array([task for tasks in jobs for task in tasks], dtype=float),
        np.array(minimum),
        channels,
        np.zeros(len(channels)) if cost is None else np.array(cost),
        job_types=tuple(f"job {chr(65 + l)}" for l in range(L)),
        task_cost=np.array(task_cost, dtype=float),
    )


def fuzzed(seed: int, most: float = np.inf) -> GangSpeedsProblem:
    """A random problem with at most so many placements."""
    rng = np.random.default_rng([2718, seed])
    while True:
        p = GangSpeedsFamily().fuzz(rng).problem
        degree = np.bincount(p.channels.job_type, minlength=p.L)
        if np.prod(1.0 + degree[p.task_job_type]) <= most:
            return p
