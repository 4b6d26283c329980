"""What the learning policies share: memory of every channel, and an exact choice per slot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.core.policy import Timing
from gangwise.estimators import Estimator, Mean, Memory, make_memory
from gangwise.fluctuating_speeds.awaited import Awaited
from gangwise.fluctuating_speeds.environment import Feedback, Observation
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem
from gangwise.fluctuating_speeds.solvers import P3Solver, Warm

__all__ = ["Learner", "Optimiser", "unplayed_first"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def unplayed_first(untried: Bools, bonus: Floats | float = 0.0) -> Floats:
    """σ² of (10): ``bonus`` where a channel was felt, +∞ where it never was, shape [E]."""
    return np.where(untried, np.inf, bonus)


@dataclass
class Learner(ABC):
    """Binds, estimates and learns; a policy adds what it estimates, and how it decides."""

    family = "fluctuating_speeds"
    timing: Timing = field(init=False, repr=False, default="react")

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        """Bind to a problem and forget everything."""
        self._problem = problem
        self._rng = rng
        self._awaited = Awaited(problem)
        self._estimator = self._believe()
        self._estimator.start(problem.E, rng)

    def _believe(self) -> Estimator:
        """The estimator of what channels are worth; the means so far, (9)."""
        return Mean(prior=0.0)

    def decide(self, observation: Observation) -> Bools:
        """x(t) in Ω(t), shape [E]."""
        x = self._decide(observation, self._problem.available(observation.arrivals))
        self._awaited.decided(observation.slot, x)
        return x

    @abstractmethod
    def _decide(self, observation: Observation, available: Bools) -> Bools:
        """x(t), given the channels that may be used."""

    def learn(self, feedback: tuple[Feedback, ...]) -> None:
        """Take in what came by now: several slots, in any order, or none."""
        for each in feedback:
            self._estimator.learn(each.slot, *self._awaited.take(each))


@dataclass
class Optimiser(Learner):
    """A learner that makes the best choice for what it believes.

    Subclasses decide by filling in v and σ², and calling :meth:`_choose` with the channels that may
    be used. What they estimate is estimated over ``memory``.

    Parameters
    ----------
    gap : float
        A choice within this of the best, relatively, is good enough.
    nodes : int
        Nodes of the search, at most, so that a slot is never long. Typical searches need fewer;
        where many channels are alike a proof may need millions, but not the choice: ten times as
        many nodes change the regret by less than its noise.
    memory : {"all", "discounted", "window", "change-point"}
        What estimates are taken over; all but the first follow means that drift.
    discount, window : float, int
        κ per slot, and number of slots.
    """

    gap: float = 1e-6
    nodes: int = 200
    memory: str = "all"
    discount: float = 0.998
    window: int = 500

    def __post_init__(self) -> None:
        if not (self.gap >= 0 and self.nodes >= 1):
            raise ScenarioError(
                f"gap must be zero or more and nodes one or more; got {self.gap} and {self.nodes}"
            )
        self._believe()

    def _believe(self) -> Estimator:
        return Mean(prior=0.0, memory=self._remember())

    def _remember(self) -> Memory:
        return make_memory(self.memory, self.discount, self.window)

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        """Bind to a problem and forget everything."""
        super().start(problem, rng)
        self._solver = P3Solver(problem.requests, problem.cluster.capacity)
        self._warm: Warm | None = None

    def _choose(self, v: Floats, s: Floats, available: Bools) -> Bools:
        """Maximise v·x + √(s·x) over the channels available, subject to (2)."""
        solution = self._solver.solve(
            v, s, available=available, gap=self.gap, nodes=self.nodes, warm=self._warm
        )
        self._warm = solution.warm
        return solution.x
