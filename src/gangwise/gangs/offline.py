"""Offline comparators of gangs: best fixed placement, optimum of every slot, omniscient policy.

All solve the exact programme of :mod:`gangwise.gangs.milp`; what it could not prove in its time is
in the comparator's gap.
"""

from __future__ import annotations

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.core.contracts import Comparator, evenly_spaced
from gangwise.fluctuating_speeds import offline as speeds
from gangwise.fluctuating_speeds.offline import Best, play_the_means
from gangwise.gain_overhead.offline import in_run, optimum_of_each_slot
from gangwise.gangs.environment import GangSpeedsInstance
from gangwise.gangs.milp import ExactGangs, solve
from gangwise.gangs.placement import FastGangs
from gangwise.gangs.problem import GangProblem


def best_fixed(
    problem: GangProblem, arrivals: Ints, sample: int | None = None, time_limit: float = 60.0
) -> Comparator:
    """Best fixed placement, the gang form of y* of OGASched (6), with room held for all job types.

    Its reward in a slot counts the job types that arrived, so Σ_t q(x(t), z) = Σ_l n_l q_l(1, z)
    and one programme answers for all slots of ``arrivals`` x [T, L]: ``sample`` is not needed. What
    is not proved in ``time_limit`` seconds is in the comparator's ``gap``.
    """
    solution = solve(problem, arrivals.sum(axis=0), time_limit)
    gain, overhead = problem.by_job_type(solution.placement)
    slots = np.arange(len(arrivals))
    return Comparator("best_fixed", slots, arrivals @ (gain - overhead), solution.gap)


def per_slot_optimum(
    problem: GangProblem, arrivals: Ints, sample: int | None = None, time_limit: float = 60.0
) -> Comparator:
    """Per-slot optimum: the best placement for the arrivals of each slot; no policy can earn more.

    At most ``sample`` slots of ``arrivals`` x [T, L], evenly spaced, are evaluated; all of them if
    not given. Slots with the same arrivals share one programme, which has ``time_limit`` seconds;
    ``rewards + gap`` bounds the optimum from above where one ran out of time.
    """
    return optimum_of_each_slot(
        arrivals, sample, lambda pattern: solve(problem, pattern, time_limit)
    )


best_fixed_in_run, per_slot_optimum_in_run = in_run(best_fixed), in_run(per_slot_optimum)


def omniscient(
    instance: GangSpeedsInstance, slots: int, seed: int, sample: int | None = None
) -> tuple[Comparator, Comparator]:
    """Omniscient policy, the gang form of x*(t) of ESDP (7): the placement of largest mean utility.

    ``omniscient`` has the rewards Σ n ṽ − Σ d, ESDP (6), and ``omniscient_realised`` what the very
    same placements earned with the noise of the run, on the ``slots`` of the run with this ``seed``
    or on at most ``sample`` of them, evenly spaced. Where a programme runs out of time, the total
    mean utility is proved to be within ``gap`` of the optimum.
    """
    problem = instance.problem
    exact, fast = ExactGangs(problem), FastGangs(problem, passes=4)
    none = np.zeros(problem.E)

    def best(means: Floats, called: Ints) -> Best:
        start = fast.linear(means, called)
        answer = exact.solve(means, none, called, instance.time_limit, start)
        placement = answer.placement
        paid = problem.paid(placement)
        return Best(problem.count(placement), answer.value, answer.gap, paid)

    return play_the_means(instance, slots, seed, lambda keys: evenly_spaced(slots, sample), best)


omniscient_in_run = speeds.in_run(omniscient)
