"""Projection onto {0 ≤ y ≤ a, Σ_l y ≤ c}, independently for every server and device type.

The exact answer is y = clip(z - τ, 0, a) with the smallest τ ≥ 0 that meets the capacity. Neither
way to τ sorts. With few entries, the sum of y is evaluated at every breakpoint z and z - a, and τ
interpolated between the two that enclose the capacity: n² work, but not a branch to mispredict.
With many, variable fixing: take τ from the entries still free, see which of them would leave [0, a]
and on which side the violation is larger, fix that side, repeat; each pass fixes at least one entry
for good.
"""

from __future__ import annotations

import math

from gangwise.kernels import Floats, Ints, kernel

__all__ = ["ascend", "project_as_printed", "threshold_by_fixing"]


@kernel
def _between_breakpoints(z: Floats, a: Floats, n: int, c: float, held: float) -> float:
    """Threshold τ of n entries whose clipped sum ``held`` exceeds c, by enumeration."""
    low, high = 0.0, math.inf
    above, below = held, 0.0  # the sums at low and high
    for j in range(n):
        upper_end, lower_end = max(z[j], 0.0), max(z[j] - a[j], 0.0)
        at_upper, at_lower = 0.0, 0.0
        for i in range(n):
            at_upper += min(max(z[i] - upper_end, 0.0), a[i])
            at_lower += min(max(z[i] - lower_end, 0.0), a[i])
        for tau, whole in ((upper_end, at_upper), (lower_end, at_lower)):
            closer = (whole >= c) & (tau > low)
            low = tau if closer else low
            above = whole if closer else above
            closer = (whole < c) & (tau < high)
            high = tau if closer else high
            below = whole if closer else below
    return low + (above - c) * (high - low) / (above - below) if above > c else low


@kernel
def threshold_by_fixing(z: Floats, a: Floats, n: int, c: float, fixed: Ints) -> float:
    """Threshold τ of n entries whose clipped sum exceeds c, by variable fixing.

    Upper bounds may be infinite, which makes it the projection onto a simplex. ``fixed`` [n] is
    work space.
    """
    free, rest, whole, tau = n, c, 0.0, 0.0
    for i in range(n):
        fixed[i] = 0
        whole += z[i]
    while free > 0:
        tau = (whole - rest) / free
        above, below = 0.0, 0.0
        for i in range(n):
            if fixed[i] == 0:
                below += max(tau - z[i], 0.0)
                above += max(z[i] - tau - a[i], 0.0)
        if above == 0.0 and below == 0.0:
            break
        for i in range(n):
            full = above >= below and z[i] - tau >= a[i]
            empty = above < below and z[i] - tau <= 0.0
            if fixed[i] == 0 and (full or empty):
                fixed[i] = 1
                free -= 1
                whole -= z[i]
                if full:
                    rest -= a[i]
    return tau


