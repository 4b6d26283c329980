"""ESDP (IEEE TPDS 2023), Figs. 2 to 13 and Theorems 1 and 2."""

from __future__ import annotations

from gangwise.reproduce.esdp.horizon import FIGURE_13
from gangwise.reproduce.esdp.overhead import FIGURE_5
from gangwise.reproduce.esdp.sequences import SEQUENCES
from gangwise.reproduce.esdp.settings import SCALES, SENSITIVITY
from gangwise.reproduce.esdp.theorems import THEOREMS
from gangwise.reproduce.esdp.verification import VERIFICATION

__all__ = ["ARTEFACTS"]

_FIGURES = (*VERIFICATION, FIGURE_5, *SENSITIVITY, *SEQUENCES, *SCALES, FIGURE_13)

ARTEFACTS = (
    *sorted(_FIGURES, key=lambda figure: int(figure.name.removeprefix("figure-"))),
    *THEOREMS,
)
"""In the paper's order."""
