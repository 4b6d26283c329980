"""Shared by the commands: options, targets, tables, progress, and what to say after Ctrl-C."""

from __future__ import annotations

import re
import shlex
import sys
import time
import tomllib
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import cache
from glob import glob, has_magic
from importlib.resources import files
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from gangwise.core.errors import ScenarioError, StoreError
from gangwise.core.registry import ANY, Kind, entries, names_of
from gangwise.core.terminal import exit_code, json_shown, shown, stops_kept, watched

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from gangwise.report.page import Page
    from gangwise.report.tables import Sheet
    from gangwise.study.runs import NamedSource
    from gangwise.study.sweep import Progress


def _last(incomplete: str, known: Iterable[str], separators: str = ",") -> list[str]:
    """Completions of the last piece of a list, with what stands before it.

    >>> _last("drf,gr", ["drf", "greedy", "gang-greedy"])
    ['drf,greedy']
    """
    # After the last separator, whichever that is.
    cut = max(incomplete.rfind(separator) for separator in separators) + 1
    head, begun = incomplete[:cut], incomplete[cut:]
    return [head + name for name in sorted(known) if name.startswith(begun)]


def _files(incomplete: str) -> list[str]:
    """Files and folders, as a shell completes them by itself where nothing else is offered."""
    # A name with a star would itself be expanded.
    names = [] if has_magic(incomplete) else sorted(glob(incomplete + "*"))
    return [name + "/" if Path(name).is_dir() else name for name in names]


def _names(kind: Kind) -> list[str]:
    return [name for name in entries(kind) if name != ANY]


def _schedulers(incomplete: str) -> list[str]:
    """Schedulers, separated by commas, whose parts are joined by plus signs."""
    parts = []
    # A class in a file has no parts to be combined.
    if not incomplete.endswith(".py"):
        from gangwise.catalogue import parts as parts_of

        parts = [*parts_of("queue"), *parts_of("backfilling"), *parts_of("choice")]
    return _last(incomplete, [*parts, *_names("scheduler")], ",+ ") or _files(incomplete)


def _trace_or_file(incomplete: str) -> list[str]:
    from gangwise.logs.twins import NAMES

    return _last(incomplete, [f"twin:{name}" for name in NAMES], "\0") + _files(incomplete)


def _there(path: Any) -> Any:
    """Refuse a file that is not there before its command imports what plays it."""
    file = Path(path) if isinstance(path, str | Path) else None
    # A name with a colon, as ``twin:…`` or ``mine.py:Mine``, is no file of a log.
    if file is not None and file.suffix and ":" not in file.name and not file.exists():
        from gangwise.logs import require_there

        require_there(file)
    return path


def scheduler_names(text: str) -> list[str]:
    """Names of a list separated by commas or blanks; the parts of a name may stand apart.

    >>> scheduler_names("fcfs + easy las:thresholds=(60, 600),sjf")
    ['fcfs+easy', 'las:thresholds=(60, 600)', 'sjf']
    """
    tight = re.sub(r"\s*\+\s*", "+", text)
    # Blanks within brackets do not separate.
    return names_of(re.sub(r"\s+(?![^(\[]*[)\]])", ",", tight))


def _named(text: Any) -> Any:
    """Refuse a scheduler that nothing has before its command imports what plays it."""
    from gangwise.catalogue import require_scheduler

    names = scheduler_names(text) if isinstance(text, str) else []
    if text and not names:
        raise ScenarioError(f"{text!r} names no scheduler; write fcfs+easy,sjf+easy")
    for name in names:
        require_scheduler(name)
    return text


CALLBACKS = {"trace_or_file": _there, "schedulers": _named}

COMPLETERS: dict[str, Callable[[str], list[str]]] = {
    "scenario_or_file": lambda incomplete: (
        _last(incomplete, _names("scenario"), "\0") + _files(incomplete)
    ),
    "trace_or_file": _trace_or_file,
    "policies": lambda incomplete: _last(incomplete, _names("policy")) or _files(incomplete),
    "schedulers": _schedulers,
    "deciders": lambda incomplete: [*_last(incomplete, _names("policy")), *_schedulers(incomplete)],
    "comparators": lambda incomplete: _last(
        incomplete, {"none", *(name.rpartition("/")[2] for name in _names("comparator"))}
    ),
    "trace_names": lambda incomplete: _last(incomplete, _names("trace")),
    "families": lambda incomplete: _last(incomplete, _names("family")),
}
"""Completions by their names in ``commands.toml``; typer needs the argument's name."""


