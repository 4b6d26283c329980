"""How a trace becomes approximation jobs: every choice, with its default."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from gangwise.core.limits import Count, SlotCount
from gangwise.traces.settings import seconds


class MachineSettings(BaseModel):
    """What is drawn, since no trace tells it: budgets, utilities, rates and prices."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    keep: float = Field(
        1.0, gt=0, le=1, description="probability that a job is kept; 0.5: lightly loaded"
    )
    beta: float = Field(0.5, gt=0, le=1, description="β of f(X) = v X^β")
    q: tuple[float, float] = Field(
        (2.0, 100.0), description="B = q · (d - a) · machines / 1000, q uniform in this range"
    )
    value: tuple[float, float] = Field((1.0, 5.0), description="v of each job: uniform")
    pricing: Literal["population", "realised"] = Field(
        "population",
        description="p = 2 · mean rate: of the law of the rates, the same for all "
        "machines; or of each machine over the run, which makes all of them equally good value",
    )
    time_scale: float = Field(
        1.0, gt=0, description="slots per unit of time of the Gamma periods; the paper has no unit"
    )
    per_period: bool = Field(False, description="one rate per period rather than one per slot")
    comparators: bool = Field(
        False, description="hold runs against the offline optima; some minutes each at full size"
    )
    stationary: bool = Field(True, description="begin in the stationary distribution")

    @model_validator(mode="after")
    def _ranges(self) -> MachineSettings:
        for what, (low, high) in (("q", self.q), ("value", self.value)):
            if not 0 < low <= high:
                raise ValueError(f"{what} must be a range, 0 < low ≤ high")
        return self


class JobsSettings(MachineSettings):
    """Every step from the tables of a trace to approximation jobs."""

    hours: float | None = Field(
        None, gt=0, description="length of the window; None: until the last creation"
    )
    skip: float = Field(
        0.01,
        ge=0,
        lt=1,
        description="the window starts where this share of the jobs has been "
        "created; traces tend to start with a few jobs that were there before",
    )
    slots: SlotCount = Field(5000, description="T: the window is cut into so many slots")
    slot: str | float | None = Field(
        None, description="length of a slot, 90s, 15m, 1h, instead of how many there are"
    )
    machines: Count | None = Field(None, description="M; None: as many as the trace has servers")

    @field_validator("slot")
    @classmethod
    def _duration(cls, value: str | float | None) -> str | float | None:
        if value is not None:
            seconds(value)
        return value
