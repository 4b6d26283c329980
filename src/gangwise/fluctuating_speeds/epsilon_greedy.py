"""ε-greedy: mostly the best choice for the means so far, sometimes channels at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.fluctuating_speeds.environment import Observation
from gangwise.fluctuating_speeds.in_order import InOrder
from gangwise.fluctuating_speeds.learner import Optimiser, unplayed_first
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem

__all__ = ["EpsilonGreedy"]

Bools = npt.NDArray[np.bool_]


@dataclass
class EpsilonGreedy(Optimiser):
    """Explore with probability ε, or min(1, ε |E| / t) when it decays.

    Parameters
    ----------
    epsilon : float
    decay : bool
    """

    epsilon: float = 0.05
    decay: bool = False
    randomised = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.epsilon <= (np.inf if self.decay else 1):
            raise ScenarioError(f"epsilon is {self.epsilon}; a probability lies in [0, 1]")

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        """Bind to a problem and forget everything."""
        super().start(problem, rng)
        self._in_order = InOrder(problem)

    def _decide(self, observation: Observation, available: Bools) -> Bools:
        t, E = observation.slot + 1, self._problem.E
        if self._rng.random() < (self.epsilon * E / t if self.decay else self.epsilon):
            return self._in_order.switch_on(self._rng.permutation(np.flatnonzero(available)))
        means = self._estimator.estimate(observation.slot)
        return self._choose(means, unplayed_first(self._estimator.untried), available)
