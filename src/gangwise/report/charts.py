"""Charts of logs: arrivals, sizes, lifetimes and load of a trace; which job ran where and when.

Pictures of a trace are PNG and SVG, and their numbers. A row of ``tables.jobs`` is a request of
equal tasks. Requests without times are left out where times are needed, and requests that are not
known where these are. The same trace gives the same SVG, byte for byte.

The chart of nodes (``gantt.js``) has a rectangle for each job on each node, or, where there are too
many, the share of each node that was held over time. Numbers are packed as little-endian binary in
base 64. The page about slow nodes, and about gangs that are slow apart, stands with it.
"""

import base64
import heapq
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from rich.console import Group
from rich.text import Text as Line

from gangwise.core.arrays import Floats, Ints
from gangwise.core.files import write_whole
from gangwise.jobs.metrics import Outcome, Pieces, over_bins
from gangwise.logs.tables import Tables, device_totals, work
from gangwise.notation import duration, roughly
from gangwise.report import page
from gangwise.report.page import Section, Tile, Tiles, phrase, sentence_case
from gangwise.report.plotting import Panel, Style, draw, image, plain_styles, points
from gangwise.report.tables import Cell, Sheet, columns_sheet, rich_tables, value_cell
from gangwise.study.findings import DistanceFindings, NodeFindings
from gangwise.study.statistics import enumerated, number

QUANTITIES = {"cpu": "CPU", "mem": "memory", "gpu": "GPUs"}
HOUR, DAY = 3600.0, 86400.0
WIDTHS = {1.0: "second", 10.0: "10 seconds", 60.0: "minute", 300.0: "5 minutes"}
WIDTHS |= {HOUR: "hour", DAY: "day", 7 * DAY: "week"}
"""Widths of the bins of arrivals, in seconds."""

FEWEST_BINS, MOST_BINS = 48, 10_000
FEWEST_DAYS = 2


class ArrivalCounts(NamedTuple):
    """Requests created over time, and in each hour of a day."""

    width: float  # seconds of a bin
    first: float  # start of the first bin since the start of the trace; a multiple of `width`
    counts: Ints  # [n] requests created in each bin
    cycle: Floats | None  # [24] mean requests in each hour of whole days; None of fewer than two
    days: int  # that `cycle` is a mean over, counted from the start of the trace


class Distribution(NamedTuple):
    """Distribution of a value: the share of the requests whose value is at most it."""

    values: Floats  # [n] distinct, ascending
    share: Floats  # [n]
    known: int  # requests with a value
    unknown: int  # and without

    @property
    def zeros(self) -> float:
        return float(self.share[0]) if self.known and self.values[0] == 0 else 0.0


class Load(NamedTuple):
    """Load over time: what is requested while jobs run, in the units of the trace."""

    edges: Floats  # [n + 1] of the bins, in seconds since the start of the trace
    requested: dict[str, Floats]  # [n] mean of each quantity of which anything is requested
    capacity: dict[str, float]  # of all servers, where it is known


Rows = list[tuple[Any, ...]]
Picture = tuple[Rows, list[Panel], str]
"""Points, panels and caption."""


