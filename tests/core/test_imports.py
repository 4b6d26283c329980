"""No module of the package imports, however far around, one that imports it; names are there."""

from __future__ import annotations

import ast
import importlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangwise.moved import MOVED

SOURCE = Path(__file__).parents[2] / "src" / "gangwise"


def module_name(path: Path) -> str:
    parts = ("gangwise", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(node: ast.AST, modules: dict[str, Path]) -> Iterator[str]:
    """Everything imported below a node, in functions and for type checkers, too.

    Two modules of which each names the types of the other cannot be read one after the other.
    """
    for child in ast.walk(node):
        if isinstance(child, ast.Import):
            yield from (name.name for name in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            for name in child.names:
                whole = f"{child.module}.{name.name}"
                yield whole if whole in modules else child.module


def packages_of(module: str) -> set[str]:
    """The packages around a module, and the module itself, which may be one.

    >>> sorted(packages_of("gangwise.jobs.books"))
    ['gangwise', 'gangwise.jobs', 'gangwise.jobs.books']
    """
    parts = module.split(".")
    return {".".join(parts[: i + 1]) for i in range(len(parts))}


def import_graph(modules: dict[str, Path]) -> dict[str, set[str]]:
    graph = {}
    for name, path in modules.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if path.name == "__init__.py":  # what a package names for type checkers, it loads on use
            tree.body = [part for part in tree.body if not isinstance(part, ast.If)]
        direct = set(imported(tree, modules))
        # A module of another package comes after all that this package loads by itself.
        around = {above for module in direct for above in packages_of(module)}
        graph[name] = ((direct | around - packages_of(name)) & modules.keys()) - {name, "gangwise"}
    return graph


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Strongly connected components of two modules or more."""

    def reach(start: str) -> set[str]:
        seen, open_ = set(), [start]
        while open_:
            for target in graph[open_.pop()] - seen:
                seen.add(target)
                open_.append(target)
        return seen

    reached = {name: reach(name) for name in graph}
    return {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in graph
        if name in reached[name]
    }


def test_a_circle_is_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert circles(graph) == {frozenset("abc")}


def test_an_import_for_type_checkers_is_one():
    text = "if TYPE_CHECKING:\n    from gangwise.a import B\ndef f():\n    import gangwise.c"
    assert set(imported(ast.parse(text), {})) == {"gangwise.a", "gangwise.c"}


def test_there_are_no_import_circles():
    modules = {module_name(path): path for path in SOURCE.rglob("*.py")}
    assert len(modules) > 50
    assert [sorted(circle) for circle in circles(import_graph(modules))] == []


@pytest.mark.parametrize("old", sorted(MOVED))
def test_an_old_path_gives_the_module_from_its_new_place(old: str) -> None:
    sys.modules.pop(f"gangwise.{old}", None)
    with warnings.catch_warnings(record=True) as warned:  # of the packages above it as well
        warnings.simplefilter("always")
        module = importlib.import_module(f"gangwise.{old}")
    assert any(f"gangwise.{MOVED[old]} " in str(warning.message) for warning in warned)
    assert module is importlib.import_module(f"gangwise.{MOVED[old]}")
    assert module.__spec__ is not None
    assert module.__spec__.name == f"gangwise.{MOVED[old]}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("papers.gain_overhead", "papers.gain_overhead.policies:DRF"),
        ("papers.fluctuating_speeds", "papers.fluctuating_speeds.problem:BetaSpeeds"),
        ("papers.approximation_jobs", "papers.approximation_jobs.problem:PoissonJobs"),
        ("papers.gangs", "papers.gangs.problem:GangProblem"),
    ],
)
def test_a_name_that_a_package_passed_on_is_given_with_a_warning(old: str, new: str) -> None:
    path, _, name = new.partition(":")
    package = importlib.import_module(f"gangwise.{old}")
    with pytest.warns(DeprecationWarning, match=path):
        found = getattr(package, name)
    assert found is getattr(importlib.import_module(f"gangwise.{path}"), name)
    assert not hasattr(package, "nothing")


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "docs"])
@pytest.mark.filterwarnings("ignore")
def test_each_name_that_is_imported_is_there(folder: str) -> None:
    """Also where a function imports it: one that runs only beside a real engine shows it late."""
    absent = []
    for path in sorted((SOURCE.parents[1] / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            origin = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            if not isinstance(node, ast.ImportFrom) or origin.partition(".")[0] != "gangwise":
                continue
            module = importlib.import_module(origin)
            for name in node.names:
                if not hasattr(module, name.name):
                    try:
                        importlib.import_module(f"{origin}.{name.name}")
                    except ImportError:
                        absent.append(f"{path.name}:{node.lineno}: {origin}.{name.name}")
    assert not absent
