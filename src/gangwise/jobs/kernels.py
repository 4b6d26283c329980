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

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba.cpython.unsafe.numbers import trailing_zeros

from gangwise.kernels import Floats, Ints, kernel

__all__ = ["Rules", "Shapes", "State", "Work", "World"]

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.int8]

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
    NEXT, EVENT, FINISHES, TIMERS, N_RUNNING, N_WAITING, LOW, DIRTY, HEAD, FRESH, ROUNDS, TESTS,
    ENDED, HAVE, LOGGED, LOGGED_PIECES, PIECES_OUT, EPOCH, CHANGE, KILLS, REQUEUES, PREEMPTIONS,
    INSTANTS, SEEN_SHAPES, RESERVED_N, SIZE_AT,
) = range(26)  # fmt: skip
# Places in `State.clock`.
NOW, RESERVED, SIZE_CLOCK = range(3)

BLOCK = 32  # nodes whose largest free amounts are kept together
LATER = np.inf


class Work(NamedTuple):
    """The jobs [J]; ``work`` is hidden from every scheduler."""

    submit: Floats
    work: Floats
    limit: Floats
    tasks: Ints
    shape: Ints
    type: Ints
    user: Ints
    deadline: Floats
    size: Floats  # devices of the dominant type, all tasks together
    share: Floats  # the same as a share of the cluster
    rank: Ints  # place in a queue whose order does not change
    by_rank: Ints
    wants: Ints  # jobs it comes after
    next_from: Ints
    next: Ints  # jobs that come after it
    piece_from: Ints
    doomed: Bools  # will be killed for its work (limits of work)


class Shapes(NamedTuple):
    """What one task asks for [S]."""

    demand: Ints  # [S, K] thousandths
    fraction: Ints  # thousandths of one shared device, or 0
    whole: Ints  # whole shared devices, or 0
    per_node: Ints  # most tasks on one node
    constraint: Ints  # row of `World.allowed`
    dominant: Ints  # device type of the largest share
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
    phase: Bytes
    wants: Ints
    left: Floats  # work to do at `since`
    since: Floats
    speed: Floats
    begun: Floats
    finish: Floats
    expect: Floats
    seen: Floats  # rate as the scheduler knows it
    timer: Floats  # when it is looked at next: measured, or decided on
    overhead: Floats
    first: Floats
    end: Floats
    attempts: Ints
    lost: Floats  # device-seconds
    reserved: Floats  # earliest promise made while first in line, inf for none
    pieces: Ints
    piece_node: Ints
    piece_tasks: Ints
    piece_mask: Ints
    # order
    words: Ints
    summary: Ints
    finish_time: Floats
    finish_job: Ints
    timer_time: Floats
    timer_job: Ints
    running: Ints  # in no order
    running_at: Ints
    order: Ints  # running jobs by expected end
    fresh: Ints
    sequence: Ints
    key: Floats
    use: Floats  # [users] at `use_at`
    use_rate: Floats
    use_at: Floats
    # what was tried
    try_node: Ints
    try_tasks: Ints
    try_mask: Ints
    cand: Ints
    cand_score: Floats
    cand_fit: Ints
    cand_slot: Ints
    heap: Ints
    fail_tasks: Ints
    fail_epoch: Ints
    delay_tasks: Ints
    delay_change: Ints
    seen_shape: Ints
    mean: Floats
    sd: Floats
    spare_free: Floats
    worth: Floats
    # a copy for reservations
    shadow: Ints
    shadow_device: Ints
    # attempts that were cut short
    log_job: Ints
    log_begun: Floats
    log_end: Floats
    log_why: Ints
    log_from: Ints
    log_node: Ints
    log_tasks: Ints
    log_rates: Floats


# ---------------------------------------------------------------------------------------- sets


@kernel
def insert(words: Ints, summary: Ints, at: Ints, i: int) -> None:
    """Put i into a set of whole numbers: one bit each, and one bit for every 64 of them."""
    w = i >> 6
    words[w] |= np.int64(1) << (i & 63)
    summary[w >> 6] |= np.int64(1) << (w & 63)
    at[LOW] = min(at[LOW], w >> 6)


