"""Random: job types are served in an order drawn anew in each slot."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.core.policy import Timing
from gangwise.gain_overhead.environment import Feedback, Observation
from gangwise.gain_overhead.in_order import InOrder
from gangwise.gain_overhead.problem import GainOverheadProblem

__all__ = ["RandomOrder"]


@dataclass
class RandomOrder:
    """Serve the job types that arrived in random order; the floor that others must clear."""

    family = "gain_overhead"
    randomised = True
    timing: Timing = field(init=False, repr=False, default="react")

    def start(self, problem: GainOverheadProblem, rng: np.random.Generator) -> None:
        """Bind to a problem and a generator."""
        self._servers = InOrder(problem)
        self._rng = rng

    def decide(self, observation: Observation) -> npt.NDArray[np.float64]:
        """Each takes min(a, what is left) on every server it connects to."""
        x = observation.arrivals
        if x is None:
            raise ScenarioError("this policy must be shown the arrivals before it decides")
        return self._servers.serve(self._rng.permutation(np.flatnonzero(x)))

    def learn(self, feedback: Feedback) -> None:
        """Nothing to learn."""
