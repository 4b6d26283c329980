"""Waiting by cause: the hours that jobs waited, split by what kept them from starting.

A cause is a property of a schedule, whatever made it: of what ran where and when, who waited, and
the rules of the site. One sweep goes over the instants at which something changed. Between two of
them all waiting jobs that ask for the same have the same cause, the first of this list that holds:

=============  ===================================================================================
after          a job that it comes after has not left
closed         its hours are closed
cap            a cap of its user, account, pool or QOS, of an array or of all is reached
away           it would fit if the nodes were up that are down, drained or in a window
reservation    it would fit, or run on, only on nodes that are reserved for others
partition      it would fit on nodes outside its partition
beside         enough of its main device type is free, without the rest: GPUs without memory
pieces         as much of it is free as it asks for, in pieces in which not all of its tasks fit
busy           less of it is free than it asks for, on the nodes that it may use
overtaken      the same, and it would be enough without jobs that were submitted later
kept           it fits, and would still run, as long as requested, when another that waits starts
unseen         it fits, and would have ended before any other that waits starts: it delays none
unsplit        it fits by amounts, and asks for what is not looked at: see below
latency        it has its nodes, and its start takes time
=============  ===================================================================================

The main device type is the one of which the cluster has fewest, of those that a job asks for.

So *overtaken* and *kept* are others who come first, and *unseen* is what backfilling without bound
takes up: with EASY and requests that hold it is 0, and what deeper backfilling saves is at least
this. *busy* and *overtaken* are charged to those who held the devices meanwhile, by share; *kept*
to the job that does not fit yet and starts first.

Not looked at are which part of a shared device is free, Kueue's quotas, and of Slurm numbers of
nodes and features in brackets: jobs that ask for these and fit by amounts are *unsplit*.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Bools, Floats, Ints, numbered
from gangwise.core.errors import ScenarioError
from gangwise.jobs import waiting_kernels as sweep_rows
from gangwise.jobs.kernels import SET_ASIDE, ClusterArrays, FreeDevices, Hours, Rows
from gangwise.jobs.metrics import Outcome, Pieces, jobs_as_rows
from gangwise.jobs.model import ALONE, Conditions, Jobs, Nodes, Shape, terms_of
from gangwise.jobs.schedule import Claims, Options, cluster_of, no_ways, placed_shapes
from gangwise.jobs.tenancy import Cap, Opening, allowed_on, claims, of_arrays
from gangwise.jobs.waiting_kernels import CAUSES, LATENCY, Sweep, sweep_waits


@dataclass(frozen=True, eq=False)
class WaitingCauses:
    """Seconds that jobs waited, by cause, and who or what it was.

    Attributes
    ----------
    queued : ndarray [J]
        Jobs that started, submitted while the log lasted: those whose wait counts.
    seconds : ndarray [J, causes]
        In the order of :data:`CAUSES`; the sum is the wait. 0 for jobs that did not wait, never
        started, or ran already when the log begins.
    caps : mapping
        A cap, in words → seconds of waiting for it.
    owner : ndarray [J]
        Row of ``holders`` and ``kept_for`` of each job's user and account.
    holders : ndarray [owners]
        Seconds of ``busy`` and ``overtaken`` while jobs of the owner held the devices, by share.
    kept_for : ndarray [owners]
        Seconds of ``kept`` for jobs of the owner.

    Examples
    --------
    >>> from gangwise.jobs import Jobs, Nodes, simulate_jobs
    >>> jobs = Jobs.of(submit=[0, 1, 2], run=[10, 10, 5], tasks=[3, 2, 1], limit=[10, 10, 5])
    >>> outcome = Outcome.of(simulate_jobs(jobs, Nodes.pool(4), "fcfs+none"), "fcfs+none")
    >>> waiting_causes(outcome).total
    {'busy': 9.0, 'unseen': 8.0}
    """

    jobs: Jobs
    queued: Bools
    seconds: Floats
    caps: Mapping[str, float]
    owner: Ints
    holders: Floats
    kept_for: Floats

    @property
    def total(self) -> dict[str, float]:
        """Seconds of all jobs by cause, those that occur."""
        sums = self.seconds.sum(axis=0).tolist()
        return {cause: total for cause, total in zip(CAUSES, sums) if total}

    def by(self, group: Ints, groups: int) -> Floats:
        """Seconds by group [groups, causes], of the ``group`` of each job [J]; −1 for none."""
        rows = group >= 0
        columns = self.seconds[rows].T
        return np.array([np.bincount(group[rows], of, groups) for of in columns]).T

    def charged(self, seconds: Floats, account: bool = False) -> dict[str, float]:
        """``holders`` or ``kept_for`` by user, or by account, the most first."""
        names = self.jobs.accounts if account else self.jobs.users
        codes = np.broadcast_to(self.jobs.charged if account else self.jobs.user, self.owner.shape)
        of_owner = np.zeros(seconds.size, dtype=np.int64)
        of_owner[self.owner] = codes
        by_name = np.bincount(of_owner, seconds, len(names))
        most = np.argsort(-by_name, kind="stable")
        return {names[i]: float(by_name[i]) for i in most.tolist() if by_name[i] > 0}


def waiting_causes(
    outcome: Outcome, conditions: Conditions | None = None, options: Options | None = None
) -> WaitingCauses:
    """Split the wait of every job of an outcome by cause.

    ``conditions`` and ``options`` are those under which it came about; of conditions nodes that
    fail, drain and come back count. ScenarioError where it is not known where jobs ran, see
    :func:`placed_as_recorded`.
    """
    jobs, pieces = outcome.jobs, outcome.pieces
    if pieces is None:
        raise ScenarioError(f"{outcome.name}: it is not known on which nodes jobs ran")
    options, hidden = options or Options(), conditions or Conditions()
    options = replace(options, caps=(*options.caps, *of_arrays(jobs)))
    ready, J = _ready(outcome, hidden), len(jobs)
    first_held = np.full(J, np.inf)
    # The first hold of devices ends the wait; later attempts have none of their own.
    np.minimum.at(first_held, pieces.job, pieces.held)
    waiting = np.flatnonzero(outcome.queued & (first_held > ready) & np.isfinite(first_held))
    # One number for each pair of user and account: both are charged from it.
    owner = numbered(np.broadcast_to(jobs.user * len(jobs.accounts) + jobs.charged, (J,)))[1]
    sweep, names = _opened(outcome, hidden, options, owner, (waiting, ready, first_held))
    sweep_waits(sweep)
    caps: dict[str, float] = {}
    for name, of_cap in zip(names, sweep.of_cap.tolist()):
        if of_cap > 0:
            caps[name] = caps.get(name, 0.0) + of_cap
    of = (sweep.split, caps, owner, sweep.holders, sweep.kept_for)
    return WaitingCauses(jobs, outcome.queued, *of)


def _ready(outcome: Outcome, hidden: Conditions) -> Floats:
    """When each job could first start [J]: once it is submitted and those before it have left."""
    jobs = outcome.jobs
    if not jobs.after.size:
        return jobs.submit
    gone = np.where(np.isnan(outcome.end), np.inf, outcome.end)
    withdrawn = np.array(jobs.withdrawn)
    for t, j in hidden.cancels:
        withdrawn[j] = min(withdrawn[j], t)
    gone = np.minimum(gone, withdrawn)
    if outcome.phase is not None:
        gone[outcome.phase == SET_ASIDE] = -np.inf  # nothing waits for what is not played
    ready = np.array(jobs.submit)
    # Of several predecessors the last to leave counts.
    np.maximum.at(
        ready, np.repeat(np.arange(len(jobs)), np.diff(jobs.after_from)), gone[jobs.after]
    )
    return ready


def _opened(
    outcome: Outcome,
    hidden: Conditions,
    options: Options,
    owner: Ints,
    spans: tuple[Ints, Floats, Floats],
) -> tuple[Sweep, list[str]]:
    """A sweep before its first instant, of rows and all jobs' spans, and the names of caps."""
    jobs, nodes, (rows, since, start) = outcome.jobs, outcome.nodes, spans
    held, made = cast(Pieces, outcome.pieces), cast(Any, Sweep)  # one field a line below
    shapes = placed_shapes(jobs, nodes)
    cluster = cluster_of(nodes, shapes, int(jobs.sizes.max(initial=1)), bool(options.closed))
    of_caps = claims(options.caps, jobs, nodes, cluster.demand)
    limits = Claims.of(options.caps, of_caps, len(jobs))
    hours = Opening.of(options.closed, jobs, nodes, cluster.demand)
    every = [*shapes, *dict.fromkeys(part for shape in shapes for _, part in shape.groups)]
    # Of the types that it asks for, the one of which there are fewest: GPUs, then cores.
    counts = np.array([name != ALONE for name in nodes.devices])
    fewest = np.where((cluster.demand > 0) & counts, nodes.capacity.sum(axis=0), np.inf)
    own = nodes.devices.index(ALONE) if ALONE in nodes.devices else None
    alone = np.zeros(len(every)) if own is None else cluster.demand[:, own] > 0
    needs = _table(sweep_rows.NEED, main=np.argmin(fewest, axis=1), alone=alone)[:-1]
    claim, of_hours = (np.broadcast_to(c, since.shape) for c in (limits.of_job, hours.of_job))
    unsplit = _unsplit(outcome, options, shapes)
    kinds, kind, order = _kinds(jobs, rows, (claim, of_hours, unsplit), (cluster, needs["main"]))
    w_of = _inverse(order)
    by_since, by_start = (np.argsort(time[rows], kind="stable") for time in (since, start))
    attempts = _attempts(held, rows, w_of, start[rows], (since[rows][by_since], by_since))
    by_since, by_start = w_of[by_since], w_of[by_start]
    waits = _table(sweep_rows.WAIT, kind=kind, start=start[rows[order]], turn=_inverse(by_start))
    places = dict.fromkeys((shape.constraint, shape.pool) for shape in every)
    labelled = [allowed_on(nodes, Shape((), 0, labels)) for labels, _ in places]
    member = [nodes.of_pool(name) for name in dict.fromkeys(shape.pool for shape in every)]
    (N, K), S, W, Q = cluster.capacity.shape, len(every), rows.size, kinds.size
    # M companies: one for each partition and device type.
    M, owners = len(member) * K, int(owner.max(initial=-1)) + 1
    bits = (held.job.size >> 6) + 1, (held.job.size >> 12) + 1
    untold = cluster.shapes.copy()  # devices are not told apart
    untold["fraction"] = untold["whole"] = 0
    sweep = made(
        cluster._replace(shapes=untold, devices=np.zeros(len(nodes), dtype=np.int64)),
        limits.caps,
        Hours(hours.starts, hours.since, hours.to),
        np.array(labelled, dtype=bool).reshape(len(places), N),
        np.array(member, dtype=bool).reshape(len(member), N),
        cluster.allowed.all(axis=1),
        kinds,
        waits,
        rows[order],
        jobs.limit,
        by_since,
        np.append(by_start, rows.size),
        *attempts,
        held.node,
        # Whole thousandths, so that taking and giving back cancel exactly.
        np.rint(1000 * outcome.per_piece * held.tasks[:, None]).astype(np.int64),
        np.ascontiguousarray(claim),
        owner,
        *(np.zeros(size, dtype=np.int64) for size in (*bits, (held.job.size, K))),
        _changes(nodes, hidden, options, hours, float(waits["start"][:-1].max(initial=0.0))),
        needs,
        _table(sweep_rows.NODE, up=np.ones(N))[:-1],
        np.zeros((S, N), dtype=sweep_rows.FIT),
        cluster.capacity.copy(),
        *(FreeDevices(*(np.zeros((N, d), dtype=np.int64) for d in (K, 0, K))) for _ in range(2)),
        no_ways(cluster),
        *(np.zeros(shape, dtype=np.int64) for shape in (N, max(limits.counters, 1), Q, S)),
        np.zeros(1, dtype=sweep_rows.SIZES),
        np.zeros((Q, LATENCY)),
        *(np.zeros(W, dtype=np.int64), np.zeros((W, 2)), np.zeros(W), np.zeros((W, 2))),
        np.zeros(M, dtype=sweep_rows.COMPANY),
        *(jobs.submit, since, start, outcome.start, outcome.queued),
        np.zeros((since.size, len(CAUSES))),
        np.zeros(max(limits.counters, 1)),
        *(np.zeros(owners) for _ in range(2)),
    )
    return sweep, _cap_names(options.caps, of_caps, jobs)


