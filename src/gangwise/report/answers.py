"""Pages of what a command finds in a log: its jobs, when they start, its site; and the leaderboard.

Each has the frame of :func:`~gangwise.report.page.answer_page`: verdict, tiles, one chart, tables.

The page of an audit says what is asked for and not used, what shorter limits save, and who starves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gangwise.core.arrays import Floats
from gangwise.notation import roughly
from gangwise.report import page as web
from gangwise.report import tables
from gangwise.report.page import Section, Tile, Tiles, answer_page
from gangwise.report.plotting import Panel
from gangwise.report.tables import Cell, Columns, Sheet, columns_sheet, estimate_cells, value_cell
from gangwise.study.statistics import Estimate, count, estimate_text, mean_and_interval, number
from gangwise.study.usage import QUANTILE, Shorter, UsageAudit, Use

if TYPE_CHECKING:
    from gangwise.logs.jobs import Played
    from gangwise.study.explain import ForecastOfLog
    from gangwise.study.findings import Calibrated
    from gangwise.study.replay import Leaderboard
    from gangwise.study.route import Routed

HINDSIGHT = "hindsight"  # see :mod:`gangwise.study.route`, which compiles


def _time(seconds: float | None) -> str:
    return "not known" if seconds is None or math.isnan(seconds) else roughly(seconds)


def _time_cell(seconds: float | None) -> Cell:
    return Cell(_time(seconds), math.nan if seconds is None else seconds)


def jobs_page(source: str, facts: Mapping[str, Any], played: Played, command: str) -> web.Page:
    """Page of a log, of :func:`~gangwise.logs.inspect.summary`."""
    device, wait, run = web.in_words(facts["device"]), facts["wait"], facts["run"]
    load, days = facts["implied_load"], (facts["to_s"] - facts["from_s"]) / 86400
    jobs = count(facts["jobs"], "job")
    parts = [f"keep {number(100 * load)} % of the {device} in use"] * (load is not None)
    parts += [f"wait {roughly(wait['mean'])} on average"] * (wait is not None)
    verdict = f"{jobs} in {number(days, int(days < 10))} days {' and '.join(parts)}".rstrip()
    share = played.played / max(played.read, 1)
    tiles = [
        Tile(
            "Jobs that can be played",
            # Near 100 % a decimal tells whether all can be played.
            f"{number(100 * share, int(0.99 < share < 0.9995))} %",
            f"{played.played:,} of {played.read:,}",
            "bad" if played.doubts else "good" * (share > 0.95),
        ),
        Tile(f"Load of {device}", f"{number(100 * load)} %", "mean over the log")
        if load is not None
        else Tile("Users", f"{facts['users']:,}"),
        Tile("Mean waiting", _time(wait["mean"]), f"median {_time(wait['median'])}")
        if wait
        else Tile("Mean waiting", "not recorded", "the log does not say when jobs started"),
    ]
    if run:
        tiles.append(Tile("Median run time", _time(run["median"]), f"mean {_time(run['mean'])}"))
    rows = [
        ("load", "jobs", (at - facts["load_edges_s"][0]) / 86400, 100 * (share or 0), None, None)
        for (at, _), share in zip(pairwise(facts["load_edges_s"]), facts["load"])
    ]
    panel = Panel("load", "days since the log begins", f"{device} in use, %", "steps")
    chart = [web.pictured(f"{device} in use over time", rows, [panel], "")] * (load is not None)
    sections = [Section("Waits and run times", [_spreads_sheet(facts)])] if wait or run else []
    sizes = [f"up to {size['most']:g}" if size["most"] else "none" for size in facts["sizes"]]
    columns = [("jobs", [value_cell(size["jobs"]) for size in facts["sizes"]])]
    sections.append(
        Section("Sizes", [columns_sheet("Jobs by size", sizes, columns, (), f"{device} of a job")])
    )
    users = facts["top_users"]
    columns = [
        ("jobs", [value_cell(user["jobs"]) for user in users]),
        (
            f"share of\n{played.unit}-hours, %",
            [value_cell(100 * (user["share"] or 0), 1) for user in users],
        ),
        ("waiting\nmean", [_time_cell(user["wait"]) for user in users]),
    ]
    names = [user["user"] or "(not named)" for user in users]
    caption = f"Those with the most {played.unit}-hours of {count(facts['users'], 'user')}."
    sections.append(
        Section("Users", [columns_sheet("Largest users", names, columns, (caption,), "user")])
    )
    lines = [played.line, *played.doubts, *played.warnings, *played.notes]
    title, terms = f"Jobs of {source}", ("waiting", "limit", "load", "played")
    about = [count(facts["nodes"], "node"), count(facts["users"], "user")]
    content = [Tiles(tiles), *chart, *web.notes(lines), *sections]
    return answer_page(title, verdict, about, content, command, terms)


def _spreads_sheet(facts: Mapping[str, Any]) -> Sheet:
    named = {"wait": "waiting", "run": "run time"}
    shown = [name for name in named if facts[name]]
    stats = ("mean", "median", "p90", "p95", "p99", "most")
    columns = [(stat, [_time_cell(facts[name][stat]) for name in shown]) for stat in stats]
    captions = []
    if facts["waiting_share"] is not None:
        share = number(100 * facts["waiting_share"], 1)
        captions.append(f"Waiting is {share} % of the time in the system.")
    if facts["limit_over_run"] is not None:
        over = number(facts["limit_over_run"]["median"], 1)
        captions.append(f"Limits are {over} times the run time (median).")
    names = [named[name] for name in shown]
    return columns_sheet("Waits and run times", names, columns, tuple(captions), "")


MOST_JOBS = 500
"""Forecasts of at most so many jobs have a row of the table."""


def starts_sheet(forecast: ForecastOfLog) -> Sheet:
    """Every waiting job, the soonest first; of many the first ones."""
    rows = sorted(forecast.rows, key=lambda row: row["p50"])
    seconds = {"limit": "limit", "waited": "waited", "p50": "p50", "p90": "p90"}
    seconds |= {"promised": "by\nrequests", "started": "start\nafter"}
    shown = rows[:MOST_JOBS]
    columns = [
        (heading, [_time_cell(row[name]) for row in shown])
        for name, heading in seconds.items()
        # A column that no job has a value of is left out.
        if any(row.get(name) is not None for row in shown)
    ]
    # Forecasts from history know no users.
    if rows and "user" in rows[0]:
        users = [Cell(str(row["user"]), words=True) for row in shown]
        columns = [
            ("user", users),
            ("tasks", [value_cell(row["tasks"]) for row in shown]),
            *columns,
        ]
    caption = f"The {MOST_JOBS} soonest of {len(rows):,}." * (len(rows) > MOST_JOBS)
    names = [str(row["job"]) for row in shown]
    return columns_sheet("Starts", names, columns, (caption,), "job")


def forecast_page(source: str, forecast: ForecastOfLog, judged: str, command: str) -> web.Page:
    """Page of a forecast: starts of waiting jobs, the soonest first."""
    rows = sorted(forecast.rows, key=lambda row: row["p50"])
    p50, p90 = (np.array([row[name] for row in rows], dtype=float) for name in ("p50", "p90"))
    jobs = count(len(rows), "job waits", "jobs wait")
    middle = _time(float(np.median(p50)))
    verdict = f"{jobs}; half of them probably start within {middle}"
    if len(rows) == 1:
        verdict = f"1 job waits and probably starts within {middle}"
    waited = np.array([row["waited"] for row in rows])
    tiles = [
        Tile("Jobs that wait", f"{len(rows):,}", f"the longest since {_time(float(waited.max()))}"),
        Tile("Start, even chance (p50)", middle, "median of the jobs, from now"),
        Tile("Start, nine of ten (p90)", _time(float(np.median(p90))), "median of the jobs"),
        Tile("Last start (p90)", _time(float(p90.max())), f"job {rows[int(p90.argmax())]['job']}"),
    ]
    size, unit = (86400.0, "days") if np.median(p90) > 3 * 86400 else (3600.0, "h")
    # A p90 that never comes cannot be drawn.
    finite = [i for i in range(len(rows)) if np.isfinite(p90[i])]
    points = [
        ("starts", "jobs", float(i + 1), p50[i] / size, p50[i] / size, p90[i] / size)
        for i in finite
    ]
    panel = Panel(
        "starts",
        "jobs, the soonest first",
        f"{unit} from now",
        "points" if len(finite) < 2 else "dots",
    )
    caption = "A dot is p50, its line goes on to p90."
    chart = [web.pictured("When jobs start", points, [panel], caption)] * bool(points)
    lines = [forecast.basis.rstrip("."), *[judged.rstrip(".")] * bool(judged)]
    title, terms = f"Starts of waiting jobs of {source}", ("p50", "p90", "by requests", "limit")
    facts, every = [count(len(rows), "waiting job")], [starts_sheet(forecast)]
    parts = [Tiles(tiles), *chart, *web.notes(lines), Section("Every waiting job", every)]
    return answer_page(title, verdict, facts, parts, command, terms, "forecasts")


def calibration_page(result: Calibrated, command: str) -> web.Page:
    """Rules of a site found in a log, and how much of its unexplained waiting they explain."""
    from gangwise.study.findings import entry_text

    fit, findings = result.found, result.found.findings
    share = 1 - fit.left / fit.contradicted if fit.contradicted else 0.0
    rules = count(len(findings), "rule")
    verdict = f"{rules} found, which explain {number(100 * share)} % of the hours in which jobs "
    verdict += "waited though devices were free"
    if not findings:
        verdict = "no rule is confirmed: no cap, closing hours or missing capacity"
    tiles = [
        Tile("Rules found", f"{len(findings):,}"),
        Tile(
            "Hours that capacity does not explain",
            f"{number(fit.contradicted)} h",
            f"of {number(fit.hours)} h of the log: every waiting job would have fitted",
        ),
        Tile(
            "Left with these rules",
            f"{number(fit.left)} h",
            f"{number(100 * share)} % explained",
            "good" * (share >= 0.5),
        ),
        Tile(
            "Jobs not started at once", f"{fit.refused:,}", f"{fit.unexplained:,} with these rules"
        ),
    ]
    columns = [
        ("evidence", [Cell(f"{rule.evidence}.", words=True) for rule in findings]),
        ("jobs it\nexplains", [value_cell(rule.explains[1]) for rule in findings]),
    ]
    table = columns_sheet("Rules", [*map(entry_text, findings)], columns, (), "rule")
    parts: list[web.Part] = [Tiles(tiles), *web.notes(result.headline)]
    parts += [Section("Rules found", [table])] * bool(findings)
    file = Section("The site file", [web.Code(result.toml().rstrip())])
    title, terms = f"The site behind {result.source}", ("waiting", "cap", "window")
    facts = [count(len(result.log.jobs), "job"), count(len(result.log.nodes), "node")]
    return answer_page(title, verdict, facts, [*parts, file], command, terms, "rules")


def board_sheets(board: Leaderboard) -> list[Sheet]:
    """Every entry's completion and place, and the waiting of its worst users, log by log."""
    base, ranked, oracles = board.rules["base"], board.ranked, board.rules["oracles"]

    def cells(values: Iterable[Floats], sign: bool = False, least: int = 0) -> list[Cell]:
        return estimate_cells([*map(mean_and_interval, values)], sign, least)

    # Oracles have no place, as nobody can use one.
    places = iter(range(1, len(ranked) + 1))
    columns = [
        ("place", [Cell("") if e in oracles else value_cell(next(places)) for e in ranked]),
        # 1 is the bound, near which two decimals tell entries apart.
        ("completion\n÷ bound", cells(map(board.ratio, ranked), least=2)),
        (f"over {base},\n%", cells((100 * (board.ratio(e, base) - 1) for e in ranked), True, 1)),
    ]
    worst: Columns = []
    for log, entries in board.numbers.items():
        columns.append((f"gap on\n{log}, %", cells(100 * entries[e]["gap"] for e in ranked)))
        hours = cells(entries[e]["worst users"] / 3600 for e in ranked)
        worst.append((f"waiting on\n{log}, h", hours))
    return [
        columns_sheet("Completion", ranked, columns, (board.about,), "scheduler"),
        columns_sheet("Waiting of the worst users", ranked, worst, (), "scheduler"),
    ]


