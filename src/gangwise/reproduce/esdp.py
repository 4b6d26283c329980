"""ESDP (IEEE TPDS 2023): AOU over time (Figs. 2 to 4), time of computation (5), theorems.

Fig. 13 varies the horizon: no policy is told T, so the first slots of a long run are a shorter run.
Times are not results to find again, and are left out of what is committed.

Theorem 2 bounds the regret by a constant times ln T · |E| (ln m)² / Δ, with m the most channels
that x*(t) has and Δ the least that another choice loses. As printed, Δ is taken over the choices
played, and is 0 once the best one is played; here it is over all other choices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gangwise.core.arrays import Floats
from gangwise.core.registry import create
from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.fluctuating_speeds.environment import FluctuatingSpeedsInstance
from gangwise.fluctuating_speeds.esdp import ESDPAsPrinted
from gangwise.fluctuating_speeds.solvers import P3Solver
from gangwise.report.plotting import Panel
from gangwise.reproduce.artefact import (
    Above,
    Artefact,
    Below,
    Claim,
    Found,
    Near,
    NotCompared,
    Rule,
    Scale,
    from_optimum,
    lead,
    least,
    per_slot,
    recorded,
    so_far,
    table,
    values,
)
from gangwise.reproduce.esdp_settings import (
    AOU,
    BASELINES,
    CAPACITY,
    CHANNEL,
    DISTANCE,
    NOT_COMPARED,
    OPTIMUM,
    OURS,
    PLAYED,
    POLICIES,
    PRINTED,
    QUARTER_AND_HALF,
    READINGS,
    SCALES,
    SCENARIO,
    SENSITIVITY,
    SEQUENCES,
    VERSIONS,
    curves,
    in_readings,
    name_of,
    regret,
    studies,
)
from gangwise.reproduce.traced import ROWS, Reading, traced

STUDY, ALL = "verification", tuple(READINGS)
EARLY = 50
UP_TO = {"LWTF": 73.0, "LCF": 36.0, "HAUF": 28.0}
ORDER = f"{CAPACITY}, nor which of the three numbers belongs to which baseline"


def _verification_experiments(scale: Scale) -> Sequence[Experiment]:
    return studies(STUDY, ALL, scale, slots=(1000, 8000), seeds=(3, 20))


def _verification_panels(found: Found) -> dict[str, Results]:
    return {reading: found[name_of(STUDY, reading)] for reading in ALL}


def _verification_end(results: Results) -> float:
    return float(recorded(results, OPTIMUM)[-1])


def _lead(base: str) -> Claim:
    def measure(results: Results, policy: str) -> Estimate:
        return lead(results, policy, BASELINES[base])

    return Claim(
        f"ESDP over {base} at the last slot, %",
        UP_TO[base],
        in_readings(STUDY, ALL, measure),
        Near(UP_TO[base]),
        ORDER,
    )


def _lead_of_preprint(base: str) -> Claim:
    def measure(results: Results, policy: str) -> Estimate:
        return lead(results, policy, BASELINES[base], _verification_end(results) / 4)

    return Claim(
        f"ESDP over {base} after a quarter of the slots (the preprint's 2000), %",
        UP_TO[base],
        in_readings(STUDY, ["c = 1/4"], measure),
        Near(UP_TO[base]),
        f"{ORDER}; the journal has 8000 slots for the same numbers",
    )


def _at_first(results: Results, policy: str) -> Estimate:
    return lead(results, policy, "hauf", EARLY)


def _later(results: Results, policy: str) -> Estimate:
    end = _verification_end(results)
    ours, theirs = (per_slot(results, who, end / 2, end) for who in (policy, "hauf"))
    return mean_and_interval(100 * (ours / theirs - 1))


def _over_channels(results: Results, policy: str) -> Estimate:
    return lead(results, policy, CHANNEL)


FIGURE_2 = Artefact(
    "esdp",
    "figure-2",
    f"AOU against time slots {DISTANCE}",
    _verification_experiments,
    lambda found: curves(_verification_panels(found)),
    [Panel(reading, "slot", AOU) for reading in ALL],
    [
        *(_lead(base) for base in BASELINES),
        *(_lead_of_preprint(base) for base in BASELINES),
        Claim(
            f"ESDP over HAUF at slot {EARLY}, %",
            "behind at first",
            in_readings(STUDY, ALL, _at_first),
            Below(0),
            "a choice over channels beats a ranking of job types from the first slots on, unless "
            "very few channels can be on",
        ),
        Claim(
            "ESDP over HAUF in the second half of the slots, %",
            "the gap keeps widening",
            in_readings(STUDY, ALL, _later),
            Above(0),
            CAPACITY,
        ),
        Claim(
            "ESDP over HAUF that ranks channels, at the last slot, %",
            NOT_COMPARED,
            in_readings(STUDY, ALL, _over_channels),
            NotCompared(),
            "the same greedy over channels instead of job types; most of the printed gains come "
            "from that difference",
        ),
    ],
)


def _ratios(found: Found) -> pl.DataFrame:
    rows = []
    for reading, results in _verification_panels(found).items():
        slots = [x for x in recorded(results, OPTIMUM) if x >= 10]
        for version, policy in VERSIONS.items():
            for name, base in BASELINES.items():
                for x in slots:
                    ratio = so_far(results, policy, x) / so_far(results, base, x)
                    rows.append((f"{version}, {reading}", name, x, mean_and_interval(ratio)))
    return table(rows)


def _rises(base: str) -> Claim:
    def measure(results: Results, policy: str) -> Estimate:
        end = _verification_end(results)
        first, last = (
            so_far(results, policy, at) / so_far(results, base, at) for at in (end / 8, end)
        )
        return mean_and_interval(100 * (last - first))

    name = next(key for key, value in BASELINES.items() if value == base)
    return Claim(
        f"AOU over that of {name}: last slot less slot T/8, points of a per cent",
        "increases significantly",
        in_readings(STUDY, ALL, measure),
        Above(0),
        "with g = ln(t + 1) there is little left to gain after the first slots",
    )


FIGURE_3 = Artefact(
    "esdp",
    "figure-3",
    "ratio of AOU to that of each baseline",
    _verification_experiments,
    _ratios,
    [
        Panel(f"{version}, {reading}", "slot", "ESDP / baseline", log_x=True, level=1.0)
        for version in VERSIONS
        for reading in ALL
    ],
    [_rises(base) for base in BASELINES.values()],
)


def _average(results: Results, who: str, at: float) -> Floats:
    return so_far(results, who, at) / at


def _rise(results: Results, who: str) -> Floats:
    """Growth of the average AOU from slot T/80 to T, in per cent."""
    end = _verification_end(results)
    return 100 * (_average(results, who, end) / _average(results, who, end / 80) - 1)


def _steeper(results: Results, policy: str) -> Estimate:
    return least(
        mean_and_interval(_rise(results, policy) - _rise(results, base))
        for base in BASELINES.values()
    )


def _flattens(results: Results, policy: str) -> Estimate:
    end = _verification_end(results)
    low, middle, high = (_average(results, policy, at) for at in (end / 80, end / 2, end))
    return mean_and_interval(100 * ((middle - low) - (high - middle)) / high)


def _of_optimum(results: Results, policy: str) -> Estimate:
    end = _verification_end(results)
    ours, best = (per_slot(results, who, end / 2, end) for who in (policy, OPTIMUM))
    return mean_and_interval(100 * ours / best)


def _swing(results: Results, policy: str) -> Estimate:
    averages = np.array([_average(results, policy, at) for at in range(1, 51)])
    swing = averages.max(axis=0) - averages.min(axis=0)
    return mean_and_interval(100 * swing / _average(results, policy, _verification_end(results)))


FIGURE_4 = Artefact(
    "esdp",
    "figure-4",
    f"average AOU against time slots {DISTANCE}",
    _verification_experiments,
    lambda found: curves(_verification_panels(found), average=True),
    [Panel(reading, "slot", "AOU per slot", log_x=True) for reading in ALL],
    [
        Claim(
            "rise of the average AOU from slot T/80 on, less that of the steepest baseline, "
            "points of a per cent",
            "steep, unlike the baselines",
            in_readings(STUDY, ALL, _steeper),
            Above(0),
            "with g = ln(t + 1) the rise is over before slot T/80",
        ),
        Claim(
            "rise of the average AOU up to T/2 less that after it, % of its end",
            "flattens",
            in_readings(STUDY, ALL, _flattens),
            Above(0),
            CAPACITY,
        ),
        Claim(
            "AOU in the second half of the slots, % of the optimum",
            "converges to the oracle",
            in_readings(STUDY, ALL, _of_optimum),
            Above(99.0),
            "what is given to absent job types is lost in every slot; agrees from 99 % on",
        ),
        Claim(
            "swing of the average AOU over slots 1 to 50, % of its end",
            "oscillates at the beginning",
            in_readings(STUDY, ALL, _swing, {**VERSIONS, "HAUF": "hauf"}),
            Above(0),
            "an average over few slots; of the baselines as well",
            beside=("HAUF",),
        ),
    ],
)

VERIFICATION = (FIGURE_2, FIGURE_3, FIGURE_4)


PROGRAMME = "esdp-by-programme"
NAMES = {
    OURS: "esdp",
    PRINTED: "as printed, branch and bound",
    PROGRAMME: "as printed, dynamic programme",
}


@dataclass
class ESDPByProgramme(ESDPAsPrinted):
    """The printed algorithm with the paper's own dynamic programme, to see how long it takes."""

    def _choose(
        self, v: Floats, s: Floats, available: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        return self._solver.solve(v, s, available=available, method="dp").x


def _overhead_experiments(scale: Scale) -> Sequence[Experiment]:
    seeds, full = scale.first_seeds(2, 5), not scale.quick
    name = "esdp-overhead"
    return [
        Experiment(
            name=f"{name}-{study}",
            scenario=SCENARIO,
            slots=scale.pick(slots // 5, slots),
            settings={"fraction": 0.25, "devices": devices},
            grid={"servers": servers},
            policies=policies,
            seeds=seeds,
        )
        for study, devices, slots, servers, policies in (
            ("one", 1, 1000, [20, 40, 80, 160] if full else [20, 40], [OURS, PRINTED]),
            ("one-programme", 1, 300, [20, 40, 60, 80] if full else [20, 40], [PROGRAMME]),
            ("three", 3, 1000, [20, 40, 80, 160] if full else [20, 40], [OURS, PRINTED]),
            ("three-programme", 3, 50, [10, 20, 40] if full else [10, 20], [PROGRAMME]),
        )
    ]


def microseconds(results: Results, policy: str, servers: int) -> Floats:
    """Time of a slot, by seed."""
    rows = results.per_seed("us_per_slot").filter(
        (pl.col("policy") == policy) & (pl.col("servers") == servers)
    )
    return rows.sort("seed")["value"].to_numpy()


def _overhead_panels(found: Found) -> list[tuple[str, Results, str]]:
    return [
        (panel, found[f"esdp-overhead-{study}{more}"], policy)
        for panel, study in (("one device type", "one"), ("three device types", "three"))
        for policy, more in ((OURS, ""), (PRINTED, ""), (PROGRAMME, "-programme"))
    ]


def _overhead_numbers(found: Found) -> pl.DataFrame:
    return table(
        [
            (
                panel,
                NAMES[policy],
                float(servers),
                mean_and_interval(microseconds(results, policy, servers)),
            )
            for panel, results, policy in _overhead_panels(found)
            for servers in values(results, "servers")
        ]
    )


def _exponent(results: Results, policy: str) -> Estimate:
    servers = values(results, "servers")
    times = np.array([microseconds(results, policy, r) for r in servers])
    return mean_and_interval(np.polyfit(np.log(servers), np.log(times), 1)[0])


def _exponents(found: Found) -> dict[str, Estimate]:
    return {
        f"{NAMES[policy]}, {panel}": _exponent(results, policy)
        for panel, results, policy in _overhead_panels(found)
    }


def _programme_over_ours(found: Found) -> dict[str, Estimate]:
    ours = {}
    for panel, study in (("one device type", "one"), ("three device types", "three")):
        programme, fast = (found[f"esdp-overhead-{study}{m}"] for m in ("-programme", ""))
        servers = max(set(values(programme, "servers")) & set(values(fast, "servers")))
        ratio = microseconds(programme, PROGRAMME, servers) / microseconds(fast, OURS, servers)
        ours[f"{panel}, {servers} servers"] = mean_and_interval(ratio)
    return ours


FIGURE_5 = Artefact(
    "esdp",
    "figure-5",
    "computation time of a slot",
    _overhead_experiments,
    _overhead_numbers,
    [
        Panel(name, "servers |R|", "µs per slot", "points", log_x=True, log_y=True)
        for name in ("one device type", "three device types")
    ],
    [
        Claim(
            "exponent of the time of a slot in |R|",
            "polynomial: |E| |S| Π c, that is 3 + K",
            _exponents,
            Below(6.0),
            "with |S| and c in proportion to |E|, or |E|² for |S|, the printed complexity is of "
            "degree 3 + K",
            timed=True,
        ),
        Claim(
            "time of the dynamic programme over that of the exact ESDP",
            "no other solver",
            _programme_over_ours,
            NotCompared(),
            "branch and bound answers the same",
            timed=True,
        ),
    ],
)


CASES: Mapping[str, Mapping[str, Any]] = {
    "c = 1/4": {"fraction": 0.25},
    "c = 1/2": {"fraction": 0.5},
    "c = 1 or 2": {"capacity": "literal"},
    "c = 1/4, ρ = 0.5": {"fraction": 0.25, "rho": 0.5},
    "c = 1/4, 80 servers": {"fraction": 0.25, "servers": 80},
    "c = 1/4, 12 job types": {"fraction": 0.25, "job_types": 12},
}
PARTS = (16, 8, 4, 2, 1)


def _horizon_experiments(scale: Scale) -> Sequence[Experiment]:
    return [
        Experiment(
            name=f"esdp-horizon-{i}",
            scenario=SCENARIO,
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


def _horizon_numbers(found: Found) -> pl.DataFrame:
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
    _horizon_experiments,
    _horizon_numbers,
    [Panel(case, "T", AOU, "points", log_x=True, log_y=True) for case in CASES],
    [
        Claim(
            "smallest lead of ESDP over a baseline at any T from T/16 on, %",
            "always performs the best",
            lambda found: _smallest_leads(list(BASELINES.values()), found),
            Above(0),
            CAPACITY,
        ),
        Claim(
            "smallest lead of ESDP over HAUF that ranks channels, at any T from T/16 on, %",
            NOT_COMPARED,
            lambda found: _smallest_leads([CHANNEL], found),
            NotCompared(),
            "the same greedy over channels instead of job types",
        ),
        Claim(
            "AOU per slot with T over that with T/16, %",
            "positive correlation with T",
            _better_with_time,
            Above(0),
            CAPACITY,
        ),
    ],
)


LEARNERS = (OURS, PRINTED, "thompson-beta")
JUDGED = {**VERSIONS, "thompson-beta": "thompson-beta"}
RIVALS = ("thompson-beta",)
ABSENT = "capacity given to absent job types is lost in every slot, however much is learned"
SHARE_OF_ALL, JOB_TYPES = 0.9, 8


def _theorem_experiments(scale: Scale) -> Sequence[Experiment]:
    return [
        experiment
        for reading, seeds in zip(QUARTER_AND_HALF, (20, 10))
        for experiment in studies(
            "regret", [reading], scale, (5000, 100_000), (3, seeds), LEARNERS, ["omniscient"]
        )
    ]


def _theorem_end(results: Results) -> float:
    return float(recorded(results, "omniscient")[-1])


def _shares(found: Found) -> pl.DataFrame:
    rows = []
    for reading in QUARTER_AND_HALF:
        results = found[name_of("regret", reading)]
        edges = np.geomspace(10, _theorem_end(results), 25)
        for policy in LEARNERS:
            for first, last in pairwise(edges):
                ours = per_slot(results, policy, first, last, "mean_utility")
                best = per_slot(results, "omniscient", first, last)
                rows.append((reading, policy, last, mean_and_interval(100 * ours / best)))
    return table(rows)


def _late_share(results: Results, policy: str) -> Estimate:
    end = _theorem_end(results)
    ours = per_slot(results, policy, end / 2, end, "mean_utility")
    return mean_and_interval(100 * ours / per_slot(results, "omniscient", end / 2, end))


PRINTED_CHANCE = math.exp(-((JOB_TYPES * (1 - SHARE_OF_ALL)) ** 2) / 3)

THEOREM_1 = Artefact(
    "esdp",
    "theorem-1",
    "share of what the best choice earns",
    _theorem_experiments,
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
            Above(99.0),
            f"{ABSENT}; agrees from 99 % on",
            beside=RIVALS,
        ),
        Claim(
            "chance that every job type has a job, so that nothing is switched off",
            f"at most {PRINTED_CHANCE:.2f}, (35)",
            lambda found: {"ρ = 0.9, |L| = 8": Estimate(SHARE_OF_ALL**JOB_TYPES, None, None)},
            Below(PRINTED_CHANCE),
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
            for at in np.geomspace(10, _theorem_end(results), 40):
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
        end = _theorem_end(results)
        return mean_and_interval(
            measure(*(regret(results, policy, at) for at in (end / 100, end / 10, end)))
        )

    return ours


def _slope_in_units(results: Results, policy: str) -> Estimate:
    end = _theorem_end(results)
    slope = (regret(results, policy) - regret(results, policy, end / 10)) / math.log(10)
    return mean_and_interval(slope / _bounds(results))


def _claim(
    says: str, paper: str, measure: Callable[[Results, str], Estimate], judge: Rule, why: str
) -> Claim:
    ours = in_readings("regret", QUARTER_AND_HALF, measure, JUDGED)
    return Claim(says, paper, ours, judge, why, beside=RIVALS)


THEOREM_2 = Artefact(
    "esdp",
    "theorem-2",
    "pseudo-regret against slots",
    _theorem_experiments,
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
            Below(math.sqrt(10)),
            f"{ABSENT}; agrees where it is less than of √T",
        ),
        _claim(
            "exponent of t in the regret, last decade of slots",
            "logarithmic: towards 0",
            _decades(lambda a, b, c: np.log10(c / b)),
            Below(0.5),
            f"{ABSENT}; agrees below 1/2",
        ),
        _claim(
            "slope of the regret against ln t, last decade, in units of |E| (ln m)² / Δ",
            "at most a constant, not stated",
            _slope_in_units,
            NotCompared(),
            "so wide that at these horizons a linear regret is within it, too",
        ),
    ],
)

THEOREMS = (THEOREM_1, THEOREM_2)


_FIGURES = (*VERIFICATION, FIGURE_5, *SENSITIVITY, *SEQUENCES, *SCALES, FIGURE_13)

OF_ROWS = (*ROWS, Reading("requests by rank", {"limits": "ranked"}))
"""Of which rows the paper took."""

TRACED = [
    traced(artefact, SCENARIO, "esdp-alibaba-v1", OF_ROWS, slots)
    for artefact, slots in (
        *((one, (100, 500)) for one in VERIFICATION),
        *((one, (50, 200)) for one in (*SENSITIVITY, *SEQUENCES, *SCALES)),
        (FIGURE_13, (100, 500)),
    )
]


def _number(figure: Artefact) -> int:
    return int(figure.name.split("-")[1])


ARTEFACTS = (*sorted(_FIGURES, key=_number), *THEOREMS, *sorted(TRACED, key=_number))
"""In the paper's order; then on rows of the traces, but for Fig. 5, which is of computation times.
"""
