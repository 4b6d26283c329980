"""The tables of a comparison: prepared once, shown in the terminal or as HTML.

A :class:`Sheet` holds finished texts; :func:`rich_table` and :func:`html_table` only lay them out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from gangwise.experiments.compare import Comparison
from gangwise.experiments.statistics import Estimate
from gangwise.report.names import folded, html_name
from gangwise.report.numbers import NOTHING, decimals_for, estimate_text, number, scale_for
from gangwise.report.sentences import about_comparator, about_interval, has_share, plain, seeds_text

if TYPE_CHECKING:
    from rich.console import Group


_MATRIX = 5
"""More policies than this, and only the best policy is compared with each other one."""


@dataclass(frozen=True)
class Cell:
    """A finished text and the number to sort by; ``words`` are sorted as text."""

    text: str
    value: float = math.nan
    words: bool = False
    mark: str = ""
    """A class for how it looks."""


@dataclass(frozen=True)
class Sheet:
    """One table.

    Attributes
    ----------
    title : str
    columns : tuple of str
        Headings after the one of the policies.
    rows : tuple of (str, tuple of Cell)
        Each policy with its cells.
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


def sheets(comparison: Comparison) -> list[Sheet]:
    """The results, and the paired improvements where there is more than one policy."""
    found = [results_sheet(comparison)]
    if len(comparison.policies) > 1:
        found.append(improvement_sheet(comparison))
    return found


def results_sheet(comparison: Comparison) -> Sheet:
    """Reward, share of the optimum, regrets and time of each policy, best first."""
    rows = comparison.table()
    names = comparison.comparator_names
    columns = [("average\nreward\nper slot", estimate_cells([row.reward for row in rows]))]
    if names:
        optimum = names[-1]
        shares = [rescaled(row.share_of[optimum], 100) for row in rows]
        if not has_share(comparison, optimum):
            shares = [Estimate(math.nan, None, None)] * len(rows)
        columns.append((f"share of\n{plain(optimum)}, %", estimate_cells(shares, least=1)))
    scale, unit = scale_for([row.regret[name].mean for row in rows for name in names])
    for name in names:
        regrets = [rescaled(row.regret[name], 1 / scale) for row in rows]
        heading = f"regret vs\n{name}" + (f"\nin {unit}" if unit else "")
        columns.append((heading, estimate_cells(regrets)))
    times = [row.us_per_slot for row in rows]
    columns.append(("µs per\nslot", [Cell(number(us, 1 if us < 10 else 0), us) for us in times]))
    cells = list(zip(*(column for _, column in columns)))
    return Sheet(
        f"{comparison.scenario.name}: {comparison.slots:,} slots, {seeds_text(comparison)}",
        tuple(heading for heading, _ in columns),
        tuple((row.policy, each) for row, each in zip(rows, cells)),
        (
            f"{about_interval(comparison).capitalize()}. Regret is the comparator's total reward "
            "minus the policy's: below 0 is better than the comparator.",
            *(about_comparator(comparison, name) for name in names),
        ),
    )


def improvement_sheet(comparison: Comparison) -> Sheet:
    """How much more each row earned than each column; of the best policy only, when many."""
    rows = comparison.table()
    best, policies = rows[0], [row.policy for row in rows]
    paired = "paired by seed; " if len(comparison.seeds) > 1 else ""
    caption = f"{paired}{about_interval(comparison)}".capitalize() + "."
    if any(len(row.over) < len(rows) - 1 for row in rows):
        caption += f" {NOTHING}: a percentage of a reward that is not positive says nothing."
    unknown = Estimate(math.nan, None, None)
    if len(rows) > _MATRIX:
        over = [best.over.get(policy, unknown) for policy in policies[1:]]
        cells = [(cell,) for cell in estimate_cells(over, sign=True, least=1)]
        return Sheet(
            f"Improvement of {best.policy} over each other policy, %",
            ("improvement",),
            tuple(zip(policies[1:], cells)),
            (caption,),
        )
    flat = [row.over.get(policy, unknown) for row in rows for policy in policies]
    every = estimate_cells(flat, sign=True, least=1)
    n = len(rows)
    cells_of = [tuple(Cell("") if i == j else every[i * n + j] for j in range(n)) for i in range(n)]
    return Sheet(
        "Improvement of the row over the column, %",
        tuple(policies),
        tuple(zip(policies, cells_of)),
        (caption,),
    )


