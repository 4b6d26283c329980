"""Compiled parts of distance: its hidden cost, what is believed of it, and gangs near one another.

The model is that of :mod:`gangwise.jobs.distance`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gangwise.core.arrays import Floats, Ints
from gangwise.core.jit import by_reference, inlined_kernel, inner_kernel, lean_kernel
from gangwise.jobs import kernels
from gangwise.jobs.kernels import Rows, State, int64

USUAL = 8.0
"""Tasks of a gang whose slowdown ``mean`` is."""


@by_reference
class Apart(NamedTuple):
    """The cost of distance that is hidden from schedulers, of C kinds of jobs."""

    domain: Ints  # [H, N]
    of_job: Ints  # [J] its kind
    factor: Floats  # [C, H + 1]


@inlined_kernel
def level_with(domain: Ints, level: int, n: int, m: int) -> int:
    """The nearest level, from ``level`` on, at which two nodes are together."""
    if n == m:
        return level
    level = max(level, 1)
    # Ends at the last level at the latest: the whole cluster is one domain there.
    while domain[level - 1, n] != domain[level - 1, m]:
        level += 1
    return level


@inlined_kernel
def level_of(domain: Ints, pieces: Rows, low: int, high: int) -> int:
    """The level of a gang on pieces[low:high]."""
    level = 0
    for i in range(low + 1, high):
        # Domains are nested, so comparing with the first piece gives the widest level.
        level = level_with(domain, level, pieces[low].node, pieces[i].node)
    return level


@by_reference
class NearBeliefs(NamedTuple):
    """Beliefs about distance, for L job types."""

    domain: Ints  # [H, N]
    mean: Floats  # [H, L + 1] d of each type, and c
    cov: Floats  # [H, L + 1, L + 1]
    gain: Floats  # [L + 1]
    cost: Floats  # [H + 1] log slowdown of the gang that is looked at
    order: Ints  # [N], as the next: work space
    held: Ints  # [D] tasks that fit in a domain


@inlined_kernel
def level_between(domain: Ints, nodes: Ints, count: int) -> int:
    """The level of a gang on the first ``count`` of nodes."""
    level = 0
    for i in range(1, count):
        level = level_with(domain, level, nodes[0], nodes[i])
    return level


@lean_kernel
def believe_costs(near: NearBeliefs, l: int, tasks: int) -> None:
    """Put the log slowdown of a gang of type l at each level in ``cost``: farther is no faster."""
    H, L = near.mean.shape[0], near.mean.shape[1] - 1
    # One task is on one node, where nothing is added.
    more = math.log(tasks / USUAL) if tasks > 1 else 0.0
    near.cost[0] = 0.0
    for h in range(H):
        # A wider level costs at least as much as a narrower one, whatever was learned of it.
        near.cost[h + 1] = max(near.cost[h], near.mean[h, l] + more * near.mean[h, L])


@inner_kernel
def learn_distance(
    near: NearBeliefs, l: int, level: int, tasks: int, slower: float, variance: float
) -> None:
    """Learn that a gang was slower by a logarithm than its nodes are, seen with a variance."""
    h, L = level - 1, near.mean.shape[1] - 1
    more = math.log(tasks / USUAL)
    # H = unit vector of d[l] plus ln(m / 8) times that of c: gain is Σ Hᵀ.
    for m in range(L + 1):
        near.gain[m] = near.cov[h, m, l] + more * near.cov[h, m, L]
    # Innovation variance H Σ Hᵀ + R; then one step of recursive least squares.
    total = near.gain[l] + more * near.gain[L] + variance
    step = (slower - near.mean[h, l] - more * near.mean[h, L]) / total
    for m in range(L + 1):
        near.mean[h, m] += near.gain[m] * step
        for o in range(L + 1):
            near.cov[h, m, o] -= near.gain[m] * near.gain[o] / total


@inlined_kernel
def better_nodes(near: NearBeliefs, state: State, h: int, M: int, top: float) -> int:
    """Note the nodes worth more than ``top`` at level h in `heap`, in no order; how many."""
    size = int64(0)
    for i in range(M):
        # Without a branch, which processors would often guess wrongly.
        state.heap[size].item = i
        size += int64(state.worth[state.cands[i].node] - near.cost[h] > top)
    return int(size)


@inlined_kernel
def any_holds(near: NearBeliefs, state: State, h: int, tasks: int, size: int) -> bool:
    """Any domain of level h holds so many tasks on the nodes noted; what each has is in `held`."""
    most = int64(0)
    near.held[:] = 0
    for r in range(size):
        i = state.heap[r].item
        d = near.domain[h - 1, state.cands[i].node]
        near.held[d] += state.cands[i].fit
        most = max(most, near.held[d])
    return bool(most >= tasks)


@inner_kernel
def best_domain(near: NearBeliefs, state: State, h: int, tasks: int, size: int) -> tuple[int, int]:
    """The best domain of level h, of those that :func:`any_holds` has found to hold the gang.

    Its nodes are then in `order` by falling worth, beside some of other domains: so many.
    """
    waiting, count = int64(0), int64(0)
    for r in range(size):
        i = state.heap[r].item  # the heap is made where it stands, and is never longer than r
        n = state.cands[i].node
        if near.held[near.domain[h - 1, n]] >= tasks:
            waiting = kernels.push(state.heap, waiting, -state.worth[n], i)
    near.held[:] = 0
    while True:
        i = state.heap[0].item
        waiting = kernels.pop(state.heap, waiting)
        near.order[count] = i
        count += 1
        d = near.domain[h - 1, state.cands[i].node]
        near.held[d] += state.cands[i].fit
        if near.held[d] >= tasks:
            return int(d), int(count)


@inner_kernel
def place_near(near: NearBeliefs, state: State, tasks: int, M: int) -> int:
    """The level and domain where a gang runs fastest, on its best nodes there. Gives pieces.

    Of the M nodes gathered, by falling worth, those of a domain are counted until they hold the
    gang: the first domain that does is the best of its level, since a gang is as good as its worst
    node. Levels are compared by worth less log slowdown, ties to the nearer.
    """
    worth, fastest, top, level, home = state.worth, -kernels.NEVER, -kernels.NEVER, 0, int64(-1)
    for i in range(M):
        # The best node bounds every level from above; the best that holds all tasks is level 0,
        # which exists only where one node holds the gang.
        value = worth[state.cands[i].node]
        fastest = max(fastest, value)
        alone = value if state.cands[i].fit >= tasks else -kernels.NEVER
        if alone > top:
            top, home = alone, int64(state.cands[i].node)
    top, ready = top - near.cost[0], int64(0)
    for h in range(1, near.domain.shape[0] + 1):
        # Even the best node, at this level's cost, is no better than what was found: not looked at.
        if fastest - near.cost[h] <= top:
            continue
        size = better_nodes(near, state, h, M, top)
        if any_holds(near, state, h, tasks, size):
            level = h
            home, ready = best_domain(near, state, h, tasks, size)
            top = worth[state.cands[near.order[ready - 1]].node] - near.cost[h]
    if level == 0:
        # One node: all tasks are one piece.
        kernels.put_piece(state.tried, int64(0), home, tasks, int64(0))
        return 1
    count = int64(0)
    for r in range(ready):
        i = near.order[r]
        n = state.cands[i].node
        if near.domain[level - 1, n] == home:
            kernels.put_piece(state.tried, count, n, min(state.cands[i].fit, tasks), int64(0))
            tasks -= min(state.cands[i].fit, tasks)
            count += 1
    return int(count)


# ------------------------------------------------------------------------------------- Kueue's rule


@by_reference
class Topology(NamedTuple):
    """Topology-aware scheduling as Kueue has it, see :class:`gangwise.jobs.distance.TopologyAware`.

    Of T levels of domains, from nodes to the widest label.
    """

    domain: Ints  # [T, N]
    level: int  # that is asked for
    climbs: bool  # to wider levels, where no domain holds the gang
    least_first: bool  # nodes with fewest before others
    fits: Ints  # [N] tasks that fit on a node, of nodes that are looked at
    room: Ints  # [N] tasks that fit in a domain
    taken: Ints  # [N] tasks of the gang in a domain


@inlined_kernel
def count_by_domain(topology: Topology, level: int) -> int:
    """Put what fits in each domain of a level in ``room``; gives the most."""
    most, domain = int64(0), topology.domain[level]
    topology.room[:] = 0
    for n in range(domain.size):
        topology.room[domain[n]] += topology.fits[n]
        most = max(most, topology.room[domain[n]])
    return int(most)


@inner_kernel
def fill_domains(topology: Topology, tasks: int) -> None:
    """Put tasks into domains: those with most first, the last that with fewest that holds them."""
    room, taken = topology.room, topology.taken
    taken[:] = 0
    while tasks > 0:
        best = -1
        for d in range(room.size):
            if room[d] == 0 or taken[d] > 0:
                continue
            if best >= 0:
                fewer = topology.least_first or min(room[d], room[best]) >= tasks
                if room[d] >= room[best] if fewer else room[d] <= room[best]:
                    continue
            best = d
        taken[best] = min(room[best], tasks)
        tasks -= taken[best]


@lean_kernel
def choose_domains(topology: Topology, tasks: int) -> bool:
    """Put tasks on nodes in ``taken``; ``fits`` hold them in all. False where they wait."""
    level, last = topology.level, topology.domain.shape[0] - 1
    largest = count_by_domain(topology, level)
    while largest < tasks and level < last and topology.climbs:
        level += 1
        largest = count_by_domain(topology, level)
    if largest < tasks and not (topology.climbs or topology.least_first):
        return False
    fill_domains(topology, tasks)
    while level > 0:
        # Below, only nodes inside the domains chosen count.
        for n in range(topology.fits.size):
            if topology.taken[topology.domain[level, n]] == 0:
                topology.fits[n] = 0
        level -= 1
        count_by_domain(topology, level)
        fill_domains(topology, tasks)
    return True
