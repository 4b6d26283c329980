"""What a file of a trace must hold: columns, rules over them, and the rows that keep to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from gangwise.traces.io.account import first_reason


@dataclass(frozen=True)
class Column:
    """What the cells of a column must hold, for a row to be used."""

    name: str
    number: bool = True  # a finite number from ``least`` to ``most``; otherwise text
    whole: bool = False  # whole, though it may be written as ``1.0``
    least: float = 0.0  # by default no negative ones,
    most: float = 1e12  # and none that no quantity or time in a trace reaches
    empty: bool = False  # it may be empty: a missing number is null, a missing text is empty
    pattern: str = ""  # regular expression of a whole text, unless that is empty and may be
    needed: bool = True  # a file without the column is refused
    also: tuple[str, ...] = ()  # other spellings of the name that are in use
    times: tuple[str, ...] = ()  # the text is a time, written in one of these ways of ``strptime``


class Check(NamedTuple):
    """A rule over columns that are needed: rows for which ``sql`` is true break it.

    ``among`` are the columns that it may be about, in their order.
    """

    reason: str
    sql: str
    among: tuple[str, ...]

    @property
    def broken(self) -> pl.Expr:
        return pl.sql_expr(self.sql)

    @property
    def columns(self) -> list[str]:
        used = self.broken.meta.root_names()
        return [name for name in self.among if name in used]


@dataclass(frozen=True)
class Schema:
    """What a file must hold: its columns, and rules over its rows."""

    name: str  # what the file is, for messages
    columns: tuple[Column, ...]
    # Whether the first line names the columns (in any order); without, fields are in their order.
    header: bool = True
    unique: str = ""  # the column whose values must differ; of equal ones the first row is used
    checks: tuple[Check, ...] = ()
    separator: str = ","
    # Every line is a JSON object; a column named ``a.b``, or that is also so spelled, is field
    # ``b`` of object ``a``.
    json: bool = False
    absent: tuple[str, ...] = ()  # columns of a fuller table, which this one must not have
    missing: tuple[str, ...] = ()  # texts that say that a field is empty, such as ``NA``

    def place(self, header: Sequence[str]) -> dict[str, int]:
        """Where each column of the schema stands in a header; absent ones are left out."""
        first = {name: i for i, name in reversed([*enumerate(header)])}
        found: dict[str, int] = {}
        for column in self.columns:
            for spelling in (column.name, *column.also):
                if spelling in first:
                    found.setdefault(column.name, first[spelling])
        return found

    def matches(self, header: Sequence[str]) -> bool:
        """Whether a header has every column that is needed, and none that must be absent."""
        found = self.place(header)
        return all(column.name in found for column in self.columns if column.needed) and not any(
            name in header for name in self.absent
        )


class Rules:
    """The rules of some columns of a schema, for frames in which a number is Float64.

    A frame has ``row``, counted from 0; one whose lines were taken apart one by one also
    ``broken``, why a line could not be, and ``fault``, the first column that is no number, both
    null for sound lines.
    """

    def __init__(self, columns: Sequence[Column], checks: Sequence[Check]):
        self.columns, self.checks = columns, checks

    def judge(self, frame: pl.DataFrame, line: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The good rows with their line numbers, and why each other row is refused."""
        row = pl.col("row").cast(pl.Int64) + line
        if "broken" not in frame.columns and frame.select(self._sound(frame)).item():
            nothing = pl.DataFrame(schema={"row": pl.Int64, "reason": pl.String})
            return frame.with_columns(row), nothing
        reason = first_reason(self._rules(frame))
        if "broken" in frame.columns:
            reason = pl.coalesce("broken", reason)
        frame = frame.with_columns(row, reason.alias("reason"))
        refused = pl.col("reason").is_not_null()
        return frame.filter(~refused), frame.filter(refused).select("row", "reason")

    def _rules(self, frame: pl.DataFrame) -> list[tuple[str, pl.Expr]]:
        rules: list[tuple[str, pl.Expr]] = []
        taken_apart = "fault" in frame.columns
        for c in self.columns:
            value = pl.col(c.name)
            fault = pl.col("fault") == c.name if taken_apart else pl.lit(False)
            blank = value.is_null() & ~fault.fill_null(False) if c.number else value == ""
            if not c.empty:
                rules.append((f"{c.name} is empty", blank))
            if c.number and taken_apart:
                rules.append((f"{c.name} is not a number", fault))
            elif c.pattern:
                fits = value.str.contains(f"^(?:{c.pattern})$")
                rules.append((f"{c.name} does not look like one", ~fits & ~blank))
        for c in (column for column in self.columns if column.number):
            value, least = pl.col(c.name), f"less than {c.least:g}" if c.least else "negative"
            rules.append((f"{c.name} is not finite", ~value.is_finite()))
            rules.append((f"{c.name} is {least}", value < c.least))
            rules.append((f"{c.name} is larger than {c.most:g}", value > c.most))
            if c.whole:
                rules.append((f"{c.name} is not a whole number", value != value.floor()))
        return rules + [(check.reason, check.broken) for check in self.checks]

    def _sound(self, frame: pl.DataFrame) -> pl.Expr:
        sound = []
        for c in self.columns:
            value = pl.col(c.name)
            if c.number:
                within = value.is_between(c.least, c.most)  # not a number is above all numbers
                sound.append((within & (value == value.floor()) if c.whole else within).all())
                if not c.empty:
                    sound.append(value.null_count() == 0)
            else:
                if c.pattern:
                    few = 2 * frame[c.name].head(1000).n_unique() < min(len(frame), 1000)
                    texts = value.unique() if few else value
                    fits = texts.str.contains(f"^(?:{c.pattern})$")
                    sound.append(((texts == "") | fits if c.empty else fits).all())
                if not c.empty:
                    sound.append((value != "").all())
        sound += [~check.broken.fill_null(False).any() for check in self.checks]
        return pl.all_horizontal(*sound) if sound else pl.lit(True)
