r"""Randomised rounding for machines that hold several tasks (§V-C).

The paper asks for integral x̃ with E[x̃] = x that keeps (102), Σ_j r_j x̃_ji ≤ C_i, and (103),
Σ_i x̃_ji ≤ u_j, and refers to a general scheme. There is none: for r = (0.6, 0.6) and C = 1 the
plan x = (5/6, 5/6) keeps (102), but integral points that do have one task at most, and so do their
means (:data:`IMPOSSIBLE`). What can be had is E[x̃] = x, (103), and loads that exceed the *planned*
ones by one task at most. So the plan is made for smaller machines: :func:`plan_capacity`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.kernels.general_rounding import FRACTION, build, cancel

__all__ = ["IMPOSSIBLE", "plan_capacity", "round_dependent"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

IMPOSSIBLE = {"demand": (0.6, 0.6), "capacity": 1.0, "plan": (5 / 6, 5 / 6)}
"""A plan that keeps (102) and is no mean of integral points that do."""


def plan_capacity(capacity: npt.ArrayLike, demand: npt.ArrayLike) -> Floats:
    """Capacities to plan with, so that rounded plans keep the real ones.

    Of the demands that fit a machine: if they are equal, r ⌊C / r⌋, and nothing is lost; otherwise
    C less the largest. Jobs that do not fit a machine must not be planned on it.

    Parameters
    ----------
    capacity : array of shape [M]
        C_i.
    demand : array of shape [J]
        r_j, positive.

    Returns
    -------
    ndarray of shape [M]

    Examples
    --------
    >>> plan_capacity([1.7, 1.0], [0.5, 0.5]), plan_capacity([1.7, 1.0], [0.5, 0.3])
    (array([1.5, 1. ]), array([1.2, 0.5]))
    """
    C, r = np.asarray(capacity, dtype=np.float64), np.asarray(demand, dtype=np.float64)
    if not r.size:
        return np.zeros_like(C)
    if not (r > 0).all():
        raise ScenarioError(f"demands must be positive; the smallest is {r.min()}")
    sizes = np.unique(r)
    largest = np.searchsorted(sizes, C * (1 + 1e-12), side="right") - 1
    fitting = sizes[np.maximum(largest, 0)]
    equal = np.floor(C / fitting * (1 + 1e-12)) * fitting
    planned = np.where(largest == 0, np.minimum(equal, C), C - fitting)
    return np.where(largest < 0, 0.0, np.maximum(planned, 0.0))


def round_dependent(
    plan: npt.ArrayLike, demand: npt.ArrayLike, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Round a fractional plan to tasks.

    Guarantees: E[x̃] = x, up to 2⁻⁴⁰; the number of tasks of a job is ⌊Σ_i x_ji⌋ or ⌈Σ_i x_ji⌉, so
    (103) holds for whole u_j; the load of a machine exceeds Σ_j r_j x_ji by at most the largest
    demand on it, and its number of tasks is rounded down or up.

    Parameters
    ----------
    plan : array of shape [J, M]
        x, within [0, 1].
    demand : array of shape [J]
        r_j.

    Returns
    -------
    ndarray of bool, shape [J, M]

    Raises
    ------
    ScenarioError
        For an entry outside [0, 1].

    Examples
    --------
    >>> plan = np.full((2, 3), 0.5)
    >>> tasks = round_dependent(plan, [1.0, 1.0], np.random.default_rng(0))
    >>> tasks.sum(axis=0), set(tasks.sum(axis=1).tolist()) <= {1, 2}
    (array([1, 1, 1]), True)
    """
    x = np.asarray(plan, dtype=np.float64)
    if not ((x >= -1e-9) & (x <= 1 + 1e-9)).all():
        worst = x.ravel()[np.argmax(np.abs(x - 0.5))]
        raise ScenarioError(f"a plan to round lies in [0, 1]; found {worst}")
    tasks, _ = rounded(x, np.asarray(demand, dtype=np.float64), rng)
    return tasks


def rounded(
    plan: Floats, demand: Floats, uniforms: np.random.Generator | Floats
) -> tuple[npt.NDArray[np.bool_], Floats]:
    """The tasks, and the chance with which each cycle went up; ``uniforms`` decide for them."""
    unit = 1 << FRACTION
    amount = np.floor(np.clip(plan, 0.0, 1.0) * unit).astype(np.int64)
    tasks: npt.NDArray[np.bool_] = amount >= unit
    J, M = amount.shape
    entries = int(((amount > 0) & (amount < unit)).sum())
    if not entries:
        return tasks, np.zeros(0)
    # A machine has at most one slot more than pairs, and every slot splits one pair at most.
    most = 4 * entries + J + M + 1
    tail, head, flow, pair = (np.empty(most, dtype=np.int64) for _ in range(4))
    total, held, sizes = (np.zeros(n, dtype=np.int64) for n in (J, M, 2))
    order = np.argsort(-demand, kind="stable")
    build(amount, order, tail, head, flow, total, held, pair, sizes)
    edges, nodes = int(sizes[0]), int(sizes[1])
    ends = np.concatenate((tail[:edges], head[:edges]))
    edge = np.argsort(ends, kind="stable") % edges
    size = np.bincount(ends, minlength=nodes)
    start = np.concatenate(([0], np.cumsum(size)[:-1]))
    chances = np.zeros(edges)
    if isinstance(uniforms, np.random.Generator):
        uniforms = uniforms.random(edges)
    cycles = cancel(
        tail, head, flow, start, size, edge, np.full(nodes, -1), np.empty(nodes + 1, np.int64),
        uniforms, chances,
    )  # fmt: skip
    chosen = pair[:edges][(pair[:edges] >= 0) & (flow[:edges] >= unit)]
    tasks.ravel()[chosen] = True
    return tasks, chances[:cycles]
