"""The notebooks run from top to bottom, and print what they show."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
RUN = """
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], 4)
NotebookClient(book, timeout=600).execute()
nbformat.write(book, sys.argv[2])
"""


def printed(book: dict[str, Any]) -> list[str]:
    """What each cell prints; a picture counts as its kind."""
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    return [
        "".join("".join(o.get("text", sorted(o.get("data", ())))) for o in cell["outputs"])
        for cell in cells
    ]


@pytest.mark.full
@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("nbclient", "ipykernel")),
    reason="needs pip install '.[docs]'",
)
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(notebook: Path, tmp_path: Path) -> None:
    source = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(notebook), str(tmp_path / "run.ipynb")],
        cwd=tmp_path,
        env=source,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = printed(json.loads((tmp_path / "run.ipynb").read_text()))
    assert found == printed(json.loads(notebook.read_text()))


def test_notebooks_are_three_and_show_no_path_of_a_machine() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["agent", "figure", "your-log"]
    for path in NOTEBOOKS:
        assert "/home" not in path.read_text()
        assert "/tmp" not in path.read_text()
