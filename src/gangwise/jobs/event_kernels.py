"""Events of an instant, compiled, and what they do to jobs and nodes.

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
from gangwise.jobs import kernels, start_kernels
from gangwise.jobs.fit_kernels import block_top, gang_size, piece_shape, vacate
from gangwise.jobs.kernels import Inputs, State, int64
from gangwise.jobs.queue_kernels import follow, join_ageing, leave_ageing, tick, wake
from gangwise.jobs.rate_kernels import Beliefs, finished, needed, observe, released
from gangwise.jobs.run_times import ended, expect

boolean: Any = np.bool_
"""A cast where a kernel would otherwise be compiled once more, for a literal."""

DONE, PAUSED, MORE_ROOM = range(3)
WHY_FAILED, WHY_PREEMPTED = range(2)


@inner_kernel
def leave(inputs: Inputs, state: State, beliefs: Beliefs | None, j: int) -> None:
    """Job j gives its devices back, for whatever reason."""
    job, run = inputs.jobs[j], state.jobs[j]
    at = state.at
    vacate(inputs, state, j)
    kernels.count_caps(inputs, state, j, kernels.FREE_CAP)
    if inputs.caps is not None and at.aside > 0:
        wake(inputs, state, j)
    # It ended before it was expected to: what is planned may come sooner.
    if run.expect > state.at.now:
        at.holes += 1
    at.running -= 1
    # The last of the running jobs takes the place that becomes free in the list.
    moved = state.running[at.running]
    state.running[run.place] = moved
    state.jobs[moved].place = run.place
    start_kernels.change_use(inputs, state, j, -1.0)
    if beliefs is not None and inputs.rules.rates != kernels.LABELS:
        p = job.piece_from
        s = int64(job.shape)
        kind = inputs.cluster.shapes[s].dominant
        # Learners that price waiting count what comes free, node by node.
        for i in range(p, p + run.pieces):
            d = (
                inputs.cluster.demand[piece_shape(inputs.cluster, s, state.out, p, i), kind]
                / 1000.0
            )
            released(beliefs, state.out[i].node, state.out[i].tasks * d, state.at.now)
    # Free devices can let any waiting job in.
    at.again = 1


@inner_kernel
def measure(
    inputs: Inputs, state: State, beliefs: Beliefs | None, j: int, first: bool, ended: bool
) -> None:
    """The rates of job j's pieces become known: to the learner, or outside."""
    job = inputs.jobs[j]
    p = job.piece_from
    count = state.jobs[j].pieces
    # What is learned may change any decision.
    state.at.again = 1
    if beliefs is None:
        report_rates(inputs, state, j, first, ended)
    else:
        slowest, together = kernels.NEVER, start_kernels.together(inputs, state, j)
        rate, log_rate = 1.0, 0.0
        # What a node seems to give is its rate times what distance leaves of it; the learner
        # separates the two.
        for i in range(count):
            former, n = rate, state.out[p + i].node
            rate = start_kernels.rate_on(inputs, state, j, n) * together
            if rate != former:  # nodes are often alike
                log_rate = math.log(rate)
            state.rated[i], state.log_rates[i] = n, log_rate
            slowest = min(slowest, rate)
        state.looks[j].seen = slowest
        observe(
            beliefs,
            int64(job.type),
            state.rated,
            state.log_rates,
            count,
            first,
            state.at.now,
            gang_size(inputs, j),
        )


@inlined_kernel
def report_rates(inputs: Inputs, state: State, j: int, first: bool, ended: bool) -> None:
    """Enter into the feed the rates of job j's tasks, piece by piece."""
    if state.feed.size > 0:
        state.feed[state.at.fed].first = first
        state.feed[state.at.fed].ended = ended
        kernels.report(state, kernels.MEASURED, j)
        p, together = inputs.jobs[j].piece_from, start_kernels.together(inputs, state, j)
        for i in range(p, p + state.jobs[j].pieces):
            rate = start_kernels.rate_on(inputs, state, j, state.out[i].node)
            state.fed_rates[state.at.fed_rates] = rate * together
            state.at.fed_rates += 1


