"""One policy against another, as a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangwise.experiments.statistics import Estimate
from gangwise.report.numbers import decimals_for, estimate_text


def verdict(row: Mapping[str, Any]) -> str:
    """A row of :meth:`~gangwise.experiments.results.Results.improvements` in words.

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
    unit = " %" if row["percent"] else ""
    amount = f"{mean}{unit}{f' ± {half}' if half else ''}{'' if unit else ' per slot'}"
    if not apart:
        return f"{a} and {b} cannot be told apart: {amount} ({seeds})"
    return f"{a} {beats} {b} by {amount} ({seeds})"
