"""Who gives way: jobs that run are taken off their nodes for one that comes first, as in Slurm.

By QOS, or by the tiers of pools (PreemptType preempt/qos, preempt/partition_prio). Those that may
be preempted are taken away in order, small ones of low rank first, until the job fits; then they
are put in the order of how many of the nodes found they hold, the last one first, and taken away
anew, so that few are. Whoever holds one of the nodes chosen in the end gives way.
https://slurm.schedmd.com/preempt.html

Under gang scheduling (PreemptMode=SUSPEND,GANG) nobody is chosen to give way. A job takes cores
that nobody holds; where it does not fit on these it is placed as if jobs that it may preempt were
not there, and those whose cores it got are suspended until it ends. Who is suspended goes on
holding its cores and devices: jobs of its own tier and below do not get them. A job gets the first
cores of a node that are free to it. https://slurm.schedmd.com/gang_scheduling.html
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gangwise.core.arrays import Bools, Ints
from gangwise.core.jit import inlined_kernel, inner_kernel
from gangwise.jobs.event_kernels import WHY_PREEMPTED, interrupt
from gangwise.jobs.fit_kernels import copy_room, fits_of, take_piece
from gangwise.jobs.kernels import (
    CANCEL,
    GIVE_BACK,
    NEVER,
    TAKE,
    ClusterArrays,
    Given,
    Room,
    Rows,
    State,
    int64,
    merge_sort,
    put,
    put_piece,
    trailing_zeros,
)
from gangwise.jobs.tenancy import Tenancy
from gangwise.sites.slurm_places import CLASS, Gangs, Passing, arrange, count_room

OFF, REQUEUED, CANCELLED, SUSPENDED, STARTED = range(5)
"""How a job gives way, or that it started."""
WAYS = {"": OFF, "off": OFF, "requeue": REQUEUED, "cancel": CANCELLED, "suspend": SUSPENDED}


def gangs(tenancy: Tenancy | None) -> bool:
    """Whether jobs are suspended for those of a tier above, and go on holding their cores."""
    if tenancy is None or tenancy.preemption.by != "tier":
        return False
    return "suspend" in (tenancy.preemption.how, *(pool.preempted for pool in tenancy.pools))


def classes_of(tenancy: Tenancy, pairs: list[tuple[str, str]]) -> tuple[Rows, Bools]:
    """`classes` and `above` of :class:`Passing`, of jobs of these (pool, QOS)."""
    rules = tenancy.preemption
    table: Any = tenancy.qos if rules.by == "qos" else tenancy.pools
    pools = {each.name: each for each in tenancy.pools}
    qos = {each.name: each for each in tenancy.qos}
    rows = np.zeros(len(pairs), dtype=CLASS)
    for row, (pool, name) in zip(rows, pairs):
        own = {each.name: each.preempted for each in table}.get(name if rules.by == "qos" else pool)
        mine = qos.get(name)
        row["way"] = WAYS[own or rules.how] if rules.by else OFF
        exempt = rules.exempt if mine is None or mine.exempt is None else mine.exempt
        row["exempt"] = 0.0 if row["way"] == SUSPENDED else exempt  # as man slurm.conf has it
        if rules.by == "qos":
            row["rank"] = mine.priority if mine else 0.0
        else:
            row["rank"] = pools[pool].tier if pool in pools else 1
    above = rows["rank"][:, None] > rows["rank"]
    if rules.by == "qos":
        preempts = [qos[name].preempts if name in qos else () for _, name in pairs]
        above = np.array([[name in those for _, name in pairs] for those in preempts])
    able = rows["way"] == SUSPENDED if gangs(tenancy) else rows["way"] != OFF
    return rows, above.reshape(len(pairs), len(pairs)) & able


@inner_kernel
def make_room(g: Given, x: State, p: Passing, j: int) -> int:
    """Where job j would run on nodes that are not shut if others gave way: pieces in `x.tried`.

    0 where nobody can make room; else those who may give way are in `p.able`, in order, and the
    nodes in `p.on`.
    """
    c = p.known[j].kind
    at, clock = x.at, p.clock
    clock.able = 0
    if not p.settings.preempts or not p.above[c].any():
        return 0
    if p.settings.gangs:
        return place_above(g, x, p, j)
    s, tasks = int64(g.jobs[j].shape), int64(g.jobs[j].tasks)
    copy_room(x.room, x.ahead)
    mine = p.pools[g.cluster.shapes[s].pool]
    for m in range(at.running):
        o = x.running[m]
        of = p.classes[p.known[o].kind]
        rested = at.now > x.jobs[o].begun and at.now >= x.jobs[o].begun + of.exempt
        if p.above[c, p.known[o].kind] and rested and nodes_in(g, x, mine, o) > 0:
            put(p.able, clock.able, float(p.known[o].turn), o)
            clock.able += 1
            q = g.jobs[o].piece_from
            for i in range(q, q + x.jobs[o].pieces):
                take_piece(g.cluster, x.ahead, int64(g.jobs[o].shape), x.out, q, i, GIVE_BACK)
    if count_room(g.cluster, p.places, x.ahead, s, tasks, p.shut) < tasks:
        return 0
    put_in_turn(g, x, p)
    pieces = int64(0)
    for attempt in range(p.settings.reorder + 2):
        if attempt > 0:
            if clock.able <= attempt:
                break
            reorder(g, x, p, clock.tried)
        found = until_it_fits(g, x, p, j)
        if found == 0:
            break
        pieces = found
        for n in range(p.on.size):
            p.on[n] = False
        for i in range(pieces):
            n = int64(x.tried[i].node)
            put_piece(p.found, i, n, int64(x.tried[i].tasks), int64(0))
            p.on[n] = True
    for i in range(pieces):
        put_piece(x.tried, i, int64(p.found[i].node), int64(p.found[i].tasks), int64(0))
    return int(pieces)


@inlined_kernel
def nodes_in(g: Given, x: State, among: Bools, j: int) -> int:
    """How many of these nodes [N] job j runs on; pieces on one node are side by side."""
    count, before, q = 0, -1, g.jobs[j].piece_from
    for i in range(q, q + x.jobs[j].pieces):
        n = int64(x.out[i].node)
        count += n != before and among[n]
        before = n
    return count


@inlined_kernel
def put_in_turn(g: Given, x: State, p: Passing) -> None:
    """Those who may give way: by rank and nodes, or the youngest first; ties as they started."""
    able = p.clock.able
    merge_sort(p.able, x.spare_rows, 0, able)
    for i in range(able):
        o = p.able[i].item
        key = -x.jobs[o].begun
        if not p.settings.youngest_first:
            nodes = nodes_in(g, x, p.every, o)
            key = float(p.classes[p.known[o].kind].rank * (p.on.size + 1) + nodes)
        put(p.ranked, i, key, i)
        put(p.turns, i, 0.0, o)
    merge_sort(p.ranked, x.spare_rows, 0, able)
    for i in range(able):
        put(p.able, i, 0.0, p.turns[p.ranked[i].item].item)
    for i in range(able):
        put(p.turns, i, 0.0, p.able[i].item)


@inlined_kernel
def reorder(g: Given, x: State, p: Passing, taken: int) -> None:
    """The last of those taken away first; the others by nodes shared, or as before (`strict`)."""
    last = p.turns[taken - 1].item
    for i in range(taken - 1):
        o = p.turns[i].item
        put(p.ranked, i, 0.0 if p.settings.strict else -float(nodes_in(g, x, p.on, o)), i)
        put(p.others, i, 0.0, o)
    merge_sort(p.ranked, x.spare_rows, 0, taken - 1)
    for i in range(taken - 1):
        put(p.turns, i + 1, 0.0, p.others[p.ranked[i].item].item)
    put(p.turns, 0, 0.0, last)


@inlined_kernel
def until_it_fits(g: Given, x: State, p: Passing, j: int) -> int:
    """Take jobs away in turn until job j fits: its pieces in `x.tried`, 0 where it never does."""
    clock, s, tasks = p.clock, int64(g.jobs[j].shape), int64(g.jobs[j].tasks)
    allowed = g.cluster.allowed[g.cluster.shapes[s].constraint]
    most = min(g.cluster.shapes[s].per_node, tasks)
    copy_room(x.room, x.ahead)
    have = count_room(g.cluster, p.places, x.ahead, s, tasks, p.shut)
    clock.tried = 0
    while clock.tried < clock.able:
        o = p.turns[clock.tried].item
        clock.tried += 1
        q = g.jobs[o].piece_from
        for i in range(q, q + x.jobs[o].pieces):
            n = int64(x.out[i].node)
            counts = allowed[n] and x.up[n] and p.shut[n] == 0
            have -= fits_of(g.cluster, x.ahead, s, n, most) if counts else 0
            take_piece(g.cluster, x.ahead, int64(g.jobs[o].shape), x.out, q, i, GIVE_BACK)
            have += fits_of(g.cluster, x.ahead, s, n, most) if counts else 0
        if have >= tasks:
            pieces = arrange(g.cluster, p.places, x.ahead, s, tasks, p.shut)
            if pieces > 0:
                return pieces
    return 0


@inlined_kernel
def among(items: Ints, count: int, j: int) -> bool:
    """Job j is one of the first so many."""
    for i in range(count):  # noqa: SIM110 - generators do not compile
        if items[i] == j:
            return True
    return False


@inner_kernel
def give_way(g: Given, x: State, p: Passing, j: int) -> None:
    """Those in `p.able` that hold one of the nodes chosen for job j are taken off theirs."""
    clock = p.clock
    for i in range(clock.able):
        o = p.able[i].item
        if nodes_in(g, x, p.on, o) == 0:
            continue
        way = int64(p.classes[p.known[o].kind].way)
        known = p.known[o]
        known.end = max(x.jobs[o].expect, x.at.now) - known.ran
        known.ran += x.at.now - x.jobs[o].begun
        interrupt(g, x, None, o, int64(WHY_PREEMPTED))
        if way != SUSPENDED:
            lose(g, x, o)
        known.until = NEVER if way == CANCELLED else x.at.now + p.settings.again
        known.by, known.asleep = j, way == SUSPENDED
        if x.jobs[o].begun < x.at.now:
            known.mark = clock.round
            clock.moved += 1
        if x.jobs[o].begun < x.at.now or not among(p.gave, clock.gave, o):
            p.gave[clock.gave] = o
            clock.gave += 1
        clock.events += 2  # it left, and came back
        if p.acts.size > 0:
            put(p.acts, clock.acts, float(way), o)
            clock.acts += 1
        elif way == CANCELLED:  # an event of this instant, before its next round
            x.at.next_event -= 1
            g.events[x.at.next_event].time = x.at.now
            g.events[x.at.next_event].item = o
            g.events[x.at.next_event].kind = CANCEL
    for n in range(p.on.size):
        p.on[n] = False


@inlined_kernel
def lose(g: Given, x: State, j: int) -> None:
    """Job j, which was preempted, loses what it did since its last checkpoint."""
    every = g.rules.checkpoint
    done = g.jobs[j].work - x.jobs[j].left
    kept = 0.0 if every == NEVER else math.floor(done / every) * every if every > 0.0 else done
    s = int64(g.jobs[j].shape)
    of = g.cluster.demand[s, g.cluster.shapes[s].dominant]
    x.jobs[j].left = g.jobs[j].work - kept
    x.lost[j] += (done - kept) * of * g.jobs[j].tasks / 1000.0


# --------------------------------------------------------------------------------- gang scheduling


@inner_kernel
def hold(gangs: Gangs, pieces: Rows, first: int, last: int, view: int, sign: int) -> None:
    """The cores of these pieces are held by one job more in a view (sign 1), or one less (−1)."""
    for q in range(first, last):
        n = int64(pieces[q].node)
        for w in range(gangs.masks.shape[1]):
            rest = gangs.masks[q, w]
            while rest != 0:
                core = (w << 6) + trailing_zeros(rest)
                rest &= rest - 1
                before = gangs.holders[view, n, core]
                gangs.holders[view, n, core] = before + sign
                gangs.taken[view, n] += int64(before + sign > 0) - int64(before > 0)


@inner_kernel
def see(g: Given, x: State, p: Passing, view: int, rank: float) -> int:
    """Let a view be that of a job of a rank; gives the number of those who hold cores unseen."""
    gangs, running, hidden = p.gangs, x.at.running, int64(0)
    for n in range(gangs.taken.shape[1]):
        gangs.taken[view, n] = 0
        for core in range(gangs.holders.shape[2]):
            gangs.holders[view, n, core] = 0
    for m in range(running + p.clock.gave):
        j = x.running[m] if m < running else p.gave[m - running]
        if p.known[j].held == 0 or (m >= running and not p.known[j].asleep):
            continue
        if sees(p, rank, j):
            q = int64(g.jobs[j].piece_from)
            hold(gangs, x.out, q, int64(q + x.jobs[j].pieces), view, int64(1))
        else:
            hidden += 1
    return int(hidden)


@inlined_kernel
def sees(p: Passing, rank: float, j: int) -> bool:
    """A job of a rank is not placed as if job j were not there."""
    mine = p.classes[p.known[j].kind]
    return bool(mine.way != SUSPENDED or mine.rank >= rank)


@inner_kernel
def show_cores(cluster: ClusterArrays, gangs: Gangs, up: Bools, room: Room, view: int) -> None:
    """Let a room have free the cores that nobody holds in a view."""
    for n in range(up.size):
        free = cluster.capacity[n, gangs.kind] - 1000 * gangs.taken[view, n]
        room.free[n, gangs.kind] = max(free, 0) if up[n] else 0


@inner_kernel
def find_cores(g: Given, x: State, p: Passing, j: int, pieces: int) -> None:
    """Cores for job j on the pieces tried, in `wanted`: the first of each node that nobody holds.

    Where these are too few, the first that nobody holds whom the job sees.
    """
    gangs, wanted = p.gangs, p.gangs.wanted
    each = -(-g.cluster.demand[g.jobs[j].shape, gangs.kind] // 1000)
    for view in range(2):
        if view > 0:
            see(g, x, p, int64(view), float(p.classes[p.known[j].kind].rank))
        wanted[:] = 0
        enough = True
        for i in range(pieces):
            n, left = int64(x.tried[i].node), int64(x.tried[i].tasks) * each
            for core in range(g.cluster.capacity[n, gangs.kind] // 1000):
                bit = int64(1) << (core & 63)
                idle = gangs.holders[view, n, core] == 0 and not wanted[n, core >> 6] & bit
                if idle and left > 0:
                    wanted[n, core >> 6] |= bit
                    left -= 1
            enough = enough and left == 0
        if enough:
            return


@inlined_kernel
def keep_cores(g: Given, x: State, p: Passing, j: int) -> None:
    """Job j holds the cores in `wanted` from now on."""
    gangs, q = p.gangs, int64(g.jobs[j].piece_from)
    last = int64(q + x.jobs[j].pieces)
    for i in range(q, last):
        for w in range(gangs.masks.shape[1]):  # all of a node with the first of its pieces
            gangs.masks[i, w] = gangs.wanted[x.out[i].node, w]
            gangs.wanted[x.out[i].node, w] = 0
    hold(gangs, x.out, q, last, int64(0), int64(1))
    p.known[j].held, p.known[j].ran = 1, 0.0


@inlined_kernel
def meets(g: Given, x: State, p: Passing, j: int) -> bool:
    """Job j holds one of the cores in `wanted`."""
    gangs, q = p.gangs, g.jobs[j].piece_from
    for i in range(q, q + x.jobs[j].pieces):
        for w in range(gangs.masks.shape[1]):
            if gangs.masks[i, w] & gangs.wanted[x.out[i].node, w]:
                return True
    return False


@inner_kernel
def place_above(g: Given, x: State, p: Passing, j: int) -> int:
    """:func:`make_room` under gang scheduling: who may give way is who has one of its cores."""
    clock, rank = p.clock, float(p.classes[p.known[j].kind].rank)
    clock.hidden = see(g, x, p, int64(1), rank)
    if clock.hidden == 0:
        return 0
    copy_room(p.room, x.ahead)
    show_cores(g.cluster, p.gangs, x.up, x.ahead, int64(1))
    s, tasks = int64(g.jobs[j].shape), int64(g.jobs[j].tasks)
    pieces = arrange(g.cluster, p.places, x.ahead, s, tasks, p.shut)
    if pieces == 0:
        return 0
    find_cores(g, x, p, j, pieces)
    for i in range(pieces):
        p.on[x.tried[i].node] = True
    for m in range(x.at.running):
        o = x.running[m]
        if not sees(p, rank, o) and meets(g, x, p, o):
            put(p.able, clock.able, float(p.known[o].turn), o)
            clock.able += 1
    merge_sort(p.able, x.spare_rows, 0, clock.able)
    return int(pieces)


@inner_kernel
def suspended_in_turn(x: State, p: Passing) -> int:
    """Those who are suspended, in `p.turns`, the highest tier first; their number."""
    count = int64(0)
    for i in range(p.clock.gave):
        if p.known[p.gave[i]].asleep:
            put(p.able, count, float(p.known[p.gave[i]].turn), p.gave[i])
            count += 1
    merge_sort(p.able, x.spare_rows, 0, count)
    for i in range(count):
        put(p.ranked, i, -float(p.classes[p.known[p.able[i].item].kind].rank), i)
    merge_sort(p.ranked, x.spare_rows, 0, count)
    for i in range(count):
        put(p.turns, i, 0.0, p.able[p.ranked[i].item].item)
    return int(count)


@inlined_kernel
def undisturbed(g: Given, x: State, p: Passing, j: int) -> bool:
    """Nobody of a tier above that of job j runs on its cores."""
    p.gangs.wanted[:] = 0
    q, rank = g.jobs[j].piece_from, p.classes[p.known[j].kind].rank
    for i in range(q, q + x.jobs[j].pieces):
        for w in range(p.gangs.masks.shape[1]):
            p.gangs.wanted[x.out[i].node, w] |= p.gangs.masks[i, w]
    for m in range(x.at.running):
        o = x.running[m]
        if p.classes[p.known[o].kind].rank > rank and meets(g, x, p, o):
            return False
    return True


@inner_kernel
def count_cores(g: Given, x: State, p: Passing) -> None:
    """Before a round: who holds which cores, and what is free to nobody, off `p.room`."""
    copy_room(x.room, p.room)
    for i in range(p.clock.gave):
        j, q = p.gave[i], g.jobs[p.gave[i]].piece_from
        for m in range(q, q + x.jobs[j].pieces if p.known[j].asleep else q):
            take_piece(g.cluster, p.room, int64(g.jobs[j].shape), x.out, q, m, TAKE)
    see(g, x, p, int64(0), -NEVER)
    for m in range(x.at.running):  # those that somebody else has started
        j = x.running[m]
        if p.known[j].held == 0:
            pieces, q = int64(x.jobs[j].pieces), g.jobs[j].piece_from
            for i in range(pieces):
                put_piece(x.tried, i, int64(x.out[q + i].node), int64(x.out[q + i].tasks), int64(0))
            find_cores(g, x, p, j, pieces)
            keep_cores(g, x, p, j)
    show_cores(g.cluster, p.gangs, x.up, p.room, int64(0))


@inner_kernel
def release_ahead(g: Given, x: State, p: Passing, rank: float) -> int:
    """Those whom a job of a rank sees, in `leaving` by expected end; their number."""
    rows, now, count = p.gangs.leaving, x.at.now, int64(0)
    for m in range(x.at.running):
        j = x.running[m]
        if sees(p, rank, j):
            put(rows, count, max(x.jobs[j].expect, now) - p.known[j].ran, j)
            count += 1
    for i in range(p.clock.gave):
        j = p.gave[i]
        if p.known[j].asleep and sees(p, rank, j):
            put(rows, count, max(p.known[j].end, now), j)
            count += 1
    merge_sort(rows, x.spare_rows, 0, count)
    see(g, x, p, int64(1), rank)
    return int(count)
