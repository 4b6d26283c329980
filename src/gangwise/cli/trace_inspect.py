"""``gangwise trace inspect``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gangwise.cli.options import Json, settings_of

__all__ = ["ReaderSettings", "Strict", "TraceName", "TracePath", "inspect_command"]

TracePath = Annotated[
    Path,
    typer.Argument(metavar="PATH", help="A folder with files of a trace, or one of them; a "
                   "converted trace; tables that trace workload wrote; or twin:NAME.",
                   show_default=False),
]  # fmt: skip
TraceName = Annotated[
    str, typer.Option("--trace", metavar="NAME", help="The format, when it is not to be recognised "
                      "(trace list).")
]  # fmt: skip
ReaderSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An argument of the reader, or of the twin."),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Stop at the first bad row, and name it.")
]


def inspect_command(
    path: TracePath,
    settings: ReaderSettings = None,
    strict: Strict = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Read all rows also of large traces, not only their start."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Which trace it is, its tables, rows and load, what is missing and what was left out."""
    from gangwise.cli.trace_progress import reading_bar
    from gangwise.traces.inspecting import inspect

    with reading_bar("reading") as tell:
        found = inspect(path, strict=strict, everything=everything, progress=tell,
                        **settings_of(settings))  # fmt: skip
    if as_json:
        print(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        print(found)