@kernel
def remove(words: Ints, summary: Ints, i: int) -> None:
    """Take i out of the set."""
    w = i >> 6
    words[w] &= ~(np.int64(1) << (i & 63))
    if words[w] == 0:
        summary[w >> 6] &= ~(np.int64(1) << (w & 63))


@kernel
def following(words: Ints, summary: Ints, at: Ints, i: int) -> int:
    """Smallest element ≥ i, or −1."""
    w = i >> 6
    if w >= words.size:
        return -1
    rest = words[w] & (np.int64(-1) << (i & 63))
    if rest != 0:
        return (w << 6) + trailing_zeros(rest)
    w += 1
    v = w >> 6
    if v >= summary.size:
        return -1
    rest = summary[v] & (np.int64(-1) << (w & 63))
    if v < at[LOW]:
        v = at[LOW]
        rest = summary[v] if v < summary.size else np.int64(0)
    while rest == 0:
        v += 1
        if v >= summary.size:
            return -1
        rest = summary[v]
    w = (v << 6) + trailing_zeros(rest)
    return (w << 6) + trailing_zeros(words[w])


@kernel
def smallest(words: Ints, summary: Ints, at: Ints) -> int:
    """Smallest element, or −1."""
    while at[LOW] < summary.size and summary[at[LOW]] == 0:
        at[LOW] += 1
    if at[LOW] >= summary.size:
        at[LOW] = summary.size - 1
        return -1
    return following(words, summary, at, at[LOW] << 12)


# --------------------------------------------------------------------------------------- heaps


@kernel
def push(times: Floats, items: Ints, size: int, time: float, item: int) -> int:
    """Add to a binary heap by (time, item); gives its new size."""
    i = size
    while i > 0:
        p = (i - 1) >> 1
        if times[p] < time or (times[p] == time and items[p] <= item):
            break
        times[i] = times[p]
        items[i] = items[p]
        i = p
    times[i] = time
    items[i] = item
    return size + 1


@kernel
def pop(times: Floats, items: Ints, size: int) -> int:
    """Drop the first of the heap; gives its new size."""
    size -= 1
    time = times[size]
    item = items[size]
    i = 0
    while True:
        c = 2 * i + 1
        if c >= size:
            break
        if c + 1 < size and (
            times[c + 1] < times[c] or (times[c + 1] == times[c] and items[c + 1] < items[c])
        ):
            c += 1
        if time < times[c] or (time == times[c] and item <= items[c]):
            break
        times[i] = times[c]
        items[i] = items[c]
        i = c
    times[i] = time
    items[i] = item
    return size


@kernel
def order_place(order: Ints, size: int, key: Floats, j: int) -> int:
    """Place of job j among running jobs sorted by (key, job)."""
    low = 0
    high = size
    k = key[j]
    while low < high:
        mid = (low + high) >> 1
        i = order[mid]
        if key[i] < k or (key[i] == k and i < j):
            low = mid + 1
        else:
            high = mid
    return low


# --------------------------------------------------------------------------------- free devices


