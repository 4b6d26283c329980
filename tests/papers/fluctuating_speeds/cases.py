from __future__ import annotations

import numpy as np

from gangwise import BernoulliArrivals
from gangwise.core.workload import Channels
from gangwise.papers.fluctuating_speeds.environment import FluctuatingSpeedsInstance
from gangwise.papers.fluctuating_speeds.problem import (
    FluctuatingSpeedsProblem,
    NormalSpeeds,
    Pool,
    Scale,
)

POLICIES = (
    "esdp",
    "esdp-as-printed",
    "esdp-discounted:discount=0.9",
    "esdp-window:window=4",
    "escb",
    "hauf",
    "hswf",
    "hauf-channel",
    "lcf",
    "lwtf",
    "random-channels",
    "cucb",
    "maxweight",
    "thompson-beta",
    "thompson-gaussian",
    "epsilon-greedy",
    "epsilon-greedy-decaying",
)


def problem(requests, capacity, job_type=None, cost=None) -> FluctuatingSpeedsProblem:
    """One server for each channel, so that channels keep the order given."""
    a = np.array(requests, dtype=float)
    a = a[:, None] if a.ndim == 1 else a
    E, K = a.shape
    l = np.arange(E) if job_type is None else np.array(job_type)
    return FluctuatingSpeedsProblem(
        Pool(
            np.array(capacity, dtype=float, ndmin=1),
            tuple(f"device-{k}" for k in range(K)),
            tuple(f"server-{e}" for e in range(E)),
        ),
        a,
        Channels(l, np.arange(E), (int(l.max()) + 1, E)),
        np.zeros(E) if cost is None else np.array(cost, dtype=float),
    )


def random_instance(seed: int, E: int = 8, rho: float = 0.8) -> FluctuatingSpeedsInstance:
    """Small enough for every choice to be tried."""
    rng = np.random.default_rng(seed)
    p = problem(
        rng.integers(1, 3, (E, 2)),
        np.array([E * 0.7, E * 0.8]),
        np.concatenate([[0, 1, 2], rng.integers(0, 3, E - 3)]),
        rng.uniform(0.0, 0.2, E),
    )
    speeds = NormalSpeeds(rng.uniform(0.1, 1.0, E))
    scale = Scale.of("clip", speeds, p.cost)
    return FluctuatingSpeedsInstance(p, BernoulliArrivals(np.full(p.L, rho)), speeds, scale)
