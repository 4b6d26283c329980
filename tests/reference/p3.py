"""Slow, obvious P3: every choice tried, and the dynamic programme by memoised recursion."""

from __future__ import annotations

import itertools
import math
import time
from functools import cache

import highspy
import numpy as np


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
        point, upper_bound = _branch_and_bound(objective, upper, rows, gap / 2, left)
        bound = min(bound, upper_bound)  # tangents only cut off
        if point is None:
            break
        x = point[:E] > 0.5
        y = float(s[x].sum())
        worth = float(v[x].sum()) + math.sqrt(y)
        if worth > value and (a[x].sum(axis=0) <= c * (1 + 1e-9)).all():
            best, value = x, worth
        if y == 0.0 or math.sqrt(y) / unit in points:
            break
        points.append(math.sqrt(y) / unit)
        rows.append(_tangent(points[-1], s / unit**2))
    return best, value, max(bound, value)


def _branch_and_bound(objective, upper, rows, gap, seconds):
    """HiGHS on a programme whose last column alone need not be whole: its point and its bound."""
    h = highspy.Highs()
    for option, setting in (
        ("output_flag", False),
        ("threads", 1),
        ("mip_rel_gap", gap),
        ("mip_abs_gap", 1e-12),
        ("mip_feasibility_tolerance", 1e-9),
        ("primal_feasibility_tolerance", 1e-9),
        ("time_limit", float(min(max(seconds, 0.0), 1e9))),
    ):
        h.setOptionValue(option, setting)
    for i, (worth, most) in enumerate(zip(objective, upper)):
        h.addVar(0.0, float(most))
        h.changeColCost(i, -float(worth))  # HiGHS minimises
        if i < len(upper) - 1:
            h.changeColIntegrality(i, highspy.HighsVarType.kInteger)
    for columns, factors, most in rows:
        h.addRow(-highspy.kHighsInf, float(most), len(columns), columns, factors)
    h.run()
    info = h.getInfo()
    point = np.array(h.getSolution().col_value) if info.primal_solution_status == 2 else None
    bound = -info.mip_dual_bound  # infinite, of either sign, where nothing is proved yet
    return point, bound if math.isfinite(bound) else math.inf


def _tangent(q, s):
    """T ≤ q/2 + s·x/(2q), t being the column behind those of x."""
    some = np.flatnonzero(s)
    return np.append(some, s.size), np.append(-s[some] / (2 * q), 1.0), q / 2
