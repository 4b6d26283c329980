"""Inner loops of gang placement: whole tasks on servers, all-or-nothing for each job.

Everything works on two bundles of arrays: :class:`Gangs`, which stays as it is, and :class:`Held`,
who holds what at the moment. A task is moved by ``put`` and ``take`` only, so the two always agree.
Where servers tie, the larger wins (``size``), and only then the one with the smaller index.
"""

from __future__ import annotations

from typing import NamedTuple

from gangwise.kernels import Floats, Ints, kernel

__all__ = [
    "Gangs",
    "Held",
    "follow",
    "greedy",
    "improve",
    "in_order",
    "job_reward",
    "put",
    "recall",
    "take",
]

NEVER = -1e300
CLEAR = 1e-9  # rewards must differ by this, relative to 1 + their size, to count as different


class Gangs(NamedTuple):
    """A gang problem as the kernels want it."""

    job_type: Ints  # [Q] of each task
    first: Ints  # [L + 1] tasks of job type l are first[l] … first[l + 1] - 1
    minimum: Ints  # [L]
    request: Floats  # [Q, K]
    pair_first: Ints  # [Q + 1] the channels that can hold task q, in pair_channel
    pair_channel: Ints  # [P]
    server: Ints  # [E]
    size: Floats  # [R] breaks ties between servers
    capacity: Floats  # [R, K]
    beta: Floats  # [K]
    stride: Ints  # [Q], offset [E] and value [N]: gains by table, see gang/gains.py
    offset: Ints
    value: Floats


class Held(NamedTuple):
    """Who holds what."""

    channel: Ints  # [Q] of each task, -1 for none
    left: Floats  # [R, K] devices not handed out
    total: Floats  # [L, K] devices handed out, what the overhead is paid for
    placed: Ints  # [L] tasks placed
    state: Ints  # [E] number of the set of tasks on each channel
    saved: Ints  # [Q] work space


@kernel
def put(g: Gangs, h: Held, q: int, e: int) -> None:
    """Place task ``q`` on channel ``e``."""
    l, r = g.job_type[q], g.server[e]
    h.channel[q] = e
    h.placed[l] += 1
    h.state[e] += g.stride[q]
    for k in range(g.beta.size):
        h.left[r, k] -= g.request[q, k]
        h.total[l, k] += g.request[q, k]


@kernel
def take(g: Gangs, h: Held, q: int) -> None:
    """Take task ``q`` off its server."""
    l, e = g.job_type[q], h.channel[q]
    r = g.server[e]
    h.channel[q] = -1
    h.placed[l] -= 1
    h.state[e] -= g.stride[q]
    for k in range(g.beta.size):
        h.left[r, k] += g.request[q, k]
        h.total[l, k] = 0.0 if h.placed[l] == 0 else h.total[l, k] - g.request[q, k]


@kernel
def clear(g: Gangs, h: Held, l: int) -> None:
    """Take a whole job off its servers."""
    for q in range(g.first[l], g.first[l + 1]):
        if h.channel[q] >= 0:
            take(g, h, q)


@kernel
def fits(g: Gangs, h: Held, q: int, e: int) -> bool:
    """Whether a task fits in what its server has left (with room for rounding errors)."""
    r = g.server[e]
    for k in range(g.beta.size):
        if g.request[q, k] > h.left[r, k] + 1e-11 * (1.0 + g.capacity[r, k]):
            return False
    return True


@kernel
def overhead(g: Gangs, h: Held, l: int, q: int) -> float:
    """max_k β_k (devices of the job, with those of task ``q`` if that is not -1)."""
    largest = 0.0
    for k in range(g.beta.size):
        devices = h.total[l, k] + (g.request[q, k] if q >= 0 else 0.0)
        largest = max(largest, g.beta[k] * devices)
    return largest


@kernel
def added_gain(g: Gangs, h: Held, q: int, e: int) -> float:
    """What the gain of channel ``e`` grows by when task ``q`` joins."""
    base = g.offset[e] + h.state[e]
    return float(g.value[base + g.stride[q]] - g.value[base])


@kernel
def job_reward(g: Gangs, h: Held, l: int) -> float:
    """Gain minus overhead of what a job holds."""
    gain = 0.0
    for q in range(g.first[l], g.first[l + 1]):
        e = h.channel[q]
        if e < 0:
            continue
        seen = False
        for other in range(g.first[l], q):
            seen = seen or h.channel[other] == e
        if not seen:
            gain += g.value[g.offset[e] + h.state[e]]
    return gain - overhead(g, h, l, -1)


@kernel
def used_share(g: Gangs, h: Held, r: int) -> float:
    """Mean over the device types that a server has of the share handed out."""
    used, kinds = 0.0, 0
    for k in range(g.beta.size):
        if g.capacity[r, k] > 0.0:
            used += 1.0 - h.left[r, k] / g.capacity[r, k]
            kinds += 1
    return used / kinds if kinds > 0 else 0.0


