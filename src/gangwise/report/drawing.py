"""Plots of a page, as SVG elements that follow its colours, fonts and width.

Lines, bands and ends of intervals are tagged ``data-line``, ``data-band`` and ``data-ends`` with
their numbers, so that a page can hide and read them; ``data-axes`` has the limits of both axes,
where these are in the drawing, and whether they are logarithmic. Files are drawn by
:mod:`gangwise.report.plotting` from the same numbers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from textwrap import wrap
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from gangwise.report.plotting import Looks, Panel, Style
from gangwise.study.statistics import number, scale_for

WIDE, HIGH = 360.0, 223.0
"""Size of a drawing in its own units, in which letters are 9.5 high; a page scales it."""

LARGEST, SMALLEST = 530, 335
"""Pixels of the page between which a drawing is as wide as there is room."""

LETTER = 5.3  # mean width of a letter


class Point(NamedTuple):
    """A point of a line: ``x`` is a number, or a text for bars; ends are None without interval."""

    x: Any
    mean: float
    low: float | None
    high: float | None


Lines = Mapping[str, Sequence[Point]]


class Axis(NamedTuple):
    """Limits of an axis, the places of its ends in the drawing, and its ticks with their labels."""

    low: float
    high: float
    begin: float
    stop: float
    log: bool
    ticks: Sequence[tuple[float, str]]

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            value, low, high = (math.log(max(v, 1e-300)) for v in (value, low, high))
        share = (value - low) / (high - low)
        return self.begin + (self.stop - self.begin) * min(max(share, -1.0), 2.0)

    def inside(self, value: float) -> float:
        return self.at(min(max(value, self.low), self.high))


def round_ticks(low: float, high: float, most: int = 5, whole: bool = False) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten that span an interval in few steps.

    >>> round_ticks(-1.0, 8.0), round_ticks(0.0, 0.31)
    ([-2.0, 0.0, 2.0, 4.0, 6.0, 8.0], [0.0, 0.1, 0.2, 0.3, 0.4])
    """
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    steps = [power * unit for unit in (1, 2, 2.5, 5, 10)]
    step = next(s for s in steps if (high - low) / s <= most + 1e-9)
    step = float(max(math.ceil(step), 1)) if whole else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) + 0.0 for k in range(first, last + 1)]


def labels_of(ticks: Sequence[float], by: float = 1.0) -> list[str]:
    """Ticks with as many decimals as they need.

    >>> labels_of([0.0, 0.25, 0.5]), labels_of([0.0, 20_000.0], 1000.0)
    (['0.00', '0.25', '0.50'], ['0', '20'])
    """
    values = [tick / by for tick in ticks]
    decimals = next((d for d in range(8) if all(abs(round(v, d) - v) < 1e-9 for v in values)), 8)
    return [number(value, decimals) for value in values]


