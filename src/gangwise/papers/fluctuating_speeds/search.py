"""Inner loops of branch and bound for P3: Lagrangian bounds, a greedy, and the search on them.

√y ≤ q/2 + y/(2q) for every q > 0, with equality at q = √y. So for every q > 0 and u

    F(q, u) = q/2 + Σ_k |u_k| c_k + Σ_e max(0, ρ_e),   ρ_e = v_e + s_e/(2q) - Σ_k u_k a_ek,

is at least max v·x + √(s·x) over A x ≤ c. (The usual bound has u ≥ 0; F equals it there and is
larger elsewhere, which leaves K + 1 numbers without constraints.) With p = ln q, F is convex in
(p, u). A root descends by Shor's r-algorithm, which learns a metric on the way; a node of the
search takes Polyak steps in that metric towards the value that would prune it. A point [K + 1] is
u, then p; p = -inf stands for q = 0, right when every s is 0.

With D = F(q, u), every feasible x is worth

    v·x + √(s·x) = D - u·(c - A x) - Σ_{e: x_e ≠ [ρ_e > 0]} |ρ_e| - (√(s·x) - q)²/(2q),

so a channel whose |ρ_e| exceeds the gap is settled, and the least |ρ_e| is the one to branch on,
its relaxed value first. Channels are taken by density, and single ones added, dropped and swapped.
A relaxed optimum is fractional in at most K + 1 channels, so the certified gap shrinks as their
number grows. A channel that is worth no more and takes no less than another is never chosen without
it: early in a run, when many channels look alike, the tree would be endless otherwise.
"""

import math
from typing import NamedTuple

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.jit import inlined_kernel, inner_kernel, lean_kernel

BLURRED = 1e-3
"""With a gap above this, the greedy is tried with blurred densities as well."""


LARGEST_V, LARGEST_S = 1e100, 1e200
"""Larger numbers are refused: their squares and sums overflow, and a bound proves nothing."""


class P3Data(NamedTuple):
    """P3 of a slot over all channels, before those that cannot be chosen are left out."""

    v: Floats
    s: Floats
    available: Bools
    requests: Floats
    capacity: Floats
    warm: Bools  # a choice to try, or empty


class Tree(NamedTuple):
    """Work space of the search, for E channels and K device types.

    ``free`` holds the open items in its first places and the decided ones behind them.
    """

    number: Floats  # [4, E] v, s, ρ, density
    whole: Ints  # [6, E] channel of an item, free, decisions, best choice, order, trial
    a: Floats  # [E, K] requests of the items
    c: Floats  # [K]
    small: Floats  # [8, max(K + 1, 2)] points, slopes and ways; [6] relaxed value and 1 if it fits
    matrix: Floats  # [2, K + 1, K + 1] basis and metric
    level: Floats  # [E + 2, 2 K + 5] path: point, Σ v, Σ s taken, bound, bound of the branch, room
    stage: Ints  # [E + 2, 3] path: branches tried, open items, value of the first branch
    best: Floats  # [4] value, bound at the root, largest bound pruned, bound
    counts: Ints  # [3] items, depth, nodes


# The Lagrangian bound, and two ways down it


@inlined_kernel
def close_enough(t: Tree, gap: float, absolute: float) -> float:
    """Bound up to which a part of the tree need not be searched."""
    return float(t.best[0] + max(gap * t.best[0], absolute))


