"""Speeds whose means move: jumps at given slots, or waves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.fluctuating_speeds.speeds import (
    normal_clipped_mean,
    per_channel,
    require_spread,
)

__all__ = ["PiecewiseSpeeds", "WavingSpeeds"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PiecewiseSpeeds:
    """Means that hold for a while and then jump; normal noise with σ = spread · μ.

    Parameters
    ----------
    levels : ndarray of shape [P, E]
        μ of each piece.
    begins : array of int, shape [P]
        First slot of each piece, from 0 up.

    Examples
    --------
    >>> speeds = PiecewiseSpeeds(np.array([[0.2], [0.8]]), np.array([0, 100]), spread=0.0)
    >>> speeds.draw(99, 2, np.random.default_rng(0))[:, 0]
    array([0.2, 0.8])
    """

    levels: Floats
    begins: Ints
    spread: float = 0.5

    def __post_init__(self) -> None:
        levels = np.array(self.levels, dtype=np.float64)
        begins = np.array(self.begins, dtype=np.int64, ndmin=1)
        if levels.ndim != 2 or 0 in levels.shape:
            raise ScenarioError(
                f"levels must be a table of pieces by channels; its shape is {levels.shape}"
            )
        for piece, means in enumerate(levels):
            per_channel(means, f"mean utility in piece {piece}", 0.0, 1e6)
        require_spread(self.spread)
        if begins.shape != levels.shape[:1] or begins[0] != 0 or (np.diff(begins) <= 0).any():
            raise ScenarioError(
                f"pieces must begin at increasing slots, the first at 0; got {begins.tolist()} for "
                f"{len(levels)} pieces"
            )
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "begins", begins)

    @property
    def size(self) -> int:
        """E."""
        return int(self.levels.shape[1])

    def reach(self) -> tuple[Floats, Floats]:
        """μ ± 2σ over all pieces."""
        low = (self.levels * (1 - 2 * self.spread)).min(axis=0)
        return low, (self.levels * (1 + 2 * self.spread)).max(axis=0)

    def regime(self, slot: int) -> int:
        """The piece of a slot."""
        return int(np.searchsorted(self.begins, slot, side="right")) - 1

    def draw(self, first: int, slots: int, rng: np.random.Generator) -> Floats:
        """Independent draws around each slot's means."""
        piece = np.searchsorted(self.begins, np.arange(first, first + slots), side="right") - 1
        noise: Floats = rng.standard_normal((slots, self.size))
        return np.asarray(self.levels[piece] * (1.0 + self.spread * noise))

    def clipped_mean(self, slot: int, low: Floats, high: Floats) -> Floats:
        """In closed form."""
        mean = self.levels[self.regime(slot)]
        return normal_clipped_mean(mean, self.spread * mean, low, high)


@dataclass(frozen=True, eq=False)
class WavingSpeeds:
    """Means μ_e (1 + amplitude · sin 2π(t / period + phase_e)); normal noise, σ = spread · mean.

    Parameters
    ----------
    mean, phase : ndarray of shape [E]
        Phases are in turns, so that servers need not slow down together.
    amplitude : float
        0 to 1.
    period : int
        Slots.
    """

    mean: Floats
    phase: Floats
    amplitude: float = 0.5
    period: int = 1000
    spread: float = 0.5

    def __post_init__(self) -> None:
        mean = per_channel(self.mean, "mean utility", 0.0, 1e6)
        phase = np.array(self.phase, dtype=np.float64, ndmin=1)
        if mean.shape != phase.shape or not np.isfinite(phase).all():
            raise ScenarioError(f"each of {mean.size} channels needs a finite phase; got {phase}")
        require_spread(self.spread)
        if not 0 <= self.amplitude <= 1 or self.period < 1:
            raise ScenarioError(
                f"amplitude must lie in [0, 1] and period be a slot or more; got {self.amplitude} "
                f"and {self.period}"
            )
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "phase", phase)

    @property
    def size(self) -> int:
        """E."""
        return int(self.mean.size)

    def reach(self) -> tuple[Floats, Floats]:
        """μ ± 2σ over a whole period."""
        least, most = self.mean * (1 - self.amplitude), self.mean * (1 + self.amplitude)
        around = 1 - 2 * self.spread
        return np.minimum(least * around, most * around), most * (1 + 2 * self.spread)

    def regime(self, slot: int) -> int:
        """Where in the period the slot is."""
        return slot % self.period

    def _means(self, slots: Ints) -> Floats:
        # The same slot of every period has the same mean to the last bit.
        turn = (slots % self.period)[:, None] / self.period + self.phase
        return np.asarray(self.mean * (1.0 + self.amplitude * np.sin(2 * np.pi * turn)))

    def draw(self, first: int, slots: int, rng: np.random.Generator) -> Floats:
        """Independent draws around each slot's means."""
        noise: Floats = rng.standard_normal((slots, self.size))
        return self._means(np.arange(first, first + slots)) * (1.0 + self.spread * noise)

    def clipped_mean(self, slot: int, low: Floats, high: Floats) -> Floats:
        """In closed form."""
        mean = self._means(np.array([slot]))[0]
        return normal_clipped_mean(mean, self.spread * mean, low, high)
