"""The sweep that charges waiting to causes, see :mod:`gangwise.jobs.waiting`.

Of the jobs that wait, those that ask for the same are one *kind*, and are charged at once. How many
tasks of a shape fit is kept up to date with the nodes that change; a shape of which no job waits is
not looked at. While jobs are only submitted, causes stay as they are, and nothing is charged but to
jobs that fit. The work is O((E + T) · A) for E starts and ends, T changes of rules and A kinds that
wait at once, and O(log W) where jobs of a kind part: those submitted before some job, those that
are shorter than some time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.jit import by_reference, inlined_kernel, inner_kernel, lean_kernel
from gangwise.jobs.fit_kernels import groups_fit
from gangwise.jobs.kernels import Caps, ClusterArrays, FreeDevices, Hours, Rows, Ways, int64, record

CAUSES: tuple[str, ...] = ("after", "closed", "cap", "away", "reservation", "partition")
CAUSES += ("beside", "pieces", "busy", "overtaken", "kept", "unseen", "unsplit")
CAUSES += ("latency",)
AFTER, CLOSED, CAP, AWAY, RESERVED, PARTITION, BESIDE, PIECES = range(8)
BUSY, OVERTAKEN, KEPT, UNSEEN, UNSPLIT, LATENCY = range(8, 14)
FREE = KEPT  # of jobs that ask for the same, before single jobs are looked at

NODE_GOES, NODE_COMES, RESERVATION_BEGINS, RESERVATION_ENDS, HOURS_CHANGE = range(5)

# Of a kind, those that were submitted before some job, and those that ask for less time than some,
# are charged at once: in Fenwick trees within each kind, to which seconds are added up to a place
# and which are read at one. Seconds overtaken; unseen; in which it would not be kept but for a
# reservation. The last has jobs that wait, and is read as a sum up to a place.
OLDER, SHORTER, STOPPED, NUMBER = range(4)

KIND = record(  # of waiting jobs: alike in what they ask for and whose use they count in
    shape=np.int64,
    tasks=np.int64,
    claim=np.int64,
    hours=np.int64,
    exempt=np.int64,  # they have a reservation
    unsplit=np.int64,  # they ask for what is not looked at
    ask=np.int64,  # of the main device type, thousandths
    first=np.int64,  # its jobs are `Sweep.waits` from here
    past=np.int64,  # to before here
    waiting=np.int64,
    oldest=np.int64,  # no job of the kind that waits stands before
    cause=np.int64,
    older=np.int64,  # of its jobs so many would have enough without those submitted later
    parted=np.int64,  # no more were ever charged with that
    since=np.float64,  # it is charged up to here
)
WAIT = record(  # of one job, in the order of (kind, row)
    since=np.float64,
    start=np.float64,
    kind=np.int64,
    rank=np.int64,  # place of its limit among those of its kind, from 1
    owner=np.int64,
    state=np.int64,  # 0 not here yet, 1 waits, 2 has started
)
ATTEMPT = record(
    begin=np.float64,
    end=np.float64,
    row=np.int64,
    first=np.int64,  # its pieces are from here
    past=np.int64,  # to before here
    claim=np.int64,
    owner=np.int64,  # user and account
    wait=np.int64,  # the one that ends with it, −1 for none
    earlier=np.int64,  # the attempt that runs before it, by row; −1 for none
    later=np.int64,
)
CHANGE = record(
    at=np.float64,
    reserves=np.float64,  # when the next reservation begins, from this change on
    what=np.int64,
    node=np.int64,
)
NEED = record(  # tasks of a shape that fit on the nodes that it may use
    now=np.int64,
    if_up=np.int64,  # if all of these were up
    anywhere=np.int64,  # on all partitions
    by_type=np.int64,  # by the main device type alone
    reserved=np.int64,  # on nodes that are reserved
    free=np.int64,  # thousandths of the main device type, whether or not tasks fit
    main=np.int64,  # the device type that it mostly asks for
    alone=np.int64,  # has its nodes alone
    kinds=np.int64,  # that wait
)
FIT = record(free=np.int64, tasks=np.int32, by_type=np.int32)
NODE = record(up=np.int64, reserved=np.int64, touched=np.int64)
COMPANY = record(  # all who hold devices of a type in a partition
    total=np.float64,
    clock=np.float64,  # ∫ waiting jobs / devices held
    busy=np.float64,  # waiting jobs that lack devices
)
SIZES = record(
    kinds=np.int64,  # that wait
    shapes=np.int64,  # of these
    touched=np.int64,  # nodes that changed in this instant
    newest=np.int64,  # attempt that runs, by its row; −1 for none
    started=np.int64,  # waits that have ended
    next=np.int64,  # of `by_start`: before it no job waits that does not fit
    changed=np.int64,  # that may be otherwise now
    free=np.int64,  # kinds that fit
    away=np.int64,  # nodes
)


@by_reference
class Sweep(NamedTuple):
    """Waits, attempts and changes of rules, a row behind the last of each at time inf."""

    cluster: ClusterArrays  # devices are not told apart
    caps: Caps
    hours: Hours
    labelled: Bools  # [C, N] nodes that a shape may use, whatever its partition
    member: Bools  # [partitions, N]
    everywhere: Bools  # [C] allowed on all nodes
    per_task: Floats  # [S, K] one over what a task asks for, 0 where it asks for none
    kinds: Rows  # [Q], in the order of what they may use and how much they ask for
    waits: Rows  # [W + 1]
    rows: Ints  # [W] of their jobs
    limits: Floats  # [W] sorted within each kind
    by_since: Ints
    by_start: Ints  # as their jobs start
    attempts: Rows  # [A + 1]
    by_begin: Ints
    by_end: Ints
    node: Ints  # [P]
    amount: Ints  # [P, K] thousandths
    whole: Ints  # [A, K] of all pieces of one that runs
    changes: Rows  # [V + 1]
    needs: Rows  # [S]
    nodes: Rows  # [N]
    fits: Rows  # [S, N] up or not
    free: Ints  # [N, K]
    room: FreeDevices  # on nodes that are up
    trial: FreeDevices
    ways: Ways
    touched: Ints  # [N]
    used: Ints  # [counters]
    kinds_now: Ints  # [Q] those that wait, in order
    shapes_now: Ints  # [S]
    sizes: Rows  # [1]
    by_kind: Floats  # [Q, causes] seconds so far
    trees: Floats  # [W, 4]
    held: Floats  # [owners, M] of each partition and device type
    seen: Floats  # [owners, M] of `COMPANY.clock` when held last changed
    company: Rows  # [M]
    # what is added up, in seconds of waiting
    split: Floats  # [J, causes]
    of_cap: Floats  # [counters]
    holders: Floats  # [owners]
    kept_for: Floats  # [owners]


@inner_kernel
def _count(x: Sweep, s: int, n: int, sign: int) -> None:
    """Count what node n takes of a shape (sign 1), or no more (−1)."""
    c, fit, need, node = x.cluster.shapes[s].constraint, x.fits[s, n], x.needs[s], x.nodes[n]
    tasks = sign * fit.tasks
    now = tasks * (node.up > 0)
    if x.cluster.allowed[c, n]:
        need.if_up += tasks
        need.now += now
        need.reserved += now * (node.reserved > 0)
        if node.up > 0:
            need.by_type += sign * fit.by_type
            need.free += sign * fit.free
    if x.labelled[c, n]:
        need.anywhere += now


@inner_kernel
def _refit(x: Sweep, s: int, n: int) -> None:
    """Bring up to date what node n takes of a shape."""
    shape, k = x.cluster.shapes[s], x.needs[s].main
    most = by_type = shape.per_node
    for i in range(x.free.shape[1]):
        if x.per_task[s, i] > 0.0:
            # The quotient of whole numbers: half a thousandth is more than rounding takes away.
            quotient = int64((max(x.free[n, i], 0) + 0.5) * x.per_task[s, i])
            most = min(most, quotient)
            if i == k:
                by_type = min(by_type, quotient)
    fit = x.fits[s, n]
    if fit.tasks != most or fit.free != x.free[n, k] or fit.by_type != by_type:
        _count(x, s, n, -1)
        fit.tasks, fit.by_type, fit.free = most, by_type, x.free[n, k]
        _count(x, s, n, 1)


@inner_kernel
def _node_changes(x: Sweep, n: int, what: int) -> None:
    node = x.nodes[n]
    for sign in (-1, 1):
        for z in range(x.sizes[0].shapes):
            _count(x, x.shapes_now[z], n, sign)
        if sign < 0:
            if what <= NODE_COMES:
                x.sizes[0].away += node.up - what
                node.up = what
            else:
                node.reserved += 1 if what == RESERVATION_BEGINS else -1


@inner_kernel
def _groups_fit(x: Sweep, s: int) -> bool:
    """All groups of a shape fit on nodes that are up."""
    for n in range(x.free.shape[0]):
        for k in range(x.free.shape[1]):
            x.room.free[n, k] = x.free[n, k] if x.nodes[n].up > 0 else 0
    return groups_fit(x.cluster, x.ways, x.room, x.trial, s)


@inner_kernel
def _run(x: Sweep, a: int, sign: int) -> None:
    """An attempt takes its devices (sign 1), or gives them back (−1)."""
    run, sizes, K = x.attempts[a], x.sizes[0], x.free.shape[1]
    owner = run.owner
    for p in range(run.first, run.past):
        n = x.node[p]
        if (
            sizes.shapes > 0 and x.nodes[n].touched == 0
        ):  # else there is no room to bring up to date
            x.nodes[n].touched = 1
            x.touched[sizes.touched] = n
            sizes.touched += 1
        for k in range(K):
            amount = sign * x.amount[p, k]
            x.free[n, k] -= amount
            x.whole[a, k] += amount
            for q in range(x.member.shape[0] if amount else 0):
                if x.member[q, n]:
                    m = q * K + k
                    company = x.company[m]
                    # What the owner held until now has its share of the waiting until now.
                    x.holders[owner] += x.held[owner, m] * (company.clock - x.seen[owner, m])
                    x.seen[owner, m] = company.clock
                    x.held[owner, m] += amount
                    company.total += amount
    for i in range(x.caps.starts[run.claim], x.caps.starts[run.claim + 1]):
        x.used[x.caps.counter[i]] += sign * x.caps.amount[i]
    if sign > 0:
        later, earlier = -1, sizes.newest
        while earlier >= 0 and x.attempts[earlier].row > run.row:
            later, earlier = earlier, x.attempts[earlier].earlier
        run.earlier, run.later = earlier, later
    later, earlier = run.later, run.earlier
    # Its neighbours know it, or one another.
    if later < 0:
        sizes.newest = a if sign > 0 else earlier
    else:
        x.attempts[later].earlier = a if sign > 0 else earlier
    if earlier >= 0:
        x.attempts[earlier].later = a if sign > 0 else later


@inner_kernel
def _add(x: Sweep, tree: int, q: int, i: int, value: float) -> None:
    """Add a value to all places of a kind's tree up to the i-th, counted from 1."""
    before = x.kinds[q].first - 1
    while i > 0:
        x.trees[before + i, tree] += value
        i -= i & -i


