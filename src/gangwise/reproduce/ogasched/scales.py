"""§4.2: size of the graph and contention, Figs. 3 and 6."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.report.picture import Panel
from gangwise.reproduce.artefact import Artefact, Claim, Found, Scale, above, below
from gangwise.reproduce.measures import change, smallest_lead, smallest_step, so_far, table, values
from gangwise.reproduce.ogasched.study import (
    BASELINES,
    DEVICES,
    PLAYED,
    READING,
    VERSIONS,
    against_setting,
    per_version,
    study,
)

if TYPE_CHECKING:
    import polars as pl


SERVERS, TYPES, CONTENTION = (f"ogasched-{n}" for n in ("servers", "job-types", "contention"))
KEYS = {SERVERS: "servers", TYPES: "job_types", CONTENTION: "contention"}
FAIR = BASELINES["FAIRNESS"]
EVERY = list(BASELINES.values())


def _contention(scale: Scale) -> Experiment:
    return study("contention", scale, grid={"contention": [0.1, 0.3, 1, 3, 10, 20]})


def _scales(scale: Scale) -> Sequence[Experiment]:
    return [
        study(
            "servers",
            scale,
            optimum_slots=(3, 20),
            grid={"servers": [32, 128, 512] if scale.quick else [32, 64, 128, 256, 512]},
        ),
        study(
            "job-types",
            scale,
            optimum_slots=(3, 20),
            grid={"job_types": [5, 10, 40] if scale.quick else [5, 10, 20, 40]},
        ),
        _contention(scale),
    ]


def _smallest_leads(found: Found) -> dict[str, Estimate]:
    return {
        f"{version}, {key}": smallest_lead(found[name], who, key, EVERY)
        for name, key in KEYS.items()
        for version, who in VERSIONS.items()
    }


def lead_moves(name: str, first: float, last: float) -> Callable[[Found], dict[str, Estimate]]:
    """By how many points of per cent the lead over FAIRNESS changes between two values."""

    def measure(results: Results, who: str) -> Estimate:
        cells: list[dict[str, Any]] = [{KEYS[name]: x} for x in (first, last)]
        before, after = (
            so_far(results, who, **cell) / so_far(results, FAIR, **cell) for cell in cells
        )
        return mean_and_interval(100 * (after - before))

    return lambda found: per_version(found[name], measure)


def _moves(name: str, first: float, last: float) -> Callable[[Found], dict[str, Estimate]]:
    def ours(found: Found) -> dict[str, Estimate]:
        return {
            who: change(found[name], who, KEYS[name], first, last)
            for who in (*VERSIONS.values(), *EVERY)
        }

    return ours


def _slope(results: Results, who: str, key: str, among: Sequence[Any], metric: str) -> Any:
    earned = np.array([so_far(results, who, None, metric, **{key: x}) for x in among])
    return np.polyfit(np.log(np.array(among, dtype=np.float64)), np.log(earned), 1)[0]


def _weaker(found: Found) -> dict[str, Estimate]:
    def measure(_: Results, who: str) -> Estimate:
        slopes = [
            _slope(found[name], who, KEYS[name], values(found[name], KEYS[name]), "reward")
            for name in (SERVERS, TYPES)
        ]
        return mean_and_interval(slopes[0] - slopes[1])

    return per_version(found[SERVERS], measure)


FIGURE_3 = Artefact(
    "ogasched",
    "figure-3",
    "accumulated reward and scale (± of the difference to FAIRNESS)",
    _scales,
    lambda found: table(
        [
            row
            for name, key in reversed(KEYS.items())
            for row in against_setting(key, found[name], key)
        ]
    ),
    [
        Panel("servers", "servers |R|", "accumulated reward", "points", log_x=True, log_y=True),
        Panel("job_types", "job types |L|", "accumulated reward", "points", log_x=True),
        Panel("contention", "contention level", "accumulated reward", "points", log_x=True),
    ],
    [
        Claim(
            "smallest lead of OGASched over any baseline, %",
            "always performs the best",
            _smallest_leads,
            above(0),
            READING,
        ),
        Claim(
            "smallest change of OGASched's reward with twice the servers or more, %",
            "increases",
            lambda found: per_version(
                found[SERVERS], lambda r, who: smallest_step(r, who, "servers")
            ),
            above(0),
        ),
        Claim(
            "OGASched's lead over FAIRNESS from 32 to 128 servers, % points",
            "first increases",
            lead_moves(SERVERS, 32, 128),
            above(0),
            "density is fixed, so job types per server do not change; " + DEVICES,
        ),
        Claim(
            "OGASched's lead over FAIRNESS from 128 to 512 servers, % points",
            "then decreases",
            lead_moves(SERVERS, 128, 512),
            below(0),
            "density is fixed, so job types per server do not change; " + DEVICES,
        ),
        Claim(
            "exponent of the reward in servers less that in job types",
            "job types have a weaker impact",
            _weaker,
            above(0),
        ),
        Claim(
            "reward from contention 0.1 to 1, %", "increases", _moves(CONTENTION, 0.1, 1), above(0)
        ),
        Claim(
            "reward from contention 1 to 20, %",
            "decreases",
            _moves(CONTENTION, 1, 20),
            below(0),
            "a request is an upper limit: a larger one takes nothing from the optimum; " + DEVICES,
        ),
        Claim(
            "OGASched's lead over FAIRNESS from contention 1 to 20, % points",
            "decreases",
            lead_moves(CONTENTION, 1, 20),
            below(0),
            DEVICES,
        ),
    ],
)


def _gain_and_overhead(found: Found) -> pl.DataFrame:
    results = found[CONTENTION]
    slots = float(results.runs[0]["slots"])
    return table(
        [
            (
                metric,
                who,
                float(x),
                mean_and_interval(so_far(results, who, None, metric, contention=x) / slots),
            )
            for metric in ("gain", "overhead")
            for who in PLAYED
            for x in values(results, "contention")
        ]
    )


def _grows(
    metric: str, over: str = "", among: Sequence[float] = (1, 3, 10, 20)
) -> Callable[[Found], dict[str, Estimate]]:
    """Exponent of a metric in the contention level, less that of another one."""

    def measure(results: Results, who: str) -> Estimate:
        found = _slope(results, who, "contention", among, metric)
        less = _slope(results, who, "contention", among, over) if over else 0.0
        return mean_and_interval(found - less)

    def ours(found: Found) -> dict[str, Estimate]:
        results = found[CONTENTION]
        return per_version(results, measure) | {base: measure(results, base) for base in EVERY}

    return ours


FIGURE_6 = Artefact(
    "ogasched",
    "figure-6",
    "computation gain and communication overhead of a slot",
    lambda scale: [_contention(scale)],
    _gain_and_overhead,
    [
        Panel(name, "contention level", f"{name} of a slot", "points", log_x=True)
        for name in ("gain", "overhead")
    ],
    [
        Claim(
            "exponent of the overhead in the contention level, from 0.1 to 20",
            "increases",
            _grows("overhead", among=(0.1, 0.3, 1, 3, 10, 20)),
            above(0),
        ),
        Claim(
            "exponent of the overhead in the contention level, from 1 to 20",
            "increases slowly: above 0",
            _grows("overhead"),
            above(0),
            "beyond contention 1 servers are full, and what is handed out hardly grows",
        ),
        Claim(
            "exponent of the overhead in the contention level, from 0.1 to 1",
            "slowly: below 1/2",
            _grows("overhead", among=(0.1, 0.3, 1)),
            below(0.5),
            "as long as servers are not full, allocation and overhead grow with requests",
        ),
    ],
)
