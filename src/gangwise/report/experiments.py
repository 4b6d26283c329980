"""Tables, sentences and sections of an experiment: a comparison, a sweep, a tuning.

The page of an experiment is the list :data:`SECTIONS`, functions of :class:`ShownExperiment`. A new
section is a function here and its name in that list. In tables the best policy of each cell comes
first.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gangwise.core.errors import StoreError
from gangwise.report import curves, page, plotting, tables
from gangwise.report.page import title
from gangwise.report.tables import Cell, Columns, Sheet, columns_sheet, estimate_cells
from gangwise.study import statistics
from gangwise.study.replay_scenario import EVERY
from gangwise.study.results import TIMES, At, Place, Results
from gangwise.study.statistics import UNKNOWN, Estimate, count, decimals_for, estimate_text, number
from gangwise.study.tune import DEFAULT, ParameterRange, Trial, Tuning, arguments_text, labels

MATRIX = 5
"""Of more policies than this in one cell, only the best is compared with each of the others."""

MOST_SENTENCES = 12
"""With more cells than this, the sentences about single cells are folded away."""

# Tables


def terminal_sheets(results: Results) -> list[Sheet]:
    """Sheets of rewards of policies, and of comparators; of one cell also improvements."""
    captions = [about_comparator(results, name) for name in results.comparators]
    result = result_sheet(results)
    sheets = [replace(result, captions=(*result.captions, *captions))]
    if len(results.places) == 1 and len(results.policies) > 1:
        sheets.append(improvement_sheet(results))
    return sheets


def metrics_sheet(results: Results) -> Sheet | None:
    """Sheet of other metrics of every policy in every cell; None where there are none."""
    at, columns = results.ranked, []
    every = results.metrics if results.rewarded else []
    # A metric that some policies do not measure has no column.
    shown = [m for m in every if all(a in results.of(f"{m}.mean") for a in at)]
    if not shown:
        return None
    for metric in shown:
        means_of, share = results.of(f"{metric}.mean"), metric == "utilisation"
        heading = f"{metric}, %" if share else metric.replace("_", "\n")
        cells = estimate_cells([means_of[a] for a in at], False, *((1, 100) if share else (0, 1)))
        columns.append((heading, cells))
    meaning = page.words("metrics")
    means = "; ".join(f"{metric}: {meaning[metric]}" for metric in shown if metric in meaning)
    captions = [f"Means per slot. {page.sentence_case(means)}." if means else "Means per slot."]
    if results.family != "approximation_jobs":
        captions.append(page.phrase("slots"))
    return _policies_sheet("Where the reward comes from", results, at, columns, captions)


def result_sheet(results: Results, over: str = "") -> Sheet:
    """Every policy in every cell: the objective, what it is a share of, its regrets, its time.

    Where there are several cells, the lead over the first policy takes the place of the regrets,
    which have tables of their own; with ``over`` the lead over that one is shown in any case.
    """
    at, mean, names = results.ranked, results.of(results.objective), results.comparators
    single = len(results.places) == 1
    unit = ", s" * (not results.slotwise and results.objective.startswith(TIMES))
    heading = f"{page.in_words(results.objective)}{unit}"
    columns: Columns = [(heading, estimate_cells([mean[a] for a in at]))]
    captions = [statistics.over_seeds(len(results.seeds))]
    title = "Reward" if results.rewarded else page.in_words(results.objective)
    title += f" of every {results.deciders[0]} in every cell"
    if single:
        slots = f"{results.slots:,} slots, " if results.slotwise else ""
        title = f"{results.scenario()[0]}: {slots}{count(len(results.seeds), 'seed')}"
        columns += _against_comparators(results, at)
        if names:
            captions[0] += f" {page.phrase('below', comparator='comparator')}"
    else:
        captions[0] += f" Best {results.deciders[0]} of each cell first."
    if len(results.policies) > 1 and (over or not single):
        # The first policy of the experiment, unless another one is named.
        base = over or results.policies[0]
        leads = [results.lead(base, a) for a in at]
        columns.append((f"% over\n{base}", estimate_cells(leads, sign=True, least=1)))
        met = "the same arrivals and noise" if results.slotwise else "the same jobs and rates"
        captions.append(f"The lead over {base} is paired by seed: {met}.")
    if proved := proved_text(results):
        captions.append(proved)
    for metric in results.losses:
        loss, _, device = metric.partition(".")
        heading = f"{loss}\n{device}-hours" if device else loss
        columns.append((heading, estimate_cells([results.of(metric)[a] for a in at])))
    time, per = "microseconds per decision", "decision"
    if results.slotwise:
        time, per = "us_per_slot", "slot"
    times = [tables.time_cell(results.of(time).get(a, UNKNOWN)) for a in at]
    columns.append((f"µs per\n{per}", times))
    return _policies_sheet(title, results, at, columns, captions)


def _against_comparators(results: Results, at: Sequence[At]) -> Columns:
    """Share of the last comparator, and regret against each that the policies can be held to."""
    names, regrets = results.comparators, {}
    if not names:
        return []
    for name in names:
        # A comparator that was evaluated on other slots has no regret here.
        with suppress(StoreError):
            regrets[name] = results.versus(name)[0]
    # The last comparator is the strongest of its family.
    shares = [results.share(spot, names[-1]) for spot in at]
    cells = estimate_cells(shares, least=1, factor=100)
    columns = [(f"share of\n{page.plain(names[-1])}, %", cells)]
    # One unit for all regrets, so that their columns can be compared.
    every = [regret[spot].mean for regret in regrets.values() for spot in at]
    scale, unit = statistics.scale_for(every)
    for name, regret in regrets.items():
        heading = f"regret vs\n{page.plain(name)}" + (f"\nin {unit}" if unit else "")
        columns.append((heading, estimate_cells([regret[a] for a in at], factor=1 / scale)))
    return columns


def improvement_sheet(results: Results) -> Sheet:
    """Sheet of improvements of rows over columns in one cell; of the best only, when many."""
    (cell,) = results.places
    best, *rivals = ranking = results.ranking(cell)
    noun, change = results.deciders[0], "Change" if results.minimise else "Improvement"
    every = {
        (p, q): results.lead(q, (cell, p)) if p != q else UNKNOWN for p in ranking for q in ranking
    }
    caption = "Paired by seed; " * (len(results.seeds) > 1)
    caption += statistics.over_seeds(len(results.seeds))
    if any(math.isnan(e.mean) for (p, q), e in every.items() if p != q):
        nothing = "a percentage of a value that is not positive says nothing"
        caption += f" {statistics.NOTHING}: {nothing}."
    if len(ranking) > MATRIX:
        cells = estimate_cells([every[best, rival] for rival in rivals], sign=True, least=1)
        title = f"{change} of {best} over each other {noun}, %"
        return columns_sheet(title, rivals, [("improvement", cells)], (caption,), noun)
    # All at once, so that they have the same decimals.
    flat = dict(zip(every, estimate_cells(list(every.values()), sign=True, least=1)))
    rows = tuple((p, tuple(Cell("") if p == q else flat[p, q] for q in ranking)) for p in ranking)
    title = f"{change} of the row over the column, %"
    return Sheet(title, tuple(ranking), rows, (caption,), noun)


def regret_sheet(results: Results, comparator: str) -> Sheet:
    """Regret of every policy in every cell, and the theorem's bound on it.

    StoreError when runs of the comparator are missing.
    """
    regret, share = results.versus(comparator)
    at = [spot for spot in results.ranked if spot in regret]
    bounds = results.bounds(comparator)
    scale, unit = statistics.scale_for([regret[spot].mean for spot in at])
    inside = f"\nin {unit}" if unit else ""
    shares = [share[spot] for spot in at]
    columns = [
        (f"regret{inside}", estimate_cells([regret[a] for a in at], factor=1 / scale)),
        ("share of its\nreward, %", estimate_cells(shares, least=1, factor=100)),
    ]
    for name, limits in bounds.items():
        bound = [limits.get((cell, comparator), UNKNOWN).mean for cell, _ in at]
        scaled = [b / scale for b in bound]
        cells = [tables.value_cell(b, 0 if b >= 10 else 2) for b in scaled]
        columns.append((f"bound{inside}", cells))
        # How much of what the theorem allows was used.
        used = [100 * regret[a].mean / b for a, b in zip(at, bound)]
        decimals = [decimals_for([Estimate(spot, None, None)]) - 2 for spot in used]
        cells = [tables.value_cell(spot, max(0, d)) for spot, d in zip(used, decimals)]
        columns.append((f"of bound\n{name}, %", cells))
    below = page.phrase("below", comparator=page.plain(comparator))
    captions = [f"{below} {statistics.over_seeds(len(results.seeds))}"]
    if bounds:
        captions.append(page.phrase("bounds", bounds=", ".join(bounds)))
    title = f"Regret against the {page.plain(comparator)}"
    return _policies_sheet(title, results, at, columns, captions)


def _policies_sheet(
    title: str, results: Results, at: Sequence[At], columns: Columns, captions: Sequence[str]
) -> Sheet:
    settings = [
        (name, [tables.setting_cell(cell[i]) for cell, _ in at])
        for i, name in enumerate(results.cells)
    ]
    names, noun = [policy for _, policy in at], results.deciders[0]
    return columns_sheet(title, names, [*settings, *columns], tuple(captions), noun)


# Sentences


def _verb(results: Results) -> str:
    if results.rewarded:
        return "earned most"
    return f"has the {'least' if results.minimise else 'most'} {results.objective}"


def byline(results: Results) -> str:
    slots = sorted({run["slots"] for run in results.runs})
    parts = [results.scenario()[0], count(len(results.policies), *results.deciders)]
    if results.cells:
        parts.append(count(len(results.places), "cell"))
    parts.append(count(len(results.seeds), "seed"))
    if results.slotwise:
        least = f"{slots[0]:,} to " if len(slots) > 1 else ""
        parts.append(f"{least}{slots[-1]:,} slots")
    parts += [f"family {results.family}", f"gangwise {', '.join(results.run_versions)}"]
    return ", ".join(parts)


def proved_text(results: Results) -> str:
    """Of which policies how many choices were proved best; empty where none searches for them."""
    proved: dict[str, list[int]] = {}
    for (_, policy), share in results.of("proved").items():
        # Rounded down: 100 % is all of them.
        proved.setdefault(policy, []).append(math.floor(100 * share.mean + 1e-9))
    ends = {policy: sorted({min(shares), max(shares)}) for policy, shares in proved.items()}
    parts = [f"{policy} {' to '.join(map(str, shares))} %" for policy, shares in ends.items()]
    return f"Searches that proved their choice best: {', '.join(parts)}." if parts else ""


def lead(results: Results) -> str:
    """Sentences on who leads where, by how much, and whether that can be told from chance."""
    cells = results.places
    if len(cells) == 1:
        return _lead_of_cell(results, cells[0])
    if len(results.policies) == 1:
        (only,), noun = results.policies, results.deciders[0]
        return f"{only} is the only {noun}: there is nothing to compare it with."
    wins: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        best, *rivals = results.ranking(cell)
        row = results.better(cell, best, rivals[0]) if rivals else None
        wins.setdefault(best, []).extend([] if row is None else [row])
    by_wins = sorted(wins.items(), key=lambda item: -len(item[1]))
    winners = "; ".join(_won(results, policy, rows) for policy, rows in by_wins)
    return f"{winners}. Leads are over the next {results.deciders[0]}, paired by seed."


def _lead_of_cell(results: Results, cell: Place) -> str:
    best, *rivals = results.ranking(cell)
    mean = results.of(results.objective)[cell, best]
    seeds = count(len(results.seeds), "seed")
    alone = "earned" if results.rewarded else f"has {results.objective}"
    text = f"{best} {f'{_verb(results)}:' if rivals else alone} "
    text += estimate_text(mean) + " per slot" * results.rewarded
    names = results.comparators
    if names and math.isfinite((share := results.share((cell, best), names[-1])).mean):
        text += f", {number(100 * share.mean, 1)} % of the {page.plain(names[-1])}"
    ahead, way = [], "less" if results.minimise else "more"
    # The next one and the last one, which may be the same.
    for rival in dict.fromkeys([*rivals[:1], *rivals[-1:]]):
        row = results.better(cell, best, rival)
        if row is not None and row["percent"]:
            lead = Estimate.of(row)
            decimals = 1 if lead.half is None else max(1, decimals_for([lead]))
            half = "" if lead.half is None else f" ± {number(lead.half, decimals)}"
            rank = f", the last of {1 + len(rivals)}" if rival != rivals[0] else ""
            ahead.append(f"{number(lead.mean, decimals)} %{half} {way} than {row['over']}{rank}")
    if ahead:
        paired = ", paired" if len(results.seeds) > 1 else ""
        text += f"; that is {' and '.join(ahead)} ({seeds}{paired})."
    else:
        text += f" ({seeds})."
    row = results.better(cell, best, rivals[0]) if rivals else None
    if row is not None and row["low"] is not None and row["low"] <= 0:
        text += f" {page.phrase('may be chance', best=best, other=rivals[0])}"
    return text


def verdict(results: Results) -> str:
    """The first of one cell and its lead over the next; empty where there is none, or no lead."""
    (cell,) = results.places
    best, *rivals = results.ranking(cell)
    row = results.better(cell, best, rivals[0]) if rivals else None
    if row is None or not row["percent"]:
        return ""
    lead, way = Estimate.of(row), "less" if results.minimise else "more"
    if abs(lead.mean) < 1e-7:  # they earned the same, up to rounding
        return ""
    size = f"{number(lead.mean, max(1, decimals_for([lead])))} % {way} than {rivals[0]}"
    clear = lead.low is not None and lead.low > 0
    return f"{best} {_verb(results)}, {size}{'' if clear else ', which may be chance'}."


def tiles(results: Results) -> list[page.Tile]:
    """Tiles of the best policy of one cell: reward, share of the optimum, and leads."""
    (cell,) = results.places
    best, *rivals = results.ranking(cell)
    earned = estimate_text(results.of(results.objective)[cell, best])
    shown = [page.Tile(page.sentence_case(page.in_words(results.objective)), earned, best)]
    for name in results.comparators[-1:]:
        if math.isfinite((share := results.share((cell, best), name)).mean):
            shown.append(
                page.Tile(
                    f"Share of the {page.plain(name)}", f"{number(100 * share.mean, 1)} %", best
                )
            )
    for rival in dict.fromkeys([*rivals[:1], *rivals[-1:]]):
        row = results.better(cell, best, rival)
        if row is not None and row["percent"]:
            lead = Estimate.of(row)
            tone = "good" if lead.low is not None and lead.low > 0 else ""
            size = estimate_text(lead, max(1, decimals_for([lead])), True)
            shown.append(
                page.Tile(f"Lead over {rival}, %", size, "95 % interval, paired by seed", tone)
            )
    return shown


def _won(results: Results, policy: str, rows: Sequence[Mapping[str, Any]]) -> str:
    n, cells = len(rows), len(results.places)
    every = "both cells" if cells == 2 else f"all {cells} cells"
    text = f"{policy} {_verb(results)} in {every if n == cells else f'{n} of {cells} cells'}"
    leads = [row["mean"] for row in rows if row["percent"]]
    if len(leads) == n and n:
        low, high = number(min(leads), 1), number(max(leads), 1)
        text += f", by {low} %" if low == high else f", by {low} % to {high} %"
    clear = sum(row["low"] is not None and row["low"] > 0 for row in rows)
    if clear == n:
        return text + (", each time" if n > 1 else ",") + " more than chance explains"
    if clear == 0:
        return f"{text}, which may be chance"
    return f"{text}, in {clear} of them more than chance explains"


def about_comparator(results: Results, comparator: str) -> str:
    """Text on a comparator: how well its reward is proved; in one cell what it earns as well."""
    name, cells = comparator, results.places
    entry = page.words("comparators").get(name)
    text = f"{name}: {entry['meaning']}; " if entry else f"{name}: "
    rewards = results.of("reward.mean")
    gap = results.proven_gap(name)
    proof = "exact" if gap <= 0 else f"proved to within {statistics.small_share(gap)}"
    if len(cells) > 1:
        return text + (f"{proof} of its reward in every cell." if gap > 0 else f"{proof}.")
    at = (cells[0], name)
    n, slots = results.evaluated(*at)
    place = f"all {n:,} slots" if n >= slots else f"{n:,} of {slots:,} slots"
    earned = estimate_text(rewards[at])
    text += f"{earned} per slot on {place}, {proof}."
    try:
        regret = results.versus(name)[0]
    except StoreError:
        return text
    measured = [(regret[cells[0], p].mean, p) for p in results.ranking(cells[0])]
    for bound, limits in results.bounds(name).items():
        ends = (f"{number(value)} ({policy})" for value, policy in (min(measured), max(measured)))
        says = {"bound": bound, "value": number(limits[at].mean), "measured": " to ".join(ends)}
        text += f" {page.phrase('measured bound', **says)}"
    return text


# Sections


@dataclass(frozen=True, eq=False)
class ShownExperiment:
    """An experiment, as the sections of its page take it."""

    results: Results
    anchor: str  # begins the names of what can be linked to; different for each experiment
    made: page.Section  # how to get the results again
    scenario: Mapping[str, Any]  # its settings

    @cached_property
    def looks(self) -> dict[str, plotting.Style]:
        return curves.styles(self.results)

    @cached_property
    # The name of a policy may have any sign, that of an anchor may not.
    def anchors(self) -> dict[str, str]:
        policies = self.results.policies
        return {policy: f"{self.anchor}-policy-{i}" for i, policy in enumerate(policies)}

    def linked(self, sheet: Sheet) -> Sheet:
        """A table of policies with samples of their lines, which leads to them."""
        links = [self.anchors.get(name, "") for name, _ in sheet.rows]
        return replace(sheet, looks=self.looks, links=links)


def chapter(
    shown: ShownExperiment, fidelity: Sequence[str] = (), tied: bool = False, name: str = ""
) -> page.Chapter:
    """Chapter of an experiment on a page; if policies are ``tied``, it does not say who leads."""
    results = shown.results
    scenario, settings = results.scenario()
    parts: list[page.Part] = [page.Text(line, "note") for line in fidelity]
    heading = title(results.family, scenario, results.policies, results.deciders[1], results.cells)
    shown_byline = byline(results)
    if not tied:
        single = len(results.places) == 1
        parts = [page.Tiles(tiles(results)), *parts] if single else parts
        # Of several experiments on a page each keeps its title.
        answer = verdict(results) if single and not name else ""
        parts.append(page.Text(lead(results), "" if answer else "lead"))
        if answer:
            heading, shown_byline = answer, f"{heading}: {shown_byline}"
    if lacking := len(results.missing):
        says = {"missing": lacking, "of": len(results.runs) + lacking}
        verb = "run is" if lacking == 1 else "runs are"
        parts.append(page.Text(page.phrase("missing", **says, are=verb), "note"))
    verdicts = [] if tied else results.sentences()
    if len(verdicts) > MOST_SENTENCES:
        summary = f"The best policy of each cell against the next: {len(verdicts)} cells"
        parts.append(page.Fold(summary, [page.Bullets(verdicts)]))
    elif len(verdicts) > 1:
        parts.append(page.Bullets(verdicts))
    parts += [section for make in SECTIONS if (section := make(shown)) is not None]
    parts.append(page.terms(page.glossary(results.family, settings, results.comparators)))
    about = page.about_scenario(scenario)
    return page.Chapter(heading, f"{about}: {shown_byline}" if about else shown_byline, parts, name)


def results_section(shown: ShownExperiment) -> page.Section:
    """Differences as dots, and what every policy earned."""
    results, single = shown.results, len(shown.results.places) == 1
    result, times = result_sheet(results), page.phrase("times")
    sheets = [replace(result, captions=(*result.captions, times)), metrics_sheet(results)]
    # Of two policies the dots say all.
    if single and 2 < len(results.policies) <= MATRIX:
        sheets.append(improvement_sheet(results))
    parts = [shown.linked(sheet) for sheet in sheets if sheet is not None]
    return page.Section("Results", [*differences(shown), *parts])


def differences(shown: ShownExperiment) -> list[page.Dots]:
    """Of one cell the lead of the best over each other; of many, each over the first policy."""
    results = shown.results
    if len(results.policies) < 2:
        return []
    caption = page.phrase("dots" if len(results.seeds) > 1 else "one seed")
    if len(results.places) == 1:
        (cell,) = results.places
        best, *rivals = results.ranking(cell)
        rows = {rival: row for rival in rivals if (row := results.over(rival).get((cell, best)))}
        # One axis for all: per cent where each is, differences otherwise.
        percent = all(row["percent"] for row in rows.values())
        leads = {
            rival: Estimate.of(row) for rival, row in rows.items() if row["percent"] == percent
        }
        unit = "%" if percent else results.unit or "reward"
        name = f"{'Change' if results.minimise else 'Lead'} of {best} over each other, {unit}"
        return page.dots(name, leads, caption, shown.looks)
    base, plots = results.policies[0], []
    for cell in results.places[: curves.PANELS]:
        leads = {
            policy: results.lead(base, (at, policy))
            for at, policy in results.over(base)
            if at == cell
        }
        name = f"More or less than {base}, %: {page.cell_text(results.cells, cell)}"
        plots += page.dots(name, leads, caption, shown.looks)
    return plots


def figures_section(shown: ShownExperiment) -> page.Section | None:
    drawn = curves.figures(shown.results)
    return page.Section("Figures", drawn) if drawn else None


def regrets_section(shown: ShownExperiment) -> page.Section | None:
    """Regret against each comparator beside the theorem's bound."""
    results = shown.results
    parts: list[page.Part] = []
    for name in results.comparators:
        try:
            sheet = shown.linked(regret_sheet(results, name))
            parts += [sheet, page.Text(about_comparator(results, name))]
        except StoreError as error:
            parts.append(page.Text(str(error), "note"))
    if not parts:
        return None
    says = page.Text(page.phrase("regret"))
    return page.Section("Regret and its bounds", [says, *parts])


