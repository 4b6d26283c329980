"""Compiled parts of the simulation: rounds of decisions, with EASY's promise or with a plan.

``play`` runs every combination of built-in parts.
"""

from __future__ import annotations

import math

from gangwise.core.arrays import Bools
from gangwise.core.jit import inlined_kernel, inner_kernel, lean_kernel, referenced
from gangwise.jobs import kernels, queue_kernels, start_kernels
from gangwise.jobs.conservative_kernels import plan_round
from gangwise.jobs.event_kernels import (
    DONE,
    MORE_ROOM,
    PAUSED,
    WHY_PREEMPTED,
    advance,
    interrupt,
    measure_again,
)
from gangwise.jobs.fit_kernels import copy_room, fits, take_piece, tasks_in
from gangwise.jobs.kernels import FreeDevices, Inputs, Rows, State, int64
from gangwise.jobs.rate_kernels import Beliefs, migrate, remaining
from gangwise.jobs.run_times import corrected

__all__ = ["DONE", "MORE_ROOM", "play"]

BY_RANK, BY_KEY, ONLY_FRESH = range(3)
"""Ways through the jobs that wait: an order that stays, keys that change, those that joined."""


# --------------------------------------------------------------------------------- EASY's promise


@inner_kernel
def shift_shadow(
    inputs: Inputs,
    room: FreeDevices,
    h: int,
    allowed: Bools,
    s: int,
    pieces: Rows,
    first: int,
    i: int,
    sign: int,
    counts: bool,
) -> int:
    """Move piece i of a job of shape s in a room; how many more tasks of shape h fit by it.

    ``allowed`` [N]: the nodes that tasks of shape h may use. Without ``counts``, and of groups: 0.
    """
    n = int64(pieces[i].node)
    # Only node n changes, so the difference there is the difference of the whole room.
    counts = counts and allowed[n] and inputs.cluster.shapes[h].groups == 0
    fitting = fits(inputs.cluster, room, h, n) if counts else 0
    take_piece(inputs.cluster, room, s, pieces, first, i, sign)
    return int(fits(inputs.cluster, room, h, n) - fitting) if counts else 0


@inlined_kernel
def correct(inputs: Inputs, state: State) -> bool:
    """Correct the expected ends that running jobs have outlived; whether there were any."""
    at = state.at
    size = at.entered
    i = 0
    # Rows are in order: those outlived are in front, and corrected ones are entered behind.
    while i < size and state.order[i].time <= at.now:
        j = state.order[i].item
        elapsed = at.now - state.jobs[j].begun
        end = state.jobs[j].begun + corrected(state.times, j, elapsed)
        if end > state.jobs[j].expect:
            state.jobs[j].expect = end  # by which the old entry no longer holds
            kernels.put(state.order, at.entered, end, j)
            at.entered += 1
        i += 1
    at.outlived = state.order[i].time if i < size else kernels.NEVER
    for m in range(size, at.entered):
        at.outlived = min(at.outlived, state.order[m].time)
    return bool(at.entered > size)


@inlined_kernel
def give_back(inputs: Inputs, state: State, room: FreeDevices, j: int, o: int, counts: bool) -> int:
    """Running job o gives its devices back in a room.

    Gives how many more tasks of job j fit by it, where that counts.
    """
    h, s = int64(inputs.jobs[j].shape), int64(inputs.jobs[o].shape)
    allowed = inputs.cluster.allowed[inputs.cluster.shapes[h].constraint]
    p = inputs.jobs[o].piece_from
    freed = 0
    for m in range(p, p + state.jobs[o].pieces):
        freed += shift_shadow(
            inputs, room, h, allowed, s, state.out, p, m, kernels.GIVE_BACK, counts
        )
    return freed


@inlined_kernel
def counted_anew(inputs: Inputs, state: State, room: FreeDevices, have: int, j: int) -> int:
    """How many tasks of job j fit in a room: ``have``, if they were counted and it has no groups.

    What was counted before, moves of pieces corrected; of groups nothing was.
    """
    groups = inputs.cluster.groups is not None
    if have >= 0 and not (groups and inputs.cluster.shapes[inputs.jobs[j].shape].groups > 0):
        return have
    return tasks_in(inputs, state, room, j)