@inner_kernel
def finish(inputs: Inputs, state: State, beliefs: Beliefs | None, j: int) -> None:
    """Job j ends: by itself, or killed at its limit."""
    job, run = inputs.jobs[j], state.jobs[j]
    at = state.at
    now = state.at.now
    # When it would end by itself; later than now if its limit comes first.
    own = run.since + run.left / run.speed
    if inputs.rules.rates != kernels.LABELS and now > run.since:
        # Measured at its end only where the first measurement had not come yet.
        measure(
            inputs, state, beliefs, j, now <= run.begun + inputs.rules.measured_after, own <= now
        )
        if beliefs is not None:
            work_seen = (now - run.since) * state.looks[j].seen
            if own <= now:
                finished(beliefs, job.limit, work_seen, now)
            # A restart keeps a job from doing a whole limit's work: what it needs is not known.
            if beliefs.walled and (own <= now or now >= run.since + job.limit):
                needed(beliefs, int64(job.type), job.limit, work_seen, own > now)
    leave(inputs, state, beliefs, j)
    state.end[j] = now
    learn_end(state, j, own <= now and job.doomed == 0)
    if own > now or job.doomed:
        run.phase = kernels.KILLED
        at.kills += 1
        kernels.report(state, kernels.WAS_KILLED, j)
    else:
        run.phase = kernels.FINISHED
        kernels.report(state, kernels.HAS_FINISHED, j)
    let_follow(inputs, state, j)


@inlined_kernel
def learn_end(state: State, j: int, whole: bool) -> None:
    """Learn how long job j ran, which has just ended: by itself (whole), killed or withdrawn."""
    if state.times is not None and state.times.expected.size > 0:
        ended(state.times, j, state.at.now - state.jobs[j].begun, whole, state.at.now)


@inlined_kernel
def work_off(state: State, j: int) -> None:
    """What is left of running job j, as of now."""
    run = state.jobs[j]
    now = state.at.now
    # A job may still be starting: then `since` lies ahead and nothing is done yet.
    if now > run.since:
        run.left = max(run.left - (now - run.since) * run.speed, 0.0)
        run.since = now


@inlined_kernel
def let_follow(inputs: Inputs, state: State, j: int) -> None:
    """Job j has ended: those that come after it and nothing else may wait now."""
    state.at.ended += 1
    if inputs.next_from.size > 0:
        release_next(inputs, state, j)


@inner_kernel
def release_next(inputs: Inputs, state: State, j: int) -> None:
    """Release the jobs that come after job j, which wait for it no longer."""
    for i in range(inputs.next_from[j], inputs.next_from[j + 1]):
        k = inputs.next[i]
        # With several predecessors, only the last of them releases the job.
        state.wants[k] -= 1
        if state.wants[k] == 0 and state.jobs[k].phase == kernels.HELD:
            enter(inputs, state, k)


@inner_kernel
def cancel(inputs: Inputs, state: State, beliefs: Beliefs | None, j: int) -> None:
    """Job j is withdrawn, whether it was submitted, waits or runs."""
    run = state.jobs[j]
    at = state.at
    phase = run.phase
    # It has ended already.
    if phase > kernels.RUNNING:
        return
    if phase == kernels.RUNNING:
        # What was seen of its rate until now is not lost.
        if inputs.rules.rates != kernels.LABELS and state.at.now > run.since:
            early = state.at.now <= run.begun + inputs.rules.measured_after
            measure(inputs, state, beliefs, j, early, boolean(False))
        leave(inputs, state, beliefs, j)
        state.end[j] = state.at.now
        learn_end(state, j, boolean(False))
    elif phase == kernels.WAITING:
        leave_queue(inputs, state, j)
    if phase >= kernels.WAITING:
        kernels.report(state, kernels.WAS_CANCELLED, j)
    at.again = 1
    at.cancellations += 1
    run.phase = kernels.CANCELLED
    let_follow(inputs, state, j)


@inlined_kernel
def leave_queue(inputs: Inputs, state: State, j: int) -> None:
    """Job j waits no longer, without having been started."""
    job = inputs.jobs[j]
    kernels.remove(state.words, state.summary, job.rank)
    state.at.waiting -= 1
    if state.standing is not None and inputs.rules.queue == kernels.MULTIFACTOR:
        leave_ageing(state.standing, j, state.at.now)
    if inputs.caps is not None and state.at.aside > 0 and state.jobs[j].place == kernels.IN_LINE:
        follow(inputs, state, int64(job.claim))
    # A reservation given up is a hole in the plan, into which others may move.
    if state.plans is not None and inputs.rules.backfilling == kernels.CONSERVATIVE:
        state.at.holes += state.plans[j].start < kernels.NEVER
        state.plans[j].start = kernels.NEVER


