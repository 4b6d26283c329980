r"""Gangs as a mixed-integer programme in HiGHS, with the concave gains below tangents.

    maximise    Σ_l n_l [ Σ_{r,k} g_lrk - u_l ]
    subject to  Σ_r z_qr ≤ x_l,   Σ_{q,r} z_qr ≥ m_l x_l,   Σ_{q,r ∋ server} a_q^k z_qr ≤ c_r^k,
                u_l ≥ β_k Σ_{q,r} a_q^k z_qr,
                g_lrk ≤ f(s) + f'(s) (Σ_q a_q^k z_qr - s)   for the points s cut at,

with z (task on server) and x (job launched) binary. Only finitely many sums Σ_q a_q^k z_qr can be
attained, and a tangent at s is exact there because f is concave. The programme starts with tangents
at some attainable sums. This needs f and f' only, so utilities of your own are handled like the
built-in ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gangwise.gain_overhead.gang.problem import GangProblem

__all__ = ["GangProgramme"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

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
            ("output_flag", False), ("threads", 1), ("random_seed", 0), ("mip_abs_gap", 1e-9),
            ("mip_feasibility_tolerance", 1e-9), ("primal_feasibility_tolerance", 1e-9),
        ):  # fmt: skip
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
                terms = [(c, float(p.task_requests[q, k])) for q, c in there[r]
                         if p.task_requests[q, k] > 0]  # fmt: skip
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
