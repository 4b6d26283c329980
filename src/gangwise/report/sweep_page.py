"""The report of a sweep: one page for all experiments of a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import gangwise
from gangwise.core.errors import StoreError
from gangwise.experiments.results import Results
from gangwise.experiments.toml import experiment_toml
from gangwise.experiments.tune import TUNING
from gangwise.report.again import again
from gangwise.report.numbers import NOTHING, number, small_share
from gangwise.report.page import (
    document,
    drawing,
    fold,
    plain_table,
    prose,
    section,
    swatch,
)
from gangwise.report.palette import Style, plain_styles
from gangwise.report.sentences import plain
from gangwise.report.sweep_figures import figures
from gangwise.report.sweep_numbers import SweepNumbers, cell_text
from gangwise.report.sweep_tables import (
    metric_sheet,
    policy_sheet,
    regret_sheet,
    result_sheet,
    time_sheet,
)
from gangwise.report.tables import Sheet, html_table
from gangwise.report.verdicts import verdict

__all__ = ["sweep_page"]

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
    every = [Results.open(folder, name) for name in names]
    if not any(results.runs for results in every):
        raise StoreError(f"no run in {folder} is finished; start the sweep again")
    if len(every) == 1:
        parts = _experiment(every[0], "e0", alone=True)
        return document(f"{names[0]}: results", [*parts[:1], _tuned(folder), *parts[1:]])
    links = "".join(
        f'<li><a href="#e{i}">{escape(name)}</a></li>' for i, name in enumerate(names)
    )
    parts = [
        f'<header><h1>{escape(folder.resolve().name)}</h1><p class="byline">{len(names)} '
        f"experiments, gangwise {gangwise.__version__}</p></header>",
        _tuned(folder),
        f'<nav aria-label="experiments"><ul>{links}</ul></nav>',
    ]
    for i, results in enumerate(every):
        parts += _experiment(results, f"e{i}", alone=False)
    return document(f"{folder.resolve().name}: results", parts)


def _tuned(folder: Path) -> str:
    """What ``gangwise tune`` concluded; its trials alone would say more than they know."""
    path = folder / TUNING
    if not path.exists():
        return ""
    try:
        sentence = str(json.loads(path.read_text(encoding="utf-8"))["sentence"])
    except (OSError, ValueError, KeyError) as error:
        raise StoreError(f"cannot read {path}: {error}; tune again to mend it") from error
    return f'<p class="lead">{prose(sentence[0].upper() + sentence[1:])}.</p>'


def _experiment(results: Results, anchor: str, alone: bool) -> list[str]:
    name = str(results.experiment["name"])
    heading = f'<header id="{anchor}"{"" if alone else " class=part"}><h1>{escape(name)}</h1>'
    if not results.runs:
        return [f"{heading}</header>", "<p>None of its runs is finished.</p>"]
    numbers = SweepNumbers(results)
    if not results.policies:
        return [f"{heading}</header>", "<p>No run of a policy is finished.</p>"]
    rest = [policy for policy in results.policies if policy not in numbers.drawn]
    looks = plain_styles([*numbers.drawn, *results.comparators, *rest])
    anchors = {policy: f"{anchor}-policy-{i}" for i, policy in enumerate(results.policies)}
    parts = [
        f'{heading}<p class="byline">{escape(_byline(numbers))}</p></header>',
        f'<p class="lead">{prose(_lead(numbers))}</p>',
        _missing(results),
        _verdicts(results),
        section("Results", _table(result_sheet(numbers), looks, anchors)),
        section("Figures", *(
            drawing(each.svg, f"{anchor}f{i}", each.title, each.caption)
            for i, each in enumerate(figures(numbers)))),
        _regrets(numbers, looks, anchors),
        section("Policies", *(_policy(numbers, p, looks[p], anchors[p])
                              for p in results.policies)),
        section("Timings", _table(time_sheet(numbers), looks, anchors)),
        _scenario(numbers),
        _again(numbers),
    ]  # fmt: skip
    return [part for part in parts if part]


def _table(sheet: Sheet, looks: Mapping[str, Style], anchors: Mapping[str, str]) -> str:
    """A table of policies, each with a sample of its line and a link to all about it."""
    return html_table(
        sheet, lambda policy: swatch(looks[policy]),
        lambda i: anchors.get(sheet.rows[i][0], ""),
    )  # fmt: skip


def _byline(numbers: SweepNumbers) -> str:
    results = numbers.results
    seeds = {run["seed"] for run in results.runs}
    slots = sorted({run["slots"] for run in results.runs})
    scenario, _ = numbers.scenario()
    return ", ".join([
        scenario,
        _count(len(results.policies), "policy", "policies"),
        _count(len(numbers.cells), "cell"),
        _count(len(seeds), "seed"),
        f"{slots[0]:,} slots" if len(slots) == 1 else f"{slots[0]:,} to {slots[-1]:,} slots",
        f"gangwise {', '.join(numbers.run_versions)}",
    ])  # fmt: skip


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def _lead(numbers: SweepNumbers) -> str:
    """Who earned most where, and whether that can be told from the next."""
    results, cells = numbers.results, numbers.cells
    if len(results.policies) == 1:
        return f"{results.policies[0]} is the only policy: there is nothing to compare it with."
    first: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        best, *others = numbers.ranking(cell)
        row = numbers.over(others[0]).get((cell, best)) if others else None
        first.setdefault(best, []).extend([] if row is None else [row])
    if len(cells) == 1:
        (rows,) = first.values()
        return f"{verdict(rows[0])}." if rows else f"Only {best} has finished."
    by_wins = sorted(first.items(), key=lambda item: -len(item[1]))
    said = "; ".join(_won(policy, rows, len(cells)) for policy, rows in by_wins)
    return f"{said}. Leads are over the next policy, paired by seed."


def _won(policy: str, rows: Sequence[Mapping[str, Any]], cells: int) -> str:
    """In how many cells a policy is first, by how much, and how often that is beyond chance."""
    n = len(rows)
    every = "both cells" if cells == 2 else f"all {cells} cells"
    text = f"{policy} earned most in {every if n == cells else f'{n} of {cells} cells'}"
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


def _missing(results: Results) -> str:
    if not results.missing:
        return ""
    of = len(results.runs) + len(results.missing)
    return (
        f'<p class="note">{len(results.missing)} of {of} runs are not finished and not on this '
        "page. Start the same sweep again to do them.</p>"
    )


def _verdicts(results: Results) -> str:
    said = results.sentences()
    if len(said) < 2:
        return ""
    listed = "<ul>" + "".join(f"<li>{prose(each)}</li>" for each in said) + "</ul>"
    return fold(f"The best policy of each cell against the next: {len(said)} cells", listed) \
        if len(said) > SAID else listed  # fmt: skip


def _regrets(numbers: SweepNumbers, looks: dict[str, Style], anchors: dict[str, str]) -> str:
    shown = []
    for comparator in numbers.results.comparators:
        try:
            sheet = regret_sheet(numbers, comparator)
        except StoreError as error:
            shown.append(f'<p class="note">{prose(str(error))}</p>')
            continue
        shown.append(_table(sheet, looks, anchors))
        shown.append(f"<p>{prose(_proof(numbers, comparator))}</p>")
    return section("Regret and its bounds", *shown) if shown else ""


def _proof(numbers: SweepNumbers, comparator: str) -> str:
    """How well the comparator's reward is proved."""
    gap, total = numbers.of("gap"), numbers.of("reward.mean")
    slots = max(run["slots"] for run in numbers.results.runs)
    shares = [gap[at].mean / abs(total[at].mean * slots) for at in gap
              if at[1] == comparator and total[at].mean]  # fmt: skip
    if not shares or max(shares) <= 0:
        return f"{comparator} is the {plain(comparator)}, computed exactly."
    return (
        f"{comparator} is the {plain(comparator)}, proved to within {small_share(max(shares))} "
        "of its reward in every cell."
    )


