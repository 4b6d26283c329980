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
from gangwise.report.sweeps import SweepNumbers
from gangwise.report.tables import NONE, Cell, Sheet, estimate_cells, time_cell

BEST, AS_IS = COLOURS[1][0], COLOURS[0][0]


def tuning_figure(tuning: Tuning, title: str) -> str:
    """Every trial's metric against each of its arguments; the best and the default stand out."""
    across = min(len(tuning.knobs), MOST_IN_A_ROW)
    down = -(-len(tuning.knobs) // across)
    figure = Figure(
        figsize=(max(across * WIDTH, 1.6 * WIDTH), down * HEIGHT + 0.9),
        facecolor="white",
        layout="constrained",
    )
    grid = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
    for i, (axes, knob) in enumerate(zip(grid, tuning.knobs)):
        unit = tuning.metric if i % across == 0 else ""
        dress(axes, knob.name, unit)
        axes.set_xscale("log" if knob.log else "linear")
        _dots(axes, knob, tuning.trials, "trial", color=MUTED, s=18, alpha=0.7, linewidths=0)
        _dots(axes, knob, [tuning.default], "default", color=AS_IS, s=46, marker="D")
        _dots(axes, knob, [tuning.best], "best", color=BEST, s=110, marker="*")
        _ticks(axes, knob)
    for axes in grid[len(tuning.knobs) :]:
        axes.set_axis_off()
    name_lines(figure, title, grid[:1])
    return svg_text(figure)


def _dots(
    axes: Axes, knob: ParameterRange, trials: Sequence[Trial], label: str, **look: Any
) -> None:
    at = [trial.arguments[knob.name] for trial in trials]
    if knob.ends is None:
        place = {repr(choice): i for i, choice in enumerate(knob.choices)}
        at = [place.get(repr(value)) for value in at]
    else:
        low, high = knob.ends  # a default outside the range would leave no room for the trials
        at = [x if isinstance(x, int | float) and low <= x <= high else None for x in at]
    shown = [(x, trial.value) for x, trial in zip(at, trials) if x is not None]
    axes.scatter([x for x, _ in shown], [y for _, y in shown], label=label, **look)


def _ticks(axes: Axes, knob: ParameterRange) -> None:
    """Choices by name; few round numbers on a logarithmic axis, as they are written."""
    if knob.ends is None:
        axes.set_xticks(range(len(knob.choices)), [str(choice) for choice in knob.choices])
        axes.set_xlim(-0.6, len(knob.choices) - 0.4)
    elif knob.log:
        low, high = knob.ends
        axes.set_xlim(low / (high / low) ** 0.04, high * (high / low) ** 0.04)
        steps = (1.0, 2.0, 5.0) if high / low < 1000 else (1.0,)
        axes.xaxis.set_major_locator(LogLocator(subs=steps))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.minorticks_off()
    else:
        low, high = knob.ends
        room = 0.04 * (high - low)
        axes.set_xlim(low - room, high + room)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=isinstance(low, int)))


EDGE = 0.05
"""Values in this part of a range, at either end, are at its edge."""

PARTS = 3
"""Into how many parts of the same width a range is cut, to compare the trials in them."""


def tuning_byline(tuning: Tuning, numbers: SweepNumbers) -> str:
    """What was tuned, and how much was played."""
    n, k = len(tuning.trials), len(tuning.knobs)
    return ", ".join(
        [
            f"{tuning.policy} on {numbers.scenario()[0]}",
            "1 trial" if n == 1 else f"{n} trials",
            "1 knob" if k == 1 else f"{k} knobs",
            _seeds(tuning),
            f"{numbers.results.runs[0]['slots']:,} slots",
            f"gangwise {', '.join(numbers.run_versions)}",
        ]
    )


def tuning_parts(tuning: Tuning, numbers: SweepNumbers) -> dict[str, Any]:
    """What the page of a tuning shows.

    Parameters
    ----------
    tuning : Tuning
    numbers : SweepNumbers
        Of the experiment of its trials.
    """
    title = f"{tuning.metric} by knob"
    caption = (
        f"A dot is the mean of a trial over {_seeds(tuning)}. Trials differ in the other knobs too."
    )
    with settled():
        figure = tuning_figure(tuning, title)
    return {
        "metric": tuning.metric,
        "edges": edges(tuning),
        "arguments": arguments_sheet(tuning),
        "figure": Drawn(figure, title, caption),
        "ranges": knobs_sheet(tuning),
        "trials": trials_sheet(tuning, numbers),
    }


def _seeds(tuning: Tuning) -> str:
    return "1 seed" if len(tuning.seeds) == 1 else f"{len(tuning.seeds)} seeds"


