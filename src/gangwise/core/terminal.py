r"""Text of strangers on a terminal: names of jobs, users, nodes and files, reasons, comments.

A terminal acts on control characters: it moves, clears, colours, and changes the direction of what
follows. So each of them is shown as Python would write it (``\x1b``), as is what is no UTF-8.
Commands print by :func:`gangwise.cli.options.echo`, ``say`` and ``screen``, which all come here.
"""

from __future__ import annotations

import re
from typing import Any

_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # line separators, directions of writing
    "\ud800-\udfff]"  # halves of surrogates: bytes of a name that are no UTF-8
)


def shown(text: str) -> str:
    r"""Text as a terminal may have it; tabs and ends of lines stay.

    >>> print(shown("see [/ticket] 5\x1b[2J\x9b2J"))
    see [/ticket] 5\x1b[2J\x9b2J
    """
    return _ACTS.sub(_escaped, text) if _ACTS.search(text) else text


def one_line(value: Any) -> Any:
    r"""What others wrote, at any depth of lists and tables, as :func:`shown` and without new lines.

    >>> one_line({"why": ["no\nroom", 7]})
    {'why': ['no\\nroom', 7]}
    """
    if isinstance(value, str):
        return shown(value).replace("\n", "\\n")
    if isinstance(value, dict):
        return {one_line(key): one_line(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [one_line(item) for item in value]
    return value


def json_shown(text: str) -> str:
    r"""JSON in which every such character is escaped, as JSON writes it: the same values.

    >>> print(json_shown('"\x9b2J"'))
    "\u009b2J"
    """
    return _ACTS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
