"""Artefacts are run into one folder, and their claims compared with the committed results."""

import hashlib
import json
import math
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

import gangwise
from gangwise.core.errors import StoreError
from gangwise.core.files import Content, Folder, write_whole
from gangwise.papers.reproduce.papers import Artefact, Claim, Found, RunScale
from gangwise.report import pages, plotting
from gangwise.study.results import Results
from gangwise.study.runs import Store
from gangwise.study.statistics import Estimate
from gangwise.study.sweep import Backend, Experiment, Progress, silent, sweep


def claim_result(
    artefact: Artefact, claim: Claim, version: str, ours: Estimate
) -> pages.ClaimResult:
    """Our number for a claim, and whether it agrees; its word is found by :func:`with_verdicts`."""
    row = artefact.paper, artefact.name, claim.says, version, claim.paper, ours
    rule = claim.why, claim.rule_text, claim.agrees(version, ours)
    return pages.ClaimResult(*row, "not tested", *rule, timed=claim.timed)


Reading = tuple[str, str, str]
"""A version of the algorithm, a setting, and which rows of the traces; empty: whichever."""


def _fits(one: Reading, other: Reading) -> bool:
    return all(a == b or not a or not b for a, b in zip(one, other, strict=True))


class Readings:
    """Which readings of the paper agree with a claim, from its rows."""

    def __init__(self, claim: Claim, rows: Sequence[pages.ClaimResult]) -> None:
        self.claim = claim
        self.versions = {version for version, _ in claim.readings.values()}
        self.found: dict[Reading, bool] = {}
        self._distance: dict[Reading, float] = {}
        for row in rows:
            if row.agrees is not None:
                # VERSION, SETTING @ ROWS: which rows of the traces comes last.
                name, _, choices = row.version.partition(pages.AT)
                reading = (*claim.readings.get(name, (name, "")), choices)
                self.found[reading] = self.found.get(reading, True) and row.agrees
                if (number := claim.rule.near) is not None:
                    # Cut at 1, so that one number far off does not outweigh all others.
                    off = min(1.0, abs(row.ours.mean - number) / abs(number))
                    self._distance[reading] = max(off, self._distance.get(reading, 0.0))

    def matching(self, reading: Reading) -> list[Reading]:
        """Those of the claim that fit; of any version where it is about other policies."""
        if reading[0] not in self.versions:
            reading = ("", *reading[1:])
        return [option for option in self.found if _fits(option, reading)]

    def agrees(self, reading: Reading) -> bool:
        return any(self.found[option] for option in self.matching(reading))

    def distance(self, reading: Reading) -> float:
        """Distance of ours from the paper's number, as a share of it, up to 1; 0 for no number."""
        return min(
            (self._distance.get(option, 0.0) for option in self.matching(reading)), default=1.0
        )

    def word(self, best: Reading) -> pages.Verdict:
        """The word for the claim, with the reading that fits its figure best."""
        if not self.found:
            return "not tested"
        if self.agrees(best):
            return "reproduced"
        return "underdetermined" if any(self.found.values()) else "not reproduced"


def with_verdicts(
    artefact: Artefact, rows: Sequence[pages.ClaimResult]
) -> tuple[list[pages.ClaimResult], Reading | None]:
    """Rows with the words of their claims, and the reading that fits the artefact best.

    It is the reading in which most claims agree; of several, the one whose numbers are closest to
    the paper's. One reading has to serve for the whole figure: with another for each claim, chance
    alone would make some agree. None is best where no claim agrees in any.
    """
    every = {
        claim.says: Readings(claim, [row for row in rows if row.says == claim.says])
        for claim in artefact.claims
    }
    readings = {reading: None for entry in every.values() for reading in entry.found}
    # A reading that names a setting is compared with those that do, where there are any.
    complete = [
        r for r in readings if bool(r[1]) == any(other_reading[1] for other_reading in readings)
    ] or list(readings)

    def fit(reading: Reading) -> tuple[int, float]:
        tested = [entry for entry in every.values() if entry.found]
        far = sum(entry.distance(reading) for entry in tested)
        return sum(entry.agrees(reading) for entry in tested), -far

    best = max(complete, key=fit, default=None)
    words = {says: entry.word(best or ("", "", "")) for says, entry in every.items()}
    judged = [row if row.agrees is None else replace(row, verdict=words[row.says]) for row in rows]
    return judged, best if best and fit(best)[0] else None


