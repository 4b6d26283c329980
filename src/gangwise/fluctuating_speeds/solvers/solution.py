"""What a solver of P3 answers, and what it hands on to the next slot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Solution", "Warm"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class Warm:
    """Where the next slot's search starts. It changes how long a solve takes and which of several
    equally good choices is found, never what is feasible or proved. It saves little: a root takes
    some dozens of evaluations from anywhere.

    Attributes
    ----------
    point : ndarray of shape [K + 1]
        Prices u of the device types, then ln q.
    x : ndarray of bool, shape [E]
        A choice; what is feasible of it is tried.
    """

    point: Floats
    x: Flags


@dataclass(frozen=True, eq=False, slots=True)
class Solution:
    """An answer to P3: max v·x + √(s·x), A x ≤ c, x binary.

    Attributes
    ----------
    x : ndarray of bool, shape [E]
        The chosen channels; they fit.
    value : float
        v·x + √(s·x), with the sum under the root over channels with finite s.
    bound : float
        No x has a larger value; with unplayed channels (s = +inf), no x that contains the unplayed
        channels of this one.
    proved : bool
        The gap asked for was reached and, with unplayed channels, no x contains more of them.
    nodes : int
        How many nodes were searched, the root not counted.
    warm : Warm or None
        For the next slot.
    unplayed : int
        How many channels with s = +inf are in x.
    """

    x: Flags
    value: float
    bound: float
    proved: bool
    nodes: int
    warm: Warm | None = None
    unplayed: int = 0

    @property
    def gap(self) -> float:
        """What the choice may fall short of the optimum, at most."""
        return max(self.bound - self.value, 0.0)
