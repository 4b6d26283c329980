"""Slow, obvious P3: every choice tried, and the dynamic programme by memoised recursion."""

from __future__ import annotations

import itertools
import math
from functools import cache

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
