"""Two clusters, one queue: where each job goes at its submission, and what that was worth.

Jobs of several logs come to the clusters of all. A route chooses one for each job, and the clusters
play on side by side, compiled: each is a simulation of all jobs, see
:mod:`gangwise.jobs.round_kernels`; a job that goes to one is withdrawn from the others. A forecast
plays a copy of a cluster ahead. See ``docs/how-to/route.md``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from gangwise.core import jit, registry
from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.core.jit import by_reference, inner_kernel, lean_kernel, opened
from gangwise.jobs import compiled, kernels, model, run_times
from gangwise.jobs.compiled import copy_words, opened_at
from gangwise.jobs.event_kernels import PAUSED, cancel, next_instant
from gangwise.jobs.kernels import Inputs, State, int64
from gangwise.jobs.round_kernels import play
from gangwise.jobs.run_times import LEAST, ended, expect, quantile_of
from gangwise.jobs.schedule import Options, Tables
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.start_kernels import schedule_end
from gangwise.study.replay_scenario import ReplayScenario
from gangwise.study.statistics import Estimate, count, mean_and_interval

UNTIL, FORECAST, SEND, SHARE = range(4)
"""Actions of :func:`step`: play until a time; foresee job j everywhere; send it to a cluster; play
to the end where each job waits in all clusters and starts in the first that can."""

REQUESTED, TRUE = 2.0, 3.0
"""In place of a quantile of run times: all run for as long as requested, or as they will."""


@by_reference
class Cluster(NamedTuple):
    """A cluster, and a copy of it for forecasts."""

    inputs: Inputs
    state: State
    ahead: State
    memory: Ints  # of its state
    memory_ahead: Ints


@by_reference
class AllClusters(NamedTuple):
    """What C clusters share."""

    at: Ints  # [C] addresses of the clusters
    times: Any  # RunTimes: what is learned of run times on a cluster of speed 1
    speed: Floats  # [C]
    level: Floats  # [1] quantile of run times, REQUESTED or TRUE
    start: Floats  # [C] when the job foreseen would start, inf where it cannot run
    length: Floats  # [C] how long it would run
    used: Floats  # [C] devices that running and waiting jobs ask for, as a share of the cluster's


@inner_kernel
def one_instant(all: AllClusters, inputs: Inputs, state: State, c: int) -> bool:
    """Play the next instant of a cluster; whether there was one."""
    time = next_instant(inputs, state)
    # Learned before the instant is played, since `play` forgets when ended jobs began.
    for m in range(state.at.running):
        j = int64(state.running[m])
        if state.jobs[j].finish <= time:
            # Seconds × speed: run times are learned as on a cluster of speed 1.
            ended(all.times, j, (time - state.jobs[j].begun) * all.speed[c], True, time)
    return bool(play(inputs, state, None, int64(1)) == PAUSED)


@inner_kernel
def believed(all: AllClusters, inputs: Inputs, c: int, j: int, age: float) -> float:
    """Seconds that job j takes in all in cluster c, when it has run there for ``age``."""
    # Where a job has outlived what is believed, it is expected to go on for LEAST.
    level, speed, limit = all.level[0], all.speed[c], inputs.jobs[j].limit
    if level == TRUE:
        return float(inputs.jobs[j].work)
    if level == REQUESTED:
        return float(max(limit, age + LEAST))
    # The quantile given the age is asked for in seconds of speed 1 and given back in those of c.
    seconds = quantile_of(all.times.at_submission[j], level, age * speed) / speed
    return float(max(min(seconds, limit), age + LEAST))


@inner_kernel
def foresee(all: AllClusters, inputs: Inputs, state: State, c: int, j: int) -> float:
    """When job j, submitted now, starts if all run as long as believed and no other job comes."""
    at, time = state.at, inputs.jobs[j].submit
    # Jobs that come at the same instant but behind j in the log do not count yet.
    k = j + 1
    while k < inputs.jobs.size and inputs.jobs[k].submit <= time:
        state.jobs[k].phase = kernels.CANCELLED
        k += 1
    # Ends of running jobs are believed ones from here on: the heap is built anew.
    at.ends = 0
    for m in range(at.running):
        i = int64(state.running[m])
        age = time - state.jobs[i].begun
        state.jobs[i].left = believed(all, inputs, c, i, age) - age
        state.jobs[i].since = time
        schedule_end(inputs, state, i)
    # Waiting jobs get believed lengths as well.
    rank = kernels.smallest(state.words, state.summary, at)
    while rank >= 0:
        i = int64(inputs.by_rank[rank])
        state.jobs[i].left = believed(all, inputs, c, i, 0.0)
        rank = kernels.following(state.words, state.summary, at, rank + 1)
    for i in range(at.next_job, j + 1):  # those of this instant have not been taken in
        state.jobs[i].left = believed(all, inputs, c, i, 0.0)
    all.length[c] = believed(all, inputs, c, j, 0.0)
    # Instant by instant until j starts; after the first, no later job may come.
    while state.start[j] == kernels.NEVER and play(inputs, state, None, int64(1)) == PAUSED:
        at.next_job = inputs.jobs.size
    return float(state.start[j])


@inner_kernel
def share_used(inputs: Inputs, state: State, j: int) -> float:
    """Devices that running and waiting jobs before job j ask for, as a share of the cluster's."""
    share = 0.0
    for i in range(state.at.next_job, j):  # sent here at this instant
        if state.jobs[i].phase == kernels.UNSUBMITTED:
            share += share_of_job(inputs, i)
    for m in range(state.at.running):
        share += share_of_job(inputs, int64(state.running[m]))
    rank = kernels.smallest(state.words, state.summary, state.at)
    while rank >= 0:
        share += share_of_job(inputs, int64(inputs.by_rank[rank]))
        rank = kernels.following(state.words, state.summary, state.at, rank + 1)
    return share


