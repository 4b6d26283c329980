"""A comparison of policies slot by slot: its curves and figures, its sentences, its tables.

Curves are computed per seed on every slot, then averaged, then thinned for drawing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator
from scipy.special import stdtrit

from gangwise.core.arrays import Floats, Ints
from gangwise.experiments.compare import Comparison, Row
from gangwise.experiments.statistics import (
    NOTHING,
    Estimate,
    decimals_for,
    estimate_text,
    number,
    scale_for,
    small_share,
)
from gangwise.report.plotting import (
    COLOURS,
    INK,
    LINES,
    MUTED,
    Label,
    Style,
    dress,
    image,
    place_labels,
    settled,
)
from gangwise.report.rendering import Drawn
from gangwise.report.sweeps import plain
from gangwise.report.tables import (
    NONE,
    Cell,
    Sheet,
    columns_sheet,
    estimate_cells,
    rescaled,
    time_cell,
)

POINTS = 500
"""Most points of a drawn line."""


@dataclass(frozen=True, eq=False)
class Curve:
    """A mean over seeds with its pointwise 95 % confidence band.

    Attributes
    ----------
    slots : ndarray of int64, shape [n]
        Slots played so far, from 1.
    mean, half : ndarray of float64, shape [n]
        Mean, and half the width of the band; ``half`` is None with a single seed.
    """

    slots: Ints
    mean: Floats
    half: Floats | None

    @classmethod
    def of(cls, slots: Ints, each: list[Floats]) -> Curve:
        """From one series for each seed."""
        stack = np.stack(each)
        if len(stack) < 2:
            return cls(slots, stack[0], None)
        seeds = len(stack)
        half = stdtrit(seeds - 1, 0.975) * stack.std(axis=0, ddof=1) / np.sqrt(seeds)
        return cls(slots, stack.mean(axis=0), half)


def thin(length: int, points: int = POINTS) -> Ints:
    """Positions to draw of a series: evenly spread, the first and the last among them.

    >>> thin(10, 4)
    array([0, 3, 6, 9])
    """
    if length <= points:
        return np.arange(length)
    return np.unique(np.linspace(0, length - 1, points).round().astype(np.int64))


def cumulative_reward(comparison: Comparison, policy: str) -> Curve:
    """Σ of the rewards so far."""
    at = thin(comparison.slots)
    sums = [np.cumsum(comparison.runs[policy, s].rewards)[at] for s in comparison.seeds]
    return Curve.of(at + 1, sums)


def average_reward(comparison: Comparison, policy: str) -> Curve:
    """(1/t) Σ of the rewards so far."""
    at = thin(comparison.slots)
    sums = [np.cumsum(comparison.runs[policy, s].rewards)[at] for s in comparison.seeds]
    return Curve.of(at + 1, [total / (at + 1) for total in sums])


def comparator_average(comparison: Comparison, name: str) -> Curve:
    """Running average of a comparator; a constant where it was evaluated on some slots only."""
    each = [comparison.comparators[name, s] for s in comparison.seeds]
    if any(c.slots.size < comparison.slots for c in each):
        ends = np.array([1, comparison.slots])
        return Curve(ends, np.full(2, np.mean([c.rewards.mean() for c in each])), None)
    at = thin(comparison.slots)
    sums = [np.cumsum(c.rewards[np.argsort(c.slots)])[at] for c in each]
    return Curve.of(at + 1, [total / (at + 1) for total in sums])


def ratio(comparison: Comparison, best: str, other: str) -> Curve:
    """Cumulative reward of one policy over that of another, seed by seed.

    Not a number wherever the other has earned nothing, or less, in some seed: a ratio then says
    nothing.
    """
    at = thin(comparison.slots)
    each = []
    for seed in comparison.seeds:
        over = np.cumsum(comparison.runs[best, seed].rewards)[at]
        under = np.cumsum(comparison.runs[other, seed].rewards)[at]
        each.append(np.divide(over, under, out=np.full(at.size, np.nan), where=under > 0))
    return Curve.of(at + 1, each)


def regret(comparison: Comparison, policy: str, versus: str) -> Curve:
    """Cumulative regret: the comparator's reward so far minus the policy's.

    Where the comparator was evaluated on some slots only, the mean difference on these is scaled to
    all slots so far, as :meth:`gangwise.Run.regret` does.
    """
    grid: Ints | None = None
    each: list[Floats] = []
    for seed in comparison.seeds:
        comparator = comparison.comparators[versus, seed]
        order = np.argsort(comparator.slots, kind="stable")
        slots = comparator.slots[order]
        difference = comparator.rewards[order] - comparison.runs[policy, seed].rewards[slots]
        played = slots + 1
        played[-1] = comparison.slots
        curve = np.cumsum(difference) / np.arange(1, slots.size + 1) * played
        if grid is None:
            grid = played[thin(played.size)]
        each.append(np.interp(grid, played, curve))
    assert grid is not None, "a comparison has at least one seed"
    return Curve.of(grid, each)


_MEANING = {
    "best_fixed": "the best decision that never changes, chosen with all arrivals known beforehand",
    "per_slot_optimum": "the best feasible decision of every single slot, with its arrivals known",
    "omniscient": "the best decision of every slot for one who knows what policies have to learn",
}
_TITLES = {
    "average-reward": "Average reward per slot so far",
    "cumulative-reward": "Cumulative reward",
    "ratio": "Cumulative reward of {best} over that of each other policy",
    "regret": "Cumulative regret against {versus}",
}


def has_share(comparison: Comparison, comparator: str) -> bool:
    """Whether a share of the comparator's reward says something: it earned in every seed."""
    return all(comparison.comparators[comparator, s].rewards.sum() > 0 for s in comparison.seeds)


