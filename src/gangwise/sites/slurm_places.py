"""Which nodes Slurm takes for a gang, compiled; and what its passes keep and try things on.

Of runs of nodes side by side that hold the gang, that with least free, its first nodes; a gang that
one node of the run holds takes the one with least free. Where no run holds all, all of the one with
most free is taken, and so on. As select/cons_tres does without a topology. Nodes of the smallest
weight are taken first, then those of the next. A gang that asks for some number of nodes leaves a
task for each of those to come. With topology/tree, gangs take the nodes of as few leaf switches as
they can, in order. ``--spread-job`` and ``LLN`` take node after node of a weight: in order, or that
of which the largest part of the cores is free.

Jobs that ask for several partitions (``sbatch -p a,b``) wait in the line of each. Slurm's queue has
an entry for each job and each of its partitions, with the tier and the priority that it has there;
the first that can start takes the job, and the others leave the line. Here such an entry is a row
of its own. The last row of a job is the one that runs: it becomes what the entry asks for.
https://slurm.schedmd.com/sbatch.html#OPT_partition
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.jit import by_reference, inlined_kernel, inner_kernel
from gangwise.jobs import kernels
from gangwise.jobs.event_kernels import enter, leave_queue
from gangwise.jobs.fit_kernels import block_misses, fits_of
from gangwise.jobs.kernels import ClusterArrays, FreeDevices, Inputs, Rows, State, int64, record
from gangwise.jobs.model import Jobs, Nodes, Shape, reordered, terms_of
from gangwise.jobs.schedule import Schedule, Tables
from gangwise.jobs.tenancy import having
from gangwise.sites.whole_nodes import CONTIGUOUS, FREE, SPREAD, free_of

GROUPS = 4
"""Jobs are counted by user, by partition, by user and partition, and by association."""
ANY, ALL_OF_ONE, SO_MANY_OF_EACH, SO_MANY_NODES = range(4)
"""What a job asks of nodes: with features; in brackets, all of one; so many of each; a number."""
BY_RUNS, IN_ORDER, LEAST_LOADED = range(3)
"""How nodes are taken: those of a run together, or one by one."""

FAR = 2**40
"""Steps from a switch to another that nothing joins to it."""
TAKEN, BEGUN = -1, -2
"""In place of steps: a leaf switch whose nodes are taken; one of which some are."""

CLOCK = record(
    passed=np.float64,  # when backfilling last came
    whole=np.float64,  # when the main loop last looked at all that wait
    due=np.int64,  # something changed since: it comes when the interval is over
    changed=np.int64,  # there is something that it has not seen
    events=np.int64,  # since the last round
    here=np.int64,  # of them, those of this instant
    round=np.int64,
    moved=np.int64,  # jobs that were preempted in this round
    gave=np.int64,  # jobs in `PassState.gave`
    asleep=np.int64,  # of them, those that are suspended
    lined=np.int64,  # jobs in `State.sequence`, where keys change
    before=np.int64,  # jobs in `PassState.before`
    started=np.int64,  # how often a job was
    acts=np.int64,  # rows of `PassState.acts`
    able=np.int64,  # jobs that may give way to one
    tried=np.int64,  # of them, those taken away until it fits
    at=np.float64,  # when another round is asked for
    asked=np.int64,  # for which job
    steady=np.int64,  # only an event can change what it decides
    hidden=np.int64,  # jobs that hold cores and that the last one looked at does not see
    # of one pass of backfilling
    rank=np.float64,  # windows are as a job of this rank sees them
    windows=np.int64,
    ending=np.int64,  # jobs whose ends they are, the first in `PassState.leaving`
    edges=np.int64,  # rows of `PassState.edges`
    site=np.int64,  # reservations of the site
    # of the windows made last
    bounds=np.int64,  # rows of `PassState.bounds`
    passes=np.int64,  # of backfilling, so far
    requeued=np.int64,  # how many jobs had lost their nodes by the last round
)
BOUND = record(limit=np.float64, time=np.float64, tasks=np.int64, shape=np.int64)
"""So many tasks of a shape for so long found too little room at any time before this one."""
FAILED = record(limit=np.float64, tasks=np.int64, stamp=np.int64)
"""So many tasks of a shape for so long found no room at once in this pass."""
RUN_OF_NODES = record(first=np.int64, last=np.int64, free=np.int64, fits=np.int64)
HELD = record(begin=np.float64, end=np.float64)
CLASS = record(exempt=np.float64, rank=np.int64, way=np.int64)
"""Of jobs of a pool and a QOS: seconds in which they are not preempted, their place, and how."""
KNOWN = record(  # of a job
    until=np.float64,  # it was preempted, and may not start before
    end=np.float64,  # gangs: when it was expected to end, as it was suspended
    ran=np.float64,  # gangs: seconds, before it was suspended
    by=np.int64,  # for which job that was
    asleep=np.int64,  # it is suspended
    held=np.int64,  # gangs: its cores are in `Gangs.masks`
    mark=np.int64,  # the round in which it was preempted last
    turn=np.int64,  # how many starts there had been at its start
    kind=np.int64,  # place in `PassState.classes`
    reservation=np.int64,  # of the site, that it may use; −1 for none
    named=np.int64,  # it names nodes, and while it waits it keeps others off these alone
    alone=np.int64,  # it has its nodes alone
    fewest=np.int64,  # nodes that it wants at least
    own=np.int64,  # it shares nodes with jobs of its user alone
    ages=np.float64,  # since when its age counts, where it does before the job is eligible
    together=np.float64,  # when all its groups can start, as this pass of backfilling has found
    job=np.int64,  # the last row of the job, which may have one for each of several pools
    rows=np.int64,  # how many it has
    booked=np.int64,  # the pass of backfilling that reserved for the job last
)


@by_reference
class PassSettings(NamedTuple):
    """Slurm's numbers, see :class:`gangwise.sites.slurm_passes.SlurmPasses`, and of preemption."""

    interval: float
    resolution: float
    window: float
    tested: int
    depth: int
    again: float
    youngest_first: bool
    strict: bool
    reorder: int
    starts: int  # that backfilling makes at most in a pass; 0 for any number
    main_starts: int  # the same of the main loop
    part_depth: int  # jobs of a partition that the main loop looks at; 0 for any number
    least_wait: float  # seconds that a job must have waited to hold nodes it does not start on
    least_priority: float  # that it must have to do so
    one_each: bool  # a job has one reservation, however many pools it asks for
    by_user: bool  # some jobs share nodes with those of their user alone
    accrues: bool  # age counts from submission on
    epoch: float  # Slurm's time, in seconds since 1970, at time 0