@kernel
def fits(shapes: Shapes, world: World, free: Ints, device: Ints, s: int, n: int) -> int:
    """How many tasks of shape s node n takes with what is free there."""
    f = shapes.per_node[s]
    for k in range(free.shape[1]):
        d = shapes.demand[s, k]
        if d > 0:
            c = free[n, k]
            if c < d:
                return 0
            if c < f * d:
                f = c // d
    if world.shared >= 0:
        d = shapes.fraction[s]
        if d > 0:
            c = 0
            for g in range(world.devices[n]):
                c += device[n, g] // d
            f = min(f, c)
        elif shapes.whole[s] > 0:
            c = 0
            for g in range(world.devices[n]):
                if device[n, g] == 1000:
                    c += 1
            f = min(f, c // shapes.whole[s])
    return f


@kernel
def take(
    shapes: Shapes, world: World, free: Ints, device: Ints, s: int, n: int, tasks: int, mask: int,
    sign: int,
) -> None:
    """Take the devices of a piece (sign −1) or give them back (+1)."""
    for k in range(free.shape[1]):
        free[n, k] += sign * tasks * shapes.demand[s, k]
    if mask != 0:
        amount = shapes.fraction[s] * tasks if shapes.fraction[s] > 0 else 1000
        rest = mask
        while rest != 0:
            device[n, trailing_zeros(rest)] += sign * amount
            rest &= rest - 1


@kernel
def occupy(shapes: Shapes, world: World, x: State, j: int, s: int, p: int, count: int) -> None:
    """Take the ``count`` pieces tried; they become the pieces of job j."""
    for i in range(count):
        n = x.try_node[i]
        c = x.try_tasks[i]
        b = n // BLOCK
        again = False
        for k in range(x.free.shape[1]):
            d = c * shapes.demand[s, k]
            if d > 0:
                again = again or x.free[n, k] == x.top[b, k]
                x.total[k] -= d
        take(shapes, world, x.free, x.device, s, n, c, x.try_mask[i], -1)
        if again:
            block_top(x, b)
        x.piece_node[p + i] = n
        x.piece_tasks[p + i] = c
        x.piece_mask[p + i] = x.try_mask[i]
    x.pieces[j] = count
    x.at[PIECES_OUT] += count
    x.at[CHANGE] += 1


@kernel
def vacate(shapes: Shapes, world: World, x: State, j: int, s: int, p: int) -> None:
    """Give back the devices of job j."""
    for i in range(p, p + x.pieces[j]):
        n = x.piece_node[i]
        take(shapes, world, x.free, x.device, s, n, x.piece_tasks[i], x.piece_mask[i], 1)
        b = n // BLOCK
        for k in range(x.free.shape[1]):
            x.total[k] += x.piece_tasks[i] * shapes.demand[s, k]
            x.top[b, k] = max(x.top[b, k], x.free[n, k])
    x.at[PIECES_OUT] -= x.pieces[j]
    x.at[EPOCH] += 1
    x.at[CHANGE] += 1


@kernel
def block_top(x: State, b: int) -> None:
    """Largest free amounts of a block of nodes, anew."""
    for k in range(x.free.shape[1]):
        most = np.int64(0)
        for n in range(b * BLOCK, min((b + 1) * BLOCK, x.free.shape[0])):
            most = max(most, x.free[n, k])
        x.top[b, k] = most


# ------------------------------------------------------------------------------ gangs onto nodes


@kernel
def block_misses(shapes: Shapes, x: State, s: int, b: int) -> bool:
    """No node of a block takes a task."""
    for k in range(x.top.shape[1]):
        if x.top[b, k] < shapes.demand[s, k]:
            return True
    return False


@kernel
def place_first(shapes: Shapes, world: World, x: State, s: int, tasks: int) -> int:
    """First-fit: nodes in their order, each filled before the next. Gives pieces, 0 for none."""
    count = 0
    N = x.free.shape[0]
    c = shapes.constraint[s]
    for b in range(x.top.shape[0]):
        if block_misses(shapes, x, s, b):
            continue
        for n in range(b * BLOCK, min((b + 1) * BLOCK, N)):
            if not world.allowed[c, n]:
                continue
            f = fits(shapes, world, x.free, x.device, s, n)
            if f > 0:
                x.try_node[count] = n
                x.try_tasks[count] = min(f, tasks)
                x.try_mask[count] = 0
                count += 1
                tasks -= f
                if tasks <= 0:
                    return count
    return 0


@kernel
def better(x: State, a: int, b: int) -> bool:
    """Candidate a goes before candidate b."""
    if x.cand_score[a] != x.cand_score[b]:
        return x.cand_score[a] > x.cand_score[b]
    return x.cand[a] < x.cand[b]


@kernel
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


@kernel
def place_best(
    shapes: Shapes, world: World, x: State, s: int, tasks: int, choice: int
) -> int:
    """Best nodes first: tightest, emptiest, or of largest worth. Gives pieces, 0 for none.

    Tasks are placed one after another, each by the rule on what is then free. A node that is
    tightest or of largest worth stays so while it fills; the emptiest does not.
    """
    N = x.free.shape[0]
    c = shapes.constraint[s]
    kind = shapes.dominant[s]
    M = 0
    room = 0
    best = -1
    for b in range(x.top.shape[0]):
        if block_misses(shapes, x, s, b):
            continue
        for n in range(b * BLOCK, min((b + 1) * BLOCK, N)):
            if not world.allowed[c, n]:
                continue
            f = fits(shapes, world, x.free, x.device, s, n)
            if f > 0:
                x.cand[M] = n
                x.cand_fit[M] = f
                x.cand_slot[M] = -1
                if choice == BEST_FIT:
                    x.cand_score[M] = -x.free[n, kind]
                elif choice == WORST_FIT:
                    x.cand_score[M] = x.free[n, kind]
                else:
                    x.cand_score[M] = x.worth[n]
                if best < 0 or x.cand_score[M] > x.cand_score[best]:
                    best = M
                M += 1
                room += f
    if room < tasks:
        return 0
    x.try_mask[0] = 0
    if tasks == 1:
        x.try_node[0] = x.cand[best]
        x.try_tasks[0] = 1
        return 1
    for i in range(M):
        x.heap[i] = i
    for i in range(M // 2 - 1, -1, -1):
        sift(x, i, M)
    count = 0
    while tasks > 0:
        i = x.heap[0]
        step = 1 if choice == WORST_FIT else min(x.cand_fit[i], tasks)
        slot = x.cand_slot[i]
        if slot < 0:
            slot = count
            x.cand_slot[i] = slot
            x.try_node[slot] = x.cand[i]
            x.try_tasks[slot] = 0
            x.try_mask[slot] = 0
            count += 1
        x.try_tasks[slot] += step
        tasks -= step
        x.cand_fit[i] -= step
        if x.cand_fit[i] == 0:
            M -= 1
            x.heap[0] = x.heap[M]
        else:
            x.cand_score[i] -= step * shapes.demand[s, kind]
        if M > 0:
            sift(x, 0, M)
    return count


@kernel
def tell_apart(shapes: Shapes, world: World, x: State, s: int, count: int) -> int:
    """Give each piece its devices: fractions the fullest that fits, wholes the first unused.

    Ties go to the device of lowest index. Gives the new number of pieces.
    """
    d = shapes.fraction[s]
    if d == 0:
        for i in range(count):
            need = shapes.whole[s] * x.try_tasks[i]
            n = x.try_node[i]
            mask = np.int64(0)
            g = 0
            while need > 0:
                if x.device[n, g] == 1000:
                    mask |= np.int64(1) << g
                    need -= 1
                g += 1
            x.try_mask[i] = mask
        return count
    for i in range(count):  # the nodes first, for the pieces below overwrite them
        x.cand[i] = x.try_node[i]
        x.cand_fit[i] = x.try_tasks[i]
    pieces = 0
    for i in range(count):
        n = x.cand[i]
        start = pieces
        for _ in range(x.cand_fit[i]):
            best = -1
            for g in range(world.devices[n]):
                if x.device[n, g] >= d and (best < 0 or x.device[n, g] < x.device[n, best]):
                    best = g
            x.device[n, best] -= d
            if pieces > start and x.try_mask[pieces - 1] == np.int64(1) << best:
                x.try_tasks[pieces - 1] += 1
            else:
                x.try_node[pieces] = n
                x.try_tasks[pieces] = 1
                x.try_mask[pieces] = np.int64(1) << best
                pieces += 1
    for i in range(pieces):  # tried only
        x.device[x.try_node[i], trailing_zeros(x.try_mask[i])] += d * x.try_tasks[i]
    return pieces