def estimate_cells(estimates: Sequence[Estimate], sign: bool = False, least: int = 0) -> list[Cell]:
    """Cells of one column, all with the same number of decimals; at least so many if given."""
    decimals = max(least, decimals_for(estimates))
    if least and all(e.half is None for e in estimates):
        decimals = least
    return [Cell(estimate_text(e, decimals, sign), e.mean) for e in estimates]


def rescaled(estimate: Estimate, factor: float) -> Estimate:
    """An estimate in another unit."""
    ends = (None if end is None else end * factor for end in estimate[1:])
    return Estimate(estimate.mean * factor, *ends)


def rich_table(comparison: Comparison) -> Group:
    """The tables and their captions for the terminal; they fit 80 to 100 columns.

    Names are shown as they are: square brackets in them are no markup.
    """
    from rich import box
    from rich.console import Group, RenderableType
    from rich.table import Table
    from rich.text import Text

    from gangwise.report.terminal import Breakable

    parts: list[RenderableType] = []
    for sheet in sheets(comparison):
        table = Table(
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
            header_style="none",
        )
        table.add_column("policy", vertical="top")
        for heading in sheet.columns:
            text = Text(folded(heading, 12))
            table.add_column(text, justify="right", no_wrap=True, vertical="top")
        for policy, cells in sheet.rows:
            table.add_row(Breakable(policy), *(Text(cell.text) for cell in cells))
        parts += [Text(sheet.title, "bold"), Text(), table, Text()]
        parts += [*(Text(caption, "dim") for caption in sheet.captions), Text()]
    return Group(*parts[:-1])


def html_table(
    sheet: Sheet,
    mark: Callable[[str], str] = lambda policy: "",
    link: Callable[[int], str] = lambda i: "",
    row: Callable[[int], str] = lambda i: "",
) -> str:
    """A sheet as an HTML table whose headings sort it.

    Parameters
    ----------
    sheet : Sheet
    mark : callable
        HTML to put before a policy's name, such as a sample of its line.
    link : callable
        Where on the page the name of the i-th row leads, empty for nowhere.
    row : callable
        Further attributes of the i-th row, as HTML.
    """
    words = [all(cells[j].words for _, cells in sheet.rows) for j in range(len(sheet.columns))]
    heads = "".join(
        f'<th scope="col"{_class("words" if text else "")}>'
        f'<button type="button">{_html_heading(heading)}</button></th>'
        for heading, text in zip((sheet.first, *sheet.columns), (True, *words))
    )
    body = []
    for i, (policy, cells) in enumerate(sheet.rows):
        name = html_name(policy)
        if target := link(i):
            name = f'<a href="#{target}">{name}</a>'
        tds = "".join(_td(cell) for cell in cells)
        body.append(f'<tr{row(i)}><th scope="row">{mark(policy)}{name}</th>{tds}</tr>')
    captions = "".join(f"<p>{escape(caption)}</p>" for caption in sheet.captions)
    below = f"<figcaption>{captions}</figcaption>" if captions else ""
    return (
        '<figure class="table"><div class="scroll" tabindex="0" role="region" '
        f'aria-label="{escape(sheet.title)}"><table><caption>{escape(sheet.title)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>\n" + "\n".join(body) + "\n</tbody></table></div>"
        f"{below}</figure>"
    )


def _td(cell: Cell) -> str:
    look = _class(" ".join(filter(None, ["words" if cell.words else "", cell.mark])))
    if cell.words:
        return f"<td{look}>{html_name(cell.text)}</td>"
    value = "" if math.isnan(cell.value) else repr(float(cell.value))
    return f'<td{look} data-value="{value}">{escape(cell.text)}</td>'


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""


def _html_heading(heading: str) -> str:
    return "<br>".join(html_name(line) for line in heading.split("\n"))
