"""Tables, prepared once and shown in the terminal, on a page, or written as CSV.

A :class:`Sheet` holds finished texts. :func:`rich_tables` lays sheets out for the terminal; the
template ``parts.html`` does it for pages.
"""

import csv
import io
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from gangwise.report.plotting import Looks
from gangwise.study.statistics import Estimate, decimals_for, estimate_text, number


@dataclass(frozen=True)
class Cell:
    """A finished text and the number to sort by; ``words`` are sorted as text."""

    text: str
    value: float = math.nan
    words: bool = False
    mark: str = ""  # a class for how it looks on a page
    half: float | None = None  # half the width of the 95 % confidence interval


Columns = list[tuple[str, list[Cell]]]
"""Headings, each with a cell for each row."""


@dataclass(frozen=True)
class Sheet:
    title: str
    columns: tuple[str, ...]  # headings after the one of the first column
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]  # what each is about, with its cells
    captions: tuple[str, ...] = ()  # what a reader must know, one sentence or more each
    first: str = "policy"  # heading of the first column
    looks: Looks = field(default_factory=dict)  # lines beside the names of rows, on a page
    links: Sequence[str] = ()  # where the name of each row leads, on a page
    data: Sequence[Mapping[str, str]] = ()  # data attributes of rows, by which a page chooses

    def words(self, column: int) -> bool:
        return bool(self.rows) and all(cells[column].words for _, cells in self.rows)


def columns_sheet(
    title: str,
    names: Sequence[str],
    columns: Sequence[tuple[str, Sequence[Cell]]],
    captions: tuple[str, ...] = (),
    first: str = "policy",
) -> Sheet:
    """A table from its columns: each a heading with a cell for each name; empty captions go."""
    rows = tuple((name, tuple(cells[i] for _, cells in columns)) for i, name in enumerate(names))
    captions = tuple(filter(None, captions))
    return Sheet(title, tuple(heading for heading, _ in columns), rows, captions, first)


def estimate_cells(
    estimates: Sequence[Estimate], sign: bool = False, least: int = 0, factor: float = 1.0
) -> list[Cell]:
    """Cells of one column, multiplied by a factor, with the same number of decimals, or ``least``.

    What is zero but for rounding is zero.
    """
    nothing = all(abs(e.mean) < 1e-9 and not (e.half or 0.0) > 1e-9 for e in estimates)
    estimates = [rescaled(e, 0.0 if nothing else factor) for e in estimates]
    decimals = max(least, decimals_for(estimates))
    # Without intervals there is no reason for more decimals.
    if least and all(e.half is None for e in estimates):
        decimals = least
    return [Cell(estimate_text(e, decimals, sign), e.mean, half=e.half) for e in estimates]


def value_cell(value: float, decimals: int = 0) -> Cell:
    return Cell(number(value, decimals), value)


