"""HAUF (HSWF in the preprint): the highest utility so far goes first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.fluctuating_speeds.environment import Observation
from gangwise.fluctuating_speeds.in_order import InOrder
from gangwise.fluctuating_speeds.learner import Learner
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem

__all__ = ["HAUF", "HAUFChannel"]

Bools = npt.NDArray[np.bool_]


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
