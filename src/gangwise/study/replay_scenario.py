"""The jobs of a log on nodes, as a scenario whose runs are stored like any other.

Source × scheduler × seed → tidy rows under one key, so that sweeps, tuning and reports take them as
they take slots. A run has a row for each number of :meth:`gangwise.jobs.metrics.Outcome.summary`
(``waiting.mean``, ``completion.p95``, ``utilisation.gpu`` …), and rows for each job, piece and
node, from which :func:`stored_outcome` makes the outcome again.

Without a world, jobs take as long as the log says on every node, and nothing is drawn: one seed is
enough. With one, nodes have hidden rates, drawn from the seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from gangwise.core.arrays import Bools, Floats
from gangwise.core.errors import ScenarioError, StoreError, UnknownName
from gangwise.core.settings import checked
from gangwise.jobs import books, bounds, distance, schedule
from gangwise.jobs.choice import ByRate
from gangwise.jobs.metrics import Outcome, Pieces, held_devices
from gangwise.jobs.model import Conditions, Jobs, Nodes, Shape, reordered
from gangwise.jobs.scheduler import Composed, fresh
from gangwise.jobs.simulation import require_playable, simulate_jobs
from gangwise.jobs.world import World, rescaled, stretched, world_of
from gangwise.logs import reader_arguments, reader_of, without_reader
from gangwise.logs.jobs import JobLog, Lost, open_jobs
from gangwise.sites.site import SLURM, Rules, Site
from gangwise.sites.slurm_files import in_own_words
from gangwise.study.changes import SettingChange, changed, changes_of
from gangwise.study.findings import ESTIMATED, EstimatedWorld
from gangwise.study.job_classes import ClusterOfJobs, is_cluster_of_jobs, read_cluster_of_jobs
from gangwise.study.runs import Rows

MOST_LOAD = 20.0  # a replay of more would be of another cluster
TWIN = "twin:alibaba-gpu-v2023"  # replayed by default: there is nothing to download
OF_LOG = "log"  # in place of a site file: pools as the log shows them
NO_LIMITS = "limits unknown: run times used"  # how a log without limits says so

WEEK = 7 * 86400.0
REMEMBERED = 16  # seeds whose jobs and nodes stay in memory: each scheduler plays them

EVERY = "time of every job"  # the objective where rules are tuned: see :func:`time_of_every`

JOB_COLUMNS = ("start", "last_start", "end", "lost", "clean", "phase")
"""Columns of the jobs of an outcome that are stored."""

PIECES = tuple(each.name for each in fields(Pieces))

TABLES = (
    *("after_from", "after", "devices", "shapes", "types", "users", "account", "accounts"),
    *("pools", "qoses", "terms"),
)
"""Fields of Jobs that are no column with a value for each job."""

_COLUMNS = ("submit", "run", "limit", "tasks", "shape", "type", "user", "deadline", "priority")
SIMULATED = (*_COLUMNS, "after_from", "after")
"""Arrays of Jobs that a simulation reads, in the order of their digest."""


class ReplaySettings(BaseModel):
    """Settings of a replay: what is played, and under which rules."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str = TWIN
    """a trace's folder or file, an .swf, twin:NAME, a cluster file"""
    trace: str = ""
    """format of the source, where it is not to be recognised"""
    job_type: str = ""
    """column that learning generalises over"""
    first: int = Field(0, ge=0)
    """only so many jobs, the first ones; 0 for all"""
    longest: float = Field(0.0, ge=0)
    """only jobs that run for at most so many seconds; 0 for all"""
    nodes: int = Field(0, ge=0, le=1_000_000)
    """so many nodes in place of the log's, alike without a world; 0: as logged"""
    devices: int = Field(8, ge=1, le=1_000_000)
    """GPUs of each of these, or cores if fewer than half of the jobs ask for GPUs"""
    world: str = ""
    """hidden rates: unlike, like, drifting, apart, drawn; measured:FILE; estimated or
    estimated:TOPOLOGY, from node lists; arguments after a colon or comma"""
    load: float = Field(0.0, ge=0)
    """arrivals stretched to so much work per capacity, 0.8 for 80 %; 0: as logged"""
    limits: Literal["wall-clock", "work"] = "wall-clock"
    """what a requested limit is: of the clock, or at rate 1"""
    enforced: bool = False
    """whether jobs are killed at their limit"""
    overestimate: float = Field(0.0, ge=0, le=1000)
    """requested limits drawn, uniform from 1 to so many times the run time, in place of the log's;
    1: exactly the run time; 0: as logged"""
    site: str = ""
    """site file, or folder with site.toml: pools, caps, hours; slurm:FOLDER of what Slurm prints;
    log: pools on the nodes that their jobs ran on"""
    change: str = ""
    """changes of the site file, as pool.gpu.most_time=1d"""
    parts: int = Field(0, ge=0, le=1000)
    """cut into so many parts of whole weeks: seed s plays part s"""
    restart: float = Field(300.0, ge=0)
    """seconds that a restart costs"""
    unlike: str = ""
    """schedulers for whose sake jobs of unlike tasks are left out, as they cannot place them; set
    by itself"""

    @field_validator("load")
    @classmethod
    def _share_of_capacity(cls, load: float) -> float:
        if load > MOST_LOAD:
            raise ValueError(
                f"{load:g} times what the nodes can do; write {load / 100:g} for {load:g} %, at "
                f"most {MOST_LOAD:g}"
            )
        return load


