"""What every page of a report is made of: its frame, sections, small tables, drawings, commands."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from gangwise.core.errors import StoreError
from gangwise.report.embed import colour_variables, embed_svg
from gangwise.report.names import html_name
from gangwise.report.palette import Style


def document(title: str, parts: Sequence[str], styles: str = "") -> str:
    """A whole page that loads nothing from outside.

    Parameters
    ----------
    title : str
    parts : sequence of str
        HTML, in order; empty ones are left out.
    styles : str
        Further CSS.
    """
    light, dark = colour_variables()
    css = _resource("page.css") + (
        f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{css}{styles}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + f"\n<script>\n{_resource('page.js')}</script>\n</body>\n</html>\n"
    )


def write_page(path: Path, page: str) -> Path:
    """Write a page.

    Raises
    ------
    StoreError
        When it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write the report {path}: {error}") from error
    return path


def _resource(name: str) -> str:
    return files("gangwise.report").joinpath(name).read_text(encoding="utf-8")


def section(title: str, *content: str, anchor: str = "") -> str:
    """A heading with what belongs to it; the title is text."""
    named = f' id="{anchor}"' if anchor else ""
    return f"<section{named}><h2>{html_name(title)}</h2>\n" + "\n".join(content) + "\n</section>"


def fold(title: str, *content: str, anchor: str = "", mark: str = "") -> str:
    """Something to be opened; it opens without a script too, and by a link to its anchor."""
    named = f' id="{anchor}"' if anchor else ""
    return (
        f"<details{named}><summary>{mark}{html_name(title)}</summary>\n"
        + "\n".join(content)
        + "\n</details>"
    )


def plain_table(entries: Mapping[str, Any], caption: str = "") -> str:
    """Names with their values."""
    rows = "".join(
        f'<tr><th scope="row">{html_name(str(key))}</th>'
        f"<td>{escape(setting_text(value))}</td></tr>\n"
        for key, value in entries.items()
    )
    head = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<table class="plain">{head}<tbody>\n{rows}</tbody></table>'


def drawing(svg: str, prefix: str, title: str, caption: str) -> str:
    """An SVG document with what it shows, said once for the eye and once for those without."""
    return (
        f'<figure class="plot"><div class="scroll">{embed_svg(svg, prefix, title)}</div>'
        f"<figcaption>{prose(caption)}</figcaption></figure>"
    )


def swatch(style: Style) -> str:
    """A sample of a policy's line as it is drawn in the figures."""
    dashes = " ".join(f"{on * style.width:.1f}" for on in style.dashes)
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        '<svg class="swatch" viewBox="0 0 26 8" aria-hidden="true"><path d="M0 4H26" fill="none" '
        f'stroke="var(--c{style.index})" stroke-width="{style.width}"{dash}/></svg>'
    )


def prose(text: str) -> str:
    """A sentence, escaped, with its numbers kept together with their signs."""
    return escape(text).replace(" %", "\u00a0%").replace(" ± ", "\u00a0±\u00a0")


def setting_text(value: Any) -> str:
    """A setting as a reader would write it."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)
