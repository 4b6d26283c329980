"""Gang scheduling: jobs of several tasks that start together or not at all.

Both papers define gangs and leave their meaning open. OGASched §3.5 asks for at least m_l scheduled
tasks of job type l,

    Σ_q 1{ Σ_r Σ_k y_{l,r}^{q,k} > 0 } ≥ m_l,

which counts a task as scheduled when it holds any positive amount: an ε of one device for each task
meets it, "all-or-nothing" then says nothing, and the supremum of the reward need not be attained.
It also binds a job type that brought no job. ESDP §3.4 asks for Σ_r Σ_q x^l_(q,r) ≥ m_l in every
slot, whether a job arrived or not, lets a job that falls short keep what it holds, and lets one
task sit on m_l servers. Both are read alike here, with y_l = 1 when the job of type l is launched:

* a task sits on one server at most, Σ_r x^l_(q,r) ≤ 1, which holds its whole request a_l^{q,k} for
  all device types k;
* m_l y_l ≤ Σ_{q,r} x^l_(q,r) ≤ |Q_l| y_l and y_l ≤ 𝟙_l(t): all or nothing, and nothing when no job
  came;
* Σ_{l,q} a_l^{q,k} x^l_(q,r) ≤ c_r^k: the capacities of each server bind over all jobs together,
  and only channels (l, r) are used;
* a job may be left out, for reward 0; it lasts one slot.

These are the rules of :class:`GangPlacementProblem`. What a launched job is worth makes two
problems of it: gain minus overhead (:class:`GangProblem`), or a utility per task and channel that
has to be learned (:class:`GangSpeedsProblem`).
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Bools, Floats, Ints, check_amount, check_names, first, frozen, keep
from gangwise.core.errors import InfeasibleDecision, ScenarioError
from gangwise.core.workload import Channels, Cluster
from gangwise.papers.gain_overhead import problem as elastic

ProblemT = TypeVar("ProblemT", bound="GangPlacementProblem")


@dataclass(frozen=True, eq=False)
class GangPlacementProblem:
    """Gang placement: tasks, servers, channels, and the all-or-nothing rule.

    Parameters
    ----------
    cluster : Cluster
        R servers with K device types; c_r^k is ``capacity[r, k]``, in devices.
    task_job_type : ndarray of int64, shape [Q]
        Job type of each task, never decreasing: tasks are listed job type by job type.
    task_requests : ndarray of shape [Q, K]
        a_l^{q,k}: the devices that a task needs, all on one server.
    minimum : ndarray of int64, shape [L]
        m_l: tasks without which a job of the type is not launched, 1 to |Q_l|.
    channels : Channels
        Which job type may use which server; E of them.
    job_types : tuple of str, optional
        Names, length L.

    Raises
    ------
    ScenarioError
        Names the job type, task, server, device type or channel at fault, and says what to do.
    """

    cluster: Cluster
    task_job_type: Ints
    task_requests: Floats
    minimum: Ints
    channels: Channels
    job_types: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        for name in ("task_job_type", "minimum"):
            numbers = np.asarray(getattr(self, name))
            keep(self, **{name: frozen(numbers, np.int64)})
            if not np.array_equal(getattr(self, name), numbers):
                raise ScenarioError(f"{name} must hold whole numbers; got {numbers}")
        keep(self, task_requests=frozen(self.task_requests))
        # In this order: each check relies on what those before it have made sure of.
        self._require_shapes()
        self._require_tasks()
        self._require_room()

    def _require_shapes(self) -> None:
        R, K = self.cluster.capacity.shape
        L, tasks = self.minimum.size, self.task_job_type.shape
        if self.minimum.ndim != 1 or not L:
            raise ScenarioError(
                f"minimum has shape {self.minimum.shape}; expected one number for each job type"
            )
        keep(self, job_types=check_names(self.job_types, L, "job type"))
        if len(tasks) != 1 or self.task_requests.shape != (*tasks, K):
            raise ScenarioError(
                f"task_job_type has shape {tasks} and task_requests {self.task_requests.shape}; "
                f"expected one job type for each task and a table of tasks by {K} device types"
            )
        self.channels.require_all_connected(self.job_types, R)

    def _require_tasks(self) -> None:
        job_type, L, requests, names = (
            self.task_job_type,
            self.L,
            self.task_requests,
            self.job_types,
        )
        if (q := first((job_type < 0) | (job_type >= L))) is not None:
            raise ScenarioError(
                f"task_job_type[{q}] is {job_type[q]}; there are {L} job types, counted from 0"
            )
        # Kernels go through the tasks of a job type as one slice.
        if (q := first(np.diff(job_type) < 0)) is not None:
            raise ScenarioError(
                f"task_job_type[{q + 1}] is {job_type[q + 1]} after {job_type[q]}; list the tasks "
                "job type by job type"
            )
        count = np.bincount(job_type, minlength=L)
        if (l := first(count == 0)) is not None:
            raise ScenarioError(f"job type {names[l]!r} has no tasks; give it one or leave it out")
        check_amount(
            requests,
            lambda at: (
                f"{self.task_name(at[0])}: request of device type {self.cluster.devices[at[1]]!r}"
            ),
        )
        if (q := first(~(requests > 0).any(axis=1))) is not None:
            raise ScenarioError(f"{self.task_name(q)} requests no devices at all; leave it out")
        # A minimum of zero would launch gangs without a task, and above the count none ever.
        if (l := first((self.minimum < 1) | (self.minimum > count))) is not None:
            raise ScenarioError(
                f"job type {names[l]!r} needs at least {self.minimum[l]} of its {count[l]} tasks; "
                f"the minimum must be 1 to {count[l]}"
            )

    def _require_room(self) -> None:
        """Raise ScenarioError unless every task fits on some server of its job type."""
        if (q := first(~self.fits.any(axis=1))) is None:
            return
        servers = np.flatnonzero(self.channel_of[self.task_job_type[q]] >= 0)
        largest, request = self.cluster.capacity[servers].max(axis=0), self.task_requests[q]
        # Named type by type; where each alone would fit, it is their combination that fits nowhere.
        short = [
            f"{request[k]:g} of device type {device!r} (the best has {largest[k]:g})"
            for k, device in enumerate(self.cluster.devices)
            if request[k] > largest[k]
        ] or ["a combination of device types that none of them has"]
        raise ScenarioError(
            f"{self.task_name(q)} fits on none of its {servers.size} connected servers: it "
            f"requests {', '.join(short)}; lower the request, split the task, or connect a larger "
            "server"
        )

    @property
    def L(self) -> int:  # job types
        return int(self.minimum.size)

    @property
    def Q(self) -> int:  # tasks
        return int(self.task_job_type.size)

    @property
    def E(self) -> int:  # channels
        return len(self.channels)

    @cached_property
    def first(self) -> Ints:
        """Tasks of job type l are first[l] … first[l + 1] - 1; shape [L + 1]."""
        return np.searchsorted(self.task_job_type, np.arange(self.L + 1))

    @cached_property
    def channel_of(self) -> Ints:
        """Channel of each job type and server, -1 where there is none; shape [L, R]."""
        # A table instead of a search: kernels and checks look channels up task by task.
        index = np.full(self.channels.shape, -1, dtype=np.int64)
        index[self.channels.job_type, self.channels.server] = np.arange(len(self.channels))
        return index

    @cached_property
    def fits(self) -> Bools:
        """Whether a task may sit on a server that is otherwise empty; shape [Q, R]."""
        capacity = self.cluster.capacity
        # A task may fill a server to the last bit of rounding.
        whole = (self.task_requests[:, None, :] <= capacity * (1 + 1e-12)).all(axis=2)
        return np.asarray(whole & (self.channel_of[self.task_job_type] >= 0))

    def task_name(self, q: int) -> str:
        """Name of a task in errors, such as ``task 1 of job type 'train'`` (counted from 0)."""
        l = int(self.task_job_type[q])
        return f"task {q - int(self.first[l])} of job type {self.job_types[l]!r}"

    def name(self, e: int) -> str:
        l, r = self.channels.job_type[e], self.channels.server[e]
        return f"channel ({self.job_types[l]!r} on {self.cluster.servers[r]!r})"

    def check(
        self, arrivals: npt.ArrayLike, placement: npt.ArrayLike, slot: int | None = None
    ) -> Ints:
        """Feasibility of a placement: the same as whole numbers, shape [Q], if it keeps the rules.

        ``arrivals`` [L] are 𝟙_l(t), 1 where a job arrived; ``placement`` [Q] is the server of each
        task, -1 for a task that does not run.

        Raises
        ------
        InfeasibleDecision
            For a server that does not exist or is no channel of the job type, a task of a job that
            did not arrive, a gang with fewer tasks than its minimum, or a server that is handed out
            beyond its capacity (by more than a relative 1e-9).
        """
        arrived, placing = np.asarray(arrivals), np.asarray(placement)
        at = "" if slot is None else f"slot {slot}: "
        if placing.shape != (self.Q,) or arrived.shape != (self.L,):
            raise InfeasibleDecision(
                f"{at}the decision has shape {placing.shape} for arrivals of shape "
                f"{arrived.shape}; expected a server for each of {self.Q} tasks and "
                f"{self.L} job types"
            )
        if placing.dtype.kind not in "iu":
            raise InfeasibleDecision(
                f"{at}the decision holds {placing.dtype} values; expected a whole number for each "
                "task: its server, or -1"
            )
        servers = placing.astype(np.int64)
        (L, R), job_type = self.channels.shape, self.task_job_type
        if (q := first((servers < -1) | (servers >= R))) is not None:
            raise InfeasibleDecision(
                f"{at}{self.task_name(q)} is placed on server number {servers[q]}; there are {R}, "
                "counted from 0, and -1 stands for none"
            )
        placed = servers >= 0
        for bad, reason in (
            (self.channel_of[job_type, servers] < 0, "to which its job type has no channel"),
            (arrived[job_type] == 0, "but no such job arrived"),
        ):
            if (q := first(placed & bad)) is not None:
                server = self.cluster.servers[servers[q]]
                raise InfeasibleDecision(
                    f"{at}{self.task_name(q)} is placed on server {server!r}, {reason}"
                )
        # Launched with fewer than its minimum a gang is no gang: all or nothing, but for what is
        # optional.
        count = np.bincount(job_type[placed], minlength=L)
        if (l := first((count > 0) & (count < self.minimum))) is not None:
            raise InfeasibleDecision(
                f"{at}job type {self.job_types[l]!r} has {count[l]} of its tasks placed and needs "
                f"at least {self.minimum[l]} to be launched; place more or none"
            )
        self._require_capacity(servers, at)
        return servers

    def _require_capacity(self, where: Ints, at: str) -> None:
        capacity, used = self.cluster.capacity, self.handed_out(where)
        over = first(used > capacity + elastic.TOLERANCE * (1.0 + capacity))
        if over is not None:
            r, k = over
            # Those who hold it are named, four of them, since the fault is in their sum.
            holders = np.flatnonzero((where == r) & (self.task_requests[:, k] > 0))
            names = ", ".join(self.task_name(int(q)) for q in holders[:4])
            rest = f" and {holders.size - 4} more" if holders.size > 4 else ""
            raise InfeasibleDecision(
                f"{at}server {self.cluster.servers[r]!r} has {capacity[over]:g} of device type "
                f"{self.cluster.devices[k]!r}, and {used[over]:.12g} were handed out, to "
                f"{names}{rest}"
            )

    def _placed(self, placement: Ints) -> tuple[Ints, Ints]:
        placed = np.flatnonzero(placement >= 0)
        return placed, self.channel_of[self.task_job_type[placed], placement[placed]]

    def count(self, placement: Ints) -> Ints:
        """n_e: how many tasks a feasible placement puts on each channel, shape [E]."""
        # bincount of no tasks at all need not give whole numbers.
        return np.bincount(self._placed(placement)[1], minlength=self.E).astype(np.int64)

    def held(self, placement: Ints) -> Floats:
        """Devices that each channel's job holds under a placement, shape [E, K]."""
        placed, e = self._placed(placement)
        y = np.zeros((self.E, self.task_requests.shape[1]))
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
        present = capacity > 0
        used = self.handed_out(placement)
        return float((used[present] / capacity[present]).mean()) if present.any() else 0.0

    @cached_property
    def server_order(self) -> Ints:
        """Servers by what they are and not by what they are called: largest first; shape [R].

        Servers that have the same devices come in the order of the job types that connect to them.
        A policy that goes through servers in this order decides alike under any names.
        """
        capacity = self.cluster.capacity
        mask = self.channel_of < 0  # lexsort sorts by its last key first
        return np.lexsort((*mask, *(-capacity.T), -elastic.relative_size(capacity))).astype(
            np.int64
        )

    def relabelled(self: ProblemT, order: Ints) -> tuple[ProblemT, Ints]:
        """The problem with server ``order[i]`` now called ``i``; old numbers of channels [E]."""
        cluster = self.cluster
        channels, before = self.channels.relabelled(order)
        # Servers keep their names; only their numbers change.
        names = tuple(cluster.servers[r] for r in order.tolist())
        moved = replace(
            self,
            cluster=replace(cluster, capacity=cluster.capacity[order], servers=names),
            channels=channels,
            **self._relabelled(order, before),
        )
        return moved, before

    def _relabelled(self, order: Ints, before: Ints) -> dict[str, Any]:
        """Fields that also change with the names of servers and channels."""
        return {}


