"""DRF: dominant resource fairness, the job type with the smallest dominant share first."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.core.policy import Timing
from gangwise.gain_overhead.environment import Feedback, Observation
from gangwise.gain_overhead.in_order import InOrder
from gangwise.gain_overhead.problem import GainOverheadProblem

__all__ = ["DRF", "dominant_shares"]


def dominant_shares(problem: GainOverheadProblem) -> npt.NDArray[np.float64]:
    """s_l = max_k a_l^k / Σ_{r ∈ R_l} c_r^k (OGASched §4), shape [L].

    A device type that a job type requests but none of its servers has counts as infinite.
    """
    reachable = np.zeros_like(problem.requests)
    np.add.at(
        reachable,
        problem.channels.job_type,
        problem.cluster.capacity[problem.channels.server],
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(problem.requests > 0, problem.requests / reachable, 0.0)
    return np.asarray(shares.max(axis=1))


@dataclass
class DRF:
    """Serve the job types that arrived in ascending order of their dominant share."""

    family = "gain_overhead"
    timing: Timing = field(init=False, repr=False, default="react")

    def start(self, problem: GainOverheadProblem, rng: np.random.Generator) -> None:
        """Order the job types once; the order does not depend on what arrives."""
        self._servers = InOrder(problem)
        self._order = np.argsort(dominant_shares(problem), kind="stable")

    def decide(self, observation: Observation) -> npt.NDArray[np.float64]:
        """Each takes min(a, what is left) on every server it connects to."""
        x = observation.arrivals
        if x is None:
            raise ScenarioError("this policy must be shown the arrivals before it decides")
        return self._servers.serve(self._order[x[self._order] != 0])

    def learn(self, feedback: Feedback) -> None:
        """Nothing to learn."""
