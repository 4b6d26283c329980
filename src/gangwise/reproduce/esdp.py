"""ESDP (IEEE TPDS 2023), Figs. 2 to 13 and Theorems 1 and 2."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment
from gangwise.experiments.statistics import Estimate
from gangwise.reproduce.artefact import Artefact, Claim, Found, Scale, near, over
from gangwise.reproduce.picture import Panel

__all__ = ["ARTEFACTS"]

PRINTED, OURS = "esdp-as-printed", "esdp"
BASELINES = {"LWTF": "lwtf", "LCF": "lcf", "HAUF": "hauf"}
POLICIES = [OURS, PRINTED, *BASELINES.values(), "hauf-channel", "thompson-beta"]
CAPACITY = "capacities are not stated; ours are a quarter of all requests"


def _verification(scale: Scale) -> Sequence[Experiment]:
    """§4.1: one experiment behind Figs. 2, 3 and 4."""
    return [
        Experiment(
            name="esdp-verification", scenario="esdp-default-v1", settings={"fraction": 0.25},
            policies=list(POLICIES), slots=scale.pick(1000, 8000), seeds=scale.first_seeds(3, 20),
        )
    ]  # fmt: skip


def _curves(found: Found) -> pl.DataFrame:
    results = found["esdp-verification"]
    return results.curves("reward").select(
        pl.lit("AOU").alias("panel"), pl.col("policy").alias("line"),
        pl.col("at").cast(pl.Float64).alias("x"), "mean", "low", "high",
    )  # fmt: skip


def _lead(base: str) -> Claim:
    number = {"LWTF": 73.0, "LCF": 36.0, "HAUF": 28.0}[base]

    def ours(found: Found) -> dict[str, Estimate]:
        results: Results = found["esdp-verification"]
        return {
            "as printed": over(results, PRINTED, BASELINES[base]),
            "esdp": over(results, OURS, BASELINES[base]),
        }

    return Claim(f"ESDP over {base}, %", number, ours, near(number), CAPACITY)


FIGURE_2 = Artefact(
    "esdp", "figure-2", "AOU against time slots", _verification, _curves,
    (Panel("AOU", "slot", "AOU, summed over slots"),),
    tuple(_lead(base) for base in BASELINES),
)  # fmt: skip

ARTEFACTS = (FIGURE_2,)
