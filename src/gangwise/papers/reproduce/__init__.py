"""Every figure, table and regret claim of the papers, beside the papers' own numbers.

An :class:`~gangwise.papers.reproduce.papers.Artefact` is one of them: the experiments it needs, the
numbers it shows, the picture, and the paper's claims about it. They are rows of a table for each
paper, see :mod:`~gangwise.papers.reproduce.papers`;
:func:`~gangwise.papers.reproduce.expected.reproduce` runs them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gangwise.papers.reproduce.papers import Artefact

__all__ = ["OWN", "PAPERS", "artefacts"]

OWN = ("ogasched", "esdp", "opm")
"""The papers that gangwise implements: each has a page of ten claims, and an appendix."""

PAPERS = (*OWN, "field")
"""Those papers, and ``field``: results that others published."""


@cache
def artefacts(paper: str) -> tuple[Artefact, ...]:
    """The artefacts of a paper, in its order.

    Raises
    ------
    UnknownName
        For a paper that is not one of ``PAPERS``.

    Examples
    --------
    >>> artefacts("esdp")[0].name
    'figure-2'
    """
    # Late, like the next import: the names of papers are asked for before any of them is played.
    from gangwise.core.errors import UnknownName

    if paper not in PAPERS:
        raise UnknownName("paper", paper, list(PAPERS))
    # It loads all measures and the report, which a wrong name does not need.
    from gangwise.papers.reproduce.papers import Paper

    return Paper(paper).artefacts()
