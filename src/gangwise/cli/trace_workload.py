"""``gangwise trace workload``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from gangwise.cli.options import Family, Json, Settings, say, settings_of
from gangwise.cli.trace_inspect import TracePath
from gangwise.core.errors import StoreError

__all__ = ["workload_command"]


def workload_command(
    path: TracePath,
    family: Family = None,
    settings: Settings = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the tables, as Parquet, and scenario.toml, which compare "
                     "plays again."),
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """What a trace becomes: job types, channels, arrivals per slot, lifetimes and load."""
    from gangwise.traces import open_trace
    from gangwise.traces.outline import outline

    given = settings_of(settings, family)
    scenario = open_trace(path, **given)
    found = outline(scenario)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _show(found.to_dict())
        print(scenario.fidelity())  # type: ignore[attr-defined]  # every scenario of a trace has one
    if out is not None:
        from gangwise.traces.outline import write_outline

        try:
            written = write_outline(scenario, found, path, given, out)
        except OSError as error:
            raise StoreError(f"cannot write {out}: {error.strerror or error}") from error
        say(f"wrote {', '.join(file.name for file in written)} to {out}")
        say(f"to play it: gangwise compare {out / 'scenario.toml'}")


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"{found['scenario']}: {found['family']}")
    for key, value in found["numbers"].items():
        console.print(f"  {key.replace('_', ' '):<24s}{_text(value)}", highlight=False)
    if found["job_types"]:
        table = Table(box=None, pad_edge=False)
        for name in found["job_types"][0]:
            first = name == "job_type"
            table.add_column(
                name.replace("_", " "), justify="left" if first else "right",
                overflow="fold" if first else "ellipsis", min_width=16 if first else None,
            )  # fmt: skip
        for row in found["job_types"]:
            table.add_row(*(_text(value) for value in row.values()))
        console.print(table)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)
