"""The report of a sweep: one page for all experiments of a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import gangwise
from gangwise.core.errors import StoreError
from gangwise.experiments.results import Results
from gangwise.experiments.specification import experiment_toml
from gangwise.experiments.tune import TUNING, Tuning, read_tuning
from gangwise.report.again import again
from gangwise.report.numbers import NOTHING
from gangwise.report.page import document, drawing, fold, plain_table, prose, section, swatch
from gangwise.report.palette import Style, plain_styles
from gangwise.report.sweep_figures import figures
from gangwise.report.sweep_numbers import SweepNumbers, cell_text
from gangwise.report.sweep_sentences import against_best, byline, lead, missing, proof
from gangwise.report.sweep_tables import (
    metric_sheet,
    policy_sheet,
    regret_sheet,
    result_sheet,
    time_sheet,
)
from gangwise.report.tables import Sheet, html_table
from gangwise.report.tuning_page import tuning_byline, tuning_parts

KEYS = 500
"""More runs than this, and their keys are not listed."""

SAID = 12
"""More cells than this, and the verdicts on single cells are folded away."""


def sweep_page(folder: Path, names: Sequence[str]) -> str:
    """The page.

    Parameters
    ----------
    folder : path
        Of a sweep.
    names : sequence of str
        Its experiments, one or more.
    """
    tuning = read_tuning(folder) if TUNING in names else None
    every = [Results.open(folder, name) for name in names]
    if not any(results.runs for results in every):
        raise StoreError(f"no run in {folder} is finished; start the sweep again")
    found = "" if tuning is None else f'<p class="lead">{prose(_sentence(tuning))}</p>'
    each = [
        _experiment(results, f"e{i}", len(every) == 1, tuning) for i, results in enumerate(every)
    ]
    if len(every) == 1:
        (parts,) = each
        return document(f"{names[0]}: results", [*parts[:1], found, *parts[1:]])
    links = "".join(f'<li><a href="#e{i}">{escape(name)}</a></li>' for i, name in enumerate(names))
    title = folder.resolve().name
    header = (
        f'<header><h1>{escape(title)}</h1><p class="byline">{len(names)} experiments, gangwise '
        f"{gangwise.__version__}</p></header>"
    )
    nav = f'<nav aria-label="experiments"><ul>{links}</ul></nav>'
    parts = [header, found, nav, *(part for parts in each for part in parts)]
    return document(f"{title}: results", parts)


def _sentence(tuning: Tuning) -> str:
    """What ``gangwise tune`` concluded; its trials alone would say more than they know."""
    return f"{tuning.sentence[0].upper()}{tuning.sentence[1:]}."


def _experiment(results: Results, anchor: str, alone: bool, tuning: Tuning | None) -> list[str]:
    name = str(results.experiment["name"])
    heading = f'<header id="{anchor}"{"" if alone else " class=part"}><h1>{escape(name)}</h1>'
    if not results.runs:
        return [f"{heading}</header>", "<p>None of its runs is finished.</p>"]
    numbers = SweepNumbers(results)
    if not results.policies:
        return [f"{heading}</header>", "<p>No run of a policy is finished.</p>"]
    tuned = tuning if name == TUNING else None
    says = byline(numbers) if tuned is None else tuning_byline(tuned, numbers)
    heading += f'<p class="byline">{escape(says)}</p></header>'
    if tuned is not None:
        return [
            heading,
            _note(missing(results)),
            *tuning_parts(tuned, numbers),
            _scenario(numbers),
            _again(numbers),
        ]
    rest = [policy for policy in results.policies if policy not in numbers.drawn]
    looks = plain_styles([*numbers.drawn, *results.comparators, *rest])
    anchors = {policy: f"{anchor}-policy-{i}" for i, policy in enumerate(results.policies)}
    parts = [
        heading,
        f'<p class="lead">{prose(lead(numbers))}</p>',
        _note(missing(results)),
        _verdicts(results),
        section("Results", _table(result_sheet(numbers), looks, anchors)),
        section(
            "Figures",
            *(
                drawing(each.svg, f"{anchor}f{i}", each.title, each.caption)
                for i, each in enumerate(figures(numbers))
            ),
        ),
        _regrets(numbers, looks, anchors),
        section("Policies", *(_policy(numbers, p, looks[p], anchors[p]) for p in results.policies)),
        section("Timings", _table(time_sheet(numbers), looks, anchors)),
        _scenario(numbers),
        _again(numbers),
    ]
    return [part for part in parts if part]


def _table(sheet: Sheet, looks: Mapping[str, Style], anchors: Mapping[str, str]) -> str:
    """A table of policies, each with a sample of its line and a link to all about it."""
    return html_table(
        sheet, lambda policy: swatch(looks[policy]), lambda i: anchors.get(sheet.rows[i][0], "")
    )


def _note(text: str) -> str:
    return f'<p class="note">{prose(text)}</p>' if text else ""


def _verdicts(results: Results) -> str:
    said = results.sentences()
    if len(said) < 2:
        return ""
    listed = "<ul>" + "".join(f"<li>{prose(each)}</li>" for each in said) + "</ul>"
    return (
        fold(f"The best policy of each cell against the next: {len(said)} cells", listed)
        if len(said) > SAID
        else listed
    )


def _regrets(numbers: SweepNumbers, looks: dict[str, Style], anchors: dict[str, str]) -> str:
    shown = []
    for comparator in numbers.results.comparators:
        try:
            sheet = regret_sheet(numbers, comparator)
        except StoreError as error:
            shown.append(_note(str(error)))
            continue
        shown.append(_table(sheet, looks, anchors))
        shown.append(f"<p>{prose(proof(numbers, comparator))}</p>")
    return section("Regret and its bounds", *shown) if shown else ""


def _policy(numbers: SweepNumbers, policy: str, look: Style, anchor: str) -> str:
    results = numbers.results
    said = [
        f"{cell_text(results.cells, cell)}: {text}" if results.cells else text
        for cell in numbers.cells
        if (text := against_best(numbers, cell, policy))
    ]
    content = []
    if said:
        listed = "".join(f"<li>{prose(each)}</li>" for each in said[:SAID])
        content.append(f"<ul>{listed}</ul>")
    if len(said) > SAID:
        content.append(f"<p>The other {len(said) - SAID} cells are in the table.</p>")
    content.append(html_table(policy_sheet(numbers, policy)))
    for comparator in results.comparators:
        try:
            sheet = regret_sheet(numbers, comparator, policy)
        except StoreError:
            continue
        content.append(html_table(sheet))
    metrics = metric_sheet(numbers, policy)
    if metrics is not None:
        content.append(html_table(metrics))
    kind, arguments = numbers.configuration(policy)
    content.append(plain_table({"class": kind, **arguments}, "Configuration"))
    return fold(policy, *content, anchor=anchor, mark=swatch(look))


def _scenario(numbers: SweepNumbers) -> str:
    name, settings = numbers.scenario()
    return section("Scenario", plain_table({"scenario": name, **settings}))


def _again(numbers: SweepNumbers) -> str:
    results = numbers.results
    name = str(results.experiment["name"])
    keys = ""
    if len(results.runs) <= KEYS:
        listed = "\n".join(
            f"{run['key']}  {run['label']}, "
            + "".join(f"{k} = {v}, " for k, v in run["cell"].items())
            + f"seed {run['seed']}"
            for run in results.runs
        )
        keys = fold(
            f"Keys of the {len(results.runs)} runs",
            "<p>A run is stored under a hash of all that defines it, in "
            "<code>runs/KEY.parquet</code>.</p>",
            f"<pre><code>{escape(listed)}</code></pre>",
        )
    return again(
        results.store.folder,
        name,
        experiment_toml(results.experiment),
        {"gangwise of the runs": ", ".join(numbers.run_versions) or NOTHING},
        keys,
    )
