"""The dual bound evaluated from its prices alone, and the optimum of tiny cases by brute force.

They read like their definitions and share nothing with the kernels.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import permutations, product
from typing import Any


def comes_after(jobs: Any, j: int) -> list[int]:
    """Jobs that must have ended before j starts."""
    if jobs.after is None:
        return []
    return [int(i) for i in jobs.after[jobs.after_from[j] : jobs.after_from[j + 1]]]


def dual_value(jobs: Any, prices: Any, origin: float, period: float) -> float:
    """L(λ) / J for prices [N, T], by trying every start and gang that could be the least."""
    N, T = prices.shape

    def price(n: int, begin: float, end: float) -> float:
        total = 0.0
        for t in range(T):
            low, high = origin + t * period, origin + (t + 1) * period
            total += prices[n, t] * max(0.0, min(end, high) - max(begin, low))
        return total

    released: dict[int, float] = {}

    def release(j: int) -> float:
        """No start before this, for every job before it takes its least time at the least."""
        if j not in released:
            ends = [release(i) + float(jobs.work[i]) / max(levels(i)) for i in comes_after(jobs, j)]
            released[j] = max([float(jobs.submit[j]), *ends])
        return released[j]

    def levels(j: int) -> set[float]:
        """Rates of the slowest task of a gang."""
        c = jobs.kind[j]
        return {
            float(level)
            for n, level in enumerate(jobs.rate[c])
            if jobs.room[c, n] > 0
            and sum(jobs.room[c, m] for m in range(N) if jobs.rate[c, m] >= level) >= jobs.tasks[j]
        }

    total = 0.0
    for j in range(len(jobs.submit)):
        c, r, best = jobs.kind[j], release(j), math.inf
        open_nodes = [n for n in range(N) if jobs.room[c, n] > 0]
        for level in levels(j):
            eligible = [n for n in open_nodes if jobs.rate[c, n] >= level]
            span = float(jobs.work[j]) / level
            edges = [origin + t * period for t in range(T + 1)]
            starts = {r, *(s for e in edges for s in (e, e - span) if s > r)}
            for s in starts:
                places = sorted(
                    price(n, s, s + span) for n in eligible for _ in range(jobs.room[c, n])
                )
                paid = float(jobs.devices[j]) * sum(places[: jobs.tasks[j]])
                best = min(best, s + span - float(jobs.submit[j]) + paid)
        total += best
    earned = sum(jobs.capacity[n] * prices[n, t] * period for n in range(N) for t in range(T))
    return float((total - earned) / len(jobs.submit))


def _gangs(jobs: Any, j: int) -> list[tuple[int, ...]]:
    """Tasks on each node [N], in every way in which job j fits."""
    room = [range(int(n) + 1) for n in jobs.room[jobs.kind[j]]]
    return [g for g in product(*room) if sum(g) == jobs.tasks[j]]


def best_preemptive_completion(jobs: Any, slot: float = 1.0) -> float:
    """The least mean completion where jobs stop and move at every multiple of ``slot``, for free.

    All sets of gangs that fit are tried in each slot. Submissions are multiples of it.
    """
    J, N = len(jobs.submit), len(jobs.capacity)
    gangs = [_gangs(jobs, j) for j in range(J)]

    @cache
    def rest(t: int, left: tuple[float, ...]) -> float:
        """Σ of the ends, less ``t`` slots, of jobs that have so much work left."""
        now = t * slot
        waits = [
            j
            for j in range(J)
            if left[j] > 0 and jobs.submit[j] <= now and not any(left[i] for i in before[j])
        ]
        undone = sum(1 for work in left if work > 0)
        if not undone:
            return 0.0
        best = math.inf
        for chosen in product(*([None, *gangs[j]] for j in waits)):
            running = [(j, g) for j, g in zip(waits, chosen) if g is not None]
            used = [sum(g[n] * jobs.devices[j] for j, g in running) for n in range(N)]
            if any(u > c + 1e-9 for u, c in zip(used, jobs.capacity)):
                continue
            then, spent = list(left), 0.0
            for j, g in running:
                rate = min(jobs.rate[jobs.kind[j], n] for n in range(N) if g[n])
                spent += min(left[j] / rate, slot) if left[j] <= rate * slot else 0.0
                then[j] = max(left[j] - rate * slot, 0.0)
            if not running and all(jobs.submit[j] <= now for j in range(J)):
                continue  # to wait is of no use any more
            # Jobs that are not done by then count the whole slot.
            on = sum(1 for work in then if work > 0)
            best = min(best, spent + on * slot + rest(t + 1, tuple(then)))
        return best

    before = [comes_after(jobs, j) for j in range(J)]
    instant = [j for j in range(J) if jobs.work[j] == 0]
    assert not any(set(instant) & {j, *before[j]} for j in range(J)), "every job has work"
    return float((rest(0, tuple(map(float, jobs.work))) - jobs.submit.sum()) / J)


def best_mean_completion(jobs: Any) -> float:
    """The optimum without migration: every order of the jobs, every gang, each as early as it fits.

    For a sum of completion times some optimal schedule is active, and every active schedule comes
    out of placing the jobs one by one, in some order, at the earliest start.
    """
    J, N = len(jobs.submit), len(jobs.capacity)
    best = math.inf
    choices = [_gangs(jobs, j) for j in range(J)]
    for order in permutations(range(J)):
        if any(order.index(i) > order.index(j) for j in order for i in comes_after(jobs, j)):
            continue
        for chosen in product(*(choices[j] for j in order)):
            placed: list[tuple[float, float, tuple[float, ...]]] = []
            ends: dict[int, float] = {}
            total = 0.0
            for j, gang in zip(order, chosen):
                rate = min(jobs.rate[jobs.kind[j], n] for n in range(N) if gang[n])
                span = float(jobs.work[j] / rate)
                need = tuple(float(g * jobs.devices[j]) for g in gang)
                ready = max([float(jobs.submit[j]), *(ends[i] for i in comes_after(jobs, j))])
                start = _earliest(ready, span, need, placed, jobs.capacity)
                placed.append((start, start + span, need))
                ends[j] = start + span
                total += start + span - float(jobs.submit[j])
            best = min(best, total)
    return best / J


def _earliest(
    ready: float,
    span: float,
    need: tuple[float, ...],
    placed: list[tuple[float, float, tuple[float, ...]]],
    capacity: Any,
) -> float:
    for start in sorted({ready, *(end for _, end, _ in placed if end > ready)}):
        moments = [start, *(b for b, _, _ in placed if start < b < start + span)]
        if all(
            sum(h[n] for b, e, h in placed if b <= t < e) + need[n] <= capacity[n] + 1e-9
            for t in moments
            for n in range(len(need))
        ):
            return start
    raise AssertionError("some start always fits")
