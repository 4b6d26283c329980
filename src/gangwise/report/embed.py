"""Matplotlib's SVG made part of an HTML page."""

from __future__ import annotations

import re
from html import escape

from gangwise.report.palette import COLOURS, GRID, INK, MUTED

_LARGEST, _SMALLEST = 1.47, 0.93
"""Pixels of the page per point of a drawing: letters neither grow with wide windows, nor shrink out
of sight with narrow ones."""


def colour_variables() -> tuple[str, str]:
    """CSS that declares the policies' colours, for light pages and for dark ones."""
    light = " ".join(f"--c{i}: {on_white};" for i, (on_white, _) in enumerate(COLOURS))
    dark = " ".join(f"--c{i}: {on_black};" for i, (_, on_black) in enumerate(COLOURS))
    return light, dark


def embed_svg(svg: str, prefix: str, title: str) -> str:
    """An SVG document as an element of a page.

    Identifiers get a prefix, so that several drawings do not clash; colours become variables of the
    page, so that a drawing follows its light and dark theme; the document's declarations and
    metadata, which name outside addresses, are dropped.

    Parameters
    ----------
    svg : str
        What matplotlib wrote.
    prefix : str
        Letters and digits, different for each drawing of a page.
    title : str
        What the drawing shows, for those who do not see it.
    """
    start = svg.index("<svg")
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg[start:], flags=re.DOTALL)
    head, body = svg[: svg.index(">") + 1], svg[svg.index(">") + 1 :]
    found = re.search(r'viewBox="([^"]*)"', head)
    box = found.group(1) if found else "0 0 100 100"
    body = body.replace("xlink:href=", "href=")
    # Only inside tags: text between tags belongs to users.
    body = re.sub(r"<[^>]*>", lambda tag: _tag(tag.group(0), prefix), body)
    label = escape(title)
    wide = float(box.split()[2])
    size = f"max-width: {wide * _LARGEST:.0f}px; min-width: {wide * _SMALLEST:.0f}px"
    return f'<svg viewBox="{box}" style="{size}" role="img" aria-label="{label}">{body.rstrip()}'


def _tag(tag: str, prefix: str) -> str:
    """One tag with its identifiers prefixed, its colours as variables, its numbers shortened."""
    tag = re.sub(r'\bid="([^"]*)"', rf'id="{prefix}-\1"', tag)
    tag = re.sub(r"url\(#([^)]*)\)", rf"url(#{prefix}-\1)", tag)
    tag = re.sub(r'href="#([^"]*)"', rf'href="#{prefix}-\1"', tag)
    if ' d="' in tag:
        tag = re.sub(r"\d+\.\d+", lambda n: f"{float(n.group(0)):.1f}".removesuffix(".0"), tag)
        tag = re.sub(r"\s*\n\s*", " ", tag)
    return re.sub(r"#[0-9a-f]{6}\b", lambda c: _VARIABLES.get(c.group(0), c.group(0)), tag)


_VARIABLES = {
    **{on_white: f"var(--c{i})" for i, (on_white, _) in enumerate(COLOURS)},
    INK: "var(--ink)",
    "#000000": "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--rule)",
    "#ffffff": "none",
}
