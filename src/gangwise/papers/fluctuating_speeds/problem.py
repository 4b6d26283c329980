"""The problem of ESDP §2: channels on or off, cluster-wide capacities, supply costs, and utilities.

Policies know all of this, but not the mean utility of any channel. Utilities Z_e(t), ESDP (3), are
stationary (:class:`NormalSpeeds`, :class:`BernoulliSpeeds`, :class:`BetaSpeeds`), have means that
move (:class:`PiecewiseSpeeds`, :class:`WavingSpeeds`), or were measured: replayed in the order of
the record (:class:`RecordedSpeeds`), or drawn from it (:class:`ReplayedSpeeds`), which forgets that
neighbouring slots and the workers of a job are alike.

Every slot a utility is drawn for *all* channels, whichever are on, so that policies that are
compared meet the same noise. Drawing n slots and then m gives the same as drawing n + m. The means
are exact, also after clipping, so that regret is measured against the truth.

ESDP §3.1 assumes net utilities Z̃ in [0, 1] and normalises "by carefully tuning the parameters in
f_k"; with the paper's own numbers (three costs around 0.5 against a mean utility of 0.55) every net
utility would be negative. So the map is stated, as a :class:`Scale`:

    Z̃ = clip((Z − cost − low) / (high − low), 0, 1).

``clip`` has low = 0 and high the largest net utility within reach: a channel that loses counts as
nothing, and zero stays zero. ``affine`` has low the smallest net utility within reach: nothing is
lost, but every channel that is on gains a constant, which rewards switching on many of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, ndtr

from gangwise.core import arrays
from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import InfeasibleDecision, ScenarioError
from gangwise.core.workload import Channels


class Speeds(Protocol):
    """A distribution of utilities over channels and slots."""

    @property
    def size(self) -> int:
        """E, the number of channels."""

    def reach(self) -> tuple[Floats, Floats]:
        """Smallest and largest utility of each channel, two arrays of shape [E].

        For a distribution without ends, two standard deviations from its mean.
        """

    def regime(self, slot: int) -> int:
        """Slots with the same regime have the same distribution."""

    def draw(self, first: int, slots: int, rng: np.random.Generator) -> Floats:
        """Utilities of the slots from ``first`` on, shape [slots, E]."""

    def clipped_mean(self, slot: int, low: Floats, high: Floats) -> Floats:
        """E[clip(Z, low, high)] in a slot, exactly; all of shape [E]."""


def per_channel(
    value: npt.ArrayLike, what: str, low: float, high: float, each: str = "channel"
) -> Floats:
    """One number in [low, high] for each channel, read-only; ScenarioError names the bad one."""
    array = np.array(value, dtype=np.float64, ndmin=1)
    # Negated, so that NaN is a bad number, too.
    bad = np.flatnonzero(~((array >= low) & (array <= high)).reshape(-1))
    if array.ndim != 1 or not array.size or bad.size:
        fault = f"{each} {bad[0]} has {array.flat[bad[0]]}" if bad.size else f"shape {array.shape}"
        raise ScenarioError(
            f"{what} must be one number in [{low:g}, {high:g}] for each {each}; {fault}"
        )
    array.setflags(write=False)
    return array


class _Stationary:
    """Speeds with the same means μ [E] in every slot."""

    mean: Floats

    @property
    def size(self) -> int:
        return int(self.mean.size)

    def regime(self, slot: int) -> int:
        return 0

    def reach(self) -> tuple[Floats, Floats]:
        return np.zeros(self.size), np.ones(self.size)


class _Normal(arrays.Checked, ABC):
    """Normal noise with σ = ``spread`` · μ around means that may move with the slots."""

    spread: float

    @abstractmethod
    def means(self, slots: Ints) -> Floats:
        """μ of some slots, shape [E] or [slots, E]."""

    @property
    def size(self) -> int:
        return int(self.means(np.zeros(1, dtype=np.int64)).shape[-1])

    def draw(self, first: int, slots: int, rng: np.random.Generator) -> Floats:
        noise: Floats = rng.standard_normal((slots, self.size))
        means = self.means(np.arange(first, first + slots))
        return np.asarray(means * (1.0 + self.spread * noise))

    def clipped_mean(self, slot: int, low: Floats, high: Floats) -> Floats:
        """E[clip(Z, low, high)] = low + h(low) − h(high) with h(a) = E[(Z − a)⁺]."""
        mean = self.means(np.array([slot])).reshape(-1)
        sd = self.spread * mean

        def above(a: Floats) -> Floats:  # E[(Z - a)⁺] = σ φ(z) + (μ - a) Φ(z), z = (μ - a)/σ
            with np.errstate(divide="ignore", invalid="ignore"):
                z = (mean - a) / sd
                h = sd * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) + (mean - a) * ndtr(z)
            return np.where(sd > 0, h, np.maximum(mean - a, 0.0))

        return low + above(low) - above(high)  # clip(Z) = low + (Z − low)⁺ − (Z − high)⁺


class _Measured:
    """Speeds from what was measured: a series of values for each channel."""

    series: Sequence[Floats]

    @property
    def size(self) -> int:
        return len(self.series)

    def reach(self) -> tuple[Floats, Floats]:
        return np.array([s.min() for s in self.series]), np.array([s.max() for s in self.series])

    def regime(self, slot: int) -> int:
        return 0

    def _values(self, e: int, regime: int) -> Floats:
        """Values of a channel in a slot of a regime, all with the same probability."""
        return self.series[e]

    def clipped_mean(self, slot: int, low: Floats, high: Floats) -> Floats:
        regime = self.regime(slot)
        values = (self._values(e, regime) for e in range(self.size))
        return np.array([np.clip(v, a, b).mean() for v, a, b in zip(values, low, high)])

    def _checked(self) -> list[Floats]:
        return [
            per_channel(s, f"what was measured of channel {e}", 0.0, 1e6, each="value")
            for e, s in enumerate(self.series)
        ]


@dataclass(frozen=True, eq=False)
class NormalSpeeds(_Normal, _Stationary):
    """Normal speeds: Z_e(t) ~ N(μ_e, (spread · μ_e)²), with spread 1/2 that of ESDP §4.

    The paper draws the *mean* v from N(μ, μ/2), which would leave Z without any noise; here v = μ
    and Z is noisy.

    Examples
    --------
    >>> speeds = NormalSpeeds(np.array([0.2, 0.8]))
    >>> speeds.clipped_mean(0, np.zeros(2), np.ones(2)).round(4)
    array([0.2008, 0.7243])
    """

    mean: Floats
    spread: arrays.NonNegative = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        arrays.keep(self, mean=per_channel(self.mean, "mean utility", 0.0, 1e6))

    def means(self, slots: Ints) -> Floats:
        return self.mean

    def reach(self) -> tuple[Floats, Floats]:
        return self.mean * (1 - 2 * self.spread), self.mean * (1 + 2 * self.spread)


@dataclass(frozen=True, eq=False)
class BernoulliSpeeds(_Stationary):
    """Bernoulli speeds: full speed (1) with probability μ_e, or a standstill (0)."""

    mean: Floats

    def __post_init__(self) -> None:
        arrays.keep(self, mean=per_channel(self.mean, "mean utility", 0.0, 1.0))

    def draw(self, first: int, slots: int, rng: np.random.Generator) -> Floats:
        return (rng.random((slots, self.size)) < self.mean).astype(np.float64)

    def clipped_mean(self, slot: int, low: Floats, high: Floats) -> Floats:
        # Z is 0 or 1, so clip(Z) is one of two numbers.
        zero, full = np.clip(0.0, low, high), np.clip(1.0, low, high)
        return np.asarray(zero + self.mean * (full - zero))


@dataclass(frozen=True, eq=False)
class BetaSpeeds(_Stationary):
    """Beta speeds: Z_e(t) ~ Beta with mean μ_e and a + b = ``concentration``: its noise."""

    mean: Floats
    concentration: float = 4.0

    def __post_init__(self) -> None:
        # Beta(a, b) needs a, b > 0, so that a mean of exactly 0 or 1 is out.
        arrays.keep(self, mean=per_channel(self.mean, "mean utility", 1e-9, 1 - 1e-9))
        arrays.check_numbers("(0, inf)", concentration=self.concentration)

    def draw(self, first: int, slots: int, rng: np.random.Generator) -> Floats:
        a = self.concentration * self.mean
        return rng.beta(a, self.concentration - a, (slots, self.size))

    def clipped_mean(self, slot: int, low: Floats, high: Floats) -> Floats:
        """E[Z; low < Z < high] from the incomplete beta function, and both ends."""
        # E[Z; Z < x] = μ I_x(a + 1, b) for Beta(a, b), I the regularised incomplete beta function.
        a = self.concentration * self.mean
        b = self.concentration - a
        lower, upper = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
        inside = self.mean * (betainc(a + 1, b, upper) - betainc(a + 1, b, lower))
        below, above = betainc(a, b, lower), 1.0 - betainc(a, b, upper)
        return np.asarray(low * below + inside + high * above)


@dataclass(frozen=True, eq=False)
class PermutedSpeeds:
    """Permuted speeds: others with their channels in another order, the same draws relabelled."""

    base: Speeds
    order: Ints

    @property
    def size(self) -> int:
        return self.base.size

    def reach(self) -> tuple[Floats, Floats]:
        low, high = self.base.reach()
        return low[self.order], high[self.order]

    def regime(self, slot: int) -> int:
        return self.base.regime(slot)

    def draw(self, first: int, slots: int, rng: np.random.Generator) -> Floats:
        return self.base.draw(first, slots, rng)[:, self.order]

    def clipped_mean(self, slot: int, low: Floats, high: Floats) -> Floats:
        # The bounds come in the new order, and the base has its own.
        back = np.argsort(self.order)
        return self.base.clipped_mean(slot, low[back], high[back])[self.order]


@dataclass(frozen=True, eq=False)
class PiecewiseSpeeds(_Normal):
    """Piecewise stationary speeds: means hold, then jump; normal noise with σ = spread · μ.

    Parameters
    ----------
    levels : ndarray of shape [P, E]
        μ of each piece.
    begins : array of int, shape [P]
        First slot of each piece, from 0 up.

    Examples
    --------
    >>> speeds = PiecewiseSpeeds(np.array([[0.2], [0.8]]), np.array([0, 100]), spread=0.0)
    >>> speeds.draw(99, 2, np.random.default_rng(0))[:, 0]
    array([0.2, 0.8])
    """

    levels: Floats
    begins: Ints
    spread: arrays.NonNegative = 0.5

    def __post_init__(self) -> None:
        levels = np.array(self.levels, dtype=np.float64)
        begins = np.array(self.begins, dtype=np.int64, ndmin=1)
        if levels.ndim != 2 or 0 in levels.shape:
            raise ScenarioError(
                f"levels must be a table of pieces by channels; its shape is {levels.shape}"
            )
        for piece, means in enumerate(levels):
            per_channel(means, f"mean utility in piece {piece}", 0.0, 1e6)
        super().__post_init__()
        # Every slot has exactly one piece.
        if begins.shape != levels.shape[:1] or begins[0] != 0 or (np.diff(begins) <= 0).any():
            raise ScenarioError(
                f"pieces must begin at increasing slots, the first at 0; got {begins.tolist()} for "
                f"{len(levels)} pieces"
            )
        arrays.keep(self, levels=levels, begins=begins)

    def reach(self) -> tuple[Floats, Floats]:
        low = (self.levels * (1 - 2 * self.spread)).min(axis=0)
        return low, (self.levels * (1 + 2 * self.spread)).max(axis=0)

    def means(self, slots: Ints) -> Floats:
        # side="right": in the slot in which a piece begins its means are in force already.
        return self.levels[np.searchsorted(self.begins, slots, side="right") - 1]

    def regime(self, slot: int) -> int:
        return int(np.searchsorted(self.begins, slot, side="right")) - 1


@dataclass(frozen=True, eq=False)
class WavingSpeeds(_Normal):
    """Periodic speeds: means μ_e (1 + amplitude · sin 2π(t / period + phase_e)), σ = spread · mean.

    Parameters
    ----------
    mean, phase : ndarray of shape [E]
        Phases are in turns, so that servers need not slow down together.
    amplitude : float
        0 to 1.
    period : int
        Slots.
    """

    mean: Floats
    phase: Floats
    amplitude: arrays.Share = 0.5
    period: arrays.PositiveInt = 1000
    spread: arrays.NonNegative = 0.5

    def __post_init__(self) -> None:
        mean = per_channel(self.mean, "mean utility", 0.0, 1e6)
        # Phases shift the wave of each channel, so that their number must match.
        phase = np.array(self.phase, dtype=np.float64, ndmin=1)
        if mean.shape != phase.shape or not np.isfinite(phase).all():
            raise ScenarioError(f"each of {mean.size} channels needs a finite phase; got {phase}")
        super().__post_init__()
        arrays.keep(self, mean=mean, phase=phase)

    def reach(self) -> tuple[Floats, Floats]:
        # Both ends of the wave, two standard deviations to either side.
        least, most = self.mean * (1 - self.amplitude), self.mean * (1 + self.amplitude)
        around = 1 - 2 * self.spread
        return np.minimum(least * around, most * around), most * (1 + 2 * self.spread)

    def regime(self, slot: int) -> int:
        return slot % self.period

    def means(self, slots: Ints) -> Floats:
        # The same slot of every period has the same mean to the last bit.
        turn = (slots % self.period)[:, None] / self.period + self.phase
        return np.asarray(self.mean * (1.0 + self.amplitude * np.sin(2 * np.pi * turn)))


@dataclass(frozen=True, eq=False)
class ReplayedSpeeds(_Measured):
    """Bootstrapped speeds: utilities that were measured, drawn with replacement.

    Parameters
    ----------
    series : sequence of arrays
        What was measured for each channel, in the order of measurement; lengths may differ.
    blocks : int
        1 draws from all of a series in every slot. With more, each series is cut into so many
        blocks in order, and the slots walk through them: recorded drift is kept, and the mean of
        every slot is still known exactly.
    slots : int
        How many slots the walk takes; it begins again afterwards.

    Examples
    --------
    >>> speeds = ReplayedSpeeds([np.array([0.1, 0.1, 0.9, 0.9])], blocks=2, slots=10)
    >>> speeds.draw(0, 10, np.random.default_rng(0))[:, 0]
    array([0.1, 0.1, 0.1, 0.1, 0.1, 0.9, 0.9, 0.9, 0.9, 0.9])
    """

    series: Sequence[Floats]
    blocks: int = 1
    slots: int = 2000

    def __post_init__(self) -> None:
        series = self._checked()
        if not series:
            raise ScenarioError("there are no measured utilities")
        shortest = min(s.size for s in series)
        if not 1 <= self.blocks <= min(shortest, self.slots):
            raise ScenarioError(
                f"{self.blocks} blocks are asked for; the shortest series has {shortest} values "
                f"and the walk takes {self.slots} slots"
            )
        arrays.keep(self, series=tuple(series))

    def regime(self, slot: int) -> int:
        # Whole division: as many slots for each block as for any other, give or take one.
        return (slot % self.slots) * self.blocks // self.slots

    def _values(self, e: int, regime: int) -> Floats:
        """The block of a series that has the number of the regime."""
        s = self.series[e]
        return s[s.size * regime // self.blocks : s.size * (regime + 1) // self.blocks]

    def draw(self, first: int, slots: int, rng: np.random.Generator) -> Floats:
        # One uniform number for each slot and channel, whatever is in the block: the same draws for
        # all.
        chance = rng.random((slots, self.size))
        drawn = np.empty_like(chance)
        block = np.array([self.regime(first + i) for i in range(slots)])
        for b in np.unique(block):
            rows = block == b
            for e in range(self.size):
                values = self._values(e, int(b))
                drawn[rows, e] = values[(chance[rows, e] * values.size).astype(np.int64)]
        return drawn


@dataclass(frozen=True, eq=False)
class RecordedSpeeds(_Measured):
    """Recorded speeds: utilities that were measured, in the order of the record, round and round.

    Nothing is drawn but where each group of channels begins, so that what neighbouring slots, and
    the channels of a group, have in common is kept. The mean of a slot is over all beginnings: that
    of the whole record. So one who knows the means chooses once and for all, and a policy that
    follows the record can earn more.

    Parameters
    ----------
    series : sequence of arrays
        What was measured for each channel.
    group : array of int, shape [E]
        Channels that were measured at the same time. All go round after as many slots as the
        shortest of their group has values; what others have beyond is left out.
    begin : array of int, shape [E]
        The value that slot 0 has; the same within a group.

    Examples
    --------
    >>> speeds = RecordedSpeeds([np.array([0.1, 0.5, 0.9])], np.array([0]), np.array([1]))
    >>> speeds.draw(0, 4, np.random.default_rng(0))[:, 0]
    array([0.5, 0.9, 0.1, 0.5])
    """

    series: Sequence[Floats]
    group: Ints
    begin: Ints

    def __post_init__(self) -> None:
        series = self._checked()
        group, begin = (np.array(x, dtype=np.int64, ndmin=1) for x in (self.group, self.begin))
        if not series or group.shape != (len(series),) or begin.shape != group.shape:
            raise ScenarioError(
                f"{len(series)} series need a group and a beginning each; got {group.size} and "
                f"{begin.size}"
            )
        # Channels of a group were measured together, so that they begin and go round together.
        for g in np.unique(group):
            of_group = np.flatnonzero(group == g).tolist()
            if np.ptp(begin[of_group]) or begin[of_group[0]] < 0:
                raise ScenarioError(
                    f"channels {of_group} were measured at the same time; they must begin at the "
                    f"same value, 0 or later, not at {begin[of_group].tolist()}"
                )
            shortest = min(series[e].size for e in of_group)
            for e in of_group:
                series[e] = series[e][:shortest]
        arrays.keep(self, series=tuple(series), group=group, begin=begin)

    @classmethod
    def anywhere(
        cls, series: Sequence[Floats], group: Ints, rng: np.random.Generator
    ) -> RecordedSpeeds:
        """Each group begins anywhere in its record, with equal chances."""
        # A group goes round after its shortest series, so it begins within that one.
        names, place = np.unique(group, return_inverse=True)
        begin = [
            rng.integers(min(s.size for s, g in zip(series, group) if g == name)) for name in names
        ]
        return cls(series, group, np.array(begin, dtype=np.int64)[place])

    def draw(self, first: int, slots: int, rng: np.random.Generator) -> Floats:
        at = np.arange(first, first + slots)
        return np.column_stack([s[(b + at) % s.size] for s, b in zip(self.series, self.begin)])


def linear_cost(requests: Floats, price: npt.ArrayLike) -> Floats:
    """Linear supply cost Σ_k f_k(a_k), ESDP (3), with f_k(a) = price_k · a: paid by the device.

    Parameters
    ----------
    requests : ndarray of shape [E, K]
    price : array of shape [K]
        Utility per device.

    Examples
    --------
    >>> linear_cost(np.array([[1.0, 2.0], [2.0, 2.0]]), [0.1, 0.2])
    array([0.5, 0.6])
    """
    price = np.asarray(price, dtype=np.float64)
    if price.shape != (requests.shape[1],):
        raise ScenarioError(
            f"prices have shape {price.shape}; expected one for each of {requests.shape[1]} "
            "device types"
        )
    return np.asarray(requests @ price)


@dataclass(frozen=True, eq=False)
class Pool:
    """Resource pool (ESDP §2.2): servers that draw on devices of the whole cluster.

    Parameters
    ----------
    capacity : ndarray of shape [K]
        c_k: devices of each type in the whole cluster.
    devices : tuple of str
        Device type names, length K.
    servers : tuple of str
        Server names, length R.

    Raises
    ------
    ScenarioError
        For a capacity that is negative or not finite, or names that do not match.

    Examples
    --------
    >>> Pool(np.array([8.0, 64.0]), ("gpu", "cpu"), ("a", "b")).capacity
    array([ 8., 64.])
    """

    capacity: npt.NDArray[np.float64]
    devices: tuple[str, ...]
    servers: tuple[str, ...]

    def __post_init__(self) -> None:
        capacity = arrays.frozen(self.capacity)
        if capacity.ndim != 1 or not capacity.size or capacity.size != len(self.devices):
            raise ScenarioError(
                f"capacity has shape {capacity.shape}; expected one number for each of "
                f"{len(self.devices)} device types, for the whole cluster"
            )
        if not self.servers:
            raise ScenarioError("a cluster needs at least one server")
        servers = arrays.check_names(self.servers, len(self.servers), "server")
        devices = arrays.check_names(self.devices, capacity.size, "device type")
        # Zero is allowed: then no channel that asks for the device type ever fits.
        arrays.check_amount(capacity, lambda k: f"capacity of device type {devices[k]!r}")
        arrays.keep(self, capacity=capacity, devices=devices, servers=servers)


TOLERANCE = 1e-9
"""A capacity counts as kept when it is exceeded by no more than this, relative to 1 + its size."""


@dataclass(frozen=True, eq=False)
class FluctuatingSpeedsProblem:
    """Channel selection (ESDP §2): channels, what they request, what there is, what supply costs.

    Parameters
    ----------
    cluster : Pool
        Servers, and the capacity c_k [K] that all of them share, ESDP (2).
    requests : ndarray of shape [E, K]
        a_k^(l,r): devices that channel e = (l, r) holds while it is on. A channel may do without
        some device type, but not without all of them.
    channels : Channels
        Job type and server of each channel, sorted by server.
    cost : ndarray of shape [E]
        Σ_k f_k(a_k^(l,r)): supply cost of each channel, in units of utility.
    job_types : tuple of str, optional
        Names, length L.

    Raises
    ------
    ScenarioError
        Names the channel and device type at fault.

    Examples
    --------
    >>> problem = FluctuatingSpeedsProblem(
    ...     Pool(np.array([1.0]), ("gpu",), ("a", "b")),
    ...     requests=np.ones((2, 1)),
    ...     channels=Channels.of_mask(np.eye(2, dtype=bool)),
    ...     cost=np.zeros(2),
    ... )
    >>> problem.check(np.array([0, 1]), np.array([0, 1]))
    array([False,  True])
    """

    cluster: Pool
    requests: Floats
    channels: Channels
    cost: Floats
    job_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        requests, cost = arrays.frozen(self.requests), arrays.frozen(self.cost)
        E, K = len(self.channels), len(self.cluster.devices)
        names = arrays.check_names(self.job_types, self.channels.shape[0], "job type")
        # Names come first: the errors below call channels by them.
        arrays.keep(self, job_types=names)
        self.channels.require_all_connected(names, len(self.cluster.servers))
        if requests.shape != (E, K):
            raise ScenarioError(
                f"requests have shape {requests.shape}; expected {E} channels by {K} device types"
            )
        if cost.shape != (E,):
            raise ScenarioError(
                f"cost has shape {cost.shape}; expected one number for each of {E} channels"
            )
        devices = self.cluster.devices
        arrays.check_amount(
            requests, lambda at: f"{self.name(at[0])}: request of device type {devices[at[1]]!r}"
        )
        # With no request at all it would be on for ever, and be chosen without regard to the
        # others.
        if (e := arrays.first(~(requests > 0).any(axis=1))) is not None:
            raise ScenarioError(
                f"{self.name(e)} requests none of the device types "
                f"{', '.join(self.cluster.devices)}; a channel takes something while it is on"
            )
        # A cost may be negative: a channel whose use is paid for.
        if (e := arrays.first(~np.isfinite(cost))) is not None:
            raise ScenarioError(f"{self.name(e)}: supply cost is {cost[e]}; it must be finite")
        arrays.keep(self, requests=requests, cost=cost)

    def name(self, e: int) -> str:
        l, r = self.channels.job_type[e], self.channels.server[e]
        return f"channel ({self.job_types[l]!r} on {self.cluster.servers[r]!r})"

    @property
    def L(self) -> int:
        return self.channels.shape[0]

    @property
    def E(self) -> int:
        return len(self.channels)

    @cached_property
    def tolerance(self) -> Floats:
        """Excess of each capacity that counts as rounding, shape [K]."""
        return TOLERANCE * (1.0 + self.cluster.capacity)

    def available(self, arrivals: Ints) -> Bools:
        """Channels of the job types that arrived, ESDP (4), shape [E]."""
        arrived: Bools = np.asarray(arrivals)[self.channels.job_type] != 0
        return arrived

    def check(self, arrivals: Ints, decision: npt.ArrayLike, slot: int | None = None) -> Bools:
        """Feasibility, Ω(t) of ESDP (7): the decision as truth values, shape [E], if it is in it.

        Raises
        ------
        InfeasibleDecision
            Names the slot, and the channel or device type at fault: neither on nor off, ESDP (1);
            of a job type that did not come, ESDP (4); or beyond the capacity, ESDP (2).
        """
        x, prefix = np.asarray(decision), "" if slot is None else f"slot {slot}: "
        if x.shape != (self.E,):
            raise InfeasibleDecision(
                f"{prefix}the decision has shape {x.shape}; expected {self.E} channels"
            )
        # Numbers will do as well as truth values, as long as they are 0 or 1 exactly.
        on: Bools = x if x.dtype == np.bool_ else x == 1
        if x.dtype != np.bool_ and not (on | (x == 0)).all():
            e = int(np.flatnonzero(~(on | (x == 0)))[0])
            raise InfeasibleDecision(
                f"{prefix}{self.name(e)} is {x[e]}; a channel is on (1) or off (0), ESDP (1)"
            )
        # ESDP (4): a channel of a job type that did not arrive cannot be on.
        absent = on & ~self.available(arrivals)
        if absent.any():
            raise InfeasibleDecision(
                f"{prefix}{self.name(int(np.flatnonzero(absent)[0]))} is on, but no job of that "
                "type arrived, ESDP (4)"
            )
        # ESDP (2): the capacity is of the whole cluster, whichever server a channel is on.
        used = on @ self.requests
        over = np.flatnonzero(used > self.cluster.capacity + self.tolerance)
        if over.size:
            k = int(over[0])
            users = np.flatnonzero(on & (self.requests[:, k] > 0))
            listed = ", ".join(self.name(e) for e in users[:4])
            raise InfeasibleDecision(
                f"{prefix}device type {self.cluster.devices[k]!r}: {used[k]:g} of "
                f"{self.cluster.capacity[k]:g} devices are taken, ESDP (2), by "
                f"{users.size} channels: {listed}{', …' if users.size > 4 else ''}"
            )
        return on


@dataclass(frozen=True)
class Scale:
    """Normalisation (ESDP §3.1): the net utilities that become 0 and 1.

    Examples
    --------
    >>> Scale(0.0, 0.5).apply(np.array([0.9, 0.4, 0.1]), np.array([0.2, 0.2, 0.2]))
    array([1. , 0.4, 0. ])
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise ScenarioError(
                f"net utilities from {self.low} to {self.high} cannot be mapped to [0, 1]"
            )

    @classmethod
    def of(cls, kind: str, speeds: Speeds, cost: Floats) -> Scale:
        """``clip`` or ``affine`` for utilities and costs; ``none`` takes them as they are.

        Raises
        ------
        ScenarioError
            When no channel is ever worth its cost, or ``none`` is asked for where a net utility
            can leave [0, 1].
        """
        # Costs differ by channel, so the extremes are those of net utilities, not of utilities.
        low, high = speeds.reach()
        smallest, largest = float((low - cost).min()), float((high - cost).max())
        if kind == "none":
            if smallest < 0 or largest > 1:
                raise ScenarioError(
                    f"net utilities range from {smallest:g} to {largest:g}; without a "
                    "normalisation they must lie in [0, 1]: choose clip or affine"
                )
            return cls()
        if kind not in ("clip", "affine"):
            raise ScenarioError(f"normalise is clip, affine or none, not {kind!r}")
        # Clipping would make every net utility zero, and all decisions alike.
        if kind == "clip" and largest <= 0:
            raise ScenarioError(
                f"every channel costs more than it can bring (the best nets {largest:g}), so doing "
                "nothing is optimal; lower the costs or choose affine"
            )
        # Clipped utilities start at zero; affine ones at the worst that any channel nets.
        return cls(0.0 if kind == "clip" else smallest, largest)

    def apply(self, utilities: Floats, cost: Floats) -> Floats:
        """Z̃ of raw utilities; the last axis is over channels."""
        net: Floats = (utilities - cost - self.low) / (self.high - self.low)
        # Noise without ends may leave the reach of two standard deviations: it is cut off.
        return np.clip(net, 0.0, 1.0)

    def mean(self, speeds: Speeds, cost: Floats, slot: int) -> Floats:
        """E[Z̃] of each channel in a slot, exactly, shape [E]: ṽ of ESDP (7)."""
        # E[clip((Z - cost - low) / width, 0, 1)] = (E[clip(Z, cost + low, … + width)] - …) / width.
        low, width = cost + self.low, self.high - self.low
        return np.asarray((speeds.clipped_mean(slot, low, low + width) - low) / width)