def board_text(board: Leaderboard) -> str:
    """The leaderboard in Markdown, as the documentation has it."""
    logs = [f"**{log}.** {text}" for log, text in board.log_lines()]
    return "\n\n".join([*map(tables.markdown, board_sheets(board)), *logs])


def leaderboard_page(board: Leaderboard, command: str) -> web.Page:
    """Every entry on every log: completion over the bound, and over the base's."""
    base, ranked = board.rules["base"], board.ranked
    # Ranked already: the first that is no oracle is the best.
    able = [name for name in ranked if name not in board.rules["oracles"]]
    best = able[0]
    ratios = {name: mean_and_interval(board.ratio(name)) for name in ranked}
    over = {name: mean_and_interval(100 * (board.ratio(name, base) - 1)) for name in ranked}
    lead = over[best]
    verdict = f"{web.short_name(best)} completes jobs {number(-lead.mean, 1)} % sooner than "
    verdict += f"{web.short_name(base)} over {count(len(board.numbers), 'log')}, the most of all"
    if best == base:
        verdict = f"no entry completes jobs sooner than {web.short_name(base)}"
    tiles = [
        Tile("Best entry", web.sentence_case(web.short_name(best)), best),
        Tile("Its completion over the bound", number(ratios[best].mean, 2), "1 cannot be beaten"),
        Tile(
            f"Against {web.short_name(base)}",
            f"{number(lead.mean, 1, sign=True)} %",
            web.interval(lead),
        ),
        Tile("Entries", f"{len(ranked)}", f"{len(board.rules['oracles'])} of them know the future"),
    ]
    changes = {name: e for name, e in over.items() if name != base}
    caption = f"Less is better. {board.about}"
    chart = web.dots(f"Completion against {base}, %, geometric mean over logs", changes, caption)
    parts: list[web.Part] = [Tiles(tiles), *chart, Section("The board", board_sheets(board))]
    parts.append(Section("Logs", [web.Terms(dict(board.log_lines()))]))
    meanings = {name: web.about_scheduler(name) for name in ranked}
    parts.append(Section("Schedulers", [web.Terms(meanings)]))
    title, terms = "Leaderboard of schedulers", ("completion", "waiting", "bound")
    facts = [count(len(board.numbers), "log"), count(len(ranked), "entry", "entries")]
    return answer_page(title, verdict, facts, parts, command, terms)


