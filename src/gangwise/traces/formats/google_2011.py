"""Google ClusterData 2011 (version 2.1): machines, jobs and tasks of one cell over 29 days.

Published by Google under CC-BY-4.0; see
https://github.com/google/cluster-data/blob/master/ClusterData2011_2.md. Each table is a folder of
files ``part-00000-of-00500.csv.gz`` and so on, without a header:

====================  =====================================================================
field                 meaning here
====================  =====================================================================
``time``              microseconds; the trace begins at 600 s. 0: before it; 2^63 - 1: after its end
``missing_info``      empty for a real record; 0, 1 or 2 for one that Google filled in
``job``, ``task``     job ID, and the task's number in the job
``event`` of tasks    0 SUBMIT, 1 SCHEDULE, 2 EVICT, 3 FAIL, 4 FINISH, 5 KILL, 6 LOST, 7 and 8
                      UPDATE
``event`` of          0 ADD, 1 REMOVE, 2 UPDATE
machines
``cpu``, ``mem``      shares of the largest machine's; empty when not known
====================  =====================================================================

Of ``job_events``, which have no requests, a workload is made only where ``task_events`` are absent;
:class:`GoogleJobEvents` reads the jobs' lifetimes out of them: a job lasts from its first SUBMIT to
its last end, as :mod:`gangwise.traces.formats.google_events` says. A job that is still there at the
end of the window ends with the window. Jobs that were there before the trace begins have no arrival
and are left out, unless asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.traces.format import Format, TableFile
from gangwise.traces.formats.google_events import OFFSET, Codes, GoogleReader, Machines, machines_of
from gangwise.traces.io.schema import Check, Column, Schema, value
from gangwise.traces.tables import Fidelity

NAME = "google-2011"
ENDS = {2: "EVICT", 3: "FAIL", 4: "FINISH", 5: "KILL", 6: "LOST"}
ID = 2.0**53
"""Larger numbers are not exact as Float64; those of the trace are far below."""

_BEGINS = Check(
    "time is after 0 and before the trace begins, at 600 s",
    ("time",),
    lambda: (value("time") > 0) & (value("time") < OFFSET),
)
_KNOWN = (Check("event is not a code from 0 to 8", ("event",), lambda: value("event") > 8), _BEGINS)
_TIME = Column("time", whole=True, most=2.0**63)
_MISSING = Column("missing_info", number=False, empty=True, pattern="[0-2]")
_JOB = Column("job", whole=True, most=ID)
_USER = Column("user", number=False, empty=True)
_CLASS = Column("class", number=False, empty=True)

JOB_EVENTS = Schema(
    f"{NAME} job events",
    (
        _TIME,
        _MISSING,
        _JOB,
        Column("event", whole=True),
        _USER,
        _CLASS,
        Column("name", number=False, empty=True),
        Column("logical_name", number=False, empty=True),
    ),
    header=False,
    checks=_KNOWN,
)
TASK_EVENTS = Schema(
    f"{NAME} task events",
    (
        _TIME,
        _MISSING,
        _JOB,
        Column("task", whole=True),
        Column("machine", whole=True, most=ID, empty=True),
        Column("event", whole=True),
        _USER,
        _CLASS,
        Column("priority", whole=True, empty=True),
        Column("cpu", empty=True),
        Column("mem", empty=True),
        Column("disk", empty=True),
        Column("different_machines", number=False, empty=True, pattern="[01]"),
    ),
    header=False,
    checks=_KNOWN,
)
MACHINE_EVENTS = Schema(
    f"{NAME} machine events",
    (
        _TIME,
        Column("machine", whole=True, most=ID),
        Column("event", whole=True),
        Column("platform", number=False, empty=True),
        Column("cpu", empty=True),
        Column("mem", empty=True),
    ),
    header=False,
    checks=(
        Check("event is not a code from 0 to 2", ("event",), lambda: value("event") > 2),
        _BEGINS,
    ),
)

FORMAT = Format(
    NAME,
    "Google ClusterData 2011, version 2.1",
    "https://github.com/google/cluster-data/blob/master/ClusterData2011_2.md",
    "CC-BY-4.0",
    (
        TableFile(
            "task_events",
            TASK_EVENTS,
            "task_events",
            parts=True,
            needed=True,
            gives="what jobs request, and of how many tasks they are",
        ),
        TableFile(
            "job_events",
            JOB_EVENTS,
            "job_events",
            parts=True,
            gives="when jobs begin and end, without requests",
        ),
        TableFile("machine_events", MACHINE_EVENTS, "machine_events", parts=True, gives="servers"),
    ),
    span="29 days of May 2011",
    size="41 GB packed, all tables",
    checksums="SHA256SUM in the bucket clusterdata-2011-2",
)


class Google2011(GoogleReader):
    r"""Reader of task events (or job events) and machine events.

    Parameters are those of :class:`~gangwise.traces.formats.google_events.GoogleReader`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> size = Path(folder.name, "part-00000-of-00500.csv").write_text(
    ...     "700000000,,2,0,,0,u,1,9,0.5,0.25,,0\n700000000,,2,1,,0,u,1,9,0.5,0.25,,0\n"
    ...     "710000000,,2,0,7,1,u,1,9,0.5,0.25,,0\n760000000,,2,0,7,4,u,1,9,0.5,0.25,,0\n"
    ...     "790000000,,2,1,,5,u,1,9,0.5,0.25,,0\n"
    ... )
    >>> jobs = Google2011(folder.name).scan().jobs
    >>> jobs.select("name", "tasks", "cpu", "created", "started", "deleted", "status").rows()
    [('2', 2, 0.5, 100.0, 110.0, 190.0, 'KILL')]
    >>> folder.cleanup()
    """

    FORMAT = FORMAT
    OTHER = "google-2019"
    CODES = Codes(submit=0, schedule=1, ends=ENDS)
    TASKS, JOBS = "task_events", "job_events"

    def _events(self, frame: pl.DataFrame, table: str) -> pl.DataFrame:
        requests = ["task", "cpu", "mem"] if table == self.TASKS else []
        return frame.select(
            "part",
            "row",
            "time",
            "event",
            "job",
            "user",
            *requests,
            filled=pl.col("missing_info") != "",
        )

    def _machines(self, end: int) -> Machines:
        events = pl.concat(list(self._batches("machine_events", lambda: False)))
        return machines_of(events, 0, 1, self.first, end, [f.name for f in self.files])


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

    job: Ints
    arrival: Floats
    end: Floats
    running: Bools


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