@inner_kernel
def share_of_job(inputs: Inputs, j: int) -> float:
    shape = inputs.cluster.shapes[inputs.jobs[j].shape]
    demand = inputs.cluster.demand[inputs.jobs[j].shape, shape.dominant]
    return float(inputs.jobs[j].tasks * demand / shape.total)


@inner_kernel
def withdraw(all: AllClusters, first: Any, c: int, j: int) -> None:
    """Withdraw job j from all clusters but c."""
    for k in range(all.speed.size):
        cluster = opened_at(first, all.at[k])
        phase = cluster.state.jobs[j].phase
        # A job that runs, or has ended, is no longer in question.
        if k != c and phase in (kernels.UNSUBMITTED, kernels.WAITING):
            cancel(cluster.inputs, cluster.state, None, j)


@inner_kernel
def share_all(all: AllClusters, first: Any) -> None:
    """Play to the end: the first cluster that can start a job has it, ties go to the first."""
    while True:
        c, time = -1, kernels.NEVER
        for k in range(all.speed.size):
            cluster = opened_at(first, all.at[k])
            # The earliest instant of all clusters is played next: their clocks stay in step.
            instant = next_instant(cluster.inputs, cluster.state)
            if instant < time:
                c, time = k, instant
        if c < 0:
            return
        cluster = opened_at(first, all.at[c])
        if not one_instant(all, cluster.inputs, cluster.state, c):
            return
        for m in range(cluster.state.at.running):
            j = int64(cluster.state.running[m])
            # It started in this very instant: the others lose it before they play on.
            if cluster.state.jobs[j].begun == cluster.state.at.now:
                withdraw(all, first, c, j)


