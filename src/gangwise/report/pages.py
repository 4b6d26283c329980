"""The page of a folder of results: a comparison, a sweep, a tuning, a reproduction.

Numbers, sentences, tables and figures come from the modules beside this one; the templates lay them
out. A page quotes the digest of the files whose numbers it shows, and is published as a whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import gangwise
from gangwise.core.errors import StoreError
from gangwise.core.files import Folder, write_whole
from gangwise.core.json_text import finite
from gangwise.experiments.compare import COMPARISON, Comparison, is_comparison
from gangwise.experiments.replay import NAME as REPLAY
from gangwise.experiments.replay import Replayed
from gangwise.experiments.results import Results
from gangwise.experiments.sensitivity import Sensitivity
from gangwise.experiments.specification import experiment_toml
from gangwise.experiments.statistics import NOTHING, Estimate
from gangwise.experiments.store import provenance_text, read_provenance, versions
from gangwise.experiments.tune import TUNING, Tuning, read_tuning
from gangwise.jobs.bounds import LowerBound
from gangwise.report import reproduction, sheets, tuning, words
from gangwise.report.again import run_figures
from gangwise.report.dots import Dots, dots
from gangwise.report.figures import MOST, figure_files, figures, styles
from gangwise.report.jobs import job_report, results_of
from gangwise.report.numbers import (
    Numbers,
    about_comparator,
    against_best,
    byline,
    cell_text,
    lead,
    missing,
)
from gangwise.report.plotting import plain_styles
from gangwise.report.rendering import Drawn, render
from gangwise.report.tables import Sheet

PAGE = "report.html"

KEYS = 500
"""More runs than this, and their keys are not listed."""

SAID = 12
"""More cells than this, and the verdicts on single cells are folded away."""


def write_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Write one self-contained page about a folder of results.

    Parameters
    ----------
    folder : path
        Of a sweep (of one or more experiments), of ``gangwise tune``, of ``gangwise reproduce``, or
        of ``gangwise compare`` or ``run``.
    out : path, optional
        The file to write; ``report.html`` in the folder by default.

    Raises
    ------
    StoreError
        When the folder holds no results, or the page cannot be written.

    Examples
    --------
    >>> write_report("nowhere")
    Traceback (most recent call last):
    gangwise.core.errors.StoreError: there is no folder nowhere
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise StoreError(f"there is no folder {folder}")
    names = sorted(p.name.removesuffix(".plan.json") for p in folder.glob("*.plan.json"))
    if (folder / "reproduction.json").exists():
        page = _reproduction(folder)
    elif len(names) == 1 and is_comparison(folder, names[0]):
        comparison, known = Comparison.open(folder, names[0]), read_provenance(folder, names[0])
        command = "" if known is None else known.command
        if out is None:
            write_comparison(comparison, folder, command)
            return folder / PAGE
        page = comparison_page(comparison, command)
    elif names == [REPLAY]:
        known = read_provenance(folder, REPLAY)
        played = Replayed.open(folder)
        if out is None:
            bounds = json.loads(_kept(folder, BOUNDS)) or None
            told = json.loads(_kept(folder, SENSITIVITY))
            again = Sensitivity.of_dict(told) if told else None
            write_replay(played, folder, bounds, "" if known is None else known.command, again)
            return folder / PAGE
        page = job_report(results_of(played)).page()
    elif names:
        page = _experiments(folder, names)
    else:
        raise StoreError(
            f"{folder} holds no results of gangwise sweep, reproduce, tune or compare; name the "
            "folder that was given to them as --out"
        )
    if out is not None:
        write_whole(out, page)
        return Path(out)
    with Folder(folder).publish("report") as new:
        new.write(PAGE, page)
    return folder / PAGE


# How the numbers on a page were made


def numbers_digest(folder: Path, names: Iterable[str]) -> str:
    """The digest of files of a folder, by their names and the digests of their contents.

    The SHA-256 of lines "name, a blank, SHA-256 of the file", sorted, so that
    ``sha256sum`` finds it as well. A file that is not there has no line.
    """
    lines = [
        f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n"
        for name in sorted(set(names))
        if (path := folder / name).exists()
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _made(
    folder: Path,
    name: str,
    of: Sequence[str],
    file: str = "",
    more: Mapping[str, str] | None = None,
    keys: Sequence[str] = (),
) -> dict[str, Any]:
    """What the last section of a page says: command, experiment file, versions, keys, digest."""
    known = read_provenance(folder, name)
    used = known.versions if known is not None else versions()
    return {
        "name": name,
        "folder": folder.name or "results",
        "command": known.command if known is not None else "",
        "what": "rewards",
        "python": "",
        "file": file.rstrip(),
        "versions": {**used, **(more or {})},
        "caption": "Versions" if known is not None else "Versions that wrote this page",
        "runs": keys,
        "digest": numbers_digest(folder, of),
        "of": "1 file" if len(of) == 1 else f"{len(of):,} files",
    }


# Experiments: sweeps and tunings


def _experiments(folder: Path, names: Sequence[str]) -> str:
    tuned = read_tuning(folder) if TUNING in names else None
    every = [Results.open(folder, name) for name in names]
    if not any(results.runs for results in every):
        raise StoreError(f"no run in {folder} is finished; start the sweep again")
    # What gangwise tune concluded; its trials alone would say more than they know.
    found = "" if tuned is None else f"{tuned.sentence[0].upper()}{tuned.sentence[1:]}."
    title = names[0] if len(names) == 1 else folder.resolve().name
    if tuned is not None:
        title = f"Tuning {tuned.policy}"
    shown = [_experiment(each, f"e{i}", tuned) for i, each in enumerate(every)]
    return _page(f"{title}: results", title, shown, found)


def _page(title: str, folder: str, shown: Sequence[Mapping[str, Any]], found: str = "") -> str:
    return render(
        "experiments.html",
        title=title,
        folder=folder,
        version=gangwise.__version__,
        found=found,
        most_said=SAID,
        experiments=shown,
    )


def _experiment(results: Results, anchor: str, tuned: Tuning | None) -> dict[str, Any]:
    name = str(results.experiment["name"])
    head = {"name": name, "anchor": anchor, "byline": "", "nothing": ""}
    if not results.runs:
        return head | {"nothing": "None of its runs is finished."}
    if not results.policies:
        return head | {"nothing": "No run of a policy is finished."}
    numbers = Numbers(results)
    scenario, settings = numbers.scenario()
    about = head | {
        "fidelity": results.told,
        "missing": missing(results),
        "scenario": {"scenario": scenario, **settings},
        "made": _made(
            results.store.folder,
            name,
            [f"runs/{run['key']}.parquet" for run in results.runs],
            experiment_toml(results.experiment),
            {"gangwise of the runs": ", ".join(numbers.run_versions) or NOTHING},
            _keys(results) if len(results.runs) <= KEYS else (),
        ),
    }
    if tuned is not None and name == TUNING:
        says = tuning.tuning_head(tuned, numbers)
        return about | says | {"tuning": tuning.tuning_parts(tuned, numbers)}
    return about | _shown(numbers, anchor, figures(numbers))


def _shown(numbers: Numbers, anchor: str, drawn: Sequence[Drawn]) -> dict[str, Any]:
    """What is shown of any experiment: a comparison, one cell of a sweep, or many."""
    results = numbers.results
    rest = [policy for policy in results.policies if policy not in numbers.drawn]
    looks = plain_styles([*numbers.drawn, *results.comparators, *rest])
    anchors = {policy: f"{anchor}-policy-{i}" for i, policy in enumerate(results.policies)}

    def links(sheet: Sheet) -> list[str]:
        return [anchors.get(name, "") for name, _ in sheet.rows]

    scenario, settings = numbers.scenario()
    about = words.about_scenario(scenario)
    return {
        "title": words.title(
            numbers.family, scenario, results.policies, numbers.deciders[1], results.cells
        ),
        "words": words.glossary(numbers.family, settings, results.comparators),
        "more": words.documentation(numbers.family),
        "dots": _dots(numbers),
        "byline": f"{about}: {byline(numbers)}" if about else byline(numbers),
        "lead": lead(numbers),
        "tuning": None,
        "verdicts": results.sentences(),
        "looks": styles(numbers) if len(numbers.cells) == 1 else looks,
        "anchors": anchors,
        "links": links,
        "deciders": numbers.deciders[1].capitalize(),
        "results": sheets.page_sheets(numbers),
        "figures": drawn,
        "regrets": [_regret(numbers, name) for name in results.comparators],
        "policies": [_policy(numbers, policy) for policy in results.policies],
        "timings": sheets.time_sheet(numbers),
    }


def _dots(numbers: Numbers) -> list[Dots]:
    """Of one cell the lead of the best over each other; of many, each over the first policy."""
    results = numbers.results
    less, paired = results.minimise, "Paired by seed. " if len(numbers.seeds) > 1 else ""
    caption = f"{paired}A line is the 95 % confidence interval; where it holds 0 the dot is hollow"
    caption += ", and the difference may be chance."
    if len(numbers.seeds) == 1:
        caption = "One seed: no confidence interval."
    if len(results.policies) < 2:
        return []
    found = []
    if len(numbers.cells) == 1:
        (cell,) = numbers.cells
        best, *others = numbers.ranking(cell)
        rows = {other: row for other in others if (row := numbers.over(other).get((cell, best)))}
        percent = all(row["percent"] for row in rows.values())
        unit = "%" if percent else results.unit or "reward"
        of = {
            other: Estimate(row["mean"], row["low"], row["high"])
            for other, row in rows.items()
            if row["percent"] == percent
        }
        what = "change" if less else "lead"
        found.append(dots(f"{what.capitalize()} of {best} over each other, {unit}", of, caption))
    else:
        base = results.policies[0]
        for cell in numbers.cells[:MOST]:
            of = {
                policy: Estimate(row["mean"], row["low"], row["high"])
                for (at, policy), row in numbers.over(base).items()
                if at == cell and row["percent"]
            }
            where = cell_text(results.cells, cell)
            found.append(dots(f"More or less than {base}, %: {where}", of, caption))
    return [each for each in found if each is not None]


def _regret(numbers: Numbers, comparator: str) -> dict[str, Any]:
    try:
        sheet = sheets.regret_sheet(numbers, comparator)
    except StoreError as error:
        return {"sheet": None, "said": str(error)}
    return {"sheet": sheet, "said": about_comparator(numbers, comparator)}


def _policy(numbers: Numbers, policy: str) -> dict[str, Any]:
    results = numbers.results
    found = [sheets.policy_sheet(numbers, policy)]
    for comparator in results.comparators:
        try:
            found.append(sheets.regret_sheet(numbers, comparator, policy))
        except StoreError:
            continue
    metrics = sheets.metric_sheet(numbers, policy)
    kind, arguments = numbers.configuration(policy)
    return {
        "name": policy,
        "about": words.about_scheduler(policy)
        if numbers.family == "jobs"
        else words.about_policy(policy),
        "said": [
            f"{cell_text(results.cells, cell)}: {text}" if results.cells else text
            for cell in numbers.cells
            if (text := against_best(numbers, cell, policy))
        ],
        "sheets": found if metrics is None else [*found, metrics],
        "configuration": {"class": kind, **arguments},
    }


def _keys(results: Results) -> list[str]:
    return [
        f"{run['key']}  {run['label']}, "
        + "".join(f"{k} = {v}, " for k, v in run["cell"].items())
        + f"seed {run['seed']}"
        for run in results.runs
    ]


# A reproduction


def _reproduction(folder: Path) -> str:
    found = reproduction.read_reproduction(folder)
    papers = list(dict.fromkeys(a.paper for a in found.artefacts))
    named = [reproduction.PAPERS.get(paper, paper) for paper in papers]
    scale = "quick: fewer slots, seeds and cells than the papers" if found.quick else "full scale"
    timings, unread = reproduction.timings_sheet(folder, found.artefacts)
    shown = [f"{a.stem}.{ending}" for a in found.artefacts for ending in ("parquet", "svg")]
    return render(
        "reproduction.html",
        title="The papers' numbers beside ours",
        byline="; ".join([", ".join(named), scale, f"gangwise {gangwise.__version__}"]),
        lead=reproduction.lead(found),
        left_out=found.left_out,
        overview=reproduction.overview_sheet(found) if len(found.artefacts) > 1 else None,
        claims=reproduction.claims_sheet(found) if found.rows else None,
        choices={"verdict": reproduction.VERDICTS, "paper": papers},
        artefacts=[reproduction.artefact_parts(folder, a, found.rows) for a in found.artefacts],
        timings=timings,
        unread=unread,
        made=_made(folder, "reproduction", ["reproduction.json", "side-by-side.json", *shown]),
    )


# A comparison


def write_comparison(
    comparison: Comparison, directory: Path | str, command: str = ""
) -> list[Path]:
    """Write ``rewards.parquet``, ``summary.json``, the figures and ``report.html``, as a whole.

    Parameters
    ----------
    comparison : Comparison
    directory : path
    command : str
        The command that made this comparison, to be shown as it is.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    StoreError
        When they cannot be written; what was there before is still there.
    """
    folder = comparison.store(directory).files
    with folder.publish(COMPARISON) as new:
        digests = {name: new.write(name, content) for name, content in comparison.files().items()}
        if command:
            about = f"{comparison.results.experiment['name']}.command.json"
            new.write(about, provenance_text(command))
        for name, content in figure_files(Numbers(comparison.results)).items():
            new.write(name, content)
        new.write(PAGE, comparison_page(comparison, command, digests["rewards.parquet"]))
        names = list(new.staged)
    return [folder.place(name) for name in names]


def write_replay(
    played: Replayed,
    directory: Path | str,
    bounds: Mapping[str, float] | Sequence[LowerBound] | None = None,
    command: str = "",
    sensitivity: Sensitivity | None = None,
) -> list[Path]:
    """Write ``summary.json``, the prices that prove the bounds, and ``report.html``, as a whole.

    Raises
    ------
    StoreError
        When they cannot be written; what was there before is still there.
    """
    folder = Folder(directory)
    proven = [] if isinstance(bounds, Mapping) else list(bounds or [])
    values = (
        list(bounds.values())
        if isinstance(bounds, Mapping)
        else [bound.mean_completion for bound in proven]
    )
    with folder.publish(REPLAY) as new:
        summary = {**played.as_dict(), "lower_bounds": values}
        new.write("summary.json", json.dumps(finite(summary), indent=2) + "\n")
        new.write(BOUNDS, json.dumps(dict(zip(map(str, played.seeds), values))) + "\n")
        for seed, bound in zip(played.seeds, proven):
            new.write(f"prices-{seed}.parquet", partial(_write_prices, bound))
        if sensitivity is not None:
            new.write(SENSITIVITY, json.dumps(sensitivity.as_dict(), indent=2) + "\n")
        if command:
            new.write(f"{REPLAY}.command.json", provenance_text(command))
        told = results_of(played, values, command, sensitivity)
        new.write(PAGE, job_report(told).page())
        names = list(new.staged)
    return [folder.place(name) for name in names]


BOUNDS, SENSITIVITY = "bounds.json", "sensitivity.json"


def _kept(folder: Path, name: str) -> str:
    return Folder(folder).read_text(name) if (folder / name).exists() else "{}"


def _write_prices(bound: LowerBound, file: Any) -> None:
    """Prices above 0: node, from when (seconds), for how long, price of a device-second."""
    node, period = np.nonzero(bound.prices)
    pl.DataFrame(
        {
            "node": node,
            "begin": bound.origin + period * bound.period,
            "seconds": np.full(node.size, bound.period),
            "price": bound.prices[node, period],
        }
    ).write_parquet(file)


def comparison_page(comparison: Comparison, command: str = "", digest: str = "") -> str:
    """The page of a comparison.

    Parameters
    ----------
    comparison : Comparison
    command : str
        The command that made this comparison, to be shown as it is.
    digest : str
        Of ``rewards.parquet``.
    """
    results = comparison.results
    numbers = Numbers(results)
    made = {
        "command": command,
        "what": "rewards",
        "file": "",
        "python": "This comparison was made from Python; scenario, slots, seeds and the policies' "
        "arguments, as given on this page, define every reward in it.",
        "versions": {
            "slots": comparison.slots,
            "seeds": ", ".join(map(str, comparison.seeds)),
            **versions(),
        },
        "caption": "Slots, seeds and versions",
        "runs": _keys(results) if len(results.runs) <= KEYS else (),
        "digest": digest,
        "of": "rewards.parquet",
    }
    head = {
        "name": comparison.scenario.name,
        "anchor": "e0",
        "nothing": "",
        "missing": "",
        "scenario": comparison.scenario.describe(),
        "made": made,
    }
    shown = head | _shown(numbers, "e0", figures(numbers))
    shown["figures"] = [*shown["figures"], *run_figures(comparison)]
    shown["fidelity"] = comparison.told
    if comparison.tied:
        shown |= {"lead": "", "verdicts": []}
    return _page(shown["title"], comparison.scenario.name, [shown])
