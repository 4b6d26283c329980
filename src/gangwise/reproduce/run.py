"""Run artefacts: one store for all runs, then numbers, pictures and the side-by-side table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gangwise.core.errors import StoreError
from gangwise.experiments.backends import Backend
from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment
from gangwise.experiments.sweep import sweep
from gangwise.reproduce.artefact import Artefact, Scale
from gangwise.reproduce.expected import Row

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Reproduction", "reproduce", "table"]

Progress = Callable[[str, int, int], None]


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
    """

    rows: list[Row]
    written: list[Path]
    left_out: dict[str, str]


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
    jobs, backend, address, progress
        As for :func:`gangwise.experiments.sweep.sweep`.

    Raises
    ------
    StoreError
        When results cannot be written.
    """
    out, tell = Path(out), progress or (lambda what, done, of: None)
    left_out: dict[str, str] = {}
    chosen: dict[Artefact, list[Experiment]] = {}
    for artefact in artefacts:
        folder = None if scale.traces is None else scale.traces / artefact.trace
        if artefact.trace and (folder is None or not folder.is_dir()):
            left_out[artefact.stem] = (
                f"needs the trace {artefact.trace}: give the folder that holds it with --traces"
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
        written += _write(artefact, found, out)
        for claim in artefact.claims:
            rows += [
                Row(artefact.paper, artefact.name, claim.says, version, claim.paper, ours,
                    claim.judge(ours), claim.why, claim.timed)
                for version, ours in claim.ours(found).items()
            ]  # fmt: skip
    written += _write_rows(rows, out)
    written.append(_write_about(chosen, left_out, scale, out))
    return Reproduction(rows, written, left_out)


def _write(artefact: Artefact, found: dict[str, Results], out: Path) -> list[Path]:
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


def _write_about(
    chosen: dict[Artefact, list[Experiment]], left_out: dict[str, str], scale: Scale, out: Path
) -> Path:
    """What the folder holds, for ``gangwise report``."""
    about = {
        "quick": scale.quick,
        "artefacts": [
            {"paper": a.paper, "name": a.name, "title": a.title,
             "experiments": [e.name for e in experiments]}
            for a, experiments in chosen.items()
        ],
        "left_out": left_out,
    }  # fmt: skip
    path = out / "reproduction.json"
    try:
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", "utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}") from error
    return path


def table(rows: Sequence[Row]) -> pl.DataFrame:
    """The side-by-side table: a row per claim and version."""
    import polars as pl

    plain = [row.as_dict() | {"the paper": str(row.number)} for row in rows]
    return pl.DataFrame(plain, infer_schema_length=None)


def markdown(rows: Sequence[Row]) -> str:
    """The side-by-side table for reading."""
    from gangwise.report.numbers import decimals_for, estimate_text

    lines = ["| where | what | the paper | version | ours | |", "|---|---|---|---|---|---|"]
    for row in rows:
        ours = estimate_text(row.ours, decimals_for([row.ours]))
        why = f": {row.why}" if row.why and row.verdict != "agrees" else ""
        lines.append(
            f"| {row.paper} {row.artefact} | {row.says} | {row.number} | {row.version} | {ours} "
            f"| {row.verdict}{why} |"
        )
    return "\n".join(lines) + "\n"


def _write_rows(rows: Sequence[Row], out: Path) -> list[Path]:
    if not rows:
        return []
    paths = [out / f"side-by-side.{ending}" for ending in ("csv", "md", "json")]
    try:
        table(rows).write_csv(paths[0])
        paths[1].write_text(markdown(rows), encoding="utf-8")
        plain = [row.as_dict() for row in rows]
        paths[2].write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", "utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {paths[0]}: {error}") from error
    return paths
