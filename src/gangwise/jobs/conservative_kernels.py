"""Compiled parts of the simulation: conservative backfilling, every job with a reservation."""

from __future__ import annotations

from gangwise.core.jit import inlined_kernel, inner_kernel, referenced
from gangwise.jobs.fit_kernels import copy_room, take_piece, tasks_in
from gangwise.jobs.kernels import (
    GIVE_BACK,
    NEVER,
    TAKE,
    TAKEN,
    Given,
    Room,
    State,
    enter_row,
    int64,
    merge_sort,
    opens,
    put,
    put_piece,
    room_of,
)
from gangwise.jobs.queue_kernels import capped, keys, nobody_waits
from gangwise.jobs.rate_kernels import Beliefs
from gangwise.jobs.start_kernels import arrange_on, expected_ends, start


@inlined_kernel
def drop_changes(x: State, size: int, j: int) -> int:
    """Forget what is noted of job j."""
    kept = 0
    for i in range(size):
        if (x.changes[i].item & (TAKEN - 1)) != j:
            if kept < i:
                put(x.changes, kept, x.changes[i].time, x.changes[i].item)
            kept += 1
    return kept


@inner_kernel
def shift(g: Given, x: State, room: Room, item: int) -> None:
    """Note one change of what is free."""
    j = item & (TAKEN - 1)
    sign = GIVE_BACK if item < TAKEN else TAKE
    p = g.jobs[j].piece_from
    for m in range(p, p + x.jobs[j].pieces):
        take_piece(g.cluster, room, int64(g.jobs[j].shape), x.out, p, m, sign)


@inlined_kernel
def lower(g: Given, x: State, j: int) -> None:
    """Where job j takes devices, let what is free throughout be no more than `x.trial`."""
    p = g.jobs[j].piece_from
    for m in range(p, p + x.jobs[j].pieces):
        n = x.out[m].node
        for k in range(x.trial.free.shape[1]):
            x.ahead.free[n, k] = min(x.ahead.free[n, k], x.trial.free[n, k])
        for i in range(x.trial.device.shape[1]):
            x.ahead.device[n, i] = min(x.ahead.device[n, i], x.trial.device[n, i])


@inlined_kernel
def shift_profile(g: Given, x: State, j: int, tasks: int) -> None:
    """So many more tasks of job j are free now, as planned."""
    for k in range(x.total.size):
        x.profile[0, k] += tasks * g.cluster.demand[g.jobs[j].shape, k]


@inner_kernel
def add_up(g: Given, x: State, size: int) -> None:
    """`x.profile`: free in all after each change; its first row is given."""
    for i in range(size):
        item = x.changes[i].item
        j = item & (TAKEN - 1)
        amount = g.jobs[j].tasks if item < TAKEN else -g.jobs[j].tasks
        s = int64(g.jobs[j].shape)
        for k in range(x.profile.shape[1]):
            x.profile[i + 1, k] = x.profile[i, k] + amount * g.cluster.demand[s, k]


@inlined_kernel
def enough(g: Given, x: State, j: int, i: int) -> bool:
    """There are devices enough for job j in all after change i − 1, wherever they are.

    A sum over all nodes says so only while none is less than nothing. With limits of work, a job
    may be expected to end later than it was when its nodes were planned for: not asked there.
    """
    job = g.jobs[j]
    if g.rules.limits_of_work:
        return True
    s = int64(job.shape)
    for k in range(x.profile.shape[1]):
        if job.tasks * g.cluster.demand[s, k] > x.profile[i, k]:
            return False
    return True


@inlined_kernel
def truly_free(g: Given, x: State, j: int, pieces: int) -> bool:
    """Whether the devices tried for job j are free now, and not only expected to be."""
    s = int64(g.jobs[j].shape)
    able = True
    for m in range(pieces):
        n = x.tried[m].node
        take_piece(g.cluster, x.room, s, x.tried, 0, m, TAKE)
        for k in range(x.room.free.shape[1]):
            able = able and x.room.free[n, k] >= 0
        for i in range(x.room.device.shape[1]):
            able = able and x.room.device[n, i] >= 0
    for m in range(pieces):
        take_piece(g.cluster, x.room, s, x.tried, 0, m, GIVE_BACK)
    return able


