"""What a run leaves behind: per-slot rows, summaries, and regret with a name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gangwise.core.environment import Comparator, Instance
from gangwise.core.errors import UnknownName

__all__ = ["Run"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Run:
    """One policy on one instance.

    Attributes
    ----------
    policy : str
        Name that the policy goes by in this run.
    configuration : mapping
        The policy's constructor arguments.
    seed : int
    instance : Instance
    rewards : ndarray of float64, shape [T]
        Reward of each slot.
    metrics : mapping of str to ndarray of float64, shape [T]
        What the environment measured in each slot.
    nanoseconds : ndarray of int64, shape [T]
        Time that the policy took to decide and learn in each slot.
    """

    policy: str
    configuration: Mapping[str, Any]
    seed: int
    instance: Instance
    rewards: Floats
    metrics: Mapping[str, Floats]
    nanoseconds: npt.NDArray[np.int64]

    @property
    def slots(self) -> int:
        """How many slots were played."""
        return int(self.rewards.size)

    @property
    def mean_reward(self) -> float:
        """Average reward per slot."""
        return float(self.rewards.mean())

    @property
    def us_per_slot(self) -> float:
        """Policy time per slot in microseconds; the first slot, which loads kernels, is left out.

        A run of a single slot has only that one to report.
        """
        return float(self.nanoseconds[1:].mean() if self.slots > 1 else self.nanoseconds[0]) / 1e3

    def rows(self) -> Iterator[dict[str, Any]]:
        """Plain per-slot rows, for the dataframe of your choice."""
        columns = {"reward": self.rewards, **self.metrics}
        for t in range(self.slots):
            row: dict[str, Any] = {"policy": self.policy, "seed": self.seed, "slot": t}
            row.update((name, float(column[t])) for name, column in columns.items())
            yield row

    def summary(self) -> dict[str, Any]:
        """Totals and averages of the run."""
        return {
            "policy": self.policy,
            "seed": self.seed,
            "slots": self.slots,
            "mean_reward": self.mean_reward,
            "us_per_slot": self.us_per_slot,
            **{name: float(column.mean()) for name, column in self.metrics.items()},
        }

    def comparator(self, versus: str | Comparator, sample: int | None = None) -> Comparator:
        """The named comparator on the slots of this run."""
        if isinstance(versus, Comparator):
            return versus
        known = list(self.instance.comparators)
        if versus not in known:
            raise UnknownName("comparator", versus, known)
        return self.instance.comparator(versus, self.slots, self.seed, sample)

    def regret(self, versus: str | Comparator = "best_fixed", sample: int | None = None) -> float:
        """Comparator's total reward minus the policy's, signed and never clamped.

        Where the comparator was evaluated on a sample of the slots, the mean difference on these
        slots is scaled to all of them.
        """
        comparator = self.comparator(versus, sample)
        difference = comparator.rewards - self.rewards[comparator.slots]
        return float(difference.mean() * self.slots)

    def regret_curve(self, versus: str | Comparator = "best_fixed") -> Floats:
        """Cumulative regret at the comparator's slots, shape [n]."""
        comparator = self.comparator(versus)
        return np.cumsum(comparator.rewards - self.rewards[comparator.slots])

    def share_of(self, versus: str | Comparator) -> float:
        """The policy's reward as a share of the comparator's, on the comparator's slots."""
        comparator = self.comparator(versus)
        total = float(comparator.rewards.sum())
        return float(self.rewards[comparator.slots].sum()) / total if total else float("nan")
