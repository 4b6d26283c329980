"""Inner loops of gain minus overhead: gradient, reward, projection, list scheduling, greedy.

Decisions are arrays of shape [E, K], channels sorted by server. The slope of every built-in
utility, OGASched (27), is one expression without a branch,

    f'(y) = c0 + c1 u + c2 u² + c3 √u   with   u = 1 / (y + shift),

so the whole gradient is computed with vector instructions.

The projection onto {0 ≤ y ≤ a, Σ_l y ≤ c} is independent for every server and device type. The
exact answer is y = clip(z - τ, 0, a) with the smallest τ ≥ 0 that meets the capacity, the KKT
conditions OGASched (12) with τ = ρ / 2. Neither way to τ sorts. With few entries, the sum of y is
evaluated at every breakpoint z and z - a, and τ interpolated between the two that enclose the
capacity: n² work, but not a branch to mispredict. With many, variable fixing: take τ from the
entries still free, see which of them would leave [0, a] and on which side the violation is larger,
fix that side, repeat; each pass fixes at least one entry for good.
"""

import math
from typing import Any, NamedTuple

from gangwise.core.arrays import Floats, Ints
from gangwise.core.jit import kernel


class ProblemArrays(NamedTuple):
    """Arrays of a problem for kernels, which get them as a plain tuple: numba unpacks it faster.

    ``requests`` [L, K], ``upper`` [E, K] = min(a, c), ``capacity`` [R, K]; the channels of server r
    are ``starts[r]`` to ``starts[r + 1]``, and ``job_type`` [E] theirs.
    """

    requests: Floats
    upper: Floats
    capacity: Floats
    starts: Ints
    job_type: Ints


# Reward and gradient, OGASched (5), OGASched (9)


@kernel
def overhead_prices(
    total: Floats, beta: Floats, active: Ints, smoothing: float, price: Floats
) -> None:
    """Overhead prices: derivative of max_k β_k S_lk by S, for the active job types, shape [L, K].

    With ``smoothing`` 0 it is β at the k* of OGASched (10), ties to the smallest k; larger values
    spread it by a softmax over β_k S_lk with temperature ``smoothing`` times the largest.
    """
    L, K = total.shape
    for l in range(L):
        if active[l] == 0:
            continue
        largest, dominant = -1.0, 0  # k* of OGASched (10); strict > below keeps the smallest k
        for k in range(K):
            if beta[k] * total[l, k] > largest:
                largest, dominant = beta[k] * total[l, k], k
        if smoothing > 0.0 and largest > 0.0:
            whole = 0.0  # of the softmax; its largest term is 1, so nothing overflows
            for k in range(K):
                # Relative to the largest, so that the temperature has no unit.
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
    y: Floats,
    weight: Floats,
    price: Floats,
    terms: Floats,
    job_type: Ints,
    own_index: Ints,
    own_slope: Floats,
    out: Floats,
) -> float:
    """Gradient ∇q of OGASched (9), weighted, into ``out`` [E K]; returns its squared norm.

    ``y`` and ``out`` are flat, ``terms`` [5, E K] holds c0 … c3 and shift. ``weight`` [L] is x_l.
    ``own_slope`` replaces the slope at the flat positions ``own_index``.
    """
    c0, c1, c2, c3, shift = terms[0], terms[1], terms[2], terms[3], terms[4]
    for i in range(y.size):  # vectorises: no branch, no index but i
        u = 1.0 / (y[i] + shift[i])
        out[i] = c0[i] + u * (c1[i] + c2[i] * u) + c3[i] * math.sqrt(u)
    # A kernel cannot call users' utilities, which are Python: their slopes come as an argument.
    for i in range(own_index.size):
        out[own_index[i]] = own_slope[i]
    K = price.shape[1]
    squared = 0.0
    for e in range(job_type.size):
        l = job_type[e]
        w = weight[l]  # x_l: an absent job type earns nothing, and its gradient is zero
        for k in range(K):
            g = w * (out[e * K + k] - price[l, k])
            out[e * K + k] = g
            # ‖∇q‖², by which AdaGrad-norm and OGASched (26) divide the step.
            squared += g * g
    return squared


@kernel
def curvature(y: Floats, terms: Floats, out: Floats) -> None:
    """Curvature f'' of OGASched (27) into ``out`` [E K], 0 for your own utilities; all flat."""
    c1, c2, c3, shift = terms[1], terms[2], terms[3], terms[4]
    for i in range(y.size):
        # d/dy of c1 u + c2 u² + c3 √u with du/dy = −u².
        u = 1.0 / (y[i] + shift[i])
        out[i] = -u * u * (c1[i] + 2.0 * c2[i] * u + 0.5 * c3[i] / math.sqrt(u))


