"""A utility-aware greedy: devices go, a little at a time, where the reward grows most."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.core.policy import Timing
from gangwise.gain_overhead.ascent import Ascent
from gangwise.gain_overhead.environment import Feedback, Observation
from gangwise.gain_overhead.problem import GainOverheadProblem
from gangwise.kernels.allocation import fill_round

__all__ = ["Greedy", "fill"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def fill(
    problem: GainOverheadProblem,
    arrivals: Ints,
    start: Floats | None = None,
    rounds: int = 16,
    smoothing: float = 0.1,
) -> Floats:
    """Hand out the capacity that ``start`` leaves, to the jobs that arrived.

    In each round every server offers one part in ``rounds`` of what was left of each device type
    to the jobs with the largest marginal reward (9) at that moment; nothing is handed out where
    the marginal reward is not positive.

    Parameters
    ----------
    start : ndarray of shape [E, K], optional
        What jobs hold already; rows of job types that did not arrive are dropped.
    smoothing : float
        Softmax temperature for the maximum in (5), which tells jobs apart whose marginal rewards
        are equal by how close the device type is to dominating their overhead.

    Returns
    -------
    ndarray of shape [E, K]
    """
    held = np.zeros(problem.shape)
    if start is not None:
        held = start * arrivals[problem.channels.job_type, None]
    state = Ascent(problem, held)
    used = np.zeros_like(problem.cluster.capacity)
    np.add.at(used, problem.channels.server, state.y)
    left = np.maximum(problem.cluster.capacity - used, 0.0)
    quantum = left / rounds * (1 + 1e-12)
    weight = arrivals.astype(np.float64)
    for _ in range(rounds):
        state.slope(weight, arrivals, smoothing)
        given = fill_round(
            state.y, state.gradient, arrivals, quantum, problem.upper,
            problem.channels.starts, problem.channels.job_type, left, state.total,
        )  # fmt: skip
        if given == 0.0:
            break
    return state.y


@dataclass
class Greedy:
    """Marginal-reward greedy, from empty servers in every slot.

    It knows the reward, sees the arrivals and keeps no memory: the rival that a learning policy
    must beat to be worth its name.

    Parameters
    ----------
    rounds : int
        In how many parts each server hands out its devices.
    smoothing : float
        See :func:`fill`.
    """

    rounds: int = 16
    smoothing: float = 0.1
    family = "gain_overhead"
    timing: Timing = field(init=False, repr=False, default="react")

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.smoothing < 0:
            raise ScenarioError(
                f"rounds must be positive and smoothing not negative; got {self.rounds}, "
                f"{self.smoothing}"
            )

    def start(self, problem: GainOverheadProblem, rng: np.random.Generator) -> None:
        """Bind to a problem."""
        self._problem = problem

    def decide(self, observation: Observation) -> Floats:
        """Fill the servers for the jobs that arrived."""
        if observation.arrivals is None:
            raise ScenarioError("this policy must be shown the arrivals before it decides")
        return fill(
            self._problem, observation.arrivals, rounds=self.rounds, smoothing=self.smoothing
        )

    def learn(self, feedback: Feedback) -> None:
        """Nothing to learn."""
