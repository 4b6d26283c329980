"""Registers the built-in names of ``catalogue.toml``, and finds which docstrings name an equation.

Nothing that a name stands for is imported until it is used.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gangwise.core.errors import UnknownName
from gangwise.core.registry import Entry, enter, register_catalogue


def _register_all() -> None:
    register_catalogue("gangwise")
    # A trace is registered by the first line of its TOML file: "# name: summary".
    for described in (Path(__file__).parent / "logs" / "formats").glob("*.toml"):
        with described.open(encoding="utf-8") as text:
            name, _, summary = text.readline().removeprefix("# ").strip().partition(": ")
        enter("trace", name, Entry(name, f"gangwise.logs.formats.tabular:{name}", summary))


_register_all()


_LABEL = re.compile(r"(OGASched|ESDP|OPS|OPM) (Algorithm \d|§\d(?:\.\d)?|\(P?\d+\)(?:–\(\d+\))?)")


class Place(NamedTuple):
    """A class or function: ``module:name`` below the folder, where it is, its docstring."""

    symbol: str
    file: str
    line: int
    docstring: str


def labels(text: str) -> list[str]:
    """The equations that a text names.

    >>> labels("Scaling, ESDP (18)–(19), for ESDP Algorithm 2.")
    ['ESDP (18)', 'ESDP (19)', 'ESDP Algorithm 2']
    """
    names = []
    for paper, span in _LABEL.findall(" ".join(text.split())):
        low, _, high = span.partition("–")
        numbers = range(int(low[1:-1]), int(high[1:-1]) + 1) if high else ()
        names += [f"{paper} ({i})" for i in numbers] or [f"{paper} {span}"]
    return list(dict.fromkeys(names))


def _documented(
    tree: ast.Module | ast.ClassDef, prefix: str = ""
) -> Iterator[tuple[str, int, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name, node.lineno, ast.get_docstring(node) or ""
        if isinstance(node, ast.ClassDef):
            yield from _documented(node, f"{prefix}{node.name}.")


@cache
def index(folder: Path = Path(__file__).parent) -> dict[str, list[Place]]:
    """Equations, paper by paper, and the code below a folder that implements them."""
    places: dict[str, list[Place]] = {}
    anywhere: dict[str, list[Place]] = {}
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path == Path(__file__) or _LABEL.search(text) is None:
            continue
        module = ".".join(path.relative_to(folder).with_suffix("").parts)
        for name, line, docstring in _documented(ast.parse(text)):
            place = Place(f"{module}:{name}", str(path), line, docstring)
            for label in labels(docstring):
                anywhere.setdefault(label, []).append(place)
            for label in labels(docstring.partition("\n\n")[0]):
                places.setdefault(label, []).append(place)
    return {label: places.get(label, anywhere[label]) for label in sorted(anywhere, key=_order)}


def _order(label: str) -> tuple[str, str, int, str]:
    paper, _, part = label.partition(" ")
    number = re.search(r"\d+", part)
    return (
        paper.replace("OPS", "OPM"),
        re.sub(r"[\d.]+", "", part),
        int(number[0] if number else 0),
        label,
    )


def find(label: str) -> tuple[str, list[Place]]:
    """A label as papers have it, and the code that implements it; case and blanks do not matter.

    Raises UnknownName for a label that no docstring names; says what was probably meant.

    >>> find("ogasched(9)")[1][0].symbol
    'papers.gain_overhead.kernels:gradient'
    """
    plain = {"".join(name.lower().split()): name for name in index()}
    wanted = "".join(label.lower().split())
    if wanted not in plain:
        raise UnknownName("equation", label, list(index()))
    return plain[wanted], index()[plain[wanted]]
