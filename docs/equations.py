"""Write the page of equations: python docs/equations.py"""

from __future__ import annotations

from pathlib import Path

from gangwise.equations import markdown

if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(markdown(), encoding="utf-8")