@by_reference
class Places(NamedTuple):
    """What nodes are chosen by; N nodes, S shapes."""

    up: Bools  # [N] State.up
    cores: int  # device type of cores, by which nodes are compared; −1: by what a shape has most of
    tried: Rows  # PIECE: State.tried
    weight: Ints  # [N] from 0: nodes of the smallest are taken first
    features: Bools  # [F, N] nodes that have what is asked for
    how: Ints  # [S] ANY, ALL_OF_ONE, SO_MANY_OF_EACH or SO_MANY_NODES
    parts: Ints  # those of shape s are the rows from parts_from[s] on: feature, and how many tasks
    parts_from: Ints  # [S + 1]
    turn: Ints  # groups of a shape as Slurm looks at them, from `groups_from` on
    wanted: Ints  # [S, 6] how many nodes, at most, at least (0: any); 1: joined; how; 1: `least`
    least: Ints  # [S, K] thousandths of each device that must be free on a node for it to be had
    key: Ints  # [N] of nodes that are taken one by one: the largest first
    leaf: Ints  # [N] the leaf switch that a node is on, −1 for none
    above: Any  # [W] of W switches the one above each, itself at the top; None: no topology
    apart: Ints  # [W, W] steps from one to another
    leaf_cores: bool  # whether a switch must have room for all tasks to suit, not just nodes
    fit: Ints  # [N] tasks that fit on each
    runs: Rows  # RUN_OF_NODES
    able: Ints  # [W] nodes below a switch that may still be taken
    room: Ints  # [W] tasks that fit below it in all
    steps: Ints  # [W] from the leaf switches taken, TAKEN or BEGUN; FAR for those above others


@by_reference
class FutureWindows(NamedTuple):
    """What will be free, at the ends of W windows, and nodes that are reserved.

    A node has a level for each window that changes what is free on it, and for now.
    """

    times: Floats  # [W] when windows end
    room: FreeDevices  # [W, …] by level
    levels: Ints  # [N] how many a node has
    window: Ints  # [N, W] in which a level begins
    fits: Any  # [slots, N, W] tasks of a shape that fit at a level
    counted: Ints  # [slots] of which shape they are, −1 for none
    opens: Ints  # [slots, W, N / 64] nodes that hold a task in a window, as bits
    barred: Ints  # [slots, N / 64] nodes that the shape may not use, or that are down
    owned: Ints  # [N / 64] nodes that a job may not share
    cover: Ints  # [N / 64] nodes that it may not have: these, or reserved while it would run
    nearest: Ints  # [N] the piece of a running job on a node that ends first; −1 for none
    latest: Ints  # [N] that which ends last
    following: Ints  # [pieces] that which ends next there; −1 for none
    place: Ints  # [pieces] whose end it is: its place in `PassState.leaving`
    marked: Ints  # some of these places, as bits
    ends: Rows  # DUE: of them, those on nodes that are not covered
    recent: Ints  # [N / 64] nodes reserved between some edges
    rest: Ints  # [edges, N / 64] nodes reserved from an edge on to one
    free: Ints  # [N, 1] what nodes are compared by, in one window


@by_reference
class Gangs(NamedTuple):
    """Who holds which cores under gang scheduling; N nodes of C cores or fewer, masks of W words.

    View 0 is of all jobs that run or are suspended, view 1 of those that a job sees.
    """

    kind: int  # device type of cores
    holders: Ints  # [2, N, C] how many jobs hold each core
    taken: Ints  # [2, N] cores that are held
    masks: Ints  # [pieces, W] cores of each piece of `State.out`
    wanted: Ints  # [N, W] cores for a job


