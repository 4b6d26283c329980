"""LCF: the lowest supply cost first (§4)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.core.policy import Timing
from gangwise.fluctuating_speeds.environment import Feedback, Observation
from gangwise.fluctuating_speeds.in_order import InOrder
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem

__all__ = ["LCF"]


@dataclass
class LCF:
    """Job types that arrived in ascending order of their cost Σ_k f_k(a_k^(l,r)).

    The cost depends on the server r, over which the paper does not sum here, unlike in the score of
    HAUF: the mean over a job type's channels is taken. The paper says that LCF estimates utilities
    as well; it has no use for them.

    Parameters
    ----------
    stop : bool
        Stop at the first channel that does not fit, instead of skipping it.
    """

    stop: bool = False
    family = "fluctuating_speeds"
    timing: Timing = field(init=False, repr=False, default="react")

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        """Costs are known, so the order is settled."""
        self._problem = problem
        self._in_order = InOrder(problem, self.stop)
        channels = np.bincount(problem.channels.job_type, minlength=problem.L)
        self._score = -self._in_order.per_job_type(problem.cost) / channels

    def decide(self, observation: Observation) -> npt.NDArray[np.bool_]:
        """x(t), shape [E]."""
        available = self._problem.available(observation.arrivals)
        return self._in_order.by_job_type(self._score, available)

    def learn(self, feedback: tuple[Feedback, ...]) -> None:
        """Nothing to learn."""
