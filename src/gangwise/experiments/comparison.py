"""A comparison of policies: its table, its frame of all slots, its files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import gangwise
from gangwise.core.contracts import Comparator, Scenario
from gangwise.core.errors import StoreError
from gangwise.core.simulation import Run
from gangwise.experiments.statistics import Estimate, mean_and_interval

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Row:
    """One policy in the table of a comparison; estimates are over seeds.

    Attributes
    ----------
    reward : Estimate
        Average reward per slot.
    over : mapping of str to Estimate
        Paired improvement over each other policy, in per cent; absent where the other's reward is
        not positive, since a percentage then says nothing.
    share_of : mapping of str to Estimate
        Share of each comparator's reward, on the comparator's slots.
    regret : mapping of str to Estimate
        Total regret against each comparator; signed.
    metrics : mapping of str to Estimate
        Averages of what the environment measures.
    us_per_slot : float
        Policy time per slot in microseconds.
    """

    policy: str
    reward: Estimate
    over: Mapping[str, Estimate]
    share_of: Mapping[str, Estimate]
    regret: Mapping[str, Estimate]
    metrics: Mapping[str, Estimate]
    us_per_slot: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs of several policies over several seeds, and the comparators of each seed.

    Attributes
    ----------
    scenario : Scenario
    slots : int
    seeds : tuple of int
    runs : mapping of (policy, seed) to Run
    comparators : mapping of (comparator, seed) to Comparator
    """

    scenario: Scenario
    slots: int
    seeds: tuple[int, ...]
    policies: tuple[str, ...]
    runs: Mapping[tuple[str, int], Run]
    comparators: Mapping[tuple[str, int], Comparator] = field(default_factory=dict)

    @property
    def comparator_names(self) -> tuple[str, ...]:
        """The comparators that were evaluated."""
        return tuple(dict.fromkeys(name for name, _ in self.comparators))

    @cached_property
    def _rewards(self) -> dict[str, Any]:
        return {
            p: np.array([self.runs[p, s].mean_reward for s in self.seeds]) for p in self.policies
        }

    def table(self) -> list[Row]:
        """One row for each policy, best first."""
        rows = [self._row(policy) for policy in self.policies]
        return sorted(rows, key=lambda row: -row.reward.mean)

    def _row(self, policy: str) -> Row:
        runs = [self.runs[policy, s] for s in self.seeds]
        over = {
            other: mean_and_interval(100 * (self._rewards[policy] / self._rewards[other] - 1))
            for other in self.policies
            if other != policy and (self._rewards[other] > 0).all()
        }
        share, regret = {}, {}
        for name in self.comparator_names:
            versus = [self.comparators[name, s] for s in self.seeds]
            share[name] = mean_and_interval([r.share_of(c) for r, c in zip(runs, versus)])
            regret[name] = mean_and_interval([r.regret(c) for r, c in zip(runs, versus)])
        metrics = {
            name: mean_and_interval([float(run.metrics[name].mean()) for run in runs])
            for name in runs[0].metrics
        }
        return Row(
            policy,
            mean_and_interval(self._rewards[policy]),
            over,
            share,
            regret,
            metrics,
            float(np.mean([run.us_per_slot for run in runs])),
        )

    def comparator_reward(self, name: str) -> Estimate:
        """Average reward per slot of a comparator."""
        return mean_and_interval(
            [float(self.comparators[name, s].rewards.mean()) for s in self.seeds]
        )

    def bounds(self, name: str) -> dict[str, Estimate]:
        """Theoretical bounds on the total regret against a comparator."""
        found = [self.comparators[name, s].bounds for s in self.seeds]
        return {b: mean_and_interval([each[b] for each in found]) for b in found[0]}

    def gap(self, name: str) -> float:
        """The largest proven gap of a comparator over the seeds, relative to its total."""
        each = [self.comparators[name, s] for s in self.seeds]
        return max(c.gap / max(abs(float(c.rewards.sum())), 1e-300) for c in each)

    def as_dict(self) -> dict[str, Any]:
        """What ``--json`` prints; the same keys for every problem family.

        ``share_of_optimum`` is the share of the last comparator, the strongest one of the family;
        regret is the mean over seeds. An interval needs two seeds: with one it is null.
        """
        optimum = self.comparator_names[-1] if self.comparators else None
        policies = [
            {
                "name": row.policy,
                "mean_reward": row.reward.mean,
                "ci95": [row.reward.low, row.reward.high],
                "share_of_optimum": _finite(row.share_of[optimum].mean) if optimum else None,
                "regret": {name: _finite(e.mean) for name, e in row.regret.items()},
                "us_per_slot": row.us_per_slot,
                "metrics": {name: _finite(e.mean) for name, e in row.metrics.items()},
            }
            for row in self.table()
        ]
        comparators = [
            {
                "name": name,
                "mean_reward": self.comparator_reward(name).mean,
                "relative_gap": self.gap(name),
                "slots_evaluated": int(self.comparators[name, self.seeds[0]].slots.size),
                "regret_bounds": {b: e.mean for b, e in self.bounds(name).items()},
            }
            for name in self.comparator_names
        ]
        return {
            "scenario": self.scenario.name,
            "family": self.scenario.family,
            "slots": self.slots,
            "seeds": list(self.seeds),
            "policies": policies,
            "comparators": comparators,
            "version": gangwise.__version__,
        }

    def frame(self) -> pl.DataFrame:
        """Per-slot rewards and metrics of all runs, tidy: one row per policy, seed and slot."""
        import polars as pl

        parts = []
        for (policy, seed), run in self.runs.items():
            columns = {"reward": run.rewards, **run.metrics}
            parts.append(
                pl.DataFrame({"slot": np.arange(run.slots), **columns}).select(
                    pl.lit(policy).alias("policy"), pl.lit(seed).alias("seed"), pl.all()
                )
            )
        return pl.concat(parts)

    def write(self, directory: Path | str, command: str = "") -> list[Path]:
        """Write ``rewards.parquet``, ``summary.json``, the figures and ``report.html``.

        Returns
        -------
        list of Path
            The files written.
        """
        from gangwise.report.figures import draw
        from gangwise.report.html import write_html

        directory = Path(directory)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self.frame().write_parquet(directory / "rewards.parquet")
            (directory / "summary.json").write_text(
                json.dumps(self.as_dict(), indent=2, allow_nan=False) + "\n"
            )
            figures = draw(self, directory)
            report = write_html(self, directory / "report.html", figures, command)
        except OSError as error:
            raise StoreError(f"cannot write results to {directory}: {error}") from error
        return [directory / "rewards.parquet", directory / "summary.json", *figures, report]


def _finite(value: float) -> float | None:
    """JSON has no word for not-a-number; null says that there is no such number."""
    return value if math.isfinite(value) else None