def _table(kind: np.dtype[np.void], /, **columns: npt.ArrayLike) -> Rows:
    """Rows of these columns, and one behind them whose times are inf."""
    table = np.zeros(np.size(next(iter(columns.values()))) + 1, dtype=kind)
    for name, column in columns.items():
        table[name][:-1] = column
    # Times behind the last are inf, so that loops need no test for the end.
    for name in kind.names or ():
        if kind[name].kind == "f":
            table[name][-1] = np.inf
    return table


def _unsplit(outcome: Outcome, options: Options, shapes: Sequence[Shape]) -> Bools:
    """Whether the place of a job that fits by amounts depends on what is not looked at [J]."""
    nodes = outcome.nodes
    shared = None if nodes.shared is None else nodes.devices.index(nodes.shared)
    # Only these schedulers go by quotas, features in brackets and numbers of nodes.
    strict = outcome.name.startswith(("slurm", "kueue", "as it happened"))

    def beyond(shape: Shape) -> bool:
        parts = [part for _, part in shape.groups] or [shape]
        fractions = shared is not None and any(0 < part.demand[shared] < 1000 for part in parts)
        placed = any(shape.nodes) or any({*"*["} & {*name} for name, _ in shape.constraint)
        return fractions or (strict and (placed or bool(options.tenancy.quotas)))

    return np.array([beyond(shape) for shape in shapes], dtype=bool)[outcome.jobs.shape]