@inner_kernel
def promise(inputs: Inputs, state: State, q: int, j: int, ends: Rows, size: int) -> None:
    """Make promise q: the first instant at which job j fits if running jobs end as ends[:size] say.

    These are in order. One whose hours are closed then starts when they open. A start that is kept
    (:func:`keep_from`) is no earlier than it was. Leaves in the promise's room what is free at that
    instant. What first jobs in line of other pools will take is not reckoned with.
    """
    now = instant = state.at.now
    room = referenced(kernels.room_of(state.shadow, q))
    copy_room(state.room, room)
    # While fewer devices are free in all than job j asks for, none of its tasks need be counted.
    fitting, needed = -1, taken_by(inputs, j, j)
    free = state.total[inputs.cluster.shapes[inputs.jobs[j].shape].dominant]
    time = kernels.NEVER
    i = 0
    # From end to end. Once the start is known the walk goes on to it, so that the room is what is
    # free then.
    while instant <= time and instant < kernels.NEVER:
        while i < size and max(ends[i].time, now) == instant:
            fitting += give_back(inputs, state, room, j, ends[i].item, fitting >= 0)
            free += taken_by(inputs, ends[i].item, j)
            i += 1
        # Groups cannot be counted by differences: they are placed anew at every instant.
        if free >= needed:
            fitting = counted_anew(inputs, state, room, fitting, j)
        # At once only if its hours are closed: else it has just been refused, though by room.
        waits = i == 0 and kernels.opens(inputs, j, now) <= now
        if time == kernels.NEVER and fitting >= inputs.jobs[j].tasks and not waits:
            time = kernels.opens(inputs, j, instant)
            if state.kept is not None and q >= state.heads.size:
                time = keep_from(inputs, state, j, time)
        if i == size:
            break
        instant = max(ends[i].time, now)
    state.promises[q].time = time
    state.promises[q].fits = fitting
    state.promises[q].spare = left_beside(inputs, room, j)


@inlined_kernel
def left_beside(inputs: Inputs, room: FreeDevices, j: int) -> int:
    """Thousandths of its dominant device type that job j leaves in a room, if it may use it all."""
    s = int64(inputs.jobs[j].shape)
    shape = inputs.cluster.shapes[s]
    left = -taken_by(inputs, j, j)
    for n in range(room.free.shape[0]):
        if shape.groups > 0 or not inputs.cluster.allowed[shape.constraint, n]:
            return kernels.UNKNOWN
        left += max(room.free[n, shape.dominant], 0)
    return int(left)


@inlined_kernel
def taken_by(inputs: Inputs, j: int, head: int) -> int:
    """Thousandths that job j takes of the dominant device type of another."""
    k = inputs.cluster.shapes[inputs.jobs[head].shape].dominant
    return int(inputs.jobs[j].tasks * inputs.cluster.demand[inputs.jobs[j].shape, k])


@inlined_kernel
def keep_from(inputs: Inputs, state: State, j: int, instant: float) -> float:
    """The start kept for job j, which can start at that instant.

    It is set when the job is first in line for the first time: `slack` seconds later, but no more
    than as long again as it will have waited then. Afterwards it is later only if a job takes
    longer than it asked for.
    """
    if state.kept[j] == kernels.NEVER:
        # A short wait promises little: the slack grows with the wait, up to `slack`.
        late = instant + min(inputs.rules.slack, instant - inputs.jobs[j].submit)
        state.kept[j] = kernels.opens(inputs, j, late)
    return float(max(state.kept[j], instant))


@inner_kernel
def reserve(inputs: Inputs, state: State, p: int, j: int) -> None:
    """EASY: promise job j, the first in line of pool p, a start by the ends that are expected."""
    at = state.at
    start_kernels.put_in_order(state)
    if state.times is not None and state.times.expected.size > 0 and correct(inputs, state):
        start_kernels.put_in_order(state)
    promise(inputs, state, p, j, state.order, at.entered)
    at.promised = min(at.promised, state.promises[p].time)


