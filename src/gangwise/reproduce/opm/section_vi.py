"""§VI: where the jobs come from, which experiments are run on them, and what they are asked.

The trace is played as the paper has it, 10 hours in 50,000 slots on 1,000 machines; quickly, its
first hour in 5,000 slots on 100 machines. Budgets are proportional to the machines, so that the
load is the same. Synthetic jobs are played on 100 machines in 5,000 slots; quickly, in 2,000.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment, PolicyTable
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.reproduce.artefact import Scale

OURS, PRINTED, RIVAL = "opm", "opm-as-printed", "utility-per-price"
BLIND = "opm-without-estimation"
BASELINES = (BLIND, "fair", "deadline-aware")
POLICIES = (OURS, PRINTED, *BASELINES, RIVAL)
WITHOUT = "opm:estimator=constant"
VERSIONS = {"as printed": PRINTED, "opm": OURS, "utility-per-price": RIVAL}
"""Versions of the algorithm, and a rival that is no primal-dual method."""


@dataclass(frozen=True)
class JobSource:
    """Where jobs come from.

    Attributes
    ----------
    name : str
        ``google`` or ``synthetic``; part of the names of experiments.
    suffix : str
        Of the names of artefacts.
    trace : str
        Folder of the public trace.
    scenario : str
    heavy, light : mapping
        Settings of the heavily loaded cluster, and of the one with half of the jobs.
    small : mapping
        Settings of the quick runs.
    seeds : int
        For Figs. 2 and 3, at full scale; Fig. 1 and Table I take 10.
    """

    name: str
    suffix: str
    trace: str
    scenario: str
    heavy: Mapping[str, Any]
    light: Mapping[str, Any]
    small: Mapping[str, Any]
    seeds: int

    @property
    def is_trace(self) -> bool:
        """Whether these are the paper's own jobs."""
        return bool(self.trace)

    def settings(self, scale: Scale) -> dict[str, Any]:
        """Settings in every cell."""
        chosen = dict(self.small) if scale.quick else {}
        if self.is_trace:
            chosen["folder"] = str((scale.traces or Path()) / self.trace)
        return chosen

    def experiment(self, what: str, scale: Scale, seeds: int, **fields: Any) -> Experiment:
        """An experiment of which totals and jobs are wanted, and no curves over slots."""
        fields["settings"] = {**self.settings(scale), **fields.get("settings", {})}
        quick = 2 if self.is_trace else 3
        return Experiment(
            name=f"opm-{what}-{self.name}",
            scenario=self.scenario,
            points=1,
            optimum_slots=1,
            seeds=scale.first_seeds(quick, seeds),
            **fields,
        )


GOOGLE = JobSource(
    "google",
    "",
    "google-2011",
    "opm-google-v1",
    {"keep": 1.0},
    {"keep": 0.5},
    {"machines": 100, "hours": 1.0, "slots": 5000},
    5,
)
SYNTHETIC = JobSource(
    "synthetic",
    "-synthetic",
    "",
    "opm-default-v1",
    {"load": 1.5},
    {"load": 0.75},
    {"slots": 2000},
    10,
)


def table_experiment(jobs: JobSource, scale: Scale) -> Experiment:
    """Table I: all policies under heavy load; on synthetic jobs, ``opm`` without estimates too."""
    return jobs.experiment(
        "table",
        scale,
        10,
        settings=dict(jobs.heavy),
        grid={"beta": [0.5, 0.6, 0.7]},
        policies=[*POLICIES, *([] if jobs.is_trace else [WITHOUT])],
    )


def load_experiment(jobs: JobSource, scale: Scale) -> Experiment:
    """Fig. 2: heavy and light load. The rival is left out on the trace, for the sake of time."""
    policies: list[str | PolicyTable] = [OURS, PRINTED, *BASELINES]
    return jobs.experiment(
        "load",
        scale,
        jobs.seeds,
        cases=[dict(jobs.heavy), dict(jobs.light)],
        grid={"beta": [0.5, 0.9] if scale.quick else [0.5, 0.6, 0.7, 0.8, 0.9]},
        policies=policies if jobs.is_trace else [*policies, RIVAL],
    )


def by_seed(results: Results, metric: str, policy: str, **cell: object) -> dict[int, float]:
    """One number per seed."""
    import polars as pl

    rows = results.per_seed(metric).filter(pl.col("policy") == policy)
    for key, value in cell.items():
        rows = rows.filter(pl.col(key) == value)
    return dict(zip(rows["seed"].to_list(), rows["value"].to_list()))


def of_difference(a: Mapping[int, float], b: Mapping[int, float]) -> Estimate:
    """Paired by seed: how much more a is than b."""
    return mean_and_interval(np.array([a[seed] - b[seed] for seed in a if seed in b]))
