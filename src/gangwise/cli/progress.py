"""How far a command is: a bar in a terminal, a line a minute in a log; what to do after Ctrl-C."""

from __future__ import annotations

import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import typer

from gangwise.cli.options import say

if TYPE_CHECKING:
    from rich.console import Console

    from gangwise.experiments.progress import Progress

__all__ = ["command_line", "progress", "progress_lines"]

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
    """Show progress on standard error; Ctrl-C ends the command with exit code 130.

    Parameters
    ----------
    after_stop : str
        What to say after Ctrl-C: what is stored, and how to go on.
    """
    from rich.console import Console

    console = Console(stderr=True)
    _tell_of_compiling(console)
    try:
        if console.is_terminal:
            with _bar(console) as tell:
                yield tell
        else:
            yield progress_lines(say)
    except KeyboardInterrupt as stop:
        where = f": {stop}" if str(stop) else ""
        say(f"gangwise: interrupted{where}")
        say(after_stop)
        raise typer.Exit(130) from None


def _tell_of_compiling(console: Console) -> None:
    from gangwise.kernels import on_compile

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
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(), console=console, transient=True, speed_estimate_period=HOUR,
    ) as bar:  # fmt: skip
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
