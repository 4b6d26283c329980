"""The jobs of a log on nodes, as a scenario whose runs are stored like any other.

Source × scheduler × seed → tidy rows under one key, so that sweeps, tuning and reports take them as
they take slots. Rows of a run: one number for each entry of
:meth:`gangwise.jobs.metrics.Outcome.summary` (``waiting.mean``, ``completion.p95``,
``utilisation.gpu`` …), and one for each job, piece and node, from which :func:`stored_outcome`
makes the outcome again.

Without a world, jobs take as long as the log says, wherever they run, and nothing is drawn: one
seed says it all. With one, nodes have hidden rates, drawn from the seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gangwise.core.errors import ScenarioError
from gangwise.core.settings import checked
from gangwise.experiments.runs import Rows
from gangwise.jobs.books import Books
from gangwise.jobs.bounds import BoundedJobs, LowerBound, lower_bound
from gangwise.jobs.metrics import Outcome, Pieces, held_devices
from gangwise.jobs.model import Conditions, Jobs, Nodes
from gangwise.jobs.schedule import Options, Tables
from gangwise.jobs.scheduler import Composed, fresh
from gangwise.jobs.simulation import simulate_jobs
from gangwise.jobs.world import World, rescaled, stretched, world_of
from gangwise.scenarios.jobs import ClusterOfJobs, is_cluster_of_jobs, read_cluster_of_jobs
from gangwise.traces.jobs import NO_NODES, JobLog, open_jobs
from gangwise.traces.registered import reader_arguments, reader_of, without_reader

TWIN = "twin:alibaba-gpu-v2023"
"""Replayed where nothing is named: nothing to download."""

NO_LIMITS = "limits unknown: run times used"
"""As a log says it that has none."""


class Settings(BaseModel):
    """What is replayed, and under which rules."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str = Field(
        TWIN, description="a trace's folder or file, an .swf, twin:NAME, a cluster file"
    )
    trace: str = Field("", description="format of the source, where it is not to be recognised")
    job_type: str = Field("", description="column that learning generalises over")
    first: int = Field(0, ge=0, description="only so many jobs, the first ones; 0 for all")
    longest: float = Field(
        0.0, ge=0, description="only jobs that run for at most so many seconds; 0 for all"
    )
    nodes: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="so many nodes in place of the log's, alike without a world; 0: as logged",
    )
    devices: int = Field(
        8,
        ge=1,
        le=1_000_000,
        description="GPUs of each of these, or cores if fewer than half of the jobs ask for GPUs",
    )
    world: str = Field(
        "",
        description="hidden rates: unlike, like, drifting nodes, drawn; measured:FILE, "
        "recorded:FOLDER; arguments after a colon or comma",
    )
    load: float = Field(0.0, ge=0, le=100, description="arrivals stretched to it; 0: as logged")
    limits: Literal["wall-clock", "work"] = Field(
        "wall-clock", description="what a requested limit is: of the clock, or at rate 1"
    )
    enforced: bool = Field(False, description="whether jobs are killed at their limit")
    overestimate: float = Field(
        0.0,
        ge=0,
        le=1000,
        description="requested limits drawn, uniform from 1 to so many times the run time, in "
        "place of the log's; 1: exactly the run time; 0: as logged",
    )
    restart: float = Field(300.0, ge=0, description="seconds that a restart costs")


@dataclass(frozen=True)
class Played:
    """What one seed plays: all schedulers meet the same."""

    jobs: Jobs
    nodes: Nodes
    conditions: Conditions


