"""From a block of lines to rows that hold what the schema asks for, and the reasons of the others.

A block is read in one of two ways with the same result. The fast way gives it to the CSV reader of
polars with the types of the schema, where nothing can be read in two ways: no quotes, valid UTF-8,
as many separators as the rows need, every number a number. Otherwise the block is halved, until the
lines that are at fault are few; those are taken apart one by one, and each gets its reason. JSON
lines are always taken one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gangwise.traces.fidelity import first_reason
from gangwise.traces.json_lines import NOT_UTF8, texts_of
from gangwise.traces.rules import Rules
from gangwise.traces.schema import Schema
from gangwise.traces.text import split_line

if TYPE_CHECKING:
    import polars as pl


FEW = 1 << 16
"""Bytes of lines that are not halved further."""
EXACT = 2.0**53
"""Whole numbers up to here are exact as floating point numbers."""
LAST = "last field of the line"
BLANKS = (b" ", b"\t", b"\x0b", b"\x0c")


class Layout(NamedTuple):
    """Where the columns of a schema are in the lines of a file, and how many fields these have."""

    at: Mapping[str, int]
    width: int


class Rows:
    """Reads blocks of one file.

    Parameters
    ----------
    schema : Schema
    layout : Layout
    exact : bool
        Give whole columns as Int64 wherever a block allows, rather than as Float64.
    """

    def __init__(self, schema: Schema, layout: Layout, *, exact: bool = False):
        self.schema, self.layout, self.exact = schema, layout, exact
        self.columns = [column for column in schema.columns if column.name in layout.at]
        self._rules = Rules(self.columns, schema.checks)
        self._whole = [c.name for c in self.columns if c.number and c.whole] if exact else []

    def read(self, data: bytes, rows: int, line: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The good rows of a block, ``row`` and the columns; and ``row reason`` of the others."""
        import polars as pl

        judged = self._judged(data, rows, line)
        good = [self._chosen(frame) for frame, _ in judged]
        return (
            good[0] if len(good) == 1 else pl.concat(good, how="vertical_relaxed"),
            pl.concat([lost for _, lost in judged]),
        )

    def _chosen(self, frame: pl.DataFrame) -> pl.DataFrame:
        """``row`` and the columns, those as integers that can be."""
        import polars as pl

        whole = [
            name
            for name in self._whole
            if frame[_integer(name)].null_count() == frame[name].null_count()
        ]
        return frame.select(
            "row",
            *(
                pl.col(_integer(c.name) if c.name in whole else c.name).alias(c.name)
                for c in self.columns
            ),
        )

    def fields(self, text: str) -> list[str] | None:
        """Fields of a line, for a message."""
        return None if self.schema.json else split_line(text, self.schema.separator)

    def _judged(self, data: bytes, rows: int, line: int) -> list[tuple[pl.DataFrame, pl.DataFrame]]:
        """Good rows, and ``row reason`` of the others, of part after part."""
        frame = None if self.schema.json else self._fast(data, rows)
        if frame is None and not self.schema.json and len(data) > FEW:
            middle = data.rfind(b"\n", 0, len(data) // 2) + 1
            if middle:
                above = data.count(b"\n", 0, middle)
                return [
                    *self._judged(data[:middle], above, line),
                    *self._judged(data[middle:], rows - above, line + above),
                ]
        return [self._rules.judge(self._slow(data) if frame is None else frame, line)]

    def _fast(self, data: bytes, rows: int) -> pl.DataFrame | None:
        """The columns, typed; None when anything about the lines is unusual."""
        import polars as pl

        separator, width = self.schema.separator.encode(), self.layout.width
        if width == 1 or len(separator) != 1 or b'"' in data:
            return None
        blanks = any(blank in data for blank in BLANKS)
        if not data.isascii():
            blanks = True
            try:
                if "\ufffd" in data.decode():
                    return None
            except UnicodeDecodeError:
                return None
        frame = self._parsed(data, self._whole)
        if frame is None and self._whole:
            frame = self._parsed(data, [])
            if frame is not None and frame.select(_too_large(self._whole)).item():
                return None
        if frame is None or len(frame) != rows:
            return None
        # Too many fields are an error of polars; too few are silently null, from the last on.
        if frame[LAST].null_count() and data.count(separator) != rows * (width - 1):
            return None
        texts = pl.col([c.name for c in self.columns if not c.number]).fill_null("")
        frame = frame.with_columns(texts.str.strip_chars() if blanks else texts)
        return _with_integers(frame, self._whole)

    def _parsed(self, data: bytes, whole: Sequence[str]) -> pl.DataFrame | None:
        import polars as pl

        types: dict[str, Any] = {str(place): pl.String for place in range(self.layout.width)}
        place = {c.name: str(self.layout.at[c.name]) for c in self.columns}
        for column in (c for c in self.columns if c.number):
            types[place[column.name]] = pl.Int64 if column.name in whole else pl.Float64
        try:
            frame = pl.read_csv(
                data,
                has_header=False,
                schema=types,
                quote_char=None,
                separator=self.schema.separator,
            )
        except pl.exceptions.PolarsError:
            return None
        return frame.select(
            *(
                pl.col(place[c.name]).cast(pl.Float64 if c.number else pl.String).alias(c.name)
                for c in self.columns
            ),
            pl.col(str(self.layout.width - 1)).alias(LAST),
            *(pl.col(place[name]).alias(_integer(name)) for name in whole),
        )

    def _slow(self, data: bytes) -> pl.DataFrame:
        """The columns, typed, and ``broken``: why a line cannot be taken apart, else null."""
        import polars as pl

        lines = data.decode("utf-8", errors="replace").split("\n")[:-1]
        frame = self._of_json(lines) if self.schema.json else self._of_fields(lines)
        numbers = [c for c in self.columns if c.number]
        read = {c.name: pl.col(c.name).cast(pl.Float64, strict=False) for c in numbers}
        fault = first_reason(
            [(name, (pl.col(name) != "") & number.is_null()) for name, number in read.items()]
        ).alias("fault")
        whole = [
            pl.col(name).cast(pl.Int64, strict=False).alias(_integer(name)) for name in self._whole
        ]
        frame = frame.with_columns(fault, *whole).with_columns(read.values())
        return _with_integers(frame, self._whole)

    def _of_fields(self, lines: list[str]) -> pl.DataFrame:
        import polars as pl

        if any('"' in line for line in lines):
            split = [split_line(line, self.schema.separator) for line in lines]
            fields = pl.Series("fields", split, dtype=pl.List(pl.String))
        else:
            fields = pl.Series("fields", lines, dtype=pl.String).str.split(self.schema.separator)
        each = pl.col("fields")
        broken = [
            ("quotes do not match", each.is_null()),
            (NOT_UTF8, each.list.join("").str.contains("\ufffd", literal=True)),
            (
                "the line is empty",
                (each.list.len() == 1) & (each.list.first().str.strip_chars() == ""),
            ),
            (
                "the number of fields is not that of the columns",
                each.list.len() != self.layout.width,
            ),
        ]
        return fields.to_frame().select(
            first_reason(broken).alias("broken"),
            *(
                each.list.get(self.layout.at[c.name], null_on_oob=True)
                .str.strip_chars()
                .alias(c.name)
                for c in self.columns
            ),
        )

    def _of_json(self, lines: list[str]) -> pl.DataFrame:
        import polars as pl

        names = [column.name for column in self.columns]
        found = [texts_of(line, names) for line in lines]
        texts = pl.DataFrame(
            [t for t, _ in found], schema=dict.fromkeys(names, pl.String), orient="row"
        )
        broken = pl.Series("broken", [why for _, why in found], dtype=pl.String)
        return texts.with_columns(pl.all().str.strip_chars()).with_columns(broken)


def _integer(name: str) -> str:
    return f"integer of {name}"


def _too_large(names: Sequence[str]) -> pl.Expr:
    """Whether a floating point number may not be the whole number that was written."""
    import polars as pl

    return pl.any_horizontal(pl.col(names).abs().max() > EXACT)


def _with_integers(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Complete the integers of whole columns from floating point numbers that are whole."""
    import polars as pl

    for name in names:
        known = pl.lit(None, pl.Int64)
        if _integer(name) in frame.columns:
            if frame[_integer(name)].null_count() == frame[name].null_count():
                continue
            known = pl.col(_integer(name))
        floats = pl.when(pl.col(name) == pl.col(name).floor()).then(pl.col(name))
        frame = frame.with_columns(
            pl.coalesce(known, floats.cast(pl.Int64, strict=False)).alias(_integer(name))
        )
    return frame
