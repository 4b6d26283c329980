"""ESDP: what its artefacts share, and Figs. 6 to 12, AOU against settings (§4.2, §4.3).

The paper does not state the capacities: its Table 3 has "bounds 2 and 1" on c. Read as whole
numbers for the cluster, one or two of some 32 channels can be on, which its α = 0.5 contradicts;
so a quarter and a half of all requests are played, too. Whatever is earned, the optimum of the same
seeds stands beside it. Figs. 7 and 8 vary the sequences δ(t) and g(t), arguments of the policies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats
from gangwise.core.registry import create
from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment, PolicyTable
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.fluctuating_speeds.esdp import DELTAS
from gangwise.report.plotting import Panel
from gangwise.reproduce import artefact as measures
from gangwise.reproduce.artefact import (
    Above,
    Artefact,
    Below,
    Claim,
    Found,
    NotCompared,
    Scale,
    change,
    curve,
    from_optimum,
    lead,
    least,
    smallest_step,
    so_far,
    table,
    values,
)
from gangwise.scenarios.esdp import VARIATIONS

SCENARIO = "esdp-default-v1"
PRINTED, OURS, CHANNEL = "esdp-as-printed", "esdp", "hauf-channel"
VERSIONS: Mapping[str, str] = {"as printed": PRINTED, "esdp": OURS}
BASELINES: Mapping[str, str] = {"LWTF": "lwtf", "LCF": "lcf", "HAUF": "hauf"}
POLICIES = (OURS, PRINTED, *BASELINES.values(), CHANNEL, "thompson-beta")
OPTIMUM = "omniscient_realised"
PLAYED = (*POLICIES, OPTIMUM)

READINGS: Mapping[str, Mapping[str, Any]] = {
    "c = 1/4": {"fraction": 0.25},
    "c = 1/2": {"fraction": 0.5},
    "c = 1 or 2": {"capacity": "literal"},
}
"""Capacities as shares of all requests, and Table 3 read literally; by what they are called."""

QUARTER_AND_HALF = ("c = 1/4", "c = 1/2")

CAPACITY = "capacities are not stated"
NOT_COMPARED = "not compared with this one"

_SLUGS = {"c = 1/4": "quarter", "c = 1/2": "half", "c = 1 or 2": "literal"}


def name_of(study: str, reading: str) -> str:
    """The experiment of a study with these capacities."""
    return f"esdp-{study}-{_SLUGS[reading]}"


def studies(
    study: str,
    readings: Sequence[str],
    scale: Scale,
    slots: tuple[int, int],
    seeds: tuple[int, int],
    policies: Sequence[str | PolicyTable] = POLICIES,
    comparators: Sequence[str] = (OPTIMUM,),
    **more: Any,
) -> list[Experiment]:
    """One experiment for each reading; ``slots`` and ``seeds`` are quick and full."""
    return [
        Experiment(
            name=name_of(study, reading),
            scenario=SCENARIO,
            settings=dict(READINGS[reading]),
            policies=list(policies),
            slots=scale.pick(*slots),
            seeds=scale.first_seeds(*seeds),
            comparators=list(comparators),
            **more,
        )
        for reading in readings
    ]


def in_readings(
    study: str,
    readings: Sequence[str],
    measure: Callable[[Results, str], Estimate],
    policies: Mapping[str, str] = VERSIONS,
) -> Callable[[Found], dict[str, Estimate]]:
    """A measure of every policy with every reading of the capacities, for a claim."""

    def ours(found: Found) -> dict[str, Estimate]:
        return {
            f"{version}, {reading}": measure(found[name_of(study, reading)], policy)
            for reading in readings
            for version, policy in policies.items()
        }

    return ours


AOU, DISTANCE = "AOU, summed over slots", "(± of the distance to the optimum)"
"""A label of axes, and what titles say of intervals, see :func:`from_optimum`."""


def regret(results: Results, who: str, at: float | None = None, **cell: Any) -> Floats:
    """Pseudo-regret (6): means of x*(t) less means of what was played; shape [seeds]."""
    best = so_far(results, "omniscient", at, **cell)
    return best - so_far(results, who, at, "mean_utility", **cell)


def share(results: Results, who: str, **cell: Any) -> Floats:
    """What was earned as a share of what the best choices for the true means earned, in %."""
    return 100 * so_far(results, who, **cell) / so_far(results, OPTIMUM, **cell)


def smallest_lead(
    results: Results, who: str, key: str, over: Iterable[str] = tuple(BASELINES.values())
) -> Estimate:
    """The smallest lead over any baseline at any value of a setting, in per cent."""
    return measures.smallest_lead(results, who, key, over)


def curves(
    panels: Mapping[str, Results], average: bool = False, lines: Sequence[str] = PLAYED
) -> pl.DataFrame:
    """What was earned up to each recorded slot, in all or on average per slot."""
    rows = []
    for panel, results in panels.items():
        best = curve(results, OPTIMUM, "reward", {})[1]
        for who in lines:
            slots, sums = curve(results, who, "reward", {})
            per = slots if average else np.ones_like(slots)
            rows += [
                (panel, who, x, from_optimum(ours / p, theirs / p))
                for x, p, ours, theirs in zip(slots, per, sums.T, best.T)
            ]
    return table(rows)


def points(panels: Mapping[str, Results], key: str, lines: Sequence[str] = PLAYED) -> pl.DataFrame:
    """What was earned in all, against a setting."""
    return table(
        [
            (
                panel,
                who,
                float(x),
                from_optimum(*(so_far(results, each, **{key: x}) for each in (who, OPTIMUM))),
            )
            for panel, results in panels.items()
            for who in lines
            for x in values(results, key)
        ]
    )


SLOTS, SEEDS = (300, 2000), (3, 10)
EVERYONE = {**VERSIONS, **BASELINES}
QUICK = {
    "fig-6": (0.1, 0.8),
    "fig-9": (0.3, 0.8, 1.0),
    "fig-10": (0.05, 0.2),
    "fig-11": (4, 10),
    "fig-12": (20, 60, 80),
}


def _experiments(
    figure: str, readings: Sequence[str] = QUARTER_AND_HALF
) -> Callable[[Scale], Sequence[Experiment]]:
    key, full = VARIATIONS[figure]

    def experiments(scale: Scale) -> Sequence[Experiment]:
        grid = {key: list(QUICK[figure] if scale.quick else full)}
        return studies(figure, readings, scale, SLOTS, SEEDS, grid=grid)

    return experiments


def _numbers(figure: str) -> Callable[[Found], pl.DataFrame]:
    key, _ = VARIATIONS[figure]
    return lambda found: points(
        {reading: found[name_of(figure, reading)] for reading in QUARTER_AND_HALF}, key
    )


def _panels(label: str) -> list[Panel]:
    return [Panel(reading, label, AOU, "points") for reading in QUARTER_AND_HALF]


def _steps(
    figure: str, says: str, paper: str, why: str = "", among: Sequence[Any] | None = None
) -> Claim:
    key, _ = VARIATIONS[figure]

    def measure(results: Results, policy: str) -> Estimate:
        tried = values(results, key)
        return smallest_step(
            results, policy, key, [v for v in tried if among is None or v in among]
        )

    ours = in_readings(figure, QUARTER_AND_HALF, measure, EVERYONE)
    return Claim(
        f"smallest change of AOU from one {says} to the next, %", paper, ours, Above(0), why
    )


def _leading(figure: str, says: str) -> list[Claim]:
    key, _ = VARIATIONS[figure]

    def over_baselines(results: Results, policy: str) -> Estimate:
        return smallest_lead(results, policy, key)

    def over_channels(results: Results, policy: str) -> Estimate:
        return smallest_lead(results, policy, key, [CHANNEL])

    return [
        Claim(
            f"smallest lead of ESDP over a baseline at any {says}, %",
            "takes the lead",
            in_readings(figure, QUARTER_AND_HALF, over_baselines),
            Above(0),
            CAPACITY,
        ),
        Claim(
            f"smallest lead of ESDP over HAUF that ranks channels, at any {says}, %",
            NOT_COMPARED,
            in_readings(figure, QUARTER_AND_HALF, over_channels),
            NotCompared(),
            "the same greedy over channels instead of job types",
        ),
    ]


def _growth(found: Found) -> dict[str, Estimate]:
    results = found["esdp-fig-6"]
    least_used, most_used = values(results, "fraction")[0], values(results, "fraction")[-1]

    def growth(policy: str) -> Any:
        first, last = (so_far(results, policy, fraction=f) for f in (least_used, most_used))
        return 100 * (last / first - 1)

    return {
        version: least(
            mean_and_interval(growth(policy) - growth(base)) for base in BASELINES.values()
        )
        for version, policy in VERSIONS.items()
    }


def _gain(found: Found) -> dict[str, Estimate]:
    results = found["esdp-fig-6"]
    first, last = (values(results, "fraction")[i] for i in (0, -1))

    def gain(policy: str) -> Any:
        return so_far(results, policy, fraction=last) - so_far(results, policy, fraction=first)

    return {
        version: least(
            mean_and_interval(100 * (gain(policy) / gain(base) - 1)) for base in BASELINES.values()
        )
        for version, policy in VERSIONS.items()
    }


def _size(scale: Scale) -> Sequence[Experiment]:
    (experiment,) = _experiments("fig-6", ["c = 1/4"])(scale)
    return [experiment.model_copy(update={"name": "esdp-fig-6", "settings": {}})]


X_AXIS = "the paper's axis ‖A⁻¹x‖₂ is not defined, A has no inverse; ours is c over all requests"

FIGURE_6 = Artefact(
    "esdp",
    "figure-6",
    f"AOU against capacity {DISTANCE}",
    _size,
    lambda found: points({"AOU": found["esdp-fig-6"]}, "fraction"),
    [Panel("AOU", "capacity as a share of all requests", AOU, "points")],
    [
        Claim(
            "smallest change of AOU from one capacity to the next, %",
            "increases for all",
            lambda found: {
                version: smallest_step(found["esdp-fig-6"], policy, "fraction")
                for version, policy in EVERYONE.items()
            },
            Above(0),
            X_AXIS,
        ),
        Claim(
            "growth of ESDP less that of the steepest baseline, points of a per cent",
            "the highest growth",
            _growth,
            Above(0),
            f"{X_AXIS}; ESDP has the highest AOU where capacity is scarce, so less is left "
            "to grow by",
        ),
        Claim(
            "AOU gained from the smallest to the largest capacity, over that of the baseline "
            "that gains most, %",
            "the highest growth",
            _gain,
            Above(0),
            X_AXIS,
        ),
    ],
)


def _drop(results: Results, policy: str) -> Estimate:
    return change(results, policy, "rho", 0.8, 1.0)


FIGURE_9 = Artefact(
    "esdp",
    "figure-9",
    f"AOU against the arrival rate ρ {DISTANCE}",
    _experiments("fig-9"),
    _numbers("fig-9"),
    _panels("arrival rate ρ"),
    [
        _steps(
            "fig-9", "ρ up to 0.8", "goes up for nearly all", CAPACITY, among=(0.3, 0.5, 0.7, 0.8)
        ),
        Claim(
            "AOU at ρ = 1 over that at ρ = 0.8, %",
            "falls",
            in_readings(
                "fig-9",
                QUARTER_AND_HALF,
                _drop,
                {**VERSIONS, "HAUF": "hauf", "HAUF of channels": CHANNEL},
            ),
            Below(0),
            "more jobs are more choice, and the best choice only gains by it",
            beside=("HAUF", "HAUF of channels"),
        ),
    ],
)


def _harder(results: Results, policy: str) -> Estimate:
    sparse, dense = (values(results, "density")[i] for i in (0, -1))
    ours = (share(results, policy, density=d) for d in (dense, sparse))
    return mean_and_interval(next(ours) - next(ours))


FIGURE_10 = Artefact(
    "esdp",
    "figure-10",
    f"AOU against the density of the graph {DISTANCE}",
    _experiments("fig-10"),
    _numbers("fig-10"),
    _panels("probability of a channel"),
    [
        Claim(
            "share of the optimum, densest less sparsest graph, points of a per cent",
            "harder to search",
            in_readings("fig-10", QUARTER_AND_HALF, _harder),
            Below(0),
            "more channels to learn",
        )
    ],
)

FIGURE_11 = Artefact(
    "esdp",
    "figure-11",
    f"AOU against the number of job types {DISTANCE}",
    _experiments("fig-11"),
    _numbers("fig-11"),
    _panels("job types |L|"),
    [*_leading("fig-11", "|L|"), _steps("fig-11", "|L|", "similar to |R|: larger", CAPACITY)],
)


def _at_80(results: Results, policy: str) -> Estimate:
    return lead(results, policy, "hauf", servers=80)


def _channels_at_80(results: Results, policy: str) -> Estimate:
    return lead(results, policy, CHANNEL, servers=80)


FIGURE_12 = Artefact(
    "esdp",
    "figure-12",
    f"AOU against the number of servers {DISTANCE}",
    _experiments("fig-12"),
    _numbers("fig-12"),
    _panels("servers |R|"),
    [
        *_leading("fig-12", "|R|"),
        _steps("fig-12", "|R|", "larger for all", CAPACITY),
        Claim(
            "ESDP over HAUF at |R| = 80, %",
            "HAUF is ahead",
            in_readings("fig-12", QUARTER_AND_HALF, _at_80),
            Below(0),
            "contradicts the lead that the paper states beside it; a single run, perhaps",
        ),
        Claim(
            "ESDP over HAUF that ranks channels, at |R| = 80, %",
            "HAUF is ahead",
            in_readings("fig-12", QUARTER_AND_HALF, _channels_at_80),
            Below(0),
            "if the paper's HAUF ranked channels after all, its other numbers would not hold",
        ),
    ],
)

SENSITIVITY, SCALES = (FIGURE_6, FIGURE_9, FIGURE_10), (FIGURE_11, FIGURE_12)


SEQUENCE_SLOTS, SEQUENCE_SEEDS = (400, 2000), (3, 10)

PAPERS_DELTAS = {"1/(ln+1)": "log", "1/lnln": "loglog-no-plus-one", "1/(lnlnln+1)": "triple"}
SHOWN_DELTAS = {"1/(lnln+1)": "default", **PAPERS_DELTAS}
GS = {"ln + 4m lnln": "default", "4m lnln": "loglog", "ln": "log"}


def _deltas(scale: Scale) -> Sequence[Experiment]:
    with_delta = [
        PolicyTable(name=PRINTED, label=f"{delta}, g={g}", arguments={"delta": delta, "g": g})
        for g in ("default", "log")
        for delta in SHOWN_DELTAS.values()
    ]
    policies = [*with_delta, PolicyTable(name=OURS, label="exact")]
    return studies("delta", QUARTER_AND_HALF, scale, SEQUENCE_SLOTS, SEQUENCE_SEEDS, policies)


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
        Below(2.0),
        "little is less than 2 % here",
    )


def _size_ratio(found: Found) -> dict[str, Estimate]:
    results = found[name_of("delta", QUARTER_AND_HALF[0])]
    sizes = [_sizes(results, delta) for delta in PAPERS_DELTAS.values()]
    return {"as printed": mean_and_interval(np.max(sizes, axis=0) / np.min(sizes, axis=0))}


def _time_ratio(results: Results, policy: str) -> Estimate:
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
            Above(2.0),
            "strong is more than twice here",
        ),
        Claim(
            "time of a slot by branch and bound, slowest over fastest of the three δ(t)",
            "strong effect",
            in_readings("delta", QUARTER_AND_HALF, _time_ratio, {"as printed": PRINTED}),
            Above(2.0),
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
    return studies("g", tuple(READINGS), scale, SEQUENCE_SLOTS, SEQUENCE_SEEDS, [*with_g, less])


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
            Above(10.0),
            f"{CAPACITY}; overwhelming is more than 10 % here",
        ),
        Claim(
            "AOU with g = ¼ ln(t+1) over that with ln(t+1), %",
            "a smaller g(t) exploits more",
            in_readings("g", tuple(READINGS), _quarter, {"esdp": OURS}),
            Above(0),
            CAPACITY,
        ),
    ],
)

SEQUENCES = (FIGURE_7, FIGURE_8)
