"""Whole tasks on servers: the state that all gang policies share.

The baselines differ in the order of tasks, in where a turn ends, and in how servers are scored;
the routine that places, rolls back incomplete gangs and offers their room again is one.

Fast placement: prices on devices, gangs placed under them, jobs taken off and built anew.

Prices are raised where too many tasks want a server (:mod:`gangwise.gangs.search`); on the
way gangs are placed under the prices, and the best placement is rearranged, one and two jobs at a
time. The books are kept by the kernels of the other gang family. The square root is taken care of
by tangents: √Y ≤ q/2 + Y/(2q), so for a given q the worth of a task is w_e = v_e + s_e/(2q), and
q = √(Σ s n) of the answer gives the next one. The best is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.gangs.kernels import Gangs, Held, in_order, job_reward
from gangwise.gangs.milp import ExactGangs
from gangwise.gangs.problem import (
    GainTable,
    GangProblem,
    GangSpeedsProblem,
    gain_table,
    relabelled,
    server_order,
)
from gangwise.gangs.search import follow, greedy, improve, insert, rearrange, recall, search, total


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
            p.task_job_type,
            p.first,
            p.minimum,
            p.task_requests,
            np.searchsorted(task, np.arange(Q + 1)),
            p.channel_of[p.task_job_type[task], server],
            p.channels.server,
            server_size(p),
            p.cluster.capacity,
            p.overhead,
            *(gain_table(p) if self.weighs_gains else none),
        )
        self.held = Held(
            np.empty(Q, np.int64),
            np.empty((R, K)),
            np.empty((L, K)),
            np.empty(L, np.int64),
            np.empty(E, np.int64),
            np.empty(Q, np.int64),
        )
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


def ordered(problem: GangSpeedsProblem) -> Placement:
    """Empty servers, gone through in :func:`.problem.server_order` whatever they are called."""
    servers = Placement(problem.gangs, weighs_gains=False)
    rank = np.argsort(server_order(problem))
    g = servers.gangs
    task = np.repeat(np.arange(problem.Q), np.diff(g.pair_first))
    order = np.lexsort((rank[g.server[g.pair_channel]], task))
    servers.gangs = g._replace(pair_channel=g.pair_channel[order])
    return servers


class FastGangs:
    """Place gangs under prices, fill what is left, rebuild jobs one and two at a time.

    Parameters
    ----------
    problem : GangSpeedsProblem
    passes : int
        How often to go over all jobs and rebuild them where that is worth it, at most.
    steps : int
        Price steps; a placement is made at every fourth.
    rounds : int
        How many tangents to try, at most.
    """

    def __init__(
        self, problem: GangSpeedsProblem, passes: int = 1, steps: int = 60, rounds: int = 2
    ):
        if passes < 0 or steps < 0 or rounds < 1:
            raise ScenarioError(
                f"passes is {passes}, steps {steps} and rounds {rounds}; at least 0, 0 and 1"
            )
        self.problem, self.passes, self.steps, self.rounds = problem, passes, steps, rounds
        # Under names of its own, so that even the last bits do not depend on what servers are
        # called; and among tasks worth the same the kernels take the first: let that be small.
        self._order = server_order(problem)
        inner, self._before = relabelled(problem, self._order)
        largest = np.maximum(problem.cluster.capacity.max(axis=0), np.finfo(float).tiny)
        size = (problem.task_requests / largest).sum(axis=1)
        self._rank = np.lexsort((size, problem.task_job_type))
        inner = replace(inner, task_requests=inner.task_requests[self._rank])
        self._servers = Placement(inner.gangs, weighs_gains=False)
        R, K = problem.cluster.capacity.shape
        self._price, self._demand = np.empty((R, K)), np.empty((R, K))
        self._profit, self._best = np.empty(problem.L), np.empty(problem.Q)
        self._where = np.empty(problem.Q, dtype=np.int64)

    def linear(self, worth: Floats, arrivals: Ints) -> Ints:
        """A placement of large Σ w_e n_e for ``worth`` [E]; server of each task, -1 for none."""
        return self.bounded(worth, arrivals)[0]

    def bounded(self, worth: Floats, arrivals: Ints) -> tuple[Ints, float]:
        """The same, and a bound that Σ w_e n_e of no placement exceeds."""
        servers, price = self._servers, self._price
        g, h = servers.gangs, servers.held
        servers.reset()
        worth = np.ascontiguousarray(worth[self._before])
        bound = search(
            g,
            h,
            arrivals,
            worth,
            price,
            self._demand,
            self._profit,
            self._best,
            self._where,
            self.steps,
        )
        if self.passes:
            insert(g, h, arrivals, worth, price, self.passes)
            rearrange(g, h, arrivals, worth, price, 0.5, self.passes)
        placement = np.empty(self.problem.Q, dtype=np.int64)
        inner = servers.decision()
        placement[self._rank] = np.where(inner >= 0, self._order[inner], -1)
        return placement, max(bound, total(h, worth))

    def solve(self, value: Floats, width: Floats, arrivals: Ints) -> Ints:
        """A placement of large Σ v n + √(Σ s n); widths [E] are zero or larger."""
        if not width.any():
            return self.linear(value, arrivals)
        best, top = np.full(self.problem.Q, -1, dtype=np.int64), 0.0
        worth = value + np.sqrt(width)  # one task alone
        for _ in range(self.rounds):
            placement = self.linear(worth, arrivals)
            n = self.problem.count(placement)
            spread = float(np.sqrt(width @ n))
            reached = float(value @ n) + spread
            if reached <= top * (1 + 1e-12):
                break
            best, top = placement, reached
            if spread == 0.0:
                break
            worth = value + width / (2.0 * spread)
        return best


class GangSolver:
    """Exact where the programme is small, fast where it is not, unless told.

    Parameters
    ----------
    problem : GangSpeedsProblem
    how : {"auto", "exact", "fast"}
        ``auto`` is exact when the programme has at most ``columns`` whole-number columns. Seconds
        do not decide, because the same run must be the same on every machine; the default is what
        takes some 10 ms a slot.
    columns : int
        See there.
    passes, rounds : int
        See :class:`FastGangs`.
    """

    NODES = 200
    """Nodes that an exact answer may take in a round; then the better of both ways is played."""

    def __init__(
        self,
        problem: GangSpeedsProblem,
        how: str = "auto",
        columns: int = 24,
        passes: int = 1,
        rounds: int = 2,
    ):
        if how not in ("auto", "exact", "fast"):
            raise ScenarioError(f"solver is auto, exact or fast, not {how!r}")
        self.fast = FastGangs(problem, passes, rounds=rounds)
        self.exact = ExactGangs(problem, 1e-6, self.NODES) if how != "fast" else None
        if how == "auto" and self.exact is not None and self.exact.size > columns:
            self.exact = None

    def solve(self, value: Floats, width: Floats, arrivals: Ints) -> Ints:
        """Server of each task, -1 for none; shape [Q]."""
        if self.exact is None:
            return self.fast.solve(value, width, arrivals)
        start = self.fast.solve(value, width, arrivals)
        return self.exact.solve(value, width, arrivals, start=start).placement
