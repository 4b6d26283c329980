"""Exact answers to P3, ESDP (12): branch and bound on Lagrangian bounds, and a MILP as witness.

The root is a bound and a greedy choice, enough for large numbers of channels:

    max_{A x ≤ c} v·x + √(s·x)  ≤  q/2 + u·c + Σ_e max(0, v_e + s_e/(2q) - u·a_e),

for every q > 0 and u ≥ 0, because √y ≤ q/2 + y/(2q). The right side is minimised over these K + 1
numbers; channels are then taken by density (v_e + s_e/(2q)) / (u·a_e), and single channels added,
dropped and swapped. An optimal relaxed choice is fractional in at most K + 1 channels, so the
certified gap shrinks as the number of channels grows.

Below it, depth first: at the multipliers of a node, deviating from the relaxed choice in channel e
costs |ρ_e|, the reduced cost ρ_e = v_e + s_e/(2q) - u·a_e. Channels for which that exceeds the gap
are settled; of the rest the one with the least |ρ_e|, the most undecided, is branched on, its
relaxed value first. A channel that is worth no more and takes no less than another is never chosen
without it: early in a run, when many channels look alike, the tree would be endless otherwise.

The independent witness is a mixed-integer programme in HiGHS,

    maximise v·x + t   s.t.  A x ≤ c,  t ≤ q/2 + s·x/(2q) at the points q cut at,  x binary,

where each inequality is the tangent of √y at y = q². A tangent is added at the y of every answer
whose t claims more than √y; each round is an upper bound, and the last one is the optimum.
"""

from __future__ import annotations

import math
import time

import numpy as np

from gangwise.core.arrays import Bools, Floats
from gangwise.core.errors import ScenarioError
from gangwise.core.highs import Row, Rows, maximise
from gangwise.fluctuating_speeds.solvers.search import MOST_S, MOST_V, core_search, root, search

EVALUATIONS = 300
"""How often the bound is evaluated at a root, at most."""

NODE_EVALUATIONS = 3
"""How often the bound is evaluated at a node, at most."""

CORE = 64
"""With more channels than this, a search among the most undecided ones improves the choice."""

CORE_NODES = 400
"""How many nodes that search may look at."""


def bad_statistics(e: int, v: Floats, s: Floats) -> ScenarioError:
    """What is wrong with the numbers of a channel."""
    return ScenarioError(
        f"channel {e}: v must be at most {MOST_V:g} either way, and s zero or larger and at most "
        f"{MOST_S:g}, or +inf; got v = {v[e]}, s = {s[e]}"
    )


class Lagrangian:
    """Lagrangian root of P3: a bound and a greedy choice, with work space for E channels.

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
        self,
        v: Floats,
        s: Floats,
        available: Bools,
        capacity: Floats,
        gap: float,
        absolute: float = 0.0,
        point: Floats | None = None,
        x: Bools | None = None,
    ) -> None:
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
            For an available channel whose v is not finite or whose s is negative or NaN, or where
            either is so large that sums of squares are not finite.
        """
        self.small[0] = self._cold if point is None else point
        bad = root(
            v,
            s,
            available,
            self.requests,
            capacity,
            self._nobody if x is None else x,
            gap,
            absolute,
            EVALUATIONS,
            self.number,
            self.whole,
            self.a,
            self.small,
            self.matrix,
            self.level,
            self.stage,
            self.best,
            self.count,
        )
        if bad >= 0:
            raise bad_statistics(bad, v, s)
        if self.count[1] >= 0 and self.count[0] > CORE:
            core_search(
                gap,
                absolute,
                CORE,
                CORE_NODES,
                NODE_EVALUATIONS,
                capacity,
                self.number,
                self.whole,
                self.a,
                self.small,
                self.matrix,
                self.level,
                self.stage,
                self.best,
                self.count,
            )

    def chosen(self, x: Bools) -> None:
        """Switch the chosen channels on in ``x`` [E]."""
        n = self.count[0]
        x[self.whole[0, :n][self.whole[3, :n] != 0]] = True


CHUNK = 4096
"""Nodes between two looks at the clock."""


