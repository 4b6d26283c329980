"""When the jobs of a window of Google ClusterData 2011 arrive and end, out of job events alone.

A job lasts from its first SUBMIT to its last end, as :mod:`gangwise.traces.google_events` says. A
job that is still there at the end of the window ends with the window. Jobs that were there before
the trace begins have no arrival and are left out, unless asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gangwise.traces.fidelity import Fidelity
from gangwise.traces.google_2011 import NAME, Google2011
from gangwise.traces.google_events import OFFSET


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """Jobs of the window, by arrival.

    Attributes
    ----------
    job : ndarray of int64, shape [n]
        Job ID.
    arrival, end : ndarray of float64, shape [n]
        Seconds since the window began; both within the window, ``end`` not before ``arrival``.
    running : ndarray of bool, shape [n]
        Still there at the end of the window, so that the true lifetime is longer.
    """

    job: npt.NDArray[np.int64]
    arrival: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]
    running: npt.NDArray[np.bool_]


class GoogleJobEvents:
    r"""The job events of a window that begins with the trace.

    Parameters
    ----------
    path : path
        The folder with the parts, or the one above it that holds ``job_events``, or one part. Parts
        are read from the first on, as far as the window needs them; none may be missing.
    hours : float
        Length of the window. The paper: "a 10-hour period".
    present : {"drop", "start"}
        What becomes of jobs that were there before the trace begins, about half as many as arrive
        in ten hours: left out, since their arrival is not known, or let arrive at the start.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.

    Raises
    ------
    TraceError
        When a part is missing, damaged, cut short or not of this format; names the file and row.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> size = Path(folder.name, "part-00000-of-00500.csv").write_text(
    ...     "0,,1,0,u,3,n,l\n700000000,,2,0,u,1,n,l\n700000000,,2,1,u,1,n,l\n"
    ...     "760000000,,2,4,u,1,n,l\n4300000000,,1,5,u,3,n,l\n"
    ... )
    >>> found = GoogleJobEvents(folder.name, hours=1).lifetimes()
    >>> found.job.tolist(), found.arrival.tolist(), found.end.tolist()
    ([2], [100.0], [160.0])
    >>> folder.cleanup()
    """

    def __init__(
        self, path: Path | str, *, hours: float = 10.0, present: str = "drop", strict: bool = False
    ):
        self.path, self.hours, self.present = Path(path), hours, present
        self._reader = Google2011(path, hours=hours, present=present, strict=strict)

    def lifetimes(self) -> Lifetimes:
        """Arrivals and ends of the jobs, read once."""
        return self._found[0]

    def fidelity(self) -> Fidelity:
        """What was read and what was left out."""
        return self._found[1]

    @cached_property
    def _found(self) -> tuple[Lifetimes, Fidelity]:
        import polars as pl

        reader, first, last = self._reader, OFFSET / 1e6, OFFSET / 1e6 + self.hours * 3600.0
        lives, _ = reader.lives_of(reader.JOBS)
        jobs = lives.sort("created", "job")
        ended = jobs["deleted"].cast(pl.Float64).fill_null(np.inf).to_numpy()
        found = Lifetimes(
            jobs["job"].to_numpy(),
            np.maximum(jobs["created"].cast(pl.Float64).to_numpy() / 1e6 - first, 0.0),
            np.minimum(ended / 1e6, last) - first,
            np.isinf(ended),
        )
        return found, Fidelity(
            NAME,
            tuple(reader.stages),
            first,
            last,
            0,
            len(jobs),
            {},
            {},
            tuple(reader.notes),
            dict(reader.digests),
        )
