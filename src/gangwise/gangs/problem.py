"""The problem of OGASched §3.5: jobs of several tasks that start together or not at all.

The paper asks for at least m_l scheduled tasks of job type l,

    Σ_q 1{ Σ_r Σ_k y_{l,r}^{q,k} > 0 } ≥ m_l,

which counts a task as scheduled when it holds any positive amount: an ε of one device for each task
meets it, "all-or-nothing" then says nothing, and the supremum of the reward need not be attained.
It also binds a job type that brought no job. We read instead:

* a task q of job type l is scheduled when *one* server holds its whole request a_l^{q,k}, for all
  device types k, and a task sits on one server at most;
* a job is launched when at least m_l of its |Q_l| tasks are scheduled; otherwise it holds nothing;
* only channels (l, r) are used, and the capacities of each server bind over all jobs together;
* a job may be left out, for reward 0; it lasts one slot.

A launched job earns

    Σ_{r,k} f_r^k( Σ_q y_{l,r}^{q,k} ) - max_k β_k Σ_{q,r} y_{l,r}^{q,k},

the gang form of (5) with the gain separable by server, as (7) and the gradient (9) have it.

Gains by table: what a job gains on a server, for every set of its tasks that may sit there.

Tasks of a job type with the same requests are alike, so a set is a count of each kind of task, and
its place in the table a number in mixed radix: a gang of 32 equal workers and one parameter server
has 33 · 2 sets, not 2³³. With the table, a marginal gain is a difference of two entries, whatever
the utilities are.

Whether a placement keeps the rules of :mod:`gangwise.gangs.problem`.

What makes a gang problem ill-formed, in words that say where and what to do.

What an exact solver of a gang programme answers, with the bound that it proved.

The problem of ESDP §3.4: jobs of several tasks, on channels whose worth has to be learned.

The paper asks for Σ_r Σ_q x^l_(q,r) ≥ m_l in every slot, whether a job arrived or not, lets a job
that falls short keep what it holds, and lets one task sit on m_l servers. We read instead, with
y_l = 1 when the job of type l is launched:

* m_l y_l ≤ Σ_{q,r} x^l_(q,r) ≤ |Q_l| y_l and y_l ≤ 𝟙_l(t): all or nothing, and nothing when no job
  came;
* Σ_r x^l_(q,r) ≤ 1: a task sits on one server at most, whole;
* Σ_{l,q} a^l_(q,k) x^l_(q,r) ≤ c_(k,r) for every server and device type, on channels (l, r) only;
* a job lasts one slot.

Every task placed on channel (l, r) earns Z̃_(l,r)(t) in [0, 1], net of supply cost as in (3). Z̃ is
*one* number for a channel and slot, the speed of that server for that job type, however many tasks
sit there; with n_e tasks on channel e the slot earns Σ_e n_e Z̃_e(t), (5). The supply cost is per
task and channel, so tasks of one job type cost alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Floats, Ints
from gangwise.core.cluster import Channels, Cluster
from gangwise.core.errors import InfeasibleDecision, ScenarioError
from gangwise.gain_overhead.problem import TOLERANCE, GainOverheadProblem, Utilities


def require_feasible(
    problem: GangProblem,
    arrived: npt.NDArray[np.generic],
    placement: npt.NDArray[np.generic],
    slot: int | None = None,
) -> Ints:
    """Return the placement as whole numbers when it is feasible.

    Raises
    ------
    InfeasibleDecision
        For a server that does not exist or is no channel of the job type, a task of a job that did
        not arrive, a gang with fewer tasks than its minimum, or a server that is handed out beyond
        its capacity (by more than a relative 1e-9).
    """
    at = "" if slot is None else f"slot {slot}: "
    if placement.shape != (problem.Q,) or arrived.shape != (problem.L,):
        raise InfeasibleDecision(
            f"{at}the decision has shape {placement.shape} for arrivals of shape {arrived.shape}; "
            f"expected a server for each of {problem.Q} tasks and {problem.L} job types"
        )
    if placement.dtype.kind not in "iu":
        raise InfeasibleDecision(
            f"{at}the decision holds {placement.dtype} values; expected a whole number for each "
            "task: its server, or -1"
        )
    where = placement.astype(np.int64)
    _channels(problem, where, at)
    count = np.bincount(problem.task_job_type[where >= 0], minlength=problem.L)
    uncalled = np.flatnonzero((count > 0) & (arrived == 0))
    if uncalled.size:
        l = int(uncalled[0])
        q = int(np.flatnonzero((problem.task_job_type == l) & (where >= 0))[0])
        raise InfeasibleDecision(
            f"{at}{problem.task_name(q)} is placed on server "
            f"{problem.cluster.servers[where[q]]!r}, but no such job arrived"
        )
    broken = np.flatnonzero((count > 0) & (count < problem.minimum))
    if broken.size:
        l = int(broken[0])
        raise InfeasibleDecision(
            f"{at}job type {problem.job_types[l]!r} has {count[l]} of its tasks placed and needs "
            f"at least {problem.minimum[l]} to be launched; place more or none"
        )
    _capacity(problem, where, at)
    return where


def _channels(problem: GangProblem, where: Ints, at: str) -> None:
    R = problem.channels.shape[1]
    out = np.flatnonzero((where < -1) | (where >= R))
    if out.size:
        q = int(out[0])
        raise InfeasibleDecision(
            f"{at}{problem.task_name(q)} is placed on server number {where[q]}; there are {R}, "
            "counted from 0, and -1 stands for none"
        )
    placed = np.flatnonzero(where >= 0)
    channel = problem.channel_of[problem.task_job_type[placed], where[placed]]
    astray = placed[channel < 0]
    if astray.size:
        q = int(astray[0])
        raise InfeasibleDecision(
            f"{at}{problem.task_name(q)} is placed on server "
            f"{problem.cluster.servers[where[q]]!r}, to which its job type has no channel"
        )


def _capacity(problem: GangProblem, where: Ints, at: str) -> None:
    capacity = problem.cluster.capacity
    used = problem.handed_out(where)
    over = np.argwhere(used > capacity + TOLERANCE * (1.0 + capacity))
    if len(over):
        r, k = (int(i) for i in over[0])
        there = np.flatnonzero((where == r) & (problem.task_requests[:, k] > 0))
        names = ", ".join(problem.task_name(int(q)) for q in there[:4])
        more = f" and {there.size - 4} more" if there.size > 4 else ""
        raise InfeasibleDecision(
            f"{at}server {problem.cluster.servers[r]!r} has {capacity[r, k]:g} of device type "
            f"{problem.cluster.devices[k]!r}, and {used[r, k]:.12g} were handed out, to "
            f"{names}{more}"
        )


def first_fault(p: GangProblem) -> str | None:
    """What is wrong with a problem, or None."""
    return _shapes(p) or _tasks(p) or _minimum(p) or _room(p)


def _shapes(p: GangProblem) -> str | None:
    R, K = p.cluster.capacity.shape
    L = p.minimum.size
    if p.minimum.ndim != 1 or not L:
        return f"minimum has shape {p.minimum.shape}; expected one number for each job type"
    if len(p.job_types) != L or len(set(p.job_types)) != L:
        return f"{L} job types need {L} different names; got {len(set(p.job_types))}"
    tasks = p.task_job_type.shape
    if len(tasks) != 1 or p.task_requests.shape != (*tasks, K):
        return (
            f"task_job_type has shape {tasks} and task_requests {p.task_requests.shape}; expected "
            f"one job type for each task and a table of tasks by {K} device types"
        )
    if p.channels.shape != (L, R):
        return f"channels connect {p.channels.shape} job types and servers; there are ({L}, {R})"
    if p.utilities.kind.shape != (R, K):
        return (
            f"utilities are given for {p.utilities.kind.shape} servers and device types; the "
            f"cluster has ({R}, {K})"
        )
    beta = p.overhead
    if beta.shape != (K,) or not (np.isfinite(beta) & (beta >= 0)).all():
        return f"overhead coefficients must be {K} finite numbers, zero or larger; got {beta}"
    return None


def _tasks(p: GangProblem) -> str | None:
    of, L = p.task_job_type, p.minimum.size
    if of.size and (of.min() < 0 or of.max() >= L):
        q = int(np.flatnonzero((of < 0) | (of >= L))[0])
        return f"task_job_type[{q}] is {of[q]}; there are {L} job types, counted from 0"
    back = np.flatnonzero(np.diff(of) < 0)
    if back.size:
        q = int(back[0]) + 1
        return (
            f"task_job_type[{q}] is {of[q]} after {of[q - 1]}; list the tasks job type by job type"
        )
    without = np.flatnonzero(np.bincount(of, minlength=L) == 0)
    if without.size:
        return f"job type {p.job_types[without[0]]!r} has no tasks; give it one or leave it out"
    bad = np.argwhere(~(np.isfinite(p.task_requests) & (p.task_requests >= 0)))
    if len(bad):
        q, k = (int(i) for i in bad[0])
        return (
            f"{p.task_name(q)}: request of device type {p.cluster.devices[k]!r} is "
            f"{p.task_requests[q, k]}; it must be a finite number, zero or larger"
        )
    empty = np.flatnonzero(~(p.task_requests > 0).any(axis=1))
    if empty.size:
        return f"{p.task_name(int(empty[0]))} requests no devices at all; leave it out"
    return None


def _minimum(p: GangProblem) -> str | None:
    tasks = np.bincount(p.task_job_type, minlength=p.minimum.size)
    bad = np.flatnonzero((p.minimum < 1) | (p.minimum > tasks))
    if not bad.size:
        return None
    l = int(bad[0])
    return (
        f"job type {p.job_types[l]!r} needs at least {p.minimum[l]} of its {tasks[l]} tasks; the "
        f"minimum must be 1 to {tasks[l]}"
    )


def _room(p: GangProblem) -> str | None:
    p.channels.require_all_connected(p.job_types)
    alone = np.flatnonzero(~p.fits.any(axis=1))
    if not alone.size:
        return None
    q = int(alone[0])
    servers = np.flatnonzero(p.channel_of[p.task_job_type[q]] >= 0)
    largest = p.cluster.capacity[servers].max(axis=0)
    short = [
        f"{p.task_requests[q, k]:g} of device type {device!r} (the best has {largest[k]:g})"
        for k, device in enumerate(p.cluster.devices)
        if p.task_requests[q, k] > largest[k]
    ] or ["a combination of device types that none of them has"]
    return (
        f"{p.task_name(q)} fits on none of its {servers.size} connected servers: it requests "
        f"{', '.join(short)}; lower the request, split the task, or connect a larger server"
    )


class GangReward(NamedTuple):
    """Reward of one slot, taken apart."""

    reward: float
    gain: float
    overhead: float
    utilisation: float
    launched: int


@dataclass(frozen=True, eq=False)
class GangProblem:
    """Cluster, job types with their tasks, channels, utilities and overhead coefficients.

    Parameters
    ----------
    cluster : Cluster
        R servers, K device types.
    task_job_type : ndarray of int64, shape [Q]
        Job type of each task, never decreasing: tasks are listed job type by job type.
    task_requests : ndarray of shape [Q, K]
        a_l^{q,k}: the devices that a task needs, all on one server.
    minimum : ndarray of int64, shape [L]
        m_l: tasks without which a job of the type is not launched, 1 to |Q_l|.
    channels : Channels
        Which job type may use which server.
    utilities : Utilities
        f_r^k of every server and device type.
    overhead : ndarray of shape [K]
        β_k, per device.
    job_types : tuple of str, optional
        Names, length L.

    Raises
    ------
    ScenarioError
        Names the job type, task, server or device type at fault, and says what to do.

    Examples
    --------
    Two servers with four GPUs each, one job type of two tasks that both must run:

    >>> problem = GangProblem(
    ...     Cluster(np.full((2, 1), 4.0), ("gpu",)),
    ...     task_job_type=np.array([0, 0]),
    ...     task_requests=np.array([[3.0], [2.0]]),
    ...     minimum=np.array([2]),
    ...     channels=Channels.of_mask(np.ones((1, 2), dtype=bool)),
    ...     utilities=Utilities.of("linear", np.ones((2, 1))),
    ...     overhead=np.array([0.5]),
    ... )
    >>> problem.reward([1], np.array([0, 1])).reward
    2.5
    >>> problem.reward([1], np.array([0, -1]))
    Traceback (most recent call last):
    gangwise.core.errors.InfeasibleDecision: job type 'job-type-0' has 1 of its tasks placed and \
