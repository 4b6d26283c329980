"""Slow, obvious P3: every choice tried, and the dynamic programme by memoised recursion."""

from __future__ import annotations

import itertools
import math
import time
from functools import cache

import numpy as np

from gangwise.papers.gangs.milp import Constraints, maximise


def worth(v, s, x) -> float:
    """v·x + √(s·x), one channel at a time."""
    chosen = [e for e in range(len(v)) if x[e]]
    return sum(float(v[e]) for e in chosen) + math.sqrt(sum(float(s[e]) for e in chosen))


def fits(a, c, x) -> bool:
    """A x ≤ c, device type by device type."""
    return all(
        sum(float(a[e][k]) for e in range(len(a)) if x[e]) <= c[k] * (1 + 1e-12) + 1e-15
        for k in range(len(c))
    )


def choices(a, c) -> list[tuple[int, ...]]:
    """Every x that fits."""
    return [x for x in itertools.product((0, 1), repeat=len(a)) if fits(a, c, x)]


def brute_force(v, s, a, c) -> float:
    """The optimum of P3, s finite."""
    X = np.array(list(itertools.product((0, 1), repeat=len(v))), dtype=float)
    ok = (X @ a <= np.asarray(c) * (1 + 1e-12)).all(axis=1)
    return float((X[ok] @ v + np.sqrt(X[ok] @ s)).max())


def brute_force_unplayed(v, s, a, c) -> int:
    """How many channels with s = +inf fit at once."""
    return max(sum(x[e] for e in range(len(v)) if s[e] == math.inf) for x in choices(a, c))


def values(upsilon, sigma, a, c, top) -> list[float]:
    """V(s) of P4 for s = 0, …, top, by the recursion (22)–(27) as it should be."""

    @cache
    def best(s: int, left: tuple[int, ...], i: int) -> float:
        if i == len(upsilon):
            return 0.0 if s == 0 else -math.inf
        most = best(s, left, i + 1)
        less = tuple(have - int(take) for have, take in zip(left, a[i]))
        if min(less) >= 0:
            most = max(most, best(max(s - int(upsilon[i]), 0), less, i + 1) + float(sigma[i]))
        return most

    return [best(s, tuple(int(k) for k in c), 0) for s in range(top + 1)]


def algorithm_2(
    upsilon, sigma, a, c, top: int, copy_when_skipped: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """ESDP Algorithm 2 as printed: V(s) and x(s), s = 0, …, ``top``; it schedules nothing.

    Where a channel is skipped, its x keeps the initial zeros instead of what was decided behind it;
    ``copy_when_skipped`` adds the missing line.
    """
    E = len(upsilon)
    value, x = {}, {}
    none = np.zeros(E, dtype=np.int64)
    for s in range(top + 1):
        for left in itertools.product(*(range(int(k) + 1) for k in c)):
            value[s, left, E] = 0.0 if s == 0 else -np.inf
            x[s, left, E] = none
            for i in range(E - 1, -1, -1):
                skipped = value[s, left, i + 1]
                x[s, left, i] = x[s, left, i + 1] if copy_when_skipped else none
                value[s, left, i] = skipped
                if not any(left):
                    continue
                less = tuple(max(have - int(take), 0) for have, take in zip(left, a[i]))
                behind = (max(s - int(upsilon[i]), 0), less, i + 1)
                value[s, left, i] = max(value[behind] + sigma[i], skipped)
                if value[s, left, i] != skipped:
                    with_it = x[behind].copy()
                    with_it[i] = 1
                    x[s, left, i] = with_it
                    if (with_it @ a > left).any():
                        value[s, left, i] = skipped
                        x[s, left, i] = x[s, left, i + 1]
    whole = tuple(int(k) for k in c)
    return (
        np.array([value[s, whole, 0] for s in range(top + 1)]),
        np.array([x[s, whole, 0] for s in range(top + 1)]),
    )


def select(sigma, x) -> tuple[int, float]:
    """Selection of ESDP (21) as printed, also of an s that no x reaches, whose x is zero."""
    worth = np.arange(len(x)) + np.sqrt(x @ sigma)
    s = int(worth.argmax())
    return s, float(worth[s])


def solve_milp(v, s, a, c, gap=1e-9, time_limit=None):
    """MILP with tangent cuts: x [E], its value, and a bound, of P3 with s finite.

    A mixed-integer programme, maximise v·x + t with t ≤ q/2 + s·x/(2q), the tangent of √y at
    y = q², at the points q cut at. A tangent is added at the y of every answer whose t claims more
    than √y; each round is an upper bound, and the last one is the optimum. ``time_limit`` is in
    seconds for all rounds together.
    """
    E = v.size
    best, value, bound, rounds = np.zeros(E, dtype=bool), 0.0, math.inf, 0
    if E == 0:
        return best, value, 0.0
    unit = math.sqrt(float(s.sum()))  # t is measured in it, y in its square
    objective = np.append(v, unit)
    upper = np.append(np.ones(E), 1.0 if unit > 0 else 0.0)
    whole = np.arange(E + 1) < E
    takes = [(np.flatnonzero(a[:, k]), k) for k in range(a.shape[1])]
    rows = [(some, a[some, k], float(c[k])) for some, k in takes if some.size]
    points = [0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0] if unit > 0 else []
    rows += [_tangent(q, s / unit**2) for q in points]
    deadline = None if time_limit is None else time.monotonic() + time_limit
    while bound - value > gap * abs(value):
        left = math.inf if deadline is None else deadline - time.monotonic()
        if left <= 0 and rounds:
            break
        rounds += 1
        answer = maximise(
            objective,
            upper,
            whole,
            Constraints.of(rows),
            relative_gap=gap / 2,
            absolute_gap=1e-12,
            seconds=left,
        )
        bound = min(bound, answer.bound)  # tangents only cut off
        if answer.x is None:
            break
        x = answer.x[:E] > 0.5
        y = float(s[x].sum())
        worth = float(v[x].sum()) + math.sqrt(y)
        if worth > value and (a[x].sum(axis=0) <= c * (1 + 1e-9)).all():
            best, value = x, worth
        if y == 0.0 or math.sqrt(y) / unit in points:
            break
        points.append(math.sqrt(y) / unit)
        rows.append(_tangent(points[-1], s / unit**2))
    return best, value, max(bound, value)


def _tangent(q, s):
    """T ≤ q/2 + s·x/(2q), t being the column behind those of x."""
    some = np.flatnonzero(s)
    return np.append(some, s.size), np.append(-s[some] / (2 * q), 1.0), q / 2
