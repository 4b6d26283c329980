"""OPS: online primal-dual scheduling with sampling for a single job, OPS §IV, Algorithm 1.

One job, there from its first slot to its last; every machine is either running a task of it or
idle. With a single job the projection OPS (19) is OPM (P4), so this is the machinery of OPM with
the constants of Theorem 2. Where there are several jobs it serves one at a time, in the order in
which they came; OPM serves them together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gangwise.approximation_jobs.environment import Observation
from gangwise.approximation_jobs.execution import Feedback
from gangwise.approximation_jobs.opm import PrimalDual, check_choice
from gangwise.approximation_jobs.problem import ApproximationProblem, Job, slopes_at
from gangwise.core.arrays import Ints
from gangwise.core.contracts import PolicyBase
from gangwise.core.errors import ScenarioError
from gangwise.estimators import Estimator, make_estimator


@dataclass
class OPS(PolicyBase):
    """OPS Algorithm 1: OPS (10)–(21) with the constants of Theorem 2.

    Parameters
    ----------
    alpha, mu, gamma, epsilon : float, optional
        Those of Theorem 2 where not given, with T the lifetime of the job: α = 1 / (2 √T),
        μ = √T / M, γ = ln(M T / δ). The theorem's ε = 8 / (ρ² T), ρ = B / (M T), exceeds 1 for
        small budgets; ε is 0 unless given, and ``epsilon=-1`` asks for the theorem's.
    delta : float
        δ of Theorem 2.
    share : float
        x(0) on every machine.
    floor : float
        Work per slot that slopes are taken at, at least.
    history : {"expected", "executed"}
        The work of OPS (16): Σ θ̂ x as Algorithm 1 has it, or what was done.
    estimator : str or Estimator
        As for OPM.

    Examples
    --------
    >>> from gangwise import create_policy
    >>> create_policy("ops:alpha=0.05").alpha
    0.05
    """

    alpha: float | None = None
    mu: float | None = None
    gamma: float | None = None
    epsilon: float = 0.0
    delta: float = 0.1
    share: float = 0.0
    floor: float = 0.1
    history: Literal["expected", "executed"] = "expected"
    estimator: str | Estimator = "ucb"
    kappa: float = 0.5
    window: int = 20
    tau: float = 30.0
    rate: float = 0.7
    family = "approximation_jobs"
    randomised = True

    def __post_init__(self) -> None:
        check_choice(self, history=("expected", "executed"))
        for name in ("alpha", "mu", "gamma"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ScenarioError(f"{name} is {value}; it must not be negative")
        if not (0 <= self.share <= 1 and self.floor > 0 and 0 < self.delta < 1):
            raise ScenarioError("share lies in [0, 1], delta in (0, 1), and floor is positive")
        if not (self.epsilon == -1 or 0 <= self.epsilon < 1):
            raise ScenarioError(f"epsilon is {self.epsilon}; it lies in [0, 1), or is -1")

    def start(self, problem: ApproximationProblem, rng: np.random.Generator) -> None:
        """Forget everything."""
        self._problem = problem
        self._rng, self._for_estimates = rng.spawn(2)
        self.state = PrimalDual(problem.prices)
        self._queue: list[int] = []
        self._first = 0

    def _begin(self, job: Job, row: int, slot: int) -> None:
        M, T = self._problem.M, job.deadline - slot
        self._alpha = 0.5 / math.sqrt(T) if self.alpha is None else self.alpha
        self._mu = math.sqrt(T) / M if self.mu is None else self.mu
        gamma = math.log(M * T / self.delta) if self.gamma is None else self.gamma
        epsilon = self.epsilon
        if epsilon == -1:
            epsilon = 8.0 * M * M * T / job.budget**2  # 8 / (ρ² T)
            if epsilon >= 1:
                raise ScenarioError(
                    f"job {job.id!r}: ε = 8 / (ρ² T) of Theorem 2 is {epsilon:.3g}; the budget is "
                    "too small for it, set epsilon"
                )
        self._target = np.array([(1.0 - epsilon) * job.budget / T])
        self._rates = make_estimator(
            self.estimator, gamma, self.kappa, self.window, self.tau, self.rate
        )
        self._rates.start(M, self._for_estimates)
        self.state.add(row, self.share)
        self._first, self._work = slot, 0.0

    def decide(self, observation: Observation) -> Ints:
        """Lines 3–6 of Algorithm 1; the environment does lines 7–12."""
        jobs, t, state = observation.jobs, observation.slot, self.state
        departed = observation.departed.tolist()
        for row in departed:
            state.remove(row)
        self._queue = [row for row in self._queue if row not in departed]
        self._queue.extend(observation.arrived.tolist())
        if not self._queue:
            return np.full(self._problem.M, -1, np.int64)
        if not state.n:
            job = jobs.jobs[self._queue[0]]
            assert job is not None
            self._begin(job, self._queue[0], t)
        rows = state.rows[:1]
        rates = self._rates.estimate(t)
        multipliers = state.multipliers(self._target, self._mu)  # OPS (20)
        work = self._work if self.history == "expected" else float(jobs.work[rows[0]])
        average = work / max(t - self._first, 1)
        slopes = slopes_at(jobs, rows, np.array([max(average, self.floor)]))
        state.climb(
            slopes, multipliers, rates, self._alpha, observation.available
        )  # OPS (18), (19)
        self._work += float(state.shares[0] @ rates)
        return state.draw(self._rng, couple=False)  # OPS (21)

    def learn(self, feedback: tuple[Feedback, ...]) -> None:
        """Take in the rates of the machines that ran a task."""
        for each in feedback:
            if self.state.n and each.slot >= self._first:
                self._rates.learn(each.slot, each.machines, each.rates)
