"""OPM, OPM §V, for multiple jobs, and OPS, OPS §IV, for one: online primal-dual scheduling.

In every slot: estimate the rates, update the multipliers from what the last shares spend, move the
shares along the gradient, project them machine by machine, draw a job for every machine.

As printed, the estimates are cumulative, OPM (66), slopes are taken at the average work per slot,
OPM (9), spending is steered to β_j whatever was really spent, and every slot draws afresh. Here
each of these is an option, and the defaults are the ones that earn more: estimates that forget, the
slope at the projected total work, a budget spread anew over the slots that are left, and draws
coupled to those of the last slot, which moves a fifth of the tasks or fewer where fresh draws move
nine tenths. Coupling needs the re-paced budget, since its spending wanders off the shares.

:class:`PrimalDual` holds the shares x and the multipliers λ, and is what OPS moves as well.

OPS serves one job, there from its first slot to its last; every machine is either running a task of
it or idle. With a single job the projection OPS (19) is OPM (P4), so it is the machinery of OPM
with the constants of Theorem 2. Of several jobs it serves one at a time, in the order in which they
came.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints, check_numbers
from gangwise.core.contracts import PolicyBase
from gangwise.core.errors import ScenarioError
from gangwise.papers.approximation_jobs import kernels
from gangwise.papers.approximation_jobs import problem as problems
from gangwise.papers.approximation_jobs.environment import Feedback, Observation, RateLearning
from gangwise.papers.estimators import Estimator


class PrimalDual:
    """Primal and dual variables: shares x of every machine among the jobs, and multipliers λ.

    Jobs have places 0, …, n − 1, without holes, so that one pass over the matrix is one pass over
    the active jobs; a leaving job's place goes to the last one.

    The multiplier update is carried as ω(t) = λ(t) − μ g(x(t−1)) of OPS (25): ω ← max{−μ g, ω + μ
    g} and λ = ω + μ g, which needs g of one slot only, and starts every job at λ = 0.

    ``prices`` [M] are p_i; ``exact`` projects by variable fixing instead of Newton's method, which
    is the same to 1e-12. Of all that follows, the first ``n`` places count: ``rows`` [J] is the
    table row of the job in each place, ``shares`` [J, M] x_j^i(t), ``omega`` [J] ω_j(t), ``spend``
    [J] Σ_i p_i x_j^i(t) in units of price per slot. ``holder`` [M] is the place of the job that
    each machine was last drawn for, −1 for none.
    """

    def __init__(self, prices: Floats, exact: bool = False):
        self.prices = np.array(prices, dtype=np.float64)  # one kind of array for the kernels
        self.exact, self.n, M = exact, 0, self.prices.size
        self._place: dict[int, int] = {}
        self.rows = np.zeros(0, np.int64)
        self.shares, self._before = np.zeros((0, M)), np.zeros((0, M))
        self.omega, self.spend = np.zeros(0), np.zeros(0)
        self.total, self._total_before = np.zeros(M), np.zeros(M)
        self.tau, self.holder = np.zeros(M), np.full(M, -1, np.int64)
        self._column = np.zeros(kernels.STRIPE)
        self._u = np.zeros((2, M))
        self._grow(2 * kernels.UNROLLED)  # and twice as many whenever there are too few

    def _grow(self, more: int) -> None:
        J, M = len(self.rows) + more, self.prices.size
        self.rows = np.concatenate((self.rows, np.zeros(more, np.int64)))
        self.shares = np.concatenate((self.shares, np.zeros((more, M))))
        self.omega = np.concatenate((self.omega, np.zeros(more)))
        self.spend = np.concatenate((self.spend, np.zeros(more)))
        self._before = np.zeros((J, M))
        stripe, part = np.zeros(J * kernels.STRIPE), np.zeros((J, kernels.STRIPE))
        column, free, fixed = np.zeros(J), np.full(J, np.inf), np.zeros(J, np.int64)
        self._space = kernels.Stripe(stripe, self._column, part, column, free, fixed)

    def __contains__(self, row: int) -> bool:
        """Whether the job in a table row has a place."""
        return row in self._place

    def add(self, row: int, share: float | Floats = 0.0) -> None:
        if self.n == len(self.rows):
            self._grow(self.n)
        k = self.n
        self.n += 1
        self.rows[k], self._place[row] = row, k
        self.shares[k] = share
        self.omega[k], self.spend[k] = 0.0, float(self.prices @ self.shares[k])
        self.total += self.shares[k]  # Σ_j x_j of each machine

    def remove(self, row: int) -> None:
        k = self._place.pop(row, None)
        if k is None:
            return
        self.n -= 1
        end = self.n
        kernels.remove_job(self.shares, k, end, self.total, self.holder)
        if k != end:
            self.rows[k], self._place[int(self.rows[end])] = self.rows[end], k
            self.omega[k], self.spend[k] = self.omega[end], self.spend[end]

    def multipliers(self, target: Floats, mu: float) -> Floats:
        """Multipliers λ_j(t), OPS (20) and OPM (73), shape [n].

        From g_j(x_j(t−1)) = spend − ``target`` [n], OPM (64), carried as OPS (25).
        """
        g = mu * (self.spend[: self.n] - target)
        # OPS (25): the virtual queue ω = λ(t) − μ g(x(t−1)), which never falls below −μ g
        omega = np.maximum(-g, self.omega[: self.n] + g)
        self.omega[: self.n] = omega
        multipliers: Floats = omega + g  # λ(t), zero or more since ω ≥ −μ g
        return multipliers

    def climb(
        self, slopes: Floats, multipliers: Floats, rates: Floats, alpha: float, there: Bools
    ) -> None:
        """Shares x(t): gradient step OPS (18), OPM (69), projection OPS (19), OPM (P4).

        Machines that are away get 0. Raises ScenarioError for slopes, multipliers or rates that are
        not finite, which have no projection.
        """
        for name, numbers in (("slopes", slopes), ("multipliers", multipliers), ("rates", rates)):
            if not np.isfinite(numbers).all():
                raise ScenarioError(
                    f"{name} must be finite numbers; found {numbers[~np.isfinite(numbers)][0]}"
                )
        self.shares, self._before = self._before, self.shares  # the draw needs both slots' shares
        self.total, self._total_before = self._total_before, self.total
        prices = self.prices
        if not there.all():  # nothing pushes or pulls there, and nothing is left to start from
            rates, prices = np.where(there, rates, 0.0), np.where(there, prices, 0.0)
            self._before[:, ~there] = 0.0
            self._total_before[~there] = 0.0
            self.holder[~there] = -1
        step = kernels.GradientStep(
            self._before, alpha * slopes, alpha * multipliers, rates, prices
        )
        answer = kernels.Projected(self.shares, self.tau, self.total, self.spend)
        kernels.primal_step(step, self.exact, answer, self._space)

    def draw(self, rng: np.random.Generator, couple: bool) -> Ints:
        """Random rounding OPS (21)–(22), OPM (72): a table row for every machine, −1 for none, [M].

        A task runs with probability x_j^i whether or not draws are coupled to the last slot's.
        """
        u = rng.random(out=self._u)  # both rows whether coupled or not: the same stream for either
        if couple:
            before, after = (self._before, self._total_before), (self.shares, self.total)
            kernels.sample_coupled(*before, *after, self.n, u[0], u[1], self.holder)
        else:
            kernels.sample_fresh(self.shares, self.n, u[0], self._column, self.holder)
        return np.where(self.holder >= 0, self.rows[self.holder], -1)


def check_choices(policy: object) -> None:
    """Raise ScenarioError unless each option with a ``Literal`` type is one of its choices."""
    for name, kind in get_type_hints(type(policy)).items():
        value, allowed = getattr(policy, name, None), get_args(kind)
        if get_origin(kind) is Literal and value not in allowed:
            raise ScenarioError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")


@dataclass
class OPM(RateLearning, PolicyBase):
    """OPM: primal-dual shares, OPM (64)–(73), drawn at random.

    Parameters
    ----------
    estimator : str or Estimator
        One of :data:`~gangwise.papers.estimators.ESTIMATORS`, or your own.
    objective : {"total", "average"}
        Where the slope of f_j is taken: at the work projected for the whole lifetime, or at the
        average work per slot so far, as OPM (9) has it.
    pacing : {"left", "even"}
        What a slot may cost: the budget left over the slots left, or β_j of OPM (64).
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
        The work of OPS (16): what was done, or Σ θ̂ x as in the proofs.
    unit : {"utility", "largest"}
        ``largest`` divides the slopes of a slot by the largest, so that α has no unit and a change
        in the unit of utility changes nothing.
    gamma, kappa, window, tau, rate : float
        Parameters of the estimators.
    epsilon : float
        Share of the budget that is held back, OPM (64).
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

    family = "approximation_jobs"
    randomised = True

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
    epsilon: float = 0.0
    theory: bool = False
    delta: float = 0.1

    def __post_init__(self) -> None:
        check_choices(self)
        check_numbers("(0, inf)", alpha=self.alpha, floor=self.floor)
        check_numbers("[0, inf)", dual=self.dual, mu=self.mu or 0.0)
        check_numbers("[0, 1)", epsilon=self.epsilon)
        check_numbers("(0, 1)", delta=self.delta)
        self._make(self.estimator, 1.0)

    def start(self, problem: problems.ApproximationProblem, rng: np.random.Generator) -> None:
        self._problem, self._gamma = problem, self.gamma
        self._set_steps(problem.horizon)
        self._rng, for_estimates = rng.spawn(2)
        self._estimate_rates(self.estimator, self._gamma, problem.M, for_estimates)
        self.state = PrimalDual(problem.prices)
        self._price = float(problem.prices.mean())
        self._expected = np.zeros(0)

    def _set_steps(self, horizon: int | None) -> None:
        M, prices = self._problem.M, self._problem.prices
        self._alpha = self.alpha
        # With all shares inside, spending follows z² + (2K − 2) z + (1 − K) = 0 with K = α μ Σ p²,
        # which is stable for K < 4/3; ``dual`` is that K.
        self._mu = self.dual / (self.alpha * float(prices @ prices))
        if self.mu is not None:
            self._mu = self.mu
        if self.theory:
            if horizon is None:
                raise ScenarioError("theory=True needs a problem with a horizon")
            self._alpha, self._mu = 0.5 / math.sqrt(horizon), math.sqrt(horizon) / M
            self._gamma = math.log(M * horizon / self.delta)

    def decide(self, observation: Observation) -> Ints:
        self._turnover(observation)
        state, jobs, t = self.state, observation.jobs, observation.slot
        rates = self._rates.estimate(t)
        rows = state.rows[: state.n]
        # Dual before primal, as in Algorithm 1: λ(t) answers to what x(t − 1) spends.
        target = (1.0 - self.epsilon) * self._target(jobs, rows, t)
        multipliers = state.multipliers(target, self._mu)
        work = jobs.work if self.history == "executed" else self._expected
        slopes = self._slopes(jobs, rows, t, work)
        if self.unit == "largest":
            # Then α is the step of the steepest job; all are zero where no job gains from more.
            slopes = slopes / (float(slopes.max(initial=0.0)) or 1.0)
        state.climb(slopes, multipliers, rates, self._alpha, observation.available)
        if self.history == "expected":
            self._expected[rows] += state.shares[: state.n] @ rates
        return state.draw(self._rng, self.rounding == "coupled")

    def _target(self, jobs: problems.JobTable, rows: Ints, t: int) -> Floats:
        """What each job should spend in this slot: β_j of OPM (64), or re-paced; shape [n]."""
        if self.pacing == "left":
            remaining = np.maximum(jobs.budget[rows] - jobs.cost[rows], 0.0)
            paced: Floats = remaining / (jobs.deadline[rows] - t)  # slots left, this one included
            return paced
        return jobs.budget[rows] / (jobs.deadline[rows] - jobs.arrival[rows])

    def _slopes(self, jobs: problems.JobTable, rows: Ints, t: int, work: Floats) -> Floats:
        """Slopes f_j' [n] at the work per slot so far, OPM (9), OPM (68), or projected total."""
        life = jobs.deadline[rows] - jobs.arrival[rows]
        # The printed (t − a_j) before f' cancels with the one inside, so f' of the mean remains.
        age = np.maximum(t - jobs.arrival[rows], 1)
        least = self.floor * jobs.budget[rows] / (life * self._price)
        at = np.maximum(work[rows] / age, least)
        # The projected total is the mean work per slot so far, kept up for the whole lifetime.
        return problems.slopes_at(jobs, rows, at * life if self.objective == "total" else at)

    def _turnover(self, observation: Observation) -> None:
        state, jobs = self.state, observation.jobs
        for row in observation.departed:
            state.remove(int(row))
        for row in observation.arrived:
            state.add(int(row))
        added = jobs.size - self._expected.size
        if added:
            self._expected = np.concatenate((self._expected, np.zeros(added)))
        self._expected[observation.arrived] = 0.0
        if self._problem.enforce:
            self._suspend(jobs, observation.available)

    def _suspend(self, jobs: problems.JobTable, there: Bools) -> None:
        """Line 8 of Algorithm 1: who cannot pay leaves the list, and returns when it can again.

        A machine that is away may be the only one that the money left pays for.
        """
        state = self.state
        prices = self._problem.prices[there]
        least = float(prices.min()) if prices.size else 0.0
        poor = jobs.budget[jobs.rows] * (1.0 + problems.SLACK) < jobs.cost[jobs.rows] + least
        # No job to suspend, and none suspended: the usual case costs one comparison.
        if state.n == jobs.rows.size and not poor.any():
            return
        for row, too_poor in zip(jobs.rows.tolist(), poor.tolist()):
            if too_poor:
                state.remove(row)
            elif row not in state:
                state.add(row)


