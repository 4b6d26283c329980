"""Inner loops of the estimators: feedback is checked, and added up in whole units."""

from __future__ import annotations

import numpy as np

from gangwise.kernels import Floats, Ints, kernel

__all__ = ["absorb", "faulty"]


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
