"""Slurm's passes, compiled: the main loop after every event, and backfilling with its period.

What the two do is said in :mod:`gangwise.sites.slurm_passes`. A pass of backfilling reserves nodes
only to see who may start now, and its reservations are forgotten. So, where nobody is preempted,
it goes no further than to the last job that fits now beside what is reserved so far.
Within a pass less and less is free: a job is not tried before the time until which one of its shape
that asked for no more found too little room, and the last that fits now is tried again only if a
new reservation begins before it would end.

Jobs of groups are Slurm's heterogeneous jobs, which backfilling alone starts, at the end of a pass:
each group finds its time and is reserved for as a job of its own, see :func:`plan_groups`.

Books are looked at as they will be if running jobs end when expected: now, and at the ends of
windows of time. A node has a *level* for now, and one for each window in which something ends on
it; how many tasks of a shape fit at each is counted once for all jobs of that shape. Reservations
are kept as Slurm keeps them: from each *edge* of time to the next the same nodes are reserved,
which are bits. Slurm takes running jobs away in groups, and tries a job after each: those on nodes
that it may use, see :func:`end_of_group`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gangwise.core.arrays import Ints
from gangwise.core.jit import inlined_kernel, inner_kernel, lean_kernel, referenced
from gangwise.jobs import kernels, queue_kernels
from gangwise.jobs.conservative_kernels import truly_free
from gangwise.jobs.event_kernels import DONE, MORE_ROOM, PAUSED, advance, boolean
from gangwise.jobs.fit_kernels import copy_node, copy_room, fits, take_piece, tell_apart
from gangwise.jobs.kernels import Inputs, Rows, State, int64
from gangwise.jobs.start_kernels import put_in_order, set_timer, start, work_done
from gangwise.sites import preemption
from gangwise.sites import slurm_places as pools
from gangwise.sites.slurm_limits import add_up, begin_minutes, fading, over_minutes
from gangwise.sites.slurm_places import (
    ANY,
    GROUPS,
    FutureWindows,
    PassState,
    arrange,
    choose,
    compared,
    copy_pieces,
    count_room,
    lacks,
)

__all__ = ["DONE", "MORE_ROOM", "play"]

FIRST_WINDOW = 30.0
"""Seconds in which the ends of running jobs count as one; groups end at whole multiples."""
WHOLE_LINE = 60.0
"""Seconds after which the main loop looks at all that wait, not at the first so many."""
OWNED = 2**20
"""Bit of nodes that are shut as another user has jobs there; below it reservations are counted."""
OTHERS = 2**21
"""Bit of nodes that are shut as another group of the job has them."""
FINE = 64
"""So many windows are that long; each of those behind is twice as long as the one before."""


# ------------------------------------------------------------------------- the clock of backfilling


@inlined_kernel
def elapse(clock: Any, interval: float, now: float) -> None:
    """Count a backfill pass as done once its time has passed."""
    if clock.due and clock.passed + interval < now:
        clock.passed += interval
        clock.due = 0


@inner_kernel
def happened(clock: Any, interval: float, time: float) -> None:
    """Something happened then, and nobody waited, or it did as the last round decided.

    Backfilling comes ``interval`` seconds after it last came, or later, as soon as anything has
    changed.
    """
    elapse(clock, interval, time)
    # Due again once the interval is over. If that was so already, backfilling comes with this very
    # event, and the next interval counts from here.
    clock.due = time < clock.passed + interval
    if not clock.due:
        clock.passed = time


@inlined_kernel
def overdue(state: State, known: Rows) -> bool:
    """Whether someone runs past his limit, who may free nodes any time."""
    for i in range(state.at.running):
        j = state.running[i]
        if state.jobs[j].expect - known[j].ran <= state.at.now:
            return True
    return False


@inlined_kernel
def unlike_before(inputs: Inputs, state: State, passes: PassState) -> bool:
    """Backfilling may find what it did not when it last came, though nothing has happened since.

    Someone runs past his limit, who may free nodes any time; or the line is in another order.
    """
    if passes.gangs is None and overdue(state, passes.known):
        return True
    # The line that backfilling saw is compared with the present one job by job: the first that
    # differs decides.
    i = 0
    for m in range(passes.clock.lined if inputs.rules.keyed else 0):
        j = state.sequence[m].item
        if state.jobs[j].phase == kernels.WAITING:
            if i >= passes.clock.before or passes.before[i] != j:
                return True
            i += 1
    return bool(i != passes.clock.before)


# --------------------------------------------------------------------------------------- the line


@inner_kernel
def line_up(inputs: Inputs, state: State, passes: PassState, most: int) -> int:
    """The first so many who wait, but those preempted in this round, in `front`; their number."""
    at, keyed = state.at, inputs.rules.keyed
    count = int64(0)
    rank = i = int64(0)
    if not keyed:
        rank = kernels.smallest(state.words, state.summary, at)
    while count < most:
        # Keys that change are sorted into `sequence` in every round; an order that stays is a set
        # of ranks.
        if keyed:
            if i >= passes.clock.lined:
                break
            j = state.sequence[i].item
            i += 1
        else:
            if rank < 0:
                break
            j = inputs.by_rank[rank]
            rank = kernels.following(state.words, state.summary, at, rank + 1)
        # A job that this round has just preempted has to wait for the next one.
        if state.jobs[j].phase == kernels.WAITING and passes.known[j].mark != passes.clock.round:
            passes.front[count] = j
            count += 1
    return int(count)


@inner_kernel
def may_start(inputs: Inputs, state: State, passes: PassState, j: int) -> bool:
    """Whether neither caps nor closed hours hold job j, nor that it was preempted."""
    now = state.at.now
    barred = (
        passes.known[j].until > now
        or passes.known[j].asleep
        or state.jobs[j].phase != kernels.WAITING
    )
    # A job that names a reservation runs inside its window only.
    own = passes.known[j].reservation
    if own >= 0:
        barred = barred or passes.reserved[own].begin > now or passes.reserved[own].end <= now
    barred = barred or queue_kernels.capped(inputs, state, j)
    if passes.minutes is not None and not barred:
        barred = over_minutes(inputs, passes.minutes, j)
    return not (barred or kernels.opens(inputs, j, now) > now)


@inner_kernel
def cover_owned(inputs: Inputs, state: State, passes: PassState, j: int) -> bool:
    """Cover nodes with a job of another user, where that or job j is for its user alone."""
    covers, owned = False, passes.ahead.owned
    owned[:] = 0
    for i in range(state.at.running if passes.settings.by_user else 0):
        o = state.running[i]
        apart = passes.known[o].own + passes.known[j].own > 0
        if apart and passes.group[0, o] != passes.group[0, j]:
            first = inputs.jobs[o].piece_from
            for m in range(first, first + state.jobs[o].pieces):
                owned[state.out[m].node >> 6] |= int64(1) << (state.out[m].node & 63)
                covers = True
    return covers


@inner_kernel
def keep_off(inputs: Inputs, state: State, passes: PassState, j: int, sign: int) -> bool:
    """Shut nodes that others have, or the site reserves, while job j would run; or no longer (−1).

    A job that names a reservation has its nodes alone.
    """
    own, shuts = passes.known[j].reservation, False
    if passes.settings.by_user and sign > 0:
        shuts = cover_owned(inputs, state, passes, j)
    for n in range(passes.shut.size if passes.settings.by_user else 0):
        passes.shut[n] += OWNED * sign if has(passes.ahead.owned, n) else 0
    for r in range(passes.clock.site):
        booking = passes.reserved[r]
        mine = r == own
        # A reservation that begins after the job's limit, or is over, is in nobody's way.
        if not mine and (
            booking.begin >= state.at.now + inputs.jobs[j].limit or booking.end <= state.at.now
        ):
            continue
        for n in range(passes.shut.size):
            if has(passes.booked[r], n) and mine:
                passes.on[n] = True
            elif has(passes.booked[r], n):
                passes.shut[n] += 2 * sign
                shuts = True
    # All nodes but those of its own reservation are shut; the marks in `on` are taken back on the
    # way.
    if own >= 0:
        shuts = True
        for n in range(passes.shut.size):
            passes.shut[n] += 0 if passes.on[n] else 2 * sign
            passes.on[n] = False
    return shuts


@inlined_kernel
def known_too_large(inputs: Inputs, state: State, j: int) -> bool:
    """Whether no fewer tasks of its shape fitted, and nothing was given back since."""
    memo = state.memo[inputs.jobs[j].shape]
    return bool(memo.fail_epoch == state.at.epoch and inputs.jobs[j].tasks >= memo.fail_tasks)


@inlined_kernel
def note_too_large(inputs: Inputs, state: State, j: int) -> None:
    """All nodes together do not take job j."""
    state.memo[inputs.jobs[j].shape].fail_epoch = state.at.epoch
    state.memo[inputs.jobs[j].shape].fail_tasks = inputs.jobs[j].tasks


@inlined_kernel
def fits_now(inputs: Inputs, state: State, passes: PassState, j: int) -> bool:
    """Whether nodes that are up take all tasks of job j now, each looked at by itself."""
    if known_too_large(inputs, state, j):
        return False
    state.at.tests += 1
    s, tasks = int64(inputs.jobs[j].shape), int64(inputs.jobs[j].tasks)
    if count_room(inputs.cluster, passes.places, state.room, s, tasks, passes.none) >= tasks:
        return True
    note_too_large(inputs, state, j)
    return False


@inner_kernel
def begin(inputs: Inputs, state: State, passes: PassState, j: int, pieces: int) -> None:
    """Job j starts on the pieces tried, whose devices are told apart here."""
    if passes.known[j].rows > 1:
        j = pools.become_one(inputs, state, passes, j)
    shape, resumed = inputs.cluster.shapes[inputs.jobs[j].shape], passes.known[j].asleep
    if passes.gangs is not None and not resumed:
        preemption.find_cores(inputs, state, passes, j, pieces)
    # Places are chosen by numbers of devices; which devices of a node these are is decided here.
    alike = inputs.cluster.groups is None or shape.groups == 0  # groups come with their devices
    if (
        inputs.cluster.devices is not None
        and not resumed
        and alike
        and shape.fraction + shape.whole > 0
    ):
        s = int64(inputs.jobs[j].shape)
        pieces = tell_apart(inputs.cluster, state, passes.room, s, pieces, int64(kernels.FIRST_FIT))
    start(inputs, state, j, pieces)
    if passes.minutes is not None:
        begin_minutes(inputs, passes.minutes, j)
    clock = passes.clock
    clock.events += 1
    clock.started += 1
    if passes.gangs is not None:
        passes.known[j].asleep = 0
    if passes.gangs is not None and not resumed:
        preemption.keep_cores(inputs, state, passes, j)
        preemption.take_pieces(inputs, state, passes.room, j, int64(kernels.TAKE))
        preemption.show_cores(inputs.cluster, passes.gangs, state.up, passes.room, int64(0))
    if passes.gangs is None or not resumed:
        passes.known[j].turn = clock.started
    if passes.acts.size > 0:
        kernels.put(passes.acts, clock.acts, float(preemption.STARTED), j)
        clock.acts += 1


@inner_kernel
def resume(inputs: Inputs, state: State, passes: PassState, count: int) -> None:
    """Those who were suspended go on, the first in line first, once their nodes are free.

    Of gangs: the highest tier first, once nobody of a tier above runs on their cores; those of
    tiers below that run there now are suspended.
    """
    if passes.gangs is not None:
        count = preemption.suspended_in_turn(state, passes)
    for i in range(count):
        j = passes.turns[i].item if passes.gangs is not None else passes.front[i]
        if not passes.known[j].asleep or queue_kernels.capped(inputs, state, j):
            continue
        # A suspended job goes on where it was: its old pieces are tried again, and no others.
        able, pieces = True, int64(state.jobs[j].pieces)
        copy_pieces(state.out, int64(inputs.jobs[j].piece_from), state.tried, int64(0), pieces)
        for m in range(pieces):
            able = able and state.up[state.tried[m].node]
        if passes.gangs is not None:
            able = able and preemption.undisturbed(inputs, state, passes, j)
        else:
            able = able and truly_free(inputs, state, j, pieces)
        if able and passes.gangs is not None:
            preemption.find_below(inputs, state, passes, j, pieces)
            preemption.give_way(inputs, state, passes, j)
        if able:
            begin(inputs, state, passes, j, pieces)


@inlined_kernel
def holds_no_nodes(inputs: Inputs, state: State, passes: PassState, j: int) -> bool:
    """Job j has not waited long enough, or its priority is too low, to keep nodes from others."""
    if state.at.now - inputs.jobs[j].submit < passes.settings.least_wait:
        return True
    if (
        state.standing is None
        or passes.settings.least_priority <= 0.0
        or inputs.rules.queue != kernels.MULTIFACTOR
    ):
        return False
    return bool(
        -queue_kernels.priority_key(state.standing, j) % queue_kernels.TIER
        < passes.settings.least_priority
    )


@inlined_kernel
def fits_empty(inputs: Inputs, j: int, n: int) -> int:
    """How many tasks of job j node n would take if nothing ran on it."""
    cluster, shape = inputs.cluster, inputs.cluster.shapes[inputs.jobs[j].shape]
    count = int64(min(shape.per_node, inputs.jobs[j].tasks))
    for k in range(cluster.capacity.shape[1]):
        wanted = cluster.demand[inputs.jobs[j].shape, k]
        if wanted > 0:
            count = min(count, cluster.capacity[n, k] // wanted)
    if cluster.devices is not None and shape.fraction > 0:
        count = min(count, cluster.devices[n] * (1000 // shape.fraction))
    elif cluster.devices is not None and shape.whole > 0:
        count = min(count, cluster.devices[n] // shape.whole)
    return int(count)


@inner_kernel
def nowhere(inputs: Inputs, state: State, passes: PassState, j: int) -> bool:
    """Job j would not fit on the nodes that are left to it even if nothing ran on them.

    Such a job keeps nobody behind it waiting: Slurm says that its nodes are not available, and
    passes it over. If another has one of those nodes alone, or job j wants them so, Slurm says that
    they are busy.
    """
    allowed = inputs.cluster.allowed[inputs.cluster.shapes[inputs.jobs[j].shape].constraint]
    tasks = int64(0)
    for i in range(state.at.running):
        o = state.running[i]
        first = inputs.jobs[o].piece_from
        for m in range(first, first + state.jobs[o].pieces * passes.known[o].alone):
            n = state.out[m].node
            if allowed[n] and passes.shut[n] == 0:
                return False
    for n in range(passes.shut.size):
        if allowed[n] and state.up[n] and passes.shut[n] == 0:
            if passes.known[j].alone:
                return False
            tasks += fits_empty(inputs, j, int64(n))
    return bool(tasks < inputs.jobs[j].tasks)


@inlined_kernel
def too_few_open(inputs: Inputs, state: State, passes: PassState, j: int) -> bool:
    """Fewer nodes of its pool are left than job j wants."""
    fewest, pool = passes.known[j].fewest, inputs.cluster.shapes[inputs.jobs[j].shape].pool
    count = int64(0)
    for n in range(passes.shut.size if fewest > 1 else 0):
        count += int64(passes.pools[pool, n] and state.up[n] and passes.shut[n] == 0)
    return bool(fewest > 1 and count < fewest)


@inlined_kernel
def shut_nodes(inputs: Inputs, passes: PassState, j: int) -> int:
    """Shut the nodes that job j names, else those of its pool; how many pools have others."""
    shape = inputs.cluster.shapes[inputs.jobs[j].shape]
    for n in range(passes.shut.size):
        if passes.known[j].named:
            passes.shut[n] |= inputs.cluster.allowed[shape.constraint, n]
        else:
            passes.shut[n] |= passes.pools[shape.pool, n]
    count = 0
    for q in range(passes.open.size):
        passes.open[q] = 0
        for n in range(passes.shut.size):
            if passes.pools[q, n] and passes.shut[n] == 0:
                passes.open[q] = 1
                count += 1
                break
    return count


@inlined_kernel
def groups_of(inputs: Inputs, j: int) -> int:
    """How many groups of unlike tasks job j has; 0 where its tasks are alike."""
    if inputs.cluster.groups is None:
        return 0
    return int(inputs.cluster.shapes[inputs.jobs[j].shape].groups)


@inlined_kernel
def stand_for(inputs: Inputs, j: int, s: int, i: int) -> None:
    """Let job j of shape s be a job of its group i alone, or itself again (−1)."""
    inputs.jobs[j].shape, inputs.jobs[j].tasks = s, 1
    if i >= 0:
        group = inputs.cluster.groups[inputs.cluster.shapes[s].groups_from + i]
        inputs.jobs[j].shape, inputs.jobs[j].tasks = group.shape, group.tasks


@inlined_kernel
def in_turn(inputs: Inputs, passes: PassState, s: int, i: int) -> int:
    """The group of shape s that Slurm looks at as the i-th."""
    return int(passes.places.turn[inputs.cluster.shapes[s].groups_from + i])


@inner_kernel
def shut_nodes_of_groups(inputs: Inputs, state: State, passes: PassState, j: int) -> bool:
    """The main loop does not start job j, and nobody passes it; whether any pool is open still."""
    s, count = int64(inputs.jobs[j].shape), int64(1)
    for i in range(inputs.cluster.shapes[s].groups):
        stand_for(inputs, j, s, int64(in_turn(inputs, passes, s, int64(i))))
        pool = inputs.cluster.shapes[inputs.jobs[j].shape].pool
        if passes.open[pool] > 0 and not holds_no_nodes(inputs, state, passes, j):
            count = int64(shut_nodes(inputs, passes, j))
    stand_for(inputs, j, s, int64(-1))
    return bool(count > 0)


@inlined_kernel
def main_loop(inputs: Inputs, state: State, passes: PassState, count: int) -> None:
    """Start in order; where one cannot, the nodes of its partition take no other."""
    shut = passes.shut
    for n in range(shut.size):
        shut[n] = 0
    all_open = True  # no nodes are shut
    # All pools are open; the loop shuts the nodes of each pool of which a job cannot start.
    for q in range(passes.open.size):
        passes.open[q] = 1
        passes.of_pool[q] = 0
    started, turns = 0, 2 if passes.clock.site > 0 else 1
    for i in range(turns * count):  # those of a reservation are first, whatever their priority
        j = passes.front[i % count]
        if turns == 2 and (passes.known[j].reservation >= 0) != (i < count):
            continue
        pool = inputs.cluster.shapes[inputs.jobs[j].shape].pool
        if passes.settings.part_depth > 0:
            passes.of_pool[pool] += 1
            if passes.of_pool[pool] > passes.settings.part_depth:
                continue
        if inputs.cluster.groups is not None and groups_of(inputs, j) > 0:
            if may_start(inputs, state, passes, j) and passes.known[j].reservation < 0:
                all_open = False
                if not shut_nodes_of_groups(inputs, state, passes, j):
                    return
            continue
        # No node of the pool is left that an earlier job does not wait for.
        if passes.open[pool] == 0 or not may_start(inputs, state, passes, j):
            continue
        few, pieces = too_few_open(inputs, state, passes, j), int64(0)
        apart = keep_off(inputs, state, passes, j, 1)
        if not few and (passes.gangs is not None or not known_too_large(inputs, state, j)):
            s, tasks = int64(inputs.jobs[j].shape), int64(inputs.jobs[j].tasks)
            pieces = arrange(inputs.cluster, passes.places, passes.room, s, tasks, shut)
            # Only a failure on all nodes, by numbers alone, says the same of every job that asks
            # for no less.
            if pieces == 0 and all_open and not apart and passes.places.how[s] == ANY:
                note_too_large(inputs, state, j)
        if passes.above is not None and pieces == 0 and not few:
            pieces = preemption.make_room(inputs, state, passes, j)
            if pieces > 0:
                preemption.give_way(inputs, state, passes, j)
        # Asked while the nodes of reservations are still shut for this job.
        passed_over = pieces == 0 and not few and nowhere(inputs, state, passes, j)
        keep_off(inputs, state, passes, j, -1)
        if pieces > 0:
            begin(inputs, state, passes, j, pieces)
            started += 1
            if started == passes.settings.main_starts:
                return
            continue
        if (
            passes.known[j].reservation >= 0
            or passed_over
            or (not few and holds_no_nodes(inputs, state, passes, j))
        ):
            continue
        # The job waits for its nodes: nothing behind it may take them. Without any open pool, the
        # loop is over.
        if shut_nodes(inputs, passes, j) == 0:
            return
        all_open = False


# ------------------------------------------------------------------------------------ backfilling


@inlined_kernel
def look_ahead(inputs: Inputs, state: State, passes: PassState, rank: float) -> None:
    """What will be free on each node at the ends of windows, in `passes.ahead`.

    Of gangs: as a job of a rank sees it.
    """
    clock, ahead, now, order = passes.clock, passes.ahead, state.at.now, passes.leaving
    # Level 0 is now. Each further level of a node is the one before it plus what jobs of a window
    # give back there.
    at_once = referenced(kernels.room_of(ahead.room, int64(0)))
    copy_room(passes.room, at_once)
    if passes.gangs is not None:
        entered = int64(preemption.release_ahead(inputs, state, passes, rank))
        preemption.show_cores(inputs.cluster, passes.gangs, state.up, at_once, int64(1))
    else:
        put_in_order(state)
        entered = int64(state.at.entered)
    ahead.levels[:] = 1
    ahead.counted[:] = ahead.nearest[:] = -1
    ahead.times[0] = now
    clock.bounds = 0
    clock.rank = rank
    clock.ending = entered
    epoch, not_yet = passes.settings.epoch, np.nextafter(now, np.inf)  # who is past its limit
    count, i, length = int64(1), int64(0), FIRST_WINDOW
    while i < entered:
        # Windows end at whole multiples of their length on Slurm's clock, not counted from now, so
        # that they are the same in every pass.
        until = np.ceil((max(order[i].time, now) + epoch) / length) * length - epoch
        while i < entered and max(order[i].time, now) <= until:
            give_back_then(inputs, state, passes, i, count)
            i += 1
        # A job past its limit is expected to end at once, but not at this instant.
        ahead.times[count] = max(order[i - 1].time, not_yet)
        count += 1
        # Far ends need no precision: lengths double, so that the number of windows grows with the
        # logarithm of the horizon.
        length *= 2.0 if count > FINE else 1.0
    clock.windows = count


@inlined_kernel
def give_back_then(inputs: Inputs, state: State, passes: PassState, place: int, w: int) -> None:
    """Who ends at a place of `leaving` gives back in window w, behind all in windows before."""
    ahead, j = passes.ahead, passes.leaving[place].item
    s, q = int64(inputs.jobs[j].shape), int64(inputs.jobs[j].piece_from)
    for i in range(q, q + state.jobs[j].pieces):
        n = int64(state.out[i].node)
        if ahead.nearest[n] < 0:
            ahead.nearest[n] = i
        else:
            ahead.following[ahead.latest[n]] = i
        ahead.latest[n], ahead.place[i], ahead.following[i] = i, place, -1
        top = int64(ahead.levels[n] - 1)
        then = referenced(kernels.room_of(ahead.room, top + int64(ahead.window[n, top] < w)))
        if ahead.window[n, top] < w:
            copy_node(referenced(kernels.room_of(ahead.room, top)), then, n)
            ahead.window[n, top + 1] = w
            ahead.levels[n] += 1
        take_piece(inputs.cluster, then, s, state.out, q, i, kernels.GIVE_BACK)
        if passes.gangs is not None:
            end = int64(i + 1)
            preemption.hold(passes.gangs, state.out, int64(i), end, int64(1), int64(-1))
            preemption.show_cores_of(inputs.cluster, passes.gangs, state.up, then, n, int64(1))


@inner_kernel
def count_ahead(inputs: Inputs, state: State, passes: PassState, s: int) -> int:
    """How many tasks of shape s each node takes at each level: their place in `ahead.fits`."""
    ahead, last = passes.ahead, int64(passes.clock.windows)
    slot = s % ahead.counted.size
    if ahead.counted[slot] == s:
        return int(slot)
    ahead.counted[slot], ahead.barred[slot, :], ahead.opens[slot, :last, :] = s, -1, 0
    limit, constraint = inputs.cluster.shapes[s].per_node, inputs.cluster.shapes[s].constraint
    for n in range(ahead.levels.size):
        if not (state.up[n] and inputs.cluster.allowed[constraint, n]):
            continue
        bit, fit = int64(1) << (n & 63), int64(0)
        ahead.barred[slot, n >> 6] &= ~bit
        for i in range(ahead.levels[n]):
            before = fit
            # More and more is free: what takes all that it may does so from then on.
            if fit < limit and not lacks(passes.places, ahead.room.free[i], s, int64(n)):
                fit = fits(inputs.cluster, referenced(kernels.room_of(ahead.room, i)), s, n)
            if before == 0 and fit > 0:
                ahead.opens[slot, ahead.window[n, i], n >> 6] |= bit
            ahead.fits[slot, n, i] = fit
    for w in range(1, last):  # a node that is open stays so
        add(ahead.opens[slot, w - 1], ahead.opens[slot, w], boolean(True))
    return int(slot)


@inlined_kernel
def add(nodes: Ints, to: Ints, kept: bool) -> None:
    """Put nodes, as bits, among others, or in their place."""
    for b in range(to.size):
        to[b] = nodes[b] | (to[b] if kept else 0)


@inlined_kernel
def has(nodes: Ints, n: int) -> bool:
    """Whether node n is among nodes that are bits."""
    return bool(nodes[n >> 6] >> (n & 63) & 1)


@inlined_kernel
def level_of(ahead: FutureWindows, n: int, w: int) -> int:
    """The level of node n in window w."""
    i = ahead.levels[n] - 1
    while ahead.window[n, i] > w:
        i -= 1
    return int(i)


@inlined_kernel
def room_then(ahead: FutureWindows, slot: int, tasks: int, w: int) -> bool:
    """Whether so many tasks fit in window w on nodes that are not covered."""
    for b in range(ahead.cover.size):
        rest = ahead.opens[slot, w, b] & ~ahead.cover[b]
        while rest != 0:
            n = int64((b << 6) + kernels.trailing_zeros(rest))
            tasks -= ahead.fits[slot, n, level_of(ahead, n, w)]
            if tasks <= 0:
                return True
            rest &= rest - 1
    return False


@inner_kernel
def ends_on_free(passes: PassState, later: float) -> int:
    """Let `ahead.ends` be those of jobs on nodes that are not covered; their number.

    Up to the first that is later than a time: of what is behind it, only that it is later counts.
    """
    ahead, order, count = passes.ahead, passes.leaving, int64(0)
    words, past = (passes.clock.ending + 63) >> 6, behind(order, int64(passes.clock.ending), later)
    ahead.marked[:words] = 0
    for b in range(ahead.cover.size):
        rest = ~ahead.cover[b]
        while rest != 0:
            i = ahead.nearest[(b << 6) + kernels.trailing_zeros(rest)]
            while i >= 0:
                ahead.marked[ahead.place[i] >> 6] |= int64(1) << (ahead.place[i] & 63)
                i = ahead.following[i] if ahead.place[i] < past else -1
            rest &= rest - 1
    for b in range(words):
        rest = ahead.marked[b]
        while rest != 0:
            place = (b << 6) + kernels.trailing_zeros(rest)
            kernels.put(ahead.ends, count, order[place].time, order[place].item)
            count += 1
            if place >= past:
                return int(count)
            rest &= rest - 1
    return int(count)


@inlined_kernel
def first_window(ahead: FutureWindows, slot: int, tasks: int, windows: int) -> int:
    """The first of so many windows in which so many tasks fit on nodes that are not covered.

    Their number where the tasks fit in none.
    """
    low, high = int64(0), windows  # what is free grows from window to window
    while low < high:
        middle = (low + high) >> 1
        if room_then(ahead, slot, tasks, middle):
            high = middle
        else:
            low = middle + 1
    return int(low)


@inlined_kernel
def ends_behind(
    inputs: Inputs, state: State, passes: PassState, w: int, time: float, count: int
) -> bool:
    """Let `ahead.recent` be nodes on which a job ends in window w, but later than this time."""
    ends, recent = passes.ahead.ends, passes.ahead.recent
    recent[:] = 0
    begin = int64(behind(ends, count, time))
    past = max(begin, behind(ends, count, passes.ahead.times[w]))
    for i in range(begin, past):
        o = ends[i].item
        for m in range(inputs.jobs[o].piece_from, inputs.jobs[o].piece_from + state.jobs[o].pieces):
            recent[state.out[m].node >> 6] |= int64(1) << (state.out[m].node & 63)
    return bool(past > begin)


@inlined_kernel
def arrange_then(inputs: Inputs, passes: PassState, j: int, slot: int, w: int) -> int:
    """Place job j on what is free in window w on nodes not covered; 0 if that is too little.

    Nodes in `ahead.recent` have free what they have a window before.
    """
    cluster, places, ahead = inputs.cluster, passes.places, passes.ahead
    s, tasks = int64(inputs.jobs[j].shape), int64(inputs.jobs[j].tasks)
    kind, count = compared(cluster, places, s), int64(0)
    places.fit[:] = 0
    for b in range(ahead.cover.size):
        rest = ahead.opens[slot, w, b] & ~ahead.cover[b]
        while rest != 0:
            n = int64((b << 6) + kernels.trailing_zeros(rest))
            i = level_of(ahead, n, int64(w - has(ahead.recent, n)))
            places.fit[n] = min(ahead.fits[slot, n, i], tasks)
            count += places.fit[n]
            ahead.free[n, 0] = ahead.room.free[i, n, kind]
            rest &= rest - 1
    if count < tasks:
        return 0
    return int(choose(cluster, places, ahead.free[:, 0], s, tasks))


@inlined_kernel
def behind(rows: Rows, count: int, time: float) -> int:
    """How many of the first so many rows, which are in order, are at this time or before."""
    low = int64(0)
    while count > 0:
        half = (count + 1) >> 1
        # Without a branch: which half it is in cannot be foreseen.
        low += half * int64(rows[low + half - 1].time <= time)
        count -= half
    return int(low)


@inlined_kernel
def end_of_group(state: State, passes: PassState, w: int, before: float, count: int) -> float:
    """When the group of running jobs ends whose ends reach into window w; infinity for none.

    The group is one behind ``before``, the end of the last that was tried. Only jobs on nodes that
    are not covered count, of which there are so many. The first group ends 30 s after the whole
    half minute behind the first end; the others 60, 120, 240 … s after that. A job that fits once
    some of a group have ended is taken to start when the last of it does.
    """
    not_yet, ends = np.nextafter(state.at.now, np.inf), passes.ahead.ends
    before, reaching = max(before, passes.ahead.times[w - 1]), int64(0)
    if not_yet <= before:
        reaching = int64(behind(ends, count, before))
    # The first end that reaches into the window says which group it is. No limit: no end.
    if reaching == count or ends[reaching].time == kernels.NEVER:
        return kernels.NEVER
    epoch, order, ending = passes.settings.epoch, passes.leaving, int64(passes.clock.ending)
    # The first group is as long as one window, and begins at the whole half minute after the first
    # end.
    edge = ((ends[0].time + epoch) // FIRST_WINDOW + 1.0) * FIRST_WINDOW - epoch
    length, begin = FIRST_WINDOW, int64(0)
    while True:
        final = begin
        # Slurm goes on while whoever ends next does so within the group. If that is a job on other
        # nodes it is passed over, and the next on these belongs to the group, whenever it ends. Of
        # ends at one instant those on these nodes count as the last.
        if ends[begin].time <= edge + length:
            final = int64(behind(ends, count, edge + length) - 1)
            latest = behind(order, ending, edge + length) - 1
            final += int64(final + 1 < count and ends[final].time < order[latest].time)
        if final >= reaching:
            return float(max(ends[final].time, not_yet))
        begin = final + 1
        # Each further group is twice as long as the one before it, or longer: until whoever ends
        # next, on any nodes, does so within it.
        following = min(int64(behind(order, ending, ends[final].time)), ending - 1)
        length *= 2.0
        while min(ends[begin].time, order[following].time) > edge + length:
            length *= 2.0


@inlined_kernel
def rounded(passes: PassState, time: float) -> float:
    """Times are multiples of the resolution, on Slurm's clock."""
    resolution, epoch = passes.settings.resolution, passes.settings.epoch
    # Infinity is none, and the rest of its division no number: jobs without a limit.
    return (time + epoch) // resolution * resolution - epoch if time < kernels.NEVER else time


