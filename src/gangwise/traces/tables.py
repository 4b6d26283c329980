"""Reading CSV traces honestly: every row is either used or accounted for.

A :class:`~gangwise.traces.schema.Schema` states what a file must hold. :func:`read_table` reads it;
a row that breaks the schema is left out and counted under its reason, or, with ``strict=True``, is
an error that names the line. Nothing is filled in, guessed or corrected. Rows are numbered as an
editor numbers lines, from 1 with the header included, and every row is one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from gangwise.core.errors import TraceError
from gangwise.traces.schema import Column, Schema
from gangwise.traces.text import complain, read_text, split_line, split_lines

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Dropped", "Table", "read_table"]


class Dropped(NamedTuple):
    """Rows left out for one reason: how many, and the first of them."""

    rows: int
    first: int


@dataclass(frozen=True)
class Table:
    """What was read of a file.

    Attributes
    ----------
    file : Path
    digest : str
        SHA-256 of the file as it is stored.
    frame : polars.DataFrame
        ``row`` and the schema's columns: numbers as Float64, text without surrounding blanks.
    read : int
        Rows of the file, without the header.
    dropped : mapping of str to Dropped
        Rows left out, by reason.
    """

    file: Path
    digest: str
    frame: pl.DataFrame
    read: int
    dropped: Mapping[str, Dropped]


def read_table(
    path: Path | str, schema: Schema, *, others: Sequence[Schema] = (), strict: bool = False
) -> Table:
    r"""Read a CSV file, plain or gzipped.

    Parameters
    ----------
    path : path
    schema : Schema
    others : sequence of Schema
        What the file might be instead, so that a message can say so.
    strict : bool
        Raise at the first bad row rather than leave it out.

    Raises
    ------
    TraceError
        When the file cannot be read, its columns are not the schema's, no row is left, or, with
        ``strict``, at the first bad row.

    Examples
    --------
    >>> import tempfile
    >>> schema = Schema("node list", (Column("sn", number=False), Column("gpu")), unique="sn")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "nodes.csv"
    ...     size = file.write_text("sn,gpu\na,8\nb,many\nc,2,2\na,4\n")
    ...     table = read_table(file, schema)
    >>> table.frame.rows()
    [(2, 'a', 8.0)]
    >>> for reason, (count, row) in table.dropped.items():
    ...     print(count, "row such as", row, reason)
    1 row such as 3 gpu is not a number
    1 row such as 4 the number of fields is not that of the columns
    1 row such as 5 sn was used before
    """
    import polars as pl

    path = Path(path)
    text, digest = read_text(path)
    lines = split_lines(text)
    if not lines:
        raise TraceError("the file is empty", path)
    first = [field.strip() for field in split_line(lines[0]) or []]
    at, width = _columns(path, schema, first, others)
    skip = int(schema.header or schema.matches(first))
    if len(lines) == skip:
        raise TraceError("the file has a header and no rows", path)
    raw = pl.DataFrame(
        {
            "row": pl.Series(range(skip + 1, len(lines) + 1), dtype=pl.Int64),
            "fields": _fields(lines[skip:]),
        }
    )
    columns = [column for column in schema.columns if column.name in at]
    frame = raw.with_columns(
        pl.col("fields").list.get(at[c.name], null_on_oob=True).str.strip_chars().alias(c.name)
        for c in columns
    )
    casts = [pl.col(c.name).cast(pl.Float64, strict=False) for c in columns if c.number]
    typed = frame.with_columns(casts).with_columns(
        bad_text=pl.Series(frame.select(_text_reason(columns, width))["reason"])
    )
    rules = [(check.reason, check.broken()) for check in schema.checks]
    reason = [pl.when(broken).then(pl.lit(why)) for why, broken in _number_rules(columns) + rules]
    typed = typed.with_columns(reason=pl.coalesce("bad_text", *reason, pl.lit(None, pl.String)))
    if schema.unique:
        again = pl.col("reason").is_null() & ~(
            pl.struct(schema.unique, pl.col("reason").is_null()).is_first_distinct()
        )
        typed = typed.with_columns(
            pl.when(again).then(pl.lit(f"{schema.unique} was used before"))
            .otherwise("reason").alias("reason")
        )  # fmt: skip
    bad = typed.filter(pl.col("reason").is_not_null())
    if strict and len(bad):
        _refuse(path, schema, raw.filter(pl.col("row") == bad["row"][0]), bad["reason"][0], at)
    by_reason = bad.group_by("reason").agg(pl.len(), pl.col("row").min()).sort("row", "reason")
    dropped = {why: Dropped(count, row) for why, count, row in by_reason.rows()}
    kept = typed.filter(pl.col("reason").is_null()).select("row", *(c.name for c in columns))
    if kept.is_empty():
        why = "; ".join(f"{r} ({d.rows}, first in row {d.first})" for r, d in dropped.items())
        raise TraceError(f"none of the {len(raw)} rows can be used: {why}", path)
    return Table(path, digest, kept, len(raw), dropped)


def _fields(lines: list[str]) -> pl.Series:
    """Fields of each line; null where quotes do not match."""
    import polars as pl

    if any('"' in line for line in lines):
        return pl.Series([split_line(line) for line in lines], dtype=pl.List(pl.String))
    return pl.Series(lines, dtype=pl.String).str.split(",")


def _text_reason(columns: Sequence[Column], width: int) -> pl.Expr:
    """Why a row is refused before any number in it is looked at; null where it is not."""
    import polars as pl

    fields = pl.col("fields")
    rules = [
        (fields.is_null(), "quotes do not match"),
        (fields.list.join("").str.contains("\ufffd", literal=True), "the text is not UTF-8"),
        ((fields.list.len() == 1) & (fields.list.first().str.strip_chars() == ""),
         "the line is empty"),
        (fields.list.len() != width, "the number of fields is not that of the columns"),
    ]  # fmt: skip
    for c in columns:
        blank = pl.col(c.name) == ""
        if not c.empty:
            rules.append((blank, f"{c.name} is empty"))
        if c.number:
            number = pl.col(c.name).cast(pl.Float64, strict=False)
            rules.append((number.is_null() & ~blank, f"{c.name} is not a number"))
        elif c.pattern:
            fits = pl.col(c.name).str.contains(f"^(?:{c.pattern})$")
            rules.append((~fits & ~blank, f"{c.name} does not look like one"))
    return pl.coalesce(
        *(pl.when(broken).then(pl.lit(why)) for broken, why in rules), pl.lit(None, pl.String)
    ).alias("reason")


def _number_rules(columns: Sequence[Column]) -> list[tuple[str, pl.Expr]]:
    import polars as pl

    rules: list[tuple[str, pl.Expr]] = []
    for c in (column for column in columns if column.number):
        value = pl.col(c.name)
        rules.append((f"{c.name} is not finite", ~value.is_finite()))
        if c.least == 0:
            rules.append((f"{c.name} is negative", value < 0))
        else:
            rules.append((f"{c.name} is less than {c.least:g}", value < c.least))
        rules.append((f"{c.name} is larger than {c.most:g}", value > c.most))
        if c.whole:
            rules.append((f"{c.name} is not a whole number", value != value.floor()))
    return rules


def _columns(
    path: Path, schema: Schema, first: list[str], others: Sequence[Schema]
) -> tuple[dict[str, int], int]:
    """Where the columns are, and how many fields a row has."""
    if schema.header or schema.matches(first):
        if not schema.matches(first):
            complain(path, schema, first, others)
        twice = sorted({name for name in first if name and first.count(name) > 1})
        if twice:
            raise TraceError(f"the header names column {twice[0]!r} twice", path, 1)
        return schema.place(first), len(first)
    if len(first) != len(schema.columns):
        complain(path, schema, first, others)
    return {column.name: i for i, column in enumerate(schema.columns)}, len(first)


def _refuse(
    path: Path, schema: Schema, raw: pl.DataFrame, reason: str, at: Mapping[str, int]
) -> NoReturn:
    """Raise for one bad row, showing what it holds."""
    row, fields = raw.row(0)
    named = [name for check in schema.checks if check.reason == reason for name in check.columns]
    named = named or [c.name for c in schema.columns if reason.startswith(f"{c.name} ")]
    if fields is not None and named and max(at[name] for name in named) < len(fields):
        held = ", ".join(f"{name} = {fields[at[name]]!r}" for name in named)
    else:
        held = f"{len(fields)} fields: {fields!r:.80}" if fields is not None else "see the line"
    raise TraceError(
        f"{reason} ({held}); correct the row, or read without strict to leave such rows out",
        path, row,
    )  # fmt: skip