@inlined_kernel
def lagrangian_bound(
    t: Tree, point: Floats, slope: Floats, count: int, v_in: float, s_in: float, room: Floats
) -> float:
    """Lagrangian bound F with ``v_in``, ``s_in`` taken in and ``room`` [K] left for open channels.

    Writes a subgradient to ``slope`` [K + 1], reduced costs of the ``count`` open channels, and to
    ``small[6]`` the value of the relaxed choice {ρ > 0} and 1 if it fits, else 0.
    """
    a, v, s, reduced = t.a, t.number[0], t.number[1], t.number[2]
    free, part = t.whole[1], t.small[6]
    K = a.shape[1]
    q, half = 0.0, 0.0  # q and 1/(2q); both stay 0 where every s is 0
    if point[K] > -math.inf:
        # The search runs over ln q, so that q stays positive without a constraint.
        q = math.exp(point[K])
        half = 0.5 / q
    whole, y, gain = 0.0, s_in, v_in
    for k in range(K):
        slope[k] = 0.0
    if K == 3:  # the paper's size, with the prices in registers
        u0, u1, u2 = point[0], point[1], point[2]
        l0, l1, l2 = 0.0, 0.0, 0.0
        for j in range(count):
            e = free[j]
            r = v[e] + s[e] * half - u0 * a[e, 0] - u1 * a[e, 1] - u2 * a[e, 2]
            reduced[e] = r
            x = 1.0 if r > 0.0 else 0.0
            whole += x * r
            y += x * s[e]
            gain += x * v[e]
            l0 += x * a[e, 0]
            l1 += x * a[e, 1]
            l2 += x * a[e, 2]
        slope[0], slope[1], slope[2] = l0, l1, l2
    else:
        for j in range(count):
            e = free[j]
            r = v[e] + s[e] * half
            for k in range(K):
                r -= point[k] * a[e, k]
            reduced[e] = r
            if r > 0.0:
                whole += r
                y += s[e]
                gain += v[e]
                for k in range(K):
                    slope[k] += a[e, k]
    # The slope in u is the slack of each capacity; in p = ln q it is q/2 - y/(2q), 0 at q = √y.
    fits = 1.0
    # What was decided on counts as it is: v_in, and s_in at the tangent like all other variances.
    whole += v_in + 0.5 * q + s_in * half
    for k in range(K):
        if slope[k] > room[k]:
            fits = 0.0
        whole += abs(point[k]) * room[k]  # |u|, so that u needs no sign; see the head of the file
        slope[k] = (room[k] if point[k] >= 0.0 else -room[k]) - slope[k]
    slope[K] = 0.5 * q - y * half
    part[0] = gain + math.sqrt(y)
    part[1] = fits
    return whole


@inner_kernel
def record_relaxed(t: Tree, count: int) -> None:
    """Relaxed choice: {ρ > 0} of the open items, with the decided ones, is the best so far."""
    reduced, free, decided, chosen = t.number[2], t.whole[1], t.whole[2], t.whole[3]
    for j in range(count):
        chosen[free[j]] = 1 if reduced[free[j]] > 0.0 else 0
    for j in range(count, t.counts[0]):
        chosen[free[j]] = decided[free[j]]


@inner_kernel
def _transform(basis: Floats, slope: Floats, turn: Floats, K: int) -> float:
    """Bᵀ g into ``turn``; returns its norm."""
    norm = 0.0
    for k in range(K + 1):
        turn[k] = 0.0
        for h in range(K + 1):
            turn[k] += basis[h, k] * slope[h]
        norm += turn[k] * turn[k]
    return math.sqrt(norm)


@inner_kernel
def _transform_back(basis: Floats, turn: Floats, norm: float, way: Floats, K: int) -> None:
    for k in range(K + 1):
        way[k] = 0.0
        for h in range(K + 1):
            way[k] += basis[k, h] * turn[h] / norm


