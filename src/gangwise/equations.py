"""The index of the papers' equations, read from ``equations.toml``, and where their code is.

``gangwise show "OGASched (9)"`` prints an entry with the docstring of its code; the page
*Equations* of the documentation lists them all.
"""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from gangwise.core.errors import UnknownName


class Equation(NamedTuple):
    """One entry.

    Attributes
    ----------
    label : str
        Paper and number, such as ``OGASched (9)``, ``ESDP §3.4`` or ``ESDP Algorithm 2``.
    name : str
        What it is called.
    symbol : str
        ``module:attribute`` below ``gangwise`` that implements it.
    kernel : str
        The inner loop that does the work, empty where the symbol does it itself.
    test : str
        File and function below ``tests``.
    """

    label: str
    name: str
    symbol: str
    kernel: str
    test: str


EQUATIONS = tuple(
    Equation(label, row["name"], row["symbol"], row.get("kernel", ""), row["test"])
    for label, row in tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    ).items()
)
"""All rows of ``equations.toml``, paper by paper."""


def find(label: str) -> Equation:
    """The entry of a label; case and blanks do not matter.

    Raises
    ------
    UnknownName
        For a label that is not in the table; says what was probably meant.

    Examples
    --------
    >>> find("ogasched(9)").symbol
    'gain_overhead.ascent:Ascent.slope'
    """
    plain = {"".join(entry.label.lower().split()): entry for entry in EQUATIONS}
    wanted = "".join(label.lower().split())
    if wanted not in plain:
        raise UnknownName("equation", label, [entry.label for entry in EQUATIONS])
    return plain[wanted]


class Place(NamedTuple):
    """Where a symbol is, and what it says of itself."""

    symbol: str
    file: str
    line: int
    docstring: str


def locate(where: str) -> Place:
    """Find ``module:attribute``, below ``gangwise``.

    Examples
    --------
    >>> locate("core.workload:BernoulliArrivals").docstring.splitlines()[0]
    'At most one job of each type in a slot, with probability ``probability[l]`` (OGASched (1)).'
    """
    module, _, attribute = where.partition(":")
    found: Any = importlib.import_module(f"gangwise.{module}")
    for part in attribute.split("."):
        found = getattr(found, part)
    if isinstance(found, property):
        found = found.fget
    # A kernel is a compiled object, a cached property an object of its own: both know the function.
    for wrapped in ("py_func", "func"):
        found = getattr(found, wrapped, found)
    line = inspect.getsourcelines(found)[1]
    file = inspect.getsourcefile(found) or ""
    return Place(where, file, line, inspect.getdoc(found) or "")


def mentions(text: str, label: str) -> bool:
    """Whether a text says a label, by itself or within a range.

    Examples
    --------
    >>> mentions("Scaling, ESDP (16)–(19).", "ESDP (18)"), mentions("ESDP (1)", "ESDP (11)")
    (True, False)
    """
    if label in text:
        return True
    paper, _, number = label.partition(" (")
    ranges = re.findall(rf"{re.escape(paper)} \((\d+)\)–\((\d+)\)", text)
    return number[:-1].isdigit() and any(int(a) <= int(number[:-1]) <= int(b) for a, b in ranges)


def markdown() -> str:
    """The table as a page of the documentation."""
    lines = [
        "# Equations",
        "",
        "Which symbol implements an equation, in which inner loop, and what tests it; "
        '`gangwise show "OGASched (9)"` prints the same. Written by `python docs/equations.py`.',
        "",
        "| equation | what | symbol | inner loop | test |",
        "|---|---|---|---|---|",
    ]
    for entry in EQUATIONS:
        kernel = f"`{entry.kernel}`" if entry.kernel else ""
        lines.append(
            f"| {entry.label} | {entry.name} | `{entry.symbol}` | {kernel} | `tests/{entry.test}` |"
        )
    return "\n".join(lines) + "\n"
