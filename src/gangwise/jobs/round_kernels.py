"""Compiled parts of the simulation: one round of decisions, with EASY's promise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gangwise.core.jit import inlined_kernel, inner_kernel
from gangwise.jobs.fit_kernels import fits, take
from gangwise.jobs.kernels import (
    BY_RATE,
    CHANGE,
    CONSERVATIVE,
    DIRTY,
    EASY,
    ENTERED,
    FAIR_SHARE,
    FRESH,
    HAVE,
    HEAD,
    HOLES,
    LABELS,
    LATER,
    N_RUNNING,
    N_WAITING,
    NO_BACKFILLING,
    NOW,
    PROMISED,
    RESERVED,
    SORTED,
    STILL,
    TESTS,
    Rules,
    Shapes,
    State,
    Work,
    World,
    devices_of,
    following,
    merge_sort,
    smallest,
)
from gangwise.jobs.plan_kernels import conservative
from gangwise.jobs.rate_kernels import Beliefs, remaining
from gangwise.jobs.start_kernels import (
    charge,
    find,
    holds_off,
    put_in_order,
    start,
    tried_rate,
    work_done,
)

int64: Any = np.int64


@inner_kernel
def expected_ends(w: Work, r: Rules, x: State, b: Beliefs) -> None:
    """With limits of work: when running jobs are expected to end, anew."""
    now = x.clock[NOW]
    size = x.at[N_RUNNING]
    for i in range(size):
        j = x.running[i]
        done = work_done(x, j)
        x.jobs[j].expect = now + remaining(b, w.jobs[j].limit, done) / x.looks[j].seen
        x.order[i].time = x.jobs[j].expect
        x.order[i].item = j
    x.at[ENTERED] = size
    x.at[SORTED] = 0
    x.at[HOLES] += 1


@inlined_kernel
def reserve(w: Work, s: Shapes, v: World, x: State, j: int) -> None:
    """EASY: the first instant at which job j fits if running jobs end when expected.

    Leaves what is free at that instant in `x.shadow`, and how many tasks of j fit then in HAVE.
    """
    N = x.free.shape[0]
    c = int64(w.jobs[j].shape)
    now = x.clock[NOW]
    at = x.at
    have = 0
    allowed = v.allowed[s.tasks[c].constraint]
    for n in range(N):
        for k in range(x.free.shape[1]):
            x.shadow[n, k] = x.free[n, k]
        if v.shared >= 0:
            for g in range(v.devices[n]):
                x.shadow_device[n, g] = x.device[n, g]
        if allowed[n]:
            have += fits(s, v, x.shadow, x.shadow_device, c, n)
    put_in_order(x)
    i = 0
    size = at[ENTERED]
    x.clock[RESERVED] = LATER
    while i < size:
        instant = max(x.order[i].time, now)
        while i < size and max(x.order[i].time, now) == instant:
            o = x.order[i].item
            p = w.jobs[o].piece_from
            for m in range(p, p + x.jobs[o].pieces):
                n = x.out[m].node
                if allowed[n]:
                    have -= fits(s, v, x.shadow, x.shadow_device, c, n)
                take(
                    s,
                    v,
                    x.shadow,
                    x.shadow_device,
                    w.jobs[o].shape,
                    n,
                    x.out[m].tasks,
                    x.out[m].mask,
                    1,
                )
                if allowed[n]:
                    have += fits(s, v, x.shadow, x.shadow_device, c, n)
            i += 1
        if have >= w.jobs[j].tasks:
            x.clock[RESERVED] = instant
            break
    at[HAVE] = have
    at[CHANGE] += 1


@inlined_kernel
def keeps_promise(w: Work, s: Shapes, v: World, x: State, j: int, count: int, head: int) -> bool:
    """EASY: job j on the pieces tried, past the promise, does not delay the first in line.

    If so, what is free at the promised instant is without these pieces; HAVE is as it was.
    """
    c = int64(w.jobs[j].shape)
    h = int64(w.jobs[head].shape)
    allowed = v.allowed[s.tasks[h].constraint]
    have = x.at[HAVE]
    for sign in (-1, 1):
        for i in range(count):
            n = x.tried[i].node
            if sign < 0 and allowed[n]:
                have -= fits(s, v, x.shadow, x.shadow_device, h, n)
            take(s, v, x.shadow, x.shadow_device, c, n, x.tried[i].tasks, x.tried[i].mask, sign)
            if sign < 0 and allowed[n]:
                have += fits(s, v, x.shadow, x.shadow_device, h, n)
        if sign < 0 and have >= w.jobs[head].tasks:
            x.at[STILL] = have
            return True
    return False


@inlined_kernel
def give_up(s: Shapes, v: World, x: State, c: int, count: int) -> None:
    """Undo what :func:`keeps_promise` took: a job of shape c waits, of its own accord."""
    for i in range(count):
        n = x.tried[i].node
        take(s, v, x.shadow, x.shadow_device, c, n, x.tried[i].tasks, x.tried[i].mask, 1)


@inner_kernel
def keys(w: Work, s: Shapes, r: Rules, x: State) -> int:
    """Those waiting in `x.sequence`, in the order of the queue; their number."""
    now = x.clock[NOW]
    count = 0
    if r.queue == FAIR_SHARE:
        for u in range(x.users.size):
            charge(w, r, x, u)
    rank = smallest(x.words, x.summary, x.at)
    while rank >= 0:
        j = w.by_rank[rank]
        x.sequence[count].item = j
        if r.queue == FAIR_SHARE:
            x.sequence[count].time = x.users[w.jobs[j].user].use
        elif r.queue > FAIR_SHARE:  # WFP3: − (wait / limit)³ · size
            stretch = (now - w.jobs[j].submit) / max(w.jobs[j].limit, 1.0)
            size = devices_of(w, s, j) / 1000.0
            x.sequence[count].time = -(stretch * stretch * stretch) * size
        count += 1
        rank = following(x.words, x.summary, x.at, rank + 1)
    if r.queue >= FAIR_SHARE:
        merge_sort(x.sequence, x.spare_rows, 0, count)
    return count


@inlined_kernel
def full(s: Shapes, x: State) -> bool:
    """Not even the smallest task fits."""
    for k in range(x.total.size):  # noqa: SIM110 - generators do not compile
        if x.total[k] < s.least[k]:
            return True
    return False


@inlined_kernel
def only_joined(w: Work, r: Rules, x: State, fresh: int) -> bool:
    """Nothing changed but submissions, behind the first in line: those tried before fail again."""
    at = x.at
    if (
        at[DIRTY] != 0
        or at[HEAD] < 0
        or r.queue >= FAIR_SHARE
        or r.limits_of_work
        or r.waits
        or (r.choice == BY_RATE and r.rates != LABELS and r.backfilling != NO_BACKFILLING)
        or fresh > x.fresh.size
        or (r.backfilling == EASY and (x.clock[RESERVED] < x.clock[NOW] or at[N_WAITING] > r.depth))
    ):
        return False
    first = w.jobs[at[HEAD]].rank
    for i in range(fresh):  # noqa: SIM110 - generators do not compile
        if x.fresh[i] < first:
            return False
    return True


@inlined_kernel
def decide(w: Work, s: Shapes, v: World, r: Rules, x: State, b: Beliefs) -> None:
    """One round of decisions: start in order until one cannot; then backfill."""
    at = x.at
    now = x.clock[NOW]
    changing = r.queue >= FAIR_SHARE
    fresh = at[FRESH]
    at[FRESH] = 0
    joined = only_joined(w, r, x, fresh)
    head = at[HEAD]
    count = 0
    rank = int64(-1)
    if joined:
        if r.backfilling != EASY:
            return
        for i in range(1, fresh):
            rank = x.fresh[i]
            m = i
            while m > 0 and x.fresh[m - 1] > rank:
                x.fresh[m] = x.fresh[m - 1]
                m -= 1
            x.fresh[m] = rank
    else:
        at[DIRTY] = 0
        at[HEAD] = head = -1
        if at[N_WAITING] == 0:
            return
        if r.backfilling == CONSERVATIVE:
            if r.limits_of_work:
                expected_ends(w, r, x, b)
            conservative(w, s, v, r, x, b, keys(w, s, r, x))
            return
        if changing:
            count = keys(w, s, r, x)
        else:
            rank = smallest(x.words, x.summary, at)
    tested = 0
    i = 0
    while True:
        if joined:
            if i >= fresh:
                break
            j = w.by_rank[x.fresh[i]]
            i += 1
        elif changing:
            if i >= count:
                break
            j = x.sequence[i].item
            i += 1
        else:
            if rank < 0:
                break
            j = w.by_rank[rank]
            rank = following(x.words, x.summary, at, rank + 1)
        c = int64(w.jobs[j].shape)
        l = int64(0)  # what else decides where it goes: its type, and whether it is short
        if r.choice == BY_RATE:
            l = 2 * w.jobs[j].type + (w.jobs[j].limit < b.constants.short)
        like = (37 * c + 11 * w.jobs[j].tasks + l) % x.delays.size
        if head >= 0:
            if tested >= r.depth:
                at[DIRTY] = 1  # those behind were not tried: they are at the next instant
                break
            if full(s, x):
                break
            tested += 1
            if (
                x.delays[like].change == at[CHANGE]
                and x.delays[like].shape == c
                and x.delays[like].tasks == w.jobs[j].tasks
                and x.delays[like].type == l
                and now + w.jobs[j].limit / x.delays[like].rate > x.clock[RESERVED]
            ):
                at[TESTS] += 1
                continue  # the like of it was tried on the same nodes
        pieces = find(w, s, v, r, x, b, j)
        if pieces == 0:
            if head >= 0:
                continue
            head = j
            at[HEAD] = j
            if r.backfilling != EASY or full(s, x):
                x.clock[RESERVED] = -1.0  # made when it is needed
                if r.backfilling == EASY:
                    at[DIRTY] = 1
                break
            if r.limits_of_work:
                expected_ends(w, r, x, b)
            reserve(w, s, v, x, j)
            x.told[PROMISED, j] = min(x.told[PROMISED, j], x.clock[RESERVED])
            continue
        past = False
        if head >= 0:
            rate = 1.0
            if r.limits_of_work and r.choice == BY_RATE:
                rate = math.exp(tried_rate(x, pieces))
            past = now + w.jobs[j].limit / rate > x.clock[RESERVED]
            if past and not keeps_promise(w, s, v, x, j, pieces, head):
                x.delays[like].shape = c
                x.delays[like].tasks = w.jobs[j].tasks
                x.delays[like].type = l
                x.delays[like].change = at[CHANGE]
                x.delays[like].rate = rate
                continue
        if holds_off(w, s, r, x, b, j, pieces):
            if past:
                give_up(s, v, x, c, pieces)
            continue
        if past:
            at[HAVE] = at[STILL]
        start(w, s, v, r, x, j, pieces)