@by_reference
class PassState(NamedTuple):
    """What passes go by, keep, and try things on; J jobs, N nodes."""

    settings: PassSettings
    clock: Any  # CLOCK
    room: FreeDevices  # State.room; under gang scheduling without what suspended jobs hold
    gangs: Any  # Gangs; None where no jobs are suspended, which hold their cores
    minutes: Any  # slurm_minutes.Minutes; None where no limit is of minutes
    leaving: Rows  # DUE [J]: jobs that run, and suspended ones, by when they are expected to end
    places: Places
    front: Ints  # who waits, in order: the first of the line
    ahead: FutureWindows
    pools: Bools  # [P, N] nodes of each pool of the shapes
    open: Ints  # [P] above 0: it has nodes that are not shut
    known: Rows  # KNOWN [J]
    classes: Rows  # CLASS
    above: Any  # [classes, classes] jobs of the first may preempt those of the second; None: no job
    gave: Ints  # [J] who was preempted and waits, in order
    before: Ints  # the line that backfilling saw last, where keys change
    acts: Rows  # DUE: what was done in a round (time: STARTED or the way) to which job, if not [0]
    earlier: Floats  # when things happened before a round that is asked for from outside
    most: Ints  # [GROUPS] jobs of a user, … that backfilling looks at; 0 for any number
    group: Ints  # [GROUPS, J] whose user, … a job is
    looked: Ints  # [GROUPS, …] how many of each were looked at in this pass
    of_pool: Ints  # [P] the same in a pass of the main loop
    shut: Ints  # [N] above 0: nodes that are not to be used
    none: Ints  # [N] no node is shut
    on: Bools  # [N] nodes of a choice
    every: Bools  # [N] all nodes
    reserved: Rows  # HELD: reservations of the site
    booked: Ints  # [R, N / 64] nodes of these, as bits
    edges: Rows  # DUE: times at which a reservation begins or ends
    taken: Ints  # [edges, N / 64] nodes reserved for jobs from an edge to the next, as bits
    bounds: Rows  # BOUND: of jobs looked at since the windows were made
    failed: Rows  # FAILED [S]
    able: Rows  # DUE: who may give way, in order
    turns: Rows  # DUE: the same, as they are tried
    others: Rows  # DUE
    ranked: Rows  # DUE
    found: Rows  # PIECE: a choice
    first: Ints  # of the pieces of each group of a job
    pieces: Ints  # how many each has
    kept: Ints  # nodes of a choice


def asked_of_nodes(
    shapes: Sequence[Shape], nodes: Nodes, least_loaded: Container[str]
) -> tuple[Bools, Ints, Ints, Ints, Ints, Ints, Ints]:
    """What shapes ask: from `features` to `least` of `Places`.

    ``least_loaded`` are the pools whose jobs take the least loaded nodes.
    """
    names, how, parts, starts = dict[str, int](), [], list[tuple[int, int]](), [0]
    for shape in shapes:
        expression = next((k for k, _ in shape.constraint if "*" in k or "[" in k), "")
        inside, features = re.fullmatch(r"\[([^\[\]()&]*)\]", expression), list[tuple[str, str]]()
        if "*" in expression:
            features = re.findall(r"([^\[\]&|*]+)(?:\*(\d+))?", expression)
        elif inside:
            features = [(name, "") for name in inside[1].split("|")]
        bounded = SO_MANY_NODES if any(shape.nodes) or CONTIGUOUS in shape.constraint else ANY
        how.append(SO_MANY_OF_EACH if "*" in expression else ALL_OF_ONE if inside else bounded)
        parts += [(names.setdefault(name, len(names)), int(count or 1)) for name, count in features]
        # Features of shape s are rows starts[s] to starts[s + 1].
        starts.append(len(parts))
    offered = [
        [having(name, labels.get("features", "")) for labels in nodes.labels] for name in names
    ]
    wanted = list[tuple[int, ...]]()
    least = np.zeros((len(shapes), len(nodes.devices)), dtype=np.int64)
    # The three ways exclude one another: spread, by load, or by runs.
    for shape in shapes:
        by_load = LEAST_LOADED if shape.pool in least_loaded else BY_RUNS
        one_by_one = IN_ORDER if SPREAD in shape.constraint else by_load
        joined = CONTIGUOUS in shape.constraint
        # Most, least: the order in which kernels read them.
        free = [label for label, _ in shape.constraint if label.startswith(FREE)]
        least[len(wanted)] = free_of(free[0], nodes.devices) if free else 0
        ways = joined, one_by_one * (not joined), len(free)
        wanted.append((max(shape.nodes), *shape.nodes[::-1], *ways))
    own = [[int(terms_of(s.terms).get("part", 0)) for _, s in shape.groups] for shape in shapes]
    turn = [i for places in own for i in np.argsort(places, kind="stable").tolist()]
    return (
        np.array(offered, dtype=bool).reshape(len(names), len(nodes)),
        np.array(how, dtype=np.int64),
        np.array(parts, dtype=np.int64).reshape(-1, 2),
        np.array(starts, dtype=np.int64),
        np.array(turn, dtype=np.int64),
        np.array(wanted, dtype=np.int64).reshape(-1, 6),
        least,
    )


