"""The text of a trace file: unpacked, decoded, split into lines, and recognised by its header.

Quantities as people write them: ``16Gi``, ``500m``, ``1-02:03:04``, and units with names.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import polars as pl

from gangwise.core.errors import TraceError
from gangwise.traces.io.blocks import Blocks

if TYPE_CHECKING:
    from gangwise.traces.io.schema import Schema


SUFFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3}
SUFFIXES |= {unit: float(1000**n) for n, unit in enumerate("KMGTPE", 1)}
SUFFIXES |= {f"{unit}i": float(1024**n) for n, unit in enumerate("KMGTPE", 1)}
"""Of Kubernetes' quantities: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""
UNITS = {"bytes": 2.0**-30}
UNITS |= {f"{unit}B": 1000**n / 2.0**30 for n, unit in enumerate("KMGT", 1)}
UNITS |= {f"{unit}iB": 1024**n / 2.0**30 for n, unit in enumerate("KMGT", 1)}
UNITS |= {"milli": 1e-3, "percent": 1e-2, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
UNITS |= {"minutes": 60.0, "hours": 3600.0, "days": 86400.0}
"""In GiB, seconds, and ones."""
QUANTITY = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+|[KMGTPE]i|[numkKMGTPE])?"
CLOCK = r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)"


def quantity(text: pl.Expr) -> pl.Expr:
    """The numbers of quantities; null of what is none. Memory is then in bytes.

    >>> frame = pl.DataFrame({"q": ["500m", "16Gi", "2", "1e3", "1.5G", "many", "12E"]})
    >>> frame.select(quantity(pl.col("q")))["q"].to_list()
    [0.5, 17179869184.0, 2.0, 1000.0, 1500000000.0, None, 1.2e+19]
    """
    fits = text.str.contains(f"^(?:{QUANTITY})$")
    number = text.str.extract(r"^([+-]?[\d.]+(?:[eE][+-]?\d+)?)", 1).cast(pl.Float64, strict=False)
    unit = text.str.extract(r"([KMGTPE]i|[numkKMGTPE])$", 1).fill_null("")
    factor = unit.replace_strict(SUFFIXES, default=1.0, return_dtype=pl.Float64)
    return pl.when(fits).then(number * factor)


def clock(text: pl.Expr) -> pl.Expr:
    """Seconds of ``[[D-]H:]MM:SS``; null of what is none.

    >>> frame = pl.DataFrame({"t": ["1-02:03:04", "02:03:04", "03:04", "90"]})
    >>> frame.select(clock(pl.col("t"))).to_series().to_list()
    [93784.0, 7384.0, 184.0, None]
    """
    parts = text.str.extract_groups(f"^(?:{CLOCK})$").struct
    days, hours, minutes, rest = (parts.field(str(n)).cast(pl.Float64) for n in range(1, 5))
    return 86400 * days.fill_null(0) + 3600 * hours.fill_null(0) + 60 * minutes + rest


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
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def split_line(line: str, separator: str = ",") -> list[str] | None:
    """Fields of one line; None when its quotes do not match.

    >>> split_line('a,"b,c"'), split_line('a,"b')
    (['a', 'b,c'], None)
    """
    if '"' not in line:
        return line.split(separator)
    try:
        return next(csv.reader([line], delimiter=separator, strict=True))
    except csv.Error:
        return None


def named(names: Sequence[str] | str) -> tuple[str, ...]:
    """Names that were given as such, or in one text, separated by bars or commas.

    >>> named("Terminated|Failed"), named(("Running",))
    (('Terminated', 'Failed'), ('Running',))
    """
    given = re.split(r"[|,]", names) if isinstance(names, str) else names
    return tuple(name.strip() for name in given)


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
        folded = {s.lower().replace(" ", "_"): s for s in spare}
        close = get_close_matches(name, list(folded), n=1, cutoff=0.6)
        hints.append(f"{name!r}" + (f" (did you mean {folded[close[0]]!r}?)" if close else ""))
    what = "column" if len(missing) == 1 else "columns"
    raise TraceError(f"the {schema.name} needs {what} {', '.join(hints)}: {listing}", path, 1)


def listed(names: Sequence[str], most: int = 60) -> str:
    """Names for a message, which stays short whatever a file holds."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(name[:80] for name in names[:most]) + more


def toml_text(held: Any) -> str:
    """A text, number, truth value, list or table as TOML writes it, in one line.

    >>> toml_text("a/b"), toml_text((1, 2.5)), toml_text({"scale": 2, "on": True})
    ('"a/b"', '[1, 2.5]', '{ scale = 2, on = true }')
    """
    if isinstance(held, dict):
        return "{ " + ", ".join(f"{key} = {toml_text(value)}" for key, value in held.items()) + " }"
    return json.dumps(held, ensure_ascii=False)


def _number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
