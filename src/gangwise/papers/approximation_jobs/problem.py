"""Jobs, utilities, machines and prices of OPM §III, and the table of active jobs that policies see.

"Machine" is the paper's word for a server. The paper counts slots from 1 and gangwise from 0: the
paper's slot t is our slot t − 1. A job is active in the paper's slots a_j + 1, …, d_j, which are
our slots ``range(arrival, deadline)``; its lifetime is d_j − a_j slots in both.

A utility f_j(X) of the work done is concave and worth 0 without any. The slope of v X^β is infinite
there, so that it is not Lipschitz and Theorems 2 and 3 do not cover it; policies that follow slopes
evaluate them at a floor.

Active jobs keep their row of the table while they last. Its memory grows with the most jobs that
were ever active at once, not with how many came and went.
"""

import heapq
import math
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np

from gangwise.core import arrays
from gangwise.core.arrays import Floats, Ints, check_amount, keep, read_only
from gangwise.core.errors import ScenarioError
from gangwise.core.workload import Cluster
from gangwise.papers.approximation_jobs import kernels

POWER, LOG, SATURATING = range(3)
"""Codes of the forms in the kernels."""

SLACK = 1e-9  # of a budget, so that one of k prices pays k tasks whatever the rounding


class Utility(Protocol):
    """Utility of work: increasing, concave, 0 at 0."""

    @property
    def code(self) -> tuple[int, float, float]:
        """Form, scale v and shape, for kernels."""

    def value(self, work: float) -> float:
        """f(X) in units of utility, X in units of work (a machine of rate 1 for one slot)."""


@dataclass(frozen=True)
class Power(arrays.Checked):
    """f(X) = v X^β, 0 < β ≤ 1: the utility of §VI.

    Examples
    --------
    >>> Power(3.0, 0.5).value(4.0)
    6.0
    """

    v: arrays.Positive = 1.0
    beta: arrays.PositiveShare = 0.5  # above 1 it is not concave

    @property
    def code(self) -> tuple[int, float, float]:
        return POWER, self.v, self.beta

    def value(self, work: float) -> float:
        return self.v * math.pow(work, self.beta)


@dataclass(frozen=True)
class _Scaled(arrays.Checked):
    """Utilities v φ(X / s) of the work X in units of s."""

    v: arrays.Positive = 1.0
    s: arrays.Positive = 1.0
    form: ClassVar[int]

    @property
    def code(self) -> tuple[int, float, float]:
        return self.form, self.v, self.s


class Log(_Scaled):
    """f(X) = v log(1 + X / s).

    Examples
    --------
    >>> round(Log(2.0, 10.0).value(10.0), 3)
    1.386
    """

    form = LOG

    def value(self, work: float) -> float:
        return self.v * math.log1p(work / self.s)


