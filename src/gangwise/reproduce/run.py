"""Run artefacts into one folder: all runs in one store, then numbers, pictures and the claims.

What earlier commands left in the folder stays where it is of the same scale, seeds and version.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import gangwise
from gangwise.core.errors import StoreError
from gangwise.core.files import Content, Folder
from gangwise.experiments.results import Results
from gangwise.experiments.store import Store
from gangwise.experiments.sweep import Backend, Experiment, Progress, silent, sweep
from gangwise.report.pages import PAGE, ArtefactEntry, ClaimResult, Reproduced, read_reproduction
from gangwise.report.plotting import COLUMNS, draw, image
from gangwise.reproduce.expected import (
    Totals,
    claim_result,
    markdown,
    over_readings,
    table,
    totals,
    with_verdicts,
)
from gangwise.reproduce.papers import Artefact, Found, RunScale

ENDINGS = ("csv", "parquet", "png", "svg")  # files of an artefact


def earlier_artefacts(out: Path, scale: RunScale, redone: Iterable[Artefact]) -> Reproduced:
    """What is in a folder and stays: artefacts at the same scale that are not done again.

    Nothing stays of another scale, other seeds or another version: one table holds what one
    command could have made. A torn file holds nothing.
    """
    here = gangwise.__version__, scale.quick, scale.seeds
    version, quick, seeds = here
    nothing = Reproduced(version=version, quick=quick, seeds=seeds, artefacts=[], left_out={})
    try:
        found = read_reproduction(out)
    except StoreError:
        return nothing
    if (found.version, found.quick, found.seeds) != here:
        return nothing
    again = {artefact.stem for artefact in redone}
    return replace(
        found,
        left_out={stem: why for stem, why in found.left_out.items() if stem not in again},
        artefacts=[artefact for artefact in found.artefacts if artefact.stem not in again],
        rows=[row for row in found.rows if row.stem not in again],
    )


def artefact_files(artefact: Artefact, found: Found) -> dict[str, Content]:
    """The numbers of an artefact and its picture, by the names of their files."""
    numbers = artefact.numbers(found).select(COLUMNS)
    title = f"{artefact.paper} {artefact.name}: {artefact.title}"
    figure = draw(title, numbers, artefact.panels)
    return {
        f"{artefact.stem}.csv": numbers.write_csv(),
        f"{artefact.stem}.parquet": numbers.write_parquet,
        f"{artefact.stem}.png": image(figure, "png"),
        f"{artefact.stem}.svg": image(figure, "svg"),
    }


def _claim_files(rows: Sequence[ClaimResult]) -> dict[str, Content]:
    plain = json.dumps([row.as_dict() for row in rows], indent=1, ensure_ascii=False)
    return {
        "side-by-side.csv": table(rows).write_csv(),
        "side-by-side.md": markdown(rows),
        "side-by-side.json": plain + "\n",
    }


def publish(out: Path, files: Mapping[str, Content], kept: Iterable[ArtefactEntry]) -> list[Path]:
    """Put files into a folder as a whole, beside those of artefacts that stay.

    What else earlier commands left there goes, and with it a page about it. StoreError when a file
    cannot be written, or one that stays is damaged; nothing is changed then.
    """
    folder = Folder(out)
    with folder.publish("reproduction") as new:
        for artefact in kept:
            for ending in ENDINGS:
                if folder.place(name := f"{artefact.stem}.{ending}").exists():
                    new.write(name, folder.read(name))
        for name, content in files.items():
            new.write(name, content)
        folder.remove(PAGE)
    return [folder.place(name) for name in files]


@dataclass(frozen=True)
class Reproduction:
    rows: list[ClaimResult]  # claims beside our numbers, one for each reading
    written: list[Path]
    left_out: dict[str, str]  # artefacts that were not run, and why
    totals: Totals
    artefacts: tuple[Artefact, ...] = ()  # those that were played
    played: float = 0.0  # when the first of their runs was made, seconds since 1970
    joined: bool = False  # whether artefacts of earlier commands stay beside these in the folder


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
    artefacts). Artefacts of earlier calls at the same scale stay beside the new ones. For ``jobs``,
    ``backend`` and ``address`` see :func:`gangwise.experiments.sweep.sweep`.

    StoreError when results cannot be written.
    """
    out, advance = Path(out), progress or silent
    left_out: dict[str, str] = {}
    chosen: dict[Artefact, list[Experiment]] = {}
    for artefact in artefacts:
        if why := _missing_trace(artefact, scale):
            left_out[artefact.stem] = why
        else:
            chosen[artefact] = list(artefact.experiments(scale))
    unique = {e.name: e for experiments in chosen.values() for e in experiments}
    runs, done = sum(len(e.runs()) for e in unique.values()), 0
    results: dict[str, Results] = {}
    for name, experiment in unique.items():

        def further(what: str, finished: int, of: int, before: int = done) -> None:
            advance("runs", before + finished, runs)

        results[name] = sweep(experiment, out / "runs", jobs, backend, address, further)
        done += len(experiment.runs())
    rows: list[ClaimResult] = []
    files: dict[str, Content] = {}
    shown: list[ArtefactEntry] = []
    for artefact, experiments in chosen.items():
        found = {e.name: results[e.name] for e in experiments}
        files |= artefact_files(artefact, found)
        mine = [
            claim_result(artefact, claim, *each)
            for claim in artefact.claims
            for each in claim.ours(found).items()
            if math.isfinite(each[1].mean)  # not an exponent of a loss, or a share of nothing
        ]
        rows += with_verdicts(artefact, mine)[0]
        axes = tuple(artefact.panels)
        shown.append(
            ArtefactEntry(artefact.paper, artefact.name, artefact.title, tuple(found), axes)
        )
    earlier = earlier_artefacts(out, scale, chosen)
    files |= _claim_files([*earlier.rows, *over_readings(rows)])
    kept = {artefact.stem for artefact in earlier.artefacts}
    missing = {k: why for k, why in {**earlier.left_out, **left_out}.items() if k not in kept}
    every = replace(earlier, artefacts=[*earlier.artefacts, *shown], left_out=missing, rows=[])
    about = {name: of for name, of in asdict(every).items() if name != "rows"}
    files["reproduction.json"] = json.dumps(about, indent=1, ensure_ascii=False) + "\n"
    written = publish(out, files, earlier.artefacts)
    store = Store(out / "runs")
    keys = {run["key"] for found in results.values() for run in found.runs}
    played = min((store.path(key).stat().st_mtime for key in keys), default=0.0)
    again = bool(earlier.artefacts)
    return Reproduction(rows, written, left_out, totals(results), tuple(chosen), played, again)


def _missing_trace(artefact: Artefact, scale: RunScale) -> str:
    """Why an artefact cannot be played; empty where it can."""
    if not artefact.trace:
        return ""
    needs = f"needs the trace {artefact.trace}: "
    if scale.traces is None:
        return f"{needs}give the folder that holds it with --traces"
    folder = scale.traces / artefact.trace
    return "" if folder.is_dir() else f"{needs}there is no folder {folder}"