def seeds_text(comparison: Comparison) -> str:
    """How many seeds, in words that a table's caption can use."""
    n = len(comparison.seeds)
    return "1 seed" if n == 1 else f"{n} seeds"


def about_interval(comparison: Comparison) -> str:
    """What the ± is."""
    if len(comparison.seeds) == 1:
        return "one seed: no confidence interval"
    return f"± is half the 95 % confidence interval over {seeds_text(comparison)}"


def summary(comparison: Comparison) -> str:
    """Who earned most, how near the optimum that is, and how far ahead of the others.

    >>> import gangwise
    >>> small = "ogasched-default-v1:servers=16,job_types=4"
    >>> summary(gangwise.compare(small, ["drf"], slots=5, seeds=[0]))
    'drf earned ... per slot, ... % of the per-slot optimum (1 seed).'
    """
    rows = comparison.table()
    best, others = rows[0], rows[1:]
    earned = "earned most:" if others else "earned"
    text = f"{best.policy} {earned} {estimate_text(best.reward, decimals_for([best.reward]))}"
    text += " per slot"
    names = comparison.comparator_names
    if names and has_share(comparison, names[-1]):
        share = number(100 * best.share_of[names[-1]].mean, 1)
        text += f", {share} % of the {plain(names[-1])}"
    ahead = [_ahead(best, other.policy) for other in others[:1] if other.policy in best.over]
    if len(others) > 1 and others[-1].policy in best.over:
        last = _ahead(best, others[-1].policy)
        ahead.append(f"{last}, the last of {len(rows)}")
    if ahead:
        paired = ", paired" if len(comparison.seeds) > 1 else ""
        text += f"; that is {' and '.join(ahead)} ({seeds_text(comparison)}{paired})."
    else:
        text += f" ({seeds_text(comparison)})."
    lead = best.over.get(others[0].policy) if others else None
    if lead is not None and lead.low is not None and lead.low <= 0:
        text += (
            f" Over these seeds the lead of {best.policy} over {others[0].policy} is within "
            "the confidence interval: it may be chance."
        )
    return text


def _ahead(best: Row, other: str) -> str:
    over = best.over[other]
    decimals = 1 if over.half is None else max(1, decimals_for([over]))
    half = "" if over.half is None else f" ± {number(over.half, decimals)}"
    return f"{number(over.mean, decimals)} %{half} more than {other}"


