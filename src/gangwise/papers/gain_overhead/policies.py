"""OGASched (OGASched Algorithm 1), the baselines of OGASched §4, and two rivals.

OGASched comes in the two timings that the paper mixes. ``reserve`` fixes y(t) before the arrivals
x(t) are seen, as Algorithm 1 and the regret theorem have it; x(t) only moves y(t+1). ``react`` sees
x(t), climbs several steps over the job types that arrived and plays the result, as the experiments
must have done; the job types that stayed away keep their values as memory and use no capacity
meanwhile.

The paper's DRF, random, BINPACKING and SPREADING are list scheduling. In the last two jobs take
turns, one server a turn, as tasks of several jobs do in a queue: if a job took all its servers at
once their order could not matter, because a request is per server, OGASched (3), not in total.

What the paper calls DRF serves whole job types by ascending dominant share, so that the last ones
get nothing. That is ``drf-as-printed``; dominant-resource fairness itself raises all dominant
shares together, by progressive filling (Ghodsi et al., NSDI 2011), and is ``drf``. The greedy is
ours: devices go, a little at a time, where the reward grows most. It knows the reward and keeps no
memory, so it is what a learning policy must beat.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from gangwise.core import arrays
from gangwise.core.arrays import Floats, Ints, read_only
from gangwise.core.contracts import PolicyBase
from gangwise.papers.gain_overhead import kernels
from gangwise.papers.gain_overhead import problem as problems
from gangwise.papers.gain_overhead.kernels import ascend, gradient, overhead_prices


@dataclass(eq=False)
class Ascent:
    """Projected gradient ascent, OGASched (9)–(11): a decision y [E, K] that climbs the reward.

    ``channels`` [E] are their numbers in the problem; all channels by default. ``total`` [L, K]
    is Σ_r y, which the overhead is paid for, ``price`` [L, K] its derivative by device type, and
    ``gradient`` [E, K] the last one computed.
    """

    problem: problems.GainOverheadProblem
    y: Floats
    channels: Ints | None = None
    total: Floats = field(init=False)
    gradient: Floats = field(init=False)
    price: Floats = field(init=False)

    def __post_init__(self) -> None:
        problem, e = self.problem, self.channels
        self.job_type, self.starts = problem.channels.job_type, problem.channels.starts
        self.upper, self._terms = problem.upper, problem.slope_terms
        if e is not None:
            # Channels keep their order by server, so that a search gives where each server begins.
            self.job_type, self.starts = self.job_type[e], np.searchsorted(e, self.starts)
            self.upper = self.upper[e]
            self._terms = self._terms.reshape(5, *problem.shape)[:, e].reshape(5, -1)
        self._terms = read_only(self._terms)
        self.y = np.array(self.y, dtype=np.float64, order="C")
        self.total = totals(self.job_type, self.y, problem.L)
        self.gradient = np.zeros_like(self.y)
        self.price = np.zeros_like(self.total)
        arrays = problem.requests, self.upper, problem.cluster.capacity, self.starts
        self.layout = tuple(map(read_only, kernels.ProblemArrays(*arrays, self.job_type)))
        self._one = np.ones_like(problem.cluster.capacity)  # the same unit of step everywhere
        index, fixed = np.zeros((2, problem.L), dtype=np.int64)
        # At most L channels meet on a server, so that work space for L entries serves every block.
        self._space = index, fixed, *np.zeros((2, problem.L))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore from a pickle, which does not keep that arrays are read-only."""
        vars(self).update(state, layout=tuple(map(read_only, state["layout"])))
        self._terms, self.job_type = read_only(self._terms), read_only(self.job_type)

    def begin(self, y: Floats) -> None:
        self.y[:] = y
        self.total = totals(self.job_type, self.y, self.problem.L)

    def among(self, active: Ints) -> Ascent:
        """The same ascent over the channels of the active job types, where those are few."""
        e = channels_of(self.problem, active)
        return self if e is None else Ascent(self.problem, self.y[e], e)

    def accept(self, part: Ascent, active: Ints) -> None:
        """Copy the decision of an ascent over the active job types' channels into this one."""
        # Without channels of its own the part is this ascent itself, and has nothing to give back.
        if part.channels is not None:
            self.y[part.channels] = part.y
            self.total[active != 0] = part.total[active != 0]

    def slope(self, weight: Floats, active: Ints, smoothing: float = 0.0) -> float:
        """Gradient ∇q of OGASched (9), k* of OGASched (10), x_l = ``weight``; its squared norm."""
        p = self.problem
        prices = self.total, read_only(p.overhead), read_only(active), float(smoothing), self.price
        overhead_prices(*prices)  # β at k*, or its softmax
        slopes = self._terms, self.layout[4], p.own_index, p.own("slope", self.y)
        squared: float = gradient(
            self.y.ravel(), read_only(weight), self.price, *slopes, self.gradient.ravel()
        )
        return squared

    def climb(self, step: float, active: Ints, scale: Floats | None = None) -> None:
        """Projected step of OGASched (11), for the active job types only.

        ``scale`` [R, K] is the unit of the step, one everywhere by default.
        """
        arguments = float(step), read_only(self._one if scale is None else scale), read_only(active)
        ascend(self.y, self.gradient, *arguments, self.layout, self.total, self._space)


