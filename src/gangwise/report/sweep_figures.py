"""The figures of a sweep's report, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gangwise.experiments.statistics import estimate
from gangwise.report.picture import Panel, draw, svg_text
from gangwise.report.sentences import plain
from gangwise.report.sweep_numbers import SweepNumbers, cell_text

MOST = 9
"""Panels of a figure."""

SETTLED = 0.05
"""Averages are drawn from this part of the slots on: the first few jump."""


class Drawn(NamedTuple):
    """A figure: its SVG, what it shows, how to read it."""

    svg: str
    title: str
    caption: str


def figures(numbers: SweepNumbers) -> list[Drawn]:
    """Reward by setting, average reward so far, and regret so far: those that have data."""
    found = [_by_setting(numbers), _average(numbers)]
    found += [_regret(numbers, comparator) for comparator in numbers.results.comparators]
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
    rewards = numbers.of("reward.mean")
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
        "Reward per slot" + (f" by {label}" if label else " in each cell"),
        rows,
        [
            Panel(name, label, "reward per slot", "bars" if kind == "bars" else "points")
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


def _regret(numbers: SweepNumbers, comparator: str) -> Drawn | None:
    """Nothing where the comparator was evaluated on some of the slots only."""
    import polars as pl

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
    import polars as pl

    columns = ("panel", "line", "x", "mean", "low", "high")
    table = pl.DataFrame(list(rows), schema=columns, orient="row", infer_schema_length=None)
    table = table.with_columns(pl.col("low", "high").cast(pl.Float64))
    less = len(numbers.results.policies) - len(numbers.drawn)
    if less:
        caption += f" Only the best {len(numbers.drawn)} policies are drawn."
    if len(panels) > 1 and more > 0:
        caption += f" {more} further panels are left out; the tables have all."
    return Drawn(svg_text(draw(title, table, panels)), title, caption)
