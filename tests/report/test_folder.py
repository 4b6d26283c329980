"""What kind of folder a report is of, and folders that hold no results."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gangwise import StoreError
from gangwise.cli import app
from gangwise.core.files import Folder
from gangwise.report.page import Format
from gangwise.report.pages import write_comparison, write_files, write_report
from tests.report.made import made
from tests.report.made_sweep import made_sweep
from tests.report.pages import read


@pytest.mark.full
def test_a_comparison_gets_its_page(tmp_path: Path) -> None:
    comparison = made({"a": [[1.0, 2.0]], "b": [[1.0, 1.0]]})
    comparison.write(tmp_path)
    assert write_report(tmp_path) == tmp_path / "report.html"
    copied = write_report(tmp_path, tmp_path / "copy.html")
    assert "a earned most" in read(copied).text
    write_comparison(comparison, tmp_path, "gangwise compare x")
    page = (tmp_path / "report.html").read_bytes()
    (tmp_path / "report.html").unlink()
    assert "gangwise compare x" in read(write_report(tmp_path)).text
    assert (tmp_path / "report.html").read_bytes() == page
    comparison.write(tmp_path)  # new numbers: an old page must not stand beside them
    assert not (tmp_path / "report.html").exists()


def test_folders_without_results(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="gangwise"):
        write_report(tmp_path)
    with pytest.raises(StoreError, match="no folder"):
        write_report(tmp_path / "nowhere")
    made_sweep(tmp_path)
    for run in (tmp_path / "runs").iterdir():
        run.unlink()
    with pytest.raises(StoreError, match="finished"):
        write_report(tmp_path)


def test_command(tmp_path: Path) -> None:
    out = tmp_path / "there" / "page.html"
    done = CliRunner().invoke(app, ["report", str(made_sweep(tmp_path)), "--out", str(out)])
    assert done.exit_code == 0
    assert f"wrote {out}" in done.output
    assert read(out).text


def test_tables_as_files(tmp_path: Path) -> None:
    made_sweep(tmp_path / "made", rename={"a": "a_1 & co"})
    paths = write_files(tmp_path / "made", "csv", tmp_path / "tables")
    text = {path.stem: path.read_text() for path in paths}
    assert all(path.suffix == ".csv" for path in paths)
    rewards = text["made-reward-of-every-policy-in-every-cell"]
    rows = list(csv.DictReader(rewards.splitlines()))
    assert [row["policy"] for row in rows] == ["a_1 & co", "b", "b", "a_1 & co"]
    assert [float(row["reward per slot"]) for row in rows] == [4.0, 3.0, 4.5, 1.5]
    assert float(rows[0]["reward per slot ±"]) == pytest.approx(12.706, rel=1e-3)


@pytest.mark.parametrize(
    ("wanted", "begins"),
    [("svg", b"<?xml"), pytest.param("pdf", b"%PDF", marks=pytest.mark.full), ("png", b"\x89PNG")],
)
def test_figures_as_files(tmp_path: Path, wanted: Format, begins: bytes) -> None:
    made_sweep(tmp_path / "made")
    paths = write_files(tmp_path / "made", wanted, tmp_path / "figures")
    assert {path.stem for path in paths} >= {"made-reward-per-slot-by-load"}
    first = [path.read_bytes() for path in paths]
    assert all(content.startswith(begins) for content in first)
    if wanted == "pdf":  # whose metadata would hold a date; SVG is drawn twice in test_figures.py
        write_files(tmp_path / "made", wanted, tmp_path / "figures")
        assert [path.read_bytes() for path in paths] == first
    if wanted == "svg":
        width = re.search(rb'<svg [^>]*width="([\d.]+)pt"', first[0])
        assert width is not None
        assert float(width[1]) == pytest.approx(72 * 3.45)


@pytest.mark.full
def test_the_page_of_a_replay_leaves_its_prices(tmp_path: Path) -> None:
    command = ["replay", "--set", "first=40,nodes=4", "--seeds", "1", "--policies"]
    command += ["fcfs+easy+best-fit", "--out", str(tmp_path), "--jobs", "1"]
    assert CliRunner().invoke(app, command).exit_code == 0
    prices = sorted(tmp_path.glob("prices-*.parquet"))
    before = [path.read_bytes() for path in prices]
    assert before
    write_report(tmp_path)
    assert [path.read_bytes() for path in prices] == before
    found = Folder(tmp_path).verify()
    assert found.sound
    assert found.unknown == []
