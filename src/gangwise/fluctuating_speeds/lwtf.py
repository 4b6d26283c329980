"""LWTF: the longest waiting time first (§4)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.core.policy import Timing
from gangwise.fluctuating_speeds.environment import Feedback, Observation
from gangwise.fluctuating_speeds.in_order import InOrder
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem

__all__ = ["LWTF"]


@dataclass
class LWTF:
    """Job types that arrived in descending order of the slots since they were last served.

    The paper has no queue in which a job could wait, so this is its waiting time: a job type waits
    from the slot after one of its channels was on.

    Parameters
    ----------
    stop : bool
        Stop at the first channel that does not fit, instead of skipping it.
    """

    stop: bool = False
    family = "fluctuating_speeds"
    timing: Timing = field(init=False, repr=False, default="react")

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        """Nobody has been served."""
        self._problem = problem
        self._in_order = InOrder(problem, self.stop)
        self._served = np.full(problem.L, -1, dtype=np.int64)

    def decide(self, observation: Observation) -> npt.NDArray[np.bool_]:
        """x(t), shape [E]."""
        available = self._problem.available(observation.arrivals)
        waited = (observation.slot - self._served).astype(np.float64)
        x = self._in_order.by_job_type(waited, available)
        self._served[self._problem.channels.job_type[x]] = observation.slot
        return x

    def learn(self, feedback: tuple[Feedback, ...]) -> None:
        """Nothing to learn."""
