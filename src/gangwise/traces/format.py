"""What a trace format is: where it is published, which tables it has, and what their files hold.

Files are recognised by what is in them, not by what they are called: a file is a table's if its
first lines read as rows of the table's schema. For a file that is none, :func:`nearest` says which
table it has most of, and what speaks against it.

A converted trace is a folder with ``gangwise-trace.json``, its :class:`Manifest`, and, for each
table, a folder of chunks, ``TABLE/part-NNNNN.parquet``. The manifest is replaced whole after every
chunk, so that it never names a chunk that is not complete.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from gangwise.core.errors import TraceError, UnknownName
from gangwise.core.files import write_whole
from gangwise.traces.io.json_records import texts_of
from gangwise.traces.io.schema import Check, Column, Schema
from gangwise.traces.io.text import first_lines, split_line

MANIFEST = "gangwise-trace.json"
VERSION = 1


@dataclass(frozen=True)
class Chunk:
    """Rows that follow one another in a file, under ``name`` in the folder of the table.

    ``line`` is the last line of the file that was looked at for it, ``blocks`` and ``unpacked``
    count the blocks of the file up to its end and their bytes; ``stored`` bytes of the file, as it
    is stored, were read by then, of which ``sha256`` is the digest.
    """

    name: str
    rows: int
    line: int
    blocks: int
    unpacked: int
    stored: int
    sha256: str


@dataclass
class SourceFile:
    """A file of the trace as published (``modified`` in nanoseconds), and how far it is converted.

    ``sha256`` is of the file as it is stored, and empty until all of it is converted. ``read`` rows
    were looked at; ``dropped`` maps a reason to [how many, the first row].
    """

    name: str
    size: int
    modified: int
    sha256: str = ""
    read: int = 0
    dropped: dict[str, list[int]] = field(default_factory=dict)
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def kept(self) -> int:
        return sum(chunk.rows for chunk in self.chunks)


@dataclass
class Manifest:
    """The manifest of a converted trace: its format and the files of each table, in order.

    A block has about ``block`` bytes, and a chunk ``rows`` rows.
    """

    format: str
    tables: dict[str, list[SourceFile]]
    block: int
    rows: int
    complete: bool = False

    def save(self, folder: Path) -> None:
        text = json.dumps({"gangwise_trace": VERSION, **asdict(self)}, indent=1)
        write_whole(folder / MANIFEST, text)

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """The manifest of a folder.

        Raises
        ------
        TraceError
            When it is not one, or of another version.
        """
        file = folder / MANIFEST
        try:
            plain = json.loads(file.read_text())
            if plain.pop("gangwise_trace") == VERSION:
                return TypeAdapter(cls).validate_python(plain)
        except OSError as error:
            raise TraceError(f"the manifest cannot be read ({error.strerror})", file) from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            why = str(error).split("\n")[0]
            raise TraceError(
                f"this is not the manifest of a converted trace ({why}); convert the trace again "
                "into an empty folder",
                file,
            ) from error
        raise TraceError(
            "another version of gangwise converted this trace; convert it again into an empty "
            "folder",
            file,
        )


def manifest_of(path: Path) -> Manifest | None:
    return Manifest.load(path) if (path / MANIFEST).is_file() else None


ENDINGS: tuple[str, ...] = (
    ".csv",
    ".tsv",
    ".json",
    ".jsonl",
    ".txt",
    ".parquet",
    ".gz",
    ".bz2",
    ".xz",
    ".zst",
)
ENDINGS += (".zip", ".tar")


@dataclass(frozen=True)
class TableFile:
    """A table of a trace, in one file or in several.

    Parameters
    ----------
    usual : str
        A regular expression for the names of its published files, ending left out. Of several
        files that could be the table, those with a usual name are.
    also : tuple of Schema
        Other layouts of the same columns, such as without a header.
    parts : bool
        Whether it is published in parts, ``part-NNNNN-of-NNNNN``.
    several : bool
        Whether several files of a folder may be the table, in the order of their names.
    needed : bool
        Whether a workload cannot be made without it.
    gives : str
        What is read out of it, and not known where it is missing.
    """

    name: str
    schema: Schema
    usual: str = ""
    parts: bool = False
    needed: bool = False
    gives: str = ""
    also: tuple[Schema, ...] = ()
    several: bool = False

    def layout(self, lines: list[str]) -> Schema | None:
        """The layout that lines from the start of a file are of, if they are of one."""
        each = (self.schema, *self.also)
        return next((schema for schema in each if lines and reads_as(schema, lines)), None)


@dataclass(frozen=True)
class Format:
    """A trace as it is published.

    Parameters
    ----------
    name : str
        As it is registered.
    published : str
        Address of its description.
    span, size : str
        How long the trace is and how large its files are, as published; empty when not known.
    sha256 : mapping of str to str
        Digests that the publisher gives, by file name.
    checksums : str
        Where the publisher gives them, or others.
    mapping : mapping
        What else its TOML file says: how its rows become jobs and servers.
    """

    name: str
    title: str
    published: str
    licence: str
    tables: tuple[TableFile, ...]
    span: str = ""
    size: str = ""
    sha256: Mapping[str, str] = field(default_factory=dict)
    checksums: str = ""
    mapping: Mapping[str, Any] = field(default_factory=dict)

    def table(self, name: str) -> TableFile:
        """The table of this name.

        Raises
        ------
        UnknownName
            When there is none.
        """
        for table in self.tables:
            if table.name == name:
                return table
        known = [table.name for table in self.tables]
        raise UnknownName(f"table of {self.name}", name, known)


FORMATS = Path(__file__).parent / "formats"
DAY, HOUR = r"\d{4}-\d\d-\d\d", r"\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"
TIMES = tuple(f"%Y-%m-%d{t}%H:%M:%S{zone}" for zone in ("%z", "Z", "") for t in "T ")
"""How a column of the type ``time`` may be written."""


@cache
def declared(name: str) -> Format:
    """The format that ``formats/NAME.toml``, or another file ``….toml``, describes.

    A column there is a type (``text``, ``number``, ``whole``, ``time``, or one of ``[types]``),
    with ``?`` where it may be empty, or a table with ``type`` and what else a :class:`Column`
    takes. ``refuse`` gives a reason for each condition, in SQL, under which a row is bad. Other
    entries of a table are those of :class:`TableFile` and of :class:`Schema`, whose name is
    ``title``.
    """
    file = Path(name) if name.endswith(".toml") else FORMATS / f"{name}.toml"
    content = _content(file)
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
    return _over(_content(file.with_name(f"{like}.toml")), content) if like else content


def _over(base: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """One mapping over another, entry by entry; ``false`` takes an entry away."""
    for key, held in own.items():
        if isinstance(held, dict) and isinstance(base.get(key), dict):
            _over(base[key], held)
        elif held is False:
            base.pop(key, None)
        else:
            base[key] = held
    return base


_OF_FORMAT = ("title", "published", "licence", "span", "size", "checksums", "sha256")
_OF_TABLE = ("parts", "several", "needed", "gives")


def _of_column(given: str | Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    entry = {"type": given} if isinstance(given, str) else dict(given)
    kind = entry.pop("type")
    return {**types[kind.removesuffix("?")], "empty": kind.endswith("?"), **_tuples(entry)}


def _tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(held) if isinstance(held, list) else held for key, held in entry.items()}


def _table(name: str, entry: dict[str, Any], types: Mapping[str, Any]) -> TableFile:
    given = entry.pop("columns").items()
    columns = [Column(column, **_of_column(kind, types)) for column, kind in given]
    among = tuple(column.name for column in columns)
    checks = tuple(Check(why, sql, among) for why, sql in entry.pop("refuse", {}).items())
    title, usual = entry.pop("title"), entry.pop("file", "")
    own = {key: entry.pop(key) for key in _OF_TABLE if key in entry}
    schema = Schema(title, tuple(columns), checks=checks, **_tuples(entry))
    return TableFile(name, schema, usual, **own)


def files_of(path: Path) -> list[Path]:
    """A file itself, or the files of a directory and of the directories in it, by name.

    Converted traces in it are none of its files.
    """
    return [f for f in all_files(path) if f == path or f.name.lower().endswith(ENDINGS)]


def all_files(path: Path) -> list[Path]:
    """As :func:`files_of`, whatever they are called; hidden ones are left out."""
    if not path.is_dir():
        return [path]
    folders = [path]
    if not (path / MANIFEST).is_file():  # the tables of a converted trace are no files of it
        folders += [d for d in path.iterdir() if d.is_dir() and not (d / MANIFEST).is_file()]
    found = [file for folder in folders for file in folder.iterdir()]
    return sorted(f for f in found if f.is_file() and not f.name.startswith("."))


def recognise(path: Path, formats: Iterable[Format]) -> list[tuple[Format, TableFile]]:
    """What a file could be, judged by its first lines.

    Of several, those of the usual name; else those whose header it has, since rows without one may
    read as many things.
    """
    if path.name == MANIFEST:  # of a converted trace: whatever was converted
        manifest = Manifest.load(path.parent)
        return [
            (form, form.table(table))
            for form in formats
            if form.name == manifest.format
            for table in manifest.tables
        ]
    lines = first_lines(path)
    found = [
        (form, table)
        for form in formats
        for table in form.tables
        if table.layout(lines) is not None
    ]
    usual = [(form, table) for form, table in found if has_usual_name(path, table)]
    sure = [(form, table) for form, table in found if table.schema.header]
    return usual or sure or found


def has_usual_name(path: Path, table: TableFile) -> bool:
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
            texts, why = texts_of(line, [*names, *schema.absent])
            rows.append(None if why or any(texts[len(names) :]) else texts[: len(names)])
    else:
        rows = [split_line(line, schema.separator) for line in lines]
        first = [field.strip() for field in rows[0] or []]
        if schema.header:
            return schema.matches(first)
        rows = rows[1:] if schema.matches(first) else rows
    good = [
        row is not None
        and len(row) == len(columns)
        and all(holds(column, field.strip()) for column, field in zip(columns, row))
        for row in rows
    ]
    return 2 * sum(good) > len(good)


def holds(column: Column, field: str) -> bool:
    if not field:
        return column.empty
    if not column.number:
        return not column.pattern or re.fullmatch(column.pattern, field) is not None
    try:
        number = float(field)
    except ValueError:
        return False
    return column.least <= number <= column.most and not (column.whole and number % 1)


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
    needed = [column.name for column in schema.columns if column.needed]
    if schema.json:
        texts, why = texts_of(lines[0], needed)
        if why is not None:
            return Likeness(0.0, "its lines are JSON objects, these are not")
        return _lacking([name for name, text in zip(needed, texts) if not text], needed)
    rows = [[field.strip() for field in split_line(line, schema.separator) or []] for line in lines]
    if not schema.header:
        return _of_rows(schema, rows)
    there = schema.place(rows[0])
    if missing := [name for name in needed if name not in there]:
        return _lacking(missing, needed)
    spare = [name for name in schema.absent if name in rows[0]]
    return Likeness(1.0, f"it has no column {', '.join(spare)}, and these have" if spare else "")


def _lacking(missing: Sequence[str], needed: Sequence[str]) -> Likeness:
    some = ", ".join(missing[:6]) + (f" and {len(missing) - 6} more" if len(missing) > 6 else "")
    why = f"no column {some}" if len(missing) == 1 else f"no columns {some}"
    return Likeness(1 - len(missing) / len(needed), why)


def _of_rows(schema: Schema, rows: Sequence[Sequence[str]]) -> Likeness:
    """The first field that is wrong in most of the rows speaks against it."""
    columns, width = schema.columns, len(rows[0])
    wrong = [
        (place, column)
        for place, column in enumerate(columns)
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
    r"""What the start of a file is, in a word, where it is no table in text.

    >>> looks_like(["\x89PNG\x1a\x00"]), looks_like(["{", '"a": 1}']), looks_like(["a,b"])
    ('binary data', 'JSON', '')
    """
    if not lines:
        return "an empty file"
    if is_for_people(lines):
        return FOR_PEOPLE
    start = "\n".join(lines)[:2000]
    if "\0" in start or len(re.findall("[\x01-\x08\x0e-\x1f\ufffd]", start)) > len(start) / 20:
        return "binary data"
    return "JSON" if start.lstrip()[:1] in ("{", "[") else ""
