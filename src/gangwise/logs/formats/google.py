"""Events of a Google trace, part by part: lives of tasks and jobs, machines that come and go.

Both traces, of 2011 and of 2019, log what becomes of a job or task: it is submitted, scheduled, and
ends (evicted, failed, finished, killed, lost), perhaps several times. Out of all events of one key
only a summary is kept, of fixed size, and two summaries of a key make one: so memory goes by the
number of tasks rather than of events, and neither the order of rows nor where a file is cut can
change a result.

*Whether it is still there.* A key is there at the end of the window if it was submitted, or seen
(scheduled, updated), later than it last ended. Where the last SUBMIT and the last end have the same
microsecond, it is there if there were more SUBMITs than ends.

:class:`GoogleReader` is what the two readers have in common: a window, and tables out of events.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import polars as pl

from gangwise.core.errors import TraceError
from gangwise.logs.format import declared
from gangwise.logs.reading import MALFORMED, RowAccount, Stage, leave_out, reasons
from gangwise.logs.tables import Reader, Tables, server_table
from gangwise.notation import duration

OFFSET = 600_000_000  # microseconds at which both traces begin; time 0 is before
NEVER = 2**58  # Microseconds; a larger time stands for 2^63 - 1, after the end of the trace
CODES = 16  # more than any event code, so that time * CODES + code sorts by time and then by code
ROWS = 2**40  # more than the rows of any file, so that part * ROWS + row is a place


@dataclass(frozen=True)
class Codes:
    """Numbers of the events: of ``ends``, a task is no longer there; others are signs of life."""

    submit: int
    schedule: int
    ends: Mapping[int, str]


def leave_out_of(
    name: str, frame: pl.DataFrame, rules: Sequence[tuple[str, pl.Expr]], files: Sequence[str]
) -> tuple[pl.DataFrame, Stage]:
    """:func:`~gangwise.logs.reading.leave_out` for rows with a ``place``, of several files."""
    sound, stage = leave_out(name, frame.rename({"place": "row"}), rules)
    return sound.rename({"row": "place"}), in_files(stage, files)


def in_files(stage: Stage, files: Sequence[str]) -> Stage:
    """An account whose first rows are places, with the row and the name of the file in each."""
    dropped = {
        # A place is one number for a file and a row, so that the least of them is the first.
        f"{reason}; the row is of {files[place // ROWS]}": (count, place % ROWS)
        for reason, (count, place) in stage.dropped.items()
    }
    return stage._replace(dropped=dropped)


@dataclass
class TimeOrder:
    """Counts rows that are earlier than the row before them, and where the first of them is."""

    late: int = 0
    first: tuple[int, int] = (0, 0)
    latest: int = 0
    _last: int = 0

    def add(self, events: pl.DataFrame) -> None:
        time = _time()
        times = events.select("part", "row", time=time).with_columns(
            # Shifted by one row, with the last of the batch before in front.
            before=pl.col("time").shift(1, fill_value=self._last)
        )
        # The row before the first of a batch is the last of the batch before.
        late = times.filter(pl.col("time") < pl.col("before"))
        if len(late) and not self.late:
            part, row = late.select("part", "row").row(0)
            self.first = int(part), int(row)
        self.late += len(late)
        self._last = int(times["time"][-1])
        # Events after the trace have the largest time there is, and are no last instant.
        within = times.filter(pl.col("time") < NEVER)["time"]
        self.latest = max(self.latest, int(within.max() or 0))  # type: ignore[arg-type]  # polars types max as any Python value; this column is Int64


@dataclass
class Summaries:
    """Rows that are summed up as they come.

    Rows are summed up when there is as much that is new as was known: each log₂ times.
    """

    combine: Callable[[pl.DataFrame], pl.DataFrame]
    known: list[pl.DataFrame] = field(default_factory=list)
    fresh: list[pl.DataFrame] = field(default_factory=list)

    def add(self, rows: pl.DataFrame) -> None:
        self.fresh.append(rows)
        # As much new as known: each row is then combined a logarithmic number of times.
        if sum(map(len, self.fresh)) > sum(map(len, self.known)):
            self.frame()

    def frame(self) -> pl.DataFrame:
        if self.fresh:
            every = pl.concat([*self.known, *self.fresh])
            self.known, self.fresh = [self.combine(every)], []
        return self.known[0]


@dataclass
class Lives:
    """Summaries of all keys (columns that name a job or task) that occur in events.

    Events after ``end``, in microseconds, tell nothing but that there is such a key.
    """

    keys: Sequence[str]
    codes: Codes
    end: int = NEVER - 1
    order: TimeOrder = field(default_factory=TimeOrder)

    def __post_init__(self) -> None:
        self._rows = Summaries(partial(_combine, keys=self.keys))

    @property
    def empty(self) -> bool:
        return not (self._rows.known or self._rows.fresh)

    def add(self, events: pl.DataFrame) -> None:
        """Take in events: ``part row time event``, the keys, and ``cpu mem`` where there are."""
        if events.is_empty():
            return
        self.order.add(events)
        # Summed up at once within the batch, so that what is kept is small.
        self._rows.add(_combine(_summarise(events, self.keys, self.codes, self.end), self.keys))

    def frame(self) -> pl.DataFrame:
        """One row per key, in microseconds; null where there is no such event.

        ``place`` (:data:`ROWS`), ``created`` (first SUBMIT, also after the window), ``submits``
        (how many), ``started`` (first SCHEDULE), ``deleted`` (last end; null for what is still
        there), ``code`` (of that end), ``cpu mem`` (first given), ``changed`` (given differently
        later).
        """
        # The stamp holds the time and, below it, the code of the event.
        ended = pl.col("ended") // CODES
        alive = (
            ended.is_null()
            | (pl.col("submitted") > ended)
            | (pl.col("seen") > ended)
            | ((pl.col("submitted") == ended) & (pl.col("balance") > 0))
        ).fill_null(False)
        keys = self._rows.frame().select(
            pl.col(*self.keys, "place", "created", "submits", "started", "cpu", "mem", "changed"),
            deleted=pl.when(~alive).then(ended),
            code=pl.when(~alive).then(pl.col("ended") % CODES),
        )
        # Sorted by key, so that the result does not depend on the order of files.
        return keys.sort(*self.keys)


def first_users(events: pl.DataFrame) -> pl.DataFrame:
    """The user of each job, the first by name where it has several."""
    named = events.filter(pl.col("user") != "")
    # The least name rather than the first, which would depend on the order.
    return named.group_by(pl.col("job").cast(pl.Int64)).agg(pl.col("user").min())


def _time() -> pl.Expr:
    # 2^63 - 1 is no exact float, and polars reads numbers as floats.
    return pl.col("time").clip(upper_bound=NEVER).cast(pl.Int64)


def _summarise(events: pl.DataFrame, keys: Sequence[str], codes: Codes, end: int) -> pl.DataFrame:
    time, event = pl.col("time"), pl.col("event")
    # Events after the window only say that the key exists.
    inside, submit = time <= end, event == codes.submit
    stop = event.is_in(list(codes.ends))
    # One number sorts by time, then by code: the last end and its kind in one maximum.
    stamp = time * CODES + event
    requests = "cpu" in events.columns
    requested = pl.lit(requests)
    if requests:
        requested = pl.col("cpu").is_not_null() & pl.col("mem").is_not_null()
    none = pl.lit(None, pl.Float64)
    return events.with_columns(_time().alias("time"), event.cast(pl.Int64)).select(
        *(pl.col(key).cast(pl.Int64) for key in keys),
        place=pl.col("part") * ROWS + pl.col("row"),
        created=pl.when(submit).then(time),
        submitted=pl.when(submit & inside).then(time),
        submits=(submit & inside).cast(pl.Int64),
        # SUBMITs less ends: what is left over is there at the end.
        balance=pl.when(inside).then(submit.cast(pl.Int64) - stop.cast(pl.Int64)),
        started=pl.when((event == codes.schedule) & inside).then(time),
        seen=pl.when(inside & ~submit & ~stop).then(time),
        ended=pl.when(stop & inside).then(stamp),
        asked=pl.when(requested).then(stamp),
        cpu=pl.when(requested).then("cpu") if requests else none,
        mem=pl.when(requested).then("mem") if requests else none,
        changed=pl.lit(False),
    )


def _combine(summaries: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    cpu, mem = pl.col("cpu"), pl.col("mem")
    # Requests that change within a life are counted, and the first is used.
    differ = (cpu.min() != cpu.max()) | (mem.min() != mem.max())
    # In the order of their rows, so that the first request is the same however files are cut.
    ordered = summaries.sort("asked", "cpu", "mem", nulls_last=True)
    return (
        ordered.group_by(*keys, maintain_order=True)
        .agg(
            pl.col("place", "created", "started", "asked").min(),
            pl.col("submitted", "seen", "ended").max(),
            pl.col("submits", "balance").sum(),
            cpu.first(),
            mem.first(),
            changed=pl.col("changed").any() | differ.fill_null(False),
        )
        .select(summaries.columns)
    )


THERE = 31  # instead of the code of an end, of what has not ended


class TraceWindow(NamedTuple):
    """A period of the trace, in microseconds, and what becomes of tasks that were there before."""

    begin: int
    end: int
    present: str


def usable(
    lives: pl.DataFrame, window: TraceWindow, what: str, files: Sequence[str]
) -> tuple[pl.DataFrame, Stage, list[str]]:
    """Keep the lives of which a workload can be made.

    ``lives`` are as of :meth:`Lives.frame`; ``what`` is ``tasks``, which need a request, or
    ``jobs``, which have none; ``files`` are names of the parts. Returns those kept, the account of
    them, and what a reader of a result must know.
    """
    created, begin = pl.col("created"), window.begin
    # At the start of the trace itself nothing can have ended before.
    late = begin > OFFSET
    rules = [
        ("no SUBMIT in the files, so its arrival is not known", created.is_null()),
        ("submitted after the window", created > window.end),
    ]
    if late:
        # Without a length of time in the window such a job has nothing to play.
        rules.append(("ended before the window", pl.col("deleted") < begin))
    # Lives that began before the window have waited an unknown time.
    if window.present == "drop":
        period, how = ("window", "in it") if late else ("trace", "known")
        text = f"there before the {period} begins, so its arrival is not {how}"
        rules.append((text, created < begin))
    if what == "tasks":
        rules.append(("its request is empty in every row", pl.col("cpu").is_null()))
    sound, stage = leave_out_of(what, lives, rules, files)
    anew = "were submitted more than once; each lasts from the first SUBMIT to the last end, "
    true_of = {
        "were there before the window begins; they are let arrive at its start": created < begin,
        f"{anew}waits in between included": pl.col("submits") > 1,
        "gave another request later; the first one given is used": pl.col("changed"),
        "are still there at the end of the window; they end with it (status is empty)": (
            pl.col("deleted").is_null()
        ),
    }
    counts = {text: sound.select(rows.sum()).item() for text, rows in true_of.items()}
    return sound, stage, [f"{count} {what} {text}" for text, count in counts.items() if count]


def job_rows(
    lives: pl.DataFrame, users: pl.DataFrame, window: TraceWindow, codes: Codes
) -> pl.DataFrame:
    """A row per job and request, in seconds since the window began.

    It is there from its first task's arrival until its last task's end, whose kind is its status;
    of ends at the same microsecond, the one with the highest code.
    """

    def seconds(time: pl.Expr) -> pl.Expr:
        # What was there before arrives at the start of the window.
        return (time - window.begin).clip(lower_bound=0) / 1e6

    # As above: time and code in one number, of which the largest is the job's end.
    width = THERE + 1
    # What has not ended gets the end of the window, and a code above all of ends.
    stamp = pl.col("deleted").fill_null(window.end) * width + pl.col("code").fill_null(THERE)
    rows = (
        lives.group_by("job", "cpu", "mem")
        # Tasks of a job that ask for the same are one row.
        .agg(pl.col("place", "created", "started").min(), tasks=pl.len(), stamp=stamp.max())
        .join(users, on="job", how="left")
    )
    name = pl.col("job").cast(pl.String)
    jobs = rows.sort("created", "job", "cpu", "mem").select(
        row=pl.col("place") % ROWS,
        part=pl.col("place") // ROWS,
        name=name,
        job=name,
        cpu="cpu",
        mem="mem",
        gpu=pl.lit(0.0),
        tasks=pl.col("tasks").cast(pl.Int64),
        models=pl.lit(""),
        created=seconds(pl.col("created")),
        started=seconds(pl.col("started")),
        deleted=seconds(pl.col("stamp") // width),
        status=(pl.col("stamp") % width).replace_strict(
            {THERE: "", **codes.ends}, return_dtype=pl.String
        ),
        user=pl.col("user").fill_null(""),
        unfinished=pl.col("stamp") % width == THERE,
    )
    return jobs if "task" in lives.columns else jobs.drop("tasks")


class Machines(NamedTuple):
    servers: pl.DataFrame
    events: pl.DataFrame | None
    stages: tuple[Stage, ...]
    notes: tuple[str, ...]


def machines_of(
    events: pl.DataFrame, add: int, remove: int, begin: int, end: int, files: Sequence[str]
) -> Machines:
    """Servers, and when they are up.

    A server has the capacity that it is first given. It is down until its first event in the
    result, which is at 0 for servers that are up when the window begins. An addition and a removal
    at the same microsecond change nothing.

    ``events`` have ``part row machine time event cpu mem platform``. ``add`` and ``remove`` are
    codes of events; others are updates of capacity. The window is in microseconds.
    """
    cpu, mem, event = pl.col("cpu"), pl.col("mem"), pl.col("event")
    sized = cpu.is_not_null() & mem.is_not_null()
    rows = events.with_columns(
        pl.col("time").clip(upper_bound=NEVER).cast(pl.Int64),
        pl.col("machine").cast(pl.Int64),
        place=pl.col("part") * ROWS + pl.col("row"),
        step=(event == add).cast(pl.Int64) - (event == remove).cast(pl.Int64),
        cpu=pl.when(sized).then(cpu),
        mem=pl.when(sized).then(mem),
        # Nulls last: the size first given counts.
    ).sort("time", "cpu", "mem", nulls_last=True)
    moves = (
        rows.filter(pl.col("time") <= end)
        .group_by("machine", "time", maintain_order=True)
        .agg(pl.col("step").sum())
        # An addition and a removal at one instant cancel.
        .filter(pl.col("step") != 0)
        # What happened before the window has its effect at its beginning.
        .with_columns(at=pl.max_horizontal("time", pl.lit(begin)))
        .group_by("machine", "at", maintain_order=True)
        .agg(up=pl.col("step").last() > 0)
        # Repeated states are no events.
        .filter(pl.col("up") != pl.col("up").shift(1, fill_value=False).over("machine"))
    )
    # The capacity first given stands for the machine's whole life.
    about = (
        rows.group_by("machine")
        .agg(
            pl.col("place").min(),
            cpu.drop_nulls().first(),
            mem.drop_nulls().first(),
            changed=(cpu.min() != cpu.max()) | (mem.min() != mem.max()),
        )
        .sort("machine")
    )
    present = pl.col("machine").is_in(moves["machine"].unique().to_list())
    rules = [("never there during the window", ~present)]
    # A machine without a size could hold nothing.
    rules.append(("its capacity is empty in every row", cpu.is_null()))
    sound, stage = leave_out_of("machines", about, rules, files)
    servers = sound.select(
        row=pl.col("place") % ROWS,
        name=pl.col("machine").cast(pl.String),
        model=pl.lit(""),
        cpu="cpu",
        mem="mem",
        gpu=pl.lit(0.0),
    )
    name, seconds = pl.col("machine").cast(pl.String), (pl.col("at") - begin) / 1e6
    moves = moves.join(sound, on="machine", how="semi").sort("at", "machine")
    moves = moves.select(time=seconds, server=name, up="up")
    platforms = rows.filter(pl.col("platform") != "")["platform"].n_unique()
    notes = [
        f"machines are of {platforms} platforms; a platform is no GPU model, so model is empty"
    ]
    if changed := int(sound["changed"].sum()):
        notes.append(
            f"{changed} machines were given another capacity later; the first one given is used"
        )
    return Machines(servers, moves, (stage,), tuple(notes))


UNITS = {"cpu": "NCU", "mem": "NMU", "gpu": "GPUs"}
NORMALISED = (
    "cpu and mem are shares of the largest machine's (NCU and NMU, normalised compute and memory "
    "units): Google does not say how many cores or bytes that is"
)
NUMBER = re.compile(r"(?:part|events)-(\d+)(?:-of-\d+)?\.")


class GoogleReader(Reader):
    """A reader of events of tasks, of jobs and of machines.

    The window begins ``begin`` hours into the trace and is ``hours`` long, as long as the files by
    default. Tasks that were ``present`` before it begins are left out (``drop``), since their
    arrival is not in it, or let arrive at its ``start``.
    """

    CODES: ClassVar[Codes]
    TASKS: ClassVar[str]
    JOBS: ClassVar[str]
    ADD_AND_REMOVE: ClassVar[tuple[int, int]]  # codes of events of machines
    MACHINES: ClassVar[Mapping[str, str]] = {}  # names of the columns of these events

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
        self.users = Summaries(first_users)
        self._begin()

    def _begin(self) -> None: ...

    @property
    def first(self) -> int:
        return OFFSET + round(self.begin * 3.6e9)

    def _machines(self, end: int) -> Machines:
        # Machines are few: all parts are read, whatever the window.
        events = pl.concat(list(self._batches("machine_events", lambda: False)))
        events = events.rename(self.MACHINES)
        names = [file.name for file in self.files]
        return machines_of(events, *self.ADD_AND_REMOVE, self.first, end, names)

    @abstractmethod
    def _events(self, frame: pl.DataFrame, table: str) -> pl.DataFrame: ...

    def _read_other_table(self, end: int, tasks: bool) -> None: ...

    def _with_precedence(self, jobs: pl.DataFrame) -> pl.DataFrame:
        return jobs

    def _read(self) -> Tables:
        tasks = self.source.has(self.TASKS)
        if not tasks and not self.source.has(self.JOBS):
            self.source.missing(self.TASKS, self.JOBS)
        self.notes.append(NORMALISED)
        lives, window = self.lives_of(self.TASKS if tasks else self.JOBS)
        if not tasks:
            self.notes.append(
                f"{self.TASKS} is not here: of how many tasks jobs are and what they request is "
                "not known (cpu and mem are null)"
            )
        jobs = self._with_precedence(job_rows(lives, self.users.frame(), window, self.CODES))
        machines = Machines(server_table(), None, (), ("machine_events is not here",))
        if self.source.has("machine_events"):
            machines = self._machines(window.end)
        stages, notes = (*self.stages, *machines.stages), (*self.notes, *machines.notes)
        account = (stages, dict(self.digests), notes, dict(UNITS))
        return Tables(self.FORMAT.name, machines.servers, jobs, *account, machines.events)

    def lives_of(self, table: str) -> tuple[pl.DataFrame, TraceWindow]:
        """Tasks or jobs of which a workload can be made, out of the events of a table.

        What is read and left out is added to ``stages``, ``digests`` and ``notes``: read once.
        """
        tasks = table == self.TASKS
        noun = "tasks" if tasks else "jobs"
        lives = self._lives(table, tasks)
        # Without a length given the window is as long as the events.
        end = lives.end if self.hours is not None else max(lives.order.latest, self.first)
        self._read_other_table(end, tasks)
        window = TraceWindow(self.first, end, self.present)
        names = [file.name for file in self.files]
        sound, stage, notes = usable(lives.frame(), window, noun, names)
        self.stages.append(stage)
        self.notes += notes
        if sound.is_empty():
            raise TraceError(
                f"none of the {stage.read} {noun} can be used: {reasons(stage.dropped)}",
                self.source.path,
            )
        return sound, window

    def _batches(self, table: str, enough: Callable[[], bool]) -> Iterator[pl.DataFrame]:
        """Rows of a table, batch by batch; stages and digests are entered into the report.

        After the part in which there is ``enough``, no other is read.
        """
        # Part numbers count from 0 without a gap in each of Google's tables.
        files, earlier, part = self.source.files(table), len(self.files), 0
        for wanted, file in enumerate(files):
            # A part that is missing would hide submissions, so tasks would have none.
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
            number_of_part = int(frame["part"][0])
            # Parts follow each other in time: past the window none is of use.
            if number_of_part != part and enough():
                break
            looked, part = part, number_of_part
            for reading in batches.readings[looked:part]:
                if reading.blocks.damage:
                    raise TraceError(
                        "the file is cut short, and there are parts after it: tasks submitted in "
                        "what is missing would be absent, and others would never end; download it "
                        "again",
                        reading.path,
                    )
            yield frame.with_columns(pl.col("part") + earlier)
        # The part that was begun counts with what was read of it.
        self.stages += batches.stages[: part + 1]
        names = {file.name for file in files[: part + 1]}
        self.digests.update((n, digest) for n, digest in batches.digests.items() if n in names)

    def _lives(self, table: str, tasks: bool) -> Lives:
        # Without a length, the window ends with the last event.
        end = NEVER - 1 if self.hours is None else self.first + round(self.hours * 3.6e9)
        lives = Lives(("job", "task") if tasks else ("job",), self.CODES, end)
        filled = 0
        for frame in self._batches(table, lambda: lives.order.latest >= end):
            events = self._events(frame, table)
            lives.add(events)
            filled += int(events["filled"].sum())
            self.users.add(first_users(events))
        if lives.empty:
            raise TraceError(f"no row of {table} is of a job", self.source.path)
        latest = (lives.order.latest - OFFSET) / 1e6
        # A window that is longer than the files would count jobs as still
        # there that may have ended.
        if self.hours is not None and lives.order.latest < end:
            ends = (end - OFFSET) / 1e6
            # Rounded down to hundredths of an hour, so that the hint itself is possible.
            usable_hours = max(latest / 3600 - self.begin, 0.0) // 0.01 / 100
            raise TraceError(
                f"the parts of {table} here end {duration(max(latest, 0.0))} into the trace; a "
                f"window of {self.hours:g} h ends {duration(ends)} into it: download the parts "
                f"that follow, or choose hours up to {usable_hours:g}",
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


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and isfinite(value)


class Google2011(GoogleReader):
    FORMAT = declared("google-2011")
    CODES = Codes(
        submit=0, schedule=1, ends={2: "EVICT", 3: "FAIL", 4: "FINISH", 5: "KILL", 6: "LOST"}
    )
    TASKS, JOBS, ADD_AND_REMOVE = "task_events", "job_events", (0, 1)

    def _events(self, frame: pl.DataFrame, table: str) -> pl.DataFrame:
        requests = ["task", "cpu", "mem"] if table == self.TASKS else []
        columns = pl.col("part", "row", "time", "event", "job", "user", *requests)
        return frame.select(columns, filled=pl.col("missing_info") != "")


FIRST = "start_after_collection_ids"
ALLOC_SET = 1
REQUESTS = {"task": "instance_index"}
REQUESTS |= {"cpu": "resource_request.cpus", "mem": "resource_request.memory"}


class Google2019(GoogleReader):
    """Reader of instance events, collection events and machine events of one cell.

    Rows of ``jobs`` are the collections that are jobs, by request; those that run in an alloc set
    are among them. ``after`` names the collections that must end first, and ``job`` is the same for
    all collections that this links (the smallest ID of them). Parameters are those of
    :class:`~gangwise.logs.formats.google.GoogleReader`.
    """

    FORMAT = declared("google-2019")
    CODES = Codes(
        submit=0, schedule=3, ends={4: "EVICT", 5: "FAIL", 6: "FINISH", 7: "KILL", 8: "LOST"}
    )
    TASKS, JOBS, ADD_AND_REMOVE = "instance_events", "collection_events", (1, 2)
    MACHINES: ClassVar[Mapping[str, str]] = {
        "machine_id": "machine",
        "type": "event",
        "platform_id": "platform",
        "capacity.cpus": "cpu",
        "capacity.memory": "mem",
    }

    def _begin(self) -> None:
        self._after: dict[int, set[int]] = {}
        self._bound: set[int] = set()
        self._inside: set[int] = set()
        self._untyped, self._rows = 0, {self.TASKS: 0, self.JOBS: 0}
        self._lost = {table: RowAccount(self.source.path) for table in self._rows}

    def _events(self, frame: pl.DataFrame, table: str) -> pl.DataFrame:
        tasks, kind = table == self.TASKS, pl.col("collection_type")
        # Rows are counted before any is dropped, for the account.
        self._rows[table] += len(frame)
        self._untyped += int(frame["collection_type"].null_count())
        frame = self._parse_lists(table, frame, "constraint" if tasks else FIRST)
        # Alloc sets reserve room; the jobs in them are counted themselves.
        frame = self._drop_rows(
            table, frame, "of an alloc set, which is no job", kind.fill_null(0) == ALLOC_SET
        )
        inside = frame.filter(pl.col("alloc_collection_id") > 0)
        self._inside.update(int(job) for job in inside["collection_id"].unique())
        requests = REQUESTS if tasks else {}
        return frame.select(
            pl.col("part", "row", "time"),
            event="type",
            job="collection_id",
            user=pl.lit("") if tasks else pl.col("user"),
            filled=pl.col("missing_type").fill_null(0) > 0,
            **requests,
        )

    def _drop_rows(
        self, table: str, frame: pl.DataFrame, reason: str, broken: pl.Expr
    ) -> pl.DataFrame:
        lost = frame.filter(broken)
        if len(lost):
            part, row = lost.select("part", "row").row(0)
            self._lost[table].leave_out(part * ROWS + row, reason, len(lost))
        return frame.filter(~broken)

    def _parse_lists(self, table: str, frame: pl.DataFrame, column: str) -> pl.DataFrame:
        items_of = {text: _list_items(text, column) for text in frame[column].unique()}
        bad = pl.col(column).is_in([text for text, items in items_of.items() if items is None])
        reason = f"{column} is not a list of the right kind"
        if self.source.strict and len(wrong := frame.filter(bad)):
            part, row, text = wrong.select("part", "row", column).row(0)
            # Strict names the file, as rows of several are in one frame.
            raise TraceError(f"{reason} ({column} = {text!r})", self.files[part], row)
        frame = self._drop_rows(table, frame, reason, bad)
        matching = frame.filter(
            pl.col(column).is_in([text for text, items in items_of.items() if items])
        )
        for number, text in matching.select("collection_id", column).unique().rows():
            if column == FIRST:
                self._after.setdefault(int(number), set()).update(items_of[text] or ())
            else:
                self._bound.add(int(number))
        return frame

    def _read_other_table(self, end: int, tasks: bool) -> None:
        if tasks and self.source.has(self.JOBS):
            order = TimeOrder()
            # One part beyond the end is needed, for users of jobs at the very end.
            for frame in self._batches(self.JOBS, lambda: order.latest > end):
                order.add(frame)
                self.users.add(first_users(self._events(frame, self.JOBS)))
        elif tasks:
            self.notes.append(
                "collection_events is not here: users, and what jobs must start "
                "after, are not known"
            )
        if self._untyped:
            self.notes.append(
                f"{self._untyped} rows have no collection_type; they are taken as of jobs"
            )
        names = [file.name for file in self.files]
        for table, account in self._lost.items():
            if account.dropped:
                stage = account.stage(f"{table}, of jobs", self._rows[table])
                self.stages.append(in_files(stage, names))

    def _with_precedence(self, jobs: pl.DataFrame) -> pl.DataFrame:
        present = set(jobs["name"].to_list())
        names = {str(job): sorted(map(str, prior)) for job, prior in self._after.items()}
        # Jobs of the window; others are not there to wait for.
        wanted = {job: prior for job, prior in names.items() if job in present}
        absent = sum(any(name not in present for name in prior) for prior in wanted.values())
        parents = {job: [n for n in prior if n in present] for job, prior in wanted.items()}
        # Collections that wait for each other are one job of several rows.
        group_of = _connected(sorted(present, key=int), parents)
        inside, bound = (len(present & {*map(str, jobs)}) for jobs in (self._inside, self._bound))
        counts = {
            "start after a collection that is no job of the window; that is left out": absent,
            "run in an alloc set, which reserved what they request before": inside,
            "have constraints on the attributes of machines; they are not used": bound,
        }
        self.notes += [f"{count} jobs {text}" for text, count in counts.items() if count]
        return jobs.with_columns(
            job=pl.col("name").replace_strict(group_of, return_dtype=pl.String),
            after=pl.Series(["|".join(parents.get(n, ())) for n in jobs["name"]], dtype=pl.String),
        )


def _connected(names: list[str], after: dict[str, list[str]]) -> dict[str, str]:
    """For each name the first of those that it is linked to, directly or not."""
    from scipy.sparse import coo_array  # here: whoever recognises a trace imports every format
    from scipy.sparse.csgraph import connected_components

    place = {name: n for n, name in enumerate(names)}
    links = [(place[job], place[leader]) for job in after for leader in after[job]]
    a, b = np.array(links, dtype=np.int64).reshape(-1, 2).T
    # Connected components, whatever the direction of the links.
    graph = coo_array((np.ones(a.size), (a, b)), shape=(len(names), len(names)))
    group = connected_components(graph, directed=False)[1]
    leader = np.unique(group, return_index=True)[1]
    return {name: names[leader[group[n]]] for name, n in place.items()}


def _list_items(text: str, column: str) -> list[Any] | None:
    """Items of a JSON list; None when it is not a list of what the column asks for."""
    try:
        items = json.loads(text or "[]")
        if not isinstance(items, list):
            return None
        if column == FIRST:
            # Numbers are written in quotes by some exports.
            return [int(item) for item in items]
    except MALFORMED:
        return None
    return items if all(isinstance(item, dict) for item in items) else None
