"""What filled a cluster: a table for the terminal and for Markdown, and a figure."""

from __future__ import annotations

from gangwise.experiments.filling import Fillings
from gangwise.report.plotting import Panel, draw, image, points
from gangwise.report.tables import Cell, Sheet


def filling_sheet(found: Fillings) -> Sheet:
    """Mean and standard deviation over seeds, per cent of the GPUs; best first."""
    measured = [(what, at) for what in ("allocated", "fragmented") for at in (100.0, None)]
    rows = []
    for policy in found.filled:
        cells = []
        for what, arrived in measured:
            values = found.at(policy, arrived, what)
            spread = f" ± {values.std(ddof=1):.2f}" if values.size > 1 else ""
            cells.append(Cell(f"{values.mean():.2f}{spread}", float(values.mean())))
        rows.append((policy, tuple(cells)))
    rows.sort(key=lambda row: -float(row[1][1].value))
    caption = (
        f"Per cent of the GPUs, mean ± standard deviation over {len(found.seeds)} seeds, when what "
        "had come asked for 100 % of them, and at the end. Fragmented: free and of no use to the "
        "mean task."
    )
    headings = [f"{what}\nat {'100 %' if at else 'the end'}" for what, at in measured]
    return Sheet("GPUs of a cluster that fills", tuple(headings), tuple(rows), (caption,), "choice")


def filling_figure(found: Fillings) -> str:
    """Allocated and fragmented GPUs by what has arrived, from 75 % on: an SVG."""
    rows = [
        (f"{what}, %", policy, float(arrived), value, None, None)
        for what in ("allocated", "fragmented")
        for policy in found.filled
        for arrived, value in enumerate(found.curve(policy, what))
        if arrived >= 75
    ]
    label = "GPUs asked for by what has arrived, %"
    panels = [Panel(f"{what}, %", label, "") for what in ("allocated", "fragmented")]
    return image(draw("A cluster that fills", points(rows), panels), "svg").decode()
