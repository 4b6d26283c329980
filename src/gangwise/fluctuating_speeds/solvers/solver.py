"""P3 of ESDP (12): maximise v·x + √(s·x) subject to A x ≤ c, x binary, by a method of choice.

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
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Bools, Floats
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.fluctuating_speeds.solvers.exact import BranchAndBound, bad_statistics, solve_milp
from gangwise.fluctuating_speeds.solvers.programme import solve_rounded
from gangwise.fluctuating_speeds.solvers.search import MOST_S, MOST_V


@dataclass(frozen=True, eq=False, slots=True)
class WarmStart:
    """Warm start: where the next slot's search starts.

    It changes how long a solve takes and which of several equally good choices is found, never what
    is feasible or proved. It saves little: a root takes some dozens of evaluations from anywhere.

    Attributes
    ----------
    point : ndarray of shape [K + 1]
        Prices u of the device types, then ln q.
    x : ndarray of bool, shape [E]
        A choice; what is feasible of it is tried.
    """

    point: Floats
    x: Bools


@dataclass(frozen=True, eq=False, slots=True)
class Solution:
    """Certified solution of P3, ESDP (12): max v·x + √(s·x), A x ≤ c, x binary.

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
    warm : WarmStart or None
        For the next slot.
    unplayed : int
        How many channels with s = +inf are in x.
    """

    x: Bools
    value: float
    bound: float
    proved: bool
    nodes: int
    warm: WarmStart | None = None
    unplayed: int = 0

    @property
    def gap(self) -> float:
        """What the choice may fall short of the optimum, at most."""
        return max(self.bound - self.value, 0.0)


def requests_and_capacity(
    A: npt.ArrayLike,
    c: npt.ArrayLike,
    channels: Sequence[str] | None,
    devices: Sequence[str] | None,
) -> tuple[Floats, Floats]:
    """Copies of requests [E, K] and capacities [K].

    Raises
    ------
    ScenarioError
        When they do not fit together, or for a number that is negative or not finite.
    """
    requests = np.array(A, dtype=np.float64, order="C")
    capacity = np.array(c, dtype=np.float64)
    if requests.ndim != 2 or capacity.shape != requests.shape[1:] or not capacity.size:
        raise ScenarioError(
            f"requests must be an array [channels, device types] and capacities one number for "
            f"each device type; got shapes {requests.shape} and {capacity.shape}"
        )

    def name(kind: str, names: Sequence[str] | None, i: int) -> str:
        return f"{kind} {i}" if names is None else f"{kind} {names[i]!r}"

    for e, k in np.argwhere(~(np.isfinite(requests) & (requests >= 0)))[:1].tolist():
        raise ScenarioError(
            f"{name('channel', channels, e)}: the request of {name('device type', devices, k)} is "
            f"{requests[e, k]}; it must be a finite number, zero or larger"
        )
    for (k,) in np.argwhere(~(np.isfinite(capacity) & (capacity >= 0)))[:1].tolist():
        raise ScenarioError(
            f"{name('device type', devices, k)}: the capacity is {capacity[k]}; it must be a "
            f"finite number, zero or larger"
        )
    return requests, capacity


def mask_of(available: npt.ArrayLike, everyone: Bools) -> Bools:
    """A mask [E] from a mask or from channel numbers.

    Raises
    ------
    ScenarioError
        For a mask of wrong length, or a channel that there is not.
    """
    given = np.asarray(available)
    if given.dtype == np.bool_:
        if given.shape != everyone.shape:
            raise ScenarioError(
                f"available has shape {given.shape}; there are {everyone.size} channels"
            )
        return given
    mask = np.zeros_like(everyone)
    if given.size:
        if given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= mask.size:
            raise ScenarioError(
                f"available must be a mask, or numbers of channels from 0 to {mask.size - 1}"
            )
        mask[given] = True
    return mask


def checked_statistics(v: Floats, s: Floats, mask: Bools) -> None:
    """Look at v and s of the channels in ``mask``.

    Raises
    ------
    ScenarioError
        When a v is not finite, or an s negative or NaN, or either is too large; names the channel.
    """
    good = (np.abs(v) <= MOST_V) & (s >= 0) & ((s <= MOST_S) | (s == np.inf))
    for e in np.flatnonzero(mask & ~good)[:1].tolist():
        raise bad_statistics(e, v, s)


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
    """Solver of P3, ESDP (12): requests and capacities, and work space to solve slot after slot.

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
        self,
        A: npt.ArrayLike,
        c: npt.ArrayLike,
        channels: Sequence[str] | None = None,
        devices: Sequence[str] | None = None,
    ):
        self.requests, self.capacity = requests_and_capacity(A, c, channels, devices)
        # Sums of requests such as 0.1 + 0.2 may be a rounding error above the capacity.
        self._room = self.capacity * (1 + 1e-12)
        self._tree = BranchAndBound(self.requests)
        self._everyone = np.ones(self.requests.shape[0], dtype=np.bool_)

    def __reduce__(self) -> tuple[type[P3Solver], tuple[Floats, Floats]]:
        return P3Solver, (self.requests, self.capacity)

    def solve(
        self,
        v: npt.ArrayLike,
        s: npt.ArrayLike,
        available: npt.ArrayLike | None = None,
        *,
        method: Method = "auto",
        gap: float = 1e-9,
        nodes: int | None = None,
        time_limit: float | None = None,
        warm: WarmStart | None = None,
        delta: float | None = None,
    ) -> Solution:
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
        warm : WarmStart, optional
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
                found = None if point is None else WarmStart(point, x)
                return Solution(x, value, bound, proved, looked, found)
        # Lexicographic: first as many unplayed channels as fit, then P3 on what they leave.
        unplayed, certain, looked = self._unplayed(v, s, mask, x, method, nodes, time_limit)
        room = np.maximum(self._room - self.requests[x].sum(axis=0), 0.0)
        first = float(v[x].sum())
        part = x.copy() if unplayed else x
        value, bound, proved, more, point = self._played(
            v, s, mask & (s != np.inf), room, part, method, gap, nodes, time_limit, warm, delta
        )
        x |= part
        return Solution(
            x,
            first + value,
            first + bound,
            certain and proved,
            looked + more,
            None if point is None else WarmStart(point, x),
            unplayed,
        )

    def most_channels(self, available: npt.ArrayLike | None = None) -> int:
        """Packing number m of ESDP (11), ESDP (18), ESDP (19): the most channels that fit at once.

        Where that takes more than 20,000 nodes (many channels alike), an upper bound on it.

        Examples
        --------
        >>> P3Solver([[1, 2], [2, 1], [1, 1]], [3, 3]).most_channels()
        2
        """
        mask = self._everyone if available is None else mask_of(available, self._everyone)
        tree = self._tree
        tree.start(self._equal(mask), np.zeros(mask.size), mask, self._room, 0.0, WHOLE)
        tree.search(0.0, WHOLE, min(COUNT_NODES, self._limit(None)))
        return int((tree.value if tree.finished else tree.bound) + 0.25 + 1e-9)

    def _equal(self, mask: Bools) -> Floats:
        """A worth of 1 for each channel, less a little for the devices it takes, shape [E].

        All in all at most 1/4 less, so that the largest worth has the largest number of channels.
        """
        scale = np.where(self.capacity > 0, self.capacity, 1.0)
        share = np.where(mask, (self.requests / scale).sum(axis=1), 0.0)
        return np.asarray(1.0 - 0.25 * share / max(float(share.sum()), 1e-300))

    def _gap(self, method: str, gap: float, mask: Bools) -> float:
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
        self, x: Bools, method: str, gap: float, nodes: int | None, time_limit: float | None
    ) -> _Part:
        """Finish what was started."""
        tree = self._tree
        if not tree.finished and method != "lagrangian":
            limit = UNLIMITED if method == "exact" and nodes is None else self._limit(nodes)
            tree.search(gap, 0.0, limit, time_limit)
        tree.chosen(x)
        value, bound = tree.value, tree.bound
        proved = bound <= value + gap * value
        point = tree.point()
        return value, bound, proved, tree.nodes, point if point[-1] == point[-1] else None

    def _unplayed(
        self,
        v: Floats,
        s: Floats,
        mask: Bools,
        x: Bools,
        method: str,
        nodes: int | None,
        time_limit: float | None,
    ) -> tuple[int, bool, int]:
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
            self._tree.search(0.0, WHOLE, limit, time_limit)
        self._tree.chosen(x)
        return int(x.sum()), self._tree.finished, self._tree.nodes

    def _played(
        self,
        v: Floats,
        s: Floats,
        mask: Bools,
        room: Floats,
        x: Bools,
        method: str,
        gap: float,
        nodes: int | None,
        time_limit: float | None,
        warm: WarmStart | None,
        delta: float | None,
    ) -> _Part:
        """P3 for channels with finite s."""
        x[:] = False
        if method in ("dp", "milp"):
            checked_statistics(v, s, mask)
            some = np.flatnonzero(mask & (self.requests <= room).all(axis=1))
            part = v[some], s[some], self.requests[some], room
            if method == "milp":
                taken, value, bound, looked = solve_milp(*part, gap, time_limit)
                slack = 1e-8 * abs(value) + 1e-9  # HiGHS has tolerances of its own
            else:
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
    v: npt.ArrayLike,
    s: npt.ArrayLike,
    A: npt.ArrayLike,
    c: npt.ArrayLike,
    *,
    method: Method = "auto",
    gap: float = 1e-9,
    nodes: int | None = None,
    time_limit: float | None = None,
    warm: WarmStart | None = None,
    delta: float | None = None,
) -> Solution:
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