@inlined_kernel
def make_due(inputs: Inputs, state: State, q: int) -> None:
    """Make promise q now if :func:`hold_for` has put it off: nothing has started since."""
    P = state.heads.size
    p = q if q < P else q - P
    if inputs.rules.backfilling == kernels.EASY and state.promises[q].time < 0.0:
        if q < P:
            reserve(inputs, state, p, int64(state.heads[p]))
        elif state.kept is not None:
            keep_start(inputs, state, p, int64(state.heads[p]))


@inner_kernel
def keep_start(inputs: Inputs, state: State, p: int, j: int) -> None:
    """The latest start that is kept for job j, first in line of pool p, if requests are true."""
    at, now = state.at, state.at.now
    q = state.heads.size + p
    promised, fit = state.kept[j], 0
    if (
        promised < kernels.NEVER and kernels.opens(inputs, j, now) <= now
    ):  # set before: enough end by then, as a rule
        room = referenced(kernels.room_of(state.shadow, q))
        copy_room(state.room, room)
        # Everything whose request ends by then is given back, in any order: only the sum matters.
        for i in range(at.running):
            o = state.running[i]
            if max(state.jobs[o].begun + state.times.request[o], now) <= promised:
                give_back(inputs, state, room, j, o, False)
        fit = tasks_in(inputs, state, room, j)
    if fit >= inputs.jobs[j].tasks:
        state.promises[q].time = promised
        state.promises[q].fits = fit
    else:
        # It is not enough, or nothing is kept yet: the promise is made anew, by requests instead of
        # expectations.
        for i in range(at.running):
            o = state.running[i]
            kernels.put(state.changes, i, state.jobs[o].begun + state.times.request[o], o)
        kernels.merge_sort(state.changes, state.spare_rows, 0, at.running)
        promise(inputs, state, q, j, state.changes, at.running)
    at.kept = min(at.kept, state.promises[q].time)


@inlined_kernel
def keeps_promise(
    inputs: Inputs, state: State, room: FreeDevices, have: int, j: int, count: int, head: int
) -> int:
    """EASY: how many tasks of the first in line fit in a room after job j on the pieces tried.

    If those are enough, the room is without these pieces; else it is as it was, and −1.
    """
    s, h = int64(inputs.jobs[j].shape), int64(inputs.jobs[head].shape)
    allowed = inputs.cluster.allowed[inputs.cluster.shapes[h].constraint]
    # Job j runs past the promise, so its devices are missing then.
    for i in range(count):
        have += shift_shadow(inputs, room, h, allowed, s, state.tried, 0, i, kernels.TAKE, True)
    have = counted_anew(inputs, state, room, have, head)
    if have >= inputs.jobs[head].tasks:
        return have
    give_up(inputs, state, room, j, count)
    return -1


@inlined_kernel
def give_up(inputs: Inputs, state: State, room: FreeDevices, j: int, count: int) -> None:
    """Undo what :func:`keeps_promise` took: job j does not start."""
    for i in range(count):
        take_piece(
            inputs.cluster, room, int64(inputs.jobs[j].shape), state.tried, 0, i, kernels.GIVE_BACK
        )


