"""OPM, OPM §V, and OPS, OPS §IV: online primal-dual scheduling; their baselines and rivals.

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

The baselines of OPM §VI, the greedy by utility per price, and receding-horizon water-filling decide
first how many machines each job gets, then which; tasks stay where they are as far as
that allows. The last two are rivals that the paper does not have.

OPM follows a gradient with a step size, which is good only where slots are short. A plan has no
step size. At a shadow price η of money, job j wants work until its slope falls to η / ρ, ρ being
the work that a unit of money buys on the machines in use, and no more than its money pays:

    c_j(η) = clip((f_j'⁻¹(η / ρ) − X_j) / ρ, 0, B_j − C_j),

spread evenly over the slots that are left to it, s_j = c_j / (d_j − t). Spending falls in η, so one
root finds the η at which it is what the machines cost, Σ_j s_j(η) = Σ_i p_i; where all budgets
together are less than that, η is 0, money is what is short, and the best machines are used only.

The plan takes the jobs that are there as all that there will be. What that misses, the next slot
plans again.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints, NonNegative, Positive, Share, read_only
from gangwise.core.contracts import PolicyBase
from gangwise.core.errors import ScenarioError
from gangwise.core.jit import kernel
from gangwise.papers.approximation_jobs import kernels
from gangwise.papers.approximation_jobs import problem as problems
from gangwise.papers.approximation_jobs.environment import Feedback, Observation, RateLearning
from gangwise.papers.approximation_jobs.kernels import slope
from gangwise.papers.approximation_jobs.problem import POWER, SLACK, ApproximationProblem, slopes_at
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
        # The two matrices take turns: nothing is copied, and the kernel writes over the older one.
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
    alpha: Positive = 0.3
    dual: NonNegative = 0.4
    mu: NonNegative | None = None
    floor: Positive = 0.03
    history: Literal["executed", "expected"] = "executed"
    unit: Literal["utility", "largest"] = "largest"
    gamma: float = 1.0
    epsilon: Annotated[float, "[0, 1)"] = 0.0
    theory: bool = False
    delta: Annotated[float, "(0, 1)"] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
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
        """Spending target of each job in this slot: β_j of OPM (64), or re-paced; shape [n]."""
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
        # The work per slot that ``floor`` of the job's pace buys at
        # rate 1: the slope at 0 may be infinite.
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
        # With the slack of the environment, so that both agree on who can pay one more task.
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

    alpha: NonNegative | None = None
    mu: NonNegative | None = None
    gamma: NonNegative | None = None
    epsilon: float = 0.0
    delta: Annotated[float, "(0, 1)"] = 0.1
    share: Share = 0.0
    floor: Positive = 0.1
    history: Literal["expected", "executed"] = "expected"
    estimator: str | Estimator = "ucb"
    family = "approximation_jobs"
    randomised = True

    def __post_init__(self) -> None:
        super().__post_init__()
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
        # Estimates begin anew with each job: Theorem 2 is about one, whose slots count from 1.
        self._estimate_rates(self.estimator, gamma, M, self._for_estimates)
        self.state.add(row, self.share)
        self._first, self._work = slot, 0.0

    def decide(self, observation: Observation) -> Ints:
        """Lines 3–6 of Algorithm 1; the environment does lines 7–12."""
        jobs, t, state = observation.jobs, observation.slot, self.state
        departed = observation.departed.tolist()
        for row in departed:
            state.remove(row)
        # Before the new ones are queued, for a row that was freed may have been given out again.
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
            # Late reports of the job before would count as slots of this one.
            super().learn(tuple(report for report in feedback if report.slot >= self._first))


# Baselines and rivals


def max_min_shares(total: float, most: Floats) -> Floats:
    """Max-min fair shares of ``total``: equal, but no job gets more than ``most``, shape [n].

    >>> max_min_shares(10.0, np.array([1.0, 9.0, 9.0]))
    array([1. , 4.5, 4.5])
    """
    if most.sum() <= total:
        return most.copy()
    order = np.argsort(most, kind="stable")
    ordered = most[order]
    below = np.concatenate(([0.0], np.cumsum(ordered)[:-1]))
    # Were the k smallest served in full, the others would share the rest alike, at this level.
    level = (total - below) / np.arange(most.size, 0, -1)
    k = int(np.argmax(ordered >= level))  # the first that would be capped by the level
    shares: Floats = np.minimum(most, level[k])
    return shares


def systematic(shares: Floats, u: float) -> Ints:
    """Systematic sampling: whole numbers with these means, shape [n].

    They add up to the floor or the ceiling of the sum of ``shares``.
    One uniform number ``u`` serves all: job k gets the integers that its part of the line covers.

    >>> systematic(np.array([0.5, 0.5, 1.5]), u=0.5)
    array([1, 0, 2])
    """
    # Job k covers its stretch of the line; the integers there, shifted by u, are its machines.
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
        self._problem, self._rng = problem, rng
        self._order = rng.permutation(problem.M).astype(np.int64)
        self._holder, running = np.full(problem.M, -1, np.int64), np.empty(problem.M, np.int64)
        self._held = Assignment(self._holder, running, np.empty(0, np.int64))

    def most(self, observation: Observation) -> Floats:
        """Largest number of machines that each active job can pay in a slot, shape [n], float."""
        jobs, prices = observation.jobs, self._problem.prices[observation.available]
        most = np.full(jobs.rows.size, float(prices.size))
        if self._problem.enforce and prices.size:
            remaining = (jobs.budget * (1.0 + SLACK) - jobs.cost)[jobs.rows]
            price = float(prices.mean())
            if price > 0:
                most = np.minimum(most, np.floor(remaining / price))
            # The mean price may be too much where the cheapest machine's is not.
            most[(most < 1.0) & (remaining >= prices.min())] = (
                1.0  # the cheapest machine it can pay
            )
        return most

    def hand_out(
        self,
        observation: Observation,
        rows: Ints,
        want: Ints,
        machines: Ints | None = None,
        steep: int = 0,
        worth: Floats | None = None,
        least: float = 0.0,
    ) -> Ints:
        """Place ``want[k]`` tasks of the job in table row ``rows[k]``: :func:`match_machines`."""
        if self._held.place.size < observation.jobs.size:  # the table has grown
            self._held = self._held._replace(place=np.full(observation.jobs.size, -1, np.int64))
        # Before anything is matched: a freed row may already be another job's.
        self._holder[np.isin(self._holder, observation.departed)] = -1
        order = self._order if machines is None else machines
        order = read_only(order[observation.available[order]])
        worth = read_only(self._problem.prices if worth is None else worth)
        match_machines(want, read_only(rows), steep, order, worth, least, self._held)
        return self._holder


@dataclass
class Fair(CountingPolicy):
    """Fair Scheduler, OPM §VI: max-min fair shares of the machines, rounded by systematic sampling.

    Rounding down instead would starve jobs once there are more of them than machines.
    """

    def decide(self, observation: Observation) -> Ints:
        rows = observation.jobs.rows
        shares = max_min_shares(float(observation.available.sum()), self.most(observation))
        return self.hand_out(observation, rows, systematic(shares, self._rng.random()))


@dataclass
class DeadlineAware(CountingPolicy):
    """Deadline-Aware Scheduler, OPM §VI: earliest deadline first, as many machines as it can pay.

    Of jobs with the same deadline the one that came first goes first.
    """

    def decide(self, observation: Observation) -> Ints:
        jobs = observation.jobs
        order = np.lexsort((jobs.arrival[jobs.rows], jobs.deadline[jobs.rows]))
        most = self.most(observation)[order]
        before = np.concatenate(([0.0], np.cumsum(most)[:-1]))  # what earlier deadlines take
        # Machines that are left when all earlier deadlines have theirs.
        free = np.maximum(float(observation.available.sum()) - before, 0.0)
        want = np.minimum(most, free).astype(np.int64)
        return self.hand_out(observation, jobs.rows[order], want)


@dataclass
class UtilityPerPrice(RateLearning, CountingPolicy):
    """Greedy by marginal utility per price: steepest jobs first, on the best machines.

    A job may spend ``burst`` times the budget left over the slots left; those with the largest
    slope at their projected total work come first, and the machines with the best estimated rate
    per price are used. What OPM earns above it is what the primal-dual machinery is worth.

    Parameters
    ----------
    estimator : str or Estimator
        One of :data:`~gangwise.papers.estimators.ESTIMATORS`, with ``gamma``, ``kappa``,
        ``window``, ``tau`` and ``rate``, or your own.
    burst : float
        How much faster than evenly a job may spend.
    floor : float
        As for OPM.
    """

    estimator: str | Estimator = "decay"
    burst: Positive = 1.5
    floor: Positive = 0.03
    gamma: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._make(self.estimator, self.gamma)

    def start(self, problem: ApproximationProblem, rng: np.random.Generator) -> None:
        own, for_estimates = rng.spawn(2)
        super().start(problem, own)
        self._estimate_rates(self.estimator, self.gamma, problem.M, for_estimates)
        self._price = float(problem.prices.mean())

    def decide(self, observation: Observation) -> Ints:
        jobs, t, available = observation.jobs, observation.slot, observation.available
        rows = jobs.rows
        life = (jobs.deadline - jobs.arrival)[rows].astype(np.float64)
        least = self.floor * jobs.budget[rows] / self._price
        # Work at the end of the lifetime, if it goes on as so far.
        work = jobs.work[rows] * life / np.maximum(t - jobs.arrival[rows], 1)
        slopes = slopes_at(jobs, rows, np.maximum(work, least))
        remaining = np.maximum(jobs.budget - jobs.cost, 0.0)[rows]
        pace = self.burst * remaining / ((jobs.deadline[rows] - t) * self._price)
        order = np.argsort(-slopes, kind="stable")
        most = self.most(observation)
        want = np.minimum(systematic(pace[order], self._rng.random()), most[order]).astype(np.int64)
        free = int(available.sum()) - np.concatenate(([0], np.cumsum(want)[:-1]))
        want = np.minimum(want, np.maximum(free, 0))
        worth = np.where(available, self._rates.estimate(t), -1.0)  # away: behind all others
        worth = worth / np.maximum(self._problem.prices, 1e-12)
        best = self._order[np.argsort(-worth[self._order], kind="stable")]
        return self.hand_out(observation, rows[order], want, best[: int(want.sum())])


@kernel
def inverse_slope(kind: int, v: float, shape: float, at: float) -> float:
    """Demand curve f'⁻¹: the work at which the slope has fallen to ``at`` > 0, 0 or larger."""
    if kind == 0:
        if shape >= 1.0:  # linear: all or nothing
            return math.inf if v > at else 0.0
        if shape == 0.5:
            return (0.5 * v / at) * (0.5 * v / at)
        return float((v * shape / at) ** (1.0 / (1.0 - shape)))
    if kind == 1:
        return max(v / at - shape, 0.0)
    return max(shape * math.log(v / (shape * at)), 0.0)


