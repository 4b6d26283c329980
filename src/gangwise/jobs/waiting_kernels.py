"""The sweep that charges waiting to causes, see :mod:`gangwise.jobs.waiting`.

Of the jobs that wait, those that ask for the same are one *kind*, and are charged at once. How many
tasks of a shape fit is kept up to date with the nodes that change; a shape of which no job waits is
not looked at. The work is O((E + T) · A) for E events, T changes of rules and A kinds that wait at
once, and O(log W) where jobs of a kind part: those submitted before some job, those that are
shorter than some time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.jit import by_reference, inlined_kernel, inner_kernel, lean_kernel

CAUSES: tuple[str, ...] = (
    "after",
    "closed",
    "cap",
    "away",
    "reservation",
    "partition",
    "beside",
    "pieces",
)
CAUSES += ("busy", "overtaken", "kept", "unseen", "latency")
AFTER, CLOSED, CAP, AWAY, RESERVED, PARTITION, BESIDE, PIECES = range(8)
BUSY, OVERTAKEN, KEPT, UNSEEN, LATENCY = range(8, 13)
FREE = KEPT  # of jobs that ask for the same, before single jobs are looked at

# Tasks of a shape that fit: now; if all nodes were up; on all partitions; by the main type
# alone; on nodes that are reserved.
NOW, IF_UP, ANYWHERE, ALONE_BY_TYPE, ON_RESERVED = range(5)


@by_reference
class Asked(NamedTuple):
    """Kinds of waiting jobs [Q]: alike in what they ask for and whose use they count in."""

    shape: Ints
    tasks: Ints
    claim: Ints
    hours: Ints
    exempt: Ints  # they have a reservation


@by_reference
class Waits(NamedTuple):
    """Jobs that wait [W], in the order of (kind, row)."""

    row: Ints
    kind: Ints
    since: Floats
    by_since: Ints
    first: Ints  # [Q + 1]: those of kind q are first[q] … first[q + 1]
    limits: Floats  # [W] sorted within each kind
    rank: Ints  # [W] place of its limit there, from 0 in each kind


@by_reference
class Attempts(NamedTuple):
    """Who held what and when [A]; pieces of attempt a are first[a] … first[a + 1]."""

    row: Ints
    begin: Floats
    end: Floats
    first: Ints
    claim: Ints
    owner: Ints  # user and account
    wait: Ints  # the one that ends with it, −1 for none
    by_begin: Ints
    by_end: Ints  # those that take time
    node: Ints  # [P]
    amount: Ints  # [P, K] thousandths


@by_reference
class SiteRules(NamedTuple):
    cluster: Any  # ClusterArrays
    labelled: Bools  # [C, N] nodes that a shape may use, whatever its partition
    member: Bools  # [partitions, N]
    alone: Bools  # [S] has its nodes alone
    main: Ints  # [S] the device type that a shape mostly asks for
    per_task: Floats  # [S, K] one over what a task asks for, 0 where it asks for none
    caps: Any  # Caps
    hours: Any  # Hours
    at: Floats  # [V] when nodes go (0), come (1), are reserved (2) and no more (3); 4: hours change
    what: Ints
    node: Ints
    reserved: Floats  # when reservations begin


@by_reference
class Sums(NamedTuple):
    """What the sweep adds up, in seconds of waiting."""

    split: Floats  # [W, causes]
    of_cap: Floats  # [counters]
    holders: Floats  # [owners]
    kept_for: Floats  # [owners]


@by_reference
class Books(NamedTuple):
    free: Ints  # [N, K]
    before: Ints  # [N, K] as of the instant before, of nodes that were touched
    up: Ints  # [N]
    reserved: Ints  # [N]
    touched: Ints  # [1 + N] how many and which nodes changed in this instant
    mark: Bools  # [N]
    fit: Any  # [S, N] int32: tasks of a shape that fit on a node, up or not
    fit_by_type: Any  # the same by the main device type alone
    room: Ints  # [S, 5]
    total: Ints  # [S] free of the main type, on nodes that it may use
    scratch: Ints  # [N, K]
    used: Ints  # [counters]


@by_reference
class Lists(NamedTuple):
    """Kinds that wait, attempts that run, and time that is charged to a part of a kind.

    Of a kind, those that were submitted before some job, and those that ask for less time than
    some, are charged at once: ``older`` and ``shorter`` are Fenwick trees within each kind, in
    which seconds are added to all up to a place, and read at one.
    """

    state: Ints  # [W] 0 not here yet, 1 waits, 2 has started
    oldest: Ints  # [Q] no job of the kind that waits stands before
    kinds: Ints  # [Q] with waiting jobs; sizes[0] of them
    place: Ints  # [Q] there
    shapes: Ints  # [S] of these; sizes[1] of them
    shape_place: Ints
    waiting: Ints  # [Q] how many
    using: Ints  # [S] kinds
    cause: Ints  # [Q]
    by_kind: Floats  # [Q, causes] seconds so far
    older: Floats  # [W] seconds overtaken
    shorter: Floats  # [W] seconds unseen
    stopped: Floats  # [W] seconds in which it would not be kept but for a reservation
    number: Floats  # [W] jobs that wait, in a tree that is read as a sum up to a place
    newest: Ints  # [1] attempt that runs, by its row; −1 for none
    earlier: Ints  # [A] the attempt that runs before it, by row
    later: Ints  # [A]
    sizes: Ints  # kinds, shapes


@by_reference
class Holdings(NamedTuple):
    """Who holds devices, by partition and device type [M], for shares over time."""

    held: Floats  # [owners, M]
    seen: Floats  # [owners, M] of `clock` when held last changed
    total: Floats  # [M]
    clock: Floats  # [M] ∫ waiting jobs / devices held
    busy: Floats  # [M] waiting jobs that lack devices


@by_reference
class Sweep(NamedTuple):
    asked: Asked
    waits: Waits
    runs: Attempts
    site: SiteRules
    books: Books
    lists: Lists
    holdings: Holdings
    sums: Sums


@inlined_kernel
def _fits(site: SiteRules, b: Books, s: int, n: int) -> None:
    """Tasks of shape s that node n takes, into ``fit`` and ``fit_by_type``."""
    shape = site.cluster.shapes[s]
    most = shape.per_node
    by_type = most
    for k in range(b.free.shape[1]):
        if site.per_task[s, k] > 0.0:
            # The quotient of whole numbers: half a thousandth is more than rounding takes away.
            quotient = np.int64((max(b.free[n, k], 0) + 0.5) * site.per_task[s, k])
            most = min(most, quotient)
            if k == site.main[s]:
                by_type = min(by_type, quotient)
    b.fit[s, n], b.fit_by_type[s, n] = most, by_type


@inner_kernel
def _count(site: SiteRules, b: Books, s: int, n: int, sign: int) -> None:
    """Count what node n takes of a shape in its room (sign 1), or no more (−1)."""
    c = site.cluster.shapes[s].constraint
    tasks = sign * b.fit[s, n]
    if site.cluster.allowed[c, n]:
        b.room[s, IF_UP] += tasks
        if b.up[n] > 0:
            b.room[s, NOW] += tasks
            b.room[s, ALONE_BY_TYPE] += sign * b.fit_by_type[s, n]
            b.room[s, ON_RESERVED] += tasks * (b.reserved[n] > 0)
    if site.labelled[c, n] and b.up[n] > 0:
        b.room[s, ANYWHERE] += tasks


@inlined_kernel
def _touch(b: Books, n: int) -> None:
    if not b.mark[n]:
        b.mark[n] = True
        b.touched[0] += 1
        b.touched[b.touched[0]] = n
        for k in range(b.free.shape[1]):
            b.before[n, k] = b.free[n, k]


@inner_kernel
def _refresh(site: SiteRules, b: Books, lists: Lists) -> None:
    """Bring the room of the shapes that wait up to date with the nodes that changed."""
    for i in range(1, b.touched[0] + 1):
        n = b.touched[i]
        b.mark[n] = False
        changed = False
        for k in range(b.free.shape[1]):
            changed |= b.free[n, k] != b.before[n, k]
        for q in range(lists.sizes[1] if changed else 0):
            s = lists.shapes[q]
            shape = site.cluster.shapes[s]
            k = site.main[s]
            if site.cluster.allowed[shape.constraint, n] and b.up[n] > 0:
                b.total[s] += b.free[n, k] - b.before[n, k]
            _count(site, b, s, n, -1)
            _fits(site, b, s, n)
            _count(site, b, s, n, 1)
    b.touched[0] = 0


@inner_kernel
def _open_shape(site: SiteRules, b: Books, s: int) -> None:
    """Count the room of a shape of which no job has waited."""
    for i in range(b.room.shape[1]):
        b.room[s, i] = 0
    b.total[s] = 0
    shape = site.cluster.shapes[s]
    for n in range(b.free.shape[0]):
        _fits(site, b, s, n)
        _count(site, b, s, n, 1)
        if site.cluster.allowed[shape.constraint, n] and b.up[n] > 0:
            b.total[s] += b.free[n, site.main[s]]


@inner_kernel
def _node_changes(x: Sweep, n: int, what: int) -> None:
    """A node goes (0), comes (1), is reserved (2) or no more (3)."""
    b, site, lists = x.books, x.site, x.lists
    for sign in (-1, 1):
        for q in range(lists.sizes[1]):
            s = lists.shapes[q]
            shape = site.cluster.shapes[s]
            _count(site, b, s, n, sign)
            if site.cluster.allowed[shape.constraint, n] and b.up[n] > 0:
                b.total[s] += sign * b.free[n, site.main[s]]
        if sign < 0:
            if what < 2:
                b.up[n] = what
            else:
                b.reserved[n] += 1 if what == 2 else -1


@inner_kernel
def _groups_fit(site: SiteRules, b: Books, s: int) -> bool:
    """All groups of a shape fit, one after another, each on the first nodes that take it."""
    c = site.cluster
    for n in range(b.free.shape[0]):
        for k in range(b.free.shape[1]):
            b.scratch[n, k] = b.free[n, k]
    for g in range(c.shapes[s].groups_from, c.shapes[s].groups_from + c.shapes[s].groups):
        part, tasks = c.groups[g].shape, c.groups[g].tasks
        for n in range(b.free.shape[0]):
            if b.up[n] > 0 and c.allowed[c.shapes[part].constraint, n]:
                most = min(tasks, c.shapes[part].per_node)
                for k in range(b.free.shape[1]):
                    if c.demand[part, k] > 0:
                        most = min(most, max(b.scratch[n, k], 0) // c.demand[part, k])
                for k in range(b.free.shape[1]):
                    b.scratch[n, k] -= most * c.demand[part, k]
                tasks -= most
        if tasks > 0:
            return False
    return True


@inner_kernel
def _run(x: Sweep, a: int, sign: int) -> None:
    """An attempt takes its devices (sign 1), or gives them back (−1)."""
    runs, site, b, h = x.runs, x.site, x.books, x.holdings
    who, K = runs.owner[a], b.free.shape[1]
    for p in range(runs.first[a], runs.first[a + 1]):
        n = runs.node[p]
        if x.lists.sizes[1] > 0:  # else there is no room to bring up to date
            _touch(b, n)
        for k in range(K):
            amount = sign * runs.amount[p, k]
            b.free[n, k] -= amount
            for q in range(site.member.shape[0] if amount else 0):
                if site.member[q, n]:
                    m = q * K + k
                    # What the owner held until now has its share of the waiting until now.
                    x.sums.holders[who] += h.held[who, m] * (h.clock[m] - h.seen[who, m])
                    h.seen[who, m] = h.clock[m]
                    h.held[who, m] += amount
                    h.total[m] += amount
    for i in range(site.caps.starts[runs.claim[a]], site.caps.starts[runs.claim[a] + 1]):
        b.used[site.caps.counter[i]] += sign * site.caps.amount[i]
    lists = x.lists
    if sign > 0:
        later, earlier = -1, lists.newest[0]
        while earlier >= 0 and runs.row[earlier] > runs.row[a]:
            later, earlier = earlier, lists.earlier[earlier]
        lists.earlier[a], lists.later[a] = earlier, later
        inserted = a
    else:
        later, earlier = lists.later[a], lists.earlier[a]
        inserted = -1
    # Its neighbours know it, or one another.
    if later < 0:
        lists.newest[0] = a if inserted >= 0 else earlier
    else:
        lists.earlier[later] = a if inserted >= 0 else earlier
    if earlier >= 0:
        lists.later[earlier] = a if inserted >= 0 else later


@inner_kernel
def _add(tree: Floats, first: int, size: int, i: int, value: float) -> None:
    """Add a value to all places of a kind's tree up to the i-th, counted from 1."""
    while i > 0:
        tree[first + i - 1] += value
        i -= i & -i


