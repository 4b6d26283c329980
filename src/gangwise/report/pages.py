"""The page of a folder of results: a comparison, a sweep, a tuning, a replay, a reproduction.

:func:`document` reads a folder and gives the parts of its page, which is written as HTML, or its
tables and figures as files. A page quotes the digest of the files whose numbers it shows, and is
published as a whole.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from pydantic import TypeAdapter

import gangwise
from gangwise.core.errors import ScenarioError, StoreError
from gangwise.core.files import Folder, read_whole, torn, write_whole
from gangwise.core.settings import finite
from gangwise.jobs.bounds import Certified, LowerBound
from gangwise.report import curves, experiments, jobs, page
from gangwise.report.plotting import COLUMN_WIDTH, COLUMNS, Panel
from gangwise.report.tables import Cell, Sheet, value_cell
from gangwise.study import replay, sweep, tune
from gangwise.study.compare import COMPARISON, Comparison, is_comparison
from gangwise.study.results import Results
from gangwise.study.runs import command_of, provenance_text, versions
from gangwise.study.statistics import NOTHING, Estimate, count, decimals_for, estimate_text, number
from gangwise.study.statistics import verdict as verdict_on
from gangwise.study.what_if import as_dict as what_if

PAGE = "report.html"
SUMMARY, BOUNDS = "summary.json", "bounds.json"

KEYS = 500
"""The keys of more runs than this are not listed."""


def write_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Write one self-contained page about a folder of results: ``report.html`` in it, or ``out``.

    The folder is one of a sweep (of one or more experiments), of ``gangwise tune``, ``reproduce``,
    ``compare``, ``run`` or ``replay``. StoreError when it holds no results, or the page cannot be
    written.

    >>> write_report("nowhere")
    Traceback (most recent call last):
    gangwise.core.errors.StoreError: there is no folder nowhere
    """
    folder = Path(folder)
    if out is not None:
        write_whole(out, page.html(document(folder)))
        return Path(out)
    # A page of these is published with the numbers it shows: new numbers remove it.
    content = _opened(folder)
    if isinstance(content, Comparison):
        write_comparison(content, folder, command_of(folder, content.results.experiment["name"]))
    elif isinstance(content, replay.Replayed):
        command, capacity = command_of(folder, replay.NAME), _capacity(folder)
        write_replay(content, folder, _stored(folder, BOUNDS), command, capacity)
    else:
        text = page.html(document(folder))
        with Folder(folder).publish("report") as edition:
            edition.write(PAGE, text)
    return folder / PAGE


def write_files(
    folder: Path | str, wanted: page.Format, out: Path | str, width: float = COLUMN_WIDTH
) -> list[Path]:
    """Write the tables of a page as CSV, or its figures as SVG, PDF or PNG.

    Into the folder ``out``; figures are ``width`` inches wide, by default as a column of a paper.
    StoreError when the folder holds no results, or a file cannot be written.
    """
    if wanted not in get_args(page.Format):
        raise ScenarioError(
            f"a report has no format {wanted!r}: {', '.join(get_args(page.Format))}"
        )
    paths = []
    for name, content in page.exported(document(Path(folder)), wanted, width).items():
        paths.append(Path(out, name))
        write_whole(paths[-1], content)
    return paths


def _opened(folder: Path) -> Comparison | replay.Replayed | list[str]:
    """Content of a folder: a comparison, a replay, or experiments of these names."""
    if not folder.is_dir():
        raise StoreError(f"there is no folder {folder}")
    # First, as a reproduction has plans of its experiments as well.
    if (folder / "reproduction.json").exists():
        return []
    names = sorted(p.name.removesuffix(".plan.json") for p in folder.glob("*.plan.json"))
    if len(names) == 1 and is_comparison(folder, names[0]):
        return Comparison.open(folder, names[0])
    return replay.Replayed.open(folder) if names == [replay.NAME] else names


