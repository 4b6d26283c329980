"""OGASched, Figs. 2 to 7, Table 2 and Theorem 1."""

from __future__ import annotations

from gangwise.reproduce.ogasched.hyperparameters import FIGURE_4
from gangwise.reproduce.ogasched.large import FIGURE_5
from gangwise.reproduce.ogasched.scales import FIGURE_3, FIGURE_6
from gangwise.reproduce.ogasched.table import TABLE_2
from gangwise.reproduce.ogasched.theorem import THEOREM_1
from gangwise.reproduce.ogasched.utilities import FIGURE_7
from gangwise.reproduce.ogasched.verification import FIGURE_2

__all__ = ["ARTEFACTS"]

ARTEFACTS = (FIGURE_2, FIGURE_3, FIGURE_4, FIGURE_5, FIGURE_6, FIGURE_7, TABLE_2, THEOREM_1)
"""Figures in the paper's order, then the table and the theorem."""