def about_comparator(comparison: Comparison, name: str) -> str:
    """What a comparator is, what it earns, how well that is proved, and its regret bounds."""
    reward = comparison.comparator_reward(name)
    n = max(comparison.comparators[name, s].slots.size for s in comparison.seeds)
    where = f"all {n:,} slots" if n >= comparison.slots else f"{n:,} of {comparison.slots:,} slots"
    meaning = f"{_MEANING[name]}; " if name in _MEANING else ""
    gap = comparison.gap(name)
    proof = "exact" if gap == 0 else f"proved to within {small_share(gap)}"
    text = (
        f"{name}: {meaning}{estimate_text(reward, decimals_for([reward]))} per slot on {where}, "
        f"{proof}."
    )
    measured = [(row.regret[name].mean, row.policy) for row in comparison.table()]
    for bound, value in comparison.bounds(name).items():
        text += (
            f" Theoretical bound on the regret against it ({bound}): {number(value.mean)}; "
            f"measured: from {number(min(measured)[0])} ({min(measured)[1]}) "
            f"to {number(max(measured)[0])} ({max(measured)[1]})."
        )
    return text


def figure_title(comparison: Comparison, stem: str) -> str:
    """What a figure shows."""
    names = comparison.comparator_names
    return _TITLES.get(stem, stem).format(
        best=comparison.table()[0].policy, versus=names[0] if names else ""
    )


def figure_caption(comparison: Comparison, stem: str) -> str:
    """How to read a figure."""
    many = len(comparison.seeds) > 1
    mean = (
        f"Mean over {seeds_text(comparison)}; bands are 95 % confidence intervals."
        if many
        else "One seed: no confidence interval."
    )
    if stem == "average-reward":
        partial = [
            name
            for name in comparison.comparator_names
            if comparison.comparators[name, comparison.seeds[0]].slots.size < comparison.slots
        ]
        text = f"All rewards up to a slot, divided by the slots so far. {mean}"
        if comparison.comparator_names:
            text += " Grey dashed lines are comparators"
            if partial:
                text += f"; {' and '.join(partial)}: the mean over a sample of the slots"
            text += "."
        return text
    if stem == "ratio":
        paired = "Paired: both policies met the same arrivals and noise. " if many else ""
        return f"Above 1, {comparison.table()[0].policy} has earned more so far. {paired}{mean}"
    if stem == "regret":
        name = comparison.comparator_names[0]
        text = f"Reward of the {plain(name)} so far minus the policy's; below 0 is better. {mean}"
        for bound, value in comparison.bounds(name).items():
            text += (
                f" The theoretical bound ({bound}) at slot {comparison.slots:,} is "
                f"{number(value.mean)}, outside the axes."
            )
        return text
    return mean


