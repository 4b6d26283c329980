"""How faithfully a trace was read: nothing is left out or changed without a line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gangwise.core.errors import TraceError

if TYPE_CHECKING:
    import polars as pl


UNITS = {"cpu": "cores", "mem": "GiB", "gpu": "GPUs"}


class Stage(NamedTuple):
    """A file that was read, or a later step that leaves jobs out.

    ``dropped`` maps a reason to (how many, the first row of the file that was).
    """

    name: str
    read: int
    kept: int
    dropped: Mapping[str, tuple[int, int]]


def reasons(*dropped: Mapping[str, tuple[int, int]]) -> str:
    """Why rows were left out, in a message.

    >>> reasons({"cpu is negative": (3, 4)}, {"it requests nothing": (1, 9)})
    'cpu is negative (3, first in row 4); it requests nothing (1, first in row 9)'
    """
    every = (item for each in dropped for item in each.items())
    return "; ".join(f"{why} ({count}, first in row {row})" for why, (count, row) in every)


def reason_lines(dropped: Mapping[str, tuple[int, int]]) -> list[str]:
    """Why rows were left out, in lines of a report."""
    return [f"    {count:8d}  {why} (first in row {row})" for why, (count, row) in dropped.items()]


def reasons_plain(dropped: Mapping[str, tuple[int, int]]) -> dict[str, dict[str, int]]:
    """Why rows were left out, ready for JSON."""
    return {why: {"count": count, "first_row": row} for why, (count, row) in dropped.items()}


@dataclass(frozen=True)
class Fidelity:
    """What became of a trace.

    Attributes
    ----------
    trace : str
        Registered name of the format.
    stages : tuple of Stage
        Rows read, kept and dropped, file by file and step by step.
    first, last : float
        Seconds since the start of the trace: the period that ``load`` is a mean over. Both 0 when
        there are no jobs, or when their times are not known.
    servers, jobs : int
    capacity : mapping of str to float
        Total of each device type; empty when there are no servers.
    load : mapping of str to float
        Mean over the period of devices requested / devices there, see
        :func:`~gangwise.traces.load.implied_load`; empty when there are no servers or no jobs.
    notes : tuple of str
    digests : mapping of str to str
        SHA-256 of each file.
    units : mapping of str to str
        Of ``cpu``, ``mem`` and ``gpu``.

    Examples
    --------
    >>> report = Fidelity(
    ...     "my-trace",
    ...     (Stage("pods.csv", 3, 2, {"cpu is negative": (1, 4)}),),
    ...     0.0,
    ...     7200.0,
    ...     1,
    ...     2,
    ...     {"cpu": 8.0},
    ...     {"cpu": 0.25},
    ... )
    >>> print(report)
    my-trace: 1 servers, 2 jobs, 0 s to 7200 s (2 h)
      pods.csv: 3 read, 2 kept
               1  cpu is negative (first in row 4)
      device type         capacity  unit     implied load
      cpu                        8  cores          25.0 %
    """

    trace: str
    stages: tuple[Stage, ...]
    first: float
    last: float
    servers: int
    jobs: int
    capacity: Mapping[str, float]
    load: Mapping[str, float]
    notes: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=lambda: dict(UNITS))

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        plain = asdict(self)
        plain["stages"] = [
            {**stage._asdict(), "dropped": reasons_plain(stage.dropped)} for stage in self.stages
        ]
        plain["notes"] = list(self.notes)
        plain["period"] = period(self.last - self.first)
        return plain

    def __str__(self) -> str:
        lines = [
            f"{self.trace}: {self.servers or 'no'} servers, {self.jobs or 'no'} jobs"
            + f", {self.first:.0f} s to {self.last:.0f} s ({period(self.last - self.first)})"
            * bool(self.jobs)
        ]
        for stage in self.stages:
            lines.append(f"  {stage.name}: {stage.read} read, {stage.kept} kept")
            lines += reason_lines(stage.dropped)
        if self.capacity:
            lines.append(
                f"  {'device type':<16s}{'capacity':>12s}  {'unit':<8s}{'implied load':>13s}"
            )
        for device, total in self.capacity.items():
            unit = self.units[device.split(":")[0]]
            load = f"{100 * self.load[device]:.1f} %" if device in self.load else "-"
            lines.append(f"  {device:<16s}{total:12.10g}  {unit:<8s}{load:>13s}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def period(seconds: float) -> str:
    """A duration for people.

    >>> period(12902960.0), period(90.0)
    ('149.3 days', '1.5 min')
    """
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{seconds:g} s"


def first_reason(rules: Sequence[tuple[str, pl.Expr]]) -> pl.Expr:
    """The reason of the first rule that a row breaks; null where it breaks none.

    Parameters
    ----------
    rules : sequence of (str, polars.Expr)
        A reason, and what is true of the rows it is a reason for.
    """
    import polars as pl

    given = (pl.when(broken).then(pl.lit(reason)) for reason, broken in rules)
    return pl.coalesce(*given, pl.lit(None, pl.String))


def leave_out(
    name: str, frame: pl.DataFrame, rules: Sequence[tuple[str, pl.Expr]]
) -> tuple[pl.DataFrame, Stage]:
    """Leave out the rows that break a rule, each for the first that it breaks.

    Parameters
    ----------
    name : str
        Of the stage.
    frame : polars.DataFrame
        With a column ``row``.
    rules : sequence of (str, polars.Expr)
        As of :func:`first_reason`.

    Returns
    -------
    DataFrame
        The rows kept.
    Stage
        The account of it.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"row": [1, 2, 3], "cpu": [4.0, 0.0, None]})
    >>> kept, stage = leave_out("tasks", frame, [("asks for nothing", pl.col("cpu") == 0)])
    >>> kept["row"].to_list(), dict(stage.dropped)
    ([1, 3], {'asks for nothing': (1, 2)})
    """
    import polars as pl

    reason = frame.with_columns(reason=first_reason(rules))["reason"]
    kept = frame.filter(reason.is_null())
    lost = frame.select("row", reason=reason).filter(reason.is_not_null())
    counted = lost.group_by("reason").agg(pl.len(), pl.col("row").min()).sort("row", "reason")
    dropped = {text: (count, row) for text, count, row in counted.rows()}
    return kept, Stage(name, len(frame), len(kept), dropped)


def refuse(file: Path, frame: pl.DataFrame, rules: Sequence[tuple[str, pl.Expr]]) -> None:
    """Raise for the first row that breaks a rule, where rules are strict.

    Parameters
    ----------
    file : Path
    frame : polars.DataFrame
        With the columns ``row`` and ``name``.
    rules : sequence of (str, polars.Expr)
        As of :func:`first_reason`.
    """
    bad = frame.select("row", "name", reason=first_reason(rules)).drop_nulls("reason").sort("row")
    if len(bad):
        row, name, reason = bad.row(0)
        raise TraceError(
            f"{reason} (name = {name!r}); correct the row, or read without strict to leave such "
            "rows out",
            file,
            row,
        )
