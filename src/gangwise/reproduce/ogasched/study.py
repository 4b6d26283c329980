"""What the artefacts share: policies, by what they are called, and experiments with all of them.

The paper's Algorithm 1 decides before the arrivals are seen and projects wrongly; its experiments
must have decided afterwards (see ``docs/papers/ogasched.md``). So OGASched is played in four
versions, from Algorithm 1 as printed to the one that works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment, PolicyTable
from gangwise.experiments.statistics import Estimate
from gangwise.reproduce.artefact import Scale
from gangwise.reproduce.measures import from_optimum, so_far, values

if TYPE_CHECKING:
    import polars as pl


Floats = npt.NDArray[np.float64]

SCENARIO = "ogasched-default-v1"
OURS, PRINTED, RESERVE, GREEDY = (
    "ogasched-react",
    "ogasched-as-printed",
    "ogasched-reserve",
    "greedy",
)
EXACT, ONE_STEP = "Algorithm 1, exact projection", "one step after the arrivals"
OPTIMUM, BEST_FIXED = "per_slot_optimum", "best_fixed"
BASELINES: Mapping[str, str] = {
    "DRF": "drf",
    "FAIRNESS": "fairness",
    "BINPACKING": "binpacking",
    "SPREADING": "spreading",
}
VERSIONS: Mapping[str, str] = {"as printed": PRINTED, EXACT: EXACT, ONE_STEP: ONE_STEP, OURS: OURS}
"""Versions of OGASched: as printed; its projection corrected; also shown the arrivals first, as the
paper's experiments must have been; also with a step that does not vanish."""

PLAYED = (OURS, ONE_STEP, EXACT, PRINTED, RESERVE, *BASELINES.values(), GREEDY)
PAPER = (25.0, 0.9999)
"""η₀ and its decay, Table 1."""

DEVICES = "device ranges and requests are not published"
READING = (
    "Algorithm 1 decides before the arrivals are seen, so that what it holds for absent jobs is "
    "lost; " + DEVICES
)


def gradient(version: str, label: str, eta: float, decay: float) -> PolicyTable:
    """A version with the paper's learning rate η₀ · decay^t."""
    rate: dict[str, Any] = {"eta": eta, "decay": decay}
    if version == PRINTED:
        return PolicyTable(name=PRINTED, label=label, arguments=rate)
    if version == EXACT:
        return PolicyTable(name=RESERVE, label=label, arguments={"rule": "decay", **rate})
    more = {"rule": "decay", "steps": 1, "smoothing": 0.0}
    return PolicyTable(name=OURS, label=label, arguments={**more, **rate})


def study(
    name: str,
    scale: Scale,
    slots: tuple[int, int] = (200, 2000),
    seeds: tuple[int, int] = (2, 10),
    scenario: str = SCENARIO,
    optimum_slots: tuple[int, int] = (5, 40),
    more: Sequence[PolicyTable] = (),
    comparators: Sequence[str] = (OPTIMUM,),
    **fields: Any,
) -> Experiment:
    """All policies in one experiment; pairs are for the quick scale and the full one."""
    policies: list[str | PolicyTable] = [
        gradient(who, who, *PAPER) if who in (EXACT, ONE_STEP, PRINTED) else who for who in PLAYED
    ]
    return Experiment(
        name=f"ogasched-{name}",
        scenario=scenario,
        policies=[*policies, *more],
        slots=scale.pick(*slots),
        seeds=scale.first_seeds(*seeds),
        comparators=list(comparators),
        optimum_slots=scale.pick(*optimum_slots),
        **fields,
    )


@lru_cache(maxsize=32)
def _behind(results: Results) -> pl.DataFrame:
    return results.against(OPTIMUM)


def optimum(results: Results, **cell: Any) -> Floats:
    """Reward of the per-slot optimum over all slots; shape [seeds].

    It is known on some slots only. There ``ogasched-react`` is measured against it; its own reward
    over all slots is then corrected by that, which leaves far less to chance than the sampled slots
    do by themselves.
    """
    import polars as pl

    rows = _behind(results).filter(pl.col("policy") == OURS)
    for key, value in cell.items():
        rows = rows.filter(pl.col(key) == value)
    found: Floats = so_far(results, OURS, **cell) + rows.sort("seed")["regret"].to_numpy()
    return found


def per_version(
    results: Results, measure: Callable[[Results, str], Estimate]
) -> dict[str, Estimate]:
    """A measure of every version of OGASched."""
    return {version: measure(results, who) for version, who in VERSIONS.items()}


def against_setting(
    panel: str, results: Results, key: str, slots: float = 1.0
) -> list[tuple[str, str, float | str, Estimate]]:
    """Points of a picture: reward against a setting, over ``slots``.

    Clusters differ far more from seed to seed than policies do on any of them; so intervals are
    those of the difference to FAIRNESS, which itself has none.
    """
    rows: list[tuple[str, str, float | str, Estimate]] = []
    for x in values(results, key):
        cell = {key: x}
        fair = so_far(results, BASELINES["FAIRNESS"], **cell) / slots
        at = x if isinstance(x, str) else float(x)
        rows += [
            (panel, who, at, from_optimum(so_far(results, who, **cell) / slots, fair))
            for who in PLAYED
        ]
        rows.append((panel, OPTIMUM, at, from_optimum(optimum(results, **cell) / slots, fair)))
    return rows