@inner_kernel
def interrupt(inputs: Inputs, state: State, beliefs: Beliefs | None, j: int, why: int) -> None:
    """Job j loses its nodes and waits again; what a failure costs, a preemption does not."""
    job, run = inputs.jobs[j], state.jobs[j]
    at = state.at
    now = state.at.now
    # Of the work left, less what was done since it was last worked off.
    remaining = max(run.left - max(now - run.since, 0.0) * run.speed, 0.0)
    # A failure throws away what was done since the last checkpoint; who preempts saves it first.
    if why == WHY_FAILED:
        worked = job.work - remaining
        saved = worked
        if inputs.rules.checkpoint == kernels.NEVER:
            saved = 0.0
        elif inputs.rules.checkpoint > 0.0:
            saved = math.floor(worked / inputs.rules.checkpoint) * inputs.rules.checkpoint
        state.lost[j] += (worked - saved) * (kernels.devices_of(inputs, j) / 1000.0)
        remaining = job.work - saved
    # Time spent restoring was in vain, as far as it had come.
    # At most the whole overhead, and nothing while the start itself took effect.
    cost = min(max(now - run.begun - inputs.rules.latency, 0.0), run.overhead)
    state.lost[j] += cost * (kernels.devices_of(inputs, j) / 1000.0)
    # The attempt becomes a row of its own, with copies of its pieces: the job's own are
    # overwritten.
    i = at.cuts
    q = at.cut_pieces
    state.cuts[i].job = j
    state.cuts[i].begun = run.begun
    state.cuts[i].end = now
    state.cuts[i].why = why
    p = job.piece_from
    for m in range(run.pieces):
        n, tasks = int64(state.out[p + m].node), int64(state.out[p + m].tasks)
        kernels.put_piece(state.cut_pieces, q + m, n, tasks, int64(0))
    at.cuts = i + 1
    at.cut_pieces = q + run.pieces
    # The next cut's pieces begin behind these: hence one row more than cuts.
    state.cuts[i + 1].first = at.cut_pieces
    leave(inputs, state, beliefs, j)
    run.left = remaining
    run.overhead = inputs.rules.restart
    if state.plans is not None and inputs.rules.backfilling == kernels.CONSERVATIVE:
        state.plans[j].start = kernels.NEVER
        state.plans[j].planned = -1
    if state.looks.size > 0:
        state.looks[j].timer = -1.0
    at.requeues += why == WHY_FAILED
    at.preemptions += why == WHY_PREEMPTED
    kernels.report(state, kernels.HAS_FAILED if why == WHY_FAILED else kernels.WAS_PREEMPTED, j)
    enter(inputs, state, j)


@inlined_kernel
def note_submitted(inputs: Inputs, state: State, j: int) -> None:
    """Count the tasks of job j by their shapes, which FGD looks at."""
    s = int64(inputs.jobs[j].shape)
    if inputs.cluster.groups is None or inputs.cluster.shapes[s].groups == 0:
        state.memo[s].seen += inputs.jobs[j].tasks
        return
    low = inputs.cluster.shapes[s].groups_from
    for m in range(low, low + inputs.cluster.shapes[s].groups):
        state.memo[inputs.cluster.groups[m].shape].seen += inputs.cluster.groups[m].tasks


@inner_kernel
def enter(inputs: Inputs, state: State, j: int) -> None:
    """Job j joins those waiting."""
    job, run = inputs.jobs[j], state.jobs[j]
    at = state.at
    run.phase = kernels.WAITING
    run.place = kernels.IN_LINE
    at.origin = min(at.origin, job.submit)
    if (
        state.standing is not None and inputs.rules.queue == kernels.MULTIFACTOR
    ):  # it ages from now on
        join_ageing(state.standing, j, at.now)
        # It stands in `sequence` with an old key: the line is made anew.
        if run.attempts > 0:
            at.anew = 1
    if run.attempts == 0:
        note_submitted(inputs, state, j)
        if state.times is not None and state.times.expected.size > 0:
            state.times.expected[j] = expect(state.times, j, at.now)
    kernels.insert(state.words, state.summary, at, job.rank)
    at.waiting += 1
    # Above that many the line is made anew, so they need not be listed.
    if at.fresh < state.fresh.size:
        state.fresh[at.fresh] = job.rank
    at.fresh += 1
    kernels.report(state, kernels.ENTERED_QUEUE, j)


# --------------------------------------------------------------------------------------- events


