"""Statistics over seeds: estimates with confidence intervals, and how they are told.

Numbers have as many digits as their intervals can carry, and no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from gangwise.core.errors import ScenarioError

Interval = Literal["t", "bootstrap"]

RESAMPLES = 10_000
LEAST_FOR_BOOTSTRAP = 10


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
    half = float(stdtrit(x.size - 1, 0.975) * x.std(ddof=1) / np.sqrt(x.size))
    return Estimate(mean, mean - half, mean + half)


def bootstrap(values: npt.ArrayLike) -> Estimate:
    """Mean and percentile bootstrap interval: seeds are drawn again with replacement.

    It assumes no normal distribution, but of few seeds it is too narrow: of 2 to 9 normal values
    it covers the mean in 50 to 88 % of cases instead of 95 %. The draws are fixed, so the same
    values give the same interval.

    Raises
    ------
    ScenarioError
        For 2 to 9 values; take :func:`mean_and_interval`.

    Examples
    --------
    >>> bootstrap(range(10)).low
    2.7
    """
    x = np.asarray(values, dtype=np.float64)
    mean = float(x.mean())
    if x.size < 2 or not np.isfinite(x).all():
        return Estimate(mean, None, None)
    if x.size < LEAST_FOR_BOOTSTRAP:
        raise ScenarioError(
            f"a bootstrap interval of {x.size} seeds would be too narrow; take "
            f"{LEAST_FOR_BOOTSTRAP} seeds, or Student's interval, which is the default"
        )
    drawn = np.random.default_rng(0).integers(0, x.size, (RESAMPLES, x.size))
    low, high = np.quantile(x[drawn].mean(axis=1), [0.025, 0.975])
    return Estimate(mean, float(low), float(high))


BATCHES = 20


def batch_means(values: npt.ArrayLike) -> Estimate:
    """Mean of a series in time with the interval of batch means.

    Slots depend on one another, so that an interval over them would be too narrow; the means of
    :data:`BATCHES` long stretches hardly do. No interval of fewer than two slots a batch.

    Examples
    --------
    >>> batch_means([1.0] * 39).low is None, batch_means([1.0, 3.0] * 20)
    (True, Estimate(mean=2.0, low=2.0, high=2.0))
    """
    x = np.asarray(values, dtype=np.float64)
    if x.size < 2 * BATCHES:
        return Estimate(float(x.mean()), None, None)
    found = mean_and_interval([part.mean() for part in np.array_split(x, BATCHES)])
    shift = float(x.mean()) - found.mean  # batches differ by a slot in length
    return Estimate(float(x.mean()), *(e if e is None else e + shift for e in found[1:]))


def estimate(values: npt.ArrayLike, interval: Interval = "t") -> Estimate:
    """Mean with the interval asked for; of paired differences, this is a paired comparison."""
    return bootstrap(values) if interval == "bootstrap" else mean_and_interval(values)


def paired(
    values: npt.ArrayLike, others: npt.ArrayLike, interval: Interval = "t"
) -> tuple[Estimate, bool]:
    """How much more values are than others, seed by seed; whether that is in per cent.

    A percentage of what is not positive, or not finite, would say nothing: then it is a plain
    difference.

    Examples
    --------
    >>> paired([3.0, 6.0], [2.0, 4.0])
    (Estimate(mean=50.0, low=50.0, high=50.0), True)
    >>> paired([3.0, 6.0], [0.0, 4.0])[1]
    False
    """
    a, b = (np.asarray(each, dtype=np.float64) for each in (values, others))
    percent = bool((b > 0).all() and np.isfinite(b).all())
    return estimate(100 * (a / b - 1) if percent else a - b, interval), percent


NOTHING = "–"
"""Stands where a number would say nothing."""

_SCALES = ((1e9, "billions"), (1e6, "millions"), (1e3, "thousands"))


def number(value: float, decimals: int = 0, sign: bool = False) -> str:
    """A number with thousands separators and a true minus sign.

    >>> number(-178332.4), number(0.26, 1, sign=True), number(-0.04, 1), number(float("nan"))
    ('−178,332', '+0.3', '0.0', '–')
    """
    if not math.isfinite(value):
        return NOTHING
    value = round(value, decimals) + 0.0  # + 0.0 turns -0.0 into 0.0
    return f"{value:{'+' if sign and value else ''},.{decimals}f}".replace("-", "−")


def decimals_for(estimates: Iterable[Estimate]) -> int:
    """Decimals that a column of estimates deserves, from 0 to 4.

    The middle interval is shown with two digits where it starts with 1, 2 or 3 and with one digit
    otherwise; one decimal more where a narrower interval needs it. The largest number is shown with
    two digits at least, and with four where there is no interval.

    >>> decimals_for([Estimate(2819.3, 2807.1, 2831.5)])
    0
    >>> decimals_for([Estimate(25.04, 24.23, 25.85), Estimate(3.0, 2.9, 3.1)])
    1
    >>> decimals_for([Estimate(5.04, -2.0, 12.1)])
    1
    """
    known = [e for e in estimates if math.isfinite(e.mean)]
    largest = max((abs(e.mean) for e in known), default=0.0)
    halves = [half for e in known if (half := e.half) is not None and half > 0]
    if halves:
        middle = _decimals(median(halves), 2 if _first_digit(median(halves)) <= 3 else 1)
        wanted = min(max(middle, _decimals(min(halves), 1)), middle + 1)
        wanted = max(wanted, _decimals(largest, 2))
    else:
        wanted = _decimals(largest, 4)
    return min(max(wanted, 0), 4)


def estimate_text(estimate: Estimate, decimals: int, sign: bool = False) -> str:
    """Mean, and half the width of the interval where there is one.

    >>> estimate_text(Estimate(25.04, 24.23, 25.85), 1, sign=True)
    '+25.0 ± 0.8'
    """
    mean = number(estimate.mean, decimals, sign)
    half = estimate.half
    if half is None or mean == NOTHING:
        return mean
    if 0 < half < 0.5 * 10**-decimals:
        return f"{mean} ± <{10**-decimals:.{decimals}f}"
    return f"{mean} ± {number(half, decimals)}"


def scale_for(values: Sequence[float]) -> tuple[float, str]:
    """A unit that keeps a column of large numbers narrow, and its name; (1, "") for small ones.

    >>> scale_for([-178332.4, 20149.1]), scale_for([1234.0])
    ((1000.0, 'thousands'), (1.0, ''))
    """
    largest = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    for unit, name in _SCALES:
        if largest >= 20 * unit:
            return unit, name
    return 1.0, ""


def small_share(share: float) -> str:
    """A share near zero as a percentage, rounded up to one digit.

    >>> small_share(9.65e-07), small_share(0.0213), small_share(0)
    ('0.0001 %', '3 %', '0 %')
    """
    percent = 100 * share
    if percent <= 0:
        return "0 %"
    digits = max(0, -math.floor(math.log10(percent)))
    if digits > 8:
        return "0.00000001 %"
    up = math.ceil(round(percent * 10**digits, 6)) / 10**digits
    return f"{up:.{digits}f}".rstrip("0").rstrip(".") + " %" if digits else f"{up:.0f} %"


def _first_digit(value: float) -> int:
    return int(value / 10 ** math.floor(math.log10(value)))


def _decimals(value: float, digits: int) -> int:
    """Decimals that show a value with so many digits."""
    return digits - 1 - math.floor(math.log10(value)) if value > 0 else 0


def verdict(row: Mapping[str, Any], unit: str = " per slot") -> str:
    """A row of :meth:`~gangwise.experiments.results.Results.improvements` in words.

    ``unit`` is of differences that are no percentages.

    >>> row = {
    ...     "policy": "A",
    ...     "over": "B",
    ...     "seeds": 20,
    ...     "percent": True,
    ...     "mean": 12.1,
    ...     "low": 11.3,
    ...     "high": 12.9,
    ... }
    >>> verdict(row)
    'A beats B by 12.1 % ± 0.8 (20 seeds)'
    >>> verdict({**row, "low": -0.5, "high": 24.7})
    'A and B cannot be told apart: +12.1 % ± 12.6 (20 seeds)'
    >>> verdict({**row, "mean": -12.1, "low": -12.9, "high": -11.3})
    'A falls behind B by 12.1 % ± 0.8 (20 seeds)'
    >>> verdict({**row, "seeds": 1, "percent": False, "low": None, "high": None})
    'A beats B by 12.10 per slot (1 seed)'
    """
    found = Estimate(row["mean"], row["low"], row["high"])
    a, b, n = row["policy"], row["over"], row["seeds"]
    seeds = "1 seed" if n == 1 else f"{n} seeds"
    apart = found.low is None or found.high is None or found.low > 0 or found.high < 0
    shown = found
    beats = "beats"
    if apart and found.mean < 0:
        beats = "falls behind"  # not "B beats A": the percentage is of B
        low, high = (None if end is None else -end for end in (found.high, found.low))
        shown = Estimate(-found.mean, low, high)
    text = estimate_text(shown, max(1, decimals_for([shown])), sign=not apart)
    mean, _, half = text.partition(" ± ")
    percent = " %" if row["percent"] else ""
    amount = f"{mean}{percent}{f' ± {half}' if half else ''}{'' if percent else unit}"
    if not apart:
        return f"{a} and {b} cannot be told apart: {amount} ({seeds})"
    return f"{a} {beats} {b} by {amount} ({seeds})"