@inner_kernel
def earliest(g: Given, x: State, b: Beliefs, j: int, size: int, before: float) -> int:
    """First instant before ``before`` from which job j fits for its whole limit, in `planned`.

    Gives the pieces it would have, in `x.tried`; 0 for none. Its own reservation counts as free.
    """
    job = g.jobs[j]
    limit = job.limit
    then = referenced(room_of(x.shadow, 1))
    own = x.plans[j].start
    walked = -1  # changes that are in `x.then`
    i = 0  # changes up to the instant looked at
    time = x.at.now
    while True:
        time = opens(g, j, time)
        if time >= before:
            return 0
        while i < size and x.changes[i].time <= time:
            i += 1
        # Devices in all first: the first moment at which they are too few, until its own begin.
        m = i
        able = enough(g, x, j, i) if time < own else True
        while able and m < size:
            moment = x.changes[m].time
            if moment >= time + limit or moment >= own:
                break
            while m < size and x.changes[m].time == moment:
                m += 1
            able = enough(g, x, j, m)
        if able:
            if walked < 0:
                copy_room(referenced(room_of(x.shadow, 0)), then)
                walked = 0
            while walked < i:
                if (x.changes[walked].item & (TAKEN - 1)) != j:
                    shift(g, x, then, x.changes[walked].item)
                walked += 1
            if tasks_in(g, x, then, j) >= job.tasks:
                lowest(g, x, j, i, size, time + limit)
                pieces = arrange_on(g, x, b, x.ahead, j)
                if pieces > 0:
                    x.at.planned = time
                    return pieces
            m = i
        # Until devices in all are enough again, nothing need be looked at.
        while True:
            if m >= size:
                return 0
            time = x.changes[m].time
            while m < size and x.changes[m].time == time:
                m += 1
            if time >= own or enough(g, x, j, m):
                break


@inlined_kernel
def lowest(g: Given, x: State, j: int, low: int, size: int, until: float) -> None:
    """Put in `x.ahead` what stays free from `x.then` on, through the changes before ``until``."""
    copy_room(referenced(room_of(x.shadow, 1)), x.ahead)
    copy_room(referenced(room_of(x.shadow, 1)), x.trial)
    m = low
    while m < size and x.changes[m].time < until:
        item = x.changes[m].item
        if (item & (TAKEN - 1)) != j:
            shift(g, x, x.trial, item)
            if item >= TAKEN:
                lower(g, x, item - TAKEN)
        m += 1


@inlined_kernel
def same_pieces(g: Given, x: State, j: int, pieces: int) -> bool:
    """Whether the pieces that were tried are those that job j has reserved."""
    if x.jobs[j].pieces != pieces:
        return False
    p = g.jobs[j].piece_from
    for m in range(pieces):
        if (
            x.out[p + m].node != x.tried[m].node
            or x.out[p + m].tasks != x.tried[m].tasks
            or x.out[p + m].mask != x.tried[m].mask
        ):
            return False
    return True


@inlined_kernel
def kamelot_ends(g: Given, x: State) -> None:
    """Ends of running jobs as Kamelot reads them, in `x.changes`: see :func:`.queues.kamelot_ends`.

    Rows are in the order of submission, so that ties of starts are taken in that order.
    """
    for i in range(x.at.running):
        put(x.changes, i, x.jobs[x.running[i]].begun, x.running[i])
    merge_sort(x.changes, x.spare_rows, 0, x.at.running)
    soonest = latest = x.at.now
    moved = False
    for i in range(x.at.running):
        j = x.changes[i].item
        end = x.jobs[j].expect
        if end > x.at.now:
            if soonest <= x.at.now:
                soonest = latest = end
            elif end >= latest:
                latest, moved = end, True
            else:
                soonest = end = min(end, soonest)
                if not moved:
                    latest = end
        put(x.changes, i, end, j)


@inner_kernel
def lay_out(g: Given, x: State, count: int) -> int:
    """All changes of what is free that are planned for, in order; their number."""
    at = x.at
    if g.rules.anew:
        kamelot_ends(g, x)
    else:
        for i in range(at.running):
            put(x.changes, i, x.jobs[x.running[i]].expect, x.running[i])
    shadow = referenced(room_of(x.shadow, 0))
    copy_room(x.room, shadow)
    for k in range(x.total.size):
        x.profile[0, k] = x.total[k]
    size = 0
    for i in range(at.running):
        time, j = x.changes[i].time, x.changes[i].item
        if time <= at.now:  # past its request: expected to end now
            shift(g, x, shadow, j)
            shift_profile(g, x, j, int64(g.jobs[j].tasks))
        else:
            put(x.changes, size, time, j)
            size += 1
    for i in range(count):
        j = x.sequence[i].item
        slot = x.plans[j].start
        if slot == NEVER or g.jobs[j].limit <= 0.0 or slot + g.jobs[j].limit <= at.now:
            continue
        put(x.changes, size, max(slot, at.now), TAKEN + j)
        put(x.changes, size + 1, slot + g.jobs[j].limit, j)
        size += 2
    merge_sort(x.changes, x.spare_rows, 0, size)
    add_up(g, x, size)
    return size


