"""Run artefacts into one folder: all runs in one store, then numbers, pictures and the claims.

What earlier commands left in the folder stays where it is of the same scale, seeds and version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gangwise
from gangwise.core.errors import StoreError
from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment
from gangwise.experiments.sweep import Backend, Progress, silent, sweep
from gangwise.report.reproduction_files import Reproduced, read_reproduction
from gangwise.reproduce.artefact import Artefact, Found, Scale
from gangwise.reproduce.expected import Row, markdown, table


def earlier_artefacts(out: Path, scale: Scale, redone: Iterable[Artefact]) -> Reproduced:
    """What is in a folder and stays: artefacts at the same scale that are not done again.

    Nothing stays of another scale, other seeds or another version: one table holds what one
    command could have made. A torn file holds nothing.
    """
    nothing = Reproduced(scale.quick, {}, [], [])
    try:
        found = read_reproduction(out)
    except StoreError:
        return nothing
    same = (scale.quick, scale.seeds, gangwise.__version__)
    if (found.quick, found.seeds, found.version) != same:
        return nothing
    again = {artefact.stem for artefact in redone}
    return Reproduced(
        found.quick,
        {stem: why for stem, why in found.left_out.items() if stem not in again},
        [artefact for artefact in found.artefacts if artefact.stem not in again],
        [row for row in found.rows if f"{row['paper']}-{row['artefact']}" not in again],
        found.seeds,
        found.version,
    )


def write_artefact(artefact: Artefact, found: Found, out: Path) -> list[Path]:
    """Write the numbers of an artefact and its picture."""
    from gangwise.report.picture import COLUMNS, draw, save

    numbers = artefact.numbers(found).select(COLUMNS)
    paths = [out / f"{artefact.stem}.{ending}" for ending in ("csv", "parquet")]
    try:
        numbers.write_csv(paths[0])
        numbers.write_parquet(paths[1])
    except OSError as error:
        raise StoreError(f"cannot write {paths[0]}: {error}") from error
    title = f"{artefact.paper} {artefact.name}: {artefact.title}"
    return [*paths, *save(draw(title, numbers, artefact.panels), out / artefact.stem)]


def write_about(
    earlier: Reproduced,
    chosen: Mapping[Artefact, Sequence[Experiment]],
    left_out: Mapping[str, str],
    scale: Scale,
    out: Path,
) -> Path:
    """Write what the folder holds, for ``gangwise report``."""
    there = {artefact.stem for artefact in earlier.artefacts}
    told = {**earlier.left_out, **left_out}
    about = {
        "version": gangwise.__version__,
        "quick": scale.quick,
        "seeds": None if scale.seeds is None else list(scale.seeds),
        "artefacts": [
            *(vars(artefact) for artefact in earlier.artefacts),
            *(
                {
                    "paper": a.paper,
                    "name": a.name,
                    "title": a.title,
                    "experiments": [e.name for e in experiments],
                }
                for a, experiments in chosen.items()
            ),
        ],
        "left_out": {stem: why for stem, why in told.items() if stem not in there},
    }
    path = out / "reproduction.json"
    try:
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", "utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}") from error
    return path


def write_rows(earlier: Reproduced, rows: Sequence[Row], out: Path) -> list[Path]:
    """Write the side-by-side table, the rows of earlier commands first."""
    every = [*map(Row.of, earlier.rows), *rows]
    paths = [out / f"side-by-side.{ending}" for ending in ("csv", "md", "json")]
    try:
        out.mkdir(parents=True, exist_ok=True)
        table(every).write_csv(paths[0])
        paths[1].write_text(markdown(every), encoding="utf-8")
        plain = [row.as_dict() for row in every]
        paths[2].write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", "utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {paths[0]}: {error}") from error
    return paths


@dataclass(frozen=True)
class Reproduction:
    """What was found.

    Attributes
    ----------
    rows : list of Row
        Claims beside our numbers.
    written : list of Path
    left_out : dict
        Artefacts that were not run, and why.
    joined : bool
        Whether artefacts of earlier commands stay beside these in the folder.
    """

    rows: list[Row]
    written: list[Path]
    left_out: dict[str, str]
    joined: bool = False


def reproduce(
    artefacts: Sequence[Artefact],
    scale: Scale,
    out: Path | str,
    jobs: int = -1,
    backend: Backend = "loky",
    address: str | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Run what is not there yet, then write numbers, pictures and the side-by-side table.

    Parameters
    ----------
    artefacts : sequence of Artefact
    scale : Scale
    out : path
        ``runs/`` (the store), ``PAPER-ARTEFACT.png``, ``.svg``, ``.csv`` and ``.parquet``,
        ``side-by-side.csv``, ``.md`` and ``.json``, ``reproduction.json`` (which artefacts).
        Artefacts of earlier calls at the same scale stay beside the new ones.
    jobs, backend, address, progress
        As for :func:`gangwise.experiments.sweep.sweep`.

    Raises
    ------
    StoreError
        When results cannot be written.
    """
    out, tell = Path(out), progress or silent
    left_out: dict[str, str] = {}
    chosen: dict[Artefact, list[Experiment]] = {}
    for artefact in artefacts:
        folder = None if scale.traces is None else scale.traces / artefact.trace
        if artefact.trace and (folder is None or not folder.is_dir()):
            left_out[artefact.stem] = f"needs the trace {artefact.trace}: " + (
                "give the folder that holds it with --traces"
                if folder is None
                else f"there is no folder {folder}"
            )
            continue
        chosen[artefact] = list(artefact.experiments(scale))
    unique = {e.name: e for experiments in chosen.values() for e in experiments}
    total, done = sum(len(e.runs()) for e in unique.values()), 0
    results: dict[str, Results] = {}
    for experiment in unique.values():
        before = done

        def further(what: str, finished: int, of: int, before: int = before) -> None:
            nonlocal done
            done = before + finished
            tell("runs", done, total)

        results[experiment.name] = sweep(experiment, out / "runs", jobs, backend, address, further)
    rows: list[Row] = []
    written: list[Path] = []
    for artefact, experiments in chosen.items():
        found = {e.name: results[e.name] for e in experiments}
        written += write_artefact(artefact, found, out)
        for claim in artefact.claims:
            rows += [
                Row(
                    artefact.paper,
                    artefact.name,
                    claim.says,
                    version,
                    claim.paper,
                    ours,
                    claim.judge(ours),
                    claim.why,
                    claim.timed,
                )
                for version, ours in claim.ours(found).items()
            ]
    earlier = earlier_artefacts(out, scale, chosen)
    written += write_rows(earlier, rows, out)
    written.append(write_about(earlier, chosen, left_out, scale, out))
    return Reproduction(rows, written, left_out, bool(earlier.artefacts))
