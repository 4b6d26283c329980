"""Jobs, machines and prices of §III; what policies are told at the start.

"Machine" is the paper's word for a server. The paper counts slots from 1 and gangwise from 0: the
paper's slot t is our slot t − 1. A job is active in the paper's slots a_j + 1, …, d_j, which are
our slots ``range(arrival, deadline)``; its lifetime is d_j − a_j slots in both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.utilities import Power, Utility
from gangwise.core.cluster import Cluster
from gangwise.core.errors import ScenarioError

__all__ = ["ApproximationProblem", "Job"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Job:
    """One approximation job.

    Parameters
    ----------
    id : str or int
        Unique among the jobs that are active at the same time.
    arrival, deadline : int
        a_j and d_j: the job may run in our slots ``range(arrival, deadline)``.
    budget : float
        B_j: what its tasks may cost in total, in units of price.
    utility : Utility
        f_j, of the work done by the deadline.
    demand : float
        r_j of (102), what one task takes of a machine's capacity; for machines with capacities.
    parallelism : int, optional
        u_j of (103), how many tasks may run at once; for machines with capacities.

    Raises
    ------
    ScenarioError
        Names the job and what is wrong with it.

    Examples
    --------
    >>> Job("sgd", arrival=3, deadline=10, budget=14.0).pace
    2.0
    >>> Job("sgd", arrival=3, deadline=3, budget=14.0)
    Traceback (most recent call last):
    gangwise.core.errors.ScenarioError: job 'sgd': its deadline, slot 3, is not after its arrival...
    """

    id: str | int
    arrival: int
    deadline: int
    budget: float
    utility: Utility = field(default_factory=Power)
    demand: float = 1.0
    parallelism: int | None = None

    def __post_init__(self) -> None:
        for name, slot in (("arrival", self.arrival), ("deadline", self.deadline)):
            if not hasattr(slot, "__index__"):
                raise ScenarioError(f"job {self.id!r}: {name} is {slot!r}; slots are whole numbers")
        if self.deadline <= self.arrival:
            raise ScenarioError(
                f"job {self.id!r}: its deadline, slot {self.deadline}, is not after its arrival, "
                f"slot {self.arrival}; it could never run"
            )
        for name, value in (("budget", self.budget), ("demand", self.demand)):
            if not (math.isfinite(value) and value > 0):
                raise ScenarioError(
                    f"job {self.id!r}: {name} is {value}; it must be finite and positive"
                )
        if self.parallelism is not None and self.parallelism < 1:
            raise ScenarioError(
                f"job {self.id!r}: parallelism is {self.parallelism}; it must be 1 or more"
            )

    @property
    def lifetime(self) -> int:
        """d_j − a_j, in slots."""
        return self.deadline - self.arrival

    @property
    def pace(self) -> float:
        """β_j = B_j / (d_j − a_j) of (64): the budget of one slot."""
        return self.budget / self.lifetime


@dataclass(frozen=True, eq=False)
class ApproximationProblem:
    """Machines, and what a task on each of them costs in one slot.

    Parameters
    ----------
    prices : ndarray of shape [M]
        p_i, in units of price per task and slot. The paper has p_i ≤ 1 without loss of generality;
        larger ones are allowed, see :attr:`price_scale`.
    machines : tuple of str, optional
        Names; ``machine-0`` … when not given.
    horizon : int, optional
        T, if the policy may know it.
    capacity : ndarray of shape [M], optional
        C_i of (102). When given, machines hold several tasks (§V-C) and decisions are matrices.
    enforce : bool
        Whether tasks that a job's budget cannot pay are not executed. Section VI enforces budgets;
        Theorems 2 and 3 bound by how much they are exceeded when they are not.

    Raises
    ------
    ScenarioError
        Names the machine at fault.

    Examples
    --------
    >>> ApproximationProblem([1.0, 0.5]).machines
    ('machine-0', 'machine-1')
    >>> ApproximationProblem([1.0, -0.5])
    Traceback (most recent call last):
    gangwise.core.errors.ScenarioError: machine 'machine-1': price is -0.5; it must be finite and...
    """

    prices: Floats
    machines: tuple[str, ...] = ()
    horizon: int | None = None
    capacity: Floats | None = None
    enforce: bool = True

    def __post_init__(self) -> None:
        prices = np.array(self.prices, dtype=np.float64, ndmin=1)
        if prices.ndim != 1 or not prices.size:
            raise ScenarioError(f"prices are one number per machine; their shape is {prices.shape}")
        names = self.machines or tuple(f"machine-{i}" for i in range(prices.size))
        if len(names) != prices.size or len(set(names)) != prices.size:
            raise ScenarioError(
                f"{prices.size} prices need {prices.size} different machine names; got {len(names)}"
            )
        if self.horizon is not None and self.horizon < 1:
            raise ScenarioError(f"horizon is {self.horizon}; it must be a slot or more")
        arrays = {"price": prices}
        if self.capacity is not None:
            capacity = np.array(self.capacity, dtype=np.float64, ndmin=1)
            if capacity.shape != prices.shape:
                raise ScenarioError(
                    f"capacity has shape {capacity.shape}; there are {prices.size} machines"
                )
            arrays["capacity"] = capacity
            object.__setattr__(self, "capacity", capacity)
        for what, array in arrays.items():
            bad = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
            if bad.size:
                raise ScenarioError(
                    f"machine {names[bad[0]]!r}: {what} is {array[bad[0]]}; it must be finite and "
                    "not negative"
                )
            array.setflags(write=False)
        if not prices.any():
            raise ScenarioError("every machine is free; budgets then mean nothing: set prices")
        object.__setattr__(self, "prices", prices)
        object.__setattr__(self, "machines", tuple(names))

    @property
    def M(self) -> int:
        """Number of machines."""
        return int(self.prices.size)

    @property
    def price_scale(self) -> float:
        """The largest price if it exceeds 1, else 1: divide prices and budgets by it to get p ≤ 1.

        This leaves (P1) as it is; a dual step size μ then stands for μ times the square of it.
        """
        return max(1.0, float(self.prices.max()))

    @property
    def cluster(self) -> Cluster:
        """The machines as servers with one device type, for tools that serve all families."""
        capacity = np.ones(self.M) if self.capacity is None else self.capacity
        return Cluster(capacity[:, None], ("task",), self.machines, ("tasks",))

    def admit(self, job: Job) -> None:
        """Raise ScenarioError for a job that could never run here; names what is short."""
        if self.capacity is not None and job.demand > float(self.capacity.max()) * (1 + 1e-12):
            raise ScenarioError(
                f"job {job.id!r}: a task demands {job.demand:g}; the largest machine, "
                f"{self.machines[int(self.capacity.argmax())]!r}, has {self.capacity.max():g}"
            )
