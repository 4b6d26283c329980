"""Projection onto {0 ≤ y ≤ a, Σ_l y ≤ c}, independently for every server and device type.

The exact answer is y = clip(z - τ, 0, a) with the smallest τ ≥ 0 that meets the capacity. τ is
found without sorting, by variable fixing: take τ from the entries still free, see which of them
would leave [0, a] and on which side the violation is larger, fix that side, repeat. Each pass fixes
at least one entry for good, so n entries take at most n passes.
"""

from __future__ import annotations

from gangwise.kernels import Floats, Ints, kernel

__all__ = ["ascend", "project_block_as_printed"]


@kernel
def ascend(
    y: Floats, g: Floats, step: float, scale: Floats, active: Ints,
    upper: Floats, capacity: Floats, starts: Ints, job_type: Ints, total: Floats, index: Ints,
    z: Floats, fixed: Ints,
) -> None:
    """Step y ← Π(y + step · scale · g) for the active job types, in place (11).

    Job types that are not active keep their values and use no capacity. ``scale`` [R, K] is the
    unit of the step on each server and device type; ``upper`` [E, K] = min(a, c). ``total`` [L, K]
    receives Σ_r y of the active job types. ``index``, ``z`` and ``fixed`` [L] are work space.
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
                c = capacity[r, k]
                clipped, free_sum = 0.0, 0.0
                for i in range(n):
                    e = index[i]
                    z[i] = y[e, k] + step * scale[r, k] * g[e, k]
                    free_sum += z[i]
                    v = min(max(z[i], 0.0), upper[e, k])
                    y[e, k] = v
                    clipped += v
                if clipped > c:
                    for i in range(n):
                        fixed[i] = 0
                    free, rest, tau = n, c, 0.0
                    while free > 0:
                        tau = (free_sum - rest) / free
                        above, below = 0.0, 0.0
                        for i in range(n):
                            if fixed[i] == 0:
                                v = z[i] - tau
                                below += max(-v, 0.0)
                                above += max(v - upper[index[i], k], 0.0)
                        if above == 0.0 and below == 0.0:
                            break
                        if above >= below:
                            for i in range(n):
                                a = upper[index[i], k]
                                if fixed[i] == 0 and z[i] - tau >= a:
                                    fixed[i] = 1
                                    y[index[i], k] = a
                                    rest -= a
                                    free -= 1
                                    free_sum -= z[i]
                        else:
                            for i in range(n):
                                if fixed[i] == 0 and z[i] - tau <= 0.0:
                                    fixed[i] = 1
                                    y[index[i], k] = 0.0
                                    free -= 1
                                    free_sum -= z[i]
                    for i in range(n):
                        if fixed[i] == 0:
                            y[index[i], k] = z[i] - tau
                for i in range(n):
                    total[job_type[index[i]], k] += y[index[i], k]


@kernel
def project_block_as_printed(
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
