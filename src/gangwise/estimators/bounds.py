"""Upper confidence bounds: the radius of OPS and OPM, and that of UCB1."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.estimators.estimator import OfMemory

__all__ = ["UCB", "UCB1", "confidence_radius", "upper_bound"]

Floats = npt.NDArray[np.float64]


def confidence_radius(mean: npt.ArrayLike, plays: npt.ArrayLike, gamma: float) -> Floats:
    """rad(ν, P) = √(γ ν / P) + γ / P, OPS and OPM (14).

    Examples
    --------
    >>> round(float(confidence_radius(0.7, 100, 0.01)), 13)
    0.0084666002653
    """
    plays = np.asarray(plays, dtype=np.float64)
    radius: Floats = np.sqrt(gamma * np.asarray(mean) / plays) + gamma / plays
    return radius


def upper_bound(total: Floats, plays: Floats, gamma: float) -> Floats:
    """θ̂ = min{1, θ̄ + 2 rad(θ̄, n + 1)} with θ̄ = total / (n + 1), OPS and OPM (12) and (13)."""
    mean = total / (plays + 1.0)
    bound: Floats = np.minimum(mean + 2.0 * confidence_radius(mean, plays + 1.0, gamma), 1.0)
    return bound


@dataclass(eq=False)
class UCB(OfMemory):
    """(12)–(14) of OPS and OPM, over any memory.

    Parameters
    ----------
    gamma : float
        That of the theorems, ln(M T / δ), keeps an arm at 1 for hundreds of plays; 0.1 to 1 is
        practical, and a memory of few plays needs the lower end.

    Examples
    --------
    >>> ucb = UCB(gamma=0.01)
    >>> ucb.start(1, np.random.default_rng(0))
    >>> for t in range(99):
    ...     ucb.learn(t, np.array([0]), np.array([70 / 99]))
    >>> round(float(ucb.estimate(99)[0]), 12)
    0.716933200531
    """

    gamma: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.gamma) and self.gamma >= 0):
            raise ScenarioError(f"gamma is {self.gamma}; it must be finite and not negative")

    def _estimate(self, slot: int) -> Floats:
        return upper_bound(self.memory.totals, self.memory.weights, self.gamma)


@dataclass(eq=False)
class UCB1(OfMemory):
    """v̂ + √(coefficient · ln(t + 1) / n), t being how many slots the memory stands for, plus one.

    Parameters
    ----------
    coefficient : float
        1.5 for choices of several arms (Chen, Wang, Yuan: Combinatorial multi-armed bandit, 2013).
    clip : bool
        Cut bounds off at 1, which arms never played have. Without, ties are rarer, and arms never
        played are left to ``untried``.

    Examples
    --------
    >>> bound = UCB1(coefficient=0.1)
    >>> bound.start(2, np.random.default_rng(0))
    >>> bound.learn(0, np.array([0]), np.array([0.25]))
    >>> bound.estimate(1).round(6)  # 1/4 + √(ln 3 / 10)
    array([0.581453, 1.      ])
    """

    coefficient: float = 1.5
    clip: bool = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.coefficient) and self.coefficient >= 0):
            raise ScenarioError(f"coefficient is {self.coefficient}; it must be zero or larger")

    def _estimate(self, slot: int) -> Floats:
        counts = self.memory.counts
        width = self.coefficient * math.log(self.memory.horizon(slot + 1.0) + 1.0)
        bound: Floats = self.memory.means + np.sqrt(width / np.maximum(counts, 1.0))
        return np.where(counts > 0, np.minimum(bound, 1.0), 1.0) if self.clip else bound
