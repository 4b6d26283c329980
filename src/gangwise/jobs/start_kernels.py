"""Compiled parts of the simulation: whether and where a job can start, and its start."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gangwise.core.arrays import Ints
from gangwise.core.jit import inlined_kernel, inner_kernel
from gangwise.jobs.fit_kernels import gather, occupy, place_best, place_fgd, place_first, tell_apart
from gangwise.jobs.kernels import (
    BY_RATE,
    ENTERED,
    EPOCH,
    FAIR_SHARE,
    FGD,
    FINISHES,
    FIRST,
    FIRST_FIT,
    LABELS,
    LATER,
    LEARNED,
    N_RUNNING,
    N_WAITING,
    NO_BACKFILLING,
    NOW,
    RUNNING,
    SORTED,
    TESTS,
    TIMERS,
    WAITING,
    Rules,
    Shapes,
    State,
    Work,
    World,
    devices_of,
    merge,
    merge_sort,
    push,
    remove,
)
from gangwise.jobs.rate_kernels import SHARED, Beliefs, believe, score, submitted, wait

int64: Any = np.int64


@inlined_kernel
def speed_of(w: Work, v: World, x: State, j: int) -> float:
    """True rate of a running gang: that of its slowest piece."""
    if v.log_rates.size == 0:
        return 1.0
    slowest = LATER
    p = w.jobs[j].piece_from
    for i in range(p, p + x.jobs[j].pieces):
        n = x.out[i].node
        slowest = min(slowest, v.log_rates[w.jobs[j].type, n] + x.log_factor[n])
    return math.exp(slowest + v.log_noise[j])


@inlined_kernel
def schedule_end(w: Work, r: Rules, x: State, j: int) -> None:
    """Enter when job j will end as things are: by itself, or killed at its limit."""
    end = x.jobs[j].since + x.jobs[j].left / x.jobs[j].speed
    if r.enforced and not r.limits_of_work:
        end = min(end, x.jobs[j].begun + w.jobs[j].limit)
    x.jobs[j].finish = end
    at = x.at
    if at[FINISHES] == x.finishes.size:  # drop entries that no longer hold
        size = 0
        for i in range(x.finishes.size):
            job = x.finishes[i].item
            if (
                x.jobs[job].phase == RUNNING
                and x.jobs[job].finish == x.finishes[i].time
                and job != j
            ):
                time = x.finishes[i].time
                size = push(x.finishes, size, time, job)
        at[FINISHES] = size
    at[FINISHES] = push(x.finishes, at[FINISHES], end, j)


@inlined_kernel
def start(w: Work, s: Shapes, v: World, r: Rules, x: State, j: int, count: int) -> None:
    """Job j begins on the ``count`` pieces tried."""
    at = x.at
    now = x.clock[NOW]
    occupy(s, v, x, j, w.jobs[j].shape, w.jobs[j].piece_from, count)
    remove(x.words, x.summary, w.jobs[j].rank)
    at[N_WAITING] -= 1
    at[N_RUNNING] += 1
    x.jobs[j].phase = RUNNING
    x.jobs[j].attempts += 1
    x.jobs[j].begun = now
    x.jobs[j].since = now + x.jobs[j].overhead
    x.told[FIRST, j] = min(x.told[FIRST, j], now)
    x.jobs[j].speed = speed_of(w, v, x, j)
    schedule_end(w, r, x, j)
    x.jobs[j].expect = now + w.jobs[j].limit
    if r.choice == BY_RATE:
        x.looks[j].seen = slowest_believed(w, x, j)
    x.running[at[N_RUNNING] - 1] = j
    x.jobs[j].running_at = at[N_RUNNING] - 1
    if r.backfilling != NO_BACKFILLING:
        if at[ENTERED] == x.order.size or at[ENTERED] > 2 * at[N_RUNNING] + 64:
            drop_ended(x)
        x.order[at[ENTERED]].time = x.jobs[j].expect
        x.order[at[ENTERED]].item = j
        at[ENTERED] += 1
    if r.choice == BY_RATE and r.rates != LABELS:
        if now + r.measured_after < x.jobs[j].finish or v.event_time.size > 0:
            set_timer(x, j, now + r.measured_after)
        else:
            x.looks[j].timer = now + r.measured_after
    if r.queue == FAIR_SHARE:
        charge(w, r, x, int64(w.jobs[j].user))
        x.users[w.jobs[j].user].rate += devices_of(w, s, j) / s.tasks[w.jobs[j].shape].total


@inner_kernel
def set_timer(x: State, j: int, time: float) -> None:
    """Let job j be looked at then: to be measured if it runs, to be decided on if it waits."""
    at = x.at
    if at[TIMERS] == x.timers.size:  # drop entries that no longer hold
        size = 0
        for i in range(x.timers.size):
            job = x.timers[i].item
            t = x.timers[i].time
            if x.looks[job].timer == t and (
                x.jobs[job].phase == RUNNING or x.jobs[job].phase == WAITING
            ):
                size = push(x.timers, size, t, job)
        at[TIMERS] = size
    x.looks[j].timer = time
    at[TIMERS] = push(x.timers, at[TIMERS], time, j)


@inlined_kernel
def slowest_believed(w: Work, x: State, j: int) -> float:
    """Rate of job j's gang as `x.mean` has it."""
    slowest = LATER
    p = w.jobs[j].piece_from
    for i in range(p, p + x.jobs[j].pieces):
        slowest = min(slowest, x.mean[x.out[i].node])
    return math.exp(slowest)


