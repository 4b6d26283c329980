"""Every command helps with an example, and every example is one that the command would take."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from gangwise.cli import app


def commands(group: Any, name: str = "gangwise") -> Iterator[tuple[str, Any]]:
    for called, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} {called}")
        else:
            yield f"{name} {called}", command


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", ALL)
def test_every_command_shows_an_example_that_it_takes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = (ALL[name].epilog or "").removeprefix("Example: ")
    assert example.startswith(name)
    words = shlex.split(example.removeprefix(name))
    monkeypatch.chdir(tmp_path)
    for word in words:
        Path(word).touch() if Path(word).suffix and "/" not in word else None
    context = ALL[name].make_context(name, words)  # parses and checks, calls nothing
    assert context.command is ALL[name]
    if name == "gangwise rank":  # all that follows is the command to be measured, --help as well
        return
    assert "Example:" in CliRunner().invoke(app, [*name.split()[1:], "--help"]).output


def test_the_example_of_tune_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    words = shlex.split((ALL["gangwise tune"].epilog or "").removeprefix("Example: gangwise "))
    fewer = ["--trials", "2", "--slots", "10", "--seeds", "1,2", "--validation", "3,4"]
    done = CliRunner().invoke(app, [*words, *fewer])
    assert done.exit_code == 0, (done.output, done.exception)


def completed(*words: str) -> list[str]:
    """What a shell offers for the last of the words."""
    line = " ".join(["gangwise", *words])
    told = {
        "_GANGWISE_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words)),
    }
    found = CliRunner().invoke(app, [], env=told, prog_name="gangwise")
    return found.output.split()


def test_a_shell_completes_values() -> None:
    assert "ogasched-default-v1" in completed("compare", "ogasched-d")
    assert completed("compare", "x", "--policies", "drf,gree") == ["drf,greedy"]
    assert completed("run", "ogasched-default-v1", "ogasched-rea") == ["ogasched-react"]
    assert "fcfs+easy" in completed("replay", "--policies", "fcfs+ea")
    assert "twin:alibaba-gpu-v2023" in completed("replay", "twin:alibaba-gpu-v202")
    assert completed("trace", "plot", "--trace", "phil") == ["philly"]
    assert completed("list", "--family", "fluctuating_speeds_") == ["fluctuating_speeds_gang"]


def test_list_by_family() -> None:
    shown = CliRunner().invoke(app, ["list", "--family", "gain_overhead"]).output
    assert "ogasched-react" in shown
    assert "esdp-default-v1" not in shown
    assert "gavel" in CliRunner().invoke(app, ["list", "--family", "jobs"]).output
    wrong = CliRunner().invoke(app, ["list", "--family", "gain"])
    assert "did you mean gain_overhead" in str(wrong.exception)
