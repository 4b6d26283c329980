"""What was earned by some slot, seed by seed, and estimates made of it.

Cumulative curves are recorded at some slots; between them they are interpolated. All estimates are
paired: each seed is the same arrivals and the same noise for every policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import StoreError
from gangwise.experiments.results import Results
from gangwise.experiments.statistics import Estimate, mean_and_interval

if TYPE_CHECKING:
    import polars as pl


Floats = npt.NDArray[np.float64]

NAMES: Mapping[str, str] = {"omniscient_realised": "optimum"}
"""What lines are called where it is not the policy's name."""


@lru_cache(maxsize=64)
def _cumulative(results: Results, metric: str) -> dict[tuple[Any, ...], tuple[Floats, Floats]]:
    """Slots [n] and sums over them [seeds, n], by the values of the cell and the policy."""
    import polars as pl

    rows = results.rows().filter(pl.col("metric") == f"{metric}.cumulative")
    found = {}
    by = [*results.cells, "policy"]
    for group, part in rows.sort("seed", "at").collect().group_by(by, maintain_order=True):
        at = part["at"].unique().sort().to_numpy().astype(np.float64)
        found[group] = at, part["value"].to_numpy().reshape(-1, at.size)
    return found


def curve(
    results: Results, who: str, metric: str, cell: Mapping[str, Any]
) -> tuple[Floats, Floats]:
    """Slots, shape [n], and sums over so many of them, shape [seeds, n]."""
    known = _cumulative(results, metric)
    key = (*(cell[name] for name in results.cells), who)
    if key not in known:
        raise StoreError(f"no curve of {metric} for {who} in {dict(cell)}")
    return known[key]


def recorded(results: Results, who: str, **cell: Any) -> Floats:
    """The slots at which the curve was recorded."""
    return curve(results, who, "reward", cell)[0]


def values(results: Results, key: str) -> list[Any]:
    """The values of a setting that varies, ascending."""
    return sorted({run["cell"][key] for run in results.runs})


def so_far(
    results: Results, who: str, at: float | None = None, metric: str = "reward", **cell: Any
) -> Floats:
    """Sum over the first ``at`` slots, or over all; shape [seeds]."""
    slots, sums = curve(results, who, metric, cell)
    if at is None:
        return sums[:, -1]
    return np.array([np.interp(at, slots, row) for row in sums])


def per_slot(
    results: Results, who: str, first: float, last: float, metric: str = "reward", **cell: Any
) -> Floats:
    """Mean over the slots after ``first`` up to ``last``; shape [seeds]."""
    end = so_far(results, who, last, metric, **cell)
    return (end - so_far(results, who, first, metric, **cell)) / (last - first)


def lead(results: Results, who: str, base: str, at: float | None = None, **cell: Any) -> Estimate:
    """How much more ``who`` has earned than ``base``, in per cent."""
    a, b = so_far(results, who, at, **cell), so_far(results, base, at, **cell)
    return mean_and_interval(100 * (a / b - 1))


def change(results: Results, who: str, key: str, first: Any, last: Any) -> Estimate:
    """How much more is earned with one value of a setting than with another, in per cent."""
    before = so_far(results, who, **{key: first})
    return mean_and_interval(100 * (so_far(results, who, **{key: last}) / before - 1))


def from_optimum(earned: Floats, best: Floats) -> Estimate:
    """Mean of what was earned, with the interval of its distance from the optimum.

    Scenarios differ far more from seed to seed than policies do in any of them, and by the same for
    all: what tells policies apart is the distance from what could be earned there.
    """
    mean, distance = float(earned.mean()), mean_and_interval(best - earned)
    if distance.half is None or np.array_equal(earned, best):
        return Estimate(mean, None, None)
    return Estimate(mean, mean - distance.half, mean + distance.half)


def least(estimates: Iterable[Estimate]) -> Estimate:
    """The one with the smallest mean."""
    return min(estimates, key=lambda estimate: estimate.mean)


def smallest_step(
    results: Results, who: str, key: str, among: Sequence[Any] | None = None
) -> Estimate:
    """The smallest change from a value of a setting to the next one, in per cent."""
    steps = values(results, key) if among is None else list(among)
    return least(change(results, who, key, a, b) for a, b in pairwise(steps))


def smallest_lead(results: Results, who: str, key: str, over: Iterable[str]) -> Estimate:
    """The smallest lead over any of some policies at any value of a setting, in per cent."""
    return least(
        lead(results, who, base, **{key: value}) for value in values(results, key) for base in over
    )


def table(rows: Sequence[tuple[str, str, float | str, Estimate]]) -> pl.DataFrame:
    """Rows of panel, line, x and estimate, as pictures want them."""
    import polars as pl

    return pl.DataFrame(
        [(panel, NAMES.get(line, line), x, *estimate) for panel, line, x, estimate in rows],
        schema=["panel", "line", "x", "mean", "low", "high"],
        orient="row",
        infer_schema_length=None,
    )
