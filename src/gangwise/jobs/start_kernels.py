"""Compiled parts of the simulation: whether and where a job can start, and its start."""

from __future__ import annotations

import math

from gangwise.core.jit import inlined_kernel, inner_kernel
from gangwise.jobs.fit_kernels import (
    gather,
    occupy,
    place_best,
    place_fgd,
    place_first,
    place_tightest,
    take,
    take_piece,
    tell_apart,
)
from gangwise.jobs.kernels import (
    BEST_FIT,
    BY_RATE,
    FAIR_SHARE,
    FGD,
    FIRST_FIT,
    GIVE_BACK,
    LABELS,
    LEARNED,
    MULTIFACTOR,
    NEVER,
    NO_BACKFILLING,
    RUNNING,
    TAKE,
    TAKEN_UP,
    WAITING,
    Given,
    Room,
    Rows,
    State,
    count_caps,
    devices_of,
    int64,
    length,
    merge,
    merge_sort,
    push,
    put,
    put_piece,
    remove,
)
from gangwise.jobs.queue_kernels import charge, hold
from gangwise.jobs.rate_kernels import (
    SHARED,
    Beliefs,
    JobRequest,
    believe,
    remaining,
    score,
    submitted,
    wait,
)

# ------------------------------------------------------------------------------- speeds and ends


@inlined_kernel
def rate_on(g: Given, x: State, j: int, n: int) -> float:
    """True rate of a task of job j on node n.

    It passes through no logarithm: jobs that end at one instant in exact arithmetic would end at
    two, by the last digit.
    """
    if g.rates.size == 0:
        return 1.0
    return float(g.rates[g.jobs[j].type, n] * x.factor[n] * g.noise[j])


@inlined_kernel
def speed_of(g: Given, x: State, j: int) -> float:
    """True rate of a running gang: that of its slowest piece."""
    if g.rates.size == 0:
        return 1.0
    p = g.jobs[j].piece_from
    slowest = NEVER
    for i in range(p, p + x.jobs[j].pieces):
        slowest = min(slowest, rate_on(g, x, j, x.out[i].node))
    return slowest


@inlined_kernel
def work_done(g: Given, x: State, j: int) -> float:
    """What running job j has done as far as the scheduler knows: seconds × the rate seen."""
    run = x.jobs[j]
    gone = max(x.at.now - run.begun - g.rules.latency - run.overhead, 0.0)
    return float(x.looks[j].before + gone * x.looks[j].seen)


@inlined_kernel
def schedule_end(g: Given, x: State, j: int) -> None:
    """Enter when job j will end as things are: by itself, or killed at its limit."""
    run = x.jobs[j]
    end = run.since + run.left / run.speed
    if g.rules.enforced and not g.rules.limits_of_work:
        end = min(end, run.begun + g.rules.latency + g.jobs[j].limit)
    run.finish = end
    if x.at.ends == x.ends.size:
        drop_ends(x, j)
    x.at.ends = push(x.ends, x.at.ends, end, j)


@inner_kernel
def drop_ends(x: State, j: int) -> None:
    """Drop ends that no longer hold, and those of job j.

    An end that moved there and back has two entries, of which one is kept.
    """
    size = 0
    for i in range(x.ends.size):
        job = x.ends[i].item
        time = x.ends[i].time
        if x.jobs[job].phase == RUNNING and x.jobs[job].finish == time and job != j:
            size = push(x.ends, size, time, job)
            x.jobs[job].finish = math.nan
    for i in range(size):
        x.jobs[x.ends[i].item].finish = x.ends[i].time
    x.at.ends = size


@inlined_kernel
def timer_holds(x: State, i: int) -> bool:
    """Entry i of the timers is of a job that runs or waits, and was not set anew since."""
    j = x.timers[i].item
    holds = x.jobs[j].phase == RUNNING or x.jobs[j].phase == WAITING
    return bool(holds and x.looks[j].timer == x.timers[i].time)


