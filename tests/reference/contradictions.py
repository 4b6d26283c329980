"""Slow and plain: which instants of a schedule no work-conserving scheduler allows, and a site."""

from __future__ import annotations

import numpy as np


def refused(submit, start, end, size, total, caps=()):
    """Times [T], and whether from then on every job that may start fits and one waits.

    ``caps``: (group of each job or −1, weight of each job, most).
    """
    times = np.unique([*submit, *start, *end[end > start]])
    found = []
    for t in times:
        runs, waits = (start <= t) & (t < end), (submit <= t) & (t < start)
        may = [j for j in np.flatnonzero(waits) if _may(j, runs, caps)]
        free = total - size[runs].sum()
        found.append(bool(may) and all(size[j] <= free for j in may))
    return times, np.array(found)


def _may(j, runs, caps):
    return all(
        group[j] < 0 or weight[runs & (group == group[j])].sum() + weight[j] <= most + 1e-9
        for group, weight, most in caps
    )


def play(submit, run, size, total, may):
    """First come, first served, each job as soon as it fits and ``may(j, running)``: starts [J].

    Jobs that may not start are passed over; one that does not fit holds up those behind it.
    """
    start, running, waiting = np.full(len(submit), np.nan), {}, []
    events, i, now = sorted(range(len(submit)), key=lambda j: (submit[j], j)), 0, 0.0
    while i < len(events) or waiting:
        while i < len(events) and submit[events[i]] <= now:
            waiting.append(events[i])
            i += 1
        running = {j: e for j, e in running.items() if e > now}
        for j in list(waiting):
            if not may(j, running, now):
                continue
            if size[j] > total - sum(size[k] for k in running):
                break
            start[j], running[j] = now, now + run[j]
            waiting.remove(j)
        later = [e for e in running.values() if e > now]
        later += [submit[events[i]]] if i < len(events) else []
        later += [(now // 3600 + 1) * 3600.0] if waiting else []
        if not later:
            break
        now = min(later)
    return start