def _kinds(
    jobs: Jobs, rows: Ints, of_jobs: tuple[Ints, Ints, Bools], asked: tuple[ClusterArrays, Ints]
) -> tuple[Rows, Ints, Ints]:
    """Kinds of the jobs that wait, those of each in their order of kind and row, and this order."""
    (cluster, main), shape, tasks = asked, jobs.shape[rows], jobs.tasks[rows]
    named = np.array(["reservation" in terms_of(text) for text in jobs.terms])[jobs.term]
    # Thousandths of the main device type that all tasks ask for.
    ask = tasks * cluster.demand[shape, main[shape]]
    names = "ask", "shape", "tasks", "claim", "hours", "unsplit", "exempt"
    of_waits = (column[rows].astype(np.int64) for column in (*of_jobs, named))
    columns = dict(zip(names, (ask, shape, tasks, *of_waits)))
    kind = np.zeros(rows.size, dtype=np.int64)
    # Kinds that use the same nodes and type stand together, those that ask for less before others.
    for column in (cluster.shapes["constraint"][shape], main[shape], *columns.values()):
        different, place = numbered(column)
        if different.size > 1:
            kind = numbered(kind * different.size + place)[1]
    # Small numbers are sorted at a tenth of the time.
    order = np.argsort(kind.astype(np.min_scalar_type(int(kind.max(initial=0)))), kind="stable")
    kind = kind[order]
    edges = np.searchsorted(kind, np.arange(int(kind.max(initial=-1)) + 2))
    columns = {name: column[order][edges[:-1]] for name, column in columns.items()}
    kinds = _table(sweep_rows.KIND, first=edges[:-1], past=edges[1:], **columns)[:-1]
    return kinds, kind, order


