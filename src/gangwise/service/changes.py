"""Change points: nodes that had another speed before, from the jobs that ran on them.

What is learned is what nodes do now. Days that are past are played with what they did then. A gang
is as fast as its slowest node. So with beliefs b_jm (log rates, by type of job and node), and nodes
m that were e^δ_m times as fast until τ_m, the log rate of job j should have been, t_j being the
middle of its run,

    ŷ_j = min_m (b_jm + δ_m [t_j < τ_m]).

A belief may be off by itself, in the same way all the time, which is no change. So jobs of a node
cost Σ_j min((y_j − ŷ_j)², (3σ)²) with one δ for all of them, or with one before τ and another one
afterwards; σ is the median deviation of all jobs. The node for which two cost less by most comes
first, the next one is looked for with that change in place, and so on as long as it is by more than
(3 ln n + 2 ln N) σ², n jobs on N nodes: the price of two parameters (BIC) and of having looked
everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gangwise.core.arrays import Floats, Ints

FEWEST = 3  # jobs of a node before its change, and afterwards
SMALLEST = math.log(1.1)  # a change by less is none: rates differ by as much from job to job
FACTORS = np.log(np.geomspace(1 / 8, 8, 121))  # changes that are tried
SURE = 0.03  # smallest σ: what ranks report is no better


class Change(NamedTuple):
    """A node was ``factor`` times as fast as now until ``time``, in seconds."""

    node: int
    time: float
    factor: float


def changes(
    rates: Floats, middles: Floats, nodes: Sequence[Sequence[int]], believed: Sequence[Floats]
) -> list[Change]:
    """Nodes whose speed has changed, at most once each.

    Of J gangs: log ``rates`` [J] as measured, ``middles`` [J] of their runs in seconds, the
    ``nodes`` that each had, and the log rates that are ``believed`` of these now.

    Node 1 was twice as fast for the first ten of twenty jobs.

    >>> noise = 0.02 * np.sin(np.arange(20.0))
    >>> measured = np.where(np.arange(20) < 10, np.log(2.0), 0.0) + noise
    >>> found = changes(measured, np.arange(20.0), [[1]] * 20, [np.zeros(1)] * 20)
    >>> [(c.node, c.time, round(c.factor, 1)) for c in found]
    [(1, 9.5, 2.0)]
    """
    J, K = rates.size, max(map(len, nodes), default=0)
    on, b = np.full((J, K), -1), np.full((J, K), np.inf)
    for j, (places, logs) in enumerate(zip(nodes, believed, strict=True)):
        on[j, : len(places)], b[j, : len(places)] = places, logs
    by_time = np.argsort(middles, kind="stable")
    rates, middles, on, b = rates[by_time], middles[by_time], on[by_time], b[by_time]
    jobs_of = _jobs_of(on)
    found: list[Change] = []
    sigma = max(1.4826 * float(np.median(np.abs(rates - b.min(axis=1)))), SURE) if J else SURE
    best = {n: _best(n, jobs, rates, middles, on, b, sigma) for n, jobs in jobs_of.items()}
    while best:
        n = max(best, key=lambda node: best[node][0])
        saved, change = best.pop(n)
        if change is None or saved <= (3 * math.log(jobs_of[n].size) + 2 * math.log(len(jobs_of))):
            break
        found.append(change)
        jobs = jobs_of[n]
        early = jobs[middles[jobs] < change.time]
        b[early] += np.where(on[early] == n, math.log(change.factor), 0.0)
        for other in set(on[early].ravel().tolist()) & best.keys():
            best[other] = _best(other, jobs_of[other], rates, middles, on, b, sigma)
    return found


def _jobs_of(on: Ints) -> dict[int, Ints]:
    jobs, slots = np.nonzero(on >= 0)
    pairs = np.unique(np.column_stack((on[jobs, slots], jobs)), axis=0)
    nodes, first = np.unique(pairs[:, 0], return_index=True)
    return dict(zip(nodes.tolist(), np.split(pairs[:, 1], first[1:])))


def _best(
    n: int, jobs: Ints, rates: Floats, middles: Floats, on: Ints, b: Floats, sigma: float
) -> tuple[float, Change | None]:
    """The change of a node that explains its jobs best, and what it saves in units of σ²."""
    m = jobs.size
    if m < 2 * FEWEST:
        return 0.0, None
    mine = on[jobs] == n
    others = np.where(mine, np.inf, b[jobs]).min(axis=1)
    own = np.where(mine, b[jobs], np.inf).min(axis=1)
    explained = np.minimum(others, own + FACTORS[:, np.newaxis])  # ŷ [δ, j]
    cost = np.cumsum(np.minimum(((rates[jobs] - explained) / sigma) ** 2, 9.0), axis=1)
    k = np.arange(FEWEST, m - FEWEST + 1)  # jobs before τ
    before, after = cost[:, k - 1], cost[:, -1:] - cost[:, k - 1]
    at = int((before.min(axis=0) + after.min(axis=0)).argmin())
    early, late = before[:, at].argmin(), after[:, at].argmin()
    delta = float(FACTORS[early] - FACTORS[late])
    if abs(delta) < SMALLEST:
        return 0.0, None
    saved = float(cost[:, -1].min() - before[early, at] - after[late, at])
    last = int(k[at])
    time = 0.5 * float(middles[jobs[last - 1]] + middles[jobs[last]])
    return saved, Change(n, time, math.exp(delta))