@inner_kernel
def hold_for(inputs: Inputs, state: State, beliefs: Beliefs | None, j: int, p: int) -> bool:
    """Job j is the first of line p that cannot start; whether jobs behind it are tried.

    What it is promised is kept as a promise where no pool that shares its nodes has one already:
    the first in line there may take them before.
    """
    alone = True
    for q in range(state.heads.size):
        alone = alone and not (state.heads[q] >= 0 and inputs.cluster.meets[q, p])
    if state.at.first < 0:
        state.at.first = j
    state.heads[p] = j
    # With not even room for the smallest task nobody can pass, and a promise need not be made yet.
    filled = full(inputs, state)
    if state.kept is not None and state.kept.size > 0:
        if state.kept[j] == kernels.NEVER:
            keep_start(inputs, state, p, j)
        elif not filled:
            state.promises[state.heads.size + p].time = -1.0  # made when it is needed
            state.at.kept = min(state.at.kept, state.kept[j])
    if inputs.rules.backfilling != kernels.EASY or filled:
        state.at.promised = -1.0  # made when it is needed
        state.promises[p].time = -1.0
        if inputs.rules.backfilling == kernels.EASY:
            state.at.again = 1
        return inputs.rules.backfilling != kernels.EASY and state.heads.size > 1
    # Limits of work end by the rates seen so far, which have moved since the last promise.
    if beliefs is not None and inputs.rules.limits_of_work:
        start_kernels.expected_ends(inputs, state, beliefs)
    state.at.change += 1
    # What is expected is no promise to users, and nothing expected has been outlived.
    expected = state.times is not None and state.times.expected.size > 0
    put_off = inputs.rules.waits and expected and not inputs.rules.limits_of_work
    if put_off and state.at.now < state.at.outlived:
        state.promises[p].time = -1.0
        return True
    reserve(inputs, state, p, j)
    # A first in line of another pool on these nodes might be faster, so this time is no promise to
    # users.
    if alone:
        state.promised[j] = min(state.promised[j], state.promises[p].time)
    return True


@inlined_kernel
def blocked(inputs: Inputs, state: State, j: int) -> bool:
    """Without backfilling: a job in front of job j cannot start, of a pool that shares its nodes.

    In a cluster without pools nobody is asked: the round ends with the first that cannot start.
    """
    if inputs.rules.backfilling != kernels.NO_BACKFILLING:
        return False
    q = kernels.pool_of(inputs, j)
    for p in range(state.heads.size):  # noqa: SIM110 - generators do not compile
        if state.heads[p] >= 0 and inputs.cluster.meets[p, q]:
            return True
    return False


@inlined_kernel
def is_past(inputs: Inputs, state: State, q: int, j: int, end: float) -> bool:
    """Job j, if it ends then, is past promise q; of starts that are kept, if its request is true.

    Pools that share no node do not touch one another's promises.
    """
    P = state.heads.size
    p = q if q < P else q - P
    if state.heads[p] < 0:
        return False
    if state.kept is not None and q >= P:
        end = state.at.now + state.times.request[j]
    past = end > state.promises[q].time
    return bool(past and (P == 1 or inputs.cluster.meets[p, kernels.pool_of(inputs, j)]))


@inner_kernel
def delayed_by(inputs: Inputs, state: State, j: int, count: int, end: float) -> int:
    """The first promise that job j breaks on the pieces tried, −1 for none.

    If there is none, the rooms of those that it is past are without these pieces.
    """
    P = state.heads.size
    # EASY's condition, for each promise: the job ends before it, or leaves enough for it.
    for q in range(state.promises.size):
        make_due(inputs, state, q)
        if is_past(inputs, state, q, j, end):
            head, fitting = state.heads[q if q < P else q - P], state.promises[q].fits
            remaining = keeps_promise(
                inputs, state, referenced(kernels.room_of(state.shadow, q)), fitting, j, count, head
            )
            state.promises[q].left = remaining
            if remaining < 0:
                # Promises before this one gave their devices already: they get them back.
                undo(inputs, state, j, count, end, q)
                return q
    return -1


@inner_kernel
def undo(inputs: Inputs, state: State, j: int, count: int, end: float, promises: int) -> None:
    """Undo what :func:`delayed_by` took in the rooms of the first ``promises`` of them."""
    for q in range(promises):
        if is_past(inputs, state, q, j, end):
            give_up(inputs, state, referenced(kernels.room_of(state.shadow, q)), j, count)


@inlined_kernel
def settle(inputs: Inputs, state: State, j: int, end: float) -> None:
    """Job j starts, and what :func:`delayed_by` took stays taken."""
    if state.at.first < 0:
        return
    for q in range(state.promises.size):
        if is_past(inputs, state, q, j, end):
            promise = state.promises[q]
            promise.fits = promise.left
            head = state.heads[q if q < state.heads.size else q - state.heads.size]
            promise.spare -= taken_by(inputs, j, head)


