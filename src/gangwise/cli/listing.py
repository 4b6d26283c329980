"""``gangwise list`` and ``gangwise show``: what there is, and where an equation is implemented."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from gangwise.cli.options import Json


def list_command(as_json: Json = False) -> None:
    """List families, scenarios, trace formats, policies, schedulers and comparators."""
    from gangwise.core.registry import GROUPS, entries

    found = {
        kind: [
            {"name": e.name, "family": e.family, "summary": e.summary}
            for e in entries(kind).values()
        ]
        for kind in GROUPS
    }
    plural = {
        "policy": "policies",
        "scenario": "scenarios",
        "trace": "traces",
        "family": "families",
        "scheduler": "schedulers",
        "comparator": "comparators",
    }
    if as_json:
        print(json.dumps({plural[kind]: rows for kind, rows in found.items()}, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for kind in ("family", "scenario", "trace", "policy", "scheduler", "comparator"):
        table.add_row(f"[bold]{plural[kind]}[/bold]")
        for row in found[kind]:
            table.add_row(f"  {row['name']}", str(row["summary"]), f"[dim]{row['family']}[/dim]")
    Console().print(table)


def show_command(
    equation: Annotated[
        str, typer.Argument(help='Paper and number, such as "OGASched (9)" or "ESDP §3.4".')
    ],
    as_json: Json = False,
) -> None:
    """Show an equation of the papers: the code that implements it, and what tests it."""
    from gangwise.equations import find, locate

    entry = find(equation)
    code = {"symbol": locate(entry.symbol)}
    if entry.kernel:
        code["kernel"] = locate(entry.kernel)
    if as_json:
        listed = {part: place._asdict() for part, place in code.items()}
        told = {"label": entry.label, "name": entry.name, **listed, "test": f"tests/{entry.test}"}
        print(json.dumps(told, indent=2, ensure_ascii=False))
        return
    print(f"{entry.label}: {entry.name}\n")
    for part, place in code.items():
        print(f"{part:6}  {place.symbol}\n        {place.file}:{place.line}\n")
        print("\n".join(f"        {line}".rstrip() for line in place.docstring.splitlines()) + "\n")
    print(f"test    tests/{entry.test}")
