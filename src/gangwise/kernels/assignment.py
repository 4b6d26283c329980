"""Inner loop of the policies that decide how many machines a job gets, and then which."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gangwise.kernels import Ints, kernel

__all__ = ["assign"]

Bools = npt.NDArray[np.bool_]


@kernel
def assign(
    want: Ints, rows: Ints, machines: Ints, there: Bools, place: Ints, holder: Ints,
) -> None:
    """Give each job its number of machines, moving as few tasks as can be.

    Only the ``machines`` listed are given out, in that order. ``holder`` [M] names the table row
    that each machine ran last (−1: none) and becomes the decision: a job keeps machines that it
    held, up to ``want[k]`` for the job in table row ``rows[k]``; then free machines go to the jobs
    in the order of ``rows``. ``place`` [C] is work space, all −1 before and after. ``want`` is used
    up.
    """
    for k in range(rows.size):
        place[rows[k]] = k
    for n in range(machines.size):
        i = machines[n]
        h = holder[i]
        k = place[h] if h >= 0 else -1
        if k >= 0 and want[k] > 0 and there[i]:
            want[k] -= 1
        else:
            holder[i] = -1
    k = 0
    for n in range(machines.size):
        i = machines[n]
        if holder[i] < 0 and there[i]:
            while k < rows.size and want[k] <= 0:
                k += 1
            if k < rows.size:
                holder[i] = rows[k]
                want[k] -= 1
    for k in range(rows.size):
        place[rows[k]] = -1
