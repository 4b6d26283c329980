"""The numbers of a sweep, read from its runs once, with its sentences, tables and figures."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import polars as pl

from gangwise.core.errors import StoreError
from gangwise.experiments.results import Results
from gangwise.experiments.statistics import (
    NOTHING,
    Estimate,
    decimals_for,
    estimate,
    number,
    scale_for,
    small_share,
    verdict,
)
from gangwise.report.plotting import COLOURS, Panel, draw, svg_text
from gangwise.report.rendering import Drawn
from gangwise.report.tables import NONE, Cell, Sheet, estimate_cells, rescaled, time_cell

Place = tuple[Any, ...]
"""Values of the settings that vary, in the order of ``Results.cells``."""

Of = Mapping[tuple[Place, str], Estimate]
"""An estimate over seeds for each cell and policy."""


def cell_text(names: Sequence[str], cell: Place) -> str:
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
    def _single(self) -> dict[str, dict[tuple[Place, str], Estimate]]:
        rows = self.results.rows().filter(pl.col("at").is_null()).collect()
        by = ["metric", *self.results.cells, "policy"]
        found: dict[str, dict[tuple[Place, str], Estimate]] = {}
        for group, part in rows.group_by(by, maintain_order=True):
            of = found.setdefault(group[0], {})
            of[group[1:-1], group[-1]] = estimate(part["value"].to_numpy())
        return found

    @property
    def objective(self) -> str:
        """The metric that policies are ranked by."""
        return self.results.objective

    @property
    def ranked_by(self) -> str:
        """The objective in words."""
        return "reward per slot" if self.objective == "reward.mean" else self.objective

    @property
    def cells(self) -> list[Place]:
        """The cells in which a policy has a finished run, in the order of the experiment."""
        return list(dict.fromkeys(cell for cell, _ in self.of(self.objective, True)))

    def of(self, metric: str, policies: bool = False) -> Of:
        """A metric in each cell, of each policy and comparator, or of the policies only."""
        found = self._single.get(metric, {})
        known = set(self.results.policies)
        return {at: e for at, e in found.items() if not policies or at[1] in known}

    @property
    def metrics(self) -> list[str]:
        """Metrics of the environment: those with a mean per slot, but for the reward."""
        means = (name.removesuffix(".mean") for name in self._single if name.endswith(".mean"))
        return [name for name in means if f"{name}.mean" != self.objective]

    def bounds(self, comparator: str) -> dict[str, Of]:
        """Theoretical bounds on the regret against a comparator, by name."""
        return {
            name.removeprefix("bound."): {at: e for at, e in of.items() if at[1] == comparator}
            for name, of in self._single.items()
            if name.startswith("bound.") and any(policy == comparator for _, policy in of)
        }

    def ranking(self, cell: Place) -> list[str]:
        """Policies of a cell, best first."""
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
    def over(self, base: str) -> dict[tuple[Place, str], Mapping[str, Any]]:
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
        regret: dict[tuple[Place, str], Estimate] = {}
        share: dict[tuple[Place, str], Estimate] = {}
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


_PLAIN = {
    "best_fixed": "best fixed decision",
    "per_slot_optimum": "per-slot optimum",
    "omniscient": "omniscient choice",
}


def plain(comparator: str) -> str:
    """A comparator's name as it reads in a sentence."""
    return _PLAIN.get(comparator, comparator)


def byline(numbers: SweepNumbers) -> str:
    """What was run: scenario, how much of what, version."""
    results = numbers.results
    seeds = {run["seed"] for run in results.runs}
    slots = sorted({run["slots"] for run in results.runs})
    scenario, _ = numbers.scenario()
    return ", ".join(
        [
            scenario,
            _count(len(results.policies), "policy", "policies"),
            _count(len(numbers.cells), "cell"),
            _count(len(seeds), "seed"),
            f"{slots[0]:,} slots" if len(slots) == 1 else f"{slots[0]:,} to {slots[-1]:,} slots",
            f"gangwise {', '.join(numbers.run_versions)}",
        ]
    )


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def lead(numbers: SweepNumbers) -> str:
    """Who earned most where, and whether that can be told from the next."""
    results, cells = numbers.results, numbers.cells
    if len(results.policies) == 1:
        return f"{results.policies[0]} is the only policy: there is nothing to compare it with."
    first: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        best, *others = numbers.ranking(cell)
        row = numbers.over(others[0]).get((cell, best)) if others else None
        first.setdefault(best, []).extend([] if row is None else [row])
    if len(cells) == 1:
        (rows,) = first.values()
        return f"{verdict(rows[0])}." if rows else f"Only {best} has finished."
    by_wins = sorted(first.items(), key=lambda item: -len(item[1]))
    said = "; ".join(_won(policy, rows, len(cells)) for policy, rows in by_wins)
    return f"{said}. Leads are over the next policy, paired by seed."