@inlined_kernel
def next_instant(inputs: Inputs, state: State) -> float:
    """Time of the next event, inf for none."""
    at = state.at
    time = kernels.NEVER
    # Void entries on top of the heaps are dropped here, where they would be in the way.
    while at.ends > 0:
        j = state.ends[0].item
        if state.jobs[j].phase == kernels.RUNNING and state.jobs[j].finish == state.ends[0].time:
            time = state.ends[0].time
            break
        at.ends = kernels.pop(state.ends, at.ends)
    while at.timers > 0:
        if start_kernels.timer_holds(state, int64(0)):
            time = min(time, state.timers[0].time)
            break
        at.timers = kernels.pop(state.timers, at.timers)
    # Jobs that were withdrawn before their submission never come.
    while at.next_job < inputs.jobs.size and state.jobs[at.next_job].phase != kernels.UNSUBMITTED:
        at.next_job += 1
    if at.next_job < inputs.jobs.size:
        time = min(time, inputs.jobs[at.next_job].submit)
    if at.next_event < inputs.events.size:
        time = min(time, inputs.events[at.next_event].time)
    return time


@inner_kernel
def node_event(
    inputs: Inputs, state: State, beliefs: Beliefs | None, n: int, kind: int, value: float
) -> None:
    """A node fails, drains, comes back, or changes its rate by a factor (value).

    What is free on a node that drains is what is free less all it has: as jobs there end, nothing.
    """
    at = state.at
    at.again = 1
    if kind in (kernels.DOWN, kernels.FACTOR):
        if kind == kernels.FACTOR:
            state.factor[n] = value
            state.log_factor[n] = math.log(value)
        count = 0
        # Whom it concerns is listed first, as an interruption moves the list of running jobs.
        for m in range(at.running):
            j = state.running[m]
            p = inputs.jobs[j].piece_from
            for i in range(p, p + state.jobs[j].pieces):
                if state.out[i].node == n:
                    kernels.put(state.sequence, count, 0.0, j)
                    count += 1
                    break
        # In the order of their numbers, so that it does not matter where they stood in the list.
        kernels.merge_sort(state.sequence, state.spare_rows, 0, count)
        at.anew = 1  # those who wait stood there
        for m in range(count):
            if kind == kernels.DOWN:
                interrupt(inputs, state, beliefs, state.sequence[m].item, int64(WHY_FAILED))
            else:
                change_speed(inputs, state, state.sequence[m].item)
        if kind == kernels.FACTOR:
            return
    sign = 1 if kind == kernels.UP else -1
    # Nothing changes for a node that is up and comes up, or drains while it is down.
    if state.up[n] == (kind == kernels.UP):
        return
    state.up[n] = kind == kernels.UP
    kernels.report(
        state,
        kernels.NODE_CAME
        if kind == kernels.UP
        else kernels.NODE_WENT
        if kind == kernels.DOWN
        else kernels.NODE_DRAINS,
        n,
    )
    # What failed before may fit now, and promises are void: nodes came or went.
    at.epoch += 1
    at.change += 1
    at.void = 1
    room = state.room
    # A node that is not up has its capacity less free, so less than nothing where jobs still run;
    # such amounts do not count.
    for k in range(room.free.shape[1]):
        room.free[n, k] += sign * inputs.cluster.capacity[n, k]
        # The total is added up anew, since amounts below 0 do not count in it.
        state.total[k] = 0
        for m in range(room.free.shape[0]):
            state.total[k] += max(room.free[m, k], 0)
    if inputs.cluster.devices is not None:
        for i in range(inputs.cluster.devices[n]):
            room.device[n, i] += sign * 1000
    block_top(room, n // kernels.BLOCK)


@inner_kernel
def change_speed(inputs: Inputs, state: State, j: int) -> None:
    """A node of job j runs at another rate from now on."""
    run = state.jobs[j]
    speed = start_kernels.speed_of(inputs, state, j)
    # Another piece may be slower still.
    if speed == run.speed:
        return
    work_off(state, j)
    run.speed = speed
    start_kernels.schedule_end(inputs, state, j)


@inlined_kernel
def events(inputs: Inputs, state: State, beliefs: Beliefs | None) -> None:
    """Take in all that happens now: ends, then nodes, then submissions, then measurements."""
    at = state.at
    now = state.at.now
    # Ends first: what they free is there for everyone who comes now.
    while at.ends > 0 and state.ends[0].time <= now:
        j = state.ends[0].item
        time = state.ends[0].time
        at.ends = kernels.pop(state.ends, at.ends)
        if state.jobs[j].phase == kernels.RUNNING and state.jobs[j].finish == time:
            finish(inputs, state, beliefs, j)
    while at.next_event < inputs.events.size and inputs.events[at.next_event].time <= now:
        e = at.next_event
        at.next_event += 1
        if inputs.events[e].kind == kernels.CANCEL:
            cancel(inputs, state, beliefs, inputs.events[e].item)
        # Which jobs may start has changed, though no device has.
        elif inputs.events[e].kind == kernels.HOURS:
            at.again = 1
        else:
            node_event(
                inputs,
                state,
                beliefs,
                inputs.events[e].item,
                inputs.events[e].kind,
                inputs.events[e].value,
            )
    # Then submissions, in the order of the log.
    # Only those of this instant are told to the learner below.
    fresh = at.next_job
    while at.next_job < inputs.jobs.size and inputs.jobs[at.next_job].submit <= now:
        j = at.next_job
        at.next_job += 1
        if state.jobs[j].phase != kernels.UNSUBMITTED:
            continue
        if state.wants.size > 0 and state.wants[j] > 0:
            state.jobs[j].phase = kernels.HELD
        else:
            enter(inputs, state, j)
    while at.timers > 0 and state.timers[0].time <= now:
        j = state.timers[0].item
        time = state.timers[0].time
        at.timers = kernels.pop(state.timers, at.timers)
        # The timer was set anew since.
        if state.looks[j].timer != time:
            continue
        if state.jobs[j].phase == kernels.RUNNING:
            measure(inputs, state, beliefs, j, boolean(True), boolean(False))
        elif state.jobs[j].phase == kernels.WAITING:
            at.again = 1
    # After all of them have joined, in the order of the log, so prices do not depend on events.
    if beliefs is not None and inputs.rules.waits and inputs.rules.rates != kernels.LABELS:
        for j in range(fresh, at.next_job):
            if state.jobs[j].phase == kernels.WAITING:
                start_kernels.notify_submitted(inputs, state, beliefs, j)


@inlined_kernel
def advance(inputs: Inputs, state: State, beliefs: Beliefs | None) -> int:
    """Take in all that happens at the next instant.

    Gives DONE where nothing is left to happen, MORE_ROOM where attempts may be cut short for which
    there is none, else PAUSED. `looks` says whether running jobs are looked at in this instant.
    """
    at = state.at
    time = next_instant(inputs, state)
    # Running jobs have an end ahead, so nothing runs any more either.
    if time == kernels.NEVER or at.ended == inputs.jobs.size:
        return DONE
    if (
        at.cuts + at.running > state.cuts.size - 1
        or at.cut_pieces + at.pieces > state.cut_pieces.size
    ):
        return MORE_ROOM
    at.looks = 0
    # Between events all that run are looked at, at whole multiples of a period.
    if inputs.rules.look < kernels.NEVER and at.running > 0:
        # At multiples of the period, not a period after the last look: engines agree.
        due = (math.floor(state.at.now / inputs.rules.look) + 1) * inputs.rules.look
        if due <= time:
            time = due
            at.looks = 1
    state.at.now = time
    at.instants += 1
    if (
        state.standing is not None
        and inputs.rules.queue == kernels.MULTIFACTOR
        and tick(state.standing, time)
    ):
        at.again = 1
    events(inputs, state, beliefs)
    return PAUSED


@inlined_kernel
def measure_again(inputs: Inputs, state: State, beliefs: Beliefs | None) -> int:
    """Running jobs that were measured are measured again; they are in `state.sequence`, so many."""
    now = state.at.now
    count = 0
    for m in range(state.at.running):
        j = state.running[m]
        begun = state.jobs[j].begun
        works = begun + inputs.rules.latency + state.jobs[j].overhead
        # Only those whose first measurement is behind them, and which work.
        if begun + inputs.rules.measured_after <= now and works < now:
            kernels.put(state.sequence, count, 0.0, j)
            count += 1
    kernels.merge_sort(state.sequence, state.spare_rows, 0, count)
    state.at.anew = 1  # those who wait stood there
    for m in range(count):
        measure(inputs, state, beliefs, state.sequence[m].item, boolean(False), boolean(False))
    return count


# -------------------------------------------------------------------------- Python code decides


@lean_kernel
def outside(inputs: Inputs, state: State, what: int, j: int, count: int, time: float) -> int:
    """One step of a simulation in which a scheduler outside decides; what happened is in the feed.

    ADVANCE to the next instant, see :func:`advance`; PLACE job j on the ``count`` pieces tried;
    PREEMPT it; ASK for a round by ``time``; LOOK_AROUND at all that run.
    What is asked for has been found possible.
    """
    state.at.fed = state.at.fed_rates = 0
    if what == kernels.ADVANCE:
        return advance(inputs, state, None)
    if what == kernels.PLACE:
        start_kernels.start(inputs, state, j, count)
    elif what == kernels.PREEMPT:
        interrupt(inputs, state, None, j, int64(WHY_PREEMPTED))
    elif what == kernels.ASK:
        start_kernels.set_timer(state, j, time)
    elif what == kernels.LOOK_AROUND:
        measure_again(inputs, state, None)
    return PAUSED