@inner_kernel
def conservative(g: Given, x: State, b: Beliefs, count: int) -> None:
    """Every waiting job holds a reservation, and keeps it unless it can start earlier.

    In the order of the queue, while all others keep theirs, so that nobody's is ever moved back.
    A job that was looked at since something planned for was last given up (`planned` is `holes`)
    cannot start earlier than it did then: since, reservations were only added, so at no instant is
    more planned to be free; a running job past its request counts as ending now, as it did; a new
    instant between two changes opens nothing that the change before it did not; and whether a gang
    fits does not depend on the choice of nodes. Whether groups fit does, so these are looked at.

    Reservations that are due may stand in each other's way, where jobs outlived their requests.
    If nothing runs then and nothing starts, no end would bring another round: all are void.
    """
    at = x.at
    now = at.now
    stuck = False
    if at.void:
        for i in range(count):
            x.plans[x.sequence[i].item].start = NEVER
        at.void = 0
        at.holes += 1
    size = -1
    for i in range(min(count, g.rules.depth)):
        j = x.sequence[i].item
        slot = x.plans[j].start
        if capped(g, x, j):  # it holds no reservation
            if slot < NEVER:
                x.plans[j].start = NEVER
                at.holes += 1
                if size >= 0:
                    size = drop_changes(x, size, j)
                    add_up(g, x, size)
            x.plans[j].planned = -1
            continue
        due = slot <= now
        groups = g.cluster.shapes[g.jobs[j].shape].groups
        if not due and x.plans[j].planned == at.holes and groups == 0:
            continue
        if size < 0:
            size = lay_out(g, x, count)
        at.tests += 1
        pieces = earliest(g, x, b, j, size, NEVER if due else slot)
        stuck = stuck or due
        if pieces == 0:
            if due:
                x.plans[j].start = NEVER
                size = drop_changes(x, size, j)
                add_up(g, x, size)
                at.holes += 1
            x.plans[j].planned = at.holes
            continue
        if slot < NEVER:
            if not (due and at.planned <= now and same_pieces(g, x, j, pieces)):
                at.holes += 1
            size = drop_changes(x, size, j)
        x.plans[j].planned = at.holes
        x.plans[j].start = NEVER
        if at.planned <= now and truly_free(g, x, j, pieces):
            start(g, x, j, pieces)
            if x.jobs[j].expect > now:  # else a limit of nothing
                shift(g, x, referenced(room_of(x.shadow, 0)), TAKEN + j)
                shift_profile(g, x, j, -int64(g.jobs[j].tasks))
                enter_row(x.changes, int64(0), size, x.jobs[j].expect, j)
                size += 1
        else:
            size = plan(g, x, j, pieces, size)
        add_up(g, x, size)
    at.void = int64(stuck and at.running == 0)


@inlined_kernel
def plan(g: Given, x: State, j: int, pieces: int, size: int) -> int:
    """Job j holds the pieces tried from `planned` on; gives the number of changes."""
    job = g.jobs[j]
    time = x.at.planned
    x.plans[j].start = time
    x.promised[j] = min(x.promised[j], time)
    x.jobs[j].pieces = pieces
    p = job.piece_from
    for i in range(pieces):
        n, tasks = int64(x.tried[i].node), int64(x.tried[i].tasks)
        put_piece(x.out, p + i, n, tasks, x.tried[i].mask)
    if job.limit > 0.0:
        enter_row(x.changes, int64(0), size, time, TAKEN + j)
        enter_row(x.changes, int64(0), size + 1, time + job.limit, j)
        size += 2
    return size


@inlined_kernel
def plan_round(g: Given, x: State, b: Beliefs) -> None:
    """One round of conservative backfilling; another one where the first leaves its plan void."""
    if x.at.waiting > 0:
        if g.rules.limits_of_work:
            expected_ends(g, x, b)
        count = keys(g, x)
        if g.rules.anew:
            x.at.void = 1
        conservative(g, x, b, count)
        if x.at.void:
            conservative(g, x, b, count)
    nobody_waits(x)
