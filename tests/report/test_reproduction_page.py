"""The page of ``gangwise reproduce``, and what it says of files that are torn."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from gangwise import StoreError
from gangwise.report.pages import write_report
from gangwise.study.runs import write_provenance
from tests.report.made_sweep import HOSTILE
from tests.report.pages import faults, loaded, read


@pytest.fixture
def reproduced(tmp_path: Path) -> Path:
    """What gangwise reproduce leaves, made by hand."""
    rows = [
        {
            "paper": paper,
            "artefact": "figure-2",
            "says": says,
            "version": "as printed",
            "the paper": number,
            "ours": 55.2,
            "low": 29.1,
            "high": 81.3,
            "verdict": verdict,
            "why": why,
        }
        for paper, says, number, verdict, why in (
            ("esdp", "A over B, %", 73.0, "reproduced", ""),
            ("esdp", "A over C, %", 11.28, "not reproduced", f"not stated {HOSTILE}"),
            ("opm", "A wins", "always", "underdetermined", "a misprint"),
        )
    ]
    artefacts = [
        {"paper": p, "name": "figure-2", "title": HOSTILE, "experiments": []}
        for p in ("esdp", "opm")
    ]
    about = {"quick": True, "artefacts": artefacts, "left_out": {"opm-figure-1": "needs a trace"}}
    (tmp_path / "reproduction.json").write_text(json.dumps(about))
    (tmp_path / "side-by-side.json").write_text(json.dumps(rows))
    write_provenance(tmp_path, "reproduction", "gangwise reproduce esdp --quick")
    return tmp_path


def test_reproduction(reproduced: Path) -> None:
    path = write_report(reproduced)
    page, text = read(path), path.read_text(encoding="utf-8")
    assert loaded(page, text) == []
    assert faults(page) == []
    rows = page.body("claim|where")
    assert [row[1:5] for row in rows] == [
        ["ESDP, figure 2", "73", "as printed", "55 ± 26"],
        ["ESDP, figure 2", "11.28", "as printed", "55 ± 26"],
        ["OPS and OPM, figure 2", "always", "as printed", "55 ± 26"],
    ]
    assert "1 of 3 claims agree, played small, which is no verdict" in page.text
    for said in ("a misprint", "needs a trace", "gangwise reproduce esdp --quick"):
        assert said in page.text
    chosen = [given for tag, given in page.attributes if tag == "input"]
    assert {given["id"] for given in chosen} >= {"verdict-differs", "paper-esdp", "paper-opm"}
    marked = [given for tag, given in page.attributes if tag == "tr" and "data-verdict" in given]
    assert [given["data-verdict"] for given in marked] == [
        "agrees",
        "differs",
        "agrees in another reading",
    ]
    for given in marked:  # a style hides it for every other choice
        assert f'tr[data-verdict]:not([data-verdict="{given["data-verdict"]}"])' in text


def test_every_artefact_is_counted_and_leads_to_its_section(reproduced: Path) -> None:
    page = read(write_report(reproduced))
    assert [row[0] for row in page.body("artefact|")] == ["ESDP, figure 2", "OPS and OPM, figure 2"]
    assert [row[2:] for row in page.body("artefact|")] == [
        ["1", "1", "0", "0"],
        ["0", "0", "1", "0"],
    ]
    links = [given["href"] for tag, given in page.attributes if tag == "a"]
    assert {"#esdp-figure-2", "#opm-figure-2"} <= set(links)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("reproduction.json", "{}"),
        ("reproduction.json", '{"quick": tr'),
        ("side-by-side.json", '[{"paper": "esdp"'),
        ("side-by-side.json", '[{"paper": "esdp"}]'),
    ],
)
def test_torn_files_are_named(reproduced: Path, file: str, content: str) -> None:
    (reproduced / file).write_text(content)
    with pytest.raises(StoreError, match=rf"{file}.*run the same gangwise reproduce again"):
        write_report(reproduced)
    assert not (reproduced / "report.html").exists()


def test_pictures_are_drawn_from_their_numbers(reproduced: Path) -> None:
    """With names that hide lines and values to read, as on every other page."""
    about = json.loads((reproduced / "reproduction.json").read_text())
    panel = {"name": "all", "x": "slot", "y": "AOU", "log_x": True}
    about["artefacts"][0] |= {"panels": [panel], "title": "utility so far"}
    (reproduced / "reproduction.json").write_text(json.dumps(about))
    rows = [("all", f"line {i}", x, 2.0 * x, None, None) for i in range(2) for x in (1, 10, 100)]
    columns = ["panel", "line", "x", "mean", "low", "high"]
    file = reproduced / "esdp-figure-2.parquet"
    pl.DataFrame(rows, schema=columns, orient="row").write_parquet(file)
    path = write_report(reproduced)
    page, text = read(path), path.read_text(encoding="utf-8")
    assert faults(page) == []
    assert "Utility so far" in page.text
    drawing = text.partition('data-axes="')[2].partition('"')[0].split()
    assert [float(each) for each in drawing[-2:]] == [1, 0]  # which axes are logarithmic
    assert text.count('data-line="') - text.count('[data-line="') == 2
    boxes = [a for tag, a in page.attributes if tag == "input" and a.get("type") == "checkbox"]
    assert len(boxes) == 2
    file.write_bytes(b"torn")
    with pytest.raises(StoreError, match=r"cannot read .*esdp-figure-2\.parquet"):
        write_report(reproduced)
    about["artefacts"][0]["panels"] = [{"colour": "red"}]
    (reproduced / "reproduction.json").write_text(json.dumps(about))
    with pytest.raises(StoreError, match=r"cannot read .*reproduction\.json"):
        write_report(reproduced)
