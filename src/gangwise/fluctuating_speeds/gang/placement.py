"""Fast placement: prices on devices, gangs placed under them, jobs taken off and built anew.

Prices are raised where too many tasks want a server (:mod:`gangwise.kernels.gang_prices`); on the
way gangs are placed under the prices, and the best placement is rearranged, one and two jobs at a
time. The books are kept by the kernels of the other gang family. The square root is taken care of
by tangents: √Y ≤ q/2 + Y/(2q), so for a given q the worth of a task is w_e = v_e + s_e/(2q), and
q = √(Σ s n) of the answer gives the next one. The best is kept.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.fluctuating_speeds.gang.exact import ExactGangs
from gangwise.fluctuating_speeds.gang.problem import (
    GangSpeedsProblem,
    relabelled,
    server_order,
)
from gangwise.gain_overhead.gang.placement import Placement
from gangwise.kernels.gang_prices import search, total
from gangwise.kernels.gang_rebuild import insert, rearrange

__all__ = ["FastGangs", "GangSolver", "ordered"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def ordered(problem: GangSpeedsProblem) -> Placement:
    """Empty servers, gone through in :func:`.problem.server_order` whatever they are called."""
    servers = Placement(problem.gangs, weighs_gains=False)
    rank = np.argsort(server_order(problem))
    g = servers.gangs
    task = np.repeat(np.arange(problem.Q), np.diff(g.pair_first))
    order = np.lexsort((rank[g.server[g.pair_channel]], task))
    servers.gangs = g._replace(pair_channel=g.pair_channel[order])
    return servers


class FastGangs:
    """Place gangs under prices, fill what is left, rebuild jobs one and two at a time.

    Parameters
    ----------
    problem : GangSpeedsProblem
    passes : int
        How often to go over all jobs and rebuild them where that is worth it, at most.
    steps : int
        Price steps; a placement is made at every fourth.
    rounds : int
        How many tangents to try, at most.
    """

    def __init__(
        self, problem: GangSpeedsProblem, passes: int = 1, steps: int = 60, rounds: int = 2
    ):
        if passes < 0 or steps < 0 or rounds < 1:
            raise ScenarioError(
                f"passes is {passes}, steps {steps} and rounds {rounds}; at least 0, 0 and 1"
            )
        self.problem, self.passes, self.steps, self.rounds = problem, passes, steps, rounds
        # Under names of its own, so that even the last bits do not depend on what servers are
        # called; and among tasks worth the same the kernels take the first: let that be small.
        self._order = server_order(problem)
        inner, self._before = relabelled(problem, self._order)
        largest = np.maximum(problem.cluster.capacity.max(axis=0), np.finfo(float).tiny)
        size = (problem.task_requests / largest).sum(axis=1)
        self._rank = np.lexsort((size, problem.task_job_type))
        inner = replace(inner, task_requests=inner.task_requests[self._rank])
        self._servers = Placement(inner.gangs, weighs_gains=False)
        R, K = problem.cluster.capacity.shape
        self._price, self._demand = np.empty((R, K)), np.empty((R, K))
        self._profit, self._best = np.empty(problem.L), np.empty(problem.Q)
        self._where = np.empty(problem.Q, dtype=np.int64)

    def linear(self, worth: Floats, arrivals: Ints) -> Ints:
        """A placement of large Σ w_e n_e for ``worth`` [E]; server of each task, -1 for none."""
        return self.bounded(worth, arrivals)[0]

    def bounded(self, worth: Floats, arrivals: Ints) -> tuple[Ints, float]:
        """The same, and a bound that Σ w_e n_e of no placement exceeds."""
        servers, price = self._servers, self._price
        g, h = servers.gangs, servers.held
        servers.reset()
        worth = np.ascontiguousarray(worth[self._before])
        bound = search(
            g, h, arrivals, worth, price, self._demand, self._profit, self._best, self._where,
            self.steps,
        )  # fmt: skip
        if self.passes:
            insert(g, h, arrivals, worth, price, self.passes)
            rearrange(g, h, arrivals, worth, price, 0.5, self.passes)
        placement = np.empty(self.problem.Q, dtype=np.int64)
        inner = servers.decision()
        placement[self._rank] = np.where(inner >= 0, self._order[inner], -1)
        return placement, max(bound, total(h, worth))

    def solve(self, value: Floats, width: Floats, arrivals: Ints) -> Ints:
        """A placement of large Σ v n + √(Σ s n); widths [E] are zero or larger."""
        if not width.any():
            return self.linear(value, arrivals)
        best, top = np.full(self.problem.Q, -1, dtype=np.int64), 0.0
        worth = value + np.sqrt(width)  # one task alone
        for _ in range(self.rounds):
            placement = self.linear(worth, arrivals)
            n = self.problem.count(placement)
            spread = float(np.sqrt(width @ n))
            reached = float(value @ n) + spread
            if reached <= top * (1 + 1e-12):
                break
            best, top = placement, reached
            if spread == 0.0:
                break
            worth = value + width / (2.0 * spread)
        return best


class GangSolver:
    """Exact where the programme is small, fast where it is not, unless told.

    Parameters
    ----------
    problem : GangSpeedsProblem
    how : {"auto", "exact", "fast"}
        ``auto`` is exact when the programme has at most ``columns`` whole-number columns. Seconds
        do not decide, because the same run must be the same on every machine; the default is what
        takes some 10 ms a slot.
    columns : int
        See there.
    passes, rounds : int
        See :class:`FastGangs`.
    """

    NODES = 200
    """Nodes that an exact answer may take in a round; then the better of both ways is played."""

    def __init__(
        self,
        problem: GangSpeedsProblem,
        how: str = "auto",
        columns: int = 24,
        passes: int = 1,
        rounds: int = 2,
    ):
        if how not in ("auto", "exact", "fast"):
            raise ScenarioError(f"solver is auto, exact or fast, not {how!r}")
        self.fast = FastGangs(problem, passes, rounds=rounds)
        self.exact = ExactGangs(problem, 1e-6, self.NODES) if how != "fast" else None
        if how == "auto" and self.exact is not None and self.exact.size > columns:
            self.exact = None

    def solve(self, value: Floats, width: Floats, arrivals: Ints) -> Ints:
        """Server of each task, -1 for none; shape [Q]."""
        if self.exact is None:
            return self.fast.solve(value, width, arrivals)
        start = self.fast.solve(value, width, arrivals)
        return self.exact.solve(value, width, arrivals, start=start).placement
