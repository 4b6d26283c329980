"""Estimates over seeds."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Interval = Literal["t", "bootstrap"]

RESAMPLES = 10_000


class Estimate(NamedTuple):
    """A mean over seeds with its 95 % confidence interval; no interval from a single seed."""

    mean: float
    low: float | None
    high: float | None

    @property
    def half(self) -> float | None:
        """Half the width of the interval."""
        return None if self.high is None or self.low is None else (self.high - self.low) / 2

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


def bootstrap(values: npt.ArrayLike) -> Estimate:
    """Mean and percentile bootstrap interval: seeds are drawn again with replacement.

    It assumes no normal distribution, but of few seeds it is too narrow: with 5 of them take
    :func:`mean_and_interval`. The draws are fixed, so the same values give the same interval.

    Examples
    --------
    >>> bootstrap([1.0, 2.0, 3.0]).low
    1.0
    """
    x = np.asarray(values, dtype=np.float64)
    mean = float(x.mean())
    if x.size < 2 or not np.isfinite(x).all():
        return Estimate(mean, None, None)
    drawn = np.random.default_rng(0).integers(0, x.size, (RESAMPLES, x.size))
    low, high = np.quantile(x[drawn].mean(axis=1), [0.025, 0.975])
    return Estimate(mean, float(low), float(high))


def estimate(values: npt.ArrayLike, interval: Interval = "t") -> Estimate:
    """Mean with the interval asked for; of paired differences, this is a paired comparison."""
    return bootstrap(values) if interval == "bootstrap" else mean_and_interval(values)
