"""Compiled parts of the simulation: conservative backfilling, every job with a reservation."""

from __future__ import annotations

from gangwise.core.jit import inlined_kernel, inner_kernel, referenced
from gangwise.jobs import kernels
from gangwise.jobs.fit_kernels import copy_room, take_piece, tasks_in
from gangwise.jobs.kernels import FreeDevices, Inputs, State, int64
from gangwise.jobs.queue_kernels import capped, keys, nobody_waits
from gangwise.jobs.rate_kernels import Beliefs
from gangwise.jobs.start_kernels import arrange, expected_ends, start


@inlined_kernel
def drop_changes(state: State, size: int, j: int) -> int:
    """Forget what is noted of job j."""
    size_after = 0
    for i in range(size):
        # A reservation has two rows, begin and end, of which one has PLAN_TAKES added.
        if (state.changes[i].item & (kernels.PLAN_TAKES - 1)) != j:
            if size_after < i:
                kernels.put(state.changes, size_after, state.changes[i].time, state.changes[i].item)
            size_after += 1
    return size_after


@inner_kernel
def shift(inputs: Inputs, state: State, room: FreeDevices, item: int) -> None:
    """Note one change of what is free."""
    j = item & (kernels.PLAN_TAKES - 1)
    sign = kernels.GIVE_BACK if item < kernels.PLAN_TAKES else kernels.TAKE
    p = inputs.jobs[j].piece_from
    for m in range(p, p + state.jobs[j].pieces):
        # Pieces of a reservation lie where those of a start would: `State.out`.
        take_piece(inputs.cluster, room, int64(inputs.jobs[j].shape), state.out, p, m, sign)


@inlined_kernel
def lower(inputs: Inputs, state: State, j: int) -> None:
    """Where job j takes devices, let what is free throughout be no more than `state.trial`."""
    p = inputs.jobs[j].piece_from
    for m in range(p, p + state.jobs[j].pieces):
        n = state.out[m].node
        # Only nodes that lose devices can have a new minimum.
        for k in range(state.trial.free.shape[1]):
            state.ahead.free[n, k] = min(state.ahead.free[n, k], state.trial.free[n, k])
        for i in range(state.trial.device.shape[1]):
            state.ahead.device[n, i] = min(state.ahead.device[n, i], state.trial.device[n, i])


@inlined_kernel
def shift_profile(inputs: Inputs, state: State, j: int, tasks: int) -> None:
    """So many more tasks of job j are free now, as planned."""
    for k in range(state.total.size):
        state.profile[0, k] += tasks * inputs.cluster.demand[inputs.jobs[j].shape, k]


@inner_kernel
def add_up(inputs: Inputs, state: State, size: int) -> None:
    """`state.profile`: free in all after each change; its first row is given."""
    for i in range(size):
        item = state.changes[i].item
        j = item & (kernels.PLAN_TAKES - 1)
        amount = inputs.jobs[j].tasks if item < kernels.PLAN_TAKES else -inputs.jobs[j].tasks
        s = int64(inputs.jobs[j].shape)
        # Sums over all nodes: a necessary condition only, but one that rules out most instants.
        for k in range(state.profile.shape[1]):
            state.profile[i + 1, k] = state.profile[i, k] + amount * inputs.cluster.demand[s, k]


@inlined_kernel
def enough(inputs: Inputs, state: State, j: int, i: int) -> bool:
    """There are devices enough for job j in all after change i − 1, wherever they are.

    A sum over all nodes says so only while none is less than nothing. With limits of work, a job
    may be expected to end later than it was when its nodes were planned for: not asked there.
    """
    job = inputs.jobs[j]
    if inputs.rules.limits_of_work:
        return True
    s = int64(job.shape)
    # Enough in all is necessary, not sufficient: gangs need it in whole tasks.
    for k in range(state.profile.shape[1]):
        if job.tasks * inputs.cluster.demand[s, k] > state.profile[i, k]:
            return False
    return True


@inlined_kernel
def truly_free(inputs: Inputs, state: State, j: int, pieces: int) -> bool:
    """Whether the devices tried for job j are free now, and not only expected to be."""
    s = int64(inputs.jobs[j].shape)
    able = True
    # All pieces are taken first, because several may be on one node.
    for m in range(pieces):
        n = state.tried[m].node
        take_piece(inputs.cluster, state.room, s, state.tried, 0, m, kernels.TAKE)
        for k in range(state.room.free.shape[1]):
            able = able and state.room.free[n, k] >= 0
        for i in range(state.room.device.shape[1]):
            able = able and state.room.device[n, i] >= 0
    for m in range(pieces):
        take_piece(inputs.cluster, state.room, s, state.tried, 0, m, kernels.GIVE_BACK)
    return able


