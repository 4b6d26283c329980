"""What a tuning found: the best arguments, how the metric moves with each, every trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from gangwise.experiments.statistics import NOTHING, Estimate
from gangwise.experiments.tune import DEFAULT, ParameterRange, Trial, Tuning, said
from gangwise.report.numbers import Numbers
from gangwise.report.plotting import (
    COLOURS,
    HEIGHT,
    MOST_IN_A_ROW,
    MUTED,
    WIDTH,
    dress,
    name_lines,
    settled,
    svg_text,
)
from gangwise.report.rendering import Drawn
from gangwise.report.tables import NONE, Cell, Sheet, estimate_cells, time_cell

BEST, AS_IS = COLOURS[1][0], COLOURS[0][0]


def tuning_figure(tuning: Tuning, title: str) -> str:
    """Every trial's metric against each of its arguments; the best and the default stand out."""
    across = min(len(tuning.ranges), MOST_IN_A_ROW)
    down = -(-len(tuning.ranges) // across)
    figure = Figure(
        figsize=(max(across * WIDTH, 1.6 * WIDTH), down * HEIGHT + 0.9),
        facecolor="white",
        layout="constrained",
    )
    grid = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
    for i, (axes, arg) in enumerate(zip(grid, tuning.ranges)):
        unit = tuning.metric if i % across == 0 else ""
        dress(axes, arg.name, unit)
        axes.set_xscale("log" if arg.log else "linear")
        _dots(axes, arg, tuning.trials, "trial", color=MUTED, s=18, alpha=0.7, linewidths=0)
        _dots(axes, arg, [tuning.default], "default", color=AS_IS, s=46, marker="D")
        _dots(axes, arg, [tuning.best], "best", color=BEST, s=110, marker="*")
        _ticks(axes, arg)
    for axes in grid[len(tuning.ranges) :]:
        axes.set_axis_off()
    name_lines(figure, title, grid[:1])
    return svg_text(figure)


def _dots(
    axes: Axes, arg: ParameterRange, trials: Sequence[Trial], label: str, **look: Any
) -> None:
    at = [trial.arguments[arg.name] for trial in trials]
    if arg.ends is None:
        place = {repr(choice): i for i, choice in enumerate(arg.choices)}
        at = [place.get(repr(value)) for value in at]
    else:
        low, high = arg.ends  # a default outside the range would leave no room for the trials
        at = [x if isinstance(x, int | float) and low <= x <= high else None for x in at]
    shown = [(x, trial.value) for x, trial in zip(at, trials) if x is not None]
    axes.scatter([x for x, _ in shown], [y for _, y in shown], label=label, **look)


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


def tuning_byline(tuning: Tuning, numbers: Numbers) -> str:
    """What was tuned, and how much was played."""
    n, k = len(tuning.trials), len(tuning.ranges)
    return ", ".join(
        [
            f"{tuning.policy} on {numbers.scenario()[0]}",
            "1 trial" if n == 1 else f"{n} trials",
            "1 argument" if k == 1 else f"{k} arguments",
            _seeds(tuning),
            f"{numbers.results.runs[0]['slots']:,} slots",
            f"gangwise {', '.join(numbers.run_versions)}",
        ]
    )


def tuning_parts(tuning: Tuning, numbers: Numbers) -> dict[str, Any]:
    """What the page of a tuning shows.

    Parameters
    ----------
    tuning : Tuning
    numbers : Numbers
        Of the experiment of its trials.
    """
    title = f"{tuning.metric} by argument"
    caption = (
        f"A dot is the mean of a trial over {_seeds(tuning)}. Trials differ in the other arguments "
        "too."
    )
    with settled():
        figure = tuning_figure(tuning, title)
    return {
        "metric": tuning.metric,
        "edges": edges(tuning),
        "arguments": arguments_sheet(tuning),
        "figure": Drawn((figure,), title, caption, titled=True),
        "ranges": ranges_sheet(tuning),
        "trials": trials_sheet(tuning, numbers),
    }


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
                    Cell(_span(arg, best)),
                    Cell(edge or NOTHING, words=True),
                ),
            )
        )
    of = "trial" if len(best) == 1 else f"{len(best)} trials"
    return Sheet(
        "Arguments of the default and of the best trial",
        ("range", "default", "best trial", f"best {of}", "the best is"),
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
        f"{tuning.metric} in each part of each range",
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
    changed = numbers.results.improvements(DEFAULT, tuning.metric)
    over = {row["policy"]: row for row in changed.iter_rows(named=True)}
    labels = _labels(tuning, numbers.results.policies)
    rows = [over.get(labels.get(trial.number, "")) for trial in shown]
    percent = any(row and row["percent"] for row in rows)
    changes = [
        Estimate(row["mean"], row["low"], row["high"])
        if row and row["percent"] == percent
        else NONE
        for row in rows
    ]
    times = [
        numbers.of("us_per_slot").get(((), labels.get(trial.number, "")), NONE) for trial in shown
    ]
    than = "% more than\ndefault" if percent else "more than\ndefault"
    columns = [
        *(
            (arg.name, [_value(trial.arguments[arg.name]) for trial in shown])
            for arg in tuning.ranges
        ),
        (tuning.metric, estimate_cells([Estimate(t.value, None, None) for t in shown])),
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
            "Changes from the default are paired by seed; ± is half their 95 % confidence "
            "interval. "
            "The best of many trials looks better here than it is: these seeds chose it.",
        ),
        "trial",
    )


def _labels(tuning: Tuning, policies: Sequence[str]) -> Mapping[int, str]:
    """What the runs of a trial are labelled: trials that repeat one share its runs."""
    numbered = {label.partition(":")[0]: label for label in policies}
    first: dict[str, str] = {repr(dict(tuning.default.arguments)): DEFAULT}
    found = {tuning.default.number: DEFAULT}
    for trial in sorted(tuning.trials, key=lambda trial: trial.number):
        own = numbered.get(f"trial {trial.number}", "")
        found[trial.number] = first.setdefault(repr(dict(trial.arguments)), own)
    return found


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