@kernel
def best_server(g: Gangs, h: Held, q: int, sign: float, preference: Floats) -> int:
    """Channel with room for a task: largest ``sign`` · used share, then largest ``preference``."""
    best, top = -1, 0.0
    for i in range(g.pair_first[q], g.pair_first[q + 1]):
        e = g.pair_channel[i]
        if not fits(g, h, q, e):
            continue
        score = sign * used_share(g, h, g.server[e]) if sign != 0.0 else 0.0
        if best < 0 or score > top or (
            score == top and preference[g.server[e]] > preference[g.server[best]]
        ):
            best, top = e, score
    return best


@kernel
def in_order(
    g: Gangs, h: Held, order: Ints, ends: Ints, sign: float, preference: Floats, out: Ints,
) -> None:
    """Place the tasks of ``order`` one by one, in turns that end at the positions ``ends``.

    At the end of a turn the job furthest from its minimum is rolled back, for good, and what it
    held is offered to the tasks of the turn that found no place; and so on, until all that is left
    can be launched. ``out`` [L] marks the jobs rolled back.
    """
    out[:] = 0
    begin = 0
    for turn in range(ends.size):
        while True:
            for i in range(begin, ends[turn]):
                q = order[i]
                if h.channel[q] < 0 and out[g.job_type[q]] == 0:
                    e = best_server(g, h, q, sign, preference)
                    if e >= 0:
                        put(g, h, q, e)
            worst, furthest = -1, 1.0
            for i in range(begin, ends[turn]):
                l = g.job_type[order[i]]
                share = h.placed[l] / g.minimum[l]
                if out[l] == 0 and (share < furthest or (share == furthest and share < 1.0)):
                    worst, furthest = l, share
            if worst < 0:
                break
            out[worst] = 1
            clear(g, h, worst)
        begin = ends[turn]


@kernel
def grow(g: Gangs, h: Held, l: int, most: int) -> bool:
    """Add the task and server with the largest marginal reward to a job, again and again.

    Up to its minimum whatever the sign, then while it is positive, and up to ``most`` tasks.
    Returns whether the job can be launched.
    """
    while h.placed[l] < most:
        task, channel, top = -1, -1, NEVER
        before = overhead(g, h, l, -1)
        for q in range(g.first[l], g.first[l + 1]):
            if h.channel[q] >= 0:
                continue
            price = overhead(g, h, l, q) - before
            for i in range(g.pair_first[q], g.pair_first[q + 1]):
                e = g.pair_channel[i]
                worth = added_gain(g, h, q, e) - price
                if worth < top or not fits(g, h, q, e):
                    continue
                if worth > top or (
                    q == task and g.size[g.server[e]] > g.size[g.server[channel]]
                ):
                    task, channel, top = q, e, worth
        if task < 0 or (h.placed[l] >= g.minimum[l] and top <= CLEAR):
            break
        put(g, h, task, channel)
    return bool(h.placed[l] >= g.minimum[l])


@kernel
def launch(g: Gangs, h: Held, l: int) -> float:
    """Build a gang from nothing; roll it back unless its reward, which is returned, is positive."""
    if grow(g, h, l, g.first[l + 1] - g.first[l]):
        reward = job_reward(g, h, l)
        if reward > CLEAR:
            return reward
    clear(g, h, l)
    return 0.0


@kernel
def greedy(g: Gangs, h: Held, active: Ints, worth: Floats) -> None:
    """Launch the gang with the largest reward, again and again, among those not launched.

    The reward that a gang would have is brought up to date only when it is the largest on the list
    (it hardly ever rises as room is taken). ``worth`` [L] is work space.
    """
    L = g.minimum.size
    for l in range(L):
        worth[l] = 0.0
        if active[l] != 0 and h.placed[l] == 0:
            worth[l] = launch(g, h, l)
            clear(g, h, l)
    while True:
        best = 0
        for l in range(1, L):
            if worth[l] > worth[best]:
                best = l
        if worth[best] <= 0.0:
            break
        now = launch(g, h, best)
        rival = 0.0
        for l in range(L):
            if l != best:
                rival = max(rival, worth[l])
        if now >= rival:
            worth[best] = 0.0
        else:
            clear(g, h, best)
            worth[best] = now
    for l in range(L):
        if h.placed[l] > 0:
            grow(g, h, l, g.first[l + 1] - g.first[l])


@kernel
def cover(g: Gangs, plan: Floats, q: int, e: int) -> float:
    """The part of a task that a fractional plan pays for on a channel, 0 to 1."""
    part = 1.0
    for k in range(g.beta.size):
        if g.request[q, k] > 0.0:
            part = min(part, plan[e, k] / g.request[q, k])
    return round(part * 1e6) / 1e6


