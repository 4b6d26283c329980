"""Run artefacts: one store for all runs, then numbers, pictures and the side-by-side table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment
from gangwise.experiments.sweep import Backend, Progress, silent, sweep
from gangwise.reproduce.artefact import Artefact, Scale
from gangwise.reproduce.expected import Row
from gangwise.reproduce.folder import earlier_artefacts, write_about, write_artefact, write_rows


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
