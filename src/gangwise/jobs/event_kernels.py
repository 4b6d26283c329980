"""The simulation, compiled: the events of an instant, and what they do to jobs and nodes.

``advance`` takes in all events of the next instant; :mod:`gangwise.jobs.round_kernels` decides in
compiled code, and ``outside`` is one step for a scheduler that decides in Python: it has no beliefs
(None), and what learns is not compiled for it. What every job goes through in one place is part of
its caller (``inlined_kernel``); what is rare, or has several callers, is called.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gangwise.core.jit import inlined_kernel, inner_kernel, lean_kernel
from gangwise.jobs.fit_kernels import block_top, piece_shape, vacate
from gangwise.jobs.kernels import (
    ADVANCE,
    ASK,
    BLOCK,
    CANCEL,
    CANCELLED,
    CONSERVATIVE,
    DOWN,
    ENTERED_QUEUE,
    FACTOR,
    FINISHED,
    GIVEN_UP,
    HAS_FAILED,
    HAS_FINISHED,
    HELD,
    HOURS,
    IN_LINE,
    KILLED,
    LABELS,
    LOOK_AROUND,
    MEASURED,
    MULTIFACTOR,
    NEVER,
    NODE_CAME,
    NODE_DRAINS,
    NODE_WENT,
    PLACE,
    PREEMPT,
    RUNNING,
    UNSUBMITTED,
    UP,
    WAITING,
    WAS_CANCELLED,
    WAS_KILLED,
    WAS_PREEMPTED,
    Given,
    State,
    count_caps,
    devices_of,
    insert,
    int64,
    merge_sort,
    pop,
    put,
    put_piece,
    remove,
    report,
)
from gangwise.jobs.queue_kernels import follow, tick, wake
from gangwise.jobs.rate_kernels import Beliefs, finished, needed, observe, released
from gangwise.jobs.run_times import ended, expect
from gangwise.jobs.start_kernels import (
    change_use,
    hear,
    rate_on,
    schedule_end,
    set_timer,
    speed_of,
    start,
    timer_holds,
)

boolean: Any = np.bool_
"""A cast where a kernel would otherwise be compiled once more, for a literal."""

DONE, PAUSED, MORE_ROOM = range(3)
WHY_FAILED, WHY_PREEMPTED = range(2)


@inlined_kernel
def leave(g: Given, x: State, b: Beliefs | None, j: int) -> None:
    """Job j gives its devices back, for whatever reason."""
    job, run = g.jobs[j], x.jobs[j]
    at = x.at
    vacate(g, x, j)
    count_caps(g, x, j, GIVEN_UP)
    if at.aside > 0:
        wake(g, x, j)
    if run.expect > x.at.now:
        at.holes += 1
    at.running -= 1
    last = x.running[at.running]
    x.running[run.place] = last
    x.jobs[last].place = run.place
    change_use(g, x, j, -1.0)
    if b is not None:  # noqa: SIM102 - alone, so that what learns is not compiled without it
        if g.rules.rates != LABELS:
            p = job.piece_from
            s = int64(job.shape)
            kind = g.cluster.shapes[s].dominant
            for i in range(p, p + run.pieces):
                d = g.cluster.demand[piece_shape(g.cluster, s, x.out, p, i), kind] / 1000.0
                released(b, x.out[i].node, x.out[i].tasks * d, x.at.now)
    at.again = 1


@inner_kernel
def measure(g: Given, x: State, b: Beliefs | None, j: int, first: bool, ended: bool) -> None:
    """The rates of job j's pieces become known: to the learner, or outside."""
    job = g.jobs[j]
    p = job.piece_from
    count = x.jobs[j].pieces
    x.at.again = 1
    if b is None:
        report_rates(g, x, j, first, ended)
    else:
        slowest = NEVER
        for i in range(count):
            seen = rate_on(g, x, j, x.out[p + i].node)
            x.rated[i] = x.out[p + i].node
            x.log_rates[i] = math.log(seen)
            slowest = min(slowest, seen)
        x.looks[j].seen = slowest
        observe(b, int64(job.type), x.rated, x.log_rates, count, first, x.at.now)


