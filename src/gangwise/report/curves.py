"""Figures of an experiment over its slots, a panel for each cell, and of its objective by setting.

Curves are computed per seed, then averaged, then thinned for drawing. Where every slot was kept
they are exact on every slot; otherwise they are known where sums so far were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.report import plotting
from gangwise.report.page import Plot, cell_text, in_words, phrase, pictured, plain
from gangwise.report.plotting import draw, points
from gangwise.study.results import Place, Results, Series
from gangwise.study.statistics import count, number, over_seeds, students_t

POINTS = 240
"""A line is drawn through at most this many points."""

BANDS = 3
"""The bands of more lines than this would hide each other: then a page shows the band of one line
at a time, and differences as dots."""

PANELS = 9
"""A figure shows at most this many cells, a panel each."""

SETTLED = 0.05
"""Axes are fitted to what comes after this share of the slots, because the first averages jump."""

ROOT, OF_LINES = "√t, for shape", "{band}"


@dataclass(frozen=True, eq=False)
class Curve:
    """A mean over seeds with its pointwise 95 % confidence band, none with a single seed."""

    slots: Ints  # [n] played so far, from 1
    mean: Floats  # [n]
    half: Floats | None  # [n] half the width of the band

    @classmethod
    def of(cls, slots: Ints, each: list[Floats]) -> Curve:
        stack, seeds = np.stack(each), len(each)
        if seeds < 2:
            return cls(slots, stack[0], None)
        # Pointwise: t · s ÷ √seeds at each slot.
        half = students_t(seeds - 1) * stack.std(axis=0, ddof=1) / np.sqrt(seeds)
        return cls(slots, stack.mean(axis=0), half)


def thin(length: int, points: int = POINTS) -> Ints:
    """Positions to draw of a series: evenly spread, the first and the last among them.

    >>> thin(10, 4)
    array([0, 3, 6, 9])
    """
    if length <= points:
        return np.arange(length)
    return np.unique(np.linspace(0, length - 1, points).round().astype(np.int64))


def cumulative_reward(
    results: Results, cell: Place, label: str, average: bool = False
) -> Curve | None:
    """Σ of the rewards so far, or their mean; None where only some of the slots are known."""
    paths = [path.sums() for path in results.series.get((cell, label), {}).values()]
    sums_of = [rows for rows in paths if rows is not None]
    # A mean over some seeds alone would be of other runs than all else.
    if not sums_of or len(sums_of) < len(paths):
        return None
    at = thin(sums_of[0][0].size)
    rows = [sums[at] / slots[at] if average else sums[at] for slots, sums in sums_of]
    return Curve.of(sums_of[0][0][at], rows)


def average_reward(results: Results, cell: Place, label: str) -> Curve | None:
    """(1/t) Σ of the rewards so far; of a comparator on a sample of the slots, their mean."""
    curve, paths = cumulative_reward(results, cell, label, True), results.series.get((cell, label))
    if curve is not None or not paths:
        return curve
    # A sample has no path, so that its mean is drawn as a level.
    played = thin(max(path.slots for path in paths.values())) + 1
    mean = np.mean([path.columns["reward.slot"][1].mean() for path in paths.values()])
    return Curve(played, np.full(played.size, mean), None)


def _paired(results: Results, cell: Place, one: str, other: str) -> list[tuple[Series, Series]]:
    a, b = results.series.get((cell, one), {}), results.series.get((cell, other), {})
    return [(a[seed], b[seed]) for seed in a if seed in b]


def ratio(results: Results, cell: Place, other: str, best: str) -> Curve | None:
    """Cumulative reward of the best policy over that of another, seed by seed.

    Not a number wherever the other has earned nothing, or less, in some seed: a ratio then says
    nothing. None where that is so at the end.
    """
    ratios = []
    for mine, theirs in _paired(results, cell, best, other):
        a, b = mine.sums(), theirs.sums()
        if a is None or b is None:
            return None
        at = thin(a[0].size)
        played, over, under = a[0][at], a[1][at], b[1][at]
        ratios.append(np.divide(over, under, out=np.full(at.size, np.nan), where=under > 0))
    curve = Curve.of(played, ratios) if ratios else None
    return None if curve is None or not np.isfinite(curve.mean[-1]) else curve


def regret(results: Results, cell: Place, policy: str, versus: str) -> Curve | None:
    """Cumulative regret: the comparator's reward so far minus the policy's.

    Where the comparator was evaluated on some slots only, the mean difference on these is scaled to
    all slots so far, as :meth:`gangwise.Run.regret` does. None where the policy's rewards are not
    known there.
    """
    grid: Ints | None = None
    curves: list[Floats] = []
    for mine, its in _paired(results, cell, policy, versus):
        ours, theirs = mine.sums(), its.sums()
        # Both are known after the same numbers of slots.
        if ours is not None and theirs is not None and ours[0].size == theirs[0].size:
            played, curve = ours[0], theirs[1] - ours[1]
        elif (pair := _sampled(mine, its)) is not None:
            played, curve = pair
        else:
            return None
        if grid is None:
            grid = played[thin(played.size)]
        # Seeds may be known at other slots: all are read off one grid.
        curves.append(np.interp(grid, played, curve))
    return Curve.of(grid, curves) if grid is not None else None


def _sampled(mine: Series, its: Series) -> tuple[Ints, Floats] | None:
    if not ("reward.slot" in mine.columns and "reward.slot" in its.columns):
        return None
    slots, rewards = its.columns["reward.slot"]
    at, ours = mine.columns["reward.slot"]
    # Both must be known on the slots of the comparator.
    shared, of_theirs, of_ours = np.intersect1d(slots, at, return_indices=True)
    if shared.size < slots.size:
        return None
    played = shared + 1
    # The last slot of the sample stands for the end.
    played[-1] = mine.slots
    difference = rewards[of_theirs] - ours[of_ours]
    # The mean difference so far, times all slots so far.
    return played, np.cumsum(difference) / np.arange(1, shared.size + 1) * played


# Figures


def drawn_policies(results: Results) -> list[str]:
    """The policies that figures show: all, or the best by their mean place if there are many.

    In the order of the experiment.
    """
    policies = results.policies
    if len(policies) <= len(plotting.COLOURS):
        return policies
    places: dict[str, list[int]] = {policy: [] for policy in policies}
    for cell in results.places:
        for place, policy in enumerate(results.ranking(cell)):
            places[policy].append(place)
    mean = {p: sum(ranks) / len(ranks) for p, ranks in places.items() if ranks}
    best = sorted(mean, key=lambda policy: mean[policy])[: len(plotting.COLOURS)]
    return [policy for policy in policies if policy in best]


def styles(results: Results) -> dict[str, plotting.Style]:
    """Styles of policies and comparators; of a single cell, the best policy first."""
    if len(results.places) == 1:
        looks = plotting.ranked_styles(results.ranking(results.places[0]))
    else:
        looks = plotting.plain_styles(dict.fromkeys([*drawn_policies(results), *results.policies]))
    return looks | dict.fromkeys(results.comparators, plotting.REFERENCE)


Lines = Callable[[Place], dict[str, Curve]]
"""The lines of a cell, by policy, comparator or other name."""


def _lines(
    results: Results, of: Callable[..., Curve | None], names: Iterable[str], root: bool = False
) -> Lines:
    """The curves that are known ``of`` some names, with √t beside them if that is asked for."""

    def lines(cell: Place) -> dict[str, Curve]:
        every = {name: of(results, cell, name) for name in names}
        drawn = {name: curve for name, curve in every.items() if curve is not None}
        return drawn | _root(drawn) if root else drawn

    return lines


def figures(results: Results) -> list[Plot]:
    """Figures of a page: of one cell its curves, of many the objective by setting and panels."""
    plots = [_by_setting(results)] if len(results.places) > 1 else []
    return [*plots, *curves(results).values(), *bounded(results)]


def figure_files(results: Results) -> dict[str, bytes]:
    """The figures of one cell as PNG and SVG, by the name of a file.

    The same numbers give the same SVG, byte for byte.
    """
    files: dict[str, bytes] = {}
    n = len(results.seeds)
    about = f"{results.scenario()[0]}; " + (
        f"mean of {n} seeds, 95 % bands" if n > 1 else "one seed"
    )
    for stem, drawn in curves(results).items():
        figure = draw(f"{drawn.title}\n{about}", drawn.numbers, drawn.panels, drawn.key)
        files |= {
            f"{stem}.png": plotting.image(figure, "png"),
            f"{stem}.svg": plotting.image(figure, "svg"),
        }
    return files


def curves(results: Results) -> dict[str, Plot]:
    """``average-reward`` and ``regret``; of one cell also ``cumulative-reward`` and ``ratio``.

    None where runs have no slots.
    """
    if not results.rewarded:
        return {}
    names, single = results.comparators, len(results.places) == 1
    shown = list(styles(results))[: len(results.policies)] if single else drawn_policies(results)
    average = f"All rewards up to a slot, divided by the slots so far. {OF_LINES}"
    plots = {
        "average-reward": _drawn(
            results,
            "Average reward per slot so far",
            average + (_about_references(results) if single else ""),
            "average reward per slot",
            _lines(results, average_reward, [*shown, *names]),
            settled=True,
        )
    }
    if single:
        best, *rivals = shown
        paired = "Paired: both policies met the same arrivals and noise. "
        paired *= len(results.seeds) > 1
        plots["cumulative-reward"] = _drawn(
            results,
            "Cumulative reward",
            OF_LINES,
            "reward, summed over slots",
            _lines(results, cumulative_reward, shown),
        )
        plots["ratio"] = _drawn(
            results,
            f"Cumulative reward of {best} over that of each other policy",
            f"Above 1, {best} has earned more so far. {paired}{OF_LINES}",
            f"{best} ÷ other policy",
            _lines(results, partial(ratio, best=best), rivals),
            level=1.0,
            settled=True,
        )
    for i, versus in enumerate(names[:1] if single else names):
        bounds = ""
        for name, limits in results.bounds(versus).items():
            least = number(min(bound.mean for bound in limits.values()))
            beyond = ", outside the axes" if single else " or more"
            bounds += f" The theoretical bound ({name}) at the last slot is {least}{beyond}."
        plots[f"regret{'' if i == 0 else f'-{versus}'}"] = _drawn(
            results,
            f"{'Cumulative regret' if single else 'Regret so far'} against the {plain(versus)}",
            f"Reward of the {plain(versus)} so far minus the policy's; below 0 is better. "
            f"{OF_LINES}{bounds}",
            "regret, summed over slots",
            _lines(results, partial(regret, versus=versus), shown, root=single),
            level=0.0,
        )
    return {stem: drawn for stem, drawn in plots.items() if drawn is not None}


def _root(regrets: dict[str, Curve]) -> dict[str, Curve]:
    # c √t through the end of the largest regret.
    largest = max(regrets.values(), key=lambda curve: float(curve.mean[-1]), default=None)
    if largest is None or largest.mean[-1] <= 0:
        return {}
    grid = np.unique(np.linspace(1, largest.slots[-1], 200).round().astype(np.int64))
    return {ROOT: Curve(grid, largest.mean[-1] * np.sqrt(grid / grid[-1]), None)}


def bounded(results: Results) -> list[Plot]:
    """Regret in one cell beside what a theorem allows, both axes logarithmic."""
    if len(results.places) > 1 or not results.rewarded:
        return []
    (cell,), plots = results.places, []
    at = np.unique(np.geomspace(1, results.slots, 60).round()).astype(np.int64)
    for versus in results.comparators:
        every = _lines(results, partial(regret, versus=versus), styles(results))(cell)
        above = {p: curve for p, curve in every.items() if curve.mean[-1] > 0}
        limits = {
            f"bound at the last slot ({name})": Curve(
                at, np.full(at.size, bound[cell, versus].mean), None
            )
            for name, bound in results.bounds(versus).items()
        }
        if above and limits:
            lines = {cell: above | limits | _root(above)}.__getitem__
            title, caption = f"Regret against the {plain(versus)} and its bound", phrase("bound")
            unit = "regret, summed over slots"
            plots.append(_drawn(results, title, caption, unit, lines, log=True))
    return [plot for plot in plots if plot is not None]


def _about_references(results: Results) -> str:
    if not (names := results.comparators):
        return ""
    counts = [(name, *results.evaluated(results.places[0], name)) for name in names]
    partial = " and ".join(name for name, n, slots in counts if n < slots)
    sampled = f"; {partial}: the mean over a sample of the slots" if partial else ""
    return f" Grey dashed lines are comparators{sampled}."


def _band(results: Results, many: int = 0, shown: str = "bands") -> str:
    if len(results.seeds) == 1:
        return over_seeds(1)
    intervals = f"{shown} are 95 % confidence intervals"
    if many > BANDS:
        intervals = "point at a name for the 95 % confidence interval of its line"
    return f"Mean over {count(len(results.seeds), 'seed')}; {intervals}."


def _drawn(
    results: Results,
    title: str,
    caption: str,
    unit: str,
    lines: Lines,
    level: float | None = None,
    settled: bool = False,
    log: bool = False,
) -> Plot | None:
    """A figure over the slots, a panel for each cell; None where no line is known.

    If ``settled``, axes fit what lies after :data:`SETTLED`; if ``log``, both axes are logarithmic,
    without bands and what is not positive.
    """
    rows, panels, cells = [], [], results.places
    begin = results.slots * SETTLED * settled
    for cell in cells[:PANELS]:
        name = cell_text(results.cells, cell) if len(cells) > 1 else ""
        panels.append(plotting.Panel(name, "slot", unit, "curve", log, log, level, begin))
        for label, curve in lines(cell).items():
            # What is not positive has no place on a logarithmic axis.
            mean = np.where(curve.mean > 0, curve.mean, np.nan) if log else curve.mean
            half = np.nan if curve.half is None or log else curve.half
            columns = (curve.slots, mean, mean - half, mean + half)
            rows += [(name, label, *point) for point in zip(*(c.tolist() for c in columns))]
    if not rows:
        return None
    looks = styles(results)
    # Bounds and √t are drawn as comparators are.
    looks |= {row[1]: plotting.REFERENCE for row in rows if row[1] not in looks}
    caption = caption.replace(OF_LINES, _band(results, len({row[1] for row in rows})))
    return _limited(results, title, rows, panels, caption, looks)


def _by_setting(results: Results) -> Plot:
    names, cells = results.cells, results.places
    values = [{cell[i] for cell in cells} for i in range(len(names))]
    # The axis is the numeric setting with the most values; the others make panels.
    numeric = [
        i
        for i, column in enumerate(values)
        if len(column) > 1
        and all(isinstance(v, int | float) and not isinstance(v, bool) for v in column)
    ]
    along = max(numeric, key=lambda i: len(values[i]), default=None)
    rewards, rows = results.of(results.objective), []
    for policy in drawn_policies(results):
        for cell in cells:
            if (mean := rewards.get((cell, policy))) is None:
                continue
            panel, x = "all", cell_text(names, cell).replace(", ", "\n")
            if along is not None:
                further = [i for i in range(len(names)) if i != along]
                panel = cell_text([names[i] for i in further], tuple(cell[i] for i in further))
                x = cell[along]
            rows.append((panel, policy, x, *mean))
    label = "" if along is None else names[along]
    title = "Reward per slot" if results.rewarded else in_words(results.objective)
    title += f" by {label}" if label else " in each cell"
    panels = [
        plotting.Panel(
            name, label, in_words(results.objective), "bars" if along is None else "points"
        )
        for name in dict.fromkeys(row[0] for row in rows)
    ]
    return _limited(results, title, rows, panels, _band(results, shown="bars"), styles(results))


def _limited(
    results: Results,
    title: str,
    rows: list[tuple[Any, ...]],
    panels: list[Any],
    caption: str,
    looks: dict[str, plotting.Style],
) -> Plot:
    if len(results.places) > 1 and len(results.policies) > len(drawn_policies(results)):
        caption += f" Only the best {len(drawn_policies(results))} policies are drawn."
    hidden = max(len(panels), len(results.places) if panels[0].kind == "curve" else 0) - PANELS
    if hidden > 0:
        caption += f" {hidden} further panels are left out; the tables have all."
    return pictured(title, points(rows), panels[:PANELS], caption, looks)
