"""The simulation, compiled: events of an instant first, then one round of decisions.

``play`` runs every combination of built-in parts; :mod:`gangwise.jobs.simulation` states the same
rules in plain Python. A compiled call copies every array of its arguments, so what happens all the
time is part of ``play`` (``inlined_kernel``), and only what is rare is called (``lean_kernel``).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gangwise.core.jit import inlined_kernel, inner_kernel, lean_kernel
from gangwise.jobs.fit_kernels import block_top, vacate
from gangwise.jobs.kernels import (
    BLOCK,
    BY_RATE,
    CANCEL,
    CANCELLATIONS,
    CANCELLED,
    CHANGE,
    CONSERVATIVE,
    DIRTY,
    DOWN,
    END,
    ENDED,
    EPOCH,
    EVENT,
    FACTOR,
    FAIR_SHARE,
    FINISHED,
    FINISHES,
    FRESH,
    HEAD,
    HELD,
    HOLES,
    INSTANTS,
    KILLED,
    KILLS,
    LABELS,
    LATER,
    LOGGED,
    LOGGED_PIECES,
    LOST,
    N_RUNNING,
    N_WAITING,
    NEXT,
    NOW,
    PIECES_OUT,
    PREEMPTIONS,
    REQUEUES,
    ROUNDS,
    RUNNING,
    TIMERS,
    UNSUBMITTED,
    UP,
    VOID,
    WAITING,
    Rules,
    Shapes,
    State,
    Work,
    World,
    devices_of,
    insert,
    merge_sort,
    pop,
    remove,
)
from gangwise.jobs.rate_kernels import Beliefs, finished, migrate, observe, released, remaining
from gangwise.jobs.round_kernels import decide
from gangwise.jobs.start_kernels import (
    arrange_on,
    charge,
    hear,
    schedule_end,
    speed_of,
    start,
    work_done,
)

int64: Any = np.int64
boolean: Any = np.bool_
"""Casts where a kernel would otherwise be compiled once more, for a shorter or a literal number."""

DONE, PAUSED, MORE_ROOM = range(3)
WHY_FAILED, WHY_PREEMPTED = range(2)


@inlined_kernel
def leave(w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, j: int) -> None:
    """Job j gives its devices back, for whatever reason."""
    at = x.at
    vacate(s, v, x, j, w.jobs[j].shape, w.jobs[j].piece_from)
    if x.jobs[j].expect > x.clock[NOW]:
        at[HOLES] += 1
    at[N_RUNNING] -= 1
    last = x.running[at[N_RUNNING]]
    x.running[x.jobs[j].running_at] = last
    x.jobs[last].running_at = x.jobs[j].running_at
    if r.queue == FAIR_SHARE:
        charge(w, r, x, int64(w.jobs[j].user))
        x.users[w.jobs[j].user].rate -= devices_of(w, s, j) / s.tasks[w.jobs[j].shape].total
    if r.choice == BY_RATE and r.rates != LABELS:
        p = w.jobs[j].piece_from
        d = s.demand[w.jobs[j].shape, s.tasks[w.jobs[j].shape].dominant] / 1000.0
        for i in range(p, p + x.jobs[j].pieces):
            released(b, x.out[i].node, x.out[i].tasks * d, x.clock[NOW])
    at[DIRTY] = 1


@inlined_kernel
def measure(w: Work, v: World, r: Rules, x: State, b: Beliefs, j: int, first: bool) -> None:
    """The rates of job j's pieces become known."""
    p = w.jobs[j].piece_from
    count = x.jobs[j].pieces
    slowest = LATER
    l = int64(w.jobs[j].type)
    for i in range(count):
        n = x.out[p + i].node
        rate = 1.0
        if v.log_rates.size > 0:
            rate = math.exp(v.log_rates[l, n] + x.log_factor[n] + v.log_noise[j])
        x.rated[i] = n
        x.log_rates[i] = math.log(rate)
        slowest = min(slowest, rate)
    x.looks[j].seen = slowest
    observe(b, l, x.rated, x.log_rates, count, first, x.clock[NOW])
    x.at[DIRTY] = 1