def _won(policy: str, rows: Sequence[Mapping[str, Any]], cells: int) -> str:
    """In how many cells a policy is first, by how much, and how often that is beyond chance."""
    n = len(rows)
    every = "both cells" if cells == 2 else f"all {cells} cells"
    text = f"{policy} earned most in {every if n == cells else f'{n} of {cells} cells'}"
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
    """How many runs are not on the page; empty where all are."""
    if not results.missing:
        return ""
    of = len(results.runs) + len(results.missing)
    are = "run is" if len(results.missing) == 1 else "runs are"
    return (
        f"{len(results.missing)} of {of} {are} not finished and not on this page. Start the same "
        "command again to do the rest."
    )


def proof(numbers: SweepNumbers, comparator: str) -> str:
    """How well the comparator's reward is proved."""
    gap, total = numbers.of("gap"), numbers.of(numbers.objective)
    slots = max(run["slots"] for run in numbers.results.runs)
    shares = [
        gap[at].mean / abs(total[at].mean * slots)
        for at in gap
        if at[1] == comparator and total[at].mean
    ]
    if not shares or max(shares) <= 0:
        return f"{comparator} is the {plain(comparator)}, computed exactly."
    return (
        f"{comparator} is the {plain(comparator)}, proved to within {small_share(max(shares))} "
        "of its reward in every cell."
    )


def against_best(numbers: SweepNumbers, cell: Place, policy: str) -> str:
    """The policy against the best other one of a cell."""
    ranking = numbers.ranking(cell)
    if policy not in ranking or len(ranking) < 2:
        return ""
    best, other = (policy, ranking[1]) if ranking[0] == policy else (ranking[0], policy)
    row = numbers.over(other).get((cell, best))
    return "" if row is None else verdict(row)


MANY = 5
"""More other policies than this, and only the best of each cell is compared with."""


def result_sheet(numbers: SweepNumbers) -> Sheet:
    """Every policy in every cell, best first: reward, lead over the first policy, share, time."""
    results, at = numbers.results, _ranked(numbers)
    rewards = numbers.of(numbers.objective)
    columns = [(numbers.ranked_by, estimate_cells([rewards[each] for each in at]))]
    if len(results.policies) > 1:
        base = results.policies[0]
        columns.append((f"% over\n{base}", _leads(numbers, base, at)))
    captions = [f"{_interval(numbers)} Best policy of each cell first."]
    times = [numbers.of("us_per_slot").get(each, NONE) for each in at]
    columns.append(("µs per\nslot", [time_cell(each) for each in times]))
    if len(results.policies) > 1:
        captions.append(f"The lead over {base} is paired by seed: the same arrivals and noise.")
    return _policies_sheet(
        "Reward of every policy in every cell", numbers, at, columns, tuple(captions)
    )


