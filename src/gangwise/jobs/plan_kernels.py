"""Compiled parts of the simulation: conservative backfilling, a reservation for every job."""

from __future__ import annotations

from typing import Any

import numpy as np

from gangwise.core.arrays import Ints
from gangwise.core.jit import inlined_kernel, inner_kernel
from gangwise.jobs.fit_kernels import fits, take
from gangwise.jobs.kernels import (
    HOLES,
    LATER,
    N_RUNNING,
    NOW,
    PLANNED,
    PROMISED,
    TAKEN,
    TESTS,
    VOID,
    Rules,
    Shapes,
    State,
    Work,
    World,
    merge_sort,
)
from gangwise.jobs.rate_kernels import Beliefs
from gangwise.jobs.start_kernels import arrange_on, start

int64: Any = np.int64


@inlined_kernel
def enter_change(x: State, size: int, time: float, item: int) -> int:
    """Note that devices are given back (item j) or taken (TAKEN + j), back first."""
    i = size
    while i > 0:
        before = x.changes[i - 1]
        if before.time < time or (before.time == time and before.item <= item):
            break
        x.changes[i].time = before.time
        x.changes[i].item = before.item
        i -= 1
    x.changes[i].time = time
    x.changes[i].item = item
    return size + 1


@inlined_kernel
def drop_changes(x: State, size: int, j: int) -> int:
    """Forget what is noted of job j."""
    kept = 0
    for i in range(size):
        if (x.changes[i].item & (TAKEN - 1)) != j:
            if kept < i:
                x.changes[kept].time = x.changes[i].time
                x.changes[kept].item = x.changes[i].item
            kept += 1
    return kept


@inlined_kernel
def shift(w: Work, s: Shapes, v: World, x: State, free: Ints, device: Ints, item: int) -> None:
    """One change of what is free."""
    j = item & (TAKEN - 1)
    sign = 1 if item < TAKEN else -1
    p = w.jobs[j].piece_from
    c = int64(w.jobs[j].shape)
    for m in range(p, p + x.jobs[j].pieces):
        take(s, v, free, device, c, x.out[m].node, x.out[m].tasks, x.out[m].mask, sign)


@inlined_kernel
def lower(w: Work, v: World, x: State, j: int) -> None:
    """Where job j takes devices, let what is free throughout be no more than `x.trial`."""
    p = w.jobs[j].piece_from
    for m in range(p, p + x.jobs[j].pieces):
        n = x.out[m].node
        for k in range(x.trial.shape[1]):
            x.ahead[n, k] = min(x.ahead[n, k], x.trial[n, k])
        for g in range(x.trial_device.shape[1]):
            x.ahead_device[n, g] = min(x.ahead_device[n, g], x.trial_device[n, g])


@inlined_kernel
def add_up(w: Work, s: Shapes, x: State, size: int) -> None:
    """`x.profile`: free in all after each change; its first row is given."""
    for i in range(size):
        item = x.changes[i].item
        j = item & (TAKEN - 1)
        amount = w.jobs[j].tasks if item < TAKEN else -w.jobs[j].tasks
        c = int64(w.jobs[j].shape)
        for k in range(x.profile.shape[1]):
            x.profile[i + 1, k] = x.profile[i, k] + amount * s.demand[c, k]


@inlined_kernel
def enough(w: Work, s: Shapes, x: State, j: int, i: int) -> bool:
    """There are devices enough for job j in all after change i − 1, wherever they are."""
    c = int64(w.jobs[j].shape)
    for k in range(x.profile.shape[1]):
        if w.jobs[j].tasks * s.demand[c, k] > x.profile[i, k]:
            return False
    return True


@inlined_kernel
def room(w: Work, s: Shapes, v: World, x: State, free: Ints, device: Ints, j: int) -> bool:
    """Job j fits on what is given as free."""
    c = int64(w.jobs[j].shape)
    have = 0
    for n in range(free.shape[0]):
        if v.allowed[s.tasks[c].constraint, n]:
            have += max(fits(s, v, free, device, c, n), 0)
    return bool(have >= w.jobs[j].tasks)