@lean_kernel
def step(clusters: Any, first: Any, what: int, j: int, chosen: int, time: float) -> None:
    """Do one thing with clusters, see :data:`UNTIL`; the first of them is pinned beside them."""
    all = opened(clusters)
    if what == SHARE:
        share_all(all, first)
    elif what == SEND:
        withdraw(all, first, chosen, j)
    elif what == FORECAST:
        expect(all.times, j, time)
    for c in range(all.speed.size):
        cluster = opened_at(first, all.at[c])
        # Strictly before: events at `time` itself are played after the decision where j goes.
        if what == UNTIL:
            while next_instant(cluster.inputs, cluster.state) < time and one_instant(
                all, cluster.inputs, cluster.state, c
            ):
                pass
            all.used[c] = share_used(cluster.inputs, cluster.state, j)
        elif what == FORECAST:
            all.start[c] = kernels.NEVER
            if cluster.state.jobs[j].phase == kernels.UNSUBMITTED:
                # The state is one row of memory, so a forecast begins with one copy.
                copy_words(cluster.memory, cluster.memory_ahead)
                all.start[c] = foresee(all, cluster.inputs, cluster.ahead, c, j)


@dataclass(frozen=True)
class View:
    """View that a route has of the clusters when a job is submitted.

    Attributes
    ----------
    home : int
        The cluster whose log has the job.
    able : ndarray of bool [C]
        Clusters on which the job can run.
    used : ndarray [C]
        Devices that running and waiting jobs ask for, as a share of the cluster's.
    foresee : callable
        ``foresee(level)`` gives when the job would start [C], inf where it cannot, and how many
        seconds it would run [C]. ``level`` is the quantile of run times, "requested" or "true".
    """

    home: int
    able: Bools
    used: Floats
    foresee: Callable[[float | str], tuple[Floats, Floats]]

    def least(self, values: Floats) -> int:
        """The cluster that can run the job and has the least value; home where it ties."""
        values = np.where(self.able, values, np.inf)
        return self.home if values[self.home] == values.min() < np.inf else int(values.argmin())


class Route:
    """Chooses a cluster for each job. One of your own: ``--route mine.py:Mine``."""

    def choose(self, job: int, view: View) -> int:
        """The number of a cluster on which the job can run."""
        raise NotImplementedError


class Home(Route):
    """Every job stays with the cluster of its log, or goes to the first that can run it."""

    def choose(self, job: int, view: View) -> int:
        return view.least(np.zeros(view.able.size))


class Emptiest(Route):
    """The cluster of which running and waiting jobs ask the least share."""

    def choose(self, job: int, view: View) -> int:
        return view.least(view.used)


@dataclass
class Forecast(Route):
    """The cluster where the job ends first by forecast: its start there and its run time there.

    Parameters
    ----------
    level : float or {"requested", "true"}
        Quantile of the learned run times of all jobs; or as requested; ``true`` is an oracle, which
        knows the run times and not who comes.
    end : bool
        Whether the run time counts: without it, the earliest start is chosen, as ``sbatch
        --clusters`` does by requested times.
    """

    level: float | str = 0.5
    end: bool = True

    def __post_init__(self) -> None:
        if self.level not in ("requested", "true", True) and not (
            isinstance(self.level, float) and 0.0 < self.level < 1.0
        ):
            raise ScenarioError(f"level={self.level}: a number between 0 and 1, requested or true")

    def choose(self, job: int, view: View) -> int:
        start, length = view.foresee("true" if self.level is True else self.level)
        return view.least(start + length * self.end)


class FirstToStart(Route):
    """Waits in all clusters and starts in the first that can; the others withdraw it.

    So a Slurm federation and MultiKueue (``AllAtOnce``) do: nothing is chosen at submission.
    """

    everywhere: ClassVar[bool] = True


# ---------------------------------------------------------------------------------------- clusters


