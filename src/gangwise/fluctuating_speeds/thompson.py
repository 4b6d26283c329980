"""Thompson sampling: draw means from what is believed of them, then the best choice for these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.estimators import BetaSampling, Estimator, GaussianSampling
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

    def _believe(self) -> Estimator:
        return GaussianSampling(self.spread, clip=False, memory=self._remember())

    def _decide(self, observation: Observation, available: Bools) -> Bools:
        theta = self._estimator.estimate(observation.slot)
        return self._choose(theta, unplayed_first(self._estimator.untried), available)


@dataclass
class ThompsonBeta(Optimiser):
    """θ_e ~ Beta(1 + Σ Z̃, 1 + n − Σ Z̃): nothing to tune, never used means uniform."""

    randomised = True

    def _believe(self) -> Estimator:
        return BetaSampling(memory=self._remember())

    def _decide(self, observation: Observation, available: Bools) -> Bools:
        theta = self._estimator.estimate(observation.slot)
        return self._choose(theta, np.zeros_like(theta), available)
