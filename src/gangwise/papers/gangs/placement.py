"""Gang placement: whole tasks on servers, by list scheduling, greedily, or under prices.

:class:`Placement` is the state that all gang policies share. The baselines differ in the order of
tasks, in where a turn ends, and in how servers are scored; the routine that places, rolls back
incomplete gangs and offers their room again is one, list scheduling.

:class:`FastGangs` places by Lagrangian prices: they are raised where too many tasks want a server
(:mod:`gangwise.papers.gangs.kernels`); on the way gangs are placed under them, and the best
placement is improved by local search. The square root of ESDP (12) is taken care of by tangents:
√Y ≤ q/2 + Y/(2q), so for a given q the worth of a task is w_e = v_e + s_e/(2q), and q = √(Σ s n) of
the answer gives the next one. The best is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints, read_only
from gangwise.core.errors import ScenarioError
from gangwise.core.jit import kernel
from gangwise.papers.gain_overhead.problem import relative_size
from gangwise.papers.gangs import kernels
from gangwise.papers.gangs.kernels import Allocation, GangArrays, clear, fits, job_reward, put
from gangwise.papers.gangs.milp import ExactGangs
from gangwise.papers.gangs.problem import GangPlacementProblem, GangProblem, GangSpeedsProblem

# List scheduling, and the allocate action of Volcano


@kernel
def used_share(g: GangArrays, h: Allocation, r: int) -> float:
    """Mean over the device types that a server has of the share handed out."""
    used, kinds = 0.0, 0
    for k in range(g.beta.size):
        if g.capacity[r, k] > 0.0:
            used += 1.0 - h.left[r, k] / g.capacity[r, k]
            kinds += 1
    return used / kinds if kinds > 0 else 0.0


@kernel
def filled_share(g: GangArrays, h: Allocation, q: int, r: int) -> float:
    """Mean over the device types that a task requests of the share handed out with it there."""
    share, kinds = 0.0, 0
    for k in range(g.beta.size):
        if g.request[q, k] > 0.0:
            share += (g.capacity[r, k] - h.left[r, k] + g.request[q, k]) / g.capacity[r, k]
            kinds += 1
    return share / kinds


@kernel
def best_server(
    g: GangArrays, h: Allocation, q: int, sign: float, filled: bool, preference: Floats
) -> int:
    """Channel with room for a task: largest ``sign`` · share, then largest ``preference`` [R].

    The share is :func:`filled_share` or, unless ``filled``, :func:`used_share`.
    """
    best, top = -1, 0.0
    for i in range(g.pair_first[q], g.pair_first[q + 1]):
        e = g.pair_channel[i]
        r = g.server[e]
        if not fits(g, h, q, e):
            continue
        score = 0.0
        if sign != 0.0:
            score = sign * (filled_share(g, h, q, r) if filled else used_share(g, h, r))
        if best < 0 or score > top or (score == top and preference[r] > preference[g.server[best]]):
            best, top = e, score
    return best


@kernel
def list_schedule(
    g: GangArrays,
    h: Allocation,
    order: Ints,
    ends: Ints,
    sign: float,
    filled: bool,
    preference: Floats,
) -> None:
    """List scheduling of gangs: the tasks of ``order`` one by one, in turns that end at ``ends``.

    At the end of a turn the job furthest from its minimum is rolled back for good, and its room is
    offered to the tasks of the turn that found no place; this repeats until all jobs that are left
    can be launched. Servers are chosen by :func:`best_server`.
    """
    rolled_back = np.zeros(g.minimum.size, dtype=np.bool_)
    begin = 0
    for turn in range(ends.size):
        while True:
            for i in range(begin, ends[turn]):
                q = order[i]
                if h.channel[q] < 0 and not rolled_back[g.job_type[q]]:
                    e = best_server(g, h, q, sign, filled, preference)
                    if e >= 0:
                        put(g, h, q, e)
            # The job furthest from its minimum; of several the last in the turn.
            worst, furthest = -1, 1.0
            for i in range(begin, ends[turn]):
                l = g.job_type[order[i]]
                share = h.placed[l] / g.minimum[l]
                if not rolled_back[l] and (share < furthest or (share == furthest and share < 1.0)):
                    worst, furthest = l, share
            if worst < 0:
                break
            rolled_back[worst] = True  # for good, so that the loop ends after at most L rounds
            clear(g, h, worst)
        begin = ends[turn]


@kernel
def first_in_queue(g: GangArrays, h: Allocation, done: Bools, priority: Ints, total: Floats) -> int:
    """Volcano's first job: one short of its minimum, then by priority, then by dominant share."""
    job, best = -1, (True, 0, 0.0)
    for l in range(g.minimum.size):
        if done[l]:
            continue
        share = 0.0
        for k in range(total.size):
            if total[k] > 0.0:
                share = max(share, h.total[l, k] / total[k])
        key = (bool(h.placed[l] >= g.minimum[l]), -priority[l], share)
        if job < 0 or key < best:  # of equals the one listed first stays
            job, best = l, key
    return job