def _inverse(order: Ints) -> Ints:
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return place


def _attempts(
    pieces: Pieces, rows: Ints, w_of: Ints, start: Floats, waits: tuple[Floats, Ints]
) -> tuple[Any, ...]:
    """Attempts as of :class:`.Sweep`, the order of those that count in a wait or end one, and when.

    ``rows`` are those of jobs that wait, ``w_of`` and ``start`` their waits and when these end;
    ``waits`` are since when they do, and their order.
    """
    # Pieces of an attempt stand together.
    begins = (np.diff(pieces.job, prepend=-1) != 0) | (np.diff(pieces.begin, prepend=-1.0) != 0)
    # Rows from the latest to the earliest: `_part` walks from the newest job back.
    at = np.flatnonzero(begins)
    past = np.append(at[1:], pieces.job.size)[::-1].copy()
    at = at[::-1].copy()
    row, held, end = pieces.job[at], pieces.held[at], pieces.end[at]
    if (np.diff(row) > 0).any():  # those that were cut short come last
        order = np.argsort(-row, kind="stable")
        at, past, row = at[order], past[order], row[order]
        held, end = held[order], end[order]
    # The attempt that ends the wait is the first of its job, of several at once the first row.
    place = np.full(int(row.max(initial=-1)) + 1, -1)
    place[rows] = np.arange(rows.size)
    mine = place[row]
    ends = np.flatnonzero((mine >= 0) & (held == np.append(start, np.inf)[mine]))
    attempt, wait = np.empty(rows.size, dtype=np.int64), np.full(row.size, -1)
    attempt[mine[ends]] = ends
    wait[attempt] = w_of
    # Spans in which some job waits; what runs only between them changes no cause.
    sinces, order = np.append(waits[0], np.inf), waits[1]
    # The latest start of all waits that began so far: a gap before the next means nobody waits.
    until = np.maximum.accumulate(np.append(start[order], np.inf))
    opens = np.flatnonzero(sinces > np.append(-np.inf, until[:-1]))
    span = np.searchsorted(until[np.append(opens[1:], sinces.size) - 1], held)
    counted = np.flatnonzero(sinces[opens][span] < end)[::-1]
    by_begin = counted[np.argsort(held[counted], kind="stable")]  # nearly in order
    by_end = counted[np.argsort(end[counted])]
    times = (np.append(time, np.inf) for time in (held[by_begin], end[by_end]))
    return held, end, row, at, past, wait, by_begin, by_end, *times, sinces