@inlined_kernel
def full(inputs: Inputs, state: State) -> bool:
    """Not even the smallest task fits.

    Every task asks for at least `least` of each device type, and `state.total` is never less than
    what is free in all: so no task of any waiting job fits anywhere.
    """
    for k in range(state.total.size):  # noqa: SIM110 - generators do not compile
        if state.total[k] < inputs.least[k]:
            return True
    return False


# ------------------------------------------------------------------------------ shortcuts of rounds


@inner_kernel
def only_joined(inputs: Inputs, state: State, fresh: int) -> bool:
    """Nothing changed but submissions, behind the first in line: those tried before fail again.

    Of the jobs tried before,

    - one that did not fit does not fit now: since then devices were taken and none given back, and
      whether a gang fits does not depend on the choice of nodes;
    - one that fits and would have delayed the first in line is asked on the same free devices,
      against the same promise, and so gets the same answer. A job that starts behind it changes
      which nodes the choice picks for it: that start sets `again`. FGD counts submitted tasks, so
      that a submission alone changes its choice: not where any was refused;
    - one that a cap kept from starting is kept so: what counts in a cap was only taken since. If
      a cap holds the first in line now, nothing is kept for it any more.

    The promise itself stays: what starts behind the first in line ends before it or leaves room at
    it, and a promise in the past is made anew. With pools, all this holds of each pool's first.
    """
    at, r = state.at, inputs.rules
    if (
        at.again != 0
        or at.first < 0
        or (r.keyed and not queue_kernels.line_stays(inputs))
        or at.now >= at.outlived
        or at.now > at.kept
        or (r.shortest and (at.refused != 0 or state.heads.size > 1))
        or r.limits_of_work
        or r.waits
        or (r.rates != kernels.LABELS and r.backfilling != kernels.NO_BACKFILLING)
        or (r.choice == kernels.FGD and at.refused != 0)
        or fresh > state.fresh.size
        or (r.backfilling == kernels.EASY and (at.promised < at.now or at.waiting > r.depth))
    ):
        return False
    # The first of a pool must still be the first: nobody who joined may stand in front of it.
    for p in range(state.heads.size):
        if state.heads[p] >= 0:
            if queue_kernels.capped(inputs, state, state.heads[p]):
                return False
            for i in range(fresh):
                if queue_kernels.before(
                    inputs, state, inputs.by_rank[state.fresh[i]], state.heads[p]
                ):
                    return False
    return True


@inlined_kernel
def kind_of(inputs: Inputs, beliefs: Beliefs | None, j: int) -> int:
    """What beside shape and tasks decides where job j goes: its type, and whether it is short."""
    job = inputs.jobs[j]
    if beliefs is None or inputs.rules.choice != kernels.BY_RATE:
        return 0
    return int(2 * job.type + (job.limit < beliefs.constants.short))


@inlined_kernel
def place_of(inputs: Inputs, kind: int, j: int) -> int:
    """Where in `x.delays` a refusal of job j is noted."""
    job = inputs.jobs[j]
    return int((37 * job.shape + 11 * job.tasks + kind) & (kernels.DELAYS - 1))


@inlined_kernel
def surely_delays(inputs: Inputs, state: State, j: int) -> bool:
    """Job j would delay the first of its pool on whatever nodes: it takes more than is spare."""
    p = kernels.pool_of(inputs, j)
    head = state.heads[p]
    # Limits of work end when the rate says, and that depends on the nodes.
    if head < 0 or inputs.rules.limits_of_work or not start_kernels.may_fit(inputs, state, j):
        return False
    make_due(inputs, state, p)
    past = is_past(inputs, state, p, j, state.at.now + kernels.length(inputs, state, j))
    return bool(past and taken_by(inputs, j, head) > state.promises[p].spare)


@inlined_kernel
def surely_waits(inputs: Inputs, state: State, j: int) -> int:
    """1 if job j waits, whoever else starts in this round, and need not be put in order; else 0.

    What does not fit will not once others have taken devices. Groups are asked again, and where
    backfilling looks at no more than `depth` jobs, those who do not fit count as well.
    """
    groups = inputs.cluster.shapes[inputs.jobs[j].shape].groups > 0
    if groups or state.at.waiting > inputs.rules.depth:
        return 0
    return int(not start_kernels.may_fit(inputs, state, j))