def setting_cell(value: Any, digits: int = 6) -> Cell:
    """A setting, or an argument: numbers are sorted as such."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        text = f"{value:.{digits}g}" if isinstance(value, float) else str(value)
        return Cell(text, float(value))
    return Cell(str(value), words=True)


def time_cell(found: Estimate) -> Cell:
    return value_cell(found.mean, 1 if found.mean < 10 else 0)


def rescaled(estimate: Estimate, factor: float) -> Estimate:
    ends = (None if end is None else end * factor for end in estimate[1:])
    return Estimate(estimate.mean * factor, *ends)


# Long names, which may be broken after their separators


def pieces(name: str) -> list[str]:
    """A name cut after its separators.

    >>> pieces("ogasched-react:steps=3"), pieces("most*=0.5"), pieces("28,481 jobs")
    (['ogasched-', 'react:', 'steps=', '3'], ['most*=', '0.5'], ['28,481 ', 'jobs'])
    """
    # Neither a point between digits nor a comma between thousands is a separator.
    return re.findall(
        r"(?:[^-_:,=+.\s]|\.(?!\D)|(?<=\d),(?=\d{3}\b))+[-_:,=+.\s]*|[-_:,=+.\s]+", name
    )


def folded(name: str, width: int) -> str:
    """A name broken into lines of a width where its separators allow; existing lines are kept.

    >>> folded("ogasched-reserve-leftover", 17).splitlines()
    ['ogasched-reserve-', 'leftover']
    """
    lines = []
    for part in name.split("\n"):
        lines.append("")
        for piece in pieces(part):
            # Blanks at the end of a line take no room.
            if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


@dataclass(frozen=True)
class Breakable:
    """A name as Rich renders it, broken where the column is narrow; square brackets are text."""

    name: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(folded(self.name, options.max_width), overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        longest = max((len(piece) for piece in pieces(self.name)), default=1)
        # Rich gives a column no less: one long word must not take the width of all others.
        return Measurement(min(longest, 20), max(len(self.name), 1))


@dataclass(frozen=True)
class Blocks:
    """A table as Rich renders it; columns that do not fit go on below, under the same names."""

    sheet: Sheet

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names = [self.sheet.first, *(name for name, _ in self.sheet.rows)]
        names_width = min(max(map(cell_len, names)), int(NAMES * options.max_width))
        block: list[int] = []
        unused = options.max_width - names_width
        for i, heading in enumerate(self.sheet.columns):
            texts = [folded(heading, 12), *(cells[i].text for _, cells in self.sheet.rows)]
            width = max(cell_len(line) for text in texts for line in text.split("\n"))
            width = GAP + (min(width, WORDS) if self.sheet.words(i) else width)
            if block and width > unused:
                yield self._table(block)
                yield Text()
                block, unused = [], options.max_width - names_width
            block.append(i)
            unused -= width
        yield self._table(block)

    def _table(self, columns: Sequence[int]) -> Table:
        table = Table(
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
            header_style="none",
        )
        table.add_column(Text(self.sheet.first), vertical="top")
        for i in columns:
            words = self.sheet.words(i)
            table.add_column(
                Text(folded(self.sheet.columns[i], 12)),
                justify="left" if words else "right",
                # A number is never broken.
                no_wrap=not words,
                vertical="top",
            )
        for name, cells in self.sheet.rows:
            table.add_row(Breakable(name), *(Text(cells[i].text) for i in columns))
        return table


NAMES = 0.4  # names of rows may take this part of the width before columns go on below
WORDS = 24  # columns of words are at least so wide
GAP = 2  # characters between columns


def rich_tables(sheets: Iterable[Sheet]) -> Group:
    """Tables with their captions for the terminal; names are shown as they are."""
    parts: list[RenderableType] = []
    for sheet in sheets:
        parts += [Text(sheet.title, "bold"), Text(), Blocks(sheet), Text()]
        parts += [*(Text(caption, "dim") for caption in sheet.captions), Text()]
    return Group(*parts[:-1])


# Files


def markdown(sheet: Sheet) -> str:
    """A table in Markdown under its title, names as code."""
    heads = [sheet.first, *(heading.replace("\n", " ") for heading in sheet.columns)]
    rows = [[f"`{name}`", *(cell.text for cell in cells)] for name, cells in sheet.rows]
    lines = [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]
    return "\n\n".join([f"**{sheet.title}**", "\n".join(lines), *sheet.captions])


def csv_text(sheet: Sheet) -> str:
    """A table as CSV: full numbers, and half their intervals in columns of their own.

    >>> cells = tuple(estimate_cells([Estimate(2.04, 1.54, 2.54)]))
    >>> print(csv_text(Sheet("t", ("reward",), (("drf", cells),))), end="")
    policy,reward,reward ±
    drf,2.04,0.5
    """
    columns = range(len(sheet.columns))
    half = [any(cells[i].half is not None for _, cells in sheet.rows) for i in columns]
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    headings = [sheet.first]
    for heading, wide in zip(sheet.columns, half):
        name = heading.replace("\n", " ")
        headings += [name, f"{name} ±"] if wide else [name]
    table.writerow(headings)
    for name, cells in sheet.rows:
        row: list[str | float | None] = [name]
        for i, cell in enumerate(cells):
            row.append(cell.text if cell.words or math.isnan(cell.value) else cell.value)
            row += [cell.half] if half[i] else []
        table.writerow(row)
    return out.getvalue()


def time_unit(values: Sequence[float]) -> tuple[float, str]:
    """A unit for times in seconds; it suits the median, so that an outlier does not decide it."""
    times = [v for v in values if math.isfinite(v)] or [0.0]
    # A unit in which the middle of the column has one or two digits before the point.
    middle, largest = statistics.median(times), max(times)
    for size, name, below in ((86400.0, "days", 24), (3600.0, "h", 60), (60.0, "min", 60)):
        if middle >= 3 * size or largest >= 2000 * size / below:
            return size, name
    return 1.0, "s"
