"""The dynamic programme of ESDP §3.2: tabulate, then select.

On the scaled and rounded statistics Υ̂ and Σ̂² of ESDP (16)–(19), for every s ∈ S

    V(s) = max Σ̂²·x   s.t.  Υ̂·x ≥ s,  A x ≤ c,  x binary,        P4(s), ESDP (20),

is tabulated by ESDP (22)–(27), and s* = argmax_s s + √V(s), ESDP (21), is selected.

Algorithm 2 as printed schedules nothing. Here a skipped channel keeps the decisions behind it, and
values s that no x reaches are left out of ESDP (21). The answer maximises Υ̂·x + √(Σ̂²·x): take
s = Υ̂·x. It needs whole requests and capacities and E · S · Π_k (c_k + 1) states, which ends its use
at some fifty channels of three device types.
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
class Table:
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
        root = BranchAndBound(self.a.astype(np.float64))
        everyone = np.ones(upsilon.size, dtype=np.bool_)
        v, s = upsilon.astype(np.float64), np.zeros(upsilon.size)
        root.start(v, s, everyone, self.c.astype(np.float64), 0.0, 0.5)
        return math.floor(root.bound * (1 + 1e-12) + 1e-9)

    def solve(self, upsilon: Ints, sigma: Floats, top: int | None = None) -> Table:
        """V(s) for s = 0, …, ``top``, by default a bound on Υ̂·x; Υ̂ and Σ̂² have shape [E].

        ScenarioError when the table would take more than ``MEMORY`` bytes.
        """
        E, S = upsilon.size, (self.top(upsilon) if top is None else top) + 1
        W = -(-S // 8)
        size = self.states * (8 * S + E * W)
        if size > MEMORY:
            raise ScenarioError(
                f"the dynamic programme needs {size / 2**30:.1f} GiB for {E} channels, {S} values "
                f"of s and {self.states} capacities; use branch and bound"
            )
        value = np.empty((self.states, S))
        taken = np.empty((E, self.states, W), dtype=np.uint8)
        items = Items(upsilon, sigma, self.a, self.c, self.stride)
        digit, flag = np.zeros(self.c.size, dtype=np.int64), np.zeros(8 * W, dtype=np.uint8)
        tabulate(items, value, taken, digit, flag)
        return Table(value[-1].copy(), upsilon, self.a @ self.stride, taken)


def solve_whole(v: Floats, s: Floats, a: Floats, c: Floats) -> tuple[Bools, float, float]:
    """P3 for whole v ≥ 0 by dynamic programme and ESDP (21): x [E], its value, and a bound.

    ScenarioError for data that are not whole, or a table too large.
    """
    if v.size == 0:
        return np.zeros(0, dtype=np.bool_), 0.0, 0.0
    if not ((v >= 0) & (v == np.round(v))).all():
        raise ScenarioError("the dynamic programme needs whole v, zero or larger")
    # max_s s + √V(s) is max_x Υ̂·x + √(Σ̂²·x): s = Υ̂·x is among those tabulated.
    table = DynamicProgramme(a, np.floor(c)).solve(v.astype(np.int64), s)
    number, above = table.select()
    x = table.choice(number)
    value = float(v[x].sum()) + math.sqrt(float(s[x].sum()))
    return x, value, max(above, value)