class GangReward(NamedTuple):
    reward: float
    gain: float
    overhead: float
    utilisation: float
    launched: int


@dataclass(frozen=True, eq=False)
class GangProblem(GangPlacementProblem):
    """Gangs with gain and overhead (OGASched §3.5): the gang form of OGASched (5).

    A launched job earns, with the gain separable by server as OGASched (7) and OGASched (9) have
    it,

        Σ_{r,k} f_r^k( Σ_q y_{l,r}^{q,k} ) - max_k β_k Σ_{q,r} y_{l,r}^{q,k}.

    Parameters
    ----------
    cluster, task_job_type, task_requests, minimum, channels, job_types
        As of :class:`GangPlacementProblem`.
    utilities : Utilities
        f_r^k of every server and device type.
    overhead : ndarray of shape [K]
        β_k, per device.

    Examples
    --------
    Two servers with four GPUs each, one job type of two tasks that both must run:

    >>> from gangwise import Channels, Cluster
    >>> from gangwise.papers.gain_overhead.problem import Utilities
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
    """

    utilities: elastic.Utilities
    overhead: Floats

    def __post_init__(self) -> None:
        super().__post_init__()
        keep(self, overhead=elastic.require_rewards(self.cluster, self.utilities, self.overhead))

    @cached_property
    def relaxed(self) -> elastic.GainOverheadProblem:
        """Fractional relaxation over job types: a job requests Σ_q a_l^q of every server.

        Its optimum is no smaller than the gang problem's: dropping wholeness, all-or-nothing and
        the one-server rule only adds decisions, and a job left out is the decision zero.
        """
        # The sum over tasks may exceed a server; the relaxation may spread it over all of them.
        requests = np.zeros((self.L, self.task_requests.shape[1]))
        np.add.at(requests, self.task_job_type, self.task_requests)
        return elastic.GainOverheadProblem(
            self.cluster, requests, self.channels, self.utilities, self.overhead, self.job_types
        )

    def by_job_type(self, placement: Ints) -> tuple[Floats, Floats]:
        """Gain and overhead of each job type under a placement, two arrays of shape [L]."""
        y = self.held(placement)
        return elastic.gain_and_overhead(self.channels, self.utilities, self.overhead, y)

    def reward(
        self, arrived: npt.ArrayLike, placement: npt.ArrayLike, slot: int | None = None
    ) -> GangReward:
        """Reward of a decision; parameters and errors as of :meth:`check`."""
        servers = self.check(arrived, placement, slot)
        gain, overhead = self.by_job_type(servers)
        launched = int(np.unique(self.task_job_type[servers >= 0]).size)
        # Job types that are not launched hold nothing, gain nothing and owe no overhead.
        g, o = float(gain.sum()), float(overhead.sum())
        return GangReward(g - o, g, o, self.utilisation(servers), launched)

    def _relabelled(self, order: Ints, before: Ints) -> dict[str, Any]:
        u = self.utilities
        return {"utilities": replace(u, kind=u.kind[order], alpha=u.alpha[order])}


