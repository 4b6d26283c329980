"""CUCB: optimism about each channel by itself, then the best choice for the optimistic means."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.estimators import UCB1, Estimator, make_estimator
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
    estimator : str or Estimator
        Another estimate of each channel in the place of this bound: one of
        :data:`~gangwise.estimators.named.ESTIMATORS`, with ``gamma`` and ``tau``, ``discount`` as
        its κ and ``window``; or one's own. Only ``ucb1``, the bound above, is over ``memory``.

    Examples
    --------
    >>> from gangwise import create_policy
    >>> create_policy("cucb:estimator=decay,tau=100").estimator
    'decay'
    """

    coefficient: float = 1.5
    estimator: str | Estimator = "ucb1"
    gamma: float = 0.1
    tau: float = 30.0
    randomised: bool = field(init=False, repr=False, default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.randomised = self._believe().randomised

    def _believe(self) -> Estimator:
        if self.estimator == "ucb1":
            return UCB1(self.coefficient, clip=False, memory=self._remember())
        return make_estimator(self.estimator, self.gamma, self.discount, self.window, self.tau)

    def _decide(self, observation: Observation, available: Bools) -> Bools:
        v = self._estimator.estimate(observation.slot)
        return self._choose(v, unplayed_first(self._estimator.untried), available)