def styles(comparison: Comparison) -> dict[str, Style]:
    """The style of each policy, best policy first."""
    found = {}
    for rank, row in enumerate(comparison.table()):
        pattern = (rank + rank // len(COLOURS)) % len(LINES)
        width, dashes = LINES[pattern]
        found[row.policy] = Style(rank % len(COLOURS), width, dashes, 10 * pattern + 100)
    return found


_WIDTH, _HEIGHT = 8.6, 4.3
_DASHES = (7.0, 4.0)
_SETTLED = 0.05
"""Axes are fitted to what lies after this part of the slots: the first few averages jump."""


def comparison_figures(comparison: Comparison) -> dict[str, bytes]:
    """``average-reward``, ``cumulative-reward``, ``ratio`` and ``regret``, as PNG and SVG.

    A figure that has nothing to show is left out: ``ratio`` with one policy or where rewards are
    not positive, ``regret`` without a comparator. The same comparison gives the same SVG, byte for
    byte.

    Returns
    -------
    dict of str to bytes
        By the name of a file.
    """
    with settled():
        return {
            f"{stem}.{ending}": image(figure, ending)
            for stem, figure in _figures(comparison).items()
            for ending in ("png", "svg")
        }


def drawn_figures(comparison: Comparison, files: Mapping[str, bytes]) -> list[Drawn]:
    """Those of some figures that are SVG, with what they show."""
    stems = [name.removesuffix(".svg") for name in files if name.endswith(".svg")]
    return [
        Drawn(
            files[f"{stem}.svg"].decode(),
            figure_title(comparison, stem),
            figure_caption(comparison, stem),
        )
        for stem in stems
    ]


def _figures(comparison: Comparison) -> dict[str, Figure]:
    looks = styles(comparison)
    best = next(iter(looks))
    names = comparison.comparator_names
    average = {p: average_reward(comparison, p) for p in looks}
    total = {p: cumulative_reward(comparison, p) for p in looks}
    over = {p: ratio(comparison, best, p) for p in looks if p != best}
    over = {p: curve for p, curve in over.items() if np.isfinite(curve.mean[-1])}
    found = {
        "average-reward": _line_figure(
            comparison,
            "average-reward",
            average,
            looks,
            "average reward per slot",
            {name: comparator_average(comparison, name) for name in names},
            settle=True,
        ),
        "cumulative-reward": _line_figure(
            comparison, "cumulative-reward", total, looks, "reward, summed over slots"
        ),
    }
    if over:
        found["ratio"] = _line_figure(
            comparison, "ratio", over, looks, f"{best} ÷ other policy", level=1.0, settle=True
        )
    if names:
        curve = {p: regret(comparison, p, names[0]) for p in looks}
        references = {"√t, for shape": shape} if (shape := _root(curve)) else {}
        found["regret"] = _line_figure(
            comparison, "regret", curve, looks, "regret, summed over slots", references, level=0.0
        )
    return found


def _root(regret: dict[str, Curve]) -> Curve | None:
    """A multiple of √t through the end of the largest regret, if that is positive."""
    largest = max(regret.values(), key=lambda curve: float(curve.mean[-1]))
    if largest.mean[-1] <= 0:
        return None
    grid = np.unique(np.linspace(1, largest.slots[-1], 200).round().astype(np.int64))
    return Curve(grid, largest.mean[-1] * np.sqrt(grid / grid[-1]), None)


def _line_figure(
    comparison: Comparison,
    stem: str,
    lines: dict[str, Curve],
    looks: dict[str, Style],
    unit: str,
    references: dict[str, Curve] | None = None,
    level: float | None = None,
    settle: bool = False,
) -> Figure:
    figure = Figure(figsize=(_WIDTH, _HEIGHT), facecolor="white")
    axes = figure.add_axes((0.09, 0.115, 0.61, 0.68))
    if level is not None:
        axes.axhline(level, color=MUTED, linewidth=0.8, zorder=1)
    labels = []
    for name, curve in (references or {}).items():
        line = Line2D(curve.slots, curve.mean, color=MUTED, linewidth=1.1, zorder=90)
        line.set_dashes(_DASHES)
        axes.add_line(line)
        labels.append(Label(float(curve.mean[-1]), name, MUTED, 1.1, _DASHES))
    for name, curve in lines.items():
        look_of = looks[name]
        line = Line2D(
            curve.slots,
            curve.mean,
            color=look_of.colour,
            linewidth=look_of.width,
            zorder=look_of.order,
            solid_capstyle="round",
        )
        if look_of.dashes:
            line.set_dashes(look_of.dashes)
        axes.add_line(line)
        if curve.half is not None:
            axes.fill_between(
                curve.slots,
                curve.mean - curve.half,
                curve.mean + curve.half,
                color=look_of.colour,
                alpha=0.12 if len(lines) < 6 else 0.05,
                linewidth=0,
                zorder=2,
            )
        end = float(curve.mean[-1])
        labels.append(Label(end, name, look_of.colour, look_of.width, look_of.dashes))
    shown = [*lines.values(), *(references or {}).values()]
    axes.set_xlim(0, comparison.slots if comparison.slots > 1 else 2)
    axes.set_ylim(*_limits(shown, comparison.slots * _SETTLED if settle else 0, level))
    _dress(figure, axes, comparison, stem, unit)
    place_labels(figure, axes, labels)
    return figure


def _dress(figure: Figure, axes: Axes, comparison: Comparison, stem: str, unit: str) -> None:
    """Title, axis labels, ticks and grid."""
    many = len(comparison.seeds) > 1
    band = f"mean of {seeds_text(comparison)}, band: 95 % confidence" if many else "one seed"
    scale, scale_name = scale_for(axes.get_ylim())
    unit = f"{unit}, {scale_name}" if scale_name else unit
    left, top = 0.02, axes.get_position().y1
    figure.text(
        left,
        0.94,
        figure_title(comparison, stem),
        color=INK,
        parse_math=False,
        fontsize=11.5,
        weight="bold",
    )
    figure.text(left, 0.885, f"{comparison.scenario.name}; {band}", color=MUTED, parse_math=False)
    figure.text(left, top + 0.03, unit, color=INK, parse_math=False)
    dress(axes, "slot", "")
    steps = [1, 2, 2.5, 5, 10]
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=steps))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=steps))
    for axis, divisor in ((axes.xaxis, 1.0), (axes.yaxis, scale)):
        ticks = axis.get_ticklocs() / divisor
        decimals = next((d for d in range(9) if np.allclose(ticks, ticks.round(d), 1e-6, 0)), 9)
        axis.set_major_formatter(
            FuncFormatter(lambda value, _, by=divisor, d=decimals: number(value / by, d))
        )


