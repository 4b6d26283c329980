"""The shares x and multipliers λ that OPS and OPM move, slot by slot: (18)–(21), (69)–(73).

Jobs have places 0, …, n − 1 here, without holes, so that one pass over the matrix is one pass over
the active jobs; a leaving job's place goes to the last one.

The multiplier update is carried as ω(t) = λ(t) − μ g(x(t−1)) of (25): ω ← max{−μ g, ω + μ g} and
λ = ω + μ g, which needs g of one slot only, and starts every job at λ = 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.kernels import opm as kernels

__all__ = ["PrimalDual"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(eq=False)
class PrimalDual:
    """Shares of every machine among the active jobs, and what budgets make a task cost.

    Parameters
    ----------
    prices : ndarray of shape [M]
        p_i.
    exact : bool
        Project by variable fixing instead of Newton's method; the same to 1e-12.

    Attributes
    ----------
    rows : ndarray of int64, shape [J]
        Table row of the job in each place; the first ``n`` count.
    shares : ndarray of shape [J, M]
        x_j^i(t).
    omega, spend : ndarray of shape [J]
        ω_j(t), and Σ_i p_i x_j^i(t) in units of price per slot.
    holder : ndarray of int64, shape [M]
        Place of the job that each machine was last drawn for, −1 for none.
    """

    prices: Floats
    exact: bool = False
    n: int = 0
    rows: Ints = field(init=False)
    shares: Floats = field(init=False)
    omega: Floats = field(init=False)
    spend: Floats = field(init=False)
    holder: Ints = field(init=False)
    _place: dict[int, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.prices = np.array(self.prices, dtype=np.float64)  # one kind of array for the kernels
        M = self.prices.size
        self.rows = np.zeros(0, np.int64)
        self.shares, self._before = np.zeros((0, M)), np.zeros((0, M))
        self.omega, self.spend = np.zeros(0), np.zeros(0)
        self.total, self._total_before = np.zeros(M), np.zeros(M)
        self.tau, self.holder = np.zeros(M), np.full(M, -1, np.int64)
        self._column = np.zeros(kernels.STRIPE)
        self._u = np.zeros((2, M))
        self._grow(2 * kernels.FOUR)  # and twice as many whenever there are too few

    def _grow(self, more: int) -> None:
        J, M = len(self.rows) + more, self.prices.size
        self.rows = np.concatenate((self.rows, np.zeros(more, np.int64)))
        self.shares = np.concatenate((self.shares, np.zeros((more, M))))
        self.omega = np.concatenate((self.omega, np.zeros(more)))
        self.spend = np.concatenate((self.spend, np.zeros(more)))
        self._before = np.zeros((J, M))
        self._stripe = np.zeros(J * kernels.STRIPE)
        self._part, self._y = np.zeros((J, kernels.STRIPE)), np.zeros(J)
        self._free, self._fixed = np.full(J, np.inf), np.zeros(J, np.int64)

    def add(self, row: int, share: float | Floats = 0.0) -> None:
        """A job comes; its share of every machine begins at ``share``, usually 0."""
        if self.n == len(self.rows):
            self._grow(self.n)
        k = self.n
        self.n += 1
        self.rows[k], self._place[row] = row, k
        self.shares[k] = share
        self.omega[k], self.spend[k] = 0.0, float(self.prices @ self.shares[k])
        self.total += self.shares[k]

    def remove(self, row: int) -> None:
        """A job goes; what it had becomes idle."""
        k = self._place.pop(row, None)
        if k is None:
            return
        self.n -= 1
        last = self.n
        kernels.drop(self.shares, k, last, self.total, self.holder)
        if k != last:
            self.rows[k], self._place[int(self.rows[last])] = self.rows[last], k
            self.omega[k], self.spend[k] = self.omega[last], self.spend[last]

    def multipliers(self, target: Floats, mu: float) -> Floats:
        """λ_j(t) by (20) and (73), shape [n], from g_j(x_j(t−1)) = spend − ``target`` [n]."""
        g = mu * (self.spend[: self.n] - target)
        omega = np.maximum(-g, self.omega[: self.n] + g)
        self.omega[: self.n] = omega
        multipliers: Floats = omega + g
        return multipliers

    def climb(
        self, slopes: Floats, multipliers: Floats, rates: Floats, alpha: float, there: Bools
    ) -> None:
        """x(t) by (18)/(69) and the projection (19)/(P4); machines that are away get 0.

        Raises
        ------
        ScenarioError
            For slopes, multipliers or rates that are not finite, which have no projection.
        """
        for what, numbers in (("slopes", slopes), ("multipliers", multipliers), ("rates", rates)):
            if not np.isfinite(numbers).all():
                raise ScenarioError(
                    f"{what} must be finite numbers; found {numbers[~np.isfinite(numbers)][0]}"
                )
        self.shares, self._before = self._before, self.shares
        self.total, self._total_before = self._total_before, self.total
        prices = self.prices
        if not there.all():  # nothing pushes or pulls there, and nothing is left to start from
            rates, prices = np.where(there, rates, 0.0), np.where(there, prices, 0.0)
            self._before[:, ~there] = 0.0
            self._total_before[~there] = 0.0
            self.holder[~there] = -1
        kernels.step(
            self._before, self.n, alpha * slopes, alpha * multipliers, rates, prices, self.exact,
            self.shares, self.tau, self.total, self.spend, self._column, self._stripe,
            self._part, self._y, self._free, self._fixed,
        )  # fmt: skip

    def draw(self, rng: np.random.Generator, couple: bool) -> Ints:
        """Table row for every machine, −1 for none: E = x either way, (21) and (72), shape [M]."""
        u = rng.random(out=self._u)
        if couple:
            kernels.coupled(
                self._before, self._total_before, self.shares, self.total, self.n, u[0], u[1],
                self.holder,
            )  # fmt: skip
        else:
            kernels.fresh(self.shares, self.n, u[0], self._column, self.holder)
        return np.where(self.holder >= 0, self.rows[self.holder], -1)
