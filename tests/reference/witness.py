"""The stated rules of the simulation as the obvious algorithm, compiled only to be fast enough.

Every round looks at every waiting job anew; what is free is counted from scratch before each
question; every reservation is searched anew. There is no memo, no shortcut and no state that is
carried on, except what the rules themselves carry on: who runs where, and conservative
reservations. Nothing is shared with the package but the tables of a case (:func:`world_of`).

Times and rates are meant to be binary fractions, so that every sum is exact.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from numba import njit

part = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""A function that only :func:`play` and other parts call."""

UNSUBMITTED, HELD, WAITING, RUNNING, FINISHED, KILLED, SET_ASIDE, CANCELLED = range(8)
QUEUES = ("fcfs", "sjf", "edf", "priority", "fair-share", "wfp3")
BACKFILLING = ("none", "easy", "conservative")
CHOICES = ("first-fit", "best-fit", "worst-fit", "fgd", "label", "oracle")
FCFS, SJF, EDF, PRIORITY, FAIR_SHARE, WFP3 = range(6)
NONE, EASY, CONSERVATIVE = range(3)
FIRST_FIT, BEST_FIT, WORST_FIT, FGD, LABEL, ORACLE = range(6)
DOWN, DRAIN, UP, FACTOR, CANCEL = range(5)
PACK = 0.003
"""Log rate that label and oracle give up to leave one free device less on a node."""
STEP = 40
"""FGD tells growths apart in such steps, in thousandths of a device."""

_F, _I = np.float64, np.int64
GIVEN = ("submit", "run", "limit", "deadline", "priority", "noise")
COUNTED = ("tasks", "shape", "user", "type")
TIMES = ("begun", "start", "end", "finish", "timer", "slot", "promised")
WORKED = ("left", "overhead", "since", "speed", "lost")
JOB = np.dtype(
    [(name, _F) for name in (*GIVEN, *TIMES, *WORKED)]
    + [
        (name, _I)
        for name in (
            *COUNTED,
            "first",
            "past",
            "dominant",
            "attempts",
            "doomed",
            "passes",
            "latest",
        )
    ]
)
PLACE = np.dtype(
    [
        (name, _I)
        for name in ("node", "mask", "slot_node", "slot_mask", "try_node", "try_mask", "shape")
    ]
)
EVENT = np.dtype([("time", _F), ("kind", _I), ("which", _I), ("value", _F)])
RULES = np.dtype(
    [
        (name, _I)
        for name in (
            *("queue", "backfilling", "choice", "depth", "enforced", "of_work", "round"),
            "looking",  # the pool whose promise is looked at
        )
    ]
    + [(name, _F) for name in ("checkpoint", "restart", "measured_after", "latency", "now")]
)


class World(NamedTuple):
    """A case and what goes on in it."""

    rules: np.ndarray  # [1]
    jobs: np.ndarray  # [J] by (submission, row of the log)
    phase: np.ndarray  # of each job
    places: np.ndarray  # [tasks of all jobs]: where each runs, is planned, and was tried; its shape
    after_from: np.ndarray
    after: np.ndarray
    demand: np.ndarray  # [shapes, K]
    per_node: np.ndarray
    allowed: np.ndarray  # [shapes, N]
    seen: np.ndarray  # tasks of each shape that were submitted so far
    capacity: np.ndarray  # [N, K]
    shared: int  # the device type that is shared, −1 for none
    up: np.ndarray
    factor: np.ndarray
    rates: np.ndarray  # [types, N]
    labels: np.ndarray
    use: np.ndarray  # of each user, by attempts that are over
    events: np.ndarray
    pool: np.ndarray  # [shapes] of which pool they are
    meets: np.ndarray  # [pools, pools] share a node
    cap_of: np.ndarray  # [J, caps] whose use a job counts in, −1 for none
    cap_takes: np.ndarray  # [J, caps]
    cap_most: np.ndarray  # [caps]
    shut: np.ndarray  # [rules, seconds] closed hours, second by second; afterwards all is open
    shut_for: np.ndarray  # [J, rules]
    edges: np.ndarray  # seconds in which hours open or close for any job
    unlike: np.ndarray  # [J] has groups of unlike tasks, which are not counted but placed
    dominant: np.ndarray  # [shapes] the device type of the largest share


# ------------------------------------------------------------------------------- what is free


@part
def take(w, s, node, mask, free, device):
    """Take the devices of one task of shape s."""
    for k in range(free.shape[1]):
        free[node, k] -= w.demand[s, k]
    for g in range(device.shape[1]):
        if mask >> g & 1:
            device[node, g] -= min(w.demand[s, w.shared], 1000)


@part
def expected_end(w, j):
    """Of a running job, by what it requested; now at the earliest."""
    job, r = w.jobs[j], w.rules[0]
    if job.passes >> r.looking & 1:
        return math.inf  # it has just started past what EASY promised to the first of this pool
    if r.of_work == 0 or (r.backfilling == CONSERVATIVE and job.latest == r.round):
        return max(job.begun + job.limit, r.now)
    gone = max(r.now - job.begun - r.latency - job.overhead, 0.0)
    if r.choice != LABEL:
        return r.now + max(job.limit - gone, 0.0)
    seen = math.inf
    for i in range(job.first, job.past):
        seen = min(seen, w.labels[job.type, w.places[i].node])
    # A job's work is believed to lie evenly between nothing and its limit, a second at least.
    return r.now + max((job.limit - gone * seen) / 2.0, 1.0) / seen


