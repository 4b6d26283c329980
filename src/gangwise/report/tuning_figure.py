"""How a tuned metric moves with each knob, as SVG: a panel per knob, a dot per trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gangwise.experiments.tune import ParameterRange, Trial, Tuning
from gangwise.report.palette import COLOURS, MUTED
from gangwise.report.picture import HEIGHT, MOST_IN_A_ROW, WIDTH, Panel, dress, name_lines, svg_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


BEST, AS_IS = COLOURS[1][0], COLOURS[0][0]


def tuning_figure(tuning: Tuning, title: str) -> str:
    """Every trial's metric against each of its arguments; the best and the default stand out."""
    from matplotlib.figure import Figure

    across = min(len(tuning.knobs), MOST_IN_A_ROW)
    down = -(-len(tuning.knobs) // across)
    figure = Figure(
        figsize=(max(across * WIDTH, 1.6 * WIDTH), down * HEIGHT + 0.9),
        facecolor="white",
        layout="constrained",
    )
    grid = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
    for i, (axes, knob) in enumerate(zip(grid, tuning.knobs)):
        unit = tuning.metric if i % across == 0 else ""
        dress(axes, Panel(knob.name, knob.name, unit, log_x=knob.log), title=False)
        _dots(axes, knob, tuning.trials, "trial", color=MUTED, s=18, alpha=0.7, linewidths=0)
        _dots(axes, knob, [tuning.default], "default", color=AS_IS, s=46, marker="D")
        _dots(axes, knob, [tuning.best], "best", color=BEST, s=110, marker="*")
        _ticks(axes, knob)
    for axes in grid[len(tuning.knobs) :]:
        axes.set_axis_off()
    name_lines(figure, title, grid[:1])
    return svg_text(figure)


def _dots(
    axes: Axes, knob: ParameterRange, trials: Sequence[Trial], label: str, **look: Any
) -> None:
    at = [trial.arguments[knob.name] for trial in trials]
    if knob.ends is None:
        place = {repr(choice): i for i, choice in enumerate(knob.choices)}
        at = [place.get(repr(value)) for value in at]
    else:
        low, high = knob.ends  # a default outside the range would leave no room for the trials
        at = [x if isinstance(x, int | float) and low <= x <= high else None for x in at]
    shown = [(x, trial.value) for x, trial in zip(at, trials) if x is not None]
    axes.scatter([x for x, _ in shown], [y for _, y in shown], label=label, **look)


def _ticks(axes: Axes, knob: ParameterRange) -> None:
    """Choices by name; few round numbers on a logarithmic axis, as they are written."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

    if knob.ends is None:
        axes.set_xticks(range(len(knob.choices)), [str(choice) for choice in knob.choices])
        axes.set_xlim(-0.6, len(knob.choices) - 0.4)
    elif knob.log:
        low, high = knob.ends
        axes.set_xlim(low / (high / low) ** 0.04, high * (high / low) ** 0.04)
        steps = (1.0, 2.0, 5.0) if high / low < 1000 else (1.0,)
        axes.xaxis.set_major_locator(LogLocator(subs=steps))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.minorticks_off()
    else:
        low, high = knob.ends
        room = 0.04 * (high - low)
        axes.set_xlim(low - room, high + room)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=isinstance(low, int)))