@inner_kernel
def split(passes: PassState, time: float, again: bool) -> int:
    """Let there be an edge at a time; its place. With ``again``, another one."""
    clock, edges, k = passes.clock, passes.edges, int64(0)
    k = behind(edges, clock.edges, time)
    while k > 0 and edges[k - 1].time == time:
        k -= 1
    if k < clock.edges and edges[k].time == time and not again:
        return int(k)
    for i in range(clock.edges, k, -1):
        edges[i].time = edges[i - 1].time
        add(passes.taken[i - 1], passes.taken[i], boolean(False))
    # From the new edge on as before it.
    edges[k].time = time
    passes.taken[k, :] = 0
    if k > 0:
        add(passes.taken[k - 1], passes.taken[k], boolean(True))
    clock.edges += 1
    return int(k)


@inlined_kernel
def cover_site(passes: PassState, after: float, until: float, cover: Ints) -> None:
    """Cover the nodes that the site reserves at any time between two."""
    for r in range(passes.clock.site):
        if passes.reserved[r].begin <= until and passes.reserved[r].end > after:
            add(passes.booked[r], cover, boolean(True))


@inlined_kernel
def cover_jobs(passes: PassState, after: float, until: float, cover: Ints) -> None:
    """Cover the nodes that are reserved for jobs at any time between two."""
    begin = behind(passes.edges, passes.clock.edges, after) - 1
    for k in range(max(begin, 0), behind(passes.edges, passes.clock.edges, until)):
        add(passes.taken[k], cover, boolean(True))


