"""The numbers of an experiment, read from its runs once, and sentences about them.

A comparison is an experiment of one cell that keeps every slot; its tables, figures and sentences
are those of any other experiment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import StoreError
from gangwise.experiments.results import Results
from gangwise.experiments.statistics import (
    Estimate,
    count,
    decimals_for,
    estimate_text,
    mean_and_interval,
    number,
    small_share,
    turned,
)
from gangwise.report.plotting import COLOURS
from gangwise.report.tables import NONE
from gangwise.report.words import in_words, words

Place = tuple[Any, ...]
"""Values of the settings that vary, in the order of ``Results.cells``."""

At = tuple[Place, str]
"""A cell, and a policy or comparator."""

Of = Mapping[At, Estimate]
"""An estimate over seeds for each cell and policy."""


def cell_text(names: Sequence[str], cell: Place) -> str:
    """A cell in words.

    >>> cell_text(["contention"], (5,)), cell_text([], ())
    ('contention = 5', 'all')
    """
    return ", ".join(f"{name} = {value}" for name, value in zip(names, cell)) or "all"


class Path(NamedTuple):
    """What a run earned along its slots: where, and how much, by the name of the metric."""

    slots: int
    columns: dict[str, tuple[Ints, Floats]]

    def sums(self) -> tuple[Ints, Floats] | None:
        """Slots played, and the reward so far; None where only some of the slots are known."""
        at, rewards = self.columns.get("reward.slot", (None, None))
        if at is not None and rewards is not None and at.size == self.slots:
            return np.sort(at) + 1, np.cumsum(rewards[np.argsort(at, kind="stable")])
        return self.columns.get("reward.cumulative")


@dataclass(frozen=True, eq=False)
class Numbers:
    """Estimates over seeds of every number of the runs; at least one run is finished."""

    results: Results

    @cached_property
    def _single(self) -> dict[str, dict[At, Estimate]]:
        rows = self.results.rows().filter(pl.col("at").is_null()).collect()
        by = ["metric", *self.results.cells, "policy"]
        found: dict[str, dict[At, Estimate]] = {}
        for group, part in rows.group_by(by, maintain_order=True):
            of = found.setdefault(group[0], {})
            of[group[1:-1], group[-1]] = mean_and_interval(part["value"].to_numpy())
        return found

    @property
    def objective(self) -> str:
        return self.results.objective

    @property
    def ranked_by(self) -> str:
        return in_words(self.objective)

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(run["seed"] for run in self.results.runs))

    @cached_property
    def slots(self) -> int:
        return max(int(run["slots"]) for run in self.results.runs)

    @property
    def thinking(self) -> tuple[str, str]:
        """The metric of the time that deciding takes, in microseconds, and its heading."""
        if self.results.slotwise:
            return "us_per_slot", "µs per\nslot"
        return "microseconds per decision", "µs per\ndecision"

    @property
    def verb(self) -> str:
        if self.objective == "reward.mean":
            return "earned most"
        return f"has the {'least' if self.results.minimise else 'most'} {self.objective}"

    @property
    def measured(self) -> str:
        """What stands behind a value of the objective; empty where runs have no slots."""
        return " per slot" if self.objective == "reward.mean" else ""

    @property
    def deciders(self) -> tuple[str, str]:
        """What those that decide are called: one, and many."""
        jobs = self.family == "jobs"
        return ("scheduler", "schedulers") if jobs else ("policy", "policies")

    @property
    def family(self) -> str:
        return str(next(iter(self._about.values()))["family"])

    @property
    def cells(self) -> list[Place]:
        """The cells in which a policy has a finished run, in the order of the experiment."""
        return list(dict.fromkeys(cell for cell, _ in self.of(self.objective, True)))

    def of(self, metric: str, policies: bool = False) -> Of:
        """A metric in each cell, of each policy and comparator, or of the policies only."""
        found = self._single.get(metric, {})
        known = set(self.results.policies)
        return {at: e for at, e in found.items() if not policies or at[1] in known}

    @cached_property
    def at(self) -> list[At]:
        return [(cell, policy) for cell in self.cells for policy in self.ranking(cell)]

    def bounds(self, comparator: str) -> dict[str, Of]:
        """Theoretical bounds on the regret against a comparator, by name."""
        return {
            name.removeprefix("bound."): {at: e for at, e in of.items() if at[1] == comparator}
            for name, of in self._single.items()
            if name.startswith("bound.") and any(policy == comparator for _, policy in of)
        }

    def ranking(self, cell: Place) -> list[str]:
        of = {
            policy: e.mean
            for (at, policy), e in self.of(self.objective, True).items()
            if at == cell
        }
        sign = 1 if self.results.minimise else -1
        return sorted(of, key=lambda policy: sign * of[policy])

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
    def over(self, base: str) -> dict[At, Mapping[str, Any]]:
        frame = self.results.improvements(base)
        return {
            (tuple(row[name] for name in self.results.cells), row["policy"]): row
            for row in frame.iter_rows(named=True)
        }

    def lead(self, base: str, at: At) -> Estimate:
        """How much more than another a policy earned, in per cent where that says something."""
        row = self.over(base).get(at)
        return Estimate.of(row) if row and row["percent"] else NONE

    def better(self, cell: Place, best: str, other: str) -> Mapping[str, Any] | None:
        """The row of :meth:`over` that says how much better one policy is: positive is better."""
        row = self.over(other).get((cell, best))
        return turned(row) if row is not None and self.results.minimise else row

    def share(self, cell: Place, policy: str, comparator: str) -> Estimate | None:
        """Share of a comparator's reward, where it says something: it earned in every seed."""
        try:
            return self.against(comparator)[1].get((cell, policy))
        except StoreError:
            return None

    def evaluated(self, cell: Place, comparator: str) -> tuple[int, int]:
        """On how many slots a comparator was evaluated, and how many there are."""
        each = self.paths[cell, comparator].values()
        sizes = [
            path.columns["reward.slot"][0].size if "reward.slot" in path.columns else path.slots
            for path in each
        ]
        return max(sizes), max(path.slots for path in each)

    @cached_property
    def gaps(self) -> Mapping[At, float]:
        """The largest proven gap of each comparator over the seeds, relative to its reward."""
        on = [*self.results.cells, "policy", "seed"]
        rows = self.results.rows().filter(pl.col("comparator") & pl.col("at").is_null())
        both = rows.filter(pl.col("metric").is_in(["gap", "reward.mean"])).collect()
        found: dict[At, float] = {}
        for (*cell, name, _), part in both.group_by(on, maintain_order=True):
            at, of = (tuple(cell), str(name)), dict(part.select("metric", "value").iter_rows())
            total = abs(of["reward.mean"]) * self.evaluated(*at)[0]
            found[at] = max(found.get(at, 0.0), of.get("gap", 0.0) / max(total, 1e-300))
        return found

    @cache  # noqa: B019 - lives as long as one report
    def against(self, comparator: str) -> tuple[Of, Of]:
        """Regret and share of the comparator's reward, each by cell and policy.

        The share stands where it says something: the comparator earned in every seed. StoreError
        when runs of the comparator are missing.
        """
        by = [*self.results.cells, "policy"]
        regret: dict[At, Estimate] = {}
        share: dict[At, Estimate] = {}
        frame = self.results.against(comparator)
        for group, part in frame.group_by(by, maintain_order=True):
            at = (group[:-1], str(group[-1]))
            regret[at] = mean_and_interval(part["regret"].to_numpy())
            if not part["share"].has_nulls():
                share[at] = mean_and_interval(part["share"].to_numpy())
        return regret, share

    @cached_property
    def paths(self) -> Mapping[At, Mapping[int, Path]]:
        """Rewards of slots, and sums so far, of each cell and label by seed."""
        wanted = pl.col("metric").is_in(["reward.slot", "reward.cumulative"])
        rows = self.results.rows().filter(wanted).collect()
        found: dict[At, dict[int, Path]] = {}
        by = [*self.results.cells, "policy", "seed", "slots", "metric"]
        for (*cell, label, seed, slots, metric), part in rows.group_by(by, maintain_order=True):
            each = found.setdefault((tuple(cell), str(label)), {})
            path = each.setdefault(int(seed), Path(int(slots), {}))
            path.columns[str(metric)] = (part["at"].to_numpy(), part["value"].to_numpy())
        return found

    @cached_property
    def _about(self) -> dict[str, Mapping[str, Any]]:
        """What the first run of each label is."""
        found: dict[str, Mapping[str, Any]] = {}
        for run in self.results.runs:
            if run["label"] not in found:
                found[run["label"]] = self.results.store.about(run["key"])
        return found

    def configuration(self, policy: str) -> tuple[str, Mapping[str, Any]]:
        about = self._about[policy]
        return str(about["policy"]), about["configuration"] or {}

    def scenario(self) -> tuple[str, Mapping[str, Any]]:
        """Name and settings of the scenario; what varies between cells is said to."""
        about = next(iter(self._about.values()))
        settings = dict(about["settings"])
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
        return sorted({str(about["version"]) for about in self._about.values()})


