"""The Fair Scheduler of §VI: every job gets the same share, as far as its budget pays for it.

The Deadline-Aware Scheduler of §VI: earliest deadline first, as many machines as it can pay.

A rival that the paper does not have: greedy by utility per price, with paced budgets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.environment import Feedback, Observation
from gangwise.approximation_jobs.opm import CountingPolicy, max_min_shares, systematic
from gangwise.approximation_jobs.problem import ApproximationProblem, slopes_at
from gangwise.core.errors import ScenarioError
from gangwise.estimators import Estimator, make_estimator


@dataclass
class Fair(CountingPolicy):
    """Equal shares, in fractions of a machine, rounded to whole tasks by systematic sampling.

    Rounding down instead would starve jobs once there are more of them than machines.
    """

    def decide(self, observation: Observation) -> npt.NDArray[np.int64]:
        """Max-min fair shares of the machines that are there."""
        rows = observation.jobs.rows
        shares = max_min_shares(float(observation.available.sum()), self.most(observation))
        return self.hand_out(observation, rows, systematic(shares, self._rng.random()))


@dataclass
class DeadlineAware(CountingPolicy):
    """Jobs by deadline; of jobs with the same deadline the one that came first goes first."""

    def decide(self, observation: Observation) -> npt.NDArray[np.int64]:
        """All that the most urgent job can pay, then the next."""
        jobs = observation.jobs
        order = np.lexsort((jobs.arrival[jobs.rows], jobs.deadline[jobs.rows]))
        most = self.most(observation)[order]
        before = np.concatenate(([0.0], np.cumsum(most)[:-1]))
        free = np.maximum(float(observation.available.sum()) - before, 0.0)
        want = np.minimum(most, free).astype(np.int64)
        return self.hand_out(observation, jobs.rows[order], want)


@dataclass
class UtilityPerPrice(CountingPolicy):
    """Jobs by the utility that another unit of work brings, machines by rate per price.

    A job may spend ``burst`` times the budget left over the slots left; those with the largest
    slope at their projected total work come first, and the machines with the best estimated rate
    per price are used. Against OPM this says what the primal-dual machinery is good for.

    Parameters
    ----------
    estimator : str or Estimator
        One of :data:`~gangwise.estimators.estimators.ESTIMATORS`, with ``gamma``, ``kappa``,
        ``window``,
        ``tau`` and ``rate``, or one's own.
    burst : float
        How much faster than evenly a job may spend.
    floor : float
        As for OPM.
    """

    estimator: str | Estimator = "decay"
    burst: float = 1.5
    floor: float = 0.03
    gamma: float = 1.0
    kappa: float = 0.5
    window: int = 20
    tau: float = 30.0
    rate: float = 0.7

    def __post_init__(self) -> None:
        if not (self.burst > 0 and self.floor > 0):
            raise ScenarioError(f"burst and floor must be positive: {self.burst}, {self.floor}")
        self._estimator()

    def _estimator(self) -> None:
        self._rates = make_estimator(
            self.estimator, self.gamma, self.kappa, self.window, self.tau, self.rate
        )

    def start(self, problem: ApproximationProblem, rng: np.random.Generator) -> None:
        """Forget everything."""
        own, for_estimates = rng.spawn(2)
        super().start(problem, own)
        self._estimator()
        self._rates.start(problem.M, for_estimates)
        self._price = float(problem.prices.mean())

    def decide(self, observation: Observation) -> npt.NDArray[np.int64]:
        """The steepest jobs first, on the best machines."""
        jobs, t, there = observation.jobs, observation.slot, observation.available
        rows = jobs.rows
        life = (jobs.deadline - jobs.arrival)[rows].astype(np.float64)
        least = self.floor * jobs.budget[rows] / self._price
        work = jobs.work[rows] * life / np.maximum(t - jobs.arrival[rows], 1)
        slopes = slopes_at(jobs, rows, np.maximum(work, least))
        left = np.maximum(jobs.budget - jobs.cost, 0.0)[rows]
        pace = self.burst * left / ((jobs.deadline[rows] - t) * self._price)
        order = np.argsort(-slopes, kind="stable")
        most = self.most(observation)
        want = np.minimum(systematic(pace[order], self._rng.random()), most[order]).astype(np.int64)
        free = int(there.sum()) - np.concatenate(([0], np.cumsum(want)[:-1]))
        want = np.minimum(want, np.maximum(free, 0))
        worth = np.where(there, self._rates.estimate(t), -1.0)
        worth = worth / np.maximum(self._problem.prices, 1e-12)
        best = self._order[np.argsort(-worth[self._order], kind="stable")]
        return self.hand_out(observation, rows[order], want, best[: int(want.sum())])

    def learn(self, feedback: tuple[Feedback, ...]) -> None:
        """Take in the rates of the machines that ran a task."""
        for each in feedback:
            self._rates.learn(each.slot, each.machines, each.rates)
