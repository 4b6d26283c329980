"""The baselines of OPM §VI, greedy by utility per price, and receding-horizon water-filling.

All decide first how many machines each job gets, then which; tasks stay where they are as far as
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

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from gangwise.core.arrays import Floats, Ints, check_numbers, read_only
from gangwise.core.contracts import PolicyBase
from gangwise.core.jit import kernel
from gangwise.papers.approximation_jobs.environment import Observation, RateLearning
from gangwise.papers.approximation_jobs.kernels import slope
from gangwise.papers.approximation_jobs.opm import check_choices
from gangwise.papers.approximation_jobs.problem import POWER, SLACK, ApproximationProblem, slopes_at
from gangwise.papers.estimators import Estimator


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
        """How many machines each active job can pay in this slot, shape [n], as a real number."""
        jobs, prices = observation.jobs, self._problem.prices[observation.available]
        most = np.full(jobs.rows.size, float(prices.size))
        if self._problem.enforce and prices.size:
            remaining = (jobs.budget * (1.0 + SLACK) - jobs.cost)[jobs.rows]
            price = float(prices.mean())
            if price > 0:
                most = np.minimum(most, np.floor(remaining / price))
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
    burst: float = 1.5
    floor: float = 0.03
    gamma: float = 1.0

    def __post_init__(self) -> None:
        check_numbers("(0, inf)", burst=self.burst, floor=self.floor)
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
    """What n jobs want: their utilities, what was done, and what they may still spend; each [n].

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

    keep: float = 0.3
    objective: Literal["total", "average"] = "total"
    estimator: str | Estimator = "decay"
    gamma: float = 1.0
    hand_on: bool = True

    def __post_init__(self) -> None:
        check_numbers("[0, 1]", keep=self.keep)
        check_choices(self)
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
