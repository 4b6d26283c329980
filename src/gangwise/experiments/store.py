"""The store: finished runs on disk, one Parquet file each, and together one tidy data set.

A folder of results holds ``runs/KEY.parquet`` and, for each experiment, ``NAME.plan.json`` (what it
asks for) and ``NAME.command.json`` (how it was made). The key is a hash of all that defines a run,
so experiments share the runs that are the same, and whoever asks for more gets only the rest done.

Files go through :mod:`gangwise.core.files`, so that one under its final name is whole. A run
carries a digest of its content as well: a copy of the folder without its ``.gangwise`` is still
good, and a file that a disk has damaged counts as not done.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import gangwise
from gangwise.core.errors import StoreError
from gangwise.core.files import Folder
from gangwise.experiments.runs import PLAN, Rows

FORMAT = "gangwise-run-1"


class Store:
    """The finished runs under a folder.

    Parameters
    ----------
    folder : path
    """

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        self.files = Folder(self.folder)

    def lock(self) -> AbstractContextManager[None]:
        """Keep other writers out of the folder."""
        return self.files.lock()

    def path(self, key: str) -> Path:
        """Where a run is."""
        return self.files.place(_name(key))

    def checkpoint(self, key: str) -> Path | None:
        """Where an unfinished run is saved; None where nothing can be kept."""
        return self.files.checkpoint(key)

    def write(self, key: str, identity: Mapping[str, Any], rows: Rows) -> None:
        """Store a finished run, all or nothing."""
        frame = _frame(rows).select(*_columns(key, identity), "metric", "at", "value")
        seal = _seal(key, frame)

        def parquet(file: Any) -> None:
            frame.write_parquet(file, metadata=seal)

        self.files.write(_name(key), parquet, replace=True)
        self.forget_checkpoint(key)

    def forget_checkpoint(self, key: str) -> None:
        """Remove the state of a run that is finished."""
        checkpoint = self.checkpoint(key)
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)

    def read(self, key: str) -> pl.DataFrame | None:
        """A finished run; None unless it is there and whole.

        Columns: what :meth:`about` tells, ``metric``, ``at`` and ``value``.
        """
        try:
            data = io.BytesIO(self.path(key).read_bytes())
            about = pl.read_parquet_metadata(data)
            frame = pl.read_parquet(data)
            sealed = _seal(key, frame)
        except (OSError, pl.exceptions.PolarsError):
            return None
        return frame if sealed.items() <= about.items() else None

    def finished(self, key: str) -> bool:
        """Whether a run is there and whole."""
        return self.path(key).exists() and self.read(key) is not None

    def rows(self, key: str) -> Rows:
        """The numbers of a finished run."""
        frame, rows = self._whole(key), Rows()
        named = frame.select("metric", pl.col("at").fill_null(-1), "value")
        for (metric,), part in named.group_by("metric", maintain_order=True):
            rows.add(str(metric), part["value"].to_numpy(), part["at"].to_numpy())
        return rows

    def about(self, key: str) -> dict[str, Any]:
        """What a finished run is: scenario, settings, policy, configuration, seed, slots …"""
        frame = self._whole(key)
        first = frame.drop("metric", "at", "value").row(0, named=True)
        return {n: json.loads(v) if n in _JSON else v for n, v in first.items()}

    def scan(self, keys: Iterable[str]) -> pl.LazyFrame:
        """Numbers of finished runs; columns ``key``, ``metric``, ``at`` and ``value``."""
        paths = [self.path(key) for key in dict.fromkeys(keys)]
        return pl.scan_parquet(paths).select("key", "metric", "at", "value")

    def _whole(self, key: str) -> pl.DataFrame:
        frame = self.read(key)
        if frame is None:
            raise StoreError(
                f"{self.path(key)} is missing or damaged; run the command that made it again"
            )
        return frame

    def write_plan(self, name: str, plan: Mapping[str, Any]) -> None:
        """Store what an experiment asks for."""
        text = json.dumps(plan, indent=1, allow_nan=False) + "\n"
        self.files.write(name + PLAN, text, replace=True)

    def plans(self) -> list[str]:
        """Names of the experiments, sorted."""
        return sorted(p.name.removesuffix(PLAN) for p in self.folder.glob(f"*{PLAN}"))

    def read_plan(self, name: str = "") -> dict[str, Any]:
        """What an experiment asks for; without a name, of the only one there.

        Raises
        ------
        StoreError
            When there is none, or several to choose from.
        """
        known = self.plans()
        if not name and len(known) == 1:
            name = known[0]
        if name not in known:
            which = f"choose one of {', '.join(known)}" if known else "run gangwise sweep first"
            raise StoreError(f"{self.folder} has no results of {name or 'one experiment'}; {which}")
        try:
            plan = json.loads(self.files.read_text(name + PLAN))
            return {
                "experiment": dict(plan["experiment"]),
                "runs": list(plan["runs"]),
                "fidelity": list(plan.get("fidelity", ())),
            }
        except (ValueError, KeyError, TypeError) as error:
            path = self.folder / f"{name}{PLAN}"
            raise StoreError(f"cannot read {path}: {error!r}; sweep again to mend it") from error


class MemoryStore(Store):
    """Finished runs that are kept nowhere else.

    Parameters
    ----------
    file : path, optional
        Where the caller will write what it needs of them. Unfinished runs are saved beside it.
    """

    def __init__(self, file: Path | None = None) -> None:
        super().__init__("memory" if file is None else file.parent)
        self._file = file
        self._runs: dict[str, tuple[Mapping[str, Any], Rows]] = {}
        self._plans: dict[str, Mapping[str, Any]] = {}

    def lock(self) -> AbstractContextManager[None]:
        """Keep other writers of the file out."""
        return nullcontext() if self._file is None else self.files.lock(self._file.name)

    def checkpoint(self, key: str) -> Path | None:
        """Where the unfinished run is saved; nowhere without a file, which is of one run."""
        return None if self._file is None else self.files.checkpoint(self._file.name)

    def write(self, key: str, identity: Mapping[str, Any], rows: Rows) -> None:
        """Keep a finished run."""
        self._runs[key] = identity, rows

    def read(self, key: str) -> pl.DataFrame | None:
        """A finished run."""
        if key not in self._runs:
            return None
        identity, rows = self._runs[key]
        return _frame(rows).select(*_columns(key, identity), "metric", "at", "value")

    def finished(self, key: str) -> bool:
        """Whether a run is there."""
        return key in self._runs

    def rows(self, key: str) -> Rows:
        """The numbers of a finished run."""
        return self._runs[key][1]

    def about(self, key: str) -> dict[str, Any]:
        """What a finished run is."""
        return {**_about(key, self._runs[key][0])}

    def scan(self, keys: Iterable[str]) -> pl.LazyFrame:
        """Numbers of finished runs."""
        frames = [
            _frame(self._runs[key][1]).lazy().select(pl.lit(key).alias("key"), pl.all())
            for key in dict.fromkeys(keys)
        ]
        return pl.concat(frames)

    def write_plan(self, name: str, plan: Mapping[str, Any]) -> None:
        """Keep what an experiment asks for."""
        self._plans[name] = plan

    def plans(self) -> list[str]:
        """Names of the experiments, sorted."""
        return sorted(self._plans)

    def read_plan(self, name: str = "") -> dict[str, Any]:
        """What an experiment asks for."""
        return dict(self._plans[name or next(iter(self._plans))])


_JSON = ("settings", "configuration")


def _name(key: str) -> str:
    return f"runs/{key}.parquet"


def _frame(rows: Rows) -> pl.DataFrame:
    frame = pl.DataFrame(
        {
            "metric": [name for name, n in rows.metrics for _ in range(n)],
            "at": np.concatenate(rows.at),
            "value": np.concatenate(rows.values),
        }
    )
    return frame.with_columns(pl.when(pl.col("at") >= 0).then(pl.col("at")))


def _about(key: str, identity: Mapping[str, Any]) -> dict[str, Any]:
    names = ("scenario", "family", "settings", "policy", "configuration", "comparator")
    numbers = ("seed", "slots", "version")
    return {"key": key, **{name: identity.get(name) for name in (*names, *numbers)}}


def _columns(key: str, identity: Mapping[str, Any]) -> list[pl.Expr]:
    """What a run is, the same in every row: a data set of all runs can be read as one table."""
    found = []
    for name, value in _about(key, identity).items():
        kind = pl.Int64 if name in ("seed", "slots") else pl.String
        text = json.dumps(value) if name in _JSON else value
        found.append(pl.lit(text, kind).alias(name))
    return found


def _seal(key: str, frame: pl.DataFrame) -> dict[str, str]:
    """What tells a whole file from a torn one: a digest of the content, however compressed."""
    digest = hashlib.sha256()
    for column in frame.iter_columns():
        if column.name in ("at", "value"):
            digest.update(column.fill_null(-1).to_numpy().tobytes())
        else:
            runs = column.rle().struct.unnest()
            digest.update(repr([column.name, runs.rows()]).encode())
    return {"format": FORMAT, "key": key, "digest": digest.hexdigest()}


@dataclass(frozen=True)
class Provenance:
    """How results were made: a command as it was typed, and the versions that it ran with."""

    command: str
    versions: dict[str, str]


def versions() -> dict[str, str]:
    """Versions of what results depend on, here and now.

    >>> list(versions())
    ['gangwise', 'python', 'numpy', 'numba', 'polars']
    """
    found = {"gangwise": gangwise.__version__, "python": platform.python_version()}
    for package in ("numpy", "numba", "polars"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def provenance_text(command: str) -> str:
    """The content of a ``NAME.command.json``, here and now."""
    about = Provenance(command, versions())
    return json.dumps(asdict(about), indent=1, ensure_ascii=False) + "\n"


def write_provenance(folder: Path, name: str, command: str) -> Path:
    """Write ``NAME.command.json`` into a folder of results.

    Raises
    ------
    StoreError
        When it cannot be written.
    """
    return Folder(folder).write(f"{name}.command.json", provenance_text(command), replace=True)


def read_provenance(folder: Path, name: str) -> Provenance | None:
    """What :func:`write_provenance` wrote; None where nothing was, as by a sweep from Python."""
    path = folder / f"{name}.command.json"
    if not path.exists():
        return None
    try:
        return Provenance(**json.loads(Folder(folder).read_text(path.name)))
    except (ValueError, TypeError) as error:
        raise StoreError(
            f"cannot read {path}: {error}; delete it, or run the command again"
        ) from error
