import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

from gangwise.report.page import html
from gangwise.report.pages import comparison_page, write_comparison
from gangwise.report.plotting import Panel, Style, plots
from gangwise.study.compare import Comparison
from tests.report.made import MadeScenario, made
from tests.report.made_sweep import HOSTILE
from tests.report.pages import faults, loaded, read


@pytest.fixture(scope="module")
def report(real: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = write_comparison(real, tmp_path_factory.mktemp("report"), "gangwise compare <it> 'x'")
    assert len(written) == 12  # numbers, the command, figures, the page
    assert all(path.stat().st_size > 0 for path in written)
    return written[-1]


def test_opens_offline_and_is_well_formed(report: Path) -> None:
    page = read(report)
    assert loaded(page, report.read_text(encoding="utf-8")) == []
    assert faults(page) == []


def test_says_what_a_reader_needs(report: Path, real: Comparison) -> None:
    page = read(report)
    best = real.table()[0]
    assert f"{best.policy} earned most: " in page.text
    assert "gangwise compare <it> 'x'" in page.text
    for word in ("job_types", "rho", "numba", "numpy", "best_fixed", "theorem-1"):
        assert word in page.text
    assert ["steps", "10"] in [row for table in page.tables for row in table]
    figures = (
        *("Average reward per slot so far", "Cumulative reward", "Cumulative regret against"),
        "Regret against the best fixed decision and its bound",
    )
    for title in figures:
        assert title in page.text
    assert page.tags.count("h3") == len(figures) + 1  # and the ratio, named after the best
    # Every line of the average can be hidden: of policies and comparators.
    average = report.read_text(encoding="utf-8").split("<h3>")[1].split("</figure>")[0]
    assert average.count('type="checkbox"') == average.count("data-line=") == len(real.policies) + 2


def test_a_title_terms_and_a_sentence_for_every_policy(report: Path, real: Comparison) -> None:
    page = read(report)
    assert "ogasched-react, drf and fairness sharing servers among jobs" in page.text
    assert "What slot, reward, contention" in page.text
    assert "Shares proportional to requests." in page.text
    assert "Nothing waits in this family" in page.text
    assert "algorithms/ogasched" in page.text


def test_values_can_be_read_off_a_drawing(report: Path, real: Comparison) -> None:
    """As the script does it: from the end of a line's path and the limits of the axes."""
    text = report.read_text(encoding="utf-8")
    svg = re.findall(r"<svg [^>]*data-axes.*?</svg>", text, flags=re.DOTALL)[1]  # cumulative reward
    (axes,) = re.findall(r'data-axes="([^"]*)"', svg)
    x0, x1, y0, y1, left, right, bottom, top, *_ = map(float, axes.split())
    best = max(real.table(), key=lambda row: row.reward.mean)
    path = re.search(r'data-line="0".*? d="([^"]*)"', svg, flags=re.DOTALL)
    assert path is not None
    x, y = [float(each) for each in re.findall(r"[-\d.]+", path[1])][-2:]
    assert x0 + (x - left) / (right - left) * (x1 - x0) == pytest.approx(real.slots, rel=2e-3)
    value = y0 + (bottom - y) / (bottom - top) * (y1 - y0)
    assert value == pytest.approx(best.reward.mean * real.slots, rel=5e-3)


def test_many_lines_show_one_band_at_a_time() -> None:
    few = html(comparison_page(made({f"p{i}": [[1.0, 2.0], [2.0, float(i)]] for i in range(3)})))
    many = html(comparison_page(made({f"p{i}": [[1.0, 2.0], [2.0, float(i)]] for i in range(9)})))
    assert few.count('class="plot many') == 0
    assert many.count('class="plot many') >= 2
    assert "point at a name" in many
    assert "point at a name" not in few


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
    path.write_text(html(comparison_page(made({"a": [[-1.0]]}))), encoding="utf-8")
    page = read(path)
    assert "a earned −1.000 per slot (1 seed)." in page.text
    assert "made from Python" in page.text


def test_the_page_quotes_the_digest_of_the_numbers_beside_it(report: Path) -> None:
    numbers = (report.parent / "rewards.parquet").read_bytes()
    assert hashlib.sha256(numbers).hexdigest() in read(report).text


def test_the_text_of_a_drawing_is_kept_as_it_is() -> None:
    rows = [("p", "a", float(x), 2.0 * x, None, None) for x in range(3)]
    panel = Panel("p", "<b>slot</b>", "onload=x &lt;script>")
    (drawn,) = plots(rows, [panel], {"a": Style(0)}, "<t>")
    assert "onload=x &amp;lt;script&gt;" in drawn
    assert "<b>" not in drawn
    assert 'aria-label="&lt;t&gt;"' in drawn


def test_a_drawing_shows_each_point_where_its_axes_say() -> None:
    """Places read back by hand from paths, marks and bars, with the ends of intervals."""
    rng = np.random.default_rng(11)
    x, mean = np.sort(rng.uniform(0, 9, 7)), rng.uniform(-40, 60, 7)
    rows = [("p", "a", float(a), float(m), m - 3.0, m + 3.0) for a, m in zip(x, mean)]
    for kind in ("curve", "points", "dots"):
        (svg,) = plots(rows, [Panel("p", "x", "y", kind)], {"a": Style(0, 4.0)}, "t")
        axes = re.search(r'data-axes="([^"]*)"', svg)
        assert axes is not None
        x0, x1, y0, y1, left, right, bottom, top, *logs = map(float, axes[1].split())
        assert logs == [0, 0]
        line = svg.partition('data-line="0"')[2]
        if kind == "curve":
            path = re.search(r' d="([^"]*)"', line)
            assert path is not None
            places = np.array(re.findall(r"-?[\d.]+", path[1]), dtype=float).reshape(-1, 2)
        else:
            places = np.array(re.findall(r'cx="([-\d.]+)" cy="([-\d.]+)"', line), dtype=float)
        np.testing.assert_allclose(
            x0 + (places[:, 0] - left) / (right - left) * (x1 - x0), x, atol=0.03
        )
        shown = y0 + (bottom - places[:, 1]) / (bottom - top) * (y1 - y0)
        np.testing.assert_allclose(shown, mean, atol=0.06 * (y1 - y0) / (bottom - top))


def test_bars_that_differ_a_hundredfold_are_marks_on_a_log_axis() -> None:
    rows = [("p", line, name, value, None, None) for line, name, value in BARS]
    for log, tag in ((False, "<rect"), (True, "<circle")):
        panel = Panel("p", "", "wait, h", "bars", log_y=log)
        (svg,) = plots(rows, [panel], {"a": Style(0), "b": Style(1)}, "t")
        assert svg.count(tag) == len(BARS)
    heights = re.findall(
        r'<rect x="[-\d.]+" y="[-\d.]+" width="[\d.]+" height="([\d.]+)"',
        plots(rows, [Panel("p", "", "", "bars")], {"a": Style(0), "b": Style(1)}, "t")[0],
    )
    by_line = [float(h) for h in heights]
    assert by_line[1] / by_line[3] == pytest.approx(0.5, rel=0.02)  # 200 beside 400


BARS = [("a", "x", 1.0), ("a", "y", 200.0), ("b", "x", 2.0), ("b", "y", 400.0)]