def _policy(numbers: SweepNumbers, policy: str, look: Style, anchor: str) -> str:
    results = numbers.results
    said = [
        f"{cell_text(results.cells, cell)}: {text}" if results.cells else text
        for cell in numbers.cells
        if (text := _against_best(numbers, cell, policy))
    ]
    content = []
    if said:
        listed = "".join(f"<li>{prose(each)}</li>" for each in said[:SAID])
        content.append(f"<ul>{listed}</ul>")
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


def _against_best(numbers: SweepNumbers, cell: tuple[object, ...], policy: str) -> str:
    """The policy against the best other one of a cell."""
    ranking = numbers.ranking(cell)
    if policy not in ranking or len(ranking) < 2:
        return ""
    best, other = (policy, ranking[1]) if ranking[0] == policy else (ranking[0], policy)
    row = numbers.over(other).get((cell, best))
    return "" if row is None else verdict(row)


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
        keys = fold(f"Keys of the {len(results.runs)} runs",
                    "<p>A run is stored under a hash of all that defines it, in "
                    "<code>runs/KEY.parquet</code>.</p>",
                    f"<pre><code>{escape(listed)}</code></pre>")  # fmt: skip
    return again(
        results.dataset.folder, name, experiment_toml(results.experiment),
        {"gangwise of the runs": ", ".join(numbers.run_versions) or NOTHING}, keys,
    )  # fmt: skip