@kernel
def evaluate(
    y: Floats,
    arrived: Ints,
    utilities: tuple[Ints, Floats],
    beta: Floats,
    layout: Any,
    tolerance: float,
    total: Floats,
    result: Floats,
) -> int:
    """Reward of OGASched (5) with OGASched (7), checked against OGASched (3) and OGASched (4).

    Returns 0, or the first violation: 1 + e K + k for a value out of [0, a_l^k], -(1 + r K + k) for
    a server's capacity. ``result`` receives gain, overhead and the mean share of capacity held, of
    the job types that arrived. ``total`` [L, K] leaves with Σ_r y.
    """
    kind, alpha = utilities
    requests, _, capacity, starts, job_type = layout
    K = y.shape[1]
    R = starts.shape[0] - 1
    L = arrived.shape[0]
    for l in range(L):
        for k in range(K):
            total[l, k] = 0.0
    # Channels are sorted by server, so that one walk over them checks both constraints.
    gain, used, blocks = 0.0, 0.0, 0
    for r in range(R):
        for k in range(K):
            c, a = capacity[r, k], alpha[r, k]
            form = kind[r, k]
            everything, devices = 0.0, 0.0
            for e in range(starts[r], starts[r + 1]):
                l = job_type[e]
                v = y[e, k]
                most = requests[l, k]
                # Negated, so that NaN is refused as well.
                if not (v >= -tolerance and v <= most + tolerance * (1.0 + most)):
                    return int(1 + e * K + k)
                everything += v  # absent jobs take capacity, too; only gain asks who arrived
                total[l, k] += v
                if arrived[l] != 0:
                    devices += v
                    # OGASched (27) by kind; the caller adds the gain of kinds 4 and up.
                    if form == 0:
                        gain += a * v
                    elif form == 1:
                        gain += a * math.log1p(v)
                    elif form == 2:
                        gain += 1.0 / a - 1.0 / (v + a)
                    elif form == 3:
                        gain += a * (math.sqrt(v + 1.0) - 1.0)
            if everything > c + tolerance * (1.0 + c):
                return int(-(1 + r * K + k))
            if c > 0.0:  # a device type that the server lacks has no utilisation
                used += devices / c
                blocks += 1
    # The overhead needs the totals over all servers, and so a second walk.
    overhead = 0.0
    for l in range(L):
        if arrived[l] != 0:
            largest = 0.0
            for k in range(K):  # the dominant device type alone, OGASched (5)
                largest = max(largest, beta[k] * total[l, k])
            overhead += largest
    result[0] = gain
    result[1] = overhead
    result[2] = used / blocks if blocks > 0 else 0.0
    return 0


# Projection, OGASched (11)–(12), and as it is printed, OGASched (13)


@kernel
def _between_breakpoints(z: Floats, a: Floats, n: int, c: float, held: float) -> float:
    """Threshold τ of OGASched (12) for n entries whose clipped sum ``held`` exceeds c, by search.

    Σ_i clip(z_i - τ, 0, a_i) falls in τ, linearly between breakpoints z_i and z_i - a_i.
    """
    # The sum exceeds c at τ = 0 and is 0 at infinity: τ lies between.
    low, high = 0.0, math.inf
    above, below = held, 0.0  # the sums at low and high
    for j in range(n):
        # Entry j leaves 0 at τ = z and reaches its bound a at τ = z − a.
        # The breakpoints of one entry, as far as they are not negative: no price is below 0.
        upper_end, lower_end = max(z[j], 0.0), max(z[j] - a[j], 0.0)
        at_upper, at_lower = 0.0, 0.0
        for i in range(n):
            at_upper += min(max(z[i] - upper_end, 0.0), a[i])
            at_lower += min(max(z[i] - lower_end, 0.0), a[i])
        # Keep the closest breakpoints on either side of c; written so that nothing branches.
        for tau, whole in ((upper_end, at_upper), (lower_end, at_lower)):
            closer = (whole >= c) & (tau > low)
            low = tau if closer else low
            above = whole if closer else above
            closer = (whole < c) & (tau < high)
            high = tau if closer else high
            below = whole if closer else below
    # Between the two the sum is linear, so one interpolation is exact.
    return low + (above - c) * (high - low) / (above - below) if above > c else low


