"""Inner loops of the heuristics: how one slot's devices are handed out."""

from __future__ import annotations

from gangwise.kernels import Floats, Ints, kernel

__all__ = ["fill_round", "pack", "serve_in_order", "share_proportionally"]


@kernel
def share_proportionally(
    weight: Floats, shares: Floats, upper: Floats, capacity: Floats, starts: Ints,
    job_type: Ints, y: Floats,
) -> None:
    """Shares y = min(a, c · w s / Σ w s) on every server and device type.

    ``weight`` [L] says who shares, ``shares`` [L, K] what shares are proportional to.
    """
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
                y[e, k] = min(upper[e, k], capacity[r, k] * part / whole) if part > 0.0 else 0.0


@kernel
def serve_in_order(
    order: Ints, upper: Floats, server: Ints, of_job_type: Ints, first: Ints,
    left: Floats, y: Floats,
) -> None:
    """Job types in ``order`` each take min(a, what is left) on every server they connect to.

    ``of_job_type`` lists channels by job type, ``first`` [L + 1] where each begins; ``left``
    [R, K] begins with the capacity, ``y`` with zeros.
    """
    K = y.shape[1]
    for i in range(order.size):
        l = order[i]
        for j in range(first[l], first[l + 1]):
            e = of_job_type[j]
            r = server[e]
            for k in range(K):
                v = min(upper[e, k], left[r, k])
                y[e, k] = v
                left[r, k] -= v


@kernel
def pack(
    order: Ints, sign: float, upper: Floats, capacity: Floats,
    size: Floats, server: Ints, of_job_type: Ints, first: Ints, left: Floats, score: Floats,
    taken: Ints, y: Floats,
) -> None:
    """Turn by turn, each job takes what it may hold from its best server not used yet.

    The best server has the largest ``sign`` · utilisation, then the largest ``size`` [R], then the
    smallest index. Utilisation is the mean over device types of the share handed out. ``left``
    [R, K] begins with the capacity, ``score`` [R], ``taken`` [E] and ``y`` with zeros.
    """
    K = capacity.shape[1]
    waiting = 0
    for i in range(order.size):
        waiting += first[order[i] + 1] - first[order[i]]
    while waiting > 0:
        for i in range(order.size):
            l = order[i]
            best = -1
            for j in range(first[l], first[l + 1]):
                e = of_job_type[j]
                if taken[e] != 0:
                    continue
                if best < 0:
                    best = e
                    continue
                r, b = server[e], server[best]
                ahead = sign * (score[r] - score[b])
                if ahead > 0.0 or (ahead == 0.0 and size[r] > size[b]):
                    best = e
            if best < 0:
                continue
            taken[best] = 1
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
            score[r] = used / kinds if kinds > 0 else 0.0


@kernel
def fill_round(
    y: Floats, g: Floats, active: Ints, quantum: Floats, upper: Floats, starts: Ints,
    job_type: Ints, left: Floats, total: Floats,
) -> float:
    """Hand out up to ``quantum`` · [what was left at first] where the marginal reward is highest.

    On every server and device type, ``quantum`` [R, K] devices go to the active job types in
    descending order of their marginal reward ``g``, as long as it is positive and they may hold
    more. Returns the number of devices handed out.
    """
    K = y.shape[1]
    given = 0.0
    for r in range(starts.shape[0] - 1):
        for k in range(K):
            budget = min(quantum[r, k], left[r, k])
            while budget > 0.0:
                best, steepest = -1, 0.0
                for e in range(starts[r], starts[r + 1]):
                    if active[job_type[e]] != 0 and y[e, k] < upper[e, k] and g[e, k] > steepest:
                        best, steepest = e, g[e, k]
                if best < 0:
                    break
                room = upper[best, k] - y[best, k]
                v = min(budget, room)
                y[best, k] = upper[best, k] if v == room else y[best, k] + v
                total[job_type[best], k] += v
                budget -= v
                left[r, k] -= v
                given += v
    return given