needs at least 2 to be launched; place more or none
    """

    cluster: Cluster
    task_job_type: Ints
    task_requests: Floats
    minimum: Ints
    channels: Channels
    utilities: Utilities
    overhead: Floats
    job_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, kind in (
            ("task_job_type", np.int64),
            ("task_requests", np.float64),
            ("minimum", np.int64),
            ("overhead", np.float64),
        ):
            given = np.asarray(getattr(self, name))
            array = np.array(given, dtype=kind, order="C")
            if kind is np.int64 and not np.array_equal(array, given):
                raise ScenarioError(f"{name} must hold whole numbers; got {given}")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        names = self.job_types or tuple(f"job-type-{l}" for l in range(self.minimum.size))
        object.__setattr__(self, "job_types", tuple(names))
        fault = first_fault(self)
        if fault:
            raise ScenarioError(fault)

    @property
    def L(self) -> int:
        """Number of job types."""
        return int(self.minimum.size)

    @property
    def Q(self) -> int:
        """Number of tasks of all job types."""
        return int(self.task_job_type.size)

    @cached_property
    def first(self) -> Ints:
        """Tasks of job type l are first[l] … first[l + 1] - 1; shape [L + 1]."""
        return np.searchsorted(self.task_job_type, np.arange(self.L + 1))

    @cached_property
    def channel_of(self) -> Ints:
        """Channel of each job type and server, -1 where there is none; shape [L, R]."""
        index = np.full(self.channels.shape, -1, dtype=np.int64)
        index[self.channels.job_type, self.channels.server] = np.arange(len(self.channels))
        return index

    @cached_property
    def fits(self) -> npt.NDArray[np.bool_]:
        """Whether a task may sit on a server that is otherwise empty; shape [Q, R]."""
        capacity = self.cluster.capacity
        whole = (self.task_requests[:, None, :] <= capacity * (1 + 1e-12)).all(axis=2)
        return np.asarray(whole & (self.channel_of[self.task_job_type] >= 0))

    @cached_property
    def relaxed(self) -> GainOverheadProblem:
        """The fractional problem over job types: a job requests Σ_q a_l^q of every server.

        Its optimum is no smaller than the gang problem's: dropping wholeness, all-or-nothing and
        the one-server rule only adds decisions, and a job left out is the decision zero.
        """
        requests = np.zeros((self.L, self.task_requests.shape[1]))
        np.add.at(requests, self.task_job_type, self.task_requests)
        return GainOverheadProblem(
            self.cluster, requests, self.channels, self.utilities, self.overhead, self.job_types
        )

    def task_name(self, q: int) -> str:
        """What errors call a task, such as ``task 1 of job type 'train'`` (counted from 0)."""
        l = int(self.task_job_type[q])
        return f"task {q - int(self.first[l])} of job type {self.job_types[l]!r}"

    def held(self, placement: Ints) -> Floats:
        """Devices that each channel's job holds under a placement, shape [E, K]."""
        placed = np.flatnonzero(placement >= 0)
        y = np.zeros((len(self.channels), self.task_requests.shape[1]))
        e = self.channel_of[self.task_job_type[placed], placement[placed]]
        np.add.at(y, e, self.task_requests[placed])
        return y

    def handed_out(self, placement: Ints) -> Floats:
        """Devices of each server that tasks hold under a placement, shape [R, K]."""
        used, placed = np.zeros_like(self.cluster.capacity), placement >= 0
        np.add.at(used, placement[placed], self.task_requests[placed])
        return used

    def utilisation(self, placement: Ints) -> float:
        """Mean over servers and device types (that are there) of the share handed out."""
        capacity = self.cluster.capacity
        there = capacity > 0
        used = self.handed_out(placement)
        return float((used[there] / capacity[there]).mean()) if there.any() else 0.0

    def by_job_type(self, placement: Ints) -> tuple[Floats, Floats]:
        """Gain and overhead of each job type under a placement, two arrays of shape [L]."""
        y = self.held(placement)
        e = np.flatnonzero(y.any(axis=1))
        job_type, server = self.channels.job_type[e], self.channels.server[e]
        values = self.utilities.each(
            "value", y[e], self.utilities.kind[server], self.utilities.alpha[server]
        )
        total = np.zeros((self.L, y.shape[1]))
        np.add.at(total, job_type, y[e])
        gain = np.bincount(job_type, values.sum(axis=1), minlength=self.L).astype(np.float64)
        overhead: Floats = (self.overhead * total).max(axis=1)
        return gain, overhead

    def reward(
        self, arrived: npt.ArrayLike, placement: npt.ArrayLike, slot: int | None = None
    ) -> GangReward:
        """Reward of a decision.

        Parameters
        ----------
        arrived : array of int, shape [L]
            x_l: 1 where a job arrived.
        placement : array of int, shape [Q]
            Server of each task, -1 for a task that does not run.
        slot : int, optional
            Named in errors.

        Raises
        ------
        InfeasibleDecision
            Names the slot, job type, task, server and device type at fault.
        """
        where = require_feasible(self, np.asarray(arrived), np.asarray(placement), slot)
        gain, overhead = self.by_job_type(where)
        launched = int(np.unique(self.task_job_type[where >= 0]).size)
        g, o = float(gain.sum()), float(overhead.sum())
        return GangReward(g - o, g, o, self.utilisation(where), launched)