class ReplayInstance(NamedTuple):
    jobs: Jobs
    nodes: Nodes
    conditions: Conditions


def _reader_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are arguments of the reader of the source."""
    source = Path(str(settings.get("source", TWIN)))
    foreign = settings.keys() - ReplaySettings.model_fields.keys()
    if not foreign or not source.exists() or without_reader(source) or is_cluster_of_jobs(source):
        return {}
    accepted = reader_arguments(reader_of(source, str(settings.get("trace", ""))))
    return {name: settings[name] for name in foreign if name in accepted}


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
    minimise = True

    def __init__(self, log: JobLog | None = None, **settings: Any):
        self._reader = {} if log is not None else _reader_arguments(settings)
        own = {name: value for name, value in settings.items() if name not in self._reader}
        self.settings = checked(ReplaySettings, self.name, own)
        self._instances: dict[int, ReplayInstance] = {}
        s = self.settings
        self.estimated = s.world.partition(":")[0] == ESTIMATED
        if self.estimated and (s.nodes or log is not None):
            raise ScenarioError("world estimated plays the nodes of a log's files: drop nodes")
        # A drawn world needs a number of nodes, and has none of its own.
        if s.world and not s.nodes and not self.estimated:
            self.settings = s = s.model_copy(update={"nodes": 64})
        self.cluster: ClusterOfJobs | None = None
        if log is None and is_cluster_of_jobs(s.source):
            for name in ("world", "nodes", "trace", "job_type"):
                if getattr(s, name):
                    raise ScenarioError(
                        f"{s.source}: {name} is of logs; a cluster file says itself what there is"
                    )
            self.cluster = read_cluster_of_jobs(s.source)
        drawn = s.world and not self.estimated
        self.world: World | None = world_of(s.world) if drawn else None
        if log is not None:
            self.log = log

    @cached_property
    def log(self) -> JobLog:
        s, nodes = self.settings, None
        if theirs := s.site.startswith(SLURM):  # what a job was given is there, whatever ran
            nodes = self._given_site[0].nodes_given_out
        return open_jobs(
            s.source,
            trace=s.trace,
            job_type=s.job_type,
            nodes=nodes,
            rows=False,
            apart=theirs,
            **self._reader,
        )

    @cached_property
    def _given_site(self) -> tuple[Site, list[SettingChange]]:
        """Content of the site's files, and changes that are not in the site's own words."""
        s = self.settings
        changes = changes_of(s.change) if s.change else []
        theirs = [c for c in changes if s.site.startswith(SLURM) and in_own_words(c.parts)]
        own = [(change.parts, change.how, change.given) for change in theirs]
        return Site.read(s.site, own), [change for change in changes if change not in theirs]

    @cached_property
    def site(self) -> Site | None:
        """The rules of the site, if any were given, with what is changed of them."""
        s = self.settings
        if not (s.site or s.change):
            return None
        if self.cluster is not None:
            raise ScenarioError("site is of logs; a cluster file has no pools")
        log, site = self.log, Site(Rules(), "no site file")
        changes = changes_of(s.change) if s.change else []
        if s.site == OF_LOG:
            site = Site.of_log(log.jobs)
        elif s.site:
            site, changes = self._given_site
        if site.nodes is not None and (s.nodes or s.world):
            raise ScenarioError(f"{site.path} says which nodes there are: drop nodes and world")
        # Before changes are made: they may name pools that only the log knows.
        site = site.with_hosts(log.jobs, log.nodes, log.host_from, log.host, log.clock)
        if not changes:
            return site
        counts, path = site.counts(self.site_nodes(site)), f"{site.path}, changed"
        whole = changed(site.document(whole=True) | {"nodes": counts}, changes)
        # Counts that the file has or a change has set; others stay those of the log.
        count = {k: n for k, n in whole["nodes"].items() if k in site.rules.nodes or n != counts[k]}
        return replace(site, rules=Site.of(whole | {"nodes": count}, path).rules, path=path)

    def site_nodes(self, site: Site) -> Nodes:
        return site.nodes or self._draw(0, None).nodes

    def changed(self, **settings: Any) -> ReplayScenario:
        """The same log with other settings: it is not read again."""
        scenario = ReplayScenario(**{**self.given, **settings})
        if self.cluster is None:
            scenario.log = self.log
            # None of the other settings says which jobs are played.
            if not settings.keys() & {"nodes", "devices", "longest", "first", "unlike"}:
                scenario.jobs = self.jobs
        return scenario

    @cached_property
    def estimate(self) -> EstimatedWorld:
        s = self.settings
        topology = s.world.partition(":")[2]
        return EstimatedWorld.of_log(self.log, topology, s.source, trace=s.trace, **self._reader)

    @property
    def given(self) -> dict[str, Any]:
        return {**self.settings.model_dump(), **self._reader}

    @property
    def drawn(self) -> bool:
        """Whether runs differ from seed to seed; one seed is enough else."""
        s = self.settings
        world = self.world is not None or self.estimated
        return world or self.cluster is not None or s.overestimate > 1 or s.parts > 0

    @property
    def objective(self) -> str:
        return EVERY if self.settings.parts else "completion.mean"

    @property
    def as_logged(self) -> bool:
        """Whether the log's own jobs, times, nodes and rates are played.

        Given nodes stand in for those of the log where it lists none.
        """
        s = self.settings
        if self.drawn or s.load:
            return False
        return not s.nodes or bool(self.log.played.nodes_assumed)

    @property
    def not_modelled(self) -> Sequence[str]:
        if self.cluster is not None or ((s := self.site) and (s.rules.pool or s.rules.kueue)):
            return ()
        return self.log.played.not_modelled

    @property
    def units(self) -> Sequence[str]:
        """Questions about units of the log that look misread."""
        return self.log.played.units if self.cluster is None else ()

    @property
    def partition(self) -> Any:
        """Partition or queue of each job that is played, [J]; None where the log has none."""
        jobs = self.jobs if self.cluster is None else None
        if jobs is None or not any(jobs.pools):
            return None
        return np.array(jobs.pools)[jobs.pool]

    @cached_property
    def jobs(self) -> Jobs:
        s, jobs = self.settings, self.log.jobs
        if s.nodes:
            kind = self._device
            k = jobs.devices.index(kind)
            asks = np.array([shape.demand[k] for shape in jobs.shapes])[jobs.shape]
            # A job that is larger than a node, or does not run, is not played.
            small = (asks > 0) & (asks <= 1000 * s.devices) & (jobs.run > 0)
            jobs = only_jobs(jobs, small, kind)
        return self._taken(jobs)

    def _taken(self, jobs: Jobs) -> Jobs:
        s = self.settings
        if s.longest:
            jobs = only_jobs(jobs, jobs.run <= s.longest)
        if s.first:
            jobs = only_jobs(jobs, np.arange(len(jobs)) < s.first)
        if s.unlike and jobs.grouped.any():
            jobs = only_jobs(jobs, ~jobs.grouped)
        if len(jobs) == 0:
            raise ScenarioError("replay: no job is left to play")
        return jobs

    @property
    def _device(self) -> str:
        """The device of nodes that are not the log's: the one that its device-hours count."""
        devices, counted = self.log.jobs.devices, self.log.played.device
        return counted if counted in devices else devices[0]

    def check_metric(self, name: str, what: str) -> None:
        """ScenarioError where a replay has no such number: a small job alone is played."""
        nodes = self.draw(0).nodes
        # So little of one device that it fits on any node.
        job = Jobs.of([0.0], 1.0, 1, {nodes.devices[int(nodes.capacity.sum(0).argmax())]: 0.001})
        metrics = list(Outcome.of(simulate_jobs(job, nodes), "").summary())
        if name not in metrics:
            raise ScenarioError(f"{what}: {UnknownName('metric', name, metrics)}")

    def draw(self, seed: int, keep: Any = None) -> ReplayInstance:
        """Jobs, nodes and hidden conditions of a seed; only of the jobs in ``keep``, if given."""
        if keep is not None:
            return self._overestimated(seed, keep)
        if (played := self._instances.get(seed)) is None:
            played = self._instances[seed] = self._overestimated(seed)
            while len(self._instances) > REMEMBERED:
                self._instances.pop(next(iter(self._instances)), None)
        return played

    def _overestimated(self, seed: int, keep: Any = None) -> ReplayInstance:
        over, played = self.settings.overestimate, self._draw(seed, keep)
        if self.site is not None:
            played = ReplayInstance(*self.site.placed(*played))
        if not over:
            return played
        # A stream of its own, so that limits do not change with the world's draws.
        factor = np.random.default_rng([seed, 23]).uniform(1.0, max(over, 1.0), len(played.jobs))
        every = np.broadcast_to(True, factor.shape)
        jobs = replace(played.jobs, limit=played.jobs.run * factor, requested=every)
        return played._replace(jobs=jobs)

    def _draw(self, seed: int, keep: Any) -> ReplayInstance:
        s, conditions = self.settings, Conditions()
        jobs = self.jobs if self.cluster is None else self._taken(self.cluster.draw_jobs(seed))
        if keep is not None:
            jobs = only_jobs(jobs, keep)
        if s.parts:
            jobs = self._part(jobs, seed)
        if self.world is not None:
            # Stretched before rates are drawn: the world's spells are in the log's own time.
            if s.load:
                jobs = rescaled(jobs, s.load, self.world.capacity(s.nodes, s.devices))
            drawn = self.world.draw(jobs, s.nodes, {self._device: float(s.devices)}, seed)
            return ReplayInstance(drawn.jobs, _with_gpus_apart(drawn.nodes, jobs), drawn.conditions)
        if self.cluster is not None:
            nodes = self.cluster.node_table()
        else:
            alike = Nodes.alike(s.nodes, {self._device: s.devices}) if s.nodes else None
            nodes = self.log.nodes if alike is None else alike
        if s.load:
            span = float(jobs.submit[-1] - jobs.submit[0])
            # So long that the same work is the share that was asked for.
            jobs = stretched(jobs, span * load_of(jobs, nodes) / s.load)
        if self.cluster is not None:
            conditions = self.cluster.hide(jobs, nodes, seed)
        elif self.estimated:
            jobs, nodes, conditions = self.estimate.draw(self.log, jobs, seed)
        return ReplayInstance(jobs, _with_gpus_apart(nodes, jobs), conditions)

    def _part(self, jobs: Jobs, seed: int) -> Jobs:
        """The jobs submitted in the weeks of a part, from an empty cluster on."""
        week = (jobs.submit - jobs.submit[0]) // WEEK
        weeks = int(week[-1]) + 1
        parts = self.settings.parts
        if weeks < parts:
            raise ScenarioError(f"replay: the log has {weeks} weeks; have fewer parts than {parts}")
        if seed >= parts:
            raise ScenarioError(
                f"replay: seed {seed} is no part; {parts} parts are 0 to {parts - 1}"
            )
        # Weeks are dealt to parts in order, as evenly as whole weeks allow.
        mine = week * parts // weeks == seed
        if not mine.any():
            raise ScenarioError(f"replay: no job was submitted in part {seed}; have fewer parts")
        return only_jobs(jobs, mine)

    @property
    def options(self) -> schedule.Options:
        s = self.settings
        options = schedule.Options(enforced=s.enforced, limits=s.limits, restart=s.restart)
        return options if self.site is None else self.site.options(options)

    def describe(self) -> dict[str, Any]:
        if self.cluster is not None:
            digest, name = self.cluster.digest(), Path(self.settings.source).name
            return {
                **self.settings.model_dump(exclude={"source", "change", "parts"}),
                "source": name,
                "files": {name: digest},
                "digest": digest,
                "drawn": "; ".join(self.cluster.lines()),
            }
        s, files = self.settings, dict(self.log.played.digests)
        rates, world = self.estimate if self.estimated else self.world, s.world
        if rates is not None and rates.digests:  # without the folder of its files
            word, _, rest = world.partition(":")
            path, *arguments = rest.split(",", 1)
            world = f"{word}:{','.join([Path(path).name, *filter(None, arguments)])}"
        return {
            **{k: v for k, v in self.given.items() if k not in ("site", "change", "parts")},
            **({"site": Path(s.site).name} if s.site else {}),
            **({"parts": s.parts} if s.parts else {}),
            "source": Path(s.source).name if files else s.source,
            "files": files,
            "digest": _digest(self.jobs, self.site),
            "world": world,
            "world_files": {} if rates is None else dict(rates.digests),
            "drawn": "" if rates is None else rates.describe(),
        }

    def fidelity(self) -> list[str]:
        """Coverage of the log; the first line comes before every result."""
        if self.cluster is not None:
            return self.cluster.lines()[:1]
        jobs, log, played = self.jobs, self.log, self.log.played
        nodes_given = self.settings.nodes or (self.site is not None and self.site.nodes is not None)
        assumed = {
            text: n
            for text, n in played.assumed.items()
            # What is drawn or given is listed by :meth:`assumed`.
            if not (self.drawn and text == NO_LIMITS)
            and not (nodes_given and text == played.nodes_assumed)
        }
        aside = self._set_aside
        able = len(jobs) + int(self._unlike.sum())
        count = able - sum(lost.jobs for lost in aside.values())
        if count == played.played:
            line = replace(played, assumed=assumed).line
        else:
            hours = self._hours(jobs).sum() + (self._hours(log.jobs) * self._unlike).sum()
            hours -= sum(lost.hours or 0.0 for lost in aside.values())
            share = hours / max(self._hours(log.jobs).sum(), 1e-12)
            assumed = {text: count if n == played.played else n for text, n in assumed.items()}
            part = replace(
                played,
                played=count,
                played_hours=float(share) * played.played_hours,
                lost={**played.lost, **aside},
                assumed=assumed,
            )
            shown = f" ({able:,} were asked for of {played.played:,} that can be)"
            shown = shown if able < played.played else ""
            if self.settings.nodes and (too_large := len(self._taken(log.jobs)) - len(jobs)):
                node = f"{self.settings.devices} {self._device}"
                shown += f" ({too_large:,} need more than a node of {node}, or none of it)"
            line = part.line.replace(" are played", f" are played{shown}", 1)
        line = "; ".join([line, *self.not_modelled])
        columns = [note for note in log.played.notes if note.startswith("columns ")]
        return [line, *columns, *log.played.warnings]

    def _hours(self, of: Jobs) -> Floats:
        """Device-hours of each job [J], of the device that counts."""
        k = of.devices.index(self._device)
        amount = np.array([shape.demand[k] for shape in of.shapes])
        hours: Floats = amount[of.shape] / 1000 * of.tasks * of.run / 3600
        return hours

    @cached_property
    def _unlike(self) -> Bools:
        """Jobs of the log that are left out since a scheduler cannot place them [J]."""
        s, log = self.settings, self.log.jobs
        asked_for = np.ones(len(log), dtype=bool) if not s.longest else log.run <= s.longest
        if s.first:
            # As in :meth:`_taken`: the longest, then the first ones, then unlike tasks.
            asked_for = asked_for & (np.cumsum(asked_for) <= s.first)
        return np.asarray(asked_for & log.grouped & bool(s.unlike))

    @cached_property
    def _set_aside(self) -> dict[str, Lost]:
        reasons, log = dict[str, Lost](), self.log.jobs
        if (unlike := self._unlike).any():
            reason = f"of unlike tasks, which {self.settings.unlike} cannot place"
            hours_left = float(self._hours(log)[unlike].sum())
            reasons[reason] = Lost(int(unlike.sum()), hours_left, int(log.row[unlike][0]))
        jobs = self.jobs
        if self.site is None and not jobs.grouped.any():
            return reasons
        # Rules of a site, too, shut jobs out; the play itself says which.
        tables = schedule.Tables.of(*self.draw(0), self.options)
        hours = dict(zip(jobs.row.tolist(), self._hours(jobs).tolist()))
        for reason, rows in tables.account.set_aside.items():
            lost = np.array([hours[row] for row in rows.tolist()])
            reasons[reason] = Lost(rows.size, float(lost.sum()), int(rows[0]))
        return reasons

    def assumed(self) -> list[str]:
        s = self.settings
        lines = []
        if self.cluster is not None:
            lines += self.cluster.lines()[1:]
        elif self.world is not None:
            lines.append(f"{s.nodes} nodes of {s.devices} {self._device}; {self.world.describe()}")
        else:
            if s.nodes:
                nodes = f"{s.nodes:,} node{'s' * (s.nodes > 1)} of {s.devices:,} {self._device}"
                lines.append(f"{nodes}, in place of those of the log")
            alike = "jobs take as long as the log says, on whichever node they run"
            lines.append(self.estimate.describe() if self.estimated else alike)
        if s.overestimate > 1:
            lines.append(f"requested limits are drawn, 1 to {s.overestimate:g} times the run time")
        elif s.overestimate:
            lines.append("requested limits are the run times")
        if s.parts:
            lines.append(f"{s.parts} parts of whole weeks, each by itself: seed s plays part s")
        if s.load:
            lines.append(f"arrivals are stretched to a load of {s.load:g}")
        if self.site is not None:
            lines += self.site.lines(self.jobs)
        if s.restart:
            lines.append(f"a restart costs {s.restart:g} s")
        return lines

    def compiled(self, decider: Any) -> bool:
        """Whether a run under it is compiled code: gangwise's own parts, combined."""
        parts = (decider.queue, decider.choice) if type(decider) is Composed else ()
        return bool(parts) and all(type(p).__module__.startswith("gangwise.") for p in parts)

    def require_drawn(self, seeds: Sequence[int]) -> None:
        """Raise ScenarioError for several seeds where all would play the same."""
        count = len(set(seeds))
        if count > 1 and not self.drawn:
            raise ScenarioError(
                f"{count} seeds would play {count} runs that are the same, for nothing is drawn: "
                "jobs, nodes and rates are those of the log. Leave --seeds out (seeds = 1 in an "
                "experiment): the interval of a log is over its weeks. Seeds count with --world, "
                "--set overestimate, --set parts, or a cluster file"
            )

    def require_playable(self, deciders: Sequence[Any], seed: int) -> None:
        """Raise ScenarioError where a scheduler cannot play these jobs."""
        combined = [fresh(decider) for decider in deciders if isinstance(decider, Composed)]
        if combined:
            # One seed stands for all: whether a scheduler can play depends on what there is alone.
            nodes = self.draw(seed).nodes
            for decider in combined:
                require_playable(decider, nodes, self.options)

    def replay(self, decider: Any, seed: int, slots: int, label: str) -> Rows:
        played, decider = self.draw(seed), fresh(decider)
        outcome = Outcome.of(  # the schedule itself is not kept
            simulate_jobs(played.jobs, played.nodes, decider, played.conditions, self.options),
            label,
            self.options.restart,
        )
        rows = Rows()
        for name, value in outcome.summary().items():
            rows.add(name, value)
        if self.settings.parts:
            rows.add(EVERY, time_of_every(outcome))
        for table, names, source in (
            ("job", JOB_COLUMNS, outcome),
            ("piece", PIECES if outcome.pieces else (), outcome.pieces),
        ):
            for name in names:
                # The store has numbers of one type.
                column = np.asarray(getattr(source, name), dtype=np.float64)
                rows.add(f"{table}.{name}", column, np.arange(column.size))
        rows.add("decisions", float(outcome.decisions))
        rows.add("scheduler.seconds", outcome.seconds)
        choice = getattr(decider, "choice", None)
        # A choice among one node believes nothing: the engine has no need to ask it.
        if isinstance(choice, ByRate) and choice.state and hasattr(choice.rates, "slow_nodes"):
            _learned(rows, choice.rates, played)
        return rows

    def bound(
        self, seed: int, steps: int = 200, progress: Callable[[int], None] | None = None
    ) -> bounds.LowerBound:
        """Certified lower bound on the mean completion time of a seed.

        How far prices go in a step depends on a schedule, always of :data:`NEAR`, so that the bound
        is the same whichever schedulers it is compared with.
        """
        played, above = self.draw(seed), None
        if steps:
            # The step size of the subgradient needs a value above the bound.
            near = simulate_jobs(played.jobs, played.nodes, NEAR, played.conditions, self.options)
            above = Outcome.of(near, NEAR).until_left
        return bounds.lower_bound(
            bounded(played, self.options), steps=steps, above=above, progress=progress
        )


