"""Inner loops of gang search: a greedy, rounding, local search, and Lagrangian prices.

:class:`GangArrays` is the problem and never changes; :class:`Allocation` is what the jobs hold.
Only ``put`` and ``take`` move a task, so the columns of the allocation always agree. Where servers
tie, the larger one (``size``) wins, then the one with the smaller index.

Policies that weigh gains launch gangs greedily, round a fractional plan or remember earlier gangs,
and then rebuild jobs, one and two at a time, where that raises the reward.

At fluctuating speeds devices are rented: with a price λ [R, K] on every device, the worth
Σ_e w_e n_e − Σ_q d_q of any feasible placement is at most

    D(λ) = Σ_(r,k) λ_rk c_rk + Σ_l max(0, max over gangs of Σ_tasks [w_e − d_q − λ_r · a_q]),

and the inner maximum is easy: every task takes its best channel, and the gang takes the tasks that
gain, or the m_l best ones. Prices that make D small also tell which tasks deserve scarce devices.
What is placed under them is improved by local search, which never makes anything worse.
"""

from typing import NamedTuple

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.core.jit import kernel


class GangArrays(NamedTuple):
    """Arrays of a gang problem for kernels; they never change."""

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


# Moving one task


@kernel
def put(g: GangArrays, h: Allocation, q: int, e: int) -> None:
    l, r = g.job_type[q], g.server[e]
    # The state of a channel is a mixed-radix number of the tasks on it, and the row of its table.
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


# What a job is worth, OGASched (5)


@kernel
def overhead(g: GangArrays, h: Allocation, l: int, q: int) -> float:
    """Overhead max_k β_k Σ y of OGASched (5) for a job, with task ``q`` if that is not -1."""
    largest = 0.0
    for k in range(g.beta.size):
        # Devices on all servers count: a gang talks across them.
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
        counted = False  # the table has the gain of all tasks on a channel: count it once
        for sibling in range(g.first[l], q):
            counted = counted or h.channel[sibling] == e
        if not counted:
            gain += g.value[g.offset[e] + h.state[e]]
    return gain - overhead(g, h, l, -1)


# Greedy, rounding and local search by reward


UNREACHED = -1e300
CLEAR = 1e-9
"""Rewards count as different when they differ by this, relative to 1 + their size."""


@kernel
def grow(g: GangArrays, h: Allocation, l: int, most: int) -> bool:
    """Greedy growth: add the task and server with the largest marginal reward, again and again.

    Up to its minimum whatever the sign, then while it is positive, and up to ``most`` tasks.
    Returns whether the job can be launched.
    """
    while h.placed[l] < most:
        task, channel, top = -1, -1, UNREACHED
        before = overhead(g, h, l, -1)  # a maximum over device types: many tasks add nothing to it
        for q in range(g.first[l], g.first[l + 1]):
            if h.channel[q] >= 0:
                continue
            price = overhead(g, h, l, q) - before
            for i in range(g.pair_first[q], g.pair_first[q + 1]):
                e = g.pair_channel[i]
                # Marginal reward: gain on this channel less what the
                # overhead of the whole gang rises by.
                worth = added_gain(g, h, q, e) - price
                # The cheap comparison first: most channels are no better than the best so far.
                if worth < top or not fits(g, h, q, e):
                    continue
                if worth > top or (q == task and g.size[g.server[e]] > g.size[g.server[channel]]):
                    task, channel, top = q, e, worth
        # Nothing fits any more, or the gang is complete and more tasks would cost more than they
        # gain.
        if task < 0 or (h.placed[l] >= g.minimum[l] and top <= CLEAR):
            break
        put(g, h, task, channel)
    return bool(h.placed[l] >= g.minimum[l])


@kernel
def launch(g: GangArrays, h: Allocation, l: int) -> float:
    """Launch: build a gang from nothing; rolled back unless its reward, returned, is positive."""
    if grow(g, h, l, g.first[l + 1] - g.first[l]):
        # A gang that is complete may still owe more overhead than it gains.
        reward = job_reward(g, h, l)
        if reward > CLEAR:
            return reward
    clear(g, h, l)
    return 0.0


