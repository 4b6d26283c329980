"""Orders of the queue that are formulas: one function for compiled schedulers and for Python."""

from __future__ import annotations

import math

from gangwise.core.jit import shared_kernel
from gangwise.jobs.kernels import F1, F2, F3, F4, SAF, SJF, UNICEP, WFP3


@shared_kernel
def key(
    order: int, length: float, size: float, submitted: float, wait: float, weight: float
) -> float:
    """Key of a waiting job; the smallest is first. Times are in seconds.

    r is the ``length`` that the job is expected to take, n its ``size`` in devices of the dominant
    type, s the time from the first submission of all to its own, under a second counted as one.
    ``saf`` is smallest area first, r·n. F1 to F4 are of Carastan-Santos and de Camargo (SC 2017),
    UNICEP is −wait / (log₂(n)·r) as in Zhang et al. (RLScheduler, SC 2020), WFP3 is
    −(wait / r)³·n of Tang et al. (2009). AGED is r − weight·wait.
    """
    r, s = max(length, 1.0), max(submitted, 1.0)
    if order == SJF:
        return length
    if order == WFP3:
        stretch = wait / r
        return -(stretch * stretch * stretch) * size
    if order == SAF:
        return length * size
    if order == F1:
        return math.log10(r) * size + 870.0 * math.log10(s)
    if order == F2:
        return math.sqrt(r) * size + 25_600.0 * math.log10(s)
    if order == F3:
        return r * size + 6_860_000.0 * math.log10(s)
    if order == F4:
        return r * math.sqrt(size) + 530_000.0 * math.log10(s)
    if order == UNICEP:
        return -wait / (max(math.log2(max(size, 1.0)), 1e-9) * r)
    return length - weight * wait
