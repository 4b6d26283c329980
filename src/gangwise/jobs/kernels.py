"""Data of the compiled simulation: records of jobs and nodes, sets of waiting jobs, heaps.

Devices are counted in thousandths (int64), so that books balance exactly. Jobs are rows in the
order of (submission, row of the log); a *shape* is what one task asks for, shared by many jobs; a
*piece* is the tasks of a job on one node (of fractions: on one device of a node).

Kernels take ``inputs``, which do not change; ``state``, which does; and ``beliefs`` about rates
(:mod:`gangwise.jobs.rate_kernels`), None where nothing is believed of them. Parts that a play does
not use are None as well (:func:`gangwise.jobs.compiled.only_used`): what depends on them is not
compiled. Such fields have the type Any.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba.cpython.unsafe import numbers

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.jit import by_reference, inlined_kernel, inner_kernel, lean_kernel

Rows = npt.NDArray[np.void]

# numba knows them; their own types would say too little, or what compiled code has no use for.
int64: Any = np.int64
trailing_zeros: Any = numbers.trailing_zeros

# Phases of a job.
UNSUBMITTED, HELD, WAITING, RUNNING, FINISHED, KILLED, SET_ASIDE, CANCELLED = range(8)

# Queues, backfilling, choices and rates, in the order of their names in `scheduler`.
FCFS, SJF, EDF, PRIORITY, FAIR_SHARE, WFP3, SAF = range(7)
F1, F2, F3, F4, UNICEP, AGED, MULTIFACTOR = range(7, 14)
NO_BACKFILLING, EASY, CONSERVATIVE, SLURM = range(4)
FIRST_FIT, BEST_FIT, WORST_FIT, FGD, BY_RATE, BY_TOPOLOGY = range(6)
ALL_WAYS = 6  # of groups: where neither a choice nor first-fit finds room
LABELS, ORACLE, LEARNED = range(3)

# Events of nodes; of jobs: withdrawn; hours open or close.
DOWN, UP, FACTOR, DRAIN, CANCEL, HOURS = range(6)
# What the feed reports to a scheduler outside; of type int64, for a kernel is compiled anew for
# each literal that it is called with.
ENTERED_QUEUE, HAS_FINISHED, WAS_KILLED, WAS_CANCELLED, HAS_FAILED = map(int64, range(5))
WAS_PREEMPTED, NODE_CAME, NODE_WENT, NODE_DRAINS, MEASURED = map(int64, range(5, 10))
# What a call from outside wants.
ADVANCE, PLACE, PREEMPT, ASK, LOOK_AROUND = range(5)

# Where a waiting job stands: in line, aside for a cap, and no longer in `State.sequence` either.
IN_LINE, ASIDE, DROPPED = range(3)

TAKE, GIVE_BACK = int64(-1), int64(1)
"""Devices are taken, or given back."""
USE_CAP, FREE_CAP = int64(1), int64(-1)
"""A part of a cap is taken, or given back."""
PLAN_TAKES = 1 << 40
"""Added to a job's number where a change of the plan takes devices."""
FRAGMENT_STEP = 40
"""Thousandths of a device: growths of fragments are told apart in such steps."""
BLOCK = 32
"""Nodes whose largest free amounts are kept together."""
UNKNOWN = 1 << 62
"""More devices than there are."""
SEARCHED = 1 << 22
"""Nodes × states² of a search of all ways to place groups, at most."""
DELAYS = 256
"""Refused jobs that are remembered; a power of 2."""
NEVER = np.inf
"""A time that does not come: of what is not planned, not promised, not limited."""


def record(**fields: type) -> np.dtype[np.void]:
    """Fields of one row, those of eight bytes first."""
    return np.dtype(list(fields.items()), align=True)


