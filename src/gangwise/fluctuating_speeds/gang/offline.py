"""What an omniscient scheduler earns: it knows the mean utility of every channel, x*(t) of (7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gangwise.core.environment import Comparator, evenly_spaced
from gangwise.core.errors import ScenarioError
from gangwise.fluctuating_speeds.gang.exact import ExactGangs
from gangwise.fluctuating_speeds.gang.placement import FastGangs
from gangwise.gain_overhead.gang.solution import GangSolution

if TYPE_CHECKING:
    from gangwise.core.run import Run
    from gangwise.fluctuating_speeds.gang.environment import GangSpeedsInstance

__all__ = ["omniscient", "pseudo_regret"]

Floats = npt.NDArray[np.float64]


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
