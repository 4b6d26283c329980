"""Offline optimum with everything known in advance: bounds, with a certificate.

The programme is OPM (P1) with tasks that may be split, so that no real plan earns more:

    maximise  Σ_j f_j(X_j)   over   Σ_j x_ji^t ≤ 1,   Σ_{i,t} p_i x_ji^t ≤ B_j,   x ≥ 0.

In money: machine i offers p_i money in slot t, worth ρ = θ_i^t / p_i work each. Offers of the same
ρ in an *epoch*, slots in which the same jobs are active, are interchangeable, so that one number
stands for all of them. Where there are too many different ρ they are sorted into cells:

- every offer of a cell split between the cell's two ends, keeping its money and its work, is a
  mean-preserving spread, so the optimum can only grow: an upper bound;
- a plan for the split offers is a real plan for the cells that they were split from: it pays the
  same, and gets their mean ρ for it.

The difference is of second order in the width of the cells, and none where cells are points.

Slopes w and multipliers λ, whatever they are, give an upper bound (:meth:`Programme.bound`), and
any plan a lower one. Small exact programmes go to a linear solver with tangents of the utilities,
until the two meet; the others follow the gradient of the dual, its max softened less and less.

Two comparators: ``known_rates`` knows the rates of every slot and is the strongest;
``known_means`` has rates replaced by their means, as OPM (7) has it. It is *not* an upper bound for
one run of correlated rates, and regret against it may be negative. An optimum over whole lifetimes
has no reward in a slot: its total is spread evenly over the slots, which gives totals and shares
their meaning and curves none.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from scipy.optimize import linprog, minimize
from scipy.sparse import csr_matrix, vstack

from gangwise.core.arrays import Floats, read_only
from gangwise.core.contracts import Comparator
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.papers.approximation_jobs import environment, kernels, problem


class JobUtilities:
    """Utilities of N jobs, as the dual sees them; ``average`` asks for the objective of OPM (6).

    >>> from gangwise.papers.approximation_jobs.problem import Job, Power
    >>> worth = JobUtilities([Job(0, 0, 4, 1.0, Power(2.0, 0.5))], average=True)
    >>> worth.value(np.array([16.0])), worth.work_at_slope(np.array([0.5]), np.array([100.0]))
    (array([16.]), array([16.]))
    """

    def __init__(self, jobs: Sequence[problem.Job], average: bool = False):
        self.jobs = tuple(jobs)
        codes = np.array([job.utility.code for job in jobs], dtype=np.float64).reshape(-1, 3)
        self.kind, self.v, self.shape = codes.T
        self.span = np.array([float(job.lifetime) if average else 1.0 for job in jobs])

    def _by_form(self, power: Floats, log: Floats, saturating: Floats) -> Floats:
        is_form = [self.kind == form for form in (problem.POWER, problem.LOG, problem.SATURATING)]
        return np.asarray(np.select(is_form, [power, log, saturating]))

    def value(self, work: Floats) -> Floats:
        """Objective of each job for its work [N], shape [N]."""
        x, v, s = work / self.span, self.v, self.shape
        values = self._by_form(v * x**s, v * np.log1p(x / s), -v * np.expm1(-x / s))
        return np.asarray(values * self.span)

    def slope(self, work: Floats) -> Floats:
        """Its derivative; ``work`` must be positive. Shape [N]."""
        x, v, s = work / self.span, self.v, self.shape
        return self._by_form(v * s * x ** (s - 1.0), v / (s + x), v / s * np.exp(-x / s))

    def work_at_slope(self, w: Floats, cap: Floats) -> Floats:
        """The work at which the slope falls to w, within [0, cap]; shape [N]."""
        v, s = self.v, self.shape
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            bent = np.exp(np.log(v * s / w) / np.maximum(1.0 - s, 1e-300))
            linear = np.where(v > w, np.inf, 0.0)  # all or nothing
            power = np.where(s < 1, bent, linear)
            x = self._by_form(power, v / w - s, s * np.log(v / (s * w)))
        work = np.nan_to_num(x, nan=0.0, posinf=np.inf) * self.span
        return np.asarray(np.clip(work, 0.0, cap))

    def conjugate(self, w: Floats, cap: Floats) -> Floats:
        """f*(w) = max over X in [0, cap] of f(X) − w X, shape [N]."""
        work = self.work_at_slope(w, cap)
        # f is concave: the largest f(X) − w X is where the slope is w, or else at an end.
        at_ends = np.maximum(self.value(cap) - w * cap, 0.0)
        return np.asarray(np.maximum(self.value(work) - w * work, at_ends))


CELLS = (16, 200)
"""Fewest and most cells of ρ, when there are more different ρ than :data:`POINTS`; in between, as
many as make :data:`WORK` pairs of a cell and a job active in its epoch."""
WORK = 1_000_000
POINTS = 400
SAMPLED_RATES = 200_000
"""How many rates are looked at to place cells."""


class Programme:
    """Offline programme, OPM (P1) with split tasks, of some jobs and rates.

    ``jobs`` are active in at least one of the ``slots``, which end them, and ``blocks`` their rates
    [slots, M], slot after slot; prices [M] are positive, since the offers of a free machine have no
    ρ (ScenarioError). ``average`` asks for the objective of OPM (6) rather than the overall
    utility.

    Kept are the N jobs that can do work: where every machine stands still while a job is there, it
    is worth 0 whatever is planned, and is set aside. ``offers`` has every cell split between its
    ends; where cells are points, ``exact`` is true, and ``rho`` and ``real`` are the same.
    """

    offers: kernels.Offers

    def __init__(
        self,
        jobs: Sequence[problem.Job],
        prices: Floats,
        blocks: Iterable[Floats],
        slots: int,
        average: bool = False,
    ):
        if not (prices > 0).all():
            raise ScenarioError(
                f"machine {int(np.argmin(prices))} is free; offline comparators need prices above 0"
            )
        self.jobs, self.prices = tuple(jobs), np.ascontiguousarray(prices, dtype=np.float64)
        self._epochs(slots)
        self._offers(blocks)
        # A job does no more work than all offers of its epochs, nor than its budget buys at best.
        reach = np.zeros(len(jobs))
        most = (self.offers.money * self.offers.rho).sum(axis=1)
        np.add.at(reach, self.member, np.repeat(most, np.diff(self.start)))
        reach = self._set_aside(reach)
        self.worth = JobUtilities(self.jobs, average)
        self.budget = np.array([job.budget for job in self.jobs])
        self.cap = np.maximum(np.minimum(reach, self.budget * self.offers.rho.max()), 1e-300)

    def _epochs(self, slots: int) -> None:
        """Cut time where a job comes or goes; jobs of epoch e: member[start[e]:start[e + 1]]."""
        arrival = np.array([job.arrival for job in self.jobs], dtype=np.int64)
        deadline = np.array([job.deadline for job in self.jobs], dtype=np.int64).clip(max=slots)
        if not len(self.jobs) or (arrival >= deadline).any():
            raise ScenarioError("the offline programme needs jobs that are active in some slot")
        begins = np.unique(np.concatenate((arrival, deadline)))
        begin, end = np.searchsorted(begins, arrival), np.searchsorted(begins, deadline)
        E = begins.size - 1
        # Jobs active in each epoch: one more where a job begins, one less where it ends.
        counts = np.zeros(E + 1, dtype=np.int64)
        np.add.at(counts, begin, 1)
        np.add.at(counts, end, -1)
        self.start = np.concatenate(([0], np.cumsum(np.cumsum(counts)[:E])))
        self.member = np.empty(self.start[-1], dtype=np.int64)
        free = self.start[:-1].copy()
        for j in range(len(self.jobs)):
            # A view: adding 1 below moves on the next free place of each epoch of the job.
            places = free[begin[j] : end[j]]
            self.member[places] = j
            places += 1
        busy = np.diff(self.start) > 0
        # Slots in which no job is active have no epoch: their offers are worth nothing.
        of_slot = np.searchsorted(begins, np.arange(slots), side="right") - 1
        inside = (of_slot >= 0) & (of_slot < E)
        self.epoch = np.where(inside & busy[np.clip(of_slot, 0, E - 1)], of_slot, -1)

    def _set_aside(self, reach: Floats) -> Floats:
        """Leave out the jobs that can do no work; returns the most that the others can do."""
        works = reach > 0
        # Members are renumbered: rows of jobs without work go, and the offers that point at them.
        if not works.all():
            place = np.cumsum(works) - 1
            stays = works[self.member]
            self.start = np.concatenate(([0], np.cumsum(stays)))[self.start]
            self.member = place[self.member[stays]]
            self.offers = self.offers._replace(start=self.start, member=self.member)
            self.jobs = tuple(job for job, can in zip(self.jobs, works) if can)
        return reach[works]

    def _offers(self, blocks: Iterable[Floats]) -> None:
        E, at = self.start.size - 1, 0
        if self.epoch.size * self.prices.size <= SAMPLED_RATES:
            blocks = [np.concatenate(list(blocks))]
        nodes = np.zeros(0)
        for block in blocks:
            rates = np.ascontiguousarray(block, dtype=np.float64)
            if not nodes.size:
                whole = len(rates) >= self.epoch.size
                cells = int(np.clip(WORK // max(self.member.size, 1), *CELLS))
                # Cells are placed by the first block: where to cut changes how tight the bound is,
                # and never whether it holds.
                nodes = _nodes(rates, self.prices, whole, cells)
                money, work = (np.zeros((E, nodes.size - 1)) for _ in range(2))
            epoch = self.epoch[at : at + len(rates)]
            rates = rates[: epoch.size][epoch >= 0]
            # Cell g holds offers with nodes[g] ≤ ρ < nodes[g + 1], the last one those at its end.
            cell = np.searchsorted(nodes, rates / self.prices, side="right") - 1
            cell = cell.clip(max=nodes.size - 2) + epoch[epoch >= 0, None] * (nodes.size - 1)
            np.add.at(money.ravel(), cell, np.broadcast_to(self.prices, rates.shape))
            np.add.at(work.ravel(), cell, rates)
            at += len(block)
        mean = np.divide(work, money, out=np.zeros_like(work), where=money > 0)
        mean = np.clip(mean, nodes[:-1], nodes[1:])
        close = mean - nodes[:-1] <= 1e-13 * nodes[1:]  # as far as the rounding of sums moves it
        mean = np.where(close, nodes[:-1], mean)
        # Split each cell between its ends so that money and work stay: a mean-preserving spread.
        share = (mean - nodes[:-1]) / np.diff(nodes)
        ends, work = np.zeros((2, E, nodes.size))
        for state, part in ((0, 1.0 - share), (1, share)):
            ends[:, state : state + mean.shape[1]] += money * part
            work[:, state : state + mean.shape[1]] += money * part * mean
        # No cell is split where all its offers lie at one end.
        self.exact = not (money * share * (1.0 - share)).any()
        used = (ends > 0).any(axis=0)
        ends, spread = ends[:, used], np.tile(nodes[used], (E, 1))
        real = np.divide(work[:, used], ends, out=spread.copy(), where=ends > 0)
        self.offers = kernels.Offers(self.start, self.member, ends, spread, real)

    @cached_property
    def _arrays(self) -> kernels.Offers:
        """The offers as kernels want them, without gaps."""
        return kernels.Offers(*map(read_only, self.offers))

    def bound(self, w: Floats, lam: Floats) -> float:
        """Dual bound: no plan is worth more, whatever slopes ``w`` > 0 and multipliers ``lam`` ≥ 0.

        Σ_j f_j*(w_j) + λ·B + Σ_{e,g} W_eg max_j (w_j ρ_eg − λ_j)⁺, both [N].
        """
        offers = kernels.offers_hull(read_only(w), read_only(lam), self._arrays)
        return float(self.worth.conjugate(w, self.cap).sum() + lam @ self.budget + offers)

    def soft(
        self, w: Floats, lam: Floats, tau: float, real: bool = False
    ) -> tuple[float, Floats, Floats]:
        """Softened hull: last sum of the bound at temperature τ, money and work of each job [N].

        The work is that at the ends of the cells, or the ``real`` one.
        """
        offers, most = self._arrays, int(np.diff(self.start).max())
        out, chosen = np.zeros((2, len(self.jobs))), np.zeros(most, np.int64)
        part = np.zeros((most + 2, offers.money.shape[1]))
        offers = offers if real else offers._replace(real=offers.rho)
        arguments = read_only(w), read_only(lam), float(tau), offers
        return kernels.soft_offers_hull(*arguments, out, part, chosen), *out

    def attained(self, spent: Floats, done: Floats) -> tuple[float, Floats, Floats]:
        """Value, X and C of a plan after jobs that overspend are cut to their budgets."""
        # Scaled down as a whole, a plan stays feasible, for nothing but its use of offers shrinks.
        share = np.minimum(1.0, self.budget / np.maximum(spent, 1e-300))
        work = share * done
        return float(self.worth.value(work).sum()), work, share * spent


def _nodes(rates: Floats, prices: Floats, whole: bool, cells: int) -> Floats:
    """Ends of the cells: all different ρ if they are few, else quantiles."""
    step = 1 if whole else max(1, rates.size // SAMPLED_RATES)
    rho = np.sort((rates / prices).ravel()[::step])
    top = 1.0 / float(prices.min())
    points = np.unique(rho)
    if not ((whole and points.size <= POINTS) or points.size <= cells):
        points = rho[np.linspace(0, rho.size - 1, cells).astype(np.int64)]
    # The last cell is for offers of the largest ρ alone.
    return np.unique(np.concatenate(([0.0], points, [top, top * (1.0 + 1e-6)])))


SMALL = 30_000
"""Variables up to which tangents are tried."""
ROUNDS = 30
EXACT = 1e-6
TEMPERATURES = (0.03, 0.01, 0.005, 0.0025, 0.001)
"""τ, as shares of the median value of what a unit of money buys."""
STEPS, SCALINGS = 25, 4
"""Steps of the dual per temperature, and rounds that turn one of its points into a plan."""
LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class Optimum:
    """An answer to the offline programme: a plan, and a bound that no plan exceeds.

    ``work`` and ``cost`` [N] are X_j and C_j of the plan, ``slope`` and ``multiplier`` [N] the w
    and λ of the bound: anybody can check it with :meth:`Programme.bound`.
    """

    value: float
    bound: float
    work: Floats
    cost: Floats
    slope: Floats
    multiplier: Floats

    @property
    def gap(self) -> float:
        return max(self.bound - self.value, 0.0)


def optimise(programme: Programme, tolerance: float = 1e-6) -> Optimum:
    """Solve a programme, until the gap is at most ``tolerance``, relative to the value.

    Programmes that are small enough for tangents are solved to 1e-6 in any case.

    One job, a machine of rate 1 and price 1, a budget for 4 of its 9 slots:

    >>> from gangwise.papers.approximation_jobs.problem import Job
    >>> programme = Programme([Job(0, 0, 9, 4.0)], np.ones(1), [np.ones((9, 1))], 9)
    >>> answer = optimise(programme)
    >>> round(answer.value, 6), round(answer.bound, 6), answer.cost.round(6)
    (2.0, 2.0, array([4.]))
    """
    if not programme.jobs:
        none = np.zeros(0)
        return Optimum(0.0, 0.0, none, none, none, none)
    best: Optimum | None = None
    # Cutting planes are exact and slow; beyond this size the dual descent is within its certified
    # gap.
    if programme.exact and programme.member.size * programme.offers.money.shape[1] <= SMALL:
        best = _cutting_planes(programme, min(tolerance, EXACT))
    if best is None:
        best = _dual_descent(programme, tolerance)
    # A bound that is not finite certifies nothing, so the answer may not be used.
    if not (math.isfinite(best.value) and math.isfinite(best.bound)):
        raise ScenarioError(
            f"the offline programme of {len(programme.jobs)} jobs has no finite bound: utilities, "
            "budgets or rates differ by too many orders of magnitude"
        )
    return best


def _combined(best: Optimum | None, new: Optimum) -> Optimum:
    """Larger value and smaller bound of two answers; what is not finite never wins."""
    if best is None:
        return new
    # NaN compares as false with everything, so that the order of the two decides.
    if not math.isfinite(best.bound + best.value):
        best, new = new, best
    plan, dual = new if new.value > best.value else best, new if new.bound < best.bound else best
    return Optimum(plan.value, dual.bound, plan.work, plan.cost, dual.slope, dual.multiplier)


def _start(programme: Programme) -> tuple[Floats, Floats]:
    """Slopes and multipliers to begin with: as if each job spent its budget on a mean offer."""
    money, rho = programme.offers.money, programme.offers.rho
    mean = float((money * rho).sum() / money.sum())
    offered = np.zeros(len(programme.jobs))
    shares = np.repeat(
        money.sum(axis=1) / np.maximum(np.diff(programme.start), 1), np.diff(programme.start)
    )
    np.add.at(offered, programme.member, shares)
    work = np.maximum(np.minimum(programme.budget, offered) * mean, 1e-9 * programme.cap)
    w = programme.worth.slope(np.minimum(work, programme.cap))
    # Money has a price for those only that are offered more than they can pay.
    return np.clip(w, 1e-12 * w.max(), None), np.where(offered > programme.budget, w * mean, 0.0)


def _dual_descent(programme: Programme, tolerance: float, steps: int = STEPS) -> Optimum:
    """Dual descent in λ_j and bids b_j = w_j ρ − λ_j at the largest ρ, scaled by its curvature.

    Without scaling it takes several times as many steps: budgets differ by orders of magnitude.
    """
    w, lam = _start(programme)
    N, money, rho = w.size, programme.offers.money, programme.offers.rho
    mean, top = float((money * rho).sum() / money.sum()), float(rho.max())
    total = float(programme.worth.value(programme.cap).sum())
    best: Optimum | None = None

    def dual(x: Floats, unit: Floats, tau: float) -> tuple[float, Floats]:
        bid, lam = unit * x.reshape(2, N)
        w = np.maximum((bid + lam) / top, LEAST)
        hull, spent, worked = programme.soft(w, lam, tau)
        work = programme.worth.work_at_slope(w, programme.cap)
        f = float(programme.worth.conjugate(w, programme.cap).sum() + lam @ programme.budget + hull)
        # Danskin: the derivative of a maximum is that at the maximiser, f* by w is −X.
        # w = (bid + λ) / top: λ enters the hull through w as well as by itself, hence both sums.
        by_w = (worked - work) / top
        return f / total, (unit * (by_w, by_w + programme.budget - spent)).ravel() / total

    for tau in float(np.median(w)) * mean * np.array(TEMPERATURES):
        work = np.maximum(programme.worth.work_at_slope(w, programme.cap), 1e-9 * programme.cap)
        cost = np.minimum(programme.budget, work / mean)
        # Second derivatives of the softened dual, roughly; a step is 1 in units of their roots.
        curved = np.array(
            [cost / tau, 2.0 * work / (w * top**2) + cost * ((1.0 - mean / top) ** 2 + 0.02) / tau]
        )
        unit = np.sqrt(total / curved)
        minimum = minimize(
            dual,
            (np.array([w * top - lam, lam]) / unit).ravel(),
            args=(unit, tau),
            jac=True,
            method="L-BFGS-B",
            bounds=[(LEAST, None)] * N + [(0.0, None)] * N,
            options={"maxiter": steps, "maxcor": 10, "ftol": 1e-9, "gtol": 1e-12},
        )
        bid, lam = unit * minimum.x.reshape(2, N)
        w = np.maximum((bid + lam) / top, LEAST)
        for _ in range(SCALINGS):
            _, spent, worked = programme.soft(w, lam, tau, real=True)
            value, work, cost = programme.attained(spent, worked)
            best = _combined(best, Optimum(value, programme.bound(w, lam), work, cost, w, lam))
            if best.gap <= tolerance * abs(best.value):
                return best
            # Softened with entropy, the maximum hands money out in proportion to exp(z_j / τ),
            # z_j = w_j ρ − λ_j. A job that overspends s-fold spends its budget when λ_j grows by
            # τ ln s, as far as the others stay as they are: a few rounds, the scaling of a matrix
            # to given sums, turn a point of the dual into a plan that keeps nearly all its value.
            lam = np.maximum(lam + tau * np.log(np.maximum(spent / programme.budget, LEAST)), 0.0)
    assert best is not None
    return best


def _cutting_planes(programme: Programme, tolerance: float) -> Optimum | None:
    """Kelley's cutting planes: linear programmes with more and more tangents of the utilities.

    None where the solver solves none of them.
    """
    N, cap, worth = len(programme.jobs), programme.cap, programme.worth
    E, G = programme.offers.money.shape
    sizes = np.diff(programme.start)
    epoch = np.repeat(np.arange(E), sizes)
    # Variables: money [member, cell], then the utilities [N].
    member = np.repeat(programme.member, G)
    cell = (epoch[:, None] * G + np.arange(G)).ravel()
    n = member.size
    column = np.arange(n)
    rho = programme.offers.rho.ravel()[cell]
    money = csr_matrix((np.ones(n), (cell, column)), shape=(E * G, n + N))
    budget = csr_matrix((np.ones(n), (member, column)), shape=(N, n + N))
    work = csr_matrix((rho, (member, column)), shape=(N, n + N))
    unit = csr_matrix((np.ones(N), (np.arange(N), n + np.arange(N))), shape=(N, n + N))
    objective = np.concatenate((np.zeros(n), -np.ones(N)))
    fixed = np.concatenate((programme.offers.money.ravel(), programme.budget))
    # Row j of a cut: u_j ≤ f(X₀) + f'(X₀) (X_j − X₀), a tangent, which a concave f never exceeds.
    cuts = [np.full(N, share) * cap for share in (1e-4, 1e-2, 0.1, 0.3, 1.0)]
    best: Optimum | None = None
    for _ in range(ROUNDS):
        slopes = [worth.slope(at) for at in cuts]
        rows = [unit - work.multiply(s[:, None]).tocsr() for s in slopes]
        bounds = [worth.value(at) - s * at for at, s in zip(cuts, slopes)]
        answer = linprog(
            objective,
            vstack([money, budget, *rows]),
            np.concatenate([fixed, *bounds]),
            bounds=(0, None),
            method="highs",
        )
        if answer.status != 0:  # what the cuts so far have proved still holds
            break
        spent, worked = budget @ answer.x, work @ answer.x
        value, at, cost = programme.attained(spent, worked)
        # The multipliers of the rows are λ, and weights of the tangents whose slopes make up w.
        dual = -answer.ineqlin.marginals
        lam = np.maximum(dual[E * G : E * G + N], 0.0)
        weight = dual[E * G + N :].reshape(len(cuts), N)
        w = np.maximum((weight * np.array(slopes)).sum(axis=0), 1e-12 * slopes[0])
        best = _combined(best, Optimum(value, programme.bound(w, lam), at, cost, w, lam))
        if best.gap <= tolerance * abs(best.value):
            break
        cuts.append(np.maximum(worked, 1e-9 * cap))
    return best


Known = Literal["rates", "means"]


COMPARATORS = ("known_means", "known_rates")
"""Names; the strongest last."""
CLOSE = 0.005
"""The relative gap at which a comparator is close enough; it is certified and reported."""


def offline_optimum(
    instance: environment.ApproximationInstance,
    slots: int,
    seed: int,
    known: Known = "rates",
    average: bool = False,
    tolerance: float = 1e-6,
) -> Optimum:
    """The offline optimum of a run, of its rates or of their means OPM (7), with a certified gap.

    The run's jobs and rates are drawn again, the rates never all at once. ``known`` are the rates
    of every slot, or each machine's mean: ``means`` of the process if it has them, else the mean
    over the run. ``average`` asks for the objective of OPM (6), Σ (d - a) f(X / (d - a)), and not
    the overall utility Σ f(X); ``tolerance`` is that of :func:`optimise`. ScenarioError for free
    machines.

    >>> from gangwise.papers.approximation_jobs.environment import ApproximationInstance
    >>> from gangwise.papers.approximation_jobs.problem import ApproximationProblem, Job
    >>> from gangwise.papers.approximation_jobs.problem import IidRates
    >>> from gangwise.papers.approximation_jobs.problem import ReplayedJobs
    >>> jobs = ReplayedJobs([Job(0, 0, 10, budget=4.0)])
    >>> instance = ApproximationInstance(ApproximationProblem([1.0]), IidRates([1.0]), jobs)
    >>> round(offline_optimum(instance, slots=10, seed=0).bound, 6)
    2.0
    """
    if known not in get_args(Known):
        raise UnknownName("kind of knowledge", str(known), list(get_args(Known)))
    blocks = _known_rates(instance, slots, seed, known)
    jobs = instance.jobs_of(slots, seed)
    programme = Programme(jobs, instance.problem.prices, blocks, slots, average)
    return optimise(programme, tolerance)


def offline_comparator(
    instance: environment.ApproximationInstance,
    slots: int,
    seed: int,
    sample: int | None = None,
    known: Known = "rates",
) -> Comparator:
    """``known_rates`` or ``known_means`` on the slots of a run; ``sample`` is not needed."""
    best = offline_optimum(instance, slots, seed, known, tolerance=CLOSE)
    per_slot = np.full(slots, best.bound / slots)  # the bound, so that regret is not understated
    return Comparator(f"known_{known}", np.arange(slots), per_slot, best.gap)


def _known_rates(
    instance: environment.ApproximationInstance, slots: int, seed: int, known: Known
) -> Iterator[Floats]:
    """Rates that the comparator knows, BLOCK slots at a time: those of the run, or their means."""
    if known == "rates":
        yield from instance.rates_of(slots, seed)
        return
    # Rates without a mean of their own, as those of a record: what they were on average in this
    # run.
    means = getattr(instance.rates, "means", None)
    if means is None:
        means = sum(rates.sum(axis=0) for rates in instance.rates_of(slots, seed)) / slots
    for begin in range(0, slots, environment.BLOCK):
        rates = np.tile(np.asarray(means, np.float64), (min(environment.BLOCK, slots - begin), 1))
        yield instance.without_absent(rates, begin)


# What the theorems claim of the regret and the fit of whole runs. The theorems
# leave constants in O(·) open. Here O(A) reads A with the constant 1 in regrets, and the constant
# terms of the fits are left out; so a measured value is below its bound if their claim holds with
# these constants, and it is growth against T that decides whether the claim holds at all.


def claimed_regret(
    jobs: Sequence[problem.Job],
    machines: int,
    slots: int,
    lipschitz: float,
    optimum: float,
    delta: float = 0.1,
    epsilon: float = 0.0,
) -> float:
    """Claimed bound on the regret: OPS (24) for one job, OPM (101) for several alike in time.

    ``lipschitz`` is π, ``optimum`` OPT, the first sum of OPM (6), ``epsilon`` ε of Theorem 2, 0 in
    Corollary 1.
    """
    log = math.log(machines * slots / delta)  # γ of the theorems
    estimation = machines * lipschitz * math.sqrt(slots * log)
    if len(jobs) == 1:
        return estimation + 2.0 * lipschitz * log + epsilon * optimum
    return estimation + machines * len(jobs) * lipschitz * math.sqrt(slots) / 2.0


def claimed_fit(jobs: Sequence[problem.Job], machines: int, delta: float = 0.1) -> float:
    """Claimed bound on the fit: OPS (23) for a single job, OPM (74) for several.

    >>> round(claimed_fit([problem.Job(0, 0, 100, 400.0)], machines=10), 3)
    46.052
    """
    budgets = np.array([job.budget for job in jobs])
    estimation = math.log(1.0 / delta) * math.sqrt(float(budgets.sum()))
    if len(jobs) == 1:
        return estimation
    paces = np.array([job.pace for job in jobs])
    root = math.sqrt(len(jobs)) * machines
    return estimation + root * (machines + float(paces.max())) / float(paces.min())
