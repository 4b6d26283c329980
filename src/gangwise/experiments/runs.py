"""Runs: what is simulated × who decides × seed → tidy rows of numbers.

A :class:`RunSpec` names all that a run depends on, its key is a hash of that, and :func:`measure`
plays it. What a run leaves behind:

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
                                             compiled or loaded before the first of them; of a
                                             run that is played whole, of its first slots
nanoseconds.slot       slot                  the same of each slot, with ``every_slot``
proved                 null                  share of the searches that proved their choice best,
                                             of a policy that is :class:`Searching`
seconds                null                  time of the whole run
gap                    null                  comparator: its proven gap, summed over its slots
bound.…                null                  comparator: theoretical bounds on the regret
=====================  ====================  ==============================================

Everything but the timings is a function of what defines the run, see :meth:`RunSpec.identity`.

Slots are one kind of run. A scenario that plays whole runs by itself, as a replay of jobs does, is
a :class:`Replay`; its rows go the same way into store, tables and pages.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

import gangwise
from gangwise.core.arrays import Floats, Ints
from gangwise.core.contracts import (
    Comparator,
    Instance,
    Policy,
    Scenario,
    clone,
    configuration,
    evenly_spaced,
)
from gangwise.core.errors import ScenarioError, StoreError
from gangwise.core.identity import PATHS, identify, key_of, plain
from gangwise.core.registry import Entry, comparators, create, entries, parse
from gangwise.core.simulation import Run, Simulation
from gangwise.gain_overhead.whole_runs import COLUMNS, play_whole, plays_whole
from gangwise.scenarios.files import read_scenario
from gangwise.traces.formats.own_csv import is_mapping
from gangwise.traces.slots.opening import open_trace

TIMINGS = (
    "us_per_slot",
    "seconds",
    "nanoseconds.slot",
    "microseconds per decision",
    "scheduler.seconds",
)
"""The metrics that differ from one execution of a run to the next."""


PLAN = ".plan.json"
"""How the files of a folder of results end that say what an experiment asks for."""

WORTH_IT, STEPPED = 500, 64
"""Slots from which a run may be played whole, and how many of it are stepped to be timed."""


@dataclass
class Rows:
    """Rows of a run: metric names with how many rows each has, and the columns of all."""

    metrics: list[tuple[str, int]] = field(default_factory=list)
    at: list[Ints] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)

    def add(self, metric: str, value: Floats | float, at: Ints | None = None) -> None:
        """Add one number, or a column with where its values are."""
        values = np.atleast_1d(np.asarray(value, dtype=np.float64))
        self.metrics.append((metric, values.size))
        self.at.append(np.full(values.size, -1) if at is None else np.asarray(at, dtype=np.int64))
        self.values.append(values)

    def columns(self) -> dict[str, tuple[Ints, Floats]]:
        """Where the values of each metric are, and the values."""
        return {n: (at, v) for (n, _), at, v in zip(self.metrics, self.at, self.values)}


@runtime_checkable
class Replay(Protocol):
    """A scenario of which a run is something else than slots with a reward.

    It has a scenario's ``name``, ``family``, ``slots`` (how long a run is, at least 1) and
    ``describe()`` as well; they define the run together with the decider and the seed.
    """

    @property
    def deciders(self) -> Literal["policy", "scheduler"]:
        """As what those that decide in it are registered."""

    @property
    def objective(self) -> str:
        """The metric of one number per run that ranks them, such as ``wait.mean``."""

    @property
    def minimise(self) -> bool:
        """Whether less of it is better."""

    def replay(self, decider: Any, seed: int, slots: int, label: str) -> Rows:
        """Play one run. Metrics of one number are those that tables and tuning can rank by."""


@runtime_checkable
class Searching(Protocol):
    """A policy that searches for its choices, and counts searches and what they proved best."""

    programmes: int
    proved: int


class Source(Protocol):
    """Where instances come from."""

    @property
    def name(self) -> str:
        """As in an experiment file, or the scenario's own name."""

    def scenario(self) -> Scenario:
        """The scenario."""

    def instance(self, seed: int) -> Instance:
        """The instance of a seed."""

    def made_by(self) -> list[str]:
        """Identities of the code that draws instances."""


