"""The baselines of ESDP §4, all list scheduling: HAUF, LCF, LWTF, and random order.

They differ in what job types, or channels, are ordered by: the highest utility so far (HAUF, HSWF
in the preprint), the lowest supply cost (LCF), the longest waiting time (LWTF), or chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gangwise.core.arrays import Bools
from gangwise.core.contracts import PolicyBase
from gangwise.fluctuating_speeds.environment import Observation
from gangwise.fluctuating_speeds.learners import Learner, ListScheduling
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem


@dataclass
class HAUF(Learner):
    """HAUF, highest utility first (ESDP §4): job types in descending order of Σ_r v̂_(l,r).

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
        self._list = ListScheduling(problem, self.stop)

    def _decide(self, observation: Observation, available: Bools) -> Bools:
        score = self._list.per_job_type(self._estimator.estimate(observation.slot))
        return self._list.by_job_type(score, available)


@dataclass
class HAUFChannel(HAUF):
    """Channel-level HAUF: channels instead of job types in descending order of v̂.

    Of two alike the cheaper goes first. Not in the paper, and the stronger baseline: ranking job
    types throws away what is known of each channel.
    """

    def _decide(self, observation: Observation, available: Bools) -> Bools:
        means = self._estimator.estimate(observation.slot)
        order = np.lexsort((self._problem.cost, -means))
        return self._list.schedule(order[available[order]])


@dataclass
class KnownOrder(PolicyBase):
    """List scheduling of job types by what is known of them; a policy adds the order.

    Parameters
    ----------
    stop : bool
        Stop at the first channel that does not fit, instead of skipping it.
    """

    stop: bool = False
    family = "fluctuating_speeds"

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        """Bind to a problem."""
        self._problem = problem
        self._list = ListScheduling(problem, self.stop)


@dataclass
class LCF(KnownOrder):
    """LCF, lowest cost first (ESDP §4): job types in ascending order of Σ_k f_k(a_k^(l,r)).

    The cost depends on the server r, over which the paper does not sum here, unlike in the score of
    HAUF: the mean over a job type's channels is taken. The paper says that LCF estimates utilities
    as well; it has no use for them.

    Parameters
    ----------
    stop : bool
        Stop at the first channel that does not fit, instead of skipping it.
    """

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        """Costs are known, so the order is settled."""
        super().start(problem, rng)
        channels = np.bincount(problem.channels.job_type, minlength=problem.L)
        self._score = -self._list.per_job_type(problem.cost) / channels

    def decide(self, observation: Observation) -> Bools:
        """x(t), shape [E]."""
        available = self._problem.available(observation.arrivals)
        return self._list.by_job_type(self._score, available)


@dataclass
class LWTF(KnownOrder):
    """LWTF, longest waiting time first (ESDP §4): by the slots since a job type was last served.

    The paper has no queue in which a job could wait, so this is its waiting time: a job type waits
    from the slot after one of its channels was on.

    Parameters
    ----------
    stop : bool
        Stop at the first channel that does not fit, instead of skipping it.
    """

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        """Nobody has been served."""
        super().start(problem, rng)
        self._served = np.full(problem.L, -1, dtype=np.int64)

    def decide(self, observation: Observation) -> Bools:
        """x(t), shape [E]."""
        available = self._problem.available(observation.arrivals)
        waited = (observation.slot - self._served).astype(np.float64)
        x = self._list.by_job_type(waited, available)
        self._served[self._problem.channels.job_type[x]] = observation.slot
        return x


@dataclass
class RandomChannels(PolicyBase):
    """Random order of the channels of the job types that arrived; the floor for all others."""

    family = "fluctuating_speeds"
    randomised = True

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        """Bind to a problem and a generator."""
        self._problem, self._rng = problem, rng
        self._list = ListScheduling(problem)

    def decide(self, observation: Observation) -> Bools:
        """x(t), shape [E]."""
        available = self._problem.available(observation.arrivals)
        return self._list.schedule(self._rng.permutation(np.flatnonzero(available)))
