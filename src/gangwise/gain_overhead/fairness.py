"""FAIRNESS: each arrived job gets a share of every server proportional to its request."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.policy import Timing
from gangwise.gain_overhead.environment import Feedback, Observation
from gangwise.gain_overhead.problem import GainOverheadProblem
from gangwise.kernels.allocation import share_proportionally

__all__ = ["Fairness", "proportional_shares"]

Floats = npt.NDArray[np.float64]


def proportional_shares(
    problem: GainOverheadProblem, weight: Floats, out: Floats | None = None
) -> Floats:
    """Shares y = min(a_l, c · w_l a_l / Σ w a) on every server and device type, shape [E, K]."""
    y = np.empty(problem.shape) if out is None else out
    share_proportionally(
        np.asarray(weight, dtype=np.float64), problem.requests, problem.upper,
        problem.cluster.capacity, problem.channels.starts, problem.channels.job_type, y,
    )  # fmt: skip
    return y


@dataclass
class Fairness:
    """FAIRNESS of OGASched §4.

    Parameters
    ----------
    share : {"arrived", "all"}
        Whether shares are of the requests that arrived, or of those of all connected job types, as
        the paper's formula reads; the latter leaves the absent job types' shares unused and is then
        the worst baseline, not the best as the paper reports.
    """

    share: str = "arrived"
    family = "gain_overhead"
    timing: Timing = field(init=False, repr=False, default="react")

    def __post_init__(self) -> None:
        if self.share not in ("arrived", "all"):
            raise UnknownName("share", self.share, ["arrived", "all"])

    def start(self, problem: GainOverheadProblem, rng: np.random.Generator) -> None:
        """Bind to a problem."""
        self._problem = problem
        self._y = np.empty(problem.shape)

    def decide(self, observation: Observation) -> Floats:
        """Shares of every server."""
        x = observation.arrivals
        if x is None:
            raise ScenarioError("this policy must be shown the arrivals before it decides")
        weight = np.ones(self._problem.L) if self.share == "all" else x.astype(np.float64)
        y = proportional_shares(self._problem, weight, self._y)
        if self.share == "all":
            y *= x[self._problem.channels.job_type, None]
        return y

    def learn(self, feedback: Feedback) -> None:
        """Nothing to learn."""
