"""The exact answer for gangs, round by round.

Each round solves the mixed-integer programme of :mod:`.programme`, in which gains lie below
tangents. It is an upper bound; where its answer claims more gain than it has, a tangent is added
there, until the two agree.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.gain_overhead.gang.problem import GangProblem
from gangwise.gain_overhead.gang.programme import GangProgramme
from gangwise.gain_overhead.gang.solution import GangSolution

__all__ = ["solve"]

Floats = npt.NDArray[np.float64]


def solve(
    problem: GangProblem,
    weight: npt.ArrayLike,
    time_limit: float = 60.0,
    tolerance: float = 1e-7,
) -> GangSolution:
    """Maximise Σ_l n_l q_l over the feasible placements.

    Parameters
    ----------
    weight : array of shape [L]
        n_l, zero or larger; arrivals x_l for the optimum of a slot.
    time_limit : float
        Seconds for all rounds together. An answer that ran out of time is feasible, and its
        ``bound`` holds.
    tolerance : float
        Stop when the gap is at most this, relative to the value.

    Returns
    -------
    GangSolution

    Raises
    ------
    ScenarioError
        When the weights do not fit the job types.

    Examples
    --------
    Four GPUs, two gangs that need three each; the second gains more:

    >>> from gangwise import Channels, Cluster
    >>> from gangwise.gain_overhead import Utilities
    >>> problem = GangProblem(
    ...     Cluster(np.array([[4.0]]), ("gpu",)),
    ...     task_job_type=np.array([0, 0, 1]),
    ...     task_requests=np.array([[1.0], [1.0], [3.0]]),
    ...     minimum=np.array([2, 1]),
    ...     channels=Channels.of_mask(np.ones((2, 1), dtype=bool)),
    ...     utilities=Utilities.of("linear", [[1.0]]),
    ...     overhead=np.array([0.5]),
    ... )
    >>> solution = solve(problem, [1, 1])
    >>> solution.placement, round(solution.value, 9)
    (array([-1, -1,  0]), 1.5)
    """
    n = np.asarray(weight, dtype=np.float64)
    if n.shape != (problem.L,) or not (np.isfinite(n) & (n >= 0)).all():
        raise ScenarioError(f"weights must be {problem.L} numbers, zero or larger; got {n}")
    programme = GangProgramme(problem, n)
    nothing = np.full(problem.Q, -1, dtype=np.int64)
    best, value, bound, rounds = nothing, 0.0, _crude_bound(problem, n), 0
    if not programme.columns:
        return GangSolution(nothing, 0.0, 0.0, 0)
    deadline = time.monotonic() + time_limit
    while True:
        left = deadline - time.monotonic()
        if left <= 0 and rounds:
            break
        rounds += 1
        placement, upper = programme.run(left, tolerance / 2)
        bound = min(bound, upper)
        if placement is None:
            break
        gain, overhead = problem.by_job_type(placement)
        worth = float(n @ (gain - overhead))
        if worth > value:
            best, value = placement, worth
        if bound - value <= tolerance * (1.0 + abs(value)) or not programme.refine(placement):
            break
    return GangSolution(best, value, max(bound, value), rounds)


def _crude_bound(problem: GangProblem, weight: Floats) -> float:
    """Every task alone on its best server, without overhead: f is concave and starts at zero."""
    best = np.zeros(problem.Q)
    for q, r in zip(*np.nonzero(problem.fits)):
        alone = problem.utilities.each(
            "value", problem.task_requests[q], problem.utilities.kind[r], problem.utilities.alpha[r]
        )
        best[q] = max(best[q], float(alone.sum()))
    return float(weight[problem.task_job_type] @ best)
