"""The same artefacts on rows of the traces, with every plausible reading of which rows.

The papers take machines and jobs from public traces and do not publish which rows. So an artefact
is played once for each :class:`Reading`, and what is said of a claim covers all of them: a version
of an algorithm agrees where it does with every reading, and else depends on the reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from gangwise.experiments.specification import Experiment
from gangwise.experiments.statistics import Estimate
from gangwise.reproduce.artefact import AT, ON_ROWS, Artefact, Found, NotCompared, Scale

FOLDER = "alibaba-v2018"
"""Of the traces' folder; that of gpu-v2020 stands beside it."""


@dataclass(frozen=True)
class Reading:
    """Which rows the authors may have taken: a name, and settings of the scenario."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)


ROWS = (
    Reading("varied rows of both traces"),
    Reading("uniform rows", {"rows": "uniform"}),
    Reading("first rows", {"rows": "first"}),
    Reading("all of gpu-v2020", {"machines": "gpu-v2020", "jobs": "gpu-v2020"}),
    Reading("all of v2018", {"machines": "v2018", "jobs": "v2018"}),
    Reading("all tasks of a row", {"tasks": "whole"}),
    Reading("arrivals of the traces", {"arrivals": "trace"}),
)


def traced(
    artefact: Artefact,
    instead: str,
    scenario: str,
    readings: Sequence[Reading],
    slots: tuple[int, int],
    seeds: tuple[int, int] = (3, 5),
) -> Artefact:
    """An artefact on rows of the traces, once for each reading; its picture is of the first.

    Parameters
    ----------
    artefact : Artefact
    instead, scenario : str
        The scenario of the artefact's that is replaced (experiments with another one are not
        played), and the one that takes its settings and those of the readings.
    slots, seeds : pair of int
        At most so many, at the quick scale and the full one: there are many readings.
    """

    def experiments(scale: Scale) -> list[Experiment]:
        chosen = scale if scale.seeds else replace(scale, seeds=tuple(scale.first_seeds(*seeds)))
        folder = {"folder": str(scale.traces or "")}
        return [
            one.model_copy(
                update={
                    "name": f"{one.name}{_of(i)}",
                    "scenario": scenario,
                    "settings": {**one.settings, **reading.settings, **folder},
                    "slots": min(one.slots or 2000, scale.pick(*slots)),
                }
            )
            for i, reading in enumerate(readings)
            for one in artefact.experiments(chosen)
            if one.scenario == instead
        ]

    def numbers(found: Found) -> pl.DataFrame:
        return artefact.numbers(_only(found, 0))

    return Artefact(
        artefact.paper,
        f"{artefact.name}{ON_ROWS}",
        f"{artefact.title}, {readings[0].name}",
        experiments,
        numbers,
        artefact.panels,
        [
            replace(claim, ours=_in_all(claim.ours, readings))
            for claim in artefact.claims
            if not claim.timed and not isinstance(claim.judge, NotCompared)
        ],
        FOLDER,
    )


def _of(reading: int) -> str:
    return f"-rows-{reading}"


def _only(found: Found, reading: int) -> Found:
    """Results with one reading, by the names that the artefact knows."""
    ending = _of(reading)
    return {k.removesuffix(ending): v for k, v in found.items() if k.endswith(ending)}


def _in_all(
    ours: Callable[[Found], Mapping[str, Estimate]], readings: Sequence[Reading]
) -> Callable[[Found], dict[str, Estimate]]:
    """A measure in all readings but those without an answer, such as an exponent of a loss."""

    def measure(found: Found) -> dict[str, Estimate]:
        with np.errstate(invalid="ignore", divide="ignore"):
            return {
                f"{version}{AT}{reading.name}": estimate
                for i, reading in enumerate(readings)
                for version, estimate in ours(_only(found, i)).items()
                if np.isfinite(estimate.mean)
            }

    return measure
