"""The page of a folder of results: a comparison, a sweep, a tuning, a replay, a reproduction.

:func:`document` reads a folder and gives the parts of its page, which is written as HTML, or its
tables and figures as files. A page quotes the digest of the files whose numbers it shows, and is
published as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl

import gangwise
from gangwise.core.errors import ScenarioError, StoreError
from gangwise.core.files import Folder, write_whole
from gangwise.core.settings import finite
from gangwise.experiments.compare import COMPARISON, Comparison, is_comparison
from gangwise.experiments.replay import NAME as REPLAY
from gangwise.experiments.replay import Replayed
from gangwise.experiments.results import Results
from gangwise.experiments.statistics import NOTHING
from gangwise.experiments.store import command_of, provenance_text, versions
from gangwise.experiments.sweep import experiment_toml
from gangwise.experiments.tune import TUNING, Tuning, read_tuning
from gangwise.experiments.what_if import as_dict as what_if
from gangwise.jobs.bounds import LowerBound
from gangwise.report import experiments, reproduction, tuning
from gangwise.report.curves import figure_files
from gangwise.report.jobs import results_of
from gangwise.report.page import Chapter, Format, Page, Part, Text, exported, html
from gangwise.report.plotting import COLUMN_WIDTH
from gangwise.report.provenance import again, by_command, made_in
from gangwise.report.words import sentence_case

PAGE = "report.html"
SUMMARY, BOUNDS = "summary.json", "bounds.json"

KEYS = 500
"""More runs than this, and their keys are not listed."""


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
        write_whole(out, html(document(folder)))
        return Path(out)
    names = _names(folder)
    # A page of these is published with the numbers it shows: new numbers remove it.
    if _compared(folder, names):
        found = Comparison.open(folder, names[0])
        write_comparison(found, folder, command_of(folder, names[0]))
    elif names == [REPLAY]:
        bounds = _stored(folder, BOUNDS)
        write_replay(Replayed.open(folder), folder, bounds, command_of(folder, REPLAY))
    else:
        page = html(document(folder))
        with Folder(folder).publish("report") as new:
            new.write(PAGE, page)
    return folder / PAGE


def write_files(
    folder: Path | str, wanted: Format, out: Path | str, width: float = COLUMN_WIDTH
) -> list[Path]:
    """Write the tables of a page as CSV, Markdown or LaTeX, or its figures as SVG, PDF or PNG.

    Into the folder ``out``; figures are ``width`` inches wide, by default as a column of a paper.
    StoreError when the folder holds no results, or a file cannot be written.
    """
    if wanted not in get_args(Format):
        raise ScenarioError(f"a report has no format {wanted!r}: {', '.join(get_args(Format))}")
    written = []
    for name, content in exported(document(Path(folder)), wanted, width).items():
        written.append(Path(out, name))
        write_whole(written[-1], content)
    return written


def _names(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise StoreError(f"there is no folder {folder}")
    if (folder / "reproduction.json").exists():
        return []
    return sorted(p.name.removesuffix(".plan.json") for p in folder.glob("*.plan.json"))


def _compared(folder: Path, names: Sequence[str]) -> bool:
    return len(names) == 1 and is_comparison(folder, names[0])


def document(folder: Path) -> Page:
    """The parts of the page about a folder; StoreError when it holds no results."""
    names = _names(folder)
    if _compared(folder, names):
        found = Comparison.open(folder, names[0])
        return comparison_page(found, command_of(folder, names[0]))
    if names == [REPLAY]:
        values, priced = _values(folder, _stored(folder, BOUNDS))
        command = command_of(folder, REPLAY)
        return results_of(Replayed.open(folder), values, command, priced).document()
    if names:
        return _experiments(folder, names)
    if (folder / "reproduction.json").exists():
        return reproduction.page(folder)
    raise StoreError(
        f"{folder} holds no results of gangwise sweep, reproduce, tune or compare; name the "
        "folder that was given to them as --out"
    )


# Experiments: sweeps and tunings


def _experiments(folder: Path, names: Sequence[str]) -> Page:
    tuned = read_tuning(folder) if TUNING in names else None
    every = [Results.open(folder, name) for name in names]
    if not any(results.runs for results in every):
        raise StoreError(f"no run in {folder} is finished; start the sweep again")
    title, lead = names[0] if len(names) == 1 else folder.resolve().name, ""
    if tuned is not None:
        # What gangwise tune concluded; its trials alone would say more than they know.
        title, lead = f"Tuning {tuned.policy}", f"{sentence_case(tuned.sentence)}."
    chapters = [_experiment(each, f"e{i}", tuned) for i, each in enumerate(every)]
    byline = f"{len(names)} experiments, gangwise {gangwise.__version__}"
    return Page(f"{title}: results", chapters, title, byline, lead)


def _experiment(results: Results, anchor: str, tuned: Tuning | None) -> Chapter:
    name = str(results.experiment["name"])
    if not results.runs or not results.policies:
        what = "No run of a policy is" if results.runs else "None of its runs is"
        return Chapter(name, "", [Text(f"{what} finished.")], name)
    scenario, settings = results.scenario()
    made = made_in(
        results.store.folder,
        name,
        [f"runs/{run['key']}.parquet" for run in results.runs],
        experiment_toml(results.experiment),
        {"gangwise of the runs": ", ".join(results.run_versions) or NOTHING},
        _keys(results),
    )
    shown = experiments.Shown(results, anchor, made, {"scenario": scenario, **settings})
    notes: list[Part] = [Text(line, "note") for line in results.notes]
    if tuned is not None and name == TUNING:
        found = tuning.chapter(tuned, shown)
        return found._replace(name=name, parts=[*notes, *found.parts])
    return experiments.chapter(shown, results.notes, name=name)


def _keys(results: Results) -> list[str]:
    if len(results.runs) > KEYS:
        return []
    return [
        f"{run['key']}  {run['label']}, "
        + "".join(f"{k} = {v}, " for k, v in run["cell"].items())
        + f"seed {run['seed']}"
        for run in results.runs
    ]


# A comparison


def write_comparison(
    comparison: Comparison, directory: Path | str, command: str = ""
) -> list[Path]:
    """Write ``rewards.parquet``, ``summary.json``, the figures and ``report.html``, as a whole.

    Gives the files. StoreError when they cannot be written; what was there before is still there.
    ``command`` made this comparison, and is shown as it is.
    """
    folder = comparison.store(directory).files
    with folder.publish(COMPARISON) as new:
        digests = {name: new.write(name, content) for name, content in comparison.files().items()}
        if command:
            about = f"{comparison.results.experiment['name']}.command.json"
            new.write(about, provenance_text(command))
        for name, content in figure_files(comparison.results).items():
            new.write(name, content)
        new.write(PAGE, html(comparison_page(comparison, command, digests["rewards.parquet"])))
        names = list(new.staged)
    return [folder.place(name) for name in names]


def comparison_page(comparison: Comparison, command: str = "", digest: str = "") -> Page:
    """The page of a comparison: the command that made it, and the digest of ``rewards.parquet``."""
    played = {"slots": comparison.slots, "seeds": ", ".join(map(str, comparison.seeds))}
    how = by_command(
        command,
        "rewards",
        "This comparison was made from Python; scenario, slots, seeds and the policies' arguments, "
        "as given on this page, define every reward in it.",
    )
    caption, keys = "Slots, seeds and versions", _keys(comparison.results)
    made = again(how, played | versions(), caption, keys, digest, "rewards.parquet")
    shown = experiments.Shown(comparison.results, "e0", made, comparison.scenario.describe())
    chapter = experiments.chapter(shown, comparison.notes, bool(comparison.tied))
    return Page(chapter.title, [chapter])


# A replay


def _stored(folder: Path, name: str) -> Any:
    return json.loads(Folder(folder).read_text(name)) or None if (folder / name).exists() else None


def _values(
    folder: Path, bounds: Mapping[str, float] | Sequence[LowerBound] | None
) -> tuple[list[float], bool]:
    if isinstance(bounds, Mapping):
        return list(bounds.values()), (_stored(folder, SUMMARY) or {}).get("prices_searched", True)
    found = list(bounds or [])
    return [bound.mean_completion for bound in found], all(bound.searched for bound in found)


def write_replay(
    played: Replayed,
    directory: Path | str,
    bounds: Mapping[str, float] | Sequence[LowerBound] | None = None,
    command: str = "",
) -> list[Path]:
    """Write ``summary.json``, the prices that prove the bounds, and ``report.html``, as a whole.

    Bounds that are given as numbers are those of the folder: the prices that prove them stay.
    StoreError when files cannot be written; what was there before is still there.
    """
    folder = Folder(directory)
    values, priced = _values(folder.path, bounds)
    with folder.publish(REPLAY) as new:
        results = results_of(played, values, command, priced)
        summary = finite(played.as_dict(values, priced) | what_if(played))
        new.write(SUMMARY, json.dumps(summary, indent=2) + "\n")
        new.write(BOUNDS, json.dumps(dict(zip(map(str, played.seeds), values))) + "\n")
        if isinstance(bounds, Mapping):
            for path in sorted(folder.path.glob("prices-*.parquet")):
                new.write(path.name, path.read_bytes())
        elif priced:
            for seed, bound in zip(played.seeds, bounds or []):
                new.write(f"prices-{seed}.parquet", partial(_write_prices, bound))
        if command:
            new.write(f"{REPLAY}.command.json", provenance_text(command))
        new.write(PAGE, results.page())
        names = list(new.staged)
    return [folder.place(name) for name in names]


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