@kernel
def threshold_by_fixing(z: Floats, a: Floats, n: int, c: float, fixed: Ints) -> float:
    """Threshold τ of OGASched (12) for n entries whose clipped sum exceeds c, by variable fixing.

    Infinite upper bounds make it the projection onto a simplex. ``fixed`` [n] is work space.
    """
    free, rest, whole, tau = n, c, 0.0, 0.0
    for i in range(n):
        fixed[i] = 0
        whole += z[i]  # of the free entries; ``rest`` is the capacity that is left for them
    while free > 0:
        tau = (whole - rest) / free  # as if no bound held any of the free entries
        above, below = 0.0, 0.0
        for i in range(n):
            if fixed[i] == 0:
                below += max(tau - z[i], 0.0)
                above += max(z[i] - tau - a[i], 0.0)
        if above == 0.0 and below == 0.0:  # no bound is broken: the KKT conditions hold
            break
        # The side that is violated more stays violated at the final τ: fix it for good.
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
    y: Floats,
    g: Floats,
    step: float,
    scale: Floats,
    active: Ints,
    layout: Any,
    total: Floats,
    space: tuple[Ints, Ints, Floats, Floats],
) -> None:
    """Projected step y ← Π(y + step · scale · g) of OGASched (11), active job types only, in place.

    Job types that are not active keep their values and use no capacity. ``scale`` [R, K] is the
    unit of the step; ``total`` [L, K] receives Σ_r y of the active job types. ``space`` is work
    space: index, fixed, z and a, [L] each.
    """
    _, upper, capacity, starts, job_type = layout
    index, fixed, z, a = space
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
                # The channels of the server whose job takes part in this step, in front.
                index[n] = e
                n += 1
        if n == 1:  # alone, a job is bounded by min(a, c), and ``upper`` has the capacity in it
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
                # The step alone, and then the nearest point that the constraints allow.
                z0 = y[e, k] + step * scale[r, k] * g[e, k]
                z1 = y[f, k] + step * scale[r, k] * g[f, k]
                v0 = min(max(z0, 0.0), upper[e, k])
                v1 = min(max(z1, 0.0), upper[f, k])
                # y0 = (z0 - z1 + c) / 2 is the nearest point of the segment; c - a1 ≤ y0 ≤ a0 keeps
                # both in bounds.
                on = min(max(0.5 * (z0 - z1 + c), max(0.0, c - upper[f, k])), upper[e, k])
                over = v0 + v1 > c  # both clips are cheaper than a branch that is hard to predict
                v0 = on if over else v0
                v1 = c - on if over else v1
                y[e, k] = v0
                y[f, k] = v1
                total[l, k] += v0
                total[m, k] += v1
        elif n > 2:
            for k in range(K):
                used = 0.0
                for i in range(n):
                    e = index[i]
                    z[i] = y[e, k] + step * scale[r, k] * g[e, k]
                    a[i] = upper[e, k]
                    used += min(max(z[i], 0.0), a[i])
                tau = 0.0  # spare capacity: ρ = 0 by complementary slackness
                if used > capacity[r, k]:
                    if n <= 8:  # up to here n² steps without a branch are the faster ones
                        tau = _between_breakpoints(z, a, n, capacity[r, k], used)
                    else:
                        tau = threshold_by_fixing(z, a, n, capacity[r, k], fixed)
                for i in range(n):
                    e = index[i]
                    v = min(max(z[i] - tau, 0.0), a[i])
                    y[e, k] = v
                    total[job_type[e], k] += v


@kernel
def _project_block_as_printed(z: Floats, a: Floats, c: float, order: Ints, y: Floats) -> None:
    """Steps 7–30 of OGASched Algorithm 1 for one server and device type, with ρ of OGASched (13).

    ``order`` lists the entries by descending z. Three repairs let it end at all: S is emptied
    before every pass, B² is set to zero, and an empty B³ ends the loop. What it returns may break
    either constraint.
    """
    n = z.size
    # Two nested loops: the outer one moves entries to B¹, the inner one from B³ to B².
    saturated = 0  # the size of B¹: nothing, then the first entry
    while True:
        for i in range(n):
            y[i] = 0.0
        end = n  # B³ is order[saturated:end]
        while end > saturated:
            rest = c
            for i in range(saturated):
                rest -= a[order[i]]
            whole = 0.0
            for i in range(saturated, end):
                whole += z[order[i]]
            half_rho = (whole - rest) / (end - saturated)  # ρ / 2 of OGASched (13)
            negative = end
            for i in range(saturated, end):
                y[order[i]] = z[order[i]] - half_rho
                if y[order[i]] < 0.0:
                    negative = i
                    break
            for i in range(negative, end):  # step 27: from the first negative one on
                y[order[i]] = 0.0
            if negative == end:
                break
            end = negative
        for i in range(saturated):
            y[order[i]] = a[order[i]]
        # As printed, no entry but the first may join B¹, whoever exceeds its request.
        if saturated == 0 and n > 0 and y[order[0]] > a[order[0]]:
            saturated = 1
        else:
            return


