"""§4.2: the sequences δ(t) and g(t), Figs. 7 and 8, which are arguments of the policies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gangwise.core.registry import create
from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment, PolicyTable
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.fluctuating_speeds.esdp import DELTAS
from gangwise.report.picture import Panel
from gangwise.reproduce.artefact import Artefact, Claim, Found, Scale, above, below
from gangwise.reproduce.esdp.measures import AOU, DISTANCE
from gangwise.reproduce.esdp.study import (
    CAPACITY,
    OPTIMUM,
    OURS,
    PRINTED,
    QUARTER_AND_HALF,
    READINGS,
    in_readings,
    name_of,
    studies,
)
from gangwise.reproduce.measures import from_optimum, lead, least, so_far, table

if TYPE_CHECKING:
    import polars as pl


Floats = npt.NDArray[np.float64]

SLOTS, SEEDS = (400, 2000), (3, 10)

PAPERS_DELTAS = {"1/(ln+1)": "log", "1/lnln": "loglog-no-plus-one", "1/(lnlnln+1)": "triple"}
SHOWN_DELTAS = {"1/(lnln+1)": "default", **PAPERS_DELTAS}
GS = {"ln + 4m lnln": "default", "4m lnln": "loglog", "ln": "log"}


def _deltas(scale: Scale) -> Sequence[Experiment]:
    with_delta = [
        PolicyTable(name=PRINTED, label=f"{delta}, g={g}", arguments={"delta": delta, "g": g})
        for g in ("default", "log")
        for delta in SHOWN_DELTAS.values()
    ]
    exact = PolicyTable(name=OURS, label="exact")
    return studies("delta", QUARTER_AND_HALF, scale, SLOTS, SEEDS, [*with_delta, exact])


def numbers_s(delta: str, channels: int, slot: int, alpha: float = 0.5) -> float:
    """|S(t)| of (19) with ξ(t) of (18): how many numbers s the dynamic programme goes through.

    Examples
    --------
    >>> numbers_s("default", 32, 2000)
    817.0
    """
    m = alpha * channels
    return math.ceil(m / DELTAS[delta](slot)) * m + 1


def _channels(results: Results) -> list[int]:
    settings = results.experiment["settings"]
    scenario = create("scenario", results.experiment["scenario"], **settings)
    seeds = dict.fromkeys(run["seed"] for run in results.runs)
    return [scenario.instance(seed).problem.E for seed in seeds]


def _sizes(results: Results, delta: str) -> Floats:
    slot = results.runs[0]["slots"]
    return np.array([numbers_s(delta, channels, slot) for channels in _channels(results)])


def _earned(results: Results, who: str) -> Estimate:
    return from_optimum(so_far(results, who), so_far(results, OPTIMUM))


def _delta_numbers(found: Found) -> pl.DataFrame:
    rows: list[tuple[str, str, float | str, Estimate]] = []
    for reading in QUARTER_AND_HALF:
        results = found[name_of("delta", reading)]
        for text, delta in SHOWN_DELTAS.items():
            rows += [
                (reading, f"as printed, g {g}", text, _earned(results, f"{delta}, g={g}"))
                for g in ("default", "log")
            ]
        rows += [
            (reading, who, "exact", _earned(results, run))
            for who, run in (("esdp, not rounded", "exact"), (OPTIMUM, OPTIMUM))
        ]
    results = found[name_of("delta", QUARTER_AND_HALF[0])]
    rows += [
        ("effort", "numbers s, last slot", text, mean_and_interval(_sizes(results, delta)))
        for text, delta in SHOWN_DELTAS.items()
    ]
    return table(rows)


def _spread(g: str) -> Claim:
    def measure(results: Results, policy: str) -> Estimate:
        earned = [so_far(results, f"{delta}, g={g}") for delta in PAPERS_DELTAS.values()]
        means = [each.mean() for each in earned]
        most, fewest = earned[int(np.argmax(means))], earned[int(np.argmin(means))]
        return mean_and_interval(100 * (most / fewest - 1))

    return Claim(
        f"AOU with the best δ(t) over that with the worst, g {g}, %",
        "little effect",
        in_readings("delta", QUARTER_AND_HALF, measure, {"as printed": PRINTED}),
        below(2.0),
        "little is less than 2 % here",
    )


def _size_ratio(found: Found) -> dict[str, Estimate]:
    results = found[name_of("delta", QUARTER_AND_HALF[0])]
    sizes = [_sizes(results, delta) for delta in PAPERS_DELTAS.values()]
    return {"as printed": mean_and_interval(np.max(sizes, axis=0) / np.min(sizes, axis=0))}


def _time_ratio(results: Results, policy: str) -> Estimate:
    import polars as pl

    times = results.per_seed("us_per_slot").sort("seed")
    each = [
        times.filter(pl.col("policy") == f"{delta}, g=default")["value"].to_numpy()
        for delta in PAPERS_DELTAS.values()
    ]
    order = np.argsort([one.mean() for one in each])
    return mean_and_interval(each[order[-1]] / each[order[0]])


FIGURE_7 = Artefact(
    "esdp",
    "figure-7",
    f"AOU with δ(t) {DISTANCE}",
    _deltas,
    _delta_numbers,
    [
        *(Panel(reading, "δ(t)", AOU, "bars") for reading in QUARTER_AND_HALF),
        Panel("effort", "δ(t)", "numbers s of (19), last slot", "bars"),
    ],
    [
        _spread("default"),
        _spread("log"),
        Claim(
            "numbers s at the last slot, most over fewest of the three δ(t)",
            "strong effect",
            _size_ratio,
            above(2.0),
            "strong is more than twice here",
        ),
        Claim(
            "time of a slot by branch and bound, slowest over fastest of the three δ(t)",
            "strong effect",
            in_readings("delta", QUARTER_AND_HALF, _time_ratio, {"as printed": PRINTED}),
            above(2.0),
            "branch and bound does not go through the numbers s",
            timed=True,
        ),
    ],
)


def _gs(scale: Scale) -> Sequence[Experiment]:
    with_g = [
        PolicyTable(name=policy, label=f"{policy}, g={g}", arguments={"g": g})
        for policy in (PRINTED, OURS)
        for g in GS.values()
    ]
    less = PolicyTable(name=OURS, label="quarter", arguments={"kappa": 0.25})
    return studies("g", tuple(READINGS), scale, SLOTS, SEEDS, [*with_g, less])


def _g_numbers(found: Found) -> pl.DataFrame:
    rows: list[tuple[str, str, float | str, Estimate]] = []
    for reading in READINGS:
        results = found[name_of("g", reading)]
        for policy, line in ((PRINTED, "as printed"), (OURS, "esdp")):
            rows += [
                (reading, line, text, _earned(results, f"{policy}, g={g}"))
                for text, g in GS.items()
            ]
        rows += [
            (reading, line, "¼ ln", _earned(results, run))
            for line, run in (("esdp", "quarter"), (OPTIMUM, OPTIMUM))
        ]
    return table(rows)


def _advantage(results: Results, policy: str) -> Estimate:
    return least(
        lead(results, f"{policy}, g=log", f"{policy}, g={other}") for other in ("default", "loglog")
    )


def _quarter(results: Results, policy: str) -> Estimate:
    return lead(results, "quarter", f"{policy}, g=log")


FIGURE_8 = Artefact(
    "esdp",
    "figure-8",
    f"AOU with g(t) {DISTANCE}",
    _gs,
    _g_numbers,
    [Panel(reading, "g(t), m = α|E|", AOU, "bars") for reading in READINGS],
    [
        Claim(
            "AOU with g = ln(t+1) over that with the better of the other two, %",
            "overwhelming advantage",
            in_readings("g", tuple(READINGS), _advantage),
            above(10.0),
            f"{CAPACITY}; overwhelming is more than 10 % here",
        ),
        Claim(
            "AOU with g = ¼ ln(t+1) over that with ln(t+1), %",
            "a smaller g(t) exploits more",
            in_readings("g", tuple(READINGS), _quarter, {"esdp": OURS}),
            above(0),
            CAPACITY,
        ),
    ],
)

SEQUENCES = (FIGURE_7, FIGURE_8)
