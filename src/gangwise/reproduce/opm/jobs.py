"""Fig. 1: distributions over jobs of cost to utility, and of cost to budget, at β = 0.5."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl

from gangwise.approximation_jobs.regret import share_at_most
from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.report.picture import Panel
from gangwise.reproduce.artefact import Artefact, Claim, Found, Scale, Verdict, near
from gangwise.reproduce.opm.section_vi import BLIND, POLICIES, VERSIONS, JobSource

Floats = npt.NDArray[np.float64]

THRESHOLD, SPARED, FAIRS_SHARE = 50.0, 0.9, 0.65
POINTS = 61
CURVES = {
    "OPM": ("as printed", "opm", "utility-per-price"),
    "without estimation": ("no estimation",),
    "baselines": ("fair", "deadline-aware"),
}
"""The paper's curves, and what we play for each."""
UNITS = "the ratio has a unit that depends on the length of a slot, which is not stated"
BUDGETS = (
    "97 % of Fair's jobs cannot spend 90 % of budgets that together exceed what all machines cost; "
    "the load is not stated"
)


def figure_1(jobs: JobSource) -> Artefact:
    """Fig. 1 (a) and (b)."""
    name = f"opm-jobs-{jobs.name}"

    def experiments(scale: Scale) -> list[Experiment]:
        return [
            jobs.experiment(
                "jobs", scale, 10, settings={**jobs.heavy, "beta": 0.5}, policies=list(POLICIES)
            )
        ]

    def numbers(found: Found) -> pl.DataFrame:
        ratios, uses = _values(found[name])
        widest = max(float(np.nanquantile(v[np.isfinite(v)], 0.9)) for v in ratios.values())
        at = np.linspace(0, max(widest, 2 * THRESHOLD if jobs.is_trace else 0.0), POINTS)
        return pl.DataFrame(
            [
                *_curve("a: cost to utility", ratios, at),
                *_curve("b: cost to budget", uses, np.linspace(0, 1.0, POINTS)),
            ],
            infer_schema_length=None,
        )

    def shares(
        values: dict[tuple[str, int], Floats], level: Callable[[int], float]
    ) -> dict[str, Estimate]:
        named = {
            **VERSIONS,
            "no estimation": BLIND,
            "fair": "fair",
            "deadline-aware": "deadline-aware",
        }
        return {
            version: mean_and_interval(
                [
                    100 * share_at_most(v, level(seed))
                    for (p, seed), v in values.items()
                    if p == policy
                ]
            )
            for version, policy in named.items()
        }

    def below_50(found: Found) -> dict[str, Estimate]:
        return shares(_values(found[name])[0], lambda seed: THRESHOLD)

    def below_fairs(found: Found) -> dict[str, Estimate]:
        ratios = _values(found[name])[0]
        return shares(
            ratios,
            lambda seed: float(
                np.nanquantile(ratios["fair", seed], FAIRS_SHARE, method="inverted_cdf")
            ),
        )

    def sparing(found: Found) -> dict[str, Estimate]:
        return shares(_values(found[name])[1], lambda seed: SPARED - 1e-9)

    at_least = {"OPM": 90.0, "without estimation": 72.0, "baselines": 65.0}
    spared = {"OPM": 20.0, "baselines": 3.0}
    claims = [
        *_each("jobs below Fair's 65 % point of cost to utility, %", at_least, below_fairs, UNITS),
        *_each("jobs that spend less than 90 % of their budget, %", spared, sparing, BUDGETS),
    ]
    if jobs.is_trace:
        claims = _each("jobs below a cost to utility of 50, %", at_least, below_50, UNITS) + claims
    return Artefact(
        "opm",
        f"figure-1{jobs.suffix}",
        f"jobs at β = 0.5, {jobs.name} jobs",
        experiments,
        numbers,
        (
            Panel("a: cost to utility", "cost / utility", "share of jobs"),
            Panel("b: cost to budget", "cost / budget", "share of jobs"),
        ),
        tuple(claims),
        jobs.trace,
    )


@lru_cache(maxsize=2)
def _values(results: Results) -> tuple[dict[tuple[str, int], Floats], ...]:
    """Cost to utility of the jobs that cost something, infinite without utility; cost to budget."""
    ratios, uses = {}, {}
    for (policy, seed), part in results.jobs().group_by(["policy", "seed"], maintain_order=True):
        cost, utility, budget = (part[c].to_numpy() for c in ("cost", "utility", "budget"))
        ratio, played = np.full(cost.size, np.inf), cost > 0
        np.divide(cost, utility, out=ratio, where=utility > 0)
        ratios[str(policy), int(seed)] = ratio[played]
        uses[str(policy), int(seed)] = cost / budget
    return ratios, uses


def _curve(
    panel: str, values: dict[tuple[str, int], Floats], at: Floats
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for policy in dict.fromkeys(policy for policy, _ in values):
        for x in at:
            of = mean_and_interval(
                [share_at_most(v, float(x)) for (p, _), v in values.items() if p == policy]
            )
            low, high = (
                None if end is None else min(max(end, 0.0), 1.0) for end in (of.low, of.high)
            )
            rows.append(
                {
                    "panel": panel,
                    "line": policy,
                    "x": float(x),
                    "mean": of.mean,
                    "low": low,
                    "high": high,
                }
            )
    return rows


def _each(
    says: str, paper: dict[str, float], ours: Callable[[Found], dict[str, Estimate]], why: str
) -> list[Claim]:
    """A claim for each of the paper's curves; the rival stands beside OPM's."""

    def claim(curve: str, number: float) -> Claim:
        return Claim(
            f"{curve}: {says}",
            number,
            lambda found: {v: ours(found)[v] for v in CURVES[curve]},
            _within(number),
            why,
        )

    return [claim(curve, number) for curve, number in paper.items()]


def _within(number: float) -> Callable[[Estimate], Verdict]:
    """A tenth of all jobs more or less, where a share of the number itself would be narrower."""
    return near(number, max(0.1, 3.0 / number))
