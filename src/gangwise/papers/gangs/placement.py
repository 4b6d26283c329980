"""Gang placement: whole tasks on servers, by list scheduling, greedily, under prices, or exactly.

:class:`Placement` is the state that all gang policies share. The baselines differ in the order of
tasks, in where a turn ends, and in how servers are scored; the routine that places, rolls back
incomplete gangs and offers their room again is one, list scheduling.

:class:`FastGangs` places by Lagrangian prices: they are raised where too many tasks want a server
(:mod:`gangwise.papers.gangs.kernels`); on the way gangs are placed under them, and the best
placement is improved by local search. The square root of ESDP (12) is taken care of by tangents:
√Y ≤ q/2 + Y/(2q), so for a given q the worth of a task is w_e = v_e + s_e/(2q), and q = √(Σ s n) of
the answer gives the next one. The best is kept.

Exactly they are placed by one mixed-integer programme for both families, solved round by round.

    maximise    worth(z)
    subject to  Σ_r z_(i,r) ≤ |i| y_l,   Σ_{i,r} z_(i,r) ≥ m_l y_l,   y_l ≤ 𝟙_l(t),
                Σ_i a_(i,k) z_(i,r) ≤ c_(r,k),

where i runs over the *kinds* of tasks of job type l (tasks that request and cost the same are
alike, and |i| is how many there are), z_(i,r) is a whole number of tasks and y_l is binary: the
rules of :mod:`gangwise.papers.gangs.problem` with equal tasks merged.

What a placement is worth is an :data:`Objective`: concave in z, and put below tangents in columns
of its own. The programme with finitely many tangents is an upper bound; where its answer claims
more than it is worth, a tangent is added there, and the next round begins, until the two agree.

Servers enter in the order of :attr:`.problem.GangPlacementProblem.server_order`, so the same
problem under other server names is the same programme to the last bit, and has the same answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import highspy
import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Bools, Floats, Ints, read_only
from gangwise.core.errors import GangwiseError, ScenarioError
from gangwise.core.jit import kernel
from gangwise.papers.gain_overhead.problem import relative_size
from gangwise.papers.gangs import kernels
from gangwise.papers.gangs.kernels import Allocation, GangArrays, clear, fits, job_reward, put
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
            # As if the task were there: a server that it would fill counts as full.
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
        # Without a sign all scores are alike, and the preference decides alone: first fit in its
        # order.
        score = 0.0
        if sign != 0.0:
            score = sign * (filled_share(g, h, q, r) if filled else used_share(g, h, r))
        # A strict comparison: of full equals the first channel stays, which is the first server.
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
                # In units of its own minimum, so that large gangs and small ones compare.
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
        # Tuples compare from the left, and False before True: not ready, priority, share.
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
            # Row i is the set with number i: later kinds vary slowest, as their strides are larger.
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
        """Restore from a pickle, which does not keep that arrays are read-only."""
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


# Exact placement


FEASIBILITY = 1e-9  # by how much, in HiGHS's scaling, a row is exceeded or a whole column is off

HAS_FEASIBLE_POINT = 2  # kSolutionStatusFeasible, which highspy gives as a number

Constraint = tuple[npt.ArrayLike, npt.ArrayLike, float]
"""Columns, their factors, and what their sum may be at most."""


@dataclass(frozen=True, eq=False)
class Constraints:
    """Constraints A x ≤ b, row by row (compressed sparse rows).

    Row i has the entries start[i] … start[i + 1] − 1 of ``column`` and ``factor``; b is ``most``.
    """

    start: Ints
    column: Ints
    factor: Floats
    most: Floats

    @classmethod
    def of(cls, rows: Iterable[Constraint]) -> Constraints:
        """From rows one by one.

        >>> Constraints.of([([0, 1], [1.0, 1.0], 1.0), ([1], [2.0], 3.0)]).start
        array([0, 2, 3])
        """
        listed = [(np.asarray(c, dtype=np.int64), np.asarray(f), most) for c, f, most in rows]
        # In front, so that no rows at all give arrays of the right types.
        none = np.empty(0)
        return cls(
            np.cumsum([0, *[c.size for c, _, _ in listed]]),
            np.concatenate([none.astype(np.int64), *[c for c, _, _ in listed]]),
            np.concatenate([none, *[f for _, f, _ in listed]]),
            np.array([most for *_, most in listed], dtype=np.float64),
        )

    def above(self, other: Constraints) -> Constraints:
        """Concatenation of these constraints and those of another."""
        return Constraints(
            np.concatenate((self.start, self.start[-1] + other.start[1:])),
            np.concatenate((self.column, other.column)),
            np.concatenate((self.factor, other.factor)),
            np.concatenate((self.most, other.most)),
        )


class Answer(NamedTuple):
    """Answer of HiGHS: the best feasible point ``x``, if any; whole columns nearly so.

    No feasible point has a larger objective than ``bound``. ``optimal``: no limit stopped the
    search.
    """

    x: Floats | None
    bound: float
    optimal: bool


def solved(
    objective: Floats,
    bounds: tuple[Floats, Floats],
    rows: Constraints,
    options: Mapping[str, Any],
    whole: Bools | None = None,
) -> Any:
    """HiGHS after it has run on max c x under rows and bounds, with options of its own."""
    api: Any = highspy  # has no type information
    lp = api.HighsLp()
    lp.num_col_, lp.num_row_ = objective.size, rows.most.size
    lp.col_cost_ = -objective  # HiGHS minimises
    lp.col_lower_, lp.col_upper_ = bounds
    lp.row_lower_, lp.row_upper_ = np.full(rows.most.size, -np.inf), rows.most
    lp.a_matrix_.format_ = api.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = rows.start.astype(np.int32)
    lp.a_matrix_.index_ = rows.column.astype(np.int32)
    lp.a_matrix_.value_ = rows.factor
    if whole is not None:
        kinds = api.HighsVarType.kContinuous, api.HighsVarType.kInteger
        lp.integrality_ = [kinds[int(w)] for w in whole]
    h = api.Highs.__base__()  # the class itself prints who made it, from version 1.16 on
    for option, setting in {
        "output_flag": False,
        "threads": 1,
        "random_seed": 0,
        **options,
    }.items():
        h.setOptionValue(option, setting)
    h.passModel(lp)
    h.run()
    return h


def maximise(
    objective: Floats,
    upper: Floats,
    whole: Bools,
    rows: Constraints,
    *,
    relative_gap: float,
    absolute_gap: float = 1e-9,
    seconds: float = np.inf,
    nodes: int | None = None,
) -> Answer:
    """Solve a programme; raises GangwiseError when HiGHS ends without an answer and not at a limit.

    ``objective`` is c [n] and ``upper`` [n] the largest value of each column, +inf for none;
    ``whole`` [n] says which take whole numbers only. The search stops when bound and best point are
    within a gap, after so many ``seconds``, or after so many ``nodes`` of branch and bound, which
    unlike seconds are the same on every machine.

    >>> one_of_two = Constraints.of([([0, 1], [1.0, 1.0], 1.0)])
    >>> c, all_whole = np.array([2.0, 3.0]), np.ones(2, dtype=bool)
    >>> maximise(c, np.ones(2), all_whole, one_of_two, relative_gap=1e-9)
    Answer(x=array([0., 1.]), bound=3.0, optimal=True)
    """
    options: dict[str, Any] = {
        "mip_feasibility_tolerance": FEASIBILITY,
        "primal_feasibility_tolerance": FEASIBILITY,
        "mip_abs_gap": absolute_gap,
        "mip_rel_gap": relative_gap,
        "time_limit": float(min(max(seconds, 0.0), 1e9)),
    }
    if nodes is not None:
        options["mip_max_nodes"] = nodes
    h = solved(objective, (np.zeros(objective.size), upper), rows, options, whole)
    api: Any = highspy
    status, info, statuses = h.getModelStatus(), h.getInfo(), api.HighsModelStatus
    limits = (statuses.kTimeLimit, statuses.kIterationLimit, statuses.kSolutionLimit)
    if status != statuses.kOptimal and status not in limits:
        raise GangwiseError(
            f"HiGHS ended with {h.modelStatusToString(status)!r} on a programme of "
            f"{objective.size} columns and {rows.most.size} rows that always has an answer; "
            "please report it"
        )
    # Where nothing is proved yet the dual bound is infinite, of either sign.
    bound = -float(info.mip_dual_bound)
    bound = bound if np.isfinite(bound) else np.inf
    if int(info.primal_solution_status) != HAS_FEASIBLE_POINT:
        return Answer(None, bound, False)
    return Answer(np.array(h.getSolution().col_value), bound, bool(status == statuses.kOptimal))


@dataclass(frozen=True, eq=False)
class GangSolution:
    placement: Ints  # [Q] feasible: server of each task, -1 for none
    value: float  # its objective
    bound: float  # no placement has a larger objective
    rounds: int  # how often the programme was solved, with more tangents each time

    @property
    def gap(self) -> float:
        """Largest distance of the placement's value from the optimum."""
        return max(self.bound - self.value, 0.0)