@inlined_kernel
def report_rates(g: Given, x: State, j: int, first: bool, ended: bool) -> None:
    """Enter into the feed the rates of job j's tasks, piece by piece."""
    if x.feed.size > 0:
        x.feed[x.at.fed].first = first
        x.feed[x.at.fed].ended = ended
        report(x, MEASURED, j)
        p = g.jobs[j].piece_from
        for i in range(p, p + x.jobs[j].pieces):
            x.fed_rates[x.at.fed_rates] = rate_on(g, x, j, x.out[i].node)
            x.at.fed_rates += 1


@inlined_kernel
def finish(g: Given, x: State, b: Beliefs | None, j: int) -> None:
    """Job j ends: by itself, or killed at its limit."""
    job, run = g.jobs[j], x.jobs[j]
    at = x.at
    now = x.at.now
    own = run.since + run.left / run.speed
    if g.rules.rates != LABELS and now > run.since:
        measure(g, x, b, j, now <= run.begun + g.rules.measured_after, own <= now)
        if b is not None:
            done = (now - run.since) * x.looks[j].seen
            if own <= now:
                finished(b, job.limit, done, now)
            # A restart keeps a job from doing a whole limit's work: what it needs is not known.
            if b.walled and (own <= now or now >= run.since + job.limit):
                needed(b, int64(job.type), job.limit, done, own > now)
    leave(g, x, b, j)
    x.end[j] = now
    learn_end(g, x, b, j, own <= now and job.doomed == 0)
    if own > now or job.doomed:
        run.phase = KILLED
        at.kills += 1
        report(x, WAS_KILLED, j)
    else:
        run.phase = FINISHED
        report(x, HAS_FINISHED, j)
    let_follow(g, x, j)


@inlined_kernel
def learn_end(g: Given, x: State, b: Beliefs | None, j: int, whole: bool) -> None:
    """Learn how long job j ran, which has just ended: by itself (whole), killed or withdrawn."""
    # numba prunes a branch on None alone, not one that is part of a longer condition.
    if b is not None:  # noqa: SIM102
        if x.times.expected.size > 0:
            ended(x.times, j, x.at.now - x.jobs[j].begun, whole, x.at.now)


@inlined_kernel
def work_off(x: State, j: int) -> None:
    """What is left of running job j, as of now."""
    run = x.jobs[j]
    now = x.at.now
    if now > run.since:
        run.left = max(run.left - (now - run.since) * run.speed, 0.0)
        run.since = now


@inlined_kernel
def let_follow(g: Given, x: State, j: int) -> None:
    """Job j has ended: those that come after it and nothing else may wait now."""
    x.at.ended += 1
    if g.next_from.size > 0:
        release_next(g, x, j)


@inner_kernel
def release_next(g: Given, x: State, j: int) -> None:
    """Those that come after job j wait for it no longer."""
    for i in range(g.next_from[j], g.next_from[j + 1]):
        k = g.next[i]
        x.wants[k] -= 1
        if x.wants[k] == 0 and x.jobs[k].phase == HELD:
            enter(g, x, k)


@inner_kernel
def cancel(g: Given, x: State, b: Beliefs | None, j: int) -> None:
    """Job j is withdrawn, whether it was submitted, waits or runs."""
    run = x.jobs[j]
    at = x.at
    phase = run.phase
    if phase > RUNNING:
        return
    if phase == RUNNING:
        if g.rules.rates != LABELS and x.at.now > run.since:
            first = x.at.now <= run.begun + g.rules.measured_after
            measure(g, x, b, j, first, boolean(False))
        leave(g, x, b, j)
        x.end[j] = x.at.now
        learn_end(g, x, b, j, boolean(False))
    elif phase == WAITING:
        leave_queue(g, x, j)
    if phase >= WAITING:
        report(x, WAS_CANCELLED, j)
    at.again = 1
    at.cancellations += 1
    run.phase = CANCELLED
    let_follow(g, x, j)


