"""Fill the tables of these pages from the committed results.

Run it as ``python docs/papers/fill.py``. Between a mark such as ``<!-- claims -->`` and the next
``<!-- end -->`` stands what is made here; a test compares. A claim shows the number that decides
its verdict; ``gangwise reproduce`` writes those of all readings (``side-by-side.md``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from gangwise.papers.reproduce import OWN, PAPERS, artefacts, expected
from gangwise.papers.reproduce.expected import artefact_markdown
from gangwise.papers.reproduce.papers import ON_ROWS, Artefact, Claim
from gangwise.report.pages import AT, VERDICTS, ClaimResult, called, claims_by_word
from gangwise.study.statistics import estimate_text

PAGES = [
    *(f"{paper}{part}.md" for paper in OWN for part in ("", "-appendix")),
    *("field.md", "../how-to/reproduce.md"),
]
FOLDER = Path(__file__).parent

SIGNS = {"reproduced": "✓ ", "not reproduced": "✗ ", "underdetermined": "? ", "not tested": ""}
SETTINGS = {ON_ROWS: "rows of the traces", "-synthetic": "synthetic jobs"}
"""Endings of the artefacts that are played in another setting than the paper's."""

VERSION = re.compile(r"^([✓✗?] )?([^:;]+): (?=[^;]*$)")
OVER = re.compile(r".+ over (\w+) at (.+), %")
MANY = 20  # claims of an artefact that OVER matches: then they are shown as the paper's table


@cache
def best_reading(artefact: Artefact) -> str:
    """The reading that fits the paper's numbers best at full scale; empty where none does."""
    _, best = expected.with_verdicts(
        artefact, expected.rows_of(artefact, expected.read(quick=False))
    )
    return ", ".join(filter(None, best)) if best else ""


def companion(artefact: Artefact) -> Artefact | None:
    """The same artefact in another setting than the paper's."""
    names = {a.name: a for a in artefacts(artefact.paper)}
    found = [names[artefact.name + end] for end in SETTINGS if artefact.name + end in names]
    return found[0] if found else None


def own_artefacts(paper: str) -> list[Artefact]:
    """Those in the paper's setting; the others are columns of their tables."""
    return [a for a in artefacts(paper) if not a.name.endswith(tuple(SETTINGS))]


def headlines(paper: str) -> list[tuple[Artefact, Claim]]:
    """The ten claims of a page; those about figures before those about theorems."""
    found = [(a, claim) for a in own_artefacts(paper) for claim in a.claims if claim.sentence]
    return sorted(found, key=lambda one: one[0].name.startswith(("theorem", "corollary")))


@cache
def every_row(artefact: Artefact) -> list[ClaimResult]:
    """The committed results of full scale.

    Rows of the traces played at the quick scale alone, with three seeds, are shown and not tested.
    """
    full = expected.rows([artefact], quick=False)
    known = {row.says for row in full}
    brief = (
        expected.rows_of(artefact, expected.read(quick=True))
        if artefact.name.endswith(ON_ROWS)
        else []
    )
    return full + [replace(r, agrees=None, why="") for r in brief if r.says not in known]


def _word(rows: Sequence[ClaimResult]) -> str:
    [word] = [verdict for verdict, n in claims_by_word(rows).items() if n]
    return word


def _number(row: ClaimResult) -> str:
    return f"{row.version}: {estimate_text(row.ours)}"


def _cell(artefact: Artefact | None, says: str) -> str:
    """Verdict on a claim in a setting, the number that decides it, how many readings agree."""
    rows = [row for row in every_row(artefact) if row.says == says] if artefact else []
    if artefact is None or not rows:
        return ""
    tested = [row for row in rows if row.agrees is not None]
    if not tested:  # the printed algorithm and ours
        return "; ".join(dict.fromkeys([_number(rows[0]), _number(rows[-1])]))
    best = best_reading(artefact)
    number = rows[0].number if isinstance(rows[0].number, float) else 0.0

    def order(row: ClaimResult) -> tuple[bool, bool, float]:
        fits = row.version.replace(AT, ", ") == best
        return not row.agrees, not fits, abs(row.ours.mean - number)

    agree = sum(row.agrees is True for row in tested)
    many = f" ({agree} of {len(tested)})" * (len(tested) > 1)
    return f"{SIGNS[_word(rows)]}{_number(min(tested, key=order))}{many}"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _head(*names: str) -> list[str]:
    return [_row(*names), "|---" * len(names) + "|"]


def _said(claim: Claim) -> str:
    return f"{claim.paper:g}" if isinstance(claim.paper, float) else claim.paper


def _why(reasons: Sequence[str], given: set[str] | None = None) -> str:
    each = dict.fromkeys(part for why in reasons if why for part in why.split("; "))
    if given is not None:
        each = dict.fromkeys(part for part in each if part not in given)
        given |= each.keys()
    return f"\nWhy: {'; '.join(each)}.\n" * bool(each)


def _setting(artefact: Artefact | None) -> list[str]:
    return [text for end, text in SETTINGS.items() if artefact and artefact.name.endswith(end)]


def claims_block(paper: str) -> str:
    """The ten claims, with the paper's number, ours and why they differ."""
    found = headlines(paper)
    [other] = {name for a, _ in found for name in _setting(companion(a))}
    lines = _head("claim", "the paper", "ours", other)
    reasons = []
    for artefact, claim in found:
        where = called(paper, artefact.name).partition(", ")[2]
        ours = _cell(artefact, claim.says), _cell(companion(artefact), claim.says)
        lines.append(_row(f"{(claim.sentence or '').rstrip('.')} ({where})", _said(claim), *ours))
        reasons += [claim.why] if not all(cell[:1] in ("✓", "") for cell in ours) else []
    return "\n".join(lines) + "\n" + _why(reasons)


