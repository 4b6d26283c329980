"""A line that is a JSON object, as the texts of its fields: as if they stood in a CSV file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

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
    """The text of a value that is not text itself."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    value = json.loads(line)  # its numbers as numbers
    for field in name.split("."):
        value = value[field]
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
