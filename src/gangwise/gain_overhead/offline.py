"""Offline comparators: the best fixed decision in hindsight and the optimum of every slot.

Both are one concave programme (see :mod:`.interior_point`) with weights n_l: the number of slots in
which job type l arrived for the best fixed decision, since the rewards of a fixed decision add up,
or x_l(t) for one slot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gangwise.core.environment import Comparator, evenly_spaced
from gangwise.gain_overhead.interior_point import reward_by_job_type, solve
from gangwise.gain_overhead.problem import GainOverheadProblem
from gangwise.gain_overhead.steps import diameter, gradient_bound

__all__ = ["best_fixed", "optimum_of_each_slot", "per_slot_optimum", "regret_bound"]

Ints = npt.NDArray[np.int64]


class _Solved(Protocol):
    @property
    def value(self) -> float: ...

    @property
    def gap(self) -> float: ...


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
    return optimum_of_each_slot(arrivals, sample, lambda pattern: solve(problem, pattern))


def optimum_of_each_slot(
    arrivals: Ints, sample: int | None, solve: Callable[[Ints], _Solved]
) -> Comparator:
    """``per_slot_optimum`` of any problem whose slots do not hang together.

    Parameters
    ----------
    arrivals : ndarray of int64, shape [T, L]
    sample : int or None
        Evaluate at most so many slots, evenly spaced.
    solve : callable
        The optimum for the arrivals of a slot, shape [L]; called once for each different pattern.
    """
    slots = evenly_spaced(len(arrivals), sample)
    patterns, which = np.unique(arrivals[slots], axis=0, return_inverse=True)
    solutions = [solve(pattern) for pattern in patterns]
    which = which.ravel()
    rewards = np.array([solution.value for solution in solutions])[which]
    gaps = np.array([solution.gap for solution in solutions])[which]
    return Comparator("per_slot_optimum", slots, rewards, float(gaps.sum()))


def regret_bound(problem: GainOverheadProblem, slots: int) -> float:
    """The bound (14) on the regret of the reserve mode with the step (26) over ``slots`` slots."""
    return diameter(problem, as_printed=True) * gradient_bound(problem) * float(np.sqrt(slots))