@dataclass(frozen=True)
class NamedSource:
    """A registered scenario, a scenario file or a trace, with settings as JSON text."""

    name: str
    trace: bool
    settings: str = "{}"

    @classmethod
    def of(cls, name: str, trace: bool, settings: Mapping[str, Any]) -> NamedSource:
        """Settings must be of the kind that TOML can say."""
        try:
            return cls(name, trace, json.dumps(dict(settings)))
        except TypeError as error:
            raise ScenarioError(f"settings of {name}: {error}; use numbers, text, lists") from error

    def scenario(self) -> Scenario:
        """The scenario; each process keeps the last few, so that traces are read once."""
        return _scenario(self)

    def instance(self, seed: int) -> Instance:
        """The instance of a seed; each process keeps the last one."""
        return _instance(self, seed)

    def made_by(self) -> list[str]:
        """Identities of the scenario's class and of what its name is registered for."""
        made = [identify(type(self.scenario()), "scenario")]
        entry = entries("scenario").get(parse(self.name)[0])
        return made if entry is None else [*made, identify(entry.load(), "scenario")]


def named_source(
    target: str, settings: Mapping[str, Any], trace: bool = False, family: str | None = None
) -> NamedSource:
    """What a text names: a registered scenario, a scenario file, or the files of a trace.

    Parameters
    ----------
    target : str
        A name, with settings after a colon if wanted; a .toml file; a file or folder of a trace,
        the mapping of one's own, or ``twin:NAME``; a folder of results, for what was played there.
    settings : mapping
        More settings.
    trace : bool
        It is a trace, whatever it looks like.
    family : str, optional
        Of a trace.

    Raises
    ------
    ScenarioError
        For a family of what is no trace; for results of several scenarios.
    """
    if len(target) > 4000:
        raise ScenarioError(f"{target[:40]}… is no scenario or trace: it has {len(target)} letters")
    path = Path(target)
    if not trace and any(path.glob(f"*{PLAN}")):
        return played_in(path, settings)
    if not trace and path.suffix == ".toml" and not is_mapping(path):
        return NamedSource.of(target, False, settings)
    files = path.exists() or "/" in target or target.endswith((".csv", ".gz", ".swf"))
    if trace or files or target.startswith("twin:"):
        return NamedSource.of(target, True, settings)
    if family is not None:
        raise ScenarioError(f"--family is for traces; the scenario {target!r} has a family")
    return NamedSource.of(target, False, settings)


def played_in(folder: Path, settings: Mapping[str, Any]) -> NamedSource:
    """What the experiments in a folder of results play, with other settings where some are given.

    Raises
    ------
    ScenarioError
        When they play several scenarios, or one that was made in Python.
    StoreError
        When a plan cannot be read.
    """
    found: dict[NamedSource, str] = {}
    for path in sorted(folder.glob(f"*{PLAN}")):
        try:
            asked = json.loads(path.read_text(encoding="utf-8"))["experiment"]
            name, given = asked.get("scenario") or asked.get("trace"), asked.get("settings", {})
            cells = [asked.get("grid", {}), *asked.get("cells", ())]
            varied = {key for cell in cells for key in cell} - settings.keys()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"cannot read {path}: {error!r}; sweep again to mend it") from error
        if varied:
            some = ", ".join(sorted(varied))
            raise ScenarioError(f"{folder} holds a sweep over {some}: say which value is meant")
        if not name:
            raise ScenarioError(
                f"{folder} holds results of a scenario that was made in Python; give that"
            )
        source = NamedSource.of(name, bool(asked.get("trace")), {**given, **settings})
        found[source] = path.name.removesuffix(PLAN)
    if len(found) > 1:
        raise ScenarioError(
            f"{folder} holds results of several scenarios, in {', '.join(found.values())}; name one"
        )
    return next(iter(found))


def deciders(scenario: object) -> Any:
    """The kind under which those that decide in a scenario are registered."""
    return scenario.deciders if isinstance(scenario, Replay) else "policy"


def fidelity_of(scenario: object, slots: int) -> dict[str, Any] | None:
    """How much of a log a scenario plays in so many slots, and on what terms.

    ``line`` comes first wherever a result is shown, ``warnings`` after it. None of no log.
    """
    told = getattr(scenario, "fidelity", None)
    if told is None:
        return None
    found = told()
    if isinstance(scenario, Replay):  # whole logs, without slots
        return {"line": found[0], "warnings": found[1:]} if found else None
    kept = getattr(found, "kept", None)
    return None if kept is None else dict(kept.in_first(slots).to_dict())


@lru_cache(maxsize=16)
def _scenario(source: NamedSource) -> Scenario:
    settings = json.loads(source.settings)
    if source.trace:
        traced: Scenario = open_trace(source.name, **settings)
        return traced
    if source.name.endswith(".toml"):
        return read_scenario(source.name, settings)
    scenario: Scenario = create("scenario", source.name, **settings)
    return scenario


