"""Traces in JSON: one document with a list of records, or an object a line.

A document is read whole, so it must fit into memory. A record's row is its place in the list,
counted from 1: unlike a line of a CSV file, a record may span many lines or none of its own. A line
that is an object is read as the texts of its fields, as if they stood in a CSV file.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangwise.core.errors import TraceError
from gangwise.traces.io.blocks import Block, Blocks
from gangwise.traces.io.text import read_text, start_of


@dataclass(frozen=True)
class Records:
    """The records of a file, unchecked, and the SHA-256 of the file as it is stored."""

    file: Path
    digest: str
    records: list[Any]


def beginning(path: Path) -> str:
    """How the text of a file begins, however long its lines are; empty when unreadable."""
    return start_of(path).decode("utf-8-sig", errors="replace").lstrip()


def read_records(path: Path, key: str = "") -> Records:
    """The records of a JSON file, plain or gzipped.

    The list is under ``key`` (``a.b`` is key ``b`` of the object under ``a``), or the whole
    document. Raises TraceError, with the line, when the file cannot be read, is cut short, or holds
    no such list.
    """
    found, digest = document(path)
    for name in [key] if isinstance(found, dict) and key in found else key.split("."):
        if name:
            if not isinstance(found, dict) or name not in found:
                raise TraceError(f"the JSON document has no key {key!r}", path)
            found = found[name]
    if not isinstance(found, list):
        where = f"under {key!r}" if key else "in the JSON document"
        raise TraceError(f"a list of records is needed {where}, not {type(found).__name__}", path)
    if not found:
        raise TraceError("the list of records is empty", path)
    return Records(path, digest, found)


def key_of_records(path: Path) -> str:
    """Where the longest list of objects of a document is, as ``key`` of :func:`read_records`."""
    found, _ = document(path)
    lists: dict[str, int] = {}
    inside = [("", found)]
    while inside:
        key, held = inside.pop()
        if isinstance(held, list) and held and isinstance(held[0], dict):
            lists[key] = len(held)
        elif isinstance(held, dict):
            inside += [(f"{key}.{name}" if key else name, value) for name, value in held.items()]
    if not lists:
        raise TraceError("there is no list of objects in the JSON document", path)
    return max(lists, key=lambda key: lists[key])


def document(path: Path) -> tuple[Any, str]:
    """A JSON document, plain or gzipped, and the SHA-256 of the file as it is stored."""
    text, digest = read_text(path)
    text = text.rstrip()
    collecting = gc.isenabled()
    gc.disable()  # nothing made here is garbage; looking for it again and again is not linear
    try:
        return json.loads(text), digest
    except json.JSONDecodeError as error:
        what = f"this is not JSON: {error.msg} at character {error.colno} of the line"
        if error.pos >= len(text) or error.msg.startswith("Unterminated string"):
            what = "the JSON is cut short; what is missing cannot be known, so get it again"
        raise TraceError(what, path, error.lineno) from error
    except RecursionError as error:
        raise TraceError("the JSON document is nested too deeply to be a trace", path) from error
    finally:
        if collecting:
            gc.enable()


class RecordLines(Blocks):
    """The records of a document as lines, an object a line; its row is its place in the list."""

    def __init__(self, path: Path, key: str = ""):
        super().__init__(path)
        self._key, self._whole = key, ""

    def digest(self) -> str:
        return self._whole

    def __iter__(self) -> Iterator[Block]:
        found = read_records(self.path, self._key)
        self._whole, self.stored = found.digest, self.path.stat().st_size
        for first in range(0, len(found.records), RECORDS):
            some = found.records[first : first + RECORDS]
            data = "".join(f"{json.dumps(record)}\n" for record in some).encode()
            self.unpacked += len(data)
            yield Block(data, len(some), first + 1, first == 0)


RECORDS = 10_000  # of a block
NOT_UTF8 = "the text is not UTF-8"
NOT_AN_OBJECT = "the line is not a JSON object"
DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
"""Leaves numbers as they are written."""


def texts_of(line: str, names: Sequence[str]) -> tuple[list[str], str | None]:
    """The text of each field, and why there are none.

    Field ``b`` of object ``a`` is named ``a.b``. What is absent or null is empty; truth values are
    ``true`` and ``false``; a list or an object is its JSON.

    >>> texts_of(
    ...     '{"time": 1e3, "size": {"cpus": "0.5"}, "after": [1, 2], "alloc": true}',
    ...     ["time", "size.cpus", "size.memory", "after", "alloc"],
    ... )
    (['1e3', '0.5', '', '[1,2]', 'true'], None)
    >>> texts_of("[1]", ["time"])
    ([''], 'the line is not a JSON object')
    """
    found, why = _object(line)
    if why is not None:
        return [""] * len(names), why
    texts = []
    for name in names:
        value: Any = found
        for field in name.split("."):
            value = value.get(field) if isinstance(value, dict) else None
        texts.append(value if isinstance(value, str) else _text(value, line, name))
    return texts, None


def _object(line: str) -> tuple[dict[str, Any], str | None]:
    if "\ufffd" in line:
        return {}, NOT_UTF8
    if not line.strip():
        return {}, "the line is empty"
    try:
        found = DECODER.decode(line)
        if "\\u" in line:
            json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair has no bytes
    except UnicodeEncodeError:
        return {}, NOT_UTF8
    except (ValueError, RecursionError):
        return {}, NOT_AN_OBJECT
    return (found, None) if isinstance(found, dict) else ({}, NOT_AN_OBJECT)


def _text(value: Any, line: str, name: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    value = json.loads(line)  # its numbers as numbers
    for field in name.split("."):
        value = value[field]
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
