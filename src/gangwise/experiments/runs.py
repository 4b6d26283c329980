"""One run of an experiment: what defines it, and its key."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import gangwise
from gangwise.core.contracts import Instance, Policy, Scenario, configuration
from gangwise.core.errors import ScenarioError
from gangwise.core.registry import create

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
                "policy": f"{kind.__module__}.{kind.__qualname__}",
                "configuration": plain(configuration(self.policy)),
            }
        return {
            "version": gangwise.__version__,
            "scenario": scenario.name,
            "settings": plain(described),
            "slots": self.slots,
            "seed": self.seed,
            "optimum_slots": self.optimum_slots,
            "points": self.points,
            **what,
        }

    def key(self) -> str:
        """Content hash of what defines the run."""
        text = json.dumps(self.identity(), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def __str__(self) -> str:
        cell = "".join(f", {key} = {value}" for key, value in self.cell.items())
        return f"{self.label}{cell}, seed {self.seed}"


def plain(value: Any) -> Any:
    """A value as JSON has it, the same in every process."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"type": type(value).__qualname__, **fields}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    name = getattr(value, "__qualname__", None)
    if name is not None and "<" not in name:
        return f"{value.__module__}.{name}"
    raise ScenarioError(
        f"{value!r} cannot be part of what defines a run: it has no lasting name; use numbers, "
        "text, dataclasses of them, or functions of a module"
    )
