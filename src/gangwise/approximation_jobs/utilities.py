"""Concave utilities f_j(X) of the work done for a job (§III).

A utility is worth 0 without any work. The slope of v X^β is infinite there, so that it is not
Lipschitz and Theorems 2 and 3 do not cover it; whoever follows slopes takes them at a floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gangwise.core.errors import ScenarioError

__all__ = ["LOG", "OWN", "POWER", "SATURATING", "Log", "Own", "Power", "Saturating", "Utility"]

POWER, LOG, SATURATING, OWN = 0, 1, 2, 3
"""How kernels tell the forms apart; ``OWN`` is evaluated in Python."""


class Utility(Protocol):
    """Worth of work: increasing, concave, 0 at 0."""

    @property
    def code(self) -> tuple[int, float, float]:
        """Form, scale v and shape, for kernels."""

    def value(self, work: float) -> float:
        """f(X) in units of utility, X in units of work (a machine of rate 1 for one slot)."""

    def slope(self, work: float) -> float:
        """f'(X), utility per unit of work."""


def _positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not (math.isfinite(number) and number > 0):
            raise ScenarioError(f"utility: {name} is {number}; it must be finite and positive")


@dataclass(frozen=True)
class Power:
    """f(X) = v X^β, 0 < β ≤ 1: the utility of §VI.

    Examples
    --------
    >>> Power(3.0, 0.5).value(4.0), Power(3.0, 0.5).slope(4.0)
    (6.0, 0.75)
    """

    v: float = 1.0
    beta: float = 0.5

    def __post_init__(self) -> None:
        _positive(v=self.v, beta=self.beta)
        if self.beta > 1:
            raise ScenarioError(f"utility: beta is {self.beta}; above 1 it is not concave")

    @property
    def code(self) -> tuple[int, float, float]:
        """Form, v and β."""
        return POWER, self.v, self.beta

    def value(self, work: float) -> float:
        """Worth v X^β."""
        return self.v * math.pow(work, self.beta)

    def slope(self, work: float) -> float:
        """Slope β v X^(β−1), infinite at 0 unless β = 1."""
        if work <= 0.0:
            return self.v if self.beta == 1 else math.inf
        return self.beta * self.v * math.pow(work, self.beta - 1.0)


@dataclass(frozen=True)
class Log:
    """f(X) = v log(1 + X / s).

    Examples
    --------
    >>> Log(2.0, 10.0).slope(0.0)
    0.2
    """

    v: float = 1.0
    s: float = 1.0

    def __post_init__(self) -> None:
        _positive(v=self.v, s=self.s)

    @property
    def code(self) -> tuple[int, float, float]:
        """Form, v and s."""
        return LOG, self.v, self.s

    def value(self, work: float) -> float:
        """Worth v log(1 + X / s)."""
        return self.v * math.log1p(work / self.s)

    def slope(self, work: float) -> float:
        """Slope v / (s + X)."""
        return self.v / (self.s + work)


@dataclass(frozen=True)
class Saturating:
    """f(X) = v (1 − exp(−X / s)): accuracy that approaches v.

    Examples
    --------
    >>> round(Saturating(1.0, 10.0).value(10.0), 3)
    0.632
    """

    v: float = 1.0
    s: float = 1.0

    def __post_init__(self) -> None:
        _positive(v=self.v, s=self.s)

    @property
    def code(self) -> tuple[int, float, float]:
        """Form, v and s."""
        return SATURATING, self.v, self.s

    def value(self, work: float) -> float:
        """Worth v (1 − exp(−X / s))."""
        return -self.v * math.expm1(-work / self.s)

    def slope(self, work: float) -> float:
        """Slope (v / s) exp(−X / s)."""
        return self.v / self.s * math.exp(-work / self.s)


@dataclass(frozen=True)
class Own:
    """A utility of your own: its value and its slope, as functions of the work done.

    Use module-level functions, so that runs can be saved.

    Examples
    --------
    >>> Own(math.sqrt, lambda work: 0.5 / math.sqrt(work)).value(9.0)
    3.0
    """

    of: Callable[[float], float]
    slope_of: Callable[[float], float]

    @property
    def code(self) -> tuple[int, float, float]:
        """Form; nothing else, since kernels cannot call it."""
        return OWN, 0.0, 1.0

    def value(self, work: float) -> float:
        """f(X) − f(0), so that a job that never runs is worth nothing."""
        return float(self.of(work)) - float(self.of(0.0))

    def slope(self, work: float) -> float:
        """f'(X)."""
        return float(self.slope_of(work))
