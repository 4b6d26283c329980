"""Slow, obvious fluctuating speeds: every choice is tried."""

from __future__ import annotations

import itertools
import math

import numpy as np


def choices(problem, arrivals):
    """Every x in Ω(t), as a tuple of channels."""
    able = [e for e in range(problem.E) if arrivals[problem.channels.job_type[e]]]
    for n in range(len(able) + 1):
        for chosen in itertools.combinations(able, n):
            taken = problem.requests[list(chosen)].sum(axis=0)
            if (taken <= problem.cluster.capacity + 1e-9).all():
                yield chosen


def best(problem, arrivals, v, s) -> tuple[int, float]:
    """The most channels never used (s = ∞) that fit, and the largest v·x + √(s·x) without them."""
    most = max(sum(math.isinf(s[e]) for e in chosen) for chosen in choices(problem, arrivals))
    if most:
        return most, math.nan
    return 0, max(worth(chosen, v, s) for chosen in choices(problem, arrivals))


def worth(chosen, v, s) -> float:
    return sum(v[e] for e in chosen) + math.sqrt(sum(s[e] for e in chosen))


def in_turn(problem, arrivals, channels, stop=False) -> set[int]:
    """Switch channels on in this order while they fit."""
    on: set[int] = set()
    for e in channels:
        if not arrivals[problem.channels.job_type[e]]:
            continue
        taken = problem.requests[sorted(on | {e})].sum(axis=0)
        if (taken <= problem.cluster.capacity + 1e-9).all():
            on.add(e)
        elif stop:
            break
    return on


def by_job_type(problem, arrivals, score, stop=False) -> set[int]:
    """Job types by falling score; the cheapest channel of each first."""
    order = []
    for l in sorted(range(problem.L), key=lambda l: -score[l]):
        mine = [e for e in range(problem.E) if problem.channels.job_type[e] == l]
        order += sorted(mine, key=lambda e: problem.cost[e])
    return in_turn(problem, arrivals, order, stop)


def mean_by_integration(density, low, high, reach) -> float:
    """E[clip(Z, low, high)] on a fine grid of the density."""
    z = np.linspace(*reach, 400_001)
    p = density(z)
    return float(np.trapezoid(np.clip(z, low, high) * p, z) / np.trapezoid(p, z))


def welfare(problem, decision, utilities, payments):
    """What jobs gain, Σ_r x Z − 𝟙{served} π_l each, and the cluster, Σ 𝟙 π_l − Σ x Σ_k f_k."""
    on = [e for e in range(problem.E) if decision[e]]
    types = [int(problem.channels.job_type[e]) for e in on]
    jobs = [
        sum(utilities[e] for e, type_ in zip(on, types) if type_ == l)
        - (payments[l] if l in types else 0.0)
        for l in range(problem.L)
    ]
    cluster = sum(payments[l] for l in set(types)) - sum(problem.cost[e] for e in on)
    return np.array(jobs), float(cluster)