@cache
def _described() -> dict[str, Any]:
    return tomllib.loads((files("gangwise.cli") / "commands.toml").read_text(encoding="utf-8"))


def add_command(app: typer.Typer, function: Callable[..., None], group: str = "") -> None:
    """Make a function a command: its options are described in ``commands.toml``.

    Types and defaults are those of the function; its docstring is the help.
    """
    name = function.__name__.removesuffix("_command")
    shared, own = _described()["options"], _described()["commands"][group + name]
    hints = get_type_hints(function)
    for parameter in signature(function).parameters:
        about = own.get(parameter, shared.get(parameter))
        about = {"help": about} if isinstance(about, str) else dict(about)
        names = about.pop("names", ())
        if complete := about.pop("complete", ""):
            about["autocompletion"] = COMPLETERS[complete]
        if complete in CALLBACKS:
            about["callback"] = CALLBACKS[complete]
        kind: Any = typer.Argument if about.pop("argument", False) else typer.Option
        option = kind(*([names] if isinstance(names, str) else names), **about)
        hints[parameter] = Annotated[hints[parameter], option]
    # typer reads them when the command is added.
    function.__annotations__ = hints
    app.command(
        name.replace("_", "-"),
        rich_help_panel=own.get("panel"),
        epilog=f"Example: {own['example']}",
    )(function)


def settings_of(pairs: list[str] | None, family: str | None = None) -> dict[str, Any]:
    from gangwise.core.registry import parse

    values: dict[str, Any] = {}
    for pair in pairs or ():
        if "=" not in pair:
            raise ScenarioError(f"--set {pair}: write KEY=VALUE")
        key = pair.partition("=")[0].strip()
        try:
            given = parse(f"x:{pair}")[1]
        except ScenarioError:  # one value with commas, as columns=JobID,User
            given = {key: pair.partition("=")[2]}
        # Twice the same is no contradiction.
        if key in values and values[key] != given.get(key):
            raise ScenarioError(f"--set {key} is given twice: give one of the two")
        values |= given
    if family is None:
        return values
    if values.setdefault("family", family) != family:
        raise ScenarioError(f"--family {family} and --set family={values['family']}: give one")
    return values


def numbers_of(texts: list[str] | None, option: str, how: str, sign: str = "=") -> dict[str, float]:
    """Numbers by name, out of texts ``NAME=NUMBER``, or with another sign between the two.

    >>> numbers_of(["model=a100:2.5"], "--rate", "LABEL=VALUE:RATE", ":")
    {'model=a100': 2.5}
    """
    numbers: dict[str, float] = {}
    for text in texts or ():
        name, _, value = text.rpartition(sign)
        try:
            numbers[name.strip()] = float(value)
        except ValueError:
            raise ScenarioError(f"{option} {text}: write {how}") from None
    return numbers


def source_of(
    target: str | None,
    settings: list[str] | None,
    trace: str | None = None,
    family: str | None = None,
) -> NamedSource:
    """The source that a target names, with settings as they are typed."""
    from gangwise.study.runs import named_source

    if (target is None) == (trace is None):
        raise ScenarioError("give a scenario or trace, or --trace PATH: one of the two")
    # What --trace names is a trace, whatever it looks like.
    values = settings_of(settings, family)
    if trace is not None:
        return named_source(trace, values, trace=True)
    return named_source(str(target), values, family=family)


def seed_list(text: str, option: str = "--seeds") -> list[int]:
    """Seeds out of a text: ``5`` means 0 to 4, ``3,7`` means these two."""
    from gangwise.core.settings import MOST_SEEDS

    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    # ``5,`` is a list of one seed, ``5`` a number of seeds.
    is_count = len(numbers) == 1 and "," not in text
    # Before a list of so many is made.
    if (is_count and numbers[0] > MOST_SEEDS) or len(numbers) > MOST_SEEDS:
        raise ScenarioError(f"{option} {text[:40]!r}: at most {MOST_SEEDS} seeds")
    seeds = list(range(numbers[0])) if is_count else numbers
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


