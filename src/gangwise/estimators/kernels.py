"""Inner loops of the estimators: feedback is checked and added up; estimates that fade."""

from __future__ import annotations

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.core.jit import kernel


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


@kernel
def faded(
    totals: Floats,
    plays: Floats,
    pull: float,
    everyone: float,
    last: Floats,
    at: Ints,
    fade: Floats,
    prior: float,
    out: Floats,
) -> None:
    """Put m + (last − m) fade into ``out``, and ``prior`` where ``at`` is negative (never played).

    m is the arm's own mean, drawn towards ``everyone`` as ``pull`` plays would.
    """
    for i in range(out.size):
        mean = (totals[i] + pull * everyone) / (plays[i] + pull)
        estimate = mean + (last[i] - mean) * fade[i]
        out[i] = estimate if at[i] >= 0 else prior


@kernel
def renew(arms: Ints, values: Floats, slot: int, last: Floats, at: Ints) -> None:
    """Let ``last`` [N] be the values of a slot where ``at`` [N], the slot it is of, is earlier."""
    for n in range(arms.size):
        i = arms[n]
        if at[i] < slot:
            last[i] = values[n]
            at[i] = slot
