r"""Exact branch and bound for P3 on Lagrangian bounds, depth first, able to stop and go on.

With reduced costs ρ_e = v_e + s_e/(2q) - u·a_e and D the bound at (q, u), every feasible x is worth

    v·x + √(s·x) = D - u·(c - A x) - Σ_{e: x_e ≠ [ρ_e > 0]} |ρ_e| - (√(s·x) - q)²/(2q),

so a channel whose |ρ_e| exceeds the gap is settled, and the least |ρ_e| is the one to branch on.

Work space as in ``p3_root``.
"""

from __future__ import annotations

import math

from gangwise.kernels import Floats, Ints, kernel
from gangwise.kernels.p3 import bound_at, polyak
from gangwise.kernels.p3_root import plant

__all__ = ["polish", "search"]


@kernel
def _settle(
    d: int, f: float, number: Floats, free: Ints, decided: Ints, a: Floats,
    level: Floats, stage: Ints, gap: float, absolute: float, best: Floats,
) -> float:
    """Decide what the reduced costs decide; the node's bound, or -inf when nothing is left."""
    K = a.shape[1]
    v, s, reduced = number[0], number[1], number[2]
    here = level[d]
    m = stage[d, 1]
    target = best[0] + max(gap * best[0], absolute)
    j = 0
    while j < m:
        e = free[j]
        fits = True
        for k in range(K):
            fits = fits and a[e, k] <= here[K + 5 + k]
        take = reduced[e] > 0.0
        if not fits:
            if take:
                f -= reduced[e]
            take = False
        elif f - abs(reduced[e]) <= target:
            best[2] = max(best[2], f - abs(reduced[e]))
        else:
            j += 1
            continue
        decided[e] = 1 if take else 0
        if take:
            here[K + 1] += v[e]
            here[K + 2] += s[e]
            for k in range(K):
                here[K + 5 + k] -= a[e, k]
        m -= 1
        free[j], free[m] = free[m], e
    stage[d, 1] = m
    here[K + 3] = min(here[K + 3], f)
    if f <= target:
        best[2] = max(best[2], f)
        return -math.inf
    return f


@kernel
def _before(i: int, j: int, v: Floats, s: Floats, a: Floats) -> bool:
    """Whether some best choice that has j has i: i is worth no less and takes no more."""
    if v[i] < v[j] or s[i] < s[j]:
        return False
    better = i < j or v[i] > v[j] or s[i] > s[j]
    for k in range(a.shape[1]):
        if a[i, k] > a[j, k]:
            return False
        better = better or a[i, k] < a[j, k]
    return better


@kernel
def _child(
    d: int, value: int, number: Floats, a: Floats, free: Ints, decided: Ints, level: Floats,
    stage: Ints,
) -> None:
    """Set up depth d + 1: the branching channel, last of the open ones, and what follows from it.

    Without it, no channel that it comes before; with it, every channel that comes before it. The
    order is partial and strict, so exchanging along it turns some optimum into one that obeys.
    """
    K = a.shape[1]
    v, s = number[0], number[1]
    m = stage[d, 1] - 1
    e = free[m]
    below = level[d + 1]
    for k in range(2 * K + 5):
        below[k] = level[d, k]
    j = m
    while j >= 0:
        i = free[j]
        follows = i == e or (_before(e, i, v, s, a) if value == 0 else _before(i, e, v, s, a))
        if follows:
            decided[i] = value
            if value == 1:
                below[K + 1] += v[i]
                below[K + 2] += s[i]
                for k in range(K):
                    below[K + 5 + k] -= a[i, k]
            if i != e:
                m -= 1
                free[j], free[m] = free[m], i
        j -= 1
    stage[d + 1, 0], stage[d + 1, 1] = 0, m