MOST_ENTRIES = 1 << 23
"""The largest table that is built, in entries of 8 bytes."""


class GainTable(NamedTuple):
    """Gains Σ_k f_r^k(Σ a^k) of sets of tasks.

    Attributes
    ----------
    stride : ndarray of int64, shape [Q]
        What a task adds to the number of the set that it joins.
    offset : ndarray of int64, shape [E]
        Where the sets of each channel begin in ``value``.
    value : ndarray of float64, shape [N]
        Gain of each set; 0 for the empty one.
    """

    stride: Ints
    offset: Ints
    value: Floats


def gain_table(problem: GangProblem) -> GainTable:
    """Tabulate the gains of a problem.

    Raises
    ------
    ScenarioError
        When the table would be too large; names the job type with the most different tasks.
    """
    K = problem.task_requests.shape[1]
    stride = np.zeros(problem.Q, dtype=np.int64)
    sizes = np.zeros(problem.L, dtype=np.int64)
    sums: list[Floats] = []
    degree = np.bincount(problem.channels.job_type, minlength=problem.L)
    entries = 0
    for l in range(problem.L):
        tasks = slice(problem.first[l], problem.first[l + 1])
        kinds, of, count = np.unique(
            problem.task_requests[tasks], axis=0, return_inverse=True, return_counts=True
        )
        sets = 1
        for n in count.tolist():
            sets *= n + 1
        entries += sets * int(degree[l])
        if entries > MOST_ENTRIES:
            raise ScenarioError(
                f"job type {problem.job_types[l]!r} has {len(count)} different kinds of task, "
                f"which may come together on a server in {sets} ways; give more of its tasks the "
                "same requests, or use a policy that does not weigh gains, such as gang-drf"
            )
        step, total = 1, np.zeros((1, K))
        steps = np.zeros(len(count), dtype=np.int64)
        for kind, n in enumerate(count.tolist()):
            steps[kind] = step
            more = np.arange(n + 1)[:, None, None] * kinds[kind]
            total = (more + total).reshape(-1, K)
            step *= n + 1
        stride[tasks] = steps[of.ravel()]
        sizes[l] = sets
        sums.append(total)
    each = sizes[problem.channels.job_type]
    offset = np.cumsum(each) - each
    value = np.empty(int(each.sum()))
    for e in range(len(problem.channels)):
        l, r = int(problem.channels.job_type[e]), int(problem.channels.server[e])
        shape = sums[l].shape
        gains = problem.utilities.each(
            "value",
            sums[l],
            np.broadcast_to(problem.utilities.kind[r], shape),
            np.broadcast_to(problem.utilities.alpha[r], shape),
        )
        value[offset[e] : offset[e] + each[e]] = gains.sum(axis=1)
    return GainTable(stride, offset, value)


