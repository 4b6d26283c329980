"""Online gradient ascent: the decision, its projected step OGASched (11), and rules for η_t.

The OGASched policies, the greedy rival and the offline comparators share it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gangwise.core.arrays import Floats, Ints, check_numbers, read_only
from gangwise.core.errors import UnknownName
from gangwise.gain_overhead import kernels
from gangwise.gain_overhead.kernels import ascend, gradient, overhead_prices
from gangwise.gain_overhead.problem import GainOverheadProblem


@dataclass(eq=False)
class Ascent:
    """Projected gradient ascent, OGASched (9)–(11): a decision y [E, K] that climbs the reward.

    ``channels`` [E] are their numbers in the problem; all channels by default. ``total`` [L, K]
    is Σ_r y, which the overhead is paid for, ``price`` [L, K] its derivative by device type, and
    ``gradient`` [E, K] the last one computed.
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
        self._terms = read_only(self._terms)
        self.y = np.array(self.y, dtype=np.float64, order="C")
        self.total = totals(self.job_type, self.y, problem.L)
        self.gradient = np.zeros_like(self.y)
        self.price = np.zeros_like(self.total)
        arrays = problem.requests, self.upper, problem.cluster.capacity, self.starts
        self.layout = tuple(map(read_only, kernels.ProblemArrays(*arrays, self.job_type)))
        self._one = np.ones_like(problem.cluster.capacity)  # the same unit of step everywhere
        index, fixed = np.zeros((2, problem.L), dtype=np.int64)
        self._space = index, fixed, *np.zeros((2, problem.L))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """From a pickle, which does not keep that arrays are not to be written."""
        vars(self).update(state, layout=tuple(map(read_only, state["layout"])))
        self._terms, self.job_type = read_only(self._terms), read_only(self.job_type)

    def begin(self, y: Floats) -> None:
        self.y[:] = y
        self.total = totals(self.job_type, self.y, self.problem.L)

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
        prices = self.total, read_only(p.overhead), read_only(active), float(smoothing), self.price
        overhead_prices(*prices)  # β at k*, or its softmax
        squared: float = gradient(
            self.y.ravel(),
            read_only(weight),
            self.price,
            self._terms,
            self.layout[4],
            p.own_index,
            p.own("slope", self.y),
            self.gradient.ravel(),
        )
        return squared

    def climb(self, step: float, active: Ints, scale: Floats | None = None) -> None:
        """Projected step of OGASched (11), for the active job types only.

        ``scale`` [R, K] is the unit of the step, one everywhere by default.
        """
        given = float(step), read_only(self._one if scale is None else scale), read_only(active)
        ascend(self.y, self.gradient, *given, self.layout, self.total, self._space)


def totals(job_type: Ints, y: Floats, L: int) -> Floats:
    """Devices of each job type, Σ_r y, shape [L, K], for y [E, K]."""
    sums = [np.bincount(job_type, of, L) for of in y.T]
    return np.array(np.transpose(sums), np.float64, order="C")  # whole numbers of no channels


def channels_of(problem: GainOverheadProblem, active: Ints) -> Ints | None:
    """Channels of the active job types; None where leaving the others out saves little.

    A log with many ports has few of them busy in a slot.
    """
    e = np.flatnonzero(active[problem.channels.job_type])
    few = 2 * e.size < len(problem.channels) and not problem.own_index.size  # own ones go by place
    return e if few else None


def project(problem: GainOverheadProblem, z: Floats) -> Floats:
    """Euclidean projection Π_Y of OGASched (11), exact: onto OGASched (3), OGASched (4).

    It is clip(z - τ, 0, a) with the smallest τ ≥ 0 per server and device type that meets the
    capacity, OGASched (12) with τ = ρ / 2; ``z`` and the answer have shape [E, K].

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
    ...     np.array([0.0]),
    ... )
    >>> project(problem, np.array([[6.0], [4.0]])).ravel()
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
    order, work = np.empty(problem.L, dtype=np.int64), np.empty((3, problem.L))  # work space
    z = np.ascontiguousarray(z, dtype=np.float64)
    kernels.project_as_printed(z, problem.layout, y, order, work)
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
    # Per channel: K slopes of at most ϖ, and β once, at k*; (f' − β)² ≤ f'² + β² as both are ≥ 0.
    steepest = problem.utilities.bound().max(axis=1)[problem.channels.server]
    K = problem.shape[1]
    return math.sqrt(float((problem.overhead.max() ** 2 + K * steepest**2).sum()))


@dataclass
class Step:
    """Step size: a rule for η_t.

    AdaGrad-norm, η_t = scale · D / √(2 Σ_{s ≤ t} ‖∇q(s)‖²), has nothing to tune and needs no
    horizon; with scale 1 the regret against any fixed decision is at most √2 · D · √(Σ ‖∇q‖²),
    whatever the arrivals. ``decay``, η_t = eta · decay^t, is that of the experiments of OGASched §4
    (Table 1). ``theoretical``, η_t = diam(Y) / (‖∇q(t)‖ √T), is OGASched (26); it needs the horizon
    T in advance.
    """

    rule: str = "adagrad-norm"
    scale: float = 1.0
    eta: float = 25.0
    decay: float = 0.9999
    horizon: int = 2000

    def __post_init__(self) -> None:
        known = ["adagrad-norm", "decay", "theoretical"]
        if self.rule not in known:
            raise UnknownName("step rule", self.rule, known)
        for name in ("scale", "eta", "decay", "horizon"):
            check_numbers("(0, inf)", **{name: getattr(self, name)})

    def start(self, problem: GainOverheadProblem) -> None:
        """Measure the diameter, OGASched (25), and forget the gradients."""
        self._diameter = diameter(problem, as_printed=self.rule == "theoretical")
        self._squares = 0.0

    def size(self, slot: int, squared: float) -> float:
        """η_t, given the squared norm of the slot's gradient; 0 where there is no gradient."""
        if self.rule == "decay":
            return self.eta * self.decay**slot
        if self.rule == "theoretical":
            return self._diameter / math.sqrt(squared * self.horizon) if squared > 0.0 else 0.0
        # This slot's gradient included: no step is longer than scale · D / √2.
        self._squares += squared
        if self._squares <= 0.0:
            return 0.0
        return self.scale * self._diameter / math.sqrt(2.0 * self._squares)
