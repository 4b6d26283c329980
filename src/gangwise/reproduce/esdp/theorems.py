r"""Theorems 1 and 2: how much of the optimum is reached, and how regret grows.

Theorem 2 bounds the regret by a constant times ln T · |E| (ln m)² / Δ, with m the most channels
that x*(t) has and Δ the least that another choice loses. As printed, Δ is taken over the choices
played, and is 0 once the best one is played; here it is over all other choices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gangwise.core.registry import create
from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.fluctuating_speeds.environment import FluctuatingSpeedsInstance
from gangwise.fluctuating_speeds.solvers import P3Solver
from gangwise.report.picture import Panel
from gangwise.reproduce.artefact import Artefact, Claim, Found, Scale, above, below
from gangwise.reproduce.esdp.measures import regret
from gangwise.reproduce.esdp.study import (
    OURS,
    PRINTED,
    QUARTER_AND_HALF,
    VERSIONS,
    in_readings,
    name_of,
    studies,
)
from gangwise.reproduce.measures import per_slot, recorded, table

if TYPE_CHECKING:
    import polars as pl


Floats = npt.NDArray[np.float64]

LEARNERS = (OURS, PRINTED, "thompson-beta")
JUDGED = {**VERSIONS, "thompson-beta": "thompson-beta"}
ABSENT = "capacity given to absent job types is lost in every slot, however much is learned"
SHARE_OF_ALL, JOB_TYPES = 0.9, 8


def _experiments(scale: Scale) -> Sequence[Experiment]:
    return [
        experiment
        for reading, seeds in zip(QUARTER_AND_HALF, (20, 10))
        for experiment in studies(
            "regret", [reading], scale, (5000, 100_000), (3, seeds), LEARNERS, ["omniscient"]
        )
    ]


def _end(results: Results) -> float:
    return float(recorded(results, "omniscient")[-1])


def _shares(found: Found) -> pl.DataFrame:
    rows = []
    for reading in QUARTER_AND_HALF:
        results = found[name_of("regret", reading)]
        edges = np.geomspace(10, _end(results), 25)
        for policy in LEARNERS:
            for first, last in pairwise(edges):
                ours = per_slot(results, policy, first, last, "mean_utility")
                best = per_slot(results, "omniscient", first, last)
                rows.append((reading, policy, last, mean_and_interval(100 * ours / best)))
    return table(rows)


def _late_share(results: Results, policy: str) -> Estimate:
    end = _end(results)
    ours = per_slot(results, policy, end / 2, end, "mean_utility")
    return mean_and_interval(100 * ours / per_slot(results, "omniscient", end / 2, end))


PRINTED_CHANCE = math.exp(-((JOB_TYPES * (1 - SHARE_OF_ALL)) ** 2) / 3)

THEOREM_1 = Artefact(
    "esdp",
    "theorem-1",
    "share of what the best choice earns",
    _experiments,
    _shares,
    [
        Panel(reading, "slot", "% of x*(t), since the point before", log_x=True, level=100.0)
        for reading in QUARTER_AND_HALF
    ],
    [
        Claim(
            "mean utility in the second half of the slots, % of x*(t)",
            "asymptotically optimal",
            in_readings("regret", QUARTER_AND_HALF, _late_share, JUDGED),
            above(99.0),
            f"{ABSENT}; agrees from 99 % on",
        ),
        Claim(
            "chance that every job type has a job, so that nothing is switched off",
            f"at most {PRINTED_CHANCE:.2f}, (35)",
            lambda found: {"ρ = 0.9, |L| = 8": Estimate(SHARE_OF_ALL**JOB_TYPES, None, None)},
            below(PRINTED_CHANCE),
            "a bound from above on the good case is no guarantee; over Ω(t) no chance is needed",
        ),
    ],
)


def smallest_gap(instance: FluctuatingSpeedsInstance) -> float:
    """Δ: what the best choice is worth less the second best, when every job type has a job.

    No channel is worth less than nothing, so every other choice lacks a channel of the best one.
    """
    problem, v = instance.problem, instance.means(0)
    nothing = np.zeros(problem.E)
    solver = P3Solver(problem.requests, problem.cluster.capacity)
    best = solver.solve(v, nothing, gap=1e-12).x
    others = []
    for channel in np.flatnonzero(best):
        rest = np.arange(problem.E) != channel
        others.append(v[solver.solve(v, nothing, available=rest, gap=1e-12).x].sum())
    return float(v[best].sum() - max(others))


def _bounds(results: Results) -> Floats:
    """|E| (ln m)² / Δ of every seed; m is α|E|, as the paper sets it."""
    settings = results.experiment["settings"]
    scenario = create("scenario", results.experiment["scenario"], **settings)
    found = []
    for seed in dict.fromkeys(run["seed"] for run in results.runs):
        instance = scenario.instance(seed)
        channels = instance.problem.E
        found.append(channels * math.log(0.5 * channels) ** 2 / smallest_gap(instance))
    return np.array(found)


def _regrets(found: Found) -> pl.DataFrame:
    rows = []
    for reading in QUARTER_AND_HALF:
        results = found[name_of("regret", reading)]
        for policy in LEARNERS:
            for at in np.geomspace(10, _end(results), 40):
                estimate = mean_and_interval(regret(results, policy, at))
                rows.append((f"{reading}, both logarithmic", policy, at, estimate))
                if policy != PRINTED:
                    rows.append((f"{reading}, against ln t", policy, at, estimate))
    return table(rows)


def _decades(
    measure: Callable[[Floats, Floats, Floats], Floats],
) -> Callable[[Results, str], Estimate]:
    """An estimate from the regret at T/100, T/10 and T."""

    def ours(results: Results, policy: str) -> Estimate:
        end = _end(results)
        return mean_and_interval(
            measure(*(regret(results, policy, at) for at in (end / 100, end / 10, end)))
        )

    return ours


def _slope_in_units(results: Results, policy: str) -> Estimate:
    end = _end(results)
    slope = (regret(results, policy) - regret(results, policy, end / 10)) / math.log(10)
    return mean_and_interval(slope / _bounds(results))


def _claim(
    says: str, paper: str, measure: Callable[[Results, str], Estimate], level: float, why: str
) -> Claim:
    return Claim(
        says, paper, in_readings("regret", QUARTER_AND_HALF, measure, JUDGED), below(level), why
    )


THEOREM_2 = Artefact(
    "esdp",
    "theorem-2",
    "pseudo-regret against slots",
    _experiments,
    _regrets,
    [
        panel
        for reading in QUARTER_AND_HALF
        for panel in (
            Panel(f"{reading}, both logarithmic", "slot", "pseudo-regret", log_x=True, log_y=True),
            Panel(f"{reading}, against ln t", "slot", "pseudo-regret", log_x=True),
        )
    ],
    [
        _claim(
            "regret added in the last decade of slots over that of the decade before",
            "logarithmic: 1 (√T: 3.2, linear: 10)",
            _decades(lambda a, b, c: (c - b) / (b - a)),
            math.sqrt(10),
            f"{ABSENT}; agrees where it is less than of √T",
        ),
        _claim(
            "exponent of t in the regret, last decade of slots",
            "logarithmic: towards 0",
            _decades(lambda a, b, c: np.log10(c / b)),
            0.5,
            f"{ABSENT}; agrees below 1/2",
        ),
        _claim(
            "slope of the regret against ln t, last decade, in units of |E| (ln m)² / Δ",
            "at most a constant, not stated",
            _slope_in_units,
            1.0,
            "so wide that at these horizons a linear regret is within it, too",
        ),
    ],
)

THEOREMS = (THEOREM_1, THEOREM_2)
