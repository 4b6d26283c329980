"""The simulation, compiled: events of an instant first, then one round of decisions.

``play`` runs every combination of built-in parts; :mod:`gangwise.jobs.simulation` states the same
rules in plain Python.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gangwise.core.arrays import Ints
from gangwise.core.jit import inlined_kernel, lean_kernel
from gangwise.jobs.kernels import (
    BY_RATE,
    CHANGE,
    CONSERVATIVE,
    DIRTY,
    DOWN,
    EASY,
    ENDED,
    EPOCH,
    EVENT,
    FACTOR,
    FAIR_SHARE,
    FGD,
    FINISHED,
    FINISHES,
    FIRST_FIT,
    FRESH,
    HAVE,
    HEAD,
    HELD,
    INSTANTS,
    KILLED,
    KILLS,
    LABELS,
    LATER,
    LEARNED,
    LOGGED,
    LOGGED_PIECES,
    N_RUNNING,
    N_WAITING,
    NEXT,
    NO_BACKFILLING,
    NOW,
    PIECES_OUT,
    PREEMPTIONS,
    REQUEUES,
    RESERVED,
    ROUNDS,
    RUNNING,
    SET_ASIDE,
    TESTS,
    TIMERS,
    UP,
    WAITING,
    Rules,
    Shapes,
    State,
    Work,
    World,
    fits,
    following,
    insert,
    merge_sort,
    occupy,
    order_place,
    place_best,
    place_fgd,
    place_first,
    pop,
    push,
    remove,
    smallest,
    take,
    tell_apart,
    vacate,
)
from gangwise.jobs.rate_kernels import (
    Beliefs,
    believe,
    finished,
    migrate,
    observe,
    released,
    remaining,
    score,
    submitted,
    wait,
)

__all__ = ["DONE", "MORE_ROOM", "PAUSED", "play"]

int64: Any = np.int64

DONE, PAUSED, MORE_ROOM = range(3)
WHY_FAILED, WHY_PREEMPTED = range(2)


# ------------------------------------------------------------------------------------- attempts


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
    x.jobs[j].first = min(x.jobs[j].first, now)
    x.jobs[j].speed = speed_of(w, v, x, j)
    schedule_end(w, r, x, j)
    x.jobs[j].expect = now + w.jobs[j].limit
    if r.choice == BY_RATE:
        x.jobs[j].seen = slowest_believed(w, x, j)
    x.running[at[N_RUNNING] - 1] = j
    x.jobs[j].running_at = at[N_RUNNING] - 1
    if r.backfilling != NO_BACKFILLING:
        size = at[N_RUNNING] - 1
        i = order_place(x.order, size, x.jobs, j)
        for m in range(size, i, -1):
            x.order[m] = x.order[m - 1]
        x.order[i] = j
    if r.choice == BY_RATE and r.rates != LABELS:
        if now + r.measured_after < x.jobs[j].finish or v.event_time.size > 0:
            set_timer(x, j, now + r.measured_after)
        else:
            x.jobs[j].timer = now + r.measured_after
    if r.queue == FAIR_SHARE:
        charge(w, r, x, w.jobs[j].user)
        x.users[w.jobs[j].user].rate += w.jobs[j].share


@lean_kernel
def set_timer(x: State, j: int, time: float) -> None:
    """Let job j be looked at then: to be measured if it runs, to be decided on if it waits."""
    at = x.at
    if at[TIMERS] == x.timers.size:  # drop entries that no longer hold
        size = 0
        for i in range(x.timers.size):
            job = x.timers[i].item
            t = x.timers[i].time
            if x.jobs[job].timer == t and (
                x.jobs[job].phase == RUNNING or x.jobs[job].phase == WAITING
            ):
                size = push(x.timers, size, t, job)
        at[TIMERS] = size
    x.jobs[j].timer = time
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


@inlined_kernel
def leave(w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, j: int) -> None:
    """Job j gives its devices back, for whatever reason."""
    at = x.at
    vacate(s, v, x, j, w.jobs[j].shape, w.jobs[j].piece_from)
    if r.backfilling != NO_BACKFILLING:
        size = at[N_RUNNING]
        for m in range(order_place(x.order, size, x.jobs, j), size - 1):
            x.order[m] = x.order[m + 1]
    at[N_RUNNING] -= 1
    last = x.running[at[N_RUNNING]]
    x.running[x.jobs[j].running_at] = last
    x.jobs[last].running_at = x.jobs[j].running_at
    if r.queue == FAIR_SHARE:
        charge(w, r, x, w.jobs[j].user)
        x.users[w.jobs[j].user].rate -= w.jobs[j].share
    if r.choice == BY_RATE and r.rates != LABELS:
        p = w.jobs[j].piece_from
        d = s.demand[w.jobs[j].shape, s.tasks[w.jobs[j].shape].dominant] / 1000.0
        for i in range(p, p + x.jobs[j].pieces):
            released(b, x.out[i].node, x.out[i].tasks * d, x.clock[NOW])
    at[DIRTY] = 1


@lean_kernel
def measure(w: Work, v: World, r: Rules, x: State, b: Beliefs, j: int, first: bool) -> None:
    """The rates of job j's pieces become known."""
    p = w.jobs[j].piece_from
    count = x.jobs[j].pieces
    slowest = LATER
    l = w.jobs[j].type
    for i in range(count):
        n = x.out[p + i].node
        rate = 1.0
        if v.log_rates.size > 0:
            rate = math.exp(v.log_rates[l, n] + x.log_factor[n] + v.log_noise[j])
        x.rated[i] = n
        x.log_rates[i] = math.log(rate)
        slowest = min(slowest, rate)
    x.jobs[j].seen = slowest
    observe(b, l, x.rated, x.log_rates, count, first, x.clock[NOW])
    x.at[DIRTY] = 1


