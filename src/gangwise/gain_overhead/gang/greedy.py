"""A greedy that weighs gains: gangs are launched by their reward, the largest first."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.core.policy import Timing
from gangwise.gain_overhead.environment import Feedback, Observation
from gangwise.gain_overhead.gang.placement import Placement
from gangwise.gain_overhead.gang.problem import GangProblem

__all__ = ["GangGreedy"]

Ints = npt.NDArray[np.int64]


@dataclass
class GangGreedy:
    """Launch the gang with the largest reward, then the next, from empty servers in every slot.

    A gang takes the task and server with the largest marginal reward, again and again: up to its
    minimum whatever the sign, then as long as it is positive. Gangs that cannot be completed, or
    are worth less than their overhead, are left out.

    Parameters
    ----------
    passes : int
        How often to go over all jobs afterwards and rebuild them, one and two at a time, where
        that raises the reward; 0 is the plain greedy.
    """

    passes: int = 0
    family = "gain_overhead_gang"
    timing: Timing = field(init=False, repr=False, default="react")

    def __post_init__(self) -> None:
        if self.passes < 0:
            raise ScenarioError(f"passes must not be negative; got {self.passes}")

    def start(self, problem: GangProblem, rng: np.random.Generator) -> None:
        """Bind to a problem."""
        self._servers = Placement(problem)

    def decide(self, observation: Observation) -> Ints:
        """Server of each task, -1 for none."""
        if observation.arrivals is None:
            raise ScenarioError("this policy must be shown the arrivals before it decides")
        self._servers.reset()
        self._servers.greedy(observation.arrivals)
        if self.passes:
            self._servers.improve(observation.arrivals, self.passes)
        return self._servers.decision()

    def learn(self, feedback: Feedback) -> None:
        """Nothing to learn."""