@kernel
def greedy(g: GangArrays, h: Allocation, active: Ints) -> None:
    """Greedy: launch the gang with the largest reward, again and again, among those not launched.

    Lazy: a reward is computed anew only when the old one leads, for it hardly ever rises as room
    is taken.
    """
    L = g.minimum.size
    worth = np.zeros(L)  # what each job was worth when last built, in more room than there is now
    for l in range(L):
        if active[l] != 0 and h.placed[l] == 0:
            # Built on the empty rest of the cluster, and taken off again: an optimistic value.
            worth[l] = launch(g, h, l)
            clear(g, h, l)
    while True:
        best = 0
        for l in range(1, L):
            if worth[l] > worth[best]:
                best = l
        if worth[best] <= 0.0:
            break
        gain = launch(g, h, best)
        rival = 0.0
        for l in range(L):
            if l != best:
                rival = max(rival, worth[l])
        # Others can only have become less since their worth was computed; one that beats the
        # largest old value is the best now.
        if gain >= rival:  # the others have hardly become more, so this one is the best
            worth[best] = 0.0
        else:
            clear(g, h, best)
            worth[best] = gain
    for l in range(L):  # a gang that was rejected later may have given room back
        if h.placed[l] > 0:
            grow(g, h, l, g.first[l + 1] - g.first[l])


@kernel
def cover(g: GangArrays, plan: Floats, q: int, e: int) -> float:
    """The part of a task that a fractional plan pays for on a channel, 0 to 1."""
    part = 1.0
    for k in range(g.beta.size):
        if g.request[q, k] > 0.0:
            part = min(part, plan[e, k] / g.request[q, k])
    return round(part * 1e6) / 1e6  # a plan that is a rounding error short still covers


@kernel
def planned_channel(g: GangArrays, h: Allocation, plan: Floats, q: int, least: float) -> int:
    """Channel where a task gains most, among those with room whose plan covers ``least`` of it."""
    best, top = -1, 0.0
    for i in range(g.pair_first[q], g.pair_first[q + 1]):
        e = g.pair_channel[i]
        if cover(g, plan, q, e) < least or not fits(g, h, q, e):
            continue
        worth = added_gain(g, h, q, e)
        # Of equal gains the larger server, so that the choice does not depend on names.
        if (
            best < 0
            or worth > top
            or (worth == top and g.size[g.server[e]] > g.size[g.server[best]])
        ):
            best, top = e, worth
    return best


@kernel
def round_plan(g: GangArrays, h: Allocation, active: Ints, plan: Floats, least: float) -> None:
    """Rounding: a fractional plan [E, K], of which a copy is used up, to whole gangs.

    Job by job, those first whose tasks the plan covers most: each task goes where the plan covers
    ``least`` of it and it gains most; a gang that is then short of its minimum is completed
    wherever there is room, or rolled back, and so is one that is not worth its overhead.
    """
    L, K, plan = g.minimum.size, g.beta.size, plan.copy()
    waiting = active != 0
    while True:
        job, top = -1, -1.0
        for l in range(L):
            if not waiting[l]:
                continue
            # The share of the gang that the plan covers, each task where it is covered best.
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
        # Each job once, in the order of how well the plan covers it as of now.
        waiting[job] = False
        for q in range(g.first[job], g.first[job + 1]):
            e = planned_channel(g, h, plan, q, least)
            if e >= 0:
                put(g, h, q, e)
                for k in range(K):
                    # What a task takes of the plan covers no other task.
                    plan[e, k] = max(0.0, plan[e, k] - g.request[q, k])
        # The plan need not hold a whole gang: the missing tasks go wherever there is room.
        if not grow(g, h, job, g.minimum[job]) or job_reward(g, h, job) <= CLEAR:
            clear(g, h, job)


@kernel
def place_remembered(g: GangArrays, h: Allocation, jobs: Ints, memory: Ints) -> None:
    """Place gangs on the channels ``memory`` [Q], the ``jobs`` in this order.

    Tasks whose room is taken meanwhile stay out; gangs short of their minimum are rolled back.
    """
    for job in jobs:
        for q in range(g.first[job], g.first[job + 1]):
            if memory[q] >= 0 and fits(g, h, q, memory[q]):
                put(g, h, q, memory[q])
        if h.placed[job] < g.minimum[job]:
            clear(g, h, job)


@kernel
def save(h: Allocation) -> None:
    """Remember who holds what; a loop, for an assignment of slices takes longer."""
    for q in range(h.channel.size):
        h.saved[q] = h.channel[q]


@kernel
def rebuild(g: GangArrays, h: Allocation, one: int, other: int) -> bool:
    """Ruin and recreate: take two jobs (or one twice) off, build both anew; keep if better."""
    before = job_reward(g, h, one) + (job_reward(g, h, other) if other != one else 0.0)
    save(h)
    clear(g, h, one)
    clear(g, h, other)
    # In this order; the caller also asks for the pair the other way round.
    after = launch(g, h, one)
    if other != one:
        after += launch(g, h, other)
    if after > before + CLEAR * (1.0 + abs(before)):
        return True
    # No gain: both jobs leave, and every task goes back to where it was.
    clear(g, h, one)
    clear(g, h, other)
    for l in (one, other):
        for q in range(g.first[l], g.first[l + 1]):
            if h.saved[q] >= 0 and h.channel[q] < 0:
                put(g, h, q, h.saved[q])
    return False