@dataclass(frozen=True, eq=False)
class GangSpeedsProblem(GangPlacementProblem):
    """Gangs at fluctuating speeds (ESDP §3.4): every task on channel e earns Z̃_e(t) in [0, 1].

    Z̃ is *one* number for a channel and slot, net of supply cost as in ESDP (3): the speed of that
    server for that job type, however many tasks sit there; with n_e tasks on channel e the slot
    earns Σ_e n_e Z̃_e(t) − Σ_q d_q, ESDP (5), over the tasks q that run. ESDP (3) charges f_k(a)
    for what a task requests, so tasks of one job type that request different amounts cost
    different: ``cost`` is what all tasks pay on a channel, inside Z̃, and d_q what a task pays
    wherever it runs, outside of it, so that there is still one number to learn for a channel.
    Policies know all of this, but not the mean utility of any channel.

    Parameters
    ----------
    cluster, task_job_type, task_requests, minimum, channels, job_types
        As of :class:`GangPlacementProblem`.
    cost : ndarray of shape [E]
        Supply cost of one task on each channel, in units of utility.
    task_cost : ndarray of shape [Q], optional
        d_q: supply cost of each task, in units of Z̃; zero or larger, none by default.

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
    """

    cost: Floats
    task_cost: Floats = field(default_factory=lambda: np.zeros(0), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        # None given means that tasks cost nothing beside their channels.
        task_cost = frozen(self.task_cost if np.size(self.task_cost) else np.zeros(self.Q))
        # May be negative, unlike what tasks cost: a channel whose use is paid for.
        cost = frozen(self.cost)
        for name, array, count, things in (
            ("task_cost", task_cost, self.Q, "tasks"),
            ("cost", cost, self.E, "channels"),
        ):
            if array.shape != (count,):
                raise ScenarioError(
                    f"{name} has shape {array.shape}; expected one number for each of {count} "
                    f"{things}"
                )
            keep(self, **{name: array})
        check_amount(task_cost, lambda q: f"{self.task_name(q)}: its supply cost")
        if (e := first(~np.isfinite(cost))) is not None:
            raise ScenarioError(f"{self.name(e)}: supply cost is {cost[e]}; it must be finite")

    def tasks_on(
        self, arrivals: npt.ArrayLike, placement: npt.ArrayLike, slot: int | None = None
    ) -> Ints:
        """n_e of a placement, shape [E], if it is feasible; else as of :meth:`check`."""
        return self.count(self.check(arrivals, placement, slot))

    def paid(self, placement: Ints) -> float:
        """Σ d_q of the tasks that a placement runs."""
        return float(self.task_cost[np.asarray(placement) >= 0].sum())

    def _relabelled(self, order: Ints, before: Ints) -> dict[str, Any]:
        return {"cost": self.cost[before]}