def switches_of(nodes: Nodes) -> tuple[Ints, Ints, Ints]:
    """`leaf`, `above` and `apart` of `Places`: labels are as ``2:top/rack/leaf``.

    The number is the place of the leaf among all, by which ties are decided.
    """
    paths = [labels.get("switch", ":").partition(":") for labels in nodes.labels]
    ways = sorted({(int(n), path) for n, _, path in paths if path})
    # Leaves get the first numbers, so that their order decides ties.
    every = dict.fromkeys(path for _, path in ways)  # leaves first
    for path in [*every]:
        parts = path.split("/")
        every |= dict.fromkeys("/".join(parts[:i]) for i in range(len(parts) - 1, 0, -1))
    number = {path: i for i, path in enumerate(every)}
    above = [number.get(path.rpartition("/")[0], i) for i, path in enumerate(every)]
    up: list[list[int]] = []
    for i in range(len(every)):
        up.append([i])
        while above[up[i][-1]] != up[i][-1]:
            up[i].append(above[up[i][-1]])
    # Steps up from the one plus steps up from the other to the first common switch.
    apart = np.full((len(every), len(every)), FAR, dtype=np.int64)
    for i, path_up in enumerate(up):
        for j, other_path in enumerate(up):
            if common := [k for k in path_up if k in other_path]:
                apart[i, j] = path_up.index(common[0]) + other_path.index(common[0])
    leaf = [number.get(path, -1) for _, _, path in paths]
    return np.array(leaf, dtype=np.int64), np.array(above, dtype=np.int64), apart


@inner_kernel
def copy_pieces(source: Rows, first: int, to: Rows, begin: int, count: int) -> None:
    """Copy so many pieces."""
    for i in range(count):
        piece = source[first + i]
        kernels.put_piece(to, begin + i, int64(piece.node), int64(piece.tasks), int64(piece.mask))


@inlined_kernel
def lacks(places: Places, free: Ints, s: int, n: int) -> bool:
    """Whether less is free on node n than must be for a job of shape s to have any of it."""
    for k in range(free.shape[1] if places.wanted[s, 5] else 0):
        if free[n, k] < places.least[s, k]:
            return True
    return False


@inlined_kernel
def taken_on(
    cluster: ClusterArrays, places: Places, room: FreeDevices, s: int, n: int, most: int
) -> int:
    """How many tasks of shape s node n takes, at most so many."""
    return 0 if lacks(places, room.free, s, n) else int(fits_of(cluster, room, s, n, most))


@inner_kernel
def count_room(
    cluster: ClusterArrays, places: Places, room: FreeDevices, s: int, tasks: int, shut: Ints
) -> int:
    """How many tasks of shape s each node takes that is not shut, in `places.fit`; and in all.

    No node is asked for more than so many.
    """
    # A shape of few tasks per node does not gain from more room there.
    most = min(cluster.shapes[s].per_node, tasks)
    allowed = cluster.allowed[cluster.shapes[s].constraint]
    N, total = places.fit.size, int64(0)
    for b in range(room.top.shape[0]):
        misses = block_misses(cluster, room, s, b)
        for n in range(b * kernels.BLOCK, min((b + 1) * kernels.BLOCK, N)):
            places.fit[n] = 0
            if not misses and allowed[n] and places.up[n] and shut[n] == 0:
                places.fit[n] = taken_on(cluster, places, room, s, int64(n), most)
                total += places.fit[n]
    return int(total)


@inner_kernel
def arrange(
    cluster: ClusterArrays, places: Places, room: FreeDevices, s: int, tasks: int, shut: Ints
) -> int:
    """Place a gang in a room on nodes that are not shut [N]: pieces in `tried`; 0 for no place."""
    if count_room(cluster, places, room, s, tasks, shut) < tasks:
        return 0
    return int(choose(cluster, places, room.free[:, compared(cluster, places, s)], s, tasks))


@inlined_kernel
def compared(cluster: ClusterArrays, places: Places, s: int) -> int:
    """The device type by which nodes are compared for shape s."""
    return int(places.cores if places.cores >= 0 else cluster.shapes[s].dominant)


@inner_kernel
def choose(cluster: ClusterArrays, places: Places, free: Ints, s: int, tasks: int) -> int:
    """Place a gang on nodes of which each takes `places.fit` of its tasks, and all take enough."""
    how, begin, end = places.how[s], places.parts_from[s], places.parts_from[s + 1]
    count = int64(0)
    if how == ALL_OF_ONE:
        # The first feature of the list whose nodes hold the whole gang.
        for i in range(begin, end):
            count = lightest(places, free, tasks, int64(places.parts[i, 0]), int64(0))
            if count > 0:
                break
        return int(count)
    for i in range(begin, end):
        # Nodes for so many tasks with one feature; those taken take no other.
        wanted_tasks = int64(places.parts[i, 1])
        if wanted_tasks > tasks:
            return 0
        taken_before = count
        count = lightest(places, free, wanted_tasks, int64(places.parts[i, 0]), count)
        if count == 0:
            return 0
        tasks -= wanted_tasks
        for m in range(taken_before, count):
            places.fit[places.tried[m].node] = 0
    if tasks == 0:
        return int(count)
    one_by_one = places.wanted[s, 4]
    switched = places.above is not None and how != SO_MANY_OF_EACH and places.wanted[s, 3] == 0
    switched = switched and one_by_one == BY_RUNS
    if how != SO_MANY_NODES and not switched and one_by_one == BY_RUNS:
        return lightest(places, free, tasks, int64(-1), count)
    # A fixed-point share of the cores that are free, so that whole numbers can be compared.
    for n in range(free.size if one_by_one > BY_RUNS else 0):
        cores = max(cluster.capacity[n, max(places.cores, 0)], 1)
        places.key[n] = (free[n] << 20) // cores if one_by_one == LEAST_LOADED else -n
    while True:  # without the nodes that take fewest, where those taken were too many
        if places.above is not None and switched:
            count = on_switches(places, tasks, s, int64(cluster.shapes[s].per_node))
        else:
            count = on_so_many(places, free, tasks, s)
        if count > 0 or not without_least(places):
            return int(count)


