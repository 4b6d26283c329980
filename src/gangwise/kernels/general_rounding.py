r"""Randomised rounding of a fractional plan by random cycle cancelling.

The plan is a flow: source → job → (job, machine) → slot of the machine → machine → sink → source.
Amounts are integers in units of 2^-FRACTION, so that nothing drifts. An edge whose amount is not
whole is *open*. Where a node has one open edge it has two, since what comes in goes out, so walking
along open edges closes a cycle. Around it the amounts go up or down as far as no edge passes a
whole number, up with probability (room down) / (room up + room down): the expected amount of every
edge stays what it was, its floor and ceiling stay its bounds, and an edge at least becomes whole.
"""

from __future__ import annotations

from gangwise.kernels import Floats, Ints, kernel

__all__ = ["FRACTION", "build", "cancel"]

FRACTION = 40
UNIT = 1 << FRACTION


@kernel
def build(
    amount: Ints, order: Ints, tail: Ints, head: Ints, flow: Ints, total: Ints, held: Ints,
    pair: Ints, sizes: Ints,
) -> None:
    """Make the edges of the open part of a plan.

    ``amount`` [J, M] is the plan in units; ``order`` [J] lists the jobs by falling demand. On each
    machine their amounts are poured into slots of one unit, one after the other (Shmoys, Tardos).
    Nodes: source 0, sink 1, jobs from 2, machines from 2 + J, then pairs and slots as they come.
    Whole entries are left out: their machines' other slots do not need them. ``pair`` receives
    j M + i of each (job, machine) edge, -1 for others; ``sizes`` the number of edges and nodes.
    """
    J, M = amount.shape
    edges, nodes, whole = 0, 2 + J + M, 0
    for j in range(J):
        total[j] = 0
    for i in range(M):
        held[i] = 0
        room, slot, content = 0, -1, 0
        for n in range(J):
            j = order[n]
            x = amount[j, i]
            if x <= 0 or x >= UNIT:
                continue
            total[j] += x
            held[i] += x
            middle = nodes
            nodes += 1
            tail[edges], head[edges], flow[edges], pair[edges] = 2 + j, middle, x, j * M + i
            edges += 1
            while x > 0:
                if room == 0:
                    if slot >= 0:
                        tail[edges], head[edges] = slot, 2 + J + i
                        flow[edges], pair[edges] = content, -1
                        edges += 1
                    slot, room, content = nodes, UNIT, 0
                    nodes += 1
                part = min(x, room)
                tail[edges], head[edges], flow[edges], pair[edges] = middle, slot, part, -1
                edges += 1
                x -= part
                room -= part
                content += part
        if slot >= 0:
            tail[edges], head[edges], flow[edges], pair[edges] = slot, 2 + J + i, content, -1
            edges += 1
    for j in range(J):
        if total[j] > 0:
            tail[edges], head[edges], flow[edges], pair[edges] = 0, 2 + j, total[j], -1
            whole += total[j]
            edges += 1
    for i in range(M):
        if held[i] > 0:
            tail[edges], head[edges], flow[edges], pair[edges] = 2 + J + i, 1, held[i], -1
            edges += 1
    tail[edges], head[edges], flow[edges], pair[edges] = 1, 0, whole, -1
    sizes[0], sizes[1] = edges + 1, nodes


@kernel
def cancel(
    tail: Ints, head: Ints, flow: Ints, start: Ints, size: Ints, edge: Ints, came: Ints,
    path: Ints, uniforms: Floats, chances: Floats,
) -> int:
    """Cancel cycles until every amount is whole; returns how many there were.

    ``edge`` lists the edges at each node n from ``start[n]`` on, ``size[n]`` of them; both change.
    ``came`` [nodes] is -1 everywhere, and is left so. Cycle c goes up where ``uniforms[c]`` is
    below its chance, which is written to ``chances[c]``.
    """
    cycles = 0
    length = 0
    node = 0
    origin = 0
    while True:
        if length == 0:  # begin somewhere with an open edge
            while origin < size.size:
                while size[origin] > 0 and flow[edge[start[origin] + size[origin] - 1]] % UNIT == 0:
                    size[origin] -= 1
                if size[origin] > 0:
                    break
                origin += 1
            if origin == size.size:
                return cycles
            node = origin
            came[node] = 0
        before = path[length - 1] if length > 0 else -1
        following = -1
        k = start[node] + size[node] - 1
        while k >= start[node]:
            e = edge[k]
            if flow[e] % UNIT == 0:  # no longer open: the last edge of the node takes its place
                size[node] -= 1
                edge[k] = edge[start[node] + size[node]]
            elif e != before:
                following = e
                break
            k -= 1
        path[length] = following
        length += 1
        node = tail[following] + head[following] - node
        if came[node] < 0:
            came[node] = length
            continue
        first = came[node]  # the cycle is path[first:length], beginning and ending at this node
        up, down, at = UNIT, UNIT, node
        for n in range(first, length):
            e = path[n]
            above = flow[e] % UNIT
            if tail[e] == at:
                up, down = min(up, UNIT - above), min(down, above)
            else:
                up, down = min(up, above), min(down, UNIT - above)
            at = tail[e] + head[e] - at
        chances[cycles] = down / (up + down)
        step = up if uniforms[cycles] < chances[cycles] else -down
        cycles += 1
        at = node
        for n in range(first, length):
            e = path[n]
            if tail[e] == at:
                flow[e] += step
            else:
                flow[e] -= step
            at = tail[e] + head[e] - at
            if n < length - 1:
                came[at] = -1
        # What leads to the cycle is still open, and is walked on from.
        length = first
        if length == 0:
            came[node] = -1
