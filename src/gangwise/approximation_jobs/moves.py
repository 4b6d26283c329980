"""How tasks moved from one slot to the next: what migration costs is counted from this."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.kernels import approximation as kernels

__all__ = ["Moves"]

Ints = npt.NDArray[np.int64]


@dataclass(eq=False)
class Moves:
    """Compares the tasks of a slot with those of the last one.

    The paper does not say what a migration is. Three counts: ``displaced``, tasks that a job still
    active lost on a machine; ``swaps``, those whose place another task took; ``net``,
    Σ_j min(lost, gained), the tasks that must have moved whatever one calls them.

    Parameters
    ----------
    machines : int
        M.
    several : bool
        Whether a machine may run several tasks.

    Examples
    --------
    >>> moves, active = Moves(3, several=False), np.array([0, 1])
    >>> moves.count(np.array([0, 1]), np.array([0, 2]), active, rows=2)
    (0.0, 0.0, 0.0)
    >>> moves.count(np.array([1, 0]), np.array([0, 1]), active, rows=2)
    (2.0, 1.0, 2.0)
    """

    machines: int
    several: bool
    _before: Ints = field(init=False)
    _held: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self._before = np.full(self.machines, -1, np.int64)
        self._held = np.zeros((0, self.machines), dtype=bool)
        self._lost, self._gained = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._out = np.zeros(3)

    def forget(self, rows: list[int]) -> None:
        """These jobs have left: what they had is not lost to anybody still there."""
        if self.several:
            self._held[rows] = False
        else:
            self._before[np.isin(self._before, rows)] = -1

    def count(
        self, row: Ints, machine: Ints, active: Ints, rows: int
    ) -> tuple[float, float, float]:
        """Displaced, swaps, net, when task n of table row ``row[n]`` ran on ``machine[n]``."""
        if self.several:
            return self._count_several(row, machine, rows)
        if self._lost.size < rows:
            self._lost, self._gained = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        now = np.full(self.machines, -1, np.int64)
        now[machine] = row
        kernels.moves(self._before, now, active, self._lost, self._gained, self._out)
        self._before = now
        return float(self._out[0]), float(self._out[1]), float(self._out[2])

    def _count_several(self, row: Ints, machine: Ints, rows: int) -> tuple[float, float, float]:
        more = np.zeros((rows - len(self._held), self.machines), dtype=bool)
        before = np.concatenate((self._held, more))
        self._held = np.zeros_like(before)
        self._held[row, machine] = True
        lost, gained = before & ~self._held, self._held & ~before
        swaps = np.minimum(lost.sum(axis=0), gained.sum(axis=0)).sum()
        net = np.minimum(lost.sum(axis=1), gained.sum(axis=1)).sum()
        return float(lost.sum()), float(swaps), float(net)