def route_sheet(routed: Routed, logs: Sequence[str]) -> Sheet:
    """Means of each route, the soonest completion first, and of each log's own jobs."""
    numbers = routed.numbers
    names = sorted(numbers, key=lambda name: float(numbers[name][:, 0].mean()))
    means = {name: [mean_and_interval(column) for column in numbers[name].T] for name in names}
    # Hindsight is above itself by 0 for certain.
    regrets = [Estimate(0.0, None, None) if n == HINDSIGHT else routed.regret(n) for n in names]
    columns: Columns = [
        ("completion,\nh", estimate_cells([means[name][0] for name in names])),
        ("waiting,\nh", estimate_cells([means[name][1] for name in names])),
        ("over\nhindsight, h", estimate_cells(regrets, True)),
        ("moved,\n%", estimate_cells([means[name][2] for name in names], factor=100.0)),
    ]
    for k, log in enumerate(logs, 3):
        columns.append((f"jobs of\n{log}, h", estimate_cells([means[name][k] for name in names])))
    caption = "Means; completion of each log's jobs."
    return columns_sheet("Routes", names, columns, (caption,), "route")


def route_page(routed: Routed, logs: Sequence[str], command: str) -> web.Page:
    """Routes between clusters against jobs that stay at home: completion, and whose jobs pay."""
    numbers = routed.numbers
    # Without jobs that stay at home, the first route is what others are compared with.
    base = "home" if "home" in numbers else next(iter(numbers))
    changes = {
        name: mean_and_interval(100 * (table[:, 0] / numbers[base][:, 0] - 1))
        for name, table in numbers.items()
        if name != base
    }
    able = [name for name in changes if name not in (HINDSIGHT, "oracle")]
    # Where all jobs stay at home, hindsight alone is left to compare.
    best = min(able, key=lambda name: changes[name].mean, default=HINDSIGHT)
    change = changes[best]
    verdict = f"no route finishes jobs sooner than {base}"
    if change.mean < 0:
        sure = change.high is not None and change.high < 0
        verdict = f"route {best} finishes jobs {number(-change.mean, 1)} % sooner than {base}"
        verdict += "" if sure else ", which may be chance"
    hours = {name: mean_and_interval(table[:, 0]) for name, table in numbers.items()}
    moved = mean_and_interval(100 * numbers[best][:, 2]).mean
    tiles = [
        Tile("Best route", best, f"{number(change.mean, 1, sign=True)} %; {web.interval(change)}"),
        Tile(
            f"Mean completion, {base} → best",
            f"{_time(3600 * hours[base].mean)} → {_time(3600 * hours[best].mean)}",
        ),
        Tile("Jobs that run elsewhere", f"{number(moved, int(moved < 10))} %", f"under {best}"),
        Tile("Above hindsight", _time(3600 * max(routed.regret(best).mean, 0.0)), "on average"),
    ]
    caption = "Less is better. Hindsight: the best choice that was found afterwards."
    chart = web.dots(f"Mean completion against {base}, %", changes, caption)
    parts: list[web.Part] = [Tiles(tiles), *chart, *web.notes(routed.lines)]
    parts.append(Section("Who wins and who pays", [route_sheet(routed, logs)]))
    facts = [count(len(logs), "cluster"), count(len(numbers), "route")]
    terms = "completion", "waiting"
    return answer_page("Routes between clusters", verdict, facts, parts, command, terms)


