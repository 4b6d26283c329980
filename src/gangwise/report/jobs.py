"""The report of jobs under several schedulers: the answer first, then tables, figures, nodes.

:func:`job_report` makes everything of results that are there; :meth:`JobReport.page` lays it out as
one HTML page that opens offline, :meth:`JobReport.terminal` as text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from rich.console import Group
from rich.text import Text

import gangwise
from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.experiments.replay import Replayed
from gangwise.experiments.sensitivity import Sensitivity
from gangwise.experiments.statistics import (
    Estimate,
    decimals_for,
    estimate_text,
    mean_and_interval,
    number,
)
from gangwise.experiments.store import versions
from gangwise.jobs.metrics import Outcome, by_group, size_groups
from gangwise.jobs.rates import SlowNode
from gangwise.report.dots import Dots, dots
from gangwise.report.gantt import chart_of_nodes
from gangwise.report.plotting import Panel
from gangwise.report.rendering import Drawn, pictured, render
from gangwise.report.tables import (
    NONE,
    Cell,
    Sheet,
    columns_sheet,
    count_cell,
    estimate_cells,
    rescaled,
    rich_tables,
)
from gangwise.report.words import about_scheduler, numbered, period

HAPPENED = "as it happened"

WORDS = {
    "waiting": "From submission to the first start.",
    "completion": "From submission to the end: waiting, running, and what restarts cost.",
    "slowdown": "Completion over running time, both of 10 s at least: how much longer it felt.",
    "utilisation": "Devices held, as a share of all devices over the makespan.",
    "goodput": "The same, less what was lost to stragglers and restarts.",
    "requested and given": "A job gets the devices that it asks for, all at once, or waits: what "
    "is given is what was requested. The time that it asks for, its limit, is only an upper bound "
    "of the time that it takes.",
}
"""What the page calls things."""

BINS = 240
"""Bins of the figures over time."""

USERS, DRAWN_USERS = 12, 6
"""So many users, those with the most jobs, have a row, and a bar."""


@dataclass(frozen=True, eq=False)
class LearnedRates:
    """What a scheduler believed of rates at its end, beside the truth where it is known.

    Attributes
    ----------
    job_types : sequence of str [L]
    mean, sd : ndarray of float64, shape [L, N]
        Of the logarithm of the rate.
    true : ndarray of float64, shape [L, N], optional
        Rates.
    slow : sequence of SlowNode
        Nodes that are slower than their label says.
    """

    job_types: Sequence[str]
    mean: Floats
    sd: Floats
    true: Floats | None = None
    slow: Sequence[SlowNode] = ()


@dataclass(frozen=True, eq=False)
class JobResults:
    """Results of the same jobs under several schedulers.

    Attributes
    ----------
    name : str
        Of the trace, as in a sentence: ``"NASA iPSC/860"``.
    outcomes : mapping of str to sequence of Outcome
        By scheduler; one outcome for each seed, in the same order for all.
    base : str
        The scheduler that the others are compared with.
    fidelity : sequence of str
        What was dropped or assumed of the trace, the first line first:
        :meth:`gangwise.jobs.model.Account.lines`.
    assumed : sequence of str
        Further assumptions, such as the parameters of a drawn world.
    bounds : sequence of float
        Certified lower bounds on the mean completion time, one a seed; empty for none.
    learned : mapping of str to LearnedRates
        By scheduler.
    sensitivity : Sensitivity, optional
        What would be said under other assumptions.
    command : str
        That made these results.
    digest : str
        Of the stored numbers, for the page to quote.
    """

    name: str
    outcomes: Mapping[str, Sequence[Outcome]]
    base: str = "fcfs+easy+best-fit"
    fidelity: Sequence[str] = ()
    assumed: Sequence[str] = ()
    bounds: Sequence[float] = ()
    learned: Mapping[str, LearnedRates] = field(default_factory=dict)
    sensitivity: Sensitivity | None = None
    command: str = ""
    digest: str = ""


@dataclass(frozen=True, eq=False)
class JobReport:
    """What a page and the terminal show.

    Attributes
    ----------
    answer : str
        One sentence or two.
    fidelity : sequence of str
    sheets : list of Sheet
        For page and terminal.
    groups : list of Sheet
        By job size and user, for the page.
    figures : list of Drawn
    chart : dict
        Of the nodes, for the script of the page.
    dots : list of Dots
        Paired changes of completion and waiting.
    """

    results: JobResults
    answer: str
    sheets: list[Sheet]
    groups: list[Sheet]
    figures: list[Drawn]
    chart: dict[str, Any]
    dots: list[Dots] = field(default_factory=list)

    def page(self) -> str:
        """One HTML page that loads nothing."""
        results = self.results
        outcome = next(iter(results.outcomes.values()))[0]
        seeds = len(next(iter(results.outcomes.values())))
        byline = [
            f"{len(outcome.jobs):,} jobs",
            f"{len(outcome.nodes):,} node{'' if len(outcome.nodes) == 1 else 's'}",
            f"{len(results.outcomes)} scheduler{'' if len(results.outcomes) == 1 else 's'}",
            "1 seed" if seeds == 1 else f"{seeds} seeds",
            f"gangwise {gangwise.__version__}",
        ]
        return render(
            "jobs.html",
            title=self._title(outcome),
            words=WORDS,
            schedulers={name: about_scheduler(name) for name in results.outcomes},
            byline=", ".join(byline),
            report=self,
            answer=self.answer,
            told=[*results.fidelity[:1], *(f"{a[:1].upper()}{a[1:]}" for a in results.assumed)],
            assumptions=[*results.fidelity[1:], *self._played()],
            made={
                "command": results.command,
                "what": "schedules",
                "file": "",
                "python": "These results were made from Python.",
                "versions": versions(),
                "caption": "Versions",
                "runs": (),
                "digest": results.digest,
                "of": "the stored outcomes",
            },
        )

    def _title(self, outcome: Outcome) -> str:
        who = numbered(len(self.results.outcomes), "scheduler", "schedulers")
        return f"{who} on {len(outcome.jobs):,} jobs of {source_in_words(self.results.name)}"

    def terminal(self) -> Group:
        """The same tables for the terminal, after the answer and the fidelity."""
        told = [*self.results.fidelity, *self.results.assumed]
        lines = [Text(self.answer, "bold"), Text("\n".join(told)), Text()]
        return Group(*lines, rich_tables(self.sheets))

    def _played(self) -> list[str]:
        told = [o.told for each in self.results.outcomes.values() for o in each[:1] if o.told]
        return list(dict.fromkeys(told))


def results_of(
    played: Replayed,
    bounds: Sequence[float] = (),
    command: str = "",
    sensitivity: Sensitivity | None = None,
) -> JobResults:
    """Results of a replay, as a report takes them."""
    truth, types = played.true_rates(), played.scenario.draw(played.seeds[0]).jobs.types
    learned = {
        name: LearnedRates(types, mean, sd, truth, [SlowNode(*each) for each in slow])
        for name, (mean, sd, slow) in played.learned().items()
    }
    return JobResults(
        name=str(played.scenario.describe()["source"]),
        outcomes=played.outcomes,
        base=played.schedulers[0],
        fidelity=played.scenario.fidelity(),
        assumed=played.scenario.assumed(),
        bounds=bounds,
        learned=learned,
        sensitivity=sensitivity,
        command=command,
        digest=played.results.digest,
    )


def job_report(results: JobResults) -> JobReport:
    """Everything a report shows.

    Raises
    ------
    ScenarioError
        When there is nothing to compare, or schedulers met different numbers of seeds.

    Examples
    --------
    >>> from gangwise.jobs import Jobs, Nodes, simulate_jobs
    >>> jobs = Jobs.of(submit=[0, 1, 2], run=[1e4, 1e4, 5e3], tasks=[3, 2, 1], limit=2e4)
    >>> names = ("fcfs", "fcfs+easy+best-fit")
    >>> played = {n: [Outcome.of(simulate_jobs(jobs, Nodes.pool(4), n), n)] for n in names}
    >>> job_report(JobResults("three jobs", played)).answer
    'On 3 jobs of three jobs, fcfs+easy+best-fit has a mean waiting of 56 min (p95 2.5 h); mean ...'
    """
    numbers = _Numbers(results)
    return JobReport(
        results,
        _answer(numbers),
        [
            _times_sheet(numbers),
            *_change_sheets(numbers),
            _cluster_sheet(numbers),
            _losses_sheet(numbers),
            _users_sheet(numbers),
            *_learned_sheets(results),
            *_sensitivity_sheets(results),
        ],
        _group_sheets(numbers),
        _figures(numbers),
        chart_of_nodes(
            {name: numbers.rows[name][0] for name in (numbers.best, numbers.base)},
            _main_device(numbers),
        ),
        _changes(numbers),
    )


class _Numbers:
    """Summaries of every scheduler and seed, with as it happened as a row like the others."""

    def __init__(self, results: JobResults):
        self.results = results
        counts = {name: len(each) for name, each in results.outcomes.items()}
        if not counts or len(set(counts.values())) != 1 or 0 in counts.values():
            raise ScenarioError(
                f"outcomes to compare must be of the same seeds; there are {counts}"
            )
        self.seeds = next(iter(counts.values()))
        self.rows: dict[str, Sequence[Outcome]] = {}
        first = next(iter(results.outcomes.values()))[0]
        recorded = Outcome.recorded(first.jobs, first.nodes)
        self.recorded = recorded
        # Where every job starts when it is submitted, the log knows of no waiting.
        self.waits = recorded is not None and bool((recorded.waiting[recorded.ended] > 0).any())
        if recorded is not None and self.waits:
            self.rows[HAPPENED] = [recorded]
        self.rows |= results.outcomes
        self.summaries = {name: [o.summary() for o in each] for name, each in self.rows.items()}
        self.first = first
        means = {name: self.of(name, "completion.mean").mean for name in results.outcomes}
        # An oracle is shown what nobody can know: a yardstick, not a choice.
        real = [name for name in means if "oracle" not in name.split("+")] or list(means)
        self.best = min(real, key=lambda name: means[name])
        base = results.base if results.base in results.outcomes else next(iter(results.outcomes))
        self.base = base

    def of(self, name: str, key: str) -> Estimate:
        """A number of a scheduler over seeds."""
        values = np.array([each[key] for each in self.summaries[name]])
        if not np.isfinite(values).all():
            return NONE
        return mean_and_interval(values)

    def change(self, name: str, over: str, key: str) -> Estimate:
        """How much more than another's a number is, in per cent, paired by seed."""
        if name == over or not {name, over} <= self.rows.keys():
            return NONE
        if math.nan in (mean := [self.of(each, key).mean for each in (name, over)]) or any(
            not math.isfinite(x) for x in mean
        ):
            return NONE
        a, b = (np.array([s[key] for s in self.summaries[each]]) for each in (name, over))
        if (b == 0).any():
            return NONE
        return mean_and_interval(np.atleast_1d(100 * (a / b - 1)))

    @property
    def drawn(self) -> list[str]:
        """Rows in the order in which figures colour them: as it happened comes last."""
        return [*self.results.outcomes, *([HAPPENED] if HAPPENED in self.rows else [])]

    @property
    def interval(self) -> str:
        """What the ± is."""
        if self.seeds == 1:
            return "One seed: no confidence interval."
        return f"± is half the 95 % confidence interval over {self.seeds} seeds."


