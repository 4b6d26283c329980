"""Channels are switched on one after another, as long as there are devices left."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem
from gangwise.kernels import speeds as kernels

__all__ = ["InOrder"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class InOrder:
    """Switches channels on in a given order, or job type by job type.

    The paper ranks job types (ports), not channels, and does not say in which order the channels of
    one job type go on: here the cheapest to supply comes first. "In turn until (2) cannot be
    satisfied" is read as skipping what does not fit; ``stop`` ends at the first that does not.
    """

    def __init__(self, problem: FluctuatingSpeedsProblem, stop: bool = False):
        self.job_type = problem.channels.job_type
        self._by_cost = np.lexsort((problem.cost, self.job_type))
        self._job_type_by_cost = self.job_type[self._by_cost]
        self._requests = problem.requests
        self._capacity = problem.cluster.capacity + problem.tolerance
        self._left = np.empty_like(self._capacity)
        self._stop = stop
        self._L = problem.L

    def per_job_type(self, values: Floats) -> Floats:
        """Sum over the channels of each job type, shape [L]."""
        summed: Floats = np.bincount(self.job_type, values, minlength=self._L).astype(np.float64)
        return summed

    def switch_on(self, order: Ints) -> Bools:
        """Channels in this order, shape [E]; those left out stay off."""
        x = np.zeros(self.job_type.size, dtype=np.bool_)
        kernels.switch_on(order, self._requests, self._capacity, self._stop, self._left, x)
        return x

    def by_job_type(self, score: Floats, available: Bools) -> Bools:
        """Job types in descending order of their score [L], ties to the first."""
        order = self._by_cost[np.argsort(-score[self._job_type_by_cost], kind="stable")]
        return self.switch_on(order[available[order]])
