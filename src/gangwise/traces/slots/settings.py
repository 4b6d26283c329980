"""How a trace becomes a scenario of slots: every choice, with its default."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator

from gangwise.core.settings import Count, SlotCount
from gangwise.scenarios.drawing import (
    FeedbackSettings,
    JobDraws,
    PositiveRange,
    RewardSettings,
    Strict,
)

SIZES = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def seconds(duration: str | float) -> float:
    """Seconds in a duration such as ``"90s"``, ``"15m"``, ``"1h"``, ``"1d"``, or in a number.

    >>> seconds("1.5h"), seconds(60)
    (5400.0, 60.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|min|m|h|d)?\s*", str(duration))
    length = float(match[1]) * SIZES[match[2] or "s"] if match else 0.0
    if not 1 <= length <= 1e9:
        raise ValueError(
            f"{duration!r} is not a duration of at least a second; write it as 90s, 15m, 1h or 1d"
        )
    return length


def _duration(value: str | float) -> str | float:
    seconds(value)
    return value


Duration = Annotated[str | float, AfterValidator(_duration)]
Skip = Annotated[float, Field(ge=0, lt=1)]


class Steps(Strict):
    """The steps that every family with job types takes, see :mod:`gangwise.traces.slots.demand`."""

    model_config = ConfigDict(allow_inf_nan=False)

    job_types: Count = 10
    servers: Count | None = None
    machines: Count | None = None
    shape: tuple[float, float, float] | None = None
    model: str = ""
    tasks: Literal["each", "whole", "one"] | None = None
    slot: Duration | None = None
    skip: Skip = 0.0
    keep: float = Field(1.0, ge=0, le=1)
    repeat: bool = True
    contention: float = Field(1.0, gt=0)

    @field_validator("shape")
    @classmethod
    def _something(
        cls, value: tuple[float, float, float] | None
    ) -> tuple[float, float, float] | None:
        if value is not None and not (min(value) >= 0 and 0 < max(value) < 1e12):
            raise ValueError("write (cpu, mem, gpu), none negative and at least one positive")
        return value


class Settings(RewardSettings, Steps):
    """Every step from the tables of a trace to a gain-minus-overhead problem and its workload."""

    arrivals: Literal["indicator", "multiple"] = "multiple"
    most_jobs: Count | None = None
    units: Literal["share", "raw"] = "share"
    scale: float = Field(16.0, gt=0)


class SpeedsSettings(Steps, FeedbackSettings):
    """Every step from the tables of a trace to fluctuating speeds."""

    servers: Count | None = 40
    density: float = Field(0.1, gt=0, le=1)
    speeds: str = ""
    unmeasured: Literal["draw", "drop"] = "draw"
    mean: PositiveRange = (0.1, 1.0)
    spread: float = Field(0.5, ge=0)
    order: Literal["recorded", "drawn"] = "recorded"
    blocks: Count = 1
    fraction: float | None = Field(0.5, gt=0)
    cost_share: float = Field(0.3, ge=0)


class MachineSettings(JobDraws):
    """What is drawn, since no trace tells it: budgets, utilities, rates and prices."""

    model_config = ConfigDict(allow_inf_nan=False)

    keep: float = Field(1.0, gt=0, le=1)
    comparators: bool = False
    stationary: bool = True


class JobsSettings(MachineSettings):
    """Every step from the tables of a trace to approximation jobs."""

    hours: float | None = Field(None, gt=0)
    skip: Skip = 0.0
    slots: SlotCount = 5000
    slot: Duration | None = None
    machines: Count | None = None