class JobDemands(NamedTuple):
    """Demands of n jobs: their utilities, what was done, and what they may still spend; each [n].

    Utilities are numbered as in :mod:`~gangwise.papers.approximation_jobs.problem`.
    ``done`` is X_j, ``money`` B_j − C_j, in units of price, and ``slots`` d_j − t, at least 1.
    """

    kind: Ints
    v: Floats
    shape: Floats
    done: Floats
    money: Floats
    slots: Floats


@kernel
def spending(eta: float, jobs: JobDemands, rho: float, spend: Floats) -> float:
    """Demand at a shadow price: s_j(η) of each job into ``spend`` [n], and their sum."""
    total = 0.0
    for j in range(spend.size):
        wanted = math.inf  # money that costs nothing is spent, all of it
        if eta > 0.0:
            wanted = inverse_slope(jobs.kind[j], jobs.v[j], jobs.shape[j], eta / rho)
        spend[j] = min(max((wanted - jobs.done[j]) / rho, 0.0), jobs.money[j]) / jobs.slots[j]
        total += spend[j]
    return total


@kernel
def water_filling(
    jobs: JobDemands, rho: float, supply: float, guess: float, spend: Floats, other: Floats
) -> float:
    """Water-filling: what each job spends in a slot, Σ_j s_j(η) ≤ ``supply``, into ``spend`` [n].

    ``rho`` is the work that a unit of money buys, ``supply`` what all machines cost in the slot,
    ``guess`` the η of the slot before, or 0; ``other`` [n] is work space. Returns η ≥ 0, which is 0
    if all may spend all that they can.
    """
    if spending(0.0, jobs, rho, spend) <= supply:
        return 0.0
    # Bracket the root of Σ s_j(η) − supply, which never rises in η, around the last slot's η.
    low = high = guess if guess > 0.0 else 1.0
    below = above = spending(low, jobs, rho, spend)
    factor = 1.05  # squared in every step: a good guess is bracketed at once, a bad one soon
    # Spending falls in η: up until all is affordable, then down until it is not.
    while above > supply:
        low, below = high, above
        high *= factor
        factor *= factor
        above = spending(high, jobs, rho, spend)
    factor = 1.05
    while below <= supply:
        high, above = low, below
        low /= factor
        factor *= factor
        if low < 1e-300:
            break
        below = spending(low, jobs, rho, spend)
    # Regula falsi in ln η, every third step a bisection, until the two ends meet.
    for n in range(200):
        if above >= supply * (1.0 - 1e-9) or high <= low * (1.0 + 1e-12):
            break
        part = 0.5  # of the way from low to high, in ln η
        if n % 3 < 2 and below > above:
            part = min(max((below - supply) / (below - above), 0.02), 0.98)
        # Geometric: prices of money differ by orders of magnitude.
        middle = low * (high / low) ** part
        spent = spending(middle, jobs, rho, spend)
        if spent > supply:
            low, below = middle, spent
        else:
            high, above = middle, spent
    # A demand that jumps at η (f linear) is met as far as the supply goes: between both ends.
    above = spending(high, jobs, rho, spend)
    below = spending(low, jobs, rho, other)
    if below > above:
        part = min(max((supply - above) / (below - above), 0.0), 1.0)
        for j in range(spend.size):
            # Between the two ends of a jump: every job gets the same
            # part of what it wants more at the lower η.
            spend[j] += part * (other[j] - spend[j])
    return high


