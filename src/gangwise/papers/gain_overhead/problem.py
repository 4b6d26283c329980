"""The problem of OGASched §2 and its environment: parallel gain is to outweigh overhead.

Utilities, the parallel computation gain of devices, are those of OGASched (27):

============  =============================  =================  ==========
name          value f(y)                     slope f'(y)        bound f'(0)
============  =============================  =================  ==========
linear        α y                            α                  α
log           α ln(y + 1)                    α / (y + 1)        α
reciprocal    1/α - 1/(y + α)                1 / (y + α)²       1 / α²
poly          α √(y + 1) - α                 α / (2 √(y + 1))   α / 2
============  =============================  =================  ==========

All start at zero, do not decrease and are concave. Each server and device type has its own
utility, OGASched (7), so kinds mix freely; :class:`Utility` adds one of your own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.core import arrays, contracts, simulation
from gangwise.core import workload as workloads
from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import InfeasibleDecision, ScenarioError, UnknownName
from gangwise.papers.gain_overhead.kernels import ProblemArrays, evaluate

Function = Callable[[Floats, Floats], Floats]


@dataclass(frozen=True)
class Utility:
    """Utility f of OGASched §2: zero-startup, non-decreasing, concave.

    Parameters
    ----------
    value, slope : callable
        Functions of devices ``y`` and parameter ``alpha``, elementwise on arrays.

    Raises
    ------
    ScenarioError
        When the functions visibly break a requirement (checked on a grid at construction).

    Examples
    --------
    >>> saturating = Utility(
    ...     "saturating", lambda y, a: a * -np.expm1(-y), lambda y, a: a * np.exp(-y)
    ... )
    >>> float(saturating.bound(np.array(2.0)))
    2.0
    """

    name: str
    value: Function
    slope: Function

    def __post_init__(self) -> None:
        # A grid cannot prove concavity; it finds functions that are visibly wrong.
        y = np.concatenate(([0.0], np.geomspace(1e-3, 1e3, 61)))
        for alpha in (0.5, 1.0, 1.5):
            a = np.full_like(y, alpha)
            value, slope = np.asarray(self.value(y, a)), np.asarray(self.slope(y, a))
            if value.shape != y.shape or slope.shape != y.shape:
                problem = "must work elementwise on arrays"
            elif not (np.isfinite(value).all() and np.isfinite(slope).all()):
                problem = "is not finite everywhere (its slope at 0 must be finite, OGASched (8))"
            elif abs(value[0]) > 1e-12:
                problem = f"must start at zero; its value there is {value[0]}"
            elif (slope < -1e-12).any():
                problem = f"must not decrease; its slope at {y[slope < -1e-12][0]:g} is negative"
            elif (np.diff(slope) > 1e-9 * (1 + abs(slope[:-1]))).any():
                problem = "must be concave; its slope rises"
            # A concave function stays below its tangents: f(y') - f(y) ≤ f'(y) (y' - y).
            elif (np.diff(value) > slope[:-1] * np.diff(y) + 1e-9).any():
                problem = "has a slope that is not the derivative of its value"
            else:
                continue
            raise ScenarioError(f"utility {self.name!r} {problem} (alpha = {alpha})")

    def bound(self, alpha: Floats) -> Floats:
        """Slope bound ϖ of OGASched (8): the largest slope, at zero."""
        return self.slope(np.zeros_like(alpha), alpha)


# a + 0 y gives the constant slope of a linear utility the shape of y.
LINEAR = Utility("linear", lambda y, a: a * y, lambda y, a: a + 0 * y)
LOG = Utility("log", lambda y, a: a * np.log1p(y), lambda y, a: a / (y + 1))
RECIPROCAL = Utility("reciprocal", lambda y, a: 1 / a - 1 / (y + a), lambda y, a: (y + a) ** -2.0)
POLY = Utility("poly", lambda y, a: a * (np.sqrt(y + 1) - 1), lambda y, a: a / (2 * np.sqrt(y + 1)))

BUILT_IN = (LINEAR, LOG, RECIPROCAL, POLY)  # position = kind in the kernels


@dataclass(frozen=True, eq=False)
class Utilities:
    """Separable utilities f_r^k of OGASched (7): one for each server and device type.

    Parameters
    ----------
    kind : ndarray of int64, shape [R, K]
        0 … 3 for linear, log, reciprocal, poly; 4 and up for ``own``.
    alpha : ndarray of float64, shape [R, K]
        Parameter of each utility; positive.
    own : tuple of Utility
        Your own utilities.
    """

    kind: npt.NDArray[np.int64]
    alpha: Floats
    own: tuple[Utility, ...] = ()

    def __post_init__(self) -> None:
        kind, alpha = arrays.frozen(self.kind, np.int64), arrays.frozen(self.alpha)
        if kind.shape != alpha.shape or kind.ndim != 2:
            raise ScenarioError(
                f"utility kinds have shape {kind.shape} and alphas {alpha.shape}; both must be "
                "servers by device types"
            )
        # Kinds are numbers into the built-in utilities and then the own ones.
        unknown = kind[(kind < 0) | (kind >= len(BUILT_IN) + len(self.own))]
        if unknown.size:
            raise ScenarioError(f"utility kind {unknown[0]} is not one of those given")
        if (at := arrays.first(~(np.isfinite(alpha) & (alpha > 0)))) is not None:
            raise ScenarioError(
                f"utility parameter alpha of server {at[0]}, device type {at[1]} is {alpha[at]}; "
                "it must be positive"
            )
        arrays.keep(self, kind=kind, alpha=alpha)

    @classmethod
    def of(
        cls, names: str | Utility | Sequence[Sequence[str | Utility]], alpha: npt.ArrayLike
    ) -> Utilities:
        """Build from names or utilities: one for all, or a table of shape [R, K].

        Examples
        --------
        >>> Utilities.of([["log", "poly"]], [[1.0, 2.0]]).bound()
        array([[1., 1.]])
        """
        alphas = np.array(alpha, dtype=np.float64, ndmin=2)
        if isinstance(names, str | Utility):
            names = [[names] * alphas.shape[1]] * alphas.shape[0]
        own: list[Utility] = []
        kinds = [[_kind(entry, own) for entry in row] for row in names]
        return cls(np.array(kinds, dtype=np.int64), alphas, tuple(own))

    def bound(self) -> Floats:
        """Slope bounds ϖ_r^k of OGASched (8): the slope at zero, shape [R, K]."""
        return self.each("slope", np.zeros_like(self.alpha), self.kind, self.alpha)

    def each(self, what: str, y: Floats, kind: npt.NDArray[np.int64], alpha: Floats) -> Floats:
        """``value`` or ``slope`` elementwise for arrays of kinds and parameters."""
        result = np.zeros_like(y)
        # One call for each utility: functions of users work on whole arrays.
        for index, utility in enumerate((*BUILT_IN, *self.own)):
            chosen = kind == index
            if chosen.any():
                result[chosen] = getattr(utility, what)(y[chosen], alpha[chosen])
        return result


def require_rewards(cluster: workloads.Cluster, utilities: Utilities, overhead: Floats) -> Floats:
    """Overhead coefficients β [K]; ScenarioError unless they and the utilities fit the cluster."""
    R, K = cluster.capacity.shape
    if utilities.kind.shape != (R, K):
        raise ScenarioError(
            f"utilities are given for {utilities.kind.shape} servers and device types; the "
            f"cluster has ({R}, {K})"
        )
    beta: Floats = arrays.frozen(overhead, ndim=1)
    if beta.shape != (K,) or not (np.isfinite(beta) & (beta >= 0)).all():
        raise ScenarioError(
            f"overhead coefficients must be {K} finite numbers, zero or larger; got {beta}"
        )
    return beta


def _kind(entry: str | Utility, own: list[Utility]) -> int:
    if isinstance(entry, Utility):
        # A built-in one is known to the kernels; only others are called as Python functions.
        if entry in BUILT_IN:
            return BUILT_IN.index(entry)
        # Utilities of users are numbered behind the built-in ones, each once, however often it is
        # used.
        if entry not in own:
            own.append(entry)
        return len(BUILT_IN) + own.index(entry)
    names = [utility.name for utility in BUILT_IN]
    if entry not in names:
        raise UnknownName("utility", entry, names)
    return names.index(entry)


TOLERANCE = 1e-9
"""A constraint counts as met when it is broken by no more than this, relative to 1 + its size."""


class Reward(NamedTuple):
    """Reward of one slot, OGASched (5), and the gain and overhead that it is the difference of."""

    reward: float
    gain: float
    overhead: float
    utilisation: float


@dataclass(frozen=True, eq=False)
class GainOverheadProblem:
    """Gain minus overhead (OGASched §2): cluster, job types, channels, utilities, overhead.

    Parameters
    ----------
    cluster : Cluster
        R servers, K device types.
    requests : ndarray of shape [L, K]
        a_l^k: the most devices a job holds on one server, OGASched (3).
    channels : Channels
        Which job type may use which server.
    utilities : Utilities
        f_r^k of every server and device type, OGASched (7).
    overhead : ndarray of shape [K]
        β_k of OGASched (5), per device.
    job_types : tuple of str, optional
        Names, length L.
    moving : float
        What a job pays for each device that it gets and did not hold in the slot before, in all its
        slots but the first. The paper has no such charge: its jobs last one slot.

    Raises
    ------
    ScenarioError
        Names the job type, server or device type at fault.

    Examples
    --------
    Two servers, two device types, one job type that holds (1, 3) and (2, 2) devices:

    >>> from gangwise import Channels, Cluster
    >>> problem = GainOverheadProblem(
    ...     Cluster(np.full((2, 2), 4.0), ("cpu", "gpu")),
    ...     requests=np.full((1, 2), 4.0),
    ...     channels=Channels.of_mask(np.ones((1, 2), dtype=bool)),
    ...     utilities=Utilities.of("linear", np.ones((2, 2))),
    ...     overhead=np.array([0.5, 0.4]),
    ... )
    >>> problem.reward(np.array([1]), np.array([[1.0, 3.0], [2.0, 2.0]])).reward
    6.0
    """

    cluster: workloads.Cluster
    requests: Floats
    channels: workloads.Channels
    utilities: Utilities
    overhead: Floats
    job_types: tuple[str, ...] = ()
    moving: float = 0.0

    def __post_init__(self) -> None:
        arrays.check_numbers("[0, inf)", moving=self.moving)
        requests = arrays.frozen(self.requests)
        R, K = self.cluster.capacity.shape
        if requests.ndim != 2 or requests.shape[1] != K or not len(requests):
            raise ScenarioError(
                f"requests have shape {requests.shape}; expected job types by {K} device types"
            )
        names = arrays.check_names(self.job_types, len(requests), "job type")
        devices = self.cluster.devices
        arrays.check_amount(
            requests,
            lambda at: f"job type {names[at[0]]!r}: request of device type {devices[at[1]]!r}",
        )
        # Such a job would gain nothing anywhere, and its share of a server be undefined.
        if (l := arrays.first(~(requests > 0).any(axis=1))) is not None:
            raise ScenarioError(f"job type {names[l]!r} requests no devices at all")
        overhead = require_rewards(self.cluster, self.utilities, self.overhead)
        self.channels.require_all_connected(names, R)
        arrays.keep(self, requests=requests, overhead=overhead, job_types=names)

    @property
    def L(self) -> int:
        return len(self.requests)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of a decision y(t), OGASched (2): channels by device types, (E, K)."""
        return len(self.channels), self.cluster.capacity.shape[1]

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore from a pickle, which does not keep that arrays are read-only."""
        vars(self).update(state)
        # The layout is rebuilt with read-only arrays, the only kind that kernels were compiled for.
        vars(self).pop("layout", None)

    @cached_property
    def upper(self) -> Floats:
        """Upper bounds min(a_l^k, c_r^k) of OGASched (3) and OGASched (4), shape [E, K]."""
        return np.minimum(
            self.requests[self.channels.job_type], self.cluster.capacity[self.channels.server]
        )

    @cached_property
    def layout(self) -> tuple[Any, ...]:
        """A :class:`~gangwise.papers.gain_overhead.kernels.ProblemArrays`, as a plain tuple."""
        channels = self.channels
        parts = self.requests, self.upper, self.cluster.capacity, channels.starts
        return tuple(map(arrays.read_only, ProblemArrays(*parts, channels.job_type)))

    @cached_property
    def slope_terms(self) -> Floats:
        """Slopes of OGASched (27) as the gradient kernel wants them, shape [5, E K].

        f'(y) = c0 + c1 u + c2 u² + c3 √u with u = 1 / (y + shift): rows c0 … c3 and shift.
        """
        # Where a factor is zero its term vanishes, so that all kinds are one formula.
        kind = self.utilities.kind[self.channels.server].ravel()
        alpha = self.utilities.alpha[self.channels.server].ravel()
        # Each kind of OGASched (27) sets one of c0 … c3; only the reciprocal shifts by its own α.
        return np.stack(
            [
                np.where(kind == 0, alpha, 0.0),
                np.where(kind == 1, alpha, 0.0),
                np.where(kind == 2, 1.0, 0.0),
                np.where(kind == 3, alpha / 2, 0.0),
                # Row of shifts: α for reciprocal, otherwise 1, which keeps u finite at y = 0.
                np.where(kind == 2, alpha, 1.0),
            ]
        )

    @cached_property
    def own_index(self) -> Ints:
        """Flat positions in [E, K] whose utility is not built in."""
        return np.flatnonzero(self.utilities.kind[self.channels.server] >= 4)

    def own(self, what: str, y: Floats) -> Floats:
        """``value`` or ``slope`` of the utilities that are not built in, at ``own_index``."""
        if not self.own_index.size:
            return np.empty(0)
        kind = self.utilities.kind[self.channels.server].ravel()[self.own_index]
        alpha = self.utilities.alpha[self.channels.server].ravel()[self.own_index]
        # A decision may be below 0 by the tolerance, where a user's function need not be defined.
        return self.utilities.each(what, np.maximum(y.ravel()[self.own_index], 0.0), kind, alpha)

    def reward(self, arrived: npt.ArrayLike, decision: Floats, slot: int | None = None) -> Reward:
        """Reward of a decision [E, K], OGASched (5), with the separable gain of OGASched (7).

        ``arrived`` [L] is x_l: 1 where a job arrived.

        Raises
        ------
        InfeasibleDecision
            Names the slot, server, device type and job type at fault.
        """
        x = np.asarray(arrived, dtype=np.int64)
        y = np.ascontiguousarray(decision, dtype=np.float64)
        if y.shape != self.shape or x.shape != (self.L,):
            raise InfeasibleDecision(
                f"{_at(slot)}the decision has shape {y.shape} for arrivals of shape {x.shape}; "
                f"expected {self.shape} (channels by device types) and ({self.L},)"
            )
        result = np.empty(3)
        place = evaluate(
            y,
            arrays.read_only(x),
            (arrays.read_only(self.utilities.kind), arrays.read_only(self.utilities.alpha)),
            arrays.read_only(self.overhead),
            self.layout,
            TOLERANCE,
            np.empty_like(self.requests),
            result,
        )
        if place:
            self._refuse(place, y, slot)
        gain = float(result[0])
        if self.own_index.size:
            # Utilities of your own are Python functions, which the kernel has left out.
            counted = x[self.channels.job_type[self.own_index // self.shape[1]]] != 0
            gain += float(self.own("value", y)[counted].sum())
        return Reward(gain - float(result[1]), gain, float(result[1]), float(result[2]))

    def by_job_type(self, decision: Floats) -> Floats:
        """Reward of each job type, were it to arrive, q_l(1, y) of OGASched (5), shape [L]."""
        arguments = self.channels, self.utilities, self.overhead, decision
        gain, overhead = gain_and_overhead(*arguments)
        return gain - overhead

    def moved(self, stayed: npt.ArrayLike, before: Floats, decision: Floats) -> float:
        """Devices that jobs that ``stayed`` [L] get and did not hold before, Σ (y(t) − y(t−1))⁺."""
        staying = np.asarray(stayed)[self.channels.job_type] != 0
        return float(np.maximum(decision[staying] - before[staying], 0.0).sum())

    def _refuse(self, place: int, y: Floats, slot: int | None) -> None:
        K = self.shape[1]
        # The kernel names a place by one number: its sign says which of the two rules is broken.
        position, k = divmod(abs(place) - 1, K)
        device = self.cluster.devices[k]
        if place < 0:
            r = position
            used = y[self.channels.starts[r] : self.channels.starts[r + 1], k].sum()
            raise InfeasibleDecision(
                f"{_at(slot)}server {self.cluster.servers[r]!r} has "
                f"{self.cluster.capacity[r, k]:g} of device type {device!r}, and {used:.12g} were "
                "handed out, OGASched (4)"
            )
        l, r = self.channels.job_type[position], self.channels.server[position]
        raise InfeasibleDecision(
            f"{_at(slot)}job type {self.job_types[l]!r} was given {y[position, k]:.12g} of device "
            f"type {device!r} on server {self.cluster.servers[r]!r}; it may hold 0 to "
            f"{self.requests[l, k]:g}, OGASched (3)"
        )

    def dense(self, decision: Floats) -> Floats:
        """A decision as an array of shape [L, R, K], zero where there is no channel."""
        L, R = self.channels.shape
        full = np.zeros((L, R, self.shape[1]))
        full[self.channels.job_type, self.channels.server] = decision
        return full


def relative_size(capacity: Floats, amounts: Floats | None = None) -> Floats:
    """Sizes of servers, or of other ``amounts`` [n, K]: devices in units of the largest server's.

    Ties between servers go by size, so that decisions do not depend on what servers are called.
    """
    # A device type that no server has counts 0, not 0 / 0.
    largest = np.maximum(capacity.max(axis=0), np.finfo(float).tiny)
    return np.asarray(((capacity if amounts is None else amounts) / largest).sum(axis=1))


def gain_and_overhead(
    channels: workloads.Channels, utilities: Utilities, overhead: Floats, y: Floats
) -> tuple[Floats, Floats]:
    """Gain and overhead of each job type that holds y [E, K], OGASched (5); two arrays [L]."""
    # Most channels of a slot hold nothing, and add nothing.
    e = np.flatnonzero(y.any(axis=1))
    job_type, server = channels.job_type[e], channels.server[e]
    values = utilities.each("value", y[e], utilities.kind[server], utilities.alpha[server])
    total = np.zeros((channels.shape[0], y.shape[1]))
    np.add.at(total, job_type, y[e])
    gain = np.bincount(job_type, values.sum(axis=1), minlength=len(total)).astype(np.float64)
    return gain, (overhead * total).max(axis=1)


def _at(slot: int | None) -> str:
    return "" if slot is None else f"slot {slot}: "


@dataclass(frozen=True, slots=True)
class Observation:
    """Observation before a decision: the arrivals x(t) [L], or None if the policy reserves."""

    slot: int
    arrivals: Ints | None

    @property
    def arrived(self) -> Ints:
        """x(t), for a policy that cannot do without; ScenarioError if it reserves."""
        if self.arrivals is None:
            raise ScenarioError("this policy must be shown the arrivals before it decides")
        return self.arrivals


@dataclass(frozen=True, slots=True)
class Feedback:
    """Feedback of a slot: its arrivals, from which all rewards follow; nothing else is hidden."""

    slot: int
    arrivals: Ints


@dataclass(frozen=True, eq=False)
class Ports:
    """Multiple arrivals (OGASched §3.4): one port for each job of a type in a slot.

    The j-th job of a slot uses the j-th port of its type, so the problem over ports is an ordinary
    one and every policy runs on it as it is.
    """

    most: Ints

    @cached_property
    def job_type(self) -> Ints:
        return np.repeat(np.arange(self.most.size), self.most)

    @cached_property
    def rank(self) -> Ints:
        """Which of its type's jobs a port serves, from 0."""
        return np.concatenate([np.arange(n) for n in self.most])

    def arrivals(self, counts: Ints) -> Ints:
        """1 for each port whose job came, from counts per job type (last axis)."""
        # 1{j ≤ x_l(t)} of OGASched §3.4, with j from 0.
        arrived: Ints = (self.rank < counts[..., self.job_type]).astype(np.int64)
        return arrived

    def stream(self, jobs: workloads.ArrivalStream) -> workloads.ArrivalStream:
        return _PortStream(jobs, self)

    def problem(self, problem: GainOverheadProblem) -> GainOverheadProblem:
        if self.most.size != problem.L:
            raise ScenarioError(
                f"the workload brings {self.most.size} job types; the problem has {problem.L}"
            )
        # With one job per type and slot, ports are job types: the names of the problem stay.
        if (self.most == 1).all():
            return problem
        # Every port of a job type has the channels of that job type.
        mask = np.zeros(problem.channels.shape, dtype=bool)
        mask[problem.channels.job_type, problem.channels.server] = True
        names = [f"{problem.job_types[l]}#{j + 1}" for l, j in zip(self.job_type, self.rank)]
        return replace(
            problem,
            requests=problem.requests[self.job_type],
            channels=workloads.Channels.of_mask(mask[self.job_type]),
            job_types=tuple(names),
        )


