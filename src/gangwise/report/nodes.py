"""What a log says about its nodes: tables for the terminal, and a page."""

from __future__ import annotations

import numpy as np
from rich.console import Group
from rich.text import Text as Line

import gangwise
from gangwise.experiments.nodes import NodeFindings
from gangwise.experiments.statistics import number
from gangwise.report.page import Chapter, Page, Section, Text, html, pictured
from gangwise.report.plotting import Panel, Style
from gangwise.report.tables import Cell, Sheet, columns_sheet, rich_tables, value_cell

SHOWN = 10  # so many nodes have a row, even if none is slow; all slow ones have
MOST_DRAWN = 400
WIDEST = np.log(100)  # of a node whose interval is wider, nothing is known


def _order(found: NodeFindings) -> list[int]:
    e = found.effects
    known = np.flatnonzero(np.isfinite(e.mean) & (e.high - e.low < WIDEST))
    return sorted(known.tolist(), key=lambda n: (not e.slow[n], -e.mean[n]))


def _interval(low: float, high: float) -> Cell:
    ends = " to ".join(number(100 * np.expm1(v), 1) for v in (low, high))
    return Cell(ends, low)


def node_sheets(found: NodeFindings) -> list[Sheet]:
    """Slow nodes, or the slowest ones; and nodes that changed."""
    e = found.effects
    order = _order(found)
    shown = order[: max(SHOWN, int(e.slow.sum()))]
    columns = [
        ("longer\nrun times, %", [value_cell(100 * np.expm1(e.mean[n]), 1) for n in shown]),
        ("95 %\ninterval", [_interval(e.low[n], e.high[n]) for n in shown]),
        ("jobs", [value_cell(float(e.runs[n])) for n in shown]),
        ("p", [Cell(f"{e.p[n]:.2g}", e.p[n]) for n in shown]),
        ("named", [Cell("slow" if e.slow[n] else "", words=True) for n in shown]),
    ]
    caption = (
        "Than on the median node that runs the same programs. Named: Benjamini and Hochberg at "
        f"5 %; the others of these {len(shown)} are the slowest that chance would explain."
    )
    names = [found.names[n] for n in shown]
    sheets = [columns_sheet("Nodes", names, columns, (caption,), "node")] if shown else []
    if e.changes:
        of = e.changes
        columns = [
            ("day of\nthe log", [value_cell(c.at / 86400, 1) for c in of]),
            ("95 %\ninterval", [Cell(f"{c.low / 86400:.1f} to {c.high / 86400:.1f}") for c in of]),
            ("longer\nbefore, %", [value_cell(100 * np.expm1(c.before), 1) for c in of]),
            ("longer\nafter, %", [value_cell(100 * np.expm1(c.after), 1) for c in of]),
        ]
        names = [found.names[c.node] for c in of]
        caption = "One change each, the largest; 5 % of these nodes are false in expectation."
        sheets.append(columns_sheet("Nodes that changed", names, columns, (caption,), "node"))
    return sheets


def node_text(found: NodeFindings) -> Group:
    head = [Line(found.line), Line(f"{found.answer}.", "bold"), Line()]
    return Group(*head, rich_tables(node_sheets(found)))


def node_page(found: NodeFindings, name: str) -> str:
    """One page: the answer, all nodes with their intervals, the tables."""
    e = found.effects
    order = sorted(_order(found), key=lambda n: -e.mean[n])[:MOST_DRAWN]
    ends = [[100 * np.expm1(v[n]) for v in (e.mean, e.low, e.high)] for n in order]
    lines = ["slow" if e.slow[n] else "others" for n in order]
    points = [("nodes", line, float(i), *of) for i, (line, of) in enumerate(zip(lines, ends), 1)]
    panel = Panel("nodes", "nodes, the slowest first", "longer run times, %", "dots", level=0.0)
    looks = {"slow": Style(1, 4.0), "others": Style(0, 3.0)}
    few = f"The {len(order)} slowest. " if len(order) == MOST_DRAWN else ""
    caption = f"{few}Run times beside those on the median node, with 95 % intervals."
    picture = pictured(
        "Nodes", points, [panel], caption, {k: looks[k] for k in looks if k in lines}
    )
    parts = [Text(f"{found.answer}.", "lead"), Text(f"{found.line}.", "fidelity")]
    tables = [Section(sheet.title, [sheet]) for sheet in node_sheets(found)]
    title = f"Nodes of {name}"
    byline = f"{len(found.names):,} nodes, gangwise {gangwise.__version__}"
    sections = [Section("How unlike nodes are", [picture]), *tables] if order else []
    return html(Page(title, [Chapter(title, byline, [*parts, *sections])]))
