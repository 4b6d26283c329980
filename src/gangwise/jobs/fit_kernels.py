"""Compiled parts of the simulation: free devices, and gangs onto nodes."""

from __future__ import annotations

from gangwise.core.arrays import Bools, Ints
from gangwise.core.jit import inlined_kernel, inner_kernel, lean_kernel
from gangwise.jobs import kernels
from gangwise.jobs.kernels import ClusterArrays, FreeDevices, Inputs, Rows, State, Ways, int64

# --------------------------------------------------------------------------------- free devices


@inlined_kernel
def fits(cluster: ClusterArrays, room: FreeDevices, s: int, n: int) -> int:
    """How many tasks of shape s node n takes with what is free there."""
    return fits_of(cluster, room, s, n, int64(cluster.shapes[s].per_node))


@inlined_kernel
def fits_of(cluster: ClusterArrays, room: FreeDevices, s: int, n: int, most: int) -> int:
    """The same, of so many: a node that takes them all is not divided by what one asks for."""
    # Nothing is asked for more than all tasks: f only falls from there.
    f = most
    for k in range(room.free.shape[1]):
        d = cluster.demand[s, k]
        if d > 0:
            c = room.free[n, k]
            if c < d:
                return 0
            # The quotient of whole numbers: half a thousandth is more than rounding takes away.
            f = min(f, int64((c + 0.5) * cluster.per_task[s, k]))
    if cluster.devices is not None:
        d = cluster.shapes[s].fraction
        if d > 0:
            c = 0
            # Fractions of one task are on one device; several tasks may share it.
            for i in range(cluster.devices[n]):
                if room.device[n, i] >= d:  # less than nothing where a plan promised it twice
                    c += room.device[n, i] // d
            f = min(f, c)
        elif cluster.shapes[s].whole > 0:
            c = 0
            for i in range(cluster.devices[n]):
                if room.device[n, i] == 1000:
                    c += 1
            f = min(f, c // cluster.shapes[s].whole)
    return int(f)


@inlined_kernel
def take(
    cluster: ClusterArrays, room: FreeDevices, s: int, n: int, tasks: int, mask: int, sign: int
) -> None:
    """Take the devices of tasks of shape s on node n, or give them back."""
    for k in range(room.free.shape[1]):
        room.free[n, k] += sign * tasks * cluster.demand[s, k]
    if cluster.devices is not None and mask != 0:
        fraction = cluster.shapes[s].fraction
        amount = fraction * tasks if fraction > 0 else 1000
        bits = mask
        # Each set bit is a device; the lowest is taken off by bits & (bits − 1).
        while bits != 0:
            room.device[n, kernels.trailing_zeros(bits)] += sign * amount
            bits &= bits - 1


@inlined_kernel
def piece_shape(cluster: ClusterArrays, s: int, pieces: Rows, first: int, i: int) -> int:
    """Shape of the tasks of piece i of a job of shape s, whose pieces begin at ``first``."""
    if cluster.groups is None or cluster.shapes[s].groups == 0:
        return s
    return group_shape(cluster, s, pieces, first, i)


@inner_kernel
def group_shape(cluster: ClusterArrays, s: int, pieces: Rows, first: int, i: int) -> int:
    """The same of a job of groups: all pieces of a group come before those of the next."""
    m = cluster.shapes[s].groups_from
    remaining = cluster.groups[m].tasks
    for piece in range(first, i):
        remaining -= pieces[piece].tasks
        if remaining == 0:
            m += 1
            remaining = cluster.groups[m].tasks
    return int(cluster.groups[m].shape)


@inner_kernel
def take_piece(
    cluster: ClusterArrays, room: FreeDevices, s: int, pieces: Rows, first: int, i: int, sign: int
) -> None:
    """Take the devices of piece i of a job of shape s, or give them back.

    Its pieces begin at ``first``.
    """
    n, tasks = int64(pieces[i].node), int64(pieces[i].tasks)
    part = piece_shape(cluster, s, pieces, first, i)
    take(cluster, room, part, n, tasks, pieces[i].mask, sign)


@inner_kernel
def occupy(inputs: Inputs, state: State, j: int, count: int) -> None:
    """Take the ``count`` pieces tried; they become the pieces of job j."""
    job = inputs.jobs[j]
    s = int64(job.shape)
    p = job.piece_from
    free = state.room.free
    for i in range(count):
        n = int64(state.tried[i].node)
        b = n // kernels.BLOCK
        lowers_top = False
        part = piece_shape(inputs.cluster, s, state.tried, 0, i)
        for k in range(free.shape[1]):
            d = state.tried[i].tasks * inputs.cluster.demand[part, k]
            if d > 0:
                # The block's maximum can only fall if this node had it.
                lowers_top = lowers_top or free[n, k] == state.room.top[b, k]
                state.total[k] -= d
        take_piece(inputs.cluster, state.room, s, state.tried, 0, i, kernels.TAKE)
        if lowers_top:
            block_top(state.room, b)
        kernels.put_piece(state.out, p + i, n, int64(state.tried[i].tasks), state.tried[i].mask)
    state.jobs[j].pieces = count
    state.at.pieces += count
    state.at.change += 1


@inner_kernel
def vacate(inputs: Inputs, state: State, j: int) -> None:
    job, run = inputs.jobs[j], state.jobs[j]
    s = int64(job.shape)
    p = job.piece_from
    for i in range(p, p + run.pieces):
        n = int64(state.out[i].node)
        take_piece(inputs.cluster, state.room, s, state.out, p, i, kernels.GIVE_BACK)
        b = n // kernels.BLOCK
        part = piece_shape(inputs.cluster, s, state.out, p, i)
        for k in range(state.total.size):
            state.total[k] += state.out[i].tasks * inputs.cluster.demand[part, k]
            # Giving back can only raise the maximum, so the block need not be searched.
            state.room.top[b, k] = max(state.room.top[b, k], state.room.free[n, k])
    state.at.pieces -= run.pieces
    state.at.epoch += 1
    state.at.change += 1


@inner_kernel
def block_top(room: FreeDevices, b: int) -> None:
    """Largest free amounts of a block of nodes, anew."""
    for k in range(room.free.shape[1]):
        most = int64(0)
        for n in range(b * kernels.BLOCK, min((b + 1) * kernels.BLOCK, room.free.shape[0])):
            most = max(most, room.free[n, k])
        room.top[b, k] = most


@inlined_kernel
def copy_node(room: FreeDevices, to: FreeDevices, n: int) -> None:
    """Copy what is free on node n, to try things on."""
    for k in range(room.free.shape[1]):
        to.free[n, k] = room.free[n, k]
    for i in range(room.device.shape[1]):
        to.device[n, i] = room.device[n, i]


@inner_kernel
def copy_room(room: FreeDevices, to: FreeDevices) -> None:
    """Copy what is free on all nodes."""
    for n in range(room.free.shape[0]):
        for k in range(room.free.shape[1]):
            to.free[n, k] = room.free[n, k]
    for n in range(room.device.shape[0]):
        for i in range(room.device.shape[1]):
            to.device[n, i] = room.device[n, i]


@inlined_kernel
def unused_devices(room: FreeDevices, n: int, count: int) -> int:
    """The first ``count`` unused devices of node n, which has that many, as a mask."""
    mask = int64(0)
    i = 0
    while count > 0:
        if room.device[n, i] == 1000:
            mask |= int64(1) << i
            count -= 1
        i += 1
    return int(mask)


@inner_kernel
def groups_fit(
    cluster: ClusterArrays, ways: Ways, room: FreeDevices, trial: FreeDevices, s: int
) -> bool:
    """Whether all groups of a shape fit in a room: each on the first nodes, or in any way."""
    copy_room(room, trial)
    low = cluster.shapes[s].groups_from
    for m in range(low, low + cluster.shapes[s].groups):
        part, remaining = int64(cluster.groups[m].shape), int64(cluster.groups[m].tasks)
        allowed, fraction = cluster.shapes[part].constraint, cluster.shapes[part].fraction
        # First-fit, group after group: it mostly answers, and the search need not be asked.
        for n in range(room.free.shape[0]):
            if remaining == 0:
                break
            if not cluster.allowed[allowed, n]:
                continue
            f = fits_of(cluster, trial, part, n, min(cluster.shapes[part].per_node, remaining))
            remaining -= f
            if fraction == 0:
                mask = int64(0)
                if f > 0 and cluster.shapes[part].whole > 0:
                    mask = int64(unused_devices(trial, n, f * cluster.shapes[part].whole))
                take(cluster, trial, part, n, f, mask, kernels.TAKE)
                continue
            for _ in range(f):
                best = fullest(cluster, trial, n, fraction)
                take(cluster, trial, part, n, int64(1), int64(1) << best, kernels.TAKE)
        if remaining > 0:
            return search(cluster, ways, room, s)
    return True


@inner_kernel
def search(cluster: ClusterArrays, ways: Ways, room: FreeDevices, s: int) -> bool:
    """A way to place the groups of a shape, of all ways, in `ways.chosen`; False for none.

    A state is how many tasks of all groups but the largest, the main one, are still to be placed.
    From the last node to the first, what a state leaves to the main group is

        behind[n, k] = max over states a ≤ k of main_tasks_beside(n, a) + behind[n + 1, k − a].

    On each node in turn the fewest tasks of the other groups that leave a way are chosen, those of
    the first group counting most, and then as many of the main group as it takes. That is exact,
    but for what :func:`main_group` passes over.
    """
    main, S = main_group(cluster, room, s)
    if main < 0:
        return False
    N, wanted = room.free.shape[0], int64(cluster.groups[main].tasks)
    behind = ways.behind
    for k in range(S):
        # Behind the last node no tasks of other groups may be left: 0 in that state, else
        # impossible.
        behind[N, k] = 0 if k == 0 else -1
    for n in range(N - 1, -1, -1):
        for k in range(S):
            behind[n, k] = -1
        # a: the tasks of other groups on this node; k: those that are still to be placed from it
        # on.
        for a in range(S):
            most = main_tasks_beside(cluster, room, s, main, n, a)
            for k in range(a, S if most >= 0 else a):
                if behind[n + 1, k - a] >= 0 and is_part(cluster, s, main, a, k):
                    behind[n, k] = max(behind[n, k], most + behind[n + 1, k - a])
    state = S - 1
    # Even the best way leaves too few for the main group.
    if behind[0, state] < wanted:
        return False
    for n in range(N):
        for a in range(state + 1):
            if behind[n + 1, state - a] < 0 or not is_part(cluster, s, main, a, state):
                continue
            most = main_tasks_beside(cluster, room, s, main, n, a)
            if most >= 0 and most + behind[n + 1, state - a] >= wanted:
                ways.chosen[n, 0], ways.chosen[n, 1] = a, min(most, wanted)
                state -= a
                wanted -= ways.chosen[n, 1]
                break
    return True


@inner_kernel
def main_group(cluster: ClusterArrays, room: FreeDevices, s: int) -> tuple[int, int]:
    """Of the groups of a shape the largest, and the number of states; −1 where none is searched.

    That is: where a group by itself finds no room; where nodes × states² are more than
    :data:`kernels.SEARCHED`; where groups take unlike parts of a device.
    """
    low, N = cluster.shapes[s].groups_from, room.free.shape[0]
    main, states, fraction = low, int64(1), int64(0)
    for m in range(low, low + cluster.shapes[s].groups):
        if cluster.groups[m].tasks > cluster.groups[main].tasks:
            main = m
    for m in range(low, low + cluster.shapes[s].groups):
        part, remaining = int64(cluster.groups[m].shape), int64(cluster.groups[m].tasks)
        states *= 1 if m == main else remaining + 1
        # More than this is not searched; whoever asks takes what first-fit found.
        if states * states * N > kernels.SEARCHED:
            return -1, 0
        own = cluster.shapes[part].fraction
        if own > 0 and fraction > 0 and own != fraction:
            return -1, 0
        fraction = max(fraction, own)
        for n in range(N):
            if remaining > 0 and cluster.allowed[cluster.shapes[part].constraint, n]:
                remaining -= fits(cluster, room, part, n)
        if remaining > 0:
            return -1, 0
    return int(main), int(states)


@inlined_kernel
def tasks_of_state(cluster: ClusterArrays, s: int, main: int, k: int, group: int) -> int:
    """Tasks of a group in state k; those of the first group count most."""
    # States are numbers of mixed base: one digit for each group but the main one.
    for m in range(cluster.shapes[s].groups_from + cluster.shapes[s].groups - 1, group, -1):
        if m != main:
            k //= cluster.groups[m].tasks + 1
    return 0 if group == main else int(k % (cluster.groups[group].tasks + 1))


@inner_kernel
def is_part(cluster: ClusterArrays, s: int, main: int, a: int, k: int) -> bool:
    """Whether state a has no more tasks of any group than state k."""
    low = cluster.shapes[s].groups_from
    for m in range(low, low + cluster.shapes[s].groups):
        if tasks_of_state(cluster, s, main, a, m) > tasks_of_state(cluster, s, main, k, m):
            return False
    return True


@inner_kernel
def main_tasks_beside(
    cluster: ClusterArrays, room: FreeDevices, s: int, main: int, n: int, a: int
) -> int:
    """How many tasks of the main group node n takes beside those of state a; −1: not even these."""
    low, part = cluster.shapes[s].groups_from, int64(cluster.groups[main].shape)
    most = min(int64(cluster.groups[main].tasks), int64(cluster.shapes[part].per_node))
    if not cluster.allowed[cluster.shapes[part].constraint, n]:
        most = int64(0)
    # First what the other groups take on this node, then how often the main one's task goes into
    # the rest.
    for k in range(room.free.shape[1]):
        asked = int64(0)
        for m in range(low, low + cluster.shapes[s].groups):
            shape = int64(cluster.groups[m].shape)
            count = tasks_of_state(cluster, s, main, a, m)
            able = cluster.allowed[cluster.shapes[shape].constraint, n]
            if count > 0 and (not able or count > cluster.shapes[shape].per_node):
                return -1
            asked += count * cluster.demand[shape, k]
        if asked > 0 and asked > room.free[n, k]:
            return -1
        if cluster.demand[part, k] > 0:
            most = min(most, max(room.free[n, k] - asked, 0) // cluster.demand[part, k])
    if cluster.devices is not None:
        most = min(most, devices_beside(cluster, room, s, main, n, a))
    return int(most)


@inner_kernel
def devices_beside(
    cluster: ClusterArrays, room: FreeDevices, s: int, main: int, n: int, a: int
) -> int:
    """The same by shared devices: parts fill devices in use first, so that most stay unused."""
    low, part = cluster.shapes[s].groups_from, int64(cluster.groups[main].shape)
    fraction, parts, wholes = int64(cluster.shapes[part].fraction), int64(0), int64(0)
    for m in range(low, low + cluster.shapes[s].groups):
        shape = cluster.shapes[cluster.groups[m].shape]
        count = tasks_of_state(cluster, s, main, a, m)
        wholes += count * shape.whole
        if shape.fraction > 0:
            fraction = int64(shape.fraction)
            parts += count
    unused, loose = int64(0), int64(0)
    for i in range(cluster.devices[n]):
        if room.device[n, i] == 1000:
            unused += 1
        elif fraction > 0 and room.device[n, i] >= fraction:
            loose += room.device[n, i] // fraction
    per = 1000 // fraction if fraction > 0 else int64(1)
    # Devices that have to be opened for parts, rounded up.
    opened = -(-max(parts - loose, 0) // per)
    if wholes + opened > unused and wholes + parts > 0:
        return -1
    if cluster.shapes[part].fraction > 0:
        return int(loose + (unused - wholes) * per - parts)
    if cluster.shapes[part].whole > 0:
        return int((unused - wholes - opened) // cluster.shapes[part].whole)
    return int(cluster.groups[main].tasks)


@inlined_kernel
def fullest(cluster: ClusterArrays, room: FreeDevices, n: int, fraction: int) -> int:
    """The shared device of node n with least free that takes a fraction; −1 for none."""
    best = -1
    for k in range(cluster.devices[n]):
        if room.device[n, k] >= fraction and (best < 0 or room.device[n, k] < room.device[n, best]):
            best = k
    return best


@inner_kernel
def tasks_in(inputs: Inputs, state: State, room: FreeDevices, j: int) -> int:
    """How many tasks of the shape of job j fit in a room; of a job of groups, one if all do."""
    s = int64(inputs.jobs[j].shape)
    if inputs.cluster.groups is not None and inputs.cluster.shapes[s].groups > 0:
        return int(groups_fit(inputs.cluster, state.ways, room, state.trial, s))
    allowed = inputs.cluster.allowed[inputs.cluster.shapes[s].constraint]
    total = 0
    for n in range(room.free.shape[0]):
        if allowed[n]:
            total += fits(inputs.cluster, room, s, n)
    return total


@inlined_kernel
def gang_size(inputs: Inputs, j: int) -> int:
    """Tasks of job j, of all its groups."""
    s, size = int64(inputs.jobs[j].shape), int64(inputs.jobs[j].tasks)
    if inputs.cluster.groups is not None and inputs.cluster.shapes[s].groups > 0:
        size, low = int64(0), inputs.cluster.shapes[s].groups_from
        for m in range(low, low + inputs.cluster.shapes[s].groups):
            size += inputs.cluster.groups[m].tasks
    return int(size)


# ------------------------------------------------------------------------------ gangs onto nodes


@inlined_kernel
def block_misses(cluster: ClusterArrays, room: FreeDevices, s: int, b: int) -> bool:
    """Whether no node of a block takes a task."""
    for k in range(room.top.shape[1]):  # noqa: SIM110 - generators do not compile
        if room.top[b, k] < cluster.demand[s, k]:
            return True
    return False


@inner_kernel
def gather(
    cluster: ClusterArrays, state: State, room: FreeDevices, s: int, tasks: int, choice: int
) -> int:
    """Nodes that take a task, in `state.cands`; their number, 0 if all of them have no room.

    First-fit needs no more of them than have room together.
    """
    N = room.free.shape[0]
    most = min(cluster.shapes[s].per_node, tasks)
    allowed = cluster.shapes[s].constraint
    count = 0
    total = 0
    for b in range(room.top.shape[0]):
        # A block is left out by its maxima, without a look at its nodes.
        if block_misses(cluster, room, s, b):
            continue
        for n in range(b * kernels.BLOCK, min((b + 1) * kernels.BLOCK, N)):
            if not cluster.allowed[allowed, n]:
                continue
            f = fits_of(cluster, room, s, n, most)
            if f > 0:
                state.cands[count].node = n
                state.cands[count].fit = f
                count += 1
                total += f
                if choice == kernels.FIRST_FIT and total >= tasks:
                    return count
    return count if total >= tasks else 0


@inlined_kernel
def place_first(state: State, tasks: int, count: int) -> int:
    """First-fit on the nodes gathered: each is filled before the next. Gives pieces."""
    for i in range(count):
        step = min(state.cands[i].fit, tasks)
        kernels.put_piece(state.tried, i, state.cands[i].node, step, int64(0))
        tasks -= step
    return count


@inlined_kernel
def left_over(
    cluster: ClusterArrays, room: FreeDevices, s: int, n: int, tasks: int, sign: int
) -> float:
    """Score of node n in best-fit (sign −1) and worst-fit (+1) after so many tasks of shape s.

    sign × Σ over device types of free ÷ the largest node's, less K for each type of which the task
    asks nothing and the node has some, and K again where some of that is free: nodes with GPUs are
    kept from tasks without. Terms are added in the order of device types, for ties.
    """
    K = room.free.shape[1]
    score = 0.0
    for k in range(K):
        d = cluster.demand[s, k]
        f = room.free[n, k] - tasks * d
        score += sign * (f / cluster.largest[k])
        if d == 0:
            # More than any sum of the other terms, so that such a node comes behind all others.
            score -= K * (int64(cluster.capacity[n, k] > 0) + int64(f > 0))
    return score


@inlined_kernel
def rank_nodes(
    cluster: ClusterArrays, state: State, room: FreeDevices, s: int, M: int, choice: int
) -> int:
    """Give the M nodes gathered their scores; the place of the first with the best."""
    if choice == kernels.BY_RATE:
        for i in range(M):
            state.cands[i].score = state.worth[state.cands[i].node]
    else:
        for i in range(M):
            state.cands[i].score = left_over(cluster, room, s, state.cands[i].node, 0, 1)
    best = 0
    most = state.cands[0].score
    for i in range(1, M):
        if state.cands[i].score > most:
            most = state.cands[i].score
            best = i
    return best


@inlined_kernel
def add_task(state: State, i: int, n: int, tasks: int, count: int) -> int:
    """Put tasks on node n, candidate i, beside those it has. Gives the number of pieces."""
    slot = state.cands[i].slot
    if slot < 0:
        slot = count
        state.cands[i].slot = slot
        kernels.put_piece(state.tried, slot, n, int64(0), int64(0))
        count += 1
    state.tried[slot].tasks += tasks
    return count


@inner_kernel
def place_best(
    cluster: ClusterArrays, state: State, room: FreeDevices, s: int, tasks: int, M: int, choice: int
) -> int:
    """Best of the M nodes gathered first: emptiest, or of largest worth. Gives pieces.

    Tasks are placed one after another, each by the rule on what is then free. A node of largest
    worth stays so while it fills; the emptiest does not.
    """
    best = rank_nodes(cluster, state, room, s, M, choice)
    # One piece for all tasks: the usual case, without a heap.
    if state.cands[best].fit >= tasks and (tasks == 1 or choice != kernels.WORST_FIT):
        kernels.put_piece(state.tried, int64(0), state.cands[best].node, tasks, int64(0))
        return 1
    size = int64(0)
    for i in range(M):
        size = kernels.push(state.heap, size, -state.cands[i].score, i)
        state.cands[i].slot = -1
    count = int64(0)
    # A heap of the best node next; worst-fit puts a node back after each task, with its new score.
    while tasks > 0:
        i = state.heap[0].item
        n = state.cands[i].node
        size = kernels.pop(state.heap, size)
        step = 1 if choice == kernels.WORST_FIT else min(state.cands[i].fit, tasks)
        count = add_task(state, i, n, int64(step), count)
        tasks -= step
        state.cands[i].fit -= step
        if choice == kernels.WORST_FIT and state.cands[i].fit > 0:
            on_node = state.tried[state.cands[i].slot].tasks
            size = kernels.push(state.heap, size, -left_over(cluster, room, s, n, on_node, 1), i)
    return int(count)


@inner_kernel
def place_tightest(
    cluster: ClusterArrays, state: State, room: FreeDevices, s: int, tasks: int
) -> int:
    """Best-fit: the tightest nodes, ties by number, that take all tasks. Gives pieces, 0 for none.

    A node that is tightest stays so while it fills, so each is filled before the next. One pass
    keeps no more of the nodes seen than are needed, in a heap, the loosest first.
    """
    N = room.free.shape[0]
    d, allowed = cluster.demand[s, 0], cluster.shapes[s].constraint
    most = min(cluster.shapes[s].per_node, tasks)
    # Of one device type that is asked for, −free orders nodes as −free ÷ largest does, ties
    # included: quotients of different amounts differ while these are below 2⁵¹.
    single_type = room.free.shape[1] == 1 and d > 0
    loosest = int64(1) << 62  # what is free on it, once those kept take all tasks
    size, total = int64(0), int64(0)
    for b in range(room.top.shape[0]):
        if block_misses(cluster, room, s, b) or loosest <= d:
            continue
        for n in range(b * kernels.BLOCK, min((b + 1) * kernels.BLOCK, N)):
            # As tight as the loosest that is kept: the earlier node has the tie.
            if (single_type and room.free[n, 0] >= loosest) or not cluster.allowed[allowed, n]:
                continue
            f = fits_of(cluster, room, s, n, most)
            if f == 0:
                continue
            score = (
                -float(room.free[n, 0]) if single_type else left_over(cluster, room, s, n, 0, -1)
            )
            if total >= tasks and score <= state.heap[0].time:
                continue
            # Keyed (score, −n): the loosest is first, of equals the one with the highest number.
            size = kernels.push(state.heap, size, score, -n)
            total += f
            # The loosest node kept goes as soon as the others hold all tasks without it.
            while total >= tasks:
                f = fits_of(cluster, room, s, -state.heap[0].item, most)
                if total - f < tasks:
                    break
                total -= f
                size = kernels.pop(state.heap, size)
            if single_type and total >= tasks:
                loosest = room.free[-state.heap[0].item, 0]
    if total < tasks:
        return 0
    count = size
    # The heap gives the loosest first, so pieces are filled in from the back.
    while size > 0:
        kernels.put_piece(state.tried, size - 1, -state.heap[0].item, int64(0), int64(0))
        size = kernels.pop(state.heap, size)
    for i in range(count):
        state.tried[i].tasks = min(
            fits_of(cluster, room, s, int64(state.tried[i].node), most), tasks
        )
        tasks -= state.tried[i].tasks
    return int(count)


# ------------------------------------------------------------- fragmentation, devices told apart


@inner_kernel
def fragments(cluster: ClusterArrays, memo: Rows, room: FreeDevices, n: int) -> int:
    """Σ over the tasks counted in ``memo`` of the free shared devices on node n they cannot use.

    F_n(m) of Weng et al., *Beware of Fragmentation* (ATC 2023): all that is free where a task of
    class m cannot run on the node or asks for no shared device; otherwise what is free of the
    devices with less than it asks of one.
    """
    idle = int64(0)
    for i in range(cluster.devices[n]):
        idle += room.device[n, i]
    total = int64(0)
    for m in range(cluster.demand.shape[0]):
        # Shapes of which no task was submitted weigh nothing.
        if memo[m].seen == 0:
            continue
        least = cluster.shapes[m].fraction if cluster.shapes[m].whole == 0 else 1000
        able = least > 0 and cluster.allowed[cluster.shapes[m].constraint, n]
        # A task that cannot run here at all loses everything that is free.
        if not able or fits(cluster, room, m, n) == 0:
            total += memo[m].seen * idle
            continue
        lost = int64(0)
        for i in range(cluster.devices[n]):
            if room.device[n, i] < least:
                lost += room.device[n, i]
        total += memo[m].seen * lost
    return int(total)


@inlined_kernel
def seen_before(device: Ints, n: int, i: int) -> bool:
    """Whether an earlier device of node n has as much free as device i."""
    for h in range(i):  # noqa: SIM110 - generators do not compile
        if device[n, h] == device[n, i]:
            return True
    return False


@inner_kernel
def growth(
    cluster: ClusterArrays, memo: Rows, room: FreeDevices, s: int, n: int
) -> tuple[int, int]:
    """By how much fragments on node n grow with one task of shape s, and its shared devices.

    In steps of `FRAGMENT_STEP` for the mean task counted, rounded up; a fraction goes to the device
    where they grow least, of several the fullest, the first.
    """
    counted = int64(0)
    for m in range(cluster.demand.shape[0]):
        counted += memo[m].seen
    step = max(kernels.FRAGMENT_STEP * counted, 1)
    fragmented = fragments(cluster, memo, room, n)
    d = cluster.shapes[s].fraction
    best = int64(0)
    mask = int64(0)
    most_free = int64(0)
    for i in range(cluster.devices[n] if d > 0 else 1):
        choice = int64(1) << i
        if d == 0:
            choice = int64(unused_devices(room, n, cluster.shapes[s].whole))
        elif room.device[n, i] < d or seen_before(room.device, n, i):
            continue
        free = room.device[n, i] if d > 0 else int64(0)
        # Tried on the room itself and taken back: copying it would cost more.
        take(cluster, room, s, n, int64(1), choice, kernels.TAKE)
        level = -((fragmented - fragments(cluster, memo, room, n)) // step)
        take(cluster, room, s, n, int64(1), choice, kernels.GIVE_BACK)
        # Least growth, then the fullest device, then the first.
        if most_free == 0 or level < best or (level == best and free < most_free):
            best = level
            mask = choice
            most_free = max(free, 1)
    return int(best), int(mask)


@inner_kernel
def place_fgd(cluster: ClusterArrays, state: State, room: FreeDevices, s: int, tasks: int) -> int:
    """Fragmentation gradient descent: the node whose fragments grow least, for each task anew."""
    N = room.free.shape[0]
    count = int64(0)
    allowed = cluster.shapes[s].constraint
    copy_room(room, state.trial)
    for n in range(N):
        state.cands[n].slot = -1
    for _ in range(tasks):
        best = -1
        least = int64(0)
        mask = int64(0)
        for n in range(N):
            if (
                block_misses(cluster, room, s, n // kernels.BLOCK)
                or not cluster.allowed[allowed, n]
            ):
                continue
            # A node may have no more tasks of a gang than `per_node`.
            slot = state.cands[n].slot
            if slot >= 0 and state.tried[slot].tasks >= cluster.shapes[s].per_node:
                continue
            if fits(cluster, state.trial, s, n) == 0:
                continue
            level, devices = growth(cluster, state.memo, state.trial, s, n)
            if best < 0 or level < least:
                best = n
                least = level
                mask = devices
        if best < 0:
            return 0
        take(cluster, state.trial, s, int64(best), int64(1), mask, kernels.TAKE)
        count = add_task(state, int64(best), int64(best), int64(1), count)
    return int(count)


@inner_kernel
def tell_apart(
    cluster: ClusterArrays, state: State, room: FreeDevices, s: int, count: int, choice: int
) -> int:
    """Give each piece its devices: fractions the fullest that fits, wholes the first unused.

    Ties go to the device of lowest index; fgd has a rule of its own (:func:`growth`). Gives the
    new number of pieces.
    """
    d = cluster.shapes[s].fraction
    if d == 0:
        for i in range(count):
            need = cluster.shapes[s].whole * state.tried[i].tasks
            state.tried[i].mask = unused_devices(room, state.tried[i].node, need)
        return count
    for i in range(count):  # the nodes first, for the pieces below overwrite them
        state.cands[i].node = state.tried[i].node
        state.cands[i].fit = state.tried[i].tasks
    device = room.device
    pieces = 0
    for i in range(count):
        n = state.cands[i].node
        start = pieces
        if choice == kernels.FGD:
            copy_node(room, state.trial, n)
        # Task by task; neighbours on one device become one piece.
        for _ in range(state.cands[i].fit):
            best = -1
            if choice == kernels.FGD:
                _, mask = growth(cluster, state.memo, state.trial, s, n)
                best = kernels.trailing_zeros(mask)
                take(cluster, state.trial, s, n, int64(1), mask, kernels.TAKE)
            else:
                best = fullest(cluster, room, n, d)
            device[n, best] -= d
            if pieces > start and state.tried[pieces - 1].mask == int64(1) << best:
                state.tried[pieces - 1].tasks += 1
            else:
                kernels.put_piece(state.tried, pieces, n, int64(1), int64(1) << best)
                pieces += 1
    for i in range(pieces):  # tried only
        device[state.tried[i].node, kernels.trailing_zeros(state.tried[i].mask)] += (
            d * state.tried[i].tasks
        )
    return pieces


@inner_kernel
def group_chosen(
    cluster: ClusterArrays, state: State, room: FreeDevices, s: int, main: int, group: int
) -> int:
    """The pieces of a group as :func:`search` has chosen, in `state.tried`; their number."""
    count, part = int64(0), int64(cluster.groups[group].shape)
    for n in range(room.free.shape[0]):
        a, most = state.ways.chosen[n]
        tasks = most if group == main else tasks_of_state(cluster, s, main, int64(a), int64(group))
        if tasks > 0:
            kernels.put_piece(state.tried, count, int64(n), int64(tasks), int64(0))
            count += 1
    shape = cluster.shapes[part]
    if cluster.devices is not None and shape.fraction + shape.whole > 0:
        count = tell_apart(cluster, state, room, part, count, int64(kernels.FIRST_FIT))
    return int(count)


@lean_kernel
def growths(
    cluster: ClusterArrays,
    memo: Rows,
    room: FreeDevices,
    s: int,
    able: Bools,
    steps: Ints,
    mask: Ints,
) -> None:
    """:func:`growth` on each node that is able [N]; others keep their steps and mask."""
    for n in range(able.size):
        if able[n]:
            steps[n], mask[n] = growth(cluster, memo, room, s, n)
