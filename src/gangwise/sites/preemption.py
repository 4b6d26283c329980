"""Preemption as in Slurm: jobs that run are taken off their nodes for one that comes first.

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

import math
from typing import Any

import numpy as np

from gangwise.core.arrays import Bools, Ints
from gangwise.core.jit import inlined_kernel, inner_kernel
from gangwise.jobs import kernels
from gangwise.jobs.event_kernels import WHY_PREEMPTED, interrupt
from gangwise.jobs.fit_kernels import copy_room, piece_shape, take_piece
from gangwise.jobs.kernels import ClusterArrays, FreeDevices, Inputs, Rows, State, int64
from gangwise.jobs.tenancy import Tenancy
from gangwise.sites.slurm_places import (
    CLASS,
    Gangs,
    PassState,
    arrange,
    copy_pieces,
    count_room,
    taken_on,
)

OFF, REQUEUED, CANCELLED, SUSPENDED, STARTED = range(5)
"""How a job gives way, or that it started."""
WAYS = {"": OFF, "off": OFF, "requeue": REQUEUED, "cancel": CANCELLED, "suspend": SUSPENDED}


def gangs(tenancy: Tenancy | None) -> bool:
    """Whether jobs are suspended for those of a tier above, and go on holding their cores."""
    if tenancy is None or tenancy.preemption.by != "tier":
        return False
    return "suspend" in (tenancy.preemption.how, *(pool.preempted for pool in tenancy.pools))


def classes_of(tenancy: Tenancy, pairs: list[tuple[str, str]]) -> tuple[Rows, Bools]:
    """`classes` and `above` of :class:`PassState`, of jobs of these (pool, QOS)."""
    rules = tenancy.preemption
    table: Any = tenancy.qos if rules.by == "qos" else tenancy.pools
    pools = {rule.name: rule for rule in tenancy.pools}
    qos = {rule.name: rule for rule in tenancy.qos}
    rows = np.zeros(len(pairs), dtype=CLASS)
    for row, (pool, name) in zip(rows, pairs):
        own = {rule.name: rule.preempted for rule in table}.get(name if rules.by == "qos" else pool)
        mine = qos.get(name)
        row["way"] = WAYS[own or rules.how] if rules.by else OFF
        exempt = rules.exempt if mine is None or mine.exempt is None else mine.exempt
        row["exempt"] = 0.0 if row["way"] == SUSPENDED else exempt  # as man slurm.conf has it
        if rules.by == "qos":
            row["rank"] = mine.priority if mine else 0.0
        else:
            row["rank"] = pools[pool].tier if pool in pools else 1
    # By tier: a higher tier is above every lower one.
    above = rows["rank"][:, None] > rows["rank"]
    if rules.by == "qos":
        preempts = [qos[name].preempts if name in qos else () for _, name in pairs]
        above = np.array([[name in those for _, name in pairs] for those in preempts])
    able = rows["way"] == SUSPENDED if gangs(tenancy) else rows["way"] != OFF
    return rows, above.reshape(len(pairs), len(pairs)) & able


@inner_kernel
def take_pieces(inputs: Inputs, state: State, room: FreeDevices, j: int, sign: int) -> None:
    """Take what job j holds from a room, or give it back."""
    shape, q = int64(inputs.jobs[j].shape), inputs.jobs[j].piece_from
    for i in range(q, q + state.jobs[j].pieces):
        take_piece(inputs.cluster, room, shape, state.out, q, i, sign)


@inner_kernel
def make_room(inputs: Inputs, state: State, passes: PassState, j: int) -> int:
    """Where job j would run on nodes that are not shut if others gave way: pieces in `state.tried`.

    0 where no job can make room; else those that may give way are in `passes.able`, in order, and
    the nodes in `passes.on`.
    """
    c = passes.known[j].kind
    at, clock = state.at, passes.clock
    clock.able = 0
    if not passes.above[c].any():
        return 0
    if passes.gangs is not None:
        return place_above(inputs, state, passes, j)
    s, tasks = int64(inputs.jobs[j].shape), int64(inputs.jobs[j].tasks)
    copy_room(state.room, state.ahead)
    mine = passes.pools[inputs.cluster.shapes[s].pool]
    # As if all who may give way were gone: if it does not fit even then, nothing is to be had.
    for m in range(at.running):
        o = state.running[m]
        job_class = passes.classes[passes.known[o].kind]
        # A job that started in this very instant is not taken away again in it.
        rested = at.now > state.jobs[o].begun and at.now >= state.jobs[o].begun + job_class.exempt
        if (
            passes.above[c, passes.known[o].kind]
            and rested
            and nodes_in(inputs, state, mine, o) > 0
        ):
            kernels.put(passes.able, clock.able, float(passes.known[o].turn), o)
            clock.able += 1
            take_pieces(inputs, state, state.ahead, o, int64(kernels.GIVE_BACK))
    if count_room(inputs.cluster, passes.places, state.ahead, s, tasks, passes.shut) < tasks:
        return 0
    put_in_turn(inputs, state, passes)
    pieces = int64(0)
    # Slurm's reordering: each attempt takes the one first that the attempt before took last.
    for attempt in range(passes.settings.reorder + 2):
        if attempt > 0:
            if clock.able <= attempt:
                break
            reorder(inputs, state, passes, clock.tried)
        found = preempt_until_fits(inputs, state, passes, j)
        if found == 0:
            break
        pieces = found
        for n in range(passes.on.size):
            passes.on[n] = False
        copy_pieces(state.tried, int64(0), passes.found, int64(0), pieces)
        for i in range(pieces):
            passes.on[state.tried[i].node] = True
    copy_pieces(passes.found, int64(0), state.tried, int64(0), pieces)
    return int(pieces)


@inlined_kernel
def nodes_in(inputs: Inputs, state: State, among: Bools, j: int) -> int:
    """How many of these nodes [N] job j runs on; pieces on one node are side by side."""
    count, before, q = 0, -1, inputs.jobs[j].piece_from
    for i in range(q, q + state.jobs[j].pieces):
        n = int64(state.out[i].node)
        count += n != before and among[n]
        before = n
    return count


@inner_kernel
def sort_by_time(state: State, passes: PassState, rows: Rows, count: int) -> None:
    """Sort the first so many rows by time; equal ones stay in their order."""
    for i in range(count):
        kernels.put(passes.ranked, i, rows[i].time, i)
        passes.others[i].item = rows[i].item
    kernels.merge_sort(passes.ranked, state.spare_rows, 0, count)
    for i in range(count):
        kernels.put(rows, i, passes.ranked[i].time, passes.others[passes.ranked[i].item].item)


@inlined_kernel
def put_in_turn(inputs: Inputs, state: State, passes: PassState) -> None:
    """Those who may give way: by rank and nodes, or the youngest first; ties as they started."""
    able = int64(passes.clock.able)
    # Two sorts, the less important key first.
    kernels.merge_sort(passes.able, state.spare_rows, 0, able)
    for i in range(able):
        o = passes.able[i].item
        key = -state.jobs[o].begun
        if not passes.settings.youngest_first:
            nodes = nodes_in(inputs, state, passes.every, o)
            # Rank first: the nodes of a job never outweigh a rank.
            key = float(passes.classes[passes.known[o].kind].rank * (passes.on.size + 1) + nodes)
        passes.able[i].time = key
    sort_by_time(state, passes, passes.able, able)
    for i in range(able):
        passes.turns[i].item = passes.able[i].item


@inlined_kernel
def reorder(inputs: Inputs, state: State, passes: PassState, taken: int) -> None:
    """The last of those taken away first; the others by nodes shared, or as before (`strict`)."""
    for i in range(taken - 1):
        shared = nodes_in(inputs, state, passes.on, passes.turns[i].item)
        passes.turns[i].time = 0.0 if passes.settings.strict else -float(shared)
    # Before all others, whatever these share.
    passes.turns[taken - 1].time = -kernels.NEVER
    sort_by_time(state, passes, passes.turns, int64(taken))


@inlined_kernel
def preempt_until_fits(inputs: Inputs, state: State, passes: PassState, j: int) -> int:
    """Pieces of job j, in `state.tried`, once jobs are taken away in turn; 0 if it never fits."""
    clock, s, tasks = passes.clock, int64(inputs.jobs[j].shape), int64(inputs.jobs[j].tasks)
    allowed = inputs.cluster.allowed[inputs.cluster.shapes[s].constraint]
    most = min(inputs.cluster.shapes[s].per_node, tasks)
    copy_room(state.room, state.ahead)
    have = count_room(inputs.cluster, passes.places, state.ahead, s, tasks, passes.shut)
    clock.tried = 0
    while clock.tried < clock.able:
        o = passes.turns[clock.tried].item
        clock.tried += 1
        q = inputs.jobs[o].piece_from
        for i in range(q, q + state.jobs[o].pieces):
            n = int64(state.out[i].node)
            # Only nodes that the job may use count, and only the difference that a departure makes.
            counts = allowed[n] and state.up[n] and passes.shut[n] == 0
            if counts:
                have -= taken_on(inputs.cluster, passes.places, state.ahead, s, n, most)
            part = int64(inputs.jobs[o].shape)
            take_piece(inputs.cluster, state.ahead, part, state.out, q, i, int64(kernels.GIVE_BACK))
            if counts:
                have += taken_on(inputs.cluster, passes.places, state.ahead, s, n, most)
        if have >= tasks:
            pieces = arrange(inputs.cluster, passes.places, state.ahead, s, tasks, passes.shut)
            if pieces > 0:
                return pieces
    return 0


@inlined_kernel
def among(items: Ints, count: int, j: int) -> bool:
    """Whether job j is one of the first so many."""
    for i in range(count):  # noqa: SIM110 - generators do not compile
        if items[i] == j:
            return True
    return False


@inner_kernel
def give_way(inputs: Inputs, state: State, passes: PassState, j: int) -> None:
    """Those in `passes.able` that hold one of the nodes chosen for job j are taken off theirs."""
    clock = passes.clock
    for i in range(clock.able):
        o = passes.able[i].item
        if nodes_in(inputs, state, passes.on, o) == 0:
            continue
        way = int64(passes.classes[passes.known[o].kind].way)
        known = passes.known[o]
        # When it would have ended is kept for the time in which it is suspended.
        known.end = max(state.jobs[o].expect, state.at.now) - known.ran
        known.ran += state.at.now - state.jobs[o].begun
        interrupt(inputs, state, None, o, int64(WHY_PREEMPTED))
        if way != SUSPENDED:
            discard_unsaved_work(inputs, state, o)
        known.until = kernels.NEVER if way == CANCELLED else state.at.now + passes.settings.again
        known.by, known.asleep = j, way == SUSPENDED
        # A job that started in this very instant was never there for others to see.
        if state.jobs[o].begun < state.at.now:
            known.mark = clock.round
            clock.moved += 1
        if state.jobs[o].begun < state.at.now or not among(passes.gave, clock.gave, o):
            passes.gave[clock.gave] = o
            clock.gave += 1
        # Backfilling's clock counts events: two make it due at once.
        clock.events += 2  # it left, and came back
        if passes.acts.size > 0:
            kernels.put(passes.acts, clock.acts, float(way), o)
            clock.acts += 1
        elif way == CANCELLED:  # an event of this instant, before its next round
            state.at.next_event -= 1
            inputs.events[state.at.next_event].time = state.at.now
            inputs.events[state.at.next_event].item = o
            inputs.events[state.at.next_event].kind = kernels.CANCEL
    for n in range(passes.on.size):
        passes.on[n] = False


@inlined_kernel
def discard_unsaved_work(inputs: Inputs, state: State, j: int) -> None:
    """Job j, which was preempted, loses what it did since its last checkpoint."""
    every = inputs.rules.checkpoint
    done = inputs.jobs[j].work - state.jobs[j].left
    kept = (
        0.0 if every == kernels.NEVER else math.floor(done / every) * every if every > 0.0 else done
    )
    s = int64(inputs.jobs[j].shape)
    devices = inputs.cluster.demand[s, inputs.cluster.shapes[s].dominant]
    state.jobs[j].left = inputs.jobs[j].work - kept
    state.lost[j] += (done - kept) * devices * inputs.jobs[j].tasks / 1000.0


# --------------------------------------------------------------------------------- gang scheduling


@inner_kernel
def hold(gangs: Gangs, pieces: Rows, first: int, last: int, view: int, sign: int) -> None:
    """The cores of these pieces are held by one job more in a view (sign 1), or one less (−1)."""
    for q in range(first, last):
        n = int64(pieces[q].node)
        for w in range(gangs.masks.shape[1]):
            rest = gangs.masks[q, w]
            while rest != 0:
                core = (w << 6) + kernels.trailing_zeros(rest)
                # The lowest bit is the core; rest & (rest − 1) clears it.
                rest &= rest - 1
                before = gangs.holders[view, n, core]
                gangs.holders[view, n, core] = before + sign
                # A core counts as taken once, however many hold it.
                gangs.taken[view, n] += int64(before + sign > 0) - int64(before > 0)


@inner_kernel
def see(inputs: Inputs, state: State, passes: PassState, view: int, rank: float) -> int:
    """Let a view be that of a job of a rank; gives the number of those who hold cores unseen."""
    gangs, running, hidden = passes.gangs, state.at.running, int64(0)
    for n in range(gangs.taken.shape[1]):
        gangs.taken[view, n] = 0
        for core in range(gangs.holders.shape[2]):
            # View by view from nothing: who holds cores changes with every start.
            gangs.holders[view, n, core] = 0
    for m in range(running + passes.clock.gave):
        j = state.running[m] if m < running else passes.gave[m - running]
        # It has no cores yet, or gave them back when it left.
        if passes.known[j].held == 0 or (m >= running and not passes.known[j].asleep):
            continue
        if sees(passes, rank, j):
            q = int64(inputs.jobs[j].piece_from)
            hold(gangs, state.out, q, int64(q + state.jobs[j].pieces), view, int64(1))
        else:
            hidden += 1
    return int(hidden)


@inlined_kernel
def sees(passes: PassState, rank: float, j: int) -> bool:
    """Whether a job of a rank counts what job j holds as taken."""
    mine = passes.classes[passes.known[j].kind]
    return bool(mine.way != SUSPENDED or mine.rank >= rank)


@inner_kernel
def show_cores(
    cluster: ClusterArrays, gangs: Gangs, up: Bools, room: FreeDevices, view: int
) -> None:
    """Let all nodes have free in a room the cores that nobody holds in a view."""
    for n in range(up.size):
        show_cores_of(cluster, gangs, up, room, n, view)


@inner_kernel
def show_cores_of(
    cluster: ClusterArrays, gangs: Gangs, up: Bools, room: FreeDevices, n: int, view: int
) -> None:
    """Let node n have free in a room the cores that nobody holds in a view."""
    # A core is 1,000 thousandths.
    free = cluster.capacity[n, gangs.kind] - 1000 * gangs.taken[view, n]
    room.free[n, gangs.kind] = max(free, 0) if up[n] else 0


@inner_kernel
def find_cores(inputs: Inputs, state: State, passes: PassState, j: int, pieces: int) -> None:
    """Cores for job j on the pieces tried, in `wanted`: the first of each node that nobody holds.

    Where these are too few, the first that nobody holds whom the job sees.
    """
    gangs, wanted, s = passes.gangs, passes.gangs.wanted, int64(inputs.jobs[j].shape)
    for view in range(2):
        if view > 0:
            see(
                inputs, state, passes, int64(view), float(passes.classes[passes.known[j].kind].rank)
            )
        wanted[:] = 0
        enough = True
        for i in range(pieces):
            part = piece_shape(inputs.cluster, s, state.tried, int64(0), int64(i))
            # Whole cores: a task of half a core holds one all the same.
            each = -(-inputs.cluster.demand[part, gangs.kind] // 1000)
            n, left = int64(state.tried[i].node), int64(state.tried[i].tasks) * each
            # Cores are bits of words of 64; the first idle ones are taken.
            for core in range(inputs.cluster.capacity[n, gangs.kind] // 1000):
                bit = int64(1) << (core & 63)
                idle = gangs.holders[view, n, core] == 0 and not wanted[n, core >> 6] & bit
                if idle and left > 0:
                    wanted[n, core >> 6] |= bit
                    left -= 1
            enough = enough and left == 0
        if enough:
            return


@inlined_kernel
def keep_cores(inputs: Inputs, state: State, passes: PassState, j: int) -> None:
    """Job j holds the cores in `wanted` from now on."""
    gangs, q = passes.gangs, int64(inputs.jobs[j].piece_from)
    last = int64(q + state.jobs[j].pieces)
    for i in range(q, last):
        # Pieces of a job on one node share its mask: the first has it, the others none.
        for w in range(gangs.masks.shape[1]):  # all of a node with the first of its pieces
            gangs.masks[i, w] = gangs.wanted[state.out[i].node, w]
            gangs.wanted[state.out[i].node, w] = 0
    hold(gangs, state.out, q, last, int64(0), int64(1))
    passes.known[j].held, passes.known[j].ran = 1, 0.0


@inlined_kernel
def meets(inputs: Inputs, state: State, passes: PassState, j: int) -> bool:
    """Whether job j holds one of the cores in `wanted`."""
    gangs, q = passes.gangs, inputs.jobs[j].piece_from
    for i in range(q, q + state.jobs[j].pieces):
        for w in range(gangs.masks.shape[1]):
            if gangs.masks[i, w] & gangs.wanted[state.out[i].node, w]:
                return True
    return False


@inner_kernel
def find_below(inputs: Inputs, state: State, passes: PassState, j: int, pieces: int) -> None:
    """Those below job j that run on cores in `wanted`, in `passes.able`; its nodes in `passes.on`.

    As they started, the first first.
    """
    clock, rank = passes.clock, float(passes.classes[passes.known[j].kind].rank)
    clock.able = 0
    for i in range(pieces):
        passes.on[state.tried[i].node] = True
    for m in range(state.at.running):
        o = state.running[m]
        if not sees(passes, rank, o) and meets(inputs, state, passes, o):
            kernels.put(passes.able, clock.able, float(passes.known[o].turn), o)
            clock.able += 1
    kernels.merge_sort(passes.able, state.spare_rows, 0, clock.able)


@inner_kernel
def place_above(inputs: Inputs, state: State, passes: PassState, j: int) -> int:
    """:func:`make_room` under gang scheduling: who may give way is who has one of its cores."""
    clock, rank = passes.clock, float(passes.classes[passes.known[j].kind].rank)
    # If every holder is seen there is nobody to suspend.
    clock.hidden = see(inputs, state, passes, int64(1), rank)
    if clock.hidden == 0:
        return 0
    copy_room(passes.room, state.ahead)
    show_cores(inputs.cluster, passes.gangs, state.up, state.ahead, int64(1))
    s, tasks = int64(inputs.jobs[j].shape), int64(inputs.jobs[j].tasks)
    pieces = arrange(inputs.cluster, passes.places, state.ahead, s, tasks, passes.shut)
    if pieces == 0:
        return 0
    find_cores(inputs, state, passes, j, pieces)
    find_below(inputs, state, passes, j, pieces)
    return int(pieces)


@inner_kernel
def suspended_in_turn(state: State, passes: PassState) -> int:
    """Those who are suspended, in `passes.turns`, the highest tier first; their number."""
    count = int64(0)
    for i in range(passes.clock.gave):
        known = passes.known[passes.gave[i]]
        if known.asleep:
            kernels.put(passes.turns, count, float(known.turn), passes.gave[i])
            count += 1
    # By start, then by rank: the less important key first.
    kernels.merge_sort(passes.turns, state.spare_rows, 0, count)
    for i in range(count):
        kind = passes.known[passes.turns[i].item].kind
        passes.turns[i].time = -float(passes.classes[kind].rank)
    sort_by_time(state, passes, passes.turns, count)
    return int(count)


@inlined_kernel
def undisturbed(inputs: Inputs, state: State, passes: PassState, j: int) -> bool:
    """Whether nobody of a tier above that of job j runs on its cores."""
    passes.gangs.wanted[:] = 0
    q, rank = inputs.jobs[j].piece_from, passes.classes[passes.known[j].kind].rank
    for i in range(q, q + state.jobs[j].pieces):
        for w in range(passes.gangs.masks.shape[1]):
            passes.gangs.wanted[state.out[i].node, w] |= passes.gangs.masks[i, w]
    for m in range(state.at.running):
        o = state.running[m]
        if passes.classes[passes.known[o].kind].rank > rank and meets(inputs, state, passes, o):
            return False
    return True


@inner_kernel
def count_cores(inputs: Inputs, state: State, passes: PassState) -> None:
    """Before a round: who holds which cores, and what is free to nobody, off `passes.room`."""
    copy_room(state.room, passes.room)
    for i in range(passes.clock.gave):
        if passes.known[passes.gave[i]].asleep:
            j = int64(passes.gave[i])
            take_pieces(inputs, state, passes.room, j, int64(kernels.TAKE))
    see(inputs, state, passes, int64(0), -kernels.NEVER)
    for m in range(state.at.running):  # those that somebody else has started
        j = state.running[m]
        if passes.known[j].held == 0:
            pieces, q = int64(state.jobs[j].pieces), int64(inputs.jobs[j].piece_from)
            copy_pieces(state.out, q, state.tried, int64(0), pieces)
            find_cores(inputs, state, passes, j, pieces)
            keep_cores(inputs, state, passes, j)
    show_cores(inputs.cluster, passes.gangs, state.up, passes.room, int64(0))


@inner_kernel
def release_ahead(inputs: Inputs, state: State, passes: PassState, rank: float) -> int:
    """Those whom a job of a rank sees, in `leaving` by expected end; their number."""
    rows, now, count = passes.leaving, state.at.now, int64(0)
    for m in range(state.at.running):
        j = state.running[m]
        if sees(passes, rank, j):
            # What it ran before it was suspended counts towards its limit.
            kernels.put(rows, count, max(state.jobs[j].expect, now) - passes.known[j].ran, j)
            count += 1
    for i in range(passes.clock.gave):
        j = passes.gave[i]
        if passes.known[j].asleep and sees(passes, rank, j):
            kernels.put(rows, count, passes.known[j].end, j)
            count += 1
    kernels.merge_sort(rows, state.spare_rows, 0, count)
    see(inputs, state, passes, int64(1), rank)
    return int(count)
