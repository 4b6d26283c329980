r"""Exact answer to P3: depth-first branch and bound on Lagrangian bounds.

At the multipliers of a node, deviating from the relaxed choice in channel e costs |ρ_e|, the
reduced cost ρ_e = v_e + s_e/(2q) - u·a_e. Channels for which that exceeds the gap are settled; of
the rest the one with the least |ρ_e|, the most undecided, is branched on, its relaxed value first.
A channel that is worth no more and takes no less than another is never chosen without it: early in
a run, when many channels look alike, the tree would be endless otherwise.
"""

from __future__ import annotations

import time

from gangwise.fluctuating_speeds.solvers.lagrangian import NODE_EVALUATIONS, Lagrangian
from gangwise.kernels.p3_search import search

__all__ = ["BranchAndBound"]

CHUNK = 4096
"""Nodes between two looks at the clock."""


class BranchAndBound(Lagrangian):
    """The root, then the tree below it."""

    def go_on(
        self, gap: float, absolute: float, nodes: int, time_limit: float | None = None
    ) -> None:
        """Search until the bound is met, or ``nodes`` nodes or the seconds are used up.

        ``gap`` and ``absolute`` as given to ``start``. May be called again to go on further.
        """
        deadline = None if time_limit is None else time.monotonic() + time_limit
        while self.count[1] >= 0 and nodes > 0:
            some = nodes if deadline is None else min(CHUNK, nodes)
            search(
                gap, absolute, some, NODE_EVALUATIONS, self.number, self.whole, self.a, self.small,
                self.matrix, self.level, self.stage, self.best, self.count,
            )  # fmt: skip
            nodes -= some
            if deadline is not None and time.monotonic() >= deadline:
                break

    @property
    def nodes(self) -> int:
        """Nodes searched since ``start``."""
        return int(self.count[2])

    @property
    def finished(self) -> bool:
        """Whether the tree is searched."""
        return bool(self.count[1] < 0)
