"""Measures by name: the numbers of claims and lines of figures, from an experiment's runs.

A measure takes results, the policy whose number it is, and the parameters that stand with its
name in the table of a paper. It gives a number for each seed, or an estimate over them. All are
paired: each seed is the same arrivals and the same noise for every policy. Sums come from
cumulative curves, which are recorded at some slots and interpolated between them.

Parameters with one meaning everywhere: ``over``, ``base``, ``than`` and ``of`` are what the policy
is compared with; ``cell`` is values of the settings that vary, or the place of a ``case`` of the
experiment; ``among`` chooses values of the setting that varies, in this order; ``at`` is a slot,
and ``parts`` are slots T/part; ``also`` is all results that are measured together, of which
``results`` are the last.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, product
from typing import Any

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats
from gangwise.core.errors import StoreError
from gangwise.study.results import Results
from gangwise.study.statistics import Estimate, mean_and_interval

Cell = Mapping[str, Any]
ALL: Cell = {}
"""The only cell of results in which nothing varies."""


@lru_cache(maxsize=64)
def _cumulative(results: Results, metric: str) -> dict[tuple[Any, ...], tuple[Floats, Floats]]:
    """Slots [n] and sums over them [seeds, n], by the values of the cell and the policy."""
    rows = results.rows().filter(pl.col("metric") == f"{metric}.cumulative").sort("seed", "at")
    curves = {}
    for group, part in rows.collect().group_by([*results.cells, "policy"], maintain_order=True):
        at = part["at"].unique().sort().to_numpy().astype(np.float64)
        # Rows are sorted by seed, and each seed has the same slots: one row for each.
        curves[group] = at, part["value"].to_numpy().reshape(-1, at.size)
    return curves


def _curve(results: Results, who: str, metric: str, cell: Cell) -> tuple[Floats, Floats]:
    curves = _cumulative(results, metric)
    # Names in the order of the results: a cell may be written in any.
    key = (*(cell[name] for name in results.cells), who)
    if key not in curves:
        raise StoreError(f"no curve of {metric} for {who} in {dict(cell)}")
    return curves[key]


def in_cell(results: Results, rows: pl.DataFrame, cell: Cell) -> pl.DataFrame:
    """The rows of a cell, whose ``case`` stands for the settings that vary together in it."""
    chosen = {key: value for key, value in cell.items() if key != "case"}
    if "case" in cell:
        chosen |= results.experiment["cases"][cell["case"]]
    return rows.filter(pl.lit(True), **chosen)


def metric(results: Results, who: str, metric: str, cell: Cell = ALL, unit: float = 1.0) -> Floats:
    """A metric that has one number per run, in a unit; shape [seeds]."""
    rows = in_cell(results, results.per_seed(metric), {**cell, "policy": who})
    return rows.sort("seed")["value"].to_numpy() / unit


def recorded(results: Results, who: str) -> Floats:
    """The slots at which curves were recorded, where nothing varies; the last is T."""
    return _curve(results, who, "reward", ALL)[0]


def slots_played(results: Results) -> float:
    return float(results.runs[0]["slots"])


def values(results: Results, key: str) -> list[Any]:
    return sorted({run["cell"][key] for run in results.runs})


def cells(results: Results, among: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """The cells of results in which one setting varies: all of them, or those played of some."""
    (key,) = results.cells
    played = values(results, key)
    return [{key: x} for x in ([x for x in among if x in played] if among else played)]


def total(
    results: Results, who: str, at: float | None = None, metric: str = "reward", cell: Cell = ALL
) -> Floats:
    """Sum over the first ``at`` slots, or over all; shape [seeds]."""
    slots, sums = _curve(results, who, metric, cell)
    if at is None:
        return sums[:, -1]
    # Sums are recorded at some slots only; between two of them they are taken as linear.
    return np.array([np.interp(at, slots, row) for row in sums])


def between(
    results: Results, who: str, first: float, last: float, metric: str = "reward"
) -> Floats:
    """Mean over the slots after ``first`` up to ``last``; shape [seeds]."""
    end = total(results, who, last, metric)
    return (end - total(results, who, first, metric)) / (last - first)


def average(results: Results, who: str, at: float) -> Floats:
    """Mean over the first ``at`` slots; shape [seeds]."""
    return total(results, who, at) / at


LARGEST_PERCENTAGE = 500.0
"""Beyond it the whole is next to nothing, and a percentage of it says nothing."""

NO_PERCENTAGE = Estimate(math.nan, None, None)


def percentage(percent: Floats, whole: Floats) -> Estimate:
    """Mean over seeds of a percentage; none (NaN) of a whole that is negative or near zero."""
    # One seed with a whole near zero would rule the mean.
    if whole.min() <= 0 or np.abs(percent).max() > LARGEST_PERCENTAGE:
        return NO_PERCENTAGE
    return mean_and_interval(percent)


def least(estimates: Iterable[Estimate]) -> Estimate:
    """Estimate with the smallest mean; NaN if one of them is."""
    listed = list(estimates)
    unknown = [candidate for candidate in listed if math.isnan(candidate.mean)]
    return unknown[0] if unknown else min(listed, key=lambda estimate: estimate.mean)


def from_base(earned: Floats, base: Floats) -> Estimate:
    """Mean of what was earned, with the interval of its distance from what the base earned.

    Scenarios differ far more from seed to seed than policies do in any of them, and by the same for
    all: what tells policies apart is the distance from what another one earned there.
    """
    # Paired by seed: what seeds have in common cancels in the difference.
    mean, distance = float(earned.mean()), mean_and_interval(base - earned)
    if distance.half is None or np.array_equal(earned, base):
        return Estimate(mean, None, None)
    return Estimate(mean, mean - distance.half, mean + distance.half)


def earned(
    results: Results,
    who: str,
    base: str,
    at: float | None = None,
    cell: Cell = ALL,
    average: bool = False,
) -> Estimate:
    """Reward up to a slot, in all or on average per slot, see :func:`from_base`."""
    slots = (at or slots_played(results)) if average else 1.0
    ours, theirs = (total(results, policy, at, cell=cell) / slots for policy in (who, base))
    return from_base(ours, theirs)


def ratio(results: Results, who: str, of: str, at: float | None = None, cell: Cell = ALL) -> Floats:
    """Reward of ``of`` over that of the policy."""
    return total(results, of, at, cell=cell) / total(results, who, at, cell=cell)


def _points(
    results: Results, who: str, slot: float | None, parts: Sequence[float], cell: Cell
) -> Iterator[dict[str, Any]]:
    """Points at which sums are compared: a cell, every cell, a slot, or parts of T."""
    if cell:
        yield {"cell": cell}
    elif results.cells:
        yield from ({"cell": chosen} for chosen in cells(results))
    elif slot is not None:
        yield {"at": slot}
    elif tuple(parts) == (1,):
        yield {}
    else:
        T = float(recorded(results, who)[-1])
        yield from ({"at": T / part} for part in parts)


def lead(
    results: Results,
    who: str,
    over: Sequence[str],
    slot: float | None = None,
    parts: Sequence[float] = (1,),
    cell: Cell = ALL,
    also: Sequence[Results] = (),
) -> Estimate:
    """The smallest lead over any of some policies in any cell or at any part of T, in per cent."""
    leads = []
    for result in also or (results,):
        for point, base in product(_points(result, who, slot, parts, cell), over):
            a, b = total(result, who, **point), total(result, base, **point)
            # |b|: a lead over a loss is a lead, whatever the sign of the whole.
            leads.append(percentage(100 * (a - b) / np.abs(b), b))
    return least(leads)


def lead_of_best(results: Results, who: str, among: Sequence[str], over: Sequence[str]) -> Estimate:
    """Lead of the best of some policies over the best of others, in per cent."""
    means = {label: float(total(results, label).mean()) for label in (*among, *over)}
    return lead(results, max(among, key=means.__getitem__), [max(over, key=means.__getitem__)])


def change(results: Results, who: str, among: Sequence[Any] = ()) -> Estimate:
    """The smallest change from a value of the setting to the next one, in per cent."""
    sums = [total(results, who, cell=cell) for cell in cells(results, among)]
    return least(percentage(100 * (b - a) / np.abs(a), a) for a, b in pairwise(sums))


def average_change(results: Results, who: str, parts: Sequence[float]) -> Estimate:
    """The smallest change of the average per slot from a part of T to the next one, in per cent."""
    T = float(recorded(results, who)[-1])
    averages = [average(results, who, T / part) for part in parts]
    return least(percentage(100 * (b / a - 1), a) for a, b in pairwise(averages))


def ratio_change(
    results: Results, who: str, over: str, parts: Sequence[float] = (), among: Sequence[Any] = ()
) -> Estimate:
    """Growth of the ratio to another policy between two points, in points of a per cent."""
    if parts:
        T = float(recorded(results, who)[-1])
        points: list[dict[str, Any]] = [{"at": T / part} for part in parts]
    else:
        points = [{"cell": cell} for cell in cells(results, among)]
    wholes = [total(results, over, **p) for p in points]
    before, after = (total(results, who, **p) / w for p, w in zip(points, wholes, strict=True))
    return percentage(100 * (after - before), np.concatenate(wholes))


def late_lead(results: Results, who: str, over: str) -> Estimate:
    """Lead over another policy in the second half of the slots, in per cent."""
    T = float(recorded(results, who)[-1])
    ours, theirs = (between(results, policy, T / 2, T) for policy in (who, over))
    return percentage(100 * (ours / theirs - 1), theirs)


def late_share(results: Results, who: str, of: str, metric: str = "reward") -> Floats:
    """Reward in the second half of the slots, in per cent of that of ``of`` there."""
    T = float(recorded(results, of)[-1])
    return share_between(results, who, of, (T / 2, T), metric)


def share_between(
    results: Results, who: str, of: str, interval: tuple[float, float], metric: str = "mean_utility"
) -> Floats:
    """A metric between two slots, in per cent of the reward of ``of`` there."""
    return 100 * between(results, who, *interval, metric) / between(results, of, *interval)


def flattening(results: Results, who: str) -> Estimate:
    """Rise of the average per slot from T/80 to T/2 less that after it, in per cent of its end."""
    T = float(recorded(results, who)[-1])
    # A curve that flattens rises more in the early part than in the late one.
    low, middle, high = (average(results, who, at) for at in (T / 80, T / 2, T))
    return percentage(100 * ((middle - low) - (high - middle)) / high, high)


def swing(results: Results, who: str) -> Estimate:
    """Largest less smallest average over slots 1 to 50, in per cent of the average at the end."""
    # Both papers speak of rewards that oscillate at first, and of no number of slots.
    averages = np.array([average(results, who, at) for at in range(1, 51)])
    spread = averages.max(axis=0) - averages.min(axis=0)
    end = average(results, who, recorded(results, who)[-1])
    return percentage(100 * spread / end, end)


def exponents(x: Sequence[float], y: Sequence[Floats]) -> Floats:
    """Slope of y [n, seeds] against x [n] on logarithmic axes, seed by seed."""
    # A power law is a straight line on logarithmic axes, and its exponent the slope.
    slopes: Floats = np.polyfit(np.log(np.array(x, dtype=np.float64)), np.log(np.array(y)), 1)[0]
    return slopes


def exponent(
    results: Results, who: str, metric: str = "reward", among: Sequence[Any] = ()
) -> Floats:
    """Exponent of a metric in the setting that varies; shape [seeds]."""
    chosen = cells(results, among)
    sums = [total(results, who, None, metric, cell) for cell in chosen]
    return exponents([x for cell in chosen for x in cell.values()], sums)


def time_of_slots(
    results: Results, who: str, cell: Cell = ALL, slots: int = 1, unit: float = 1.0
) -> Floats:
    """Time of so many slots, in units of so many microseconds; shape [seeds]."""
    return slots * metric(results, who, "us_per_slot", cell) / unit