def regret_sheet(numbers: SweepNumbers, comparator: str, only: str = "") -> Sheet:
    """Regret of every policy, or of one, in every cell, and the theorem's bound on it.

    Raises
    ------
    StoreError
        When runs of the comparator are missing.
    """
    regret, share = numbers.against(comparator)
    at = [each for each in _ranked(numbers) if each in regret and only in ("", each[1])]
    bounds = numbers.bounds(comparator)
    scale, unit = scale_for([regret[each].mean for each in at])
    inside = f"\nin {unit}" if unit else ""
    shares = [rescaled(share.get(each, NONE), 100) for each in at]
    columns = [
        (f"regret{inside}", estimate_cells([rescaled(regret[a], 1 / scale) for a in at])),
        ("share of its\nreward, %", estimate_cells(shares, least=1)),
    ]
    for name, of in bounds.items():
        bound = [rescaled(of.get((cell, comparator), NONE), 1 / scale) for cell, _ in at]
        used = [100 * regret[a].mean / (b.mean * scale) for a, b in zip(at, bound)]
        columns.append(
            (
                f"bound{inside}",
                [Cell(number(b.mean, 0 if b.mean >= 10 else 2), b.mean) for b in bound],
            )
        )
        columns.append((f"of bound\n{name}, %", [_used(each) for each in used]))
    title = f"Regret against {comparator}"
    if only:
        return _by_cell(title, numbers.results.cells, [cell for cell, _ in at], columns)
    captions = [
        "Regret is the comparator's total reward minus the policy's on the same slots, signed: "
        f"below 0 is better than the {plain(comparator)}. {_interval(numbers)}"
    ]
    if bounds:
        captions.append(
            f"Bounds ({', '.join(bounds)}) are those that the theorem proves for the paper's own "
            "algorithm; beside other policies they are for scale."
        )
    return _policies_sheet(title, numbers, at, columns, tuple(captions))


def time_sheet(numbers: SweepNumbers) -> Sheet:
    """Time of each policy and comparator: per slot, and all of its runs together."""
    results = numbers.results
    slot, whole = numbers.of("us_per_slot"), numbers.of("seconds")
    rows = []
    for name in [*results.policies, *results.comparators]:
        seen = [e.mean for (_, policy), e in slot.items() if policy == name]
        runs = sum(run["label"] == name for run in results.runs)
        each = [e.mean for (_, policy), e in whole.items() if policy == name]
        mean = sum(each) / len(each) if each else math.nan
        cells = (
            time_cell(Estimate(min(seen), None, None)) if seen else Cell(NOTHING),
            time_cell(Estimate(max(seen), None, None)) if seen else Cell(NOTHING),
            Cell(number(mean, 2), mean),
            Cell(number(runs), runs),
        )
        rows.append((name, cells))
    return Sheet(
        "Time of computation",
        ("µs per slot,\nleast cell", "µs per slot,\nmost cell", "seconds\nper run", "runs"),
        tuple(rows),
        (
            "Time that passed on the machines that ran it, with whatever else they were doing; "
            "these "
            "numbers, and no others here, differ when the same runs are made again.",
        ),
    )


def run_times(numbers: SweepNumbers) -> float:
    """Seconds of all runs, one after the other."""
    whole, cells = numbers.of("seconds"), numbers.results.cells
    at = (
        (tuple(run["cell"].get(name) for name in cells), run["label"])
        for run in numbers.results.runs
    )
    return sum(whole[each].mean for each in at if each in whole)


def policy_sheet(numbers: SweepNumbers, policy: str) -> Sheet:
    """One policy in each cell: reward, place, lead over each other policy, time."""
    results = numbers.results
    of = numbers.of(numbers.objective)
    cells = [cell for cell in numbers.cells if (cell, policy) in of]
    at = [(cell, policy) for cell in cells]
    ranks = {cell: numbers.ranking(cell) for cell in cells}
    place = [ranks[cell].index(policy) + 1 for cell in cells]
    columns = [
        (numbers.ranked_by, estimate_cells([of[each] for each in at])),
        ("place", [Cell(f"{p} of {len(ranks[c])}", p) for p, c in zip(place, cells)]),
    ]
    others = [other for other in results.policies if other != policy]
    if len(others) > MANY:
        best: dict[str, int] = {}
        for ranking in ranks.values():
            best[ranking[0]] = best.get(ranking[0], 0) + 1
        others = sorted(set(best) - {policy}, key=lambda name: -best[name])[:MANY]
    columns += [(f"% over\n{other}", _leads(numbers, other, at)) for other in others]
    times = [numbers.of("us_per_slot").get(each, NONE) for each in at]
    columns.append(("µs per\nslot", [time_cell(each) for each in times]))
    return _by_cell("Rewards", results.cells, cells, columns)


def metric_sheet(numbers: SweepNumbers, policy: str) -> Sheet | None:
    """The other metrics of a policy, per slot; None where its environment has none."""
    cells = [cell for cell, name in numbers.of(numbers.objective) if name == policy]
    columns = [
        (metric, estimate_cells([numbers.of(f"{metric}.mean")[cell, policy] for cell in cells]))
        for metric in numbers.metrics
        if all((cell, policy) in numbers.of(f"{metric}.mean") for cell in cells)
    ]
    if not columns:
        return None
    return _by_cell("Other metrics, mean per slot", numbers.results.cells, cells, columns)


