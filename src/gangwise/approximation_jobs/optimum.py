r"""Solving the offline programme, with a certificate.

Slopes w and multipliers λ, whatever they are, give an upper bound (:meth:`Programme.bound`), and
any plan a lower one. Small exact programmes go to a linear solver with tangents of the utilities,
until the two meet; the others follow the gradient of the dual, its max softened less and less.
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


def optimise(programme: Programme, tolerance: float = 1e-6, iterations: int = 40) -> Optimum:
    """Solve a programme.

    Parameters
    ----------
    tolerance : float
        Stop when the gap is at most this, relative to the value.
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
    if programme.exact and programme.member.size * programme.upper.money.shape[1] <= SMALL:
        return _tangents(programme, tolerance)
    return _descend(programme, tolerance, iterations)


def _better(best: Optimum | None, new: Optimum) -> Optimum:
    """The larger value and the smaller bound of two answers."""
    if best is None:
        return new
    plan, dual = new if new.value > best.value else best, new if new.bound < best.bound else best
    return Optimum(plan.value, dual.bound, plan.work, plan.cost, dual.slope, dual.multiplier)


def _start(programme: Programme) -> tuple[Floats, Floats]:
    """Slopes and multipliers to begin with: as if each job spent its budget on a mean offer."""
    money, rho = programme.upper.money, programme.upper.rho
    mean = float((money * rho).sum() / money.sum())
    offered = np.zeros(len(programme.jobs))
    each = np.repeat(money.sum(axis=1) / np.maximum(np.diff(programme.start), 1),
                     np.diff(programme.start))  # fmt: skip
    np.add.at(offered, programme.member, each)
    work = np.maximum(np.minimum(programme.budget, offered) * mean, 1e-9 * programme.cap)
    w = programme.worth.slope(np.minimum(work, programme.cap))
    return np.clip(w, 1e-12 * w.max(), None), np.where(offered > programme.budget, w * mean, 0.0)


def _descend(programme: Programme, tolerance: float, iterations: int) -> Optimum:
    from scipy.optimize import minimize

    w, lam = _start(programme)
    N, unit = w.size, w.copy()
    money, rho = programme.upper.money, programme.upper.rho
    typical = float((money * rho).sum() / money.sum())
    scale = unit * typical
    total = float(programme.worth.value(programme.cap).sum())
    point = np.concatenate((np.zeros(N), lam / scale))  # log of w / unit, λ / scale
    best: Optimum | None = None

    def dual(x: Floats, tau: float) -> tuple[float, Floats]:
        w, lam = unit * np.exp(x[:N]), scale * x[N:]
        hull, spent, done = programme.soft(w, lam, tau, programme.upper)
        work = programme.worth.best(w, programme.cap)
        f = float(programme.worth.conjugate(w, programme.cap).sum() + lam @ programme.budget + hull)
        slope = np.concatenate(((done - work) * w, (programme.budget - spent) * scale))
        return f / total, slope / total

    bounds = [(-12.0, 12.0)] * N + [(0.0, None)] * N
    for tau in float(np.median(scale)) * np.array([0.1, 0.03, 0.01, 0.003]):
        found = minimize(
            dual, point, args=(tau,), jac=True, method="L-BFGS-B", bounds=bounds,
            options={"maxiter": iterations, "maxcor": 20, "ftol": 1e-9, "gtol": 1e-12},
        )  # fmt: skip
        point = found.x
        w, lam = unit * np.exp(point[:N]), scale * point[N:]
        _, spent, done = programme.soft(w, lam, tau, programme.lower)
        value, work, cost = programme.attained(spent, done)
        best = _better(best, Optimum(value, programme.bound(w, lam), work, cost, w, lam))
        if best.gap <= tolerance * abs(best.value):
            break
    assert best is not None
    return best


def _tangents(programme: Programme, tolerance: float) -> Optimum:
    """Linear programmes with more and more tangents of the utilities (Kelley's method)."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix, vstack

    N, cap, worth = len(programme.jobs), programme.cap, programme.worth
    E, G = programme.upper.money.shape
    sizes = np.diff(programme.start)
    epoch = np.repeat(np.arange(E), sizes)
    # Variables: money [member, cell], then the utilities [N].
    member = np.repeat(programme.member, G)
    cell = (epoch[:, None] * G + np.arange(G)).ravel()
    n = member.size
    column = np.arange(n)
    rho = programme.upper.rho.ravel()[cell]
    money = csr_matrix((np.ones(n), (cell, column)), shape=(E * G, n + N))
    budget = csr_matrix((np.ones(n), (member, column)), shape=(N, n + N))
    work = csr_matrix((rho, (member, column)), shape=(N, n + N))
    unit = csr_matrix((np.ones(N), (np.arange(N), n + np.arange(N))), shape=(N, n + N))
    objective = np.concatenate((np.zeros(n), -np.ones(N)))
    fixed = np.concatenate((programme.upper.money.ravel(), programme.budget))
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
