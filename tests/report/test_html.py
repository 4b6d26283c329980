import re
from pathlib import Path

import pytest

from gangwise.experiments.compare import Comparison
from gangwise.report.figures import draw
from gangwise.report.html import write_html
from tests.report.made import MadeScenario, made
from tests.report.made_sweep import HOSTILE
from tests.report.pages import faults, loaded, read


@pytest.fixture(scope="module")
def report(real: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    return write_html(real, folder / "report.html", draw(real, folder), "gangwise compare <it> 'x'")


def test_opens_offline_and_is_well_formed(report: Path) -> None:
    page = read(report)
    assert loaded(page, report.read_text(encoding="utf-8")) == []
    assert faults(page) == []
    assert any(ref.startswith("url(#") for ref in page.references)


def test_says_what_a_reader_needs(report: Path, real: Comparison) -> None:
    page = read(report)
    best = real.table()[0]
    assert f"{best.policy} earned most: " in page.text
    assert "gangwise compare <it> 'x'" in page.text
    for word in ("job_types", "rho", "numba", "numpy", "best_fixed", "theorem-1", "steps = 10"):
        assert word in page.text
    assert page.tags.count("svg") == 4 + 2 * len(real.policies)


def test_figures_follow_the_theme(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    drawings = "".join(re.findall(r"<svg viewBox.*?</svg>", text, flags=re.DOTALL))
    assert "var(--ink)" in drawings
    assert "var(--c0)" in drawings
    assert not re.search(r"(fill|stroke): #[0-9a-f]{6}", drawings)


def test_hostile_names_are_text(tmp_path: Path) -> None:
    scenario = MadeScenario(HOSTILE, 2, {HOSTILE: [HOSTILE, {"deep": HOSTILE}]})
    comparison = made(
        {HOSTILE: [[1.0, 2.0], [1.0, 3.0]], "b": [[1.0, 1.0], [1.0, 1.0]]},
        {HOSTILE: ([0, 1], [[3.0, 3.0], [3.0, 3.0]])},
        scenario,
        {HOSTILE: HOSTILE},
        {HOSTILE: 7.0},
    )
    path = write_html(comparison, tmp_path / "r.html", draw(comparison, tmp_path), HOSTILE)
    page = read(path)
    assert page.tags.count("script") == 1
    assert "alert('x')</script>" in page.text
    assert "<script>alert" not in path.read_text(encoding="utf-8")


def test_without_figures_command_or_comparators(tmp_path: Path) -> None:
    page = read(write_html(made({"a": [[-1.0]]}), tmp_path / "r.html"))
    assert "a earned −1.000 per slot (1 seed)." in page.text
    assert "made from Python" in page.text


def test_write_puts_everything_into_one_folder(real: Comparison, tmp_path: Path) -> None:
    written = real.write(tmp_path / "out", "gangwise compare x")
    assert written[-1].name == "report.html"
    assert len(written) == 11
    assert all(path.stat().st_size > 0 for path in written)
