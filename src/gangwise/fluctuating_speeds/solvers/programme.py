"""The dynamic programme of ESDP §3.2: scale and round, tabulate, select.

The statistics are scaled and rounded, ESDP (16)–(19); for every s ∈ S

    V(s) = max Σ̂²·x   s.t.  Υ̂·x ≥ s,  A x ≤ c,  x binary,        P4(s), ESDP (20),

is tabulated by ESDP (22)–(27), and s* = argmax_s s + √V(s), ESDP (21), is selected.

Repaired where Algorithm 2 as printed does not work: a skipped channel keeps the decisions behind
it, values s that no x reaches are left out of ESDP (21), and a negative estimate counts as zero.
The answer maximises Υ̂·x + √(Σ̂²·x): take s = Υ̂·x. It needs whole requests and capacities and E ·
S · Π_k (c_k + 1) states, which ends its use at some fifty channels of three device types.

:func:`algorithm_2` and :func:`select` are the same word for word, to show what they do: they
schedule nothing. Two lines are missing. Where a channel is skipped, its x keeps the initial zeros
instead of what was decided behind it; and ESDP (21) may select values of s that no x reaches, whose
x is zero, too.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.fluctuating_speeds.solvers.exact import Lagrangian
from gangwise.fluctuating_speeds.solvers.kernels import backtrack, tabulate


@dataclass(frozen=True, eq=False)
class Scaled:
    """Scaled statistics of ESDP (16), ESDP (17) and the sizes of ESDP (18), ESDP (19).

    Attributes
    ----------
    upsilon : ndarray of int64, shape [E]
        Υ̂ = ⌈ξ max(v̂, 0)⌉.
    sigma : ndarray of float64, shape [E]
        Σ̂² = ξ² σ̂², rounded up when asked to. Floats hold it where 64-bit integers overflow.
    xi : int
        ξ = ⌈m / δ⌉.
    top : int
        The largest element ξ m of S.
    """

    upsilon: Ints
    sigma: Floats
    xi: int
    top: int


def scale(v: Floats, s: Floats, most: int, delta: float, round_variance: bool = False) -> Scaled:
    """Scaling, ESDP (16)–(19): v̂ and σ̂² times powers of ξ, and rounded up.

    Parameters
    ----------
    v, s : ndarray of shape [E]
        Estimates v̂ and variances σ̂², the latter finite.
    most : int
        m, the largest number of channels that fit at once.
    delta : float
        δ(t) > 0.
    round_variance : bool
        ESDP (17) as printed. Not rounding is at least as accurate, and the error bound of the paper
        holds only then.

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
    """Table of P4(s), ESDP (20): V(s) for every s, and the choices behind it.

    Attributes
    ----------
    value : ndarray of float64, shape [S]
        V(s) at the whole capacity, -inf where no x reaches s.
    """

    value: Floats
    _upsilon: Ints
    _shift: Ints
    _taken: npt.NDArray[np.uint8]

    def choice(self, s: int) -> Bools:
        """Optimal x of P4(s), ESDP (20), shape [E].

        Raises
        ------
        ScenarioError
            When no x has Υ̂·x ≥ s.
        """
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

    Parameters
    ----------
    requests : array of shape [E, K]
        Devices that a channel takes, whole numbers.
    capacity : array of shape [K]
        Whole numbers.
    memory : int
        Refuse tables of more bytes than this.

    Raises
    ------
    ScenarioError
        For requests or capacities that are not whole numbers, zero or larger.

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
        root = Lagrangian(self.a.astype(np.float64))
        everyone = np.ones(upsilon.size, dtype=np.bool_)
        v, s = upsilon.astype(np.float64), np.zeros(upsilon.size)
        root.start(v, s, everyone, self.c.astype(np.float64), 0.0, 0.5)
        return math.floor(root.bound * (1 + 1e-12) + 1e-9)

    def solve(self, upsilon: Ints, sigma: Floats, top: int | None = None) -> Table:
        """V(s) for s = 0, …, ``top``.

        Parameters
        ----------
        upsilon : ndarray of int64, shape [E]
            Zero or larger.
        sigma : ndarray of float64, shape [E]
        top : int, optional
            Of ESDP (19); by default, a bound on Υ̂·x.

        Raises
        ------
        ScenarioError
            When the table would not fit into ``memory``.
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
        tabulate(
            upsilon,
            sigma,
            self.a,
            self.c,
            self.stride,
            value,
            taken,
            np.zeros(self.c.size, dtype=np.int64),
            np.zeros(8 * W, dtype=np.uint8),
        )
        return Table(value[-1].copy(), upsilon, self.a @ self.stride, taken)


def solve_rounded(
    v: Floats, s: Floats, a: Floats, c: Floats, most: int, delta: float | None
) -> tuple[Bools, float, float]:
    """P3 by scaling, dynamic programme and ESDP (21): x [E], its value in P3, and a bound.

    Parameters
    ----------
    v, s : ndarray of shape [E]
    a : ndarray of shape [E, K]
    c : ndarray of shape [K]
    most : int
        m of ESDP (18), not read without ``delta``.
    delta : float or None
        δ(t); None takes v as it is, if whole, which is exact.

    Raises
    ------
    ScenarioError
        For data that are not whole, or a table too large.
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


