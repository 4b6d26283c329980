"""What the figures share: policies, readings of the capacities, and experiments over both.

The paper does not state the capacities: its Table 3 has "bounds 2 and 1" on c. Read as whole
numbers for the cluster, one or two of some 32 channels can be on, which its α = 0.5 contradicts;
so a quarter and a half of all requests are played, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment, PolicyTable
from gangwise.experiments.statistics import Estimate
from gangwise.reproduce.artefact import Found, Scale

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
NOT_COMPARED = "leads, but was not compared with this one"

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
            scenario="esdp-default-v1",
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