@inlined_kernel
def frees(ahead: FutureWindows, k: int) -> bool:
    """Whether nodes that are reserved before edge k are not reserved behind it."""
    for b in range(ahead.recent.size):
        if ahead.rest[max(k - 1, 0), b] & ~(ahead.rest[k, b] | ahead.recent[b]) != 0:
            return True
    return False


@inner_kernel
def first_room(
    inputs: Inputs, passes: PassState, j: int, slot: int, time: float, wait: float
) -> tuple[float, float, int]:
    """First time from ``time`` on when nodes that are not reserved while job j would run hold it.

    Of that and the edges behind it; then the next edge; and the first window in which enough is
    free on these nodes, which ends before that. `ahead.cover` is then of all others. As long as the
    same nodes are covered, there is not enough before ``wait``.
    """
    clock, ahead, edges, limit = passes.clock, passes.ahead, passes.edges, inputs.jobs[j].limit
    cover, tasks, count = ahead.cover, int64(inputs.jobs[j].tasks), int64(clock.edges)
    # Reservations from the edge before `time` up to the last before the job would end: the first
    # of these edges moves on with the last. What is reserved from one on up to edge `middle` is in
    # `ahead.rest`; `recent` is of those behind it.
    low, high = int64(behind(edges, count, time)), int64(behind(edges, count, time + limit))
    middle, window, windows, later = int64(0), int64(-1), int64(clock.windows), kernels.NEVER
    ahead.recent[:] = 0
    while time < kernels.NEVER:
        while high < count and edges[high].time <= time + limit:
            add(passes.taken[high], ahead.recent, boolean(True))
            high += 1
        begin = max(low - 1, 0)
        if begin >= middle:
            middle = high
            for b in range(cover.size):
                ahead.recent[b] = nodes = 0
                for k in range(high - 1, begin - 1, -1):
                    nodes |= passes.taken[k, b]
                    ahead.rest[k, b] = nodes
        unchanged = clock.site == 0  # nodes of the site's reservations are covered below
        for b in range(cover.size):
            nodes = ahead.recent[b] | ahead.owned[b] | ahead.barred[slot, b]
            nodes |= ahead.rest[begin, b] if begin < middle else 0
            unchanged = unchanged and nodes == cover[b]
            cover[b] = nodes
        cover_site(passes, time, time + limit, cover)
        later = edges[low].time if low < count else kernels.NEVER
        wait = wait if unchanged else -kernels.NEVER
        if window < 0 or not unchanged:
            window = int64(first_window(ahead, slot, tasks, windows))
        if window < windows and max(ahead.times[window], wait) <= later:
            break
        # Until nodes are free of reservations, or that window ends before the next edge, as little
        # is free.
        while (
            low + 1 < min(middle, count)
            and (window == windows or edges[low + 1].time < ahead.times[window])
            and clock.site == 0
            and not frees(ahead, low)
        ):
            low += 1
        time = edges[low].time if low < count else kernels.NEVER
        while low < count and edges[low].time <= time:
            low += 1
    return time, later, int(window)