@inlined_kernel
def finish(w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, j: int) -> None:
    """Job j ends: by itself, or killed at its limit."""
    at = x.at
    now = x.clock[NOW]
    own = x.jobs[j].since + x.jobs[j].left / x.jobs[j].speed
    if r.choice == BY_RATE and r.rates != LABELS and now > x.jobs[j].since:
        measure(w, v, r, x, b, j, now <= x.jobs[j].timer)
        if own <= now:
            finished(b, w.jobs[j].limit, (now - x.jobs[j].since) * x.jobs[j].seen, now)
    leave(w, s, v, r, x, b, j)
    x.jobs[j].end = now
    if own > now or w.jobs[j].doomed:
        x.jobs[j].phase = KILLED
        at[KILLS] += 1
    else:
        x.jobs[j].phase = FINISHED
    at[ENDED] += 1
    for i in range(w.jobs[j].next_from, w.jobs[j].next_to):
        k = w.next[i]
        x.jobs[k].wants -= 1
        if x.jobs[k].wants == 0 and x.jobs[k].phase == HELD:
            enter(w, x, k)


@lean_kernel
def interrupt(
    w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, j: int, why: int
) -> None:
    """Job j loses its nodes and waits again; what a failure costs, a preemption does not."""
    at = x.at
    now = x.clock[NOW]
    left = max(x.jobs[j].left - max(now - x.jobs[j].since, 0.0) * x.jobs[j].speed, 0.0)
    if why == WHY_FAILED:
        done = w.jobs[j].work - left
        kept = done
        if r.checkpoint == LATER:
            kept = 0.0
        elif r.checkpoint > 0.0:
            kept = math.floor(done / r.checkpoint) * r.checkpoint
        x.jobs[j].lost += (done - kept) * w.jobs[j].size
        left = w.jobs[j].work - kept
    x.jobs[j].lost += min(now - x.jobs[j].begun, x.jobs[j].overhead) * w.jobs[j].size
    i = at[LOGGED]
    q = at[LOGGED_PIECES]
    x.cuts[i].job = j
    x.cuts[i].begun = x.jobs[j].begun
    x.cuts[i].end = now
    x.cuts[i].why = why
    p = w.jobs[j].piece_from
    for m in range(x.jobs[j].pieces):
        x.cut_pieces[q + m].node = x.out[p + m].node
        x.cut_pieces[q + m].tasks = x.out[p + m].tasks
    at[LOGGED] = i + 1
    at[LOGGED_PIECES] = q + x.jobs[j].pieces
    x.cuts[i + 1].first = at[LOGGED_PIECES]
    leave(w, s, v, r, x, b, j)
    x.jobs[j].left = left
    x.jobs[j].overhead = r.restart
    x.jobs[j].slot = LATER
    at[REQUEUES if why == WHY_FAILED else PREEMPTIONS] += 1
    enter(w, x, j)


