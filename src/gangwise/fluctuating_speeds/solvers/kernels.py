"""Inner loops for P3: the Lagrangian bound and its minimisers, a greedy, the dynamic programme.

√y ≤ q/2 + y/(2q) for every q > 0, with equality at q = √y. So for every q > 0 and u

    F(q, u) = q/2 + Σ_k |u_k| c_k + Σ_e max(0, v_e + s_e/(2q) - Σ_k u_k a_ek)

is at least max v·x + √(s·x) over A x ≤ c. (The usual bound has u ≥ 0; F equals it there and is
larger elsewhere, which leaves K + 1 numbers without constraints.) With p = ln q, F is convex in
(p, u). A root descends by Shor's r-algorithm, which learns a metric on the way; a node of the
search takes Polyak steps in that metric towards the value that would prune it.

``point`` [K + 1] is u, then p; p = -inf stands for q = 0, right when every s is 0. ``free`` holds
the open channels in its first ``count`` places and the decided ones behind them.
"""

from __future__ import annotations

import math

import numpy as np

from gangwise.core.arrays import Bytes, Floats, Ints
from gangwise.core.jit import kernel


@kernel
def lagrangian_bound(
    point: Floats,
    v: Floats,
    s: Floats,
    a: Floats,
    free: Ints,
    count: int,
    v_in: float,
    s_in: float,
    room: Floats,
    reduced: Floats,
    slope: Floats,
    part: Floats,
) -> float:
    """Lagrangian bound F with ``v_in``, ``s_in`` taken in and ``room`` [K] left for open channels.

    Writes a subgradient to ``slope`` [K + 1], reduced costs of the open channels to ``reduced``
    [E], and to ``part`` the value of the relaxed choice {reduced > 0} and 1 if it fits, else 0.
    """
    K = a.shape[1]
    q, half = 0.0, 0.0
    if point[K] > -math.inf:
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
    whole += v_in + 0.5 * q + s_in * half
    for k in range(K):
        if slope[k] > room[k]:
            fits = 0.0
        whole += abs(point[k]) * room[k]
        slope[k] = (room[k] if point[k] >= 0.0 else -room[k]) - slope[k]
    slope[K] = 0.5 * q - y * half
    part[0] = gain + math.sqrt(y)
    part[1] = fits
    return whole


@kernel
def record_relaxed(
    reduced: Floats, free: Ints, count: int, decided: Ints, n: int, chosen: Ints
) -> None:
    """Relaxed choice: {reduced > 0} of the open channels, with the decided ones, to ``chosen``."""
    for j in range(count):
        chosen[free[j]] = 1 if reduced[free[j]] > 0.0 else 0
    for j in range(count, n):
        chosen[free[j]] = decided[free[j]]


@kernel
def r_algorithm(
    v: Floats,
    s: Floats,
    a: Floats,
    free: Ints,
    n: int,
    room: Floats,
    basis: Floats,
    small: Floats,
    step: float,
    evaluations: int,
    tolerance: float,
    reduced: Floats,
    decided: Ints,
    chosen: Ints,
    best: Floats,
) -> float:
    """Shor's r-algorithm: minimise F from ``small[0]``; returns the step to go on with.

    ``best``: [0] the largest value known, [1] the smallest F; ``small[1]`` is the point of the
    latter. Stops when a step promises less than ``tolerance`` times the gap.
    """
    K = room.shape[0]
    point, lowest, slope, later, way, turn, part = (
        small[0],
        small[1],
        small[2],
        small[3],
        small[4],
        small[5],
        small[6],
    )
    f = lagrangian_bound(point, v, s, a, free, n, 0.0, 0.0, room, reduced, slope, part)
    used, lame = 1, 0
    while True:
        if f < best[1]:
            best[1] = f
            for k in range(K + 1):
                lowest[k] = point[k]
        if part[1] > 0.0 and part[0] > best[0]:
            best[0] = part[0]
            record_relaxed(reduced, free, n, decided, n, chosen)
        # The subgradient in the transformed space, Bᵀ g; the way back is B (Bᵀ g) / ‖Bᵀ g‖.
        norm = 0.0
        for k in range(K + 1):
            turn[k] = 0.0
            for h in range(K + 1):
                turn[k] += basis[h, k] * slope[h]
            norm += turn[k] * turn[k]
        norm = math.sqrt(norm)
        lame = lame + 1 if step * norm <= tolerance * (best[1] - best[0]) else 0
        if used >= evaluations or norm <= 1e-13 * abs(f) or lame > 2:
            return step
        for k in range(K + 1):
            way[k] = 0.0
            for h in range(K + 1):
                way[k] += basis[k, h] * turn[h] / norm
        # Go on until F rises along the way, with longer steps where two were not enough.
        tries = 0
        while True:
            for k in range(K + 1):
                point[k] -= step * way[k]
            if point[K] > -math.inf:
                point[K] = min(max(point[K], -300.0), 300.0)
            f = lagrangian_bound(point, v, s, a, free, n, 0.0, 0.0, room, reduced, later, part)
            used += 1
            tries += 1
            if f < best[1]:
                best[1] = f
                for k in range(K + 1):
                    lowest[k] = point[k]
            ahead = 0.0
            for k in range(K + 1):
                ahead += way[k] * later[k]
            if ahead <= 0.0 or used >= evaluations:
                break
            if tries >= 2:
                step *= 1.6
        if tries == 1:
            step *= 0.8
        # Dilate space along the difference of two subgradients: B ← B (I - 0.6 ξ ξᵀ).
        norm = 0.0
        for k in range(K + 1):
            turn[k] = 0.0
            for h in range(K + 1):
                turn[k] += basis[h, k] * (later[h] - slope[h])
            norm += turn[k] * turn[k]
        norm = math.sqrt(norm)
        for k in range(K + 1):
            slope[k] = later[k]
        if norm > 0.0:
            for k in range(K + 1):
                way[k] = 0.0
                for h in range(K + 1):
                    way[k] += basis[k, h] * turn[h] / norm
            for k in range(K + 1):
                for h in range(K + 1):
                    basis[k, h] -= 0.6 * way[k] * turn[h] / norm


