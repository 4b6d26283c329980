"""ESDP (ESDP Algorithm 1): optimism about whole choices, learned from semi-bandit feedback.

In slot t, over the channels of the job types that arrived,

    x(t) = argmax_{x ∈ Ω(t)}  v̂·x + √(σ̂²·x),    σ̂²_e = g(t) / (2 n_e),    ESDP (10), ESDP (12),

with v̂ and n over the slots before t. The paper rounds v̂ and σ̂² to integers, so that a dynamic
programme over (s, c, i) takes polynomial time; max over s of P4(s) with ESDP (21) is the same
problem on the rounded numbers. It is solved here without rounding by branch and bound, thousands of
times faster, so δ(t) is 0; a search is cut off after ``nodes`` nodes, and its choice not proved
best then. Two more departures from Algorithm 1, without which its regret cannot be
logarithmic: Ω(t) instead of solving for all job types and switching off those that are absent; and
channels never used come first, since +∞ in ESDP (10) hides every difference.

The sequences g(t) of ESDP (10)–(11) and δ(t) of ESDP (14) go by name, or are one's own. Everywhere
ln(t + 1) stands where ESDP (11) and ESDP (14) print ln t, as ESDP §4 has it: the two differ for
tiny t only, where the printed ones make g(1) = 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gangwise.core.arrays import Bools, Floats, check_numbers
from gangwise.core.errors import UnknownName
from gangwise.estimators import Estimator, Mean
from gangwise.fluctuating_speeds.environment import Observation
from gangwise.fluctuating_speeds.learners import Optimiser, unplayed_first

Exploration = Callable[[float, float], float]  # g: (t from 1, m = α|E|) to a number of zero or more

Delta = Callable[[float], float]  # δ: t from 1 to a positive number


EXPLORATIONS: Mapping[str, Exploration] = {
    "default": lambda t, m: EXPLORATIONS["log"](t, m) + EXPLORATIONS["loglog"](t, m),
    "loglog": lambda t, m: 4.0 * math.log(math.log(t + 1) + 1) * m,
    "log": lambda t, m: math.log(t + 1),
}
"""Sequences g(t) of ESDP (11) and its Fig. 8: ``default`` is
ln(t+1) + 4 ln(ln(t+1)+1) α|E|; ``loglog`` its second term; ``log`` its first."""


DELTAS: Mapping[str, Delta] = {
    "default": lambda t: 1.0 / (math.log(math.log(t + 1) + 1) + 1),
    "log": lambda t: 1.0 / (math.log(t + 1) + 1),
    "loglog-no-plus-one": lambda t: 1.0 / math.log(math.log(t + 1) + 1),
    "triple": lambda t: 1.0 / (math.log(math.log(math.log(t + 1) + 1) + 1) + 1),
    "one": lambda t: 1.0,
}
"""Sequences δ(t) of ESDP (14) and its Fig. 7: ``log`` (ln(t+1)+1)⁻¹; ``loglog-no-plus-one``
(ln(ln(t+1)+1))⁻¹ as its text has it, and ``default`` with the +1 of ESDP §4; ``triple``
(ln(ln(ln(t+1)+1)+1)+1)⁻¹ of the preprint (the journal lost a +1). ``one`` does not go to zero; for
comparison."""


def exploration(g: str | Exploration) -> Exploration:
    """Exploration sequence g(t), ESDP (11), by name, or as it is given.

    >>> round(exploration("default")(3, 1), 9)
    4.865261106
    """
    if callable(g):
        return g
    if g not in EXPLORATIONS:
        raise UnknownName("sequence g", g, list(EXPLORATIONS))
    return EXPLORATIONS[g]


def delta(sequence: str | Delta | float) -> Delta:
    """Rounding sequence δ(t), ESDP (14), by name, as it is given, or constant.

    >>> round(delta("default")(3), 9), delta(0.5)(3)
    (0.534833238, 0.5)
    """
    if callable(sequence):
        return sequence
    if isinstance(sequence, (int, float)):
        value = float(sequence)
        check_numbers("(0, inf)", delta=value)
        return lambda t: value
    if sequence not in DELTAS:
        raise UnknownName("sequence delta", sequence, list(DELTAS))
    return DELTAS[sequence]


@dataclass
class ESDP(Optimiser):
    """ESDP Algorithm 1 over Ω(t), P3 of ESDP (12) by branch and bound, without rounding.

    Parameters
    ----------
    g : str or callable
        Exploration, by a name of Fig. 8 or as a function of (t, α|E|). ``log``, ln(t + 1), is the
        paper's own winner; ``default`` is what its theorem uses and explores some 19 times as much.
    kappa : float
        Multiplies g. 1 is the paper's sequence, and what ESDP (10) needs for any utility in [0, 1],
        whose standard deviation can be 1/2. Less exploration does where speeds fluctuate less: 0.25
        cuts the regret over 2000 slots of ``esdp-default-v1`` by a third to a half.
    alpha : float
        α|E| stands for the most channels that can be on (ESDP §4).
    correlation : float
        Noise of different channels correlates by so much at most. ESDP (10) takes it as
        independent, 0; the width of a choice is then √((1 − ρ) σ̂²·x) + √ρ Σ x σ̂, at least that of
        Degenne and Perchet (Combinatorial semi-bandit with known covariance, 2016) and at most √2
        times it. With 1 it is CUCB's.
    memory, discount, window : str, float, int
        What v̂ and n are taken over, as for every :class:`.learners.Optimiser`.

    Examples
    --------
    >>> from gangwise import create_policy
    >>> create_policy("esdp:kappa=0.25").kappa
    0.25
    """

    g: str | Exploration = "log"
    kappa: float = 1.0
    alpha: float = 0.5
    correlation: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        exploration(self.g)  # raises for a name that there is not
        check_numbers("[0, 1]", correlation=self.correlation)
        check_numbers("[0, inf)", kappa=self.kappa)
        check_numbers("(0, 1]", alpha=self.alpha)

    def _make_estimator(self) -> Estimator:
        # The root in P3 is over whole choices, so it takes means and counts, and no estimate of
        # each channel.
        self._memory = self._make_memory()
        return Mean(prior=0.0, memory=self._memory)

    def decide(self, observation: Observation) -> Bools:
        x = super().decide(observation)
        self._memory.advance(observation.slot + 1)  # late feedback, too, finds sums that faded
        return x

    def scores(self, slot: int) -> tuple[Floats, Floats]:
        """Means v̂(t) of ESDP (9) and widths σ̂²(t) of ESDP (10), over n uses, ESDP (8); shape [E].

        Statistics are of the slots before t = slot + 1.
        """
        memory = self._memory
        memory.advance(slot)
        counts = memory.counts
        # Looked up in every slot, for a policy that held a function of ours would not pickle.
        g = self.kappa * exploration(self.g)(memory.horizon(slot + 1.0), self.alpha * counts.size)
        return memory.means, unplayed_first(counts == 0, 0.5 * g / np.maximum(counts, 1e-9))

    def _decide(self, observation: Observation, available: Bools) -> Bools:
        v, s = self.scores(observation.slot)
        if self.correlation > 0:
            # The part ρ of the width adds up channel by channel, so it joins the means; the rest
            # stays under the root. Channels never used keep their +∞.
            played = np.isfinite(s)
            v = v + np.where(played, np.sqrt(self.correlation * s), 0.0)
            s = np.where(played, (1.0 - self.correlation) * s, np.inf)
        return self._choose(v, s, available)


@dataclass
class ESDPAsPrinted(ESDP):
    """ESDP Algorithm 1 as printed, repaired only as far as it runs at all.

    It rounds with δ(t) and ξ(t), ESDP (14) and ESDP (16)–(18), solves over the channels of all job
    types, and switches off those of absent job types afterwards (lines 10–16), whose capacity is
    then lost: a regret linear in T. Repairs: a skipped channel keeps the choice of the rest (the
    else branch that Algorithm 2 lacks), infeasible s are skipped in ESDP (21), and channels never
    used come first; without the first two no channel is ever used. Ties aside, branch and bound on
    the rounded numbers answers what the dynamic programme would.

    Parameters
    ----------
    delta : str, float or callable
        By a name of Fig. 7, constant, or as a function of t.
    """

    g: str | Exploration = "default"
    delta: str | float | Delta = "default"

    def __post_init__(self) -> None:
        super().__post_init__()
        delta(self.delta)  # raises for a sequence that there is not

    def scores(self, slot: int) -> tuple[Floats, Floats]:
        """Scaled statistics Υ̂(t) of ESDP (16) and Σ̂²(t) of ESDP (17), whole numbers, shape [E]."""
        v, s = super().scores(slot)
        # A negative estimate counts as zero, for the programme goes through s ≥ 0 only.
        # ξ(t) of ESDP (18), with α|E| for the most channels that can be on.
        xi = math.ceil(self.alpha * v.size / delta(self.delta)(slot + 1.0))
        # Less a billionth, so that a mean of exactly 1/2 rounds as on paper.
        return np.ceil(xi * np.maximum(v, 0.0) - 1e-9), np.ceil(xi * xi * s - 1e-9)

    def _decide(self, observation: Observation, available: Bools) -> Bools:
        v, s = self.scores(observation.slot)
        # Lines 10-16: channels of absent job types took capacity, and are switched off only now.
        return self._choose(v, s, np.ones_like(available)) & available
