"""Write the page of equations: python docs/equations.py"""

from __future__ import annotations

from pathlib import Path

from gangwise.catalogue import index

HEAD = """# Equations

Where the papers' equations are in the code, and which tests check them: docstrings name them.
`gangwise show "OGASched (9)"` prints the code's. Written by `python docs/equations.py`.

| equation | code | tests |
|---|---|---|
"""


def page() -> str:
    tested = index(Path(__file__).parents[1] / "tests")
    rows = (
        (
            label,
            [p.symbol for p in code],
            [p.symbol.replace(":", "::") for p in tested.get(label, [])],
        )
        for label, code in index().items()
    )
    lists = (f"| {label} | {_listed(code)} | {_listed(tests)} |\n" for label, code, tests in rows)
    return HEAD + "".join(lists)


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(page(), encoding="utf-8")