SHOWN = 20
"""At most so many users or accounts are listed: those that used most."""


def usage_sheets(audit: UsageAudit) -> list[Sheet]:
    """Findings, use by user and account of time and of what is held, and shares."""
    sheets = []
    if findings := audit.findings[:SHOWN]:
        columns: Columns = [
            ("hours", [value_cell(round(f.hours)) for f in findings]),
            ("device", [Cell(f.device, words=True) for f in findings]),
        ]
        if audit.prices:
            columns.append(("cost", [value_cell(round(f.cost, 0)) for f in findings]))
        rest = len(audit.findings) - len(findings)
        caption = f"The {SHOWN} with the most hours; {rest:,} more are in audit.json." * (rest > 0)
        texts = [f"{f.text}." for f in findings]
        sheets.append(columns_sheet("What stands out", texts, columns, (caption,), ""))
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
        caption = web.phrase("shares")
        sheets.append(columns_sheet("Share and use", names, columns, (caption,), "account"))
    return sheets


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
    # NaN where no job requested a limit.
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
        # Devices that are held are paid for, used or not.
        paid = [price * (use.asked - use.used if held else use.used) for use in shown]
        name = "cost of what\nis not used" if held else "cost"
        columns.append((name, [value_cell(cost, 0) for cost in paid]))
    caption = f"The {SHOWN} that used most of {len(uses):,}." * (len(uses) > SHOWN)
    title = f"{device} held and used, by {kind}" if held else f"Use by {kind}"
    if device in audit.others and not held:
        # Each job counts once: these hold nothing of the device types before.
        before = [audit.device, *audit.others][: 1 + [*audit.others].index(device)]
        title += f": jobs without {' and '.join(before)}"
    return columns_sheet(title, [use.name for use in shown], columns, (caption,), kind)


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
    # Zero lies within the interval.
    chance = low is not None and high is not None and low <= 0.0 <= high
    return f"{text} {web.phrase('nothing gained')}" if chance else text


