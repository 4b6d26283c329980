"""Policies that learn what channels are worth: ESDP for gangs, and two rivals without its index."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.core.policy import Timing
from gangwise.fluctuating_speeds.environment import Feedback, Observation
from gangwise.fluctuating_speeds.gang.placement import GangSolver
from gangwise.fluctuating_speeds.gang.problem import GangSpeedsProblem
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem
from gangwise.fluctuating_speeds.sequences import Exploration, exploration
from gangwise.fluctuating_speeds.statistics import Statistics, make_statistics

__all__ = ["GangCUCB", "GangESDP", "GangMeans"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass
class GangMeans:
    """Place gangs by the means so far, and never explore on purpose.

    A channel that was never felt counts as 1, the most it can be.

    Parameters
    ----------
    solver : {"auto", "exact", "fast"}
        See :class:`.placement.GangSolver`.
    columns : int
        Size up to which ``auto`` is exact.
    passes : int
        How often the fast placement goes over all jobs to rebuild them, at most.
    """

    solver: str = "auto"
    columns: int = 24
    passes: int = 1
    family = "fluctuating_speeds_gang"
    timing: Timing = field(init=False, repr=False, default="react")

    def __post_init__(self) -> None:
        if self.solver not in ("auto", "exact", "fast") or self.passes < 0:
            raise ScenarioError(
                "solver is auto, exact or fast and passes not negative; got "
                f"{self.solver!r} and {self.passes}"
            )

    def start(self, problem: GangSpeedsProblem, rng: np.random.Generator) -> None:
        """Bind to a problem; nothing is known about any channel."""
        self._problem = problem
        self._solver = GangSolver(problem, self.solver, self.columns, self.passes)
        # Statistics reads the number of channels and their names only, which gangs have, too.
        self._statistics = self._remember(cast(FluctuatingSpeedsProblem, problem))
        self._none = np.zeros(problem.E)

    def _remember(self, problem: FluctuatingSpeedsProblem) -> Statistics:
        return Statistics(problem)

    def decide(self, observation: Observation) -> Ints:
        """Server of each task, -1 for none."""
        value, width = self.index(observation.slot)
        placement = self._solver.solve(value, width, observation.arrivals)
        on = self._problem.count(placement) > 0
        self._statistics.decided(observation.slot, on)
        return placement

    def learn(self, feedback: Iterable[Feedback]) -> None:
        """Take in the utilities of channels in use, one for each channel and slot."""
        self._statistics.learn(feedback)

    def index(self, slot: int) -> tuple[Floats, Floats]:
        """v_e and s_e to decide by, two arrays of shape [E]."""
        counts = self._statistics.counts
        return np.where(counts > 0, self._statistics.means, 1.0), self._none


@dataclass
class GangCUCB(GangMeans):
    """Every channel at its own upper confidence bound: v̂_e + √(coefficient · ln t / n_e), up to 1.

    Bounds are added up channel by channel, which is wider than the one root of ESDP over them all.

    Parameters
    ----------
    coefficient : float
        1.5 is that of the regret proof.
    """

    coefficient: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (np.isfinite(self.coefficient) and self.coefficient >= 0):
            raise ScenarioError(f"coefficient is {self.coefficient}; it must be zero or larger")

    def index(self, slot: int) -> tuple[Floats, Floats]:
        """Upper confidence bounds, and no width of their sum."""
        value, _ = super().index(slot)
        counts = np.maximum(self._statistics.counts, 1.0)
        bound = value + np.sqrt(self.coefficient * np.log(slot + 2.0) / counts)
        return np.minimum(bound, 1.0), self._none


@dataclass
class GangESDP(GangMeans):
    """ESDP §3.4: in every slot, maximise Σ v̂ n + √(Σ σ̂² n) over whole gangs of the jobs that came.

    σ̂²_e(t) = κ g(t) / (2 n_e), (10). A channel never felt has v̂ = 1 and the width of one
    observation, where (9) and (10) put 0 and +∞: no channel can be worth more, all are tried that
    way, and the programme stays finite.

    All tasks on a channel share its estimate, so a bound that surely covers the error of Σ v̂ n has
    Σ σ̂² n² under the root, n ≤ |Q_l| here being the number of tasks there. Linear in n, it is
    concave and the programme solvable; the width falls short by √|Q_l| at most.

    Parameters
    ----------
    kappa : float
        Multiplies g; 1 is right for any utility in [0, 1], 0 follows the means.
    g : str or callable
        Exploration, as in :class:`gangwise.fluctuating_speeds.esdp.ESDP`.
    alpha : float
        α|E| stands for the most tasks that can run, for a g that depends on it.
    memory : {"all", "discounted", "window"}
        What means and counts are taken over.
    discount, window : float, int
        γ per slot, and number of slots.

    Examples
    --------
    >>> from gangwise import create_policy
    >>> create_policy("gang-esdp:kappa=1,solver=fast").kappa
    1
    """

    kappa: float = 0.25
    g: str | Exploration = "log"
    alpha: float = 0.5
    memory: str = "all"
    discount: float = 0.998
    window: int = 500
    _g: Exploration = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._g = exploration(self.g)
        if not (np.isfinite(self.kappa) and self.kappa >= 0 and 0 < self.alpha <= 1):
            raise ScenarioError(
                f"kappa must be zero or more and alpha lie in (0, 1]; got {self.kappa} and "
                f"{self.alpha}"
            )

    def _remember(self, problem: FluctuatingSpeedsProblem) -> Statistics:
        return make_statistics(problem, self.memory, self.discount, self.window)

    def index(self, slot: int) -> tuple[Floats, Floats]:
        """v̂_e and σ̂²_e(t), (9) and (10)."""
        value, _ = super().index(slot)
        counts, t = self._statistics.counts, self._statistics.horizon(slot + 1.0)
        felt = np.where(counts > 0, counts, 1.0)
        return value, self.kappa * self._g(t, self.alpha * self._problem.E) / (2.0 * felt)