@inlined_kernel
def finish(w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, j: int) -> None:
    """Job j ends: by itself, or killed at its limit."""
    at = x.at
    now = x.clock[NOW]
    own = x.jobs[j].since + x.jobs[j].left / x.jobs[j].speed
    if r.choice == BY_RATE and r.rates != LABELS and now > x.jobs[j].since:
        measure(w, v, r, x, b, j, now <= x.looks[j].timer)
        if own <= now:
            finished(b, w.jobs[j].limit, (now - x.jobs[j].since) * x.looks[j].seen, now)
    leave(w, s, v, r, x, b, j)
    x.told[END, j] = now
    if own > now or w.jobs[j].doomed:
        x.jobs[j].phase = KILLED
        at[KILLS] += 1
    else:
        x.jobs[j].phase = FINISHED
    let_follow(w, x, j)


@inlined_kernel
def let_follow(w: Work, x: State, j: int) -> None:
    """Job j has ended: those that come after it and nothing else may wait now."""
    x.at[ENDED] += 1
    if w.next_from.size == 0:
        return
    for i in range(w.next_from[j], w.next_from[j + 1]):
        k = w.next[i]
        x.wants[k] -= 1
        if x.wants[k] == 0 and x.jobs[k].phase == HELD:
            enter(w, x, k)


@inner_kernel
def cancel(w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, j: int) -> None:
    """Job j is withdrawn, whether it was submitted, waits or runs."""
    at = x.at
    phase = x.jobs[j].phase
    if phase > RUNNING:
        return
    if phase == RUNNING:
        if r.choice == BY_RATE and r.rates != LABELS and x.clock[NOW] > x.jobs[j].since:
            measure(w, v, r, x, b, j, x.clock[NOW] <= x.looks[j].timer)
        leave(w, s, v, r, x, b, j)
        x.told[END, j] = x.clock[NOW]
    elif phase == WAITING:
        remove(x.words, x.summary, w.jobs[j].rank)
        at[N_WAITING] -= 1
        if r.backfilling == CONSERVATIVE:
            at[HOLES] += x.plans[j].slot < LATER
            x.plans[j].slot = LATER
    at[DIRTY] = 1
    at[CANCELLATIONS] += 1
    x.jobs[j].phase = CANCELLED
    let_follow(w, x, j)


@inner_kernel
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
        x.told[LOST, j] += (done - kept) * (devices_of(w, s, j) / 1000.0)
        left = w.jobs[j].work - kept
    cost = min(now - x.jobs[j].begun, x.jobs[j].overhead)
    x.told[LOST, j] += cost * (devices_of(w, s, j) / 1000.0)
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
    if r.backfilling == CONSERVATIVE:
        x.plans[j].slot = LATER
        x.plans[j].planned = -1
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
        if holds and x.looks[j].timer == x.timers[0].time:
            time = min(time, x.timers[0].time)
            break
        at[TIMERS] = pop(x.timers, at[TIMERS])
    while at[NEXT] < w.jobs.size and x.jobs[at[NEXT]].phase != UNSUBMITTED:
        at[NEXT] += 1
    if at[NEXT] < w.jobs.size:
        time = min(time, w.jobs[at[NEXT]].submit)
    if at[EVENT] < v.event_time.size:
        time = min(time, v.event_time[at[EVENT]])
    return time


