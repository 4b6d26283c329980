"""Tables, prepared once and shown in the terminal or on a page.

A :class:`Sheet` holds finished texts. :func:`rich_tables` lays sheets out for the terminal; the
template ``parts.html`` does it for pages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from gangwise.experiments.statistics import Estimate, decimals_for, estimate_text, number

NONE = Estimate(math.nan, None, None)
"""Where there is nothing to show."""


@dataclass(frozen=True)
class Cell:
    """A finished text and the number to sort by; ``words`` are sorted as text.

    Attributes
    ----------
    mark : str
        A class for how it looks on a page.
    """

    text: str
    value: float = math.nan
    words: bool = False
    mark: str = ""


@dataclass(frozen=True)
class Sheet:
    """One table.

    Attributes
    ----------
    title : str
    columns : tuple of str
        Headings after the one of the first column.
    rows : tuple of (str, tuple of Cell)
        What each row is about, such as a policy, with its cells.
    captions : tuple of str
        What a reader must know, one sentence or more each.
    first : str
        Heading of the first column.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    captions: tuple[str, ...] = ()
    first: str = "policy"

    def words(self, column: int) -> bool:
        """Whether a column, counted from 0 after the first, is of words."""
        return all(cells[column].words for _, cells in self.rows)


def columns_sheet(
    title: str,
    names: Sequence[str],
    columns: Sequence[tuple[str, Sequence[Cell]]],
    captions: tuple[str, ...] = (),
    first: str = "policy",
) -> Sheet:
    """A table from its columns: each a heading with a cell for each name."""
    rows = tuple((name, tuple(cells[i] for _, cells in columns)) for i, name in enumerate(names))
    return Sheet(title, tuple(heading for heading, _ in columns), rows, captions, first)


def estimate_cells(estimates: Sequence[Estimate], sign: bool = False, least: int = 0) -> list[Cell]:
    """Cells of one column, all with the same number of decimals; at least so many if given."""
    decimals = max(least, decimals_for(estimates))
    if least and all(e.half is None for e in estimates):
        decimals = least
    return [Cell(estimate_text(e, decimals, sign), e.mean) for e in estimates]


def time_cell(found: Estimate) -> Cell:
    """A time, with a decimal where it is short."""
    return Cell(number(found.mean, 1 if found.mean < 10 else 0), found.mean)


def count_cell(value: int) -> Cell:
    """A whole number."""
    return Cell(number(value), value)


def rescaled(estimate: Estimate, factor: float) -> Estimate:
    """An estimate in another unit."""
    ends = (None if end is None else end * factor for end in estimate[1:])
    return Estimate(estimate.mean * factor, *ends)


# Long names, which may be broken after their separators


def pieces(name: str) -> list[str]:
    """A name cut after its separators.

    >>> pieces("ogasched-react:steps=3")
    ['ogasched-', 'react:', 'steps=', '3']
    """
    return re.findall(r"[^-_:,=\s]+[-_:,=\s]*|[-_:,=\s]+", name)


def folded(name: str, width: int) -> str:
    """A name broken into lines of a width where its separators allow; existing lines are kept.

    >>> folded("ogasched-reserve-leftover", 17).splitlines()
    ['ogasched-reserve-', 'leftover']
    """
    lines = []
    for part in name.split("\n"):
        lines.append("")
        for piece in pieces(part):
            if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


@dataclass(frozen=True)
class Breakable:
    """A name as Rich renders it, broken where the column is narrow; square brackets are text."""

    name: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The name in as many lines as the width asks for."""
        yield Text(folded(self.name, options.max_width), overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Between the longest piece and the whole name."""
        longest = max((len(piece) for piece in pieces(self.name)), default=1)
        return Measurement(min(longest, 20), max(len(self.name), 1))


def rich_tables(sheets: Iterable[Sheet], heading_width: int = 12) -> Group:
    """Tables with their captions for the terminal; names are shown as they are."""
    parts: list[RenderableType] = []
    for sheet in sheets:
        table = Table(
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
            header_style="none",
        )
        table.add_column(Text(sheet.first), vertical="top")
        for i, heading in enumerate(sheet.columns):
            words = bool(sheet.rows) and sheet.words(i)
            table.add_column(
                Text(folded(heading, heading_width)),
                justify="left" if words else "right",
                no_wrap=not words,
                vertical="top",
            )
        for name, cells in sheet.rows:
            table.add_row(Breakable(name), *(Text(cell.text) for cell in cells))
        parts += [Text(sheet.title, "bold"), Text(), table, Text()]
        parts += [*(Text(caption, "dim") for caption in sheet.captions), Text()]
    return Group(*parts[:-1])
