"""How to get the results on a page again: command, experiment file, versions, keys, digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gangwise.experiments.store import read_provenance, versions
from gangwise.report.page import Code, Fold, Part, Section, Text, Values


@dataclass(frozen=True)
class Made:
    """What the last section of a page says.

    ``what`` is what the commands give again; ``name`` and ``folder`` are of the experiment, to
    write a command with if none is known; ``python`` is said if there is neither command nor
    experiment file; ``of`` is what ``digest`` is the SHA-256 of.
    """

    command: str = ""
    what: str = "rewards"
    file: str = ""
    name: str = ""
    folder: str = ""
    python: str = ""
    versions: Mapping[str, object] = field(default_factory=dict)
    caption: str = "Versions"
    runs: Sequence[str] = ()
    digest: str = ""
    of: str = ""

    def section(self) -> Section:
        parts: list[Part] = []
        if self.command:
            give = "commands give" if "\n" in self.command else "command gives"
            parts += [Text(f"The same {give} the same {self.what}:"), Code(self.command)]
            if self.file:
                parts.append(Text("As an experiment file, with all that the command changed:"))
                parts.append(Code(self.file))
        elif self.file:
            parts += [
                Text(
                    "These results were made from Python. The same experiment as a file, "
                    f"`{self.name}.toml`, and the command that gives the same rewards:"
                ),
                Code(f"gangwise sweep {self.name}.toml --out {self.folder}"),
                Code(self.file),
            ]
        elif self.python:
            parts.append(Text(self.python))
        parts.append(Values(self.versions, self.caption))
        if self.runs:
            says = (
                "A run is stored under a hash of everything that defines it, in `runs/KEY.parquet`."
            )
            keys: list[Part] = [Text(says), Code("\n".join(self.runs))]
            parts.append(Fold(f"Keys of the {len(self.runs)} runs", keys))
        if self.digest:
            says = f"Numbers on this page: SHA-256 `{self.digest}` of {self.of}."
            parts.append(Text(says, "digest"))
        return Section("How to get this again", parts)


def made_in(
    folder: Path,
    name: str,
    of: Sequence[str],
    file: str = "",
    more: Mapping[str, str] | None = None,
    runs: Sequence[str] = (),
) -> Section:
    """How an experiment of a folder was made, whose numbers are in some of its files."""
    known = read_provenance(folder, name)
    used = known.versions if known is not None else versions()
    return Made(
        command=known.command if known is not None else "",
        file=file.rstrip(),
        name=name,
        folder=folder.name or "results",
        versions={**used, **(more or {})},
        caption="Versions" if known is not None else "Versions that wrote this page",
        runs=runs,
        digest=numbers_digest(folder, of),
        of="1 file" if len(of) == 1 else f"{len(of):,} files",
    ).section()


def numbers_digest(folder: Path, names: Iterable[str]) -> str:
    """The digest of files of a folder, by their names and the digests of their contents.

    The SHA-256 of lines "name, a blank, SHA-256 of the file", sorted, so that
    ``sha256sum`` finds it as well. A file that is not there has no line.
    """
    lines = [
        f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n"
        for name in sorted(set(names))
        if (path := folder / name).exists()
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
