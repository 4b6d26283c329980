"""The report of ``gangwise reproduce``: the papers' numbers beside ours, then every artefact."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import gangwise
from gangwise.core.errors import StoreError
from gangwise.experiments.statistics import Estimate, decimals_for, estimate_text, number
from gangwise.report.again import again
from gangwise.report.page import document, drawing, fold, prose, section
from gangwise.report.reproduction_files import Shown, read_picture, read_reproduction
from gangwise.report.tables import Cell, Sheet, html_table

VERDICTS = ("agrees", "differs", "open")


def reproduction_page(folder: Path) -> str:
    """The page of a folder that ``gangwise reproduce`` wrote."""
    found = read_reproduction(folder)
    artefacts, rows = found.artefacts, found.rows
    papers = list(dict.fromkeys(a.paper for a in artefacts))
    scale = "quick: fewer slots, seeds and cells than the papers" if found.quick else "full scale"
    byline = f"{', '.join(papers)}; {scale}; gangwise {gangwise.__version__}"
    parts = [
        "<header><h1>The papers' numbers beside ours</h1>"
        f'<p class="byline">{escape(byline)}</p></header>',
        f'<p class="lead">{prose(_lead(rows, artefacts))}</p>',
        _left_out(found.left_out),
        _overview(artefacts, rows),
        _side_by_side(rows, papers),
        *(_artefact(folder, artefact, rows) for artefact in artefacts),
        _timings(folder, artefacts),
        again(folder, "reproduction"),
    ]
    return document("gangwise reproduce", parts, _filters(papers))


def _lead(rows: Sequence[dict[str, Any]], artefacts: Sequence[Shown]) -> str:
    n = len(artefacts)
    shown = "1 artefact" if n == 1 else f"{n} artefacts"
    if not rows:
        return f"{shown}, without a claim to compare."
    count = {name: sum(row["verdict"] == name for row in rows) for name in VERDICTS}
    claims = len({(row["paper"], row["artefact"], row["says"]) for row in rows})
    return (
        f"{shown}, {claims} {'claim' if claims == 1 else 'claims'}, {len(rows)} comparisons: "
        f"{count['agrees']} agree with the paper, {count['differs']} differ, {count['open']} "
        "are open."
    )


def _left_out(left_out: dict[str, str]) -> str:
    if not left_out:
        return ""
    listed = "".join(f"<li>{escape(stem)}: {prose(why)}</li>" for stem, why in left_out.items())
    return f'<div class="note"><p>Left out:</p><ul>{listed}</ul></div>'


def _overview(artefacts: Sequence[Shown], rows: Sequence[dict[str, Any]]) -> str:
    """Every artefact with its verdicts, and the way to it."""
    if len(artefacts) < 2:
        return ""
    sheet = Sheet(
        "Artefacts",
        ("what it shows", *VERDICTS),
        tuple(
            (
                f"{a.paper} {a.name}",
                (Cell(a.title, words=True), *(_count(a, verdict, rows) for verdict in VERDICTS)),
            )
            for a in artefacts
        ),
        (
            "How many comparisons of the paper's numbers and statements with ours came out so; "
            "open: "
            "the interval is too wide to tell.",
        ),
        "artefact",
    )
    return section("What was reproduced", html_table(sheet, link=lambda i: artefacts[i].stem))


def _count(artefact: Shown, verdict: str, rows: Sequence[dict[str, Any]]) -> Cell:
    """How many comparisons of an artefact came out so."""
    n = sum(
        row["verdict"] == verdict and f"{row['paper']}-{row['artefact']}" == artefact.stem
        for row in rows
    )
    return Cell(str(n), n)


def _side_by_side(rows: Sequence[dict[str, Any]], papers: Sequence[str]) -> str:
    if not rows:
        return ""
    sheet = Sheet(
        "Every claim",
        ("where", "the paper", "version", "ours", "verdict"),
        tuple(
            (
                row["says"],
                (
                    Cell(f"{row['paper']} {row['artefact']}", words=True, mark="short"),
                    _paper(row),
                    Cell(row["version"], words=True),
                    _ours(row),
                    Cell(row["verdict"], words=True, mark=row["verdict"]),
                ),
            )
            for row in rows
        ),
        (
            "± is half the 95 % confidence interval over seeds. A number of a paper agrees when "
            "our "
            "mean is near it, a statement when all of our interval is on its side; it is open when "
            "the interval reaches both ways. Why each differs, or may, is said with its artefact "
            "below. As printed: the paper's algorithm to the letter; other versions are corrected.",
        ),
        "claim",
    )
    return section(
        "Side by side",
        _choice("verdict", ["agrees", "differs", "open"]),
        _choice("paper", papers) if len(papers) > 1 else "",
        html_table(
            sheet,
            link=lambda i: f"{rows[i]['paper']}-{rows[i]['artefact']}",
            row=lambda i: f' data-paper="{rows[i]["paper"]}" data-verdict="{rows[i]["verdict"]}"',
        ),
    )


def _choice(of: str, values: Sequence[str]) -> str:
    """Radio buttons that show some of the rows; style sheets do it, without a script."""
    each = "".join(
        f'<label><input type="radio" name="{of}" id="{of}-{value}"'
        f"{' checked' if value == 'all' else ''}> {value}</label>"
        for value in ("all", *values)
    )
    return f'<fieldset class="choice"><legend>{of}</legend>{each}</fieldset>'


def _filters(papers: Sequence[str]) -> str:
    """CSS that hides the rows that were not chosen."""
    return "".join(
        f'section:has(#{of}-{value}:checked) tr[data-{of}]:not([data-{of}="{value}"]) '
        "{ display: none; }\n"
        for of, values in (("verdict", VERDICTS), ("paper", papers))
        for value in values
    )


def _artefact(folder: Path, artefact: Shown, every: Sequence[dict[str, Any]]) -> str:
    stem = artefact.stem
    rows = [row for row in every if f"{row['paper']}-{row['artefact']}" == stem]
    title = f"{artefact.paper} {artefact.name}: {artefact.title}"
    content = []
    svg = read_picture(folder, artefact)
    if svg:
        caption = f"The numbers are in {stem}.csv and {stem}.parquet."
        content.append(drawing(svg, re.sub(r"\W", "", stem), title, caption))
    if rows:
        says = list(dict.fromkeys(row["says"] for row in rows))
        sheet = Sheet(
            "What the paper says, and what we found",
            ("the paper", "version", "ours", "verdict"),
            tuple(
                (
                    row["says"],
                    (
                        _paper(row),
                        Cell(row["version"], words=True),
                        _ours(row),
                        Cell(row["verdict"], words=True, mark=row["verdict"]),
                    ),
                )
                for row in rows
            ),
            (),
            "claim",
        )
        content.append(html_table(sheet))
        why = {each: {r["why"] for r in rows if r["says"] == each and r["why"]} for each in says}
        reasons: dict[str, list[str]] = {}
        for each, given in why.items():
            for reason in given:
                reasons.setdefault(reason, []).append(each)
        listed = "".join(
            f"<li>{prose('; '.join(of))}: {prose(reason)}.</li>" for reason, of in reasons.items()
        )
        if listed:
            content.append(f"<p>Where ours differs, or may, and why:</p><ul>{listed}</ul>")
    return section(title, *content, anchor=stem)


def _paper(row: dict[str, Any]) -> Cell:
    given = row["the paper"]
    if isinstance(given, int | float):
        return Cell(f"{given:,.10g}".replace("-", "−"), given)  # as the paper prints it
    return Cell(str(given), mark="said")


def _ours(row: dict[str, Any]) -> Cell:
    found = Estimate(
        *(math.nan if row[k] is None and k == "ours" else row[k] for k in ("ours", "low", "high"))
    )
    return Cell(estimate_text(found, decimals_for([found])), found.mean)


def _timings(folder: Path, artefacts: Sequence[Shown]) -> str:
    """How long the runs of each experiment took."""
    from gangwise.experiments.results import Results
    from gangwise.report.sweep_numbers import SweepNumbers
    from gangwise.report.sweep_tables import run_times

    rows, unread = [], []
    for name in dict.fromkeys(name for a in artefacts for name in a.experiments):
        try:
            results = Results.open(folder / "runs", name)
        except StoreError as error:  # all else on the page is there without the runs
            unread.append(f'<p class="note">{prose(str(error))}</p>')
            continue
        if not results.runs:
            continue
        seconds = run_times(SweepNumbers(results))
        rows.append(
            (
                name,
                (
                    Cell(", ".join(a.stem for a in artefacts if name in a.experiments), words=True),
                    Cell(number(len(results.runs)), len(results.runs)),
                    Cell(number(seconds, 1), seconds),
                ),
            )
        )
    if not rows:
        return section("Timings", *unread) if unread else ""
    sheet = Sheet(
        "Experiments",
        ("for", "runs", "seconds"),
        tuple(rows),
        (
            "Seconds of all runs one after the other, on the machines that ran them. A run that "
            "several experiments share is counted with each and was done once.",
        ),
        "experiment",
    )
    title = "1 experiment" if len(rows) == 1 else f"{len(rows)} experiments"
    return section("Timings", fold(title, html_table(sheet)), *unread)