@inner_kernel
def meets_any(
    inputs: Inputs, state: State, passes: PassState, j: int, time: float, pieces: int
) -> bool:
    """Job j, on the pieces tried from then on, would be on nodes that are reserved then."""
    begins = rounded(passes, time) if time > state.at.now else time
    end, recent = time + inputs.jobs[j].limit, passes.ahead.recent
    recent[:] = 0
    # The site's times are exact; what begins as the job ends is not in the way.
    cover_site(passes, time, np.nextafter(end, -np.inf), recent)
    cover_jobs(passes, begins, np.nextafter(rounded(passes, end), -np.inf), recent)
    meets = False
    for i in range(pieces):
        meets = meets or has(recent, int64(state.tried[i].node))
    return meets


@inlined_kernel
def not_before(inputs: Inputs, passes: PassState, j: int) -> float:
    """Before then jobs of its shape, with no more tasks and no longer, found too little room."""
    job, time = inputs.jobs[j], -kernels.NEVER
    if passes.settings.by_user:  # jobs of another user find other nodes
        return time
    for i in range(passes.clock.bounds):
        bound = passes.bounds[i]
        # What was too little for fewer tasks, for a shorter time, is too little for this job.
        if bound.shape == job.shape and bound.tasks <= job.tasks and bound.limit <= job.limit:
            time = max(time, bound.time)
    return time