@dataclass(frozen=True, eq=False)
class GivenSource:
    """A scenario that was made in Python."""

    given: Scenario

    @property
    def name(self) -> str:
        """The scenario's."""
        return self.given.name

    def scenario(self) -> Scenario:
        """The scenario."""
        return self.given

    def instance(self, seed: int) -> Instance:
        """The instance of a seed; each process keeps the last one."""
        return _instance(self, seed)

    def made_by(self) -> list[str]:
        """Identity of the scenario's class."""
        return [identify(type(self.given), "scenario")]


@lru_cache(maxsize=1)
def _instance(source: Source, seed: int) -> Instance:
    return source.scenario().instance(seed)


@dataclass(frozen=True, eq=False)
class RunSpec:
    """A policy, or a comparator, on one instance.

    Attributes
    ----------
    source : Source
    cell : mapping
        The settings that vary in the experiment, for results.
    label : str
        What the policy is called in results, or the name of the comparator.
    policy : Policy, optional
        None for a comparator.
    every_slot : bool
        Whether rewards and metrics of every slot are kept, not only sums and curves.
    """

    source: Source
    cell: Mapping[str, Any]
    seed: int
    slots: int
    optimum_slots: int | None = 200
    points: int = 150
    label: str = ""
    policy: Policy[Any, Any, Any] | None = None
    every_slot: bool = False

    def identity(self) -> dict[str, Any]:
        """All that defines the run; where the files of a trace are is not part of it."""
        scenario = self.source.scenario()
        described = dict(scenario.describe())
        if described.get("files"):
            described = {k: v for k, v in described.items() if k not in PATHS}
        what: Any = {"comparator": self.label}
        if (judge := self.registered) is not None and not judge.built_in:
            what |= {"made": identify(judge.load()), "preset": plain(judge.preset)}
        elif judge is not None and judge.revision > 1:
            what["revision"] = judge.revision
        if self.policy is not None:
            family = getattr(self.policy, "family", scenario.family)
            if family != scenario.family:
                raise ScenarioError(
                    f"policy {self.label!r} is for the family {family}; scenario "
                    f"{scenario.name!r} is of the family {scenario.family}"
                )
            what = {
                "policy": identify(type(self.policy), deciders(scenario)),
                "configuration": plain(configuration(self.policy)),
            }
        if self.every_slot:
            what["every_slot"] = True
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
            **what,
        }

    @property
    def registered(self) -> Entry | None:
        """Of a comparator: what its name is registered for."""
        if self.policy is not None:
            return None
        return comparators(self.source.scenario().family).get(self.label)

    @property
    def whole(self) -> bool:
        """Whether it is played in compiled code from end to end, beside which threads go on."""
        return self.slots >= WORTH_IT and plays_whole(self.policy)

    def key(self) -> str:
        """Content hash of what defines the run."""
        return key_of(self.identity())

    def __str__(self) -> str:
        cell = "".join(f", {key} = {value}" for key, value in self.cell.items())
        return f"{self.label}{cell}, seed {self.seed}"


