"""Where the waiting went: the hours that jobs waited, split by what kept them from starting.

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

from __future__ import annotations

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
from gangwise.jobs.waiting_kernels import AFTER, CAUSES, LATENCY, Sweep, sweep_waits


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
    np.minimum.at(first_held, pieces.job, pieces.held)
    waiting = np.flatnonzero(outcome.queued & (first_held > ready) & np.isfinite(first_held))
    owner = numbered(np.broadcast_to(jobs.user * len(jobs.accounts) + jobs.charged, (J,)))[1]
    sweep, names = _opened(outcome, hidden, options, owner, (waiting, ready, first_held))
    sweep_waits(sweep)
    # What is not charged so far: before it was ready, and from its decision to its start.
    rows, seconds = np.flatnonzero(outcome.queued & (outcome.start > jobs.submit)), sweep.split
    begins, start, waits = ready[rows], outcome.start[rows], outcome.waiting[rows]
    seconds[rows, AFTER] = np.minimum(begins, start) - jobs.submit[rows]
    late = start - np.maximum(first_held[rows], begins)
    seconds[rows, LATENCY] = np.maximum(late, 0.0)
    # The largest part is what is left of the wait, so that sums are exact.
    charged = seconds[rows]
    seconds[rows, charged.argmax(axis=1)] += waits - charged.sum(axis=1)
    caps: dict[str, float] = {}
    for name, of_cap in zip(names, sweep.of_cap.tolist()):
        if of_cap > 0:
            caps[name] = caps.get(name, 0.0) + of_cap
    return WaitingCauses(jobs, outcome.queued, seconds, caps, owner, sweep.holders, sweep.kept_for)


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
    """A sweep before its first instant, and the names of caps.

    ``spans`` are those rows, and of all jobs since when and until when.
    """
    jobs, nodes, since, start = outcome.jobs, outcome.nodes, *spans[1:]
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
    kinds, kind, rows = _kinds(jobs, spans[0], (claim, of_hours, unsplit), (cluster, needs["main"]))
    by_limit, rank = _by_limit(jobs.limit[rows], kind, kinds)
    about = {"since": since[rows], "start": start[rows], "owner": owner[rows]}
    waits = _table(sweep_rows.WAIT, kind=kind, rank=rank, **about)
    attempts, pieces = _attempts(outcome, rows, waits, (claim, owner))
    held, made = cast(Pieces, outcome.pieces), cast(Any, Sweep)  # one field a line below
    places = dict.fromkeys((shape.constraint, shape.pool) for shape in every)
    labelled = [allowed_on(nodes, Shape((), 0, labels)) for labels, _ in places]
    member = [nodes.of_pool(name) for name in dict.fromkeys(shape.pool for shape in every)]
    (N, K), S, W, Q = cluster.capacity.shape, len(every), rows.size, kinds.size
    M, owners = len(member) * K, int(owner.max(initial=-1)) + 1
    untold = cluster.shapes.copy()  # devices are not told apart
    untold["fraction"] = untold["whole"] = 0
    sizes = np.zeros(1, dtype=sweep_rows.SIZES)
    sizes["newest"] = -1
    sweep = made(
        cluster._replace(shapes=untold, devices=np.zeros(len(nodes), dtype=np.int64)),
        limits.caps,
        Hours(hours.starts, hours.since, hours.to),
        np.array(labelled, dtype=bool).reshape(len(places), N),
        np.array(member, dtype=bool).reshape(len(member), N),
        cluster.allowed.all(axis=1),
        np.where(cluster.demand > 0, 1.0 / np.maximum(cluster.demand, 1), 0.0),
        kinds,
        waits,
        rows,
        jobs.limit[rows][by_limit],
        np.argsort(waits["since"], kind="stable"),
        np.argsort(waits["start"], kind="stable"),
        attempts,
        np.argsort(attempts["begin"], kind="stable"),
        np.argsort(attempts["end"], kind="stable"),
        held.node[pieces],
        np.rint(1000 * outcome.per_piece[pieces] * held.tasks[pieces, None]).astype(int),
        np.zeros((len(attempts), K), dtype=np.int64),
        _changes(nodes, hidden, options, hours, float(waits["start"][:-1].max(initial=0.0))),
        needs,
        _table(sweep_rows.NODE, up=np.ones(N))[:-1],
        np.zeros((S, N), dtype=sweep_rows.FIT),
        cluster.capacity.copy(),
        *(FreeDevices(*(np.zeros((N, d), dtype=np.int64) for d in (K, 0, K))) for _ in range(2)),
        no_ways(cluster),
        *(np.zeros(shape, dtype=np.int64) for shape in (N, max(limits.counters, 1), Q, S)),
        sizes,
        np.zeros((Q, LATENCY)),
        np.zeros((W, 4)),
        *(np.zeros((owners, M)) for _ in range(2)),
        np.zeros(M, dtype=sweep_rows.COMPANY),
        np.zeros((since.size, len(CAUSES))),
        np.zeros(max(limits.counters, 1)),
        *(np.zeros(owners) for _ in range(2)),
    )
    return sweep, _cap_names(options.caps, of_caps, jobs)


def _by_limit(limit: Floats, kind: Ints, kinds: Rows) -> tuple[Ints, Ints]:
    """The order of waits [W] by kind, then by limit; and their places in their kinds, from 1."""
    # A sort of small numbers that keeps their order takes a tenth of one by two columns.
    order = np.argsort(limit)
    narrow = kind[order].astype(np.min_scalar_type(kinds.size))
    order = order[np.argsort(narrow, kind="stable")]
    rank = np.empty(limit.size, dtype=np.int64)
    rank[order] = 1 + np.arange(limit.size) - kinds["first"][kind]
    return order, rank


def _table(kind: np.dtype[np.void], /, **columns: npt.ArrayLike) -> Rows:
    """Rows of these columns, and one behind them whose times are inf."""
    table = np.zeros(np.size(next(iter(columns.values()))) + 1, dtype=kind)
    for name, column in columns.items():
        table[name][:-1] = column
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
    """Kinds of the jobs that wait; the kind and the row of each job, in the order of both."""
    (cluster, main), shape, tasks = asked, jobs.shape[rows], jobs.tasks[rows]
    named = np.array(["reservation" in terms_of(text) for text in jobs.terms])[jobs.term]
    ask = tasks * cluster.demand[shape, main[shape]]
    claim, hours, unsplit, exempt = (column[rows] for column in (*of_jobs, named))
    columns: dict[str, Any] = {
        "ask": ask,
        "shape": shape,
        "tasks": tasks,
        "claim": claim,
        "hours": hours,
    }
    columns |= {"unsplit": unsplit.astype(np.int64), "exempt": exempt.astype(np.int64)}
    kind = np.zeros(rows.size, dtype=np.int64)
    # Kinds that use the same nodes and type stand together, those that ask for less before others.
    for column in (cluster.shapes["constraint"][shape], main[shape], *columns.values()):
        different, place = numbered(column)
        kind = numbered(kind * max(different.size, 1) + place)[1]
    order = np.argsort(kind, kind="stable")
    kind = kind[order]
    edges = np.searchsorted(kind, np.arange(int(kind.max(initial=-1)) + 2))
    columns = {name: column[order][edges[:-1]] for name, column in columns.items()}
    return (
        _table(sweep_rows.KIND, first=edges[:-1], past=edges[1:], **columns)[:-1],
        kind,
        rows[order],
    )


def _attempts(
    outcome: Outcome, rows: Ints, waits: Rows, of_jobs: tuple[Ints, Ints]
) -> tuple[Rows, Ints]:
    """Attempts that hold devices while a job waits, or end its wait, and the rows of their pieces.

    ``of_jobs`` are claims and owners.
    """
    pieces = outcome.pieces
    assert pieces is not None
    # Pieces of an attempt stand together.
    begins = (np.diff(pieces.job, prepend=-1) != 0) | (np.diff(pieces.begin, prepend=-1.0) != 0)
    at = np.flatnonzero(begins)
    count = np.diff(np.append(at, pieces.job.size))
    row, held, end = pieces.job[at], pieces.held[at], pieces.end[at]
    # The attempt that ends the wait is the first of its job, of several at once the first row.
    until = np.full(len(outcome.jobs), np.nan)
    until[rows] = waits["start"][:-1]
    ends = np.flatnonzero(held == until[row])[::-1]
    attempt, wait = np.empty(until.size, dtype=np.int64), np.full(row.size, -1)
    attempt[row[ends]] = ends
    wait[attempt[rows]] = np.arange(rows.size)
    # Spans in which some job waits; what runs only between them changes no cause.
    order = np.argsort(waits["since"])
    since, until = waits["since"][order], np.maximum.accumulate(waits["start"][order])
    opens = np.flatnonzero(since > np.append(-np.inf, until[:-1]))
    span = np.searchsorted(until[np.append(opens[1:], since.size) - 1], held)
    counted = np.flatnonzero(since[opens][span] < end)
    of_pieces = jobs_as_rows(at[counted], count[counted])[0]
    past = np.cumsum(count[counted])
    row, (claim, owner) = row[counted], of_jobs
    about = {"begin": held[counted], "end": end[counted], "wait": wait[counted]}
    about |= {"first": past - count[counted], "past": past, "row": row}
    return _table(sweep_rows.ATTEMPT, claim=claim[row], owner=owner[row], **about), of_pieces


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
    tasks = jobs.tasks[rows] // count + (place < jobs.tasks[rows] % count)
    pieces = Pieces(
        *(rows, node, tasks, outcome.start[rows], outcome.end[rows]),
        *(np.full(rows.size, -1), outcome.start[rows]),
    )
    return replace(outcome, pieces=pieces)
