"""Statistics over seeds: estimates with confidence intervals, and how they are written.

A number has as many digits as its interval justifies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.core.settings import finite
from gangwise.notation import roughly


class Estimate(NamedTuple):
    """A mean over seeds with its 95 % confidence interval; no interval from a single seed."""

    mean: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, row: Mapping[str, Any], name: str = "") -> Estimate:
        """The estimate in a row of a table: ``mean``, ``low`` and ``high``, or those of a column.

        >>> Estimate.of({"reward": 2.0, "reward.low": 1.0, "reward.high": 3.0}, "reward")
        Estimate(mean=2.0, low=1.0, high=3.0)
        """
        keys = (name, f"{name}.low", f"{name}.high") if name else ("mean", "low", "high")
        return cls(*(row[key] for key in keys))

    @property
    def half(self) -> float | None:
        return None if self.high is None or self.low is None else (self.high - self.low) / 2

    @property
    def lopsided(self) -> bool:
        """Whether the interval reaches so much further on one side that ± would mislead."""
        if self.low is None or self.high is None:
            return False
        below, above = self.mean - self.low, self.high - self.mean
        return max(below, above) > 1.25 * min(below, above) > 0

    def __format__(self, spec: str) -> str:
        """Format as ``mean ± half``, such as ``2.0 ± 0.5``."""
        mean = format(self.mean, spec)
        return mean if self.half is None else f"{mean} ± {format(self.half, spec.lstrip('+'))}"


UNKNOWN = Estimate(math.nan, None, None)
"""An estimate from nothing, or one that would say nothing."""


@cache
def students_t(degrees: float) -> float:
    """The 97.5 % quantile of Student's t.

    t = √(ν (1 − x) ÷ x), where the regularised incomplete beta function I_x(ν/2, 1/2) is 5 %.

    >>> round(students_t(9), 6), round(students_t(1), 4)
    (2.262157, 12.7062)
    """
    # 1 − x is bisected: for many degrees of freedom x is near 1.
    low, high = 0.0, 1.0
    while (middle := (low + high) / 2) not in (low, high):
        if _incomplete_beta(0.5, degrees / 2, middle) < 0.95:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees * middle / (1 - middle))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b) by its continued fraction (Abramowitz and Stegun 26.5.8), evaluated by Lentz."""
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    if x <= 0.0:
        return 0.0
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(logarithm + a * math.log(x) + b * math.log1p(-x)) / a
    fraction, c, d = 1.0, 1.0, 0.0
    for n in range(1, 1000):
        m = n // 2
        if n % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / (1.0 + term * d)
        c = 1.0 + term / c
        fraction *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return front / fraction


def mean_and_interval(values: npt.ArrayLike) -> Estimate:
    """Mean and Student's t interval of independent values, one for each seed.

    >>> mean_and_interval([1.0, 2.0, 3.0]).mean
    2.0
    """
    x = np.asarray(values, dtype=np.float64)
    mean = float(x.mean())
    # One seed says nothing of how seeds differ.
    if x.size < 2 or not np.isfinite(x).all():
        return Estimate(mean, None, None)
    # Student: t · s ÷ √n, with the standard deviation of n − 1 degrees of freedom.
    half = students_t(x.size - 1) * float(x.std(ddof=1)) / math.sqrt(x.size)
    return Estimate(mean, mean - half, mean + half)


BATCHES = 20


def batch_means(values: npt.ArrayLike) -> Estimate:
    """Mean of a series in time with the interval of batch means.

    Slots depend on one another, so that an interval over them would be too narrow; the means of
    :data:`BATCHES` long stretches hardly do. No interval where a batch has fewer than two slots.

    >>> batch_means([1.0] * 39).low is None, batch_means([1.0, 3.0] * 20)
    (True, Estimate(mean=2.0, low=2.0, high=2.0))
    """
    x = np.asarray(values, dtype=np.float64)
    if x.size < 2 * BATCHES:
        return Estimate(float(x.mean()), None, None)
    batches = mean_and_interval([part.mean() for part in np.array_split(x, BATCHES)])
    shift = float(x.mean()) - batches.mean  # batches differ by a slot in length
    return Estimate(float(x.mean()), *(e if e is None else e + shift for e in batches[1:]))


