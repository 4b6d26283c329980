"""``gangwise list`` and ``gangwise show``: what there is, and where an equation is implemented."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from gangwise.cli import completion
from gangwise.cli.options import Json, screen

PLURAL = {
    "family": "families",
    "scenario": "scenarios",
    "policy": "policies",
    "comparator": "comparators",
    "scheduler": "schedulers",
    "trace": "traces",
    "engine": "engines",
}


def list_command(
    family: Annotated[
        str | None,
        typer.Option(
            help="Only of this family; 'jobs' for schedulers and traces.",
            autocompletion=completion.families,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List what there is: by family, scenarios, policies and comparators; schedulers; traces."""
    from gangwise.core.errors import UnknownName
    from gangwise.core.registry import GROUPS, entries

    found = {
        kind: [
            {"name": e.name, "family": e.family, "summary": e.summary}
            for e in entries(kind).values()
        ]
        for kind in GROUPS
    }
    families = [row["name"] for row in found["family"]]
    if family is not None and family not in (*families, "jobs"):
        raise UnknownName("family", family, [*families, "jobs"])
    if as_json:
        mine = {
            PLURAL[kind]: [
                row
                for row in rows
                if family is None or family in (row["family"] or "jobs", row["name"])
            ]
            for kind, rows in found.items()
        }
        print(json.dumps(mine, indent=2))
        return
    from rich.markup import escape

    console, indent = (
        screen(),
        2 + max(len(row["name"]) for rows in found.values() for row in rows),
    )

    def rows_of(kind: str, rows: list[dict[str, str]]) -> None:
        if rows:
            console.print(f"  {PLURAL[kind]}")
        for row in rows:
            name = "(any other)" if row["name"] == "*" else row["name"]
            console.print(f"    [cyan]{name:<{indent}}[/cyan]{escape(row['summary'])}")

    for each in found["family"]:
        if family in (None, each["name"]):
            console.print(f"\n[bold]{each['name']}[/bold]  {escape(each['summary'])}")
            for kind in ("scenario", "policy", "comparator"):
                rows_of(kind, [row for row in found[kind] if row["family"] == each["name"]])
    if family in (None, "jobs"):
        console.print("\n[bold]jobs[/bold]  a log or a drawn world of jobs: gangwise replay")
        rows_of("scenario", [row for row in found["scenario"] if row["family"] == "jobs"])
        rows_of("scheduler", found["scheduler"])
        rows_of("trace", found["trace"])
        rows_of("engine", found["engine"])


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
