"""Where long names may be broken over lines."""

from __future__ import annotations

import re
from html import escape


def pieces(name: str) -> list[str]:
    """A name cut after its separators.

    >>> pieces("ogasched-react:steps=3")
    ['ogasched-', 'react:', 'steps=', '3']
    """
    return re.findall(r"[^-_:,=\s]+[-_:,=\s]*|[-_:,=\s]+", name)


def folded(name: str, width: int) -> str:
    """A name broken into lines of a width where its separators allow; existing lines are kept.

    >>> folded("ogasched-reserve-leftover", 17).splitlines()
    ['ogasched-reserve-', 'leftover']
    """
    lines = []
    for part in name.split("\n"):
        lines.append("")
        for piece in pieces(part):
            if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def html_name(name: str) -> str:
    """A name, escaped, that may be broken after its separators.

    >>> html_name("a-b")
    'a-<wbr>b'
    """
    return "<wbr>".join(escape(piece) for piece in pieces(name))