def _against_each(artefact: Artefact, claims: Sequence[Claim]) -> list[str]:
    """Leads over several baselines at several settings, as the paper's table has them."""
    settings = [artefact, *filter(None, [companion(artefact)])]
    # Every claim of such an artefact has this form: one that has not ends the script here.
    at = {OVER.fullmatch(claim.says).group(2, 1): claim for claim in claims}  # type: ignore[union-attr]
    baselines = list(dict.fromkeys(baseline for _, baseline in at))
    lines = _head("over", *baselines)
    for place in dict.fromkeys(place for place, _ in at):
        cells = []
        for baseline in baselines:
            claim = at[place, baseline]
            each = [
                f"{'✓' if row.agrees else '✗'} {estimate_text(row.ours)}"
                for one in settings
                for row in every_row(one)
                if row.says == claim.says and row.version.replace(AT, ", ") == best_reading(one)
            ]
            cells.append(f"{_said(claim)}: {', '.join(each)}")
        lines.append(_row(place, *cells))
    readings = ", then ".join(best_reading(one) for one in settings)
    return [f"In each cell, in %: the paper; ours, {readings}.", "", *lines, ""]


def _hoisted(rows: list[list[str]]) -> list[str]:
    """Lines of a table; the version that most cells of a column name stands in its heading."""
    first, paper, *columns = [list(cells) for cells in zip(*rows, strict=True)]
    for column in columns:
        versions = Counter(m[2] for m in map(VERSION.match, column[1:]) if m)
        [(version, many)] = versions.most_common(1) or [("", 0)]
        if many > 1 and 2 * many >= sum(map(bool, column[1:])):
            own = [m and m[2] == version for m in map(VERSION.match, column)]
            column[:] = [VERSION.sub(r"\1", c) if mine else c for c, mine in zip(column, own)]
            column[0] += f": {version}, unless named"
    head, *body = zip(first, paper, *columns, strict=True)
    return [*_head(*head), *(_row(*cells) for cells in body)]


def artefact_block(artefact: Artefact, given: set[str]) -> str:
    """Claims of an artefact in the paper's setting and the other one, a row each.

    Of the reasons why numbers differ, those that the page has not given above.
    """
    other = companion(artefact)
    paired = [claim for claim in artefact.claims if OVER.fullmatch(claim.says)]
    paired = paired if len(paired) > MANY else []
    lines = _against_each(artefact, paired) if paired else []
    table = [["claim", "the paper", "ours", *_setting(other)]]
    for claim in artefact.claims:
        if claim not in paired:
            cells = [_cell(artefact, claim.says), *([_cell(other, claim.says)] if other else [])]
            table.append([claim.says, _said(claim), *cells])
    lines += _hoisted(table)
    rows = [*every_row(artefact), *(every_row(other) if other else [])]
    return "\n".join(lines) + "\n" + _why([row.why for row in rows if row.agrees is False], given)


def readings_block(paper: str) -> str:
    """Which reading reproduces each artefact best."""
    lines = _head("", "best reading", "reproduced, of tested")
    for artefact in own_artefacts(paper):
        words = claims_by_word(every_row(artefact))
        tested = words.total() - words["not tested"]
        best = best_reading(artefact) or (
            "not tested" if not tested else "every version" if words["reproduced"] else "none"
        )
        name = called(paper, artefact.name).partition(", ")[2]
        lines.append(_row(name, best, f"{words['reproduced']} of {tested}"))
    return "\n".join(lines) + "\n"


def counts_block() -> str:
    """Claims by word, by paper and by setting."""
    lines = _head("", "claims", *VERDICTS)
    for paper in OWN:
        for ending, setting in (("", "the paper's setting"), *SETTINGS.items()):
            mine = (
                [a for a in artefacts(paper) if a.name.endswith(ending)]
                if ending
                else own_artefacts(paper)
            )
            if mine:
                words = claims_by_word([row for artefact in mine for row in every_row(artefact)])
                name = called(paper, "").removesuffix(", ")
                numbers = (str(words[verdict]) for verdict in VERDICTS)
                lines.append(_row(f"{name}, {setting}", str(words.total()), *numbers))
    return "\n".join(lines) + "\n"


def filled(name: str) -> str:
    """A page with all that is made here."""
    paper = name.partition("-appendix")[0].removesuffix(".md")
    page = (FOLDER / name).read_text(encoding="utf-8")
    tables = {}
    if paper in OWN and "-appendix" in name:
        given: set[str] = set()
        order = re.findall(r"<!-- table (\S+) -->", page)
        own = {a.name: a for a in own_artefacts(paper)}
        tables = {f"table {name}": artefact_block(own[name], given) for name in order}
    elif paper in OWN:
        tables = {"claims": claims_block(paper), "readings": readings_block(paper)}
    elif paper in PAPERS:
        tables = {f"table {a.name}": artefact_markdown(every_row(a)) for a in artefacts(paper)}
    tables["counts"] = counts_block()

    def block(found: re.Match[str]) -> str:
        return f"{found[1]}\n\n{tables[found[2]]}\n<!-- end -->"

    return re.sub(r"(<!-- ([\w -]+?) -->)\n.*?<!-- end -->", block, page, flags=re.DOTALL)


if __name__ == "__main__":
    for name in PAGES:
        (FOLDER / name).write_text(filled(name), encoding="utf-8")
