"""The worlds of gangwise behind the Gymnasium interface, for reinforcement learning.

=================================  ============================================================
id                                 what an action is
=================================  ============================================================
``gangwise/GainOverhead-v1``       devices for every channel, as shares of what may be given
``gangwise/FluctuatingSpeeds-v1``  a score for every channel; those above 0 go on, highest first
``gangwise/ApproximationJobs-v1``  a share of the machines for every job in sight
``gangwise/Jobs-v1``               which waiting job starts now, or none: time goes on
``gangwise/JobsVector-v1``         the same for many at once (``make_vec``), in compiled code
=================================  ============================================================

Versions stay bound to a behaviour: what changes rewards gets a new one. An action is always made
feasible in the way that its class says, so that nothing is ever refused. Rewards of the first three
are those of :func:`gangwise.compare`, slot by slot, so that returns can be set beside its policies.

Needs the package gymnasium (``pip install '.[gym]'`` in the checkout). Importing this module
registers the ids; ``gymnasium.make("gangwise.gym:gangwise/Jobs-v1")`` does both.

>>> import gymnasium, gangwise.gym
>>> env = gymnasium.make("gangwise/GainOverhead-v1", scenario="ogasched-default-v1:servers=8")
>>> observation, info = env.reset(seed=3)
>>> observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
>>> reward == info["reward"], terminated, truncated
(True, False, False)
"""

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numba.core import event

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.core.jit import entry
from gangwise.core.simulation import Streams
from gangwise.jobs import compiled
from gangwise.jobs.books import Books, Place, Queue
from gangwise.jobs.compiled import joined, never_cut, outcome, pinned, row, stacked
from gangwise.jobs.kernels import DOWN
from gangwise.jobs.schedule import Schedule, Tables
from gangwise.jobs.scheduler import Composed
from gangwise.jobs.simulation import JobSimulation
from gangwise.study.replay_scenario import ReplayScenario
from gangwise.study.runs import named_source

LARGEST = 1e6  # the largest number in an observation


def _box(low: float, high: float, *shape: int) -> spaces.Box:
    return spaces.Box(low, high, shape, np.float32)


class SlotEnv(gymnasium.Env[Any, Any]):
    """Slots of a scenario: an episode is one run on one instance.

    Parameters
    ----------
    scenario : str
        A scenario or trace, as :func:`gangwise.compare` takes it.
    instance : int
        Seed of the instance, which stays; arrivals and noise are drawn anew by every ``reset``.
    slots : int
        Of an episode; the scenario's own number if 0. It is cut off then, not over.

    Raises
    ------
    ScenarioError
        For a scenario of another family.
    """

    family = ""
    usual = ""  # the scenario where none is given

    def __init__(self, scenario: str = "", instance: int = 0, slots: int = 0):
        world = named_source(scenario or self.usual, {}).scenario()
        if world.family != self.family:
            raise ScenarioError(
                f"{scenario} is of the family {world.family}; {type(self).__name__} plays "
                f"{self.family}"
            )
        self.instance = world.instance(instance)
        self.problem = self.instance.problem
        self.slots = slots or world.slots
        self._set_spaces()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. The same seed brings the same arrivals and the same noise."""
        super().reset(seed=seed)
        # A seed of gangwise's own streams, so that arrivals and noise are those of ``compare``.
        streams = Streams.of(int(self.np_random.integers(2**62)))
        self.environment = self.instance.environment()
        self.environment.start(streams.workload, streams.noise)
        self.slot = 0
        self._begin(streams.policy)
        self._observe()
        return self._observation(), self._mask()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play a slot. The last one cuts the episode off; nothing ends it before."""
        outcome = self.environment.step(self.slot, self._decision(action))
        # Feedback of several slots may arrive in one, or none.
        for feedback in outcome.feedback:
            self._learn(feedback)
        self.slot += 1
        # Truncated, not terminated: values beyond the end are still worth something to a learner.
        cut_off = self.slot >= self.slots
        try:
            self._observe()
        except ScenarioError:
            # A trace that is not repeated has no slot behind its last: what was seen last stays.
            if not cut_off:
                raise
        info = {"reward": outcome.reward, **dict(zip(self.environment.metrics, outcome.metrics))}
        return self._observation(), float(outcome.reward), False, cut_off, info | self._mask()

    def _observe(self) -> None:
        self.seen: Any = self.environment.observe(self.slot, "react")

    def _mask(self) -> dict[str, Any]:
        """The mask of actions that have an effect, as ``info`` has it."""
        return {}

    def _begin(self, rng: np.random.Generator) -> None:
        """Begin to learn anew."""

    def _learn(self, feedback: Any) -> None:
        """Learn from the feedback of a slot."""

    @abstractmethod
    def _set_spaces(self) -> None: ...

    @abstractmethod
    def _observation(self) -> Any: ...

    @abstractmethod
    def _decision(self, action: Any) -> Any:
        """A feasible decision."""