def totals(job_type: Ints, y: Floats, L: int) -> Floats:
    """Devices of each job type, Σ_r y, shape [L, K], for y [E, K]."""
    sums = [np.bincount(job_type, column, L) for column in y.T]
    return np.array(np.transpose(sums), np.float64, order="C")  # whole numbers of no channels


def channels_of(problem: problems.GainOverheadProblem, active: Ints) -> Ints | None:
    """Channels of the active job types; None where leaving the others out saves little.

    A log with many ports has few of them busy in a slot.
    """
    e = np.flatnonzero(active[problem.channels.job_type])
    few = 2 * e.size < len(problem.channels) and not problem.own_index.size  # own ones go by place
    return e if few else None


def project(problem: problems.GainOverheadProblem, z: Floats) -> Floats:
    """Euclidean projection Π_Y of OGASched (11), exact: onto OGASched (3), OGASched (4).

    It is clip(z - τ, 0, a) with the smallest τ ≥ 0 per server and device type that meets the
    capacity, OGASched (12) with τ = ρ / 2; ``z`` and the answer have shape [E, K].

    Examples
    --------
    One server with 7 devices, two job types that hold at most 5 and 4:

    >>> from gangwise import Channels, Cluster
    >>> from gangwise.papers.gain_overhead.problem import GainOverheadProblem, Utilities
    >>> problem = GainOverheadProblem(
    ...     Cluster(np.array([[7.0]]), ("gpu",)),
    ...     np.array([[5.0], [4.0]]),
    ...     Channels.of_mask(np.ones((2, 1), dtype=bool)),
    ...     Utilities.of("linear", [[1.0]]),
    ...     np.array([0.0]),
    ... )
    >>> project(problem, np.array([[6.0], [4.0]])).ravel()
    array([4.5, 2.5])
    """
    # A step of length zero leaves the projection alone.
    state = Ascent(problem, z)
    # All job types are active, so that absent ones use capacity as OGASched (4) has it.
    state.climb(0.0, np.ones(problem.L, dtype=np.int64))
    return state.y


def project_as_printed(problem: problems.GainOverheadProblem, z: Floats) -> Floats:
    """Projection of OGASched Algorithm 1 as printed, repaired only until it ends: OGASched (13).

    It differs from :func:`project` and may be infeasible: with spare capacity OGASched (13) has no
    ρ ≥ 0 and hands out all of it (z = (1, 1), a = (5, 5), c = 10 gives (5, 5), not (1, 1)), and
    only the first entry may reach its request (z = (10, 9, 1), a = (4, 4, 4), c = 9 gives (4, 5,
    0), not (4, 4, 1)).
    """
    y = np.empty(problem.shape)
    order, work = np.empty(problem.L, dtype=np.int64), np.empty((3, problem.L))  # work space
    z = np.ascontiguousarray(z, dtype=np.float64)
    kernels.project_as_printed(z, problem.layout, y, order, work)
    return y


