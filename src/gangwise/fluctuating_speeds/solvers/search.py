"""Inner loops of branch and bound for P3: depth first on Lagrangian bounds, able to stop and go on.

With reduced costs ρ_e = v_e + s_e/(2q) - u·a_e and D the bound at (q, u), every feasible x is worth

    v·x + √(s·x) = D - u·(c - A x) - Σ_{e: x_e ≠ [ρ_e > 0]} |ρ_e| - (√(s·x) - q)²/(2q),

so a channel whose |ρ_e| exceeds the gap is settled, and the least |ρ_e| is the one to branch on.

Work space, for E channels and K device types: ``number`` [4, E] v, s, ρ, density; ``whole`` [6, E]
channel of an item, open items, decisions, best choice, order, trial; ``a`` [E, K]; ``small``
[8, max(K + 1, 2)]; ``matrix`` [2, K + 1, K + 1] basis and metric; ``level`` [E + 2, 2 K + 5] and
``stage`` [E + 2, 3] the path of the search; ``best`` [4] value, bound at the root, largest bound
pruned, bound; ``count`` [4] items, depth, nodes, unplayed channels.
"""

from __future__ import annotations

import math

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.jit import kernel
from gangwise.fluctuating_speeds.solvers.kernels import (
    greedy,
    lagrangian_bound,
    local_search,
    polyak_steps,
    r_algorithm,
    sort_descending,
)

BLURRED = 1e-3
"""With a gap above this, the greedy is tried with blurred densities as well."""


MOST_V, MOST_S = 1e100, 1e200
"""Larger numbers are refused: their squares and sums overflow, and a bound proves nothing."""


@kernel
def _gather(
    v_all: Floats,
    s_all: Floats,
    available: Bools,
    a_all: Floats,
    c: Floats,
    number: Floats,
    whole: Ints,
    a: Floats,
    count: Ints,
) -> int:
    """Preprocessing: gather the channels that could be chosen; -1, or one with bad numbers."""
    K = c.shape[0]
    n, unplayed = 0, 0
    for e in range(v_all.shape[0]):
        if not available[e]:
            continue
        small_enough = abs(v_all[e]) <= MOST_V and (s_all[e] <= MOST_S or s_all[e] == math.inf)
        if not (small_enough and s_all[e] >= 0.0):
            return e
        fits = True
        for k in range(K):
            fits = fits and a_all[e, k] <= c[k]
        if not fits:
            continue
        if s_all[e] == math.inf:
            unplayed += 1
        elif v_all[e] > 0.0 or s_all[e] > 0.0:
            whole[0, n] = e
            number[0, n] = v_all[e]
            number[1, n] = s_all[e]
            for k in range(K):
                a[n, k] = a_all[e, k]
            n += 1
    count[0] = n
    count[3] = unplayed
    return -1


@kernel
def _starting_point(
    n: int, number: Floats, a: Floats, c: Floats, small: Floats, matrix: Floats
) -> None:
    """Starting point (u, ln q), the units of its axes, and the basis that follows from them."""
    K = c.shape[0]
    v, s = number[0], number[1]
    point, load = small[0], small[2]
    y, share = 0.0, 1.0
    for k in range(K):
        load[k] = 0.0
    for e in range(n):
        y += s[e]
        for k in range(K):
            load[k] += a[e, k]
    for k in range(K):
        if load[k] > c[k]:
            share = min(share, c[k] / load[k])
    # √y is tangent at q = √y; y is guessed by the share of all requests that fits.
    q = math.sqrt(max(share, 1.0 / n) * y)
    half = 0.5 / q if y > 0.0 else 0.0
    worth = 0.5 * q
    for e in range(n):
        worth += max(0.0, v[e] + s[e] * half)
    if math.isnan(point[K]):  # no warm start
        for k in range(K):
            point[k] = 0.5 * worth / (K * load[k]) if load[k] > c[k] else 0.0
    if y == 0.0:
        point[K] = -math.inf
    elif not abs(point[K]) < math.inf:
        point[K] = math.log(q)
    for k in range(K + 1):
        for h in range(K + 1):
            matrix[0, k, h] = 0.0
        matrix[0, k, k] = worth / (K * load[k]) if k < K and load[k] > 0.0 else 1.0


