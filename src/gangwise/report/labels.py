"""Direct labels at the right end of lines, moved apart where lines end close together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gangwise.report.palette import GRID, INK

_LONGEST = 26
_LEADER, _SAMPLE, _TEXT = 0.035, 0.105, 0.12
"""Where leader, line sample and text end or begin, right of the axes, in widths of the axes."""


@dataclass(frozen=True)
class Label:
    """The name of a line, the height where the line ends, and how the line looks."""

    height: float
    text: str
    colour: str
    width: float
    dashes: tuple[float, ...]


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Heights as near as can be to the wanted ones, in the same order, at least a gap apart.

    The gap shrinks when there are too many labels between ``low`` and ``high``.

    >>> [round(x, 2) for x in apart([0.5, 0.5, 0.9], 0.1, 0.0, 1.0)]
    [0.45, 0.55, 0.9]
    """
    n = len(wanted)
    if n > 1:
        gap = min(gap, (high - low) / (n - 1))
    order = sorted(range(n), key=lambda i: wanted[i])
    # Groups of labels that touch, each around the mean of its wanted heights; merged on overlap.
    groups: list[list[float]] = []
    for i in order:
        groups.append([wanted[i]])
        while len(groups) > 1 and _top(groups[-2], gap) + gap > _start(groups[-1], gap):
            groups[-2:] = [groups[-2] + groups[-1]]
    heights = [_start(group, gap) + j * gap for group in groups for j in range(len(group))]
    heights = [max(y, low + j * gap) for j, y in enumerate(heights)]
    heights = [min(y, high - (n - 1 - j) * gap) for j, y in enumerate(heights)]
    found = [0.0] * n
    for i, height in zip(order, heights):
        found[i] = height
    return found


def _start(group: Sequence[float], gap: float) -> float:
    """Lowest height of a group whose members stand a gap apart around their mean."""
    return sum(group) / len(group) - (len(group) - 1) * gap / 2


def _top(group: Sequence[float], gap: float) -> float:
    return _start(group, gap) + (len(group) - 1) * gap


def place_labels(figure: Figure, axes: Axes, labels: Sequence[Label]) -> None:
    """Write each label right of the axes, with a sample of its line and a leader to its end."""
    low, high = axes.get_ylim()
    box = axes.get_position()
    points = figure.get_figheight() * 72 * box.height
    size = float(np.clip(points / max(len(labels), 1) / 1.35, 6.0, 9.0))
    # Higher ranks come first; on a tie the better policy is to stand higher.
    ordered = list(reversed(labels))
    ends = [min(max((label.height - low) / (high - low), 0.0), 1.0) for label in ordered]
    places = apart(ends, 1.35 * size / points, 0.0, 1.0)
    for label, end, place in zip(ordered, ends, places):
        leader = Line2D([1.005, _LEADER + 1], [end, place], color=GRID, linewidth=0.8)
        sample = Line2D([_LEADER + 1.005, _SAMPLE + 1], [place, place], color=label.colour)
        sample.set_linewidth(label.width)
        if label.dashes:
            sample.set_dashes(label.dashes)
        for line in (leader, sample):
            line.set_transform(axes.transAxes)
            line.set_clip_on(False)
            axes.add_line(line)
        axes.text(
            1 + _TEXT,
            place,
            _short(label.text),
            transform=axes.transAxes,
            color=INK,
            fontsize=size,
            va="center",
            parse_math=False,
        )


def _short(text: str) -> str:
    """A name that fits beside the axes; its beginning and its end tell names apart."""
    if len(text) <= _LONGEST:
        return text
    half = (_LONGEST - 1) // 2
    return f"{text[:half]}…{text[-half:]}"
