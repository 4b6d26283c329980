"""Curves over slots: computed per seed on every slot, then averaged, then thinned for drawing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.experiments.compare import Comparison

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

POINTS = 500
"""Most points of a drawn line."""


@dataclass(frozen=True, eq=False)
class Curve:
    """A mean over seeds with its pointwise 95 % confidence band.

    Attributes
    ----------
    slots : ndarray of int64, shape [n]
        Slots played so far, from 1.
    mean, half : ndarray of float64, shape [n]
        Mean, and half the width of the band; ``half`` is None with a single seed.
    """

    slots: Ints
    mean: Floats
    half: Floats | None

    @classmethod
    def of(cls, slots: Ints, each: list[Floats]) -> Curve:
        """From one series for each seed."""
        stack = np.stack(each)
        if len(stack) < 2:
            return cls(slots, stack[0], None)
        from scipy.special import stdtrit

        seeds = len(stack)
        half = stdtrit(seeds - 1, 0.975) * stack.std(axis=0, ddof=1) / np.sqrt(seeds)
        return cls(slots, stack.mean(axis=0), half)


def thin(length: int, points: int = POINTS) -> Ints:
    """Positions to draw of a series: evenly spread, the first and the last among them.

    >>> thin(10, 4)
    array([0, 3, 6, 9])
    """
    if length <= points:
        return np.arange(length)
    return np.unique(np.linspace(0, length - 1, points).round().astype(np.int64))


def cumulative_reward(comparison: Comparison, policy: str) -> Curve:
    """Σ of the rewards so far."""
    at = thin(comparison.slots)
    sums = [np.cumsum(comparison.runs[policy, s].rewards)[at] for s in comparison.seeds]
    return Curve.of(at + 1, sums)


def average_reward(comparison: Comparison, policy: str) -> Curve:
    """(1/t) Σ of the rewards so far."""
    at = thin(comparison.slots)
    sums = [np.cumsum(comparison.runs[policy, s].rewards)[at] for s in comparison.seeds]
    return Curve.of(at + 1, [total / (at + 1) for total in sums])


def comparator_average(comparison: Comparison, name: str) -> Curve:
    """Running average of a comparator; a constant where it was evaluated on some slots only."""
    each = [comparison.comparators[name, s] for s in comparison.seeds]
    if any(c.slots.size < comparison.slots for c in each):
        ends = np.array([1, comparison.slots])
        return Curve(ends, np.full(2, np.mean([c.rewards.mean() for c in each])), None)
    at = thin(comparison.slots)
    sums = [np.cumsum(c.rewards[np.argsort(c.slots)])[at] for c in each]
    return Curve.of(at + 1, [total / (at + 1) for total in sums])


def ratio(comparison: Comparison, best: str, other: str) -> Curve:
    """Cumulative reward of one policy over that of another, seed by seed.

    Not a number wherever the other has earned nothing, or less, in some seed: a ratio then says
    nothing.
    """
    at = thin(comparison.slots)
    each = []
    for seed in comparison.seeds:
        over = np.cumsum(comparison.runs[best, seed].rewards)[at]
        under = np.cumsum(comparison.runs[other, seed].rewards)[at]
        each.append(np.divide(over, under, out=np.full(at.size, np.nan), where=under > 0))
    return Curve.of(at + 1, each)


def regret(comparison: Comparison, policy: str, versus: str) -> Curve:
    """Cumulative regret: the comparator's reward so far minus the policy's.

    Where the comparator was evaluated on some slots only, the mean difference on these is scaled to
    all slots so far, as :meth:`gangwise.Run.regret` does.
    """
    grid: Ints | None = None
    each: list[Floats] = []
    for seed in comparison.seeds:
        comparator = comparison.comparators[versus, seed]
        order = np.argsort(comparator.slots, kind="stable")
        slots = comparator.slots[order]
        difference = comparator.rewards[order] - comparison.runs[policy, seed].rewards[slots]
        played = slots + 1
        played[-1] = comparison.slots
        curve = np.cumsum(difference) / np.arange(1, slots.size + 1) * played
        if grid is None:
            grid = played[thin(played.size)]
        each.append(np.interp(grid, played, curve))
    assert grid is not None, "a comparison has at least one seed"
    return Curve.of(grid, each)
