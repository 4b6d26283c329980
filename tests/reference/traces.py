"""A plain reader of trace files: the csv and json modules, one row at a time, everything in memory.

Returns good rows (line number, then the values of the columns: floats or None, text) and the bad
ones by reason: [how many, the first].
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import tarfile


def unpacked(data):
    """Texts of a file: several for an archive."""
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    if data[257:262] != b"ustar":
        return [data]
    archive = tarfile.open(fileobj=io.BytesIO(data))  # noqa: SIM115 - in memory
    return [archive.extractfile(member).read() for member in archive if member.isfile()]


def number(text):
    """What polars and Python both take for a number, else None."""
    if not text.isascii() or "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def fields_of(line, schema, names, width):
    """Texts by column; or the reason why there are none."""
    if schema.json:
        if "\ufffd" in line:
            return "the text is not UTF-8"
        if not line.strip():
            return "the line is empty"
        try:
            found = json.loads(line, parse_int=str, parse_float=str, parse_constant=str)
        except ValueError:
            return "the line is not a JSON object"
        if not isinstance(found, dict):
            return "the line is not a JSON object"
        texts = {}
        for column in schema.columns:
            value = found
            for key in column.name.split("."):
                value = value.get(key) if isinstance(value, dict) else None
            if isinstance(value, bool):
                value = str(value).lower()
            if isinstance(value, (list, dict)):
                value = json.loads(line)
                for key in column.name.split("."):
                    value = value[key]
                value = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
            texts[column.name] = value or ""
        return texts
    if '"' in line:
        try:
            fields = next(csv.reader([line], delimiter=schema.separator, strict=True))
        except csv.Error:
            return "quotes do not match"
    else:
        fields = line.split(schema.separator)
    if "\ufffd" in line:
        return "the text is not UTF-8"
    if len(fields) == 1 and not fields[0].strip():
        return "the line is empty"
    if len(fields) != width:
        return "the number of fields is not that of the columns"
    return {name: fields[place] for name, place in names.items()}


def reason_of(texts, schema):
    """Why a row is refused, and its values."""
    values = {}
    for column in schema.columns:
        if column.name not in texts:
            continue
        text = texts[column.name].strip()
        if not text and not column.empty:
            return f"{column.name} is empty", None
        if column.number:
            values[column.name] = number(text) if text else None
            if text and values[column.name] is None:
                return f"{column.name} is not a number", None
        else:
            values[column.name] = text
            if text and column.pattern and not re.fullmatch(column.pattern, text):
                return f"{column.name} does not look like one", None
    for column in schema.columns:
        value = values.get(column.name)
        if not column.number or value is None:
            continue
        if not math.isfinite(value):
            return f"{column.name} is not finite", None
        if value < column.least:
            least = "negative" if column.least == 0 else f"less than {column.least:g}"
            return f"{column.name} is {least}", None
        if value > column.most:
            return f"{column.name} is larger than {column.most:g}", None
        if column.whole and value != math.floor(value):
            return f"{column.name} is not a whole number", None
    return None, values


def read(data, schema, check=None):
    """Read the bytes of a file whose first line is known to be good; ``check`` stands for rules."""
    good, bad, seen, line_number = [], {}, set(), 0
    rows = 0
    for text in unpacked(data):
        text = text.decode("utf-8-sig", errors="replace")
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        while lines and not lines[-1].strip(" \t\n\r\x0b\x0c"):
            lines.pop()
        names, width = {c.name: n for n, c in enumerate(schema.columns)}, len(schema.columns)
        for n, line in enumerate(lines):
            line_number += 1
            if n == 0 and schema.header:
                first = [field.strip() for field in line.split(schema.separator)]
                names, width = schema.place(first), len(first)
                continue
            rows += 1
            texts = fields_of(line, schema, names, width)
            why, values = (texts, None) if isinstance(texts, str) else reason_of(texts, schema)
            if why is None and check is not None:
                why = check(values)
            if why is None and schema.unique:
                if values[schema.unique] in seen:
                    why = f"{schema.unique} was used before"
                seen.add(values[schema.unique])
            if why is None:
                good.append((line_number, *values.values()))
            else:
                entry = bad.setdefault(why, [0, line_number])
                entry[0] += 1
    return good, bad, rows