@inner_kernel
def set_timer(x: State, j: int, time: float) -> None:
    """Let job j be looked at then: to be measured if it runs, to be decided on if it waits."""
    at = x.at
    if at.timers == x.timers.size:  # drop entries that no longer hold
        size = 0
        for i in range(x.timers.size):
            if timer_holds(x, i):
                size = push(x.timers, size, x.timers[i].time, x.timers[i].item)
        at.timers = size
    x.looks[j].timer = time
    at.timers = push(x.timers, at.timers, time, j)


@inlined_kernel
def change_use(g: Given, x: State, j: int, sign: float) -> None:
    """Whoever job j is charged to holds its devices from now on (sign 1), or no longer (−1)."""
    job = g.jobs[j]
    if g.rules.queue == FAIR_SHARE:
        u = int64(job.user)
        charge(x.users, g.rules.half_life, x.at.now, u)
        x.users[u].rate += sign * (devices_of(g, j) / g.cluster.shapes[job.shape].total)
    elif g.rules.queue == MULTIFACTOR:
        hold(x.standing, j, sign, x.at.now)


@inner_kernel
def expected_ends(g: Given, x: State, b: Beliefs) -> None:
    """With limits of work: when running jobs are expected to end, anew."""
    for i in range(x.at.running):
        j = x.running[i]
        left = remaining(b, g.jobs[j].limit, work_done(g, x, j))
        x.jobs[j].expect = x.at.now + left / x.looks[j].seen
        put(x.order, i, x.jobs[j].expect, j)
    x.at.entered = x.at.running
    x.at.sorted = 0
    x.at.holes += 1


# ----------------------------------------------------------------------------------------- starts


@inlined_kernel
def start(g: Given, x: State, j: int, count: int) -> None:
    """Job j begins on the ``count`` pieces tried."""
    job, run = g.jobs[j], x.jobs[j]
    at = x.at
    now = at.now
    occupy(g, x, j, count)
    count_caps(g, x, j, TAKEN_UP)
    remove(x.words, x.summary, job.rank)
    at.waiting -= 1
    x.running[at.running] = j
    run.place = at.running
    at.running += 1
    run.phase = RUNNING
    run.attempts += 1
    run.begun = now
    run.since = now + g.rules.latency + run.overhead
    x.start[j] = min(x.start[j], now)
    run.speed = speed_of(g, x, j)
    schedule_end(g, x, j)
    run.expect = now + length(g, x, j)
    at.outlived = min(at.outlived, run.expect)
    if g.rules.choice == BY_RATE:
        p = job.piece_from
        x.looks[j].seen = math.exp(slowest(x, x.out, p, p + count))
        x.looks[j].timer = -1.0
    if g.rules.backfilling != NO_BACKFILLING:
        if at.entered == x.order.size or at.entered > 2 * at.running + 64:
            drop_ended(x)
        put(x.order, at.entered, run.expect, j)
        at.entered += 1
    if g.rules.choice == BY_RATE and g.rules.rates != LABELS:
        if now + g.rules.measured_after < run.finish or g.events.size > 0:
            set_timer(x, j, now + g.rules.measured_after)
        else:
            x.looks[j].timer = now + g.rules.measured_after
    change_use(g, x, j, 1.0)


@inlined_kernel
def slowest(x: State, pieces: Rows, low: int, high: int) -> float:
    """Least log rate in `x.mean` on the nodes of pieces[low:high]."""
    least = NEVER
    for i in range(low, high):
        least = min(least, x.mean[pieces[i].node])
    return least


@inner_kernel
def drop_ended(x: State) -> None:
    """Drop what is noted in `x.order` of jobs that no longer run."""
    at = x.at
    size = 0
    in_order = 0
    for i in range(at.entered):
        j = x.order[i].item
        if x.jobs[j].phase == RUNNING and x.jobs[j].expect == x.order[i].time:
            put(x.order, size, x.order[i].time, j)
            size += 1
            in_order += i < at.sorted
    at.entered = size
    at.sorted = in_order


