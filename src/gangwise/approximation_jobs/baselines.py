"""The baselines of OPM §VI, and a rival that the paper does not have.

Fair Scheduler, Deadline-Aware Scheduler, and greedy by utility per price. All of them decide first
how many machines each job gets, then which; tasks stay where they are as far as that allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gangwise.approximation_jobs.environment import Observation
from gangwise.approximation_jobs.execution import Feedback
from gangwise.approximation_jobs.kernels import place_tasks
from gangwise.approximation_jobs.problem import SLACK, ApproximationProblem, slopes_at
from gangwise.core.arrays import Floats, Ints
from gangwise.core.contracts import PolicyBase
from gangwise.core.errors import ScenarioError
from gangwise.estimators import Estimator, make_estimator


def max_min_shares(total: float, most: Floats) -> Floats:
    """Max-min fair shares of ``total``: equal, but nobody gets more than ``most``, shape [n].

    Examples
    --------
    >>> max_min_shares(10.0, np.array([1.0, 9.0, 9.0]))
    array([1. , 4.5, 4.5])
    """
    if most.sum() <= total:
        return most.copy()
    order = np.argsort(most, kind="stable")
    ordered = most[order]
    below = np.concatenate(([0.0], np.cumsum(ordered)[:-1]))
    level = (total - below) / np.arange(most.size, 0, -1)
    k = int(np.argmax(ordered >= level))  # the first that would be capped by the level
    shares: Floats = np.minimum(most, level[k])
    return shares


def systematic(shares: Floats, u: float) -> Ints:
    """Systematic sampling: whole numbers with these means, shape [n].

    They add up to the floor or the ceiling of the sum of ``shares``.
    One uniform number ``u`` serves all: job k gets the integers that its part of the line covers.

    Examples
    --------
    >>> systematic(np.array([0.5, 0.5, 1.5]), u=0.5)
    array([1, 0, 2])
    """
    ends = np.floor(np.cumsum(shares) + u + 1e-9)
    return np.diff(ends, prepend=math.floor(u + 1e-9)).astype(np.int64)


@dataclass
class CountingPolicy(PolicyBase):
    """Count first, place second: the base of these policies, no policy by itself.

    Machines are handed out in an order drawn once per run, and jobs keep machines that they have.
    """

    family = "approximation_jobs"
    randomised = True

    def start(self, problem: ApproximationProblem, rng: np.random.Generator) -> None:
        """Forget everything."""
        self._problem, self._rng = problem, rng
        self._order = rng.permutation(problem.M).astype(np.int64)
        self._holder = np.full(problem.M, -1, np.int64)
        self._place = np.empty(0, np.int64)

    def most(self, observation: Observation) -> Floats:
        """How many machines each active job can pay in this slot, shape [n], as a real number."""
        jobs, prices = observation.jobs, self._problem.prices[observation.available]
        most = np.full(jobs.rows.size, float(prices.size))
        if self._problem.enforce and prices.size:
            left = (jobs.budget * (1.0 + SLACK) - jobs.cost)[jobs.rows]
            price = float(prices.mean())
            if price > 0:
                most = np.minimum(most, np.floor(left / price))
            most[(most < 1.0) & (left >= prices.min())] = 1.0
        return most

    def _make_room(self, observation: Observation) -> None:
        """Take machines from the jobs that have gone; work space for all rows of the table."""
        if self._place.size < observation.jobs.size:
            self._place = np.full(observation.jobs.size, -1, np.int64)
        self._holder[np.isin(self._holder, observation.departed)] = -1

    def hand_out(
        self, observation: Observation, rows: Ints, want: Ints, machines: Ints | None = None
    ) -> Ints:
        """Place ``want[k]`` tasks of the job in table row ``rows[k]``, earlier ones first."""
        self._make_room(observation)
        listed = self._order if machines is None else machines
        if machines is not None:
            unlisted = np.ones(self._problem.M, dtype=bool)
            unlisted[machines] = False
            self._holder[unlisted] = -1
        place_tasks(want, rows, listed, observation.available, self._place, self._holder)
        return self._holder


@dataclass
class Fair(CountingPolicy):
    """Fair Scheduler, OPM §VI: max-min fair shares of the machines, rounded by systematic sampling.

    Rounding down instead would starve jobs once there are more of them than machines.
    """

    def decide(self, observation: Observation) -> Ints:
        """Max-min fair shares of the machines that are there."""
        rows = observation.jobs.rows
        shares = max_min_shares(float(observation.available.sum()), self.most(observation))
        return self.hand_out(observation, rows, systematic(shares, self._rng.random()))


@dataclass
class DeadlineAware(CountingPolicy):
    """Deadline-Aware Scheduler, OPM §VI: earliest deadline first, as many machines as it can pay.

    Of jobs with the same deadline the one that came first goes first.
    """

    def decide(self, observation: Observation) -> Ints:
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
    """Greedy by marginal utility per price: steepest jobs first, on the best machines.

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

    def decide(self, observation: Observation) -> Ints:
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
