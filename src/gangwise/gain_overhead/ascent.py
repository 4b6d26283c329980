"""Online gradient ascent: the decision, its projected step OGASched (11), and rules for η_t.

The OGASched policies, the greedy rival and the offline comparators share it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.gain_overhead import kernels
from gangwise.gain_overhead.kernels import ascend, gradient, overhead_prices
from gangwise.gain_overhead.problem import GainOverheadProblem


@dataclass(eq=False)
class Ascent:
    """Projected gradient ascent, OGASched (9)–(11): a decision y that climbs the reward.

    Attributes
    ----------
    y : ndarray of shape [E, K]
        The decision, in devices.
    channels : ndarray of int64, shape [E]
        Which channels of the problem these are, in their order; all of them by default.
    total : ndarray of shape [L, K]
        Σ_r y, in devices; what the overhead is paid for.
    gradient : ndarray of shape [E, K]
        The last gradient computed.
    price : ndarray of shape [L, K]
        Derivative of each job type's overhead by device type.
    """

    problem: GainOverheadProblem
    y: Floats
    channels: Ints | None = None
    total: Floats = field(init=False)
    gradient: Floats = field(init=False)
    price: Floats = field(init=False)

    def __post_init__(self) -> None:
        problem, e = self.problem, self.channels
        self.job_type, self.starts = problem.channels.job_type, problem.channels.starts
        self.upper, self._terms = problem.upper, problem.slope_terms
        if e is not None:
            self.job_type, self.starts = self.job_type[e], np.searchsorted(e, self.starts)
            self.upper = self.upper[e]
            self._terms = self._terms.reshape(5, *problem.shape)[:, e].reshape(5, -1)
            for array in (self.job_type, self.starts):  # as those of all: the same compiled code
                array.setflags(write=False)
        self.y = np.array(self.y, dtype=np.float64, order="C")
        self.total = self._totals()
        self.gradient = np.zeros_like(self.y)
        self.price = np.zeros_like(self.total)
        self._one = np.ones_like(problem.cluster.capacity)
        self._index = np.zeros(problem.L, dtype=np.int64)
        self._fixed = np.zeros(problem.L, dtype=np.int64)
        self._z, self._a = np.zeros(problem.L), np.zeros(problem.L)

    def begin(self, y: Floats) -> None:
        """Go to a decision, wherever the ascent was."""
        self.y[:] = y
        self.total = self._totals()

    def _totals(self) -> Floats:
        """Σ_r y of every job type: one pass for each device type."""
        sums = [np.bincount(self.job_type, of, self.problem.L) for of in self.y.T]
        return np.ascontiguousarray(np.transpose(sums))

    def among(self, active: Ints) -> Ascent:
        """The same ascent over the channels of the active job types, where those are few."""
        e = channels_of(self.problem, active)
        return self if e is None else Ascent(self.problem, self.y[e], e)

    def accept(self, part: Ascent, active: Ints) -> None:
        """Take over where an ascent over the channels of the active job types has come to."""
        if part.channels is not None:
            self.y[part.channels] = part.y
            self.total[active != 0] = part.total[active != 0]

    def slope(self, weight: Floats, active: Ints, smoothing: float = 0.0) -> float:
        """Gradient ∇q of OGASched (9), k* of OGASched (10), x_l = ``weight``; its squared norm."""
        p = self.problem
        overhead_prices(self.total, p.overhead, active, smoothing, self.price)
        squared: float = gradient(
            self.y.ravel(),
            weight,
            self.price,
            self._terms,
            self.job_type,
            p.own_index,
            p.own("slope", self.y),
            self.gradient.ravel(),
        )
        return squared

    def climb(self, step: float, active: Ints, scale: Floats | None = None) -> None:
        """Projected step of OGASched (11), for the active job types only.

        ``scale`` [R, K] is the unit of the step, one everywhere by default.
        """
        p = self.problem
        ascend(
            self.y,
            self.gradient,
            step,
            self._one if scale is None else scale,
            active,
            self.upper,
            p.cluster.capacity,
            self.starts,
            self.job_type,
            self.total,
            self._index,
            self._z,
            self._a,
            self._fixed,
        )


def channels_of(problem: GainOverheadProblem, active: Ints) -> Ints | None:
    """Channels of the active job types; None where leaving the others out saves little.

    A log with many ports has few of them busy in a slot.
    """
    e = np.flatnonzero(active[problem.channels.job_type])
    few = 2 * e.size < len(problem.channels) and not problem.own_index.size
    return e if few else None


def project(problem: GainOverheadProblem, z: Floats) -> Floats:
    """Euclidean projection Π_Y of OGASched (11), exact: onto OGASched (3), OGASched (4).

    Parameters
    ----------
    z : ndarray of shape [E, K]
        Any finite point.

    Returns
    -------
    ndarray of shape [E, K]
        clip(z - τ, 0, a) with the smallest τ ≥ 0 per server and device type that meets the
        capacity: OGASched (12) with τ = ρ / 2.

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
    # A step of length zero leaves the projection alone.
    state = Ascent(problem, z)
    state.climb(0.0, np.ones(problem.L, dtype=np.int64))
    return state.y


