"""Offline comparators: the best fixed decision in hindsight and the optimum of every slot.

Both are one concave programme (see :mod:`.interior_point`) with weights n_l: the number of slots in
which job type l arrived for the best fixed decision, since the rewards of a fixed decision add up,
or x_l(t) for one slot.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gangwise.core.environment import Comparator
from gangwise.gain_overhead.interior_point import reward_by_job_type, solve
from gangwise.gain_overhead.problem import GainOverheadProblem
from gangwise.gain_overhead.steps import diameter, gradient_bound

__all__ = ["best_fixed", "per_slot_optimum", "regret_bound"]

Ints = npt.NDArray[np.int64]


def best_fixed(
    problem: GainOverheadProblem, arrivals: Ints, sample: int | None = None
) -> Comparator:
    """The best decision that is held fixed over all slots: y* of (6).

    Parameters
    ----------
    arrivals : ndarray of int64, shape [T, L]
        x(t).
    sample : int, optional
        Not needed: one programme answers for all slots, since Σ_t q(x(t), y) = Σ_l n_l q_l(1, y).

    Returns
    -------
    Comparator
        With the regret bound (14) in its ``bounds``.
    """
    solution = solve(problem, arrivals.sum(axis=0))
    each = reward_by_job_type(problem, solution.decision)
    slots = np.arange(len(arrivals))
    bounds = {"theorem-1": regret_bound(problem, len(arrivals))}
    return Comparator("best_fixed", slots, arrivals @ each, solution.gap, bounds)


def per_slot_optimum(
    problem: GainOverheadProblem, arrivals: Ints, sample: int | None = None
) -> Comparator:
    """The best decision for the arrivals of each slot.

    Jobs last one slot, so the slots do not hang together and no policy of either timing can earn
    more. Slots with the same arrivals share one programme.

    Parameters
    ----------
    sample : int, optional
        Evaluate at most so many slots, evenly spaced; all of them when not given.
    """
    T = len(arrivals)
    slots = np.arange(T)
    if sample is not None and sample < T:
        slots = np.unique(np.linspace(0, T - 1, sample).round().astype(np.int64))
    patterns, which = np.unique(arrivals[slots], axis=0, return_inverse=True)
    solutions = [solve(problem, pattern) for pattern in patterns]
    which = which.ravel()
    rewards = np.array([solution.value for solution in solutions])[which]
    gaps = np.array([solution.gap for solution in solutions])[which]
    return Comparator("per_slot_optimum", slots, rewards, float(gaps.sum()))


def regret_bound(problem: GainOverheadProblem, slots: int) -> float:
    """The bound (14) on the regret of the reserve mode with the step (26) over ``slots`` slots."""
    return diameter(problem, as_printed=True) * gradient_bound(problem) * float(np.sqrt(slots))
