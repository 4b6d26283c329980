"""Scenarios of ESDP §4, drawn from a generator that states every distribution.

Table 3 gives sizes, density, ρ, the law of the utilities and bounds "2 and 1" on A and c. Two of
its numbers cannot be taken at their word. Capacities of 1 or 2 for the whole cluster would let one
or two of some 32 channels on, which contradicts α = 0.5: they are a fraction of the total request
here (``capacity`` has the other readings). Three costs around 0.5 for each channel exceed what any
channel brings: they are scaled by one factor, and the net utility is normalised
(see :mod:`gangwise.fluctuating_speeds.normalisation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from gangwise.core.cluster import Channels
from gangwise.core.delivery import Delivery
from gangwise.core.streams import Streams
from gangwise.core.workload import BernoulliArrivals, OnOffArrivals, Workload
from gangwise.fluctuating_speeds.costs import linear_cost
from gangwise.fluctuating_speeds.drifting import PiecewiseSpeeds, WavingSpeeds
from gangwise.fluctuating_speeds.environment import FluctuatingSpeedsInstance
from gangwise.fluctuating_speeds.normalisation import Scale
from gangwise.fluctuating_speeds.pool import Pool
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem
from gangwise.fluctuating_speeds.speeds import BernoulliSpeeds, BetaSpeeds, NormalSpeeds, Speeds
from gangwise.scenarios.drawn import DrawnScenario, checked, device_names, require_range

__all__ = ["VARIATIONS", "ESDPScenario", "Settings"]

Floats = npt.NDArray[np.float64]

DEVICES = ("cpu", "mem", "gpu")

VARIATIONS: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "fig-6": ("fraction", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)),
    "fig-9": ("rho", (0.3, 0.5, 0.7, 0.8, 0.9, 1.0)),
    "fig-10": ("density", (0.05, 0.1, 0.15, 0.2, 0.3)),
    "fig-11": ("job_types", (4, 6, 8, 10, 12)),
    "fig-12": ("servers", (20, 40, 60, 80, 100, 120)),
}
"""Which setting a figure of §4 varies, and values to try. Figs. 2–4 and 13 vary the number of
slots, Fig. 5 shows computation times, Figs. 7 and 8 vary ``delta`` and ``g``, arguments of the
policies."""


class Settings(BaseModel):
    """Parameters of the generator, with the distribution of everything it draws."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job_types: PositiveInt = Field(8, description="|L|")
    servers: PositiveInt = Field(40, description="|R|")
    devices: PositiveInt = Field(3, description="K")
    density: float = Field(
        0.1, gt=0, le=1, description="probability that a (job type, server) is a channel; a job "
        "type without any gets one server, uniform",
    )  # fmt: skip
    requests: tuple[PositiveInt, PositiveInt] = Field(
        (1, 2), description="devices of each type that a channel holds: uniform integer"
    )
    capacity: Literal["fraction", "normalised", "literal"] = Field(
        "fraction", description="fraction: c_k = fraction · Σ_e a_k, rounded, at least the largest "
        "request; normalised: U(1, 2) · |E| / 2, rounded; literal: 1 or 2 with equal chances",
    )  # fmt: skip
    fraction: float = Field(0.5, gt=0, description="for capacity = fraction")
    rho: float = Field(0.9, ge=0, le=1, description="probability that a job of a type arrives")
    arrivals: Literal["bernoulli", "bursts"] = Field(
        "bernoulli", description="bursts: Bernoulli(ρ) while on, geometric on and off periods of "
        "mean 20 slots",
    )  # fmt: skip
    speeds: Literal["normal", "bernoulli", "beta", "jumping", "waving"] = Field(
        "normal", description="law of Z: normal with σ = spread · μ; Bernoulli; beta with "
        "a + b = 4; jumping: normal, with all means drawn anew every period slots; waving: normal, "
        "means times 1 + amplitude · sin, with a uniform phase for each channel",
    )  # fmt: skip
    mean: tuple[float, float] = Field((0.1, 1.0), description="μ of each channel: uniform")
    spread: float = Field(0.5, ge=0, description="σ / μ")
    period: PositiveInt = Field(1000, description="for jumping and waving, in slots")
    amplitude: float = Field(0.5, ge=0, le=1, description="for waving")
    cost: Literal["linear", "per-channel"] = Field(
        "linear", description="f_k(a) = p_k a with p_k ~ N(0.5, 0.1) for each device type; or "
        "f_k ~ N(0.5, 0.1) for each channel and device type; negative draws count 0",
    )  # fmt: skip
    cost_share: float | None = Field(
        0.3, ge=0, description="costs are scaled so that their mean is this share of the mean μ; "
        "None leaves them as drawn",
    )  # fmt: skip
    normalise: Literal["clip", "affine", "none"] = Field(
        "clip", description="how the net utility gets into [0, 1]"
    )
    delay: float = Field(0.0, ge=0, description="slots until feedback comes")
    delay_kind: Literal["constant", "geometric"] = Field("constant")
    loss: float = Field(0.0, ge=0, le=1, description="probability that feedback never comes")
    slots: PositiveInt = Field(2000, description="T unless told otherwise")

    @model_validator(mode="after")
    def _ranges(self) -> Settings:
        for name in ("mean", "requests"):
            require_range(name, getattr(self, name), positive=True)
        if self.speeds in ("bernoulli", "beta") and self.mean[1] > 1:
            raise ValueError(f"mean must not exceed 1 where speeds are {self.speeds}")
        return self


