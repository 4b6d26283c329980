"""What makes a gang problem ill-formed, in words that say where and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gangwise.gain_overhead.gang.problem import GangProblem

__all__ = ["first_fault"]


def first_fault(p: GangProblem) -> str | None:
    """What is wrong with a problem, or None."""
    return _shapes(p) or _tasks(p) or _minimum(p) or _room(p)


def _shapes(p: GangProblem) -> str | None:
    R, K = p.cluster.capacity.shape
    L = p.minimum.size
    if p.minimum.ndim != 1 or not L:
        return f"minimum has shape {p.minimum.shape}; expected one number for each job type"
    if len(p.job_types) != L or len(set(p.job_types)) != L:
        return f"{L} job types need {L} different names; got {len(set(p.job_types))}"
    tasks = p.task_job_type.shape
    if len(tasks) != 1 or p.task_requests.shape != (*tasks, K):
        return (
            f"task_job_type has shape {tasks} and task_requests {p.task_requests.shape}; expected "
            f"one job type for each task and a table of tasks by {K} device types"
        )
    if p.channels.shape != (L, R):
        return f"channels connect {p.channels.shape} job types and servers; there are ({L}, {R})"
    if p.utilities.kind.shape != (R, K):
        return (
            f"utilities are given for {p.utilities.kind.shape} servers and device types; the "
            f"cluster has ({R}, {K})"
        )
    beta = p.overhead
    if beta.shape != (K,) or not (np.isfinite(beta) & (beta >= 0)).all():
        return f"overhead coefficients must be {K} finite numbers, zero or larger; got {beta}"
    return None


def _tasks(p: GangProblem) -> str | None:
    of, L = p.task_job_type, p.minimum.size
    if of.size and (of.min() < 0 or of.max() >= L):
        q = int(np.flatnonzero((of < 0) | (of >= L))[0])
        return f"task_job_type[{q}] is {of[q]}; there are {L} job types, counted from 0"
    back = np.flatnonzero(np.diff(of) < 0)
    if back.size:
        q = int(back[0]) + 1
        return (
            f"task_job_type[{q}] is {of[q]} after {of[q - 1]}; list the tasks job type by job type"
        )
    without = np.flatnonzero(np.bincount(of, minlength=L) == 0)
    if without.size:
        return f"job type {p.job_types[without[0]]!r} has no tasks; give it one or leave it out"
    bad = np.argwhere(~(np.isfinite(p.task_requests) & (p.task_requests >= 0)))
    if len(bad):
        q, k = (int(i) for i in bad[0])
        return (
            f"{p.task_name(q)}: request of device type {p.cluster.devices[k]!r} is "
            f"{p.task_requests[q, k]}; it must be a finite number, zero or larger"
        )
    empty = np.flatnonzero(~(p.task_requests > 0).any(axis=1))
    if empty.size:
        return f"{p.task_name(int(empty[0]))} requests no devices at all; leave it out"
    return None


def _minimum(p: GangProblem) -> str | None:
    tasks = np.bincount(p.task_job_type, minlength=p.minimum.size)
    bad = np.flatnonzero((p.minimum < 1) | (p.minimum > tasks))
    if not bad.size:
        return None
    l = int(bad[0])
    return (
        f"job type {p.job_types[l]!r} needs at least {p.minimum[l]} of its {tasks[l]} tasks; the "
        f"minimum must be 1 to {tasks[l]}"
    )


def _room(p: GangProblem) -> str | None:
    p.channels.require_all_connected(p.job_types)
    alone = np.flatnonzero(~p.fits.any(axis=1))
    if not alone.size:
        return None
    q = int(alone[0])
    servers = np.flatnonzero(p.channel_of[p.task_job_type[q]] >= 0)
    largest = p.cluster.capacity[servers].max(axis=0)
    short = [
        f"{p.task_requests[q, k]:g} of device type {device!r} (the best has {largest[k]:g})"
        for k, device in enumerate(p.cluster.devices)
        if p.task_requests[q, k] > largest[k]
    ] or ["a combination of device types that none of them has"]
    return (
        f"{p.task_name(q)} fits on none of its {servers.size} connected servers: it requests "
        f"{', '.join(short)}; lower the request, split the task, or connect a larger server"
    )
