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