@inner_kernel
def r_algorithm(t: Tree, step: float, evaluations: int, tolerance: float) -> float:
    """Shor's r-algorithm: minimise F from ``small[0]``; returns the step to go on with.

    ``small[1]`` receives the point of the smallest F. Stops when a step promises less than
    ``tolerance`` times the gap.
    """
    K, n, c, best, basis = t.c.shape[0], t.counts[0], t.c, t.best, t.matrix[0]
    point, lowest, slope, later = t.small[0], t.small[1], t.small[2], t.small[3]
    way, turn, part = t.small[4], t.small[5], t.small[6]
    f = lagrangian_bound(t, point, slope, n, 0.0, 0.0, c)
    used, short_steps = 1, 0
    while True:
        if f < best[1]:
            best[1] = f
            for k in range(K + 1):
                lowest[k] = point[k]
        if part[1] > 0.0 and part[0] > best[0]:
            best[0] = part[0]
            record_relaxed(t, n)
        # The subgradient in the transformed space, Bᵀ g; the way back is B (Bᵀ g) / ‖Bᵀ g‖.
        norm = _transform(basis, slope, turn, K)
        short_steps = short_steps + 1 if step * norm <= tolerance * (best[1] - best[0]) else 0
        # One short step may still turn a corner; after three in a row nothing more is to be had.
        if used >= evaluations or norm <= 1e-13 * abs(f) or short_steps > 2:
            return step
        _transform_back(basis, turn, norm, way, K)
        # Go on until F rises along the way, with longer steps where two were not enough.
        tries = 0
        while True:
            for k in range(K + 1):
                point[k] -= step * way[k]
            if point[K] > -math.inf:
                # exp(±300) is a finite float: neither q nor 1/(2q) may overflow on a long step.
                point[K] = min(max(point[K], -300.0), 300.0)
            f = lagrangian_bound(t, point, later, n, 0.0, 0.0, c)
            used += 1
            tries += 1
            if f < best[1]:
                best[1] = f
                for k in range(K + 1):
                    lowest[k] = point[k]
            # F is convex: once the slope along the way is not positive, its minimum is behind us.
            ahead = 0.0
            for k in range(K + 1):
                ahead += way[k] * later[k]
            if ahead <= 0.0 or used >= evaluations:
                break
            if tries >= 2:
                step *= 1.6
        if tries == 1:  # the first step went too far
            step *= 0.8
        # Dilate space along the difference of two subgradients: B ← B (I - 0.6 ξ ξᵀ).
        for k in range(K + 1):
            slope[k] = later[k] - slope[k]
        norm = _transform(basis, slope, turn, K)
        for k in range(K + 1):
            slope[k] = later[k]
        if norm > 0.0:
            _transform_back(basis, turn, norm, way, K)
            for k in range(K + 1):
                for h in range(K + 1):
                    basis[k, h] -= 0.6 * way[k] * turn[h] / norm


@inner_kernel
def polyak_steps(t: Tree, d: int, gap: float, absolute: float, evaluations: int) -> float:
    """Polyak steps: from the point of depth d until F is small enough to prune; the smallest F.

    ``small[1]`` receives its point, at which ``reduced`` is left. A relaxed choice that fits and is
    worth more than ``best[0]`` is recorded.
    """
    K, level, count, metric, best = t.c.shape[0], t.level[d], t.stage[d, 1], t.matrix[1], t.best
    v_in, s_in, room = level[K + 1], level[K + 2], level[K + 5 :]
    point, lowest, slope, way, part = t.small[0], t.small[1], t.small[2], t.small[4], t.small[6]
    for k in range(K + 1):
        point[k] = level[k]
    least, scale = math.inf, 1.0
    for _ in range(evaluations):
        f = lagrangian_bound(t, point, slope, count, v_in, s_in, room)
        if part[1] > 0.0 and part[0] > best[0]:
            best[0] = part[0]
            record_relaxed(t, count)
        margin = max(gap * best[0], absolute)
        if f < least:
            least = f
            for k in range(K + 1):
                lowest[k] = point[k]
        else:  # overshot: the target below is lower than what F can reach
            scale *= 0.6
        if f <= best[0] + margin:  # nothing in this node can be better by more than the gap
            return f
        curve = 0.0
        for k in range(K + 1):
            way[k] = 0.0
            for h in range(K + 1):
                way[k] += metric[k, h] * slope[h]
            curve += way[k] * slope[k]
        if curve <= 1e-26 * f * f:  # the subgradient is zero but for rounding: F is at its minimum
            break
        # Polyak: the step that would reach the target if F were linear, in the root's metric.
        length = scale * (f - best[0] - 0.5 * margin) / curve
        for k in range(K + 1):
            point[k] -= length * way[k]
        if point[K] > -math.inf:
            point[K] = min(max(point[K], -300.0), 300.0)
    return lagrangian_bound(t, lowest, slope, count, v_in, s_in, room)