def _ranked(numbers: SweepNumbers) -> list[tuple[Place, str]]:
    return [(cell, policy) for cell in numbers.cells for policy in numbers.ranking(cell)]


def _leads(numbers: SweepNumbers, base: str, at: Sequence[tuple[Place, str]]) -> list[Cell]:
    """How much more than ``base`` each earned, in per cent where that says something."""
    over = numbers.over(base)
    found = [
        Estimate(row["mean"], row["low"], row["high"]) if row and row["percent"] else NONE
        for row in (over.get(each) for each in at)
    ]
    return estimate_cells(found, sign=True, least=1)


def _interval(numbers: SweepNumbers) -> str:
    seeds = {row["seed"] for row in numbers.results.runs}
    if len(seeds) == 1:
        return "One seed: no confidence interval."
    return f"± is half the 95 % confidence interval over {len(seeds)} seeds."


def _used(percent: float) -> Cell:
    decimals = max(0, decimals_for([Estimate(percent, None, None)]) - 2)
    return Cell(number(percent, decimals), percent)


def _setting(value: Any) -> Cell:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(f"{value:g}" if isinstance(value, float) else str(value), float(value))
    return Cell(str(value), words=True)


def _policies_sheet(
    title: str,
    numbers: SweepNumbers,
    at: Sequence[tuple[Place, str]],
    columns: Sequence[tuple[str, list[Cell]]],
    captions: tuple[str, ...],
) -> Sheet:
    """Policies with the settings of their cells before the columns."""
    names = numbers.results.cells
    rows = tuple(
        (policy, (*map(_setting, cell), *(cells[i] for _, cells in columns)))
        for i, (cell, policy) in enumerate(at)
    )
    return Sheet(title, (*names, *(name for name, _ in columns)), rows, captions)


def _by_cell(
    title: str,
    names: Sequence[str],
    cells: Sequence[Place],
    columns: Sequence[tuple[str, list[Cell]]],
) -> Sheet:
    """A row for each cell."""
    rows = tuple(
        (cell_text(names, cell), tuple(column[i] for _, column in columns))
        for i, cell in enumerate(cells)
    )
    return Sheet(title, tuple(name for name, _ in columns), rows, (), "cell" if names else "")


MOST = 9
"""Panels of a figure."""

SETTLED = 0.05
"""Averages are drawn from this part of the slots on: the first few jump."""


def sweep_figures(numbers: SweepNumbers) -> list[Drawn]:
    """Reward by setting, average reward so far, and regret so far: those that have data."""
    found = [_by_setting(numbers)]
    if numbers.objective == "reward.mean":
        found.append(_average(numbers))
    found += [_regret_figure(numbers, comparator) for comparator in numbers.results.comparators]
    return [each for each in found if each is not None]


def _by_setting(numbers: SweepNumbers) -> Drawn | None:
    names, cells = numbers.results.cells, numbers.cells
    if len(cells) < 2:
        return None
    numeric = [
        i
        for i in range(len(names))
        if all(isinstance(c[i], int | float) and not isinstance(c[i], bool) for c in cells)
    ]
    values = {i: len({c[i] for c in cells}) for i in numeric}
    along = max(values, key=lambda i: values[i]) if values else None
    if along is not None and values[along] < 2:
        along = None
    rows: list[tuple[object, ...]] = []
    panels: dict[str, None] = {}
    rewards = numbers.of(numbers.objective)
    for policy in numbers.drawn:
        for cell in cells:
            if (cell, policy) not in rewards:
                continue
            of = rewards[cell, policy]
            if along is None:
                panel, x = "all", cell_text(names, cell).replace(", ", "\n")
            else:
                rest = [*cell[:along], *cell[along + 1 :]]
                panel = cell_text([*names[:along], *names[along + 1 :]], tuple(rest))
                x = cell[along]
            panels[panel] = None
            rows.append((panel, policy, x, of.mean, of.low, of.high))
    shown, more = list(panels)[:MOST], len(panels) - MOST
    label = "" if along is None else names[along]
    kind = "bars" if along is None else "points"
    return _drawn(
        numbers,
        numbers.ranked_by.capitalize() + (f" by {label}" if label else " in each cell"),
        rows,
        [
            Panel(name, label, numbers.ranked_by, "bars" if kind == "bars" else "points")
            for name in shown
        ],
        more,
        _mean(numbers, "Mean"),
    )


