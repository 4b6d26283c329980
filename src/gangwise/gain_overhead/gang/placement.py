"""Whole tasks on servers: the state that all gang policies share.

The baselines differ in the order of tasks, in where a turn ends, and in how servers are scored;
the routine that places, rolls back incomplete gangs and offers their room again is one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.gain_overhead.gang.gains import GainTable, gain_table
from gangwise.gain_overhead.gang.problem import GangProblem
from gangwise.kernels.gang import Gangs, Held, in_order, job_reward
from gangwise.kernels.gang_search import follow, greedy, improve, recall

__all__ = ["Placement", "job_by_job", "round_robin", "server_size"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def server_size(problem: GangProblem) -> Floats:
    """Capacity of each server, each device type in units of the largest server's; shape [R].

    It breaks ties between servers, so that decisions do not depend on what servers are called.
    """
    capacity = problem.cluster.capacity
    largest = np.maximum(capacity.max(axis=0), np.finfo(float).tiny)
    return np.asarray((capacity / largest).sum(axis=1))


def job_by_job(problem: GangProblem, jobs: Ints) -> tuple[Ints, Ints]:
    """Tasks of the jobs one job after the other, and where each job's turn ends."""
    tasks = [np.arange(problem.first[l], problem.first[l + 1]) for l in jobs.tolist()]
    order = np.concatenate([np.empty(0, dtype=np.int64), *tasks])
    return order, np.cumsum(np.diff(problem.first)[jobs])


def round_robin(problem: GangProblem, jobs: Ints) -> tuple[Ints, Ints]:
    """The first task of each job, then the second, and so on, in one turn."""
    order, _ = job_by_job(problem, jobs)
    rank = order - problem.first[problem.task_job_type[order]]
    return order[np.argsort(rank, kind="stable")], np.array([order.size])


@dataclass(eq=False)
class Placement:
    """Tasks on servers, and the ways to put them there.

    Parameters
    ----------
    problem : GangProblem
    weighs_gains : bool
        Whether gains are tabulated; what only :meth:`in_order` needs does without.
    """

    problem: GangProblem
    weighs_gains: bool = True
    gangs: Gangs = field(init=False, repr=False)
    held: Held = field(init=False, repr=False)

    def __post_init__(self) -> None:
        p = self.problem
        R, K = p.cluster.capacity.shape
        E, Q, L = len(p.channels), p.Q, p.L
        none = GainTable(np.zeros(Q, np.int64), np.zeros(E, np.int64), np.zeros(1))
        task, server = np.nonzero(p.fits)
        self.gangs = Gangs(
            p.task_job_type, p.first, p.minimum, p.task_requests,
            np.searchsorted(task, np.arange(Q + 1)),
            p.channel_of[p.task_job_type[task], server],
            p.channels.server, server_size(p), p.cluster.capacity, p.overhead,
            *(gain_table(p) if self.weighs_gains else none),
        )  # fmt: skip
        self.held = Held(
            np.empty(Q, np.int64), np.empty((R, K)), np.empty((L, K)), np.empty(L, np.int64),
            np.empty(E, np.int64), np.empty(Q, np.int64),
        )  # fmt: skip
        self._worth, self._out = np.empty(L), np.empty(L, np.int64)
        self.reset()

    def reset(self) -> None:
        """Empty servers."""
        self.held.channel.fill(-1)
        self.held.left[:] = self.problem.cluster.capacity
        for array in (self.held.total, self.held.placed, self.held.state):
            array.fill(0)

    def decision(self) -> Ints:
        """Server of each task, -1 for none; shape [Q]."""
        e = self.held.channel
        return np.where(e >= 0, self.problem.channels.server[e], -1)

    def in_order(self, order: Ints, ends: Ints, sign: float, preference: Floats) -> Ints:
        """Place tasks one by one on empty servers and return the decision.

        Parameters
        ----------
        order : ndarray of int64
            Tasks.
        ends : ndarray of int64
            Where turns end in ``order``. At the end of a turn incomplete gangs are rolled back,
            the one furthest from its minimum first, and their room is offered to the tasks of the
            turn that found no place.
        sign : float
            1 for the most used server that has room, -1 for the least used, 0 for neither.
        preference : ndarray of shape [R]
            Larger is better where servers tie.
        """
        self.reset()
        in_order(self.gangs, self.held, order, ends, sign, preference, self._out)
        return self.decision()

    def greedy(self, arrivals: Ints) -> None:
        """Launch gangs, the one with the largest reward first, in the room that is left."""
        greedy(self.gangs, self.held, arrivals, self._worth)

    def follow(self, arrivals: Ints, plan: Floats, least: float) -> None:
        """Round a fractional plan [E, K] to whole gangs; ``least`` is how much it must cover."""
        follow(self.gangs, self.held, arrivals, np.array(plan), least)

    def recall(self, arrivals: Ints, memory: Ints, worth: Floats) -> None:
        """Place gangs on remembered channels [Q], those of the largest worth [L] first."""
        recall(self.gangs, self.held, arrivals, memory, worth)

    def rewards(self) -> Floats:
        """Gain minus overhead of what each job type holds, shape [L]."""
        return np.array([job_reward(self.gangs, self.held, l) for l in range(self.problem.L)])

    def improve(self, arrivals: Ints, passes: int) -> int:
        """Rebuild jobs, one and two at a time, where that raises the reward; returns how often."""
        helped: int = improve(self.gangs, self.held, arrivals, passes)
        return helped