@inner_kernel
def without_least(places: Places) -> bool:
    """No task on the nodes that take fewest; whether any other takes some."""
    least, most = int64(0), int64(0)
    for n in range(places.fit.size):
        if places.fit[n] > 0:
            least = places.fit[n] if least == 0 else min(least, places.fit[n])
            most = max(most, places.fit[n])
    for n in range(places.fit.size):
        if places.fit[n] == least:
            # Nodes of that size were not enough: the next attempt uses larger ones alone.
            places.fit[n] = 0
    return bool(most > least)


@inlined_kernel
def fit_with(places: Places, feature: int, weight: int, n: int) -> int:
    """Tasks that fit on node n if it has a feature (−1: any will do) and a weight (−1: any)."""
    able = (feature < 0 or places.features[feature, n]) and (
        weight < 0 or places.weight[n] == weight
    )
    return int(places.fit[n]) if able else 0


@inner_kernel
def lightest(places: Places, free: Ints, tasks: int, feature: int, count: int) -> int:
    """Nodes for so many tasks, of the smallest weight first: pieces behind ``count`` others.

    Gives the number of pieces, 0 where there is no room.
    """
    total = int64(0)
    for n in range(free.size):
        total += fit_with(places, feature, int64(-1), n)
    if total < tasks:
        return 0
    weight = int64(0)
    # Weight after weight: heavier nodes are used only for what lighter ones leave.
    while tasks > 0:
        tasks_here = int64(0)
        for n in range(free.size):
            tasks_here += fit_with(places, feature, weight, n)
        # So many of this weight; what is left goes to the next weight.
        some = min(tasks, tasks_here)
        if some > 0:
            runs = find_runs(places, free, feature, weight, int64(0))
            count = consecutive(places, free, some, runs, count)
        tasks -= some
        weight += 1
    return count


@inlined_kernel
def find_runs(places: Places, free: Ints, feature: int, weight: int, apart: int) -> int:
    """Runs of nodes side by side that have room, in `places.runs`; their number.

    ``apart``: each node is a run of its own.
    """
    count, open_ = 0, False
    for n in range(free.size):
        fits = fit_with(places, feature, weight, n)
        if fits > 0:
            if apart or not open_:
                places.runs[count].first, places.runs[count].free, places.runs[count].fits = n, 0, 0
                count, open_ = count + 1, True
            run = places.runs[count - 1]
            run.last = n + 1
            run.free += free[n]
            run.fits += fits
        else:
            open_ = False
    return count


@inlined_kernel
def best_run(places: Places, runs: int, tasks: int, nodes: int) -> int:
    """The run with least free of those that hold so many tasks on so many nodes.

    Where none does that with most free; −1 where all are taken.
    """
    best, enough = int64(-1), False
    for r in range(runs):
        run = places.runs[r]
        if run.fits == 0:  # taken
            continue
        holds = run.fits >= tasks and run.last - run.first >= nodes
        most = places.runs[best].free
        # Tight where it suffices, large where it does not, so that few runs are used. One that has
        # room, and too few nodes, is taken before a smaller one that suffices: so Slurm's loop is.
        better = run.free > most and (not enough or run.fits >= tasks)
        if holds:
            better = run.free < most or not enough
        if best < 0 or better:
            best, enough = r, holds
    return int(best)


@inlined_kernel
def fullest(places: Places, free: Ints, tasks: int, begin: int, past: int) -> int:
    """Of nodes from ``begin`` on that hold all tasks the one with least free, −1 for none."""
    best = int64(-1)
    for n in range(begin, past):
        if places.fit[n] >= tasks and (best < 0 or free[n] < free[best]):
            best = n
    return int(best)


@inlined_kernel
def consecutive(places: Places, free: Ints, tasks: int, runs: int, count: int) -> int:
    """Of the runs, those that hold so many tasks, which is no more than all of them hold."""
    while tasks > 0:
        best = best_run(places, runs, tasks, int64(1))
        begin, past = places.runs[best].first, places.runs[best].last
        places.runs[best].fits = 0
        # A single node that holds the rest is better than the start of the run.
        one = fullest(places, free, tasks, begin, past)
        if one >= 0:
            begin, past = int64(one), int64(one + 1)
        for n in range(begin, past):
            if tasks > 0:
                some = min(places.fit[n], tasks)
                kernels.put_piece(places.tried, count, n, some, int64(0))
                count += 1
                tasks -= some
    return count


