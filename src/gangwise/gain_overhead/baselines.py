"""Job types served one after another: what DRF, random, BINPACKING and SPREADING share.

DRF: dominant resource fairness, the job type with the smallest dominant share first.

FAIRNESS: each arrived job gets a share of every server proportional to its request.

BINPACKING and SPREADING: servers are chosen by how much of them is handed out already.

The two differ in one sign. Jobs take turns, one server a turn, as tasks of several jobs do in a
queue: if a job took all its servers at once their order could not matter, because a request is per
server (3), not in total.

Random: job types are served in an order drawn anew in each slot.

A utility-aware greedy: devices go, a little at a time, where the reward grows most.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Floats, Ints
from gangwise.core.contracts import Timing
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.gain_overhead.ascent import Ascent
from gangwise.gain_overhead.environment import Feedback, Observation
from gangwise.gain_overhead.kernels import fill_round, pack, serve_in_order, share_proportionally
from gangwise.gain_overhead.problem import GainOverheadProblem


@dataclass(eq=False)
class InOrder:
    """Hands out whole requests, as far as they fit, job type by job type.

    Attributes
    ----------
    of_job_type : ndarray of int64, shape [E]
        Channels sorted by job type.
    first : ndarray of int64, shape [L + 1]
        Where each job type's channels begin.
    """

    problem: GainOverheadProblem
    of_job_type: Ints = field(init=False)
    first: Ints = field(init=False)

    def __post_init__(self) -> None:
        channels, capacity = self.problem.channels, self.problem.cluster.capacity
        self.of_job_type = np.argsort(channels.job_type, kind="stable")
        self.first = np.searchsorted(
            channels.job_type[self.of_job_type], np.arange(self.problem.L + 1)
        )
        largest = np.maximum(capacity.max(axis=0), np.finfo(float).tiny)
        self._size = (capacity / largest).sum(axis=1)
        self._left = np.empty_like(capacity)
        self._score = np.empty(len(capacity))
        self._taken = np.empty(len(channels), dtype=np.int64)
        self._y = np.empty(self.problem.shape)

    def _empty(self) -> None:
        np.copyto(self._left, self.problem.cluster.capacity)
        for array in (self._score, self._taken, self._y):
            array.fill(0)

    def serve(self, order: Ints) -> Floats:
        """Each job type in ``order`` takes what it may hold on all its servers at once."""
        self._empty()
        p = self.problem
        serve_in_order(
            order, p.upper, p.channels.server, self.of_job_type, self.first, self._left, self._y
        )
        return self._y

    def pack(self, order: Ints, sign: float) -> Floats:
        """In turns, each takes its best server: most used for ``sign`` 1, least used for -1."""
        self._empty()
        p = self.problem
        pack(
            order,
            sign,
            p.upper,
            p.cluster.capacity,
            self._size,
            p.channels.server,
            self.of_job_type,
            self.first,
            self._left,
            self._score,
            self._taken,
            self._y,
        )
        return self._y


def dominant_shares(problem: GainOverheadProblem) -> npt.NDArray[np.float64]:
    """s_l = max_k a_l^k / Σ_{r ∈ R_l} c_r^k (OGASched §4), shape [L].

    A device type that a job type requests but none of its servers has counts as infinite.
    """
    reachable = np.zeros_like(problem.requests)
    np.add.at(
        reachable, problem.channels.job_type, problem.cluster.capacity[problem.channels.server]
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(problem.requests > 0, problem.requests / reachable, 0.0)
    return np.asarray(shares.max(axis=1))


@dataclass
class DRF:
    """Serve the job types that arrived in ascending order of their dominant share."""

    family = "gain_overhead"
    timing: Timing = field(init=False, repr=False, default="react")

    def start(self, problem: GainOverheadProblem, rng: np.random.Generator) -> None:
        """Order the job types once; the order does not depend on what arrives."""
        self._servers = InOrder(problem)
        self._order = np.argsort(dominant_shares(problem), kind="stable")

    def decide(self, observation: Observation) -> npt.NDArray[np.float64]:
        """Each takes min(a, what is left) on every server it connects to."""
        x = observation.arrivals
        if x is None:
            raise ScenarioError("this policy must be shown the arrivals before it decides")
        return self._servers.serve(self._order[x[self._order] != 0])

    def learn(self, feedback: Feedback) -> None:
        """Nothing to learn."""


def proportional_shares(
    problem: GainOverheadProblem, weight: Floats, out: Floats | None = None
) -> Floats:
    """Shares y = min(a_l, c · w_l a_l / Σ w a) on every server and device type, shape [E, K]."""
    y = np.empty(problem.shape) if out is None else out
    share_proportionally(
        np.asarray(weight, dtype=np.float64),
        problem.requests,
        problem.upper,
        problem.cluster.capacity,
        problem.channels.starts,
        problem.channels.job_type,
        y,
    )
    return y


@dataclass
class Fairness:
    """FAIRNESS of OGASched §4.

    Parameters
    ----------
    share : {"arrived", "all"}
        Whether shares are of the requests that arrived, or of those of all connected job types, as
        the paper's formula reads; the latter leaves the absent job types' shares unused and is then
        the worst baseline, not the best as the paper reports.
    """

    share: str = "arrived"
    family = "gain_overhead"
    timing: Timing = field(init=False, repr=False, default="react")

    def __post_init__(self) -> None:
        if self.share not in ("arrived", "all"):
            raise UnknownName("share", self.share, ["arrived", "all"])

    def start(self, problem: GainOverheadProblem, rng: np.random.Generator) -> None:
        """Bind to a problem."""
        self._problem = problem
        self._y = np.empty(problem.shape)

    def decide(self, observation: Observation) -> Floats:
        """Shares of every server."""
        x = observation.arrivals
        if x is None:
            raise ScenarioError("this policy must be shown the arrivals before it decides")
        weight = np.ones(self._problem.L) if self.share == "all" else x.astype(np.float64)
        y = proportional_shares(self._problem, weight, self._y)
        if self.share == "all":
            y *= x[self._problem.channels.job_type, None]
        return y

    def learn(self, feedback: Feedback) -> None:
        """Nothing to learn."""


@dataclass
class BinPacking:
    """Each job in turn takes the most used server that it has not taken (MOSTALLOCATED)."""

    family = "gain_overhead"
    sign: ClassVar[float] = 1.0
    timing: Timing = field(init=False, repr=False, default="react")

    def start(self, problem: GainOverheadProblem, rng: np.random.Generator) -> None:
        """Bind to a problem."""
        self._servers = InOrder(problem)

    def decide(self, observation: Observation) -> npt.NDArray[np.float64]:
        """Each takes min(a, what is left) on the server that it chose."""
        x = observation.arrivals
        if x is None:
            raise ScenarioError("this policy must be shown the arrivals before it decides")
        return self._servers.pack(np.flatnonzero(x), self.sign)

    def learn(self, feedback: Feedback) -> None:
        """Nothing to learn."""


@dataclass
class Spreading(BinPacking):
    """Each job in turn takes the least used server that it has not taken (LEASTALLOCATED)."""

    sign: ClassVar[float] = -1.0


@dataclass
class RandomOrder:
    """Serve the job types that arrived in random order; the floor that others must clear."""

    family = "gain_overhead"
    randomised = True
    timing: Timing = field(init=False, repr=False, default="react")

    def start(self, problem: GainOverheadProblem, rng: np.random.Generator) -> None:
        """Bind to a problem and a generator."""
        self._servers = InOrder(problem)
        self._rng = rng

    def decide(self, observation: Observation) -> npt.NDArray[np.float64]:
        """Each takes min(a, what is left) on every server it connects to."""
        x = observation.arrivals
        if x is None:
            raise ScenarioError("this policy must be shown the arrivals before it decides")
        return self._servers.serve(self._rng.permutation(np.flatnonzero(x)))

    def learn(self, feedback: Feedback) -> None:
        """Nothing to learn."""


def fill(
    problem: GainOverheadProblem,
    arrivals: Ints,
    start: Floats | None = None,
    rounds: int = 16,
    smoothing: float = 0.1,
) -> Floats:
    """Hand out the capacity that ``start`` leaves, to the jobs that arrived.

    In each round every server offers one part in ``rounds`` of what was left of each device type
    to the jobs with the largest marginal reward (9) at that moment; nothing is handed out where
    the marginal reward is not positive.

    Parameters
    ----------
    start : ndarray of shape [E, K], optional
        What jobs hold already; rows of job types that did not arrive are dropped.
    smoothing : float
        Softmax temperature for the maximum in (5), which tells jobs apart whose marginal rewards
        are equal by how close the device type is to dominating their overhead.

    Returns
    -------
    ndarray of shape [E, K]
    """
    held = np.zeros(problem.shape)
    if start is not None:
        held = start * arrivals[problem.channels.job_type, None]
    state = Ascent(problem, held)
    used = np.zeros_like(problem.cluster.capacity)
    np.add.at(used, problem.channels.server, state.y)
    left = np.maximum(problem.cluster.capacity - used, 0.0)
    quantum = left / rounds * (1 + 1e-12)
    weight = arrivals.astype(np.float64)
    for _ in range(rounds):
        state.slope(weight, arrivals, smoothing)
        given = fill_round(
            state.y,
            state.gradient,
            arrivals,
            quantum,
            problem.upper,
            problem.channels.starts,
            problem.channels.job_type,
            left,
            state.total,
        )
        if given == 0.0:
            break
    return state.y


@dataclass
class Greedy:
    """Marginal-reward greedy, from empty servers in every slot.

    It knows the reward, sees the arrivals and keeps no memory: the rival that a learning policy
    must beat to be worth its name.

    Parameters
    ----------
    rounds : int
        In how many parts each server hands out its devices.
    smoothing : float
        See :func:`fill`.
    """

    rounds: int = 16
    smoothing: float = 0.1
    family = "gain_overhead"
    timing: Timing = field(init=False, repr=False, default="react")

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.smoothing < 0:
            raise ScenarioError(
                f"rounds must be positive and smoothing not negative; got {self.rounds}, "
                f"{self.smoothing}"
            )

    def start(self, problem: GainOverheadProblem, rng: np.random.Generator) -> None:
        """Bind to a problem."""
        self._problem = problem

    def decide(self, observation: Observation) -> Floats:
        """Fill the servers for the jobs that arrived."""
        if observation.arrivals is None:
            raise ScenarioError("this policy must be shown the arrivals before it decides")
        return fill(
            self._problem, observation.arrivals, rounds=self.rounds, smoothing=self.smoothing
        )

    def learn(self, feedback: Feedback) -> None:
        """Nothing to learn."""