def source_in_words(name: str) -> str:
    """A log as a title has it.

    >>> source_in_words("twin:alibaba-gpu-v2023"), source_in_words("logs/october.swf")
    ('the synthetic twin of alibaba-gpu-v2023', 'october.swf')
    """
    kind, _, of = name.partition(":")
    return f"the synthetic twin of {of}" if kind == "twin" else name.rstrip("/").rpartition("/")[2]


# The answer


def _answer(n: _Numbers) -> str:
    best, base = n.best, n.base
    mean, high = (n.of(best, f"waiting.{which}").mean for which in ("mean", "p95"))
    jobs = f"On {int(n.summaries[best][0]['jobs']):,} jobs of {n.results.name}"
    if n.waits:
        before = [n.of(HAPPENED, f"waiting.{which}").mean for which in ("mean", "p95")]
        verb = "would have cut" if mean < before[0] else "would not have cut"
        text = (
            f"{jobs}, {best} {verb} mean waiting: from {period(before[0])} to {period(mean)} "
            f"(p95 {period(before[1])} → {period(high)})"
        )
    else:
        text = f"{jobs}, {best} has a mean waiting of {period(mean)} (p95 {period(high)})"
    if best != base:
        text += f"; {_against(n, best, base)}"
    elif len(n.results.outcomes) > 1:
        others = [name for name in n.results.outcomes if name != best]
        next_best = min(others, key=lambda name: n.of(name, "completion.mean").mean)
        text += f"; {_against(n, best, next_best)}, the next of {len(others) + 1} schedulers"
    if n.results.bounds:
        left = [
            100 * (1 - b / s["completion.mean"])
            for s, b in zip(n.summaries[best], n.results.bounds)
        ]
        share = number(max(float(np.mean(left)), 0.0), 1)
        text += f"; no schedule without migration could save more than another {share} %"
    text += "."
    waited, took = (n.of(base, f"{what}.mean").mean for what in ("waiting", "completion"))
    if waited < 0.01 * took and not n.results.learned:
        text += f" Waiting is {number(100 * waited / took, 1)} % of completion under {base}: "
        text += "there is little to gain."
    slow = [s for name in (best, *n.results.learned) for s in _slow(n.results, name)]
    if slow:
        distinct = {s.node: s for s in slow}
        shown = sorted(distinct.values(), key=lambda s: -s.slower)
        named = ", ".join(
            f"{s.node} by {number(100 * s.slower)} ± {number(50 * (s.high - s.low))} %"
            for s in shown[:4]
        )
        are = (
            "1 node is slower than its"
            if len(shown) == 1
            else f"{len(shown)} nodes are slower than their"
        )
        text += f" {are} label says: {named}{', …' if len(shown) > 4 else ''}."
    return text


