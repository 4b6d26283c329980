"""Measures that only OPS's and OPM's figures and theorems need, see ``papers/opm.toml``.

Constants that the paper leaves open in O(·) of its theorems are taken as 1.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats
from gangwise.core.registry import create
from gangwise.papers.approximation_jobs.offline import claimed_fit, claimed_regret, offline_optimum
from gangwise.papers.approximation_jobs.problem import Job
from gangwise.papers.reproduce import measures, papers
from gangwise.papers.reproduce.measures import ALL, Cell
from gangwise.report.plotting import points
from gangwise.study.results import Results
from gangwise.study.statistics import mean_and_interval

OVERALL = "reward.total"
"""Overall utility, Σ f(X)."""


def total(results: Results, who: str, cell: Cell = ALL, unit: float = 1.0) -> Floats:
    return measures.metric(results, who, OVERALL, cell, unit)


def over(results: Results, who: str, base: str, cell: Cell = ALL, metric: str = OVERALL) -> Floats:
    """Lead of a policy over another one in a metric, in per cent, seed by seed."""
    ours, theirs = (measures.metric(results, policy, metric, cell) for policy in (who, base))
    return 100 * (ours / theirs - 1)


def gain_difference(
    results: Results,
    who: str,
    base: str,
    cell: Cell = ALL,
    than: str = "",
    than_cell: Cell | None = None,
) -> Floats:
    """Lead over the base less that of another policy or in another cell, in points."""
    compared = over(results, than or who, base, cell if than_cell is None else than_cell)
    return over(results, who, base, cell) - compared


# Fig. 1: jobs by what they cost


@lru_cache(maxsize=2)
def _costs(results: Results) -> tuple[dict[tuple[str, int], Floats], ...]:
    """Cost to utility of the jobs that cost something, infinite without utility; cost to budget."""
    ratios, uses = {}, {}
    for (policy, seed), part in results.jobs().group_by(["policy", "seed"], maintain_order=True):
        cost, utility, budget = (part[c].to_numpy() for c in ("cost", "utility", "budget"))
        costs, played = np.full(cost.size, np.inf), cost > 0
        # Money spent for nothing is dearer than any: infinite, not left out.
        np.divide(cost, utility, out=costs, where=utility > 0)
        ratios[str(policy), int(seed)] = costs[played]
        uses[str(policy), int(seed)] = cost / budget
    return ratios, uses


def _shares(
    values: Mapping[tuple[str, int], Floats], who: str, level: Callable[[int], float]
) -> Floats:
    shares = [np.mean(v <= level(seed)) for (p, seed), v in values.items() if p == who]
    return 100 * np.array(shares)


def share_below(results: Results, who: str, level: float) -> Floats:
    return _shares(_costs(results)[0], who, lambda seed: level)


def share_below_fairs(results: Results, who: str, share: float) -> Floats:
    """Jobs with a cost to utility up to that which a share of Fair's jobs have, in per cent."""
    ratios = _costs(results)[0]

    def level(seed: int) -> float:
        return float(np.nanquantile(ratios["fair", seed], share, method="inverted_cdf"))

    return _shares(ratios, who, level)


def share_sparing(results: Results, who: str, level: float) -> Floats:
    """Jobs that spend less than a share of their budget, in per cent."""
    # Strictly below the level: one that spends exactly so much does not count.
    return _shares(_costs(results)[1], who, lambda seed: level - 1e-9)


def distributions(found: papers.Found) -> pl.DataFrame:
    """Shares of the jobs by cost to utility, and by cost to budget."""
    [results] = found.values()
    ratios, uses = _costs(results)
    widest = max(float(np.nanquantile(v[np.isfinite(v)], 0.9)) for v in ratios.values())
    # On the trace the axis reaches twice the level of 50 of which the paper speaks.
    reach = 100.0 if results.experiment["scenario"] == "opm-google-v1" else 0.0
    rows: list[tuple[Any, ...]] = []
    for panel, values, end in (
        ("a: cost to utility", ratios, max(widest, reach)),
        ("b: cost to budget", uses, 1.0),
    ):
        for policy in dict.fromkeys(policy for policy, _ in values):
            for x in np.linspace(0, end, 61):
                estimate = mean_and_interval(
                    [np.mean(v <= x) for (p, _), v in values.items() if p == policy]
                )
                low, high = (None if v is None else min(max(v, 0.0), 1.0) for v in estimate[1:])
                rows.append((panel, policy, float(x), estimate.mean, low, high))
    return points(rows)


# Fig. 3: migrations


