"""P3 of ESDP (12): maximise v·x + √(s·x) subject to A x ≤ c, x binary.

``v`` are the estimated worths of the channels, ``s`` their variances, each row of ``A`` the devices
that a channel takes, ``c`` the cluster-wide capacity. Branch and bound solves it, or on request the
dynamic programme of the paper, which needs whole numbers.

An unplayed channel has s = +inf, and one such channel outweighs everything else. So as many of them
as fit are taken first (of several ways one that takes few devices), then P3 is solved for the
played ones on the capacity that is left. At most 20,000 nodes are searched for a way to fit one
more unplayed channel; should they not settle it, the solution is not ``proved``.

The dynamic programme of ESDP §3.2 tabulates, then selects. On the scaled and rounded statistics Υ̂
and Σ̂² of ESDP (16)–(19), for every s ∈ S

    V(s) = max Σ̂²·x   s.t.  Υ̂·x ≥ s,  A x ≤ c,  x binary,        P4(s), ESDP (20),

is tabulated by ESDP (22)–(27), and s* = argmax_s s + √V(s), ESDP (21), is selected. Algorithm 2 as
printed schedules nothing. Here a skipped channel keeps the decisions behind it, and values s that
no x reaches are left out of ESDP (21). The answer maximises Υ̂·x + √(Σ̂²·x): take s = Υ̂·x. It needs
whole requests and capacities and E · S · Π_k (c_k + 1) states, which ends its use at some fifty
channels of three device types.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Bools, Bytes, Floats, Ints, check_amount
from gangwise.core.errors import ScenarioError
from gangwise.core.jit import kernel
from gangwise.papers.fluctuating_speeds.search import (
    LARGEST_S,
    LARGEST_V,
    P3Data,
    Tree,
    core_search,
    root,
    search,
)

EVALUATIONS, NODE_EVALUATIONS = 300, 3
"""How often the bound is evaluated at a root and at a node, at most."""

EXACT_UP_TO = 500
"""Available channels up to which a search goes on to the gap asked for."""

CORE, CORE_NODES = 64, 400
"""With more channels than the first number, a search of at most so many nodes among the most
undecided ones improves the choice."""


def check_statistics(v: Floats, s: Floats, mask: Bools) -> None:
    """Raise ScenarioError for the first channel in ``mask`` with a v or s that makes no sense."""
    good = (np.abs(v) <= LARGEST_V) & (s >= 0) & ((s <= LARGEST_S) | (s == np.inf))
    for e in np.flatnonzero(mask & ~good)[:1].tolist():
        raise ScenarioError(
            f"channel {e}: v must be at most {LARGEST_V:g} either way, and s zero or larger and at "
            f"most {LARGEST_S:g}, or +inf; got v = {v[e]}, s = {s[e]}"
        )


class BranchAndBound:
    """Branch and bound for P3: the Lagrangian root, then the tree below it.

    ``requests`` [E, K] are the devices that a channel takes, zero or larger.
    """

    def __init__(self, requests: Floats):
        E, K = requests.shape
        self.requests = requests
        self._tree = Tree(
            number=np.zeros((4, E)),
            whole=np.zeros((6, E), dtype=np.int64),
            a=np.zeros((E, K)),
            c=np.zeros(K),
            small=np.zeros((8, max(K + 1, 2))),
            matrix=np.zeros((2, K + 1, K + 1)),
            level=np.zeros((E + 2, 2 * K + 5)),
            stage=np.zeros((E + 2, 3), dtype=np.int64),
            best=np.zeros(4),
            counts=np.zeros(3, dtype=np.int64),
        )
        self._nobody = np.zeros(0, dtype=np.bool_)

    @property
    def value(self) -> float:
        return float(self._tree.best[0])

    @property
    def bound(self) -> float:
        return float(self._tree.best[3])

    @property
    def finished(self) -> bool:
        return bool(self._tree.counts[1] < 0)

    def point(self) -> Floats:
        """Prices and ln q of the bound, shape [K + 1]; a copy."""
        return np.array(self._tree.small[7])

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
        """Solve the root for the available channels [E] and a capacity [K].

        A bound within ``max(gap * value, absolute)`` of the value is close enough.
        ``point`` [K + 1] is where to start from, and ``x`` [E] a choice to try. ScenarioError is as
        of :func:`check_statistics`, for the channels that are available.
        """
        self._tree.small[0] = np.nan if point is None else point
        warm = self._nobody if x is None else x
        data = P3Data(v, s, available, self.requests, capacity, warm)
        if root(self._tree, data, gap, absolute, EVALUATIONS) >= 0:
            check_statistics(v, s, available)
        if not self.finished and self._tree.counts[0] > CORE:
            core_search(self._tree, gap, absolute, CORE, CORE_NODES, NODE_EVALUATIONS)

    def most_nodes(self) -> int:
        """Nodes to search by default in the tree that was started: a node costs O(n)."""
        n = int(self._tree.counts[0])
        return 200_000 if n <= EXACT_UP_TO else max(2_000, 10_000_000 // n)

    def search(self, gap: float, absolute: float, nodes: int | None, x: Bools) -> int:
        """Search on until the bound is close enough, or the nodes are used up.

        Switches the chosen channels on in ``x`` [E]; returns how many nodes were searched.
        """
        t, most = self._tree, self.most_nodes() if nodes is None else nodes
        if not self.finished and most > 0:
            search(t, gap, absolute, most, NODE_EVALUATIONS)
        n = t.counts[0]
        x[t.whole[0, :n][t.whole[3, :n] != 0]] = True
        return int(t.counts[2])


class Items(NamedTuple):
    """Whole numbers of the channels, and the place Σ_k stride_k c'_k of a capacity c'."""

    upsilon: Ints  # [E]
    sigma: Floats  # [E]
    a: Ints  # [E, K]
    c: Ints  # [K]
    stride: Ints  # [K]


@kernel
def tabulate(items: Items, value: Floats, taken: Bytes, digit: Ints, flag: Bytes) -> None:
    """Dynamic programme of ESDP (22)–(27): V(s, c', 0) for every s and c', and what was taken.

    V(s, c', i) = max{V(s, c', i+1), Σ̂²_(i+1) + V(s - Υ̂_(i+1), c' - A_(i+1), i+1)}, ESDP (27).

    ``value`` [C, S], C = Π_k (c_k + 1), receives V, -inf where s is out of reach; ``taken``
    [E, C, ⌈S/8⌉] the decisions. ``digit`` [K] and ``flag`` [8 ⌈S/8⌉] are work space. Channels are
    outermost and fall, as does c' within: a state reads smaller capacities only, which still hold
    the values of i + 1.
    """
    upsilon, sigma, a, c, stride = items
    E, K = a.shape
    C, S = value.shape
    W = taken.shape[2]
    for place in range(C):
        for s in range(S):
            value[place, s] = -np.inf
        # V of no channels: s = 0 is reached with nothing, and no s above it.
        value[place, 0] = 0.0
    # V(·, ·, i) overwrites V(·, ·, i + 1): what is read lies at smaller c', not yet overwritten.
    for i in range(E - 1, -1, -1):
        shift = 0
        for k in range(K):
            digit[k] = c[k]
            shift += stride[k] * a[i, k]
        # V(s) asks for a sum of s or more, so that a channel worth more than s alone serves from
        # row 0.
        u, gain = min(upsilon[i], S), sigma[i]
        for place in range(C - 1, -1, -1):
            fits = True
            for k in range(K):
                fits = fits and a[i, k] <= digit[k]
            row = value[place]
            if fits and shift > 0:
                before = value[place - shift]
                # s - Υ̂ ≤ 0 asks for nothing more: max(s - Υ̂, 0) of ESDP (27).
                raised = before[0] + gain
                for s in range(u):
                    flag[s] = 1 if raised > row[s] else 0
                    row[s] = raised if raised > row[s] else row[s]
                for s in range(u, S):
                    later = before[s - u] + gain
                    flag[s] = 1 if later > row[s] else 0
                    row[s] = later if later > row[s] else row[s]
            elif fits:  # takes no devices: reads its own row, hence from large s to small
                for s in range(S - 1, -1, -1):
                    later = row[max(s - u, 0)] + gain
                    flag[s] = 1 if later > row[s] else 0
                    row[s] = later if later > row[s] else row[s]
            else:
                for w in range(W):
                    taken[i, place, w] = 0
            if fits:
                for w in range(W):
                    packed = 0
                    for b in range(8):
                        packed |= flag[8 * w + b] << b
                    taken[i, place, w] = packed
            for k in range(K - 1, -1, -1):
                if digit[k] > 0:
                    digit[k] -= 1
                    break
                digit[k] = c[k]


@kernel
def backtrack(s: int, place: int, upsilon: Ints, shift: Ints, taken: Bytes, chosen: Ints) -> None:
    """Backtracking: follow the decisions from state (s, c', 0) and write x to ``chosen`` [E]."""
    for i in range(chosen.shape[0]):
        # Bit s mod 8 of byte s / 8.
        chosen[i] = (taken[i, place, s >> 3] >> (s & 7)) & 1
        if chosen[i] == 1:
            s = max(s - upsilon[i], 0)
            place -= shift[i]


@dataclass(frozen=True, eq=False)
class ValueTable:
    """Table of P4(s), ESDP (20): V(s) [S] at the whole capacity, -inf where no x reaches s."""

    value: Floats
    _upsilon: Ints
    _shift: Ints
    _taken: npt.NDArray[np.uint8]

    def choice(self, s: int) -> Bools:
        """Optimal x of P4(s), ESDP (20), shape [E], for an s that some x reaches."""
        chosen = np.zeros(self._upsilon.size, dtype=np.int64)
        backtrack(s, self._taken.shape[1] - 1, self._upsilon, self._shift, self._taken, chosen)
        return chosen.astype(np.bool_)

    def select(self) -> tuple[int, float]:
        """Selection s* of ESDP (21) and its value s* + √V(s*), among the s that some x reaches."""
        # Values s that no x reaches have V = -∞ and must not be selected.
        reached = self.value > -np.inf
        within = np.where(reached, self.value, 0.0)
        worth = np.where(reached, np.arange(self.value.size) + np.sqrt(within), -1.0)
        s = int(worth.argmax())
        return s, float(worth[s])


MEMORY = 4 << 30
"""Bytes of the largest table that is filled in."""


class DynamicProgramme:
    """Dynamic programme of ESDP Algorithm 2, repaired: V(s) of ESDP (20) by ESDP (22)–(27).

    ``requests`` [E, K] and ``capacity`` [K] are whole numbers, zero or larger (ScenarioError).

    >>> programme = DynamicProgramme([[1, 2], [2, 1], [1, 1]], [3, 3])
    >>> table = programme.solve(np.array([2, 3, 1]), np.array([4.0, 1.0, 9.0]))
    >>> table.value
    array([13., 13., 13., 13., 10.,  5.])
    >>> s, value = table.select()
    >>> s, round(value, 4), table.choice(s)
    (5, 7.2361, array([ True,  True, False]))
    """

    def __init__(self, requests: npt.ArrayLike, capacity: npt.ArrayLike):
        a, c = np.asarray(requests, dtype=np.float64), np.asarray(capacity, dtype=np.float64)
        for name, array in (("requests", a), ("capacities", c)):
            if not (np.isfinite(array) & (array >= 0) & (array == np.round(array))).all():
                raise ScenarioError(f"the dynamic programme needs whole {name}, zero or larger")
        if a.ndim != 2 or c.shape != a.shape[1:]:
            raise ScenarioError(f"requests have shape {a.shape}, capacities {c.shape}")
        self.a, self.c = a.astype(np.int64), c.astype(np.int64)
        # A capacity vector is a number in mixed radix, the last device type changing fastest.
        self.stride = np.append(np.cumprod((self.c + 1)[:0:-1])[::-1], 1).astype(np.int64)
        self.stride = self.stride[: self.c.size]
        self.states = math.prod((self.c + 1).tolist())

    def top(self, upsilon: Ints) -> int:
        """Bound on Υ̂·x, which s of ESDP (19) need not exceed."""
        # The bound of the root is proof enough: s above it is reached by no x, and no row is
        # needed.
        root = BranchAndBound(self.a.astype(np.float64))
        everyone, no_width = np.ones(upsilon.size, dtype=np.bool_), np.zeros(upsilon.size)
        capacity = self.c.astype(np.float64)
        # Without widths P3 is the knapsack max Υ̂·x; half a
        # unit is proof enough for a whole number.
        root.start(upsilon.astype(np.float64), no_width, everyone, capacity, 0.0, 0.5)
        return math.floor(root.bound * (1 + 1e-12) + 1e-9)

    def solve(self, upsilon: Ints, sigma: Floats, top: int | None = None) -> ValueTable:
        """V(s) for s = 0, …, ``top``, by default a bound on Υ̂·x; Υ̂ and Σ̂² have shape [E].

        ScenarioError when the table would take more than ``MEMORY`` bytes.
        """
        E, S = upsilon.size, (self.top(upsilon) if top is None else top) + 1
        W = -(-S // 8)
        # Eight bytes for each V(s, c'), and one bit for each channel: whether it was taken.
        size = self.states * (8 * S + E * W)
        if size > MEMORY:
            raise ScenarioError(
                f"the dynamic programme needs {size / 2**30:.1f} GiB for {E} channels, {S} values "
                f"of s and {self.states} capacities; use branch and bound"
            )
        value = np.empty((self.states, S))
        choices = np.empty((E, self.states, W), dtype=np.uint8)
        items = Items(upsilon, sigma, self.a, self.c, self.stride)
        digit, flag = np.zeros(self.c.size, dtype=np.int64), np.zeros(8 * W, dtype=np.uint8)
        # Channels outermost: one layer of V is kept, and a bit for each decision.
        tabulate(items, value, choices, digit, flag)
        return ValueTable(value[-1].copy(), upsilon, self.a @ self.stride, choices)


@dataclass(frozen=True, eq=False, slots=True)
class P3Solution:
    """Certified solution of P3, ESDP (12): max v·x + √(s·x), A x ≤ c, x binary."""

    x: Bools  # [E] the chosen channels; they fit
    value: float  # v·x + √(s·x), with the sum under the root over channels with finite s
    # No x has a larger value; with unplayed channels (s = +inf), no x that contains the unplayed
    # channels of this one.
    bound: float
    proved: bool  # the gap asked for was reached, and no x contains more unplayed channels
    nodes: int  # how many were searched, the root not counted
    point: Floats | None = None  # prices u and ln q [K + 1] of the bound
    unplayed: int = 0  # how many channels with s = +inf are in x

    @property
    def gap(self) -> float:
        return max(self.bound - self.value, 0.0)


WIDE_GAP, LEAST_GAP = 1e-6, 1e-12
COUNT_NODES = 20_000
COUNT = 0.0, 0.7
"""Gaps, relative and absolute, for counts: they are whole, and ties among them are broken by at
most 1/4, so that a bound within 0.7 is proof."""


class P3Solver:
    """Solver of P3, ESDP (12): requests and capacities, and work space to solve slot after slot.

    ``A`` [E, K] are the devices of each type that a channel takes and ``c`` [K] the capacity of the
    cluster, both zero or larger (ScenarioError). A solve depends on its arguments alone, and the
    solver pickles without anything else.

    >>> solver = P3Solver([[1, 2], [2, 1], [1, 1]], [3, 3])
    >>> solution = solver.solve([2, 3, 1], [4, 1, 9])
    >>> solution.x, round(solution.value, 4), solution.proved
    (array([ True,  True, False]), 7.2361, True)
    >>> solver.solve([2, 3, 1], [4, 1, 9], available=[True, False, True]).x
    array([ True, False,  True])

    The second of two channels was never played, so it comes first:

    >>> P3Solver([[1], [1]], [1]).solve([0.9, 0.0], [0.1, np.inf]).x
    array([False,  True])
    """

    def __init__(self, A: npt.ArrayLike, c: npt.ArrayLike):
        requests, capacity = np.array(A, dtype=np.float64, order="C"), np.array(c, dtype=np.float64)
        if requests.ndim != 2 or capacity.shape != requests.shape[1:] or not capacity.size:
            raise ScenarioError(
                f"requests must be an array [channels, device types] and capacities one number for "
                f"each device type; got shapes {requests.shape} and {capacity.shape}"
            )
        check_amount(requests, lambda at: f"request {list(at)}")
        check_amount(capacity, lambda k: f"capacity [{k}]")
        self.requests, self.capacity = requests, capacity
        # Sums of requests such as 0.1 + 0.2 may be a rounding error above the capacity.
        self._room = self.capacity * (1 + 1e-12)
        self._tree = BranchAndBound(self.requests)

    def __reduce__(self) -> tuple[type[P3Solver], tuple[Floats, Floats]]:
        return P3Solver, (self.requests, self.capacity)

    def solve(
        self,
        v: npt.ArrayLike,
        s: npt.ArrayLike,
        available: npt.ArrayLike | None = None,
        *,
        gap: float = 1e-9,
        nodes: int | None = None,
        warm: P3Solution | None = None,
        programme: bool = False,
    ) -> P3Solution:
        """Solve P3 for the ``available`` channels [E], by default all.

        ``v`` [E] is the worth of each channel, of either sign, and ``s`` [E] its variance, zero or
        larger; +inf for one never played. Of channels that are not available, nothing is read.
        ``gap`` is the relative gap that is small enough; 10⁻¹² at least, for the sake of rounding,
        and 10⁻⁶ at least with more than 500 available channels. The search below the root has at
        most ``nodes`` nodes; with 0 the root alone gives a good choice and a certified gap. By
        default there are 200,000 for up to 500 available channels, and above that
        max(2,000, 10⁷ / channels). ``warm`` is the solution of the slot before, from whose prices
        and choice the search starts. It changes how long that takes and which of several equally
        good choices is found, never what is feasible or proved; it saves little. ``programme``
        solves for the played channels by the dynamic programme of the paper. Then v must be whole
        and not negative, and requests and capacities whole.

        Raises ScenarioError for arrays of wrong length or with numbers that make no sense.
        """
        v = np.ascontiguousarray(v, dtype=np.float64)
        s = np.ascontiguousarray(s, dtype=np.float64)
        E = len(self.requests)
        mask = np.ones(E, dtype=np.bool_) if available is None else np.asarray(available)
        if v.shape != (E,) or s.shape != (E,) or mask.shape != (E,) or mask.dtype != np.bool_:
            raise ScenarioError(
                f"v and s must have one number for each of {E} channels, and available one truth "
                f"value; got shapes {v.shape}, {s.shape} and {mask.shape} of {mask.dtype}"
            )
        x, base, room = np.zeros(E, dtype=np.bool_), 0.0, self._room
        finished, looked, unplayed = True, 0, 0
        # Lexicographic: first as many unplayed channels as fit, then P3 on what they leave.
        added = mask & (s == np.inf)
        if added.any():
            check_statistics(v, s, added)
            finished, looked = self._count(added, nodes, x)
            base, unplayed = float(v[x].sum()), int(x.sum())  # their variances stay out of it
            # Rounding may leave a capacity below 0 by its last bit, which no channel could then
            # fit.
            room = np.maximum(room - self.requests[x].sum(axis=0), 0.0)
            mask = mask & ~added
        point: Floats | None = None
        if programme:
            check_statistics(v, s, mask)
            value, bound = self._tabulate(v, s, mask & (self.requests <= room).all(axis=1), room, x)
            proved, searched = bound - value <= (gap + 1e-12) * abs(value), 0
        else:
            close = max(gap, WIDE_GAP if mask.sum() > EXACT_UP_TO else LEAST_GAP)
            # Tree search begins at the point where the last one ended: slots are much alike.
            start = (None, None) if warm is None or warm.point is None else (warm.point, warm.x)
            self._tree.start(v, s, mask, room, close, 0.0, *start)
            searched = self._tree.search(close, 0.0, nodes, x)
            value, bound, point = self._tree.value, self._tree.bound, self._tree.point()
            proved = bound <= value + close * value  # value ≥ 0, for nothing chosen is worth 0
            if np.isnan(point[-1]):  # a root without any channel to choose
                point = None
        proved, looked = finished and proved, looked + searched
        return P3Solution(x, base + value, base + bound, proved, looked, point, unplayed)

    def _count(self, new: Bools, nodes: int | None, x: Bools) -> tuple[bool, int]:
        """Take as many unplayed channels as fit into x; whether no more fit, and nodes searched.

        A channel counts 1, less a little for the devices it takes: all in all at most 1/4 less, so
        that the largest worth has the largest number of channels.
        """
        # Of two ways to take as many channels, the one with fewer devices leaves more for P3.
        scale = np.where(self.capacity > 0, self.capacity, 1.0)
        share = np.where(new, (self.requests / scale).sum(axis=1), 0.0)
        worth = np.asarray(1.0 - 0.25 * share / max(float(share.sum()), 1e-300))
        self._tree.start(worth, np.zeros(new.size), new, self._room, *COUNT)
        most = min(COUNT_NODES, self._tree.most_nodes()) if nodes is None else nodes
        looked = self._tree.search(*COUNT, most, x)
        return self._tree.finished, looked  # finished: no bound allows one more

    def _tabulate(
        self, v: Floats, s: Floats, mask: Bools, room: Floats, x: Bools
    ) -> tuple[float, float]:
        """P3 for whole v ≥ 0 by dynamic programme and ESDP (21), into x; its value, and a bound."""
        rows = np.flatnonzero(mask)
        if not rows.size:
            return 0.0, 0.0
        # Of choices worth the same, the order of channels decides: one that no name decides.
        rows = rows[np.lexsort((*self.requests[rows].T, s[rows], v[rows]))]
        v, s = v[rows], s[rows]
        if not ((v >= 0) & (v == np.round(v))).all():
            raise ScenarioError("the dynamic programme needs whole v, zero or larger")
        # max_s s + √V(s) is max_x Υ̂·x + √(Σ̂²·x): s = Υ̂·x is among those tabulated.
        # Capacities were widened against rounding; the programme counts in whole devices.
        programme = DynamicProgramme(self.requests[rows], np.floor(room))
        table = programme.solve(v.astype(np.int64), s)
        number, above = table.select()
        choice = table.choice(number)
        x[rows[choice]] = True
        value = float(v[choice].sum()) + math.sqrt(float(s[choice].sum()))
        return value, max(above, value)