@part
def count_free(w, at, free, device):
    """What is free at an instant if running jobs end when expected and reservations are kept.

    ``at`` = −1: what is free now, in truth.
    """
    now = w.rules[0].now
    for n in range(free.shape[0]):
        for k in range(free.shape[1]):
            free[n, k] = w.capacity[n, k]
        for g in range(device.shape[1]):
            device[n, g] = 1000 if g < w.capacity[n, w.shared] // 1000 else 0
    for j in range(w.jobs.size):
        if w.phase[j] != RUNNING and w.phase[j] != WAITING:
            continue
        job = w.jobs[j]
        if w.phase[j] == RUNNING and (at < 0.0 or expected_end(w, j) > at):
            for i in range(job.first, job.past):
                at_node, mask = w.places[i].node, w.places[i].mask
                take(w, w.places[i].shape, at_node, mask, free, device)
        elif w.phase[j] == WAITING and max(job.slot, now) <= at < job.slot + job.limit:
            for i in range(job.first, job.past):
                at_node, mask = w.places[i].slot_node, w.places[i].slot_mask
                take(w, w.places[i].shape, at_node, mask, free, device)
    for n in range(free.shape[0]):
        if not w.up[n]:
            for k in range(free.shape[1]):
                free[n, k] = 0
            for g in range(device.shape[1]):
                device[n, g] = 0


@part
def next_change(w, at):
    """The next instant after ``at`` at which something is to end or begin; inf for none."""
    now, soonest = w.rules[0].now, math.inf
    for j in range(w.jobs.size):
        if w.phase[j] == RUNNING:
            end = expected_end(w, j)
            if at < end < soonest:
                soonest = end
        elif w.phase[j] == WAITING and w.jobs[j].slot < math.inf:
            job = w.jobs[j]
            begin = max(job.slot, now)
            if at < begin < soonest:
                soonest = begin
            end = job.slot + job.limit
            if at < end < soonest:
                soonest = end
    return soonest


# ------------------------------------------------------------------------------- which nodes


@part
def devices_for(w, s, n, device):
    """Shared devices for a task of shape s on node n, as a mask; −1 where there are none.

    A fraction takes the fullest that has room, wholes the first that are unused.
    """
    amount = w.demand[s, w.shared] if w.shared >= 0 else 0
    if amount == 0:
        return 0
    if amount < 1000:
        best = -1
        for g in range(device.shape[1]):
            if device[n, g] >= amount and (best < 0 or device[n, g] < device[n, best]):
                best = g
        return -1 if best < 0 else 1 << best
    mask, wanted = 0, amount // 1000
    for g in range(device.shape[1]):
        if wanted > 0 and device[n, g] == 1000:
            mask |= 1 << g
            wanted -= 1
    return -1 if wanted > 0 else mask


@part
def has_room(w, s, n, free):
    """Whether amounts suffice for a task of shape s; a plan may promise away more than there is."""
    for k in range(free.shape[1]):  # noqa: SIM110 - generators do not compile
        if w.demand[s, k] > max(free[n, k], 0):
            return False
    return True


