"""What an exact solver of a gang programme answers, with the bound that it proved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["GangSolution"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class GangSolution:
    """A solved programme, of gangs with gains or of gangs at fluctuating speeds.

    Attributes
    ----------
    placement : ndarray of int64, shape [Q]
        Feasible: server of each task, -1 for none.
    value : float
        Its objective.
    bound : float
        No placement has a larger objective.
    rounds : int
        How often the programme was solved, with more tangents each time.
    """

    placement: Ints
    value: float
    bound: float
    rounds: int

    @property
    def gap(self) -> float:
        """What the placement may fall short of the optimum, at most."""
        return max(self.bound - self.value, 0.0)