NEAR = "sjf+easy+oracle"
"""A scheduler without preemption whose mean completion is near that of the best schedule."""


def time_of_every(outcome: Outcome) -> float:
    """Mean seconds from submission until a job left; of one that never did, until all others had.

    Rules that shut jobs out do not look good by it.
    """
    jobs = outcome.jobs
    until = np.where(outcome.ended, outcome.end, np.nanmax(outcome.end) + jobs.limit)
    # Who withdraws a job waits for it no longer.
    until = np.minimum(until, jobs.withdrawn)
    return float((until - jobs.submit).mean())


def _learned(rows: Rows, learner: Any, played: ReplayInstance) -> None:
    # At the last submission: what a scheduler could have used at all.
    at = float(played.jobs.submit.max())
    every = [learner.estimate(name, at) for name in played.jobs.types]
    size = np.arange(len(played.jobs.types) * len(played.nodes))
    rows.add("learned.mean", np.concatenate([mean for mean, _ in every]), size)
    rows.add("learned.sd", np.concatenate([sd for _, sd in every]), size)
    if slow := learner.slow_nodes():
        place, names = np.arange(len(slow)), list(played.nodes.names)
        rows.add("slow.node", np.array([float(names.index(s.node)) for s in slow]), place)
        for part in ("slower", "low", "high"):
            rows.add(f"slow.{part}", np.array([getattr(s, part) for s in slow]), place)