@kernel
def volcano_allocate(
    g: GangArrays, h: Allocation, priority: Ints, arrivals: Ints, total: Floats, sign: float
) -> None:
    """Volcano's allocate: a queue of jobs, taken up again once they have their minimum.

    The first of the queue (:func:`first_in_queue`, with ``priority`` [L] and shares of ``total``
    [K]) places tasks until it is ready, that is, has its minimum; a ready job places one. A task
    that finds no room ends its job, which keeps what it holds only if it is ready.
    """
    finished = arrivals == 0
    while True:
        job = first_in_queue(g, h, finished, priority, total)
        if job < 0:
            break
        for q in range(g.first[job], g.first[job + 1]):
            if h.channel[q] >= 0:
                continue
            e = best_server(g, h, q, sign, True, g.size)
            if e < 0:
                finished[job] = True
                break
            put(g, h, q, e)
            if h.placed[job] >= g.minimum[job]:
                break  # ready: back into the queue, where jobs that are not go first
        if h.placed[job] < g.minimum[job]:
            clear(g, h, job)
            finished[job] = True
        elif h.placed[job] == g.first[job + 1] - g.first[job]:
            finished[job] = True


# Placement


def job_by_job(problem: GangPlacementProblem, jobs: Ints) -> tuple[Ints, Ints]:
    """Job-by-job order: the tasks of one job, then of the next, and where each job's turn ends."""
    tasks = [np.arange(problem.first[l], problem.first[l + 1]) for l in jobs.tolist()]
    order = np.concatenate([np.empty(0, dtype=np.int64), *tasks])
    return order, np.cumsum(np.diff(problem.first)[jobs])


def round_robin(problem: GangPlacementProblem, jobs: Ints) -> tuple[Ints, Ints]:
    """Round-robin order: the first task of each job, then the second, and so on, in one turn."""
    order, _ = job_by_job(problem, jobs)
    rank = order - problem.first[problem.task_job_type[order]]
    return order[np.argsort(rank, kind="stable")], np.array([order.size])


LARGEST_TABLE = 1 << 23  # entries of 8 bytes in the largest gain table that is built


class GainTable(NamedTuple):
    """Gains Σ_k f_r^k(Σ a^k) of sets of tasks: what a job gains on a server, by table.

    Tasks of a job type with the same requests are alike, so a set is a count of each kind of task,
    and its place in the table a number in mixed radix: a gang of 32 equal workers and one parameter
    server has 33 · 2 sets, not 2³³. A marginal gain is then a difference of two entries, whatever
    the utilities are.
    """

    stride: Ints  # [Q] what a task adds to the number of the set that it joins
    offset: Ints  # [E] where the sets of each channel begin in ``value``
    value: Floats  # [N] gain of each set; 0 for the empty one


def gain_table(problem: GangProblem) -> GainTable:
    """Gain table of a problem; ScenarioError names a job type that makes it too large."""
    stride = np.zeros(problem.Q, dtype=np.int64)
    sums: list[Floats] = []  # of each job type: the devices that each set of its tasks holds
    degree = np.bincount(problem.channels.job_type, minlength=problem.L)
    entries = 0
    for l in range(problem.L):
        tasks = slice(problem.first[l], problem.first[l + 1])
        kinds, kind_of, count = np.unique(
            problem.task_requests[tasks], axis=0, return_inverse=True, return_counts=True
        )
        radix = (count + 1).tolist()
        sets = math.prod(radix)
        entries += sets * int(degree[l])  # utilities differ by server, so a table per channel
        if entries > LARGEST_TABLE:
            raise ScenarioError(
                f"job type {problem.job_types[l]!r} has {len(count)} different kinds of task, "
                f"which may come together on a server in {sets} ways; give more of its tasks the "
                "same requests, or use a policy that does not weigh gains, such as gang-drf"
            )
        # Mixed radix: one more task of a kind moves on by the product of the radices before it.
        stride[tasks] = np.cumprod([1, *radix[:-1]])[kind_of.ravel()]
        total = np.zeros((1, kinds.shape[1]))
        for kind, n in zip(kinds, radix):
            total = (np.arange(n)[:, None, None] * kind + total).reshape(-1, kinds.shape[1])
        sums.append(total)
    u, gains = problem.utilities, []
    for l, r in zip(problem.channels.job_type, problem.channels.server):
        utility = (np.broadcast_to(kind_of[r], sums[l].shape) for kind_of in (u.kind, u.alpha))
        gains.append(u.each("value", sums[l], *utility).sum(axis=1))
    sizes = np.array([gain.size for gain in gains], dtype=np.int64)
    return GainTable(stride, np.cumsum(sizes) - sizes, np.concatenate(gains))


