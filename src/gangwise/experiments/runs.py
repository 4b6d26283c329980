"""One run of an experiment: what defines it, and its key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import gangwise
from gangwise.core.contracts import Instance, Policy, Scenario, configuration
from gangwise.core.errors import ScenarioError
from gangwise.core.identity import identify, key_of, plain
from gangwise.core.registry import create, entries, parse

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
        from gangwise.traces import open_trace

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
