r"""The Lagrangian bound of P3, and the two ways in which it is minimised.

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

from gangwise.kernels import Floats, Ints, kernel

__all__ = ["bound_at", "descend", "polyak", "record"]


@kernel
def bound_at(
    point: Floats, v: Floats, s: Floats, a: Floats, free: Ints, count: int,
    v_in: float, s_in: float, room: Floats, reduced: Floats, slope: Floats, part: Floats,
) -> float:
    """F with ``v_in``, ``s_in`` already taken in and ``room`` [K] left for the open channels.

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
def record(
    reduced: Floats, free: Ints, count: int, decided: Ints, n: int, chosen: Ints
) -> None:
    """Write the relaxed choice of the open channels, and the decided ones, to ``chosen`` [E]."""
    for j in range(count):
        chosen[free[j]] = 1 if reduced[free[j]] > 0.0 else 0
    for j in range(count, n):
        chosen[free[j]] = decided[free[j]]


@kernel
def descend(
    v: Floats, s: Floats, a: Floats, free: Ints, n: int, room: Floats,
    basis: Floats, small: Floats, step: float, evaluations: int, tolerance: float,
    reduced: Floats, decided: Ints, chosen: Ints, best: Floats,
) -> float:
    """Shor's r-algorithm from ``small[0]``; the step to go on with.

    ``best``: [0] the largest value known, [1] the smallest F; ``small[1]`` is the point of the
    latter. Stops when a step promises less than ``tolerance`` times the gap.
    """
    K = room.shape[0]
    point, lowest, slope, later, way, turn, part = (
        small[0], small[1], small[2], small[3], small[4], small[5], small[6],
    )  # fmt: skip
    f = bound_at(point, v, s, a, free, n, 0.0, 0.0, room, reduced, slope, part)
    used, lame = 1, 0
    while True:
        if f < best[1]:
            best[1] = f
            for k in range(K + 1):
                lowest[k] = point[k]
        if part[1] > 0.0 and part[0] > best[0]:
            best[0] = part[0]
            record(reduced, free, n, decided, n, chosen)
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
        tries = 0
        while True:
            for k in range(K + 1):
                point[k] -= step * way[k]
            if point[K] > -math.inf:
                point[K] = min(max(point[K], -300.0), 300.0)
            f = bound_at(point, v, s, a, free, n, 0.0, 0.0, room, reduced, later, part)
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
def polyak(
    v: Floats, s: Floats, a: Floats, free: Ints, n: int, count: int,
    v_in: float, s_in: float, room: Floats, metric: Floats, small: Floats, evaluations: int,
    gap: float, absolute: float, reduced: Floats, decided: Ints, chosen: Ints, best: Floats,
) -> float:
    """Polyak steps from ``small[0]`` until F is small enough to prune; the smallest F found.

    ``small[1]`` receives its point, at which ``reduced`` is left. A relaxed choice that fits and is
    worth more than ``best[0]`` is recorded.
    """
    K = room.shape[0]
    point, lowest, slope, way, part = small[0], small[1], small[2], small[4], small[6]
    least, scale = math.inf, 1.0
    for _ in range(evaluations):
        f = bound_at(point, v, s, a, free, count, v_in, s_in, room, reduced, slope, part)
        if part[1] > 0.0 and part[0] > best[0]:
            best[0] = part[0]
            record(reduced, free, count, decided, n, chosen)
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
        length = scale * (f - best[0] - 0.5 * margin) / curve
        for k in range(K + 1):
            point[k] -= length * way[k]
        if point[K] > -math.inf:
            point[K] = min(max(point[K], -300.0), 300.0)
    return bound_at(lowest, v, s, a, free, count, v_in, s_in, room, reduced, slope, part)
