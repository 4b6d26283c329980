"""Slurm's passes, compiled: the main loop after every event, and backfilling with its period.

What the two do is said in :mod:`gangwise.sites.slurm_passes`. A pass of backfilling reserves nodes
only to see who may start now, and its reservations are forgotten. So, where nobody is preempted,
it goes no further than to the last job that fits now beside what is reserved so far.
Within a pass less and less is free: a job is not tried before the time until which one of its shape
that asked for no more found too little room, and the last that fits now is tried again only if a
new reservation begins before it would end.

Books are looked at as they will be if running jobs end when expected: now, and at the ends of
windows of time. More and more is free from window to window, so that the first in which a job fits
is found by halving. Slurm takes running jobs away in groups, and tries a job after each: those on
nodes that it may use, see :func:`end_of_group`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gangwise.core.jit import inlined_kernel, inner_kernel, lean_kernel, referenced
from gangwise.jobs.conservative_kernels import truly_free
from gangwise.jobs.event_kernels import DONE, MORE_ROOM, PAUSED, advance, boolean
from gangwise.jobs.fit_kernels import copy_room, fits, take_piece, tell_apart
from gangwise.jobs.kernels import (
    FIRST_FIT,
    GIVE_BACK,
    MULTIFACTOR,
    NEVER,
    TAKE,
    WAITING,
    ClusterArrays,
    Given,
    Rows,
    State,
    enter_row,
    following,
    int64,
    opens,
    put,
    put_piece,
    room_of,
    smallest,
)
from gangwise.jobs.queue_kernels import (
    TIER,
    capped,
    keys,
    line_stays,
    nobody_waits,
    priority_key,
    stand_in_line,
)
from gangwise.jobs.start_kernels import put_in_order, set_timer, start, work_done
from gangwise.sites.preemption import (
    STARTED,
    count_cores,
    find_cores,
    give_way,
    hold,
    keep_cores,
    make_room,
    release_ahead,
    show_cores,
    suspended_in_turn,
    undisturbed,
)
from gangwise.sites.slurm_places import (
    ANY,
    GROUPS,
    Ahead,
    Passing,
    WaitingLine,
    arrange,
    count_room,
)

__all__ = ["DONE", "MORE_ROOM", "play"]

FIRST_WINDOW = 30.0
"""Seconds in which the ends of running jobs count as one; groups end at whole multiples."""
WHOLE_LINE = 60.0
"""Seconds after which the main loop looks at all that wait, not at the first so many."""
FINE = 64
"""So many windows are that long; each of those behind is twice as long as the one before."""


# ------------------------------------------------------------------------- the clock of backfilling


@inlined_kernel
def elapse(clock: Any, interval: float, now: float) -> None:
    """Backfilling that was due has come by now."""
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
    clock.due = time < clock.passed + interval
    if not clock.due:
        clock.passed = time


@inlined_kernel
def overdue(x: State, known: Rows) -> bool:
    """Someone runs past his limit, who may free nodes any time."""
    for i in range(x.at.running):
        j = x.running[i]
        if x.jobs[j].expect - known[j].ran <= x.at.now:
            return True
    return False


@inlined_kernel
def unlike_before(g: Given, x: State, p: Passing) -> bool:
    """Backfilling may find what it did not when it last came, though nothing has happened since.

    Someone runs past his limit, who may free nodes any time; or the line is in another order.
    """
    if not p.settings.gangs and overdue(x, p.known):
        return True
    i = 0
    for m in range(p.clock.lined if g.rules.keyed else 0):
        j = x.sequence[m].item
        if x.jobs[j].phase == WAITING:
            if i >= p.clock.before or p.before[i] != j:
                return True
            i += 1
    return bool(i != p.clock.before)


# --------------------------------------------------------------------------------------- the line


@inner_kernel
def line_up(line: WaitingLine, most: int) -> int:
    """The first so many who wait, but those preempted in this round, in `front`; their number."""
    clock, at = line.clock, line.at
    count = int64(0)
    rank = i = int64(0)
    if not line.keyed:
        rank = smallest(line.words, line.summary, at)
    while count < most:
        if line.keyed:
            if i >= clock.lined:
                break
            j = line.sequence[i].item
            i += 1
        else:
            if rank < 0:
                break
            j = line.by_rank[rank]
            rank = following(line.words, line.summary, at, rank + 1)
        if line.jobs[j].phase == WAITING and line.known[j].mark != clock.round:
            line.front[count] = j
            count += 1
    return int(count)


@inner_kernel
def may_start(g: Given, x: State, p: Passing, j: int) -> bool:
    """Neither a cap nor closed hours hold job j, nor that it was preempted."""
    now = x.at.now
    held = p.known[j].until > now or p.known[j].asleep or x.jobs[j].phase != WAITING
    own = p.known[j].reservation
    if own >= 0:
        held = held or p.reserved[own].begin > now or p.reserved[own].end <= now
    return not (held or capped(g, x, j) or opens(g, j, now) > now)


@inner_kernel
def keep_off(g: Given, x: State, p: Passing, j: int, sign: int) -> bool:
    """Shut nodes that the site reserves for others while job j would run (sign 1), or no longer.

    A job that names a reservation has its nodes alone.
    """
    own, some = p.known[j].reservation, False
    for r in range(p.clock.site):
        held = p.reserved[r]
        mine = r == own
        if not mine and (held.begin >= x.at.now + g.jobs[j].limit or held.end <= x.at.now):
            continue
        for i in range(held.first, held.last):
            if mine:
                p.on[p.nodes[i]] = True
            else:
                p.shut[p.nodes[i]] += 2 * sign
                some = True
    if own >= 0:
        some = True
        for n in range(p.shut.size):
            p.shut[n] += 0 if p.on[n] else 2 * sign
            p.on[n] = False
    return some


@inlined_kernel
def known_too_large(g: Given, x: State, j: int) -> bool:
    """No fewer tasks of its shape fitted, and nothing was given back since."""
    memo = x.memo[g.jobs[j].shape]
    return bool(memo.fail_epoch == x.at.epoch and g.jobs[j].tasks >= memo.fail_tasks)


@inlined_kernel
def note_too_large(g: Given, x: State, j: int) -> None:
    """All nodes together do not take job j."""
    x.memo[g.jobs[j].shape].fail_epoch = x.at.epoch
    x.memo[g.jobs[j].shape].fail_tasks = g.jobs[j].tasks


@inlined_kernel
def fits_now(g: Given, x: State, p: Passing, j: int) -> bool:
    """Nodes that are up take all tasks of job j now, if one looks at each by itself."""
    if known_too_large(g, x, j):
        return False
    x.at.tests += 1
    s, tasks = int64(g.jobs[j].shape), int64(g.jobs[j].tasks)
    if count_room(g.cluster, p.places, x.room, s, tasks, p.none) >= tasks:
        return True
    note_too_large(g, x, j)
    return False


@inner_kernel
def begin(g: Given, x: State, p: Passing, j: int, pieces: int) -> None:
    """Job j starts on the pieces tried, whose devices are told apart here."""
    shape, resumed = g.cluster.shapes[g.jobs[j].shape], p.known[j].asleep
    gangs = p.settings.gangs
    if gangs and not resumed:
        find_cores(g, x, p, j, pieces)
    if not resumed and g.cluster.shared >= 0 and shape.fraction + shape.whole > 0:
        s = int64(g.jobs[j].shape)
        pieces = tell_apart(g.cluster, x, p.room, s, pieces, int64(FIRST_FIT))
    start(g, x, j, pieces)
    clock = p.clock
    clock.events += 1
    clock.started += 1
    if gangs:
        p.known[j].asleep = 0
    if gangs and not resumed:
        keep_cores(g, x, p, j)
        q = g.jobs[j].piece_from
        for i in range(q, q + x.jobs[j].pieces):
            take_piece(g.cluster, p.room, int64(g.jobs[j].shape), x.out, q, i, TAKE)
        show_cores(g.cluster, p.gangs, x.up, p.room, int64(0))
    if not (gangs and resumed):
        p.known[j].turn = clock.started
    if p.acts.size > 0:
        put(p.acts, clock.acts, float(STARTED), j)
        clock.acts += 1


@inner_kernel
def resume(g: Given, x: State, p: Passing, count: int) -> None:
    """Those who were suspended go on, the first in line first, once their nodes are free.

    Of gangs: the highest tier first, once nobody of a tier above runs on their cores.
    """
    if p.settings.gangs:
        count = suspended_in_turn(x, p)
    for i in range(count):
        j = p.turns[i].item if p.settings.gangs else p.line.front[i]
        if not p.known[j].asleep or capped(g, x, j):
            continue
        able, q = True, g.jobs[j].piece_from
        pieces = int64(x.jobs[j].pieces)
        for m in range(pieces):
            piece = x.out[q + m]
            put_piece(x.tried, m, int64(piece.node), int64(piece.tasks), piece.mask)
            able = able and x.up[piece.node]
        if p.settings.gangs:
            able = able and undisturbed(g, x, p, j)
        else:
            able = able and truly_free(g, x, j, pieces)
        if able:
            begin(g, x, p, j, pieces)


@inlined_kernel
def holds_no_nodes(g: Given, x: State, p: Passing, j: int) -> bool:
    """Job j has not waited long enough, or its priority is too low, to keep nodes from others."""
    if x.at.now - g.jobs[j].submit < p.settings.least_wait:
        return True
    if p.settings.least_priority <= 0.0 or g.rules.queue != MULTIFACTOR:
        return False
    return bool(-priority_key(x.standing, j) % TIER < p.settings.least_priority)


@inlined_kernel
def nowhere(g: Given, x: State, p: Passing, j: int) -> bool:
    """Of the nodes that job j may use all are down, or reserved for others while it would run."""
    allowed = g.cluster.allowed[g.cluster.shapes[g.jobs[j].shape].constraint]
    some = False
    for n in range(p.shut.size):
        some = some or (allowed[n] and x.up[n] and p.shut[n] < 2)
    return not some


@inlined_kernel
def shut_nodes(g: Given, p: Passing, j: int) -> int:
    """Shut the nodes that job j names, else those of its pool; how many pools have others."""
    shape = g.cluster.shapes[g.jobs[j].shape]
    for n in range(p.shut.size):
        if p.known[j].named:
            p.shut[n] |= g.cluster.allowed[shape.constraint, n]
        else:
            p.shut[n] |= p.pools[shape.pool, n]
    count = 0
    for q in range(p.open.size):
        p.open[q] = 0
        for n in range(p.shut.size):
            if p.pools[q, n] and p.shut[n] == 0:
                p.open[q] = 1
                count += 1
                break
    return count


@inlined_kernel
def main_loop(g: Given, x: State, p: Passing, count: int) -> None:
    """Start in order; where one cannot, the nodes of its partition take no other."""
    shut = p.shut
    for n in range(shut.size):
        shut[n] = 0
    whole = True  # no nodes are shut
    for q in range(p.open.size):
        p.open[q] = 1
        p.of_pool[q] = 0
    started, turns = 0, 2 if p.clock.site > 0 else 1
    for i in range(turns * count):  # those of a reservation are first, whatever their priority
        j = p.line.front[i % count]
        if turns == 2 and (p.known[j].reservation >= 0) != (i < count):
            continue
        pool = g.cluster.shapes[g.jobs[j].shape].pool
        if p.settings.part_depth > 0:
            p.of_pool[pool] += 1
            if p.of_pool[pool] > p.settings.part_depth:
                continue
        if p.open[pool] == 0 or not may_start(g, x, p, j):
            continue
        apart = keep_off(g, x, p, j, 1)
        pieces = int64(0)
        if p.settings.gangs or not known_too_large(g, x, j):
            s, tasks = int64(g.jobs[j].shape), int64(g.jobs[j].tasks)
            pieces = arrange(g.cluster, p.places, p.room, s, tasks, shut)
            if pieces == 0 and whole and not apart and p.places.how[s] == ANY:
                note_too_large(g, x, j)
        if pieces == 0 and p.settings.preempts:  # asked here too: a call passes all arrays
            pieces = make_room(g, x, p, j)
            if pieces > 0:
                give_way(g, x, p, j)
        passed_over = pieces == 0 and nowhere(g, x, p, j)
        keep_off(g, x, p, j, -1)
        if pieces > 0:
            begin(g, x, p, j, pieces)
            started += 1
            if started == p.settings.main_starts:
                return
            continue
        if p.known[j].reservation >= 0 or passed_over or holds_no_nodes(g, x, p, j):
            continue
        if shut_nodes(g, p, j) == 0:
            return
        whole = False


# ------------------------------------------------------------------------------------ backfilling


@inlined_kernel
def look_ahead(g: Given, x: State, p: Passing, rank: float) -> None:
    """What will be free, in `p.ahead`, at the ends of windows, in `p.times`.

    Of gangs: as a job of a rank sees it.
    """
    clock, now, gangs, order = p.clock, x.at.now, p.settings.gangs, p.gangs.leaving
    copy_room(p.room, referenced(room_of(p.ahead.room, int64(0))))
    if gangs:
        entered, least = release_ahead(g, x, p, rank), -NEVER
        show_cores(g.cluster, p.gangs, x.up, referenced(room_of(p.ahead.room, int64(0))), int64(1))
    else:
        put_in_order(x)
        entered, least = x.at.entered, now
    p.ahead.times[0] = now
    clock.stamp += 1
    clock.bounds = 0
    clock.rank = rank
    clock.ending = entered
    epoch, not_yet = p.settings.epoch, np.nextafter(now, np.inf)  # who is past its limit
    count, i, length = int64(1), 0, FIRST_WINDOW
    while i < entered:
        then = referenced(room_of(p.ahead.room, count))
        copy_room(referenced(room_of(p.ahead.room, count - 1)), then)
        until = np.ceil((max(order[i].time, least) + epoch) / length) * length - epoch
        while i < entered and max(order[i].time, least) <= until:
            o = order[i].item
            q = int64(g.jobs[o].piece_from)
            for m in range(q, q + x.jobs[o].pieces):
                take_piece(g.cluster, then, int64(g.jobs[o].shape), x.out, q, m, GIVE_BACK)
            if gangs:
                hold(p.gangs, x.out, q, int64(q + x.jobs[o].pieces), int64(1), int64(-1))
            i += 1
        if gangs:
            show_cores(g.cluster, p.gangs, x.up, then, int64(1))
        p.ahead.times[count] = max(order[i - 1].time, not_yet)
        count += 1
        length *= 2.0 if count > FINE else 1.0
    clock.windows = count


@inlined_kernel
def fit_then(cluster: ClusterArrays, a: Ahead, s: int, w: int, n: int) -> int:
    """How many tasks of shape s node n takes in window w."""
    if not (a.up[n] and cluster.allowed[cluster.shapes[s].constraint, n]):
        return 0
    return int(fits(cluster, referenced(room_of(a.room, w)), s, n))


@inner_kernel
def all_then(cluster: ClusterArrays, a: Ahead, s: int, w: int) -> int:
    """How many tasks of shape s all nodes take in window w; counted once."""
    known = a.sums[s, w]
    if known.stamp != a.clock.stamp:
        known.stamp, known.fits = a.clock.stamp, 0
        for n in range(a.cover.size):
            known.fits += fit_then(cluster, a, s, w, n)
    return int(known.fits)


@inner_kernel
def beside(cluster: ClusterArrays, a: Ahead, s: int, w: int) -> int:
    """The same, without nodes that are reserved while a job would run, see `cover`."""
    covered = 0
    for n in range(a.cover.size):
        covered += 1 if a.cover[n] > 0 else 0
    # Of the nodes with and those without reservations, the fewer are looked at.
    without = 2 * covered > a.cover.size
    total = 0 if without else all_then(cluster, a, s, w)
    for n in range(a.cover.size):
        if without and a.cover[n] == 0:
            total += fit_then(cluster, a, s, w, n)
        elif not without and a.cover[n] > 0:
            total -= fit_then(cluster, a, s, w, n)
    return int(total)


@inner_kernel
def first_window(
    cluster: ClusterArrays, a: Ahead, s: int, tasks: int, low: int, high: int, reserved: bool
) -> int:
    """The first window from ``low`` on in which enough is free, by halving; ``high`` for none.

    With ``reserved``, beside reservations.
    """
    while low < high:
        middle = (low + high) >> 1
        free = beside(cluster, a, s, middle) if reserved else all_then(cluster, a, s, middle)
        if free >= tasks:
            high = middle
        else:
            low = middle + 1
    return int(low)


@inner_kernel
def on_nodes_of(g: Given, x: State, p: Passing, j: int, i: int, step: int) -> int:
    """The next running job, from place i of the ends on, on a node that job j may use.

    Steps of −1 go back, where there is one.
    """
    mine = g.cluster.shapes[g.jobs[j].shape].constraint
    while i < p.clock.ending:
        o = p.gangs.leaving[i].item
        for m in range(g.jobs[o].piece_from, g.jobs[o].piece_from + x.jobs[o].pieces):
            n = x.out[m].node
            if p.ahead.up[n] and p.ahead.cover[n] == 0 and g.cluster.allowed[mine, n]:
                return i
        i += step
    return i


@inlined_kernel
def first_later(p: Passing, time: float) -> int:
    """Place of the first running job that ends after a time, by bisection."""
    low, high = int64(0), int64(p.clock.ending)
    while low < high:
        middle = (low + high) // 2
        if p.gangs.leaving[middle].time > time:
            high = middle
        else:
            low = middle + 1
    return int(low)


@inlined_kernel
def end_of_group(g: Given, x: State, p: Passing, j: int, w: int) -> float:
    """When the group of running jobs ends whose ends reach into window w; infinity for none.

    Only jobs on nodes that job j may use count. The first group ends 30 s after the whole half
    minute behind the first end; the others 60, 120, 240 … s after that. A job that fits once some
    of a group have ended is taken to start when the last of it does.
    """
    many, not_yet = p.clock.ending, np.nextafter(x.at.now, np.inf)
    first = on_nodes_of(g, x, p, j, int64(0), int64(1))
    if first == many:
        return NEVER
    epoch, order = p.settings.epoch, p.gangs.leaving
    edge = ((order[first].time + epoch) // FIRST_WINDOW + 1.0) * FIRST_WINDOW - epoch
    reaching = first  # the first end that reaches into the window; it says which group it is
    if not_yet <= p.ahead.times[w - 1]:
        reaching = max(first, first_later(p, p.ahead.times[w - 1]))
        reaching = on_nodes_of(g, x, p, j, reaching, int64(1))
        if reaching == many:
            return NEVER
    length = FIRST_WINDOW
    while order[reaching].time > edge + length:
        length *= 2.0
    last = on_nodes_of(g, x, p, j, first_later(p, edge + length) - 1, int64(-1))
    return float(max(order[last].time, not_yet))


@inlined_kernel
def cover_more(g: Given, p: Passing, s: int, r: int, sign: int) -> None:
    """Reservation r is in the way of a job of shape s from now on (sign 1), or no longer (−1)."""
    clock = p.clock
    for i in range(p.reserved[r].first, p.reserved[r].last):
        n = int64(p.nodes[i])
        p.ahead.cover[n] += sign
        if p.ahead.cover[n] == (1 if sign > 0 else 0) and clock.window >= 0:
            clock.idle -= sign * fit_then(g.cluster, p.ahead, s, int64(clock.window), n)


@inlined_kernel
def cover_at(g: Given, p: Passing, j: int, after: float, w: int) -> None:
    """Let `p.ahead.cover` count the reservations that job j meets if it starts then.

    `idle` is what fits beside them in window w.
    """
    clock, s = p.clock, int64(g.jobs[j].shape)
    while clock.added < clock.reserved and p.begins[clock.added].time <= after + g.jobs[j].limit:
        cover_more(g, p, s, p.begins[clock.added].item, 1)
        clock.added += 1
    while clock.dropped < clock.reserved and p.ends[clock.dropped].time <= after:
        cover_more(g, p, s, p.ends[clock.dropped].item, -1)
        clock.dropped += 1
    if clock.window != w:
        clock.window, clock.idle = w, beside(g.cluster, p.ahead, s, w)


@inlined_kernel
def rounded(p: Passing, time: float) -> float:
    """Times are multiples of the resolution, on Slurm's clock."""
    resolution, epoch = p.settings.resolution, p.settings.epoch
    return (time + epoch) // resolution * resolution - epoch