def policies_section(shown: ShownExperiment) -> page.Section:
    results = shown.results
    path, address = page.documentation(results.family)
    says = page.Text(f"More about them in the documentation: `{path}`.", link=address)
    describe = page.about_scheduler if results.family == "jobs" else page.about_policy
    folds = []
    for policy in results.policies:
        kind, arguments = results.configuration(policy)
        parts: list[page.Part] = [page.Text(about)] if (about := describe(policy)) else []
        parts.append(page.Values({"class": kind, **arguments}, "Configuration"))
        folds.append(page.Fold(policy, parts, shown.anchors[policy], shown.looks.get(policy)))
    return page.Section(page.sentence_case(results.deciders[1]), [says, *folds])


SECTIONS: list[Callable[[ShownExperiment], page.Section | None]] = [
    results_section,
    figures_section,
    regrets_section,
    policies_section,
    lambda shown: (
        page.Section("Scenario", [page.Values(shown.scenario)]) if shown.scenario else None
    ),
    lambda shown: shown.made,
]
"""The sections of a page about an experiment, in their order."""


EDGE = 0.05
"""A value is at the edge of its range if it lies within this share of it from either end."""

MARKS = {
    "trial": plotting.Style(-1, 5.0, order=2),
    "best trial": plotting.Style(1, 5.0, order=4),
    "default": plotting.Style(0, 5.0, order=3),
}
"""How trials are drawn."""


