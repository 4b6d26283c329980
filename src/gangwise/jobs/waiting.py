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
latency        it has its nodes, and its start takes time
=============  ===================================================================================

The main device type is the one of which the cluster has fewest, of those that a job asks for.

So *overtaken* and *kept* are others who come first, and *unseen* is what backfilling without bound
takes up: with EASY and requests that hold it is 0, and what deeper backfilling saves is at least
this. *busy* and *overtaken* are charged to those who held the devices meanwhile, by share; *kept*
to the job that does not fit yet and starts first.

Not known: which part of a shared device is free, so that a task that asks for a part fits on a node
with as much free; nor places by features and counts of nodes, that Slurm's own passes look for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints, numbered
from gangwise.core.errors import ScenarioError
from gangwise.jobs.kernels import SET_ASIDE, Caps, ClusterArrays, Hours
from gangwise.jobs.metrics import Outcome, Pieces, jobs_as_rows
from gangwise.jobs.model import ALONE, Conditions, Jobs, Nodes, Shape, terms_of
from gangwise.jobs.schedule import Claims, Options, cluster_of, placed_shapes
from gangwise.jobs.tenancy import Cap, Opening, allowed_on, claims, of_arrays
from gangwise.jobs.waiting_kernels import (
    AFTER,
    CAUSES,
    LATENCY,
    Asked,
    Attempts,
    Books,
    Holdings,
    Lists,
    SiteRules,
    Sums,
    Sweep,
    Waits,
    sweep_waits,
)


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
    ready = _ready(outcome, hidden)
    J = len(jobs)
    owners, owner = numbered(np.broadcast_to(jobs.user * len(jobs.accounts) + jobs.charged, (J,)))
    shapes = placed_shapes(jobs, outcome.nodes)
    closes = bool(options.closed)
    cluster = cluster_of(outcome.nodes, shapes, int(jobs.sizes.max(initial=1)), closes)
    of_caps = claims(options.caps, jobs, outcome.nodes, cluster.demand)
    limits = Claims.of(options.caps, of_caps, J)
    hours = Opening.of(options.closed, jobs, outcome.nodes, cluster.demand)
    claim = np.broadcast_to(limits.of_job, (J,))
    # Pieces of an attempt stand together.
    begins = (np.diff(pieces.job, prepend=-1) != 0) | (np.diff(pieces.begin, prepend=-1.0) != 0)
    at = np.flatnonzero(begins)
    row, held, end = pieces.job[at], pieces.held[at], pieces.end[at]
    # The attempt that ends the wait is the first of its job.
    first_held = np.full(J, np.inf)
    np.minimum.at(first_held, row, held)
    ends_wait = outcome.queued[row] & (held == first_held[row])
    waits_of = np.flatnonzero(ends_wait & (held > ready[row]))
    waits_of = waits_of[np.unique(row[waits_of], return_index=True)[1]]
    asked, waits = _asked(jobs, row[waits_of], claim, hours.of_job, ready)
    wait = np.full(row.size, -1)
    wait[waits_of[np.searchsorted(row[waits_of], waits.row)]] = np.arange(waits_of.size)
    lasts = np.flatnonzero(end > held)
    attempts = Attempts(
        row,
        held,
        end,
        np.append(at, pieces.job.size),
        claim[row],
        owner[row],
        wait,
        np.argsort(held, kind="stable"),
        lasts[np.argsort(end[lasts])],
        pieces.node,
        np.rint(1000 * outcome.per_piece * pieces.tasks[:, None]).astype(np.int64),
    )
    rules = _rules(outcome.nodes, shapes, cluster, hidden, options, (limits.caps, hours))
    sweep = _opened(asked, waits, attempts, rules, limits.counters, owners.size)
    sweep_waits(sweep)
    seconds = np.zeros((J, len(CAUSES)))
    seconds[waits.row] = sweep.sums.split
    rows = np.flatnonzero(outcome.queued & (outcome.start > jobs.submit))
    # What is not charged so far: before it was ready, and from its decision to its start.
    charged = seconds[rows]
    charged[:, AFTER] = np.minimum(ready[rows], outcome.start[rows]) - jobs.submit[rows]
    late = np.maximum(outcome.start[rows] - np.maximum(first_held[rows], ready[rows]), 0.0)
    charged[:, LATENCY] = late
    # The largest part is what is left of the wait, so that sums are exact.
    left = outcome.waiting[rows] - charged.sum(axis=1)
    charged[np.arange(rows.size), charged.argmax(axis=1)] += left
    seconds[rows] = charged
    names = _cap_names(options.caps, of_caps, jobs)
    caps = dict.fromkeys(names, 0.0)
    for name, of_cap in zip(names, sweep.sums.of_cap.tolist()):
        caps[name] += of_cap
    caps = {name: of_cap for name, of_cap in caps.items() if of_cap > 0}
    return WaitingCauses(
        jobs, outcome.queued, seconds, caps, owner, sweep.sums.holders, sweep.sums.kept_for
    )


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


