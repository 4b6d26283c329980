from pathlib import Path

import numpy as np
import pytest
from matplotlib import rcParams

from gangwise.experiments.compare import Comparison
from gangwise.report.figures import draw
from gangwise.report.labels import apart
from gangwise.report.palette import styles
from tests.report.made import made

STEMS = ["average-reward", "cumulative-reward", "ratio", "regret"]


def test_four_figures_in_two_formats(real: Comparison, tmp_path: Path) -> None:
    written = draw(real, tmp_path)
    assert [path.name for path in written] == [f"{s}.{e}" for s in STEMS for e in ("png", "svg")]
    assert all(path.stat().st_size > 2000 for path in written)


def test_same_comparison_same_svg(real: Comparison, tmp_path: Path) -> None:
    settings = dict(rcParams)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = draw(real, tmp_path / "a"), draw(real, tmp_path / "b")
    for one, other in zip(first, second):
        assert one.read_bytes() == other.read_bytes(), one.name
    assert dict(rcParams) == settings


def test_a_single_seed_and_a_single_policy(tmp_path: Path) -> None:
    comparison = made({"a": [[1.0, 2.0]]}, {"best": ([0, 1], [[2.0, 2.0]])})
    stems = {path.stem for path in draw(comparison, tmp_path)}
    assert stems == {"average-reward", "cumulative-reward", "regret"}


@pytest.mark.parametrize("rewards", [[[0.0]], [[-3.0, -1.0]], [[0.0, 0.0], [0.0, 0.0]]])
def test_rewards_that_are_not_positive(rewards: list[list[float]], tmp_path: Path) -> None:
    comparison = made({"a": rewards, "b": rewards})
    assert {path.stem for path in draw(comparison, tmp_path)} == set(STEMS[:2])


def test_names_with_markup_and_mathematics(tmp_path: Path) -> None:
    comparison = made({"$x_1$ <b>&": [[1.0, 2.0]], "$\\broken{": [[1.0, 1.0]]})
    svg = next(p for p in draw(comparison, tmp_path) if p.suffix == ".svg").read_text()
    assert "$x_1$ &lt;b&gt;&amp;" in svg
    assert "<b>" not in svg


def test_long_series_are_thinned(tmp_path: Path) -> None:
    comparison = made({"a": np.random.default_rng(0).random((2, 20_000)).tolist()})
    assert all(path.stat().st_size < 300_000 for path in draw(comparison, tmp_path))


def test_every_policy_has_a_style_of_its_own() -> None:
    comparison = made({f"p{i}": [[float(i)]] for i in range(20)})
    looks = styles(comparison)
    assert next(iter(looks)) == "p19"
    assert len({(look.index, look.dashes) for look in looks.values()}) == 20


def test_labels_keep_their_distance_order_and_bounds() -> None:
    rng = np.random.default_rng(1)
    for n in range(1, 14):
        wanted = rng.choice([0.0, 0.5, 0.52, 1.0], n) + rng.normal(0, 1e-3, n).clip(0)
        places = np.array(apart(wanted.tolist(), 0.08, 0.0, 1.0))
        order = np.argsort(wanted, kind="stable")
        gap = min(0.08, 1 / (n - 1)) if n > 1 else 0.0
        assert (np.diff(places[order]) >= gap - 1e-9).all()
        assert places.min() >= -1e-9
        assert places.max() <= 1 + 1e-9
