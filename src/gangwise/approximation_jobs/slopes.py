"""Slopes of the utilities of several jobs at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.table import JobTable
from gangwise.approximation_jobs.utilities import OWN
from gangwise.kernels import approximation as kernels

__all__ = ["slopes_at"]

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
    """
    slopes = np.empty(rows.size)
    kernels.slopes(rows, jobs.kind, jobs.v, jobs.shape, work, slopes)
    for k in np.flatnonzero(jobs.kind[rows] == OWN):
        job = jobs.jobs[rows[k]]
        assert job is not None
        slopes[k] = job.utility.slope(float(work[k]))
    return slopes
