"""The tests' own reader of pages sees what it is meant to see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.pages import faults, loaded, read


@pytest.mark.parametrize(
    ("html", "says"),
    [
        ('<p id="a"></p><p id="a"></p>', "#a stands twice"),
        ('<a href="#b">b</a>', "#b leads nowhere"),
        ("<table><tr><th>x</th></tr></table>", "without a scope"),
        ('<table><tr><td data-value="x">x</td></tr></table>', "no number"),
        ("<svg></svg>", "without a label"),
    ],
)
def test_faults_are_seen(tmp_path: Path, html: str, says: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(html)
    assert says in faults(read(path))[0]


@pytest.mark.parametrize(
    "html",
    [
        '<img alt="">',
        '<a href="page.html">x</a>',
        "<style>@import 'x';</style>",
        "<script></script><script></script>",
        "<p>see https://example.org</p>",
        "<style>p { background: url(//example.org/x.png) }</style>",
    ],
)
def test_what_is_loaded_is_seen(tmp_path: Path, html: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(html)
    assert loaded(read(path), html) != []
    path.write_text("<p>x</p>")
    assert loaded(read(path), "<p>x</p>") == []
