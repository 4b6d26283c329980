"""OPM: online primal-dual with sampling for multiple jobs (§V), and what makes it work better.

In every slot: estimate the rates, update the multipliers from what the last shares spend, move the
shares along the gradient, project them machine by machine, draw a job for every machine.

As printed, the estimates are cumulative (66), the slope is taken at the average work per slot (9),
spending is steered to β_j whatever was really spent, and every slot draws afresh. Here each of
these is an option, and the defaults are the ones that earn more: estimates that forget, the slope
at the projected total work, a budget spread anew over the slots that are left, and draws coupled
to those of the last slot, which moves a fifth of the tasks or fewer where fresh draws move nine
tenths. Coupling needs the re-paced budget, since its spending wanders off the shares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.environment import Feedback, Observation
from gangwise.approximation_jobs.primal_dual import PrimalDual
from gangwise.approximation_jobs.problem import ApproximationProblem
from gangwise.approximation_jobs.slopes import relative, slopes_at
from gangwise.approximation_jobs.table import JobTable
from gangwise.core.errors import ScenarioError
from gangwise.core.policy import Timing
from gangwise.estimators import Estimator, make_estimator

__all__ = ["OPM", "check_choice"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def check_choice(policy: object, **choices: tuple[str, ...]) -> None:
    """Raise ScenarioError unless each named option of a policy is one of its choices."""
    for name, allowed in choices.items():
        value = getattr(policy, name)
        if value not in allowed:
            raise ScenarioError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")


@dataclass
class OPM:
    """Primal-dual shares, drawn at random.

    Parameters
    ----------
    estimator : str or Estimator
        One of :data:`~gangwise.estimators.named.ESTIMATORS`, or one's own.
    objective : {"total", "average"}
        Where the slope of f_j is taken: at the work projected for the whole lifetime, or at the
        average work per slot so far, as (9) has it.
    pacing : {"left", "even"}
        What a slot may cost: the budget left over the slots left, or β_j of (64).
    rounding : {"coupled", "fresh"}
        Draws of consecutive slots coupled as closely as they can be, or independent. Either way a
        task runs with the probability x_j^i of the slot.
    alpha : float
        Step size of the shares, per unit of slope. Smaller steps move fewer tasks.
    dual : float
        α μ Σ_i p_i², the step size of the multipliers without units: what the spending answers to a
        multiplier, times what the multiplier answers to spending. Below 4/3 it settles; 0.1 to 0.6
        is practical. The theorems' α and μ make it ½ Σ p² / M.
    mu : float, optional
        μ itself, instead of ``dual``.
    floor : float
        Slopes are taken at no less work than this, as a share of what the job's pace would buy at
        the mean price and rate 1; (f'(0) may be infinite).
    history : {"executed", "expected"}
        The work of (16): what was done, or Σ θ̂ x as in the proofs.
    unit : {"utility", "largest"}
        ``largest`` divides the slopes of a slot by the largest, so that α has no unit and a change
        in the unit of utility changes nothing.
    gamma, kappa, window, tau, rate : float
        Parameters of the estimators.
    epsilon : float
        Share of the budget that is held back, (64).
    theory : bool
        α = 1 / (2 √T), μ = √T / M and γ = ln(M T / δ) of Theorem 3; needs the problem's horizon.
    delta : float
        δ of Theorem 3.

    Examples
    --------
    >>> from gangwise import create_policy
    >>> create_policy("opm:rounding=fresh").rounding
    'fresh'
    """

    estimator: str | Estimator = "decay"
    objective: Literal["total", "average"] = "total"
    pacing: Literal["left", "even"] = "left"
    rounding: Literal["coupled", "fresh"] = "coupled"
    alpha: float = 0.3
    dual: float = 0.4
    mu: float | None = None
    floor: float = 0.03
    history: Literal["executed", "expected"] = "executed"
    unit: Literal["utility", "largest"] = "largest"
    gamma: float = 1.0
    kappa: float = 0.5
    window: int = 20
    tau: float = 30.0
    rate: float = 0.7
    epsilon: float = 0.0
    theory: bool = False
    delta: float = 0.1
    family = "approximation_jobs"
    randomised = True
    timing: Timing = field(init=False, repr=False, default="react")
    state: PrimalDual = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_choice(
            self, objective=("total", "average"), pacing=("left", "even"),
            rounding=("coupled", "fresh"), history=("executed", "expected"),
            unit=("utility", "largest"),
        )  # fmt: skip
        for name in ("alpha", "floor"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ScenarioError(f"{name} is {getattr(self, name)}; it must be positive")
        for name in ("dual", "mu"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ScenarioError(f"{name} is {value}; it must be finite and not negative")
        if not (0 <= self.epsilon < 1 and 0 < self.delta < 1):
            raise ScenarioError(
                f"epsilon lies in [0, 1) and delta in (0, 1); got {self.epsilon} and {self.delta}"
            )
        self._estimator(1.0)

    def _estimator(self, gamma: float) -> Estimator:
        return make_estimator(
            self.estimator, gamma, self.kappa, self.window, self.tau, self.rate
        )

    def start(self, problem: ApproximationProblem, rng: np.random.Generator) -> None:
        """Forget everything."""
        self._problem, self._gamma = problem, self.gamma
        self._set_steps(problem.horizon)
        self._rates = self._estimator(self._gamma)
        self._rng, for_estimates = rng.spawn(2)
        self._rates.start(problem.M, for_estimates)
        self.state = PrimalDual(problem.prices)
        self._price = float(problem.prices.mean())
        self._expected = np.zeros(0)

    def _set_steps(self, horizon: int | None) -> None:
        M, prices = self._problem.M, self._problem.prices
        self._alpha = self.alpha
        self._mu = self.dual / (self.alpha * float(prices @ prices))
        if self.mu is not None:
            self._mu = self.mu
        if self.theory:
            if horizon is None:
                raise ScenarioError("theory=True needs a problem with a horizon")
            self._alpha, self._mu = 0.5 / math.sqrt(horizon), math.sqrt(horizon) / M
            self._gamma = math.log(M * horizon / self.delta)

    def decide(self, observation: Observation) -> Ints:
        """Draw a job for every machine."""
        self._turnover(observation)
        state, jobs, t = self.state, observation.jobs, observation.slot
        rates = self._rates.estimate(t)
        rows = state.rows[: state.n]
        target = (1.0 - self.epsilon) * self._target(jobs, rows, t)
        multipliers = state.multipliers(target, self._mu)
        slopes = self._slopes(jobs, rows, t)
        if self.unit == "largest":
            slopes = relative(slopes)
        state.climb(slopes, multipliers, rates, self._alpha, observation.available)
        if self.history == "expected":
            self._expected[rows] += state.shares[: state.n] @ rates
        return state.draw(self._rng, self.rounding == "coupled")

    def _turnover(self, observation: Observation) -> None:
        state, jobs = self.state, observation.jobs
        for row in observation.departed:
            state.remove(int(row))
        for row in observation.arrived:
            state.add(int(row))
        more = jobs.size - self._expected.size
        if more:
            self._expected = np.concatenate((self._expected, np.zeros(more)))
        self._expected[observation.arrived] = 0.0
        if self._problem.enforce:  # line 8 of Algorithm 1: who cannot pay leaves the list
            there = self._problem.prices[observation.available]
            least = float(there.min()) if there.size else 0.0
            rows = state.rows[: state.n]
            for row in rows[jobs.budget[rows] * (1.0 + 1e-9) < jobs.cost[rows] + least].tolist():
                state.remove(row)

    def _target(self, jobs: JobTable, rows: Ints, t: int) -> Floats:
        """What each job should spend in this slot, shape [n]."""
        if self.pacing == "left":
            left = np.maximum(jobs.budget[rows] - jobs.cost[rows], 0.0)
            paced: Floats = left / (jobs.deadline[rows] - t)
            return paced
        return jobs.budget[rows] / (jobs.deadline[rows] - jobs.arrival[rows])

    def _slopes(self, jobs: JobTable, rows: Ints, t: int) -> Floats:
        """f_j' at the work per slot so far, (68), or at the projected total, shape [n]."""
        life = jobs.deadline[rows] - jobs.arrival[rows]
        age = np.maximum(t - jobs.arrival[rows], 1)
        work = jobs.work if self.history == "executed" else self._expected
        least = self.floor * jobs.budget[rows] / (life * self._price)
        at = np.maximum(work[rows] / age, least)
        return slopes_at(jobs, rows, at * life if self.objective == "total" else at)

    def learn(self, feedback: tuple[Feedback, ...]) -> None:
        """Take in the rates of the machines that ran a task."""
        for each in feedback:
            self._rates.learn(each.slot, each.machines, each.rates)