@dataclass
class _PortStream:
    jobs: workloads.ArrivalStream
    ports: Ports

    def draw(self, slots: int) -> Ints:
        return self.ports.arrivals(self.jobs.draw(slots))


class ArrivalsEnvironment(ABC):
    """Environment whose only chance is in its arrivals; what a decision earns is each family's.

    Feedback may come late or never, see :class:`~gangwise.core.workload.Delivery`.
    """

    delivery: workloads.Delivery

    def start(self, workload: np.random.Generator, noise: np.random.Generator) -> None:
        self._arrivals = workloads.ArrivalsBySlot(self._stream(workload))
        # Nothing but the delivery of feedback is random besides arrivals, so it has the noise to
        # itself.
        self._fate, self._mailbox = noise, workloads.Mailbox[Feedback]()

    def _deliver(self, slot: int, arrivals: Ints) -> tuple[Feedback, ...]:
        """Post what the slot teaches; return what is due by now."""
        due = int(self.delivery.draw(1, self._fate)[0])
        return self._mailbox.exchange(slot, due, Feedback(slot, arrivals))

    def observe(self, slot: int, timing: contracts.Timing) -> Observation:
        return Observation(slot, None if timing == "reserve" else self._arrivals.at(slot))

    @abstractmethod
    def _stream(self, workload: np.random.Generator) -> workloads.ArrivalStream:
        """Arrivals of a run."""


