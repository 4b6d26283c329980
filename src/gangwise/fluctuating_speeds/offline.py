"""What someone who knows the means would have earned on the very same slots.

``omniscient`` plays x*(t) of (7), the best choice for the true ṽ(t) over the job types that
arrived, and is credited its mean utility ṽ(t)·x*(t). Regret against it compares realised rewards
with means: right on average, but with all of the noise. ``omniscient_realised`` is the same
decisions credited with what they would have brought in these very slots; policies met the same
noise, so that it cancels wherever both use the same channel. It is the one to quote in tables of
realised rewards; where not even that noise is wanted, :func:`pseudo_regret` compares means with
means.

The preprint's form: utilities of jobs and of the cluster, and payments between them.

Payments π_l enter the utility of a job and that of the cluster under the same condition, and cancel
in the social welfare Σ x (Z − Σ_k f_k): no payment rule can change the schedule. So they are a
matter of reporting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Floats
from gangwise.core.contracts import Comparator, evenly_spaced
from gangwise.core.errors import ScenarioError
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem
from gangwise.fluctuating_speeds.solvers import P3Solver

if TYPE_CHECKING:
    from gangwise.core.simulation import Run
    from gangwise.fluctuating_speeds.environment import FluctuatingSpeedsInstance


PROGRAMMES_PER_SAMPLE = 50
"""One programme takes well under a millisecond at the usual sizes, some fifty times less than in
other families; so that many more are solved before slots are sampled."""


def omniscient(
    instance: FluctuatingSpeedsInstance, slots: int, seed: int, sample: int | None = None
) -> tuple[Comparator, Comparator]:
    """Evaluate x*(t) on the slots of the run with this seed.

    Slots that have the same arrivals and the same means share one programme, so a stationary
    instance with few job types needs few. Each is solved by branch and bound; where that stops
    early, ``gap`` says how much better the true optimum can be at most, over all slots.

    Parameters
    ----------
    sample : int, optional
        Where more than ``50 * sample`` programmes would be needed, evaluate that many evenly spaced
        slots only.

    Returns
    -------
    (omniscient, omniscient_realised)
    """
    problem = instance.problem
    arrivals, utilities = instance.history(slots, seed)
    chosen = np.arange(slots)
    regimes = np.array([instance.speeds.regime(t) for t in range(slots)], dtype=np.int64)
    keys = np.column_stack([regimes, (arrivals != 0).astype(np.int64)])
    if sample is not None and len(np.unique(keys, axis=0)) > PROGRAMMES_PER_SAMPLE * sample:
        chosen = evenly_spaced(slots, PROGRAMMES_PER_SAMPLE * sample)
    solver = P3Solver(problem.requests, problem.cluster.capacity)
    nothing = np.zeros(problem.E)
    solved: dict[bytes, tuple[npt.NDArray[np.bool_], float, float]] = {}
    mean, realised, gap = np.zeros(chosen.size), np.zeros(chosen.size), 0.0
    for i, t in enumerate(chosen):
        key = keys[t].tobytes()
        if key not in solved:
            v = instance.means(int(t))
            answer = solver.solve(v, nothing, available=problem.available(arrivals[t]))
            value = float(v[answer.x].sum())
            solved[key] = (answer.x.copy(), value, max(0.0, float(answer.bound) - value))
        x, mean[i], missing = solved[key]
        realised[i] = utilities[t][x].sum()
        gap += missing
    return (
        Comparator("omniscient", chosen, mean, gap),
        Comparator("omniscient_realised", chosen, realised, gap),
    )


def pseudo_regret(run: Run, sample: int | None = None) -> npt.NDArray[np.float64]:
    """Cumulative Δ(x(t)) of (6): means of x*(t) less means of what was played, shape [n].

    It never falls below zero beyond the comparator's gap, and has no noise but the policy's own.

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario, simulate
    >>> instance = create_scenario("esdp-default-v1:servers=10").instance(seed=0)
    >>> curve = pseudo_regret(simulate(instance, create_policy("random-channels"), 50, seed=0))
    >>> bool((np.diff(curve) >= -1e-9).all())
    True
    """
    versus = run.comparator("omniscient", sample)
    return np.cumsum(versus.rewards - run.metrics["mean_utility"][versus.slots])


class Welfare(NamedTuple):
    """Who gained what in one slot, in units of utility before normalisation."""

    jobs: Floats
    cluster: float
    social: float


def welfare(
    problem: FluctuatingSpeedsProblem, decision: npt.ArrayLike, utilities: Floats, payments: Floats
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