class ESDPScenario(DrawnScenario[Settings]):
    """Draws instances as :class:`Settings` says.

    Parameters
    ----------
    **settings
        Fields of :class:`Settings`.

    Raises
    ------
    ScenarioError
        Names the setting at fault.

    Examples
    --------
    >>> instance = ESDPScenario(servers=10, fraction=0.25).instance(seed=0)
    >>> instance.problem.requests.shape, instance.problem.cluster.capacity
    ((10, 3), array([4., 4., 4.]))
    """

    family = "fluctuating_speeds"

    def __init__(self, *, name: str = "esdp-default-v1", **settings: Any):
        super().__init__(name, checked(Settings, name, settings))

    def instance(self, seed: int) -> FluctuatingSpeedsInstance:
        """Draw the instance of a seed."""
        s, rng = self.settings, Streams.of(seed).instance
        L, R, K = s.job_types, s.servers, s.devices
        mask = rng.random((L, R)) < s.density
        lonely = ~mask.any(axis=1)
        mask[lonely, rng.integers(0, R, L)[lonely]] = True
        channels = Channels.of_mask(mask)
        E = len(channels)
        requests = rng.integers(s.requests[0], s.requests[1] + 1, (E, K)).astype(np.float64)
        unit = rng.uniform(1.0, 2.0, K)
        capacity = {
            "fraction": np.maximum((s.fraction * requests.sum(axis=0)).round(),
                                   requests.max(axis=0)),
            "normalised": (unit * 0.5 * E).round(),
            "literal": np.floor(unit + 0.5),
        }[s.capacity]  # fmt: skip
        mean = rng.uniform(*s.mean, E)
        cost = self._cost(rng, requests, float(mean.mean()))
        speeds = self._speeds(rng, mean)
        servers = tuple(f"server-{r}" for r in range(R))
        problem = FluctuatingSpeedsProblem(
            Pool(capacity, device_names(DEVICES, K), servers), requests, channels, cost
        )  # fmt: skip
        rho = np.full(L, s.rho)
        workload: Workload = (
            OnOffArrivals(rho) if s.arrivals == "bursts" else BernoulliArrivals(rho)
        )
        return FluctuatingSpeedsInstance(
            problem, workload, speeds, Scale.of(s.normalise, speeds, cost),
            Delivery(s.delay, s.delay_kind, s.loss),
        )  # fmt: skip

    def _cost(self, rng: np.random.Generator, requests: Floats, mean: float) -> Floats:
        s = self.settings
        price = np.maximum(rng.normal(0.5, 0.1, s.devices), 0.0)
        each = np.maximum(rng.normal(0.5, 0.1, requests.shape), 0.0)
        cost = linear_cost(requests, price) if s.cost == "linear" else each.sum(axis=1)
        if s.cost_share is None:
            return cost
        return np.asarray(cost * (s.cost_share * mean / cost.mean()))

    def _speeds(self, rng: np.random.Generator, mean: Floats) -> Speeds:
        s = self.settings
        if s.speeds == "bernoulli":
            return BernoulliSpeeds(mean)
        if s.speeds == "beta":
            return BetaSpeeds(np.minimum(mean, 0.99))
        if s.speeds == "jumping":
            begins = np.arange(0, max(s.slots, s.period + 1), s.period)
            others = rng.uniform(*s.mean, (begins.size - 1, mean.size))
            return PiecewiseSpeeds(np.vstack([mean, others]), begins, s.spread)
        if s.speeds == "waving":
            return WavingSpeeds(mean, rng.random(mean.size), s.amplitude, s.period, s.spread)
        return NormalSpeeds(mean, s.spread)
