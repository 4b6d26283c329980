r"""P3, the problem of a slot: maximise v·x + √(s·x) subject to A x ≤ c, x binary.

``v`` are the estimated worths of the channels, ``s`` their variances, each row of ``A`` the devices
that a channel takes, ``c`` the cluster-wide capacity. Methods:

=============  ==================================================================================
auto           Up to 500 available channels: ``exact`` with at most 200,000 nodes.
               Above: the Lagrangian root, then at most max(2,000, 10⁷ / channels) nodes, and a gap
               of 10⁻⁶ is enough (or the larger one asked for).
exact          Branch and bound until the gap is reached.
lagrangian     Its root only: a good choice with a certified gap.
dp             The paper's scaling and dynamic programme; whole requests and capacities.
milp           HiGHS with tangent cuts.
=============  ==================================================================================

An unplayed channel has s = +inf, and one such channel outweighs everything else. So as many of them
as fit are taken first (of several ways one that takes few devices), then P3 is solved for the
played ones on the capacity that is left. Whether more unplayed ones would fit is searched for
in the nodes of ``auto``, 20,000 at most; should that not settle it, the solution is not ``proved``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.fluctuating_speeds.solvers.branch_and_bound import BranchAndBound
from gangwise.fluctuating_speeds.solvers.checks import (
    checked_statistics,
    mask_of,
    requests_and_capacity,
)
from gangwise.fluctuating_speeds.solvers.solution import Solution, Warm

__all__ = ["Method", "P3Solver", "solve"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Method = Literal["auto", "dp", "exact", "lagrangian", "milp"]
_Part = tuple[float, float, bool, int, Floats | None]

METHODS = ("auto", "dp", "exact", "lagrangian", "milp")
EXACT_UP_TO = 500
AUTO_GAP = 1e-6
LEAST_GAP = 1e-12
UNLIMITED = 1 << 62
COUNT_NODES = 20_000
WHOLE = 0.7
"""Counts are whole, and ties among them are broken by at most 1/4: a bound within this is proof."""


class P3Solver:
    """Requests and capacities, with the work space to solve slot after slot.

    A solve depends on its arguments alone; pass ``warm`` on for the speed of a warm start. The
    solver pickles, without anything that a later solve depends on.

    Parameters
    ----------
    A : array of shape [E, K]
        Devices of each type that a channel takes, zero or larger.
    c : array of shape [K]
        Capacity of the cluster, zero or larger.
    channels, devices : sequence of str, optional
        Names for messages.

    Raises
    ------
    ScenarioError
        For numbers that make no sense; names the channel and the device type.

    Examples
    --------
    >>> solver = P3Solver([[1, 2], [2, 1], [1, 1]], [3, 3])
    >>> solution = solver.solve([2, 3, 1], [4, 1, 9])
    >>> solution.x, round(solution.value, 4), solution.proved
    (array([ True,  True, False]), 7.2361, True)
    >>> solver.solve([2, 3, 1], [4, 1, 9], available=[0, 2]).x
    array([ True, False,  True])
    """

    def __init__(
        self, A: npt.ArrayLike, c: npt.ArrayLike,
        channels: Sequence[str] | None = None, devices: Sequence[str] | None = None,
    ):  # fmt: skip
        self.requests, self.capacity = requests_and_capacity(A, c, channels, devices)
        # Sums of requests such as 0.1 + 0.2 may be a rounding error above the capacity.
        self._room = self.capacity * (1 + 1e-12)
        self._tree = BranchAndBound(self.requests)
        self._everyone = np.ones(self.requests.shape[0], dtype=np.bool_)

    def __reduce__(self) -> tuple[type[P3Solver], tuple[Floats, Floats]]:
        return P3Solver, (self.requests, self.capacity)

    def solve(
        self, v: npt.ArrayLike, s: npt.ArrayLike, available: npt.ArrayLike | None = None, *,
        method: Method = "auto", gap: float = 1e-9, nodes: int | None = None,
        time_limit: float | None = None, warm: Warm | None = None, delta: float | None = None,
    ) -> Solution:  # fmt: skip
        """Solve P3 for the available channels.

        Parameters
        ----------
        v : array of shape [E]
            Worth of each channel, of either sign. Of channels that are not available, nothing is
            read.
        s : array of shape [E]
            Variance of each channel, zero or larger; +inf for one never played.
        available : array of bool of shape [E], or of channel numbers, optional
            By default all.
        method : str
            See the module.
        gap : float
            Relative gap that is small enough; 10⁻¹² at least, for the sake of rounding.
        nodes : int, optional
            Node limit of ``auto`` and ``exact``.
        time_limit : float, optional
            Seconds for the search; looked at every few thousand nodes. Not for ``dp``.
        warm : Warm, optional
            That of the solution of the slot before.
        delta : float, optional
            δ(t) of the scaling, for ``dp`` only. Without it, v must be whole and positive or zero,
            and is used as it is.

        Returns
        -------
        Solution

        Raises
        ------
        ScenarioError
            For arrays of wrong length or with numbers that make no sense.
        UnknownName
            For a method that there is not.
        """
        v = np.ascontiguousarray(v, dtype=np.float64)
        s = np.ascontiguousarray(s, dtype=np.float64)
        E = self._everyone.size
        if v.shape != (E,) or s.shape != (E,):
            raise ScenarioError(
                f"v and s must have one number for each of {E} channels; got shapes {v.shape} and "
                f"{s.shape}"
            )
        if method not in METHODS:
            raise UnknownName("method", method, list(METHODS))
        mask = self._everyone if available is None else mask_of(available, self._everyone)
        x = np.zeros(E, dtype=np.bool_)
        point, start = (None, None) if warm is None else (warm.point, warm.x)
        tree = self._tree
        if method in ("auto", "exact", "lagrangian"):
            gap_here = self._gap(method, gap, mask)
            tree.start(v, s, mask, self._room, gap_here, 0.0, point, start)
            if not tree.unplayed:
                value, bound, proved, looked, point = self._search(
                    x, method, gap_here, nodes, time_limit
                )
                found = None if point is None else Warm(point, x)
                return Solution(x, value, bound, proved, looked, found)
        unplayed, certain, looked = self._unplayed(v, s, mask, x, method, nodes, time_limit)
        room = np.maximum(self._room - self.requests[x].sum(axis=0), 0.0)
        first = float(v[x].sum())
        part = x.copy() if unplayed else x
        value, bound, proved, more, point = self._played(
            v, s, mask & (s != np.inf), room, part, method, gap, nodes, time_limit, warm, delta
        )
        x |= part
        return Solution(
            x, first + value, first + bound, certain and proved, looked + more,
            None if point is None else Warm(point, x), unplayed,
        )  # fmt: skip

    def most_channels(self, available: npt.ArrayLike | None = None) -> int:
        """The largest number of channels that fit at once: m of (11), (18), (19).

        Where that takes more than 20,000 nodes (many channels alike), an upper bound on it.

        Examples
        --------
        >>> P3Solver([[1, 2], [2, 1], [1, 1]], [3, 3]).most_channels()
        2
        """
        mask = self._everyone if available is None else mask_of(available, self._everyone)
        tree = self._tree
        tree.start(self._equal(mask), np.zeros(mask.size), mask, self._room, 0.0, WHOLE)
        tree.go_on(0.0, WHOLE, min(COUNT_NODES, self._limit(None)))
        return int((tree.value if tree.finished else tree.bound) + 0.25 + 1e-9)

    def _equal(self, mask: Flags) -> Floats:
        """A worth of 1 for each channel, less a little for the devices it takes, shape [E].

        All in all at most 1/4 less, so that the largest worth has the largest number of channels.
        """
        scale = np.where(self.capacity > 0, self.capacity, 1.0)
        share = np.where(mask, (self.requests / scale).sum(axis=1), 0.0)
        return np.asarray(1.0 - 0.25 * share / max(float(share.sum()), 1e-300))

    def _gap(self, method: str, gap: float, mask: Flags) -> float:
        """The relative gap to search for."""
        many = method == "auto" and mask.size > EXACT_UP_TO and int(mask.sum()) > EXACT_UP_TO
        return max(gap, AUTO_GAP if many else LEAST_GAP)

    def _limit(self, nodes: int | None) -> int:
        """Nodes to search in the tree that was started."""
        if nodes is not None:
            return nodes
        n = int(self._tree.count[0])
        return 200_000 if n <= EXACT_UP_TO else max(2_000, 10_000_000 // n)

    def _search(
        self, x: Flags, method: str, gap: float, nodes: int | None, time_limit: float | None
    ) -> _Part:  # fmt: skip
        """Finish what was started."""
        tree = self._tree
        if not tree.finished and method != "lagrangian":
            limit = UNLIMITED if method == "exact" and nodes is None else self._limit(nodes)
            tree.go_on(gap, 0.0, limit, time_limit)
        tree.chosen(x)
        value, bound = tree.value, tree.bound
        proved = bound <= value + gap * value
        point = tree.point()
        return value, bound, proved, tree.nodes, point if point[-1] == point[-1] else None

    def _unplayed(
        self, v: Floats, s: Floats, mask: Flags, x: Flags, method: str, nodes: int | None,
        time_limit: float | None,
    ) -> tuple[int, bool, int]:  # fmt: skip
        """Take as many unplayed channels as fit; how many, whether no more fit, and nodes."""
        new = mask & (s == np.inf)
        checked_statistics(v, s, new)
        if not new.any():
            return 0, True, 0
        worth = self._equal(new)
        nothing = np.zeros(v.size)
        if method == "milp":
            _, _, proved, looked, _ = self._played(
                worth, nothing, new, self._room, x, "milp", 1e-9, None, time_limit, None, None
            )
            return int(x.sum()), proved, looked
        self._tree.start(worth, nothing, new, self._room, 0.0, WHOLE)
        if method != "lagrangian":
            limit = min(COUNT_NODES, self._limit(None)) if nodes is None else nodes
            self._tree.go_on(0.0, WHOLE, limit, time_limit)
        self._tree.chosen(x)
        return int(x.sum()), self._tree.finished, self._tree.nodes

    def _played(
        self, v: Floats, s: Floats, mask: Flags, room: Floats, x: Flags, method: str, gap: float,
        nodes: int | None, time_limit: float | None, warm: Warm | None, delta: float | None,
    ) -> _Part:  # fmt: skip
        """P3 for channels with finite s."""
        x[:] = False
        if method in ("dp", "milp"):
            checked_statistics(v, s, mask)
            some = np.flatnonzero(mask & (self.requests <= room).all(axis=1))
            part = v[some], s[some], self.requests[some], room
            if method == "milp":
                from gangwise.fluctuating_speeds.solvers.milp import solve_milp

                taken, value, bound, looked = solve_milp(*part, gap, time_limit)
                slack = 1e-8 * abs(value) + 1e-9  # HiGHS has tolerances of its own
            else:
                from gangwise.fluctuating_speeds.solvers.dynamic_programme import solve_rounded

                most = 0 if delta is None else self.most_channels(some)
                taken, value, bound = solve_rounded(*part, most, delta)
                looked, slack = 0, 1e-12 * abs(value)
            x[some[taken]] = True
            return value, bound, bound - value <= gap * abs(value) + slack, looked, None
        gap_here = self._gap(method, gap, mask)
        point = None if warm is None else warm.point
        self._tree.start(v, s, mask, room, gap_here, 0.0, point, None if warm is None else warm.x)
        return self._search(x, method, gap_here, nodes, time_limit)


def solve(
    v: npt.ArrayLike, s: npt.ArrayLike, A: npt.ArrayLike, c: npt.ArrayLike, *,
    method: Method = "auto", gap: float = 1e-9, nodes: int | None = None,
    time_limit: float | None = None, warm: Warm | None = None, delta: float | None = None,
) -> Solution:  # fmt: skip
    """Solve P3 once; see :class:`P3Solver`, which to keep for many slots.

    Examples
    --------
    Two channels for one server, the second one never played:

    >>> solve([0.9, 0.0], [0.1, np.inf], [[1], [1]], [1]).x
    array([False,  True])
    """
    return P3Solver(A, c).solve(
        v, s, method=method, gap=gap, nodes=nodes, time_limit=time_limit, warm=warm, delta=delta
    )
