"""Comparisons made by hand, so that every number of a report can be computed on paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gangwise.study.compare import Comparison
from gangwise.study.results import Results
from gangwise.study.runs import MemoryStore, Rows


class MadeScenario:
    family = "made_family"

    def __init__(self, name: str = "made-v1", slots: int = 4, settings: Any = None):
        self.name, self.slots, self.settings = name, slots, settings or {"servers": 2}

    def describe(self) -> dict[str, Any]:
        return self.settings

    def instance(self, seed: int) -> Any:
        raise NotImplementedError


def made(
    rewards: Mapping[str, Sequence[Sequence[float]]],
    comparators: Mapping[str, tuple[Sequence[int], Sequence[Sequence[float]]]] | None = None,
    scenario: MadeScenario | None = None,
    configuration: Mapping[str, Any] | None = None,
    bounds: Mapping[str, float] | None = None,
) -> Comparison:
    """A comparison from rewards per policy, seed and slot; comparators with their slots."""
    seeds = range(len(next(iter(rewards.values()))))
    slots = len(next(iter(rewards.values()))[0])
    scenario = scenario or MadeScenario(slots=slots)
    store, runs = MemoryStore(), []

    def add(label: str, seed: int, rows: Rows, **what: Any) -> None:
        key = f"{next(iter(what))}-{label}-{seed}"
        about = {"scenario": scenario.name, "family": scenario.family, "version": "0.0.7"}
        about |= {"settings": scenario.settings, "seed": seed, "slots": slots, **what}
        store.write(key, about, rows)
        runs.append({"key": key, "cell": {}, "label": label, "comparator": "comparator" in what})
        runs[-1] |= {"seed": seed, "slots": slots}

    for seed in seeds:
        for policy, each in rewards.items():
            rows, column = Rows(), np.array(each[seed], float)
            rows.add("reward.mean", column.mean())
            rows.add("reward.total", column.sum())
            rows.add("reward.slot", column, np.arange(slots))
            rows.add("nanoseconds.slot", np.full(slots, 12_000.0), np.arange(slots))
            rows.add("us_per_slot", 12.0)
            add(policy, seed, rows, policy="made.Policy", configuration=configuration or {})
        for name, (at, each) in (comparators or {}).items():
            rows, column = Rows(), np.array(each[seed], float)
            rows.add("reward.mean", column.mean())
            rows.add("reward.slot", column, np.array(at))
            rows.add("gap", 0.0)
            for bound, value in (bounds or {}).items():
                rows.add(f"bound.{bound}", value)
            add(name, seed, rows, comparator=name)
    asked = {"name": "comparison", "every_slot": True, "seeds": list(seeds), "slots": slots}
    store.write_plan("comparison", {"experiment": asked, "runs": runs})
    return Comparison(Results.open(store), scenario)
