"""§4.1: average and accumulated reward over time, and ratios to the baselines, Fig. 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment, PolicyTable
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.report.picture import Panel
from gangwise.reproduce.artefact import Artefact, Claim, Found, Scale, above, below, near
from gangwise.reproduce.measures import from_optimum, lead, least, recorded, so_far, table
from gangwise.reproduce.ogasched.study import (
    BASELINES,
    BEST_FIXED,
    GREEDY,
    ONE_STEP,
    OPTIMUM,
    OURS,
    PLAYED,
    PRINTED,
    READING,
    optimum,
    per_version,
    study,
)
from gangwise.reproduce.ogasched.table import HORIZON, at_horizon

if TYPE_CHECKING:
    import polars as pl


NAME = "ogasched-verification"
CONNECTED = "fairness, shares of all connected"
HEADLINE = {"DRF": 11.33, "FAIRNESS": 7.75, "BINPACKING": 13.89, "SPREADING": 13.44}
FAIR = BASELINES["FAIRNESS"]


def _experiments(scale: Scale) -> Sequence[Experiment]:
    connected = PolicyTable(name="fairness", label=CONNECTED, arguments={"share": "all"})
    caption = {"beta": [0.4, 0.6], "contention": 11}
    return [
        study(
            "verification",
            scale,
            slots=(1000, 8000),
            settings=caption,
            more=[connected],
            comparators=[OPTIMUM, BEST_FIXED],
        ),
        HORIZON(scale),
    ]


def _numbers(found: Found) -> pl.DataFrame:
    results = found[NAME]
    T = recorded(results, OURS)[-1]
    slots = [at for at in recorded(results, OURS) if at >= T / 200]
    fair, best = {at: so_far(results, FAIR, at) for at in slots}, optimum(results) / T
    rows: list[tuple[str, str, float | str, Estimate]] = []
    for who in PLAYED:
        earned = {at: so_far(results, who, at) for at in slots}
        rows += [("average", who, at, from_optimum(earned[at] / at, fair[at] / at)) for at in slots]
        rows += [("accumulated", who, at, from_optimum(earned[at], fair[at])) for at in slots]
    level = from_optimum(best, fair[T] / T)
    rows += [("average", OPTIMUM, at, level) for at in (slots[0], T)]
    for who in (OURS, ONE_STEP, PRINTED):
        rows += [
            (
                f"ratio of {who}",
                base,
                at,
                mean_and_interval(so_far(results, who, at) / so_far(results, base, at)),
            )
            for base in BASELINES.values()
            for at in slots
        ]
    return table(rows)


def _lead(base: str) -> Callable[[Found], dict[str, Estimate]]:
    def ours(found: Found) -> dict[str, Estimate]:
        caption = per_version(found[NAME], lambda results, who: lead(results, who, base))
        default = per_version(
            found["ogasched-horizon"],
            lambda results, who: lead(results, who, base, at_horizon(results, 5)),
        )
        return {f"{v}, settings of the caption": e for v, e in caption.items()} | {
            f"{v}, default settings": e for v, e in default.items()
        }

    return ours


def _fairness_first(found: Found) -> dict[str, Estimate]:
    others = [base for base in BASELINES.values() if base != FAIR]
    return {
        version: least(lead(found[NAME], who, base) for base in others)
        for version, who in (("shares of the arrived", FAIR), ("as printed", CONNECTED))
    }


def _best_fixed(found: Found) -> dict[str, Estimate]:
    return {
        "settings of the caption": lead(found[NAME], BEST_FIXED, FAIR),
        "default settings": lead(found["ogasched-horizon"], BEST_FIXED, FAIR),
    }


def _ratio_grows(results: Results, who: str) -> Estimate:
    T = recorded(results, who)[-1]
    late, early = (so_far(results, who, at) / so_far(results, FAIR, at) for at in (T, T / 8))
    return mean_and_interval(100 * (late - early))


def _at_first(results: Results, who: str) -> Estimate:
    slots = recorded(results, who)[-1] / 100
    return least(lead(results, who, BASELINES[base], slots) for base in ("FAIRNESS", "DRF"))


def _share(results: Results, who: str) -> Estimate:
    return mean_and_interval(100 * so_far(results, who) / optimum(results))


def _seconds(results: Results, who: str) -> Estimate:
    import polars as pl

    times = results.per_seed("us_per_slot").filter(pl.col("policy") == who)["value"].to_numpy()
    return mean_and_interval(8000 * np.asarray(times) / 1e6)


FIGURE_2 = Artefact(
    "ogasched",
    "figure-2",
    "reward over time (± of the difference to FAIRNESS)",
    _experiments,
    _numbers,
    [
        Panel("average", "slot", "average reward until slot"),
        Panel("accumulated", "slot", "accumulated reward"),
        *(
            Panel(f"ratio of {who}", "slot", f"reward of {name} / baseline", level=1.0)
            for who, name in ((OURS, "react"), (ONE_STEP, "one step"), (PRINTED, "as printed"))
        ),
    ],
    [
        *(
            Claim(
                f"OGASched over {name}, %",
                HEADLINE[name],
                _lead(base),
                near(HEADLINE[name]),
                READING,
            )
            for name, base in BASELINES.items()
        ),
        Claim(
            "FAIRNESS over the best of the other baselines, %",
            "the best of the baselines",
            _fairness_first,
            above(0),
            "as printed, shares are of all connected job types, and those of the absent ones "
            "stay unused; the paper's picture needs shares of the arrived",
        ),
        Claim(
            "best fixed decision over FAIRNESS, %",
            "not compared",
            _best_fixed,
            above(0),
            "what any algorithm that decides before the arrivals can learn",
        ),
        Claim(
            "OGASched's ratio to FAIRNESS at T less that at T/8, % points",
            "increases with time",
            lambda found: per_version(found[NAME], _ratio_grows),
            above(0),
            "what grows is the effect of the decaying step; a step that is right from the start "
            "leaves nothing to grow",
        ),
        Claim(
            "OGASched over FAIRNESS or DRF in the first hundredth of the slots, %",
            "FAIRNESS and DRF have a slight edge",
            lambda found: per_version(found[NAME], _at_first),
            below(0),
            "OGASched starts from FAIRNESS's own shares and steps after the arrivals",
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
            lambda found: per_version(found[NAME], _share),
            near(100, 0.05),
            READING,
        ),
        Claim(
            "seconds for 8000 slots",
            "one hour",
            lambda found: per_version(found[NAME], _seconds),
            below(3600.0),
            "on one core here, on 48 there",
            timed=True,
        ),
    ],
)