class GainOverheadEnv(SlotEnv):
    """OGASched's world. Arrivals are shown before devices are given.

    **Observation** [L]: how many jobs of each type (port) arrived. **Action** [E, K] in [0, 1]:
    share of min(request, capacity) for every channel; where a server's device is given out more
    than once, all its shares of it shrink alike.
    """

    family, usual = "gain_overhead", "ogasched-default-v1"

    def _set_spaces(self) -> None:
        self.observation_space = _box(0.0, LARGEST, self.problem.L)
        self.action_space = _box(0.0, 1.0, *self.problem.upper.shape)

    def _observation(self) -> Any:
        return np.asarray(self.seen.arrivals, dtype=np.float32)

    def _decision(self, action: Any) -> Floats:
        channels, capacity = self.problem.channels, self.problem.cluster.capacity
        arrived = (self.seen.arrivals[channels.job_type] > 0)[:, None]
        wanted = np.clip(np.asarray(action, dtype=np.float64), 0, 1) * self.problem.upper * arrived
        booked = np.zeros_like(capacity)
        np.add.at(booked, channels.server, wanted)
        # All shares of an overbooked device shrink by one factor, which keeps their proportions.
        shrink = np.minimum(1.0, capacity / np.maximum(booked, 1e-300))
        return np.asarray(wanted * shrink[channels.server])


class FluctuatingSpeedsEnv(SlotEnv):
    """ESDP's world: what a channel is worth shows only while it is used.

    **Observation** [L + 2E]: which job types arrived; the mean utility seen of each channel, 0
    where none was; the logarithm of 1 + how often it was used. **Action** [E] in [−1, 1]: scores;
    channels of job types that arrived with a score above 0 go on, highest first, while devices
    last. ``action_masks()``, also ``info["action_mask"]`` [E]: channels whose job type arrived.
    """

    family, usual = "fluctuating_speeds", "esdp-default-v1"

    def _set_spaces(self) -> None:
        from gangwise.papers.fluctuating_speeds.policies import ListScheduling

        self._list = ListScheduling(self.problem)
        E = self.problem.channels.job_type.size
        self.action_space = _box(-1.0, 1.0, E)
        self.observation_space = _box(-LARGEST, LARGEST, self.problem.L + 2 * E)

    def _begin(self, rng: np.random.Generator) -> None:
        self._plays = np.zeros(self.problem.channels.job_type.size)
        self._total = np.zeros_like(self._plays)

    def _learn(self, feedback: Any) -> None:
        self._plays[feedback.channels] += 1
        self._total[feedback.channels] += feedback.utilities

    def _observation(self) -> Any:
        # 0 for channels never used: the count beside it tells
        # them from those that are worth nothing.
        mean = self._total / np.maximum(self._plays, 1)
        parts = (self.seen.arrivals, mean, np.log1p(self._plays))
        return np.concatenate(parts).astype(np.float32)

    def action_masks(self) -> Bools:
        """Channels that may be used in this slot [E]: those of job types that arrived."""
        return np.asarray(self.problem.available(self.seen.arrivals), dtype=bool)

    def _mask(self) -> dict[str, Any]:
        return {"action_mask": self.action_masks()}

    def _decision(self, action: Any) -> Bools:
        score = np.asarray(action, dtype=np.float64)
        order = np.argsort(-score, kind="stable")
        return self._list.schedule(order[(score[order] > 0) & self.action_masks()[order]])


