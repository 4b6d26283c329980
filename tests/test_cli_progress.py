"""The time left in a log is that of the last minutes, by hand."""

from __future__ import annotations

import pytest

import gangwise.core.jit
from gangwise.cli.options import RECENT, progress, progress_lines


def lines(pace, of):
    """What is written when ``pace[i]`` runs end in minute i, one call a minute."""
    written, minutes = [], iter(range(0, 60 * (len(pace) + 1), 60))
    tell = progress_lines(written.append, clock=lambda: float(next(minutes)))
    done = 0
    tell("runs", done, of)
    for ended in pace:
        done += ended
        tell("runs", done, of)
    return written


def test_what_was_fast_long_ago_does_not_count():
    written = lines([100] * 5 + [2] * RECENT, of=600)
    assert written[4] == "runs: 500 of 600, 0:01:00 left"
    assert written[-1] == "runs: 520 of 600, 0:40:00 left"  # 80 more, two a minute


def test_nothing_is_told_of_the_time_left_before_anything_has_ended():
    assert lines([0, 3], of=9) == ["runs: 0 of 9", "runs: 3 of 9, 0:04:00 left"]
    assert lines([0, 1], of=60)[1] == "runs: 1 of 60"  # it may have waited for kernels


def test_what_compiles_for_several_kinds_of_input_is_announced_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = ["play", "sort", "play", "sort"]
    monkeypatch.setattr(gangwise.core.jit, "on_compile", lambda report: [*map(report, compiled)])
    with progress("nothing is kept"):
        pass
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(";")[0] for line in lines] == [
        "compiling the simulation: up to a minute",
        "compiling kernels",
    ]
