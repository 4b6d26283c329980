r"""OPM for machines that hold several tasks (§V-C): demands r_j, capacities C_i, parallelism u_j.

As :class:`~gangwise.approximation_jobs.opm.OPM`, but the shares of a slot are projected onto (102)
and (103), with capacities that leave room for what rounding adds, and rounded together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.environment import Feedback, Observation
from gangwise.approximation_jobs.problem import ApproximationProblem
from gangwise.approximation_jobs.rounding import plan_capacity, round_dependent
from gangwise.approximation_jobs.slopes import relative, slopes_at
from gangwise.core.errors import ScenarioError
from gangwise.core.policy import Timing
from gangwise.estimators import Estimator, make_estimator
from gangwise.kernels.general_projection import alternate, entries

__all__ = ["OPMGeneral", "Projection", "project_general"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TOLERANCE = 1e-10
SWEEPS = 2000


class Projection(NamedTuple):
    """The nearest plan, and the prices that make it so.

    ``plan`` [J, M]; ``eta`` [M] and ``nu`` [J], to begin with in the next slot; ``sweeps`` taken.
    """

    plan: Floats
    eta: Floats
    nu: Floats
    sweeps: int


def project_general(
    y: npt.ArrayLike,
    demand: npt.ArrayLike,
    capacity: npt.ArrayLike,
    limit: npt.ArrayLike,
    eta: Floats | None = None,
    nu: Floats | None = None,
) -> Projection:
    """Project onto 0 ≤ z ≤ 1, (102) and (103): problem (P5).

    Parameters
    ----------
    y : array of shape [J, M]
        -inf where a job must have nothing.
    demand : array of shape [J]
        r_j, positive.
    capacity : array of shape [M]
        C_i, zero or larger.
    limit : array of shape [J]
        u_j, zero or larger.
    eta, nu : ndarray, optional
        Prices to begin with; those of the last slot save most of the work.

    Returns
    -------
    Projection

    Raises
    ------
    ScenarioError
        For demands that are not positive or limits that are negative.

    Examples
    --------
    >>> project_general([[0.9], [0.9]], [1.0, 2.0], [1.0], [1.0, 1.0]).plan.ravel().round(12)
    array([0.56, 0.22])
    """
    y = np.ascontiguousarray(np.array(y, dtype=np.float64, ndmin=2))
    J, M = y.shape
    r, C, u = (np.ascontiguousarray(a, dtype=np.float64) for a in (demand, capacity, limit))
    if r.shape != (J,) or C.shape != (M,) or u.shape != (J,):
        raise ScenarioError(
            f"{J} jobs and {M} machines need {J} demands and limits and {M} capacities; got "
            f"{r.shape}, {u.shape} and {C.shape}"
        )
    if not (r > 0).all() or not (C >= 0).all() or not (u >= 0).all():
        raise ScenarioError("demands must be positive; capacities and limits must not be negative")
    eta = np.zeros(M) if eta is None else eta.copy()
    nu = np.zeros(J) if nu is None else nu.copy()
    plan = np.empty((J, M))
    turned = np.ascontiguousarray(y.T)
    sweeps = alternate(y, turned, r, C, u, np.ones(M), eta, nu, SWEEPS, TOLERANCE)
    entries(y, r, C, u, eta, nu, np.empty(M), plan)
    return Projection(plan, eta, nu, int(sweeps))


@dataclass
class OPMGeneral:
    """Primal-dual shares for machines with capacities, rounded to tasks.

    Runs on problems without capacities too, as machines that hold one task; there
    :class:`~gangwise.approximation_jobs.opm.OPM` does the same faster.

    Parameters
    ----------
    estimator, objective, pacing, alpha, dual, floor, gamma, kappa, window, tau, rate
        As for OPM.
    headroom : {"plan", "none"}
        Plan with :func:`~gangwise.approximation_jobs.rounding.plan_capacity`, or with all of C_i
        and drop tasks that do not fit after rounding, smallest demand first, which is biased.

    Notes
    -----
    Draws are fresh in every slot: coupling consecutive draws of this rounding is not known.

    Examples
    --------
    >>> from gangwise.approximation_jobs.environment import ApproximationInstance
    >>> from gangwise.approximation_jobs.problem import Job
    >>> from gangwise.approximation_jobs.processes import IidRates, ReplayedJobs
    >>> from gangwise import simulate
    >>> problem = ApproximationProblem([1.0, 1.0], capacity=[1.0, 0.5])
    >>> jobs = [Job(0, 0, 20, 30.0, demand=0.5, parallelism=2)]
    >>> instance = ApproximationInstance(problem, IidRates([0.9, 0.9]), ReplayedJobs(jobs))
    >>> run = simulate(instance, OPMGeneral(), slots=20, seed=0)
    >>> float(run.metrics["cost"].sum()) <= 30.0
    True
    """

    estimator: str | Estimator = "decay"
    objective: Literal["total", "average"] = "total"
    pacing: Literal["left", "even"] = "left"
    headroom: Literal["plan", "none"] = "plan"
    alpha: float = 0.3
    dual: float = 0.4
    floor: float = 0.03
    gamma: float = 1.0
    kappa: float = 0.5
    window: int = 20
    tau: float = 30.0
    rate: float = 0.7
    family = "approximation_jobs"
    randomised = True
    timing: Timing = field(init=False, repr=False, default="react")

    def __post_init__(self) -> None:
        from gangwise.approximation_jobs.opm import check_choice

        check_choice(
            self, objective=("total", "average"), pacing=("left", "even"),
            headroom=("plan", "none"),
        )  # fmt: skip
        for name in ("alpha", "floor"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ScenarioError(f"{name} is {getattr(self, name)}; it must be positive")
        if not (math.isfinite(self.dual) and self.dual >= 0):
            raise ScenarioError(f"dual is {self.dual}; it must be finite and not negative")

    def start(self, problem: ApproximationProblem, rng: np.random.Generator) -> None:
        """Forget everything."""
        self._problem, M = problem, problem.M
        self._rng, for_estimates = rng.spawn(2)
        self._rates = make_estimator(
            self.estimator, self.gamma, self.kappa, self.window, self.tau, self.rate
        )
        self._rates.start(M, for_estimates)
        self._mu = self.dual / (self.alpha * float(problem.prices @ problem.prices))
        self._price = float(problem.prices.mean())
        self._shares, self._eta = np.zeros((0, M)), np.zeros(M)
        self._omega, self._nu = np.zeros(0), np.zeros(0)

    def decide(self, observation: Observation) -> npt.NDArray[np.integer]:
        """Tasks of this slot: 0 or 1, int64 [C, M]; without capacities a table row per machine."""
        problem, jobs = self._problem, observation.jobs
        rows = self._turnover(observation)
        tasks = np.zeros((jobs.size, problem.M), dtype=np.int64)
        if rows.size:
            y = self._ascend(observation, rows)
            tasks[rows] = self._place(observation, rows, y)
        if problem.capacity is not None:
            return tasks
        held = tasks.any(axis=0) if jobs.size else np.zeros(problem.M, dtype=bool)
        first = tasks.argmax(axis=0) if jobs.size else np.zeros(problem.M, dtype=np.int64)
        return np.where(held, first, -1)

    def _turnover(self, observation: Observation) -> Ints:
        """Forget rows that changed hands; the rows of jobs that can still pay for a task."""
        jobs, problem = observation.jobs, self._problem
        more = jobs.size - len(self._shares)
        if more > 0:
            self._shares = np.concatenate((self._shares, np.zeros((more, problem.M))))
            self._omega = np.concatenate((self._omega, np.zeros(more)))
            self._nu = np.concatenate((self._nu, np.zeros(more)))
        for changed in (observation.departed, observation.arrived):
            self._shares[changed] = 0.0
            self._omega[changed] = self._nu[changed] = 0.0
        rows = jobs.rows
        there = problem.prices[observation.available]
        if problem.enforce and there.size:
            poor = jobs.budget[rows] * (1 + 1e-9) < jobs.cost[rows] + there.min()
            self._shares[rows[poor]] = 0.0
            rows = rows[~poor]
        return rows

    def _ascend(self, observation: Observation, rows: Ints) -> Floats:
        """(69) with the multipliers of (73), shape [n, M]."""
        jobs, t, prices = observation.jobs, observation.slot, self._problem.prices
        life = jobs.deadline[rows] - jobs.arrival[rows]
        target = jobs.budget[rows] / life
        if self.pacing == "left":
            left = np.maximum(jobs.budget[rows] - jobs.cost[rows], 0.0)
            target = left / (jobs.deadline[rows] - t)
        g = self._mu * (self._shares[rows] @ prices - target)
        self._omega[rows] = np.maximum(-g, self._omega[rows] + g)
        multipliers = self._omega[rows] + g
        least = self.floor * jobs.budget[rows] / (life * self._price)
        at = np.maximum(jobs.work[rows] / np.maximum(t - jobs.arrival[rows], 1), least)
        slopes = slopes_at(jobs, rows, at * life if self.objective == "total" else at)
        gains = np.outer(relative(slopes), self._rates.estimate(t))
        return self._shares[rows] + self.alpha * (gains - np.outer(multipliers, prices))

    def _place(self, observation: Observation, rows: Ints, y: Floats) -> npt.NDArray[np.bool_]:
        """(P5) and the rounding, shape [n, M]."""
        problem, listed = self._problem, [observation.jobs.jobs[j] for j in rows]
        M = problem.M
        demand, limit = np.ones(rows.size), np.full(rows.size, float(M))
        capacity = np.ones(M)
        if problem.capacity is not None:
            capacity = problem.capacity
            demand = np.array([job.demand for job in listed if job is not None])
            most = [M if job is None else job.parallelism or M for job in listed]
            limit = np.array(most, dtype=np.float64)
        y = np.where(demand[:, None] <= capacity * (1 + 1e-12), y, -np.inf)
        y[:, ~observation.available] = -np.inf
        planned = plan_capacity(capacity, demand) if self.headroom == "plan" else capacity
        found = project_general(y, demand, planned, limit, self._eta, self._nu[rows])
        self._eta, self._nu[rows], self._shares[rows] = found.eta, found.nu, found.plan
        tasks = round_dependent(found.plan, demand, self._rng)
        if self.headroom == "none":
            order = np.argsort(-demand, kind="stable")
            load = np.cumsum(tasks[order] * demand[order, None], axis=0)
            tasks[order] &= load <= capacity * (1 + 1e-12)
        return tasks

    def learn(self, feedback: tuple[Feedback, ...]) -> None:
        """Take in the rates of the machines that ran a task."""
        for each in feedback:
            self._rates.learn(each.slot, each.machines, each.rates)