def _changes(
    nodes: Nodes, hidden: Conditions, options: Options, hours: Opening, end: float
) -> Rows:
    """When nodes go, come and are reserved, and hours open and close, up to an end."""
    place = {name: n for n, name in enumerate(nodes.names)}
    happens = [(t, sweep_rows.NODE_GOES, n) for t, n in (*hidden.downs, *hidden.drains)]
    happens += [(t, sweep_rows.NODE_COMES, n) for t, n in hidden.ups]
    for reservation in options.tenancy.reservations:
        for n in (place[name] for name in reservation.on if name in place):
            happens.append((reservation.begin, sweep_rows.RESERVATION_BEGINS, n))
            happens.append((reservation.end, sweep_rows.RESERVATION_ENDS, n))
    times = np.unique([*hours.since, *hours.to])
    happens += [(t, sweep_rows.HOURS_CHANGE, 0) for t in times[times <= end].tolist()]
    happens = sorted(row for row in happens if np.isfinite(row[0]))
    at, what, node = np.array(happens).reshape(-1, 3).T
    begins = np.where(what == sweep_rows.RESERVATION_BEGINS, at, np.inf)
    return _table(
        sweep_rows.CHANGE,
        at=at,
        what=what,
        node=node,
        # Reversed running minimum: the next reservation from each change on.
        reserves=np.minimum.accumulate(begins[::-1])[::-1],
    )


def _cap_names(
    caps: Sequence[Cap], of_caps: list[tuple[Ints, Ints, Bools]], jobs: Jobs
) -> list[str]:
    """What each counter of :meth:`.Claims.of` allows, in words."""
    of_scope = {"user": jobs.users, "account": jobs.accounts, "pool": jobs.pools, "qos": jobs.qoses}
    names: list[str] = []
    for cap, (counter, _, _) in zip(caps, of_caps):
        size = int(counter.max(initial=-1)) + 1
        arrays = dict.fromkeys(filter(None, (cap.of_array(text) for text in jobs.terms)))
        whose = [*arrays] if cap.scope == "array" else of_scope.get(cap.scope, ("",))
        names += [cap.describe(whose[i]) for i in range(size)]
    return names


def placed_as_recorded(
    outcome: Outcome, host_from: Ints | None = None, host: Ints | None = None
) -> Outcome:
    """A recorded outcome with its pieces, where the log says on which nodes jobs ran.

    Job j ran on ``host[host_from[j]:host_from[j + 1]]``, its tasks spread evenly; where there is
    one node, that is known. ScenarioError where it is not.
    """
    jobs = outcome.jobs
    ran = np.flatnonzero(outcome.ended)
    if len(outcome.nodes) == 1:
        rows, place, count = ran, np.zeros(ran.size, dtype=np.int64), np.ones(ran.size, np.int64)
        node = place
    elif host is None or host_from is None or not host.size:
        raise ScenarioError(f"{outcome.name}: the log does not say on which nodes jobs ran")
    else:
        ran = ran[np.diff(host_from)[ran] > 0]
        count = np.diff(host_from)[ran]
        index, of_ran = jobs_as_rows(host_from[ran], count)
        rows, node = ran[of_ran], host[index]
        place = np.arange(rows.size) - np.repeat(np.cumsum(count) - count, count)
        count = np.repeat(count, count)
    # Spread evenly; the first nodes have one task more where it does not divide.
    tasks = jobs.tasks[rows] // count + (place < jobs.tasks[rows] % count)
    pieces = Pieces(
        *(rows, node, tasks, outcome.start[rows], outcome.end[rows]),
        *(np.full(rows.size, -1), outcome.start[rows]),
    )
    return replace(outcome, pieces=pieces)
