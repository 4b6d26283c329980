r"""Solving the offline programme, with a certificate.

Slopes w and multipliers λ, whatever they are, give an upper bound (:meth:`Programme.bound`), and
any plan a lower one. Small exact programmes go to a linear solver with tangents of the utilities,
until the two meet; the others follow the gradient of the dual, its max softened less and less.

Softened with entropy, the maximum hands money out in proportion to exp(z_j / τ), z_j = w_j ρ − λ_j.
So a job that overspends s-fold spends its budget when λ_j grows by τ ln s, as far as the others
stay as they are: a few rounds of that, the scaling of a matrix to given sums, turn a point of the
dual into a plan that keeps nearly all of its value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.programme import Programme

__all__ = ["Optimum", "optimise"]

Floats = npt.NDArray[np.float64]

SMALL = 30_000
"""Variables up to which tangents are tried."""
ROUNDS = 30
EXACT = 1e-6
TEMPERATURES = (0.03, 0.01, 0.005, 0.0025, 0.001)
"""τ, as shares of the median value of what a unit of money buys."""
SCALINGS = 4
LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class Optimum:
    """An answer to the offline programme.

    Attributes
    ----------
    value : float
        What the plan found is worth.
    bound : float
        No plan is worth more.
    work, cost : ndarray of shape [N]
        X_j and C_j of the plan.
    slope, multiplier : ndarray of shape [N]
        w and λ of the bound: anybody can check it with :meth:`Programme.bound`.
    """

    value: float
    bound: float
    work: Floats
    cost: Floats
    slope: Floats
    multiplier: Floats

    @property
    def gap(self) -> float:
        """What the plan may fall short of the optimum, at most."""
        return max(self.bound - self.value, 0.0)


def optimise(programme: Programme, tolerance: float = 1e-6, iterations: int = 25) -> Optimum:
    """Solve a programme.

    Parameters
    ----------
    tolerance : float
        Stop when the gap is at most this, relative to the value. Programmes that are small enough
        for tangents are solved to 1e-6 in any case.
    iterations : int
        Steps of the dual per temperature, where the programme is too large for tangents.

    Examples
    --------
    One job, a machine of rate 1 and price 1, a budget for 4 of its 9 slots:

    >>> from gangwise.approximation_jobs.problem import Job
    >>> programme = Programme([Job(0, 0, 9, 4.0)], np.ones(1), [np.ones((9, 1))], 9)
    >>> answer = optimise(programme)
    >>> round(answer.value, 6), round(answer.bound, 6), answer.cost.round(6)
    (2.0, 2.0, array([4.]))
    """
    if programme.exact and programme.member.size * programme.offers.money.shape[1] <= SMALL:
        return _tangents(programme, min(tolerance, EXACT))
    return _descend(programme, tolerance, iterations)


def _better(best: Optimum | None, new: Optimum) -> Optimum:
    """The larger value and the smaller bound of two answers."""
    if best is None:
        return new
    plan, dual = new if new.value > best.value else best, new if new.bound < best.bound else best
    return Optimum(plan.value, dual.bound, plan.work, plan.cost, dual.slope, dual.multiplier)


def _start(programme: Programme) -> tuple[Floats, Floats]:
    """Slopes and multipliers to begin with: as if each job spent its budget on a mean offer."""
    money, rho = programme.offers.money, programme.offers.rho
    mean = float((money * rho).sum() / money.sum())
    offered = np.zeros(len(programme.jobs))
    each = np.repeat(money.sum(axis=1) / np.maximum(np.diff(programme.start), 1),
                     np.diff(programme.start))  # fmt: skip
    np.add.at(offered, programme.member, each)
    work = np.maximum(np.minimum(programme.budget, offered) * mean, 1e-9 * programme.cap)
    w = programme.worth.slope(np.minimum(work, programme.cap))
    return np.clip(w, 1e-12 * w.max(), None), np.where(offered > programme.budget, w * mean, 0.0)


def _descend(programme: Programme, tolerance: float, iterations: int) -> Optimum:
    """The dual in λ_j and bids b_j = w_j ρ − λ_j at the largest ρ, scaled by its curvature.

    Without scaling it takes several times as many steps: budgets differ by orders of magnitude.
    """
    from scipy.optimize import minimize

    w, lam = _start(programme)
    N, money, rho = w.size, programme.offers.money, programme.offers.rho
    mean, top = float((money * rho).sum() / money.sum()), float(rho.max())
    total = float(programme.worth.value(programme.cap).sum())
    best: Optimum | None = None

    def dual(x: Floats, unit: Floats, tau: float) -> tuple[float, Floats]:
        bid, lam = unit * x.reshape(2, N)
        w = np.maximum((bid + lam) / top, LEAST)
        hull, spent, done = programme.soft(w, lam, tau)
        work = programme.worth.best(w, programme.cap)
        f = float(programme.worth.conjugate(w, programme.cap).sum() + lam @ programme.budget + hull)
        by_w = (done - work) / top
        return f / total, (unit * (by_w, by_w + programme.budget - spent)).ravel() / total

    for tau in float(np.median(w)) * mean * np.array(TEMPERATURES):
        work = np.maximum(programme.worth.best(w, programme.cap), 1e-9 * programme.cap)
        cost = np.minimum(programme.budget, work / mean)
        curved = np.array([
            cost / tau, 2.0 * work / (w * top**2) + cost * ((1.0 - mean / top) ** 2 + 0.02) / tau,
        ])  # fmt: skip
        unit = np.sqrt(total / curved)
        found = minimize(
            dual, (np.array([w * top - lam, lam]) / unit).ravel(), args=(unit, tau), jac=True,
            method="L-BFGS-B", bounds=[(LEAST, None)] * N + [(0.0, None)] * N,
            options={"maxiter": iterations, "maxcor": 10, "ftol": 1e-9, "gtol": 1e-12},
        )  # fmt: skip
        bid, lam = unit * found.x.reshape(2, N)
        w = np.maximum((bid + lam) / top, LEAST)
        for _ in range(SCALINGS):
            _, spent, done = programme.soft(w, lam, tau, real=True)
            value, work, cost = programme.attained(spent, done)
            best = _better(best, Optimum(value, programme.bound(w, lam), work, cost, w, lam))
            if best.gap <= tolerance * abs(best.value):
                return best
            lam = np.maximum(lam + tau * np.log(np.maximum(spent / programme.budget, LEAST)), 0.0)
    assert best is not None
    return best


def _tangents(programme: Programme, tolerance: float) -> Optimum:
    """Linear programmes with more and more tangents of the utilities (Kelley's method)."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix, vstack

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
    cuts = [np.full(N, share) * cap for share in (1e-4, 1e-2, 0.1, 0.3, 1.0)]
    best: Optimum | None = None
    for _ in range(ROUNDS):
        slopes = [worth.slope(at) for at in cuts]
        rows = [unit - work.multiply(s[:, None]).tocsr() for s in slopes]
        right = [worth.value(at) - s * at for at, s in zip(cuts, slopes)]
        answer = linprog(
            objective, vstack([money, budget, *rows]), np.concatenate([fixed, *right]),
            bounds=(0, None), method="highs",
        )  # fmt: skip
        spent, done = budget @ answer.x, work @ answer.x
        value, at, cost = programme.attained(spent, done)
        dual = -answer.ineqlin.marginals
        lam = np.maximum(dual[E * G : E * G + N], 0.0)
        weight = dual[E * G + N :].reshape(len(cuts), N)
        w = np.maximum((weight * np.array(slopes)).sum(axis=0), 1e-12 * slopes[0])
        best = _better(best, Optimum(value, programme.bound(w, lam), at, cost, w, lam))
        if best.gap <= tolerance * abs(best.value):
            break
        cuts.append(np.maximum(done, 1e-9 * cap))
    assert best is not None
    return best
