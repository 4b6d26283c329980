"""Memories: what is remembered of every arm, how often it was played and what that brought.

An arm is a machine or a channel; a play of it tells one value in [0, 1]. Memory holds what was
played before a slot and has come to be known, in any order and with any delay. It takes O(N)
numbers, for a window O(W N), whatever the number of slots.

:class:`Memory` and :class:`SlidingWindow` add up in whole units of 2⁻⁴⁰, so that sums do not depend
on the order of feedback, not even in the last bit. :class:`Discounted` adds up in floating point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gangwise.core.arrays import Floats, Ints, check_numbers
from gangwise.core.errors import ScenarioError
from gangwise.core.jit import kernel

RESOLUTION = float(2**40)
"""Whole units in 1: sums are kept to 1e-12, with room for eight million plays of an arm."""

FADED = 1e-3
"""Discounted plays below which an arm counts as never played."""


@kernel
def faulty(arms: Ints, values: Floats, N: int) -> int:
    """First place with an arm that is not there or a value outside [0, 1] or NaN; −1 if none."""
    for n in range(arms.size):
        inside = values[n] >= 0.0 and values[n] <= 1.0
        if arms[n] < 0 or arms[n] >= N or not inside:
            return n
    return -1


@kernel
def absorb(arms: Ints, values: Floats, unit: float, counts: Ints, totals: Ints) -> None:
    """Count plays and add up values in whole units, so that the order does not matter."""
    for n in range(arms.size):
        counts[arms[n]] += 1
        totals[arms[n]] += np.int64(round(values[n] * unit))


@kernel
def weigh(arms: Ints, values: Floats, weight: float, weights: Floats, sums: Floats) -> None:
    """Count plays and add up values, each for ``weight``."""
    for n in range(arms.size):
        weights[arms[n]] += weight
        sums[arms[n]] += weight * values[n]


@dataclass(eq=False)
class Memory:
    """Everything since the beginning. Others forget.

    Examples
    --------
    Two arms, played twice and once; the later slot is told first.

    >>> memory = Memory()
    >>> memory.start(2)
    >>> memory.learn(1, np.array([0]), np.array([0.6]))
    >>> memory.learn(0, np.array([0, 1]), np.array([0.4, 0.8]))
    >>> memory.counts, memory.means.round(9)
    (array([2., 1.]), array([0.5, 0.8]))
    """

    def start(self, arms: int) -> None:
        self.slot = 0
        self._counts, self._totals = np.zeros(arms, np.int64), np.zeros(arms, np.int64)

    @property
    def weights(self) -> Floats:
        """Plays of each arm, each as far as it is remembered, shape [N]; to be read only."""
        return self._counts.astype(np.float64)

    @property
    def totals(self) -> Floats:
        """What these plays brought, shape [N]; to be read only."""
        return self._totals / RESOLUTION

    @property
    def counts(self) -> Floats:
        """``weights``, and 0 for arms of which nothing is left to be known, shape [N]."""
        return self._counts.astype(np.float64)

    @property
    def means(self) -> Floats:
        """Mean value of a play, shape [N]; 0 where ``counts`` is 0."""
        return self._totals / (RESOLUTION * np.maximum(self._counts, 1))

    @property
    def posterior(self) -> tuple[Floats, Floats]:
        """What a uniform belief has become: a and b of a Beta distribution, shape [N] each."""
        counts = self.counts
        total = counts * self.means
        return 1.0 + total, 1.0 + np.maximum(counts - total, 0.0)

    def horizon(self, t: float) -> float:
        """How many of t slots ``counts`` stands for; radii that grow with t take it."""
        return t

    def advance(self, slot: int) -> None:
        """Come to the beginning of a slot, if that is not past."""
        self.slot = max(self.slot, slot)

    def learn(self, slot: int, arms: Ints, values: Floats) -> None:
        """Take in what was played in a slot, each arm once.

        Raises
        ------
        ScenarioError
            For an arm that is not there, or a value outside [0, 1] or NaN; nothing has changed.
        """
        arms = np.ascontiguousarray(arms, dtype=np.int64)
        values = np.ascontiguousarray(values, dtype=np.float64)
        N = self._counts.size
        wrong = faulty(arms, values, N)
        if wrong >= 0:
            raise ScenarioError(
                f"feedback of slot {slot}: arm {arms[wrong]} of {N} has value {values[wrong]}; "
                "arms are counted from 0 and values lie in [0, 1]"
            )
        self.advance(slot + 1)
        self._absorb(slot, arms, values)

    def _absorb(self, slot: int, arms: Ints, values: Floats) -> None:
        absorb(arms, values, RESOLUTION, self._counts, self._totals)


@dataclass(eq=False)
class Discounted(Memory):
    """What is s slots old counts ``discount`` to the power of s.

    Feedback that comes late weighs what it would weigh had it come at once; sums are floating
    point, so its order matters in the last bits.

    Parameters
    ----------
    discount : float
        κ per slot, up to 1, which forgets nothing.
    """

    discount: float = 0.998

    def __post_init__(self) -> None:
        check_numbers("(0, 1]", discount=self.discount)

    def start(self, arms: int) -> None:
        super().start(arms)
        self._weight, self._sum = np.zeros(arms), np.zeros(arms)

    @property
    def weights(self) -> Floats:
        return self._weight

    @property
    def totals(self) -> Floats:
        return self._sum

    @property
    def counts(self) -> Floats:
        """Discounted plays; what has all but faded counts as never played."""
        return np.where(self._weight < FADED, 0.0, self._weight)

    @property
    def means(self) -> Floats:
        return np.where(self._weight < FADED, 0.0, self._sum / np.maximum(self._weight, FADED))

    @property
    def posterior(self) -> tuple[Floats, Floats]:
        """From discounted plays; what has faded leaves the uniform belief."""
        return 1.0 + self._sum, np.maximum(1.0 + self._weight - self._sum, 1e-9)

    def horizon(self, t: float) -> float:
        # The discounted number of slots, (1 − κᵗ) / (1 − κ).
        if self.discount == 1:
            return t
        return float((1.0 - self.discount**t) / (1.0 - self.discount))

    def advance(self, slot: int) -> None:
        if self.discount < 1 and slot > self.slot:
            # All weights fade alike, so sums need no history.
            fade = self.discount ** (slot - self.slot)
            self._weight *= fade
            self._sum *= fade
        super().advance(slot)

    def _absorb(self, slot: int, arms: Ints, values: Floats) -> None:
        # Feedback of an older slot has faded by as much as if it had come at once.
        weight = self.discount ** (self.slot - slot - 1)
        weigh(arms, values, float(weight), self._weight, self._sum)


@dataclass(eq=False)
class SlidingWindow(Memory):
    """The last ``window`` slots; what is older is forgotten, and stays so."""

    window: int = 20

    def __post_init__(self) -> None:
        check_numbers("[1, inf)", window=self.window)
        self.window = int(self.window)

    def start(self, arms: int) -> None:
        super().start(arms)
        self._played = np.zeros((self.window, arms), np.int64)
        self._values = np.zeros((self.window, arms), np.int64)

    def horizon(self, t: float) -> float:
        return min(t, float(self.window))

    def advance(self, slot: int) -> None:
        """Slots that leave the window are taken off the sums, exactly."""
        for gone in range(max(self.slot, slot - self.window), slot):
            row = gone % self.window
            self._counts -= self._played[row]
            self._totals -= self._values[row]
            self._played[row] = 0
            self._values[row] = 0
        super().advance(slot)

    def _absorb(self, slot: int, arms: Ints, values: Floats) -> None:
        if slot >= self.slot - self.window:  # else it left the window before it was known
            row = slot % self.window
            absorb(arms, values, RESOLUTION, self._played[row], self._values[row])
            absorb(arms, values, RESOLUTION, self._counts, self._totals)