def merged(logs: Sequence[tuple[model.Jobs, model.Nodes]]) -> tuple[model.Jobs, Ints]:
    """Jobs of several logs as those of one, from one beginning on, and the log of each [J]."""
    columns, demand = defaultdict[str, list[Any]](list), defaultdict[str, list[Floats]](list)
    devices = list(dict.fromkeys(d for jobs, _ in logs for d in jobs.devices))
    for c, (jobs, _) in enumerate(logs):
        if jobs.after.size or any(shape.groups or shape.constraint for shape in jobs.shapes):
            raise ScenarioError(
                "--route plays no dependencies, groups of unlike tasks and constraints, and log "
                f"{c + 1} has some: play it with --set nodes=N, which drops constraints, or leave "
                "these jobs out"
            )
        asked_for = np.array([shape.demand for shape in jobs.shapes])[jobs.shape] / 1000.0
        for device in devices:
            k = jobs.devices.index(device) if device in jobs.devices else -1
            demand[device].append(asked_for[:, k] if k >= 0 else np.zeros(len(jobs)))
        for name, values in {
            # From one beginning on, since clocks of different clusters have no common one.
            "submit": jobs.submit - jobs.submit[0],
            "run": jobs.run,
            "tasks": jobs.tasks,
            "limit": np.where(jobs.requested, jobs.limit, np.nan),
            "per_node": np.array([shape.per_node for shape in jobs.shapes])[jobs.shape],
            # A name in two logs is two people.
            "user": [f"{c}:{jobs.users[u]}" for u in jobs.user],
            "type": [f"{c}:{jobs.types[k]}" for k in jobs.type],
            "id": [f"{c}:{name}" for name in jobs.id],
        }.items():
            columns[name].extend(values)
    together = {device: np.concatenate(values) for device, values in demand.items()}
    jobs = model.Jobs.of(demand=together, **cast(dict[str, Any], columns))
    # Jobs.of sorts by submission, so that the log is read off the id.
    return jobs, np.array([int(name.partition(":")[0]) for name in jobs.id.tolist()])


APART = kernels.BY_RATE, kernels.BY_TOPOLOGY
"""Choices that go by what tells nodes apart, which differs from cluster to cluster."""


class Clusters:
    """Clusters in compiled code that play the jobs of all, each under the same scheduler.

    Parameters
    ----------
    jobs : Jobs
    home : ndarray of int [J]
    nodes : sequence of Nodes [C]
    scheduler : str
        Decided in compiled code, without learned rates or topology.
    speeds : sequence of float [C]
        Run times and requests are those of a job's log over the speed of the cluster.
    """

    def __init__(
        self,
        jobs: model.Jobs,
        home: Ints,
        nodes: Sequence[model.Nodes],
        scheduler: str = "fcfs+easy",
        speeds: Sequence[float] = (),
        options: Options | None = None,
    ):
        self.jobs, self.home = jobs, home
        self.speeds = np.array(speeds or [1.0] * len(nodes))
        staying = replace(jobs, withdrawn=np.full(len(jobs), np.inf))
        scaled = [replace(staying, run=jobs.run / s, limit=jobs.limit / s) for s in self.speeds]
        options = options or Options()
        self.tables = [Tables.of(j, n, model.Conditions(), options) for j, n in zip(scaled, nodes)]
        decider, parts = create_scheduler(scheduler), []
        for t in self.tables:
            rules = compiled.built_in(decider, t.nodes, t.options)
            if rules is None or rules.choice in APART or decider.expects[0] != "requested":
                raise ScenarioError(
                    f"--route cannot play {scheduler!r}, for its forecasts play ahead in compiled "
                    "code, without learned rates or topology: take fcfs+easy or sjf+easy"
                )
            fixed, begun, _ = compiled.prepared(t, decider, rules)
            parts.append((fixed, compiled.never_cut(begun)))
        bank, _ = compiled.stacked([given for given, _ in parts])
        # A second copy of the state, in which forecasts play ahead.
        (self.states, memory), (ahead, there) = (
            compiled.stacked([s for _, s in parts]) for _ in range(2)
        )
        used, states, _ = compiled.only_used(bank, self.states, compiled.nothing_believed())
        ahead = compiled.only_used(bank, ahead, compiled.nothing_believed())[1]
        each = Cluster(used, states, ahead, memory, there)
        self._clusters, at = compiled.pinned([compiled.row(each, c) for c in range(len(nodes))])
        self.able = ~np.array([t.aside for t in self.tables])
        learner, learned = compiled.stacked([run_times.state_of(jobs, "learned")])
        self._changing = memory, learned
        self._fresh = [array.copy() for array in self._changing]
        self.level = np.zeros(1)
        self.start, self.length, self.used = (np.zeros(len(nodes)) for _ in range(3))
        numbers = self.speeds, self.level, self.start, self.length, self.used
        clusters = jit.Pinned(AllClusters(at, compiled.row(learner, 0), *numbers))
        code = jit.entry(step, clusters, self._clusters[0], 0, 0, 0, 0.0)
        self._step = partial(code, clusters, self._clusters[0])

    def play(self, route: Route | Ints) -> Ints:
        """Play all jobs by a route, or as given [J]; the cluster of each [J], −1 for none."""
        # As they were before the first job.
        for fresh, array in zip(self._fresh, self._changing):
            array[...] = fresh
        if getattr(route, "everywhere", False):
            self._step(SHARE, 0, 0, 0.0)
            started = np.isfinite(self.states.start[:, : len(self.jobs)])
            return np.where(started.any(axis=0), started.argmax(axis=0), -1)
        chosen, submit = np.full(len(self.jobs), -1), self.jobs.submit.tolist()
        for j in np.flatnonzero(self.able.any(axis=0)).tolist():
            self._step(UNTIL, j, 0, submit[j])
            if isinstance(route, np.ndarray):
                chosen[j] = route[j]
            else:
                chosen[j] = self._chosen(route, j, submit[j])
            self._step(SEND, j, int(chosen[j]), 0.0)
        # Until nothing happens any more.
        self._step(UNTIL, 0, 0, kernels.NEVER)
        return chosen

    def _chosen(self, route: Any, j: int, time: float) -> int:
        def foresee(level: float | str) -> tuple[Floats, Floats]:
            levels = {"requested": REQUESTED, "true": TRUE}
            self.level[0] = levels[level] if isinstance(level, str) else level
            self._step(FORECAST, j, 0, time)
            return self.start, self.length

        able = self.able[:, j]
        choice = route.choose(j, View(int(self.home[j]), able, self.used, foresee))
        if choice not in range(len(able)) or not able[choice]:
            raise ScenarioError(f"a route sent {self.jobs.id[j]} to {choice}, where it cannot run")
        return int(choice)

    def times(self, chosen: Ints) -> tuple[Floats, Floats]:
        """Seconds from submission to start and to end [J], NaN for jobs that run nowhere."""
        at = chosen, np.arange(len(self.jobs))
        start, end = self.states.start[at], self.states.end[at]
        away = (chosen < 0) | ~np.isfinite(start)
        start, end = (np.where(away, np.nan, time - self.jobs.submit) for time in (start, end))
        return start, end