@dataclass
class OPS(RateLearning, PolicyBase):
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
    family = "approximation_jobs"
    randomised = True

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("alpha", "mu", "gamma"):
            check_numbers("[0, inf)", **{name: getattr(self, name) or 0.0})
        check_numbers("[0, 1]", share=self.share)
        check_numbers("(0, inf)", floor=self.floor)
        check_numbers("(0, 1)", delta=self.delta)
        if not (self.epsilon == -1 or 0 <= self.epsilon < 1):
            raise ScenarioError(f"epsilon is {self.epsilon}; it lies in [0, 1), or is -1")

    def start(self, problem: problems.ApproximationProblem, rng: np.random.Generator) -> None:
        self._problem = problem
        self._rng, self._for_estimates = rng.spawn(2)
        self.state = PrimalDual(problem.prices)
        self._queue: list[int] = []
        self._first = 0

    def _begin(self, job: problems.Job, row: int, slot: int) -> None:
        M, T = self._problem.M, job.deadline - slot  # a job may have waited for the one before it
        self._alpha = 0.5 / math.sqrt(T) if self.alpha is None else self.alpha
        self._mu = math.sqrt(T) / M if self.mu is None else self.mu
        gamma = math.log(M * T / self.delta) if self.gamma is None else self.gamma
        epsilon = self.epsilon
        if epsilon == -1:
            epsilon = 8.0 * M * M * T / job.budget**2  # 8 / (ρ² T), ρ = B / (M T)
            if epsilon >= 1:
                raise ScenarioError(
                    f"job {job.id!r}: ε = 8 / (ρ² T) of Theorem 2 is {epsilon:.3g}; the budget is "
                    "too small for it, set epsilon"
                )
        self._target = np.array([(1.0 - epsilon) * job.budget / T])
        self._estimate_rates(self.estimator, gamma, M, self._for_estimates)
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
        average = work / max(t - self._first, 1)  # the work of OPS (16) per slot
        slopes = problems.slopes_at(jobs, rows, np.array([max(average, self.floor)]))
        # OPS (18) and the projection OPS (19)
        state.climb(slopes, multipliers, rates, self._alpha, observation.available)
        self._work += float(state.shares[0] @ rates)
        return state.draw(self._rng, couple=False)  # OPS (21)

    def learn(self, feedback: tuple[Feedback, ...]) -> None:
        if self.state.n:
            super().learn(tuple(report for report in feedback if report.slot >= self._first))
