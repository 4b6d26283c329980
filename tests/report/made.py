"""Comparisons made by hand, so that every number of a report can be computed on paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gangwise.core.contracts import Comparator
from gangwise.core.simulation import Run
from gangwise.experiments.compare import Comparison


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
    seeds = tuple(range(len(next(iter(rewards.values())))))
    slots = len(next(iter(rewards.values()))[0])
    runs = {
        (policy, seed): Run(
            policy,
            configuration or {},
            seed,
            None,
            np.array(each[seed], float),  # type: ignore[arg-type]  # reports use no instance
            {},
            np.full(slots, 12_000),
        )
        for policy, each in rewards.items()
        for seed in seeds
    }
    judged = {
        (name, seed): Comparator(name, np.array(at), np.array(each[seed], float), 0.0, bounds or {})
        for name, (at, each) in (comparators or {}).items()
        for seed in seeds
    }
    return Comparison(
        scenario or MadeScenario(slots=slots), slots, seeds, tuple(rewards), runs, judged
    )