@inner_kernel
def _value(tree: Floats, first: int, size: int, i: int) -> float:
    """What was added to the i-th place, counted from 1."""
    value = 0.0
    while i <= size:
        value += tree[first + i - 1]
        i += i & -i
    return value


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


@inner_kernel
def _settle(x: Sweep, w: int, sign: int) -> None:
    """Take what its kind is charged with so far (sign 1), or take it off (−1)."""
    lists, waits, split, q = x.lists, x.waits, x.sums.split, x.waits.kind[w]
    for cause in range(LATENCY):
        split[w, cause] += sign * lists.by_kind[q, cause]
    first, size, rank = waits.first[q], waits.first[q + 1] - waits.first[q], waits.rank[w] + 1
    overtaken = _value(lists.older, first, size, w - first + 1)
    unseen = _value(lists.shorter, first, size, rank)
    stopped = _value(lists.stopped, first, size, rank) - unseen
    split[w, OVERTAKEN] += sign * overtaken
    split[w, BUSY] -= sign * overtaken
    split[w, UNSEEN] += sign * unseen
    split[w, RESERVED] += sign * stopped
    split[w, KEPT] -= sign * (unseen + stopped)
    i = rank
    while i <= size:
        lists.number[first + i - 1] -= sign
        i += i & -i


