"""The papers' claims beside our numbers: as a table, and as the committed results to find again."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl

from gangwise.core.files import write_whole
from gangwise.experiments.statistics import Estimate, decimals_for, estimate_text
from gangwise.reproduce.artefact import Artefact, Claim, Verdict


@dataclass(frozen=True)
class Row:
    """One claim beside our number for it.

    Attributes
    ----------
    paper, artefact, says, version : str
    number : float or str
        The paper's.
    ours : Estimate
    verdict : str
        See :data:`~gangwise.reproduce.artefact.Verdict`.
    why : str
    timed : bool
        A computation time, which no run finds again: it is committed, and never compared.
    rule : str
        When ours agrees; fixed before anything is run.
    """

    paper: str
    artefact: str
    says: str
    version: str
    number: float | str
    ours: Estimate
    verdict: Verdict
    why: str
    timed: bool = False
    rule: str = ""

    @property
    def id(self) -> str:
        """What identifies the row."""
        return f"{self.paper} {self.artefact}: {self.says} [{self.version}]"

    @classmethod
    def found(cls, artefact: Artefact, claim: Claim, version: str, ours: Estimate) -> Row:
        """Our number for a claim, judged."""
        return cls(
            artefact.paper,
            artefact.name,
            claim.says,
            version,
            claim.paper,
            ours,
            claim.verdict(version, ours),
            claim.why,
            claim.timed,
            claim.judge.text,
        )

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Row:
        """A row from the values of :meth:`as_dict`."""
        return cls(
            plain["paper"],
            plain["artefact"],
            plain["says"],
            plain["version"],
            plain["the paper"],
            Estimate(plain["ours"], plain["low"], plain["high"]),
            plain["verdict"],
            plain["why"],
            rule=plain.get("rule", ""),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON and tables."""
        return {
            "paper": self.paper,
            "artefact": self.artefact,
            "says": self.says,
            "version": self.version,
            "the paper": self.number,
            "ours": self.ours.mean,
            "low": self.ours.low,
            "high": self.ours.high,
            "verdict": self.verdict,
            "why": self.why,
            "rule": self.rule,
        }


def _path(quick: bool) -> Path:
    return Path(str(files("gangwise.reproduce").joinpath("expected"))) / (
        "quick.json" if quick else "full.json"
    )


def rules_path() -> Path:
    """Where the rules of all claims are committed, so that a change of one is seen as such."""
    return _path(True).with_name("rules.json")


def write_rules(artefacts: Iterable[Artefact]) -> Path:
    """Commit the rules, before what they judge is run."""
    text = json.dumps(rules(artefacts), indent=1, ensure_ascii=False)
    write_whole(rules_path(), text + "\n")
    return rules_path()


def read(quick: bool) -> dict[str, Estimate]:
    """The committed results at a scale, by :attr:`Row.id`."""
    path = _path(quick)
    if not path.exists():
        return {}
    return {key: Estimate(*value) for key, value in json.loads(path.read_text()).items()}


def rows(artefacts: Iterable[Artefact], quick: bool) -> list[Row]:
    """The committed results as rows, in the order of the artefacts and their claims."""
    known, found = read(quick), []
    for artefact in artefacts:
        for claim in artefact.claims:
            start = f"{artefact.paper} {artefact.name}: {claim.says} ["
            found += [
                Row.found(artefact, claim, key[len(start) : -1], ours)
                for key, ours in known.items()
                if key.startswith(start)
            ]
    return found


def write(rows: Sequence[Row], quick: bool) -> Path:
    """Put results in the place of the committed ones; those of other artefacts stay."""
    kept = {key: list(value) for key, value in read(quick).items()}
    redone = {(row.paper, row.artefact) for row in rows}
    kept = {k: v for k, v in kept.items() if tuple(k.split(":")[0].split(" ")) not in redone}
    kept.update({row.id: list(row.ours) for row in rows})
    path = _path(quick)
    by_artefact = sorted(kept.items(), key=lambda item: item[0].split(":")[0])
    text = json.dumps(dict(by_artefact), indent=1, ensure_ascii=False)
    write_whole(path, text + "\n")
    return path


def differences(rows: Sequence[Row], quick: bool) -> list[str]:
    """Rows that are not what was committed, or that nothing is committed for, in words.

    The same seeds give the same numbers: mean and both ends of the interval, which follow from what
    each seed gave, must be the same to six digits. An interval is no excuse.
    """
    known, found = read(quick), []
    for row in (row for row in rows if not row.timed):
        if row.id not in known:
            found.append(f"{row.id}: nothing is committed for it")
            continue
        pairs = zip(("mean", "low", "high"), row.ours, known[row.id])
        slack = 1e-6 * max(1.0, *(abs(v) for v in known[row.id] if v is not None))
        for what, now, then in pairs:
            if (now is None) != (then is None) or (
                now is not None and then is not None and not abs(now - then) <= slack
            ):
                found.append(f"{row.id}: {what} is {now}, not {then}")
                break
    return found


def rules(artefacts: Iterable[Artefact]) -> dict[str, str]:
    """When ours agrees with each claim: what is committed before anything is run."""
    return {
        f"{artefact.paper} {artefact.name}: {claim.says}": claim.judge.text
        + (f"; not judged: {', '.join(claim.beside)}" if claim.beside else "")
        for artefact in artefacts
        for claim in artefact.claims
    }


def counts(rows: Iterable[Row]) -> str:
    """How many comparisons came out how; what was not compared counts nowhere.

    Examples
    --------
    >>> one = Row("p", "a", "s", "v", 1.0, Estimate(1.0, None, None), "agrees", "")
    >>> counts([one])
    '1 of 1 comparisons agree, 0 have the same direction and another size, 0 differ, 0 are open'
    """
    found = Counter(row.verdict for row in rows)
    del found["uncompared"]
    return (
        f"{found['agrees']} of {found.total()} comparisons agree, {found['other-size']} have the "
        f"same direction and another size, {found['differs']} differ, {found['open']} are open"
    )


def table(rows: Sequence[Row]) -> pl.DataFrame:
    """Tidy: a row per claim and version."""
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


SAID: Mapping[Verdict, str] = {
    "agrees": ", agrees",
    "other-size": ", same direction, other size",
    "differs": ", differs",
    "open": ", open",
    "uncompared": "",
}


def _of_one(rows: Sequence[Row]) -> str:
    lines = ["| | the paper | ours |", "|---|---|---|"]
    for (says, number), claim in groupby(rows, lambda row: (row.says, row.number)):
        ours = "<br>".join(
            f"{row.version}: {estimate_text(row.ours, decimals_for([row.ours]))}{SAID[row.verdict]}"
            for row in claim
        )
        said = f"{number:g}" if isinstance(number, float) else str(number)
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in (says, said, ours)) + " |")
    lines += ["", f"{counts(rows)}."]
    whys = [row.why for row in rows if row.why and row.verdict not in ("agrees", "uncompared")]
    if whys:
        reasons = dict.fromkeys(reason for why in whys for reason in why.split("; "))
        lines += ["", "Why ours differ, or may: " + "; ".join(reasons) + "."]
    return "\n".join(lines) + "\n"
