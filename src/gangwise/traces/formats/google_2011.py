"""Google ClusterData 2011, version 2.1 (``google-2011.toml``): tasks, jobs and machines of a cell.

Of ``job_events``, which have no requests, a workload is made only where ``task_events`` are absent:
a job lasts from its first SUBMIT to its last end. One that is still there at the end of the window
ends with the window. Jobs that were there before the trace begins have no arrival and are left out,
unless asked for.
"""

from __future__ import annotations

import polars as pl

from gangwise.traces.format import declared
from gangwise.traces.formats.google_events import Codes, GoogleReader, Machines, machines_of

NAME = "google-2011"
ENDS = {2: "EVICT", 3: "FAIL", 4: "FINISH", 5: "KILL", 6: "LOST"}


class Google2011(GoogleReader):
    FORMAT = declared(NAME)
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