@inner_kernel
def _join(x: Sweep, w: int) -> None:
    lists, q = x.lists, x.waits.kind[w]
    _settle(x, w, -1)
    lists.state[w] = 1
    lists.oldest[q] = min(lists.oldest[q], w) if lists.waiting[q] else w
    lists.waiting[q] += 1
    if lists.waiting[q] == 1:
        lists.place[q] = lists.sizes[0]
        lists.kinds[lists.sizes[0]] = q
        lists.sizes[0] += 1
        s = x.asked.shape[q]
        lists.using[s] += 1
        if lists.using[s] == 1:
            lists.shape_place[s] = lists.sizes[1]
            lists.shapes[lists.sizes[1]] = s
            lists.sizes[1] += 1
            _open_shape(x.site, x.books, s)


@inner_kernel
def _leave(x: Sweep, w: int) -> None:
    lists, q = x.lists, x.waits.kind[w]
    _settle(x, w, 1)
    lists.state[w] = 2
    lists.waiting[q] -= 1
    if lists.waiting[q] > 0:
        while lists.state[lists.oldest[q]] != 1:
            lists.oldest[q] += 1
        return
    # The last kind takes its place, and the last shape that of a shape nobody waits with.
    lists.sizes[0] -= 1
    final = lists.kinds[lists.sizes[0]]
    lists.kinds[lists.place[q]], lists.place[final] = final, lists.place[q]
    s = x.asked.shape[q]
    lists.using[s] -= 1
    if lists.using[s] == 0:
        lists.sizes[1] -= 1
        final = lists.shapes[lists.sizes[1]]
        lists.shapes[lists.shape_place[s]] = final
        lists.shape_place[final] = lists.shape_place[s]