@dataclass(eq=False)
class GainOverheadEnvironment(ArrivalsEnvironment):
    """Environment of OGASched §2. Built by :class:`GainOverheadInstance`.

    Where moving is charged, what jobs that stayed got anew is the metric ``moved``, in devices.
    """

    problem: GainOverheadProblem
    ports: Ports
    workload: workloads.Workload
    delivery: workloads.Delivery = field(default_factory=workloads.Delivery)
    metrics: tuple[str, ...] = ("gain", "overhead", "utilisation", "jobs")

    def start(self, workload: np.random.Generator, noise: np.random.Generator) -> None:
        super().start(workload, noise)
        # Nobody was here before the first slot, so nothing that is given there counts as moved.
        self._here: Ints = np.zeros(self.problem.L, dtype=np.int64)
        self._held: Floats = np.zeros(self.problem.shape)

    def _stream(self, workload: np.random.Generator) -> workloads.ArrivalStream:
        return self.ports.stream(self.workload.stream(workload))

    def step(self, slot: int, decision: Floats) -> contracts.Outcome[tuple[Feedback, ...]]:
        """Reward of the decision for the jobs that arrived, OGASched (5)."""
        arrivals = self._arrivals.at(slot)
        reward, gain, overhead, utilisation = self.problem.reward(arrivals, decision, slot)
        metrics: tuple[float, ...] = (gain, overhead, utilisation, float(arrivals.sum()))
        if self.problem.moving > 0:
            # Only jobs that were here in the last slot, too, can have moved.
            moved = self.problem.moved(arrivals * self._here, self._held, decision)
            # A copy: a policy may write its next decision into the same array.
            self._here, self._held = arrivals, np.array(decision)
            reward -= self.problem.moving * moved
            metrics = (*metrics, moved)
        return contracts.Outcome(reward, self._deliver(slot, arrivals), metrics)