class ApproximationJobsEnv(SlotEnv):
    """OPS's and OPM's world: jobs with budgets and deadlines, machines of unknown speed.

    In sight are the ``rows`` active jobs with the earliest deadlines; the others wait.
    **Observation** [rows × 4 + 2]: of each job 1, the slots left, the budget left as a share, and
    the logarithm of 1 + the work done (all 0 for no job); then how many wait unseen, and the share
    of machines that are there. **Action** [rows] in [0, 1]: shares of the machines, shrunk alike
    where they exceed all; a job gets no more than it can pay. Shares become whole machines by
    systematic sampling; machines that were fastest so far go to the first jobs.
    ``info["action_mask"]`` [rows]: rows that hold a job.
    """

    family, usual = "approximation_jobs", "opm-default-v1"

    def __init__(self, scenario: str = "", instance: int = 0, slots: int = 0, rows: int = 16):
        self.rows = rows
        super().__init__(scenario, instance, slots)

    def _set_spaces(self) -> None:
        self.action_space = _box(0.0, 1.0, self.rows)
        self.observation_space = _box(0.0, LARGEST, 4 * self.rows + 2)

    def _begin(self, rng: np.random.Generator) -> None:
        from gangwise.papers.approximation_jobs.policies import CountingPolicy, systematic

        self._systematic, self._placing = systematic, CountingPolicy()
        self._placing.start(self.problem, rng)
        self._rng = rng
        # Equal rates are broken at random, once per episode:
        # what machines are called must not decide.
        self._tie = rng.permutation(self.problem.M)
        # Optimistic: a machine that was never used counts as the fastest.
        self._rate = np.ones(self.problem.M)

    def _learn(self, feedback: Any) -> None:
        self._rate[feedback.machines] += 0.2 * (feedback.rates - self._rate[feedback.machines])

    def _observe(self) -> None:
        super()._observe()
        jobs = self.seen.jobs
        order = np.lexsort((jobs.arrival[jobs.rows], jobs.deadline[jobs.rows]))
        self._shown: Ints = jobs.rows[order[: self.rows]]

    def _observation(self) -> Any:
        jobs, shown = self.seen.jobs, self._shown
        table = np.zeros((self.rows, 4))
        table[: shown.size, 0] = 1
        table[: shown.size, 1] = np.maximum(jobs.deadline[shown] - self.slot, 0)
        spent = jobs.cost[shown] / np.maximum(jobs.budget[shown], 1e-300)
        table[: shown.size, 2] = np.clip(1 - spent, 0, 1)
        table[: shown.size, 3] = np.log1p(jobs.work[shown])
        rest = (jobs.rows.size - shown.size, self.seen.available.mean())
        return np.concatenate([table.ravel(), rest]).astype(np.float32)

    def _mask(self) -> dict[str, Any]:
        return {"action_mask": np.arange(self.rows) < self._shown.size}

    def _decision(self, action: Any) -> Ints:
        n, jobs = self._shown.size, self.seen.jobs
        share = np.clip(np.asarray(action, dtype=np.float64)[:n], 0, 1)
        # Shares that add up to less than 1 leave machines idle; more are shrunk alike.
        share = share / max(float(share.sum()), 1.0) * float(self.seen.available.sum())
        most = self._placing.most(self.seen)
        # Rows of active jobs are ascending, and those shown are among them.
        position = np.searchsorted(jobs.rows, self._shown)
        want = self._systematic(np.minimum(share, most[position]), self._rng.random())
        fastest = np.lexsort((self._tie, -self._rate)).astype(np.int64)
        return self._placing.hand_out(self.seen, self._shown, want, fastest)


class _AgentStarts(Composed):
    """Starts nothing by itself, and lets its choice of nodes learn."""

    def place(self, queue: Queue, books: Books, now: float) -> list[Any]:
        """A round in which nothing starts; only what the choice of nodes learns goes on."""
        if hasattr(self.choice, "take_in"):
            self.choice.take_in(books)
        return []


def _chooser(choice: str, scenario: ReplayScenario) -> Callable[[], Composed]:
    """Factory of a scheduler with a choice of nodes that has learned nothing."""

    def chooser() -> Composed:
        scheduler = Composed.named(f"fcfs+none+{choice}")
        scheduler.limits = scenario.options.limits
        return scheduler

    return chooser


