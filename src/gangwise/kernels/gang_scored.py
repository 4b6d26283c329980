"""Inner loops of gang schedulers that score servers by how full a task would leave them.

They move tasks with ``put`` and ``take`` of :mod:`gangwise.kernels.gang` only.
"""

from __future__ import annotations

from gangwise.kernels import Floats, Ints, kernel
from gangwise.kernels.gang import Gangs, Held, clear, fits, put

__all__ = ["filled_share", "job_by_job", "take_turns"]


@kernel
def filled_share(g: Gangs, h: Held, q: int, r: int) -> float:
    """Mean, over the device types that a task requests, of the share handed out with it there."""
    share, kinds = 0.0, 0
    for k in range(g.beta.size):
        if g.request[q, k] > 0.0:
            share += (g.capacity[r, k] - h.left[r, k] + g.request[q, k]) / g.capacity[r, k]
            kinds += 1
    return share / kinds


@kernel
def scored_server(g: Gangs, h: Held, q: int, sign: float) -> int:
    """Channel with room for a task: largest ``sign`` · filled share, then the largest server."""
    best, top = -1, 0.0
    for i in range(g.pair_first[q], g.pair_first[q + 1]):
        e = g.pair_channel[i]
        if not fits(g, h, q, e):
            continue
        score = sign * filled_share(g, h, q, g.server[e])
        if best < 0 or score > top or (
            score == top and g.size[g.server[e]] > g.size[g.server[best]]
        ):
            best, top = e, score
    return best


@kernel
def job_by_job(g: Gangs, h: Held, jobs: Ints, rank: Ints, sign: float) -> None:
    """Place all tasks of one job that fit, then those of the next; roll back what falls short.

    ``rank`` [Q] lists the tasks of each job type in the order in which they are placed.
    """
    for j in range(jobs.size):
        l = jobs[j]
        for i in range(g.first[l], g.first[l + 1]):
            e = scored_server(g, h, rank[i], sign)
            if e >= 0:
                put(g, h, rank[i], e)
        if h.placed[l] < g.minimum[l]:
            clear(g, h, l)


@kernel
def take_turns(
    g: Gangs, h: Held, priority: Ints, arrivals: Ints, total: Floats, sign: float, done: Ints,
) -> None:
    """A queue of jobs that are taken up again task by task once they have their minimum.

    First in the queue is a job that is not ready (short of its minimum), then the one of larger
    ``priority`` [L], then the smaller dominant share of ``total`` [K] that it holds, then the
    earlier in the list. It places tasks until it is ready; a ready job places one. A task that
    finds no room ends its job: what it holds is kept if it is ready, and given back if not.
    ``done`` [L] is work space.
    """
    L, K = g.minimum.size, g.beta.size
    for l in range(L):
        done[l] = 0 if arrivals[l] != 0 else 1
    while True:
        job, job_ready, job_share = -1, False, 0.0
        for l in range(L):
            if done[l] != 0:
                continue
            ready = h.placed[l] >= g.minimum[l]
            share = 0.0
            for k in range(K):
                if total[k] > 0.0:
                    share = max(share, h.total[l, k] / total[k])
            first = job < 0
            if not first and ready != job_ready:
                first = not ready
            elif not first and priority[l] != priority[job]:
                first = priority[l] > priority[job]
            elif not first:
                first = share < job_share
            if first:
                job, job_ready, job_share = l, ready, share
        if job < 0:
            break
        for q in range(g.first[job], g.first[job + 1]):
            if h.channel[q] >= 0:
                continue
            e = scored_server(g, h, q, sign)
            if e < 0:
                done[job] = 1
                break
            put(g, h, q, e)
            if h.placed[job] >= g.minimum[job]:
                break
        if h.placed[job] < g.minimum[job]:
            clear(g, h, job)
            done[job] = 1
        elif h.placed[job] == g.first[job + 1] - g.first[job]:
            done[job] = 1