FOLDER = Path(__file__).with_name("expected")
"""The folder of committed results: JSON files with a line for each claim, experiment or rule."""


def _committed(name: str) -> dict[str, Any]:
    path = FOLDER / f"{name}.json"
    committed: dict[str, Any] = (
        json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    )
    return committed


def _commit(name: str, entries: Mapping[str, Any]) -> Path:
    # A line for each entry: a change of one number is a change of one line.
    lines = [f"{json.dumps(k, ensure_ascii=False)}: {json.dumps(v)}" for k, v in entries.items()]
    write_whole(FOLDER / f"{name}.json", "{\n" + ",\n".join(lines) + "\n}\n")
    return FOLDER / f"{name}.json"


SCALE = {True: "quick", False: "full"}

Totals = Mapping[str, Mapping[str, Sequence[float]]]
"""Experiment → cell and policy → what was earned with each seed."""


def totals(results: Mapping[str, Results]) -> dict[str, dict[str, list[float]]]:
    """Rewards of every policy in every cell with every seed, to nine digits."""
    by_experiment: dict[str, dict[str, list[float]]] = {}
    for name, result in results.items():
        mine = by_experiment.setdefault(name, {})
        for *cell, policy, _, value in (
            result.per_seed().sort(*result.cells, "policy", "seed").rows()
        ):
            # Nine digits, for they are compared to six.
            mine.setdefault(" ".join(map(str, [*cell, policy])), []).append(float(f"{value:.9g}"))
    return by_experiment


def read_totals(quick: bool) -> Totals:
    """Committed rewards of each seed at a scale; without experiments not played since."""
    return _committed(f"{SCALE[quick]}-seeds")


def write_totals(found: Totals, quick: bool) -> Path:
    """Put what was earned in the place of what is committed; that of other experiments stays."""
    return _commit(f"{SCALE[quick]}-seeds", dict(sorted({**read_totals(quick), **found}.items())))


def different_seeds(found: Totals, quick: bool) -> list[str]:
    """Seeds with which a policy did not earn what is committed, to six digits, in words."""
    committed, changed = read_totals(quick), []
    for name in found.keys() & committed.keys():
        for policy in sorted(found[name].keys() | committed[name].keys()):
            ours, theirs = (table[name].get(policy, []) for table in (found, committed))
            # Six digits of nine, relative to what was earned, or to 1 where that is less.
            unchanged = len(ours) == len(theirs) and all(
                abs(a - b) <= 1e-6 * max(1.0, abs(b)) for a, b in zip(ours, theirs)
            )
            if not unchanged:
                changed.append(f"{name}, {policy}: {list(ours)} by seed, not {list(theirs)}")
    return sorted(changed)


# What was there first, the rule or the result


class Stamp(NamedTuple):
    """Stamp of a rule, or of the rule by which a result was judged."""

    rule: str  # hash of all that decides the claim's word, see :func:`rule_hash`
    # Of a rule: since when it is committed. Of a result: when its first run was made, UTC; empty
    # where the number was there before its rule.
    at: str = ""
    commit: str = ""  # the one whose rules were in force when the result was played, where known


def claim_id(artefact: Artefact, claim: Claim) -> str:
    return f"{artefact.paper} {artefact.name}: {claim.says}"


def rule_hash(claim: Claim) -> str:
    """Hash of the paper's number, of when ours agrees with it, and of how words are given."""
    # Our own number is no part of it: a rule may not depend on the result.
    decides = [claim.says, claim.paper, claim.rule_text, SETTLING]
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:12]


SETTLING = "best reading of the figure, 1"
"""Version of :func:`with_verdicts`: raise it with every change of how words are given."""


def read_stamps(name: Literal["rules", "played"]) -> dict[str, Stamp]:
    """The committed rules, or the rules by which the results of full scale were judged."""
    return {key: Stamp(*value[:3]) for key, value in _committed(name).items()}


