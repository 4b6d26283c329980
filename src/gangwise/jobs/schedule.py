"""The input of a simulation, its rules, and its result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Bools, Floats, Ints, distinct_pairs, numbered
from gangwise.core.errors import ScenarioError
from gangwise.jobs import distance as distances
from gangwise.jobs import kernels
from gangwise.jobs.books import Books, searched, states_of
from gangwise.jobs.model import ALONE, Account, Conditions, Job, Jobs, Nodes, Shape
from gangwise.jobs.tenancy import (
    Bounds,
    Cap,
    Closing,
    Opening,
    Tenancy,
    allowed_on,
    claims,
    fewest_of,
)


@dataclass(frozen=True)
class Options:
    """Rules of a simulation that are no scheduler's to choose.

    Attributes
    ----------
    enforced : bool
        Whether jobs are killed at their requested limit.
    limits : {"wall-clock", "work"}
        What a limit is: seconds of the clock, as in Slurm, or seconds at rate 1.
    checkpoint : float
        Seconds of work between checkpoints; a failure loses what was done since the last one.
        inf: everything, 0: nothing.
    restart : float
        Seconds that a job cut short needs at its next start before it works on.
    measured_after : float
        Seconds after its start at which a job's rates are measured; once more at its end.
    caps, bounds, closed, latency, tenancy
        Of a site: what may be in use at once, what jobs of a pool may ask for, hours in which some
        do not start, seconds from a decision to the start, in which the devices are held and with
        which schedulers do not reckon, and what the order ``multifactor`` goes by.
    """

    enforced: bool = False
    limits: Literal["wall-clock", "work"] = "wall-clock"
    checkpoint: float = math.inf
    restart: float = 0.0
    measured_after: float = 60.0
    caps: tuple[Cap, ...] = ()
    bounds: tuple[Bounds, ...] = ()
    closed: tuple[Closing, ...] = ()
    latency: float = 0.0
    tenancy: Tenancy = field(default_factory=Tenancy)


@dataclass(frozen=True, eq=False)
class Schedule:
    """The result of a simulation.

    Attributes
    ----------
    start, end : ndarray [J]
        Seconds: first start, and end; NaN for what never came to it.
    last_start : ndarray [J]
        Start of the last attempt, the only one of most jobs.
    held : ndarray [J]
        Since when it has held its devices: the start latency before.
    phase : ndarray [J]
        As in :mod:`gangwise.jobs.kernels`: finished, killed, cancelled, waiting, set aside, …
    attempts : ndarray [J]
    lost : ndarray [J]
        Device-seconds (of the dominant device type) lost to failures and restarts.
    reserved : ndarray [J]
        EASY: the earliest start promised to the job while it was first in line; inf for none.
    piece_from, piece_count, piece_node, piece_tasks : ndarray
        Last attempt of job j: pieces ``piece_from[j] … + piece_count[j]``.
    cuts : dict of ndarray
        Attempts cut short: ``job``, ``held``, ``begun``, ``end``, ``why`` (0 node failed, 1
        preempted) and their pieces ``from``, ``node``, ``tasks``.
    counts : dict
        instants, rounds, tests, kills, requeues, preemptions, cancellations.
    seconds : float
        Wall-clock spent: in the scheduler alone where it decides in Python, else in all.
    account : Account
        Jobs that could not be played on these nodes.
    description : str
        What was played, in a line.
    """

    jobs: Jobs
    nodes: Nodes
    start: Floats
    end: Floats
    last_start: Floats
    phase: npt.NDArray[np.int8]
    attempts: Ints
    lost: Floats
    reserved: Floats
    piece_from: Ints
    piece_count: Ints
    piece_node: Ints
    piece_tasks: Ints
    cuts: dict[str, npt.NDArray[Any]]
    counts: dict[str, int]
    seconds: float
    account: Account
    description: str
    held: Floats

    def placed(self, j: int) -> list[tuple[int, int]]:
        """Nodes of job j's last attempt, and tasks on each."""
        p, c = self.piece_from[j], self.piece_count[j]
        return list(zip(self.piece_node[p : p + c].tolist(), self.piece_tasks[p : p + c].tolist()))


NO_CAP = 1 << 62
"""What a counter may reach where it does not hold a job."""


