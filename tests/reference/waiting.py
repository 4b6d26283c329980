"""Where the waiting went, the obvious way: at every instant every waiting job is asked anew.

Everything is counted from scratch between two instants. Nothing is shared with the package but the
tables of a case, and what a cap or an hour is called.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np

from gangwise.jobs.metrics import Outcome
from gangwise.jobs.model import ALONE, Conditions, terms_of
from gangwise.jobs.schedule import Options, placed_shapes
from gangwise.jobs.tenancy import Tally, of_arrays

NAMES = ("after", "closed", "cap", "away", "reservation", "partition", "beside", "pieces")
NAMES += ("busy", "overtaken", "kept", "unseen", "unsplit", "latency")


def groups_fit(nodes, shape, free, up) -> bool:
    """Whether all tasks of all groups fit, tried on every node; parts of devices as amounts."""
    able = [
        [
            bool(on and usable) and all(labels.get(a) == b for a, b in part.constraint)
            for labels, on, usable in zip(nodes.labels, nodes.of_pool(part.pool), up)
        ]
        for _, part in shape.groups
    ]

    @functools.cache
    def behind(n: int, left: tuple[int, ...]) -> bool:
        if n == len(able[0]):
            return not any(left)
        for counts in itertools.product(*(range(k + 1) for k in left)):
            asked = sum(c * np.array(part.demand) for c, (_, part) in zip(counts, shape.groups))
            fits = ((asked <= np.maximum(free[n], 0)) | (asked == 0)).all()
            for c, on, (_, part) in zip(counts, able, shape.groups):
                fits &= c == 0 or (on[n] and c <= (part.per_node or c))
            if fits and behind(n + 1, tuple(a - b for a, b in zip(left, counts))):
                return True
        return False

    return behind(0, tuple(tasks for tasks, _ in shape.groups))


def parts_of_devices(shape, nodes) -> bool:
    """Whether a task asks for a part of a device."""
    if nodes.shared is None:
        return False
    k = nodes.devices.index(nodes.shared)
    return any(0 < part.demand[k] < 1000 for part in ([s for _, s in shape.groups] or [shape]))


def split(outcome: Outcome, conditions: Conditions, options: Options) -> np.ndarray:
    """Seconds of waiting [J, causes]."""
    jobs, nodes, pieces = outcome.jobs, outcome.nodes, outcome.pieces
    J, N, seen = len(jobs), len(nodes), [jobs.job(j) for j in range(len(jobs))]
    shapes, placed = jobs.shapes_on(nodes.devices), placed_shapes(jobs, nodes)
    caps = (*options.caps, *of_arrays(jobs))
    gone = [min(np.inf if np.isnan(e) else e, w) for e, w in zip(outcome.end, jobs.withdrawn)]
    for t, j in conditions.cancels:
        gone[j] = min(gone[j], t)
    for j in np.flatnonzero(outcome.phase == 6):  # set aside
        gone[j] = -np.inf
    ready = [
        max(
            [
                jobs.submit[j],
                *(gone[i] for i in jobs.after[jobs.after_from[j] : jobs.after_from[j + 1]]),
            ]
        )
        for j in range(J)
    ]
    held = [np.inf] * J  # since when a job has held devices at its first start
    for j, since in zip(pieces.job, pieces.held):
        held[j] = min(held[j], since)
    on_nodes = [(t, 0, n) for t, n in (*conditions.downs, *conditions.drains)]
    on_nodes = sorted(on_nodes + [(t, 1, n) for t, n in conditions.ups])
    demand = jobs.demand(nodes.devices)
    spans = [
        rule.times(float(jobs.submit.min()), float(jobs.submit.max()) + 9e6)
        for rule in options.closed
    ]
    about = [rule.about(jobs, nodes, demand) for rule in options.closed]
    reserved = options.tenancy.reservations
    times = {*ready, *held, *pieces.held, *pieces.end, *(t for t, _, _ in on_nodes)}
    times |= {t for rule in spans for span in rule for t in span}
    times |= {t for r in reserved for t in (r.begin, r.end)}
    times = sorted(t for t in times if np.isfinite(t))
    seconds = np.zeros((J, len(NAMES)))
    queued = np.flatnonzero(outcome.queued)
    for j in queued:
        seconds[j, 0] = min(ready[j], outcome.start[j]) - jobs.submit[j]
        seconds[j, 13] = outcome.start[j] - max(held[j], ready[j])
    total = nodes.capacity.sum(axis=0)
    kinds = np.array([name != ALONE for name in nodes.devices])
    amounts = np.rint(1000 * outcome.per_piece * pieces.tasks[:, None]).astype(np.int64)
    for now, then in itertools.pairwise(times):
        waiting = [j for j in queued if ready[j] <= now < held[j]]
        if not waiting:
            continue
        runs = np.flatnonzero((pieces.held <= now) & (pieces.end > now))
        free = nodes.capacity.copy()
        np.subtract.at(free, pieces.node[runs], amounts[runs])
        up = np.ones(N, dtype=bool)
        for t, what, n in on_nodes:
            if t <= now:
                up[n] = bool(what)
        shut = np.zeros(N, dtype=bool)
        for r in reserved:
            if r.begin <= now < r.end:
                shut |= np.array([name in r.on for name in nodes.names])
        tally = Tally(caps, nodes, [seen[j] for j in {int(j) for j in pieces.job[runs]}])
        cause = {}
        for j in waiting:
            shape, tasks = shapes[jobs.shape[j]], int(jobs.tasks[j])
            asks = np.array(shape.demand)
            k = min(np.flatnonzero((asks > 0) & kinds), key=lambda d: total[d])
            labelled = np.array(
                [all(l.get(a) == b for a, b in shape.constraint) for l in nodes.labels]
            )
            own = labelled & nodes.of_pool(shape.pool)

            def room(on, of=None, asks=asks, shape=shape, tasks=tasks, free=free):
                count = 0
                for n in np.flatnonzero(on):
                    most = shape.per_node or int(jobs.tasks.max())
                    for d in range(len(asks)) if of is None else [of]:
                        if asks[d]:
                            most = min(most, max(free[n, d], 0) // asks[d])
                    count += most
                return count >= tasks

            if any(a[j] and any(s <= now < e for s, e in rule) for a, rule in zip(about, spans)):
                cause[j] = "closed"
            elif tally.holds(seen[j]) is not None:
                cause[j] = "cap"
            elif shape.groups:
                enough = free[own & up, k].sum() >= tasks * asks[k]
                cause[j] = "pieces" if enough else "busy"
                if groups_fit(nodes, placed[jobs.shape[j]], free, up):
                    cause[j] = "free"
            elif room(own & up):
                exempt = "reservation" in terms_of(seen[j].terms)
                cause[j] = "free" if exempt or room(own & up & ~shut) else "reservation"
            elif room(own):
                cause[j] = "away"
            elif room(labelled & up):
                cause[j] = "partition"
            elif free[own & up, k].sum() >= tasks * asks[k]:
                alone = ALONE in nodes.devices and asks[nodes.devices.index(ALONE)] > 0
                cause[j] = "beside" if room(own & up, k) and not alone else "pieces"
            else:
                cause[j] = "busy"
            if cause[j] == "busy":
                newer = [p for p in runs if pieces.job[p] > j and (own & up)[pieces.node[p]]]
                enough = free[own & up, k].sum() + amounts[newer, k].sum() >= tasks * asks[k]
                cause[j] = "overtaken" if enough else "busy"
        stuck = ("away", "partition", "beside", "pieces", "busy", "overtaken")
        next_start = min([held[j] for j in waiting if cause[j] in stuck], default=np.inf)
        next_reserved = min([r.begin for r in reserved if r.begin > now], default=np.inf)
        for j in waiting:
            if cause[j] == "free" and parts_of_devices(shapes[jobs.shape[j]], nodes):
                cause[j] = "unsplit"
            if cause[j] == "free":
                ends = now + jobs.limit[j]
                cause[j] = "unseen" if ends <= next_start else "kept"
                exempt = "reservation" in terms_of(seen[j].terms)
                if cause[j] == "unseen" and ends > next_reserved and not exempt:
                    cause[j] = "reservation"
            seconds[j, NAMES.index(cause[j])] += then - now
    return seconds
