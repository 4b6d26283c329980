from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import gangwise
from gangwise import ScenarioError, UnknownName
from gangwise.core import errors
from gangwise.core.registry import GROUPS, create, entries, parse, register
from gangwise.papers.gain_overhead.policies import Fairness


def test_specifications():
    assert parse("drf") == ("drf", {})
    assert parse("a:x=1, y=2.5,z=log") == ("a", {"x": 1, "y": 2.5, "z": "log"})
    with pytest.raises(ScenarioError, match="name:key=value"):
        parse("drf:nonsense")


def test_unknown_names_say_what_was_probably_meant():
    with pytest.raises(UnknownName, match="fairness"):
        create("policy", "fairnes")
    with pytest.raises(UnknownName, match="ogasched-default-v1"):
        create("scenario", "ogasched-default")
    with pytest.raises(UnknownName, match="gangwise replay"):
        create("scenario", "sjf+easy")
    with pytest.raises(UnknownName, match="--policies"):
        create("scenario", "drf")
    with pytest.raises(UnknownName, match=r"no policy named 'zzz'\. Known: .*drf"):
        create("policy", "zzz")
    with pytest.raises(UnknownName, match="contention"):
        create("scenario", "ogasched-default-v1:contension=1")


@pytest.mark.parametrize("text", ["plan:keep=nan", "ogasched-react:steps=many", "esdp:kappa=much"])
def test_a_word_where_a_number_belongs_is_named(text):
    argument, word = text.split(":")[1].split("=")
    with pytest.raises(ScenarioError, match=f"{argument} of policy .* is '{word}'.* a number"):
        create("policy", text)


@pytest.mark.parametrize("text", ["fairness:share=3", "esdp:g=3", "cucb:memory=3"])
def test_a_number_where_a_word_belongs_is_named(text):
    with pytest.raises((UnknownName, ScenarioError), match="3"):
        create("policy", text)


def test_a_taken_name_is_refused():
    register("policy", "mine-too", Fairness)
    register("policy", "mine-too", Fairness)  # the same again changes nothing
    with pytest.raises(ScenarioError, match="taken"):
        register("policy", "mine-too", dict)


@pytest.mark.parametrize("kind", GROUPS)
def test_every_entry_loads_and_is_described(kind):
    for name, entry in entries(kind).items():
        assert callable(entry.load()), name
        if isinstance(entry.target, str):  # tests register classes of their own
            assert entry.summary, name


def test_public_names_import_and_are_listed_once():
    assert len(set(gangwise.__all__)) == len(gangwise.__all__)
    for name in gangwise.__all__:
        assert getattr(gangwise, name) is not None
    tree = ast.parse(Path(gangwise.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    names = [alias.name for line in block.body for alias in line.names]
    assert {*names, "__version__", "create_policy", "create_scenario"} == set(gangwise.__all__)
    with pytest.raises(AttributeError):
        gangwise.nothing  # noqa: B018 - the access is the test
    with pytest.raises(AttributeError):
        gangwise.create  # noqa: B018 - a name that functions of the package import


def test_listed_names_of_every_module_exist():
    root = Path(gangwise.__file__).parent
    for path in root.rglob("*.py"):
        module = ".".join(("gangwise", *path.relative_to(root).with_suffix("").parts))
        loaded = importlib.import_module(module.removesuffix(".__init__"))
        for name in getattr(loaded, "__all__", []):
            assert hasattr(loaded, name), f"{module}.{name}"


def test_the_error_tree_is_drawn_as_it_is():
    found = [
        name
        for name, each in vars(errors).items()
        if isinstance(each, type) and each.__module__ == errors.__name__
    ]
    assert len(found) > 5
    for name in found:
        assert name in (errors.__doc__ or "")
        assert issubclass(getattr(errors, name), errors.GangwiseError)


@pytest.mark.parametrize(
    ("folder", "allowed"), [("core", ("core",)), ("estimators", ("estimators", "core"))]
)
def test_what_families_share_imports_nothing_of_them(folder, allowed):
    for path in (Path(gangwise.__file__).parent / folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gangwise."):
                assert node.module.split(".")[1] in allowed, (path.name, node.module)


def test_heavy_libraries_are_imported_late():
    code = (
        "import sys, gangwise, gangwise.cli; "
        "print([m for m in ('numba', 'polars', 'matplotlib', 'highspy', 'scipy', 'numpy') "
        "if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