@inlined_kernel
def _full_cap(x: Sweep, claim: int) -> int:
    """The first counter that keeps a claim from starting, −1 for none."""
    caps = x.site.caps
    for i in range(caps.starts[claim], caps.starts[claim + 1]):
        if x.books.used[caps.counter[i]] + caps.amount[i] > caps.most[i]:
            return int(caps.counter[i])
    return -1


@inlined_kernel
def _is_closed(hours: Any, c: int, now: float) -> bool:
    low, high = hours.starts[c], hours.starts[c + 1]
    while low < high:
        middle = (low + high) // 2
        if hours.since[middle] <= now:
            low = middle + 1
        else:
            high = middle
    return bool(low > hours.starts[c] and now < hours.to[low - 1])


@inner_kernel
def _cause(x: Sweep, q: int, now: float) -> int:
    """What keeps jobs of a kind from starting; :data:`FREE` where they fit."""
    asked, b = x.asked, x.books
    s, tasks = asked.shape[q], asked.tasks[q]
    shape = x.site.cluster.shapes[s]
    if _is_closed(x.site.hours, asked.hours[q], now):
        return CLOSED
    if _full_cap(x, asked.claim[q]) >= 0:
        return CAP
    enough = b.total[s] >= tasks * x.site.cluster.demand[s, x.site.main[s]]
    if shape.groups > 0:
        if _groups_fit(x.site, b, s):
            return FREE
        return PIECES if enough else BUSY
    if b.room[s, NOW] >= tasks:
        aside = b.room[s, ON_RESERVED] if asked.exempt[q] == 0 else 0
        return FREE if b.room[s, NOW] - aside >= tasks else RESERVED
    if b.room[s, IF_UP] >= tasks:
        return AWAY
    if b.room[s, ANYWHERE] >= tasks:
        return PARTITION
    if not enough:
        return BUSY
    by_type = b.room[s, ALONE_BY_TYPE] >= tasks and not x.site.alone[s]
    return BESIDE if by_type else PIECES


