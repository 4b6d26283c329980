"""Fill the tables and pictures of these pages from the committed results.

Run it as ``python docs/papers/fill.py``. Between a mark such as ``<!-- claims -->`` and the next
``<!-- end -->`` stands what is made here; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from html import escape
from pathlib import Path

from gangwise.experiments.statistics import estimate_text
from gangwise.report.pages import VERDICTS, ClaimResult, called, claims_by_word
from gangwise.reproduce import OWN, PAPERS, artefacts, expected
from gangwise.reproduce.expected import artefact_markdown
from gangwise.reproduce.papers import AT, ON_ROWS, Artefact, Claim

PAGES = [*(f"{paper}{part}.md" for paper in OWN for part in ("", "-appendix")), "field.md"]
FOLDER = Path(__file__).parent

WIDTH, LABEL, LINE, ROOM = 800, 400, 18, 70
"""Of a strip, of the names at its left, of a row of it, and between numbers below, in pixels; the
longest name has 67 letters of six pixels each."""

TOO_SHORT = "played over 5 to 100 slots with three seeds only, which is no test"


def best_reading(artefact: Artefact) -> str:
    """The reading that fits the paper's numbers best at full scale; empty where none does."""
    _, best = expected.with_verdicts(
        artefact, expected.rows_of(artefact, expected.read(quick=False))
    )
    return ", ".join(filter(None, best)) if best else ""


def companion(artefact: Artefact) -> tuple[str, Artefact] | None:
    """The same artefact in the other setting, and what that is called."""
    names = {a.name: a for a in artefacts(artefact.paper)}
    for ending, setting in ((ON_ROWS, "rows of the traces"), ("-synthetic", "synthetic jobs")):
        if artefact.name + ending in names:
            return setting, names[artefact.name + ending]
    return None


def headlines(paper: str) -> list[tuple[Artefact, Claim]]:
    """The ten claims of a page; those about figures before those about theorems."""
    found = [
        (artefact, claim)
        for artefact in artefacts(paper)
        if not artefact.name.endswith((ON_ROWS, "-synthetic"))
        for claim in artefact.claims
        if claim.sentence
    ]
    return sorted(found, key=lambda one: one[0].name.startswith(("theorem", "corollary")))


@cache
def every_row(artefact: Artefact) -> list[ClaimResult]:
    """The committed results of full scale.

    What was played at the quick scale alone, on rows of the traces, is shown and not tested.
    """
    full = expected.rows([artefact], quick=False)
    known = {row.says for row in full}
    brief = (
        expected.rows_of(artefact, expected.read(quick=True))
        if artefact.name.endswith(ON_ROWS)
        else []
    )
    return full + [replace(r, agrees=None, why=TOO_SHORT) for r in brief if r.says not in known]


def _rows(artefact: Artefact, says: str) -> list[ClaimResult]:
    return [row for row in every_row(artefact) if row.says == says]


def _word(rows: list[ClaimResult]) -> str:
    [word] = [verdict for verdict, n in claims_by_word(rows).items() if n]
    return word


def _number(row: ClaimResult) -> str:
    """Our number with its version, and what it is of that."""
    return f"{row.version}: {estimate_text(row.ours)}"


def _ours(rows: list[ClaimResult], best: str) -> str:
    """The number that decides, of the rows of a claim, and how many others there are."""
    tested = [row for row in rows if row.agrees is not None]
    if not tested:
        return rows[0].why.partition(";")[0]
    number = rows[0].number if isinstance(rows[0].number, float) else 0.0

    def order(row: ClaimResult) -> tuple[bool, bool, float]:
        fits = row.version.replace(AT, ", ") == best
        return not row.agrees, not fits, abs(row.ours.mean - number)

    chosen = min(tested, key=order)
    agree = sum(row.agrees is True for row in tested)
    return f"{_number(chosen)}{' ✓' * bool(chosen.agrees)}; {agree} of {len(tested)} readings agree"