def _limits(shown: Sequence[Curve], after: float, level: float | None) -> tuple[float, float]:
    """Room for the means, and for their bands up to as much again on either side."""
    means, low, high = [], [], []
    for curve in shown:
        late = (curve.slots >= after) & np.isfinite(curve.mean)
        means.append(curve.mean[late])
        if curve.half is not None:
            low.append((curve.mean - curve.half)[late])
            high.append((curve.mean + curve.half)[late])
    middle = np.concatenate(means)
    bottom, top = float(middle.min()), float(middle.max())
    if level is not None:
        bottom, top = min(bottom, level), max(top, level)
    span = top - bottom or abs(top) or 1.0
    if low:
        bottom = max(min(bottom, float(np.concatenate(low).min())), bottom - span / 2)
        top = min(max(top, float(np.concatenate(high).max())), top + span / 2)
    return bottom - 0.04 * span, top + 0.04 * span


_MATRIX = 5
"""More policies than this, and only the best policy is compared with each other one."""


def sheets(comparison: Comparison) -> list[Sheet]:
    """The results, and the paired improvements where there is more than one policy."""
    found = [results_sheet(comparison)]
    if len(comparison.policies) > 1:
        found.append(improvement_sheet(comparison))
    return found


def results_sheet(comparison: Comparison) -> Sheet:
    """Reward, share of the optimum, regrets and time of each policy, best first."""
    rows = comparison.table()
    names = comparison.comparator_names
    columns = [("average\nreward\nper slot", estimate_cells([row.reward for row in rows]))]
    if names:
        optimum = names[-1]
        shares = [rescaled(row.share_of[optimum], 100) for row in rows]
        if not has_share(comparison, optimum):
            shares = [NONE] * len(rows)
        columns.append((f"share of\n{plain(optimum)}, %", estimate_cells(shares, least=1)))
    scale, unit = scale_for([row.regret[name].mean for row in rows for name in names])
    for name in names:
        regrets = [rescaled(row.regret[name], 1 / scale) for row in rows]
        heading = f"regret vs\n{name}" + (f"\nin {unit}" if unit else "")
        columns.append((heading, estimate_cells(regrets)))
    times = [time_cell(Estimate(row.us_per_slot, None, None)) for row in rows]
    columns.append(("µs per\nslot", times))
    return columns_sheet(
        f"{comparison.scenario.name}: {comparison.slots:,} slots, {seeds_text(comparison)}",
        [row.policy for row in rows],
        columns,
        (
            f"{about_interval(comparison).capitalize()}. Regret is the comparator's total reward "
            "minus the policy's: below 0 is better than the comparator.",
            *(about_comparator(comparison, name) for name in names),
        ),
    )


def improvement_sheet(comparison: Comparison) -> Sheet:
    """How much more each row earned than each column; of the best policy only, when many."""
    rows = comparison.table()
    best, policies = rows[0], [row.policy for row in rows]
    paired = "paired by seed; " if len(comparison.seeds) > 1 else ""
    caption = f"{paired}{about_interval(comparison)}".capitalize() + "."
    if any(len(row.over) < len(rows) - 1 for row in rows):
        caption += f" {NOTHING}: a percentage of a reward that is not positive says nothing."
    if len(rows) > _MATRIX:
        over = [best.over.get(policy, NONE) for policy in policies[1:]]
        cells = [(cell,) for cell in estimate_cells(over, sign=True, least=1)]
        return Sheet(
            f"Improvement of {best.policy} over each other policy, %",
            ("improvement",),
            tuple(zip(policies[1:], cells)),
            (caption,),
        )
    flat = [row.over.get(policy, NONE) for row in rows for policy in policies]
    every = estimate_cells(flat, sign=True, least=1)
    n = len(rows)
    cells_of = [tuple(Cell("") if i == j else every[i * n + j] for j in range(n)) for i in range(n)]
    return Sheet(
        "Improvement of the row over the column, %",
        tuple(policies),
        tuple(zip(policies, cells_of)),
        (caption,),
    )
