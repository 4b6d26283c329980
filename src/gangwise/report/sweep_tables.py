"""The tables of a sweep's report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gangwise.experiments.statistics import NOTHING, Estimate, decimals_for, number, scale_for
from gangwise.report.sentences import plain
from gangwise.report.sweep_numbers import Cell as Place
from gangwise.report.sweep_numbers import SweepNumbers, cell_text
from gangwise.report.tables import Cell, Sheet, estimate_cells, rescaled

NONE = Estimate(math.nan, None, None)
"""Where there is nothing to show."""

MANY = 5
"""More other policies than this, and only the best of each cell is compared with."""


def result_sheet(numbers: SweepNumbers) -> Sheet:
    """Every policy in every cell, best first: reward, lead over the first policy, share, time."""
    results, at = numbers.results, _ranked(numbers)
    rewards = numbers.of("reward.mean")
    columns = [("reward\nper slot", estimate_cells([rewards[each] for each in at]))]
    if len(results.policies) > 1:
        base = results.policies[0]
        columns.append((f"% over\n{base}", _leads(numbers, base, at)))
    captions = [f"{_interval(numbers)} Best policy of each cell first."]
    times = [numbers.of("us_per_slot").get(each, NONE) for each in at]
    columns.append(("µs per\nslot", [time_cell(each) for each in times]))
    if len(results.policies) > 1:
        captions.append(f"The lead over {base} is paired by seed: the same arrivals and noise.")
    return _sheet("Reward of every policy in every cell", numbers, at, columns, tuple(captions))


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
    return _sheet(title, numbers, at, columns, tuple(captions))


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
    of = numbers.of("reward.mean")
    cells = [cell for cell in numbers.cells if (cell, policy) in of]
    at = [(cell, policy) for cell in cells]
    ranks = {cell: numbers.ranking(cell) for cell in cells}
    place = [ranks[cell].index(policy) + 1 for cell in cells]
    columns = [
        ("reward\nper slot", estimate_cells([of[each] for each in at])),
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
    cells = [cell for cell, name in numbers.of("reward.mean") if name == policy]
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


def time_cell(found: Estimate) -> Cell:
    """A time, with a decimal where it is short."""
    return Cell(number(found.mean, 1 if found.mean < 10 else 0), found.mean)


def _used(percent: float) -> Cell:
    decimals = max(0, decimals_for([Estimate(percent, None, None)]) - 2)
    return Cell(number(percent, decimals), percent)


def _setting(value: Any) -> Cell:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(f"{value:g}" if isinstance(value, float) else str(value), float(value))
    return Cell(str(value), words=True)


def _sheet(
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