class Saturating(_Scaled):
    """f(X) = v (1 − exp(−X / s)): accuracy that approaches v.

    Examples
    --------
    >>> round(Saturating(1.0, 10.0).value(10.0), 3)
    0.632
    """

    form = SATURATING

    def value(self, work: float) -> float:
        # expm1, log1p: exact to the last digits also where the work is small beside s.
        return -self.v * math.expm1(-work / self.s)


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

    Raises
    ------
    ScenarioError
        Names the job and what is wrong with it.

    Examples
    --------
    >>> Job("sgd", arrival=3, deadline=10, budget=14.0).pace
    2.0
    """

    id: str | int
    arrival: int
    deadline: int
    budget: float
    utility: Utility = field(default_factory=Power)

    def __post_init__(self) -> None:
        for name, slot in (("arrival", self.arrival), ("deadline", self.deadline)):
            if not hasattr(slot, "__index__"):
                raise ScenarioError(f"job {self.id!r}: {name} is {slot!r}; slots are whole numbers")
        # A job runs in the slots from its arrival to before its deadline.
        if self.deadline <= self.arrival:
            raise ScenarioError(
                f"job {self.id!r}: its deadline, slot {self.deadline}, is not after its arrival, "
                f"slot {self.arrival}; it could never run"
            )
        arrays.check_numbers("(0, inf)", **{f"job {self.id!r}: budget": self.budget})

    @property
    def lifetime(self) -> int:
        return self.deadline - self.arrival

    @property
    def pace(self) -> float:
        """β_j = B_j / (d_j − a_j) of OPM (64): the budget of one slot."""
        return self.budget / self.lifetime


@dataclass(frozen=True, eq=False)
class ApproximationProblem:
    """Machines, and what a task on each of them costs in one slot.

    Parameters
    ----------
    prices : ndarray of shape [M]
        p_i, in units of price per task and slot. The paper has p_i ≤ 1 without loss of generality:
        prices and budgets divided by the largest leave OPM (P1) as it is.
    machines : tuple of str, optional
        Names; ``machine-0`` … when not given.
    horizon : int, optional
        T, if the policy may know it.
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
    """

    prices: Floats
    machines: tuple[str, ...] = ()
    horizon: int | None = None
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
        # T is for step sizes such as 1 / √T; a policy that needs it says so where there is none.
        if self.horizon is not None and self.horizon < 1:
            raise ScenarioError(f"horizon is {self.horizon}; it must be a slot or more")
        check_amount(prices, lambda i: f"machine {names[i]!r}: price")
        prices.setflags(write=False)
        # One free machine is fine; of free ones alone everybody has all, and nothing is to be
        # decided.
        if not prices.any():
            raise ScenarioError("every machine is free; budgets then mean nothing: set prices")
        keep(self, prices=prices, machines=tuple(names))

    @property
    def M(self) -> int:
        return int(self.prices.size)

    @property
    def cluster(self) -> Cluster:
        """The machines as servers with one device type, for tools that serve all families."""
        # One unit of one device type, since a machine runs one task at a time, OPM (3).
        return Cluster(np.ones((self.M, 1)), ("task",), self.machines)


@dataclass(frozen=True, slots=True)
class JobTable:
    """Active jobs as policies see them; entries of rows that are not in ``rows`` mean nothing.

    ``rows`` [n] are the table rows of the n active jobs, ascending. A job keeps its row while it is
    active; the row may then go to another job. All other columns have shape [C]: ``arrival`` a_j,
    ``deadline`` d_j, ``budget`` B_j, ``cost`` and ``work`` X_j so far, as far as feedback has
    reported it, and the form (``kind``, ``v``, ``shape``) of the utility for kernels.
    """

    rows: Ints
    jobs: tuple[Job | None, ...]
    arrival: Ints
    deadline: Ints
    budget: Floats
    cost: Floats
    work: Floats
    kind: Ints
    v: Floats
    shape: Floats

    @property
    def size(self) -> int:
        return len(self.jobs)


class ActiveJobs:
    """Table of active jobs, the environment's side of :class:`JobTable`.

    ``active`` are the rows in use, ascending; ``work`` is what was really done, ``reported`` what
    feedback has delivered of it; ``serial`` tells apart the jobs that have used a row, 0 for none.
    """

    def __init__(self) -> None:
        self.jobs: list[Job | None] = []
        self.active = np.empty(0, np.int64)
        self.arrival, self.deadline, self.kind, self.serial = np.zeros((4, 0), np.int64)
        self.life, self.budget, self.v, self.shape = np.zeros((4, 0))
        self.cost, self.work, self.reported = np.zeros((3, 0))
        self._row: dict[str | int, int] = {}
        self._free: list[int] = []  # a heap, so that the lowest free row is given out
        self._count = 0

    def _grow(self) -> None:
        before = len(self.jobs)
        # Columns become new arrays: views that policies hold keep what they showed.
        added = max(16, before)
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray) and name != "active":
                setattr(self, name, np.concatenate((column, np.zeros(added, column.dtype))))
        self.jobs.extend([None] * added)
        self._free.extend(range(before, before + added))
        heapq.heapify(self._free)

    def add(self, job: Job) -> int:
        if job.id in self._row:
            raise ScenarioError(
                f"job {job.id!r} arrives in slot {job.arrival} while a job of the same id is still "
                "active; ids of jobs that run at the same time must differ"
            )
        # The table doubles, so that adding a job takes constant time in the mean.
        if not self._free:
            self._grow()
        j = heapq.heappop(self._free)
        self._row[job.id], self.jobs[j] = j, job
        self._count += 1
        self.arrival[j], self.deadline[j], self.serial[j] = job.arrival, job.deadline, self._count
        self.life[j], self.budget[j] = job.lifetime, job.budget
        self.kind[j], self.v[j], self.shape[j] = job.utility.code
        # The row may have been another job's.
        self.cost[j] = self.work[j] = self.reported[j] = 0.0
        return j

    def remove(self, j: int) -> Job:
        job = self.jobs[j]
        assert job is not None
        del self._row[job.id]
        # Columns keep what they had: readers go by ``rows`` and by serial 0.
        self.jobs[j], self.serial[j] = None, 0
        heapq.heappush(self._free, j)
        return job

    def refresh(self) -> None:
        self.active = np.array(sorted(self._row.values()), dtype=np.int64)

    def view(self) -> JobTable:
        """What policies see: read-only, without copying."""
        columns = (self.arrival, self.deadline, self.budget, self.cost, self.reported)
        utility = (self.kind, self.v, self.shape)
        active, jobs = read_only(self.active), tuple(self.jobs)
        return JobTable(active, jobs, *map(read_only, (*columns, *utility)))


def slopes_at(jobs: JobTable, rows: Ints, work: Floats) -> Floats:
    """f_j'(X_j) of the jobs in table rows ``rows`` [n] at positive work [n]."""
    slopes = np.empty(rows.size)
    arguments = read_only(rows), jobs.kind, jobs.v, jobs.shape, read_only(work)
    kernels.slopes(*arguments, slopes)
    return slopes
