"""The sweep that charges waiting to causes, see :mod:`gangwise.jobs.waiting`.

Of the jobs that wait, those that ask for the same are one *kind*, and are charged at once, when
what they are charged with changes. How many tasks of a shape fit is kept up to date with the nodes
that change; a shape of which no job waits is not looked at. While jobs are only submitted, causes
stay as they are. The work is O((E + T) · A) for E starts and ends, T changes of rules and A kinds
that wait at once, and O(log W) for W that wait where jobs of a kind part: those submitted before
some job, those that are shorter than some time.

These are the first of a kind in an order, by row or by limit. Its jobs that wait stand in that
order, each with a charge of its own and of all before it: the first p are charged at the p-th, and
a job's charge is the sum from its place on, less what that was when it came. It leaves its own to
the one before it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.jit import by_reference, inlined_kernel, inner_kernel, lean_kernel
from gangwise.jobs import kernels
from gangwise.jobs.fit_kernels import groups_fit
from gangwise.jobs.kernels import Caps, ClusterArrays, FreeDevices, Hours, Rows, Ways, int64, record

CAUSES: tuple[str, ...] = ("after", "closed", "cap", "away", "reservation", "partition")
CAUSES += ("beside", "pieces", "busy", "overtaken", "kept", "unseen", "unsplit")
CAUSES += ("latency",)
AFTER, CLOSED, CAP, AWAY, RESERVED, PARTITION, BESIDE, PIECES = range(8)
BUSY, OVERTAKEN, KEPT, UNSEEN, UNSPLIT, LATENCY = range(8, 14)
FREE = KEPT  # of jobs that ask for the same, before single jobs are looked at

NODE_GOES, NODE_COMES, RESERVATION_BEGINS, RESERVATION_ENDS, HOURS_CHANGE = range(5)

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
    since=np.float64,  # charged up to here; since then:
    cause=np.int64,
    older=np.int64,  # of those that wait so many would have enough without jobs submitted later
    full=np.int64,  # the counter of a cap that it waits for, −1 for none
    marginal=np.int64,  # `older` stays while no attempt from this one on begins or ends
)
WAIT = record(  # of one job, in the order of (kind, row)
    start=np.float64,
    kind=np.int64,
    turn=np.int64,  # place in `Sweep.by_start`
    state=np.int64,  # 0 not here yet, 1 waits, 2 has started
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
    lowest=np.int64,  # of the set of running attempts, see `kernels.insert`
    started=np.int64,  # waits that have ended
    next=np.int64,  # of `by_start`: before it no job waits that does not fit
    free=np.int64,  # kinds that fit
    away=np.int64,  # nodes
    moved=np.int64,  # the last attempt, by row the oldest, that began or ended in this instant
)


@by_reference
class Sweep(NamedTuple):
    """Waits, attempts and changes of rules; behind the last wait and change is one at inf."""

    cluster: ClusterArrays  # devices are not told apart
    caps: Caps
    hours: Hours
    labelled: Bools  # [C, N] nodes that a shape may use, whatever its partition
    member: Bools  # [partitions, N]
    everywhere: Bools  # [C] allowed on all nodes
    kinds: Rows  # [Q], in the order of what they may use and how much they ask for
    waits: Rows  # [W + 1]
    rows: Ints  # [W] of their jobs
    limit: Floats  # [J]
    by_since: Ints  # [W]
    by_start: Ints  # [W + 1] as their jobs start, W behind the last
    # attempts
    begin: Floats  # [A] they hold devices from here
    end: Floats
    row: Ints  # the latest first
    first: Ints  # its pieces are from here
    past: Ints  # to before here
    wait: Ints  # that ends with it, −1 for none
    by_begin: Ints  # those that run while a job waits, or end a wait
    by_end: Ints
    # when something happens, inf behind the last
    begins: Floats  # `begin` in the order of `by_begin`
    ends: Floats
    sinces: Floats  # jobs that wait, as of `by_since`
    node: Ints  # [P]
    amount: Ints  # [P, K] thousandths
    claim: Ints  # [J]
    owner: Ints  # [J] user and account
    words: Ints  # set of those that run
    summary: Ints
    whole: Ints  # [A, K] thousandths
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
    # of the waiting jobs of kind q, from `kinds[q].first` on, and seconds charged at each
    by_row: Ints  # [W]
    overtaken: Floats  # [W, 2]
    by_limit: Floats
    passed: Floats  # [W, 2] unseen; in which it would not be kept but for a reservation
    company: Rows  # [M]
    submit: Floats  # [J]
    ready: Floats
    first_held: Floats
    start: Floats
    queued: Bools
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
    # A node that is not up has room for nothing now, but counts for `if_up`.
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
        if x.cluster.per_task[s, i] > 0.0:
            # Rounded down as in `fits_of`.
            quotient = int64((max(x.free[n, i], 0) + 0.5) * x.cluster.per_task[s, i])
            most = min(most, quotient)
            if i == k:
                by_type = min(by_type, quotient)
    fit = x.fits[s, n]
    # Out with the old counts, in with the new: sums over nodes stay right without a pass over them.
    if fit.tasks != most or fit.free != x.free[n, k] or fit.by_type != by_type:
        _count(x, s, n, -1)
        fit.tasks, fit.by_type, fit.free = most, by_type, x.free[n, k]
        _count(x, s, n, 1)


@inner_kernel
def _node_changes(x: Sweep, n: int, what: int) -> None:
    node = x.nodes[n]
    # With its old state out of the sums, with its new one into them.
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
def _run(x: Sweep, a: int, sign: int) -> None:
    """An attempt takes its devices (sign 1), or gives them back (−1)."""
    sizes, K, owner, claim = x.sizes[0], x.free.shape[1], x.owner[x.row[a]], x.claim[x.row[a]]
    for p in range(x.first[a], x.past[a]):
        n = x.node[p]
        if sizes.shapes > 0 and x.nodes[n].touched == 0:  # else nothing is brought up to date
            x.nodes[n].touched = 1
            x.touched[sizes.touched] = n
            sizes.touched += 1
        for k in range(K):
            amount = sign * x.amount[p, k]
            x.free[n, k] -= amount
            x.whole[a, k] += amount
            for q in range(x.member.shape[0]):
                # Companies of all partitions that the node is in; most logs have one.
                if amount != 0 and x.member[q, n]:
                    # Its share of the waiting is what the clock gains while it holds devices.
                    company = x.company[q * K + k]
                    # Minus at the beginning, plus at the end: the clock's gain in between counts.
                    x.holders[owner] -= amount * company.clock
                    company.total += amount
    for c in range(x.caps.starts[claim], x.caps.starts[claim + 1]):
        x.used[x.caps.counter[c]] += sign * x.caps.amount[c]
    sizes.moved = max(sizes.moved, a)
    if sign > 0:
        kernels.insert(x.words, x.summary, sizes, a)
    else:
        kernels.remove(x.words, x.summary, a)


@inner_kernel
def _insert(keys: Any, charges: Floats, first: int, size: int, key: float) -> tuple[float, float]:
    """Put a job into its place in an order, before equals; gives the charges behind it."""
    i = first + size
    a, b = 0.0, 0.0
    # Equals move behind it, so a charge made before it came stays with them.
    while i > first and keys[i - 1] >= key:
        keys[i] = keys[i - 1]
        for c in range(2):
            charges[i, c] = charges[i - 1, c]
        a += charges[i, 0]
        b += charges[i, 1]
        i -= 1
    keys[i] = key
    charges[i, 0], charges[i, 1] = 0.0, 0.0
    return a, b


@inner_kernel
def _remove(keys: Any, charges: Floats, first: int, size: int, key: float) -> tuple[float, float]:
    """Take a job out of an order; gives the charges from its place on."""
    i = first
    while keys[i] != key:
        i += 1
    a, b = charges[i, 0], charges[i, 1]
    # What was charged up to here now ends one job earlier.
    if i > first:
        charges[i - 1, 0] += a
        charges[i - 1, 1] += b
    for later in range(i + 1, first + size):
        a += charges[later, 0]
        b += charges[later, 1]
        keys[later - 1] = keys[later]
        for c in range(2):
            charges[later - 1, c] = charges[later, c]
    return a, b


@inner_kernel
def _settle(x: Sweep, w: int, sign: int) -> None:
    """A job gets its share of what its kind is charged with, from when it comes (sign −1) on."""
    q, j = x.waits[w].kind, x.rows[w]
    kind = x.kinds[q]
    first, size = kind.first, kind.waiting
    if sign < 0:
        overtaken, _ = _insert(x.by_row, x.overtaken, first, size, j)
        unseen, stopped = _insert(x.by_limit, x.passed, first, size, x.limit[j])
    else:
        overtaken, _ = _remove(x.by_row, x.overtaken, first, size, j)
        unseen, stopped = _remove(x.by_limit, x.passed, first, size, x.limit[j])
    # Cumulated since the play began: minus when it comes, plus when it leaves, is its own.
    for cause in range(LATENCY):
        x.split[j, cause] += sign * x.by_kind[q, cause]
    x.split[j, OVERTAKEN] += sign * overtaken
    # Kinds are charged with the frequent cause; the part of single jobs is moved here.
    x.split[j, BUSY] -= sign * overtaken
    x.split[j, UNSEEN] += sign * unseen
    x.split[j, RESERVED] += sign * stopped
    x.split[j, KEPT] -= sign * (unseen + stopped)
    kind.waiting -= sign


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
    # The order of this function is that of the list of causes: the first that holds.
    if _is_closed(x.hours, kind.hours, now):
        return CLOSED
    if _full_cap(x, kind.claim) >= 0:
        return CAP
    fits = FREE if kind.unsplit == 0 else UNSPLIT
    if x.cluster.shapes[kind.shape].groups > 0:
        if _groups_fit(x, kind.shape):
            return fits
        # Groups are not counted by node: enough in sum means pieces, else busy.
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
    # Who wants nodes alone is short of whole nodes, not of other device types.
    return BESIDE if need.by_type >= kind.tasks and need.alone == 0 else PIECES


@inner_kernel
def _part(x: Sweep, q: int, i: int, more: float) -> tuple[int, int, float]:
    """How many jobs of a kind would have enough without those submitted later.

    From the newest attempt that runs back to the one without which there would be enough. Those up
    to attempt i hold ``more``; gives both for the next kind, which asks for as much or more of the
    same.
    """
    kind, s = x.kinds[q], x.kinds[q].shape
    k, c = x.needs[s].main, x.cluster.shapes[s].constraint
    # Rows are by submission: attempts of jobs up to the oldest waiting one are not later.
    oldest, lacks = x.by_row[kind.first], kind.ask - x.needs[s].free
    anywhere = x.sizes[0].away == 0 and x.everywhere[c]
    # Exact: removing later jobs one by one, newest first, until enough would be free.
    while more < lacks:
        a = kernels.following(x.words, x.summary, x.sizes[0], i + 1)
        kind.marginal = a if a >= 0 else x.row.size
        if a < 0 or x.row[a] <= oldest:
            return 0, i, more
        i = a
        if anywhere:
            more += x.whole[a, k]
            continue
        for p in range(x.first[a], x.past[a]):
            if x.cluster.allowed[c, x.node[p]] and x.nodes[x.node[p]].up > 0:
                more += x.amount[p, k]
    kind.marginal = i
    last = kind.first + kind.waiting
    # Jobs submitted before that row would have enough without it and all later ones.
    return _up_to(x.by_row, kind.first, last, x.row[i] - 1), i, more


@inlined_kernel
def _company(x: Sweep, s: int) -> int:
    return int(x.cluster.shapes[s].pool * x.free.shape[1] + x.needs[s].main)


@inlined_kernel
def _is_stuck(cause: int) -> bool:
    return AWAY <= cause <= BUSY and cause != RESERVED


@inner_kernel
def _flush(x: Sweep, q: int, now: float) -> None:
    """Charge a kind up to now."""
    kind, lasts = x.kinds[q], now - x.kinds[q].since
    x.by_kind[q, kind.cause] += lasts
    if kind.cause == CAP:
        x.of_cap[kind.full] += kind.waiting * lasts
    elif kind.cause == BUSY and kind.older > 0:
        x.overtaken[kind.first + kind.older - 1, 0] += lasts
    kind.since = now


@inlined_kernel
def _judge(x: Sweep, q: int, now: float, busy: bool, i: int, more: float) -> tuple[int, float]:
    """Tell what keeps a kind from starting from now on, where it is known: ``busy``.

    ``i`` and ``more`` as of :func:`_part`.
    """
    kind, older, full = x.kinds[q], int64(0), int64(-1)
    cause = BUSY if busy else _cause(x, q, now)
    x.sizes[0].free += cause == FREE
    if cause == BUSY:
        x.company[_company(x, kind.shape)].busy += kind.waiting
        # What a later attempt takes from what is free is what there would be more without it.
        if kind.cause == BUSY and x.sizes[0].moved < kind.marginal:
            return i, more
        older, i, more = _part(x, q, i, more)
    elif cause == CAP:
        full = _full_cap(x, kind.claim)
    if cause != kind.cause or older != kind.older or full != kind.full:
        # Only at a change: between two of them a kind is charged in one sum.
        _flush(x, q, now)
        if _is_stuck(cause) and not _is_stuck(kind.cause):
            # Newly stuck: one that waits may start before the first that was known.
            x.sizes[0].next = 0
        kind.cause, kind.older, kind.full = cause, older, full
    return i, more


@inner_kernel
def _judge_all(x: Sweep, now: float) -> None:
    i, more, constraint, main = int64(-1), 0.0, int64(-1), int64(-1)
    sizes, ruled = x.sizes[0], x.caps.most.size + x.hours.since.size
    sizes.free = 0
    for m in range(x.company.size):
        x.company[m].busy = 0
    for z in range(sizes.kinds):
        q = x.kinds_now[z]
        s = x.kinds[q].shape
        # Kinds of the same nodes and type ask for ever more: the walk of `_part` goes on.
        if x.cluster.shapes[s].constraint != constraint or x.needs[s].main != main:
            i, more = int64(-1), 0.0
            constraint, main = x.cluster.shapes[s].constraint, x.needs[s].main
        # All nodes are up and its own, and there is no rule that might hold it: then it is busy.
        anywhere = sizes.away == 0 and x.everywhere[constraint] and ruled == 0
        busy = anywhere and x.needs[s].free < x.kinds[q].ask
        i, more = _judge(x, q, now, busy, i, more)


@inner_kernel
def _join(x: Sweep, w: int, now: float) -> bool:
    """A job begins to wait; whether causes are to be told anew."""
    q, sizes = x.waits[w].kind, x.sizes[0]
    kind, s, need = x.kinds[q], x.kinds[q].shape, x.needs[x.kinds[q].shape]
    first = kind.waiting == 0
    if first:
        kind.since = now
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
    newest = x.by_row[kind.first + kind.waiting - 1] == x.rows[w]
    if not newest:
        kind.marginal = -1
    if first:
        _judge(x, q, now, False, int64(-1), 0.0)
    elif kind.cause == BUSY:
        x.company[_company(x, s)].busy += 1
    if _is_stuck(kind.cause):
        sizes.next = min(sizes.next, x.waits[w].turn)
    # A later job behind all of its kind changes no cause of those before it.
    return not newest


@inner_kernel
def _leave(x: Sweep, w: int, now: float) -> None:
    q, sizes = x.waits[w].kind, x.sizes[0]
    _flush(x, q, now)
    _settle(x, w, 1)
    x.waits[w].state, x.kinds[q].marginal = 2, -1
    sizes.started += 1
    kind, need = x.kinds[q], x.needs[x.kinds[q].shape]
    if kind.waiting > 0:
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
    sizes = x.sizes[0]
    # Waits before `started` are over; the pointer only moves on, but where a kind gets stuck.
    sizes.next = max(sizes.next, sizes.started)
    while sizes.next < x.waits.size - 1:
        wait = x.waits[x.by_start[sizes.next]]
        if wait.state == 1 and _is_stuck(x.kinds[wait.kind].cause):
            break
        sizes.next += 1
    return int(x.by_start[sizes.next])


@inner_kernel
def _charge_free(x: Sweep, q: int, stuck: int, now: float, lasts: float, reserved: float) -> None:
    """Charge jobs of a kind that fit: what would end before a stuck one starts delays none."""
    kind, start = x.kinds[q], x.waits[stuck].start
    before, past = kind.first - 1, kind.first + kind.waiting
    # A job runs on into a reservation unless it ends before it, or is exempt.
    until = start if kind.exempt else min(start, reserved)
    unseen = place = _up_to(x.by_limit, kind.first, past, until - now)
    # The first `unseen` by limit would end in time; they are charged at the last of them.
    if unseen > 0:
        x.passed[before + unseen, 0] += lasts
        x.passed[before + unseen, 1] -= lasts
    if start > until:
        # Beyond the reservation but before the stuck job's start: held by the reservation.
        place = _up_to(x.by_limit, kind.first, past, start - now)
    if place > 0:
        x.passed[before + place, 1] += lasts
    if stuck < x.waits.size - 1:
        x.kept_for[x.owner[x.rows[stuck]]] += (kind.waiting - place) * lasts


@inner_kernel
def _charge(x: Sweep, now: float, lasts: float, reserved: float) -> None:
    """Charge what depends on the time to the next instant."""
    for m in range(x.company.size):
        company = x.company[m]
        if company.busy > 0 and company.total > 0:
            # Each waiting job charges its seconds to all holders, by their share of devices.
            company.clock += lasts * company.busy / company.total
    if x.sizes[0].free > 0:
        stuck = _next_stuck(x)
        for z in range(x.sizes[0].kinds):
            if x.kinds[x.kinds_now[z]].cause == FREE:
                _charge_free(x, x.kinds_now[z], stuck, now, lasts, reserved)


@inner_kernel
def _finish(x: Sweep) -> None:
    """What is not charged so far: before a job was ready, and from its decision to its start.

    The largest part is what is left of the wait, so that sums are exact.
    """
    for j in range(x.split.shape[0]):
        waited = x.start[j] - x.submit[j]
        if x.queued[j] and waited > 0:
            of = x.split[j]
            of[AFTER] = min(x.ready[j], x.start[j]) - x.submit[j]
            of[LATENCY] = max(x.start[j] - max(x.first_held[j], x.ready[j]), 0.0)
            most = 0
            for cause in range(of.size):
                waited -= of[cause]
                if of[cause] > of[most]:
                    most = cause
            # Rounding goes to the largest part, where it is smallest in relation.
            of[most] += waited


@lean_kernel
def sweep_waits(x: Sweep) -> None:
    sizes = x.sizes[0]
    i, e, w, v, now = 0, 0, 0, 0, -np.inf
    while now < np.inf:
        # Of an instant, what ends comes before what begins.
        moved = x.changes[v].at == now or x.begins[i] == now
        while x.changes[v].at == now:
            sizes.moved = x.row.size
            if x.changes[v].what != HOURS_CHANGE:
                _node_changes(x, x.changes[v].node, x.changes[v].what)
            v += 1
        while x.ends[e] == now:
            moved = True
            # Attempts that began at this instant end below, after they have begun.
            if x.begin[x.by_end[e]] < now:
                _run(x, x.by_end[e], -1)
            e += 1
        while x.begins[i] == now:
            a = x.by_begin[i]
            if x.wait[a] >= 0:
                _leave(x, x.wait[a], now)
            if x.end[a] > now:
                _run(x, a, 1)
            i += 1
        for z in range(sizes.touched):
            x.nodes[x.touched[z]].touched = 0
            for y in range(sizes.shapes):
                _refit(x, x.shapes_now[y], x.touched[z])
        sizes.touched = 0
        while x.sinces[w] == now:
            moved |= _join(x, x.by_since[w], now)
            w += 1
        if moved:
            _judge_all(x, now)
        sizes.moved = -1
        after = min(min(x.begins[i], x.ends[e]), min(x.sinces[w], x.changes[v].at))
        if sizes.kinds > 0:
            _charge(x, now, after - now, x.changes[v].reserves)
        now = after
    # At the end what still runs is settled, so that holders get their shares.
    a = kernels.smallest(x.words, x.summary, sizes)
    while a >= 0:
        _run(x, a, -1)
        a = kernels.following(x.words, x.summary, sizes, a + 1)
    _finish(x)
