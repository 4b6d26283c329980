"""The table of equations says what is there."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.core.errors import UnknownName
from gangwise.equations import EQUATIONS, find, locate, markdown, mentions

TESTS = Path(__file__).parent


@pytest.mark.parametrize("entry", EQUATIONS, ids=lambda entry: entry.label)
def test_symbol_and_kernel_exist_and_say_the_label(entry):
    assert mentions(locate(entry.symbol).docstring, entry.label)
    if entry.kernel:
        assert mentions(locate(entry.kernel).docstring, entry.label)


@pytest.mark.parametrize("entry", EQUATIONS, ids=lambda entry: entry.label)
def test_test_exists(entry):
    file, _, name = entry.test.partition("::")
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_labels_are_unique():
    assert len({entry.label for entry in EQUATIONS}) == len(EQUATIONS)


def test_the_page_is_the_table():
    page = (TESTS.parent / "docs" / "equations.md").read_text(encoding="utf-8")
    assert page == markdown(), "run python docs/equations.py"


def test_a_wrong_label_is_answered_with_the_closest():
    with pytest.raises(UnknownName, match=r"OGASched \(9\)"):
        find("OGASched 9)")


def test_show_prints_where_it_is_and_what_it_says():
    shown = CliRunner().invoke(app, ["show", "OGASched (9)"]).output
    assert "gain_overhead/ascent.py:" in shown
    assert "Gradient ∇q of OGASched (9)" in shown
    assert "gain_overhead.kernels:gradient" in shown
    asked = json.loads(CliRunner().invoke(app, ["show", "esdp (27)", "--json"]).output)
    assert asked["label"] == "ESDP (27)"
    assert asked["kernel"]["symbol"] == "fluctuating_speeds.solvers.programme:tabulate"
    assert asked["kernel"]["line"] > 1