@inlined_kernel
def enter(w: Work, x: State, j: int) -> None:
    """Job j joins those waiting."""
    at = x.at
    x.jobs[j].phase = WAITING
    if x.jobs[j].attempts == 0:
        x.memo[w.jobs[j].shape].seen += w.jobs[j].tasks
    insert(x.words, x.summary, at, w.jobs[j].rank)
    at[N_WAITING] += 1
    if at[FRESH] < x.fresh.size:
        x.fresh[at[FRESH]] = w.jobs[j].rank
    at[FRESH] += 1


# --------------------------------------------------------------------------------------- events


@inlined_kernel
def next_instant(w: Work, v: World, x: State) -> float:
    """Time of the next event, inf for none."""
    at = x.at
    time = LATER
    while at[FINISHES] > 0:
        j = x.finishes[0].item
        if x.jobs[j].phase == RUNNING and x.jobs[j].finish == x.finishes[0].time:
            time = x.finishes[0].time
            break
        at[FINISHES] = pop(x.finishes, at[FINISHES])
    while at[TIMERS] > 0:
        j = x.timers[0].item
        holds = x.jobs[j].phase == RUNNING or x.jobs[j].phase == WAITING
        if holds and x.jobs[j].timer == x.timers[0].time:
            time = min(time, x.timers[0].time)
            break
        at[TIMERS] = pop(x.timers, at[TIMERS])
    while at[NEXT] < w.jobs.size and x.jobs[at[NEXT]].phase == SET_ASIDE:
        at[NEXT] += 1
    if at[NEXT] < w.jobs.size:
        time = min(time, w.jobs[at[NEXT]].submit)
    if at[EVENT] < v.event_time.size:
        time = min(time, v.event_time[at[EVENT]])
    return time


