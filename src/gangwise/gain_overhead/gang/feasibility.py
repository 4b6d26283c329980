"""Whether a placement keeps the rules of :mod:`gangwise.gain_overhead.gang.problem`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import InfeasibleDecision
from gangwise.gain_overhead.problem import TOLERANCE

if TYPE_CHECKING:
    from gangwise.gain_overhead.gang.problem import GangProblem

__all__ = ["require_feasible"]

Ints = npt.NDArray[np.int64]


def require_feasible(
    problem: GangProblem,
    arrived: npt.NDArray[np.generic],
    placement: npt.NDArray[np.generic],
    slot: int | None = None,
) -> Ints:
    """Return the placement as whole numbers when it is feasible.

    Raises
    ------
    InfeasibleDecision
        For a server that does not exist or is no channel of the job type, a task of a job that did
        not arrive, a gang with fewer tasks than its minimum, or a server that is handed out beyond
        its capacity (by more than a relative 1e-9).
    """
    at = "" if slot is None else f"slot {slot}: "
    if placement.shape != (problem.Q,) or arrived.shape != (problem.L,):
        raise InfeasibleDecision(
            f"{at}the decision has shape {placement.shape} for arrivals of shape {arrived.shape}; "
            f"expected a server for each of {problem.Q} tasks and {problem.L} job types"
        )
    if placement.dtype.kind not in "iu":
        raise InfeasibleDecision(
            f"{at}the decision holds {placement.dtype} values; expected a whole number for each "
            "task: its server, or -1"
        )
    where = placement.astype(np.int64)
    _channels(problem, where, at)
    count = np.bincount(problem.task_job_type[where >= 0], minlength=problem.L)
    uncalled = np.flatnonzero((count > 0) & (arrived == 0))
    if uncalled.size:
        l = int(uncalled[0])
        q = int(np.flatnonzero((problem.task_job_type == l) & (where >= 0))[0])
        raise InfeasibleDecision(
            f"{at}{problem.task_name(q)} is placed on server "
            f"{problem.cluster.servers[where[q]]!r}, but no such job arrived"
        )
    broken = np.flatnonzero((count > 0) & (count < problem.minimum))
    if broken.size:
        l = int(broken[0])
        raise InfeasibleDecision(
            f"{at}job type {problem.job_types[l]!r} has {count[l]} of its tasks placed and needs "
            f"at least {problem.minimum[l]} to be launched; place more or none"
        )
    _capacity(problem, where, at)
    return where


def _channels(problem: GangProblem, where: Ints, at: str) -> None:
    R = problem.channels.shape[1]
    out = np.flatnonzero((where < -1) | (where >= R))
    if out.size:
        q = int(out[0])
        raise InfeasibleDecision(
            f"{at}{problem.task_name(q)} is placed on server number {where[q]}; there are {R}, "
            "counted from 0, and -1 stands for none"
        )
    placed = np.flatnonzero(where >= 0)
    channel = problem.channel_of[problem.task_job_type[placed], where[placed]]
    astray = placed[channel < 0]
    if astray.size:
        q = int(astray[0])
        raise InfeasibleDecision(
            f"{at}{problem.task_name(q)} is placed on server "
            f"{problem.cluster.servers[where[q]]!r}, to which its job type has no channel"
        )


def _capacity(problem: GangProblem, where: Ints, at: str) -> None:
    capacity = problem.cluster.capacity
    used = problem.handed_out(where)
    over = np.argwhere(used > capacity + TOLERANCE * (1.0 + capacity))
    if len(over):
        r, k = (int(i) for i in over[0])
        there = np.flatnonzero((where == r) & (problem.task_requests[:, k] > 0))
        names = ", ".join(problem.task_name(int(q)) for q in there[:4])
        more = f" and {there.size - 4} more" if there.size > 4 else ""
        raise InfeasibleDecision(
            f"{at}server {problem.cluster.servers[r]!r} has {capacity[r, k]:g} of device type "
            f"{problem.cluster.devices[k]!r}, and {used[r, k]:.12g} were handed out, to "
            f"{names}{more}"
        )