def document(folder: Path) -> page.Page:
    """The parts of the page about a folder; StoreError when it holds no results."""
    content = _opened(folder)
    if isinstance(content, Comparison):
        return comparison_page(content, command_of(folder, content.results.experiment["name"]))
    if isinstance(content, replay.Replayed):
        certified = _certified(folder, _stored(folder, BOUNDS))
        results = jobs.results_of(content, certified, command_of(folder, replay.NAME))
        return replace(results, capacity=_capacity(folder)).document()
    if content:
        return _experiments(folder, content)
    if (folder / "reproduction.json").exists():
        return reproduction_page(folder)
    raise StoreError(
        f"{folder} holds no results of gangwise sweep, reproduce, tune or compare; name the "
        "folder that was given to them as --out"
    )


# Experiments: sweeps and tunings


def _experiments(folder: Path, names: Sequence[str]) -> page.Page:
    tuned = tune.read_tuning(folder) if tune.TUNING in names else None
    every = [Results.open(folder, name) for name in names]
    if not any(results.runs for results in every):
        raise StoreError(f"no run in {folder} is finished; start the sweep again")
    title, lead = names[0] if len(names) == 1 else folder.resolve().name, ""
    if tuned is not None:
        # What gangwise tune concluded; its trials alone would say more than they know.
        title, lead = _verdict_of(tuned), f"{page.sentence_case(tuned.sentence)}."
    chapters = [_experiment(shown, f"e{i}", tuned) for i, shown in enumerate(every)]
    if tuned is not None and len(chapters) == 1:  # of one chapter a page shows only its title
        chapters = [chapters[0]._replace(title=f"{title}.")]
    byline = f"{len(names)} experiments, gangwise {gangwise.__version__}"
    return page.Page(f"{title}: results", chapters, title, byline, lead)


def _experiment(results: Results, anchor: str, tuned: tune.Tuning | None) -> page.Chapter:
    name = str(results.experiment["name"])
    if not results.runs or not results.policies:
        runs = "No run of a policy is" if results.runs else "None of its runs is"
        return page.Chapter(name, "", [page.Text(f"{runs} finished.")], name)
    scenario, settings = results.scenario()
    recipe = page.how_made(
        results.store.folder,
        name,
        [f"runs/{run['key']}.parquet" for run in results.runs],
        sweep.experiment_toml(results.experiment),
        {"gangwise of the runs": ", ".join(results.run_versions) or NOTHING},
        _keys(results),
    )
    shown = experiments.ShownExperiment(results, anchor, recipe, {"scenario": scenario, **settings})
    notes: list[page.Part] = [page.Text(line, "note") for line in results.notes]
    if tuned is not None and name == tune.TUNING:
        chapter = experiments.tuning_chapter(tuned, shown)
        parts = [page.Tiles(_tuning_tiles(tuned)), *notes, *chapter.parts]
        return chapter._replace(name=name, parts=parts)
    return experiments.chapter(shown, results.notes, name=name)


def _verdict_of(tuned: tune.Tuning) -> str:
    if tuned.row is None:
        return f"No trial is better than the default of {tuned.policy}"
    names = {"policy": f"tuned {tuned.policy}", "over": "its default"}
    return page.sentence_case(verdict_on({**tuned.row, **names}))


def _tuning_tiles(tuned: tune.Tuning) -> list[page.Tile]:
    """Tiles of tuning: its worth on seeds that did not choose, on those that did, and how many."""
    row = []
    worth = (
        ("On other seeds", tuned.row),
        ("On the seeds that chose", tuned.over_default(tuned.best)),
    )
    for label, gain in worth:
        if gain is None:
            continue
        change, unit = Estimate.of(gain), " %" * bool(gain["percent"])
        text = estimate_text(change, decimals_for([change]), sign=True)
        mean, _, half = text.partition(" ± ")
        # Only where chance is excluded.
        tone = "good" if gain["low"] is not None and gain["low"] > 0 else ""
        row.append(page.Tile(label, f"{mean}{unit}", f"± {half}" * bool(half), tone))
    best = ", ".join(
        f"{key} {number(value, 2)}" if isinstance(value, float) else f"{key} {value}"
        for key, value in tuned.best.arguments.items()
    )
    row.append(page.Tile("Trials", f"{len(tuned.trials)}", f"best: {best}"))
    return row


def _keys(results: Results) -> list[str]:
    def about(run: Mapping[str, Any]) -> str:
        cell = "".join(f"{k} = {v}, " for k, v in run["cell"].items())
        return f"{run['key']}  {run['label']}, {cell}seed {run['seed']}"

    # A list of thousands would be longer than the rest of the page.
    return [] if len(results.runs) > KEYS else [about(run) for run in results.runs]


