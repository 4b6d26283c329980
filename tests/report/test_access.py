"""A page can be read without a mouse, without colours, and in the dark."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from gangwise.jobs import Jobs, Nodes, simulate_jobs
from gangwise.jobs.metrics import Outcome
from gangwise.report import jobs as report
from gangwise.report.jobs import JobResults
from gangwise.report.page import about_scheduler, dots
from gangwise.report.plotting import COLOURS
from gangwise.study.statistics import Estimate

NAMES = ("fcfs", "fcfs+easy+best-fit", "sjf+easy+best-fit")


@pytest.fixture(scope="module")
def page() -> str:
    n = 60
    jobs = Jobs.of(
        submit=[60.0 * i for i in range(n)],
        run=[300.0 + 97 * (i % 11) for i in range(n)],
        tasks=[1 + i % 4 for i in range(n)],
        limit=2e3,
        user=[f"u{i % 12}" for i in range(n)],
    )
    played = {n: [Outcome.of(simulate_jobs(jobs, Nodes.pool(6), n), n)] for n in NAMES}
    return JobResults("jobs", played).page()


class Faults(HTMLParser):
    """What a screen reader would stumble over."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inside: list[str] = []
        self.heads = self.mains = 0
        self.levels: list[int] = []
        self.regions: list[str] = []
        self.said = "x"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = dict(attrs)
        named = of.get("aria-label") or of.get("aria-hidden") == "true"
        if tag == "html" and not of.get("lang"):
            self.found.append("no lang")
        if tag in ("input", "select") and "label" not in self.inside and not named:
            self.found.append(f"{tag} without a label")
        if tag == "th":
            self.heads += 1
            if of.get("scope") not in ("row", "col"):
                self.found.append("th without scope")
        if tag == "canvas" and not (named and "tabindex" in of):
            self.found.append("canvas without words or keys")
        if tag == "svg" and not (named or of.get("role") == "img"):
            self.found.append("svg without words")
        if tag == "img" and not of.get("alt"):
            self.found.append("img without alt")
        if re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))
        self.mains += tag == "main"
        if of.get("role") == "region":
            self.regions.append(of.get("aria-label") or "")
        if tag in ("label", "button", "a"):
            self.inside.append(tag)
            self.said = of.get("aria-label") or ""

    def handle_data(self, data: str) -> None:
        self.said += data.strip()

    def handle_endtag(self, tag: str) -> None:
        if tag in self.inside:
            self.inside.remove(tag)
            if not self.said:
                self.found.append(f"{tag} without words")


def test_a_page_has_words_for_everything(page: str) -> None:
    faults = Faults()
    faults.feed(page)
    assert faults.found == []
    assert faults.heads > 20
    assert faults.mains == 1
    assert len(set(faults.regions)) == len(faults.regions)
    assert faults.levels[0] == 1
    assert all(b - a <= 1 for a, b in zip(faults.levels, faults.levels[1:]))  # none is skipped


@pytest.mark.full
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_axe_finds_nothing(page: str, theme: str, tmp_path: Path) -> None:
    axe = pytest.importorskip("axe_core_python")
    browser = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if browser is None:
        pytest.skip("there is no Chromium")
    script = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    told = "r.violations.map(v => v.id + ': ' + v.nodes[0].html).join(', ')"
    run = f"axe.run().then(r => document.title = 'found [' + {told} + ']')"
    script = script.replace("</script", "<\\/script")
    text = page.replace("</body>", f"<script>{script}</script><script>{run}</script></body>")
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    scheme = f"--blink-settings=preferredColorScheme={int(theme == 'light')}"
    options = ["--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000", "--dump-dom"]
    command = [browser, scheme, *options, f"file://{tmp_path / 'page.html'}"]
    dom = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    assert "<title>found []</title>" in dom, dom[: dom.index("</title>")][-2000:]


def test_schedulers_have_names_that_people_use_and_an_explanation(page: str) -> None:
    body = page[page.index("<body") :]
    assert body.index("<small>EASY, best fit</small>") < body.index("<h2>Tables")
    assert "First come, first served; later jobs pass" in body
    told = about_scheduler("fcfs+easy+best-fit:ends=learned,depth=100")
    assert "least left over" in told  # arguments do not hide the part that they stand behind
    assert "run times are learned" in told
    assert "first waiting jobs" in told


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_and_colours_stand_out_in_the_light_and_in_the_dark() -> None:
    css = (files("gangwise.report") / "templates/page.css").read_text(encoding="utf-8")
    themes = [dict(re.findall(r"--(\w+): (#\w{6})", css[a:])[:6]) for a in (0, css.index("@media"))]
    for shade, theme in enumerate(themes):
        for name in ("ink", "muted", "link"):
            assert contrast(theme[name], theme["paper"]) >= 4.5, (shade, name)
        for pair in COLOURS:  # WCAG asks 3 : 1 of graphics
            assert contrast(pair[shade], theme["paper"]) >= 2.9, (shade, pair)


def test_one_far_off_does_not_flatten_the_rest() -> None:
    found = {
        "none": Estimate(1740.0, -600.0, 4100.0),
        "sjf": Estimate(-15.0, -25.0, -5.0),
        "aged": Estimate(-13.0, -22.0, -4.0),
        "learned": Estimate(-9.0, -20.0, 2.0),
    }
    (drawn,) = dots("", found, "")
    rows = {row.name: row for row in drawn.rows}
    assert (
        rows["none"].cut
        == "\N{BLACK LEFT-POINTING SMALL TRIANGLE}\N{BLACK RIGHT-POINTING SMALL TRIANGLE}"
    )
    assert (rows["none"].low, rows["none"].high) == (0.0, 100.0)
    assert "1,740" in rows["none"].text
    assert rows["sjf"].high - rows["sjf"].low > 25
    assert not any(rows[name].cut for name in ("sjf", "aged", "learned"))
    assert "beyond the axis" in drawn.caption


def test_the_chart_of_nodes_has_a_colour_for_each_of_its_largest_users_and_finds_a_job(
    page: str,
) -> None:
    assert page.count('class="hue"') == 10  # nine of twelve users, and the others
    assert "3 others" in page
    assert '<input type="search"' in page
    hues = json.loads(re.findall(r'"hues": ?(\[[^]]*\])', page)[0])
    assert sorted(hues) == [*range(9), 9, 9, 9]


def test_no_bar_of_time_reaches_below_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Jobs.of(submit=[0, 1, 2, 3], run=[1e4, r, 5e3, 1e3], tasks=[3, 2, 1, 1], limit=2e4)
            for r in (10.0, 4e4, 9e3)]  # fmt: skip
    played = {
        n: [Outcome.of(simulate_jobs(each, Nodes.pool(4), n), n) for each in jobs] for n in NAMES
    }
    drawn: list[Any] = []
    monkeypatch.setattr(report.web, "pictured", lambda title, rows, *_: drawn.extend(rows))
    report._group_figure(JobResults("jobs", played))
    assert any(low == 0.0 for *_, low, _ in drawn)
    assert not any(low is not None and low < 0 for *_, low, _ in drawn)
