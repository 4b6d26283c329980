"""What the figures of §VI show: distributions over jobs, and how many machines tasks move from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError

if TYPE_CHECKING:
    from gangwise.core.run import Run

__all__ = ["cdf", "cost_to_utility_cdf", "migrated_share", "share_at_most"]

Floats = npt.NDArray[np.float64]


def cdf(values: npt.ArrayLike) -> tuple[Floats, Floats]:
    """The distribution function of some values, for a step plot.

    Parameters
    ----------
    values : array of shape [n]
        NaN counts as infinitely large: it lowers the curve and is not drawn.

    Returns
    -------
    points : ndarray
        The different finite values, ascending.
    share : ndarray
        Share of all values that are at most so large.

    Raises
    ------
    ScenarioError
        Without any value.

    Examples
    --------
    >>> cdf([2.0, 1.0, 2.0, float("nan")])
    (array([1., 2.]), array([0.25, 0.75]))
    """
    array = np.asarray(values, dtype=np.float64).ravel()
    if not array.size:
        raise ScenarioError("there are no values to show the distribution of")
    points, counts = np.unique(array[np.isfinite(array)], return_counts=True)
    return points, np.cumsum(counts) / array.size


def share_at_most(values: npt.ArrayLike, threshold: float) -> float:
    """Share of the values that are at most a threshold; NaN never is.

    Examples
    --------
    >>> share_at_most([0.5, 0.9, 1.0, float("nan")], 0.9)
    0.5
    """
    array = np.asarray(values, dtype=np.float64).ravel()
    if not array.size:
        raise ScenarioError("there are no values to count")
    return float((array <= threshold).mean())


def cost_to_utility_cdf(cost: Floats, utility: Floats) -> tuple[Floats, Floats]:
    """Fig. 1a: distribution of C_j / f_j(X_j) over the jobs that cost something.

    Parameters
    ----------
    cost, utility : ndarray of shape [n]
        Per job, in units of price and of utility. A job that cost something and earned nothing has
        an infinite ratio; one that cost nothing has none, and is left out.

    Examples
    --------
    >>> cost_to_utility_cdf(np.array([4.0, 0.0, 3.0]), np.array([2.0, 0.0, 0.0]))
    (array([2.]), array([0.5]))
    """
    played = cost > 0
    ratio = np.full(int(played.sum()), np.nan)
    np.divide(cost[played], utility[played], out=ratio, where=utility[played] > 0)
    return cdf(ratio)


def migrated_share(run: Run, swaps: bool = False) -> float:
    """Mean share of the machines, per slot, that a job still active lost its task on.

    The paper does not define a migration. With ``swaps`` only machines that another job got are
    counted; ``net_moves`` of the run's metrics counts tasks that found a machine elsewhere.
    """
    machines = run.instance.problem.M
    return float(run.metrics["swaps" if swaps else "displaced"].mean() / machines)