@inlined_kernel
def too_early(inputs: Inputs, passes: PassState, j: int, time: float) -> None:
    """Job j found too little room at any time before this one."""
    job, i = inputs.jobs[j], int64(0)
    while i < passes.clock.bounds:
        bound = passes.bounds[i]
        # In place of one that says less: of more tasks, for longer, an earlier time.
        harder = bound.shape == job.shape and bound.tasks >= job.tasks and bound.limit >= job.limit
        if harder and bound.time <= time:
            break
        i += 1
    bound = passes.bounds[i]
    bound.shape, bound.tasks, bound.limit, bound.time = job.shape, job.tasks, job.limit, time
    passes.clock.bounds = max(passes.clock.bounds, i + 1)


@inlined_kernel
def first_time(
    inputs: Inputs, state: State, passes: PassState, j: int, least: float
) -> tuple[float, int]:
    """First time from ``least`` on at which job j fits beside the reservations, or infinity.

    Its pieces are tried: now, then each time that a reservation begins or ends, without nodes that
    are reserved while it would run. Times are passed over at which a job that asked for no more
    found too little room; where there was enough, it may have been on other nodes, and is looked at
    again.
    """
    ahead, windows = passes.ahead, passes.clock.windows
    early = not_before(inputs, passes, j)
    if early == kernels.NEVER:  # one that asks for less never found any
        return kernels.NEVER, 0
    earliest, wait, tried = max(state.at.now, early, least), -kernels.NEVER, False
    noted = least <= state.at.now  # who may start later than now says nothing of earlier times
    slot = int64(count_ahead(inputs, state, passes, int64(inputs.jobs[j].shape)))
    cover_owned(inputs, state, passes, j)
    while True:
        earliest, later, w = first_room(inputs, passes, j, slot, earliest, wait)
        # From here on a failure is one of nodes, not of numbers, and says nothing of other jobs.
        if not tried and earliest > early and noted:
            too_early(inputs, passes, j, earliest)
        if earliest == kernels.NEVER:
            return kernels.NEVER, 0
        tried = True
        pieces, time, ending, partial = int64(0), earliest, int64(-1), False
        group = wait = -kernels.NEVER
        ahead.recent[:] = 0
        # Features may need more than enough room.
        while w < windows and ahead.times[w] <= later and pieces == 0:
            # It starts when the group of running jobs ends whose ends give it room, not at the
            # window's end.
            if w > 0:
                if ending < 0:
                    ending = int64(ends_on_free(passes, later))
                time = end_of_group(state, passes, w, group, ending)
                if time > later:
                    wait = time if group == -kernels.NEVER else wait  # nothing else was tried
                    break
                group = time
                while ahead.times[w] < time and w + 1 < windows and ahead.times[w + 1] <= later:
                    w += 1
                partial = ends_behind(inputs, state, passes, w, time, ending)
            pieces = int64(arrange_then(inputs, passes, j, slot, w))
            w += not partial  # the window's other ends belong to the next group
        if pieces > 0:
            time = max(time, earliest)
            # Times are rounded for reservations, so the choice is compared with them once more.
            if not meets_any(inputs, state, passes, j, time, pieces):
                return time, pieces
            later = time if time > earliest else later
        earliest = later