# A comparison


def write_comparison(
    comparison: Comparison, directory: Path | str, command: str = ""
) -> list[Path]:
    """Write ``rewards.parquet``, ``summary.json``, the figures and ``report.html``, as a whole.

    Gives the files. StoreError when they cannot be written; what was there before is still there.
    ``command`` made this comparison, and is shown as it is.
    """
    folder = comparison.store(directory).files
    with folder.publish(COMPARISON) as out:
        # Files come first, as the page quotes their digest.
        digests = {name: out.write(name, content) for name, content in comparison.files().items()}
        if command:
            about = f"{comparison.results.experiment['name']}.command.json"
            out.write(about, provenance_text(command))
        if find_spec("matplotlib"):  # of the extra "full"
            for name, content in curves.figure_files(comparison.results).items():
                out.write(name, content)
        out.write(PAGE, page.html(comparison_page(comparison, command, digests["rewards.parquet"])))
        names = list(out.staged)
    return [folder.place(name) for name in names]


def comparison_page(comparison: Comparison, command: str = "", digest: str = "") -> page.Page:
    """The page of a comparison: the command that made it, and the digest of ``rewards.parquet``."""
    played = {"slots": comparison.slots, "seeds": ", ".join(map(str, comparison.seeds))}
    how = page.by_command(
        command,
        "rewards",
        "This comparison was made from Python; scenario, slots, seeds and the policies' arguments, "
        "as given on this page, define every reward in it.",
    )
    caption, keys = "Slots, seeds and versions", _keys(comparison.results)
    recipe = page.how_to_repeat(how, played | versions(), caption, keys, digest, "rewards.parquet")
    shown = experiments.ShownExperiment(
        comparison.results, "e0", recipe, comparison.scenario.describe()
    )
    chapter = experiments.chapter(shown, comparison.notes, bool(comparison.tied))
    return page.Page(chapter.title, [chapter])


# A replay


def _stored(folder: Path, name: str) -> Any:
    files = Folder(folder)
    # A replay without bounds has an empty object, which is as none.
    return json.loads(files.read(name)) or None if files.is_there(name) else None


Stored = Mapping[str, float | list[float]]
"""By seed, the two bounds as ``bounds.json`` has them; one number where it is of gangwise 0.3."""


def _capacity(folder: Path) -> Sequence[Mapping[str, Any]]:
    return list((_stored(folder, SUMMARY) or {}).get("capacity", ()))


def _certified(folder: Path, bounds: Stored | Sequence[LowerBound] | None) -> Certified:
    if not isinstance(bounds, Mapping):
        return Certified.of(bounds or [])
    pairs = [pair if isinstance(pair, list) else [pair] for pair in bounds.values()]
    preemptive = tuple(pair[1] for pair in pairs if len(pair) > 1)
    # Summaries of before do not say it: then prices were searched.
    searched = (_stored(folder, SUMMARY) or {}).get("prices_searched", True)
    return Certified(tuple(pair[0] for pair in pairs), preemptive, searched)


def write_replay(
    played: replay.Replayed,
    directory: Path | str,
    bounds: Stored | Sequence[LowerBound] | None = None,
    command: str = "",
    capacity: Sequence[Mapping[str, Any]] = (),
) -> list[Path]:
    """Write ``summary.json``, the prices that prove the bounds, and ``report.html``, as a whole.

    Bounds that are given as numbers are those of the folder: the prices that prove them stay.
    ``capacity`` is how many nodes reach a target, :meth:`~gangwise.study.what_if.Needed.as_dict`.
    StoreError when files cannot be written; what was there before is still there.
    """
    folder = Folder(directory)
    certified = _certified(folder.path, bounds)
    with folder.publish(replay.NAME) as edition:
        results = replace(jobs.results_of(played, certified, command), capacity=capacity)
        summary = finite(played.as_dict(certified) | what_if(played))
        summary |= {"capacity": finite(list(capacity))} if capacity else {}
        edition.write(SUMMARY, json.dumps(summary, indent=2) + "\n")
        pairs = [list(pair) for pair in zip(*filter(None, certified[:2]))]
        edition.write(BOUNDS, json.dumps(dict(zip(map(str, played.seeds), pairs))) + "\n")
        # The prices are in files, which the new edition has to take along.
        if isinstance(bounds, Mapping):
            for path in sorted(folder.path.glob("prices-*.parquet")):
                edition.write(path.name, read_whole(path))
        elif certified.priced:
            for seed, bound in zip(played.seeds, bounds or []):
                edition.write(f"prices-{seed}.parquet", partial(_write_prices, bound))
        if command:
            edition.write(f"{replay.NAME}.command.json", provenance_text(command))
        edition.write(PAGE, results.page())
        names = list(edition.staged)
    return [folder.place(name) for name in names]