@inner_kernel
def node_event(
    w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, n: int, kind: int, value: float
) -> None:
    """A node fails, drains, comes back, or changes its rate by a factor (value: its logarithm).

    What is free on a node that drains is what is free less all it has: as jobs there end, nothing.
    """
    at = x.at
    at[DIRTY] = 1
    if kind in (DOWN, FACTOR):
        if kind == FACTOR:
            x.log_factor[n] = value
        there = 0
        for m in range(at[N_RUNNING]):
            j = x.running[m]
            p = w.jobs[j].piece_from
            for i in range(p, p + x.jobs[j].pieces):
                if x.out[i].node == n:
                    x.sequence[there].time = 0.0
                    x.sequence[there].item = j
                    there += 1
                    break
        merge_sort(x.sequence, x.spare_rows, 0, there)
        for m in range(there):
            if kind == DOWN:
                interrupt(w, s, v, r, x, b, x.sequence[m].item, int64(WHY_FAILED))
            else:
                change_speed(w, v, r, x, x.sequence[m].item)
        if kind == FACTOR:
            return
    sign = 1 if kind == UP else -1
    if x.up[n] == (kind == UP):
        return
    x.up[n] = kind == UP
    at[EPOCH] += 1
    at[CHANGE] += 1
    at[VOID] = 1
    for k in range(x.free.shape[1]):
        x.free[n, k] += sign * v.capacity[n, k]
        x.total[k] = 0
        for m in range(x.free.shape[0]):
            x.total[k] += max(x.free[m, k], 0)
    if v.shared >= 0:
        for g in range(v.devices[n]):
            x.device[n, g] += sign * 1000
    block_top(x, n // BLOCK)


@inner_kernel
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
        if v.event_kind[e] == CANCEL:
            cancel(w, s, v, r, x, b, v.event_node[e])
        else:
            node_event(w, s, v, r, x, b, v.event_node[e], v.event_kind[e], v.event_value[e])
    fresh = at[NEXT]
    while at[NEXT] < w.jobs.size and w.jobs[at[NEXT]].submit <= now:
        j = at[NEXT]
        at[NEXT] += 1
        if x.jobs[j].phase != UNSUBMITTED:
            continue
        if x.wants.size > 0 and x.wants[j] > 0:
            x.jobs[j].phase = HELD
        else:
            enter(w, x, j)
    while at[TIMERS] > 0 and x.timers[0].time <= now:
        j = x.timers[0].item
        time = x.timers[0].time
        at[TIMERS] = pop(x.timers, at[TIMERS])
        if x.looks[j].timer != time:
            continue
        if x.jobs[j].phase == RUNNING:
            measure(w, v, r, x, b, j, boolean(True))
        elif x.jobs[j].phase == WAITING:
            at[DIRTY] = 1
    if r.waits and r.rates != LABELS:
        for j in range(fresh, at[NEXT]):
            if x.jobs[j].phase == WAITING:
                hear(w, s, v, r, x, b, j)


# --------------------------------------------------------------------------------------- rounds


@inner_kernel
def look_around(w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs) -> None:
    """Running jobs are measured again; while nobody waits, they move where that saves time."""
    at = x.at
    now = x.clock[NOW]
    count = 0
    for m in range(at[N_RUNNING]):
        j = x.running[m]
        begun = x.jobs[j].begun
        if begun + r.measured_after <= now and begun + x.jobs[j].overhead < now:
            x.sequence[count].time = 0.0
            x.sequence[count].item = j
            count += 1
    merge_sort(x.sequence, x.spare_rows, 0, count)
    for m in range(count):
        measure(w, v, r, x, b, x.sequence[m].item, boolean(False))
    if at[N_WAITING] > 0:
        return
    for m in range(count):
        j = x.sequence[m].item
        seen = x.looks[j].seen
        done = work_done(x, j)
        if remaining(b, w.jobs[j].limit, done) <= seen * r.restart:
            continue
        pieces = arrange_on(w, s, v, r, x, b, x.free, x.device, x.top, j)
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
        if migrate(b, int64(w.jobs[j].type), w.jobs[j].limit, done, log_rate, other, r.restart):
            interrupt(w, s, v, r, x, b, j, int64(WHY_PREEMPTED))
            x.looks[j].before = done
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
