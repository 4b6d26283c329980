"""gangwise rank: what a rank says of itself."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gangwise.engines import rank


def test_a_report_that_is_late_does_not_come_after_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One under way when the command ends is written first; nobody else writes the same file."""
    plain, late, done = rank.write_report, threading.Event(), threading.Event()

    def slow(path: Path, content: dict[str, object]) -> None:
        if content["exit"] is None and not late.is_set():
            late.set()
            time.sleep(0.5)  # while the command ends
            plain(path, content)
            done.set()
        else:
            plain(path, content)

    monkeypatch.setattr(rank, "write_report", slow)
    monkeypatch.setattr(rank.signal, "signal", lambda *_: None)  # this is the tests' process
    assert rank.main(["--report", str(tmp_path), "--every", "0.05", "--sleep", "0.2"]) == 0
    assert done.wait(5.0)
    (file,) = tmp_path.glob("[!.]*")
    assert json.loads(file.read_text())["exit"] == 0


def test_a_line_whose_group_took_no_part_is_passed_through(tmp_path: Path) -> None:
    words = "step 1", "done", "step 2"
    command = [sys.executable, "-S", rank.__file__, "--report", str(tmp_path)]
    command += ["--match", r"step (\d+)|done", "--", "printf", r"%s\n", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.split("\n")[:-1]) == (0, list(words)), ran.stderr


def test_a_pattern_that_is_none_starts_no_command(tmp_path: Path) -> None:
    command = [sys.executable, "-S", rank.__file__, "--match", "step (", "--", "touch"]
    ran = subprocess.run([*command, str(tmp_path / "ran")], capture_output=True, text=True)
    assert (ran.returncode, "is no regular expression" in ran.stderr) == (2, True)
    assert not (tmp_path / "ran").exists()