class BranchAndBound(Lagrangian):
    """Branch and bound for P3: the Lagrangian root, then the tree below it."""

    def search(
        self, gap: float, absolute: float, nodes: int, time_limit: float | None = None
    ) -> None:
        """Search until the bound is met, or ``nodes`` nodes or the seconds are used up.

        ``gap`` and ``absolute`` as given to ``start``. May be called again to go on further.
        """
        deadline = None if time_limit is None else time.monotonic() + time_limit
        while self.count[1] >= 0 and nodes > 0:
            some = nodes if deadline is None else min(CHUNK, nodes)
            search(
                gap,
                absolute,
                some,
                NODE_EVALUATIONS,
                self.number,
                self.whole,
                self.a,
                self.small,
                self.matrix,
                self.level,
                self.stage,
                self.best,
                self.count,
            )
            nodes -= some
            if deadline is not None and time.monotonic() >= deadline:
                break

    @property
    def nodes(self) -> int:
        """Nodes searched since ``start``."""
        return int(self.count[2])

    @property
    def finished(self) -> bool:
        """Whether the tree is searched."""
        return bool(self.count[1] < 0)


def solve_milp(
    v: Floats, s: Floats, a: Floats, c: Floats, gap: float = 1e-9, time_limit: float | None = None
) -> tuple[Bools, float, float, int]:
    """MILP with tangent cuts for P3, ESDP (12).

    Parameters
    ----------
    v, s : ndarray of shape [E]
        Finite; ``s`` zero or larger.
    a : ndarray of shape [E, K]
    c : ndarray of shape [K]
    gap : float
        Relative to the value.
    time_limit : float, optional
        Seconds for all rounds together.

    Returns
    -------
    x : ndarray of bool, shape [E]
    value, bound : float
    rounds : int

    Examples
    --------
    >>> x, value, bound, rounds = solve_milp(
    ...     np.array([1.0, 2.0]), np.array([5.0, 10.0]), np.array([[1.0], [1.0]]), np.array([1.0])
    ... )
    >>> x, round(value, 6)
    (array([False,  True]), 5.162278)
    """
    E = v.size
    best, value, bound, rounds = np.zeros(E, dtype=np.bool_), 0.0, np.inf, 0
    if E == 0:
        return best, value, 0.0, rounds
    unit = math.sqrt(float(s.sum()))  # t is measured in it, y in its square
    objective = np.append(v, unit)
    upper = np.append(np.ones(E), 1.0 if unit > 0 else 0.0)
    whole = np.arange(E + 1) < E
    takes = [(np.flatnonzero(a[:, k]), k) for k in range(a.shape[1])]
    rows: list[Row] = [(some, a[some, k], float(c[k])) for some, k in takes if some.size]
    points = [0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0] if unit > 0 else []
    rows += [_tangent(q, s / unit**2) for q in points]
    deadline = None if time_limit is None else time.monotonic() + time_limit
    while bound - value > gap * abs(value):
        left = np.inf if deadline is None else deadline - time.monotonic()
        if left <= 0 and rounds:
            break
        rounds += 1
        answer = maximise(
            objective,
            upper,
            whole,
            Rows.of(rows),
            relative_gap=gap / 2,
            absolute_gap=1e-12,
            seconds=left,
        )
        bound = min(bound, answer.bound)  # tangents only cut off
        if answer.x is None:
            break
        x = answer.x[:E] > 0.5
        y = float(s[x].sum())
        worth = float(v[x].sum()) + math.sqrt(y)
        if worth > value and (a[x].sum(axis=0) <= c * (1 + 1e-9)).all():
            best, value = x, worth
        if y == 0.0 or math.sqrt(y) / unit in points:
            break
        points.append(math.sqrt(y) / unit)
        rows.append(_tangent(points[-1], s / unit**2))
    return best, value, max(bound, value), rounds


def _tangent(q: float, s: Floats) -> Row:
    """T ≤ q/2 + s·x/(2q), t being the column behind those of x."""
    some = np.flatnonzero(s)
    return np.append(some, s.size), np.append(-s[some] / (2 * q), 1.0), q / 2