@inlined_kernel
def leave_queue(g: Given, x: State, j: int) -> None:
    """Job j waits no longer, without having been started."""
    job = g.jobs[j]
    remove(x.words, x.summary, job.rank)
    x.at.waiting -= 1
    if x.at.aside > 0 and x.jobs[j].place == IN_LINE:
        follow(g, x, int64(job.claim))
    if g.rules.backfilling == CONSERVATIVE:
        x.at.holes += x.plans[j].start < NEVER
        x.plans[j].start = NEVER


@inner_kernel
def interrupt(g: Given, x: State, b: Beliefs | None, j: int, why: int) -> None:
    """Job j loses its nodes and waits again; what a failure costs, a preemption does not."""
    job, run = g.jobs[j], x.jobs[j]
    at = x.at
    now = x.at.now
    left = max(run.left - max(now - run.since, 0.0) * run.speed, 0.0)
    if why == WHY_FAILED:
        done = job.work - left
        kept = done
        if g.rules.checkpoint == NEVER:
            kept = 0.0
        elif g.rules.checkpoint > 0.0:
            kept = math.floor(done / g.rules.checkpoint) * g.rules.checkpoint
        x.lost[j] += (done - kept) * (devices_of(g, j) / 1000.0)
        left = job.work - kept
    cost = min(max(now - run.begun - g.rules.latency, 0.0), run.overhead)
    x.lost[j] += cost * (devices_of(g, j) / 1000.0)
    i = at.cuts
    q = at.cut_pieces
    x.cuts[i].job = j
    x.cuts[i].begun = run.begun
    x.cuts[i].end = now
    x.cuts[i].why = why
    p = job.piece_from
    for m in range(run.pieces):
        n, tasks = int64(x.out[p + m].node), int64(x.out[p + m].tasks)
        put_piece(x.cut_pieces, q + m, n, tasks, int64(0))
    at.cuts = i + 1
    at.cut_pieces = q + run.pieces
    x.cuts[i + 1].first = at.cut_pieces
    leave(g, x, b, j)
    run.left = left
    run.overhead = g.rules.restart
    if g.rules.backfilling == CONSERVATIVE:
        x.plans[j].start = NEVER
        x.plans[j].planned = -1
    if x.looks.size > 0:
        x.looks[j].timer = -1.0
    at.requeues += why == WHY_FAILED
    at.preemptions += why == WHY_PREEMPTED
    report(x, HAS_FAILED if why == WHY_FAILED else WAS_PREEMPTED, j)
    enter(g, x, j)


@inlined_kernel
def note_submitted(g: Given, x: State, j: int) -> None:
    """Count the tasks of job j by their shapes, which FGD looks at."""
    s = int64(g.jobs[j].shape)
    low = g.cluster.shapes[s].groups_from
    if g.cluster.shapes[s].groups == 0:
        x.memo[s].seen += g.jobs[j].tasks
    for m in range(low, low + g.cluster.shapes[s].groups):
        x.memo[g.cluster.groups[m].shape].seen += g.cluster.groups[m].tasks


@inner_kernel
def enter(g: Given, x: State, j: int) -> None:
    """Job j joins those waiting."""
    job, run = g.jobs[j], x.jobs[j]
    at = x.at
    run.phase = WAITING
    run.place = IN_LINE
    at.origin = min(at.origin, job.submit)
    if g.rules.queue == MULTIFACTOR:  # it ages from now on
        x.standing.eligible[j] = at.now
        if run.attempts > 0:
            at.anew = 1
    if run.attempts == 0:
        note_submitted(g, x, j)
        if x.times.expected.size > 0:
            x.times.expected[j] = expect(x.times, j, at.now)
    insert(x.words, x.summary, at, job.rank)
    at.waiting += 1
    if at.fresh < x.fresh.size:
        x.fresh[at.fresh] = job.rank
    at.fresh += 1
    report(x, ENTERED_QUEUE, j)