# Greedy and local search


@inner_kernel
def sort_descending(key: Floats, order: Ints, n: int) -> None:
    """Heap sort: 0 … n-1 by falling ``key``, ties by rising number."""
    for i in range(n):
        order[i] = i
    end, start = n, n // 2
    while end > 1:
        if start > 0:  # first build the heap, its smallest key on top
            start -= 1
        else:  # then move the top behind the heap, which leaves the keys falling
            end -= 1
            order[end], order[0] = order[0], order[end]
        root = start
        while True:
            child = 2 * root + 1
            if child >= end:
                break
            if child + 1 < end:
                x, y = order[child], order[child + 1]
                if key[y] < key[x] or (key[y] == key[x] and y > x):
                    child += 1
            x, y = order[root], order[child]
            if key[y] < key[x] or (key[y] == key[x] and y > x):
                order[root], order[child] = y, x
                root = child
            else:
                break


@inner_kernel
def _fits(a: Floats, e: int, left: Floats) -> bool:
    """Whether channel e requests no more of any device type than ``left`` [K]."""
    fits = True
    for k in range(a.shape[1]):
        fits = fits and a[e, k] <= left[k]
    return fits


@inner_kernel
def _switch_on(t: Tree, e: int, left: Floats, sums: Floats) -> None:
    """Add channel e to the trial: its worth to ``sums``, its requests off ``left`` [K]."""
    t.whole[5, e] = 1
    sums[0] += t.number[0, e]
    # Both sums are kept, since the root of the second is taken of all channels together.
    sums[1] += t.number[1, e]
    for k in range(t.a.shape[1]):
        left[k] -= t.a[e, k]


@inner_kernel
def greedy(t: Tree, left: Floats, sums: Floats) -> int:
    """Greedy: add channels in order while they fit and pay; the place of the first left out.

    The trial, ``left`` [K] (capacity left) and ``sums`` (Σ v x, Σ s x) are carried on.
    """
    v, s, a, order, chosen = t.number[0], t.number[1], t.a, t.whole[4], t.whole[5]
    n = t.counts[0]
    border = n
    for j in range(n):
        e = order[j]
        if chosen[e] != 0:
            continue
        # What a channel adds depends on what is in: the root grows less the more it holds.
        pays = v[e] + math.sqrt(sums[1] + s[e]) > math.sqrt(sums[1])
        if pays and _fits(a, e, left):
            _switch_on(t, e, left, sums)
        elif border == n:
            border = j
    return int(border)


@inner_kernel
def local_search(t: Tree, low: int, high: int, left: Floats, sums: Floats, passes: int) -> None:
    """Local search: adds, drops and swaps among ``order[low:high]`` for as long as they pay."""
    v, s, a, order, chosen = t.number[0], t.number[1], t.a, t.whole[4], t.whole[5]
    K = a.shape[1]
    for _ in range(passes):
        changed = False
        for i in range(low, high):
            out = order[i]
            if chosen[out] == 0:
                value = math.sqrt(sums[1])
                gain = v[out] + math.sqrt(sums[1] + s[out]) - value
                # More than rounding, or the search would go round in circles.
                if _fits(a, out, left) and gain > 1e-12 * (value + 1e-300):
                    _switch_on(t, out, left, sums)
                    changed = True
                continue
            # Drop it, or swap it for the one of those that would then fit that is worth most.
            value = sums[0] + math.sqrt(max(sums[1], 0.0))
            v_rest, s_rest = sums[0] - v[out], max(sums[1] - s[out], 0.0)
            # -2: leave it in; -1: drop it; a channel: swap it for that one.
            most, into = value * (1.0 + 1e-12), -2
            if v_rest + math.sqrt(s_rest) > most:
                most, into = v_rest + math.sqrt(s_rest), -1
            for j in range(low, high):
                e = order[j]
                if chosen[e] == 0 and (v[e] > v[out] or s[e] > s[out]):
                    fits = True
                    for k in range(K):
                        fits = fits and a[e, k] <= left[k] + a[out, k]
                    if fits:
                        worth = v_rest + v[e] + math.sqrt(s_rest + s[e])
                        if worth > most:
                            most, into = worth, e
            if into == -2:
                continue
            changed = True
            chosen[out] = 0
            sums[0], sums[1] = v_rest, s_rest
            for k in range(K):
                left[k] += a[out, k]
            if into >= 0:
                _switch_on(t, into, left, sums)
        if not changed:
            return


