"""Kueue's topology-aware scheduling of one pod set, plainly: sorted lists of domains."""

from __future__ import annotations

import numpy as np


def placed(levels, at, mode, fits, tasks):
    """Tasks on nodes, in the order of nodes; None where it waits.

    ``levels`` [T, N] are domains from nodes up, ``at`` the level asked for, ``fits`` [N].
    """
    if fits.sum() < tasks:
        return None
    at = 0 if mode == "unconstrained" else at
    while True:
        counts = np.bincount(levels[at], fits).astype(int)
        if mode == "unconstrained" or counts.max() >= tasks:
            break
        if mode == "required":
            return None
        # At the top, `preferred` spreads over several domains.
        if at == len(levels) - 1:
            break
        at += 1
    chosen = taken(counts, mode, tasks)
    for lower in range(at - 1, -1, -1):
        inside = np.isin(levels[at], [domain for domain, _ in chosen])
        # Only nodes inside the domains chosen count, and domains without room are none.
        at, counts = lower, np.bincount(levels[lower], fits * inside).astype(int)
        chosen = taken(counts, mode, tasks)
    return sorted(chosen)


def taken(counts, mode, tasks):
    """So many tasks on domains: those with most first, the last as full as may be."""
    least_first = mode == "unconstrained"
    room = [(int(count), domain) for domain, count in enumerate(counts) if count]
    waiting = sorted(room, key=lambda of: of[0] if least_first else -of[0])
    chosen = []
    while tasks > 0:
        best = waiting[0]
        if not least_first and best[0] >= tasks:
            # The last domain is filled best: the fewest that still hold what is left.
            best = min(domain for domain in waiting if domain[0] >= tasks)
        waiting.remove(best)
        chosen.append((best[1], min(best[0], tasks)))
        tasks -= chosen[-1][1]
    return chosen