@inlined_kernel
def put_in_order(x: State) -> None:
    """Let `x.order` hold the running jobs and no others, by expected end."""
    at = x.at
    drop_ended(x)
    if at.sorted < at.entered:
        merge_sort(x.order, x.spare_rows, at.sorted, at.entered)
        merge(x.order, x.spare_rows, 0, at.sorted, at.entered)
        at.sorted = at.entered


# ---------------------------------------------------------------------------------- where it fits


@inlined_kernel
def find(g: Given, x: State, b: Beliefs, j: int) -> int:
    """Try to place job j on what is free: pieces in `x.tried`, their number, 0 for no room.

    What did not fit since devices were last given back (`epoch`) does not fit, nor do more tasks of
    its shape: devices were only taken since, and whether a gang fits depends on nothing else.
    """
    job = g.jobs[j]
    s = int64(job.shape)
    tasks = job.tasks
    x.at.tests += 1
    if x.memo[s].fail_epoch == x.at.epoch and tasks >= x.memo[s].fail_tasks:
        return 0
    count = 1
    for k in range(x.total.size):
        if tasks * g.cluster.demand[s, k] > x.total[k]:
            count = 0
            break
    if count > 0:
        count = arrange(g, x, b, x.room, j)
    if count == 0 and g.cluster.shapes[s].groups > 0:
        x.at.again = 1  # with less free, other nodes are taken first, and it may fit
    elif count == 0:
        x.memo[s].fail_epoch = x.at.epoch
        x.memo[s].fail_tasks = tasks
    return count


@inlined_kernel
def arrange(g: Given, x: State, b: Beliefs, room: Room, j: int) -> int:
    """Place job j by the rule in a room: pieces in `x.tried`; 0 where it does not fit."""
    s = int64(g.jobs[j].shape)
    if g.cluster.shapes[s].groups > 0:
        return arrange_groups(g, x, b, room, j)
    return arrange_alike(g, x, b, room, j, s, int64(g.jobs[j].tasks), g.rules.choice)


@inner_kernel
def arrange_groups(g: Given, x: State, b: Beliefs, room: Room, j: int) -> int:
    """Place the groups of job j one after another by the rule, or else each on the first nodes.

    Each takes its devices before the next is placed; all are given back at the end.
    """
    s = int64(g.jobs[j].shape)
    low, choice = g.cluster.shapes[s].groups_from, int64(g.rules.choice)
    while True:
        placed, count = 0, 0
        for m in range(low, low + g.cluster.shapes[s].groups):
            of, tasks = int64(g.cluster.groups[m].shape), int64(g.cluster.groups[m].tasks)
            count = arrange_alike(g, x, b, room, j, of, tasks, choice)
            if count == 0:
                break
            for i in range(count):
                tried = x.tried[i]
                take(g.cluster, room, of, int64(tried.node), int64(tried.tasks), tried.mask, TAKE)
                put_piece(
                    x.beside, placed, int64(tried.node), int64(tried.tasks), int64(tried.mask)
                )
                placed += 1
        for i in range(placed):
            take_piece(g.cluster, room, s, x.beside, 0, i, GIVE_BACK)
        if count > 0:
            for i in range(placed):
                piece = x.beside[i]
                put_piece(x.tried, i, int64(piece.node), int64(piece.tasks), int64(piece.mask))
            return placed
        if choice == FIRST_FIT:
            return 0
        choice = int64(FIRST_FIT)