@inner_kernel
def copy_to(of: Ints, to: Ints) -> None:
    """Copy a table."""
    for n in range(of.shape[0]):
        for k in range(of.shape[1]):
            to[n, k] = of[n, k]


@inlined_kernel
def truly_free(s: Shapes, v: World, x: State, c: int, pieces: int) -> bool:
    """What was tried is free, not only expected to be."""
    able = True
    for sign in (-1, 1):
        for m in range(pieces):
            n = x.tried[m].node
            take(s, v, x.free, x.device, c, n, x.tried[m].tasks, x.tried[m].mask, sign)
            if sign < 0:
                for k in range(x.free.shape[1]):
                    able = able and x.free[n, k] >= 0
                for g in range(x.device.shape[1]):
                    able = able and x.device[n, g] >= 0
    return able


@inner_kernel
def earliest(
    w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, j: int, size: int, before: float
) -> int:
    """First instant before ``before`` from which job j fits for its whole limit, in PLANNED.

    Gives the pieces it would have, in `x.tried`; 0 for none. Its own reservation counts as free.
    """
    now = x.clock[NOW]
    limit = w.jobs[j].limit
    walked = -1  # changes that are in `x.now_free`
    i = 0  # changes up to the instant looked at
    time = now
    while True:
        while i < size and x.changes[i].time <= time:
            i += 1
        # Devices in all first: the first moment at which they are too few, until its own begin.
        m = i
        able = enough(w, s, x, j, i) if time < x.plans[j].slot else True
        while able and m < size:
            at = x.changes[m].time
            if at >= time + limit or at >= x.plans[j].slot:
                break
            while m < size and x.changes[m].time == at:
                m += 1
            able = enough(w, s, x, j, m)
        if able:
            if walked < 0:
                copy_to(x.shadow, x.now_free)
                copy_to(x.shadow_device, x.now_device)
                walked = 0
            while walked < i:
                if (x.changes[walked].item & (TAKEN - 1)) != j:
                    shift(w, s, v, x, x.now_free, x.now_device, x.changes[walked].item)
                walked += 1
            if room(w, s, v, x, x.now_free, x.now_device, j):
                copy_to(x.now_free, x.ahead)
                copy_to(x.now_device, x.ahead_device)
                copy_to(x.now_free, x.trial)
                copy_to(x.now_device, x.trial_device)
                m = i
                while m < size and x.changes[m].time < time + limit:
                    item = x.changes[m].item
                    if (item & (TAKEN - 1)) != j:
                        shift(w, s, v, x, x.trial, x.trial_device, item)
                        if item >= TAKEN:
                            lower(w, v, x, item - TAKEN)
                    m += 1
                pieces = arrange_on(w, s, v, r, x, b, x.ahead, x.ahead_device, x.shadow_top, j)
                if pieces > 0:
                    x.clock[PLANNED] = time
                    return pieces
            m = i
        # Until devices in all are enough again, nothing need be looked at.
        while True:
            if m >= size:
                return 0
            time = x.changes[m].time
            while m < size and x.changes[m].time == time:
                m += 1
            if time >= x.plans[j].slot or enough(w, s, x, j, m):
                break
        if time >= before:
            return 0


@inlined_kernel
def same_pieces(w: Work, x: State, j: int, pieces: int) -> bool:
    """What was tried is what job j has reserved."""
    if x.jobs[j].pieces != pieces:
        return False
    p = w.jobs[j].piece_from
    for m in range(pieces):
        if (
            x.out[p + m].node != x.tried[m].node
            or x.out[p + m].tasks != x.tried[m].tasks
            or x.out[p + m].mask != x.tried[m].mask
        ):
            return False
    return True


