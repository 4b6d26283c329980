"""Reading CSV traces honestly: every row is either used or accounted for.

A :class:`Schema` states what a file must hold. :func:`read_table` reads it, :class:`TableReader`
batch by batch in constant memory; a row that breaks the schema is left out and counted under its
reason, or, with ``strict=True``, is an error that names the line. Nothing is filled in, guessed or
corrected. Rows are numbered as an editor numbers lines, from 1 with the header included, and every
row is one line. The members of an archive are one file.

A block of lines is read in one of two ways with the same result (:class:`RowParser`). The fast way
gives it to the CSV reader of polars with the types of the schema, where nothing can be read in two
ways: valid UTF-8, quotes that polars reads as Python's ``csv`` does, as many separators as the rows
need, every number a number. Otherwise the block is halved, until the lines that are at fault are
few; those are taken apart one by one, and each gets its reason. JSON lines are always taken one by
one.
"""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import polars as pl

from gangwise.core.arrays import Ints
from gangwise.core.errors import TraceError
from gangwise.logs.text import NOT_UTF8, Block, Blocks, fields_of_json, listed, split_line

STEP = "a step, whose job has a row of its own"
PART = "a part of a job, which has a row for the whole"
EARLIER = "a record of a job, which has a later one"
FIXED = "of a DaemonSet, or static: on its node whatever is decided"
OTHER_KIND = "an object that is no pod, workload or node"
NO_JOBS = frozenset({STEP, PART, EARLIER, FIXED, OTHER_KIND})
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
    """Reasons for which rows were left out, in a message.

    >>> reasons({"cpu is negative": (3, 4)}, {"it requests nothing": (1, 9)})
    'cpu is negative (3, first in row 4); it requests nothing (1, first in row 9)'
    """
    every = (item for account in dropped for item in account.items())
    return "; ".join(f"{reason} ({count}, first in row {row})" for reason, (count, row) in every)


def reason_lines(dropped: Mapping[str, tuple[int, int]]) -> list[str]:
    return [
        f"    {count:8d}  {text} (first in row {row})" for text, (count, row) in dropped.items()
    ]


def reasons_plain(dropped: Mapping[str, tuple[int, int]]) -> dict[str, dict[str, int]]:
    return {reason: {"count": count, "first_row": row} for reason, (count, row) in dropped.items()}


Rule = tuple[str | pl.Expr, pl.Expr]
"""A reason, or what makes one of a row, and what is true of the rows that it is a reason for."""


def first_reason(rules: Sequence[Rule]) -> pl.Expr:
    """The reason of the first rule that a row breaks; null where it breaks none."""
    # The first rule wins, so rules stand in the order in which a person would check.
    cases = (
        pl.when(broken).then(pl.lit(reason) if isinstance(reason, str) else reason)
        for reason, broken in rules
    )
    return pl.coalesce(*cases, pl.lit(None, pl.String))


def leave_out(name: str, frame: pl.DataFrame, rules: Sequence[Rule]) -> tuple[pl.DataFrame, Stage]:
    """Leave out the rows that break a rule, each for the first that it breaks.

    ``frame`` has a column ``row``, ``name`` is that of the stage.

    >>> import polars as pl
    >>> frame = pl.DataFrame({"row": [1, 2, 3], "cpu": [4.0, 0.0, None]})
    >>> kept, stage = leave_out("tasks", frame, [("asks for nothing", pl.col("cpu") == 0)])
    >>> kept["row"].to_list(), dict(stage.dropped)
    ([1, 3], {'asks for nothing': (1, 2)})
    """
    used, lost = parted(frame, rules)
    # Sorted by first row, with the reason after it, so that runs give the same report.
    counted = lost.group_by("reason").agg(pl.len(), pl.col("row").min()).sort("row", "reason")
    dropped = {text: (count, row) for text, count, row in counted.rows()}
    return used, Stage(name, len(frame), len(used), dropped)


