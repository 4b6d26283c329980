"""Offline comparators of ESDP: what one who knows the means would have earned on the same slots.

``omniscient`` plays x*(t) of ESDP (7), the best choice for the true ṽ(t) over the job types that
arrived, and is credited its mean utility ṽ(t)·x*(t). Regret against it compares realised rewards
with means: right on average, but with all of the noise. ``omniscient_realised`` is the same
decisions credited with what they would have brought in these very slots; policies met the same
noise, so that it cancels wherever both use the same channel. It is the one to quote in tables of
realised rewards; where not even that noise is wanted, :func:`pseudo_regret` compares means with
means.

The preprint of ESDP has payments between jobs and the cluster as well. Payments
π_l enter the utility of a job and that of the cluster under the same condition, and cancel in the
social welfare Σ x (Z − Σ_k f_k): no payment rule can change the schedule. So they are a matter of
reporting.

``clairvoyant`` knows the utilities of every slot before it decides: no policy earns more, in any
world. Where utilities were recorded and neighbouring slots are alike, ``omniscient``, which knows
the means alone, can be beaten, and this is what remains to be earned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Floats, Ints
from gangwise.core.contracts import Comparator, evenly_spaced
from gangwise.core.errors import ScenarioError
from gangwise.core.simulation import Run
from gangwise.fluctuating_speeds.environment import FluctuatingSpeedsInstance, SpeedsInstance
from gangwise.fluctuating_speeds.solver import P3Solver

PROGRAMMES_PER_SAMPLE = 50
"""One programme takes well under a millisecond at the usual sizes, some fifty times less than in
other families; so that many more are solved before slots are sampled."""


class Best(NamedTuple):
    uses: npt.NDArray[np.generic]  # [E] whether, or how many times, each channel is used
    value: float  # its mean utility
    gap: float  # the optimum is no more than this above
    paid: float = 0.0  # what it costs for sure


def play_the_means(
    instance: SpeedsInstance,
    slots: int,
    seed: int,
    at: Callable[[Ints], Ints],
    best: Callable[[Floats, Ints], Best],
) -> tuple[Comparator, Comparator]:
    """Both omniscient comparators of any problem at fluctuating speeds.

    Slots with the same arrivals and the same means share one programme. ``at`` chooses the slots to
    evaluate from the regime and arrivals of each slot [T, 1 + L]; ``best`` finds the decision for
    ṽ(t) [E] and arrivals [L], 0 or 1.
    """
    arrivals, utilities = instance.history(slots, seed)
    # x*(t) depends on the slot through ṽ(t) and who arrived only.
    regime = np.array([instance.speeds.regime(t) for t in range(slots)], dtype=np.int64)
    keys = np.column_stack([regime, (arrivals != 0).astype(np.int64)])
    chosen = at(keys)
    solved: dict[bytes, Best] = {}
    mean, realised, gap = np.empty(chosen.size), np.empty(chosen.size), 0.0
    for i, t in enumerate(chosen.tolist()):
        key = keys[t].tobytes()
        if key not in solved:
            solved[key] = best(instance.means(t), np.ascontiguousarray(keys[t, 1:]))
        answer = solved[key]
        mean[i] = answer.value
        # Whole counts weigh utilities; truth values select them, and sum in another order.
        realised[i] = (
            utilities[t][answer.uses].sum()
            if answer.uses.dtype == np.bool_
            else answer.uses @ utilities[t]
        )
        realised[i] -= answer.paid
        gap += answer.gap
    return (
        Comparator("omniscient", chosen, mean, gap),
        Comparator("omniscient_realised", chosen, realised, gap),
    )


def _best_choices(instance: FluctuatingSpeedsInstance) -> Callable[[Floats, Ints], Best]:
    """The best choice for known utilities [E] and arrivals [L], by branch and bound."""
    problem = instance.problem
    solver, nothing = P3Solver(problem.requests, problem.cluster.capacity), np.zeros(problem.E)

    def best(v: Floats, arrivals: Ints) -> Best:
        answer = solver.solve(v, nothing, available=problem.available(arrivals))
        value = float(v[answer.x].sum())
        return Best(answer.x.copy(), value, max(0.0, float(answer.bound) - value))

    return best


def omniscient(
    instance: FluctuatingSpeedsInstance, slots: int, seed: int, sample: int | None = None
) -> tuple[Comparator, Comparator]:
    """Omniscient policy x*(t), ESDP (7), on the slots of the run: it and what it realises.

    Each programme is solved by branch and bound; where that stops early, ``gap`` says how much
    better the true optimum can be at most, over all slots. Where more than ``50 * sample``
    programmes would be needed, that many evenly spaced slots are evaluated.
    """

    def at(keys: Ints) -> Ints:
        if sample is None or len(np.unique(keys, axis=0)) <= PROGRAMMES_PER_SAMPLE * sample:
            return np.arange(slots)
        return evenly_spaced(slots, PROGRAMMES_PER_SAMPLE * sample)

    return play_the_means(instance, slots, seed, at, _best_choices(instance))


I = TypeVar("I", bound=SpeedsInstance)
Both = tuple[Comparator, Comparator]


def in_run(omniscient: Callable[[I, int, int, int | None], Both]) -> Callable[..., Comparator]:
    """``omniscient`` or ``omniscient_realised`` on the slots of a run; both are found at once."""

    def found(
        instance: I, slots: int, seed: int, sample: int | None = None, realised: bool = False
    ) -> Comparator:
        key, known = (slots, seed, sample), instance.evaluated
        if key not in known:
            known[key] = omniscient(instance, *key)
        return known[key][realised]

    return found


omniscient_in_run = in_run(omniscient)


def clairvoyant(
    instance: FluctuatingSpeedsInstance, slots: int, seed: int, sample: int | None = None
) -> Comparator:
    """Clairvoyant policy: the best choice for the Z̃(t) of each slot, a programme per slot.

    With ``sample``, at most ``50 * sample`` evenly spaced slots are evaluated.
    """
    best, (arrivals, utilities) = _best_choices(instance), instance.history(slots, seed)
    at = evenly_spaced(slots, None if sample is None else PROGRAMMES_PER_SAMPLE * sample)
    answers = [best(utilities[t], arrivals[t]) for t in at.tolist()]
    gap = 0.0
    for answer in answers:
        gap += answer.gap
    return Comparator("clairvoyant", at, np.array([answer.value for answer in answers]), gap)


def pseudo_regret(
    run: Run, comparator: Comparator | None = None, sample: int | None = None
) -> npt.NDArray[np.float64]:
    """Pseudo-regret, ESDP (6): cumulative means of x*(t) less means of what was played, shape [n].

    It never falls below zero beyond the comparator's gap, and has no noise but the policy's own.
    ``comparator`` is ``omniscient`` on the slots of the run, solved on ``sample`` of them when not
    given. ScenarioError for a run of another family.

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario, simulate
    >>> instance = create_scenario("esdp-default-v1:servers=10").instance(seed=0)
    >>> curve = pseudo_regret(simulate(instance, create_policy("random-channels"), 50, seed=0))
    >>> bool((np.diff(curve) >= -1e-9).all())
    True
    """
    if "mean_utility" not in run.metrics:
        raise ScenarioError(f"a run of the family {run.instance.family} has no mean utility")
    versus = run.comparator("omniscient", sample) if comparator is None else comparator
    return np.cumsum(versus.rewards - run.metrics["mean_utility"][versus.slots])