@inner_kernel
def meets_any(g: Given, x: State, p: Passing, j: int, time: float, pieces: int) -> bool:
    """Job j, on the pieces tried from then on, would be on nodes that are reserved then."""
    begins = rounded(p, time) if time > x.at.now else time
    until = rounded(p, time + g.jobs[j].limit)
    for i in range(pieces):
        p.on[x.tried[i].node] = True
    meets = False
    for r in range(p.clock.reserved):
        held = p.reserved[r]
        ends = time + g.jobs[j].limit if r < p.clock.site else until  # the site's are exact
        if held.begin < ends and held.end > (time if r < p.clock.site else begins):
            for i in range(held.first, held.last):
                meets = meets or p.on[p.nodes[i]]
    for i in range(pieces):
        p.on[x.tried[i].node] = False
    return meets


@inlined_kernel
def not_before(g: Given, p: Passing, j: int) -> float:
    """Before then jobs of its shape, with no more tasks and no longer, found too little room."""
    job, time = g.jobs[j], -NEVER
    for i in range(p.clock.bounds):
        bound = p.bounds[i]
        if bound.shape == job.shape and bound.tasks <= job.tasks and bound.limit <= job.limit:
            time = max(time, bound.time)
    return time


@inlined_kernel
def too_early(g: Given, p: Passing, j: int, time: float) -> None:
    """Job j found too little room at any time before this one."""
    bound = p.bounds[p.clock.bounds]
    bound.shape, bound.tasks = g.jobs[j].shape, g.jobs[j].tasks
    bound.limit, bound.time = g.jobs[j].limit, time
    p.clock.bounds += 1