def write_rules(artefacts: Iterable[Artefact]) -> Path:
    """Commit the rules, before what they judge is run; a changed one counts from now on."""
    committed, at = read_stamps("rules"), _utc(time.time())
    stamps = {}
    for artefact in artefacts:
        for claim in artefact.claims:
            rule, key = rule_hash(claim), claim_id(artefact, claim)
            unchanged = key in committed and committed[key].rule == rule
            stamps[key] = [rule, committed[key].at if unchanged else at, claim.rule_text]
    return _commit("rules", stamps)


def stamp(artefacts: Iterable[Artefact], played: float | None) -> Path:
    """Say by which rules the results of these artefacts were judged, and when they were played.

    ``played`` is when the first of their runs was made, seconds since 1970; None: before the rules.
    """
    stamps = read_stamps("played")
    at, commit = ("", "") if played is None else (_utc(played), _rules_commit())
    for artefact in artefacts:
        for claim in artefact.claims:
            stamps[claim_id(artefact, claim)] = Stamp(rule_hash(claim), at, commit)
    return _commit("played", dict(sorted(stamps.items())))


def _rules_commit() -> str:
    """The commit of the rules; empty outside a repository, or if they were changed since."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(FOLDER), *words, "--", "rules.json"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    # Uncommitted rules have no date that anybody could check.
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


def rows(artefacts: Iterable[Artefact], quick: bool) -> list[pages.ClaimResult]:
    """The committed results as rows, in the order of the artefacts and their claims."""
    committed = read(quick)
    every = (with_verdicts(artefact, rows_of(artefact, committed)) for artefact in artefacts)
    return [row for rows, _ in every for row in rows]


def rows_of(artefact: Artefact, known: Mapping[str, Estimate]) -> list[pages.ClaimResult]:
    start = f"{artefact.paper} {artefact.name}: "
    mine = defaultdict[str, list[pages.ClaimResult]](list)
    claims = {claim.says: claim for claim in artefact.claims}
    for key, ours in known.items():
        says, _, version = key.removeprefix(start)[:-1].rpartition(" [")
        if key.startswith(start) and says in claims:
            mine[says].append(claim_result(artefact, claims[says], version, ours))
    return [row for says in claims for row in mine[says]]


def write(rows: Sequence[pages.ClaimResult], quick: bool) -> Path:
    """Put results in the place of the committed ones; those of other artefacts stay."""
    redone = {f"{row.paper} {row.artefact}" for row in rows}
    estimates = {
        # The artefact is all before the first colon; claims may have colons of their own.
        key: estimate
        for key, estimate in read(quick).items()
        if key.split(":")[0] not in redone
    }
    estimates |= {row.id: row.ours for row in rows}
    of_claims: dict[str, dict[str, list[float | None]]] = {}
    for key, value in sorted(estimates.items(), key=lambda item: item[0].split(":")[0]):
        claim, _, version = key[:-1].rpartition(" [")
        digits = [None if v is None else float(f"{v:.9g}") for v in value]
        of_claims.setdefault(claim, {})[version] = digits
    return _commit(SCALE[quick], of_claims)


def differences(rows: Sequence[pages.ClaimResult], quick: bool) -> list[str]:
    """Rows that are not what was committed, or that nothing is committed for, in words.

    The same seeds give the same numbers: mean and both ends of the interval must be the same to six
    digits. An interval is no excuse. What each seed gave is compared by :func:`different_seeds`.
    """
    committed, changes = read(quick), []
    for row in (row for row in rows if not row.timed):
        if row.id not in committed:
            changes.append(f"{row.id}: nothing is committed for it")
            continue
        ours, theirs = (
            np.array(estimate, np.float64) for estimate in (row.ours, committed[row.id])
        )
        # Six digits of the largest of the three, for a mean near zero has few of its own.
        slack = 1e-6 * max(1.0, float(np.nanmax(np.abs(theirs))))
        if (off := ~np.isclose(ours, theirs, rtol=0.0, atol=slack, equal_nan=True)).any():
            i = int(np.argmax(off))
            part = ("mean", "low", "high")[i]
            changes.append(f"{row.id}: {part} is {row.ours[i]}, not {committed[row.id][i]}")
    return changes


def table(rows: Sequence[pages.ClaimResult]) -> pl.DataFrame:
    plain = [row.as_dict() | {"the paper": str(row.number)} for row in rows]
    return pl.DataFrame(plain, infer_schema_length=None)


def markdown(rows: Iterable[pages.ClaimResult]) -> str:
    """For reading: a heading per artefact, a row per claim."""
    groups = groupby(rows, lambda row: f"{row.paper} {row.artefact}")
    return "\n".join(
        f"## {artefact}\n\n{artefact_markdown(list(mine))}" for artefact, mine in groups
    )


def artefact_markdown(rows: Sequence[pages.ClaimResult]) -> str:
    """The claims of an artefact, a row each, in Markdown."""
    rows = pages.over_readings(rows)
    lines = ["| claim | the paper | ours; ✓ agrees | |", "|---|---|---|---|"]
    for word, mine in pages.by_claim(rows):
        says, papers = mine[0].says, mine[0].number
        ours = "<br>".join(
            f"{row.version}: {row.text}{' ✓' * (row.agrees is True and not row.readings)}"
            for row in mine
        )
        paper = f"{papers:g}" if isinstance(papers, float) else str(papers)
        cells = (says, paper, ours, f"*{word}*")
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    lines += ["", f"{pages.counts(rows)}."]
    whys = [row.why for row in rows if row.why and row.agrees is not True]
    if whys:
        reasons = dict.fromkeys(reason for cause in whys for reason in cause.split("; "))
        lines += ["", "Why: " + "; ".join(reasons) + "."]
    return "\n".join(lines) + "\n"


ENDINGS = ("csv", "parquet", "png", "svg")  # files of an artefact


def earlier_artefacts(out: Path, scale: RunScale, redone: Iterable[Artefact]) -> pages.Reproduced:
    """Artefacts of a folder that stay: those at the same scale that are not done again.

    Nothing stays of another scale, other seeds or another version: one table holds what one
    command could have made. A torn file holds nothing.
    """
    key = gangwise.__version__, scale.quick, scale.seeds
    version, quick, seeds = key
    nothing = pages.Reproduced(version=version, quick=quick, seeds=seeds, artefacts=[], left_out={})
    try:
        earlier = pages.read_reproduction(out)
    except StoreError:
        return nothing
    if (earlier.version, earlier.quick, earlier.seeds) != key:
        return nothing
    again = {artefact.stem for artefact in redone}
    return replace(
        earlier,
        left_out={stem: reason for stem, reason in earlier.left_out.items() if stem not in again},
        artefacts=[artefact for artefact in earlier.artefacts if artefact.stem not in again],
        rows=[row for row in earlier.rows if row.stem not in again],
    )


def artefact_files(artefact: Artefact, found: Found) -> dict[str, Content]:
    """The numbers of an artefact and its picture, by the names of their files."""
    numbers = artefact.numbers(found).select(plotting.COLUMNS)
    title = f"{artefact.paper} {artefact.name}: {artefact.title}"
    figure = plotting.draw(title, numbers, artefact.panels)
    return {
        f"{artefact.stem}.csv": numbers.write_csv(),
        f"{artefact.stem}.parquet": numbers.write_parquet,
        f"{artefact.stem}.png": plotting.image(figure, "png"),
        f"{artefact.stem}.svg": plotting.image(figure, "svg"),
    }


def _claim_files(rows: Sequence[pages.ClaimResult]) -> dict[str, Content]:
    plain = json.dumps([row.as_dict() for row in rows], indent=1, ensure_ascii=False)
    return {
        "side-by-side.csv": table(rows).write_csv(),
        "side-by-side.md": markdown(rows),
        "side-by-side.json": plain + "\n",
    }


def publish(
    out: Path, files: Mapping[str, Content], kept: Iterable[pages.ArtefactEntry]
) -> list[Path]:
    """Put files into a folder as a whole, beside those of artefacts that stay.

    What else earlier commands left there goes, and with it a page about it. StoreError when a file
    cannot be written, or one that stays is damaged; nothing is changed then.
    """
    folder = Folder(out)
    with folder.publish("reproduction") as draft:
        for artefact in kept:
            for ending in ENDINGS:
                if folder.is_there(name := f"{artefact.stem}.{ending}"):
                    draft.write(name, folder.read(name))
        for name, content in files.items():
            draft.write(name, content)
        folder.remove(pages.PAGE)
    return [folder.place(name) for name in files]


@dataclass(frozen=True)
class Reproduction:
    rows: list[pages.ClaimResult]  # claims with our numbers, one for each reading
    written: list[Path]
    left_out: dict[str, str]  # artefacts that were not run, and why
    totals: Totals
    artefacts: tuple[Artefact, ...] = ()  # those that were played
    played: float = 0.0  # when the first of their runs was made, seconds since 1970
    joined: bool = False  # whether artefacts of earlier commands stay in the folder


def reproduce(
    artefacts: Sequence[Artefact],
    scale: RunScale,
    out: Path | str,
    jobs: int = -1,
    backend: Backend = "loky",
    address: str | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Run what is not there yet, then write numbers, pictures and the side-by-side table.

    The folder has ``runs/`` (the store), ``PAPER-ARTEFACT.png``, ``.svg``, ``.csv`` and
    ``.parquet``, ``side-by-side.csv``, ``.md`` and ``.json``, ``reproduction.json`` (which
    artefacts). Artefacts of earlier calls at the same scale stay. For ``jobs``,
    ``backend`` and ``address`` see :func:`gangwise.study.sweep.sweep`.

    StoreError when results cannot be written.
    """
    out, advance = Path(out), progress or silent
    left_out: dict[str, str] = {}
    chosen: dict[Artefact, list[Experiment]] = {}
    for artefact in artefacts:
        if reason := _missing_trace(artefact, scale):
            left_out[artefact.stem] = reason
        else:
            chosen[artefact] = list(artefact.experiments(scale))
    # Artefacts share experiments, each of which is played once.
    unique = {e.name: e for experiments in chosen.values() for e in experiments}
    runs, runs_done = sum(len(e.runs()) for e in unique.values()), 0
    results: dict[str, Results] = {}
    for name, experiment in unique.items():

        def further(what: str, finished: int, total: int, before: int = runs_done) -> None:
            advance("runs", before + finished, runs)

        results[name] = sweep(experiment, out / "runs", jobs, backend, address, further)
        runs_done += len(experiment.runs())
    rows: list[pages.ClaimResult] = []
    files: dict[str, Content] = {}
    shown: list[pages.ArtefactEntry] = []
    for artefact, experiments in chosen.items():
        by_name = {e.name: results[e.name] for e in experiments}
        files |= artefact_files(artefact, by_name)
        mine = [
            claim_result(artefact, claim, *estimate)
            for claim in artefact.claims
            for estimate in claim.ours(by_name).items()
            if math.isfinite(estimate[1].mean)  # not an exponent of a loss, or a share of nothing
        ]
        rows += with_verdicts(artefact, mine)[0]
        axes = tuple(artefact.panels)
        shown.append(
            pages.ArtefactEntry(artefact.paper, artefact.name, artefact.title, tuple(by_name), axes)
        )
    earlier = earlier_artefacts(out, scale, chosen)
    files |= _claim_files([*earlier.rows, *pages.over_readings(rows)])
    # One that an earlier command played is not left out, though this command lacks its trace.
    stems = {artefact.stem for artefact in earlier.artefacts}
    missing = {
        k: reason for k, reason in {**earlier.left_out, **left_out}.items() if k not in stems
    }
    every = replace(earlier, artefacts=[*earlier.artefacts, *shown], left_out=missing, rows=[])
    about = {name: content for name, content in asdict(every).items() if name != "rows"}
    files["reproduction.json"] = json.dumps(about, indent=1, ensure_ascii=False) + "\n"
    paths = publish(out, files, earlier.artefacts)
    store = Store(out / "runs")
    keys = {run["key"] for result in results.values() for run in result.runs}
    # The earliest: a rule made after any of its runs is no rule in advance.
    played = min((store.path(key).stat().st_mtime for key in keys), default=0.0)
    again = bool(earlier.artefacts)
    return Reproduction(rows, paths, left_out, totals(results), tuple(chosen), played, again)


def _missing_trace(artefact: Artefact, scale: RunScale) -> str:
    """Reason why an artefact cannot be played; empty where it can."""
    if not artefact.trace:
        return ""
    needs = f"needs the trace {artefact.trace}: "
    if scale.traces is None:
        return f"{needs}give the folder that holds it with --traces"
    folder = scale.traces / artefact.trace
    return "" if folder.is_dir() else f"{needs}there is no folder {folder}"
