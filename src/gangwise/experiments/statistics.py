"""Estimates over seeds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Estimate", "mean_and_interval"]


class Estimate(NamedTuple):
    """A mean over seeds with its 95 % confidence interval; no interval from a single seed."""

    mean: float
    low: float | None
    high: float | None

    @property
    def half(self) -> float | None:
        """Half the width of the interval."""
        return None if self.high is None else self.high - self.mean

    def __format__(self, spec: str) -> str:
        """Format as ``mean ± half``.

        >>> f"{Estimate(2.0, 1.5, 2.5):.1f}"
        '2.0 ± 0.5'
        """
        mean = format(self.mean, spec)
        return mean if self.half is None else f"{mean} ± {format(self.half, spec.lstrip('+'))}"


def mean_and_interval(values: npt.ArrayLike) -> Estimate:
    """Mean and Student's t interval of independent values, one for each seed.

    Examples
    --------
    >>> mean_and_interval([1.0, 2.0, 3.0]).mean
    2.0
    """
    x = np.asarray(values, dtype=np.float64)
    mean = float(x.mean())
    if x.size < 2 or not np.isfinite(x).all():
        return Estimate(mean, None, None)
    from scipy.special import stdtrit

    half = float(stdtrit(x.size - 1, 0.975) * x.std(ddof=1) / np.sqrt(x.size))
    return Estimate(mean, mean - half, mean + half)
