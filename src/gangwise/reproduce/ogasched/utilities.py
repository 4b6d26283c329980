"""§4.2: utilities of every shape, Fig. 7."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.report.picture import Panel
from gangwise.reproduce.artefact import Artefact, Claim, Found, Scale, above, below
from gangwise.reproduce.measures import least, so_far, table, values
from gangwise.reproduce.ogasched.study import (
    BASELINES,
    READING,
    against_setting,
    per_version,
    study,
)

UTILITIES, AUTHORS = (f"ogasched-{name}" for name in ("utilities", "authors"))
EVERY = list(BASELINES.values())


def _utilities(scale: Scale) -> Sequence[Experiment]:
    grid = {"utility": ["linear", "poly", "log", "reciprocal", "mixed"]}
    return [
        study("utilities", scale, grid=grid),
        study("authors", scale, grid=grid, scenario="ogasched-authors-v1"),
    ]


def _differences(over: Sequence[str], utilities: Sequence[str] = ()) -> Any:
    """Smallest difference of rewards per slot: rewards of baselines may be negative."""

    def ours(found: Found) -> dict[str, Estimate]:
        answers: dict[str, Estimate] = {}
        for where, name in (("", UTILITIES), (", authors' ranges", AUTHORS)):
            results = found[name]
            slots = float(results.runs[0]["slots"])

            def measure(results: Results, who: str, slots: float = slots) -> Estimate:
                return least(
                    mean_and_interval(
                        (so_far(results, who, utility=u) - so_far(results, base, utility=u)) / slots
                    )
                    for u in utilities or values(results, "utility")
                    for base in over
                )

            answers |= {v + where: e for v, e in per_version(results, measure).items()}
        return answers

    return ours


def _less_than_linear(found: Found) -> dict[str, Estimate]:
    def measure(results: Results, who: str) -> Estimate:
        linear = so_far(results, who, utility="linear")
        others = (so_far(results, who, utility=u) for u in ("poly", "log", "reciprocal"))
        return max(
            (mean_and_interval(100 * other / linear) for other in others),
            key=lambda estimate: estimate.mean,
        )

    return {
        version + where: estimate
        for where, name in (("", UTILITIES), (", authors' ranges", AUTHORS))
        for version, estimate in per_version(found[name], measure).items()
    }


FIGURE_7 = Artefact(
    "ogasched",
    "figure-7",
    "accumulated reward and utilities (± of the difference to FAIRNESS)",
    _utilities,
    lambda found: table(
        [
            *against_setting("our ranges", found[UTILITIES], "utility"),
            *against_setting("authors' ranges", found[AUTHORS], "utility"),
        ]
    ),
    [
        Panel(name, "utility", "accumulated reward", "bars")
        for name in ("our ranges", "authors' ranges")
    ],
    [
        Claim(
            "largest reward with poly, log or reciprocal, % of that with linear",
            "significantly less",
            _less_than_linear,
            below(50),
        ),
        Claim(
            "smallest difference of OGASched and a baseline per slot, any utility",
            "superiority does not change",
            _differences(EVERY),
            above(0),
            "with linear utilities every baseline is within a per cent of the optimum; " + READING,
        ),
        Claim(
            "smallest difference of OGASched and a baseline per slot, utilities not linear",
            "superiority does not change",
            _differences(EVERY, ["poly", "log", "reciprocal", "mixed"]),
            above(0),
            READING,
        ),
        Claim(
            "difference of OGASched and FAIRNESS per slot, all reciprocal",
            "has its advantages",
            _differences([BASELINES["FAIRNESS"]], ["reciprocal"]),
            above(0),
        ),
    ],
)
