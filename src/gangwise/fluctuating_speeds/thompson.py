"""Thompson sampling: draw means from what is believed of them, then the best choice for these."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.fluctuating_speeds.environment import Observation
from gangwise.fluctuating_speeds.learner import Optimiser, unplayed_first

__all__ = ["ThompsonBeta", "ThompsonGaussian"]

Bools = npt.NDArray[np.bool_]


@dataclass
class ThompsonGaussian(Optimiser):
    """θ_e ~ N(v̂_e, spread² / n_e); channels never used come first.

    Parameters
    ----------
    spread : float
        1/2, the largest standard deviation that a utility in [0, 1] can have.
    """

    spread: float = 0.5
    randomised = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.spread) and self.spread >= 0):
            raise ScenarioError(f"spread is {self.spread}; it must be zero or larger")

    def _decide(self, observation: Observation, available: Bools) -> Bools:
        counts = self._statistics.counts
        noise = self._rng.standard_normal(counts.size)
        theta = self._statistics.means + self.spread * noise / np.sqrt(np.maximum(counts, 1.0))
        return self._choose(theta, unplayed_first(counts), available)


@dataclass
class ThompsonBeta(Optimiser):
    """θ_e ~ Beta(1 + Σ Z̃, 1 + n − Σ Z̃): nothing to tune, never used means uniform."""

    randomised = True

    def _decide(self, observation: Observation, available: Bools) -> Bools:
        counts = self._statistics.counts
        total = counts * self._statistics.means
        theta = self._rng.beta(1.0 + total, 1.0 + np.maximum(counts - total, 0.0))
        return self._choose(theta, np.zeros_like(theta), available)