def claims_block(paper: str) -> str:
    """Ten claims, each with its numbers, a strip of both, the word and why."""
    parts = []
    for i, (artefact, claim) in enumerate(headlines(paper), 1):
        settings = [("", artefact), *filter(None, [companion(artefact)])]
        known = [(name, a, _rows(a, claim.says)) for name, a in settings]
        known = [one for one in known if one[2]]
        words = [_word(rows) for _, _, rows in known]
        word = min(words, key=VERDICTS.index) if "reproduced" in words else words[0]
        if "underdetermined" in words and word != "reproduced":
            word = "underdetermined"
        said = f"{claim.paper:g}" if isinstance(claim.paper, float) else claim.paper
        said = said.replace("|", "\\|")
        heads = "".join(f"| {name or 'ours'} " for name, _, _ in known)
        cells = "".join(
            f"| *{_word(rows)}*: {_ours(rows, best_reading(a))} " for _, a, rows in known
        )
        whys = f"\n\nWhy: {claim.why}." * bool(claim.why)
        parts.append(
            f"### {i}. {claim.sentence} *{word.capitalize()}.*\n\n"
            f"{called(paper, artefact.name)}: {claim.says}. Its rule: {claim.rule.text}.\n\n"
            f"| the paper {heads}|\n|---{'|---' * len(known)}|\n| {said} {cells}|\n\n"
            f"{strip(claim, known)}{whys}\n"
        )
    return "\n".join(parts)


def _marks(
    known: list[tuple[str, Artefact, list[ClaimResult]]],
) -> Iterator[tuple[str, list[ClaimResult]]]:
    """The rows of a strip: a version of the algorithm each, with all its readings of the traces."""
    for setting, _, rows in known:
        if setting and not any(row.agrees is not None for row in rows):
            continue  # not played at length
        versions = dict.fromkeys(row.version.partition(AT)[0] for row in rows)
        for version in versions:
            of = [row for row in rows if row.version.partition(AT)[0] == version]
            yield ", ".join(filter(None, (version, setting))), of


def strip(claim: Claim, known: list[tuple[str, Artefact, list[ClaimResult]]]) -> str:
    """Our numbers beside what the paper says, on one line each."""
    rule, marks = claim.rule, list(_marks(known))
    near = (
        []
        if rule.near is None
        else [rule.near - (w := rule.within * abs(rule.near)), rule.near + w]
    )
    levels = [v for v in (*near, rule.above, rule.below) if v is not None]
    own = [row.ours.mean for row in known[0][2]] + levels
    reach = max(max(own) - min(own), 1e-9)
    everything = [row.ours.mean for _, rows in marks for row in rows] + levels
    least = max(min(everything), min(own) - reach)
    most = min(max(everything), max(own) + reach)
    pad = 0.06 * (most - least)
    least, most = least - pad, most + pad

    def x(value: float) -> float:
        inside = min(max(value, least), most)
        return LABEL + (WIDTH - LABEL - 10) * (inside - least) / (most - least)

    height = LINE * len(marks) + 24
    low = least if rule.above is None and not near else near[0] if near else rule.above
    high = most if rule.below is None and not near else near[1] if near else rule.below
    said = "the paper" if rule.near is None else f"the paper: {rule.near:g}"
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" style="width:100%;max-width:{WIDTH}px" '
        f'font-size="11" fill="currentColor"><title>{escape(claim.says)}</title>',
        f'<rect x="{x(low):.1f}" y="0" width="{max(x(high) - x(low), 1):.1f}" '
        f'height="{height - 18}" fill="#d97706" opacity=".25"/>',
    ]
    if rule.near is not None:
        parts.append(_line(x(rule.near), 0, x(rule.near), height - 18, "#b45309", 2))
    if least < 0 < most:
        parts.append(_line(x(0), 0, x(0), height - 18, "#888", 1))
    for i, (name, rows) in enumerate(marks):
        y = LINE * i + LINE / 2
        parts.append(f'<text x="{LABEL - 8}" y="{y + 4:g}" text-anchor="end">{escape(name)}</text>')
        for row in rows:
            colour = {True: "#15803d", False: "#2563eb", None: "#888"}[row.agrees]
            low_end, high_end = row.ours.low, row.ours.high
            if len(rows) == 1 and low_end is not None and high_end is not None:
                parts.append(_line(x(low_end), y, x(high_end), y, colour, 2))
            fill = "none" if row.agrees is None else colour
            parts.append(
                f'<circle cx="{x(row.ours.mean):.1f}" cy="{y:g}" r="4" fill="{fill}" '
                f'stroke="{colour}"><title>{escape(_number(row))}</title></circle>'
            )
    ticks = [rule.near] if rule.near is not None else levels
    for value in (least + pad, most - pad):  # where there is room
        if all(abs(x(value) - x(tick)) > ROOM for tick in ticks):
            ticks.append(value)
    for value in ticks:
        text = said if value == rule.near else f"{value:.3g}".replace("-", "−")
        at = f'<text x="{x(value):.1f}" y="{height - 5}" text-anchor="middle">'
        parts.append(f"{at}{text}</text>")
    return "".join(parts) + "</svg>"


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: int) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:g}" x2="{x2:.1f}" y2="{y2:g}" stroke="{colour}" '
        f'stroke-width="{width}"/>'
    )


