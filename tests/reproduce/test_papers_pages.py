"""What the pages about the papers say in their tables is what is committed, and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from gangwise.experiments.statistics import Estimate
from gangwise.report.pages import VERDICTS, ClaimResult
from gangwise.reproduce import OWN, PAPERS, artefacts, expected
from gangwise.reproduce.expected import markdown

PAGES = Path(__file__).parents[2] / "docs" / "papers"


@pytest.fixture(scope="module")
def filling():
    spec = spec_from_file_location("filling", PAGES / "fill.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read(name):
    return (PAGES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("paper", PAPERS)
def test_every_artefact_of_a_paper_is_on_a_page(paper):
    name = f"{paper}-appendix.md" if paper in OWN else f"{paper}.md"
    tables = re.findall(r"<!-- table (\S+) -->", _read(name))
    assert sorted(tables) == sorted(a.name for a in artefacts(paper))


@pytest.mark.full
def test_pages_show_the_committed_results(filling):
    for name in (*filling.PAGES, "what-changed.md"):
        page = _read(name)
        assert page == filling.filled(name), "run python docs/papers/fill.py"
        assert "No results" not in page


@pytest.mark.parametrize("paper", OWN)
def test_a_page_has_ten_claims_with_a_word_and_a_picture_each(paper, filling):
    page = _read(f"{paper}.md")
    words = re.findall(r"^### \d+\. .*\.? \*([\w ]+)\.\*$", page, flags=re.MULTILINE)
    assert len(words) == len(filling.headlines(paper)) == page.count("<svg ") == 10
    assert {word.lower() for word in words} <= set(VERDICTS)
    for svg in re.findall(r"<svg.*?</svg>", page):
        marks = [float(x) for x in re.findall(r'cx="([^"]*)"', svg)]
        assert marks
        assert all(filling.LABEL <= x <= filling.WIDTH for x in marks)


@pytest.mark.parametrize("paper", OWN)
def test_a_number_in_the_text_of_a_page_is_in_one_of_its_tables(paper):
    lines = (_read(f"{paper}.md") + _read(f"{paper}-appendix.md")).splitlines()
    text, tables = ("\n".join(x for x in lines if x.startswith("|") is t) for t in (False, True))
    text = re.sub(r"<svg.*?</svg>", "", text)
    quoted = re.findall(r"−?[\d,.]*\d ± [\d,.]*\d", text)
    assert quoted
    assert [number for number in quoted if number not in tables] == []


@pytest.mark.parametrize("paper", PAPERS)
def test_no_two_claims_of_an_artefact_say_the_same(paper):
    for artefact in artefacts(paper):
        said = [claim.says for claim in artefact.claims]
        assert len(said) == len(set(said))


@pytest.mark.parametrize("quick", [True, False])
def test_every_committed_result_belongs_to_a_claim(quick):
    rows = [row for paper in PAPERS for row in expected.rows(artefacts(paper), quick)]
    assert {row.id for row in rows} == expected.read(quick).keys()


LEAD = ClaimResult(
    *("esdp", "figure-2", "a|b, %", "as printed", 73.0, Estimate(5.0, 3.9, 6.1)),
    *("reproduced", "x; y", "", False),
)
ROWS = [
    LEAD,
    replace(LEAD, version="esdp", ours=Estimate(70.0, 60.0, 80.0), why="y; z", agrees=True),
    ClaimResult(
        "esdp", "figure-3", "slope", "esdp", "grows", Estimate(1.0, -1.0, 3.0), "not tested", ""
    ),
]
TABLE = """| claim | the paper | ours; ✓ agrees | |
|---|---|---|---|
| a\\|b, % | 73 | as printed: 5.0 ± 1.1<br>esdp: 70 ± 10 ✓ | *reproduced* |

1 claim: 1 reproduced, 0 not reproduced, 0 underdetermined, 0 not tested.

Why: x; y.
"""


def test_a_table_has_a_row_for_each_claim():
    assert markdown(ROWS[:2]) == f"## esdp figure-2\n\n{TABLE}"
    assert "## esdp figure-3" in markdown(ROWS)
