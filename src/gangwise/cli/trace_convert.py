"""``gangwise trace convert``."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from gangwise.cli.options import Json, say
from gangwise.cli.trace_inspect import Strict, TraceName, TracePath

__all__ = ["convert_command"]


def convert_command(
    path: TracePath,
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="An empty folder, or one that is not there yet; or that "
                       "of a conversion that was stopped.", show_default=False),
    ],
    trace: TraceName = "",
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Convert a trace to Parquet, in constant memory.

    Stopped, or killed, it goes on where it was when it is started again.
    """
    from gangwise.cli.trace_progress import reading_bar
    from gangwise.traces.convert import convert

    try:
        with reading_bar("converting") as tell:
            made = convert(path, out, trace=trace, strict=strict, progress=tell)
    except KeyboardInterrupt:
        say("gangwise: interrupted; what is converted is stored")
        say(f"to go on: {shlex.join(['gangwise', *sys.argv[1:]])}")
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(made.to_dict(), indent=2, ensure_ascii=False))
    else:
        print(made)
    if made.resumed:
        say("part of it was converted before")
