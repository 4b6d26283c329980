"""Google ClusterData 2011, version 2.1 (``google-2011.toml``): tasks, jobs and machines of a cell.

Of ``job_events``, which have no requests, a workload is made only where ``task_events`` are absent;
:class:`GoogleJobEvents` reads the jobs' lifetimes out of them: a job lasts from its first SUBMIT to
its last end. One that is still there at the end of the window ends with the window. Jobs that were
there before the trace begins have no arrival and are left out, unless asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.traces.format import declared
from gangwise.traces.formats.google_events import OFFSET, Codes, GoogleReader, Machines, machines_of
from gangwise.traces.tables import Fidelity

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


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """Jobs of the window, by arrival: their IDs, and arrivals and ends in seconds, of shape [n].

    Times are since the window began and within it, an end is not before its arrival. A job that is
    ``running`` is still there at the end of the window, so that its true lifetime is longer.
    """

    job: Ints
    arrival: Floats
    end: Floats
    running: Bools


class GoogleJobEvents:
    """The job events of a window that begins with the trace.

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
    """

    def __init__(
        self, path: Path | str, *, hours: float = 10.0, present: str = "drop", strict: bool = False
    ):
        self.path, self.hours, self.present = Path(path), hours, present
        self._reader = Google2011(path, hours=hours, present=present, strict=strict)

    def lifetimes(self) -> Lifetimes:
        return self._found[0]

    def fidelity(self) -> Fidelity:
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