def tuning_chapter(tuning: Tuning, shown: ShownExperiment) -> page.Chapter:
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
    tuned = statistics.enumerated([arg.name for arg in tuning.ranges])
    return page.Chapter(
        f"Which {tuned} suit{'s' * (len(tuning.ranges) == 1)} {tuning.policy}",
        ", ".join(played),
        [
            page.terms(page.glossary(results.family, settings, [])),
            page.Section(
                "Best arguments", [*map(page.Text, edges(tuning)), arguments_sheet(tuning)]
            ),
            page.Section("How the metric changes with each argument", [tuning_figure(tuning)]),
            page.Section("Trials", [trials_sheet(tuning, results)]),
            page.Section("Scenario", [page.Values(shown.scenario)]),
            shown.made,
        ],
    )


def tuning_figure(tuning: Tuning) -> page.Plot:
    gains = [_gain(tuning, trial) for trial in tuning.trials]
    percent = all(unit for _, unit in gains)
    kinds = {
        # The best one comes first, and is drawn by itself.
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
            plotting.Panel(
                arg.name, arg.name, unit, "dots", arg.log, level=0.0, ends=arg.ends, choices=choices
            )
        )
        for kind, trials in kinds.items():
            for trial, (gain, unit_of) in trials:
                x = _position(arg, trial.arguments[arg.name])
                if x is not None and unit_of == percent:
                    rows.append((arg.name, kind, x, *gain))
    names = ", ".join(arg.name for arg in tuning.ranges)
    caption = f"A dot is a trial, compared with the default {_each(tuning)} by {_each(tuning)}"
    if len(tuning.seeds) > 1:
        caption += "; lines are 95 % confidence intervals"
    if len(tuning.ranges) > 1:
        caption += ". Trials differ in the other arguments too"
    caption += f". These {_each(tuning)}s chose the best trial, which looks better than it is."
    title = f"Gain in {page.in_words(tuning.metric)} over the default, by {names}"
    return page.pictured(title, rows, panels, caption, MARKS)