@kernel
def plan_shares(
    jobs: JobDemands,
    prices: Floats,
    rates: Floats,
    order: Ints,
    guess: float,
    spend: Floats,
    steep: Floats,
    other: Floats,
) -> tuple[float, float, float]:
    """Shares of the machines by receding-horizon water-filling for one slot; η, ρ and a price.

    ``prices`` and ``rates`` [M] are p_i and the θ̂_i to go by, ``order`` [m] the machines that are
    there, best rate per price first. ``guess``, η of the slot before, saves most of the work.

    ``spend`` [n] receives what each job spends, which buys one machine per price returned, the mean
    of the machines used. ``steep`` [n] receives f_j' at the end of the plan, utility per unit of
    work: η / ρ for all jobs that neither money nor their own end stops short of that. ``other`` [n]
    is work space.
    """
    supply = wanted = 0.0
    for n in range(order.size):
        supply += prices[order[n]]
    for j in range(spend.size):
        # What all would spend in the slot at price 0.
        wanted += jobs.money[j] / jobs.slots[j]
    # Machines in use: the best ones, as many as money pays for.
    used, cost, work = 0, 0.0, 0.0
    for n in range(order.size):
        if cost >= wanted:
            break
        cost += prices[order[n]]
        work += rates[order[n]]
        used += 1
    rho = max(work / cost, 1e-9) if cost > 0.0 else 1e-9
    # ρ is that of the machines in use, as if each job had an equal mix of them.
    eta = water_filling(jobs, rho, supply, guess, spend, other)
    for j in range(spend.size):
        end = jobs.done[j] + spend[j] * jobs.slots[j] * rho
        # All jobs at the water level are alike; only those that money stops short are steeper.
        at = math.inf
        if end > 0.0 or jobs.kind[j] != 0 or jobs.shape[j] >= 1.0:  # v X^β is vertical at 0
            at = slope(jobs.kind[j], jobs.v[j], jobs.shape[j], end)
        steep[j] = at if at > (1.0 + 1e-6) * eta / rho else eta / rho
    return eta, rho, cost / used if used > 0 and cost > 0.0 else 1.0


