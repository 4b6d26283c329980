"""``gangwise list``."""

from __future__ import annotations

import json

from gangwise.cli.options import Json


def list_command(as_json: Json = False) -> None:
    """List families, scenarios, policies and trace formats."""
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
    }
    if as_json:
        print(json.dumps({plural[kind]: rows for kind, rows in found.items()}, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for kind in ("family", "scenario", "trace", "policy"):
        table.add_row(f"[bold]{plural[kind]}[/bold]")
        for row in found[kind]:
            table.add_row(f"  {row['name']}", str(row["summary"]), f"[dim]{row['family']}[/dim]")
    Console().print(table)