@kernel
def polyak_steps(
    v: Floats,
    s: Floats,
    a: Floats,
    free: Ints,
    n: int,
    count: int,
    v_in: float,
    s_in: float,
    room: Floats,
    metric: Floats,
    small: Floats,
    evaluations: int,
    gap: float,
    absolute: float,
    reduced: Floats,
    decided: Ints,
    chosen: Ints,
    best: Floats,
) -> float:
    """Polyak steps: from ``small[0]`` until F is small enough to prune; the smallest F found.

    ``small[1]`` receives its point, at which ``reduced`` is left. A relaxed choice that fits and is
    worth more than ``best[0]`` is recorded.
    """
    K = room.shape[0]
    point, lowest, slope, way, part = small[0], small[1], small[2], small[4], small[6]
    least, scale = math.inf, 1.0
    for _ in range(evaluations):
        f = lagrangian_bound(point, v, s, a, free, count, v_in, s_in, room, reduced, slope, part)
        if part[1] > 0.0 and part[0] > best[0]:
            best[0] = part[0]
            record_relaxed(reduced, free, count, decided, n, chosen)
        margin = max(gap * best[0], absolute)
        if f < least:
            least = f
            for k in range(K + 1):
                lowest[k] = point[k]
        else:
            scale *= 0.6
        if f <= best[0] + margin:
            return f
        curve = 0.0
        for k in range(K + 1):
            way[k] = 0.0
            for h in range(K + 1):
                way[k] += metric[k, h] * slope[h]
            curve += way[k] * slope[k]
        if curve <= 1e-26 * f * f:
            break
        # Polyak: the step that would reach the target if F were linear, in the root's metric.
        length = scale * (f - best[0] - 0.5 * margin) / curve
        for k in range(K + 1):
            point[k] -= length * way[k]
        if point[K] > -math.inf:
            point[K] = min(max(point[K], -300.0), 300.0)
    return lagrangian_bound(lowest, v, s, a, free, count, v_in, s_in, room, reduced, slope, part)


@kernel
def sort_descending(key: Floats, order: Ints, n: int) -> None:
    """Heap sort: 0 … n-1 by falling ``key``, ties by rising number."""
    for i in range(n):
        order[i] = i
    end, start = n, n // 2
    while end > 1:
        if start > 0:
            start -= 1
        else:
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


@kernel
def greedy(
    v: Floats, s: Floats, a: Floats, order: Ints, n: int, chosen: Ints, left: Floats, sums: Floats
) -> int:
    """Greedy: add channels in ``order`` while they fit and pay; the place of the first left out.

    ``chosen`` [E], ``left`` [K] (capacity left) and ``sums`` (Σ v x, Σ s x) are carried on.
    """
    K = a.shape[1]
    border = n
    for j in range(n):
        e = order[j]
        if chosen[e] != 0:
            continue
        take = v[e] + math.sqrt(sums[1] + s[e]) > math.sqrt(sums[1])
        for k in range(K):
            take = take and a[e, k] <= left[k]
        if take:
            chosen[e] = 1
            sums[0] += v[e]
            sums[1] += s[e]
            for k in range(K):
                left[k] -= a[e, k]
        elif border == n:
            border = j
    return border