class Assignment(NamedTuple):
    """The job of each machine: the table row that it ran last, −1 for none; and work space."""

    holder: Ints  # [M]
    now: Ints  # [M]
    place: Ints  # [rows of the table] all −1 before and after


@kernel
def match_machines(
    want: Ints, rows: Ints, steep: int, order: Ints, worth: Floats, least: float, held: Assignment
) -> None:
    """Matching of tasks to machines: the best for jobs short of money, and few tasks moved.

    ``rows[k]`` gets ``want[k]`` machines; the first ``steep`` jobs choose first, from ``order``
    [m], best first, and keep what they held if it is worth at least ``least``. All others have the
    same use for a machine: they keep what is left of theirs, and take any. ``held.holder`` becomes
    the decision, and ``want`` is used up.
    """
    holder, running, place = held
    for i in range(holder.size):
        running[i] = -1
    for k in range(rows.size):
        place[rows[k]] = k
    # Steep jobs first, and in each group keeping before taking, so that few tasks move.
    for begin, end in ((0, steep), (steep, rows.size)):
        for n in range(order.size):
            i = order[n]
            k = place[holder[i]] if running[i] < 0 and holder[i] >= 0 else -1
            # Keep: the machine's last job wants it still, and it is good enough where that matters.
            if begin <= k < end and want[k] > 0 and (k >= steep or worth[i] >= least):
                running[i] = rows[k]
                want[k] -= 1
        k = begin
        for n in range(order.size):
            i = order[n]
            if running[i] < 0:
                while k < end and want[k] <= 0:
                    k += 1
                if k == end:
                    break
                running[i] = rows[k]
                want[k] -= 1
    for i in range(holder.size):
        holder[i] = running[i]
    for k in range(rows.size):
        place[rows[k]] = -1


