"""Runs: what is simulated × who decides × seed → tidy rows of numbers; the store that keeps them.

A :class:`RunSpec` holds everything that a run depends on; its key is a hash of that.
:func:`measure` plays it and returns rows of these metrics:

=====================  ====================  ==============================================
metric                 at                    value
=====================  ====================  ==============================================
reward.mean            null                  mean per slot; so for every metric
reward.total           null                  sum over the slots; so for every metric
reward.cumulative      slots played          sum so far; so for every metric
reward.slot            slot                  reward of the slot, at ``optimum_slots`` evenly
                                             spaced slots (of a comparator: at its slots);
                                             with ``every_slot`` of every slot and metric
job.cost …             job, as they left     what became of each job, where the environment
                                             keeps ``results()`` (approximation jobs)
us_per_slot            null                  time that the policy takes to decide and learn,
                                             mean over the slots, microseconds; kernels were
                                             compiled or loaded before the first of them
nanoseconds.slot       slot                  the same of each slot, with ``every_slot``
proved                 null                  share of the searches that proved their choice best,
                                             of a policy that is :class:`Searching`
seconds                null                  time of the whole run
gap                    null                  comparator: its proven gap, summed over its slots
bound.…                null                  comparator: theoretical bounds on the regret
=====================  ====================  ==============================================

Everything but the timings follows from what defines the run, see :meth:`RunSpec.identity`.

Most scenarios are played slot by slot. A scenario that plays whole runs by itself, as the replay of
a log does, is a :class:`Replay`; its rows go into the same store, tables and pages.

The store is finished runs on disk, one Parquet file each, and together one tidy data set. A folder
of results holds ``runs/KEY.parquet`` and, for each experiment, ``NAME.plan.json`` (what it asks
for) and ``NAME.command.json`` (how it was made). The key is a hash of all that defines a run:
experiments share equal runs, and only runs that are missing are played.

Files go through :mod:`gangwise.core.files`, so that one under its final name is whole. A run also
carries a digest of its content: a copy of the folder without its ``.gangwise`` is still good, and a
file that a disk has damaged counts as not played.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import polars as pl

import gangwise
from gangwise.core import arrays, contracts, registry
from gangwise.core.contracts import PATHS, identify, key_of, plain
from gangwise.core.errors import ScenarioError, StoreError, papers_wing
from gangwise.core.files import Folder, read_whole, torn
from gangwise.core.registry import ANY, entries
from gangwise.core.simulation import Simulation

TIMINGS = (
    "us_per_slot",
    "seconds",
    "nanoseconds.slot",
    "microseconds per decision",
    "scheduler.seconds",
)
"""Metrics that differ from one execution of a run to the next."""

PLAN = ".plan.json"
"""Ending of the files in a folder of results that hold the plan of an experiment."""


class Rows(dict[str, tuple[arrays.Ints, arrays.Floats]]):
    """Rows of a run: of each metric, where its values are (−1: of all the run), and the values."""

    def add(self, metric: str, value: arrays.Floats | float, at: arrays.Ints | None = None) -> None:
        """Add one number, or a column of values and their places ``at``."""
        values = np.atleast_1d(np.asarray(value, dtype=np.float64))
        places = np.full(values.size, -1) if at is None else np.asarray(at, dtype=np.int64)
        self[metric] = places, values


@runtime_checkable
class Replay(Protocol):
    """A scenario whose runs are not slots with a reward.

    Like every scenario it has ``name``, ``family``, ``slots`` (at least 1) and ``describe()``,
    which define a run together with the decider and the seed.
    """

    @property
    def deciders(self) -> Literal["policy", "scheduler"]:
        """The registry in which its deciders are: of policies or of schedulers."""

    @property
    def objective(self) -> str:
        """The metric, one number per run, that ranks deciders, such as ``wait.mean``."""

    @property
    def minimise(self) -> bool: ...

    def replay(self, decider: Any, seed: int, slots: int, label: str) -> Rows:
        """Play one run. Tables and tuning can rank by any metric of a single number."""


@runtime_checkable
class Searching(Protocol):
    """A policy that counts its searches, and those that proved their choice best."""

    programmes: int
    proved: int


class ScenarioSource(ABC):
    """Source of instances: a scenario, and which code draws its instances."""

    name: str

    @abstractmethod
    def scenario(self) -> contracts.Scenario: ...

    def instance(self, seed: int) -> contracts.Instance:
        """The instance of a seed; each process keeps the last one."""
        return _instance(self, seed)

    @property
    def asked(self) -> dict[str, Any]:
        """Name in a plan; a scenario that was made in Python has none."""
        return {"scenario": "", "settings": {}}

    def made_by(self) -> list[str]:
        return [identify(type(self.scenario()), "scenario")]


@dataclass(frozen=True)
class NamedSource(ScenarioSource):
    name: str
    trace: bool
    # As text, so that a source can be a key.
    settings: str = "{}"
    changes: str = "{}"  # other settings, of a scenario that can be changed

    @classmethod
    def of(cls, name: str, trace: bool, settings: Mapping[str, Any]) -> NamedSource:
        try:
            return cls(name, trace, json.dumps(dict(settings)))
        except TypeError as error:
            raise ScenarioError(f"settings of {name}: {error}; use numbers, text, lists") from error

    def scenario(self) -> contracts.Scenario:
        """The scenario; each process keeps the last few, so that traces are read once."""
        return _scenario(self, _as_they_are(self))

    def changed(self, settings: Mapping[str, Any]) -> NamedSource:
        """With other settings, which are applied to what was read before."""
        return replace(self, changes=json.dumps(dict(settings)))

    @property
    def asked(self) -> dict[str, Any]:
        kind = "trace" if self.trace else "scenario"
        return {kind: self.name, "settings": json.loads(self.settings)}

    def made_by(self) -> list[str]:
        entry = None if self.trace else _registered(self.name)
        if entry is None:
            return super().made_by()
        own = f"{entry.name} r{entry.revision}"  # names may share a class, with other arguments
        return [*super().made_by(), own if entry.built_in else identify(entry.load(), "scenario")]


@dataclass(frozen=True, eq=False)
class GivenSource(ScenarioSource):
    given: contracts.Scenario

    @property
    def name(self) -> str:  # type: ignore[override]  # read-only
        return self.given.name

    def scenario(self) -> contracts.Scenario:
        return self.given

    def changed(self, settings: Mapping[str, Any]) -> GivenSource:
        scenario: Any = self.given
        return GivenSource(scenario.changed(**settings))


def named_source(
    target: str, settings: Mapping[str, Any], trace: bool = False, family: str | None = None
) -> NamedSource:
    """The source that a text names.

    It may be a registered name, with settings after a colon; a scenario file (.toml); a file or
    folder of a trace (always, if ``trace``), a mapping file, or ``twin:NAME``; a folder of results,
    for what was played there. Raises ScenarioError for the ``family`` of something else than a
    trace, and for results of several scenarios.
    """
    # Such a text is the content of something; the file system refuses it as a name.
    if len(target) > 4000:
        raise ScenarioError(f"{target[:40]}… is no scenario or trace: it has {len(target)} letters")
    from gangwise.logs.formats.own_csv import is_mapping

    path = Path(target)
    # Results first: their folder may hold files that look like those of a trace.
    if not trace and any(path.glob(f"*{PLAN}")):
        return played_in(path, settings)
    if not trace and _is_file(target) and not is_mapping(path):
        return NamedSource.of(target, False, settings)
    looks = "/" in target or target.endswith((".csv", ".gz", ".swf")) or target.startswith("twin:")
    # A folder of a scenario's name, as --out may have made it, is written ./NAME.
    if trace or (_registered(target) is None and (path.exists() or looks)):
        return NamedSource.of(target, True, settings)
    if family is not None:
        raise ScenarioError(f"--family is for traces; the scenario {target!r} has a family")
    return NamedSource.of(target, False, settings)


def _registered(target: str) -> registry.Entry | None:
    return registry.entries("scenario").get(target.strip().partition(":")[0])


def _is_file(target: str) -> bool:
    return target.endswith(".toml") and _registered(target) is None


def played_in(folder: Path, settings: Mapping[str, Any]) -> NamedSource:
    """Source that the experiments in a folder of results play; given settings replace theirs.

    Raises ScenarioError when they play several scenarios, or one that was made in Python;
    StoreError when a plan cannot be read.
    """
    named: dict[NamedSource, str] = {}
    for path in sorted(folder.glob(f"*{PLAN}")):
        with torn(path, "sweep again to mend it"):
            plan = json.loads(read_whole(path))["experiment"]
            name, own = (plan.get("scenario") or plan.get("trace"), plan.get("settings", {}))
            cells = [plan.get("grid", {}), *plan.get("cases", ())]
            # A setting that varies has several values, unless one is given.
            varied = {key for cell in cells for key in cell} - settings.keys()
        if varied:
            names = ", ".join(sorted(varied))
            raise ScenarioError(f"{folder} holds a sweep over {names}: say which value is meant")
        if not name:
            raise ScenarioError(
                f"{folder} holds results of a scenario that was made in Python; give that"
            )
        source = NamedSource.of(name, bool(plan.get("trace")), {**own, **settings})
        named[source] = path.name.removesuffix(PLAN)
    if len(named) > 1:
        raise ScenarioError(
            f"{folder} holds results of several scenarios: {', '.join(named.values())}; name one"
        )
    return next(iter(named))


def deciders(scenario: object) -> Any:
    """The registry of those that decide in a scenario: policy or scheduler."""
    return scenario.deciders if isinstance(scenario, Replay) else "policy"


def fidelity_of(scenario: object, slots: int) -> dict[str, Any] | None:
    """Coverage of a log by a scenario in so many slots; None where it plays no log.

    Every result is shown below ``line`` and ``warnings``.
    """
    fidelity = getattr(scenario, "fidelity", None)
    if fidelity is None:
        return None
    account = fidelity()
    if isinstance(scenario, Replay):  # whole logs, without slots
        # Its first line is the account, the others are warnings.
        warnings = [text.removeprefix("warning: ") for text in account[1:]]
        return {"line": account[0], "warnings": warnings} if account else None
    played = getattr(account, "kept", None)
    return None if played is None else dict(played.in_first(slots).to_dict())


def _as_they_are(source: NamedSource) -> tuple[Any, ...]:
    """The files that a source names, with their times and sizes: a changed one is read again."""
    stats = []
    for text in (source.name, *json.loads(source.settings).values()):
        # What is no path, or cannot be read, is refused where it is opened, with its reason.
        with suppress(OSError, TypeError, ValueError):
            path = Path(text).absolute()  # from the folder of this moment
            for file in [path, *sorted(path.iterdir() if path.is_dir() else ())]:
                about = file.stat()
                stats.append((str(file), about.st_mtime_ns, about.st_size))
    return tuple(stats)


@lru_cache(maxsize=16)
def _scenario(source: NamedSource, files: tuple[Any, ...]) -> contracts.Scenario:
    # What was read stays; only the changes are applied to it.
    if changes := json.loads(source.changes):
        base: Any = _scenario(replace(source, changes="{}"), files)
        changed: contracts.Scenario = base.changed(**changes)
        return changed
    settings = json.loads(source.settings)
    if source.trace:
        # Only here, so that a replay loads nothing of the papers.
        with papers_wing():
            from gangwise.papers.scenarios.opening import open_trace

        traced: contracts.Scenario = open_trace(source.name, **settings)
        return traced
    if _is_file(source.name):
        with papers_wing():
            from gangwise.papers.scenarios.drawn import read_scenario

        return read_scenario(source.name, settings)
    scenario: contracts.Scenario = registry.create("scenario", source.name, **settings)
    return scenario


# The last one alone, as instances may be large and runs of one come in a row.
@lru_cache(maxsize=1)
def _instance(source: ScenarioSource, seed: int) -> contracts.Instance:
    return source.scenario().instance(seed)


@dataclass(frozen=True, eq=False)
class RunSpec:
    """A policy, or a comparator (then ``policy`` is None), on one instance.

    ``cell`` has the settings that vary in the experiment, ``label`` the name in results. With
    ``every_slot``, rewards and metrics of every slot are kept, not only sums and curves.
    """

    source: ScenarioSource
    cell: Mapping[str, Any]
    seed: int
    slots: int
    optimum_slots: int | None = 200
    points: int = 150
    label: str = ""
    policy: contracts.Policy[Any, Any, Any] | None = None
    every_slot: bool = False

    def identity(self) -> dict[str, Any]:
        """All that defines the run; the place of a trace's files does not."""
        scenario = self.source.scenario()
        described = dict(scenario.describe())
        if described.get("files"):
            described = {k: v for k, v in described.items() if k not in PATHS}
        decider: Any = {"comparator": self.label}
        # What a user registered has no revision: its code stands for it.
        if (judge := self.registered) is not None and not judge.built_in:
            decider |= {"made": identify(judge.load()), "preset": plain(judge.preset)}
        # Left out where it is 1, so that keys of before stay.
        elif judge is not None and judge.revision > 1:
            decider["revision"] = judge.revision
        if self.policy is not None:
            family = getattr(self.policy, "family", scenario.family)
            if family != scenario.family:
                raise ScenarioError(
                    f"policy {self.label!r} is for the family {family}; scenario "
                    f"{scenario.name!r} is of the family {scenario.family}"
                )
            decider = {
                "policy": identify(type(self.policy), deciders(scenario)),
                "configuration": plain(contracts.configuration(self.policy)),
            }
        # Only where it is set, so that keys of sweeps stay.
        if self.every_slot:
            decider["every_slot"] = True
        return {
            "version": gangwise.__version__,
            "scenario": scenario.name,
            "family": scenario.family,
            "made_by": self.source.made_by(),
            "settings": plain(described),
            "slots": self.slots,
            "seed": self.seed,
            "optimum_slots": self.optimum_slots,
            "points": self.points,
            **decider,
        }

    @property
    def registered(self) -> registry.Entry | None:
        if self.policy is not None:
            return None
        return registry.comparators(self.source.scenario().family).get(self.label)

    @property
    def whole(self) -> bool:
        """Whether a replay plays it in compiled code from end to end; threads go on meanwhile."""
        compiled = getattr(self.source.scenario(), "compiled", None)
        return compiled is not None and bool(compiled(self.policy))

    def key(self) -> str:
        return key_of(self.identity())

    def __str__(self) -> str:
        cell = "".join(f", {key} = {value}" for key, value in self.cell.items())
        return f"{self.label}{cell}, seed {self.seed}"


