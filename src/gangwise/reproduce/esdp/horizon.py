"""§4.3: AOU against the horizon T under several settings, Fig. 13.

No policy is told T, so the first slots of a long run are a shorter run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.report.picture import Panel
from gangwise.reproduce.artefact import Artefact, Claim, Found, Scale, above
from gangwise.reproduce.esdp.measures import AOU, DISTANCE
from gangwise.reproduce.esdp.study import (
    BASELINES,
    CAPACITY,
    CHANNEL,
    NOT_COMPARED,
    OPTIMUM,
    PLAYED,
    POLICIES,
    VERSIONS,
)
from gangwise.reproduce.measures import from_optimum, lead, least, recorded, so_far, table

if TYPE_CHECKING:
    import polars as pl


CASES: Mapping[str, Mapping[str, Any]] = {
    "c = 1/4": {"fraction": 0.25},
    "c = 1/2": {"fraction": 0.5},
    "c = 1 or 2": {"capacity": "literal"},
    "c = 1/4, ρ = 0.5": {"fraction": 0.25, "rho": 0.5},
    "c = 1/4, 80 servers": {"fraction": 0.25, "servers": 80},
    "c = 1/4, 12 job types": {"fraction": 0.25, "job_types": 12},
}
PARTS = (16, 8, 4, 2, 1)


def _experiments(scale: Scale) -> Sequence[Experiment]:
    return [
        Experiment(
            name=f"esdp-horizon-{i}",
            scenario="esdp-default-v1",
            settings=dict(settings),
            policies=list(POLICIES),
            slots=scale.pick(1000, 8000),
            seeds=scale.first_seeds(3, 10),
            comparators=[OPTIMUM],
        )
        for i, settings in enumerate(CASES.values())
    ]


def _cases(found: Found) -> dict[str, Results]:
    return {case: found[f"esdp-horizon-{i}"] for i, case in enumerate(CASES)}


def _horizons(results: Results) -> list[float]:
    return [recorded(results, OPTIMUM)[-1] / part for part in PARTS]


def _numbers(found: Found) -> pl.DataFrame:
    return table(
        [
            (case, who, at, from_optimum(*(so_far(results, each, at) for each in (who, OPTIMUM))))
            for case, results in _cases(found).items()
            for who in PLAYED
            for at in _horizons(results)
        ]
    )


def _smallest_leads(over: Sequence[str], found: Found) -> dict[str, Estimate]:
    return {
        f"{version}, {case}": least(
            lead(results, policy, base, at) for base in over for at in _horizons(results)
        )
        for case, results in _cases(found).items()
        for version, policy in VERSIONS.items()
    }


def _better_with_time(found: Found) -> dict[str, Estimate]:
    ours = {}
    for case, results in _cases(found).items():
        first, *_, last = _horizons(results)
        for version, policy in VERSIONS.items():
            short, long = (so_far(results, policy, at) / at for at in (first, last))
            ours[f"{version}, {case}"] = mean_and_interval(100 * (long / short - 1))
    return ours


FIGURE_13 = Artefact(
    "esdp",
    "figure-13",
    f"AOU against the horizon T {DISTANCE}",
    _experiments,
    _numbers,
    [Panel(case, "T", AOU, "points", log_x=True, log_y=True) for case in CASES],
    [
        Claim(
            "smallest lead of ESDP over a baseline at any T from T/16 on, %",
            "always performs the best",
            lambda found: _smallest_leads(list(BASELINES.values()), found),
            above(0),
            CAPACITY,
        ),
        Claim(
            "smallest lead of ESDP over HAUF that ranks channels, at any T from T/16 on, %",
            NOT_COMPARED,
            lambda found: _smallest_leads([CHANNEL], found),
            above(0),
            "the same greedy over channels instead of job types",
        ),
        Claim(
            "AOU per slot with T over that with T/16, %",
            "positive correlation with T",
            _better_with_time,
            above(0),
            CAPACITY,
        ),
    ],
)
