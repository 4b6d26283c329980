"""How a trace becomes a scenario: every choice, with its default."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, field_validator

from gangwise.core.errors import ScenarioError, UnknownName

__all__ = ["Settings", "seconds"]

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


class Settings(BaseModel):
    """Every step from the tables of a trace to a problem and its workload."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job_types: PositiveInt = Field(
        10, description="|L| at most: requests are grouped into so many job types"
    )
    servers: PositiveInt | None = Field(
        None, description="None: all; otherwise a sample of so many, in which each kind of server "
        "(GPU model and shape) has its share",
    )  # fmt: skip
    slot: str | float = Field("1h", description="length of a slot: 90s, 15m, 1h, 1d, or seconds")
    skip: float = Field(
        0.01, ge=0, lt=1, description="the window starts where this share of the jobs has been "
        "created; traces tend to start with a few jobs that were there before",
    )  # fmt: skip
    arrivals: Literal["indicator", "multiple"] = Field(
        "indicator", description="indicator: a job type arrives in a slot or does not, OGASched "
        "(1); multiple: up to most_jobs jobs of it, §3.4",
    )  # fmt: skip
    most_jobs: PositiveInt = Field(4, description="J_l for arrivals = multiple")
    keep: float = Field(0.7, ge=0, le=1, description="ρ: the probability that an arrival of the "
                        "trace is kept")  # fmt: skip
    repeat: bool = Field(True, description="begin again after the last slot of the trace")
    units: Literal["share", "raw"] = Field(
        "share", description="share: cores and memory in shares of the largest server's, GPUs of "
        "all models in shares of the most GPUs on a server, times scale; raw: cores, GiB, GPUs",
    )  # fmt: skip
    scale: float = Field(16.0, gt=0, description="what the largest server has in units = share")
    contention: float = Field(1.0, gt=0, description="multiplies every request; channels are by "
                              "the requests of the trace")  # fmt: skip
    alpha: tuple[float, float] = Field((1.0, 1.5), description="α of each server and device type: "
                                       "uniform")  # fmt: skip
    beta: tuple[float, float] = Field((0.3, 0.5), description="β of each device type: uniform")
    utility: Literal["mixed", "linear", "log", "reciprocal", "poly"] = Field(
        "mixed", description="mixed: uniform among the four, per server and device type"
    )

    @field_validator("slot")
    @classmethod
    def _duration(cls, value: str | float) -> str | float:
        seconds(value)
        return value

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

    @classmethod
    def of(cls, owner: str, given: dict[str, Any]) -> Settings:
        """Settings from arguments.

        Raises
        ------
        UnknownName
            For a setting that does not exist.
        ScenarioError
            Names the setting at fault.
        """
        try:
            return cls(**given)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            if first["type"] == "extra_forbidden":
                raise UnknownName(f"setting of {owner}", where, list(cls.model_fields)) from error
            raise ScenarioError(f"{owner}: {where}: {first['msg']}") from error