def diameter(problem: problems.GainOverheadProblem, as_printed: bool = False) -> float:
    """Diameter of the feasible decisions, OGASched (25): an upper bound.

    OGASched (24) only needs |y - z| ≤ min(a, c), so the sum here is over 2 c min(max_l a, c);
    ``as_printed`` gives the paper's 2 c max_l a, which is larger where requests exceed capacities.
    """
    # Σ_l |y_l - z_l| ≤ 2 c on every server and device type, and each |y_l - z_l| ≤ min(a_l, c).
    most = problem.requests.max(axis=0)[None, :]
    capacity = problem.cluster.capacity
    reach = np.broadcast_to(most, capacity.shape) if as_printed else np.minimum(most, capacity)
    return math.sqrt(2.0 * float((capacity * reach).sum()))


def gradient_bound(problem: problems.GainOverheadProblem) -> float:
    """Gradient bound of OGASched (22): no ∇q has a larger norm."""
    # Per channel: K slopes of at most ϖ, and β once, at k*; (f' − β)² ≤ f'² + β² as both are ≥ 0.
    steepest = problem.utilities.bound().max(axis=1)[problem.channels.server]
    K = problem.shape[1]
    return math.sqrt(float((problem.overhead.max() ** 2 + K * steepest**2).sum()))


Rule = Literal["adagrad-norm", "decay", "theoretical"]


@dataclass
class Step(arrays.Checked):
    """Step size: a rule for η_t.

    AdaGrad-norm, η_t = scale · D / √(2 Σ_{s ≤ t} ‖∇q(s)‖²), has nothing to tune and needs no
    horizon; with scale 1 the regret against any fixed decision is at most √2 · D · √(Σ ‖∇q‖²),
    whatever the arrivals. ``decay``, η_t = eta · decay^t, is that of the experiments of OGASched §4
    (Table 1). ``theoretical``, η_t = diam(Y) / (‖∇q(t)‖ √T), is OGASched (26); it needs the horizon
    T in advance.
    """

    rule: Rule = "adagrad-norm"
    scale: arrays.Positive = 1.0
    eta: arrays.Positive = 25.0
    decay: arrays.Positive = 0.9999
    horizon: arrays.PositiveInt = 2000

    def start(self, problem: problems.GainOverheadProblem) -> None:
        """Measure the diameter, OGASched (25), and forget the gradients."""
        # OGASched (26) has the printed diameter (25); AdaGrad-norm takes the tighter one.
        self._diameter = diameter(problem, as_printed=self.rule == "theoretical")
        self._squares = 0.0

    def size(self, slot: int, squared: float) -> float:
        """η_t, given the squared norm of the slot's gradient; 0 where there is no gradient."""
        if self.rule == "decay":
            # Slots count from 0, so that the first step is η_0.
            return self.eta * self.decay**slot
        if self.rule == "theoretical":
            return self._diameter / math.sqrt(squared * self.horizon) if squared > 0.0 else 0.0
        # This slot's gradient included: no step is longer than scale · D / √2.
        self._squares += squared
        if self._squares <= 0.0:
            return 0.0
        return self.scale * self._diameter / math.sqrt(2.0 * self._squares)


class ListScheduling:
    """List scheduling: hands out whole requests, as far as they fit, job type by job type."""

    def __init__(self, problem: problems.GainOverheadProblem):
        self.problem = problem
        channels, capacity = problem.channels, problem.cluster.capacity
        # Channels listed by job type, and where each job type begins.
        of_job_type = np.argsort(channels.job_type, kind="stable")
        begin = np.searchsorted(channels.job_type[of_job_type], np.arange(problem.L + 1))
        self._size = problems.relative_size(capacity)
        self._left = np.empty_like(capacity)
        self._space = np.empty(len(capacity)), np.empty(len(channels), dtype=np.int64)
        # A copy, to be written like the others: a pickle keeps no array from being written, and for
        # another kind kernels are compiled anew.
        self._lists = channels.server.copy(), of_job_type, begin
        self._y = np.empty(problem.shape)

    def _empty(self) -> None:
        np.copyto(self._left, self.problem.cluster.capacity)
        for array in (*self._space, self._y):
            array.fill(0)

    def schedule(self, order: Ints) -> Floats:
        """List scheduling: each job type in ``order`` takes all it may hold on its servers."""
        self._empty()
        kernels.list_schedule(order, self.problem.upper, self._lists, self._left, self._y)
        return self._y

    def schedule_in_turns(self, order: Ints, sign: float) -> Floats:
        """List scheduling in turns: the most used server for ``sign`` 1, the least used for -1."""
        self._empty()
        arguments = order, sign, self._size, self.problem.layout, self._lists
        kernels.list_schedule_in_turns(*arguments, self._left, self._space, self._y)
        return self._y


