"""Jinja2 templates with what they need: every value is escaped unless a filter here made it.

Pages load nothing from outside: style sheet, script and drawings are part of them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from gangwise.core.errors import StoreError
from gangwise.report.plotting import COLOURS, GRID, INK, MUTED, Panel, Style, plots
from gangwise.report.tables import pieces
from gangwise.report.words import enumerated


class Drawn(NamedTuple):
    """A figure: its plots as SVG, what it shows, how to read it, what its lines are."""

    plots: tuple[str, ...]
    title: str
    caption: str
    key: Mapping[str, Style] = {}
    titled: bool = False
    """Whether the drawing says its title itself."""


def pictured(title: str, numbers: pl.DataFrame, panels: Sequence[Panel], caption: str) -> Drawn:
    """A table of numbers as a figure of a page, see :mod:`gangwise.report.plotting`."""
    found, looks = plots(numbers, panels)
    return Drawn(found, title, caption, looks)


def render(template: str, **values: Any) -> str:
    """A page.

    Parameters
    ----------
    template : str
        Name of a file in ``templates/``.
    **values
        What it shows: text, numbers, :class:`~gangwise.report.tables.Sheet`, :class:`Drawn`.
    """
    page = _ENVIRONMENT.get_template(template).render(**values)
    return re.sub(r"\n\s*\n+", "\n", page) if "<pre>" not in page else _squeezed(page)


def _squeezed(page: str) -> str:
    """A page without empty lines, except where they are text."""
    parts = re.split(r"(<pre>.*?</pre>)", page, flags=re.DOTALL)
    return "".join(
        part if i % 2 else re.sub(r"\n\s*\n+", "\n", part) for i, part in enumerate(parts)
    )


def breakable(name: str) -> Markup:
    """A name that may be broken after its separators.

    >>> breakable("a-b<script>")
    Markup('a-<wbr>b&lt;script&gt;')
    """
    return Markup("<wbr>").join(pieces(name))


def prose(text: str) -> Markup:
    r"""A sentence with its numbers kept together with their signs.

    >>> prose("12 % < 13 %")
    Markup('12\xa0% &lt; 13\xa0%')
    """
    return escape(text.replace(" %", "\u00a0%").replace(" ± ", "\u00a0±\u00a0"))


def setting(value: Any) -> str:
    """A setting as a reader would write it.

    >>> setting(None), setting("1"), setting([1, 2])
    ('none', '1', '[1, 2]')
    """
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)


def plain_number(value: float) -> str:
    """A number for scripts; empty where there is none."""
    return "" if math.isnan(value) else repr(float(value))


def for_script(value: Any) -> Markup:
    """Data as JSON inside a script element, which no text in it can close."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character, safe in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(character, safe)
    return Markup(text)


_LARGEST, _SMALLEST = 1.47, 0.93
"""Pixels of the page per point of a drawing: letters neither grow with wide windows, nor shrink out
of sight with narrow ones."""

_ACTIVE = re.compile(
    r"<\s*(script|foreignobject|iframe|animate|set)\b|\son\w+\s*=|javascript:", re.I
)
"""What a drawing has no use for, and could run."""


def embedded(svg: str, prefix: str, title: str) -> Markup:
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

    Raises
    ------
    StoreError
        Where a tag could run a script: matplotlib writes none.
    """
    start = svg.index("<svg")
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg[start:], flags=re.DOTALL)
    head, body = svg[: svg.index(">") + 1], svg[svg.index(">") + 1 :]
    found = re.search(r'viewBox="([\d. -]*)"', head)
    box = found.group(1) if found else "0 0 100 100"
    body = body.replace("xlink:href=", "href=")
    # Only inside tags: text between tags belongs to users.
    body = re.sub(r"<[^>]*>", lambda tag: _tag(tag.group(0), prefix), body)
    wide = float(box.split()[2])
    size = f"max-width: {wide * _LARGEST:.0f}px; min-width: {wide * _SMALLEST:.0f}px"
    axes = re.search(r'data-axes="[-+.\w ]*"', head)
    data = f" {axes[0]}" if axes else ""
    opening = f'<svg viewBox="{box}"{data} style="{size}" role="img" aria-label="{escape(title)}">'
    return Markup(opening + body.rstrip())


def _tag(tag: str, prefix: str) -> str:
    """One tag with its identifiers prefixed, its colours as variables, its numbers shortened."""
    if _ACTIVE.search(tag):
        raise StoreError(
            f"a drawing has the tag {tag[:60]}, which could run a script; make it again"
        )
    tag = re.sub(r'\bid="(line|band|ends)(\d+)"', r'data-\1="\2"', tag)
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


def _colours() -> Markup:
    """CSS that declares the policies' colours, for light pages and for dark ones."""

    def declared(shades: Iterable[str]) -> str:
        return " ".join(f"--c{i}: {shade};" for i, shade in enumerate(shades))

    light, dark = (declared(shades) for shades in zip(*COLOURS))
    return Markup(
        f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    )


_ENVIRONMENT = Environment(
    loader=PackageLoader("gangwise.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {
    "breakable": breakable,
    "prose": prose,
    "setting": setting,
    "plain_number": plain_number,
    "embedded": embedded,
    "for_script": for_script,
    "enumerated": enumerated,
}
_ENVIRONMENT.globals["colours"] = _colours