@inner_kernel
def _overtaken(x: Sweep, q: int, lasts: float) -> None:
    """Charge jobs of a kind that would have enough without those submitted later."""
    lists, runs, site, waits = x.lists, x.runs, x.site, x.waits
    s = x.asked.shape[q]
    k, c = site.main[s], site.cluster.shapes[s].constraint
    lacks = x.asked.tasks[q] * site.cluster.demand[s, k] - x.books.total[s]
    oldest = waits.row[lists.oldest[q]]
    a = lists.newest[0]
    # From the newest that runs back to the one without which there would be enough.
    while a >= 0 and runs.row[a] > oldest:
        for p in range(runs.first[a], runs.first[a + 1]):
            if site.cluster.allowed[c, runs.node[p]] and x.books.up[runs.node[p]] > 0:
                lacks -= runs.amount[p, k]
        if lacks <= 0:
            first, past = waits.first[q], waits.first[q + 1]
            older = _up_to(waits.row, first, past, runs.row[a] - 1)
            _add(lists.older, first, past - first, older, lasts)
            return
        a = lists.earlier[a]


@inner_kernel
def _first_to_start(x: Sweep, i: int) -> int:
    """The attempt that ends the first wait of a job that does not fit, from the i-th on; or −1."""
    runs, lists = x.runs, x.lists
    while i < runs.by_begin.size:
        a = runs.by_begin[i]
        w = runs.wait[a]
        if w >= 0 and lists.state[w] == 1:
            cause = lists.cause[x.waits.kind[w]]
            if cause >= AWAY and cause <= BUSY and cause != RESERVED:
                return int(a)
        i += 1
    return -1


