"""Compiled parts of the simulation: rounds of decisions, with EASY's promise or with a plan.

``play`` runs every combination of built-in parts.
"""

from __future__ import annotations

import math

from gangwise.core.arrays import Bools
from gangwise.core.jit import inlined_kernel, inner_kernel, lean_kernel, referenced
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
from gangwise.jobs.fit_kernels import fits, opened, take_piece, tasks_in
from gangwise.jobs.kernels import (
    BY_RATE,
    CONSERVATIVE,
    DELAYS,
    EASY,
    FGD,
    GIVE_BACK,
    IN_LINE,
    LABELS,
    NEVER,
    NO_BACKFILLING,
    TAKE,
    WAITING,
    Given,
    Room,
    Rows,
    State,
    following,
    int64,
    length,
    merge_sort,
    opens,
    pool_of,
    put,
    room_of,
    smallest,
)
from gangwise.jobs.queue_kernels import (
    before,
    behind,
    capped,
    follow,
    keys,
    line_stays,
    nobody_waits,
    put_aside,
    shortest_first,
    stand_in_line,
)
from gangwise.jobs.rate_kernels import Beliefs, migrate, remaining
from gangwise.jobs.run_times import corrected
from gangwise.jobs.start_kernels import (
    arrange_on,
    expected_ends,
    find,
    holds_off,
    put_in_order,
    slowest,
    start,
    work_done,
)

__all__ = ["DONE", "MORE_ROOM", "play"]

BY_RANK, BY_KEY, ONLY_FRESH = range(3)
"""Ways through the jobs that wait: an order that stays, keys that change, those that joined."""


# --------------------------------------------------------------------------------- EASY's promise


@inlined_kernel
def shift_shadow(
    g: Given,
    room: Room,
    h: int,
    allowed: Bools,
    s: int,
    pieces: Rows,
    first: int,
    i: int,
    sign: int,
) -> int:
    """Move piece i of a job of shape s in a room; how many more tasks of shape h fit by it.

    ``allowed`` [N]: the nodes that tasks of shape h may use. Groups are not counted so: 0.
    """
    n = int64(pieces[i].node)
    if not allowed[n] or g.cluster.shapes[h].groups > 0:
        take_piece(g.cluster, room, s, pieces, first, i, sign)
        return 0
    before = fits(g.cluster, room, h, n)
    take_piece(g.cluster, room, s, pieces, first, i, sign)
    return int(fits(g.cluster, room, h, n) - before)


@inlined_kernel
def correct(g: Given, x: State) -> bool:
    """Correct the expected ends that running jobs have outlived; whether there were any."""
    at = x.at
    size = at.entered
    i = 0
    while i < size and x.order[i].time <= at.now:
        j = x.order[i].item
        elapsed = at.now - x.jobs[j].begun
        end = x.jobs[j].begun + corrected(x.times, j, elapsed)
        if end > x.jobs[j].expect:
            x.jobs[j].expect = end  # by which the old entry no longer holds
            put(x.order, at.entered, end, j)
            at.entered += 1
        i += 1
    at.outlived = NEVER
    for m in range(i, at.entered):
        at.outlived = min(at.outlived, x.order[m].time)
    return bool(at.entered > size)


@inlined_kernel
def give_back(g: Given, x: State, room: Room, j: int, o: int) -> int:
    """Running job o gives its devices back in a room; how many more tasks of job j fit by it."""
    h, s = int64(g.jobs[j].shape), int64(g.jobs[o].shape)
    allowed = g.cluster.allowed[g.cluster.shapes[h].constraint]
    p = g.jobs[o].piece_from
    more = 0
    for m in range(p, p + x.jobs[o].pieces):
        more += shift_shadow(g, room, h, allowed, s, x.out, p, m, GIVE_BACK)
    return more


@inlined_kernel
def counted_anew(g: Given, x: State, room: Room, have: int, j: int) -> int:
    """How many tasks of job j fit in a room, of which ``have`` were counted unless it has groups.

    What was counted before, moves of pieces corrected; of groups nothing was.
    """
    return tasks_in(g, x, room, j) if g.cluster.shapes[g.jobs[j].shape].groups > 0 else have


