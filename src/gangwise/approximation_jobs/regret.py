"""Regret OPM (6) and fit OPM (8) of whole runs, what theorems claim, and what figures show.

The theorems leave constants in O(·) open. Here O(A) reads A with the constant 1 in regrets, and the
constant terms of the fits are left out; so a measured value is below its bound if their claim holds
with these constants, and it is growth against T that decides whether the claim holds at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.environment import ApproximationInstance
from gangwise.approximation_jobs.execution import Results
from gangwise.approximation_jobs.offline import Known, Optimum, offline_optimum
from gangwise.approximation_jobs.problem import Job
from gangwise.core.arrays import Floats
from gangwise.core.contracts import Policy
from gangwise.core.errors import ScenarioError
from gangwise.core.simulation import Run, simulate


def dynamic_regret(run: Run, known: Known = "means", optimum: Optimum | None = None) -> float:
    """Dynamic regret Reg_T, OPM (6), signed.

    The comparator's Σ (d - a) f(X / (d - a)) less the run's.

    The comparator's side is a certified upper bound, so the regret is not understated.

    Parameters
    ----------
    run : Run
        Of this family.
    known : {"means", "rates"}
        OPM (7) takes the means.
    optimum : Optimum, optional
        The ``offline_optimum(..., average=True)`` of the run, if it is at hand.
    """
    if optimum is None:
        optimum = offline_optimum(run.instance, run.slots, run.seed, known, average=True)  # type: ignore[arg-type]  # a run of this family has an instance of it
    return optimum.bound - float(run.metrics["average_utility"].sum())


def fit(results: Results) -> tuple[float, float]:
    """Fit_T, OPM (8), signed, and the sum of its positive parts, in units of price.

    In OPM (8) what one job leaves unspent makes up for what another overspends; in the second
    number it does not.

    Examples
    --------
    >>> from gangwise.approximation_jobs.execution import Results
    >>> results = Results()
    >>> results.add(Job("a", 0, 4, budget=8.0), cost=9.0, work=4.0)
    >>> results.add(Job("b", 0, 4, budget=8.0), cost=5.0, work=4.0)
    >>> fit(results)
    (-2.0, 1.0)
    """
    over = results["cost"] - results["budget"]
    return float(over.sum()), float(np.maximum(over, 0.0).sum())


def known_optimum(instance: ApproximationInstance, slots: int, seed: int) -> Optimum:
    """The comparator of OPM (6): OPM (P1) with the mean rates, and the objective per slot."""
    return offline_optimum(instance, slots, seed, "means", average=True)


@dataclass(frozen=True)
class Measured:
    """One run.

    Attributes
    ----------
    regret : float
        Reg_T, OPM (6), against the known means, OPM (7), signed, in units of utility.
    fit : float
        Fit_T, OPM (8), signed, in units of price.
    over : float
        Σ_j (C_j − B_j)⁺: in OPM (8) what one job leaves unspent makes up for what another
        overspends.
    """

    regret: float
    fit: float
    over: float


def measure(
    instance: ApproximationInstance,
    policy: Policy[Any, Any, Any],
    slots: int,
    seed: int,
    optimum: Optimum,
) -> Measured:
    """Run a policy over all of its jobs' lives, and hold it against the run's ``known_optimum``.

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario
    >>> instance = create_scenario("opm-theorem-v1:slots=300").instance(0)
    >>> best = known_optimum(instance, 300, 0)
    >>> run = measure(instance, create_policy("ops:alpha=0.05,mu=0.2,gamma=0.5"), 300, 0, best)
    >>> -0.1 < run.regret / best.value < 0.3
    True
    """
    run = simulate(instance, policy, slots, seed)
    fit, over = (float(run.metrics[name].sum()) for name in ("fit", "over"))
    return Measured(dynamic_regret(run, optimum=optimum), fit, over)


def claimed_regret(
    jobs: Sequence[Job],
    machines: int,
    slots: int,
    lipschitz: float,
    optimum: float,
    delta: float = 0.1,
    epsilon: float = 0.0,
) -> float:
    """Claimed bound on the regret: OPS (24) for one job, OPM (101) for several alike in time.

    Parameters
    ----------
    jobs : sequence of Job
    machines, slots : int
        M and T.
    lipschitz : float
        π.
    optimum : float
        OPT, the first sum of OPM (6).
    delta, epsilon : float
        δ; ε of Theorem 2, 0 in Corollary 1.
    """
    log = math.log(machines * slots / delta)
    first = machines * lipschitz * math.sqrt(slots * log)
    if len(jobs) == 1:
        return first + 2.0 * lipschitz * log + epsilon * optimum
    return first + machines * len(jobs) * lipschitz * math.sqrt(slots) / 2.0


def claimed_fit(jobs: Sequence[Job], machines: int, delta: float = 0.1) -> float:
    """Claimed bound on the fit: OPS (23) for a single job, OPM (74) for several.

    Examples
    --------
    >>> round(claimed_fit([Job(0, 0, 100, 400.0)], machines=10), 3)
    46.052
    """
    budgets = np.array([job.budget for job in jobs])
    first = math.log(1.0 / delta) * math.sqrt(float(budgets.sum()))
    if len(jobs) == 1:
        return first
    paces = np.array([job.pace for job in jobs])
    root = math.sqrt(len(jobs)) * machines
    return first + root * (machines + float(paces.max())) / float(paces.min())


def cdf(values: npt.ArrayLike) -> tuple[Floats, Floats]:
    """The distribution function of some values, for a step plot.

    Parameters
    ----------
    values : array of shape [n]
        NaN counts as infinitely large: it lowers the curve and is not drawn.

    Returns
    -------
    points : ndarray
        The different finite values, ascending.
    share : ndarray
        Share of all values that are at most so large.

    Raises
    ------
    ScenarioError
        Without any value.

    Examples
    --------
    >>> cdf([2.0, 1.0, 2.0, float("nan")])
    (array([1., 2.]), array([0.25, 0.75]))
    """
    array = np.asarray(values, dtype=np.float64).ravel()
    if not array.size:
        raise ScenarioError("there are no values to show the distribution of")
    points, counts = np.unique(array[np.isfinite(array)], return_counts=True)
    return points, np.cumsum(counts) / array.size


def share_at_most(values: npt.ArrayLike, threshold: float) -> float:
    """Share of the values that are at most a threshold; NaN never is.

    Examples
    --------
    >>> share_at_most([0.5, 0.9, 1.0, float("nan")], 0.9)
    0.5
    """
    array = np.asarray(values, dtype=np.float64).ravel()
    if not array.size:
        raise ScenarioError("there are no values to count")
    return float((array <= threshold).mean())


def cost_to_utility_cdf(cost: Floats, utility: Floats) -> tuple[Floats, Floats]:
    """OPM Fig. 1a: distribution of C_j / f_j(X_j) over the jobs that cost something.

    Parameters
    ----------
    cost, utility : ndarray of shape [n]
        Per job, in units of price and of utility. A job that cost something and earned nothing has
        an infinite ratio; one that cost nothing has none, and is left out.

    Examples
    --------
    >>> cost_to_utility_cdf(np.array([4.0, 0.0, 3.0]), np.array([2.0, 0.0, 0.0]))
    (array([2.]), array([0.5]))
    """
    played = cost > 0
    ratio = np.full(int(played.sum()), np.nan)
    np.divide(cost[played], utility[played], out=ratio, where=utility[played] > 0)
    return cdf(ratio)


def migrated_share(run: Run, swaps: bool = False) -> float:
    """Mean share of the machines, per slot, that a job still active lost its task on.

    The paper does not define a migration. With ``swaps`` only machines that another job got are
    counted; ``net_moves`` of the run's metrics counts tasks that found a machine elsewhere.
    """
    machines = run.instance.problem.M
    return float(run.metrics["swaps" if swaps else "displaced"].mean() / machines)
