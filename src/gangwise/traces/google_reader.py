"""What the readers of both Google traces have in common: a window, and tables out of events."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gangwise.core.errors import TraceError
from gangwise.traces.fidelity import Stage, period, reasons
from gangwise.traces.formats import Format, files_of, recognise
from gangwise.traces.google_events import NEVER, OFFSET, Codes, Lives
from gangwise.traces.google_jobs import Window, job_rows, usable
from gangwise.traces.google_machines import Machines, no_machines
from gangwise.traces.trace import Reader, Tables

if TYPE_CHECKING:
    import polars as pl


UNITS = {"cpu": "NCU", "mem": "NMU", "gpu": "GPUs"}
NORMALISED = (
    "cpu and mem are shares of the largest machine's (NCU and NMU, normalised compute and memory "
    "units): Google does not say how many cores or bytes that is"
)
NUMBER = re.compile(r"(?:part|events)-(\d+)(?:-of-\d+)?\.")


class GoogleReader(Reader):
    """A reader of events of tasks, of jobs and of machines.

    Parameters
    ----------
    path : path
        The folder with the tables, or one of its files.
    hours : float, optional
        Length of the window; as long as the files otherwise.
    begin : float
        Hours from the start of the trace to the window.
    present : {"drop", "start"}
        What becomes of tasks that were there before the window begins: left out, since their
        arrival is not in it, or let arrive at its start.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.

    Attributes
    ----------
    files : list of Path
        Those that were read so far.
    stages : list of Stage
    digests : dict
        SHA-256, by name of the file.
    notes : list of str

    Raises
    ------
    TraceError
        For a window or ``present`` that cannot be.
    """

    CODES: ClassVar[Codes]
    TASKS: ClassVar[str]
    JOBS: ClassVar[str]

    def __init__(
        self,
        path: Path | str,
        *,
        hours: float | None = None,
        begin: float = 0.0,
        present: str = "drop",
        strict: bool = False,
    ):
        if hours is not None and not (_finite(hours) and hours > 0):
            raise TraceError(f"hours is {hours!r}; the window needs a positive length")
        if not (_finite(begin) and begin >= 0):
            raise TraceError(
                f"begin is {begin!r}; the window begins 0 hours into the trace or later"
            )
        if present not in ("drop", "start"):
            raise TraceError(f"present is {present!r}; choose drop or start")
        super().__init__(path, strict=strict)
        self.hours, self.begin, self.present = hours, begin, present
        self.files: list[Path] = []
        self.stages: list[Stage] = []
        self.digests: dict[str, str] = {}
        self.notes: list[str] = []
        self._users: list[pl.DataFrame] = []

    @property
    def first(self) -> int:
        """Microsecond at which the window begins."""
        return OFFSET + round(self.begin * 3.6e9)

    @abstractmethod
    def _machines(self, end: int) -> Machines: ...

    @abstractmethod
    def _events(self, frame: pl.DataFrame, table: str) -> pl.DataFrame:
        """``part row time event job (task cpu mem) user filled`` of jobs; filled: by Google."""

    def _beside(self, end: int, tasks: bool) -> None:
        """Read what another table tells of the jobs of tasks."""

    def _extra(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """Add columns that only one of the traces has."""
        return jobs

    @abstractmethod
    def _other(self) -> Format:
        """The trace that this one could be mistaken for."""

    def _read(self) -> Tables:
        tasks = self.source.has(self.TASKS)
        if not tasks and not self.source.has(self.JOBS):
            self._refuse()
        self.notes.append(NORMALISED)
        kept, window = self.lives_of(self.TASKS if tasks else self.JOBS)
        if not tasks:
            self.notes.append(
                f"{self.TASKS} is not here: of how many tasks jobs are and what they request is "
                "not known (cpu and mem are null)"
            )
        jobs = self._extra(job_rows(kept, self._users[0], window, self.CODES))
        found = no_machines()
        if self.source.has("machine_events"):
            found = self._machines(window.end)
        return Tables(
            self.FORMAT.name,
            found.servers,
            jobs,
            (*self.stages, *found.stages),
            dict(self.digests),
            (*self.notes, *found.notes),
            dict(UNITS),
            found.events,
        )

    def lives_of(self, table: str) -> tuple[pl.DataFrame, Window]:
        """Tasks or jobs of which a workload can be made, out of the events of a table.

        What is read and left out is added to ``stages``, ``digests`` and ``notes``: read once.

        Returns
        -------
        DataFrame
            As of :meth:`gangwise.traces.google_events.Lives.frame`.
        Window
        """
        tasks = table == self.TASKS
        what = "tasks" if tasks else "jobs"
        lives = self._lives(table, tasks)
        end = lives.end if self.hours is not None else max(lives.order.latest, self.first)
        self._beside(end, tasks)
        window = Window(self.first, end, self.present)
        names = [file.name for file in self.files]
        kept, stage, notes = usable(lives.frame(), window, what, names)
        self.stages.append(stage)
        self.notes += notes
        if kept.is_empty():
            raise TraceError(
                f"none of the {stage.read} {what} can be used: {reasons(stage.dropped)}",
                self.source.path,
            )
        return kept, window

    def _batches(self, table: str, enough: Callable[[], bool]) -> Iterator[pl.DataFrame]:
        """Rows of a table; what is read is entered into the report.

        After the part in which there is ``enough``, no other is read.
        """
        import polars as pl

        files, before, part = self.source.files(table), len(self.files), 0
        for wanted, file in enumerate(files):
            number = NUMBER.search(file.name)
            if number and int(number[1]) != wanted:
                raise TraceError(
                    f"part {wanted:05d} is missing, before {file.name}: tasks submitted in it "
                    "would be absent, and others would never end; download it",
                    file.parent,
                )
        self.files += files
        batches = self.source.batches(table)
        for frame in batches:
            if frame.is_empty():
                continue
            here = int(frame["part"][0])
            if here != part and enough():
                break
            part = here
            for file, stage in zip(files[:part], batches.stages):
                if any(why.startswith("CUT SHORT") for why in stage.dropped):
                    raise TraceError(
                        "the file is cut short, and there are parts after it: tasks submitted in "
                        "what is missing would be absent, and others would never end; download it "
                        "again",
                        file,
                    )
            yield frame.with_columns(pl.col("part") + before)
        self.stages += batches.stages[: part + 1]
        read = {file.name for file in files[: part + 1]}
        self.digests.update((n, digest) for n, digest in batches.digests.items() if n in read)

    def _name(self, events: pl.DataFrame) -> None:
        """Enter the user of each job."""
        import polars as pl

        named = events.filter(pl.col("user") != "").select(pl.col("job").cast(pl.Int64), "user")
        self._users = [pl.concat([*self._users, named]).group_by("job").agg(pl.col("user").min())]

    def _lives(self, table: str, tasks: bool) -> Lives:
        """Lives of tasks, or of jobs; no part is read that is not needed."""
        end = NEVER - 1 if self.hours is None else self.first + round(self.hours * 3.6e9)
        lives = Lives(("job", "task") if tasks else ("job",), self.CODES, end)
        filled = 0
        for frame in self._batches(table, lambda: lives.order.latest >= end):
            events = self._events(frame, table)
            lives.add(events)
            filled += int(events["filled"].sum())
            self._name(events)
        if lives.empty:
            raise TraceError(f"no row of {table} is of a job", self.source.path)
        latest = (lives.order.latest - OFFSET) / 1e6
        if self.hours is not None and lives.order.latest < end:
            last = (end - OFFSET) / 1e6
            usable_hours = max(latest / 3600 - self.begin, 0.0) // 0.01 / 100
            raise TraceError(
                f"the parts of {table} here end {period(max(latest, 0.0))} into the trace; a "
                f"window of {self.hours:g} h ends {period(last)} into it: download the parts that "
                f"follow, or choose hours up to {usable_hours:g}",
                self.source.path,
            )
        if filled:
            self.notes.append(f"{filled} rows were filled in by Google; they are used")
        if lives.order.late:
            part, row = lives.order.first
            self.notes.append(
                f"{lives.order.late} rows are earlier than the row before them, the first is row "
                f"{row} of {self.files[part].name}; rows are put in order of time"
            )
        return lives

    def _refuse(self) -> None:
        """Say what is here instead of events of tasks or jobs."""
        other, files = self._other(), files_of(self.source.path)
        for file in files:
            if found := recognise(file, [other]):
                raise TraceError(
                    f"this looks like {found[0][1].name} of {other.name}, not like "
                    f"{self.FORMAT.name}, whose event codes differ; read it with "
                    f"trace={other.name!r}",
                    file,
                )
        listed = ", ".join(f.name for f in files[:8]) or "nothing that can be read"
        raise TraceError(
            f"neither {self.TASKS} nor {self.JOBS} of {self.FORMAT.name} here; found {listed}",
            self.source.path,
        )


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and isfinite(value)
