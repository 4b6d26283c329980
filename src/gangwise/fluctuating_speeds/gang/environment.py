"""The world of gangs at fluctuating speeds: gangs are placed, channels in use tell their speed.

Feedback is semi-bandit: one observation of Z̃_(l,r)(t) for each channel in use, however many tasks
sit there, because they all meet the same speed of that server in that slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gangwise.core.delivery import Delivery, Mailbox
from gangwise.core.environment import Comparator, Outcome
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.policy import Timing
from gangwise.core.streams import Streams
from gangwise.core.workload import Workload
from gangwise.fluctuating_speeds.environment import BLOCK, Feedback, Observation
from gangwise.fluctuating_speeds.gang.problem import GangSpeedsProblem
from gangwise.fluctuating_speeds.normalisation import Scale
from gangwise.fluctuating_speeds.speeds import Speeds

__all__ = ["GangSpeedsEnvironment", "GangSpeedsInstance"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(eq=False)
class GangSpeedsEnvironment:
    """Plays a workload and speeds. Built by :class:`GangSpeedsInstance`.

    The reward of a slot is the realised net utility Σ_e n_e Z̃_e. Metrics: ``mean_utility``, the
    expectation Σ_e n_e ṽ_e(t) of the same decision (pseudo-regret is the omniscient comparator's
    minus this); ``gain`` Σ n Z and ``cost`` in units of utility before normalisation; ``jobs`` that
    arrived, those ``launched``, their ``tasks``; ``utilisation`` of the servers.
    """

    instance: GangSpeedsInstance
    metrics: tuple[str, ...] = (
        "mean_utility", "gain", "cost", "jobs", "launched", "tasks", "utilisation",
    )  # fmt: skip
    _arrivals: Ints = field(init=False, repr=False)
    _utilities: Floats = field(init=False, repr=False)
    _due: Ints = field(init=False, repr=False)
    _first: int = field(init=False, repr=False, default=0)

    @property
    def problem(self) -> GangSpeedsProblem:
        """What policies are told."""
        return self.instance.problem

    def start(self, workload: np.random.Generator, noise: np.random.Generator) -> None:
        """Begin a run; utilities and delays have generators of their own."""
        self._stream = self.instance.workload.stream(workload)
        self._noise, self._fate = noise.spawn(2)
        self._arrivals = np.empty((0, self.problem.L), dtype=np.int64)
        self._first = 0
        self._mailbox = Mailbox[Feedback]()
        self._regime: int | None = None
        self._means = np.empty(0)

    def _row(self, slot: int) -> int:
        while slot >= self._first + len(self._arrivals):
            self._first += len(self._arrivals)
            self._arrivals = np.array(self._stream.draw(BLOCK), dtype=np.int64)
            self._arrivals.setflags(write=False)
            slots = len(self._arrivals)
            self._utilities = self.instance.speeds.draw(self._first, slots, self._noise)
            self._due = self.instance.delivery.draw(slots, self._fate)
        return slot - self._first

    def observe(self, slot: int, timing: Timing) -> Observation:
        """The slot's arrivals."""
        if timing == "reserve":
            raise ScenarioError(
                "policies of this family see the arrivals before they decide; set timing to react"
            )
        row = self._row(slot)  # first: it may draw the next block
        return Observation(slot, self._arrivals[row])

    def step(self, slot: int, decision: npt.ArrayLike) -> Outcome[tuple[Feedback, ...]]:
        """Play a placement [Q]; say what is known by now."""
        row, problem = self._row(slot), self.problem
        arrivals, placement = self._arrivals[row], np.asarray(decision)
        tasks = problem.tasks_on(arrivals, placement, slot)
        on = np.flatnonzero(tasks)
        n, raw, cost = tasks[on], self._utilities[row, on], problem.cost[on]
        net = self.instance.scale.apply(raw, cost)
        regime = self.instance.speeds.regime(slot)
        if regime != self._regime:
            self._regime, self._means = regime, self.instance.means(slot)
        metrics = (
            float(n @ self._means[on]), float(n @ raw), float(n @ cost), float(arrivals.sum()),
            float(np.unique(problem.channels.job_type[on]).size), float(n.sum()),
            problem.utilisation(placement),
        )  # fmt: skip
        told = self._mailbox.exchange(slot, int(self._due[row]), Feedback(slot, on, net))
        return Outcome(float(n @ net), told, metrics)


