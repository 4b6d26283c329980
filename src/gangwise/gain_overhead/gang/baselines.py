"""The baselines of OGASched §4 under the gang rule.

All are :meth:`.placement.Placement.in_order` with an order of tasks and a score of servers. None
weighs gains: they place every task that finds room, as the schedulers that they stand for do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.core.policy import Timing
from gangwise.gain_overhead.drf import dominant_shares
from gangwise.gain_overhead.environment import Feedback, Observation
from gangwise.gain_overhead.gang.placement import (
    Placement,
    job_by_job,
    round_robin,
    server_size,
)
from gangwise.gain_overhead.gang.problem import GangProblem

__all__ = ["GangBinPacking", "GangDRF", "GangFairness", "GangRandom", "GangSpreading"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def _arrived(observation: Observation) -> Ints:
    if observation.arrivals is None:
        raise ScenarioError("this policy must be shown the arrivals before it decides")
    return np.flatnonzero(observation.arrivals)


@dataclass
class GangBinPacking:
    """Job by job, each task on the most used server that has room (MOSTALLOCATED)."""

    family = "gain_overhead_gang"
    sign: ClassVar[float] = 1.0
    timing: Timing = field(init=False, repr=False, default="react")

    def start(self, problem: GangProblem, rng: np.random.Generator) -> None:
        """Bind to a problem."""
        self._problem, self._rng = problem, rng
        self._servers = Placement(problem, weighs_gains=False)
        self._size = server_size(problem)

    def decide(self, observation: Observation) -> Ints:
        """Server of each task, -1 for none."""
        return self._place(*job_by_job(self._problem, _arrived(observation)), self._size)

    def _place(self, order: Ints, ends: Ints, preference: Floats) -> Ints:
        return self._servers.in_order(order, ends, self.sign, preference)

    def learn(self, feedback: Feedback) -> None:
        """Nothing to learn."""


@dataclass
class GangSpreading(GangBinPacking):
    """Job by job, each task on the least used server that has room (LEASTALLOCATED)."""

    sign: ClassVar[float] = -1.0


@dataclass
class GangDRF(GangBinPacking):
    """Jobs in ascending order of their dominant share, each task on the largest server with room.

    The dominant share is that of all the job's tasks together, of what its servers have together.
    Largest first is first fit in an order of servers that does not depend on what they are called.
    """

    sign: ClassVar[float] = 0.0

    def start(self, problem: GangProblem, rng: np.random.Generator) -> None:
        """Order the job types once; the order does not depend on what arrives."""
        super().start(problem, rng)
        self._order = np.argsort(dominant_shares(problem.relaxed), kind="stable")

    def decide(self, observation: Observation) -> Ints:
        """Server of each task, -1 for none."""
        jobs = self._order[np.isin(self._order, _arrived(observation))]
        return self._place(*job_by_job(self._problem, jobs), self._size)


@dataclass
class GangFairness(GangBinPacking):
    """Round-robin: every job places one task, then every job another, on the largest server.

    Fractional shares of a server have no meaning for whole tasks; taking turns is what is left of
    them. Gangs that stay incomplete are rolled back and their room is offered to the others.
    """

    sign: ClassVar[float] = 0.0

    def decide(self, observation: Observation) -> Ints:
        """Server of each task, -1 for none."""
        return self._place(*round_robin(self._problem, _arrived(observation)), self._size)


@dataclass
class GangRandom(GangBinPacking):
    """Jobs in random order, servers in random order; the floor that others must clear."""

    sign: ClassVar[float] = 0.0
    randomised = True

    def decide(self, observation: Observation) -> Ints:
        """Server of each task, -1 for none."""
        jobs = self._rng.permutation(_arrived(observation))
        preference = self._rng.random(self._size.size)
        return self._place(*job_by_job(self._problem, jobs), preference)
