"""HAUF (HSWF in the preprint): the highest utility so far goes first.

LCF: the lowest supply cost first (§4).

LWTF: the longest waiting time first (§4).

Random: channels are switched on in an order drawn anew in each slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Bools
from gangwise.core.contracts import Timing
from gangwise.fluctuating_speeds.environment import Feedback, Observation
from gangwise.fluctuating_speeds.learners import InOrder, Learner
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem


@dataclass
class HAUF(Learner):
    """Job types in descending order of Σ_r v̂_(l,r), the estimate of their utility (§4).

    Channels never used count 0, and are still switched on when their turn comes. The score of the
    paper contains the decision x that it is to make; here it is taken over all of a job type's
    channels.

    Parameters
    ----------
    stop : bool
        Stop at the first channel that does not fit, instead of skipping it.
    """

    stop: bool = False

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        """Bind to a problem and forget everything."""
        super().start(problem, rng)
        self._in_order = InOrder(problem, self.stop)

    def _decide(self, observation: Observation, available: Bools) -> Bools:
        score = self._in_order.per_job_type(self._estimator.estimate(observation.slot))
        return self._in_order.by_job_type(score, available)


@dataclass
class HAUFChannel(HAUF):
    """Channels instead of job types in descending order of v̂, the cheaper of two first.

    Not in the paper, and the stronger baseline: ranking job types throws away what is known of each
    channel.
    """

    def _decide(self, observation: Observation, available: Bools) -> Bools:
        means = self._estimator.estimate(observation.slot)
        order = np.lexsort((self._problem.cost, -means))
        return self._in_order.switch_on(order[available[order]])


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
