"""The problem of ESDP §3.4: jobs of several tasks, on channels whose worth has to be learned.

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

import numpy as np
import numpy.typing as npt

from gangwise.core.cluster import Channels, Cluster
from gangwise.core.errors import ScenarioError
from gangwise.gain_overhead.gang.feasibility import require_feasible
from gangwise.gain_overhead.gang.problem import GangProblem
from gangwise.gain_overhead.utilities import Utilities

__all__ = ["GangSpeedsProblem", "relabelled", "server_order"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


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
            self.cluster, self.task_job_type, self.task_requests, self.minimum, self.channels,
            worthless, np.zeros(capacity.shape[1]), self.job_types,
        )  # fmt: skip
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
