"""Paired differences as a dot plot: a dot and its interval for each policy, on one axis with zero.

Laid out by the page itself, in per cent of the width, so that it fits every screen, needs no script
and can be read as a table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from matplotlib.ticker import MaxNLocator

from gangwise.experiments.statistics import Estimate, decimals_for, estimate_text, number

MOST = 40
"""Rows of a plot."""


class Dot(NamedTuple):
    """A row: where its dot and the ends of its interval are, in per cent of the width."""

    name: str
    at: float
    low: float
    high: float
    text: str
    clear: bool
    """Whether the interval leaves zero out."""


class Dots(NamedTuple):
    """A plot: rows, ticks with their places, the place of zero."""

    title: str
    caption: str
    rows: tuple[Dot, ...]
    ticks: tuple[tuple[float, str], ...]
    zero: float


def dots(title: str, found: Mapping[str, Estimate], caption: str) -> Dots | None:
    """The plot of some differences, the smallest first; None without any.

    Examples
    --------
    >>> drawn = dots("Lead, %", {"a": Estimate(5.0, 2.0, 8.0), "b": Estimate(1.0, -1.0, 3.0)}, "")
    >>> [(row.name, row.clear) for row in drawn.rows], [label for _, label in drawn.ticks]
    ([('b', False), ('a', True)], ['−2', '0', '2', '4', '6', '8'])
    """
    known = {name: each for name, each in found.items() if math.isfinite(each.mean)}
    if not known:
        return None
    of = dict(sorted(known.items(), key=lambda item: item[1].mean)[:MOST])
    ends = [0.0, *(each.mean for each in of.values())]
    ends += [end for each in of.values() for end in (each.low, each.high) if end is not None]
    values = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(min(ends), max(ends))
    low, high = float(values[0]), float(values[-1])
    decimals = next(
        d for d in range(9) if all(abs(round(v, d) - v) < 1e-9 for v in values) or d > 7
    )
    digits = max(1, decimals_for(list(of.values())))

    def place(value: float) -> float:
        return round(100 * (value - low) / (high - low), 2)

    rows = []
    for name, each in of.items():
        text = estimate_text(each, digits, True)
        if each.low is None or each.high is None:
            at = place(each.mean)
            rows.append(Dot(name, at, at, at, text, False))
        else:
            clear = each.low > 0 or each.high < 0
            ends_of = (place(each.low), place(each.high))
            rows.append(Dot(name, place(each.mean), *ends_of, text, clear))
    ticks = tuple((place(float(v)), number(float(v), decimals)) for v in values)
    return Dots(title, caption, tuple(rows), ticks, place(0.0))
