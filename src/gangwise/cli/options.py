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
    "Family",
    "Json",
    "Settings",
    "Slots",
    "Target",
    "TraceOption",
    "comparator_names",
    "open_target",
    "policy_names",
    "progress_bar",
    "say",
    "seed_list",
    "settings_of",
]

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="SCENARIO_OR_TRACE",
        help="A scenario (see: gangwise list), with settings after a colon if wanted "
        "(ogasched-default-v1:contention=1,servers=64); a scenario file (.toml); or the file or "
        "folder of a trace, or the mapping of your own (.toml).",
        show_default=False,
    ),
]
TraceOption = Annotated[
    str | None,
    typer.Option("--trace", metavar="PATH", help="The file or folder of a trace, instead of "
                 "SCENARIO_OR_TRACE."),
]  # fmt: skip
Family = Annotated[
    str | None,
    typer.Option(help="Of a trace: gain_overhead, fluctuating_speeds or approximation_jobs. By "
                 "default gain_overhead, or what the trace is good for."),
]  # fmt: skip
Slots = Annotated[int | None, typer.Option(help="Slots per run; the scenario's own by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of the scenario or trace."),
]


def settings_of(pairs: list[str] | None, family: str | None = None) -> dict[str, Any]:
    """Settings out of ``key=value`` texts."""
    from gangwise.core.registry import parse

    given = parse("x:" + ",".join(pairs))[1] if pairs else {}
    if family is None:
        return given
    if given.setdefault("family", family) != family:
        raise ScenarioError(f"--family {family} and --set family={given['family']}: give one")
    return given


def open_target(
    target: str | None,
    settings: list[str] | None,
    trace: str | None = None,
    family: str | None = None,
) -> Scenario:
    """The scenario that a target names: registered, a scenario file, or the files of a trace."""
    from gangwise.traces.csv_mapping import is_mapping

    given = settings_of(settings, family)
    if (target is None) == (trace is None):
        raise ScenarioError("give a scenario or trace, or --trace PATH: one of the two")
    named = str(target if trace is None else trace)
    path = Path(named)
    if trace is None and path.suffix == ".toml" and not is_mapping(path):
        from gangwise.scenarios.files import read_scenario

        return read_scenario(path, given)
    files = path.exists() or "/" in named or named.endswith((".csv", ".gz"))
    if trace is not None or files or named.startswith("twin:"):
        from gangwise.traces import open_trace

        traced: Scenario = open_trace(path, **given)
        return traced
    if family is not None:
        raise ScenarioError(f"--family is for traces; the scenario {named!r} has a family")
    return gangwise.create_scenario(named, **given)


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