def readings_block(paper: str) -> str:
    """Which reading reproduces each artefact best."""
    lines = ["| | best reading | reproduced, of tested |", "|---|---|---|"]
    for artefact in artefacts(paper):
        words = claims_by_word(every_row(artefact))
        tested = words.total() - words["not tested"]
        best = best_reading(artefact) or (
            "not tested" if not tested else "every version" if words["reproduced"] else "none"
        )
        name = called(paper, artefact.name)
        lines.append(f"| {name} | {best} | {words['reproduced']} of {tested} |")
    return "\n".join(lines) + "\n"


def counts_block() -> str:
    """Claims by word, by paper and by setting."""
    lines = [f"| | claims | {' | '.join(VERDICTS)} |", "|---|---|" + "---|" * len(VERDICTS)]
    for paper in OWN:
        others = {ON_ROWS: "rows of the traces", "-synthetic": "synthetic jobs"}
        for ending, setting in (("", "the paper's setting"), *others.items()):
            mine = [
                a
                for a in artefacts(paper)
                if (a.name.endswith(ending) if ending else not a.name.endswith(tuple(others)))
            ]
            if mine:
                words = claims_by_word([row for artefact in mine for row in every_row(artefact)])
                each = " | ".join(str(words[verdict]) for verdict in VERDICTS)
                name = called(paper, "").removesuffix(", ")
                lines.append(f"| {name}, {setting} | {words.total()} | {each} |")
    return "\n".join(lines) + "\n"


def filled(name: str) -> str:
    """A page with all that is made here."""
    paper = name.partition("-appendix")[0].removesuffix(".md")
    page = (FOLDER / name).read_text(encoding="utf-8")
    tables = {}
    if paper in PAPERS:
        for artefact in artefacts(paper) if "-appendix" in name or paper not in OWN else ():
            rows = every_row(artefact)
            tables[f"table {artefact.name}"] = artefact_markdown(rows) if rows else "No results.\n"
        tables |= {"claims": claims_block(paper), "readings": readings_block(paper)}
    tables["counts"] = counts_block()

    def block(found: re.Match[str]) -> str:
        return f"{found[1]}\n\n{tables[found[2]]}\n<!-- end -->"

    return re.sub(r"(<!-- ([\w -]+?) -->)\n.*?<!-- end -->", block, page, flags=re.DOTALL)


if __name__ == "__main__":
    for name in (*PAGES, "what-changed.md"):
        (FOLDER / name).write_text(filled(name), encoding="utf-8")