def _position(arg: ParameterRange, value: Any) -> float | None:
    """Position of a value on the axis; a default outside the range would leave trials no room."""
    if arg.ends is None:
        # By how they are written, since 1 and True are equal.
        return {repr(choice): float(i) for i, choice in enumerate(arg.choices)}.get(repr(value))
    low, high = arg.ends
    return float(value) if isinstance(value, int | float) and low <= value <= high else None


def _gain(tuning: Tuning, trial: Trial) -> tuple[Estimate, bool]:
    row = tuning.over_default(trial)
    if row is None:
        # The default gains nothing over itself.
        return Estimate(0.0, None, None), (np.asarray(tuning.default.values) > 0).all().item()
    return Estimate.of(row), row["percent"]


def edges(tuning: Tuning) -> list[str]:
    """A sentence for each argument that is best at an end of its range, or one that none is."""
    texts = []
    for arg in tuning.ranges:
        value = tuning.best.arguments[arg.name]
        if end := _edge(arg, value):
            span = f"{_text(arg.low)} to {_text(arg.high)}"
            best = arguments_text({arg.name: value})
            texts.append(page.phrase("at an end", best=best, end=end, span=span))
    if any(arg.ends for arg in tuning.ranges) and not texts:
        texts.append("No argument of the best trial is at an end of its range.")
    return texts


