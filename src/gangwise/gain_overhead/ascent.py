"""Gradient ascent state: the decision, its column sums, and one projected step (11).

This is what the OGASched policies, the greedy rival and the offline comparators share.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.gain_overhead.problem import GainOverheadProblem
from gangwise.kernels import projection
from gangwise.kernels.projection import ascend
from gangwise.kernels.reward import gradient, overhead_prices

__all__ = ["Ascent", "project", "project_as_printed"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(eq=False)
class Ascent:
    """A decision y that climbs the reward.

    Attributes
    ----------
    y : ndarray of shape [E, K]
        The decision, in devices.
    total : ndarray of shape [L, K]
        Σ_r y, in devices; what the overhead is paid for.
    gradient : ndarray of shape [E, K]
        The last gradient computed.
    price : ndarray of shape [L, K]
        Derivative of each job type's overhead by device type.
    """

    problem: GainOverheadProblem
    y: Floats
    total: Floats = field(init=False)
    gradient: Floats = field(init=False)
    price: Floats = field(init=False)

    def __post_init__(self) -> None:
        problem = self.problem
        self.y = np.array(self.y, dtype=np.float64, order="C")
        self.total = np.zeros_like(problem.requests)
        np.add.at(self.total, problem.channels.job_type, self.y)
        self.gradient = np.zeros_like(self.y)
        self.price = np.zeros_like(self.total)
        self._one = np.ones_like(problem.cluster.capacity)
        self._index = np.zeros(problem.L, dtype=np.int64)
        self._fixed = np.zeros(problem.L, dtype=np.int64)
        self._z, self._a = np.zeros(problem.L), np.zeros(problem.L)

    def slope(self, weight: Floats, active: Ints, smoothing: float = 0.0) -> float:
        """Compute the gradient (9) with x_l = ``weight``; returns its squared norm."""
        p = self.problem
        overhead_prices(self.total, p.overhead, active, smoothing, self.price)
        squared: float = gradient(
            self.y.ravel(), weight, self.price, p.slope_terms, p.channels.job_type,
            p.own_index, p.own("slope", self.y), self.gradient.ravel(),
        )  # fmt: skip
        return squared

    def climb(self, step: float, active: Ints, scale: Floats | None = None) -> None:
        """Step along the gradient and project, for the active job types only.

        ``scale`` [R, K] is the unit of the step, one everywhere by default.
        """
        p = self.problem
        ascend(
            self.y, self.gradient, step, self._one if scale is None else scale, active,
            p.upper, p.cluster.capacity, p.channels.starts, p.channels.job_type,
            self.total, self._index, self._z, self._a, self._fixed,
        )  # fmt: skip


def project(problem: GainOverheadProblem, z: Floats) -> Floats:
    """Exact Euclidean projection onto the feasible decisions (3)–(4).

    Parameters
    ----------
    z : ndarray of shape [E, K]
        Any finite point.

    Returns
    -------
    ndarray of shape [E, K]
        clip(z - τ, 0, a) with the smallest τ ≥ 0 per server and device type that meets the
        capacity.

    Examples
    --------
    One server with 7 devices, two job types that hold at most 5 and 4:

    >>> from gangwise import Channels, Cluster
    >>> from gangwise.gain_overhead import GainOverheadProblem, Utilities
    >>> problem = GainOverheadProblem(
    ...     Cluster(np.array([[7.0]]), ("gpu",)),
    ...     np.array([[5.0], [4.0]]),
    ...     Channels.of_mask(np.ones((2, 1), dtype=bool)),
    ...     Utilities.of("linear", [[1.0]]),
    ...     np.array([0.5]),
    ... )
    >>> project(problem, np.array([[8.0], [6.0]])).ravel()
    array([4.5, 2.5])
    """
    state = Ascent(problem, z)
    state.climb(0.0, np.ones(problem.L, dtype=np.int64))
    return state.y


def project_as_printed(problem: GainOverheadProblem, z: Floats) -> Floats:
    """The projection of Algorithm 1 as printed, repaired only as far as it ends at all.

    It differs from :func:`project` and may be infeasible: with spare capacity (13) has no ρ ≥ 0 and
    hands out all of it (z = (1, 1), a = (5, 5), c = 10 gives (5, 5), not (1, 1)), and only the
    first entry may reach its request (z = (10, 9, 1), a = (4, 4, 4), c = 9 gives (4, 5, 0), not
    (4, 4, 1)).
    """
    y = np.empty(problem.shape)
    projection.project_as_printed(
        np.ascontiguousarray(z, dtype=np.float64), problem.requests, problem.cluster.capacity,
        problem.channels.starts, problem.channels.job_type, y,
        np.empty(problem.L, dtype=np.int64), np.empty((3, problem.L)),
    )  # fmt: skip
    return y