@inner_kernel
def earliest(
    inputs: Inputs, state: State, beliefs: Beliefs | None, j: int, size: int, before: float
) -> int:
    """First instant before ``before`` from which job j fits for its whole limit, in `planned`.

    Gives the pieces it would have, in `state.tried`; 0 for none. Its own reservation counts as
    free.
    """
    job = inputs.jobs[j]
    limit = job.limit + inputs.rules.security
    planned = referenced(kernels.room_of(state.shadow, 1))
    own = state.plans[j].start
    walked = -1  # changes that are in `state.then`
    i = 0  # changes up to the instant looked at
    time = state.at.now
    while True:
        time = kernels.opens(inputs, j, time)
        if time >= before:
            return 0
        # Changes at the instant itself have happened by then.
        while i < size and state.changes[i].time <= time:
            i += 1
        # Devices in all first: the first moment at which they are too few, until its own begin.
        m = i
        # From its own reservation on it has what it needs, for sure.
        able = enough(inputs, state, j, i) if time < own else True
        while able and m < size:
            moment = state.changes[m].time
            if moment >= time + limit or moment >= own:
                break
            while m < size and state.changes[m].time == moment:
                m += 1
            able = enough(inputs, state, j, m)
        # Enough in all throughout: now it is asked node by node.
        if able:
            if walked < 0:
                copy_room(referenced(kernels.room_of(state.shadow, 0)), planned)
                walked = 0
            # `planned` is walked forward only; the job's own reservation is passed over.
            while walked < i:
                if (state.changes[walked].item & (kernels.PLAN_TAKES - 1)) != j:
                    shift(inputs, state, planned, state.changes[walked].item)
                walked += 1
            # It must fit at the instant itself before the whole stretch is asked for.
            if tasks_in(inputs, state, planned, j) >= job.tasks:
                lowest(inputs, state, j, i, size, time + limit)
                pieces = arrange(inputs, state, beliefs, state.ahead, j)
                if pieces > 0:
                    state.at.planned = time
                    return pieces
            m = i
        # Until devices in all are enough again, nothing need be looked at.
        while True:
            if m >= size:
                return 0
            time = state.changes[m].time
            while m < size and state.changes[m].time == time:
                m += 1
            if time >= own or enough(inputs, state, j, m):
                break


@inlined_kernel
def lowest(inputs: Inputs, state: State, j: int, low: int, size: int, until: float) -> None:
    """Fill `state.ahead` with what stays free from shadow 1 on, until ``until``."""
    copy_room(referenced(kernels.room_of(state.shadow, 1)), state.ahead)
    copy_room(referenced(kernels.room_of(state.shadow, 1)), state.trial)
    m = low
    # What is given back in between may be taken again: the minimum counts, at each node that a job
    # takes from.
    while m < size and state.changes[m].time < until:
        item = state.changes[m].item
        if (item & (kernels.PLAN_TAKES - 1)) != j:
            shift(inputs, state, state.trial, item)
            if item >= kernels.PLAN_TAKES:
                lower(inputs, state, item - kernels.PLAN_TAKES)
        m += 1


@inlined_kernel
def same_pieces(inputs: Inputs, state: State, j: int, pieces: int) -> bool:
    """Whether the pieces that were tried are those that job j has reserved."""
    # A start on other pieces than reserved gives those up: a hole.
    if state.jobs[j].pieces != pieces:
        return False
    p = inputs.jobs[j].piece_from
    for m in range(pieces):
        if (
            state.out[p + m].node != state.tried[m].node
            or state.out[p + m].tasks != state.tried[m].tasks
            or state.out[p + m].mask != state.tried[m].mask
        ):
            return False
    return True


@inlined_kernel
def kamelot_ends(inputs: Inputs, state: State) -> None:
    """Ends of running jobs as Kamelot reads them, in `state.changes`.

    See :func:`.queues.kamelot_ends`.

    Rows are in the order of submission, so that ties of starts are taken in that order.
    """
    for i in range(state.at.running):
        kernels.put(state.changes, i, state.jobs[state.running[i]].begun, state.running[i])
    kernels.merge_sort(state.changes, state.spare_rows, 0, state.at.running)
    soonest = latest = state.at.now
    moved = False
    for i in range(state.at.running):
        j = state.changes[i].item
        end = state.jobs[j].expect + inputs.rules.security
        if end > state.at.now:
            if soonest <= state.at.now:
                soonest = latest = end
            elif end >= latest:
                latest, moved = end, True
            else:
                soonest = end = min(end, soonest)
                if not moved:
                    latest = end
        kernels.put(state.changes, i, end, j)


@inner_kernel
def lay_out(inputs: Inputs, state: State, count: int) -> int:
    """All changes of what is free that are planned for, in order; their number."""
    at = state.at
    if inputs.rules.anew:
        kamelot_ends(inputs, state)
    else:
        for i in range(at.running):
            kernels.put(state.changes, i, state.jobs[state.running[i]].expect, state.running[i])
    shadow = referenced(kernels.room_of(state.shadow, 0))
    # Shadow 0 is what is free now, with what should have ended by now.
    copy_room(state.room, shadow)
    for k in range(state.total.size):
        state.profile[0, k] = state.total[k]
    size = 0
    for i in range(at.running):
        time, j = state.changes[i].time, state.changes[i].item
        if time <= at.now:  # past its request: expected to end now
            shift(inputs, state, shadow, j)
            shift_profile(inputs, state, j, int64(inputs.jobs[j].tasks))
        else:
            kernels.put(state.changes, size, time, j)
            size += 1
    for i in range(count):
        j = state.sequence[i].item
        slot, limit = state.plans[j].start, inputs.jobs[j].limit + inputs.rules.security
        if slot == kernels.NEVER or limit <= 0.0 or slot + limit <= at.now:
            continue
        kernels.put(state.changes, size, max(slot, at.now), kernels.PLAN_TAKES + j)
        kernels.put(state.changes, size + 1, slot + limit, j)
        size += 2
    kernels.merge_sort(state.changes, state.spare_rows, 0, size)
    add_up(inputs, state, size)
    return size