@kernel
def _greedy(
    n: int,
    number: Floats,
    whole: Ints,
    a: Floats,
    c: Floats,
    small: Floats,
    best: Floats,
    warm: Bools,
    blur: float,
) -> None:
    """Greedy and local search: improve ``best[0]`` from the prices ``small[1]`` and the warm start.

    ``blur`` changes the densities by up to this share, so that channels of equal density but
    different requests take turns instead of coming kind by kind.
    """
    K = c.shape[0]
    v, s, density = number[0], number[1], number[3]
    order, trial, chosen = whole[4], whole[5], whole[3]
    point, left, sums = small[1], small[2, :K], small[3]
    half = 0.5 / math.exp(point[K]) if point[K] > -math.inf else 0.0
    for e in range(n):
        price = 1e-300
        for k in range(K):
            price += max(point[k], 0.0) * a[e, k]
        spread = (e * 0.6180339887498949) % 1.0
        density[e] = (v[e] + s[e] * half) / price * (1.0 + blur * spread)
    sort_descending(density, order, n)
    for start in range(2 if warm.shape[0] > 0 else 1):
        for k in range(K):
            left[k] = c[k]
        sums[0], sums[1] = 0.0, 0.0
        for e in range(n):
            trial[e] = 0
        if start == 1:
            for e in range(n):
                take = warm[whole[0, e]]
                for k in range(K):
                    take = take and a[e, k] <= left[k]
                if take:
                    trial[e] = 1
                    sums[0] += v[e]
                    sums[1] += s[e]
                    for k in range(K):
                        left[k] -= a[e, k]
        border = greedy(v, s, a, order, n, trial, left, sums)
        low, high = (0, n) if n <= 64 else (max(0, border - 32), min(n, border + 32))
        local_search(v, s, a, order, low, high, trial, left, sums, 8)
        # Summed afresh: adding and dropping leaves rounding behind.
        gain, y = 0.0, 0.0
        for e in range(n):
            if trial[e] != 0:
                gain += v[e]
                y += s[e]
        if gain + math.sqrt(y) > best[0]:
            best[0] = gain + math.sqrt(y)
            for e in range(n):
                chosen[e] = trial[e]


@kernel
def reset_tree(
    count: Ints, c: Floats, small: Floats, level: Floats, stage: Ints, whole: Ints, best: Floats
) -> None:
    """Reset the tree to its root: every item open, at the point ``small[7]``."""
    K = c.shape[0]
    for e in range(count[0]):
        whole[1, e] = e
    for k in range(K + 1):
        level[0, k] = small[7, k]
    level[0, K + 1], level[0, K + 2], level[0, K + 3] = 0.0, 0.0, best[1]
    for k in range(K):
        level[0, K + 5 + k] = c[k]
    stage[0, 0], stage[0, 1], stage[0, 2] = 0, count[0], -1
    best[2], best[3] = 0.0, max(best[1], best[0])
    count[1] = 0


@kernel
def root(
    v_all: Floats,
    s_all: Floats,
    available: Bools,
    a_all: Floats,
    c: Floats,
    warm: Bools,
    gap: float,
    absolute: float,
    evaluations: int,
    number: Floats,
    whole: Ints,
    a: Floats,
    small: Floats,
    matrix: Floats,
    level: Floats,
    stage: Ints,
    best: Floats,
    count: Ints,
) -> int:
    """Root of the tree: bound and greedy choice; -1, or the first channel with senseless numbers.

    ``small[0]`` is the point to start from (NaN: none); ``small[7]`` receives the best one.
    With unplayed channels, s = +inf, it counts them and stops.
    """
    K = c.shape[0]
    best[0], best[1], best[2], best[3] = 0.0, math.inf, 0.0, 0.0
    count[1], count[2] = -1, 0
    small[7, K] = math.nan
    bad = _gather(v_all, s_all, available, a_all, c, number, whole, a, count)
    n = count[0]
    if bad >= 0 or n == 0 or count[3] > 0:
        return bad
    v, s, reduced = number[0], number[1], number[2]
    free, decided, chosen = whole[1], whole[2], whole[3]
    for e in range(n):
        free[e] = e
        chosen[e] = 0
    cold = math.isnan(small[0, K])
    _starting_point(n, number, a, c, small, matrix)
    step = 0.5 if cold else 0.05
    step = r_algorithm(
        v,
        s,
        a,
        free,
        n,
        c,
        matrix[0],
        small,
        step,
        evaluations // 3,
        1e-3,
        reduced,
        decided,
        chosen,
        best,
    )
    _greedy(n, number, whole, a, c, small, best, warm, 0.0)
    if best[1] > best[0] + max(gap * best[0], absolute):
        for k in range(K + 1):
            small[0, k] = small[1, k]
        r_algorithm(
            v,
            s,
            a,
            free,
            n,
            c,
            matrix[0],
            small,
            step,
            evaluations,
            0.02 if n <= 64 else 1e-5,
            reduced,
            decided,
            chosen,
            best,
        )
        if n > 64:
            _greedy(n, number, whole, a, c, small, best, warm[:0], 0.0)
        blur = 1e-3
        while blur < 0.5 and best[1] > best[0] + max(gap * best[0], absolute, BLURRED * best[0]):
            _greedy(n, number, whole, a, c, small, best, warm[:0], blur)
            blur *= 5.0
    # The metric B Bᵀ that the r-algorithm learned serves the Polyak steps of all nodes.
    for k in range(K + 1):
        small[7, k] = small[1, k]
        for h in range(K + 1):
            matrix[1, k, h] = 0.0
            for j in range(K + 1):
                matrix[1, k, h] += matrix[0, k, j] * matrix[0, h, j]
    reset_tree(count, c, small, level, stage, whole, best)
    if best[1] <= best[0] + max(gap * best[0], absolute):
        best[2] = best[1]
        count[1] = -1
    return -1