@inlined_kernel
def arrange_alike(
    g: Given, x: State, b: Beliefs, room: Room, j: int, s: int, tasks: int, choice: int
) -> int:
    """Place so many tasks of shape s of job j: pieces in `x.tried`; 0 where they do not fit."""
    if choice == FGD:
        count = place_fgd(g.cluster, x, room, s, tasks)
    elif choice == BEST_FIT:
        count = place_tightest(g.cluster, x, room, s, tasks)
    else:
        count = gather(g.cluster, x, room, s, tasks, choice)
        if choice == FIRST_FIT:
            count = place_first(x, tasks, count)
        elif count > 0:
            if choice == BY_RATE:
                value_nodes(g, x, b, room, j, s, tasks)
            count = place_best(g.cluster, x, room, s, tasks, count, choice)
    shape = g.cluster.shapes[s]
    if count > 0 and g.cluster.shared >= 0 and shape.fraction + shape.whole > 0:
        count = tell_apart(g.cluster, x, room, s, count, choice)
    return count


@inner_kernel
def arrange_on(g: Given, x: State, b: Beliefs, room: Room, j: int) -> int:
    """As :func:`arrange`, compiled once: for what is not called all the time."""
    return arrange(g, x, b, room, j)


@inner_kernel
def rates_of(g: Given, x: State, b: Beliefs, j: int) -> None:
    """Fill `x.mean` and `x.sd` [N] with what is believed of job j's log rate."""
    l = int64(g.jobs[j].type)
    if g.rules.rates == LEARNED:
        believe(b, l, x.at.now, x.mean, x.sd)
    else:
        for n in range(x.sd.size):
            x.sd[n] = 0.0
            if g.rules.rates == LABELS:
                x.mean[n] = g.labels[l, n]
            elif g.log_rates.size > 0:
                x.mean[n] = g.log_rates[l, n] + x.log_factor[n]
            else:
                x.mean[n] = 0.0


@inlined_kernel
def value_nodes(g: Given, x: State, b: Beliefs, room: Room, j: int, s: int, tasks: int) -> None:
    """Fill `x.mean`, `x.sd` and `x.worth` [N] for a placement of tasks of job j."""
    job = g.jobs[j]
    rates_of(g, x, b, j)
    kind = g.cluster.shapes[s].dominant
    for n in range(x.spare.size):
        x.spare[n] = room.free[n, kind] / 1000.0
    size = tasks * g.cluster.demand[s, kind] / 1000.0
    score(b, JobRequest(int64(job.type), size, job.limit), x.mean, x.sd, x.spare, x.worth)


@inlined_kernel
def asked_by(g: Given, j: int) -> JobRequest:
    """What job j asks the learner for."""
    job = g.jobs[j]
    s = int64(job.shape)
    devices = g.cluster.demand[s, g.cluster.shapes[s].dominant] / 1000.0
    return JobRequest(int64(job.type), job.tasks * devices, job.limit)


@inlined_kernel
def holds_off(g: Given, x: State, b: Beliefs, j: int, count: int) -> bool:
    """Job j could start on the pieces tried and had better wait for others."""
    job = g.jobs[j]
    if not g.rules.waits:
        return False
    now = x.at.now
    slow = x.tried[0].node
    for i in range(1, count):
        if x.mean[x.tried[i].node] < x.mean[slow]:
            slow = x.tried[i].node
    known = b.release_time[0]
    allowed = g.cluster.allowed[g.cluster.shapes[job.shape].constraint]
    waited = now - job.submit
    seconds = wait(b, asked_by(g, j), slow, x.mean, allowed, x.at.waiting, waited, now)
    if b.release_time[0] != known:
        x.at.change += 1  # prices faded: the choice may pick other nodes
    if seconds <= 0.0:
        return False
    if not now < x.looks[j].timer <= now + seconds:
        set_timer(x, j, now + seconds)
    return True


@inner_kernel
def hear(g: Given, x: State, b: Beliefs, j: int) -> None:
    """Let the learner know what job j, which has just been submitted, asks for."""
    if b.kind != SHARED:
        rates_of(g, x, b, j)
    submitted(b, asked_by(g, j), x.mean, x.at.now)
