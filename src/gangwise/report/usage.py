"""The page of an audit: what is asked for and not used, what shorter limits save, who starves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from gangwise.report import answers, plotting
from gangwise.report import page as web
from gangwise.report.tables import Cell, Sheet, columns_sheet, value_cell
from gangwise.study.statistics import count, estimate_text, number
from gangwise.study.usage import QUANTILE, Shorter, UsageAudit, Use

SHOWN = 20
"""At most so many users or accounts are listed: those that used most."""


Columns = list[tuple[str, list[Cell]]]


def usage_sheets(audit: UsageAudit) -> list[Sheet]:
    """Findings, use by user and account of time and of what is held, and shares."""
    sheets = []
    if findings := audit.findings[:SHOWN]:
        columns: Columns = [
            ("hours", [value_cell(round(f.hours)) for f in findings]),
            ("of", [Cell(f.device, words=True) for f in findings]),
        ]
        if audit.prices:
            columns.append(("cost", [value_cell(round(f.cost, 0)) for f in findings]))
        rest = len(audit.findings) - len(findings)
        caption = f"The {SHOWN} with the most hours; {rest:,} more are in audit.json." * (rest > 0)
        sheets.append(
            _sheet(*("What stands out", [f"{f.text}." for f in findings], columns, caption, ""))
        )
    own = audit.total, audit.users, audit.accounts
    for kind in ("user", "account"):
        for device, (total, *groups) in ((audit.device, own), *audit.others.items()):
            if of_device := groups[kind == "account"]:
                sheets.append(_use_sheet(audit, device, total, of_device, kind))
        for device, (total, *groups) in audit.held.items():
            if of_device := groups[kind == "account"]:
                sheets.append(_use_sheet(audit, device, total, of_device, kind, held=True))
    if rows := audit.shares:
        device = audit.device
        columns = [
            ("share, %", [value_cell(100 * row.share, 1) for row in rows]),
            ("of the\nuse, %", [value_cell(100 * row.use, 1) for row in rows]),
            ("hours in which\nit was short", [value_cell(row.short_hours) for row in rows]),
            (f"{device}-hours\nshort", [value_cell(round(row.short)) for row in rows]),
            (
                f"{device}-hours above, while\nanother was short",
                [value_cell(round(row.over)) for row in rows],
            ),
        ]
        names = [row.account for row in rows]
        sheets.append(_sheet("Share and use", names, columns, web.phrase("shares"), "account"))
    return sheets


def _sheet(title: str, names: list[str], columns: Columns, caption: str, kind: str) -> Sheet:
    return columns_sheet(title, names, columns, (caption,) * bool(caption), kind)


def _use_sheet(
    audit: UsageAudit, device: str, total: Use, uses: Sequence[Use], kind: str, held: bool = False
) -> Sheet:
    """Use by user or account, beside the time that was asked for, or what was held."""
    shown, price = uses[:SHOWN], audit.prices.get(device, math.nan)
    columns: Columns = [
        ("jobs", [value_cell(use.jobs) for use in shown]),
        (f"{device}-hours\nused", [value_cell(round(use.used)) for use in shown]),
        ("share, %", [value_cell(100 * use.used / max(total.used, 1e-9), 1) for use in shown]),
    ]
    if math.isfinite(total.asked):
        verb = "held" if held else "asked for"
        columns += [
            (f"{device}-hours\n{verb}", [value_cell(use.asked, 0) for use in shown]),
            ("times\nwhat is used", [value_cell(use.times, 1) for use in shown]),
        ]
    if math.isfinite(total.asked) and not held:
        cut = [value_cell(round(use.cut)) for use in shown]
        columns.append((f"{device}-hours of jobs\nthat reached their limit", cut))
    if math.isfinite(price):
        paid = [price * (use.asked - use.used if held else use.used) for use in shown]
        name = "cost of what\nis not used" if held else "cost"
        columns.append((name, [value_cell(cost, 0) for cost in paid]))
    caption = f"The {SHOWN} that used most of {len(uses):,}." * (len(uses) > SHOWN)
    title = f"{device} held and used, by {kind}" if held else f"Use by {kind}"
    if device in audit.others and not held:
        before = [audit.device, *audit.others][: 1 + [*audit.others].index(device)]
        title += f": jobs without {' and '.join(before)}"
    return _sheet(title, [use.name for use in shown], columns, caption, kind)


def shorter_text(shorter: Shorter) -> str:
    text = web.phrase(
        "shorter limits",
        jobs=f"{shorter.jobs:,}",
        quantile=f"{100 * QUANTILE:g}",
        limit=number(100 * shorter.limit),
        longer=f"{shorter.longer:,}",
        change=estimate_text(shorter.waiting, 1, sign=True),
        hours=f"{abs(shorter.hours):,.0f}",
        saved="less" if shorter.hours >= 0 else "more",
    )
    _, low, high = shorter.waiting
    chance = low is not None and high is not None and low <= 0.0 <= high
    return f"{text} {web.phrase('nothing gained')}" if chance else text


def usage_page(audit: UsageAudit, command: str) -> web.Page:
    """One page that a manager reads: the verdict, four numbers, a chart, the tables."""
    total, device, shorter = audit.total, audit.device, audit.shorter
    totals = [total, *(every for every, *_ in audit.others.values())]
    users = [audit.users, *(of_users for _, of_users, _ in audit.others.values())]
    names = {use.name for of_users in users for use in of_users}
    known = math.isfinite(total.asked)
    cost = (
        f"{total.used * audit.price:,.0f} at {audit.price:g} each"
        if math.isfinite(audit.price)
        else ""
    )
    tiles = [
        web.Tile("Findings", f"{len(audit.findings)}", "", "bad" if audit.findings else "good"),
        web.Tile(f"{device}-hours used", f"{total.used:,.0f}", cost),
        web.Tile(
            "Asked for",
            f"{number(total.times, 1)} times" if known else "not known",
            "what is used, by limits" if known else "the log has no limits",
        ),
    ]
    for name, (others, *_) in audit.others.items():
        tiles.append(web.Tile(f"{name}-hours used by other jobs", f"{others.used:,.0f}", ""))
    if shorter is not None:
        change = f"{number(shorter.waiting.mean, 1, sign=True)} %"
        ends = f"{estimate_text(shorter.waiting, 1, sign=True)}; learned from earlier weeks"
        tiles.append(web.Tile("Mean wait with shorter limits", change, ends))
    parts: list[web.Part] = [web.Tiles(tiles)]
    shown = [use for use in audit.users[:8] if math.isfinite(use.asked)]
    if known and shown:
        rows = [
            ("use", line, use.name, hours, None, None)
            for use in shown
            for line, hours in (("asked for", use.asked), ("used", use.used))
        ]
        panel = plotting.Panel("use", "user", f"{device}-hours", "bars")
        parts.append(web.pictured("Asked for and used", rows, [panel], ""))
    if shorter is not None:
        parts.append(web.Text(shorter_text(shorter)))
    parts += web.notes(audit.lines)
    parts.append(web.Section("Who, and how much", usage_sheets(audit)))
    return web.answer(
        f"Audit of {Path(audit.source).name}",
        f"{audit.verdict}.",
        [count(sum(of.jobs for of in totals), "job"), count(len(names), "user")],
        parts,
        answers.made_by(command),
        web.jobs_terms("waiting", "limit"),
    )
