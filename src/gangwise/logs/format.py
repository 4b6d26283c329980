"""What a trace format is: where it is published, which tables it has, and what their files hold.

Files are recognised by what is in them, not by what they are called: a file is a table's if its
first lines read as rows of the table's schema. For a file that is none, :func:`nearest` says which
table it has most of, and what speaks against it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import polars as pl

from gangwise.core.errors import TraceError, UnknownName
from gangwise.logs.reading import Check, Column, Schema, Stage, TableReader
from gangwise.logs.text import beginning, fields_of_json, first_lines, header_of, split_line

SAVED = "tables.json"
"""The file that makes a folder one of tables that were saved."""
ENDINGS = (
    *(".csv", ".tsv", ".json", ".jsonl", ".txt", ".parquet", ".zip", ".tar"),
    *(".gz", ".bz2", ".xz", ".zst"),
)


@dataclass(frozen=True)
class TableFile:
    """A table of a trace, in one file or in several, and how to know it."""

    name: str
    schema: Schema
    # A regular expression for the names of its published files, ending left out. Of several files
    # that could be the table, those with a usual name are.
    usual: str = ""
    parts: bool = False  # it is published in parts, ``part-NNNNN-of-NNNNN``
    needed: bool = False  # a workload cannot be made without it
    gives: str = ""  # what is read out of it, and not known where it is missing
    also: tuple[Schema, ...] = ()  # other layouts of the same columns, such as without a header
    several: bool = False  # several files of a folder may be it, in the order of their names
    begins: str = ""  # a regular expression for how its text begins, where it is no rows

    def layout(self, lines: list[str]) -> Schema | None:
        """The layout that lines from the start of a file are of, if they are of one."""
        # A table without columns is taken apart by its own reader, and known by how it begins.
        schemas = (schema for schema in (self.schema, *self.also) if schema.columns)
        return next((schema for schema in schemas if lines and reads_as(schema, lines)), None)

    def fits(self, path: Path) -> bool:
        """Whether a file is the table, judged by how it begins."""
        # The beginning of the text is matched first, since it costs less than taking lines apart.
        return self.is_begun(beginning(path)) or self.layout(first_lines(path)) is not None

    def is_begun(self, start: str) -> bool:
        return bool(self.begins) and re.match(self.begins, start) is not None


@dataclass(frozen=True)
class Format:
    """A trace as it is published: its tables, and where it comes from."""

    name: str  # registered name
    title: str
    published: str  # address of its description
    licence: str
    tables: tuple[TableFile, ...]
    span: str = ""  # how long it is, and how large its files are; empty where not known
    size: str = ""
    sha256: Mapping[str, str] = field(default_factory=dict)  # as published, by file name
    checksums: str = ""  # where the publisher gives them, or others
    # What else its TOML file says: how its rows become jobs and servers.
    mapping: Mapping[str, Any] = field(default_factory=dict)

    def table(self, name: str) -> TableFile:
        """The table of this name.

        Raises UnknownName when there is none.
        """
        for table in self.tables:
            if table.name == name:
                return table
        names = [table.name for table in self.tables]
        raise UnknownName(f"table of {self.name}", name, names)


FORMATS = Path(__file__).parent / "formats"
DAY, HOUR = r"\d{4}-\d\d-\d\d", r"\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"
TIMES = tuple(f"%Y-%m-%d{t}%H:%M:%S{zone}" for zone in ("%z", "Z", "") for t in "T ")
"""Formats in which a column of the type ``time`` may be written."""


@cache
def declared(name: str) -> Format:
    """The format that ``formats/NAME.toml``, or another file ``….toml``, describes.

    A column there is a type (``text``, ``number``, ``whole``, ``time``, or one of ``[types]``),
    with ``?`` where it may be empty, or a table with ``type`` and what else a :class:`Column`
    takes. ``refuse`` gives a reason for each condition, in SQL, under which a row is bad. A table
    without columns is one that only its reader can take apart. Other entries of a table are those
    of :class:`TableFile` and of :class:`Schema`, whose name is ``title``.
    """
    file = Path(name) if name.endswith(".toml") else FORMATS / f"{name}.toml"
    content = _content(file)
    # Types that every file knows; it may add its own, made of these.
    types: dict[str, Any] = {"text": {"number": False}, "number": {}, "whole": {"whole": True}}
    types["time"] = {"number": False, "pattern": f"{DAY}[T ]{HOUR}", "times": TIMES}
    for kind, entry in content.pop("types", {}).items():
        types[kind] = _of_column(entry, types)
    tables = [_table(key, entry, types) for key, entry in content.pop("tables", {}).items()]
    own = {key: content.pop(key) for key in _OF_FORMAT if key in content}
    return Format(file.stem, tables=tuple(tables), mapping=content, **own)


def _content(file: Path) -> dict[str, Any]:
    """A TOML file, with what it does not say of itself from the one that it is ``like``."""
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    like = content.pop("like", "")
    # Its own entries win over those of the file that it is like.
    return _over(_content(file.with_name(f"{like}.toml")), content) if like else content


def _over(base: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """One mapping over another, entry by entry; ``false`` takes an entry away."""
    for key, value in own.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _over(base[key], value)
        # TOML has no null, so `false` takes an entry away.
        elif value is False:
            base.pop(key, None)
        else:
            base[key] = value
    return base


_OF_FORMAT = ("title", "published", "licence", "span", "size", "checksums", "sha256")
_OF_TABLE = ("parts", "several", "needed", "gives", "begins")


def _of_column(given: str | Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    entry = {"type": given} if isinstance(given, str) else dict(given)
    kind = entry.pop("type")
    # A question mark after the type means that the cell may be empty.
    return {**types[kind.removesuffix("?")], "empty": kind.endswith("?"), **_tuples(entry)}


def _tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    # Columns and schemas are frozen and hashable, so that they hold no lists.
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}


def _table(name: str, entry: dict[str, Any], types: Mapping[str, Any]) -> TableFile:
    declared_columns = entry.pop("columns", {}).items()
    columns = [Column(column, **_of_column(kind, types)) for column, kind in declared_columns]
    among = tuple(column.name for column in columns)
    checks = tuple(Check(reason, sql, among) for reason, sql in entry.pop("refuse", {}).items())
    title, usual = entry.pop("title"), entry.pop("file", "")
    own = {key: entry.pop(key) for key in _OF_TABLE if key in entry}
    schema = Schema(title, tuple(columns), checks=checks, **_tuples(entry))
    return TableFile(name, schema, usual, **own)


def files_of(path: Path) -> list[Path]:
    """A file itself, or the files of a directory and of the directories in it, by name.

    Tables that were saved in one of those are none of its files.
    """
    # A file that was named by its path counts whatever its ending.
    return [f for f in all_files(path) if f == path or f.name.lower().endswith(ENDINGS)]


def all_files(path: Path) -> list[Path]:
    """All files as in :func:`files_of`, whatever their names; hidden ones are left out."""
    if not path.is_dir():
        return [path]
    # A folder of saved tables is a trace of its own, and no part of this one.
    folders = [path, *(d for d in path.iterdir() if d.is_dir() and not (d / SAVED).is_file())]
    files = [file for folder in folders for file in folder.iterdir()]
    # The order of files must not depend on the file system.
    return sorted(f for f in files if f.is_file() and not f.name.startswith("."))


def recognise(path: Path, formats: Iterable[Format]) -> list[tuple[Format, TableFile]]:
    """Tables that a file could be, judged by its first lines.

    Of several, those of the usual name; else those whose header it has, since rows without one may
    read as many things.
    """
    # The file is opened once for all formats; the text of its start is kept.
    lines, start = first_lines(path), beginning(path)
    matches = [
        (form, table)
        for form in formats
        for table in form.tables
        if table.is_begun(start) or table.layout(lines) is not None
    ]
    # A usual name decides; then a header, which says more than rows that fit.
    usual = [(form, table) for form, table in matches if has_usual_name(path, table)]
    sure = [(form, table) for form, table in matches if table.schema.header]
    return usual or sure or matches


def has_usual_name(path: Path, table: TableFile) -> bool:
    # Google's parts are all called alike: the folder tells which table they are.
    stem = path.name.split(".")[0]
    if table.parts and re.fullmatch(r"part-\d+-of-\d+", stem):
        stem = path.parent.name
    return bool(table.usual) and re.fullmatch(table.usual, stem) is not None


def reads_as(schema: Schema, lines: list[str]) -> bool:
    """Whether lines from the start of a file are a header, or rows, of a schema.

    With a header, it must have every needed column. Without one, more than half of the rows must
    hold what the columns ask for.
    """
    columns, names = schema.columns, [column.name for column in schema.columns]
    rows: list[list[str] | None]
    if schema.json:
        rows = []
        for line in lines:
            texts, problem = fields_of_json(line, [*names, *schema.absent])
            # Fields that a fuller table has are asked for behind the others: any of
            # them means that it is that.
            rows.append(None if problem or any(texts[len(names) :]) else texts[: len(names)])
    else:
        rows = [split_line(line, schema.separator) for line in lines]
        header = [field.strip() for field in rows[0] or []]
        if schema.header:
            return schema.matches(header)
        # A header that is not needed may be there all the same.
        if schema.matches(header):
            # Judged as a row, a header would speak against the table.
            rows = rows[1:]
        elif _names_columns(rows):
            return False
    # More than half must fit, since single rows of a sound file may be bad.
    good = [
        row is not None
        # A row without its fields fits nothing; one that has too many is no row of this table.
        and len(row) == len(columns)
        and all(holds(column, field.strip()) for column, field in zip(columns, row))
        for row in rows
    ]
    return 2 * sum(good) > len(good)


def _names_columns(rows: Sequence[Sequence[str] | None]) -> bool:
    """Whether the first of some rows is a header: names, over a column that holds numbers.

    >>> _names_columns([["id", "end"], ["1", "20"]]), _names_columns([["a", "3"], ["b", "20"]])
    (True, False)
    """
    names = [field.strip() for field in rows[0] or []]
    below = [row for row in rows[1:] if row is not None and len(row) == len(names)]
    # Words over numbers: without this, a file with a header would read as rows of text.
    if not below or not all(re.fullmatch(r"[A-Za-z_][\w .()/-]*", name) for name in names):
        return False
    number = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
    return len(set(names)) == len(names) and any(
        all(number.fullmatch(row[place].strip()) for row in below) for place in range(len(names))
    )


def holds(column: Column, field: str) -> bool:
    if not field:
        return column.empty
    if not column.number:
        return not column.pattern or re.fullmatch(column.pattern, field) is not None
    # Python takes `nan` and `inf` for numbers; the bounds refuse both.
    try:
        number = float(field)
    except ValueError:
        return False
    # A whole number may be written as `4.0`, which logs of pandas often do.
    return column.least <= number <= column.most and not (column.whole and number % 1)


NEAR = 0.5
"""A table is near when at least this share of its columns is there."""


class Likeness(NamedTuple):
    """Likeness of lines to a table: the share that matches, and what speaks against it.

    ``share`` is that of the columns that are there, or that hold what they should.
    """

    share: float
    why: str


def nearest(
    lines: Sequence[str], formats: Iterable[Format]
) -> tuple[Format, TableFile, Likeness] | None:
    """The table that lines from the start of a file have most of, if they have half of one."""
    candidates = [
        (form, table, likeness(table.schema, lines))
        for form in formats
        for table in form.tables
        if table.schema.columns
    ]
    best = max(candidates, key=lambda item: item[2].share, default=None)
    # Less than half of the columns is no likeness, and a hint would mislead.
    return best if best is not None and best[2].share >= NEAR else None


def likeness(schema: Schema, lines: Sequence[str]) -> Likeness:
    """Compare lines from the start of a file with a schema they are not of."""
    if not lines:
        return Likeness(0.0, "there is no text")
    needed = [column.name for column in schema.columns if column.needed]
    if schema.json:
        texts, problem = fields_of_json(lines[0], needed)
        if problem is not None:
            return Likeness(0.0, "its lines are JSON objects, these are not")
        # A JSON field that is empty in one record may be there in another; the first must do.
        absent = [name for name, text in zip(needed, texts) if not text]
        return _missing_columns(absent, needed)
    rows = [[field.strip() for field in split_line(line, schema.separator) or []] for line in lines]
    if not schema.header:
        return _compare_rows(schema, rows)
    places = schema.place(rows[0])
    if missing := [name for name in needed if name not in places]:
        return _missing_columns(missing, needed)
    # What is there too much tells two tables of the same columns apart.
    spare = [name for name in schema.absent if name in rows[0]]
    return Likeness(1.0, f"it has no column {', '.join(spare)}, and these have" if spare else "")


def _missing_columns(missing: Sequence[str], needed: Sequence[str]) -> Likeness:
    listing = ", ".join(missing[:6]) + (f" and {len(missing) - 6} more" if len(missing) > 6 else "")
    text = f"no column {listing}" if len(missing) == 1 else f"no columns {listing}"
    return Likeness(1 - len(missing) / len(needed), text)


def _compare_rows(schema: Schema, rows: Sequence[Sequence[str]]) -> Likeness:
    """The first field that is wrong in most of the rows speaks against it."""
    columns, width = schema.columns, len(rows[0])
    # Columns whose cells are wrong in half of the rows or more.
    wrong = [
        (place, column)
        for place, column in enumerate(columns)
        # Half of the rows or more: the single bad row of a sound file is no reason.
        if 2 * sum(place < len(row) and holds(column, row[place]) for row in rows) <= len(rows)
    ]
    reasons = []
    if width != len(columns):
        reasons.append(f"its rows have {len(columns)} fields, these have {width}")
    for place, column in [(place, column) for place, column in wrong if place < width][:1]:
        kind = "a whole number" if column.whole else "a number"
        wanted = f"{kind} from {column.least:g} to {column.most:g}"
        if not column.number:
            wanted = f"like {column.pattern}" if column.pattern else "there"
        reasons.append(
            f"field {place + 1}, {column.name}, is {rows[0][place]!r:.40} here and should be "
            f"{wanted}"
        )
    return Likeness((len(columns) - len(wrong)) / max(len(columns), width), "; ".join(reasons))


FOR_PEOPLE = (
    "sacct's table for people, in which long values are cut off; make it again with --parsable2"
)


def is_for_people(lines: Sequence[str]) -> bool:
    """Whether lines are the default layout of sacct: names over dashes, columns of fixed width.

    >>> is_for_people(["JobID    JobName  Partition ", "------- ---------- ---------- "])
    True
    """
    if len(lines) < 2:
        return False
    dashes = lines[1].split()
    return (
        len(dashes) > 1
        and set("".join(dashes)) == {"-"}
        and len(lines[0].split()) == len(dashes)
        and "|" not in lines[0]
    )


def looks_like(lines: Sequence[str]) -> str:
    r"""Kind of a file that is no table in text, judged by its start; empty for text.

    >>> looks_like(["\x89PNG\x1a\x00"]), looks_like(["{", '"a": 1}']), looks_like(["a,b"])
    ('binary data', 'JSON', '')
    """
    if not lines:
        return "an empty file"
    if is_for_people(lines):
        return FOR_PEOPLE
    start = "\n".join(lines)[:2000]
    # A few control characters are in some job names; one in twenty is no text.
    if "\0" in start or len(re.findall("[\x01-\x08\x0e-\x1f\ufffd]", start)) > len(start) / 20:
        return "binary data"
    return "JSON" if start.lstrip()[:1] in ("{", "[") else ""


PART = re.compile(r"part-(\d+)-of-(\d+)\.")


@dataclass
class Read:
    """Rows that were read of a table, with stages and digests.

    ``frame`` has ``part`` (number of the file, from 0), ``row`` (line of that file) and the columns
    of the schema: numbers as Float64, null where missing; text without surrounding blanks.
    ``stages`` count rows read, kept and dropped, ``digests`` are SHA-256, both file by file.
    """

    frame: pl.DataFrame
    stages: tuple[Stage, ...]
    digests: dict[str, str]


class Batches:
    """Rows of a table, batch after batch, in constant memory; iterate once.

    ``stages`` and ``digests`` are of the files that were read to their end.
    """

    def __init__(self, readings: list[TableReader]):
        self.readings = readings
        self.stages: list[Stage] = []
        self.digests: dict[str, str] = {}

    def __iter__(self) -> Iterator[pl.DataFrame]:
        for number, reading in enumerate(self.readings):
            for batch in reading:
                # The number of the file goes along, for rows of several files
                # have the same line numbers.
                yield batch.with_columns(pl.lit(number, pl.Int64).alias("part"))
            # Only a file that was read to its end has an account and a digest.
            self.stages.append(reading.stage())
            self.digests[reading.path.name] = reading.blocks.digest()


class TraceFiles:
    """The files of one trace, in a folder, or one of them.

    Files that are ``named`` by table are read whatever is in them; with ``strict``, the first bad
    row is an error rather than left out and reported. Raises TraceError when there is no such file
    or directory.
    """

    def __init__(
        self,
        path: Path | str,
        form: Format,
        *,
        named: Mapping[str, Path] | None = None,
        strict: bool = False,
    ):
        self.path, self.form, self.strict = Path(path), form, strict
        self.named = dict(named or {})
        if not self.path.exists():
            raise TraceError("there is no such file or directory", self.path)

    def files(self, table: str) -> list[Path]:
        """Files of a table, in order of their parts; empty when there are none.

        Raises TraceError when a part is missing or here twice, or several files could be the table.
        """
        if table in self.named:
            return [self.named[table]]
        wanted = self.form.table(table)
        if wanted.several:  # whatever they are called; those of folders in it may be of another log
            readable = [f for f in all_files(self.path) if self.path in (f, f.parent)]
            return [f for f in readable if wanted.layout(first_lines(f))]
        files = [f for f in files_of(self.path) if wanted.layout(first_lines(f))]
        usual = [f for f in files if has_usual_name(f, wanted)]
        # A usual name decides among files that read alike; without one, the choice is the user's.
        files = usual or files
        if wanted.parts:
            return _in_parts(files)
        choose = f"keep one here, or name {self._argument(table)}"
        file = only_file(files, f"the table {table}", self.path, choose)
        return [file] if file else []

    def has(self, table: str) -> bool:
        return bool(self.files(table))

    def _argument(self, table: str) -> str:
        files = self.form.mapping.get("files", {}).items()
        return next(
            (f"it with {name}=" for name, tables in files if table in tables), "the file itself"
        )

    def read(self, table: str) -> Read:
        """Read a table.

        Raises TraceError when there is no file of it, or it cannot be read; with ``strict``, at the
        first bad row.
        """
        batches = self.batches(table)
        # Parts may lack columns that are not needed; polars fills them with nulls.
        frame = pl.concat(batches, how="diagonal")
        return Read(frame, tuple(batches.stages), batches.digests)

    def batches(self, table: str) -> Batches:
        files = self.files(table) or self._nearest_file(table)
        if not files:
            self.missing(table)
        return Batches([self.reading(table, file) for file in files])

    def missing(self, *tables: str) -> NoReturn:
        files = files_of(self.path)
        # The whole list of formats is asked only when nothing fits, for the message.
        formats = [declared(f.stem) for f in FORMATS.glob("*.toml") if f.stem != self.form.name]
        for file in files:
            for form, table in recognise(file, formats)[:1]:
                raise TraceError(
                    f"this looks like {table.name} of {form.name}, not like {self.form.name}; read "
                    f"it with trace={form.name!r}",
                    file,
                )
        names = ", ".join(f.name for f in files[:12]) or "nothing that can be read"
        raise TraceError(
            f"no file of the table {' or '.join(tables)} of {self.form.name} here; found {names}; "
            f"name {self._argument(tables[0])}",
            self.path,
        )

    def _nearest_file(self, table: str) -> list[Path]:
        schema = self.form.table(table).schema
        # Only tables of commas with a header can have a column too few and still be read as such.
        if not (schema.header and schema.separator == ","):
            return []
        needed = sum(column.needed for column in schema.columns)
        # A file with most of the columns is read, so that what is missing is said.
        near = {file: len(schema.place(header_of(file))) for file in files_of(self.path)}
        most = max(near, key=lambda file: near[file], default=None)
        recognised = most and any(t.layout(first_lines(most)) for t in self.form.tables)
        # A file that another table fits is left to that one.
        return [most] if most and not recognised and 2 * near[most] > needed else []

    def reading(self, table: str, file: Path) -> TableReader:
        wanted = self.form.table(table)
        # The layout of this file, since files of one table may differ in theirs.
        schema = wanted.layout(first_lines(file)) or wanted.schema
        return TableReader(file, schema, strict=self.strict)


def only_file(files: Sequence[Path], what: str, path: Path, choose: str) -> Path | None:
    """The one of some files below a path; None of none.

    Raises TraceError, which says how to ``choose``, when there are several.
    """
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise TraceError(f"{len(files)} files could be {what}: {names}; {choose}", path)
    return files[0] if files else None


def _in_parts(files: list[Path]) -> list[Path]:
    """Parts in order; none may be missing in the middle or be here twice."""
    # By the numbers in their names; a single file without one is the first.
    numbered: dict[int, Path] = {}
    for file in files:
        match = PART.match(file.name)
        # A file without a number in its name is a whole table, and stands for the first part.
        number = int(match[1]) if match else len(numbered)
        if number in numbered:
            raise TraceError(
                f"part {number:05d} is here twice, as {numbered[number].name} and {file.name}; "
                "keep one",
                file.parent,
            )
        numbered[number] = file
    order = sorted(numbered)
    for part, following in pairwise(order):
        # Later parts without the one before would be read as if nothing had happened in between.
        if following != part + 1:
            raise TraceError(
                f"part {part + 1:05d} is missing, before {numbered[following].name}; download it, "
                "or keep only the parts before it",
                numbered[following].parent,
            )
    return [numbered[n] for n in order]
