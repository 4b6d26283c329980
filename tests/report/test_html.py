import hashlib
import re
from pathlib import Path

import pytest

from gangwise import StoreError
from gangwise.experiments.compare import Comparison
from gangwise.report.pages import comparison_page, write_comparison
from gangwise.report.rendering import embedded
from tests.report.made import MadeScenario, made
from tests.report.made_sweep import HOSTILE
from tests.report.pages import faults, loaded, read


@pytest.fixture(scope="module")
def report(real: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    return write_comparison(real, folder, "gangwise compare <it> 'x'")[-1]


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
    for word in ("job_types", "rho", "numba", "numpy", "best_fixed", "theorem-1"):
        assert word in page.text
    assert ["steps", "10"] in [row for table in page.tables for row in table]
    # Four figures; policies in results, improvements, two regrets, their own section, timings.
    assert page.tags.count("svg") == 4 + 6 * len(real.policies)


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
    path = write_comparison(comparison, tmp_path, HOSTILE)[-1]
    page = read(path)
    assert page.tags.count("script") == 1
    assert "alert('x')</script>" in page.text
    assert "<script>alert" not in path.read_text(encoding="utf-8")


def test_without_figures_command_or_comparators(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    path.write_text(comparison_page(made({"a": [[-1.0]]})), encoding="utf-8")
    page = read(path)
    assert "a earned −1.000 per slot (1 seed)." in page.text
    assert "made from Python" in page.text


def test_write_puts_everything_into_one_folder(real: Comparison, tmp_path: Path) -> None:
    written = write_comparison(real, tmp_path / "out", "gangwise compare x")
    assert written[-1].name == "report.html"
    assert len(written) == 12  # numbers, the command, figures, the page
    assert all(path.stat().st_size > 0 for path in written)


def test_the_page_quotes_the_digest_of_the_numbers_beside_it(report: Path) -> None:
    numbers = (report.parent / "rewards.parquet").read_bytes()
    assert hashlib.sha256(numbers).hexdigest() in read(report).text


def test_a_drawing_that_could_run_a_script_is_refused() -> None:
    for tag in ("<script>x</script>", '<g onload="x"/>', '<a href="javascript:x">a</a>'):
        with pytest.raises(StoreError, match="could run a script"):
            embedded(f'<svg viewBox="0 0 1 1">{tag}</svg>', "p", "title")
    kept = embedded('<svg viewBox="0 0 1 1"><text>onload=x &lt;script></text></svg>', "p", "<t>")
    assert "onload=x &lt;script>" in kept
    assert 'aria-label="&lt;t&gt;"' in kept
