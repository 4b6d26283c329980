"""The side-by-side table: what the papers say, beside what we found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from gangwise.experiments.statistics import decimals_for, estimate_text
from gangwise.reproduce.expected import Row

if TYPE_CHECKING:
    import polars as pl


def table(rows: Sequence[Row]) -> pl.DataFrame:
    """Tidy: a row per claim and version."""
    import polars as pl

    plain = [row.as_dict() | {"the paper": str(row.number)} for row in rows]
    return pl.DataFrame(plain, infer_schema_length=None)


def markdown(rows: Iterable[Row]) -> str:
    """For reading: a heading per artefact, a row per claim."""
    parts = [
        f"## {paper} {artefact}\n\n{_of_one(list(mine))}"
        for (paper, artefact), mine in groupby(rows, lambda row: (row.paper, row.artefact))
    ]
    return "\n".join(parts)


def fill(page: str, rows: Sequence[Row]) -> str:
    """A page with the table of an artefact wherever it says ``<!-- table NAME -->``.

    What stands from there to the next ``<!-- end -->`` is replaced.
    """

    def block(found: re.Match[str]) -> str:
        mine = [row for row in rows if row.artefact == found["name"]]
        text = _of_one(mine) if mine else "No results are committed at this scale.\n"
        return f"{found['start']}\n\n{text}\n{found['end']}"

    marked = r"(?P<start><!-- table (?P<name>\S+) -->)\n.*?(?P<end><!-- end -->)"
    return re.sub(marked, block, page, flags=re.DOTALL)


def _of_one(rows: Sequence[Row]) -> str:
    lines = ["| | the paper | ours |", "|---|---|---|"]
    for (says, number), claim in groupby(rows, lambda row: (row.says, row.number)):
        ours = "<br>".join(
            f"{row.version}: {estimate_text(row.ours, decimals_for([row.ours]))}, {row.verdict}"
            for row in claim
        )
        said = f"{number:g}" if isinstance(number, float) else str(number)
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in (says, said, ours)) + " |")
    whys = [row.why for row in rows if row.why and row.verdict != "agrees"]
    if whys:
        reasons = dict.fromkeys(reason for why in whys for reason in why.split("; "))
        lines += ["", "Why ours differ, or may: " + "; ".join(reasons) + "."]
    return "\n".join(lines) + "\n"
