"""One run of an experiment: what defines it, and its key.

What a run leaves behind: tidy rows of numbers.

=====================  ====================  ==============================================
metric                 at                    value
=====================  ====================  ==============================================
reward.mean            null                  mean per slot; so for every metric
reward.total           null                  sum over the slots; so for every metric
reward.cumulative      slots played          sum so far; so for every metric
reward.slot            slot                  reward of the slot, at ``optimum_slots`` evenly
                                             spaced slots (of a comparator: at its slots)
job.cost …             job, as they left     what became of each job, where the environment
                                             keeps ``results()`` (approximation jobs)
us_per_slot, seconds   null                  policy time per slot; time of the whole run
gap                    null                  comparator: its proven gap, summed over its slots
bound.…                null                  comparator: theoretical bounds on the regret
=====================  ====================  ==============================================

Everything but the two timings is a function of what defines the run, see
:meth:`gangwise.experiments.runs.RunSpec.identity`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

import gangwise
from gangwise.core.arrays import Floats, Ints
from gangwise.core.contracts import Comparator, Instance, Policy, Scenario, clone, configuration
from gangwise.core.errors import ScenarioError
from gangwise.core.identity import identify, key_of, plain
from gangwise.core.registry import create, entries, parse
from gangwise.core.simulation import Simulation

PATHS = ("folder", "path")
"""Settings that say where the files of a trace are; their digests say which they are."""


@dataclass(frozen=True)
class Source:
    """Where instances come from: a scenario or a trace, with settings as JSON text."""

    name: str
    trace: bool
    settings: str

    @classmethod
    def of(cls, name: str, trace: bool, settings: Mapping[str, Any]) -> Source:
        """Settings must be of the kind that TOML can say."""
        try:
            return cls(name, trace, json.dumps(dict(settings)))
        except TypeError as error:
            raise ScenarioError(f"settings of {name}: {error}; use numbers, text, lists") from error

    def scenario(self) -> Scenario:
        """The scenario; each process keeps the last few, so that traces are read once."""
        return _scenario(self)

    def made_by(self) -> list[str]:
        """Identities of the scenario's class and of what its name is registered for."""
        made = [identify(type(self.scenario()), "scenario")]
        entry = entries("scenario").get(parse(self.name)[0])
        return made if entry is None else [*made, identify(entry.load(), "scenario")]

    def instance(self, seed: int) -> Instance:
        """The instance of a seed; each process keeps the last one."""
        return _instance(self, seed)


@lru_cache(maxsize=16)
def _scenario(source: Source) -> Scenario:
    settings = json.loads(source.settings)
    if source.trace:
        from gangwise.traces.slots.opening import open_trace

        return open_trace(source.name, **settings)
    if source.name.endswith(".toml"):
        from gangwise.scenarios.files import read_scenario

        return read_scenario(source.name, settings)
    scenario: Scenario = create("scenario", source.name, **settings)
    return scenario


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
    """

    source: Source
    cell: Mapping[str, Any]
    seed: int
    slots: int
    optimum_slots: int | None = 200
    points: int = 150
    label: str = ""
    policy: Policy[Any, Any, Any] | None = None

    def identity(self) -> dict[str, Any]:
        """All that defines the run; where the files of a trace are is not part of it."""
        scenario = self.source.scenario()
        described = dict(scenario.describe())
        if described.get("files"):
            described = {k: v for k, v in described.items() if k not in PATHS}
        what: Any = {"comparator": self.label}
        if self.policy is not None:
            kind = type(self.policy)
            family = getattr(self.policy, "family", scenario.family)
            if family != scenario.family:
                raise ScenarioError(
                    f"policy {self.label!r} is for the family {family}; scenario "
                    f"{scenario.name!r} is of the family {scenario.family}"
                )
            what = {
                "policy": identify(kind, "policy"),
                "configuration": plain(configuration(self.policy)),
            }
        return {
            "version": gangwise.__version__,
            "scenario": scenario.name,
            "made_by": self.source.made_by(),
            "settings": plain(described),
            "slots": self.slots,
            "seed": self.seed,
            "optimum_slots": self.optimum_slots,
            "points": self.points,
            **what,
        }

    def key(self) -> str:
        """Content hash of what defines the run."""
        return key_of(self.identity())

    def __str__(self) -> str:
        cell = "".join(f", {key} = {value}" for key, value in self.cell.items())
        return f"{self.label}{cell}, seed {self.seed}"


TIMINGS = ("us_per_slot", "seconds")
"""The metrics that differ from one execution of a run to the next."""


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


def checkpoint_slots(slots: int, points: int) -> Ints:
    """Numbers of slots played at which curves are recorded, ascending; the last is ``slots``.

    >>> checkpoint_slots(100, 8).tolist()
    [1, 5, 22, 34, 67, 100]
    """
    even = np.linspace(1, slots, points - points // 2)
    logarithmic = np.geomspace(1, slots, points // 2)
    found = np.concatenate([even, logarithmic, [slots]])
    return np.unique(found.round().astype(np.int64))


def measure(spec: RunSpec) -> Rows:
    """Play a run, or evaluate a comparator."""
    begin = time.perf_counter()
    rows = _of_comparator(spec) if spec.policy is None else _of_policy(spec, clone(spec.policy))
    rows.add("seconds", time.perf_counter() - begin)
    return rows


def _of_policy(spec: RunSpec, policy: Policy[Any, Any, Any]) -> Rows:
    instance = spec.source.instance(spec.seed)
    simulation = Simulation(instance, policy, spec.slots, spec.seed, spec.label)
    run, rows = simulation.run(), Rows()
    played = checkpoint_slots(spec.slots, spec.points)
    _series(rows, {"reward": run.rewards, **run.metrics}, played)
    some = min(spec.slots, spec.optimum_slots or spec.slots)
    slots = np.unique(np.linspace(0, spec.slots - 1, some).round().astype(np.int64))
    rows.add("reward.slot", run.rewards[slots], slots)
    rows.add("us_per_slot", run.us_per_slot)
    results = getattr(simulation.environment, "results", None)
    if results is not None:
        for column, values in results().columns().items():
            rows.add(f"job.{column}", values, np.arange(values.size))
    return rows


def _of_comparator(spec: RunSpec) -> Rows:
    instance, rows = spec.source.instance(spec.seed), Rows()
    found: Comparator = instance.comparator(spec.label, spec.slots, spec.seed, spec.optimum_slots)
    if found.slots.size == spec.slots:
        played = checkpoint_slots(spec.slots, spec.points)
        _series(rows, {"reward": found.rewards}, played)
    else:
        rows.add("reward.mean", found.rewards.mean())
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