def plots(
    numbers: Iterable[Sequence[Any]], panels: Sequence[Panel], looks: Looks, title: str
) -> list[Markup]:
    """Drawings of a table, rows of panel, line, x, mean and ends: an SVG element for each panel."""
    lines: dict[str, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for panel, line, *point in numbers:
        lines[panel][line].append(Point(*point))
    several = len(panels) > 1
    return [_plot(lines[p.name], p, looks, p.name if several else "", title) for p in panels]


def _plot(lines: Lines, panel: Panel, looks: Looks, heading: str, title: str) -> Markup:
    bars = panel.kind == "bars"
    values = _values(lines, panel)
    low, high, log = _limits(values, panel)
    top = 18.0 if heading else 6.0
    places = (
        list(dict.fromkeys(str(p.x) for points in lines.values() for p in points)) if bars else []
    )
    names = [_rows(place, max(int(290 / len(places) / LETTER), 6)) for place in places]
    below = 20.0 + 11.0 * max(1, *map(len, names), 0) - 11.0 * (not panel.x)
    vertical, unit = _scale(low, high, HIGH - below, top, log)
    left = 24.0 + LETTER * max(len(label) for _, label in vertical.ticks)
    if bars:
        ticks = [(float(i), "") for i in range(len(places))]
        across = Axis(-0.5, max(len(places) - 0.5, 0.5), left, WIDE - 6.0, False, ticks)
    else:
        across = _across(lines, panel, left)
    parts = _frame(across, vertical, panel, unit, heading)
    parts += [_text(across.at(i), vertical.begin + 12, rows) for i, rows in enumerate(names)]
    framed = len(parts)
    drawn = [(tag, name, look) for tag, (name, look) in enumerate(looks.items()) if lines.get(name)]
    for i, (tag, name, look) in sorted(enumerate(drawn), key=lambda item: item[1][2].order):
        if bars:
            shift = (i + 0.5) / len(drawn) * 0.8 - 0.4
            points = [p._replace(x=places.index(str(p.x)) + shift) for p in lines[name]]
            wide = 0.8 / len(drawn) * 0.92 * (across.stop - across.begin) / max(len(places), 1)
            parts += _bars(points, across, vertical, tag, look, wide)
        else:
            parts += _line(sorted(lines[name]), across, vertical, panel.kind, tag, look)
    if panel.settled is not None:  # what an inner element has beyond its edges is not drawn
        box = f"{left:.1f} {top:g} {across.stop - left:.1f} {vertical.begin - top:.1f}"
        sizes = dict(zip(("x", "y", "width", "height"), box.split()))
        edges = " ".join(f'{key}="{size}"' for key, size in sizes.items())
        parts[framed:] = [
            f'<svg {edges} viewBox="{box}" aria-hidden="true">',
            *parts[framed:],
            "</svg>",
        ]
    axes = ""
    if not bars and not panel.choices:
        ends = (across.low, across.high, vertical.low, vertical.high)
        place = (across.begin, across.stop, vertical.begin, vertical.stop)
        shown = [f"{end:.8g}" for end in ends] + [f"{at:.2f}" for at in place]
        axes = f' data-axes="{" ".join([*shown, f"{across.log:d}", f"{vertical.log:d}"])}"'
    style = f"max-width:{LARGEST}px;min-width:{SMALLEST}px"
    head = f'<svg viewBox="0 0 {WIDE:g} {HIGH:g}"{axes} style="{style}" role="img"'
    head += f' aria-label="{escape(title)}" font-size="9.5" fill="var(--ink)">'
    return Markup(head + "".join(parts) + "</svg>")


def _rows(text: str, wide: int) -> list[str]:
    """A name below bars in rows, broken between words."""
    return wrap(text.replace("\n", " ").strip(), wide, break_long_words=False) or [""]


def _values(lines: Lines, panel: Panel) -> list[float]:
    """What the vertical axis must show: means, and ends of intervals where they are finite."""
    settled = -math.inf if panel.settled is None else panel.settled
    points = [p for of_line in lines.values() for p in of_line]
    points = [p for p in points if isinstance(p.x, str) or p.x >= settled] or points
    means = [p.mean for p in points if p.mean is not None and math.isfinite(p.mean)]
    ends = [
        end for p in points for end in (p.low, p.high) if end is not None and math.isfinite(end)
    ]
    if panel.settled is None or not means:
        return means + ends
    # Bands of few seeds are wide: they may take half as much room again on either side.
    room = (max(means) - min(means) or abs(max(means)) or 1.0) / 2
    return means + [min(max(end, min(means) - room), max(means) + room) for end in ends]


def _limits(values: Sequence[float], panel: Panel) -> tuple[float, float, bool]:
    values = [*values, *([] if panel.level is None else [panel.level])]
    positive = [value for value in values if value > 0]
    if panel.log_y and positive:
        low, high = min(positive), max(positive)
        return 10.0 ** math.floor(math.log10(low)), max(high * 1.2, low * 10), True
    if panel.kind in ("bars", "steps"):
        values = [*values, 0.0]
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high - low < 1e-12 * max(abs(high), 1e-300):
        low, high = (low, low + 1.0) if low >= 0 else (low - 1.0, low)
    return low, high, False


def _scale(low: float, high: float, bottom: float, top: float, log: bool) -> tuple[Axis, str]:
    """The vertical axis, and the unit that its labels are in."""
    if log:
        ticks = _log_ticks(low, high)
        return Axis(low, high, bottom, top, True, [(t, f"{t:,g}") for t in ticks]), "log scale"
    ticks = round_ticks(low, high)
    by, unit = scale_for((ticks[0], ticks[-1]))
    labels = labels_of(ticks, by)
    return Axis(ticks[0], ticks[-1], bottom, top, False, [*zip(ticks, labels)]), unit


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten; powers alone where there are many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    units = (1, 2, 5) if high / low < 1000 else (1,)
    ticks = [unit * 10.0**power for power in powers for unit in units]
    return [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]


def _across(lines: Lines, panel: Panel, left: float) -> Axis:
    right = WIDE - 12.0
    if panel.choices:
        ticks = [(float(i), choice) for i, choice in enumerate(panel.choices)]
        return Axis(-0.6, len(panel.choices) - 0.4, left, right, False, ticks)
    xs = [p.x for points in lines.values() for p in points] or [0.0, 1.0]
    low, high = map(float, (min(xs), max(xs)) if panel.ends is None else panel.ends)
    if panel.log_x and low > 0:
        if high <= low:
            low, high = low / 2, low * 2
        at = _log_ticks(low, high)
        if panel.kind == "points" and len(set(xs)) < 8:
            at = sorted({float(x) for x in xs})
        room = (high / low) ** 0.04
        labels = [(tick, f"{tick:,g}") for tick in at]
        return Axis(low / room, high * room, left, right, True, labels)
    if high <= low:
        low, high = low - 0.5, high + 0.5
    if panel.kind in ("points", "dots"):
        low, high = low - 0.04 * (high - low), high + 0.04 * (high - low)
    elif panel.settled is not None and low > 0:
        low = 0.0
    whole = all(isinstance(x, int) for x in xs)
    at = [t for t in round_ticks(low, high, 6, whole) if low - 1e-9 <= t <= high + 1e-9]
    return Axis(low, high, left, right, False, [*zip(at, labels_of(at))])


def _text(x: float, y: float, rows: Sequence[str], anchor: str = "middle") -> str:
    spans = [
        f'<tspan x="{x:.1f}" dy="{11 * (i > 0)}">{escape(r)}</tspan>' for i, r in enumerate(rows)
    ]
    return f'<text y="{y:.1f}" text-anchor="{anchor}">{"".join(spans)}</text>'


def _frame(across: Axis, vertical: Axis, panel: Panel, unit: str, heading: str) -> list[str]:
    """Rules, ticks, labels of both axes, and the name of the panel."""
    left, right, bottom = across.begin, across.stop, vertical.begin
    rules = "".join(f"M{left:.1f} {vertical.at(t):.1f}H{right:.1f}" for t, _ in vertical.ticks)
    parts = [f'<path d="{rules}" stroke="var(--rule)" stroke-width=".8"/>']
    marks = "".join(f"M{across.at(t):.1f} {bottom:.1f}v3" for t, label in across.ticks if label)
    parts.append(
        f'<path d="M{left:.1f} {bottom:.1f}H{right:.1f}{marks}" stroke="var(--muted)" '
        'stroke-width=".8"/>'
    )
    if panel.level is not None:
        at = vertical.at(panel.level)
        parts.append(f'<path d="M{left:.1f} {at:.1f}H{right:.1f}" stroke="var(--muted)"/>')
    parts += [_text(left - 5, vertical.at(t) + 3.3, [label], "end") for t, label in vertical.ticks]
    parts += [_text(across.at(t), bottom + 12, [label]) for t, label in across.ticks if label]
    if panel.x:
        parts.append(_text((left + right) / 2, HIGH - 4, [panel.x]))
    if label := ", ".join(filter(None, (panel.y, unit))):
        middle = (bottom + vertical.stop) / 2
        turned = f'<g transform="translate(9 {middle:.1f}) rotate(-90)">{_text(0, 0, [label])}</g>'
        parts.append(turned)
    return parts + [_text(0, 10, [heading], "start")] * bool(heading)


def _ends(points: Sequence[Point], across: Axis, vertical: Axis, tag: int, colour: str) -> str:
    drawn = "".join(
        f"M{across.at(p.x):.1f} {vertical.inside(p.low):.1f}V{vertical.inside(p.high):.1f}"
        for p in points
        if p.low is not None and p.high is not None and math.isfinite(p.low + p.high)
    )
    if not drawn:
        return ""
    return f'<g data-ends="{tag}"><path d="{drawn}" stroke="{colour}" stroke-width="1"/></g>'


def _bars(
    points: Sequence[Point], across: Axis, vertical: Axis, tag: int, look: Style, wide: float
) -> list[str]:
    """Bars side by side; marks where the axis is logarithmic, on which a bar has no foot."""
    colour, foot = f"var(--{look.variable})", vertical.at(max(vertical.low, 0.0))
    shapes = []
    for p in points:
        x, y = across.at(p.x), vertical.at(p.mean)
        if vertical.log:
            shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>')
        else:
            size = f'width="{wide:.1f}" height="{abs(foot - y):.1f}"'
            shapes.append(f'<rect x="{x - wide / 2:.1f}" y="{min(y, foot):.1f}" {size}/>')
    faint = ' fill-opacity=".55"' if look.dashes else ""
    drawn = f'<g data-line="{tag}" fill="{colour}"{faint}>{"".join(shapes)}</g>'
    return [drawn, _ends(points, across, vertical, tag, colour if vertical.log else "var(--ink)")]


def _line(
    points: Sequence[Point], across: Axis, vertical: Axis, kind: str, tag: int, look: Style
) -> list[str]:
    colour, parts = f"var(--{look.variable})", []
    sure = [p for p in points if p.mean is not None and math.isfinite(p.mean)]
    places = [(across.at(p.x), vertical.at(p.mean)) for p in sure]
    if kind == "steps":  # each value holds until the next x
        stairs = [((b[0], a[1]), b) for a, b in pairwise(places)]
        places = [*places[:1], *(corner for pair in stairs for corner in pair)]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    marks = ""
    if kind in ("points", "dots"):
        radius = max(look.width / 2, 1.9)
        marks = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>' for x, y in places)
        parts.append(_ends(sure, across, vertical, tag, colour))
    elif sure and all(p.low is not None and math.isfinite(p.low) for p in sure):
        highs = [(across.at(p.x), vertical.at(float(p.high or p.mean))) for p in sure]
        lows = [(across.at(p.x), vertical.at(float(p.low or 0.0))) for p in reversed(sure)]
        around = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in [*highs, *lows])
        parts.append(f'<g data-band="{tag}"><path d="{around}Z" fill="{colour}"/></g>')
    dashes = " ".join(f"{on * look.width:.1f}" for on in look.dashes)
    stroke = f'stroke="{colour}" stroke-width="{1.3 if kind == "points" else look.width:g}"'
    stroke += f' stroke-dasharray="{dashes}"' if dashes else ""
    drawn = "" if kind == "dots" else f'<path d="{path}" fill="none" {stroke}/>'
    parts.append(f'<g data-line="{tag}" fill="{colour}">{drawn}{marks}</g>')
    return parts