@inlined_kernel
def behind(rows: Rows, count: int, time: float) -> int:
    """How many of the first so many rows, which are in order, are at this time or before."""
    low, high = int64(0), int64(count)
    while low < high:
        middle = (low + high) >> 1
        if rows[middle].time <= time:
            low = middle + 1
        else:
            high = middle
    return int(low)


@inlined_kernel
def cover_first(g: Given, p: Passing, j: int, after: float) -> None:
    """Let `p.ahead.cover` count the reservations that job j meets if it starts then."""
    clock, until = p.clock, after + g.jobs[j].limit
    clock.window = -1
    for n in range(p.ahead.cover.size):
        p.ahead.cover[n] = 0
    for r in range(clock.reserved):
        held = p.reserved[r]
        if held.begin <= until and held.end > after:
            for i in range(held.first, held.last):
                p.ahead.cover[p.nodes[i]] += 1
    clock.added = behind(p.begins, int64(clock.reserved), until)
    clock.dropped = behind(p.ends, int64(clock.reserved), after)


@inlined_kernel
def first_time(g: Given, x: State, p: Passing, j: int) -> tuple[float, int]:
    """When job j fits beside the reservations, infinity for never; and its pieces, in `x.tried`.

    Tried now, then each time that a reservation begins or ends: without nodes that are reserved
    while it would run. Times are passed over at which a job that asked for no more found too little
    room; where there was enough, it may have been on other nodes, and is looked at again.
    """
    clock, R = p.clock, p.clock.reserved
    s, tasks = int64(g.jobs[j].shape), int64(g.jobs[j].tasks)
    early = not_before(g, p, j)
    every = int64(clock.windows)
    able = first_window(g.cluster, p.ahead, s, tasks, int64(0), every, boolean(False))
    if able == clock.windows or early == NEVER:
        return NEVER, 0
    after, tried = max(x.at.now, early), False
    cover_first(g, p, j, after)
    a, b = behind(p.begins, int64(R), after), behind(p.ends, int64(R), after)
    last = int64(0)
    while after < NEVER:
        while a < R and p.begins[a].time <= after:
            a += 1
        while b < R and p.ends[b].time <= after:
            b += 1
        later = min(p.begins[a].time if a < R else NEVER, p.ends[b].time if b < R else NEVER)
        if later < p.ahead.times[able]:  # nor does it fit by then without any reservation
            after = later
            continue
        while last + 1 < clock.windows and p.ahead.times[last + 1] <= later:
            last += 1
        cover_at(g, p, j, after, int64(last))
        w = last + 1
        if clock.idle >= tasks:
            w = first_window(g.cluster, p.ahead, s, tasks, int64(able), int64(last), boolean(True))
        if w <= last and not tried:
            tried = True
            if after > early:
                too_early(g, p, j, after)
        pieces, time = int64(0), after
        while w <= last and pieces == 0:  # features may need more than enough room
            if w > 0:
                time = end_of_group(g, x, p, j, int64(w))
                if time > later:
                    break
                while w < last and p.ahead.times[w] < time:
                    w += 1
            then = referenced(room_of(p.ahead.room, int64(w)))
            pieces = arrange(g.cluster, p.places, then, s, tasks, p.ahead.cover)
            w += 1
        if pieces > 0:
            time = max(time, after)
            if not meets_any(g, x, p, j, time, pieces):
                return time, pieces
            later = time if time > after else later
        after = later
    if not tried:
        too_early(g, p, j, NEVER)
    return NEVER, 0