def _slow(results: JobResults, name: str) -> Sequence[SlowNode]:
    return results.learned[name].slow if name in results.learned else ()


def _against(n: _Numbers, best: str, other: str) -> str:
    """Mean completion time against another scheduler, and whether that is more than chance."""
    found = n.change(best, other, "completion.mean")
    if not math.isfinite(found.mean):
        return f"it cannot be compared with {other}"
    shown = Estimate(abs(found.mean), None, None)
    half = "" if found.half is None else f" ± {number(found.half, 1)}"
    if found.half is None and shown.mean < 0.05:
        return f"mean completion is the same as that of {other}"
    text = f"mean completion is {number(shown.mean, 1)} %{half} "
    text += f"{'below' if found.mean <= 0 else 'above'} that of {other}"
    if found.low is not None and found.high is not None and found.low <= 0 <= found.high:
        text += ", which may be chance"
    return text


# Tables


def _unit(values: Sequence[float]) -> tuple[float, str]:
    """A unit in which the largest of some seconds reads well."""
    largest = max((v for v in values if math.isfinite(v)), default=0.0)
    for size, name in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if largest >= 3 * size:
            return size, name
    return 1.0, "s"


def _times_sheet(n: _Numbers) -> Sheet:
    columns = []
    for name in ("waiting", "completion"):
        of = {w: [n.of(row, f"{name}.{w}") for row in n.rows] for w in ("mean", "median", "p95")}
        size, unit = _unit([e.mean for e in of["mean"]])
        for which, found in of.items():
            cells = estimate_cells([rescaled(e, 1 / size) for e in found])
            columns.append((f"{name}\n{which}, {unit}", cells))
    captions = [f"{n.interval} Waiting: to the first start. Completion: from submission to end."]
    if n.recorded is not None and not n.waits:
        captions.append(
            "The log knows of no waiting, its jobs were submitted when they started: what happened "
            "is in no table."
        )
    unended = {row: n.of(row, "not ended").mean for row in n.rows}
    left = [f"{row}: {int(count):,}" for row, count in unended.items() if count]
    if left:
        captions.append(f"Jobs that did not end are in no mean. {'; '.join(left)}.")
    if n.results.bounds:
        size, unit = _unit(n.results.bounds)
        bound = mean_and_interval(np.array(n.results.bounds) / size)
        captions.append(
            "Certified lower bound: no scheduler without migration has a mean completion below "
            f"{estimate_text(bound, decimals_for([bound]))} {unit}."
        )
    title = "Waiting and completion time"
    return columns_sheet(title, list(n.rows), columns, tuple(captions), "scheduler")