def over_lifetime(kind: Ints, v: Floats, shape: Floats, life: Floats) -> tuple[Floats, Floats]:
    """Utility of a lifetime L in OPM (6), X ↦ L f(X / L): its scale and shape, in the form of f.

    v L^(1−β) X^β, v L log(1 + X / (s L)) or v L (1 − exp(−X / (s L))); all arrays of shape [n].

    >>> over_lifetime(np.array([0, 1]), np.ones(2), np.full(2, 0.5), np.full(2, 9.0))
    (array([3., 9.]), array([0.5, 4.5]))
    """
    power = kind == POWER
    return v * np.where(power, life ** (1.0 - shape), life), np.where(power, shape, shape * life)


ROUNDS = 4
"""Draws of whole machines in a slot, after which what is left stays idle."""


@dataclass
class RecedingHorizon(RateLearning, CountingPolicy):
    """Receding-horizon water-filling: no step size, whole lifetimes planned anew in every slot.

    Shares are rounded to whole tasks by systematic sampling. Jobs that money stops short are
    steeper than the others and get the best machines, as :func:`match_machines` has it.

    Parameters
    ----------
    keep : float
        A task of a steep job stays on its machine until that is worth so much less, as a share,
        than the last of the machines that such jobs could have. Anything from 0.15 to 0.5 earns the
        same; 0 moves three times as many tasks.
    objective : {"total", "average"}
        What is planned for: the overall utility Σ f(X), or OPM (6), Σ (d − a) f(X / (d − a)), which
        weighs jobs by their time.
    estimator : str or Estimator
        One of :data:`~gangwise.papers.estimators.ESTIMATORS`, with ``gamma``, ``kappa``,
        ``window``, ``tau`` and ``rate``, or your own.
    hand_on : bool
        A machine that was drawn for a job that cannot pay it is drawn again among those that can.
        Without, it stays idle: 11 % less is earned on one machine, .3 % on ten.

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario, simulate
    >>> instance = create_scenario("opm-default-v1:machines=20,slots=200").instance(0)
    >>> total = {
    ...     p: simulate(instance, create_policy(p), 200, 0).rewards.sum() for p in ("plan", "fair")
    ... }
    >>> bool(total["plan"] > total["fair"])
    True
    """

    keep: Share = 0.3
    objective: Literal["total", "average"] = "total"
    estimator: str | Estimator = "decay"
    gamma: float = 1.0
    hand_on: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._make(self.estimator, self.gamma)

    def start(self, problem: ApproximationProblem, rng: np.random.Generator) -> None:
        own, for_estimates = rng.spawn(2)
        super().start(problem, own)
        self._estimate_rates(self.estimator, self.gamma, problem.M, for_estimates)
        self._eta = 0.0

    def decide(self, observation: Observation) -> Ints:
        jobs, t, available = observation.jobs, observation.slot, observation.available
        rows = jobs.rows
        rates = self._rates.estimate(t)
        worth = rates / np.maximum(self._problem.prices, 1e-12)
        # Machines that are there, best rate per price first, ties in an order of the run's own.
        listed = self._order[available[self._order]]
        order = listed[np.argsort(-worth[listed], kind="stable")]
        kind, v, shape = jobs.kind[rows], jobs.v[rows], jobs.shape[rows]
        if self.objective == "average":
            life = (jobs.deadline - jobs.arrival)[rows].astype(np.float64)
            # The plan maximises Σ f: another objective is another utility of the same form.
            v, shape = over_lifetime(kind, v, shape, life)
        money = np.maximum(jobs.budget - jobs.cost, 0.0)[rows]
        slots = (jobs.deadline[rows] - t).astype(np.float64)
        demand = JobDemands(kind, v, shape, jobs.work[rows], money, slots)
        spend, steepness, flat = np.zeros((3, rows.size))
        arguments = demand, self._problem.prices, rates, order, self._eta
        self._eta, rho, price = plan_shares(*arguments, spend, steepness, flat)
        by_steepness = np.argsort(-steepness, kind="stable")
        want = self._whole(
            spend[by_steepness] / price, self.most(observation)[by_steepness], order.size
        )
        steep = int((steepness > self._eta / rho).sum())
        steep_machines = int(want[:steep].sum())
        least = (
            (1.0 - self.keep) * float(worth[order[steep_machines - 1]]) if steep_machines else 0.0
        )
        return self.hand_out(observation, rows[by_steepness], want, order, steep, worth, least)

    def _whole(self, shares: Floats, most: Floats, machines: int) -> Ints:
        """Whole machines for each job, at most ``most`` [n] of them, with ``shares`` [n] as means.

        With ``hand_on``, what is drawn for a job that cannot pay it whole is drawn again among
        those that can pay more, in proportion to their shares. On few machines nearly every share
        is below one, and a third of the machines' time is lost without that.
        """
        want = np.zeros(shares.size)
        remaining, room = shares.copy(), most.copy()
        for _ in range(ROUNDS if self.hand_on else 1):
            drawn = systematic(remaining, self._rng.random())
            # No more than a job can pay, and no more than there are machines, in the order given.
            machines = min(machines, int(drawn.sum()))
            draw = np.minimum(drawn, room)
            draw = np.minimum(draw, np.maximum(machines - (np.cumsum(draw) - draw), 0.0))
            want, room, machines = want + draw, room - draw, machines - int(draw.sum())
            able = np.where(room >= 1.0, shares, 0.0)
            if machines < 1 or able.sum() <= 0.0:
                break
            remaining = able * (machines / able.sum())
        return want.astype(np.int64)