# --------------------------------------------------------------------------------------- events


@inlined_kernel
def next_instant(g: Given, x: State) -> float:
    """Time of the next event, inf for none."""
    at = x.at
    time = NEVER
    while at.ends > 0:
        j = x.ends[0].item
        if x.jobs[j].phase == RUNNING and x.jobs[j].finish == x.ends[0].time:
            time = x.ends[0].time
            break
        at.ends = pop(x.ends, at.ends)
    while at.timers > 0:
        if timer_holds(x, int64(0)):
            time = min(time, x.timers[0].time)
            break
        at.timers = pop(x.timers, at.timers)
    while at.next_job < g.jobs.size and x.jobs[at.next_job].phase != UNSUBMITTED:
        at.next_job += 1
    if at.next_job < g.jobs.size:
        time = min(time, g.jobs[at.next_job].submit)
    if at.next_event < g.events.size:
        time = min(time, g.events[at.next_event].time)
    return time


@inner_kernel
def node_event(g: Given, x: State, b: Beliefs | None, n: int, kind: int, value: float) -> None:
    """A node fails, drains, comes back, or changes its rate by a factor (value).

    What is free on a node that drains is what is free less all it has: as jobs there end, nothing.
    """
    at = x.at
    at.again = 1
    if kind in (DOWN, FACTOR):
        if kind == FACTOR:
            x.factor[n] = value
            x.log_factor[n] = math.log(value)
        count = 0
        for m in range(at.running):
            j = x.running[m]
            p = g.jobs[j].piece_from
            for i in range(p, p + x.jobs[j].pieces):
                if x.out[i].node == n:
                    put(x.sequence, count, 0.0, j)
                    count += 1
                    break
        merge_sort(x.sequence, x.spare_rows, 0, count)
        at.anew = 1  # those who wait stood there
        for m in range(count):
            if kind == DOWN:
                interrupt(g, x, b, x.sequence[m].item, int64(WHY_FAILED))
            else:
                change_speed(g, x, x.sequence[m].item)
        if kind == FACTOR:
            return
    sign = 1 if kind == UP else -1
    if x.up[n] == (kind == UP):
        return
    x.up[n] = kind == UP
    report(x, NODE_CAME if kind == UP else NODE_WENT if kind == DOWN else NODE_DRAINS, n)
    at.epoch += 1
    at.change += 1
    at.void = 1
    room = x.room
    for k in range(room.free.shape[1]):
        room.free[n, k] += sign * g.cluster.capacity[n, k]
        x.total[k] = 0
        for m in range(room.free.shape[0]):
            x.total[k] += max(room.free[m, k], 0)
    if g.cluster.shared >= 0:
        for i in range(g.cluster.devices[n]):
            room.device[n, i] += sign * 1000
    block_top(room, n // BLOCK)


@inner_kernel
def change_speed(g: Given, x: State, j: int) -> None:
    """A node of job j runs at another rate from now on."""
    run = x.jobs[j]
    speed = speed_of(g, x, j)
    if speed == run.speed:
        return
    work_off(x, j)
    run.speed = speed
    schedule_end(g, x, j)


@inlined_kernel
def events(g: Given, x: State, b: Beliefs | None) -> None:
    """Take in all that happens now: ends, then nodes, then submissions, then measurements."""
    at = x.at
    now = x.at.now
    while at.ends > 0 and x.ends[0].time <= now:
        j = x.ends[0].item
        time = x.ends[0].time
        at.ends = pop(x.ends, at.ends)
        if x.jobs[j].phase == RUNNING and x.jobs[j].finish == time:
            finish(g, x, b, j)
    while at.next_event < g.events.size and g.events[at.next_event].time <= now:
        e = at.next_event
        at.next_event += 1
        if g.events[e].kind == CANCEL:
            cancel(g, x, b, g.events[e].item)
        elif g.events[e].kind == HOURS:
            at.again = 1
        else:
            node_event(g, x, b, g.events[e].item, g.events[e].kind, g.events[e].value)
    fresh = at.next_job
    while at.next_job < g.jobs.size and g.jobs[at.next_job].submit <= now:
        j = at.next_job
        at.next_job += 1
        if x.jobs[j].phase != UNSUBMITTED:
            continue
        if x.wants.size > 0 and x.wants[j] > 0:
            x.jobs[j].phase = HELD
        else:
            enter(g, x, j)
    while at.timers > 0 and x.timers[0].time <= now:
        j = x.timers[0].item
        time = x.timers[0].time
        at.timers = pop(x.timers, at.timers)
        if x.looks[j].timer != time:
            continue
        if x.jobs[j].phase == RUNNING:
            measure(g, x, b, j, boolean(True), boolean(False))
        elif x.jobs[j].phase == WAITING:
            at.again = 1
    # numba prunes a branch on None alone, not one that is part of a longer condition.
    if b is not None:  # noqa: SIM102
        if g.rules.waits and g.rules.rates != LABELS:
            for j in range(fresh, at.next_job):
                if x.jobs[j].phase == WAITING:
                    hear(g, x, b, j)


@inlined_kernel
def advance(g: Given, x: State, b: Beliefs | None) -> int:
    """Take in all that happens at the next instant.

    Gives DONE where nothing is left to happen, MORE_ROOM where attempts may be cut short for which
    there is none, else PAUSED. `looks` says whether running jobs are looked at in this instant.
    """
    at = x.at
    time = next_instant(g, x)
    if time == NEVER or at.ended == g.jobs.size:
        return DONE
    if at.cuts + at.running > x.cuts.size - 1 or at.cut_pieces + at.pieces > x.cut_pieces.size:
        return MORE_ROOM
    at.looks = 0
    if g.rules.look < NEVER and at.running > 0:
        due = (math.floor(x.at.now / g.rules.look) + 1) * g.rules.look
        if due <= time:
            time = due
            at.looks = 1
    x.at.now = time
    at.instants += 1
    if g.rules.queue == MULTIFACTOR and tick(x.standing, time):
        at.again = 1
    events(g, x, b)
    return PAUSED


@inlined_kernel
def measure_again(g: Given, x: State, b: Beliefs | None) -> int:
    """Running jobs that were measured are measured again; they are in `x.sequence`, so many."""
    now = x.at.now
    count = 0
    for m in range(x.at.running):
        j = x.running[m]
        begun = x.jobs[j].begun
        works = begun + g.rules.latency + x.jobs[j].overhead
        if begun + g.rules.measured_after <= now and works < now:
            put(x.sequence, count, 0.0, j)
            count += 1
    merge_sort(x.sequence, x.spare_rows, 0, count)
    x.at.anew = 1  # those who wait stood there
    for m in range(count):
        measure(g, x, b, x.sequence[m].item, boolean(False), boolean(False))
    return count


# -------------------------------------------------------------------------- Python code decides


@lean_kernel
def outside(g: Given, x: State, what: int, j: int, count: int, time: float) -> int:
    """One step of a simulation in which a scheduler outside decides; what happened is in the feed.

    ADVANCE to the next instant, see :func:`advance`; PLACE job j on the ``count`` pieces tried;
    PREEMPT it; ASK for a round by ``time``; LOOK_AROUND at all that run.
    What is asked for has been found possible.
    """
    x.at.fed = x.at.fed_rates = 0
    if what == ADVANCE:
        return advance(g, x, None)
    if what == PLACE:
        start(g, x, j, count)
    elif what == PREEMPT:
        interrupt(g, x, None, j, int64(WHY_PREEMPTED))
    elif what == ASK:
        set_timer(x, j, time)
    elif what == LOOK_AROUND:
        measure_again(g, x, None)
    return PAUSED