def arrivals(tables: Tables) -> ArrivalCounts | None:
    """Requests created in each hour, or in shorter bins of a short trace; None without times."""
    created = tables.jobs["created"].drop_nulls().to_numpy()
    if not created.size:
        return None
    width = _width(float(np.ptp(created)))
    place = np.floor(created / width).astype(np.int64)
    counts = np.bincount(place - place.min())
    hours = np.floor(created / HOUR).astype(np.int64)
    # Only whole days: a part of one would tilt the cycle.
    begin, end = -(-hours.min() // 24), (hours.max() + 1) // 24  # whole days
    days, cycle = int(max(end - begin, 0)), None
    if days >= FEWEST_DAYS:
        full = hours[(hours >= 24 * begin) & (hours < 24 * end)]
        cycle = (np.bincount(full % 24, minlength=24) / days).astype(np.float64)
    return ArrivalCounts(width, float(place.min() * width), counts, cycle, days)


def sizes(tables: Tables) -> dict[str, Distribution]:
    """Requests of a task by quantity; those of which no task requests any are absent."""
    spreads = {name: _distribution(tables.jobs[name]) for name in QUANTITIES}
    return {name: d for name, d in spreads.items() if d.known and d.values[-1] > 0}


def lifetimes(tables: Tables) -> Distribution:
    """Seconds that requests ran; from creation to deletion where the format tells no start."""
    return _distribution(work(tables.jobs)["run"])


def load(tables: Tables, bins: int = 400) -> Load | None:
    """Requests of each quantity over time, exact means over equal bins; None without times."""
    held_for = work(tables.jobs)
    jobs = tables.jobs.filter(held_for["run"].is_not_null())
    held_for = held_for.drop_nulls("run")
    begin = held_for["begin"].to_numpy()
    end = begin + held_for["run"].to_numpy()
    if not len(jobs) or end.max() <= begin.min():
        return None
    edges = np.linspace(begin.min(), end.max(), bins + 1)
    # A request that gives no number of tasks is of one.
    tasks = jobs["tasks"].fill_null(1).to_numpy() if "tasks" in jobs.columns else 1.0
    requested = {}
    for name in QUANTITIES:
        # What a request does not say counts as nothing.
        wanted = jobs[name].fill_null(0).to_numpy() * tasks
        if wanted.any():
            requested[name] = over_bins(edges, begin, end, wanted)
    totals = device_totals(tables)
    return Load(edges, requested, {n: totals[n] for n in requested if totals.get(n, 0) > 0})


def _width(span: float) -> float:
    """Seconds of a bin: hours and more where these give enough bins, else what is shorter."""
    if span / HOUR < FEWEST_BINS:
        # The widest of them that still gives enough bins.
        shorter = (width for width in reversed(WIDTHS) if width < HOUR)
        return next((width for width in shorter if span / width >= FEWEST_BINS), 1.0)
    longer = (width for width in WIDTHS if width >= HOUR)
    return next((width for width in longer if span / width <= MOST_BINS), span / MOST_BINS)


def _distribution(column: pl.Series) -> Distribution:
    numbers = column.drop_nulls().to_numpy()
    values, counts = np.unique(numbers, return_counts=True)
    share = np.cumsum(counts) / max(numbers.size, 1)
    return Distribution(values.astype(np.float64), share, numbers.size, len(column) - numbers.size)


def draw_trace(tables: Tables, directory: Path | str) -> tuple[dict[str, str], dict[str, str]]:
    """Draw ``arrivals``, ``sizes``, ``lifetimes`` and ``load`` into an existing folder.

    Gives what each picture is made of, and why others have nothing to show and were not drawn.
    """
    captions, left_out = {}, {}
    looks = plain_styles(["requests", *QUANTITIES.values()])
    for stem, (title, picture) in PICTURES.items():
        drawn = picture(tables)
        if isinstance(drawn, str):
            left_out[stem] = drawn
            continue
        rows, panels, captions[stem] = drawn
        heading = f"{tables.trace}: {title}"
        figure = draw(heading, points(rows), panels, looks, caption=captions[stem])
        for ending in ("png", "svg"):
            write_whole(Path(directory, f"{stem}.{ending}"), image(figure, ending))
    return captions, left_out


def _steps(panel: str, line: str, edges: Floats, values: Floats | Ints) -> Rows:
    """Values [n] between edges [n + 1] as the points of steps; the last one is held to its edge."""
    ys = np.append(values, values[-1])
    return [(panel, line, x, y, None, None) for x, y in zip(edges.tolist(), ys.tolist())]


def _arrivals(tables: Tables) -> Picture | str:
    counts = arrivals(tables)
    if counts is None:
        return "no request has a time of creation"
    bin_name = WIDTHS.get(counts.width, duration(counts.width))
    total = f"{counts.counts.sum():,}"
    caption = phrase("arrivals", requests=_requests(tables), known=total, bin=bin_name)
    edges = counts.first + counts.width * np.arange(counts.counts.size + 1.0)
    scale, unit = _clock(edges[-1])
    panel = f"requests created per {bin_name}"
    rows = _steps(panel, "requests", edges / scale, counts.counts)
    panels = [_panel(panel, f"{unit} since the start of the trace")]
    if counts.cycle is None:
        caption += " No daily cycle: fewer than two whole days."
    else:
        caption += f" {phrase('daily cycle', days=counts.days)}"
        panel = "requests created per hour, mean"
        hours = np.linspace(0.0, 24.0, 25)
        rows += _steps(panel, "requests", hours, counts.cycle)
        panels.append(_panel(panel, "hour of each day of the trace", ends=(0.0, 24.0)))
    return rows, panels, caption


def _sizes(tables: Tables) -> Picture | str:
    spreads = sizes(tables)
    if not spreads:
        return "no request says what it asks for"
    caption = phrase("sizes", requests=_requests(tables))
    names = {QUANTITIES[name]: spread for name, spread in spreads.items()}
    if unknown := [f"{d.unknown:,} do not say how much {n}" for n, d in names.items() if d.unknown]:
        caption += f" Left out: {enumerated(unknown)}."
    if none := [f"{100 * d.zeros:.3g} % ask for no {n}" for n, d in names.items() if d.zeros]:
        caption += f" {sentence_case(enumerated(none))}."
    rows, panels = [], []
    for name, spread in spreads.items():
        shown = QUANTITIES[name]
        positive = spread.values[spread.values > 0]
        # On a linear axis the largest would press all others together.
        wide = bool(positive[-1] > 20 * positive[0])
        axis = f"{shown} of a task ({tables.units[name]})"
        panels.append(_panel(shown, axis, "share of requests", wide))
        rows += _distribution_steps(shown, shown, spread, wide)
    return rows, panels, caption


def _distribution_steps(panel: str, line: str, found: Distribution, log: bool) -> Rows:
    """A distribution function as steps; on a logarithmic axis what is 0 is left of it."""
    positive = found.values > 0
    values, share = found.values[positive], found.share[positive]
    # A little to the left of the smallest, where a logarithmic axis has room.
    edges = np.concatenate([[values[0] / 1.3 if log else 0.0], values, [values[-1] * 1.05]])
    return _steps(panel, line, edges, np.concatenate([[found.zeros], share]))


def _lifetimes(tables: Tables) -> Picture | str:
    spread = lifetimes(tables)
    if not spread.known:
        return "of no request it is known how long it ran"
    # Requests that are deleted in the last instant were there when the trace ended.
    end = tables.jobs["deleted"].max()
    until_end = int((tables.jobs["deleted"] == end).sum())
    says = {"requests": _requests(tables), "span": _span(tables), "last": f"{until_end:,}"}
    # The first value that half of all do not exceed: the median.
    middle = float(spread.values[np.searchsorted(spread.share, 0.5)])
    caption = phrase("lifetimes", **says, middle=duration(middle))
    if spread.unknown:
        caption += (
            f" {spread.unknown:,} that never ran, or whose times are not known, are left out."
        )
    if spread.zeros:
        caption += f" {100 * spread.zeros:.2g} % last 0 s and are not on the axis."
    panel = _panel("lifetimes", "lifetime in seconds", "share of requests", True)
    timed = spread.values[-1] > 0
    rows = _distribution_steps(panel.name, "requests", spread, True) if timed else []
    return rows, [panel], caption


def _load(tables: Tables) -> Picture | str:
    drawn = load(tables)
    if drawn is None:
        return "of no request it is known how long it ran"
    if not drawn.requested:
        return "no request says what it asks for"
    width = duration(round(float(np.diff(drawn.edges)[0]), 1))
    says = {"requests": _requests(tables), "span": _span(tables), "bins": len(drawn.edges) - 1}
    caption = phrase("load", **says, width=width)
    amounts = [
        f"{total:,.7g} {tables.units[n]} ({QUANTITIES[n]})" for n, total in drawn.capacity.items()
    ]
    if amounts:
        caption += (
            f" Capacity is that of all {len(tables.servers):,} servers: {enumerated(amounts)}."
        )
    if without := [QUANTITIES[name] for name in drawn.requested if name not in drawn.capacity]:
        caption += f" Capacity of {enumerated(without)} is not known here: amounts, not shares."
    scale, unit = _clock(drawn.edges[-1])
    rows, panels = [], []
    for name, requested in drawn.requested.items():
        total = drawn.capacity.get(name)
        axis = tables.units[name] if total is None else "% of capacity"
        panels.append(_panel(QUANTITIES[name], f"{unit} since the start of the trace", axis))
        shown = requested if total is None else 100 * requested / total
        rows += _steps(QUANTITIES[name], QUANTITIES[name], drawn.edges / scale, shown)
    return rows, panels, caption


PICTURES: dict[str, tuple[str, Callable[[Tables], Picture | str]]] = {
    "arrivals": ("arrivals", _arrivals),
    "sizes": ("request sizes", _sizes),
    "lifetimes": ("lifetimes", _lifetimes),
    "load": ("load requested", _load),
}
"""Each with its title, and what makes it, or says why there is none."""


def _panel(
    name: str, x: str, y: str = "", log: bool = False, ends: tuple[float, float] | None = None
) -> Panel:
    # From the beginning on: the axis fits all that is drawn.
    return Panel(name, x, y, "steps", log, level=0.0, settled=-np.inf, ends=ends)


def _clock(end: float) -> tuple[float, str]:
    units = {"days": DAY, "hours": HOUR, "minutes": 60.0, "seconds": 1.0}
    return next((size, name) for name, size in units.items() if end >= 2 * size or size == 1)


def _requests(tables: Tables) -> str:
    jobs = tables.jobs
    jobs_of = f" of {jobs['job'].n_unique():,} jobs" if "job" in jobs.columns else ""
    return f"{len(jobs):,} requests{jobs_of}"


def _span(tables: Tables) -> str:
    if "started" in tables.jobs.columns:
        return "from start to end, without the time that they waited"
    return "from creation to deletion, waiting included"


RECTANGLES = 12_000
"""Beyond this many the chart of nodes shows means over bins, so that a page stays below 1 MB."""

CELLS, PRINTED, ROWS = 240_000, 30_000, 150
"""At most this many bins in all charts of nodes on a page, and in one in a figure; and at most this
many rows: where there are more nodes, several share a row."""

COLOURED = 9
"""This many users, or job types, have a colour of their own: those with the most work."""


class Lane(NamedTuple):
    """A rectangle of a node's row: an interval, and which of its devices, in thousandths."""

    interval: int
    offset: int
    height: int


def lanes(begin: Floats, end: Floats, amount: Ints, capacity: int) -> list[Lane]:
    """Give each interval devices of one node, so that no device is drawn twice.

    The first free stretch that is wide enough, or several where none is. Intervals that find no
    room, which feasible schedules do not have, are drawn over others.

    >>> lanes(np.array([0.0, 1.0]), np.array([3.0, 2.0]), np.array([1000, 2000]), 4000)
    [Lane(interval=0, offset=0, height=1000), Lane(interval=1, offset=1000, height=2000)]
    """
    # First fit into stretches of devices; what ends by then is free again.
    free: list[tuple[int, int]] = [(0, capacity)]  # offset and height, by offset
    busy: list[tuple[float, int, list[tuple[int, int]]]] = []
    lanes_of = []
    # By their begin, equal ones in the order given.
    for i in np.lexsort((np.arange(begin.size), begin)).tolist():
        while busy and busy[0][0] <= begin[i]:
            free = _merged([*free, *heapq.heappop(busy)[2]])
        wanted, mine = int(amount[i]), []
        for offset, height in [s for s in free if s[1] >= wanted][:1] or free:
            if part := min(height, wanted):
                mine.append((offset, part))
                wanted -= part
        used = dict(mine)
        free = [(o + used.get(o, 0), h - used.get(o, 0)) for o, h in free if h > used.get(o, 0)]
        heapq.heappush(busy, (float(end[i]), i, mine))
        # No room: drawn over others, at the top.
        over = [(max(capacity - wanted, 0), wanted)] if wanted else []
        lanes_of += [Lane(i, offset, height) for offset, height in [*mine, *over]]
    return lanes_of


def _merged(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for offset, height in sorted(stretches):
        if joined and sum(joined[-1]) == offset:
            joined[-1] = (joined[-1][0], joined[-1][1] + height)
        else:
            joined.append((offset, height))
    return joined


def chart_of_nodes(outcomes: Mapping[str, Outcome], device: str) -> dict[str, Any]:
    """Gantt chart: where and when jobs ran under each scheduler, for the script of the page."""
    begin, end = span(outcomes)
    pieces = max(_pieces(outcome).job.size for outcome in outcomes.values())
    nodes = max(len(outcome.nodes) for outcome in outcomes.values())
    charts: list[dict[str, Any]] = []
    if pieces <= RECTANGLES and nodes <= 2 * ROWS:
        charts = [_rectangles(outcome, device, begin) for outcome in outcomes.values()]
    if not (exact := bool(charts) and all(c["count"] <= RECTANGLES for c in charts)):
        charts = []
        most = CELLS // len(outcomes)
        for outcome in outcomes.values():
            rows, use = _shares(outcome, device, begin, end, most)
            packed = _packed(np.rint(255 * use), "u1")
            charts.append({"rows": rows, "bins": use.shape[1], "share": packed})
    jobs = next(iter(outcomes.values())).jobs
    # A colour for each user, or for each job type where there is one user.
    names, whose = (jobs.users, jobs.user) if len(jobs.users) > 1 else (jobs.types, jobs.type)
    # Colours go to those with the most work.
    share = np.bincount(whose, jobs.tasks * jobs.run, minlength=len(names))
    order = np.argsort(-share, kind="stable")
    hue = np.full(len(names), COLOURED)
    hue[order[:COLOURED]] = np.arange(min(COLOURED, len(names)))
    noun, by = page.in_words(device), "user" if len(jobs.users) > 1 else "job type"
    caption = page.phrase("rectangles", devices=noun, by=by)
    if not exact:
        width = roughly((end - begin) / charts[0]["bins"])
        caption = page.phrase("shares of nodes", devices=noun, width=width)
    return {
        "device": noun,
        "exact": exact,
        "seconds": end - begin,
        "schedulers": [{"name": row, **chart} for row, chart in zip(outcomes, charts)],
        # Names of thousands of users would be most of the page.
        "users": list(names) if exact and len(names) < 2000 else [],
        "hues": hue.tolist() if exact else [],
        "legend": [str(names[i]) for i in order[:COLOURED]] if exact else [],
        "others": max(len(names) - COLOURED, 0) if exact else 0,
        "caption": caption,
    }


def figure_of_nodes(
    outcomes: Mapping[str, Outcome], device: str
) -> tuple[list[tuple[Any, ...]], list[Panel]]:
    rows, (begin, end) = [], span(outcomes)
    for scheduler, outcome in outcomes.items():
        names, share = _shares(outcome, device, begin, end, PRINTED)
        at = (np.arange(share.shape[1]) + 0.5) * (end - begin) / share.shape[1] / 3600
        rows += [
            (scheduler, name, hours, value, None, None)
            for name, line in zip(names, share)
            for hours, value in zip(at.tolist(), line.tolist())
        ]
    return rows, [Panel(name, "hours since the first submission", "", "map") for name in outcomes]


def span(outcomes: Mapping[str, Outcome]) -> tuple[float, float]:
    """From the first submission to the last end under any scheduler, in seconds."""
    begins, ends = zip(*(outcome.span for outcome in outcomes.values()))
    return min(begins), max(ends)


def _pieces(outcome: Outcome) -> Pieces:
    assert outcome.pieces is not None, "a simulated schedule has pieces"
    return outcome.pieces


def _rectangles(outcome: Outcome, device: str, begin: float) -> dict[str, Any]:
    k, pieces, jobs = outcome.nodes.devices.index(device), _pieces(outcome), outcome.jobs
    amount = np.rint(1000 * pieces.tasks * outcome.per_piece[:, k]).astype(np.int64)
    boxes = []  # node, offset and height as shares of the node, piece
    for node in range(len(outcome.nodes)):
        capacity = int(outcome.nodes.capacity[node, k])
        mine = np.flatnonzero((pieces.node == node) & (amount > 0) & (pieces.end > pieces.begin))
        for lane in lanes(pieces.begin[mine], pieces.end[mine], amount[mine], capacity):
            share = (lane.offset / max(capacity, 1), lane.height / max(capacity, 1))
            boxes.append((node, *share, int(mine[lane.interval])))
    # Also where there is no box at all.
    node_of, offset, height, piece = np.array(boxes).reshape(-1, 4).T
    p = piece.astype(np.int64)
    return {
        "rows": list(outcome.nodes.names),
        "count": len(boxes),
        "row": _packed(node_of, "<u2"),
        # Sixteen bits place a rectangle to a 65,535th of its node.
        "offset": _packed(offset * 65535, "<u2"),
        "height": _packed(height * 65535, "<u2"),
        "begin": _packed(pieces.begin[p] - begin, "<f4"),
        "end": _packed(pieces.end[p] - begin, "<f4"),
        "job": _packed(jobs.row[pieces.job[p]], "<u4"),
        "user": _packed((jobs.user if len(jobs.users) > 1 else jobs.type)[pieces.job[p]], "<u4"),
    }


def _shares(
    outcome: Outcome, device: str, begin: float, end: float, most: int
) -> tuple[list[str], Floats]:
    k, pieces, nodes = outcome.nodes.devices.index(device), _pieces(outcome), len(outcome.nodes)
    # Several nodes share a row where there are more than rows.
    per_row = -(-nodes // ROWS)
    rows = -(-nodes // per_row)
    edges = np.linspace(begin, end, int(min(2000, most // rows)) + 1)
    amount = pieces.tasks * outcome.per_piece[:, k]
    share = np.zeros((rows, edges.size - 1))
    for row in range(rows):
        mine = pieces.node // per_row == row
        capacity = outcome.nodes.capacity[row * per_row : (row + 1) * per_row, k].sum() / 1000
        if capacity > 0:
            held = over_bins(edges, pieces.held[mine], pieces.end[mine], amount[mine])
            share[row] = held / capacity
    names = outcome.nodes.names
    heads = [names[row * per_row] for row in range(rows)]
    tails = [names[min((row + 1) * per_row, nodes) - 1] for row in range(rows)]
    return [a if a == b else f"{a} to {b}" for a, b in zip(heads, tails)], np.clip(share, 0, 1)


def _packed(values: npt.ArrayLike, kind: str) -> str:
    return base64.b64encode(np.asarray(values).astype(kind).tobytes()).decode()


SHOWN = 10  # at least this many nodes have a row of the table, and all slow nodes have one
MOST_DRAWN = 400
WIDEST = np.log(100)  # nothing is known of a node whose interval is wider


def _order(found: NodeFindings) -> list[int]:
    e = found.effects
    judged = np.flatnonzero(np.isfinite(e.mean) & (e.high - e.low < WIDEST))
    return sorted(judged.tolist(), key=lambda n: (not e.slow[n], -e.mean[n]))


def node_sheets(found: NodeFindings) -> list[Sheet]:
    """Slow nodes, or the slowest ones; and nodes that changed."""
    e = found.effects
    order = _order(found)
    shown = order[: max(SHOWN, int(e.slow.sum()))]
    longer = {n: [number(100 * np.expm1(v), 1) for v in (e.low[n], e.high[n])] for n in shown}
    columns = [
        ("longer\nrun times, %", [value_cell(100 * np.expm1(e.mean[n]), 1) for n in shown]),
        ("95 %\ninterval", [Cell(" to ".join(longer[n]), e.low[n]) for n in shown]),
        ("jobs", [value_cell(float(e.runs[n])) for n in shown]),
        ("p", [Cell(f"{e.p[n]:.2g}", e.p[n]) for n in shown]),
        ("named", [Cell("slow" if e.slow[n] else "", words=True) for n in shown]),
    ]
    caption = page.phrase("slow nodes", shown=len(shown))
    names = [found.names[n] for n in shown]
    sheets = [columns_sheet("Nodes", names, columns, (caption,), "node")] if shown else []
    if e.changes:
        rows = e.changes
        columns = [
            ("day of\nthe log", [value_cell(c.at / 86400, 1) for c in rows]),
            (
                "95 %\ninterval",
                [Cell(f"{c.low / 86400:.1f} to {c.high / 86400:.1f}") for c in rows],
            ),
            ("longer\nbefore, %", [value_cell(100 * np.expm1(c.before), 1) for c in rows]),
            ("longer\nafter, %", [value_cell(100 * np.expm1(c.after), 1) for c in rows]),
        ]
        names = [found.names[c.node] for c in rows]
        caption = "One change each, the largest; 5 % of these nodes are false in expectation."
        sheets.append(columns_sheet("Nodes that changed", names, columns, (caption,), "node"))
    if found.distance:
        sheets.append(_distance_sheet(found.distance))
    return sheets


def _distance_sheet(found: DistanceFindings) -> Sheet:
    """Job types by what being apart costs them, the dearest first; those named, and SHOWN more."""
    e = found.effects
    rows = [(c, h) for c in range(1, len(e.mean)) for h in range(len(found.levels))]
    rows = [(c, h) for c, h in rows if np.isfinite(e.mean[c, h])]
    rows.sort(key=lambda at: (not e.slow[at], -e.mean[at]))
    rows = rows[: max(SHOWN, int(e.slow[1:].sum()))]
    ends = [[number(100 * np.expm1(v[at]), 1) for v in (e.low, e.high)] for at in rows]
    columns = [
        ("out of\none", [Cell(found.levels[h], words=True) for _, h in rows]),
        ("longer\nrun times, %", [value_cell(100 * np.expm1(e.mean[at]), 1) for at in rows]),
        ("95 %\ninterval", [Cell(" to ".join(pair), e.low[at]) for at, pair in zip(rows, ends)]),
        ("runs\napart", [value_cell(float(e.runs[c, h + 1 :].sum())) for c, h in rows]),
        ("p", [Cell(f"{e.p[at]:.2g}", e.p[at]) for at in rows]),
        ("named", [Cell("dear" if e.slow[at] else "", words=True) for at in rows]),
    ]
    caption = page.phrase("dear distance")
    names = [found.kinds[c - 1] for c, _ in rows]
    return columns_sheet("Distance", names, columns, (caption,), "job type")


def node_text(found: NodeFindings) -> Group:
    head = [Line(found.line), Line(f"{found.answer}.", "bold")]
    if found.distance:
        head.append(Line(f"{found.distance.answer}.", "bold"))
    head.append(Line())
    return Group(*head, rich_tables(node_sheets(found)))


def node_page(found: NodeFindings, name: str, command: str = "") -> page.Page:
    """The answer, all nodes with their intervals, the tables."""
    e = found.effects
    order = sorted(_order(found), key=lambda n: -e.mean[n])[:MOST_DRAWN]
    ends = [[100 * np.expm1(v[n]) for v in (e.mean, e.low, e.high)] for n in order]
    lines = ["slow" if e.slow[n] else "others" for n in order]
    points = [("nodes", line, float(i), *y) for i, (line, y) in enumerate(zip(lines, ends), 1)]
    panel = Panel("nodes", "nodes, the slowest first", "longer run times, %", "dots", level=0.0)
    looks = {"slow": Style(1, 4.0), "others": Style(0, 3.0)}
    few = f"The {len(order)} slowest. " if len(order) == MOST_DRAWN else ""
    caption = f"{few}Run times against those on the median node, with 95 % intervals."
    picture = page.pictured(
        "Nodes", points, [panel], caption, {k: looks[k] for k in looks if k in lines}
    )
    spread = [f"{100 * np.expm1(end):.2g} %" for end in e.spread]
    tiles = [
        Tile("Slow nodes", f"{int(e.slow.sum())}", f"of {int(np.isfinite(e.p).sum()):,} judged"),
        Tile("Nodes differ by (sd)", spread[0], f"95 %: {spread[1]} to {spread[2]}"),
        Tile("Jobs compared", f"{e.compared:,}", f"of {found.read:,}, in {e.programs:,} programs"),
        Tile("Nodes that changed", f"{len(e.changes)}", "over the time of the log"),
    ]
    tables = [Section("Every node", node_sheets(found))]
    answers = [found.answer, *([found.distance.answer] if found.distance else [])]
    parts: list[page.Part] = [
        Tiles(tiles),
        *[picture] * bool(order),
        page.Bullets([f"{text}." for text in answers]),
    ]
    parts += [*page.notes([found.line]), *tables * bool(order)]
    facts = [f"{len(found.names):,} nodes"]
    slow = [n for n in order if e.slow[n]]
    jobs = f"{e.compared:,} of {found.read:,} jobs could be compared"
    headline = f"no node is shown to be slower than the others; {jobs}"
    if slow:
        longer = f"{100 * np.expm1(e.mean[slow[0]]):.0f} % longer on {found.names[slow[0]]}"
        verb = "node is" if len(slow) == 1 else "nodes are"
        headline = f"{int(e.slow.sum())} {verb} slow: jobs take {longer}, the slowest"
    return page.answer_page(f"Nodes of {name}", headline, facts, parts, command, ("p",))