class Claims(NamedTuple):
    """Use of caps by jobs; jobs that take the same of the same caps have one *claim*.

    There is a counter for each user, account or pool of each cap.
    """

    of_job: Ints  # [J] or one value for all
    caps: kernels.Caps
    counters: int

    @classmethod
    def of(cls, caps: Sequence[Cap], of_caps: list[tuple[Ints, Ints, Bools]], J: int) -> Claims:
        """Number the different claims of jobs on caps, see :func:`gangwise.jobs.tenancy.claims`."""
        claim, counters = np.zeros(J if caps else 1, dtype=np.int64), 0
        rows: list[list[tuple[int, int, int]]] = [[]]
        for cap, (counter, amount, holds) in zip(caps, of_caps):
            size = int(counter.max(initial=-1)) + 1
            # Counters of this cap come behind those of the caps before.
            place = np.where(counter >= 0, counter + counters, -1)
            # `holds` travels in the lowest bit, so that pairs suffice where triples are meant.
            mine, kind = distinct_pairs(place, 2 * amount + holds)
            mine[1], holding = np.divmod(mine[1], 2)
            # A claim is told apart from others by what it takes of every cap so far.
            pairs, claim = numbered(claim * mine.shape[1] + kind)
            most, counters = round(1000 * cap.most), counters + size
            rows = [
                # A counter below 0 is no use at all, so it adds nothing to the claim.
                rows[earlier]
                + [(*mine[:, k].tolist(), most if holding[k] else NO_CAP)] * bool(mine[0, k] >= 0)
                for earlier, k in zip(*(x.tolist() for x in np.divmod(pairs, mine.shape[1])))
            ]
        flat = np.array([row for part in rows for row in part], dtype=np.int64).reshape(-1, 3)
        starts = np.concatenate([[0], np.cumsum([len(part) for part in rows])])
        counter, amount, most_of = (np.ascontiguousarray(flat[:, i]) for i in range(3))
        return cls(claim, kernels.Caps(starts, counter, amount, most_of), counters)


