"""Fill the tables of these pages from the committed results: python docs/papers/fill.py"""

from __future__ import annotations

from pathlib import Path

from gangwise.reproduce import PAPERS, artefacts, expected
from gangwise.reproduce.expected import fill

if __name__ == "__main__":
    for paper in PAPERS:
        page = Path(__file__).with_name(f"{paper}.md")
        rows = expected.shown(artefacts(paper))
        page.write_text(fill(page.read_text(encoding="utf-8"), rows), encoding="utf-8")
