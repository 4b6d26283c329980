"""What ``gangwise reproduce`` left in a folder, read and checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangwise.core.errors import StoreError

ROW = {"paper", "artefact", "says", "version", "the paper", "ours", "low", "high", "verdict", "why"}
"""What a row of the side-by-side table has."""


@dataclass(frozen=True)
class Shown:
    """An artefact: what ``reproduction.json`` says of it."""

    paper: str
    name: str
    title: str
    experiments: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """What its files are called; also its anchor."""
        return f"{self.paper}-{self.name}"


@dataclass(frozen=True)
class Reproduced:
    """All of ``reproduction.json`` and of ``side-by-side.json``.

    Attributes
    ----------
    quick : bool
        Whether at the small scale.
    left_out : dict
        Artefacts that were not run, and why.
    artefacts : list of Shown
    rows : list of dict
        Claims beside our numbers; none where there is no claim.
    seeds : tuple of int or None
        Instead of each artefact's own.
    version : str
        Of gangwise, that wrote them.
    """

    quick: bool
    left_out: dict[str, str]
    artefacts: list[Shown]
    rows: list[dict[str, Any]]
    seeds: tuple[int, ...] | None = None
    version: str = ""


def read_reproduction(folder: Path) -> Reproduced:
    """Read a folder.

    Raises
    ------
    StoreError
        When a file is torn, or is no such file.
    """
    path = folder / "reproduction.json"
    about = _read(path)
    try:
        quick, left_out = bool(about["quick"]), dict(about["left_out"])
        artefacts = [
            Shown(a["paper"], a["name"], a["title"], tuple(a["experiments"]))
            for a in about["artefacts"]
        ]
        seeds, version = about.get("seeds"), str(about.get("version", ""))
        own = None if seeds is None else tuple(map(int, seeds))
    except (KeyError, TypeError, ValueError) as error:
        raise _torn(path, repr(error)) from error
    path = folder / "side-by-side.json"
    rows: list[dict[str, Any]] = _read(path) if path.exists() else []
    for i, row in enumerate(rows):
        if not isinstance(row, dict) or not set(row) >= ROW:
            raise _torn(path, f"entry {i} is no row of the table")
    return Reproduced(quick, left_out, artefacts, rows, own, version)


def read_picture(folder: Path, artefact: Shown) -> str:
    """The picture of an artefact as SVG; empty where there is none.

    Raises
    ------
    StoreError
        When it is torn.
    """
    path = folder / f"{artefact.stem}.svg"
    if not path.exists():
        return ""
    try:
        svg = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise _torn(path, str(error)) from error
    if "<svg" not in svg or not svg.rstrip().endswith("</svg>"):
        raise _torn(path, "it is not a whole picture")
    return svg


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _torn(path, str(error)) from error


def _torn(path: Path, what: str) -> StoreError:
    return StoreError(
        f"cannot read {path}: {what}; run the same gangwise reproduce again, runs that are stored "
        "are not done again"
    )
