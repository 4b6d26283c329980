"""The report of a folder of results, whatever made it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from gangwise.core.errors import StoreError
from gangwise.experiments.compare import Comparison, is_comparison
from gangwise.experiments.store import read_provenance, write_provenance
from gangwise.report.figures import draw
from gangwise.report.html import write_html
from gangwise.report.page import write_page

PAGE = "report.html"


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
    path = folder / PAGE if out is None else Path(out)
    if not folder.is_dir():
        raise StoreError(f"there is no folder {folder}")
    if (folder / "reproduction.json").exists():
        from gangwise.report.reproduction_page import reproduction_page

        return write_page(path, reproduction_page(folder))
    names = sorted(p.name.removesuffix(".plan.json") for p in folder.glob("*.plan.json"))
    if len(names) == 1 and is_comparison(folder, names[0]):
        comparison = Comparison.open(folder, names[0])
        known = read_provenance(folder, names[0])
        command = "" if known is None else known.command
        if out is None:
            write_comparison(comparison, folder, command)
            return path
        with TemporaryDirectory() as drawn:
            return write_html(comparison, path, draw(comparison, drawn), command)
    if names:
        from gangwise.report.sweep_page import sweep_page

        return write_page(path, sweep_page(folder, names))
    raise StoreError(
        f"{folder} holds no results of gangwise sweep, reproduce, tune or compare; name the folder "
        "that was given to them as --out"
    )


def write_comparison(
    comparison: Comparison, directory: Path | str, command: str = ""
) -> list[Path]:
    """Write runs, ``rewards.parquet``, ``summary.json``, the figures and ``report.html``."""
    directory = Path(directory)
    written = comparison.write(directory)
    figures = draw(comparison, directory)
    if command:
        write_provenance(directory, str(comparison.results.experiment["name"]), command)
    return [*written, *figures, write_html(comparison, directory / PAGE, figures, command)]
