"""ESDP (ESDP Algorithm 1), other combinatorial semi-bandits, and the baselines of ESDP §4.

A learner keeps an estimate of every channel and waits for its feedback; an optimiser makes the best
choice for what it believes, P3 of ESDP (12). CUCB, Thompson sampling and ε-greedy believe something
about each channel; ESDP is optimistic about whole choices. In slot t, over the channels of the job
types that arrived,

    x(t) = argmax_{x ∈ Ω(t)}  v̂·x + √(σ̂²·x),    σ̂²_e = g(t) / (2 n_e),    ESDP (10), ESDP (12),

with v̂ and n over the slots before t. The paper rounds v̂ and σ̂² to integers, so that a dynamic
programme over (s, c, i) takes polynomial time; max over s of P4(s) with ESDP (21) is the same
problem on the rounded numbers. It is solved here without rounding by branch and bound, thousands of
times faster, so δ(t) is 0; a search is cut off after ``nodes`` nodes, and its choice not proved
best then. Two more departures from Algorithm 1, without which its regret cannot be logarithmic:
Ω(t) instead of solving for all job types and switching off those that are absent; and channels
never used come first, since +∞ in ESDP (10) hides every difference.

The sequences g(t) of ESDP (10)–(11) and δ(t) of ESDP (14) go by name, or are your own. Everywhere
ln(t + 1) stands where ESDP (11) and ESDP (14) print ln t, as ESDP §4 has it: the two differ for
tiny t only, where the printed ones make g(1) = 0.

The baselines are list scheduling. They differ in what job types, or channels, are ordered by: the
highest utility so far (HAUF, HSWF in the preprint), the lowest supply cost (LCF), the longest
waiting time (LWTF), or chance.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from gangwise.core import arrays
from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.contracts import PolicyBase
from gangwise.core.errors import UnknownName
from gangwise.core.jit import kernel
from gangwise.papers import estimators
from gangwise.papers.fluctuating_speeds import environment
from gangwise.papers.fluctuating_speeds.problem import FluctuatingSpeedsProblem
from gangwise.papers.fluctuating_speeds.solver import P3Solution, P3Solver

ProblemT = TypeVar("ProblemT", bound=environment.ChannelProblem)


@dataclass
class ChannelLearner(PolicyBase, ABC, Generic[ProblemT]):
    """Semi-bandit learner: estimates every channel from the feedback of those that were used."""

    family = "fluctuating_speeds"

    def start(self, problem: ProblemT, rng: np.random.Generator) -> None:
        self._problem, self._rng = problem, rng
        self._pending = environment.PendingFeedback(problem)
        self._estimator = self._make_estimator()
        self._estimator.start(problem.E, rng)

    @abstractmethod
    def _make_estimator(self) -> estimators.Estimator:
        """The estimator of what channels are worth."""

    def learn(self, feedback: Iterable[environment.Feedback]) -> None:
        for report in feedback:
            self._estimator.learn(report.slot, *self._pending.receive(report))


@dataclass
class Learner(ChannelLearner[FluctuatingSpeedsProblem]):
    """Learner that switches channels on; a policy adds what it estimates, and how it decides."""

    def _make_estimator(self) -> estimators.Estimator:
        """The means so far, ESDP (9)."""
        return estimators.Mean(prior=0.0)

    def decide(self, observation: environment.Observation) -> Bools:
        x = self._decide(observation, self._problem.available(observation.arrivals))
        self._pending.expect(observation.slot, x)
        return x

    @abstractmethod
    def _decide(self, observation: environment.Observation, available: Bools) -> Bools:
        """x(t), given the channels that may be used."""


@kernel
def list_schedule(
    order: Ints, requests: Floats, capacity: Floats, stop: bool, left: Floats, x: Bools
) -> None:
    """List scheduling: channels in ``order`` are switched on as long as they fit, ESDP (2).

    One that does not fit is skipped, or ends it all with ``stop``. ``capacity`` [K] has its
    tolerance added; ``left`` [K] is work space.
    """
    K = capacity.size
    left[:] = capacity
    x[:] = False
    # All device types are looked at, since a channel needs room in each of them at once.
    for i in range(order.size):
        e = order[i]
        fits = True
        for k in range(K):
            if requests[e, k] > left[k]:
                fits = False
        if fits:
            x[e] = True
            for k in range(K):
                left[k] -= requests[e, k]
        elif stop:
            break


class ListScheduling:
    """List scheduling: channels are switched on in a given order, or job type by job type.

    ESDP §4 ranks job types (ports), not channels, and does not say in which order the channels of
    one job type go on: here the cheapest to supply comes first. "In turn until (2) cannot be
    satisfied" is read as skipping what does not fit; ``stop`` ends at the first that does not.
    """

    def __init__(self, problem: FluctuatingSpeedsProblem, stop: bool = False):
        self.job_type = problem.channels.job_type
        # By job type, and within each by cost: lexsort sorts by its last key first.
        self._by_cost = np.lexsort((problem.cost, self.job_type))
        self._job_type_by_cost = self.job_type[self._by_cost]
        self._requests = problem.requests
        self._capacity = problem.cluster.capacity + problem.tolerance  # sums of requests may round
        self._left = np.empty_like(self._capacity)
        self._stop = stop
        self._L = problem.L

    def per_job_type(self, values: Floats) -> Floats:
        """Sum over the channels of each job type, shape [L]."""
        summed: Floats = np.bincount(self.job_type, values, minlength=self._L).astype(np.float64)
        return summed

    def schedule(self, order: Ints) -> Bools:
        """Channels in this order, shape [E]; those left out stay off."""
        x = np.zeros(self.job_type.size, dtype=np.bool_)
        list_schedule(order, self._requests, self._capacity, self._stop, self._left, x)
        return x

    def by_job_type(self, score: Floats, available: Bools) -> Bools:
        """Job types in descending order of their score [L], ties to the first."""
        # Stable: among the channels of one job type the cheapest stays first.
        order = self._by_cost[np.argsort(-score[self._job_type_by_cost], kind="stable")]
        return self.schedule(order[available[order]])


@dataclass
class Optimiser(Learner):
    """Optimiser: a learner that makes the best choice for what it believes, P3 of ESDP (12).

    It goes by its estimates, over ``memory``, and takes channels never used first; subclasses that
    decide otherwise call :meth:`_choose` with their own v and σ².

    Parameters
    ----------
    gap : float
        A choice within this of the best, relatively, is good enough.
    nodes : int
        Nodes of the search, at most, so that a slot is never long. Up to half of the searches are
        cut off by it where capacity is scarce, and their choices are then not proved best:
        ``proved`` and ``programmes`` count. What the choice may lose is far less than what is not
        known of the channels: ten times as many nodes change the regret by less than its noise.
    memory : {"all", "discounted", "window"}
        What estimates are taken over; all but the first follow means that drift.
    discount, window : float, int
        κ per slot, and number of slots.
    """

    gap: arrays.NonNegative = 1e-6
    nodes: arrays.PositiveInt = 200
    memory: str = "all"
    discount: float = 0.998
    window: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        self._make_estimator()

    def _make_estimator(self) -> estimators.Estimator:
        return estimators.Mean(prior=0.0, memory=self._make_memory())

    def _make_memory(self) -> estimators.Memory:
        return estimators.make_memory(self.memory, self.discount, self.window)

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        super().start(problem, rng)
        self._solver = P3Solver(problem.requests, problem.cluster.capacity)
        self._last: P3Solution | None = None
        self.programmes = self.proved = 0

    def _decide(self, observation: environment.Observation, available: Bools) -> Bools:
        worth = self._estimator.estimate(observation.slot)
        # Channels never used have the width +∞ of ESDP (10), so that they come first.
        return self._choose(worth, np.where(self._estimator.untried, np.inf, 0.0), available)

    def _choose(self, v: Floats, s: Floats, available: Bools) -> Bools:
        """Maximise v·x + √(s·x) over the channels available, subject to ESDP (2)."""
        solution = self._solver.solve(
            v, s, available=available, gap=self.gap, nodes=self.nodes, warm=self._last
        )
        self.programmes += 1
        self.proved += solution.proved
        self._last = solution  # the next slot differs by a few means only: a warm start
        return solution.x


@dataclass
class CUCB(Optimiser):
    """CUCB: maximise Σ x_e (v̂_e + √(coefficient · ln(t + 1) / n_e)), never used first.

    Parameters
    ----------
    coefficient : float
        1.5 as published (Chen, Wang, Yuan: Combinatorial multi-armed bandit, 2013); 0.5 explores
        less and earns more here.
    estimator : str or Estimator
        Another estimate of each channel in the place of this bound: one of
        :data:`~gangwise.papers.estimators.ESTIMATORS`, with ``gamma`` and ``tau``, ``discount``
        as its κ and ``window``; or your own. Only ``ucb1``, the bound above, is over ``memory``.

    Examples
    --------
    >>> from gangwise import create_policy
    >>> create_policy("cucb:estimator=decay,tau=100").estimator
    'decay'
    """

    coefficient: float = 1.5
    estimator: str | estimators.Estimator = "ucb1"
    gamma: float = 0.1
    tau: float = 30.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.randomised = self._make_estimator().randomised

    def _make_estimator(self) -> estimators.Estimator:
        if self.estimator == "ucb1":
            return estimators.UCB1(self.coefficient, clip=False, memory=self._make_memory())
        return estimators.make_estimator(
            self.estimator, self.gamma, self.discount, self.window, self.tau
        )


@dataclass
class MaxWeight(CUCB):
    """MaxWeight with discounted UCB: maximise Σ_e Q_l(e) (v̂_e + min(1, c √(ln T / n_e))) x_e.

    Yang, Srikant, Ying (AISTATS 2023), with A x ≤ c (2) in the place of one job for each server.
    Q_l is ``Observation.arrivals``: the jobs that wait, or in ESDP's world, where none does, 0 or
    1, so that it is CUCB with another bound there. ``ucb1`` and ``thompson`` in the place of this
    bound are MaxWeight with UCB and with Thompson sampling (Kim and Oh: Queueing matching bandits
    with preference feedback, 2024, with servers that serve whatever they are given).

    Parameters
    ----------
    coefficient : float
        c; 4 as published.
    estimator : str or Estimator
        ``discounted-ucb``, or as for CUCB.
    T : float
        v̂ and n fade by γ = 1 − 8 ln T / T a slot.
    """

    coefficient: float = 4.0
    estimator: str | estimators.Estimator = "discounted-ucb"
    T: float = 8192.0

    def _make_estimator(self) -> estimators.Estimator:
        if self.estimator == "discounted-ucb":
            return estimators.DiscountedUCB(self.coefficient, self.T)
        return super()._make_estimator()

    def _decide(self, observation: environment.Observation, available: Bools) -> Bools:
        waiting = observation.arrivals[self._problem.channels.job_type]
        # MaxWeight: the queue that a channel serves times its rate.
        worth = waiting * self._estimator.estimate(observation.slot)
        # The bound is part of the estimate already: nothing is left for the root in P3.
        return self._choose(worth, np.zeros_like(worth), available)


@dataclass
class ThompsonGaussian(Optimiser):
    """Thompson sampling, Gaussian: θ_e ~ N(v̂_e, spread² / n_e); channels never used come first.

    Parameters
    ----------
    spread : float
        1/2, the largest standard deviation that a utility in [0, 1] can have.
    """

    spread: float = 0.5
    randomised = True

    def _make_estimator(self) -> estimators.Estimator:
        return estimators.GaussianSampling(self.spread, clip=False, memory=self._make_memory())


@dataclass
class ThompsonBeta(Optimiser):
    """Thompson sampling, Beta: θ_e ~ Beta(1 + Σ Z̃, 1 + n − Σ Z̃).

    Nothing to tune; what is believed of a channel that was never used is uniform.
    """

    randomised = True

    def _make_estimator(self) -> estimators.Estimator:
        return estimators.BetaSampling(memory=self._make_memory())

    def _decide(self, observation: environment.Observation, available: Bools) -> Bools:
        theta = self._estimator.estimate(observation.slot)
        # A uniform belief explores by itself, so that channels never used need no precedence.
        return self._choose(theta, np.zeros_like(theta), available)


@dataclass
class EpsilonGreedy(Optimiser):
    """ε-greedy: explore with probability ε, or min(1, ε |E| / t) when it decays."""

    epsilon: float = 0.05
    decay: bool = False
    randomised = True

    def __post_init__(self) -> None:
        super().__post_init__()
        arrays.check_numbers("[0, inf)" if self.decay else "[0, 1]", epsilon=self.epsilon)

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        super().start(problem, rng)
        self._list = ListScheduling(problem)

    def _decide(self, observation: environment.Observation, available: Bools) -> Bools:
        t, E = observation.slot + 1, self._problem.E
        # Early in a decaying schedule ε |E| / t exceeds 1, which explores for sure: the min(1, …).
        if self._rng.random() < (self.epsilon * E / t if self.decay else self.epsilon):
            return self._list.schedule(self._rng.permutation(np.flatnonzero(available)))
        return super()._decide(observation, available)


@dataclass
class HAUF(Learner):
    """HAUF, highest utility first (ESDP §4): job types in descending order of Σ_r v̂_(l,r).

    Channels never used count 0, and are still switched on when their turn comes. The score of the
    paper contains the decision x that it is to make; here it is taken over all of a job type's
    channels.

    Parameters
    ----------
    stop : bool
        Stop at the first channel that does not fit, instead of skipping it.
    """

    stop: bool = False

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        super().start(problem, rng)
        self._list = ListScheduling(problem, self.stop)

    def _decide(self, observation: environment.Observation, available: Bools) -> Bools:
        # Over all channels of a job type: x(t), which the printed score has, is not known yet.
        score = self._list.per_job_type(self._estimator.estimate(observation.slot))
        return self._list.by_job_type(score, available)


@dataclass
class HAUFChannel(HAUF):
    """Channel-level HAUF: channels instead of job types in descending order of v̂.

    Of two alike the cheaper goes first. Not in the paper, and the stronger baseline: ranking job
    types throws away what is known of each channel.
    """

    def _decide(self, observation: environment.Observation, available: Bools) -> Bools:
        means = self._estimator.estimate(observation.slot)
        order = np.lexsort((self._problem.cost, -means))  # by means, ties by cost
        return self._list.schedule(order[available[order]])


@dataclass
class KnownOrder(PolicyBase):
    """List scheduling of job types by what is known of them; a policy adds the order.

    Parameters
    ----------
    stop : bool
        Stop at the first channel that does not fit, instead of skipping it.
    """

    stop: bool = False
    family = "fluctuating_speeds"

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        self._problem = problem
        self._list = ListScheduling(problem, self.stop)


@dataclass
class LCF(KnownOrder):
    """LCF, lowest cost first (ESDP §4): job types in ascending order of Σ_k f_k(a_k^(l,r)).

    The cost depends on the server r, over which the paper does not sum here, unlike in the score of
    HAUF: the mean over a job type's channels is taken. The paper says that LCF estimates utilities
    as well; it has no use for them.
    """

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        super().start(problem, rng)
        channels = np.bincount(problem.channels.job_type, minlength=problem.L)
        self._score = -self._list.per_job_type(problem.cost) / channels  # lowest mean cost first

    def decide(self, observation: environment.Observation) -> Bools:
        available = self._problem.available(observation.arrivals)
        return self._list.by_job_type(self._score, available)


@dataclass
class LWTF(KnownOrder):
    """LWTF, longest waiting time first (ESDP §4): by the slots since a job type was last served.

    The paper has no queue in which a job could wait, so this is its waiting time: a job type waits
    from the slot after one of its channels was on.
    """

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        super().start(problem, rng)
        # As if all were served just before the run: in slot 0 everybody has waited one slot.
        self._served = np.full(problem.L, -1, dtype=np.int64)

    def decide(self, observation: environment.Observation) -> Bools:
        available = self._problem.available(observation.arrivals)
        waited = (observation.slot - self._served).astype(np.float64)
        x = self._list.by_job_type(waited, available)
        self._served[self._problem.channels.job_type[x]] = observation.slot  # its wait begins anew
        return x


@dataclass
class RandomChannels(PolicyBase):
    """Random order of the channels of the job types that arrived; the floor for all others."""

    family = "fluctuating_speeds"
    randomised = True

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        self._problem, self._rng = problem, rng
        self._list = ListScheduling(problem)

    def decide(self, observation: environment.Observation) -> Bools:
        available = self._problem.available(observation.arrivals)
        return self._list.schedule(self._rng.permutation(np.flatnonzero(available)))


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
    # A constant is a sequence as well; what is rounded to multiples of δ needs it above zero.
    if isinstance(sequence, (int, float)):
        value = float(sequence)
        arrays.check_numbers("(0, inf)", delta=value)
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
        What v̂ and n are taken over, as for every :class:`Optimiser`.

    Examples
    --------
    >>> from gangwise import create_policy
    >>> create_policy("esdp:kappa=0.25").kappa
    0.25
    """

    g: str | Exploration = "log"
    kappa: arrays.NonNegative = 1.0
    alpha: arrays.PositiveShare = 0.5
    correlation: arrays.Share = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        exploration(self.g)  # raises for a name that there is not

    def _make_estimator(self) -> estimators.Estimator:
        # The root in P3 is over whole choices, so it takes means and counts, and no estimate of
        # each channel.
        self._memory = self._make_memory()
        return estimators.Mean(prior=0.0, memory=self._memory)

    def decide(self, observation: environment.Observation) -> Bools:
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
        # Never used: +∞, which the solver takes first.
        width = np.where(counts == 0, np.inf, 0.5 * g / np.maximum(counts, 1e-9))
        return memory.means, width

    def _decide(self, observation: environment.Observation, available: Bools) -> Bools:
        v, s = self.scores(observation.slot)
        if self.correlation > 0:
            # The part ρ of the width adds up channel by channel, so it joins the means; the rest
            # stays under the root. Channels never used keep their +∞.
            played = np.isfinite(s)
            width = np.where(played, s, 0.0)  # with correlation 1, 0 · ∞ is no number
            v = v + np.sqrt(self.correlation * width)
            s = np.where(played, (1.0 - self.correlation) * width, np.inf)
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

    def _decide(self, observation: environment.Observation, available: Bools) -> Bools:
        v, s = self.scores(observation.slot)
        # Lines 10-16: channels of absent job types took capacity, and are switched off only now.
        return self._choose(v, s, np.ones_like(available)) & available
