"""Estimators of what arms are worth, each over a memory that forgets or does not.

An arm is a machine or a channel. A play of it yields one value in [0, 1], which is observed of the
arms that were played only (semi-bandit feedback). A memory holds how often each arm was played and
what that brought, from feedback that comes in any order and with any delay. It takes O(N) numbers,
for a window O(W N), whatever the number of slots. An estimator is a formula over a memory: a mean,
an upper confidence bound, a Thompson sample, a decayed last value.

:class:`Memory` and :class:`SlidingWindow` add up in whole units of 2⁻⁴⁰, so that sums do not depend
on the order of feedback, not even in the last bit. :class:`Discounted` adds up in floating point.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gangwise.core import arrays
from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.jit import kernel

__all__ = ["ESTIMATORS", "UCB", "UCB1", "BetaSampling", "Constant", "Decay"]
__all__ += ["Discounted", "DiscountedUCB", "Estimator", "GaussianSampling", "Mean"]
__all__ += ["Memory", "OfMemory", "Oracle", "SlidingWindow", "confidence_radius", "make_estimator"]
__all__ += ["make_memory", "upper_bound"]

RESOLUTION = float(2**40)
"""Whole units in 1: sums are kept to 1e-12, with room for eight million plays of an arm."""

FADED = 1e-3
"""Discounted plays below which an arm counts as never played."""


@kernel
def faulty(arms: Ints, values: Floats, N: int) -> int:
    """First place with an arm that is not there or a value outside [0, 1] or NaN; −1 if none."""
    for n in range(arms.size):
        inside = values[n] >= 0.0 and values[n] <= 1.0
        if arms[n] < 0 or arms[n] >= N or not inside:
            return n
    return -1


@kernel
def absorb(arms: Ints, values: Floats, unit: float, counts: Ints, totals: Ints) -> None:
    """Count plays and add up values in whole units, so that the order does not matter."""
    for n in range(arms.size):
        counts[arms[n]] += 1
        totals[arms[n]] += np.int64(round(values[n] * unit))


@kernel
def weigh(arms: Ints, values: Floats, weight: float, weights: Floats, sums: Floats) -> None:
    """Count plays and add up values, each for ``weight``."""
    for n in range(arms.size):
        weights[arms[n]] += weight
        sums[arms[n]] += weight * values[n]


@dataclass(eq=False)
class Memory(arrays.Checked):
    """Memory without forgetting: number and sum of the plays of each arm since the first slot.

    Examples
    --------
    Two arms, played twice and once; feedback of the later slot comes first.

    >>> memory = Memory()
    >>> memory.start(2)
    >>> memory.learn(1, np.array([0]), np.array([0.6]))
    >>> memory.learn(0, np.array([0, 1]), np.array([0.4, 0.8]))
    >>> memory.counts, memory.means.round(9)
    (array([2., 1.]), array([0.5, 0.8]))
    """

    def start(self, arms: int) -> None:
        self.slot = 0
        self._counts, self._totals = np.zeros(arms, np.int64), np.zeros(arms, np.int64)

    @property
    def weights(self) -> Floats:
        """Number of plays per arm within the memory, shape [N]; to be read only."""
        return self._counts.astype(np.float64)

    @property
    def totals(self) -> Floats:
        """Sum of the values of these plays, shape [N]; to be read only."""
        return self._totals / RESOLUTION

    @property
    def counts(self) -> Floats:
        """Number of plays that are still remembered, 0 for arms all but forgotten, shape [N]."""
        return self._counts.astype(np.float64)

    @property
    def means(self) -> Floats:
        """Mean value of a play, shape [N]; 0 where ``counts`` is 0."""
        return self._totals / (RESOLUTION * np.maximum(self._counts, 1))

    @property
    def posterior(self) -> tuple[Floats, Floats]:
        """Beta posterior of a uniform prior: a = 1 + Σ and b = 1 + n − Σ, shape [N] each."""
        counts = self.counts
        total = counts * self.means
        # Σ ≤ n but for rounding, and Beta needs positive parameters.
        return 1.0 + total, 1.0 + np.maximum(counts - total, 0.0)

    def horizon(self, t: float) -> float:
        """Effective number of slots that ``counts`` covers, of t; for radii that grow with t."""
        return t

    def advance(self, slot: int) -> None:
        """Advance to the beginning of a slot; without effect where that is past."""
        self.slot = max(self.slot, slot)

    def learn(self, slot: int, arms: Ints, values: Floats) -> None:
        """Record the values of the arms that were played in a slot, each arm once.

        Raises
        ------
        ScenarioError
            For an arm that is not there, or a value outside [0, 1] or NaN; nothing has changed.
        """
        # Contiguous and of one type, so that kernels are compiled once.
        arms = np.ascontiguousarray(arms, dtype=np.int64)
        values = np.ascontiguousarray(values, dtype=np.float64)
        N = self._counts.size
        wrong = faulty(arms, values, N)
        if wrong >= 0:
            raise ScenarioError(
                f"feedback of slot {slot}: arm {arms[wrong]} of {N} has value {values[wrong]}; "
                "arms are counted from 0 and values lie in [0, 1]"
            )
        # Time goes on first: what fades, fades before the new values count.
        self.advance(slot + 1)
        self._absorb(slot, arms, values)

    def _absorb(self, slot: int, arms: Ints, values: Floats) -> None:
        absorb(arms, values, RESOLUTION, self._counts, self._totals)


@dataclass(eq=False)
class Discounted(Memory):
    """Discounted memory: a play s slots ago has the weight ``discount``^s.

    Feedback that comes late weighs what it would weigh had it come at once; sums are floating
    point, so its order matters in the last bits.

    Parameters
    ----------
    discount : float
        κ per slot, up to 1, which forgets nothing.
    """

    discount: arrays.PositiveShare = 0.998

    def start(self, arms: int) -> None:
        super().start(arms)
        self._weight, self._sum = np.zeros(arms), np.zeros(arms)

    @property
    def weights(self) -> Floats:
        return self._weight

    @property
    def totals(self) -> Floats:
        return self._sum

    @property
    def counts(self) -> Floats:
        """Discounted number of plays, 0 where less than ``FADED`` is left of it."""
        return np.where(self._weight < FADED, 0.0, self._weight)

    @property
    def means(self) -> Floats:
        return np.where(self._weight < FADED, 0.0, self._sum / np.maximum(self._weight, FADED))

    @property
    def posterior(self) -> tuple[Floats, Floats]:
        """Beta posterior from discounted plays; it returns to uniform as they fade."""
        # Fading rounds sum and weight apart, so that the difference is kept positive for Beta.
        return 1.0 + self._sum, np.maximum(1.0 + self._weight - self._sum, 1e-9)

    def horizon(self, t: float) -> float:
        # The discounted number of slots, (1 − κᵗ) / (1 − κ).
        if self.discount == 1:
            return t
        return float((1.0 - self.discount**t) / (1.0 - self.discount))

    def advance(self, slot: int) -> None:
        if self.discount < 1 and slot > self.slot:
            # All weights fade alike, so sums need no history.
            fade = self.discount ** (slot - self.slot)
            self._weight *= fade
            self._sum *= fade
        super().advance(slot)

    def _absorb(self, slot: int, arms: Ints, values: Floats) -> None:
        # Feedback of an older slot has faded by as much as if it had come at once.
        weight = self.discount ** (self.slot - slot - 1)
        weigh(arms, values, float(weight), self._weight, self._sum)


@dataclass(eq=False)
class SlidingWindow(Memory):
    """Sliding-window memory: plays of the last ``window`` slots."""

    window: arrays.PositiveInt = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        self.window = int(self.window)

    def start(self, arms: int) -> None:
        super().start(arms)
        # A ring of the window's slots: what leaves it has to be known to be taken off.
        self._played = np.zeros((self.window, arms), np.int64)
        self._values = np.zeros((self.window, arms), np.int64)

    def horizon(self, t: float) -> float:
        return min(t, float(self.window))

    def advance(self, slot: int) -> None:
        """Subtract the slots that leave the window from the sums, exactly."""
        # After a gap longer than the window every row is emptied once; further turns change
        # nothing.
        for expired in range(max(self.slot, slot - self.window), slot):
            row = expired % self.window
            self._counts -= self._played[row]
            self._totals -= self._values[row]
            self._played[row] = 0
            self._values[row] = 0
        super().advance(slot)

    def _absorb(self, slot: int, arms: Ints, values: Floats) -> None:
        if slot >= self.slot - self.window:  # else it left the window before it was known
            row = slot % self.window
            absorb(arms, values, RESOLUTION, self._played[row], self._values[row])
            absorb(arms, values, RESOLUTION, self._counts, self._totals)


class Estimator(Protocol):
    """Estimator of the value of each of N arms, from the values of those that were played.

    Estimators are dataclasses: constructor arguments are the whole configuration, and everything
    else is state, which ``start`` sets up. A policy starts a copy of its own.
    """

    @property
    def randomised(self) -> bool:
        """Whether estimates are drawn at random."""

    def start(self, arms: int, rng: np.random.Generator) -> None:
        """Forget everything; ``rng`` is kept for estimates that are drawn."""

    def estimate(self, slot: int) -> Floats:
        """Estimates for this slot, shape [N]. The next call may reuse the array."""

    @property
    def untried(self) -> Bools:
        """Arms of which nothing is known, shape [N]; policies may play these first."""

    def learn(self, slot: int, arms: Ints, values: Floats) -> None:
        """Record the values, shape [n], of the n arms played in a slot.

        Slots may come late, in any order, or never.
        """


@dataclass(eq=False)
class OfMemory(arrays.Checked, ABC):
    """Estimator computed from a memory, which decides what is forgotten.

    Its contract is that of :class:`Estimator`.
    """

    memory: Memory = field(default_factory=Memory, kw_only=True)
    randomised = False

    def start(self, arms: int, rng: np.random.Generator) -> None:
        self.memory.start(arms)
        self._rng = rng

    def estimate(self, slot: int) -> Floats:
        self.memory.advance(slot)
        return self._estimate(slot)

    @abstractmethod
    def _estimate(self, slot: int) -> Floats:
        """The estimate from what is in memory, at the beginning of a slot."""

    @property
    def untried(self) -> Bools:
        untried: Bools = self.memory.counts == 0
        return untried

    def learn(self, slot: int, arms: Ints, values: Floats) -> None:
        self.memory.learn(slot, arms, values)


@dataclass(eq=False)
class Mean(OfMemory):
    """Empirical mean, and ``prior`` for arms of which nothing is known.

    Examples
    --------
    >>> mean = Mean()
    >>> mean.start(2, np.random.default_rng(0))
    >>> mean.learn(0, np.array([1]), np.array([0.25]))
    >>> mean.estimate(1), mean.untried
    (array([1.  , 0.25]), array([ True, False]))
    """

    prior: float = 1.0

    def _estimate(self, slot: int) -> Floats:
        # Optimism: by default nothing is worth more than an arm that was never played.
        return np.where(self.memory.counts > 0, self.memory.means, self.prior)


def confidence_radius(mean: npt.ArrayLike, plays: npt.ArrayLike, gamma: float) -> Floats:
    """Confidence radius: rad(ν, P) = √(γ ν / P) + γ / P, OPS (14).

    Examples
    --------
    >>> round(float(confidence_radius(0.7, 100, 0.01)), 13)
    0.0084666002653
    """
    plays = np.asarray(plays, dtype=np.float64)
    radius: Floats = np.sqrt(gamma * np.asarray(mean) / plays) + gamma / plays
    return radius


def upper_bound(total: Floats, plays: Floats, gamma: float) -> Floats:
    """Upper bound: θ̂ = min{1, θ̄ + 2 rad(θ̄, n + 1)}, θ̄ = total / (n + 1).

    OPS (12)–(13), OPM (66)–(67).
    """
    mean = total / (plays + 1.0)  # OPS (12): with n + 1, n = 0 needs no case of its own
    bound: Floats = np.minimum(mean + 2.0 * confidence_radius(mean, plays + 1.0, gamma), 1.0)
    return bound


@dataclass(eq=False)
class UCB(OfMemory):
    """UCB: OPS (12)–(14), OPM (66)–(67), over any memory.

    Parameters
    ----------
    gamma : float
        That of the theorems, ln(M T / δ), keeps an arm at 1 for hundreds of plays; 0.1 to 1 is
        practical, and a memory of few plays needs the lower end.

    Examples
    --------
    >>> ucb = UCB(gamma=0.01)
    >>> ucb.start(1, np.random.default_rng(0))
    >>> for t in range(99):
    ...     ucb.learn(t, np.array([0]), np.array([70 / 99]))
    >>> round(float(ucb.estimate(99)[0]), 12)
    0.716933200531
    """

    gamma: arrays.NonNegative = 1.0

    def _estimate(self, slot: int) -> Floats:
        # Weights, not counts: n + 1 below the line serves arms that have all but faded, too.
        return upper_bound(self.memory.totals, self.memory.weights, self.gamma)


@dataclass(eq=False)
class UCB1(OfMemory):
    """UCB1: v̂ + √(coefficient · ln(t + 1) / n), t the slots that the memory stands for, plus one.

    Parameters
    ----------
    coefficient : float
        1.5 for choices of several arms (Chen, Wang, Yuan: Combinatorial multi-armed bandit, 2013).
    clip : bool
        Cut bounds off at 1, which arms never played have. Without, ties are rarer, and arms never
        played are left to ``untried``.

    Examples
    --------
    >>> bound = UCB1(coefficient=0.1)
    >>> bound.start(2, np.random.default_rng(0))
    >>> bound.learn(0, np.array([0]), np.array([0.25]))
    >>> bound.estimate(1).round(6)  # 1/4 + √(ln 3 / 10)
    array([0.581453, 1.      ])
    """

    coefficient: arrays.NonNegative = 1.5
    clip: bool = True

    def _estimate(self, slot: int) -> Floats:
        counts = self.memory.counts
        # With discounted counts n, t is discounted alike, or the bound would never narrow.
        width = self.coefficient * math.log(self.memory.horizon(slot + 1.0) + 1.0)
        # Less than one discounted play counts as one, which limits the width.
        bound: Floats = self.memory.means + np.sqrt(width / np.maximum(counts, 1.0))
        return np.where(counts > 0, np.minimum(bound, 1.0), 1.0) if self.clip else bound


@dataclass(eq=False)
class DiscountedUCB(OfMemory):
    """Discounted UCB: v̂ + min(1, c √(ln T / n)), v̂ and n fading by γ = 1 − 8 ln T / T a slot.

    Yang, Srikant, Ying: Learning while scheduling in multi-server systems with unknown statistics
    (AISTATS 2023), for values in [0, 1] that are observed in each slot; c is ``coefficient``.
    """

    coefficient: arrays.NonNegative = 4.0
    T: float = 8192.0

    def __post_init__(self) -> None:
        super().__post_init__()
        # Negated, so that NaN is refused as well.
        if not self.T >= 27:
            raise ScenarioError(f"T is {self.T}; γ = 1 − 8 ln T / T is positive from 27 on")
        self.memory = Discounted(1.0 - 8.0 * math.log(self.T) / self.T)

    def _estimate(self, slot: int) -> Floats:
        # 1e-300 keeps the width of arms never played finite; it is then cut off at 1.
        width = np.sqrt(math.log(self.T) / np.maximum(self.memory.weights, 1e-300))
        # Values lie in [0, 1], so no width above 1 says anything.
        bound: Floats = self.memory.means + np.minimum(self.coefficient * width, 1.0)
        return bound


@dataclass(eq=False)
class BetaSampling(OfMemory):
    """Thompson sampling: a draw from Beta(1 + Σ, 1 + n − Σ), Σ being the sum of n values.

    Uniform for n = 0.
    """

    randomised = True

    def _estimate(self, slot: int) -> Floats:
        return self._rng.beta(*self.memory.posterior)  # values between 0 and 1 count as part wins


@dataclass(eq=False)
class GaussianSampling(OfMemory):
    """Gaussian Thompson sampling: a draw from N(v̂, spread² / n).

    Parameters
    ----------
    spread : float
        1/2, the largest standard deviation that a value in [0, 1] can have.
    clip : bool
        Cut draws off at 0 and 1, and give arms never played 1. Without, these are left to
        ``untried``.
    """

    spread: arrays.NonNegative = 0.5
    clip: bool = True
    randomised = True

    def _estimate(self, slot: int) -> Floats:
        counts = self.memory.counts
        noise = self._rng.standard_normal(counts.size)  # of all arms: one stream for every policy
        # The mean of n values with standard deviation s has the deviation s / √n.
        drawn = self.memory.means + self.spread * noise / np.sqrt(np.maximum(counts, 1.0))
        return np.where(counts > 0, np.clip(drawn, 0.0, 1.0), 1.0) if self.clip else drawn


@dataclass(eq=False)
class Decay(OfMemory):
    """Decayed last value: m + (last − m) exp(−age / τ), trusted less the older it is.

    τ is ``tau`` slots; an arm's mean m is drawn towards the mean of all arms as ``pull`` plays
    would draw it; ``prior`` is for arms of which nothing is known.
    """

    tau: arrays.Positive = 30.0
    pull: arrays.Positive = 30.0
    prior: arrays.Share = 1.0

    def start(self, arms: int, rng: np.random.Generator) -> None:
        super().start(arms, rng)
        self._last, self._at = np.zeros(arms), np.full(arms, -1, np.int64)

    def learn(self, slot: int, arms: Ints, values: Floats) -> None:
        """Late feedback counts towards the mean; the last value stays the latest one."""
        super().learn(slot, arms, values)
        # Feedback may overtake: a late report must not replace a newer last value.
        newer = self._at[arms] < slot
        self._last[arms[newer]] = values[newer]
        self._at[arms[newer]] = slot

    def _estimate(self, slot: int) -> Floats:
        totals, plays = self.memory.totals, self.memory.weights
        # Shrinkage: ``pull`` plays of the mean of all arms are added to those of each.
        everyone = float(totals.sum()) / max(float(plays.sum()), 1.0)
        means = (totals + self.pull * everyone) / (plays + self.pull)
        fade = np.exp(-np.maximum(slot - 1 - self._at, 0) / self.tau)  # 1 for the slot before
        return np.where(self._at >= 0, means + (self._last - means) * fade, self.prior)


class _Known(arrays.Checked):
    randomised = False
    _table: Floats

    def start(self, arms: int, rng: np.random.Generator) -> None: ...

    def estimate(self, slot: int) -> Floats:
        """The row of this slot; the last one from there on."""
        row: Floats = self._table[min(slot, len(self._table) - 1)]
        return row

    @property
    def untried(self) -> Bools:
        return np.zeros(self._table.shape[1], dtype=bool)

    def learn(self, slot: int, arms: Ints, values: Floats) -> None: ...


@dataclass(eq=False)
class Oracle(_Known):
    """Oracle: values that are known, one for each arm, or a table [slots, N].

    For tests and bounds.
    """

    values: npt.ArrayLike

    def __post_init__(self) -> None:
        # A single row holds in every slot.
        self._table = np.array(self.values, dtype=np.float64, ndmin=2)

    def start(self, arms: int, rng: np.random.Generator) -> None:
        columns = self._table.shape[1]
        if columns != arms:
            raise ScenarioError(f"values are given for {columns} arms; there are {arms}")


@dataclass(eq=False)
class Constant(_Known):
    """No estimation, OPM §VI: the same for all arms."""

    rate: arrays.Share = 0.7

    def start(self, arms: int, rng: np.random.Generator) -> None:
        self._table = np.full((1, arms), self.rate)


# Discounted(1) forgets nothing; it adds up in floating point, as results on record were.
_MAKE: Mapping[str, Callable[..., Estimator]] = {
    "ucb": lambda gamma, **_: UCB(gamma, memory=Discounted(1.0)),
    "discounted": lambda gamma, kappa, **_: UCB(gamma, memory=Discounted(kappa)),
    "window": lambda gamma, window, **_: UCB(gamma, memory=SlidingWindow(window)),
    "ucb1": lambda coefficient, **_: UCB1(coefficient),
    "thompson": lambda kappa, **_: BetaSampling(memory=Discounted(kappa)),
    "thompson-gaussian": lambda kappa, **_: GaussianSampling(memory=Discounted(kappa)),
    "decay": lambda tau, **_: Decay(tau, memory=Discounted(1.0)),
    "mean": lambda **_: Mean(),
    "constant": lambda rate, **_: Constant(rate),
}

ESTIMATORS = tuple(_MAKE)
"""``ucb`` is OPS (12)–(14) over everything so far; the next two are it over another memory."""


def make_estimator(
    estimator: str | Estimator,
    gamma: float = 1.0,
    kappa: float = 0.5,
    window: int = 20,
    tau: float = 30.0,
    rate: float = 0.7,
    coefficient: float = 1.5,
) -> Estimator:
    """An estimator by name, which takes those of the parameters that it has, or a copy of one.

    ``gamma`` is that of OPS (14); ``kappa`` the discount of ``discounted`` and of both kinds of
    Thompson sampling, which forget nothing with κ = 1; ``coefficient`` is for ``ucb1``.

    Raises
    ------
    UnknownName

    Examples
    --------
    >>> make_estimator("decay", tau=10.0)
    Decay(memory=Discounted(discount=1.0), tau=10.0, pull=30.0, prior=1.0)
    """
    if not isinstance(estimator, str):
        # Estimators hold state; the caller's own must not learn in a policy's place.
        return copy.deepcopy(estimator)
    if estimator not in ESTIMATORS:
        raise UnknownName("estimator", estimator, list(ESTIMATORS))
    # Every maker gets all parameters and drops those it lacks, so that names alone select.
    parameters = {"gamma": gamma, "kappa": kappa, "window": window, "tau": tau, "rate": rate}
    return _MAKE[estimator](**parameters, coefficient=coefficient)


def make_memory(name: str, discount: float = 0.998, window: int = 20) -> Memory:
    """``all``, ``discounted`` or ``window``.

    Examples
    --------
    >>> make_memory("window", window=7)
    SlidingWindow(window=7)
    """
    make: dict[str, Callable[[], Memory]] = {
        "all": Memory,
        "discounted": lambda: Discounted(discount),
        "window": lambda: SlidingWindow(window),
    }
    if name not in make:
        raise ScenarioError(f"memory is {', '.join(make)}; there is no {name!r}")
    return make[name]()
