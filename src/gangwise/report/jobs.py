"""The report of jobs under several schedulers: the answer first, then tables, figures, nodes.

:meth:`JobResults.page` is one HTML page that opens offline, :meth:`JobResults.terminal` text. The
page is the list :data:`SECTIONS`: each is a function of :class:`JobResults`.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from rich.console import Group
from rich.text import Text as Line

from gangwise.core.arrays import Floats, Ints
from gangwise.core.terminal import cause_words, words_of
from gangwise.jobs.bounds import MOST_PRICED, NO_BOUNDS, Certified
from gangwise.jobs.metrics import Outcome, by_group, size_groups, spread
from gangwise.jobs.waiting import WaitingCauses
from gangwise.jobs.waiting_kernels import CAUSES
from gangwise.notation import roughly
from gangwise.report import page as web
from gangwise.report import tables
from gangwise.report.charts import chart_of_nodes, figure_of_nodes, span
from gangwise.report.page import Section, Tile, Tiles
from gangwise.report.plotting import Panel
from gangwise.report.tables import Cell, Columns, Sheet, columns_sheet, estimate_cells, value_cell
from gangwise.study import answer, statistics, what_if
from gangwise.study import runs as study_runs
from gangwise.study.answer import CONFIGURED, GROUPS, HAPPENED, SMALL, Compared, kills_more
from gangwise.study.changes import changes_of
from gangwise.study.replay import Replayed
from gangwise.study.statistics import UNKNOWN, Estimate, count, mean_and_interval, number

WITHIN = {"user": "user", "account": "account", "partition": "partition", "size": "size of a job"}
WITHIN |= {"week": "week of submission", "day": "day of submission"}


def _words(cause: str) -> str:
    return str(words_of("gangwise.study")["causes"][cause]["short"])


def _means(causes: Mapping[str, WaitingCauses]) -> tuple[dict[str, Floats], list[int]]:
    """Mean seconds by cause of the jobs that started, and the causes that occur."""
    means = {}
    for name, found in causes.items():
        jobs = found.queued
        # At least 1, where no job has started.
        means[name] = found.seconds[jobs].sum(axis=0) / max(int(jobs.sum()), 1)
    shown = np.flatnonzero(np.array([*means.values()]).sum(axis=0) > 0)
    return means, shown.tolist()


def causes_sheets(n: Compared, of: Mapping[str, WaitingCauses]) -> list[Sheet]:
    """The mean wait under each scheduler, split by cause."""
    means, shown = _means(of)
    if not shown:
        return []
    # One unit for all rows, as they stand below one another.
    size, unit = tables.time_unit([float(mean.sum()) for mean in means.values()])
    columns = [(f"waiting\nmean, {unit}", [value_cell(m.sum() / size, 2) for m in means.values()])]
    for c in shown:
        columns.append((_words(CAUSES[c]), [value_cell(m[c] / size, 2) for m in means.values()]))
    caption = web.phrase("causes", seed=" with the first seed" * (n.seeds > 1))
    if HAPPENED in means and n.base in means:
        left = float(means[HAPPENED].sum() - means[n.base].sum()) / size
        about = {"left": number(abs(left), 2), "longer": "longer" if left > 0 else "less"}
        base = "the rules as configured" if n.base == CONFIGURED else n.base
        caption += " " + web.phrase("unexplained", unit=unit, base=base, **about)
    return [columns_sheet("Where the waiting went", [*means], columns, (caption,), "scheduler")]


def causes_section(
    n: Compared, of: Mapping[str, WaitingCauses], drawn: Collection[str], left_out: str
) -> web.Section | None:
    """Causes of waiting: under each scheduler, by group of jobs under the base, and by name."""
    sheets = causes_sheets(n, of)
    if not sheets:
        return None
    means, shown = _means(of)
    size, unit = tables.time_unit([float(mean.sum()) for mean in means.values()])
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
    return Section("Where the waiting went", [*parts, web.terms(meanings)])


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
    columns: Columns = [
        ("job-hours\nof waiting", [value_cell(round(seconds / 3600)) for _, seconds in rows]),
        ("share, %", [value_cell(100 * seconds / total) for _, seconds in rows]),
    ]
    title, names = "By whom, and by which cap", [name for name, _ in rows]
    return [columns_sheet(title, names, columns, (web.phrase("by name"),), "")]


def _by_group(n: Compared, causes: WaitingCauses) -> list[Sheet]:
    sheets = []
    k = n.first.nodes.devices.index(n.device)
    for kind, rows in answer.waited_by_group(causes, n.first, k).items():
        shown = np.flatnonzero(np.sum([row.seconds for row in rows], axis=0) > 0).tolist()
        columns: Columns = [
            ("jobs", [value_cell(row.jobs) for row in rows]),
            ("job-hours\nof waiting", [value_cell(round(r.seconds.sum() / 3600)) for r in rows]),
        ]
        for c in shown:
            shares = [value_cell(100 * row.seconds[c] / row.seconds.sum()) for row in rows]
            columns.append((f"{_words(CAUSES[c])}, %", shares))
        caption = f"Under {n.base}; the {GROUPS} that waited most." * (len(rows) == GROUPS)
        title = f"Where the waiting went, by {WITHIN[kind]}"
        names = [row.name for row in rows]
        sheets.append(columns_sheet(title, names, columns, (caption,), kind))
    return sheets


MOST_APART = 100.0
"""Bars of which one is more than so many times as high as another are marks on a log scale."""

BINS, DOTS = 240, 120
"""Number of bins in figures over time, and of nodes in figures of learned rates."""

USERS, DRAWN_USERS = 12, 6
"""This many users, those with the most jobs, have a row of a table, or a bar of a figure."""

FARTHEST = 12
"""This many weeks or days have a row beside what was recorded: those that are farthest off."""

GROUPED = {"size": "size of a job", "user": "class of its user"}

SPREAD = ("mean", "median", "p95")


@dataclass(frozen=True, eq=False)
class JobResults(Compared):
    """Results of the same jobs under several schedulers, and what a page says beside them.

    >>> from gangwise.jobs import Jobs, Nodes, simulate_jobs
    >>> jobs = Jobs.of(submit=[0, 1, 2], run=[1e4, 1e4, 5e3], tasks=[3, 2, 1], limit=2e4)
    >>> names = ("fcfs", "fcfs+easy+best-fit")
    >>> played = {n: [Outcome.of(simulate_jobs(jobs, Nodes.pool(4), n), n)] for n in names}
    >>> JobResults("three jobs", played).text
    '3 jobs of three jobs wait 1.9 h and complete after 4.2 h on average under the base, fcfs....'
    """

    fidelity: Sequence[str] = ()  # what was dropped or assumed of the trace: Account.lines()
    assumed: Sequence[str] = ()  # further, such as the parameters of a drawn world
    command: str = ""  # that made these results
    digest: str | Callable[[], str] = ""  # of the stored numbers; of a million jobs half a second
    prices: Mapping[str, float] = field(default_factory=dict)  # of a device-hour
    edits: Mapping[str, Sequence[str]] = field(default_factory=dict)  # lines of the site's files
    causes: Mapping[str, WaitingCauses] = field(default_factory=dict)  # of waiting, first seed
    capacity: Sequence[Mapping[str, Any]] = ()  # how many nodes reach a target, by kind

    @cached_property
    def sheets(self) -> list[Sheet]:
        return [sheet for make in SHEETS for sheet in make(self)]

    def page(self) -> str:
        return web.html(self.document())

    def document(self) -> web.Page:
        rows: Mapping[str, object] = self.outcomes
        noun = ("scheduler", "schedulers")
        if self.edits:
            rows, noun = self.edits, ("change", "changes")
        jobs = f"{np.mean([len(run.jobs) for run in self.outcomes[self.base]]):,.0f} jobs"
        title = f"{web.numbered(len(rows), *noun)} on {jobs} of {answer.source_in_words(self.name)}"
        nodes, devices = len(self.first.nodes), self.first.nodes.devices
        total = self.first.capacity[devices.index(self.device)]
        facts = [
            # A log of processors has one node, which stands for all of them.
            count(nodes, "node") if nodes > 1 else f"{total:,.0f} {web.in_words(self.device)}",
            *([count(self.seeds, "seed")] if self.drawn else []),
        ]
        parts: list[web.Part] = [Tiles(tiles(self)), *change_dots(self, ["completion"])]
        parts += [web.Bullets([row["sentence"] for row in self.capacity])] * bool(self.capacity)
        parts += web.notes([*self.fidelity, *map(web.sentence_case, self.assumed)])
        parts += [section for make in SECTIONS if (section := make(self)) is not None]
        provenance = provenance_section(self)
        return web.answer(title, headline(self), facts, parts, provenance, web.jobs_terms(*TERMS))

    def terminal(self) -> Group:
        notes = Line("\n".join([*self.fidelity, *self.assumed]))
        verdict, in_full = Line(headline(self), "bold"), Line(f"\n{self.text}")
        return Group(verdict, notes, Line(), tables.rich_tables(self.sheets), in_full)


TERMS = (
    *("waiting", "completion", "slowdown", "utilisation", "goodput", "thrown away", "limit"),
    *("gang", "explained", "bound"),
)
"""What the page speaks of, in its glossary."""

SHOWN = 12
"""Tables and figures show at most this many changes."""


def results_of(played: Replayed, bounds: Certified = NO_BOUNDS, command: str = "") -> JobResults:
    table, edits, counts = played.compared(bounds), what_if.lines_of(played), []
    if len(edits) > SHOWN:
        verdicts = Counter(table.verdict(name) for name in edits).items()
        text = ", ".join(f"{n:,} {verdict}" for verdict, n in verdicts)
        counts = [web.phrase("many changes", changes=f"{len(edits):,}", each=text, shown=SHOWN)]
        # The others are sorted: these have the least mean completion.
        edits = {name: edits[name] for name in table.others[:SHOWN]}
        table = replace(
            table, outcomes={name: table.outcomes[name] for name in (table.base, *edits)}
        )
    return JobResults(
        **{f.name: getattr(table, f.name) for f in fields(table)},
        fidelity=[*counts, *played.scenario.fidelity()],
        assumed=played.scenario.assumed(),
        command=command,
        # Only a page quotes it, and for it all that is stored is read.
        digest=lambda: played.results.digest,
        prices=played.results.experiment.get("prices", {}),
        edits=edits,
        causes={
            name: of
            for name, of in played.causes.items()
            if name in table.outcomes or name == HAPPENED
        },
    )


# Tables


def _column(n: Compared, heading: str, key: str, read: str = "") -> tuple[str, list[Cell]]:
    """A metric of every row, read as a ``share`` in per cent, a ``time`` in a unit, or as it is."""
    estimates = [n.estimate(row, key) for row in n.outcomes]
    size, unit = (0.01, "%") if read == "share" else (1.0, "")
    if read == "time":
        size, unit = tables.time_unit([e.mean for e in estimates])
    return heading + unit, estimate_cells(estimates, least=int(read == "share"), factor=1 / size)


def _sheet(
    n: Compared, title: str, columns: Columns, *captions: str, rows: Sequence[str] = ()
) -> Sheet:
    noun = "rules" if n.base == CONFIGURED else "scheduler"
    return columns_sheet(title, [*(rows or n.outcomes)], columns, captions, noun)


def _spread_columns(of: Callable[[str], list[Estimate]]) -> Columns:
    columns: Columns = []
    for name in ("waiting", "completion"):
        size, unit = tables.time_unit([e.mean for e in of(f"{name}.mean")])
        for stat in SPREAD:
            cells = estimate_cells(of(f"{name}.{stat}"), factor=1 / size)
            columns.append((f"{name}\n{stat}, {unit}", cells))
    return columns


def _times_sheet(n: Compared) -> list[Sheet]:
    columns = _spread_columns(lambda key: [n.estimate(row, key) for row in n.outcomes])
    captions = [f"{n.over_seeds} Waiting: to the first start. Completion: from submission to end."]
    if n.happened is not None and not n.waited:
        captions.append(web.phrase("no waiting"))
    finished = {row: n.estimate(row, "finished").mean for row in n.outcomes}
    if any(finished[row] < n.estimate(row, "jobs").mean for row in n.outcomes):
        text = "; ".join(f"{row} {number(jobs)}" for row, jobs in finished.items())
        jobs = number(n.estimate(n.base, "jobs").mean)
        captions.append(web.phrase("not all done", jobs=jobs, each=text))
    for key, bounds in ("lower bound", n.bounds.values), ("of all", n.bounds.preemptive):
        # The bound of all schedules counts only where some scheduler interrupts jobs.
        if not bounds or (key == "of all" and not n.interrupt):
            continue
        size, unit = tables.time_unit(bounds)
        bound = mean_and_interval(np.array(bounds) / size)
        until = "; jobs that are killed count until then" * n.killed
        names = ", ".join(n.interrupt)
        about = {
            "bound": statistics.estimate_text(bound),
            "unit": unit,
            "until": until,
            "names": names,
        }
        captions.append(web.phrase(key, **about))
        if not n.bounds.priced and key == "lower bound":
            jobs = f"{len(n.first.jobs):,}"
            captions.append(web.phrase("no prices", jobs=jobs, most=f"{MOST_PRICED:,}"))
    return [_sheet(n, "Waiting and completion time", columns, *captions)]


def _recorded_sheet(n: Compared) -> list[Sheet]:
    record, retold, idle = n.happened, n.retold, n.idle
    if record is None or retold is None or idle is None:
        return []
    # The same jobs in both rows.
    ended = record.ended & n.first.ended
    summaries = [
        spread("waiting", o.waiting[ended]) | spread("completion", o.completion[ended])
        for o in (record, n.first)
    ]
    columns = _spread_columns(lambda key: [Estimate(s[key], None, None) for s in summaries])
    beside = [Estimate(100 * share, None, None) for share in (idle.recorded, idle.simulated)]
    columns.append((f"idle {idle.device}-hours\nbeside waiting jobs, %", estimate_cells(beside)))
    shares = ("explained", "near", "by_job", "use")
    says = web.phrase(
        "retold",
        jobs=f"{retold.jobs:,}",
        order=number(retold.order, 2),
        device=web.in_words(retold.device),
        waits=number(retold.waits, 2),
        **{name: number(100 * getattr(retold, name)) for name in shares},
    )
    captions = (says, web.phrase("idle"))
    rows = [HAPPENED, f"{n.base}, simulated"]
    return [columns_sheet("What happened, and what the model retells", rows, columns, captions, "")]


def _change_sheet(n: Compared) -> list[Sheet]:
    rows = [row for row in n.outcomes if row != n.base]
    if not rows:
        return []
    columns: Columns = []
    for key in ("waiting.mean", "waiting.p95", "completion.mean", "slowdown.mean"):
        cells = estimate_cells([n.change(row, key) for row in rows], True, 1)
        columns.append((key.replace(".", "\n"), cells))
    caption = f"Less is better. {'Paired by seed. ' * (n.seeds > 1)}{n.intervals}"
    errors = [n.error(f"{key}.mean") for key in ("waiting", "completion")]
    if math.isfinite(errors[0].mean):
        wait, completion = (statistics.estimate_text(e, sign=True) for e in errors)
        caption += f" The model's own error: of mean waiting {wait}, of completion {completion}."
    counts = [n.paired(row)[1] for row in rows]
    if min(counts) < n.estimate(n.base, "jobs").mean:
        columns.append(("jobs done\nunder both", [value_cell(round(jobs)) for jobs in counts]))
        caption += " Completion and slowdown: of the jobs that did their work under both."
    return [_sheet(n, f"More or less than {n.base}, %", columns, caption, rows=rows)]


def _metric_sheets(n: Compared) -> list[Sheet]:
    """Tables of metrics: a column is its heading, the metric, and how it is read."""
    devices = n.first.nodes.devices
    endings = answer.ending_keys(
        [{k: n.estimate(r, k).mean for k in n.summaries[r][0]} for r in n.outcomes]
    )
    endings += [f"thrown away.{device}" for device in devices] * bool(endings)
    parts = [(key, *key.partition(".")[::2]) for key in endings]
    not_done = [(f"{ending}\n{unit}-hours" if unit else ending, key) for key, ending, unit in parts]
    cluster = [("makespan,\n", "makespan", "time")]
    for k in devices:
        shares = ("utilisation", "goodput")
        cluster += [(f"{key}\n{web.in_words(k)}, ", f"{key}.{k}", "share") for key in shares]
    lost = [(f"{unit}\n{k}-hours", f"{key}.{k}") for k in devices for key, unit in LOSSES.items()]
    users = [(f"slowdown\n{stat}", f"slowdown.{stat}") for stat in SPREAD]
    if np.isfinite(n.first.jobs.deadline).any():
        users.append(("deadlines\nmissed", "deadlines missed"))
    waits = ("waiting, worst\nusers, ", "worst users", "time")
    spent = [n.estimate(row, "microseconds per decision").mean for row in n.outcomes]
    pace = ("µs per\ndecision", estimate_cells([Estimate(s, None, None) for s in spent]))
    jobs = ("jobs", [value_cell(round(n.estimate(row, "jobs").mean)) for row in n.outcomes])
    total = len(n.first.jobs.users)
    worst = f"the tenth of the {total:,} users who wait longest on average"
    if total < 20:
        worst = "the user who waits longest on average" if total > 1 else "there is one user"
    tables: list[tuple[str, list[Any], Columns, str]] = [
        ("Work that was not done", not_done, [], web.phrase("endings")),
        ("Cluster", cluster, [pace], web.phrase("cluster")),
        ("Device-hours lost", lost, [], web.phrase("losses")),
        (
            "Slowdown, deadlines, users",
            [*users, waits, ("unfairness", "unfairness")],
            [jobs],
            web.phrase("users", worst=worst),
        ),
    ]
    return [
        _sheet(n, title, [*(_column(n, *column) for column in columns), *extra], caption)
        for title, columns, extra, caption in tables
        # A table is left out where there is nothing to tell, as of losses.
        if columns
    ]


def _learned_sheets(n: Compared) -> list[Sheet]:
    sheets = []
    caption = "As it believes at the end; ± is half the 95 % credible interval."
    for name, learned in n.learned.items():
        slow = sorted(learned.slow, key=lambda s: -s.slower)
        shares = [Estimate(100 * s.slower, 100 * s.low, 100 * s.high) for s in slow]
        cells = [Cell(statistics.estimate_text(e, 0), e.mean, half=e.half) for e in shares]
        title = f"Nodes slower than their label says, as {name} has learned"
        nodes, columns = [s.node for s in slow], [("slower by, %", cells)]
        sheets += [columns_sheet(title, nodes, columns, (caption,), "node")] * bool(slow)
    return sheets


def _groups_sheets(n: JobResults) -> list[Sheet]:
    sheets = []
    for kind, rows in what_if.who_pays(n, [*n.edits]).items() if n.edits else ():
        longer = [e.mean for row in rows for e in row.longer.values()]
        # Changes may be negative: the unit goes by their size.
        size, unit = tables.time_unit([*(row.wait for row in rows), *map(abs, longer)])
        columns: Columns = [
            ("jobs", [value_cell(row.jobs) for row in rows]),
            (f"{n.device}-hours", [value_cell(round(row.hours)) for row in rows]),
            (f"wait as\nconfigured, {unit}", [value_cell(row.wait / size) for row in rows]),
        ]
        for name in n.edits:
            changes = [row.longer[name] for row in rows]
            columns.append((name, estimate_cells(changes, True, 1, 1 / size)))
        says = {"unit": unit, "intervals": n.intervals, "most": what_if.GROUPS, "device": n.device}
        caption = web.phrase("who pays", **says)
        title = f"Who wins and who pays, by {GROUPED.get(kind, kind)}"
        sheets.append(columns_sheet(title, [row.name for row in rows], columns, (caption,), kind))
    return sheets


def _money_sheet(n: JobResults) -> list[Sheet]:
    if not n.prices:
        return []
    hours, jobs = n.first.makespan / 3600, n.estimate(n.base, "jobs").mean
    # One group of all jobs.
    every = [np.zeros(len(run.jobs), dtype=np.int64) for run in n.outcomes[n.base]]
    costs, lost, longer = [], [], []
    for name, (played, *_) in n.outcomes.items():
        total = dict(zip(played.nodes.devices, played.capacity))
        # Devices cost as long as they are there, held or not.
        costs.append(sum(price * total[k] * hours for k, price in n.prices.items()))
        lost.append(sum(n.estimate(name, f"thrown away.{k}").mean * p for k, p in n.prices.items()))
        # A mean in seconds, times the jobs, in hours.
        job_hours = (jobs - n.refused(name)[0]) / 3600
        longer.append(tables.rescaled(n.waits_more(name, every, 0), job_hours))
    base = costs[list(n.outcomes).index(n.base)]
    extra = [Estimate(cost - base, None, None) for cost in costs]
    columns: Columns = [
        ("devices\ncost", [value_cell(round(cost)) for cost in costs]),
        ("more than\nas it is", estimate_cells(extra, True)),
        ("thrown\naway", [value_cell(round(cost)) for cost in lost]),
        ("job-hours\nof waiting", estimate_cells(longer, True)),
    ]
    prices = ", ".join(f"{k} {price:g}" for k, price in n.prices.items())
    caption = web.phrase("money", prices=prices, makespan=roughly(n.first.makespan))
    return [_sheet(n, "Money", columns, caption)]


LOSSES = {"stragglers": "stragglers", "restarts": "restarts", "idle": "idle while\na job waits"}


def _causes_sheets(n: JobResults) -> list[Sheet]:
    return causes_sheets(n, n.causes)


SHEETS: list[Callable[[JobResults], list[Sheet]]] = [
    _times_sheet,
    _causes_sheets,
    _recorded_sheet,
    _change_sheet,
    _groups_sheets,
    _money_sheet,
    _metric_sheets,
    _learned_sheets,
]
"""The tables of page and terminal, in their order."""

ELSEWHERE = (_groups_sheets, _causes_sheets)
"""Those that have sections of their own on the page."""


def _groups(n: Compared, users: int = USERS) -> list[tuple[str, list[Ints], list[str]]]:
    seeds = n.outcomes[n.base]
    # Jobs of all seeds stand in a row, and are split again at these places.
    ends = np.cumsum([len(outcome.jobs) for outcome in seeds])[:-1]
    device = n.device
    sizes = np.concatenate([o.demand[:, o.nodes.devices.index(device)] for o in seeds])
    by_size, size_names = size_groups(np.where(sizes > 0, sizes, 0.0))
    groups = [(f"{web.in_words(device)} of a job", np.split(by_size, ends), size_names)]
    named = [o.jobs.users[user] for o in seeds for user in o.jobs.user.tolist()]
    # Of all seeds together, which may have other jobs.
    jobs = Counter(named)
    if len(jobs) > 1:
        names = [user for user, _ in jobs.most_common(users)]
        place = {user: i for i, user in enumerate(names)}
        by_user = np.array([place.get(user, len(place)) for user in named])
        names += [f"{len(jobs) - len(place)} others"] * (len(jobs) > len(place))
        groups.append(("user", np.split(by_user, ends), names))
    return groups


def _group_means(
    n: Compared, group: Sequence[Ints]
) -> tuple[Mapping[str, Mapping[int, Estimate]], str]:
    """Mean waiting by scheduler and group, in a unit that suits all of them, and that unit."""
    waits: dict[str, defaultdict[int, list[float]]] = {}
    for row, runs in n.outcomes.items():
        waits[row] = defaultdict(list)
        for outcome, codes in zip(runs, group):
            for g, mean in by_group(outcome, codes, outcome.waiting).items():
                waits[row][g].append(mean)
    size, unit = tables.time_unit(
        [float(np.mean(values)) for codes in waits.values() for values in codes.values()]
    )
    return {
        row: {g: tables.rescaled(mean_and_interval(v), 1 / size) for g, v in codes.items()}
        for row, codes in waits.items()
    }, unit


def _group_sheets(n: Compared) -> list[Sheet]:
    sheets = []
    for kind, group, names in _groups(n):
        means, unit = _group_means(n, group)
        # Numbers of the first seed.
        jobs = np.bincount(group[0], minlength=len(names)).tolist()
        columns = [("jobs", [value_cell(k) for k in jobs])]
        for row, mean in means.items():
            columns.append((row, estimate_cells([mean.get(g, UNKNOWN) for g in range(len(names))])))
        title = f"Mean waiting by {kind}, {unit}"
        sheets.append(columns_sheet(title, names, columns, (n.over_seeds,), kind))
    return sheets


# Figures

Rows = list[tuple[Any, ...]]


def change_dots(n: Compared, means: Sequence[str]) -> list[web.Dots]:
    caption = f"Less is better. {n.intervals}"
    if n.seeds > 1 or n.blocks is not None:
        caption += f" {web.phrase('hollow')}"
    return [
        drawn
        for key in means
        for drawn in web.dots(
            f"Mean {key} against {n.base}, %",
            {row: n.change(row, f"{key}.mean") for row in n.outcomes if row != n.base},
            caption,
        )
    ]


def _group_figure(n: Compared) -> list[web.Plot]:
    rows: Rows = []
    panels = []
    for kind, group, names in _groups(n, DRAWN_USERS):
        if len(names) < 2:
            continue
        means, unit = _group_means(n, group)
        heights = [wait.mean for row in means.values() for wait in row.values() if wait.mean > 0]
        log = max(heights, default=1.0) > MOST_APART * min(heights, default=1.0)
        panels.append(Panel(kind, "", f"mean waiting, {unit}", "bars", log_y=log))
        for row, waits in means.items():
            for g, label in enumerate(_labels(names)):
                if g in waits:
                    mean, low, high = waits[g]
                    # No wait is negative, whatever Student's interval says.
                    rows.append((kind, row, label, mean, low and max(low, 0.0), high))
    if not any(row[3] > 0 for row in rows):
        return []  # nobody waits
    return [web.pictured("Waiting by job size and user", rows, panels, n.over_seeds)]


def _labels(names: Sequence[str]) -> list[str]:
    """Names below bars: shortened, all different, in two rows where there are many.

    >>> _labels(["208 others", "user two"]), _labels(["longest-abc", "longest-abc-"])
    (['208 others', 'user two'], ['long…abc', 'long…bc-'])
    """
    plain = [name.replace(" to ", "–") for name in names]
    short = [name if len(name) <= 10 else f"{name[:4]}…{name[-3:]}" for name in plain]
    labels: list[str] = []
    for i, label in enumerate(short):
        # Names that are shortened may be the same.
        unique = label if short.count(label) == 1 else f"{label[:5]} {i + 1}"
        labels.append(f"\n{unique}" if len(names) > 4 and i % 2 else unique)
    return labels


def _lines_over_time(n: Compared, shown: Mapping[str, Outcome]) -> tuple[Rows, list[Panel], str]:
    device, (begin, end) = n.device, span(shown)
    edges = np.linspace(begin, max(end, begin + 1), BINS + 1)
    size, unit = tables.time_unit([end - begin])
    # Where each bin begins, as steps are drawn from there.
    at = ((edges[:-1] - begin) / size).tolist()
    used, waits = f"{web.in_words(device)} held, %", "jobs waiting"
    rows: Rows = []
    for row, run in shown.items():
        total = run.capacity[run.nodes.devices.index(device)]
        used_share = 100 * run.over_time(device, edges) / total
        for panel, values in ((used, used_share), (waits, run.waiting_jobs(edges))):
            rows += [(panel, row, x, y, None, None) for x, y in zip(at, values.tolist())]
    label = f"{unit} since the first submission"
    panels = [Panel(used, label, "", "steps"), Panel(waits, label, "", "steps")]
    seed = "" if n.seeds == 1 else " of the first seed"
    return rows, panels, f"Means over {BINS} bins of {roughly((end - begin) / BINS)}{seed}."


def _learned_figures(n: Compared) -> list[web.Plot]:
    figures = []
    for name, learned in n.learned.items():
        if learned.true is None:
            continue
        jobs = np.bincount(n.first.jobs.type, minlength=len(learned.job_types))
        rows: Rows = []
        panels = []
        # The two types with the most jobs.
        for t in np.argsort(-jobs, kind="stable")[:2]:
            panel = f"job type {learned.job_types[t]}"
            order = np.argsort(-learned.true[t], kind="stable")
            # So many nodes, evenly from the fastest to the slowest.
            at = np.unique(np.linspace(0, len(order) - 1, DOTS).astype(int))
            true, mean, sd = (
                total[t][order[at]] for total in (learned.true, learned.mean, learned.sd)
            )
            rows += [(panel, "true", x, y, None, None) for x, y in zip(at, true)]
            sure = np.isfinite(sd)  # nothing was learned of the others
            # Beliefs are about logarithms of rates.
            ends = (np.exp(mean[sure] + half * sd[sure]) for half in (0, -1.96, 1.96))
            rows += [(panel, "learned", x, *ends_of) for x, *ends_of in zip(at[sure], *ends)]
            panels.append(Panel(panel, "nodes, the fastest first", "rate", "points"))
        # Coverage: 95 % of the intervals should hold the true rate.
        inside = np.abs(learned.mean - np.log(learned.true)) <= 1.96 * learned.sd
        share, total = number(100 * float(inside.mean())), f"{inside.size:,}"
        caption = web.phrase("learned rates", share=share, of=total, most=DOTS)
        figures.append(web.pictured(f"Learned and true rates, {name}", rows, panels, caption))
    return figures


# The verdict

WHOLE = 0.995  # a share from here on is printed as 100 %


def shown_name(n: Compared, name: str) -> str:
    """A scheduler, or a change of a what-if, as a sentence has it."""
    if name == CONFIGURED:
        return "the rules as configured"
    if n.base == CONFIGURED:
        return " and ".join(change.words for change in changes_of(name))
    return web.short_name(name)


def headline(n: JobResults) -> str:
    """The verdict: which scheduler finishes jobs sooner, and whether the model may be trusted.

    Where units of the log are in doubt, that is the first thing to know.
    """
    if n.units:
        return f"Check the units of the log first: {n.units[0]}"
    verdict = "; ".join(str(row["verdict"]) for row in n.capacity) or _who_is_better(n)
    return web.sentence_case(f"{verdict}{_how_far_to_trust(n)}.")


def _who_is_better(n: Compared) -> str:
    base = shown_name(n, n.base)
    if not n.others:
        return (
            f"under {base}, jobs wait {roughly(n.estimate(n.base, 'waiting.mean').mean)} on average"
        )
    verdicts = {name: n.verdict(name) for name in n.others}
    better = [name for name in n.others if verdicts[name] == "better"]
    if better:
        sooner = number(-n.change(better[0]).mean, int(n.change(better[0]).mean > -10))
        if n.base == CONFIGURED:
            return (
                f"with {shown_name(n, better[0])}, jobs finish {sooner} % sooner than under {base}"
            )
        return f"{shown_name(n, better[0])} would finish jobs {sooner} % sooner than {base}"
    able = _without_victims(n)
    change = n.change(able[0]).mean if able else math.nan
    # Without an interval the best one is named, and that it may be chance.
    if able and verdicts[able[0]] == "no interval" and change < -SMALL:
        sooner = number(-change, int(change > -10))
        if n.base == CONFIGURED:
            than = f"with {shown_name(n, able[0])}, these jobs finish {sooner} % sooner than under"
        else:
            than = f"{shown_name(n, able[0])} finishes these jobs {sooner} % sooner than"
        return f"{than} {base}, which may be chance"
    costly = [name for name in n.others if verdicts[name] in ("kills more", "refuses")]
    if costly:
        price = "kills more jobs" if verdicts[costly[0]] == "kills more" else "never starts some"
        return f"{shown_name(n, costly[0])} finishes jobs sooner than {base}, but {price}"
    if n.base == CONFIGURED and len(n.others) == 1:
        return _what_it_costs(n, n.others[0], base)
    noun = "change" if n.base == CONFIGURED else "scheduler"
    if all(verdict == "worse" for verdict in verdicts.values()):
        return f"no {noun} finishes these jobs sooner than {base}"
    return f"no {noun} is clearly better than {base}"


def _what_it_costs(n: Compared, name: str, base: str) -> str:
    """A change that is not better than the rules as configured: by how much, if it is known."""
    words, change, jobs = shown_name(n, name), n.change(name).mean, n.refused(name)[0]
    if jobs:
        return f"with {words}, {number(jobs)} jobs can never start"
    if n.verdict(name) == "cannot be told apart" or not change > SMALL:
        return f"with {words}, jobs do not clearly finish sooner than under {base}"
    return f"with {words}, jobs finish {number(change, int(change < 10))} % later than under {base}"


def _without_victims(n: Compared) -> list[str]:
    """The others under which no more is killed than under the base, and every job starts."""
    base = n.outcomes[n.base]
    return [
        name
        for name in n.others
        if not n.refused(name)[0] and not kills_more(n.outcomes[name], base)
    ]


def _how_far_to_trust(n: Compared) -> str:
    retold = n.retold
    if retold is None:
        logged = n.as_logged and not n.drawn
        return "; how much of the log's own waiting the model explains is not known" * logged
    explained = f"{number(100 * retold.explained)} % of this log's waiting"
    if retold.doubtful:
        judged, share = retold.weakest
        if judged != "mean wait":
            explained += f", and {number(100 * max(share, 0.0))} % of its {WEAKEST[judged]}"
        rows = "changes" if n.base == CONFIGURED else "schedulers"
        return (
            f"; but the model explains {explained}, so compare {rows} with one another, not with "
            "the past"
        )
    clear = [name for name in n.others if n.verdict(name) == "better"]
    if clear and not n.beyond(clear[0]):
        off = number(abs(n.error().mean), 1)
        return f"; the model itself is off by {off} %, perhaps more than that"
    return f"; the model explains {explained}"


WEAKEST = {
    "job by job": "single waits",
    "order of starts": "order of starts",
    "busy devices while jobs wait": "use while jobs wait",
}
"""What a model must explain, see :data:`~gangwise.sites.retelling.JUDGED`, in a sentence."""


def tiles(n: JobResults) -> list[web.Tile]:
    """Recorded and model wait, explained share, best change, and what is left by the bound.

    The nodes that reach a target come first.
    """
    row, retold = [], n.retold
    base = shown_name(n, n.base)
    for need in n.capacity:
        enough = "none tried" if need["needed"] is None else f"{need['needed']:,}"
        row.append(Tile(f"Nodes needed, {need['kind']}", enough, f"now {need['now']:,}"))
    if retold is not None:
        wait = f"{roughly(retold.recorded)} → {roughly(retold.simulated)}"
        row.append(Tile("Mean wait, recorded → model", wait, f"model: {base}"))
        part, share = retold.weakest
        weakest = f"least: {part}, {number(100 * max(share, 0.0))} %" * (share < WHOLE)
        shown = f"{number(100 * retold.explained)} %"
        tone = "bad" if retold.doubtful else "good"
        row.append(Tile("Mean wait explained by the model", shown, weakest, tone))
    else:
        wait = roughly(n.estimate(n.base, "waiting.mean").mean)
        row.append(Tile("Mean wait in the model", wait, base))
        used = 100 * n.estimate(n.base, f"utilisation.{n.device}").mean
        row.append(
            Tile(f"{web.in_words(n.device)} in use", f"{number(used)} %", "of what there is")
        )
    if able := _without_victims(n):
        best = able[0]
        change = n.change(best)
        verdict, name = n.verdict(best), shown_name(n, best)
        tone = "good" if verdict == "better" else ""
        name = f"not significant: {name}" if verdict == "cannot be told apart" else name
        name = web.sentence_case(name)
        row.append(
            Tile("Best change of completion", _percent(change), web.interval(change, name), tone)
        )
    if (saving := n.possible_saving) is not None:
        saved = f"at most {number(saving, int(saving < 10))} %"
        proved = "certified: no schedule without preemption finishes sooner"
        row.append(Tile("Left to gain", saved, proved))
    elif able and not n.capacity:
        waits = (roughly(n.estimate(rules, "waiting.mean").mean) for rules in (n.base, able[0]))
        row.append(Tile("Mean wait, before → after", " → ".join(waits), "in the model"))
    return row


def _percent(change: Estimate) -> str:
    if not math.isfinite(change.mean):
        return "not known"
    return f"{number(change.mean, int(abs(change.mean) < 10), sign=True)} %"


# Sections of the page


def retelling_section(n: JobResults) -> web.Section | None:
    """Section on the record beside the base: over time, by partition, size, user and period."""
    if (retold := n.retold) is None or n.happened is None:
        return None
    size, unit = tables.time_unit([retold.recorded, retold.simulated])
    rows, panels, caption = _lines_over_time(n, {HAPPENED: n.happened, n.base: n.first})
    period = next(kind for kind in retold.groups if kind in ("week", "day"))
    waits = f"mean waiting, {unit}"
    for g in retold.groups[period]:
        for line, seconds in ((HAPPENED, g.recorded), (n.base, g.simulated)):
            rows.append((waits, line, float(g.name), seconds / size, None, None))
    panels = [Panel(waits, f"{period} of submission", "", "steps"), *panels]
    parts: list[web.Part] = [web.pictured("As it happened, and as retold", rows, panels, caption)]
    for kind, groups in retold.groups.items():
        shown = groups
        if kind == period:
            # By all jobs of a week together: one of few jobs tells little.
            shown = sorted(groups, key=lambda g: -abs(g.simulated - g.recorded) * g.jobs)[:FARTHEST]
        shown = [g for g in groups if g in shown]  # weeks in their order
        part = f"{len(shown)} of {len(groups)}, those farthest off. " * (len(shown) < len(groups))
        sides = ([g.recorded for g in shown], [g.simulated for g in shown])
        past, model = ([Estimate(s / size, None, None) for s in times] for times in sides)
        columns = [
            ("jobs", [value_cell(g.jobs) for g in shown]),
            (f"{HAPPENED}, {unit}", estimate_cells(past)),
            (f"retold, {unit}", estimate_cells(model)),
            ("explained, %", [value_cell(100 * g.explained) for g in shown]),
        ]
        texts = web.words("groups")[kind]
        caption = f"{part}Explained group by group: {number(100 * retold.by(kind))} %."
        noun, names = texts["rows"] or web.in_words(retold.device), [g.name for g in shown]
        parts.append(columns_sheet(texts["title"], names, columns, (caption,), noun))
    return Section(f"What the model retells under {n.base}", parts)


TOWERING = 10.0  # times the base's mean wait: a scheduler of more would flatten all others' lines


def _drawable(n: Compared) -> tuple[Compared, str]:
    """The schedulers that fit one axis, and a sentence that names those that do not."""
    waits = {name: n.estimate(name, "waiting.mean").mean for name in n.outcomes}
    # A base without waiting sets no scale.
    longest = TOWERING * waits[n.base] or math.inf
    out = [name for name, wait in waits.items() if wait > longest]
    if not out:
        return n, ""
    names = ", ".join(f"{name} ({roughly(waits[name])})" for name in out)
    drawn = {name: runs for name, runs in n.outcomes.items() if name not in out}
    text = f" Not drawn, for the mean wait is over {TOWERING:g} times the base's: {names}."
    return replace(n, outcomes=drawn), text


def who_pays_section(n: JobResults) -> web.Section:
    """Waiting by size of job and by user, under each scheduler."""
    drawable, left_out = _drawable(n)
    figures = [
        figure._replace(caption=figure.caption + left_out) for figure in _group_figure(drawable)
    ]
    tables = [*_groups_sheets(n), *_group_sheets(n)]
    return Section("Who wins and who pays", [*figures, *tables])


def where_waited_section(n: JobResults) -> web.Section | None:
    drawable, left_out = _drawable(n)
    return causes_section(n, n.causes, {*drawable.outcomes, HAPPENED}, left_out.strip())


def figures_section(n: JobResults) -> web.Section:
    drawable, left_out = _drawable(n)
    # Of the first seed: lines of several would hide one another.
    shown = {name: runs[0] for name, runs in drawable.outcomes.items()}
    rows, panels, caption = _lines_over_time(n, shown)
    over_time = web.pictured("Utilisation and queue over time", rows, panels, caption + left_out)
    return Section("Utilisation and queue over time", [over_time, *_learned_figures(n)])


def in_full_section(n: JobResults) -> web.Section:
    return Section("The answer in full", [web.Bullets(n.sentences)])


def tables_section(n: JobResults) -> web.Section:
    sheets = [sheet for make in SHEETS if make not in ELSEWHERE for sheet in make(n)]
    return Section("Tables", [*change_dots(n, ["waiting"]), *sheets])


def nodes_section(n: JobResults) -> web.Section:
    # A chart for each scheduler would be megabytes.
    shown = {name: n.outcomes[name][0] for name in (n.best, n.base)}
    title, figure = "Nodes over time", partial(figure_of_nodes, shown, n.device)
    return Section(title, [web.Chart(chart_of_nodes(shown, n.device), title, figure)])


def schedulers_section(n: JobResults) -> web.Section | None:
    """Every scheduler in a sentence; or what changes do, and what stood there before."""
    if not n.edits:
        return Section(
            "Schedulers", [web.Terms({name: web.about_scheduler(name) for name in n.outcomes})]
        )
    meanings = {}
    for name, lines in n.edits.items():
        parts = [
            web.about_scheduler(change.given).rstrip(".")
            if change.path == "scheduler"
            else change.words
            for change in changes_of(name)
        ]
        # What is taken out, without the mark that says so.
        until = ", ".join(line[2:] for line in lines if line.startswith("- ") and " = " in line)
        meanings[name] = f"{'; '.join(parts)}{f' (until now {until})' * bool(until)}."
    return Section("Changes", [web.Terms(meanings)])


def edits_section(n: JobResults) -> web.Section | None:
    """The lines of the site's files that would change: nobody applies them."""
    parts: list[web.Part] = []
    for name, lines in n.edits.items():
        parts += [web.Text(name), web.Code("\n".join(lines) or "no line of a site's files")]
    return Section("Lines of the site's files that would change", parts) if parts else None


def assumptions_section(n: JobResults) -> web.Section | None:
    lines = dict.fromkeys(runs[0].description for runs in n.outcomes.values())
    lines.pop("", None)
    return Section("What was assumed", [web.Bullets([*lines])]) if lines else None


def provenance_section(n: JobResults) -> web.Section:
    how = web.by_command(n.command, "schedules", "These results were made from Python.")
    digest = n.digest if isinstance(n.digest, str) else n.digest()
    return web.how_to_repeat(how, study_runs.versions(), digest=digest, of="the stored outcomes")


SECTIONS: list[Callable[[JobResults], web.Section | None]] = [
    in_full_section,
    who_pays_section,
    where_waited_section,
    retelling_section,
    figures_section,
    tables_section,
    nodes_section,
    schedulers_section,
    assumptions_section,
    edits_section,
]
"""The sections of the page, in their order."""