WORK = record(
    submit=np.float64,
    work=np.float64,  # hidden from every scheduler
    limit=np.float64,
    piece_from=np.int64,  # its pieces are the rows of `State.out` from here on
    tasks=np.int32,
    shape=np.int32,
    type=np.int32,
    user=np.int32,
    rank=np.int32,  # place in a queue whose order does not change
    doomed=np.int32,  # will be killed for its work (limits of work)
    claim=np.int32,  # what it takes of caps, see `Caps`
    hours=np.int32,  # when it may not start, see `Hours`
)
SHAPE = record(
    fraction=np.int64,  # thousandths of one shared device, or 0
    whole=np.int64,  # whole shared devices, or 0
    per_node=np.int64,  # most tasks on one node
    constraint=np.int64,  # row of `ClusterArrays.allowed`
    dominant=np.int64,  # device type of the largest share
    total=np.float64,  # of it in the cluster, thousandths
    pool=np.int64,  # whose nodes alone its tasks may use: row of `ClusterArrays.meets`
    groups=np.int64,  # of unlike tasks, or 0: those of `ClusterArrays.groups` from groups_from on
    groups_from=np.int64,
)
GROUP = record(shape=np.int64, tasks=np.int64)
PROMISE = record(  # EASY: to the first in line of a pool
    time=np.float64,  # when it starts at the latest
    fits=np.int64,  # how many of its tasks fit then
    left=np.int64,  # the same, had the job just tried started
    spare=np.int64,  # of its dominant device type beside it, thousandths; `UNKNOWN` by constraints
)
EVENT = record(time=np.float64, value=np.float64, item=np.int64, kind=np.int64)
RUN = record(
    left=np.float64,  # work to do at `since`
    since=np.float64,
    speed=np.float64,
    begun=np.float64,
    finish=np.float64,
    expect=np.float64,
    overhead=np.float64,
    phase=np.int32,
    attempts=np.int32,
    pieces=np.int32,
    place=np.int32,  # in `State.running` of one that runs; of one that waits, where it stands
)
LOOK = record(
    seen=np.float64,  # rate as the scheduler knows it
    timer=np.float64,  # when it is looked at next: measured, or decided on
    before=np.float64,  # work done before it last moved, as the scheduler knows it
)
RESERVATION = record(
    start=np.float64,  # inf for none
    planned=np.int64,  # `Counters.holes` when it was last planned for
)
CLAIM = record(  # of which jobs were put aside, see `queue_kernels`
    line=np.int64,  # `Counters.line`; else the rest no longer holds
    top=np.int64,  # the first of those aside, −1 for none
    shut=np.int64,  # it is in the list of a counter
    next=np.int64,  # behind it in that list
)
WATCHED = record(line=np.int64, first=np.int64)  # of a counter: claims that it shuts, the same way
BEHIND = record(key=np.float64, left=np.int32, right=np.int32)  # of a job aside: a heap by key
DUE = record(time=np.float64, item=np.int64)
PIECE = record(mask=np.int64, node=np.int32, tasks=np.int32)
CANDIDATE = record(score=np.float64, node=np.int64, fit=np.int64, slot=np.int64)
MEMO = record(  # of a shape: the fewest tasks that did not fit, in which epoch; tasks submitted
    fail_tasks=np.int64, fail_epoch=np.int64, seen=np.int64
)
DELAY = record(  # the like of which was tried and would delay the first in line
    shape=np.int64,
    tasks=np.int64,
    type=np.int64,  # twice the job type, one more where it is short
    change=np.int64,  # `Counters.change` when it was tried
    rate=np.float64,  # that was believed of it there
    promised=np.float64,  # to the job that it would delay
)
USER = record(use=np.float64, rate=np.float64, at=np.float64)
FEED = record(what=np.int64, item=np.int64, first=np.int64, ended=np.int64)
CUT = record(job=np.int64, begun=np.float64, end=np.float64, why=np.int64, first=np.int64)
COUNTERS = record(
    now=np.float64,  # −1 before the first instant
    promised=np.float64,  # EASY: the earliest of what first jobs in line are promised
    origin=np.float64,  # the first submission of all
    planned=np.float64,  # conservative: the start that was just found
    kept=np.float64,  # EASY: the same, if requests are true
    slower=np.float64,  # log slowdown by distance on the pieces tried, as believed
    outlived=np.float64,  # the first expected end that a running job may outlive from now on
    ordered=np.float64,  # multifactor: `FairShareState.clock` as `State.sequence` was put in order
    # sizes
    ends=np.int64,  # of the heap `State.ends`
    timers=np.int64,
    running=np.int64,
    waiting=np.int64,
    fresh=np.int64,  # jobs that joined the queue since the last round
    lined=np.int64,  # multifactor: jobs in `State.sequence`, of which some may have started
    aside=np.int64,  # jobs that wait for a cap, out of the line
    line=np.int64,  # how often all came back, so that none is aside
    entered=np.int64,  # entries of `State.order`, of which some may have ended
    sorted=np.int64,  # how many of them are in order
    cuts=np.int64,
    cut_pieces=np.int64,
    pieces=np.int64,  # of all running jobs
    fed=np.int64,
    fed_rates=np.int64,
    # places
    next_job=np.int64,  # the first that is not submitted yet
    next_event=np.int64,
    lowest=np.int64,  # no word of the set's summary before it holds anything
    first=np.int64,  # the first in line, −1 for none
    # the round
    again=np.int64,  # something changed: all that wait are tried again
    refused=np.int64,  # a job that fits was refused in backfilling since all were last tried
    anew=np.int64,  # multifactor: `State.sequence` is to be filled anew
    looks=np.int64,  # running jobs are looked at in this instant
    half=np.int64,  # events of this instant are taken in, and nothing is decided yet: a forecast
    void=np.int64,  # the plan no longer holds
    holes=np.int64,  # how often something that was planned for was given up
    epoch=np.int64,  # how often devices were given back
    change=np.int64,  # how often free devices or the promise changed
    # what a schedule counts
    ended=np.int64,
    instants=np.int64,
    rounds=np.int64,
    tests=np.int64,
    kills=np.int64,
    requeues=np.int64,
    preemptions=np.int64,
    cancellations=np.int64,
)


