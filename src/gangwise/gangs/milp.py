"""Gangs as a mixed-integer programme in HiGHS, with the concave gains below tangents.

    maximise    Σ_l n_l [ Σ_{r,k} g_lrk - u_l ]
    subject to  Σ_r z_qr ≤ x_l,   Σ_{q,r} z_qr ≥ m_l x_l,   Σ_{q,r ∋ server} a_q^k z_qr ≤ c_r^k,
                u_l ≥ β_k Σ_{q,r} a_q^k z_qr,
                g_lrk ≤ f(s) + f'(s) (Σ_q a_q^k z_qr - s)   for the points s cut at,

with z (task on server) and x (job launched) binary. Only finitely many sums Σ_q a_q^k z_qr can be
attained, and a tangent at s is exact there because f is concave. The programme starts with tangents
at some attainable sums. This needs f and f' only, so utilities of your own are handled like the
built-in ones.

The exact answer for gangs, round by round.

Each round solves the mixed-integer programme of :mod:`.programme`, in which gains lie below
tangents. It is an upper bound; where its answer claims more gain than it has, a tangent is added
there, until the two agree.

Gangs as a mixed-integer programme, solved by HiGHS.

    maximise    Σ_e v_e n_e + w
    subject to  Σ_r z_(i,r) ≤ |i| y_l,   Σ_{i,r} z_(i,r) ≥ m_l y_l,   y_l ≤ 𝟙_l(t),
                Σ_i a_(i,k) z_(i,r) ≤ c_(k,r),   n_e = Σ_i z_(i,r) on channel e = (l, r),
                w ≤ q/2 + Σ_e s_e n_e / (2q)   for the points q cut at,

where i runs over the *kinds* of tasks of job type l (tasks with equal requests are alike, and |i|
is how many there are), z is a whole number of tasks and y is binary. √Y ≤ q/2 + Y/(2q) with
equality at q = √Y, so each round is an upper bound on Σ v n + √(Σ s n), whatever the
points.

Servers enter in the order of :func:`.problem.server_order`, so the same problem under other server
names is the same programme to the last bit, and has the same answer.

The exact answer: the gang form of P3(t), max Σ_e v_e n_e + √(Σ_e s_e n_e), round by round.

Each round solves the mixed-integer programme of :mod:`.programme`, in which the root lies below
tangents. It is an upper bound; where its answer claims more than it is worth, a tangent is added
there, until the two agree.
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.gangs.problem import GangProblem, GangSolution, GangSpeedsProblem, server_order

POINTS = 12
"""How many attainable sums of a channel and device type the programme starts with tangents at."""


class GangProgramme:
    """The programme in HiGHS, and where its columns are."""

    def __init__(self, problem: GangProblem, weight: Floats):
        import highspy

        self.problem, self.weight = problem, weight
        make: Any = highspy.Highs  # has no type information
        self.h = make()
        for option, setting in (
            ("output_flag", False),
            ("threads", 1),
            ("random_seed", 0),
            ("mip_abs_gap", 1e-9),
            ("mip_feasibility_tolerance", 1e-9),
            ("primal_feasibility_tolerance", 1e-9),
        ):
            self.h.setOptionValue(option, setting)
        self.infinity = highspy.kHighsInf
        self.integer = highspy.HighsVarType.kInteger
        self.statuses = highspy.HighsModelStatus
        self.columns = 0
        rows, servers = np.nonzero(problem.fits & (weight[problem.task_job_type] > 0)[:, None])
        self.z: dict[tuple[int, int], int] = {
            (q, r): self._column(0.0, 0.0, 1.0, whole=True)
            for q, r in zip(rows.tolist(), servers.tolist())
        }
        self.gains: dict[tuple[int, int], tuple[int, list[tuple[int, int]]]] = {}
        self.cuts: set[tuple[int, int, float]] = set()
        self._gangs()
        self._capacities()
        self._gains()

    def _column(self, cost: float, low: float, high: float, whole: bool = False) -> int:
        self.h.addCol(-cost, low, high, 0, np.empty(0, dtype=np.int32), np.empty(0))
        if whole:
            self.h.changeColIntegrality(self.columns, self.integer)
        self.columns += 1
        return self.columns - 1

    def _row(self, terms: list[tuple[int, float]], most: float) -> None:
        """Σ value · column ≤ most."""
        index = np.array([column for column, _ in terms], dtype=np.int32)
        value = np.array([factor for _, factor in terms], dtype=np.float64)
        self.h.addRow(-self.infinity, most, len(terms), index, value)

    def _gangs(self) -> None:
        """All-or-nothing, one server for each task, and the overhead."""
        p = self.problem
        for l in np.flatnonzero(self.weight > 0).tolist():
            tasks = range(int(p.first[l]), int(p.first[l + 1]))
            launched = self._column(0.0, 0.0, 1.0, whole=True)
            worst = self._column(-float(self.weight[l]), 0.0, self.infinity)
            mine = [(q, column) for (q, _), column in self.z.items() if q in tasks]
            for q in tasks:
                self._row([(c, 1.0) for task, c in mine if task == q] + [(launched, -1.0)], 0.0)
            self._row([(c, -1.0) for _, c in mine] + [(launched, float(p.minimum[l]))], 0.0)
            for k, beta in enumerate(p.overhead.tolist()):
                terms = [
                    (c, beta * float(p.task_requests[q, k]))
                    for q, c in mine
                    if beta * p.task_requests[q, k] > 0
                ]
                if terms:
                    self._row([*terms, (worst, -1.0)], 0.0)

    def _capacities(self) -> None:
        p = self.problem
        R, K = p.cluster.capacity.shape
        there: list[list[tuple[int, int]]] = [[] for _ in range(R)]
        for (q, r), column in self.z.items():
            there[r].append((q, column))
        for r in range(R):
            for k in range(K):
                terms = [
                    (c, float(p.task_requests[q, k]))
                    for q, c in there[r]
                    if p.task_requests[q, k] > 0
                ]
                if sum(a for _, a in terms) > p.cluster.capacity[r, k]:
                    self._row(terms, float(p.cluster.capacity[r, k]))

    def _gains(self) -> None:
        """One gain for each channel and device type, below tangents at attainable sums."""
        p = self.problem
        on: dict[int, list[tuple[int, int]]] = {}
        for (q, r), column in self.z.items():
            e = int(p.channel_of[p.task_job_type[q], r])
            on.setdefault(e, []).append((q, column))
        for e, tasks in on.items():
            l, r = int(p.channels.job_type[e]), int(p.channels.server[e])
            for k in range(p.cluster.capacity.shape[1]):
                wanting = [(q, c) for q, c in tasks if p.task_requests[q, k] > 0]
                if not wanting:
                    continue
                column = self._column(float(self.weight[l]), 0.0, self.infinity)
                self.gains[e, k] = (column, wanting)
                room = float(p.cluster.capacity[r, k])
                for point in _sums([float(p.task_requests[q, k]) for q, _ in wanting], room):
                    self._tangent(e, k, point)

    def _tangent(self, e: int, k: int, point: float) -> bool:
        """Cut off gains above the tangent at a point; False when it is there already."""
        p = self.problem
        if (e, k, point) in self.cuts:
            return False
        self.cuts.add((e, k, point))
        column, wanting = self.gains[e, k]
        value, slope = self._utility("value", e, k, point), self._utility("slope", e, k, point)
        terms = [(c, -slope * float(p.task_requests[q, k])) for q, c in wanting]
        self._row([(column, 1.0), *terms], value - slope * point)
        return True

    def _utility(self, what: str, e: int, k: int, point: float) -> float:
        p = self.problem
        r = int(p.channels.server[e])
        kind, alpha = p.utilities.kind[r, k : k + 1], p.utilities.alpha[r, k : k + 1]
        return float(p.utilities.each(what, np.array([point]), kind, alpha)[0])

    def run(self, seconds: float, tolerance: float) -> tuple[Ints | None, float]:
        """Solve as it stands: a placement, if one was found in time, and an upper bound."""
        p = self.problem
        # Per run in HiGHS 1.15; a version that counts all runs together only stops sooner.
        self.h.setOptionValue("time_limit", seconds)
        self.h.setOptionValue("mip_rel_gap", tolerance)
        self.h.run()
        status, info = self.h.getModelStatus(), self.h.getInfo()
        if status not in (self.statuses.kOptimal, self.statuses.kTimeLimit):
            raise RuntimeError(f"HiGHS answered {self.h.modelStatusToString(status)}")
        bound = -float(info.mip_dual_bound)
        bound = bound if np.isfinite(bound) else np.inf
        if int(info.primal_solution_status) != 2:  # kSolutionStatusFeasible
            return None, bound
        x = np.array(self.h.getSolution().col_value)
        placement = np.full(p.Q, -1, dtype=np.int64)
        for (q, r), column in self.z.items():
            if x[column] > 0.5:
                placement[q] = r
        return placement, bound

    def refine(self, placement: Ints) -> bool:
        """Add tangents at the sums of a placement; False when all were there already."""
        p = self.problem
        y = p.held(placement)
        added = [self._tangent(e, k, float(y[e, k])) for e, k in self.gains if y[e, k] > 0]
        return any(added)


def _sums(requests: list[float], room: float) -> list[float]:
    """Some of the sums that subsets of the requests attain within the room, 0 among them."""
    attained = {0.0}
    for a in requests:
        attained |= {s + a for s in attained if s + a <= room * (1 + 1e-12)}
        attained = set(_spread(sorted(attained), 64 * POINTS))
    return _spread(sorted(attained), POINTS)


def _spread(ordered: list[float], most: int) -> list[float]:
    """At most so many of an ordered list, evenly spread, the ends among them."""
    if len(ordered) <= most:
        return ordered
    return [ordered[i * (len(ordered) - 1) // (most - 1)] for i in range(most)]


def solve(
    problem: GangProblem, weight: npt.ArrayLike, time_limit: float = 60.0, tolerance: float = 1e-7
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


class GangSpeedsProgramme:
    """Columns and rows of a problem, to be solved for any values, widths and arrivals.

    Attributes
    ----------
    kinds : list of ndarray
        Tasks of each kind: equal requests, same job type.
    kind, server, job_type, channel : ndarray of int64, shape [size]
        What each whole-number column z_(i,r) stands for.
    """

    def __init__(self, problem: GangSpeedsProblem):
        self.problem = problem
        p, order = problem, server_order(problem)
        kinds: list[Ints] = []
        for l in range(p.L):
            mine = np.arange(p.gangs.first[l], p.gangs.first[l + 1])
            of = np.unique(p.task_requests[mine], axis=0, return_inverse=True)[1].ravel()
            kinds += [mine[of == i] for i in range(int(of.max()) + 1)]
        self.kinds = kinds
        fits = p.gangs.fits
        pairs = [(i, r) for i, q in enumerate(kinds) for r in order.tolist() if fits[q[0], r]]
        self.kind = np.array([i for i, _ in pairs], dtype=np.int64)
        self.server = np.array([r for _, r in pairs], dtype=np.int64)
        job_type = p.task_job_type[[int(q[0]) for q in kinds]]
        self.job_type = job_type[self.kind]
        self.channel = p.gangs.channel_of[self.job_type, self.server]
        self.request = p.task_requests[[int(q[0]) for q in kinds]][self.kind]
        self._order = order

    @property
    def size(self) -> int:
        """Whole-number columns: kinds of tasks by the servers that they fit on."""
        return int(self.kind.size)

    @cached_property
    def _rows(self) -> tuple[Ints, Ints, Floats, Floats]:
        """Row by row: starts, columns, values, and upper limits of the constraints but tangents."""
        p, Z = self.problem, self.size
        rows: list[tuple[list[int], list[float], float]] = []
        for i, tasks in enumerate(self.kinds):
            mine = np.flatnonzero(self.kind == i).tolist()
            launched = Z + int(p.task_job_type[tasks[0]])
            rows.append(([*mine, launched], [*[1.0] * len(mine), -float(tasks.size)], 0.0))
        for l in range(p.L):
            mine = np.flatnonzero(self.job_type == l).tolist()
            rows.append(([*mine, Z + l], [*[-1.0] * len(mine), float(p.minimum[l])], 0.0))
        count = np.array([tasks.size for tasks in self.kinds])[self.kind]
        for r in self._order.tolist():
            for k in range(p.cluster.capacity.shape[1]):
                there = np.flatnonzero((self.server == r) & (self.request[:, k] > 0))
                need, room = self.request[there, k], float(p.cluster.capacity[r, k])
                if need @ count[there] > room:
                    rows.append((there.tolist(), need.tolist(), room))
        starts = np.cumsum([0, *[len(columns) for columns, _, _ in rows]])
        return (
            starts,
            np.concatenate([np.array(c, dtype=np.int64) for c, _, _ in rows]),
            np.concatenate([np.array(v) for _, v, _ in rows]),
            np.array([m for *_, m in rows]),
        )

    def run(
        self,
        value: Floats,
        width: Floats,
        arrivals: Ints,
        points: list[float],
        seconds: float,
        tolerance: float,
        nodes: int | None,
    ) -> tuple[Ints | None, float, bool]:
        """One round: a placement if one was found, an upper bound, and whether it is proved."""
        import highspy

        p, Z = self.problem, self.size
        columns = Z + p.L + 1
        starts, index, entries, most = self._rows
        s = width[self.channel]
        tangent = [np.append(-s / (2.0 * q), 1.0) for q in points]
        at = np.append(np.arange(Z), columns - 1)
        make: Any = highspy  # has no type information
        lp = make.HighsLp()
        lp.num_col_, lp.num_row_ = columns, most.size + len(points)
        lp.col_cost_ = np.concatenate((-value[self.channel], np.zeros(p.L), [-1.0]))
        lp.col_lower_ = np.zeros(columns)
        sizes = np.array([float(tasks.size) for tasks in self.kinds])
        called = (np.asarray(arrivals) != 0).astype(np.float64)
        lp.col_upper_ = np.concatenate(
            (sizes[self.kind] * called[self.job_type], called, [np.inf if points else 0.0])
        )
        lp.row_lower_ = np.full(lp.num_row_, -np.inf)
        lp.row_upper_ = np.concatenate((most, np.array(points) / 2.0))
        lp.a_matrix_.format_ = make.MatrixFormat.kRowwise
        more = starts[-1] + at.size * np.arange(1, len(points) + 1)
        lp.a_matrix_.start_ = np.concatenate((starts, more)).astype(np.int32)
        lp.a_matrix_.index_ = np.concatenate((index, *[at] * len(points))).astype(np.int32)
        lp.a_matrix_.value_ = np.concatenate((entries, *tangent))
        whole = make.HighsVarType.kInteger
        lp.integrality_ = [whole] * (columns - 1) + [make.HighsVarType.kContinuous]
        h = make.Highs()
        for option, setting in (
            ("output_flag", False),
            ("threads", 1),
            ("random_seed", 0),
            ("mip_abs_gap", 1e-9),
            ("mip_rel_gap", tolerance),
            ("mip_feasibility_tolerance", 1e-9),
            ("primal_feasibility_tolerance", 1e-9),
            ("time_limit", float(min(seconds, 1e9))),
        ):
            h.setOptionValue(option, setting)
        if nodes is not None:
            h.setOptionValue("mip_max_nodes", nodes)
        h.passModel(lp)
        h.run()
        status, info, known = h.getModelStatus(), h.getInfo(), make.HighsModelStatus
        limits = (known.kTimeLimit, known.kIterationLimit, known.kSolutionLimit)
        if status != known.kOptimal and status not in limits:
            raise RuntimeError(f"HiGHS answered {h.modelStatusToString(status)}")
        bound = -float(info.mip_dual_bound)
        bound = bound if np.isfinite(bound) else np.inf
        if int(info.primal_solution_status) != 2:  # kSolutionStatusFeasible
            return None, bound, False
        z = np.rint(np.array(h.getSolution().col_value)[:Z]).astype(np.int64)
        return self._assign(z), bound, status == known.kOptimal

    def _assign(self, z: Ints) -> Ints:
        """Hand the tasks of each kind to its servers, in order."""
        placement = np.full(self.problem.Q, -1, dtype=np.int64)
        for i, tasks in enumerate(self.kinds):
            mine = self.kind == i
            servers = np.repeat(self.server[mine], z[mine])
            placement[tasks[: servers.size]] = servers
        return placement


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
        self._programme = GangSpeedsProgramme(problem)

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
