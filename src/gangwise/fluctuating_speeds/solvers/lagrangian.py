r"""The root of the search: Lagrangian bound and greedy choice, for large numbers of channels.

    max_{A x ≤ c} v·x + √(s·x)  ≤  q/2 + u·c + Σ_e max(0, v_e + s_e/(2q) - u·a_e),

for every q > 0 and u ≥ 0, because √y ≤ q/2 + y/(2q). The right side is minimised over these K + 1
numbers; channels are then taken by density (v_e + s_e/(2q)) / (u·a_e), and single channels added,
dropped and swapped. An optimal relaxed choice is fractional in at most K + 1 channels, so the
certified gap shrinks as the number of channels grows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.kernels.p3_root import root
from gangwise.kernels.p3_search import polish

__all__ = ["Lagrangian"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

EVALUATIONS = 300
"""How often the bound is evaluated at a root, at most."""

NODE_EVALUATIONS = 3
"""How often the bound is evaluated at a node, at most."""

CORE = 64
"""With more channels than this, a search among the most undecided ones improves the choice."""

CORE_NODES = 400
"""How many nodes that search may look at."""


class Lagrangian:
    """Work space for E channels and K device types, and the root of the search in it.

    Parameters
    ----------
    requests : ndarray of float64, shape [E, K]
        Devices that a channel takes, zero or larger.

    Attributes
    ----------
    value, bound : float
        Of the last solve.
    """

    def __init__(self, requests: Floats):
        E, K = requests.shape
        self.requests = requests
        self.number = np.zeros((4, E))
        self.whole = np.zeros((6, E), dtype=np.int64)
        self.a = np.zeros((E, K))
        self.small = np.zeros((8, max(K + 1, 2)))
        self.matrix = np.zeros((2, K + 1, K + 1))
        self.level = np.zeros((E + 2, 2 * K + 5))
        self.stage = np.zeros((E + 2, 3), dtype=np.int64)
        self.best = np.zeros(4)
        self.count = np.zeros(4, dtype=np.int64)
        self._cold = np.full(self.small.shape[1], np.nan)
        self._nobody = np.zeros(0, dtype=np.bool_)

    @property
    def value(self) -> float:
        """The best value found."""
        return float(self.best[0])

    @property
    def bound(self) -> float:
        """No choice is worth more."""
        return float(self.best[3])

    @property
    def unplayed(self) -> int:
        """How many available channels that fit alone have s = +inf; they are left out."""
        return int(self.count[3])

    def point(self) -> Floats:
        """Prices and ln q of the bound, shape [K + 1]; a copy."""
        return np.array(self.small[7])

    def start(
        self, v: Floats, s: Floats, available: Flags, capacity: Floats, gap: float,
        absolute: float = 0.0, point: Floats | None = None, x: Flags | None = None,
    ) -> None:  # fmt: skip
        """Solve the root.

        Parameters
        ----------
        v, s : ndarray of float64, shape [E]
        available : ndarray of bool, shape [E]
        capacity : ndarray of float64, shape [K]
        gap, absolute : float
            Stop when the bound is within ``max(gap * value, absolute)`` of the value.
        point, x : ndarray, optional
            Where to start from, and a choice to try.

        Raises
        ------
        ScenarioError
            For an available channel whose v is not finite or whose s is negative or NaN.
        """
        self.small[0] = self._cold if point is None else point
        bad = root(
            v, s, available, self.requests, capacity, self._nobody if x is None else x,
            gap, absolute, EVALUATIONS, self.number, self.whole, self.a, self.small, self.matrix,
            self.level, self.stage, self.best, self.count,
        )  # fmt: skip
        if bad >= 0:
            raise ScenarioError(
                f"channel {bad}: v must be finite and s zero or larger; got v = {v[bad]}, "
                f"s = {s[bad]}"
            )
        if self.count[1] >= 0 and self.count[0] > CORE:
            polish(
                gap, absolute, CORE, CORE_NODES, NODE_EVALUATIONS, capacity, self.number,
                self.whole, self.a, self.small, self.matrix, self.level, self.stage, self.best,
                self.count,
            )  # fmt: skip

    def chosen(self, x: Flags) -> None:
        """Switch the chosen channels on in ``x`` [E]."""
        n = self.count[0]
        x[self.whole[0, :n][self.whole[3, :n] != 0]] = True
