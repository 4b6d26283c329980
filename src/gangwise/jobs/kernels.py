"""Compiled parts of the simulation: what it keeps, free devices, gangs onto nodes, sets and heaps.

Devices are counted in thousandths (int64), so that books balance exactly. Jobs are rows in the
order of (submission, row of the log); a *shape* is what one task asks for, shared by many jobs; a
*piece* is the tasks of a job on one node (of fractions: on one device of a node).

How learned rates plug in
-------------------------
:mod:`gangwise.jobs.rate_kernels` holds functions on one named tuple of arrays, ``Beliefs``, which
they change in place. The simulation calls, with job type l, node n and the time now in seconds:

``believe(state, l, now, mean, sd)``
    fills mean and standard deviation of the log rate on every node, [N]; before each placement.
``score(state, limit, mean, sd, free, out)``
    fills the worth of each node for a task, larger is better; ``free`` [N] in devices of the
    job's dominant type. Tasks go to the best nodes, each filled before the next; ties by index.
``wait(state, l, tasks, devices, limit, log_rate, mean, waiting, waited, now) -> seconds``
    0 to start a gang now at ``log_rate`` (believed, slowest piece); otherwise it waits for better
    nodes, is asked again in every round, and after so many seconds at the latest. A gang that
    waits by choice holds nobody back and gets no reservation.
``observe(state, l, nodes, log_rates, count, first, now)``
    60 s after each start and at each end: rates of the first ``count`` pieces as last measured;
    ``first`` is false for what was measured before in the same attempt.
``remaining(state, limit, done) -> work``
    with limits of work: what is expected to be left of a running job.
``finished(state, limit, work, now)``, ``released(state, node, devices, now)``
    a job ended by itself after ``work``; devices of its dominant type became free.
``migrate(state, l, limit, done, log_rate, other, restart) -> bool``
    whether a running job had better stop and go on elsewhere (looked at while nobody waits).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba.cpython.unsafe import numbers

from gangwise.core.arrays import Floats, Ints
from gangwise.core.jit import inlined_kernel, lean_kernel

Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.void]

# Phases of a job.
UNSUBMITTED, HELD, WAITING, RUNNING, FINISHED, KILLED, SET_ASIDE = range(7)

# Queues, backfilling, choices and rates, in the order of their names in `scheduler`.
FCFS, SJF, EDF, PRIORITY, FAIR_SHARE, WFP3, LAS = range(7)
NO_BACKFILLING, EASY, CONSERVATIVE = range(3)
FIRST_FIT, BEST_FIT, WORST_FIT, FGD, BY_RATE = range(5)
LABELS, ORACLE, LEARNED = range(3)

# Events of nodes.
DOWN, UP, FACTOR = range(3)

# Places in `State.at`.
(
    NEXT,
    EVENT,
    FINISHES,
    TIMERS,
    N_RUNNING,
    N_WAITING,
    LOW,
    DIRTY,
    HEAD,
    FRESH,
    ROUNDS,
    TESTS,
    ENDED,
    HAVE,
    LOGGED,
    LOGGED_PIECES,
    PIECES_OUT,
    EPOCH,
    CHANGE,
    KILLS,
    REQUEUES,
    PREEMPTIONS,
    INSTANTS,
    SEEN_SHAPES,
    RESERVED_N,
    SIZE_AT,
) = range(26)
# Places in `State.clock`.
NOW, RESERVED, SIZE_CLOCK = range(3)

# numba knows them; their own types would say too little, or what compiled code has no use for.
int64: Any = np.int64
trailing_zeros: Any = numbers.trailing_zeros

BLOCK = 32  # nodes whose largest free amounts are kept together
LATER = np.inf


def record(**fields: type) -> np.dtype[np.void]:
    """Fields of one row, all of eight bytes."""
    return np.dtype(list(fields.items()), align=True)


WORK = record(
    submit=np.float64,
    work=np.float64,
    limit=np.float64,
    tasks=np.int64,
    shape=np.int64,
    type=np.int64,
    user=np.int64,
    size=np.float64,  # devices of the dominant type, all tasks together
    share=np.float64,  # the same as a share of the cluster
    rank=np.int64,  # place in a queue whose order does not change
    doomed=np.int64,  # will be killed for its work (limits of work)
    piece_from=np.int64,
    next_from=np.int64,
    next_to=np.int64,
)
TASK = record(
    fraction=np.int64,  # thousandths of one shared device, or 0
    whole=np.int64,  # whole shared devices, or 0
    per_node=np.int64,  # most tasks on one node
    constraint=np.int64,  # row of `World.allowed`
    dominant=np.int64,  # device type of the largest share
)
RUN = record(
    phase=np.int64,
    wants=np.int64,
    attempts=np.int64,
    pieces=np.int64,
    running_at=np.int64,
    left=np.float64,  # work to do at `since`
    since=np.float64,
    speed=np.float64,
    begun=np.float64,
    finish=np.float64,
    expect=np.float64,
    seen=np.float64,  # rate as the scheduler knows it
    timer=np.float64,  # when it is looked at next: measured, or decided on
    overhead=np.float64,
    before=np.float64,  # work done before it last moved, as the scheduler knows it
    first=np.float64,
    end=np.float64,
    lost=np.float64,  # device-seconds
    slot=np.float64,  # conservative: start of its reservation, inf for none
    reserved=np.float64,  # earliest promise made while first in line, inf for none
)
DUE = record(time=np.float64, item=np.int64)
PIECE = record(node=np.int64, tasks=np.int64, mask=np.int64)
CANDIDATE = record(score=np.float64, node=np.int64, fit=np.int64, slot=np.int64)
MEMO = record(
    fail_tasks=np.int64,
    fail_epoch=np.int64,
    delay_tasks=np.int64,
    delay_change=np.int64,
    delay_type=np.int64,
    seen=np.int64,
)
USER = record(use=np.float64, rate=np.float64, at=np.float64)
CUT = record(job=np.int64, begun=np.float64, end=np.float64, why=np.int64, first=np.int64)


class Work(NamedTuple):
    """The jobs; their ``work`` is hidden from every scheduler."""

    jobs: Rows  # WORK [J]
    by_rank: Ints
    next: Ints  # jobs that come after others


class Shapes(NamedTuple):
    """What one task asks for [S]."""

    tasks: Rows  # TASK [S]
    demand: Ints  # [S, K] thousandths
    least: Ints  # [K] what the smallest task of all asks


class World(NamedTuple):
    """The nodes, and what happens to them; rates and noise are hidden."""

    capacity: Ints  # [N, K]
    shared: int  # device type whose devices are told apart, or -1
    devices: Ints  # [N] how many of them
    allowed: Bools  # [C, N]
    labels: Floats  # [L, N] logarithms of declared rates
    log_rates: Floats  # [L, N] true ones, or [0, 0] where all are 1
    log_noise: Floats  # [J] or [0]
    event_time: Floats
    event_node: Ints
    event_kind: Ints
    event_value: Floats


class Rules(NamedTuple):
    """What is played, and by which scheduler."""

    queue: int
    backfilling: int
    choice: int
    rates: int
    waits: bool
    depth: int  # waiting jobs that backfilling looks at
    enforced: bool  # jobs are killed at their limit
    limits_of_work: bool
    checkpoint: float  # seconds of work between checkpoints; what came after is lost in a failure
    restart: float  # seconds that a restart costs
    measured_after: float
    half_life: float  # of use in fair-share
    look: float  # seconds between looks at migration; inf for none
    thresholds: Floats  # device-seconds that part the levels of las


class State(NamedTuple):
    """All that changes."""

    at: Ints
    clock: Floats
    # nodes
    free: Ints  # [N, K]
    total: Ints  # [K] free in all
    top: Ints  # [blocks, K] largest free amount in a block
    device: Ints  # [N, D] free of each shared device
    up: Bools
    log_factor: Floats
    # jobs
    jobs: Rows  # RUN [J]
    out: Rows  # PIECE, those of job j from Work.piece_from on
    # order
    words: Ints
    summary: Ints
    finishes: Rows  # DUE
    timers: Rows  # DUE
    running: Ints  # in no order
    order: Ints  # running jobs by expected end
    fresh: Ints
    sequence: Ints
    key: Floats
    other_sequence: Ints
    other_key: Floats
    users: Rows  # USER
    # what is tried
    tried: Rows  # PIECE
    cands: Rows  # CANDIDATE
    heap: Ints
    memo: Rows  # MEMO [S]
    mean: Floats
    sd: Floats
    spare: Floats
    worth: Floats
    shadow: Ints  # what is free at the instant promised
    shadow_device: Ints
    shadow_top: Ints  # above all amounts: no block is passed over
    now_free: Ints
    now_device: Ints
    ahead: Ints
    ahead_device: Ints
    trial: Ints
    trial_device: Ints
    changes: Rows  # DUE: when devices are given back (item 2 j) or taken (2 j + 1)
    rated: Ints
    log_rates: Floats
    # attempts that were cut short
    cuts: Rows  # CUT
    cut_pieces: Rows  # PIECE


# ---------------------------------------------------------------------------------------- sets


@inlined_kernel
def insert(words: Ints, summary: Ints, at: Ints, i: int) -> None:
    """Put i into a set of whole numbers: one bit each, and one bit for every 64 of them."""
    w = i >> 6
    words[w] |= int64(1) << (i & 63)
    summary[w >> 6] |= int64(1) << (w & 63)
    at[LOW] = min(at[LOW], w >> 6)


@inlined_kernel
def remove(words: Ints, summary: Ints, i: int) -> None:
    """Take i out of the set."""
    w = i >> 6
    words[w] &= ~(int64(1) << (i & 63))
    if words[w] == 0:
        summary[w >> 6] &= ~(int64(1) << (w & 63))


@inlined_kernel
def following(words: Ints, summary: Ints, at: Ints, i: int) -> int:
    """Smallest element ≥ i, or −1."""
    w = i >> 6
    if w >= words.size:
        return -1
    rest = words[w] & (int64(-1) << (i & 63))
    if rest != 0:
        return int((w << 6) + trailing_zeros(rest))
    w += 1
    v = w >> 6
    if v >= summary.size:
        return -1
    rest = summary[v] & (int64(-1) << (w & 63))
    if v < at[LOW]:
        v = at[LOW]
        rest = summary[v] if v < summary.size else int64(0)
    while rest == 0:
        v += 1
        if v >= summary.size:
            return -1
        rest = summary[v]
    w = (v << 6) + trailing_zeros(rest)
    return int((w << 6) + trailing_zeros(words[w]))


@inlined_kernel
def smallest(words: Ints, summary: Ints, at: Ints) -> int:
    """Smallest element, or −1."""
    while at[LOW] < summary.size and summary[at[LOW]] == 0:
        at[LOW] += 1
    if at[LOW] >= summary.size:
        at[LOW] = summary.size - 1
        return -1
    return following(words, summary, at, at[LOW] << 12)


# --------------------------------------------------------------------------------------- heaps


@inlined_kernel
def push(heap: Rows, size: int, time: float, item: int) -> int:
    """Add to a binary heap by (time, item); gives its new size."""
    i = size
    while i > 0:
        p = (i - 1) >> 1
        if heap[p].time < time or (heap[p].time == time and heap[p].item <= item):
            break
        heap[i].time = heap[p].time
        heap[i].item = heap[p].item
        i = p
    heap[i].time = time
    heap[i].item = item
    return size + 1


@inlined_kernel
def pop(heap: Rows, size: int) -> int:
    """Drop the first of the heap; gives its new size."""
    size -= 1
    time = heap[size].time
    item = heap[size].item
    i = 0
    while True:
        c = 2 * i + 1
        if c >= size:
            break
        if c + 1 < size and (
            heap[c + 1].time < heap[c].time
            or (heap[c + 1].time == heap[c].time and heap[c + 1].item < heap[c].item)
        ):
            c += 1
        if time < heap[c].time or (time == heap[c].time and item <= heap[c].item):
            break
        heap[i].time = heap[c].time
        heap[i].item = heap[c].item
        i = c
    heap[i].time = time
    heap[i].item = item
    return size


@inlined_kernel
def order_place(order: Ints, size: int, jobs: Rows, j: int) -> int:
    """Place of job j among running jobs sorted by (key, job)."""
    low = 0
    high = size
    k = jobs[j].expect
    while low < high:
        mid = (low + high) >> 1
        i = order[mid]
        if jobs[i].expect < k or (jobs[i].expect == k and i < j):
            low = mid + 1
        else:
            high = mid
    return low


@lean_kernel
def merge_sort(x: State, size: int) -> None:
    """Sort the first entries of `x.sequence` by `x.key`; ties stay as they are."""
    keys, items = x.key, x.sequence
    for low in range(0, size, 16):
        for i in range(low + 1, min(low + 16, size)):
            k = keys[i]
            item = items[i]
            m = i
            while m > low and keys[m - 1] > k:
                keys[m] = keys[m - 1]
                items[m] = items[m - 1]
                m -= 1
            keys[m] = k
            items[m] = item
    width = 16
    while width < size:
        for low in range(0, size, 2 * width):
            middle = min(low + width, size)
            high = min(low + 2 * width, size)
            if middle == high or keys[middle - 1] <= keys[middle]:
                continue
            for i in range(low, middle):
                x.other_key[i] = keys[i]
                x.other_sequence[i] = items[i]
            a = low
            b = middle
            for i in range(low, high):
                if a < middle and (b == high or x.other_key[a] <= keys[b]):
                    keys[i] = x.other_key[a]
                    items[i] = x.other_sequence[a]
                    a += 1
                elif a < middle:
                    keys[i] = keys[b]
                    items[i] = items[b]
                    b += 1
                else:
                    break
        width *= 2


# --------------------------------------------------------------------------------- free devices


@inlined_kernel
def fits(shapes: Shapes, world: World, free: Ints, device: Ints, s: int, n: int) -> int:
    """How many tasks of shape s node n takes with what is free there."""
    f = shapes.tasks[s].per_node
    for k in range(free.shape[1]):
        d = shapes.demand[s, k]
        if d > 0:
            c = free[n, k]
            if c < d:
                return 0
            if c < f * d:
                f = c // d
    if world.shared >= 0:
        d = shapes.tasks[s].fraction
        if d > 0:
            c = 0
            for g in range(world.devices[n]):
                c += device[n, g] // d
            f = min(f, c)
        elif shapes.tasks[s].whole > 0:
            c = 0
            for g in range(world.devices[n]):
                if device[n, g] == 1000:
                    c += 1
            f = min(f, c // shapes.tasks[s].whole)
    return int(f)


@inlined_kernel
def take(
    shapes: Shapes,
    world: World,
    free: Ints,
    device: Ints,
    s: int,
    n: int,
    tasks: int,
    mask: int,
    sign: int,
) -> None:
    """Take the devices of a piece (sign −1) or give them back (+1)."""
    for k in range(free.shape[1]):
        free[n, k] += sign * tasks * shapes.demand[s, k]
    if mask != 0:
        amount = shapes.tasks[s].fraction * tasks if shapes.tasks[s].fraction > 0 else 1000
        rest = mask
        while rest != 0:
            device[n, trailing_zeros(rest)] += sign * amount
            rest &= rest - 1


@inlined_kernel
def occupy(shapes: Shapes, world: World, x: State, j: int, s: int, p: int, count: int) -> None:
    """Take the ``count`` pieces tried; they become the pieces of job j."""
    for i in range(count):
        n = x.tried[i].node
        c = x.tried[i].tasks
        b = n // BLOCK
        again = False
        for k in range(x.free.shape[1]):
            d = c * shapes.demand[s, k]
            if d > 0:
                again = again or x.free[n, k] == x.top[b, k]
                x.total[k] -= d
        take(shapes, world, x.free, x.device, s, n, c, x.tried[i].mask, -1)
        if again:
            block_top(x, b)
        x.out[p + i].node = n
        x.out[p + i].tasks = c
        x.out[p + i].mask = x.tried[i].mask
    x.jobs[j].pieces = count
    x.at[PIECES_OUT] += count
    x.at[CHANGE] += 1


@inlined_kernel
def vacate(shapes: Shapes, world: World, x: State, j: int, s: int, p: int) -> None:
    """Give back the devices of job j."""
    for i in range(p, p + x.jobs[j].pieces):
        n = x.out[i].node
        take(shapes, world, x.free, x.device, s, n, x.out[i].tasks, x.out[i].mask, 1)
        b = n // BLOCK
        for k in range(x.free.shape[1]):
            x.total[k] += x.out[i].tasks * shapes.demand[s, k]
            x.top[b, k] = max(x.top[b, k], x.free[n, k])
    x.at[PIECES_OUT] -= x.jobs[j].pieces
    x.at[EPOCH] += 1
    x.at[CHANGE] += 1


@lean_kernel
def block_top(x: State, b: int) -> None:
    """Largest free amounts of a block of nodes, anew."""
    for k in range(x.free.shape[1]):
        most = int64(0)
        for n in range(b * BLOCK, min((b + 1) * BLOCK, x.free.shape[0])):
            most = max(most, x.free[n, k])
        x.top[b, k] = most


# ------------------------------------------------------------------------------ gangs onto nodes


@inlined_kernel
def block_misses(shapes: Shapes, top: Ints, s: int, b: int) -> bool:
    """No node of a block takes a task."""
    for k in range(top.shape[1]):  # noqa: SIM110 - generators do not compile
        if top[b, k] < shapes.demand[s, k]:
            return True
    return False


@inlined_kernel
def place_first(
    shapes: Shapes, world: World, x: State, free: Ints, device: Ints, top: Ints, s: int, tasks: int
) -> int:
    """First-fit: nodes in their order, each filled before the next. Gives pieces, 0 for none."""
    count = 0
    N = free.shape[0]
    c = shapes.tasks[s].constraint
    for b in range(top.shape[0]):
        if block_misses(shapes, top, s, b):
            continue
        for n in range(b * BLOCK, min((b + 1) * BLOCK, N)):
            if not world.allowed[c, n]:
                continue
            f = fits(shapes, world, free, device, s, n)
            if f > 0:
                x.tried[count].node = n
                x.tried[count].tasks = min(f, tasks)
                x.tried[count].mask = 0
                count += 1
                tasks -= f
                if tasks <= 0:
                    return count
    return 0


@inlined_kernel
def better(x: State, a: int, b: int) -> bool:
    """Candidate a goes before candidate b."""
    if x.cands[a].score != x.cands[b].score:
        return bool(x.cands[a].score > x.cands[b].score)
    return bool(x.cands[a].node < x.cands[b].node)


@inlined_kernel
def sift(x: State, i: int, size: int) -> None:
    """Let entry i of the heap of candidates sink to its place."""
    item = x.heap[i]
    while True:
        c = 2 * i + 1
        if c >= size:
            break
        if c + 1 < size and better(x, x.heap[c + 1], x.heap[c]):
            c += 1
        if better(x, item, x.heap[c]):
            break
        x.heap[i] = x.heap[c]
        i = c
    x.heap[i] = item


@lean_kernel
def place_best(
    shapes: Shapes,
    world: World,
    x: State,
    free: Ints,
    device: Ints,
    top: Ints,
    s: int,
    tasks: int,
    choice: int,
) -> int:
    """Best nodes first: tightest, emptiest, or of largest worth. Gives pieces, 0 for none.

    Tasks are placed one after another, each by the rule on what is then free. A node that is
    tightest or of largest worth stays so while it fills; the emptiest does not.
    """
    N = free.shape[0]
    c = shapes.tasks[s].constraint
    kind = shapes.tasks[s].dominant
    M = 0
    room = 0
    best = -1
    for b in range(top.shape[0]):
        if block_misses(shapes, top, s, b):
            continue
        for n in range(b * BLOCK, min((b + 1) * BLOCK, N)):
            if not world.allowed[c, n]:
                continue
            f = fits(shapes, world, free, device, s, n)
            if f > 0:
                x.cands[M].node = n
                x.cands[M].fit = f
                x.cands[M].slot = -1
                if choice == BEST_FIT:
                    x.cands[M].score = -free[n, kind]
                elif choice == WORST_FIT:
                    x.cands[M].score = free[n, kind]
                else:
                    x.cands[M].score = x.worth[n]
                if best < 0 or x.cands[M].score > x.cands[best].score:
                    best = M
                M += 1
                room += f
    if room < tasks:
        return 0
    x.tried[0].mask = 0
    if tasks == 1:
        x.tried[0].node = x.cands[best].node
        x.tried[0].tasks = 1
        return 1
    for i in range(M):
        x.heap[i] = i
    for i in range(M // 2 - 1, -1, -1):
        sift(x, i, M)
    count = 0
    while tasks > 0:
        i = x.heap[0]
        step = 1 if choice == WORST_FIT else min(x.cands[i].fit, tasks)
        slot = x.cands[i].slot
        if slot < 0:
            slot = count
            x.cands[i].slot = slot
            x.tried[slot].node = x.cands[i].node
            x.tried[slot].tasks = 0
            x.tried[slot].mask = 0
            count += 1
        x.tried[slot].tasks += step
        tasks -= step
        x.cands[i].fit -= step
        if x.cands[i].fit == 0:
            M -= 1
            x.heap[0] = x.heap[M]
        else:
            x.cands[i].score -= step * shapes.demand[s, kind]
        if M > 0:
            sift(x, 0, M)
    return count


@lean_kernel
def fragments(shapes: Shapes, world: World, x: State, free: Ints, device: Ints, n: int) -> int:
    """Σ over tasks seen so far of the free shared devices on node n that they cannot use.

    All of them where such a task does not fit; otherwise those with less free than it asks of
    one (Weng et al., *Beware of Fragmentation*, ATC 2023, F_n(m)).
    """
    total = int64(0)
    for m in range(shapes.demand.shape[0]):
        if x.memo[m].seen == 0:
            continue
        able = fits(shapes, world, free, device, m, n) > 0
        least = shapes.tasks[m].fraction if shapes.tasks[m].whole == 0 else 1000
        lost = int64(0)
        for g in range(world.devices[n]):
            if not able or device[n, g] < least:
                lost += device[n, g]
        total += x.memo[m].seen * lost
    return int(total)


@lean_kernel
def place_fgd(
    shapes: Shapes,
    world: World,
    x: State,
    was: Ints,
    was_device: Ints,
    top: Ints,
    s: int,
    tasks: int,
) -> int:
    """Fragmentation gradient descent: the node whose fragments grow least, for each task anew."""
    N = was.shape[0]
    count = 0
    c = shapes.tasks[s].constraint
    free = x.trial
    device = x.trial_device
    for n in range(N):
        x.cands[n].slot = -1
        for k in range(was.shape[1]):
            free[n, k] = was[n, k]
        for g in range(was_device.shape[1]):
            device[n, g] = was_device[n, g]
    done = 0
    while done < tasks:
        best = -1
        least = int64(0)
        for n in range(N):
            if block_misses(shapes, top, s, n // BLOCK) or not world.allowed[c, n]:
                continue
            slot = x.cands[n].slot
            if slot >= 0 and x.tried[slot].tasks >= shapes.tasks[s].per_node:
                continue
            if fits(shapes, world, free, device, s, n) == 0:
                continue
            grows = -fragments(shapes, world, x, free, device, n)
            mask = one_mask(shapes, world, device, s, n)
            take(shapes, world, free, device, s, n, 1, mask, -1)
            grows += fragments(shapes, world, x, free, device, n)
            take(shapes, world, free, device, s, n, 1, mask, 1)
            if best < 0 or grows < least:
                best = n
                least = grows
        if best < 0:
            return 0
        take(shapes, world, free, device, s, best, 1, one_mask(shapes, world, device, s, best), -1)
        slot = x.cands[best].slot
        if slot < 0:
            slot = count
            x.cands[best].slot = slot
            x.tried[slot].node = best
            x.tried[slot].tasks = 0
            x.tried[slot].mask = 0
            count += 1
        x.tried[slot].tasks += 1
        done += 1
    return count


@inlined_kernel
def one_mask(shapes: Shapes, world: World, device: Ints, s: int, n: int) -> int:
    """Shared devices that one task would take on node n, which has room."""
    d = shapes.tasks[s].fraction
    if d > 0:
        best = -1
        for g in range(world.devices[n]):
            if device[n, g] >= d and (best < 0 or device[n, g] < device[n, best]):
                best = g
        return int(int64(1) << best)
    need = shapes.tasks[s].whole
    mask = int64(0)
    g = 0
    while need > 0:
        if device[n, g] == 1000:
            mask |= int64(1) << g
            need -= 1
        g += 1
    return int(mask)


@lean_kernel
def tell_apart(shapes: Shapes, world: World, x: State, device: Ints, s: int, count: int) -> int:
    """Give each piece its devices: fractions the fullest that fits, wholes the first unused.

    Ties go to the device of lowest index. Gives the new number of pieces.
    """
    d = shapes.tasks[s].fraction
    if d == 0:
        for i in range(count):
            need = shapes.tasks[s].whole * x.tried[i].tasks
            n = x.tried[i].node
            mask = int64(0)
            g = 0
            while need > 0:
                if device[n, g] == 1000:
                    mask |= int64(1) << g
                    need -= 1
                g += 1
            x.tried[i].mask = mask
        return count
    for i in range(count):  # the nodes first, for the pieces below overwrite them
        x.cands[i].node = x.tried[i].node
        x.cands[i].fit = x.tried[i].tasks
    pieces = 0
    for i in range(count):
        n = x.cands[i].node
        start = pieces
        for _ in range(x.cands[i].fit):
            best = -1
            for g in range(world.devices[n]):
                if device[n, g] >= d and (best < 0 or device[n, g] < device[n, best]):
                    best = g
            device[n, best] -= d
            if pieces > start and x.tried[pieces - 1].mask == int64(1) << best:
                x.tried[pieces - 1].tasks += 1
            else:
                x.tried[pieces].node = n
                x.tried[pieces].tasks = 1
                x.tried[pieces].mask = int64(1) << best
                pieces += 1
    for i in range(pieces):  # tried only
        device[x.tried[i].node, trailing_zeros(x.tried[i].mask)] += d * x.tried[i].tasks
    return pieces
