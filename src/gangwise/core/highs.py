"""Mixed-integer linear programmes, solved by HiGHS.

    maximise c·x   subject to   A x ≤ b,   0 ≤ x ≤ upper,   some columns whole.

HiGHS runs on one thread with a fixed seed, so that a programme has the same answer everywhere, as
long as no limit in seconds stops it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import highspy
import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import GangwiseError

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
        none = np.empty(0)
        return cls(
            np.cumsum([0, *[c.size for c, _, _ in listed]]),
            np.concatenate([none.astype(np.int64), *[c for c, _, _ in listed]]),
            np.concatenate([none, *[f for _, f, _ in listed]]),
            np.array([most for *_, most in listed], dtype=np.float64),
        )

    def above(self, other: Constraints) -> Constraints:
        """These constraints, and then those of another."""
        return Constraints(
            np.concatenate((self.start, self.start[-1] + other.start[1:])),
            np.concatenate((self.column, other.column)),
            np.concatenate((self.factor, other.factor)),
            np.concatenate((self.most, other.most)),
        )


class Answer(NamedTuple):
    """What HiGHS found in time: the best feasible point ``x``, if any; whole columns nearly so.

    No feasible point has a larger objective than ``bound``. ``optimal``: no limit stopped the
    search.
    """

    x: Floats | None
    bound: float
    optimal: bool


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
    api: Any = highspy  # has no type information
    lp = api.HighsLp()
    lp.num_col_, lp.num_row_ = objective.size, rows.most.size
    lp.col_cost_ = -objective  # HiGHS minimises
    lp.col_lower_, lp.col_upper_ = np.zeros(objective.size), upper
    lp.row_lower_, lp.row_upper_ = np.full(rows.most.size, -np.inf), rows.most
    lp.a_matrix_.format_ = api.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = rows.start.astype(np.int32)
    lp.a_matrix_.index_ = rows.column.astype(np.int32)
    lp.a_matrix_.value_ = rows.factor
    kinds = api.HighsVarType.kContinuous, api.HighsVarType.kInteger
    lp.integrality_ = [kinds[int(w)] for w in whole]
    h = api.Highs()
    options = {
        "output_flag": False,
        "threads": 1,
        "random_seed": 0,
        "mip_feasibility_tolerance": FEASIBILITY,
        "primal_feasibility_tolerance": FEASIBILITY,
        "mip_abs_gap": absolute_gap,
        "mip_rel_gap": relative_gap,
        "time_limit": float(min(max(seconds, 0.0), 1e9)),
    }
    if nodes is not None:
        options["mip_max_nodes"] = nodes
    for option, setting in options.items():
        h.setOptionValue(option, setting)
    h.passModel(lp)
    h.run()
    status, info, known = h.getModelStatus(), h.getInfo(), api.HighsModelStatus
    limits = (known.kTimeLimit, known.kIterationLimit, known.kSolutionLimit)
    if status != known.kOptimal and status not in limits:
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
    return Answer(np.array(h.getSolution().col_value), bound, bool(status == known.kOptimal))