class GangProgramme:
    """The gang constraints as a programme: columns z and y, and the rows that every objective has.

    ``kinds`` lists the tasks of each kind: equal requests and cost, same job type. ``kind``,
    ``server``, ``job_type``, ``channel``, ``request`` [size, K], ``cost`` and ``count`` say what
    each whole-number column z_(i,r) stands for.
    """

    def __init__(self, problem: GangPlacementProblem):
        self.problem = problem
        p, order = problem, problem.server_order
        cost = p.task_cost if isinstance(p, GangSpeedsProblem) else np.zeros(p.Q)
        alike = np.column_stack([p.task_requests, cost])
        kinds: list[Ints] = []
        for l in range(p.L):
            mine = np.arange(p.first[l], p.first[l + 1])
            group = np.unique(alike[mine], axis=0, return_inverse=True)[1].ravel()
            kinds += [mine[group == i] for i in range(int(group.max()) + 1)]
        self.kinds = kinds
        pairs = [(i, r) for i, q in enumerate(kinds) for r in order.tolist() if p.fits[q[0], r]]
        self.kind = np.array([i for i, _ in pairs], dtype=np.int64)
        self.server = np.array([r for _, r in pairs], dtype=np.int64)
        example = np.array([q[0] for q in kinds], dtype=np.int64)[self.kind]  # a task of the kind
        self.request, self.cost = p.task_requests[example], cost[example]
        self.job_type = p.task_job_type[example]
        self.channel = p.channel_of[self.job_type, self.server]
        self.count = np.array([tasks.size for tasks in kinds])[self.kind]

    @property
    def size(self) -> int:
        """Whole-number columns of tasks: kinds of tasks by the servers that they fit on."""
        return int(self.kind.size)

    @cached_property
    def _constraints(self) -> Constraints:
        p, Z = self.problem, self.size
        rows: list[Constraint] = []
        for i, tasks in enumerate(self.kinds):  # no more than there are, none unless launched
            mine = np.flatnonzero(self.kind == i).tolist()
            # Columns are z, then y, and then those of the objective.
            launched = Z + int(p.task_job_type[tasks[0]])
            rows.append(([*mine, launched], [*[1.0] * len(mine), -float(tasks.size)], 0.0))
        for l in range(p.L):  # all or nothing: m_l y_l ≤ Σ z
            # -Σ z + m_l y_l ≤ 0.
            mine = np.flatnonzero(self.job_type == l).tolist()
            rows.append(([*mine, Z + l], [*[-1.0] * len(mine), float(p.minimum[l])], 0.0))
        for r in p.server_order.tolist():
            for k in range(p.cluster.capacity.shape[1]):
                # Rows that cannot bind are left out: they cost the solver time and say nothing.
                columns = np.flatnonzero((self.server == r) & (self.request[:, k] > 0))
                need, room = self.request[columns, k], float(p.cluster.capacity[r, k])
                if need @ self.count[columns] > room:  # else all tasks together fit
                    rows.append((columns, need, room))
        return Constraints.of(rows)

    def maximise(
        self,
        objective: Objective,
        arrived: Ints,
        time_limit: float,
        tolerance: float,
        nodes: int | None = None,
        start: Ints | None = None,
    ) -> GangSolution:
        """Solve in rounds, with more tangents each time; parameters as of :class:`ExactGangs`.

        ``arrived`` [L] is not 0 for job types that may be launched.
        """
        p = self.problem
        best = np.full(p.Q, -1, dtype=np.int64) if start is None else start
        value, bound, rounds = objective.worth(best), objective.limit(), 0
        # The start may be as good as the bound: then there is nothing to solve.
        if not np.any(arrived) or bound <= value:
            return GangSolution(best, value, max(bound, value), 0)
        deadline = time.monotonic() + time_limit
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0 and rounds:  # one round in any case, for the sake of its bound
                break
            rounds += 1
            placement, upper, whole = self._round(
                objective, arrived, remaining, tolerance / 2, nodes
            )
            bound = min(bound, upper)  # tangents only cut off, so every round bounds the optimum
            if placement is None:
                break
            worth = objective.worth(placement)
            if worth > value:
                best, value = placement, worth
            # A round that its limits cut off ends the search as well.
            if bound - value <= tolerance * (1.0 + abs(value)) or not whole:
                break
            # No new tangent: the programme is exact where it stopped, and would say the same again.
            if not objective.refine(placement):
                break
        return GangSolution(best, value, max(bound, value), rounds)

    def _round(
        self, objective: Objective, arrived: Ints, seconds: float, gap: float, nodes: int | None
    ) -> tuple[Ints | None, float, bool]:
        """One round: a placement if one was found, an upper bound, and whether it is proved."""
        L, (worth, factor, upper) = self.problem.L, objective.columns()
        called = (np.asarray(arrived) != 0).astype(np.float64)
        answer = maximise(
            np.concatenate((worth, np.zeros(L), factor)),
            np.concatenate((self.count * called[self.job_type], called, upper)),
            np.arange(self.size + L + upper.size) < self.size + L,
            self._constraints.above(objective.rows()),
            relative_gap=gap,
            seconds=seconds,
            nodes=nodes,
        )
        if answer.x is None:
            return None, answer.bound, False
        # Whole within HiGHS's tolerance; the objective is then taken of the rounded placement.
        z = np.rint(answer.x[: self.size]).astype(np.int64)
        return self._assign(z), answer.bound, answer.optimal

    def _assign(self, z: Ints) -> Ints:
        placement = np.full(self.problem.Q, -1, dtype=np.int64)
        for i, tasks in enumerate(self.kinds):
            mine = self.kind == i
            servers = np.repeat(self.server[mine], z[mine])
            # Tasks of a kind are alike, so that the first ones run and the others stay out.
            placement[tasks[: servers.size]] = servers
        return placement


