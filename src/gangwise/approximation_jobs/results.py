"""What became of each job, kept in compact columns as jobs finish."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.problem import Job

__all__ = ["Results"]

Floats = npt.NDArray[np.float64]

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