@inner_kernel
def lay_out(w: Work, s: Shapes, v: World, x: State, count: int) -> int:
    """All changes of what is free that are planned for, in order; their number."""
    at = x.at
    now = x.clock[NOW]
    copy_to(x.free, x.shadow)
    copy_to(x.device, x.shadow_device)
    for k in range(x.total.size):
        x.profile[0, k] = x.total[k]
    size = 0
    for i in range(at[N_RUNNING]):
        j = x.running[i]
        if x.jobs[j].expect <= now:  # past its request: expected to end now
            shift(w, s, v, x, x.shadow, x.shadow_device, j)
            for k in range(x.total.size):
                x.profile[0, k] += w.jobs[j].tasks * s.demand[w.jobs[j].shape, k]
        else:
            x.changes[size].time = x.jobs[j].expect
            x.changes[size].item = j
            size += 1
    for i in range(count):
        j = x.sequence[i].item
        slot = x.plans[j].slot
        if slot == LATER or w.jobs[j].limit <= 0.0 or slot + w.jobs[j].limit <= now:
            continue
        x.changes[size].time = max(slot, now)
        x.changes[size].item = TAKEN + j
        x.changes[size + 1].time = slot + w.jobs[j].limit
        x.changes[size + 1].item = j
        size += 2
    merge_sort(x.changes, x.spare_rows, 0, size)
    add_up(w, s, x, size)
    return size


@inner_kernel
def conservative(w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs, count: int) -> None:
    """Every waiting job holds a reservation, and keeps it unless it can start earlier.

    In the order of the queue, while all others keep theirs, so that nobody's is ever moved back.
    Nothing opens but where something planned for is given up: a job that was looked at since the
    last time (`planned` is HOLES) cannot start earlier than it did then.
    """
    at = x.at
    now = x.clock[NOW]
    if at[VOID]:
        for i in range(count):
            x.plans[x.sequence[i].item].slot = LATER
        at[VOID] = 0
        at[HOLES] += 1
    size = -1
    for i in range(min(count, r.depth)):
        j = x.sequence[i].item
        slot = x.plans[j].slot
        due = slot <= now
        if not due and x.plans[j].planned == at[HOLES]:
            continue
        if size < 0:
            size = lay_out(w, s, v, x, count)
        at[TESTS] += 1
        pieces = earliest(w, s, v, r, x, b, j, size, LATER if due else slot)
        if pieces == 0:
            if due:
                x.plans[j].slot = LATER
                size = drop_changes(x, size, j)
                add_up(w, s, x, size)
                at[HOLES] += 1
            x.plans[j].planned = at[HOLES]
            continue
        time = x.clock[PLANNED]
        if slot < LATER:
            if not (due and time <= now and same_pieces(w, x, j, pieces)):
                at[HOLES] += 1
            size = drop_changes(x, size, j)
        x.plans[j].planned = at[HOLES]
        limit = w.jobs[j].limit
        x.plans[j].slot = LATER
        if time <= now and truly_free(s, v, x, w.jobs[j].shape, pieces):
            start(w, s, v, r, x, j, pieces)
            if x.jobs[j].expect <= now:  # a limit of nothing
                add_up(w, s, x, size)
                continue
            shift(w, s, v, x, x.shadow, x.shadow_device, TAKEN + j)
            for k in range(x.total.size):
                x.profile[0, k] -= w.jobs[j].tasks * s.demand[w.jobs[j].shape, k]
            size = enter_change(x, size, x.jobs[j].expect, j)
        else:
            x.plans[j].slot = time
            x.told[PROMISED, j] = min(x.told[PROMISED, j], time)
            x.jobs[j].pieces = pieces
            p = w.jobs[j].piece_from
            for m in range(pieces):
                x.out[p + m].node = x.tried[m].node
                x.out[p + m].tasks = x.tried[m].tasks
                x.out[p + m].mask = x.tried[m].mask
            if limit > 0.0:
                size = enter_change(x, size, time, TAKEN + j)
                size = enter_change(x, size, time + limit, j)
        add_up(w, s, x, size)