def _average(numbers: SweepNumbers) -> Drawn:
    results, cells = numbers.results, numbers.cells[:MOST]
    frame = results.curves("reward")
    by = {name: i for i, name in enumerate([*numbers.drawn, *results.comparators])}
    slots = max(run["slots"] for run in results.runs)
    rows = []
    for row in frame.sort("at").iter_rows(named=True):
        cell = tuple(row[name] for name in results.cells)
        if cell in cells and row["policy"] in by and row["at"] >= SETTLED * slots:
            ends = (None if row[k] is None else row[k] / row["at"] for k in ("mean", "low", "high"))
            rows.append((cell_text(results.cells, cell), row["policy"], row["at"], *ends))
    rows.sort(key=lambda row: by[row[1]])
    panels = [Panel(cell_text(results.cells, c), "slot", "average reward per slot") for c in cells]
    says = "All rewards up to a slot, divided by the slots so far. " + _mean(numbers, "Means")
    return _drawn(numbers, "Average reward so far", rows, panels, len(numbers.cells) - MOST, says)


def _regret_figure(numbers: SweepNumbers, comparator: str) -> Drawn | None:
    """Nothing where the comparator was evaluated on some of the slots only."""
    results = numbers.results
    found = results.rows().filter(pl.col("metric") == "reward.cumulative").collect()
    on = [*results.cells, "seed", "at"]
    best = found.filter(pl.col("comparator") & (pl.col("policy") == comparator))
    if best.is_empty():
        return None
    ours = found.filter(~pl.col("comparator")).join(
        best.select(*on, pl.col("value").alias("best")),
        on=on,
        nulls_equal=True,
        maintain_order="left",
    )
    rows, cells = [], numbers.cells[:MOST]
    ours = ours.filter(pl.col("policy").is_in(numbers.drawn))
    by = [*results.cells, "policy", "at"]
    for group, part in ours.group_by(by, maintain_order=True):
        if group[:-2] in cells:
            of = estimate((part["best"] - part["value"]).to_numpy())
            rows.append((cell_text(results.cells, group[:-2]), group[-2], group[-1], *of))
    order = {name: i for i, name in enumerate(numbers.drawn)}
    rows.sort(key=lambda row: order[str(row[1])])
    panels = [
        Panel(cell_text(results.cells, cell), "slot", "regret, summed", level=0.0) for cell in cells
    ]
    says = (
        f"Reward of the {plain(comparator)} so far minus the policy's; below 0 is better. "
        + _mean(numbers, "Means")
    )
    for name, bounds in numbers.bounds(comparator).items():
        least = min(bound.mean for bound in bounds.values())
        says += f" The bound ({name}) at the last slot is {least:,.0f} or more."
    more = len(numbers.cells) - MOST
    return _drawn(numbers, f"Regret against {comparator} so far", rows, panels, more, says)


def _mean(numbers: SweepNumbers, what: str) -> str:
    seeds = len({run["seed"] for run in numbers.results.runs})
    if seeds == 1:
        return "One seed: no confidence interval."
    return f"{what} of {seeds} seeds with 95 % confidence intervals."


def _drawn(
    numbers: SweepNumbers,
    title: str,
    rows: Sequence[tuple[object, ...]],
    panels: Sequence[Panel],
    more: int,
    caption: str,
) -> Drawn:
    columns = ("panel", "line", "x", "mean", "low", "high")
    table = pl.DataFrame(list(rows), schema=columns, orient="row", infer_schema_length=None)
    table = table.with_columns(pl.col("low", "high").cast(pl.Float64))
    less = len(numbers.results.policies) - len(numbers.drawn)
    if less:
        caption += f" Only the best {len(numbers.drawn)} policies are drawn."
    if len(panels) > 1 and more > 0:
        caption += f" {more} further panels are left out; the tables have all."
    return Drawn(svg_text(draw(title, table, panels)), title, caption)