@dataclass(frozen=True, eq=False)
class GangSolution:
    """A solved programme, of gangs with gains or of gangs at fluctuating speeds.

    Attributes
    ----------
    placement : ndarray of int64, shape [Q]
        Feasible: server of each task, -1 for none.
    value : float
        Its objective.
    bound : float
        No placement has a larger objective.
    rounds : int
        How often the programme was solved, with more tangents each time.
    """

    placement: Ints
    value: float
    bound: float
    rounds: int

    @property
    def gap(self) -> float:
        """What the placement may fall short of the optimum, at most."""
        return max(self.bound - self.value, 0.0)


@dataclass(frozen=True, eq=False)
class GangSpeedsProblem:
    """Cluster, job types with their tasks, channels, and what supply costs.

    Policies are told all of this. They are not told the mean utility of any channel.

    Parameters
    ----------
    cluster : Cluster
        R servers with K device types; c_(k,r) is ``capacity[r, k]``, in devices.
    task_job_type : ndarray of int64, shape [Q]
        Job type of each task, never decreasing.
    task_requests : ndarray of shape [Q, K]
        a^l_(q,k): the devices that a task needs, all on one server.
    minimum : ndarray of int64, shape [L]
        m_l: tasks without which a job of the type is not launched, 1 to |Q_l|.
    channels : Channels
        Which job type may use which server; E of them.
    cost : ndarray of shape [E]
        Supply cost of one task on each channel, in units of utility.
    job_types : tuple of str, optional
        Names, length L.

    Raises
    ------
    ScenarioError
        Names the job type, task, server, device type or channel at fault.

    Examples
    --------
    Two servers with four GPUs each, one job type of three tasks of which two must run:

    >>> problem = GangSpeedsProblem(
    ...     Cluster(np.full((2, 1), 4.0), ("gpu",)),
    ...     task_job_type=np.array([0, 0, 0]),
    ...     task_requests=np.full((3, 1), 2.0),
    ...     minimum=np.array([2]),
    ...     channels=Channels.of_mask(np.ones((1, 2), dtype=bool)),
    ...     cost=np.zeros(2),
    ... )
    >>> problem.tasks_on(np.array([1]), np.array([0, 0, 1]))
    array([2, 1])
    >>> problem.tasks_on(np.array([1]), np.array([0, -1, -1]), slot=7)
    Traceback (most recent call last):
    gangwise.core.errors.InfeasibleDecision: slot 7: job type 'job-type-0' has 1 of its tasks \
placed and needs at least 2 to be launched; place more or none
    """

    cluster: Cluster
    task_job_type: Ints
    task_requests: Floats
    minimum: Ints
    channels: Channels
    cost: Floats
    job_types: tuple[str, ...] = ()
    gangs: GangProblem = field(init=False, repr=False)
    """The gangs without their worth: rules and placement are those of :mod:`gain_overhead.gang`."""

    def __post_init__(self) -> None:
        capacity = self.cluster.capacity
        worthless = Utilities.of("linear", np.ones(capacity.shape))
        gangs = GangProblem(
            self.cluster,
            self.task_job_type,
            self.task_requests,
            self.minimum,
            self.channels,
            worthless,
            np.zeros(capacity.shape[1]),
            self.job_types,
        )
        for name in ("task_job_type", "task_requests", "minimum", "job_types"):
            object.__setattr__(self, name, getattr(gangs, name))
        object.__setattr__(self, "gangs", gangs)
        cost = np.array(self.cost, dtype=np.float64)
        if cost.shape != (self.E,):
            raise ScenarioError(
                f"cost has shape {cost.shape}; expected one number for each of {self.E} channels"
            )
        wrong = np.flatnonzero(~np.isfinite(cost))
        if wrong.size:
            e = int(wrong[0])
            raise ScenarioError(f"{self.name(e)}: supply cost is {cost[e]}; it must be finite")
        cost.setflags(write=False)
        object.__setattr__(self, "cost", cost)

    @property
    def L(self) -> int:
        """Number of job types."""
        return self.gangs.L

    @property
    def Q(self) -> int:
        """Number of tasks of all job types."""
        return self.gangs.Q

    @property
    def E(self) -> int:
        """Number of channels."""
        return len(self.channels)

    def name(self, e: int) -> str:
        """How messages call a channel."""
        l, r = self.channels.job_type[e], self.channels.server[e]
        return f"channel ({self.job_types[l]!r} on {self.cluster.servers[r]!r})"

    def tasks_on(
        self, arrivals: npt.ArrayLike, placement: npt.ArrayLike, slot: int | None = None
    ) -> Ints:
        """n_e: how many tasks sit on each channel, if the placement is feasible; shape [E].

        Parameters
        ----------
        arrivals : array of int, shape [L]
            𝟙_l(t).
        placement : array of int, shape [Q]
            Server of each task, -1 for a task that does not run.
        slot : int, optional
            Named in errors.

        Raises
        ------
        InfeasibleDecision
            Names the slot, job type, task, server and device type at fault.
        """
        where = require_feasible(self.gangs, np.asarray(arrivals), np.asarray(placement), slot)
        return self.count(where)

    def count(self, placement: Ints) -> Ints:
        """n_e of a placement that is known to be feasible, shape [E]."""
        placed = np.flatnonzero(placement >= 0)
        e = self.gangs.channel_of[self.task_job_type[placed], placement[placed]]
        return np.bincount(e, minlength=self.E).astype(np.int64)


