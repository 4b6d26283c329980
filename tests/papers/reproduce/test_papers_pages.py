"""What the pages about the papers say in their tables is what is committed, and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from gangwise.papers.reproduce import OWN, PAPERS, artefacts, expected
from gangwise.papers.reproduce.expected import markdown
from gangwise.report.pages import ClaimResult
from gangwise.study.statistics import Estimate, estimate_text

PAGES = Path(__file__).parents[3] / "docs" / "papers"
FULL = expected.read(quick=False)


@pytest.fixture(scope="module")
def filling():
    spec = spec_from_file_location("filling", PAGES / "fill.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read(name):
    return (PAGES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("paper", PAPERS)
def test_every_artefact_of_a_paper_is_on_a_page(paper, filling):
    name = f"{paper}-appendix.md" if paper in OWN else f"{paper}.md"
    shown = re.findall(r"<!-- table (\S+) -->", _read(name))
    if paper in OWN:  # artefacts in another setting are columns of the same tables
        columns = [filling.companion(a) for a in filling.own_artefacts(paper)]
        shown += [column.name for column in columns if column]
    assert sorted(shown) == sorted(a.name for a in artefacts(paper))


@pytest.mark.full
def test_pages_show_the_committed_results(filling):
    for name in filling.PAGES:
        page = _read(name)
        assert page == filling.filled(name), "run python docs/papers/fill.py"
        assert "No results" not in page


@pytest.mark.parametrize("paper", OWN)
def test_a_page_has_ten_claims_with_a_verdict_each(paper, filling):
    block = re.search(r"<!-- claims -->(.*?)<!-- end -->", _read(f"{paper}.md"), re.DOTALL)[1]
    rows = [line for line in block.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(filling.headlines(paper)) == 10
    for row in rows:
        assert re.search(r"\| [✓✗?] [^|]+: −?[\d.,]+ ± [\d.]+", row), row


@pytest.mark.parametrize("paper", OWN)
def test_a_number_in_the_text_of_a_page_is_committed(paper):
    page = _read(f"{paper}.md") + _read(f"{paper}-appendix.md")
    text = "\n".join(line for line in page.splitlines() if not line.startswith("|"))
    found = artefacts(paper)
    results = [row.ours for a in found for row in expected.rows_of(a, FULL)]
    known = {estimate_text(ours).lstrip("−") for ours in results}  # the text says "less"
    quoted = re.findall(r"[\d,.]*\d ± [\d,.]*\d", text)
    assert quoted
    assert [number for number in quoted if number not in known] == []


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