def project_as_printed(problem: GainOverheadProblem, z: Floats) -> Floats:
    """Projection of OGASched Algorithm 1 as printed, repaired only until it ends: OGASched (13).

    It differs from :func:`project` and may be infeasible: with spare capacity OGASched (13) has no
    ρ ≥ 0 and hands out all of it (z = (1, 1), a = (5, 5), c = 10 gives (5, 5), not (1, 1)), and
    only the first entry may reach its request (z = (10, 9, 1), a = (4, 4, 4), c = 9 gives (4, 5,
    0), not (4, 4, 1)).
    """
    y = np.empty(problem.shape)
    kernels.project_as_printed(
        np.ascontiguousarray(z, dtype=np.float64),
        problem.requests,
        problem.cluster.capacity,
        problem.channels.starts,
        problem.channels.job_type,
        y,
        np.empty(problem.L, dtype=np.int64),
        np.empty((3, problem.L)),
    )
    return y


def diameter(problem: GainOverheadProblem, as_printed: bool = False) -> float:
    """Diameter of the feasible decisions, OGASched (25): an upper bound.

    OGASched (24) only needs |y - z| ≤ min(a, c), so the sum here is over 2 c min(max_l a, c);
    ``as_printed`` gives the paper's 2 c max_l a, which is larger where requests exceed capacities.
    """
    # Σ_l |y_l - z_l| ≤ 2 c on every server and device type, and each |y_l - z_l| ≤ min(a_l, c).
    most = problem.requests.max(axis=0)[None, :]
    capacity = problem.cluster.capacity
    reach = np.broadcast_to(most, capacity.shape) if as_printed else np.minimum(most, capacity)
    return math.sqrt(2.0 * float((capacity * reach).sum()))


def gradient_bound(problem: GainOverheadProblem) -> float:
    """Gradient bound of OGASched (22): no ∇q has a larger norm."""
    steepest = problem.utilities.bound().max(axis=1)[problem.channels.server]
    K = problem.shape[1]
    return math.sqrt(float((problem.overhead.max() ** 2 + K * steepest**2).sum()))


class Step(Protocol):
    """Step size: a rule for η_t."""

    def start(self, problem: GainOverheadProblem) -> None:
        """Forget everything."""

    def size(self, slot: int, squared: float) -> float:
        """η_t, given the squared norm of the slot's gradient."""


@dataclass
class AdaGradNorm:
    """AdaGrad-norm: η_t = scale · D / √(2 Σ_{s ≤ t} ‖∇q(s)‖²): nothing to tune, no horizon needed.

    With scale 1 the regret against any fixed decision is at most √2 · D · √(Σ ‖∇q‖²), whatever the
    arrivals.
    """

    scale: float = 1.0
    _diameter: float = field(init=False, repr=False, default=0.0)
    _squares: float = field(init=False, repr=False, default=0.0)

    def start(self, problem: GainOverheadProblem) -> None:
        """Measure the diameter, forget the gradients."""
        self._diameter, self._squares = diameter(problem), 0.0

    def size(self, slot: int, squared: float) -> float:
        """η_t; 0 until there is a gradient."""
        # This slot's gradient included: no step is longer than scale · D / √2.
        self._squares += squared
        if self._squares <= 0.0:
            return 0.0
        return self.scale * self._diameter / math.sqrt(2.0 * self._squares)


@dataclass
class Decay:
    """Geometric decay: η_t = eta · decay^t, the experiments of OGASched §4 (Table 1)."""

    eta: float = 25.0
    decay: float = 0.9999

    def start(self, problem: GainOverheadProblem) -> None:
        """Nothing to forget."""

    def size(self, slot: int, squared: float) -> float:
        """η_t."""
        return self.eta * self.decay**slot


@dataclass
class Theoretical:
    """Step size of OGASched (26): η_t = diam(Y) / (‖∇q(t)‖ √T); needs the horizon T in advance."""

    horizon: int = 2000
    _diameter: float = field(init=False, repr=False, default=0.0)

    def start(self, problem: GainOverheadProblem) -> None:
        """Measure the diameter, OGASched (25)."""
        self._diameter = diameter(problem, as_printed=True)

    def size(self, slot: int, squared: float) -> float:
        """η_t; 0 where the gradient vanishes."""
        return self._diameter / math.sqrt(squared * self.horizon) if squared > 0.0 else 0.0


def make_step(rule: str, scale: float, eta: float, decay: float, horizon: int) -> Step:
    """The step rule of a name: ``adagrad-norm``, ``decay`` or ``theoretical``."""
    known = ["adagrad-norm", "decay", "theoretical"]
    if rule not in known:
        raise UnknownName("step rule", rule, known)
    if not all(number > 0 for number in (scale, eta, decay, horizon)):
        raise ScenarioError(
            f"scale, eta, decay and horizon must be positive; got {scale}, {eta}, {decay}, "
            f"{horizon}"
        )
    if rule == "decay":
        return Decay(eta, decay)
    return Theoretical(horizon) if rule == "theoretical" else AdaGradNorm(scale)
