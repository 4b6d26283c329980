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
from gangwise.core.jit import inlined_kernel, inner_kernel, lean_kernel

Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.void]

# Phases of a job.
UNSUBMITTED, HELD, WAITING, RUNNING, FINISHED, KILLED, SET_ASIDE, CANCELLED = range(8)

# Queues, backfilling, choices and rates, in the order of their names in `scheduler`.
FCFS, SJF, EDF, PRIORITY, FAIR_SHARE, WFP3, LAS = range(7)
NO_BACKFILLING, EASY, CONSERVATIVE = range(3)
FIRST_FIT, BEST_FIT, WORST_FIT, FGD, BY_RATE = range(5)
LABELS, ORACLE, LEARNED = range(3)

# Events of nodes, and one of jobs.
DOWN, UP, FACTOR, DRAIN, CANCEL = range(5)

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
    STILL,
    LOGGED,
    LOGGED_PIECES,
    PIECES_OUT,
    EPOCH,
    CHANGE,
    KILLS,
    REQUEUES,
    PREEMPTIONS,
    CANCELLATIONS,
    INSTANTS,
    ENTERED,  # entries of `State.order`, of which some may have ended
    SORTED,  # how many of them are in order
    HOLES,  # how often something that was planned for was given up
    VOID,  # the plan no longer holds
    SIZE_AT,
) = range(30)
# Rows of `State.told`.
(
    FIRST,  # start of the first attempt, inf for none
    END,  # NaN for none
    LOST,  # device-seconds
    PROMISED,  # earliest promise made while first in line, inf for none
    SIZE_TOLD,
) = range(5)
# Places in `State.clock`.
NOW, RESERVED, PLANNED, SIZE_CLOCK = range(4)

# numba knows them; their own types would say too little, or what compiled code has no use for.
int64: Any = np.int64
trailing_zeros: Any = numbers.trailing_zeros

TAKEN = 1 << 40  # added to a job's number where a change of the plan takes devices
BLOCK = 32  # nodes whose largest free amounts are kept together
LATER = np.inf


def record(**fields: type) -> np.dtype[np.void]:
    """Fields of one row, those of eight bytes first."""
    return np.dtype(list(fields.items()), align=True)


WORK = record(
    submit=np.float64,
    work=np.float64,
    limit=np.float64,
    piece_from=np.int64,
    tasks=np.int32,
    shape=np.int32,
    type=np.int32,
    user=np.int32,
    rank=np.int32,  # place in a queue whose order does not change
    doomed=np.int32,  # will be killed for its work (limits of work)
)
TASK = record(
    fraction=np.int64,  # thousandths of one shared device, or 0
    whole=np.int64,  # whole shared devices, or 0
    per_node=np.int64,  # most tasks on one node
    constraint=np.int64,  # row of `World.allowed`
    dominant=np.int64,  # device type of the largest share
    total=np.float64,  # of it in the cluster, thousandths
)
RUN = record(
    left=np.float64,  # work to do at `since`
    since=np.float64,
    speed=np.float64,
    begun=np.float64,
    finish=np.float64,
    expect=np.float64,
    overhead=np.float64,
    phase=np.int32,
    attempts=np.int32,
    pieces=np.int32,
    running_at=np.int32,
)
LOOK = record(
    seen=np.float64,  # rate as the scheduler knows it
    timer=np.float64,  # when it is looked at next: measured, or decided on
    before=np.float64,  # work done before it last moved, as the scheduler knows it
)
PLAN = record(
    slot=np.float64,  # start of its reservation, inf for none
    planned=np.int64,  # HOLES when it was last planned for
)
DUE = record(time=np.float64, item=np.int64)
PIECE = record(mask=np.int64, node=np.int32, tasks=np.int32)
CANDIDATE = record(score=np.float64, node=np.int64, fit=np.int64, slot=np.int64)
MEMO = record(fail_tasks=np.int64, fail_epoch=np.int64, seen=np.int64)
DELAY = record(  # the like of which was tried and would delay the first in line
    shape=np.int64,
    tasks=np.int64,
    type=np.int64,  # twice the job type, one more where it is short
    change=np.int64,  # CHANGE when it was tried
    rate=np.float64,  # that was believed of it there
)
DELAYS = 256
USER = record(use=np.float64, rate=np.float64, at=np.float64)
CUT = record(job=np.int64, begun=np.float64, end=np.float64, why=np.int64, first=np.int64)


