"""Inner loops of the gang policies that weigh gains: launch, follow a plan, remember, rebuild.

They move tasks with ``put`` and ``take`` of :mod:`gangwise.kernels.gang` only.
"""

from __future__ import annotations

from gangwise.kernels import Floats, Ints, kernel
from gangwise.kernels.gang import Gangs, Held, added_gain, clear, fits, job_reward, overhead, put

__all__ = ["follow", "greedy", "improve", "recall"]

NEVER = -1e300
CLEAR = 1e-9  # rewards must differ by this, relative to 1 + their size, to count as different


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
    for l in range(L):
        h.saved[l] = 0
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
    for l in range(L):
        h.saved[l] = 0
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
