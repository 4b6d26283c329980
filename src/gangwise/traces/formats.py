"""What a trace format is: where it is published, which tables it has, and what their files hold.

Files are recognised by what is in them, not by what they are called: a file is a table's if its
first lines read as rows of the table's schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gangwise.core.errors import UnknownName
from gangwise.traces.json_lines import texts_of
from gangwise.traces.manifest import MANIFEST, Manifest
from gangwise.traces.schema import Column, Schema
from gangwise.traces.text import first_lines, split_line

ENDINGS = (".csv", ".csv.gz", ".tar.gz", ".json", ".json.gz", ".jsonl", ".txt", ".gz")


@dataclass(frozen=True)
class TableFile:
    """A table of a trace, in one file or in several.

    Parameters
    ----------
    name : str
    schema : Schema
    usual : str
        A regular expression for the names of its published files, ending left out. Of several
        files that could be the table, those with a usual name are.
    parts : bool
        Whether it is published in parts, ``part-NNNNN-of-NNNNN``.
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


@dataclass(frozen=True)
class Format:
    """A trace as it is published.

    Parameters
    ----------
    name : str
        As it is registered.
    title : str
    published : str
        Address of its description.
    licence : str
    tables : tuple of TableFile
    span, size : str
        How long the trace is and how large its files are, as published; empty when not known.
    sha256 : mapping of str to str
        Digests that the publisher gives, by file name.
    checksums : str
        Where the publisher gives them, or others.
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


def files_of(path: Path) -> list[Path]:
    """A file itself, or the files of a directory and of the directories in it, by name.

    Converted traces in it are none of its files.
    """
    return [f for f in all_files(path) if f == path or f.name.lower().endswith(ENDINGS)]


def all_files(path: Path) -> list[Path]:
    """As :func:`files_of`, whatever they are called; hidden ones are left out."""
    if not path.is_dir():
        return [path]
    folders = [path, *(d for d in path.iterdir() if d.is_dir() and not (d / MANIFEST).is_file())]
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
        if lines and reads_as(table.schema, lines)
    ]
    usual = [(form, table) for form, table in found if has_usual_name(path, table)]
    sure = [(form, table) for form, table in found if table.schema.header]
    return usual or sure or found


def has_usual_name(path: Path, table: TableFile) -> bool:
    """Whether a file, or the folder that its parts are in, is called as published."""
    stem = path.name.split(".")[0]
    if table.parts and re.fullmatch(r"part-\d+-of-\d+", stem):
        stem = path.parent.name
    return bool(table.usual) and re.fullmatch(table.usual, stem) is not None


def reads_as(schema: Schema, lines: list[str]) -> bool:
    """Whether lines from the start of a file are a header, or rows, of a schema.

    With a header, it must have every needed column. Without one, more than half of the rows must
    hold what the columns ask for.
    """
    if schema.json:
        return _reads_as_json(schema, lines)
    rows = [split_line(line, schema.separator) for line in lines]
    first = [field.strip() for field in rows[0] or []]
    if schema.header:
        return schema.matches(first)
    if schema.matches(first):
        rows = rows[1:]
    good = [
        row is not None
        and len(row) == len(schema.columns)
        and all(holds(column, field.strip()) for column, field in zip(schema.columns, row))
        for row in rows
    ]
    return 2 * sum(good) > len(good)


def _reads_as_json(schema: Schema, lines: list[str]) -> bool:
    """Whether more than half of the lines are objects with what the columns ask for."""
    good = 0
    for line in lines:
        names = [column.name for column in schema.columns]
        texts, why = texts_of(line, [*names, *schema.absent])
        good += (
            why is None
            and not any(texts[len(names) :])
            and all(holds(column, text.strip()) for column, text in zip(schema.columns, texts))
        )
    return 2 * good > len(lines)


def holds(column: Column, field: str) -> bool:
    """Whether a field is what a column asks for."""
    if not field:
        return column.empty
    if not column.number:
        return not column.pattern or re.fullmatch(column.pattern, field) is not None
    try:
        number = float(field)
    except ValueError:
        return False
    return column.least <= number <= column.most and not (column.whole and number % 1)
