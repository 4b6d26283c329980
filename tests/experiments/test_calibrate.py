"""``gangwise calibrate``: the site file, words, and what it refuses."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.core.errors import ScenarioError
from gangwise.experiments.calibrate import calibrate_log, monday_of


def _log(folder: Path) -> Path:
    """Forty days on each of which a user may run two jobs at once, and submits three."""
    file = folder / "log.swf"
    rows = []
    for day in range(40):
        for i, wait in enumerate((0, 0, 3600)):
            submit = 86400 * day
            job = f"{3 * day + i + 1} {submit} {wait} 3600 1"
            rows.append(f"{job} -1 -1 1 7200 -1 1 {day % 2} 1 -1 -1 -1 -1 -1")
    file.write_text("; MaxProcs: 8\n; UnixStartTime: 345600\n" + "\n".join(rows) + "\n")
    return file


def test_the_site_file_says_what_was_found_and_why(tmp_path: Path) -> None:
    found = calibrate_log(_log(tmp_path))
    written = found.toml()
    (cap,) = tomllib.loads(written)["cap"]
    assert cap["most"] == 2
    assert "waited although all that waited would have fitted" in written.replace("\n# ", " ")
    assert str(found).startswith("swf: 100 % of 120 jobs")
    assert np.isclose(found.found.contradicted, 40.0)
    assert monday_of(tmp_path / "log.swf", found.log) == 0.0  # 5 January 1970 was a Monday


def test_the_command_writes_a_file_and_never_over_one(tmp_path: Path) -> None:
    log, out = _log(tmp_path), tmp_path / "site"
    made = CliRunner().invoke(app, ["calibrate", str(log), "--out", str(out), "--json"])
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["findings"][0]["entry"]["most"] == 2
    assert (out / "site.toml").exists()
    again = CliRunner().invoke(app, ["calibrate", str(log), "--out", str(out)])
    assert "is there already" in str(again.exception)


def test_a_log_without_waits_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "log.swf"
    file.write_text("; MaxProcs: 8\n1 0 -1 60 1 -1 -1 1 60 -1 1 1 1 -1 -1 -1 -1 -1\n")
    with pytest.raises(ScenarioError, match="does not say when jobs started"):
        calibrate_log(file)
