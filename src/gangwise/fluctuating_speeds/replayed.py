"""Speeds that were measured: drawn with replacement from a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.fluctuating_speeds.speeds import per_channel

__all__ = ["ReplayedSpeeds"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ReplayedSpeeds:
    """Utilities that were measured, drawn with replacement.

    Parameters
    ----------
    series : sequence of arrays
        What was measured for each channel, in the order of measurement; lengths may differ.
    blocks : int
        1 draws from all of a series in every slot. With more, each series is cut into so many
        blocks in order, and the slots walk through them: recorded drift is kept, and the mean of
        every slot is still known exactly.
    slots : int
        How many slots the walk takes; it begins again afterwards.

    Examples
    --------
    >>> speeds = ReplayedSpeeds([np.array([0.1, 0.1, 0.9, 0.9])], blocks=2, slots=10)
    >>> speeds.draw(0, 10, np.random.default_rng(0))[:, 0]
    array([0.1, 0.1, 0.1, 0.1, 0.1, 0.9, 0.9, 0.9, 0.9, 0.9])
    """

    series: Sequence[Floats]
    blocks: int = 1
    slots: int = 2000

    def __post_init__(self) -> None:
        kept = [per_channel(s, f"what was measured of channel {e}", 0.0, 1e6, each="value")
                for e, s in enumerate(self.series)]  # fmt: skip
        if not kept:
            raise ScenarioError("there are no measured utilities")
        shortest = min(s.size for s in kept)
        if not 1 <= self.blocks <= min(shortest, self.slots):
            raise ScenarioError(
                f"{self.blocks} blocks are asked for; the shortest series has {shortest} values "
                f"and the walk takes {self.slots} slots"
            )
        object.__setattr__(self, "series", tuple(kept))

    @property
    def size(self) -> int:
        """E."""
        return len(self.series)

    def reach(self) -> tuple[Floats, Floats]:
        """Smallest and largest value measured."""
        return np.array([s.min() for s in self.series]), np.array([s.max() for s in self.series])

    def regime(self, slot: int) -> int:
        """The block of a slot."""
        return (slot % self.slots) * self.blocks // self.slots

    def _block(self, e: int, block: int) -> Floats:
        s = self.series[e]
        return s[s.size * block // self.blocks : s.size * (block + 1) // self.blocks]

    def draw(self, first: int, slots: int, rng: np.random.Generator) -> Floats:
        """Independent draws from each slot's block."""
        chance = rng.random((slots, self.size))
        drawn = np.empty_like(chance)
        block = np.array([self.regime(first + i) for i in range(slots)])
        for b in np.unique(block):
            rows = block == b
            for e in range(self.size):
                values = self._block(e, int(b))
                drawn[rows, e] = values[(chance[rows, e] * values.size).astype(np.int64)]
        return drawn

    def clipped_mean(self, slot: int, low: Floats, high: Floats) -> Floats:
        """The mean of the block, clipped value by value."""
        b = self.regime(slot)
        return np.array(
            [np.clip(self._block(e, b), low[e], high[e]).mean() for e in range(self.size)]
        )
