"""§4.1: AOU against time, Figs. 2 to 4, from the same runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.report.picture import Panel
from gangwise.reproduce.artefact import Artefact, Claim, Found, Scale, above, below, near
from gangwise.reproduce.esdp.measures import AOU, DISTANCE, curves
from gangwise.reproduce.esdp.study import (
    BASELINES,
    CAPACITY,
    CHANNEL,
    NOT_COMPARED,
    OPTIMUM,
    READINGS,
    VERSIONS,
    in_readings,
    name_of,
    studies,
)
from gangwise.reproduce.measures import lead, least, per_slot, recorded, so_far, table

if TYPE_CHECKING:
    import polars as pl


Floats = npt.NDArray[np.float64]

STUDY, ALL = "verification", tuple(READINGS)
EARLY = 50
UP_TO = {"LWTF": 73.0, "LCF": 36.0, "HAUF": 28.0}
ORDER = f"{CAPACITY}, nor which of the three numbers belongs to which baseline"


def _experiments(scale: Scale) -> Sequence[Experiment]:
    return studies(STUDY, ALL, scale, slots=(1000, 8000), seeds=(3, 20))


def _panels(found: Found) -> dict[str, Results]:
    return {reading: found[name_of(STUDY, reading)] for reading in ALL}


def _end(results: Results) -> float:
    return float(recorded(results, OPTIMUM)[-1])


def _lead(base: str) -> Claim:
    def measure(results: Results, policy: str) -> Estimate:
        return lead(results, policy, BASELINES[base])

    return Claim(
        f"ESDP over {base} at the last slot, %",
        UP_TO[base],
        in_readings(STUDY, ALL, measure),
        near(UP_TO[base]),
        ORDER,
    )


def _lead_of_preprint(base: str) -> Claim:
    def measure(results: Results, policy: str) -> Estimate:
        return lead(results, policy, BASELINES[base], _end(results) / 4)

    return Claim(
        f"ESDP over {base} after a quarter of the slots (the preprint's 2000), %",
        UP_TO[base],
        in_readings(STUDY, ["c = 1/4"], measure),
        near(UP_TO[base]),
        f"{ORDER}; the journal has 8000 slots for the same numbers",
    )


def _at_first(results: Results, policy: str) -> Estimate:
    return lead(results, policy, "hauf", EARLY)


def _later(results: Results, policy: str) -> Estimate:
    end = _end(results)
    ours, theirs = (per_slot(results, who, end / 2, end) for who in (policy, "hauf"))
    return mean_and_interval(100 * (ours / theirs - 1))


def _over_channels(results: Results, policy: str) -> Estimate:
    return lead(results, policy, CHANNEL)


FIGURE_2 = Artefact(
    "esdp",
    "figure-2",
    f"AOU against time slots {DISTANCE}",
    _experiments,
    lambda found: curves(_panels(found)),
    [Panel(reading, "slot", AOU) for reading in ALL],
    [
        *(_lead(base) for base in BASELINES),
        *(_lead_of_preprint(base) for base in BASELINES),
        Claim(
            f"ESDP over HAUF at slot {EARLY}, %",
            "behind at first",
            in_readings(STUDY, ALL, _at_first),
            below(0),
            "a choice over channels beats a ranking of job types from the first slots on, unless "
            "very few channels can be on",
        ),
        Claim(
            "ESDP over HAUF in the second half of the slots, %",
            "the gap keeps widening",
            in_readings(STUDY, ALL, _later),
            above(0),
            CAPACITY,
        ),
        Claim(
            "ESDP over HAUF that ranks channels, at the last slot, %",
            NOT_COMPARED,
            in_readings(STUDY, ALL, _over_channels),
            above(0),
            "the same greedy over channels instead of job types; most of the printed gains come "
            "from that difference",
        ),
    ],
)


def _ratios(found: Found) -> pl.DataFrame:
    rows = []
    for reading, results in _panels(found).items():
        slots = [x for x in recorded(results, OPTIMUM) if x >= 10]
        for version, policy in VERSIONS.items():
            for name, base in BASELINES.items():
                for x in slots:
                    ratio = so_far(results, policy, x) / so_far(results, base, x)
                    rows.append((f"{version}, {reading}", name, x, mean_and_interval(ratio)))
    return table(rows)


def _rises(base: str) -> Claim:
    def measure(results: Results, policy: str) -> Estimate:
        end = _end(results)
        first, last = (
            so_far(results, policy, at) / so_far(results, base, at) for at in (end / 8, end)
        )
        return mean_and_interval(100 * (last - first))

    name = next(key for key, value in BASELINES.items() if value == base)
    return Claim(
        f"AOU over that of {name}: last slot less slot T/8, points of a per cent",
        "increases significantly",
        in_readings(STUDY, ALL, measure),
        above(0),
        "with g = ln(t + 1) there is little left to gain after the first slots",
    )


FIGURE_3 = Artefact(
    "esdp",
    "figure-3",
    "ratio of AOU to that of each baseline",
    _experiments,
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
    end = _end(results)
    return 100 * (_average(results, who, end) / _average(results, who, end / 80) - 1)


def _steeper(results: Results, policy: str) -> Estimate:
    return least(
        mean_and_interval(_rise(results, policy) - _rise(results, base))
        for base in BASELINES.values()
    )


def _flattens(results: Results, policy: str) -> Estimate:
    end = _end(results)
    low, middle, high = (_average(results, policy, at) for at in (end / 80, end / 2, end))
    return mean_and_interval(100 * ((middle - low) - (high - middle)) / high)


def _of_optimum(results: Results, policy: str) -> Estimate:
    end = _end(results)
    ours, best = (per_slot(results, who, end / 2, end) for who in (policy, OPTIMUM))
    return mean_and_interval(100 * ours / best)


def _swing(results: Results, policy: str) -> Estimate:
    averages = np.array([_average(results, policy, at) for at in range(1, 51)])
    swing = averages.max(axis=0) - averages.min(axis=0)
    return mean_and_interval(100 * swing / _average(results, policy, _end(results)))


FIGURE_4 = Artefact(
    "esdp",
    "figure-4",
    f"average AOU against time slots {DISTANCE}",
    _experiments,
    lambda found: curves(_panels(found), average=True),
    [Panel(reading, "slot", "AOU per slot", log_x=True) for reading in ALL],
    [
        Claim(
            "rise of the average AOU from slot T/80 on, less that of the steepest baseline, "
            "points of a per cent",
            "steep, unlike the baselines",
            in_readings(STUDY, ALL, _steeper),
            above(0),
            "with g = ln(t + 1) the rise is over before slot T/80",
        ),
        Claim(
            "rise of the average AOU up to T/2 less that after it, % of its end",
            "flattens",
            in_readings(STUDY, ALL, _flattens),
            above(0),
            CAPACITY,
        ),
        Claim(
            "AOU in the second half of the slots, % of the optimum",
            "converges to the oracle",
            in_readings(STUDY, ALL, _of_optimum),
            above(99.0),
            "what is given to absent job types is lost in every slot; agrees from 99 % on",
        ),
        Claim(
            "swing of the average AOU over slots 1 to 50, % of its end",
            "oscillates at the beginning",
            in_readings(STUDY, ALL, _swing, {**VERSIONS, "HAUF": "hauf"}),
            above(0),
            "an average over few slots; of the baselines as well",
        ),
    ],
)

VERIFICATION = (FIGURE_2, FIGURE_3, FIGURE_4)
