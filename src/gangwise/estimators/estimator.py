"""What every estimator offers, and what those that stand on a memory share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gangwise.estimators.memory import Memory

__all__ = ["Estimator", "Mean", "OfMemory"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Estimator(Protocol):
    """Says what each of N arms is worth, from the values of those that were played.

    Estimators are dataclasses: constructor arguments are the whole configuration, and everything
    else is state, which ``start`` sets up. A policy starts a copy of its own.
    """

    @property
    def randomised(self) -> bool:
        """Whether estimates are drawn at random."""

    def start(self, arms: int, rng: np.random.Generator) -> None:
        """Forget everything; ``rng`` is kept for estimates that are drawn."""

    def estimate(self, slot: int) -> Floats:
        """What to go by in this slot, shape [N]. It may be reused by the next call."""

    @property
    def untried(self) -> Bools:
        """Arms of which nothing is known, shape [N]; policies may play these first."""

    def learn(self, slot: int, arms: Ints, values: Floats) -> None:
        """Take in the values, shape [n], of the n arms played in a slot.

        Slots may come late, in any order, or never.
        """


@dataclass(eq=False)
class OfMemory(ABC):
    """An estimator that is a function of a memory, and forgets as that does.

    Parameters
    ----------
    memory : Memory
        All, discounted, window or change-point.
    """

    memory: Memory = field(default_factory=Memory, kw_only=True)
    randomised = False

    def start(self, arms: int, rng: np.random.Generator) -> None:
        """Forget everything."""
        self.memory.start(arms)
        self._rng = rng

    def estimate(self, slot: int) -> Floats:
        """The estimate from what was played before this slot."""
        self.memory.advance(slot)
        return self._estimate(slot)

    @abstractmethod
    def _estimate(self, slot: int) -> Floats:
        """The estimate from what is in memory."""

    @property
    def untried(self) -> Bools:
        """Arms of which memory holds nothing."""
        untried: Bools = self.memory.counts == 0
        return untried

    def learn(self, slot: int, arms: Ints, values: Floats) -> None:
        """Remember."""
        self.memory.learn(slot, arms, values)


@dataclass(eq=False)
class Mean(OfMemory):
    """The mean so far, and ``prior`` for arms of which nothing is known.

    Examples
    --------
    >>> mean = Mean()
    >>> mean.start(2, np.random.default_rng(0))
    >>> mean.learn(0, np.array([1]), np.array([0.25]))
    >>> mean.estimate(1), mean.untried
    (array([1.  , 0.25]), array([ True, False]))
    """

    prior: float = 1.0

    def _estimate(self, slot: int) -> Floats:
        return np.where(self.memory.counts > 0, self.memory.means, self.prior)
