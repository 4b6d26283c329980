"""The papers' claims beside our numbers: as a table, and as the committed results to find again."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from gangwise.core.files import write_whole
from gangwise.experiments.results import Results
from gangwise.experiments.statistics import Estimate
from gangwise.report.pages import ClaimResult, Verdict, claims_by_word, counts
from gangwise.reproduce.papers import AT, Artefact, Claim


def claim_result(artefact: Artefact, claim: Claim, version: str, ours: Estimate) -> ClaimResult:
    """Our number for a claim, and whether it agrees; its word is found by :func:`with_verdicts`."""
    return ClaimResult(
        artefact.paper,
        artefact.name,
        claim.says,
        version,
        claim.paper,
        ours,
        "not tested",
        claim.why,
        claim.rule_text,
        claim.agrees(version, ours),
        timed=claim.timed,
    )


Reading = tuple[str, str, str]
"""A version of the algorithm, a setting, and which rows of the traces; empty: whichever."""


def _fits(one: Reading, other: Reading) -> bool:
    return all(a == b or not a or not b for a, b in zip(one, other, strict=True))


class Readings:
    """Which readings of the paper agree with a claim, from its rows."""

    def __init__(self, claim: Claim, rows: Sequence[ClaimResult]) -> None:
        self.claim = claim
        self.versions = {version for version, _ in claim.readings.values()}
        self.found: dict[Reading, bool] = {}
        self._distance: dict[Reading, float] = {}
        for row in rows:
            if row.agrees is not None:
                name, _, taken = row.version.partition(AT)
                reading = (*claim.readings.get(name, (name, "")), taken)
                self.found[reading] = self.found.get(reading, True) and row.agrees
                if (number := claim.rule.near) is not None:
                    off = min(1.0, abs(row.ours.mean - number) / abs(number))
                    self._distance[reading] = max(off, self._distance.get(reading, 0.0))

    def of(self, reading: Reading) -> list[Reading]:
        """Those of the claim that fit; of any version where it is about other policies."""
        if reading[0] not in self.versions:
            reading = ("", *reading[1:])
        return [one for one in self.found if _fits(one, reading)]

    def agrees(self, reading: Reading) -> bool:
        return any(self.found[one] for one in self.of(reading))

    def distance(self, reading: Reading) -> float:
        """How far ours is from the paper's number, as a share of it, up to 1; 0 for no number."""
        return min((self._distance.get(one, 0.0) for one in self.of(reading)), default=1.0)

    def word(self, best: Reading) -> Verdict:
        """The word for the claim, with the reading that fits its figure best."""
        if not self.found:
            return "not tested"
        if self.agrees(best):
            return "reproduced"
        return "underdetermined" if any(self.found.values()) else "not reproduced"


def with_verdicts(
    artefact: Artefact, rows: Sequence[ClaimResult]
) -> tuple[list[ClaimResult], Reading | None]:
    """Rows with the words of their claims, and the reading that fits the artefact best.

    It is the reading in which most claims agree; of several, the one whose numbers are closest to
    the paper's. One reading has to serve for the whole figure: with another for each claim, chance
    alone would make some agree. None is best where no claim agrees in any.
    """
    every = {
        claim.says: Readings(claim, [row for row in rows if row.says == claim.says])
        for claim in artefact.claims
    }
    known = {reading: None for each in every.values() for reading in each.found}
    whole = [r for r in known if bool(r[1]) == any(other[1] for other in known)] or list(known)

    def fit(reading: Reading) -> tuple[int, float]:
        tested = [each for each in every.values() if each.found]
        far = sum(each.distance(reading) for each in tested)
        return sum(each.agrees(reading) for each in tested), -far

    best = max(whole, key=fit, default=None)
    words = {says: each.word(best or ("", "", "")) for says, each in every.items()}
    done = [row if row.agrees is None else replace(row, verdict=words[row.says]) for row in rows]
    return done, best if best and fit(best)[0] else None


def over_readings(rows: Iterable[ClaimResult]) -> list[ClaimResult]:
    """Rows of one version in several readings of the traces made one: mean, least and most.

    Examples
    --------
    >>> one = ClaimResult(
    ...     "p", "a", "s", "v @ first", 1.0, Estimate(1.0, 0.0, 2.0), "reproduced", ""
    ... )
    >>> two = replace(one, version="v @ second", ours=Estimate(9.0, 8.0, 10.0))
    >>> [merged] = over_readings([replace(one, agrees=True), replace(two, agrees=False)])
    >>> merged.version, merged.text
    ('v', '1.0 to 9.0 over 2 readings, agrees in 1')
    """
    found: dict[str, list[ClaimResult]] = {}
    for row in rows:
        version, at, _ = row.version.partition(AT)
        found.setdefault(replace(row, version=version).id if at else row.id, []).append(row)
    merged = []
    for first, *others in found.values():
        version, at, _ = first.version.partition(AT)
        if at:
            agreeing = sum(row.agrees is True for row in (first, *others))
            means = [row.ours.mean for row in (first, *others)]
            ours = Estimate(sum(means) / len(means), min(means), max(means))
            first = replace(
                first, version=version, ours=ours, readings=len(means), agreeing=agreeing
            )
        merged.append(first)
    return merged