@dataclass(frozen=True, eq=False)
class Tables:
    """The input of a simulation: jobs brought onto nodes, rules, and events."""

    jobs: Jobs
    nodes: Nodes
    options: Options
    conditions: Conditions
    aside: npt.NDArray[np.bool_]
    account: Account
    work: Floats
    doomed: npt.NDArray[np.bool_]
    cluster: kernels.ClusterArrays  # its demand is over the nodes' device types
    claims: Claims
    ageing: Claims  # of `Tenancy.ageing`
    hours: Opening
    rates: Floats
    log_rates: Floats
    noise: Floats
    events: npt.NDArray[np.void]  # kernels.EVENT, in order of time
    wants: Ints  # [J] how many jobs each comes after
    distance: distances.Apart | None = None

    @classmethod
    def of(
        cls,
        jobs: Jobs,
        nodes: Nodes,
        conditions: Conditions,
        options: Options,
        without_groups: str = "",
    ) -> Tables:
        """Bring jobs onto nodes; those that can never run there are set aside and accounted for.

        So are jobs of unlike tasks by what cannot place them, whose name is ``without_groups``.
        """
        J = len(jobs)
        largest, closes = int(jobs.sizes.max(initial=1)), bool(options.closed)
        cluster = cluster_of(nodes, placed_shapes(jobs, nodes), largest, closes)
        of_caps = claims(options.caps, jobs, nodes, cluster.demand)
        limits = options.tenancy.ageing
        aside, account = _set_aside(jobs, nodes, cluster.demand, options, of_caps, without_groups)
        hours = Opening.of(options.closed, jobs, nodes, cluster.demand)
        # Dependencies on jobs that are set aside are dropped: those never end.
        keep = ~aside[jobs.after]
        wants = np.broadcast_to(np.int64(0), (J,))
        if keep.size:
            behind = np.repeat(np.arange(J), np.diff(jobs.after_from))
            wants = np.bincount(behind[keep], minlength=J)
        work, doomed = jobs.run, np.zeros(J, dtype=bool)
        # Limits of work cut the work itself; those of the clock are events of the play.
        if options.enforced and options.limits == "work":
            doomed = jobs.run > jobs.limit
            work = np.minimum(jobs.run, jobs.limit)
        rates, noise = _rates(jobs, nodes, conditions)
        return cls(
            jobs=jobs,
            nodes=nodes,
            options=options,
            conditions=conditions,
            aside=aside,
            account=account,
            work=work,
            doomed=doomed,
            cluster=cluster,
            claims=Claims.of(options.caps, of_caps, J),
            ageing=Claims.of(limits, claims(limits, jobs, nodes, cluster.demand), J),
            hours=hours,
            rates=rates,
            log_rates=np.log(rates),
            noise=noise,
            events=_events(jobs, conditions, len(nodes), aside, hours),
            wants=wants,
            distance=None
            if conditions.distance is None
            else conditions.distance.on_nodes(jobs, nodes),
        )

    def job(self, j: int) -> Job:
        """Job j as a scheduler sees it; its demand is over the nodes' device types."""
        job = self.jobs.job(int(j))
        if self.jobs.devices == self.nodes.devices and not job.shape.groups:
            return job
        return replace(job, shape=self.shapes[self.jobs.shape[j]])

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of the jobs as they are placed [S], see :func:`placed_shapes`."""
        return placed_shapes(self.jobs, self.nodes)

    @cached_property
    def sizes(self) -> Ints:
        """Tasks for which one task of each shape stands: shapes of jobs, then of groups [S]."""
        sizes = np.ones(len(self.cluster.shapes), dtype=np.int64)
        sizes[: len(self.jobs.shapes)] = [shape.size for shape in self.jobs.shapes]
        return sizes

    @cached_property
    def least(self) -> Ints:
        """Least demand of any task that is played [K]; 0 where none is played."""
        demand = self.cluster.demand
        played = np.flatnonzero(np.bincount(self.jobs.shape[~self.aside], minlength=len(demand)))
        return np.asarray(demand[played].min(axis=0, initial=0 if not played.size else 2**62))

    def describe(self, name: str, decider: str) -> str:
        """The input and the place of decisions, in one line."""
        o = self.options
        killed = "killed at" if o.enforced else "not killed at"
        unit = "wall-clock" if o.limits == "wall-clock" else "seconds at rate 1"
        return f"{name}, {decider}; limits are {unit}, jobs are {killed} them"


def placed_shapes(jobs: Jobs, nodes: Nodes) -> tuple[Shape, ...]:
    """The shapes of jobs over the nodes' device types, their groups in the order of placing [S].

    That is: by falling share of the largest node that one task asks of any device type, ties as
    the job has them.
    """
    # A device type that no node has would divide by zero.
    largest = np.maximum(nodes.capacity.max(axis=0), 1)

    def share(group: tuple[int, Shape]) -> float:
        return -float((np.array(group[1].demand) / largest).max())

    # Largest first: what is hard to place is placed while there is room.
    shapes = jobs.shapes_on(nodes.devices)
    if not any(shape.groups for shape in shapes):
        return shapes
    return tuple(s._replace(groups=tuple(sorted(s.groups, key=share))) for s in shapes)


def _of_shared(nodes: Nodes, demand: Ints) -> Ints:
    """Thousandths of the shared device type that a task of each shape asks for [S]."""
    if nodes.shared is None:
        return np.zeros(len(demand), dtype=np.int64)
    return np.asarray(demand[:, nodes.devices.index(nodes.shared)])


def cluster_of(
    nodes: Nodes, shapes: Sequence[Shape], largest: int, closes: bool = False
) -> kernels.ClusterArrays:
    """The nodes, and what shapes of jobs (see :func:`placed_shapes`) ask of them.

    A job has at most ``largest`` tasks; with ``closes`` hours may be closed.
    """
    of_jobs, every = list(shapes), list(shapes)
    parts = {shape: 0 for job in of_jobs for _, shape in job.groups}
    for part in parts:
        parts[part] = len(every)
        every.append(part)
    groups = np.array(
        [(parts[shape], tasks) for job in of_jobs for tasks, shape in job.groups],
        dtype=kernels.GROUP,
    )
    N, S = len(nodes), len(every)
    demand = np.array([s.demand for s in every], dtype=np.int64).reshape(S, len(nodes.devices))
    # A node's sum of all tasks has to stay within 64 bits; quotients of what it has by what a task
    # asks for are rounded down rightly below 2⁵¹, see `fits_of`.
    on_a_node = int(nodes.capacity.max(initial=0))
    if largest * int(demand.max(initial=1)) >= 2**62 // max(N, 1) or on_a_node >= 2**51:
        raise ScenarioError(
            "amounts of devices are too large to be counted in thousandths; "
            "give memory in a larger unit"
        )
    of_shared = _of_shared(nodes, demand)
    places = [(s.constraint, s.pool) for s in every]
    constraints = {pair: i for i, pair in enumerate(dict.fromkeys(places))}
    allowed = [allowed_on(nodes, Shape((), 0, *pair)) for pair in constraints]
    pools = {name: i for i, name in enumerate(dict.fromkeys(s.pool for s in every))}
    on = np.array([nodes.of_pool(name) for name in pools], dtype=bool).reshape(len(pools), N)
    meets = (on[:, None] & on).any(axis=2)
    total = np.maximum(nodes.capacity.sum(axis=0), 1)
    table = np.zeros(S, dtype=kernels.SHAPE)
    table["fraction"] = np.where(of_shared < 1000, of_shared, 0)
    table["whole"] = of_shared // 1000
    table["per_node"] = [s.per_node or largest for s in every]
    table["constraint"] = [constraints[pair] for pair in places]
    # ALONE stands for a whole node; a share of it would always be the largest.
    counts = np.array([name != ALONE for name in nodes.devices])
    table["dominant"] = np.argmax(demand / total * counts, axis=1) if S else 0
    table["total"] = total[table["dominant"]]
    table["pool"] = [pools[s.pool] for s in every]
    table["groups"] = [len(s.groups) for s in every]
    # Groups of all jobs lie one behind another; each shape has where its own begin.
    table["groups_from"] = np.cumsum([0, *table["groups"]])[:-1]
    shared = -1 if nodes.shared is None else nodes.devices.index(nodes.shared)
    return kernels.ClusterArrays(
        table,
        demand,
        np.where(demand > 0, 1.0 / np.maximum(demand, 1), 0.0),
        nodes.capacity,
        np.maximum(nodes.capacity.max(axis=0), 1),
        shared,
        nodes.capacity[:, shared] // 1000 if shared >= 0 else np.zeros(N, dtype=np.int64),
        np.array(allowed, dtype=bool).reshape(len(constraints), N),
        # With closed hours a pool has two heads: may start now, and may not.
        np.tile(meets, (2, 2)) if closes else meets,
        groups,
    )


def no_ways(cluster: kernels.ClusterArrays) -> kernels.Ways:
    """Space for a search of all ways to place the groups of any job."""
    S, N = 1, len(cluster.capacity)
    for shape in cluster.shapes[cluster.shapes["groups"] > 0]:
        low = int(shape["groups_from"])
        states = states_of(cluster.groups["tasks"][low : low + int(shape["groups"])].tolist())
        S = max(S, states if states**2 * N <= kernels.SEARCHED else 1)
    behind = np.zeros((N + 1 if len(cluster.groups) else 0, S), dtype=np.int64)
    return kernels.Ways(behind, behind[1:, :1].repeat(2, axis=1))


def _set_aside(
    jobs: Jobs,
    nodes: Nodes,
    demand: Ints,
    options: Options,
    of_caps: list[tuple[Ints, Ints, Bools]],
    without_groups: str,
) -> tuple[npt.NDArray[np.bool_], Account]:
    """Jobs that can never run on the nodes [J], by reason: tried on the empty cluster."""
    books, most = Books.opened(nodes), int(jobs.tasks.max(initial=1))
    missing = sorted({k for k in jobs.devices if k not in nodes.devices})
    no_node = np.asarray(jobs.demand(missing).any(axis=1))  # [S], as the next
    in_part, room = no_node & False, np.zeros(len(jobs.shapes), dtype=np.int64)
    # Shapes, not jobs, are tried on the empty cluster: there are few of them.
    for s, shape in enumerate(placed_shapes(jobs, nodes)):
        demands = [books.of_shared(part) for _, part in shape.groups or ((1, shape),)]
        in_part[s] = any(amount > 1000 and amount % 1000 for amount in demands)
        if no_node[s] or in_part[s] or not any(shape.demand):
            continue
        if shape.groups:
            # One task of the total demand stands for all groups, so room is 1 or 0.
            room[s] = bool(books.somewhere(shape, 1))
        else:
            room[s] = int(np.minimum(books.fits(shape), most).sum())
    unknown = no_node[jobs.shape]
    broken = in_part[jobs.shape] & ~unknown
    large = (jobs.tasks > room[jobs.shape]) & ~unknown & ~broken
    unlike = jobs.grouped & ~unknown & ~broken
    refused = unlike & bool(without_groups)
    apart = large & unlike & ~refused
    # Groups have a reason of their own, below.
    large &= ~unlike
    reasons = {
        f"that ask for {' or '.join(missing)}, which no node has": unknown,
        f"that ask for a broken number of {nodes.shared} above 1": broken,
        "larger than the cluster, or than its nodes with the labels asked for": large,
        f"of groups of unlike tasks, which {without_groups} cannot place": refused,
        "whose groups, the largest tasks first, find no room beside one another": apart,
    }
    aside = unknown | broken | large | refused | apart
    # Costly, and only bounds ask for it; jobs.tasks has the right shape and is not read.
    few = fewest_of(jobs, nodes) if options.bounds else jobs.tasks
    for bounds in options.bounds:
        reasons |= bounds.refuses(jobs, few)
    for cap, (_, amount, holds) in zip(options.caps, of_caps):
        cause = f"that alone ask for more than the {cap.describe('')}"
        reasons[cause] = reasons.get(cause, unknown & False) | (holds & (amount > 1000 * cap.most))
    # A job is counted once, under the first reason that holds.
    # The first five exclude one another already.
    for reason, bad in list(reasons.items())[5:]:
        reasons[reason], aside = bad & ~aside, aside | bad
    set_aside = {reason: jobs.row[bad] for reason, bad in reasons.items() if bad.any()}
    dropped = int(aside[jobs.after].sum())
    beyond = (
        jobs.grouped & ~aside & ~np.array([searched(s, books) for s in jobs.shapes])[jobs.shape]
    )
    noted = {
        "dependencies on jobs that were set aside: dropped": dropped,
        "jobs of groups for which not all ways to place them are searched": int(beyond.sum()),
    }
    noted = {what: count for what, count in noted.items() if count}
    return aside, Account(len(jobs), set_aside, noted)


def _rates(jobs: Jobs, nodes: Nodes, conditions: Conditions) -> tuple[Floats, Floats]:
    """True rates [L, N] and noise [J]; empty where all rates are 1 for good."""
    hidden, J = conditions, len(jobs)
    # Empty arrays tell the kernels to skip rates altogether, which most logs do.
    same = hidden.rates is None and hidden.noise is None and hidden.distance is None
    # Nothing is drawn and nothing changes: kernels then need no table of rates at all.
    if same and not len(hidden.factors):
        return np.zeros((0, 0)), np.zeros(0)
    wanted = (len(jobs.types), len(nodes))
    rates = np.ones(wanted) if hidden.rates is None else np.asarray(hidden.rates)
    noise = np.ones(J) if hidden.noise is None else np.asarray(hidden.noise)
    if rates.shape != wanted or noise.shape != (J,):
        raise ScenarioError(
            f"rates are {rates.shape} and noise {noise.shape}; they must be [L, N] = "
            f"{wanted} and [J] = {(J,)}"
        )
    if not ((rates > 0).all() and (noise > 0).all() and np.isfinite(rates).all()):
        raise ScenarioError("a rate is not positive; a node that stands still is down")
    return rates.astype(np.float64), noise.astype(np.float64)


def _events(
    jobs: Jobs, conditions: Conditions, N: int, aside: npt.NDArray[np.bool_], hours: Opening
) -> npt.NDArray[np.void]:
    """What happens to nodes and jobs, as records of :data:`kernels.EVENT` in order of time."""
    hidden = conditions
    for t, n, factor in hidden.factors:
        if factor <= 0:
            raise ScenarioError(f"node {n} has a factor of {factor} at {t} s; it must be > 0")
    # Downs before ups at one instant: a node may fail and return in it. Stable sorting keeps this.
    happens = [(t, 0.0, n, kernels.DOWN) for t, n in hidden.downs]
    happens += [(t, 0.0, n, kernels.DRAIN) for t, n in hidden.drains]
    happens += [(t, 0.0, n, kernels.UP) for t, n in hidden.ups]
    happens += [(t, float(factor), n, kernels.FACTOR) for t, n, factor in hidden.factors]
    for t, _, n, _ in happens:
        if not (0 <= n < N and math.isfinite(t) and t >= 0):
            raise ScenarioError(f"an event at {float(t)} s of node {n}: there are {N} nodes")
    for t, j in hidden.cancels:
        if not (0 <= j < aside.size and math.isfinite(t) and t >= 0):
            raise ScenarioError(f"job {j} is cancelled at {t} s: there are {aside.size} jobs")
    happens += [(t, 0.0, j, kernels.CANCEL) for t, j in hidden.cancels if not aside[j]]
    withdrawn = np.flatnonzero(np.isfinite(jobs.withdrawn) & ~aside)
    happens += [(float(jobs.withdrawn[j]), 0.0, j, kernels.CANCEL) for j in withdrawn.tolist()]
    # A round at each edge of closed hours, even where nothing else happens then.
    edges = np.unique([*hours.since, *hours.to])
    happens += [(t, 0.0, 0, kernels.HOURS) for t in edges[np.isfinite(edges)].tolist()]
    # Stable, so that of one instant what was listed first happens first.
    events = np.array(happens, dtype=kernels.EVENT)
    return events[np.argsort(events["time"], kind="stable")]


def refuses_groups(scheduler: Any) -> str:
    """Name of a scheduler that cannot place groups of unlike tasks; empty for one that can."""
    if getattr(scheduler, "groups", False):
        return ""
    return str(getattr(scheduler, "name", type(scheduler).__name__))
