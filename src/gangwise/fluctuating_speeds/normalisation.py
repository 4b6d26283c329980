"""From Z − cost to the net utility Z̃ in [0, 1] that ESDP §3.1 assumes.

The paper normalises "by carefully tuning the parameters in f_k"; with its own numbers (three costs
around 0.5 against a mean utility of 0.55) every net utility would be negative. So the map is
stated:

    Z̃ = clip((Z − cost − low) / (high − low), 0, 1).

``clip`` has low = 0 and high the largest net utility within reach: a channel that loses counts as
nothing, and zero stays zero. ``affine`` has low the smallest net utility within reach: nothing is
lost, but every channel that is on gains a constant, which rewards switching on many of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.fluctuating_speeds.speeds import Speeds

__all__ = ["Scale"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scale:
    """The net utilities that become 0 and 1.

    Examples
    --------
    >>> Scale(0.0, 0.5).apply(np.array([0.9, 0.4, 0.1]), np.array([0.2, 0.2, 0.2]))
    array([1. , 0.4, 0. ])
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise ScenarioError(
                f"net utilities from {self.low} to {self.high} cannot be mapped to [0, 1]"
            )

    @classmethod
    def of(cls, kind: str, speeds: Speeds, cost: Floats) -> Scale:
        """``clip`` or ``affine`` for utilities and costs; ``none`` takes them as they are.

        Raises
        ------
        ScenarioError
            When no channel is ever worth its cost, or ``none`` is asked for where a net utility
            can leave [0, 1].
        """
        low, high = speeds.reach()
        smallest, largest = float((low - cost).min()), float((high - cost).max())
        if kind == "none":
            if smallest < 0 or largest > 1:
                raise ScenarioError(
                    f"net utilities range from {smallest:g} to {largest:g}; without a "
                    "normalisation they must lie in [0, 1]: choose clip or affine"
                )
            return cls()
        if kind not in ("clip", "affine"):
            raise ScenarioError(f"normalise is clip, affine or none, not {kind!r}")
        if kind == "clip" and largest <= 0:
            raise ScenarioError(
                f"every channel costs more than it can bring (the best nets {largest:g}), so doing "
                "nothing is optimal; lower the costs or choose affine"
            )
        return cls(0.0 if kind == "clip" else smallest, largest)

    def apply(self, utilities: Floats, cost: Floats) -> Floats:
        """Z̃ of raw utilities; the last axis is over channels."""
        net: Floats = (utilities - cost - self.low) / (self.high - self.low)
        return np.clip(net, 0.0, 1.0)

    def mean(self, speeds: Speeds, cost: Floats, slot: int) -> Floats:
        """E[Z̃] of each channel in a slot, exactly, shape [E]: ṽ of (7)."""
        low, width = cost + self.low, self.high - self.low
        return np.asarray((speeds.clipped_mean(slot, low, low + width) - low) / width)
