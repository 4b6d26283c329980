"""Lives of jobs and tasks out of the events of a Google trace, part by part.

Both traces log what becomes of a job or task: it is submitted, scheduled, and ends (evicted,
failed, finished, killed, lost), perhaps several times. Out of all events of one key only a summary
is kept, of fixed size, and two summaries of a key make one: so memory goes by the number of tasks
rather than of events, and neither the order of rows nor where a file is cut can change a result.

*Whether it is still there.* A key is there at the end of the window if it was submitted, or seen
(scheduled, updated), later than it last ended. Where the last SUBMIT and the last end have the same
microsecond, it is there if there were more SUBMITs than ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gangwise.traces.fidelity import Stage, leave_out

if TYPE_CHECKING:
    import polars as pl


OFFSET = 600_000_000
"""Microseconds at which both traces begin; time 0 is before."""
NEVER = 2**58
"""Microseconds; a larger time stands for 2^63 - 1, after the end of the trace."""
CODES = 16
"""More than any event code, so that time * CODES + code sorts by time and then by code."""
ROWS = 2**40
"""More than the rows of any file, so that part * ROWS + row is a place."""


@dataclass(frozen=True)
class Codes:
    """Numbers of the events.

    Attributes
    ----------
    submit, schedule : int
    ends : mapping of int to str
        Events after which a task is no longer there, by name. All others are signs of life.
    """

    submit: int
    schedule: int
    ends: Mapping[int, str]


def leave_out_of(
    name: str, frame: pl.DataFrame, rules: Sequence[tuple[str, pl.Expr]], files: Sequence[str]
) -> tuple[pl.DataFrame, Stage]:
    """:func:`~gangwise.traces.fidelity.leave_out` for rows with a ``place``, of several files."""
    kept, stage = leave_out(name, frame.rename({"place": "row"}), rules)
    dropped = {
        f"{reason}; the row is of {files[place // ROWS]}": (count, place % ROWS)
        for reason, (count, place) in stage.dropped.items()
    }
    return kept.rename({"row": "place"}), stage._replace(dropped=dropped)


@dataclass
class Order:
    """Rows that are earlier than the row before them: how many, and where the first of them is."""

    late: int = 0
    first: tuple[int, int] = (0, 0)
    latest: int = 0
    _last: int = 0

    def add(self, events: pl.DataFrame) -> None:
        """Look at the next rows, as they are in the files."""
        import polars as pl

        time = _time()
        seen = events.select("part", "row", time=time).with_columns(
            before=pl.col("time").shift(1, fill_value=self._last)
        )
        late = seen.filter(pl.col("time") < pl.col("before"))
        if len(late) and not self.late:
            part, row = late.select("part", "row").row(0)
            self.first = int(part), int(row)
        self.late += len(late)
        self._last = int(seen["time"][-1])
        within = seen.filter(pl.col("time") < NEVER)["time"]
        self.latest = max(self.latest, int(within.max() or 0))  # type: ignore[arg-type]  # polars types max as any Python value; this column is Int64


@dataclass
class Lives:
    """Summaries of all keys that occur in events.

    Parameters
    ----------
    keys : sequence of str
        Columns that name a job or task.
    codes : Codes
    end : int
        Microseconds: later events tell nothing but that there is such a key.
    """

    keys: Sequence[str]
    codes: Codes
    end: int = NEVER - 1
    order: Order = field(default_factory=Order)
    _stack: list[pl.DataFrame] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether there was no event at all."""
        return not self._stack

    def add(self, events: pl.DataFrame) -> None:
        """Take in events: ``part row time event``, the keys, and ``cpu mem`` where there are."""
        if events.is_empty():
            return
        self.order.add(events)
        self._stack.append(_combine(_lift(events, self.keys, self.codes, self.end), self.keys))
        while len(self._stack) > 1 and len(self._stack[-2]) <= 2 * len(self._stack[-1]):
            self._merge()

    def frame(self) -> pl.DataFrame:
        """One row per key, in microseconds; null where there is no such event.

        ``place`` (:data:`ROWS`), ``created`` (first SUBMIT, also after the window), ``submits``
        (how many), ``started`` (first SCHEDULE), ``deleted`` (last end; null for what is still
        there), ``code`` (of that end), ``cpu mem`` (first given), ``changed`` (given differently
        later).
        """
        import polars as pl

        while len(self._stack) > 1:
            self._merge()
        ended = pl.col("ended") // CODES
        there = (
            ended.is_null()
            | (pl.col("submitted") > ended)
            | (pl.col("seen") > ended)
            | ((pl.col("submitted") == ended) & (pl.col("balance") > 0))
        ).fill_null(False)
        return (
            self._stack[0]
            .select(
                *self.keys,
                "place",
                "created",
                "submits",
                "started",
                deleted=pl.when(~there).then(ended),
                code=pl.when(~there).then(pl.col("ended") % CODES),
                cpu="cpu",
                mem="mem",
                changed="changed",
            )
            .sort(*self.keys)
        )

    def _merge(self) -> None:
        import polars as pl

        last, before = self._stack.pop(), self._stack.pop()
        self._stack.append(_combine(pl.concat([before, last]), self.keys))


def _time() -> pl.Expr:
    import polars as pl

    return pl.col("time").clip(upper_bound=NEVER).cast(pl.Int64)


def _lift(events: pl.DataFrame, keys: Sequence[str], codes: Codes, end: int) -> pl.DataFrame:
    """Every event as the summary of itself alone."""
    import polars as pl

    time, event = pl.col("time"), pl.col("event")
    inside, submit = time <= end, event == codes.submit
    stop = event.is_in(list(codes.ends))
    stamp = time * CODES + event
    requests = "cpu" in events.columns
    given = pl.lit(requests)
    if requests:
        given = pl.col("cpu").is_not_null() & pl.col("mem").is_not_null()
    none = pl.lit(None, pl.Float64)
    return events.with_columns(_time().alias("time"), event.cast(pl.Int64)).select(
        *(pl.col(key).cast(pl.Int64) for key in keys),
        place=pl.col("part") * ROWS + pl.col("row"),
        created=pl.when(submit).then(time),
        submitted=pl.when(submit & inside).then(time),
        submits=(submit & inside).cast(pl.Int64),
        balance=pl.when(inside).then(submit.cast(pl.Int64) - stop.cast(pl.Int64)),
        started=pl.when((event == codes.schedule) & inside).then(time),
        seen=pl.when(inside & ~submit & ~stop).then(time),
        ended=pl.when(stop & inside).then(stamp),
        asked=pl.when(given).then(stamp),
        cpu=pl.when(given).then("cpu") if requests else none,
        mem=pl.when(given).then("mem") if requests else none,
        changed=pl.lit(False),
    )


def _combine(summaries: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """One summary per key."""
    import polars as pl

    cpu, mem = pl.col("cpu"), pl.col("mem")
    differ = (cpu.min() != cpu.max()) | (mem.min() != mem.max())
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