@inner_kernel
def on_so_many(places: Places, free: Ints, tasks: int, s: int) -> int:
    """Nodes for so many tasks of a shape that asks for a number of nodes: pieces, 0 for no room.

    As many nodes are taken as are wanted, each with as many tasks as it holds and the others leave.
    """
    wanted, most, fewest = places.wanted[s, 0], places.wanted[s, 1], places.wanted[s, 2]
    apart = int64(places.wanted[s, 4])
    # No more nodes can be wanted than have room.
    count, heaviest, able = int64(0), int64(0), int64(0)
    for n in range(free.size):
        heaviest = max(heaviest, places.weight[n])
        able += int64(places.fit[n] > 0)
    wanted = min(wanted, able)
    joined = places.wanted[s, 3] > 0
    # Nodes that must be side by side may be of any weight; else a heavier one parts a run.
    for weight in range(-1 if joined else 0, 0 if joined else heaviest + 1):
        by = places.key if apart else free
        runs = find_runs(places, by, int64(-1), int64(weight), apart)
        while tasks > 0 and (most == 0 or count < most):
            # No single node is as wide as FAR, so that the one of the largest key is best.
            best = best_run(places, runs, tasks, FAR if apart else max(fewest - count, 1))
            if best < 0:
                break
            begin, past = places.runs[best].first, places.runs[best].last
            # The run holds all tasks, on as many nodes as are asked for at least.
            holds = places.runs[best].fits >= tasks and past - begin >= fewest
            if joined:  # these alone, or none hold all
                if not holds:
                    return 0
                wanted = min(wanted, past - begin)
            places.runs[best].fits = 0
            one = int64(-1)
            if wanted - count <= 1:
                one = fullest(places, free, tasks, begin, past)
            if one >= 0:
                begin, past = int64(one), int64(one + 1)
            for n in range(begin, past):
                if tasks > 0 and (most == 0 or count < most):
                    # Each node leaves at least one task for each of the nodes that are still
                    # wanted.
                    some = min(places.fit[n], max(tasks - max(wanted - count - 1, 0), 1))
                    kernels.put_piece(places.tried, count, n, some, int64(0))
                    count += 1
                    tasks -= some
    # Fewer nodes than asked for are no place, even if all tasks fit.
    return int(count) if tasks == 0 and count >= fewest else 0


# -------------------------------------------------------------------------------- leaf switches


@inlined_kernel
def count_below(places: Places, weight: int) -> None:
    """Count nodes of weights up to one below each switch, and the tasks that fit on all of them."""
    for i in range(places.above.size):
        places.able[i] = places.room[i] = 0
    for n in range(places.fit.size):
        i = places.leaf[n]
        # Up from the leaf: a node counts below every switch on the way.
        while i >= 0 and places.fit[n] > 0:
            places.able[i] += int64(places.weight[n] <= weight)
            places.room[i] += places.fit[n]
            i = places.above[i] if places.above[i] != i else int64(-1)


@inlined_kernel
def under_one_top(places: Places, nodes: int, tasks: int) -> bool:
    """Leave out nodes that no switch joins to the others; whether enough are left.

    Of tops that hold so many nodes and tasks, the last with nodes of the smallest weight is the one
    that a gang has.
    """
    heaviest, top = int64(0), int64(-1)
    for n in range(places.fit.size):
        heaviest = max(heaviest, places.weight[n])
    count_below(places, heaviest)
    # Of several tops that suffice the last with the lightest nodes, as Slurm's loop keeps it.
    least = heaviest
    # Tops are their own parents; nodes of other trees cannot talk to these.
    for i in range(places.above.size):
        if places.above[i] == i and places.able[i] >= nodes and places.room[i] >= tasks:
            weight = heaviest
            for n in range(places.fit.size):
                if (
                    places.fit[n] > 0
                    and places.leaf[n] >= 0
                    and places.apart[places.leaf[n], i] < FAR
                ):
                    weight = min(weight, places.weight[n])
            if weight <= least:
                top, least = i, weight
    for n in range(places.fit.size):
        if top < 0 or places.leaf[n] < 0 or places.apart[places.leaf[n], top] >= FAR:
            places.fit[n] = 0
    return bool(top >= 0)


@inlined_kernel
def better_leaf(places: Places, one: int, other: int, nodes: int, tasks: int) -> int:
    """1 if a switch suits a gang better than another, −1 if it is the other way round, else 0.

    Of two that hold it that with fewer nodes; of two that do not, that below which fewer nodes hold
    it, and else that with more.
    """
    a, b = int64(one), int64(other)
    while True:
        # Both leaves' switches are compared, then the switches above them, up to the common one.
        holds = places.able[a] >= nodes and (not places.leaf_cores or places.room[a] >= tasks)
        too = places.able[b] >= nodes and (not places.leaf_cores or places.room[b] >= tasks)
        if holds and too and places.able[a] != places.able[b]:
            return 1 if places.able[a] < places.able[b] else -1
        if holds != too:
            return 1 if holds else -1
        if (holds and too) or places.above[a] == places.above[b]:
            break
        a, b = places.above[a], places.above[b]
    if places.able[a] != places.able[b]:
        return 1 if places.able[a] > places.able[b] else -1
    return 0


