"""For mkdocs: equations become MathML as pages are built; browsers draw it without a script.

``$$ … $$`` on lines of their own is an equation in TeX.
"""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

CODE = re.compile(r"(```.*?```)", re.DOTALL)
EQUATION = re.compile(r"^\$\$\s*(.+?)\s*\$\$$", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Equations outside of code."""
    parts = CODE.split(markdown)
    parts[::2] = [EQUATION.sub(_mathml, part) for part in parts[::2]]
    return "".join(parts)


def _mathml(found: re.Match[str]) -> str:
    return f'<div class="equation">{convert(found[1], display="block")}</div>'
