"""Compiled parts of the simulation: free devices, and gangs onto nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.cpython.unsafe import numbers

from gangwise.core.arrays import Ints
from gangwise.core.jit import inlined_kernel, inner_kernel
from gangwise.jobs.kernels import (
    BEST_FIT,
    BLOCK,
    CHANGE,
    EPOCH,
    PIECES_OUT,
    WORST_FIT,
    Shapes,
    State,
    World,
)

# numba knows them; their own types would say too little, or what compiled code has no use for.
int64: Any = np.int64
trailing_zeros: Any = numbers.trailing_zeros


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


@inner_kernel
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


@inlined_kernel
def gather(
    shapes: Shapes, world: World, x: State, free: Ints, device: Ints, top: Ints, s: int, tasks: int
) -> int:
    """Nodes that take a task, in `x.cands`; their number, 0 if all of them have no room."""
    N = free.shape[0]
    c = shapes.tasks[s].constraint
    count = 0
    room = 0
    for b in range(top.shape[0]):
        if block_misses(shapes, top, s, b):
            continue
        for n in range(b * BLOCK, min((b + 1) * BLOCK, N)):
            if not world.allowed[c, n]:
                continue
            f = fits(shapes, world, free, device, s, n)
            if f > 0:
                x.cands[count].node = n
                x.cands[count].fit = f
                count += 1
                room += f
    return count if room >= tasks else 0


@inlined_kernel
def place_best(
    shapes: Shapes, x: State, free: Ints, s: int, tasks: int, M: int, choice: int
) -> int:
    """Best of the M nodes gathered first: tightest, emptiest, or of largest worth. Gives pieces.

    Tasks are placed one after another, each by the rule on what is then free. A node that is
    tightest or of largest worth stays so while it fills; the emptiest does not.
    """
    kind = shapes.tasks[s].dominant
    best = 0
    for i in range(M):
        n = x.cands[i].node
        if choice == BEST_FIT:
            x.cands[i].score = -free[n, kind]
        elif choice == WORST_FIT:
            x.cands[i].score = free[n, kind]
        else:
            x.cands[i].score = x.worth[n]
        if x.cands[i].score > x.cands[best].score:
            best = i
    x.tried[0].mask = 0
    if x.cands[best].fit >= tasks and (tasks == 1 or choice != WORST_FIT):
        x.tried[0].node = x.cands[best].node
        x.tried[0].tasks = tasks
        return 1
    for i in range(M):
        x.heap[i] = i
        x.cands[i].slot = -1
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


@inner_kernel
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


@inner_kernel
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


@inner_kernel
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
