"""What the commands share: options, and what a target names.

How far a command is: a bar in a terminal, a line a minute in a log; what to do after Ctrl-C.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gangwise.cli import completion
from gangwise.core.errors import ScenarioError
from gangwise.core.interrupt import exit_code, stops_kept

if TYPE_CHECKING:
    from rich.console import Console

    from gangwise.experiments.runs import NamedSource
    from gangwise.experiments.sweep import Progress


Target = Annotated[
    str | None,
    typer.Argument(
        metavar="SCENARIO_OR_TRACE",
        help="A scenario (see: gangwise list), with settings after a colon if wanted "
        "(ogasched-default-v1:contention=1,servers=64); a scenario file (.toml); or the file or "
        "folder of a trace, or the mapping of your own (.toml).",
        show_default=False,
        autocompletion=completion.scenario_or_file,
    ),
]
TraceOption = Annotated[
    str | None,
    typer.Option(
        "--trace",
        metavar="PATH",
        help="The file or folder of a trace, instead of SCENARIO_OR_TRACE.",
    ),
]
Family = Annotated[
    str | None,
    typer.Option(
        help="Of a trace: gain_overhead, fluctuating_speeds or approximation_jobs. By "
        "default gain_overhead, or what the trace is good for.",
        autocompletion=completion.families,
    ),
]
Slots = Annotated[int | None, typer.Option(help="Slots per run; the scenario's own by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Isolated = Annotated[
    bool,
    typer.Option(
        "--isolated",
        help="Play classes of others (file.py:Class) in processes of their own, which see "
        "observations only. They are slower there, and decide the same.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of the scenario or trace."),
]
Jobs = Annotated[int, typer.Option(help="Workers; all cores, or all of the cluster, by default.")]
BackendName = Annotated[
    Literal["loky", "dask", "ray"],
    typer.Option("--backend", help="loky: processes here; dask, ray: a cluster that is running."),
]
Address = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Of the Dask scheduler or the Ray cluster.")
]


def settings_of(pairs: list[str] | None, family: str | None = None) -> dict[str, Any]:
    """Settings out of ``key=value`` texts."""
    from gangwise.core.registry import parse

    for pair in pairs or ():
        if "=" not in pair:
            raise ScenarioError(f"--set {pair}: write KEY=VALUE")
    given = parse("x:" + ",".join(pairs))[1] if pairs else {}
    if family is None:
        return given
    if given.setdefault("family", family) != family:
        raise ScenarioError(f"--family {family} and --set family={given['family']}: give one")
    return given


def source_of(
    target: str | None,
    settings: list[str] | None,
    trace: str | None = None,
    family: str | None = None,
) -> NamedSource:
    """What a target names, with settings as they are typed."""
    from gangwise.experiments.runs import named_source

    if (target is None) == (trace is None):
        raise ScenarioError("give a scenario or trace, or --trace PATH: one of the two")
    given = settings_of(settings, family)
    if trace is not None:
        return named_source(trace, given, trace=True)
    return named_source(str(target), given, family=family)


def seed_list(text: str, option: str = "--seeds") -> list[int]:
    """Seeds: ``5`` means 0 to 4, ``3,7`` means these."""
    from gangwise.core.limits import MOST_SEEDS

    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    many = len(numbers) == 1 and "," not in text
    if (many and numbers[0] > MOST_SEEDS) or len(numbers) > MOST_SEEDS:
        raise ScenarioError(f"{option} {text[:40]!r}: at most {MOST_SEEDS} seeds")
    seeds = list(range(numbers[0])) if many else numbers
    if not seeds or min(seeds) < 0:
        raise ScenarioError(f"{option} {text!r}: give how many (5) or a list (3,7,9)")
    if len(set(seeds)) < len(seeds):
        raise ScenarioError(f"{option} {text!r}: a seed is listed twice")
    return seeds


def comparator_names(text: str | None) -> list[str] | None:
    """Comparators of a list separated by commas; None for all of them, ``none`` for none."""
    if text is None:
        return None
    names = (piece.strip() for piece in text.split(","))
    return [name for name in names if name not in ("", "none")]


def say(text: str) -> None:
    """Print a message to standard error."""
    print(text, file=sys.stderr)


WIDE = 120
"""Columns where output is not a terminal's."""


def screen() -> Console:
    """Where tables go: as wide as the terminal, or :data:`WIDE` where there is none."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDE)


MINUTE = 60.0
"""Seconds between two lines of a log."""

RECENT = 10
"""Lines of a log that the time left is told from: what comes next goes as fast as what was last."""

HOUR = 3600.0
"""Seconds over which a bar looks at how fast it goes; a single run may well take minutes."""


def command_line(*without: str) -> str:
    """The command as it was typed."""
    return shlex.join(["gangwise", *(word for word in sys.argv[1:] if word not in without)])


@contextmanager
def progress(after_stop: str) -> Iterator[Progress]:
    """Show progress on standard error; Ctrl-C ends the command with code 130, SIGTERM with 143.

    Parameters
    ----------
    after_stop : str
        What to say after Ctrl-C: what is stored, and how to go on.
    """
    from rich.console import Console

    console = Console(stderr=True)
    _tell_of_compiling(console)
    try:
        with stops_kept():
            if console.is_terminal:
                with _bar(console) as tell:
                    yield tell
            else:
                yield progress_lines(say)
    except KeyboardInterrupt as stop:
        where = f": {stop}" if str(stop) else ""
        say(f"gangwise: interrupted{where}")
        say(after_stop)
        raise typer.Exit(exit_code(stop)) from None


def _tell_of_compiling(console: Console) -> None:
    from gangwise.core.jit import on_compile

    told = False

    def compiling(name: str) -> None:
        nonlocal told
        if not told:
            told = True
            console.print("compiling kernels (only the first time on this machine) …")

    on_compile(compiling)


@contextmanager
def _bar(console: Console) -> Iterator[Progress]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        speed_estimate_period=HOUR,
    ) as bar:
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, of: int) -> None:
            if what not in tasks:
                for earlier in tasks.values():
                    bar.remove_task(earlier)
                tasks.clear()
                tasks[what] = bar.add_task(what, total=of)
            bar.update(tasks[what], completed=done)

        yield tell


def progress_lines(
    write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> Progress:
    """Progress that writes a line a minute, at most: what, done, of how many, and the time left.

    Examples
    --------
    >>> seconds = iter([0.0, 30.0, 90.0])
    >>> tell = progress_lines(print, clock=lambda: next(seconds))
    >>> tell("small", 100, 400), tell("small", 110, 400), tell("small", 130, 400)
    small: 130 of 400, 0:13:30 left
    (None, None, None)
    """
    marks: dict[str, deque[tuple[float, int]]] = {}
    written: float | None = None

    def tell(what: str, done: int, of: int) -> None:
        nonlocal written
        now = clock()
        written = now if written is None else written
        recent = marks.setdefault(what, deque([(now, done)], maxlen=RECENT))
        if now - written < MINUTE:
            return
        written = now
        at, first = recent[0]
        recent.append((now, done))
        left = ""
        if first < done < of:
            seconds = round((now - at) / (done - first) * (of - done))
            left = f", {timedelta(seconds=seconds)} left"
        write(f"{what}: {done} of {of}{left}")

    return tell
