"""``gangwise trace plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gangwise.cli.options import say, settings_of
from gangwise.cli.trace_inspect import ReaderSettings, Strict, TraceName, TracePath
from gangwise.core.errors import StoreError

__all__ = ["plot_command"]


def plot_command(
    path: TracePath,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("trace-pictures"),
    settings: ReaderSettings = None,
    trace: TraceName = "",
    strict: Strict = False,
) -> None:
    """Draw arrivals, request sizes, lifetimes and load, as PNG and SVG."""
    from gangwise.report.trace_figures import draw
    from gangwise.traces import open_tables

    tables = open_tables(path, trace=trace, strict=strict, **settings_of(settings))
    try:
        out.mkdir(parents=True, exist_ok=True)
        drawn = draw(tables, out)
    except OSError as error:
        raise StoreError(f"cannot write {out}: {error.strerror or error}") from error
    for stem, caption in drawn.captions.items():
        print(f"{stem}: {caption}")
    for stem, why in drawn.left_out.items():
        say(f"left out {stem}: {why}")
    say(f"wrote {len(drawn.captions)} pictures, as PNG and SVG, to {out}")