class _DecidedInPython:
    """An environment on the simulation of schedulers that decide in Python: for any choice."""

    def __init__(self, tables: Tables, scheduler: Composed, window: int):
        agent = _AgentStarts(scheduler.queue, scheduler.backfilling, scheduler.choice)
        agent.limits = scheduler.limits
        self.play, self.tables, self.window = JobSimulation(tables, agent), tables, window
        self._go_on()

    def take(self, action: int) -> tuple[float, bool]:
        """Start a job, or let time go on: the reward, and whether all is over."""
        tasks = self._fits[action] if 0 <= action < len(self._fits) else None
        if tasks is None:
            hours, over = self._go_on()
            return -hours / len(self.tables.jobs), over
        job = self.play.waiting[action]
        self.play.act(Place(job.id, tuple(tasks), self.play.books.tell_apart(job.shape, tasks)))
        self._find_room()
        return 0.0, False

    def _go_on(self) -> tuple[float, bool]:
        hours = 0.0
        while True:
            before = self.play.now
            present = len(self.play.waiting) + len(self.play.books.running)
            alive = self.play.step()
            if before >= 0:
                hours += present * (self.play.now - before) / 3600
            if not alive or self.play.waiting:
                self._find_room()
                return hours, not alive

    def _find_room(self) -> None:
        """Find where the first waiting jobs would be placed; None for those that do not fit."""
        play, clock = self.play, self.play.now
        self._fits = [
            None
            if play.tally.holds(job) is not None or play.books.opens(job, clock) > clock
            else play.scheduler.choice.place(job, play.books, clock)
            for job in play.waiting[: self.window]
        ]

    @property
    def now(self) -> float:
        return self.play.now

    def mask(self) -> Bools:
        mask = np.zeros(self.window + 1, dtype=bool)
        mask[: len(self._fits)] = [tasks is not None for tasks in self._fits]
        mask[self.window] = True
        return mask

    def seen(self) -> Any:
        books, clock = self.play.books, self.play.now
        total = np.maximum(books.capacity.sum(axis=0), 1)
        table = np.zeros((self.window, 6))
        for i, job in enumerate(self.play.waiting[: self.window]):
            # Of all tasks together, by device type; the dominant one is shown.
            share = job.tasks * np.array(job.shape.demand) / total
            table[i] = (
                1,
                (clock - job.submitted) / 3600,
                np.log(max(job.limit, 1.0) / 3600),
                np.log(job.tasks),
                share.max(),
                self._fits[i] is not None,
            )
        free = float((books.free.sum(axis=0) / total).min())
        rest = (free, np.log1p(len(self.play.waiting)), np.log1p(len(books.running)))
        numbers = np.concatenate([table.ravel(), rest])
        return np.asarray(np.clip(numbers, -LARGEST, LARGEST), dtype=np.float32)

    def schedule(self) -> Schedule:
        return self.play.schedule()


class _Announced(event.Listener):
    """A line in the log, once, where a kernel is compiled rather than loaded."""

    said = False

    def on_start(self, event: Any) -> None:
        if not _Announced.said:
            _Announced.said = True
            text = "compiling the simulation: up to a minute; kept for the next time …"
            logging.getLogger("gangwise").warning(text)

    def on_end(self, event: Any) -> None:
        return


def _compiles(tables: Tables, scheduler: Composed) -> bool:
    """Whether compiled code can play an episode with this choice of nodes."""
    # Kernels of the environment know no failures: such episodes are decided in Python.
    fails = bool((tables.events["kind"] == DOWN).any())
    rules = compiled.built_in(scheduler, tables.nodes, tables.options)
    return not fails and rules is not None and rules.look == np.inf


