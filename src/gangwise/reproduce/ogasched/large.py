"""§4.3: 100 job types and 1024 servers, Fig. 5.

The paper plays 10,000 slots once. Here it is 2000 slots with several seeds: nothing changes later
(Table 2 has the horizon), and seeds are what clusters differ by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.report.picture import Panel
from gangwise.reproduce.artefact import Artefact, Claim, Found, Scale, above, below, near
from gangwise.reproduce.measures import from_optimum, lead, least, recorded, so_far, table
from gangwise.reproduce.ogasched.study import (
    BASELINES,
    DEVICES,
    GREEDY,
    OPTIMUM,
    OURS,
    PLAYED,
    READING,
    optimum,
    per_version,
    study,
)

if TYPE_CHECKING:
    import polars as pl


NAME = "ogasched-large"
FAIR = BASELINES["FAIRNESS"]


def _experiments(scale: Scale) -> Sequence[Experiment]:
    settings = {"job_types": 100, "servers": 1024, "beta": [0.01, 0.015], "contention": 5}
    return [
        study(
            "large", scale, slots=(20, 2000), seeds=(2, 3), optimum_slots=(2, 5), settings=settings
        )
    ]


def _numbers(found: Found) -> pl.DataFrame:
    results = found[NAME]
    T = recorded(results, OURS)[-1]
    slots = [at for at in recorded(results, OURS) if at >= T / 100]
    rows: list[tuple[str, str, float | str, Estimate]] = []
    for at in slots:
        fair = so_far(results, FAIR, at)
        for who in PLAYED:
            earned = so_far(results, who, at)
            rows.append(("average", who, at, from_optimum(earned / at, fair / at)))
            rows.append(("accumulated", who, at, from_optimum(earned, fair)))
    level = from_optimum(optimum(results) / T, so_far(results, FAIR) / T)
    rows += [("average", OPTIMUM, at, level) for at in (slots[0], T)]
    return table(rows)


def _hours(results: Results, who: str) -> Estimate:
    import polars as pl

    times = results.per_seed("us_per_slot").filter(pl.col("policy") == who)["value"]
    return mean_and_interval(times.to_numpy() * 10_000 / 3.6e9)


def _smallest(results: Results, who: str) -> Estimate:
    return least(lead(results, who, base) for base in BASELINES.values())


FIGURE_5 = Artefact(
    "ogasched",
    "figure-5",
    "100 job types, 1024 servers (± of the difference to FAIRNESS)",
    _experiments,
    _numbers,
    [
        Panel("average", "slot", "average reward until slot"),
        Panel("accumulated", "slot", "accumulated reward"),
    ],
    [
        Claim(
            "smallest lead of OGASched over any baseline, %",
            "superiority is preserved",
            lambda found: per_version(found[NAME], _smallest),
            above(0),
            READING,
        ),
        Claim(
            "OGASched over the marginal-reward greedy, %",
            "not compared",
            lambda found: per_version(found[NAME], lambda r, who: lead(r, who, GREEDY)),
            above(0),
            "a greedy that knows the rewards and remembers nothing",
        ),
        Claim(
            "OGASched's share of the per-slot optimum, %",
            "not compared",
            lambda found: per_version(
                found[NAME], lambda r, who: mean_and_interval(100 * so_far(r, who) / optimum(r))
            ),
            near(100, 0.05),
            DEVICES,
        ),
        Claim(
            "hours for 10,000 slots",
            "15 hours",
            lambda found: per_version(found[NAME], _hours),
            below(15.0),
            "on one core here, on 48 there",
            timed=True,
        ),
    ],
)
