"""The text of a trace file: unpacked, decoded, split into lines, and recognised by its header."""

from __future__ import annotations

import csv
import gc
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gangwise.core.errors import TraceError
from gangwise.logs.io.blocks import Block, Blocks

ENOUGH_FOR_A_HEADER = 1 << 16


def read_text(path: Path) -> tuple[str, str]:
    """Text of a small file, plain or gzipped, and the SHA-256 of the file as it is stored.

    Bytes that are not UTF-8 become U+FFFD; TraceError tells of a file that is damaged or no text.
    """
    blocks = Blocks(path)
    data = blocks.whole()
    if blocks.damage:
        raise TraceError(f"{blocks.damage}; download it again", path)
    return data.decode("utf-8", errors="replace"), blocks.digest()


def start_of(path: Path) -> bytes:
    """The start of the text of a file, unpacked; empty when unreadable.

    It is kept, so that a file that many formats look at is opened once, until it changes.
    """
    try:
        stat = path.stat()
    except OSError:
        return b""
    return _start(path, stat.st_size, stat.st_mtime_ns, stat.st_ino)


@lru_cache(maxsize=2048)
def _start(path: Path, *version: int) -> bytes:
    try:
        return Blocks(path).start(ENOUGH_FOR_A_HEADER)
    except TraceError:
        return b""


def first_lines(path: Path, lines: int = 20) -> list[str]:
    """Lines from the start of a file, read without the rest of it; empty when unreadable."""
    data = start_of(path)
    # A line that the bound has cut would read as a bad row.
    # A line that the limit cuts is not judged.
    if len(data) == ENOUGH_FOR_A_HEADER:
        data = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]  # the last line is cut off
    return split_lines(data.decode("utf-8-sig", errors="replace"))[:lines]


def header_of(path: Path) -> list[str]:
    """Fields of the first line, read without the rest of the file; empty when unreadable."""
    lines = first_lines(path, 1)
    return [field.strip() for field in split_line(lines[0]) or []] if lines else []


def split_lines(text: str) -> list[str]:
    r"""Lines as an editor shows them; empty ones at the end are left out.

    >>> split_lines("a,b\r\n1,2\r\n\r\n")
    ['a,b', '1,2']
    """
    # Old Macs ended lines with a return alone; the order of the two keeps CR LF one end.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def split_line(line: str, separator: str = ",") -> list[str] | None:
    """Fields of one line; None when its quotes do not match.

    >>> split_line('a,"b,c"'), split_line('a,"b')
    (['a', 'b,c'], None)
    """
    # The usual case, without a parser: csv takes ten times as long.
    if '"' not in line:
        return line.split(separator)
    try:
        # Without `strict` csv would take a quote that is never closed for the end of the file.
        return next(csv.reader([line], delimiter=separator, strict=True))
    except csv.Error:
        return None


def split_names(names: Sequence[str] | str) -> tuple[str, ...]:
    """Names that were given as such, or in one text, separated by bars or commas.

    >>> split_names("Terminated|Failed"), split_names(("Running",))
    (('Terminated', 'Failed'), ('Running',))
    """
    parts = re.split(r"[|,]", names) if isinstance(names, str) else names
    return tuple(name.strip() for name in parts)


def listed(names: Sequence[str], most: int = 60) -> str:
    """Names for a message, which stays short whatever a file holds."""
    rest_text = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(name[:80] for name in names[:most]) + rest_text


@dataclass(frozen=True)
class Records:
    """The records of a file, unchecked, and the SHA-256 of the file as it is stored."""

    file: Path
    digest: str
    records: list[Any]


def beginning(path: Path) -> str:
    """The beginning of a file's text, however long its lines are; empty when unreadable."""
    return start_of(path).decode("utf-8-sig", errors="replace").lstrip()


def read_records(path: Path, key: str = "") -> Records:
    """The records of a JSON file, plain or gzipped.

    The list is under ``key`` (``a.b`` is key ``b`` of the object under ``a``), or the whole
    document. Raises TraceError, with the line, when the file cannot be read, is cut short, or holds
    no such list.
    """
    value, digest = document(path)
    # A key with a point in it, such as `a.b`, stands for itself where the object has it.
    for name in [key] if isinstance(value, dict) and key in value else key.split("."):
        # The key itself may have a point; else it is a path.
        if name:
            if not isinstance(value, dict) or name not in value:
                raise TraceError(f"the JSON document has no key {key!r}", path)
            value = value[name]
    if not isinstance(value, list):
        place = f"under {key!r}" if key else "in the JSON document"
        raise TraceError(f"a list of records is needed {place}, not {type(value).__name__}", path)
    if not value:
        raise TraceError("the list of records is empty", path)
    return Records(path, digest, value)


