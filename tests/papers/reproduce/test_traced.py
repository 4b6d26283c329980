"""Artefacts on rows of the traces: the claims of the artefact, reading by reading."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from gangwise.papers.reproduce import artefacts, expected
from gangwise.papers.reproduce.papers import Artefact, Claim, Rule, RunScale, traced
from gangwise.report import pages
from gangwise.study.statistics import Estimate
from gangwise.study.sweep import Experiment

READINGS = ({"name": "all"}, {"name": "few", "settings": {"servers": 4}})


def _two(scale):
    return [
        Experiment(
            name=name,
            scenario=scenario,
            settings={"rho": 0.5},
            policies=["a"],
            slots=900,
            seeds=scale.first_seeds(2 if scale.quick else 3),
        )
        for name, scenario in (("mine", "default"), ("other", "another"))
    ]


PLAIN = Artefact(
    "p",
    "figure-9",
    "a title",
    _two,
    lambda found: found["mine"],
    [],
    [
        Claim(
            "a lead, %",
            "leads",
            lambda found: {"v": Estimate(found["mine"], None, None)},
            Rule(above=0),
        ),
        Claim("beside", "not compared", lambda found: {}, Rule()),
    ],
)
PLAYED = traced(PLAIN, "default", "rows", READINGS, (100, 500))


def test_an_experiment_for_each_reading_on_the_other_scenario():
    experiments = PLAYED.experiments(RunScale(quick=True, traces=Path("/some")))
    assert [e.name for e in experiments] == ["mine-rows-0", "mine-rows-1"]
    assert {e.scenario for e in experiments} == {"rows"}
    assert experiments[1].settings == {"rho": 0.5, "servers": 4, "folder": "/some"}
    assert [(e.slots, list(e.seeds)) for e in experiments] == [(100, [100, 101, 102])] * 2
    full = PLAYED.experiments(RunScale())[0]
    assert (full.slots, list(full.seeds)) == (500, list(range(100, 110)))
    assert full.policies == ["a"]
    left = traced(PLAIN, "default", "rows", READINGS, (100, 500), ("a",))
    assert left.experiments(RunScale())[0].policies == []
    assert len(left.experiments(RunScale(quick=True))[0].policies) == 1


def test_a_claim_is_measured_in_every_reading_and_judged_over_all():
    found = {"mine-rows-0": 3.0, "mine-rows-1": 5.0}
    [claim] = PLAYED.claims
    assert {k: v.mean for k, v in claim.ours(found).items()} == {"v @ all": 3.0, "v @ few": 5.0}
    assert PLAYED.numbers(found) == 3.0

    def verdict(*means):
        rows = [
            expected.claim_result(PLAYED, claim, version, Estimate(mean, mean - 1, mean + 1))
            for version, mean in zip(claim.ours(found), means, strict=True)
        ]
        done, best = expected.with_verdicts(PLAYED, rows)
        [merged] = pages.over_readings(done)
        return merged.verdict, merged.ours, best

    assert verdict(3.0, 5.0) == ("reproduced", Estimate(4.0, 3.0, 5.0), ("v", "", "all"))
    assert verdict(-3.0, 5.0) == ("reproduced", Estimate(1.0, -3.0, 5.0), ("v", "", "few"))
    assert verdict(-3.0, 0.5) == ("not reproduced", Estimate(-1.25, -3.0, 0.5), None)


def test_the_page_has_the_span_and_not_one_reading():
    found = {"mine-rows-0": 3.0, "mine-rows-1": -5.0}
    [claim] = PLAYED.claims
    rows = [expected.claim_result(PLAYED, claim, v, e) for v, e in claim.ours(found).items()]
    done, _ = expected.with_verdicts(PLAYED, rows)
    page = expected.markdown(done)
    assert "v: −5.0 to 3.0 over 2 readings, agrees in 1 | *reproduced* |" in page
    assert "1 claim: 1 reproduced" in page
    again = pages.ClaimResult.of(pages.over_readings(done)[0].as_dict())
    assert (again.readings, again.text) == (2, "−5.0 to 3.0 over 2 readings, agrees in 1")
    assert isinstance(expected.table(pages.over_readings(done)), pl.DataFrame)


def test_every_figure_but_computation_times_is_on_rows_of_the_traces():
    for paper, left in (("ogasched", set[str]()), ("esdp", {"figure-5"})):
        names = {a.name for a in artefacts(paper)}
        plain = {name for name in names if not name.endswith("-traces")}
        figures = {n for n in plain if n.startswith(("figure", "table"))} - left
        assert names - plain == {f"{name}-traces" for name in figures}
        assert all(a.trace for a in artefacts(paper) if a.name.endswith("-traces"))