STRETCHES, LEAST_WEEKS = 13, 8
"""Stretches of equal length that a log is cut into, of a week at least; and the fewest weeks. They
grow with the log, so that what one leaves in the queue of the next is little against its own."""
LEAST_BLOCKS = 8  # an interval needs so many of them, by the jobs that they hold
DRIFTING = 2.5
"""Factor by which the load's ups and downs may widen an interval; beyond it there is none."""
REGULAR = 20  # weeks; in fewer, ups and downs of months look like a trend or a cycle
HELD = "72 to 100 % hold the truth, by the kind of site, instead of 95 %"
"""Of intervals with this caveat, as measured on twenty kinds of drawn sites."""
STEEP = 4.0  # a trend is so many of its standard errors
REPEATED = 0.8  # of the variance of the logarithm of weeks' jobs, where they repeat
HEAVIEST = 2.0  # factor by which an interval is widened at most for rare heavy weeks
RARE, NOISE = 1.9, 0.9
"""Factor of heavy weeks from which they are rare for certain; what is left of smaller ones."""
BEND = 3.0
"""Changes of fewer standard errors than this are about normal, larger ones are on a log scale.

These six were chosen on twelve drawn sites and judged on others: docs/how-to/replay.md."""
WIDEST = 100.0
"""Factor between the ends of an interval beyond which none is given."""


