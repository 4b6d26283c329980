"""A name in a terminal table: broken after its separators when the column is narrow."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

from gangwise.report.names import folded, pieces


@dataclass(frozen=True)
class Breakable:
    """A name as Rich renders it; square brackets in it are no markup."""

    name: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The name in as many lines as the width asks for."""
        yield Text(folded(self.name, options.max_width), overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Between the longest piece and the whole name."""
        longest = max((len(piece) for piece in pieces(self.name)), default=1)
        return Measurement(min(longest, 20), max(len(self.name), 1))
