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
:mod:`gangwise.traces.google_2011_jobs` reads the jobs' lifetimes out of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangwise.core.errors import TraceError
from gangwise.traces.formats import Format, TableFile
from gangwise.traces.google_events import OFFSET, Codes
from gangwise.traces.google_machines import Machines, machines_of
from gangwise.traces.google_reader import GoogleReader
from gangwise.traces.schema import Check, Column, Schema, value

if TYPE_CHECKING:
    import polars as pl

    from gangwise.scenarios.opm import GoogleScenario
    from gangwise.traces.jobs_workload import JobsTraceScenario


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

    Parameters are those of :class:`~gangwise.traces.google_reader.GoogleReader`.

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
    FAMILY = "approximation_jobs"
    CODES = Codes(submit=0, schedule=1, ends=ENDS)
    TASKS, JOBS = "task_events", "job_events"

    @staticmethod
    def scenario(trace: Google2011, **settings: Any) -> GoogleScenario | JobsTraceScenario:
        """What ``open_trace`` builds of it: the scenario of the OPM paper, out of job events.

        Of task events alone it is what is built of any other trace.
        """
        from gangwise.scenarios.opm import GoogleScenario
        from gangwise.traces.google_2011_jobs import GoogleJobEvents
        from gangwise.traces.jobs_workload import JobsTraceScenario

        if not trace.source.has("job_events"):
            return JobsTraceScenario(trace, **settings)
        if trace.begin:
            raise TraceError(
                f"begin is {trace.begin:g}; the scenario's window begins with the trace",
                trace.source.path,
            )
        jobs = GoogleJobEvents(
            trace.source.path,
            hours=10.0 if trace.hours is None else trace.hours,
            present=trace.present,
            strict=trace.source.strict,
        )
        return GoogleScenario(trace=jobs, **settings)

    def _events(self, frame: pl.DataFrame, table: str) -> pl.DataFrame:
        import polars as pl

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
        import polars as pl

        events = pl.concat(list(self._batches("machine_events", lambda: False)))
        return machines_of(events, 0, 1, self.first, end, [f.name for f in self.files])

    def _other(self) -> Format:
        from gangwise.traces.google_2019_format import FORMAT as OTHER

        return OTHER