def _asked(
    jobs: Jobs, rows: Ints, claim: Ints, of_hours: Ints, ready: Floats
) -> tuple[Asked, Waits]:
    """The jobs of these rows, which wait, and their kinds."""
    named = np.array(["reservation" in terms_of(text) for text in jobs.terms], dtype=np.int64)
    columns = [jobs.shape, jobs.tasks, claim, np.broadcast_to(of_hours, claim.shape)]
    columns = [column[rows] for column in (*columns, named[jobs.term])]
    kind = np.zeros(rows.size, dtype=np.int64)
    for column in columns:
        different, place = numbered(column)
        kind = numbered(kind * max(different.size, 1) + place)[1]
    # In the order of (kind, row), to which the rows are brought.
    order = np.argsort(kind * (int(rows.max(initial=0)) + 1) + rows)
    Q = int(kind.max(initial=-1)) + 1
    rows, kind = rows[order], kind[order]
    first = np.searchsorted(kind, np.arange(Q + 1))
    asked = Asked(*(column[order][first[:-1]] for column in columns))
    by_limit = np.lexsort((jobs.limit[rows], kind))
    rank = np.empty(rows.size, dtype=np.int64)
    rank[by_limit] = np.arange(rows.size) - first[kind]
    since, limits = ready[rows], jobs.limit[rows][by_limit]
    by_since = np.argsort(since, kind="stable")
    return asked, Waits(rows, kind, since, by_since, first, limits, rank)


def _rules(
    nodes: Nodes,
    shapes: Sequence[Shape],
    cluster: ClusterArrays,
    hidden: Conditions,
    options: Options,
    of_jobs: tuple[Caps, Opening],
) -> SiteRules:
    """What shapes may use, caps, hours, and when nodes go, come and are reserved."""
    caps, hours = of_jobs
    parts = dict.fromkeys(part for shape in shapes for _, part in shape.groups)
    every = [*shapes, *parts]
    constraints = dict.fromkeys((shape.constraint, shape.pool) for shape in every)
    labelled = [allowed_on(nodes, Shape((), 0, labels)) for labels, _ in constraints]
    member = [nodes.of_pool(name) for name in dict.fromkeys(shape.pool for shape in every)]
    N = len(nodes)
    own = nodes.devices.index(ALONE) if ALONE in nodes.devices else -1
    alone = np.array([own >= 0 and shape.demand[own] > 0 for shape in every], dtype=bool)
    counts = np.array([name != ALONE for name in nodes.devices])
    total = nodes.capacity.sum(axis=0).astype(np.float64)
    place = {name: n for n, name in enumerate(nodes.names)}
    happens = [(t, 0, n) for t, n in (*hidden.downs, *hidden.drains)]
    happens += [(t, 1, n) for t, n in hidden.ups]
    for reservation in options.tenancy.reservations:
        for name in reservation.on:
            if name in place:
                edges = (reservation.begin, 2), (reservation.end, 3)
                happens += [(t, what, place[name]) for t, what in edges]
    happens += [(t, 4, 0) for t in np.unique([*hours.since, *hours.to]).tolist()]
    happens = sorted(row for row in happens if np.isfinite(row[0]))
    at, what, node = (np.array([row[i] for row in happens]) for i in range(3))
    at = at.astype(np.float64)
    return SiteRules(
        cluster,
        np.array(labelled, dtype=bool).reshape(len(constraints), N),
        np.array(member, dtype=bool).reshape(len(member), N),
        alone,
        # Of the types that it asks for, the one of which there are fewest: GPUs, then cores.
        np.argmin(np.where((cluster.demand > 0) & counts, total, np.inf), axis=1),
        np.divide(
            1.0, cluster.demand, out=np.zeros(cluster.demand.shape), where=cluster.demand > 0
        ),
        caps,
        Hours(hours.starts, hours.since, hours.to),
        at,
        what.astype(np.int64),
        node.astype(np.int64),
        at[what == 2],
    )


def _opened(
    asked: Asked, waits: Waits, runs: Attempts, site: SiteRules, counters: int, owners: int
) -> Sweep:
    """A sweep before its first instant."""
    capacity = site.cluster.capacity
    (N, K), S, Q, W, A = (
        capacity.shape,
        len(site.cluster.shapes),
        *map(len, (asked.shape, waits.row, runs.row)),
    )
    M = len(site.member) * K

    def whole(*shape: int, value: int = 0) -> Ints:
        return np.full(shape, value, dtype=np.int64)

    books = Books(
        capacity.copy(),
        *(whole(N, K), whole(N, value=1), whole(N), whole(1 + N), np.zeros(N, dtype=bool)),
        np.zeros((S, N), dtype=np.int32),
        np.zeros((S, N), dtype=np.int32),
        *(whole(S, 5), whole(S), whole(N, K), whole(max(counters, 1))),
    )
    lists = Lists(
        *(whole(W), whole(Q), whole(Q), whole(Q), whole(S), whole(S), whole(Q), whole(S), whole(Q)),
        *(np.zeros((Q, LATENCY)), np.zeros(W), np.zeros(W), np.zeros(W), np.zeros(W)),
        *(whole(1, value=-1), whole(A), whole(A), whole(2)),
    )
    holdings = Holdings(
        np.zeros((owners, M)), np.zeros((owners, M)), *(np.zeros(M) for _ in range(3))
    )
    sums = Sums(np.zeros((W, len(CAUSES))), np.zeros(max(counters, 1)), *(np.zeros(owners),) * 2)
    sums = sums._replace(kept_for=np.zeros(owners))
    return Sweep(asked, waits, runs, site, books, lists, holdings, sums)


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
