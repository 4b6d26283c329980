"""The papers' claims beside our numbers: as a table, and as the committed results to find again."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl

from gangwise.core.files import write_whole
from gangwise.experiments.results import Results
from gangwise.experiments.statistics import Estimate
from gangwise.report.reproduction import Row, Verdict
from gangwise.reproduce.artefact import AT, ON_ROWS, Artefact, Claim


def judged(artefact: Artefact, claim: Claim, version: str, ours: Estimate) -> Row:
    """Our number for a claim, with its verdict."""
    return Row(
        artefact.paper,
        artefact.name,
        claim.says,
        version,
        claim.paper,
        ours,
        claim.verdict(version, ours),
        claim.why,
        claim.rule.text,
        timed=claim.timed,
    )


def over_readings(rows: Iterable[Row]) -> list[Row]:
    """Rows of one version in several readings made one: what is said must cover all of them.

    The verdict is that of every reading where they have the same, and else depends on the reading.

    Examples
    --------
    >>> one = Row("p", "a", "s", "v @ first", 1.0, Estimate(1.0, 0.0, 2.0), "agrees", "")
    >>> two = replace(one, version="v @ second", ours=Estimate(9.0, 8.0, 10.0), verdict="differs")
    >>> [merged] = over_readings([one, two])
    >>> merged.version, merged.text, merged.verdict
    ('v', '1.0 to 9.0 over 2 readings, agrees in 1', 'depends')
    >>> over_readings([one, replace(two, verdict="agrees")])[0].verdict
    'agrees'
    """
    found: dict[str, list[Row]] = {}
    for row in rows:
        version, at, _ = row.version.partition(AT)
        found.setdefault(replace(row, version=version).id if at else row.id, []).append(row)
    return [_merged(group) if AT in group[0].version else group[0] for group in found.values()]


def _merged(rows: Sequence[Row]) -> Row:
    means, verdicts = [row.ours.mean for row in rows], {row.verdict for row in rows}
    return replace(
        rows[0],
        version=rows[0].version.partition(AT)[0],
        ours=Estimate(sum(means) / len(means), min(means), max(means)),
        verdict=rows[0].verdict if len(verdicts) == 1 else "depends",
        readings=len(rows),
        agreeing=sum(row.verdict == "agrees" for row in rows),
    )


def _path(quick: bool) -> Path:
    return Path(__file__).with_name("expected") / ("quick.json" if quick else "full.json")


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
    path = _seeds_path(quick)
    return json.loads(path.read_text()) if path.exists() else {}


def write_totals(found: Totals, quick: bool) -> Path:
    """Put what was earned in the place of what is committed; that of other experiments stays."""
    kept = {**read_totals(quick), **found}
    write_whole(_seeds_path(quick), _lines({name: kept[name] for name in sorted(kept)}))
    return _seeds_path(quick)


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


def _seeds_path(quick: bool) -> Path:
    return _path(quick).with_name(f"{_path(quick).stem}-seeds.json")


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
    found: dict[str, Estimate] = {}
    for key, value in json.loads(path.read_text()).items():
        if isinstance(value, dict):
            found |= {f"{key[:-1]}{AT}{name}]": Estimate(*each) for name, each in value.items()}
        else:
            found[key] = Estimate(*value)
    return found


def rows(artefacts: Iterable[Artefact], quick: bool) -> list[Row]:
    """The committed results as rows, in the order of the artefacts and their claims."""
    known, found = read(quick), []
    for artefact in artefacts:
        for claim in artefact.claims:
            start = f"{artefact.paper} {artefact.name}: {claim.says} ["
            found += [
                judged(artefact, claim, key[len(start) : -1], ours)
                for key, ours in known.items()
                if key.startswith(start)
            ]
    return found


def shown(artefacts: Iterable[Artefact]) -> list[Row]:
    """The committed results that pages show: of full scale, and quick on rows of the traces.

    There each artefact is played once for every reading.
    """
    return [row for a in artefacts for row in rows([a], quick=a.name.endswith(ON_ROWS))]


def write(rows: Sequence[Row], quick: bool) -> Path:
    """Put results in the place of the committed ones; those of other artefacts stay."""
    kept = {key: list(value) for key, value in read(quick).items()}
    redone = {(row.paper, row.artefact) for row in rows}
    kept = {k: v for k, v in kept.items() if tuple(k.split(":")[0].split(" ")) not in redone}
    kept.update({row.id: list(row.ours) for row in rows})
    path = _path(quick)
    merged: dict[str, Any] = {}
    for key, value in sorted(kept.items(), key=lambda item: item[0].split(":")[0]):
        digits = [None if v is None else float(f"{v:.9g}") for v in value]
        version, at, reading = key[:-1].rpartition(AT)
        if at:
            merged.setdefault(f"{version}]", {})[reading] = digits
        else:
            merged[key] = digits
    write_whole(path, _lines(merged))
    return path


def _lines(entries: Mapping[str, Any]) -> str:
    """JSON with a line for each entry."""
    lines = [f"{json.dumps(k, ensure_ascii=False)}: {json.dumps(v)}" for k, v in entries.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def differences(rows: Sequence[Row], quick: bool) -> list[str]:
    """Rows that are not what was committed, or that nothing is committed for, in words.

    The same seeds give the same numbers: mean and both ends of the interval must be the same to six
    digits. An interval is no excuse. What each seed gave is compared by :func:`different_seeds`.
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
        f"{artefact.paper} {artefact.name}: {claim.says}": claim.rule.text
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
    found = Counter(row.verdict for row in over_readings(rows))
    del found["uncompared"]
    return (
        f"{found['agrees']} of {found.total()} comparisons agree, {found['other-size']} have the "
        f"same direction and another size, {found['differs']} differ, {found['open']} are open"
        + f", {found['depends']} depend on the reading"
        * bool(found["depends"])
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


IN_TABLES: Mapping[Verdict, str] = {
    "agrees": ", agrees",
    "other-size": ", same direction, other size",
    "differs": ", differs",
    "open": ", open",
    "depends": ", depends on the reading",
    "uncompared": "",
}


def _of_one(rows: Sequence[Row]) -> str:
    rows = over_readings(rows)
    lines = ["| | the paper | ours |", "|---|---|---|"]
    for (says, papers), claim in groupby(rows, lambda row: (row.says, row.number)):
        ours = "<br>".join(f"{row.version}: {row.text}{IN_TABLES[row.verdict]}" for row in claim)
        said = f"{papers:g}" if isinstance(papers, float) else str(papers)
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in (says, said, ours)) + " |")
    lines += ["", f"{counts(rows)}."]
    whys = [row.why for row in rows if row.why and row.verdict not in ("agrees", "uncompared")]
    if whys:
        reasons = dict.fromkeys(reason for why in whys for reason in why.split("; "))
        lines += ["", "Why ours differ, or may: " + "; ".join(reasons) + "."]
    return "\n".join(lines) + "\n"
