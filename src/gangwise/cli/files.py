"""``gangwise verify`` and ``gangwise clean``: what is whole in a folder of results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangwise.cli.options import Json, command_line, say
from gangwise.core.json_text import json_text

if TYPE_CHECKING:
    from gangwise.core.files import Folder

SHOWN = 20
"""Names that are listed, of each kind, before the rest is counted."""

Results = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="What was given as --out, or the folder of such a file."),
]


def verify_command(folder: Results, as_json: Json = False) -> None:
    """Compare every file of a folder of results with its seal; exit code 1 where one differs."""
    from gangwise.core.files import find_folders

    found = {each: each.verify() for each in find_folders(folder)}
    sound = all(each.sound for each in found.values())
    if as_json:
        about = [{"folder": str(each.path), **vars(what)} for each, what in found.items()]
        print(json_text({"sound": sound, "folders": about}))
    else:
        for each, what in found.items():
            print(f"{each.path}: {len(what.whole)} files are as they were written")
            _tell("damaged: not what was written", each, what.damaged)
            _tell("missing", each, what.missing)
            _tell(
                "unfinished: the same command goes on with it, or gangwise clean",
                each,
                what.unfinished,
            )
            _tell("not written by gangwise", each, what.unknown)
    if not sound:
        say("run the command that made them again: what is whole is not done twice")
        raise typer.Exit(1)


def clean_command(
    folder: Results,
    everything: Annotated[
        bool, typer.Option("--all", help="Remove the results too: all that gangwise wrote there.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove what stopped runs left over, and damaged files; files of others stay."""
    from gangwise.core.files import find_folders

    cleaned = {}
    for each in reversed(find_folders(folder)):
        with each.lock(command=command_line()):
            cleaned[each] = each.clean(everything)
    if as_json:
        about = [{"folder": str(each.path), **vars(what)} for each, what in cleaned.items()]
        print(json_text({"folders": about}))
        return
    for each, what in cleaned.items():
        print(f"{each.path}: removed {len(what.removed)} files")
        _tell("removed", each, what.removed)
        _tell("left, for gangwise did not write it", each, what.left)


def _tell(what: str, folder: Folder, names: list[str]) -> None:
    for name in names[:SHOWN]:
        print(f"  {what}: {folder.path / name}")
    if len(names) > SHOWN:
        print(f"  {what}: {len(names) - SHOWN} more")
