"""Where the waiting went, as a section of a page and a table of a terminal."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from gangwise.core.arrays import Floats
from gangwise.core.wording import cause_words, words_of
from gangwise.jobs.waiting import WaitingCauses
from gangwise.jobs.waiting_kernels import CAUSES
from gangwise.report import page as web
from gangwise.report.plotting import Panel
from gangwise.report.tables import Cell, Sheet, columns_sheet, time_unit, value_cell
from gangwise.study.answer import Compared
from gangwise.study.statistics import number
from gangwise.study.where_waited import GROUPS, HAPPENED, waited_by_group

WITHIN = {"user": "user", "account": "account", "partition": "partition", "size": "size of a job"}
WITHIN |= {"week": "week of submission", "day": "day of submission"}


def _words(cause: str) -> str:
    return str(words_of("gangwise.study")["causes"][cause]["short"])


def _means(causes: Mapping[str, WaitingCauses]) -> tuple[dict[str, Floats], list[int]]:
    """Mean seconds by cause of the jobs that started, and the causes that occur."""
    means = {}
    for name, found in causes.items():
        jobs = found.queued
        means[name] = found.seconds[jobs].sum(axis=0) / max(int(jobs.sum()), 1)
    shown = np.flatnonzero(np.array([*means.values()]).sum(axis=0) > 0)
    return means, shown.tolist()


def causes_sheets(n: Compared, of: Mapping[str, WaitingCauses]) -> list[Sheet]:
    """The mean wait under each scheduler, split by cause."""
    means, shown = _means(of)
    if not shown:
        return []
    size, unit = time_unit([float(mean.sum()) for mean in means.values()])
    columns = [(f"waiting\nmean, {unit}", [value_cell(m.sum() / size, 2) for m in means.values()])]
    for c in shown:
        columns.append((_words(CAUSES[c]), [value_cell(m[c] / size, 2) for m in means.values()]))
    caption = web.phrase("causes", seed=" with the first seed" * (n.seeds > 1))
    if HAPPENED in means and n.base in means:
        left = float(means[HAPPENED].sum() - means[n.base].sum()) / size
        about = {"left": number(abs(left), 2), "longer": "longer" if left > 0 else "less"}
        caption += " " + web.phrase("unexplained", unit=unit, base=n.base, **about)
    return [columns_sheet("Where the waiting went", [*means], columns, (caption,), "scheduler")]


def causes_section(
    n: Compared, of: Mapping[str, WaitingCauses], drawn: Collection[str], left_out: str
) -> web.Section | None:
    """Causes of waiting: under each scheduler, by group of jobs under the base, and by name."""
    sheets = causes_sheets(n, of)
    if not sheets:
        return None
    means, shown = _means(of)
    size, unit = time_unit([float(mean.sum()) for mean in means.values()])
    rows = [
        ("causes", name, _words(CAUSES[c]), float(mean[c]) / size, None, None)
        for name, mean in means.items()
        for c in shown
        if name in drawn
    ]
    panel = Panel("causes", "", f"mean waiting, {unit}", "bars")
    chart = web.pictured("Where the waiting went", rows, [panel], left_out)
    parts: list[web.Part] = [chart, *sheets]
    if (causes := of.get(n.base)) is not None:
        parts += [*_by_name(causes), *_by_group(n, causes)]
    meanings = {cause_words(CAUSES[c]): cause_words(CAUSES[c], "meaning") for c in shown}
    return web.Section("Where the waiting went", [*parts, web.terms(meanings)])


def _by_name(causes: WaitingCauses) -> list[Sheet]:
    """Hours of waiting by cap, by whose jobs held the devices, and for whose they were kept."""
    rows = [(name, seconds) for name, seconds in causes.caps.items()]
    for text, seconds in (("held by user", causes.holders), ("kept for user", causes.kept_for)):
        by_user = causes.charged(seconds)
        rows += [(f"{text} {name}", of_user) for name, of_user in [*by_user.items()][:GROUPS]]
    rows = sorted(rows, key=lambda row: -row[1])[:GROUPS]
    if not rows:
        return []
    total = max(float(causes.seconds.sum()), 1e-9)
    columns: list[tuple[str, list[Cell]]] = [
        ("job-hours\nof waiting", [value_cell(round(seconds / 3600)) for _, seconds in rows]),
        ("share, %", [value_cell(100 * seconds / total) for _, seconds in rows]),
    ]
    caption = web.phrase("by name")
    return [
        columns_sheet(
            "By whom, and by which cap", [name for name, _ in rows], columns, (caption,), ""
        )
    ]


def _by_group(n: Compared, causes: WaitingCauses) -> list[Sheet]:
    sheets = []
    k = n.first.nodes.devices.index(n.device)
    for kind, rows in waited_by_group(causes, n.first, k).items():
        shown = np.flatnonzero(np.sum([row.seconds for row in rows], axis=0) > 0).tolist()
        columns: list[tuple[str, list[Cell]]] = [
            ("jobs", [value_cell(row.jobs) for row in rows]),
            ("job-hours\nof waiting", [value_cell(round(r.seconds.sum() / 3600)) for r in rows]),
        ]
        for c in shown:
            shares = [value_cell(100 * row.seconds[c] / row.seconds.sum()) for row in rows]
            columns.append((f"{_words(CAUSES[c])}, %", shares))
        caption = f"Under {n.base}; the {GROUPS} that waited most." * (len(rows) == GROUPS)
        title = f"Where the waiting went, by {WITHIN[kind]}"
        names = [row.name for row in rows]
        sheets.append(columns_sheet(title, names, columns, (caption,) * bool(caption), kind))
    return sheets
