"""Exact answer to P3: depth-first branch and bound on Lagrangian bounds.

At the multipliers of a node, deviating from the relaxed choice in channel e costs |ρ_e|, the
reduced cost ρ_e = v_e + s_e/(2q) - u·a_e. Channels for which that exceeds the gap are settled; of
the rest the one with the least |ρ_e|, the most undecided, is branched on, its relaxed value first.
A channel that is worth no more and takes no less than another is never chosen without it: early in
a run, when many channels look alike, the tree would be endless otherwise.

The root of the search: Lagrangian bound and greedy choice, for large numbers of channels.

    max_{A x ≤ c} v·x + √(s·x)  ≤  q/2 + u·c + Σ_e max(0, v_e + s_e/(2q) - u·a_e),

for every q > 0 and u ≥ 0, because √y ≤ q/2 + y/(2q). The right side is minimised over these K + 1
numbers; channels are then taken by density (v_e + s_e/(2q)) / (u·a_e), and single channels added,
dropped and swapped. An optimal relaxed choice is fractional in at most K + 1 channels, so the
certified gap shrinks as the number of channels grows.

P3 as a mixed-integer programme with tangent cuts, solved by HiGHS: the independent witness.

    maximise v·x + t   s.t.  A x ≤ c,  t ≤ q/2 + s·x/(2q) at the points q cut at,  x binary.

Each inequality is the tangent of √y at y = q². A tangent is added at the y of every answer whose t
claims more than √y; each round is an upper bound, and the last one is the optimum.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from gangwise.core.arrays import Bools, Floats
from gangwise.core.errors import ScenarioError
from gangwise.fluctuating_speeds.solvers.search import polish, root, search

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
            For an available channel whose v is not finite or whose s is negative or NaN.
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
            raise ScenarioError(
                f"channel {bad}: v must be finite and s zero or larger; got v = {v[bad]}, "
                f"s = {s[bad]}"
            )
        if self.count[1] >= 0 and self.count[0] > CORE:
            polish(
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
    """The root, then the tree below it."""

    def go_on(
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
    """Solve P3.

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
    h = _programme(v, s, a, c, unit)
    deadline = None if time_limit is None else time.monotonic() + time_limit
    points: set[float] = set()
    for q in (0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0) if unit > 0 else ():
        _cut(h, q, s / unit**2, points)
    while bound - value > gap * abs(value):
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 and rounds:
                break
            h.setOptionValue("time_limit", max(left, 0.0))
        h.setOptionValue("mip_rel_gap", gap / 2)
        h.run()
        rounds += 1
        x, upper = _answer(h, E)
        bound = min(bound, upper)
        if x is None:
            break
        y = float(s[x].sum())
        worth = float(v[x].sum()) + math.sqrt(y)
        if worth > value and (a[x].sum(axis=0) <= c * (1 + 1e-9)).all():
            best, value = x, worth
        if y == 0.0 or not _cut(h, math.sqrt(y) / unit, s / unit**2, points):
            break
    return best, value, max(bound, value), rounds


def _programme(v: Floats, s: Floats, a: Floats, c: Floats, unit: float) -> Any:
    import highspy

    make: Any = highspy.Highs  # has no type information
    h = make()
    for option, setting in (
        ("output_flag", False),
        ("threads", 1),
        ("random_seed", 0),
        ("mip_abs_gap", 1e-12),
        ("mip_feasibility_tolerance", 1e-9),
        ("primal_feasibility_tolerance", 1e-9),
    ):
        h.setOptionValue(option, setting)
    E, K = a.shape
    empty = np.empty(0, dtype=np.int32), np.empty(0)
    for e in range(E):
        h.addCol(-float(v[e]), 0.0, 1.0, 0, *empty)
        h.changeColIntegrality(e, highspy.HighsVarType.kInteger)
    h.addCol(-unit, 0.0, 1.0 if unit > 0 else 0.0, 0, *empty)
    for k in range(K):
        takes = np.flatnonzero(a[:, k]).astype(np.int32)
        if takes.size:
            h.addRow(-highspy.kHighsInf, float(c[k]), takes.size, takes, a[takes, k])
    return h


def _cut(h: Any, q: float, s: Floats, points: set[float]) -> bool:
    """Add t ≤ q/2 + s·x/(2q); False when it is there already."""
    import highspy

    if q in points:
        return False
    points.add(q)
    some = np.flatnonzero(s).astype(np.int32)
    index = np.append(some, np.int32(s.size)).astype(np.int32)
    h.addRow(-highspy.kHighsInf, q / 2, index.size, index, np.append(-s[some] / (2 * q), 1.0))
    return True


def _answer(h: Any, E: int) -> tuple[Bools | None, float]:
    import highspy

    status, info = h.getModelStatus(), h.getInfo()
    statuses = highspy.HighsModelStatus
    if status not in (statuses.kOptimal, statuses.kTimeLimit):
        raise RuntimeError(f"HiGHS answered {h.modelStatusToString(status)}")
    bound = -float(info.mip_dual_bound)
    if not np.isfinite(bound):
        bound = np.inf
    if int(info.primal_solution_status) != 2:  # kSolutionStatusFeasible
        return None, bound
    return np.array(h.getSolution().col_value)[:E] > 0.5, bound