def load_of(jobs: Jobs, nodes: Nodes) -> float:
    """Work over what nodes declare to do between first and last arrival, of the scarcest device.

    0 where all jobs come at one instant.
    """
    span = float(jobs.submit[-1] - jobs.submit[0])
    demand = held_devices(jobs, nodes)
    rate = nodes.declared(jobs.types).mean(axis=0)
    # Capacity is in thousandths of a device.
    total = (nodes.capacity * rate[:, None]).sum(axis=0) / 1000
    spent = (demand * jobs.run[:, None]).sum(axis=0)
    return float((spent / np.maximum(total, 1e-12)).max() / span) if span > 0 else 0.0


def _with_gpus_apart(nodes: Nodes, jobs: Jobs) -> Nodes:
    """Count the GPUs of a node one by one where tasks take parts of one, never more than one."""
    if "gpu" not in nodes.devices or "gpu" not in jobs.devices:
        return nodes
    k = jobs.devices.index("gpu")
    gpus = [part.demand[k] for s in jobs.shapes for _, part in s.groups or ((1, s),)]
    demands = np.array(gpus, dtype=np.int64)
    capacity = nodes.capacity[:, nodes.devices.index("gpu")]
    # A task that takes part of a GPU must lie on one: then GPUs count one by one.
    parts = (demands % 1000 != 0) & (demands > 0)
    # The GPUs of a node are bits of one whole number of 64.
    countable = not (capacity % 1000).any() and capacity.max() <= 63_000
    if not parts.any() or (demands[parts] > 1000).any() or not countable:
        return nodes
    return replace(nodes, shared="gpu")