@inner_kernel
def shut_reserved(inputs: Inputs, state: State, passes: PassState, j: int) -> None:
    """Shut the nodes that are reserved while job j would run if it started now."""
    now, until = state.at.now, state.at.now + inputs.jobs[j].limit
    recent = passes.ahead.recent
    recent[:] = 0
    cover_site(passes, now, until, recent)
    cover_jobs(passes, now, until, recent)
    for n in range(passes.shut.size):
        passes.shut[n] = has(recent, n)


@inlined_kernel
def reserve(
    inputs: Inputs, state: State, passes: PassState, j: int, time: float, pieces: int
) -> float:
    """Hold the nodes tried for job j from then on; gives when that begins."""
    begin, end = rounded(passes, time), rounded(passes, time + inputs.jobs[j].limit)
    first = split(passes, begin, boolean(False))
    # One that is rounded to nothing is in the way of those who would run at that time.
    last = split(passes, end, boolean(begin == end))
    for k in range(first, max(last, first + 1)):
        for i in range(pieces):
            n = int64(state.tried[i].node)
            passes.taken[k, n >> 6] |= int64(1) << (n & 63)
    return begin


@inlined_kernel
def too_many(passes: PassState, j: int) -> bool:
    """As many of its user, partition or association were looked at as may be; else one more is."""
    # First all limits are asked, then all counters grow: a job that one of them stops counts in
    # none.
    for k in range(GROUPS):
        if 0 < passes.most[k] <= passes.looked[k, passes.group[k, j]]:
            return True
    for k in range(GROUPS):
        if passes.most[k] > 0:
            passes.looked[k, passes.group[k, j]] += 1
    return False


@inlined_kernel
def last_able(inputs: Inputs, state: State, passes: PassState, first: int, last: int) -> int:
    """The last in line up to ``last`` who fits now beside what is reserved so far.

    Nobody else may start in this pass: more and more is reserved, and nothing given back.
    """
    while last >= first:
        j = passes.front[last]
        if groups_of(inputs, j) > 0 and may_start(inputs, state, passes, j):
            break  # its groups are reserved for in turn, whatever fits now
        s, limit = int64(inputs.jobs[j].shape), inputs.jobs[j].limit
        tasks = int64(inputs.jobs[j].tasks)
        # In a pass less and less is free: who asks for no less than one that failed need not be
        # asked.
        failed = passes.failed[s]  # of its shape, that asked for no more: in this pass
        hopeless = failed.stamp == passes.clock.passes and failed.tasks <= tasks
        hopeless = hopeless and failed.limit <= limit
        hopeless = hopeless or known_too_large(inputs, state, j)  # the cheaper question first
        if (
            not hopeless
            and groups_of(inputs, j) == 0
            and may_start(inputs, state, passes, j)
            and fits_now(inputs, state, passes, j)
        ):
            if passes.clock.edges == 0:
                break
            shut_reserved(inputs, state, passes, j)
            shut = passes.shut
            if count_room(inputs.cluster, passes.places, state.room, s, tasks, shut) >= tasks:
                break
            # Of the failures of a shape the one that asked for least rules out most.
            easier = tasks <= failed.tasks and limit <= failed.limit
            if failed.stamp != passes.clock.passes or easier:
                failed.stamp, failed.tasks, failed.limit = passes.clock.passes, tasks, limit
        last -= 1
    return last


