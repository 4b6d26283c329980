"""A quick artefact of each paper finds its committed results again; results that moved are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gangwise.experiments.statistics import Estimate
from gangwise.reproduce import PAPERS, artefacts, expected
from gangwise.reproduce.artefact import Scale
from gangwise.reproduce.expected import Row
from gangwise.reproduce.run import reproduce

AGAIN = {"ogasched": "figure-7", "esdp": "figure-9", "opm": "table-1-synthetic"}


@pytest.mark.parametrize("paper", PAPERS)
def test_a_quick_artefact_is_where_it_was_committed(tmp_path, paper):
    chosen = [a for a in artefacts(paper) if a.name == AGAIN[paper]]
    found = reproduce(chosen, Scale(quick=True), tmp_path, jobs=2)
    assert len(found.rows) > 5
    assert expected.differences(found.rows, quick=True) == []


@pytest.mark.parametrize("paper", PAPERS)
def test_every_artefact_without_a_trace_has_committed_results(paper):
    known = {key.split(":")[0] for key in expected.read(quick=True)}
    wanted = {
        f"{a.paper} {a.name}"
        for a in artefacts(paper)
        if not a.trace and any(not claim.timed for claim in a.claims)
    }
    assert wanted <= known


def test_a_result_that_moved_is_named(monkeypatch):
    row = Row("esdp", "figure-2", "a lead, %", "esdp", 73.0, Estimate(5.0, 4.0, 6.0), "open", "")
    committed = {row.id: Estimate(5.5, 5.2, 5.8)}
    monkeypatch.setattr(expected, "read", lambda quick: committed)
    assert "5 is outside 5.2 to 5.8" in expected.differences([row], quick=True)[0]
    moved = replace(row, ours=Estimate(5.3, 4.0, 6.0))
    assert expected.differences([moved], quick=True) == []
    other = replace(row, says="another lead, %")
    assert "nothing is committed" in expected.differences([other], quick=True)[0]
