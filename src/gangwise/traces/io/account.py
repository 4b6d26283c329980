"""The account of rows: how many of a file were read and kept, and why the others were left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import polars as pl

from gangwise.core.errors import TraceError


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


def first_reason(rules: Sequence[tuple[str, pl.Expr]]) -> pl.Expr:
    """The reason of the first rule that a row breaks; null where it breaks none.

    Parameters
    ----------
    rules : sequence of (str, polars.Expr)
        A reason, and what is true of the rows it is a reason for.
    """
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


@dataclass
class Account:
    """What became of each record or row.

    Parameters
    ----------
    file : Path
    strict : bool
        Raise at the first bad one.
    dropped : dict
        Reason to (how many, the first row).
    """

    file: Path
    strict: bool = False
    dropped: dict[str, tuple[int, int]] = field(default_factory=dict)

    def refuse(self, row: int, reason: str, held: object = "") -> None:
        """Leave out a bad record, or raise with ``strict``."""
        if self.strict:
            shown = f" ({held!r:.80})" if held != "" else ""
            raise TraceError(
                f"{reason}{shown}; correct it, or read without strict to leave such out",
                self.file,
                row,
            )
        self.leave_out(row, reason)

    def leave_out(self, row: int, reason: str) -> None:
        """Leave out a record that is as published, but cannot be used."""
        count, first = self.dropped.get(reason, (0, row))
        self.dropped[reason] = (count + 1, min(first, row))

    def stage(self, name: str, read: int) -> Stage:
        """The account as a stage of the fidelity report."""
        kept = read - sum(count for count, _ in self.dropped.values())
        return Stage(name, read, kept, dict(self.dropped))

    def require(self, kept: int, what: str) -> None:
        """Raise when nothing is left."""
        if not kept:
            raise TraceError(f"no {what} can be used: {reasons(self.dropped)}", self.file)