def checkpoint_slots(slots: int, points: int) -> Ints:
    """Numbers of slots played at which curves are recorded, ascending; the last is ``slots``.

    >>> checkpoint_slots(100, 8).tolist()
    [1, 5, 22, 34, 67, 100]
    """
    even = np.linspace(1, slots, points - points // 2)
    logarithmic = np.geomspace(1, slots, points // 2)
    found = np.concatenate([even, logarithmic, [slots]])
    return np.unique(found.round().astype(np.int64))


def measure(
    spec: RunSpec, checkpoint: Path | None = None, progress: Callable[[int], None] | None = None
) -> Rows:
    """Play a run, or evaluate a comparator.

    Parameters
    ----------
    spec : RunSpec
    checkpoint : path, optional
        Where the unfinished run is kept, and gone on with from.
    progress : callable, optional
        Called with the number of slots played.
    """
    begin = time.perf_counter()
    scenario = spec.source.scenario()
    if isinstance(scenario, Replay):
        decider = None if spec.policy is None else clone(spec.policy)
        rows = scenario.replay(decider, spec.seed, spec.slots, spec.label)
    elif spec.policy is None:
        rows = _of_comparator(spec)
    else:
        rows = _of_policy(spec, clone(spec.policy), checkpoint, progress)
    rows.add("seconds", time.perf_counter() - begin)
    return rows


def _whole(
    spec: RunSpec, policy: Policy[Any, Any, Any], progress: Callable[[int], None] | None
) -> Run | None:
    """A run in compiled code, the same to the bit; None where it has to be stepped, or is short.

    The first slots are stepped all the same: they say how long the policy takes, and that both
    ways earn the same.

    Raises
    ------
    StoreError
        When they do not, which would be an error of gangwise.
    """
    if not spec.whole:
        return None
    instance = spec.source.instance(spec.seed)
    found = play_whole(instance, policy, spec.slots, spec.seed)
    if found is None:
        return None
    first = Simulation(instance, policy, STEPPED, spec.seed, spec.label).run()
    if not np.array_equal(first.rewards, found[:STEPPED, 0]):
        raise StoreError(f"{spec}: a whole run differs from a stepped one; please report it")
    nanoseconds = np.full(spec.slots, int(first.nanoseconds.mean()))
    nanoseconds[:STEPPED] = first.nanoseconds
    columns = dict(zip(COLUMNS, np.ascontiguousarray(found.T)))
    rewards = columns.pop("reward")
    if progress is not None:
        progress(spec.slots)
    told = configuration(policy)
    return Run(spec.label, told, spec.seed, lambda: instance, rewards, columns, nanoseconds)


def _of_policy(
    spec: RunSpec,
    policy: Policy[Any, Any, Any],
    checkpoint: Path | None,
    progress: Callable[[int], None] | None,
) -> Rows:
    begun = checkpoint is not None and checkpoint.exists()
    run, results = None if begun else _whole(spec, policy, progress), None
    if run is None:
        identity = spec.identity() if checkpoint is not None else {}
        if checkpoint is not None and begun:
            simulation = Simulation.load(checkpoint, identity)
        else:
            instance = spec.source.instance(spec.seed)
            simulation = Simulation(instance, policy, spec.slots, spec.seed, spec.label, identity)
        run = simulation.run(checkpoint, progress=progress)
        results = getattr(simulation.environment, "results", None)
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
        some = evenly_spaced(spec.slots, spec.optimum_slots)
        rows.add("reward.slot", run.rewards[some], some)
    rows.add("us_per_slot", run.us_per_slot)
    if isinstance(policy, Searching) and policy.programmes:
        rows.add("proved", policy.proved / policy.programmes)
    if results is not None:
        for name, values in results().columns().items():
            rows.add(f"job.{name}", values, np.arange(values.size))
    return rows


def _of_comparator(spec: RunSpec) -> Rows:
    instance, rows = spec.source.instance(spec.seed), Rows()
    found: Comparator = instance.comparator(spec.label, spec.slots, spec.seed, spec.optimum_slots)
    if found.slots.size == spec.slots:
        _series(rows, {"reward": found.rewards}, checkpoint_slots(spec.slots, spec.points))
    else:
        rows.add("reward.mean", found.rewards.mean())
    if spec.every_slot or found.slots.size < spec.slots:
        rows.add("reward.slot", found.rewards, found.slots)
    rows.add("gap", found.gap)
    for bound, value in found.bounds.items():
        rows.add(f"bound.{bound}", value)
    return rows


def _series(rows: Rows, columns: Mapping[str, Floats], played: Iterable[int]) -> None:
    at = np.asarray(played)
    for name, column in columns.items():
        so_far = np.cumsum(column)
        rows.add(f"{name}.mean", column.mean())
        rows.add(f"{name}.total", column.sum())
        rows.add(f"{name}.cumulative", so_far[at - 1], at)


def played_run(
    rows: Rows, label: str, seed: int, about: Mapping[str, Any], draw: Callable[[], Instance]
) -> Run:
    """A stored run with every slot as :func:`gangwise.simulate` had returned it."""
    columns = {n: v for n, (_, v) in rows.columns().items() if n.endswith(".slot")}
    named = {n.removesuffix(".slot"): v for n, v in columns.items()}
    rewards, nanoseconds = named.pop("reward"), named.pop("nanoseconds").astype(np.int64)
    told = about.get("configuration") or {}
    return Run(label, told, seed, draw, rewards, named, nanoseconds)


def stored_comparator(rows: Rows, label: str) -> Comparator:
    """A stored comparator as :meth:`gangwise.Instance.comparator` had returned it."""
    columns = rows.columns()
    slots, rewards = columns["reward.slot"]
    bounds = {
        n.removeprefix("bound."): v for n, (_, v) in columns.items() if n.startswith("bound.")
    }
    return Comparator(
        label,
        slots,
        rewards,
        float(columns["gap"][1][0]),
        {n: float(v[0]) for n, v in bounds.items()},
    )
