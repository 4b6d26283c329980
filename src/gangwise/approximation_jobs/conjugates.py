"""Utilities as the dual sees them: f*(w) = max over 0 ≤ X ≤ cap of f(X) - w X, for many jobs.

The objective is either the overall utility f(X), or the (d - a) f(X / (d - a)) of regret (6): both
are ``worth · f(X / span)``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.problem import Job
from gangwise.approximation_jobs.utilities import LOG, OWN, POWER, SATURATING

__all__ = ["Worth"]

Floats = npt.NDArray[np.float64]
BISECTIONS = 200


class Worth:
    """What work is worth to each of N jobs.

    Parameters
    ----------
    jobs : sequence of Job
    average : bool
        The objective of (6) rather than the overall utility.

    Examples
    --------
    >>> from gangwise.approximation_jobs.utilities import Power
    >>> worth = Worth([Job(0, 0, 4, 1.0, Power(2.0, 0.5))], average=True)
    >>> worth.value(np.array([16.0])), worth.best(np.array([0.5]), np.array([100.0]))
    (array([16.]), array([16.]))
    """

    def __init__(self, jobs: Sequence[Job], average: bool = False):
        self.jobs = tuple(jobs)
        codes = np.array([job.utility.code for job in jobs], dtype=np.float64).reshape(-1, 3)
        self.kind, self.v, self.shape = codes.T
        self.span = np.array([float(job.lifetime) if average else 1.0 for job in jobs])

    def value(self, work: Floats) -> Floats:
        """Objective of each job, shape [N]."""
        x, v, s = work / self.span, self.v, self.shape
        each = np.select(
            [self.kind == POWER, self.kind == LOG, self.kind == SATURATING],
            [v * x**s, v * np.log1p(x / s), -v * np.expm1(-x / s)],
        )
        for j in np.flatnonzero(self.kind == OWN):
            each[j] = self.jobs[j].utility.value(float(x[j])) if x[j] > 0 else 0.0
        return np.asarray(each * self.span)

    def slope(self, work: Floats) -> Floats:
        """Its derivative; ``work`` must be positive. Shape [N]."""
        x, v, s = work / self.span, self.v, self.shape
        each = np.select(
            [self.kind == POWER, self.kind == LOG, self.kind == SATURATING],
            [v * s * x ** (s - 1.0), v / (s + x), v / s * np.exp(-x / s)],
        )
        for j in np.flatnonzero(self.kind == OWN):
            each[j] = self.jobs[j].utility.slope(float(x[j]))
        return np.asarray(each)

    def best(self, w: Floats, cap: Floats) -> Floats:
        """The work at which the slope falls to w, within [0, cap]; shape [N]."""
        v, s = self.v, self.shape
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            x = np.select(
                [self.kind == POWER, self.kind == LOG, self.kind == SATURATING],
                [
                    np.where(
                        s < 1,
                        np.exp(np.log(v * s / w) / np.maximum(1.0 - s, 1e-300)),
                        np.where(v > w, np.inf, 0.0),
                    ),
                    v / w - s,
                    s * np.log(v / (s * w)),
                ],
            )
        work = np.clip(np.nan_to_num(x, nan=0.0, posinf=np.inf) * self.span, 0.0, cap)
        for j in np.flatnonzero(self.kind == OWN):
            low, high, slope = 0.0, float(cap[j]), self.jobs[j].utility.slope
            for _ in range(BISECTIONS):
                middle = 0.5 * (low + high)
                if not low < middle < high:
                    break
                low, high = (middle, high) if slope(middle / self.span[j]) > w[j] else (low, middle)
            work[j] = low
        return np.asarray(work)

    def conjugate(self, w: Floats, cap: Floats) -> Floats:
        """f*(w), shape [N]; for a utility of one's own exact up to the rounding of a bisection."""
        work = self.best(w, cap)
        at_ends = np.maximum(self.value(cap) - w * cap, 0.0)
        return np.asarray(np.maximum(self.value(work) - w * work, at_ends))
