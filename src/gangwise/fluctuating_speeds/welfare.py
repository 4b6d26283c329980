"""The preprint's form: utilities of jobs and of the cluster, and payments between them.

Payments π_l enter the utility of a job and that of the cluster under the same condition, and cancel
in the social welfare Σ x (Z − Σ_k f_k): no payment rule can change the schedule. So they are a
matter of reporting.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem

__all__ = ["Welfare", "welfare"]

Floats = npt.NDArray[np.float64]


class Welfare(NamedTuple):
    """Who gained what in one slot, in units of utility before normalisation."""

    jobs: Floats
    cluster: float
    social: float


def welfare(
    problem: FluctuatingSpeedsProblem,
    decision: npt.ArrayLike,
    utilities: Floats,
    payments: Floats,
) -> Welfare:
    """U_l, U_c and social welfare of a decision.

    Parameters
    ----------
    decision : array of shape [E]
    utilities : ndarray of shape [E]
        Z(t), before cost and normalisation.
    payments : ndarray of shape [L]
        π_l(t), what a job pays if it is served at all.

    Returns
    -------
    Welfare
        ``jobs`` [L] is Σ_r x Z − 𝟙{served} π_l; ``cluster`` is Σ_l 𝟙{served} π_l − Σ x Σ_k f_k;
        ``social`` is their sum.
    """
    x = np.asarray(decision, dtype=np.float64)
    payments = np.asarray(payments, dtype=np.float64)
    if payments.shape != (problem.L,) or not np.isfinite(payments).all():
        raise ScenarioError(f"payments must be {problem.L} finite numbers; got {payments}")
    job_type = problem.channels.job_type
    served = np.bincount(job_type, x, minlength=problem.L) >= 1
    paid = np.where(served, payments, 0.0)
    jobs: Floats = np.asarray(
        np.bincount(job_type, x * utilities, minlength=problem.L) - paid, dtype=np.float64
    )
    cluster = float(paid.sum() - (x * problem.cost).sum())
    return Welfare(jobs, cluster, float(jobs.sum()) + cluster)
