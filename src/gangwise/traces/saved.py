"""Tables of a trace, kept as Parquet files beside a manifest, and fingerprints of arrays."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gangwise.core.errors import TraceError
from gangwise.traces.fidelity import Stage
from gangwise.traces.trace import Tables

if TYPE_CHECKING:
    import polars as pl


MANIFEST = "tables.json"
VERSION = 1


def fingerprint(*arrays: np.ndarray[Any, Any]) -> str:
    """SHA-256 of the shapes, types and values of arrays: the same on every machine.

    >>> fingerprint(np.zeros(2)) == fingerprint(np.zeros(2)) != fingerprint(np.zeros((2, 1)))
    True
    """
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def save_tables(tables: Tables, folder: Path) -> list[Path]:
    """Write tables to a folder, so that :func:`load_tables` gives the same ones.

    Returns
    -------
    list of path
        What was written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    frames = {"servers": tables.servers, "jobs": tables.jobs, "events": tables.events}
    written = []
    for name, frame in frames.items():
        if frame is not None:
            written.append(folder / f"{name}.parquet")
            frame.write_parquet(written[-1])
    manifest = {
        "version": VERSION,
        "trace": tables.trace,
        "units": dict(tables.units),
        "files": dict(tables.digests),
        "tables": [path.name for path in written],
        "stages": [
            [
                stage.name,
                stage.read,
                stage.kept,
                {why: list(lost) for why, lost in stage.dropped.items()},
            ]
            for stage in tables.stages
        ],
        "notes": list(tables.notes),
    }
    written.append(folder / MANIFEST)
    written[-1].write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return written


def load_tables(folder: Path) -> Tables:
    """Read what :func:`save_tables` wrote.

    Raises
    ------
    TraceError
        Names the file at fault.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["version"] != VERSION:
            raise TraceError(
                f"these tables are of version {manifest['version']}, and {VERSION} is read: write "
                "them again with gangwise trace workload",
                path,
            )
        stages = tuple(
            Stage(name, read, kept, {why: (lost[0], lost[1]) for why, lost in dropped.items()})
            for name, read, kept, dropped in manifest["stages"]
        )
        return Tables(
            manifest["trace"],
            _read(folder / "servers.parquet"),
            _read(folder / "jobs.parquet"),
            stages,
            manifest["files"],
            tuple(manifest["notes"]),
            manifest["units"],
            _read(folder / "events.parquet") if "events.parquet" in manifest["tables"] else None,
        )
    except (OSError, json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(
            f"this manifest of tables cannot be read ({type(error).__name__}: {error}); write them "
            "again with gangwise trace workload",
            path,
        ) from error


def _read(path: Path) -> pl.DataFrame:
    import polars as pl

    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise TraceError(f"this table cannot be read ({error})", path) from error