@inlined_kernel
def charge(w: Work, r: Rules, x: State, u: int) -> None:
    """Bring the use of user u up to now: it halves every half-life."""
    now = x.clock[NOW]
    gone = now - x.users[u].at
    if gone > 0.0:
        if r.half_life == LATER:
            x.users[u].use += x.users[u].rate * gone
        else:
            decay = math.log(2.0) / r.half_life
            kept = math.exp(-decay * gone)
            x.users[u].use = x.users[u].use * kept + x.users[u].rate * (1.0 - kept) / decay
    x.users[u].at = now


@inner_kernel
def drop_ended(x: State) -> None:
    """Drop what is noted in `x.order` of jobs that no longer run."""
    at = x.at
    size = 0
    in_order = 0
    for i in range(at[ENTERED]):
        j = x.order[i].item
        if x.jobs[j].phase == RUNNING and x.jobs[j].expect == x.order[i].time:
            x.order[size].time = x.order[i].time
            x.order[size].item = j
            size += 1
            in_order += i < at[SORTED]
    at[ENTERED] = size
    at[SORTED] = in_order


@inlined_kernel
def put_in_order(x: State) -> None:
    """Let `x.order` hold the running jobs and no others, by expected end."""
    at = x.at
    drop_ended(x)
    if at[SORTED] < at[ENTERED]:
        merge_sort(x.order, x.spare_rows, at[SORTED], at[ENTERED])
        merge(x.order, x.spare_rows, 0, at[SORTED], at[ENTERED])
        at[SORTED] = at[ENTERED]


@inlined_kernel
def find(w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, j: int) -> int:
    """Try to place job j on what is free: pieces in `x.tried`, their number, 0 for no room."""
    c = int64(w.jobs[j].shape)
    tasks = w.jobs[j].tasks
    x.at[TESTS] += 1
    if x.memo[c].fail_epoch == x.at[EPOCH] and tasks >= x.memo[c].fail_tasks:
        return 0
    count = 1
    for k in range(x.total.size):
        if tasks * s.demand[c, k] > x.total[k]:
            count = 0
            break
    if count > 0:
        count = arrange(w, s, v, r, x, b, x.free, x.device, x.top, j)
    if count == 0 and (x.memo[c].fail_epoch != x.at[EPOCH] or tasks < x.memo[c].fail_tasks):
        x.memo[c].fail_epoch = x.at[EPOCH]
        x.memo[c].fail_tasks = tasks
    return count


@inlined_kernel
def arrange(
    w: Work,
    s: Shapes,
    v: World,
    r: Rules,
    x: State,
    b: Beliefs,
    free: Ints,
    device: Ints,
    top: Ints,
    j: int,
) -> int:
    """Place job j by the rule on what is given as free: pieces in `x.tried`; 0 for no room."""
    c = int64(w.jobs[j].shape)
    tasks = w.jobs[j].tasks
    if r.choice == FIRST_FIT:
        count = place_first(s, v, x, free, device, top, c, tasks)
    elif r.choice == FGD:
        count = place_fgd(s, v, x, free, device, top, c, tasks)
    else:
        count = gather(s, v, x, free, device, top, c, tasks)
        if count > 0:
            if r.choice == BY_RATE:
                believed(w, s, v, r, x, b, free, j)
            count = place_best(s, x, free, c, tasks, count, r.choice)
    if count > 0 and v.shared >= 0 and s.tasks[c].fraction + s.tasks[c].whole > 0:
        count = tell_apart(s, v, x, device, c, count)
    return count


