"""The last value, decayed towards the mean: for arms that stay as they are for a while."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.estimators.estimator import OfMemory
from gangwise.kernels import estimators as kernels

__all__ = ["Decay"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(eq=False)
class Decay(OfMemory):
    """m + (last − m) exp(−age / τ): trust the last value, and less so the older it is.

    ``m`` is the arm's own mean, drawn towards the mean of all arms as ``pull`` plays would. An arm
    of which nothing is known is given ``prior``, which is 1 so that it is tried.

    Parameters
    ----------
    tau : float
        τ, in slots.
    pull : float
        In plays.
    prior : float
    """

    tau: float = 30.0
    pull: float = 30.0
    prior: float = 1.0

    def __post_init__(self) -> None:
        if not (self.tau > 0 and self.pull > 0 and 0 <= self.prior <= 1):
            raise ScenarioError(
                "tau and pull must be positive and prior in [0, 1]; got "
                f"{self.tau}, {self.pull}, {self.prior}"
            )

    def start(self, arms: int, rng: np.random.Generator) -> None:
        """Forget everything."""
        super().start(arms, rng)
        self._last, self._at = np.zeros(arms), np.full(arms, -1, np.int64)

    def _estimate(self, slot: int) -> Floats:
        total, plays = self.memory.totals, self.memory.weights
        everyone = float(total.sum()) / max(float(plays.sum()), 1.0)
        fade = np.exp(-np.maximum(slot - 1 - self._at, 0) / self.tau)
        kernels.faded(
            total, plays, float(self.pull), everyone, self._last, self._at, fade,
            float(self.prior), fade,
        )
        return fade

    def learn(self, slot: int, arms: Ints, values: Floats) -> None:
        """Late feedback counts towards the mean; the last value stays the latest one."""
        super().learn(slot, arms, values)
        arms = np.ascontiguousarray(arms, dtype=np.int64)
        values = np.ascontiguousarray(values, dtype=np.float64)
        kernels.renew(arms, values, slot, self._last, self._at)