@kernel
def local_search(g: GangArrays, h: Allocation, active: Ints, passes: int) -> int:
    """Local search: rebuild single jobs and pairs while that raises the reward; never lowers it.

    Rebuilding one job moves, adds or drops its tasks, or drops it whole when it is worth less than
    nothing; rebuilding a pair lets a job have the servers of another. Returns how often it helped.
    """
    L = g.minimum.size
    helped = 0
    for _ in range(passes):
        before = helped
        for job in range(L):
            if active[job] == 0:
                continue
            for step in range(L):
                partner = (job + step) % L  # the job alone first, then with each other one
                if active[partner] != 0 and rebuild(g, h, job, partner):
                    helped += 1
        if helped == before:
            break
    return helped


# Lagrangian prices: the dual D(λ), its subgradient steps, and gangs built under prices


@kernel
def price_of(g: GangArrays, price: Floats, q: int, r: int) -> float:
    """Rent λ_r · a_q: what a task pays on a server."""
    due = 0.0
    for k in range(g.beta.size):
        due += price[r, k] * g.request[q, k]
    return due


@kernel
def best_responses(
    g: GangArrays, arrivals: Ints, worth: Floats, price: Floats
) -> tuple[float, Floats, Floats]:
    """Lagrangian dual D(λ), which no placement exceeds, with every job's best gang under prices.

    Returns D, what each job gains [L], and the devices that they ask for [R, K].
    """
    R, K = g.capacity.shape
    Q = g.job_type.size
    best, channel = np.empty(Q), np.empty(Q, dtype=np.int64)  # of each task: gain and channel
    profit, demand = np.zeros(g.minimum.size), np.zeros((R, K))
    bound = 0.0
    for r in range(R):
        for k in range(K):
            # D(λ) = λ · c + Σ_l max(0, the best gang of l under λ).
            bound += price[r, k] * g.capacity[r, k]
    for l in range(g.minimum.size):
        if arrivals[l] == 0:
            continue
        gaining, total = 0, 0.0
        for q in range(g.first[l], g.first[l + 1]):
            # Without capacities tasks do not meet, so each takes its best channel.
            best[q], channel[q] = UNREACHED, -1
            for i in range(g.pair_first[q], g.pair_first[q + 1]):
                e = g.pair_channel[i]
                gain = worth[e] - g.cost[q] - price_of(g, price, q, g.server[e])
                if gain > best[q]:
                    best[q], channel[q] = gain, e
            if best[q] > 0.0:  # it joins of its own accord
                gaining += 1
                total += best[q]
        # All or nothing: below its minimum a gang takes along the tasks that lose least.
        while gaining < g.minimum[l]:
            task = -1
            for q in range(g.first[l], g.first[l + 1]):
                if best[q] <= 0.0 and (task < 0 or best[q] > best[task]):
                    task = q
            total += best[task]
            # Positive, so that it counts as chosen below, and too small to change any sum.
            best[task] = 1e-300  # taken
            gaining += 1
        if total <= 0.0:  # not launching is worth 0: the max(0, ·) of D
            continue
        profit[l] = total
        bound += total
        for q in range(g.first[l], g.first[l + 1]):
            if best[q] > 0.0:
                for k in range(K):
                    # What the best gangs would hold; where it exceeds c, the price has to rise.
                    demand[g.server[channel[q]], k] += g.request[q, k]
    return bound, profit, demand


@kernel
def polyak_step(g: GangArrays, price: Floats, demand: Floats, gap: float) -> bool:
    """Polyak step of the prices towards a bound lower by ``gap``; False at an optimum.

    Each device type is in units of its capacity, so that one step suits scarce and plenty. These
    are loops, for array expressions take longer on tables as small as these.
    """
    R, K = g.capacity.shape
    # A price at 0 that would fall stays at 0, so that it is no part of the step.
    norm = 0.0  # of the subgradient, c − demand; a price of 0 that would fall is left out
    for r in range(R):
        for k in range(K):
            over = demand[r, k] - g.capacity[r, k]
            if g.capacity[r, k] > 0.0 and (over > 0.0 or price[r, k] > 0.0):
                norm += (over / g.capacity[r, k]) ** 2
    if norm <= 1e-12:
        return False
    for r in range(R):
        for k in range(K):
            if g.capacity[r, k] > 0.0:
                over = (demand[r, k] - g.capacity[r, k]) / g.capacity[r, k]
                # Projected onto prices that are not negative, as the dual demands.
                price[r, k] = max(0.0, price[r, k] + gap / norm * over / g.capacity[r, k])
    return True