@kernel
def _fix_variables(
    d: int,
    f: float,
    number: Floats,
    free: Ints,
    decided: Ints,
    a: Floats,
    level: Floats,
    stage: Ints,
    gap: float,
    absolute: float,
    best: Floats,
) -> float:
    """Variable fixing by reduced costs; the node's bound, or -inf when nothing is left."""
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
        elif f - abs(reduced[e]) <= target:  # the other value of x_e would be pruned: fix this one
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
def _dominates(i: int, j: int, v: Floats, s: Floats, a: Floats) -> bool:
    """Dominance: some best choice that has j has i, worth no less and taking no more."""
    if v[i] < v[j] or s[i] < s[j]:
        return False
    better = i < j or v[i] > v[j] or s[i] > s[j]
    for k in range(a.shape[1]):
        if a[i, k] > a[j, k]:
            return False
        better = better or a[i, k] < a[j, k]
    return better


@kernel
def _branch(
    d: int,
    value: int,
    number: Floats,
    a: Floats,
    free: Ints,
    decided: Ints,
    level: Floats,
    stage: Ints,
) -> None:
    """Branch: set up depth d + 1, the branching channel, last of the open ones, and what follows.

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
        follows = i == e or (_dominates(e, i, v, s, a) if value == 0 else _dominates(i, e, v, s, a))
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
    gap: float,
    absolute: float,
    nodes: int,
    evaluations: int,
    number: Floats,
    whole: Ints,
    a: Floats,
    small: Floats,
    matrix: Floats,
    level: Floats,
    stage: Ints,
    best: Floats,
    count: Ints,
) -> None:
    """Branch and bound for P3, ESDP (12), depth first, for ``nodes`` more nodes or to its end."""
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
            f = polyak_steps(
                v,
                s,
                a,
                free,
                n,
                m,
                here[K + 1],
                here[K + 2],
                here[K + 5 :],
                matrix[1],
                small,
                evaluations,
                gap,
                absolute,
                reduced,
                decided,
                chosen,
                best,
            )
            if min(f, here[K + 3]) <= best[0] + max(gap * best[0], absolute):
                best[2] = max(best[2], min(f, here[K + 3]))
                d -= 1
                continue
            for k in range(K + 1):
                here[k] = small[1, k]
            f = _fix_variables(d, f, number, free, decided, a, level, stage, gap, absolute, best)
            m = stage[d, 1]
            if f == -math.inf:
                d -= 1
                continue
            if m == 0:  # a leaf: everything is decided
                worth = here[K + 1] + math.sqrt(here[K + 2])
                if worth > best[0]:
                    best[0] = worth
                    for e in range(n):
                        chosen[e] = decided[e]
                d -= 1
                continue
            # Branch on the most undecided channel, its relaxed value first.
            least, place = math.inf, 0
            for j in range(m):
                if abs(reduced[free[j]]) < least:
                    least, place = abs(reduced[free[j]]), j
            e = free[place]
            free[place], free[m - 1] = free[m - 1], e
            stage[d, 0] = 1
            stage[d, 2] = 1 if reduced[e] > 0.0 else 0
            here[K + 4] = f - least  # bound of the branch against the relaxed value
            _branch(d, stage[d, 2], number, a, free, decided, level, stage)
            d += 1
        elif stage[d, 0] == 1:
            stage[d, 0] = 2
            if here[K + 4] <= best[0] + max(gap * best[0], absolute):
                best[2] = max(best[2], here[K + 4])
            else:
                _branch(d, 1 - stage[d, 2], number, a, free, decided, level, stage)
                level[d + 1, K + 3] = here[K + 4]
                d += 1
        else:
            d -= 1
    count[1] = d
    count[2] += nodes - left
    # What is still open on the path bounds the rest, with all that was pruned.
    bound = max(best[2], best[0])
    for i in range(d + 1):
        if stage[i, 0] < 2:
            bound = max(bound, level[i, K + 3 + stage[i, 0]])
    best[3] = min(bound, max(best[1], best[0]))


@kernel
def core_search(
    gap: float,
    absolute: float,
    core: int,
    nodes: int,
    evaluations: int,
    c: Floats,
    number: Floats,
    whole: Ints,
    a: Floats,
    small: Floats,
    matrix: Floats,
    level: Floats,
    stage: Ints,
    best: Floats,
    count: Ints,
) -> None:
    """Core search: improve the choice among the ``core`` or fewer channels with the least |ρ|.

    The others keep their relaxed choice. Afterwards the search stands at its beginning again.
    """
    K = a.shape[1]
    n = count[0]
    if count[1] < 0 or n <= core:
        return
    v, s, reduced, free, decided = number[0], number[1], number[2], whole[1], whole[2]
    f = lagrangian_bound(small[7], v, s, a, free, n, 0.0, 0.0, c, reduced, small[2], small[6])
    # Bisect the |ρ| below which three quarters of the core to all of it lie.
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
    search(
        gap,
        absolute,
        nodes,
        evaluations,
        number,
        whole,
        a,
        small,
        matrix,
        level,
        stage,
        best,
        count,
    )
    reset_tree(count, c, small, level, stage, whole, best)
    if best[1] <= best[0] + max(gap * best[0], absolute):
        best[2] = best[1]
        count[1] = -1