@inlined_kernel
def promise(g: Given, x: State, q: int, j: int, ends: Rows, size: int) -> None:
    """Make promise q: the first instant at which job j fits if running jobs end as ends[:size] say.

    These are in order. One whose hours are closed then starts when they open. A start that is kept
    (:func:`keep_from`) is no earlier than it was. Leaves in the promise's room what is free at that
    instant. What first jobs in line of other pools will take is not reckoned with.
    """
    now = instant = x.at.now
    room = referenced(room_of(x.shadow, q))
    have = opened(g, x, room, j)
    time = NEVER
    i = 0
    while instant <= time and instant < NEVER:
        while i < size and max(ends[i].time, now) == instant:
            have += give_back(g, x, room, j, ends[i].item)
            i += 1
        have = counted_anew(g, x, room, have, j)
        if time == NEVER and have >= g.jobs[j].tasks:
            time = opens(g, j, instant)
            if q >= x.heads.size:
                time = keep_from(g, x, j, time)
        if i == size:
            break
        instant = max(ends[i].time, now)
    x.promises[q].time = time
    x.promises[q].fits = have


@inlined_kernel
def keep_from(g: Given, x: State, j: int, instant: float) -> float:
    """The start kept for job j, which can start at that instant.

    It is set when the job is first in line for the first time: `slack` seconds later, but no more
    than as long again as it will have waited then. Afterwards it is later only if a job takes
    longer than it asked for.
    """
    if x.kept[j] == NEVER:
        late = instant + min(g.rules.slack, instant - g.jobs[j].submit)
        x.kept[j] = opens(g, j, late)
    return float(max(x.kept[j], instant))


@inlined_kernel
def reserve(g: Given, x: State, p: int, j: int) -> None:
    """EASY: promise job j, the first in line of pool p, a start by the ends that are expected."""
    at = x.at
    put_in_order(x)
    if x.times.expected.size > 0 and correct(g, x):
        put_in_order(x)
    promise(g, x, p, j, x.order, at.entered)
    at.promised = min(at.promised, x.promises[p].time)
    at.change += 1


@inner_kernel
def keep_start(g: Given, x: State, p: int, j: int) -> None:
    """The latest start that is kept for job j, first in line of pool p, if requests are true."""
    at, now = x.at, x.at.now
    q = x.heads.size + p
    kept, fit = x.kept[j], 0
    if kept < NEVER and opens(g, j, now) <= now:  # set before: enough end by then, as a rule
        room = referenced(room_of(x.shadow, q))
        fit = opened(g, x, room, j)
        for i in range(at.running):
            o = x.running[i]
            if max(x.jobs[o].begun + x.times.request[o], now) <= kept:
                fit += give_back(g, x, room, j, o)
        fit = counted_anew(g, x, room, fit, j)
    if fit >= g.jobs[j].tasks:
        x.promises[q].time = kept
        x.promises[q].fits = fit
    else:
        for i in range(at.running):
            o = x.running[i]
            put(x.changes, i, x.jobs[o].begun + x.times.request[o], o)
        merge_sort(x.changes, x.spare_rows, 0, at.running)
        promise(g, x, q, j, x.changes, at.running)
    at.kept = min(at.kept, x.promises[q].time)


@inlined_kernel
def keeps_promise(g: Given, x: State, room: Room, have: int, j: int, count: int, head: int) -> int:
    """EASY: how many tasks of the first in line fit in a room after job j on the pieces tried.

    If those are enough, the room is without these pieces; else it is as it was, and −1.
    """
    s, h = int64(g.jobs[j].shape), int64(g.jobs[head].shape)
    allowed = g.cluster.allowed[g.cluster.shapes[h].constraint]
    for i in range(count):
        have += shift_shadow(g, room, h, allowed, s, x.tried, 0, i, TAKE)
    have = counted_anew(g, x, room, have, head)
    if have >= g.jobs[head].tasks:
        return have
    give_up(g, x, room, j, count)
    return -1


@inlined_kernel
def give_up(g: Given, x: State, room: Room, j: int, count: int) -> None:
    """Undo what :func:`keeps_promise` took: job j does not start."""
    for i in range(count):
        take_piece(g.cluster, room, int64(g.jobs[j].shape), x.tried, 0, i, GIVE_BACK)


@inlined_kernel
def hold_for(g: Given, x: State, b: Beliefs, j: int, p: int) -> bool:
    """Job j is the first of line p that cannot start; whether jobs behind it are tried.

    What it is promised is kept as a promise where no pool that shares its nodes has one already:
    the first in line there may take them before.
    """
    alone = True
    for q in range(x.heads.size):
        alone = alone and not (x.heads[q] >= 0 and g.cluster.meets[q, p])
    if x.at.first < 0:
        x.at.first = j
    x.heads[p] = j
    filled = full(g, x)
    if x.kept.size > 0 and (x.kept[j] == NEVER or not filled):
        keep_start(g, x, p, j)
    if g.rules.backfilling != EASY or filled:
        x.at.promised = -1.0  # made when it is needed
        x.promises[p].time = -1.0
        if g.rules.backfilling == EASY:
            x.at.again = 1
        return g.rules.backfilling != EASY and x.heads.size > 1
    if g.rules.limits_of_work:
        expected_ends(g, x, b)
    reserve(g, x, p, j)
    if alone:
        x.promised[j] = min(x.promised[j], x.promises[p].time)
    return True