# The root


@inner_kernel
def _gather(t: Tree, given: P3Data) -> int:
    """Preprocessing: gather the channels that could be chosen; -1, or one with bad numbers."""
    c, v_all, s_all, a_all = given.capacity, given.v, given.s, given.requests
    K = c.shape[0]
    for k in range(K):
        t.c[k] = c[k]
    n = 0
    for e in range(v_all.shape[0]):
        if not given.available[e]:
            continue
        # Comparisons that are false for NaN, so that it counts as bad.
        if not (abs(v_all[e]) <= LARGEST_V and 0.0 <= s_all[e] <= LARGEST_S):
            return e
        if not _fits(a_all, e, c):
            continue
        if v_all[e] > 0.0 or s_all[e] > 0.0:  # else it adds nothing to any choice
            t.whole[0, n] = e
            t.number[0, n] = v_all[e]
            t.number[1, n] = s_all[e]
            for k in range(K):
                t.a[n, k] = a_all[e, k]
            n += 1
    t.counts[0] = n
    return -1


@inner_kernel
def _starting_point(t: Tree) -> None:
    """Starting point (u, ln q), the units of its axes, and the basis that follows from them."""
    a, c, v, s = t.a, t.c, t.number[0], t.number[1]
    K, n, point, load = c.shape[0], t.counts[0], t.small[0], t.small[2]
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
    # Without variances the root is 0 whatever is chosen, and q = 0 is its exact tangent.
    if y == 0.0:
        point[K] = -math.inf
    elif not abs(point[K]) < math.inf:
        point[K] = math.log(q)
    for k in range(K + 1):
        for h in range(K + 1):
            t.matrix[0, k, h] = 0.0
        # The unit of a price: what the channels are worth per device, shared by the device types.
        t.matrix[0, k, k] = worth / (K * load[k]) if k < K and load[k] > 0.0 else 1.0


@inner_kernel
def _primal_heuristic(t: Tree, warm: Bools, blur: float) -> None:
    """Primal heuristic: improve ``best[0]`` by a greedy and local search.

    It starts from the prices ``small[1]`` and from the choice ``warm``. ``blur`` changes the
    densities by up to this share, so that channels of equal density but different requests take
    turns instead of coming kind by kind.
    """
    K, n, a = t.c.shape[0], t.counts[0], t.a
    v, s, density, trial = t.number[0], t.number[1], t.number[3], t.whole[5]
    point, remaining, sums = t.small[1], t.small[2, :K], t.small[3]
    half = 0.5 / math.exp(point[K]) if point[K] > -math.inf else 0.0
    for e in range(n):
        # Never 0, so that a channel which takes nothing that is scarce has the largest density.
        price = 1e-300
        for k in range(K):
            price += max(point[k], 0.0) * a[e, k]
        # Shifts that do not repeat: channels of one kind are spread among those of others.
        spread = (e * 0.6180339887498949) % 1.0  # golden ratio: evenly spread for any number of e
        # Relaxed worth per price of what it takes: the order of a fractional knapsack.
        density[e] = (v[e] + s[e] * half) / price * (1.0 + blur * spread)
    sort_descending(density, t.whole[4], n)
    for start in range(2 if warm.shape[0] > 0 else 1):
        for k in range(K):
            remaining[k] = t.c[k]
        sums[0], sums[1] = 0.0, 0.0
        for e in range(n):
            trial[e] = 0
        if start == 1:
            for e in range(n):
                if warm[t.whole[0, e]] and _fits(a, e, remaining):
                    _switch_on(t, e, remaining, sums)
        border = greedy(t, remaining, sums)
        # Swaps cost n²; only the channels near the border of the greedy are in doubt.
        low, high = (0, n) if n <= 64 else (max(0, border - 32), min(n, border + 32))
        local_search(t, low, high, remaining, sums, 8)
        # Summed afresh: adding and dropping leaves rounding behind.
        gain, y = 0.0, 0.0
        for e in range(n):
            if trial[e] != 0:
                gain += v[e]
                y += s[e]
        if gain + math.sqrt(y) > t.best[0]:
            t.best[0] = gain + math.sqrt(y)
            for e in range(n):
                t.whole[3, e] = trial[e]


