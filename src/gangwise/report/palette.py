"""One colour and one line style for each policy, the same in every figure and table of a report.

Colours keep their distance for readers who do not see all hues. Lines that coincide stay
distinguishable: neighbours in rank differ in dash pattern, and sparser patterns lie on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gangwise.experiments.compare import Comparison

INK, MUTED, GRID = "#1b1b1d", "#6b6b70", "#e3e1dc"
"""Text, secondary text and rules on white; a page may put its own in their place."""

COLOURS = (
    ("#0a6db5", "#58b0f2"),
    ("#cf5a00", "#ff9147"),
    ("#00896a", "#2cc79f"),
    ("#b8478b", "#ee8cc6"),
    ("#8f7a00", "#d9c13c"),
    ("#3f3a9e", "#a09cf5"),
    ("#a3243b", "#ff7d8d"),
    ("#3a9fc9", "#8fd9f7"),
    ("#6d7f1e", "#b3cc4f"),
    ("#7a5a48", "#c9a68f"),
)
"""Pairs: on white, on black."""

_LINES = ((2.4, ()), (1.9, (6.0, 2.0)), (1.8, (4.5, 1.6, 1.0, 1.6)), (1.9, (1.2, 1.6)))


@dataclass(frozen=True)
class Style:
    """How a policy is drawn.

    Attributes
    ----------
    index : int
        Which of :data:`COLOURS`.
    width : float
        Line width in points.
    dashes : tuple of float
        On and off lengths in line widths; empty for a solid line.
    order : int
        Higher is drawn later, on top.
    """

    index: int
    width: float
    dashes: tuple[float, ...]
    order: int

    @property
    def colour(self) -> str:
        """The colour on white."""
        return COLOURS[self.index][0]


def plain_styles(names: Sequence[str]) -> dict[str, Style]:
    """Coloured in the order of the names, dashed from the second round on: as sweeps are drawn."""
    return {
        name: Style(i % len(COLOURS), 1.9, () if i < len(COLOURS) else (3.7, 1.6), i)
        for i, name in enumerate(names)
    }


def styles(comparison: Comparison) -> dict[str, Style]:
    """The style of each policy, best policy first."""
    found = {}
    for rank, row in enumerate(comparison.table()):
        pattern = (rank + rank // len(COLOURS)) % len(_LINES)
        width, dashes = _LINES[pattern]
        found[row.policy] = Style(rank % len(COLOURS), width, dashes, 10 * pattern + 100)
    return found
