r"""Projection (P5) of §V-C: machines with capacities, jobs with demands and parallelism limits.

    minimise ½ Σ (z - y)²   over 0 ≤ z ≤ 1,  Σ_j r_j z_ji ≤ C_i,  Σ_i z_ji ≤ u_j.

The optimum is z_ji = clip(y_ji - r_j η_i - ν_j, 0, 1) with prices η_i ≥ 0 of machines and ν_j ≥ 0
of jobs. Given ν each η_i is the root of a piecewise linear, never increasing function of one
variable, and the other way round: taking them in turns is exact block-coordinate ascent of the
concave dual, which converges.
"""

from __future__ import annotations

from gangwise.kernels import Floats, kernel

__all__ = ["alternate", "entries", "price"]


@kernel
def price(
    y: Floats, weight: Floats, shift: Floats, scale: float, limit: float, start: float
) -> float:
    """The smallest p ≥ 0 with Σ_k w_k clip(y_k - scale·shift_k - w_k p, 0, 1) ≤ limit.

    Newton's method from ``start``, kept inside a bracket. All arrays have the same length.
    """
    left, high, slope = -limit, 0.0, 0.0
    for k in range(y.size):
        z = y[k] - scale * shift[k]
        if z > 0.0:
            left += weight[k] * min(z, 1.0)
            high = max(high, z / weight[k])
    if left <= 0.0:
        return 0.0
    low, p = 0.0, start
    if not 0.0 < p < high:
        p = 0.5 * high
    for _ in range(120):
        left, slope = -limit, 0.0
        for k in range(y.size):
            z = y[k] - scale * shift[k] - weight[k] * p
            if z >= 1.0:
                left += weight[k]
            elif z > 0.0:
                left += weight[k] * z
                slope += weight[k] * weight[k]
        if left > 0.0:
            low = p
        else:
            high = p
        newton = p + left / slope if slope > 0.0 else -1.0
        if abs(left) <= 4e-15 * (1.0 + limit) or high - low <= 1e-16 * (1.0 + high):
            return p
        p = newton if low < newton < high else 0.5 * (low + high)
    return high


@kernel
def alternate(
    y: Floats, turned: Floats, demand: Floats, capacity: Floats, limit: Floats, ones: Floats,
    eta: Floats, nu: Floats, sweeps: int, tolerance: float,
) -> int:
    """Take the prices in turns until no ν moves by more than ``tolerance``; returns the sweeps.

    ``y`` [J, M] and ``turned`` [M, J] hold the same numbers; ``eta`` [M] and ``nu`` [J] hold the
    prices to begin with and receive those found; ``ones`` [M] is filled with 1.
    """
    J, M = y.shape
    for sweep in range(sweeps):
        for i in range(M):
            eta[i] = price(turned[i], demand, nu, 1.0, capacity[i], eta[i])
        moved = 0.0
        for j in range(J):
            before = nu[j]
            nu[j] = price(y[j], ones, eta, demand[j], limit[j], before)
            moved = max(moved, abs(nu[j] - before))
        if moved <= tolerance:
            return sweep + 1
    return sweeps + 1


@kernel
def entries(
    y: Floats, demand: Floats, capacity: Floats, limit: Floats, eta: Floats, nu: Floats,
    load: Floats, z: Floats,
) -> float:
    """Fill ``z`` [J, M] from the prices; what is over by rounding is scaled away.

    Returns the largest excess that there was, relative to the limit. ``load`` [M] is overwritten.
    """
    J, M = y.shape
    worst = 0.0
    for i in range(M):
        load[i] = 0.0
    for j in range(J):
        total = 0.0
        for i in range(M):
            z[j, i] = min(max(y[j, i] - demand[j] * eta[i] - nu[j], 0.0), 1.0)
            total += z[j, i]
        if total > limit[j]:
            worst = max(worst, total - limit[j])
            for i in range(M):
                z[j, i] *= limit[j] / total
        for i in range(M):
            load[i] += demand[j] * z[j, i]
    for i in range(M):
        if load[i] > capacity[i]:
            worst = max(worst, load[i] - capacity[i])
            for j in range(J):
                z[j, i] *= capacity[i] / load[i]
    return worst
