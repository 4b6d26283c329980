"""A quick artefact of each paper finds its committed results again; verdicts follow their rules."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gangwise.experiments.statistics import Estimate
from gangwise.report.reproduction import Row
from gangwise.reproduce import PAPERS, artefacts, expected
from gangwise.reproduce.artefact import Claim, Rule, Scale
from gangwise.reproduce.run import reproduce

AGAIN = {"ogasched": "figure-7", "esdp": "figure-9", "opm": "table-1-synthetic"}


@pytest.mark.full
@pytest.mark.parametrize("paper", PAPERS)
def test_a_quick_artefact_is_where_it_was_committed(tmp_path, paper):
    chosen = [a for a in artefacts(paper) if a.name == AGAIN[paper]]
    found = reproduce(chosen, Scale(quick=True), tmp_path, jobs=2)
    assert len(found.rows) > 5
    assert expected.differences(found.rows, quick=True) == []
    assert found.totals.keys() <= expected.read_totals(quick=True).keys()
    assert expected.different_seeds(found.totals, quick=True) == []


@pytest.mark.full
@pytest.mark.parametrize(("paper", "name"), [("esdp", "figure-10")])  # others take a minute
def test_a_quick_artefact_on_rows_of_the_traces_is_where_it_was(tmp_path, traces, paper, name):
    chosen = [a for a in artefacts(paper) if a.name == f"{name}-traces"]
    found = reproduce(chosen, Scale(quick=True, traces=traces), tmp_path, jobs=2)
    assert expected.differences(found.rows, quick=True) == []
    assert expected.different_seeds(found.totals, quick=True) == []


@pytest.mark.parametrize("paper", PAPERS)
def test_every_artefact_without_a_trace_has_committed_results(paper):
    known = {key.split(":")[0] for key in expected.read(quick=True)}
    wanted = {
        f"{a.paper} {a.name}"
        for a in artefacts(paper)
        if not a.trace and any(not claim.timed for claim in a.claims)
    }
    assert wanted <= known


def test_a_result_that_is_not_the_committed_one_is_named(monkeypatch):
    row = Row("esdp", "figure-2", "a lead, %", "esdp", 73.0, Estimate(5.0, 4.0, 6.0), "open", "")
    monkeypatch.setattr(expected, "read", lambda quick: {row.id: Estimate(5.0, 4.0, 6.0)})
    assert expected.differences([row], quick=True) == []
    for moved in (Estimate(5.00001, 4.0, 6.0), Estimate(5.0, 4.00001, 6.0)):
        assert "not" in expected.differences([replace(row, ours=moved)], quick=True)[0]
    one_seed = replace(row, ours=Estimate(5.0, None, None))
    assert "low is None, not 4.0" in expected.differences([one_seed], quick=True)[0]
    other = replace(row, says="another lead, %")
    assert "nothing is committed" in expected.differences([other], quick=True)[0]


def test_a_seed_that_earns_something_else_is_named(monkeypatch):
    known = {"one": {"0.5 esdp": [10.0, 20.0], "0.5 lcf": [1.0, 2.0]}, "two": {"esdp": [1.0]}}
    monkeypatch.setattr(expected, "read_totals", lambda quick: known)
    assert expected.different_seeds({"one": known["one"], "new": {"esdp": [3.0]}}, True) == []
    swapped = {"0.5 esdp": [20.0, 10.0], "0.5 lcf": [1.0, 2.0]}  # the same mean and interval
    assert "0.5 esdp" in expected.different_seeds({"one": swapped}, True)[0]
    gone = {"0.5 esdp": [10.0, 20.0]}
    assert "0.5 lcf" in expected.different_seeds({"one": gone}, True)[0]
    moved = {"two": {"esdp": [1.00001]}}
    assert len(expected.different_seeds(moved, True)) == 1


def test_the_rules_are_committed_before_anything_is_run():
    path = expected.rules_path()
    every = [a for paper in PAPERS for a in artefacts(paper)]
    assert json.loads(path.read_text()) == expected.rules(every), "write_rules(), and say why"


def test_a_number_is_never_judged_by_its_sign_alone():
    with pytest.raises(ValueError, match="a number; ours must be near it"):
        Claim("a lead, %", 23.0, lambda found: {}, Rule(above=0))
    for paper in PAPERS:
        for artefact in artefacts(paper):
            for claim in artefact.claims:
                silent = str(claim.paper).startswith(("not compared", "not claimed"))
                assert not (silent and claim.rule.compares), claim.says


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ((23.0, 22.0, 24.0), "agrees"),
        ((28.0, 20.0, 36.0), "agrees"),
        ((30.0, 25.0, 35.0), "open"),
        ((40.0, 35.0, 45.0), "other-size"),
        ((68.9, 60.0, 75.0), "other-size"),
        ((69.1, 60.0, 75.0), "differs"),
        ((7.7, 1.0, 9.0), "other-size"),
        ((7.6, 1.0, 9.0), "differs"),
        ((400.0, 300.0, 500.0), "differs"),
        ((0.3, 0.1, 0.5), "differs"),
        ((0.3, -0.1, 0.7), "differs"),
        ((-20.0, -21.0, -19.0), "differs"),
        ((40.0, None, None), "other-size"),
    ],
)
def test_a_number_near_twenty_three(found, verdict):
    assert Rule(near=23.0)(Estimate(*found)) == verdict
    low, high = (None if v is None else -v for v in (found[2], found[1]))
    assert Rule(near=-23.0)(Estimate(-found[0], low, high)) == verdict


def test_what_is_true_by_definition_is_not_judged():
    """A number that agrees whatever the seed is one that no run could contradict."""
    for paper in PAPERS:
        for row in expected.shown(artefacts(paper)):
            assert row.verdict != "agrees" or row.ours.low != row.ours.high, row.id


def test_rivals_are_shown_and_count_nowhere():
    claim = Claim("wins", "always", lambda found: {}, Rule(above=0), beside=("rival",))
    ours = Estimate(1.0, 0.5, 1.5)
    assert claim.verdict("as printed, c = 1/2", ours) == "agrees"
    assert claim.verdict("rival, c = 1/2", ours) == claim.verdict("rival", ours) == "uncompared"
    assert claim.verdict("rivalry", ours) == "agrees"
    rows = [
        Row("p", "a", "s", v, "always", ours, claim.verdict(v, ours), "")
        for v in ("as printed", "rival")
    ]
    assert expected.counts(rows).startswith("1 of 1 comparisons agree")
