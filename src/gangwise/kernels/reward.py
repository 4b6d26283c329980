"""Reward (5) and gradient (9)–(10) of the gain-minus-overhead family.

Decisions are arrays of shape [E, K], channels sorted by server. The slope of every built-in
utility (27) is one expression without a branch,

    f'(y) = c0 + c1 u + c2 u² + c3 √u   with   u = 1 / (y + shift),

so the whole gradient is computed with vector instructions.
"""

from __future__ import annotations

import math

from gangwise.kernels import Floats, Ints, kernel

__all__ = ["curvature", "evaluate", "gradient", "overhead_prices"]


@kernel
def overhead_prices(
    total: Floats, beta: Floats, active: Ints, smoothing: float, price: Floats,
) -> None:
    """Derivative of the overhead max_k β_k S_lk for the active job types, into ``price`` [L, K].

    ``smoothing`` 0 gives β at k* (10), ties to the smallest k, and 0 elsewhere. Larger values
    spread it by a softmax over β_k S_lk with temperature ``smoothing`` times the largest.
    """
    L, K = total.shape
    for l in range(L):
        if active[l] == 0:
            continue
        largest, dominant = -1.0, 0
        for k in range(K):
            if beta[k] * total[l, k] > largest:
                largest, dominant = beta[k] * total[l, k], k
        if smoothing > 0.0 and largest > 0.0:
            whole = 0.0
            for k in range(K):
                weight = math.exp((beta[k] * total[l, k] / largest - 1.0) / smoothing)
                price[l, k] = weight
                whole += weight
            for k in range(K):
                price[l, k] *= beta[k] / whole
        else:
            for k in range(K):
                price[l, k] = 0.0
            price[l, dominant] = beta[dominant]


@kernel
def gradient(
    y: Floats, weight: Floats, price: Floats, terms: Floats, job_type: Ints, own_index: Ints,
    own_slope: Floats, out: Floats,
) -> float:
    """Weighted gradient (9) into ``out`` [E K]; returns its squared norm.

    ``y`` and ``out`` are flat, ``terms`` [5, E K] holds c0 … c3 and shift. ``weight`` [L] is x_l.
    ``own_slope`` replaces the slope at the flat positions ``own_index``.
    """
    c0, c1, c2, c3, shift = terms[0], terms[1], terms[2], terms[3], terms[4]
    for i in range(y.size):  # vectorises: no branch, no index but i
        u = 1.0 / (y[i] + shift[i])
        out[i] = c0[i] + u * (c1[i] + c2[i] * u) + c3[i] * math.sqrt(u)
    for i in range(own_index.size):
        out[own_index[i]] = own_slope[i]
    K = price.shape[1]
    squared = 0.0
    for e in range(job_type.size):
        l = job_type[e]
        w = weight[l]
        for k in range(K):
            g = w * (out[e * K + k] - price[l, k])
            out[e * K + k] = g
            squared += g * g
    return squared


@kernel
def curvature(y: Floats, terms: Floats, out: Floats) -> None:
    """Second derivative of the built-in utilities into ``out`` [E K] (0 for your own); all flat."""
    c1, c2, c3, shift = terms[1], terms[2], terms[3], terms[4]
    for i in range(y.size):
        u = 1.0 / (y[i] + shift[i])
        out[i] = -u * u * (c1[i] + 2.0 * c2[i] * u + 0.5 * c3[i] / math.sqrt(u))


@kernel
def evaluate(
    y: Floats, arrived: Ints, kind: Ints, alpha: Floats, beta: Floats,
    requests: Floats, capacity: Floats, starts: Ints, job_type: Ints, tolerance: float,
    total: Floats, result: Floats,
) -> int:
    """Gain, overhead and utilisation of a decision, checked for feasibility.

    Returns 0, or the place of the first violation: 1 + e K + k for a value out of [0, a_l^k],
    -(1 + r K + k) for a server's capacity. ``result`` receives gain and overhead of the job types
    that arrived and the mean share of capacity they hold. ``total`` [L, K] is work space and
    leaves with Σ_r y.
    """
    K = y.shape[1]
    R = starts.shape[0] - 1
    L = arrived.shape[0]
    for l in range(L):
        for k in range(K):
            total[l, k] = 0.0
    gain, used, blocks = 0.0, 0.0, 0
    for r in range(R):
        for k in range(K):
            c, a = capacity[r, k], alpha[r, k]
            which = kind[r, k]
            everything, held = 0.0, 0.0
            for e in range(starts[r], starts[r + 1]):
                l = job_type[e]
                v = y[e, k]
                most = requests[l, k]
                if not (v >= -tolerance and v <= most + tolerance * (1.0 + most)):
                    return int(1 + e * K + k)
                everything += v
                total[l, k] += v
                if arrived[l] != 0:
                    held += v
                    if which == 0:
                        gain += a * v
                    elif which == 1:
                        gain += a * math.log1p(v)
                    elif which == 2:
                        gain += 1.0 / a - 1.0 / (v + a)
                    elif which == 3:
                        gain += a * (math.sqrt(v + 1.0) - 1.0)
            if everything > c + tolerance * (1.0 + c):
                return int(-(1 + r * K + k))
            if c > 0.0:
                used += held / c
                blocks += 1
    overhead = 0.0
    for l in range(L):
        if arrived[l] != 0:
            largest = 0.0
            for k in range(K):
                largest = max(largest, beta[k] * total[l, k])
            overhead += largest
    result[0] = gain
    result[1] = overhead
    result[2] = used / blocks if blocks > 0 else 0.0
    return 0