@by_reference
class ClusterArrays(NamedTuple):
    """The nodes, and what one task of each shape asks of them.

    Shapes of jobs come first, then those that only groups of them have.
    """

    shapes: Rows  # SHAPE [S]
    demand: Ints  # [S, K] thousandths
    per_task: Floats  # [S, K] one over what a task asks for, 0 where it asks for none
    capacity: Ints  # [N, K]
    largest: Ints  # [K] of the largest node, at least 1
    shared: int  # device type whose devices are told apart, or -1
    devices: Any  # Ints [N] how many of them
    allowed: Bools  # [C, N]
    meets: Bools  # [P, P] two pools share a node; a cluster without pools is one; see `heads`
    groups: Any  # Rows: GROUP


@by_reference
class PlayRules(NamedTuple):
    """Which scheduler is played, and under which options."""

    queue: int
    weight: float  # of a second's wait in the order that ages
    keyed: bool  # keys depend on the time, on use, or on what is expected
    shortest: bool  # those who may pass are tried shortest first
    slack: float  # seconds by which who is first in line may be delayed; inf: any
    backfilling: int
    anew: bool  # conservative: planned anew in every round, as Kamelot does
    security: float  # seconds that a plan adds to each limit
    choice: int
    rates: int
    waits: bool
    depth: int  # waiting jobs that backfilling looks at
    half_life: float  # of use in fair-share
    look: float  # seconds between looks at migration; inf for none
    enforced: bool  # jobs are killed at their limit
    limits_of_work: bool
    checkpoint: float  # seconds of work between checkpoints; what came after is lost in a failure
    restart: float  # seconds that a restart costs
    measured_after: float
    latency: float  # seconds from a decision to the start


@by_reference
class Caps(NamedTuple):
    """What jobs take of caps: those of claim c, amounts from starts[c] to starts[c + 1]."""

    starts: Ints
    counter: Ints
    amount: Ints  # thousandths
    most: Ints  # that the counter may reach


@by_reference
class Hours(NamedTuple):
    """Jobs of class c do not start from since[i] to to[i], i from starts[c] to starts[c + 1]."""

    starts: Ints
    since: Floats
    to: Floats


