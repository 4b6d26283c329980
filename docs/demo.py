"""Draw the picture of the home page: ``python docs/demo.py``, half a minute."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from gangwise.cli.replay import DEFAULT
from gangwise.experiments.replay import replay
from gangwise.experiments.replay_scenario import TWIN
from gangwise.experiments.statistics import mean_and_interval
from gangwise.report.plotting import COLOURS, GRID, INK, svg_text


def main() -> None:
    """Play the demo and draw it."""
    found = replay(TWIN, jobs=-1, **DEFAULT)
    figure = Figure(figsize=(7.2, 2.6), layout="constrained")
    axes = figure.add_subplot()
    for i, outcomes in enumerate(found.outcomes.values()):
        mean = mean_and_interval([o.summary()["completion.mean"] / 60 for o in outcomes])
        axes.errorbar(
            mean.mean, -i, xerr=mean.half, fmt="o", markersize=8, capsize=4, color=COLOURS[0][0]
        )
        axes.annotate(
            f"{mean.mean:.0f} min",
            (mean.mean, -i),
            (0, 8),
            textcoords="offset points",
            ha="center",
            color=INK,
        )
    axes.set_yticks([-i for i in range(len(found.schedulers))], found.schedulers)
    axes.set_xlim(left=0)
    axes.set_ylim(-len(found.schedulers) + 0.4, 0.7)
    axes.set_xlabel("mean completion time, minutes")
    axes.grid(axis="x", color=GRID)
    axes.spines[["top", "right", "left"]].set_visible(False)
    Path(__file__).with_name("demo.svg").write_text(svg_text(figure), encoding="utf-8")


if __name__ == "__main__":
    main()
