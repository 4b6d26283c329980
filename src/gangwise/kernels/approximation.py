"""Inner loops of the approximation-jobs environment: utilities, execution, moves.

The forms of utility are numbered as in ``approximation_jobs.utilities``: 0 power, 1 logarithm,
2 saturating; a user's own form (3) is worth 0 here and is evaluated in Python.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from gangwise.kernels import Floats, Ints, kernel

__all__ = ["execute", "gains", "moves", "slope", "slopes", "tell", "unfit", "value"]

Bools = npt.NDArray[np.bool_]


@kernel
def value(kind: int, v: float, shape: float, work: float) -> float:
    """f(X)."""
    if kind == 0:
        if shape == 0.5:
            return v * math.sqrt(work)
        return float(v * work**shape)
    if kind == 1:
        return v * math.log1p(work / shape)
    if kind == 2:
        return -v * math.expm1(-work / shape)
    return 0.0


@kernel
def slope(kind: int, v: float, shape: float, work: float) -> float:
    """f'(X); the caller keeps X off 0."""
    if kind == 0:
        if shape == 0.5:
            return 0.5 * v / math.sqrt(work)
        return float(shape * v * work ** (shape - 1.0))
    if kind == 1:
        return v / (shape + work)
    if kind == 2:
        return v / shape * math.exp(-work / shape)
    return 0.0


@kernel
def slopes(
    rows: Ints, kind: Ints, v: Floats, shape: Floats, at: Floats, out: Floats,
) -> None:
    """out[n] = f'(at[n]) for the job in table row rows[n]."""
    for n in range(rows.size):
        j = rows[n]
        out[n] = slope(kind[j], v[j], shape[j], at[n])


@kernel
def unfit(row: Ints, machine: Ints, serial: Ints, available: Bools) -> int:
    """First task of a row without a job or on a machine that is away; −1 if there is none."""
    for n in range(row.size):
        j = row[n]
        if j < 0 or j >= serial.size or serial[j] == 0 or not available[machine[n]]:
            return n
    return -1


@kernel
def execute(
    row: Ints, machine: Ints, price: Floats, rate: Floats, limit: Floats,
    cost: Floats, worked: Floats, kept: Bools,
) -> tuple[float, int]:
    """Run the tasks that budgets can pay, in the order given (Algorithm 1, lines 7–12).

    Task n of table row ``row[n]`` runs on ``machine[n]`` unless the row's cost would exceed its
    ``limit``; ``kept[n]`` says whether it ran. ``cost`` and ``worked`` [rows] are added to.
    Returns what all of it cost, and how many tasks did not run.
    """
    spent, refused = 0.0, 0
    for n in range(row.size):
        j, p = row[n], price[machine[n]]
        kept[n] = cost[j] + p <= limit[j]
        if kept[n]:
            cost[j] += p
            worked[j] += rate[machine[n]]
            spent += p
        else:
            refused += 1
    return spent, refused


@kernel
def tell(
    row: Ints, work: Floats, serial: Ints, now: Ints, sums: Floats, told: Floats,
) -> None:
    """Add the work of each task to what its job has been told, if its row is still the job's.

    ``serial`` [n] says whose the rows were, ``now`` [rows] whose they are. ``sums`` [rows] is work
    space, all zeros before and after.
    """
    for n in range(row.size):
        if now[row[n]] == serial[n]:
            sums[row[n]] += work[n]
    for j in range(sums.size):
        told[j] += sums[j]
        sums[j] = 0.0


@kernel
def gains(
    rows: Ints, kind: Ints, v: Floats, shape: Floats, life: Floats, worked: Floats, work: Floats,
    out: Floats,
) -> None:
    """Add ``worked`` to ``work``; out[0] = Σ f(after) − f(before), out[1] the same for the

    utility per slot that (6) has, (d − a) f(X / (d − a)). ``worked`` is left at zero.
    """
    out[0] = 0.0
    out[1] = 0.0
    for n in range(rows.size):
        j = rows[n]
        if worked[j] > 0.0:
            before, after, d = work[j], work[j] + worked[j], life[j]
            out[0] += value(kind[j], v[j], shape[j], after) - value(kind[j], v[j], shape[j], before)
            out[1] += d * (
                value(kind[j], v[j], shape[j], after / d)
                - value(kind[j], v[j], shape[j], before / d)
            )
            work[j] = after
        worked[j] = 0.0


@kernel
def moves(
    before: Ints, now: Ints, rows: Ints, lost: Ints, gained: Ints, out: Floats,
) -> None:
    """How tasks moved between two slots; ``before`` and ``now`` [M] name each machine's job.

    Jobs that left are −1 in ``before``. out[0] counts machines that a job still active lost, out[1]
    those of them that another job got, out[2] = Σ_j min(lost_j, gained_j). ``lost`` and ``gained``
    [rows] are work space, all zeros before and after.
    """
    displaced, swaps, net = 0, 0, 0
    for i in range(now.size):
        b, n = before[i], now[i]
        if b != n:
            if b >= 0:
                displaced += 1
                lost[b] += 1
                if n >= 0:
                    swaps += 1
            if n >= 0:
                gained[n] += 1
    for k in range(rows.size):
        j = rows[k]
        net += min(lost[j], gained[j])
        lost[j] = 0
        gained[j] = 0
    out[0] = displaced
    out[1] = swaps
    out[2] = net
