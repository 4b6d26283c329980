"""Environment of gain minus overhead: arrivals come, jobs hold devices for one slot.

Where several jobs of a type come in one slot, each has a port of its own, :class:`Ports` of
OGASched §3.4. There is no noise besides the arrivals.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.core.cluster import Channels, Cluster
from gangwise.core.contracts import InstanceBase, Outcome, Timing
from gangwise.core.errors import ScenarioError
from gangwise.core.simulation import Streams
from gangwise.core.workload import (
    ArrivalsBySlot,
    ArrivalStream,
    BernoulliArrivals,
    BinomialArrivals,
    Delivery,
    Mailbox,
    OnOffArrivals,
    Workload,
    first_slots,
)
from gangwise.gain_overhead.problem import GainOverheadProblem, Utilities


@dataclass(frozen=True, slots=True)
class Observation:
    """What a policy sees before it decides: the arrivals x(t) [L], or None if it reserves."""

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
    """What a slot taught: its arrivals. Rewards follow from them, since nothing else is hidden."""

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
        arrived: Ints = (self.rank < counts[..., self.job_type]).astype(np.int64)
        return arrived

    def stream(self, jobs: ArrivalStream) -> ArrivalStream:
        return _PortStream(jobs, self)

    def problem(self, problem: GainOverheadProblem) -> GainOverheadProblem:
        if self.most.size != problem.L:
            raise ScenarioError(
                f"the workload brings {self.most.size} job types; the problem has {problem.L}"
            )
        if (self.most == 1).all():
            return problem
        mask = np.zeros(problem.channels.shape, dtype=bool)
        mask[problem.channels.job_type, problem.channels.server] = True
        names = [f"{problem.job_types[l]}#{j + 1}" for l, j in zip(self.job_type, self.rank)]
        return replace(
            problem,
            requests=problem.requests[self.job_type],
            channels=Channels.of_mask(mask[self.job_type]),
            job_types=tuple(names),
        )


@dataclass
class _PortStream:
    jobs: ArrivalStream
    ports: Ports

    def draw(self, slots: int) -> Ints:
        return self.ports.arrivals(self.jobs.draw(slots))


class ArrivalsEnvironment(ABC):
    """Environment whose only chance is in its arrivals; what a decision earns is each family's.

    Feedback may come late or never, see :class:`~gangwise.core.workload.Delivery`.
    """

    delivery: Delivery

    def start(self, workload: np.random.Generator, noise: np.random.Generator) -> None:
        self._arrivals = ArrivalsBySlot(self._stream(workload))
        self._fate, self._mailbox = noise, Mailbox[Feedback]()

    def _deliver(self, slot: int, arrivals: Ints) -> tuple[Feedback, ...]:
        """Post what the slot teaches; return what is due by now."""
        due = int(self.delivery.draw(1, self._fate)[0])
        return self._mailbox.exchange(slot, due, Feedback(slot, arrivals))

    def observe(self, slot: int, timing: Timing) -> Observation:
        return Observation(slot, None if timing == "reserve" else self._arrivals.at(slot))

    @abstractmethod
    def _stream(self, workload: np.random.Generator) -> ArrivalStream:
        """Arrivals of a run."""


@dataclass(eq=False)
class GainOverheadEnvironment(ArrivalsEnvironment):
    """Environment of OGASched §2. Built by :class:`GainOverheadInstance`.

    Where moving is charged, what jobs that stayed got anew is the metric ``moved``, in devices.
    """

    problem: GainOverheadProblem
    ports: Ports
    workload: Workload
    delivery: Delivery = field(default_factory=Delivery)
    metrics: tuple[str, ...] = ("gain", "overhead", "utilisation", "jobs")

    def start(self, workload: np.random.Generator, noise: np.random.Generator) -> None:
        super().start(workload, noise)
        self._here: Ints = np.zeros(self.problem.L, dtype=np.int64)
        self._held: Floats = np.zeros(self.problem.shape)

    def _stream(self, workload: np.random.Generator) -> ArrivalStream:
        return self.ports.stream(self.workload.stream(workload))

    def step(self, slot: int, decision: Floats) -> Outcome[tuple[Feedback, ...]]:
        """Reward of the decision for the jobs that arrived, OGASched (5)."""
        arrivals = self._arrivals.at(slot)
        reward, gain, overhead, utilisation = self.problem.reward(arrivals, decision, slot)
        metrics: tuple[float, ...] = (gain, overhead, utilisation, float(arrivals.sum()))
        if self.problem.moving > 0:
            moved = self.problem.moved(arrivals * self._here, self._held, decision)
            self._here, self._held = arrivals, np.array(decision)
            reward -= self.problem.moving * moved
            metrics = (*metrics, moved)
        return Outcome(reward, self._deliver(slot, arrivals), metrics)


@dataclass(frozen=True, eq=False)
class GainOverheadInstance(InstanceBase):
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
    workload: Workload
    delivery: Delivery = field(default_factory=Delivery)
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
        jobs = self.workload.stream(Streams.of(seed).workload)
        return first_slots(self.ports.stream(jobs), slots)


@dataclass(frozen=True)
class GainOverheadFamily:
    """Family of OGASched §2: fuzzing and relabelling of :class:`GainOverheadInstance`."""

    name: str = "gain_overhead"

    def fuzz(self, rng: np.random.Generator) -> GainOverheadInstance:
        """A small instance; some servers lack devices, some job types never come."""
        L, R, K = rng.integers(1, 6), rng.integers(1, 8), rng.integers(1, 4)
        capacity = rng.uniform(0, 8, (R, K)) * (rng.random((R, K)) < 0.9)
        capacity[0, 0] = max(capacity[0, 0], 1.0)
        requests = rng.uniform(0, 8, (L, K)) * (rng.random((L, K)) < 0.9)
        requests[:, 0] = np.maximum(requests[:, 0], 0.1)
        mask = rng.random((L, R)) < 0.6
        mask[np.arange(L), rng.integers(0, R, L)] = True
        problem = GainOverheadProblem(
            Cluster(capacity, tuple(f"device-{k}" for k in range(K))),
            requests,
            Channels.of_mask(mask),
            Utilities(rng.integers(0, 4, (R, K)), rng.uniform(0.5, 1.5, (R, K))),
            rng.uniform(0, 0.6, K),
        )
        p = rng.choice([0.0, 0.3, 0.7, 1.0], L)
        kinds: list[Workload] = [
            BernoulliArrivals(p),
            BinomialArrivals(p, rng.integers(1, 4, L)),
            OnOffArrivals(p, 3.0, 2.0),
        ]
        workload = kinds[int(rng.integers(3))]
        late = [Delivery(), Delivery(2), Delivery(1.5, "geometric", loss=0.2)]
        return GainOverheadInstance(problem, workload, late[int(rng.integers(3))])

    def relabel_servers(self, instance: GainOverheadInstance, order: Ints) -> GainOverheadInstance:
        """The same instance with server ``order[i]`` now called ``i``."""
        base, u = instance.base, instance.base.utilities
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
