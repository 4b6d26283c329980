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
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.core.cluster import Channels, Cluster
from gangwise.core.errors import ScenarioError
from gangwise.gain_overhead.gang.validation import first_fault
from gangwise.gain_overhead.problem import GainOverheadProblem
from gangwise.gain_overhead.utilities import Utilities

__all__ = ["GangProblem", "GangReward"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


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
            ("task_job_type", np.int64), ("task_requests", np.float64),
            ("minimum", np.int64), ("overhead", np.float64),
        ):  # fmt: skip
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
        from gangwise.gain_overhead.gang.feasibility import require_feasible

        where = require_feasible(self, np.asarray(arrived), np.asarray(placement), slot)
        gain, overhead = self.by_job_type(where)
        launched = int(np.unique(self.task_job_type[where >= 0]).size)
        g, o = float(gain.sum()), float(overhead.sum())
        return GangReward(g - o, g, o, self.utilisation(where), launched)
