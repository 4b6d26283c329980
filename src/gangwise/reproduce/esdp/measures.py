"""ESDP's own measures: regret, shares of the optimum, and what is drawn of both.

Whatever is earned, the optimum of the same seeds stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gangwise.experiments.results import Results
from gangwise.experiments.statistics import Estimate
from gangwise.reproduce import measures
from gangwise.reproduce.esdp.study import BASELINES, OPTIMUM, PLAYED
from gangwise.reproduce.measures import curve, from_optimum, so_far, table, values

if TYPE_CHECKING:
    import polars as pl


Floats = npt.NDArray[np.float64]

AOU, DISTANCE = "AOU, summed over slots", "(± of the distance to the optimum)"
"""A label of axes, and what titles say of intervals, see :func:`from_optimum`."""


def regret(results: Results, who: str, at: float | None = None, **cell: Any) -> Floats:
    """Pseudo-regret (6): means of x*(t) less means of what was played; shape [seeds]."""
    best = so_far(results, "omniscient", at, **cell)
    return best - so_far(results, who, at, "mean_utility", **cell)


def share(results: Results, who: str, **cell: Any) -> Floats:
    """What was earned as a share of what the best choices for the true means earned, in %."""
    return 100 * so_far(results, who, **cell) / so_far(results, OPTIMUM, **cell)


def smallest_lead(
    results: Results, who: str, key: str, over: Iterable[str] = tuple(BASELINES.values())
) -> Estimate:
    """The smallest lead over any baseline at any value of a setting, in per cent."""
    return measures.smallest_lead(results, who, key, over)


def curves(
    panels: Mapping[str, Results], average: bool = False, lines: Sequence[str] = PLAYED
) -> pl.DataFrame:
    """What was earned up to each recorded slot, in all or on average per slot."""
    rows = []
    for panel, results in panels.items():
        best = curve(results, OPTIMUM, "reward", {})[1]
        for who in lines:
            slots, sums = curve(results, who, "reward", {})
            per = slots if average else np.ones_like(slots)
            rows += [
                (panel, who, x, from_optimum(ours / p, theirs / p))
                for x, p, ours, theirs in zip(slots, per, sums.T, best.T)
            ]
    return table(rows)


def points(panels: Mapping[str, Results], key: str, lines: Sequence[str] = PLAYED) -> pl.DataFrame:
    """What was earned in all, against a setting."""
    return table(
        [
            (
                panel,
                who,
                float(x),
                from_optimum(*(so_far(results, each, **{key: x}) for each in (who, OPTIMUM))),
            )
            for panel, results in panels.items()
            for who in lines
            for x in values(results, key)
        ]
    )