def plain(comparator: str) -> str:
    return str(words("comparators").get(comparator, {"plain": comparator})["plain"])


def byline(numbers: Numbers) -> str:
    results = numbers.results
    slots = sorted({run["slots"] for run in results.runs})
    parts = [numbers.scenario()[0], count(len(results.policies), *numbers.deciders)]
    if results.cells:
        parts.append(count(len(numbers.cells), "cell"))
    parts.append(count(len(numbers.seeds), "seed"))
    if results.slotwise:
        least = f"{slots[0]:,} to " if len(slots) > 1 else ""
        parts.append(f"{least}{slots[-1]:,} slots")
    parts += [f"family {numbers.family}", f"gangwise {', '.join(numbers.run_versions)}"]
    return ", ".join(parts)


def interval_text(numbers: Numbers) -> str:
    if len(numbers.seeds) == 1:
        return "One seed: no confidence interval."
    return f"± is half the 95 % confidence interval over {count(len(numbers.seeds), 'seed')}."


def proved_text(numbers: Numbers) -> str:
    """Of which policies how many choices were proved best; empty where none searches for them."""
    found: dict[str, list[float]] = {}
    for (_, policy), share in numbers.of("proved").items():
        found.setdefault(policy, []).append(share.mean)
    if not found:
        return ""
    parts = (f"{policy} {_span(shares)} %" for policy, shares in found.items())
    return f"Searches that proved their choice best: {', '.join(parts)}."


