import re

import numpy as np
import pytest
from matplotlib import rcParams

from gangwise.report.curves import figure_files, styles
from gangwise.report.plotting import Panel, Style, draw, plots, points
from gangwise.study.compare import Comparison
from tests.report.made import made

STEMS = ["average-reward", "cumulative-reward", "ratio", "regret"]


def comparison_figures(comparison: Comparison) -> dict[str, bytes]:
    return figure_files(comparison.results)


def stems(comparison: Comparison) -> set[str]:
    return {name.partition(".")[0] for name in comparison_figures(comparison)}


@pytest.mark.full
def test_four_figures_in_two_formats(real: Comparison) -> None:
    drawn = comparison_figures(real)
    assert list(drawn) == [f"{s}.{e}" for s in STEMS for e in ("png", "svg")]
    assert all(len(content) > 2000 for content in drawn.values())


@pytest.mark.full
def test_same_comparison_same_svg(real: Comparison) -> None:
    settings = dict(rcParams)
    assert comparison_figures(real) == comparison_figures(real)
    assert dict(rcParams) == settings


def test_a_single_seed_and_a_single_policy() -> None:
    comparison = made({"a": [[1.0, 2.0]]}, {"best": ([0, 1], [[2.0, 2.0]])})
    assert stems(comparison) == {"average-reward", "cumulative-reward", "regret"}


@pytest.mark.parametrize("rewards", [[[0.0]], [[-3.0, -1.0]], [[0.0, 0.0], [0.0, 0.0]]])
def test_rewards_that_are_not_positive(rewards: list[list[float]]) -> None:
    comparison = made({"a": rewards, "b": rewards})
    assert stems(comparison) == set(STEMS[:2])


def test_names_with_markup_and_mathematics() -> None:
    comparison = made({"$x_1$ <b>&": [[1.0, 2.0]], "$\\broken{": [[1.0, 1.0]]})
    svg = comparison_figures(comparison)["average-reward.svg"].decode()
    assert "$x_1$ &lt;b&gt;&amp;" in svg
    assert "<b>" not in svg


def test_long_series_are_thinned() -> None:
    comparison = made({"a": np.random.default_rng(0).random((2, 20_000)).tolist()})
    assert all(len(content) < 300_000 for content in comparison_figures(comparison).values())


def test_every_policy_has_a_style_of_its_own() -> None:
    comparison = made({f"p{i}": [[float(i)]] for i in range(20)})
    looks = styles(comparison.results)
    assert next(iter(looks)) == "p19"
    assert len({(look.index, look.dashes) for look in looks.values()}) == 20


@pytest.mark.parametrize(
    "panel",
    [
        Panel("p", "slot", "reward", "curve", level=0.0, settled=2.0),
        Panel("p", "slot", "reward", "curve", True, True),
        Panel("p", "setting", "reward", "points", log_x=True),
        Panel("p", "setting", "reward", "dots", ends=(0.0, 20.0)),
    ],
)
def test_a_file_has_the_axes_of_the_page(panel: Panel) -> None:
    rows = [("p", "a", float(x), 3.0 * x, 2.0 * x, 5.0 * x) for x in (1, 2, 7, 19)]
    svg = plots(rows, [panel], {"a": Style(0)}, "t")[0]
    shown = re.search(r'data-axes="([^"]*)"', svg)
    assert shown is not None
    (axes,) = draw("t", points(rows), [panel]).axes
    limits = [*axes.get_xlim(), *axes.get_ylim()]
    assert limits == pytest.approx([float(end) for end in shown[1].split()[:4]], rel=1e-6)
    assert (axes.get_xscale() == "log") == panel.log_x