def only_jobs(jobs: Jobs, keep: Any, device: str = "") -> Jobs:
    """Some of the jobs, without the dependencies on those that are left out."""
    chosen = np.flatnonzero(keep)
    shapes, devices = jobs.shapes, jobs.devices
    if device:
        k = devices.index(device)

        def of_it(shape: Shape) -> Shape:
            return shape._replace(demand=(shape.demand[k],), constraint=())

        shapes = tuple(shape.each(of_it) for shape in shapes)
        devices = (device,)
    after_from, after = reordered(jobs.after_from, jobs.after, chosen)
    # A dependency on a job that is left out is met.
    inside = after >= 0
    columns = {
        field.name: getattr(jobs, field.name)[chosen]
        for field in fields(jobs)
        if field.name not in TABLES
    }
    # Only what is still used: schedulers have a table for each.
    used, columns["shape"] = np.unique(columns["shape"], return_inverse=True)
    types, columns["type"] = np.unique(columns["type"], return_inverse=True)
    return replace(
        jobs,
        **columns,
        shapes=tuple(shapes[i] for i in used),
        types=tuple(jobs.types[i] for i in types),
        devices=devices,
        after_from=np.concatenate([[0], np.cumsum(inside)])[after_from],
        after=after[inside],
    )


def _digest(jobs: Jobs, site: Site | None) -> str:
    """SHA-256 of all that a simulation reads of jobs, and of the rules of a site: 16 digits."""
    sha = hashlib.sha256()
    if site is not None:
        sha.update(repr((site.digest, site.ran_on, jobs.pools, jobs.accounts)).encode())
        # Only where there are some, so that the digests of other logs stay.
        sha.update(repr(jobs.qoses).encode() * any(jobs.qoses))
        for codes in (jobs.pool, jobs.charged, *(jobs.qos,) * any(jobs.qoses)):
            sha.update(np.ascontiguousarray(codes).tobytes())
    if any(jobs.terms):
        sha.update(repr((jobs.terms, jobs.term.tolist())).encode())
    for name in SIMULATED:
        sha.update(np.ascontiguousarray(getattr(jobs, name)).tobytes())
    withdrawn = np.isfinite(jobs.withdrawn)
    for name, rows in (
        ("withdrawn", withdrawn),
        ("censored", jobs.censored),
        ("early", jobs.early),
    ):
        if rows.any():
            sha.update(getattr(jobs, name).tobytes())
    kinds = repr((jobs.devices, jobs.shapes, jobs.types))
    for addition in (", pool=''", ", groups=()", ", terms=''"):  # as folders of 0.2 have it
        kinds = kinds.replace(addition, "")
    sha.update(kinds.encode())
    return sha.hexdigest()[:16]