POINTS = 12
"""How many attainable sums of a channel and device type the programme starts with tangents at."""


class GainMinusOverhead:
    """Σ_l n_l [ Σ_{r,k} g_lrk - u_l ], the weighted reward of OGASched §3.5.

        u_l ≥ β_k Σ_{i,r} a_(i,k) z_(i,r),
        g_lrk ≤ f(s) + f'(s) (Σ_i a_(i,k) z_(i,r) - s)   for the points s cut at.

    Only finitely many sums s can be attained, and a tangent at s is exact there because f is
    concave. The programme starts with tangents at some attainable sums. This needs f and f' only,
    so utilities of your own are handled like the built-in ones.
    """

    def __init__(self, programme: GangProgramme, problem: GangProblem, weight: Floats):
        self.problem, self.weight, self._programme = problem, weight, programme
        active = np.flatnonzero(weight > 0).tolist()
        # Columns of the objective come after z and y, so that the rows of the gangs hold for any.
        base = programme.size + problem.L
        self._worst = {l: base + i for i, l in enumerate(active)}
        self._gain: dict[tuple[int, int], tuple[int, Ints]] = {}
        self._cuts: set[tuple[int, int, float]] = set()
        self._rows: list[Constraint] = []
        # u_l is no smaller than the overhead of any device type: their maximum at the optimum.
        for l, column in self._worst.items():
            mine = np.flatnonzero(programme.job_type == l)
            for k, beta in enumerate(problem.overhead.tolist()):
                columns = mine[beta * programme.request[mine, k] > 0]
                if columns.size:
                    factor = np.append(beta * programme.request[columns, k], -1.0)
                    self._rows.append((np.append(columns, column), factor, 0.0))
        for e in range(problem.E):
            if weight[problem.channels.job_type[e]] > 0:
                self._gains(e, base + len(active))

    def _gains(self, e: int, first: int) -> None:
        """One gain for each device type of a channel, below tangents at attainable sums."""
        g, p = self._programme, self.problem
        columns = np.flatnonzero(g.channel == e)
        for k in range(p.cluster.capacity.shape[1]):
            # Tasks that ask for none of it add nothing to the sum, and would only widen the rows.
            requesting = columns[g.request[columns, k] > 0]
            if not requesting.size:
                continue
            self._gain[e, k] = (first + len(self._gain), requesting)
            room = float(p.cluster.capacity[p.channels.server[e], k])
            # Tangents where sums can really be: at those points the programme is exact from the
            # start.
            for point in attainable(np.repeat(g.request[requesting, k], g.count[requesting]), room):
                self._tangent(e, k, point)

    def _tangent(self, e: int, k: int, point: float) -> bool:
        """Cut off gains above the tangent at a point; False when it is there already."""
        if (e, k, point) in self._cuts:
            return False
        self._cuts.add((e, k, point))
        column, columns = self._gain[e, k]
        value, slope = self._utility("value", e, k, point), self._utility("slope", e, k, point)
        # w ≤ f(p) + f'(p) (Σ a z - p), with all that varies on the left; f is concave, so none is
        # cut off.
        factor = np.append(-slope * self._programme.request[columns, k], 1.0)
        self._rows.append((np.append(columns, column), factor, value - slope * point))
        return True

    def _utility(self, what: str, e: int, k: int, point: float) -> float:
        u, r = self.problem.utilities, int(self.problem.channels.server[e])
        kind, alpha = u.kind[r, k : k + 1], u.alpha[r, k : k + 1]
        return float(u.each(what, np.array([point]), kind, alpha)[0])

    def columns(self) -> tuple[Floats, Floats, Floats]:
        # u_l of each job type with weight, then g of each channel and device type.
        gains = [self.weight[self.problem.channels.job_type[e]] for e, _ in self._gain]
        factor = np.array([*(-self.weight[l] for l in self._worst), *gains])
        return np.zeros(self._programme.size), factor, np.full(factor.size, np.inf)

    def rows(self) -> Constraints:
        return Constraints.of(self._rows)

    def worth(self, placement: Ints) -> float:
        gain, overhead = self.problem.by_job_type(placement)
        return float(self.weight @ (gain - overhead))

    def limit(self) -> float:
        """Bound: every task alone on its best server, without overhead; f is concave, 0 at 0."""
        p, u = self.problem, self.problem.utilities
        # Concave and 0 at 0: tasks together gain no more than each of them alone.
        best = np.zeros(p.Q)
        for q, r in zip(*np.nonzero(p.fits)):
            alone = u.each("value", p.task_requests[q], u.kind[r], u.alpha[r])
            # Capacities are left out: a bound that costs next to nothing.
            best[q] = max(best[q], float(alone.sum()))
        return float(self.weight[p.task_job_type] @ best)

    def refine(self, placement: Ints) -> bool:
        """Add tangents at the sums of a placement; False when all were there already."""
        y = self.problem.held(placement)
        added = [self._tangent(e, k, float(y[e, k])) for e, k in self._gain if y[e, k] > 0]
        return any(added)