def edges(tuning: Tuning) -> list[str]:
    """A sentence for each knob whose best value is at an end of its range, or one that none is."""
    found = []
    for knob in tuning.knobs:
        value = {knob.name: tuning.best.arguments[knob.name]}
        if end := _edge(knob, value[knob.name]):
            found.append(
                f"The best trial has {said(value)}, at the {end} end of its range "
                f"({_text(knob.low)} to {_text(knob.high)}): better values may lie beyond it."
            )
    ranges = [knob for knob in tuning.knobs if knob.ends]
    if ranges and not found:
        found.append("No knob of the best trial is at an end of its range.")
    return found


def arguments_sheet(tuning: Tuning) -> Sheet:
    """Each knob: its range, the default, the best trial, and what the best quarter has."""
    best = tuning.trials[: max(1, len(tuning.trials) // 4)]
    rows = []
    for knob in tuning.knobs:
        value, edge = tuning.best.arguments[knob.name], ""
        if knob.ends:
            edge = _edge(knob, value)
            edge = f"at the {edge} end" if edge else "inside its range"
        rows.append(
            (
                knob.name,
                (
                    Cell(_range(knob), words=True),
                    Cell(_value(tuning.default.arguments[knob.name]).text),
                    Cell(_value(value).text),
                    Cell(_span(knob, best)),
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
        "knob",
    )


def knobs_sheet(tuning: Tuning) -> Sheet:
    """The metric of the trials in each part of each range, and with each choice."""
    parts = [(knob, part) for knob in tuning.knobs for part in _parts(knob, tuning.trials)]
    values = [[trial.value for trial in part] for _, part in parts]
    best = min if tuning.minimise else max
    means = estimate_cells([Estimate(math.fsum(v) / len(v), None, None) for v in values])
    tops = estimate_cells([Estimate(best(v), None, None) for v in values])
    rows = tuple(
        (knob.name, (Cell(_span(knob, part)), Cell(str(len(part)), len(part)), mean, top))
        for (knob, part), mean, top in zip(parts, means, tops)
    )
    return Sheet(
        f"{tuning.metric} in each part of each range",
        ("values tried", "trials", "mean", "best"),
        rows,
        (
            "Trials differ in the other knobs too, and more are tried where earlier ones did well: "
            "a difference is a hint, not a comparison. "
            + ("Less is better." if tuning.minimise else "More is better."),
        ),
        "knob",
    )


def trials_sheet(tuning: Tuning, numbers: SweepNumbers) -> Sheet:
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
            (knob.name, [_value(trial.arguments[knob.name]) for trial in shown])
            for knob in tuning.knobs
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


def _place(knob: ParameterRange, value: Any) -> float:
    """Where a value lies in its range, 0 to 1."""
    assert knob.ends is not None, "choices have no order"
    low, high = knob.ends
    if knob.log:
        return math.log(value / low) / math.log(high / low)
    return float((value - low) / (high - low))


def _edge(knob: ParameterRange, value: Any) -> str:
    if knob.ends is None:
        return ""
    place = _place(knob, value)
    return "lower" if place <= EDGE else "upper" if place >= 1 - EDGE else ""


def _parts(knob: ParameterRange, trials: Sequence[Trial]) -> list[list[Trial]]:
    """Trials by part of the range, or by choice; parts that were not tried are left out."""
    if knob.ends is None:
        by = {
            i: [t for t in trials if repr(t.arguments[knob.name]) == repr(choice)]
            for i, choice in enumerate(knob.choices)
        }
    else:
        place = {
            t.number: min(int(PARTS * _place(knob, t.arguments[knob.name])), PARTS - 1)
            for t in trials
        }
        by = {i: [t for t in trials if place[t.number] == i] for i in range(PARTS)}
    return [part for part in by.values() if part]


def _range(knob: ParameterRange) -> str:
    if knob.ends is None:
        return ", ".join(map(str, knob.choices))
    return f"{_text(knob.low)} to {_text(knob.high)}{', logarithmic' if knob.log else ''}"


def _span(knob: ParameterRange, trials: Sequence[Trial]) -> str:
    """The values that some trials have."""
    values = [trial.arguments[knob.name] for trial in trials]
    if knob.ends is None:
        return ", ".join(str(c) for c in knob.choices if repr(c) in map(repr, values))
    low, high = _text(min(values)), _text(max(values))
    return low if low == high else f"{low} to {high}"


def _value(value: Any) -> Cell:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(_text(value), float(value))
    return Cell(str(value), words=True)


def _text(value: float) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