@inlined_kernel
def refused_alike(inputs: Inputs, state: State, kind: int, j: int) -> bool:
    """Job j would be refused like one of its shape, tasks and kind that was refused before.

    `change` is as it was: so are free devices, the promise, what is left at it, and, in learned
    rates, prices. The choice of nodes depends on these and on shape, tasks, job type and whether
    the limit is short; so it picks the same nodes, and only the end of job j may differ.
    """
    job = inputs.jobs[j]
    tried = state.delays[place_of(inputs, kind, j)]
    return bool(
        tried.change == state.at.change
        and tried.shape == job.shape
        and tried.tasks == job.tasks
        and tried.type == kind
        and state.at.now + kernels.length(inputs, state, j) / tried.rate > tried.promised
    )


@inlined_kernel
def note_refused(inputs: Inputs, state: State, kind: int, j: int, rate: float, p: int) -> None:
    """Remember that job j, at this rate, would delay the first in line of pool p."""
    job = inputs.jobs[j]
    tried = state.delays[place_of(inputs, kind, j)]
    tried.shape = job.shape
    tried.tasks = job.tasks
    tried.type = kind
    tried.change = state.at.change
    tried.rate = rate
    tried.promised = state.promises[p].time
    state.at.refused = 1


# -------------------------------------------------------------------------- a round without a plan


@inner_kernel
def line_up(inputs: Inputs, state: State) -> tuple[int, int, int]:
    """Who is tried in this round: the way through them, their number, the first rank."""
    at = state.at
    fresh = at.fresh
    at.fresh = 0
    if state.standing is not None and queue_kernels.line_stays(inputs):
        queue_kernels.stand_in_line(inputs, state, fresh)
    # Only those who joined are looked at: without backfilling in one pool not even they.
    if only_joined(inputs, state, fresh):
        if inputs.rules.backfilling != kernels.EASY and state.heads.size == 1:
            return ONLY_FRESH, 0, -1
        if inputs.rules.shortest:
            for i in range(fresh):
                kernels.put(state.sequence, i, 0.0, inputs.by_rank[state.fresh[i]])
            queue_kernels.shortest_first(inputs, state, 0, fresh)
            return BY_KEY, fresh, -1
        # Insertion sort: they are few, and mostly in order.
        for i in range(1, fresh):
            rank = state.fresh[i]
            m = i
            while m > 0 and queue_kernels.before(
                inputs, state, inputs.by_rank[rank], inputs.by_rank[state.fresh[m - 1]]
            ):
                state.fresh[m] = state.fresh[m - 1]
                m -= 1
            state.fresh[m] = rank
        return ONLY_FRESH, fresh, -1
    # A whole round: what the last one knew is forgotten.
    at.again = at.refused = 0
    at.first = -1
    at.promised = at.kept = kernels.NEVER
    for p in range(state.heads.size):
        state.heads[p] = -1
    for q in range(state.promises.size):
        state.promises[q].time = kernels.NEVER
    if inputs.rules.keyed:
        return (
            BY_KEY,
            at.lined if queue_kernels.line_stays(inputs) else queue_kernels.keys(inputs, state),
            -1,
        )
    return BY_RANK, 0, max(kernels.smallest(state.words, state.summary, at), 0)


@inlined_kernel
def next_in_line(
    inputs: Inputs, state: State, way: int, i: int, count: int, rank: int, last: int
) -> tuple[int, int, int]:
    """The job tried next, −1 for none; and how many were tried, and the rank behind it.

    Job ``last`` was looked at, −1 for none: it brings back the next of its claim that is aside.
    """
    if inputs.caps is not None and last >= 0 and inputs.caps.most.size > 0:
        queue_kernels.follow(inputs, state, int64(inputs.jobs[last].claim))
    # Jobs that a cap held may have come back into the line in the meantime.
    if way == BY_KEY and queue_kernels.line_stays(inputs):
        count = int64(state.at.lined)
    if way == BY_RANK:
        rank = kernels.following(state.words, state.summary, state.at, rank)
        if rank < 0:
            return -1, i, rank
        return inputs.by_rank[rank], i, rank + 1
    if i >= count:
        return -1, i, rank
    return (
        inputs.by_rank[state.fresh[i]] if way == ONLY_FRESH else state.sequence[i].item,
        i + 1,
        rank,
    )


