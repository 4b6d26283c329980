"""Step sizes for online gradient ascent."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.gain_overhead.problem import GainOverheadProblem

__all__ = ["AdaGradNorm", "Decay", "Step", "Theoretical", "diameter", "gradient_bound", "make_step"]


def diameter(problem: GainOverheadProblem, as_printed: bool = False) -> float:
    """An upper bound on the distance between two feasible decisions (25).

    (24) only needs |y - z| ≤ min(a, c), so the sum here is over 2 c min(max_l a, c); ``as_printed``
    gives the paper's 2 c max_l a, which is larger where requests exceed capacities.
    """
    most = problem.requests.max(axis=0)[None, :]
    capacity = problem.cluster.capacity
    reach = np.broadcast_to(most, capacity.shape) if as_printed else np.minimum(most, capacity)
    return math.sqrt(2.0 * float((capacity * reach).sum()))


def gradient_bound(problem: GainOverheadProblem) -> float:
    """An upper bound on the norm of any gradient (22)."""
    steepest = problem.utilities.bound().max(axis=1)[problem.channels.server]
    K = problem.shape[1]
    return math.sqrt(float((problem.overhead.max() ** 2 + K * steepest**2).sum()))


class Step(Protocol):
    """A rule for η_t."""

    def start(self, problem: GainOverheadProblem) -> None:
        """Forget everything."""

    def size(self, slot: int, squared: float) -> float:
        """η_t, given the squared norm of the slot's gradient."""


@dataclass
class AdaGradNorm:
    """η_t = scale · D / √(2 Σ_{s ≤ t} ‖∇q(s)‖²): nothing to tune, no horizon needed.

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
        self._squares += squared
        if self._squares <= 0.0:
            return 0.0
        return self.scale * self._diameter / math.sqrt(2.0 * self._squares)


@dataclass
class Decay:
    """η_t = eta · decay^t, the paper's experiments (Table 1)."""

    eta: float = 25.0
    decay: float = 0.9999

    def start(self, problem: GainOverheadProblem) -> None:
        """Nothing to forget."""

    def size(self, slot: int, squared: float) -> float:
        """η_t."""
        return self.eta * self.decay**slot


@dataclass
class Theoretical:
    """η_t = diam(Y) / (‖∇q(t)‖ √T), (26); needs the horizon T in advance."""

    horizon: int = 2000
    _diameter: float = field(init=False, repr=False, default=0.0)

    def start(self, problem: GainOverheadProblem) -> None:
        """Measure the diameter (25)."""
        self._diameter = diameter(problem, as_printed=True)

    def size(self, slot: int, squared: float) -> float:
        """η_t; 0 where the gradient vanishes."""
        return self._diameter / math.sqrt(squared * self.horizon) if squared > 0.0 else 0.0


def make_step(
    rule: str, scale: float, eta: float, decay: float, horizon: int
) -> Step:
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