@by_reference
class Inputs(NamedTuple):
    """All that does not change: jobs, nodes, what happens to them, and rules."""

    rules: PlayRules
    cluster: ClusterArrays
    least: Ints  # [K] what the smallest task of all jobs asks
    caps: Any  # Caps
    hours: Any  # Hours
    jobs: Rows  # WORK [J]
    by_rank: Ints
    next: Ints  # jobs that come after others: those after job j from next_from[j] on
    next_from: Ints  # [J + 1] or [0]
    events: Rows  # EVENT, in order of time
    labels: Floats  # [L, N] logarithms of declared rates
    rates: Floats  # [L, N] true ones, hidden; [0, 0] where all are 1
    log_rates: Floats  # their logarithms
    noise: Floats  # [J] or [0]
    distance: Any = None  # distance.Apart
    topology: Any = None  # distance.Topology


@by_reference
class FreeDevices(NamedTuple):
    """Free devices: those of now, or what is planned."""

    free: Ints  # [N, K]
    device: Ints  # [N, D] free of each shared device
    top: Ints  # [blocks, K] largest free amount in a block; above all amounts where not kept


@by_reference
class Ageing(NamedTuple):
    """Limits of how many waiting jobs age at once; what jobs take of them is as in `Caps`."""

    caps: Caps
    claim: Ints  # [J]
    used: Ints  # by counter
    line: Ints  # [J] jobs that wait and do not age yet, in the order of submission
    size: Ints  # [1] how many


@by_reference
class FairShareState(NamedTuple):
    """Multifactor priority: weights, what jobs add, and a tree of A nodes with L leaves."""

    age: float  # weight
    fair_share: float  # weight
    max_age: float
    period: float  # seconds between two computations
    decay: float  # of use, per second
    classic: bool
    damping: float
    tier: Ints  # [J] of its pool, from 0
    score: Floats  # [J] of size, pool, QOS, TRES and the job's own priority, weighted
    leaf: Ints  # [J] whom its use is charged to
    bill: Floats  # [J] use per second
    eligible: Floats  # [J] since when a job ages; changes
    parent: Ints  # [A]
    share: Floats  # [A] of the shares of its siblings and its own
    path: Ints  # [A, D] nodes from below the root down to a leaf, −1 behind it
    resets: Floats  # times at which all use is forgotten
    # what changes
    least: Floats  # [J] the highest priority so far, where none ever falls; else [0]
    clock: Floats  # [1] when priorities were computed last
    use: Floats  # [A] of a leaf, as of `since`
    rate: Floats  # [A] of a leaf: use per second
    since: Floats  # [A]
    total: Floats  # [A] use as of `clock`, with that of all below
    level: Floats  # [A] fair tree: share / use among siblings; classic: effective use
    factor: Floats  # [A] of a leaf: fair share from 0 to 1
    order: Ints  # [L] leaves, highest level first
    ageing: Any  # Ageing; None: every job ages from when it is eligible


@by_reference
class Ways(NamedTuple):
    """Work space of a search for room for groups, see :func:`fit_kernels.search`; of S states."""

    behind: Ints  # [N + 1, S] most tasks of the main group on the nodes from here on; −1: no way
    chosen: Ints  # [N, 2] state, and tasks of the main group


