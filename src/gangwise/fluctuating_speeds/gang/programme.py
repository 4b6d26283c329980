r"""Gangs as a mixed-integer programme, solved by HiGHS.

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
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gangwise.fluctuating_speeds.gang.problem import GangSpeedsProblem, server_order

__all__ = ["GangProgramme"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class GangProgramme:
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
            starts, np.concatenate([np.array(c, dtype=np.int64) for c, _, _ in rows]),
            np.concatenate([np.array(v) for _, v, _ in rows]), np.array([m for *_, m in rows]),
        )  # fmt: skip

    def run(
        self, value: Floats, width: Floats, arrivals: Ints, points: list[float], seconds: float,
        tolerance: float, nodes: int | None,
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
            ("output_flag", False), ("threads", 1), ("random_seed", 0), ("mip_abs_gap", 1e-9),
            ("mip_rel_gap", tolerance), ("mip_feasibility_tolerance", 1e-9),
            ("primal_feasibility_tolerance", 1e-9), ("time_limit", float(min(seconds, 1e9))),
        ):  # fmt: skip
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
