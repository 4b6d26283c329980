"""A memory that is lost when an arm is found to have changed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.estimators.memory import FADED, Discounted

__all__ = ["ChangePoint"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(eq=False)
class ChangePoint(Discounted):
    """Everything since the last change, which a two-sided Page–Hinkley test finds for each arm.

    An arm is forgotten when its values have departed from their mean by more than ``threshold`` in
    total, not counting departures below ``drift`` per play. The test takes values in the order in
    which they come.
    """

    threshold: float = 1.0
    drift: float = 0.1
    discount: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.threshold > 0 and self.drift >= 0):
            raise ScenarioError(
                "threshold must be positive and drift not negative; got "
                f"{self.threshold} and {self.drift}"
            )

    def start(self, arms: int) -> None:
        """Forget everything."""
        super().start(arms)
        self._up, self._down = np.zeros(arms), np.zeros(arms)

    def _absorb(self, slot: int, arms: Ints, values: Floats) -> None:
        plays = self._weight[arms]
        mean = self._sum[arms] / np.maximum(plays, FADED)
        departure = np.where(plays > 0, values - mean, 0.0)
        self._up[arms] = np.maximum(self._up[arms] + departure - self.drift, 0.0)
        self._down[arms] = np.maximum(self._down[arms] - departure - self.drift, 0.0)
        moved = (self._up[arms] > self.threshold) | (self._down[arms] > self.threshold)
        changed = arms[moved]
        self._up[changed] = self._down[changed] = 0.0
        self._weight[changed] = self._sum[changed] = 0.0
        super()._absorb(slot, arms, values)
