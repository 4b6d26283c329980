"""A quick artefact of each paper finds its committed results again; verdicts follow their rules."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gangwise.papers.reproduce import PAPERS, artefacts, expected, measures
from gangwise.papers.reproduce.expected import reproduce
from gangwise.papers.reproduce.papers import Artefact, Claim, Rule, RunScale
from gangwise.report.pages import ClaimResult
from gangwise.study.statistics import Estimate

AGAIN = {"ogasched": "figure-7", "esdp": "figure-9", "opm": "table-1-synthetic"}


@pytest.mark.full
@pytest.mark.parametrize("paper", AGAIN)
def test_a_quick_artefact_is_where_it_was_committed(tmp_path, paper):
    chosen = [a for a in artefacts(paper) if a.name == AGAIN[paper]]
    found = reproduce(chosen, RunScale(quick=True), tmp_path, jobs=1)
    assert len(found.rows) > 5
    assert expected.differences(found.rows, quick=True) == []
    assert found.totals.keys() <= expected.read_totals(quick=True).keys()
    assert expected.different_seeds(found.totals, quick=True) == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("paper", "names"),  # others take a minute
    [("esdp", {"figure-10-traces"}), ("field", {"rlscheduler", "gaussier"})],
)
def test_a_quick_artefact_on_traces_is_where_it_was(tmp_path, traces, paper, names):
    chosen = [a for a in artefacts(paper) if a.name in names]
    assert len(chosen) == len(names)
    found = reproduce(chosen, RunScale(quick=True, traces=traces), tmp_path, jobs=1)
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
    row = ClaimResult(
        "esdp", "figure-2", "a lead, %", "esdp", 73.0, Estimate(5, 4, 6), "not tested", ""
    )
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


EVERY = [a for paper in PAPERS for a in artefacts(paper)]


def unruly(artefacts: list[Artefact]) -> list[str]:
    """Results of full scale that are older than their rule, or whose rule changed since."""
    rules, played, known = (
        expected.read_stamps("rules"),
        expected.read_stamps("played"),
        expected.read(quick=False),
    )
    of = {key.rpartition(" [")[0] for key in known}
    faults = []
    for artefact in artefacts:
        for claim in artefact.claims:
            key = expected.claim_id(artefact, claim)
            rule, result = rules.get(key), played.get(key)
            if rule is None or rule.rule != expected.rule_hash(claim):
                faults.append(f"{key}: its rule is not the committed one: write_rules()")
            elif key not in of:
                continue
            elif result is None or result.rule != rule.rule:
                faults.append(f"{key}: its rule changed since it was judged: play it again")
            elif result.at and result.at < rule.at:
                faults.append(f"{key}: played at {result.at}, before its rule of {rule.at}")
    return faults


def test_every_result_has_the_rule_by_which_it_was_judged():
    assert unruly(EVERY) == [], "write_rules(), say why, and play again"


@pytest.mark.parametrize(
    ("tamper", "fault"),
    [
        ({"rule": Rule(near=11.33, within=0.5)}, "its rule is not the committed one"),
        ({"paper": 12.0}, "its rule is not the committed one"),
        ({"beside": ("as printed",)}, "its rule is not the committed one"),
        ({"every": "on"}, "its rule is not the committed one"),
    ],
)
def test_a_changed_rule_is_refused_until_its_result_is_judged_again(
    tmp_path, monkeypatch, tamper, fault
):
    chosen = next(a for a in EVERY if (a.paper, a.name) == ("ogasched", "figure-2"))
    claims = [replace(chosen.claims[0], **tamper), *chosen.claims[1:]]
    tampered = replace(chosen, claims=claims)
    assert [fault in text for text in unruly([tampered])] == [True]
    for file in expected.FOLDER.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(expected, "FOLDER", tmp_path)
    expected.write_rules([tampered])  # the rule follows, and the result does not
    [text] = unruly([tampered])
    assert "its rule changed since it was judged" in text
    expected.stamp([tampered], played=0.0)  # as if played in 1970
    assert "played at 1970-01-01T00:00Z, before its rule of 20" in unruly([tampered])[0]
    expected.stamp([tampered], played=4e9)
    assert unruly([tampered]) == []


def test_a_rule_that_did_not_change_keeps_its_date(tmp_path, monkeypatch):
    path = expected.FOLDER / "rules.json"
    (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(expected, "FOLDER", tmp_path)
    expected.write_rules(EVERY)
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_a_number_is_never_judged_by_its_sign_alone():
    with pytest.raises(ValueError, match="number"):
        Claim("a lead, %", 23.0, lambda found: {}, Rule(above=0))
    for paper in PAPERS:
        for artefact in artefacts(paper):
            for claim in artefact.claims:
                silent = str(claim.paper).startswith(("not compared", "not claimed"))
                assert not (silent and claim.rule.compares), claim.says


@pytest.mark.parametrize(
    ("found", "agrees"),
    [
        ((23.0, 22.0, 24.0), True),
        ((28.0, 20.0, 36.0), True),
        ((30.0, 15.0, 45.0), False),  # a level is a level, and an interval no excuse
        ((3.0, 2.0, 4.0), False),
        ((-20.0, -21.0, -19.0), False),
    ],
)
def test_a_number_near_twenty_three(found, agrees):
    assert Rule(near=23.0)(Estimate(*found)) is agrees
    low, high = -found[2], -found[1]
    assert Rule(near=-23.0)(Estimate(-found[0], low, high)) is agrees


def test_a_slight_edge_is_no_rout():
    [claim] = [
        claim
        for artefact in EVERY
        for claim in artefact.claims
        if claim.paper == "FAIRNESS and DRF have a slight edge" and not artefact.trace
    ]
    assert claim.rule(Estimate(-2.0, -3.0, -1.0)) is True
    assert claim.rule(Estimate(-21.7, -23.3, -20.1)) is False
    assert claim.rule(Estimate(1.0, 0.5, 1.5)) is False


def test_what_is_true_by_definition_is_not_judged():
    """A number that agrees whatever the seed is one that no run could contradict.

    A log that is played once has no interval.
    """
    for paper in PAPERS:
        for row in expected.rows(artefacts(paper), quick=False):
            once = row.ours.low is None and row.paper == "field"
            assert not row.agrees or once or row.ours.low != row.ours.high, row.id


def _artefact(**claims):
    """Claims above 0 whose rows are called as they are read: version, setting."""
    return Artefact(
        "p",
        "figure-9",
        "t",
        lambda scale: [],
        lambda found: None,
        [],
        [
            Claim(
                says,
                10.0 if near else "leads",
                lambda found: {},
                Rule(near=10.0) if near else Rule(above=0),
                beside=("rival",),
                every=every,
                readings={
                    f"{v}, {s}": ("" if every == "versions" else v, "" if every == "on" else s)
                    for v in ("a", "b")
                    for s in ("c", "d")
                },
            )
            for says, (every, near) in claims.items()
        ],
    )


def _words(artefact, **means):
    rows = [
        expected.claim_result(artefact, claim, version, Estimate(mean, mean - 0.5, mean + 0.5))
        for claim in artefact.claims
        for version, mean in means[claim.says].items()
    ]
    done, best = expected.with_verdicts(artefact, rows)
    return {row.says: row.verdict for row in done if row.agrees is not None}, best


def test_one_reading_has_to_serve_for_the_whole_figure():
    plain = ("", False)
    artefact = _artefact(one=plain, two=plain, three=plain, four=plain)
    ac, bd = {"a, c": 1.0, "b, d": -1.0}, {"a, c": -1.0, "b, d": 1.0}
    words, best = _words(artefact, one=ac, two=ac, three=bd, four={"a, c": -1.0, "b, d": -2.0})
    assert best == ("a", "c", "")
    assert words == {
        "one": "reproduced",
        "two": "reproduced",
        "three": "underdetermined",
        "four": "not reproduced",
    }
    assert _words(artefact, one={}, two={}, three={}, four={"a, c": -1.0})[1] is None


def test_of_readings_that_agree_as_often_the_closest_is_the_best():
    artefact = _artefact(one=("", True), two=("", False))
    near = {"a, c": 12.0, "b, d": 10.5}
    assert _words(artefact, one=near, two={"a, c": 1.0, "b, d": 1.0})[1] == ("b", "d", "")


def test_what_must_hold_in_every_case_fails_with_one():
    ours = {"a, c": 1.0, "a, d": -1.0, "b, c": -1.0, "b, d": -1.0, "rival, c": 9.0}
    assert _words(_artefact(one=("", False)), one=ours)[0] == {"one": "reproduced"}
    for every in ("on", "versions"):
        assert _words(_artefact(one=(every, False)), one=ours)[0] == {"one": "not reproduced"}
    assert _words(_artefact(one=("on", False)), one=ours | {"a, d": 1.0})[0]["one"] == "reproduced"


def test_rivals_are_shown_and_count_nowhere():
    claim = Claim("wins", "always", lambda found: {}, Rule(above=0), beside=("rival",))
    ours = Estimate(1.0, 0.5, 1.5)
    assert claim.agrees("as printed, c = 1/2", ours) is True
    assert claim.agrees("rival, c = 1/2", ours) is claim.agrees("rival", ours) is None
    assert claim.agrees("rivalry @ uniform rows", ours) is True
    assert _words(_artefact(one=("", False)), one={"rival": 1.0}) == ({}, None)


def test_there_is_no_percentage_of_what_is_near_zero_or_negative():
    whole = np.array([1.0, 2.0])
    assert measures.percentage(np.array([40.0, 60.0]), whole).mean == 50.0
    for percent, of in (([40.0, 501.0], whole), ([40.0, 60.0], np.array([-1.0, 2.0]))):
        assert math.isnan(measures.percentage(np.array(percent), of).mean)
    assert math.isnan(measures.least([Estimate(1, 0, 2), measures.NO_PERCENTAGE]).mean)