def _change_sheets(n: _Numbers) -> list[Sheet]:
    """Changes over as it happened, and over the scheduler that others are compared with."""
    sheets = []
    paired = "Paired by seed. " if n.seeds > 1 else ""
    for over in (HAPPENED, n.base):
        rows = [row for row in n.rows if row not in (over, HAPPENED)]
        if over not in n.rows or not rows:
            continue
        columns = []
        for what in ("waiting.mean", "waiting.p95", "completion.mean", "slowdown.mean"):
            cells = estimate_cells([n.change(row, over, what) for row in rows], True, 1)
            columns.append((what.replace(".", "\n"), cells))
        caption = f"Less is better. {paired}{n.interval}"
        title = f"More or less than {over}, %"
        sheets.append(columns_sheet(title, rows, columns, (caption,), "scheduler"))
    return sheets


def _changes(n: _Numbers) -> list[Dots]:
    """Changes of mean completion and waiting over the scheduler that others are compared with."""
    caption = "Less is better. "
    if n.seeds > 1:
        caption += "Paired by seed. A line is the 95 % confidence interval; where it holds 0 the "
        caption += "dot is hollow, and the difference may be chance."
    else:
        caption += n.interval
    found = []
    for key, what in (("completion.mean", "Mean completion"), ("waiting.mean", "Mean waiting")):
        of = {row: n.change(row, n.base, key) for row in n.rows if row != n.base}
        found.append(dots(f"{what} against {n.base}, %", of, caption))
    return [each for each in found if each is not None]