def algorithm_2(
    upsilon: Ints, sigma: Floats, a: Ints, c: Ints, top: int, copy_when_skipped: bool = False
) -> tuple[Floats, Ints]:
    """ESDP Algorithm 2 as printed: V(s) and x(s), s = 0, …, ``top``, for a handful of channels.

    Parameters
    ----------
    upsilon, sigma : ndarray of shape [E]
    a : ndarray of shape [E, K]
    c : ndarray of shape [K]
    top : int
    copy_when_skipped : bool
        Add the missing line.

    Returns
    -------
    value : ndarray of shape [top + 1]
    x : ndarray of int64, shape [top + 1, E]

    Examples
    --------
    One server for two channels: the best choice is worth 6, and the printed x is empty.

    >>> two = np.array([0, 0]), np.array([1.0, 6.0]), np.array([[1], [1]]), np.array([1]), 0
    >>> algorithm_2(*two)
    (array([6.]), array([[0, 0]]))
    >>> algorithm_2(*two, copy_when_skipped=True)
    (array([6.]), array([[0, 1]]))
    """
    E = len(upsilon)
    value: dict[tuple[int, tuple[int, ...], int], float] = {}
    x: dict[tuple[int, tuple[int, ...], int], Ints] = {}
    none = np.zeros(E, dtype=np.int64)
    for s in range(top + 1):
        for left in itertools.product(*(range(int(k) + 1) for k in c)):
            value[s, left, E] = 0.0 if s == 0 else -np.inf
            x[s, left, E] = none
            for i in range(E - 1, -1, -1):
                skipped = value[s, left, i + 1]
                x[s, left, i] = x[s, left, i + 1] if copy_when_skipped else none
                value[s, left, i] = skipped
                if not any(left):
                    continue
                less = tuple(max(have - int(take), 0) for have, take in zip(left, a[i]))
                behind = (max(s - int(upsilon[i]), 0), less, i + 1)
                value[s, left, i] = max(value[behind] + sigma[i], skipped)
                if value[s, left, i] != skipped:
                    with_it = x[behind].copy()
                    with_it[i] = 1
                    x[s, left, i] = with_it
                    if (with_it @ a > left).any():
                        value[s, left, i] = skipped
                        x[s, left, i] = x[s, left, i + 1]
    whole = tuple(int(k) for k in c)
    return (
        np.array([value[s, whole, 0] for s in range(top + 1)]),
        np.array([x[s, whole, 0] for s in range(top + 1)]),
    )


def select(sigma: Floats, x: Ints) -> tuple[int, float]:
    """Selection of ESDP (21) as printed: s* and s* + √(Σ̂²·x(s*)) over every s, reached or not."""
    worth = np.arange(len(x)) + np.sqrt(x @ sigma)
    s = int(worth.argmax())
    return s, float(worth[s])
