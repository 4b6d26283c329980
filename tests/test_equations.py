"""The index of equations: what the papers have and the code implements, each with a test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from docs.equations import page
from typer.testing import CliRunner

from gangwise.catalogue import find, index
from gangwise.cli import app
from gangwise.core.errors import UnknownName

TESTS = Path(__file__).parent


def test_every_equation_that_code_implements_has_a_test_that_names_it():
    untested = [l for l in index() if "§" not in l and l not in index(TESTS)]
    assert untested == []


def test_the_equations_that_policies_are_made_of_are_there():
    """Numbered equations of the papers, but for those that only a proof needs."""
    numbers = {
        paper: {l for l in index() if l.startswith(f"{paper} (")} for paper in ("OGASched", "ESDP")
    }
    wanted = {f"OGASched ({n})" for n in (*range(1, 15), 22, 24, 25, 26, 27)}
    assert numbers["OGASched"] == wanted
    assert numbers["ESDP"] == {f"ESDP ({n})" for n in (*range(1, 13), 14, *range(16, 28))}


def test_the_page_is_what_docstrings_say():
    written = (TESTS.parent / "docs" / "equations.md").read_text(encoding="utf-8")
    assert written == page(), "run python docs/equations.py"


def test_a_wrong_label_is_answered_with_the_closest():
    with pytest.raises(UnknownName, match=r"OGASched \(9\)"):
        find("OGASched 9)")


def test_show_prints_where_it_is_and_what_it_says():
    shown = CliRunner().invoke(app, ["show", "OGASched (9)"]).output
    assert "papers/gain_overhead/policies.py:" in shown
    assert "Gradient ∇q of OGASched (9)" in shown
    assert "papers.gain_overhead.kernels:gradient" in shown
    asked = json.loads(CliRunner().invoke(app, ["show", "esdp (27)", "--json"]).output)
    assert asked["label"] == "ESDP (27)"
    code = {place["symbol"]: place for place in asked["code"]}
    assert code["papers.fluctuating_speeds.solver:tabulate"]["line"] > 1