@inner_kernel
def hold_for_closed(g: Given, x: State, b: Beliefs, j: int, p: int) -> bool:
    """As :func:`hold_for`, compiled once: for what is not called all the time."""
    return hold_for(g, x, b, j, p)


@inlined_kernel
def blocked(g: Given, x: State, j: int) -> bool:
    """Without backfilling: a job in front of job j cannot start, of a pool that shares its nodes.

    In a cluster without pools nobody is asked: the round ends with the first that cannot start.
    """
    if g.rules.backfilling != NO_BACKFILLING:
        return False
    q = pool_of(g, j)
    for p in range(x.heads.size):  # noqa: SIM110 - generators do not compile
        if x.heads[p] >= 0 and g.cluster.meets[p, q]:
            return True
    return False


@inlined_kernel
def is_past(g: Given, x: State, q: int, j: int, end: float) -> bool:
    """Job j, if it ends then, is past promise q; of starts that are kept, if its request is true.

    Pools that share no node do not touch one another's promises.
    """
    P = x.heads.size
    p = q if q < P else q - P
    if x.heads[p] < 0:
        return False
    if q >= P:
        end = x.at.now + x.times.request[j]
    past = end > x.promises[q].time
    return bool(past and (P == 1 or g.cluster.meets[p, pool_of(g, j)]))


@inlined_kernel
def delayed_by(g: Given, x: State, j: int, count: int, end: float) -> int:
    """The first promise that job j breaks on the pieces tried, −1 for none.

    If there is none, the rooms of those that it is past are without these pieces.
    """
    P = x.heads.size
    for q in range(x.promises.size):
        if is_past(g, x, q, j, end):
            head, have = x.heads[q if q < P else q - P], x.promises[q].fits
            left = keeps_promise(g, x, referenced(room_of(x.shadow, q)), have, j, count, head)
            x.promises[q].left = left
            if left < 0:
                undo(g, x, j, count, end, q)
                return q
    return -1


@inlined_kernel
def undo(g: Given, x: State, j: int, count: int, end: float, promises: int) -> None:
    """Undo what :func:`delayed_by` took in the rooms of the first ``promises`` of them."""
    for q in range(promises):
        if is_past(g, x, q, j, end):
            give_up(g, x, referenced(room_of(x.shadow, q)), j, count)


@inlined_kernel
def settle(g: Given, x: State, j: int, end: float) -> None:
    """Job j starts, and what :func:`delayed_by` took stays taken."""
    if x.at.first < 0:
        return
    for q in range(x.promises.size):
        if is_past(g, x, q, j, end):
            x.promises[q].fits = x.promises[q].left


@inlined_kernel
def full(g: Given, x: State) -> bool:
    """Not even the smallest task fits.

    Every task asks for at least `least` of each device type, and `x.total` is never less than what
    is free in all: so no task of any waiting job fits anywhere.
    """
    for k in range(x.total.size):  # noqa: SIM110 - generators do not compile
        if x.total[k] < g.least[k]:
            return True
    return False


# ------------------------------------------------------------------------------ shortcuts of rounds


@inlined_kernel
def only_joined(g: Given, x: State, fresh: int) -> bool:
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
    at, r = x.at, g.rules
    if (
        at.again != 0
        or at.first < 0
        or (r.keyed and not line_stays(g))
        or at.now >= at.outlived
        or at.now > at.kept
        or (r.shortest and (at.refused != 0 or x.heads.size > 1))
        or r.limits_of_work
        or r.waits
        or (r.rates != LABELS and r.backfilling != NO_BACKFILLING)
        or (r.choice == FGD and at.refused != 0)
        or fresh > x.fresh.size
        or (r.backfilling == EASY and (at.promised < at.now or at.waiting > r.depth))
    ):
        return False
    for p in range(x.heads.size):
        if x.heads[p] >= 0:
            if capped(g, x, x.heads[p]):
                return False
            for i in range(fresh):
                if before(g, x, g.by_rank[x.fresh[i]], x.heads[p]):
                    return False
    return True