# ----------------------------------------------------------------------------------------- results

HINDSIGHT = "hindsight"


@dataclass(frozen=True)
class Routed:
    """Results of routes on the parts of logs.

    Attributes
    ----------
    lines : sequence of str
        What was played and assumed.
    numbers : mapping of ndarray [parts, 3 + C]
        By route: mean hours of completion and waiting, share of jobs that run elsewhere than at
        home, mean hours of completion of each log's jobs.
    """

    lines: Sequence[str]
    numbers: Mapping[str, Floats]

    def regret(self, route: str) -> Estimate:
        """Hours by which mean completion is above the best that was found in hindsight."""
        return mean_and_interval((self.numbers[route] - self.numbers[HINDSIGHT])[:, 0])

    def as_dict(self) -> dict[str, Any]:
        columns = ("completion", "waiting", "moved")
        routes: dict[str, Any] = {}
        for name, table in self.numbers.items():
            routes[name] = dict(zip(columns, table.T.tolist())) | {"by_log": table[:, 3:].tolist()}
            routes[name]["regret"] = self.regret(name)._asdict()
        return {"basis": list(self.lines), "routes": routes}


def play_routes(
    sources: Sequence[str],
    routes: Sequence[str],
    scheduler: str = "fcfs+easy",
    speeds: Sequence[float] = (),
    tries: int = 30,
    progress: Callable[[str, int, int], None] | None = None,
    **settings: Any,
) -> Routed:
    """Play the jobs of several logs on the clusters of all, by each route.

    ``settings`` are those of a replay, for every log; intervals are over its ``parts``. The best
    choice in hindsight is not known: ``hindsight`` is the best of all routes, of an oracle, and of
    ``tries`` changes of its choices, each played whole and kept where mean completion falls.
    """
    if not_played := {"world", "site", "change"} & settings.keys():
        raise ScenarioError(f"--route plays like nodes, and no rules: drop {', '.join(not_played)}")
    scenarios = [ReplayScenario(**{**settings, "source": source}) for source in sources]
    names = list(dict.fromkeys(routes or registry.entries("route")))
    parts = max(1, scenarios[0].settings.parts)
    # The oracle is always played, so that hindsight is no worse.
    chosen = {name: registry.create("route", name) for name in dict.fromkeys([*names, "oracle"])}
    if speeds and (len(speeds) != len(sources) or min(speeds) <= 0):
        raise ScenarioError(f"speeds {list(speeds)}: give a positive one for each of the logs")
    tables, lost = defaultdict[str, list[Floats]](list), 0
    for part in range(parts):
        drawn = [scenario.draw(part) for scenario in scenarios]
        jobs, home = merged([(played.jobs, played.nodes) for played in drawn])
        nodes, options = [played.nodes for played in drawn], scenarios[0].options
        clusters = Clusters(jobs, home, nodes, scheduler, speeds, options)
        lost += int((~clusters.able.any(axis=0)).sum())
        best, places = np.array([np.inf]), home
        for i, (name, route) in enumerate(chosen.items()):
            if progress is not None:
                progress("routes", part * len(chosen) + i, parts * len(chosen))
            trial = clusters.play(route)
            numbers = _numbers(clusters, trial)
            if name in names:
                tables[name].append(numbers)
            # At a tie the earlier one stays.
            best, places = min((best, places), (numbers, trial), key=lambda pair: pair[0][0])
        tables[HINDSIGHT].append(_improved(clusters, best, places, tries, part))
    left_out = f"; {count(lost, 'job')} that fit on no cluster left out" if lost else ""
    lines = [
        f"The jobs of {count(len(sources), 'log')} come from one instant on to "
        f"{count(len(sources), 'cluster')} under {scheduler}; a cluster is as large as its log's "
        f"and runs jobs {_speeds(speeds)}; data are everywhere{left_out}; hindsight is the best "
        f"of all routes, an oracle and {tries} changes",
        *(scenario.fidelity()[0] for scenario in scenarios),
    ]
    return Routed(lines, {name: np.array(table) for name, table in tables.items()})