def attainable(requests: Floats, room: float) -> list[float]:
    """Some of the sums that subsets of the requests attain within the room, 0 among them."""
    sums = {0.0}
    for a in requests.tolist():
        # Sums of all subsets of the requests so far, thinned out before they double too often.
        sums |= {s + a for s in sums if s + a <= room * (1 + 1e-12)}
        sums = set(_spread(sorted(sums), 64 * POINTS))
    return _spread(sorted(sums), POINTS)


def _spread(ordered: list[float], most: int) -> list[float]:
    """At most so many of an ordered list, evenly spread, the ends among them."""
    if len(ordered) <= most:
        return ordered
    return [ordered[i * (len(ordered) - 1) // (most - 1)] for i in range(most)]


FIRST_POINTS = (0.7, 1.0, 1.4)
"""Where the first tangents of the root touch, in units of the starting point."""


class OptimisticSum:
    """Σ_e v_e n_e + √(Σ_e s_e n_e) − Σ_q d_q, the gang form of P3(t), ESDP (12).

        w ≤ q/2 + Σ_e s_e n_e / (2q)   for the points q cut at,   n_e = Σ_i z_(i,r) on e = (l, r).

    √Y ≤ q/2 + Y/(2q) for every q > 0, with equality at q = √Y.
    """

    def __init__(
        self,
        programme: GangProgramme,
        problem: GangSpeedsProblem,
        value: Floats,
        width: Floats,
        start: Ints,
        arrivals: Ints,
    ):
        self.value, self.width, self._arrivals = value, width, arrivals
        self._programme, self._problem = programme, problem
        # √Y of the start, or of one task on the widest channel where nothing is placed.
        # Tangents are tight near their points: near the start, which is close to the optimum.
        self._touch = np.sqrt(float(width @ programme.problem.count(start)) or float(width.max()))
        self._points = [self._touch * f for f in FIRST_POINTS] if self._touch > 0 else []

    def columns(self) -> tuple[Floats, Floats, Floats]:
        # w, which is 0 where no channel has any width.
        upper = np.array([np.inf if self._points else 0.0])
        g = self._programme
        return self.value[g.channel] - g.cost, np.ones(1), upper

    def rows(self) -> Constraints:
        g = self._programme
        s = self.width[g.channel]
        at = np.append(np.arange(g.size), g.size + g.problem.L)
        return Constraints.of([(at, np.append(-s / (2.0 * q), 1.0), q / 2.0) for q in self._points])

    def worth(self, placement: Ints) -> float:
        p = self._problem
        n = p.count(placement)
        return float(self.value @ n + np.sqrt(max(float(self.width @ n), 0.0))) - p.paid(placement)

    def limit(self) -> float:
        """Bound: every task that gains on its best channel, whatever the room."""
        g, p = self._programme, self._problem
        best, widest = np.zeros(p.L), np.zeros(p.L)
        np.maximum.at(best, g.job_type, self.value[g.channel])
        np.maximum.at(widest, g.job_type, self.width[g.channel])
        called = np.asarray(self._arrivals) != 0
        tasks = np.diff(p.first) * called
        # A task that costs more than it brings counts as nothing: without its minimum it would stay
        # out, and with it the bound is only wider.
        gain = np.maximum(best[p.task_job_type] - p.task_cost, 0.0)
        return float(gain @ called[p.task_job_type] + np.sqrt(tasks @ widest))

    def refine(self, placement: Ints) -> bool:
        """Add the tangent at √(Σ s n); False when it is there already."""
        if not self._points:
            return False
        n = self._programme.problem.count(placement)
        # Away from q = 0, where the tangent would be vertical.
        at = max(float(np.sqrt(self.width @ n)), 1e-9 * self._touch)
        if min(abs(at - q) for q in self._points) <= 1e-12 * at:
            return False
        # Tangents are kept from round to round, so that the bound can only fall.
        self._points.append(at)
        return True


Objective = GainMinusOverhead | OptimisticSum
"""What a programme maximises. ``columns`` has the linear objective of each z_(i,r) [size], then the
objective and the upper bound of each column of its own, numbered from ``size + L`` on; ``rows`` tie
these to z, with the tangents so far. ``worth`` is the true objective of a placement, ``limit`` a
bound that no placement exceeds, whatever the room. ``refine`` adds tangents at a placement, and is
False when they were all there already."""


def solve(
    problem: GangProblem, weight: npt.ArrayLike, time_limit: float = 60.0, tolerance: float = 1e-7
) -> GangSolution:
    """Exact optimum of gain minus overhead: maximise Σ_l n_l q_l over the feasible placements.

    Parameters
    ----------
    weight : array of shape [L]
        n_l, zero or larger; arrivals x_l for the optimum of a slot.
    time_limit : float
        Seconds for all rounds together. An answer that ran out of time is feasible, and its
        ``bound`` holds.
    tolerance : float
        Stop when the gap is at most this, relative to the value.

    Examples
    --------
    Four GPUs, two gangs that need three each; the second gains more:

    >>> from gangwise import Channels, Cluster
    >>> from gangwise.papers.gain_overhead.problem import Utilities
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
    programme = GangProgramme(problem)
    objective = GainMinusOverhead(programme, problem, n)
    return programme.maximise(objective, (n > 0).astype(np.int64), time_limit, tolerance)


class ExactGangs:
    """Exact optimum at fluctuating speeds: the gang form of P3(t), for any values and arrivals.

    Parameters
    ----------
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
        return self._programme.size

    def solve(
        self,
        value: Floats,
        width: Floats,
        arrivals: Ints,
        time_limit: float = np.inf,
        start: Ints | None = None,
    ) -> GangSolution:
        """Maximise Σ v n + √(Σ s n) − Σ d over the feasible placements for ``arrivals`` [L].

        ``value`` and ``width`` [E] are v_e and s_e, finite, s_e zero or larger; ``start`` [Q] is a
        feasible placement to do at least as well as. An answer that ran out of ``time_limit``,
        seconds for all rounds, is feasible and its ``bound`` holds.
        """
        p = self.problem
        for name, array in (("values", value), ("widths", width)):
            if np.shape(array) != (p.E,) or not np.isfinite(array).all():
                raise ScenarioError(f"{name} must be {p.E} finite numbers, one for each channel")
        # Below a root of a negative sum nothing is defined; costs may be negative, widths not.
        if (width < 0).any():
            raise ScenarioError(f"{p.name(int(np.argmin(width)))}: its width is negative")
        # No task placed is always feasible, and worth zero.
        best = np.full(p.Q, -1, dtype=np.int64) if start is None else start
        objective = OptimisticSum(self._programme, p, value, width, best, arrivals)
        return self._programme.maximise(
            objective, arrivals, time_limit, self.tolerance, self.nodes, best
        )


# Placement by prices


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
            # Σ s n of the answer is Y in √Y ≤ q/2 + Y/(2q), exact at the next q = √Y.
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