@inner_kernel
def shut_reserved(g: Given, x: State, p: Passing, j: int) -> None:
    """Shut the nodes that are reserved while job j would run if it started now."""
    for n in range(p.shut.size):
        p.shut[n] = 0
    for r in range(p.clock.reserved):
        held = p.reserved[r]
        if held.begin <= x.at.now + g.jobs[j].limit and held.end > x.at.now:
            for i in range(held.first, held.last):
                p.shut[p.nodes[i]] = 1


@inlined_kernel
def reserve(g: Given, x: State, p: Passing, j: int, time: float, pieces: int) -> None:
    """Hold the nodes tried for job j from then on."""
    clock = p.clock
    r = clock.reserved
    held = p.reserved[r]
    held.begin = rounded(p, time)
    held.end = rounded(p, time + g.jobs[j].limit)
    held.first = clock.held
    for i in range(pieces):
        p.nodes[clock.held] = x.tried[i].node
        clock.held += 1
    held.last = clock.held
    enter_row(p.begins, int64(0), r, held.begin, r)
    enter_row(p.ends, int64(0), r, held.end, r)
    clock.reserved += 1


@inlined_kernel
def too_many(p: Passing, j: int) -> bool:
    """As many of its user, partition or association were looked at as may be; else one more is."""
    for k in range(GROUPS):
        if 0 < p.most[k] <= p.looked[k, p.group[k, j]]:
            return True
    for k in range(GROUPS):
        if p.most[k] > 0:
            p.looked[k, p.group[k, j]] += 1
    return False


