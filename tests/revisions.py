"""Digests of the code behind every built-in: a reminder to raise its revision when results change.

Runs are keyed by registered name and revision, and nothing raises a revision by itself. A digest is
that of the syntax tree of what a name stands for, and of all in its own package that this refers to
by name, directly or not; docstrings, annotations, comments, layout and what is said when something
is raised are no part of it.

``python -m tests.revisions`` records the digests of today in ``revisions.json``.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import gangwise
from gangwise.core.registry import Kind, entries

TABLE = Path(__file__).parent / "revisions.json"
SOURCES = Path(gangwise.__file__).parents[1]
KINDS: tuple[Kind, ...] = ("policy", "scheduler", "scenario", "comparator")
SILENT = {"annotation", "returns", "ctx", "type_comment", "type_params", "kind", "lineno"}

Names = dict[str, tuple[str, ast.AST | str]]
"""What a module has under each name: where it is defined, and its tree; "" for a whole module."""


def recorded() -> dict[str, dict[str, list[object]]]:
    """Kind → name → revision and digest, as they were recorded."""
    found: dict[str, dict[str, list[object]]] = json.loads(TABLE.read_text())
    return found


def current() -> dict[str, dict[str, list[object]]]:
    """The same of the code as it is."""
    return {
        kind: {
            place: [entry.revision, digest(entry.target, entry.preset)]
            for place, entry in entries(kind).items()
            if entry.built_in and isinstance(entry.target, str)
        }
        for kind in KINDS
    }


def digest(target: str, preset: Mapping[str, object] | None = None) -> str:
    """Of ``module:attribute`` with the arguments that the name stands for."""
    module, _, name = target.partition(":")
    package, seen = ".".join(module.split(".")[:2]), dict[tuple[str, str], str]()
    waiting = [(module, name)]
    while waiting:
        place = waiting.pop()
        if place not in seen and place[0].startswith(package):
            seen[place], refers_to = piece(*place)
            waiting += refers_to
    text = repr((sorted(seen.values()), sorted((preset or {}).items())))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def piece(module: str, name: str) -> tuple[str, list[tuple[str, str]]]:
    """The text of what a module has under a name, and what that refers to: modules and names."""
    where, tree = names(module).get(name, ("", ""))
    if isinstance(tree, str):
        return "", [(where, name)] if where not in ("", module) else []
    used = [(module, each.id) for each in ast.walk(tree) if isinstance(each, ast.Name)]
    for each in ast.walk(tree):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            used.append((names(module).get(each.value.id, ("", ""))[0], each.attr))  # kernels.fits
    return "".join(told(tree)), list(dict.fromkeys(used))


@cache
def names(module: str) -> Names:
    """What stands at the top of a module."""
    path = SOURCES.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    found: Names = {}
    for statement in ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else ():
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            found[statement.name] = (module, statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                found |= {
                    n.id: (module, statement) for n in ast.walk(target) if isinstance(n, ast.Name)
                }
        elif isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(
            "gangwise"
        ):
            for alias in statement.names:
                inner = f"{statement.module}.{alias.name}"
                whole = SOURCES.joinpath(*inner.split(".")).with_suffix(".py").exists()
                found[alias.asname or alias.name] = (inner if whole else str(statement.module), "")
    return found


def told(tree: ast.AST) -> Iterator[str]:
    """A syntax tree as text, the same in every version of Python."""
    if isinstance(tree, ast.Raise):
        return
    yield f"({type(tree).__name__}"
    for name, value in ast.iter_fields(tree):
        if name in SILENT:
            continue
        for each in value if isinstance(value, list) else [value]:
            said = isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
            if isinstance(each, ast.AST) and not said:
                yield from told(each)
            elif not isinstance(each, ast.AST) and each is not None:
                yield f" {name}={each!r}"
    yield ")"


if __name__ == "__main__":
    TABLE.write_text(json.dumps(current(), indent=1) + "\n")
    print(f"recorded {sum(map(len, current().values()))} digests in {TABLE}")
