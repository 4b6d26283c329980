"""How a trace becomes a scenario of slots: every choice, with its default."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from gangwise.core.limits import Count, SlotCount

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


class Steps(BaseModel):
    """The steps that every family with job types takes, see :mod:`gangwise.traces.slots.demand`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    job_types: Count = Field(
        10, description="|L| at most: requests are grouped into so many job types"
    )
    servers: Count | None = Field(
        None,
        description="None: all; otherwise a sample of so many, in which each kind of server "
        "(GPU model and shape) has its share",
    )
    machines: Count | None = Field(
        None,
        description="so many equal servers of this shape instead of those of the trace; "
        "needed where the files do not say which servers there are",
    )
    shape: tuple[float, float, float] | None = Field(
        None, description="cpu, mem and gpu of each of the machines, in the units of the trace"
    )
    model: str = Field("", description="GPU model of the machines, where job types ask for one")
    tasks: Literal["each", "whole", "one"] | None = Field(
        None,
        description="a row that asks for several equal tasks: each of them is a job; the whole row "
        "is one job, which requests what all tasks do; or one, which requests what one task does. "
        "None: whole where there is one server (a pool), each otherwise",
    )
    slot: str | float | None = Field(
        None,
        description="length of a slot: 90s, 15m, 1h, 1d, or seconds; None: near the median run "
        "time, and long enough for a window of at most 5000 slots",
    )
    skip: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="the window starts where this share of the jobs has been created: some traces "
        "start with a few jobs that were there before, often the longest",
    )
    keep: float = Field(
        1.0, ge=0, le=1, description="ρ: the probability that an arrival of the trace is kept"
    )
    repeat: bool = Field(True, description="begin again after the last slot of the trace")
    contention: float = Field(
        1.0, gt=0, description="multiplies every request; channels are by the requests of the trace"
    )

    @field_validator("slot")
    @classmethod
    def _duration(cls, value: str | float | None) -> str | float | None:
        if value is not None:
            seconds(value)
        return value

    @field_validator("shape")
    @classmethod
    def _something(
        cls, value: tuple[float, float, float] | None
    ) -> tuple[float, float, float] | None:
        if value is not None and not (min(value) >= 0 and 0 < max(value) < 1e12):
            raise ValueError("write (cpu, mem, gpu), none negative and at least one positive")
        return value


class Settings(Steps):
    """Every step from the tables of a trace to a gain-minus-overhead problem and its workload."""

    arrivals: Literal["indicator", "multiple"] = Field(
        "multiple",
        description="multiple: up to most_jobs jobs of a job type arrive in a slot, OGASched "
        "§3.4; indicator: one does or none, (1)",
    )
    most_jobs: Count | None = Field(
        None,
        description="J_l for arrivals = multiple; None: as many as come, unless that makes more "
        "than 100,000 channels",
    )
    units: Literal["share", "raw"] = Field(
        "share",
        description="share: cores and memory in shares of the largest server's, GPUs of "
        "all models in shares of the most GPUs on a server, times scale; raw: as in the trace",
    )
    scale: float = Field(16.0, gt=0, description="what the largest server has in units = share")
    alpha: tuple[float, float] = Field(
        (1.0, 1.5), description="α of each server and device type: uniform"
    )
    beta: tuple[float, float] = Field((0.3, 0.5), description="β of each device type: uniform")
    utility: Literal["mixed", "linear", "log", "reciprocal", "poly"] = Field(
        "mixed", description="mixed: uniform among the four, per server and device type"
    )

    @field_validator("alpha", "beta")
    @classmethod
    def _range(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0 <= value[0] <= value[1]:
            raise ValueError("write a range (low, high) with 0 ≤ low ≤ high")
        return value

    @field_validator("alpha")
    @classmethod
    def _positive(cls, value: tuple[float, float]) -> tuple[float, float]:
        if value[0] <= 0:
            raise ValueError("must be positive")
        return value


class SpeedsSettings(Steps):
    """Every step from the tables of a trace to fluctuating speeds."""

    servers: Count | None = Field(
        40,
        description="a sample of so many, in which each kind of server (GPU model and shape) "
        "has its share; all when there are fewer, or None",
    )
    density: float = Field(
        0.1,
        gt=0,
        le=1,
        description="probability that a (job type, server) that fits is a "
        "channel; a job type without any gets one of these servers, uniform",
    )
    speeds: str = Field(
        "",
        description="where measured speeds are: a file of throughputs or a folder of recorded "
        "iteration times; empty: those that the trace holds, if any; drawn: none",
    )
    unmeasured: Literal["draw", "drop"] = Field(
        "draw",
        description="what becomes of GPU models without a measured throughput: speeds "
        "there are drawn, or job types that request GPUs have no channel there",
    )
    mean: tuple[float, float] = Field(
        (0.1, 1.0), description="μ of a channel whose speed is drawn: uniform"
    )
    spread: float = Field(0.5, ge=0, description="σ / μ: normal, unless recorded")
    order: Literal["recorded", "drawn"] = Field(
        "recorded",
        description="recorded times: the workers of a job type go through the record in step, "
        "round and round, from a beginning that is uniform; drawn: every speed is drawn from the "
        "record, independently",
    )
    blocks: Count = Field(
        1,
        description="for order = drawn: 1 draws from the whole record of a worker; with more, the "
        "slots walk through so many blocks of it, which keeps its drift",
    )
    fraction: float | None = Field(
        0.5,
        gt=0,
        description="c_k = fraction · Σ_e a_k, at least the largest request; None: what "
        "the servers have",
    )
    cost_share: float = Field(
        0.3,
        ge=0,
        description="supply costs the same per device, in shares of the largest "
        "server's; the mean cost of a channel is this share of the mean utility",
    )
    delay: float = Field(0.0, ge=0, description="slots until feedback comes")
    delay_kind: Literal["constant", "geometric"] = Field("constant")
    loss: float = Field(0.0, ge=0, le=1, description="probability that feedback never comes")

    @field_validator("mean")
    @classmethod
    def _range(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0 < value[0] <= value[1]:
            raise ValueError("write a range (low, high) with 0 < low ≤ high")
        return value


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
        0.0,
        ge=0,
        lt=1,
        description="the window starts where this share of the jobs has been created: some traces "
        "start with a few jobs that were there before, often the longest",
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
