"""Several commands into one folder share its table; what cannot be compared does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gangwise import GangwiseError, ScenarioError, UnknownName
from gangwise.cli import app
from gangwise.papers.reproduce import expected
from gangwise.papers.reproduce.papers import Artefact, Claim, Rule, RunScale
from gangwise.report.plotting import Panel, points
from gangwise.study.statistics import Estimate
from tests.report.pages import read


def artefact(name: str, mean: float = 5.0, trace: str = "") -> Artefact:
    """One without an experiment: its numbers are known."""
    found = Estimate(mean, mean - 1, mean + 1)
    return Artefact(
        "made",
        name,
        f"title of {name}",
        lambda scale: [],
        lambda results: points([("p", "line", 1.0, *found)]),
        [Panel("p", "x", "y", "points")],
        [Claim(f"lead of {name}, %", "leads", lambda results: {"v": found}, Rule(above=0))],
        trace,
    )


def kept(folder: Path) -> dict[str, float]:
    rows = json.loads((folder / "side-by-side.json").read_text())
    about = json.loads((folder / "reproduction.json").read_text())
    assert [row["artefact"] for row in rows] == [a["name"] for a in about["artefacts"]]
    return {row["artefact"]: row["ours"] for row in rows}


@pytest.mark.full
def test_artefacts_of_two_commands_share_a_table(tmp_path):
    first = expected.reproduce(
        [artefact("figure-2"), artefact("figure-3")], RunScale(True), tmp_path
    )
    assert not first.joined
    second = expected.reproduce(
        [artefact("figure-3", 7.0), artefact("figure-4")], RunScale(True), tmp_path
    )
    assert second.joined
    assert [row.artefact for row in second.rows] == ["figure-3", "figure-4"]
    assert kept(tmp_path) == {"figure-2": 5.0, "figure-3": 7.0, "figure-4": 5.0}


@pytest.mark.parametrize("other", [RunScale(False), RunScale(True, (1, 2))])
def test_what_was_made_at_another_scale_or_with_other_seeds_does_not_stay(tmp_path, other):
    expected.reproduce([artefact("figure-2")], RunScale(True), tmp_path)
    assert not expected.reproduce([artefact("figure-3")], other, tmp_path).joined
    assert kept(tmp_path) == {"figure-3": 5.0}


def test_of_another_version_or_torn_nothing_stays(tmp_path, monkeypatch):
    expected.reproduce([artefact("figure-2")], RunScale(True), tmp_path)
    with monkeypatch.context() as later:
        later.setattr("gangwise.__version__", "9.9")
        expected.reproduce([artefact("figure-3")], RunScale(True), tmp_path)
    assert kept(tmp_path) == {"figure-3": 5.0}
    (tmp_path / "side-by-side.json").write_text('[{"paper"')
    assert not expected.reproduce([artefact("figure-4")], RunScale(True), tmp_path).joined
    assert kept(tmp_path) == {"figure-4": 5.0}


def test_what_was_left_out_is_told_until_it_is_done(tmp_path):
    expected.reproduce(
        [artefact("figure-2", trace="t"), artefact("figure-3")], RunScale(True), tmp_path
    )
    expected.reproduce([artefact("figure-4")], RunScale(True), tmp_path)
    about = json.loads((tmp_path / "reproduction.json").read_text())
    assert "give the folder that holds it with --traces" in about["left_out"]["made-figure-2"]
    traced, traces = [artefact("figure-2", trace="t")], tmp_path / "traces"
    there = expected.reproduce(traced, RunScale(True, None, traces), tmp_path)
    assert there.left_out == {"made-figure-2": f"needs the trace t: there is no folder {traces}/t"}
    (traces / "t").mkdir(parents=True)
    expected.reproduce(traced, RunScale(True, None, traces), tmp_path)
    assert json.loads((tmp_path / "reproduction.json").read_text())["left_out"] == {}
    expected.reproduce(traced, RunScale(True), tmp_path)  # what was done with the trace stays
    assert json.loads((tmp_path / "reproduction.json").read_text())["left_out"] == {}
    assert kept(tmp_path) == {"figure-3": 5.0, "figure-4": 5.0, "figure-2": 5.0}


def test_the_page_has_every_command(tmp_path, monkeypatch):
    made = [artefact("figure-2"), artefact("figure-3")]
    monkeypatch.setattr("gangwise.papers.reproduce.artefacts", lambda paper: made)
    for n in ("2", "3", "3"):
        given = ["reproduce", "made", "--figure", n, "--out", str(tmp_path)]
        monkeypatch.setattr("sys.argv", ["gangwise", *given])
        done = CliRunner().invoke(app, given)
        assert done.exit_code == 0
    assert CliRunner().invoke(app, ["report", str(tmp_path)]).exit_code == 0
    text = read(tmp_path / "report.html").text
    assert "The same commands give the same rewards" in text
    assert [text.count(f"made --figure {n} --out") for n in (2, 3)] == [1, 1]


def test_a_theorem_can_be_asked_for_alone(tmp_path, monkeypatch):
    made = [artefact("figure-2"), artefact("theorem-2"), artefact("table-2")]
    monkeypatch.setattr("gangwise.papers.reproduce.artefacts", lambda paper: made)
    given = ["reproduce", "made", "--theorem", "2", "--out", str(tmp_path)]
    assert CliRunner().invoke(app, given).exit_code == 0
    assert [path.name for path in tmp_path.glob("*.png")] == ["made-theorem-2.png"]


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        (["esdp", "--figure", "99"], UnknownName, "theorem of esdp named 'figure-99'"),
        (["esdp", "--table", "1"], UnknownName, "theorem of esdp named 'table-1'"),
        (["opm", "--theorem", "1"], UnknownName, "'theorem-1'"),
        (["esdp", "--figure", "2", "--table", "1"], UnknownName, "'table-1'"),
        (["esdp", "--all", "--figure", "2"], ScenarioError, "not both"),
        (["nobody"], UnknownName, "no paper named 'nobody'"),
        (["--figure", "2"], ScenarioError, "name a paper"),
        (["esdp", "--seeds", "0"], ScenarioError, "give how many"),
        (["esdp", "--seeds", "0,3,0"], ScenarioError, "listed twice"),
        (["esdp", "--accept", "--seeds", "2"], ScenarioError, "drop --seeds"),
        (["opm", "--traces", "nowhere"], ScenarioError, "there is no such folder"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_run(tmp_path, given, kind, says):
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["reproduce", *given, "--out", str(out)])
    assert isinstance(done.exception, GangwiseError)
    assert isinstance(done.exception, kind)
    assert says in str(done.exception)
    assert not out.exists()
