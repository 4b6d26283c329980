"""Random: channels are switched on in an order drawn anew in each slot."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.core.policy import Timing
from gangwise.fluctuating_speeds.environment import Feedback, Observation
from gangwise.fluctuating_speeds.in_order import InOrder
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem

__all__ = ["RandomChannels"]


@dataclass
class RandomChannels:
    """Channels of the job types that arrived, in random order; the floor that others must clear."""

    family = "fluctuating_speeds"
    randomised = True
    timing: Timing = field(init=False, repr=False, default="react")

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        """Bind to a problem and a generator."""
        self._problem, self._rng = problem, rng
        self._in_order = InOrder(problem)

    def decide(self, observation: Observation) -> npt.NDArray[np.bool_]:
        """x(t), shape [E]."""
        available = self._problem.available(observation.arrivals)
        return self._in_order.switch_on(self._rng.permutation(np.flatnonzero(available)))

    def learn(self, feedback: tuple[Feedback, ...]) -> None:
        """Nothing to learn."""