def json_text(value: Any) -> str:
    """JSON, by a module that takes a tenth of a second to import: only where it is asked for."""
    from gangwise.core import settings

    return json_shown(settings.json_text(value))


def echo(text: object = "", end: str = "\n") -> None:
    print(shown(str(text)), end=end)


def say(text: str) -> None:
    print(shown(text), file=sys.stderr)


def require_folder(out: Path | None, jobs: bool | None = None) -> None:
    """Refuse a file, or a folder of another kind, before anything is computed.

    Replays of ``jobs`` and experiments of slots are of two kinds, each with a ``report.html``.
    """
    if out is None:
        return
    above = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not above.is_dir():
        raise StoreError(f"{above} is no folder; give a folder, or another name")
    if jobs is None or above != out:
        return
    plans = sorted(path.name.removesuffix(".plan.json") for path in out.glob("*.plan.json"))
    other = [name for name in plans if (name == "replay") != jobs]
    other += ["a service"] * (out / "service.sqlite").exists()
    if other:
        raise StoreError(f"{out} holds results of {other[0]}; give --out a folder of its own")


def give(
    name: str,
    data: Any,
    show: Callable[[], object],
    page: Callable[[str], Page],
    out: Path | None,
    as_json: bool,
) -> None:
    """An answer as text or JSON, and with ``out`` as a page beside the same JSON: ``NAME.html``.

    ``page`` takes the command line, from which its reader makes it again.
    """
    # Once for both, as of large answers it takes seconds.
    plain = json_text(data) if as_json or out else ""
    if as_json:
        echo(plain)
    else:
        show()
    if out is not None:
        write_page(out, name, page(command_line()), plain)


def write_page(out: Path, name: str, page: Page, plain: str) -> None:
    """Write the page of an answer and the same as JSON: ``NAME.html`` and ``NAME.json``."""
    from gangwise.core.files import Folder
    from gangwise.report.page import html

    with Folder(out).publish(name) as publication:
        publication.write(f"{name}.json", plain + "\n")
        publication.write(f"{name}.html", html(page))
    say(f"wrote {name}.html and {name}.json to {out}")


WIDE = 120  # columns where output is not a terminal's


def screen(wide: bool = True, stderr: bool = False) -> Console:
    """A console that shows what strangers wrote: texts have no markup and no control characters.

    It is as wide as the terminal; where there is none, ``wide`` is :data:`WIDE`, else 80.
    """
    from rich.console import Console
    from rich.segment import Segment
    from rich.text import Text

    # Rich would read square brackets in names as markup.
    class Screen(Console):
        def render_str(self, text: str, **how: Any) -> Text:
            looks = {key: how[key] for key in ("style", "justify", "overflow") if how.get(key)}
            return Text(shown(text), **looks)

        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            # What Rich sends to move the cursor is left alone.
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else shown(text), style, control)

    console = Screen(highlight=False, stderr=stderr)
    if console.is_terminal or not wide:
        return console
    return Screen(highlight=False, stderr=stderr, width=WIDE)


def paragraph(text: str) -> None:
    """Print a text as it is: no markup, no colours, and the terminal wraps it."""
    screen(wide=False).print(text, highlight=False, markup=False, soft_wrap=True)


def show(
    sheets: Iterable[Sheet], heading: str = "", lines: Iterable[str] = (), wide: bool = True
) -> None:
    """Print a heading and lines, if there are any, and tables of a report."""
    from gangwise.report.tables import rich_tables

    console, text = screen(wide), "\n".join(lines)
    if heading:
        console.print(heading, style="bold")
    if text:
        console.print(text)
    console.print(rich_tables(sheets))