@inner_kernel
def _charge(x: Sweep, i: int, now: float, lasts: float, reserved_at: float) -> None:
    """Charge all that wait with the time to the next instant; attempts from the i-th on come."""
    lists, h, K = x.lists, x.holdings, x.books.free.shape[1]
    fits = False
    for m in range(h.busy.size):
        h.busy[m] = 0
    for z in range(lists.sizes[0]):
        q = lists.kinds[z]
        cause = _cause(x, q, now)
        lists.cause[q] = cause
        lists.by_kind[q, cause] += lasts
        if cause == CAP:
            x.sums.of_cap[_full_cap(x, x.asked.claim[q])] += lists.waiting[q] * lasts
        elif cause == BUSY:
            s = x.asked.shape[q]
            h.busy[x.site.cluster.shapes[s].pool * K + x.site.main[s]] += lists.waiting[q]
            _overtaken(x, q, lasts)
        fits |= cause == FREE
    for m in range(h.busy.size):
        if h.busy[m] > 0 and h.total[m] > 0:
            h.clock[m] += lasts * h.busy[m] / h.total[m]
    if fits:
        a = _first_to_start(x, i)
        for z in range(lists.sizes[0]):
            if lists.cause[lists.kinds[z]] == FREE:
                _charge_free(x, lists.kinds[z], a, now, lasts, reserved_at)


@inner_kernel
def _charge_free(x: Sweep, q: int, a: int, now: float, lasts: float, reserved_at: float) -> None:
    """Charge jobs of a kind that fit: who would have ended before attempt a begins delays none."""
    lists, waits = x.lists, x.waits
    first, past = waits.first[q], waits.first[q + 1]
    start = x.runs.begin[a] if a >= 0 else np.inf
    until = start if x.asked.exempt[q] else min(start, reserved_at)
    unseen = _up_to(waits.limits, first, past, until - now)
    stopped = unseen
    if start > until:
        stopped = _up_to(waits.limits, first, past, start - now)
    _add(lists.shorter, first, past - first, unseen, lasts)
    _add(lists.stopped, first, past - first, stopped, lasts)
    if a >= 0:
        kept = float(lists.waiting[q])
        place = stopped
        while place > 0:
            kept -= lists.number[first + place - 1]
            place -= place & -place
        x.sums.kept_for[x.runs.owner[a]] += kept * lasts


@lean_kernel
def sweep_waits(x: Sweep) -> None:
    runs, waits, site = x.runs, x.waits, x.site
    i, e, w, v, r = 0, 0, 0, 0, 0
    while i < runs.by_begin.size:
        begins = runs.begin[runs.by_begin[i]]
        ends = runs.end[runs.by_end[e]] if e < runs.by_end.size else np.inf
        comes = waits.since[waits.by_since[w]] if w < waits.since.size else np.inf
        changes = site.at[v] if v < site.at.size else np.inf
        now = min(min(begins, ends), min(comes, changes))
        # Of an instant, what ends comes before what begins.
        while e < runs.by_end.size and runs.end[runs.by_end[e]] == now:
            _run(x, runs.by_end[e], -1)
            e += 1
        _refresh(site, x.books, x.lists)
        while v < site.at.size and site.at[v] == now:
            if site.what[v] < 4:
                _node_changes(x, site.node[v], site.what[v])
            v += 1
        while w < waits.since.size and waits.since[waits.by_since[w]] == now:
            _join(x, waits.by_since[w])
            w += 1
        while i < runs.by_begin.size and runs.begin[runs.by_begin[i]] == now:
            a = runs.by_begin[i]
            if runs.wait[a] >= 0:
                _leave(x, runs.wait[a])
            if runs.end[a] > now:
                _run(x, a, 1)
            i += 1
        _refresh(site, x.books, x.lists)
        if x.lists.sizes[0] > 0:
            begins = runs.begin[runs.by_begin[i]]
            ends = runs.end[runs.by_end[e]] if e < runs.by_end.size else np.inf
            comes = waits.since[waits.by_since[w]] if w < waits.since.size else np.inf
            changes = site.at[v] if v < site.at.size else np.inf
            after = min(min(begins, ends), min(comes, changes))
            while r < site.reserved.size and site.reserved[r] <= now:
                r += 1
            reserved_at = site.reserved[r] if r < site.reserved.size else np.inf
            _charge(x, i, now, after - now, reserved_at)
    h = x.holdings
    for who in range(h.held.shape[0]):
        for m in range(h.total.size):
            x.sums.holders[who] += h.held[who, m] * (h.clock[m] - h.seen[who, m])
