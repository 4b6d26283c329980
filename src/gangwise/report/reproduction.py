"""What ``gangwise reproduce`` left in a folder: read, checked, and as tables of claims."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from gangwise.core.errors import StoreError
from gangwise.experiments.results import Results
from gangwise.experiments.statistics import Estimate, decimals_for, estimate_text, number
from gangwise.report.figures import BANDS
from gangwise.report.numbers import Numbers, run_times
from gangwise.report.plotting import Panel
from gangwise.report.rendering import Drawn, pictured
from gangwise.report.tables import Cell, Sheet, count_cell
from gangwise.report.words import sentence_case

ROW = {"paper", "artefact", "says", "version", "the paper", "ours", "low", "high", "verdict", "why"}
"""What a row of the side-by-side table has."""


@dataclass(frozen=True)
class Shown:
    """An artefact: what ``reproduction.json`` says of it.

    Attributes
    ----------
    paper, name, title : str
    experiments : tuple of str
    panels : tuple of Panel
        How its numbers are drawn; empty in folders of earlier versions.
    """

    paper: str
    name: str
    title: str
    experiments: tuple[str, ...] = ()
    panels: tuple[Panel, ...] = ()

    @property
    def stem(self) -> str:
        """What its files are called; also its anchor."""
        return f"{self.paper}-{self.name}"

    @property
    def called(self) -> str:
        """As a reader would say it."""
        return called(self.paper, self.name)


def called(paper: str, name: str) -> str:
    """An artefact as a reader would say it.

    >>> called("ogasched", "figure-2"), called("opm", "figure-1-synthetic")
    ('OGASched, figure 2', 'OPS and OPM, figure 1, synthetic')
    """
    return f"{PAPERS.get(paper, paper)}, {name.replace('-', ' ', 1).replace('-', ', ')}"


PAPERS = {"ogasched": "OGASched", "esdp": "ESDP", "opm": "OPS and OPM"}
"""What papers are called."""


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
            Shown(
                a["paper"],
                a["name"],
                a["title"],
                tuple(a["experiments"]),
                tuple(Panel(**panel) for panel in a.get("panels", ())),
            )
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


def read_picture(folder: Path, artefact: Shown) -> Drawn | None:
    """The picture of an artefact, drawn from its numbers; None where there is none.

    Where the folder does not say how they are drawn, it is the picture that lies there.

    Raises
    ------
    StoreError
        When numbers or picture are torn.
    """
    caption = f"The numbers are in {artefact.stem}.csv and {artefact.stem}.parquet."
    path = folder / f"{artefact.stem}.parquet"
    if artefact.panels and path.exists():
        try:
            numbers = pl.read_parquet(path)
            if numbers["low"].is_not_null().any():
                many = numbers["line"].n_unique() > BANDS
                caption += " Bands and bars are 95 % confidence intervals"
                caption += "; point at a name for the band of its line." if many else "."
            title = sentence_case(artefact.title)
            return pictured(title, numbers, artefact.panels, caption)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise _torn(path, str(error)) from error
    path = folder / f"{artefact.stem}.svg"
    if not path.exists():
        return None
    try:
        svg = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise _torn(path, str(error)) from error
    if "<svg" not in svg or not svg.rstrip().endswith("</svg>"):
        raise _torn(path, "it is not a whole picture")
    return Drawn((svg,), artefact.title, caption, titled=True)


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


VERDICTS = ("agrees", "other-size", "differs", "open", "depends")
"""What counts; a number about which a paper says nothing is shown and counts nowhere."""


def lead(found: Reproduced) -> str:
    """How many claims of the papers agree."""
    rows, n = found.rows, len(found.artefacts)
    shown = "1 artefact" if n == 1 else f"{n} artefacts"
    if not rows:
        return f"{shown}, without a claim to compare."
    count = {name: sum(row["verdict"] == name for row in rows) for name in VERDICTS}
    compared = [row for row in rows if row["verdict"] in VERDICTS]
    claims = len({(row["paper"], row["artefact"], row["says"]) for row in compared})
    return (
        f"{shown}, {claims} {'claim' if claims == 1 else 'claims'}, {len(compared)} comparisons: "
        f"{count['agrees']} agree with the paper, {count['other-size']} have its direction and "
        f"another size, {count['differs']} differ, {count['open']} are open"
        + f", {count['depends']} depend on which rows are read" * bool(count["depends"])
        + "."
    )


def overview_sheet(found: Reproduced) -> Sheet:
    """Every artefact with its verdicts."""

    def count(artefact: Shown, verdict: str) -> Cell:
        mine = (row for row in found.rows if _stem(row) == artefact.stem)
        return count_cell(sum(row["verdict"] == verdict for row in mine))

    depends = any(row["verdict"] == "depends" for row in found.rows)
    verdicts = VERDICTS if depends else VERDICTS[:-1]
    return Sheet(
        "Artefacts",
        ("what it shows", *verdicts),
        tuple(
            (a.called, (Cell(a.title, words=True), *(count(a, verdict) for verdict in verdicts)))
            for a in found.artefacts
        ),
        (
            "How many comparisons of the paper's numbers and statements with ours came out so; "
            "other-size: the same direction as the paper's number, but not near it; open: the "
            "interval is too wide to tell"
            + "; depends: on which rows of a trace the paper took" * depends
            + ".",
        ),
        "artefact",
    )


def claims_sheet(found: Reproduced) -> dict[str, Any]:
    """Every claim, where each leads, and by what its row may be chosen."""
    sheet = Sheet(
        "Every claim",
        ("where", "the paper", "version", "ours", "verdict"),
        tuple(
            (row["says"], (Cell(called(row["paper"], row["artefact"]), words=True), *_cells(row)))
            for row in found.rows
        ),
        (
            "± is half the 95 % confidence interval over seeds. A number of a paper agrees when "
            "our mean is near it, a statement when all of our interval is on its side; it is open "
            "when the interval reaches both ways. The margins were fixed before anything was run. "
            "Uncompared: the paper says nothing of it. Why each differs, or may, is said with its "
            "artefact below. As printed: the paper's algorithm to the letter; other versions are "
            "corrected.",
        ),
        "claim",
    )
    return {
        "sheet": sheet,
        "links": [_stem(row) for row in found.rows],
        "data": [{key: row[key] for key in ("paper", "verdict")} for row in found.rows],
    }


def artefact_parts(
    folder: Path, artefact: Shown, every: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The section of an artefact: its picture, its claims, and why ours differ."""
    rows = [row for row in every if _stem(row) == artefact.stem]
    picture = read_picture(folder, artefact)
    told = picture is not None and not picture.titled  # above the picture, which says it then
    title = artefact.called if told else f"{artefact.called}: {artefact.title}"
    sheet = Sheet(
        "What the paper says, and what we found",
        ("the paper", "version", "ours", "verdict"),
        tuple((row["says"], _cells(row)) for row in rows),
        (),
        "claim",
    )
    reasons: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["why"]:
            reasons.setdefault(row["why"], {})[row["says"]] = None
    return {
        "stem": artefact.stem,
        "title": title,
        "prefix": re.sub(r"\W", "", artefact.stem),
        "picture": picture,
        "sheet": sheet if rows else None,
        "reasons": {reason: list(of) for reason, of in reasons.items()},
    }


