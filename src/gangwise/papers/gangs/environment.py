"""Environments of gangs, and their comparators.

At most one job of each type arrives, is placed whole, and lasts one slot. Gain and overhead follow
from the placement (OGASched §3.5). At fluctuating speeds (ESDP §3.4) feedback is semi-bandit: one
observation of Z̃_(l,r)(t) for each channel in use, however many tasks sit there, because they all
meet the same speed of that server in that slot.

The comparators, best fixed placement, optimum of every slot and omniscient policy, solve the exact
programme of :mod:`gangwise.papers.gangs.placement`; what it could not prove in its time
is in their ``gap``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gangwise.core import workload as workloads
from gangwise.core.arrays import Floats, Ints
from gangwise.core.contracts import Comparator, InstanceBase, Outcome, evenly_spaced
from gangwise.core.simulation import Streams
from gangwise.papers.fluctuating_speeds import environment as speeds
from gangwise.papers.fluctuating_speeds import problem as problems
from gangwise.papers.fluctuating_speeds.environment import Feedback as ChannelFeedback
from gangwise.papers.gain_overhead.offline import in_run, optimum_of_each_slot
from gangwise.papers.gain_overhead.problem import ArrivalsEnvironment, Feedback, Utilities
from gangwise.papers.gangs.placement import ExactGangs, FastGangs, solve
from gangwise.papers.gangs.problem import GangProblem, GangSpeedsProblem


@dataclass(eq=False)
class GangEnvironment(ArrivalsEnvironment):
    """Environment of OGASched §3.5. Built by :class:`GangInstance`."""

    problem: GangProblem
    workload: workloads.Workload
    delivery: workloads.Delivery = field(default_factory=workloads.Delivery)
    metrics: tuple[str, ...] = ("gain", "overhead", "utilisation", "jobs", "launched")

    def _stream(self, workload: np.random.Generator) -> workloads.ArrivalStream:
        return self.workload.stream(workload)

    def step(self, slot: int, decision: npt.ArrayLike) -> Outcome[tuple[Feedback, ...]]:
        arrivals = self._arrivals.at(slot)
        r = self.problem.reward(arrivals, decision, slot)
        metrics = (r.gain, r.overhead, r.utilisation, float(arrivals.sum()), float(r.launched))
        return Outcome(r.reward, self._deliver(slot, arrivals), metrics)


@dataclass(frozen=True, eq=False)
class GangInstance(InstanceBase):
    """Instance of OGASched §3.5: a gang problem and its workload.

    Parameters
    ----------
    workload : Workload
        At most one job of each type in a slot.
    time_limit : float
        Seconds that an exact comparator may think about one programme; what it could not prove by
        then is in ``Comparator.gap``.

    Raises
    ------
    ScenarioError
        When the workload does not match the job types, or brings several jobs of one type.

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario, simulate
    >>> instance = create_scenario("ogasched-gang-v1:job_types=3,servers=8").instance(seed=0)
    >>> simulate(instance, create_policy("gang-drf"), slots=5, seed=0).slots
    5
    """

    problem: GangProblem
    workload: workloads.Workload
    time_limit: float = 60.0
    family: str = "gain_overhead_gang"
    comparators: tuple[str, ...] = ("best_fixed", "per_slot_optimum")

    def __post_init__(self) -> None:
        workloads.require_single_arrivals(self.workload, self.problem.job_types)

    def environment(self) -> GangEnvironment:
        return GangEnvironment(self.problem, self.workload)

    def arrivals(self, slots: int, seed: int) -> Ints:
        """Arrivals of a run, shape [slots, L]: what its policies meet, drawn again."""
        return workloads.first_slots(self.workload.stream(Streams.of(seed).workload), slots)


class _Placements:
    def relabel_decision(self, instance: Any, order: Ints, decision: Ints) -> Floats:
        """A placement for ``instance`` as it reads after relabelling; -1 stays."""
        # Index -1 reads the last entry: a task that does not run stays at -1.
        place = np.append(np.argsort(order), -1)
        return np.asarray(place[np.asarray(decision, dtype=np.int64)], dtype=np.float64)


@dataclass(frozen=True)
class GangFamily(_Placements):
    """Family of OGASched §3.5: fuzzing and relabelling of :class:`GangInstance`."""

    name: str = "gain_overhead_gang"

    def fuzz(self, rng: np.random.Generator) -> GangInstance:
        """A small instance: tight servers, servers that lack devices, gangs of equal tasks."""
        L, R, K = rng.integers(1, 6), rng.integers(1, 8), rng.integers(1, 4)
        capacity = rng.uniform(0, 8, (R, K)) * (rng.random((R, K)) < 0.9)
        # Every server has some of the first device type, of which every task asks for some.
        capacity[:, 0] = np.maximum(capacity[:, 0], rng.uniform(0.5, 1.0, R))
        mask = rng.random((L, R)) < 0.6
        mask[np.arange(L), rng.integers(0, R, L)] = True
        tasks = rng.integers(1, 6, L)
        requests = [self._tasks(rng, capacity[mask[l]], int(tasks[l])) for l in range(L)]
        problem = GangProblem(
            workloads.Cluster(capacity, tuple(f"device-{k}" for k in range(K))),
            np.repeat(np.arange(L), tasks),
            np.concatenate(requests),
            rng.integers(1, tasks + 1),
            workloads.Channels.of_mask(mask),
            Utilities(rng.integers(0, 4, (R, K)), rng.uniform(0.5, 1.5, (R, K))),
            rng.uniform(0, 0.9, K),
        )
        p = rng.choice([0.0, 0.3, 0.7, 1.0], L)
        kinds: list[workloads.Workload] = [
            workloads.BernoulliArrivals(p),
            workloads.OnOffArrivals(p, 3.0, 2.0),
        ]
        return GangInstance(problem, kinds[int(rng.integers(2))])

    def _tasks(self, rng: np.random.Generator, servers: Floats, count: int) -> Floats:
        """Requests of one job type: a part of some server that it connects to."""
        model = servers[rng.integers(0, len(servers), count)]
        requests = model * rng.uniform(0.1, 1.0, model.shape) * (rng.random(model.shape) < 0.8)
        requests[:, 0] = np.maximum(requests[:, 0], 0.1 * model[:, 0])
        # Equal tasks in half of the job types: kinds of one task and of several.
        if rng.random() < 0.5:
            requests[: count // 2 + 1] = requests[0]
        return np.asarray(requests)

    def relabel_servers(self, instance: GangInstance, order: Ints) -> GangInstance:
        """The same instance with server ``order[i]`` now called ``i``."""
        return replace(instance, problem=instance.problem.relabelled(order)[0])


@dataclass(eq=False)
class GangSpeedsEnvironment(speeds.SpeedsEnvironment):
    """Environment of ESDP §3.4. Built by :class:`GangSpeedsInstance`.

    The reward of a slot is the realised net utility Σ_e n_e Z̃_e − Σ_q d_q. Metrics:
    ``mean_utility``, the expectation Σ_e n_e ṽ_e(t) − Σ_q d_q of the same decision (pseudo-regret
    is the omniscient comparator's minus this); ``gain`` Σ n Z and ``cost``, which includes that of
    tasks, in units of utility before normalisation; ``jobs`` that arrived, those ``launched``,
    their ``tasks``; ``utilisation`` of the servers.
    """

    instance: GangSpeedsInstance
    metrics = ("mean_utility", "gain", "cost", "jobs", "launched", "tasks", "utilisation")

    @property
    def problem(self) -> GangSpeedsProblem:
        return self.instance.problem

    def step(self, slot: int, decision: npt.ArrayLike) -> Outcome[tuple[ChannelFeedback, ...]]:
        row, problem = self._row(slot), self.problem
        arrivals, placement = self._arrivals[row], np.asarray(decision)
        # All tasks of a channel meet one speed, and so bring n times the same.
        tasks = problem.tasks_on(arrivals, placement, slot)
        on = np.flatnonzero(tasks)
        n, raw, cost = tasks[on], self._utilities[row, on], problem.cost[on]
        scale, paid = self.instance.scale, problem.paid(placement)
        net = scale.apply(raw, cost)
        metrics = (
            float(n @ self.means(slot)[on]) - paid,
            float(n @ raw),
            # Task costs are in units of Z̃; times the width of the scale they are in those of Z.
            float(n @ cost) + paid * (scale.high - scale.low),
            float(arrivals.sum()),
            float(np.unique(problem.channels.job_type[on]).size),
            float(n.sum()),
            problem.utilisation(placement),
        )
        return Outcome(float(n @ net) - paid, self._deliver(slot, on, net), metrics)


@dataclass(frozen=True, eq=False)
class GangSpeedsInstance(speeds.SpeedsInstance):
    """Instance of ESDP §3.4: a gang problem, its workload, and what policies are not told.

    Takes what :class:`~gangwise.papers.fluctuating_speeds.environment.SpeedsInstance` takes, and:

    Parameters
    ----------
    time_limit : float
        Seconds that a comparator may think about one programme; what it could not prove by then is
        in ``Comparator.gap``.

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario, simulate
    >>> instance = create_scenario("esdp-gang-small-v1").instance(seed=0)
    >>> simulate(instance, create_policy("gang-first-fit"), slots=5, seed=0).slots
    5
    """

    problem: GangSpeedsProblem
    time_limit: float = 20.0
    family = "fluctuating_speeds_gang"

    def environment(self) -> GangSpeedsEnvironment:
        return GangSpeedsEnvironment(self)


@dataclass(frozen=True)
class GangSpeedsFamily(_Placements):
    """Family of ESDP §3.4: fuzzing and relabelling of :class:`GangSpeedsInstance`."""

    name: str = "fluctuating_speeds_gang"

    def fuzz(self, rng: np.random.Generator) -> GangSpeedsInstance:
        """Awkward gangs as in the other family; costs and noise of all kinds, late feedback."""
        base = GangFamily().fuzz(rng)
        p, E = base.problem, base.problem.E
        mean = rng.uniform(0.05, 0.95, E)
        kinds: list[problems.Speeds] = [
            problems.NormalSpeeds(mean),
            problems.BernoulliSpeeds(mean),
            problems.BetaSpeeds(mean),
        ]
        speeds = kinds[int(rng.integers(len(kinds)))]
        cost = rng.uniform(0.0, 0.5, E)
        late = workloads.Delivery.fuzz(rng)
        # In half of the instances tasks cost nothing, which leaves ties for the solver.
        task_cost = rng.uniform(0.0, 0.4, p.Q) * (rng.random() < 0.5)
        tasks = p.task_job_type, p.task_requests, p.minimum
        problem = GangSpeedsProblem(p.cluster, *tasks, p.channels, cost, task_cost=task_cost)
        # Affine, since gangs may be forced to use channels that cost more than they bring.
        scale = problems.Scale.of("affine", speeds, cost)
        return GangSpeedsInstance(problem, base.workload, speeds, scale, late)

    def relabel_servers(self, instance: GangSpeedsInstance, order: Ints) -> GangSpeedsInstance:
        """The same instance with server ``order[i]`` now called ``i``; the same noise."""
        problem, before = instance.problem.relabelled(order)
        return replace(
            instance, problem=problem, speeds=problems.PermutedSpeeds(instance.speeds, before)
        )


def best_fixed(
    problem: GangProblem, arrivals: Ints, sample: int | None = None, time_limit: float = 60.0
) -> Comparator:
    """Best fixed placement, the gang form of y* of OGASched (6), with room held for all job types.

    Its reward in a slot counts the job types that arrived, so Σ_t q(x(t), z) = Σ_l n_l q_l(1, z)
    and one programme answers for all slots of ``arrivals`` x [T, L]: ``sample`` is not needed. What
    is not proved in ``time_limit`` seconds is in the comparator's ``gap``.
    """
    # Job types weigh as often as they came.
    solution = solve(problem, arrivals.sum(axis=0), time_limit)
    gain, overhead = problem.by_job_type(solution.placement)
    slots = np.arange(len(arrivals))
    return Comparator("best_fixed", slots, arrivals @ (gain - overhead), solution.gap)


def per_slot_optimum(
    problem: GangProblem, arrivals: Ints, sample: int | None = None, time_limit: float = 60.0
) -> Comparator:
    """Per-slot optimum: the best placement for the arrivals of each slot; no policy can earn more.

    At most ``sample`` slots of ``arrivals`` x [T, L], evenly spaced, are evaluated; all of them if
    not given. Slots with the same arrivals share one programme, which has ``time_limit`` seconds;
    ``rewards + gap`` bounds the optimum from above where one ran out of time.
    """
    return optimum_of_each_slot(
        arrivals, sample, lambda pattern: solve(problem, pattern, time_limit)
    )


best_fixed_in_run, per_slot_optimum_in_run = in_run(best_fixed), in_run(per_slot_optimum)


def omniscient(
    instance: GangSpeedsInstance, slots: int, seed: int, sample: int | None = None
) -> tuple[Comparator, Comparator]:
    """Omniscient policy, the gang form of x*(t) of ESDP (7): the placement of largest mean utility.

    ``omniscient`` has the rewards Σ n ṽ − Σ d, ESDP (6), and ``omniscient_realised`` what the very
    same placements earned with the noise of the run, on the ``slots`` of the run with this ``seed``
    or on at most ``sample`` of them, evenly spaced. Where a programme runs out of time, the total
    mean utility is proved to be within ``gap`` of the optimum.
    """
    problem = instance.problem
    # More passes than policies take: a comparator is solved once and may be slow.
    exact, fast = ExactGangs(problem), FastGangs(problem, passes=4)
    none = np.zeros(problem.E)

    def best(means: Floats, called: Ints) -> speeds.Best:
        # The search by prices gives the exact programme a placement to start from.
        start = fast.linear(means, called)
        answer = exact.solve(means, none, called, instance.time_limit, start)
        placement = answer.placement
        paid = problem.paid(placement)
        return speeds.Best(problem.count(placement), answer.value, answer.gap, paid)

    return speeds.play_the_means(
        instance, slots, seed, lambda keys: evenly_spaced(slots, sample), best
    )


omniscient_in_run = speeds.in_run(omniscient)
