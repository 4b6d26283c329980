"""The Fair Scheduler of §VI: every job gets the same share, as far as its budget pays for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.counting import CountingPolicy, max_min_shares, systematic
from gangwise.approximation_jobs.environment import Observation

__all__ = ["Fair"]


@dataclass
class Fair(CountingPolicy):
    """Equal shares, in fractions of a machine, rounded to whole tasks by systematic sampling.

    Rounding down instead would starve jobs once there are more of them than machines.
    """

    def decide(self, observation: Observation) -> npt.NDArray[np.int64]:
        """Max-min fair shares of the machines that are there."""
        rows = observation.jobs.rows
        shares = max_min_shares(float(observation.available.sum()), self.most(observation))
        return self.hand_out(observation, rows, systematic(shares, self._rng.random()))