def _write_prices(bound: LowerBound, file: Any) -> None:
    """Prices above 0: node, from when (seconds), for how long, price of a device-second."""
    # Nearly all prices are 0, and not written.
    node, period = np.nonzero(bound.prices)
    pl.DataFrame(
        {
            "node": node,
            "begin": bound.origin + period * bound.period,
            "seconds": np.full(node.size, bound.period),
            "price": bound.prices[node, period],
        }
    ).write_parquet(file)


Verdict = Literal["reproduced", "not reproduced", "underdetermined", "not tested"]
"""The word for a claim: it agrees in the reading of the paper that fits its figure best; in none;
in other readings only; or nothing is compared.
"""


AT = " @ "
"""Between a version and the reading of which rows of the traces the authors took."""


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
        # Keys that a later version has added are left out.
        names = {f.name for f in fields(cls)}
        values = {"number" if key == "the paper" else key: plain[key] for key in plain}
        # JSON has null where there is no number.
        mean = math.nan if plain["ours"] is None else plain["ours"]
        values["ours"] = Estimate(mean, plain["low"], plain["high"])
        return cls(**{name: value for name, value in values.items() if name in names})

    def as_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for name, value in vars(self).items():
            if name == "ours":
                plain |= zip(("ours", "low", "high"), value)
            elif name != "timed":
                plain["the paper" if name == "number" else name] = value
        return plain


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
    # The first hyphen stands before a number, others before a panel.
    return f"{PAPERS.get(paper, paper)}, {name.replace('-', ' ', 1).replace('-', ', ')}"


PAPERS = {"ogasched": "OGASched", "esdp": "ESDP", "opm": "OPS and OPM", "field": "The field"}
"""The papers' names for readers."""


@dataclass(frozen=True, kw_only=True)
class Reproduced:
    version: str = ""  # of gangwise
    quick: bool  # whether at the small scale
    seeds: tuple[int, ...] | None = None  # instead of each artefact's own
    artefacts: list[ArtefactEntry]
    left_out: dict[str, str]  # artefacts that were not run, and why
    rows: list[ClaimResult] = field(default_factory=list)  # claims beside our numbers


AGAIN = "run the same gangwise reproduce again, runs that are stored are not done again"


def read_reproduction(folder: Path) -> Reproduced:
    """Read a folder; StoreError when a file is torn, or is no such file."""
    with torn(path := folder / "reproduction.json", AGAIN):
        content = TypeAdapter(Reproduced).validate_json(read_whole(path))
    with torn(path := folder / "side-by-side.json", AGAIN):
        rows = json.loads(read_whole(path)) if path.exists() else []
        return replace(content, rows=[ClaimResult.of(row) for row in rows])


def read_picture(folder: Path, artefact: ArtefactEntry) -> page.Plot | None:
    """The picture of an artefact, drawn from its numbers; None without, StoreError when torn."""
    caption = f"The numbers are in {artefact.stem}.csv and {artefact.stem}.parquet."
    path = Folder(folder).place(f"{artefact.stem}.parquet")
    if not (artefact.panels and path.exists()):
        return None
    with torn(path, AGAIN, pl.exceptions.PolarsError):
        numbers = pl.read_parquet(read_whole(path), columns=[*COLUMNS])
        if numbers["low"].is_not_null().any():
            crowded = numbers["line"].n_unique() > curves.BANDS
            caption += " Bands and bars are 95 % confidence intervals"
            caption += "; point at a name for the band of its line." if crowded else "."
        return page.pictured(page.sentence_case(artefact.title), numbers, artefact.panels, caption)


