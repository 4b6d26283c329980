"""Offline comparators of the gang family, both by :mod:`gangwise.gangs.milp`.

What an omniscient scheduler earns: it knows the mean utility of every channel, x*(t) of (7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.core.contracts import Comparator, evenly_spaced
from gangwise.core.errors import ScenarioError
from gangwise.gain_overhead.offline import optimum_of_each_slot
from gangwise.gangs.milp import ExactGangs, solve
from gangwise.gangs.placement import FastGangs
from gangwise.gangs.problem import GangProblem, GangSolution

if TYPE_CHECKING:
    from gangwise.core.simulation import Run
    from gangwise.gangs.environment import GangSpeedsInstance


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


def omniscient(
    instance: GangSpeedsInstance, slots: int, seed: int, sample: int | None = None
) -> tuple[Comparator, Comparator]:
    """The placement of the largest *mean* utility, for the arrivals of each slot.

    Slots with the same arrivals and means share one programme. Where a programme runs out of time,
    the total mean utility is proved to be within ``gap`` of the optimum.

    Parameters
    ----------
    instance : GangSpeedsInstance
    slots, seed : int
        The run that it is compared to.
    sample : int, optional
        Evaluate at most so many slots, evenly spaced; all of them when not given.

    Returns
    -------
    (Comparator, Comparator)
        ``omniscient``, whose rewards are Σ ñ ṽ (6); and ``omniscient_realised``, what the very same
        placements earned with the noise of the run.
    """
    arrivals, utilities = instance.history(slots, seed)
    at = evenly_spaced(slots, sample)
    problem = instance.problem
    exact, fast = ExactGangs(problem), FastGangs(problem, passes=4)
    known: dict[tuple[int, bytes], GangSolution] = {}
    mean, realised, gap = np.empty(at.size), np.empty(at.size), 0.0
    none = np.zeros(problem.E)
    for i, t in enumerate(at.tolist()):
        called = np.ascontiguousarray(arrivals[t] != 0, dtype=np.int64)
        key = (instance.speeds.regime(t), called.tobytes())
        if key not in known:
            means = instance.means(t)
            start = fast.linear(means, called)
            known[key] = exact.solve(means, none, called, instance.time_limit, start)
        answer = known[key]
        mean[i] = answer.value
        realised[i] = problem.count(answer.placement) @ utilities[t]
        gap += answer.gap
    return (
        Comparator("omniscient", at, mean, gap),
        Comparator("omniscient_realised", at, realised, gap),
    )


def pseudo_regret(run: Run, comparator: Comparator | None = None) -> Floats:
    """Cumulative Σ_t [ṽᵀ n*(t) − ṽᵀ n(t)], free of noise, at the comparator's slots; shape [n].

    Parameters
    ----------
    run : Run
        Of this family.
    comparator : Comparator, optional
        ``omniscient`` on the slots of the run, solved when not given.

    Raises
    ------
    ScenarioError
        For a run of another family.
    """
    if "mean_utility" not in run.metrics:
        raise ScenarioError(f"a run of the family {run.instance.family} has no mean utility")
    best = run.comparator("omniscient") if comparator is None else comparator
    return np.cumsum(best.rewards - run.metrics["mean_utility"][best.slots])
