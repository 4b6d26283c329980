"""How to get the results on a page again: command, experiment file, versions, keys, digest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from gangwise.experiments.store import read_provenance, versions
from gangwise.report.page import Code, Fold, Part, Section, Text, Values


def by_command(command: str, what: str, otherwise: str) -> list[Part]:
    """What a command gives again; without one, what stands for it."""
    if not command:
        return [Text(otherwise)]
    give = "commands give" if "\n" in command else "command gives"
    return [Text(f"The same {give} the same {what}:"), Code(command)]


def again(
    how: Sequence[Part],
    used: Mapping[str, object],
    caption: str = "Versions",
    runs: Sequence[str] = (),
    digest: str = "",
    of: str = "",
) -> Section:
    """The last section of a page; ``digest`` is the SHA-256 of what ``of`` says."""
    parts = [*how, Values(used, caption)]
    if runs:
        says = "A run is stored under a hash of everything that defines it, in `runs/KEY.parquet`."
        keys: list[Part] = [Text(says), Code("\n".join(runs))]
        parts.append(Fold(f"Keys of the {len(runs)} runs", keys))
    if digest:
        parts.append(Text(f"Numbers on this page: SHA-256 `{digest}` of {of}.", "digest"))
    return Section("How to get this again", parts)


def made_in(
    folder: Path,
    name: str,
    of: Sequence[str],
    file: str = "",
    more: Mapping[str, str] | None = None,
    runs: Sequence[str] = (),
) -> Section:
    """How an experiment of a folder was made, whose numbers are in some of its files.

    Their digest is the SHA-256 of lines "name, a blank, SHA-256 of the file", sorted, so that
    ``sha256sum`` finds it as well. A file that is not there has no line.
    """
    known, how = read_provenance(folder, name), list[Part]()
    if known is not None and known.command:
        how += by_command(known.command, "rewards", "")
        if file:
            how.append(Text("As an experiment file, with all that the command changed:"))
    elif file:
        says = "These results were made from Python. The same experiment as a file, "
        says += f"`{name}.toml`, and the command that gives the same rewards:"
        how.append(Text(says))
        how.append(Code(f"gangwise sweep {name}.toml --out {folder.name or 'results'}"))
    how += [Code(file.rstrip())] * bool(file)
    lines = [
        f"{each} {hashlib.sha256(path.read_bytes()).hexdigest()}\n"
        for each in sorted(set(of))
        if (path := folder / each).exists()
    ]
    return again(
        how,
        {**(known.versions if known is not None else versions()), **(more or {})},
        "Versions" if known is not None else "Versions that wrote this page",
        runs,
        hashlib.sha256("".join(lines).encode()).hexdigest(),
        "1 file" if len(of) == 1 else f"{len(of):,} files",
    )
