"""Tables of an experiment, whether it has one cell, as a comparison, or many.

The best policy of each cell comes first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gangwise.core.errors import StoreError
from gangwise.experiments.statistics import NOTHING, Estimate, decimals_for, number, scale_for
from gangwise.report.numbers import (
    Numbers,
    Place,
    about_comparator,
    cell_text,
    count,
    interval_text,
    plain,
    proved_text,
)
from gangwise.report.tables import NONE, Cell, Sheet, estimate_cells, rescaled, time_cell
from gangwise.report.words import METRICS, NO_WAITING

MATRIX = 5
"""More policies than this in one cell, and only the best is compared with each other one."""

MANY = 5
"""More other policies than this, and only the best of each cell is compared with."""


def result_sheets(numbers: Numbers) -> list[Sheet]:
    """What every policy earned; of one cell also the paired improvements."""
    one = len(numbers.cells) == 1 and len(numbers.results.policies) > 1
    return [result_sheet(numbers), *([improvement_sheet(numbers)] if one else [])]


def page_sheets(numbers: Numbers) -> list[Sheet]:
    """The same for a page, which shows the improvements over many policies as dots."""
    results, one = numbers.results, len(numbers.cells) == 1
    found = [result_sheet(numbers)]
    if one and (beside := beside_sheet(numbers)) is not None:
        found.append(beside)
    if one and 2 < len(results.policies) <= MATRIX:
        found.append(improvement_sheet(numbers))
    return found


def beside_sheet(numbers: Numbers) -> Sheet | None:
    """What else was measured of every policy in one cell, in words; None where nothing was."""
    at = _ranked(numbers)
    shown = [m for m in numbers.metrics if all(e in numbers.of(f"{m}.mean") for e in at)]
    if not shown or not numbers.measured:
        return None
    columns = []
    for metric in shown:
        of = numbers.of(f"{metric}.mean")
        share = metric == "utilisation"
        found = [rescaled(of[each], 100) if share else of[each] for each in at]
        heading = f"{metric}, %" if share else metric.replace("_", "\n")
        columns.append((heading, estimate_cells(found, least=1 if share else 0)))
    said = "; ".join(f"{metric}: {METRICS[metric]}" for metric in shown if metric in METRICS)
    captions = [f"Means per slot. {said[:1].upper()}{said[1:]}." if said else "Means per slot."]
    if numbers.family != "approximation_jobs":
        captions.append(NO_WAITING)
    return _policies_sheet("Beside the reward", numbers, at, columns, tuple(captions))


def told_sheets(numbers: Numbers) -> list[Sheet]:
    """The same for a terminal, with what the comparators are below the first."""
    result, *others = result_sheets(numbers)
    told = [about_comparator(numbers, name) for name in numbers.results.comparators]
    return [replace(result, captions=(*result.captions, *told)), *others]


def result_sheet(numbers: Numbers) -> Sheet:
    """Every policy in every cell: the objective, what it is a share of, its regrets, its time.

    Where there are several cells, the lead over the first policy takes the place of the regrets,
    which have tables of their own.
    """
    results, at = numbers.results, _ranked(numbers)
    of, names, one = numbers.of(numbers.objective), results.comparators, len(numbers.cells) == 1
    columns = [(numbers.ranked_by, estimate_cells([of[each] for each in at]))]
    if one:
        columns += _judged(numbers, at)
    captions = [interval_text(numbers)]
    if one and names:
        captions[0] += (
            " Regret is the comparator's total reward minus the policy's: below 0 is better than "
            "the comparator."
        )
    if not one:
        captions[0] += f" Best {numbers.deciders[0]} of each cell first."
    if not one and len(results.policies) > 1:
        base = results.policies[0]
        columns.append((f"% over\n{base}", _leads(numbers, base, at)))
        met = "the same arrivals and noise" if results.slotwise else "the same jobs and rates"
        captions.append(f"The lead over {base} is paired by seed: {met}.")
    if proved := proved_text(numbers):
        captions.append(proved)
    columns.append(_times(numbers, at))
    title = "Reward" if numbers.measured else numbers.ranked_by
    title += f" of every {numbers.deciders[0]} in every cell"
    if one:
        title = f"{numbers.scenario()[0]}: {_how_much(numbers)}"
    return _policies_sheet(title, numbers, at, columns, tuple(captions))


def _how_much(numbers: Numbers) -> str:
    slots = f"{numbers.slots:,} slots, " if numbers.results.slotwise else ""
    return slots + count(len(numbers.seeds), "seed")


def _judged(numbers: Numbers, at: Sequence[tuple[Place, str]]) -> list[tuple[str, list[Cell]]]:
    """Share of the last comparator, and regret against each that the policies can be held to."""
    names, columns = numbers.results.comparators, []
    found = {}
    for name in names:
        try:
            found[name] = numbers.against(name)[0]
        except StoreError:
            continue
    if names:
        shares = [numbers.share(*each, names[-1]) or NONE for each in at]
        cells = estimate_cells([rescaled(share, 100) for share in shares], least=1)
        columns.append((f"share of\n{plain(names[-1])}, %", cells))
    scale, unit = scale_for([regret[each].mean for regret in found.values() for each in at])
    for name, regret in found.items():
        heading = f"regret vs\n{name}" + (f"\nin {unit}" if unit else "")
        columns.append((heading, estimate_cells([rescaled(regret[a], 1 / scale) for a in at])))
    return columns


def improvement_sheet(numbers: Numbers) -> Sheet:
    """How much more each row has than each column in one cell; of the best only, when many."""
    (cell,) = numbers.cells
    ranking = numbers.ranking(cell)
    best, *others = ranking

    def over(policy: str, other: str) -> Estimate:
        row = numbers.over(other).get((cell, policy)) if policy != other else None
        return Estimate(row["mean"], row["low"], row["high"]) if row and row["percent"] else NONE

    every = {(p, q): over(p, q) for p in ranking for q in ranking}
    what = "Change" if numbers.results.minimise else "Improvement"
    paired = "Paired by seed; " if len(numbers.seeds) > 1 else ""
    caption = paired + interval_text(numbers)
    if any(math.isnan(e.mean) for (p, q), e in every.items() if p != q):
        caption += f" {NOTHING}: a percentage of a value that is not positive says nothing."
    if len(ranking) > MATRIX:
        cells = estimate_cells([every[best, other] for other in others], sign=True, least=1)
        return Sheet(
            f"{what} of {best} over each other {numbers.deciders[0]}, %",
            ("improvement",),
            tuple((other, (cell,)) for other, cell in zip(others, cells)),
            (caption,),
            numbers.deciders[0],
        )
    flat = dict(zip(every, estimate_cells(list(every.values()), sign=True, least=1)))
    rows = tuple((p, tuple(Cell("") if p == q else flat[p, q] for q in ranking)) for p in ranking)
    title = f"{what} of the row over the column, %"
    return Sheet(title, tuple(ranking), rows, (caption,), numbers.deciders[0])


def regret_sheet(numbers: Numbers, comparator: str, only: str = "") -> Sheet:
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
        f"below 0 is better than the {plain(comparator)}. {interval_text(numbers)}"
    ]
    if bounds:
        captions.append(
            f"Bounds ({', '.join(bounds)}) are those that the theorem proves for the paper's own "
            "algorithm; beside other policies they are for scale."
        )
    return _policies_sheet(title, numbers, at, columns, tuple(captions))


def time_sheet(numbers: Numbers) -> Sheet:
    """Time of each policy and comparator: per slot, and all of its runs together."""
    results = numbers.results
    metric, heading = numbers.thinking
    slot, whole = numbers.of(metric), numbers.of("seconds")
    per = heading.replace("\n", " ")
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
        (f"{per},\nleast cell", f"{per},\nmost cell", "seconds\nper run", "runs"),
        tuple(rows),
        (
            "Time that passed on the machines that ran it, with whatever else they were doing; "
            "these numbers, and no others here, differ when the same runs are made again.",
        ),
        numbers.deciders[0],
    )


def policy_sheet(numbers: Numbers, policy: str) -> Sheet:
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
    columns.append(_times(numbers, at))
    return _by_cell(
        "Rewards" if numbers.measured else numbers.ranked_by, results.cells, cells, columns
    )


def metric_sheet(numbers: Numbers, policy: str) -> Sheet | None:
    """The other metrics of a policy; None where it has none."""
    cells = [cell for cell, name in numbers.of(numbers.objective) if name == policy]
    columns = [
        (metric, estimate_cells([numbers.of(f"{metric}.mean")[cell, policy] for cell in cells]))
        for metric in numbers.metrics
        if all((cell, policy) in numbers.of(f"{metric}.mean") for cell in cells)
    ]
    if not columns:
        return None
    per = ", mean per slot" if numbers.results.slotwise else ""
    return _by_cell(f"Other metrics{per}", numbers.results.cells, cells, columns)


def _ranked(numbers: Numbers) -> list[tuple[Place, str]]:
    return [(cell, policy) for cell in numbers.cells for policy in numbers.ranking(cell)]


def _leads(numbers: Numbers, base: str, at: Sequence[tuple[Place, str]]) -> list[Cell]:
    """How much more than ``base`` each earned, in per cent where that says something."""
    over = numbers.over(base)
    found = [
        Estimate(row["mean"], row["low"], row["high"]) if row and row["percent"] else NONE
        for row in (over.get(each) for each in at)
    ]
    return estimate_cells(found, sign=True, least=1)


def _times(numbers: Numbers, at: Sequence[tuple[Place, str]]) -> tuple[str, list[Cell]]:
    """Time that deciding takes, per slot or per decision."""
    metric, heading = numbers.thinking
    return heading, [time_cell(numbers.of(metric).get(each, NONE)) for each in at]


def _used(percent: float) -> Cell:
    decimals = max(0, decimals_for([Estimate(percent, None, None)]) - 2)
    return Cell(number(percent, decimals), percent)


def _setting(value: Any) -> Cell:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(f"{value:g}" if isinstance(value, float) else str(value), float(value))
    return Cell(str(value), words=True)


def _policies_sheet(
    title: str,
    numbers: Numbers,
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
    headings = (*names, *(name for name, _ in columns))
    return Sheet(title, headings, rows, captions, numbers.deciders[0])


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
