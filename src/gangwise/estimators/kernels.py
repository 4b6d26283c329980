"""Inner loops of the estimators: feedback is checked and added up; last values that fade."""

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


@kernel
def age_bin(age: int, bins: int) -> int:
    """Bin of an age in slots: 0, 1, 2–3, 4–7, 8–15 and so on; the last one has no end."""
    b = 0
    while age > 0 and b < bins - 1:
        age //= 2
        b += 1
    return b


@kernel
def regress(
    arms: Ints,
    values: Floats,
    slot: int,
    totals: Floats,
    plays: Floats,
    pull: float,
    everyone: float,
    last: Floats,
    at: Ints,
    products: Floats,
    squares: Floats,
) -> None:
    """Least squares of a value's departure from the mean on that of the last value.

    Adds d (y − m) to ``products`` and d² to ``squares`` [bins, 2], d = last − m, by the bin of the
    last value's age and by whether d is positive; plays before the last one teach nothing here.
    """
    for n in range(arms.size):
        i = arms[n]
        if 0 <= at[i] < slot:
            mean = (totals[i] + pull * everyone) / (plays[i] + pull)
            d = last[i] - mean
            b, side = age_bin(slot - 1 - at[i], products.shape[0]), 1 if d > 0.0 else 0
            products[b, side] += d * (values[n] - mean)
            squares[b, side] += d * d


@kernel
def faded_as_learned(
    totals: Floats,
    plays: Floats,
    pull: float,
    everyone: float,
    last: Floats,
    at: Ints,
    slot: int,
    phi: Floats,
    prior: float,
    out: Floats,
) -> None:
    """Put m + φ (last − m) into ``out``, φ [bins, 2] by age and side; ``prior`` if never played."""
    for i in range(out.size):
        out[i] = prior
        if at[i] >= 0:
            mean = (totals[i] + pull * everyone) / (plays[i] + pull)
            d = last[i] - mean
            b = age_bin(max(slot - 1 - at[i], 0), phi.shape[0])
            out[i] = mean + phi[b, 1 if d > 0.0 else 0] * d