VERDICTS = get_args(Verdict)


def by_claim(rows: Iterable[ClaimResult]) -> list[tuple[Verdict, list[ClaimResult]]]:
    """The word and the rows of each claim; it has the word of its tested rows."""
    claims: dict[tuple[str, str], list[ClaimResult]] = {}
    for row in rows:
        claims.setdefault((row.stem, row.says), []).append(row)
    # Rows that test nothing do not speak for their claim.
    untested: Verdict = "not tested"
    return [
        (next((row.verdict for row in mine if row.verdict != untested), untested), mine)
        for mine in claims.values()
    ]


def claims_by_word(rows: Iterable[ClaimResult]) -> Counter[str]:
    """Numbers of claims by word."""
    counts = Counter(verdict for verdict, _ in by_claim(rows))
    # With 0 for words that no claim has.
    return Counter({verdict: counts[verdict] for verdict in VERDICTS})


SMALL = ("agrees", "differs", "agrees in another reading", "not compared")
"""The words in place of the verdicts at the quick scale, at which nothing is judged."""


def verdict_text(verdict: Verdict, quick: bool) -> str:
    return SMALL[VERDICTS.index(verdict)] if quick else verdict


def counts(rows: Iterable[ClaimResult], quick: bool = False) -> str:
    """Numbers of claims by outcome.

    Examples
    --------
    >>> one = ClaimResult("p", "a", "s", "v", 1.0, Estimate(1.0, None, None), "reproduced", "")
    >>> counts([one])
    '1 claim: 1 reproduced, 0 not reproduced, 0 underdetermined, 0 not tested'
    """
    words = claims_by_word(rows)
    if quick:
        small = "played small (--quick), which is no verdict"
        return f"{count(words.total(), 'claim')}, {small}; agree: {words['reproduced']}"
    text = ", ".join(f"{n} {verdict}" for verdict, n in words.items())
    return f"{count(words.total(), 'claim')}: {text}"


def overview_sheet(found: Reproduced) -> Sheet:
    rows = []
    for a in found.artefacts:
        words = claims_by_word(row for row in found.rows if row.stem == a.stem)
        rows.append((a.called, (Cell(a.title, words=True), *map(value_cell, words.values()))))
    headings = ("what it shows", *(verdict_text(verdict, found.quick) for verdict in VERDICTS))
    stems = [artefact.stem for artefact in found.artefacts]
    says = (page.phrase("artefacts"),)
    return Sheet("Artefacts", headings, tuple(rows), says, "artefact", links=stems)


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
    by_claim: dict[str, list[ClaimResult]] = {}
    for row in rows:
        version, at, _ = row.version.partition(AT)
        by_claim.setdefault(replace(row, version=version).id if at else row.id, []).append(row)
    merged = []
    for main, *alternatives in by_claim.values():
        version, at, _ = main.version.partition(AT)
        if at:
            # None, of a row that compares nothing, does not agree.
            agreeing = sum(row.agrees is True for row in (main, *alternatives))
            means = [row.ours.mean for row in (main, *alternatives)]
            ours = Estimate(sum(means) / len(means), min(means), max(means))
            main = replace(main, version=version, ours=ours, readings=len(means), agreeing=agreeing)
        merged.append(main)
    return merged


def claims_sheet(results: Iterable[ClaimResult], quick: bool, stem: str = "") -> Sheet:
    """Each claim once, with the versions that it is about, or all where none is tested.

    Of one artefact alone, with all versions.
    """
    rows, data, links = [], [], []
    for verdict, mine in by_claim(r for r in over_readings(results) if stem in ("", r.stem)):
        tested = [row for row in mine if row.agrees is not None or stem] or mine
        versions = "; ".join(row.version for row in tested)
        row = replace(tested[0], verdict=verdict, version=versions)
        paper, version, ours, word = _cells(row, quick)
        ours = replace(ours, text="; ".join(row.text for row in tested))
        place = Cell(called(row.paper, row.artefact), words=True)
        rows.append((row.says, (*(() if stem else (place,)), paper, version, ours, word)))
        data.append({"paper": row.paper, "verdict": verdict_text(verdict, quick)})
        links.append(row.stem)
    if stem:
        return Sheet("What the paper says, and what we found", BESIDE, tuple(rows), first="claim")
    headings = ("where", *BESIDE)
    says = (page.phrase("claims"),)
    return Sheet("Every claim", headings, tuple(rows), says, "claim", links=links, data=data)


