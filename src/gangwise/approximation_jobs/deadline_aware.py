"""The Deadline-Aware Scheduler of §VI: earliest deadline first, as many machines as it can pay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.counting import CountingPolicy
from gangwise.approximation_jobs.environment import Observation

__all__ = ["DeadlineAware"]


@dataclass
class DeadlineAware(CountingPolicy):
    """Jobs by deadline; of jobs with the same deadline the one that came first goes first."""

    def decide(self, observation: Observation) -> npt.NDArray[np.int64]:
        """All that the most urgent job can pay, then the next."""
        jobs = observation.jobs
        order = np.lexsort((jobs.arrival[jobs.rows], jobs.deadline[jobs.rows]))
        most = self.most(observation)[order]
        before = np.concatenate(([0.0], np.cumsum(most)[:-1]))
        free = np.maximum(float(observation.available.sum()) - before, 0.0)
        want = np.minimum(most, free).astype(np.int64)
        return self.hand_out(observation, jobs.rows[order], want)