@inlined_kernel
def last_able(g: Given, x: State, p: Passing, first: int, last: int) -> int:
    """The last in line up to ``last`` who fits now beside what is reserved so far.

    Nobody else may start in this pass: more and more is reserved, and nothing given back.
    """
    while last >= first:
        j = p.line.front[last]
        s, tasks, limit = int64(g.jobs[j].shape), int64(g.jobs[j].tasks), g.jobs[j].limit
        failed = p.failed[s]  # of its shape, that asked for no more: in this pass
        hopeless = failed.stamp == p.clock.passes and failed.tasks <= tasks
        hopeless = hopeless and failed.limit <= limit
        hopeless = hopeless or known_too_large(g, x, j)  # the cheaper question first
        if not hopeless and may_start(g, x, p, j) and fits_now(g, x, p, j):
            if p.clock.reserved == 0:
                break
            shut_reserved(g, x, p, j)
            if count_room(g.cluster, p.places, x.room, s, tasks, p.shut) >= tasks:
                break
            less = tasks <= failed.tasks and limit <= failed.limit
            if failed.stamp != p.clock.passes or less:
                failed.stamp, failed.tasks, failed.limit = p.clock.passes, tasks, limit
        last -= 1
    return last


@inlined_kernel
def backfill(g: Given, x: State, p: Passing, count: int) -> None:
    """One pass: start what fits now beside reservations made before it, reserve for others."""
    clock, now = p.clock, x.at.now
    clock.reserved, clock.held, started = 0, clock.site_nodes, 0
    clock.passes += 1
    for r in range(clock.site):
        enter_row(p.begins, int64(0), int64(r), p.reserved[r].begin, int64(r))
        enter_row(p.ends, int64(0), int64(r), p.reserved[r].end, int64(r))
        clock.reserved += 1
    for k in range(GROUPS):
        if p.most[k] > 0:
            p.looked[k, :] = 0
    ready, again = False, not p.settings.preempts
    last = count - 1
    i = 0
    while True:
        if again:
            last = last_able(g, x, p, i, last)
            again = False
        if i > last:
            return
        j = p.line.front[i]
        i += 1
        # A job of a reservation is left to the main loop: nobody else is on its nodes.
        if not may_start(g, x, p, j) or p.known[j].reservation >= 0 or too_many(p, j):
            continue
        rank = -NEVER
        while True:
            if not ready or clock.rank != rank:
                look_ahead(g, x, p, rank)
                ready = True
            time, pieces = first_time(g, x, p, j)
            if time <= now or not p.settings.preempts or rank > -NEVER:
                break
            for m in range(pieces):
                p.kept[m] = x.tried[m].node
            shut_reserved(g, x, p, j)
            clock.hidden = 0
            made = make_room(g, x, p, j)
            if made > 0:
                give_way(g, x, p, j)
                time, pieces = now, made
                break
            for m in range(pieces):
                x.tried[m].node = p.kept[m]
            if clock.hidden == 0:
                break
            rank = float(p.classes[p.known[j].kind].rank)  # once more, without those below
        if time <= now:
            begin(g, x, p, j, pieces)
            ready, again = False, not p.settings.preempts
            started += 1
            if started == p.settings.starts:
                return
        elif holds_no_nodes(g, x, p, j):
            continue
        elif time <= now + p.settings.window and time < NEVER:
            reserve(g, x, p, j, time, pieces)
            begins = p.reserved[clock.reserved - 1].begin
            meets_last = begins <= now + g.jobs[p.line.front[last]].limit
            again = meets_last and not p.settings.preempts


