r"""Service rates of machines: θ_i^t, the work that a task does on machine i in slot t (§II, §VI).

A process is a description; its ``stream`` is one realisation, drawn from a generator of its own.
Streams pickle, and drawing ``n`` slots and then ``m`` gives the same rates as drawing ``n + m``:
rates are generated in blocks of fixed length, whatever lengths are asked for.

In every process ``means`` is the expected rate of each machine, shape [M], in work per slot: what
the paper calls θ_i and prices machines by.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.processes import RateProcess, RateStream
from gangwise.core.errors import ScenarioError
from gangwise.kernels import rates as kernels

__all__ = [
    "BlockStream",
    "GammaPeriods",
    "Rates",
    "UniformRates",
]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

BLOCK = 64  # slots generated at a time


class Rates(RateProcess, Protocol):
    """A rate process that knows its means."""

    @property
    def means(self) -> Floats:
        """Expected rates, shape [M], in work per slot."""


class BlockStream:
    """Hands out rates in the lengths asked for, generated :data:`BLOCK` slots at a time."""

    def __init__(self, machines: int):
        self._rest = np.empty((0, machines))

    @abstractmethod
    def block(self) -> Floats:
        """The next BLOCK slots, shape [BLOCK, M]."""

    def draw(self, slots: int) -> Floats:
        """Rates of the next slots, shape [slots, M], in work per slot."""
        parts, have = [self._rest], len(self._rest)
        while have < slots:
            parts.append(self.block())
            have += BLOCK
        rates = np.concatenate(parts)
        self._rest = rates[slots:].copy()
        return rates[:slots]


def _range(value: Any, what: str) -> tuple[float, float]:
    low, high = (float(v) for v in value)
    if not 0 <= low <= high <= 1:
        raise ScenarioError(f"{what} is {value}; it must be (low, high) with 0 ≤ low ≤ high ≤ 1")
    return low, high


def machine_count(count: int) -> int:
    """A number of machines, checked."""
    if count < 1:
        raise ScenarioError(f"there must be at least one machine; {count} were asked for")
    return count


@dataclass(frozen=True)
class GammaPeriods:
    """Available and unavailable periods with Gamma lengths, independently per machine (§VI).

    Parameters
    ----------
    machines : int
        M.
    up, down : (float, float)
        Shape k and scale θ of the length of an available and of an unavailable period, in units of
        time; the fits of Kondo et al. that the paper uses.
    up_rate, down_rate : (float, float)
        The rate is uniform in this range.
    time_scale : float
        Slots per unit of time. The paper does not say; 1 makes half of the unavailable periods
        shorter than a slot.
    stationary : bool
        Begin in the stationary distribution (a period under way is length-biased); otherwise every
        machine begins an available period.
    per_period : bool
        Draw one rate per period rather than one per slot.

    Notes
    -----
    The state of a slot is that of the process at the slot's midpoint. For shape k and scale θ the
    length-biased length is Gamma with shape k + 1, and the period under way is cut at a uniform
    point of it.

    Examples
    --------
    >>> process = GammaPeriods(1000)
    >>> round(process.availability, 10), round(float(process.means[0]), 10)
    (0.8087727348, 0.6970181879)
    >>> process.stream(np.random.default_rng(0)).draw(10).shape
    (10, 1000)
    """

    machines: int
    up: tuple[float, float] = (0.34, 94.35)
    down: tuple[float, float] = (0.19, 39.92)
    up_rate: tuple[float, float] = (0.7, 1.0)
    down_rate: tuple[float, float] = (0.0, 0.1)
    time_scale: float = 1.0
    stationary: bool = True
    per_period: bool = False

    def __post_init__(self) -> None:
        machine_count(self.machines)
        _range(self.up_rate, "up_rate")
        _range(self.down_rate, "down_rate")
        for what, pair in (("up", self.up), ("down", self.down)):
            if not (min(pair) > 0 and np.isfinite(pair).all()):
                raise ScenarioError(f"{what} is {pair}; shape and scale must be positive")
        if not (np.isfinite(self.time_scale) and self.time_scale > 0):
            raise ScenarioError(f"time_scale is {self.time_scale}; it must be positive")

    @property
    def size(self) -> int:
        """M."""
        return self.machines

    @property
    def availability(self) -> float:
        """Share of time that a machine is available."""
        up, down = self.up[0] * self.up[1], self.down[0] * self.down[1]
        return up / (up + down)

    @property
    def means(self) -> Floats:
        """Expected rates, shape [M]."""
        a = self.availability
        mean = a * sum(self.up_rate) / 2 + (1 - a) * sum(self.down_rate) / 2
        return np.full(self.machines, mean)

    def stream(self, rng: np.random.Generator) -> RateStream:
        """Start one realisation."""
        return _GammaStream(self, rng)


class _GammaStream(BlockStream):
    def __init__(self, process: GammaPeriods, rng: np.random.Generator):
        super().__init__(process.machines)
        self.process, self.rng = process, rng
        M, p = process.machines, process
        self._shape = np.array([p.down[0], p.up[0]])
        self._scale = np.array([p.down[1], p.up[1]]) * p.time_scale
        if process.stationary:
            self.up: Mask = rng.random(M) < process.availability
            self.left = rng.random(M) * self._lengths(self.up, biased=1)
        else:
            self.up = np.ones(M, dtype=np.bool_)
            self.left = self._lengths(self.up)
        self.left -= 0.5  # of the period under way, counted from the midpoint of the slot
        self.share = rng.random(M)

    def _lengths(self, up: Mask, biased: int = 0) -> Floats:
        """Lengths of new periods, in slots."""
        kind = up.astype(np.intp)
        lengths: Floats = self.rng.standard_gamma(self._shape[kind] + biased)
        lengths *= self._scale[kind]
        return lengths

    def block(self) -> Floats:
        p, M = self.process, self.process.machines
        up = np.empty((BLOCK, M), dtype=np.bool_)
        share = np.empty((BLOCK, M)) if p.per_period else self.rng.random((BLOCK, M))
        kernels.periods(
            self.rng, self.left, self.up, self.share, self._shape, self._scale, p.per_period,
            np.empty(M, np.int64), up, share,
        )  # fmt: skip
        low = np.where(up, p.up_rate[0], p.down_rate[0])
        high = np.where(up, p.up_rate[1], p.down_rate[1])
        rates: Floats = low + share * (high - low)
        return rates


@dataclass(frozen=True, eq=False)
class UniformRates:
    """Rates that are independent between slots and machines, each uniform in a range.

    Parameters
    ----------
    low, high : array of shape [M]
        The range of every machine, within [0, 1].

    Examples
    --------
    >>> UniformRates([0.0, 0.5], [0.5, 1.0]).means
    array([0.25, 0.75])
    """

    low: Floats
    high: Floats

    def __post_init__(self) -> None:
        low, high = np.broadcast_arrays(
            *(np.array(a, dtype=np.float64, ndmin=1) for a in (self.low, self.high))
        )
        if low.ndim != 1 or not ((low >= 0) & (low <= high) & (high <= 1)).all():
            raise ScenarioError("rates need 0 ≤ low ≤ high ≤ 1 for every machine")
        object.__setattr__(self, "low", low.copy())
        object.__setattr__(self, "high", high.copy())

    @property
    def size(self) -> int:
        """M."""
        return int(self.low.size)

    @property
    def means(self) -> Floats:
        """Expected rates, shape [M]."""
        return (self.low + self.high) / 2

    def stream(self, rng: np.random.Generator) -> RateStream:
        """Start one realisation."""
        return _UniformStream(self, rng)


class _UniformStream(BlockStream):
    def __init__(self, process: UniformRates, rng: np.random.Generator):
        super().__init__(process.size)
        self.process, self.rng = process, rng

    def block(self) -> Floats:
        return self.rng.uniform(self.process.low, self.process.high, (BLOCK, self.process.size))