@dataclass(frozen=True, eq=False)
class GainOverheadInstance(contracts.InstanceBase):
    """Instance of OGASched §2: a problem and its workload.

    Parameters
    ----------
    base : GainOverheadProblem
        The problem over job types. Where the workload brings several jobs of a type in one slot,
        policies are given the problem over ports (OGASched §3.4) instead: :attr:`problem`.
    delivery : Delivery
        Delay and loss of feedback; at once and never lost by default.

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario, simulate
    >>> instance = create_scenario("ogasched-default-v1:servers=16").instance(seed=0)
    >>> simulate(instance, create_policy("drf"), slots=5, seed=0).slots
    5
    """

    base: GainOverheadProblem
    workload: workloads.Workload
    delivery: workloads.Delivery = field(default_factory=workloads.Delivery)
    family: str = "gain_overhead"
    comparators: tuple[str, ...] = ("best_fixed", "per_slot_optimum")

    @cached_property
    def ports(self) -> Ports:
        return Ports(np.asarray(self.workload.most))

    @cached_property
    def problem(self) -> GainOverheadProblem:
        return self.ports.problem(self.base)

    def environment(self) -> GainOverheadEnvironment:
        environment = GainOverheadEnvironment(
            self.problem, self.ports, self.workload, self.delivery
        )
        if self.problem.moving > 0:
            environment.metrics = (*environment.metrics, "moved")
        return environment

    def arrivals(self, slots: int, seed: int) -> Ints:
        """Arrivals of a run, shape [slots, L]: what its policies meet, drawn again."""
        jobs = self.workload.stream(simulation.Streams.of(seed).workload)
        return workloads.first_slots(self.ports.stream(jobs), slots)