@inner_kernel
def plan_groups(inputs: Inputs, state: State, passes: PassState, j: int) -> None:
    """Reserve for the groups of job j, each from the time on at which all before it have room.

    All of them can start at the last of these times.
    """
    now, s, least = state.at.now, int64(inputs.jobs[j].shape), -kernels.NEVER
    for i in range(inputs.cluster.shapes[s].groups):
        stand_for(inputs, j, s, int64(in_turn(inputs, passes, s, int64(i))))
        time, pieces = first_time(inputs, state, passes, j, least)
        least = max(least, time)
        if least > now + passes.settings.window:
            least = kernels.NEVER
            break
        if time <= now or not holds_no_nodes(inputs, state, passes, j):
            reserve(inputs, state, passes, j, time, pieces)
    stand_for(inputs, j, s, int64(-1))
    passes.known[j].together = least


@inlined_kernel
def arrange_groups(inputs: Inputs, state: State, passes: PassState, j: int) -> int:
    """Nodes for all groups of job j now, none of which two of them share: pieces, 0 for no room."""
    s, total, count = int64(inputs.jobs[j].shape), int64(0), int64(0)
    keep_off(inputs, state, passes, j, 1)
    for i in range(inputs.cluster.shapes[s].groups):
        m = int64(in_turn(inputs, passes, s, int64(i)))
        stand_for(inputs, j, s, m)
        part, tasks = int64(inputs.jobs[j].shape), int64(inputs.jobs[j].tasks)
        shape, free, choice = inputs.cluster.shapes[part], passes.room, int64(kernels.FIRST_FIT)
        count = int64(arrange(inputs.cluster, passes.places, free, part, tasks, passes.shut))
        if count == 0:
            break
        if inputs.cluster.devices is not None and shape.fraction + shape.whole > 0:
            count = int64(tell_apart(inputs.cluster, state, free, part, count, choice))
        passes.first[m], passes.pieces[m] = total, count
        copy_pieces(state.tried, int64(0), state.grouped, total, count)
        for q in range(count):
            passes.shut[state.tried[q].node] |= OTHERS
        total += count
    stand_for(inputs, j, s, int64(-1))
    for n in range(passes.shut.size):
        passes.shut[n] &= ~OTHERS
    keep_off(inputs, state, passes, j, -1)
    total = int64(0)  # in the order in which the job has its groups
    for m in range(inputs.cluster.shapes[s].groups if count > 0 else 0):
        copy_pieces(state.grouped, passes.first[m], state.tried, total, passes.pieces[m])
        total += passes.pieces[m]
    return int(total)


@inlined_kernel
def start_groups(inputs: Inputs, state: State, passes: PassState, count: int, started: int) -> None:
    """At the end of a pass, start the jobs of groups in line of which each group can start now."""
    for n in range(passes.shut.size):
        passes.shut[n] = 0
    for i in range(count):
        j = passes.front[i]
        able = passes.known[j].together <= state.at.now  # only jobs of groups
        passes.known[j].together = kernels.NEVER
        full = 0 < passes.settings.starts <= started
        if able and not full and may_start(inputs, state, passes, j):
            pieces = arrange_groups(inputs, state, passes, j)
            if pieces > 0:
                begin(inputs, state, passes, j, pieces)
                started += 1


@inlined_kernel
def begin_pass(passes: PassState) -> None:
    """Nothing is reserved yet but what the site reserves, and nobody was looked at."""
    passes.clock.edges = 0
    passes.clock.passes += 1
    for r in range(passes.clock.site):
        split(passes, passes.reserved[r].begin, boolean(False))
        split(passes, passes.reserved[r].end, boolean(False))
    for k in range(GROUPS):
        if passes.most[k] > 0:
            passes.looked[k, :] = 0


@inlined_kernel
def backfill(inputs: Inputs, state: State, passes: PassState, count: int) -> int:
    """One pass: start what fits now beside reservations made before it, reserve for others.

    Gives how many it started.
    """
    clock, now = passes.clock, state.at.now
    begin_pass(passes)
    started, ready, recheck = 0, False, passes.above is None
    end_of_line = count - 1
    i = 0
    while True:
        if recheck:
            end_of_line = last_able(inputs, state, passes, i, end_of_line)
            recheck = False
        if i > end_of_line:
            return started
        j = passes.front[i]
        i += 1
        # A job of a reservation is left to the main loop: nobody else is on its nodes.
        if (
            not may_start(inputs, state, passes, j)
            or passes.known[j].reservation >= 0
            or too_many(passes, j)
        ):
            continue
        if inputs.cluster.groups is not None and groups_of(inputs, j) > 0:
            if not ready or clock.rank != -kernels.NEVER:
                look_ahead(inputs, state, passes, -kernels.NEVER)
                ready = True
            plan_groups(inputs, state, passes, j)
            recheck = passes.above is None
            continue
        rank = -kernels.NEVER
        while True:
            if not ready or clock.rank != rank:
                look_ahead(inputs, state, passes, rank)
                ready = True
            time, pieces = first_time(inputs, state, passes, j, -kernels.NEVER)
            if passes.above is None or time <= now or rank > -kernels.NEVER:
                break
            # Kept aside: looking for jobs to preempt overwrites the place found without it.
            for m in range(pieces):
                passes.kept[m] = state.tried[m].node
            shut_reserved(inputs, state, passes, j)
            for n in range(passes.shut.size):  # as they are covered since its time was sought
                passes.shut[n] |= int64(has(passes.ahead.owned, n))
            clock.hidden = 0
            preempting = preemption.make_room(inputs, state, passes, j)
            if preempting > 0:
                preemption.give_way(inputs, state, passes, j)
                time, pieces = now, preempting
                break
            for m in range(pieces):
                state.tried[m].node = passes.kept[m]
            if clock.hidden == 0:
                break
            # Once more, without those below.
            rank = float(passes.classes[passes.known[j].kind].rank)
        if time <= now:
            begin(inputs, state, passes, j, pieces)
            ready, recheck = False, passes.above is None
            started += 1
            if started == passes.settings.starts:
                return started
        elif holds_no_nodes(inputs, state, passes, j):
            continue
        elif time <= now + passes.settings.window and time < kernels.NEVER:
            o = passes.known[j].job
            if passes.settings.one_each and passes.known[o].booked == clock.passes:
                continue
            passes.known[o].booked = clock.passes
            begins = reserve(inputs, state, passes, j, time, pieces)
            # Only a reservation that begins before the last job would end can take its place away.
            meets_last = begins <= now + inputs.jobs[passes.front[end_of_line]].limit
            recheck = meets_last and passes.above is None


# ---------------------------------------------------------------------------------------- a round


@inlined_kernel
def keep_line(inputs: Inputs, state: State, passes: PassState) -> None:
    """Keys change with the time: remember the line that backfilling sees."""
    count = 0
    for m in range(passes.clock.lined):
        j = state.sequence[m].item
        if state.jobs[j].phase == kernels.WAITING:
            passes.before[count] = j
            count += 1
    passes.clock.before = count