@inlined_kernel
def kind_of(g: Given, b: Beliefs, j: int) -> int:
    """What beside shape and tasks decides where job j goes: its type, and whether it is short."""
    job = g.jobs[j]
    if g.rules.choice != BY_RATE:
        return 0
    return int(2 * job.type + (job.limit < b.constants.short))


@inlined_kernel
def place_of(g: Given, kind: int, j: int) -> int:
    """Where in `x.delays` a refusal of job j is noted."""
    job = g.jobs[j]
    return int((37 * job.shape + 11 * job.tasks + kind) & (DELAYS - 1))


@inlined_kernel
def refused_alike(g: Given, x: State, kind: int, j: int) -> bool:
    """Job j would be refused like one of its shape, tasks and kind that was refused before.

    `change` is as it was: so are free devices, the promise, what is left at it, and, in learned
    rates, prices. The choice of nodes depends on these and on shape, tasks, job type and whether
    the limit is short; so it picks the same nodes, and only the end of job j may differ.
    """
    job = g.jobs[j]
    tried = x.delays[place_of(g, kind, j)]
    return bool(
        tried.change == x.at.change
        and tried.shape == job.shape
        and tried.tasks == job.tasks
        and tried.type == kind
        and x.at.now + length(g, x, j) / tried.rate > tried.promised
    )


@inlined_kernel
def note_refused(g: Given, x: State, kind: int, j: int, rate: float, p: int) -> None:
    """Remember that job j, at this rate, would delay the first in line of pool p."""
    job = g.jobs[j]
    tried = x.delays[place_of(g, kind, j)]
    tried.shape = job.shape
    tried.tasks = job.tasks
    tried.type = kind
    tried.change = x.at.change
    tried.rate = rate
    tried.promised = x.promises[p].time
    x.at.refused = 1


# -------------------------------------------------------------------------- a round without a plan


@inlined_kernel
def line_up(g: Given, x: State) -> tuple[int, int, int]:
    """Who is tried in this round: the way through them, their number, the first rank."""
    at = x.at
    fresh = at.fresh
    at.fresh = 0
    if line_stays(g):
        stand_in_line(g, x, fresh)
    if only_joined(g, x, fresh):
        if g.rules.backfilling != EASY and x.heads.size == 1:
            return ONLY_FRESH, 0, -1
        if g.rules.shortest:
            for i in range(fresh):
                put(x.sequence, i, 0.0, g.by_rank[x.fresh[i]])
            shortest_first(g, x, 0, fresh)
            return BY_KEY, fresh, -1
        for i in range(1, fresh):
            rank = x.fresh[i]
            m = i
            while m > 0 and before(g, x, g.by_rank[rank], g.by_rank[x.fresh[m - 1]]):
                x.fresh[m] = x.fresh[m - 1]
                m -= 1
            x.fresh[m] = rank
        return ONLY_FRESH, fresh, -1
    at.again = at.refused = 0
    at.first = -1
    at.promised = at.kept = NEVER
    for p in range(x.heads.size):
        x.heads[p] = -1
    for q in range(x.promises.size):
        x.promises[q].time = NEVER
    if g.rules.keyed:
        return BY_KEY, at.lined if line_stays(g) else keys(g, x), -1
    return BY_RANK, 0, max(smallest(x.words, x.summary, at), 0)


@inlined_kernel
def next_in_line(
    g: Given, x: State, way: int, i: int, count: int, rank: int, last: int
) -> tuple[int, int, int]:
    """The job tried next, −1 for none; and how many were tried, and the rank behind it.

    Job ``last`` was looked at, −1 for none: it brings back the next of its claim that is aside.
    """
    if last >= 0 and g.caps.most.size > 0:
        follow(g, x, int64(g.jobs[last].claim))
    if way == BY_KEY and line_stays(g):
        count = int64(x.at.lined)
    if way == BY_RANK:
        rank = following(x.words, x.summary, x.at, rank)
        if rank < 0:
            return -1, i, rank
        return g.by_rank[rank], i, rank + 1
    if i >= count:
        return -1, i, rank
    return g.by_rank[x.fresh[i]] if way == ONLY_FRESH else x.sequence[i].item, i + 1, rank


@inlined_kernel
def passed_over(g: Given, x: State, j: int) -> bool:
    """Job j has left the line, or does so now, for a cap holds it."""
    run = x.jobs[j]
    here = run.phase == WAITING and run.place == IN_LINE
    if line_stays(g) and not here:
        return True
    if not capped(g, x, j):
        return False
    put_aside(g, x, j)
    return True


