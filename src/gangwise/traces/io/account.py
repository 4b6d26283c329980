"""The account of rows: how many of a file were read and kept, and why the others were left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import polars as pl

from gangwise.core.errors import TraceError

STEP = "a step, whose job has a row of its own"
PART = "a part of a job, which has a row for the whole"
EARLIER = "a record of a job, which has a later one"
FIXED = "of a DaemonSet, or static: on its node whatever is decided"
NO_JOBS = frozenset({STEP, PART, EARLIER, FIXED})
"""Reasons for which rows are left out that are no jobs."""


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
    return [f"    {count:8d}  {why} (first in row {row})" for why, (count, row) in dropped.items()]


def reasons_plain(dropped: Mapping[str, tuple[int, int]]) -> dict[str, dict[str, int]]:
    return {why: {"count": count, "first_row": row} for why, (count, row) in dropped.items()}


Rule = tuple[str | pl.Expr, pl.Expr]
"""A reason, or what makes one of a row, and what is true of the rows that it is a reason for."""


def first_reason(rules: Sequence[Rule]) -> pl.Expr:
    """The reason of the first rule that a row breaks; null where it breaks none."""
    given = (
        pl.when(broken).then(pl.lit(reason) if isinstance(reason, str) else reason)
        for reason, broken in rules
    )
    return pl.coalesce(*given, pl.lit(None, pl.String))


def leave_out(name: str, frame: pl.DataFrame, rules: Sequence[Rule]) -> tuple[pl.DataFrame, Stage]:
    """Leave out the rows that break a rule, each for the first that it breaks.

    ``frame`` has a column ``row``, ``name`` is that of the stage.

    >>> import polars as pl
    >>> frame = pl.DataFrame({"row": [1, 2, 3], "cpu": [4.0, 0.0, None]})
    >>> kept, stage = leave_out("tasks", frame, [("asks for nothing", pl.col("cpu") == 0)])
    >>> kept["row"].to_list(), dict(stage.dropped)
    ([1, 3], {'asks for nothing': (1, 2)})
    """
    # Most rows break no rule, so that reasons, which are texts, are made for the others alone.
    numbers = [pl.when(broken).then(pl.lit(n, pl.Int32)) for n, (_, broken) in enumerate(rules)]
    broke = frame.with_columns(pl.coalesce(*numbers, pl.lit(None, pl.Int32)).alias(BROKE))
    kept = broke[BROKE].is_null()
    if kept.all():  # as a rule, and no copy
        return frame, Stage(name, len(frame), len(frame), {})
    chosen = [(reason, pl.col(BROKE) == n) for n, (reason, _) in enumerate(rules)]
    lost = broke.filter(~kept).rechunk()  # polars 2.1 fails on texts in several chunks here
    lost = lost.select("row", reason=first_reason(chosen))
    counted = lost.group_by("reason").agg(pl.len(), pl.col("row").min()).sort("row", "reason")
    dropped = {text: (count, row) for text, count, row in counted.rows()}
    used = frame.filter(kept)
    return used, Stage(name, len(frame), len(used), dropped)


BROKE = "number of the rule"


def refuse(file: Path, frame: pl.DataFrame, rules: Sequence[Rule]) -> None:
    """Raise for the first row (``row``, ``name``) that breaks a rule, where rules are strict."""
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
    """What became of each record or row: a reason to (how many, the first); ``strict`` raises."""

    file: Path
    strict: bool = False
    dropped: dict[str, tuple[int, int]] = field(default_factory=dict)

    def refuse(self, row: int, reason: str, held: object = "") -> None:
        if self.strict:
            shown = f" ({held!r:.80})" if held != "" else ""
            raise TraceError(
                f"{reason}{shown}; correct it, or read without strict to leave such out",
                self.file,
                row,
            )
        self.leave_out(row, reason)

    def leave_out(self, row: int, reason: str, rows: int = 1) -> None:
        count, first = self.dropped.get(reason, (0, row))
        self.dropped[reason] = (count + rows, min(first, row))

    def stage(self, name: str, read: int) -> Stage:
        kept = read - sum(count for count, _ in self.dropped.values())
        return Stage(name, read, kept, dict(self.dropped))

    def require(self, kept: int, what: str) -> None:
        if not kept:
            raise TraceError(f"no {what} can be used: {reasons(self.dropped)}", self.file)
