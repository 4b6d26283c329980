"""BINPACKING and SPREADING: servers are chosen by how much of them is handed out already.

The two differ in one sign. Jobs take turns, one server a turn, as tasks of several jobs do in a
queue: if a job took all its servers at once their order could not matter, because a request is per
server (3), not in total.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.core.policy import Timing
from gangwise.gain_overhead.environment import Feedback, Observation
from gangwise.gain_overhead.in_order import InOrder
from gangwise.gain_overhead.problem import GainOverheadProblem

__all__ = ["BinPacking", "Spreading"]


@dataclass
class BinPacking:
    """Each job in turn takes the most used server that it has not taken (MOSTALLOCATED)."""

    family = "gain_overhead"
    sign: ClassVar[float] = 1.0
    timing: Timing = field(init=False, repr=False, default="react")

    def start(self, problem: GainOverheadProblem, rng: np.random.Generator) -> None:
        """Bind to a problem."""
        self._servers = InOrder(problem)

    def decide(self, observation: Observation) -> npt.NDArray[np.float64]:
        """Each takes min(a, what is left) on the server that it chose."""
        x = observation.arrivals
        if x is None:
            raise ScenarioError("this policy must be shown the arrivals before it decides")
        return self._servers.pack(np.flatnonzero(x), self.sign)

    def learn(self, feedback: Feedback) -> None:
        """Nothing to learn."""


@dataclass
class Spreading(BinPacking):
    """Each job in turn takes the least used server that it has not taken (LEASTALLOCATED)."""

    sign: ClassVar[float] = -1.0
