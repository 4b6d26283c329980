"""Speeds: distributions of the computation utility Z_e(t) of ESDP (3).

They are stationary (:class:`NormalSpeeds`, :class:`BernoulliSpeeds`, :class:`BetaSpeeds`), have
means that move (:class:`PiecewiseSpeeds`, :class:`WavingSpeeds`), or were measured: replayed in the
order of the record (:class:`RecordedSpeeds`), or drawn from it (:class:`ReplayedSpeeds`), which
forgets that neighbouring slots and the workers of a job are alike.

Every slot a utility is drawn for *all* channels, whichever are on, so that policies that are
compared meet the same noise. Drawing n slots and then m gives the same as drawing n + m. The means
are exact, also after clipping, so that regret is measured against the truth.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, ndtr

from gangwise.core import arrays
from gangwise.core.arrays import Floats, Ints, keep
from gangwise.core.errors import ScenarioError


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
        keep(self, mean=per_channel(self.mean, "mean utility", 0.0, 1e6))

    def means(self, slots: Ints) -> Floats:
        return self.mean

    def reach(self) -> tuple[Floats, Floats]:
        return self.mean * (1 - 2 * self.spread), self.mean * (1 + 2 * self.spread)


@dataclass(frozen=True, eq=False)
class BernoulliSpeeds(_Stationary):
    """Bernoulli speeds: full speed (1) with probability μ_e, or a standstill (0)."""

    mean: Floats

    def __post_init__(self) -> None:
        keep(self, mean=per_channel(self.mean, "mean utility", 0.0, 1.0))

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
        keep(self, mean=per_channel(self.mean, "mean utility", 1e-9, 1 - 1e-9))
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
        keep(self, levels=levels, begins=begins)

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
        keep(self, mean=mean, phase=phase)

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
        keep(self, series=tuple(series))

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
        keep(self, series=tuple(series), group=group, begin=begin)

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
