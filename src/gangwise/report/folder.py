"""The report of a folder of results, whatever made it."""

from __future__ import annotations

from pathlib import Path

from gangwise.core.errors import StoreError
from gangwise.report.page import write_page

PAGE = "report.html"


def write_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Write one self-contained page about a folder of results.

    Parameters
    ----------
    folder : path
        Of a sweep (of one or more experiments), of ``gangwise tune``, of ``gangwise reproduce``, or
        of ``gangwise compare --out``, whose page is there already.
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
    if names:
        from gangwise.report.sweep_page import sweep_page

        return write_page(path, sweep_page(folder, names))
    if (folder / "rewards.parquet").exists() and (folder / PAGE).exists():
        made = folder / PAGE  # by gangwise compare
        return made if path == made else write_page(path, made.read_text(encoding="utf-8"))
    raise StoreError(
        f"{folder} holds no results of gangwise sweep, reproduce, tune or compare; name the folder "
        "that was given to them as --out"
    )