@inlined_kernel
def take_leaf(places: Places, i: int) -> None:
    """No more nodes below leaf i are to be had, and others are as far from it as they are."""
    gone, k = places.able[i], i
    while True:
        # Not below 0: heavier nodes of the leaf were never counted.
        places.able[k] -= min(gone, places.able[k])
        if places.above[k] == k:
            break
        k = places.above[k]
    # Distances add up over all leaves taken, so that the next is near to all of them.
    for other in range(places.above.size):
        if places.steps[other] >= 0:
            places.steps[other] += places.apart[i, other]
    places.steps[i] = TAKEN


@inlined_kernel
def best_leaf(places: Places, nodes: int, tasks: int) -> int:
    """The leaf switch to take next, −1 for none: the nearest that holds the rest, or that fits it.

    See :func:`better_leaf` for which of several fits it best.
    """
    best = int64(-1)
    for i in range(places.above.size):
        # Nodes of a leaf of which some are taken come before any other leaf.
        if places.steps[i] == BEGUN:
            return i
        if places.steps[i] < 0 or places.steps[i] >= FAR or places.able[i] == 0:
            continue
        better = 1 if best < 0 else better_leaf(places, i, best, nodes, tasks)
        near = best >= 0 and places.steps[i] < places.steps[best] and better >= 0
        if best < 0 or near or (places.steps[i] == places.steps[best] and better > 0):
            best = i
    return int(best)