@dataclass(eq=False)
class Placement:
    """Tasks on servers, and the ways to put them there.

    Parameters
    ----------
    weighs_gains : bool
        Whether the gains of a :class:`GangProblem` are tabulated; list scheduling and placing by
        worth do without.
    """

    problem: GangPlacementProblem
    weighs_gains: bool = True
    arrays: GangArrays = field(init=False, repr=False)
    held: Allocation = field(init=False, repr=False)

    def __post_init__(self) -> None:
        p = self.problem
        R, K = p.cluster.capacity.shape
        E, Q, L = p.E, p.Q, p.L
        # One entry that is 0 stands for no table: kernels add its differences, which are 0 as well.
        gains = GainTable(np.zeros(Q, np.int64), np.zeros(E, np.int64), np.zeros(1))
        overhead, cost = np.zeros(K), np.zeros(Q)
        if isinstance(p, GangProblem):
            overhead = p.overhead
            gains = gain_table(p) if self.weighs_gains else gains
        if isinstance(p, GangSpeedsProblem):
            cost = p.task_cost
        task, server = np.nonzero(p.fits)
        arrays = (
            p.task_job_type,
            p.first,
            p.minimum,
            p.task_requests,
            cost,
            np.searchsorted(task, np.arange(Q + 1)),
            p.channel_of[p.task_job_type[task], server],
            p.channels.server,
            relative_size(p.cluster.capacity),
            p.cluster.capacity,
            overhead,
            *gains,
        )
        self.arrays = GangArrays(*map(read_only, arrays))
        channel, placed, state, saved = (np.empty(n, np.int64) for n in (Q, L, E, Q))
        used, total = np.empty((R, K)), np.empty((L, K))
        self.held = Allocation(channel, used, total, placed, state, saved)
        self.reset()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """From a pickle, which does not keep that arrays are not to be written."""
        vars(self).update(state, arrays=GangArrays(*map(read_only, state["arrays"])))

    @classmethod
    def by_size(cls, problem: GangPlacementProblem) -> Placement:
        """Empty servers, gone through largest first whatever they are called."""
        servers = cls(problem, weighs_gains=False)
        rank = np.argsort(problem.server_order)
        g = servers.arrays
        task = np.repeat(np.arange(problem.Q), np.diff(g.pair_first))
        order = np.lexsort((rank[g.server[g.pair_channel]], task))
        servers.arrays = g._replace(pair_channel=read_only(g.pair_channel[order]))
        return servers

    def reset(self) -> None:
        self.held.channel.fill(-1)
        self.held.left[:] = self.problem.cluster.capacity
        for array in (self.held.total, self.held.placed, self.held.state):
            array.fill(0)

    def decision(self) -> Ints:
        """Server of each task, -1 for none; shape [Q]."""
        e = self.held.channel
        return np.where(e >= 0, self.problem.channels.server[e], -1)

    def list_schedule(
        self, order: Ints, ends: Ints, sign: float, preference: Floats, filled: bool = False
    ) -> Ints:
        """List scheduling: place the tasks of ``order`` on empty servers and return the decision.

        Turns end at ``ends``: incomplete gangs are then rolled back, and their room is offered to
        the others (:func:`list_schedule`). ``sign`` is 1 for the most used
        server that has room, -1 for the least used, 0 for neither; if ``filled``, use counts the
        task itself, over the device types that it requests. Ties go by ``preference`` [R].
        """
        self.reset()
        list_schedule(self.arrays, self.held, order, ends, sign, filled, read_only(preference))
        return self.decision()

    def greedy(self, arrivals: Ints) -> None:
        """Greedy: launch the gang with the largest reward, again and again, in the room left."""
        kernels.greedy(self.arrays, self.held, read_only(arrivals))

    def round_plan(self, arrivals: Ints, plan: Floats, least: float) -> None:
        """Rounding: a fractional plan [E, K] to whole gangs; it must cover ``least`` of a task."""
        kernels.round_plan(self.arrays, self.held, read_only(arrivals), plan, least)

    def place_remembered(self, arrivals: Ints, memory: Ints, worth: Floats) -> None:
        """Place gangs on remembered channels [Q], those of the largest worth [L] first."""
        order = np.argsort(-worth, kind="stable")
        kernels.place_remembered(self.arrays, self.held, order[arrivals[order] != 0], memory)

    def rewards(self) -> Floats:
        """Gain minus overhead of what each job type holds, shape [L]."""
        return np.array([job_reward(self.arrays, self.held, l) for l in range(self.problem.L)])

    def local_search(self, arrivals: Ints, passes: int) -> int:
        """Rebuild one and two jobs where that raises the reward; returns how often it did."""
        if not passes:
            return 0
        active = read_only(arrivals)
        helped: int = kernels.local_search(self.arrays, self.held, active, passes)
        return helped


