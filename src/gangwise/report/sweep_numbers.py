"""The numbers of a sweep as its report needs them, read from the runs once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from gangwise.core.errors import StoreError
from gangwise.experiments.results import Results
from gangwise.experiments.statistics import Estimate, estimate
from gangwise.report.palette import COLOURS

Cell = tuple[Any, ...]
"""Values of the settings that vary, in the order of ``Results.cells``."""

Of = Mapping[tuple[Cell, str], Estimate]
"""An estimate over seeds for each cell and policy."""


def cell_text(names: Sequence[str], cell: Cell) -> str:
    """A cell in words.

    >>> cell_text(["contention"], (5,)), cell_text([], ())
    ('contention = 5', 'all')
    """
    return ", ".join(f"{name} = {value}" for name, value in zip(names, cell)) or "all"


@dataclass(frozen=True, eq=False)
class SweepNumbers:
    """Estimates of everything that runs have a single number of.

    Parameters
    ----------
    results : Results
        With one finished run at least.
    """

    results: Results

    @cached_property
    def _single(self) -> dict[str, dict[tuple[Cell, str], Estimate]]:
        import polars as pl

        rows = self.results.rows().filter(pl.col("at").is_null()).collect()
        by = ["metric", *self.results.cells, "policy"]
        found: dict[str, dict[tuple[Cell, str], Estimate]] = {}
        for group, part in rows.group_by(by, maintain_order=True):
            of = found.setdefault(group[0], {})
            of[group[1:-1], group[-1]] = estimate(part["value"].to_numpy())
        return found

    @property
    def cells(self) -> list[Cell]:
        """The cells in which a policy has a finished run, in the order of the experiment."""
        return list(dict.fromkeys(cell for cell, _ in self.of("reward.mean", True)))

    def of(self, metric: str, policies: bool = False) -> Of:
        """A metric in each cell, of each policy and comparator, or of the policies only."""
        found = self._single.get(metric, {})
        known = set(self.results.policies)
        return {at: e for at, e in found.items() if not policies or at[1] in known}

    @property
    def metrics(self) -> list[str]:
        """Metrics of the environment: those with a mean per slot, but for the reward."""
        means = (name.removesuffix(".mean") for name in self._single if name.endswith(".mean"))
        return [name for name in means if name != "reward"]

    def bounds(self, comparator: str) -> dict[str, Of]:
        """Theoretical bounds on the regret against a comparator, by name."""
        return {
            name.removeprefix("bound."): {at: e for at, e in of.items() if at[1] == comparator}
            for name, of in self._single.items()
            if name.startswith("bound.") and any(policy == comparator for _, policy in of)
        }

    def ranking(self, cell: Cell) -> list[str]:
        """Policies of a cell, best first."""
        of = {
            policy: e.mean for (at, policy), e in self.of("reward.mean", True).items() if at == cell
        }
        return sorted(of, key=lambda policy: -of[policy])

    @cached_property
    def drawn(self) -> list[str]:
        """The policies that figures show: all, or the best by their mean place if there are many.

        In the order of the experiment.
        """
        policies = self.results.policies
        if len(policies) <= len(COLOURS):
            return policies
        places: dict[str, list[int]] = {policy: [] for policy in policies}
        for cell in self.cells:
            for place, policy in enumerate(self.ranking(cell)):
                places[policy].append(place)
        mean = {p: sum(seen) / len(seen) for p, seen in places.items() if seen}
        best = sorted(mean, key=lambda policy: mean[policy])[: len(COLOURS)]
        return [policy for policy in policies if policy in best]

    @cache  # noqa: B019 - lives as long as one report
    def over(self, base: str) -> dict[tuple[Cell, str], Mapping[str, Any]]:
        """Rows of :meth:`Results.improvements` over a policy, by cell and policy."""
        frame = self.results.improvements(base)
        return {
            (tuple(row[name] for name in self.results.cells), row["policy"]): row
            for row in frame.iter_rows(named=True)
        }

    @cache  # noqa: B019 - lives as long as one report
    def against(self, comparator: str) -> tuple[Of, Of]:
        """Regret and share of the comparator's reward, each by cell and policy.

        Raises
        ------
        StoreError
            When runs of the comparator are missing.
        """
        by = [*self.results.cells, "policy"]
        regret: dict[tuple[Cell, str], Estimate] = {}
        share: dict[tuple[Cell, str], Estimate] = {}
        frame = self.results.against(comparator)
        for group, part in frame.group_by(by, maintain_order=True):
            at = (group[:-1], str(group[-1]))
            regret[at] = estimate(part["regret"].to_numpy())
            if not part["share"].has_nulls():
                share[at] = estimate(part["share"].to_numpy())
        return regret, share

    @cached_property
    def _about(self) -> dict[str, Mapping[str, Any]]:
        """Columns of the first run of each label that say what was run."""
        found: dict[str, Mapping[str, Any]] = {}
        names = ("scenario", "settings", "policy", "configuration", "version")
        for run in self.results.runs:
            if run["label"] not in found:
                frame = self.results.store.read(run["key"])
                if frame is None:
                    raise StoreError(f"run {run['key']} cannot be read; sweep again")
                found[run["label"]] = dict(zip(names, frame.select(*names).row(0)))
        return found

    def configuration(self, policy: str) -> tuple[str, Mapping[str, Any]]:
        """The class of a policy, and its arguments."""
        about = self._about[policy]
        return str(about["policy"]), json.loads(about["configuration"]) or {}

    def scenario(self) -> tuple[str, Mapping[str, Any]]:
        """Name and settings of the scenario; what varies between cells is said to."""
        about = next(iter(self._about.values()))
        settings = json.loads(about["settings"])
        if "slots" in settings:  # what was played counts
            played = sorted({run["slots"] for run in self.results.runs})
            settings["slots"] = played[0] if len(played) == 1 else played
        varied = {
            name: list(dict.fromkeys(cell[i] for cell in self.cells))
            for i, name in enumerate(self.results.cells)
        }
        return str(about["scenario"]), {
            key: f"varies: {', '.join(map(str, varied[key]))}" if key in varied else value
            for key, value in settings.items()
        }

    @property
    def run_versions(self) -> list[str]:
        """Versions of gangwise that the runs were made with."""
        return sorted({str(about["version"]) for about in self._about.values()})
