"""How fast channels are: distributions of the computation utility Z_e(t), (3).

Every slot a utility is drawn for *all* channels, whichever are on, so that policies that are
compared meet the same noise. Drawing n slots and then m gives the same as drawing n + m. The means
are exact, also after clipping, so that regret is measured against the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError

__all__ = ["BernoulliSpeeds", "BetaSpeeds", "NormalSpeeds", "Speeds", "SpeedsInOrder"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


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
    bad = np.flatnonzero(~((array >= low) & (array <= high)).reshape(-1))
    if array.ndim != 1 or not array.size or bad.size:
        found = f"{each} {bad[0]} has {array.flat[bad[0]]}" if bad.size else f"shape {array.shape}"
        raise ScenarioError(
            f"{what} must be one number in [{low:g}, {high:g}] for each {each}; {found}"
        )
    array.setflags(write=False)
    return array


def require_spread(spread: float) -> None:
    """Raise ScenarioError for a σ / μ that is negative or not finite."""
    if not (np.isfinite(spread) and spread >= 0):
        raise ScenarioError(f"spread is {spread}; it must be finite, zero or larger")


def normal_clipped_mean(mean: Floats, sd: Floats, low: Floats, high: Floats) -> Floats:
    """E[clip(Z, low, high)] for Z ~ N(mean, sd²): low + h(low) − h(high), h(a) = E[(Z − a)⁺]."""
    from scipy.special import ndtr

    def above(a: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            z = (mean - a) / sd
            h = sd * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) + (mean - a) * ndtr(z)
        return np.where(sd > 0, h, np.maximum(mean - a, 0.0))

    return low + above(low) - above(high)


@dataclass(frozen=True, eq=False)
class NormalSpeeds:
    """Z_e(t) ~ N(μ_e, (spread · μ_e)²), the paper's distribution with spread 1/2 (§4).

    The paper draws the *mean* v from N(μ, μ/2), which would leave Z without any noise; here v = μ
    and Z is noisy.

    Examples
    --------
    >>> speeds = NormalSpeeds(np.array([0.2, 0.8]))
    >>> speeds.clipped_mean(0, np.zeros(2), np.ones(2)).round(4)
    array([0.2008, 0.7243])
    """

    mean: Floats
    spread: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", per_channel(self.mean, "mean utility", 0.0, 1e6))
        require_spread(self.spread)

    @property
    def size(self) -> int:
        """E."""
        return int(self.mean.size)

    def reach(self) -> tuple[Floats, Floats]:
        """μ ± 2σ."""
        return self.mean * (1 - 2 * self.spread), self.mean * (1 + 2 * self.spread)

    def regime(self, slot: int) -> int:
        """One for all slots."""
        return 0

    def draw(self, first: int, slots: int, rng: np.random.Generator) -> Floats:
        """Independent draws."""
        noise: Floats = rng.standard_normal((slots, self.size))
        return self.mean * (1.0 + self.spread * noise)

    def clipped_mean(self, slot: int, low: Floats, high: Floats) -> Floats:
        """In closed form."""
        return normal_clipped_mean(self.mean, self.spread * self.mean, low, high)


@dataclass(frozen=True, eq=False)
class BernoulliSpeeds:
    """A channel serves at full speed (1) with probability μ_e, or stands still (0)."""

    mean: Floats

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", per_channel(self.mean, "mean utility", 0.0, 1.0))

    @property
    def size(self) -> int:
        """E."""
        return int(self.mean.size)

    def reach(self) -> tuple[Floats, Floats]:
        """0 and 1."""
        return np.zeros(self.size), np.ones(self.size)

    def regime(self, slot: int) -> int:
        """One for all slots."""
        return 0

    def draw(self, first: int, slots: int, rng: np.random.Generator) -> Floats:
        """Independent draws."""
        return (rng.random((slots, self.size)) < self.mean).astype(np.float64)

    def clipped_mean(self, slot: int, low: Floats, high: Floats) -> Floats:
        """Both outcomes, clipped and weighed."""
        zero, one = np.clip(0.0, low, high), np.clip(1.0, low, high)
        return np.asarray(zero + self.mean * (one - zero))


@dataclass(frozen=True, eq=False)
class BetaSpeeds:
    """Z_e(t) ~ Beta with mean μ_e and a + b = ``concentration``; larger is less noisy."""

    mean: Floats
    concentration: float = 4.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", per_channel(self.mean, "mean utility", 1e-9, 1 - 1e-9))
        if not (np.isfinite(self.concentration) and self.concentration > 0):
            raise ScenarioError(f"concentration is {self.concentration}; it must be positive")

    @property
    def size(self) -> int:
        """E."""
        return int(self.mean.size)

    def reach(self) -> tuple[Floats, Floats]:
        """0 and 1."""
        return np.zeros(self.size), np.ones(self.size)

    def regime(self, slot: int) -> int:
        """One for all slots."""
        return 0

    def draw(self, first: int, slots: int, rng: np.random.Generator) -> Floats:
        """Independent draws."""
        a = self.concentration * self.mean
        return rng.beta(a, self.concentration - a, (slots, self.size))

    def clipped_mean(self, slot: int, low: Floats, high: Floats) -> Floats:
        """E[Z; low < Z < high] from the incomplete beta function, and both ends."""
        from scipy.special import betainc

        a = self.concentration * self.mean
        b = self.concentration - a
        lower, upper = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
        inside = self.mean * (betainc(a + 1, b, upper) - betainc(a + 1, b, lower))
        below, above = betainc(a, b, lower), 1.0 - betainc(a, b, upper)
        return np.asarray(low * below + inside + high * above)


@dataclass(frozen=True, eq=False)
class SpeedsInOrder:
    """Other speeds with their channels in another order: the same draws, relabelled."""

    base: Speeds
    order: Ints

    @property
    def size(self) -> int:
        """E."""
        return self.base.size

    def reach(self) -> tuple[Floats, Floats]:
        """Those of the base, reordered."""
        low, high = self.base.reach()
        return low[self.order], high[self.order]

    def regime(self, slot: int) -> int:
        """That of the base."""
        return self.base.regime(slot)

    def draw(self, first: int, slots: int, rng: np.random.Generator) -> Floats:
        """Those of the base, reordered."""
        return self.base.draw(first, slots, rng)[:, self.order]

    def clipped_mean(self, slot: int, low: Floats, high: Floats) -> Floats:
        """That of the base, reordered."""
        back = np.argsort(self.order)
        return self.base.clipped_mean(slot, low[back], high[back])[self.order]
