"""Small gang problems for the tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from gangwise import Channels, Cluster
from gangwise.papers.gain_overhead.problem import Utilities
from gangwise.papers.gangs.policies import GangFamily
from gangwise.papers.gangs.problem import GangProblem


def problem(
    capacity: Any,
    jobs: list[Any],
    minimum: list[int],
    mask: Any = None,
    beta: Any = 0.0,
    utilities: Utilities | None = None,
) -> GangProblem:
    """``jobs`` holds the task requests of each job type."""
    c = np.array(capacity, dtype=float)
    R, K = c.shape
    L = len(jobs)
    mask = np.ones((L, R), dtype=bool) if mask is None else np.array(mask, dtype=bool)
    return GangProblem(
        Cluster(c, tuple("abcdef"[:K])),
        np.repeat(np.arange(L), [len(tasks) for tasks in jobs]),
        np.array([task for tasks in jobs for task in tasks], dtype=float),
        np.array(minimum),
        Channels.of_mask(mask),
        utilities or Utilities.of("linear", np.ones((R, K))),
        np.full(K, beta) if np.isscalar(beta) else np.array(beta),
        job_types=tuple(f"job {chr(65 + l)}" for l in range(L)),
    )


def fuzzed(seed: int, most: float = np.inf) -> GangProblem:
    """A random problem with at most so many placements."""
    rng = np.random.default_rng([314, seed])
    while True:
        p = GangFamily().fuzz(rng).problem
        degree = np.bincount(p.channels.job_type, minlength=p.L)
        if np.prod(1.0 + degree[p.task_job_type]) <= most:
            return p