@part
def fragments(w, n, device, free):
    """FGD: what is idle on node n and of no use, over the tasks submitted so far."""
    total = 0
    for s in range(w.seen.size):
        idle, small, amount = 0, 0, w.demand[s, w.shared]
        able = amount > 0 and w.allowed[s, n] and has_room(w, s, n, free)
        enough = 0
        for g in range(device.shape[1]):
            idle += device[n, g]
            if device[n, g] < min(amount, 1000):
                small += device[n, g]
            else:
                enough += 1
        able = able and enough >= max(1, amount // 1000)
        total += w.seen[s] * (small if able else idle)
    return total


@part
def growth(w, s, n, mask, free, device):
    """FGD: by how much fragments of node n grow with a task of shape s, in steps of 0.04."""
    submitted = w.seen.sum()
    if submitted == 0:
        return 0
    before = fragments(w, n, device, free)
    row, parts = free[n].copy(), device[n].copy()
    take(w, s, n, mask, free, device)
    grown = fragments(w, n, device, free) - before
    free[n], device[n] = row, parts
    return -((-grown) // (STEP * submitted))


@part
def least_growth(w, s, n, free, device):
    """FGD: the device for a fraction where fragments grow least, then the fullest; −1 for none."""
    amount = w.demand[s, w.shared]
    if not 0 < amount < 1000:
        return devices_for(w, s, n, device)
    best, least = -1, 0
    for g in range(device.shape[1]):
        if device[n, g] >= amount:
            level = growth(w, s, n, 1 << g, free, device)
            fuller = best >= 0 and level == least and device[n, g] < device[n, best]
            if best < 0 or level < least or fuller:
                best, least = g, level
    return -1 if best < 0 else 1 << best


@part
def left_over(w, s, n, free, sign):
    """Best-fit (−1) and worst-fit (1): what is free as shares of the largest node, negated.

    Devices of types that the task does not ask for count far more.
    """
    K, score = free.shape[1], 0.0
    for k in range(K):
        score += sign * (free[n, k] / max(w.capacity[:, k].max(), 1))
        if w.demand[s, k] == 0:
            score -= K * (int(w.capacity[n, k] > 0) + int(free[n, k] > 0))
    return -score


@part
def badness(w, choice, j, s, n, mask, free, device):
    """The rule: a task of job j goes to the node where this is least; ties go to the first."""
    k = w.dominant[s]
    if choice == FIRST_FIT:
        return 0.0
    if choice in (BEST_FIT, WORST_FIT):
        return left_over(w, s, n, free, -1.0 if choice == BEST_FIT else 1.0)
    if choice == FGD:
        return float(growth(w, s, n, mask, free, device))
    rate = w.labels[w.jobs[j].type, n]
    if choice == ORACLE:
        rate = w.rates[w.jobs[j].type, n] * w.factor[n]
    return -(math.log(rate) - PACK * (free[n, k] / 1000.0))


@part
def gang(w, j, free, device):
    """A place for all tasks by the rule; groups that find none so, on the first nodes, or any."""
    had, parts = free.copy(), device.copy()
    if tasks_placed(w, w.rules[0].choice, j, free, device):
        return True
    if not w.unlike[j]:
        return False
    free[:, :], device[:, :] = had, parts
    return room_for(w, j, free, device)


@part
def room_for(w, j, free, device):
    """Whether a job fits: groups, whose fit depends on where they go, in any way."""
    if not w.unlike[j]:
        return tasks_placed(w, w.rules[0].choice, j, free, device)
    had, parts = free.copy(), device.copy()
    if tasks_placed(w, FIRST_FIT, j, free, device):
        return True
    free[:, :], device[:, :] = had, parts
    starts = np.empty(w.jobs[j].past - w.jobs[j].first + 1, np.int64)
    G = 0
    for i in range(w.jobs[j].first, w.jobs[j].past):  # where each group of tasks begins
        if i == w.jobs[j].first or w.places[i].shape != w.places[i - 1].shape:
            starts[G] = i
            G += 1
    starts[G] = w.jobs[j].past
    left = starts[1 : G + 1] - starts[:G]
    main, fraction = 0, 0
    for g in range(G):
        main = g if left[g] > left[main] else main
        amount = w.demand[w.places[starts[g]].shape, w.shared] if w.shared >= 0 else 0
        if 0 < amount < 1000:
            if fraction > 0 and amount != fraction:
                return False  # unlike parts of a device are not searched
            fraction = amount
    dead = np.zeros((free.shape[0] + 1, np.prod(left + 1)), dtype=np.bool_)
    if not any_way(w, starts[: G + 1], left, main, had, parts, dead):
        return False
    for i in range(w.jobs[j].first, w.jobs[j].past):
        s, n = w.places[i].shape, w.places[i].try_node
        w.places[i].try_mask = devices_for(w, s, n, device)
        take(w, s, n, w.places[i].try_mask, free, device)
    return True


@part
def one_more(w, s, n, count, free, device):
    """Node n takes a task of shape s beside so many of it, if it can."""
    if not (w.up[n] and w.allowed[s, n] and has_room(w, s, n, free)):
        return False
    mask = devices_for(w, s, n, device)
    if mask < 0 or (w.per_node[s] > 0 and count == w.per_node[s]):
        return False
    take(w, s, n, mask, free, device)
    return True


@part
def any_way(w, starts, left, main, free, device, dead):
    """Try all numbers of tasks of each group on each node in turn, the fewest first.

    The main group comes last on a node, with as many as it takes. What was left at a node behind
    which there was no way is noted in ``dead``.
    """
    G, had, parts, p, fresh = left.size, free.copy(), device.copy(), 0, True
    counts = np.zeros(free.shape[0] * G, np.int64)
    while p >= 0:
        if p == counts.size:
            if left.sum() == 0:
                return True
            p, fresh = p - 1, False
            continue
        n, place, state = p // G, p % G, 0
        g = main if place == G - 1 else place + (place >= main)
        s = w.places[starts[g]].shape
        if fresh and place == 0:
            for m in range(G):
                state = state * (starts[m + 1] - starts[m] + 1) + left[m]
            if dead[n, state]:
                p, fresh = p - 1, False
                continue
        more = fresh
        if fresh:
            counts[p] = 0
            while g == main and left[g] > 0 and one_more(w, s, n, counts[p], free, device):
                left[g] -= 1
                counts[p] += 1
        elif g != main:
            free[n], device[n] = had[n], parts[n]
            for q in range(p - place, p + 1):
                m = q - (p - place)
                m += m >= main
                for i in range(counts[q]):
                    one_more(w, w.places[starts[m]].shape, n, i, free, device)
            if left[g] > 0 and one_more(w, s, n, counts[p], free, device):
                left[g] -= 1
                counts[p] += 1
                more = True
        if more:
            for i in range(counts[p]):
                w.places[starts[g + 1] - left[g] - counts[p] + i].try_node = n
            p, fresh = p + 1, True
            continue
        left[g] += counts[p]
        counts[p] = 0
        if place == 0:
            free[n], device[n] = had[n], parts[n]
            state = 0
            for m in range(G):
                state = state * (starts[m + 1] - starts[m] + 1) + left[m]
            dead[n, state] = True
        p -= 1
    return False


@part
def tasks_placed(w, choice, j, free, device):
    """Tasks one after another, each by the rule on what is then free; False unless all fit.

    Takes what it places, which is left in ``try_node`` and ``try_mask``.
    """
    first = w.jobs[j].first
    for i in range(first, w.jobs[j].past):
        s = w.places[i].shape
        best, least, devices = -1, math.inf, 0
        for n in range(free.shape[0]):
            if not (w.up[n] and w.allowed[s, n] and has_room(w, s, n, free)):
                continue
            if w.per_node[s] > 0:
                here = 0
                for m in range(first, i):
                    if w.places[m].try_node == n and w.places[m].shape == s:
                        here += 1
                if here >= w.per_node[s]:
                    continue
            if choice == FGD:
                found = least_growth(w, s, n, free, device)
            else:
                found = devices_for(w, s, n, device)
            if found < 0:
                continue
            bad = badness(w, choice, j, s, n, found, free, device)
            if best < 0 or bad < least:
                best, least, devices = n, bad, found
        if best < 0:
            return False
        w.places[i].try_node = best
        w.places[i].try_mask = devices
        take(w, s, best, devices, free, device)
    return True


@part
def takes_what_was_tried(w, j, free, device):
    """The gang takes what :func:`gang` found; whether all of it was free."""
    for i in range(w.jobs[j].first, w.jobs[j].past):
        at_node, mask = w.places[i].try_node, w.places[i].try_mask
        take(w, w.places[i].shape, at_node, mask, free, device)
    for n in range(free.shape[0]):
        for k in range(free.shape[1]):
            if free[n, k] < 0:
                return False
        for g in range(device.shape[1]):
            if device[n, g] < 0:
                return False
    return True


# ------------------------------------------------------------------------------- who is next


@part
def share(w, j):
    """Of the cluster's devices of the job's dominant type."""
    k, total = w.jobs[j].dominant, 0
    for n in range(w.capacity.shape[0]):
        total += w.capacity[n, k]
    return w.jobs[j].tasks * w.demand[w.jobs[j].shape, k] / total


@part
def key(w, j):
    """The order of the queue: the smallest is first."""
    job, r = w.jobs[j], w.rules[0]
    if r.queue == SJF:
        return job.limit
    if r.queue == EDF:
        return job.deadline
    if r.queue == PRIORITY:
        return -job.priority
    if r.queue == FAIR_SHARE:  # share of the cluster × seconds that the user has had
        use = w.use[job.user]
        for i in range(w.jobs.size):
            if w.jobs[i].user == job.user and w.phase[i] == RUNNING:
                use += share(w, i) * (r.now - w.jobs[i].begun)
        return use
    if r.queue == WFP3:
        stretch = (r.now - job.submit) / max(job.limit, 1.0)
        size = job.tasks * w.demand[job.shape, job.dominant] / 1000.0
        return -(stretch * stretch * stretch) * size
    return 0.0


@part
def in_order(w):
    """Waiting jobs in the order of the queue; ties by (submission, row): insertion sort."""
    order, keys, count = np.empty(w.jobs.size, np.int64), np.empty(w.jobs.size), 0
    for j in range(w.jobs.size):
        if w.phase[j] == WAITING:
            mine, i = key(w, j), count
            while i > 0 and keys[i - 1] > mine:
                keys[i], order[i] = keys[i - 1], order[i - 1]
                i -= 1
            keys[i], order[i] = mine, j
            count += 1
    return order[:count]


@part
def set_running(w, j):
    """Job j starts now where it was tried."""
    job, r = w.jobs[j], w.rules[0]
    w.phase[j] = RUNNING
    job.attempts += 1
    job.latest = r.round
    job.begun = r.now
    if math.isnan(job.start):
        job.start = r.now
    job.since = r.now + r.latency + job.overhead
    for i in range(job.first, job.past):
        w.places[i].node, w.places[i].mask = w.places[i].try_node, w.places[i].try_mask
    job.slot = math.inf
    if r.choice == ORACLE:
        job.timer = r.now + r.measured_after
    set_finish(w, j)


@part
def set_finish(w, j):
    """A gang works at the rate of its slowest task."""
    job, r = w.jobs[j], w.rules[0]
    slowest = math.inf
    for i in range(job.first, job.past):
        n = w.places[i].node
        slowest = min(slowest, w.rates[job.type, n] * w.factor[n])
    job.speed = slowest * job.noise
    job.finish = job.since + job.left / job.speed
    if r.enforced != 0 and r.of_work == 0:
        job.finish = min(job.finish, job.begun + r.latency + job.limit)


@part
def held(w, j):
    """A cap keeps job j from starting: what runs in it is summed anew."""
    for c in range(w.cap_most.size):
        if w.cap_of[j, c] < 0:
            continue
        used = w.cap_takes[j, c]
        for i in range(w.jobs.size):
            if w.phase[i] == RUNNING and w.cap_of[i, c] == w.cap_of[j, c]:
                used += w.cap_takes[i, c]
        if used > w.cap_most[c]:
            return True
    return False


@part
def is_shut(w, j, at):
    """Job j may not start: one of its closed hours is on in that second."""
    second = math.floor(at)
    for c in range(w.shut.shape[0]):
        if w.shut_for[j, c] and second < w.shut.shape[1] and w.shut[c, second]:
            return True
    return False


@part
def opening(w, j, at):
    """The first second, or this very instant, at which job j may start."""
    if at == math.inf or not is_shut(w, j, at):
        return at
    at = math.floor(at)
    while is_shut(w, j, at):
        at += 1.0
    return at


@part
def next_edge(w):
    """The next second in which hours open or close for any job; inf for none."""
    for second in w.edges:
        if second > w.rules[0].now:
            return float(second)
    return math.inf


@part
def starts_in_order(w, free, device):
    """No backfilling, and EASY; every pool has its own first in line."""
    r = w.rules[0]
    P = w.meets.shape[0]
    head, promise = np.full(2 * P, -1, np.int64), np.full(2 * P, math.inf)
    tested, any_head = 0, False
    w.jobs["passes"][:] = 0
    for j in in_order(w):
        mine = w.pool[w.jobs[j].shape]
        if held(w, j):
            continue
        r.looking = 63
        if is_shut(w, j, r.now):
            if r.backfilling == EASY and head[P + mine] < 0:
                head[P + mine], any_head = j, True
                soon = r.now
                while soon < math.inf:
                    # Is there room at that instant, and when it may start then?
                    count_free(w, soon, free, device)
                    if room_for(w, j, free, device):
                        promise[P + mine] = opening(w, j, soon)
                        break
                    soon = next_change(w, soon)
            continue
        if any_head:
            stands = False
            for p in range(2 * P):
                stands |= head[p] >= 0 and w.meets[p % P, mine]
            if r.backfilling == NONE and stands:
                continue
            if tested >= r.depth:
                return
            tested += 1
        count_free(w, -1.0, free, device)
        if not gang(w, j, free, device):
            if head[mine] < 0:
                head[mine], any_head = j, True
                if r.backfilling == NONE:
                    continue
                soon = next_change(w, np.nextafter(r.now, -1.0))
                while soon < math.inf:
                    count_free(w, soon, free, device)
                    if room_for(w, j, free, device):
                        break
                    soon = next_change(w, soon)
                promise[mine] = opening(w, j, soon)
            continue
        rate = 1.0
        if r.of_work != 0 and r.choice == LABEL:
            rate = math.inf
            for i in range(w.jobs[j].first, w.jobs[j].past):
                rate = min(rate, w.labels[w.jobs[j].type, w.places[i].try_node])
        passes, delays = 0, False
        for p in range(2 * P):
            past = r.now + w.jobs[j].limit / rate > promise[p]
            if head[p] >= 0 and w.meets[p % P, mine] and past:
                # Does that head still fit then, beside all that have started past it?
                r.looking = p
                count_free(w, promise[p], free, device)
                takes_what_was_tried(w, j, free, device)
                delays |= not room_for(w, head[p], free, device)
                passes |= 1 << p
        if delays:
            continue
        w.jobs[j].passes = passes
        set_running(w, j)


@part
def plan_all(w, free, device):
    """Conservative backfilling: each in order asks for the first instant it fits from.

    True if some that were due could not start, and nothing runs.
    """
    r = w.rules[0]
    stuck = False
    least, least_device = np.empty_like(free), np.empty_like(device)
    for j in in_order(w)[: r.depth]:
        job = w.jobs[j]
        kept = job.slot
        if held(w, j):
            job.slot = math.inf
            continue
        before = math.inf if kept <= r.now else kept
        stuck = stuck or kept <= r.now
        job.slot = math.inf
        at, found = opening(w, j, r.now), False
        while at < before:
            count_free(w, at, free, device)
            least[:, :], least_device[:, :] = free, device
            if room_for(w, j, free, device):  # it fits at that instant: does it until its end?
                then = next_change(w, at)
                while then < at + job.limit:
                    count_free(w, then, free, device)
                    least[:, :] = np.minimum(least, free)
                    least_device[:, :] = np.minimum(least_device, device)
                    then = next_change(w, then)
                if gang(w, j, least, least_device):
                    found = True
                    break
            at = opening(w, j, next_change(w, at))
        if not found:
            if kept > r.now:
                job.slot = kept
            continue
        job.promised = min(job.promised, at)
        if at == r.now:
            count_free(w, -1.0, free, device)
            if takes_what_was_tried(w, j, free, device):
                set_running(w, j)
                continue
        job.slot = at
        for i in range(job.first, job.past):
            w.places[i].slot_node = w.places[i].try_node
            w.places[i].slot_mask = w.places[i].try_mask
    return stuck and not (w.phase == RUNNING).any()


# ------------------------------------------------------------------------------- what happens


@part
def leave(w, j, phase):
    """A running job leaves its nodes."""
    job = w.jobs[j]
    w.use[job.user] += share(w, j) * (w.rules[0].now - job.begun)
    w.phase[j] = phase
    job.timer = job.finish = math.inf


@part
def fail(w, j):
    """Its node fails: work since the last checkpoint is lost, and it waits again."""
    job, r = w.jobs[j], w.rules[0]
    size = job.tasks * w.demand[job.shape, job.dominant] / 1000.0
    left = max(job.left - max(r.now - job.since, 0.0) * job.speed, 0.0)
    done = job.run - left
    kept = 0.0
    if r.checkpoint == 0.0:
        kept = done
    elif r.checkpoint < math.inf:
        kept = done // r.checkpoint * r.checkpoint
    restarted = min(max(r.now - job.begun - r.latency, 0.0), job.overhead)
    job.lost += (done - kept) * size + restarted * size
    job.left = job.run - kept
    job.overhead = r.restart
    leave(w, j, WAITING)


@part
def happens(w, kind, which, value):
    """A node fails, drains, comes back or changes its speed; a job is withdrawn."""
    now = w.rules[0].now
    if kind == CANCEL:
        phase = w.phase[which]
        if phase == RUNNING:
            leave(w, which, CANCELLED)
            w.jobs[which].end = now
        elif phase < RUNNING:
            w.phase[which] = CANCELLED
        return
    if kind == FACTOR:
        w.factor[which] = value
    for j in range(w.jobs.size):
        job, there = w.jobs[j], False
        for i in range(job.first, job.past):
            if w.phase[j] == RUNNING and w.places[i].node == which:
                there = True
        if there and kind == DOWN:
            fail(w, j)
        elif there and kind == FACTOR:
            if now > job.since:
                job.left = max(job.left - (now - job.since) * job.speed, 0.0)
                job.since = now
            set_finish(w, j)
    if kind != FACTOR and w.up[which] != (kind == UP):
        w.up[which] = kind == UP
        for j in range(w.jobs.size):
            w.jobs[j].slot = math.inf  # a plan holds while nodes neither come nor go


@part
def next_instant(w, event, events):
    """When something happens next; inf where nothing does any more."""
    now, going = math.inf, False
    for j in range(w.jobs.size):
        job = w.jobs[j]
        going |= w.phase[j] < FINISHED
        now = min(now, job.finish, job.timer)
        if w.phase[j] == UNSUBMITTED:
            now = min(now, job.submit)
    if event < events:
        now = min(now, w.events[event].time)
    if w.shut.shape[0] > 0:
        now = min(now, next_edge(w))
    return now if going else math.inf


@njit(cache=True)
def play(w):
    """From event to event: ends, nodes and withdrawals, submissions, measurements; then a round."""
    devices = 0
    for n in range(w.capacity.shape[0]):
        if w.shared >= 0:
            devices = max(devices, w.capacity[n, w.shared] // 1000)
    free = np.zeros(w.capacity.shape, dtype=np.int64)
    device = np.zeros((w.capacity.shape[0], devices), dtype=np.int64)
    for j in range(w.jobs.size):
        count_free(w, -1.0, free, device)
        if not room_for(w, j, free, device):  # not even on an empty cluster
            w.phase[j] = SET_ASIDE
        for c in range(w.cap_most.size):  # more than a cap by itself
            if w.cap_of[j, c] >= 0 and w.cap_takes[j, c] > w.cap_most[c]:
                w.phase[j] = SET_ASIDE
    event, events, r = 0, 0, w.rules[0]
    for e in range(w.events.size):  # of a job that is set aside nothing is withdrawn
        if w.events[e].kind != CANCEL or w.phase[w.events[e].which] != SET_ASIDE:
            w.events[events] = w.events[e]
            events += 1
    r.now = next_instant(w, event, events)
    while r.now < math.inf:
        for j in range(w.jobs.size):
            job = w.jobs[j]
            if w.phase[j] == RUNNING and job.finish <= r.now:
                own = job.since + job.left / job.speed
                leave(w, j, KILLED if own > r.now or job.doomed != 0 else FINISHED)
                job.end = r.now
        while event < events and w.events[event].time <= r.now:
            happens(w, w.events[event].kind, w.events[event].which, w.events[event].value)
            event += 1
        for j in range(w.jobs.size):
            job = w.jobs[j]
            if w.phase[j] <= HELD and job.submit <= r.now:
                w.phase[j] = WAITING
                for i in range(w.after_from[j], w.after_from[j + 1]):
                    if w.phase[w.after[i]] < FINISHED:
                        w.phase[j] = HELD
                if w.phase[j] == WAITING:
                    for i in range(job.first, job.past):
                        w.seen[w.places[i].shape] += 1
            if job.timer <= r.now:
                job.timer = math.inf
        r.round += 1
        if r.backfilling == CONSERVATIVE:
            if plan_all(w, free, device):
                for j in range(len(w.jobs)):
                    w.jobs[j].slot = math.inf
                plan_all(w, free, device)
        else:
            starts_in_order(w, free, device)
        r.now = next_instant(w, event, events)


# ------------------------------------------------------------------------------- tables


def nodes_needed(w, job) -> int:
    """How few nodes hold a job; groups share none."""
    shapes = w.places["shape"][job["first"] : job["past"]].tolist()
    return sum(nodes_for(w, s, shapes.count(s)) for s in dict.fromkeys(shapes))


def nodes_for(w, s, tasks) -> int:
    """How few nodes hold tasks of a shape, one by one onto the node that takes most of them."""
    room = []
    for n in range(len(w.capacity)):
        count = 0
        while count < tasks and ((count + 1) * w.demand[s] <= w.capacity[n]).all():
            count += 1
        count = min(count, int(w.per_node[s]) or count)
        room.append(count if w.allowed[s, n] else 0)
    needed, left = 0, tasks
    for count in sorted(room, reverse=True):
        if left > 0:
            needed, left = needed + 1, left - count
    return needed


def under(w, jobs, nodes, site) -> World:
    """The same world with the pools, caps and start latency of a site, from its plain rules."""
    where = {name: n for n, name in enumerate(nodes.names)}
    mine = {pool.name: {where[name] for name in pool.nodes.split(",")} for pool in site.pool}
    named = [jobs.pools[i] for i in jobs.pool.tolist()]
    every = [""] + [pool.name for pool in site.pool]
    of = [every.index(name) if name in every else 0 for name in named]
    # A shape of each pool: the tables of shapes are repeated pool by pool.
    S = len(w.demand)
    on = [mine.get(name, set(range(len(nodes)))) for name in every]
    w.jobs["shape"] += S * np.array(of)
    w.places["shape"] += np.repeat(S * np.array(of), w.jobs["past"] - w.jobs["first"])
    more = {
        "demand": np.tile(w.demand, (len(every), 1)),
        "per_node": np.tile(w.per_node, len(every)),
        "seen": np.tile(w.seen, len(every)),
        "dominant": np.tile(w.dominant, len(every)),
        "allowed": np.concatenate([w.allowed & [n in s for n in range(len(nodes))] for s in on]),
        "pool": np.repeat(np.arange(len(every)), S),
        "meets": np.array([[bool(a & b) for a in on] for b in on]),
    }
    w = w._replace(**more)
    w.rules["latency"] = site.start.latency
    holders, takes, amounts = [], [], []
    parents = {account.name: account.parent for account in site.account}
    for j, (job, pool) in enumerate(zip(w.jobs, named)):
        charged = [jobs.accounts[int(jobs.charged[j])]]
        while parents.get(charged[-1]):
            charged.append(parents[charged[-1]])
        who = {
            "user": jobs.users[job["user"]],
            "account": charged[0],
            "pool": pool,
            "qos": jobs.qoses[int(jobs.qos[j])],
            "all": "everyone",
            "job": f"job {j}",
        }
        amount = {f"d{k}": int(d * job["tasks"]) for k, d in enumerate(w.demand[job["shape"]])}
        amount |= {"jobs": 1000, "nodes": 1000 * nodes_needed(w, job)}
        amounts.append(amount)
        holders.append(
            [
                who[c.scope]
                if (not c.only or who[c.scope] in c.only)
                and c.pool in ("", pool)
                and c.qos in ("", who["qos"])
                and (not c.account or c.account in charged)
                else None
                for c in site.cap
            ]
        )
        takes.append([amount[c.of] for c in site.cap])
    ids = {name: i for i, name in enumerate({x for row in holders for x in row if x is not None})}
    shape = (len(jobs), len(site.cap))
    codes = [[-1 if x is None else ids[x] for x in row] for row in holders]
    shut = np.array(
        [shut_seconds(c, site.clock.start) for c in site.closed], dtype=np.bool_
    ).reshape(-1, SHUT)
    about = [
        [
            c.pool in ("", pool)
            and jobs.users[job["user"]] not in c.exempt
            and job["limit"] > c.longer_than
            and sizes[c.of] > 1000 * c.more_than
            for c in site.closed
        ]
        for job, pool, sizes in zip(w.jobs, named, amounts)
    ]
    shut_for = np.array(about, dtype=np.bool_).reshape(len(jobs), -1)
    each = np.unique(shut_for, axis=0).astype(np.int64) @ shut > 0
    return w._replace(
        cap_of=np.array(codes, dtype=np.int64).reshape(shape),
        cap_takes=np.array(takes, dtype=np.int64).reshape(shape),
        cap_most=np.array([round(1000 * c.most) for c in site.cap], dtype=np.int64),
        shut=shut,
        shut_for=shut_for,
        edges=1 + np.flatnonzero((each[:, 1:] != each[:, :-1]).any(axis=0)),
    )


SHUT = 20_000
"""Seconds of closed hours that are laid out: cases end before."""


def shut_seconds(rule, start) -> np.ndarray:
    """Whether closed hours are on in each second from the start of a log, in UTC."""
    on = np.zeros(SHUT, dtype=np.bool_)
    second = (start.weekday() * 86400 + start.hour * 3600 + np.arange(SHUT)) % (7 * 86400)
    days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    for text in rule.hours:
        day, times = text.split(" ")
        low, high = (np.dot((3600, 60, 1), list(map(int, x.split(":")))) for x in times.split("-"))
        first, _, last = day.partition("-")
        for d in range(days.index(first), 1 + days.index(last or first)):
            on |= (second >= d * 86400 + low) & (second < d * 86400 + high)
    return on & (np.arange(SHUT) >= rule.since) & (np.arange(SHUT) < rule.to)


def shapes_and_tasks(jobs, nodes) -> tuple[list, list[list[int]]]:
    """All shapes, those of jobs first, and the shape of every task of each job.

    Of a job of groups those come first whose task asks for the largest share of the largest node.
    """
    shapes, tasks_of = list(jobs.shapes), []
    largest = [max(int(amount), 1) for amount in nodes.capacity.max(axis=0)]
    for j in range(len(jobs)):
        groups = list(jobs.shapes[jobs.shape[j]].groups)
        if not groups:
            tasks_of.append([int(jobs.shape[j])] * int(jobs.tasks[j]))
            continue
        tasks_of.append([])
        while groups:
            first = max(groups, key=lambda g: max(d / c for d, c in zip(g[1].demand, largest)))
            groups.remove(first)
            if first[1] not in shapes:
                shapes.append(first[1])
            tasks_of[-1] += [shapes.index(first[1])] * first[0]
    return shapes, tasks_of


def world_of(jobs, nodes, names, conditions, options, depth) -> World:
    """The tables of the package as plain arrays, and a scheduler by its names."""
    queue, backfilling, choice = names
    assert not (choice == "oracle" and options.limits == "work"), "it learns how long jobs take"
    J, N = len(jobs), len(nodes)
    table = np.zeros(J, dtype=JOB)
    for name in (*GIVEN[:-1], *COUNTED):
        table[name] = getattr(jobs, name)
    table["noise"] = 1.0 if conditions.noise is None else conditions.noise
    if options.enforced and options.limits == "work":
        table["doomed"], table["run"] = jobs.run > jobs.limit, np.minimum(jobs.run, jobs.limit)
    shapes, tasks_of = shapes_and_tasks(jobs, nodes)
    table["past"] = np.cumsum([len(tasks) for tasks in tasks_of])
    table["first"] = np.cumsum([0, *(len(tasks) for tasks in tasks_of)])[:-1]
    places = np.zeros(sum(map(len, tasks_of)), dtype=PLACE)
    places["shape"] = [s for tasks in tasks_of for s in tasks]
    table["start"] = table["end"] = table["begun"] = np.nan
    table["finish"] = table["timer"] = table["slot"] = table["promised"] = np.inf
    table["left"], table["speed"] = table["run"], 1.0
    demand = np.array([shape.demand for shape in shapes], dtype=np.int64)
    of_all = np.maximum(nodes.capacity.sum(axis=0), 1)
    dominant = (demand / of_all).argmax(axis=1)
    table["dominant"] = dominant[table["shape"]]
    kinds = ((DOWN, conditions.downs), (DRAIN, conditions.drains), (UP, conditions.ups))
    events = [(t, kind, n, 0.0) for kind, given in kinds for t, n in given]
    events += [(t, FACTOR, n, value) for t, n, value in conditions.factors]
    events += [(t, CANCEL, j, 0.0) for t, j in conditions.cancels]
    rules = np.zeros(1, dtype=RULES)
    for name, value in {
        "queue": QUEUES.index(queue),
        "backfilling": BACKFILLING.index(backfilling),
        "choice": CHOICES.index(choice),
        "depth": depth,
        "enforced": options.enforced,
        "of_work": options.limits == "work",
        "checkpoint": options.checkpoint,
        "restart": options.restart,
        "measured_after": options.measured_after,
    }.items():
        rules[name] = value
    types = len(jobs.types)
    return World(
        rules,
        table,
        np.zeros(J, dtype=np.int64),
        places,
        np.array(jobs.after_from, dtype=np.int64),
        np.array(jobs.after, dtype=np.int64),
        demand,
        np.array([shape.per_node for shape in shapes], dtype=np.int64),
        np.array(
            [
                [all(has.get(k) == v for k, v in shape.constraint) for has in nodes.labels]
                for shape in shapes
            ]
        ),
        np.zeros(len(shapes), dtype=np.int64),
        np.array(nodes.capacity, dtype=np.int64),
        -1 if nodes.shared is None else nodes.devices.index(nodes.shared),
        np.ones(N, dtype=np.bool_),
        np.ones(N),
        np.ones((types, N)) if conditions.rates is None else np.array(conditions.rates, float),
        nodes.declared(jobs.types),
        np.zeros(len(jobs.users)),
        np.array(sorted(events, key=lambda event: event[0]), dtype=EVENT),
        np.zeros(len(shapes), dtype=np.int64),
        np.ones((1, 1), dtype=np.bool_),
        np.zeros((J, 0), dtype=np.int64),
        np.zeros((J, 0), dtype=np.int64),
        np.zeros(0, dtype=np.int64),
        np.zeros((0, 1), dtype=np.bool_),
        np.zeros((J, 0), dtype=np.bool_),
        np.zeros(0, dtype=np.int64),
        np.array([bool(jobs.shapes[s].groups) for s in jobs.shape], dtype=np.bool_),
        dominant,
    )


def witness(jobs, nodes, names, conditions, options, depth=10_000, site=None) -> World:
    """Play a case; ``site`` are the rules of a site file whose pools name their nodes."""
    if site is not None:
        gone = windows(site, nodes)
        drains = [*conditions.drains, *((since, n) for since, _, n in gone)]
        ups = [*conditions.ups, *((to, n) for _, to, n in gone)]
        conditions = dataclasses.replace(conditions, drains=drains, ups=ups)
    w = world_of(jobs, nodes, names, conditions, options, depth)
    if site is not None:
        w = under(w, jobs, nodes, site)
    play(w)
    return w


def windows(site, nodes) -> list[tuple[float, float, int]]:
    """From when to when a node is not there, second by second: windows are of whole seconds."""
    found = []
    for n, name in enumerate(nodes.names):
        mine = [x for x in site.window if name in x.nodes.split(",")]
        seconds = {t for x in mine for t in range(int(x.since), int(x.to))}
        for t in sorted(seconds):
            if t - 1 not in seconds:
                found.append(
                    (float(t), float(next(u for u in range(t, t + 10**6) if u not in seconds)), n)
                )
    return found


def told(w: World) -> tuple:
    """Of all jobs: phase, first and last start, end, lost, and nodes of each task in order."""
    run = w.jobs
    on = (w.phase == FINISHED) | (w.phase == KILLED) | (w.phase == RUNNING)
    on |= (w.phase == CANCELLED) & ~np.isnan(run["end"])
    tasks = run["past"] - run["first"]
    nodes = np.where(np.repeat(on, tasks), w.places["node"], -1)
    nodes = nodes[np.lexsort((nodes, np.repeat(np.arange(run.size), tasks)))]
    late, end = w.rules[0]["latency"], run["end"]
    begun = np.fmin(run["begun"] + late, np.where(np.isnan(run["begun"]), np.nan, end))
    start = np.where(run["attempts"] == 1, begun, run["start"] + late)
    return w.phase, start, begun, end, run["lost"], nodes