# ---------------------------------------------------------------------------------------- a round


@inlined_kernel
def keep_line(g: Given, x: State, p: Passing) -> None:
    """Keys change with the time: remember the line that backfilling sees."""
    count = 0
    for m in range(p.clock.lined):
        j = x.sequence[m].item
        if x.jobs[j].phase == WAITING:
            p.before[count] = j
            count += 1
    p.clock.before = count


@inlined_kernel
def prepare(g: Given, x: State, p: Passing) -> None:
    """Before a round: the order, who is preempted, and when running jobs are expected to end."""
    clock, at = p.clock, x.at
    elapse(clock, p.settings.interval, at.now)
    fresh, at.fresh = at.fresh, 0
    if g.rules.keyed and line_stays(g):
        stand_in_line(g, x, fresh)
        clock.lined = at.lined
    elif g.rules.keyed:
        clock.lined = keys(g, x)
    count, clock.asleep = 0, 0
    for i in range(clock.gave):
        j = p.gave[i]
        if x.jobs[j].phase == WAITING:
            p.gave[count] = j
            count += 1
            clock.asleep += p.known[j].asleep
        else:
            p.known[j].until, p.known[j].asleep = -NEVER, 0
    clock.gave = count
    if g.rules.limits_of_work:
        for i in range(at.running):
            j = x.running[i]
            left = max(g.jobs[j].limit - work_done(g, x, j), 0.0)
            x.jobs[j].expect = at.now + left
            put(x.order, i, x.jobs[j].expect, j)
        at.entered, at.sorted = at.running, 0
    if p.settings.gangs:
        count_cores(g, x, p)
    clock.changed = clock.changed or clock.events > 0 or unlike_before(g, x, p)
    for r in range(clock.site):  # nodes that were kept are free again, or a job may use them
        held = p.reserved[r]
        new = clock.passed < held.begin <= at.now or clock.passed < held.end <= at.now
        clock.changed = clock.changed or new
    if p.settings.least_wait > 0:  # more may hold nodes than before
        clock.changed = 1
    clock.events = clock.moved = clock.acts = 0
    clock.round += 1