@by_reference
class State(NamedTuple):
    """Everything that changes during a simulation."""

    at: Any  # COUNTERS
    # nodes
    room: FreeDevices  # free now
    total: Ints  # [K] free in all
    up: Bools
    factor: Floats  # [N] of the rates now
    log_factor: Floats
    # jobs
    jobs: Rows  # RUN [J]
    start: Floats  # [J] of the first attempt, inf for none
    end: Floats  # [J] NaN for none
    lost: Floats  # [J] device-seconds
    promised: Floats  # [J] earliest promise made while first in line, inf for none
    kept: Any  # Floats [J] the latest start kept for it, inf for none; [0] where none are
    wants: Ints  # [J] or [0]: how many jobs it still comes after
    looks: Rows  # LOOK [J] where rates are learned or limits are of work
    plans: Any  # Rows: RESERVATION [J] where every job holds one
    times: Any  # RunTimes: what is expected of run times; of no jobs where requests are believed
    out: Rows  # PIECE, those of job j from Inputs.jobs[j].piece_from on
    # order
    words: Ints
    summary: Ints
    ends: Rows  # DUE
    timers: Rows  # DUE
    running: Ints  # in no order
    order: Rows  # DUE: running jobs by expected end, those just started behind
    fresh: Ints
    sequence: Rows  # DUE: jobs by a key
    spare_rows: Rows  # DUE
    users: Any  # Rows: USER
    # Of each pool its first job in line that cannot start, −1 for none: [P], or [2 P] where hours
    # close: behind those of open jobs those of closed ones.
    heads: Ints
    # PROMISE [heads]: when running jobs end as expected; behind these, where starts are kept, as
    # many: when they end as requested.
    promises: Rows
    used: Ints  # of each counter of caps, thousandths
    watched: Rows  # WATCHED, of each counter of caps
    claims: Rows  # CLAIM, of each, or [0] without caps
    behind: Rows  # BEHIND [J] or [0] without caps
    # what is tried
    tried: Rows  # PIECE
    grouped: Rows  # PIECE, of the groups of a job placed so far
    ways: Ways
    cands: Rows  # CANDIDATE
    heap: Rows  # DUE [N]
    memo: Rows  # MEMO [S]
    delays: Rows  # DELAY [DELAYS], at places made of their keys
    mean: Floats  # [N] log rate of the job that is tried
    sd: Floats
    spare: Floats
    worth: Floats
    # EASY: what is free at the time of each promise. Conservative: as planned, 0 now, 1 at the
    # instant looked at.
    shadow: FreeDevices
    ahead: FreeDevices  # throughout the limit of a job from then on
    trial: FreeDevices
    # DUE: when devices are given back (item j) or taken (PLAN_TAKES + j), as requested.
    changes: Rows
    profile: Ints  # [changes + 1, K] free in all after each change
    rated: Ints
    log_rates: Floats
    # attempts that were cut short
    cuts: Rows  # CUT
    cut_pieces: Rows  # PIECE
    standing: Any  # FairShareState: multifactor priorities
    # what is reported outside of the last call; [0] where compiled code decides
    feed: Rows  # FEED
    fed_rates: Floats


# -------------------------------------------------------------------------------------- filling


@lean_kernel
def fill_work(
    rows: Rows,
    columns: tuple[Floats, Floats, Floats, Ints, Ints, Ints, Ints, Bools, Bools],
    pieces: Ints,
    sizes: Ints,
    by_rank: Ints,
    most: int,
) -> int:
    """Fill rows in one pass over them, which costs less than a pass for each field.

    ``columns``: submit, work, limit, tasks, shape, type, user, doomed, aside; of tasks, shape, type
    and user one value may stand for all. ``pieces``: how many a job of each shape may have, and
    ``sizes``, for how many tasks one of it stands. Gives the number of pieces of all jobs.
    """
    submit, work, limit, tasks, shape, types, user, doomed, aside = columns
    at = int64(0)
    for j in range(rows.size):
        c = shape[j if shape.size > 1 else 0]
        count = tasks[j if tasks.size > 1 else 0]
        rows[j].submit = submit[j]
        rows[j].work = work[j]
        rows[j].limit = limit[j]
        rows[j].piece_from = at
        # More tasks than int32 holds fit on no cluster; the number must not wrap round.
        rows[j].tasks = min(count, most)
        rows[j].shape = c
        rows[j].type = types[j if types.size > 1 else 0]
        rows[j].user = user[j if user.size > 1 else 0]
        rows[j].doomed = doomed[j]
        if not aside[j]:
            at += min(count * sizes[c], pieces[c])
    # A rank is the inverse of `by_rank`.
    for i in range(by_rank.size):
        rows[by_rank[i]].rank = i
    return int(at)


@inlined_kernel
def devices_of(inputs: Inputs, j: int) -> int:
    """Thousandths of devices of its dominant type that all tasks of job j ask for."""
    s = int64(inputs.jobs[j].shape)
    return int(inputs.jobs[j].tasks * inputs.cluster.demand[s, inputs.cluster.shapes[s].dominant])


