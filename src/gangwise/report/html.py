"""One self-contained page for a comparison: it opens offline and reads like a paper."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import gangwise
from gangwise.experiments.comparison import Comparison
from gangwise.report.embed import colour_variables, embed_svg
from gangwise.report.palette import Style, styles
from gangwise.report.sentences import (
    about_comparator,
    figure_caption,
    figure_title,
    seeds_text,
    summary,
)
from gangwise.report.tables import html_name, html_table, sheets

__all__ = ["write_html"]


def write_html(
    comparison: Comparison, path: Path | str, figures: Sequence[Path] = (), command: str = ""
) -> Path:
    """Write the report of a comparison.

    Parameters
    ----------
    comparison : Comparison
    path : path
        The file to write.
    figures : sequence of path
        What :func:`gangwise.report.figures.draw` wrote; the SVG files are put into the page.
    command : str
        The command that made this comparison, to be shown as it is.

    Returns
    -------
    Path
        The file written.
    """
    path = Path(path)
    path.write_text(_page(comparison, figures, command), encoding="utf-8")
    return path


def _page(comparison: Comparison, figures: Sequence[Path], command: str) -> str:
    name = escape(comparison.scenario.name)
    n = len(comparison.policies)
    byline = ", ".join(
        [
            "1 policy" if n == 1 else f"{n} policies",
            seeds_text(comparison),
            f"{comparison.slots:,} slots",
            f"family {comparison.scenario.family}",
            f"gangwise {gangwise.__version__}",
        ]
    )
    parts = [
        f'<header><h1>{name}</h1><p class="byline">{escape(byline)}</p></header>',
        f'<p class="lead">{_prose(summary(comparison))}</p>',
        _tables(comparison),
        _figures(comparison, figures),
        _comparators(comparison),
        _scenario(comparison),
        _policies(comparison),
        _again(comparison, command),
    ]
    light, dark = colour_variables()
    css = _resource("page.css") + (
        f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}: comparison of policies</title>\n<style>\n{css}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + f"\n<script>\n{_resource('page.js')}</script>\n</body>\n</html>\n"
    )


def _resource(name: str) -> str:
    return files("gangwise.report").joinpath(name).read_text(encoding="utf-8")


def _section(title: str, *content: str) -> str:
    return f"<section><h2>{title}</h2>\n" + "\n".join(content) + "\n</section>"


def _tables(comparison: Comparison) -> str:
    looks = styles(comparison)
    first, *others = sheets(comparison)
    # The comparators have a section of their own here; the table keeps the first caption.
    shown = (replace(first, captions=first.captions[:1]), *others)
    tables = [html_table(sheet, lambda policy: _swatch(looks[policy])) for sheet in shown]
    return _section("Results", *tables)


def _swatch(style: Style) -> str:
    """A sample of a policy's line as it is drawn in the figures."""
    dashes = " ".join(f"{on * style.width:.1f}" for on in style.dashes)
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        '<svg class="swatch" viewBox="0 0 26 8" aria-hidden="true"><path d="M0 4H26" fill="none" '
        f'stroke="var(--c{style.index})" stroke-width="{style.width}"{dash}/></svg>'
    )


def _figures(comparison: Comparison, figures: Sequence[Path]) -> str:
    shown = []
    for i, path in enumerate(path for path in figures if path.suffix == ".svg"):
        svg = path.read_text(encoding="utf-8")
        drawing = embed_svg(svg, f"f{i}", figure_title(comparison, path.stem))
        caption = _prose(figure_caption(comparison, path.stem))
        shown.append(
            f'<figure class="plot"><div class="scroll">{drawing}</div>'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    return _section("Figures", *shown) if shown else ""


def _comparators(comparison: Comparison) -> str:
    if not comparison.comparator_names:
        return ""
    sentences = [about_comparator(comparison, name) for name in comparison.comparator_names]
    return _section(
        "Comparators and bounds",
        "<p>Regret is measured against a comparator on the very same slots: its total reward minus "
        "the policy's, signed. Where a comparator was evaluated on some of the slots only, the "
        "mean difference on these is scaled to all of them.</p>",
        *(f"<p>{_prose(sentence)}</p>" for sentence in sentences),
    )


def _scenario(comparison: Comparison) -> str:
    settings = comparison.scenario.describe()
    return _section("Scenario", _plain_table(settings)) if settings else ""


def _policies(comparison: Comparison) -> str:
    seed = comparison.seeds[0]
    order = [row.policy for row in comparison.table()]
    told = {
        policy: ", ".join(
            f"{key} = {_text(value)}"
            for key, value in comparison.runs[policy, seed].configuration.items()
        )
        or "no arguments"
        for policy in order
    }
    return _section("Configuration of the policies", _plain_table(told))


def _again(comparison: Comparison, command: str) -> str:
    versions = {"gangwise": gangwise.__version__, "python": platform.python_version()}
    for package in ("numpy", "numba"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    seeds = ", ".join(str(seed) for seed in comparison.seeds)
    how = (
        f"<p>The same command gives the same rewards:</p><pre><code>{escape(command)}</code></pre>"
        if command
        else "<p>This comparison was made from Python; scenario, slots, seeds and the policies' "
        "arguments, as given on this page, define every reward in it.</p>"
    )
    return _section(
        "How to get this again", how, _plain_table({"slots": comparison.slots, "seeds": seeds}),
        "<p>Versions used:</p>", _plain_table(versions),
    )  # fmt: skip


def _plain_table(entries: Mapping[str, Any]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{html_name(str(key))}</th><td>{escape(_text(value))}</td></tr>\n'
        for key, value in entries.items()
    )
    return f'<table class="plain"><tbody>\n{rows}</tbody></table>'


def _prose(text: str) -> str:
    """A sentence, escaped, with its numbers kept together with their signs."""
    return escape(text).replace(" %", "\u00a0%").replace(" ± ", "\u00a0±\u00a0")


def _text(value: Any) -> str:
    """A setting as a reader would write it."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)