BESIDE = ("the paper", "version", "ours", "verdict")


def artefact_section(folder: Path, artefact: ArtefactEntry, found: Reproduced) -> page.Section:
    rows = [row for row in found.rows if row.stem == artefact.stem]
    picture = read_picture(folder, artefact)
    parts: list[page.Part] = [] if picture is None else [picture]
    if rows:
        parts.append(claims_sheet(found.rows, found.quick, artefact.stem))
    reasons: dict[str, list[str]] = {}
    for row in rows:
        reasons.setdefault(row.why, []).append(row.says)
    # Numbers that agree need no reason.
    reasons.pop("", None)
    if reasons:
        texts = [
            f"{'; '.join(dict.fromkeys(claims))}: {reason}." for reason, claims in reasons.items()
        ]
        parts += [page.Text("Where ours differs, or may, and why:"), page.Bullets(texts)]
    title = artefact.called if picture is not None else f"{artefact.called}: {artefact.title}"
    return page.Section(title, parts, artefact.stem)


def reproduction_page(folder: Path) -> page.Page:
    content = read_reproduction(folder)
    papers = list(dict.fromkeys(a.paper for a in content.artefacts))
    named = ", ".join(PAPERS.get(paper, paper) for paper in papers)
    scale = "quick: fewer slots, seeds and cells than the papers" if content.quick else "full scale"
    words, shown = claims_by_word(content.rows), count(len(content.artefacts), "artefact")
    parts: list[page.Part] = []
    if content.rows:
        texts = (verdict_text(verdict, content.quick) for verdict in VERDICTS)
        claims = count(words.total(), "claim")
        parts.append(
            page.Tiles(
                [
                    page.Tile(page.sentence_case(text), f"{n:,}", f"of {claims}")
                    for text, n in zip(texts, words.values())
                ]
            )
        )
    if content.left_out:
        parts.append(page.Text("Left out:", "note"))
        parts.append(
            page.Bullets([f"{stem}: {reason}" for stem, reason in content.left_out.items()])
        )
    if len(content.artefacts) > 1:
        parts.append(page.Section("What was reproduced", [overview_sheet(content)]))
    if content.rows:
        n = claims_by_word(content.rows).total()
        by = "by verdict and paper" if len(papers) > 1 else "by verdict"
        verdicts = [verdict_text(verdict, content.quick) for verdict in VERDICTS]
        every: list[page.Part] = [
            page.Choices({"verdict": verdicts, "paper": papers}),
            claims_sheet(content.rows, content.quick),
        ]
        fold = page.Fold(f"{count(n, 'claim')}, {by}", every, opened=n <= 20)
        parts.append(page.Section("Side by side", [fold]))
    parts += [artefact_section(folder, a, content) for a in content.artefacts]
    files = [f"{a.stem}.{ending}" for a in content.artefacts for ending in ("parquet", "svg")]
    files += ["reproduction.json", "side-by-side.json"]
    parts.append(page.how_made(folder, "reproduction", files))
    title = "The papers' numbers and ours"
    byline = "; ".join([title, named, shown, scale, f"gangwise {gangwise.__version__}"])
    word = "agree, played small, which is no verdict" if content.quick else "are reproduced"
    heading = f"{words['reproduced']} of {count(words.total(), 'claim')} {word}"
    return page.Page(title, [page.Chapter(heading if content.rows else title, byline, parts)])


_MARKS = {"reproduced": "agrees", "not reproduced": "differs"}
"""Style classes of the verdicts that have a sign beside their word on a page."""


def _cells(row: ClaimResult, quick: bool) -> tuple[Cell, ...]:
    paper = Cell(str(row.number), mark="said")
    if not isinstance(row.number, str):  # as the paper prints it
        paper = Cell(f"{row.number:,.10g}".replace("-", "−"), row.number)
    return (
        paper,
        Cell(row.version, words=True),
        Cell(row.text, row.ours.mean),
        Cell(verdict_text(row.verdict, quick), words=True, mark=_MARKS.get(row.verdict, "open")),
    )