def _cluster_sheet(n: _Numbers) -> Sheet:
    makespans = [n.of(row, "makespan") for row in n.rows]
    size, unit = _unit([e.mean for e in makespans])
    columns = [(f"makespan,\n{unit}", estimate_cells([rescaled(e, 1 / size) for e in makespans]))]
    for device in n.first.nodes.devices:
        for key in ("utilisation", "goodput"):
            found = [rescaled(n.of(row, f"{key}.{device}"), 100) for row in n.rows]
            if key == "goodput" and HAPPENED in n.rows:
                found[0] = NONE
            columns.append((f"{key}\n{device}, %", estimate_cells(found, least=1)))
    spent = [n.of(row, "microseconds per decision") for row in n.rows]
    columns.append(
        ("µs per\ndecision", estimate_cells([Estimate(e.mean, None, None) for e in spent]))
    )
    captions = (
        "Utilisation: devices held, over the makespan. Goodput: the same, less what was lost to "
        "stragglers and restarts. A decision is a round after all events of an instant; its time "
        "is that of the whole simulation for schedulers that run compiled.",
    )
    return columns_sheet("Cluster", list(n.rows), columns, captions, "scheduler")


def _losses_sheet(n: _Numbers) -> Sheet:
    columns = []
    for device in n.first.nodes.devices:
        for key, heading in (
            ("stragglers", "stragglers"),
            ("restarts", "restarts"),
            ("idle", "idle while\na job waits"),
        ):
            found = [n.of(row, f"{key}.{device}") for row in n.rows]
            if HAPPENED in n.rows and key != "idle":
                found[0] = NONE  # the log does not say on which nodes
            columns.append((f"{heading}\n{device}-hours", estimate_cells(found)))
    captions = (
        "Stragglers: devices · hours · (1 − rate / declared rate) of every task, for its own node "
        "is slower than its label says, or another task of its gang is. Idle while a job waits: "
        "devices free while a waiting job asks for no more than these; fragmentation costs at most "
        "that much, for order and reservations hold devices free as well.",
    )
    return columns_sheet("Device-hours lost", list(n.rows), columns, captions, "scheduler")


