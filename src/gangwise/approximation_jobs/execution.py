"""From a decision to the tasks that it asks for, and from tasks to feedback that may come late."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.problem import ApproximationProblem
from gangwise.approximation_jobs.table import Rows
from gangwise.core.delivery import Mailbox
from gangwise.core.errors import InfeasibleDecision
from gangwise.kernels import approximation as kernels

__all__ = ["Feedback", "Post", "tasks_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


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
    problem: ApproximationProblem, rows: Rows, available: Bools, slot: int, decision: npt.ArrayLike
) -> tuple[Ints, Ints]:
    """Table rows and machines of the tasks of a decision, ordered by machine.

    Parameters
    ----------
    problem : ApproximationProblem
    rows : Rows
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
    n = kernels.unfit(row, machine, rows.serial, available)
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
    problem: ApproximationProblem, capacity: Floats, rows: Rows, slot: int, row: Ints, machine: Ints
) -> None:
    demand = np.array([0.0 if job is None else job.demand for job in rows.jobs])
    taken = np.bincount(machine, weights=demand[row], minlength=problem.M)
    over = np.flatnonzero(taken > capacity + 1e-9 * (1.0 + capacity))
    if over.size:
        i = over[0]
        raise InfeasibleDecision(
            f"slot {slot}, machine {problem.machines[i]!r}: tasks take {taken[i]:g} of "
            f"{capacity[i]:g}, (102)"
        )
    for j, tasks in enumerate(np.bincount(row, minlength=len(rows.jobs))):
        job = rows.jobs[j]
        if job is not None and job.parallelism is not None and tasks > job.parallelism:
            raise InfeasibleDecision(
                f"slot {slot}: job {job.id!r} runs {tasks} tasks; at most {job.parallelism} may "
                "run in parallel, (103)"
            )


@dataclass(eq=False)
class Post:
    """Feedback on its way; what arrives also tells how much work was done for jobs still there."""

    _mailbox: Mailbox[tuple[Feedback, Ints, Floats, Ints]] = field(default_factory=Mailbox)
    _sums: Floats = field(default_factory=lambda: np.zeros(0))

    def send(
        self, rows: Rows, delay: int, feedback: Feedback, row: Ints, work: Floats
    ) -> tuple[Feedback, ...]:
        """Post the feedback of a slot; returns all that arrives by now.

        Parameters
        ----------
        rows : Rows
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
            kernels.tell(row, work, serial, rows.serial, self._sums, rows.told)
            arrived.append(each)
        return tuple(arrived)