@inlined_kernel
def rates_of(w: Work, v: World, r: Rules, x: State, b: Beliefs, j: int) -> None:
    """Fill `x.mean` and `x.sd` [N] with what is believed of job j's log rate."""
    l = int64(w.jobs[j].type)
    if r.rates == LEARNED:
        believe(b, l, x.clock[NOW], x.mean, x.sd)
    else:
        for n in range(x.sd.size):
            x.sd[n] = 0.0
            if r.rates == LABELS:
                x.mean[n] = v.labels[l, n]
            elif v.log_rates.size > 0:
                x.mean[n] = v.log_rates[l, n] + x.log_factor[n]
            else:
                x.mean[n] = 0.0


@inlined_kernel
def believed(
    w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, free: Ints, j: int
) -> None:
    """Fill `x.mean`, `x.sd` and `x.worth` [N] for a placement of job j."""
    rates_of(w, v, r, x, b, j)
    kind = s.tasks[w.jobs[j].shape].dominant
    for n in range(x.spare.size):
        x.spare[n] = free[n, kind] / 1000.0
    size = w.jobs[j].tasks * s.demand[w.jobs[j].shape, kind] / 1000.0
    score(b, w.jobs[j].limit, size, x.mean, x.sd, x.spare, x.worth)


@inlined_kernel
def tried_rate(x: State, count: int) -> float:
    """Log rate that is believed of the pieces tried: that of the slowest."""
    slowest = LATER
    for i in range(count):
        slowest = min(slowest, x.mean[x.tried[i].node])
    return slowest


@inlined_kernel
def holds_off(w: Work, s: Shapes, r: Rules, x: State, b: Beliefs, j: int, count: int) -> bool:
    """Job j could start on the pieces tried and had better wait for others."""
    if not r.waits:
        return False
    c = int64(w.jobs[j].shape)
    now = x.clock[NOW]
    devices = s.demand[c, s.tasks[c].dominant] / 1000.0
    slowest = x.tried[0].node
    for i in range(1, count):
        if x.mean[x.tried[i].node] < x.mean[slowest]:
            slowest = x.tried[i].node
    seconds = wait(
        b,
        int64(w.jobs[j].type),
        w.jobs[j].tasks,
        devices,
        w.jobs[j].limit,
        slowest,
        x.mean,
        x.at[N_WAITING],
        now - w.jobs[j].submit,
        now,
    )
    if seconds <= 0.0:
        return False
    if not now < x.looks[j].timer <= now + seconds:
        set_timer(x, j, now + seconds)
    return True


@inner_kernel
def hear(w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, j: int) -> None:
    """Tell the learner what job j, which has just been submitted, asks for."""
    c = int64(w.jobs[j].shape)
    devices = s.demand[c, s.tasks[c].dominant] / 1000.0
    if b.kind != SHARED:
        rates_of(w, v, r, x, b, j)
    submitted(
        b, int64(w.jobs[j].type), w.jobs[j].tasks, devices, w.jobs[j].limit, x.mean, x.clock[NOW]
    )


@inner_kernel
def arrange_on(
    w: Work,
    s: Shapes,
    v: World,
    r: Rules,
    x: State,
    b: Beliefs,
    free: Ints,
    device: Ints,
    top: Ints,
    j: int,
) -> int:
    """As :func:`arrange`, compiled once: for what is not called all the time."""
    return arrange(w, s, v, r, x, b, free, device, top, j)


@inlined_kernel
def work_done(x: State, j: int) -> float:
    """What running job j has done as far as the scheduler knows: seconds × the rate seen."""
    gone = max(x.clock[NOW] - x.jobs[j].begun - x.jobs[j].overhead, 0.0)
    return float(x.looks[j].before + gone * x.looks[j].seen)