def _users_sheet(n: _Numbers) -> Sheet:
    worst = [n.of(row, "worst users") for row in n.rows]
    size, unit = _unit([e.mean for e in worst])
    columns = [
        (f"slowdown\n{which}", estimate_cells([n.of(row, f"slowdown.{which}") for row in n.rows]))
        for which in ("mean", "median", "p95")
    ]
    if np.isfinite(n.first.jobs.deadline).any():
        missed = [n.of(row, "deadlines missed") for row in n.rows]
        columns.append(("deadlines\nmissed", estimate_cells(missed)))
    columns += [
        (f"waiting,\nworst users,\n{unit}", estimate_cells([rescaled(e, 1 / size) for e in worst])),
        ("unfairness", estimate_cells([n.of(row, "unfairness") for row in n.rows])),
        ("jobs", [count_cell(int(n.of(row, "jobs").mean)) for row in n.rows]),
    ]
    users = len(n.first.jobs.users)
    worst_are = f"the tenth of the {users:,} users who wait longest on average"
    if users < 20:
        worst_are = "the user who waits longest on average" if users > 1 else "there is one user"
    captions = (
        "Slowdown: completion over running time, both of 10 s at least. Worst users: "
        f"{worst_are}. Unfairness: "
        "1 − Jain's index of the users' mean slowdowns, 0 where all fare alike.",
    )
    return columns_sheet("Slowdown, deadlines, users", list(n.rows), columns, captions, "scheduler")


def _learned_sheets(results: JobResults) -> list[Sheet]:
    sheets = []
    for name, learned in results.learned.items():
        rows = sorted(learned.slow, key=lambda s: -s.slower)
        if rows:
            cells = [
                (
                    s.node,
                    (
                        Cell(
                            estimate_text(Estimate(100 * s.slower, 100 * s.low, 100 * s.high), 0),
                            s.slower,
                        ),
                    ),
                )
                for s in rows
            ]
            caption = f"As {name} believes at the end; ± is half the 95 % credible interval."
            sheets.append(
                Sheet(
                    "Nodes slower than their label says",
                    ("slower by, %",),
                    tuple(cells),
                    (caption,),
                    "node",
                )
            )
    return sheets


def _sensitivity_sheets(results: JobResults) -> list[Sheet]:
    told = results.sensitivity
    if told is None:
        return []
    found = [mean_and_interval(np.array(values)) for values in told.changes.values()]
    seeds = len(next(iter(told.changes.values())))
    columns = [("mean completion", estimate_cells(found, True, 1))]
    caption = (
        f"{told.scheduler} over {told.base}, %: one assumption at a time is another. Less is "
        f"better. {'One seed' if seeds == 1 else f'The first {seeds} seeds'}."
    )
    title = "Under other assumptions"
    return [columns_sheet(title, list(told.changes), columns, (caption,), "assumed")]


def _sensitivity_figure(results: JobResults, columns: Sequence[str]) -> list[Drawn]:
    told = results.sensitivity
    if told is None:
        return []
    panel = f"{told.scheduler} over {told.base}"
    rows = []
    for i, (name, values) in enumerate(told.changes.items()):
        found = mean_and_interval(np.array(values))
        label = name.replace(" ", "\n", 1) if i % 2 == 0 else "\n\n" + name.replace(" ", "\n", 1)
        rows.append((panel, told.scheduler, label, found.mean, found.low, found.high))
    table = pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None)
    table = table.with_columns(pl.col("mean", "low", "high").cast(pl.Float64))
    title = "Under other assumptions"
    panels = [Panel(panel, "", "mean completion, %", "bars")]
    caption = "Change of mean completion where one assumption at a time is another."
    return [pictured(title, table, panels, caption)]