def _of_reader(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those settings that are arguments of the reader of the source."""
    source = Path(str(settings.get("source", TWIN)))
    others = {name: settings[name] for name in settings.keys() - Settings.model_fields.keys()}
    if not others or not source.exists() or without_reader(source) or is_cluster_of_jobs(source):
        return {}
    accepted = reader_arguments(reader_of(source, str(settings.get("trace", ""))))
    return {name: value for name, value in others.items() if name in accepted}


class ReplayScenario:
    """The jobs of a log, on its nodes or on others.

    Parameters
    ----------
    **settings
        Fields of :class:`Settings`, and arguments of the reader of the source, such as ``columns``
        of a listing of Slurm.

    Examples
    --------
    >>> scenario = ReplayScenario(first=200, world="unlike", nodes=8)
    >>> played = scenario.draw(seed=1)
    >>> len(played.jobs), len(played.nodes), scenario.objective
    (200, 8, 'completion.mean')
    """

    name = "replay"
    family = "jobs"
    slots = 1
    deciders: ClassVar[Literal["policy", "scheduler"]] = "scheduler"
    objective = "completion.mean"
    minimise = True

    def __init__(self, log: JobLog | None = None, **settings: Any):
        self._reader = {} if log is not None else _of_reader(settings)
        own = {name: value for name, value in settings.items() if name not in self._reader}
        self.settings = checked(Settings, self.name, own)
        s = self.settings
        if s.world and not s.nodes:
            self.settings = s = s.model_copy(update={"nodes": 64})
        self.cluster: ClusterOfJobs | None = None
        if log is None and is_cluster_of_jobs(s.source):
            for name in ("world", "nodes", "trace", "job_type"):
                if getattr(s, name):
                    raise ScenarioError(
                        f"{s.source}: {name} is of logs; a cluster file says itself what there is"
                    )
            self.cluster = read_cluster_of_jobs(s.source)
        self.world: World | None = world_of(s.world) if s.world else None
        if log is not None:
            self.log = log

    @cached_property
    def log(self) -> JobLog:
        """The log, read once."""
        s = self.settings
        return open_jobs(s.source, trace=s.trace, job_type=s.job_type, **self._reader)

    @property
    def given(self) -> dict[str, Any]:
        """All settings, those of the reader of the log included."""
        return {**self.settings.model_dump(), **self._reader}

    @property
    def drawn(self) -> bool:
        """Whether runs differ from seed to seed."""
        s = self.settings
        return self.world is not None or self.cluster is not None or s.overestimate > 1

    @cached_property
    def jobs(self) -> Jobs:
        """The jobs of the log that are played, before anything is drawn."""
        s, jobs = self.settings, self.log.jobs
        if s.nodes:
            kind = self._device
            k = jobs.devices.index(kind)
            asks = np.array([shape.demand[k] for shape in jobs.shapes])[jobs.shape]
            small = (asks > 0) & (asks <= 1000 * s.devices) & (jobs.run > 0)
            jobs = only_jobs(jobs, small, kind)
        return self._taken(jobs)

    def _taken(self, jobs: Jobs) -> Jobs:
        """Those that are not too long, and the first of them."""
        s = self.settings
        if s.longest:
            jobs = only_jobs(jobs, jobs.run <= s.longest)
        if s.first:
            jobs = only_jobs(jobs, np.arange(len(jobs)) < s.first)
        if len(jobs) == 0:
            raise ScenarioError("replay: no job is left to play")
        return jobs

    @property
    def _device(self) -> str:
        """The device that nodes have which are not the log's: that of its device-hours."""
        devices, counted = self.log.jobs.devices, self.log.played.device
        return counted if counted in devices else devices[0]

    def draw(self, seed: int, keep: Any = None) -> Played:
        """Jobs, nodes and hidden conditions of a seed; of the jobs that ``keep`` says, if given."""
        over, played = self.settings.overestimate, self._draw(seed, keep)
        if not over:
            return played
        factor = np.random.default_rng([seed, 23]).uniform(1.0, max(over, 1.0), len(played.jobs))
        return replace(played, jobs=replace(played.jobs, limit=played.jobs.run * factor))

    def _draw(self, seed: int, keep: Any) -> Played:
        s = self.settings
        if self.cluster is not None:
            nodes = self.cluster.node_table()
            jobs = self._taken(self.cluster.draw_jobs(seed))
            jobs = jobs if keep is None else only_jobs(jobs, keep)
            if s.load:
                jobs = _loaded(jobs, s.load, nodes)
            conditions = self.cluster.hide(jobs, nodes, seed)
            return Played(jobs, _told_apart(nodes, jobs), conditions)
        jobs = self.jobs if keep is None else only_jobs(self.jobs, keep)
        if self.world is None:
            alike = Nodes.alike(s.nodes, {self._device: s.devices}) if s.nodes else None
            nodes = self.log.nodes if alike is None else alike
            if s.load:
                jobs = _loaded(jobs, s.load, nodes)
            return Played(jobs, _told_apart(nodes, jobs), Conditions())
        if s.load:
            jobs = rescaled(jobs, s.load, self.world.capacity(s.nodes, s.devices))
        drawn = self.world.draw(jobs, s.nodes, {self._device: float(s.devices)}, seed)
        return Played(drawn.jobs, _told_apart(drawn.nodes, jobs), drawn.conditions)

    @property
    def options(self) -> Options:
        """Rules of the simulation."""
        s = self.settings
        return Options(enforced=s.enforced, limits=s.limits, restart=s.restart)

    def describe(self) -> dict[str, Any]:
        """Settings, and digests of the files of the log."""
        if self.cluster is not None:
            return {
                **self.settings.model_dump(exclude={"source"}),
                "source": Path(self.settings.source).name,
                "files": {Path(self.settings.source).name: self.cluster.digest()},
                "digest": self.cluster.digest(),
                "drawn": "; ".join(self.cluster.told()),
            }
        files = dict(self.log.played.digests)
        world = {} if self.world is None else dict(self.world.digests)
        return {
            **self.given,
            "source": Path(self.settings.source).name if files else self.settings.source,
            "files": files,
            "digest": _digest(self.jobs),
            "world": self._world_name(),
            "world_files": world,
            "drawn": "" if self.world is None else self.world.told(),
        }

    def _world_name(self) -> str:
        """Without the folder of its files, whose digests say more."""
        name = self.settings.world
        if self.world is None or not self.world.digests:
            return name
        word, _, rest = name.partition(":")
        path, _, arguments = rest.partition(",")
        return f"{word}:{Path(path).name}" + f",{arguments}" * bool(arguments)

    def fidelity(self) -> list[str]:
        """How much of the log is played; the first line comes before every result."""
        if self.cluster is not None:
            return self.cluster.told()[:1]
        jobs, log = self.jobs, self.log
        known, drawn = dict(log.played.assumed), self.drawn
        if drawn:  # limits are drawn, which is told
            known = {what: n for what, n in known.items() if what != NO_LIMITS}
        if self.settings.nodes:
            known = {what: n for what, n in known.items() if not what.startswith(NO_NODES)}
        played, some = log.played, len(jobs) < log.played.played
        if some:

            def hours(of: Jobs) -> float:
                amount = np.array(
                    [shape.demand[of.devices.index(self._device)] for shape in of.shapes]
                )
                return float((amount[of.shape] / 1000 * of.tasks * of.run).sum()) / 3600

            share = hours(jobs) / max(hours(log.jobs), 1e-12)
            known = {what: len(jobs) if n == played.played else n for what, n in known.items()}
            played = replace(played, played=len(jobs), played_hours=share * played.played_hours)
        line = replace(played, assumed=known).line
        if some:
            asked = (
                f" are played ({len(jobs):,} were asked for of {log.played.played:,} that can be)"
            )
            line = line.replace(" are played", asked, 1)
        return [line]

    def assumed(self) -> list[str]:
        """What was drawn or stretched."""
        s = self.settings
        said = []
        if self.cluster is not None:
            said += self.cluster.told()[1:]
        elif self.world is not None:
            said.append(f"{s.nodes} nodes of {s.devices} {self._device}; {self.world.told()}")
        else:
            if s.nodes:
                many = f"{s.nodes:,} node{'s' * (s.nodes > 1)} of {s.devices:,} {self._device}"
                said.append(f"{many}, in place of those of the log")
            said.append("jobs take as long as the log says, on whichever node they run")
        if s.overestimate:
            said.append(
                f"requested limits are drawn, 1 to {s.overestimate:g} times the run time"
                if s.overestimate > 1
                else "requested limits are the run times"
            )
        if s.load:
            said.append(f"arrivals are stretched to a load of {s.load:g}")
        if s.restart:
            said.append(f"a restart costs {s.restart:g} s")
        return said

    def replay(self, decider: Any, seed: int, slots: int, label: str) -> Rows:
        """Play one run."""
        played, decider = self.draw(seed), fresh(decider)
        schedule = simulate_jobs(
            played.jobs, played.nodes, decider, played.conditions, self.options
        )
        outcome = Outcome.of(schedule, label)
        rows = Rows()
        for name, value in outcome.summary().items():
            rows.add(name, value)
        every = np.arange(len(played.jobs))
        for name, values in (
            ("start", outcome.start),
            ("last_start", outcome.last_start),
            ("end", outcome.end),
            ("lost", outcome.lost),
            ("clean", outcome.clean.astype(float)),
        ):
            rows.add(f"job.{name}", values, every)
        if outcome.pieces is not None:
            p = outcome.pieces
            place = np.arange(p.job.size)
            for name, column in (
                ("job", p.job),
                ("node", p.node),
                ("tasks", p.tasks),
                ("begin", p.begin),
                ("end", p.end),
                ("whole", p.whole),
            ):
                rows.add(f"piece.{name}", np.asarray(column, dtype=np.float64), place)
        rows.add("decisions", float(outcome.decisions))
        rows.add("scheduler.seconds", outcome.seconds)
        learner = getattr(getattr(decider, "choice", None), "rates", None)
        if isinstance(decider, Composed) and hasattr(learner, "slow_nodes"):
            _learned(rows, learner, played)
        return rows

    def bound(self, seed: int, above: float | None = None, steps: int = 200) -> LowerBound:
        """Certified lower bound on the mean completion time of a seed."""
        played = self.draw(seed)
        return lower_bound(bounded(played, self.options), steps=steps, above=above)


def _learned(rows: Rows, learner: Any, played: Played) -> None:
    """Beliefs of a learner at the end, and the nodes that it calls slow."""
    now = float(played.jobs.submit.max())
    every = [learner.estimate(name, now) for name in played.jobs.types]
    size = np.arange(len(played.jobs.types) * len(played.nodes))
    rows.add("learned.mean", np.concatenate([mean for mean, _ in every]), size)
    rows.add("learned.sd", np.concatenate([sd for _, sd in every]), size)
    slow = learner.slow_nodes()
    place = np.arange(len(slow))
    if slow:
        names = list(played.nodes.names)
        rows.add("slow.node", np.array([float(names.index(s.node)) for s in slow]), place)
        for part in ("slower", "low", "high"):
            rows.add(f"slow.{part}", np.array([getattr(s, part) for s in slow]), place)


def load_of(jobs: Jobs, nodes: Nodes) -> float:
    """Work over what the nodes declare to do while jobs come, in the device most asked for.

    0 where all jobs come at one instant.
    """
    span = float(jobs.submit[-1] - jobs.submit[0])
    held = held_devices(jobs, nodes)
    rate = nodes.declared(jobs.types).mean(axis=0)
    total = (nodes.capacity * rate[:, None]).sum(axis=0) / 1000
    spent = (held * jobs.run[:, None]).sum(axis=0)
    return float((spent / np.maximum(total, 1e-12)).max() / span) if span > 0 else 0.0


def _loaded(jobs: Jobs, load: float, nodes: Nodes) -> Jobs:
    """Arrivals stretched to a load."""
    span = float(jobs.submit[-1] - jobs.submit[0])
    return stretched(jobs, span * load_of(jobs, nodes) / load)


def _told_apart(nodes: Nodes, jobs: Jobs) -> Nodes:
    """Nodes whose GPUs are told apart where tasks take parts of one, and never more than one."""
    if "gpu" not in nodes.devices or "gpu" not in jobs.devices:
        return nodes
    asked = np.array([shape.demand[jobs.devices.index("gpu")] for shape in jobs.shapes])
    held = nodes.capacity[:, nodes.devices.index("gpu")]
    parts = (asked % 1000 != 0) & (asked > 0)
    whole = not (held % 1000).any() and held.max() <= 63_000
    if not parts.any() or (asked[parts] > 1000).any() or not whole:
        return nodes
    return replace(nodes, shared="gpu")


def only_jobs(jobs: Jobs, keep: Any, device: str = "") -> Jobs:
    """Some of the jobs; what they come after is dropped with what is left out."""
    chosen = np.flatnonzero(keep)
    place = np.full(len(jobs), -1)
    place[chosen] = np.arange(chosen.size)
    shapes, devices = jobs.shapes, jobs.devices
    if device:
        k = devices.index(device)
        shapes = tuple(s._replace(demand=(s.demand[k],), constraint=()) for s in shapes)
        devices = (device,)
    lengths, after = [], []
    for j in chosen:
        earlier = place[jobs.after[jobs.after_from[j] : jobs.after_from[j + 1]]]
        earlier = earlier[earlier >= 0]
        lengths.append(earlier.size)
        after.append(earlier)
    columns = {
        name: getattr(jobs, name)[chosen]
        for name in (
            "id",
            "row",
            "submit",
            "run",
            "limit",
            "tasks",
            "shape",
            "type",
            "user",
            "deadline",
            "budget",
            "priority",
            "recorded_start",
            "recorded_end",
        )
    }
    used, columns["shape"] = np.unique(columns["shape"], return_inverse=True)
    types, columns["type"] = np.unique(columns["type"], return_inverse=True)
    return replace(
        jobs,
        **columns,
        shapes=tuple(shapes[i] for i in used),
        types=tuple(jobs.types[i] for i in types),
        devices=devices,
        after_from=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        after=np.concatenate([np.zeros(0, np.int64), *after]).astype(np.int64),
    )


def _digest(jobs: Jobs) -> str:
    """Of everything that a simulation reads of jobs."""
    made = hashlib.sha256()
    for column in (
        jobs.submit,
        jobs.run,
        jobs.limit,
        jobs.tasks,
        jobs.shape,
        jobs.type,
        jobs.user,
        jobs.deadline,
        jobs.priority,
        jobs.after_from,
        jobs.after,
    ):
        made.update(np.ascontiguousarray(column).tobytes())
    made.update(repr((jobs.devices, jobs.shapes, jobs.types)).encode())
    return made.hexdigest()[:16]


def bounded(played: Played, options: Options) -> BoundedJobs:
    """Jobs as :func:`gangwise.jobs.bounds.lower_bound` takes them.

    Rates are the highest that each node ever has, times the noise of the job; what is counted is
    the device type of which the log asks for the largest share. A job that may be killed at its
    limit counts with no more work than its slowest node does until then.
    """
    jobs, nodes, hidden = played.jobs, played.nodes, played.conditions
    tables = Tables.of(jobs, nodes, hidden, options)
    held = held_devices(jobs, nodes)
    total = nodes.capacity.sum(axis=0) / 1000
    spent = (held * jobs.run[:, None]).sum(axis=0) / np.maximum(total, 1e-12)
    k = int(np.argmax(spent))
    rates = np.ones((len(jobs.types), len(nodes)))
    if hidden.rates is not None:
        rates = np.array(hidden.rates, dtype=np.float64)
    top = np.ones(len(nodes))
    for n in {n for _, n, _ in hidden.factors}:
        mine = sorted((t, f) for t, m, f in hidden.factors if m == n)
        before = 1.0 if mine[0][0] > 0 else 0.0  # from the start on it has a factor
        top[n] = max([before, *(f for _, f in mine)])
    rates = rates * top
    noise = np.ones(len(jobs)) if hidden.noise is None else np.asarray(hidden.noise)
    empty = Books.opened(nodes)
    position = {name: i for i, name in enumerate(nodes.devices)}
    room = []
    for shape in jobs.shapes:
        demand = [0] * len(nodes.devices)
        for name, amount in zip(jobs.devices, shape.demand):
            if name in position:
                demand[position[name]] = amount
        room.append(empty.fits(shape._replace(demand=tuple(demand))))
    kinds, kind = np.unique(np.stack([jobs.type, jobs.shape]), axis=1, return_inverse=True)
    fits = np.array(room)[kinds[1]]
    fits = np.minimum(fits, int(jobs.tasks.max()))
    work = tables.work / noise
    if options.enforced and options.limits == "wall-clock":
        slowest = np.where(fits > 0, rates[kinds[0]], np.inf).min(axis=1)
        work = np.minimum(work, jobs.limit * slowest[kind.ravel()])
    can = ~tables.aside
    later = np.repeat(np.arange(len(jobs)), np.diff(jobs.after_from))
    waits = can[later] & can[jobs.after]
    row = np.cumsum(can) - 1
    return BoundedJobs(
        jobs.submit[can],
        work[can],
        jobs.tasks[can],
        (held[:, k] / jobs.tasks)[can],
        kind.ravel()[can],
        rates[kinds[0]],
        fits,
        nodes.capacity[:, k] / 1000,
        np.concatenate([[0], np.cumsum(np.bincount(row[later[waits]], minlength=can.sum()))]),
        row[jobs.after[waits]],
    )


def stored_outcome(rows: Rows, label: str, played: Played) -> Outcome:
    """An outcome from the rows of its run."""
    columns = {name: values for name, (_, values) in rows.columns().items()}
    pieces = None
    if "piece.job" in columns:
        pieces = Pieces(
            columns["piece.job"].astype(np.int64),
            columns["piece.node"].astype(np.int64),
            columns["piece.tasks"].astype(np.int64),
            columns["piece.begin"],
            columns["piece.end"],
            columns["piece.whole"] > 0,
        )
    return Outcome(
        label,
        played.jobs,
        played.nodes,
        columns["job.start"],
        columns["job.last_start"],
        columns["job.end"],
        held_devices(played.jobs, played.nodes),
        pieces,
        columns["job.lost"],
        columns["job.clean"] > 0,
        int(columns["decisions"][0]),
        float(columns["scheduler.seconds"][0]),
    )
