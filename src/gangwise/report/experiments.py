"""Tables and sections of an experiment: a comparison, one cell of a sweep, or many.

A page is the list :data:`SECTIONS`: each is a function of :class:`Shown`. A new section is a
function here and its name in that list. In tables the best policy of each cell comes first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gangwise.core.errors import StoreError
from gangwise.experiments.statistics import NOTHING, Estimate, count, decimals_for, scale_for
from gangwise.report.curves import PANELS, figures, styles
from gangwise.report.numbers import (
    At,
    Numbers,
    about_comparator,
    byline,
    cell_text,
    interval_text,
    lead,
    missing,
    plain,
    proved_text,
)
from gangwise.report.page import (
    Bullets,
    Chapter,
    Dots,
    Fold,
    Part,
    Section,
    Text,
    Values,
    dots,
    terms,
)
from gangwise.report.plotting import Style
from gangwise.report.tables import (
    NONE,
    Cell,
    Sheet,
    columns_sheet,
    estimate_cells,
    setting_cell,
    time_cell,
    value_cell,
)
from gangwise.report.words import (
    about_policy,
    about_scenario,
    about_scheduler,
    documentation,
    glossary,
    sentence_case,
    title,
    words,
)

MATRIX = 5
"""More policies than this in one cell, and only the best is compared with each other one."""

MOST_SENTENCES = 12
"""More cells than this, and sentences about single cells are folded away."""

Columns = list[tuple[str, list[Cell]]]


# Tables


def terminal_sheets(numbers: Numbers) -> list[Sheet]:
    """What every policy earned, and what the comparators are; of one cell also improvements."""
    captions = [about_comparator(numbers, name) for name in numbers.results.comparators]
    result = result_sheet(numbers)
    found = [replace(result, captions=(*result.captions, *captions))]
    if len(numbers.cells) == 1 and len(numbers.results.policies) > 1:
        found.append(improvement_sheet(numbers))
    return found


def metrics_sheet(numbers: Numbers) -> Sheet | None:
    """What else was measured of every policy in every cell; None where nothing was."""
    at, columns = numbers.at, []
    every = numbers.results.metrics if numbers.measured else []
    shown = [m for m in every if all(each in numbers.of(f"{m}.mean") for each in at)]
    if not shown:
        return None
    for metric in shown:
        of, share = numbers.of(f"{metric}.mean"), metric == "utilisation"
        heading = f"{metric}, %" if share else metric.replace("_", "\n")
        cells = estimate_cells([of[each] for each in at], False, *((1, 100) if share else (0, 1)))
        columns.append((heading, cells))
    meaning = words("metrics")
    means = "; ".join(f"{metric}: {meaning[metric]}" for metric in shown if metric in meaning)
    captions = [f"Means per slot. {sentence_case(means)}." if means else "Means per slot."]
    if numbers.family != "approximation_jobs":
        captions.append(words("captions")["slots"])
    return _policies_sheet("Beside the reward", numbers, at, columns, tuple(captions))


def result_sheet(numbers: Numbers) -> Sheet:
    """Every policy in every cell: the objective, what it is a share of, its regrets, its time.

    Where there are several cells, the lead over the first policy takes the place of the regrets,
    which have tables of their own.
    """
    results, at = numbers.results, numbers.at
    of, names, one = numbers.of(numbers.objective), results.comparators, len(numbers.cells) == 1
    columns: Columns = [(numbers.ranked_by, estimate_cells([of[each] for each in at]))]
    captions = [interval_text(numbers)]
    title = "Reward" if numbers.measured else numbers.ranked_by
    title += f" of every {numbers.deciders[0]} in every cell"
    if one:
        slots = f"{numbers.slots:,} slots, " if results.slotwise else ""
        title = f"{numbers.scenario()[0]}: {slots}{count(len(numbers.seeds), 'seed')}"
        columns += _judged(numbers, at)
        if names:
            captions[0] += f" {words('captions')['below'].format(comparator='comparator')}"
    else:
        captions[0] += f" Best {numbers.deciders[0]} of each cell first."
        if len(results.policies) > 1:
            base = results.policies[0]
            leads = [numbers.lead(base, each) for each in at]
            columns.append((f"% over\n{base}", estimate_cells(leads, sign=True, least=1)))
            met = "the same arrivals and noise" if results.slotwise else "the same jobs and rates"
            captions.append(f"The lead over {base} is paired by seed: {met}.")
    if proved := proved_text(numbers):
        captions.append(proved)
    for metric in results.losses:
        what, _, device = metric.partition(".")
        heading = f"{what}\n{device}-hours" if device else what
        columns.append((heading, estimate_cells([numbers.of(metric)[each] for each in at])))
    columns.append(_times(numbers, at))
    return _policies_sheet(title, numbers, at, columns, tuple(captions))


def _judged(numbers: Numbers, at: Sequence[At]) -> Columns:
    """Share of the last comparator, and regret against each that the policies can be held to."""
    names = numbers.results.comparators
    if not names:
        return []
    found = dict(_against(numbers))
    shares = [numbers.share(*each, names[-1]) or NONE for each in at]
    cells = estimate_cells(shares, least=1, factor=100)
    columns = [(f"share of\n{plain(names[-1])}, %", cells)]
    scale, unit = scale_for([regret[each].mean for regret in found.values() for each in at])
    for name, regret in found.items():
        heading = f"regret vs\n{name}" + (f"\nin {unit}" if unit else "")
        columns.append((heading, estimate_cells([regret[a] for a in at], factor=1 / scale)))
    return columns


def _against(numbers: Numbers) -> Iterator[tuple[str, Mapping[At, Estimate]]]:
    for name in numbers.results.comparators:
        try:
            yield name, numbers.against(name)[0]
        except StoreError:
            continue


def improvement_sheet(numbers: Numbers) -> Sheet:
    """How much more each row has than each column in one cell; of the best only, when many."""
    (cell,) = numbers.cells
    ranking = numbers.ranking(cell)
    best, *others = ranking
    one, what = numbers.deciders[0], "Change" if numbers.results.minimise else "Improvement"
    every = {
        (p, q): numbers.lead(q, (cell, p)) if p != q else NONE for p in ranking for q in ranking
    }
    caption = "Paired by seed; " * (len(numbers.seeds) > 1) + interval_text(numbers)
    if any(math.isnan(e.mean) for (p, q), e in every.items() if p != q):
        caption += f" {NOTHING}: a percentage of a value that is not positive says nothing."
    if len(ranking) > MATRIX:
        cells = estimate_cells([every[best, other] for other in others], sign=True, least=1)
        title = f"{what} of {best} over each other {one}, %"
        return columns_sheet(title, others, [("improvement", cells)], (caption,), one)
    flat = dict(zip(every, estimate_cells(list(every.values()), sign=True, least=1)))
    rows = tuple((p, tuple(Cell("") if p == q else flat[p, q] for q in ranking)) for p in ranking)
    title = f"{what} of the row over the column, %"
    return Sheet(title, tuple(ranking), rows, (caption,), one)


def regret_sheet(numbers: Numbers, comparator: str) -> Sheet:
    """Regret of every policy in every cell, and the theorem's bound on it.

    StoreError when runs of the comparator are missing.
    """
    regret, share = numbers.against(comparator)
    at = [each for each in numbers.at if each in regret]
    bounds = numbers.bounds(comparator)
    scale, unit = scale_for([regret[each].mean for each in at])
    inside = f"\nin {unit}" if unit else ""
    shares = [share.get(each, NONE) for each in at]
    columns = [
        (f"regret{inside}", estimate_cells([regret[a] for a in at], factor=1 / scale)),
        ("share of its\nreward, %", estimate_cells(shares, least=1, factor=100)),
    ]
    for name, of in bounds.items():
        bound = [of.get((cell, comparator), NONE).mean for cell, _ in at]
        scaled = [b / scale for b in bound]
        columns.append((f"bound{inside}", [value_cell(b, 0 if b >= 10 else 2) for b in scaled]))
        used = [100 * regret[a].mean / b for a, b in zip(at, bound)]
        columns.append((f"of bound\n{name}, %", [_used(each) for each in used]))
    says = words("captions")
    captions = [f"{says['below'].format(comparator=plain(comparator))} {interval_text(numbers)}"]
    if bounds:
        captions.append(says["bounds"].format(bounds=", ".join(bounds)))
    title = f"Regret against {comparator}"
    return _policies_sheet(title, numbers, at, columns, tuple(captions))


def _used(percent: float) -> Cell:
    return value_cell(percent, max(0, decimals_for([Estimate(percent, None, None)]) - 2))


def _times(numbers: Numbers, at: Sequence[At]) -> tuple[str, list[Cell]]:
    metric, heading = numbers.thinking
    return heading, [time_cell(numbers.of(metric).get(each, NONE)) for each in at]


def _policies_sheet(
    title: str, numbers: Numbers, at: Sequence[At], columns: Columns, captions: tuple[str, ...]
) -> Sheet:
    settings = [
        (name, [setting_cell(cell[i]) for cell, _ in at])
        for i, name in enumerate(numbers.results.cells)
    ]
    names = [policy for _, policy in at]
    return columns_sheet(title, names, [*settings, *columns], captions, numbers.deciders[0])


# Sections


@dataclass(frozen=True, eq=False)
class Shown:
    """An experiment, as the sections of its page take it."""

    numbers: Numbers
    anchor: str  # begins the names of what can be linked to; different for each experiment
    made: Section  # how to get the results again
    scenario: Mapping[str, Any]  # its settings

    @cached_property
    def looks(self) -> dict[str, Style]:
        return styles(self.numbers)

    @cached_property
    def anchors(self) -> dict[str, str]:
        policies = self.numbers.results.policies
        return {policy: f"{self.anchor}-policy-{i}" for i, policy in enumerate(policies)}

    def linked(self, sheet: Sheet) -> Sheet:
        """A table of policies with samples of their lines, which leads to them."""
        links = [self.anchors.get(name, "") for name, _ in sheet.rows]
        return replace(sheet, looks=self.looks, links=links)


def chapter(
    shown: Shown, fidelity: Sequence[str] = (), tied: bool = False, name: str = ""
) -> Chapter:
    """What a page tells of an experiment; if policies are ``tied``, it does not say who leads."""
    numbers = shown.numbers
    results = numbers.results
    scenario, settings = numbers.scenario()
    parts: list[Part] = [Text(line, "note") for line in fidelity]
    if not tied:
        parts.append(Text(lead(numbers), "lead"))
    parts.append(terms(glossary(numbers.family, settings, results.comparators)))
    if text := missing(results):
        parts.append(Text(text, "note"))
    verdicts = [] if tied else results.sentences()
    if len(verdicts) > MOST_SENTENCES:
        summary = f"The best policy of each cell against the next: {len(verdicts)} cells"
        parts.append(Fold(summary, [Bullets(verdicts)]))
    elif len(verdicts) > 1:
        parts.append(Bullets(verdicts))
    parts += [section for make in SECTIONS if (section := make(shown)) is not None]
    about = about_scenario(scenario)
    return Chapter(
        title(numbers.family, scenario, results.policies, numbers.deciders[1], results.cells),
        f"{about}: {byline(numbers)}" if about else byline(numbers),
        parts,
        name,
    )


def results_section(shown: Shown) -> Section:
    """Differences as dots, and what every policy earned."""
    numbers, one = shown.numbers, len(shown.numbers.cells) == 1
    result, times = result_sheet(numbers), words("captions")["times"]
    sheets = [replace(result, captions=(*result.captions, times)), metrics_sheet(numbers)]
    if one and 2 < len(numbers.results.policies) <= MATRIX:
        sheets.append(improvement_sheet(numbers))
    parts = [shown.linked(sheet) for sheet in sheets if sheet is not None]
    return Section("Results", [*differences(shown), *parts])


def differences(shown: Shown) -> list[Dots]:
    """Of one cell the lead of the best over each other; of many, each over the first policy."""
    numbers = shown.numbers
    results = numbers.results
    if len(results.policies) < 2:
        return []
    caption = words("captions")["dots" if len(numbers.seeds) > 1 else "one seed"]
    if len(numbers.cells) == 1:
        (cell,) = numbers.cells
        best, *others = numbers.ranking(cell)
        rows = {other: row for other in others if (row := numbers.over(other).get((cell, best)))}
        percent = all(row["percent"] for row in rows.values())
        of = {other: Estimate.of(row) for other, row in rows.items() if row["percent"] == percent}
        unit = "%" if percent else results.unit or "reward"
        what = f"{'Change' if results.minimise else 'Lead'} of {best} over each other, {unit}"
        return dots(what, of, caption, shown.looks)
    base, found = results.policies[0], []
    for cell in numbers.cells[:PANELS]:
        of = {
            policy: numbers.lead(base, (at, policy))
            for at, policy in numbers.over(base)
            if at == cell
        }
        what = f"More or less than {base}, %: {cell_text(results.cells, cell)}"
        found += dots(what, of, caption, shown.looks)
    return found


def figures_section(shown: Shown) -> Section | None:
    drawn = figures(shown.numbers)
    return Section("Figures", drawn) if drawn else None


def regrets_section(shown: Shown) -> Section | None:
    """Regret against each comparator beside the theorem's bound."""
    numbers = shown.numbers
    parts: list[Part] = []
    for name in numbers.results.comparators:
        try:
            sheet = shown.linked(regret_sheet(numbers, name))
            parts += [sheet, Text(about_comparator(numbers, name))]
        except StoreError as error:
            parts.append(Text(str(error), "note"))
    if not parts:
        return None
    says = Text(words("captions")["regret"])
    return Section("Regret and its bounds", [says, *parts])


def policies_section(shown: Shown) -> Section:
    numbers = shown.numbers
    page, address = documentation(numbers.family)
    says = Text(f"More about them in the documentation: `{page}`.", link=address)
    folds = [_policy(shown, policy) for policy in numbers.results.policies]
    return Section(sentence_case(numbers.deciders[1]), [says, *folds])


def _policy(shown: Shown, policy: str) -> Fold:
    numbers = shown.numbers
    about = (about_scheduler if numbers.family == "jobs" else about_policy)(policy)
    parts: list[Part] = [Text(about)] if about else []
    kind, arguments = numbers.configuration(policy)
    parts.append(Values({"class": kind, **arguments}, "Configuration"))
    return Fold(policy, parts, shown.anchors[policy], shown.looks.get(policy))


SECTIONS: list[Callable[[Shown], Section | None]] = [
    results_section,
    figures_section,
    regrets_section,
    policies_section,
    lambda shown: Section("Scenario", [Values(shown.scenario)]) if shown.scenario else None,
    lambda shown: shown.made,
]
"""Of a page about an experiment, in their order."""
