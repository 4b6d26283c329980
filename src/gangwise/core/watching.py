"""Progress of what takes long inside, for a display: which file is read, and how far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str, int, int], None]
"""What is done, how much of it, and how much there is."""

_reports: list[Report] = []


@contextmanager
def watched(report: Report) -> Iterator[None]:
    """Have progress reported, until the block ends; only the innermost one receives it."""
    _reports.append(report)
    try:
        yield
    finally:
        _reports.remove(report)


def tell(what: str, done: int, of: int) -> None:
    if _reports:
        _reports[-1](what, done, of)