@inlined_kernel
def decide(g: Given, x: State, p: Passing) -> None:
    """A round: the main loop; then backfilling, where it is due."""
    clock, at, now = p.clock, x.at, x.at.now
    rules = p.settings
    prepare(g, x, p)
    whole = now >= clock.whole + WHOLE_LINE
    looked_at = p.line.front.size if whole else rules.depth + 1
    count = line_up(p.line, int64(p.line.front.size if clock.asleep > 0 else looked_at))
    if clock.asleep > 0:
        resume(g, x, p, count)
    main_loop(g, x, p, min(count, looked_at))
    if whole:
        clock.whole = now
    if rules.gangs and overdue(x, p.known):
        clock.changed = 1
    if at.waiting > clock.moved and rules.tested > 0 and now >= clock.passed + rules.interval:
        clock.passed = now
        if g.rules.keyed:
            keep_line(g, x, p)
        if clock.changed:
            backfill(g, x, p, line_up(p.line, int64(rules.tested)))
        clock.changed = 0
    first = int64(-1)
    if rules.tested > 0 and line_up(p.line, int64(1)) > 0:
        first = p.line.front[0]
    if rules.gangs and clock.gave > 0:  # who was suspended may have made room for one below it
        resume(g, x, p, int64(0))
    ask(g, x, p, first)
    clock.due = 1
    clock.here = clock.events