def timings_sheet(folder: Path, artefacts: Sequence[Shown]) -> tuple[Sheet | None, list[str]]:
    """How long the runs of each experiment took, and which could not be read."""
    rows, unread = [], []
    for name in dict.fromkeys(name for a in artefacts for name in a.experiments):
        try:
            results = Results.open(folder / "runs", name)
        except StoreError as error:  # all else on the page is there without the runs
            unread.append(str(error))
            continue
        if not results.runs:
            continue
        seconds = run_times(Numbers(results))
        of = "; ".join(a.called for a in artefacts if name in a.experiments)
        cells = (
            Cell(of, words=True),
            count_cell(len(results.runs)),
            Cell(number(seconds, 1), seconds),
        )
        rows.append((name, cells))
    if not rows:
        return None, unread
    captions = (
        "Seconds of all runs one after the other, on the machines that ran them. A run that "
        "several experiments share is counted with each and was done once.",
    )
    sheet = Sheet("Experiments", ("for", "runs", "seconds"), tuple(rows), captions, "experiment")
    return sheet, unread


def _stem(row: dict[str, Any]) -> str:
    return f"{row['paper']}-{row['artefact']}"


def _cells(row: dict[str, Any]) -> tuple[Cell, ...]:
    """What the paper says, in which version, and what we found."""
    given = row["the paper"]
    if isinstance(given, int | float):
        paper = Cell(f"{given:,.10g}".replace("-", "−"), given)  # as the paper prints it
    else:
        paper = Cell(str(given), mark="said")
    mean = math.nan if row["ours"] is None else row["ours"]
    ours = Estimate(mean, row["low"], row["high"])
    decimals = decimals_for([ours])
    text = estimate_text(ours, decimals)
    if readings := row.get("readings", 0):
        low, high = (number(mean if v is None else v, decimals) for v in ours[1:])
        text = f"{low} to {high} over {readings} readings"
    return (
        paper,
        Cell(row["version"], words=True),
        Cell(text, ours.mean),
        Cell(row["verdict"], words=True, mark=row["verdict"]),
    )
