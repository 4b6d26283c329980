"""Draw the picture of README and home page: ``python docs/demo.py``, some seconds.

The nodes over a day under two schedulers, a colour for each gang, and what six schedulers change,
with intervals; written by hand as SVG, so that it is small and follows a reader's light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gangwise.cli.logs import DEMO_SCHEDULERS, DEMO_SEEDS
from gangwise.jobs.metrics import Outcome
from gangwise.report.charts import lanes
from gangwise.report.plotting import COLOURS, GRID, INK, MUTED
from gangwise.study.job_classes import DEMO
from gangwise.study.replay import Replayed, replay

PICTURE = Path(__file__).with_name("demo.svg")
WORLD, FROM, TO = 4, 74.0, 98.0  # which of the drawn worlds is shown, and its hours
WIDTH, LEFT, GAP, ROW, QUEUE = 860, 80, 14, 9, 34
SHOWN = {
    "fcfs+easy+label": "EASY backfilling that trusts the labels",
    "fcfs+easy+learned": "the same, with run times and speeds learned",
}
IN_WORDS = {
    "fcfs+easy+label:ends=learned": "+ run times learned",
    "fcfs+easy+learned": "+ run times and speeds learned",
    "sjf+easy+label": "shortest first, by requested limit",
    "sjf+easy+learned": "shortest first, both learned",
    "fcfs+easy+oracle:ends=learned": "knows all speeds (impossible)",
}
LEGEND = (
    "24 nodes of 8 GPUs for a day. A colour is a gang on several nodes, grey a job on one node, "
    "blank an idle GPU.",
    "Red marks nodes at half the speed of their label: one of them under a gang slows all of it.",
)


class Box(NamedTuple):
    """Where a chart stands; x of an hour, y of a row."""

    left: float
    top: float
    width: float

    def x(self, hour: float) -> float:
        return self.left + self.width * (hour - FROM) / (TO - FROM)


def text(x: float, y: float, said: str, of: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}"' + f' class="{of}"' * bool(of) + f">{said}</text>"


def rectangles(outcome: Outcome, box: Box) -> Iterable[str]:
    """Paths, one for each colour: a gang has one of ten colours, a job on one node is grey."""
    of, k, begin = outcome.pieces, outcome.nodes.devices.index("gpu"), _begin(outcome)
    assert of is not None
    wide = np.bincount(of.job, minlength=len(outcome.jobs))
    order = np.cumsum(wide > 1)  # gangs are coloured in the order of their submissions
    amount = np.rint(1000 * of.tasks * outcome.per_task[of.job, k]).astype(np.int64)
    drawn: dict[str, list[str]] = {}
    for n in range(len(outcome.nodes)):
        mine = np.flatnonzero(of.node == n)
        capacity = int(outcome.nodes.capacity[n, k])
        for lane in lanes(of.begin[mine], of.end[mine], amount[mine], capacity):
            p = mine[lane.interval]
            hours = (np.array([of.begin[p], of.end[p]]) - begin) / 3600
            if hours[1] <= FROM or hours[0] >= TO:
                continue
            a, b = (box.x(min(max(hour, FROM), TO)) for hour in hours)
            height = (ROW - 1) * lane.height / capacity
            y = box.top + ROW * n + (ROW - 1) * lane.offset / capacity
            job = of.job[p]
            colour = f"c{order[job] % 10}" if wide[job] > 1 else "one"
            path = f"M{a:.1f} {y:.1f}h{b - a:.1f}v{height:.1f}h{a - b:.1f}z"
            drawn.setdefault(colour, []).append(path)
    for colour in sorted(drawn):
        yield f'<path class="{colour}" d="{"".join(drawn[colour])}"/>'


def _begin(outcome: Outcome) -> float:
    return float(outcome.jobs.submit[0])


def queue(outcome: Outcome, box: Box, top: float, most: float) -> Iterable[str]:
    """How many jobs wait, an area below the nodes."""
    edges = _begin(outcome) + 3600 * np.linspace(FROM, TO, 145)
    waiting = outcome.waiting_jobs(edges)
    step = box.width / waiting.size
    heights = top + QUEUE * (1 - waiting / most)
    line = "".join(f"L{box.left + i * step:.1f} {y:.1f}h{step:.1f}" for i, y in enumerate(heights))
    foot = top + QUEUE
    yield f'<path class="queue" d="M{box.left:.1f} {foot:.1f}{line}V{foot:.1f}z"/>'


def chart(found: Replayed, name: str, box: Box, slow: Iterable[int], named: bool) -> Iterable[str]:
    outcome, nodes = found.outcomes[name][WORLD], len(found.outcomes[name][WORLD].nodes)
    foot = box.top + ROW * nodes + 4 + QUEUE
    waits = found.compared().estimate(name, "waiting.mean").mean / 3600
    yield text(box.left, box.top - 22, SHOWN[name], "strong")
    yield text(box.left, box.top - 8, f"mean wait {waits:.1f} h over {DEMO_SEEDS} worlds", "muted")
    yield from rectangles(outcome, box)
    edges = _begin(outcome) + 3600 * np.linspace(FROM, TO, 145)
    most = max(
        each[WORLD].waiting_jobs(edges).max() for n, each in found.outcomes.items() if n in SHOWN
    )
    yield from queue(outcome, box, foot - QUEUE, most)
    for n in slow:
        yield f'<path class="slow" d="M{box.left - 5:.0f} {box.top + ROW * n:.0f}v{ROW - 1}"/>'
    if named:
        for at, said in ((4, "8 × h100"), (16, "16 × a100")):
            yield text(box.left - 11, box.top + ROW * at + 4, said, "node")
        yield text(box.left - 11, foot - QUEUE / 2 + 4, "jobs waiting", "node")
    yield text(box.left + 3, foot - QUEUE + 9, f"{most:.0f}", "muted") if named else ""
    for hour in range(int(FROM) // 6 * 6 + 6, int(TO), 6):
        yield f'<path class="rule" d="M{box.x(hour):.1f} {box.top:.0f}V{foot + 3:.0f}"/>'
        said = f"day {hour // 24 + 1}, {hour % 24}:00" if hour % 12 == 0 else f"{hour % 24}:00"
        yield text(box.x(hour), foot + 14, said, "tick")


def dots(found: Replayed, top: float) -> Iterable[str]:
    """Mean completion against the base, per cent, with 95 % intervals over worlds."""
    compared = found.compared()
    left, right, low = 300.0, WIDTH - 130.0, -60.0

    def x(change: float) -> float:
        return right + (right - left) * change / -low

    yield text(LEFT, top - 14, "completes jobs sooner than EASY that trusts the labels", "strong")
    foot = top + 20 * len(IN_WORDS)
    for tick in range(int(low), 1, 10):
        of = "zero" if tick == 0 else "rule"
        yield f'<path class="{of}" d="M{x(tick):.1f} {top - 4:.0f}V{foot:.0f}"/>'
        yield text(x(tick), foot + 13, f"{tick} %".replace("-", "−"), "tick")
    for i, (name, said) in enumerate(IN_WORDS.items()):
        change, y = compared.change(name), top + 8 + 20 * i
        assert change.low is not None
        assert change.high is not None
        assert change.half is not None
        yield text(left - 10, y + 4, said, "end")
        ends = (max(x(change.low), left), min(x(change.high), WIDTH))
        yield f'<path class="interval" d="M{ends[0]:.1f} {y:.0f}H{ends[1]:.1f}"/>'
        yield f'<circle class="dot" cx="{x(change.mean):.1f}" cy="{y:.0f}" r="4.5"/>'
        yield text(right + 12, y + 4, f"−{-change.mean:.0f} ± {change.half:.0f} %")


def style() -> str:
    def of(shade: int) -> str:
        ink, muted, rule = ((INK, MUTED, GRID), ("#e8e6e1", "#a3a19c", "#3a3a3d"))[shade]
        plain = {"ink": ink, "muted": muted, "rule": rule, "one": ("#c9c6bf", "#5a5956")[shade]}
        colours = {f"c{i}": pair[shade] for i, pair in enumerate(COLOURS)}
        return "".join(f"--{name}:{value};" for name, value in (plain | colours).items())

    fills = "".join(
        f".{name}{{fill:var(--{name})}}" for name in ("one", *(f"c{i}" for i in range(10)))
    )
    return (
        f":root{{{of(0)}}}@media(prefers-color-scheme:dark){{:root{{{of(1)}}}}}{fills}"
        "text{font:12px system-ui,sans-serif;fill:var(--ink)}.strong{font-weight:600}"
        ".muted,.tick,.node{fill:var(--muted)}.tick,.node{font-size:10px}.tick{text-anchor:middle}"
        ".node,.end{text-anchor:end}path{fill:none}.rule{stroke:var(--rule)}.zero{stroke:var(--muted)}"
        ".queue{fill:var(--one)}.slow{stroke:var(--c6);stroke-width:4}.interval{stroke:var(--c0);stroke-width:2}"
        ".dot{fill:var(--c0)}"
    )


def picture() -> str:
    """The SVG; the same on every machine."""
    found = replay(DEMO, DEMO_SCHEDULERS, range(DEMO_SEEDS))
    played = found.scenario.draw(WORLD)
    slow = [n for _, n, factor in played.conditions.factors if factor < 1]
    width = (WIDTH - LEFT - GAP) / 2 - 8
    lines: list[str] = []
    for i, name in enumerate(SHOWN):
        box = Box(LEFT + i * (width + GAP), 44, width)
        lines += chart(found, name, box, slow, i == 0)
    below = 44 + ROW * len(played.nodes) + 4 + QUEUE
    for i, said in enumerate(LEGEND):
        lines.append(text(LEFT, below + 34 + 16 * i, said, "muted"))
    lines += dots(found, below + 94)
    height = below + 94 + 20 * len(IN_WORDS) + 22
    told = (
        "Gangs on 24 nodes over a day under two schedulers, and by how much five schedulers "
        "complete jobs sooner than EASY backfilling that trusts labels, with 95 % intervals."
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{told}"><title>{told}</title><style>{style()}</style>'
    )
    return "\n".join([head, *lines, "</svg>\n"])


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
