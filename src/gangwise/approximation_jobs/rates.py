"""Service rates of machines: θ_i^t, the work that a task does on machine i in slot t, OPM §III.

A process is a description; its ``stream`` is one realisation, drawn from a generator of its own.
Streams pickle, and drawing n slots and then m gives the same rates as drawing n + m. Where a
process knows its expected rates, ``means`` [M], in work per slot, is the θ_i that the paper prices
machines by.

First the contracts, then rates that are independent between slots, rates that stay for a while, and
rates that are replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gangwise.approximation_jobs import kernels
from gangwise.core.arrays import Bools, Floats, Ints, check_numbers, keep
from gangwise.core.errors import ScenarioError

BLOCK = 64  # slots generated at a time


class RateStream(Protocol):
    def draw(self, slots: int) -> Floats:
        """θ_i^t of the next slots, shape [slots, M], within [0, 1], in work per slot."""


class RateProcess(Protocol):
    """Service rates of the machines, slot by slot (§III)."""

    @property
    def size(self) -> int:
        """M, the number of machines that there are rates for."""

    def stream(self, rng: np.random.Generator) -> RateStream:
        """Start one realisation."""


class Rates(RateProcess, Protocol):
    @property
    def means(self) -> Floats:
        """Expected rates, shape [M], in work per slot."""


@dataclass(frozen=True, eq=False)
class IidRates:
    """Independent rates with given means, as Assumption 1 has it.

    Parameters
    ----------
    means : ndarray of shape [M]
        θ_i, within [0, 1].
    concentration : float
        Rates are Beta distributed with a + b = ``concentration``; 0 makes them Bernoulli.

    Examples
    --------
    >>> IidRates([0.0, 1.0]).stream(np.random.default_rng(0)).draw(2)
    array([[0., 1.],
           [0., 1.]])
    """

    means: Floats
    concentration: float = 0.0

    def __post_init__(self) -> None:
        means = np.array(self.means, dtype=np.float64, ndmin=1)
        bad = np.flatnonzero(~((means >= 0) & (means <= 1)))
        if means.ndim != 1 or bad.size:
            at = f"machine {bad[0]}: mean rate is {means[bad[0]]}; " if means.ndim == 1 else ""
            raise ScenarioError(f"{at}mean rates are one number per machine, within [0, 1]")
        check_numbers("[0, inf)", concentration=self.concentration)
        keep(self, means=means)

    @property
    def size(self) -> int:
        return int(self.means.size)

    def stream(self, rng: np.random.Generator) -> RateStream:
        return _IidStream(self, rng)


@dataclass
class _IidStream:
    process: IidRates
    rng: np.random.Generator

    def draw(self, slots: int) -> Floats:
        means, c = self.process.means, self.process.concentration
        if c == 0:
            return (self.rng.random((slots, means.size)) < means).astype(np.float64)
        # Beta(a, b) has mean a / (a + b); both must be positive, also where a mean is 0 or 1.
        a = np.clip(means * c, 1e-9, None)
        b = np.clip((1.0 - means) * c, 1e-9, None)
        return self.rng.beta(a, b, (slots, means.size))


class _GammaStream:
    """Hands out rates in the lengths asked for, generated :data:`BLOCK` slots at a time."""

    def __init__(self, process: GammaPeriods, rng: np.random.Generator):
        self.process, self.rng = process, rng
        M = process.machines
        self._rest = np.empty((0, M))
        self._shape = np.array([process.down[0], process.up[0]])
        self._scale = np.array([process.down[1], process.up[1]]) * process.time_scale
        if process.stationary:
            # A period met at a fixed time is one picked in proportion to its length.
            self.up: Bools = rng.random(M) < process.availability
            self.left = rng.random(M) * self._lengths(self.up, biased=1)
        else:
            self.up = np.ones(M, dtype=np.bool_)
            self.left = self._lengths(self.up)
        self.left -= 0.5  # of the period under way, counted from the midpoint of the slot
        self.share = rng.random(M)

    def _lengths(self, up: Bools, biased: int = 0) -> Floats:
        """Lengths of new periods, in slots."""
        kind = up.astype(np.intp)
        lengths: Floats = self.rng.standard_gamma(self._shape[kind] + biased)
        lengths *= self._scale[kind]
        return lengths

    def block(self) -> Floats:
        """Rates of the next ``BLOCK`` slots."""
        p, M = self.process, self.process.machines
        up = np.empty((BLOCK, M), dtype=np.bool_)
        share = np.empty((BLOCK, M)) if p.per_period else self.rng.random((BLOCK, M))
        state = self.left, self.up, self.share, self._shape, self._scale, np.empty(M, np.int64)
        kernels.draw_periods(self.rng, kernels.Periods(*state), p.per_period, up, share)
        low = np.where(up, p.up_rate[0], p.down_rate[0])
        high = np.where(up, p.up_rate[1], p.down_rate[1])
        rates: Floats = low + share * (high - low)
        return rates

    def draw(self, slots: int) -> Floats:
        parts, have = [self._rest], len(self._rest)
        while have < slots:
            parts.append(self.block())
            have += BLOCK
        rates = np.concatenate(parts)
        self._rest = rates[slots:].copy()
        return rates[:slots]


@dataclass(frozen=True)
class GammaPeriods:
    """Available and unavailable periods with Gamma lengths, independently per machine (§VI).

    ``up`` and ``down`` are shape k and scale θ of the lengths of available and unavailable periods,
    in units of time: the fits of Kondo et al. that the paper uses. The rate is uniform in
    ``up_rate`` or ``down_rate``, one per slot, or one per period with ``per_period``.
    ``time_scale`` are slots per unit of time; the paper does not say, and 1 makes half of the
    unavailable periods shorter than a slot. ``stationary`` begins in the stationary distribution,
    otherwise every machine begins an available period.

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
        check_numbers("[1, inf)", machines=self.machines)
        check_numbers("[0, 1]", up_rate=self.up_rate, down_rate=self.down_rate)
        check_numbers("(0, inf)", time_scale=self.time_scale)
        for name, (shape, scale) in (("up", self.up), ("down", self.down)):
            check_numbers("(0, inf)", **{f"shape of {name}": shape, f"scale of {name}": scale})

    @property
    def size(self) -> int:
        return self.machines

    def stream(self, rng: np.random.Generator) -> RateStream:
        return _GammaStream(self, rng)

    @property
    def availability(self) -> float:
        """Share of time that a machine is available: mean lengths over their sum."""
        up, down = self.up[0] * self.up[1], self.down[0] * self.down[1]
        return up / (up + down)

    @property
    def means(self) -> Floats:
        a = self.availability
        mean = a * sum(self.up_rate) / 2 + (1 - a) * sum(self.down_rate) / 2
        return np.full(self.machines, mean)


