"""What the baselines share: how many machines each job gets, and keeping tasks where they are."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.environment import Feedback, Observation
from gangwise.approximation_jobs.problem import ApproximationProblem
from gangwise.core.policy import Timing
from gangwise.kernels.assignment import assign

__all__ = ["CountingPolicy", "max_min_shares", "systematic"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def max_min_shares(total: float, most: Floats) -> Floats:
    """Split ``total`` equally, but give nobody more than ``most``, shape [n].

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
    """Whole numbers with these means that add up to the floor or ceiling of their sum, shape [n].

    One uniform number ``u`` serves all: job k gets the integers that its part of the line covers.

    Examples
    --------
    >>> systematic(np.array([0.5, 0.5, 1.5]), u=0.5)
    array([1, 0, 2])
    """
    ends = np.floor(np.cumsum(shares) + u + 1e-9)
    return np.diff(ends, prepend=math.floor(u + 1e-9)).astype(np.int64)


@dataclass
class CountingPolicy:
    """Base of policies that count first and place second. Not a policy by itself.

    Machines are handed out in an order drawn once per run, and jobs keep machines that they have.
    """

    family = "approximation_jobs"
    randomised = True
    timing: Timing = field(init=False, repr=False, default="react")

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
            left = (jobs.budget * (1.0 + 1e-9) - jobs.cost)[jobs.rows]
            price = float(prices.mean())
            if price > 0:
                most = np.minimum(most, np.floor(left / price))
            most[(most < 1.0) & (left >= prices.min())] = 1.0
        return most

    def hand_out(
        self, observation: Observation, rows: Ints, want: Ints, machines: Ints | None = None
    ) -> Ints:
        """Place ``want[k]`` tasks of the job in table row ``rows[k]``, earlier ones first."""
        if self._place.size < observation.jobs.size:
            self._place = np.full(observation.jobs.size, -1, np.int64)
        self._holder[np.isin(self._holder, observation.departed)] = -1
        listed = self._order if machines is None else machines
        if machines is not None:
            unlisted = np.ones(self._problem.M, dtype=bool)
            unlisted[machines] = False
            self._holder[unlisted] = -1
        assign(want, rows, listed, observation.available, self._place, self._holder)
        return self._holder

    def learn(self, feedback: tuple[Feedback, ...]) -> None:
        """Nothing is learned."""