@dataclass(frozen=True)
class GainOverheadFamily:
    """Family of OGASched §2: fuzzing and relabelling of :class:`GainOverheadInstance`."""

    name: str = "gain_overhead"

    def fuzz(self, rng: np.random.Generator) -> GainOverheadInstance:
        """A small instance; some servers lack devices, some job types never come."""
        L, R, K = rng.integers(1, 6), rng.integers(1, 8), rng.integers(1, 4)
        capacity = rng.uniform(0, 8, (R, K)) * (rng.random((R, K)) < 0.9)
        # At least one server has something to hand out.
        capacity[0, 0] = max(capacity[0, 0], 1.0)
        requests = rng.uniform(0, 8, (L, K)) * (rng.random((L, K)) < 0.9)
        # A job type that requests nothing would be refused.
        requests[:, 0] = np.maximum(requests[:, 0], 0.1)
        mask = rng.random((L, R)) < 0.6
        mask[np.arange(L), rng.integers(0, R, L)] = True
        problem = GainOverheadProblem(
            workloads.Cluster(capacity, tuple(f"device-{k}" for k in range(K))),
            requests,
            workloads.Channels.of_mask(mask),
            Utilities(rng.integers(0, 4, (R, K)), rng.uniform(0.5, 1.5, (R, K))),
            rng.uniform(0, 0.6, K),
        )
        p = rng.choice([0.0, 0.3, 0.7, 1.0], L)
        kinds: list[workloads.Workload] = [
            workloads.BernoulliArrivals(p),
            workloads.BinomialArrivals(p, rng.integers(1, 4, L)),
            workloads.OnOffArrivals(p, 3.0, 2.0),
        ]
        workload = kinds[int(rng.integers(3))]
        return GainOverheadInstance(problem, workload, workloads.Delivery.fuzz(rng))

    def relabel_servers(self, instance: GainOverheadInstance, order: Ints) -> GainOverheadInstance:
        """The same instance with server ``order[i]`` now called ``i``."""
        base, u = instance.base, instance.base.utilities
        # What belongs to servers is permuted; requests and overhead belong to job and device types.
        problem = replace(
            base,
            cluster=replace(base.cluster, capacity=base.cluster.capacity[order]),
            channels=base.channels.relabelled(order)[0],
            utilities=replace(u, kind=u.kind[order], alpha=u.alpha[order]),
        )
        return replace(instance, base=problem)

    def relabel_decision(
        self, instance: GainOverheadInstance, order: Ints, decision: Floats
    ) -> Floats:
        return np.asarray(decision)[instance.problem.channels.relabelled(order)[1]]
