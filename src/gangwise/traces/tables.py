"""Reading CSV traces honestly: every row is either used or accounted for.

A :class:`~gangwise.traces.schema.Schema` states what a file must hold. :func:`read_table` reads it,
:class:`Reading` batch by batch in constant memory; a row that breaks the schema is left out and
counted under its reason, or, with ``strict=True``, is an error that names the line. Nothing is
filled in, guessed or corrected. Rows are numbered as an editor numbers lines, from 1 with the
header included, and every row is one line. The members of an archive are one file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from gangwise.core.errors import TraceError
from gangwise.traces.blocks import Block, Blocks
from gangwise.traces.fidelity import reasons
from gangwise.traces.rows import Layout, Rows
from gangwise.traces.schema import Schema
from gangwise.traces.text import complain, split_line

if TYPE_CHECKING:
    import polars as pl


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


class Reading:
    """The reading of one file, batch by batch.

    Parameters
    ----------
    path : path
    schema : Schema
    others : sequence of Schema
        What the file might be instead, so that a message can say so.
    strict : bool
        Raise at the first bad row rather than leave it out.
    exact : bool
        Give whole columns as Int64 wherever a batch allows, rather than as Float64.
    blocks : Blocks, optional
        Those of the file, where they are not to be cut as usual.
    skip : int
        Batches to pass over, which were read before; ``read``, ``dropped`` and ``seen`` are then to
        be set to what they were.

    Attributes
    ----------
    read : int
        Rows so far, without headers.
    line : int
        The last line of the file that was looked at.
    dropped : mapping of str to Dropped
        Rows left out so far, by reason.
    blocks : Blocks
        With the position in the file, and its digest.
    seen : set
        Values so far of the column that must be unique: about 100 bytes of memory for each.

    Raises
    ------
    TraceError
        While iterating, as :func:`read_table`.
    """

    def __init__(
        self,
        path: Path | str,
        schema: Schema,
        *,
        others: Sequence[Schema] = (),
        strict: bool = False,
        exact: bool = False,
        blocks: Blocks | None = None,
        skip: int = 0,
    ):
        self.path, self.schema, self.strict = Path(path), schema, strict
        self.read, self.skip = 0, skip
        self.seen: set[Any] = set()
        self.blocks = blocks or Blocks(self.path)
        self._others, self._exact = others, exact
        self._lost: dict[str, Dropped] = {}
        self.line = 0
        self._rows: Rows | None = None

    @property
    def dropped(self) -> dict[str, Dropped]:
        """Rows left out so far, by reason; the reason whose first row comes first is first."""
        return dict(sorted(self._lost.items(), key=lambda item: (item[1].first, item[0])))

    @dropped.setter
    def dropped(self, lost: Mapping[str, Dropped]) -> None:
        self._lost = dict(lost)

    def __iter__(self) -> Iterator[pl.DataFrame]:
        """The good rows of block after block: ``row`` and the columns."""
        for number, block in enumerate(self.blocks):
            rows = self._without_header(block)
            self.line = rows.line + rows.rows - 1
            if number >= self.skip:
                yield self._batch(rows)
        damage = self.blocks.damage
        if self._rows is None:
            raise TraceError(
                f"{damage}; download it again" if damage else "the file is empty", self.path
            )
        if damage:
            self._cut_short(damage)
        elif self.read == 0:
            raise TraceError("the file has a header and no rows", self.path)

    def check_used(self, kept: int) -> None:
        """Raise if no row of the file was kept, with the reasons."""
        if kept == 0:
            raise TraceError(
                f"none of the {self.read} rows can be used: {reasons(self.dropped)}", self.path
            )

    def _without_header(self, block: Block) -> Block:
        """The rows of a block."""
        data, line, schema = block.data, block.line, self.schema
        if not block.opens or (schema.json and self._rows is not None):
            return block
        end = data.index(b"\n") + 1
        text = data[:end].decode("utf-8", errors="replace").rstrip("\n")
        first = [field.strip() for field in split_line(text, schema.separator) or []]
        layout = _columns(self.path, schema, first, self._others)
        if self._rows is None:
            self._rows = Rows(schema, layout, exact=self._exact)
        elif layout != self._rows.layout:
            raise TraceError(
                "the members of this archive have different columns; unpack it and keep the files "
                "of one table",
                self.path,
                line,
            )
        if schema.json or not (schema.header or schema.matches(first)):
            return block
        return Block(data[end:], block.rows - 1, line + 1, False)

    def _batch(self, rows: Block) -> pl.DataFrame:
        import polars as pl

        assert self._rows is not None  # the first block opens the file
        good, bad = self._rows.read(rows.data, rows.rows, rows.line)
        self.read += len(good) + len(bad)
        if self.schema.unique:
            new = self._new(good[self.schema.unique])
            again = good.filter(~new).select(
                "row", pl.lit(f"{self.schema.unique} was used before").alias("reason")
            )
            good, bad = good.filter(new), pl.concat([bad, again])
        if len(bad):
            first = bad.sort("row").row(0)
            if self.strict:
                text = rows.data.split(b"\n")[first[0] - rows.line]
                fields = self._rows.fields(text.decode("utf-8", errors="replace"))
                self._refuse(first[0], first[1], fields)
            for why, count, row in bad.group_by("reason").agg(pl.len(), pl.min("row")).rows():
                self._drop(why, count, row)
        return good

    def _new(self, values: pl.Series) -> pl.Series:
        """Which values were not there before."""
        import polars as pl

        new = []
        for value in values.to_list():
            new.append(value not in self.seen)
            self.seen.add(value)
        return pl.Series(new, dtype=pl.Boolean)

    def _drop(self, why: str, rows: int, first: int) -> None:
        before = self._lost.get(why, Dropped(0, first))
        self._lost[why] = Dropped(before.rows + rows, min(before.first, first))

    def _cut_short(self, damage: str) -> None:
        """Account for the end that is missing."""
        torn = self.blocks.torn
        if self.strict:
            raise TraceError(
                f"{damage}, after row {self.line}; what follows is missing: download it again, "
                "or read without strict to use the rows before",
                self.path,
                self.line + 1,
            )
        self.read += bool(torn)
        self._drop(
            f"CUT SHORT after row {self.line}: {damage}; all later rows are missing, download "
            "it again",
            int(bool(torn)),
            self.line + 1,
        )

    def _refuse(self, row: int, reason: str, fields: list[str] | None) -> NoReturn:
        """Raise for one bad row, showing what it holds."""
        assert self._rows is not None  # there was a row
        at, schema = self._rows.layout.at, self.schema
        named = [n for check in schema.checks if check.reason == reason for n in check.columns]
        named = named or [c.name for c in schema.columns if reason.startswith(f"{c.name} ")]
        if fields is not None and named and max(at[name] for name in named) < len(fields):
            held = ", ".join(f"{name} = {fields[at[name]]!r}" for name in named)
        else:
            held = f"{len(fields)} fields: {fields!r:.80}" if fields is not None else "see the line"
        raise TraceError(
            f"{reason} ({held}); correct the row, or read without strict to leave such rows out",
            self.path,
            row,
        )


def read_table(
    path: Path | str,
    schema: Schema,
    *,
    others: Sequence[Schema] = (),
    strict: bool = False,
    columns: Sequence[str] | None = None,
) -> Table:
    r"""Read a file: plain, gzipped, or a tar archive.

    Parameters
    ----------
    path : path
    schema : Schema
    others : sequence of Schema
        What the file might be instead, so that a message can say so.
    strict : bool
        Raise at the first bad row rather than leave it out.
    columns : sequence of str, optional
        The columns to keep; the others are checked all the same.

    Raises
    ------
    TraceError
        When the file cannot be read, its columns are not the schema's, no row is left, or, with
        ``strict``, at the first bad row.

    Examples
    --------
    >>> import tempfile
    >>> from gangwise.traces.schema import Column
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

    reading = Reading(path, schema, others=others, strict=strict)
    frames = []
    for batch in reading:
        chosen = batch.columns if columns is None else ["row", *columns]
        frames.append(batch.select(name for name in chosen if name in batch.columns))
    frame = pl.concat(frames) if frames else pl.DataFrame()
    reading.check_used(len(frame))
    return Table(reading.path, reading.blocks.digest(), frame, reading.read, reading.dropped)


def _columns(path: Path, schema: Schema, first: list[str], others: Sequence[Schema]) -> Layout:
    """Where the columns are, and how many fields a row has."""
    if schema.json:
        return Layout({column.name: i for i, column in enumerate(schema.columns)}, 0)
    if schema.header or schema.matches(first):
        if not schema.matches(first):
            complain(path, schema, first, others)
        twice = sorted({name for name in first if name and first.count(name) > 1})
        if twice:
            raise TraceError(f"the header names column {twice[0]!r} twice", path, 1)
        return Layout(schema.place(first), len(first))
    if len(first) != len(schema.columns):
        complain(path, schema, first, others)
    return Layout({column.name: i for i, column in enumerate(schema.columns)}, len(first))
