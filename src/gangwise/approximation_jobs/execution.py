"""What happens in a slot between a decision and its feedback: inputs, tasks, moves, results.

:class:`Inputs` draws rates, jobs and delays some slots ahead; :func:`tasks_of` checks a decision
and lists its tasks; :class:`FeedbackDelivery` posts what they taught, which may come late or never;
:class:`MigrationCounter` compares the tasks with those of the last slot; :class:`Results` keeps
what became of every job. :mod:`~gangwise.approximation_jobs.environment` calls them in this order.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs import kernels
from gangwise.approximation_jobs.problem import ActiveJobs, ApproximationProblem, Job
from gangwise.approximation_jobs.rates import RateStream
from gangwise.approximation_jobs.workloads import JobStream
from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import InfeasibleDecision, ScenarioError
from gangwise.core.feedback import Delivery, Mailbox
from gangwise.core.simulation import Streams

BLOCK = 256
"""Slots that inputs are drawn ahead."""


@dataclass(frozen=True)
class Outage:
    """A machine that is away in the slots ``range(first, back)``."""

    machine: int
    first: int
    back: int = field(default=2**62)

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.back:
            raise ScenarioError(
                f"machine {self.machine} is away from slot {self.first} until it is back in slot "
                f"{self.back}; it must be 0 ≤ first < back"
            )


def split_noise(noise: np.random.Generator) -> tuple[np.random.Generator, np.random.Generator]:
    """Generators of the rates, and of the fate of feedback."""
    rates, fate = noise.spawn(2)
    return rates, fate


def rate_generator(seed: int) -> np.random.Generator:
    """The generator that the rates of a run are drawn from, as it begins."""
    return split_noise(Streams.of(seed).noise)[0]


@dataclass(eq=False)
class Inputs:
    """Blocks of rates, jobs and delays; slots are asked for in order.

    Raises
    ------
    ScenarioError
        For rates outside [0, 1] or for the wrong number of machines, and for jobs that come in
        another slot than they say or could never run; names the slot, and the machine or job.
    """

    problem: ApproximationProblem
    rates: RateStream
    jobs: JobStream
    delivery: Delivery
    fate: np.random.Generator
    _first: int = 0
    _rates: Floats = field(default_factory=lambda: np.empty((0, 0)))
    _jobs: Sequence[Sequence[Job]] = ()
    _delays: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def at(self, slot: int) -> tuple[Floats, Sequence[Job], int]:
        """Rates θ_i^t [M], the jobs that arrive, and the delay of feedback (−1: lost)."""
        while slot >= self._first + len(self._rates):
            self._first += len(self._rates)
            self._draw()
        n = slot - self._first
        return self._rates[n], self._jobs[n], int(self._delays[n])

    def _draw(self) -> None:
        rates = np.asarray(self.rates.draw(BLOCK), dtype=np.float64)
        if rates.shape != (BLOCK, self.problem.M):
            raise ScenarioError(
                f"rates from slot {self._first} on have shape {rates.shape}; expected {BLOCK} "
                f"slots by {self.problem.M} machines"
            )
        bad = np.argwhere(~((rates >= 0) & (rates <= 1)))
        if len(bad):
            t, i = bad[0]
            raise ScenarioError(
                f"slot {self._first + t}, machine {self.problem.machines[i]!r}: rate is "
                f"{rates[t, i]}; rates lie in [0, 1]"
            )
        jobs = self.jobs.draw(BLOCK)
        for n, each in enumerate(jobs):
            for job in each:
                if job.arrival != self._first + n:
                    raise ScenarioError(
                        f"job {job.id!r} comes in slot {self._first + n}, but says that it arrives "
                        f"in slot {job.arrival}"
                    )
                self.problem.admit(job)
        self._rates, self._jobs = rates, jobs
        self._delays = self.delivery.draw(BLOCK, self.fate)


@dataclass(frozen=True, slots=True)
class Feedback:
    """What one slot taught about the machines that ran a task.

    Attributes
    ----------
    slot : int
        The slot that it is about, which need not be the last one.
    machines : ndarray of int64, shape [n]
        Machines that ran a task, ascending.
    rates : ndarray of float64, shape [n]
        Their service rates θ_i^t, in work per task and slot.
    """

    slot: int
    machines: Ints
    rates: Floats


def tasks_of(
    problem: ApproximationProblem,
    rows: ActiveJobs,
    available: Bools,
    slot: int,
    decision: npt.ArrayLike,
) -> tuple[Ints, Ints]:
    """Table rows and machines of the tasks of a decision, by machine.

    OPM (3), OPM (102) and OPM (103) hold.

    Parameters
    ----------
    problem : ApproximationProblem
    rows : ActiveJobs
        The active jobs.
    available : ndarray of bool, shape [M]
    slot : int
    decision : array of int, shape [M], or of 0 and 1, shape [C, M]
        A table row or −1 for every machine; the matrix for machines of given capacity.

    Raises
    ------
    InfeasibleDecision
        Names the slot, and the machine or job at fault.
    """
    x, C = np.asarray(decision), len(rows.jobs)
    if problem.capacity is None:
        if x.shape != (problem.M,) or not np.issubdtype(x.dtype, np.integer):
            raise InfeasibleDecision(
                f"slot {slot}: the decision has shape {x.shape} and type {x.dtype}; expected a "
                f"table row (or -1) for each of {problem.M} machines, as integers"
            )
        machine = np.flatnonzero(x != -1)
        row = x[machine].astype(np.int64)
    else:
        if x.shape != (C, problem.M) or not ((x == 0) | (x == 1)).all():
            raise InfeasibleDecision(
                f"slot {slot}: the decision has shape {x.shape}; expected 0 or 1 for each of {C} "
                f"table rows and {problem.M} machines"
            )
        machine, row = np.nonzero(x.T)
    n = kernels.first_infeasible(row, machine, rows.serial, available)
    if n >= 0:
        name = problem.machines[machine[n]]
        if not available[machine[n]]:
            raise InfeasibleDecision(f"slot {slot}: machine {name!r} is not available")
        raise InfeasibleDecision(
            f"slot {slot}, machine {name!r}: no active job has table row {row[n]}"
        )
    if problem.capacity is not None:
        _check_capacity(problem, problem.capacity, rows, slot, row, machine)
    return row, machine


def _check_capacity(
    problem: ApproximationProblem,
    capacity: Floats,
    rows: ActiveJobs,
    slot: int,
    row: Ints,
    machine: Ints,
) -> None:
    demand = np.array([0.0 if job is None else job.demand for job in rows.jobs])
    taken = np.bincount(machine, weights=demand[row], minlength=problem.M)
    over = np.flatnonzero(taken > capacity + 1e-9 * (1.0 + capacity))
    if over.size:
        i = over[0]
        raise InfeasibleDecision(
            f"slot {slot}, machine {problem.machines[i]!r}: tasks take {taken[i]:g} of "
            f"{capacity[i]:g}, OPM (102)"
        )
    for j, tasks in enumerate(np.bincount(row, minlength=len(rows.jobs))):
        job = rows.jobs[j]
        if job is not None and job.parallelism is not None and tasks > job.parallelism:
            raise InfeasibleDecision(
                f"slot {slot}: job {job.id!r} runs {tasks} tasks; at most {job.parallelism} may "
                "run in parallel, OPM (103)"
            )


@dataclass(eq=False)
class FeedbackDelivery:
    """Feedback on its way; what arrives also tells how much work was done for jobs still there."""

    _mailbox: Mailbox[tuple[Feedback, Ints, Floats, Ints]] = field(default_factory=Mailbox)
    _sums: Floats = field(default_factory=lambda: np.zeros(0))

    def send(
        self, rows: ActiveJobs, delay: int, feedback: Feedback, row: Ints, work: Floats
    ) -> tuple[Feedback, ...]:
        """Post the feedback of a slot; returns all that arrives by now.

        Parameters
        ----------
        rows : ActiveJobs
            Whose ``told`` work is added to.
        delay : int
            In slots; it is lost if negative.
        feedback : Feedback
        row, work : ndarray of shape [n]
            Table row of each task, and the work that it did.
        """
        parcel = (feedback, row, work, rows.serial[row])
        arrived = []
        for each, row, work, serial in self._mailbox.exchange(feedback.slot, delay, parcel):
            if self._sums.size < rows.told.size:
                self._sums = np.zeros(rows.told.size)
            kernels.add_told_work(row, work, serial, rows.serial, self._sums, rows.told)
            arrived.append(each)
        return tuple(arrived)


@dataclass(eq=False)
class MigrationCounter:
    """Migrations: the tasks of a slot compared with those of the last one.

    The paper does not say what a migration is. Three counts: ``displaced``, tasks that a job still
    active lost on a machine; ``swaps``, those whose place another task took; ``net``,
    Σ_j min(lost, gained), the tasks that must have moved whatever one calls them.

    Parameters
    ----------
    machines : int
        M.
    several : bool
        Whether a machine may run several tasks.

    Examples
    --------
    >>> counter, active = MigrationCounter(3, several=False), np.array([0, 1])
    >>> counter.count(np.array([0, 1]), np.array([0, 2]), active, rows=2)
    (0.0, 0.0, 0.0)
    >>> counter.count(np.array([1, 0]), np.array([0, 1]), active, rows=2)
    (2.0, 1.0, 2.0)
    """

    machines: int
    several: bool
    _before: Ints = field(init=False)
    _held: Bools = field(init=False)

    def __post_init__(self) -> None:
        self._before = np.full(self.machines, -1, np.int64)
        self._held = np.zeros((0, self.machines), dtype=bool)
        self._lost, self._gained = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._out = np.zeros(3)

    def forget(self, rows: list[int]) -> None:
        """These jobs have left: what they had is not lost to anybody still there."""
        if self.several:
            self._held[rows] = False
        else:
            self._before[np.isin(self._before, rows)] = -1

    def count(
        self, row: Ints, machine: Ints, active: Ints, rows: int
    ) -> tuple[float, float, float]:
        """Displaced, swaps, net, when task n of table row ``row[n]`` ran on ``machine[n]``."""
        if self.several:
            return self._count_several(row, machine, rows)
        if self._lost.size < rows:
            self._lost, self._gained = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        now = np.full(self.machines, -1, np.int64)
        now[machine] = row
        kernels.count_migrations(self._before, now, active, self._lost, self._gained, self._out)
        self._before = now
        return float(self._out[0]), float(self._out[1]), float(self._out[2])

    def _count_several(self, row: Ints, machine: Ints, rows: int) -> tuple[float, float, float]:
        more = np.zeros((rows - len(self._held), self.machines), dtype=bool)
        before = np.concatenate((self._held, more))
        self._held = np.zeros_like(before)
        self._held[row, machine] = True
        lost, gained = before & ~self._held, self._held & ~before
        swaps = np.minimum(lost.sum(axis=0), gained.sum(axis=0)).sum()
        net = np.minimum(lost.sum(axis=1), gained.sum(axis=1)).sum()
        return float(lost.sum()), float(swaps), float(net)


COLUMNS = ("arrival", "deadline", "budget", "cost", "work", "utility")


@dataclass(eq=False)
class Results:
    """One entry per job, in the order in which they left; 48 bytes each.

    Examples
    --------
    >>> results = Results()
    >>> results.add(Job("a", 0, 4, budget=8.0), cost=6.0, work=4.0)
    >>> results["utility"], results.budget_use, results.cost_to_utility
    (array([2.]), array([0.75]), array([3.]))
    """

    _data: array[float] = field(default_factory=lambda: array("d"))

    def add(self, job: Job | None, cost: float, work: float) -> None:
        """Enter what became of a job."""
        assert job is not None
        utility = job.utility.value(work) if work > 0 else 0.0
        self._data.extend((job.arrival, job.deadline, job.budget, cost, work, utility))

    def copy(self) -> Results:
        """The same entries."""
        return Results(array("d", self._data))

    def __len__(self) -> int:
        return len(self._data) // len(COLUMNS)

    def __getitem__(self, column: str) -> Floats:
        """One of ``arrival``, ``deadline``, ``budget``, ``cost``, ``work``, ``utility``."""
        table = np.array(self._data, dtype=np.float64).reshape(-1, len(COLUMNS))
        return table[:, COLUMNS.index(column)]

    def columns(self) -> dict[str, Floats]:
        """All columns by name."""
        return {column: self[column] for column in COLUMNS}

    @property
    def budget_use(self) -> Floats:
        """C_j / B_j of each job (Fig. 1b)."""
        return self["cost"] / self["budget"]

    @property
    def cost_to_utility(self) -> Floats:
        """C_j / f_j(X_j) of each job (Fig. 1a); NaN for a job that nothing was done for."""
        utility = self["utility"]
        share: Floats = np.full(utility.size, np.nan)
        np.divide(self["cost"], utility, out=share, where=utility > 0)
        return share
