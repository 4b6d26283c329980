"""Slopes of the utilities of several jobs at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.table import JobTable
from gangwise.approximation_jobs.utilities import OWN
from gangwise.core.errors import ScenarioError
from gangwise.kernels import approximation as kernels

__all__ = ["relative", "slopes_at"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def slopes_at(jobs: JobTable, rows: Ints, work: Floats) -> Floats:
    """f_j'(X_j) of the jobs in some table rows.

    Parameters
    ----------
    jobs : JobTable
    rows : ndarray of int64, shape [n]
    work : ndarray of shape [n]
        X_j, positive, in units of work.

    Returns
    -------
    ndarray of shape [n]
        Utility per unit of work.

    Raises
    ------
    ScenarioError
        For a utility of your own whose slope is not a number, zero or larger; names the job.
    """
    slopes = np.empty(rows.size)
    kernels.slopes(rows, jobs.kind, jobs.v, jobs.shape, work, slopes)
    for k in np.flatnonzero(jobs.kind[rows] == OWN):
        job = jobs.jobs[rows[k]]
        assert job is not None
        slopes[k] = slope = job.utility.slope(float(work[k]))
        if not 0 <= slope < np.inf:
            raise ScenarioError(
                f"job {job.id!r}: the slope of its utility at work {work[k]:g} is {slope}; it must "
                "be a finite number, zero or larger"
            )
    return slopes


def relative(slopes: Floats) -> Floats:
    """Slopes as shares of the largest; all zero where nobody gains from more work.

    Examples
    --------
    >>> relative(np.array([1.0, 4.0])), relative(np.zeros(2))
    (array([0.25, 1.  ]), array([0., 0.]))
    """
    largest = float(slopes.max(initial=0.0))
    return slopes / largest if largest > 0 else slopes