@dataclass(frozen=True, eq=False)
class GangSpeedsInstance:
    """A gang problem, its workload, and what policies are not told.

    Parameters
    ----------
    problem : GangSpeedsProblem
    workload : Workload
        At most one job of a type in a slot (§2.2).
    speeds : Speeds
        Distribution of Z for each channel, before supply cost.
    scale : Scale
        Normalisation of the net utility into [0, 1].
    delivery : Delivery
        Delay and loss of feedback.
    time_limit : float
        Seconds that a comparator may think about one programme; what it could not prove by then is
        in ``Comparator.gap``.

    Raises
    ------
    ScenarioError
        When speeds or workload do not match the problem, or several jobs of a type may come.

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario, simulate
    >>> instance = create_scenario("esdp-gang-small-v1").instance(seed=0)
    >>> simulate(instance, create_policy("gang-first-fit"), slots=5, seed=0).slots
    5
    """

    problem: GangSpeedsProblem
    workload: Workload
    speeds: Speeds
    scale: Scale = field(default_factory=Scale)
    delivery: Delivery = field(default_factory=Delivery)
    time_limit: float = 20.0
    family: str = "fluctuating_speeds_gang"
    comparators: tuple[str, ...] = ("omniscient", "omniscient_realised")

    def __post_init__(self) -> None:
        p, most = self.problem, np.asarray(self.workload.most)
        if self.speeds.size != p.E:
            raise ScenarioError(
                f"speeds are given for {self.speeds.size} channels; there are {p.E}"
            )
        if most.size != p.L:
            raise ScenarioError(f"the workload brings {most.size} job types; the problem has {p.L}")
        if (most > 1).any():
            l = int(np.argmax(most > 1))
            raise ScenarioError(
                f"up to {most[l]} jobs of type {p.job_types[l]!r} arrive in one slot; this family "
                "has at most one, §2.2: list the type several times under different names"
            )

    def environment(self) -> GangSpeedsEnvironment:
        """A fresh environment."""
        return GangSpeedsEnvironment(self)

    def means(self, slot: int) -> Floats:
        """ṽ(t): the mean of Z̃ for each channel, shape [E]; not for policies."""
        return self.scale.mean(self.speeds, self.problem.cost, slot)

    def history(self, slots: int, seed: int) -> tuple[Ints, Floats]:
        """Arrivals [slots, L] and Z̃ [slots, E] of a run: what its policies meet, drawn again."""
        streams = Streams.of(seed)
        stream = self.workload.stream(streams.workload)
        blocks: list[Ints] = []
        while (missing := slots - sum(map(len, blocks))) > 0:
            blocks.append(np.asarray(stream.draw(missing), dtype=np.int64))
        raw = self.speeds.draw(0, slots, streams.noise.spawn(2)[0])
        return np.concatenate(blocks), self.scale.apply(raw, self.problem.cost)

    @cached_property
    def _evaluated(self) -> dict[tuple[int, int, int | None], tuple[Comparator, Comparator]]:
        return {}

    def comparator(self, name: str, slots: int, seed: int, sample: int | None = None) -> Comparator:
        """``omniscient`` or ``omniscient_realised`` on the slots of a run (see :mod:`.offline`)."""
        from gangwise.fluctuating_speeds.gang import offline

        if name not in self.comparators:
            raise UnknownName("comparator", name, list(self.comparators))
        key = (slots, seed, sample)
        if key not in self._evaluated:
            self._evaluated[key] = offline.omniscient(self, slots, seed, sample)
        return self._evaluated[key][self.comparators.index(name)]
