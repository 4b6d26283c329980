r"""Utilities: the parallel computation gain of devices (OGASched (27)).

============  =============================  =================  ==========
name          value f(y)                     slope f'(y)        bound f'(0)
============  =============================  =================  ==========
linear        α y                            α                  α
log           α ln(y + 1)                    α / (y + 1)        α
reciprocal    1/α - 1/(y + α)                1 / (y + α)²       1 / α²
poly          α √(y + 1) - α                 α / (2 √(y + 1))   α / 2
============  =============================  =================  ==========

All start at zero, do not decrease and are concave. Each server and device type has its own
utility (7), so kinds mix freely; :class:`Utility` adds one of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError, UnknownName

__all__ = ["LINEAR", "LOG", "POLY", "RECIPROCAL", "Utilities", "Utility"]

Floats = npt.NDArray[np.float64]
Function = Callable[[Floats, Floats], Floats]


@dataclass(frozen=True)
class Utility:
    """A zero-startup, non-decreasing, concave utility.

    Parameters
    ----------
    name : str
    value, slope : callable
        Functions of devices ``y`` and parameter ``alpha``, elementwise on arrays.

    Raises
    ------
    ScenarioError
        When the functions visibly break a requirement (checked on a grid at construction).

    Examples
    --------
    >>> saturating = Utility(
    ...     "saturating", lambda y, a: a * -np.expm1(-y), lambda y, a: a * np.exp(-y)
    ... )
    >>> float(saturating.bound(np.array(2.0)))
    2.0
    """

    name: str
    value: Function
    slope: Function

    def __post_init__(self) -> None:
        y = np.concatenate(([0.0], np.geomspace(1e-3, 1e3, 61)))
        for alpha in (0.5, 1.0, 1.5):
            a = np.full_like(y, alpha)
            value, slope = np.asarray(self.value(y, a)), np.asarray(self.slope(y, a))
            if value.shape != y.shape or slope.shape != y.shape:
                problem = "must work elementwise on arrays"
            elif not (np.isfinite(value).all() and np.isfinite(slope).all()):
                problem = "is not finite everywhere (its slope at 0 must be finite, (8))"
            elif abs(value[0]) > 1e-12:
                problem = f"must start at zero; its value there is {value[0]}"
            elif (slope < -1e-12).any():
                problem = f"must not decrease; its slope at {y[slope < -1e-12][0]:g} is negative"
            elif (np.diff(slope) > 1e-9 * (1 + abs(slope[:-1]))).any():
                problem = "must be concave; its slope rises"
            elif (np.diff(value) > slope[:-1] * np.diff(y) + 1e-9).any():
                problem = "has a slope that is not the derivative of its value"
            else:
                continue
            raise ScenarioError(f"utility {self.name!r} {problem} (alpha = {alpha})")

    def bound(self, alpha: Floats) -> Floats:
        """The largest slope, at zero: ϖ of (8)."""
        return self.slope(np.zeros_like(alpha), alpha)


LINEAR = Utility("linear", lambda y, a: a * y, lambda y, a: a + 0 * y)
LOG = Utility("log", lambda y, a: a * np.log1p(y), lambda y, a: a / (y + 1))
RECIPROCAL = Utility("reciprocal", lambda y, a: 1 / a - 1 / (y + a), lambda y, a: (y + a) ** -2.0)
POLY = Utility(
    "poly", lambda y, a: a * (np.sqrt(y + 1) - 1), lambda y, a: a / (2 * np.sqrt(y + 1))
)

BUILT_IN = (LINEAR, LOG, RECIPROCAL, POLY)  # position = kind in the kernels


@dataclass(frozen=True, eq=False)
class Utilities:
    """Which utility each server and device type has.

    Parameters
    ----------
    kind : ndarray of int64, shape [R, K]
        0 … 3 for linear, log, reciprocal, poly; 4 and up for ``own``.
    alpha : ndarray of float64, shape [R, K]
        Parameter of each utility; positive.
    own : tuple of Utility
        Your own utilities.
    """

    kind: npt.NDArray[np.int64]
    alpha: Floats
    own: tuple[Utility, ...] = ()

    def __post_init__(self) -> None:
        kind = np.array(self.kind, dtype=np.int64, order="C")
        alpha = np.array(self.alpha, dtype=np.float64, order="C")
        if kind.shape != alpha.shape or kind.ndim != 2:
            raise ScenarioError(
                f"utility kinds have shape {kind.shape} and alphas {alpha.shape}; both must be "
                "servers by device types"
            )
        unknown = kind[(kind < 0) | (kind >= len(BUILT_IN) + len(self.own))]
        if unknown.size:
            raise ScenarioError(f"utility kind {unknown[0]} is not one of those given")
        bad = np.argwhere(~(np.isfinite(alpha) & (alpha > 0)))
        if len(bad):
            r, k = bad[0]
            raise ScenarioError(
                f"utility parameter alpha of server {r}, device type {k} is {alpha[r, k]}; "
                "it must be positive"
            )
        kind.setflags(write=False)
        alpha.setflags(write=False)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "alpha", alpha)

    @classmethod
    def of(
        cls, names: str | Utility | Sequence[Sequence[str | Utility]], alpha: npt.ArrayLike
    ) -> Utilities:
        """Build from names or utilities: one for all, or a table of shape [R, K].

        Examples
        --------
        >>> Utilities.of([["log", "poly"]], [[1.0, 2.0]]).bound()
        array([[1., 1.]])
        """
        alphas = np.array(alpha, dtype=np.float64, ndmin=2)
        if isinstance(names, str | Utility):
            names = [[names] * alphas.shape[1]] * alphas.shape[0]
        own: list[Utility] = []
        kinds = [[_kind(entry, own) for entry in row] for row in names]
        return cls(np.array(kinds, dtype=np.int64), alphas, tuple(own))

    def bound(self) -> Floats:
        """ϖ_r^k of (8): the slope at zero, shape [R, K]."""
        return self.each("slope", np.zeros_like(self.alpha), self.kind, self.alpha)

    def each(self, what: str, y: Floats, kind: npt.NDArray[np.int64], alpha: Floats) -> Floats:
        """``value`` or ``slope`` elementwise for arrays of kinds and parameters."""
        result = np.zeros_like(y)
        for index, utility in enumerate((*BUILT_IN, *self.own)):
            chosen = kind == index
            if chosen.any():
                result[chosen] = getattr(utility, what)(y[chosen], alpha[chosen])
        return result


def _kind(entry: str | Utility, own: list[Utility]) -> int:
    if isinstance(entry, Utility):
        if entry in BUILT_IN:
            return BUILT_IN.index(entry)
        if entry not in own:
            own.append(entry)
        return len(BUILT_IN) + own.index(entry)
    names = [utility.name for utility in BUILT_IN]
    if entry not in names:
        raise UnknownName("utility", entry, names)
    return names.index(entry)