class _DecidedInKernels:
    """Environments in compiled code, each with its episode: what they show, and their steps."""

    def __init__(
        self,
        tables: Sequence[Tables],
        choose: Callable[[], Composed],
        window: int,
        count: int,
        plain: bool = False,
    ):
        from gangwise import gym_kernels as kernels  # compiles: up to a minute, once

        parts = [self._episode(t, choose()) for t in tables]
        bank, _ = stacked([fixed for fixed, _ in parts])
        # Each episode's beginning is kept as memory, which ``BEGIN`` copies into an environment.
        begun, memory = stacked([environment for _, environment in parts])
        copies, own = stacked([row(begun, 0)] * count)
        # What these episodes do not use becomes None, so that kernels are compiled without it.
        bank, self.state, believed = compiled.only_used(bank, *copies[:2])
        self._kernels, self.tables, self.episode = kernels, tables, np.zeros(count, np.int64)
        size = 6 * window + (3 if plain else len(kernels.TOTALS))
        self.views = views = kernels.View(
            plain,
            np.zeros((count, window), np.int64),
            np.zeros((count, size), np.float32),
            np.zeros((count, window + 1), bool),
            np.zeros((count, 1)),
            np.zeros((count, 1), bool),
            np.zeros((count, 1), np.int64),
            np.zeros((count, 1), np.int64),
        )
        # At least 1, so that a device type that the cluster lacks divides nothing by zero.
        whole = np.maximum(bank.cluster.capacity.sum(axis=1), 1).astype(np.float64)
        asked = np.array([self._asked(row(bank, e), whole[e], plain) for e in range(len(tables))])
        every = kernels.Episode(bank, asked, whole, memory)
        self._episodes, episodes = pinned([row(every, e) for e in range(len(tables))])
        each = kernels.Environment(self.state, believed, views, own)
        self._environments, environments = pinned([row(each, i) for i in range(count)])
        self.bank = bank
        self.rows, self.actions = np.arange(count), np.full(count, kernels.BEGIN)
        given = self._episodes[0], episodes, self._environments[0], environments, self.episode
        with event.install_listener("numba:compile", _Announced()):
            code = entry(kernels.step, *given, self.rows, self.actions)
        #: Takes the decisions in ``actions`` in these environments [rows].
        self.step: Callable[[Ints], None] = lambda rows: code(*given, rows, self.actions)

    def _asked(self, fixed: Any, whole: Floats, plain: bool) -> Any:
        """The features of each job that stay the same: limit, nodes and devices [J, 3]."""
        jobs, cluster = fixed.jobs, fixed.cluster
        tasks, limit, demand = jobs["tasks"], jobs["limit"], cluster.demand[jobs["shape"]]
        columns: Any
        if plain:
            share = (tasks[:, None] * demand / whole).max(axis=1)
            columns = np.log(np.maximum(limit, 1.0) / 3600), np.log(tasks), share
        else:
            shapes = cluster.shapes[jobs["shape"]]
            dominant = np.take_along_axis(demand, shapes["dominant"][:, None], 1)[:, 0]
            nodes, devices = tasks / len(cluster.capacity), tasks * dominant / shapes["total"]
            columns = np.log1p(limit) / self._kernels.LOG_SECONDS, nodes, devices
            columns = np.minimum(columns, 1.0)
        return np.stack(columns, axis=1).astype(np.float32)

    @staticmethod
    def _episode(t: Tables, scheduler: Composed) -> tuple[Any, Any]:
        """Kernel inputs of an episode, and an environment in which nothing has happened."""
        from gangwise.gym_kernels import Environment

        rules = compiled.built_in(scheduler, t.nodes, t.options)
        assert rules is not None
        fixed, state, beliefs = compiled.prepared(t, scheduler, rules)
        return fixed, Environment(never_cut(state), beliefs)

    def begin(self, rows: Ints, episodes: Any) -> None:
        """Let environments begin these episodes."""
        self.episode[rows] = episodes
        self.actions[rows] = self._kernels.BEGIN
        self.step(rows)


class _OneInKernels(_DecidedInKernels):
    """One environment in compiled code, which shows what :class:`_DecidedInPython` shows."""

    def __init__(self, tables: Tables, choose: Callable[[], Composed], window: int):
        super().__init__([tables], choose, window, 1, plain=True)
        self.begin(self.rows, 0)

    def take(self, action: int) -> tuple[float, bool]:
        self.actions[0] = action
        self.step(self.rows)
        return self.views.reward.item(), self.views.over.item()

    @property
    def now(self) -> float:
        return float(self.state.at["now"][0])

    def mask(self) -> Bools:
        mask: Bools = self.views.mask[0]
        return mask.copy()

    def seen(self) -> Any:
        return self.views.seen[0].copy()

    def schedule(self) -> Schedule:
        """Schedule so far; a copy, for times that are not known are marked otherwise."""
        state = joined(lambda of: of[0][0].copy(), [self.state])
        text = self.tables[0].describe("the agent", "decided outside")
        return outcome(self.tables[0], self.bank.jobs["piece_from"][0].copy(), state, text, 0.0)


