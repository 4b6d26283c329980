"""Inner loops of the interior-point method for the offline comparators.

The Newton system couples the channels of a server through its capacity and the channels of a job
type through its overhead. Eliminating the capacities in closed form leaves one small matrix per
device type; see :mod:`gangwise.gain_overhead.interior_point`.
"""

from __future__ import annotations

from gangwise.kernels import Floats, Ints, kernel

__all__ = ["best_response", "expand", "reduce"]


@kernel
def reduce(
    diagonal: Floats, kappa: Floats, g: Floats, used: Ints, position: Ints, starts: Ints,
    job_type: Ints, phi: Floats, matrix: Floats, vector: Floats,
) -> None:
    """Per device type, N = B M⁻¹ Bᵀ into ``matrix`` [K, n, n] and p = B M⁻¹ g into ``vector``.

    M = diag(``diagonal``) + κ 1 1ᵀ on every server and device type, B sums over the channels of a
    job type, whose row is ``position`` [L]. ``matrix`` and ``vector`` begin with zeros; ``phi``
    [R, K] receives κ / (1 + κ Σ 1/D).
    """
    K = diagonal.shape[1]
    for r in range(starts.shape[0] - 1):
        for k in range(K):
            inverse_sum, g_sum = 0.0, 0.0
            for e in range(starts[r], starts[r + 1]):
                if used[e, k] != 0:
                    inverse_sum += 1.0 / diagonal[e, k]
                    g_sum += g[e, k] / diagonal[e, k]
            f = kappa[r, k] / (1.0 + kappa[r, k] * inverse_sum)
            phi[r, k] = f
            for e in range(starts[r], starts[r + 1]):
                if used[e, k] == 0:
                    continue
                i = position[job_type[e]]
                d = 1.0 / diagonal[e, k]
                matrix[k, i, i] += d
                vector[k, i] += d * (g[e, k] - f * g_sum)
                for other in range(starts[r], starts[r + 1]):
                    if used[other, k] != 0:
                        j = position[job_type[other]]
                        matrix[k, i, j] -= f * d / diagonal[other, k]


@kernel
def expand(
    diagonal: Floats, phi: Floats, g: Floats, q: Floats, used: Ints, position: Ints,
    starts: Ints, job_type: Ints, dy: Floats, block: Floats,
) -> None:
    """Δy = M⁻¹ (g - Bᵀ q) into ``dy`` [E, K], and its sums over job types into ``block`` [R, K]."""
    K = diagonal.shape[1]
    for r in range(starts.shape[0] - 1):
        for k in range(K):
            whole = 0.0
            for e in range(starts[r], starts[r + 1]):
                if used[e, k] != 0:
                    v = (g[e, k] - q[k, position[job_type[e]]]) / diagonal[e, k]
                    dy[e, k] = v
                    whole += v
                else:
                    dy[e, k] = 0.0
            correction = phi[r, k] * whole
            moved = 0.0
            for e in range(starts[r], starts[r + 1]):
                if used[e, k] != 0:
                    dy[e, k] -= correction / diagonal[e, k]
                    moved += dy[e, k]
            block[r, k] = moved


@kernel
def best_response(
    g: Floats, upper: Floats, capacity: Floats, starts: Ints, order: Ints
) -> float:
    """Largest Σ g y over the feasible decisions (3)–(4).

    A fractional knapsack on every server and device type: highest g first, while positive.
    ``order`` [L] is work space.
    """
    K = g.shape[1]
    best = 0.0
    for r in range(starts.shape[0] - 1):
        for k in range(K):
            n = 0
            for e in range(starts[r], starts[r + 1]):
                if g[e, k] > 0.0 and upper[e, k] > 0.0:
                    i = n  # insertion into descending order
                    while i > 0 and g[order[i - 1], k] < g[e, k]:
                        order[i] = order[i - 1]
                        i -= 1
                    order[i] = e
                    n += 1
            left = capacity[r, k]
            for i in range(n):
                v = min(left, upper[order[i], k])
                best += g[order[i], k] * v
                left -= v
    return best