def _span(shares: Sequence[float]) -> str:
    """One share or several of different cells, in per cent, rounded down: 100 is all of them."""
    low, high = (math.floor(100 * share + 1e-9) for share in (min(shares), max(shares)))
    return f"{low}" if low == high else f"{low} to {high}"


def lead(numbers: Numbers) -> str:
    """Who is first where, by how much, and whether that can be told from chance."""
    results, cells = numbers.results, numbers.cells
    if len(cells) == 1:
        return _lead_of_cell(numbers, cells[0])
    if len(results.policies) == 1:
        (only,), one = results.policies, numbers.deciders[0]
        return f"{only} is the only {one}: there is nothing to compare it with."
    first: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        best, *others = numbers.ranking(cell)
        row = numbers.better(cell, best, others[0]) if others else None
        first.setdefault(best, []).extend([] if row is None else [row])
    by_wins = sorted(first.items(), key=lambda item: -len(item[1]))
    winners = "; ".join(_won(numbers, policy, rows) for policy, rows in by_wins)
    return f"{winners}. Leads are over the next {numbers.deciders[0]}, paired by seed."


def _lead_of_cell(numbers: Numbers, cell: Place) -> str:
    best, *others = numbers.ranking(cell)
    found = numbers.of(numbers.objective)[cell, best]
    seeds = count(len(numbers.seeds), "seed")
    alone = "earned" if numbers.measured else f"has {numbers.objective}"
    text = f"{best} {f'{numbers.verb}:' if others else alone} "
    text += f"{estimate_text(found)}{numbers.measured}"
    names = numbers.results.comparators
    if names and (share := numbers.share(cell, best, names[-1])) is not None:
        text += f", {number(100 * share.mean, 1)} % of the {plain(names[-1])}"
    ahead = []
    for other in dict.fromkeys([*others[:1], *others[-1:]]):
        row = numbers.better(cell, best, other)
        if row is not None and row["percent"]:
            last = f", the last of {1 + len(others)}" if other != others[0] else ""
            ahead.append(f"{_ahead(row, numbers)}{last}")
    if ahead:
        paired = ", paired" if len(numbers.seeds) > 1 else ""
        text += f"; that is {' and '.join(ahead)} ({seeds}{paired})."
    else:
        text += f" ({seeds})."
    row = numbers.better(cell, best, others[0]) if others else None
    if row is not None and row["low"] is not None and row["low"] <= 0:
        text += (
            f" Over these seeds the lead of {best} over {others[0]} is within "
            "the confidence interval: it may be chance."
        )
    return text


