"""CUCB: optimism about each channel by itself, then the best choice for the optimistic means."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.fluctuating_speeds.environment import Observation
from gangwise.fluctuating_speeds.learner import Optimiser, unplayed_first

__all__ = ["CUCB"]

Bools = npt.NDArray[np.bool_]


@dataclass
class CUCB(Optimiser):
    """Maximise Σ x_e (v̂_e + √(coefficient · ln(t + 1) / n_e)); channels never used come first.

    Parameters
    ----------
    coefficient : float
        1.5 as published (Chen, Wang, Yuan: Combinatorial multi-armed bandit, 2013); 0.5 explores
        less and earns more here.
    """

    coefficient: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.coefficient) and self.coefficient >= 0):
            raise ScenarioError(f"coefficient is {self.coefficient}; it must be zero or larger")

    def _decide(self, observation: Observation, available: Bools) -> Bools:
        counts = self._statistics.counts
        width = self.coefficient * math.log(observation.slot + 2.0)
        v = self._statistics.means + np.sqrt(width / np.maximum(counts, 1.0))
        return self._choose(v, unplayed_first(counts), available)
