"""Inner loops of gang placement: whole tasks on servers, all-or-nothing for each job.

:class:`GangArrays` holds the problem and never changes; :class:`Allocation` says who holds what.
Only ``put`` and ``take`` move a task, so the columns of the allocation always agree. Where servers
tie, the larger one (``size``) wins, then the one with the smaller index.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.jit import kernel


class GangArrays(NamedTuple):
    """Gang problem as the kernels want it: arrays that never change."""

    job_type: Ints  # [Q] of each task
    first: Ints  # [L + 1] tasks of job type l are first[l] … first[l + 1] - 1
    minimum: Ints  # [L]
    request: Floats  # [Q, K]
    cost: Floats  # [Q] what a task pays wherever it runs; 0 where gains are weighed
    pair_first: Ints  # [Q + 1] the channels that can hold task q, in pair_channel
    pair_channel: Ints  # [P]
    server: Ints  # [E]
    size: Floats  # [R] breaks ties between servers
    capacity: Floats  # [R, K]
    beta: Floats  # [K]
    stride: Ints  # [Q], offset [E] and value [N]: gains by table, see placement.GainTable
    offset: Ints
    value: Floats


class Allocation(NamedTuple):
    channel: Ints  # [Q] of each task, -1 for none
    left: Floats  # [R, K] devices not handed out
    total: Floats  # [L, K] devices handed out, what the overhead is paid for
    placed: Ints  # [L] tasks placed
    state: Ints  # [E] number of the set of tasks on each channel
    saved: Ints  # [Q] channels to go back to


@kernel
def put(g: GangArrays, h: Allocation, q: int, e: int) -> None:
    l, r = g.job_type[q], g.server[e]
    h.channel[q] = e
    h.placed[l] += 1
    h.state[e] += g.stride[q]
    for k in range(g.beta.size):
        h.left[r, k] -= g.request[q, k]
        h.total[l, k] += g.request[q, k]


@kernel
def take(g: GangArrays, h: Allocation, q: int) -> None:
    l, e = g.job_type[q], h.channel[q]
    r = g.server[e]
    h.channel[q] = -1
    h.placed[l] -= 1
    h.state[e] -= g.stride[q]
    for k in range(g.beta.size):
        h.left[r, k] += g.request[q, k]
        # Exactly nothing when the last task leaves, so that rounding cannot pile up.
        h.total[l, k] = 0.0 if h.placed[l] == 0 else h.total[l, k] - g.request[q, k]


@kernel
def clear(g: GangArrays, h: Allocation, l: int) -> None:
    for q in range(g.first[l], g.first[l + 1]):
        if h.channel[q] >= 0:
            take(g, h, q)


@kernel
def fits(g: GangArrays, h: Allocation, q: int, e: int) -> bool:
    """Whether a task fits in what its server has left (with room for rounding errors)."""
    r = g.server[e]
    for k in range(g.beta.size):  # what was taken off and put back leaves some rounding behind
        if g.request[q, k] > h.left[r, k] + 1e-11 * (1.0 + g.capacity[r, k]):
            return False
    return True


@kernel
def overhead(g: GangArrays, h: Allocation, l: int, q: int) -> float:
    """Overhead max_k β_k Σ y of OGASched (5) for a job, with task ``q`` if that is not -1."""
    largest = 0.0
    for k in range(g.beta.size):
        devices = h.total[l, k] + (g.request[q, k] if q >= 0 else 0.0)
        largest = max(largest, g.beta[k] * devices)
    return largest


@kernel
def added_gain(g: GangArrays, h: Allocation, q: int, e: int) -> float:
    """Marginal gain of channel ``e`` when task ``q`` joins: a difference of two table entries."""
    base = g.offset[e] + h.state[e]
    return float(g.value[base + g.stride[q]] - g.value[base])


@kernel
def job_reward(g: GangArrays, h: Allocation, l: int) -> float:
    """Reward of a job, gain minus overhead of what it holds, OGASched (5)."""
    gain = 0.0
    for q in range(g.first[l], g.first[l + 1]):
        e = h.channel[q]
        if e < 0:
            continue
        seen = False  # the table has the gain of all tasks on a channel: count it once
        for other in range(g.first[l], q):
            seen = seen or h.channel[other] == e
        if not seen:
            gain += g.value[g.offset[e] + h.state[e]]
    return gain - overhead(g, h, l, -1)


@kernel
def used_share(g: GangArrays, h: Allocation, r: int) -> float:
    """Mean over the device types that a server has of the share handed out."""
    used, kinds = 0.0, 0
    for k in range(g.beta.size):
        if g.capacity[r, k] > 0.0:
            used += 1.0 - h.left[r, k] / g.capacity[r, k]
            kinds += 1
    return used / kinds if kinds > 0 else 0.0


@kernel
def filled_share(g: GangArrays, h: Allocation, q: int, r: int) -> float:
    """Mean over the device types that a task requests of the share handed out with it there."""
    share, kinds = 0.0, 0
    for k in range(g.beta.size):
        if g.request[q, k] > 0.0:
            share += (g.capacity[r, k] - h.left[r, k] + g.request[q, k]) / g.capacity[r, k]
            kinds += 1
    return share / kinds


@kernel
def best_server(
    g: GangArrays, h: Allocation, q: int, sign: float, filled: bool, preference: Floats
) -> int:
    """Channel with room for a task: largest ``sign`` · share, then largest ``preference`` [R].

    The share is :func:`filled_share` or, unless ``filled``, :func:`used_share`.
    """
    best, top = -1, 0.0
    for i in range(g.pair_first[q], g.pair_first[q + 1]):
        e = g.pair_channel[i]
        r = g.server[e]
        if not fits(g, h, q, e):
            continue
        score = 0.0
        if sign != 0.0:
            score = sign * (filled_share(g, h, q, r) if filled else used_share(g, h, r))
        if best < 0 or score > top or (score == top and preference[r] > preference[g.server[best]]):
            best, top = e, score
    return best


@kernel
def list_schedule(
    g: GangArrays,
    h: Allocation,
    order: Ints,
    ends: Ints,
    sign: float,
    filled: bool,
    preference: Floats,
) -> None:
    """List scheduling of gangs: the tasks of ``order`` one by one, in turns that end at ``ends``.

    At the end of a turn the job furthest from its minimum is rolled back for good, and its room is
    offered to the tasks of the turn that found no place; this repeats until all jobs that are left
    can be launched. Servers are chosen by :func:`best_server`.
    """
    rolled_back = np.zeros(g.minimum.size, dtype=np.bool_)
    begin = 0
    for turn in range(ends.size):
        while True:
            for i in range(begin, ends[turn]):
                q = order[i]
                if h.channel[q] < 0 and not rolled_back[g.job_type[q]]:
                    e = best_server(g, h, q, sign, filled, preference)
                    if e >= 0:
                        put(g, h, q, e)
            # The job furthest from its minimum; of several the last in the turn.
            worst, furthest = -1, 1.0
            for i in range(begin, ends[turn]):
                l = g.job_type[order[i]]
                share = h.placed[l] / g.minimum[l]
                if not rolled_back[l] and (share < furthest or (share == furthest and share < 1.0)):
                    worst, furthest = l, share
            if worst < 0:
                break
            rolled_back[worst] = True  # for good, so that the loop ends after at most L rounds
            clear(g, h, worst)
        begin = ends[turn]


@kernel
def first_in_queue(g: GangArrays, h: Allocation, done: Bools, priority: Ints, total: Floats) -> int:
    """Volcano's first job: one short of its minimum, then by priority, then by dominant share."""
    job, job_ready, job_share = -1, False, 0.0
    for l in range(g.minimum.size):
        if done[l]:
            continue
        ready = h.placed[l] >= g.minimum[l]
        share = 0.0
        for k in range(total.size):
            if total[k] > 0.0:
                share = max(share, h.total[l, k] / total[k])
        first = job < 0  # strict comparisons below: of equals the one listed first stays
        if not first and ready != job_ready:
            first = not ready
        elif not first and priority[l] != priority[job]:
            first = priority[l] > priority[job]
        elif not first:
            first = share < job_share
        if first:
            job, job_ready, job_share = l, ready, share
    return job


@kernel
def volcano_allocate(
    g: GangArrays, h: Allocation, priority: Ints, arrivals: Ints, total: Floats, sign: float
) -> None:
    """Volcano's allocate: a queue of jobs, taken up again once they have their minimum.

    The first of the queue (:func:`first_in_queue`, with ``priority`` [L] and shares of ``total``
    [K]) places tasks until it is ready, that is, has its minimum; a ready job places one. A task
    that finds no room ends its job, which keeps what it holds only if it is ready.
    """
    done = arrivals == 0
    while True:
        job = first_in_queue(g, h, done, priority, total)
        if job < 0:
            break
        for q in range(g.first[job], g.first[job + 1]):
            if h.channel[q] >= 0:
                continue
            e = best_server(g, h, q, sign, True, g.size)
            if e < 0:
                done[job] = True
                break
            put(g, h, q, e)
            if h.placed[job] >= g.minimum[job]:
                break  # ready: back into the queue, where jobs that are not go first
        if h.placed[job] < g.minimum[job]:
            clear(g, h, job)
            done[job] = True
        elif h.placed[job] == g.first[job + 1] - g.first[job]:
            done[job] = True