def dominant_shares(problem: problems.GainOverheadProblem) -> Floats:
    """Dominant shares s_l = max_k a_l^k / Σ_{r ∈ R_l} c_r^k (OGASched §4), shape [L].

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
class DRFAsPrinted(PolicyBase):
    """DRF as OGASched §4 has it: list scheduling by ascending dominant share."""

    family = "gain_overhead"

    def start(self, problem: problems.GainOverheadProblem, rng: np.random.Generator) -> None:
        self._servers = ListScheduling(problem)
        self._order = np.argsort(dominant_shares(problem), kind="stable")

    def decide(self, observation: problems.Observation) -> Floats:
        x = observation.arrived
        return self._servers.schedule(self._order[x[self._order] != 0])


@dataclass
class DRF(PolicyBase):
    """DRF, dominant-resource fairness, by progressive filling on every server.

    A job demands min(a_l^k, c_r^k) of each device type of a server; its dominant share there is the
    largest share that it holds of one of them, max_k y / c_r^k. All dominant shares of a server
    rise together, each job's devices in proportion to its demand, until it has all of it, or a
    device type runs out.

    Parameters
    ----------
    bundles : bool
        What a device type that ran out stops: with bundles, as in the paper that introduced DRF,
        all jobs that demand it, since their tasks need every device type in proportion; without,
        that device type only, since the gain of OGASched (7) needs no proportions. The latter
        leaves no devices idle that a job could use, and earns more.
    """

    bundles: bool = False
    family = "gain_overhead"

    def start(self, problem: problems.GainOverheadProblem, rng: np.random.Generator) -> None:
        self._problem = problem
        capacity = problem.cluster.capacity[problem.channels.server]
        # Nothing is demanded of a device type that the server lacks: upper is 0 there.
        shares = problem.upper / np.where(capacity > 0, capacity, 1.0)
        self._most = np.ascontiguousarray(shares.max(axis=1))
        self._y = np.empty(problem.shape)
        self._left = np.empty(problem.shape[1])
        self._rises = np.empty(problem.L, dtype=np.int64)

    def decide(self, observation: problems.Observation) -> Floats:
        x, layout = read_only(observation.arrived), self._problem.layout
        kernels.fill_progressively(
            x, self.bundles, self._most, layout, self._left, self._rises, self._y
        )
        return self._y


def proportional_shares(
    problem: problems.GainOverheadProblem, weight: Floats, out: Floats | None = None
) -> Floats:
    """Proportional shares y = min(a_l, c · w_l a_l / Σ w a) of every server, shape [E, K]."""
    y = np.empty(problem.shape) if out is None else out
    weight = np.asarray(weight, dtype=np.float64)
    kernels.share_proportionally(weight, read_only(problem.requests), problem.layout, y)
    return y


@dataclass
class Fairness(PolicyBase):
    """FAIRNESS (OGASched §4): each job has a share of every server, proportional to its request.

    Parameters
    ----------
    share : {"arrived", "all"}
        Whether shares are of the requests that arrived, or of those of all connected job types, as
        the paper's formula reads; the latter leaves the absent job types' shares unused and is then
        the worst baseline, not the best as the paper reports.
    """

    share: Literal["arrived", "all"] = "arrived"
    family = "gain_overhead"

    def start(self, problem: problems.GainOverheadProblem, rng: np.random.Generator) -> None:
        self._problem = problem
        self._y = np.empty(problem.shape)

    def decide(self, observation: problems.Observation) -> Floats:
        x = observation.arrived
        weight = np.ones(self._problem.L) if self.share == "all" else x.astype(np.float64)
        y = proportional_shares(self._problem, weight, self._y)
        if self.share == "all":  # what absent job types would have had stays idle
            y *= x[self._problem.channels.job_type, None]
        return y


@dataclass
class BinPacking(PolicyBase):
    """BINPACKING (OGASched §4): each job in turn takes the most used server it has not taken."""

    family = "gain_overhead"
    sign: ClassVar[float] = 1.0

    def start(self, problem: problems.GainOverheadProblem, rng: np.random.Generator) -> None:
        self._servers = ListScheduling(problem)

    def decide(self, observation: problems.Observation) -> Floats:
        x = observation.arrived
        return self._servers.schedule_in_turns(np.flatnonzero(x), self.sign)


@dataclass
class Spreading(BinPacking):
    """SPREADING (OGASched §4): each job in turn takes the least used server it has not taken."""

    sign: ClassVar[float] = -1.0


@dataclass
class RandomOrder(PolicyBase):
    """Random order of the job types that arrived; the floor that others must clear."""

    family = "gain_overhead"
    randomised = True

    def start(self, problem: problems.GainOverheadProblem, rng: np.random.Generator) -> None:
        self._servers = ListScheduling(problem)
        self._rng = rng

    def decide(self, observation: problems.Observation) -> Floats:
        x = observation.arrived
        return self._servers.schedule(self._rng.permutation(np.flatnonzero(x)))


def marginal_greedy(
    problem: problems.GainOverheadProblem,
    arrivals: Ints,
    start: Floats | None = None,
    rounds: int = 16,
    smoothing: float = 0.1,
) -> Floats:
    """Marginal-reward greedy: hand out the capacity that ``start`` leaves to the jobs that arrived.

    In each round every server offers one part in ``rounds`` of what was left of each device type to
    the jobs with the largest marginal reward, OGASched (9), at that moment, while it is positive.

    Parameters
    ----------
    start : ndarray of shape [E, K], optional
        What jobs hold already; rows of job types that did not arrive are dropped.
    smoothing : float
        Softmax temperature for the maximum in OGASched (5), which tells jobs apart whose marginal
        rewards are equal by how close the device type is to dominating their overhead.
    """
    e = channels_of(problem, arrivals)
    rows = slice(None) if e is None else e
    server, job_type = problem.channels.server[rows], problem.channels.job_type[rows]
    devices = np.zeros((len(server), problem.shape[1]))
    if start is not None:
        devices = start[rows] * arrivals[job_type, None]
    state = Ascent(problem, devices, e)
    # In rounds, since what a job gets on one server changes what its overhead costs on all others.
    used = np.zeros_like(problem.cluster.capacity)
    np.add.at(used, server, state.y)
    remaining = np.maximum(problem.cluster.capacity - used, 0.0)
    # A hair above one part, so that rounding leaves nothing over after the last round.
    quantum = remaining / rounds * (1 + 1e-12)
    weight = arrivals.astype(np.float64)
    for _ in range(rounds):
        state.slope(weight, arrivals, smoothing)
        room = quantum, state.layout, remaining, state.total
        granted = kernels.greedy_round(state.y, state.gradient, read_only(arrivals), *room)
        if granted == 0.0:  # no job gains from one device more: nor will it in the next round
            break
    if e is None:
        return state.y
    y = np.zeros(problem.shape)
    y[e] = state.y
    return y


@dataclass
class Greedy(PolicyBase):
    """Marginal-reward greedy, from empty servers in every slot.

    Parameters
    ----------
    rounds : int
        In how many parts each server hands out its devices. With 16 it takes half the time and
        earns 0.6 % less under the default settings.
    smoothing : float
        See :func:`marginal_greedy`.
    """

    rounds: arrays.PositiveInt = 48
    smoothing: arrays.NonNegative = 0.1
    family = "gain_overhead"

    def start(self, problem: problems.GainOverheadProblem, rng: np.random.Generator) -> None:
        self._problem = problem

    def decide(self, observation: problems.Observation) -> Floats:
        return marginal_greedy(
            self._problem, observation.arrived, rounds=self.rounds, smoothing=self.smoothing
        )


@dataclass
class OGASchedReserve(PolicyBase):
    """OGASched Algorithm 1: reserve first, learn from the arrivals afterwards.

    Parameters
    ----------
    rule : {"adagrad-norm", "decay", "theoretical"}
        Step size: AdaGrad-norm needs no tuning; ``decay`` is the paper's η₀ with decay (Table 1);
        ``theoretical`` is OGASched (26).
    scale, eta, decay, horizon : float
        Parameters of the step rules.
    leftover : bool
        When the arrivals are seen, hand what the absent job types had reserved, and what no job
        had, to the jobs that came, where it raises the reward. What is learned stays the same; the
        decision then depends on the arrivals, and is never worth less.

    Examples
    --------
    >>> from gangwise import create_policy
    >>> create_policy("ogasched-reserve:rule=decay,eta=10").rule
    'decay'
    """

    rule: Rule = "adagrad-norm"
    scale: float = 1.0
    eta: float = 25.0
    decay: float = 0.9999
    horizon: int = 2000
    leftover: bool = False
    family = "gain_overhead"

    def __post_init__(self) -> None:
        self._step = Step(self.rule, self.scale, self.eta, self.decay, self.horizon)
        # Reserving acts blind; handing out leftovers needs the arrivals.
        self.timing = "react" if self.leftover else "reserve"

    def start(self, problem: problems.GainOverheadProblem, rng: np.random.Generator) -> None:
        # y(1) of Algorithm 1 may be any feasible decision: fair shares as if all job types came.
        self._ascent = Ascent(problem, proportional_shares(problem, np.ones(problem.L)))
        self._everyone = np.ones(problem.L, dtype=np.int64)
        self._step.start(problem)

    def decide(self, observation: problems.Observation) -> Floats:
        if observation.arrivals is None:
            # Not a copy: ``learn`` changes it in place once the slot is rewarded.
            return self._ascent.y
        problem, x = self._ascent.problem, observation.arrivals
        filled = marginal_greedy(problem, x, self._ascent.y)
        reserved = self._ascent.y * x[problem.channels.job_type, None]  # without leftovers
        # A part handed out at a positive marginal reward may still overshoot where that turns.
        better = problem.reward(x, filled).reward >= problem.reward(x, reserved).reward
        return filled if better else reserved

    def learn(self, feedback: Sequence[problems.Feedback]) -> None:
        """y(t+1) = Π(y(t) + η_t ∇q(x(t), y(t))), OGASched (11), for every slot that feedback is of.

        Arrivals that come late are climbed where y is by then: they determine the
        reward of every decision, so nothing has to be kept of the one that was played.
        """
        for report in feedback:
            squared = self._ascent.slope(report.arrivals.astype(np.float64), self._everyone)
            self._ascent.climb(self._step.size(report.slot, squared), self._everyone)


@dataclass
class OGASchedReact(PolicyBase):
    """OGASched in the timing of its experiments: see the arrivals, climb, play.

    Parameters
    ----------
    steps : int
        Ascent steps in a slot.
    fraction, shrink : float
        Step i = 0, 1, … of a slot has the length fraction / (1 + shrink · i), as a fraction of each
        server's capacity per unit of gradient. It starts afresh in every slot: unlike a step that
        vanishes with time it keeps following the arrivals, and it carries over between clusters.
        ``shrink`` 0 makes all steps of a slot alike.
    smoothing : float
        Temperature of the softmax that stands for the maximum in OGASched (5) while climbing;
        0 for the k* of OGASched (10).
    rule : {"capacity", "adagrad-norm", "decay", "theoretical"}
        ``capacity`` is the above; the others take one of ``OGASchedReserve``'s rules instead.
    scale, eta, decay, horizon : float
        Parameters of these rules.
    memory : bool
        Without, every slot begins where the first one did: the same ascent, and nothing learned.
    hold : bool
        Where moving is charged, climb the reward less the charge, spread over the slots that jobs
        have stayed on average so far; needs memory.
    """

    steps: arrays.PositiveInt = 10
    fraction: arrays.Positive = 0.4
    shrink: arrays.NonNegative = 1.0
    smoothing: arrays.NonNegative = 0.03
    rule: Literal["capacity", Rule] = "capacity"
    scale: float = 1.0
    eta: float = 25.0
    decay: float = 0.9999
    horizon: int = 2000
    memory: bool = True
    hold: bool = True
    family = "gain_overhead"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._step: Step | None = None
        if self.rule != "capacity":
            self._step = Step(self.rule, self.scale, self.eta, self.decay, self.horizon)

    def start(self, problem: problems.GainOverheadProblem, rng: np.random.Generator) -> None:
        self._ascent = Ascent(problem, proportional_shares(problem, np.ones(problem.L)))
        self._first = self._ascent.y.copy()
        self._charge = problem.moving if self.memory and self.hold else 0.0
        self._last, self._here = self._first, np.zeros(problem.L, dtype=np.int64)
        # From 1, as if a job had come and stayed a slot: no division by 0 before the first.
        self._stayed, self._came = 1, 1  # slots of jobs, and jobs, seen so far
        self._capacity = problem.cluster.capacity
        if self._step is not None:
            self._step.start(problem)

    def decide(self, observation: problems.Observation) -> Floats:
        x = observation.arrived
        weight = x.astype(np.float64)
        if not self.memory:
            self._ascent.begin(self._first)
        self._stayed += int(x.sum())
        self._came += int((x > self._here).sum())
        ascent = self._ascent.among(x)  # absent job types keep their values, and use no capacity
        for i in range(self.steps):
            squared = ascent.slope(weight, x, self.smoothing)
            if self._charge > 0:
                self._discourage_moves(ascent, x)
            if self._step is None:
                ascent.climb(self.fraction / (1.0 + self.shrink * i), x, self._capacity)
            else:
                ascent.climb(self._step.size(observation.slot, squared), x)
        self._ascent.accept(ascent, x)  # the start of the next slot's climb: what was learned
        y = np.where(x[self._ascent.problem.channels.job_type, None] != 0, self._ascent.y, 0.0)
        self._last, self._here = y, x
        return y

    def _discourage_moves(self, ascent: Ascent, x: Ints) -> None:
        """Gradient of the reward less the charge, for the jobs that stayed.

        More than was held last costs the charge; at what was held neither way may be worth it.
        """
        stayed = (x * self._here)[ascent.problem.channels.job_type]
        previous = self._last
        if ascent.channels is not None:
            # The ascent may have a part of the channels only; what was held has all of them.
            stayed, previous = stayed[ascent.channels], previous[ascent.channels]
        e = np.flatnonzero(stayed)
        g, y, before = ascent.gradient[e], ascent.y[e], previous[e]
        # A move is paid once and kept for as long as jobs stay, stayed / came slots on average.
        charged = g - self._charge * self._came / self._stayed
        # At the kink: up if even that pays, down if holding loses, else stay.
        at = np.maximum(charged, 0.0) + np.minimum(g, 0.0)
        ascent.gradient[e] = np.where(y > before, charged, np.where(y < before, g, at))


@dataclass
class OGASchedAsPrinted(PolicyBase):
    """OGASched Algorithm 1 with its projection as printed, repaired until it can be played.

    The printed projection may exceed requests and capacities (see :func:`project_as_printed`).
    The state and the gradient are the printed ones, step by step; what is played is the exact
    projection of the state, which changes nothing where that is feasible. ``repairs`` counts the
    values that had to be changed.
    """

    eta: float = 25.0
    decay: float = 0.9999
    family = "gain_overhead"
    timing = "reserve"

    def __post_init__(self) -> None:
        self._step = Step("decay", 1.0, self.eta, self.decay, 1)

    def start(self, problem: problems.GainOverheadProblem, rng: np.random.Generator) -> None:
        self._ascent = Ascent(problem, proportional_shares(problem, np.ones(problem.L)))
        self._played = self._ascent.y
        self._everyone = np.ones(problem.L, dtype=np.int64)
        self.repairs = 0

    def decide(self, observation: problems.Observation) -> Floats:
        return self._played

    def learn(self, feedback: Sequence[problems.Feedback]) -> None:
        """Steps 4–31 of OGASched Algorithm 1."""
        problem = self._ascent.problem
        for report in feedback:
            squared = self._ascent.slope(report.arrivals.astype(np.float64), self._everyone)
            step = self._step.size(report.slot, squared)
            # The printed step starts from the printed state, which need not be feasible: errors add
            # up as they would in the paper's own runs.
            z = self._ascent.y + step * self._ascent.gradient
            self._ascent = Ascent(problem, project_as_printed(problem, z))  # not feasible, maybe
        if feedback:
            state, self._played = self._ascent.y, project(problem, self._ascent.y)
            changed = np.abs(self._played - state) > 1e-9 * (1.0 + np.abs(state))
            self.repairs += int(changed.sum())
