"""Who gives way: jobs that run are taken off their nodes for one that comes first, as in Slurm.

By QOS, or by the tiers of pools (PreemptType preempt/qos, preempt/partition_prio). Those that may
be preempted are taken away in order, small ones of low rank first, until the job fits; then they
are put in the order of how many of the nodes found they hold, the last one first, and taken away
anew, so that few are. Whoever holds one of the nodes chosen in the end gives way.
https://slurm.schedmd.com/preempt.html
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gangwise.core.arrays import Bools
from gangwise.core.jit import inlined_kernel, inner_kernel
from gangwise.jobs.event_kernels import WHY_PREEMPTED, interrupt
from gangwise.jobs.fit_kernels import copy_room, fits_of, take_piece
from gangwise.jobs.kernels import (
    CANCEL,
    GIVE_BACK,
    LATER,
    Given,
    Rows,
    State,
    int64,
    merge_sort,
    put,
    put_piece,
)
from gangwise.jobs.slurm_places import CLASS, Passing, arrange, count_room
from gangwise.jobs.tenancy import Tenancy

OFF, REQUEUED, CANCELLED, SUSPENDED, STARTED = range(5)
"""How a job gives way, or that it started."""
WAYS = {"": OFF, "off": OFF, "requeue": REQUEUED, "cancel": CANCELLED, "suspend": SUSPENDED}


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
        row["exempt"] = rules.exempt if mine is None or mine.exempt is None else mine.exempt
        if rules.by == "qos":
            row["rank"] = mine.priority if mine else 0.0
        else:
            row["rank"] = pools[pool].tier if pool in pools else 1
    above = rows["rank"][:, None] > rows["rank"]
    if rules.by == "qos":
        preempts = [qos[name].preempts if name in qos else () for _, name in pairs]
        above = np.array([[name in those for _, name in pairs] for those in preempts])
    return rows, above.reshape(len(pairs), len(pairs)) & (rows["way"] != OFF)


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
            for i in range(g.jobs[o].piece_from, g.jobs[o].piece_from + x.jobs[o].pieces):
                take_piece(g.cluster, x.ahead, int64(g.jobs[o].shape), x.out, i, GIVE_BACK)
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
        for i in range(g.jobs[o].piece_from, g.jobs[o].piece_from + x.jobs[o].pieces):
            n = int64(x.out[i].node)
            counts = allowed[n] and x.up[n] and p.shut[n] == 0
            have -= fits_of(g.cluster, x.ahead, s, n, most) if counts else 0
            take_piece(g.cluster, x.ahead, int64(g.jobs[o].shape), x.out, i, GIVE_BACK)
            have += fits_of(g.cluster, x.ahead, s, n, most) if counts else 0
        if have >= tasks:
            pieces = arrange(g.cluster, p.places, x.ahead, s, tasks, p.shut)
            if pieces > 0:
                return pieces
    return 0


@inner_kernel
def give_way(g: Given, x: State, p: Passing, j: int) -> None:
    """Those in `p.able` that hold one of the nodes chosen for job j are taken off theirs."""
    clock = p.clock
    for i in range(clock.able):
        o = p.able[i].item
        if nodes_in(g, x, p.on, o) == 0:
            continue
        way = int64(p.classes[p.known[o].kind].way)
        interrupt(g, x, None, o, int64(WHY_PREEMPTED))
        if way != SUSPENDED:
            lose(g, x, o)
        known = p.known[o]
        known.until = LATER if way == CANCELLED else x.at.now + p.settings.again
        known.by, known.asleep, known.mark = j, way == SUSPENDED, clock.round
        p.gave[clock.gave] = o
        clock.gave += 1
        clock.moved += 1
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
    kept = 0.0 if every == LATER else math.floor(done / every) * every if every > 0.0 else done
    s = int64(g.jobs[j].shape)
    of = g.cluster.demand[s, g.cluster.shapes[s].dominant]
    x.jobs[j].left = g.jobs[j].work - kept
    x.lost[j] += (done - kept) * of * g.jobs[j].tasks / 1000.0