def checkpoint_slots(slots: int, points: int) -> arrays.Ints:
    """After how many slots curves are recorded, ascending; the last is ``slots``.

    >>> checkpoint_slots(100, 8).tolist()
    [1, 5, 22, 34, 67, 100]
    """
    even = np.linspace(1, slots, points - points // 2)
    logarithmic = np.geomspace(1, slots, points // 2)
    at = np.concatenate([even, logarithmic, [slots]])
    # Both meet at few slots, where one of two equal points stays.
    return np.unique(at.round().astype(np.int64))


def measure(
    spec: RunSpec, checkpoint: Path | None = None, progress: Callable[[int], None] | None = None
) -> Rows:
    """Play a run, or evaluate a comparator.

    An unfinished run is saved to ``checkpoint`` and continued from there. ``progress`` is called
    with the number of slots played.
    """
    begin = time.perf_counter()
    scenario = spec.source.scenario()
    if isinstance(scenario, Replay):
        # A clone, as the one that is given plays other seeds, too.
        decider = None if spec.policy is None else contracts.clone(spec.policy)
        rows = scenario.replay(decider, spec.seed, spec.slots, spec.label)
    elif spec.policy is None:
        rows = _of_comparator(spec)
    else:
        rows = _of_policy(spec, contracts.clone(spec.policy), checkpoint, progress)
    rows.add("seconds", time.perf_counter() - begin)
    return rows


def _of_policy(
    spec: RunSpec,
    policy: contracts.Policy[Any, Any, Any],
    checkpoint: Path | None,
    progress: Callable[[int], None] | None,
) -> Rows:
    # Without a checkpoint nothing is compared, and to identify a run its files are read.
    identity = {} if checkpoint is None else spec.identity()
    if checkpoint is not None and checkpoint.exists():
        simulation = Simulation.load(checkpoint, identity)
    else:
        instance = spec.source.instance(spec.seed)
        simulation = Simulation(instance, policy, spec.slots, spec.seed, spec.label, identity)
    run = simulation.run(checkpoint, progress=progress)
    results = getattr(simulation.environment, "results", None)
    # Where the run was continued from a checkpoint, it is another object.
    policy = simulation.policy
    rows = Rows()
    columns = {"reward": run.rewards, **run.metrics}
    _series(rows, columns, checkpoint_slots(spec.slots, spec.points))
    if spec.every_slot:
        every = np.arange(spec.slots)
        for name, column in columns.items():
            rows.add(f"{name}.slot", column, every)
        rows.add("nanoseconds.slot", run.nanoseconds.astype(np.float64), every)
    else:
        # At the slots of comparators, so that both can be compared there.
        sampled = contracts.evenly_spaced(spec.slots, spec.optimum_slots)
        rows.add("reward.slot", run.rewards[sampled], sampled)
    rows.add("us_per_slot", run.us_per_slot)
    if isinstance(policy, Searching) and policy.programmes:
        rows.add("proved", policy.proved / policy.programmes)
    if results is not None:
        for name, values in results().items():
            rows.add(f"job.{name}", values, np.arange(values.size))
    return rows


def _of_comparator(spec: RunSpec) -> Rows:
    instance, rows = spec.source.instance(spec.seed), Rows()
    judge: contracts.Comparator = instance.comparator(
        spec.label, spec.slots, spec.seed, spec.optimum_slots
    )
    if judge.slots.size == spec.slots:
        _series(rows, {"reward": judge.rewards}, checkpoint_slots(spec.slots, spec.points))
    else:
        rows.add("reward.mean", judge.rewards.mean())
    if spec.every_slot or judge.slots.size < spec.slots:
        rows.add("reward.slot", judge.rewards, judge.slots)
    rows.add("gap", judge.gap)
    for bound, value in judge.bounds.items():
        rows.add(f"bound.{bound}", value)
    return rows


def _series(rows: Rows, columns: Mapping[str, arrays.Floats], played: Iterable[int]) -> None:
    at = np.asarray(played)
    for name, column in columns.items():
        so_far = np.cumsum(column)
        rows.add(f"{name}.mean", column.mean())
        rows.add(f"{name}.total", column.sum())
        # The sum after n slots is that up to the n-th.
        rows.add(f"{name}.cumulative", so_far[at - 1], at)


FORMAT = "gangwise-run-1"


class Store:
    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        self.files = Folder(self.folder)
        self._seen: dict[str, tuple[tuple[int, ...], tuple[Mapping[str, Any], Rows], int]] = {}

    def lock(self) -> AbstractContextManager[None]:
        return self.files.lock()

    def path(self, key: str) -> Path:
        return self.files.place(f"runs/{key}.parquet")

    def checkpoint(self, key: str) -> Path | None:
        """Place of the checkpoint of an unfinished run; None where nothing can be kept."""
        return self.files.checkpoint(key)

    def write(self, key: str, identity: Mapping[str, Any], rows: Rows) -> None:
        texts = _texts(key, identity)
        seal = _seal_of(key, texts, rows)

        def parquet(file: Any) -> None:
            numbers = _frame(rows).get_columns()
            columns = [  # what a run is, in every row: a data set of all runs reads as one table
                pl.Series(
                    name, [text], pl.Int64 if name in ("seed", "slots") else pl.Categorical
                ).new_from_index(0, numbers[0].len())
                for name, text in texts.items()
            ]
            # Categories are encoded once, texts row by row; readers are to see texts.
            metadata = {ARROW: _arrow_schema(), **seal}
            # A reader that filters takes a run or leaves it: least and largest values help no one.
            pl.DataFrame([*columns, *numbers]).write_parquet(
                file, metadata=metadata, statistics=False
            )

        self.files.write(f"runs/{key}.parquet", parquet, replace=True)
        # After the file is written, as its mark is that of the new file.
        self._remember(key, _about(key, identity), rows)
        # Killed before this line, a run is finished and has a checkpoint,
        # which the next start removes.
        self.forget_checkpoint(key)

    def _remember(self, key: str, about: Mapping[str, Any], rows: Rows) -> None:
        self._seen.pop(key, None)
        size = sum(at.size + values.size for at, values in rows.values())
        self._seen[key] = self._mark(key), (about, rows), size
        # The last one stays, however large it is.
        while len(self._seen) > 1 and sum(size for *_, size in self._seen.values()) > KEPT:
            del self._seen[next(iter(self._seen))]

    def _mark(self, key: str) -> tuple[int, ...]:
        """Changes whenever the file does; empty where there is none."""
        try:
            status = self.files.tree.status(f"runs/{key}.parquet")
        except (OSError, StoreError):
            return ()
        # A file that was replaced within one tick of the clock is another inode.
        return (status.st_ino, status.st_size, status.st_mtime_ns) if status else ()

    def forget_checkpoint(self, key: str) -> None:
        if (checkpoint := self.checkpoint(key)) is not None:
            self.files.forget_checkpoint(checkpoint.name)

    def finished(self, key: str) -> bool:
        return self._load(key) is not None

    def rows(self, key: str) -> Rows:
        return self._whole(key)[1]

    def _whole(self, key: str) -> tuple[Mapping[str, Any], Rows]:
        stored = self._load(key)
        if stored is None:
            raise StoreError(
                f"{self.path(key)} is missing or damaged; run the command that made it again"
            )
        return stored

    def _load(self, key: str) -> tuple[Mapping[str, Any], Rows] | None:
        """The description and the rows of a run; None unless its file is there and whole."""
        mark = self._mark(key)
        if mark and key in self._seen and self._seen[key][0] == mark:
            return self._seen[key][1]
        try:
            data = read_whole(self.path(key))
            seal = pl.read_parquet_metadata(io.BytesIO(data))
            names = list(pl.read_parquet_schema(io.BytesIO(data)))
            # A large file column by column: most are one text a row, which takes room.
            parts = [names] if len(data) < LARGE else [[name] for name in names]
            numbers, texts = dict[str, Any](), dict[str, Any]()
            for part in parts:
                for column in pl.read_parquet(io.BytesIO(data), columns=part).iter_columns():
                    if column.name in ("at", "value"):
                        numbers[column.name] = column.fill_null(-1).to_numpy()
                    else:  # of a text, how often it stands
                        texts[column.name] = column.rle().struct.unnest().rows()
            rows, begin = Rows(), 0
            for n, name in texts.pop("metric"):
                of = slice(begin, begin + n)
                rows.add(name, numbers["value"][of], numbers["at"][of])
                begin += n
            # Each stands once, in every row: another one would be damage.
            about = {name: text for name, [(_, text)] in texts.items()}
            # Metadata has more than the seal: what Arrow writes there.
            if not _seal_of(key, about, rows).items() <= seal.items():
                return None
            about |= {name: json.loads(about[name]) for name in _JSON}
        # Of some damage Polars panics, which is no Exception in Python.
        except (OSError, KeyError, ValueError, *UNREADABLE):
            return None
        self._remember(key, about, rows)
        return about, rows

    def about(self, key: str) -> dict[str, Any]:
        """Description of a finished run: scenario, settings, policy, configuration, seed …"""
        return dict(self._whole(key)[0])

    def scan(self, keys: Iterable[str]) -> pl.LazyFrame:
        """Numbers of finished runs; columns ``key``, ``metric``, ``at`` and ``value``."""
        paths = [self.path(key) for key in dict.fromkeys(keys)]
        return pl.scan_parquet(paths).select("key", "metric", "at", "value")

    def write_plan(self, name: str, plan: Mapping[str, Any]) -> None:
        text = json.dumps(plan, indent=1, allow_nan=False) + "\n"
        self.files.write(name + PLAN, text, replace=True)

    def plans(self) -> list[str]:
        return sorted(p.name.removesuffix(PLAN) for p in self.folder.glob(f"*{PLAN}"))

    def read_plan(self, name: str = "") -> dict[str, Any]:
        """The plan of an experiment; without a name, of the only one there.

        Raises StoreError when there is none, or several to choose from.
        """
        known = self.plans()
        if not name and len(known) == 1:
            name = known[0]
        if name not in known:
            which = f"choose one of {', '.join(known)}" if known else "name the folder of its --out"
            raise StoreError(f"{self.folder} has no results of {name or 'one experiment'}; {which}")
        with torn(self.folder / f"{name}{PLAN}", "sweep again to mend it"):
            plan = json.loads(self.files.read(name + PLAN))
            return {
                "experiment": dict(plan["experiment"]),
                "runs": list(plan["runs"]),
                "fidelity": list(plan.get("fidelity", ())),
            }


class MemoryStore(Store):
    """Finished runs that are kept in memory alone.

    The caller will write what it needs of them to ``file``; unfinished runs are saved next to it.
    """

    def __init__(self, file: Path | None = None) -> None:
        super().__init__("memory" if file is None else file.parent)
        self._file = file
        self._runs: dict[str, tuple[Mapping[str, Any], Rows]] = {}
        self._plans: dict[str, Mapping[str, Any]] = {}

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext() if self._file is None else self.files.lock(self._file.name)

    def checkpoint(self, key: str) -> Path | None:
        return None if self._file is None else self.files.checkpoint(self._file.name)

    def write(self, key: str, identity: Mapping[str, Any], rows: Rows) -> None:
        self._runs[key] = _about(key, identity), rows

    def _load(self, key: str) -> tuple[Mapping[str, Any], Rows] | None:
        return self._runs.get(key)

    def scan(self, keys: Iterable[str]) -> pl.LazyFrame:
        frames = [
            _frame(self._runs[key][1]).lazy().select(pl.lit(key).alias("key"), pl.all())
            for key in dict.fromkeys(keys)
        ]
        return pl.concat(frames)

    def write_plan(self, name: str, plan: Mapping[str, Any]) -> None:
        self._plans[name] = plan

    def plans(self) -> list[str]:
        return sorted(self._plans)

    def read_plan(self, name: str = "") -> dict[str, Any]:
        return dict(self._plans[name or next(iter(self._plans))])


def store_of(out: Store | Path | str | None) -> Store:
    """A store as it is, in a folder, or in memory alone."""
    return out if isinstance(out, Store) else MemoryStore() if out is None else Store(out)


ARROW = "ARROW:schema"  # key of a Parquet file's metadata


@cache
def _arrow_schema() -> str:
    """The types that readers give the columns of a run, as the metadata of its file has them."""
    numbers = {"seed": pl.Int64(), "slots": pl.Int64(), "at": pl.Int64(), "value": pl.Float64()}
    names, file = (*_about("", {}), "metric", "at", "value"), io.BytesIO()
    empty = pl.DataFrame(schema={name: numbers.get(name, pl.String()) for name in names})
    empty.write_parquet(file)
    return pl.read_parquet_metadata(file.getvalue())[ARROW]


_JSON = ("settings", "configuration")

KEPT = 4_000_000
"""Numbers of runs that stay in memory: a replay and its page ask for each several times."""
UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What Polars raises of a damaged file."""
LARGE = 1 << 20  # bytes of a file that is read column by column


def _frame(rows: Rows) -> pl.DataFrame:
    names, (at, values) = pl.Series(list(rows), dtype=pl.String), zip(*rows.values())
    metric = names.gather(np.repeat(np.arange(len(at)), [places.size for places in at]))
    times = pl.Series("at", np.concatenate(at))
    return pl.DataFrame(
        {"metric": metric, "at": times.set(times < 0, None), "value": np.concatenate(values)}
    )


def _about(key: str, identity: Mapping[str, Any]) -> dict[str, Any]:
    names = ("scenario", "family", "settings", "policy", "configuration", "comparator")
    numbers = ("seed", "slots", "version")
    return {"key": key, **{name: identity.get(name) for name in (*names, *numbers)}}


def _texts(key: str, identity: Mapping[str, Any]) -> dict[str, Any]:
    about = _about(key, identity)
    return {name: json.dumps(v) if name in _JSON else v for name, v in about.items()}


def _seal_of(key: str, texts: Mapping[str, Any], rows: Rows) -> dict[str, str]:
    """The seal of a run: a digest of its content, however compressed."""
    digest, total = hashlib.sha256(), sum(at.size for at, _ in rows.values())
    # In the order of the file's columns, in which a reader meets them.
    for name, text in texts.items():
        digest.update(repr([name, [(total, text)] * bool(total)]).encode())
    runs = [(at.size, name) for name, (at, _) in rows.items() if at.size]
    digest.update(repr(["metric", runs]).encode())
    for at, _ in rows.values():
        # As they are read again: null has become −1.
        digest.update(np.ascontiguousarray(np.maximum(at, -1)).data)
    for _, values in rows.values():
        digest.update(np.ascontiguousarray(values).data)
    return {"format": FORMAT, "key": key, "digest": digest.hexdigest()}


class Provenance(NamedTuple):
    """Provenance of results: a command as it was typed, and the versions that it ran with."""

    command: str
    versions: dict[str, str]


def versions() -> dict[str, str]:
    """Versions of what results depend on, here and now.

    >>> list(versions())
    ['gangwise', 'python', 'numpy', 'numba', 'polars']
    """
    versions = {"gangwise": gangwise.__version__, "python": platform.python_version()}
    for package in ("numpy", "numba", "polars"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def provenance_text(command: str) -> str:
    """The content of a ``NAME.command.json``, here and now."""
    about = Provenance(command, versions())._asdict()
    return json.dumps(about, indent=1, ensure_ascii=False) + "\n"


def write_provenance(folder: Path, name: str, command: str) -> Path:
    """Write ``NAME.command.json``; raises StoreError when that fails."""
    return Folder(folder).write(f"{name}.command.json", provenance_text(command), replace=True)


def read_provenance(folder: Path, name: str) -> Provenance | None:
    """The provenance of results; None where there is none, as of a sweep from Python."""
    path = folder / f"{name}.command.json"
    if not Folder(folder).is_there(path.name):
        return None
    with torn(path, "delete it, or run the command again"):
        return Provenance(**json.loads(Folder(folder).read(path.name)))


def command_of(folder: Path, name: str) -> str:
    """The command that made an experiment; empty where none is known."""
    known = read_provenance(folder, name)
    return "" if known is None else known.command


def older_runs(folder: Path) -> dict[str, list[str]]:
    """Runs that an older revision of a built-in decider played: which revision → runs."""
    now = {e.name: e.revision for kind in ("policy", "scheduler") for e in entries(kind).values()}
    now["Composed"] = now.pop(ANY)  # the class of schedulers named by their parts
    store, runs_by_problem = Store(folder), dict[str, list[str]]()
    for name in store.plans():
        for run in store.read_plan(name)["runs"]:
            if not store.finished(run["key"]):
                continue
            decider, _, revision = str(store.about(run["key"])["policy"]).rpartition(" r")
            if decider in now and revision.isdigit() and int(revision) < now[decider]:
                what = f"{decider} of revision {revision}; it is at {now[decider]}"
                runs_by_problem.setdefault(what, []).append(f"{run['label']}, seed {run['seed']}")
    return runs_by_problem