FOLDER = Path(__file__).with_name("expected")
"""The folder of committed results: JSON files with a line for each claim, experiment or rule."""


def _committed(name: str) -> dict[str, Any]:
    path = FOLDER / f"{name}.json"
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return known


def _commit(name: str, entries: Mapping[str, Any]) -> Path:
    lines = [f"{json.dumps(k, ensure_ascii=False)}: {json.dumps(v)}" for k, v in entries.items()]
    write_whole(FOLDER / f"{name}.json", "{\n" + ",\n".join(lines) + "\n}\n")
    return FOLDER / f"{name}.json"


SCALE = {True: "quick", False: "full"}

Totals = Mapping[str, Mapping[str, Sequence[float]]]
"""Experiment → cell and policy → what was earned with each seed."""


def totals(results: Mapping[str, Results]) -> dict[str, dict[str, list[float]]]:
    """What every policy earned in every cell with every seed, to nine digits."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, one in results.items():
        mine = found.setdefault(name, {})
        for *cell, policy, _, value in one.per_seed().sort(*one.cells, "policy", "seed").rows():
            mine.setdefault(" ".join(map(str, [*cell, policy])), []).append(float(f"{value:.9g}"))
    return found


def read_totals(quick: bool) -> Totals:
    """What is committed for each seed at a scale; no experiment that was not played since."""
    return _committed(f"{SCALE[quick]}-seeds")


def write_totals(found: Totals, quick: bool) -> Path:
    """Put what was earned in the place of what is committed; that of other experiments stays."""
    return _commit(f"{SCALE[quick]}-seeds", dict(sorted({**read_totals(quick), **found}.items())))


def different_seeds(found: Totals, quick: bool) -> list[str]:
    """Seeds with which a policy did not earn what is committed, to six digits, in words."""
    known, changed = read_totals(quick), []
    for name in found.keys() & known.keys():
        for who in sorted(found[name].keys() | known[name].keys()):
            now, then = (some[name].get(who, []) for some in (found, known))
            same = len(now) == len(then) and all(
                abs(a - b) <= 1e-6 * max(1.0, abs(b)) for a, b in zip(now, then)
            )
            if not same:
                changed.append(f"{name}, {who}: {list(now)} by seed, not {list(then)}")
    return sorted(changed)


# What was there first, the rule or the result


class Stamp(NamedTuple):
    """What is known of a rule, or of the rule by which a result was judged."""

    rule: str  # hash of all that decides the claim's word, see :func:`rule_hash`
    # Of a rule: since when it is committed. Of a result: when its first run was made, UTC; empty
    # where the number was there before its rule.
    at: str = ""
    commit: str = ""  # the one whose rules were in force when the result was played, where known


def claim_id(artefact: Artefact, claim: Claim) -> str:
    return f"{artefact.paper} {artefact.name}: {claim.says}"


def rule_hash(claim: Claim) -> str:
    """Hash of the paper's number, of when ours agrees with it, and of how words are given."""
    decides = [claim.says, claim.paper, claim.rule_text, SETTLING]
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:12]


SETTLING = "best reading of the figure, 1"
"""Version of :func:`with_verdicts`: raise it with every change of how words are given."""


def read_stamps(name: Literal["rules", "played"]) -> dict[str, Stamp]:
    """The committed rules, or the rules by which the results of full scale were judged."""
    return {key: Stamp(*value[:3]) for key, value in _committed(name).items()}


def write_rules(artefacts: Iterable[Artefact]) -> Path:
    """Commit the rules, before what they judge is run; a changed one counts from now on."""
    known, now = read_stamps("rules"), _utc(time.time())
    found = {}
    for artefact in artefacts:
        for claim in artefact.claims:
            rule, key = rule_hash(claim), claim_id(artefact, claim)
            same = key in known and known[key].rule == rule
            found[key] = [rule, known[key].at if same else now, claim.rule_text]
    return _commit("rules", found)


def stamp(artefacts: Iterable[Artefact], played: float | None) -> Path:
    """Say by which rules the results of these artefacts were judged, and when they were played.

    ``played`` is when the first of their runs was made, seconds since 1970; None: before the rules.
    """
    found = read_stamps("played")
    at, commit = ("", "") if played is None else (_utc(played), _rules_commit())
    for artefact in artefacts:
        for claim in artefact.claims:
            found[claim_id(artefact, claim)] = Stamp(rule_hash(claim), at, commit)
    return _commit("played", dict(sorted(found.items())))


