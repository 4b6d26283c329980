"""What kind of folder a report is of, and folders that hold no results."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gangwise import StoreError
from gangwise.cli import app
from gangwise.report.pages import write_comparison, write_report
from tests.report.made import made
from tests.report.made_sweep import made_sweep
from tests.report.pages import read


def test_a_comparison_gets_its_page(tmp_path: Path) -> None:
    comparison = made({"a": [[1.0, 2.0]], "b": [[1.0, 1.0]]})
    comparison.write(tmp_path)
    assert write_report(tmp_path) == tmp_path / "report.html"
    copied = write_report(tmp_path, tmp_path / "copy.html")
    assert "a earned most" in read(copied).text
    write_comparison(comparison, tmp_path, "gangwise compare x")
    (tmp_path / "report.html").unlink()
    assert "gangwise compare x" in read(write_report(tmp_path)).text
    comparison.write(tmp_path)  # new numbers: an old page must not stand beside them
    assert not (tmp_path / "report.html").exists()


def test_folders_without_results(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no results of gangwise sweep"):
        write_report(tmp_path)
    with pytest.raises(StoreError, match="no folder"):
        write_report(tmp_path / "nowhere")
    made_sweep(tmp_path)
    for run in (tmp_path / "runs").iterdir():
        run.unlink()
    with pytest.raises(StoreError, match=r"no run in .* is finished"):
        write_report(tmp_path)


def test_command(tmp_path: Path) -> None:
    out = tmp_path / "there" / "page.html"
    done = CliRunner().invoke(app, ["report", str(made_sweep(tmp_path)), "--out", str(out)])
    assert done.exit_code == 0
    assert f"wrote {out}" in done.output
    assert read(out).text