def _groups(n: _Numbers, users: int = USERS) -> list[tuple[str, list[Ints], list[str]]]:
    """Jobs by size and by user: what it is called, the group of each job by seed, names."""
    seeds = next(iter(n.results.outcomes.values()))
    ends = np.cumsum([len(outcome.jobs) for outcome in seeds])[:-1]
    device = _main_device(n)
    sizes = np.concatenate([o.demand[:, o.nodes.devices.index(device)] for o in seeds])
    by_size, size_names = size_groups(np.where(sizes > 0, sizes, 0.0))
    found = [(f"{device} of a job", np.split(by_size, ends), size_names)]
    named = np.concatenate([np.asarray(o.jobs.users)[o.jobs.user] for o in seeds])
    every, first, user = np.unique(named, return_index=True, return_inverse=True)
    if every.size > 1:
        count = np.bincount(user)
        top = np.lexsort((first, -count))[:users]
        place = np.full(every.size, top.size)
        place[top] = np.arange(top.size)
        rest = every.size - top.size
        names = [str(every[u]) for u in top] + ([f"{rest} others"] if rest else [])
        found.append(("user", np.split(place[user], ends), names))
    return found


def _main_device(n: _Numbers) -> str:
    """The device type of which the largest share is held: the scarce one."""
    used = n.rows[n.best][0].utilisation
    return max(used, key=lambda name: used[name] if math.isfinite(used[name]) else -1.0)


def _group_means(n: _Numbers, group: Sequence[Ints]) -> dict[str, dict[int, Estimate]]:
    """Mean waiting by scheduler and group, in seconds, with intervals over seeds."""
    found: dict[str, dict[int, Estimate]] = {}
    for row, each in n.rows.items():
        seen: dict[int, list[float]] = {}
        for outcome, of in zip(each, group):
            for g, values in by_group(outcome, of, outcome.waiting).items():
                seen.setdefault(g, []).append(values["of.mean"])
        found[row] = {g: mean_and_interval(values) for g, values in seen.items()}
    return found


def _group_sheets(n: _Numbers) -> list[Sheet]:
    sheets = []
    for what, group, names in _groups(n):
        means = _group_means(n, group)
        size, unit = _unit([e.mean for each in means.values() for e in each.values()])
        columns = [("jobs", [count_cell(int((group[0] == g).sum())) for g in range(len(names))])]
        for row, each in means.items():
            cells = estimate_cells(
                [rescaled(each.get(g, NONE), 1 / size) for g in range(len(names))]
            )
            columns.append((row, cells))
        title = f"Mean waiting by {what}, {unit}"
        sheets.append(columns_sheet(title, names, columns, (n.interval,), what))
    return sheets


# Figures


def _figures(n: _Numbers) -> list[Drawn]:
    columns = ("panel", "line", "x", "mean", "low", "high")
    figures = []
    rows: list[tuple[Any, ...]] = []
    panels = []
    for what, group, names in _groups(n, DRAWN_USERS):
        means = _group_means(n, group)
        size, unit = _unit([e.mean for each in means.values() for e in each.values()])
        if len(names) < 2:
            continue
        panels.append(Panel(what, "", f"mean waiting, {unit}", "bars"))
        labels = _labels(names)
        for row in n.drawn:
            each = means.get(row, {})
            rows += [
                (what, row, labels[g], *rescaled(each[g], 1 / size))
                for g in range(len(names))
                if g in each
            ]
    if rows:
        table = pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None)
        table = table.with_columns(pl.col("low", "high").cast(pl.Float64))
        title = "Waiting by job size and user"
        figures.append(pictured(title, table, panels, n.interval))
    figures.append(_over_time(n, columns))
    figures += _learned_figures(n, columns)
    figures += _sensitivity_figure(n.results, columns)
    return figures


