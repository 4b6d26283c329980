"""The dynamic programme of ESDP §3.2: scale and round, tabulate, select.

The statistics are scaled and rounded, ESDP (16)–(19); for every s ∈ S

    V(s) = max Σ̂²·x   s.t.  Υ̂·x ≥ s,  A x ≤ c,  x binary,        P4(s), ESDP (20),

is tabulated by ESDP (22)–(27), and s* = argmax_s s + √V(s), ESDP (21), is selected.

Algorithm 2 as printed schedules nothing. Here a skipped channel keeps the decisions behind it,
values s that no x reaches are left out of ESDP (21), and a negative estimate counts as zero.
The answer maximises Υ̂·x + √(Σ̂²·x): take s = Υ̂·x. It needs whole requests and capacities and E ·
S · Π_k (c_k + 1) states, which ends its use at some fifty channels of three device types.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Bools, Bytes, Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.core.jit import kernel
from gangwise.fluctuating_speeds.solvers.search import BranchAndBound


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
        value[place, 0] = 0.0
    # V(·, ·, i) overwrites V(·, ·, i + 1): what is read lies at smaller c', not yet overwritten.
    for i in range(E - 1, -1, -1):
        shift = 0
        for k in range(K):
            digit[k] = c[k]
            shift += stride[k] * a[i, k]
        u, gain = min(upsilon[i], S), sigma[i]
        for place in range(C - 1, -1, -1):
            fits = True
            for k in range(K):
                fits = fits and a[i, k] <= digit[k]
            row = value[place]
            if fits and shift > 0:
                before = value[place - shift]
                first = before[0] + gain
                for s in range(u):
                    flag[s] = 1 if first > row[s] else 0
                    row[s] = first if first > row[s] else row[s]
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
        chosen[i] = (taken[i, place, s >> 3] >> (s & 7)) & 1
        if chosen[i] == 1:
            s = max(s - upsilon[i], 0)
            place -= shift[i]


@dataclass(frozen=True, eq=False)
class Scaled:
    """Scaled statistics Υ̂, Σ̂² [E] of ESDP (16), ESDP (17), and ξ and ξ m of ESDP (18), ESDP (19).

    Υ̂ is ⌈ξ max(v̂, 0)⌉, Σ̂² is ξ² σ̂², rounded up when asked to. Floats hold it where 64-bit
    integers overflow.
    """

    upsilon: Ints
    sigma: Floats
    xi: int
    top: int


def scale(v: Floats, s: Floats, most: int, delta: float, round_variance: bool = False) -> Scaled:
    """Scaling, ESDP (16)–(19): v̂ and σ̂² [E] times powers of ξ = ⌈m / δ⌉, and rounded up.

    ``most`` is m, the largest number of channels that fit at once. ``round_variance`` is ESDP (17)
    as printed. Not rounding is at least as accurate, and the error bound of the paper holds only
    then.

    Raises
    ------
    ScenarioError
        For δ ≤ 0, or variances that are infinite or negative.

    Examples
    --------
    >>> scaled = scale(np.array([0.5, 0.8]), np.array([1.2, 2.4]), 1, 0.53, round_variance=True)
    >>> scaled.xi, scaled.upsilon, scaled.sigma
    (2, array([1, 2]), array([ 5., 10.]))
    """
    if not (math.isfinite(delta) and delta > 0):
        raise ScenarioError(f"delta must be positive; got {delta}")
    for e in np.flatnonzero(~(np.isfinite(v) & np.isfinite(s) & (s >= 0)))[:1]:
        raise ScenarioError(
            f"channel {e}: the dynamic programme needs a finite v and a finite s, zero or larger; "
            f"got v = {v[e]}, s = {s[e]}"
        )
    xi = math.ceil(most / delta)
    sigma = xi**2 * s
    upsilon = np.ceil(xi * np.maximum(v, 0.0)).astype(np.int64)
    return Scaled(upsilon, np.ceil(sigma) if round_variance else sigma, xi, xi * most)


@dataclass(frozen=True, eq=False)
class Table:
    """Table of P4(s), ESDP (20): V(s) [S] at the whole capacity, -inf where no x reaches s."""

    value: Floats
    _upsilon: Ints
    _shift: Ints
    _taken: npt.NDArray[np.uint8]

    def choice(self, s: int) -> Bools:
        """Optimal x of P4(s), ESDP (20), shape [E]; ScenarioError when no x has Υ̂·x ≥ s."""
        if not 0 <= s < self.value.size or self.value[s] == -np.inf:
            raise ScenarioError(f"no choice of channels is worth s = {s}")
        chosen = np.zeros(self._upsilon.size, dtype=np.int64)
        backtrack(s, self._taken.shape[1] - 1, self._upsilon, self._shift, self._taken, chosen)
        return chosen.astype(np.bool_)

    def select(self) -> tuple[int, float]:
        """Selection s* of ESDP (21) and its value s* + √V(s*), among the s that some x reaches."""
        # Values s that no x reaches have V = -∞ and must not be selected.
        within = np.where(self.value > -np.inf, self.value, 0.0)
        worth = np.where(self.value > -np.inf, np.arange(self.value.size) + np.sqrt(within), -1.0)
        s = int(worth.argmax())
        return s, float(worth[s])


class DynamicProgramme:
    """Dynamic programme of ESDP Algorithm 2, repaired: V(s) of ESDP (20) by ESDP (22)–(27).

    ``requests`` [E, K] and ``capacity`` [K] are whole numbers, zero or larger (ScenarioError);
    tables of more than ``memory`` bytes are refused.

    Examples
    --------
    >>> programme = DynamicProgramme([[1, 2], [2, 1], [1, 1]], [3, 3])
    >>> table = programme.solve(np.array([2, 3, 1]), np.array([4.0, 1.0, 9.0]))
    >>> table.value
    array([13., 13., 13., 13., 10.,  5.])
    >>> s, value = table.select()
    >>> s, round(value, 4), table.choice(s)
    (5, 7.2361, array([ True,  True, False]))
    """

    def __init__(self, requests: npt.ArrayLike, capacity: npt.ArrayLike, memory: int = 4 << 30):
        a, c = np.asarray(requests, dtype=np.float64), np.asarray(capacity, dtype=np.float64)
        for name, array in (("requests", a), ("capacities", c)):
            if not (np.isfinite(array) & (array >= 0) & (array == np.round(array))).all():
                raise ScenarioError(
                    f"the dynamic programme needs whole {name}, zero or larger; use another method"
                )
        if a.ndim != 2 or c.shape != a.shape[1:]:
            raise ScenarioError(f"requests have shape {a.shape}, capacities {c.shape}")
        self.a, self.c, self.memory = a.astype(np.int64), c.astype(np.int64), memory
        # A capacity vector is a number in mixed radix, the last device type changing fastest.
        self.stride = np.append(np.cumprod((self.c + 1)[:0:-1])[::-1], 1).astype(np.int64)
        self.stride = self.stride[: self.c.size]
        self.states = math.prod((self.c + 1).tolist())

    def top(self, upsilon: Ints) -> int:
        """Bound on Υ̂·x, which s of ESDP (19) need not exceed."""
        root = BranchAndBound(self.a.astype(np.float64))
        everyone = np.ones(upsilon.size, dtype=np.bool_)
        v, s = upsilon.astype(np.float64), np.zeros(upsilon.size)
        root.start(v, s, everyone, self.c.astype(np.float64), 0.0, 0.5)
        return math.floor(root.bound * (1 + 1e-12) + 1e-9)

    def solve(self, upsilon: Ints, sigma: Floats, top: int | None = None) -> Table:
        """V(s) for s = 0, …, ``top``, by default a bound on Υ̂·x; Υ̂ and Σ̂² have shape [E].

        ScenarioError when the table would not fit into ``memory``.
        """
        E, S = upsilon.size, (self.top(upsilon) if top is None else top) + 1
        W = -(-S // 8)
        size = self.states * (8 * S + E * W)
        if size > self.memory:
            raise ScenarioError(
                f"the dynamic programme needs {size / 2**30:.1f} GiB for {E} channels, {S} values "
                f"of s and {self.states} capacities; use method 'exact'"
            )
        value = np.empty((self.states, S))
        taken = np.empty((E, self.states, W), dtype=np.uint8)
        items = Items(upsilon, sigma, self.a, self.c, self.stride)
        digit, flag = np.zeros(self.c.size, dtype=np.int64), np.zeros(8 * W, dtype=np.uint8)
        tabulate(items, value, taken, digit, flag)
        return Table(value[-1].copy(), upsilon, self.a @ self.stride, taken)


def solve_rounded(
    v: Floats, s: Floats, a: Floats, c: Floats, most: int, delta: float | None
) -> tuple[Bools, float, float]:
    """P3 by scaling, dynamic programme and ESDP (21): x [E], its value in P3, and a bound.

    ``most`` is m of ESDP (18), not read without ``delta``, δ(t), which takes v as it is, if whole:
    that is exact. ScenarioError for data that are not whole, or a table too large.
    """
    if v.size == 0:
        return np.zeros(0, dtype=np.bool_), 0.0, 0.0
    programme = DynamicProgramme(a, np.floor(c))
    if delta is None:
        if not ((v >= 0) & (v == np.round(v))).all():
            raise ScenarioError(
                "without delta, the dynamic programme needs whole v, zero or larger"
            )
        scaled = Scaled(v.astype(np.int64), s, 1, 0)
    else:
        scaled = scale(v, s, most, delta)
    # max_s s + √V(s) is max_x Υ̂·x + √(Σ̂²·x): s = Υ̂·x is among those tabulated.
    table = programme.solve(scaled.upsilon, scaled.sigma)
    number, above = table.select()
    x = table.choice(number)
    value = float(v[x].sum()) + math.sqrt(float(s[x].sum()))
    # Rounding v up and cutting it off at zero only add to the worth of every choice.
    return x, value, max(above / scaled.xi, value)
