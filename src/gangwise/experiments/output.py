"""What ``--json`` prints, as models: their JSON schema is published and versioned.

Every object says which it is in ``format``, such as ``gangwise-compare-1``; the number is raised
when a key changes its meaning or goes. Estimates are means with 95 % intervals over seeds; an
interval needs two seeds, and what is not finite is null.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from gangwise.core.json_text import finite
from gangwise.experiments.statistics import Estimate, paired


class Output(BaseModel):
    """Nothing but what is said here."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Numbers(Output):
    """A mean over seeds with its 95 % interval."""

    mean: float | None
    low: float | None
    high: float | None


class Difference(Numbers):
    """A paired difference: seed by seed, the same instance, arrivals and noise."""

    percent: bool = Field(description="of the other's; false: a plain difference, in its unit")
    seeds: int


class PolicyOutput(Output):
    """A policy of a comparison; best first."""

    name: str
    reward: Numbers = Field(description="mean per slot")
    mean_reward: float | None
    ci95: tuple[float | None, float | None]
    over: dict[str, Difference] = Field(description="how much more it has than each other policy")
    share_of: dict[str, Numbers] = Field(description="of each comparator's reward, 1 is all of it")
    share_of_optimum: float | None = Field(description="of the last comparator, the strongest one")
    regret: dict[str, Numbers] = Field(description="against each comparator, total, signed")
    us_per_slot: float
    metrics: dict[str, Numbers]


class ComparatorOutput(Output):
    """What policies are measured against."""

    name: str
    mean_reward: float | None
    relative_gap: float | None = Field(description="proved: it is within this of the optimum")
    slots_evaluated: int
    regret_bounds: dict[str, float | None]


class CompareOutput(Output):
    """What ``gangwise compare --json`` prints, and ``summary.json`` of its folder."""

    format: Literal["gangwise-compare-1"]
    version: str = Field(description="of gangwise")
    scenario: str
    family: str
    slots: int
    seeds: list[int]
    fidelity: dict[str, Any] | None
    ranked: bool
    policies: list[PolicyOutput]
    comparators: list[ComparatorOutput]


class VersusOutput(Output):
    """A run against a comparator, on the slots that the comparator was evaluated on."""

    slots: int
    reward: float | None = Field(description="of the policy, mean per slot")
    comparator: float | None = Field(description="of the comparator, mean per slot")
    difference: Numbers = Field(
        description="policy minus comparator, slot by slot; the interval is of batch means"
    )
    share: float | None
    regret: float | None


class RunOutput(Output):
    """What ``gangwise run --json`` prints; metrics of the family are further numbers."""

    model_config = ConfigDict(extra="allow")

    format: Literal["gangwise-run-output-1"]
    version: str
    scenario: str
    policy: str
    seed: int
    slots: int
    mean_reward: float | None
    us_per_slot: float
    fidelity: dict[str, Any] | None = None
    regret: dict[str, float | None] = {}
    versus: dict[str, VersusOutput] = {}


class SweepOutput(Output):
    """What ``gangwise sweep --json`` prints: rows with the cell's settings as further keys."""

    format: Literal["gangwise-sweep-1"]
    version: str
    experiment: str
    runs: int
    cells: list[str]
    fidelity: list[dict[str, Any]] = Field(
        description="how much of a log is played, and how, once for each kind of cell"
    )
    objective: str
    minimise: bool
    table: list[dict[str, Any]] = Field(
        description="policy, seeds, and METRIC, METRIC.low, METRIC.high"
    )
    improvements: list[dict[str, Any]] = Field(
        description="policy, over, seeds, percent, mean, low, high"
    )
    against: list[dict[str, Any]] = Field(
        description="policy, comparator, share and regret with .low and .high"
    )
    sentences: list[str]


class SchedulerOutput(Output):
    """A scheduler of a replay."""

    name: str
    metrics: dict[str, float | None] = Field(description="means over seeds, in seconds and shares")
    intervals: dict[str, Numbers]
    over: OverOutput | None


class OverOutput(Output):
    """A scheduler against the first one, paired by seed."""

    than: str
    metrics: dict[str, Difference]


class ReplayOutput(Output):
    """What ``gangwise replay --json`` prints, and ``summary.json`` of its folder."""

    format: Literal["gangwise-replay-1"]
    version: str
    scenario: dict[str, Any]
    fidelity: list[str]
    assumed: list[str]
    seeds: list[int]
    as_it_happened: dict[str, float | None] | None
    schedulers: list[SchedulerOutput]
    lower_bounds: list[float] = Field(description="on mean completion, one for each seed")


class TrialOutput(Output):
    """One choice of arguments, and what it earned on the seeds of the tuning."""

    number: int = Field(description="−1: the default, where it lies outside the ranges")
    arguments: dict[str, Any]
    value: float = Field(description="mean over the seeds")
    low: float | None
    high: float | None
    values: list[float] = Field(description="one for each of the seeds")
    over: Difference | None = Field(
        description="how much better than the default on the same seeds, which chose the best: it "
        "looks better here than it is; null for the default"
    )


class ValidationOutput(Difference):
    """How much better the best is than the default, on seeds that did not choose it."""

    policy: str
    over: str


class TuneOutput(Output):
    """What ``gangwise tune --json`` prints, and ``tuning.json`` of its folder."""

    format: Literal["gangwise-tune-1"]
    version: str
    policy: str
    metric: str
    minimise: bool
    fidelity: list[dict[str, Any]] = Field(
        description="how much of a log is played, and how; empty where none is"
    )
    ranges: list[dict[str, Any]]
    seeds: list[int]
    validation_seeds: list[int]
    default: TrialOutput
    best: TrialOutput
    trials: list[TrialOutput]
    validation: ValidationOutput | None = Field(description="null where no trial was better")
    sentence: str


class WatchOutput(Output):
    """What ``gangwise watch --json`` prints: how far a run of another terminal is."""

    format: Literal["gangwise-watch-1"]
    version: str
    going_on: bool
    experiment: str
    unit: Literal["runs", "trials"]
    done: int
    of: int
    seconds_left: float | None
    writer: dict[str, Any] | None = Field(description="pid, host, command, since; null: nobody")
    objective: str
    table: list[dict[str, Any]] = Field(
        description="policy, seeds, METRIC, METRIC.low, METRIC.high, ahead, ahead.low, ahead.high"
    )
    over: str = Field(description="the policy that others are ahead of")
    percent: bool = Field(description="whether ahead is in per cent")


Result = CompareOutput | RunOutput | SweepOutput | ReplayOutput | TuneOutput | WatchOutput


def schema() -> dict[str, Any]:
    """The JSON schema of what ``--json`` of compare, run, sweep, replay, tune, watch prints."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Results of gangwise",
        **TypeAdapter(Result).json_schema(),
    }


def numbers(estimate: Estimate) -> dict[str, float | None]:
    """An estimate as JSON has it.

    >>> numbers(Estimate(1.0, None, None))
    {'mean': 1.0, 'low': None, 'high': None}
    """
    found: dict[str, float | None] = finite(estimate._asdict())
    return found


def difference(values: npt.ArrayLike, others: npt.ArrayLike) -> dict[str, Any]:
    """How much more values are than others, seed by seed, as JSON has it.

    >>> difference([3.0, 6.0], [2.0, 4.0])
    {'mean': 50.0, 'low': 50.0, 'high': 50.0, 'percent': True, 'seeds': 2}
    """
    found, percent = paired(values, others)
    return {**numbers(found), "percent": percent, "seeds": np.size(values)}