def _labels(names: Sequence[str]) -> list[str]:
    """Names below bars: shortened, all different, in two rows where there are many.

    >>> _labels(["user one", "user two"]), _labels(["longest-ab", "longest-ab-"])
    (['user one', 'user two'], ['long…-ab', 'long…ab-'])
    """
    plain = [name.replace(" to ", "–") for name in names]
    short = [name if len(name) <= 9 else f"{name[:4]}…{name[-3:]}" for name in plain]
    found: list[str] = []
    for i, label in enumerate(short):
        unique = label if short.count(label) == 1 else f"{label[:5]} {i + 1}"
        found.append(f"\n{unique}" if len(names) > 4 and i % 2 else unique)
    return found


def _over_time(n: _Numbers, columns: Sequence[str]) -> Drawn:
    device = _main_device(n)
    begin = min(o.span[0] for each in n.rows.values() for o in each[:1])
    end = max(o.span[1] for each in n.rows.values() for o in each[:1])
    edges = np.linspace(begin, max(end, begin + 1), BINS + 1)
    size, unit = _unit([end - begin])
    at = (edges[:-1] - begin) / size
    capacity = n.first.capacity[n.first.nodes.devices.index(device)]
    used, waits = f"{device} held, %", "jobs waiting"
    rows: list[tuple[Any, ...]] = []
    for row in n.drawn:
        each = n.rows[row]
        held = 100 * each[0].over_time(device, edges) / capacity
        rows += [(used, row, x, y, None, None) for x, y in zip(at.tolist(), held.tolist())]
        queue = each[0].waiting_jobs(edges)
        rows += [(waits, row, x, y, None, None) for x, y in zip(at.tolist(), queue.tolist())]
    table = pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None)
    table = table.with_columns(pl.col("low", "high").cast(pl.Float64))
    label = f"{unit} since the first submission"
    panels = [Panel(used, label, "", "steps"), Panel(waits, label, "", "steps")]
    title = "Utilisation and queue over time"
    seed = "" if n.seeds == 1 else " of the first seed"
    width = f"Means over {BINS} bins of {period((end - begin) / BINS)}{seed}."
    return pictured(title, table, panels, width)


def _learned_figures(n: _Numbers, columns: Sequence[str]) -> list[Drawn]:
    """Believed and true rates of nodes, of the job type with the most jobs."""
    figures = []
    for name, learned in n.results.learned.items():
        if learned.true is None:
            continue
        count = np.bincount(n.first.jobs.type, minlength=len(learned.job_types))
        shown = np.argsort(-count, kind="stable")[:2]
        rows: list[tuple[Any, ...]] = []
        panels = []
        for t in shown:
            panel = f"job type {learned.job_types[t]}"
            order = np.argsort(-learned.true[t], kind="stable")
            mean, sd = learned.mean[t][order], learned.sd[t][order]
            low, high = np.exp(mean - 1.96 * sd), np.exp(mean + 1.96 * sd)
            place = np.arange(order.size, dtype=np.float64)
            rows += [
                (panel, "true", x, y, None, None) for x, y in zip(place, learned.true[t][order])
            ]
            rows += [(panel, "learned", *each) for each in zip(place, np.exp(mean), low, high)]
            panels.append(Panel(panel, "nodes, the fastest first", "rate", "points"))
        table = pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None)
        table = table.with_columns(pl.col("mean", "low", "high").cast(pl.Float64))
        inside = np.abs(learned.mean - np.log(learned.true)) <= 1.96 * learned.sd
        title = f"Learned and true rates, {name}"
        caption = (
            f"Bars are 95 % intervals; {number(100 * float(inside.mean()), 0)} % of all "
            f"{inside.size:,} of them hold the true rate. The two job types with the most jobs."
        )
        figures.append(pictured(title, table, panels, caption))
    return figures