@inlined_kernel
def ask(g: Given, x: State, p: Passing, first: int) -> None:
    """Another round: while anyone waits for backfilling, and when who was preempted may start.

    Where nothing runs, nothing is to come and backfilling has seen all, it would find nothing ever.
    """
    clock, at, now = p.clock, x.at, x.at.now
    j, time = int64(-1), NEVER
    for i in range(clock.gave):
        until = p.known[p.gave[i]].until
        if now < until < NEVER:
            j = j if j >= 0 else p.gave[i]
            time = min(time, until)
    over = at.running == 0 and at.next_event == g.events.size and at.next_job == g.jobs.size
    over = over and clock.changed == 0 and p.acts.size == 0 and j < 0
    for r in range(clock.site):
        over = over and p.reserved[r].end < now
    if first >= 0 and not over:
        j, time = first, min(time, clock.passed + p.settings.interval)
    clock.asked, clock.at = j, time
    if j >= 0 and x.jobs[j].phase == WAITING and p.acts.size == 0:
        set_timer(x, j, time)


@inlined_kernel
def crowded(x: State, p: Passing) -> bool:
    """A round might cut short more attempts than there is room for.

    Also of jobs that it starts; all who are suspended hold a core, one job of a tier each.
    """
    at, (N, C) = x.at, p.gangs.holders.shape[1:]
    jobs, pieces = at.cuts + at.running + at.waiting, at.cut_pieces + p.classes.size * N * C
    short = jobs > x.cuts.size - 1 or pieces > x.cut_pieces.size
    return bool(short and p.acts.size == 0)


@lean_kernel
def play(g: Given, x: State, p: Passing, instants: int) -> int:
    """Run up to ``instants`` instants. Gives DONE, PAUSED or MORE_ROOM."""
    at, clock = x.at, p.clock
    for _ in range(instants):
        if at.half == 0:
            before = at.now
            at.fed = 0
            status = advance(g, x, None)
            if status != PAUSED:
                return status
            if at.now > before:
                for _ in range(min(clock.here, 2)):  # a second event finds it due again
                    happened(clock, p.settings.interval, before)
                clock.here = 0
            clock.here += at.fed
            clock.events += at.fed
            at.rounds += at.waiting > 0
        if p.settings.gangs and crowded(x, p):
            at.half = 1
            return MORE_ROOM
        at.half = 0
        for i in range(p.earlier.size):
            happened(clock, p.settings.interval, p.earlier[i])
        if at.waiting > 0:
            decide(g, x, p)
        else:
            nobody_waits(x)
    return PAUSED