@inner_kernel
def conservative(inputs: Inputs, state: State, beliefs: Beliefs | None, count: int) -> None:
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
    at, now, stuck = state.at, state.at.now, False
    # Nodes came or went, or due reservations were in each other's way: all are made anew.
    if at.void:
        for i in range(count):
            state.plans[state.sequence[i].item].start = kernels.NEVER
        at.void = 0
        at.holes += 1
    size = -1
    for i in range(min(count, inputs.rules.depth)):
        j = state.sequence[i].item
        slot = state.plans[j].start
        if capped(inputs, state, j):  # it holds no reservation
            if slot < kernels.NEVER:
                state.plans[j].start = kernels.NEVER
                at.holes += 1
                if size >= 0:
                    size = drop_changes(state, size, j)
                    add_up(inputs, state, size)
            state.plans[j].planned = -1
            continue
        # Its time has come: it starts if devices are there, or else looks for another time.
        due = slot <= now
        groups = inputs.cluster.shapes[inputs.jobs[j].shape].groups
        # Nothing was given up since it last looked: the same answer is due, see above.
        if not due and state.plans[j].planned == at.holes and groups == 0:
            continue
        if size < 0:
            size = lay_out(inputs, state, count)
        at.tests += 1
        # Before the slot that it has; anything will do for one that is due.
        pieces = earliest(inputs, state, beliefs, j, size, kernels.NEVER if due else slot)
        stuck = stuck or due
        if pieces == 0:  # nothing sooner than what it has
            if due:
                state.plans[j].start = kernels.NEVER
                size = drop_changes(state, size, j)
                add_up(inputs, state, size)
                at.holes += 1
            state.plans[j].planned = at.holes
            continue
        if slot < kernels.NEVER:
            # Unless it starts exactly as planned, others may use what it gives up.
            if not (due and at.planned <= now and same_pieces(inputs, state, j, pieces)):
                at.holes += 1
            size = drop_changes(state, size, j)
        state.plans[j].planned = at.holes
        state.plans[j].start = kernels.NEVER
        # Free by the plan is not enough: a job past its request may still be there.
        if at.planned <= now and truly_free(inputs, state, j, pieces):
            start(inputs, state, j, pieces)
            end = state.jobs[j].expect + inputs.rules.security
            if end > now:  # else a limit of nothing
                shift(
                    inputs,
                    state,
                    referenced(kernels.room_of(state.shadow, 0)),
                    kernels.PLAN_TAKES + j,
                )
                shift_profile(inputs, state, j, -int64(inputs.jobs[j].tasks))
                kernels.enter_row(state.changes, int64(0), size, end, j)
                size += 1
        else:
            size = plan(inputs, state, j, pieces, size)
        add_up(inputs, state, size)
    # Without a running job no end would come: the caller asks once more, with an empty plan.
    at.void = int64(stuck and at.running == 0)


@inlined_kernel
def plan(inputs: Inputs, state: State, j: int, pieces: int, size: int) -> int:
    """Job j holds the pieces tried from `planned` on; gives the number of changes."""
    job = inputs.jobs[j]
    time = state.at.planned
    state.plans[j].start = time
    # The earliest reservation ever made for it: an audit holds the start against it.
    state.promised[j] = min(state.promised[j], time)
    state.jobs[j].pieces = pieces
    p = job.piece_from
    for i in range(pieces):
        n, tasks = int64(state.tried[i].node), int64(state.tried[i].tasks)
        kernels.put_piece(state.out, p + i, n, tasks, state.tried[i].mask)
    limit = job.limit + inputs.rules.security
    if limit > 0.0:
        kernels.enter_row(state.changes, int64(0), size, time, kernels.PLAN_TAKES + j)
        kernels.enter_row(state.changes, int64(0), size + 1, time + limit, j)
        size += 2
    return size


@inlined_kernel
def plan_round(inputs: Inputs, state: State, beliefs: Beliefs | None) -> None:
    """One round of conservative backfilling; another one where the first leaves its plan void."""
    if state.at.waiting > 0:
        if beliefs is not None and inputs.rules.limits_of_work:
            expected_ends(inputs, state, beliefs)
        count = keys(inputs, state)
        # OAR plans anew in each round, so all reservations are void beforehand.
        if inputs.rules.anew:
            state.at.void = 1
        conservative(inputs, state, beliefs, count)
        if state.at.void:
            conservative(inputs, state, beliefs, count)
    nobody_waits(state)
