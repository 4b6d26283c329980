"""Environments of gangs, and gang policies: OGASched and ESDP for gangs, rivals, schedulers in use.

At most one job of each type arrives, is placed whole, and lasts one slot. Gain and overhead follow
from the placement (OGASched §3.5). At fluctuating speeds (ESDP §3.4) feedback is semi-bandit: one
observation of Z̃_(l,r)(t) for each channel in use, however many tasks sit there, because they all
meet the same speed of that server in that slot.

The comparators, best fixed placement, optimum of every slot and omniscient policy, solve the exact
programme of :mod:`gangwise.papers.gangs.placement`; what it could not prove in its time
is in their ``gap``.

A decision [Q] names the server of each task, -1 for none.

OGASched §3.5 leaves the design of gangs out. Here the ascent of the reactive mode climbs on the
relaxed problem, in which a job type requests Σ_q a_l^q of every server, and its point is rounded:
tasks go where the plan covers them, gangs are completed or rolled back, room that is left is
offered to tasks and jobs that are worth it, and jobs are rebuilt, one and two at a time, where that
raises the reward. The same local search also starts from the gangs that each job type launched
last, and the better of the two is played, so that a search which one slot leaves unfinished goes on
in the next.

No regret bound is known for this policy: the set of decisions is not convex, and the relaxed
problem does not know that a task runs on one server only, so its plan says where a job type may go
rather than how much it will get. On ``ogasched-gang-v1`` most of what this policy earns above the
plain greedy is due to rebuilding and remembering gangs; what starting from the plan adds is within
the noise (-0.6 ± 1.5 % over ten seeds).

The baselines of OGASched §4 under the gang rule are all list scheduling with an order of tasks and
a score of servers. None weighs gains: they place every task that finds room, as the schedulers that
they stand for do. At fluctuating speeds (ESDP §3.4) ESDP for gangs and two rivals without its index
learn what channels are worth; first fit, best fit and the allocate action of Volcano do not ask how
fast a server is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from gangwise.core import workload as workloads
from gangwise.core.arrays import Floats, Ints, NonNegative, NonNegativeInt, PositiveShare, Share
from gangwise.core.contracts import Comparator, InstanceBase, Outcome, PolicyBase, evenly_spaced
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.simulation import Streams
from gangwise.papers.estimators import UCB1, Estimator, Mean, make_memory
from gangwise.papers.fluctuating_speeds import environment as speeds
from gangwise.papers.fluctuating_speeds import problem as speed_problems
from gangwise.papers.fluctuating_speeds.environment import Feedback as ChannelFeedback
from gangwise.papers.fluctuating_speeds.environment import Observation as ChannelObservation
from gangwise.papers.fluctuating_speeds.policies import ChannelLearner, Exploration, exploration
from gangwise.papers.gain_overhead import problem as problems
from gangwise.papers.gain_overhead.offline import in_run, optimum_of_each_slot
from gangwise.papers.gain_overhead.policies import OGASchedReact, dominant_shares
from gangwise.papers.gain_overhead.problem import (
    ArrivalsEnvironment,
    Feedback,
    Observation,
    Utilities,
)
from gangwise.papers.gangs import placement as placements
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
        kinds: list[speed_problems.Speeds] = [
            speed_problems.NormalSpeeds(mean),
            speed_problems.BernoulliSpeeds(mean),
            speed_problems.BetaSpeeds(mean),
        ]
        speeds = kinds[int(rng.integers(len(kinds)))]
        cost = rng.uniform(0.0, 0.5, E)
        late = workloads.Delivery.fuzz(rng)
        # In half of the instances tasks cost nothing, which leaves ties for the solver.
        task_cost = rng.uniform(0.0, 0.4, p.Q) * (rng.random() < 0.5)
        tasks = p.task_job_type, p.task_requests, p.minimum
        problem = GangSpeedsProblem(p.cluster, *tasks, p.channels, cost, task_cost=task_cost)
        # Affine, since gangs may be forced to use channels that cost more than they bring.
        scale = speed_problems.Scale.of("affine", speeds, cost)
        return GangSpeedsInstance(problem, base.workload, speeds, scale, late)

    def relabel_servers(self, instance: GangSpeedsInstance, order: Ints) -> GangSpeedsInstance:
        """The same instance with server ``order[i]`` now called ``i``; the same noise."""
        problem, before = instance.problem.relabelled(order)
        return replace(
            instance, problem=problem, speeds=speed_problems.PermutedSpeeds(instance.speeds, before)
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


@dataclass
class GangOGASched(PolicyBase):
    """OGASched for gangs (OGASched §3.5): climb, round the plan to whole gangs, improve them.

    Parameters
    ----------
    steps : int
        Ascent steps in a slot.
    fraction, smoothing : float
        As in :class:`gangwise.papers.gain_overhead.policies.OGASchedReact`.
    least : float
        How much of a task's request the plan must cover on a server for the task to follow it
        there, 0 to 1; what completes a gang, and what is added later, may use any server.
    passes : int
        How often to go over all jobs and rebuild them where that raises the reward, at most.
    remember : bool
        Whether to start from the gangs launched last, too, and play the better outcome.
    """

    steps: int = 10
    fraction: float = 0.4
    smoothing: float = 0.03
    least: Share = 1.0
    passes: NonNegativeInt = 3
    remember: bool = True
    family = "gain_overhead_gang"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._planner = OGASchedReact(
            steps=self.steps, fraction=self.fraction, smoothing=self.smoothing
        )

    def start(self, problem: GangProblem, rng: np.random.Generator) -> None:
        # The ascent knows no tasks: it climbs on what a whole job type may hold of a server.
        self._planner.start(problem.relaxed, rng)
        self._servers = placements.Placement(problem)
        self._memory = np.full(problem.Q, -1, dtype=np.int64)
        self._worth = np.zeros(problem.L)

    def decide(self, observation: Observation) -> Ints:
        plan, x = self._planner.decide(observation), observation.arrived
        servers = self._servers
        servers.reset()
        # The plan holds fractions of a job type, and gangs are
        # whole: rounding keeps what it pays for.
        servers.round_plan(x, plan, self.least)
        played, rewards = self._finish(x)
        if self.remember:  # a second start for the local search: what worked last time
            servers.reset()
            servers.place_remembered(x, self._memory, self._worth)
            again, recalled = self._finish(x)
            # More than rounding, or equal placements would take turns from slot to slot.
            if recalled.sum() > rewards.sum() + 1e-9 * (1.0 + abs(rewards.sum())):
                played, rewards = again, recalled
            self._remember(x, played, rewards)
        return np.where(played >= 0, servers.problem.channels.server[played], -1)

    def _finish(self, arrivals: Ints) -> tuple[Ints, Floats]:
        """Use what room is left, improve; the channel of each task, the reward of each job."""
        self._servers.greedy(arrivals)
        self._servers.local_search(arrivals, self.passes)
        return self._servers.held.channel.copy(), self._servers.rewards()

    def _remember(self, arrivals: Ints, played: Ints, rewards: Floats) -> None:
        """Remember what was launched; a job that arrived and was not keeps its gang, but last."""
        problem = self._servers.problem
        launched = np.zeros(problem.L, dtype=bool)
        launched[problem.task_job_type[played >= 0]] = True
        mine = launched[problem.task_job_type]  # all tasks of a job at once, those left out as -1
        # Job types that were not launched keep the channels of the last slot in which they were.
        self._memory[mine] = played[mine]
        self._worth = np.where(arrivals != 0, rewards, self._worth)  # 0 if it was left out


@dataclass
class GangGreedy(PolicyBase):
    """Greedy: launch the gang with the largest reward, then the next, from empty servers each slot.

    A gang takes the task and server with the largest marginal reward, again and again: up to its
    minimum whatever the sign, then as long as it is positive. Gangs that cannot be completed, or
    are worth less than their overhead, are left out.

    Parameters
    ----------
    passes : int
        How often to go over all jobs afterwards and rebuild them, one and two at a time, where
        that raises the reward; 0 is the plain greedy.
    """

    passes: NonNegativeInt = 0
    family = "gain_overhead_gang"

    def start(self, problem: GangProblem, rng: np.random.Generator) -> None:
        self._servers = placements.Placement(problem)

    def decide(self, observation: Observation) -> Ints:
        self._servers.reset()
        self._servers.greedy(observation.arrived)
        self._servers.local_search(observation.arrived, self.passes)
        return self._servers.decision()


@dataclass
class GangBinPacking(PolicyBase):
    """BINPACKING for gangs: job by job, each task on the most used server with room."""

    family = "gain_overhead_gang"
    sign: ClassVar[float] = 1.0

    def start(self, problem: GangProblem, rng: np.random.Generator) -> None:
        self._problem, self._rng = problem, rng
        self._servers = placements.Placement(problem, weighs_gains=False)
        # Ties go to the larger server: what servers are called must not decide.
        self._preference = problems.relative_size(problem.cluster.capacity)

    def decide(self, observation: Observation) -> Ints:
        order, ends = self._turns(np.flatnonzero(observation.arrived))
        return self._servers.list_schedule(order, ends, self.sign, self._preference)

    def _turns(self, jobs: Ints) -> tuple[Ints, Ints]:
        """Tasks of these jobs in the order of their placement, and where turns end."""
        return placements.job_by_job(self._problem, jobs)


@dataclass
class GangSpreading(GangBinPacking):
    """SPREADING for gangs: job by job, each task on the least used server with room."""

    sign: ClassVar[float] = -1.0


@dataclass
class GangDRF(GangBinPacking):
    """Dominant resource fairness for gangs: jobs by ascending dominant share, largest server first.

    The dominant share is that of all the job's tasks together, of what its servers have together.
    Largest first is first fit in an order of servers that does not depend on what they are called.
    """

    sign: ClassVar[float] = 0.0

    def start(self, problem: GangProblem, rng: np.random.Generator) -> None:
        super().start(problem, rng)
        # Requests and capacities are fixed, and so are the shares: computed once.
        self._shares = dominant_shares(problem.relaxed)

    def _turns(self, jobs: Ints) -> tuple[Ints, Ints]:
        by_share = np.argsort(self._shares[jobs], kind="stable")  # ties as listed
        return placements.job_by_job(self._problem, jobs[by_share])


@dataclass
class GangFairness(GangBinPacking):
    """FAIRNESS for gangs, round-robin: every job places a task, then another, largest server first.

    Fractional shares of a server have no meaning for whole tasks; taking turns is what is left of
    them. Gangs that stay incomplete are rolled back and their room is offered to the others.
    """

    sign: ClassVar[float] = 0.0

    def _turns(self, jobs: Ints) -> tuple[Ints, Ints]:
        return placements.round_robin(self._problem, jobs)


@dataclass
class GangRandom(GangBinPacking):
    """Random order of jobs and servers; the floor that others must clear."""

    sign: ClassVar[float] = 0.0
    randomised = True

    def _turns(self, jobs: Ints) -> tuple[Ints, Ints]:
        jobs = self._rng.permutation(jobs)
        # Without a sign the preference alone chooses servers: a random order of them.
        self._preference = self._rng.random(self._preference.size)
        return placements.job_by_job(self._problem, jobs)


@dataclass
class GangMeans(ChannelLearner[GangSpeedsProblem]):
    """Greedy in the means: place gangs by the means so far, and never explore on purpose.

    A channel that was never used counts as 1, the most it can be.

    Parameters
    ----------
    solver : {"auto", "exact", "fast"}
        See :class:`.placement.GangSolver`.
    columns : int
        Size up to which ``auto`` is exact.
    passes : int
        How often the fast placement goes over all jobs to rebuild them, at most.
    """

    solver: Literal["auto", "exact", "fast"] = "auto"
    columns: int = 24
    passes: NonNegativeInt = 1
    family = "fluctuating_speeds_gang"

    def start(self, problem: GangSpeedsProblem, rng: np.random.Generator) -> None:
        super().start(problem, rng)
        self._solver = placements.GangSolver(problem, self.solver, self.columns, self.passes)
        self._none = np.zeros(problem.E)

    def _make_estimator(self) -> Estimator:
        # Mean's prior is 1: a channel never used looks as good as any can be, and is tried.
        return Mean()

    def decide(self, observation: ChannelObservation) -> Ints:
        value, width = self.index(observation.slot)
        placement = self._solver.solve(value, width, observation.arrivals)
        # One report for each channel in use, however many tasks meet its speed.
        self._pending.expect(observation.slot, self._problem.count(placement) > 0)
        return placement

    def index(self, slot: int) -> tuple[Floats, Floats]:
        """v_e and s_e to decide by, two arrays of shape [E]."""
        return self._estimator.estimate(slot), self._none


@dataclass
class GangCUCB(GangMeans):
    """CUCB for gangs: every channel at v̂_e + √(coefficient · ln(t + 1) / n_e), up to 1.

    Bounds are added up channel by channel, which is wider than the one root of ESDP over them all.

    Parameters
    ----------
    coefficient : float
        1.5 is that of the regret proof.
    """

    coefficient: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self._make_estimator()  # checks the coefficient

    def _make_estimator(self) -> Estimator:
        return UCB1(self.coefficient)


@dataclass
class GangESDP(GangMeans):
    """ESDP for gangs (ESDP §3.4): maximise Σ v̂ n + √(Σ σ̂² n) over whole gangs.

    σ̂²_e(t) = κ g(t) / (2 n_e), ESDP (10). A channel never used has v̂ = 1 and the width of one
    observation, where ESDP (9) and ESDP (10) put 0 and +∞: no channel can be worth more, all are
    tried that way, and the programme stays finite.

    All tasks on a channel share its estimate, so a bound that surely covers the error of Σ v̂ n has
    Σ σ̂² n² under the root, n ≤ |Q_l| here being the number of tasks there. Linear in n, it is
    concave and the programme solvable; the width falls short by √|Q_l| at most.

    Parameters
    ----------
    kappa : float
        Multiplies g; 1 is right for any utility in [0, 1], 0 follows the means.
    g : str or callable
        Exploration, as in :class:`gangwise.papers.fluctuating_speeds.policies.ESDP`.
    alpha : float
        α|E| stands for the most tasks that can run, for a g that depends on it.
    memory : {"all", "discounted", "window"}
        What means and counts are taken over.
    discount, window : float, int
        κ per slot, and number of slots.

    Examples
    --------
    >>> from gangwise import create_policy
    >>> create_policy("gang-esdp:kappa=1,solver=fast").kappa
    1
    """

    kappa: NonNegative = 0.25
    g: str | Exploration = "log"
    alpha: PositiveShare = 0.5
    memory: str = "all"
    discount: float = 0.998
    window: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        self._make_estimator()
        exploration(self.g)  # raises for a name that there is not

    def _make_estimator(self) -> Estimator:
        self._memory = make_memory(self.memory, self.discount, self.window)
        return Mean(memory=self._memory)

    def decide(self, observation: ChannelObservation) -> Ints:
        placement = super().decide(observation)
        self._memory.advance(observation.slot + 1)  # late feedback, too, finds sums that faded
        return placement

    def index(self, slot: int) -> tuple[Floats, Floats]:
        """v̂_e and σ̂²_e(t), ESDP (9) and ESDP (10)."""
        value, _ = super().index(slot)
        counts, t = self._memory.counts, self._memory.horizon(slot + 1.0)
        # α|E| as in ESDP §4, although here it is tasks, not channels, that are counted.
        g = exploration(self.g)(t, self.alpha * self._none.size)
        uses = np.where(counts > 0, counts, 1.0)  # never used: as wide as after one observation
        return value, self.kappa * g / (2.0 * uses)


@dataclass
class GangFirstFit(PolicyBase):
    """First fit: job by job as listed, each task on the first server with room, largest first.

    A job that falls short of its minimum gives back what it holds, and the next one has it.
    """

    family = "fluctuating_speeds_gang"

    def start(self, problem: GangSpeedsProblem, rng: np.random.Generator) -> None:
        self._problem, self._servers = problem, placements.Placement.by_size(problem)
        # ``by_size`` lists channels largest server first: the first with room is the largest.
        self._size = problems.relative_size(problem.cluster.capacity)

    def decide(self, observation: ChannelObservation) -> Ints:
        order, ends = placements.job_by_job(self._problem, np.flatnonzero(observation.arrivals))
        return self._servers.list_schedule(order, ends, 0.0, self._size)


@dataclass
class GangBestFit(GangFirstFit):
    """Best fit: job by job as listed, the largest task first, on the server it fills most.

    Filled is the mean share, over the device types that the task requests, that is handed out with
    the task in place. The largest task is that of the largest share of any server's largest device.
    """

    def start(self, problem: GangSpeedsProblem, rng: np.random.Generator) -> None:
        super().start(problem, rng)
        largest = np.maximum(problem.cluster.capacity.max(axis=0), np.finfo(float).tiny)
        share = (problem.task_requests / largest).max(axis=1)
        self._rank = np.lexsort((-share, problem.task_job_type)).astype(np.int64)  # within each job

    def decide(self, observation: ChannelObservation) -> Ints:
        # ``_rank`` keeps tasks within their job type, so that the ends of turns stay right.
        order, ends = placements.job_by_job(self._problem, np.flatnonzero(observation.arrivals))
        return self._servers.list_schedule(self._rank[order], ends, 1.0, self._size, filled=True)


@dataclass
class GangVolcano(GangFirstFit):
    """Volcano: its allocate action with its plugins gang, priority, drf and binpack.

    As implemented here, for jobs that last one slot:

    * a queue of the jobs that arrived; first comes a job short of its minimum (gang), then the
      larger priority, then the smaller dominant share of the whole cluster that the job holds at
      the moment (drf), then the job type listed first;
    * the first job places its tasks in their order until it is ready, that is, has its minimum; it
      goes back to the queue, and from then on places one task whenever it comes first;
    * a task goes to the server of the best score: ``binpack`` takes the one that it fills most (the
      mean, over the device types it requests, of used + requested over capacity), and
      ``least-requested`` the one that it fills least; ties go to the larger server;
    * a task that finds no room ends its job: a ready job keeps what it has, another gives it all
      back, and is not tried again in this slot.

    Preemption, queues with quotas, and the other plugins are left out.

    Parameters
    ----------
    score : {"binpack", "least-requested"}
        How servers are scored.
    priority : mapping of str to int, optional
        Of job types by name; 0 where absent.
    """

    score: Literal["binpack", "least-requested"] = "binpack"
    priority: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, level in dict[str, Any](self.priority).items():
            if not isinstance(level, int):
                raise ScenarioError(
                    f"priority of job type {name!r} is {level!r}; it must be a whole number"
                )

    def start(self, problem: GangSpeedsProblem, rng: np.random.Generator) -> None:
        super().start(problem, rng)
        for name in self.priority:
            if name not in problem.job_types:
                raise UnknownName("job type", name, list(problem.job_types))
        # By number for the kernel; names are known only once there is a problem.
        level = [self.priority.get(name, 0) for name in problem.job_types]
        self._priority = np.array(level, dtype=np.int64)
        # In an order that names do not change, so that sums have the same last bit.
        self._total = problem.cluster.capacity[problem.server_order].sum(axis=0)
        self._sign = 1.0 if self.score == "binpack" else -1.0

    def decide(self, observation: ChannelObservation) -> Ints:
        servers = self._servers
        servers.reset()
        g, h, arrived = servers.arrays, servers.held, observation.arrivals
        placements.volcano_allocate(g, h, self._priority, arrived, self._total, self._sign)
        return servers.decision()