@inlined_kernel
def passed_over(inputs: Inputs, state: State, j: int) -> bool:
    """Job j has left the line, or does so now, for a cap holds it."""
    run = state.jobs[j]
    in_line = run.phase == kernels.WAITING and run.place == kernels.IN_LINE
    if queue_kernels.line_stays(inputs) and not in_line:
        return True
    if inputs.caps is None or not queue_kernels.capped(inputs, state, j):
        return False
    queue_kernels.put_aside(inputs, state, j)
    return True


@inner_kernel
def held_while_closed(inputs: Inputs, state: State, beliefs: Beliefs | None, j: int) -> bool:
    """Whether the round goes on after job j, whose hours are closed: EASY keeps devices for it."""
    p = kernels.pool_of(inputs, j) + (state.heads.size >> 1)  # the line of those that are closed
    easy = inputs.rules.backfilling == kernels.EASY and state.heads[p] < 0
    return not easy or hold_for(inputs, state, beliefs, j, p)


@inlined_kernel
def rate_of_limit(inputs: Inputs, state: State, pieces: int) -> float:
    """The rate at which a limit in units of work runs down on the pieces tried; 1 for seconds."""
    if inputs.rules.limits_of_work and inputs.rules.choice == kernels.BY_RATE:
        return math.exp(start_kernels.slowest(state, state.tried, 0, pieces) - state.at.slower)
    return 1.0


@inlined_kernel
def try_all_behind(
    inputs: Inputs, state: State, j: int, way: int, i: int, count: int, rank: int
) -> tuple[int, int, int, int]:
    """Way, place, number and rank with which a round goes on behind job j, which starts.

    Where only those who joined were tried, all behind job j are.
    """
    if way != ONLY_FRESH:
        return way, i, count, rank
    if state.standing is not None and queue_kernels.line_stays(inputs):
        return BY_KEY, queue_kernels.behind(inputs, state, j), int64(state.at.lined), rank
    return BY_RANK, i, count, int64(inputs.jobs[j].rank) + 1


@inlined_kernel
def decide(inputs: Inputs, state: State, beliefs: Beliefs | None) -> None:
    """One round of decisions: start in order until one of a pool cannot; then backfill.

    Where the shortest pass first, those behind the first of their pool that cannot start are put
    aside in `state.sequence`, which is not read any more where they are put, and tried at the end.
    """
    at = state.at
    way, count, rank = line_up(inputs, state)
    passing = not inputs.rules.shortest or at.first >= 0
    tested = i = aside = 0
    looked_at = -1
    while True:
        j, i, rank = next_in_line(inputs, state, way, i, count, rank, looked_at)
        looked_at = -1
        # The line is through. Those put aside come now, the shortest first, if there are any.
        if j < 0:
            if passing or aside == 0:
                break
            queue_kernels.shortest_first(inputs, state, 0, aside)
            way, i, count, passing = BY_KEY, 0, aside, True
            continue
        if passed_over(inputs, state, j):
            continue
        looked_at = j
        if inputs.hours is not None and kernels.opens(inputs, j, at.now) > at.now:
            if not held_while_closed(inputs, state, beliefs, j):
                break
            continue
        kind = kind_of(inputs, beliefs, j)
        # Somebody in front cannot start, so this job would be backfilled.
        if at.first >= 0:
            if blocked(inputs, state, j):
                continue
            if not passing and state.heads[kernels.pool_of(inputs, j)] >= 0:
                state.sequence[aside].item = j
                aside += 1 - surely_waits(inputs, state, j)
                continue
            if tested >= inputs.rules.depth:
                at.again = 1  # those behind were not tried: they are at the next instant
                break
            # No job fits any more, whatever it asks for.
            if full(inputs, state):
                break
            tested += 1
            if surely_delays(inputs, state, j) or refused_alike(inputs, state, kind, j):
                at.tests += 1
                at.refused = 1
                continue
        pieces = start_kernels.find(inputs, state, beliefs, j)
        if pieces == 0:
            p = kernels.pool_of(inputs, j)
            # From the first of a pool that cannot start on, the others are behind a promise.
            if state.heads[p] < 0 and not hold_for(inputs, state, beliefs, j, p):
                break
            continue
        end = at.now
        if at.first >= 0:
            # Limits of work run down at the rate on these nodes.
            rate = rate_of_limit(inputs, state, pieces)
            end = at.now + kernels.length(inputs, state, j) / rate
            p = delayed_by(inputs, state, j, pieces, end)
            # A start that is kept is asked by requests, so its refusal is not remembered.
            if p >= state.heads.size:
                at.refused = 1
                continue
            if p >= 0:
                note_refused(inputs, state, kind, j, rate, p)
                continue
        # It fits and harms nobody, but does better to wait for faster or nearer nodes.
        if start_kernels.holds_off(inputs, state, beliefs, j, pieces):
            undo(inputs, state, j, pieces, end, state.promises.size)
            continue
        settle(inputs, state, j, end)
        start_kernels.start(inputs, state, j, pieces)
        # Those refused may fit elsewhere now: those behind are tried at once, those in front at the
        # next instant.
        if at.refused != 0:
            at.again = 1
            way, i, count, rank = try_all_behind(inputs, state, j, way, i, count, rank)