class Stretches(NamedTuple):
    """Stretches of a log: how many, what widens an interval over them, or why there is none.

    ``caveat``: why an interval may hold the truth less often than 95 % of the time.
    """

    many: int
    widening: float
    reason: str
    caveat: str = ""

    @classmethod
    def of(cls, jobs: npt.ArrayLike, waits: npt.ArrayLike) -> Stretches:
        """Those of a log with these jobs, and seconds of waiting under the base, by day [days].

        >>> Stretches.of([40.0] * 14, [1.0] * 14).reason.partition(",")[0]
        'the log has less than 8 weeks of submissions'
        """
        by_day = np.array([jobs, waits], dtype=np.float64)
        days = by_day.shape[1]
        day, weeks = np.arange(days), max(1, round(days / 7))
        count = min(STRETCHES, weeks)
        # Days that are left over count in the last week.
        of_week, of_stretch = np.minimum(day // 7, weeks - 1), day * count // days
        by_week = np.array([np.bincount(of_week, values) for values in by_day])
        by_stretch = np.array([np.bincount(of_stretch, values) for values in by_day])
        # The last week of a log is hardly ever whole: its seventh day may be missing.
        if days < 7 * LEAST_WEEKS - 1:
            few = f"the log has less than {LEAST_WEEKS} weeks of submissions"
            return cls(count, math.nan, f"{few}, too few for an interval")
        # Stretches of unlike numbers of jobs tell no more than so many alike (Kish).
        if by_stretch[0].sum() ** 2 < LEAST_BLOCKS / STRETCHES * count * (by_stretch[0] ** 2).sum():
            return cls(count, math.nan, "a few days have nearly all jobs, too few for an interval")
        drift = drifting(by_week[0], count)
        if drift > DRIFTING:
            return cls(
                count,
                math.nan,
                "jobs come in ups and downs of months, of which "
                f"{roughly(86400.0 * days)} hold too few for an interval",
            )
        rare = heavy(by_week[1], by_stretch[1], cycle(by_week[0]))
        caveat = ""
        if weeks < REGULAR and weeks_differ(by_day[0]):
            caveat = (
                "the load differs more from week to week than from day to day, and "
                f"{roughly(86400.0 * days)} cannot show for how long: of such intervals {HELD}"
            )
        return cls(count, joint_factor(drift, rare, by_week[0]), "", caveat)


def weeks_differ(jobs: npt.NDArray[np.float64]) -> bool:
    """F test, at 5 %, of the load of weeks against that of the days within them.

    Of the logarithms of the jobs of days, less the mean of their weekday, the share of weeks in the
    sum of squares has a beta distribution if all days are alike.
    """
    weeks = jobs.size // 7
    y = np.log1p(jobs[: 7 * weeks]).reshape(weeks, 7)
    y -= y.mean(axis=0)
    among = 7 * float((y.mean(axis=1) ** 2).sum())
    share = among / max(float((y**2).sum()), 1e-12)
    return _incomplete_beta((weeks - 1) / 2, 3.0 * (weeks - 1), share) > 0.95


def lag_one(y: npt.NDArray[np.float64]) -> float:
    """Correlation of numbers about zero, each with the next."""
    return float((y[1:] * y[:-1]).sum() / max(float((y**2).sum()), 1e-12))


def drifting(jobs: npt.NDArray[np.float64], many: int) -> float:
    """Factor by which standard errors over stretches are too small, for the load persists.

    Where busy weeks follow busy weeks, stretches are alike, and differ less than whole logs do. Of
    a Gaussian series no function correlates more than the series itself (Gebelein 1941), so the
    savings of stretches correlate at most as their load does: that of the logarithm of the jobs of
    a week, of order one, ρ^weeks. ρ̂ is raised by its bias, (1 + 3 ρ̂) ÷ weeks (Kendall 1954).

    Load that grows or falls steadily does the same in other logs as long, and is no persistence: 1
    where a line explains all correlation of :data:`REGULAR` weeks or more.
    """
    # The logarithm of one more, as a week may have no jobs.
    y = np.log1p(jobs)
    y -= y.mean()
    if y.size >= REGULAR:
        at = np.arange(y.size) - (y.size - 1) / 2
        slope = float((at * y).sum() / (at**2).sum())
        rest = y - slope * at
        error = math.sqrt(float((rest**2).sum()) / (y.size - 2) / float((at**2).sum()))
        # White noise about a line has a correlation of −2 ÷ n ± 1 ÷ √n; 95 % have less than this.
        white = lag_one(rest) <= 1.645 / math.sqrt(y.size) - 2 / y.size
        if white and abs(slope) >= STEEP * error:
            return 1.0
    r = lag_one(y)
    # At most 0.97: nearer to 1 the factor would follow the error of ρ̂ alone.
    rho = min(max(r + (1 + 3 * r) / y.size, 0.0), 0.97)
    # Each stretch is a mean over sixteen instants, whose correlation falls with their distance.
    at = np.arange(16 * many) * (y.size / (16 * many))  # weeks: sixteen instants of each stretch
    correlation = rho ** np.abs(np.subtract.outer(at, at))
    of_means = correlation.reshape(many, 16, many, 16).mean(axis=(1, 3))
    # The variance of the mean of all, over what (Σ of squared deviations) ÷ (n (n − 1)) expects.
    together, apart = float(of_means.mean()), float(np.trace(of_means)) / many
    return max(1.0, math.sqrt(together * (many - 1) / (apart - together)))


def cycle(jobs: npt.NDArray[np.float64]) -> int:
    """Weeks after which the jobs of weeks repeat, 2/5 of the log at most; 1 where they do not.

    The shortest whose phases explain :data:`REPEATED` of the variance of their logarithm.
    """
    y = np.log1p(jobs)
    for weeks in range(2, 2 * y.size // 5 + 1 if y.size >= REGULAR else 2):
        if without_cycle(y, weeks).var() < (1 - REPEATED) * y.var():
            return weeks
    return 1


def without_cycle(y: npt.NDArray[np.float64], weeks: int) -> npt.NDArray[np.float64]:
    """Numbers less the mean of those so many weeks apart."""
    phase = np.arange(y.size) % weeks
    return y - (np.bincount(phase, y) / np.bincount(phase))[phase]


def heavy(
    by_week: npt.NDArray[np.float64], by_stretch: npt.NDArray[np.float64], repeats: int = 1
) -> float:
    """Factor by which standard errors are too small, for rare heavy weeks are not in the log.

    Most of the waiting may come from few weeks, and then a log mostly shows too few of them. If the
    waiting of a week is log-normal, with σ² from its logarithms, which few weeks do not decide, the
    logarithm of the sum of n weeks has the variance log(1 + (exp σ² − 1) ÷ n) (Fenton 1960). Its
    root is compared with the standard error that the stretches themselves give. Weeks that are
    heavy after every so many are not rare: their logarithms are compared with one another.
    """
    total = float(by_week.sum())
    # The standard error of the logarithm of the sum, from the stretches as they are.
    share = by_stretch / max(total, 1e-12)
    n = share.size
    error = math.sqrt(n / (n - 1) * float(((share - share.mean()) ** 2).sum()))
    if total <= 0 or error == 0:
        return 1.0
    logarithms = np.log(np.maximum(by_week, 1e-3 * by_week.mean()))  # of a week without waiting
    around = without_cycle(logarithms, repeats)
    # A mean was taken off for each phase.
    variance = float((around**2).sum()) / (around.size - repeats)
    # The exponential of a wild estimate would overflow; the factor is bounded in any case.
    spread = math.expm1(min(variance, 50.0)) / by_week.size
    return min(max(math.sqrt(math.log1p(spread)) / error, 1.0), HEAVIEST)


def joint_factor(drift: float, rare: float, jobs: npt.NDArray[np.float64]) -> float:
    """Factor for a load that persists and for rare heavy weeks together.

    Where weeks of these jobs correlate (one-sided, 95 %) or heavy weeks are rare for certain, both
    are there, and their factors multiply. Else each is mostly the error of its estimate from few
    weeks, which never makes it less than 1: the larger one counts, that of heavy weeks less the
    noise that steady sites show.
    """
    y = np.log1p(jobs)
    correlates = lag_one(y - y.mean()) > (1.645 - 1 / math.sqrt(y.size)) / math.sqrt(y.size)
    if correlates or rare >= RARE:
        return drift * rare
    return max(drift, HEAVIEST - (HEAVIEST - rare) / NOISE, 1.0)


def change_by_blocks(
    values: npt.ArrayLike, others: npt.ArrayLike, widening: float = 1.0, logarithm: bool = True
) -> Estimate:
    """By how many per cent one sum exceeds another, with its interval over stretches of time.

    100 (Σ values / Σ others − 1). Stretch w shifts the logarithm θ of the ratio by eʷ = values_w /
    Σ values − others_w / Σ others to first order, so its standard error is s = √(n / (n − 1) Σ e²).
    It grows with θ: where heavy stretches decide, both are large, and log |θ| is about symmetric.
    So ends are taken on a scale that is linear for small changes and logarithmic for large ones:
    θ = κ sinh z, κ = :data:`BEND` s, z = asinh(θ/κ) ± t·widening·s / √(θ² + κ²), with Student's t
    of n − 1 degrees of freedom and the factor that :class:`Stretches` gives. They never fall below
    −100 %. Without ``logarithm`` Student's of the ratio itself, for sums that may be negative.

    No interval where fewer than :data:`LEAST_BLOCKS` stretches hold anything, where a sum is 0, or
    where the ends are more than a factor of :data:`WIDEST` apart; sums that are the same stretch by
    stretch differ by 0 for certain.

    >>> change_by_blocks([2.0] * 9, [1.0] * 9)
    Estimate(mean=100.0, low=100.0, high=100.0)
    >>> values = [9.0, 8.0, 9.0, 7.0, 9.0, 8.0, 7.0, 9.0]
    >>> f"{change_by_blocks(values, [10.0] * 8):.1f}", change_by_blocks(values[:7], [10.0] * 7).low
    ('-17.5 ± 7.5', None)
    """
    a, b = (np.asarray(end, dtype=np.float64) for end in (values, others))
    n, total = a.size, float(b.sum())
    if total <= 0 or not math.isfinite(total + float(a.sum())):
        return Estimate(math.nan, None, None)
    ratio = float(a.sum()) / total
    mean = 100 * (ratio - 1)
    held_by = int(((a != 0) | (b != 0)).sum())  # stretches
    if held_by < LEAST_BLOCKS and np.array_equal(a, b) and n >= LEAST_BLOCKS:
        return Estimate(mean, mean, mean)
    if held_by < LEAST_BLOCKS or (logarithm and ratio <= 0):
        return Estimate(mean, None, None)
    # To first order a stretch moves log(Σa ÷ Σb) by its share of a less its share of b.
    shift = a / a.sum() - b / total if logarithm else (a - ratio * b) / total
    error = math.sqrt(n / (n - 1) * float((shift**2).sum()))
    if error == 0:
        return Estimate(mean, mean, mean)
    # Delta method: the interval is built on the scale of z and taken back to θ.
    reach = students_t(n - 1) * widening * error
    if not logarithm:
        return Estimate(mean, mean - 100 * reach, mean + 100 * reach)
    theta, bend = math.log(ratio), BEND * error
    z, step = math.asinh(theta / bend), reach / math.hypot(theta, bend)
    low, high = (bend * math.sinh(end) for end in (z - step, z + step))
    if high - low > math.log(WIDEST):
        return Estimate(mean, None, None)
    return Estimate(mean, 100 * math.expm1(low), 100 * math.expm1(high))


def paired(values: npt.ArrayLike, others: npt.ArrayLike) -> tuple[Estimate, bool]:
    """Difference of values and others, seed by seed; and whether that is in per cent.

    It is a plain difference where another value is not positive or not finite.

    >>> paired([3.0, 6.0], [2.0, 4.0])
    (Estimate(mean=50.0, low=50.0, high=50.0), True)
    >>> paired([3.0, 6.0], [0.0, 4.0])[1]
    False
    """
    a, b = (np.asarray(column, dtype=np.float64) for column in (values, others))
    # A percentage of what is not positive says nothing.
    percent = bool((b > 0).all() and np.isfinite(b).all())
    return mean_and_interval(100 * (a / b - 1) if percent else a - b), percent


def numbers(estimate: Estimate) -> dict[str, float | None]:
    """An estimate as JSON has it.

    >>> numbers(Estimate(1.0, None, None))
    {'mean': 1.0, 'low': None, 'high': None}
    """
    plain: dict[str, float | None] = finite(estimate._asdict())
    return plain


def difference(values: npt.ArrayLike, others: npt.ArrayLike) -> dict[str, Any]:
    """Difference of values and others, seed by seed, as JSON has it.

    >>> difference([3.0, 6.0], [2.0, 4.0])
    {'mean': 50.0, 'low': 50.0, 'high': 50.0, 'percent': True, 'seeds': 2}
    """
    estimate, percent = paired(values, others)
    return {**numbers(estimate), "percent": percent, "seeds": np.size(values)}


NOTHING = "–"  # written in place of a number that would mean nothing


def number(value: float, decimals: int = 0, sign: bool = False) -> str:
    """A number with thousands separators and a true minus sign.

    >>> number(-178332.4), number(0.26, 1, sign=True), number(-0.04, 1), number(float("nan"))
    ('−178,332', '+0.3', '0.0', '–')
    """
    if not math.isfinite(value):
        return NOTHING
    value = round(value, decimals) + 0.0  # + 0.0 turns -0.0 into 0.0
    return f"{value:{'+' if sign and value else ''},.{decimals}f}".replace("-", "−")


def count(n: int, one: str, many: str = "") -> str:
    """Number and noun, in the singular or the plural.

    >>> count(1, "seed"), count(3000, "policy", "policies")
    ('1 seed', '3,000 policies')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def enumerated(names: Sequence[str]) -> str:
    """Names as a sentence has them.

    >>> enumerated(["a"]), enumerated(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def over_seeds(seeds: int) -> str:
    """A sentence that says what the ± in a table of means over seeds stands for."""
    if seeds == 1:
        return "One seed: no confidence interval."
    return f"± is half the 95 % confidence interval over {count(seeds, 'seed')}."


def decimals_for(estimates: Iterable[Estimate]) -> int:
    """Decimals of a column of estimates, from 0 to 4.

    The middle interval gets two digits where it starts with 1, 2 or 3 and one digit otherwise; one
    decimal more where a narrower interval needs it. The largest number gets two digits at least,
    and four where there is no interval.

    >>> decimals_for([Estimate(2819.3, 2807.1, 2831.5)])
    0
    >>> decimals_for([Estimate(25.04, 24.23, 25.85), Estimate(3.0, 2.9, 3.1)])
    1
    """

    def shown(value: float, digits: int) -> int:
        return digits - 1 - math.floor(math.log10(value)) if value > 0 else 0

    sound = [e for e in estimates if math.isfinite(e.mean)]
    largest = max((abs(e.mean) for e in sound), default=0.0)
    halves = [half for e in sound if (half := e.half) is not None and half > 0]
    wanted = shown(largest, 4)
    if halves:
        half = median(halves)
        # An interval that starts with 1, 2 or 3 is shown with two digits: one would round by up to
        # a third.
        first_digit = int(half / 10 ** math.floor(math.log10(half)))
        middle = shown(half, 2 if first_digit <= 3 else 1)
        # The narrowest interval may ask for one decimal more, so that it is not shown as 0.
        wanted = min(max(middle, shown(min(halves), 1)), middle + 1)
        wanted = max(wanted, shown(largest, 2))
    return min(max(wanted, 0), 4)


def estimate_text(estimate: Estimate, decimals: int | None = None, sign: bool = False) -> str:
    """Mean, and half the width of the interval where there is one; by default see decimals_for.

    >>> estimate_text(Estimate(25.04, 24.23, 25.85), 1, sign=True)
    '+25.0 ± 0.8'
    """
    decimals = decimals_for([estimate]) if decimals is None else decimals
    mean = number(estimate.mean, decimals, sign)
    half = estimate.half
    if half is None or mean == NOTHING:
        return mean
    if estimate.lopsided:
        low, high = (number(end, decimals, sign) for end in estimate[1:] if end is not None)
        return f"{mean} ({low} to {high})"
    if 0 < half < 0.5 * 10**-decimals:
        return f"{mean} ± <{10**-decimals:.{decimals}f}"
    return f"{mean} ± {number(half, decimals)}"


def scale_for(values: Sequence[float]) -> tuple[float, str]:
    """A unit that keeps a column of large numbers narrow, and its name; (1, "") for small ones.

    >>> scale_for([-178332.4, 20149.1]), scale_for([1234.0])
    ((1000.0, 'thousands'), (1.0, ''))
    """
    largest = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    for unit, name in ((1e9, "billions"), (1e6, "millions"), (1e3, "thousands")):
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
    # Rounded before it is rounded up: 100 · 0.07 is a hair above 7.
    up = math.ceil(round(percent * 10**digits, 6)) / 10**digits
    return f"{up:.{digits}f}".rstrip("0").rstrip(".") + " %" if digits else f"{up:.0f} %"


def turned(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of improvements with its sign turned, for a metric of which less is better."""
    low, high = (None if row[end] is None else -row[end] for end in ("high", "low"))
    return {**row, "mean": -row["mean"], "low": low, "high": high}


def verdict(row: Mapping[str, Any], unit: str = " per slot") -> str:
    """A row of :meth:`~gangwise.study.results.Results.improvements` in words.

    ``unit`` follows differences that are not percentages.

    >>> row = dict(policy="A", over="B", seeds=20, percent=True, mean=12.1, low=11.3, high=12.9)
    >>> verdict(row)
    'A beats B by 12.1 % ± 0.8 (20 seeds)'
    >>> verdict({**row, "low": -0.5, "high": 24.7})
    'A and B cannot be told apart: +12.1 % ± 12.6 (20 seeds)'
    >>> verdict({**row, "mean": -12.1, "low": -12.9, "high": -11.3})
    'A falls behind B by 12.1 % ± 0.8 (20 seeds)'
    >>> verdict({**row, "seeds": 1, "percent": False, "low": None, "high": None})
    'A beats B by 12.10 per slot (1 seed, which may be chance)'
    >>> verdict({**row, "seeds": 1, "mean": 0.0, "low": None, "high": None})
    'A and B are equal (1 seed)'
    """
    mean, low, high = row["mean"], row["low"], row["high"]
    a, b, n = row["policy"], row["over"], row["seeds"]
    seeds = "1 seed" if n == 1 else f"{n} seeds"
    apart = low is None or low > 0 or high < 0
    shown, beats = Estimate.of(row), "beats"
    if apart and mean < 0:
        shown, beats = Estimate.of(turned(row)), "falls behind"  # the percentage is of B
    text = estimate_text(shown, max(1, decimals_for([shown])), sign=not apart)
    mean, _, half = text.partition(" ± ")
    percent = " %" if row["percent"] else ""
    amount = f"{mean}{percent}{f' ± {half}' if half else ''}{'' if percent else unit}"
    if not apart:
        return f"{a} and {b} cannot be told apart: {amount} ({seeds})"
    if not row["mean"]:
        return f"{a} and {b} are equal ({seeds})"
    chance = ", which may be chance" if low is None else ""
    return f"{a} {beats} {b} by {amount} ({seeds}{chance})"