def _ahead(row: Mapping[str, Any], numbers: Numbers) -> str:
    of = Estimate.of(row)
    decimals = 1 if of.half is None else max(1, decimals_for([of]))
    half = "" if of.half is None else f" ± {number(of.half, decimals)}"
    more = "less" if numbers.results.minimise else "more"
    return f"{number(of.mean, decimals)} %{half} {more} than {row['over']}"


def _won(numbers: Numbers, policy: str, rows: Sequence[Mapping[str, Any]]) -> str:
    n, cells = len(rows), len(numbers.cells)
    every = "both cells" if cells == 2 else f"all {cells} cells"
    text = f"{policy} {numbers.verb} in {every if n == cells else f'{n} of {cells} cells'}"
    leads = [row["mean"] for row in rows if row["percent"]]
    if len(leads) == n and n:
        low, high = number(min(leads), 1), number(max(leads), 1)
        text += f", by {low} %" if low == high else f", by {low} % to {high} %"
    clear = sum(row["low"] is not None and row["low"] > 0 for row in rows)
    if clear == n:
        return text + (", each time" if n > 1 else ",") + " more than chance explains"
    if clear == 0:
        return f"{text}, which may be chance"
    return f"{text}, in {clear} of them more than chance explains"


def missing(results: Results) -> str:
    if not results.missing:
        return ""
    of = len(results.runs) + len(results.missing)
    are = "run is" if len(results.missing) == 1 else "runs are"
    return (
        f"{len(results.missing)} of {of} {are} not finished and not on this page. Start the same "
        "command again to do the rest."
    )


def about_comparator(numbers: Numbers, comparator: str) -> str:
    """What a comparator is, how well its reward is proved; in one cell what it earns as well."""
    name, cells = comparator, numbers.cells
    known = words("comparators").get(name)
    text = f"{name}: {known['meaning']}; " if known else f"{name}: "
    rewards = numbers.of("reward.mean")
    gap = max((gap for at, gap in numbers.gaps.items() if at[1] == name), default=0.0)
    proof = "exact" if gap <= 0 else f"proved to within {small_share(gap)}"
    if len(cells) > 1:
        return text + (f"{proof} of its reward in every cell." if gap > 0 else f"{proof}.")
    at = (cells[0], name)
    n, slots = numbers.evaluated(*at)
    where = f"all {n:,} slots" if n >= slots else f"{n:,} of {slots:,} slots"
    earned = estimate_text(rewards[at])
    text += f"{earned} per slot on {where}, {proof}."
    try:
        regret = numbers.against(name)[0]
    except StoreError:
        return text
    measured = [(regret[cells[0], p].mean, p) for p in numbers.ranking(cells[0])]
    for bound, of in numbers.bounds(name).items():
        text += (
            f" Theoretical bound on the regret against it ({bound}): {number(of[at].mean)}; "
            f"measured: from {number(min(measured)[0])} ({min(measured)[1]}) "
            f"to {number(max(measured)[0])} ({max(measured)[1]})."
        )
    return text