@kernel
def grow_at_prices(
    g: GangArrays, h: Allocation, l: int, worth: Floats, price: Floats, scale: float, hardest: bool
) -> None:
    """Greedy growth under prices: up to the minimum whatever tasks gain, then while they gain.

    Next is the task and channel of the largest gain under ``scale`` times the prices; or, up to the
    minimum and if ``hardest``, the task with the fewest channels that have room, on its best one.
    """
    while True:
        task, channel, top, fewest = -1, -1, UNREACHED, 1 << 30
        # Below its minimum one task lost loses the gang: the task with the fewest ways goes first.
        hard = hardest and h.placed[l] < g.minimum[l]
        for q in range(g.first[l], g.first[l + 1]):
            if h.channel[q] >= 0:
                continue
            best, most, options = -1, UNREACHED, 0
            for i in range(g.pair_first[q], g.pair_first[q + 1]):
                e = g.pair_channel[i]
                gain = worth[e] - g.cost[q] - scale * price_of(g, price, q, g.server[e])
                if (hard or gain > top) and fits(g, h, q, e):
                    options += 1
                    if gain > most:
                        best, most = e, gain
            # Hard: fewest options, then the largest gain. Else the largest gain alone.
            if best >= 0 and (
                (most > top and not hard)
                or (hard and (options < fewest or (options == fewest and most > top)))
            ):
                task, channel, top, fewest = q, best, most, options
        if task < 0 or (h.placed[l] >= g.minimum[l] and top <= 0.0):
            break
        put(g, h, task, channel)


@kernel
def total(g: GangArrays, h: Allocation, worth: Floats, first: int, last: int) -> float:
    """Σ w_e n_e − Σ d_q of the tasks ``first`` … ``last`` − 1, those that are placed."""
    value = 0.0
    for q in range(first, last):
        if h.channel[q] >= 0:
            value += worth[h.channel[q]] - g.cost[q]
    return value


@kernel
def build_gang(
    g: GangArrays, h: Allocation, l: int, worth: Floats, price: Floats, scale: float
) -> None:
    """Launch under ``scale`` times the prices; rolled back if the gang cannot be completed.

    Easy tasks may take the room of those that fit hardly anywhere, so a gang that fell short is
    tried again from nothing, the hardest task first. One whose tasks cost more than they are worth
    is rolled back, too.
    """
    grow_at_prices(g, h, l, worth, price, scale, False)
    if h.placed[l] < g.minimum[l]:
        clear(g, h, l)
        grow_at_prices(g, h, l, worth, price, scale, True)
        if h.placed[l] < g.minimum[l]:
            clear(g, h, l)
    # Without prices: rent steers the search, and nobody pays it.
    if total(g, h, worth, g.first[l], g.first[l + 1]) < 0.0:
        clear(g, h, l)


@kernel
def place_by_profit(
    g: GangArrays, h: Allocation, worth: Floats, price: Floats, profit: Floats
) -> None:
    """Greedy under prices: whole gangs, the largest positive ``profit`` [L] first."""
    while True:
        # Profits are not computed anew as room is taken: the build says whether a gang still fits.
        job = int(np.argmax(profit))
        if profit[job] <= 0.0:
            break
        profit[job] = 0.0
        build_gang(g, h, job, worth, price, 1.0)


@kernel
def restore_all(g: GangArrays, h: Allocation) -> None:
    for q in range(h.channel.size):
        if h.channel[q] >= 0 and h.channel[q] != h.saved[q]:
            take(g, h, q)
    for q in range(h.channel.size):
        # In two loops: a task that is to come back may need the room of one that has to leave.
        if h.saved[q] >= 0 and h.channel[q] < 0:
            put(g, h, q, h.saved[q])