class Work(NamedTuple):
    """The jobs; their ``work`` is hidden from every scheduler."""

    jobs: Rows  # WORK [J]
    by_rank: Ints
    next: Ints  # jobs that come after others: those after job j from next_from[j] on
    next_from: Ints  # [J + 1] or [0]


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
    told: Floats  # [SIZE_TOLD, J] what there is to say of each job in the end
    wants: Ints  # [J] or [0]: how many jobs it still comes after
    looks: Rows  # LOOK [J] where rates are learned or limits are of work
    plans: Rows  # PLAN [J] where every job holds a reservation
    out: Rows  # PIECE, those of job j from Work.piece_from on
    # order
    words: Ints
    summary: Ints
    finishes: Rows  # DUE
    timers: Rows  # DUE
    running: Ints  # in no order
    order: Rows  # DUE: running jobs by expected end, those just started behind
    fresh: Ints
    sequence: Rows  # DUE: jobs by a key
    spare_rows: Rows  # DUE
    users: Rows  # USER
    # what is tried
    tried: Rows  # PIECE
    cands: Rows  # CANDIDATE
    heap: Ints
    memo: Rows  # MEMO [S]
    delays: Rows  # DELAY [DELAYS], at places made of their keys
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
    changes: Rows  # DUE: when devices are given back (item j) or taken (TAKEN + j)
    profile: Ints  # [changes + 1, K] free in all after each change
    rated: Ints
    log_rates: Floats
    # attempts that were cut short
    cuts: Rows  # CUT
    cut_pieces: Rows  # PIECE


# -------------------------------------------------------------------------------------- filling


@lean_kernel
def fill_work(
    rows: Rows,
    columns: tuple[Floats, Floats, Floats, Ints, Ints, Ints, Ints, Bools, Bools],
    pieces: Ints,
    by_rank: Ints,
    most: int,
) -> int:
    """Fill rows in one pass over them, which costs less than a pass for each field.

    ``columns``: submit, work, limit, tasks, shape, type, user, doomed, aside; of tasks, shape, type
    and user one value may stand for all. ``pieces``: how many a job of each shape may have. Gives
    the number of pieces of all jobs.
    """
    submit, work, limit, tasks, shape, types, user, doomed, aside = columns
    at = int64(0)
    for j in range(rows.size):
        c = shape[j if shape.size > 1 else 0]
        count = tasks[j if tasks.size > 1 else 0]
        rows[j].submit = submit[j]
        rows[j].work = work[j]
        rows[j].limit = limit[j]
        rows[j].piece_from = at
        rows[j].tasks = min(count, most)
        rows[j].shape = c
        rows[j].type = types[j if types.size > 1 else 0]
        rows[j].user = user[j if user.size > 1 else 0]
        rows[j].doomed = doomed[j]
        if not aside[j]:
            at += min(count, pieces[c])
    for i in range(by_rank.size):
        rows[by_rank[i]].rank = i
    return int(at)


@lean_kernel
def fill_runs(rows: Rows, told: Floats, work: Floats, aside: Bools) -> None:
    """Jobs before anything has happened, in one pass."""
    for j in range(rows.size):
        rows[j].phase = SET_ASIDE if aside[j] else UNSUBMITTED
        rows[j].left = work[j]
        rows[j].speed = 1.0
        told[FIRST, j] = LATER
        told[END, j] = np.nan


@inlined_kernel
def devices_of(w: Work, s: Shapes, j: int) -> int:
    """Thousandths of devices of its dominant type that all tasks of job j ask for."""
    c = int64(w.jobs[j].shape)
    return int(w.jobs[j].tasks * s.demand[c, s.tasks[c].dominant])


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


@inner_kernel
def merge(rows: Rows, spare: Rows, low: int, middle: int, high: int) -> None:
    """Merge two sorted runs of rows, each by (time, item)."""
    if low == middle or middle == high:
        return
    for i in range(low, middle):
        spare[i].time = rows[i].time
        spare[i].item = rows[i].item
    a = low
    b = middle
    i = low
    while a < middle:
        if b < high and (
            rows[b].time < spare[a].time
            or (rows[b].time == spare[a].time and rows[b].item < spare[a].item)
        ):
            rows[i].time = rows[b].time
            rows[i].item = rows[b].item
            b += 1
        else:
            rows[i].time = spare[a].time
            rows[i].item = spare[a].item
            a += 1
        i += 1


@inner_kernel
def merge_sort(rows: Rows, spare: Rows, low: int, high: int) -> None:
    """Sort rows[low:high] by (time, item)."""
    for start in range(low, high, 16):
        for i in range(start + 1, min(start + 16, high)):
            time = rows[i].time
            item = rows[i].item
            m = i
            while m > start and (
                rows[m - 1].time > time or (rows[m - 1].time == time and rows[m - 1].item > item)
            ):
                rows[m].time = rows[m - 1].time
                rows[m].item = rows[m - 1].item
                m -= 1
            rows[m].time = time
            rows[m].item = item
    width = 16
    while width < high - low:
        for start in range(low, high - width, 2 * width):
            middle = start + width
            last = rows[middle - 1]
            if last.time > rows[middle].time or (
                last.time == rows[middle].time and last.item > rows[middle].item
            ):
                merge(rows, spare, start, middle, min(start + 2 * width, high))
        width *= 2
