"""Why a file is not a table: for files that nothing recognises, and those taken for another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gangwise.traces.formats import Format, TableFile, holds
from gangwise.traces.json_lines import texts_of
from gangwise.traces.schema import Column, Schema
from gangwise.traces.text import split_line

NEAR = 0.5
"""A table is near when at least this share of its columns is there."""


class Likeness(NamedTuple):
    """How much of a table lines have, and what speaks against it.

    ``share`` is that of the columns that are there, or that hold what they should.
    """

    share: float
    why: str


def nearest(
    lines: Sequence[str], formats: Iterable[Format]
) -> tuple[Format, TableFile, Likeness] | None:
    """The table that lines from the start of a file have most of, if they have half of one."""
    found = [
        (form, table, likeness(table.schema, lines)) for form in formats for table in form.tables
    ]
    best = max(found, key=lambda item: item[2].share, default=None)
    return best if best is not None and best[2].share >= NEAR else None


def likeness(schema: Schema, lines: Sequence[str]) -> Likeness:
    r"""Compare lines from the start of a file with a schema they are not of.

    >>> batch = Schema(
    ...     "batch_task",
    ...     (
    ...         Column("task", number=False),
    ...         Column("instances"),
    ...         Column("job", number=False, pattern=r"j_\d+"),
    ...     ),
    ...     header=False,
    ... )
    >>> print(likeness(batch, ["M1,2,17,Terminated"]).why)
    its rows have 3 fields, these have 4; field 3, job, is '17' here and should be like j_\d+
    >>> nodes = Schema("nodes", (Column("sn", number=False), Column("gpu"), Column("cpu")))
    >>> likeness(nodes, ["sn,gpu", "a,8"])
    Likeness(share=0.66..., why='no column cpu')
    """
    if not lines:
        return Likeness(0.0, "there is no text")
    if schema.json:
        return _of_json(schema, lines[0])
    first = [field.strip() for field in split_line(lines[0], schema.separator) or []]
    if schema.header:
        return _of_header(schema, first)
    rows = [split_line(line, schema.separator) or [] for line in lines]
    return _of_rows(schema, [[field.strip() for field in row] for row in rows])


def _of_json(schema: Schema, line: str) -> Likeness:
    needed = [column.name for column in schema.columns if column.needed]
    texts, why = texts_of(line, needed)
    if why is not None:
        return Likeness(0.0, "its lines are JSON objects, these are not")
    missing = [name for name, text in zip(needed, texts) if not text]
    return Likeness(1 - len(missing) / len(needed), _columns(missing))


def _of_header(schema: Schema, first: Sequence[str]) -> Likeness:
    needed = [column.name for column in schema.columns if column.needed]
    there = schema.place(first)
    missing = [name for name in needed if name not in there]
    if missing:
        return Likeness(1 - len(missing) / len(needed), _columns(missing))
    spare = [name for name in schema.absent if name in first]
    return Likeness(1.0, f"it has no column {', '.join(spare)}, and these have" if spare else "")


def _of_rows(schema: Schema, rows: Sequence[Sequence[str]]) -> Likeness:
    """The first field that is wrong in most of the rows speaks against it."""
    columns, width = schema.columns, len(rows[0])
    wrong = [
        (place, column)
        for place, column in enumerate(columns)
        if 2 * sum(place < len(row) and holds(column, row[place]) for row in rows) <= len(rows)
    ]
    share = (len(columns) - len(wrong)) / max(len(columns), width)
    said = []
    if width != len(columns):
        said.append(f"its rows have {len(columns)} fields, these have {width}")
    shown = [(place, column) for place, column in wrong if place < width]
    if shown:
        place, column = shown[0]
        said.append(
            f"field {place + 1}, {column.name}, is {rows[0][place]!r:.40} here and should be "
            f"{_wanted(column)}"
        )
    return Likeness(share, "; ".join(said))


def _wanted(column: Column) -> str:
    if not column.number:
        return f"like {column.pattern}" if column.pattern else "there"
    kind = "a whole number" if column.whole else "a number"
    return f"{kind} from {column.least:g} to {column.most:g}"


def _columns(missing: Sequence[str]) -> str:
    some = ", ".join(missing[:6]) + (f" and {len(missing) - 6} more" if len(missing) > 6 else "")
    return f"no column {some}" if len(missing) == 1 else f"no columns {some}"


def looks_like(lines: Sequence[str]) -> str:
    r"""What the start of a file is, in a word, where it is no table in text.

    >>> looks_like(["\x89PNG\x1a\x00"]), looks_like(["{", '"a": 1}']), looks_like(["a,b"])
    ('binary data', 'JSON', '')
    """
    if not lines:
        return "an empty file"
    start = "\n".join(lines)[:2000]
    if "\0" in start or len(re.findall("[\x01-\x08\x0e-\x1f\ufffd]", start)) > len(start) / 20:
        return "binary data"
    return "JSON" if start.lstrip()[:1] in ("{", "[") else ""