def server_order(problem: GangSpeedsProblem) -> Ints:
    """Servers by what they are and not by what they are called: the largest first; shape [R].

    Servers that have the same devices come in the order of the job types that connect to them.
    Whoever goes through servers in this order decides alike under any names.
    """
    capacity = problem.cluster.capacity
    mask = problem.gangs.channel_of < 0
    size = (capacity / np.maximum(capacity.max(axis=0), np.finfo(float).tiny)).sum(axis=1)
    return np.lexsort((*mask, *(-capacity.T), -size)).astype(np.int64)


def relabelled(problem: GangSpeedsProblem, order: Ints) -> tuple[GangSpeedsProblem, Ints]:
    """The same problem with server ``order[i]`` now called ``i``.

    Returns
    -------
    (GangSpeedsProblem, ndarray of int64, shape [E])
        The problem, and what each of its channels was called before.
    """
    cluster, channels = problem.cluster, problem.channels
    server = np.argsort(order)[channels.server]
    before = np.lexsort((channels.job_type, server)).astype(np.int64)
    names = tuple(cluster.servers[r] for r in order.tolist())
    moved = replace(
        problem,
        cluster=replace(cluster, capacity=cluster.capacity[order], servers=names),
        channels=Channels(channels.job_type, server, channels.shape),
        cost=problem.cost[before],
    )
    return moved, before