@inner_kernel
def reset_tree(t: Tree, gap: float, absolute: float) -> None:
    """Reset the tree to its root: every item open, at the point ``small[7]``; or done already."""
    K, level, best = t.c.shape[0], t.level[0], t.best
    for e in range(t.counts[0]):
        t.whole[1, e] = e
    # The root's point of the relaxation is the one that its own bound came from.
    for k in range(K + 1):
        level[k] = t.small[7, k]
    level[K + 1], level[K + 2], level[K + 3] = 0.0, 0.0, best[1]
    # All of the capacity is left at the root.
    for k in range(K):
        level[K + 5 + k] = t.c[k]
    t.stage[0, 0], t.stage[0, 1], t.stage[0, 2] = 0, t.counts[0], -1
    # No branch is pruned yet, so that what is proved is the bound of the root alone.
    best[2], best[3] = 0.0, max(best[1], best[0])
    t.counts[1] = 0
    # The first answer is within the gap of the root's bound already.
    if best[1] <= close_enough(t, gap, absolute):
        best[2] = best[1]
        # Depth -1 says that the search is over; ``finished`` reads it.
        t.counts[1] = -1


@lean_kernel
def root(t: Tree, given: P3Data, gap: float, absolute: float, evaluations: int) -> int:
    """Root of the tree: bound and greedy choice; -1, or the first channel with senseless numbers.

    ``small[0]`` is the point to start from (NaN: none); ``small[7]`` receives the best one.
    """
    small, matrix, best = t.small, t.matrix, t.best
    best[0], best[1], best[2], best[3] = 0.0, math.inf, 0.0, 0.0
    t.counts[1], t.counts[2] = -1, 0
    bad = _gather(t, given)
    K, n = t.c.shape[0], t.counts[0]
    small[7, K] = math.nan
    if bad >= 0 or n == 0:
        return bad
    for e in range(n):
        t.whole[1, e] = e
        t.whole[3, e] = 0
    cold = math.isnan(small[0, K])
    _starting_point(t)
    # From a warm start the minimum is near, and a long first step would only leave it.
    step = 0.5 if cold else 0.05
    # A rough descent first: its prices are good enough for the greedy, whose value tells the second
    # descent when it may stop.
    step = r_algorithm(t, step, evaluations // 3, 1e-3)
    _primal_heuristic(t, given.warm, 0.0)
    if best[1] > close_enough(t, gap, absolute):
        for k in range(K + 1):
            small[0, k] = small[1, k]
        r_algorithm(t, step, evaluations, 0.02 if n <= 64 else 1e-5)
        if n > 64:
            _primal_heuristic(t, given.warm[:0], 0.0)
        blur = 1e-3
        # A wide gap says that channels of equal density hide better choices: other orders are
        # tried.
        while blur < 0.5 and best[1] > best[0] + max(gap * best[0], absolute, BLURRED * best[0]):
            _primal_heuristic(t, given.warm[:0], blur)
            blur *= 5.0
    # The metric B Bᵀ that the r-algorithm learned serves the Polyak steps of all nodes.
    for k in range(K + 1):
        small[7, k] = small[1, k]
        for h in range(K + 1):
            matrix[1, k, h] = 0.0
            for j in range(K + 1):
                matrix[1, k, h] += matrix[0, k, j] * matrix[0, h, j]
    reset_tree(t, gap, absolute)
    return -1


# The tree below it


@inner_kernel
def _fix_variables(t: Tree, d: int, f: float, gap: float, absolute: float) -> float:
    """Variable fixing by reduced costs; the node's bound, or -inf when nothing is left."""
    a, v, s, reduced, free, best = t.a, t.number[0], t.number[1], t.number[2], t.whole[1], t.best
    K, level, m = a.shape[1], t.level[d], t.stage[d, 1]
    target = close_enough(t, gap, absolute)
    j = 0
    while j < m:
        e = free[j]
        take = reduced[e] > 0.0
        if not _fits(a, e, level[K + 5 :]):  # no completion can have it; F drops what it counted
            if take:
                f -= reduced[e]
            take = False
        elif f - abs(reduced[e]) <= target:  # the other value of x_e would be pruned: fix this one
            best[2] = max(best[2], f - abs(reduced[e]))
        else:
            j += 1
            continue
        t.whole[2, e] = 1 if take else 0
        if take:  # goes over from the open channels to what is in; F stays as it is
            level[K + 1] += v[e]
            level[K + 2] += s[e]
            for k in range(K):
                level[K + 5 + k] -= a[e, k]
        m -= 1
        free[j], free[m] = free[m], e
    t.stage[d, 1] = m
    level[K + 3] = min(level[K + 3], f)
    if f <= target:
        best[2] = max(best[2], f)
        return -math.inf
    return f


@inner_kernel
def _dominates(i: int, j: int, v: Floats, s: Floats, a: Floats) -> bool:
    """Dominance: some best choice that has j has i, worth no less and taking no more."""
    if v[i] < v[j] or s[i] < s[j]:
        return False
    # Of two alike the first dominates, which makes the order strict.
    better = i < j or v[i] > v[j] or s[i] > s[j]
    for k in range(a.shape[1]):
        if a[i, k] > a[j, k]:
            return False
        better = better or a[i, k] < a[j, k]
    return better


@inner_kernel
def _branch(t: Tree, d: int, value: int) -> None:
    """Branch: set up depth d + 1, the branching channel, last of the open ones, and what follows.

    Without it, no channel that it comes before; with it, every channel that comes before it. The
    order is partial and strict, so exchanging along it turns some optimum into one that obeys.
    """
    a, v, s, free = t.a, t.number[0], t.number[1], t.whole[1]
    K, m, below = a.shape[1], t.stage[d, 1] - 1, t.level[d + 1]
    e = free[m]
    # A child begins as its parent; only what follows from its branch is added.
    for k in range(2 * K + 5):
        below[k] = t.level[d, k]
    # From the back: channels that follow are swapped behind the open ones, into the places passed.
    j = m
    while j >= 0:
        i = free[j]
        follows = i == e or (_dominates(e, i, v, s, a) if value == 0 else _dominates(i, e, v, s, a))
        if follows:
            t.whole[2, i] = value
            # A channel that is on adds its worth, its width and its request to all nodes below.
            if value == 1:
                below[K + 1] += v[i]
                below[K + 2] += s[i]
                for k in range(K):
                    below[K + 5 + k] -= a[i, k]
            if i != e:
                m -= 1
                free[j], free[m] = free[m], i
        j -= 1
    t.stage[d + 1, 0], t.stage[d + 1, 1] = 0, m


@inner_kernel
def _most_undecided(reduced: Floats, free: Ints, m: int) -> int:
    """Position in ``free`` of the channel with the least |ρ_e|."""
    place = 0
    for j in range(1, m):
        if abs(reduced[free[j]]) < abs(reduced[free[place]]):
            place = j
    return place


@lean_kernel
def search(t: Tree, gap: float, absolute: float, nodes: int, evaluations: int) -> None:
    """Branch and bound for P3, ESDP (12), depth first, for ``nodes`` more nodes or to its end."""
    K, level, stage, best = t.c.shape[0], t.level, t.stage, t.best
    reduced, free = t.number[2], t.whole[1]
    n, d, budget = t.counts[0], t.counts[1], nodes
    while d >= 0:
        node = level[d]
        m = stage[d, 1]
        if stage[d, 0] == 0:
            if budget == 0:
                break
            # Nodes are counted, not seconds, so that every machine finds the same choice.
            budget -= 1
            possible = True  # what dominance forced in may exceed the room
            for k in range(K):
                possible = possible and node[K + 5 + k] >= 0.0
            if not possible:
                d -= 1
                continue
            f = polyak_steps(t, d, gap, absolute, evaluations)
            # A node inherits its parent's bound, which may be smaller than what was found here.
            if min(f, node[K + 3]) <= close_enough(t, gap, absolute):
                best[2] = max(best[2], min(f, node[K + 3]))
                d -= 1
                continue
            for k in range(K + 1):
                node[k] = t.small[1, k]
            f = _fix_variables(t, d, f, gap, absolute)
            m = stage[d, 1]
            if f == -math.inf:
                d -= 1
                continue
            if m == 0:  # a leaf: everything is decided
                worth = node[K + 1] + math.sqrt(node[K + 2])
                if worth > best[0]:
                    best[0] = worth
                    for e in range(n):
                        t.whole[3, e] = t.whole[2, e]
                d -= 1
                continue
            # Branch on the most undecided channel, its relaxed value first.
            place = _most_undecided(reduced, free, m)
            e = free[place]
            least = abs(reduced[e])
            free[place], free[m - 1] = free[m - 1], e
            stage[d, 0] = 1
            # The other value loses at least |ρ_e|, so the relaxed one is the likelier and comes
            # first.
            stage[d, 2] = 1 if reduced[e] > 0.0 else 0
            node[K + 4] = f - least  # bound of the branch against the relaxed value
            _branch(t, d, stage[d, 2])
            d += 1
        elif stage[d, 0] == 1:  # back from the first branch: now the other value, if it can pay
            stage[d, 0] = 2
            if node[K + 4] <= close_enough(t, gap, absolute):
                best[2] = max(best[2], node[K + 4])
            else:
                _branch(t, d, 1 - stage[d, 2])
                level[d + 1, K + 3] = node[K + 4]
                d += 1
        else:
            d -= 1
    t.counts[1], t.counts[2] = d, t.counts[2] + nodes - budget
    # What is still open on the path bounds the rest, with all that was pruned.
    bound = max(best[2], best[0])
    for i in range(d + 1):  # at stage 0 the node itself is open, at stage 1 its second branch
        if stage[i, 0] < 2:
            bound = max(bound, level[i, K + 3 + stage[i, 0]])
    best[3] = min(bound, max(best[1], best[0]))


@lean_kernel
def core_search(
    t: Tree, gap: float, absolute: float, core: int, nodes: int, evaluations: int
) -> None:
    """Core search: improve the choice among the ``core`` or fewer channels with the least |ρ|.

    The others keep their relaxed choice. Afterwards the search stands at its beginning again.
    """
    K, n, level = t.c.shape[0], t.counts[0], t.level[0]
    reduced, free = t.number[2], t.whole[1]
    f = lagrangian_bound(t, t.small[7], t.small[2], n, 0.0, 0.0, t.c)
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
    m, back = 0, n
    for e in range(n):
        if abs(reduced[e]) <= low:
            free[m] = e
            m += 1
            continue
        back -= 1
        free[back] = e
        t.whole[2, e] = 1 if reduced[e] > 0.0 else 0
        if reduced[e] > 0.0:
            level[K + 1] += t.number[0, e]
            level[K + 2] += t.number[1, e]
            for k in range(K):
                level[K + 5 + k] -= t.a[e, k]
    # The others count as decided at the root, so the search below sees the core alone.
    t.stage[0, 1] = m
    search(t, gap, absolute, nodes, evaluations)
    reset_tree(t, gap, absolute)