def bounded(played: ReplayInstance, options: schedule.Options) -> bounds.BoundedJobs:
    """Jobs as :func:`gangwise.jobs.bounds.lower_bound` takes them.

    Rates are the highest that each node ever has, times the noise of the job. The device type that
    counts is the one of which the log asks for the largest share. A job that may be killed at its
    limit counts with no more work than its slowest node does until then. A gang is as near as an
    empty cluster has room for it.
    """
    jobs, nodes, hidden = played.jobs, played.nodes, played.conditions
    tables = schedule.Tables.of(jobs, nodes, hidden, options)
    demand = held_devices(jobs, nodes)
    total = nodes.capacity.sum(axis=0) / 1000
    spent = (demand * jobs.run[:, None]).sum(axis=0) / np.maximum(total, 1e-12)
    k = int(np.argmax(spent))
    rates = np.ones((len(jobs.types), len(nodes)))
    if hidden.rates is not None:
        rates = np.array(hidden.rates, dtype=np.float64)
    top = np.ones(len(nodes))
    for n in {n for _, n, _ in hidden.factors}:
        mine = sorted((t, f) for t, m, f in hidden.factors if m == n)
        before = 1.0 if mine[0][0] > 0 else 0.0  # from the start on it has a factor
        top[n] = max([before, *(f for _, f in mine)])
    # A bound must hold whatever happens: each node counts with the highest rate that it ever has.
    rates = rates * top
    # Of a job of groups the one that holds most stands for the job: with the others it cannot be
    # done sooner. What these hold counts as further work.
    heads = [
        max(shape.groups, key=lambda group: group[0] * group[1].demand[k]) if shape.groups else None
        for shape in tables.shapes
    ]
    shapes = [head[1] if head else shape for head, shape in zip(heads, tables.shapes)]
    tasks, beside = jobs.tasks, None
    if jobs.grouped.any():
        tasks = np.array([head[0] if head else 0 for head in heads])[jobs.shape]
        tasks = np.where(jobs.grouped, tasks, jobs.tasks)
        held_of_head = np.array([shape.demand[k] / 1000 for shape in shapes])[jobs.shape]
        beside = demand[:, k] - tasks * held_of_head
    # How many tasks of each kind fit on each node when it is empty: no schedule places more.
    empty = books.Books.opened(nodes)
    room = [empty.fits(shape) for shape in shapes]
    # Jobs of one type and one shape are one kind: the bound has a row of rates for each.
    several, kind = np.unique(jobs.type * len(jobs.shapes) + jobs.shape, return_inverse=True)
    kinds = np.stack(np.divmod(several, len(jobs.shapes)))
    fits = np.array(room)[kinds[1]]
    # More than the largest gang takes makes no difference.
    fits = np.minimum(fits, int(tasks.max()))
    work = tables.work if hidden.noise is None else tables.work / np.asarray(hidden.noise)
    if options.enforced and options.limits == "wall-clock":
        # Killed at its limit, a job has done no more than its slowest node does until then.
        slowest = np.where(fits > 0, rates[kinds[0]], np.inf).min(axis=1)
        slowest = slowest[kind]
        if tables.distance is not None:  # all the slower where it is far apart
            slowest = slowest * tables.distance.factor[tables.distance.of_job, -1]
        work = np.minimum(work, jobs.limit * slowest)
    if tables.distance is not None:
        work = work / distance.best_factor(tables.distance, np.array(room), jobs.shape, tasks)
    # A job that may leave without running adds nothing to a mean that is bounded from below.
    can = ~tables.aside & np.isinf(jobs.withdrawn)
    later = np.repeat(np.arange(len(jobs)), np.diff(jobs.after_from))
    # Dependencies on jobs that are set aside bind no job.
    waits = can[later] & can[jobs.after]
    row = np.cumsum(can) - 1
    on = slice(None) if can.all() else can  # a million jobs are not copied for nothing
    return bounds.BoundedJobs(
        jobs.submit[on],
        work[on],
        tasks[on],
        ((demand[:, k] if beside is None else demand[:, k] - beside) / tasks)[on],
        kind[on],
        rates[kinds[0]],
        fits,
        nodes.capacity[:, k] / 1000,
        np.concatenate([[0], np.cumsum(np.bincount(row[later[waits]], minlength=can.sum()))]),
        row[jobs.after[waits]],
        None if beside is None else beside[on],
    )


def stored_outcome(rows: Rows, label: str, played: ReplayInstance) -> Outcome:
    """An outcome from the rows of its run; raises StoreError where they lack how jobs ended."""
    columns = {name: values for name, (_, values) in rows.items()}
    if "job.phase" not in columns:
        raise StoreError(
            f"the stored run of {label} does not say which jobs were killed: an older gangwise "
            "made it; replay into a new folder"
        )
    pieces = None
    if "piece.job" in columns:
        begin = columns["piece.begin"]  # stored before 0.4: without the start latency
        columns_of: dict[str, Any] = {name: columns.get(f"piece.{name}", begin) for name in PIECES}
        integers = {
            name: columns_of[name].astype(np.int64)
            for name in columns_of.keys() - {"begin", "end", "held"}
        }
        pieces = Pieces(**columns_of | integers)
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
        columns["job.phase"].astype(np.int8),
        int(columns["decisions"][0]),
        float(columns["scheduler.seconds"][0]),
    )
