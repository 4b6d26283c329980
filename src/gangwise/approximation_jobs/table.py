"""The jobs that are active now, in rows that they keep while they last.

Memory grows with the most jobs that were ever active at once, not with how many came and went.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.problem import Job
from gangwise.core.errors import ScenarioError

__all__ = ["JobTable", "Rows"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Number = TypeVar("Number", np.int64, np.float64)

@dataclass(frozen=True, slots=True)
class JobTable:
    """Active jobs as policies see them; entries of rows that are not in ``rows`` mean nothing.

    Attributes
    ----------
    rows : ndarray of int64, shape [n]
        Table rows of the n active jobs, ascending. A job keeps its row while it is active; the row
        may then go to another job.
    jobs : sequence of Job or None, length C
        The job in each row.
    arrival, deadline : ndarray of int64, shape [C]
        a_j and d_j.
    budget : ndarray of shape [C]
        B_j.
    cost : ndarray of shape [C]
        What each job's tasks have cost so far.
    work : ndarray of shape [C]
        X_j so far, as far as feedback has told it.
    kind : ndarray of int64, shape [C]
        Form of the utility; with ``v`` and ``shape`` [C] what kernels need (:mod:`.utilities`).
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
        """C, the number of rows."""
        return len(self.jobs)


@dataclass(eq=False)
class Rows:
    """Keeps the rows; the environment's side of :class:`JobTable`.

    ``work`` is what was really done, ``told`` what feedback has delivered of it; ``serial`` tells
    apart the jobs that have used a row.
    """

    jobs: list[Job | None] = field(default_factory=list)
    active: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    _row: dict[str | int, int] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)
    _count: int = 0

    def __post_init__(self) -> None:
        for name in ("arrival", "deadline", "kind", "serial"):
            setattr(self, name, np.zeros(0, np.int64))
        for name in ("life", "budget", "v", "shape", "cost", "work", "told"):
            setattr(self, name, np.zeros(0))

    arrival: Ints = field(init=False)
    deadline: Ints = field(init=False)
    kind: Ints = field(init=False)
    serial: Ints = field(init=False)
    life: Floats = field(init=False)
    budget: Floats = field(init=False)
    v: Floats = field(init=False)
    shape: Floats = field(init=False)
    cost: Floats = field(init=False)
    work: Floats = field(init=False)
    told: Floats = field(init=False)

    def _grow(self) -> None:
        before = len(self.jobs)
        more = max(16, before)
        for name, array in vars(self).items():
            if isinstance(array, np.ndarray) and name != "active":
                setattr(self, name, np.concatenate((array, np.zeros(more, array.dtype))))
        self.jobs.extend([None] * more)
        self._free.extend(range(before, before + more))
        heapq.heapify(self._free)

    def row_of(self, job: str | int) -> int | None:
        """Row of an active job."""
        return self._row.get(job)

    def add(self, job: Job) -> int:
        """Give a job the lowest free row."""
        if job.id in self._row:
            raise ScenarioError(
                f"job {job.id!r} arrives in slot {job.arrival} while a job of the same id is still "
                "active; ids of jobs that run at the same time must differ"
            )
        if not self._free:
            self._grow()
        j = heapq.heappop(self._free)
        self._row[job.id], self.jobs[j] = j, job
        self._count += 1
        self.arrival[j], self.deadline[j], self.serial[j] = job.arrival, job.deadline, self._count
        self.life[j], self.budget[j] = job.lifetime, job.budget
        self.kind[j], self.v[j], self.shape[j] = job.utility.code
        self.cost[j] = self.work[j] = self.told[j] = 0.0
        return j

    def remove(self, j: int) -> Job:
        """Free a row."""
        job = self.jobs[j]
        assert job is not None
        del self._row[job.id]
        self.jobs[j], self.serial[j] = None, 0
        heapq.heappush(self._free, j)
        return job

    def refresh(self) -> None:
        """List the active rows again, after jobs came or went."""
        self.active = np.array(sorted(self._row.values()), dtype=np.int64)

    def view(self) -> JobTable:
        """What policies see: read-only, without copying."""
        return JobTable(
            _look(self.active), tuple(self.jobs), _look(self.arrival), _look(self.deadline),
            _look(self.budget), _look(self.cost), _look(self.told), _look(self.kind),
            _look(self.v), _look(self.shape),
        )  # fmt: skip


def _look(array: npt.NDArray[Number]) -> npt.NDArray[Number]:
    view = array.view()
    view.setflags(write=False)
    return view
