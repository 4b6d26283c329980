"""A bar for what takes longer than two seconds: bytes read, and the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["PATIENCE", "reading_bar"]

PATIENCE = 2.0
"""Seconds before the bar is shown."""


@contextmanager
def reading_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function to be called with bytes done and bytes in all; draws on standard error."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
        DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    task, begun, shown = bar.add_task(what), time.monotonic(), False

    def tell(done: int, of: int) -> None:
        nonlocal shown
        bar.update(task, completed=done, total=of)
        if not shown and time.monotonic() - begun > PATIENCE:
            bar.start()
            shown = True

    try:
        yield tell
    finally:
        if shown:
            bar.stop()