class FastGangs:
    """Lagrangian placement of gangs: subgradient prices, then local search.

    Parameters
    ----------
    passes : int
        How often to go over all jobs and rebuild them where that is worth it, at most.
    steps : int
        Price steps; a placement is made at every fourth.
    """

    TANGENTS = 2
    """How many are tried, at most."""

    def __init__(self, problem: GangSpeedsProblem, passes: int = 1, steps: int = 60):
        self.problem, self.passes, self.steps = problem, passes, steps
        # Servers get an order of their own, so that even the last bits do not depend on what they
        # are called. Of tasks worth the same the kernels take the first: let that be the smallest.
        self._order = problem.server_order
        inner, self._before = problem.relabelled(self._order)
        # Sorted within each job type, since its tasks must stay next to each other.
        size = relative_size(problem.cluster.capacity, problem.task_requests)
        self._rank = np.lexsort((size, problem.task_cost, problem.task_job_type))
        inner = replace(
            inner,
            task_requests=inner.task_requests[self._rank],
            task_cost=inner.task_cost[self._rank],
        )
        self._servers = Placement(inner)

    def linear(self, worth: Floats, arrivals: Ints) -> Ints:
        """A placement of large Σ w_e n_e − Σ d_q for ``worth`` [E]: server of each task, or -1."""
        return self.bounded(worth, arrivals)[0]

    def bounded(self, worth: Floats, arrivals: Ints) -> tuple[Ints, float]:
        """The same, and a bound that Σ w_e n_e − Σ d_q of no placement exceeds."""
        servers = self._servers
        g, h = servers.arrays, servers.held
        servers.reset()
        arrivals, worth = read_only(arrivals), np.ascontiguousarray(worth[self._before])
        bound, price = kernels.price_search(g, h, arrivals, worth, self.steps)
        if self.passes:
            kernels.insert_tasks(g, h, arrivals, worth, price, self.passes)
            kernels.rebuild_pairs(g, h, arrivals, worth, price, self.passes)
        # Back to the caller's tasks and servers.
        placement = np.empty(self.problem.Q, dtype=np.int64)
        inner = servers.decision()
        placement[self._rank] = np.where(inner >= 0, self._order[inner], -1)
        return placement, max(bound, kernels.total(g, h, worth, 0, self.problem.Q))

    def solve(self, value: Floats, width: Floats, arrivals: Ints) -> Ints:
        """A placement of large Σ v n + √(Σ s n) − Σ d; widths [E] are zero or larger."""
        if not width.any():
            return self.linear(value, arrivals)
        best, top = np.full(self.problem.Q, -1, dtype=np.int64), 0.0
        # The tangent at q makes the root linear; the answer's own √(Σ s n) is the next q.
        worth = value + np.sqrt(width)  # one task alone
        for _ in range(self.TANGENTS):
            placement = self.linear(worth, arrivals)
            n = self.problem.count(placement)
            spread = float(np.sqrt(width @ n))
            reached = float(value @ n) + spread - self.problem.paid(placement)
            if reached <= top * (1 + 1e-12):  # the next tangent would only lead back here
                break
            best, top = placement, reached
            if spread == 0.0:
                break
            worth = value + width / (2.0 * spread)
        return best


class GangSolver:
    """Solver of the gang form of P3(t): exact where the programme is small, else fast.

    Parameters
    ----------
    how : {"auto", "exact", "fast"}
        ``auto`` is exact when the programme has at most ``columns`` whole-number columns. Seconds
        do not decide, because the same run must be the same on every machine; the default is what
        takes some 10 ms a slot.
    passes : int
        See :class:`FastGangs`.
    """

    NODES = 200
    """Nodes that an exact answer may take in a round; then the better of both ways is played."""

    def __init__(
        self, problem: GangSpeedsProblem, how: str = "auto", columns: int = 24, passes: int = 1
    ):
        self.fast = FastGangs(problem, passes)
        self.exact = ExactGangs(problem, 1e-6, self.NODES) if how != "fast" else None
        if how == "auto" and self.exact is not None and self.exact.size > columns:
            self.exact = None

    def solve(self, value: Floats, width: Floats, arrivals: Ints) -> Ints:
        """Server of each task, -1 for none; shape [Q]."""
        # A good placement to begin with lets the exact programme prune most of its tree.
        start = self.fast.solve(value, width, arrivals)
        if self.exact is None:
            return start
        return self.exact.solve(value, width, arrivals, start=start).placement