def _speeds(speeds: Sequence[float]) -> str:
    words = f"{', '.join(f'{speed:g}' for speed in speeds)} times as fast as their log says"
    return words if speeds else "as fast as their log says, wherever it ran"


def _numbers(clusters: Clusters, places: Ints) -> Floats:
    """The numbers of one part, see :class:`Routed`."""
    waited, completed = clusters.times(places)
    ran, home = np.isfinite(completed), clusters.home
    # Times 3600, since all of these are divided by it.
    hours = [completed[ran].mean(), waited[ran].mean(), 3600 * (places != home)[ran].mean()]
    hours += [completed[ran & (home == c)].mean() for c in range(len(clusters.tables))]
    return np.array(hours) / 3600


def _improved(clusters: Clusters, best: Floats, places: Ints, tries: int, seed: int) -> Floats:
    """The numbers after changes of single choices, of the jobs that waited most first of all."""
    rng = np.random.default_rng([seed, 5])
    movable = np.flatnonzero(clusters.able.sum(axis=0) > 1)
    clusters.play(places)
    # A second more, so that jobs that did not wait can be moved as well.
    weight = np.nan_to_num(clusters.times(places)[0])[movable] + 1.0
    for _ in range(tries if movable.size else 0):
        j = int(rng.choice(movable, p=weight / weight.sum()))
        others = np.flatnonzero(clusters.able[:, j] & (np.arange(len(clusters.able)) != places[j]))
        trial = places.copy()
        trial[j] = rng.choice(others)
        clusters.play(trial)
        best, places = min(
            (best, places), (_numbers(clusters, trial), trial), key=lambda pair: pair[0][0]
        )
    return best