def arguments_sheet(tuning: Tuning) -> Sheet:
    # Where the best quarter lies tells more than the single best trial.
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
            "the best is": Cell(edge if arg.ends else statistics.NOTHING, words=True),
        }
        for heading, cell in row.items():
            # Of fewer than eight trials it is the best trial once more.
            if heading != "best 1 trials":
                columns.setdefault(heading, []).append(cell)
    names = [arg.name for arg in tuning.ranges]
    title = "Arguments of the default and of the best trial"
    return columns_sheet(title, names, list(columns.items()), (), "argument")


def trials_sheet(tuning: Tuning, results: Results, most: int | None = None) -> Sheet:
    shown = list(tuning.trials[:most])
    if tuning.default not in shown:
        shown.append(tuning.default)
    tried = [dict(t.arguments) for t in sorted(tuning.trials, key=lambda trial: trial.number)]
    called = [*labels(tried, tuning.default.arguments), DEFAULT]  # the last one is number −1
    rows = [tuning.over_default(trial) for trial in shown]
    percent = any(row and row["percent"] for row in rows)
    changes = [Estimate.of(row) if row and row["percent"] == percent else UNKNOWN for row in rows]
    metric = page.in_words(tuning.metric) + ", s" * (tuning.metric == EVERY)
    times = [results.of("us_per_slot").get(((), called[trial.number]), UNKNOWN) for trial in shown]
    settings = [
        (a.name, [tables.setting_cell(t.arguments[a.name], 3) for t in shown])
        for a in tuning.ranges
    ]
    columns = [
        *settings,
        (metric, estimate_cells([trial.estimate for trial in shown])),
        (f"{'% ' * percent}better than\ndefault", estimate_cells(changes, sign=True, least=1)),
    ]
    if any(math.isfinite(time.mean) for time in times):
        columns.append(("µs per\nslot", [tables.time_cell(time) for time in times]))
    name = {trial.number: str(trial.number) for trial in shown}
    default = tuning.default.number
    name[default] = "default" if default < 0 else f"{default}, the default"
    better = "Less" if tuning.minimise else "More"
    caption = page.phrase("trials").replace("seed", _each(tuning))
    caption += f" {better} of the metric is better."
    title, names = f"{len(tuning.trials)} trials, best first", [name[t.number] for t in shown]
    return columns_sheet(title, names, columns, (caption,), "trial")


def _each(tuning: Tuning) -> str:
    return "part" if tuning.metric == EVERY else "seed"


def _edge(arg: ParameterRange, value: Any) -> str:
    """At which end of its range a value is; empty inside, and of choices, which have no order."""
    if arg.ends is None:
        return ""
    # The place in the range, on the axis that was searched.
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
    return tables.setting_cell(value, 3).text
