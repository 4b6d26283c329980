"""What a tuning found: the best arguments, how the metric moves with each, every trial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gangwise.experiments.replay_scenario import EVERY
from gangwise.experiments.results import Results
from gangwise.experiments.statistics import NOTHING, UNKNOWN, Estimate, count, enumerated
from gangwise.experiments.tune import DEFAULT, ParameterRange, Trial, Tuning, arguments_text, labels
from gangwise.report.experiments import ShownExperiment
from gangwise.report.page import Chapter, Plot, Section, Text, Values, pictured, terms
from gangwise.report.plotting import Panel, Style
from gangwise.report.tables import (
    Cell,
    Sheet,
    columns_sheet,
    estimate_cells,
    setting_cell,
    time_cell,
)
from gangwise.report.words import glossary, in_words, words

EDGE = 0.05
"""Values in this part of a range, at either end, are at its edge."""

MARKS = {
    "trial": Style(-1, 5.0, order=2),
    "best trial": Style(1, 5.0, order=4),
    "default": Style(0, 5.0, order=3),
}
"""How trials are drawn."""


def tuning_chapter(tuning: Tuning, shown: ShownExperiment) -> Chapter:
    results = shown.results
    name, settings = results.scenario()
    played = [
        name,
        count(len(tuning.trials), "trial"),
        count(len(tuning.ranges), "argument"),
        count(len(tuning.seeds), "seed"),
        *(count(n, "slot") for n in {results.runs[0]["slots"]} if n > 1),
        f"gangwise {', '.join(results.run_versions)}",
    ]
    tuned = enumerated([arg.name for arg in tuning.ranges])
    return Chapter(
        f"Which {tuned} suit{'s' * (len(tuning.ranges) == 1)} {tuning.policy}",
        ", ".join(played),
        [
            terms(glossary(results.family, settings, [])),
            Section("Best arguments", [*map(Text, edges(tuning)), arguments_sheet(tuning)]),
            Section("How the metric changes with each argument", [tuning_figure(tuning)]),
            Section("Trials", [trials_sheet(tuning, results)]),
            Section("Scenario", [Values(shown.scenario)]),
            shown.made,
        ],
    )


def tuning_figure(tuning: Tuning) -> Plot:
    gains = [_gain(tuning, trial) for trial in tuning.trials]
    percent = all(unit for _, unit in gains)
    kinds = {
        "trial": [*zip(tuning.trials, gains)][1:],
        "best trial": [(tuning.best, gains[0])],
        "default": [(tuning.default, (Estimate(0.0, None, None), percent))],
    }
    unit = "% better than the default" if percent else "better than the default"
    rows: list[tuple[Any, ...]] = []
    panels = []
    for arg in tuning.ranges:
        choices = tuple(map(str, arg.choices)) if arg.ends is None else ()
        panels.append(
            Panel(
                arg.name, arg.name, unit, "dots", arg.log, level=0.0, ends=arg.ends, choices=choices
            )
        )
        for kind, trials in kinds.items():
            for trial, (gain, of) in trials:
                x = _position(arg, trial.arguments[arg.name])
                if x is not None and of == percent:
                    rows.append((arg.name, kind, x, *gain))
    names = ", ".join(arg.name for arg in tuning.ranges)
    caption = f"A dot is a trial, compared with the default {_each(tuning)} by {_each(tuning)}"
    if len(tuning.seeds) > 1:
        caption += "; lines are 95 % confidence intervals"
    if len(tuning.ranges) > 1:
        caption += ". Trials differ in the other arguments too"
    caption += f". These {_each(tuning)}s chose the best trial, which looks better than it is."
    title = f"Gain in {in_words(tuning.metric)} over the default, by {names}"
    return pictured(title, rows, panels, caption, MARKS)


def _position(arg: ParameterRange, value: Any) -> float | None:
    """Where a value is on the axis; a default outside the range would leave no room for trials."""
    if arg.ends is None:
        places = {repr(choice): float(i) for i, choice in enumerate(arg.choices)}
        return places.get(repr(value))
    low, high = arg.ends
    return float(value) if isinstance(value, int | float) and low <= value <= high else None


def _gain(tuning: Tuning, trial: Trial) -> tuple[Estimate, bool]:
    row = tuning.over_default(trial)
    if row is None:
        return Estimate(0.0, None, None), (np.asarray(tuning.default.values) > 0).all().item()
    return Estimate.of(row), row["percent"]


def edges(tuning: Tuning) -> list[str]:
    """A sentence for each argument that is best at an end of its range, or one that none is."""
    found = []
    for arg in tuning.ranges:
        value = tuning.best.arguments[arg.name]
        if end := _edge(arg, value):
            best = arguments_text({arg.name: value})
            found.append(
                f"The best trial has {best}, at the {end} end of its range "
                f"({_text(arg.low)} to {_text(arg.high)}): better values may lie beyond it."
            )
    if any(arg.ends for arg in tuning.ranges) and not found:
        found.append("No argument of the best trial is at an end of its range.")
    return found


def arguments_sheet(tuning: Tuning) -> Sheet:
    best = tuning.trials[: max(1, len(tuning.trials) // 4)]
    columns: dict[str, list[Cell]] = {}
    for arg in tuning.ranges:
        value = tuning.best.arguments[arg.name]
        edge = f"at the {end} end" if (end := _edge(arg, value)) else "inside its range"
        ends = f"{_text(arg.low)} to {_text(arg.high)}{', logarithmic' if arg.log else ''}"
        row = {
            "range": Cell(ends if arg.ends else ", ".join(map(str, arg.choices)), words=True),
            "default": Cell(_text(tuning.default.arguments[arg.name])),
            "best trial": Cell(_text(value)),
            f"best {len(best)} trials": Cell(_span_of_values(arg, best)),
            "the best is": Cell(edge if arg.ends else NOTHING, words=True),
        }
        for heading, cell in row.items():
            if heading != "best 1 trials":
                columns.setdefault(heading, []).append(cell)
    names = [arg.name for arg in tuning.ranges]
    title = "Arguments of the default and of the best trial"
    return columns_sheet(title, names, list(columns.items()), (), "argument")


def trials_sheet(tuning: Tuning, results: Results) -> Sheet:
    shown = list(tuning.trials)
    if tuning.default not in shown:
        shown.append(tuning.default)
    tried = [dict(t.arguments) for t in sorted(tuning.trials, key=lambda trial: trial.number)]
    called = [*labels(tried, tuning.default.arguments), DEFAULT]  # the last one is number −1
    rows = [tuning.over_default(trial) for trial in shown]
    percent = any(row and row["percent"] for row in rows)
    changes = [Estimate.of(row) if row and row["percent"] == percent else UNKNOWN for row in rows]
    metric = in_words(tuning.metric) + ", s" * (tuning.metric == EVERY)
    times = [results.of("us_per_slot").get(((), called[trial.number]), UNKNOWN) for trial in shown]
    columns = [
        *(
            (a.name, [setting_cell(trial.arguments[a.name], 3) for trial in shown])
            for a in tuning.ranges
        ),
        (metric, estimate_cells([trial.estimate for trial in shown])),
        (f"{'% ' * percent}better than\ndefault", estimate_cells(changes, sign=True, least=1)),
    ]
    if any(math.isfinite(each.mean) for each in times):
        columns.append(("µs per\nslot", [time_cell(each) for each in times]))
    name = {trial.number: str(trial.number) for trial in shown}
    default = tuning.default.number
    name[default] = "default" if default < 0 else f"{default}, the default"
    better = "Less" if tuning.minimise else "More"
    caption = words("captions")["trials"].replace("seed", _each(tuning))
    caption += f" {better} of the metric is better."
    title, names = (
        f"{len(tuning.trials)} trials, best first",
        [name[trial.number] for trial in shown],
    )
    return columns_sheet(title, names, columns, (caption,), "trial")


def _each(tuning: Tuning) -> str:
    return "part" if tuning.metric == EVERY else "seed"


def _edge(arg: ParameterRange, value: Any) -> str:
    """At which end of its range a value is; empty inside, and of choices, which have no order."""
    if arg.ends is None:
        return ""
    low, high = map(math.log, arg.ends) if arg.log else arg.ends
    place = ((math.log(value) if arg.log else value) - low) / (high - low)
    return "lower" if place <= EDGE else "upper" if place >= 1 - EDGE else ""


def _span_of_values(arg: ParameterRange, trials: Sequence[Trial]) -> str:
    values = [trial.arguments[arg.name] for trial in trials]
    if arg.ends is None:
        return ", ".join(str(c) for c in arg.choices if repr(c) in map(repr, values))
    low, high = _text(min(values)), _text(max(values))
    return low if low == high else f"{low} to {high}"


def _text(value: Any) -> str:
    return setting_cell(value, 3).text
