r"""Regret (6) and fit (8) of whole runs, beside what Theorems 2 and 3 and Corollary 1 claim.

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

from gangwise.approximation_jobs.environment import ApproximationInstance
from gangwise.approximation_jobs.offline import dynamic_regret, offline_optimum
from gangwise.approximation_jobs.optimum import Optimum
from gangwise.approximation_jobs.problem import Job
from gangwise.core.policy import Policy
from gangwise.core.simulation import simulate

__all__ = ["Measured", "claimed_fit", "claimed_regret", "known_optimum", "measure"]


@dataclass(frozen=True)
class Measured:
    """One run.

    Attributes
    ----------
    regret : float
        Reg_T of (6) against the known means (7), signed, in units of utility.
    fit : float
        Fit_T of (8), signed, in units of price.
    over : float
        Σ_j (C_j − B_j)⁺: in (8) what one job leaves unspent makes up for what another overspends.
    """

    regret: float
    fit: float
    over: float


def known_optimum(instance: ApproximationInstance, slots: int, seed: int) -> Optimum:
    """The comparator of (6): P1 with the mean rates, and the objective per slot."""
    return offline_optimum(instance, slots, seed, "means", average=True)


def measure(
    instance: ApproximationInstance, policy: Policy[Any, Any, Any], slots: int, seed: int,
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
    jobs: Sequence[Job], machines: int, slots: int, lipschitz: float, optimum: float,
    delta: float = 0.1, epsilon: float = 0.0,
) -> float:
    """(24) for a single job, (101) for several that share arrival and deadline.

    Parameters
    ----------
    jobs : sequence of Job
    machines, slots : int
        M and T.
    lipschitz : float
        π.
    optimum : float
        OPT, the first sum of (6).
    delta, epsilon : float
        δ; ε of Theorem 2, 0 in Corollary 1.
    """
    log = math.log(machines * slots / delta)
    first = machines * lipschitz * math.sqrt(slots * log)
    if len(jobs) == 1:
        return first + 2.0 * lipschitz * log + epsilon * optimum
    return first + machines * len(jobs) * lipschitz * math.sqrt(slots) / 2.0


def claimed_fit(jobs: Sequence[Job], machines: int, delta: float = 0.1) -> float:
    """(23) for a single job, (74) for several.

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
