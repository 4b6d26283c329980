"""OPS and OPM: Figs. 1 to 3 and Table I of §VI, Theorems 2 and 3, and Corollary 1.

The paper's own jobs are those of a public trace. Whatever it shows of them is shown for synthetic
jobs as well, for which nothing has to be downloaded: artefacts whose names end in ``-synthetic``.
"""

from __future__ import annotations

from gangwise.reproduce.opm.jobs import figure_1
from gangwise.reproduce.opm.migration import figure_3
from gangwise.reproduce.opm.section_vi import GOOGLE, SYNTHETIC
from gangwise.reproduce.opm.theorems import COROLLARY_1, THEOREM_2, THEOREM_3
from gangwise.reproduce.opm.utility import figure_2, table_1

__all__ = ["ARTEFACTS"]

ARTEFACTS = (
    THEOREM_2,
    THEOREM_3,
    COROLLARY_1,
    *(
        make(jobs)
        for make in (figure_1, table_1, figure_2, figure_3)
        for jobs in (GOOGLE, SYNTHETIC)
    ),
)