@inner_kernel
def age_from_submission(inputs: Inputs, state: State, passes: PassState, fresh: int) -> None:
    """ACCRUE_ALWAYS: jobs that came in line for the first time have aged since their submission."""
    few = fresh <= state.fresh.size
    for i in range(fresh if few else inputs.jobs.size):
        j = inputs.by_rank[state.fresh[i]] if few else i
        if state.jobs[j].phase == kernels.WAITING and state.jobs[j].attempts == 0:
            state.standing.eligible[j] = passes.known[j].ages


@inlined_kernel
def prepare(inputs: Inputs, state: State, passes: PassState) -> None:
    """Before a round: the order, who is preempted, and when running jobs are expected to end."""
    clock, at = passes.clock, state.at
    elapse(clock, passes.settings.interval, at.now)
    pools.stand_again(inputs, state, passes)
    fresh, at.fresh = at.fresh, 0
    if state.standing is not None and passes.settings.accrues:
        age_from_submission(inputs, state, passes, fresh)
    if state.standing is not None and inputs.rules.keyed and queue_kernels.line_stays(inputs):
        queue_kernels.stand_in_line(inputs, state, fresh)
        clock.lined = at.lined
    elif inputs.rules.keyed:
        clock.lined = queue_kernels.keys(inputs, state)
    count, clock.asleep = 0, 0
    for i in range(clock.gave):
        j = passes.gave[i]
        if state.jobs[j].phase == kernels.WAITING:
            passes.gave[count] = j
            count += 1
            clock.asleep += passes.known[j].asleep
        else:
            passes.known[j].until, passes.known[j].asleep = -kernels.NEVER, 0
    clock.gave = count
    # Limits count work: the faster a job runs, the sooner it reaches its limit.
    if inputs.rules.limits_of_work:
        for i in range(at.running):
            j = state.running[i]
            remaining = max(inputs.jobs[j].limit - work_done(inputs, state, j), 0.0)
            state.jobs[j].expect = at.now + remaining
            kernels.put(state.order, i, state.jobs[j].expect, j)
        at.entered, at.sorted = at.running, 0
    if passes.gangs is not None:
        preemption.count_cores(inputs, state, passes)
    clock.changed = clock.changed or clock.events > 0 or unlike_before(inputs, state, passes)
    if passes.minutes is not None and add_up(inputs, state, passes.minutes):
        clock.changed = 1
    for r in range(clock.site):  # nodes that were kept are free again, or a job may use them
        booking = passes.reserved[r]
        turned = clock.passed < booking.begin <= at.now or clock.passed < booking.end <= at.now
        clock.changed = clock.changed or turned
    if passes.settings.least_wait > 0:  # more may hold nodes than before
        clock.changed = 1
    clock.events = clock.moved = clock.acts = 0
    clock.round += 1


@inlined_kernel
def decide(inputs: Inputs, state: State, passes: PassState) -> None:
    """A round: the main loop; then backfilling, where it is due."""
    clock, at, now = passes.clock, state.at, state.at.now
    rules = passes.settings
    prepare(inputs, state, passes)
    # Once a minute Slurm's main loop looks at everyone; in between, at the first `depth` jobs only.
    whole_line = now >= clock.whole + WHOLE_LINE
    looked_at = passes.front.size if whole_line else rules.depth + 1
    listed = passes.front.size if clock.asleep > 0 else looked_at
    count = line_up(inputs, state, passes, int64(listed))
    if passes.above is not None and clock.asleep > 0:
        resume(inputs, state, passes, count)
    main_loop(inputs, state, passes, min(count, looked_at))
    if whole_line:
        clock.whole = now
    if passes.gangs is not None and overdue(state, passes.known):
        clock.changed = 1
    # Those preempted in this round are not tried before the next.
    if at.waiting > clock.moved and rules.tested > 0 and now >= clock.passed + rules.interval:
        clock.passed = now
        if inputs.rules.keyed:
            keep_line(inputs, state, passes)
        if clock.changed:
            tested = line_up(inputs, state, passes, int64(rules.tested))
            started = backfill(inputs, state, passes, tested)
            if inputs.cluster.groups is not None:
                start_groups(inputs, state, passes, tested, started)
        clock.changed = 0
    front = int64(-1)
    if rules.tested > 0 and line_up(inputs, state, passes, int64(1)) > 0:
        front = passes.front[0]
    # Who was suspended may have made room for one below it.
    if passes.gangs is not None and clock.gave > 0:
        resume(inputs, state, passes, int64(0))
    ask(inputs, state, passes, front)
    clock.due = 1
    clock.here = clock.events


@inlined_kernel
def ask(inputs: Inputs, state: State, passes: PassState, first: int) -> None:
    """Another round: while anyone waits for backfilling, and when who was preempted may start.

    Where nothing runs, nothing is to come and backfilling has seen all, it would find nothing ever.
    """
    clock, at, now = passes.clock, state.at, state.at.now
    j, time = int64(-1), kernels.NEVER
    for i in range(clock.gave):
        until = passes.known[passes.gave[i]].until
        if now < until < kernels.NEVER:
            j = j if j >= 0 else passes.gave[i]
            time = min(time, until)
    steady = clock.changed == 0 and j < 0
    for r in range(clock.site):
        steady = steady and passes.reserved[r].end < now
    if passes.minutes is not None:
        steady = steady and not fading(passes.minutes)
    clock.steady = steady
    # Nothing runs and nothing is to come: only a change of the line could start anyone.
    at_end = at.next_event == inputs.events.size and at.next_job == inputs.jobs.size
    over = at.running == 0 and at_end
    if first >= 0 and not (over and steady and passes.acts.size == 0):
        j, time = first, min(time, clock.passed + passes.settings.interval)
    clock.asked, clock.at = j, time
    if j >= 0 and state.jobs[j].phase == kernels.WAITING and passes.acts.size == 0:
        set_timer(state, j, time)


@inlined_kernel
def crowded(state: State, passes: PassState) -> bool:
    """A round might cut short more attempts than there is room for.

    Also of jobs that it starts; all who are suspended hold a core, one job of a tier each.
    """
    at, (N, C) = state.at, passes.gangs.holders.shape[1:]
    jobs, pieces = at.cuts + at.running + at.waiting, at.cut_pieces + passes.classes.size * N * C
    short = jobs > state.cuts.size - 1 or pieces > state.cut_pieces.size
    return bool(short and passes.acts.size == 0)


@lean_kernel
def play(inputs: Inputs, state: State, passes: PassState, instants: int) -> int:
    """Run up to ``instants`` instants. Gives DONE, PAUSED or MORE_ROOM."""
    at, clock = state.at, passes.clock
    for _ in range(instants):
        if at.half == 0:
            previous = at.now
            at.fed = 0
            status = advance(inputs, state, None)
            if status != PAUSED:
                return status
            # Events of one instant are one to the clock of backfilling; two or more make it due.
            if at.now > previous:
                for _ in range(min(clock.here, 2)):  # a second event finds it due again
                    happened(clock, passes.settings.interval, previous)
                clock.here = 0
            clock.here += at.fed
            clock.events += at.fed
            at.rounds += at.waiting > 0
        if passes.gangs is not None and crowded(state, passes):
            at.half = 1
            return MORE_ROOM
        at.half = 0
        # Live: events that came between two calls count for the clock when they happened.
        for i in range(passes.earlier.size):
            happened(clock, passes.settings.interval, passes.earlier[i])
        if at.waiting > 0:
            decide(inputs, state, passes)
        else:
            queue_kernels.nobody_waits(state)
    return PAUSED
