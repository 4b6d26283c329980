"""Estimates that learn nothing: the same for all arms, or given from outside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError

__all__ = ["Constant", "Oracle"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(eq=False)
class Oracle:
    """Values that are known: one for each arm, or a table [slots, N]. For tests and bounds."""

    values: npt.ArrayLike
    randomised = False

    def __post_init__(self) -> None:
        self._table = np.array(self.values, dtype=np.float64, ndmin=2)

    def start(self, arms: int, rng: np.random.Generator) -> None:
        """Nothing to forget."""
        if self._table.shape[1] != arms:
            raise ScenarioError(
                f"values are given for {self._table.shape[1]} arms; there are {arms}"
            )

    def estimate(self, slot: int) -> Floats:
        """The row of this slot; the last one from there on."""
        row: Floats = self._table[min(slot, len(self._table) - 1)]
        return row

    @property
    def untried(self) -> Bools:
        """None."""
        return np.zeros(self._table.shape[1], dtype=bool)

    def learn(self, slot: int, arms: Ints, values: Floats) -> None:
        """Nothing."""


@dataclass(eq=False)
class Constant:
    """The same for all arms: no estimation (OPS and OPM §VI)."""

    rate: float = 0.7
    randomised = False

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ScenarioError(f"the constant rate is {self.rate}; it must lie in [0, 1]")

    def start(self, arms: int, rng: np.random.Generator) -> None:
        """Nothing to forget."""
        self._rates = np.full(arms, self.rate)

    def estimate(self, slot: int) -> Floats:
        """The constant."""
        return self._rates

    @property
    def untried(self) -> Bools:
        """None."""
        return np.zeros(self._rates.size, dtype=bool)

    def learn(self, slot: int, arms: Ints, values: Floats) -> None:
        """Nothing."""
