"""When will it start: how often p50 and p90 held, by log and by how far ahead they are.

    python -m benchmarks.forecast --instants 400 --out docs/how-to

At random instants in the last 55 % of each log's time, every waiting job's start is foretold from
what is known by then; at those of the quarter before, forecasts are made only to be corrected by.
Truth is the start in the simulation under EASY, and for `KTH-SP2, as recorded` the recorded one.
Up to 20 jobs of an instant count. Intervals are from instants drawn again.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from gangwise.core.arrays import Floats
from gangwise.sites.forecast import StartCalibration
from gangwise.study.explain import Past
from gangwise.study.replay_scenario import ReplayScenario

SWF = "swf/{}.swf.gz"
ASKED = "limits drawn, 1 to 5 times the run time"
CASES: dict[str, tuple[str, dict[str, Any], bool]] = {  # what was done to it, settings, recorded
    "KTH-SP2": ("as logged", {"source": SWF.format("KTH-SP2")}, False),
    "LLNL-Atlas": (
        "load .85, its own limits",
        {"source": SWF.format("LLNL-Atlas-2006-2.1-cln"), "load": 0.85},
        False,
    ),
    "NASA-iPSC": (
        f"load .75, {ASKED}",
        {"source": SWF.format("NASA-iPSC-1993-3.1-cln"), "load": 0.75, "overestimate": 5},
        False,
    ),
    "lublin-256": (
        f"load .85, {ASKED}",
        {"source": SWF.format("lublin_256"), "load": 0.85, "overestimate": 5},
        False,
    ),
    "openb": (
        f"8 nodes, load .75, {ASKED}",
        {"source": "alibaba-gpu-v2023", "nodes": 8, "load": 0.75, "overestimate": 5},
        False,
    ),
    "twin of openb": (
        f"8 nodes, load 1, {ASKED}",
        {"source": "twin:alibaba-gpu-v2023", "nodes": 8, "load": 1.0, "overestimate": 5},
        False,
    ),
    "KTH-SP2, as recorded": ("recorded starts", {"source": SWF.format("KTH-SP2")}, True),
}
AHEAD = "all", "< 10 min", "< 1 h", "< 6 h", "longer"
CLASSES = 600.0, 3600.0, 6 * 3600.0
COUNTED = 20


def forecasts(settings: dict[str, Any], recorded: bool, instants: int, draws: int) -> Floats:
    """Of each forecast: instant, class, truth ≤ corrected p50, p90, raw p50, p90, promise; PIT."""
    if not settings["source"].startswith("twin:"):
        settings = settings | {
            "source": str(Path(os.environ["GANGWISE_TRACES"], settings["source"]))
        }
    scenario = ReplayScenario(**settings)
    played = scenario.draw(0)
    past = Past(played, options=scenario.options, recorded=recorded, draws=draws)
    first, last = played.jobs.submit[[0, -1]]
    rng = np.random.default_rng(0)
    begin = first + (last - first) * 0.45
    at = rng.uniform(first + (last - first) * 0.2, last - (last - first) * 0.02, instants)
    found = []
    known, open_ = StartCalibration(), list[tuple[Floats, float, float]]()
    for now in sorted(at.tolist()):
        for starts, when, truth in [each for each in open_ if each[2] <= now]:
            known.learn(starts, when, truth, now, rng)
        open_ = [each for each in open_ if not each[2] <= now]
        calibration = StartCalibration(list(known.seen))
        for starts, when, truth in open_:
            calibration.learn(starts, when, truth, now, rng)
        known = past.known_at(now, rng)
        for w in rng.permutation(known.waiting.size)[:COUNTED].tolist():
            starts, truth = known.starts[:, w], known.truth[w]
            open_.append((starts, known.now, float(truth)))
            if now < begin:
                continue
            corrected = calibration.quantiles(starts, known.now, (0.5, 0.9))
            raw = np.quantile(starts, (0.5, 0.9), method="higher")
            held = truth <= np.array([*corrected, *raw, known.promised[w]])
            pit = (starts < truth).mean() + rng.random() * (starts == truth).mean()
            ahead = np.searchsorted(CLASSES, np.median(starts) - known.now, side="right")
            found.append([known.now, ahead, *held, pit])
    return np.array(found)


def rows(name: str, found: Floats) -> list[str]:
    """Rows of the table: by how far ahead the median is."""
    rng, lines = np.random.default_rng(0), []
    for c, ahead in enumerate(AHEAD):
        of = found if c == 0 else found[found[:, 1] == c - 1]
        instants = np.unique(of[:, 0]) if len(of) else np.zeros(0)
        if instants.size < 10:
            continue
        split = [of[of[:, 0] == t, 2:4] for t in instants]
        again = [
            np.concatenate([split[i] for i in rng.integers(0, instants.size, instants.size)]).mean(
                0
            )
            for _ in range(400)
        ]
        half = 100 * 1.96 * np.std(again, axis=0)
        p50, p90, raw50, raw90, promise = 100 * of[:, 2:7].mean(axis=0)
        lines.append(
            f"| {name if c == 0 else ''} | {ahead} | {len(of):,} in {instants.size} | "
            f"{p50:.0f} ± {half[0]:.0f} | {p90:.0f} ± {half[1]:.0f} | {raw50:.0f}, {raw90:.0f} | "
            f"{promise:.0f} |"
        )
    return lines


def figure(found: dict[str, Floats], path: Path) -> None:
    """Where in the distributions told the starts lay, uncorrected: a level line is right."""
    from matplotlib.figure import Figure

    across = min(len(found), 4)
    down = -(-len(found) // across)
    drawing = Figure(figsize=(2.5 * across, 2.1 * down), layout="constrained")
    axes = np.atleast_1d(drawing.subplots(down, across)).flat
    for axis, (name, each) in zip(axes, found.items(), strict=False):
        axis.hist(each[:, 7], bins=10, range=(0, 1), density=True, color="#4477aa")
        axis.axhline(1.0, color="#222222", linewidth=0.8)
        axis.set(title=name, xlim=(0, 1), ylim=(0, 4))
    for axis in drawing.axes[len(found) :]:
        axis.set_axis_off()
    drawing.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print the table, and draw the figure."""
    read = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    read.add_argument("--instants", type=int, default=400)
    read.add_argument("--draws", type=int, default=50)
    read.add_argument("--only", default="", help="a regular expression")
    read.add_argument("--out", type=Path)
    given = read.parse_args()
    print("| log | median ahead | starts in instants | ≤ p50, % | ≤ p90, % ", end="")
    print("| uncorrected | ≤ promise, % |\n" + "|---" * 7 + "|")
    found: dict[str, Floats] = {}
    for name, (what, settings, recorded) in CASES.items():
        if re.search(given.only, name):
            found[name] = forecasts(settings, recorded, given.instants, given.draws)
            print("\n".join(rows(f"{name}: {what}", found[name])), flush=True)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        np.savez(given.out / "forecast.npz", **found)
        figure(found, given.out / "forecast.svg")


if __name__ == "__main__":
    main()