def lists_of_records(path: Path) -> dict[str, list[Any]]:
    """The lists of objects in a document, by their keys as :func:`read_records` takes them."""
    root, _ = document(path)
    lists: dict[str, list[Any]] = {}
    inside = [("", root)]
    # A loop rather than recursion: a document may be nested deeper than Python's stack.
    while inside:
        key, node = inside.pop()
        if isinstance(node, list) and node and isinstance(node[0], dict):
            lists[key] = node
        elif isinstance(node, dict):
            inside += [(f"{key}.{name}" if key else name, value) for name, value in node.items()]
    if not lists:
        raise TraceError("there is no list of objects in the JSON document", path)
    return lists


@contextmanager
def without_collecting() -> Iterator[None]:
    """The garbage collector held off: what is made of records is no garbage.

    To look through all of it again and again is not linear.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@without_collecting()
def document(path: Path, lines: bool = False) -> tuple[Any, str]:
    """A JSON document, plain or gzipped, and the SHA-256 of the file as it is stored.

    With ``lines`` an object a line is a list of them.
    """
    text, digest = read_text(path)
    text = text.rstrip()
    try:
        # Two objects on two lines are no JSON document; one alone is, and is read as such.
        if lines and re.match(r"\{.*\}\s*\n\s*\{", text):
            return json.loads(
                f"[{','.join(filter(None, map(str.strip, text.split(chr(10)))))}]"
            ), digest
        return json.loads(text), digest
    except json.JSONDecodeError as error:
        problem = f"this is not JSON: {error.msg} at character {error.colno} of the line"
        # An error at the very end means that the text stops, not that it is wrong.
        if error.pos >= len(text) or error.msg.startswith("Unterminated string"):
            problem = "the JSON is cut short; what is missing cannot be known, so get it again"
        raise TraceError(problem, path, error.lineno) from error
    except RecursionError as error:
        raise TraceError("the JSON document is nested too deeply to be a trace", path) from error


class RecordLines(Blocks):
    """The records of a document as lines, an object a line; its row is its place in the list."""

    def __init__(self, path: Path, key: str = ""):
        super().__init__(path)
        self._key, self._whole = key, ""

    def digest(self) -> str:
        # The digest is of the file; the lines made here are stored nowhere.
        return self._whole

    def __iter__(self) -> Iterator[Block]:
        source = read_records(self.path, self._key)
        self._whole, self.stored = source.digest, self.path.stat().st_size
        for start in range(0, len(source.records), RECORDS):
            records = source.records[start : start + RECORDS]
            # json.dumps writes no line feed, so that each record is one line.
            data = "".join(f"{json.dumps(record)}\n" for record in records).encode()
            self.unpacked += len(data)
            yield Block(data, len(records), start + 1, start == 0)


RECORDS = 10_000  # in a block
NOT_UTF8 = "the text is not UTF-8"
NOT_AN_OBJECT = "the line is not a JSON object"
DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
"""Leaves numbers as they are written."""


def fields_of_json(line: str, names: Sequence[str]) -> tuple[list[str], str | None]:
    """The text of each field, and why there are none.

    Field ``b`` of object ``a`` is named ``a.b``. What is absent or null is empty; truth values are
    ``true`` and ``false``; a list or an object is its JSON.

    >>> fields_of_json(
    ...     '{"time": 1e3, "size": {"cpus": "0.5"}, "after": [1, 2], "alloc": true}',
    ...     ["time", "size.cpus", "size.memory", "after", "alloc"],
    ... )
    (['1e3', '0.5', '', '[1,2]', 'true'], None)
    >>> fields_of_json("[1]", ["time"])
    ([''], 'the line is not a JSON object')
    """
    record, problem = _object(line)
    if problem is not None:
        return [""] * len(names), problem
    texts = []
    for name in names:
        value: Any = record
        for field in name.split("."):
            # A path that leads through a list or a text leads nowhere: the field is empty.
            value = value.get(field) if isinstance(value, dict) else None
        texts.append(value if isinstance(value, str) else _text(value, line, name))
    return texts, None


def _object(line: str) -> tuple[dict[str, Any], str | None]:
    if "\ufffd" in line:
        return {}, NOT_UTF8
    if not line.strip():
        return {}, "the line is empty"
    try:
        # Numbers stay texts, since a float would lose digits of long ids and 1e3 would change.
        record = DECODER.decode(line)
        if "\\u" in line:
            json.dumps(record, ensure_ascii=False).encode()  # half a surrogate pair has no bytes
    except UnicodeEncodeError:
        return {}, NOT_UTF8
    except (ValueError, RecursionError):
        return {}, NOT_AN_OBJECT
    return (record, None) if isinstance(record, dict) else ({}, NOT_AN_OBJECT)


def _text(value: Any, line: str, name: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    value = json.loads(line)  # its numbers as numbers
    for field in name.split("."):
        value = value[field]
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