@inner_kernel
def on_switches(places: Places, tasks: int, s: int, per_node: int) -> int:
    """Nodes for so many tasks of a shape on as few leaf switches as may be: pieces, 0 for no room.

    All nodes of weights that do not suffice are taken, then more below their switches; then leaf by
    leaf, each with as many tasks as it holds and the nodes to come leave.
    """
    most, fewest = places.wanted[s, 1], places.wanted[s, 2]
    wanted = max(places.wanted[s, 0], -(-tasks // per_node) if per_node > 0 else 1, 1)
    able = int64(0)
    for n in range(places.fit.size):
        able += int64(places.fit[n] > 0)
    wanted = min(wanted, able)
    if not under_one_top(places, max(fewest, int64(1)), tasks):
        return 0
    nodes, room, enough = int64(0), int64(0), int64(0)  # up to which weight there is enough
    # The least weight up to which nodes are enough; below it all of them are taken.
    while room < tasks or nodes < wanted:
        here = int64(0)
        for n in range(places.fit.size):
            if places.fit[n] > 0 and places.weight[n] == enough:
                here += 1
                room += places.fit[n]
        nodes += here
        enough += 1
        if enough > places.fit.size:
            break
    count_below(places, enough - 1)
    # Only leaves are taken: whatever has a switch below it is out of reach.
    for i in range(places.above.size):
        places.steps[i] = 0
    for i in range(places.above.size):
        if places.above[i] != i:
            places.steps[places.above[i]] = FAR
    count, leaf, first = int64(0), int64(-1), True
    # First the nodes of all weights that do not suffice, then leaf after leaf.
    while tasks > 0 or count < wanted:
        if not first:
            leaf = best_leaf(places, wanted - count, tasks)
            if leaf < 0:
                break
        for n in range(places.fit.size):
            if tasks <= 0 or (most > 0 and count >= most):
                break
            last = places.weight[n] == enough - 1 and places.leaf[n] == leaf
            if places.fit[n] > 0 and (places.weight[n] < enough - 1 if first else last):
                some = min(places.fit[n], max(tasks - max(wanted - count - 1, 0), 1))
                kernels.put_piece(places.tried, count, n, some, int64(0))
                count += 1
                tasks -= some
                # Leaves of nodes taken in the first turn are begun: their other nodes come next.
                if first:
                    places.steps[places.leaf[n]] = BEGUN
        if not first:
            take_leaf(places, leaf)
        first = False
    return int(count) if tasks == 0 and count >= fewest else 0


PER_JOB = [
    *("start", "end", "last_start", "held", "phase", "attempts", "lost", "reserved"),
    *("piece_from", "piece_count"),
]
"""Columns of a schedule with a value of each job."""


def in_each_pool(t: Tables) -> tuple[Tables, Ints]:
    """Tables with a row for each pool that a job asks for and may be in; whose job each row is."""
    texts = [terms_of(text).get("pools", "") for text in t.jobs.terms]
    if not any(texts):
        return t, np.arange(len(t.jobs))
    # Of whole nodes a job has other amounts, which are not known here.
    whole = {pool.name: getattr(pool, "whole", False) for pool in t.options.tenancy.pools}
    shapes, rows, names = [t.jobs.shapes[s] for s in t.jobs.shape], list[int](), list[str]()
    for j, shape in enumerate(shapes):
        wanted = [
            name
            for name in texts[t.jobs.term[j]].split("|")
            if name in t.nodes.pools and whole.get(name) == whole.get(shape.pool)
        ]
        wanted = [shape.pool] if shape.groups or shape.pool not in wanted else wanted
        names += wanted
        rows += [j] * len(wanted)
    of_job, every = np.array(rows), _with_rows(t, np.array(rows), names)
    # A pool whose bounds refuse the job has no entry for it.
    listed = np.flatnonzero(~every.aside | ~np.isin(of_job, of_job[~every.aside]))
    if listed.size < of_job.size:
        every = _with_rows(t, of_job[listed], [names[i] for i in listed])
    return every, of_job[listed]


def _with_rows(t: Tables, rows: Ints, names: list[str]) -> Tables:
    """Tables with these rows of the jobs, each in a pool of its own."""
    jobs, columns = t.jobs, dict[str, Any]()
    for column in fields(Jobs):
        values = getattr(jobs, column.name)
        if isinstance(values, np.ndarray) and not column.name.startswith("after"):
            columns[column.name] = values[rows]
    own = [jobs.shapes[s]._replace(pool=name) for s, name in zip(columns["shape"], names)]
    shapes, pools = dict.fromkeys(own), dict.fromkeys([*jobs.pools, *names])
    for name, every, mine in (("shape", shapes, own), ("pool", pools, names)):
        number = {one: i for i, one in enumerate(every)}
        columns[name] = np.where(
            np.array([bool(one) for one in mine]), [number[one] for one in mine], columns[name]
        )  # a job of no pool of the site keeps its own
    columns["after_from"], columns["after"] = reordered(jobs.after_from, jobs.after, rows)
    jobs = replace(jobs, **columns, shapes=tuple(shapes), pools=tuple(pools))
    noise = t.conditions.noise
    conditions = replace(
        t.conditions,
        noise=None if noise is None else np.asarray(noise)[rows],
        cancels=[(at, int(i)) for at, j in t.conditions.cancels for i in np.flatnonzero(rows == j)],
    )
    return Tables.of(jobs, t.nodes, conditions, t.options)


def of_jobs(t: Tables, played: Schedule, rows: Ints, shape: Ints) -> Schedule:
    """The schedule of the jobs themselves, each of the pool that it ran in.

    ``shape`` are the shapes of the rows at the end.
    """
    if rows.size == len(t.jobs):
        return played
    final = np.flatnonzero(np.diff(rows, append=len(t.jobs)))  # the last row of each job
    every, names = played.jobs, {name: p for p, name in enumerate(played.jobs.pools)}
    own = [every.shapes[s].pool for s in shape[final]]
    pool = np.array([names[n] if n else p for n, p in zip(own, every.pool[final].tolist())])
    jobs = replace(t.jobs, shape=shape[final], shapes=every.shapes, pool=pool, pools=every.pools)
    columns: dict[str, Any] = {name: getattr(played, name)[final] for name in PER_JOB}
    cuts = {**played.cuts, "job": rows[played.cuts["job"]]}
    return replace(played, **columns, jobs=jobs, cuts=cuts, account=t.account)


# ------------------------------------------------------------------------------- in compiled code


@inner_kernel
def become_one(inputs: Inputs, state: State, passes: PassState, j: int) -> int:
    """Row j starts: gives the row of its job, which takes what j asks for; the others leave."""
    entries, o = passes.known, int64(passes.known[j].job)
    if o != j:
        a, b = inputs.jobs[o], inputs.jobs[j]
        a.shape, b.shape = b.shape, a.shape
        a.claim, b.claim = b.claim, a.claim
        a.hours, b.hours = b.hours, a.hours
        entries[o].kind, entries[j].kind = entries[j].kind, entries[o].kind
        entries[o].own, entries[j].own = entries[j].own, entries[o].own
        for k in range(passes.group.shape[0]):
            passes.group[k, o], passes.group[k, j] = passes.group[k, j], passes.group[k, o]
        if state.standing is not None and inputs.rules.queue == kernels.MULTIFACTOR:
            x = state.standing
            x.tier[o], x.tier[j] = x.tier[j], x.tier[o]
            x.score[o], x.score[j] = x.score[j], x.score[o]
            x.bill[o], x.bill[j] = x.bill[j], x.bill[o]
    for k in range(o + 1 - entries[o].rows, o):
        if state.jobs[k].phase == kernels.WAITING:
            leave_queue(inputs, state, int64(k))
            state.jobs[k].phase = kernels.SET_ASIDE
            state.at.ended += 1
    return int(o)


@inlined_kernel
def stand_again(inputs: Inputs, state: State, passes: PassState) -> None:
    """Jobs that lost their nodes, and are not suspended, wait in each of their pools again."""
    at, entries, clock = state.at, passes.known, passes.clock
    if clock.requeued != at.requeues + at.preemptions:
        clock.requeued = at.requeues + at.preemptions
        for k in range(entries.size):
            o = entries[k].job
            back = state.jobs[o].phase == kernels.WAITING and not entries[o].asleep
            if k != o and back and state.jobs[k].phase == kernels.SET_ASIDE:
                entries[k].until = entries[o].until
                enter(inputs, state, int64(k))
                at.ended -= 1
                at.anew = 1  # it may stand in the line still, with an old key