@kernel
def project_as_printed(z: Floats, layout: Any, y: Floats, order: Ints, work: Floats) -> None:
    """Steps 5–31 of OGASched Algorithm 1 for every server and device type: ``y`` from ``z`` [E, K].

    ``order`` [L] and ``work`` [3, L] are work space.
    """
    requests, _, capacity, starts, job_type = layout
    block, a, out = work[0], work[1], work[2]
    for r in range(starts.shape[0] - 1):
        begin, n = starts[r], starts[r + 1] - starts[r]
        for k in range(z.shape[1]):
            for i in range(n):
                # The block of one server and device type, with its requests as bounds.
                block[i] = z[begin + i, k]
                a[i] = requests[job_type[begin + i], k]
                at = i  # sorted by insertion: few entries, and equal ones keep their order
                while at > 0 and block[order[at - 1]] < block[i]:
                    order[at] = order[at - 1]
                    at -= 1
                order[at] = i
            _project_block_as_printed(block[:n], a[:n], capacity[r, k], order[:n], out[:n])
            for i in range(n):
                y[begin + i, k] = out[i]


# Baselines of OGASched §4, and the greedy


@kernel
def share_proportionally(weight: Floats, shares: Floats, layout: Any, y: Floats) -> None:
    """Proportional shares y = min(a, c · w s / Σ w s) of every server and device type.

    ``weight`` [L] says who shares, ``shares`` [L, K] what shares are proportional to.
    """
    _, upper, capacity, starts, job_type = layout
    K = y.shape[1]
    for r in range(starts.shape[0] - 1):
        for k in range(K):
            whole = 0.0
            for e in range(starts[r], starts[r + 1]):
                l = job_type[e]
                whole += weight[l] * shares[l, k]
            for e in range(starts[r], starts[r + 1]):
                l = job_type[e]
                part = weight[l] * shares[l, k]
                # ``upper`` may cut a share; what it cuts off is not handed on.
                # One positive part makes the sum positive, so that nothing is divided by zero.
                y[e, k] = min(upper[e, k], capacity[r, k] * part / whole) if part > 0.0 else 0.0


@kernel
def fill_progressively(
    arrived: Ints, bundles: bool, most: Floats, layout: Any, left: Floats, rises: Ints, y: Floats
) -> None:
    """Progressive filling of every server: the dominant shares of its jobs rise together.

    A channel e holds level / most[e] of its demand ``upper`` [E, K]; ``most`` [E] is its dominant
    share when it has all of it. A device type that runs out stops there, or, with ``bundles``,
    stops the jobs that demand it. ``left`` [K] and ``rises`` [L] are work space.
    """
    _, upper, capacity, starts, job_type = layout
    K = upper.shape[1]
    for r in range(starts.shape[0] - 1):
        begin, n = starts[r], starts[r + 1] - starts[r]
        rising = 0
        for i in range(n):
            e = begin + i
            rises[i] = 1 if arrived[job_type[e]] != 0 and most[e] > 0.0 else 0
            rising += rises[i]
            for k in range(K):
                y[e, k] = 0.0
        for k in range(K):
            # Servers are filled one by one: dominant shares of different servers do not meet.
            left[k] = capacity[r, k]
        level = 0.0
        while rising > 0:
            # What happens first: a job has all that it demands, or a device type runs out.
            # Events below n are jobs, the others device types.
            step, event = math.inf, -1
            for i in range(n):
                if rises[i] != 0 and most[begin + i] - level < step:
                    step, event = most[begin + i] - level, i
            for k in range(K):
                speed = 0.0  # devices per unit of dominant share
                for i in range(n):
                    if rises[i] != 0:
                        speed += upper[begin + i, k] / most[begin + i]
                if left[k] > 0.0 and speed * step > left[k]:
                    step, event = left[k] / speed, n + k
            level += step
            for k in range(K):
                if left[k] > 0.0:
                    for i in range(n):
                        if rises[i] != 0:
                            v = step * upper[begin + i, k] / most[begin + i]
                            # Rounding of many steps must pass neither demand nor capacity.
                            y[begin + i, k] = min(y[begin + i, k] + v, upper[begin + i, k])
                            left[k] = max(left[k] - v, 0.0)
            if event < n:  # it has all of its demand
                rises[event] = 0
                rising -= 1
            else:  # exactly nothing, or rounding would let it run out once more
                left[event - n] = 0.0
            if bundles:  # whatever the event was: a device type may run out as a job is complete
                for k in range(K):
                    for i in range(n):
                        if left[k] <= 0.0 and rises[i] != 0 and upper[begin + i, k] > 0.0:
                            rises[i] = 0
                            rising -= 1


