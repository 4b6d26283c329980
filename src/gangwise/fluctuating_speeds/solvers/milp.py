r"""P3 as a mixed-integer programme with tangent cuts, solved by HiGHS: the independent witness.

    maximise v·x + t   s.t.  A x ≤ c,  t ≤ q/2 + s·x/(2q) at the points q cut at,  x binary.

Each inequality is the tangent of √y at y = q². A tangent is added at the y of every answer whose t
claims more than √y; each round is an upper bound, and the last one is the optimum.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["solve_milp"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def solve_milp(
    v: Floats, s: Floats, a: Floats, c: Floats, gap: float = 1e-9, time_limit: float | None = None
) -> tuple[Flags, float, float, int]:
    """Solve P3.

    Parameters
    ----------
    v, s : ndarray of shape [E]
        Finite; ``s`` zero or larger.
    a : ndarray of shape [E, K]
    c : ndarray of shape [K]
    gap : float
        Relative to the value.
    time_limit : float, optional
        Seconds for all rounds together.

    Returns
    -------
    x : ndarray of bool, shape [E]
    value, bound : float
    rounds : int

    Examples
    --------
    >>> x, value, bound, rounds = solve_milp(
    ...     np.array([1.0, 2.0]), np.array([5.0, 10.0]), np.array([[1.0], [1.0]]), np.array([1.0])
    ... )
    >>> x, round(value, 6)
    (array([False,  True]), 5.162278)
    """
    E = v.size
    best, value, bound, rounds = np.zeros(E, dtype=np.bool_), 0.0, np.inf, 0
    if E == 0:
        return best, value, 0.0, rounds
    unit = math.sqrt(float(s.sum()))  # t is measured in it, y in its square
    h = _programme(v, s, a, c, unit)
    deadline = None if time_limit is None else time.monotonic() + time_limit
    points: set[float] = set()
    for q in (0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0) if unit > 0 else ():
        _cut(h, q, s / unit**2, points)
    while bound - value > gap * abs(value):
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 and rounds:
                break
            h.setOptionValue("time_limit", max(left, 0.0))
        h.setOptionValue("mip_rel_gap", gap / 2)
        h.run()
        rounds += 1
        x, upper = _answer(h, E)
        bound = min(bound, upper)
        if x is None:
            break
        y = float(s[x].sum())
        worth = float(v[x].sum()) + math.sqrt(y)
        if worth > value and (a[x].sum(axis=0) <= c * (1 + 1e-9)).all():
            best, value = x, worth
        if y == 0.0 or not _cut(h, math.sqrt(y) / unit, s / unit**2, points):
            break
    return best, value, max(bound, value), rounds


def _programme(v: Floats, s: Floats, a: Floats, c: Floats, unit: float) -> Any:
    import highspy

    make: Any = highspy.Highs  # has no type information
    h = make()
    for option, setting in (
        ("output_flag", False), ("threads", 1), ("random_seed", 0), ("mip_abs_gap", 1e-12),
        ("mip_feasibility_tolerance", 1e-9), ("primal_feasibility_tolerance", 1e-9),
    ):  # fmt: skip
        h.setOptionValue(option, setting)
    E, K = a.shape
    empty = np.empty(0, dtype=np.int32), np.empty(0)
    for e in range(E):
        h.addCol(-float(v[e]), 0.0, 1.0, 0, *empty)
        h.changeColIntegrality(e, highspy.HighsVarType.kInteger)
    h.addCol(-unit, 0.0, 1.0 if unit > 0 else 0.0, 0, *empty)
    for k in range(K):
        takes = np.flatnonzero(a[:, k]).astype(np.int32)
        if takes.size:
            h.addRow(-highspy.kHighsInf, float(c[k]), takes.size, takes, a[takes, k])
    return h


def _cut(h: Any, q: float, s: Floats, points: set[float]) -> bool:
    """Add t ≤ q/2 + s·x/(2q); False when it is there already."""
    import highspy

    if q in points:
        return False
    points.add(q)
    some = np.flatnonzero(s).astype(np.int32)
    index = np.append(some, np.int32(s.size)).astype(np.int32)
    h.addRow(-highspy.kHighsInf, q / 2, index.size, index, np.append(-s[some] / (2 * q), 1.0))
    return True


def _answer(h: Any, E: int) -> tuple[Flags | None, float]:
    import highspy

    status, info = h.getModelStatus(), h.getInfo()
    statuses = highspy.HighsModelStatus
    if status not in (statuses.kOptimal, statuses.kTimeLimit):
        raise RuntimeError(f"HiGHS answered {h.modelStatusToString(status)}")
    bound = -float(info.mip_dual_bound)
    if not np.isfinite(bound):
        bound = np.inf
    if int(info.primal_solution_status) != 2:  # kSolutionStatusFeasible
        return None, bound
    return np.array(h.getSolution().col_value)[:E] > 0.5, bound
