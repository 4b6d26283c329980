"""For mkdocs: equations become MathML, which browsers draw without a script, and notebooks pages.

``$$ … $$`` on lines of their own is an equation in TeX.
"""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File

CODE = re.compile(r"(```.*?```)", re.DOTALL)
EQUATION = re.compile(r"^\$\$\s*(.+?)\s*\$\$$", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Equations outside of code."""
    parts = CODE.split(markdown)
    parts[::2] = [EQUATION.sub(_mathml, part) for part in parts[::2]]
    return "".join(parts)


def _mathml(found: re.Match[str]) -> str:
    return f'<div class="equation">{convert(found[1], display="block")}</div>'


def on_files(files: Any, config: Any) -> Any:
    """Each notebook as a page of its own; the file stays, to be downloaded."""
    for file in [each for each in files if each.src_uri.endswith(".ipynb")]:
        cells = json.loads(file.content_string)["cells"]
        name = PurePosixPath(file.src_uri)
        text = "\n\n".join(_cell(cell) for cell in cells)
        text += f"\n\n[This notebook as a file]({name.name})\n"
        page = File.generated(config, str(name.with_suffix(".md")), content=text)
        files.append(page)
    return files


def _cell(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    parts = [f"```python\n{source}\n```"]
    for output in cell["outputs"]:
        if "text" in output:
            parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
        elif "image/png" in output.get("data", {}):
            picture = "".join(output["data"]["image/png"].split())
            parts.append(f"![What the lines above draw](data:image/png;base64,{picture})")
    return "\n\n".join(parts)