def _rules_commit() -> str:
    """The commit of the rules; empty outside a repository, or if they were changed since."""

    def git(*words: str) -> str:
        given = ["git", "-C", str(FOLDER), *words, "--", "rules.json"]
        return subprocess.run(given, capture_output=True, text=True, check=False).stdout.strip()

    return "" if git("status", "--porcelain") else git("log", "-1", "--format=%H")


def _utc(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%MZ}"


def read(quick: bool) -> dict[str, Estimate]:
    """The committed results at a scale, by :attr:`Row.id`."""
    return {
        f"{claim} [{version}]": Estimate(*value)
        for claim, versions in _committed(SCALE[quick]).items()
        for version, value in versions.items()
    }


def rows(artefacts: Iterable[Artefact], quick: bool) -> list[ClaimResult]:
    """The committed results as rows, in the order of the artefacts and their claims."""
    known = read(quick)
    every = (with_verdicts(artefact, rows_of(artefact, known)) for artefact in artefacts)
    return [row for rows, _ in every for row in rows]


def rows_of(artefact: Artefact, known: Mapping[str, Estimate]) -> list[ClaimResult]:
    start, mine = f"{artefact.paper} {artefact.name}: ", defaultdict[str, list[ClaimResult]](list)
    claims = {claim.says: claim for claim in artefact.claims}
    for key, ours in known.items():
        says, _, version = key.removeprefix(start)[:-1].rpartition(" [")
        if key.startswith(start) and says in claims:
            mine[says].append(claim_result(artefact, claims[says], version, ours))
    return [row for says in claims for row in mine[says]]


def write(rows: Sequence[ClaimResult], quick: bool) -> Path:
    """Put results in the place of the committed ones; those of other artefacts stay."""
    redone = {f"{row.paper} {row.artefact}" for row in rows}
    kept = {key: of for key, of in read(quick).items() if key.split(":")[0] not in redone}
    kept |= {row.id: row.ours for row in rows}
    of_claims: dict[str, dict[str, list[float | None]]] = {}
    for key, value in sorted(kept.items(), key=lambda item: item[0].split(":")[0]):
        claim, _, version = key[:-1].rpartition(" [")
        digits = [None if v is None else float(f"{v:.9g}") for v in value]
        of_claims.setdefault(claim, {})[version] = digits
    return _commit(SCALE[quick], of_claims)


def differences(rows: Sequence[ClaimResult], quick: bool) -> list[str]:
    """Rows that are not what was committed, or that nothing is committed for, in words.

    The same seeds give the same numbers: mean and both ends of the interval must be the same to six
    digits. An interval is no excuse. What each seed gave is compared by :func:`different_seeds`.
    """
    known, found = read(quick), []
    for row in (row for row in rows if not row.timed):
        if row.id not in known:
            found.append(f"{row.id}: nothing is committed for it")
            continue
        now, then = (np.array(each, np.float64) for each in (row.ours, known[row.id]))
        slack = 1e-6 * max(1.0, float(np.nanmax(np.abs(then))))
        if (off := ~np.isclose(now, then, rtol=0.0, atol=slack, equal_nan=True)).any():
            i = int(np.argmax(off))
            what = ("mean", "low", "high")[i]
            found.append(f"{row.id}: {what} is {row.ours[i]}, not {known[row.id][i]}")
    return found


def table(rows: Sequence[ClaimResult]) -> pl.DataFrame:
    plain = [row.as_dict() | {"the paper": str(row.number)} for row in rows]
    return pl.DataFrame(plain, infer_schema_length=None)


def markdown(rows: Iterable[ClaimResult]) -> str:
    """For reading: a heading per artefact, a row per claim."""
    each = groupby(rows, lambda row: f"{row.paper} {row.artefact}")
    return "\n".join(f"## {artefact}\n\n{artefact_markdown(list(mine))}" for artefact, mine in each)


def artefact_markdown(rows: Sequence[ClaimResult]) -> str:
    """The claims of an artefact, a row each, in Markdown."""
    rows = over_readings(rows)
    lines = ["| claim | the paper | ours; ✓ agrees | |", "|---|---|---|---|"]
    for (says, papers), claim in groupby(rows, lambda row: (row.says, row.number)):
        mine = list(claim)
        ours = "<br>".join(
            f"{row.version}: {row.text}{' ✓' * (row.agrees is True and not row.readings)}"
            for row in mine
        )
        paper = f"{papers:g}" if isinstance(papers, float) else str(papers)
        [word] = [verdict for verdict, n in claims_by_word(mine).items() if n]
        cells = (says, paper, ours, f"*{word}*")
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    lines += ["", f"{counts(rows)}."]
    whys = [row.why for row in rows if row.why and row.agrees is not True]
    if whys:
        reasons = dict.fromkeys(reason for why in whys for reason in why.split("; "))
        lines += ["", "Why: " + "; ".join(reasons) + "."]
    return "\n".join(lines) + "\n"