@kernel
def ascend(
    y: Floats, g: Floats, step: float, scale: Floats, active: Ints,
    upper: Floats, capacity: Floats, starts: Ints, job_type: Ints, total: Floats, index: Ints,
    z: Floats, a: Floats, fixed: Ints,
) -> None:
    """Step y ← Π(y + step · scale · g) for the active job types, in place (11).

    Job types that are not active keep their values and use no capacity. ``scale`` [R, K] is the
    unit of the step on each server and device type; ``upper`` [E, K] = min(a, c). ``total`` [L, K]
    receives Σ_r y of the active job types. ``index``, ``z``, ``a``, ``fixed`` [L] are work space.
    """
    K = y.shape[1]
    R = starts.shape[0] - 1
    for l in range(active.shape[0]):
        if active[l] != 0:
            for k in range(K):
                total[l, k] = 0.0
    for r in range(R):
        n = 0
        for e in range(starts[r], starts[r + 1]):
            if active[job_type[e]] != 0:
                index[n] = e
                n += 1
        if n == 1:  # the capacity is in the upper bound
            e = index[0]
            l = job_type[e]
            for k in range(K):
                v = min(max(y[e, k] + step * scale[r, k] * g[e, k], 0.0), upper[e, k])
                y[e, k] = v
                total[l, k] += v
        elif n == 2:  # on the segment y0 + y1 = c the projection is one clip
            e, f = index[0], index[1]
            l, m = job_type[e], job_type[f]
            for k in range(K):
                c = capacity[r, k]
                z0 = y[e, k] + step * scale[r, k] * g[e, k]
                z1 = y[f, k] + step * scale[r, k] * g[f, k]
                v0 = min(max(z0, 0.0), upper[e, k])
                v1 = min(max(z1, 0.0), upper[f, k])
                on = min(max(0.5 * (z0 - z1 + c), max(0.0, c - upper[f, k])), upper[e, k])
                over = v0 + v1 > c
                v0 = on if over else v0
                v1 = c - on if over else v1
                y[e, k] = v0
                y[f, k] = v1
                total[l, k] += v0
                total[m, k] += v1
        elif n > 2:
            for k in range(K):
                held = 0.0
                for i in range(n):
                    e = index[i]
                    z[i] = y[e, k] + step * scale[r, k] * g[e, k]
                    a[i] = upper[e, k]
                    held += min(max(z[i], 0.0), a[i])
                tau = 0.0
                if held > capacity[r, k]:
                    if n <= 8:
                        tau = _between_breakpoints(z, a, n, capacity[r, k], held)
                    else:
                        tau = threshold_by_fixing(z, a, n, capacity[r, k], fixed)
                for i in range(n):
                    e = index[i]
                    v = min(max(z[i] - tau, 0.0), a[i])
                    y[e, k] = v
                    total[job_type[e], k] += v


@kernel
def _project_block_as_printed(
    z: Floats, a: Floats, c: float, order: Ints, y: Floats,
) -> None:
    """Steps 7–30 of Algorithm 1 for one server and device type, read as charitably as it allows.

    ``order`` lists the entries by descending z. Three repairs let it end at all: S is emptied
    before every pass, B² is set to zero, and an empty B³ ends the loop. What it returns may break
    either constraint.
    """
    n = z.size
    fill = 0  # the size of B¹: nothing, then the first entry
    while True:
        for i in range(n):
            y[i] = 0.0
        last = n  # B³ is order[fill:last]
        while last > fill:
            rest = c
            for i in range(fill):
                rest -= a[order[i]]
            whole = 0.0
            for i in range(fill, last):
                whole += z[order[i]]
            half_rho = (whole - rest) / (last - fill)  # ρ / 2 of (13)
            negative = last
            for i in range(fill, last):
                y[order[i]] = z[order[i]] - half_rho
                if y[order[i]] < 0.0:
                    negative = i
                    break
            for i in range(negative, last):  # step 27: from the first negative one on
                y[order[i]] = 0.0
            if negative == last:
                break
            last = negative
        for i in range(fill):
            y[order[i]] = a[order[i]]
        if fill == 0 and n > 0 and y[order[0]] > a[order[0]]:
            fill = 1
        else:
            return


@kernel
def project_as_printed(
    z: Floats, requests: Floats, capacity: Floats, starts: Ints, job_type: Ints, y: Floats,
    order: Ints, work: Floats,
) -> None:
    """Steps 5–31 of Algorithm 1: every server and device type of ``z`` [E, K] into ``y`` [E, K].

    ``requests`` [L, K] bound the entries, ``capacity`` [R, K] their sums. ``order`` [L] and
    ``work`` [3, L] are work space.
    """
    block, a, out = work[0], work[1], work[2]
    for r in range(starts.shape[0] - 1):
        first, n = starts[r], starts[r + 1] - starts[r]
        for k in range(z.shape[1]):
            for i in range(n):
                block[i] = z[first + i, k]
                a[i] = requests[job_type[first + i], k]
                at = i  # sorted by insertion: few entries, and equal ones keep their order
                while at > 0 and block[order[at - 1]] < block[i]:
                    order[at] = order[at - 1]
                    at -= 1
                order[at] = i
            _project_block_as_printed(block[:n], a[:n], capacity[r, k], order[:n], out[:n])
            for i in range(n):
                y[first + i, k] = out[i]