@dataclass(frozen=True, eq=False)
class ReplayedRates:
    """Rates from a table of shape [slots, M]; it begins again after its last slot."""

    table: Floats

    def __post_init__(self) -> None:
        table = np.array(self.table, dtype=np.float64, ndmin=2)
        if not table.size:
            raise ScenarioError("a table of rates needs a slot and a machine")
        keep(self, table=table)

    @property
    def size(self) -> int:
        return int(self.table.shape[1])

    def stream(self, rng: np.random.Generator) -> RateStream:
        return _ReplayedRates(self.table)


@dataclass
class _ReplayedRates:
    table: Floats
    position: int = 0

    def draw(self, slots: int) -> Floats:
        index = np.arange(self.position, self.position + slots) % len(self.table)
        self.position += slots
        return self.table[index]


@dataclass(frozen=True, eq=False)
class Relabelled:
    """The rates of another process, with its machine ``order[i]`` now called ``i``."""

    process: RateProcess
    order: Ints

    @property
    def size(self) -> int:
        return self.process.size

    def stream(self, rng: np.random.Generator) -> RateStream:
        return _RelabelledStream(self.process.stream(rng), self.order)


@dataclass
class _RelabelledStream:
    inner: RateStream
    order: Ints

    def draw(self, slots: int) -> Floats:
        return np.ascontiguousarray(self.inner.draw(slots)[:, self.order])
