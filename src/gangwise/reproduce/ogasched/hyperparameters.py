"""§4.1: the initial learning rate η₀ and its decay, Fig. 4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.report.picture import Panel
from gangwise.reproduce.artefact import Artefact, Claim, Found, Scale, above, below
from gangwise.reproduce.measures import from_optimum, lead, least, so_far, table
from gangwise.reproduce.ogasched.study import (
    BASELINES,
    EXACT,
    ONE_STEP,
    OURS,
    PAPER,
    PRINTED,
    RESERVE,
    SCENARIO,
    gradient,
)

if TYPE_CHECKING:
    import polars as pl


NAME = "ogasched-rates"
FAIR = BASELINES["FAIRNESS"]
SWEPT = {ONE_STEP: ONE_STEP, EXACT: EXACT, "as printed": PRINTED}
ETAS = (0.1, 1.0, 5.0, 25.0, 100.0)
DECAYS = (0.95, 0.99, 0.995, 0.9999, 1.0001)
GOOD = (0.995, 0.9999)


def _label(version: str, eta: float, decay: float) -> str:
    return f"{version}, {eta:g}, {decay:g}"


def _experiments(scale: Scale) -> Sequence[Experiment]:
    rates = [(eta, PAPER[1]) for eta in ETAS]
    rates += [(PAPER[0], decay) for decay in DECAYS if decay != PAPER[1]]
    return [
        Experiment(
            name=NAME,
            scenario=SCENARIO,
            slots=scale.pick(200, 2000),
            seeds=scale.first_seeds(2, 10),
            policies=[
                *(
                    gradient(who, _label(version, *rate), *rate)
                    for version, who in SWEPT.items()
                    for rate in rates
                ),
                OURS,
                RESERVE,
                FAIR,
            ],
        )
    ]


def _numbers(found: Found) -> pl.DataFrame:
    results = found[NAME]
    fair = so_far(results, FAIR)
    rows: list[tuple[str, str, float | str, Estimate]] = []
    for panel, rates in (
        ("initial learning rate", [(f"{eta:g}", eta, PAPER[1]) for eta in ETAS]),
        ("decay", [(f"{decay:g}", PAPER[0], decay) for decay in DECAYS]),
    ):
        for x, eta, decay in rates:
            lines = {who: _label(version, eta, decay) for version, who in SWEPT.items()}
            rows.append((panel, OURS, x, from_optimum(so_far(results, OURS), fair)))
            rows += [
                (panel, line, x, from_optimum(so_far(results, who), fair))
                for line, who in (lines | {who: who for who in (RESERVE, FAIR)}).items()
            ]
    return table(rows)


def _slower_than_faster(found: Found) -> dict[str, Estimate]:
    return {
        version: lead(found[NAME], _label(version, *PAPER), _label(version, PAPER[0], 1.0001))
        for version in SWEPT
    }


def _inside(found: Found) -> dict[str, Estimate]:
    results = found[NAME]

    def best(version: str, among: Sequence[float]) -> str:
        labels = [_label(version, PAPER[0], decay) for decay in among]
        return max(labels, key=lambda label: float(so_far(results, label).mean()))

    others = [decay for decay in DECAYS if decay not in GOOD]
    return {v: lead(results, best(v, GOOD), best(v, others)) for v in SWEPT}


def _worst(found: Found) -> dict[str, Estimate]:
    results, slots = found[NAME], float(found[NAME].runs[0]["slots"])
    return {
        version: least(
            mean_and_interval(so_far(results, _label(version, *rate)) / slots)
            for rate in [(e, PAPER[1]) for e in ETAS] + [(PAPER[0], d) for d in DECAYS]
        )
        for version in SWEPT
    }


def _over_tuned(results: Results, version: str, ours: str) -> Estimate:
    labels = [_label(version, eta, PAPER[1]) for eta in ETAS]
    labels += [_label(version, PAPER[0], decay) for decay in DECAYS]
    best = max(labels, key=lambda label: float(so_far(results, label).mean()))
    return lead(results, ours, best)


FIGURE_4 = Artefact(
    "ogasched",
    "figure-4",
    "learning rates (± of the difference to FAIRNESS)",
    _experiments,
    _numbers,
    [
        Panel("initial learning rate", "η₀, decay 0.9999", "accumulated reward", "bars"),
        Panel("decay", "decay, η₀ = 25", "accumulated reward", "bars"),
    ],
    [
        Claim(
            "decay 0.9999 over 1.0001, %",
            "better",
            _slower_than_faster,
            above(0),
            "the two differ by a fifth of the step or less over the first 1000 slots",
        ),
        Claim(
            "best decay in [0.995, 0.9999] over the best outside, %",
            "the best range",
            _inside,
            above(0),
            "a decay only repairs an η₀ that is too large for the cluster at hand",
        ),
        Claim(
            "smallest average reward over all rates",
            "may be negative",
            _worst,
            below(0),
            "decisions stay feasible whatever the step, and our devices' overheads do not "
            "outweigh gains",
        ),
        Claim(
            "a step without tuning over the best rate tried, %",
            "not compared",
            lambda found: {
                "ogasched-reserve over exact projection": _over_tuned(found[NAME], EXACT, RESERVE),
                "ogasched-react over one step": _over_tuned(found[NAME], ONE_STEP, OURS),
            },
            above(0),
        ),
    ],
)