def parted(frame: pl.DataFrame, rules: Sequence[Rule]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows that break no rule; and ``row reason`` of the others, by the first that they break.

    >>> frame = pl.DataFrame({"row": [1, 2], "cpu": [4.0, 0.0]})
    >>> parted(frame, [("asks for nothing", pl.col("cpu") == 0)])[1].rows()
    [(2, 'asks for nothing')]
    """
    # Most rows break no rule, so that reasons, which are texts, are made for the others alone.
    numbers = [pl.when(broken).then(pl.lit(n, pl.Int32)) for n, (_, broken) in enumerate(rules)]
    broke = frame.with_columns(pl.coalesce(*numbers, pl.lit(None, pl.Int32)).alias(BROKE))
    sound = broke[BROKE].is_null()
    if sound.all():  # the usual case, without a copy
        return frame, pl.DataFrame(schema={"row": pl.Int64, "reason": pl.String})
    chosen = [(reason, pl.col(BROKE) == n) for n, (reason, _) in enumerate(rules)]
    lost = broke.filter(~sound).rechunk()  # polars 2.1 fails on texts in several chunks here
    return frame.filter(sound), lost.select("row", reason=first_reason(chosen))


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


MALFORMED = (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError)
"""What reading a record raises that is not as its format has it."""


class RecordError(ValueError):
    """A record that cannot be used: why, and the value at fault."""

    def __init__(self, reason: str, held: object = ""):
        super().__init__(reason)
        self.held = held


@dataclass
class RowAccount:
    """Rows left out: reason to (how many, the first of them); with ``strict``, raises instead."""

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
        # Callers need not come in the order of the rows.
        count, first_row = self.dropped.get(reason, (0, row))
        self.dropped[reason] = (count + rows, min(first_row, row))

    def stage(self, name: str, read: int) -> Stage:
        used = read - sum(count for count, _ in self.dropped.values())
        return Stage(name, read, used, dict(self.dropped))

    def require(self, kept: int, what: str) -> None:
        if not kept:
            raise TraceError(f"no {what} can be used: {reasons(self.dropped)}", self.file)


@dataclass(frozen=True)
class Column:
    """A column, and what its cells must hold for a row to be used."""

    name: str
    number: bool = True  # a finite number from ``least`` to ``most``; otherwise text
    whole: bool = False  # whole, though it may be written as ``1.0``
    least: float = 0.0
    most: float = 1e12  # more than any quantity or time in a trace
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
    # SQL, so that a format's TOML file can state the rule; polars parses it afresh each time.
    def broken(self) -> pl.Expr:
        return pl.sql_expr(self.sql)

    @property
    def columns(self) -> list[str]:
        used = self.broken.meta.root_names()
        return [name for name in self.among if name in used]


@dataclass(frozen=True)
class Schema:
    """Schema of a file: its columns, and rules over its rows."""

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
        """Places of the schema's columns in a header; absent ones are left out."""
        # Reversed, so that of columns named twice the first one counts.
        position = {name: i for i, name in reversed([*enumerate(header)])}
        places: dict[str, int] = {}
        for column in self.columns:
            # The standard name comes first; a file may have both it and an old spelling.
            for spelling in (column.name, *column.also):
                if spelling in position:
                    places.setdefault(column.name, position[spelling])
        return places

    def matches(self, header: Sequence[str]) -> bool:
        """Whether a header has every column that is needed, and none that must be absent."""
        places = self.place(header)
        return all(column.name in places for column in self.columns if column.needed) and not any(
            name in header for name in self.absent
        )


SMALL_PART = 1 << 16  # bytes of lines that are not halved further
LAST = "last field of the line"
BLANKS = (b" ", b"\t", b"\x0b", b"\x0c")


class FieldLayout(NamedTuple):
    """Positions of the columns of a schema in the lines of a file, and their number of fields."""

    at: Mapping[str, int]
    width: int


def _quotes(data: bytes) -> Ints:
    """Places of the quotes: the first opens a quoted field, the second closes it, and so on.

    A doubled quote, which stands for one, closes and opens.
    """
    return np.flatnonzero(np.frombuffer(data, np.uint8) == ord('"'))


def quotes_are_plain(data: bytes, separator: bytes) -> bool:
    r"""Whether each quote opens a field or closes one: ``csv`` and polars then read the same.

    A line that ends inside a field is not seen here: the fields then make fewer rows.

    >>> quotes_are_plain(b'a,"b,""c"\n"",d\n', b","), quotes_are_plain(b'a,b"c"\n', b",")
    (True, False)
    """
    text, at = np.frombuffer(data, np.uint8), _quotes(data)
    opens, closes = at[::2], at[1::2]
    if opens.size != closes.size:
        return False
    beside = np.zeros(256, dtype=bool)
    beside[[ord(separator), ord("\n"), ord('"')]] = True
    # before one that opens, or after one that closes, a quote is the other of a double
    preceded = opens if opens.size == 0 or opens[0] else opens[1:]
    return bool(beside[text[preceded - 1]].all() and beside[text[closes + 1]].all())


def outside_quotes(data: bytes, character: bytes) -> int:
    """Number of times that a character occurs outside quotes."""
    # An even number of quotes before a place means that it lies outside.
    places = np.flatnonzero(np.frombuffer(data, np.uint8) == ord(character))
    return int((np.searchsorted(_quotes(data), places) % 2 == 0).sum())


class RowParser:
    def __init__(self, schema: Schema, layout: FieldLayout):
        self.schema, self.layout = schema, layout
        self.columns = [column for column in schema.columns if column.name in layout.at]

    def read(self, data: bytes, rows: int, line: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The good rows of a block, ``row`` and the columns; and ``row reason`` of the others."""
        judged, wanted = self._judged(data, rows, line), ["row", *(c.name for c in self.columns)]
        good = pl.concat([frame.select(wanted) for frame, _ in judged], rechunk=False)
        return good, pl.concat([lost for _, lost in judged])

    def fields(self, text: str) -> list[str] | None:
        return None if self.schema.json else split_line(text, self.schema.separator)

    def _judged(self, data: bytes, rows: int, line: int) -> list[tuple[pl.DataFrame, pl.DataFrame]]:
        """Good rows, and ``row reason`` of the others, of part after part."""
        frame = None if self.schema.json else self._fast(data, rows)
        # For one bad line its part is read again at each halving; to take all lines apart costs far
        # more.
        if frame is None and not self.schema.json and len(data) > SMALL_PART:
            middle = data.rfind(b"\n", 0, len(data) // 2) + 1
            # No line ends in the first half: that one long line is not worth another halving.
            if middle:
                above = data.count(b"\n", 0, middle)
                return [
                    *self._judged(data[:middle], above, line),
                    *self._judged(data[middle:], rows - above, line + above),
                ]
        frame = self._slow(data) if frame is None else frame
        # Rows of a frame count from 0, `line` is that of its first one in the file.
        return [parted(frame.with_columns(pl.col("row").cast(pl.Int64) + line), self._rules(frame))]

    def _rules(self, frame: pl.DataFrame) -> list[Rule]:
        """The rules of the columns, for a frame in which a number is Float64.

        One whose lines were taken apart one by one has also ``broken``, why a line could not be,
        and ``fault``, the first column that is no number, both null for sound lines.
        """
        taken_apart = "fault" in frame.columns
        unread = pl.col("broken"), pl.col("broken").is_not_null()
        rules: list[Rule] = [unread] if taken_apart else []
        for c in self.columns:
            value = pl.col(c.name)
            fault = pl.col("fault") == c.name if taken_apart else pl.lit(False)
            # A number that could not be parsed is null as well, but it is not empty.
            blank = value.is_null() & ~fault.fill_null(False) if c.number else value == ""
            if not c.empty:
                rules.append((f"{c.name} is empty", blank))
            if c.number and taken_apart:
                rules.append((f"{c.name} is not a number", fault))
            elif c.pattern:
                # The whole text must fit, not a part of it; polars' engine
                # needs the anchors for that.
                fits = value.str.contains(f"^(?:{c.pattern})$")
                rules.append((f"{c.name} does not look like one", ~fits & ~blank))
        for c in (column for column in self.columns if column.number):
            # Comparisons with null are null, and break no rule: an empty
            # number is judged above alone.
            value, least = pl.col(c.name), f"less than {c.least:g}" if c.least else "negative"
            rules.append((f"{c.name} is not finite", ~value.is_finite()))
            rules.append((f"{c.name} is {least}", value < c.least))
            rules.append((f"{c.name} is larger than {c.most:g}", value > c.most))
            if c.whole:
                rules.append((f"{c.name} is not a whole number", value != value.floor()))
        return rules + [(check.reason, check.broken) for check in self.schema.checks]

    def _fast(self, data: bytes, rows: int) -> pl.DataFrame | None:
        """The columns, typed; None when anything about the lines is unusual."""
        # Whatever polars and csv might read differently goes the slow way.
        separator, width = self.schema.separator.encode(), self.layout.width
        quoted = b'"' in data
        # An empty line of a single column is an empty field to polars; here it is a bad row.
        if width == 1 or len(separator) != 1 or (quoted and not quotes_are_plain(data, separator)):
            return None
        # Polars would take a byte order mark off; at the start of a file it is off already.
        if data.startswith(codecs.BOM_UTF8):
            return None
        # Beyond ASCII there are other blanks, so that all texts are trimmed.
        blanks = any(blank in data for blank in BLANKS)
        if not data.isascii():
            blanks = True
            try:
                # A replacement character in the file looks like a byte that was
                # not UTF-8, which is counted.
                if "\ufffd" in data.decode():
                    return None
            except UnicodeDecodeError:
                return None
        frame = self._parsed(data, quoted)
        # Fewer rows: a quoted field holds a line end, or polars has skipped a line.
        if frame is None or len(frame) != rows:
            return None
        # Too many fields are an error of polars; too few are silently null, from the last on.
        if frame[LAST].null_count():
            # A null in the last field may be an empty field, or a row that is too
            # short: the separators tell.
            separators = outside_quotes(data, separator) if quoted else data.count(separator)
            if separators != rows * (width - 1):
                return None
        texts = pl.col([c.name for c in self.columns if not c.number]).fill_null("")
        return frame.with_columns(self._emptied(texts.str.strip_chars() if blanks else texts))

    def _parsed(self, data: bytes, quoted: bool) -> pl.DataFrame | None:
        # All fields are named by their places, since columns of no interest must be counted too.
        types: dict[str, Any] = {str(place): pl.String for place in range(self.layout.width)}
        place = {c.name: str(self.layout.at[c.name]) for c in self.columns}
        types |= {place[c.name]: pl.Float64 for c in self.columns if c.number}
        try:
            frame = pl.read_csv(
                data,
                has_header=False,
                schema=types,
                # Some writers leave numbers as `NA`; polars makes them null before it parses.
                quote_char='"' if quoted else None,
                separator=self.schema.separator,
                null_values=list(self.schema.missing) or None,
                row_index_name="row",  # in as many pieces as the columns: no copy aligns them
            )
        except pl.exceptions.PolarsError:
            return None
        return frame.select(
            "row",
            *(pl.col(place[c.name]).alias(c.name) for c in self.columns),
            pl.col(str(self.layout.width - 1)).alias(LAST),
        )

    def _slow(self, data: bytes) -> pl.DataFrame:
        """The columns, typed, and ``broken``: why a line cannot be taken apart, else null."""
        # Every line of a block ends with a line feed, so the last piece is empty.
        lines = data.decode("utf-8", errors="replace").split("\n")[:-1]
        frame = self._of_json(lines) if self.schema.json else self._of_fields(lines)
        frame = frame.with_columns(self._emptied(pl.col([c.name for c in self.columns])))
        numbers = [c for c in self.columns if c.number]
        parsed = {c.name: pl.col(c.name).cast(pl.Float64, strict=False) for c in numbers}
        # A number that cannot be read is a fault only where something stands in the cell.
        fault = first_reason(
            [(name, (pl.col(name) != "") & number.is_null()) for name, number in parsed.items()]
        ).alias("fault")
        return frame.with_columns(fault).with_columns(parsed.values()).with_row_index("row")

    def _emptied(self, texts: pl.Expr) -> pl.Expr:
        if not self.schema.missing:
            return texts
        return pl.when(~texts.is_in(self.schema.missing)).then(texts).otherwise(pl.lit(""))

    def _of_fields(self, lines: list[str]) -> pl.DataFrame:
        # Most lines have no quotes, and polars splits those without Python.
        if any('"' in line for line in lines):
            split = [split_line(line, self.schema.separator) for line in lines]
            fields = pl.Series("fields", split, dtype=pl.List(pl.String))
        else:
            fields = pl.Series("fields", lines, dtype=pl.String).str.split(self.schema.separator)
        fields_of_line = pl.col("fields")
        width, leading = fields_of_line.list.len(), fields_of_line.list.first().str.strip_chars()
        broken = [
            ("quotes do not match", fields_of_line.is_null()),
            (NOT_UTF8, fields_of_line.list.join("").str.contains("\ufffd", literal=True)),
            ("the line is empty", (width == 1) & (leading == "")),
            # The order of the reasons is that of their causes: bad bytes or
            # quotes make a wrong count, too.
            ("the number of fields is not that of the columns", width != self.layout.width),
        ]
        texts = {
            c.name: fields_of_line.list.get(self.layout.at[c.name], null_on_oob=True)
            for c in self.columns
        }
        return fields.to_frame().select(
            first_reason(broken).alias("broken"),
            *(text.str.strip_chars().alias(name) for name, text in texts.items()),
        )

    def _of_json(self, lines: list[str]) -> pl.DataFrame:
        names = [column.name for column in self.columns]
        # A JSON field is named by its path, which is the other spelling of the column.
        paths = [column.also[0] if column.also else column.name for column in self.columns]
        objects = [fields_of_json(line, paths) for line in lines]
        texts = pl.DataFrame(
            [t for t, _ in objects], schema=dict.fromkeys(names, pl.String), orient="row"
        )
        broken = pl.Series("broken", [problem for _, problem in objects], dtype=pl.String)
        return texts.with_columns(pl.all().str.strip_chars()).with_columns(broken)


class LoadedTable(NamedTuple):
    """A file that was read: the rows kept, the account of all, and the SHA-256 of the file.

    ``frame`` has ``row`` and the schema's columns: numbers as Float64, text without surrounding
    blanks.
    """

    file: Path
    frame: pl.DataFrame
    stage: Stage
    digest: str


class TableReader:
    """The reading of one file, batch by batch; raises as :func:`read_table` while iterating.

    With ``strict``, the first bad row is an error; ``blocks`` are those of the file, where they are
    not to be cut as usual. ``read`` and ``kept`` are rows without headers, and those that were
    given; ``line`` is the last line of the file, so far.
    """

    def __init__(
        self,
        path: Path | str,
        schema: Schema,
        *,
        strict: bool = False,
        blocks: Blocks | None = None,
    ):
        self.path, self.schema, self.strict = Path(path), schema, strict
        self.read = self.kept = self.line = 0
        self.blocks = blocks or Blocks(self.path)
        # All values of a column that must be unique are kept: the memory
        # of a reading grows with it.
        self._seen = set[Any]()
        self._account = RowAccount(self.path)
        self._rows: RowParser | None = None

    @property
    def dropped(self) -> dict[str, tuple[int, int]]:
        """Rows left out so far, by reason, in the order of the first row of each."""
        lost = self._account.dropped.items()
        return dict(sorted(lost, key=lambda item: (item[1][1], item[0])))

    def stage(self) -> Stage:
        """The account of the file; raises if no row of it was kept, with the reasons."""
        if self.kept == 0:
            # A file of which nothing can be used is an error; one with a few bad rows is read.
            raise TraceError(
                f"none of the {self.read} rows can be used: {reasons(self.dropped)}", self.path
            )
        return Stage(self.path.name, self.read, self.kept, self.dropped)

    def __iter__(self) -> Iterator[pl.DataFrame]:
        """The good rows of block after block: ``row`` and the columns."""
        for block in self.blocks:
            rows = self._without_header(block)
            self.line = rows.line + rows.rows - 1
            yield self._batch(rows)
        # Damage is known only after the last block, since it lies at the end of what could be read.
        damage = self.blocks.damage
        if self._rows is None:
            raise TraceError(
                f"{damage}; download it again" if damage else "the file is empty", self.path
            )
        if damage:
            self._cut_short(damage)
        elif self.read == 0:
            raise TraceError("the file has a header and no rows", self.path)

    def _without_header(self, block: Block) -> Block:
        data, line, schema = block.data, block.line, self.schema
        # The header stands at the head of each member of an archive, too.
        if not block.opens or (schema.json and self._rows is not None):
            return block
        # Blocks are whole lines, so that there is an end.
        end = data.index(b"\n") + 1
        text = data[:end].decode("utf-8", errors="replace").rstrip("\n")
        header = [field.strip() for field in split_line(text, schema.separator) or []]
        layout = _columns(self.path, schema, header)
        if self._rows is None:
            self._rows = RowParser(schema, layout)
        # Members of an archive are one file only where their columns are the same.
        elif layout != self._rows.layout:
            raise TraceError(
                "the members of this archive have different columns; unpack it and keep the files "
                "of one table",
                self.path,
                line,
            )
        # A file that needs no header may have one, which is then no row.
        if schema.json or not (schema.header or schema.matches(header)):
            return block
        return Block(data[end:], block.rows - 1, line + 1, False)

    def _batch(self, rows: Block) -> pl.DataFrame:
        assert self._rows is not None  # the first block opens the file
        good, bad = self._rows.read(rows.data, rows.rows, rows.line)
        self.read += len(good) + len(bad)
        if self.schema.unique:
            # A set of Python's for all blocks before; within one, polars is faster.
            values = good[self.schema.unique]
            seen = pl.Series([value in self._seen for value in values], dtype=pl.Boolean)
            fresh = values.is_first_distinct() & ~seen
            self._seen.update(values)
            # The first of equal values counts: a later row is most often a copy.
            if not fresh.all():
                repeated = good.filter(~fresh).select(
                    "row", pl.lit(f"{self.schema.unique} was used before").alias("reason")
                )
                good, bad = good.filter(fresh), pl.concat([bad, repeated])
        # Reasons are counted by kind, each with its first row.
        if len(bad):
            worst = bad.sort("row").row(0)
            if self.strict:
                # Only now is the line looked for: bad rows are rare, and strict stops at the first.
                text = rows.data.split(b"\n")[worst[0] - rows.line]
                fields = self._rows.fields(text.decode("utf-8", errors="replace"))
                self._refuse(worst[0], worst[1], fields)
            for reason, count, row in bad.group_by("reason").agg(pl.len(), pl.min("row")).rows():
                self._account.leave_out(row, reason, count)
        self.kept += len(good)
        return good

    def _cut_short(self, damage: str) -> None:
        torn = bool(self.blocks.torn)
        if self.strict:
            raise TraceError(
                f"{damage}, after row {self.line}; what follows is missing: download it again, or "
                "read without strict to use the rows before",
                self.path,
                self.line + 1,
            )
        # The line that was cut is a row that was there and cannot be used.
        self.read += torn
        reason = f"CUT SHORT after row {self.line}: {damage}; all later rows are missing, "
        self._account.leave_out(self.line + 1, f"{reason}download it again", int(torn))

    def _refuse(self, row: int, reason: str, fields: list[str] | None) -> NoReturn:
        assert self._rows is not None  # there was a row
        at, schema = self._rows.layout.at, self.schema
        named = [n for check in schema.checks if check.reason == reason for n in check.columns]
        named = named or [c.name for c in schema.columns if reason.startswith(f"{c.name} ")]
        if fields is not None and named and max(at[name] for name in named) < len(fields):
            shown = ", ".join(f"{name} = {fields[at[name]]!r}" for name in named)
        else:
            shown = (
                f"{len(fields)} fields: {fields!r:.80}" if fields is not None else "see the line"
            )
        raise TraceError(
            f"{reason} ({shown}); correct the row, or read without strict to leave such rows out",
            self.path,
            row,
        )


def read_table(
    path: Path | str, schema: Schema, *, strict: bool = False, blocks: Blocks | None = None
) -> LoadedTable:
    """Read a file: plain, gzipped, or a tar archive; arguments are those of :class:`TableReader`.

    Raises TraceError when the file cannot be read, its columns are not the schema's, no row is
    left, or, with ``strict``, at the first bad row.
    """
    reading = TableReader(path, schema, strict=strict, blocks=blocks)
    frames = list(reading)
    frame = pl.concat(frames) if frames else pl.DataFrame()
    return LoadedTable(reading.path, frame, reading.stage(), reading.blocks.digest())


def _columns(path: Path, schema: Schema, first: list[str]) -> FieldLayout:
    # Fields of JSON have no places; any order does, as long as it is one.
    if schema.json:
        return FieldLayout({column.name: i for i, column in enumerate(schema.columns)}, 0)
    if schema.header or schema.matches(first):
        if not schema.matches(first):
            complain(path, schema, first)
        # Which of the two was meant cannot be known, and both may look right.
        twice = sorted(name for name, times in Counter(first).items() if name and times > 1)
        if twice:
            raise TraceError(f"the header names column {twice[0]!r} twice", path, 1)
        return FieldLayout(schema.place(first), len(first))
    if len(first) != len(schema.columns):
        complain(path, schema, first)
    return FieldLayout({column.name: i for i, column in enumerate(schema.columns)}, len(first))


def complain(path: Path, schema: Schema, first: list[str]) -> NoReturn:
    """Say why a first line is not the schema's, naming columns and what was found instead."""
    wanted = [column.name for column in schema.columns if column.needed]
    listing = f"found {listed(first) or 'nothing'}; expected {listed(wanted)}"
    if not schema.header:
        raise TraceError(
            f"this is not the {schema.name}, whose rows have {len(schema.columns)} fields and no "
            f"header: {listing}",
            path,
            1,
        )
    if len(first) == 1:
        # The commonest mistake gets its own message: a CSV file that some office program wrote.
        for character, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
            if character in first[0]:
                raise TraceError(f"the columns are separated by {name}; commas are read", path, 1)
    if any(_number(field) for field in first):
        raise TraceError(
            f"the first line holds data where column names should be: {listing}", path, 1
        )
    missing = [name for name in wanted if name not in schema.place(first)]
    spare = [name for name in first if name not in wanted]
    hints = []
    for name in missing:
        # Blanks and capitals are folded, since they are what headings differ in most.
        folded = {s.lower().replace(" ", "_"): s for s in spare}
        close = get_close_matches(name, list(folded), n=1, cutoff=0.6)
        hints.append(f"{name!r}" + (f" (did you mean {folded[close[0]]!r}?)" if close else ""))
    noun = "column" if len(missing) == 1 else "columns"
    raise TraceError(f"the {schema.name} needs {noun} {', '.join(hints)}: {listing}", path, 1)


def _number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