@inner_kernel
def _settle(x: Sweep, w: int, sign: int) -> None:
    """Take what its kind is charged with so far (sign 1), or take it off (−1)."""
    kind, i, j = x.kinds[x.waits[w].kind], x.waits[w].rank, x.rows[w]
    before, size, overtaken, unseen, stopped = kind.first - 1, kind.past - kind.first, 0.0, 0.0, 0.0
    while i <= size:
        tree = x.trees[before + i]
        unseen += tree[SHORTER]
        stopped += tree[STOPPED]
        tree[NUMBER] -= sign
        i += i & -i
    i = w - before
    while i <= min(size, kind.parted):
        overtaken += x.trees[before + i, OLDER]
        i += i & -i
    for cause in range(LATENCY):
        x.split[j, cause] += sign * x.by_kind[x.waits[w].kind, cause]
    x.split[j, OVERTAKEN] += sign * overtaken
    x.split[j, BUSY] -= sign * overtaken
    x.split[j, UNSEEN] += sign * unseen
    x.split[j, RESERVED] += sign * stopped
    x.split[j, KEPT] -= sign * (unseen + stopped)


@inlined_kernel
def _up_to(values: Any, low: int, high: int, value: float) -> int:
    """How many of sorted values are at most a value."""
    first = low
    while low < high:
        middle = (low + high) // 2
        if values[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low - first


@inlined_kernel
def _full_cap(x: Sweep, claim: int) -> int:
    """The first counter that keeps a claim from starting, −1 for none."""
    for i in range(x.caps.starts[claim], x.caps.starts[claim + 1]):
        if x.used[x.caps.counter[i]] + x.caps.amount[i] > x.caps.most[i]:
            return int(x.caps.counter[i])
    return -1


@inlined_kernel
def _is_closed(hours: Any, c: int, now: float) -> bool:
    passed = _up_to(hours.since, hours.starts[c], hours.starts[c + 1], now)
    return bool(passed > 0 and now < hours.to[hours.starts[c] + passed - 1])


@inner_kernel
def _cause(x: Sweep, q: int, now: float) -> int:
    """What keeps jobs of a kind from starting; :data:`FREE` where they fit."""
    kind, need = x.kinds[q], x.needs[x.kinds[q].shape]
    if _is_closed(x.hours, kind.hours, now):
        return CLOSED
    if _full_cap(x, kind.claim) >= 0:
        return CAP
    fits = FREE if kind.unsplit == 0 else UNSPLIT
    if x.cluster.shapes[kind.shape].groups > 0:
        if _groups_fit(x, kind.shape):
            return fits
        return PIECES if need.free >= kind.ask else BUSY
    if need.now >= kind.tasks:
        aside = need.reserved if kind.exempt == 0 else 0
        return fits if need.now - aside >= kind.tasks else RESERVED
    if need.if_up >= kind.tasks:
        return AWAY
    if need.anywhere >= kind.tasks:
        return PARTITION
    if need.free < kind.ask:
        return BUSY
    return BESIDE if need.by_type >= kind.tasks and need.alone == 0 else PIECES


@inner_kernel
def _part(x: Sweep, q: int, a: int, more: float) -> tuple[int, float]:
    """Tell how many jobs of a kind would have enough without those submitted later.

    From the newest attempt that runs back to the one without which there would be enough. Those
    from attempt ``a`` on, −1 for none, hold ``more``; gives both for the next kind, which asks for
    as much or more of the same.
    """
    kind, s = x.kinds[q], x.kinds[q].shape
    k, c = x.needs[s].main, x.cluster.shapes[s].constraint
    oldest, lacks = x.rows[kind.oldest], kind.ask - x.needs[s].free
    anywhere = x.sizes[0].away == 0 and x.everywhere[c]
    kind.older = 0
    while more < lacks:
        before = x.attempts[a].earlier if a >= 0 else x.sizes[0].newest
        if before < 0 or x.attempts[before].row <= oldest:
            return a, more
        a = before
        if anywhere:
            more += x.whole[a, k]
        for p in range(
            x.attempts[a].first, x.attempts[a].first if anywhere else x.attempts[a].past
        ):
            if x.cluster.allowed[c, x.node[p]] and x.nodes[x.node[p]].up > 0:
                more += x.amount[p, k]
    kind.older = _up_to(x.rows, kind.first, kind.past, x.attempts[a].row - 1)
    kind.parted = max(kind.parted, kind.older)
    return a, more


@inlined_kernel
def _company(x: Sweep, s: int) -> int:
    return int(x.cluster.shapes[s].pool * x.free.shape[1] + x.needs[s].main)


@inner_kernel
def _judge(x: Sweep, q: int, now: float, a: int, more: float) -> tuple[int, float]:
    """Tell what keeps a kind from starting from now on; ``a`` and ``more`` as of :func:`_part`."""
    kind, cause = x.kinds[q], _cause(x, q, now)
    if cause != kind.cause:
        kind.cause, x.sizes[0].changed = cause, 1
    x.sizes[0].free += cause == FREE
    if cause == BUSY:
        x.company[_company(x, kind.shape)].busy += kind.waiting
        a, more = _part(x, q, a, more)
    return a, more


@inner_kernel
def _judge_all(x: Sweep, now: float) -> None:
    a, more, constraint, main = int64(-1), 0.0, int64(-1), int64(-1)
    x.sizes[0].free = 0
    for m in range(x.company.size):
        x.company[m].busy = 0
    for z in range(x.sizes[0].kinds):
        s = x.kinds[x.kinds_now[z]].shape
        if x.cluster.shapes[s].constraint != constraint or x.needs[s].main != main:
            a, more = int64(-1), 0.0
            constraint, main = x.cluster.shapes[s].constraint, x.needs[s].main
        a, more = _judge(x, x.kinds_now[z], now, a, more)


@inner_kernel
def _flush(x: Sweep, q: int, now: float) -> None:
    """Charge a kind up to now."""
    kind, lasts = x.kinds[q], now - x.kinds[q].since
    x.by_kind[q, kind.cause] += lasts
    if kind.cause == CAP:
        x.of_cap[_full_cap(x, kind.claim)] += kind.waiting * lasts
    elif kind.cause == BUSY:
        _add(x, OLDER, q, kind.older, lasts)
    kind.since = now


@inner_kernel
def _flush_all(x: Sweep, now: float) -> None:
    for z in range(x.sizes[0].kinds):
        _flush(x, x.kinds_now[z], now)


@inner_kernel
def _enter(items: Ints, size: int, item: int) -> None:
    """Put an item into a sorted list of so many."""
    while size > 0 and items[size - 1] > item:
        items[size] = items[size - 1]
        size -= 1
    items[size] = item


@inner_kernel
def _drop(items: Ints, size: int, item: int) -> None:
    place = 0
    while items[place] != item:
        place += 1
    for i in range(place, size - 1):
        items[i] = items[i + 1]


@inner_kernel
def _join(x: Sweep, w: int, now: float) -> bool:
    """A job begins to wait; whether causes are to be told anew."""
    q, sizes = x.waits[w].kind, x.sizes[0]
    kind, s, need = x.kinds[q], x.kinds[q].shape, x.needs[x.kinds[q].shape]
    first = kind.waiting == 0
    if first:
        kind.since, kind.oldest = now, w
        _enter(x.kinds_now, sizes.kinds, q)
        sizes.kinds += 1
        need.kinds += 1
        if need.kinds == 1:
            _enter(x.shapes_now, sizes.shapes, s)
            sizes.shapes += 1
            # Nodes may have changed since a job of the shape waited.
            need.now = need.if_up = need.anywhere = need.by_type = need.reserved = need.free = 0
            for n in range(x.nodes.size):
                fit = x.fits[s, n]
                fit.tasks, fit.by_type, fit.free = 0, 0, 0
                _refit(x, s, n)
    else:
        _flush(x, q, now)
    _settle(x, w, -1)
    x.waits[w].state = 1
    kind.waiting += 1
    sizes.changed = 1
    if first:
        _judge(x, q, now, int64(-1), 0.0)
    elif kind.cause == BUSY:
        x.company[_company(x, s)].busy += 1
    oldest, kind.oldest = kind.oldest, min(kind.oldest, w)
    return bool(w < oldest)


@inner_kernel
def _leave(x: Sweep, w: int) -> None:
    q, sizes = x.waits[w].kind, x.sizes[0]
    _settle(x, w, 1)
    x.waits[w].state = 2
    sizes.started += 1
    kind, need = x.kinds[q], x.needs[x.kinds[q].shape]
    kind.waiting -= 1
    if kind.waiting > 0:
        while x.waits[kind.oldest].state != 1:
            kind.oldest += 1
        return
    _drop(x.kinds_now, sizes.kinds, q)
    sizes.kinds -= 1
    need.kinds -= 1
    if need.kinds == 0:
        _drop(x.shapes_now, sizes.shapes, kind.shape)
        sizes.shapes -= 1


@inner_kernel
def _next_stuck(x: Sweep) -> int:
    """The wait of a job that does not fit that ends first; the row behind the last for none."""
    sizes, final = x.sizes[0], x.waits.size - 1
    if sizes.changed or sizes.next < sizes.started:
        sizes.next, sizes.changed = sizes.started, 0
    while x.by_start[sizes.next] < final:
        w = x.by_start[sizes.next]
        cause = x.kinds[x.waits[w].kind].cause
        if x.waits[w].state == 1 and AWAY <= cause <= BUSY and cause != RESERVED:
            break
        sizes.next += 1
    return int(x.by_start[sizes.next])


@inner_kernel
def _charge_free(x: Sweep, q: int, stuck: int, now: float, lasts: float, reserved: float) -> None:
    """Charge jobs of a kind that fit: what would end before a stuck one starts delays none."""
    kind, start = x.kinds[q], x.waits[stuck].start
    until = start if kind.exempt else min(start, reserved)
    unseen = place = _up_to(x.limits, kind.first, kind.past, until - now)
    _add(x, SHORTER, q, unseen, lasts)
    if start > until:
        place = _up_to(x.limits, kind.first, kind.past, start - now)
        _add(x, STOPPED, q, place, lasts)
        _add(x, STOPPED, q, unseen, -lasts)
    if stuck < x.waits.size - 1:
        kept = float(kind.waiting)
        while place > 0:
            kept -= x.trees[kind.first - 1 + place, NUMBER]
            place -= place & -place
        x.kept_for[x.waits[stuck].owner] += kept * lasts


@inner_kernel
def _charge(x: Sweep, now: float, lasts: float, reserved: float) -> None:
    """Charge what depends on the time to the next instant."""
    for m in range(x.company.size):
        company = x.company[m]
        if company.busy > 0 and company.total > 0:
            company.clock += lasts * company.busy / company.total
    if x.sizes[0].free > 0:
        stuck = _next_stuck(x)
        for z in range(x.sizes[0].kinds):
            if x.kinds[x.kinds_now[z]].cause == FREE:
                _charge_free(x, x.kinds_now[z], stuck, now, lasts, reserved)


@lean_kernel
def sweep_waits(x: Sweep) -> None:
    sizes = x.sizes[0]
    i, e, w, v, now = 0, 0, 0, 0, -np.inf
    while now < np.inf:
        moved = x.changes[v].at == now or x.attempts[x.by_begin[i]].begin == now
        moved |= x.attempts[x.by_end[e]].end == now
        if moved:
            _flush_all(x, now)
        # Of an instant, what ends comes before what begins.
        while x.changes[v].at == now:
            if x.changes[v].what != HOURS_CHANGE:
                _node_changes(x, x.changes[v].node, x.changes[v].what)
            v += 1
        while x.attempts[x.by_end[e]].end == now:
            if x.attempts[x.by_end[e]].begin < now:
                _run(x, x.by_end[e], -1)
            e += 1
        while x.attempts[x.by_begin[i]].begin == now:
            run = x.attempts[x.by_begin[i]]
            if run.wait >= 0:
                _leave(x, run.wait)
            if run.end > now:
                _run(x, x.by_begin[i], 1)
            i += 1
        for z in range(sizes.touched):
            x.nodes[x.touched[z]].touched = 0
            for y in range(sizes.shapes):
                _refit(x, x.shapes_now[y], x.touched[z])
        sizes.touched = 0
        while x.waits[x.by_since[w]].since == now:
            if _join(x, x.by_since[w], now) and not moved:
                _flush_all(x, now)
                moved = True
            w += 1
        if moved:
            _judge_all(x, now)
        after = min(x.attempts[x.by_begin[i]].begin, x.attempts[x.by_end[e]].end)
        after = min(after, min(x.waits[x.by_since[w]].since, x.changes[v].at))
        if sizes.kinds > 0:
            _charge(x, now, after - now, x.changes[v].reserves)
        now = after
    for owner in range(x.held.shape[0]):
        for m in range(x.company.size):
            x.holders[owner] += x.held[owner, m] * (x.company[m].clock - x.seen[owner, m])