@inlined_kernel
def length(inputs: Inputs, state: State, j: int) -> float:
    """Seconds that job j takes, as far as the scheduler believes: as expected, or as requested."""
    if state.times is not None and state.times.expected.size > 0:
        return float(state.times.expected[j])
    return float(inputs.jobs[j].limit)


@inlined_kernel
def opens(inputs: Inputs, j: int, time: float) -> float:
    """The first time from then on at which job j may start, as far as closed hours go."""
    if inputs.hours is None or inputs.hours.since.size == 0:
        return time
    c = inputs.jobs[j].hours
    low, high = inputs.hours.starts[c], inputs.hours.starts[c + 1]
    while low < high:  # the first that begins later
        middle = (low + high) >> 1
        if inputs.hours.since[middle] <= time:
            low = middle + 1
        else:
            high = middle
    if low > inputs.hours.starts[c] and time < inputs.hours.to[low - 1]:
        return float(inputs.hours.to[low - 1])
    return time


@inlined_kernel
def count_caps(inputs: Inputs, state: State, j: int, sign: int) -> None:
    """Job j takes its part of its caps, or gives it back."""
    if inputs.caps is None or inputs.caps.most.size == 0:
        return
    c = inputs.jobs[j].claim
    for i in range(inputs.caps.starts[c], inputs.caps.starts[c + 1]):
        state.used[inputs.caps.counter[i]] += sign * inputs.caps.amount[i]


@inlined_kernel
def pool_of(inputs: Inputs, j: int) -> int:
    """The pool of job j, among those of all shapes."""
    if inputs.cluster.meets.size == 1:
        return 0
    return int(inputs.cluster.shapes[inputs.jobs[j].shape].pool)


@inlined_kernel
def room_of(rooms: FreeDevices, i: int) -> FreeDevices:
    """Free devices i of several."""
    return FreeDevices(rooms.free[i], rooms.device[i], rooms.top)


@inlined_kernel
def report(state: State, what: int, item: int) -> None:
    """Count what happened to a job or a node, and enter it into the feed, where there is one."""
    if state.feed.size > 0:
        state.feed[state.at.fed].what = what
        state.feed[state.at.fed].item = item
    # Counted without a feed as well: the caller learns how much happened.
    state.at.fed += 1


@inlined_kernel
def put_piece(pieces: Rows, i: int, node: int, tasks: int, mask: int) -> None:
    """Make these tasks on a node piece i."""
    pieces[i].node = node
    pieces[i].tasks = tasks
    pieces[i].mask = mask


# ---------------------------------------------------------------------------------------- sets


@inlined_kernel
def insert(words: Ints, summary: Ints, at: Any, i: int) -> None:
    """Put i into a set of whole numbers: one bit each, and one bit for every 64 of them."""
    w = i >> 6
    # A shift by i & 63: the place of the bit within its word.
    words[w] |= int64(1) << (i & 63)
    summary[w >> 6] |= int64(1) << (w & 63)
    at.lowest = min(at.lowest, w >> 6)


@inlined_kernel
def remove(words: Ints, summary: Ints, i: int) -> None:
    w = i >> 6
    words[w] &= ~(int64(1) << (i & 63))
    if words[w] == 0:
        summary[w >> 6] &= ~(int64(1) << (w & 63))


@inlined_kernel
def following(words: Ints, summary: Ints, at: Any, i: int) -> int:
    """Smallest element ≥ i, or −1."""
    w = i >> 6
    if w >= words.size:
        return -1
    # Bits below i are masked out; −1 << k has all bits from k on.
    bits = words[w] & (int64(-1) << (i & 63))
    if bits != 0:
        return int((w << 6) + trailing_zeros(bits))
    w += 1
    v = w >> 6
    if v >= summary.size:
        return -1
    bits = summary[v] & (int64(-1) << (w & 63))
    # Words below `lowest` are empty for sure, so the search may start there.
    if v < at.lowest:
        v = at.lowest
        bits = summary[v] if v < summary.size else int64(0)
    while bits == 0:
        v += 1
        if v >= summary.size:
            return -1
        bits = summary[v]
    w = (v << 6) + trailing_zeros(bits)
    return int((w << 6) + trailing_zeros(words[w]))


