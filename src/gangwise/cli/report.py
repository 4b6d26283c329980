"""``gangwise report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gangwise.cli.options import say

__all__ = ["report_command"]


def report_command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="What was given as --out to sweep, reproduce, tune or compare."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; DIR/report.html by default.")
    ] = None,
    opened: Annotated[bool, typer.Option("--open", help="Show it in a browser.")] = False,
) -> None:
    """Write one page about a folder of results; it needs no network and no other file."""
    from gangwise.report.folder import write_report

    path = write_report(folder, out)
    say(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
    if opened:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
