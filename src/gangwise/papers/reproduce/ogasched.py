"""Measures that only OGASched's figures and theorem need, see ``papers/ogasched.toml``."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats
from gangwise.papers.reproduce import measures
from gangwise.study.results import Results
from gangwise.study.statistics import Estimate, mean_and_interval

REACT, OPTIMUM, BEST_FIXED = "ogasched-react", "per_slot_optimum", "best_fixed"
BOUND = "Theorem 1, (14)"


@lru_cache(maxsize=32)
def _behind(results: Results, comparator: str) -> pl.DataFrame:
    return results.against(comparator).sort("seed")


def optimum(results: Results, cell: measures.Cell = measures.ALL) -> Floats:
    """Reward of the per-slot optimum over all slots; shape [seeds].

    It is known on some slots only. There ``ogasched-react`` is measured against it; its own reward
    over all slots is then corrected by that, which leaves far less to chance than the sampled slots
    do by themselves.
    """
    # Control variate: regret on the sampled slots, scaled to
    # all, is added to what was earned on all.
    rows = measures.in_cell(results, _behind(results, OPTIMUM), {**cell, "policy": REACT})
    earned: Floats = measures.total(results, REACT, cell=cell) + rows["regret"].to_numpy()
    return earned


def best_possible(
    results: Results, who: str, base: str, cell: measures.Cell = measures.ALL, average: bool = False
) -> Estimate:
    """Reward of the per-slot optimum, in all or on average per slot."""
    slots = measures.slots_played(results) if average else 1.0
    return measures.from_base(
        optimum(results, cell) / slots, measures.total(results, base, cell=cell) / slots
    )


def optimum_share(results: Results, who: str) -> Floats:
    """Reward in per cent of the per-slot optimum."""
    return 100 * measures.total(results, who) / optimum(results)


def exponent_difference(results: Results, who: str, also: Sequence[Results]) -> Floats:
    """Exponent of the reward in the setting of the last results less that of the first."""
    return measures.exponent(also[-1], who) - measures.exponent(also[0], who)


def per_slot_metric(results: Results, who: str, metric: str, cell: measures.Cell) -> Floats:
    return measures.total(results, who, None, metric, cell) / measures.slots_played(results)


def overhead_growth(results: Results, who: str, among: Sequence[float]) -> Floats:
    """Growth of the overhead between two values less that of the gain, in points of a per cent."""
    least_cell, most_cell = measures.cells(results, among)
    gain, overhead = (
        measures.total(results, who, None, metric, most_cell)
        / measures.total(results, who, None, metric, least_cell)
        for metric in ("gain", "overhead")
    )
    # Both are factors of growth from the smallest value of the setting to the largest.
    return 100 * (overhead - gain)


def smallest_average(results: Results, who: str, among: Sequence[str]) -> Estimate:
    slots = measures.slots_played(results)
    return measures.least(
        mean_and_interval(measures.total(results, label) / slots) for label in among
    )


def smallest_difference(
    results: Results, who: str, over: Sequence[str], among: Sequence[str] = ()
) -> Estimate:
    """The smallest difference of rewards per slot from any of some policies, in any cell."""
    slots = measures.slots_played(results)
    return measures.least(
        mean_and_interval(
            (measures.total(results, who, cell=cell) - measures.total(results, base, cell=cell))
            / slots
        )
        for cell in measures.cells(results, among)
        for base in over
    )


def largest_share(results: Results, who: str, of: str, among: Sequence[str]) -> Estimate:
    """The largest reward with some values of the setting, in per cent of that with ``of``."""
    [whole] = measures.cells(results, [of])
    all_of = measures.total(results, who, cell=whole)
    shares = [measures.total(results, who, cell=cell) for cell in measures.cells(results, among)]
    return max(
        (measures.percentage(100 * share / all_of, all_of) for share in shares),
        key=lambda e: e.mean,
    )


# Theorem 1: one experiment for each T, and one for job types and servers each


@lru_cache(maxsize=256)
def _bounds(results: Results) -> pl.DataFrame:
    return results.rows().filter(pl.col("metric") == "bound.theorem-1").sort("seed").collect()


def regret(
    results: Results, who: str, cell: measures.Cell = measures.ALL, power: float = 0.0
) -> Floats:
    """Regret (6) against the best fixed decision, or the bound on it, over T^power; [seeds]."""
    if who == BOUND:
        column = measures.in_cell(results, _bounds(results), cell)["value"]
    else:
        column = measures.in_cell(results, _behind(results, BEST_FIXED), {**cell, "policy": who})[
            "regret"
        ]
    # Over √T (power 1/2) a regret of the order of Theorem 1 is level.
    return np.asarray(column.to_numpy() / measures.slots_played(results) ** power)


def regret_over_bound(results: Results, who: str) -> Floats:
    return regret(results, who) / regret(results, BOUND)


def regret_over_best_fixed(results: Results, who: str) -> Floats:
    """Regret, or the bound on it, over the reward of the best fixed decision."""
    return regret(results, who) / measures.total(results, BEST_FIXED)


def regret_exponent(results: Results, who: str, also: Sequence[Results] = ()) -> Floats:
    """Exponent of the regret in T, over the experiments; or in the setting that varies."""
    if also:
        x, y = (
            [measures.slots_played(result) for result in also],
            [regret(result, who) for result in also],
        )
    else:
        x = [value for cell in measures.cells(results) for value in cell.values()]
        y = [regret(results, who, cell) for cell in measures.cells(results)]
    return measures.exponents(x, y)