@kernel
def search(
    gap: float, absolute: float, nodes: int, evaluations: int, number: Floats, whole: Ints,
    a: Floats, small: Floats, matrix: Floats, level: Floats, stage: Ints, best: Floats,
    count: Ints,
) -> None:
    """Go on until the tree is searched (depth -1) or ``nodes`` more nodes have been looked at."""
    K = a.shape[1]
    v, s, reduced = number[0], number[1], number[2]
    free, decided, chosen = whole[1], whole[2], whole[3]
    n, d, left = count[0], count[1], nodes
    while d >= 0:
        here = level[d]
        m = stage[d, 1]
        if stage[d, 0] == 0:
            if left == 0:
                break
            left -= 1
            possible = True
            for k in range(K):
                possible = possible and here[K + 5 + k] >= 0.0
            if not possible:
                d -= 1
                continue
            for k in range(K + 1):
                small[0, k] = here[k]
            f = polyak(
                v, s, a, free, n, m, here[K + 1], here[K + 2], here[K + 5 :], matrix[1], small,
                evaluations, gap, absolute, reduced, decided, chosen, best,
            )  # fmt: skip
            if min(f, here[K + 3]) <= best[0] + max(gap * best[0], absolute):
                best[2] = max(best[2], min(f, here[K + 3]))
                d -= 1
                continue
            for k in range(K + 1):
                here[k] = small[1, k]
            f = _settle(d, f, number, free, decided, a, level, stage, gap, absolute, best)
            m = stage[d, 1]
            if f == -math.inf:
                d -= 1
                continue
            if m == 0:
                worth = here[K + 1] + math.sqrt(here[K + 2])
                if worth > best[0]:
                    best[0] = worth
                    for e in range(n):
                        chosen[e] = decided[e]
                d -= 1
                continue
            least, place = math.inf, 0
            for j in range(m):
                if abs(reduced[free[j]]) < least:
                    least, place = abs(reduced[free[j]]), j
            e = free[place]
            free[place], free[m - 1] = free[m - 1], e
            stage[d, 0] = 1
            stage[d, 2] = 1 if reduced[e] > 0.0 else 0
            here[K + 4] = f - least
            _child(d, stage[d, 2], number, a, free, decided, level, stage)
            d += 1
        elif stage[d, 0] == 1:
            stage[d, 0] = 2
            if here[K + 4] <= best[0] + max(gap * best[0], absolute):
                best[2] = max(best[2], here[K + 4])
            else:
                _child(d, 1 - stage[d, 2], number, a, free, decided, level, stage)
                level[d + 1, K + 3] = here[K + 4]
                d += 1
        else:
            d -= 1
    count[1] = d
    count[2] += nodes - left
    bound = max(best[2], best[0])
    for i in range(d + 1):
        if stage[i, 0] < 2:
            bound = max(bound, level[i, K + 3 + stage[i, 0]])
    best[3] = min(bound, max(best[1], best[0]))


@kernel
def polish(
    gap: float, absolute: float, core: int, nodes: int, evaluations: int, c: Floats,
    number: Floats, whole: Ints, a: Floats, small: Floats, matrix: Floats, level: Floats,
    stage: Ints, best: Floats, count: Ints,
) -> None:
    """Improve the choice by a search among the ``core`` or fewer channels with the least |ρ|.

    The others keep their relaxed choice. Afterwards the search stands at its beginning again.
    """
    K = a.shape[1]
    n = count[0]
    if count[1] < 0 or n <= core:
        return
    v, s, reduced, free, decided = number[0], number[1], number[2], whole[1], whole[2]
    f = bound_at(small[7], v, s, a, free, n, 0.0, 0.0, c, reduced, small[2], small[6])
    low, high = 0.0, f
    for _ in range(50):
        middle = 0.5 * (low + high)
        within = 0
        for e in range(n):
            within += 1 if abs(reduced[e]) <= middle else 0
        if within > core:
            high = middle
        else:
            low = middle
            if 4 * within > 3 * core:
                break
    here = level[0]
    m, back = 0, n
    for e in range(n):
        if abs(reduced[e]) <= low:
            free[m] = e
            m += 1
            continue
        back -= 1
        free[back] = e
        decided[e] = 1 if reduced[e] > 0.0 else 0
        if decided[e] == 1:
            here[K + 1] += v[e]
            here[K + 2] += s[e]
            for k in range(K):
                here[K + 5 + k] -= a[e, k]
    stage[0, 1] = m
    search(gap, absolute, nodes, evaluations, number, whole, a, small, matrix, level, stage, best,
           count)  # fmt: skip
    plant(count, c, small, level, stage, whole, best)
    if best[1] <= best[0] + max(gap * best[0], absolute):
        best[2] = best[1]
        count[1] = -1