def table(
    headings: Sequence[str], rows: Iterable[Sequence[Any]], left: Container[int] = (0,)
) -> Table:
    """A table for a terminal; columns are aligned to the right, but for those named ``left``.

    Cells are texts, or anything that Rich renders; square brackets in texts are no markup.
    """
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False)
    for i, heading in enumerate(headings):
        if i in left:
            grid.add_column(Text(shown(heading)), justify="left", overflow="fold")
        else:
            grid.add_column(Text(shown(heading)), justify="right", overflow="ellipsis")
    for row in rows:
        grid.add_row(*(Text(shown(cell)) if isinstance(cell, str) else cell for cell in row))
    return grid


MINUTE = 60.0  # seconds between two lines of a log
RECENT = 10  # the last lines of a log, from which the time left is estimated
HOUR = 3600.0  # seconds over which a bar measures its speed: a single run may well take minutes


def command_line() -> str:
    return shlex.join(["gangwise", *sys.argv[1:]])


def after_stop(out: Path | None) -> str:
    """Text for after Ctrl-C: what is stored, and how to continue."""
    if out is None:
        return "nothing was saved; with --out a run can be continued"
    return f"finished runs are stored\nto go on: {command_line()}"


@contextmanager
def progress(when_stopped: str, compiles: bool = True) -> Iterator[Progress]:
    """Show progress on standard error; Ctrl-C ends the command with code 130, SIGTERM with 143.

    ``when_stopped`` is what to say after Ctrl-C: what is stored, and how to go on. A command that
    ``compiles`` nothing need not load the compiler.
    """
    console, reported = screen(wide=False, stderr=True), set[str]()
    if compiles:
        from gangwise.core.jit import on_compile

        def compiling(kernel: str) -> None:
            part = "the simulation: up to a minute" if kernel == "play" else "kernels"
            # Kernels are compiled one by one, and announced once.
            if part not in reported:
                console.print(f"compiling {part}; kept for the next command like this …")
            reported.add(part)

        on_compile(compiling)
    try:
        shows = _bar(console) if console.is_terminal else nullcontext(progress_lines(say))
        # Stops are held back first, so that the bar is always taken down.
        with stops_kept(), shows as by, watched(by):
            yield by
    except KeyboardInterrupt as stop:
        place = f": {stop}" if str(stop) else ""
        say(f"gangwise: interrupted{place}")
        say(when_stopped)
        raise typer.Exit(exit_code(stop)) from None


@contextmanager
def _bar(console: Console) -> Iterator[Progress]:
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as ProgressBar

    description = TextColumn("{task.description}", markup=False)
    columns = description, BarColumn(), TextColumn("{task.percentage:>3.0f} %")
    with ProgressBar(
        *columns, TimeRemainingColumn(), console=console, transient=True, speed_estimate_period=HOUR
    ) as bar:
        tasks: dict[str, Any] = {}

        def advance(what: str, done: int, of: int) -> None:
            if what not in tasks:
                # One bar at a time.
                for earlier in tasks.values():
                    bar.remove_task(earlier)
                tasks.clear()
                tasks[what] = bar.add_task(what, total=of)
            bar.update(tasks[what], completed=done)

        yield advance


def progress_lines(
    write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> Progress:
    """Progress that writes a line a minute, at most: what, done, of how many, and the time left.

    Examples
    --------
    >>> seconds = iter([0.0, 30.0, 90.0])
    >>> advance = progress_lines(print, clock=lambda: next(seconds))
    >>> advance("small", 100, 400), advance("small", 110, 400), advance("small", 130, 400)
    small: 130 of 400, 0:13:30 left
    (None, None, None)
    """
    marks: dict[str, deque[tuple[float, int]]] = {}
    written: float | None = None

    def advance(what: str, done: int, of: int) -> None:
        nonlocal written
        at_now = clock()
        written = at_now if written is None else written
        recent = marks.setdefault(what, deque([(at_now, done)], maxlen=RECENT))
        if at_now - written < MINUTE:
            return
        (at, begun), remaining, written = recent[0], "", at_now
        recent.append((at_now, done))
        if begun + 1 < done < of:  # one alone may be the one that waited for kernels
            seconds = round((at_now - at) / (done - begun) * (of - done))
            remaining = f", {timedelta(seconds=seconds)} left"
        write(f"{what}: {done} of {of}{remaining}")

    return advance