@lean_kernel
def node_event(
    w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, n: int, kind: int, value: float
) -> None:
    """A node fails, comes back, or changes its rate by a factor (value: its logarithm)."""
    at = x.at
    x.at[DIRTY] = 1
    if kind == UP:
        if not x.up[n]:
            x.up[n] = True
            at[EPOCH] += 1
            at[CHANGE] += 1
            for k in range(x.free.shape[1]):
                x.free[n, k] = v.capacity[n, k]
                x.total[k] += x.free[n, k]
                x.top[n // 32, k] = max(x.top[n // 32, k], x.free[n, k])
            if v.shared >= 0:
                for g in range(v.devices[n]):
                    x.device[n, g] = 1000
        return
    if kind == DOWN and not x.up[n]:
        return
    if kind == FACTOR:
        x.log_factor[n] = value
    there = 0
    for m in range(at[N_RUNNING]):
        j = x.running[m]
        p = w.jobs[j].piece_from
        for i in range(p, p + x.jobs[j].pieces):
            if x.out[i].node == n:
                x.sequence[there] = j
                x.key[there] = j
                there += 1
                break
    merge_sort(x, there)
    for m in range(there):
        if kind == DOWN:
            interrupt(w, s, v, r, x, b, x.sequence[m], WHY_FAILED)
        else:
            change_speed(w, v, r, x, x.sequence[m])
    if kind == DOWN:
        x.up[n] = False
        at[CHANGE] += 1
        for k in range(x.free.shape[1]):
            x.total[k] -= x.free[n, k]
            x.free[n, k] = 0
        if v.shared >= 0:
            for g in range(v.devices[n]):
                x.device[n, g] = 0


@lean_kernel
def change_speed(w: Work, v: World, r: Rules, x: State, j: int) -> None:
    """A node of job j runs at another rate from now on."""
    now = x.clock[NOW]
    speed = speed_of(w, v, x, j)
    if speed == x.jobs[j].speed:
        return
    if now > x.jobs[j].since:
        x.jobs[j].left = max(x.jobs[j].left - (now - x.jobs[j].since) * x.jobs[j].speed, 0.0)
        x.jobs[j].since = now
    x.jobs[j].speed = speed
    schedule_end(w, r, x, j)


@lean_kernel
def hear(w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, j: int) -> None:
    """Tell the learner what job j, which has just been submitted, asks for."""
    c = w.jobs[j].shape
    devices = s.demand[c, s.tasks[c].dominant] / 1000.0
    believed(w, s, v, r, x, b, x.free, j)
    submitted(b, w.jobs[j].tasks, devices, w.jobs[j].limit, x.mean, x.clock[NOW])


@inlined_kernel
def events(w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs) -> None:
    """Take in all that happens now: ends, then nodes, then submissions, then measurements."""
    at = x.at
    now = x.clock[NOW]
    while at[FINISHES] > 0 and x.finishes[0].time <= now:
        j = x.finishes[0].item
        time = x.finishes[0].time
        at[FINISHES] = pop(x.finishes, at[FINISHES])
        if x.jobs[j].phase == RUNNING and x.jobs[j].finish == time:
            finish(w, s, v, r, x, b, j)
    while at[EVENT] < v.event_time.size and v.event_time[at[EVENT]] <= now:
        e = at[EVENT]
        at[EVENT] += 1
        node_event(w, s, v, r, x, b, v.event_node[e], v.event_kind[e], v.event_value[e])
    fresh = at[NEXT]
    while at[NEXT] < w.jobs.size and w.jobs[at[NEXT]].submit <= now:
        j = at[NEXT]
        at[NEXT] += 1
        if x.jobs[j].phase == SET_ASIDE:
            continue
        if x.jobs[j].wants > 0:
            x.jobs[j].phase = HELD
        else:
            enter(w, x, j)
    while at[TIMERS] > 0 and x.timers[0].time <= now:
        j = x.timers[0].item
        time = x.timers[0].time
        at[TIMERS] = pop(x.timers, at[TIMERS])
        if x.jobs[j].timer != time:
            continue
        if x.jobs[j].phase == RUNNING:
            measure(w, v, r, x, b, j, True)
        elif x.jobs[j].phase == WAITING:
            at[DIRTY] = 1
    if r.waits:
        for j in range(fresh, at[NEXT]):
            if x.jobs[j].phase == WAITING:
                hear(w, s, v, r, x, b, j)


# --------------------------------------------------------------------------------------- rounds


@inlined_kernel
def find(w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, j: int) -> int:
    """Try to place job j on what is free: pieces in `x.try_*`, their number, 0 for no room."""
    c = w.jobs[j].shape
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
    c = w.jobs[j].shape
    tasks = w.jobs[j].tasks
    if r.choice == FIRST_FIT:
        count = place_first(s, v, x, free, device, top, c, tasks)
    elif r.choice == FGD:
        count = place_fgd(s, v, x, free, device, top, c, tasks)
    else:
        if r.choice == BY_RATE:
            believed(w, s, v, r, x, b, free, j)
        count = place_best(s, v, x, free, device, top, c, tasks, r.choice)
    if count > 0 and v.shared >= 0 and s.tasks[c].fraction + s.tasks[c].whole > 0:
        count = tell_apart(s, v, x, device, c, count)
    return count


@lean_kernel
def believed(
    w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, free: Ints, j: int
) -> None:
    """Fill `x.mean`, `x.sd` and `x.worth` [N] for a placement of job j."""
    l = w.jobs[j].type
    N = x.mean.size
    if r.rates == LEARNED:
        believe(b, l, x.clock[NOW], x.mean, x.sd)
    else:
        for n in range(N):
            x.sd[n] = 0.0
            if r.rates == LABELS:
                x.mean[n] = v.labels[l, n]
            elif v.log_rates.size > 0:
                x.mean[n] = v.log_rates[l, n] + x.log_factor[n]
            else:
                x.mean[n] = 0.0
    kind = s.tasks[w.jobs[j].shape].dominant
    for n in range(N):
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
    c = w.jobs[j].shape
    now = x.clock[NOW]
    devices = s.demand[c, s.tasks[c].dominant] / 1000.0
    slowest = x.tried[0].node
    for i in range(1, count):
        if x.mean[x.tried[i].node] < x.mean[slowest]:
            slowest = x.tried[i].node
    seconds = wait(
        b,
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
    if not now < x.jobs[j].timer <= now + seconds:
        set_timer(x, j, now + seconds)
    return True


@inlined_kernel
def work_done(x: State, j: int) -> float:
    """What running job j has done as far as the scheduler knows: seconds × the rate seen."""
    gone = max(x.clock[NOW] - x.jobs[j].begun - x.jobs[j].overhead, 0.0)
    return float(x.jobs[j].before + gone * x.jobs[j].seen)


@lean_kernel
def expected_ends(w: Work, r: Rules, x: State, b: Beliefs) -> None:
    """With limits of work: when running jobs are expected to end, anew, and their order."""
    now = x.clock[NOW]
    size = x.at[N_RUNNING]
    for i in range(size):
        j = x.order[i]
        done = work_done(x, j)
        x.jobs[j].expect = now + remaining(b, w.jobs[j].limit, done) / x.jobs[j].seen
    for i in range(1, size):
        j = x.order[i]
        e = x.jobs[j].expect
        m = i
        while m > 0:
            o = x.order[m - 1]
            if x.jobs[o].expect < e or (x.jobs[o].expect == e and o < j):
                break
            x.order[m] = o
            m -= 1
        x.order[m] = j


@lean_kernel
def reserve(w: Work, s: Shapes, v: World, x: State, j: int) -> None:
    """EASY: the first instant at which job j fits if running jobs end when expected.

    Leaves what is free at that instant in `x.shadow`, and how many tasks of j fit then in HAVE.
    """
    N = x.free.shape[0]
    c = w.jobs[j].shape
    now = x.clock[NOW]
    at = x.at
    have = 0
    allowed = v.allowed[s.tasks[c].constraint]
    for n in range(N):
        for k in range(x.free.shape[1]):
            x.shadow[n, k] = x.free[n, k]
        if v.shared >= 0:
            for g in range(v.devices[n]):
                x.shadow_device[n, g] = x.device[n, g]
        if allowed[n]:
            have += fits(s, v, x.shadow, x.shadow_device, c, n)
    i = 0
    size = at[N_RUNNING]
    x.clock[RESERVED] = LATER
    while i < size:
        instant = max(x.jobs[x.order[i]].expect, now)
        while i < size and max(x.jobs[x.order[i]].expect, now) == instant:
            o = x.order[i]
            p = w.jobs[o].piece_from
            for m in range(p, p + x.jobs[o].pieces):
                n = x.out[m].node
                if allowed[n]:
                    have -= fits(s, v, x.shadow, x.shadow_device, c, n)
                take(
                    s,
                    v,
                    x.shadow,
                    x.shadow_device,
                    w.jobs[o].shape,
                    n,
                    x.out[m].tasks,
                    x.out[m].mask,
                    1,
                )
                if allowed[n]:
                    have += fits(s, v, x.shadow, x.shadow_device, c, n)
            i += 1
        if have >= w.jobs[j].tasks:
            x.clock[RESERVED] = instant
            break
    at[HAVE] = have
    at[CHANGE] += 1


@inlined_kernel
def keeps_promise(
    w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, j: int, count: int, head: int
) -> bool:
    """EASY: job j on the pieces tried does not delay the first in line."""
    promised = x.clock[RESERVED]
    if promised == LATER:
        return True
    ends = x.clock[NOW] + w.jobs[j].limit
    if r.limits_of_work:
        rate = math.exp(tried_rate(x, count)) if r.choice == BY_RATE else 1.0
        ends = x.clock[NOW] + w.jobs[j].limit / rate
    if ends <= promised:
        return True
    c = w.jobs[j].shape
    h = w.jobs[head].shape
    allowed = v.allowed[s.tasks[h].constraint]
    have = x.at[HAVE]
    for sign in (-1, 1):
        for i in range(count):
            n = x.tried[i].node
            if sign < 0 and allowed[n]:
                have -= fits(s, v, x.shadow, x.shadow_device, h, n)
            take(s, v, x.shadow, x.shadow_device, c, n, x.tried[i].tasks, x.tried[i].mask, sign)
            if sign < 0 and allowed[n]:
                have += fits(s, v, x.shadow, x.shadow_device, h, n)
        if sign < 0 and have >= w.jobs[head].tasks:
            x.at[HAVE] = have
            x.at[CHANGE] += 1
            return True
    return False


@lean_kernel
def keys(w: Work, r: Rules, x: State) -> int:
    """Those waiting in `x.sequence`, in the order of a queue that changes; their number."""
    now = x.clock[NOW]
    count = 0
    if r.queue == FAIR_SHARE:
        for u in range(x.users.size):
            charge(w, r, x, u)
    rank = smallest(x.words, x.summary, x.at)
    while rank >= 0:
        j = w.by_rank[rank]
        x.sequence[count] = j
        if r.queue == FAIR_SHARE:
            x.key[count] = x.users[w.jobs[j].user].use
        else:  # WFP3: − (wait / limit)³ · size
            stretch = (now - w.jobs[j].submit) / max(w.jobs[j].limit, 1.0)
            x.key[count] = -(stretch * stretch * stretch) * w.jobs[j].size
        count += 1
        rank = following(x.words, x.summary, x.at, rank + 1)
    merge_sort(x, count)
    return count


@inlined_kernel
def backfill(
    w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, j: int, head: int
) -> None:
    """Start job j if it fits and does not delay the first in line."""
    c = w.jobs[j].shape
    plain = r.choice != BY_RATE or not (r.rates == LEARNED or r.waits or r.limits_of_work)
    l = w.jobs[j].type if r.choice == BY_RATE else 0
    ends = x.clock[NOW] + w.jobs[j].limit
    if (
        plain
        and x.memo[c].delay_change == x.at[CHANGE]
        and x.memo[c].delay_tasks == w.jobs[j].tasks
        and x.memo[c].delay_type == l
        and ends > x.clock[RESERVED]
    ):
        x.at[TESTS] += 1
        return  # the like of it was tried on the same nodes
    count = find(w, s, v, r, x, b, j)
    if count == 0 or holds_off(w, s, r, x, b, j, count):
        return
    if keeps_promise(w, s, v, r, x, b, j, count, head):
        start(w, s, v, r, x, j, count)
    else:
        x.memo[c].delay_change = x.at[CHANGE]
        x.memo[c].delay_tasks = w.jobs[j].tasks
        x.memo[c].delay_type = l


@inlined_kernel
def enter_change(x: State, size: int, time: float, item: int) -> int:
    """Note that devices are given back (item 2 j) or taken (2 j + 1), back first."""
    i = size
    while i > 0:
        before = x.changes[i - 1]
        if before.time < time or (before.time == time and before.item % 2 <= item % 2):
            break
        x.changes[i].time = before.time
        x.changes[i].item = before.item
        i -= 1
    x.changes[i].time = time
    x.changes[i].item = item
    return size + 1


@inlined_kernel
def drop_changes(x: State, size: int, j: int) -> int:
    """Forget what is noted of job j."""
    kept = 0
    for i in range(size):
        if x.changes[i].item >> 1 != j:
            if kept < i:
                x.changes[kept].time = x.changes[i].time
                x.changes[kept].item = x.changes[i].item
            kept += 1
    return kept


@inlined_kernel
def shift(w: Work, s: Shapes, v: World, x: State, free: Ints, device: Ints, item: int) -> None:
    """One change of what is free."""
    j = item >> 1
    sign = 1 if item % 2 == 0 else -1
    p = w.jobs[j].piece_from
    for m in range(p, p + x.jobs[j].pieces):
        take(
            s, v, free, device, w.jobs[j].shape, x.out[m].node, x.out[m].tasks, x.out[m].mask, sign
        )


@inlined_kernel
def room(w: Work, s: Shapes, v: World, x: State, free: Ints, device: Ints, j: int) -> bool:
    """Job j fits on what is given as free."""
    c = w.jobs[j].shape
    have = 0
    for n in range(free.shape[0]):
        if v.allowed[s.tasks[c].constraint, n]:
            have += max(fits(s, v, free, device, c, n), 0)
    return bool(have >= w.jobs[j].tasks)


@lean_kernel
def copy_to(of: Ints, to: Ints) -> None:
    """Copy a table."""
    for n in range(of.shape[0]):
        for k in range(of.shape[1]):
            to[n, k] = of[n, k]


@lean_kernel
def lower_to(of: Ints, to: Ints) -> None:
    """Let a table be the smaller of two, entry by entry."""
    for n in range(of.shape[0]):
        for k in range(of.shape[1]):
            to[n, k] = min(to[n, k], of[n, k])


@lean_kernel
def conservative(w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, count: int) -> None:
    """Every waiting job holds a reservation; in order, each gets the earliest it can have now.

    All others keep theirs meanwhile, so that nobody's is ever moved back.
    """
    at = x.at
    now = x.clock[NOW]
    copy_to(x.free, x.shadow)
    copy_to(x.device, x.shadow_device)
    size = 0
    for i in range(at[N_RUNNING]):  # a job past its request is expected to end now
        j = x.order[i]
        if x.jobs[j].expect <= now:
            shift(w, s, v, x, x.shadow, x.shadow_device, 2 * j)
        else:
            size = enter_change(x, size, x.jobs[j].expect, 2 * j)
    for i in range(count):
        j = x.sequence[i]
        slot = x.jobs[j].slot
        if slot == LATER or w.jobs[j].limit <= 0.0 or slot + w.jobs[j].limit <= now:
            continue
        size = enter_change(x, size, max(slot, now), 2 * j + 1)
        size = enter_change(x, size, slot + w.jobs[j].limit, 2 * j)
    for i in range(min(count, r.depth)):
        j = x.sequence[i]
        limit = w.jobs[j].limit
        size = drop_changes(x, size, j)
        copy_to(x.shadow, x.now_free)
        copy_to(x.shadow_device, x.now_device)
        place = 0
        time = now
        pieces = 0
        while True:
            while place < size and x.changes[place].time <= time:
                shift(w, s, v, x, x.now_free, x.now_device, x.changes[place].item)
                place += 1
            if room(w, s, v, x, x.now_free, x.now_device, j):
                copy_to(x.now_free, x.ahead)
                copy_to(x.now_device, x.ahead_device)
                copy_to(x.now_free, x.trial)
                copy_to(x.now_device, x.trial_device)
                m = place
                while m < size and x.changes[m].time < time + limit:
                    item = x.changes[m].item
                    shift(w, s, v, x, x.trial, x.trial_device, item)
                    m += 1
                    if item % 2 == 1:
                        lower_to(x.trial, x.ahead)
                        lower_to(x.trial_device, x.ahead_device)
                pieces = arrange(w, s, v, r, x, b, x.ahead, x.ahead_device, x.shadow_top, j)
                if pieces > 0:
                    break
            if place == size:
                break
            time = x.changes[place].time
        x.jobs[j].slot = LATER
        if pieces == 0:
            continue  # no node will ever be there for it, as things are
        if time <= now and truly_free(s, v, x, w.jobs[j].shape, pieces):
            start(w, s, v, r, x, j, pieces)
            shift(w, s, v, x, x.shadow, x.shadow_device, 2 * j + 1)
            if x.jobs[j].expect <= now:
                shift(w, s, v, x, x.shadow, x.shadow_device, 2 * j)
            else:
                size = enter_change(x, size, x.jobs[j].expect, 2 * j)
            continue
        x.jobs[j].slot = time
        x.jobs[j].reserved = min(x.jobs[j].reserved, time)
        x.jobs[j].pieces = pieces
        p = w.jobs[j].piece_from
        for m in range(pieces):
            x.out[p + m].node = x.tried[m].node
            x.out[p + m].tasks = x.tried[m].tasks
            x.out[p + m].mask = x.tried[m].mask
        if limit > 0.0:
            size = enter_change(x, size, time, 2 * j + 1)
            size = enter_change(x, size, time + limit, 2 * j)


@inlined_kernel
def truly_free(s: Shapes, v: World, x: State, c: int, pieces: int) -> bool:
    """What was tried is free, not only expected to be."""
    able = True
    for sign in (-1, 1):
        for m in range(pieces):
            n = x.tried[m].node
            take(s, v, x.free, x.device, c, n, x.tried[m].tasks, x.tried[m].mask, sign)
            if sign < 0:
                for k in range(x.free.shape[1]):
                    able = able and x.free[n, k] >= 0
                for g in range(x.device.shape[1]):
                    able = able and x.device[n, g] >= 0
    return able


@inlined_kernel
def full(s: Shapes, x: State) -> bool:
    """Not even the smallest task fits."""
    for k in range(x.total.size):  # noqa: SIM110 - generators do not compile
        if x.total[k] < s.least[k]:
            return True
    return False


@inlined_kernel
def decide(w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs) -> None:
    """One round of decisions."""
    at = x.at
    now = x.clock[NOW]
    changing = r.queue >= FAIR_SHARE
    head = at[HEAD]
    fresh = at[FRESH]
    at[FRESH] = 0
    if (
        at[DIRTY] == 0
        and head >= 0
        and not changing
        and not r.limits_of_work
        and not r.waits
        and (r.choice != BY_RATE or r.rates == LABELS or r.backfilling == NO_BACKFILLING)
        and fresh <= x.fresh.size
        and (r.backfilling != EASY or (x.clock[RESERVED] >= now and at[N_WAITING] <= r.depth))
    ):
        # Nothing changed but submissions: those tried before fail again.
        last = int64(-1)
        behind = True
        for i in range(fresh):
            behind = behind and x.fresh[i] > w.jobs[head].rank
        if behind:
            if r.backfilling == EASY:
                for _ in range(fresh):
                    rank = int64(1) << 62
                    for m in range(fresh):
                        if x.fresh[m] > last:
                            rank = min(rank, x.fresh[m])
                    last = rank
                    backfill(w, s, v, r, x, b, w.by_rank[rank], head)
            return
    at[DIRTY] = 0
    at[HEAD] = -1
    if at[N_WAITING] == 0:
        return
    if r.limits_of_work and r.backfilling == CONSERVATIVE:
        expected_ends(w, r, x, b)
    count = keys(w, r, x) if changing else 0
    if r.backfilling == CONSERVATIVE:
        if not changing:
            rank = smallest(x.words, x.summary, at)
            while rank >= 0:
                x.sequence[count] = w.by_rank[rank]
                count += 1
                rank = following(x.words, x.summary, at, rank + 1)
        conservative(w, s, v, r, x, b, count)
        return
    i = 0
    rank = smallest(x.words, x.summary, at) if not changing else -1
    head = -1
    tested = 0
    while True:
        if changing:
            if i >= count:
                break
            j = x.sequence[i]
            i += 1
        else:
            if rank < 0:
                break
            j = w.by_rank[rank]
            rank = following(x.words, x.summary, at, rank + 1)
        if head < 0:
            pieces = find(w, s, v, r, x, b, j)
            if pieces > 0:
                if not holds_off(w, s, r, x, b, j, pieces):
                    start(w, s, v, r, x, j, pieces)
                continue
            head = j
            at[HEAD] = j
            if r.backfilling != EASY or full(s, x):
                x.clock[RESERVED] = -1.0  # made when it is needed
                if r.backfilling == EASY:
                    at[DIRTY] = 1
                break
            if r.limits_of_work:
                expected_ends(w, r, x, b)
            reserve(w, s, v, x, j)
            x.jobs[j].reserved = min(x.jobs[j].reserved, x.clock[RESERVED])
        else:
            if tested >= r.depth or full(s, x):
                break
            tested += 1
            backfill(w, s, v, r, x, b, j, head)


@lean_kernel
def look_around(w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs) -> None:
    """Running jobs are measured again; while nobody waits, they move where that saves time."""
    at = x.at
    now = x.clock[NOW]
    count = 0
    for m in range(at[N_RUNNING]):
        j = x.running[m]
        begun = x.jobs[j].begun
        if begun + r.measured_after <= now and begun + x.jobs[j].overhead < now:
            x.sequence[count] = j
            x.key[count] = j
            count += 1
    merge_sort(x, count)
    for m in range(count):
        measure(w, v, r, x, b, x.sequence[m], False)
    if at[N_WAITING] > 0:
        return
    for m in range(count):
        j = x.sequence[m]
        seen = x.jobs[j].seen
        done = work_done(x, j)
        if remaining(b, w.jobs[j].limit, done) <= seen * r.restart:
            continue
        pieces = find(w, s, v, r, x, b, j)
        if pieces == 0:
            continue
        here = LATER
        p = w.jobs[j].piece_from
        for i in range(p, p + x.jobs[j].pieces):
            here = min(here, x.mean[x.out[i].node])
        there = LATER
        for i in range(pieces):
            n = x.tried[i].node
            there = min(there, x.mean[n] - b.constants.caution * x.sd[n])
        log_rate = math.log(seen)
        other = log_rate + there - here
        if migrate(b, w.jobs[j].type, w.jobs[j].limit, done, log_rate, other, r.restart):
            interrupt(w, s, v, r, x, b, j, WHY_PREEMPTED)
            x.jobs[j].before = done
            start(w, s, v, r, x, j, pieces)
    at[FRESH] = 0


@lean_kernel
def play(w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, instants: int) -> int:
    """Run up to ``instants`` instants. Gives DONE, PAUSED, or MORE_ROOM for cut attempts."""
    at = x.at
    cuts = r.look < LATER
    for e in range(v.event_kind.size):
        cuts = cuts or v.event_kind[e] == DOWN
    for _ in range(instants):
        time = next_instant(w, v, x)
        if time == LATER or at[ENDED] == w.jobs.size:
            return DONE
        if cuts and (
            at[LOGGED] + at[N_RUNNING] > x.cuts.size - 1
            or at[LOGGED_PIECES] + at[PIECES_OUT] > x.cut_pieces.size
        ):
            return MORE_ROOM
        looks = False
        if r.look < LATER and at[N_RUNNING] > 0:
            due = (math.floor(x.clock[NOW] / r.look) + 1) * r.look
            if due <= time:
                time = due
                looks = True
        x.clock[NOW] = time
        at[INSTANTS] += 1
        events(w, s, v, r, x, b)
        if at[N_WAITING] > 0:
            at[ROUNDS] += 1
            decide(w, s, v, r, x, b)
        else:
            at[FRESH] = 0
            at[HEAD] = -1
            at[DIRTY] = 0
        if looks:
            look_around(w, s, v, r, x, b)
    return PAUSED