@inlined_kernel
def smallest(words: Ints, summary: Ints, at: Any) -> int:
    """Smallest element, or −1."""
    while at.lowest < summary.size and summary[at.lowest] == 0:
        at.lowest += 1
    if at.lowest >= summary.size:
        # One short of the end: `insert` lowers it again, and `following` may read it.
        at.lowest = summary.size - 1
        return -1
    # A summary word stands for 64 words of 64 elements: 2¹².
    return following(words, summary, at, at.lowest << 12)


# --------------------------------------------------------------------------------- heaps, sorting


@inlined_kernel
def earlier(rows: Rows, i: int, time: float, item: int) -> bool:
    """Row i comes before (time, item)."""
    return bool(rows[i].time < time or (rows[i].time == time and rows[i].item < item))


@inlined_kernel
def put(rows: Rows, i: int, time: float, item: int) -> None:
    """Make (time, item) row i."""
    rows[i].time = time
    rows[i].item = item


@inlined_kernel
def enter_row(rows: Rows, low: int, high: int, time: float, item: int) -> None:
    """Put (time, item) into the sorted rows[low:high], which become one more."""
    # From behind: rows that come last are moved least.
    i = high
    while i > low and not earlier(rows, i - 1, time, item):
        put(rows, i, rows[i - 1].time, rows[i - 1].item)
        i -= 1
    put(rows, i, time, item)


@inlined_kernel
def push(heap: Rows, size: int, time: float, item: int) -> int:
    """Add to a binary heap by (time, item); gives its new size."""
    i = size
    while i > 0:
        # The new row rises into the hole until its parent is earlier.
        p = (i - 1) >> 1
        if earlier(heap, p, time, item):
            break
        put(heap, i, heap[p].time, heap[p].item)
        i = p
    put(heap, i, time, item)
    return size + 1


@inlined_kernel
def pop(heap: Rows, size: int) -> int:
    """Drop the first of the heap; gives its new size."""
    size -= 1
    time = heap[size].time
    item = heap[size].item
    i = 0
    while True:
        c = 2 * i + 1
        if c >= size:
            break
        if c + 1 < size and earlier(heap, c + 1, heap[c].time, heap[c].item):
            c += 1
        # The hole sinks to where the last row may stand.
        if not earlier(heap, c, time, item):
            break
        put(heap, i, heap[c].time, heap[c].item)
        i = c
    put(heap, i, time, item)
    return size


@inner_kernel
def merge(rows: Rows, spare: Rows, low: int, middle: int, high: int) -> None:
    """Merge two sorted runs of rows, each by (time, item); from behind, as the second is short."""
    for i in range(middle, high):
        put(spare, i, rows[i].time, rows[i].item)
    # Only the right run is copied, and the left one is moved as far as anything of it comes later.
    a, b = middle - 1, high - 1
    while b >= middle:
        if a >= low and not earlier(rows, a, spare[b].time, spare[b].item):
            put(rows, a + b - middle + 1, rows[a].time, rows[a].item)
            a -= 1
        else:
            put(rows, a + b - middle + 1, spare[b].time, spare[b].item)
            b -= 1


@inner_kernel
def merge_sort(rows: Rows, spare: Rows, low: int, high: int) -> None:
    """Sort rows[low:high] by (time, item)."""
    # Insertion sort of short runs: cheaper than merging, and rows are often nearly in order.
    for start in range(low, high, 16):
        for i in range(start + 1, min(start + 16, high)):
            enter_row(rows, start, i, rows[i].time, rows[i].item)
    width = 16
    while width < high - low:
        for start in range(low, high - width, 2 * width):
            middle = start + width
            # Runs that are in order already are not merged.
            if not earlier(rows, middle - 1, rows[middle].time, rows[middle].item):
                merge(rows, spare, start, middle, min(start + 2 * width, high))
        width *= 2
