"""Thompson sampling: a draw from what is believed of each arm, over any memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.estimators.estimator import OfMemory

__all__ = ["BetaSampling", "GaussianSampling"]

Floats = npt.NDArray[np.float64]


@dataclass(eq=False)
class BetaSampling(OfMemory):
    """A draw from Beta(1 + Σ, 1 + n − Σ), Σ being the sum of n values; uniform for n = 0."""

    randomised = True

    def _estimate(self, slot: int) -> Floats:
        return self._rng.beta(*self.memory.posterior)


@dataclass(eq=False)
class GaussianSampling(OfMemory):
    """A draw from N(v̂, spread² / n).

    Parameters
    ----------
    spread : float
        1/2, the largest standard deviation that a value in [0, 1] can have.
    clip : bool
        Cut draws off at 0 and 1, and give arms never played 1. Without, these are left to
        ``untried``.
    """

    spread: float = 0.5
    clip: bool = True
    randomised = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.spread) and self.spread >= 0):
            raise ScenarioError(f"spread is {self.spread}; it must be zero or larger")

    def _estimate(self, slot: int) -> Floats:
        counts = self.memory.counts
        noise = self._rng.standard_normal(counts.size)
        drawn = self.memory.means + self.spread * noise / np.sqrt(np.maximum(counts, 1.0))
        return np.where(counts > 0, np.clip(drawn, 0.0, 1.0), 1.0) if self.clip else drawn
