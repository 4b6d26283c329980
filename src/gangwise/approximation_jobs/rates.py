"""Service rates of machines: θ_i^t, the work that a task does on machine i in slot t, OPM §III.

A process is a description; its ``stream`` is one realisation, drawn from a generator of its own.
Streams pickle, and drawing n slots and then m gives the same rates as drawing n + m. Where a
process knows its expected rates, ``means`` [M], in work per slot, is the θ_i that the paper prices
machines by.

First the contracts, then rates that are independent between slots, rates that stay for a while, and
rates that are replayed; at the end those made from another process.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from gangwise.approximation_jobs import kernels
from gangwise.core.arrays import Bools, Floats, Ints, keep
from gangwise.core.errors import ScenarioError

BLOCK = 64  # slots generated at a time


class RateStream(Protocol):
    """One realisation of the service rates."""

    def draw(self, slots: int) -> Floats:
        """θ_i^t of the next slots, shape [slots, M], within [0, 1], in work per slot."""


class RateProcess(Protocol):
    """Service rates of the machines, slot by slot (§III)."""

    @property
    def size(self) -> int:
        """M, how many machines it has rates for."""

    def stream(self, rng: np.random.Generator) -> RateStream:
        """Start one realisation."""


class Rates(RateProcess, Protocol):
    """A rate process that knows its means."""

    @property
    def means(self) -> Floats:
        """Expected rates, shape [M], in work per slot."""


class BlockStream:
    """Hands out rates in the lengths asked for, generated :data:`BLOCK` slots at a time."""

    def __init__(self, process: Any, rng: np.random.Generator):
        self.process, self.rng = process, rng
        self._rest = np.empty((0, process.size))
        self.begin()

    def begin(self) -> None:
        """Draw the state of the machines before the first slot."""

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


class _Machines:
    """A process of so many ``machines``, drawn block by block."""

    machines: int
    _stream: ClassVar[type[BlockStream]]

    def __post_init__(self) -> None:
        if self.machines < 1:
            raise ScenarioError(
                f"there must be at least one machine; {self.machines} were asked for"
            )

    @property
    def size(self) -> int:
        return self.machines

    def stream(self, rng: np.random.Generator) -> RateStream:
        return self._stream(self, rng)


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
        if not (np.isfinite(self.concentration) and self.concentration >= 0):
            raise ScenarioError(f"concentration is {self.concentration}; it must not be negative")
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
        a = np.clip(means * c, 1e-9, None)
        b = np.clip((1.0 - means) * c, 1e-9, None)
        return self.rng.beta(a, b, (slots, means.size))


class _UniformStream(BlockStream):
    def block(self) -> Floats:
        return self.rng.uniform(self.process.low, self.process.high, (BLOCK, self.process.size))


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
        keep(self, low=low.copy(), high=high.copy())

    @property
    def size(self) -> int:
        return int(self.low.size)

    @property
    def means(self) -> Floats:
        return (self.low + self.high) / 2

    def stream(self, rng: np.random.Generator) -> RateStream:
        return _UniformStream(self, rng)


class _GammaStream(BlockStream):
    def begin(self) -> None:
        process, rng = self.process, self.rng
        M = process.machines
        self._shape = np.array([process.down[0], process.up[0]])
        self._scale = np.array([process.down[1], process.up[1]]) * process.time_scale
        if process.stationary:
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
        p, M = self.process, self.process.machines
        up = np.empty((BLOCK, M), dtype=np.bool_)
        share = np.empty((BLOCK, M)) if p.per_period else self.rng.random((BLOCK, M))
        kernels.draw_periods(
            self.rng,
            self.left,
            self.up,
            self.share,
            self._shape,
            self._scale,
            p.per_period,
            np.empty(M, np.int64),
            up,
            share,
        )
        low = np.where(up, p.up_rate[0], p.down_rate[0])
        high = np.where(up, p.up_rate[1], p.down_rate[1])
        rates: Floats = low + share * (high - low)
        return rates


@dataclass(frozen=True)
class GammaPeriods(_Machines):
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
    _stream = _GammaStream

    def __post_init__(self) -> None:
        super().__post_init__()
        _range(self.up_rate, "up_rate")
        _range(self.down_rate, "down_rate")
        for what, pair in (("up", self.up), ("down", self.down)):
            if not (min(pair) > 0 and np.isfinite(pair).all()):
                raise ScenarioError(f"{what} is {pair}; shape and scale must be positive")
        if not (np.isfinite(self.time_scale) and self.time_scale > 0):
            raise ScenarioError(f"time_scale is {self.time_scale}; it must be positive")

    @property
    def availability(self) -> float:
        """Share of time that a machine is available."""
        up, down = self.up[0] * self.up[1], self.down[0] * self.down[1]
        return up / (up + down)

    @property
    def means(self) -> Floats:
        a = self.availability
        mean = a * sum(self.up_rate) / 2 + (1 - a) * sum(self.down_rate) / 2
        return np.full(self.machines, mean)


class _MarkovStream(BlockStream):
    def begin(self) -> None:
        process, rng = self.process, self.rng
        first = np.cumsum(process.stationary)
        last = process.low.size - 1
        u = rng.random(process.machines)
        self.state: Ints = np.minimum(np.searchsorted(first, u, side="right"), last)
        self.below = np.cumsum(process.transition, axis=1)[:, :-1]

    def block(self) -> Floats:
        p = self.process
        u = self.rng.random((BLOCK, 2, p.size))
        rates = np.empty((BLOCK, p.size))
        for t in range(BLOCK):
            low, high = p.low[self.state], p.high[self.state]
            rates[t] = low + u[t, 0] * (high - low)
            self.state = (u[t, 1][:, None] >= self.below[self.state]).sum(axis=1)
        return rates


@dataclass(frozen=True, eq=False)
class MarkovRates(_Machines):
    """Each machine is in one of S states, which change slot by slot as a Markov chain.

    Parameters
    ----------
    transition : array of shape [S, S]
        Probability of the next slot's state (column), given this slot's (row).
    low, high : array of shape [S]
        In state s the rate is uniform in this range.

    Examples
    --------
    >>> process = MarkovRates(3, [[0.9, 0.1], [0.3, 0.7]], [0.8, 0.0], [0.8, 0.0])
    >>> process.stationary, process.means
    (array([0.75, 0.25]), array([0.6, 0.6, 0.6]))
    """

    machines: int
    transition: Floats
    low: Floats
    high: Floats
    _stream = _MarkovStream

    def __post_init__(self) -> None:
        super().__post_init__()
        transition = np.array(self.transition, dtype=np.float64, ndmin=2)
        low, high = (np.array(a, dtype=np.float64, ndmin=1) for a in (self.low, self.high))
        S = low.size
        if transition.shape != (S, S) or high.shape != (S,):
            raise ScenarioError(
                f"transition has shape {transition.shape}; low and high have {S} and {high.size} "
                "states"
            )
        if not ((transition >= 0).all() and np.allclose(transition.sum(axis=1), 1, atol=1e-9)):
            raise ScenarioError("every row of transition must be probabilities that sum to 1")
        if not ((low >= 0) & (low <= high) & (high <= 1)).all():
            raise ScenarioError("rates need 0 ≤ low ≤ high ≤ 1 in every state")
        for name, value in (("transition", transition), ("low", low), ("high", high)):
            object.__setattr__(self, name, value)

    @property
    def stationary(self) -> Floats:
        """Stationary distribution, shape [S]; of a chain with several, the least squares one."""
        S = self.low.size
        rows = np.vstack([self.transition.T - np.eye(S), np.ones(S)])
        found = np.linalg.lstsq(rows, np.append(np.zeros(S), 1.0), rcond=None)[0]
        return np.asarray(np.round(np.clip(found, 0.0, 1.0), 15))

    @property
    def means(self) -> Floats:
        return np.full(self.machines, float(self.stationary @ (self.low + self.high) / 2))


class _MeasuredStream(BlockStream):
    def begin(self) -> None:
        process = self.process
        rows, columns = process.table.shape
        M = process.machines
        self.at = self.rng.integers(0, rows, M) if process.shift else np.zeros(M, dtype=np.int64)
        self.column = np.arange(M) % columns

    def block(self) -> Floats:
        rows = (self.at + np.arange(BLOCK)[:, None]) % len(self.process.table)
        self.at = (self.at + BLOCK) % len(self.process.table)
        return np.asarray(self.process.table[rows, self.column])


@dataclass(frozen=True, eq=False)
class MeasuredRates(_Machines):
    """Rates replayed from measurements; each machine begins at its own place and goes round.

    Parameters
    ----------
    table : array of shape [slots, W]
        Rates that W workers had, in work per slot. Machine i replays worker i mod W.
    shift : bool
        Begin at a uniformly drawn row per machine; otherwise at the first row.

    Examples
    --------
    >>> process = MeasuredRates(3, [[0.5, 1.0], [0.7, 0.0]], shift=False)
    >>> process.stream(np.random.default_rng(0)).draw(3)
    array([[0.5, 1. , 0.5],
           [0.7, 0. , 0.7],
           [0.5, 1. , 0.5]])
    """

    machines: int
    table: Floats
    shift: bool = True
    _stream = _MeasuredStream

    def __post_init__(self) -> None:
        super().__post_init__()
        table = np.array(self.table, dtype=np.float64, ndmin=2)
        if table.ndim != 2 or 0 in table.shape or not ((table >= 0) & (table <= 1)).all():
            raise ScenarioError(
                "measured rates are a table of slots by workers, within [0, 1]; its shape is "
                f"{table.shape}"
            )
        table.setflags(write=False)
        keep(self, table=table)

    @property
    def means(self) -> Floats:
        column = np.arange(self.machines) % self.table.shape[1]
        return np.asarray(self.table.mean(axis=0)[column])


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


class _RemovalStream(BlockStream):
    def begin(self) -> None:
        p = self.process
        self.base = p.base.stream(self.rng.spawn(1)[0])
        self.here = self.rng.random(p.size) < p.present

    def block(self) -> Floats:
        p = self.process
        u, here = self.rng.random((BLOCK, p.size)), np.empty((BLOCK, p.size))
        for t in range(BLOCK):
            here[t] = self.here
            leave = 1 / p.mean_present
            self.here = self.here ^ (u[t] < np.where(self.here, leave, 1 / p.mean_away))
        return np.asarray(self.base.draw(BLOCK) * here)


@dataclass(frozen=True, eq=False)
class Removals:
    """Machines that disappear and return: while a machine is away its rate is zero.

    Parameters
    ----------
    base : Rates
        The rates of machines that are there; they go on while a machine is away.
    mean_present, mean_away : float
        Means, in slots, of the geometric lengths of being there and of being away; one or more.

    Notes
    -----
    Nobody is told. A task on a machine that is away is paid for and does no work, which is how a
    policy finds out.

    Examples
    --------
    >>> from gangwise.approximation_jobs.rates import UniformRates
    >>> Removals(UniformRates([1.0], [1.0]), mean_present=300, mean_away=100).means
    array([0.75])
    """

    base: Rates
    mean_present: float = 2000.0
    mean_away: float = 200.0

    def __post_init__(self) -> None:
        for name in ("mean_present", "mean_away"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) >= 1):
                raise ScenarioError(f"{name} is {getattr(self, name)}; it is at least one slot")

    @property
    def size(self) -> int:
        return self.base.size

    @property
    def present(self) -> float:
        """Share of the slots in which a machine is there."""
        return self.mean_present / (self.mean_present + self.mean_away)

    @property
    def means(self) -> Floats:
        return self.present * self.base.means

    def stream(self, rng: np.random.Generator) -> RateStream:
        return _RemovalStream(self, rng)


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
