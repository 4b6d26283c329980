"""Offline comparators of the gang family, both by :mod:`gangwise.gain_overhead.gang.exact`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gangwise.core.environment import Comparator
from gangwise.gain_overhead.gang.exact import solve
from gangwise.gain_overhead.gang.problem import GangProblem
from gangwise.gain_overhead.offline import optimum_of_each_slot

__all__ = ["best_fixed", "per_slot_optimum"]

Ints = npt.NDArray[np.int64]


def best_fixed(
    problem: GangProblem, arrivals: Ints, sample: int | None = None, time_limit: float = 60.0
) -> Comparator:
    """The best placement that is held fixed over all slots, with room reserved for all job types.

    Its reward in a slot counts the job types that arrived, so Σ_t q(x(t), z) = Σ_l n_l q_l(1, z)
    and one programme answers for all slots.

    Parameters
    ----------
    arrivals : ndarray of int64, shape [T, L]
        x(t).
    sample : int, optional
        Not needed: all slots cost the same.
    time_limit : float
        Seconds; what is not proved by then is in the comparator's ``gap``.
    """
    solution = solve(problem, arrivals.sum(axis=0), time_limit)
    gain, overhead = problem.by_job_type(solution.placement)
    slots = np.arange(len(arrivals))
    return Comparator("best_fixed", slots, arrivals @ (gain - overhead), solution.gap)


def per_slot_optimum(
    problem: GangProblem, arrivals: Ints, sample: int | None = None, time_limit: float = 60.0
) -> Comparator:
    """The best placement for the arrivals of each slot; no policy can earn more.

    Slots with the same arrivals share one programme. ``rewards + gap`` bounds the optimum from
    above where a programme ran out of time.

    Parameters
    ----------
    arrivals : ndarray of int64, shape [T, L]
        x(t).
    sample : int, optional
        Evaluate at most so many slots, evenly spaced; all of them when not given.
    time_limit : float
        Seconds for each different pattern of arrivals.
    """
    return optimum_of_each_slot(
        arrivals, sample, lambda pattern: solve(problem, pattern, time_limit)
    )