@kernel
def planned(g: Gangs, h: Held, plan: Floats, q: int, least: float) -> int:
    """Channel where a task gains most, among those with room whose plan covers ``least`` of it."""
    best, top = -1, 0.0
    for i in range(g.pair_first[q], g.pair_first[q + 1]):
        e = g.pair_channel[i]
        if cover(g, plan, q, e) < least or not fits(g, h, q, e):
            continue
        worth = added_gain(g, h, q, e)
        if best < 0 or worth > top or (
            worth == top and g.size[g.server[e]] > g.size[g.server[best]]
        ):
            best, top = e, worth
    return best


@kernel
def follow(g: Gangs, h: Held, active: Ints, plan: Floats, least: float) -> None:
    """Round a fractional plan [E, K], which is used up, to whole gangs.

    Job by job, those first whose tasks the plan covers most: each task goes where the plan covers
    ``least`` of it and it gains most; a gang that is then short of its minimum is completed
    wherever there is room, or rolled back, and so is one that is not worth its overhead.
    """
    L, K = g.minimum.size, g.beta.size
    h.saved[:L] = 0
    while True:
        job, top = -1, -1.0
        for l in range(L):
            if active[l] == 0 or h.saved[l] != 0:
                continue
            part, tasks = 0.0, g.first[l + 1] - g.first[l]
            for q in range(g.first[l], g.first[l + 1]):
                best = 0.0
                for i in range(g.pair_first[q], g.pair_first[q + 1]):
                    best = max(best, cover(g, plan, q, g.pair_channel[i]))
                part += best / tasks
            if part > top:
                job, top = l, part
        if job < 0:
            break
        h.saved[job] = 1
        for q in range(g.first[job], g.first[job + 1]):
            e = planned(g, h, plan, q, least)
            if e >= 0:
                put(g, h, q, e)
                for k in range(K):
                    plan[e, k] = max(0.0, plan[e, k] - g.request[q, k])
        if not grow(g, h, job, g.minimum[job]) or job_reward(g, h, job) <= CLEAR:
            clear(g, h, job)


@kernel
def recall(g: Gangs, h: Held, active: Ints, memory: Ints, worth: Floats) -> None:
    """Place gangs on the channels ``memory`` [Q], in descending order of their ``worth`` [L].

    Tasks whose room is taken meanwhile stay out; gangs short of their minimum are rolled back.
    """
    L = g.minimum.size
    h.saved[:L] = 0
    while True:
        job = -1
        for l in range(L):
            if active[l] != 0 and h.saved[l] == 0 and (job < 0 or worth[l] > worth[job]):
                job = l
        if job < 0:
            break
        h.saved[job] = 1
        for q in range(g.first[job], g.first[job + 1]):
            if memory[q] >= 0 and fits(g, h, q, memory[q]):
                put(g, h, q, memory[q])
        if h.placed[job] < g.minimum[job]:
            clear(g, h, job)


@kernel
def restore(g: Gangs, h: Held, l: int) -> None:
    """Put a job back as ``saved`` has it."""
    clear(g, h, l)
    for q in range(g.first[l], g.first[l + 1]):
        if h.saved[q] >= 0:
            put(g, h, q, h.saved[q])


@kernel
def rebuild(g: Gangs, h: Held, one: int, other: int) -> bool:
    """Take two jobs (or one twice) off, build ``one`` and then ``other`` anew; keep if better."""
    before = job_reward(g, h, one) + (job_reward(g, h, other) if other != one else 0.0)
    for l in (one, other):
        for q in range(g.first[l], g.first[l + 1]):
            h.saved[q] = h.channel[q]
    clear(g, h, one)
    clear(g, h, other)
    after = launch(g, h, one)
    if other != one:
        after += launch(g, h, other)
    if after > before + CLEAR * (1.0 + abs(before)):
        return True
    clear(g, h, one)
    clear(g, h, other)
    restore(g, h, one)
    if other != one:
        restore(g, h, other)
    return False


@kernel
def improve(g: Gangs, h: Held, active: Ints, passes: int) -> int:
    """Rebuild single jobs and pairs of jobs while that raises the reward; never lowers it.

    Rebuilding one job moves, adds or drops its tasks, or drops it whole when it is worth less than
    nothing; rebuilding a pair lets a job have the servers of another. Returns how often it helped.
    """
    L = g.minimum.size
    helped = 0
    for _ in range(passes):
        before = helped
        for one in range(L):
            if active[one] == 0:
                continue
            for step in range(L):
                other = (one + step) % L  # the job alone first, then with each other one
                if active[other] != 0 and rebuild(g, h, one, other):
                    helped += 1
        if helped == before:
            break
    return helped
