"""Job types served one after another: what DRF, random, BINPACKING and SPREADING share."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.gain_overhead.problem import GainOverheadProblem
from gangwise.kernels.allocation import pack, serve_in_order

__all__ = ["InOrder"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(eq=False)
class InOrder:
    """Hands out whole requests, as far as they fit, job type by job type.

    Attributes
    ----------
    of_job_type : ndarray of int64, shape [E]
        Channels sorted by job type.
    first : ndarray of int64, shape [L + 1]
        Where each job type's channels begin.
    """

    problem: GainOverheadProblem
    of_job_type: Ints = field(init=False)
    first: Ints = field(init=False)

    def __post_init__(self) -> None:
        channels, capacity = self.problem.channels, self.problem.cluster.capacity
        self.of_job_type = np.argsort(channels.job_type, kind="stable")
        self.first = np.searchsorted(
            channels.job_type[self.of_job_type], np.arange(self.problem.L + 1)
        )
        largest = np.maximum(capacity.max(axis=0), np.finfo(float).tiny)
        self._size = (capacity / largest).sum(axis=1)
        self._left = np.empty_like(capacity)
        self._score = np.empty(len(capacity))
        self._taken = np.empty(len(channels), dtype=np.int64)
        self._y = np.empty(self.problem.shape)

    def _empty(self) -> None:
        np.copyto(self._left, self.problem.cluster.capacity)
        for array in (self._score, self._taken, self._y):
            array.fill(0)

    def serve(self, order: Ints) -> Floats:
        """Each job type in ``order`` takes what it may hold on all its servers at once."""
        self._empty()
        p = self.problem
        serve_in_order(
            order, p.upper, p.channels.server, self.of_job_type, self.first, self._left, self._y
        )
        return self._y

    def pack(self, order: Ints, sign: float) -> Floats:
        """In turns, each takes its best server: most used for ``sign`` 1, least used for -1."""
        self._empty()
        p = self.problem
        pack(
            order, sign, p.upper, p.cluster.capacity, self._size, p.channels.server,
            self.of_job_type, self.first, self._left, self._score, self._taken, self._y,
        )  # fmt: skip
        return self._y