def usage_page(audit: UsageAudit, command: str) -> web.Page:
    """One page that a manager reads: the verdict, four numbers, a chart, the tables."""
    total, device, shorter = audit.total, audit.device, audit.shorter
    totals = [total, *(every for every, *_ in audit.others.values())]
    users = [audit.users, *(of_users for _, of_users, _ in audit.others.values())]
    # A user with jobs on several device types counts once.
    names = {use.name for of_users in users for use in of_users}
    known = math.isfinite(total.asked)
    cost = (
        f"{total.used * audit.price:,.0f} at {audit.price:g} each"
        if math.isfinite(audit.price)
        else ""
    )
    tiles = [
        Tile("Findings", f"{len(audit.findings)}", "", "bad" if audit.findings else "good"),
        Tile(f"{device}-hours used", f"{total.used:,.0f}", cost),
        Tile(
            "Asked for",
            f"{number(total.times, 1)} times" if known else "not known",
            "what is used, by limits" if known else "the log has no limits",
        ),
    ]
    for name, (others, *_) in audit.others.items():
        tiles.append(Tile(f"{name}-hours used by other jobs", f"{others.used:,.0f}", ""))
    if shorter is not None:
        change = f"{number(shorter.waiting.mean, 1, sign=True)} %"
        ends = f"{estimate_text(shorter.waiting, 1, sign=True)}; learned from earlier weeks"
        tiles.append(Tile("Mean wait with shorter limits", change, ends))
    parts: list[web.Part] = [Tiles(tiles)]
    # Bars of more users would not fit.
    shown = [use for use in audit.users[:8] if math.isfinite(use.asked)]
    if known and shown:
        rows = [
            ("use", line, use.name, hours, None, None)
            for use in shown
            for line, hours in (("asked for", use.asked), ("used", use.used))
        ]
        panel = Panel("use", "user", f"{device}-hours", "bars")
        parts.append(web.pictured("Asked for and used", rows, [panel], ""))
    if shorter is not None:
        parts.append(web.Text(shorter_text(shorter)))
    parts += web.notes(audit.lines)
    parts.append(Section("Who, and how much", usage_sheets(audit)))
    title, terms = f"Audit of {Path(audit.source).name}", ("waiting", "limit")
    facts = [count(sum(total.jobs for total in totals), "job"), count(len(names), "user")]
    return answer_page(title, audit.verdict, facts, parts, command, terms)