@kernel
def price_search(
    g: GangArrays, h: Allocation, arrivals: Ints, worth: Floats, steps: int
) -> tuple[float, Floats]:
    """Subgradient search: step prices from zero, place gangs at every fourth step, keep the best.

    Steps are halved when the bound has not fallen five times in a row. Returns the lowest bound and
    the prices [R, K] of the last step.
    """
    price = np.zeros_like(g.capacity)
    h.saved[:] = -1
    bound, top, pace, stale = 1e300, 0.0, 1.0, 0
    for step in range(steps + 1):
        # Every price gives a bound; the lowest counts, for steps go up and down.
        bound_now, profit, demand = best_responses(g, arrivals, worth, price)
        if bound_now < bound - 1e-9 * (1.0 + abs(bound_now)):
            bound, stale = bound_now, 0
        else:
            stale += 1
            if stale == 5:
                # Steps that do not lower the bound are too long for the valley that the prices are
                # in.
                pace, stale = 0.5 * pace, 0
        if step % 4 == 0:
            for l in range(g.minimum.size):
                clear(g, h, l)
            # At every fourth step: prices move little in one, and a placement costs as much as
            # several.
            place_by_profit(g, h, worth, price, profit)
            # What room is left costs nothing any more: at prices of 0 all may use it.
            for l in range(g.minimum.size):
                if arrivals[l] != 0:
                    build_gang(g, h, l, worth, price, 0.0)
            value = total(g, h, worth, 0, h.channel.size)
            if value > top * (1.0 + 1e-12):
                top = value
                save(h)
        gap = bound_now - top  # Polyak's step needs the optimum; the best placement stands for it
        if gap <= 1e-9 * (1.0 + abs(bound_now)) or not polyak_step(g, price, demand, pace * gap):
            break
    restore_all(g, h)  # the best placement, which need not be the last
    return bound, price


# Local search by worth


@kernel
def make_room(g: GangArrays, h: Allocation, q: int, e: int, worth: Floats) -> None:
    """Take the tasks that are worth least off a channel's server until task ``q`` fits."""
    while not fits(g, h, q, e):
        least, lowest = -1, 0.0
        for p in range(h.channel.size):
            on = h.channel[p]
            if on >= 0 and g.server[on] == g.server[e]:
                # Of any job: an evicted gang is completed elsewhere or rolled back by the caller.
                value = worth[on] - g.cost[p]
                if least < 0 or value < lowest:
                    least, lowest = p, value
        if least < 0:
            break
        take(g, h, least)


@kernel
def keep_if_better(
    g: GangArrays, h: Allocation, arrivals: Ints, worth: Floats, price: Floats, now: float
) -> float:
    """Complete or roll back every gang, let all use what is left; undo unless the sum rises.

    Returns the new Σ w_e n_e, or ``now``, the old one.
    """
    for l in range(g.minimum.size):  # those that hold something first
        if h.placed[l] > 0:
            build_gang(g, h, l, worth, price, 0.0)
    for l in range(g.minimum.size):
        if arrivals[l] != 0:
            build_gang(g, h, l, worth, price, 0.0)
    # The sum is taken over all jobs: what one gains others may have lost.
    after = total(g, h, worth, 0, h.channel.size)
    if after > now + 1e-9 * (1.0 + abs(now)):
        return after
    restore_all(g, h)
    return now


@kernel
def insert_tasks(
    g: GangArrays, h: Allocation, arrivals: Ints, worth: Floats, price: Floats, passes: int
) -> None:
    """Insertion search: put one task on one of its channels, whoever must leave for it.

    Kept where Σ w_e n_e rises, undone where not.
    """
    value = total(g, h, worth, 0, h.channel.size)
    for _ in range(passes):
        before = value
        for q in range(g.job_type.size):
            if arrivals[g.job_type[q]] == 0:
                continue
            for i in range(g.pair_first[q], g.pair_first[q + 1]):
                e = g.pair_channel[i]
                if e == h.channel[q]:
                    continue
                save(h)
                if h.channel[q] >= 0:
                    take(g, h, q)
                # The task moves to this channel; whatever is in its way is worth less or the move
                # is undone.
                make_room(g, h, q, e, worth)
                put(g, h, q, e)
                build_gang(g, h, g.job_type[q], worth, price, 0.0)
                value = keep_if_better(g, h, arrivals, worth, price, value)
        if value == before:
            break


@kernel
def rebuild_pairs(
    g: GangArrays, h: Allocation, arrivals: Ints, worth: Floats, price: Floats, passes: int
) -> None:
    """Ruin and recreate at half the prices: take one or two jobs off, build them anew.

    Kept where Σ w_e n_e rises, undone where not.
    """
    L, value = g.minimum.size, total(g, h, worth, 0, h.channel.size)
    for _ in range(passes):
        before = value
        for job in range(L):
            for step in range(L):
                partner = (job + step) % L
                if arrivals[job] == 0 or arrivals[partner] == 0:
                    continue
                save(h)
                clear(g, h, job)
                clear(g, h, partner)
                # At full prices scarce devices stay idle, at none the first job takes them all.
                build_gang(g, h, job, worth, price, 0.5)
                build_gang(g, h, partner, worth, price, 0.5)
                value = keep_if_better(g, h, arrivals, worth, price, value)
        if value == before:
            break