@inlined_kernel
def decide(g: Given, x: State, b: Beliefs) -> None:
    """One round of decisions: start in order until one of a pool cannot; then backfill.

    Where the shortest pass first, those behind the first of their pool that cannot start are put
    aside in `x.sequence`, which is not read any more where they are put, and tried at the end.
    """
    at = x.at
    way, count, rank = line_up(g, x)
    passing = not g.rules.shortest or at.first >= 0
    tested = i = aside = 0
    last = -1
    while True:
        j, i, rank = next_in_line(g, x, way, i, count, rank, last)
        last = -1
        if j < 0:
            if passing or aside == 0:
                break
            shortest_first(g, x, 0, aside)
            way, i, count, passing = BY_KEY, 0, aside, True
            continue
        if passed_over(g, x, j):
            continue
        last = j
        if opens(g, j, at.now) > at.now:
            p = pool_of(g, j) + (x.heads.size >> 1)  # the line of those that are closed
            easy = g.rules.backfilling == EASY and x.heads[p] < 0
            if easy and not hold_for_closed(g, x, b, j, p):
                break
            continue
        kind = kind_of(g, b, j)
        if at.first >= 0:
            if blocked(g, x, j):
                continue
            if not passing and x.heads[pool_of(g, j)] >= 0:
                x.sequence[aside].item = j
                aside += 1
                continue
            if tested >= g.rules.depth:
                at.again = 1  # those behind were not tried: they are at the next instant
                break
            if full(g, x):
                break
            tested += 1
            if refused_alike(g, x, kind, j):
                at.tests += 1
                at.refused = 1
                continue
        pieces = find(g, x, b, j)
        if pieces == 0:
            p = pool_of(g, j)
            if x.heads[p] < 0 and not hold_for(g, x, b, j, p):
                break
            continue
        end = at.now
        if at.first >= 0:
            rate = 1.0
            if g.rules.limits_of_work and g.rules.choice == BY_RATE:
                rate = math.exp(slowest(x, x.tried, 0, pieces))
            end = at.now + length(g, x, j) / rate
            p = delayed_by(g, x, j, pieces, end)
            if p >= x.heads.size:
                at.refused = 1
                continue
            if p >= 0:
                note_refused(g, x, kind, j, rate, p)
                continue
        if holds_off(g, x, b, j, pieces):
            undo(g, x, j, pieces, end, x.promises.size)
            continue
        settle(g, x, j, end)
        start(g, x, j, pieces)
        if at.refused != 0:
            # Those refused may fit elsewhere now: those behind are tried at once, those in front
            # at the next instant.
            at.again = 1
            if way == ONLY_FRESH and line_stays(g):
                way, i, count = BY_KEY, behind(g, x, j), at.lined
            elif way == ONLY_FRESH:
                way = BY_RANK
                rank = int64(g.jobs[j].rank) + 1


# ---------------------------------------------------------------------------------- the whole play


@inner_kernel
def look_around(g: Given, x: State, b: Beliefs) -> None:
    """Running jobs are measured again; while nobody waits, they move where that saves time."""
    at = x.at
    count = measure_again(g, x, b)
    if at.waiting > 0:
        return
    for m in range(count):
        j = x.sequence[m].item
        seen = x.looks[j].seen
        done = work_done(g, x, j)
        limit, restart = g.jobs[j].limit, g.rules.restart
        if remaining(b, limit, done) <= seen * restart:
            continue
        pieces = arrange_on(g, x, b, x.room, j)
        if pieces == 0:
            continue
        p = g.jobs[j].piece_from
        here = slowest(x, x.out, p, p + x.jobs[j].pieces)
        there = NEVER
        for i in range(pieces):
            n = x.tried[i].node
            there = min(there, x.mean[n] - b.constants.caution * x.sd[n])
        log_rate = math.log(seen)
        if migrate(b, limit, done, log_rate, log_rate + there - here, restart):
            interrupt(g, x, b, j, int64(WHY_PREEMPTED))
            x.looks[j].before = done
            start(g, x, j, pieces)
    at.fresh = 0


@lean_kernel
def play(g: Given, x: State, b: Beliefs, instants: int) -> int:
    """Run up to ``instants`` instants. Gives DONE, PAUSED or MORE_ROOM."""
    at = x.at
    for _ in range(instants):
        if at.half == 0:
            status = advance(g, x, b)
            if status != PAUSED:
                return status
            at.rounds += at.waiting > 0
        at.half = 0
        if g.rules.backfilling == CONSERVATIVE:
            plan_round(g, x, b)
        elif at.waiting > 0:
            decide(g, x, b)
        else:
            nobody_waits(x)
        if at.looks:
            look_around(g, x, b)
    return PAUSED