def migrations(results: Results, who: str, metric: str) -> Floats:
    """Machines with a migration per slot, in per cent; shape [seeds]."""
    machines = results.experiment["settings"].get("machines")
    if machines is None:
        machines = 1000 if results.experiment["scenario"] == "opm-google-v1" else 100
    return measures.metric(results, who, metric, unit=machines / 100)


def migrations_difference(results: Results, who: str, metric: str, than: str) -> Floats:
    """Machines with a migration per slot less those with another policy, in points."""
    return migrations(results, who, metric) - migrations(results, than, metric)


# Theorems 2 and 3 and Corollary 1

DELTA = 0.1
_root, _money = pl.col("slots").sqrt(), pl.col("budget").sqrt()
QUANTITIES = {
    "regret per root": pl.col("regret") / _root,
    "fit per root": pl.col("fit") / _money,
    "overspent per root": pl.col("over") / _money,
    "regret over claim": pl.col("regret") / pl.col("claimed_regret"),
    "fit over claim": pl.col("fit") / pl.col("claimed_fit"),
    "overspent over claim": pl.col("over") / pl.col("claimed_fit"),
    "regret over (75), millionths": 1e6 * pl.col("regret") / pl.col("theorem_3"),
    "(75) over optimum": pl.col("theorem_3") / pl.col("optimum"),
}
"""By name, from the columns of :func:`measured`."""


@lru_cache(maxsize=512)
def _known(
    scenario: str, settings: str, slots: int, seed: int
) -> tuple[float, tuple[Job, ...], int]:
    """OPT of (6), the jobs, and M."""
    instance = create("scenario", scenario, slots=slots, **json.loads(settings)).instance(seed)
    best = offline_optimum(instance, slots, seed, "means", average=True).bound
    return best, tuple(instance.jobs.jobs), instance.problem.M


@lru_cache(maxsize=2)
def measured(results: Results) -> pl.DataFrame:
    """One row per policy, T and seed.

    Columns: ``policy``, ``slots``, ``seed``, ``regret``, ``fit``, ``over`` (Σ (C − B)⁺), and what
    the paper claims for them: ``claimed_regret`` (24) or (101), ``claimed_fit`` (23) or (74),
    ``theorem_3`` (75); ``optimum``, ``budget``.
    """
    joined, *frames = [
        results.per_seed(f"{metric}.total").rename({"value": metric})
        for metric in ("average_utility", "fit", "over")
    ]
    for frame in frames:
        joined = joined.join(frame, on=["slots", "policy", "seed"], maintain_order="left")
    scenario = results.experiment["scenario"]
    settings = json.dumps(results.experiment["settings"])
    rows = []
    for row in joined.iter_rows(named=True):
        best, jobs, M = _known(scenario, settings, row["slots"], row["seed"])
        row |= _claimed(jobs, M, row["slots"], best, row["policy"])
        rows.append(row | {"regret": best - row["average_utility"], "optimum": best})
    return pl.DataFrame(rows, infer_schema_length=None)


def _claimed(jobs: Sequence[Job], M: int, T: int, optimum: float, policy: str) -> dict[str, float]:
    lipschitz = max(float(job.utility.code[1]) for job in jobs)  # π of v ln(1 + X)
    budget, pace = sum(job.budget for job in jobs), min(job.pace for job in jobs)
    epsilon = 8.0 * M * M * T / budget**2 if len(jobs) == 1 and policy == "as printed" else 0.0
    # (75): the estimation term, and then M π √T Σ B / min β.
    estimation = M * lipschitz * math.sqrt(T * math.log(M * T / DELTA))
    return {
        "budget": budget,
        "claimed_regret": claimed_regret(jobs, M, T, lipschitz, optimum, DELTA, epsilon),
        "claimed_fit": claimed_fit(jobs, M, DELTA),
        "theorem_3": estimation + M * lipschitz * math.sqrt(T) / pace * budget,
    }


def _quantity(results: Results, who: str, quantity: str, slots: int) -> Floats:
    rows = measured(results).with_columns(QUANTITIES[quantity].alias("of"))
    chosen = rows.filter((pl.col("policy") == who) & (pl.col("slots") == slots))
    return chosen.sort("seed")["of"].to_numpy()


def _ends(results: Results) -> tuple[int, int]:
    played = [run["cell"]["slots"] for run in results.runs]
    return min(played), max(played)


def of_theorem(results: Results, who: str, quantity: str, cell: Cell = ALL) -> Floats:
    """A quantity of :data:`QUANTITIES`, at the largest T where no cell is given."""
    return _quantity(results, who, quantity, cell.get("slots", _ends(results)[1]))


def change_of_theorem(results: Results, who: str, quantity: str) -> Floats:
    """Change of a quantity from the smallest T to the largest."""
    begin, end = (_quantity(results, who, quantity, slots) for slots in _ends(results))
    return end - begin
