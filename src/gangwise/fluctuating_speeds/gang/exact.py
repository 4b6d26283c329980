"""The exact answer: the gang form of P3(t), max Σ_e v_e n_e + √(Σ_e s_e n_e), round by round.

Each round solves the mixed-integer programme of :mod:`.programme`, in which the root lies below
tangents. It is an upper bound; where its answer claims more than it is worth, a tangent is added
there, until the two agree.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.fluctuating_speeds.gang.problem import GangSpeedsProblem
from gangwise.fluctuating_speeds.gang.programme import GangProgramme
from gangwise.gain_overhead.gang.solution import GangSolution

__all__ = ["ExactGangs"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FIRST_POINTS = (0.7, 1.0, 1.4)
"""Where the first tangents touch, in units of the starting point."""


class ExactGangs:
    """The programme of a problem, to be solved for any values, widths and arrivals.

    Parameters
    ----------
    problem : GangSpeedsProblem
    tolerance : float
        Stop when the gap is at most this, relative to 1 + the value.
    nodes : int, optional
        Branch and bound nodes in a round, at most. Unlike seconds they are the same everywhere.

    Examples
    --------
    Four GPUs, two gangs that need three each; the second has fewer tasks but better ones:

    >>> from gangwise import Channels, Cluster
    >>> problem = GangSpeedsProblem(
    ...     Cluster(np.array([[4.0]]), ("gpu",)),
    ...     task_job_type=np.array([0, 0, 1]),
    ...     task_requests=np.array([[1.0], [2.0], [3.0]]),
    ...     minimum=np.array([2, 1]),
    ...     channels=Channels.of_mask(np.ones((2, 1), dtype=bool)),
    ...     cost=np.zeros(2),
    ... )
    >>> exact = ExactGangs(problem)
    >>> exact.solve(np.array([0.3, 0.7]), np.zeros(2), np.array([1, 1])).placement
    array([-1, -1,  0])
    >>> answer = exact.solve(np.array([0.3, 0.7]), np.array([0.5, 0.0]), np.array([1, 1]))
    >>> answer.placement, round(answer.value, 6)
    (array([ 0,  0, -1]), 1.6)
    """

    def __init__(
        self, problem: GangSpeedsProblem, tolerance: float = 1e-7, nodes: int | None = None
    ):
        self.problem, self.tolerance, self.nodes = problem, tolerance, nodes
        self._programme = GangProgramme(problem)

    @property
    def size(self) -> int:
        """Whole-number columns of the programme."""
        return self._programme.size

    def worth(self, value: Floats, width: Floats, placement: Ints) -> float:
        """Σ v n + √(Σ s n) of a placement."""
        n = self.problem.count(placement)
        return float(value @ n + np.sqrt(max(float(width @ n), 0.0)))

    def solve(
        self,
        value: Floats,
        width: Floats,
        arrivals: Ints,
        time_limit: float = np.inf,
        start: Ints | None = None,
    ) -> GangSolution:
        """Maximise Σ v n + √(Σ s n) over the feasible placements.

        Parameters
        ----------
        value : ndarray of shape [E]
            v_e, utility of a task on each channel.
        width : ndarray of shape [E]
            s_e, zero or larger; all zero for a linear programme.
        arrivals : ndarray of int64, shape [L]
        time_limit : float
            Seconds for all rounds. An answer that ran out of time is feasible and its ``bound``
            holds.
        start : ndarray of int64, shape [Q], optional
            A feasible placement to do at least as well as.

        Raises
        ------
        ScenarioError
            When values or widths are not one finite number for each channel.
        """
        p = self.problem
        for what, array in (("values", value), ("widths", width)):
            if np.shape(array) != (p.E,) or not np.isfinite(array).all():
                raise ScenarioError(f"{what} must be {p.E} finite numbers, one for each channel")
        if (width < 0).any():
            raise ScenarioError(f"{p.name(int(np.argmin(width)))}: its width is negative")
        best = np.full(p.Q, -1, dtype=np.int64) if start is None else start
        worth, rounds = self.worth(value, width, best), 0
        bound = self._crude(value, width, arrivals)
        if not np.any(arrivals) or bound <= worth:
            return GangSolution(best, worth, max(bound, worth), 0)
        touch = np.sqrt(float(width @ p.count(best)) or float(width.max()))
        points = [touch * f for f in FIRST_POINTS] if touch > 0 else []
        deadline = time.monotonic() + time_limit
        while True:
            left = deadline - time.monotonic()
            if left <= 0 and rounds:
                break
            rounds += 1
            tolerance = self.tolerance / 2
            placement, upper, whole = self._programme.run(
                value, width, arrivals, points, left, tolerance, self.nodes
            )
            bound = min(bound, upper)
            if placement is None:
                break
            now = self.worth(value, width, placement)
            if now > worth:
                best, worth = placement, now
            if bound - worth <= self.tolerance * (1.0 + abs(worth)) or not points or not whole:
                break
            at = max(float(np.sqrt(width @ p.count(placement))), 1e-9 * touch)
            if min(abs(at - q) for q in points) <= 1e-12 * at:
                break
            points.append(at)
        return GangSolution(best, worth, max(bound, worth), rounds)

    def _crude(self, value: Floats, width: Floats, arrivals: Ints) -> float:
        """Every task on its best channel, whatever the room."""
        best, widest = np.zeros(self.problem.L), np.zeros(self.problem.L)
        np.maximum.at(best, self._programme.job_type, value[self._programme.channel])
        np.maximum.at(widest, self._programme.job_type, width[self._programme.channel])
        tasks = np.diff(self.problem.gangs.first) * (np.asarray(arrivals) != 0)
        return float(tasks @ best + np.sqrt(tasks @ widest))