# ---------------------------------------------------------------------------------- the whole play


@inner_kernel
def look_around(inputs: Inputs, state: State, beliefs: Beliefs) -> None:
    """Running jobs are measured again; while nobody waits, they move where that saves time."""
    at = state.at
    count = measure_again(inputs, state, beliefs)
    # Free devices belong to those who wait.
    if at.waiting > 0:
        return
    for m in range(count):
        j = state.sequence[m].item
        rate = state.looks[j].seen
        worked = start_kernels.work_done(inputs, state, j)
        limit, restart = inputs.jobs[j].limit, inputs.rules.restart
        # What is left to do is shorter than a restart takes.
        if remaining(beliefs, limit, worked) <= rate * restart:
            continue
        pieces = start_kernels.arrange(inputs, state, beliefs, state.room, j)
        if pieces == 0:
            continue
        p = inputs.jobs[j].piece_from
        current = start_kernels.slowest(state, state.out, p, p + state.jobs[j].pieces)
        proposed = kernels.NEVER
        # A cautious rate: the mean less some standard deviations, so that doubt does not move jobs.
        for i in range(pieces):
            n = state.tried[i].node
            proposed = min(proposed, state.mean[n] - beliefs.constants.caution * state.sd[n])
        if beliefs.near is not None:
            proposed -= at.slower
            current -= start_kernels.believed_slowdown(
                inputs, beliefs, j, state.out, p, p + state.jobs[j].pieces
            )
        log_rate = math.log(rate)
        if migrate(beliefs, limit, worked, log_rate, log_rate + proposed - current, restart):
            interrupt(inputs, state, beliefs, j, int64(WHY_PREEMPTED))
            state.looks[j].before = worked
            start_kernels.start(inputs, state, j, pieces)
    at.fresh = 0


@lean_kernel
def play(inputs: Inputs, state: State, beliefs: Beliefs | None, instants: int) -> int:
    """Run up to ``instants`` instants. Gives DONE, PAUSED or MORE_ROOM."""
    at = state.at
    for _ in range(instants):
        if at.half == 0:
            status = advance(inputs, state, beliefs)
            if status != PAUSED:
                return status
            at.rounds += at.waiting > 0
        # A call that ended between an instant and its round goes on with the round.
        at.half = 0
        if state.plans is not None and inputs.rules.backfilling == kernels.CONSERVATIVE:
            plan_round(inputs, state, beliefs)
        elif at.waiting > 0:
            decide(inputs, state, beliefs)
        else:
            queue_kernels.nobody_waits(state)
        if beliefs is not None and at.looks:
            look_around(inputs, state, beliefs)
    return PAUSED
