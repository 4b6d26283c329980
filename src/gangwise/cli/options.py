"""What the commands share: options, what a target names, and the progress bar."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import gangwise
from gangwise.core.errors import ScenarioError

if TYPE_CHECKING:
    from gangwise.core.environment import Scenario
    from gangwise.experiments.comparison import Progress

__all__ = [
    "Json",
    "Settings",
    "Slots",
    "Target",
    "comparator_names",
    "open_target",
    "policy_names",
    "progress_bar",
    "say",
    "seed_list",
]

Target = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO_OR_TRACE",
        help="A scenario (see: gangwise list), with settings after a colon if wanted "
        "(ogasched-default-v1:contention=1,servers=64); a scenario file (.toml); or the file or "
        "folder of a trace.",
    ),
]
Slots = Annotated[int | None, typer.Option(help="Slots per run; the scenario's own by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of the scenario or trace."),
]


def open_target(target: str, settings: list[str] | None) -> Scenario:
    """The scenario that a target names: registered, a scenario file, or the files of a trace."""
    from gangwise.core.registry import parse

    given = parse("x:" + ",".join(settings))[1] if settings else {}
    path = Path(target)
    if path.suffix == ".toml":
        from gangwise.scenarios.files import read_scenario

        return read_scenario(path, given)
    if path.exists() or "/" in target or target.endswith((".csv", ".gz")):
        from gangwise.traces import open_trace

        traced: Scenario = open_trace(path, **given)
        return traced
    return gangwise.create_scenario(target, **given)


def policy_names(text: str | None, family: str) -> list[str]:
    """Policies of a list, separated by commas, with arguments; all of the family for None."""
    from gangwise.core.registry import entries

    if text is None:
        return [name for name, entry in entries("policy").items() if entry.family == family]
    names: list[str] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        if names and "=" in part.split(":")[0]:  # a further argument of the policy before it
            names[-1] += f",{part}"
        else:
            names.append(part)
    return names


def seed_list(text: str) -> list[int]:
    """Seeds: ``5`` means 0 to 4, ``3,7`` means these."""
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0:
        raise ScenarioError(f"--seeds {text!r}: give how many (5) or a list (3,7,9)")
    return list(range(numbers[0])) if "," not in text else numbers


def comparator_names(text: str | None) -> list[str] | None:
    """Comparators of a list separated by commas; None for all of them, ``none`` for none."""
    if text is None:
        return None
    names = (piece.strip() for piece in text.split(","))
    return [name for name in names if name not in ("", "none")]


def say(text: str) -> None:
    """Print a message to standard error."""
    print(text, file=sys.stderr)


@contextmanager
def progress_bar(saved: bool) -> Iterator[Progress]:
    """A progress bar on standard error, a word when kernels are compiled, and how to go on."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from gangwise.kernels import on_compile

    console = Console(stderr=True)
    told = False

    def compiling(name: str) -> None:
        nonlocal told
        if not told:
            told = True
            console.print("compiling kernels (only the first time on this machine) …")

    on_compile(compiling)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(), console=console, transient=True,
    ) as bar:  # fmt: skip
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, of: int) -> None:
            if what not in tasks:
                for earlier in tasks.values():
                    bar.remove_task(earlier)
                tasks.clear()
                tasks[what] = bar.add_task(what, total=of)
            bar.update(tasks[what], completed=done)

        try:
            yield tell
        except KeyboardInterrupt as stop:
            bar.stop()
            say(f"gangwise: interrupted: {stop or 'between two runs'}")
            if saved:
                again = shlex.join(["gangwise", *(a for a in sys.argv[1:] if a != "--resume")])
                say(f"to go on: {again} --resume")
            else:
                say("nothing was saved; with --out there is a checkpoint to go on from")
            raise typer.Exit(130) from None
