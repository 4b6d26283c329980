"""Figures of an experiment: curves over the slots of one cell, or panels of many cells.

Curves are computed per seed, then averaged, then thinned for drawing. Where every slot was kept
they are exact on every slot; otherwise they are known where sums so far were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator
from scipy.special import stdtrit

from gangwise.core.arrays import Floats, Ints
from gangwise.experiments.statistics import number, scale_for
from gangwise.report.numbers import Numbers, Path, Place, cell_text, count, plain
from gangwise.report.plotting import (
    COLOURS,
    INK,
    LINES,
    MUTED,
    PAGE_HEIGHT,
    PAGE_WIDTH,
    REFERENCE,
    Label,
    Panel,
    Style,
    dress,
    image,
    place_labels,
    plot_text,
    settled,
)
from gangwise.report.rendering import Drawn, pictured

POINTS = 240
"""Most points of a drawn line."""

BANDS = 5
"""More lines than this, and their bands lie on each other: a page shows the band of one at a time,
and differences as dots."""


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


Curves = dict[str, Curve]
"""Curves of one cell by policy."""

Averaged = Callable[[Ints, Floats], Floats]
"""What is drawn of sums so far, from the numbers of slots played and the sums."""


def cumulative_reward(numbers: Numbers, cell: Place, label: str) -> Curve | None:
    """Σ of the rewards so far; None where they are known on some of the slots only."""
    return _of_sums(numbers, cell, label, lambda played, sums: sums)


def average_reward(numbers: Numbers, cell: Place, label: str) -> Curve | None:
    """(1/t) Σ of the rewards so far; of a comparator on a sample of the slots, their mean."""
    curve = _of_sums(numbers, cell, label, lambda played, sums: sums / played)
    if curve is not None or not (paths := numbers.paths.get((cell, label))):
        return curve
    played = thin(max(path.slots for path in paths.values())) + 1
    mean = np.mean([path.columns["reward.slot"][1].mean() for path in paths.values()])
    return Curve(played, np.full(played.size, mean), None)


def _of_sums(numbers: Numbers, cell: Place, label: str, drawn: Averaged) -> Curve | None:
    known = [path.sums() for path in numbers.paths.get((cell, label), {}).values()]
    found = [each for each in known if each is not None]
    if not found or len(found) < len(known):
        return None
    at = thin(found[0][0].size)
    return Curve.of(found[0][0][at], [drawn(played[at], sums[at]) for played, sums in found])


def _paired(numbers: Numbers, cell: Place, one: str, other: str) -> list[tuple[Path, Path]]:
    """The runs of two in the seeds that both have."""
    a, b = numbers.paths.get((cell, one), {}), numbers.paths.get((cell, other), {})
    return [(a[seed], b[seed]) for seed in a if seed in b]


def ratio(numbers: Numbers, cell: Place, best: str, other: str) -> Curve | None:
    """Cumulative reward of one policy over that of another, seed by seed.

    Not a number wherever the other has earned nothing, or less, in some seed: a ratio then says
    nothing.
    """
    each = []
    for mine, theirs in _paired(numbers, cell, best, other):
        a, b = mine.sums(), theirs.sums()
        if a is None or b is None:
            return None
        at = thin(a[0].size)
        played, over, under = a[0][at], a[1][at], b[1][at]
        each.append(np.divide(over, under, out=np.full(at.size, np.nan), where=under > 0))
    return Curve.of(played, each) if each else None


def regret(numbers: Numbers, cell: Place, policy: str, versus: str) -> Curve | None:
    """Cumulative regret: the comparator's reward so far minus the policy's.

    Where the comparator was evaluated on some slots only, the mean difference on these is scaled to
    all slots so far, as :meth:`gangwise.Run.regret` does. None where the policy's rewards are not
    known there.
    """
    grid: Ints | None = None
    each: list[Floats] = []
    for mine, its in _paired(numbers, cell, policy, versus):
        ours, theirs = mine.sums(), its.sums()
        if ours is not None and theirs is not None and ours[0].size == theirs[0].size:
            played, curve = ours[0], theirs[1] - ours[1]
        elif (found := _sampled(mine, its)) is not None:
            played, curve = found
        else:
            return None
        if grid is None:
            grid = played[thin(played.size)]
        each.append(np.interp(grid, played, curve))
    return Curve.of(grid, each) if grid is not None else None


def _sampled(mine: Path, its: Path) -> tuple[Ints, Floats] | None:
    """Regret so far from the slots that a comparator was evaluated on."""
    if not ("reward.slot" in mine.columns and "reward.slot" in its.columns):
        return None
    slots, rewards = its.columns["reward.slot"]
    known, ours = mine.columns["reward.slot"]
    both, of_theirs, of_ours = np.intersect1d(slots, known, return_indices=True)
    if both.size < slots.size:
        return None
    played = both + 1
    played[-1] = mine.slots
    difference = rewards[of_theirs] - ours[of_ours]
    return played, np.cumsum(difference) / np.arange(1, both.size + 1) * played


_TITLES = {
    "average-reward": "Average reward per slot so far",
    "cumulative-reward": "Cumulative reward",
    "ratio": "Cumulative reward of {best} over that of each other policy",
    "regret": "Cumulative regret against {versus}",
}
AVERAGE = "All rewards up to a slot, divided by the slots so far."
PAIRED = "Paired: both policies met the same arrivals and noise."


def _below(versus: str) -> str:
    return f"Reward of the {plain(versus)} so far minus the policy's; below 0 is better."


def _band(numbers: Numbers, what: str = "Mean over", shown: str = "bands", many: int = 0) -> str:
    """What a line and its band are; ``many`` lines show the band of one at a time."""
    if len(numbers.seeds) == 1:
        return "One seed: no confidence interval."
    text = f"{what} {count(len(numbers.seeds), 'seed')}; "
    if many > BANDS:
        return text + "point at a name for the 95 % confidence interval of its line."
    return text + f"{shown} are 95 % confidence intervals."


def styles(numbers: Numbers) -> dict[str, Style]:
    """The style of each policy of one cell, best policy first."""
    found = {}
    for rank, policy in enumerate(numbers.ranking(numbers.cells[0])):
        pattern = (rank + rank // len(COLOURS)) % len(LINES)
        width, dashes = LINES[pattern]
        found[policy] = Style(rank % len(COLOURS), width, dashes, 10 * pattern + 100)
    return found


# One cell: a figure of lines named at their ends


_WIDTH, _HEIGHT = 8.6, 4.3
_SETTLED = 0.05
"""Axes are fitted to what lies after this part of the slots: the first few averages jump."""


@dataclass(frozen=True, eq=False)
class Lines:
    """A figure over the slots of one cell, to be drawn.

    Attributes
    ----------
    lines : dict of str to Curve
        By policy.
    references : dict of str to Curve
        Comparators, or shapes: grey and dashed.
    """

    title: str
    caption: str
    unit: str
    lines: Curves
    references: Curves
    level: float | None = None
    settle: bool = False
    log: bool = False


def figures(numbers: Numbers) -> list[Drawn]:
    """What a page shows: of one cell its curves, of many the objective by setting and panels."""
    if len(numbers.cells) == 1 and numbers.measured:
        shown = [*curves(numbers).values(), *bounded(numbers)]
        with settled():
            return [_page_figure(numbers, lines) for lines in shown]
    found = [_by_setting(numbers)]
    if numbers.measured:
        found.append(_average_panels(numbers))
    found += [_regret_panels(numbers, comparator) for comparator in numbers.results.comparators]
    return [each for each in found if each is not None]


def figure_files(numbers: Numbers) -> dict[str, bytes]:
    """The figures of one cell as PNG and SVG, by the name of a file.

    The same numbers give the same SVG, byte for byte.
    """
    with settled():
        return {
            f"{stem}.{ending}": image(figure, ending)
            for stem, lines in curves(numbers).items()
            for figure in [_line_figure(numbers, lines)]
            for ending in ("png", "svg")
        }


def curves(numbers: Numbers) -> dict[str, Lines]:
    """``average-reward``, ``cumulative-reward``, ``ratio`` and ``regret`` of one cell.

    What has nothing to show is left out: ``ratio`` with one policy or where rewards are not
    positive, ``regret`` without a comparator, all of them where runs are no slots.
    """
    (cell,), names = numbers.cells, numbers.results.comparators
    if not numbers.measured:
        return {}
    looks = styles(numbers)
    best = next(iter(looks))

    def each(of: Callable[[str], Curve | None], among: Sequence[str]) -> Curves:
        return {p: curve for p in among if (curve := of(p)) is not None}

    average = each(lambda p: average_reward(numbers, cell, p), list(looks))
    total = each(lambda p: cumulative_reward(numbers, cell, p), list(looks))
    over = each(lambda p: ratio(numbers, cell, best, p), [p for p in looks if p != best])
    over = {p: curve for p, curve in over.items() if np.isfinite(curve.mean[-1])}
    compared = each(lambda p: average_reward(numbers, cell, p), names)
    band, found = _band(numbers, many=len(looks) + len(names)), {}
    if average:
        found["average-reward"] = Lines(
            _TITLES["average-reward"],
            f"{AVERAGE} {band}{_about_references(numbers, cell)}",
            "average reward per slot",
            average,
            compared,
            settle=True,
        )
    if total:
        found["cumulative-reward"] = Lines(
            _TITLES["cumulative-reward"], band, "reward, summed over slots", total, {}
        )
    if over:
        paired = f"{PAIRED} " if len(numbers.seeds) > 1 else ""
        found["ratio"] = Lines(
            _TITLES["ratio"].format(best=best),
            f"Above 1, {best} has earned more so far. {paired}{band}",
            f"{best} ÷ other policy",
            over,
            {},
            level=1.0,
            settle=True,
        )
    against = each(lambda p: regret(numbers, cell, p, names[0]), list(looks)) if names else {}
    if against:
        says = f"{_below(names[0])} {band}"
        for bound, of in numbers.bounds(names[0]).items():
            says += (
                f" The theoretical bound ({bound}) at slot {numbers.slots:,} is "
                f"{number(of[cell, names[0]].mean)}, outside the axes."
            )
        found["regret"] = Lines(
            _TITLES["regret"].format(versus=names[0]),
            says,
            "regret, summed over slots",
            against,
            {"√t, for shape": shape} if (shape := _root(against)) else {},
            level=0.0,
        )
    return found


def bounded(numbers: Numbers) -> list[Lines]:
    """Regret beside what a theorem allows, both axes logarithmic; where it is positive."""
    (cell,), found = numbers.cells, []
    for versus in numbers.results.comparators:
        lines = {}
        for policy in styles(numbers):
            curve = regret(numbers, cell, policy, versus)
            if curve is not None and curve.mean[-1] > 0:
                mean = np.where(curve.mean > 0, curve.mean, np.nan)
                lines[policy] = Curve(curve.slots, mean, None)
        bounds = numbers.bounds(versus)
        if not lines or not bounds:
            continue
        at = np.unique(np.geomspace(1, numbers.slots, 60).round()).astype(np.int64)
        limits = {
            f"bound at the last slot ({name})": Curve(
                at, np.full(at.size, of[cell, versus].mean), None
            )
            for name, of in bounds.items()
        }
        shape = {"√t, for shape": root} if (root := _root(lines)) else {}
        says = (
            "Both axes are logarithmic: regret that grows as √t has the slope of the line of that "
        )
        says += (
            "name, regret that grows with every slot is twice as steep. Only what is above 0 is "
        )
        says += "drawn. The theorem is about the paper's own algorithm."
        title = f"Regret against {versus} and its bound"
        unit = "regret, summed over slots"
        found.append(Lines(title, says, unit, lines, limits | shape, log=True))
    return found


def _about_references(numbers: Numbers, cell: Place) -> str:
    """What grey lines are."""
    names = numbers.results.comparators
    known = [(name, *numbers.evaluated(cell, name)) for name in names]
    partial = [name for name, n, slots in known if n < slots]
    if not names:
        return ""
    sampled = f"; {' and '.join(partial)}: the mean over a sample of the slots" if partial else ""
    return f" Grey dashed lines are comparators{sampled}."


def _root(regret: dict[str, Curve]) -> Curve | None:
    """A multiple of √t through the end of the largest regret, if that is positive."""
    largest = max(regret.values(), key=lambda curve: float(curve.mean[-1]))
    if largest.mean[-1] <= 0:
        return None
    grid = np.unique(np.linspace(1, largest.slots[-1], 200).round().astype(np.int64))
    return Curve(grid, largest.mean[-1] * np.sqrt(grid / grid[-1]), None)


def _line_figure(numbers: Numbers, drawn: Lines) -> Figure:
    """A picture that stands alone: its lines are named at their ends."""
    figure = Figure(figsize=(_WIDTH, _HEIGHT), facecolor="white")
    axes = figure.add_axes((0.09, 0.115, 0.61, 0.68))
    looks = _draw(axes, numbers, drawn)
    _dress(figure, axes, numbers, drawn)
    every = drawn.references | drawn.lines
    labels = [
        Label(
            float(curve.mean[-1]), name, looks[name].colour, looks[name].width, looks[name].dashes
        )
        for name, curve in every.items()
    ]
    place_labels(figure, axes, labels)
    return figure


def _page_figure(numbers: Numbers, drawn: Lines) -> Drawn:
    """The same for a page, which names the lines itself."""
    figure = Figure((PAGE_WIDTH, PAGE_HEIGHT), facecolor="white", layout="constrained")
    axes = figure.subplots()
    looks = _draw(axes, numbers, drawn)
    if drawn.log:
        dress(axes, "slot", "")
    unit = drawn.unit if drawn.log else _ticks(axes, drawn.unit)
    axes.set_title(unit, loc="left", fontsize=9.5, color=INK, parse_math=False)
    return Drawn((plot_text(figure, axes),), drawn.title, drawn.caption, looks)


def _draw(axes: Axes, numbers: Numbers, drawn: Lines) -> dict[str, Style]:
    """Lines with their bands, tagged in the order of what is returned: how each looks."""
    looks = {name: look for name, look in styles(numbers).items() if name in drawn.lines}
    looks |= dict.fromkeys(drawn.references, REFERENCE)
    if drawn.level is not None:
        axes.axhline(drawn.level, color=MUTED, linewidth=0.8, zorder=1)
    if drawn.log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    every = drawn.lines | drawn.references
    for i, (name, look) in enumerate(looks.items()):
        curve = every[name]
        line = Line2D(
            curve.slots,
            curve.mean,
            color=look.colour,
            linewidth=look.width,
            zorder=look.order,
            solid_capstyle="round",
            gid=f"line{i}",
        )
        if look.dashes:
            line.set_dashes(look.dashes)
        axes.add_line(line)
        if curve.half is not None and not drawn.log:
            axes.fill_between(
                curve.slots,
                curve.mean - curve.half,
                curve.mean + curve.half,
                color=look.colour,
                alpha=0.12 if len(drawn.lines) <= BANDS else 0.05,
                linewidth=0,
                zorder=2,
                gid=f"band{i}",
            )
    if drawn.log:
        low = min(float(np.nanmin(curve.mean)) for curve in every.values())
        high = max(float(np.nanmax(curve.mean)) for curve in every.values())
        axes.set_xlim(1, max(numbers.slots, 2))
        axes.set_ylim(max(low, high * 1e-6) / 1.3, high * 1.3)
        return looks
    axes.set_xlim(0, max(numbers.slots, 2))
    after = numbers.slots * _SETTLED if drawn.settle else 0
    axes.set_ylim(*_limits(list(every.values()), after, drawn.level))
    return looks


def _dress(figure: Figure, axes: Axes, numbers: Numbers, drawn: Lines) -> None:
    """Title, axis labels, ticks and grid of a picture that stands alone."""
    n = len(numbers.seeds)
    band = f"mean of {n} seeds, band: 95 % confidence" if n > 1 else "one seed"
    where = [
        numbers.scenario()[0],
        *(f"{k} = {v}" for k, v in zip(numbers.results.cells, numbers.cells[0])),
    ]
    unit = _ticks(axes, drawn.unit)
    left, top = 0.02, axes.get_position().y1
    figure.text(left, 0.94, drawn.title, color=INK, parse_math=False, fontsize=11.5, weight="bold")
    figure.text(left, 0.885, f"{', '.join(where)}; {band}", color=MUTED, parse_math=False)
    figure.text(left, top + 0.03, unit, color=INK, parse_math=False)


def _ticks(axes: Axes, unit: str) -> str:
    """Round numbers on both axes; what the values are in."""
    scale, scale_name = scale_for(axes.get_ylim())
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
    return f"{unit}, {scale_name}" if scale_name else unit


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


# Many cells: panels


MOST = 9
"""Panels of a figure."""


def _by_setting(numbers: Numbers) -> Drawn | None:
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
        ("Reward per slot" if numbers.measured else numbers.ranked_by)
        + (f" by {label}" if label else " in each cell"),
        rows,
        [
            Panel(name, label, numbers.ranked_by, "bars" if kind == "bars" else "points")
            for name in shown
        ],
        more,
        _band(numbers, shown="bars"),
    )


def _panels_of(
    numbers: Numbers,
    title: str,
    y: str,
    caption: str,
    labels: Sequence[str],
    of: Callable[[Place, str], Curve | None],
    level: float | None = None,
    after: float = 0.0,
) -> Drawn | None:
    """A panel for each cell, with a curve for each label; None without any curve."""
    names, cells, rows = numbers.results.cells, numbers.cells[:MOST], []
    for label in labels:
        for cell in cells:
            if (curve := of(cell, label)) is not None:
                late = curve.slots >= after * numbers.slots
                half = curve.half if curve.half is not None else np.full(curve.mean.size, np.nan)
                low, high = curve.mean - half, curve.mean + half
                where = cell_text(names, cell)
                columns = (curve.slots[late], curve.mean[late], low[late], high[late])
                rows += [(where, label, *each) for each in zip(*(c.tolist() for c in columns))]
    if not rows:
        return None
    panels = [Panel(cell_text(names, cell), "slot", y, level=level) for cell in cells]
    return _drawn(numbers, title, rows, panels, len(numbers.cells) - MOST, caption)


def _average_panels(numbers: Numbers) -> Drawn | None:
    return _panels_of(
        numbers,
        "Average reward so far",
        "average reward per slot",
        f"{AVERAGE} {_band(numbers, 'Means of', many=len(numbers.drawn))}",
        [*numbers.drawn, *numbers.results.comparators],
        lambda cell, label: average_reward(numbers, cell, label),
        after=_SETTLED,
    )


def _regret_panels(numbers: Numbers, comparator: str) -> Drawn | None:
    says = f"{_below(comparator)} {_band(numbers, 'Means of', many=len(numbers.drawn))}"
    for name, bounds in numbers.bounds(comparator).items():
        least = min(bound.mean for bound in bounds.values())
        says += f" The bound ({name}) at the last slot is {number(least)} or more."
    return _panels_of(
        numbers,
        f"Regret against {comparator} so far",
        "regret, summed",
        says,
        numbers.drawn,
        lambda cell, label: regret(numbers, cell, label, comparator),
        level=0.0,
    )


def _drawn(
    numbers: Numbers,
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
    return pictured(title, table, panels, caption)