def _log(jobs: int, settings: dict[str, Any]) -> ReplayScenario:
    """The log that episodes of so many jobs are taken from: small and busy unless set otherwise."""
    # Busy enough for decisions to matter, small enough for many episodes a second.
    usual = {"world": "unlike", "nodes": 8, "load": 0.9, "longest": 100_000.0}
    scenario = ReplayScenario(**{**usual, **settings})
    if not 1 <= jobs <= len(scenario.jobs):
        raise ScenarioError(f"an episode of {jobs} jobs; the log has {len(scenario.jobs)}")
    return scenario


def _episode(scenario: ReplayScenario, rng: np.random.Generator, count: int) -> Tables:
    """So many consecutive jobs of a log from a drawn place on, and drawn hidden rates."""
    rows = np.arange(len(scenario.jobs))
    # + 1: the last possible beginning counts as well.
    begin = int(rng.integers(rows.size - count + 1))
    chosen = (begin <= rows) & (rows < begin + count)
    # The place and the hidden rates are drawn by one generator: a seed decides both.
    played = scenario.draw(int(rng.integers(2**31)), chosen)
    return Tables.of(played.jobs, played.nodes, played.conditions, scenario.options, "the agent")


class JobsEnv(gymnasium.Env[Any, Any]):
    """Jobs that wait for nodes: who starts next?

    An episode plays ``jobs`` consecutive jobs of a log, from a place drawn by ``reset``, with
    hidden rates drawn as ``world`` says. The agent says who starts; ``choice`` says where.

    **Observation** [window × 6 + 3]: of the first ``window`` waiting jobs 1, hours waited, log of
    hours of the limit, log of tasks, share of the cluster that it asks for, whether it fits now
    (all 0 for no job); then the share of devices that are free, log of 1 + jobs that wait, log of
    1 + jobs that run. **Action** in {0 … window}: start that job, or ``window``: let time go on to
    the next event. A job that does not fit counts as letting time go on. ``action_masks()``, also
    ``info["action_mask"]``: what is possible. **Reward**: −(hours that passed) × jobs in the
    system / ``jobs``, so that an episode's sum is −(mean completion time in hours).

    Parameters
    ----------
    jobs, window : int
    choice : str
        Of nodes: ``best-fit``, ``learned`` and so on.
    engine : {"auto", "plain"}
        Compiled where nodes do not fail and the choice is built in; ``plain`` decides in Python,
        which is the same and a test of it.
    **settings
        Of a replay, see :class:`gangwise.study.replay_scenario.ReplaySettings`.
    """

    def __init__(
        self,
        jobs: int = 200,
        window: int = 16,
        choice: str = "learned",
        engine: Literal["auto", "plain"] = "auto",
        **settings: Any,
    ):
        self._scenario, self._count, self._window = _log(jobs, settings), jobs, window
        self._choose, self._engine = _chooser(choice, self._scenario), engine
        self.action_space = spaces.Discrete(window + 1)
        self.observation_space = _box(-LARGEST, LARGEST, 6 * window + 3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Draw where to begin in the log, and the hidden rates."""
        super().reset(seed=seed)
        #: The jobs, nodes and hidden conditions of this episode, to try other schedulers on.
        self.tables = tables = _episode(self._scenario, self.np_random, self._count)
        self._play: _OneInKernels | _DecidedInPython
        if self._engine != "plain" and _compiles(tables, self._choose()):
            self._play = _OneInKernels(tables, self._choose, self._window)
        else:
            self._play = _DecidedInPython(tables, self._choose(), self._window)
        return self._play.seen(), {"action_mask": self._play.mask()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Start a job, which takes no time, or let time go on."""
        play = self._play
        reward, over = play.take(int(action))
        return play.seen(), reward, over, False, {"action_mask": play.mask(), "now": play.now}

    def action_masks(self) -> Bools:
        """Jobs that fit now, and letting time go on [window + 1]."""
        return self._play.mask()

    def schedule(self) -> Schedule:
        """The schedule so far, as a replay would report it."""
        return self._play.schedule()


class JobsVectorEnv(VectorEnv[Any, Any, Any]):
    """:class:`JobsEnv` for many at once, in compiled code, by ``gymnasium.make_vec``.

    ``episodes`` are drawn beforehand, each as ``JobsEnv.reset`` draws one; an environment that is
    over begins another of them in the same step, drawn anew. Actions, rewards and masks are those
    of ``gangwise/Jobs-v1``, but nobody is left waiting when nothing else will happen.
    **Observation** [window × 6 + 4] in [0, 1]: of each waiting job
    :data:`~gangwise.gym_kernels.FEATURES`, then :data:`~gangwise.gym_kernels.TOTALS`.
    ``info["action_mask"]`` [num_envs, window + 1]. ``reset(options={"episodes": [0, 5]})`` says
    which episode each environment begins; ``tables`` has them all, for other schedulers. Nodes that
    fail are not played, nor choices of nodes that kernels do not have.

    Environments are shared among ``threads`` (0: one for each core, of 64 environments or more).
    With ``copy=False`` a step allocates nothing: it returns the arrays that the next overwrites.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - as in the base class

    def __init__(
        self,
        num_envs: int = 1,
        jobs: int = 200,
        window: int = 16,
        choice: str = "best-fit",
        episodes: int = 64,
        draw: int = 0,
        threads: int = 0,
        copy: bool = True,
        **settings: Any,
    ):
        if num_envs < 1 or episodes < 1:
            raise ScenarioError(f"{num_envs} environments, {episodes} episodes: give 1 or more")
        scenario, rng = _log(jobs, settings), np.random.default_rng(draw)
        choose = _chooser(choice, scenario)
        self.tables = [_episode(scenario, rng, jobs) for _ in range(episodes)]
        if not all(_compiles(tables, choose()) for tables in self.tables):
            raise ScenarioError(f"{choice}, or nodes that fail: gangwise/Jobs-v1 plays these")
        self.num_envs, self._copy, self._never = num_envs, copy, np.zeros(num_envs, bool)
        self._play = _DecidedInKernels(self.tables, choose, window, num_envs)
        # Below 64 environments for each thread, handing out work costs more than it saves.
        self.threads = max(1, min(threads or os.cpu_count() or 1, num_envs // 64))
        # Several parts for each thread: one that begins late, or is stopped, holds no other up.
        parts = 4 * self.threads if self.threads > 1 else 1
        self._parts = np.array_split(self._play.rows, parts)
        self._others = ThreadPoolExecutor(max(self.threads - 1, 1))
        size = self._play.views.seen.shape[1]
        self.single_observation_space = _box(0.0, 1.0, size)
        self.single_action_space = spaces.Discrete(window + 1)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in each environment: those of ``options``, or drawn ones."""
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self._begin(self._play.rows, (options or {}).get("episodes"))
        seen, mask, *_ = self._shown()
        return seen, {"action_mask": mask}

    def _begin(self, rows: Ints, episodes: Any = None) -> None:
        # Drawn even where episodes are given, so that later draws stay the same.
        drawn = self.np_random.integers(len(self.tables), size=rows.size)
        self._play.begin(rows, drawn if episodes is None else episodes)

    def _shown(self) -> Any:
        """Observations, masks, rewards, which are over or cut off; copies if not told otherwise."""
        views = self._play.views
        arrays = views.seen, views.mask, views.reward[:, 0], views.over[:, 0], self._never
        return tuple(array.copy() for array in arrays) if self._copy else arrays

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        play, info = self._play, dict[str, Any]()
        play.actions[:] = actions
        parts = iter(self._parts)  # each is drawn by one thread alone
        others = [self._others.submit(self._step_parts, parts) for _ in range(self.threads - 1)]
        # This thread takes parts, too: with one thread no other is ever asked.
        self._step_parts(parts)
        for other in others:
            if not other.cancel():  # it has not begun, and nothing is left to do
                other.result()
        over = play.views.over[:, 0]
        if over.any():
            # Copies: the next line writes the new episodes' first observations over them.
            info = {"final_obs": play.views.seen.copy(), "_final_obs": over.copy()}
            self._begin(np.flatnonzero(over))
        seen, info["action_mask"], reward, over, cut_off = self._shown()
        return seen, reward, over, cut_off, info

    def _step_parts(self, parts: Iterator[Ints]) -> None:
        for rows in parts:
            self._play.step(rows)

    def close_extras(self, **kwargs: Any) -> None:
        self._others.shutdown()


for _name in ("GainOverhead", "FluctuatingSpeeds", "ApproximationJobs", "Jobs"):
    gymnasium.register(f"gangwise/{_name}-v1", f"gangwise.gym:{_name}Env")
gymnasium.register("gangwise/JobsVector-v1", vector_entry_point="gangwise.gym:JobsVectorEnv")