@kernel
def list_schedule(order: Ints, upper: Floats, lists: Any, left: Floats, y: Floats) -> None:
    """List scheduling: each job type of ``order`` takes min(a, what is left) on all its servers.

    ``lists`` are the server of each channel, channels by job type, and where each job type begins
    [L + 1]. ``left`` [R, K] begins with the capacity, ``y`` with zeros.
    """
    server, of_job_type, begin = lists
    K = y.shape[1]
    for i in range(order.size):
        l = order[i]
        for j in range(begin[l], begin[l + 1]):
            # Of each device type apart: what a job lacks of one it still takes of the others.
            e = of_job_type[j]
            r = server[e]
            for k in range(K):
                v = min(upper[e, k], left[r, k])
                y[e, k] = v
                left[r, k] -= v


@kernel
def list_schedule_in_turns(
    order: Ints,
    sign: float,
    size: Floats,
    layout: Any,
    lists: Any,
    left: Floats,
    space: tuple[Floats, Ints],
    y: Floats,
) -> None:
    """List scheduling in turns: each job takes what it may hold from its best server not used yet.

    The best server has the largest ``sign`` · utilisation, then the largest ``size`` [R], then the
    smallest index. Utilisation is the mean over device types of the share handed out. ``left``
    [R, K] begins with the capacity, ``y`` and ``space``, scores [R] and
    which channels had their turn [E], with zeros.
    """
    _, upper, capacity, _, _ = layout
    server, of_job_type, begin = lists
    score, served = space
    K = capacity.shape[1]
    waiting = 0  # channels that have not had their turn
    for i in range(order.size):
        waiting += begin[order[i] + 1] - begin[order[i]]
    while waiting > 0:
        for i in range(order.size):
            l = order[i]
            best = -1
            for j in range(begin[l], begin[l + 1]):
                e = of_job_type[j]
                if served[e] != 0:
                    continue
                if best < 0:
                    best = e
                    continue
                r, b = server[e], server[best]
                # Most used first with sign 1 (bin packing), least used first with −1 (spreading).
                # Channels of a job type are in server order, so that a full tie stays with the
                # smallest index.
                ahead = sign * (score[r] - score[b])
                if ahead > 0.0 or (ahead == 0.0 and size[r] > size[b]):
                    best = e
            if best < 0:
                continue
            served[best] = 1
            waiting -= 1
            r = server[best]
            used, kinds = 0.0, 0
            for k in range(K):
                v = min(upper[best, k], left[r, k])
                y[best, k] = v
                left[r, k] -= v
                if capacity[r, k] > 0.0:
                    used += 1.0 - left[r, k] / capacity[r, k]
                    kinds += 1
            # Later turns of the same round see what this one has taken.
            score[r] = used / kinds if kinds > 0 else 0.0


@kernel
def greedy_round(
    y: Floats, g: Floats, active: Ints, quantum: Floats, layout: Any, left: Floats, total: Floats
) -> float:
    """One round of the marginal-reward greedy; returns the number of devices handed out.

    On every server and device type up to ``quantum`` [R, K] devices go to the active job types in
    descending order of their marginal reward ``g``, while it is positive and they may hold more.
    """
    _, upper, _, starts, job_type = layout
    K = y.shape[1]
    amount = 0.0
    for r in range(starts.shape[0] - 1):
        for k in range(K):
            budget = min(quantum[r, k], left[r, k])
            while budget > 0.0:
                # Marginal rewards are those from before the round; a small quantum keeps them
                # nearly right.
                best, steepest = -1, 0.0
                for e in range(starts[r], starts[r + 1]):
                    if active[job_type[e]] != 0 and y[e, k] < upper[e, k] and g[e, k] > steepest:
                        best, steepest = e, g[e, k]
                if best < 0:
                    break
                room = upper[best, k] - y[best, k]
                # Never more than the quantum in a round: the next one sees what this has changed.
                v = min(budget, room)
                # Exactly the bound, not a rounding error below it, so that the job is done here.
                y[best, k] = upper[best, k] if v == room else y[best, k] + v
                total[job_type[best], k] += v
                budget -= v
                left[r, k] -= v
                amount += v
    return amount