@kernel
def local_search(
    v: Floats,
    s: Floats,
    a: Floats,
    order: Ints,
    low: int,
    high: int,
    chosen: Ints,
    left: Floats,
    sums: Floats,
    passes: int,
) -> None:
    """Local search: adds, drops and swaps among ``order[low:high]`` for as long as they pay."""
    K = a.shape[1]
    for _ in range(passes):
        changed = False
        for i in range(low, high):
            out = order[i]
            if chosen[out] == 0:
                fits = True
                for k in range(K):
                    fits = fits and a[out, k] <= left[k]
                now = math.sqrt(sums[1])
                if fits and v[out] + math.sqrt(sums[1] + s[out]) - now > 1e-12 * (now + 1e-300):
                    chosen[out] = 1
                    sums[0] += v[out]
                    sums[1] += s[out]
                    for k in range(K):
                        left[k] -= a[out, k]
                    changed = True
                continue
            # Drop it, or swap it for the one of those that would then fit that is worth most.
            now = sums[0] + math.sqrt(max(sums[1], 0.0))
            v_rest, s_rest = sums[0] - v[out], max(sums[1] - s[out], 0.0)
            most, into = now * (1.0 + 1e-12), -2
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
                chosen[into] = 1
                sums[0] += v[into]
                sums[1] += s[into]
                for k in range(K):
                    left[k] -= a[into, k]
        if not changed:
            return


@kernel
def tabulate(
    upsilon: Ints,
    sigma: Floats,
    a: Ints,
    c: Ints,
    stride: Ints,
    value: Floats,
    taken: Bytes,
    digit: Ints,
    flag: Bytes,
) -> None:
    """Dynamic programme of ESDP (22)–(27): V(s, c', 0) for every s and c', and what was taken.

    V(s, c', i) = max{V(s, c', i+1), Σ̂²_(i+1) + V(s - Υ̂_(i+1), c' - A_(i+1), i+1)}, ESDP (27).

    ``value`` [C, S], C = Π_k (c_k + 1), receives V, -inf where s is out of reach; ``taken``
    [E, C, ⌈S/8⌉] the decisions. ``stride`` [K] places a capacity c' at Σ_k stride_k c'_k;
    ``digit`` [K] and ``flag`` [8 ⌈S/8⌉] are work space. Channels are outermost and fall, as does
    c' within: a state reads smaller capacities only, which still hold the values of i + 1.
    """
    E, K = a.shape
    C, S = value.shape
    W = taken.shape[2]
    for place in range(C):
        for s in range(S):
            value[place, s] = -np.inf
        value[place, 0] = 0.0
    # V(·, ·, i) overwrites V(·, ·, i + 1): what is read lies at smaller c', not yet overwritten.
    for i in range(E - 1, -1, -1):
        shift = 0
        for k in range(K):
            digit[k] = c[k]
            shift += stride[k] * a[i, k]
        u, gain = min(upsilon[i], S), sigma[i]
        for place in range(C - 1, -1, -1):
            fits = True
            for k in range(K):
                fits = fits and a[i, k] <= digit[k]
            row = value[place]
            if fits and shift > 0:
                before = value[place - shift]
                first = before[0] + gain
                for s in range(u):
                    flag[s] = 1 if first > row[s] else 0
                    row[s] = first if first > row[s] else row[s]
                for s in range(u, S):
                    later = before[s - u] + gain
                    flag[s] = 1 if later > row[s] else 0
                    row[s] = later if later > row[s] else row[s]
            elif fits:  # takes no devices: reads its own row, hence from large s to small
                for s in range(S - 1, -1, -1):
                    later = row[max(s - u, 0)] + gain
                    flag[s] = 1 if later > row[s] else 0
                    row[s] = later if later > row[s] else row[s]
            else:
                for w in range(W):
                    taken[i, place, w] = 0
            if fits:
                for w in range(W):
                    packed = 0
                    for b in range(8):
                        packed |= flag[8 * w + b] << b
                    taken[i, place, w] = packed
            for k in range(K - 1, -1, -1):
                if digit[k] > 0:
                    digit[k] -= 1
                    break
                digit[k] = c[k]


@kernel
def backtrack(s: int, place: int, upsilon: Ints, shift: Ints, taken: Bytes, chosen: Ints) -> None:
    """Backtracking: follow the decisions from state (s, c', 0) and write x to ``chosen`` [E]."""
    for i in range(chosen.shape[0]):
        chosen[i] = (taken[i, place, s >> 3] >> (s & 7)) & 1
        if chosen[i] == 1:
            s = max(s - upsilon[i], 0)
            place -= shift[i]
