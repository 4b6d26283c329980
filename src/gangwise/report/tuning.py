"""What a tuning found: the best arguments, how the metric moves with each, every trial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from gangwise.experiments.statistics import NOTHING, Estimate
from gangwise.experiments.tune import DEFAULT, ParameterRange, Trial, Tuning, labels, said
from gangwise.report.dots import Dots, dots
from gangwise.report.numbers import Numbers
from gangwise.report.plotting import (
    MUTED,
    PAGE_HEIGHT,
    PAGE_WIDTH,
    Style,
    dress,
    plot_text,
    settled,
)
from gangwise.report.rendering import Drawn
from gangwise.report.tables import NONE, Cell, Sheet, estimate_cells, time_cell
from gangwise.report.words import enumerated, glossary, in_words, sentence_case


def tuning_figure(tuning: Tuning) -> Drawn:
    """How much better than the default each trial is against each argument, a plot for each."""
    gains = [_gain(tuning, trial) for trial in tuning.trials]
    percent = all(unit for _, unit in gains)
    kinds = {
        "trial": [*zip(tuning.trials, gains)][1:],
        "best trial": [(tuning.best, gains[0])],
        "default": [(tuning.default, (Estimate(0.0, None, None), percent))],
    }
    found = []
    with settled():
        for arg in tuning.ranges:
            figure = Figure((PAGE_WIDTH, PAGE_HEIGHT), facecolor="white", layout="constrained")
            axes = figure.subplots()
            axes.set_xscale("log" if arg.log else "linear")
            axes.axhline(0.0, color=MUTED, linewidth=0.8, zorder=1)
            for i, (kind, trials) in enumerate(kinds.items()):
                some = [(trial, gain) for trial, (gain, unit) in trials if unit == percent]
                _dots(axes, arg, some, i, MARKS[kind])
            title = arg.name if len(tuning.ranges) > 1 else ""
            dress(axes, arg.name, "% better than the default" if percent else BETTER, title)
            _ticks(axes, arg)
            found.append(plot_text(figure, axes, readable=arg.ends is not None))
    names = ", ".join(arg.name for arg in tuning.ranges)
    chosen = "A dot is a trial, compared with the default seed by seed"
    if len(tuning.seeds) > 1:
        chosen += "; lines are 95 % confidence intervals"
    if len(tuning.ranges) > 1:
        chosen += ". Trials differ in the other arguments too"
    chosen += ". These seeds chose the best trial, which looks better here than it is."
    title = f"Gain in {in_words(tuning.metric)} over the default, by {names}"
    return Drawn(tuple(found), title, chosen, {kind: MARKS[kind] for kind in kinds})


BETTER = "better than the default"

MARKS = {
    "trial": Style(-1, 5.0, (), 2),
    "best trial": Style(1, 5.0, (), 4),
    "default": Style(0, 5.0, (), 3),
}
"""How trials are drawn."""


def _gain(tuning: Tuning, trial: Trial) -> tuple[Estimate, bool]:
    """How much better a trial is than the default, and whether that is in per cent."""
    row = tuning.over_default(trial)
    if row is None:
        return Estimate(0.0, None, None), (np.asarray(tuning.default.values) > 0).all().item()
    return Estimate(row["mean"], row["low"], row["high"]), row["percent"]


def _dots(
    axes: Axes, arg: ParameterRange, trials: Sequence[tuple[Trial, Estimate]], tag: int, look: Style
) -> None:
    """Trials of a kind, tagged; their intervals behind them."""
    at: list[float | None] = [trial.arguments[arg.name] for trial, _ in trials]
    if arg.ends is None:
        place = {repr(choice): float(i) for i, choice in enumerate(arg.choices)}
        at = [place.get(repr(value)) for value in at]
    else:
        low, high = arg.ends  # a default outside the range would leave no room for the trials
        at = [x if isinstance(x, int | float) and low <= x <= high else None for x in at]
    shown = sorted((x, gain) for x, (_, gain) in zip(at, trials) if x is not None)
    axes.plot(
        [x for x, _ in shown],
        [gain.mean for _, gain in shown],
        linestyle="",
        marker="o",
        markersize=look.width,
        markeredgewidth=0,
        color=look.colour,
        zorder=look.order,
        gid=f"line{tag}",
    )
    ends = [
        (x, gain.low, gain.high)
        for x, gain in shown
        if gain.low is not None and gain.high is not None
    ]
    axes.vlines(
        [x for x, _, _ in ends],
        [low for _, low, _ in ends],
        [high for _, _, high in ends],
        color=look.colour,
        linewidth=1.0,
        zorder=look.order,
        gid=f"ends{tag}",
    )


def _ticks(axes: Axes, arg: ParameterRange) -> None:
    """Choices by name; few round numbers on a logarithmic axis, as they are written."""
    if arg.ends is None:
        axes.set_xticks(range(len(arg.choices)), [str(choice) for choice in arg.choices])
        axes.set_xlim(-0.6, len(arg.choices) - 0.4)
    elif arg.log:
        low, high = arg.ends
        axes.set_xlim(low / (high / low) ** 0.04, high * (high / low) ** 0.04)
        steps = (1.0, 2.0, 5.0) if high / low < 1000 else (1.0,)
        axes.xaxis.set_major_locator(LogLocator(subs=steps))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.minorticks_off()
    else:
        low, high = arg.ends
        room = 0.04 * (high - low)
        axes.set_xlim(low - room, high + room)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=isinstance(low, int)))


EDGE = 0.05
"""Values in this part of a range, at either end, are at its edge."""

PARTS = 3
"""Into how many parts of the same width a range is cut, to compare the trials in them."""


def tuning_head(tuning: Tuning, numbers: Numbers) -> dict[str, Any]:
    """Title, what was played, and what the words mean."""
    n, k = len(tuning.trials), len(tuning.ranges)
    scenario, settings = numbers.scenario()
    played = [
        scenario,
        "1 trial" if n == 1 else f"{n} trials",
        "1 argument" if k == 1 else f"{k} arguments",
        _seeds(tuning),
        f"{numbers.results.runs[0]['slots']:,} slots",
        f"gangwise {', '.join(numbers.run_versions)}",
    ]
    names = enumerated([arg.name for arg in tuning.ranges])
    return {
        "title": f"Which {names} suit{'s' * (k == 1)} {tuning.policy}",
        "byline": ", ".join(played),
        "lead": "",
        "words": glossary(numbers.family, settings, []),
    }


def tuning_parts(tuning: Tuning, numbers: Numbers) -> dict[str, Any]:
    """What the page of a tuning shows.

    Parameters
    ----------
    tuning : Tuning
    numbers : Numbers
        Of the experiment of its trials.
    """
    return {
        "edges": edges(tuning),
        "arguments": arguments_sheet(tuning),
        "figure": tuning_figure(tuning),
        "dots": tuning_dots(tuning),
        "ranges": ranges_sheet(tuning),
        "trials": trials_sheet(tuning, numbers),
    }


BEST = 12
"""Trials of the dot plot."""


def tuning_dots(tuning: Tuning) -> Dots | None:
    """The best trials over the default, paired by seed."""
    gains: dict[str, Estimate] = {}
    unit = _gain(tuning, tuning.best)[1]
    for trial in tuning.trials:
        gain, percent = _gain(tuning, trial)
        if percent == unit and tuning.over_default(trial) and len(gains) < BEST:
            gains.setdefault(said(trial.arguments), gain)
    head = f"Gain of {'the best' if len(tuning.trials) > BEST else 'each'} over the default"
    paired = "Paired by seed, on the seeds that chose the best: it looks better here than it is."
    if len(tuning.seeds) > 1:
        paired += " A line is the 95 % confidence interval; where it holds 0 the dot is hollow."
    return dots(f"{head}, {'%' if unit else in_words(tuning.metric)}", gains, paired)


def _seeds(tuning: Tuning) -> str:
    return "1 seed" if len(tuning.seeds) == 1 else f"{len(tuning.seeds)} seeds"


def edges(tuning: Tuning) -> list[str]:
    """A sentence for each argument that is best at an end of its range, or one that none is."""
    found = []
    for arg in tuning.ranges:
        value = {arg.name: tuning.best.arguments[arg.name]}
        if end := _edge(arg, value[arg.name]):
            found.append(
                f"The best trial has {said(value)}, at the {end} end of its range "
                f"({_text(arg.low)} to {_text(arg.high)}): better values may lie beyond it."
            )
    if any(arg.ends for arg in tuning.ranges) and not found:
        found.append("No argument of the best trial is at an end of its range.")
    return found


def arguments_sheet(tuning: Tuning) -> Sheet:
    """Each argument: its range, the default, the best trial, and what the best quarter has."""
    best = tuning.trials[: max(1, len(tuning.trials) // 4)]
    rows = []
    for arg in tuning.ranges:
        value, edge = tuning.best.arguments[arg.name], ""
        if arg.ends:
            edge = _edge(arg, value)
            edge = f"at the {edge} end" if edge else "inside its range"
        rows.append(
            (
                arg.name,
                (
                    Cell(_range(arg), words=True),
                    Cell(_value(tuning.default.arguments[arg.name]).text),
                    Cell(_value(value).text),
                    *([Cell(_span(arg, best))] if len(best) > 1 else []),
                    Cell(edge or NOTHING, words=True),
                ),
            )
        )
    several = [f"best {len(best)} trials"] if len(best) > 1 else []
    return Sheet(
        "Arguments of the default and of the best trial",
        ("range", "default", "best trial", *several, "the best is"),
        tuple(rows),
        (),
        "argument",
    )


def ranges_sheet(tuning: Tuning) -> Sheet:
    """The metric of the trials in each part of each range, and with each choice."""
    parts = [(arg, part) for arg in tuning.ranges for part in _parts(arg, tuning.trials)]
    values = [[trial.value for trial in part] for _, part in parts]
    best = min if tuning.minimise else max
    means = estimate_cells([Estimate(math.fsum(v) / len(v), None, None) for v in values])
    tops = estimate_cells([Estimate(best(v), None, None) for v in values])
    rows = tuple(
        (arg.name, (Cell(_span(arg, part)), Cell(str(len(part)), len(part)), mean, top))
        for (arg, part), mean, top in zip(parts, means, tops)
    )
    return Sheet(
        f"{sentence_case(in_words(tuning.metric))} in each part of each range",
        ("values tried", "trials", "mean", "best"),
        rows,
        (
            "Trials differ in the other arguments too, and more are tried where earlier ones did "
            "well: a difference is a hint, not a comparison. "
            + ("Less is better." if tuning.minimise else "More is better."),
        ),
        "argument",
    )


def trials_sheet(tuning: Tuning, numbers: Numbers) -> Sheet:
    """Every trial, best first: arguments, metric, change from the default, time."""
    shown = list(tuning.trials)
    if tuning.default not in shown:
        shown.append(tuning.default)
    tried = [dict(t.arguments) for t in sorted(tuning.trials, key=lambda trial: trial.number)]
    called = [*labels(tried, tuning.default.arguments), DEFAULT]  # the last one is number −1
    rows = [tuning.over_default(trial) for trial in shown]
    percent = any(row and row["percent"] for row in rows)
    changes = [
        Estimate(row["mean"], row["low"], row["high"])
        if row and row["percent"] == percent
        else NONE
        for row in rows
    ]
    times = [numbers.of("us_per_slot").get(((), called[trial.number]), NONE) for trial in shown]
    than = "% better than\ndefault" if percent else "better than\ndefault"
    columns = [
        *(
            (arg.name, [_value(trial.arguments[arg.name]) for trial in shown])
            for arg in tuning.ranges
        ),
        (in_words(tuning.metric), estimate_cells([trial.estimate for trial in shown])),
        (than, estimate_cells(changes, sign=True, least=1)),
        ("µs per\nslot", [time_cell(each) for each in times]),
    ]
    name = {trial.number: str(trial.number) for trial in shown}
    name[tuning.default.number] = (
        "default" if tuning.default.number < 0 else f"{tuning.default.number}, the default"
    )
    return Sheet(
        f"{len(tuning.trials)} trials, best first",
        tuple(heading for heading, _ in columns),
        tuple(
            (name[trial.number], tuple(cells[i] for _, cells in columns))
            for i, trial in enumerate(shown)
        ),
        (
            "± is half a 95 % confidence interval over seeds; differences from the default are "
            "paired by seed. "
            "The best of many trials looks better here than it is: these seeds chose it.",
        ),
        "trial",
    )


def _place(arg: ParameterRange, value: Any) -> float:
    """Where a value lies in its range, 0 to 1."""
    assert arg.ends is not None, "choices have no order"
    low, high = arg.ends
    if arg.log:
        return math.log(value / low) / math.log(high / low)
    return float((value - low) / (high - low))


def _edge(arg: ParameterRange, value: Any) -> str:
    if arg.ends is None:
        return ""
    place = _place(arg, value)
    return "lower" if place <= EDGE else "upper" if place >= 1 - EDGE else ""


def _parts(arg: ParameterRange, trials: Sequence[Trial]) -> list[list[Trial]]:
    """Trials by part of the range, or by choice; parts that were not tried are left out."""
    if arg.ends is None:
        by = {
            i: [t for t in trials if repr(t.arguments[arg.name]) == repr(choice)]
            for i, choice in enumerate(arg.choices)
        }
    else:
        place = {
            t.number: min(int(PARTS * _place(arg, t.arguments[arg.name])), PARTS - 1)
            for t in trials
        }
        by = {i: [t for t in trials if place[t.number] == i] for i in range(PARTS)}
    return [part for part in by.values() if part]


def _range(arg: ParameterRange) -> str:
    if arg.ends is None:
        return ", ".join(map(str, arg.choices))
    return f"{_text(arg.low)} to {_text(arg.high)}{', logarithmic' if arg.log else ''}"


def _span(arg: ParameterRange, trials: Sequence[Trial]) -> str:
    """The values that some trials have."""
    values = [trial.arguments[arg.name] for trial in trials]
    if arg.ends is None:
        return ", ".join(str(c) for c in arg.choices if repr(c) in map(repr, values))
    low, high = _text(min(values)), _text(max(values))
    return low if low == high else f"{low} to {high}"


def _value(value: Any) -> Cell:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(_text(value), float(value))
    return Cell(str(value), words=True)


def _text(value: float) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
