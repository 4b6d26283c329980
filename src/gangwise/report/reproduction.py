"""What ``gangwise reproduce`` left in a folder: read, checked, and as tables of claims."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl
from pydantic import TypeAdapter

import gangwise
from gangwise.core.errors import StoreError
from gangwise.experiments.statistics import Estimate, count, decimals_for, estimate_text, number
from gangwise.report.curves import BANDS
from gangwise.report.page import (
    Bullets,
    Chapter,
    Choices,
    Fold,
    Page,
    Part,
    Plot,
    Section,
    Text,
    pictured,
)
from gangwise.report.plotting import COLUMNS, Panel
from gangwise.report.provenance import made_in
from gangwise.report.tables import Cell, Sheet, value_cell
from gangwise.report.words import sentence_case, words

Verdict = Literal["reproduced", "not reproduced", "underdetermined", "not tested"]
"""The word for a claim: it agrees in the reading of the paper that fits its figure best; in none;
in other readings only; or nothing is compared.
"""


@dataclass(frozen=True)
class ClaimResult:
    paper: str
    artefact: str
    says: str
    version: str
    number: float | str  # the paper's
    ours: Estimate
    verdict: Verdict  # of the claim; "not tested" in a row that it is not about
    why: str
    rule: str = ""  # when ours agrees
    agrees: bool | None = None  # whether this number does; None where nothing is compared
    # Over how many readings of what the paper leaves open this is: `ours` is then the mean of their
    # means, between the smallest and the largest. 0: it is of one.
    readings: int = 0
    agreeing: int = 0  # in how many of them ours agrees
    timed: bool = False  # a computation time, which no run finds again: committed, not compared

    @property
    def text(self) -> str:
        decimals = decimals_for([self.ours])
        if not self.readings:
            return estimate_text(self.ours, decimals)
        low, high = (number(self.ours.mean if v is None else v, decimals) for v in self.ours[1:])
        agrees = "" if self.agrees is None else f", agrees in {self.agreeing}"
        return f"{low} to {high} over {self.readings} readings{agrees}"

    @property
    def stem(self) -> str:
        return f"{self.paper}-{self.artefact}"

    @property
    def id(self) -> str:
        return f"{self.paper} {self.artefact}: {self.says} [{self.version}]"

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> ClaimResult:
        given = {name: plain[key] for name, key in _COLUMNS.items() if key in plain}
        mean = math.nan if plain["ours"] is None else plain["ours"]
        return cls(**given, ours=Estimate(mean, plain["low"], plain["high"]))

    def as_dict(self) -> dict[str, Any]:
        plain = {key: getattr(self, name) for name, key in _COLUMNS.items()}
        ours = dict(zip(("ours", "low", "high"), self.ours))
        first = ("paper", "artefact", "says", "version", "the paper")
        return {key: plain.pop(key) for key in first} | ours | plain


_COLUMNS = {
    each.name: "the paper" if each.name == "number" else each.name
    for each in fields(ClaimResult)
    if each.name not in ("ours", "timed")
}
"""What the fields of a row are called in files."""


@dataclass(frozen=True)
class ArtefactEntry:
    """An artefact: what ``reproduction.json`` says of it."""

    paper: str
    name: str
    title: str
    experiments: tuple[str, ...] = ()
    panels: tuple[Panel, ...] = ()  # how its numbers are drawn; none in folders of old versions

    @property
    def stem(self) -> str:
        return f"{self.paper}-{self.name}"

    @property
    def called(self) -> str:
        return called(self.paper, self.name)


def called(paper: str, name: str) -> str:
    """An artefact as a reader would say it.

    >>> called("ogasched", "figure-2"), called("opm", "figure-1-synthetic")
    ('OGASched, figure 2', 'OPS and OPM, figure 1, synthetic')
    """
    return f"{PAPERS.get(paper, paper)}, {name.replace('-', ' ', 1).replace('-', ', ')}"


PAPERS = {"ogasched": "OGASched", "esdp": "ESDP", "opm": "OPS and OPM", "field": "The field"}
"""What papers are called."""


@dataclass(frozen=True, kw_only=True)
class Reproduced:
    version: str = ""  # of gangwise
    quick: bool  # whether at the small scale
    seeds: tuple[int, ...] | None = None  # instead of each artefact's own
    artefacts: list[ArtefactEntry]
    left_out: dict[str, str]  # artefacts that were not run, and why
    rows: list[ClaimResult] = field(default_factory=list)  # claims beside our numbers


def read_reproduction(folder: Path) -> Reproduced:
    """Read a folder; StoreError when a file is torn, or is no such file."""
    path = folder / "reproduction.json"
    try:
        found = TypeAdapter(Reproduced).validate_json(path.read_bytes())
        path = folder / "side-by-side.json"
        rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        return replace(found, rows=[ClaimResult.of(row) for row in rows])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise _torn(path, error) from error


def read_picture(folder: Path, artefact: ArtefactEntry) -> Plot | None:
    """The picture of an artefact, drawn from its numbers; None without, StoreError when torn."""
    caption = f"The numbers are in {artefact.stem}.csv and {artefact.stem}.parquet."
    path = folder / f"{artefact.stem}.parquet"
    if not (artefact.panels and path.exists()):
        return None
    try:
        numbers = pl.read_parquet(path, columns=[*COLUMNS])
        if numbers["low"].is_not_null().any():
            many = numbers["line"].n_unique() > BANDS
            caption += " Bands and bars are 95 % confidence intervals"
            caption += "; point at a name for the band of its line." if many else "."
        return pictured(sentence_case(artefact.title), numbers, artefact.panels, caption)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _torn(path, error) from error


def _torn(path: Path, error: Exception) -> StoreError:
    what = " ".join(str(error).split()[:15])  # those of pydantic are long
    return StoreError(
        f"cannot read {path}: {what}; run the same gangwise reproduce again, runs that are stored "
        "are not done again"
    )


VERDICTS = get_args(Verdict)


def claims_by_word(rows: Iterable[ClaimResult]) -> Counter[str]:
    """How many claims have which word; a claim has that of its tested rows."""
    words: dict[tuple[str, str], str] = {}
    for row in rows:
        if words.get((row.stem, row.says), "not tested") == "not tested":
            words[row.stem, row.says] = row.verdict
    found = Counter(words.values())
    return Counter({verdict: found[verdict] for verdict in VERDICTS})


SMALL = ("agrees", "differs", "agrees in another reading", "not compared")
"""What stands for each verdict at the small scale, at which nothing is judged."""


def verdict_text(verdict: Verdict, quick: bool) -> str:
    return SMALL[VERDICTS.index(verdict)] if quick else verdict


def counts(rows: Iterable[ClaimResult], quick: bool = False) -> str:
    """How many claims came out how.

    Examples
    --------
    >>> one = ClaimResult("p", "a", "s", "v", 1.0, Estimate(1.0, None, None), "reproduced", "")
    >>> counts([one])
    '1 claim: 1 reproduced, 0 not reproduced, 0 underdetermined, 0 not tested'
    """
    found = claims_by_word(rows)
    if quick:
        small = "played small (--quick), which is no verdict"
        return f"{count(found.total(), 'claim')}, {small}; agree: {found['reproduced']}"
    each = ", ".join(f"{n} {verdict}" for verdict, n in found.items())
    return f"{count(found.total(), 'claim')}: {each}"


def lead(found: Reproduced) -> str:
    shown = count(len(found.artefacts), "artefact")
    return (
        f"{shown}, {counts(found.rows, found.quick)}."
        if found.rows
        else f"{shown}, without a claim."
    )


def overview_sheet(found: Reproduced) -> Sheet:
    each = {
        a.stem: claims_by_word(r for r in found.rows if r.stem == a.stem) for a in found.artefacts
    }
    return Sheet(
        "Artefacts",
        ("what it shows", *(verdict_text(each, found.quick) for each in VERDICTS)),
        tuple(
            (a.called, (Cell(a.title, words=True), *map(value_cell, each[a.stem].values())))
            for a in found.artefacts
        ),
        (words("captions")["artefacts"],),
        "artefact",
        links=[artefact.stem for artefact in found.artefacts],
    )


def claims_sheet(found: Reproduced) -> Sheet:
    return Sheet(
        "Every claim",
        ("where", "the paper", "version", "ours", "verdict"),
        tuple(
            (
                row.says,
                (Cell(called(row.paper, row.artefact), words=True), *_cells(row, found.quick)),
            )
            for row in found.rows
        ),
        (words("captions")["claims"],),
        "claim",
        links=[row.stem for row in found.rows],
        data=[
            {"paper": row.paper, "verdict": verdict_text(row.verdict, found.quick)}
            for row in found.rows
        ],
    )


def artefact_section(folder: Path, artefact: ArtefactEntry, found: Reproduced) -> Section:
    rows = [row for row in found.rows if row.stem == artefact.stem]
    picture = read_picture(folder, artefact)
    parts: list[Part] = [] if picture is None else [picture]
    if rows:
        parts.append(
            Sheet(
                "What the paper says, and what we found",
                ("the paper", "version", "ours", "verdict"),
                tuple((row.says, _cells(row, found.quick)) for row in rows),
                (),
                "claim",
            )
        )
    reasons: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.why:
            reasons.setdefault(row.why, {})[row.says] = None
    if reasons:
        each = [f"{'; '.join(of)}: {reason}." for reason, of in reasons.items()]
        parts += [Text("Where ours differs, or may, and why:"), Bullets(each)]
    title = artefact.called if picture is not None else f"{artefact.called}: {artefact.title}"
    return Section(title, parts, artefact.stem)


def page(folder: Path) -> Page:
    found = read_reproduction(folder)
    papers = list(dict.fromkeys(a.paper for a in found.artefacts))
    named = ", ".join(PAPERS.get(paper, paper) for paper in papers)
    scale = "quick: fewer slots, seeds and cells than the papers" if found.quick else "full scale"
    parts: list[Part] = [Text(lead(found), "lead")]
    if found.left_out:
        parts.append(Text("Left out:", "note"))
        parts.append(Bullets([f"{stem}: {why}" for stem, why in found.left_out.items()]))
    if len(found.artefacts) > 1:
        parts.append(Section("What was reproduced", [overview_sheet(found)]))
    if found.rows:
        n = len(found.rows)
        by = "by verdict and paper" if len(papers) > 1 else "by verdict"
        verdicts = [verdict_text(each, found.quick) for each in VERDICTS]
        claims: list[Part] = [Choices({"verdict": verdicts, "paper": papers}), claims_sheet(found)]
        fold = Fold(f"{n} comparisons, {by}", claims, opened=n <= 20)
        parts.append(Section("Side by side", [fold]))
    parts += [artefact_section(folder, a, found) for a in found.artefacts]
    shown = [f"{a.stem}.{ending}" for a in found.artefacts for ending in ("parquet", "svg")]
    parts.append(
        made_in(folder, "reproduction", ["reproduction.json", "side-by-side.json", *shown])
    )
    title = "The papers' numbers beside ours"
    byline = "; ".join([named, scale, f"gangwise {gangwise.__version__}"])
    return Page(title, [Chapter(title, byline, parts)])


_MARKS = {"reproduced": "agrees", "not reproduced": "differs"}
"""Classes of verdicts, which have a sign beside their word on a page."""


def _cells(row: ClaimResult, quick: bool) -> tuple[Cell, ...]:
    given = row.number
    if isinstance(given, str):
        paper = Cell(given, mark="said")
    else:
        paper = Cell(f"{given:,.10g}".replace("-", "−"), given)  # as the paper prints it
    return (
        paper,
        Cell(row.version, words=True),
        Cell(row.text, row.ours.mean),
        Cell(verdict_text(row.verdict, quick), words=True, mark=_MARKS.get(row.verdict, "open")),
    )
